"""Operators of lists of tensors (`torch._foreach_add`), which optimizers call: one operator for each tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten

_BY_NAME: dict[str, Callable[..., Tensor]] = {
    "addcdiv": lambda x, a, b, value=1: x + a / b * value,
    "addcmul": lambda x, a, b, value=1: x + a * b * value,
    "copy": lambda x, source, non_blocking=False: source.expand(x.shape).to(x.dtype),
    "max": lambda x: x.amax(),
    "maximum": lambda x, least: torch.clamp(x, min=least),
    "minimum": lambda x, most: torch.clamp(x, max=most),
    "norm": lambda x, order=2, dtype=None: torch.linalg.vector_norm(x, order, dtype=dtype),
    "zero": lambda x: torch.zeros_like(x),
}


def _of_each(operator: torch._ops.OpOverload, single: Callable[..., Tensor]) -> Callable[..., list[Tensor]]:
    """The rule of an operator of lists, of tensors or numbers, which are taken one by one."""
    arguments = operator._schema.arguments
    lists = {argument.name for argument in arguments if isinstance(argument.type, torch.ListType)}
    names = [argument.name for argument in arguments]

    def run(*args: Any, **options: Any) -> list[Tensor]:
        count = next(len(value) for name, value in (*zip(names, args), *options.items()) if name in lists)

        def each(name: str, value: Any, i: int) -> Any:
            return value[i] if name in lists else value

        return [
            single(
                *(each(name, value, i) for name, value in zip(names, args)),
                **{name: each(name, value, i) for name, value in options.items()},
            )
            for i in range(count)
        ]

    return run


def _rules() -> dict[Any, Callable[..., Any]]:
    rules: dict[Any, Callable[..., Any]] = {}
    for qualified in torch._C._dispatch_get_all_op_names():
        name, _, overload = qualified.removeprefix("aten::_foreach_").partition(".")
        single = _BY_NAME.get(name) or getattr(torch, name, None)
        if not qualified.startswith("aten::_foreach_") or name.endswith("_") or single is None or "out" in overload:
            continue
        operator = getattr(getattr(aten, f"_foreach_{name}"), overload or "default")
        rules[operator] = _of_each(operator, single)
    return rules


TENSOR_LISTS = _rules()
