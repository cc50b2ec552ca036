import errno
import json
import os
import pickle
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from mtcli.config.schema import DecodeConfig, ModelConfig
from mtcli.errors import LockedError, ModelError, StorageError
from mtcli.runtime import files
from mtcli.runtime.files import folder_lock
from mtcli.storage import checkpoint, model_file
from mtcli.storage.checkpoint import latest, prune, verify, write
from mtcli.storage.model_file import ModelInfo, load_model, set_parameters
from mtcli.storage.tensors import NAME, OLD_NAME, read_tensors, to_bytes
from mtcli.text.tokenizer.learning import train_tokenizer
from mtcli.text.tokenizer.tokenizer import Tokenizer

FILES = ["manifest.json", "model.safetensors", "optimizer.safetensors", "state.json"]


def save_step(folder: Path, step: int, **state: Any) -> Path:
    """Write a small checkpoint whose numbers depend on its step."""
    torch.manual_seed(step)
    model = to_bytes({"w": torch.randn(3, 4), "b": torch.randn(3)})
    return write(folder, step, model, {"w/exp_avg": torch.randn(3, 4), "w/step": torch.tensor(float(step))}, state)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def found(folder: Path) -> int | None:
    newest = latest(folder)
    return newest.state["step"] if newest else None


# ---- round trip ----


def test_a_checkpoint_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert latest(tmp_path / "none") is None
    state = {"best": [31.25, -0.1], "text": "é\u2028", "third": 1 / 3, "none": None}
    path = save_step(tmp_path, 7, **state)
    assert path.name == "step-00000007"
    assert sorted(p.name for p in path.iterdir()) == FILES
    assert verify(path) is None
    read = latest(tmp_path)
    assert read is not None
    assert read.path == path
    assert read.state == {"format": 2, "step": 7, **state}
    torch.manual_seed(7)
    assert torch.equal(read.model["w"], torch.randn(3, 4))
    assert torch.equal(read.model["b"], torch.randn(3))
    assert torch.equal(read.optimizer["w/exp_avg"], torch.randn(3, 4))
    assert read.optimizer["w/step"] == 7
    assert set(read.model) == {"w", "b"}


def test_the_newest_checkpoint_is_found_by_number_and_other_names_are_ignored(tmp_path: Path) -> None:
    for step in (5, 99_999_999, 100_000_000):
        save_step(tmp_path, step)
    shutil.copytree(tmp_path / "step-00000005", tmp_path / "step-99999999 (copy)")
    shutil.copytree(tmp_path / "step-00000005", tmp_path / "step-best")
    assert found(tmp_path) == 100_000_000
    prune(tmp_path, 1, ())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-100000000", "step-99999999 (copy)", "step-best"]


# ---- damage ----


def test_flipped_bits_and_truncation_are_detected_and_the_previous_checkpoint_is_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rng = random.Random(1)
    save_step(tmp_path, 1)
    path = save_step(tmp_path, 2, note="x")
    before = contents(tmp_path)
    injected = 0
    for name in FILES:
        file = path / name
        whole = file.read_bytes()
        bits = rng.sample(range(8 * len(whole)), 250 if name == "manifest.json" else 150)
        for bit in bits:
            flipped = bytearray(whole)
            flipped[bit // 8] ^= 1 << bit % 8
            file.write_bytes(flipped)
            assert verify(path), f"{name}: bit {bit}"
            injected += 1
        for size in {0, 1, len(whole) - 1, *rng.sample(range(len(whole)), 20)}:
            file.write_bytes(whole[:size])
            assert verify(path), f"{name}: cut to {size}"
            injected += 1
        file.write_bytes(whole + b"\0")
        assert verify(path), f"{name}: lengthened"
        assert found(tmp_path) == 1
        assert f"{path} is damaged" in caplog.text
        caplog.clear()
        file.write_bytes(whole)
    assert injected > 500
    assert contents(tmp_path) == before
    assert found(tmp_path) == 2


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named_and_the_previous_checkpoint_is_used(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    save_step(tmp_path, 1)
    (save_step(tmp_path, 2) / name).unlink()
    assert found(tmp_path) == 1
    assert f"{name} is missing" in caplog.text


def test_nothing_is_deleted_if_all_checkpoints_are_damaged(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        (save_step(tmp_path, step) / "state.json").write_bytes(b"{}")
    before = contents(tmp_path)
    with pytest.raises(ModelError, match=r"every checkpoint is damaged \(3 found\)"):
        latest(tmp_path)
    prune(tmp_path, 1, ())
    assert contents(tmp_path) == before


def resign(path: Path) -> None:
    """Make the manifest agree with the files, as an attacker who plants a file would."""
    import hashlib

    data = {n: (path / n).read_bytes() for n in FILES if n != "manifest.json"}
    facts = {n: {"size": len(c), "sha256": hashlib.sha256(c).hexdigest()} for n, c in data.items()}
    (path / "manifest.json").write_text(json.dumps(facts))


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_are_not_finite_are_refused(tmp_path: Path, name: str, value: float) -> None:
    path = save_step(tmp_path, 1)
    tensors, _ = read_tensors(path / name)
    first = sorted(tensors)[0]
    tensors[first].view(-1)[-1] = value
    (path / name).write_bytes(save(tensors))
    resign(path)
    with pytest.raises(ModelError, match=f"{re.escape(str(path / name))}: {first} holds NaN or infinity"):
        latest(tmp_path)


@pytest.mark.parametrize("state", ['{"format": 3}', "{}", "[1]", "null", "{", "[" * 100_000])
def test_another_format_and_an_invalid_state_are_refused(tmp_path: Path, state: str) -> None:
    save_step(tmp_path, 1)
    path = save_step(tmp_path, 2)
    (path / "state.json").write_text(state)
    resign(path)
    with pytest.raises(ModelError, match="format 3.*reads format 2.*update" if "3" in state else r"step-00000002") as e:
        latest(tmp_path)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize("manifest", ["[]", "3", "null", '["model.safetensors"]', "[" * 100_000, '{"a": 1}'])
def test_an_invalid_manifest_counts_as_damage(tmp_path: Path, manifest: str) -> None:
    path = save_step(tmp_path, 1)
    for text in (manifest, json.dumps([n for n in FILES if n != "manifest.json"])):
        (path / "manifest.json").write_text(text)
        assert verify(path)
    (path / "manifest.json").write_text(json.dumps(dict.fromkeys(FILES[1:])))
    assert verify(path)


class Canary:
    """An object that creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("name", FILES)
def test_a_planted_pickle_is_not_executed(tmp_path: Path, name: str, signed: bool) -> None:
    canary = tmp_path / "canary"
    other = tmp_path / "other"
    planted = [pickle.dumps(Canary(canary))]
    torch.save({"w": Canary(canary)}, other)
    planted.append(other.read_bytes())
    pickle.loads(planted[0])
    assert canary.exists()  # it would have
    canary.unlink()
    for content in planted:
        path = save_step(tmp_path / "c", 1)
        (path / name).write_bytes(content)
        if signed and name != "manifest.json":
            resign(path)
        with pytest.raises(ModelError):
            latest(tmp_path / "c")
        (tmp_path / "model.safetensors").write_bytes(content)
        with pytest.raises(ModelError, match=r"model\.safetensors"):
            load_model(tmp_path)
    assert not canary.exists()


# ---- what keeps ----


def test_pruning_keeps_the_newest_and_the_best(tmp_path: Path) -> None:
    for step in range(1, 8):
        save_step(tmp_path, step)
    kept = {str(p.relative_to(tmp_path)): p for p in tmp_path.glob("step-0000000[267]/*")}
    before = {name: p.read_bytes() for name, p in kept.items()}
    prune(tmp_path, 2, {2})
    assert contents(tmp_path) == before
    prune(tmp_path, 5, {2})
    assert contents(tmp_path) == before


@pytest.mark.parametrize("damaged", [[4], [4, 3], [4, 3, 2], [3], [1, 3]])
@pytest.mark.parametrize("keep", [1, 2])
def test_pruning_keeps_the_last_undamaged_checkpoint(tmp_path: Path, damaged: list[int], keep: int) -> None:
    for step in (1, 2, 3, 4):
        path = save_step(tmp_path, step)
        if step in damaged:
            (path / "model.safetensors").write_bytes(b"")
    newest = found(tmp_path)
    prune(tmp_path, keep, ())
    assert found(tmp_path) == newest == max({1, 2, 3, 4} - set(damaged))
    assert len(checkpoint.steps(tmp_path)) == max(keep, 4 - newest + 1)


@pytest.mark.parametrize("harm", [None, "damage", "remove"])
def test_an_earlier_checkpoint_of_the_same_step_is_deleted_only_if_the_new_one_is_whole(
    tmp_path: Path, harm: str | None
) -> None:
    """It is left by a crash just before its deletion, and a run that has finished saves nothing more."""
    final = save_step(tmp_path, 2)
    earlier = tmp_path / f".old-{final.name}"
    shutil.copytree(final, earlier)
    save_step(tmp_path, 1)
    if harm == "damage":
        (final / "state.json").write_text("{}")
    elif harm == "remove":
        shutil.rmtree(final)
    assert latest(tmp_path) is not None
    assert final.exists()
    assert earlier.exists() == (harm == "damage")


def test_temporary_folders_are_ignored_replaced_and_deleted(tmp_path: Path) -> None:
    save_step(tmp_path, 1)
    left = tmp_path / ".tmp-step-00000002"
    shutil.copytree(tmp_path / "step-00000001", left)
    (left / "more").mkdir()
    shutil.copytree(tmp_path / "step-00000001", tmp_path / ".tmp-step-00000009")
    assert found(tmp_path) == 1
    save_step(tmp_path, 2)
    assert found(tmp_path) == 2
    assert sorted(p.name for p in (tmp_path / "step-00000002").iterdir()) == FILES
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-00000001", "step-00000002"]
    shutil.copytree(tmp_path / "step-00000001", left)
    prune(tmp_path, 2, ())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-00000001", "step-00000002"]


def test_temporary_folders_of_killed_processes_are_deleted_before_their_space_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_step(tmp_path, 1)
    shutil.copytree(tmp_path / "step-00000001", tmp_path / ".tmp-step-00000009")
    deleted_first = []

    def note(name: str, path: Path) -> None:
        deleted_first.append(not (tmp_path / ".tmp-step-00000009").exists())

    with system_calls(monkeypatch, note):
        save_step(tmp_path, 2)
    assert deleted_first == [False, *[True] * (len(deleted_first) - 1)]  # the first call deletes it


class CrashError(BaseException):
    """Stands for the end of the process."""


@contextmanager
def system_calls(monkeypatch: pytest.MonkeyPatch, note: Callable[[str, Path], None]) -> Iterator[None]:
    """Call `note` before each fsync, rename and removal."""

    def watch(place: Any, name: str) -> None:
        real = getattr(place, name)

        def call(first: Any, *rest: Any, **options: Any) -> Any:
            path = Path(f"/proc/self/fd/{first}").readlink() if isinstance(first, int) else Path(first)
            note(name, path)
            return real(first, *rest, **options)

        patch.setattr(place, name, call)

    with monkeypatch.context() as patch:
        watch(os, "fsync")
        watch(Path, "rename")
        watch(Path, "replace")
        watch(shutil, "rmtree")
        yield


def test_files_are_synced_before_the_rename_and_the_folder_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, str, int]] = []

    def note(name: str, path: Path) -> None:
        size = path.stat().st_size if path.is_file() else -1
        calls.append((name, str(path.relative_to(tmp_path)), size))

    with system_calls(monkeypatch, note):
        path = save_step(tmp_path, 1)
    (renamed,) = [number for number, (name, _, _) in enumerate(calls) if name == "rename"]
    _, aside, _ = calls[renamed]
    for file in path.iterdir():
        assert ("fsync", f"{aside}/{file.name}", file.stat().st_size) in calls[:renamed]
    assert ("fsync", aside, -1) in calls[:renamed]
    assert ("fsync", ".", -1) in calls[renamed:]
    calls.clear()
    (tmp_path / "f").write_bytes(b"old")
    with system_calls(monkeypatch, note):
        files.replace_file(tmp_path / "f", b"renewed")
    assert calls == [("fsync", ".f.tmp", 7), ("replace", ".f.tmp", 7), ("fsync", ".", -1)]
    assert contents(tmp_path)["f"] == b"renewed"


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_the_kernel_sees_the_same_order(tmp_path: Path) -> None:
    code = (
        "import sys, torch; from pathlib import Path; from mtcli.storage import checkpoint;"
        "checkpoint.write(Path(sys.argv[1]), 1, b'm', {'a': torch.ones(2)}, {})"
    )
    trace = ["strace", "-f", "-y", "-qq", "-o", str(tmp_path / "trace"), "--seccomp-bpf"]
    trace += ["-e", "trace=fsync,rename,renameat,renameat2"]
    done = subprocess.run([*trace, sys.executable, "-c", code, str(tmp_path / "c")], capture_output=True, check=False)
    if done.returncode and b"ptrace" in done.stderr.lower():
        pytest.skip(f"strace may not trace here: {done.stderr.decode()[:100]}")
    assert done.returncode == 0, done.stderr
    lines = [line for line in (tmp_path / "trace").read_text().splitlines() if str(tmp_path / "c") in line]
    call = re.compile(r"(fsync|rename)\w*\(.*?/c(?:/|(?=[>\"]))([^\s>\"]*)[>\"]")
    order = [(found[1], found[2]) for line in lines if (found := call.search(line))]
    aside = ".tmp-step-00000001"
    names = ["model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"]
    assert order == [*(("fsync", f"{aside}/{n}") for n in names), ("fsync", aside), ("rename", aside), ("fsync", "")]


@pytest.mark.parametrize("again", [False, True])
def test_a_crash_at_any_system_call_leaves_a_complete_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    """This also holds if a step is saved again and is the only checkpoint."""

    def save_and_prune(folder: Path) -> None:
        save_step(folder, 1 if again else 2, version=2)
        prune(folder, 1, ())

    for crash_at in range(1, 50):
        folder = tmp_path / str(crash_at)
        left = crash_at
        save_step(folder, 1, version=1)

        def note(name: str, path: Path) -> None:
            nonlocal left
            left -= 1
            if not left:
                raise CrashError

        with system_calls(monkeypatch, note):
            try:
                save_and_prune(folder)
            except CrashError:
                pass
            else:
                break
        newest = latest(folder)
        assert newest is not None
        assert newest.state["version"] in (1, 2)
        save_and_prune(folder)
        newest = latest(folder)
        assert newest is not None
        assert newest.state["version"] == 2
        assert [p.name for p in folder.iterdir()] == [newest.path.name]
    assert 8 < crash_at < 49


def test_a_checkpoint_that_was_deleted_in_part_does_not_look_like_a_damaged_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (1, 2):
        save_step(tmp_path, step)

    def killed(folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        raise CrashError

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(CrashError):
            prune(tmp_path, 1, ())
    assert [path.name for path in checkpoint.steps(tmp_path)] == ["step-00000002"]
    prune(tmp_path, 1, ())
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000002"]


# ---- storage ----

FAILURES = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "quota",
    errno.EROFS: "choose another folder",
    errno.EIO: "run the same command again",
}


@pytest.mark.parametrize("number", FAILURES)
@pytest.mark.parametrize("call", [1, 3, 4, 5, 6])
def test_a_failing_disk_is_reported_and_earlier_checkpoints_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, call: int
) -> None:
    save_step(tmp_path, 1)
    before = contents(tmp_path / "step-00000001")
    left = call

    def note(name: str, path: Path) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise OSError(number, os.strerror(number), str(path))

    with system_calls(monkeypatch, note), pytest.raises(StorageError, match=FAILURES[number]) as caught:
        save_step(tmp_path, 2)
    assert os.strerror(number) in str(caught.value)
    assert contents(tmp_path / "step-00000001") == before
    assert found(tmp_path) == 1
    assert not list(tmp_path.glob(".tmp-*"))
    save_step(tmp_path, 2)  # the disk is well again
    assert found(tmp_path) == 2


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_real_limit_on_file_sizes(tmp_path: Path) -> None:
    save_step(tmp_path, 1)
    before = contents(tmp_path / "step-00000001")
    with pytest.raises(StorageError, match="ulimit -f"), file_size_limit(100):
        save_step(tmp_path, 2)
    assert contents(tmp_path / "step-00000001") == before
    assert found(tmp_path) == 1
    (tmp_path / "f").write_bytes(b"old")
    with pytest.raises(StorageError, match="ulimit -f"), file_size_limit(2):
        files.replace_file(tmp_path / "f", b"renewed")
    assert (tmp_path / "f").read_bytes() == b"old"
    with pytest.raises(StorageError, match=r"\.lock.*ulimit -f"), file_size_limit(0), folder_lock(tmp_path):
        pass


# ---- the lock ----

HOLD = """
import sys, time
from pathlib import Path
from mtcli.runtime.files import folder_lock
with folder_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_second_process_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(LockedError, match=rf"process {holder.pid} is training here"), folder_lock(tmp_path):
            pass
        holder.send_signal(signal.SIGKILL)
    with folder_lock(tmp_path):
        assert (tmp_path / ".lock").read_text() == str(os.getpid())
        with pytest.raises(LockedError, match=str(os.getpid())), folder_lock(tmp_path):
            pass
    with folder_lock(tmp_path):
        pass


def link_to_a_file(path: Path) -> None:
    target = path.with_name("target")
    target.write_text("kept")
    path.symlink_to(target)


def link_to_nothing(path: Path) -> None:
    path.symlink_to(path.with_name("absent"))


@pytest.mark.parametrize("make", [link_to_a_file, link_to_nothing, os.mkfifo, Path.mkdir])
def test_a_lock_that_is_not_a_regular_file_is_refused(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / ".lock")
    with pytest.raises(StorageError, match=r"\.lock: "), folder_lock(tmp_path):
        pass
    assert not (tmp_path / "absent").exists()
    if make is link_to_a_file:
        assert (tmp_path / "target").read_text() == "kept"


def test_a_file_system_without_locks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr("fcntl.flock", flock)
    with pytest.raises(StorageError, match=r"\.lock: Function not implemented"), folder_lock(tmp_path):
        pass


# ---- models ----

SMALL = ModelConfig(d_model=8, d_ff=8, num_heads=2, num_encoder_layers=1, num_decoder_layers=1)


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with a small random model."""
    run = tmp_path_factory.mktemp("run")
    toy = train_tokenizer([("a b a b", "b a b a")] * 3)
    toy.save(run / "tokenizer.json")
    sizes = {"src_vocab": toy.src_size, "tgt_vocab": toy.tgt_size, "joint": True}
    info = ModelInfo(
        model=SMALL, decode=DecodeConfig(), src="en", tgt="xx", step=3, longest_src=9, tokenizer=toy.digest(), **sizes
    )
    torch.manual_seed(1)
    tensors = model_file.parameters(model_file.build_model(info))
    (run / "model.safetensors").write_bytes(model_file.model_bytes(tensors, info))
    return run


def replant(run: Path, to: Path, change: Callable[[dict[str, Tensor], dict[str, Any]], None]) -> Path:
    """Copy a run with changed tensors and metadata."""
    shutil.copytree(run, to)
    tensors, metadata = read_tensors(to / "model.safetensors")
    info = json.loads(metadata["mtcli"])["info"]
    change(tensors, info)
    (to / "model.safetensors").write_bytes(save(tensors, model_file.metadata_of(tensors, info)))
    return to


def test_a_model_is_loaded_as_it_was_saved(run_folder: Path, tmp_path: Path) -> None:
    model, info, toy = load_model(run_folder)
    tensors, _ = read_tensors(run_folder / "model.safetensors")
    assert not model.training
    assert (info.step, info.longest_src, info.src_vocab) == (3, 9, toy.src_size)
    own = model_file.parameters(model)
    assert set(own) == set(tensors)
    assert all(torch.equal(own[name], tensors[name]) for name in own)
    step = write(run_folder / "checkpoints", 3, (run_folder / "model.safetensors").read_bytes(), {}, {})
    assert load_model(step)[1] == info  # with the tokenizer of its run


CHANGES: dict[str, tuple[Callable[[dict[str, Tensor], dict[str, Any]], Any], str]] = {
    "missing": (lambda t, i: t.pop("decoder.0.feed_forward.w_1.bias"), r"decoder.0.feed_forward.w_1.bias is missing"),
    "extra": (lambda t, i: t.update(more=torch.ones(1)), r"more is not of this model"),
    "shape": (
        lambda t, i: t.update({"decoder.0.feed_forward.w_1.bias": torch.ones(9)}),
        r"decoder.0.feed_forward.w_1.bias has the shape \(9,\), where this model has \(8,\)",
    ),
    "nan": (lambda t, i: next(iter(t.values())).fill_(float("nan")), r"holds NaN"),
    "format": (lambda t, i: i.update(format=3), r"format.* 3"),
    "vocabulary": (lambda t, i: i.update(src_vocab=5), r"the tokenizer has \d+ and \d+ tokens, the model 5"),
    "no information": (lambda t, i: i.clear(), r"model: Field required"),
    "width": (lambda t, i: i["model"].update(d_model=2**15), r"has the shape"),
    "great width": (lambda t, i: i["model"].update(d_model=2**40), r"model.d_model: .*less than or equal to 65536"),
    "inner width": (lambda t, i: i["model"].update(d_ff=2**20), r"w_1.weight has the shape"),
    "head size": (lambda t, i: i["model"].update(d_v=2**16), r"w_v.weight has the shape"),
    "positions": (
        lambda t, i: i["model"].update(positions="learned", max_positions=10**6),
        r"learned.weight is missing",
    ),
    "no embedding": (lambda t, i: t.pop("tgt_embedding.tokens.weight"), r"tgt_embedding.tokens.weight is missing"),
    "depth": (lambda t, i: i["model"].update(num_encoder_layers=1000), r"num_encoder_layers = 1000"),
    "heads": (lambda t, i: i["model"].update(num_heads=1000), r"has the shape"),
    "vast depth": (lambda t, i: i["model"].update(num_decoder_layers=10**9), r"num_decoder_layers: .* 1000,"),
    "vast vocabulary": (lambda t, i: i.update(tgt_vocab=10**9), r"tgt_vocab: .* 1000000,"),
    "no step": (lambda t, i: i.update(step=-1), r"step: .* 0,"),
    "no positions": (lambda t, i: i["model"].update(max_positions=-5), r"max_positions: .* 1, not -5"),
    "endless positions": (lambda t, i: i["model"].update(max_positions=float("inf")), r"max_positions: "),
    "a beam of truth": (lambda t, i: i["decode"].update(beam_size=True), r"decode.beam_size: .* a number"),
    "type": (
        lambda t, i: t.update({"decoder.0.feed_forward.w_1.bias": torch.ones(8).to(torch.float8_e4m3fn)}),
        r"decoder.0.feed_forward.w_1.bias",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_model_with_wrong_tensors_is_refused_with_their_name(run_folder: Path, tmp_path: Path, change: str) -> None:
    apply, message = CHANGES[change]
    run = replant(run_folder, tmp_path / "run", apply)
    with pytest.raises(ModelError, match=message) as caught:
        load_model(run)
    assert str(caught.value).startswith(str(run))
    assert "\n" not in str(caught.value)


def test_a_missing_model_or_tokenizer_is_reported(run_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no model here; train one with `mtcli train`, or name the folder of another"):
        load_model(tmp_path)
    (tmp_path / "config.toml").touch()
    with pytest.raises(ModelError, match="has no model yet"):
        load_model(tmp_path)
    shutil.copy(run_folder / "model.safetensors", tmp_path)
    with pytest.raises(ModelError, match=r"tokenizer\.json"):
        load_model(tmp_path)
    (tmp_path / "tokenizer.json").write_bytes(pickle.dumps(Canary(tmp_path / "canary")))
    with pytest.raises(ModelError, match=r"tokenizer\.json"):
        load_model(tmp_path)
    assert not (tmp_path / "canary").exists()


def test_setting_parameters_is_all_or_nothing(run_folder: Path) -> None:
    model, _, _ = load_model(run_folder)
    before = {name: t.clone() for name, t in model_file.parameters(model).items()}
    wrong = {name: t + 1 for name, t in before.items()}
    last = sorted(wrong)[-1]
    wrong[last] = torch.ones(1, 1, 1)
    with pytest.raises(ModelError, match=re.escape(f"here: {last} has the shape (1, 1, 1)")):
        set_parameters(model, wrong, Path("here"))
    assert all(torch.equal(t, before[name]) for name, t in model_file.parameters(model).items())


def test_a_flipped_bit_in_a_published_model_is_detected(run_folder: Path, tmp_path: Path) -> None:
    whole = (run_folder / "model.safetensors").read_bytes()
    (tmp_path / "tokenizer.json").write_bytes((run_folder / "tokenizer.json").read_bytes())
    rng = random.Random(0)
    for _ in range(200):
        content = bytearray(whole)
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        (tmp_path / "model.safetensors").write_bytes(content)
        try:
            model, _, _ = load_model(tmp_path)
        except ModelError:
            continue
        # A flip that JSON does not see, such as in white space, must have changed no number.
        original = load_model(run_folder)[0]
        assert all(torch.equal(a, b) for a, b in zip(model.parameters(), original.parameters(), strict=True))


def test_another_tokenizer_of_the_same_size_is_refused(run_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(run_folder, tmp_path / "run")
    other = train_tokenizer([("c d c d", "d c d c")] * 3)
    assert other.src_size == Tokenizer.load(run_folder / "tokenizer.json").src_size
    other.save(tmp_path / "run" / "tokenizer.json")
    with pytest.raises(ModelError, match="not the one this model was trained with"):
        load_model(tmp_path / "run")


def test_a_deleted_run_folder_is_not_created_again(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(StorageError, match="run"):
        checkpoint.write(run / "checkpoints", 1, b"m", {"a": torch.ones(2)}, {})
    assert not run.exists()


def test_a_run_of_version_0_1_is_refused_unchanged(train_toy: Callable[..., Path], tmp_path: Path) -> None:
    run = train_toy(tmp_path / "run", "train.max_steps=5")
    first, *rest = (run / "metrics.jsonl").read_text().splitlines()
    event = json.loads(first)
    del event["format"]
    (run / "metrics.jsonl").write_text("\n".join([json.dumps(event), *rest]) + "\n")
    before = contents(run)
    with pytest.raises(ModelError, match=r"a run of mtcli 0\.1, .*train again with --overwrite or another --out"):
        train_toy(run, "train.max_steps=7")
    assert contents(run) == before
    load_model(run)
    train_toy(run, "train.max_steps=5", overwrite=True)
    assert json.loads((run / "metrics.jsonl").read_text().splitlines()[0])["format"] == 2


def rename_tokens(path: Path) -> None:
    """Give the token embeddings of a safetensors file the name that they have in format 1."""
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
    tensors = {name.replace(NAME, OLD_NAME): tensor for name, tensor in read_tensors(path)[0].items()}
    if metadata:
        info = json.loads(metadata["mtcli"])["info"] | {"format": 1}
        metadata = model_file.metadata_of(tensors, info)
    path.write_bytes(save(tensors, metadata))


def test_a_run_of_format_1_is_loaded_and_resumed(train_toy: Callable[..., Path], tmp_path: Path) -> None:
    """Version 0.2.0 wrote it. It had another name of token embeddings."""
    settings = ("train.max_steps=10", "train.save_every=5", "train.valid_every=5")
    run = train_toy(tmp_path / "run", *settings)
    expected, _, _ = load_model(run)
    old = shutil.copytree(run, tmp_path / "old")
    for path in (old / "model.safetensors", *old.glob("checkpoints/*/*.safetensors")):
        rename_tokens(path)
        assert OLD_NAME.encode() in path.read_bytes()
    for folder in checkpoint.steps(old / "checkpoints"):
        state = json.loads((folder / "state.json").read_text()) | {"format": 1}
        (folder / "state.json").write_text(json.dumps(state))
        resign(folder)
    found, info, _ = load_model(old)
    assert info.format == 1
    assert model_file.checksum(model_file.parameters(found), None) == model_file.checksum(
        model_file.parameters(expected), None
    )
    for each in (run, old):
        train_toy(each, "train.max_steps=15", *settings[1:])
    assert load_model(old)[1].format == 2
    new, resumed = (latest(each / "checkpoints") for each in (run, old))
    assert new
    assert resumed
    assert resumed.model.keys() == new.model.keys()
    assert all(torch.equal(resumed.model[name], tensor) for name, tensor in new.model.items())
