"""What CONTRIBUTING.md names is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()


def test_every_path_it_names_exists():
    paths = set(re.findall(r"(?<![\w./-])(?!\.venv)[\w.-]+(?:/[\w.-]*)+", TEXT))
    assert len(paths) > 30
    missing = [path for path in sorted(paths) if not (ROOT / path).exists()]
    assert not missing


def test_it_is_short_and_found_from_the_readme_and_the_architecture():
    assert TEXT.count("\n") < 150
    assert "(CONTRIBUTING.md)" in (ROOT / "README.md").read_text()
    assert "(../CONTRIBUTING.md)" in (ROOT / "docs" / "architecture.md").read_text()


def test_its_example_is_the_code():
    code = (ROOT / "kitsune_mlir" / "frontend" / "extrema.py").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", TEXT, re.S)
    lines = [line.removeprefix("   ") for line in example.rstrip().split("\n")]
    assert len(lines) == 4 and "\n".join(f"    {line}" for line in lines) in code


def test_its_targets_of_make_exist():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"make (install|lint|test)\b", TEXT):
        assert re.search(rf"^{target}:", makefile, re.M)
