"""carry-channels: images whose channels are last, or may be, stay so through what is done to images.

    %t = linalg.transpose ins(%x : tensor<32x96x96x120xbf16>) ... permutation = [0, 3, 1, 2]
    %p = linalg.pooling_nchw_sum ins(%t, %window : ...) outs(%zero) -> tensor<32x120x48x48xf32>
  =>
    %p = linalg.pooling_nhwc_sum ins(%x, %window : ...) outs(%zero) -> tensor<32x48x48x120xf32>

So the inputs of a model are read where they lie, and written nowhere else. That is done where what has to be turned
back for others is at most half of what is given, and of elementwise operators where the model turns all of it back.
What a convolution gives may have either order, for its product has both: channels are last where it is other
convolutions that read what is computed of it, and would have it turned.
`carried_channels.py` says what is carried and where that ends. A norm of channels that a model writes between two
transposes is first one without (rows_in_place.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from kitsune_mlir import rows
from kitsune_mlir.mlir import ir, walk
from kitsune_mlir.operations import operations_of, users_of
from kitsune_mlir.planning.product_engines import CHUNK
from kitsune_mlir.traffic import element_bytes, tensor_bytes

from .base import ModulePass
from .carried_channels import Carried
from .convolution_operands import last_of, last_order, transposed
from .convolutions import NAMES
from .product_follows import follows_of_one_result
from .rows_in_place import take_rows_in_place

_LESS = 0.5  # of the bytes of images that are given
_COPIED = 16  # bytes: what lines are multiples of that a tensor copy takes


@dataclass(frozen=True)
class CarryChannels(ModulePass):
    """Has no options."""

    name: ClassVar[str] = "carry-channels"

    def run(self, module: ir.Module) -> None:
        for function in walk(module, "func.func"):
            for block in function.regions[0].blocks:
                if any(op.operation.name in NAMES for op in block.operations):
                    take_rows_in_place(block)  # a model may turn them for a norm of channels, and back
                _Carrier(block).run()


class _Carrier:
    """Carries images on in a block."""

    def __init__(self, block: ir.Block):
        self.block = block
        self.convolutions = operations_of(block, *NAMES)
        # What is computed of convolutions elementwise, perhaps in the same kernels: its order is theirs.
        self.behind = {
            op.results[0]: [op, *follows_of_one_result(op, lambda _op, _read: True)] for op in self.convolutions
        }
        self.made = {result for ops in self.behind.values() for op in ops for result in op.results}

    def run(self) -> None:
        asked = set[int]()
        while any(self._carry_given(images, asked) for images in self._given()):  # what it finds may change each time
            pass
        for op in self.convolutions:
            self._carry_result(op)
        for images in reversed(self._given()):
            if not list(images.uses):
                images.owner.operation.erase()

    def _given(self) -> list[ir.Value]:
        """The images that transposes make of others whose channels are last."""
        results = [op.operation.results[0] for op in self.block.operations if op.operation.name == "linalg.transpose"]
        return [images for images in results if last_of(images) is not None]

    def _carry_given(self, images: ir.Value, asked: set[int]) -> bool:
        """Carries on images that nobody has `asked` about, where less is turned so; says whether it did."""
        if hash(images) in asked:
            return False
        asked.add(hash(images))
        carried, last = self._carried(images), last_of(images)
        if not carried.members or not (carried.sees_images or carried.turns_back):
            return False
        if carried.turned > _LESS * tensor_bytes(images):
            return False
        carried.rewrite(last)
        return True

    def _carry_result(self, convolution: ir.Operation) -> None:
        """Carries on what a convolution gives, where less is turned so: the images of others that are computed of it,
        and what is read behind it and lies so."""
        ops = self.behind[convolution.results[0]]
        end = ops[-1]
        carried = self._carried(end.results[0])
        images = [value for value in carried.values if any(_turns_images(op, value) for op in carried.reached)]
        read = [value for op in ops for value in op.operands if last_of(value) is not None]
        if not carried.members or carried.turned >= sum(map(tensor_bytes, dict.fromkeys([*images, *read]))):
            return
        with end.location, ir.InsertionPoint.after(end):
            last = transposed(end.results[0], last_order(len(rows.shape_of(end.results[0]))))
        carried.rewrite(last)

    def _carried(self, images: ir.Value) -> Carried:
        return Carried(images, lambda op: _takes_images(op) or any(one in self.made for one in op.results))


def _takes_images(op: ir.Operation) -> bool:
    """Whether an operation is a convolution that becomes a product, or puts zeros around the images of one."""
    if op.name == "tensor.pad":
        users = users_of(op.results[0])
        return bool(users) and all(user.name in NAMES for user in users)
    return op.name in NAMES


def _turns_images(op: ir.Operation, images: ir.Value) -> bool:
    """Whether a convolution has these images turned, or copied for lines that no tensor copy takes. Few channels of f32
    get zeros around them in any case: a filter's row is one element then (convolutions.py)."""
    if not _takes_images(op) or op.operands[0] != images:
        return False
    kind = ir.RankedTensorType(images.type)
    places = kind.shape[2:]
    is_pointwise = op.name in NAMES and prod(rows.shape_of(op.operands[1])[-len(places) :]) == 1
    if not is_pointwise or rows.DYNAMIC in places:
        return not isinstance(kind.element_type, ir.F32Type) or kind.shape[1] >= CHUNK
    return prod(places) * element_bytes(kind.element_type) % _COPIED > 0
