"""Sample models, each a function that returns (nn.Module, args), in test sizes and in benchmark sizes.

`kitsune compile examples.models.nerf:nerf` compiles one; `SMALL` and `FULL` name them all.
"""

from collections.abc import Callable
from typing import Any

import torch

from .dlrm import dlrm
from .gat import gat
from .graphcast import graphcast, processor
from .llama import LLAMA_3_8B, decode, prefill
from .meshgraphnets import meshgraphnets
from .mlp import mlp
from .nerf import nerf
from .resnet import resblock, resnet
from .transformer import transformer
from .vit import vit

Maker = Callable[[torch.dtype], tuple[torch.nn.Module, tuple[Any, ...]]]


def _sized(make: Callable[..., Any], **sizes: Any) -> Maker:
    return lambda dtype: make(**sizes, dtype=dtype)


SMALL: dict[str, Maker] = {
    "mlp": _sized(mlp),
    "nerf": _sized(nerf),
    "dlrm": _sized(dlrm),
    "meshgraphnets": _sized(meshgraphnets),
    "graphcast": _sized(graphcast),
    "llama-prefill": _sized(prefill),
    "llama-decode": _sized(decode),
    "transformer": _sized(transformer),
    "vit": _sized(vit),
    "resblock": _sized(resblock),
    "resnet": _sized(resnet),
    "gat": _sized(gat),
}

_DLRM = {"tables": 26, "rows": 100_000, "bottom": (13, 512, 256, 128), "top": (1024, 1024, 512, 256, 1)}

FULL: dict[str, Maker] = {
    "nerf-64k": _sized(nerf, samples=65_536, width=256),
    "nerf-1m": _sized(nerf, samples=1_048_576, width=256),
    "dlrm-2k": _sized(dlrm, batch=2048, **_DLRM),
    "dlrm-16k": _sized(dlrm, batch=16_384, **_DLRM),
    "mgn": _sized(meshgraphnets, nodes=218_453, edges=1_310_720, width=128, blocks=2),
    "mgn-small": _sized(meshgraphnets, nodes=1876, edges=10_788, width=128, blocks=15),
    "graphcast": _sized(processor, mesh=40_962, edges=327_660, width=512, blocks=2),
    "llama-tok-1": _sized(decode, cached=2047, batch=1, config=LLAMA_3_8B),
    "llama-tok-16": _sized(decode, cached=2047, batch=16, config=LLAMA_3_8B),
    "llama-ctx": _sized(prefill, tokens=2048, batch=1, config=LLAMA_3_8B),
}
