"""nn.Modules, ExportedPrograms and .pt2 files: everything up to the exported graph."""

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import io
import itertools
import logging
import os
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
import torch._dynamo
from torch._functorch import predispatch
from torch.distributions import Distribution
from torch.export import ExportedProgram
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.overrides import TorchFunctionMode

from kitsune_mlir import mlir
from kitsune_mlir.errors import UnsupportedError, UserError
from kitsune_mlir.program import Program

from .forward_derivatives import by_backward
from .guards import is_of_example
from .known_tensors import KnownTensors
from .model_lines import is_library
from .python_numbers import with_numbers_of_tensors
from .recurrent_cells import steps_untraced
from .torch_program import DTYPES, import_exported
from .traced_functions import in_others
from .tracing import tracing, transforms_ended

_Given = tuple[tuple[Any, ...], dict[str, Any]]  # example arguments, by place and by name

_MOST_HELD = 64  # elements of buffers that may be numbers to Python, such as sizes and flags
_OF_TRACES = ("The tensor attribute", "Error detected in")  # begin warnings of what torch itself does while it traces
_FLOATS = {name: dtype for dtype, name in DTYPES.items() if dtype.is_floating_point}


def import_torch(
    model: Any,
    args: Any,
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    dtype: str | None = None,
    name: str | None = None,
) -> Program:
    """The Program of an nn.Module with example arguments, or of an ExportedProgram."""
    if isinstance(model, ExportedProgram):
        if dtype is not None or dynamic_shapes is not None:
            raise UserError("an ExportedProgram has its shapes and types already; export the model with others")
        return import_exported(model, name or "model")
    if not isinstance(model, torch.nn.Module):
        raise UserError(
            f"{f'{name}: ' if name else ''}a model is an nn.Module, an ExportedProgram or a path, "
            f"found one of type {type(model).__name__}"
        )
    name = name or type(model).__name__
    if args is None and not kwargs:
        raise UserError(f"{name}: an nn.Module needs example arguments to be exported with: pass args")
    if isinstance(model, torch.jit.ScriptModule):
        raise UserError(f"{name} is TorchScript, which torch.export does not trace: give the module it was made of")
    args = () if args is None else args
    args = args if isinstance(args, tuple) else tuple(args) if isinstance(args, list) else (args,)
    given = args, dict(kwargs or {})
    if dtype is not None:
        model, given = _cast(model, given, dtype)
    return import_exported(_export(model, given, dynamic_shapes, name), name)


def import_pt2(path: str) -> Program:
    """The Program of a file that torch.export.save wrote."""
    try:
        with tracing(), _quiet():
            exported = torch.export.load(path)
    except Exception as error:
        reason = mlir.first_line(error).partition(" Please ")[0]  # torch's own advice is for its developers
        raise UserError(f"{path} is damaged or not from torch.export.save ({reason}): save it again") from error
    return import_exported(exported, os.path.basename(path))


def _export(model: torch.nn.Module, given: _Given, dynamic_shapes: Any, name: str) -> ExportedProgram:
    _check_tensors(model, given, name)
    given = _distinct(given)
    # What an operator gives of open sizes takes longer to be looked up than computed, as plain_trace.py says.
    open_sizes = {} if dynamic_shapes is None else {"fake_tensor_cache_enabled": False}
    with (
        tracing(),
        torch.no_grad(),
        _quiet(),
        _unchecked_distributions(),
        torch._dynamo.config.patch(open_sizes),
        steps_untraced(),
        transforms_ended() as end_transforms,
    ):
        try:
            with _results_as_tuples(model):
                export = partial(torch.export.export, model, *given, dynamic_shapes=dynamic_shapes, strict=False)
                exported = with_numbers_of_tensors(partial(_with_known_buffers, model, export), end_transforms)
            _check_constants(exported)
            return _of_all_sizes(exported, model, given, dynamic_shapes, end_transforms)
        except Exception as error:
            end_transforms()
            # The other way reads bytecode: it alone traces int() and float() of a tensor.
            with contextlib.suppress(Exception):
                exported = torch.export.export(model, *given, dynamic_shapes=dynamic_shapes, strict=True)
                _check_constants(exported)
                return exported
            end_transforms()
            try:
                found = _export_behind_autograd(model, given, dynamic_shapes)
                if dynamic_shapes is not None and is_of_example(found):
                    end_transforms()
                    with contextlib.suppress(Exception), by_backward():
                        other = _export_behind_autograd(model, given, dynamic_shapes)
                        return found if is_of_example(other) else other
                return found
            except Exception as other:
                end_transforms()
                with contextlib.suppress(Exception), by_backward():
                    return _export_behind_autograd(model, given, dynamic_shapes)
                if isinstance(error, AttributeError):  # torch's own fault, which says nothing of the model
                    error = other
            reason = _reason(error)
            raise UnsupportedError(f"{name}: torch.export cannot trace the model{_line_of(error)}: {reason}") from error


def _of_all_sizes(
    exported: ExportedProgram, model: torch.nn.Module, given: _Given, dynamic_shapes: Any, end: Callable[[], None]
) -> ExportedProgram:
    """A program of the open sizes for which torch took those of the example, as it does for `math.sqrt(n)` of them. The
    other way of tracing knows more; the given program where it knows no better."""
    if dynamic_shapes is not None and is_of_example(exported):
        with contextlib.suppress(Exception):
            found = torch.export.export(model, *given, dynamic_shapes=dynamic_shapes, strict=True)
            _check_constants(found)
            if not is_of_example(found):
                return found
        end()
    return exported


def _check_constants(exported: ExportedProgram) -> None:
    """Raises RuntimeError where a trace took what torch.func computes with for constants, as it does in a model without
    parameters, or its transforms for operators, which no other trace gets through."""
    if any(getattr(node.target, "__module__", None) == predispatch.__name__ for node in exported.graph.nodes):
        raise RuntimeError("transforms of torch.func are left")
    for name, constant in exported.constants.items():
        if isinstance(constant, torch.Tensor) and torch._C._functorch.is_functorch_wrapped_tensor(constant):
            raise RuntimeError(f"{name} is computed with by torch.func")


def _with_known_buffers(model: torch.nn.Module, export: Callable[[], ExportedProgram]) -> ExportedProgram:
    """A trace in which Python may go on by what small buffers hold, but for those that the model changes."""
    held = {name: buffer.detach().clone() for name, buffer in model.named_buffers() if buffer.numel() <= _MOST_HELD}
    exported, changed = _trace(model, export, held)
    if not changed:
        return exported
    return _trace(model, export, {name: buffer for name, buffer in held.items() if name not in changed})[0]


def _trace(
    model: torch.nn.Module, export: Callable[[], ExportedProgram], held: Mapping[str, torch.Tensor]
) -> tuple[ExportedProgram, set[str]]:
    """A trace in which it is known what these buffers hold, and which of them the model changes."""
    known = KnownTensors()
    before: dict[str, tuple[torch.Tensor, int]] = {}
    changed: set[str] = set()

    def begin(model: torch.nn.Module, args: Any) -> None:
        buffers = dict(model.named_buffers())  # the trace's, by now
        before.update((name, (buffers[name], buffers[name]._version)) for name in held)
        known.know((buffers[name] for name in held), held.values())

    def end(model: torch.nn.Module, args: Any, results: Any) -> None:
        known.copies.check()
        buffers = dict(model.named_buffers())
        changed.update(
            name for name, (was, writes) in before.items() if buffers.get(name) is not was or was._version != writes
        )

    hooks = [model.register_forward_pre_hook(begin), model.register_forward_hook(end)]
    try:
        with _AsItCanBeTraced(known), known.copies.before_torch():
            return export(), changed
    finally:
        for hook in hooks:
            hook.remove()


@contextlib.contextmanager
def _results_as_tuples(model: torch.nn.Module) -> Iterator[None]:
    """Within the `with`, dataclasses that the model returns, which torch does not know, are tuples with their names."""

    def known(value: Any) -> Any:
        if dataclasses.is_dataclass(value) and type(value) not in torch.utils._pytree.SUPPORTED_NODES:
            names = [field.name for field in dataclasses.fields(value)]
            return collections.namedtuple(type(value).__name__, names)(*(known(getattr(value, name)) for name in names))
        if type(value) in (list, tuple):
            return type(value)(map(known, value))
        return {key: known(item) for key, item in value.items()} if type(value) is dict else value

    hook = model.register_forward_hook(lambda model, args, results: known(results))
    try:
        yield
    finally:
        hook.remove()


def _export_behind_autograd(model: torch.nn.Module, given: _Given, dynamic_shapes: Any) -> ExportedProgram:
    """A trace of what autograd makes of the model: it alone sees the gradients that torch.autograd.grad and torch.func
    compute within. Results that had gradients of their own, torch would take for a model in training."""

    def detached(model: Any, args: Any, results: Any) -> Any:
        return torch.utils._pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, results)

    hook = model.register_forward_hook(detached)
    try:
        with _results_as_tuples(model):
            return _with_known_buffers(
                model,
                lambda: torch.export._trace._export(
                    model, *given, dynamic_shapes=dynamic_shapes, strict=False, pre_dispatch=False
                ),
            )
    finally:
        hook.remove()


class _AsItCanBeTraced(TorchFunctionMode):
    """Within the `with`, `x.data` is a view of `x`, as averages of weights change it (`self.mean.data.mul_(0.99)`), and
    a tensor that is given another `data` takes its numbers. What torch itself makes of it while it traces is a constant
    of no data, which ends the process where the graph is taken apart. Numbers between two may be an open
    count, for which torch would take the example's; so do functions that `traced_functions` has. Numbers are read of
    tensors of which it is known what they hold."""

    def __init__(self, known: KnownTensors) -> None:
        super().__init__()
        self._known = known

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function == torch.Tensor.data.__get__:
            return args[0].detach()
        if function == torch.Tensor.data.__set__ and (args[0].shape, args[0].dtype) == (args[1].shape, args[1].dtype):
            return args[0].detach().copy_(args[1])
        if getattr(function, "__name__", "") == "__get__":  # what torch itself asks hundreds of times, such as sizes
            return function(*args, **(kwargs or {}))
        if function is torch.linspace and isinstance(_steps(*args, **(kwargs or {})), torch.SymInt):
            return _linspace(*args, **(kwargs or {}))
        found = in_others(function, args, kwargs or {})
        return self._known.call(function, args, kwargs or {}) if found is NotImplemented else found


def _steps(start: Any, end: Any, steps: Any = None, **_: Any) -> Any:
    return None if isinstance(start, torch.Tensor) or isinstance(end, torch.Tensor) else steps


def _linspace(start: float, end: float, steps: torch.SymInt, **options: Any) -> torch.Tensor:
    """As torch has it, the first half from the start and the others from the end."""
    options.setdefault("dtype", torch.get_default_dtype())
    places = torch.arange(steps, **options)
    step = (end - start) / torch.sym_max(steps - 1, 1)
    return torch.where(places < steps // 2, start + step * places, end - step * (steps - 1 - places))


def _distinct(given: _Given) -> _Given:
    """Example arguments of which no two are one tensor: torch.export takes those for one input."""
    seen: set[int] = set()

    def once(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or id(leaf) not in seen:
            seen.add(id(leaf))
            return leaf
        return leaf.detach()

    return torch.utils._pytree.tree_map(once, given)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps torch from printing the graph and from logging a traceback when it fails: the error says it all."""
    logger = logging.getLogger("torch")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            for message in _OF_TRACES:
                warnings.filterwarnings("ignore", message)
            yield
    finally:
        logger.setLevel(level)


@contextlib.contextmanager
def _unchecked_distributions() -> Iterator[None]:
    """Within the `with`, torch.distributions take their arguments as they are: what they check otherwise is a choice by
    numbers that a trace does not have."""
    before = Distribution._validate_args
    Distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        Distribution.set_default_validate_args(before)


def _reason(error: Exception) -> str:
    """The sentence of torch's error that says what is wrong: its first one names only the sizes that are."""
    if isinstance(error, GuardOnDataDependentSymNode):
        return (
            f"it goes on by a number that depends on the data ({error.cond}); "
            "compute both ways and choose by torch.where, or give it a fixed number"
        )
    lines = [line.strip() for line in str(error).splitlines()]
    violated = [line.removeprefix("- ") for line in lines if line.startswith("- ")]
    if not violated or not lines[0].startswith("Constraints violated"):
        return mlir.first_line(error)
    (start,) = [n for n, line in enumerate(lines) if line == "Suggested fixes:"] or [len(lines)]
    fixes = list(itertools.takewhile(bool, lines[start + 1 :]))
    advice = f" (torch suggests {', '.join(fixes)})" if fixes else ""
    if violated[0].startswith("You marked") and "to be a constant (1)" in violated[0]:
        advice = "; take an example of which it is 2 or more"  # torch's advice is to fix it
    return f"{violated[0].partition('. ')[0].removesuffix('.')}{advice}"


def _line_of(error: Exception) -> str:
    """Where it happened, as " at file:line": the innermost frame that is the model's, not torch's or Python's."""
    frames = traceback.extract_tb(error.__traceback__)
    here = os.path.dirname(__file__)
    own = [frame for frame in frames[1:] if not (is_library(frame.filename) or frame.filename.startswith(here))]
    return f" at {own[-1].filename}:{own[-1].lineno}" if own else ""


def _check_tensors(model: torch.nn.Module, given: _Given, name: str) -> None:
    """Raises UserError for tensors without data, for sparse ones, and for those of several devices."""
    first: tuple[str, torch.device] | None = None
    for label, tensor in _tensors(model, given):
        if tensor.device.type == "meta":
            raise UserError(f"{name}: {label} is on the meta device and has no data: load the weights first")
        if first is not None and tensor.device != first[1]:
            raise UserError(
                f"{name}: {first[0]} is on {first[1]} but {label} is on {tensor.device}: move the model and its "
                "arguments to one device"
            )
        if tensor.layout != torch.strided:
            raise UserError(f"{name}: {label} is a sparse tensor: make it a dense one, with to_dense()")
        first = first or (label, tensor.device)


def _tensors(model: torch.nn.Module, given: _Given) -> Iterator[tuple[str, torch.Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()
    for index, leaf in enumerate(torch.utils._pytree.tree_leaves(given)):
        if isinstance(leaf, torch.Tensor):
            yield f"argument {index}", leaf


def _cast(model: torch.nn.Module, given: _Given, dtype: str) -> tuple[torch.nn.Module, _Given]:
    if dtype not in _FLOATS:
        raise UserError(f"there is no floating-point type '{dtype}': give one of {', '.join(_FLOATS)}")

    def cast(leaf: Any) -> Any:
        return leaf.to(_FLOATS[dtype]) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf

    return copy.deepcopy(model).to(_FLOATS[dtype]), torch.utils._pytree.tree_map(cast, given)
