"""Images whose channels lie last are carried on so, through elementwise operators, norms, pooling, convolutions of a
channel at a time, zeros around them, and sums over places:

    %t = linalg.transpose %x permutation = [0, 3, 1, 2]
    %p = linalg.pooling_nchw_sum ins(%t, %window : ...) outs(%zero) -> tensor<32x120x48x48xf32>
    %m = linalg.generic {..., "reduction", "reduction"} ins(%p) ...
  =>
    %p = linalg.pooling_nhwc_sum ins(%x, %window : ...) outs(%zero) -> tensor<32x48x48x120xf32>
    %m = linalg.generic {(n, y, x, c) -> (n, y, x, c)}, {(n, y, x, c) -> (n, c)} ins(%p) ...

What is carried are tensors whose second dimension are channels. They end where these are summed up or no places are
left, at dense convolutions, which take them so (convolutions_to_products.py), and at whatever else reads them, which
gets them turned back. Whether that is less than is spared is for the caller to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from math import prod

from kitsune_mlir import rows
from kitsune_mlir.generics import cloned, generic, sizes_of
from kitsune_mlir.mlir import ir, linalg, tensor
from kitsune_mlir.operations import made_by, padding_of, users_of
from kitsune_mlir.traffic import tensor_bytes

from .convolution_operands import last_of, last_order, padded, second_order, transposed, turns_last

_CHANNELS = 1  # the dimension of channels as the model has them
_WINDOWS = {
    "linalg.pooling_ncw_sum": linalg.pooling_nwc_sum,
    "linalg.pooling_ncw_max": linalg.pooling_nwc_max,
    "linalg.pooling_nchw_sum": linalg.pooling_nhwc_sum,
    "linalg.pooling_nchw_max": linalg.pooling_nhwc_max,
}
_OF_CHANNELS = {
    "linalg.depthwise_conv_1d_ncw_cw": linalg.depthwise_conv_1d_nwc_wc,
    "linalg.depthwise_conv_2d_nchw_chw": linalg.depthwise_conv_2d_nhwc_hwc,
    "linalg.depthwise_conv_3d_ncdhw_cdhw": linalg.depthwise_conv_3d_ndhwc_dhwc,
}
_FILLS = ("linalg.fill", "tensor.empty", "linalg.broadcast")


@dataclass
class Carried:
    """What may be computed of images with their channels last, from `start` on, which has them second. `stops` says of
    an operation that it takes images so, or that it is not to be asked about here."""

    start: ir.Value
    stops: Callable[[ir.Operation], bool]

    def __post_init__(self) -> None:
        maker = rows.producer(self.start)
        self.block = self.start.owner if maker is None else maker.block
        self.values: dict[ir.Value, None] = {self.start: None}
        self.members: dict[ir.Value, ir.Operation] = {}  # by their results
        self.reached: list[ir.Operation] = []  # that stop
        self._grow()
        if not all(map(self._agrees, self.members.values())):
            self.members, self.values, self.reached = {}, {self.start: None}, []

    # ---- what is carried

    def _grow(self) -> None:
        waiting = [self.start]
        while waiting:
            for op in _users(waiting.pop()):
                if op.block != self.block or op.name in ("tensor.dim", "linalg.transpose"):
                    continue
                if self.stops(op):
                    self.reached.append(op)
                elif len(op.results) == 1 and op.results[0] not in self.members and self._takes(op):
                    self.members[op.results[0]] = op
                    if self._is_carried(op):
                        self.values[op.results[0]] = None
                        waiting.append(op.results[0])

    def _takes(self, op: ir.Operation) -> bool:
        if op.name in _WINDOWS or op.name in _OF_CHANNELS:
            return op.operands[0] in self.values and _is_fill(op.operands[2])  # and not as a filter
        if op.name == "tensor.pad":
            return len(op.operands) == 1
        if op.name != "linalg.generic":
            return False
        s = rows.Structured(op)
        if s.index_ops() or s.gathers() or not _is_fill(op.operands[s.inputs]):
            return False
        return self._channels(s) is not None

    def _agrees(self, op: ir.Operation) -> bool:
        """Whether all that an operator reads of what is carried, by now, has its channels in one loop."""
        return op.name != "linalg.generic" or self._channels(rows.Structured(op)) is not None

    def _channels(self, s: rows.Structured) -> int | None:
        """The loop of the channels; None where operands do not agree."""
        found, whole = set(), False
        for value, map_ in zip(s.given, s.maps):
            if value in self.values:
                expr = list(map_.results)[_CHANNELS]
                if not isinstance(expr, ir.AffineConstantExpr):
                    found.add(rows.dim_of(expr))
                whole |= _loops(map_) == set(range(len(s.iterators)))
        return found.pop() if whole and len(found) == 1 else None

    def _is_carried(self, op: ir.Operation) -> bool:
        """Whether a result has its channels second, and places behind them."""
        shape = rows.shape_of(op.results[0])
        if op.name != "linalg.generic":
            return True
        if len(shape) < 3 or prod(shape[2:]) == 1:
            return False
        s = rows.Structured(op)
        expr = list(s.maps[-1].results)[_CHANNELS]
        return isinstance(expr, ir.AffineConstantExpr) or rows.dim_of(expr) == self._channels(s)

    # ---- what it costs

    @cached_property
    def turned(self) -> int:
        """Bytes of what is turned back for others, and of what is read besides with its channels second."""
        inside = [*self.members.values(), *self.reached]
        others = [v for v in self.values if any(_wants_second(op) and op not in inside for op in _users(v))]
        return sum(map(tensor_bytes, [*others, *self._read_besides()]))

    @property
    def sees_images(self) -> bool:
        """Whether something on it is done to images only."""
        windows = any(op.name in _WINDOWS or op.name in _OF_CHANNELS for op in self.members.values())
        return windows or bool(self.reached)

    @property
    def turns_back(self) -> bool:
        """Whether all that is computed on it is turned back, as what a model does between two transposes is."""
        made = [value for value in self.values if value != self.start]
        return bool(made) and not self.turned and any(any(map(turns_last, _users(value))) for value in made)

    def _read_besides(self) -> Iterable[ir.Value]:
        """Operands with channels and places that are not carried."""
        for op in self.members.values():
            s = rows.Structured(op) if op.name == "linalg.generic" else None
            for value, map_ in zip(s.given, s.maps) if s else ():
                loops = _loops(map_)
                if value in self.values or last_of(value) is not None:
                    continue
                if self._channels(s) in loops and len(loops) > 2:
                    yield value

    # ---- what is made

    def rewrite(self, start: ir.Value) -> None:
        """Puts the operators in the places of those that there are, `start` being the images with their channels last.
        Others read transposes of what is carried (last_of)."""
        made = {self.start: start}
        places = {op.operation: number for number, op in enumerate(self.block.operations)}
        members = sorted(self.members.values(), key=lambda op: places[op])
        for op in members:
            with op.location, ir.InsertionPoint(op):
                made[op.results[0]] = self._on(op, made)
        for value in self.values:
            last = made[value]
            for op in _users(value):
                if op.name == "tensor.dim" and value != self.start and op.block == self.block and _is_first(op):
                    op.operands[0] = last
                elif op.block == self.block and turns_last(op) and op.results[0] != last:
                    op.results[0].replace_all_uses_with(last)
                    op.erase()
            others = [use for use in value.uses if use.owner.operation not in members]
            if others and value != self.start:
                with value.owner.operation.location, ir.InsertionPoint(value.owner.operation):
                    back = transposed(last, second_order(ir.RankedTensorType(last.type).rank))
                for use in others:
                    use.owner.operation.operands[use.operand_number] = back
        for op in reversed(members):
            if op.results[0] not in self.values:
                op.results[0].replace_all_uses_with(made[op.results[0]])
            op.erase()

    def _on(self, op: ir.Operation, made: dict[ir.Value, ir.Value]) -> ir.Value:
        """An operator on images whose channels are last."""
        if op.name == "tensor.pad":
            return _padded(op, made[op.operands[0]])
        if op.name != "linalg.generic":
            return _windowed(op, made[op.operands[0]])
        s = rows.Structured(op)
        channels = self._channels(s)
        others = [loop for loop in range(len(s.iterators)) if loop != channels]
        inner = [loop for loop in others if s.iterators[loop] == "reduction"] if self._has_windows(s) else []
        order = [*(loop for loop in others if loop not in inner), channels, *inner]  # of loops, by number
        inputs, maps = [], []
        for value, map_ in zip(s.given, s.maps):
            last = made.get(value) if value in self.values else last_of(value)
            inputs.append(made.get(value, value) if last is None else last)
            maps.append(_renamed(map_, order, last is not None))
        carried = op.results[0] in self.values
        start = _filled(op.operands[s.inputs], carried)
        maps.append(_renamed(s.maps[s.inputs], order, carried))
        return generic(inputs, [start], maps, [s.iterators[loop] for loop in order], s.body).results[0]

    def _has_windows(self, s: rows.Structured) -> bool:
        """Whether an operator has more loops than its images dimensions."""
        return any(value in self.values and len(s.iterators) > len(rows.shape_of(value)) for value in s.op.operands)


def _users(value: ir.Value) -> list[ir.Operation]:
    return list(dict.fromkeys(users_of(value)))


def _loops(map_: ir.AffineMap) -> set[int]:
    return {loop for expr in map_.results for loop in rows.loops_of(expr)}


def _wants_second(op: ir.Operation) -> bool:
    """Whether an operation that is not carried reads channels as the second dimension."""
    return not turns_last(op) and not (op.name == "tensor.dim" and _is_first(op))


def _is_first(dim: ir.Operation) -> bool:
    """Whether a tensor.dim asks for the first size."""
    number = made_by(dim.operands[1], "arith.constant")
    return number is not None and number.attributes["value"].value == 0


def _is_fill(start: ir.Value) -> bool:
    op = made_by(start, *_FILLS)
    return op is not None


def _filled(start: ir.Value, carried: bool) -> ir.Value:
    """What an operator's results begin with, with their channels last if they are `carried`."""
    op, kind = rows.producer(start), ir.RankedTensorType(start.type)
    if not carried:
        return start
    order = last_order(kind.rank)
    empty = tensor.empty(sizes_of(start, order), kind.element_type)
    if op.name == "linalg.fill":
        return linalg.fill(op.operands[0], outs=[empty])
    if op.name == "linalg.broadcast":
        given = [d for d in range(kind.rank) if d not in list(ir.DenseI64ArrayAttr(op.attributes["dimensions"]))]
        source = op.operands[0]
        wanted = [d for d in order if d in given]
        if wanted != given:
            source = transposed(source, [given.index(d) for d in wanted])
        dimensions = [i for i, d in enumerate(order) if d not in given]
        return linalg.broadcast(source, outs=[empty], dimensions=dimensions)
    return empty


def _renamed(map_: ir.AffineMap, order: list[int], last: bool) -> ir.AffineMap:
    """A map in another order of loops, of a tensor whose channels are `last` now."""
    dims = [ir.AffineDimExpr.get(order.index(loop)) for loop in range(len(order))]
    found = [expr.compose(ir.AffineMap.get(len(order), 0, dims)) for expr in map_.results]
    if last:
        found = [found[d] for d in last_order(len(found))]
    return ir.AffineMap.get(len(order), 0, found)


def _padded(op: ir.Operation, last: ir.Value) -> ir.Value:
    body = op.regions[0].blocks[0]
    order = last_order(len(body.arguments))
    sizes = padding_of(op)
    low, high = ([each[d] for d in order] for each in sizes)
    return padded(last, low, high, lambda: cloned(body, [None] * len(order))[0])


def _windowed(op: ir.Operation, last: ir.Value) -> ir.Value:
    window, start = op.operands[1], _filled(op.operands[2], True)
    make = _WINDOWS.get(op.name)
    if make is None:
        make, rank = _OF_CHANNELS[op.name], ir.RankedTensorType(window.type).rank
        window = transposed(window, [*range(1, rank), 0])
    strides, dilations = (list(ir.DenseIntElementsAttr(op.attributes[name])) for name in ("strides", "dilations"))
    return make(last, window, outs=[start], strides=strides, dilations=dilations)
