"""The torch dialect to linalg on tensors, by torch-mlir's own pipelines, with errors a user can read."""

from __future__ import annotations

import re

from kitsune_mlir import mlir
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import PassManager, ir

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

# An operator torch-mlir has no name for stands in a torch.operator; others print under their own.
_OPERATOR = re.compile(r'name = "(?:torch\.)?([\w.]+)"|\'torch\.((?:aten|prims|prim|onnx)\.[\w.]+)\'')


def lower_torch(module: ir.Module, model: str, pipelines: tuple[str, ...] = FROM_EXPORT) -> None:
    """Lowers `module` in place. Raises UnsupportedError with the operator and its source line.

    torch-mlir has passes that report an error without failing; an error reported is a failure here.
    """
    context = module.context
    errors: list[tuple[str, str]] = []

    def collect(diagnostic: ir.Diagnostic) -> bool:
        if diagnostic.severity == ir.DiagnosticSeverity.ERROR:
            errors.append((_where(diagnostic.location), diagnostic.message))
        return True

    handler = context.attach_diagnostic_handler(collect)
    context.emit_error_diagnostics = True
    try:
        with context:
            for pipeline in pipelines:
                PassManager.parse(pipeline).run(module.operation)
                if errors:
                    break
    except ir.MLIRError as error:
        if not errors:
            errors.append(("unknown location", mlir.first_line(error)))
    finally:
        context.emit_error_diagnostics = False
        handler.detach()
    if errors:
        raise UnsupportedError(explain(model, errors))


def _where(location: ir.Location) -> str:
    """`file:line`, or what the model calls the node (ONNX has no source lines)."""
    name = re.fullmatch(r'loc\("([^"]+)"(?:\(.*\))?\)', str(location))
    return f"node '{name.group(1)}'" if name else mlir.location(location)


def explain(model: str, errors: list[tuple[str, str]]) -> str:
    """One sentence for torch-mlir's diagnostics, given as (file:line, message) pairs."""
    for where, message in errors:
        if match := _OPERATOR.search(message):
            operator = next(group for group in match.groups() if group)
            return (
                f"{model}: torch-mlir cannot lower the operator {operator} at {where}; "
                "compute it outside the model or write it with other operators"
            )
    where, message = errors[0]
    return f"{model}: torch-mlir cannot lower what is at {where}: {message.splitlines()[0][:200]}"
