"""The floor of a case: what its operations take at the peak, or its compulsory bytes at DRAM's speed.

Operations are those of products, convolutions and attention (torch's flop counter). Compulsory bytes are the
weights and inputs that are used, each once, and the results; of a table that rows are gathered from, those rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from kitsune_mlir.planning.target import Target

from .sides import tensors

_ATEN = torch.ops.aten
_GATHERS = {_ATEN.embedding.default, _ATEN.index_select.default, _ATEN.index.Tensor, _ATEN.gather.default}


def _attention(query: Sequence[int], key: Sequence[int], value: Sequence[int], *_: Any, **__: Any) -> int:
    """Operations of attention whose keys may have fewer heads than its queries, which torch's own count refuses."""
    return 2 * prod(query[:-1]) * key[-2] * (query[-1] + value[-1])


_COUNTED = {
    getattr(_ATEN, name): _attention
    for name in (
        "_scaled_dot_product_cudnn_attention",
        "_scaled_dot_product_efficient_attention",
        "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_flash_attention_for_cpu",
    )
    if hasattr(_ATEN, name)
}


@dataclass(frozen=True)
class Work:
    """What one run must do."""

    operations: int
    bytes: int


@dataclass(frozen=True)
class Rates:
    """How fast a machine can do it."""

    tflops: float
    dram_gbps: float

    @staticmethod
    def of(target: Target, dtype: torch.dtype, matmul_precision: str = "highest") -> Rates:
        """The target's. Products of tf32 run at half the rate of bf16's: one stands for one of f32 below the "highest"
        precision, three for one in full f32. Or they run on the other units where those are faster."""
        if dtype not in (torch.float32, torch.float64):
            return Rates(target.tensor_tflops, target.dram_gbps)
        in_tf32 = dtype == torch.float32 and matmul_precision != "highest"
        return Rates(max(target.simt_tflops, target.tensor_tflops / (2 if in_tf32 else 6)), target.dram_gbps)


def count(module: torch.nn.Module, args: Sequence[Any]) -> Work:
    """The work of one run, by running it."""
    fixed = [*module.parameters(), *module.buffers(), *tensors(args)]
    touched, flops = _Touched(fixed), FlopCounterMode(display=False, custom_mapping=_COUNTED)
    with flops, touched:
        results = tensors(module(*args))
    written = {result.untyped_storage().data_ptr(): result.nbytes for result in results}
    new = sum(size for place, size in written.items() if place not in touched.sizes)
    return Work(flops.get_total_flops(), sum(touched.found.values()) + new)


def floor(work: Work, rates: Rates) -> dict[str, Any]:
    """{ms, bound: "compute" or "memory", operations, bytes, tflops, dram_gbps}"""
    compute = work.operations / (rates.tflops * 1e9)
    memory = work.bytes / (rates.dram_gbps * 1e6)
    return {
        "ms": max(compute, memory),
        "bound": "compute" if compute > memory else "memory",
        **asdict(work),
        **asdict(rates),
    }


class _Touched(TorchDispatchMode):
    """Counts the bytes of given tensors that operators read, each tensor at most once over."""

    def __init__(self, fixed: Sequence[torch.Tensor]):
        super().__init__()
        self.sizes = {tensor.untyped_storage().data_ptr(): tensor.nbytes for tensor in fixed}
        self.found: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not func.is_view:
            table = args[0] if func in _GATHERS else None
            for leaf in tree_leaves((args, kwargs)):
                if isinstance(leaf, torch.Tensor):
                    self._touch(leaf, result.nbytes if leaf is table else leaf.nbytes)
        return result

    def _touch(self, tensor: torch.Tensor, count: int) -> None:
        place = tensor.untyped_storage().data_ptr()
        if place in self.sizes:
            self.found[place] = min(self.sizes[place], self.found.get(place, 0) + count)
