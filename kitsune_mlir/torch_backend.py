"""`torch.compile(model, backend="kitsune")`: inference and training through pipelines, everything else as torch would.

Weights stay torch's: each call passes them, so that what changes them in place is seen. Where they are to stay as they
are (`options={"freeze": True}`, as torch's own compiler has it), what is computed of them alone is computed once.

Where gradients are wanted, AOTAutograd makes a graph of both passes and cuts it in two, so that as few bytes as
possible are kept between them; each part is a program of its own.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import TorchDynamoException
from torch._functorch import config as functorch
from torch._functorch.aot_autograd import make_boxed_func
from torch._guards import TracingContext
from torch._subclasses.fake_tensor import unset_fake_temporarily

from kitsune_mlir import mlir
from kitsune_mlir.errors import KitsuneError, UserError
from kitsune_mlir.frontend import data_writes, left_operators
from kitsune_mlir.frontend.aot_graph import AotGraph, import_aot_graph
from kitsune_mlir.frontend.joint_graphs import attention_of, cut, table_for
from kitsune_mlir.frontend.left_operators import Stage
from kitsune_mlir.frontend.narrow_floats import KINDS
from kitsune_mlir.frontend.recurrent_cells import layers_apart
from kitsune_mlir.planning import target as targets

Function = Callable[..., Any]

_OTHERS = {torch.complex32, torch.complex64, torch.complex128, *KINDS}  # types that a program has no tensors of
_OPTIONS = ("target", "deterministic", "freeze")

# A backward pass is compiled at once, of open sizes as well: what is refused is refused as a whole. Tokens that keep
# checks in order are no values of a graph. What is kept between the passes is what views are of, for views are copied.
_SETTINGS = {"force_non_lazy_backward_lowering": True, "unlift_effect_tokens": True, "recompute_views": True}


def kitsune(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], *, mode: str | None = None, options: Any = None
) -> Function:
    """Compiles a graph from Dynamo. `options` is {"target": NAME, "deterministic": BOOL, "freeze": BOOL}; by default
    the device of the inputs, torch's own setting (torch.use_deterministic_algorithms), and False. With "freeze" the
    parameters and buffers that the graph does not change are those of this moment: later changes are not seen.

    A graph that needs gradients is compiled with its backward pass, and "freeze" is not for it. One that cannot be
    compiled runs as torch runs it, with one warning that says why. Raises UserError for an unknown option or target.
    """
    options = dict(options or {})
    if unknown := set(options) - set(_OPTIONS):
        raise UserError(f"the kitsune backend has no option '{min(unknown)}'; its options are {', '.join(_OPTIONS)}")
    if "target" in options:
        targets.load(options["target"])
    tensors = [value for value in example_inputs if isinstance(value, torch.Tensor)]
    if not tensors:
        return gm.forward
    target = options.get("target") or _target_of(_device_of(tensors))
    trained = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    values = example_inputs if options.get("freeze") and not trained else ()
    compiler = functools.partial(_compile, target=target, deterministic=options.get("deterministic"), values=values)
    try:
        with functorch.patch(**_SETTINGS), attention_of(gm), layers_apart():
            return aot_autograd(
                fw_compiler=compiler,
                bw_compiler=functools.partial(compiler, backward=True),
                partition_fn=cut,
                decompositions=table_for(trained),
            )(data_writes.written(gm), example_inputs)
    except TorchDynamoException:  # by which torch begins again, with other sizes open
        raise
    except Exception as error:
        _warn(_reason(error))
        return gm.forward


def _compile(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    target: str,
    deterministic: bool | None,
    values: Sequence[Any],
    backward: bool = False,
) -> Function:
    """A boxed function of a functional aten graph: a list of tensors and sizes -> a list of tensors. `values` are those
    that Dynamo's graph was given, if its module's own stay as they are."""
    with unset_fake_temporarily():  # torch calls under a mode in which the graph's constants could not be read
        fixed, changed = _fixed(values, len(example_inputs)), set() if backward else _changed(len(example_inputs))
        options = {"target": target, "deterministic": deterministic}
        if parts := left_operators.stages(gm):
            run = _in_stages(gm, parts, fixed, changed, options)
        else:
            graph, run = _program(gm, fixed, example_inputs, changed, **options)
            _tell_strides(gm, graph)
    if backward:
        _keep_what_is_given()
    return make_boxed_func(run)


def _in_stages(
    gm: torch.fx.GraphModule, parts: Sequence[Stage], fixed: dict[int, Any], changed: set[int], options: dict[str, Any]
) -> Function:
    """What runs a graph of which torch computes some operators itself."""
    position = {node: i for i, node in enumerate(gm.graph.find_nodes(op="placeholder"))}
    programs: list[Function | None] = []
    for part in parts:
        at = [position.get(node) for node in part.inputs]
        own = {i: fixed[place] for i, place in enumerate(at) if place in fixed}
        written = {i for i, place in enumerate(at) if place in changed}
        programs.append(None if part.graph is None else _program(part.graph, own, (), written, **options)[1])
    return lambda *given: left_operators.run(gm, parts, programs, given)


def _program(
    gm: torch.fx.GraphModule,
    fixed: dict[int, Any],
    examples: Sequence[Any],
    changed: set[int],
    target: str,
    deterministic: bool | None,
) -> tuple[AotGraph, Function]:
    """A graph's program, and a function of its values."""
    from kitsune_mlir.compiler import compile_program

    graph = import_aot_graph(gm, "torch.compile", fixed, examples, changed)
    compiled = compile_program(graph.program, target, deterministic=deterministic)
    compiled.target = compiled.targets[0]  # refuses now what this machine cannot run

    def run(*values: Any) -> list[Any]:
        device = _device_of(values)
        given = [values[i] if i >= 0 else torch.empty((values[~i], 0), device=device) for i in graph.taken]
        given += graph.draw(device)
        if not all(isinstance(value, torch.Tensor) and value.dtype not in _OTHERS for value in given):
            given = _as_known_tensors(given)
        return graph.completed(compiled(*given), values)

    return graph, run


def _tell_strides(gm: torch.fx.GraphModule, graph: AotGraph) -> None:
    """Tells AOTAutograd how results lie that a program makes, row by row: the backward pass is given them so."""
    context = TracingContext.try_get()
    if context is None or context.output_strides is None or context.output_strides:
        return
    for i, result in enumerate(gm.graph.output_node().args[0]):
        value = None if result is None or i in graph.places else result.meta["val"]
        shape = value.shape if isinstance(value, torch.Tensor) else ()
        known = len(shape) > 1 and all(isinstance(size, int) for size in shape)
        context.output_strides.append(_strides(shape, graph.orders.get(i, range(len(shape)))) if known else None)


def _strides(shape: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """The strides of a tensor whose dimensions lie in an order, from the slowest to the fastest."""
    places = {d: place for place, d in enumerate(order)}
    return tuple(math.prod(max(1, shape[b]) for b in order[places[d] + 1 :]) for d in range(len(shape)))


def _keep_what_is_given() -> None:
    """Tells AOTAutograd that a backward pass takes over no memory that it is given, so that it may be called again."""
    context = TracingContext.try_get()
    if context is not None and context.fw_metadata is not None:
        context.fw_metadata.bw_donated_idxs = []


def _fixed(values: Sequence[Any], count: int) -> dict[int, torch.Tensor]:
    """Which of so many values of a graph, by their positions, are a module's own and are not changed by it; none where
    torch has other ones in their place."""
    context = TracingContext.try_get()
    known = context.fw_metadata if context is not None else None
    if known is None or len(values) != count:
        return {}
    own = [i for i in known.static_input_indices if i not in _changed(count)]
    return {i: values[i] for i in own if type(values[i]) in (torch.Tensor, torch.nn.Parameter)}


def _changed(count: int) -> set[int]:
    """Which of so many values of a graph that is no backward pass the model changes."""
    context = TracingContext.try_get()
    known = context.fw_metadata if context is not None else None
    if known is None or len(known.input_info) != count:
        return set()
    return {i for i, info in enumerate(known.input_info) if info.mutates_data or info.mutates_metadata}


def _as_known_tensors(values: Sequence[Any]) -> list[torch.Tensor]:
    """Numbers as tensors where the others are, complex numbers as two real ones, and the bits of narrow ones."""
    device = _device_of(values)

    def known(value: Any) -> torch.Tensor:
        if not isinstance(value, torch.Tensor):
            return torch.full((), value, dtype=torch.int64, device=device)
        if value.dtype in KINDS:
            return value.view(torch.uint8)
        return torch.view_as_real(value.resolve_conj()) if value.is_complex() else value

    return [known(value) for value in values]


def _device_of(values: Sequence[Any]) -> torch.device:
    """Where the tensors are, but for numbers on the CPU that others have beside them."""
    devices = [value.device for value in values if isinstance(value, torch.Tensor)]
    return next((device for device in devices if device.type != "cpu"), torch.device("cpu"))


def _target_of(device: torch.device) -> str:
    if device.type != "cuda":
        return "cpu"
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}{'a' if major == 9 or major == 10 else ''}"


def _reason(error: Exception) -> str:
    """Our own refusal, which torch wraps in errors of its; or what torch says that cannot take the graph apart."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, KitsuneError):
        cause = cause.__cause__ or cause.__context__
    return str(cause) if cause else f"torch cannot take it apart: {type(error).__name__}: {mlir.first_line(error)}"


@functools.cache
def _warn(reason: str) -> None:
    warnings.warn(f"kitsune backend: a part of the model runs as torch runs it: {reason}", stacklevel=3)
