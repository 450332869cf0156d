"""A compiled model whose GPU kernels run in the simulator."""

from __future__ import annotations

from kitsune_mlir import mlir
from kitsune_mlir.compiler import CONVERT, Compiled
from kitsune_mlir.errors import UserError
from kitsune_mlir.loaded import Loaded
from kitsune_mlir.runtime.executable import Runner
from kitsune_mlir.runtime.gpu import GpuRunner

from .device import SimulatedDevice


class Simulation(Loaded):
    """Called like the model. Each call launches the kernels in an order of its own, and finds what the last one left.

    `target` is one of the GPU targets that the model was compiled for, by default the first. `seed` begins the random
    orders in which CTAs, warps and copies take turns. A call raises MemoryFault or Deadlock for a kernel with a bug,
    UnsupportedError for one that the simulator cannot run, UserError for inputs that do not fit the model.
    """

    def __init__(self, compiled: Compiled, target: str | None = None, *, seed: int = 0):
        if not isinstance(compiled, Compiled):
            raise UserError("an artifact does not hold the IR that is simulated: compile the model it was made from")
        super().__init__(compiled._content)
        self._compiled, self._seed = compiled, seed
        self.devices: dict[str, SimulatedDevice] = {}  # by target
        gpus = [name for name, kind in self._content.kinds.items() if kind == "gpu"]
        if target is None and not gpus:
            raise UserError(f"kernels of a GPU are simulated, compiled for: {', '.join(self.targets)}")
        self.target = target or gpus[0]

    def _runner(self, name: str) -> Runner:
        if self._content.kinds[name] != "gpu":
            raise UserError(f"kernels of a GPU are simulated, and {name} is none")
        if name not in self._runners:
            module = self._compiled.module(f"{name}:{CONVERT['gpu'][-1]}", mlir.kept_context())
            device = self.devices[name] = SimulatedDevice(module, self._seed)
            section = self._content.sections[name]
            self._runners[name] = GpuRunner(section.manifest, section.files, self.interface.constants(), device)
        return self._runners[name]
