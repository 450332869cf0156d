"""The demo runs from end to end, small, and leaves what it says."""

import runpy
import sys
from pathlib import Path

import pytest
from PIL import Image

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


def test_the_demo_agrees_with_torch_and_leaves_its_files(tmp_path, monkeypatch, capfd):
    monkeypatch.syspath_prepend(DEMO.parent)
    monkeypatch.setattr(sys, "argv", ["demo.py", "--out", str(tmp_path), "--seconds", "0.2", "--width", "48"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(DEMO), run_name="__main__")
    out, err = capfd.readouterr()
    assert ended.value.code == 0, out + err
    assert out.endswith("agrees with PyTorch\n")
    assert not err  # progress is for terminals
    for name in ("photo-f32.kitsune", "photo-bf16.pt2", "photo-bf16.ptx", "plan-bf16.svg", "plan-bf16.json"):
        assert (tmp_path / name).stat().st_size > 0, name
    assert Image.open(tmp_path / "render-cpu-f32.png").size == (48, 56)
