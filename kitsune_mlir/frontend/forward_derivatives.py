"""Forward derivatives (`torch.func.jvp`, `jacfwd`, `hessian`) by two that go backward.

What torch makes of a forward derivative asks for sizes as numbers, so that a trace takes those of the example for open
ones. The derivative of a function in a direction is also that of its pulled-back derivative, which is linear in what
is pulled back; of that linear function's argument nothing is left in the graph. Of normalisation over a batch or an
image torch asks for sizes as numbers there, too: it is written out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch._functorch import eager_transforms
from torch.nn import functional
from torch.utils._pytree import tree_map


@contextlib.contextmanager
def by_backward() -> Iterator[None]:
    """Within the `with`, forward derivatives go backward. For one thread at a time, as all tracing."""
    ours = {"_jvp_with_argnums": _in_direction, "jacfwd": torch.func.jacrev, "jacrev": _gradient}
    with contextlib.ExitStack() as changed:
        for name, function in ours.items():
            changed.enter_context(mock.patch.object(eager_transforms, name, function))
        changed.enter_context(mock.patch.multiple(functional, **_OURS))
        yield


def _in_direction(
    function: Callable[..., Any],
    primals: tuple[Any, ...],
    tangents: Any,
    argnums: Any,
    *,
    strict: bool = False,
    has_aux: bool = False,
) -> tuple[Any, ...]:
    """The results, their derivative along the tangents of the arguments that are numbered, all of them for None, and
    what the function gives besides."""
    numbers = range(len(primals)) if argnums is None else argnums if isinstance(argnums, tuple) else (argnums,)
    places = {number % len(primals): i for i, number in enumerate(numbers)}

    def of_numbered(*given: Any) -> Any:
        return function(*(given[places[i]] if i in places else primal for i, primal in enumerate(primals)))

    results, pull, *aux = torch.func.vjp(of_numbered, *(primals[number] for number in numbers), has_aux=has_aux)
    _, push = torch.func.vjp(pull, tree_map(torch.zeros_like, results))
    (moved,) = push(tuple(tangents) if isinstance(tangents, (tuple, list)) else (tangents,))
    return (results, moved, *aux)


def _gradient(function: Callable[..., Any], argnums: Any) -> Callable[..., Any]:
    """What a Hessian is the derivative of: the gradient of a single number, or else torch's own Jacobian."""

    def found(*args: Any) -> Any:
        try:
            return torch.func.grad(function, argnums)(*args)
        except RuntimeError:
            return torch.func.jacrev(function, argnums)(*args)

    return found


_of_torch = {name: getattr(functional, name) for name in ("batch_norm", "instance_norm")}


def _written_out(name: str, first: int) -> Callable[..., Tensor]:
    """Normalisation of x[n, channels, ...] by mean and variance over n, but for `first` dimensions in front, and over
    what is behind the channels; torch's own where it changes a running mean."""

    def normalised(
        x: Tensor,
        running_mean: Tensor | None = None,
        running_var: Tensor | None = None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        of_input: bool = bool(first),
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Tensor:
        if running_mean is not None and of_input:
            return _of_torch[name](x, running_mean, running_var, weight, bias, of_input, momentum, eps)
        across = [d for d in range(first, x.dim()) if d != 1]
        along = [-1 if d == 1 else 1 for d in range(x.dim())]
        off = x - (x.mean(across, keepdim=True) if of_input else running_mean.view(along))
        variance = (off * off).mean(across, keepdim=True) if of_input else running_var.view(along)
        found = off * torch.rsqrt(variance + eps)
        found = found if weight is None else found * weight.view(along)
        return found if bias is None else found + bias.view(along)

    return normalised


_OURS = {"batch_norm": _written_out("batch_norm", 0), "instance_norm": _written_out("instance_norm", 1)}
