#!/usr/bin/env python3
"""Put `mtcli serve` under load and hold every answer against `mtcli translate`.

    python scripts/bench_serve.py --model runs/demo --input sentences.en [--clients 64] [--seconds 120]

Starts a server, asks it with the LibreTranslate client of PyPI: many clients at once, and before and after them one
alone, for an eighth of the time each. Prints a table and, as the last line, the figures as JSON; exits with 1 if an
answer failed, if one differs from the command's by more than a near-tie, or if throughput rose less than threefold.
"""

import argparse
import json
import math
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from libretranslatepy import LibreTranslateAPI

MTCLI = [sys.executable, "-m", "mtcli"]
NEAR_TIE = 1e-3
"""Of two scores: float32 gives other last bits in other batches."""


@dataclass
class Phase:
    """What clients got within some seconds."""

    clients: int
    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    answers: Counter[tuple[str, str]] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    rss: list[int] = field(default_factory=list)
    cpu: float = 0.0
    """Seconds of the server's processor time: tells more than the clock where other programs run, too."""

    @property
    def rate(self) -> float:
        return len(self.latencies) / self.seconds

    def latency(self, share: float) -> float:
        return sorted(self.latencies)[int(share * (len(self.latencies) - 1))]


def rss(pid: int) -> int:
    """Resident memory of a process, in MiB."""
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) // 1024 if found else 0


def cpu(pid: int) -> float:
    """Processor time that a process has used, in seconds."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def load(
    client: LibreTranslateAPI, pair: tuple[str, str], lines: list[str], phase: Phase, seconds: float, pid: int
) -> None:
    """Let the clients ask, each as soon as it has its answer, and sample the server's memory."""
    numbers, start, used = count(), time.monotonic(), cpu(pid)

    def work() -> None:
        while time.monotonic() - start < seconds:
            line, began = lines[next(numbers) % len(lines)], time.monotonic()
            try:
                phase.answers[line, client.translate(line, *pair, timeout=60)] += 1
                phase.latencies.append(time.monotonic() - began)
            except Exception as error:  # whatever it is, it is counted
                phase.errors[f"{type(error).__name__}: {error}"] += 1

    threads = [threading.Thread(target=work) for _ in range(phase.clients)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        phase.rss.append(rss(pid))
        time.sleep(0.5)
    phase.seconds += time.monotonic() - start
    phase.cpu += cpu(pid) - used


def expected(model: str, path: str) -> dict[str, dict[str, float]]:
    """Line → its translations by `mtcli translate`, best first, and their scores."""
    command = [*MTCLI, "translate", "--model", model, "-i", path, "--n-best", "4", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    records = [json.loads(line) for line in done.stdout.splitlines()]
    return {r["source"]: dict(zip(r["translations"], r["scores"], strict=True)) for r in records if r["source"].strip()}


def differences(answers: Counter[tuple[str, str]], wanted: dict[str, dict[str, float]]) -> list[tuple[float, str, str]]:
    """Answers that are not the command's best, with how much worse the command scores them; worst first."""
    found = []
    for line, text in answers:
        scores = wanted[line]
        if text != next(iter(scores)):
            found.append((max(scores.values()) - scores.get(text, float("-inf")), line, text))
    return sorted(found, reverse=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="runs/latest", help="a run folder")
    parser.add_argument("--input", required=True, help="sentences, one a line")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=120.0)
    arguments = parser.parse_args()

    wanted = expected(arguments.model, arguments.input)
    command = [*MTCLI, "serve", "--model", arguments.model, "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, encoding="utf-8") as server:
        try:
            assert server.stderr
            said = re.match(r"(\S+) → (\S+) at (\S+)", server.stderr.readline())
            assert said, "the server did not start"
            client, pair = LibreTranslateAPI(said[3]), (said[1], said[2])
            one, many = Phase(1), Phase(arguments.clients)
            for phase, seconds in ((one, 1 / 8), (many, 1), (one, 1 / 8)):
                load(client, pair, list(wanted), phase, seconds * arguments.seconds, server.pid)
        finally:
            server.terminate()
        assert server.stderr.read() == "", "the server complained"

    titles = ("clients", "answers", "errors", "unequal", "lines/s", "cpu ms", "p50 ms", "p95 ms")
    memory = ("first", "half", "last", "most")
    print("".join(f"{title:>9}" for title in titles) + "   RSS, MiB:" + "".join(f"{title:>7}" for title in memory))
    for p in (one, many):
        unequal = sum(p.answers[line, text] for _, line, text in differences(p.answers, wanted))
        milliseconds = (p.cpu / len(p.latencies), p.latency(0.5), p.latency(0.95))
        row = f"{p.clients:>9}{len(p.latencies):>9}{p.errors.total():>9}{unequal:>9}{p.rate:>9.1f}"
        row += "".join(f"{1000 * t:>9.0f}" for t in milliseconds) + " " * 12
        print(row + "".join(f"{n:>7}" for n in (p.rss[0], p.rss[len(p.rss) // 2], p.rss[-1], max(p.rss))))
    unlike = differences(many.answers + one.answers, wanted)
    for gap, line, text in unlike:
        print(f"differs by {gap:.6f}: {line!r} → {text!r}, the command: {next(iter(wanted[line]))!r}")
    for error, n in (one.errors + many.errors).most_common():
        print(f"{n} × {error}")
    speedup, gap = many.rate / one.rate, unlike[0][0] if unlike else 0.0
    figures = {
        "clients": many.clients,
        "seconds": round(many.seconds, 1),
        "answers": len(many.latencies),
        "errors": (one.errors + many.errors).total(),
        "lines": len(wanted),
        "lines_unequal": len({line for _, line, _ in unlike}),
        "largest_gap": (gap if math.isfinite(gap) else None),  # none: beyond what the command lists
        "lines_per_second": round(many.rate, 1),
        "lines_per_second_of_one": round(one.rate, 1),
        "speedup": round(speedup, 2),
        "cpu_ms_per_line": round(1000 * many.cpu / len(many.latencies), 1),
        "cpu_ms_per_line_of_one": round(1000 * one.cpu / len(one.latencies), 1),
        "p95_ms": round(1000 * many.latency(0.95)),
        "rss_mib": {"first": many.rss[0], "last": many.rss[-1], "most": max(many.rss)},
    }
    print(json.dumps(figures, allow_nan=False))
    near = all(gap <= NEAR_TIE for gap, _, _ in unlike) and figures["lines_unequal"] <= 0.005 * len(wanted)
    return int(bool(figures["errors"]) or not near or speedup < 3)


if __name__ == "__main__":
    sys.exit(main())
