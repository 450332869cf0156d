"""Operators of torch that treat rows one by one, beside pointwise ones (torch.Tag.pointwise)."""

from __future__ import annotations

import math
import operator

import torch

aten = torch.ops.aten

# Along dimensions that they are given.
ALONG = {
    aten.select.int,
    aten.slice.Tensor,
    aten.unbind.int,
    aten.chunk.default,
    aten.split.Tensor,
    aten._softmax.default,
    aten.softmax.int,
    aten.log_softmax.int,
    aten.sum.dim_IntList,
    aten.mean.dim,
    aten.amax.default,
    aten.amin.default,
    aten.linalg_vector_norm.default,
    aten.linalg_cross.default,
    aten.cross.default,
    aten.cumsum.default,
    aten.logsumexp.default,
    aten.argmax.default,
    aten.argmin.default,
    aten.cosine_similarity.default,
    aten.max.dim,
    aten.min.dim,
    aten.std.correction,
    aten.std.default,
    aten.std.dim,
    aten.var.correction,
    aten.var.default,
    aten.var.dim,
    aten.prod.dim_int,
    aten.any.dim,
    aten.all.dim,
}
# Where these stand among the arguments, if not second.
DIM = {
    aten.chunk.default: 2,
    aten.split.Tensor: 2,
    aten.linalg_vector_norm.default: 2,
    aten.cosine_similarity.default: 2,
    aten.linalg_cross.default: 2,
    aten.cross.default: 2,
}
# Whatever dimensions they are of.
KEEPING = {
    operator.getitem,
    aten.view.default,
    aten.reshape.default,
    aten.unsqueeze.default,
    aten.squeeze.dim,
    aten.expand.default,
    aten.expand_as.default,
    aten.broadcast_tensors.default,
    aten.detach.default,
    aten.detach_.default,
    aten.alias.default,
    aten.clone.default,
    aten.contiguous.default,
    aten.dropout.default,
    aten.to.dtype,
    aten._to_copy.default,
    aten.zeros.default,
    aten.ones.default,
    aten.full.default,
    aten.new_zeros.default,
    aten.new_ones.default,
    aten.new_full.default,
    aten.zeros_like.default,
    aten.ones_like.default,
    aten.full_like.default,
    aten.layer_norm.default,
    aten.sym_size.int,
    aten.masked_fill.Scalar,
    aten.masked_fill.Tensor,
    aten.masked_fill_.Scalar,
    aten.masked_fill_.Tensor,
    aten.fill_.Scalar,
    aten.zero_.default,
    aten.transpose.int,
    aten.permute.default,
    aten.t.default,
    aten.numpy_T.default,
    aten.mT.default,
    aten.stack.default,
    aten.flatten.using_ints,
    aten.unflatten.int,
}
# What makes one of all, or goes along some dimensions, with the number that leaves what it makes of others as it is.
REDUCED = {
    aten.sum.default: 0.0,
    aten.mean.default: 0.0,
    aten.max.default: -math.inf,
    aten.min.default: math.inf,
    aten.prod.default: 1.0,
    aten.any.default: 0.0,
    aten.all.default: 1.0,
}
REDUCED_ALONG = {
    aten.sum.dim_IntList: 0.0,
    aten.mean.dim: 0.0,
    aten.amax.default: -math.inf,
    aten.amin.default: math.inf,
    aten.max.dim: -math.inf,
    aten.min.dim: math.inf,
    aten.prod.dim_int: 1.0,
    aten.cumsum.default: 0.0,
    aten.logsumexp.default: -math.inf,
    aten.softmax.int: -math.inf,
    aten.log_softmax.int: -math.inf,
    aten.any.dim: 0.0,
    aten.all.dim: 1.0,
}
# Activations that not every version of torch, or none, has tagged as pointwise.
ACTIVATIONS = {
    aten.leaky_relu.default,
    aten.leaky_relu_.default,
    aten.elu.default,
    aten.gelu.default,
    aten.hardswish.default,
    aten.hardtanh.default,
    aten.log_sigmoid.default,
    aten.relu6.default,
    aten.silu.default,
    aten.softplus.default,
}


def is_row_wise(target: object) -> bool:
    """Whether an operator treats each row by itself, whatever its other arguments."""
    return target in KEEPING or target in ACTIVATIONS or torch.Tag.pointwise in getattr(target, "tags", ())
