import ast
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from draw_architecture import NAMES, PACKAGE, PICTURE, ROOT, drawn, imports, imports_of_modules, package, reduced
from helpers.imports import HEAVY, loaded

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
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


GRAPH = imports_of_modules()


def test_the_parser_sees_the_imports() -> None:
    assert {"corpus.batching", "storage.model_file", "errors"} <= GRAPH["training.trainer"]
    assert {"training.request", "training.run"} <= GRAPH["cli.train"]
    assert {"corpus.readers.pairs", "corpus.demo", "text.tokenizer.tokenizer"} <= GRAPH["corpus.cache.corpora"]
    assert set().union(*GRAPH.values()) <= NAMES
    code = "def f():\n    from mtcli.model import loss\n    import mtcli.text.lines"
    assert list(imports(ast.parse(code))) == ["model.loss", "text.lines"]


def test_every_package_has_a_layer_and_a_docstring() -> None:
    assert {package(name) for name in NAMES} - {"__init__"} == LAYER.keys()
    for path in PACKAGE.glob("*/__init__.py"):
        assert ast.get_docstring(ast.parse(path.read_text())), path


def test_the_table_of_packages_names_every_module() -> None:
    table = PAGE.partition("| package |")[2].partition("\n\n")[0]
    rows = [line.split("|")[1:3] for line in table.splitlines() if line.startswith("| `")]
    for layer, contents in rows:
        (name, *_) = re.findall(r"`(\w+)(?:/|\.py)`", layer)
        modules = {path.stem for path in (PACKAGE / name).rglob("*.py")} - {"__init__"}
        assert modules <= set(re.findall(r"`(\w+)`", contents)), name
    packages = [name for layer, _ in rows for name in re.findall(r"`(\w+)(?:/|\.py)`", layer)]
    assert {*packages, "__main__"} == LAYER.keys()
    assert [LAYER[name] for name in packages] == sorted((LAYER[name] for name in packages), reverse=True)


def test_the_list_names_every_package_from_top_to_bottom() -> None:
    lists = re.findall(r"^- (`\w+`(?:, `\w+`)*): ", PAGE, re.MULTILINE)
    names = [name for names in lists for name in re.findall(r"\w+", names)]
    assert sorted(names) == sorted(LAYER.keys() - {"__main__"})
    assert [LAYER[name] for name in names] == sorted((LAYER[name] for name in names), reverse=True)


def test_the_picture_is_current() -> None:
    assert PICTURE.read_text(encoding="utf-8") == drawn(), "run scripts/draw_architecture.py"


def test_the_picture_has_each_import_as_a_path_of_arrows() -> None:
    graph = {"a": {"b", "c", "d"}, "b": {"c"}, "c": {"d"}, "d": set(), "e": {"d"}}
    assert reduced(graph) == {"a": {"b"}, "b": {"c"}, "c": {"d"}, "d": set(), "e": {"d"}}


def defined(path: Path) -> set[str]:
    """Return the functions, classes and constants of a module, and the methods as `Class.method`."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found.update(f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef))
        if isinstance(node, ast.Assign):
            found.update(target.id for target in node.targets if isinstance(target, ast.Name))
    return found


def is_defined(name: str) -> bool:
    """Return True if `module.function`, `module.Class` or `module.Class.method` exists."""
    module = max((each for each in NAMES if name.startswith(f"{each}.")), key=len, default="")
    path = PACKAGE / module.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return name.removeprefix(f"{module}.") in defined(file)


def test_functions_on_the_ways_from_a_command_to_its_result_exist() -> None:
    section = PAGE.partition("## From a command to its result")[2].partition("\n## ")[0]
    walks = re.split("^### ", section, flags=re.MULTILINE)[1:]
    assert len(walks) == 3
    for walk, most in zip(walks, (40, 25, 35), strict=True):
        hops = re.findall(r"^\d+\. `([\w.]+)`", walk, re.MULTILINE)
        assert 10 < len(hops) <= most, walk
        assert [hop for hop in re.findall(r"`(\w+\.[\w.]+)`", walk) if not is_defined(hop)] == []
    assert not is_defined("cli.train.no_such_function")


def test_places_of_changes_exist() -> None:
    section = PAGE.partition("## Where to make a change")[2].partition("\n## ")[0]
    for name in re.findall(r"`([\w/]+/(?:\w+\.py)?)`", section):
        assert (PACKAGE / name).exists(), name
    places = re.findall(r"((?:`[\w.]+`(?:, | and )?)+) in `([\w/]+\.py)`", section)
    assert len(places) > 15
    for names, file in places:
        assert set(re.findall(r"[\w.]+", names.replace(" and ", " "))) <= defined(PACKAGE / file), (names, file)


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


def test_test_files_do_not_import_each_other() -> None:
    for path in (ROOT / "tests").rglob("test_*.py"):
        assert not re.search(r"^ *(?:from|import) test_", path.read_text(encoding="utf-8"), re.MULTILINE), path


def test_the_command_line_imports_other_packages_inside_functions() -> None:
    for path in (PACKAGE / "cli").glob("*.py"):
        tree = ast.parse(path.read_text())
        top = ast.Module([n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)], [])
        assert {name for name in imports(top) if not name.startswith("cli")} <= {"errors", "limits"}


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
