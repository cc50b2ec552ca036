#!/usr/bin/env python3
"""Load test of `mtcli serve`; every answer is compared with that of `mtcli translate`.

    python scripts/bench_serve.py --model runs/demo --input sentences.en [--clients 64] [--seconds 120]

The script starts a server and sends requests with the client `libretranslatepy`: first from one client, then from many
at once, then from one client again. The phases with one client take an eighth of the time each.

It prints a table and, as the last line, JSON. It exits with 1 if a request fails, if an answer differs from that of the
command by more than a near-tie, or if many clients together get less than three times the throughput of one.
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
MIN_SPEEDUP = 3.0
"""Required throughput of many clients, relative to one."""
MAX_UNEQUAL_SHARE = 0.005
"""Share of the lines whose answer may differ by a near-tie."""
NEAR_TIE = 1e-3
"""Difference of two scores that counts as a tie, because float32 rounds differently in other batches."""


@dataclass
class Phase:
    """Measurements with a number of clients."""

    clients: int
    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    answers: Counter[tuple[str, str]] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    rss: list[int] = field(default_factory=list)
    cpu: float = 0.0
    """Processor time of the server in seconds. Other programs on the machine change it less than the wall time."""

    @property
    def rate(self) -> float:
        """Answers per second."""
        return len(self.latencies) / self.seconds

    def latency(self, share: float) -> float:
        """The latency in seconds that this share of the answers does not exceed."""
        return sorted(self.latencies)[int(share * (len(self.latencies) - 1))]


def rss(pid: int) -> int:
    """Return the resident memory of a process, in MiB."""
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) // 1024 if found else 0


def cpu(pid: int) -> float:
    """Return the processor time that a process has used, in seconds."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def load(
    client: LibreTranslateAPI, pair: tuple[str, str], lines: list[str], phase: Phase, seconds: float, pid: int
) -> None:
    """Send requests from all clients of a phase, and sample the memory of the server.

    Args:
        client: The client, shared by all threads.
        pair: Codes of source and target.
        lines: The lines to translate, in turn.
        phase: Receives the measurements.
        seconds: Each client sends its next request when it has an answer, for this long.
        pid: The process of the server.
    """
    numbers = count()
    used = cpu(pid)
    start = time.monotonic()

    def work() -> None:
        while time.monotonic() - start < seconds:
            line = lines[next(numbers) % len(lines)]
            began = time.monotonic()
            try:
                phase.answers[line, client.translate(line, *pair, timeout=60)] += 1
                phase.latencies.append(time.monotonic() - began)
            except Exception as error:
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
    """Return the translations of each line by `mtcli translate`, best first, with their scores."""
    command = [*MTCLI, "translate", "--model", model, "-i", path, "--n-best", "4", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    records = [json.loads(line) for line in done.stdout.splitlines()]
    return {
        record["source"]: dict(zip(record["translations"], record["scores"], strict=True))
        for record in records
        if record["source"].strip()
    }


def differences(answers: Counter[tuple[str, str]], wanted: dict[str, dict[str, float]]) -> list[tuple[float, str, str]]:
    """Return the answers that are not the command's best translation, largest difference first.

    Returns:
        (difference of the command's scores, line, answer); the difference is infinite for an answer that the command
        does not list.
    """
    found = []
    for line, text in answers:
        scores = wanted[line]
        best = next(iter(scores))
        if text != best:
            gap = max(scores.values()) - scores.get(text, float("-inf"))
            found.append((gap, line, text))
    return sorted(found, reverse=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="runs/latest", help="a run folder")
    parser.add_argument("--input", required=True, help="sentences, one per line")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=120.0)
    arguments = parser.parse_args()
    wanted = expected(arguments.model, arguments.input)
    one, many = measure(arguments, list(wanted))
    print_phases(one, many, wanted)
    return report(one, many, wanted)


def measure(arguments: argparse.Namespace, lines: list[str]) -> tuple[Phase, Phase]:
    """Start a server and run the phases.

    Returns:
        The measurements with one client, and with many.
    """
    one = Phase(1)
    many = Phase(arguments.clients)
    command = [*MTCLI, "serve", "--model", arguments.model, "--engine", "torch", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, encoding="utf-8") as server:
        try:
            assert server.stderr
            started = re.match(r"(\S+) → (\S+) at (\S+)", server.stderr.readline())
            assert started, "the server did not start"
            src, tgt, url = started.groups()
            client = LibreTranslateAPI(url)
            for phase, share in ((one, 1 / 8), (many, 1), (one, 1 / 8)):
                load(client, (src, tgt), lines, phase, share * arguments.seconds, server.pid)
        finally:
            server.terminate()
        assert server.stderr.read() == "", "the server printed an error"
    return one, many


def print_phases(one: Phase, many: Phase, wanted: dict[str, dict[str, float]]) -> None:
    """Print the table."""
    titles = ("clients", "answers", "errors", "unequal", "lines/s", "cpu ms", "p50 ms", "p95 ms")
    memory = ("first", "half", "last", "most")
    print("".join(f"{title:>9}" for title in titles) + "   RSS, MiB:" + "".join(f"{title:>7}" for title in memory))
    for phase in (one, many):
        unequal = sum(phase.answers[line, text] for _, line, text in differences(phase.answers, wanted))
        seconds = (phase.cpu / len(phase.latencies), phase.latency(0.5), phase.latency(0.95))
        memory_samples = (phase.rss[0], phase.rss[len(phase.rss) // 2], phase.rss[-1], max(phase.rss))
        row = f"{phase.clients:>9}{len(phase.latencies):>9}{phase.errors.total():>9}{unequal:>9}{phase.rate:>9.1f}"
        row += "".join(f"{1000 * value:>9.0f}" for value in seconds) + " " * 12
        print(row + "".join(f"{sample:>7}" for sample in memory_samples))


def report(one: Phase, many: Phase, wanted: dict[str, dict[str, float]]) -> int:
    """Print the differences, the errors and the figures as JSON, and return the exit status."""
    unlike = differences(many.answers + one.answers, wanted)
    for gap, line, text in unlike:
        print(f"differs by {gap:.6f}: {line!r} → {text!r}, the command: {next(iter(wanted[line]))!r}")
    errors = one.errors + many.errors
    for error, number in errors.most_common():
        print(f"{number} × {error}")
    speedup = many.rate / one.rate
    largest_gap = unlike[0][0] if unlike else 0.0
    lines_unequal = len({line for _, line, _ in unlike})
    figures = {
        "clients": many.clients,
        "seconds": round(many.seconds, 1),
        "answers": len(many.latencies),
        "errors": errors.total(),
        "lines": len(wanted),
        "lines_unequal": lines_unequal,
        "largest_gap": largest_gap if math.isfinite(largest_gap) else None,
        "lines_per_second": round(many.rate, 1),
        "lines_per_second_of_one": round(one.rate, 1),
        "speedup": round(speedup, 2),
        "cpu_ms_per_line": round(1000 * many.cpu / len(many.latencies), 1),
        "cpu_ms_per_line_of_one": round(1000 * one.cpu / len(one.latencies), 1),
        "p95_ms": round(1000 * many.latency(0.95)),
        "rss_mib": {"first": many.rss[0], "last": many.rss[-1], "most": max(many.rss)},
    }
    print(json.dumps(figures, allow_nan=False))
    only_ties = all(gap <= NEAR_TIE for gap, _, _ in unlike)
    few_unequal = lines_unequal <= MAX_UNEQUAL_SHARE * len(wanted)
    succeeded = not errors and only_ties and few_unequal and speedup >= MIN_SPEEDUP
    return 0 if succeeded else 1


if __name__ == "__main__":
    sys.exit(main())
