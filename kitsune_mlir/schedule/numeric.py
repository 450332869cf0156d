"""Operations on numbers and tiles, in numpy: index arithmetic, arith and math by element, linalg.

bf16 is held in float32 arrays and rounded after every operation; all other types are numpy's own. Elements that nobody
wrote are those of poison.py.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kitsune_mlir.codegen.scan_joins import BACKWARDS, BEFORE, neutral_of
from kitsune_mlir.dialects.captures import captures
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import attr_int, ir, location
from kitsune_mlir.operations import operations_of
from kitsune_mlir.rows import DYNAMIC, loops_of

from . import poison, tensors, windows
from .tensors import Function

DTYPES = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float16,
    "bf16": np.float32,
    "i1": np.bool_,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "index": np.int64,
}
_erf = np.vectorize(math.erf, otypes=[np.float64])


def _fma(a: Any, b: Any, c: Any) -> np.ndarray:
    """The product of numbers of up to 32 bits is exact in 64."""
    return (np.asarray(a, np.float64) * b + c).astype(np.asarray(c).dtype)


FLOATS: dict[str, Callable[..., Any]] = {
    "arith.addf": np.add,
    "arith.subf": np.subtract,
    "arith.mulf": np.multiply,
    "arith.divf": np.divide,
    "arith.remf": np.fmod,
    "arith.negf": np.negative,
    "arith.maximumf": np.maximum,
    "arith.minimumf": np.minimum,
    "arith.maxnumf": np.fmax,
    "arith.minnumf": np.fmin,
    "math.absf": np.abs,
    "math.atan": np.arctan,
    "math.ceil": np.ceil,
    "math.copysign": np.copysign,
    "math.cos": np.cos,
    "math.erf": _erf,
    "math.exp": np.exp,
    "math.exp2": np.exp2,
    "math.expm1": np.expm1,
    "math.floor": np.floor,
    "math.fma": _fma,
    "math.log": np.log,
    "math.log1p": np.log1p,
    "math.log2": np.log2,
    "math.powf": np.power,
    "math.roundeven": np.rint,
    "math.rsqrt": lambda x: 1 / np.sqrt(x),
    "math.sin": np.sin,
    "math.sqrt": np.sqrt,
    "math.tanh": np.tanh,
    "math.trunc": np.trunc,
}
_INTEGERS: dict[str, Callable[..., Any]] = {
    "arith.addi": operator.add,
    "arith.subi": operator.sub,
    "arith.muli": operator.mul,
    "arith.divsi": lambda a, b: np.trunc(np.true_divide(a, b)).astype(np.int64) if np.ndim(a) else int(a / b),
    "arith.divui": operator.floordiv,
    "arith.floordivsi": operator.floordiv,
    "arith.ceildivsi": lambda a, b: -(-a // b),
    "arith.ceildivui": lambda a, b: -(-a // b),
    "arith.remsi": np.fmod,
    "arith.remui": operator.mod,
    "arith.minsi": np.minimum,
    "arith.minui": np.minimum,
    "arith.maxsi": np.maximum,
    "arith.maxui": np.maximum,
    "arith.andi": operator.and_,
    "arith.ori": operator.or_,
    "arith.xori": operator.xor,
    "math.absi": np.abs,
}
_CASTS = (
    *("arith.extf", "arith.truncf", "arith.sitofp", "arith.uitofp", "arith.fptosi", "arith.fptoui"),
    *("arith.extsi", "arith.extui", "arith.trunci", "arith.index_cast", "arith.index_castui"),
)
_ORDERS = {1: operator.eq, 2: operator.gt, 3: operator.ge, 4: operator.lt, 5: operator.le}
_CMPI = {0: operator.eq, 1: operator.ne, 2: operator.lt, 3: operator.le, 4: operator.gt, 5: operator.ge}
_CMPI |= {6: operator.lt, 7: operator.le, 8: operator.gt, 9: operator.ge}


def element(type_: ir.Type) -> str:
    """The name of a type's elements, or of a scalar type."""
    return str(type_.element_type if isinstance(type_, ir.ShapedType) else type_)


def empty(shape: Sequence[int], name: str, source: str = "numbers of a tensor that nobody wrote") -> np.ndarray:
    """A tensor that nobody wrote; `source` says of it what its numbers are."""
    dtype = DTYPES[name]
    return np.full(shape, poison.value(dtype, source), dtype)


def rounded(values: Any, name: str) -> Any:
    """The values as elements of that type; a scalar stays one."""
    if name == "index" and not np.ndim(values):
        return int(values)
    values = np.asarray(values, DTYPES[name])
    if name == "bf16":
        bits = values.view(np.uint32)
        nearest = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) & np.uint32(0xFFFF0000)
        values = np.where(np.isnan(values), values, nearest.view(np.float32))
    return values if values.ndim else values[()]


def from_array(array: Any, type_: ir.Type) -> Any:
    """What a caller gave for a value of that type. bf16 may come as its bits (uint16), as floats, or as ml_dtypes has
    it."""
    name = element(type_)
    if name == "bf16" and getattr(array, "dtype", None) == np.uint16:
        return poison.plain((array.astype(np.uint32) << 16).view(np.float32))
    return rounded(poison.plain(np.asarray(array).astype(DTYPES[name])), name)


def operands_of(op: ir.Operation) -> list[ir.Value]:
    """What the function of an operation takes: its operands, then what its regions use of their surroundings."""
    return [*op.operands, *(captures(op) if len(op.regions) else ())]


def compile_op(op: ir.Operation) -> Function:
    """The function of an operation, of `operands_of` it. Raises UnsupportedError for one that is not known."""
    name = op.name
    if name in _SPECIAL:
        return _SPECIAL[name](op)
    result = element(op.results[0].type) if len(op.results) else ""
    if name.startswith("math.") and name in FLOATS and len(op.operands) == 1:
        return lambda xs: [rounded(poison.kept(FLOATS[name](xs[0]), xs[0]), result)]
    if name in FLOATS or name in _INTEGERS:
        function = FLOATS.get(name) or _INTEGERS[name]
        return lambda xs: [rounded(function(*xs), result)]
    if name in _CASTS:
        return lambda xs: [rounded(xs[0], result)]
    raise UnsupportedError(f"{location(op.location)}: {name} is not known to the interpreter of schedules")


def _constant(op: ir.Operation) -> Function:
    attribute, type_ = op.attributes["value"], op.results[0].type
    name = element(type_)
    if isinstance(attribute, ir.DenseElementsAttr):
        if attribute.is_splat:
            found = rounded(np.full(type_.shape, attribute.get_splat_value().value, DTYPES[name]), name)
        else:
            found = rounded(np.array(attribute), name)
    else:
        found = rounded(attribute.value, name)
    return lambda _: [found]


def _compare_floats(op: ir.Operation) -> Function:
    predicate = attr_int(op, "predicate")

    def compare(xs: Sequence[Any]) -> Sequence[Any]:
        a, b = xs
        unordered = np.isnan(a) | np.isnan(b)
        if predicate in (0, 15):
            return [np.full(np.shape(a), predicate == 15)]
        if predicate in (7, 14):
            return [unordered if predicate == 14 else ~unordered]
        if predicate in (6, 13):  # one, une
            return [(a != b) & ~unordered if predicate == 6 else (a != b) | unordered]
        if predicate < 7:
            return [_ORDERS[predicate](a, b) & ~unordered]
        return [_ORDERS[predicate - 7](a, b) | unordered]

    return compare


def _compare_integers(op: ir.Operation) -> Function:
    order = _CMPI[attr_int(op, "predicate")]
    return lambda xs: [order(*xs)]


def _select(op: ir.Operation) -> Function:
    name = element(op.results[0].type)
    return lambda xs: [rounded(np.where(*xs), name)]


def _affine(op: ir.Operation) -> Function:
    map_ = ir.AffineMapAttr(op.attributes["map"]).value
    pick = {"affine.apply": lambda found: found[0], "affine.min": min, "affine.max": max}[op.name]
    return lambda xs: [pick([_expression(result, xs, map_.n_dims) for result in map_.results])]


def _expression(expression: ir.AffineExpr, dims: Sequence[Any], symbols_at: int) -> Any:
    match expression:
        case ir.AffineDimExpr():
            return dims[expression.position]
        case ir.AffineSymbolExpr():
            return dims[symbols_at + expression.position]
        case ir.AffineConstantExpr():
            return expression.value
    left, right = (_expression(side, dims, symbols_at) for side in (expression.lhs, expression.rhs))
    match expression:
        case ir.AffineAddExpr():
            return left + right
        case ir.AffineMulExpr():
            return left * right
        case ir.AffineModExpr():
            return left % right
        case ir.AffineFloorDivExpr():
            return left // right
    return -(-left // right)


def _delinearize(op: ir.Operation) -> Function:
    basis, count = list(ir.DenseI64ArrayAttr(op.attributes["static_basis"])), len(op.results)

    def delinearize(xs: Sequence[Any]) -> Sequence[Any]:
        number, sizes = xs[0], iter(xs[1:])
        extents = [next(sizes) if size == DYNAMIC else size for size in basis]
        found = []
        for extent in reversed(extents[len(extents) - count + 1 :]):
            number, rest = divmod(number, extent)
            found.append(rest)
        return [number, *reversed(found)]

    return delinearize


def _empty(op: ir.Operation) -> Function:
    type_ = ir.RankedTensorType(op.results[0].type)
    name = element(type_)

    def make(xs: Sequence[Any]) -> Sequence[Any]:
        sizes = iter(xs)
        shape = [next(sizes) if type_.is_dynamic_dim(d) else type_.get_dim_size(d) for d in range(type_.rank)]
        return [empty(shape, name)]

    return make


def _fill(op: ir.Operation) -> Function:
    name = element(op.results[0].type)
    return lambda xs: [rounded(np.full_like(xs[1], xs[0]), name)]


def _generic(op: ir.Operation) -> Function:
    """All elements along parallel loops at once, those along reductions one after another."""
    maps = [ir.AffineMapAttr(map_).value for map_ in ir.ArrayAttr(op.attributes["indexing_maps"])]
    kinds = [str(kind) for kind in ir.ArrayAttr(op.attributes["iterator_types"])]
    reductions = [d for d, kind in enumerate(kinds) if "parallel" not in kind]
    count, outputs, block = len(op.operands), len(op.results), op.regions[0].blocks[0]
    outside = [hash(value) for value in captures(op)]
    arguments = [hash(argument) for argument in block.arguments]
    *inner, last = operations_of(block)
    steps = [(_index(step) if step.name == "linalg.index" else compile_op(step), step) for step in inner]
    steps = [(run, [hash(v) for v in step.operands], [hash(v) for v in step.results]) for run, step in steps]
    yields = [hash(value) for value in last.operands]
    names = [element(result.type) for result in op.results]
    moves = [any(loops_of(e) & set(reductions) for e in map_.results) for map_ in maps]

    def compute(all_: Sequence[Any]) -> Sequence[Any]:
        xs, around = all_[:count], dict(zip(outside, all_[count:], strict=True))
        extents = _extents(maps, xs, len(kinds))
        results = [np.array(x) for x in xs[len(xs) - outputs :]]
        tensors = [np.asarray(tensor) for tensor in (*xs[: len(xs) - outputs], *results)]
        loops = list(np.ogrid[tuple(slice(n) for n in extents)]) if extents else []
        shape = tuple(1 if d in reductions else n for d, n in enumerate(extents))
        places: list[Any] = [None] * len(maps)
        for at in np.ndindex(*(extents[d] for d in reductions)):
            for d, position in zip(reductions, at, strict=True):
                loops[d] = np.full([1] * len(extents), position)
            for i, map_ in enumerate(maps):
                if moves[i] or places[i] is None:
                    places[i] = tuple(_expression(e, loops, len(loops)) for e in map_.results)
            values = dict(around)
            for argument, tensor, place in zip(arguments, tensors, places, strict=True):
                values[argument] = tensor[place] if place else tensor
            for run, operands, made in steps:
                found = run([values[o] for o in operands] if operands else loops)
                values.update(zip(made, found, strict=True))
            for result, place, value, name in zip(results, places[len(xs) - outputs :], yields, names, strict=True):
                found = rounded(np.broadcast_to(values[value], shape), name)
                result[place] = found if any(map(np.ndim, place)) else found.reshape(())
        return results

    return compute


def _scan(op: ir.Operation) -> Function:
    """Running results along a dimension, and those of all elements."""
    along, name = attr_int(op, "dimension"), element(op.results[0].type)
    block = op.regions[0].blocks[0]
    *inner, last = operations_of(block)
    steps = [(compile_op(step), [hash(v) for v in step.operands], [hash(v) for v in step.results]) for step in inner]
    arguments, (found,) = [hash(argument) for argument in block.arguments], [hash(value) for value in last.operands]

    order = slice(None, None, -1 if BACKWARDS in op.attributes else 1)
    neutral = neutral_of(op) if BEFORE in op.attributes else None

    def compute(xs: Sequence[Any]) -> Sequence[Any]:
        lines = np.moveaxis(np.asarray(xs[0]), along, 0)[order]
        results = [lines[0]]
        for line in lines[1:]:
            values = dict(zip(arguments, (line, results[-1]), strict=True))
            for run, operands, made in steps:
                values.update(zip(made, run([values[o] for o in operands]), strict=True))
            results.append(rounded(values[found], name))
        whole = results[-1]
        if neutral is not None:
            results = [np.full_like(whole, neutral), *results[:-1]]
        return [np.moveaxis(np.stack(results)[order], 0, along), whole]

    return compute


def _index(op: ir.Operation) -> Function:
    dimension = attr_int(op, "dim")
    return lambda loops: [loops[dimension]]


def _bitcast(op: ir.Operation) -> Function:
    """Between f32 and integers of 32 bits."""
    given, made = element(op.operands[0].type), element(op.results[0].type)
    if {given, made} != {"f32", "i32"}:
        raise UnsupportedError(f"{location(op.location)}: bits of {given} as {made} are not known to the interpreter")
    own, other = (np.float32, np.int32) if given == "f32" else (np.int32, np.float32)
    return lambda xs: [rounded(np.asarray(xs[0]).astype(own).view(other), made)]


def _extents(maps: Sequence[ir.AffineMap], tensors: Sequence[Any], count: int) -> list[int]:
    found: dict[int, int] = {}
    for map_, tensor in zip(maps, tensors, strict=True):
        for result, size in zip(map_.results, np.shape(tensor), strict=True):
            if isinstance(result, ir.AffineDimExpr):
                found[result.position] = size
    return [found[d] for d in range(count)]


def _matrix(op: ir.Operation, images: np.ndarray) -> np.ndarray:
    seen, pitches = op.opview.windows, op.opview.pitches
    if seen.is_open:
        seen = seen.of_sizes(images.shape[1:-1])
        pitches = (*(math.prod(images.shape[d:]) for d in range(1, images.ndim)), 1)
    found = windows.matrix(images, seen, pitches)
    return found if op.opview.in_batches else found.reshape(-1, *found.shape[2:])


_SPECIAL: dict[str, Callable[[ir.Operation], Function]] = {
    "arith.constant": _constant,
    "arith.bitcast": _bitcast,
    "arith.cmpf": _compare_floats,
    "arith.cmpi": _compare_integers,
    "arith.select": _select,
    "affine.apply": _affine,
    "affine.min": _affine,
    "affine.max": _affine,
    "affine.delinearize_index": _delinearize,
    "kitsune.windows": lambda op: lambda xs: [_matrix(op, xs[0])],
    "kitsune.dots": lambda op: lambda xs: [rounded(xs[0].astype(np.float64) @ xs[1].T, "f32")],
    "kitsune.stash": lambda op: lambda xs: [xs[0]],
    "kitsune.part": tensors.part,
    "kitsune.spread": lambda op: lambda xs: [xs[0]],
    "kitsune.select": lambda _: lambda xs: [xs[1 + xs[0]]],
    "linalg.fill": _fill,
    "linalg.generic": _generic,
    "tensor.collapse_shape": tensors.reshape,
    "tm_tensor.scan": _scan,
    "tensor.concat": tensors.concat,
    "tensor.expand_shape": tensors.reshape,
    "tensor.extract_slice": tensors.slice_,
    "tensor.dim": lambda _: lambda xs: [np.shape(xs[0])[xs[1]]],
    "tensor.empty": _empty,
    "tensor.extract": tensors.extract,
}
