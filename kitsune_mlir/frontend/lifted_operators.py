"""Operators of ours in torch's graphs, which torch-mlir does not know, outside of a module while it lowers the rest.

func.func @main(%x) { ... %y = torch.operator "torch.kitsune.fourier"(%a, ...) ... }
func.func @main(%x, %y) { ... return ..., %a }                                      after `lift`
func.func @main(%x) { ... %y = "kitsune.fourier"(%a) {...} ... }                    lowered, after `put_back`
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from kitsune_mlir.dialects.firsts import FirstsOp
from kitsune_mlir.dialects.fourier import FourierOp
from kitsune_mlir.dialects.systems import CholeskyOp, PivotsOp, SolveOp, SubstituteOp
from kitsune_mlir.mlir import arith, func, ir, linalg, tensor, walk
from kitsune_mlir.rows import producer, size_of, used_values

from .tensor_specs import entry_function, retype

_PREFIX = "torch.kitsune."  # of an operator's name


class Lifted(NamedTuple):
    """An operator that is outside: the operation that it becomes, how many parts it has, and results, and what is said
    of it."""

    name: str
    parts: int
    results: int
    attributes: dict[str, ir.Attribute]
    location: ir.Location


def lift(module: ir.Module) -> list[Lifted]:
    """Makes what operators of ours are given results of the function, behind its own, and their results arguments.
    Returns the operators."""
    function = entry_function(module)
    own = [] if function is None else [op for op in walk(function, "torch.operator") if _name(op).startswith(_PREFIX)]
    if function is None or not own:
        return []
    block, found, given = function.regions[0].blocks[0], list[Lifted](), list[ir.Value]()
    for op in own:
        name, parts, attributes = _READ[_name(op).removeprefix(_PREFIX)](*op.operands)
        found.append(Lifted(name, len(parts), len(op.results), attributes, op.location))
        given += parts
        for result in op.results:
            result.replace_all_uses_with(block.add_argument(result.type, op.location))
        op.erase()
    end = block.operations[len(block.operations) - 1].operation
    _return(end, [*end.operands, *given])
    return found


def put_back(module: ir.Module, lifted: list[Lifted]) -> None:
    """Puts the operators, now operations on tensors, where they were: the function's last results are what they
    are given, and its last arguments what they give."""
    function = entry_function(module)
    if function is None or not lifted:
        return
    block = function.regions[0].blocks[0]
    end = block.operations[len(block.operations) - 1].operation
    returned = list(end.operands)
    own = len(returned) - sum(one.parts for one in lifted)
    first = argument = len(block.arguments) - sum(one.results for one in lifted)
    given = iter(range(own, len(returned)))
    for one in lifted:
        parts = [end.operands[next(given)] for _ in range(one.parts)]
        arguments = list(block.arguments)[argument : argument + one.results]
        argument += one.results
        with one.location, ir.InsertionPoint(end):
            kinds = [value.type for value in arguments]
            make = _BUILT.get(one.name, partial(_plainly, one.name))
            made = make(kinds, parts, one.attributes)
        for old, new in zip(arguments, made.results, strict=False):  # a scan gives the last of all besides
            old.replace_all_uses_with(new)
    _in_order(block)
    for _ in range(argument - first):
        block.erase_argument(first)
    _return(end, list(end.operands)[:own])


def _name(op: ir.Operation) -> str:
    return ir.StringAttr(op.attributes["name"]).value


Said = tuple[str, list[ir.Value], dict[str, ir.Attribute]]  # an operation's name, operands and attributes


def _fourier(re: ir.Value, im: ir.Value, *said: ir.Value) -> Said:
    """A kitsune.fourier, of what an operator is given."""
    maker = producer(im)
    parts = [re] if maker is not None and maker.name == "torch.constant.none" else [re, im]
    dim, size, _, inverse, scale = map(_number, said)
    found = {"dimension": dim, "size": size, "scale": scale}
    return FourierOp.OPERATION_NAME, parts, found | _if_so("inverse", inverse)


def _firsts(keys: ir.Value, count: ir.Value, descending: ir.Value) -> Said:
    """A kitsune.firsts, likewise."""
    return FirstsOp.OPERATION_NAME, [keys], _if_so("descending", _number(descending))


def _substitute(right: ir.Value, matrix: ir.Value, *said: ir.Value) -> Said:
    """A kitsune.substitute, likewise."""
    found = dict[str, ir.Attribute]()
    for name, value in zip(("upper", "transposed", "unit"), said, strict=True):
        found |= _if_so(name, _number(value))
    return SubstituteOp.OPERATION_NAME, [right, matrix], found


def _plain(name: str) -> Callable[..., Said]:
    """What reads operators of which nothing is said, for an operation of that name."""
    return lambda *parts: (name, [*parts], {})


def _extrema(x: ir.Value, dim: ir.Value, largest: ir.Value) -> Said:
    """A scan that gives the largest elements so far, or the least."""
    return _SCAN, [x], {"dimension": _number(dim)} | _if_so("largest", _number(largest))


def _plainly(name: str, kinds: list[ir.Type], parts: list[ir.Value], said: dict[str, ir.Attribute]) -> ir.Operation:
    """An operation of the kitsune dialect, at the insertion point."""
    return ir.Operation.create(name, kinds, parts, said)


def _bits(kinds: list[ir.Type], parts: list[ir.Value], said: dict[str, ir.Attribute]) -> ir.Operation:
    """The bits of a tensor's numbers, one by one."""
    (kind,), (x,) = kinds, parts
    identity = ir.AffineMapAttr.get(ir.AffineMap.get_identity(kind.rank))
    attributes = {
        "indexing_maps": ir.ArrayAttr.get([identity] * 2),
        "iterator_types": ir.ArrayAttr.get([ir.Attribute.parse("#linalg.iterator_type<parallel>")] * kind.rank),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1]),
    }
    made = ir.Operation.create("linalg.generic", kinds, [x, _like(x, kind, range(kind.rank))], attributes, regions=1)
    block = made.regions[0].blocks.append(ir.RankedTensorType(x.type).element_type, kind.element_type)
    with ir.InsertionPoint(block):
        linalg.YieldOp([arith.bitcast(kind.element_type, block.arguments[0])])
    return made


def _scan(kinds: list[ir.Type], parts: list[ir.Value], said: dict[str, ir.Attribute]) -> ir.Operation:
    """A tm_tensor.scan, which has also what all elements of a line give."""
    (kind,), (x,) = kinds, parts
    dims, along = [*range(kind.rank)], ir.IntegerAttr(said["dimension"]).value
    del dims[along]
    whole = ir.RankedTensorType.get([kind.shape[d] for d in dims], kind.element_type)
    attributes = {
        "dimension": said["dimension"],
        "inclusive": ir.BoolAttr.get(True),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 2]),
    }
    operands = [x, _like(x, kind, range(kind.rank)), _like(x, whole, dims)]
    made = ir.Operation.create(_SCAN, [kind, whole], operands, attributes, regions=1)
    block = made.regions[0].blocks.append(kind.element_type, kind.element_type)
    is_float, largest = isinstance(kind.element_type, ir.FloatType), "largest" in said
    name = f"arith.{'max' if largest else 'min'}{'imumf' if is_float else 'si'}"
    with ir.InsertionPoint(block):
        joined = ir.Operation.create(name, [kind.element_type], list(block.arguments))
        ir.Operation.create("tm_tensor.yield", [], [joined.result])
    return made


def _like(x: ir.Value, kind: ir.RankedTensorType, dims: Sequence[int]) -> ir.Value:
    """A tensor of a type, whose dimensions have the open sizes of these of another one."""
    sizes = [size_of(x, d) if kind.is_dynamic_dim(i) else kind.shape[i] for i, d in enumerate(dims)]
    return tensor.empty(sizes, kind.element_type)


_BITS, _SCAN = "bits", "tm_tensor.scan"
_BUILT = {_BITS: _bits, _SCAN: _scan}  # what is no operation of the dialect
_READ: dict[str, Callable[..., Said]] = {
    "bits": _plain(_BITS),
    "cholesky": _plain(CholeskyOp.OPERATION_NAME),
    "extrema": _extrema,
    "firsts": _firsts,
    "fourier": _fourier,
    "fourier_to_real": _fourier,
    "pivots": _plain(PivotsOp.OPERATION_NAME),
    "solve": _plain(SolveOp.OPERATION_NAME),
    "substitute": _substitute,
}


def _number(value: ir.Value) -> ir.Attribute:
    return value.owner.attributes["value"]


def _if_so(name: str, truth: ir.Attribute) -> dict[str, ir.Attribute]:
    """A unit attribute where it holds."""
    return {name: ir.UnitAttr.get(truth.context)} if ir.IntegerAttr(truth).value else {}


def _return(end: ir.Operation, values: list[ir.Value]) -> None:
    """Has the function that ends there return these."""
    function = end.parent
    with end.location, ir.InsertionPoint(end):
        func.ReturnOp(values)
    end.erase()
    retype(function)


def _in_order(block: ir.Block) -> None:
    """Moves operations behind those that make what they are given."""
    operations = [op.operation for op in block.operations]
    end, placed = operations[-1], set[ir.Operation]()

    def place(op: ir.Operation) -> None:
        waiting = [op]
        while waiting:
            makers = [maker for value in used_values(waiting[-1]) if (maker := producer(value)) is not None]
            missing = [maker for maker in makers if maker.block == block and maker not in placed]
            if missing:
                waiting += missing
            elif (ready := waiting.pop()) not in placed:
                placed.add(ready)
                ready.move_before(end)

    for op in operations[:-1]:
        place(op)
