"""A compiled model without its compiler: what an artifact gives, and the base of what `compile` gives."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from . import __version__
from .errors import UnsupportedError, UserError
from .plan_report import report
from .runtime import artifact
from .runtime.executable import Interface, Runner, Schedule, make_runner
from .runtime.gpu import GpuRunner


class Loaded:
    """A callable model. Calls take and give what the exported model's do, numpy or torch.

    A call runs on `target`, which may be set; by default the first of `targets` that this machine can
    run. The runner of a target is made at its first call.
    """

    def __init__(self, content: artifact.Content):
        self._content = content
        self._runners: dict[str, Runner] = {}
        self._target: str | None = None
        self._schedule = Schedule()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the model once. Raises UserError for inputs that do not fit it, row numbers outside of a table among
        them: where results stay on a GPU, whose work a call does not wait for, the next call or `synchronize` raises
        it."""
        return self._content.interface.call(self._runner(self.target), args, kwargs)

    def synchronize(self) -> None:
        """Waits for the GPU, if calls ran on one. Raises UserError for a row number outside of its table in a call so
        far."""
        for runner in self._runners.values():
            if isinstance(runner, GpuRunner):
                runner.synchronize()

    @property
    def interface(self) -> Interface:
        """Its inputs and results, and how a call nests them."""
        return self._content.interface

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets it was compiled for."""
        return tuple(self._content.sections)

    @property
    def target(self) -> str:
        """The target that calls run on. Raises UserError when this machine can run none."""
        if self._target is None:
            self._target = self._first_runnable()
        return self._target

    @target.setter
    def target(self, name: str) -> None:
        self._require(name)
        self._runner(name)
        self._target = name

    def schedule(self, *, threads: int | None = None, deterministic: bool = False) -> None:
        """How CPU calls run from now on: pipelines on so many threads (None: as placed), or `deterministic`,
        tile by tile in the calling thread. Raises UserError for anything else than a number of threads."""
        if threads is not None and (not isinstance(threads, int) or threads < 1):
            raise UserError(f"threads must be at least 1, found {threads!r}")
        self._schedule = Schedule(threads, deterministic)
        for name, kind in self._content.kinds.items():
            if kind == "cpu":
                self._runners.pop(name, None)

    @property
    def plan(self) -> dict[str, Any]:
        """The plan (kitsune_mlir.plan) for its target; `plans` has those of all targets."""
        return self.plans[self._target or self.targets[0]]

    @property
    def plans(self) -> dict[str, dict[str, Any]]:
        """Plans by target name."""
        return self._content.plans

    @property
    def ptx(self) -> str:
        """The PTX of its GPU target. Raises UserError without one, or with several (see `file`)."""
        gpus = [name for name, kind in self._content.kinds.items() if kind == "gpu"]
        if len(gpus) != 1:
            raise UserError(f"'ptx' wants exactly one GPU target, compiled for: {', '.join(self.targets)}")
        files = self._content.sections[gpus[0]].files
        return "\n".join(data.decode() for name, data in sorted(files.items()) if name.endswith(".ptx"))

    def report(self) -> str:
        """The plans of all targets as text for people."""
        return "\n\n".join(report(plan) for plan in self.plans.values())

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the artifact, whole or not at all; `digest` is then the file's. Raises UserError when it cannot."""
        artifact.save(self._content, path, __version__)
        return Path(path)

    @property
    def digest(self) -> str:
        """The sha256 of the manifest, and by its checksums of everything, in the file that this was loaded from or
        saved to last: what `load` takes. Raises UserError when it was neither loaded nor saved."""
        if not self._content.digest:
            raise UserError("a compiled model has a digest once it is saved")
        return self._content.digest

    def _require(self, name: str) -> None:
        if name not in self.targets:
            raise UserError(f"not compiled for target '{name}'; compiled for: {', '.join(self.targets)}")

    def _runner(self, name: str) -> Runner:
        if name not in self._runners:
            section = self._content.sections[name]
            self._runners[name] = make_runner(
                self._content.kinds[name], section.manifest, section.files, self.interface, self._schedule
            )
        return self._runners[name]

    def _first_runnable(self) -> str:
        refusals = []
        for name in self.targets:
            try:
                self._runner(name)
                return name
            except (UserError, UnsupportedError) as error:
                refusals.append(f"{name}: {error}")
        raise UserError(f"this machine runs none of its targets ({'; '.join(refusals)})")


def load(path: str | os.PathLike[str], *, digest: str | None = None) -> Loaded:
    """The model in an artifact. Load only what you trust: it holds native code, which the first call runs.

    With `digest` (Loaded.digest, or what `kitsune report` prints) the file must be the very one that had it. Raises
    UserError for a file that is no artifact, is damaged, does not fit itself, or has another digest.
    """
    return Loaded(artifact.load(path, digest))
