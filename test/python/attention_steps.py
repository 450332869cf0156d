"""Attention through the passes that schedule it, and models that attend."""

import torch
from torch import nn
from torch.nn import functional as F

from kitsune_mlir.frontend import import_model
from kitsune_mlir.mlir import walk
from kitsune_mlir.passes import pipeline

STEPS = ["prepare-linalg", "schedule-attention", "schedule-products", "schedule-rows", "verify-dataflow"]


def scheduled(model, args, target, dynamic_shapes=None):
    program = import_model(model, args, dynamic_shapes=dynamic_shapes)
    pipeline.run(program.module, [pipeline.make(name, "", target) for name in STEPS])
    return program


def attentions(program):
    return [op.opview for op in walk(program.module, "kitsune.kernel") if op.opview.label.startswith("attention")]


def tensors(*shapes, dtype=torch.bfloat16):
    torch.manual_seed(sum(map(sum, shapes)))
    return tuple(torch.randn(shape).to(dtype) for shape in shapes)


class Block(nn.Module):
    """Queries, keys and values of one product."""

    def __init__(self, width, heads):
        super().__init__()
        torch.manual_seed(width)
        self.heads, self.inputs = heads, nn.Linear(width, 3 * width)

    def forward(self, x):
        query, key, value = self.inputs(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2).flatten(2)


class Sliced(nn.Module):
    """The same, sliced: queries before keys before values, of which there may be fewer, or head by head."""

    def __init__(self, width, heads, key_heads, by_head=False):
        super().__init__()
        torch.manual_seed(width)
        self.heads, self.by_head, self.sizes = heads, by_head, [heads * 24, key_heads * 24, key_heads * 24]
        self.inputs = nn.Linear(width, sum(self.sizes))

    def forward(self, x):
        x = self.inputs(x)
        if self.by_head:
            parts = x.unflatten(-1, (self.heads, -1)).transpose(1, 2).chunk(3, -1)
        else:
            parts = (part.unflatten(-1, (-1, 24)).transpose(1, 2) for part in x.split(self.sizes, -1))
        return F.scaled_dot_product_attention(*parts, is_causal=True, enable_gqa=True).transpose(1, 2).flatten(2)
