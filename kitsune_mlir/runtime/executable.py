"""A compiled model that can be called: the Python call on one side, a target's runner on the other.

Used alike by what was just compiled and by what an artifact holds. Needs numpy only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from kitsune_mlir.program import Argument, Output, TensorSpec
from kitsune_mlir.signature import Signature, flatten_inputs, unflatten

from . import arrays


class Runner(Protocol):
    """Runs @main on one target. Made from a section's manifest and files and from `constants`: for each
    argument of @main an array, or None for an input."""

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The inputs of @main in order -> all its results in order."""


@dataclass
class Interface:
    """How a Python call becomes a call of @main: its arguments, its results, and the nesting of both."""

    name: str
    signature: Signature
    arguments: list[Argument] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)

    @property
    def inputs(self) -> list[TensorSpec]:
        """The tensors that a call gives, in order."""
        return [argument.spec for argument in self.arguments if argument.kind == "input"]

    @property
    def results(self) -> list[TensorSpec]:
        """The tensors that a call returns, in order."""
        return [output.spec for output in self.outputs if output.kind == "result"]

    def flat_inputs(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
        """The tensors of a call. Raises UserError when it is not nested like the exported one."""
        return flatten_inputs(self.signature, args, kwargs)

    def nest(self, inputs: Sequence[Any]) -> tuple[Sequence[Any], dict[str, Any]]:
        """The other way: the positional and keyword arguments of the call with these tensors."""
        return unflatten(self.signature["args"], inputs), unflatten(self.signature["kwargs"], inputs)

    def flat_results(self, returned: Any) -> list[Any]:
        """The tensors in what a call returned."""
        return flatten_inputs({"args": {"tuple": [self.signature["results"]]}, "kwargs": {"dict": {}}}, (returned,))

    def call(self, runner: Runner, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Runs the model once. Results are torch tensors if any input is one, else numpy arrays.

        What the model changes in place (an input, a buffer) is changed. Raises UserError for inputs that
        do not fit the exported model.
        """
        given = self.flat_inputs(args, kwargs)
        found = runner.run([arrays.to_array(value, spec) for value, spec in zip(given, self.inputs, strict=True)])
        like_torch = any(arrays.is_torch(value) for value in given)
        self._write_back(found, given)
        results = [
            arrays.from_array(array, output.spec, like_torch)
            for array, output in zip(found, self.outputs, strict=True)
            if output.kind == "result"
        ]
        return unflatten(self.signature["results"], results)

    def _write_back(self, found: Sequence[np.ndarray], given: Sequence[Any]) -> None:
        position = {i: n for n, i in enumerate(i for i, a in enumerate(self.arguments) if a.kind == "input")}
        for array, output in zip(found, self.outputs, strict=True):
            if output.mutates is None:
                continue
            argument = self.arguments[output.mutates]
            if argument.kind == "input":
                arrays.write_back(array, argument.spec, given[position[output.mutates]])
            else:
                np.copyto(argument.value, array.view(argument.value.dtype))


def make_runner(kind: str, manifest: dict[str, Any], files: dict[str, bytes], interface: Interface) -> Runner:
    """The runner of a section for a target of that kind ("cpu" or "gpu") on this machine.

    Raises UserError or UnsupportedError when the machine cannot run it.
    """
    constants = [
        None if argument.value is None else argument.value.view(arrays.storage(argument.spec))
        for argument in interface.arguments
    ]
    if kind == "cpu":
        from .cpu import CpuRunner

        return CpuRunner(manifest, files, constants)
    from .gpu import GpuRunner

    return GpuRunner(manifest, files, constants)
