"""The section of a manifest for a GPU: its schema, and what its host program may do (see runtime/manifest.py)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from .host_arithmetic import OPERATIONS
from .host_program import BYTES
from .index_reports import WORD
from .schema import (
    ANY_NUMBER,
    FLAG,
    NAME,
    NULL,
    OPEN_SIZE,
    SIZE,
    TEXT,
    Kind,
    Mismatch,
    Table,
    among,
    check,
    either,
    expect,
    whole,
)
from .tensor_map import NBYTES as MAP_BYTES

TENSOR = {"shape": [OPEN_SIZE], "dtype": among(BYTES)}  # an argument or a result of @main
_COUNT = whole(1, 1 << 31)
_OPERAND = either(TEXT, whole(-(1 << 62), 1 << 62), FLAG)
_SCALAR = either(TEXT, ANY_NUMBER, FLAG)
_LAUNCH = {
    "kernel": TEXT,
    "ctas": _COUNT,
    "cluster?": _COUNT,
    "threads": whole(1, 1024),
    "shared_bytes": SIZE,
    "workspace_bytes": SIZE,
    "counter_bytes?": SIZE,
    "cooperative": FLAG,
    "strided?": FLAG,
    "sums?": FLAG,
    "zeroed?": [SIZE],
    "sizes?": [SIZE],
    "watched": [{"awaited": TEXT, "location": TEXT}],
    "streams": [SIZE],
    "axes?": [whole(0, 7)],
    "further?": [[SIZE]],
    "least_rows?": SIZE,
    "tiles?": {"times": _COUNT, "parts": [[SIZE]]},
    "tile_rows": _COUNT,
    "maps?": [
        {
            "tensor": SIZE,
            "offset?": SIZE,
            "element": among(("bf16", "f16", "f32", "tf32")),
            "dims": [OPEN_SIZE],
            "strides": [SIZE],
            "box": [SIZE],
            "swizzle": SIZE,
            "line?": whole(2, 8),
            "open?": [SIZE],
            **dict.fromkeys(("lower?", "upper?"), [whole(-(1 << 15), 1 << 15)]),
            "steps?": [SIZE],
        }
    ],
}
_KERNEL = {
    "name": TEXT,
    "module": NAME,
    "origin": TEXT,
    "overlapped?": FLAG,
    **dict.fromkeys(("registers", "shared"), either(SIZE, NULL)),
    **dict.fromkeys(("stack?", "spill_stores?", "spill_loads?"), SIZE),
}
_RESULT = {"to": TEXT, "dtype": among(BYTES), "shape": [_OPERAND]}
_PLACED = {"into": TEXT}  # a result of a pipeline that lies among others in a buffer
_ARGUMENT = Kind("a name or [dtype, number]", lambda v: isinstance(v, str) or _is_number(v))
_STEPS: dict[str, dict[str, Any]] = {
    "dim": {"to": TEXT, "of": TEXT, "dim": _OPERAND},
    "alloc": _RESULT,
    "global": {"to": TEXT, "name": TEXT},
    "view": {"to": TEXT, "of": TEXT, "offset": _OPERAND, "shape": [_OPERAND], "strides": [_OPERAND]},
    "metadata": {"of": TEXT, "base": TEXT, "offset": TEXT, "sizes": [TEXT], "strides": [TEXT]},
    "copy": {"from": TEXT, "into": TEXT},
    "launch": {
        "kernel": TEXT,
        "grid": [_OPERAND],
        "block": [_OPERAND],
        "args": [_ARGUMENT],
        "writes": [SIZE],
        "cluster?": _COUNT,
        "shared_bytes?": SIZE,
    },
    "pipeline": {"name": TEXT, "args": [TEXT], "results": [Kind("a result", lambda v: isinstance(v, dict))]},
    "return": {"values": [TEXT]},
    **{name: {"to": TEXT, "args": [_SCALAR], "types": [among(BYTES)]} for name in OPERATIONS},
}
GPU = {
    "kind": among(("gpu",)),
    "version": whole(0, 1 << 31),
    "target": TEXT,
    "chip": TEXT,
    "arguments": [TENSOR],
    "results": [TENSOR],
    "program": [Kind("a step of a host program", lambda v: isinstance(v, dict) and v.get("op") in _STEPS)],
    "globals": Table({"offset": SIZE, "dtype": among(BYTES), "shape": [SIZE]}),
    "modules": Table([TEXT]),
    "kernels": [_KERNEL],
    "pipelines": Table({"module": NAME, "launch": _LAUNCH}),
    "checks?": Table([TEXT]),
}


def check_gpu(section: Mapping[str, Any], files: Mapping[str, bytes], where: str) -> None:
    """Checks a section that has the schema GPU against its files and its parts against each other. Raises Mismatch."""
    modules, pipelines = section["modules"], section["pipelines"]
    needed = {f"{name}.ptx" for name in modules} | ({"globals.bin"} if section["globals"] else set())
    allowed = needed | {f"{name}.cubin" for name in modules}
    expect(needed <= set(files) <= allowed, f"{where} must have the files {', '.join(sorted(needed))}")
    entries: dict[str, dict[str, _Entry]] = {}
    for name, kernels in modules.items():
        entries[name] = _entries(files[f"{name}.ptx"])
        expect(set(kernels) <= set(entries[name]), f"{where}.modules.{name} must name kernels of {name}.ptx")
    for name in section.get("checks", {}):
        known = name in modules and WORD.encode() in files[f"{name}.ptx"]
        expect(known, f"{where}.checks must be of modules that have the global {WORD}, found {name}")
    for name, entry in section["globals"].items():
        end = entry["offset"] + prod(entry["shape"]) * BYTES[entry["dtype"]]
        expect(end <= len(files["globals.bin"]), f"{where}.globals.{name} must lie in globals.bin")
    for kernel in section["kernels"]:
        known = kernel["name"] in modules.get(kernel["module"], ())
        expect(known, f"{where}.kernels must be of its modules, found {kernel['name']}")
    for name, pipeline in pipelines.items():
        expect(pipeline["module"] in modules, f"{where}.pipelines.{name}.module must be one of its modules")
        _check_launch(pipeline["launch"], modules[pipeline["module"]], f"{where}.pipelines.{name}.launch")
    _Program(section, entries, where).check()


def _check_launch(launch: Mapping[str, Any], kernels: list[str], where: str) -> None:
    expect([launch["kernel"]] == kernels, f"{where} must name the kernel of its module, found {launch['kernel']}")
    cluster = launch.get("cluster", 1)
    expect(launch["ctas"] % cluster == 0, f"{where}.ctas must be a multiple of {cluster}, found {launch['ctas']}")
    counted = launch.get("counter_bytes", 0)
    expect(counted <= launch["workspace_bytes"], f"{where}.counter_bytes must be at most the workspace's")
    expect(bool(launch["streams"]), f"{where}.streams must name a tensor")
    axes = launch.get("axes", launch["streams"])
    expect(len(axes) == len(launch["streams"]), f"{where}.axes must give one of each stream, found {len(axes)}")
    sizes = 1 + len(launch.get("further", ()))
    for map_ in launch.get("maps", ()):
        numbers = map_.get("open", [0] * map_["dims"].count(None))
        known = len(numbers) == map_["dims"].count(None) and all(number < sizes for number in numbers)
        expect(known, f"{where}.maps must have {sizes} open sizes, one for each null, found {numbers}")
    parts = launch.get("tiles", {"parts": ()})["parts"]
    known = all(len(part) == 2 and part[0] < sizes and part[1] for part in parts)
    expect(known, f"{where}.tiles must have parts of the {sizes} open sizes, found {parts}")
    pairs = all(len(source) == 2 for source in launch.get("further", ()))
    expect(pairs, f"{where}.further must give tensors with a dimension each, found {launch.get('further')}")


@dataclass(frozen=True)
class _Entry:
    """A kernel as its PTX declares it: the bytes of each parameter that is an array, 0 for others; and the threads of
    a block, where they are fixed."""

    parameters: list[int]
    threads: int | None


def _entries(ptx: bytes) -> dict[str, _Entry]:
    """The kernels of a module, by name."""
    found = {}
    for name, parameters, rest in re.findall(rb"\.entry\s+([\w.$]+)\s*\((.*?)\)([^{]*)\{", ptx, re.DOTALL):
        arrays = [re.search(rb"\[(\d+)\]", one) for one in parameters.split(b",") if b".param" in one]
        block = re.search(rb"\.(?:max|req)ntid\s+(\d+)\s*,\s*(\d+)\s*,\s*(\d+)", rest)
        threads = prod(map(int, block.groups())) if block else None
        found[name.decode()] = _Entry([int(array[1]) if array else 0 for array in arrays], threads)
    return found


@dataclass(frozen=True)
class _Tensor:
    """What is known of a buffer or a view; `shape` has None for sizes that a call decides."""

    dtype: str
    shape: tuple[int | None, ...]


class _Program:
    """Walks over a host program once, with the kinds of its values in place of the values."""

    def __init__(self, section: Mapping[str, Any], entries: Mapping[str, Mapping[str, _Entry]], where: str):
        self.section, self.where = section, f"{where}.program"
        self.values: dict[str, _Tensor | None] = {}  # None stands for a number
        owned = {pipeline["module"] for pipeline in section["pipelines"].values()}
        self.entries = entries
        self.plain = {
            kernel: entries[name][kernel]
            for name, kernels in section["modules"].items()
            if name not in owned
            for kernel in kernels
        }

    def check(self) -> None:
        program = self.section["program"]
        for i, argument in enumerate(self.section["arguments"]):
            self.values[f"a{i}"] = _Tensor(argument["dtype"], tuple(argument["shape"]))
        for i, step in enumerate(program):
            at = f"{self.where}[{i}]"
            check({key: value for key, value in step.items() if key != "op"}, _STEPS[step["op"]], at)
            getattr(self, f"_{step['op']}", self._arithmetic)(step, at)
            last = i == len(program) - 1
            expect((step["op"] == "return") == last, f"{self.where} must end with its one return")
        expect(bool(program), f"{self.where} must end with a return")

    def _define(self, name: str, value: _Tensor | None, at: str) -> None:
        expect(name not in self.values, f"{at} must not name '{name}' again")
        self.values[name] = value

    def _tensor(self, name: str, at: str) -> _Tensor:
        found = self.values.get(name)
        if found is None:
            raise Mismatch(f"{at} must name a buffer, found '{name}'")
        return found

    def _numbers(self, operands: list[Any], at: str, count: int | None = None) -> None:
        expect(count in (None, len(operands)), f"{at} must have {count} numbers, found {len(operands)}")
        for operand in operands:
            known = not isinstance(operand, str) or (operand in self.values and self.values[operand] is None)
            expect(known, f"{at} must have numbers, found '{operand}'")

    def _made(self, described: Mapping[str, Any], at: str) -> None:
        self._numbers(described["shape"], at)
        self._define(described["to"], _Tensor(described["dtype"], _shape(described["shape"])), at)

    def _arithmetic(self, step: Mapping[str, Any], at: str) -> None:
        expect(len(step["types"]) > 1, f"{at} must have the types of its operands and of its result")
        self._numbers(step["args"], at, len(step["types"]) - 1)
        self._define(step["to"], None, at)

    def _dim(self, step: Mapping[str, Any], at: str) -> None:
        rank = len(self._tensor(step["of"], at).shape)
        self._numbers([step["dim"]], at)
        expect(isinstance(step["dim"], str) or 0 <= step["dim"] < rank, f"{at}.dim must be below {rank}")
        self._define(step["to"], None, at)

    def _alloc(self, step: Mapping[str, Any], at: str) -> None:
        self._made(step, at)

    def _global(self, step: Mapping[str, Any], at: str) -> None:
        expect(step["name"] in self.section["globals"], f"{at}.name must be one of the globals, found {step['name']}")
        found = self.section["globals"][step["name"]]
        self._define(step["to"], _Tensor(found["dtype"], tuple(found["shape"])), at)

    def _view(self, step: Mapping[str, Any], at: str) -> None:
        of, rank = self._tensor(step["of"], at), len(step["shape"])
        self._numbers([step["offset"], *step["shape"]], at)
        self._numbers(step["strides"], at, rank)
        self._define(step["to"], _Tensor(of.dtype, _shape(step["shape"])), at)

    def _metadata(self, step: Mapping[str, Any], at: str) -> None:
        of = self._tensor(step["of"], at)
        for key in ("sizes", "strides"):
            expect(len(step[key]) == len(of.shape), f"{at}.{key} must be {len(of.shape)}")
        self._define(step["base"], _Tensor(of.dtype, ()), at)
        for name in (step["offset"], *step["sizes"], *step["strides"]):
            self._define(name, None, at)

    def _copy(self, step: Mapping[str, Any], at: str) -> None:
        source, target = (self._tensor(step[key], at) for key in ("from", "into"))
        expect(_alike(source, target), f"{at} must copy between equal tensors, found {source} and {target}")

    def _launch(self, step: Mapping[str, Any], at: str) -> None:
        expect(step["kernel"] in self.plain, f"{at}.kernel must be one of the modules', found {step['kernel']}")
        entry = self.plain[step["kernel"]]
        self._numbers(step["grid"], f"{at}.grid", 3)
        self._numbers(step["block"], f"{at}.block", 3)
        slots = 0
        for argument in step["args"]:
            if isinstance(argument, list):
                if isinstance(argument[1], str):
                    self._numbers([argument[1]], at)
                slots += 1
            else:
                slots += 3 + 2 * len(self._tensor(argument, at).shape)
        expect(slots == len(entry.parameters), f"{at} must give {len(entry.parameters)} parameters, found {slots}")
        fixed = all(type(size) is int for size in step["block"])
        wrong = entry.threads is not None and fixed and prod(step["block"]) > entry.threads
        expect(not wrong, f"{at}.block must have at most {entry.threads} threads")
        for number in step["writes"]:
            inside = number < len(step["args"]) and isinstance(step["args"][number], str)
            expect(inside, f"{at}.writes must number its buffers, found {number}")

    def _pipeline(self, step: Mapping[str, Any], at: str) -> None:
        expect(step["name"] in self.section["pipelines"], f"{at}.name must be one of the pipelines")
        pipeline = self.section["pipelines"][step["name"]]
        launch, arguments = pipeline["launch"], [self._tensor(name, at) for name in step["args"]]
        axes = launch.get("axes", [0] * len(launch["streams"]))
        for number, axis in (*zip(launch["streams"], axes), *launch.get("further", ())):
            streamed = number < len(arguments) and axis < len(arguments[number].shape)
            expect(streamed, f"{at} must stream tensors that it gets, found number {number}")
        for number in launch.get("sizes", ()):
            sized = number < len(arguments) and bool(arguments[number].shape)
            expect(sized, f"{at} must have the sizes of tensors that it gets, found number {number}")
        for number in launch.get("zeroed", ()):
            expect(number < len(step["results"]), f"{at} must fill results that it has, found number {number}")
        for number, result in enumerate(step["results"]):
            check(result, _PLACED if "into" in result else _RESULT, f"{at}.results[{number}]")
            if "into" not in result:
                self._made(result, at)
                continue
            self._tensor(result["into"], at)
            expect(number not in launch.get("zeroed", ()), f"{at} must fill results of its own, found number {number}")
        tensors, maps = len(arguments) + len(step["results"]), launch.get("maps", [])
        for map_ in maps:
            expect(map_["tensor"] <= tensors, f"{at} must have tensor maps of its tensors, found {map_['tensor']}")
            end = map_.get("offset", 0)
            inside = map_["tensor"] < tensors or end <= launch["workspace_bytes"]
            expect(inside, f"{at} must have tensor maps within its workspace, found {end}")
        numbers = 2 + len(launch.get("further", ())) + len(launch.get("sizes", ()))
        wanted = ([MAP_BYTES * len(maps)] if maps else []) + [0] * (tensors + numbers)
        entry = self.entries[pipeline["module"]][launch["kernel"]]
        found = entry.parameters
        expect(found == wanted, f"{at} must give kernel {launch['kernel']} the {len(found)} parameters that it takes")
        expect(entry.threads in (None, launch["threads"]), f"{at} must have {entry.threads} threads")

    def _return(self, step: Mapping[str, Any], at: str) -> None:
        results = self.section["results"]
        expect(len(step["values"]) == len(results), f"{at} must give {len(results)} results")
        for name, result in zip(step["values"], results, strict=True):
            wanted = _Tensor(result["dtype"], tuple(result["shape"]))
            expect(_alike(self._tensor(name, at), wanted), f"{at} must give {wanted}")


def _is_number(value: Any) -> bool:
    pair = isinstance(value, list) and len(value) == 2
    return pair and value[0] in BYTES and (isinstance(value[1], str) or ANY_NUMBER.test(value[1]))


def _shape(operands: list[Any]) -> tuple[int | None, ...]:
    return tuple(None if isinstance(operand, str) else operand for operand in operands)


def _alike(a: _Tensor, b: _Tensor) -> bool:
    """Whether two tensors may be of one element type and shape."""
    same = len(a.shape) == len(b.shape) and all(None in (x, y) or x == y for x, y in zip(a.shape, b.shape))
    return a.dtype == b.dtype and same
