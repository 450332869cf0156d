"""The tensor copy engine: boxes of tensors in global memory to and from shared memory
(PTX ISA, cp.async.bulk.tensor; tensor maps: CUDA Driver API, cuTensorMapEncodeTiled).

A box lies in shared memory row after row. With the 128-byte swizzle its rows are 128 bytes and the
16-byte chunk c of row r lies at chunk c ^ (r mod 8): the form that wgmma reads without bank conflicts. Elements
beyond the tensor read as zero and are not written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.mlir import arith, ir

SWIZZLE = 128  # bytes of a box's row
MAP_BYTES = 128
ALIGN = 1024  # of a swizzled box in shared memory
ROUNDED = "tf32"  # the element of a map of f32 whose numbers are rounded on their way


@dataclass(frozen=True)
class Corners:
    """Where windows on images begin (PTX ISA, Im2col mode): along each dimension of space, fastest first, from `lower`
    elements behind the image's first to `upper` behind its last, `steps` apart."""

    lower: tuple[int, ...]
    upper: tuple[int, ...]
    steps: tuple[int, ...]

    def description(self) -> dict:
        """What a map's description says of the windows."""
        return {"lower": list(self.lower), "upper": list(self.upper), "steps": list(self.steps)}


@dataclass(frozen=True)
class TensorMap:
    """A tensor as the copy engine sees it. `tensor` is its number among the kernel's tensors, the workspace coming
    after them; `element` a type, or ROUNDED. Sizes are in elements, fastest dimension first, None standing for one that
    is open until the call: of those of the call the one of that number in `open`, in the order of Nones. `strides` are
    bytes of the dimensions after the first, multiples of 16, times the open sizes of those before. The first
    dimension's elements lie in lines of a multiple of `line`, where it is open."""

    tensor: int
    element: str
    dims: tuple[int | None, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int = SWIZZLE
    offset: int = 0  # bytes from where the tensor begins
    corners: Corners | None = None  # of a map of windows, whose box is of channels and windows
    open: tuple[int, ...] = ()  # all the first where it is empty
    line: int = 1

    def description(self) -> dict:
        """For the launch description (runtime/tensor_map.py encodes it)."""
        found = {
            "tensor": self.tensor,
            "offset": self.offset,
            "element": self.element,
            "dims": list(self.dims),
            "strides": list(self.strides),
            "box": list(self.box),
            "swizzle": self.swizzle,
            **({"line": self.line} if self.line > 1 else {}),
            **({"open": list(self.open)} if any(self.open) else {}),
        }
        return found if self.corners is None else found | self.corners.description()


def map_pointer(maps: ir.Value, number: Int) -> ir.Value:
    """The address of a tensor map in the kernel's parameter."""
    return device.offset(maps, device.mul(number, MAP_BYTES), ir.IntegerType.get_signless(8))


def prefetch_map(map_: ir.Value) -> None:
    """Has the copy engine fetch a tensor map (PTX ISA, prefetch.tensormap)."""
    device.assembly("prefetch.tensormap [$0];", map_)


def load(map_: ir.Value, at: Sequence[Int], destination: Int, barrier: Int) -> None:
    """One thread: copies the box at these element coordinates; its bytes count on the mbarrier."""
    places = ", ".join(f"${3 + d}" for d in range(len(at)))
    kind = "shared::cluster.global.tile.mbarrier::complete_tx::bytes"
    text = f"cp.async.bulk.tensor.{len(at)}d.{kind} [$0], [$1, {{{places}}}], [$2];"
    device.assembly(text, destination, map_, barrier, *at)


def load_windows(map_: ir.Value, at: Sequence[Int], offsets: Sequence[Int], destination: Int, barrier: Int) -> None:
    """One thread: copies a column of windows, one element of the filter: `at` is the element where the first window
    begins, `offsets` how far the filter's element is from there along each dimension of space, fastest first. Windows
    follow in row-major order, then those of the next image (PTX ISA, cp.async.bulk.tensor: .im2col)."""
    places = ", ".join(f"${3 + d}" for d in range(len(at)))
    shifts = ", ".join(f"${3 + len(at) + d}" for d in range(len(offsets)))
    kind = "shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
    text = f"cp.async.bulk.tensor.{len(at)}d.{kind} [$0], [$1, {{{places}}}], [$2], {{{shifts}}};"
    i16 = ir.IntegerType.get_signless(16)
    far = [arith.trunci(i16, device.value(offset)) for offset in offsets]
    device.assembly(text, destination, map_, barrier, *at, *far)


def store(map_: ir.Value, at: Sequence[Int], source: Int, condition: ir.Value | None = None) -> None:
    """One thread, that in which `condition` (i1) holds: copies a box in shared memory to these element coordinates.
    Writes to the box come before a `fence` by each writer and a barrier; `commit` and `wait_read` or the kernel's end
    come after."""
    places = ", ".join(f"${2 + d}" for d in range(len(at)))
    text = f"cp.async.bulk.tensor.{len(at)}d.global.shared::cta.tile.bulk_group [$1, {{{places}}}], [$0];"
    operands: list[Int] = [source, map_, *at]
    if condition is not None:
        text = device.where(len(operands), text)
        operands.append(condition)
    device.assembly(text, *operands)


def fence() -> None:
    """Orders a thread's writes to shared memory before later reads by the copy engine and by wgmma."""
    device.assembly("fence.proxy.async.shared::cta;")


def commit() -> None:
    """Makes a group of the thread's stores so far."""
    device.assembly("cp.async.bulk.commit_group;")


def wait_read(pending: int) -> None:
    """The thread waits until at most so many of its groups have still to read their boxes."""
    device.assembly(f"cp.async.bulk.wait_group.read {pending};")
