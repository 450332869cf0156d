"""Convolutions, found in linalg, and the windows that they take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, gcd, prod

from kitsune_mlir import example_sizes, rows
from kitsune_mlir.contraction import is_zero_filled
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import ir, tensor
from kitsune_mlir.operations import made_by, padding_of, users_of
from kitsune_mlir.planning.kernel_cost import MOST_WINDOW
from kitsune_mlir.planning.patch_tiles import takes_patches
from kitsune_mlir.planning.product_engines import CHUNK
from kitsune_mlir.planning.product_tiles import PAIRS
from kitsune_mlir.planning.windows import Windows
from kitsune_mlir.precision import tf32_pieces

from .window_reads import MOST_PARTS

GROUPED = "linalg.conv_2d_ngchw_gfchw"
NAMES = ("linalg.conv_1d_ncw_fcw", "linalg.conv_2d_nchw_fchw", "linalg.conv_3d_ncdhw_fcdhw", GROUPED)
GROUP = 8  # channels whose bytes, as 16-bit numbers, tensor copies want multiples of
# Of groups, multiply-adds of 16-bit numbers for each one of the convolution. More take longer on tensor cores than a
# thread for each result does: the 96 of f32 in full precision in groups of 4 channels are predicted to take as long.
MOST_ZEROS = 100
# Multiply-adds of 16-bit numbers for each place, of all output channels, that threads do sooner than tensor cores,
# whose chunks would be mostly zeros; twice as many of f32.
FEW = 256
# Cycles of all multiprocessors together for a kernel that puts zeros around images, and for each element of these.
BEFORE_CYCLES, AROUND_CYCLES = 5e5, 0.4
# Channels from which on images get zeros and have their channels last more slowly than they have these last alone:
# threads read them a plane apart. Of 32 x 280 x 112 x 112 540 and 171 us of an H100 are predicted, of 16 x 48 as many.
MANY = 128
LESS = 0.99  # of the cycles of windows as images lie, below which others are used
# Times the chunks of windows whose rows are one element, up to which others are not slower that come as patches, whose
# pixels are in shared memory once for all elements.
FEWER = 1.5
# Times the columns that windows have in memory, from which on their elements and the zeros between them are read more
# slowly out of L2 than the elements are written, and read, by DRAM.
WRITTEN = 4


@dataclass(frozen=True)
class Convolution:
    """A convolution of images whose channels are their second dimension; `batch` is None where it is open until the
    call. `low` are the zeros before the image; `bias` is added to each output channel. Of several `groups` of channels
    each has filters of its own, of a group's channels. `op` makes the results, all channels as one dimension."""

    by: ir.Operation
    op: ir.Operation
    filters: ir.Value
    bias: ir.Value | None
    batch: int | None
    channels: int
    outputs: int
    sizes: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    low: tuple[int, ...]
    places: tuple[int, ...]
    groups: int = 1
    is_narrow: bool = False  # whether chunks of windows may have fewer columns than CHUNK

    @property
    def image(self) -> ir.Value:
        """The images, without the zeros around them."""
        return _padding(_images(self.by))[0]

    @cached_property
    def blocks(self) -> int:
        """Blocks of whole groups, each of which is a product of its own: of whole chunks of channels, where groups make
        up such. Else all are one. Within a block each output has zeros for the channels of other groups."""
        if self.batch is None or self.count == 1:
            return 1
        channels, outputs = self.channels // self.groups, self.outputs // self.groups
        for groups in range(1, self.groups):
            if self.groups % groups == groups * channels % CHUNK == groups * outputs % GROUP == 0:
                return self.groups // groups
        return 1

    @property
    def zeros(self) -> float:
        """Multiply-adds of the products for each one of the convolution, of filters that have zeros for the channels of
        other groups."""
        return self.groups / self.blocks * ceil(self.channels / CHUNK) * CHUNK / self.channels

    @property
    def rank(self) -> int:
        """The dimensions of space."""
        return len(self.sizes)

    @property
    def count(self) -> int:
        """Places of the filter on one image."""
        return prod(self.places)

    @cached_property
    def is_pointwise(self) -> bool:
        """Whether each place sees one element, and every element has a place."""
        return prod(self.kernel) == 1 and self.places == self.sizes and not any(self.low) and set(self.strides) == {1}

    @property
    def plain(self) -> Windows:
        """The windows on the images as they are."""
        found = Windows(
            self.sizes, self.channels, self.kernel, self.strides, self.low, self.dilations, self.places, self.blocks
        )
        return found.narrow(found.pitches) if self.is_narrow and self.blocks == 1 else found

    @cached_property
    def folded(self) -> Folded | None:
        """Windows of which a row is one element, or None where there are no such."""
        if self.blocks > 1 or (self.dilations[-1] > 1 and self.kernel[-1] > 1):
            return None
        found = Folded(self)
        return None if found.windows.unreadable() else found

    @cached_property
    def is_written(self) -> bool:
        """Whether windows are written, element by element: the elements of a row are apart, so that a chunk of the
        images as they are has the channels of one, and these are few beside the zeros behind them."""
        columns = prod(self.kernel) * self.channels
        return self.blocks == 1 and self.folded is None and WRITTEN * columns < self.plain.columns

    def takes_folded(self, has_plain: bool) -> bool:
        """Whether windows whose rows are one element are copied sooner than others, or there are no others. Images that
        lie as others want them are used as they are where they can, unless a copy with zeros around them takes less
        than is saved. Raises UnsupportedError where there are none of either kind."""
        reason = self.plain.unreadable()
        if reason and self.folded is None:
            raise UnsupportedError(reason)
        if reason or self.folded is None:
            return reason is not None
        if takes_patches(self.plain) and FEWER * self.folded.windows.columns > self.plain.columns:
            return False
        images = example_sizes.shape_of(self.by.operands[0])[0]
        plain, folded = self.plain, self.folded
        has_zeros = any((*self.low, *folded.high)) or folded.channels > self.channels
        apart = has_zeros and (has_plain or self.channels >= MANY)
        saved = plain.copy_cycles(plain.pitches) * LESS - folded.windows.copy_cycles(folded.pitches)
        around = self.folded.pitches[0] * AROUND_CYCLES
        return images * (saved * self.count - (around if apart else 0)) > (BEFORE_CYCLES if apart else 0)


class Folded:
    """Images with zeros around them, of which elements that a filter's row sees together are one element with all their
    channels. Such elements overlap. `high` are the zeros behind the images, `channels` those of an element."""

    def __init__(self, of: Convolution):
        self.is_narrow = of.is_narrow
        self.channels = of.channels + -of.channels % (GROUP // gcd(GROUP, of.strides[-1]))
        wanted = [(p - 1) * s + (k - 1) * d + 1 for p, s, k, d in zip(of.places, of.strides, of.kernel, of.dilations)]
        whole = [max(size, low + own) for size, low, own in zip(wanted, of.low, of.sizes)]
        whole[-1] += -whole[-1] % (GROUP // gcd(GROUP, self.channels))
        self.high = tuple(size - low - own for size, low, own in zip(whole, of.low, of.sizes))
        row, across = self.channels * of.kernel[-1], self.channels * of.strides[-1]
        if of.rank == 1:
            sizes, self.pitches = (of.places[0],), (whole[0] * self.channels, across)
            self._see(Windows(sizes, row, (1,), (1,), (0,), (1,), of.places))
            return
        line = whole[-1] * self.channels
        if of.rank == 3:  # two dimensions of five are left for those of space that the filter's rows are along
            sizes, places = (*whole[:2], of.places[2]), of.places
            strides, dilations = (*of.strides[:2], 1), (*of.dilations[:2], 1)
            self.pitches = (whole[0] * whole[1] * line, whole[1] * line, line, across)
            self._see(Windows(sizes, row, (*of.kernel[:2], 1), strides, (0, 0, 0), dilations, places))
            return
        self.pitches = (whole[0] * line, of.strides[0] * line, of.dilations[0] * line, across)
        sizes = (of.places[0], of.kernel[0], of.places[1])
        places = (of.places[0], 1, of.places[1])
        self._see(Windows(sizes, row, (1, of.kernel[0], 1), (1, 1, 1), (0, 0, 0), (1, 1, 1), places))

    def _see(self, windows: Windows) -> None:
        self.windows = windows.narrow(self.pitches) if self.is_narrow else windows

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of the images that the windows are on: space, then channels."""
        return (*self.windows.sizes, self.windows.channels)


def match(op: ir.Operation, least: int, has_narrow: bool) -> Convolution | None:
    """The convolution that an operation is, of groups that are joined, or None for one of fewer multiply-adds than
    `least`. `has_narrow`: chunks of 16-bit elements may have few columns. Raises UnsupportedError for one that is no
    product."""
    image, kernel, result = (ir.RankedTensorType(value.type) for value in op.operands)
    known = [kind.is_dynamic_dim(d) for kind in (image, result) for d in range(1, kind.rank)]
    if any(known) or not kernel.has_static_shape:
        raise UnsupportedError("a size besides the batch's is open until the call")
    batch = None if image.is_dynamic_dim(0) else image.shape[0]
    space = 3 if op.name == GROUPED else 2  # the first dimension of space
    channels, outputs, places = prod(image.shape[1:space]), prod(result.shape[1:space]), tuple(result.shape[space:])
    if prod(result.shape[1:]) * prod(kernel.shape[space - 1 :]) * example_sizes.shape_of(op.operands[0])[0] < least:
        return None
    element = image.element_type
    if not isinstance(element, ir.BF16Type | ir.F16Type | ir.F32Type) or kernel.element_type != element:
        raise UnsupportedError(f"it multiplies {element} with {kernel.element_type}")
    if not isinstance(result.element_type, ir.F32Type):
        raise UnsupportedError("its sums are no f32")
    if batch is None and 1 in (outputs, prod(places)):
        raise UnsupportedError("of each of an open number of images it makes a vector, and a tile is 64 rows")
    bias, (inside, low) = _bias(op.operands[2]), _padding(_images(op))
    strides, dilations = (tuple(ir.DenseIntElementsAttr(op.attributes[name])) for name in ("strides", "dilations"))
    found = Convolution(
        by=op,
        op=_joining(op) if op.name == GROUPED else op,
        filters=op.operands[1],
        bias=bias,
        batch=batch,
        channels=channels,
        outputs=outputs,
        sizes=tuple(ir.RankedTensorType(inside.type).shape[2:]),
        kernel=tuple(kernel.shape[space:]),
        strides=strides,
        dilations=dilations,
        low=low,
        places=places,
        groups=channels // kernel.shape[space - 1],
        is_narrow=has_narrow and element.width == 16,
    )
    is_read = found.groups == 1 < prod(found.kernel) and prod(kernel.shape[1:]) <= MOST_WINDOW * MOST_PARTS
    if is_read and prod(kernel.shape) <= FEW * element.width // 16:
        raise UnsupportedError("threads read its few numbers where they lie sooner than tensor cores multiply them")
    pairs = len(PAIRS[tf32_pieces(op) + 1]) if isinstance(element, ir.F32Type) else 1
    if found.groups > 1 and (found.groups == channels or found.zeros * pairs > MOST_ZEROS):
        raise UnsupportedError(f"of {found.zeros:.0f} numbers that it would multiply one would be no zero")
    return found


def join_groups(op: ir.Operation) -> None:
    """Has a convolution of groups take images and give results all of whose channels are one dimension somewhere. A
    model's reshapes may have made others of these dimensions at once: one image for each group, say, where each has
    filters that are computed for it."""
    kinds = [ir.RankedTensorType(value.type) for value in (op.operands[0], op.results[0])]
    if op.name != GROUPED or any(kind.is_dynamic_dim(d) for kind in kinds for d in range(1, kind.rank)):
        return
    before = rows.producer(op.operands[0])
    with op.location:
        if before is None or before.name != "tensor.expand_shape" or not _joins(before):
            with ir.InsertionPoint(op):
                op.operands[0] = _joined_and_back(op.operands[0])[1]
        users = users_of(op.results[0])
        if len(users) != 1 or users[0].name != "tensor.collapse_shape" or not _joins(users[0]):
            with ir.InsertionPoint.after(op):
                joined, back = _joined_and_back(op.results[0])
            op.results[0].replace_all_uses_except(back, joined.owner.operation)


def _joined_and_back(value: ir.Value) -> tuple[ir.Value, ir.Value]:
    """A tensor with its second and its third dimension as one, and the same as it was, made of that."""
    kind = ir.RankedTensorType(value.type)
    batch, groups, channels, *space = kind.shape
    together = [[0], [1, 2], *([3 + d] for d in range(len(space)))]
    type_ = ir.RankedTensorType.get([batch, groups * channels, *space], kind.element_type)
    joined = tensor.CollapseShapeOp(type_, value, together).result
    open_ = [rows.size_of(joined, 0)] if kind.is_dynamic_dim(0) else []
    return joined, tensor.ExpandShapeOp(kind, joined, together, open_, list(kind.shape)).result


def _images(by: ir.Operation) -> ir.Value:
    """A convolution's images, with zeros around them and all channels as one dimension."""
    return by.operands[0] if by.name != GROUPED else rows.producer(by.operands[0]).operands[0]


def _joining(op: ir.Operation) -> ir.Operation:
    """What makes one dimension of an operation's groups and their channels."""
    (use,) = op.results[0].uses
    return use.owner.operation


def _joins(reshape: ir.Operation) -> bool:
    groups = [len(group) for group in rows.groups_of(reshape)]
    return groups == [1, 2, *[1] * (len(groups) - 2)]


def _bias(init: ir.Value) -> ir.Value | None:
    """What each output channel begins with; None where it is zero. Raises UnsupportedError for anything else."""
    if is_zero_filled(init):
        return None
    op = rows.producer(init)
    if op is not None and op.name == "tensor.expand_shape" and _joins(op):
        op = rows.producer(op.operands[0])
    if op is not None and op.name == "linalg.broadcast":
        rank = ir.RankedTensorType(op.results[0].type).rank
        if list(ir.DenseI64ArrayAttr(op.attributes["dimensions"])) == [0, *range(2, rank)]:
            return op.operands[0]
    raise UnsupportedError("its sums begin with something else than a number for each channel")


def _padding(value: ir.Value) -> tuple[ir.Value, tuple[int, ...]]:
    """Images without zeros around their space, and how many there are before."""
    none = (0,) * (ir.RankedTensorType(value.type).rank - 2)
    op = rows.producer(value)
    if op is None or not is_zero_padded(op):
        return value, none
    low, high = padding_of(op)
    if any((*low[:2], *high[:2])) or min((*low, *high)) < 0:
        return value, none
    return op.operands[0], tuple(low[2:])


def is_zero_padded(pad: ir.Operation) -> bool:
    """Whether an operation pads a tensor with zeros, known numbers of them."""
    if pad.name != "tensor.pad" or len(pad.operands) > 1:
        return False
    (end,) = list(pad.regions[0].blocks[0].operations)[-1:]
    filler = made_by(end.operation.operands[0], "arith.constant")
    return filler is not None and filler.attributes["value"].value == 0


def spread(positions: Sequence[int | None], rank: int) -> bool:
    """Whether an operand of an operator on images has their whole space as its last dimensions, or nothing of it."""
    space = [d for d in positions if d is not None and d > 1]
    whole = list(range(2, 2 + rank))
    return not space or (space == whole and list(positions[-rank:]) == whole)
