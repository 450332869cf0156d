"""Gradients of convolutions of few channels a group, by their filters."""
# No `from __future__ import annotations` here: the field declarations are read as raw annotations.

from typing import Any

from kitsune_mlir.mlir import ext, ir

from .checks import fail
from .types import Kitsune

_FORMS = ("stride", "dilation", "padding")


class FilterGradientOp(Kitsune.Operation, name="filter_gradient", traits=[ext.Pure]):
    """The gradient of a convolution by its filters, from an `image` [N, sizes..., C] and the `gradient` [N, places...,
    O] of its result:

        filters[taps..., o C / G + i] = sum over n, places of gradient[n, places..., o]
                                        * image[n, places stride + taps dilation - padding, ..., g C / G + i]

    with o in group g of the G that O and C are cut into, and i < C / G; G is what makes the last size of the result
    O C / G. Elements outside of the image are zero. `stride`, `dilation` and `padding` have a number for each size.
    Elements are f32, f64, f16 or bf16, sums f32 or f64."""

    image: ext.Operand[Any]
    gradient: ext.Operand[Any]
    filters: ext.Result[Any]

    @property
    def groups(self) -> int:
        """The number of groups of channels."""
        image, gradient = (value.type.shape[-1] for value in self.operands)
        return image * gradient // self.operation.results[0].type.shape[-1]

    def form(self, name: str) -> list[int]:
        """The stride, dilation or padding along each size."""
        return list(ir.DenseI64ArrayAttr(self.operation.attributes[name]))

    def verify_region_invariants(self) -> bool:
        image, gradient, filters = (value.type for value in (*self.operands, *self.operation.results))
        kinds = (image, gradient, filters)
        if not all(isinstance(kind, ir.RankedTensorType) and kind.rank >= 2 for kind in kinds):
            return fail(self, f"takes and gives tensors with channels last, found {', '.join(map(str, kinds))}")
        element = image.element_type
        if not isinstance(element, ir.F32Type | ir.F64Type | ir.F16Type | ir.BF16Type):
            return fail(self, f"takes images of f32, f64, f16 or bf16, found {image}")
        dims = image.rank - 2
        if gradient.rank != image.rank or gradient.element_type != element or filters.rank != dims + 1:
            return fail(self, f"gives filters for an image and a gradient of its kind, found {image} and {gradient}")
        sums = element if isinstance(element, ir.F64Type) else ir.F32Type.get(self.operation.context)
        if filters.element_type != sums or not filters.has_static_shape:
            return fail(self, f"gives filters of known sizes of {sums}, found {filters}")
        for name in _FORMS:
            if name not in self.attributes or not isinstance(self.attributes[name], ir.DenseI64ArrayAttr):
                return fail(self, f"needs {name}, an array of integers")
            least = 0 if name == "padding" else 1
            if len(self.form(name)) != dims or min(self.form(name), default=least) < least:
                return fail(self, f"has a {name} from {least} on for each of {dims} sizes, found {self.form(name)}")
        (inputs, outputs), made = (kind.shape[-1] for kind in (image, gradient)), filters.shape[-1]
        known = min(inputs, outputs, made) > 0
        if not known or made % outputs or inputs % (made // outputs) or outputs % (inputs * outputs // made):
            return fail(self, f"has groups of {inputs} and of {outputs} channels for filters of {made}")
        return True
