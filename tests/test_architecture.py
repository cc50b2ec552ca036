import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "mtcli"
PAGE = ROOT / "docs" / "architecture.md"
LAYERS = (
    "errors limits",
    "runtime",
    "text",
    "config",
    "model",
    "search",
    "terms",
    "corpus",
    "storage",
    "translate",
    "evaluation",
    "documents explain exchange",
    "report",
    "training serve",
    "recipes",
    "cli",
    "__main__",
)
"""Packages and top-level modules, from the lowest up. Each may import those in lower rows only."""
LAYER = {name: number for number, names in enumerate(LAYERS) for name in names.split()}
MODULES = sorted(PACKAGE.rglob("*.py"))
HEAVY = {"torch", "datasets", "pydantic", "tokenizers", "numpy", "pyarrow", "safetensors", "sacrebleu", "fastapi"}


def dotted(path: Path) -> str:
    """Return a module's name: `text.lines` for `…/mtcli/text/lines.py`, `data` for `…/mtcli/data/__init__.py`."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


NAMES = {dotted(path) for path in MODULES}


def imports(tree: ast.AST) -> Iterator[str]:
    """Yield the modules of mtcli that code imports, at its top or inside functions: `text.lines`, `errors`."""
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


def package(name: str) -> str:
    """Return the package of a module: `data` for `text.lines`."""
    return name.partition(".")[0]


def test_the_parser_sees_the_imports() -> None:
    assert {"corpus.batching", "storage.model_file", "errors"} <= GRAPH["training.trainer"]
    assert {"training.request", "training.run"} <= GRAPH["cli.train"]
    assert {"corpus.readers.pairs", "corpus.demo", "text.tokenizer.tokenizer"} <= GRAPH["corpus.cache.build"]
    assert set().union(*GRAPH.values()) <= NAMES
    code = "def f():\n    from mtcli.model import loss\n    import mtcli.text.lines"
    assert list(imports(ast.parse(code))) == ["model.loss", "text.lines"]


def test_every_package_has_a_layer_and_a_docstring() -> None:
    assert {package(name) for name in NAMES} - {"__init__"} == LAYER.keys()
    for path in PACKAGE.glob("*/__init__.py"):
        assert ast.get_docstring(ast.parse(path.read_text())), path


def test_the_table_of_packages_names_every_module() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("| package |")[2].partition("\n\n")[0]
    rows = [line.split("|")[1:3] for line in table.splitlines() if line.startswith("| `")]
    for layer, contents in rows:
        (name, *_) = re.findall(r"`(\w+)(?:/|\.py)`", layer)
        modules = {path.stem for path in (PACKAGE / name).rglob("*.py")} - {"__init__"}
        assert modules <= set(re.findall(r"`(\w+)`", contents)), name
    packages = [name for layer, _ in rows for name in re.findall(r"`(\w+)(?:/|\.py)`", layer)]
    assert {*packages, "__main__"} == LAYER.keys()
    assert [LAYER[name] for name in packages] == sorted((LAYER[name] for name in packages), reverse=True)


def test_packages_import_downwards_only() -> None:
    wrong = [
        f"{name} imports {imported}"
        for name, found in GRAPH.items()
        for imported in found
        if name != "__init__"
        and package(name) != package(imported)
        and LAYER[package(imported)] >= LAYER[package(name)]
    ]
    assert wrong == []


def test_there_are_no_circular_imports() -> None:
    list(TopologicalSorter(GRAPH).static_order())  # CycleError names the circle


def test_the_command_line_imports_other_packages_inside_functions() -> None:
    for path in (PACKAGE / "cli").glob("*.py"):
        tree = ast.parse(path.read_text())
        top = ast.Module([n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)], [])
        assert {name for name in imports(top) if not name.startswith("cli")} <= {"errors", "limits"}


def loaded(code: str) -> set[str]:
    """Run code in a new process, and return the top-level modules that are loaded afterwards."""
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
    assert "pydantic" in loaded("import mtcli.config.schema")  # the measurement can tell


def test_help_loads_few_modules() -> None:
    """Most of the 0.2 s of `--help` are spent on imports."""
    code = "import sys" + HELP.format("") + "print(len(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "translate" in done.stdout
    assert int(done.stdout.splitlines()[-1]) < 450
