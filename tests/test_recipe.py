"""Recipes: commands in subprocesses, what is done once, and signals."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers.processes import no_hang

from mtcli.errors import LockedError, StageError, StoppedError, StorageError, UsageError
from mtcli.recipes import recipe as recipe_module
from mtcli.recipes.recipe import STATE, Changes, Recipe, Stage, open_recipe, run_command

PROGRAM = recipe_module.PROGRAM

APPEND = "import sys; open(sys.argv[1], 'a').write(sys.argv[2])"

STOP = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
os.kill(os.getppid(), int(sys.argv[1]))
time.sleep(60)
open(sys.argv[2], "w")
"""
"""Sends its parent a signal, and creates a file unless it is then stopped."""


@pytest.fixture(autouse=True)
def _short_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start Python without mtcli, whose imports take seconds."""
    monkeypatch.setattr(recipe_module, "PROGRAM", (sys.executable, "-S", "-c"))


def test_files_in_the_current_folder_are_no_modules_of_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipe_module, "PROGRAM", PROGRAM)
    monkeypatch.chdir(tmp_path)
    Path("typer.py").write_text("raise SystemExit('this is a file of the user')")
    assert "mtcli" in run_command(Stage("version", ("--version",), is_captured=True))


def test_a_stage_runs_once(tmp_path: Path) -> None:
    written = tmp_path / "written"
    first = Stage("first", (APPEND, str(written), "1"))
    second = Stage("second", (APPEND, str(written), "2"))
    with open_recipe(tmp_path / "out", "improve", {"--train": ("a", "b")}) as recipe:
        recipe.run(first)
        recipe.run(first)
    with open_recipe(tmp_path / "out", "improve", {"--train": ("a", "b")}) as recipe:
        recipe.run(first)
        recipe.run(second)
    assert written.read_text() == "12"


def test_a_value_is_computed_once(tmp_path: Path) -> None:
    with open_recipe(tmp_path, "improve", {}) as recipe:
        assert recipe.value("speed", lambda: [1, 2]) == [1, 2]
    with open_recipe(tmp_path, "improve", {}) as recipe:
        assert recipe.value("speed", lambda: [3]) == [1, 2]


def test_a_failed_stage_runs_again(tmp_path: Path) -> None:
    failing = Stage("student", ("import sys; sys.exit(3)",))
    with open_recipe(tmp_path, "improve", {}) as recipe:
        for _ in range(2):
            with pytest.raises(StageError, match=r"stage 'student' failed \(exit code 3\): the log above") as error:
                recipe.run(failing)
            assert error.value.exit_code == 3


def test_the_signal_that_ended_a_command_decides_the_exit_code() -> None:
    with pytest.raises(StageError, match="SIGKILL, often because the memory was full") as error:
        run_command(Stage("x", ("import os; os.kill(os.getpid(), 9)",)))
    assert error.value.exit_code == 137


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_command_and_the_recipe(number: int, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored in background jobs of a shell
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, previous))
    with pytest.raises(StoppedError, match="run the same command again") as error:
        run_command(Stage("student", (STOP, str(int(number)), str(tmp_path / "not stopped"))))
    assert error.value.exit_code == 128 + number
    assert not list(tmp_path.iterdir())


def test_another_recipe_in_the_folder_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with (
        open_recipe(out, "improve", {"--train": "a", "--preset": "tiny"}),
        pytest.raises(LockedError, match="works in this folder"),
        open_recipe(out, "improve", {}),
    ):
        pass
    with pytest.raises(UsageError, match=r"differs in --n-best \(not set → 2\), --train \(a → b\); "):
        Recipe(out, "improve", {"--train": "b", "--preset": "tiny", "--n-best": 2})


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").touch()
    with pytest.raises(UsageError, match=r"holds mine\.txt"), open_recipe(tmp_path, "improve", {}):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_options_may_change_until_the_stages_that_depend_on_them_have_ended(tmp_path: Path) -> None:
    changes = Changes(["--max-steps"], ["--set"], ["student"], ["shape"])

    def open_with(value: str, steps: int = 20) -> AbstractContextManager[Recipe]:
        identity = {"--train": "a", "--set": value, "--max-steps": steps}
        return open_recipe(tmp_path / "out", "distill", identity, changes)

    written = tmp_path / "written"
    clean, student = (Stage(name, (APPEND, str(written), name[0])) for name in ("clean", "student"))
    with open_with("wrong") as recipe:
        recipe.run(clean)
        assert recipe.value("shape", lambda: 1) == 1
    with open_with("wrong", 30) as recipe:
        assert recipe.value("shape", lambda: 2) == 1
    with open_with("right", 30) as recipe:
        assert recipe.value("shape", lambda: 3) == 3
        recipe.run(clean)
        recipe.run(student)
    assert written.read_text() == "cs"
    with pytest.raises(UsageError, match=r"differs in --set \(right → wrong\)"), open_with("wrong", 30):
        pass
    with open_with("right", 40) as recipe:
        assert recipe.value("shape", lambda: 4) == 3
        recipe.run(student)
    assert written.read_text() == "css"


def test_a_larger_value_extends_a_recipe(tmp_path: Path) -> None:
    def run(steps: int, stage: str) -> str:
        written = tmp_path / "written"
        changes = Changes(["--max-steps"], repeated=["student"])
        with open_recipe(tmp_path / "out", "distill", {"--max-steps": steps}, changes) as recipe:
            recipe.run(Stage("clean", (APPEND, str(written), "c")))
            recipe.run(Stage("student", (APPEND, str(written), stage)))
        return written.read_text()

    assert [run(20, "1"), run(20, "2"), run(40, "3"), run(40, "4")] == ["c1", "c1", "c13", "c13"]
    with pytest.raises(UsageError, match="a larger --max-steps extends it"):
        run(30, "5")


@pytest.mark.parametrize("later", [{"--time": 60.0}, {"--max-steps": 20}, {"--time": 60.0, "--max-steps": 20}])
def test_a_first_budget_extends_a_recipe_without_one(tmp_path: Path, later: dict[str, float]) -> None:
    budget = {"--time": None, "--max-steps": None}
    decisions = []
    for identity in (budget, budget | later):
        with open_recipe(tmp_path, "distill", identity, Changes([*budget], repeated=["student"])) as recipe:
            recipe.value("data", lambda: decisions.append("data"))
            recipe.value("student", lambda: decisions.append("student"))
    assert decisions == ["data", "student", "student"]
    with pytest.raises(UsageError, match=r"differs in --.* \(a larger --.* extends it\), or choose"):
        Recipe(tmp_path, "distill", budget, Changes([*budget]))


def test_the_message_names_the_budgets_that_extend_a_recipe(tmp_path: Path) -> None:
    budgets = {"--time": None, "--max-steps": None}
    with open_recipe(tmp_path, "distill", {"--train": "a", **budgets}):
        pass
    with pytest.raises(UsageError, match=r"to continue it \(--time or --max-steps extends it\), or choose"):
        Recipe(tmp_path, "distill", {"--train": "b", **budgets}, Changes([*budgets]))


def test_another_kind_of_budget_does_not_extend_a_recipe(tmp_path: Path) -> None:
    with open_recipe(tmp_path, "distill", {"--time": None, "--max-steps": 20}):
        pass
    with pytest.raises(UsageError, match="a larger --max-steps extends it"):
        Recipe(tmp_path, "distill", {"--time": 60.0, "--max-steps": 20}, Changes(["--time", "--max-steps"]))


OTHER_VERSION = {"recipe": "improve", "identity": {}, "stages": {}, "values": {}, "seconds": 0.0}


@pytest.mark.parametrize(
    "content", ["", "[]", json.dumps({"identity": {}}), json.dumps({"identity": 1}), json.dumps(OTHER_VERSION)]
)
def test_a_damaged_state_is_reported(tmp_path: Path, content: str) -> None:
    (tmp_path / STATE).write_text(content)
    with pytest.raises(StorageError, match=STATE):
        Recipe(tmp_path, "improve", {})


PARENT = """
import sys
import time
from mtcli.recipes import recipe as recipe_module
recipe_module.PROGRAM = (sys.executable, "-S", "-c")
recipe_module.run_command(recipe_module.Stage("x", (sys.argv[1], sys.argv[2])))
"""

CHILD = """
import os, sys, time
open(sys.argv[1], "w").write(f"{os.getpid()}\\n")
time.sleep(60)
open(sys.argv[1], "a").write("not killed")
"""


def test_a_command_ends_if_the_progress_cannot_be_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []

    class Noted(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *args: object, **options: object) -> None:
            super().__init__(*args, **options)
            started.append(self)

    def save() -> None:
        raise StorageError("no space left")

    monkeypatch.setattr(subprocess, "Popen", Noted)
    with no_hang(), pytest.raises(StorageError, match="no space left"):
        run_command(Stage("x", ("import time; time.sleep(60)",)), save)
    (command,) = started
    try:
        assert command.poll() == -signal.SIGTERM
    finally:
        command.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="prctl(2)")
def test_a_command_ends_with_a_recipe_that_is_killed(tmp_path: Path) -> None:
    written = tmp_path / "process"
    with no_hang():
        parent = subprocess.Popen([sys.executable, "-c", PARENT, CHILD, str(written)])
        while not (written.exists() and written.read_text().endswith("\n")):
            time.sleep(0.01)
        parent.kill()
        parent.wait()
        number = written.read_text()
        process = Path("/proc") / number.strip() / "stat"
        while process.exists() and process.read_text().rpartition(")")[2].split()[0] not in "ZX":
            time.sleep(0.01)
    assert written.read_text() == number


def test_the_output_of_a_command_is_captured(tmp_path: Path) -> None:
    stage = Stage("eval", ("print('BLEU')",), is_captured=True)
    with open_recipe(tmp_path, "improve", {}) as recipe:
        assert recipe.run(stage) == "BLEU\n"
        used = recipe.value("used", recipe.elapsed)
    with open_recipe(tmp_path, "improve", {}) as recipe:
        assert recipe.run(stage) == "BLEU\n"
        assert 0 < used < recipe.elapsed()


def test_the_time_of_a_stage_includes_that_before_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(recipe_module, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    def command(stage: Stage, while_waiting: Callable[[], None]) -> str:
        clock[0] += 100
        if clock[0] < 200:
            raise KeyboardInterrupt
        return ""

    monkeypatch.setattr(recipe_module, "run_command", command)
    with pytest.raises(KeyboardInterrupt), open_recipe(tmp_path, "improve", {}) as recipe:
        recipe.run(Stage("train", ()))
    clock[0] += 1000  # no command runs
    with open_recipe(tmp_path, "improve", {}) as recipe:
        recipe.run(Stage("train", ()))
        assert recipe.seconds_of("train") == 200
