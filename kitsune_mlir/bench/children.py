"""Every case runs in a process of its own: what one leaves behind, or hangs on, does not touch the next."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def command(arguments: Sequence[str], what: str) -> list[str]:
    """The command of a child: "measure" a case, or run "eager" or "kitsune" once for a profiler."""
    return [sys.executable, "-m", "kitsune_mlir.tools.kitsune", "bench", *arguments, "--child", what]


def measure(arguments: Sequence[str], case: str, timeout: float) -> dict[str, Any]:
    """The record of a case, from a child that is given `arguments`; {case, said} where there is none. What the
    child says of its progress goes to our stderr."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "record.json")
        try:
            done = subprocess.run([*command(arguments, "measure"), "--json", path], timeout=timeout, check=False)
        except subprocess.TimeoutExpired:
            return {"case": case, "said": f"took more than {timeout:g} s: a kernel that hangs, or a limit too low"}
        if not path.is_file():
            return {"case": case, "said": f"its process ended with status {done.returncode}"}
        return json.loads(path.read_text())
