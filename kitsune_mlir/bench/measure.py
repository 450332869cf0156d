"""One case from its model to a record (see record.py): sides made ready, numbers checked, then timed in turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_map

from kitsune_mlir.planning import target as targets

from . import check, floor
from .cases import TORCH_MODES, Case
from .compilation import Compilation, set_up
from .device import Call, GpuLostError, Machine
from .kernels import beside
from .limit import TimeLimit, time_limit
from .record import compare, describe
from .sides import OURS, Side, matmul_precision, our_builders, tensors, torch_builders

MIN_ROUNDS = 5
PROFILED = 10  # runs


@dataclass(frozen=True)
class Settings:
    """How cases are measured."""

    target: str = "sm_90a"
    modes: Sequence[str] = TORCH_MODES
    temperatures: Sequence[str] = ("warm", "cold")
    repeat: int = 30
    timing_seconds: float = 20.0  # a case's timing stops after that, and MIN_ROUNDS rounds
    limit_seconds: float = 180.0  # for making one side ready
    options: Mapping[str, str] = field(default_factory=dict)  # of passes
    rates: floor.Rates | None = None  # for the floor; None: the target's
    seed: int = 0
    kernels: bool = False  # whether each of our kernels is timed by itself, too
    matmul_precision: str | None = None  # of f32 products, torch's and ours; None: as torch is set


def measure(case: Case, machine: Machine, settings: Settings, say: Callable[[str], None]) -> dict[str, Any]:
    """The record of a case; `say` is told what is being done. A side that fails does not stop the others.

    Raises UserError for a model that cannot be made, GpuLostError when the GPU itself has died.
    """
    with matmul_precision(None):  # a model's file may set torch's, for itself
        return _measure(case, machine, settings, say)


def make(case: Case, settings: Settings) -> tuple[Any, tuple[Any, ...], Any]:
    """The case's model, its weights and inputs as the seed gives them. From here on torch, and what is compiled for its
    setting, computes products of f32 as asked for, those of convolutions too: cuDNN's are in tf32 unless told."""
    torch.manual_seed(settings.seed)
    made = case.make()
    if settings.matmul_precision is not None:
        torch.set_float32_matmul_precision(settings.matmul_precision)
    torch.backends.cudnn.allow_tf32 = torch.get_float32_matmul_precision() != "highest"
    return made


def _measure(case: Case, machine: Machine, settings: Settings, say: Callable[[str], None]) -> dict[str, Any]:
    say("setting up")
    setup = set_up(machine, settings.target)
    say("making the model")
    module, args, shapes = make(case, settings)
    ours = Compilation(module, args, shapes, settings.target, {**settings.options, **case.form})
    kind = _dtype(module, args)
    precision = torch.get_float32_matmul_precision()
    record: dict[str, Any] = {"case": case.name, "dtype": str(kind).removeprefix("torch."), "target": settings.target}
    record["matmul_precision"] = precision
    with torch.no_grad():
        say("compiling")
        first = _ready("kitsune", ours.run, machine, settings)  # from the CPU's copy, before it moves
        module = machine.move(module)
        args = tree_map(lambda leaf: machine.move(leaf) if isinstance(leaf, torch.Tensor) else leaf, args)
        rates = settings.rates or floor.Rates.of(targets.load(settings.target), kind, precision)
        record["floor"] = floor.floor(floor.count(module, args), rates)
        sides = []
        builders = torch_builders(machine, module, args, settings.modes) | our_builders(machine, ours.get, args)
        for name, builder in builders.items():
            say(f"making ready: {name}")
            sides.append(_ready(name, builder, machine, settings))
        for side in sides:
            if side.name in OURS:
                side.ready_seconds += first.ready_seconds
                side.said = first.said or side.said
        say("the reference")
        check.refresh(args, settings.seed + 1)
        record |= check_sides(sides, module, args, machine, say)
        say("timing")
        _time(sides, machine, settings)
        if settings.kernels:
            say("timing kernels")
            record["kernels"] = _kernels(sides, ours.get().plan.get("launches", []), machine)
    record["sides"] = {side.name: describe(side) for side in sides}
    record["setup"] = setup
    record |= ours.describe()
    predicted = record.get("plan", {}).get("predicted_us")
    return record | compare(sides, record["floor"]["ms"], predicted, settings.temperatures)


def _dtype(module: torch.nn.Module, args: Any) -> torch.dtype:
    """The type that a model computes in: that of most of its numbers, its inputs' when it has no weights."""
    sizes: dict[torch.dtype, int] = {}
    for tensor in [*module.parameters()] or tensors(args):
        if tensor.is_floating_point():
            sizes[tensor.dtype] = sizes.get(tensor.dtype, 0) + tensor.numel()
    return max(sizes, key=lambda kind: sizes[kind], default=torch.float32)


def _ready(name: str, builder: Callable[[], Call], machine: Machine, settings: Settings) -> Side:
    side = Side(name)
    start = time.perf_counter()
    try:
        with time_limit(settings.limit_seconds):
            side.call = builder()
            machine.wait()
    except (Exception, TimeLimit) as error:  # a side that fails is a result too
        side.said = _words(error)
        _survived(machine, side)
    side.ready_seconds = time.perf_counter() - start
    return side


def check_sides(
    sides: Sequence[Side],
    module: torch.nn.Module,
    args: Any,
    machine: Machine,
    say: Callable[[str], None] = lambda words: None,
) -> dict[str, Any]:
    """Gives each side its error beside the model in float64, and to one that is wrong or fails why it is not timed. In
    the record: what the reference is, the largest error that is right, and how many rows were compared."""
    wanted, kind = check.reference(module, args)
    keep = [*tensors(args), *module.parameters(), *module.buffers()]
    allowed = 0.0
    for side in sides:  # eager, when asked for, is the first
        if side.said:
            continue
        say(f"checking: {side.name}")
        try:
            found = check.poisoned_run(side.call, keep)
            side.error = check.relative_error(found, wanted)
            allowed = allowed or check.bound(found, side.error if side.name == "eager" else None)
            if not side.error <= allowed:
                side.said = f"wrong: relative error {side.error:.1e}, allowed {allowed:.1e}"
        except Exception as error:
            side.said = _words(error)
            _survived(machine, side)
    rows = {len(result) for result in wanted if result.dim()}
    return {"reference": kind, "bound": allowed, "checked_rows": max(rows, default=1)}


def _time(sides: Sequence[Side], machine: Machine, settings: Settings) -> None:
    """In turns, so that all sides see the same clocks."""
    start = time.perf_counter()
    for done in range(settings.repeat):
        if done >= MIN_ROUNDS and time.perf_counter() - start > settings.timing_seconds:
            return
        for temperature in settings.temperatures:
            for side in sides:
                if side.said:
                    continue
                try:
                    elapsed = machine.time(side.call, cold=temperature == "cold")
                    side.milliseconds.setdefault(temperature, []).append(elapsed)
                except Exception as error:
                    side.said = _words(error)
                    side.milliseconds.clear()
                    _survived(machine, side)


def _kernels(sides: Sequence[Side], launches: Sequence[dict[str, Any]], machine: Machine) -> list[dict[str, Any]]:
    """The plan's launches as measured in our fastest side; none when both failed, or the plan has none."""
    ours = [side for side in sides if side.name in OURS and side.milliseconds]
    if not ours or not launches:
        return []
    times = {side.name: min(map(statistics.median, side.milliseconds.values())) for side in ours}
    fastest = min(ours, key=lambda side: times[side.name])
    return beside(launches, machine.trace(fastest.call, PROFILED), times[fastest.name] * 1e3)


def _survived(machine: Machine, side: Side) -> None:
    try:
        machine.wait()
    except Exception as error:
        raise GpuLostError(f"the GPU is lost to this process after side '{side.name}': {side.said}") from error


def _words(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
