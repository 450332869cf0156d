"""A compiled model that can be called: the Python call on one side, a target's runner on the other.

Used alike by what was just compiled and by what an artifact holds. Needs numpy only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from kitsune_mlir.errors import UserError
from kitsune_mlir.program import Argument, Output, TensorSpec, range_of_symbol, terms_of_symbol
from kitsune_mlir.signature import Signature, flatten_inputs, positional, unflatten
from kitsune_mlir.size_conditions import Condition, is_met, names_of, text

from . import arrays

REMEMBERED = 128  # kinds of inputs on a GPU, whose checks are passed


class Runner(Protocol):
    """Runs @main on one target. Made from a section's manifest and files and `Interface.constants()`. One
    for a GPU has `for_torch` too, for torch tensors there (runtime/gpu.py)."""

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The arguments of @main that are no constants, in order -> all its results in order."""


@dataclass(frozen=True)
class _TorchCall:
    """How a runner is called for inputs of one kind; they are `whole` if they are just what it takes."""

    runner: Any
    run: Callable[[Sequence[Any]], list[Any]]
    whole: bool


@dataclass
class Interface:
    """How a Python call becomes a call of @main: its arguments, its results, and the nesting of both."""

    name: str
    signature: Signature
    arguments: list[Argument] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    conditions: list[Condition] = field(default_factory=list)  # of the open sizes of a call
    _torch_calls: dict[Any, _TorchCall] = field(default_factory=dict, init=False, repr=False, compare=False)
    # Buffers that the model changes, by their arguments, as they are on a GPU; and whether a CUDA graph has them.
    _held: dict[int, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    _in_graph: bool = field(default=False, init=False, repr=False, compare=False)

    @cached_property
    def inputs(self) -> list[TensorSpec]:
        """The tensors that a call gives, in order."""
        return [argument.spec.given for argument in self.arguments if argument.kind == "input"]

    @cached_property
    def results(self) -> list[TensorSpec]:
        """The tensors that a call returns, in order."""
        return [output.spec for output in self.outputs if output.kind == "result"]

    def flat_inputs(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
        """The tensors of a call. Raises UserError when it is not nested like the exported one."""
        if self._flat and not kwargs and len(args) == len(self.inputs):
            return list(args)
        return flatten_inputs(self.signature, *self._in_places(args, kwargs))

    def _in_places(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Sequence[Any], dict[str, Any]]:
        """The arguments of a call, of which tensors that the exported call had by their places may be given by name."""
        args, kwargs = list(args), dict(kwargs)
        for tree in self.signature["args"]["tuple"][len(args) :]:
            name = self.inputs[tree["leaf"]].name if "leaf" in tree else None
            if name not in kwargs:
                break
            args.append(kwargs.pop(name))
        return args, kwargs

    @cached_property
    def _flat(self) -> bool:
        """Whether a call gives its tensors as positional arguments."""
        plain = positional(len(self.inputs), 0)
        return self.signature["args"] == plain["args"] and self.signature["kwargs"] == plain["kwargs"]

    def nest(self, inputs: Sequence[Any]) -> tuple[Sequence[Any], dict[str, Any]]:
        """The other way: the positional and keyword arguments of the call with these tensors."""
        return unflatten(self.signature["args"], inputs), unflatten(self.signature["kwargs"], inputs)

    def flat_results(self, returned: Any) -> list[Any]:
        """The tensors in what a call returned."""
        return flatten_inputs({"args": {"tuple": [self.signature["results"]]}, "kwargs": {"dict": {}}}, (returned,))

    def call(self, runner: Runner, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Runs the model once. Results are torch tensors, on the inputs' device, if any input is one, or if there is
        no input and torch is in use, else numpy arrays. What the model changes in place (an input, a buffer) is
        changed; buffers stay on the GPU until a call from the host, or `settle`.

        Raises UserError for inputs that do not fit the exported model.
        """
        given = self.flat_inputs(args, kwargs)
        call = self._torch_call(runner, given) if hasattr(runner, "for_torch") else None
        if call is None:
            self._check(given)
            results = self._on_host(runner, given)
        else:
            results = call.run(given if call.whole else self._values(given, keep_cuda=True))
        if self._changed:
            self._write_back(results, given)
            results = [value for value, output in zip(results, self.outputs, strict=True) if output.kind == "result"]
        return unflatten(self.signature["results"], results)

    def _on_host(self, runner: Runner, given: Sequence[Any]) -> list[Any]:
        """All results of @main, computed through memory of the host."""
        like_torch = any(arrays.is_torch(value) for value in given) if given else "torch" in sys.modules
        on_gpu = next((value.device for value in given if arrays.is_cuda(value)), None)
        return [
            arrays.from_array(array, output.spec, like_torch, on_gpu)
            for array, output in zip(runner.run(self._values(given, keep_cuda=False)), self.outputs, strict=True)
        ]

    def _torch_call(self, runner: Any, given: Sequence[Any]) -> _TorchCall | None:
        """The call for inputs like these, checked when they are first seen; None if none is torch's on a GPU."""
        key = tuple([arrays.kind(value) for value in given])
        call = self._torch_calls.get(key)
        if call is None or call.runner is not runner:
            if not any(arrays.is_cuda(value) for value in given):
                return None
            self._check(given)
            values = self._values(given, keep_cuda=True)
            run = runner.for_torch(values, [arrays.torch_dtype(output.spec) for output in self.outputs])
            whole = len(values) == len(given) and all(arrays.is_cuda(value) for value in given)
            whole = whole and not any(argument.spec.order for argument in self.arguments)
            call = _TorchCall(runner, run, whole)
            if len(self._torch_calls) >= REMEMBERED:
                self._torch_calls.pop(next(iter(self._torch_calls), None), None)
            self._torch_calls[key] = call
        return call

    def constants(self) -> list[np.ndarray | None]:
        """For each argument of @main its value, or None when every call gives it anew: inputs, and what the
        model changes in place."""
        fed = set(self._fed)
        return [
            None if i in fed else argument.value.view(arrays.storage(argument.spec))
            for i, argument in enumerate(self.arguments)
        ]

    @cached_property
    def _changed(self) -> set[int]:
        """The arguments that the model changes in place."""
        return {output.mutates for output in self.outputs if output.mutates is not None}

    @cached_property
    def _fed(self) -> list[int]:
        """The arguments that every call gives."""
        return [i for i, a in enumerate(self.arguments) if a.kind == "input" or i in self._changed]

    def settle(self) -> None:
        """Gives the arguments the contents of buffers that calls on a GPU have changed. They stay there, too: a CUDA
        graph may read them."""
        for i, held in self._held.items():
            arrays.write(held, self.arguments[i].value)

    def _check(self, given: Sequence[Any]) -> None:
        for value, spec in zip(given, self.inputs, strict=True):
            arrays.check(value, spec)
        _check_symbols(given, self.inputs, self.conditions)

    def _values(self, given: Sequence[Any], keep_cuda: bool) -> list[Any]:
        """What the runner is given: the inputs, converted, among the values that the model changes."""
        inputs = iter(given)
        values: list[Any] = []
        if not keep_cuda:
            self.settle()
        for i in self._fed:
            argument = self.arguments[i]
            if argument.kind != "input":
                values.append(
                    self._on_gpu(i, given) if keep_cuda else argument.value.view(arrays.storage(argument.spec))
                )
                continue
            value = arrays.ordered(next(inputs), argument.spec)
            values.append(value if keep_cuda and arrays.is_cuda(value) else arrays.to_array(value, argument.spec))
        return values

    def _on_gpu(self, number: int, given: Sequence[Any]) -> Any:
        """A buffer that the model changes, where the inputs are."""
        if number not in self._held:
            argument, device = self.arguments[number], next(value.device for value in given if arrays.is_cuda(value))
            self._held[number] = arrays.from_array(argument.value, argument.spec, like_torch=True, device=device)
        return self._held[number]

    def _write_back(self, results: Sequence[Any], given: Sequence[Any]) -> None:
        """Gives what the model changes its new contents. A buffer that is held on a GPU is what was computed, which
        nothing else has; where a CUDA graph reads it where it was, that is written."""
        self._in_graph = self._in_graph or bool(self._held) and arrays.is_captured()
        position = {i: n for n, i in enumerate(i for i, a in enumerate(self.arguments) if a.kind == "input")}
        for value, output in zip(results, self.outputs, strict=True):
            if output.mutates is None:
                continue
            argument, held = self.arguments[output.mutates], self._held.get(output.mutates)
            on_gpu = held is not None and arrays.is_cuda(value)
            into = given[position[output.mutates]] if argument.kind == "input" else held if on_gpu else argument.value
            if arrays.is_torch(into) and arrays.is_torch(value) and into.data_ptr() == value.data_ptr():
                continue  # written in place
            if on_gpu and not self._in_graph:
                self._held[output.mutates] = value
                continue
            arrays.write(value, into)
            if held is not None and not on_gpu:  # computed on the host
                held.copy_(arrays.from_array(argument.value, argument.spec, like_torch=True))


def _check_symbols(values: Sequence[Any], specs: Sequence[TensorSpec], asked: Sequence[Condition]) -> None:
    """Raises UserError when two sizes that the model takes for equal are not, one is out of its range, or they are not
    as it asks."""
    found: dict[str, tuple[int, int, str]] = {}
    for value, spec in zip(values, specs, strict=True):
        for axis, (size, symbol) in enumerate(zip(value.shape, spec.symbols)):
            if symbol is None:
                continue
            least, most = range_of_symbol(symbol)
            if size < least or most is not None and size > most:
                end = f"at most {most}" if size >= least else f"at least {least}"
                raise UserError(f"{spec.name}.shape[{axis}] must be {end}, as the model was exported, found {size}")
            name, times, more = terms_of_symbol(symbol)
            one, rest = divmod(size - more, times)
            if rest:
                raise UserError(
                    f"{spec.name}.shape[{axis}] must be {times} times a number{f' and {more}' if more else ''}, "
                    f"as the model was exported, found {size}"
                )
            first, other, where = found.setdefault(name, (one, size, f"{spec.name}.shape[{axis}]"))
            if one != first:
                wanted = times * first + more
                raise UserError(
                    f"inputs must agree in size: {where} is {other} but {spec.name}.shape[{axis}] is {size}"
                    + (f", not {wanted}" if wanted != other else "")
                )
    for condition in asked:
        sizes = {name: found[name][0] for name in names_of(condition) if name in found}
        if len(sizes) == len(names_of(condition)) and not is_met(condition, sizes):
            called = {name: _called(name, found[name]) for name in sizes}
            raise UserError(
                f"{text(condition, called)} must hold, as the model was exported, found "
                + ", ".join(f"{where} {size}" for _, size, where in map(found.__getitem__, sorted(sizes)))
            )


def _called(name: str, found: tuple[int, int, str]) -> str:
    """What a call has for an open size: that of an input, or what that is computed of."""
    one, size, where = found
    return where if one == size else name


@dataclass(frozen=True)
class Schedule:
    """How pipelines run on a CPU: on so many threads (None: as placed), or `deterministic`, tile by tile in
    the calling thread."""

    threads: int | None = None
    deterministic: bool = False


def make_runner(
    kind: str, manifest: dict[str, Any], files: dict[str, bytes], interface: Interface, schedule: Schedule
) -> Runner:
    """The runner of a section for a target of that kind ("cpu" or "gpu") on this machine.

    Raises UserError or UnsupportedError when the machine cannot run it.
    """
    if kind == "cpu":
        from .cpu import CpuRunner

        return CpuRunner(
            manifest, files, interface.constants(), threads=schedule.threads, deterministic=schedule.deterministic
        )
    from .gpu import GpuRunner

    return GpuRunner(manifest, files, interface.constants())
