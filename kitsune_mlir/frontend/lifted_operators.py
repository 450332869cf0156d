"""Operators of ours in torch's graphs, which torch-mlir does not know, outside of a module while it lowers the rest.

func.func @main(%x) { ... %y = torch.operator "torch.kitsune.fourier"(%a, ...) ... }
func.func @main(%x, %y) { ... return ..., %a }                                      after `lift`
func.func @main(%x) { ... %y = "kitsune.fourier"(%a) {...} ... }                    lowered, after `put_back`
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kitsune_mlir.dialects.filter_gradient import FilterGradientOp
from kitsune_mlir.dialects.firsts import FirstsOp
from kitsune_mlir.dialects.fourier import FourierOp
from kitsune_mlir.dialects.order import OrderOp
from kitsune_mlir.dialects.recurrent import RecurrentOp
from kitsune_mlir.dialects.systems import CholeskyOp, PivotsOp, SolveOp, SubstituteOp
from kitsune_mlir.generics import elementwise
from kitsune_mlir.mlir import arith, func, ir, tensor, walk
from kitsune_mlir.operations import end_of, operations_of, producer
from kitsune_mlir.rows import size_of, used_values

from .sampled_elements import Sample, around, between, rolled, windows
from .tensor_specs import entry_function, retype

_PREFIX = "torch.kitsune."  # of an operator's name


Make = Callable[[Sequence[ir.Value], Sequence[ir.Type]], Sequence[ir.Value]]
Parts = list[ir.Value]


class Lifted(NamedTuple):
    """An operator that is outside: how many parts it has, and results; what makes these, of given types, of those."""

    parts: int
    results: int
    make: Make
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
        parts, make = _KINDS[_name(op).removeprefix(_PREFIX)](*op.operands)
        found.append(Lifted(len(parts), len(op.results), make, op.location))
        given += parts
        for result in op.results:
            result.replace_all_uses_with(block.add_argument(result.type, op.location))
        op.erase()
    end = end_of(block)
    _return(end, [*end.operands, *given])
    return found


def put_back(module: ir.Module, lifted: list[Lifted]) -> None:
    """Puts the operators, now operations on tensors, where they were: the function's last results are what they
    are given, and its last arguments what they give."""
    function = entry_function(module)
    if function is None or not lifted:
        return
    block = function.regions[0].blocks[0]
    end = end_of(block)
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
            made = one.make(parts, kinds)
        for old, new in zip(arguments, made, strict=True):
            old.replace_all_uses_with(new)
    _in_order(block)
    for _ in range(argument - first):
        block.erase_argument(first)
    _return(end, list(end.operands)[:own])


def _name(op: ir.Operation) -> str:
    return ir.StringAttr(op.attributes["name"]).value


def _fourier(re: ir.Value, im: ir.Value, *said: ir.Value) -> tuple[Parts, Make]:
    """A kitsune.fourier, of what an operator is given."""
    maker = producer(im)
    parts = [re] if maker is not None and maker.name == "torch.constant.none" else [re, im]
    dim, size, _, inverse, scale = map(_number, said)
    found = {"dimension": dim, "size": size, "scale": scale}
    return parts, _operation(FourierOp.OPERATION_NAME, found | _if_so("inverse", inverse))


def _firsts(keys: ir.Value, count: ir.Value, descending: ir.Value) -> tuple[Parts, Make]:
    """A kitsune.firsts, likewise."""
    return [keys], _operation(FirstsOp.OPERATION_NAME, _if_so("descending", _number(descending)))


def _order(keys: ir.Value, counted: ir.Value, count: ir.Value) -> tuple[Parts, Make]:
    """The rows of a kitsune.order."""
    maker = producer(counted)
    parts = [keys] if maker is not None and maker.name == "torch.constant.none" else [keys, counted]

    def make(parts: Sequence[ir.Value], kinds: Sequence[ir.Type]) -> list[ir.Value]:
        known = ir.IntegerAttr(_number(count)).value
        size = size_of(parts[1], 0) if len(parts) > 1 else arith.ConstantOp.create_index(known).result
        return [OrderOp(parts[0], size, [], kinds[0], kinds[0], []).results[0]]

    return parts, make


def _sample(x: ir.Value, grid: ir.Value, *said: ir.Value) -> tuple[Parts, Make]:
    """Elements at places, as an operator of linalg."""
    linear, padding, corners, last = (ir.IntegerAttr(_number(one)).value for one in said)
    how = Sample(bool(linear), padding, bool(corners), bool(last))
    return [x, grid], lambda parts, kinds: [how.build(*parts, ir.RankedTensorType(kinds[0]))]


def _between(x: ir.Value, places: ir.Value) -> tuple[Parts, Make]:
    """Elements at places of each dimension, likewise."""
    listed = list(places.owner.operands)
    return [x, *listed], lambda parts, kinds: [between(parts[0], parts[1:], ir.RankedTensorType(kinds[0]))]


def _windows(x: ir.Value, *said: ir.Value) -> tuple[Parts, Make]:
    """Windows of an image, likewise."""
    *forms, last = said
    numbers = [[ir.IntegerAttr(_number(one)).value for one in listed.owner.operands] for listed in forms]
    is_last = bool(ir.IntegerAttr(_number(last)).value)
    return [x], lambda parts, kinds: [windows(parts[0], *numbers, is_last, ir.RankedTensorType(kinds[0]))]


def _filter_gradient(image: ir.Value, gradient: ir.Value, kernel: ir.Value, *said: ir.Value) -> tuple[Parts, Make]:
    """A kitsune.filter_gradient, likewise."""
    *forms, _ = said
    found = dict[str, ir.Attribute]()
    for name, listed in zip(("stride", "dilation", "padding"), forms, strict=True):
        numbers = [ir.IntegerAttr(_number(one)).value for one in listed.owner.operands]
        found[name] = ir.DenseI64ArrayAttr.get(numbers, image.context)
    return [image, gradient], _operation(FilterGradientOp.OPERATION_NAME, found)


def _around(x: ir.Value, padding: ir.Value, way: ir.Value) -> tuple[Parts, Make]:
    """An image with more of itself beside it, likewise."""
    sizes = [ir.IntegerAttr(_number(one)).value for one in padding.owner.operands]
    number = ir.IntegerAttr(_number(way)).value
    return [x], lambda parts, kinds: [around(parts[0], sizes, number, ir.RankedTensorType(kinds[0]))]


def _rolled(x: ir.Value, shifts: ir.Value, dims: ir.Value) -> tuple[Parts, Make]:
    """A tensor that is rolled along dimensions, likewise; by numbers that are computed of open sizes, too."""
    along = [ir.IntegerAttr(_number(one)).value for one in dims.owner.operands]
    given = list(shifts.owner.operands)
    known = ["value" in one.owner.attributes for one in given]
    moves = [ir.IntegerAttr(_number(one)).value if is_known else None for one, is_known in zip(given, known)]

    def make(parts: Sequence[ir.Value], kinds: Sequence[ir.Type]) -> Sequence[ir.Value]:
        numbers = iter(parts[1:])
        own = {d: next(numbers) if move is None else move for d, move in zip(along, moves)}
        return [rolled(parts[0], own, ir.RankedTensorType(kinds[0]))]

    return [x, *(one for one, is_known in zip(given, known) if not is_known)], make


def _operation(name: str, attributes: dict[str, ir.Attribute]) -> Make:
    """What makes an operation of this name."""
    return lambda parts, kinds: list(ir.Operation.create(name, kinds, parts, attributes).results)


def _substitute(right: ir.Value, matrix: ir.Value, *said: ir.Value) -> tuple[Parts, Make]:
    """A kitsune.substitute, likewise."""
    found = dict[str, ir.Attribute]()
    for name, value in zip(("upper", "transposed", "unit"), said, strict=True):
        found |= _if_so(name, _number(value))
    return [right, matrix], _operation(SubstituteOp.OPERATION_NAME, found)


def _plain(name: str) -> Callable[..., tuple[Parts, Make]]:
    """What reads operators of which nothing is said, for an operation of that name."""
    return lambda *parts: ([*parts], _operation(name, {}))


def _lstm_steps(*said: ir.Value) -> tuple[Parts, Make]:
    """A kitsune.recurrent of an lstm."""
    *parts, time = said
    cell = ir.StringAttr.get("lstm", time.context)
    return parts, _operation(RecurrentOp.OPERATION_NAME, {"cell": cell, "time": _number(time)})


def _steps(*said: ir.Value) -> tuple[Parts, Make]:
    """The same of another cell."""
    *parts, cell, time = said
    return parts, _operation(RecurrentOp.OPERATION_NAME, {"cell": _number(cell), "time": _number(time)})


def _extrema(x: ir.Value, dim: ir.Value, largest: ir.Value) -> tuple[Parts, Make]:
    """A scan that gives the largest elements so far, or the least."""
    number, is_largest = _number(dim), bool(ir.IntegerAttr(_number(largest)).value)
    return [x], lambda parts, kinds: [_scan(parts[0], ir.RankedTensorType(kinds[0]), number, is_largest)]


def _bits(x: ir.Value, kind: ir.Value) -> tuple[Parts, Make]:
    """The bits of a tensor's numbers, one by one."""
    return [x], lambda parts, kinds: [_cast(parts[0], ir.RankedTensorType(kinds[0]))]


def _cast(x: ir.Value, kind: ir.RankedTensorType) -> ir.Value:
    """The bits of a tensor's numbers as a tensor of this type, at the insertion point."""
    return elementwise([x], kind.element_type, lambda number: arith.bitcast(kind.element_type, number))


def _scan(x: ir.Value, kind: ir.RankedTensorType, dimension: ir.Attribute, largest: bool) -> ir.Value:
    """What a tm_tensor.scan gives, which has also what all elements of a line give."""
    dims, along = [*range(kind.rank)], ir.IntegerAttr(dimension).value
    del dims[along]
    whole = ir.RankedTensorType.get([kind.shape[d] for d in dims], kind.element_type)
    attributes = {
        "dimension": dimension,
        "inclusive": ir.BoolAttr.get(True),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 2]),
    }
    operands = [x, _like(x, kind, range(kind.rank)), _like(x, whole, dims)]
    made = ir.Operation.create("tm_tensor.scan", [kind, whole], operands, attributes, regions=1)
    block = made.regions[0].blocks.append(kind.element_type, kind.element_type)
    is_float = isinstance(kind.element_type, ir.FloatType)
    name = f"arith.{'max' if largest else 'min'}{'imumf' if is_float else 'si'}"
    with ir.InsertionPoint(block):
        joined = ir.Operation.create(name, [kind.element_type], list(block.arguments))
        ir.Operation.create("tm_tensor.yield", [], [joined.result])
    return made.results[0]


def _like(x: ir.Value, kind: ir.RankedTensorType, dims: Sequence[int]) -> ir.Value:
    """A tensor of a type, whose dimensions have the open sizes of these of another one."""
    sizes = [size_of(x, d) if kind.is_dynamic_dim(i) else kind.shape[i] for i, d in enumerate(dims)]
    return tensor.empty(sizes, kind.element_type)


_KINDS: dict[str, Callable[..., tuple[Parts, Make]]] = {
    "around": _around,
    "between": _between,
    "bits": _bits,
    "cholesky": _plain(CholeskyOp.OPERATION_NAME),
    "extrema": _extrema,
    "filter_gradient": _filter_gradient,
    "firsts": _firsts,
    "fourier": _fourier,
    "fourier_to_real": _fourier,
    "lstm_steps": _lstm_steps,
    "order": _order,
    "pivots": _plain(PivotsOp.OPERATION_NAME),
    "rolled": _rolled,
    "sample": _sample,
    "solve": _plain(SolveOp.OPERATION_NAME),
    "steps": _steps,
    "substitute": _substitute,
    "windows": _windows,
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
    operations = operations_of(block)
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
