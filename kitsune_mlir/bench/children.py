"""Cases run in a process that may die or hang: another then goes on with those that are left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

POLL_SECONDS = 0.05
LAST_WORDS_SECONDS = 30.0  # for a process that has reported all to end
DOING = "doing"
LOST = "gpu_lost"  # a record's key: its process can measure nothing more


def command(arguments: Sequence[str], what: str) -> list[str]:
    """The command of a child: "measure" cases, or run one as "eager" or "kitsune" for a profiler."""
    return [sys.executable, "-m", "kitsune_mlir.tools.kitsune", "bench", *arguments, "--child", what]


def measure(arguments: Sequence[str], names: Sequence[str], timeout: float) -> Iterator[dict[str, Any]]:
    """The record of each case in turn, {case, said} where there is none; `timeout` in seconds for each.

    Children are given the names of cases and `arguments`. What they say of their progress goes to our stderr.
    """
    left = list(names)
    while left:
        for record in _child(arguments, tuple(left), timeout):
            left.pop(0)
            yield record


def report(folder: str, number: int, record: dict[str, Any]) -> None:
    """A child's record of its case `number`; the parent sees all of it or nothing."""
    partial = Path(folder, "partial")
    partial.write_text(json.dumps(record))
    os.replace(partial, Path(folder, f"{number}.json"))
    Path(folder, DOING).unlink(missing_ok=True)


def doing(folder: str, what: str) -> None:
    """A child's word on what it begins: what it died of, or hangs in, should it be the last."""
    Path(folder, DOING).write_text(what)


def _child(arguments: Sequence[str], names: Sequence[str], timeout: float) -> Iterator[dict[str, Any]]:
    """The records of the first of the cases at least, until the child ends; it does not outlive this."""
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen([*command([*names, *arguments], "measure"), "--records", folder])
        try:
            for number, name in enumerate(names):
                path = Path(folder, f"{number}.json")
                said = _wait(process, path, timeout)
                record = {"case": name, "said": said} if said else json.loads(path.read_text())
                lost = bool(said) or record.pop(LOST, False)
                yield record
                if lost:
                    return
            process.wait(LAST_WORDS_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        finally:
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[bytes], path: Path, timeout: float) -> str:
    """For a record; why there is none, if there is none."""
    end = time.monotonic() + timeout
    while not path.is_file():
        status = process.poll()
        if status is not None and not path.is_file():
            return f"its process ended with status {status}{_during(path.parent)}"
        if time.monotonic() > end:
            return f"took more than {timeout:g} s{_during(path.parent)}: a kernel that hangs, or a limit too low"
        time.sleep(POLL_SECONDS)
    return ""


def _during(folder: Path) -> str:
    path = Path(folder, DOING)
    return f", {path.read_text()}" if path.is_file() else ""
