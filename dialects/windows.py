"""The windows of a convolution as a matrix, which makes a convolution a product."""
# No `from __future__ import annotations` here: the field declarations are read as raw annotations.

from collections.abc import Sequence
from typing import Any

from kitsune_mlir.mlir import attr_int, ext, ir
from kitsune_mlir.planning import windows

from .checks import check_integer, fail
from .types import Kitsune

_NUMBERS = ("filter", "strides", "low", "dilations", "places")


class WindowsOp(Kitsune.Operation, name="windows", traits=[ext.Pure]):
    """What a filter sees of images whose channels are their last dimension, as a matrix: a row for each window, and for
    each element of the `filter` its channels as columns, with zeros up to a multiple of `chunk`, 64 when absent. Along
    each dimension of the images' space there are `places` windows, `strides` elements apart, the first one `low`
    elements before the image; the filter's elements are `dilations` apart. What lies outside an image is zero.

    Images of batch x height x width x channels give batch x windows x columns, or all windows as rows of one matrix.
    With `blocks` the channels are so many blocks, each a multiple of 64, and there is a dimension of blocks in front of
    the columns, which are then those of one block.
    The matrix is in no memory: a `kitsune.copy` of a box of it reads the images.

    With `sizes` and `pitches` the images' elements are taken as those of other images: of these sizes (space, then
    channels), and this many elements from one to the next along all their dimensions but the channels, which are
    neighbours. They may overlap: so a filter's row of few channels is one element of many.

    Images whose sizes are open until the call have an attribute `upper`, where along each dimension the last window
    would begin if windows were neighbours, relative to an image's last element; their open `places` are -1. All windows
    are rows of one matrix then, and `like` is a tensor of as many elements, of which none are read."""

    images: ext.Operand[Any]
    like: Sequence[ext.Operand[Any]]
    matrix: ext.Result[Any]

    def numbers(self, name: str) -> tuple[int, ...]:
        """The values of an attribute."""
        return tuple(ir.DenseI64ArrayAttr(self.attributes[name]))

    @property
    def windows(self) -> windows.Windows:
        """The windows of the images as they are taken."""
        kind = ir.RankedTensorType(self.operands[0].type)
        *sizes, channels = self.numbers("sizes") if "sizes" in self.attributes else kind.shape[1:]
        sizes = [windows.OPEN if size == ir.ShapedType.get_dynamic_size() else size for size in sizes]
        numbers = (self.numbers(name) for name in _NUMBERS)
        ends = self.numbers("upper") if self.count is not None else ()
        return windows.Windows(tuple(sizes), channels, *numbers, self.blocks, self.chunk, ends)

    @property
    def count(self) -> ir.Value | None:
        """The tensor of as many elements as there are windows, where that is open until the call."""
        return self.operands[1] if len(self.operands) > 1 else None

    @property
    def blocks(self) -> int:
        """Blocks of channels."""
        return attr_int(self, "blocks") if "blocks" in self.attributes else 1

    @property
    def chunk(self) -> int:
        """Columns of which a multiple is one element of the filter."""
        return attr_int(self, "chunk") if "chunk" in self.attributes else windows.CHUNK

    @property
    def axes(self) -> list[int]:
        """The dimensions of the matrix that have the windows and the columns."""
        rank = ir.RankedTensorType(self.results[0].type).rank
        return [rank - 2 - ("blocks" in self.attributes), rank - 1]

    @property
    def pitches(self) -> tuple[int, ...]:
        """Elements from one to the next, along all dimensions of the images as they are taken; times those of the sizes
        of dimensions before that are open."""
        if "pitches" in self.attributes:
            return (*self.numbers("pitches"), 1)
        found = [1]
        for size in reversed(ir.RankedTensorType(self.operands[0].type).shape[1:]):
            found.append(found[-1] * (1 if size == ir.ShapedType.get_dynamic_size() else size))
        return tuple(reversed(found))

    @property
    def in_batches(self) -> bool:
        """Whether the matrix of each image is one of its own."""
        return self.axes[0] == 1

    def verify_region_invariants(self) -> bool:
        images, matrix = self.operands[0].type, self.results[0].type
        if not isinstance(images, ir.RankedTensorType) or not isinstance(matrix, ir.RankedTensorType):
            return fail(self, f"makes a ranked tensor of one, found {images} and {matrix}")
        open_ = any(images.is_dynamic_dim(d) for d in range(1, images.rank))
        if images.rank < 3 or images.is_dynamic_dim(images.rank - 1) or open_ != (self.count is not None):
            return fail(self, f"takes images of known sizes, or of a count, with a batch and channels, found {images}")
        if open_ and ("upper" not in self.attributes or "sizes" in self.attributes or self.blocks > 1):
            return fail(self, "of images of open sizes has an attribute upper, and neither sizes nor blocks")
        for name in (*_NUMBERS, "sizes", "pitches"):
            if name not in self.attributes and name in ("sizes", "pitches"):
                continue
            if name not in self.attributes or not isinstance(self.attributes[name], ir.DenseI64ArrayAttr):
                return fail(self, f"has an attribute {name}, an array of i64")
        if not check_integer(self, "blocks", 2) or not check_integer(self, "chunk", windows.STEP):
            return False
        if self.chunk > windows.CHUNK or self.chunk % windows.STEP:
            return fail(self, f"has chunks of up to {windows.CHUNK} columns, multiples of {windows.STEP}")
        return self._verify_numbers(images) and self._verify_matrix(images, matrix)

    def _verify_numbers(self, images: ir.RankedTensorType) -> bool:
        if ("sizes" in self.attributes) != ("pitches" in self.attributes):
            return fail(self, "has both sizes and pitches, or neither")
        space = (len(self.numbers("sizes")) if "sizes" in self.attributes else images.rank - 1) - 1
        for name in _NUMBERS:
            least = 0 if name == "low" else windows.OPEN if name == "places" and self.count is not None else 1
            if len(self.numbers(name)) != space or min(self.numbers(name), default=least) < least:
                return fail(self, f"{name} has a number from {least} on for each of {space} dimensions of space")
        if "sizes" in self.attributes and not self._is_inside(images):
            return fail(self, f"takes elements of other images that {images} does not have")
        if self.blocks > 1 and self.windows.channels % (self.blocks * windows.CHUNK):
            return fail(self, f"has blocks of multiples of {windows.CHUNK} channels, found {self.blocks} of {images}")
        return True

    def _is_inside(self, images: ir.RankedTensorType) -> bool:
        """Whether images of other sizes end where an image does."""
        sizes, pitches = self.numbers("sizes"), self.numbers("pitches")
        if len(pitches) != len(sizes) or min(sizes, default=0) < 1 or min(pitches, default=0) < 1:
            return False
        whole, elements = (*pitches[1:], 1), 1
        for size in images.shape[1:]:
            elements *= size
        last = sum((size - 1) * pitch for size, pitch in zip(sizes, whole))
        return pitches[0] == elements and last < elements

    def _verify_matrix(self, images: ir.RankedTensorType, matrix: ir.RankedTensorType) -> bool:
        found = self.windows
        open_ = images.is_dynamic_dim(0)
        batch = ir.ShapedType.get_dynamic_size() if open_ else images.shape[0]
        columns = [self.blocks, found.columns] if "blocks" in self.attributes else [found.columns]
        wanted = [[batch, found.count, *columns]]
        if not open_:
            wanted.append([batch * found.count, *columns])
        if found.is_open:
            wanted = [[ir.ShapedType.get_dynamic_size(), found.columns]]
        if list(matrix.shape) not in wanted or matrix.element_type != images.element_type:
            shapes = " or ".join("x".join("?" if n < 0 else str(n) for n in shape) for shape in wanted)
            return fail(self, f"makes a matrix of {shapes} elements of {images.element_type}, found {matrix}")
        return True


def windows_of(matrix: ir.Value) -> WindowsOp | None:
    """The operation that says which windows a matrix holds; None for any other tensor."""
    owner = matrix.owner
    if isinstance(owner, ir.Block) or owner.operation.name != WindowsOp.OPERATION_NAME:
        return None
    return owner.operation.opview


def has_open_windows(tensor: ir.Value) -> bool:
    """Whether a tensor is a matrix of windows on images whose sizes are open until the call."""
    found = windows_of(tensor)
    return found is not None and found.count is not None


def in_memory(tensor: ir.Value) -> ir.Value:
    """The tensor in whose memory the elements of this one are: a matrix of windows is in that of its images."""
    found = windows_of(tensor)
    return tensor if found is None else found.operands[0]
