import ast
import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from graphlib import TopologicalSorter
from pathlib import Path
from threading import Lock
from types import CodeType, FrameType

import pytest
from conftest import TOY_SETTINGS, toy_pairs, write_tsv
from draw_architecture import NAMES, PACKAGE, PICTURE, ROOT, drawn, imports, imports_of_modules, package, reduced
from helpers.imports import HEAVY, loaded

from mtcli.cli import main
from mtcli.runtime import cores
from mtcli.translate.backends.run_engine import SearchComparison

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
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return found


def is_defined(name: str) -> bool:
    """Return True if `module.function`, `module.Class` or `module.Class.method` exists."""
    module = max((each for each in NAMES if name.startswith(f"{each}.")), key=len, default="")
    path = PACKAGE / module.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return name.removeprefix(f"{module}.") in defined(file)


SECTION = PAGE.partition("## From a command to its result")[2].partition("\n## ")[0]
WALKS = re.split("^### ", SECTION, flags=re.MULTILINE)[1:]
HOPS = [re.findall(r"^\d+\. `([\w.]+)`", walk, re.MULTILINE) for walk in WALKS]
"""The functions on the ways from training, a sentence and a page to their results."""


def test_functions_on_the_ways_from_a_command_to_its_result_exist() -> None:
    for walk, hops, most in zip(WALKS, HOPS, (40, 25, 30), strict=True):
        assert 10 < len(hops) <= most, walk
        assert [hop for hop in re.findall(r"`(\w+\.[\w.]+)`", walk) if not is_defined(hop)] == []
    assert not is_defined("cli.train.no_such_function")


def first_missed(hops: Sequence[str], *arguments: object) -> str | None:
    """Run a command and return the first hop that it does not call after all hops before it; None if it calls all."""
    remaining = list(hops)
    names: dict[CodeType, str] = {}
    lock = Lock()

    def see(frame: FrameType, event: str, _: object) -> None:
        if event != "call" or not remaining:
            return
        code = frame.f_code
        if code not in names:
            module = str(frame.f_globals.get("__name__")).removeprefix("mtcli.")
            names[code] = f"{module}.{code.co_qualname.removesuffix('.__init__')}"
        with lock:  # several threads call the same functions
            if remaining and names[code] == remaining[0]:
                del remaining[0]

    sys.argv = ["mtcli", *map(str, arguments)]
    cores.all_cores.cache_clear()  # only threads that begin from now on are seen
    threading.setprofile(see)
    sys.setprofile(see)
    try:
        with pytest.raises(SystemExit, match=r"^0$"):
            main()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return next(iter(remaining), None)


def test_commands_call_the_functions_on_the_way_to_their_result_in_this_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ctranslate2")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(SearchComparison, "agrees", True)  # near-ties are frequent: the model has learned nothing
    pairs = write_tsv(tmp_path / "pairs.tsv", toy_pairs(60))
    valid = write_tsv(tmp_path / "valid.tsv", toy_pairs(20, seed=1))
    page = tmp_path / "page.html"
    page.write_text("<p>The <b>red</b> house. A <i>blue tree</i> is here.</p>", encoding="utf-8")
    data = ["--train", pairs, "--valid", valid, "--src", "en", "--tgt", "xx"]
    settings = [word for setting in TOY_SETTINGS for word in ("--set", setting)]
    training, sentence, document = HOPS
    assert first_missed(training, "train", *data, "--max-steps", 1, *settings) is None
    assert first_missed(sentence, "translate", "Hello") is None
    assert first_missed(document, "translate", "-i", page, "-o", "translated.html") is None
    assert first_missed([sentence[1], sentence[0]], "translate", "Hello") == sentence[0]


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
