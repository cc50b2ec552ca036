import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "mtcli"
FLOORS = [
    "errors attention languages limits regular_file loss messages outputs signals terminal torchrun",
    "fields data_info events presets config lines spacing tokenizer distributed memory optim progress",
    "demo rows tables corpus guess run_name doctor batching deadline model translation",
    "checkpoint model_file decode objective record align average run_folder state tensorboard",
    "prepare overlap translate engine evaluate validation likelihood budget",
    "train trainer train_log defaults dry_run plan chart info streams report export serve shares "
    "explain explain_stages explain_json explain_text explain_page",
    "cli __main__",
]
FLOOR = {name: number for number, names in enumerate(FLOORS, 1) for name in names.split()}
MODULES = sorted(PACKAGE.rglob("*.py"))
HEAVY = {"torch", "datasets", "pydantic", "tokenizers", "numpy", "pyarrow", "safetensors", "sacrebleu", "fastapi"}
LINES = 450


def dotted(path: Path) -> str:
    """`doctor.rules` of `…/mtcli/doctor/rules.py`, and `doctor` of `…/mtcli/doctor/__init__.py`."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


NAMES = {dotted(path) for path in MODULES}


def imports(tree: ast.AST) -> Iterator[str]:
    """The modules of ours that the code imports, at its top or inside functions: `doctor.rules`, `batching`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, "write imports from the package's root"
            whole = [f"{node.module}.{alias.name}" for alias in node.names] if node.module else []
            for name in whole:
                inner = name.removeprefix("mtcli.")
                if name.startswith("mtcli.") and inner != "__version__":
                    yield inner if inner in NAMES else inner.rpartition(".")[0]
        elif isinstance(node, ast.Import):
            yield from (a.name.removeprefix("mtcli.") for a in node.names if a.name.startswith("mtcli."))


GRAPH = {dotted(path): set(imports(ast.parse(path.read_text()))) for path in MODULES}


def floor(name: str) -> int:
    return FLOOR[name.partition(".")[0]]


def test_the_parser_sees_the_imports() -> None:
    assert {"batching", "checkpoint", "errors", "validation", "translate"} <= GRAPH["trainer"]
    assert {"config", "train", "distributed"} <= GRAPH["cli.training"]
    assert {"corpus", "demo", "tokenizer"} <= GRAPH["prepare"]
    assert set().union(*GRAPH.values()) <= NAMES
    assert list(
        imports(ast.parse("def f():\n    from mtcli import config, loss\n    import mtcli.data.quality.rules"))
    ) == [
        "config",
        "loss",
        "doctor.rules",
    ]


def test_every_module_has_its_floor() -> None:
    assert {name.partition(".")[0] for name in NAMES} - {"__init__"} <= FLOOR.keys()


def test_imports_point_down_or_sideways() -> None:
    up = [f"{a} imports {b}" for a, found in GRAPH.items() if a != "__init__" for b in found if floor(b) > floor(a)]
    assert up == []


def test_no_imports_in_a_circle() -> None:
    # a module may import its own package's parts; CycleError names the circle
    order = list(TopologicalSorter(GRAPH).static_order())
    assert order.index("errors") < order.index("config") < order.index("train") < order.index("cli")


def test_the_command_line_imports_the_rest_inside_its_functions() -> None:
    for path in (PACKAGE / "cli").glob("*.py"):
        tree = ast.parse(path.read_text())
        top = ast.Module([n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)], [])
        assert {name for name in imports(top) if not name.startswith("cli")} <= {"errors", "limits"}


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_a_module_is_read_in_one_sitting(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LINES


def loaded(code: str) -> set[str]:
    """Top-level modules that are loaded after this code."""
    code = f"import sys\n{code}\nprint('\\n' + ' '.join(m for m in sys.modules if '.' not in m))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


HELP = """
sys.argv = ["mtcli", {}"--help"]
from mtcli.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code
"""


@pytest.mark.parametrize("command", ["", '"train", ', '"translate", ', '"eval", ', '"serve", '])
def test_help_loads_nothing_heavy(command: str) -> None:
    found = loaded(HELP.format(command))
    assert "typer" in found
    assert not found & (HEAVY - {"pydantic"} if command else HEAVY)  # typer itself uses it for a command's options


def test_importing_the_command_line_loads_nothing_heavy() -> None:
    assert not loaded("import mtcli.cli") & HEAVY
    assert "torch" in loaded("import mtcli.data.batching")  # the measurement can tell


def test_help_loads_few_modules() -> None:
    """Loading them is what its 0.2 s are spent on."""
    code = "import sys" + HELP.format("") + "print(len(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "translate" in done.stdout
    assert int(done.stdout.splitlines()[-1]) < 450
