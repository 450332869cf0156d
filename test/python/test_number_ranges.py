"""What constants say of the least and the greatest that an integer may be: such numbers of rows are not checked."""

import pytest

from kitsune_mlir import mlir
from kitsune_mlir.codegen.number_ranges import is_within

CASES = {  # what is computed of %n, and the least table that it is known to be a row of, None for any
    "clamped": ("%a = arith.minsi %n, %c4 : i64  %x = arith.maxsi %a, %c0 : i64", 5),
    "not below": ("%x = arith.minsi %n, %c4 : i64", None),
    "a truth value": ("%b = arith.cmpi slt, %n, %c0 : i64  %x = arith.extui %b : i1 to i64", 2),
    "a truth value with its sign": ("%b = arith.cmpi slt, %n, %c0 : i64  %x = arith.extsi %b : i1 to i64", None),
    "what goes round": ("%a = arith.maxsi %n, %c0 : i64  %x = arith.addi %a, %c4 : i64", None),
    "counted from behind": (
        "%a = arith.minsi %n, %c4 : i64  %b = arith.maxsi %a, %c0 : i64  %l = arith.cmpi slt, %b, %c0 : i64"
        "  %d = arith.addi %b, %c4 : i64  %x = arith.select %l, %d, %b : i64",
        5,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_ranges(name):
    body, count = CASES[name]
    lines = body.replace("  %", "\n%")
    module = mlir.parse(
        f"""func.func @f(%n: i64) -> i64 {{
              %c0 = arith.constant 0 : i64
              %c4 = arith.constant 4 : i64
              {lines}
              return %x : i64
            }}""",
        mlir.context(),
    )
    (end,) = mlir.walk(module, "func.return")
    if count is None:
        assert not is_within(end.operands[0], 1 << 62)
    else:
        assert is_within(end.operands[0], count) and not is_within(end.operands[0], count - 1)
