"""The host program for given input sizes -> a plan: launches with all their numbers, and where buffers lie.

Steps are those of kitsune_mlir/codegen/host_program.py, and {"op": "kept", "to": b, "argument": n}: a buffer that
runtime/weight_steps.py made an argument. Sizes are evaluated once; what remains for each run is to fill in
pointers. numpy only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from kitsune_mlir.errors import InternalError

from .host_arithmetic import OPERATIONS, compute

BYTES = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2, "i64": 8, "i32": 4, "i16": 2, "i8": 1, "i1": 1}
_LIMIT = 1 << 63
EARLY_BYTES = 32 << 20  # of buffers that are filled before all kernels: what an L2 still has when they are used
ALIGNMENT = 256  # of buffers in an arena; what cudaMalloc gives, and TMA asks less

Step = dict[str, Any]


@dataclass(frozen=True)
class View:
    """A memref: `offset`, `shape` and `strides` in elements of `dtype` in buffer number `buffer` of the plan."""

    buffer: int
    dtype: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * BYTES[self.dtype]

    @property
    def byte_offset(self) -> int:
        return self.offset * BYTES[self.dtype]

    @property
    def is_dense(self) -> bool:
        return self.strides == row_major(self.shape) or 0 in self.shape


@dataclass
class Buffer:
    """Memory: "argument" number `index`, the "result" memory of that number, the "global" called `index`, or "arena" at
    `offset`."""

    kind: str
    nbytes: int
    index: int | str = 0
    offset: int = 0


@dataclass(frozen=True)
class Launch:
    """A kernel of the plain path on `grid` blocks of `block` threads. Arguments: views, or (dtype, number)."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arguments: tuple[View | tuple[str, Any], ...]
    step: int = field(default=-1, compare=False)  # of the program, which step this comes from
    cluster: int = 1  # blocks that run at once, and reach one another's shared memory
    shared_bytes: int = 0  # of shared memory, besides those that the code says


@dataclass(frozen=True)
class Copy:
    """Equally laid out, contiguous views."""

    source: View
    target: View
    step: int = field(default=-1, compare=False)


@dataclass(frozen=True)
class Pipeline:
    """A call of the pipeline `name`."""

    name: str
    arguments: tuple[View, ...]
    results: tuple[View, ...]
    step: int = field(default=-1, compare=False)


@dataclass(frozen=True)
class Fill:
    """Zeros, in whole buffers that lie one after another."""

    views: tuple[View, ...]


Call = Launch | Copy | Pipeline | Fill


@dataclass
class Plan:
    """What a run does, for one set of input shapes. Results are views of arguments and of buffers of kind "result", of
    which each may hold several."""

    buffers: list[Buffer] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    results: list[View] = field(default_factory=list)
    arena_bytes: int = 0


def make_plan(manifest: dict[str, Any], shapes: Sequence[tuple[int, ...]]) -> Plan:
    """Interprets the host program of a manifest for arguments of the given shapes. Raises InternalError for one that
    cannot be computed, or that would reach beyond a buffer."""
    tracer = _Tracer(manifest, shapes)
    for number, step in enumerate(manifest["program"]):
        try:
            tracer.step(number, step)
        except (ArithmeticError, ValueError, IndexError) as error:
            raise InternalError(f"the host program's step '{step['op']}' fails for these sizes: {error}") from error
    for call in tracer.plan.calls:
        _check(call, tracer.plan.buffers)
    _fill_early(tracer.plan)
    _place(tracer.plan)
    return tracer.plan


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a dense tensor."""
    return tuple(prod(shape[i + 1 :]) for i in range(len(shape)))


class _Tracer:
    """Runs the steps on sizes."""

    def __init__(self, manifest: dict[str, Any], shapes: Sequence[tuple[int, ...]]):
        self.plan = Plan()
        self._globals, self._pipelines = manifest["globals"], manifest.get("pipelines", {})
        self._values: dict[str, Any] = {}
        self._number = 0  # of the step
        for i, (shape, argument) in enumerate(zip(shapes, manifest["arguments"], strict=True)):
            self._values[f"a{i}"] = self._dense("argument", argument["dtype"], shape, i)

    def _dense(self, kind: str, dtype: str, shape: Sequence[int], index: int | str = 0) -> View:
        if min(shape, default=0) < 0 or prod(shape) >= _LIMIT:
            raise OverflowError(f"there is no tensor of the shape {list(shape)}")
        view = View(len(self.plan.buffers), dtype, 0, tuple(shape), row_major(shape))
        self.plan.buffers.append(Buffer(kind, view.nbytes, index))
        return view

    def _see(self, operand: Any) -> Any:
        return self._values[operand] if isinstance(operand, str) else operand

    def _all(self, operands: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(self._see(operand) for operand in operands)

    def step(self, number: int, step: Step) -> None:
        """Runs the program's step of that number."""
        self._number, name = number, step["op"]
        if name in OPERATIONS:
            self._values[step["to"]] = compute(name, self._all(step["args"]), step["types"])
            return
        handler = getattr(self, f"_{name}_step", None)
        if handler is None:
            raise InternalError(f"the host program has a step '{name}' that this version does not know")
        handler(step)

    def _dim_step(self, step: Step) -> None:
        self._values[step["to"]] = self._see(step["of"]).shape[self._see(step["dim"])]

    def _alloc_step(self, step: Step) -> None:
        self._values[step["to"]] = self._dense("arena", step["dtype"], self._all(step["shape"]))

    def _global_step(self, step: Step) -> None:
        found = self._globals[step["name"]]
        self._values[step["to"]] = self._dense("global", found["dtype"], found["shape"], step["name"])

    def _kept_step(self, step: Step) -> None:
        self._values[step["to"]] = self._values[f"a{step['argument']}"]

    def _view_step(self, step: Step) -> None:
        of = self._see(step["of"])
        shape, strides = self._all(step["shape"]), self._all(step["strides"])
        self._values[step["to"]] = View(of.buffer, of.dtype, self._see(step["offset"]), shape, strides)

    def _metadata_step(self, step: Step) -> None:
        of = self._see(step["of"])
        names = [step["base"], step["offset"], *step["sizes"], *step["strides"]]
        values = [View(of.buffer, of.dtype, 0, (), ()), of.offset, *of.shape, *of.strides]
        self._values.update(zip(names, values, strict=True))

    def _copy_step(self, step: Step) -> None:
        self.plan.calls.append(Copy(self._see(step["from"]), self._see(step["into"]), self._number))

    def _launch_step(self, step: Step) -> None:
        grid, block = self._all(step["grid"]), self._all(step["block"])
        if prod(grid):  # an empty tensor has nothing to launch
            arguments = tuple(
                (argument[0], self._see(argument[1])) if isinstance(argument, list) else self._see(argument)
                for argument in step["args"]
            )
            cluster, nbytes = step.get("cluster", 1), step.get("shared_bytes", 0)
            self.plan.calls.append(Launch(step["kernel"], grid, block, arguments, self._number, cluster, nbytes))

    def _pipeline_step(self, step: Step) -> None:
        results = tuple(map(self._result, step["results"]))
        self._values.update({r["to"]: view for r, view in zip(step["results"], results, strict=True) if "to" in r})
        zeroed = self._pipelines[step["name"]]["launch"].get("zeroed", ())
        self.plan.calls += [Fill((results[number],)) for number in zeroed if results[number].nbytes]
        self.plan.calls.append(Pipeline(step["name"], self._all(step["args"]), results, self._number))

    def _result(self, described: dict[str, Any]) -> View:
        """Where a pipeline writes a result: into a buffer of its own, or into one that is there."""
        if "into" in described:
            return self._see(described["into"])
        return self._dense("arena", described["dtype"], self._all(described["shape"]))

    def _return_step(self, step: Step) -> None:
        self.plan.results = list(self._all(step["values"]))
        made = 0
        for i, view in enumerate(self.plan.results):
            buffer = self.plan.buffers[view.buffer]
            if buffer.kind == "global":
                raise InternalError(f"result {i} is a constant of the code's")
            _check_view(view, buffer, f"result {i}")
            if buffer.kind == "arena":
                buffer.kind, buffer.index = "result", made
                made += 1


def views_of(call: Call) -> list[View]:
    """The views a call reads or writes."""
    if isinstance(call, Fill):
        return list(call.views)
    if isinstance(call, Copy):
        return [call.source, call.target]
    arguments = [argument for argument in call.arguments if isinstance(argument, View)]
    return arguments + (list(call.results) if isinstance(call, Pipeline) else [])


def _check(call: Call, buffers: Sequence[Buffer]) -> None:
    """Raises InternalError for a call that would reach beyond a buffer, or on a grid that no GPU has."""
    if isinstance(call, Launch) and not all(0 < size < 1 << 31 for size in (*call.grid, *call.block)):
        raise InternalError(f"kernel {call.kernel} has a grid of {call.grid} blocks of {call.block} threads")
    if isinstance(call, Copy) and call.source.nbytes != call.target.nbytes:
        raise InternalError(f"a copy takes {call.source.nbytes} bytes to {call.target.nbytes}")
    for view in views_of(call):
        _check_view(view, buffers[view.buffer], "a call of the host program")


def _check_view(view: View, buffer: Buffer, whose: str) -> None:
    """Raises InternalError for a view that reaches beyond its buffer."""
    if 0 in view.shape:
        return
    steps = [(size - 1) * stride for size, stride in zip(view.shape, view.strides, strict=True)]
    first = view.offset + sum(min(step, 0) for step in steps)
    end = view.offset + sum(max(step, 0) for step in steps) + 1
    if min(view.shape, default=1) < 0 or first < 0 or end * BYTES[view.dtype] > buffer.nbytes:
        raise InternalError(f"{whose} reaches beyond a buffer of {buffer.nbytes} bytes: {view}")


def _fill_early(plan: Plan) -> None:
    """Fills what is small, between kernels, at once and before all of them: kernels overlap, fills do not."""
    fills = [call for call in plan.calls if isinstance(call, Fill)]
    fills = [fill for fill in fills if plan.buffers[fill.views[0].buffer].kind == "arena"]
    views = [view for fill in fills for view in fill.views]
    if views and sum(plan.buffers[view.buffer].nbytes for view in views) <= EARLY_BYTES:
        plan.calls = [Fill(tuple(views)), *(call for call in plan.calls if call not in fills)]


def _place(plan: Plan) -> None:
    """Gives each arena buffer the lowest offset that no buffer alive at the same time has; large ones first. Buffers
    that are filled together lie behind the first of them."""
    behind = [[view.buffer for view in call.views] for call in plan.calls if isinstance(call, Fill)]
    follows = {number: filled[0] for filled in behind for number in filled[1:]}
    whole = {filled[0]: sum(_room(plan.buffers[number]) for number in filled) for filled in behind}
    life: dict[int, tuple[int, int]] = {}
    for time, call in enumerate(plan.calls):
        for view in views_of(call):
            number = follows.get(view.buffer, view.buffer)
            first, _ = life.get(number, (time, time))
            life[number] = first, time
    placed: list[tuple[int, int, int, int]] = []  # offset, end, first use, last use
    for number in sorted(life, key=lambda n: -whole.get(n, plan.buffers[n].nbytes)):
        buffer = plan.buffers[number]
        if buffer.kind != "arena":
            continue
        first, last = life[number]
        size = whole.get(number, _room(buffer))
        for offset, end, start, stop in sorted(placed):
            if start <= last and first <= stop and offset < buffer.offset + size and buffer.offset < end:
                buffer.offset = end
        placed.append((buffer.offset, buffer.offset + size, first, last))
        plan.arena_bytes = max(plan.arena_bytes, buffer.offset + size)
    for filled in behind:
        for before, number in zip(filled, filled[1:]):
            plan.buffers[number].offset = plan.buffers[before].offset + _room(plan.buffers[before])


def _room(buffer: Buffer) -> int:
    return -(-buffer.nbytes // ALIGNMENT) * ALIGNMENT
