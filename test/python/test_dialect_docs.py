"""docs/dialect.md is what the docstrings say now."""

import importlib.util
import inspect
from pathlib import Path

import pytest

from kitsune_mlir.dialects import kitsune

DOCS = Path(__file__).parents[2] / "docs"
spec = importlib.util.spec_from_file_location("generate_dialect", DOCS / "generate_dialect.py")
generate_dialect = importlib.util.module_from_spec(spec)
spec.loader.exec_module(generate_dialect)


def test_the_page_is_up_to_date():
    assert (DOCS / "dialect.md").read_text() == generate_dialect.page(), "run python docs/generate_dialect.py"


@pytest.mark.parametrize("described", [*kitsune.Kitsune.operations, *kitsune.Kitsune.types])
def test_operations_and_types_are_documented(described):
    assert described.__doc__
    assert inspect.cleandoc(described.__doc__) in generate_dialect.page()
