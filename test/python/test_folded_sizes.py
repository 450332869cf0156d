"""Numbers computed of open sizes keep their value, and are what they are known to be."""

from hypothesis import given, settings
from hypothesis import strategies as st

from kitsune_mlir.mlir import attr_int, context, ir, kept_context, parse, walk
from kitsune_mlir.operations import operations_of
from kitsune_mlir.passes.folded_sizes import fold_sizes

HOLDS = [
    lambda a, b: a == b,
    lambda a, b: a != b,
    lambda a, b: a < b,
    lambda a, b: a <= b,
    lambda a, b: a > b,
    lambda a, b: a >= b,
]
PREDICATES = ["eq", "ne", "slt", "sle", "sgt", "sge"]
BINARY = {
    "addi": lambda a, b: a + b,
    "subi": lambda a, b: a - b,
    "muli": lambda a, b: a * b,
    "minsi": min,
    "maxsi": max,
    "floordivsi": lambda a, b: a // b,
}
HEAD = """
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m1 = arith.constant -1 : index
  %c3 = arith.constant 3 : index
  %m = tensor.dim %x, %c0 : tensor<?x?xf32>
  %n = tensor.dim %x, %c1 : tensor<?x?xf32>
  %k = tensor.dim %y, %c0 : tensor<?xf32>
"""
NAMES = ["%c0", "%c1", "%m1", "%c3", "%m", "%n", "%k"]


@st.composite
def programs(draw):
    """Lines that compute numbers of others, and the names of these."""
    names, lines = list(NAMES), []
    for number in range(draw(st.integers(1, 12))):
        new, (a, b) = f"%v{number}", (draw(st.sampled_from(names)) for _ in range(2))
        kind = draw(st.sampled_from(["addi", "subi", "minsi", "maxsi", "muli", "floordivsi", "select", "apply"]))
        if kind == "select":
            c, d = (draw(st.sampled_from(names)) for _ in range(2))
            lines.append(f"%i{number} = arith.cmpi {draw(st.sampled_from(PREDICATES))}, {a}, {b} : index")
            lines.append(f"{new} = arith.select %i{number}, {c}, {d} : index")
        elif kind == "apply":
            lines.append(f"{new} = affine.apply affine_map<()[s, t] -> (s * 2 - t + 1)>()[{a}, {b}]")
        else:
            b = "%c3" if kind == "floordivsi" else b
            lines.append(f"{new} = arith.{kind} {a}, {b} : index")
        names.append(new)
    return "\n".join(lines), names


def values_of(main, sizes):
    """What a function returns where its sizes are these."""
    found = {}
    for op in operations_of(main.regions[0].blocks[0]):
        read = [found.get(hash(value)) for value in op.operands]
        name = op.name.partition(".")[2]
        if op.name == "func.return":
            return read
        if op.name == "arith.constant":
            value = attr_int(op, "value")
        elif op.name == "tensor.dim":
            value = sizes[ir.BlockArgument(op.operands[0]).arg_number][read[1]]
        elif op.name == "affine.apply":
            value = 2 * read[0] - read[1] + 1
        elif op.name == "arith.select":
            value = read[1] if read[0] else read[2]
        elif op.name == "arith.cmpi":
            value = HOLDS[attr_int(op, "predicate")](*read)
        else:
            value = BINARY[name](*read)
        found[hash(op.results[0])] = value
    raise AssertionError("no return")


@settings(max_examples=150, deadline=None)
@given(programs(), st.lists(st.integers(0, 5), min_size=2, max_size=2))
def test_values_stay(program, sizes):
    lines, names = program
    kinds = ", ".join(["index"] * len(names))
    same = "attributes {kitsune.symbols = [array<i64: 0, 1>, array<i64: 0>]}"
    head = f"func.func @main(%x: tensor<?x?xf32>, %y: tensor<?xf32>) -> ({kinds}) {same} {{"
    text = f"{head}{HEAD}{lines}\nreturn {', '.join(names)} : {kinds}\n}}"
    module = parse(text, kept_context())
    with module.context:
        (main,) = walk(module, "func.func")
        given_ = [sizes, sizes[:1]]
        before = values_of(main, given_)
        fold_sizes(main)
        assert values_of(main, given_) == before


def test_slices_end_where_they_are_known_to():
    text = """func.func @main(%x: tensor<?x?xf32>) -> (index, index, index) {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %n = tensor.dim %x, %c1 : tensor<?x?xf32>
      %m = affine.apply affine_map<()[s] -> (s + 1)>()[%n]
      %first = arith.minsi %m, %c0 : index
      %below = arith.cmpi slt, %n, %c0 : index
      %other = arith.addi %n, %m : index
      %end = arith.select %below, %other, %n : index
      %last = arith.minsi %end, %m : index
      %less = arith.subi %m, %c1 : index
      return %first, %last, %less : index, index, index
    }"""
    module = parse(text, context())
    with module.context:
        (main,) = walk(module, "func.func")
        fold_sizes(main)
        *_, end = main.regions[0].blocks[0].operations
        first, last, less = (value.owner.name for value in end.operands)
    assert (first, last, less) == ("arith.constant", "tensor.dim", "tensor.dim")
