"""Forward derivatives (`torch.func.jvp`, `jacfwd`, `hessian`) by two that go backward.

What torch makes of a forward derivative asks for sizes as numbers, so that a trace takes those of the example for open
ones. The derivative of a function in a direction is also that of its pulled-back derivative, which is linear in what
is pulled back; of that linear function's argument nothing is left in the graph.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._functorch import eager_transforms
from torch.utils._pytree import tree_map


@contextlib.contextmanager
def by_backward() -> Iterator[None]:
    """Within the `with`, forward derivatives go backward. For one thread at a time, as all tracing."""
    ours = {"_jvp_with_argnums": _in_direction, "jacfwd": torch.func.jacrev, "jacrev": _gradient}
    before = {name: getattr(eager_transforms, name) for name in ours}
    for name, function in ours.items():
        setattr(eager_transforms, name, function)
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(eager_transforms, name, function)


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
