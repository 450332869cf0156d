"""Numbers before times: fresh inputs, a reference in float64, results poisoned before the run that counts."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map

from .device import Call
from .sides import matmul_precision, tensors

# Relative error (Frobenius) that is right whatever torch's is; up to ten times that, where eager has half as much.
BOUNDS = {torch.bfloat16: 1e-2, torch.float16: 2e-3, torch.float32: 1e-5, torch.float64: 1e-10}
TF32_BOUNDS = BOUNDS | {torch.float32: 5e-4}  # where products of f32 are not of the highest precision
CHUNK = 1 << 26  # elements compared at once, so that large results do not need their memory several times


def refresh(args: Any, seed: int) -> None:
    """Puts the values of the floating-point inputs, in place, in another order, so that no two are equal which were not
    before: which of them sorts name first nothing says. Integers stay valid as they are."""
    leaves = tensors(args)
    if not leaves:
        return
    generator = torch.Generator(leaves[0].device).manual_seed(seed)
    for tensor in leaves:
        if tensor.is_floating_point() and tensor.numel():
            chosen = torch.randperm(tensor.numel(), device=tensor.device, generator=generator)
            tensor.copy_(tensor.flatten()[chosen].view(tensor.shape))


def reference(module: torch.nn.Module, args: Sequence[Any]) -> tuple[list[torch.Tensor], str]:
    """What the model gives with the same weights in float64, or in float32 where that does not run; and which.
    Products of float32 are of the highest precision."""
    with contextlib.suppress(RuntimeError, TypeError):  # too little memory is a RuntimeError
        return _exact(module, args, torch.float64), "float64"
    with matmul_precision("highest"):
        return _exact(module, args, torch.float32), "float32"


def _exact(module: torch.nn.Module, args: Sequence[Any], kind: torch.dtype) -> list[torch.Tensor]:
    def widen(leaf: Any) -> Any:
        return leaf.to(kind) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf

    return tensors(copy.deepcopy(module).to(kind)(*tree_map(widen, args)))


def poisoned_run(call: Call, keep: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """A run after the results of another were overwritten: memory is used again, so what is not written shows.
    Results that lie in the tensors of `keep` are left alone."""
    kept = {tensor.untyped_storage().data_ptr() for tensor in keep}
    _poison([result for result in call() if result.untyped_storage().data_ptr() not in kept])
    return call()


def _poison(results: Sequence[torch.Tensor]) -> None:
    for result in results:
        once = result[tuple(slice(None) if stride else slice(0, 1) for stride in result.stride())]  # of an expanded one
        once.fill_(math.nan if result.is_floating_point() else 1)


def relative_error(found: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor]) -> float:
    """The worst of the results; infinite for a wrong shape and for NaN or infinity in one only."""
    if [result.shape for result in found] != [result.shape for result in wanted]:
        return math.inf
    return max((_error(ours, exact) for ours, exact in zip(found, wanted, strict=True)), default=0.0)


def _error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    squares = scale = 0.0
    for ours, exact in zip(found.flatten().split(CHUNK), wanted.flatten().split(CHUNK), strict=True):
        ours = ours.to(exact.dtype)
        same = (ours == exact) | (ours.isnan() & exact.isnan())
        difference = ours.double() - exact.double()  # of truth values, too, which torch does not subtract
        squares += torch.where(same, 0.0, difference).square().sum().item()
        scale += torch.where(exact.isfinite(), exact, 0.0).double().square().sum().item()
    return math.sqrt(squares / scale if scale else squares) if math.isfinite(squares) else math.inf


def bound(results: Sequence[torch.Tensor], eager: float | None) -> float:
    """The largest error that counts as right, given eager's and torch's precision of f32 products."""
    bounds = BOUNDS if torch.get_float32_matmul_precision() == "highest" else TF32_BOUNDS
    own = max((bounds.get(result.dtype, 0.0) for result in results), default=0.0)
    return own if eager is None else max(own, min(2 * eager, 10 * own))
