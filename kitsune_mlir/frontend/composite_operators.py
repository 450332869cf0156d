"""What torch prepares of its composite operators to take a graph apart, kept from one graph to the next.

`ExportedProgram.run_decompositions` lists the composite operators that torch knows, and for the time of the trace
gives each of the five hundred that no table names a dozen Python kernels, so that they stay whole. Nothing of that
depends on the graph, and it takes as long as a small model's whole import. Here the list is made again when operators
have been registered since, and the kernels are made when an operator has others than it had before. A table of
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
class _Prepared:
    """Operators with their rules, as two lists, and what torch makes of these: each operator's Python kernels by
    dispatch key, without the rule and with it, and rules for fake tensors, which come to `fakes` others.

    Lists are compared by identity, and dictionaries are copied whole, for torch hashes an operator in Python: to look
    five hundred up a few times takes as long as to trace a layer."""

    operators: list[Any]
    rules: list[Callable[..., Any]]
    kernels: list[tuple[dict[Any, Any], dict[Any, Any]]]
    fake: dict[Any, Callable[..., Any]]
    fakes: int

    def fits(self, operators: list[Any], rules: list[Callable[..., Any]]) -> bool:
        return (
            self.operators == operators
            and self.rules == rules
            and len(fake_impls.op_implementations_dict) == self.fakes
            and all(op.py_kernels == before for op, (before, _) in zip(operators, self.kernels, strict=True))
        )


_prepared: _Prepared | None = None
_listed: tuple[Any, frozenset[Any]] = None, frozenset()
_divided: tuple[Any, tuple[Rules, ...]] = None, ()
_with_kernels: tuple[Any, list[Any]] = None, []


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


def divided(table: Rules) -> tuple[Rules, Rules]:
    """The rules of composite operators, and those that a plain trace looks up: the others, and those of composite
    operators that torch computes by kernels of their own, where such a trace finds no rule."""
    global _with_kernels
    composite, others = exported_program._split_decomp_table_to_cia_and_python_decomp(table)
    listed = list(composite)
    if _with_kernels[0] != listed:
        has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
        _with_kernels = listed, [op for op in listed if has_kernel(op.name(), "CPU")]
    return composite, others | {op: composite[op] for op in _with_kernels[1]}


def _registered() -> Any:
    """What the list depends on."""
    return torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd"), tuple(torch.ops._dir)


@contextlib.contextmanager
def _ruled(rules: Rules) -> Iterator[None]:
    """Within the `with`, the operators are taken apart by these rules."""
    global _prepared
    operators, functions = list(rules), list(rules.values())
    if _prepared is not None and _prepared.fits(operators, functions):
        with _in_place(_prepared):
            yield
        return
    before, known = [dict(op.py_kernels) for op in operators], fake_impls.op_implementations_dict
    with _torch_ruled(rules):
        kernels = [(own, dict(op.py_kernels)) for op, own in zip(operators, before, strict=True)]
        fake = {op: known[op] for op in operators if op in known}
        yield
    _prepared = _Prepared(operators, functions, kernels, fake, len(known))


@contextlib.contextmanager
def _in_place(prepared: _Prepared) -> Iterator[None]:
    """Within the `with`, the operators have the kernels that are prepared."""
    known = fake_impls.op_implementations_dict
    before = dict(known)
    own = [op.py_kernels for op in prepared.operators]  # put aside: to fill them again would take longer
    try:
        for op, (_, within) in zip(prepared.operators, prepared.kernels, strict=True):
            op.py_kernels = dict(within)
            op._dispatch_cache.clear()
        known.update(prepared.fake)
        yield
    finally:
        for op, kernels in zip(prepared.operators, own, strict=True):
            op.py_kernels = kernels
            op._dispatch_cache.clear()
        known.clear()
        known.update(before)
