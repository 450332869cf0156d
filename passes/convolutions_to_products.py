"""convolutions-to-products: convolutions become matrix products, whose one operand may be a matrix of windows.

    %p = tensor.pad %x low[0, 0, 1, 1] high[0, 0, 1, 1] ... : tensor<16x64x56x56xbf16> to tensor<16x64x58x58xbf16>
    %c = linalg.conv_2d_nchw_fchw ins(%p, %f : ..., tensor<64x64x3x3xbf16>) outs(%zero : tensor<16x64x56x56xf32>)
    %y = linalg.generic {...} ins(%c, %scale) ...     // what follows elementwise
  =>
    %t = linalg.transpose ins(%x : tensor<16x64x3136xbf16>) ... permutation = [0, 2, 1]       // channels last
    %w = "kitsune.windows"(%t) {filter = [3, 3], low = [1, 1], places = [56, 56], ...}        // 16x3136x576, nowhere
    %c = linalg.generic {...} ins(%g, %w : tensor<64x576xbf16>, tensor<16x3136x576xbf16>) ... // 16 x 64 x 3136
    %y = linalg.generic {...} ins(%c, %scale) ...

A convolution of single elements, each in one place, is a product of the images as they are. Results have their
channels as the second dimension, as torch has them, unless another convolution reads them: then these are the last,
and what else reads them takes a transposed copy. Filters are laid out as rows of the same columns; those of weights
once, when the program is loaded (runtime/weight_steps.py). Where an image has so few channels that chunks of 64
columns are mostly zeros, a row of the filter is one element of all its channels: the images get their zeros then, and
overlap (`convolutions.Folded`). What has no such form (sizes open besides the batch's) is left, with a remark.

Filters of groups of channels are laid out with zeros for the channels of other groups: tensor cores multiply those
faster than threads multiply what is none. Where groups make up whole chunks of 64 columns, such blocks of them are a
batch of products, so that no other zeros are multiplied; results lie with all channels as the last dimension then.
An infinite number reaches the results of all groups of a block, as NaN. A channel a group is no product, nor is a
filter of few numbers with few channels: threads read those windows where they lie (`window_reads.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import ClassVar

from kitsune_mlir import rows
from kitsune_mlir.dialects.windows import WindowsOp
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.generics import generic, multiply_add
from kitsune_mlir.mlir import arith, i64, ir, linalg, remark, tensor, walk
from kitsune_mlir.operations import element_type, operations_of, users_of
from kitsune_mlir.planning import target as targets
from kitsune_mlir.planning.product_engines import CHUNK

from .base import ModulePass
from .convolution_operands import (
    behind,
    channels_last,
    filters_last,
    last_of,
    last_order,
    padded,
    transposed,
    turned_last,
    turns_last,
    windows_of,
)
from .convolution_space import Read, Space
from .convolutions import GROUP, NAMES, Convolution, join_groups, match, spread
from .grouped_volumes import join_volumes
from .open_windows import read_open_windows
from .product_follows import follows_of_one_result
from .reshapes import reshaped
from .schedule_products import LEAST
from .self_padding import padded_by_itself, padded_last
from .summed_windows import read_summed_windows
from .tap_sums import sum_taps

_LEFT_OVER = ("tensor.", "linalg.", "kitsune.windows", "arith.")


@dataclass(frozen=True)
class ConvolutionsToProducts(ModulePass):
    """target: what the products are for, a name or the path of a description."""

    name: ClassVar[str] = "convolutions-to-products"
    target: str = "sm_90a"

    def run(self, module: ir.Module) -> None:
        target = targets.load(self.target)
        if not target.has_tensor_cores:
            return
        matched = partial(_matched, target)
        for function in walk(module, "func.func"):
            join_volumes(function, lambda op: matched(op) is not None)
            for block in function.regions[0].blocks:
                if found := [op for op in walk(function, *NAMES) if op.block == block]:
                    made = [matched(sum_taps(of, target) or of.by) for of in map(matched, found) if of is not None]
                    _Rewriter(list(filter(None, made))).run()
                    _sweep(block)
            if target.has_warpgroups:
                read_open_windows(function)
                read_summed_windows(function)
                for block in function.regions[0].blocks:
                    _sweep(block)


def _matched(target: targets.Target, op: ir.Operation) -> Convolution | None:
    join_groups(op)
    try:
        found = match(op, LEAST, target.has_warpgroups)
        if found is not None and not found.is_pointwise:
            found.takes_folded(False)
        return found
    except UnsupportedError as error:
        remark(op, f"is no product on tensor cores: {error}")
        return None


def _sweep(block: ir.Block) -> None:
    """Erases what nothing reads any more."""
    for op in reversed(operations_of(block)):
        if op.name.startswith(_LEFT_OVER) and len(op.results) and not any(list(result.uses) for result in op.results):
            op.erase()


@dataclass
class _Rewriter:
    """Rewrites the convolutions of a block."""

    left: list[Convolution]
    last: dict[int, ir.Value] = field(default_factory=dict)  # by images, the same with their channels last
    around: dict[tuple, ir.Value] = field(default_factory=dict)  # the same with zeros around them
    open_size: ir.Value | None = None  # the images of the convolution that is rewritten, where that is open

    def run(self) -> None:
        while self.left:
            convolution = self.left.pop(0)
            with convolution.op.location:
                replaced = self._rewrite(convolution)
            for op in reversed(replaced):  # else other convolutions would be read by what nobody reads
                op.erase()

    def _rewrite(self, of: Convolution) -> list[ir.Operation]:
        """Puts a product in the place of a convolution and of what follows it; these."""
        follows = self._follows(of)
        end = follows[-1] if follows else of.op
        result = end.results[0]
        turned = turned_last(result, of)
        lasts = [user for user in users_of(result) if turns_last(user)]
        read_again = any(other.image == result for other in self.left)
        same = of.count == 1 or of.outputs == 1  # either order of dimensions is the other
        is_last = read_again or turned is not None or bool(lasts) or same
        space = self._space(of, follows, is_last, turned is None)
        if same and space.in_batches and not of.is_pointwise:  # a vector for each image: all of them are one matrix
            follows, end, result = [], of.op, of.op.results[0]
            space = self._space(of, follows, True, True)
        with ir.InsertionPoint(end):
            self.open_size = rows.size_of(of.image, 0) if of.batch is None else None
            value = self._product(of, space)
            if of.bias is not None:
                bias = self._in_blocks(Read(["o"], lambda: of.bias), of, space)
                operands = [(value, space.roles), (bias.value(), bias.roles)]
                value = self._generic(space, operands, value.type.element_type, _add)
            made = {of.op.results[0]: value}
            for op in follows:
                value = made[op.results[0]] = self._followed(op, made, of, space)
            whole = [of.batch, of.outputs, *of.places]
            if of.blocks > 1:
                value = transposed(value, [1, 0, 2])
            elif space.roles == ["b", "o", "p"] or same:
                result.replace_all_uses_with(reshaped(value, whole))
                return [of.op, *follows]
            rowed = reshaped(value, [of.batch, of.count, of.outputs])
            images = reshaped(transposed(rowed, [0, 2, 1]), whole)
            self.last[hash(images)] = reshaped(value, [of.batch, *of.places, of.outputs])
            if turned is not None:
                turned.results[0].replace_all_uses_with(rowed)
            for op in lasts:
                op.results[0].replace_all_uses_with(self.last[hash(images)])
            result.replace_all_uses_with(images)
        return [of.op, *follows]

    def _last(self, images: ir.Value) -> ir.Value | None:
        """The same images with their channels last, where there are such. What a transpose is of is asked for anew: a
        convolution that has been rewritten since may have made it."""
        return self.last.get(hash(images)) or last_of(images)

    def _space(self, of: Convolution, follows: Sequence[ir.Operation], last: bool, may_join: bool) -> Space:
        """The dimensions of the product. Images whose channels are last are one matrix where everything that is read
        allows it."""
        if of.blocks > 1:
            return self._blocks(of)
        batch: dict[str, int | None] = {"b": of.batch}
        if not last:
            return Space(batch | {"o": of.outputs, "p": of.count})
        if may_join and of.batch is not None and not (of.is_pointwise and self._last(of.image) is None):
            joined = Space({"p": of.batch * of.count, "o": of.outputs})
            made = dict.fromkeys(op.results[0] for op in (of.op, *follows))
            if all(self._reads(op, made, of, joined) is not None for op in follows):
                return joined
        return Space(batch | {"p": of.count, "o": of.outputs})

    @staticmethod
    def _blocks(of: Convolution) -> Space:
        """Those of a product for each block of groups."""
        assert of.batch is not None
        return Space({"g": of.blocks, "p": of.batch * of.count, "o": of.outputs // of.blocks})

    # ---- what follows

    def _follows(self, of: Convolution) -> list[ir.Operation]:
        """The elementwise operators behind a convolution that its product's kernel can read the inputs of."""
        one = Space({"b": of.batch, "o": of.outputs, "p": of.count})
        space = self._blocks(of) if of.blocks > 1 else one
        return follows_of_one_result(
            of.op, lambda op, read: self._reads(op, dict.fromkeys(read), of, space) is not None
        )

    def _reads(
        self, op: ir.Operation, made: Mapping[ir.Value, ir.Value | None], of: Convolution, space: Space
    ) -> list[Read] | None:
        """How an elementwise operator's inputs are read, those that are `made` on the product's dimensions as they are
        there; None where one cannot be."""
        s = rows.Structured(op)
        found = [
            Read(list(space.roles), partial(made.get, value))
            if value in made
            else self._read(value, s.maps[i], of, space)
            for i, value in enumerate(s.given)
        ]
        if None in found:
            return None
        return [self._in_blocks(read, of, space) for read in found if read is not None]

    @staticmethod
    def _in_blocks(read: Read, of: Convolution, space: Space) -> Read:
        """The same where a product has blocks of output channels."""
        if "g" not in space.sizes or "o" not in read.roles or "g" in read.roles:
            return read
        at = read.roles.index("o")

        def value() -> ir.Value:
            found = read.value()
            sizes = list(ir.RankedTensorType(found.type).shape)
            return reshaped(found, [*sizes[:at], of.blocks, of.outputs // of.blocks, *sizes[at + 1 :]])

        return Read([*read.roles[:at], "g", *read.roles[at:]], value)

    def _read(self, value: ir.Value, map_: ir.AffineMap, of: Convolution, space: Space) -> Read | None:
        if not rows.is_tensor(value):
            return Read([], lambda: value)
        at = [e.position if isinstance(e, ir.AffineDimExpr) else None for e in map_.results]
        if not spread(at, of.rank) or len(at) != ir.RankedTensorType(value.type).rank:
            return None
        named: list[str | None] = [None if d is None else "bo"[d] for d in at if d is None or d < 2]
        if len(named) == len(at):
            return Read(named, lambda: value) if space.in_batches or "b" not in named else None
        images = self._last(value)
        if space.roles[-1] == "o" and images is not None and at == list(range(2 + of.rank)):
            known = {role: n for role, n in space.sizes.items() if role != "g"}
            return Read(list(known), lambda: reshaped(images, list((known | {"o": of.outputs}).values())))
        kind = ir.RankedTensorType(value.type)
        outer = [None if kind.is_dynamic_dim(d) else kind.shape[d] for d in range(len(named))]
        if not space.in_batches:
            if of.batch != 1 or "b" in named[1:]:
                return None
            if named and named[0] != "o":  # the one image
                outer, named = outer[1:], named[1:]
        return Read([*named, "p"], lambda: reshaped(value, [*outer, of.count]))

    def _followed(self, op: ir.Operation, made: Mapping[ir.Value, ir.Value], of: Convolution, space: Space) -> ir.Value:
        """An elementwise operator on a product's dimensions, of what is `made` there."""
        s = rows.Structured(op)
        reads = self._reads(op, made, of, space)
        assert reads is not None
        operands = [(read.value(), read.roles) for read in reads]

        element = element_type(op.results[0])
        return self._generic(space, operands, element, s.body)

    # ---- the product

    def _product(self, of: Convolution, space: Space) -> ir.Value:
        images, roles = self._images(of, space)
        filters = self._filters(of)
        operands = [(images, roles), (filters, ["g", "o", "k"] if of.blocks > 1 else ["o", "k"])]
        if space.roles.index("o") < space.roles.index("p"):
            operands.reverse()
        return self._generic(space, operands, ir.F32Type.get(), multiply_add, ["k"])

    def _images(self, of: Convolution, space: Space) -> tuple[ir.Value, list[str]]:
        """The images' side of the product, and what its dimensions are."""
        own = [role for role in ("b", "p", "g") if role in space.sizes]
        sizes = [space.sizes[role] for role in own]
        images = of.image
        last = self._channels_last(of) if of.blocks > 1 else self._last(of.image)
        if of.is_pointwise and last is None:
            return reshaped(images, [of.batch, of.channels, of.count]), ["b", "k", "p"]
        if of.is_pointwise:
            return reshaped(last, [*sizes, of.channels // of.blocks]), [*own, "k"]
        if of.is_written:
            return reshaped(windows_of(self._turned_around(images, 0), of), [*sizes, prod(of.kernel) * of.channels]), [
                *own,
                "k",
            ]
        if of.takes_folded(last is not None):
            images, windows = self._with_zeros(of), of.folded.windows
        else:
            images, windows = self._channels_last(of), of.plain
        element = element_type(images)
        shape = [rows.DYNAMIC if size is None else size for size in sizes]
        made = WindowsOp(images, [], ir.RankedTensorType.get([*shape, windows.columns], element))
        for name in ("filter", "strides", "low", "dilations", "places"):
            made.attributes[name] = ir.DenseI64ArrayAttr.get(getattr(windows, name))
        if windows is not of.plain and of.takes_folded(last is not None):
            made.attributes["sizes"] = ir.DenseI64ArrayAttr.get(of.folded.sizes)
            made.attributes["pitches"] = ir.DenseI64ArrayAttr.get(of.folded.pitches)
        for name, number, usual in (("blocks", windows.blocks, 1), ("chunk", windows.chunk, CHUNK)):
            if number != usual:
                made.attributes[name] = i64(number)
        return made.results[0], [*own, "k"]

    def _channels_last(self, of: Convolution) -> ir.Value:
        """The images with their channels last, of a number that tensor copies take."""
        extra = -of.channels % GROUP
        return self._turned_around(of.image, extra)

    def _turned_around(self, images: ir.Value, extra: int) -> ir.Value:
        """Images with their channels last, and so many more channels, which are zero. What pads a tensor by itself does
        so once its channels are last: its parts are whole lines then, of which most lie where they belong at once."""
        known = self.last if not extra else self.around
        key = (hash(images), extra) if extra else hash(images)
        if key not in known and (last := self._last(images)) is not None:
            with behind(last):
                none = [0] * len(rows.shape_of(last))
                return padded(last, none, [*none[1:], extra])
        if key not in known:
            padding = padded_by_itself(images)
            inner = None if padding is None or padding.dim < 2 else self._turned_around(padding.inner, extra)
            with behind(images):
                if inner is not None:
                    known[key] = padded_last(padding, inner)
                    return known[key]
                known[key] = channels_last(images, extra)
        return known[key]

    def _with_zeros(self, of: Convolution) -> ir.Value:
        """The images with their channels last and zeros around them, as folded windows want them."""
        folded = of.folded
        key = (hash(of.image), folded.high, of.low, folded.channels)
        if key not in self.around:
            more, last = folded.channels - of.channels, self._last(of.image)
            with behind(of.image if last is None else last):
                if last is not None:
                    self.around[key] = padded(last, [0, *of.low, 0], [0, *folded.high, more])
                else:
                    images = padded(of.image, [0, 0, *of.low], [0, more, *folded.high])
                    self.around[key] = transposed(images, last_order(2 + of.rank))
        return self.around[key]

    def _filters(self, of: Convolution) -> ir.Value:
        """The filters as rows of the columns that the product has."""
        channels = of.channels // of.blocks
        last = filters_last(of)
        if of.is_pointwise or of.is_written:
            columns = prod(of.kernel) * channels
        else:
            folded = of.takes_folded(self._last(of.image) is not None) and of.folded
            windows = folded.windows if folded else of.plain
            if folded:
                none = [0] * (1 + of.rank)
                last = padded(last, [*none, 0], [*none, folded.channels - channels])
                last = reshaped(last, [of.outputs, *of.kernel[:-1], of.kernel[-1] * folded.channels])
                channels = windows.channels
            none = [0] * (ir.RankedTensorType(last.type).rank - 1)
            last = padded(last, [*none, 0], [*none, windows.depth - channels])
            columns = windows.columns
        whole = [of.outputs] if of.blocks == 1 else [of.blocks, of.outputs // of.blocks]
        return reshaped(last, [*whole, columns])

    def _generic(
        self,
        space: Space,
        operands: Sequence[tuple[ir.Value, Sequence[str | None]]],
        element: ir.Type,
        body: ir.Block | Callable[..., ir.Value],
        summed: Sequence[str] = (),
    ) -> ir.Value:
        """A generic on a product's dimensions, whose results begin at zero where it sums."""
        sizes = [self.open_size if size is None else size for size in space.sizes.values()]
        start = tensor.empty(sizes, element)
        if summed:
            zero = arith.constant(element, 0.0)
            start = linalg.fill(zero, outs=[start])
        maps = [*(space.map(roles, summed) for _, roles in operands), space.map(space.roles, summed)]
        kinds = ["parallel"] * len(sizes) + ["reduction"] * len(summed)
        return generic([value for value, _ in operands], [start], maps, kinds, body).results[0]


def _add(a: ir.Value, b: ir.Value, _: ir.Value) -> ir.Value:
    return arith.addf(a, b)
