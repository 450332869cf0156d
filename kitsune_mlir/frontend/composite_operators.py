"""What torch prepares of its composite operators to take a graph apart, kept from one graph to the next.

`ExportedProgram.run_decompositions` lists the composite operators that torch knows, and for the time of the trace
gives each of the five hundred that no table names a dozen Python kernels, so that they stay whole. Nothing of that
depends on the graph, and it takes as long as a small model's whole import. Here the list is made again when operators
have been registered since, and the kernels of an operator are made when it has others than it had before. A table of
decompositions is divided, into rules of composite operators and others, when it is another than the last one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses import fake_impls
from torch.export import exported_program

Rules = dict[Any, Callable[..., Any]]


@dataclass(frozen=True)
class _Kernels:
    """An operator's Python kernels by dispatch key, without the rule and with it, and its rule for fake tensors."""

    rule: Callable[..., Any]
    before: dict[Any, Any]
    within: dict[Any, Any]
    fake: Callable[..., Any] | None

    def fits(self, operator: Any, rule: Callable[..., Any]) -> bool:
        return (
            self.rule is rule
            and operator.py_kernels == self.before
            and operator not in fake_impls.op_implementations_dict
        )


_kernels: dict[Any, _Kernels] = {}
_listed: tuple[Any, frozenset[Any]] = None, frozenset()
_divided: tuple[Any, tuple[Rules, ...]] = None, ()


_torch_ruled = getattr(exported_program, "_override_composite_implicit_decomp", None)
_torch_operators = getattr(exported_program, "_collect_all_valid_cia_ops", None)
_torch_divided = getattr(exported_program, "_split_decomp_table_to_cia_and_python_decomp", None)


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Within the `with`, torch takes what is kept, if it is a torch that has these functions. For one thread at a time,
    as all tracing."""
    if _torch_ruled is None or _torch_operators is None or _torch_divided is None:
        yield
        return
    exported_program._override_composite_implicit_decomp = _ruled
    exported_program._collect_all_valid_cia_ops = _operators
    exported_program._split_decomp_table_to_cia_and_python_decomp = _divide
    try:
        yield
    finally:
        exported_program._override_composite_implicit_decomp = _torch_ruled
        exported_program._collect_all_valid_cia_ops = _torch_operators
        exported_program._split_decomp_table_to_cia_and_python_decomp = _torch_divided


def _operators() -> frozenset[Any]:
    """The composite operators that can stay whole."""
    global _listed
    if _listed[0] != _registered():
        listed = frozenset(_torch_operators())
        _listed = _registered(), listed  # asked again, for listing them opens namespaces
    return _listed[1]


def _divide(table: Rules) -> tuple[Rules, ...]:
    """The rules of composite operators, and the others. Lists are compared by identity, which hashes no operator."""
    global _divided
    key = list(table), list(table.values()), _operators()
    if _divided[0] != key:
        _divided = key, _torch_divided(dict(table))
    return tuple(map(dict, _divided[1]))


def _registered() -> Any:
    """What the list depends on."""
    return torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd"), tuple(torch.ops._dir)


@contextlib.contextmanager
def _ruled(rules: Rules) -> Iterator[None]:
    """Within the `with`, the operators are taken apart by these rules."""
    known = {op: rule for op, rule in rules.items() if op in _kernels and _kernels[op].fits(op, rule)}
    others = {op: rule for op, rule in rules.items() if op not in known}
    before = {op: dict(op.py_kernels) for op in others}
    with _torch_ruled(others):
        for op, rule in others.items():
            _kernels[op] = _Kernels(rule, before[op], dict(op.py_kernels), fake_impls.op_implementations_dict.get(op))
        try:
            for op in known:
                _become(op, _kernels[op].within)
                if (fake := _kernels[op].fake) is not None:
                    fake_impls.op_implementations_dict[op] = fake
            yield
        finally:
            for op in known:
                _become(op, _kernels[op].before)
                fake_impls.op_implementations_dict.pop(op, None)


def _become(operator: Any, kernels: dict[Any, Any]) -> None:
    operator.py_kernels.clear()
    operator.py_kernels.update(kernels)
    operator._dispatch_cache.clear()
