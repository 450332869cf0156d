"""The one door to torch-mlir's Python bindings.

The Python-dialect API (`dialects.ext`) is young: everything in this project that builds,
parses, rewrites or runs MLIR reaches it through this module, so an API change is mended here.
Importing it does not import torch, nor modules of dialects: MLIR's bindings take half as long to import
as a small file takes to be read, lowered and printed, so `mlir.arith` and the others are imported when they are named.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import pkgutil
import re
import threading
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, cmp_to_key
from types import ModuleType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from torch_mlir import ir, passmanager
from torch_mlir._mlir_libs import _mlir, _torchMlir
from torch_mlir.dialects import ext

from .errors import InternalError, UserError

if TYPE_CHECKING:
    from torch_mlir.dialects import (
        arith,
        bufferization,
        func,
        gpu,
        linalg,
        llvm,
        math,
        memref,
        nvvm,
        scf,
        tensor,
        vector,
    )

PassManager = passmanager.PassManager

# Modules of `torch_mlir.dialects`, imported when they are first named.
_DIALECTS = frozenset(
    ("arith", "bufferization", "func", "gpu", "linalg", "llvm", "math", "memref", "nvvm", "scf", "tensor", "vector")
)
# What a context loads when it is made, for operations of it are made here or in our dialect's definition. The other
# dialects take twice as long to load, and every canonicalization asks each loaded one for its patterns; parsing loads
# them, and passes that make their operations.
_LOADED = sorted(_DIALECTS | {"irdl"})

# Each look-up of a class of the dialect imports its module by name until that succeeds: without this
# prefix every one searches the path in vain, which makes verifying twenty times slower.
_mlir.globals.append_dialect_search_prefix("kitsune_mlir.dialects")

__all__ = [
    "PassManager",
    "Remark",
    "attr_int",
    "bytecode",
    "clone",
    "clone_on",
    "collect_errors",
    "collect_remarks",
    "context",
    "dialect_names",
    "ext",
    "i64",
    "importer",
    "in_block_order",
    "ir",
    "kept_context",
    "let_context_go",
    "location",
    "parse",
    "pass_manager",
    "remark",
    "replace_op",
    "run_passes",
    "torch_context",
    "upstream_context",
    "walk",
]


def __getattr__(name: str) -> Any:
    if name not in _DIALECTS:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    globals()[name] = found = importlib.import_module(f"torch_mlir.dialects.{name}")
    return found


def context() -> ir.Context:
    """A context that knows every upstream dialect, with torch-mlir's and the kitsune dialect loaded.

    Multithreading stays off: Python-defined interfaces deadlock under it.
    """
    from kitsune_mlir.dialects import kitsune

    ctx = torch_context()
    with ctx, ir.Location.unknown():  # tm_tensor has no registration of its own; a pass that needs it loads it
        PassManager.parse("builtin.module(func.func(convert-torch-to-tmtensor))").run(ir.Module.create().operation)
    kitsune.load(ctx)
    return ctx


class _Kept(threading.local):
    """A thread's context, and how many more modules it is for."""

    context: ir.Context | None = None
    left = 0


_kept = _Kept()
_MODULES = 32


def kept_context() -> ir.Context:
    """Such a context that modules of this thread have, one after another: to make one, and to collect the patterns of
    its dialects, takes as long as the import of a small model. It keeps what it holds of modules that are gone, so that
    now and then there is another."""
    if _kept.context is None or _kept.left == 0:
        _kept.context, _kept.left = context(), _MODULES
    _kept.left -= 1
    return _kept.context


def let_context_go() -> None:
    """The next module has a context of its own: this one's constants are large, and are kept as long as it is."""
    _kept.context = None


def torch_context() -> ir.Context:
    """A context that knows every upstream dialect, with torch-mlir's loaded, for IR that cannot have an operation of
    ours: it takes a third of the time to make."""
    ctx = upstream_context()
    _torchMlir.register_dialect(ctx)
    return ctx


def upstream_context() -> ir.Context:
    """A context that knows every upstream dialect."""
    return ir.Context(load_on_create_dialects=_LOADED)


@dataclass(frozen=True)
class Remark:
    """What a pass says of the IR without failing: why an operator was declined, what was chosen."""

    location: str  # "model.py:12", or "unknown location"
    operator: str  # the operation's name, such as "linalg.generic"
    message: str
    origin: ir.Location  # the whole location, for tools that match it
    symbol: str = ""  # the operation's name in the module, where it has one

    def __str__(self) -> str:
        return f"{self.location}: remark: {self.message}"


_remarks: ContextVar[list[Remark] | None] = ContextVar("remarks", default=None)


@contextlib.contextmanager
def collect_remarks() -> Iterator[list[Remark]]:
    """Within the `with`, every `remark` is appended to the list it gives; without one they are dropped."""
    found: list[Remark] = []
    token = _remarks.set(found)
    try:
        yield found
    finally:
        _remarks.reset(token)


@contextlib.contextmanager
def collect_errors(ctx: ir.Context) -> Iterator[list[str]]:
    """Within the `with`, every error diagnostic of the context is appended to the list it gives, as
    "file:line: message", in place of being carried by an MLIRError."""
    found: list[str] = []

    def take(diagnostic: ir.Diagnostic) -> bool:
        found.append(f"{location(diagnostic.location)}: {diagnostic.message}")
        return True

    before, ctx.emit_error_diagnostics = ctx.emit_error_diagnostics, True
    handler = ctx.attach_diagnostic_handler(take)
    try:
        yield found
    finally:
        handler.detach()
        ctx.emit_error_diagnostics = before


def remark(op: ir.Operation, message: str) -> None:
    """Records a remark at the operation's location. MLIR's bindings can emit errors only."""
    sink = _remarks.get()
    if sink is not None:
        loc = op.operation.location
        attributes = op.operation.attributes
        symbol = ir.StringAttr(attributes["sym_name"]).value if "sym_name" in attributes else ""
        sink.append(Remark(location(loc), op.operation.name, message, loc, symbol))


def importer(name: str) -> ModuleType:
    """One of torch-mlir's own importers: "fx_importer" (imports torch) or "onnx_importer" (imports onnx)."""
    return importlib.import_module(f"torch_mlir.extras.{name}")


def parse(source: str | bytes, ctx: ir.Context, name: str = "input") -> ir.Module:
    """Parses MLIR text or bytecode. Raises UserError with the first diagnostic when it does not."""
    try:
        with ctx:
            return ir.Module.parse(source, ctx)
    except (ir.MLIRError, ValueError) as error:
        raise UserError(f"{name} is not valid MLIR: {first_line(error)}") from error


def bytecode(module: ir.Module | ir.Operation) -> bytes:
    """The module, or an operation that could be in one, in MLIR's binary form, which `parse` also takes."""
    buffer = io.BytesIO()
    module.operation.write_bytecode(buffer)
    return buffer.getvalue()


def clone(module: ir.Module) -> ir.Module:
    """A copy of the module in the same context."""
    with module.context, module.operation.location as location_:
        copy = ir.Module.create(location_)
        for attribute in module.operation.attributes:
            copy.operation.attributes[attribute] = module.operation.attributes[attribute]
        for op in module.body.operations:
            op.operation.clone(ir.InsertionPoint(copy.body))
    return copy


def dialect_names(ctx: ir.Context) -> list[str]:
    """The dialects that IR in this context can use. The bindings do not list them: each is asked for."""
    import torch_mlir.dialects as package

    modules = {name.removeprefix("_").removesuffix("_ops_gen") for _, name, _ in pkgutil.iter_modules(package.__path__)}

    def has(name: str) -> bool:
        try:
            return ctx.dialects[name] is not None
        except (AttributeError, IndexError, ValueError):
            return False

    return sorted(filter(has, modules | {"builtin", "kitsune", "tm_tensor", "torch_c"}))


def first_line(error: BaseException) -> str:
    """The first diagnostic of an MLIRError with its location; else the first line of the text."""
    diagnostics = getattr(error, "error_diagnostics", None)
    if diagnostics:
        return f"{location(diagnostics[0].location)}: {diagnostics[0].message}"
    lines = [line for line in str(error).splitlines() if line.strip()]
    if lines and lines[0].startswith("Unable to parse"):  # the one failure that MLIR does not explain
        return 'an operation of the kitsune dialect is not in the generic form, "kitsune.name"(...)'
    return lines[0] if lines else type(error).__name__


# By context and by the text of a pipeline. Managers hold no context, and must not outlive theirs.
_managers: WeakKeyDictionary[ir.Context, dict[tuple[str, bool], PassManager]] = WeakKeyDictionary()


def pass_manager(ctx: ir.Context, pipeline: str, verify: bool = False) -> PassManager:
    """What runs a textual upstream pipeline, kept for as long as the context: in their first run, passes that simplify
    collect the patterns of all loaded dialects, which takes five times as long as to go through a small module. When
    other dialects have been loaded since, MLIR has them do so again. `verify` is for after each pass."""
    kept = _managers.setdefault(ctx, {})
    found = kept.get((pipeline, verify))
    if found is None:
        with ctx:
            found = kept[pipeline, verify] = PassManager.parse(pipeline)
        found.enable_verifier(verify)
    return found


def run_passes(module: ir.Module, *pipelines: str) -> None:
    """Runs textual upstream pipelines in order. Raises InternalError with MLIR's own words. What they give is verified
    by who ran our pass that asks for them, once: after each of them that takes as long as they do."""
    for pipeline in pipelines:
        with module.context:
            try:
                pass_manager(module.context, pipeline).run(module.operation)
            except ir.MLIRError as error:
                raise InternalError(f"upstream pass failed: {first_line(error)} (in {pipeline[:120]})") from error


# What no gpu.module holds, by dialect and by name; what no body of linalg holds, but for four; and operations that hold
# none of their own kind. Kernels and bodies are most of a module, which is walked through many times.
_ON_HOST = ("func.", "kitsune.", "linalg.", "tensor.", "tm_tensor.", "gpu.launch_func", "gpu.module", "memref.global")
_AROUND_BODIES = ("func.", "kitsune.", "linalg.", "tensor.", "tm_tensor.", "gpu.func", "gpu.launch_func", "gpu.module")
_IN_BODIES = frozenset({"linalg.index", "linalg.yield", "tensor.dim", "tensor.extract"})
_APART = (
    frozenset({"func.func", "gpu.func", "llvm.func"}),
    frozenset({"gpu.module"}),
    frozenset({"kitsune.kernel"}),
    frozenset({"kitsune.pipeline"}),
)


class _Ways(dict[str, ir.WalkResult]):
    """By the name of an operation, whether to look for operations of these names in it."""

    def __init__(self, names: frozenset[str]):
        self._closed = tuple(names) if any(names <= kind for kind in _APART) else ()
        if all(name.startswith(_ON_HOST) for name in names):
            self._closed += ("gpu.module",)
        if all(name.startswith(_AROUND_BODIES) and name not in _IN_BODIES for name in names):
            self._closed += ("linalg.",)

    def __missing__(self, name: str) -> ir.WalkResult:
        found = self[name] = ir.WalkResult.SKIP if name.startswith(self._closed) else ir.WalkResult.ADVANCE
        return found


@cache
def _sought(names: tuple[str, ...]) -> tuple[frozenset[str], _Ways]:
    return frozenset(names), _Ways(frozenset(names))


def walk(root: Any, *names: str) -> list[ir.Operation]:
    """The operations under `root` (pre-order), of the given names or all; safe to erase while iterating."""
    found: list[ir.Operation] = []
    wanted, ways = _sought(names)
    advance = ir.WalkResult.ADVANCE

    def visit_any(op: ir.Operation) -> ir.WalkResult:
        found.append(op)
        return advance

    def visit(op: ir.Operation) -> ir.WalkResult:
        name = op.name
        if name in wanted:
            found.append(op)
        way = ways[name]
        return way if way is advance or op != root.operation else advance

    root.operation.walk(visit if names else visit_any, ir.WalkOrder.PRE_ORDER)
    return found


def in_block_order(operations: Iterable[ir.Operation]) -> list[ir.Operation]:
    """Operations of a block, in their order."""
    return sorted(operations, key=cmp_to_key(lambda a, b: -1 if a.is_before_in_block(b) else 1))


def replace_op(op: ir.Operation, *values: ir.Value) -> None:
    """Puts values in the places of an operation's results, and erases it."""
    for old, new in zip(op.results, values):
        old.replace_all_uses_with(new)
    op.erase()


def clone_on(op: ir.Operation, values: dict[ir.Value, ir.Value | None]) -> ir.Operation:
    """An operation once more, at the insertion point, on what `values` has for its operands, and for those in its
    regions; its results join `values`."""
    copy = op.operation.clone().operation
    for old, new in zip(walk(op), walk(copy), strict=True):
        for i, operand in enumerate(old.operands):
            if operand in values:
                new.operands[i] = values[operand]
    values.update(zip(op.results, copy.results, strict=True))
    return copy


def i64(number: int) -> ir.IntegerAttr:
    """A number as an attribute."""
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), number)


def attr_int(op: ir.Operation, name: str, default: int | None = None) -> int | None:
    """An integer attribute's value, or `default` when it is absent."""
    return ir.IntegerAttr(op.attributes[name]).value if name in op.attributes else default


_FILE_LOCATION = re.compile(r'"((?:[^"\\]|\\.)+)":(\d+):\d+')


def location(loc: ir.Location) -> str:
    """A short `file:line` for people: the innermost file of a nested location. The bindings give
    locations no structure, so it is read off the printed form."""
    match = _FILE_LOCATION.search(str(loc))
    return f"{match.group(1)}:{match.group(2)}" if match else "unknown location"
