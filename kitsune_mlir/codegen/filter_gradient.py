"""kitsune.filter_gradient while tensors become buffers: calls, for both targets (cpu_filter_gradient.py,
gpu_filter_gradient.py). On a GPU blocks have sums of parts of the places, which are added up behind.

    %w = "kitsune.filter_gradient"(%x, %g) {...} : (...) -> tensor<3x3x8xf32>
  =>
    %p = call @kitsune_filter_gradient0(%x, %g) : (...) -> tensor<16x3x3x8xf32>
    %w = linalg.generic {reduction of the first dimension} ins(%p) outs(%zeros)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass

from kitsune_mlir.dialects.filter_gradient import FilterGradientOp
from kitsune_mlir.example_sizes import shape_of
from kitsune_mlir.generics import generic, map_of
from kitsune_mlir.mlir import arith, ir, linalg, replace_op, tensor, walk
from kitsune_mlir.planning.filter_gradient import Convolution, Shares, share
from kitsune_mlir.rows import DYNAMIC

from .outlined import Call, calls, outlined

CALL = "kitsune_filter_gradient"  # what such an operation is a call of while tensors become buffers
_FORMS = ("stride", "dilation", "padding")
_GROUPS, _SHARES = "groups", "shares"


@dataclass(frozen=True)
class FilterGradient(Call):
    """What a call computes; `shares` are how a GPU's threads share it."""

    convolution: Convolution
    shares: Shares | None

    @property
    def image(self) -> ir.Value:
        return self.call.operands[0]

    @property
    def gradient(self) -> ir.Value:
        return self.call.operands[1]

    @property
    def kind(self) -> ir.MemRefType:
        """That of the result."""
        return ir.MemRefType(self.call.results[0].type)


def outline_filter_gradients(module: ir.Module, sms: int | None = None) -> None:
    """Makes calls of kitsune.filter_gradients, which bufferization takes for calls of code from elsewhere: of a GPU
    with so many multiprocessors, or of a CPU's."""
    for position, op in enumerate(walk(module, FilterGradientOp.OPERATION_NAME)):
        with op.context, op.location:
            name, (kind,) = f"{CALL}{position}", (ir.RankedTensorType(result.type) for result in op.results)
            shares = None if sms is None else share(_convolution(op.opview), sms)
            if shares is not None:
                kind = ir.RankedTensorType.get([shares.parts, *kind.shape], kind.element_type)
            own, call = outlined(module, op, name, list(op.operands), [kind])
            for said in _FORMS:
                own.attributes[said] = op.attributes[said]
            own.attributes[_GROUPS] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), op.opview.groups)
            if shares is not None:
                own.attributes[_SHARES] = ir.DenseI64ArrayAttr.get(list(astuple(shares)))
            with ir.InsertionPoint(op):
                replace_op(op, call.results[0] if shares is None else _sum_of_parts(call.results[0]))


def filter_gradients(module: ir.Module) -> list[FilterGradient]:
    """Those that calls stand for, after bufferization."""
    found = []
    for op, function in calls(module, CALL):
        said, result = function.attributes, ir.MemRefType(op.results[0].type)
        shares = Shares(*ir.DenseI64ArrayAttr(said[_SHARES])) if _SHARES in said else None
        forms = {name: list(ir.DenseI64ArrayAttr(said[name])) for name in _FORMS}
        kinds = [ir.MemRefType(value.type) for value in op.operands]
        kernel = list(result.shape)[0 if shares is None else 1 : -1]
        groups = ir.IntegerAttr(said[_GROUPS]).value
        found.append(FilterGradient(op, function, _made(op, kinds, kernel, groups, forms.__getitem__), shares))
    return found


def _convolution(op: FilterGradientOp) -> Convolution:
    kinds = [ir.RankedTensorType(value.type) for value in op.operands]
    kernel = list(op.operation.results[0].type.shape)[:-1]
    return _made(op.operation, kinds, kernel, op.groups, op.form)


def _made(
    op: ir.Operation, kinds: list[ir.ShapedType], kernel: list[int], groups: int, form: Callable[[str], list[int]]
) -> Convolution:
    sizes, places = ([None if size == DYNAMIC else size for size in kind.shape] for kind in kinds)
    batch, *example, _ = shape_of(op.operands[1])
    inputs, outputs = (kind.shape[-1] // groups for kind in kinds)
    stride, dilation, padding = (tuple(form(name)) for name in _FORMS)
    return Convolution(
        batch=batch,
        sizes=tuple(sizes[1:-1]),
        places=tuple(places[1:-1]),
        example=tuple(example),
        kernel=tuple(kernel),
        stride=stride,
        dilation=dilation,
        padding=padding,
        groups=groups,
        inputs=inputs,
        outputs=outputs,
        element_bytes=kinds[0].element_type.width // 8,
    )


def _sum_of_parts(parts: ir.Value) -> ir.Value:
    """The sum along the first dimension, at the insertion point."""
    kind = ir.RankedTensorType(parts.type)
    own = ir.RankedTensorType.get(list(kind.shape)[1:], kind.element_type)
    zero = arith.constant(kind.element_type, 0.0)
    start = linalg.fill(zero, outs=[tensor.empty(own.shape, own.element_type)])
    maps = [map_of(kind.rank, range(kind.rank)), map_of(kind.rank, range(1, kind.rank))]
    return generic([parts], [start], maps, ["reduction", *["parallel"] * own.rank], arith.addf).results[0]
