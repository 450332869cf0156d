"""The driver: a model in, a callable out. Every step is a line of the tables of passes/__init__.py."""

from __future__ import annotations

import contextlib
import gc
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kitsune_mlir import deep_stack, determinism, example_sizes, launches, mlir, plan, precision, weights, worker
from kitsune_mlir.codegen.gpu_in_order import LABEL
from kitsune_mlir.codegen.gpu_sorted_updates import SORT
from kitsune_mlir.codegen.section import Section
from kitsune_mlir.errors import InternalError, UnsupportedError, UserError
from kitsune_mlir.loaded import Loaded
from kitsune_mlir.mlir import Remark, ir
from kitsune_mlir.passes import CONVERT, DESIGN, FOR_GPUS, PARTITION, PLACE, pipeline
from kitsune_mlir.passes.base import ModulePass
from kitsune_mlir.planning import target as targets
from kitsune_mlir.planning.open_rows import UNKNOWN_ROWS
from kitsune_mlir.planning.target import Target
from kitsune_mlir.program import Argument, Program
from kitsune_mlir.runtime.artifact import Content
from kitsune_mlir.runtime.executable import Interface

LOWER = "convert-kitsune-to-gpu"  # after it nothing shows what the scheduled kernels hold

Progress = Callable[[str], None]


class Compiled(Loaded):
    """A compiled model: a callable (see Loaded) that also shows the IR it was made from."""

    def __init__(self, content: Content, stages: dict[str, bytes], seconds: dict[str, float]):
        super().__init__(content)
        self._stages = stages  # in MLIR's binary form: few are ever asked for
        self.seconds = seconds  # wall time of each step of compilation

    @property
    def stages(self) -> tuple[str, ...]:
        """What `mlir` can show, in order: "linalg", a pass, or "TARGET:pass"."""
        return tuple(self._stages)

    def mlir(self, stage: str) -> str:
        """The IR after a pass, such as "partition-dataflow" or "sm_90a:place-stages"; "linalg" is the import."""
        return self.module(stage, mlir.kept_context()).operation.get_asm(use_local_scope=True)

    def module(self, stage: str, context: ir.Context | None = None) -> ir.Module:
        """The same as a module, in a context of its own if none is given."""
        if stage not in self._stages:
            raise UserError(f"there is no stage '{stage}'; the stages are {', '.join(self._stages)}")
        return mlir.parse(self._stages[stage], mlir.context() if context is None else context)


def compile(
    model: Any,
    args: Any = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    target: str | Sequence[str] = "cpu",
    dynamic_shapes: Any = None,
    dtype: str | None = None,
    matmul_precision: str | None = None,
    deterministic: bool | None = None,
    options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Compiled:
    """Compiles a model into something that can be called like it.

    `model` is an nn.Module (with example `args`, and `kwargs` for what is given by name), an ExportedProgram, or the
    path of a .pt2, .onnx or .mlir file, or "module:function". `target` is one or several of "cpu", "sm_90a", ..., or
    paths of target descriptions. `dynamic_shapes` is torch.export's. `dtype` ("f32", "bf16") casts a copy of the model
    first. `matmul_precision` says how exactly products of f32 are computed on tensor cores, in torch's words:
    "highest", as f32, or "high" or "medium", with operands rounded to tf32; None is torch's own setting
    (torch.get_float32_matmul_precision). `deterministic` has a GPU add rows up by index, and write them, in a fixed
    order, so that each call gives the same bits, at a cost that the report gives; None is torch's own setting
    (torch.use_deterministic_algorithms). `options` gives passes options of their own, as kitsune-opt takes them:
    {"place-stages": "shape=chained tile-rows=64"}. `progress` is told the name of each step as it begins.

    Raises UserError for what is wrong with the request, UnsupportedError for what cannot be compiled
    (never because it cannot be pipelined), InternalError for a bug of ours.
    """
    from kitsune_mlir.frontend import import_model

    chosen, wanted = precision.choose(matmul_precision), _targets(target)  # before the import, which may take long
    steps = _Steps(progress, _options(options))
    with _no_collection():
        program = steps.run(
            "import", lambda: import_model(model, args, kwargs, dynamic_shapes=dynamic_shapes, dtype=dtype)
        )
        precision.give(program.module, chosen)
        determinism.give(program.module, determinism.choose(deterministic))
        return _compile(program, wanted, steps)


def compile_program(
    program: Program,
    target: str | Sequence[str] = "cpu",
    *,
    matmul_precision: str | None = None,
    deterministic: bool | None = None,
    options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Compiled:
    """Compiles an imported program, whose module it changes, for one or several targets; see `compile`."""
    precision.give(program.module, precision.choose(matmul_precision))
    determinism.give(program.module, determinism.choose(deterministic))
    return _compile(program, _targets(target), _Steps(progress, _options(options)))


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Without Python's search for unused cycles: each looks at all of torch's objects, and a compilation makes
    objects enough for many, which it needs to its end."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def _targets(target: str | Sequence[str]) -> dict[str, Target]:
    """Targets by the name or path they were asked for by."""
    wanted = [target] if isinstance(target, str) else list(target)
    if not wanted:
        raise UserError("give at least one target")
    if others := [name for name in wanted if not isinstance(name, str)]:
        raise UserError(f"a target is a name or a path, found one of type {type(others[0]).__name__}")
    found = {name: targets.load(name) for name in wanted}
    if any(machine.kind == "gpu" for machine in found.values()):
        worker.warm_up()  # what generates GPU code starts while the model is imported
    return found


def _options(options: Mapping[str, str] | None) -> dict[str, str]:
    """Options by pass. Raises UserError for a pass that no compilation runs, and for what a pass cannot be given,
    whether or not this compilation runs it."""
    if options is not None and not isinstance(options, Mapping):
        raise UserError(f"options are a dict of texts by pass, found one of type {type(options).__name__}")
    passes = dict.fromkeys(PARTITION + DESIGN + sum((*PLACE.values(), *CONVERT.values()), ()))
    if unknown := set(options or {}) - set(passes):
        raise UserError(f"there is no pass '{min(unknown)}' to give options to; the passes are {', '.join(passes)}")
    found = dict(options or {})
    for name, given in found.items():
        if not isinstance(given, str):
            raise UserError(f"the options of pass '{name}' are a text, found one of type {type(given).__name__}")
        pipeline.make(name, given)
    if "shape=" in found.get("place-stages", "") and "shape=auto" not in found["place-stages"]:
        found.setdefault("cut-pipelines", "whole=true")  # a shape that is asked for is that of the whole pipeline
    return found


def _compile(program: Program, wanted: dict[str, Target], steps: _Steps) -> Compiled:
    module = program.module
    weights.give(module, program.arguments, program.outputs)
    example_sizes.give(module, program.arguments)
    steps.keep("linalg", module)
    steps.depth = deep_stack.depth(module)
    for_gpus = any(target.kind == "gpu" for target in wanted.values())
    names = [name for name in PARTITION if for_gpus or name not in FOR_GPUS]
    remarks = steps.passes(module, names, "linalg")
    before = plan.partitioned(module, remarks)
    remarks = steps.passes(module, DESIGN, names[-1])
    results = {
        target.name: _for_target(program, spec, target, before, remarks, steps) for spec, target in wanted.items()
    }
    content = Content(
        interface=Interface(program.name, program.signature, program.arguments, program.outputs, program.conditions),
        kinds={target.name: target.kind for target in wanted.values()},
        sections={name: section for name, (section, _) in results.items()},
        plans={name: found for name, (_, found) in results.items()},
    )
    return Compiled(content, steps.stages, steps.seconds)


def _for_target(
    program: Program, spec: str, target: Target, before: plan.Partitioned, remarks: list[Remark], steps: _Steps
) -> tuple[Section, plan.Plan]:
    copy, prefix = mlir.clone(program.module), f"{target.name}:"
    place = PLACE[target.kind]
    remarks = remarks + steps.passes(copy, place, DESIGN[-1], prefix, spec)
    placed, convert = plan.pipelines(copy), CONVERT[target.kind]
    first = convert.index(LOWER) if LOWER in convert else len(convert)
    refusals = steps.passes(copy, convert[:first], prefix + place[-1], prefix, spec)
    scheduled = launches.scheduled(copy)
    refusals += steps.passes(copy, convert[first:], prefix + convert[first - 1], prefix, spec)
    refused = {refusal.symbol for refusal in refusals}
    running = [pipeline for pipeline in placed if pipeline["name"] not in refused]
    found = plan.describe(before, running, target, remarks, [r for r in refusals if r.symbol])
    converted = steps.stages[prefix + convert[-1]]
    section = steps.run(f"{prefix}generate code", lambda: _build(copy, converted, target))
    found["kernels"] = _kernels(section)
    if any(None in argument.spec.shape for argument in program.inputs):
        found["input_sizes"] = [list(_example_sizes(argument)) for argument in program.inputs]
    if target.kind == "gpu":
        steps.run(f"{prefix}predict", lambda: _predict(found, section, program, copy, scheduled, target))
    return section, found


def _predict(
    found: plan.Plan, section: Section, program: Program, module: ir.Module, described: dict[str, Any], target: Target
) -> None:
    """Puts the launches, and the sum of their times, into a plan."""
    changed = {output.mutates for output in program.outputs if output.mutates is not None}
    bound = [argument.kind != "input" and i not in changed for i, argument in enumerate(program.arguments)]
    sizes = [_example_sizes(argument) for argument in program.arguments]
    made = launches.launches(section.manifest, module, found["kernels"], described, bound, sizes, target)
    found["launches"] = made or []
    if made is not None:
        found["predicted_us"] = round(target.call_us + sum(launch["predicted_us"] for launch in made), 2)
    if determinism.of(module):
        ordered = [
            one["predicted_us"] for one in found["launches"] if LABEL in one["computes"] or SORT in one["computes"]
        ]
        found["deterministic_us"] = round(sum(ordered), 2)


def _example_sizes(argument: Argument) -> tuple[int, ...]:
    """The sizes that an argument has, or had in the example, or is taken to have."""
    example = argument.example or argument.spec.shape
    return tuple(UNKNOWN_ROWS if size is None else size for size in example)


def _kernels(section: Section) -> list[dict[str, Any]]:
    """What is known of each kernel; to the shared memory that ptxas sees comes what a pipeline is launched with."""
    pipelines = section.manifest.get("pipelines", {}) if section.manifest["kind"] == "gpu" else {}
    launches = {entry["module"]: entry["launch"] for entry in pipelines.values()}
    kernels = []
    for kernel in section.manifest.get("kernels", []):
        launch = launches.get(kernel["module"], {})
        extra = {key: launch[key] for key in ("ctas", "threads") if key in launch}
        shared = launch.get("shared_bytes", 0) + (kernel["shared"] or 0) if launch else kernel["shared"]
        known = {key: value for key, value in kernel.items() if key != "overlapped"}
        kernels.append(known | extra | {"shared": shared})
    return kernels


def _build(module: ir.Module, before: bytes, target: Target) -> Section:
    if target.kind == "cpu":
        from kitsune_mlir.codegen.cpu import build
    else:
        from kitsune_mlir.codegen.gpu import build
    with _reported(f"code generation for {target.name}", module, before, f"--emit=llvm --target={target.name}"):
        return build(module, target)


@dataclass
class _Steps:
    """Runs steps, keeps their times and the IR after each pass, and tells of progress."""

    progress: Progress | None = None
    options: dict[str, str] = field(default_factory=dict)  # by pass
    stages: dict[str, bytes] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    depth: int = 0  # of the program: how many operators it has in a row

    def run(self, name: str, step: Callable[[], Any]) -> Any:
        if self.progress is not None:
            self.progress(name)
        start = time.perf_counter()
        result = deep_stack.with_room(self.depth, step)
        self.seconds[name] = time.perf_counter() - start
        return result

    def keep(self, name: str, module: ir.Module) -> None:
        """The module, kept under a name, in MLIR's binary form."""
        self.stages[name] = mlir.bytecode(module)

    def passes(
        self, module: ir.Module, names: Sequence[str], after: str, prefix: str = "", target: str = ""
    ) -> list[Remark]:
        """Runs our passes in order, as steps called by their names after `prefix`, on a module that is as a step left
        it, the one called `after`, and keeps it after each."""
        content = self.stages[after]
        with mlir.collect_remarks() as remarks:
            for name in names:
                element = pipeline.make(name, self.options.get(name, ""), target)
                content = self.run(prefix + name, partial(_run_pass, module, content, element, target))
                self.stages[prefix + name] = content
        return remarks


def _run_pass(module: ir.Module, before: bytes, element: ModulePass, target: str) -> bytes:
    """The module in MLIR's binary form, which was `before`. It is verified where the pass changed it: most passes leave
    most models as they are, and verifying takes a tenth of the time of all passes."""
    option = f"=target={target}" if target and hasattr(element, "target") else ""
    with _reported(f"pass {element.name}", module, before, f"--{element.name}{option}"):
        pipeline.run(module, [element], lambda manager: manager.enable_verifier(False))
        after = mlir.bytecode(module)
        if after != before:
            module.operation.verify()
    return after


@contextlib.contextmanager
def _reported(what: str, module: ir.Module, before: bytes, flags: str) -> Iterator[None]:
    """Turns whatever fails inside, unless it is the user's or not supported, into an InternalError with a
    reproducer: the module as it was before, given in MLIR's binary form."""
    with mlir.collect_errors(module.context) as errors:
        try:
            yield
        except (UserError, UnsupportedError):
            raise
        except Exception as error:
            if isinstance(error, InternalError) and error.reproducer:
                raise
            detail = errors[0] if errors else f"{type(error).__name__}: {mlir.first_line(error)}"
            raise InternalError(f"{what} failed: {detail}", _reproducer(before, flags)) from error


def _reproducer(before: bytes, flags: str) -> str:
    """The path of a new file with the module and the command that shows the bug."""
    text = mlir.parse(before, mlir.context()).operation.get_asm(enable_debug_info=True)
    with tempfile.NamedTemporaryFile("w", prefix="kitsune-", suffix=".mlir", delete=False) as file:
        file.write(f"// kitsune-opt {file.name} {flags}\n{text}")
    return file.name
