"""join-products: products of one operand with several weights become one product with the weights side by side.

    %q = linalg.matmul ins(%x, %w0 : tensor<256x768xbf16>, tensor<768x768xbf16>) ...
    %a = linalg.generic {...} ins(%b0, %q)            // a bias, to bf16
    %k = linalg.matmul ins(%x, %w1 : tensor<256x768xbf16>, tensor<768x768xbf16>) ...
    %c = linalg.generic {...} ins(%b1, %k)
  =>
    %w = tensor.concat dim(0) %w0, %w1                %b = tensor.concat dim(0) %b0, %b1
    %p = linalg.matmul ins(%x, %w : tensor<256x768xbf16>, tensor<1536x768xbf16>) ...
    %d = linalg.generic {...} ins(%b, %p)
    %a = tensor.extract_slice %d[0, 0] [256, 768]     %c = tensor.extract_slice %d[0, 768] [256, 768]

So are the projections of an attention to queries, keys and values: one kernel reads %x once and has tiles for all
multiprocessors, where three had too few. Weights are put side by side once, when the program is loaded, and what reads
a part reads it where it lies. What follows a product elementwise goes with it: all have to do the same, with weights of
their own; a bias that some do without is zero there. It is done where the one kernel is predicted to be faster. Left
alone are products whose results meet (gated-products), and layers that a pipeline was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from kitsune_mlir import rows
from kitsune_mlir.contraction import match_product
from kitsune_mlir.dialects.windows import in_memory
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.generics import clone_operations, cloned_on, generic, map_of, zero_tensor
from kitsune_mlir.mlir import arith, ir, linalg, tensor, walk
from kitsune_mlir.operations import element_type, made_by, operations_of
from kitsune_mlir.planning import target as targets
from kitsune_mlir.planning.target import Target
from kitsune_mlir.planning.thin_products import takes_its_place
from kitsune_mlir.traffic import element_bytes
from kitsune_mlir.weights import is_weight

from .base import ModulePass
from .operand_layout import GRANULE
from .priced_product import PricedProduct
from .product_follows import Follows, follows_of, joined_follows
from .recurrent_steps import bodies_are_alike, is_same
from .single_products import LEAST, NAME
from .strided_views import is_read_in_place
from .thin_products import predicted_us


@dataclass(frozen=True)
class JoinProducts(ModulePass):
    """target: what the kernels are for, a name or the path of a description."""

    name: ClassVar[str] = "join-products"
    target: str = "sm_90a"

    def run(self, module: ir.Module) -> None:
        target = targets.load(self.target)
        if not target.has_tensor_cores:
            return
        groups: dict[ir.Value, list[_Layer]] = {}
        for op in walk(module, "linalg.matmul"):
            if (layer := _Layer.of(op, target)) is not None:
                groups.setdefault(layer.product.found.left, []).append(layer)
        for layers in groups.values():
            apart = [layer for layer in layers if not any(map(layer.meets, layers))]
            for alike in _alike(apart):
                if len(alike) > 1:
                    _join(alike[0], [layer for layer in apart if any(layer is each for each in alike)])


@dataclass(frozen=True)
class _Layer:
    """A product with a weight, and all that follows it elementwise, each the only reader of the one before."""

    product: PricedProduct
    chain: tuple[ir.Operation, ...]
    us: float  # what its kernel takes

    @staticmethod
    def of(op: ir.Operation, target: Target) -> _Layer | None:
        """None where it can't be joined with others."""
        found = match_product(op)
        if found is None or op.parent.name != "func.func" or NAME in op.attributes:
            return None
        if found.right != op.operands[1] or not is_weight(found.right) or is_weight(found.left):
            return None
        if found.left_roles != ("m", "k") or found.right_roles != ("n", "k") or in_memory(found.left) != found.left:
            return None
        product, follows = PricedProduct(op=op, found=found, target=target), follows_of(op)
        product.read_sizes()
        if prod(product.known) < LEAST or None in (product.sizes["n"], product.sizes["k"]):
            return None
        value = op.results[0]
        for each in follows.ops:
            if each.block != op.block or list(value.uses)[1:] or not _has_weights(each, value):
                return None
            value = each.results[0]
        row_bytes = product.known[2] * element_bytes(element_type(value))
        if row_bytes % GRANULE or not is_read_in_place(value):
            return None
        us = _us(product, follows)
        return None if us is None else _Layer(product, tuple(follows.ops), us)

    @property
    def columns(self) -> int:
        return self.product.known[2]

    @property
    def result(self) -> ir.Value:
        return self.chain[-1].results[0] if self.chain else self.product.op.results[0]

    def meets(self, other: _Layer) -> bool:
        """Whether an elementwise operator takes elements of both."""
        ops = [self.product.op, other.product.op]
        return self != other and ops[0].results[0].type == ops[1].results[0].type and joined_follows(ops) is not None


def _has_weights(op: ir.Operation, value: ir.Value) -> bool:
    """Whether all else that an elementwise operator reads is a number, or a weight for each column."""
    s = rows.Structured(op)
    by_column = ir.AffineMap.get(2, 0, [ir.AffineDimExpr.get(1)])
    inputs = zip(s.maps[: s.inputs], op.operands)
    others = [(map_, x) for map_, x in inputs if x != value and rows.is_tensor(x)]
    return all(map_ == by_column and is_weight(x) for map_, x in others)


def _us(product: PricedProduct, follows: Follows) -> float | None:
    """What its kernel takes, or what it takes as sums over rows; None where it has no kernel."""
    try:
        product.check()
    except UnsupportedError:
        return None
    tiles, thin = product.tiles(follows), predicted_us(product.found, product.sizes, product.target)
    if tiles is None:
        return thin
    return thin if takes_its_place(thin, tiles.microseconds) else tiles.microseconds


def _alike(layers: Sequence[_Layer]) -> list[list[_Layer]]:
    """Layers in groups of which the same follows all. Those with most behind them come first: others go with them that
    do without a bias."""
    found: list[list[_Layer]] = []
    for layer in sorted(layers, key=_inputs, reverse=True):
        fitting = [group for group in found if _fits(layer, group[0])]
        if fitting:
            fitting[0].append(layer)
        else:
            found.append([layer])
    return found


def _inputs(layer: _Layer) -> int:
    return sum(rows.Structured(op).inputs for op in layer.chain)


def _fits(layer: _Layer, first: _Layer) -> bool:
    """Whether a layer may be columns of one with another, which has all that follows both."""
    own, other = layer.product.op, first.product.op
    same = layer.product.pieces == first.product.pieces and own.block == other.block
    same = same and own.results[0].type.element_type == other.results[0].type.element_type
    return same and _beside(layer.chain, first.chain) is not None


def _beside(own: Sequence[ir.Operation], wanted: Sequence[ir.Operation]) -> list[ir.Operation | None] | None:
    """What follows a layer, by what follows another: None in the place of a bias, or of a factor at the end, that it
    does without. None where something else follows it."""
    if len(own) == len(wanted) and all(map(_are_alike, own, wanted)):
        return list(own)
    if not wanted:
        return None
    if _factor(wanted[-1]) is not None:
        before = _beside(own, wanted[:-1])
        return None if before is None else [*before, None]
    if not _adds_weight(wanted[0]):
        return None
    casts = "arith.truncf" in _names(wanted[0])
    if casts and not (own and _names(own[0]) == ["arith.truncf"] and _element(own[0]) == _element(wanted[0])):
        return None
    behind = own[1:] if casts else own
    alike = len(behind) == len(wanted) - 1 and all(map(_are_alike, behind, wanted[1:]))
    return [None, *behind] if alike else None


def _are_alike(a: ir.Operation, b: ir.Operation) -> bool:
    """Whether two elementwise operators of rows and columns do the same, with weights of their own."""
    own, other = rows.Structured(a), rows.Structured(b)
    if own.maps != other.maps or _element(a) != _element(b) or len(a.operands) != len(b.operands):
        return False
    for x, y in zip(list(a.operands)[: own.inputs], list(b.operands)[: own.inputs], strict=True):
        kinds = [element_type(each) for each in (x, y) if rows.is_tensor(each)]
        if len(kinds) == 1 or kinds and kinds[0] != kinds[1] or not kinds and not is_same(x, y):
            return False
    return bodies_are_alike(own.body, other.body)


def _element(op: ir.Operation) -> ir.Type:
    return element_type(op.results[0])


def _names(op: ir.Operation) -> list[str]:
    """What a body does to its arguments, but for widening them."""
    names = [inner.operation.name for inner in list(rows.Structured(op).body.operations)[:-1]]
    return [name for name in names if name != "arith.extf"]


def _adds_weight(op: ir.Operation) -> bool:
    """Whether an operator adds a number of each column, and rounds, if need be."""
    s = rows.Structured(op)
    return (
        s.inputs == 2
        and {len(map_.results) for map_ in s.maps[:2]} == {1, 2}
        and (_names(op) in (["arith.addf"], ["arith.addf", "arith.truncf"]))
    )


def _factor(op: ir.Operation) -> ir.Value | None:
    """The number by which an operator multiplies or divides each element, in f32, if that is all it does but for
    rounding to the type that elements had."""
    s, names = rows.Structured(op), _names(op)
    if s.inputs != 1 or names[:1] not in (["arith.mulf"], ["arith.divf"]) or names[1:] not in ([], ["arith.truncf"]):
        return None
    if _element(op) != element_type(op.operands[0]):
        return None
    scales = operations_of(s.body, names[0])[0]
    numbers = list(scales.operands)[names[0] == "arith.divf" :]
    found = [x for x in numbers if made_by(x, "arith.constant") is not None]
    return found[0] if found and isinstance(found[0].type, ir.F32Type) else None


def _join(longest: _Layer, layers: Sequence[_Layer]) -> None:
    """One product in the place of several in the order of the program, where it is predicted to be faster; all that
    follows any follows the `longest`."""
    first, at = layers[0].product, layers[0].product.op
    for layer in layers:
        for value in (layer.product.found.right, *(x for op in layer.chain for x in _beside_elements(op))):
            _raise(value, at)
    whole = ir.RankedTensorType(at.results[0].type)
    with at.location, ir.InsertionPoint(at):
        count = rows.size_of(first.found.left, 0) if whole.is_dynamic_dim(0) else whole.shape[0]
        made = [_product(layers, count)]
        for number in range(len(longest.chain)):
            made.append(_elementwise(longest, layers, number, made[-1].results[0], count))
        found = match_product(made[0])
        assert found is not None
        joined = PricedProduct(op=made[0], found=found, target=first.target)
        joined.read_sizes()
        us = _us(joined, Follows(made[1:], made[-1:] if longest.chain else []))
        if us is None or us >= sum(layer.us for layer in layers):
            for op in reversed(made):
                op.erase()
            return
        at_column, value = 0, made[-1].results[0]
        for layer in layers:
            layer.result.replace_all_uses_with(_columns(value, at_column, layer.columns, count))
            at_column += layer.columns
    for layer in layers:
        for op in (*reversed(layer.chain), layer.product.op):
            op.erase()


def _beside_elements(op: ir.Operation) -> list[ir.Value]:
    """What an elementwise operator of rows and columns reads besides these: weights and numbers."""
    s = rows.Structured(op)
    operands = [x for map_, x in zip(s.maps[: s.inputs], op.operands) if len(map_.results) < 2]
    return [*operands, *rows.used_values(op)[len(op.operands) :]]


def _raise(value: ir.Value, at: ir.Operation) -> None:
    """Has a weight computed in front of an operation."""
    op = rows.producer(value)
    if op is not None and op.block == at.block and at.is_before_in_block(op):
        for operand in rows.used_values(op):
            _raise(operand, at)
        op.move_before(at)


def _product(layers: Sequence[_Layer], count: int | ir.Value) -> ir.Operation:
    """The product with all weights, of so many rows."""
    op, columns = layers[0].product.op, sum(layer.columns for layer in layers)
    whole = ir.RankedTensorType(op.results[0].type)
    start = zero_tensor([count, columns], whole.element_type)
    right = _side_by_side([layer.product.found.right for layer in layers])
    return cloned_on(op, [op.operands[0], right, start])


def _side_by_side(weights: Sequence[ir.Value]) -> ir.Value:
    kinds = [ir.RankedTensorType(weight.type) for weight in weights]
    sizes = [sum(kind.shape[0] for kind in kinds), *list(kinds[0].shape)[1:]]
    return tensor.ConcatOp(ir.RankedTensorType.get(sizes, kinds[0].element_type), 0, weights).result


def _elementwise(
    longest: _Layer, layers: Sequence[_Layer], number: int, value: ir.Value, count: int | ir.Value
) -> ir.Operation:
    """What follows all products at a place, of so many rows and all their columns."""
    op, inputs = longest.chain[number], []
    s = rows.Structured(op)
    found = (_beside(layer.chain, longest.chain) for layer in layers)
    own = [each[number] for each in found if each is not None]
    for i, (map_, operand) in enumerate(zip(s.maps[: s.inputs], op.operands)):
        if not rows.is_tensor(operand):
            inputs.append(operand)
        elif len(map_.results) == 2:
            inputs.append(value)
        else:
            kind = element_type(operand)
            pairs = zip(layers, own, strict=True)
            inputs.append(_side_by_side([_number(0.0, kind, of) if x is None else x.operands[i] for of, x in pairs]))
    start = tensor.empty([count, sum(layer.columns for layer in layers)], _element(op))
    factor = _factor(op) if any(x is None for x in own) else None
    if factor is None:
        return generic(inputs, [start], s.maps, ["parallel"] * 2, s.body)
    kind = factor.type
    each = [_number(1.0 if x is None else factor, kind, of) for of, x in zip(layers, own, strict=True)]

    def body(x: ir.Value, own_factor: ir.Value, _: ir.Value) -> ir.Value:
        values = {s.body.arguments[0]: x, factor: own_factor}
        *inner, end = operations_of(s.body)
        clone_operations(inner, values)
        return values[end.operands[0]]

    maps = [s.maps[0], map_of(2, [1]), s.maps[1]]
    return generic([value, _side_by_side(each)], [start], maps, ["parallel"] * 2, body)


def _number(number: float | ir.Value, element: ir.Type, layer: _Layer) -> ir.Value:
    """A number for all columns of a layer."""
    if isinstance(number, float):
        number = arith.constant(element, number)
    return linalg.fill(number, outs=[tensor.empty([layer.columns], element)])


def _columns(value: ir.Value, first: int, columns: int, count: int | ir.Value) -> ir.Value:
    """So many columns of all rows."""
    kind, open_ = ir.RankedTensorType(value.type), [] if isinstance(count, int) else [count]
    type_ = ir.RankedTensorType.get([kind.shape[0], columns], kind.element_type)
    sizes = [rows.DYNAMIC if open_ else kind.shape[0], columns]
    return tensor.ExtractSliceOp(type_, value, [], open_, [], [0, first], sizes, [1, 1]).result
