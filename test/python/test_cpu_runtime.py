"""The C++ runtime on its own: its stress test, under ThreadSanitizer where the compiler has it."""

import shutil
import subprocess
from pathlib import Path

import pytest

RUNTIME = Path(__file__).resolve().parents[2] / "runtime"


@pytest.fixture(scope="module")
def compiler():
    found = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if found is None:
        pytest.skip("no C++ compiler")
    return found


def test_every_schedule_agrees_without_data_races(compiler, tmp_path):
    sources = [*map(str, sorted(RUNTIME.glob("*.cpp"))), str(RUNTIME / "test" / "stress.cpp")]
    command = [compiler, "-std=c++20", "-O1", *sources, "-o", str(tmp_path / "stress"), "-pthread"]
    if subprocess.run([*command, "-fsanitize=thread"], capture_output=True).returncode != 0:
        subprocess.run(command, check=True)
    done = subprocess.run([str(tmp_path / "stress")], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "all schedules agree\n"
