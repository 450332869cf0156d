"""The demo runs from end to end, small, and leaves what it says."""

import subprocess
import sys
from pathlib import Path

from PIL import Image

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


def test_the_demo_agrees_with_torch_and_leaves_its_files(tmp_path):
    command = [sys.executable, str(DEMO), "--out", str(tmp_path), "--seconds", "0.2", "--width", "48"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("agrees with PyTorch\n")
    assert not done.stderr  # progress is for terminals
    for name in ("photo-f32.kitsune", "photo-bf16.pt2", "photo-bf16.ptx", "plan-bf16.svg", "plan-bf16.json"):
        assert (tmp_path / name).stat().st_size > 0, name
    assert Image.open(tmp_path / "render-cpu-f32.png").size == (48, 56)
