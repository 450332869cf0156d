"""Whether a random network's results are right, beside float64 and torch's own: see fuzz.py."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from kitsune_mlir.bench.random_nets import Net, arguments

FLOOR = {"f32": 5e-6, "bf16": 4e-3, "f16": 5e-4}  # errors below are never wrong: about a rounding of the result
TIMES = 2.0
HIGH_FLOOR = 2e-3  # f32 whose products are of tf32, several after one another; a CPU's torch has none
FEW_ROWS, DRAWS = 16, 12  # rows of nets that are wrong where they are so on average, over so many draws of arguments
RIGHT, WRONG, DECLINED = "right", "wrong", "declined"


@dataclass
class Task:
    """A net to compile and check: its seed, the folder for its artifact, and whether to time it."""

    net: Net
    seed: int
    folder: str
    target: str
    timed: bool = False
    kernels: bool = False  # whether each kernel is timed by itself, too
    launches: int = 2  # in the simulator; the second finds what the first left
    times: float = TIMES  # torch's own error that ours may be; half as many times the floor
    roles: bool = False  # whether stages are to have CTAs of their own


@dataclass
class Found:
    """What became of a net. `verdict` is RIGHT or says in a word or two what is wrong, `said` more of it."""

    task: Task
    verdict: str
    said: str = ""
    error: float = 0.0
    torch_error: float = 0.0
    seconds: float = 0.0  # to compile
    ours_ms: float = 0.0
    torch_ms: float = 0.0
    predicted_ms: float = 0.0
    forms: dict[str, int] = field(default_factory=dict)  # kernels of pipelines, of roles, of single operators
    kernels: list[dict[str, Any]] = field(default_factory=list)  # the plan's launches, measured

    @property
    def ratio(self) -> float:
        """Torch's time over ours."""
        return self.torch_ms / self.ours_ms if self.ours_ms else 0.0


def judge(found: Found, module: Any, args: Any, results: Any, run: Callable[..., Any]) -> None:
    """Compares results; of few rows on average over more runs, where those of these arguments are wrong."""
    _compare(found, module, args, results)
    if found.verdict == WRONG and found.task.net.rows <= FEW_ROWS and math.isfinite(found.error):
        _compare_on_average(found, module, run, args[0].device)


def _compare(found: Found, module: Any, args: Any, results: Any) -> None:
    """Puts the worst result's error, torch's own and the verdict into `found`."""
    import torch

    with torch.no_grad():
        own = leaves(module(*args))
        exact = copy.deepcopy(module).double()
        wanted = leaves(exact(*(value.double() if value.is_floating_point() else value for value in args)))
    for number, (a, b, c) in enumerate(zip(leaves(results), own, wanted, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            found.verdict, found.said = WRONG, f"result {number} is {a.dtype} {tuple(a.shape)}"
            return
        error, torch_error = _error(a, c), _error(b, c)
        if error >= found.error:
            found.error, found.torch_error = error, torch_error
        if not error <= _bound(found.task, torch_error):
            found.verdict, found.error, found.torch_error = WRONG, error, torch_error
            return


def _compare_on_average(found: Found, module: Any, run: Callable[..., Any], device: Any) -> None:
    """The same over other arguments: of few rows one number that is a little off, which all others are multiplied by,
    is one sample of a rounding's error, torch's another."""
    squares = [0.0, 0.0]
    for number in range(DRAWS):
        args = tuple(value.to(device) for value in arguments(found.task.net, found.task.seed + 3 + number))
        one = replace(found, verdict=RIGHT, error=0.0, torch_error=0.0)
        _compare(one, module, args, run(*args))
        squares = [total + error**2 for total, error in zip(squares, (one.error, one.torch_error))]
    found.error, found.torch_error = (math.sqrt(total / DRAWS) for total in squares)
    if found.error <= _bound(found.task, found.torch_error):
        found.verdict = RIGHT


def _bound(task: Task, torch_error: float) -> float:
    """What an error may be where torch's own is so large."""
    floor = HIGH_FLOOR if task.net.precision != "highest" else FLOOR[task.net.dtype]
    return task.times * max(torch_error, floor / TIMES)


def _error(value: Any, wanted: Any) -> float:
    """The norm of the difference over the norm; infinite where one has a NaN or an infinity that the other has not."""
    import torch

    value = value.double()
    finite = torch.isfinite(wanted)
    if not torch.equal(torch.isfinite(value), finite):
        return math.inf
    difference, norm = torch.where(finite, value - wanted, 0.0).norm().item(), torch.where(finite, wanted, 0).norm()
    return difference / norm.item() if norm else difference


def leaves(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple) else [value]
