"""The torch dialect to linalg on tensors, by torch-mlir's own pipelines, with errors a user can read.

The pipelines run in `kitsune_mlir.worker`: some of their passes abort the process on operators they do not know.
"""

from __future__ import annotations

import itertools
import re
import tempfile
from functools import lru_cache
from typing import Any

from kitsune_mlir import mlir, worker
from kitsune_mlir.errors import InternalError, UnsupportedError
from kitsune_mlir.mlir import func, ir
from kitsune_mlir.running_exponentials import without_overflow

from . import large_constants, lifted_operators
from .broadcasts import allow_no_rows
from .left_names import NAMES
from .nan import keep_nan

FROM_EXPORT = (
    "builtin.module(func.func(torch-match-quantized-custom-ops),"
    "torchdynamo-export-to-torch-backend-pipeline{extra-library=})",
    "builtin.module(torch-backend-to-linalg-on-tensors-backend-pipeline)",
)
FROM_ONNX = (
    "builtin.module(func.func(convert-torch-onnx-to-torch))",
    "builtin.module(torch-lower-to-backend-contract)",
    "builtin.module(torch-backend-to-linalg-on-tensors-backend-pipeline)",
)

_requests, _REQUESTS_OF_ONE = itertools.count(), 50

_PATIENCE_FOR_ONE_S = 30  # for one operator, when the one is looked for that takes the process down

# An operator torch-mlir has no name for stands in a torch.operator; others print under their own.
_OPERATOR = re.compile(r'name = "(?:torch\.)?([\w.]+)"|\'torch\.((?:aten|prims|prim|onnx)\.[\w.]+)\'')


def lower_torch(module: ir.Module, model: str, pipelines: tuple[str, ...] = FROM_EXPORT) -> ir.Module:
    """The module in linalg, in the same context; `module` is left as it is.

    Raises UnsupportedError with the operator and its source line; InternalError, with a reproducer too, when
    torch-mlir dies over it.
    """
    module, constants = large_constants.lift(module)
    if constants:
        mlir.let_context_go()
    lifted = lifted_operators.lift(module)
    try:
        answer = _run(module, pipelines)
    except worker.Died as death:
        raise InternalError(*_explain_death(module, model, pipelines, str(death))) from death
    if errors := answer["errors"]:
        culprit = None if _named(errors) else _culprit(module, pipelines, dies=False)
        raise UnsupportedError(explain(model, errors, culprit))
    lowered = mlir.parse(answer["module"], module.context)
    lifted_operators.put_back(lowered, lifted)
    large_constants.put_back(lowered, constants)
    allow_no_rows(lowered)
    keep_nan(lowered)
    without_overflow(lowered)
    return lowered


def _run(module: ir.Module, pipelines: tuple[str, ...], patience: float = worker.PATIENCE_S) -> dict[str, Any]:
    request = {"module": mlir.bytecode(module), "pipelines": pipelines}
    return worker.call("kitsune_mlir.frontend.lower_torch:answer", request, patience)


@lru_cache(maxsize=1)
def _context(number: int) -> ir.Context:
    """Many requests have one, as in ptx_worker.py."""
    return mlir.torch_context()


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Runs in the worker. {"module": in MLIR's binary form, "pipelines": texts} -> {"module": the same, "errors":
    a list of (file:line, message)}.

    torch-mlir has passes that report an error without failing; an error reported is a failure here.
    """
    context = _context(next(_requests) // _REQUESTS_OF_ONE)
    errors: list[tuple[str, str]] = []

    def collect(diagnostic: ir.Diagnostic) -> bool:
        if diagnostic.severity == ir.DiagnosticSeverity.ERROR:
            errors.append((_where(diagnostic.location), diagnostic.message))
        return True

    handler = context.attach_diagnostic_handler(collect)
    context.emit_error_diagnostics = True
    try:
        with context:
            module = ir.Module.parse(request["module"])  # which verifies it: importers do not
            for pipeline in request["pipelines"]:
                mlir.pass_manager(context, pipeline, verify=True).run(module.operation)
                if errors:
                    break
    except ir.MLIRError as error:
        if not errors:
            errors.append(("unknown location", mlir.first_line(error)))
    finally:
        handler.detach()
    return {"module": b"" if errors else mlir.bytecode(module), "errors": errors}


def _where(location: ir.Location) -> str:
    """`file:line`, or what the model calls the node (ONNX has no source lines)."""
    name = re.fullmatch(r'loc\("([^"]+)"(?:\(.*\))?\)', str(location))
    return f"node '{name.group(1)}'" if name else mlir.location(location)


def explain(model: str, errors: list[tuple[str, str]], culprit: ir.Operation | None = None) -> str:
    """One sentence for torch-mlir's diagnostics, given as (file:line, message) pairs, of which none may name the
    operator: then it is `culprit`, where that is known."""
    named = _named(errors) or (culprit and (_operator(culprit), _where(culprit.location)))
    if named:
        return f"{model}: torch-mlir cannot lower the operator {named[0]} at {named[1]}; " + _advice(named[0])
    where, message = errors[0]
    return f"{model}: torch-mlir cannot lower what is at {where}: {message.splitlines()[0][:200]}"


def _advice(operator: str) -> str:
    if operator.removeprefix("aten.") in NAMES:
        return "torch.compile(model, backend='kitsune') has torch compute it, or compute it outside the model"
    return "compute it outside the model or write it with other operators"


def _named(errors: list[tuple[str, str]]) -> tuple[str, str] | None:
    """The first operator that a diagnostic names, and where it stands."""
    for where, message in errors:
        if match := _OPERATOR.search(message):
            return next(group for group in match.groups() if group), where
    return None


def _explain_death(module: ir.Module, model: str, pipelines: tuple[str, ...], death: str) -> tuple[str, str]:
    """A sentence on the operator that torch-mlir dies of, and the path of a file that shows it."""
    culprit = _culprit(module, pipelines, dies=True)
    at = f"the operator {_operator(culprit)} at {_where(culprit.location)}" if culprit else "it"
    with tempfile.NamedTemporaryFile("w", prefix="kitsune-", suffix=".mlir", delete=False) as file:
        file.write(f"// kitsune compile {file.name}\n{module.operation.get_asm(enable_debug_info=True)}")
    return (
        f"{model}: torch-mlir dies when it lowers {at} ({death}); compute it outside the model or write it with "
        "other operators",
        file.name,
    )


def _culprit(module: ir.Module, pipelines: tuple[str, ...], dies: bool) -> ir.Operation | None:
    """The first operator that torch-mlir dies of, or has errors for, when it is given nothing else."""
    tried: set[str] = set()
    for op in mlir.walk(module, *sorted({op.name for op in mlir.walk(module) if op.name.startswith("torch.")})):
        if not any(_is_tensor(result) for result in op.results):
            continue
        alone = _alone(op)
        if str(alone) in tried:
            continue
        tried.add(str(alone))
        try:
            fails = bool(_run(alone, pipelines, _PATIENCE_FOR_ONE_S)["errors"]) and not dies
        except worker.Died:
            fails = dies
        if fails:
            return op
    return None


def _alone(op: ir.Operation) -> ir.Module:
    """A module with a function that does only this. Its arguments are the operator's tensors; numbers and lists
    are made in it."""
    with op.location:
        module = ir.Module.create()
        copies: dict[ir.Value, ir.Value] = {}
        needed = _needed(op)
        tensors = [value for each in needed for value in each.operands if _is_tensor(value)]
        tensors = list(dict.fromkeys(tensors))
        with ir.InsertionPoint(module.body):
            function = func.FuncOp("main", ([t.type for t in tensors], [r.type for r in op.results]))
        copies = dict(zip(tensors, function.add_entry_block().arguments, strict=True))
        with ir.InsertionPoint(function.entry_block):
            for each in needed:
                copy = each.clone()
                for index, operand in enumerate(each.operands):
                    copy.operands[index] = copies[operand]
                copies.update(zip(each.results, copy.results, strict=True))
            func.ReturnOp([copies[result] for result in op.results])
    return module


def _needed(op: ir.Operation) -> list[ir.Operation]:
    """The operator after those that make its operands that are no tensors."""
    makers = (operand.owner for operand in op.operands if not _is_tensor(operand))
    return [each for maker in makers for each in _needed(maker)] + [op]


def _is_tensor(value: ir.Value) -> bool:
    return str(value.type).startswith("!torch.vtensor")


def _operator(op: ir.Operation) -> str:
    name = ir.StringAttr(op.attributes["name"]).value if op.name == "torch.operator" else op.name
    return name.removeprefix("torch.")
