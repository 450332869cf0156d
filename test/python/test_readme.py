"""The README's Python runs as printed, and its IR is what the passes print."""

import re
from pathlib import Path

from kitsune_mlir.tools import kitsune_opt

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_python_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(.*?)```", README, re.S)
    exec(compile(example, "README.md", "exec"), {})
    assert (tmp_path / "model.kitsune").is_file()


def test_the_ir_is_what_the_passes_print(tmp_path):
    out = tmp_path / "placed.mlir"
    passes = ["--partition-dataflow", "--design-pipeline", "--place-stages", "--verify-dataflow"]
    assert kitsune_opt.main([str(ROOT / "examples" / "mlp.mlir"), *passes, "-o", str(out)]) == 0
    printed = out.read_text()
    for line in re.findall(r"^(?:%q = |}\) \{kind).*$", README, re.M):
        assert line.removeprefix("%q = ") in printed


def test_every_file_it_names_exists():
    for name in re.findall(r"\]\(([\w./-]+)\)|src=\"([\w./-]+)\"", README):
        assert (ROOT / (name[0] or name[1])).is_file(), name
