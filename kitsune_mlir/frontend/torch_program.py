"""torch.export's graphs to a Program: every parameter, buffer, constant and input is an argument."""

from __future__ import annotations

import copy
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.export.graph_signature import InputKind, OutputKind
from torch.export.passes import move_to_device_pass
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from kitsune_mlir import mlir
from kitsune_mlir.errors import InternalError, UnsupportedError, UserError
from kitsune_mlir.program import Argument, Output, Program, TensorSpec
from kitsune_mlir.signature import CONSTANTS, Tree, describe

from . import composite_operators, empty_tensors, narrow_floats, result_memory
from .broadcasts import share_sizes
from .complex_numbers import part_complex_numbers, view_weights_as_real
from .constant_masks import known_masks_as_places
from .decompositions import table
from .given_orders import ORDER, lie_as_given, of_example, symbol_of
from .graph_rewrites import rewritten, settle, views_that_copy
from .guards import asked_of_calls, found_equal, guards, settle_sizes
from .lower_torch import lower_torch
from .model_lines import line_of, refused_by_rule, user_frames
from .moved_dimensions import move_once
from .narrow_integers import widen_narrow_integers
from .numbers import exact_numbers, numbers_as_tensors
from .open_views import part_open_views
from .plain_trace import taken_apart
from .rolled_slices import roll_slices
from .selections import without_selections
from .shared_keys import share_keys
from .shared_weights import share_weights
from .size_conditions import Known
from .sizes import numbers_that_are_sizes
from .strides import reaches_beyond
from .summed_products import sum_products
from .sums_before_turns import sum_before_turns
from .tracing import tracing
from .vector_products import sum_vector_products
from .written_slices import join_slices

DTYPES = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.bool: "i1",
}

_KINDS = {
    InputKind.PARAMETER: "parameter",
    InputKind.BUFFER: "buffer",
    InputKind.CONSTANT_TENSOR: "constant",
    InputKind.USER_INPUT: "input",
}
_MUTATIONS = (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION, OutputKind.PARAMETER_MUTATION)

_PRODUCTS = {getattr(torch.ops.aten, name).default for name in ("mm", "bmm", "addmm", "baddbmm")}


def import_exported(exported: torch.export.ExportedProgram, name: str) -> Program:
    """The Program of an ExportedProgram.

    Arguments come in the order of its `graph_signature.input_specs`, outputs in that of its
    `output_specs` (mutations first). Raises UnsupportedError for an operator, element type or kind of
    argument that cannot be imported, UserError for weights without data.
    """
    given = set(exported.graph_signature.user_inputs)
    for node in exported.graph.find_nodes(op="placeholder"):
        if _is_tensor(node) and (node.name in given or not _is_other_inside(node.meta["val"])):
            node_spec(node.name, node)  # refuses, here already, types that torch itself trips over
    for node in filter(reaches_beyond, exported.graph.nodes):
        raise UnsupportedError(
            f"{name}: {node.target}{line_of(node)} reads memory by strides, of open sizes or beyond the tensor that it "
            "is given; take slices, `unfold` or an index of it"
        )
    if any(isinstance(value, torch._subclasses.FakeTensor) for value in exported.constants.values()):
        _refuse_written_constants(exported, name)  # taking the graph apart would end the process
    exported = numbers_that_are_sizes(exported)
    asked = asked_of_calls(exported, name)
    with tracing(), composite_operators.kept(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch's, about its own trees
        try:
            with views_that_copy(rewritten(on_cpu(without_selections(known_masks_as_places(exported))))) as whole:
                before = len(guards(whole.graph))
                exported, (module, signature) = whole, taken_apart(whole, table())
        except UnsupportedError as error:
            raise UnsupportedError(refused_by_rule(error)) from error
        except RuntimeError as error:
            _refuse_written_constants(exported, name)
            reason = mlir.first_line(error)
            raise UnsupportedError(
                f"{name}: torch cannot take the graph apart into aten operators: {reason}"
            ) from error
        except UserError:
            raise
        except Exception as error:
            what = f"{type(error).__name__}: {refused_by_rule(error)}"
            raise InternalError(f"{name}: a rule that takes operators apart failed: {what}") from error
    graph = module.graph
    asked = [*asked, *found_equal(graph, before, exported.range_constraints, name)]
    settle_sizes(graph)
    view_weights_as_real(graph, set(signature.user_inputs))
    for node in graph.output_node().all_input_nodes:
        if _is_tensor(node) and node.name in signature.user_outputs:
            node_spec(node.name, node)  # refuses types that a program has inside only
    narrow_floats.as_bits(graph)
    numbers = numbers_as_tensors(graph)
    written = {spec.target for spec in signature.output_specs if spec.kind in _MUTATIONS}
    as_called = lie_as_given(graph, set(signature.user_inputs) - written)
    nodes = {node.name: node for node in graph.nodes}

    arguments: list[Argument] = []
    position: dict[str, int] = {}  # argument index by parameter, buffer or input name
    inputs: list[_Leaf] = []
    for spec in signature.input_specs:
        node = nodes[spec.arg.name]
        if spec.kind == InputKind.USER_INPUT and not _is_tensor(node):
            inputs.append(_Leaf(_constant_input(node, spec.arg, name)))
            continue
        if spec.kind == InputKind.TOKEN:
            raise UnsupportedError(f"{name}: the model calls {_effects(graph)}, which has side effects; leave it out")
        if spec.kind not in _KINDS or not _is_tensor(node):
            raise UnsupportedError(f"{name}: the argument {spec.arg.name} is a {spec.kind.name.lower()}, not a tensor")
        label = spec.arg.name if spec.target is None else spec.target
        position[label] = len(arguments)
        value = None
        if spec.kind == InputKind.USER_INPUT:
            inputs.append(_Leaf({"leaf": sum("leaf" in leaf.tree for leaf in inputs)}))
        else:
            value = array_of(_weight(exported, spec.target), f"{name}: {_KINDS[spec.kind]} {label}")
        own = replace(node_spec(label, node), order=node.meta.get(ORDER, ()))
        arguments.append(Argument(own, _KINDS[spec.kind], value, example_sizes_of(node)))

    outputs: list[Output] = []
    returned: list[torch.fx.Node] = []
    results: list[_Leaf] = []
    for spec in signature.output_specs:
        mutation = spec.kind in _MUTATIONS
        if spec.arg.name in numbers:
            node = numbers[spec.arg.name]
            results.append(_Leaf({"number": sum(output.kind == "result" for output in outputs)}))
            outputs.append(Output(node_spec(spec.arg.name, node)))
            returned.append(node)
            continue
        if spec.arg.name not in nodes or not _is_tensor(nodes[spec.arg.name]):
            results.append(_Leaf(_constant_result(spec.arg, name)))
            continue
        if not mutation:
            results.append(_Leaf({"leaf": sum(output.kind == "result" for output in outputs)}))
        node = as_called.get(spec.arg.name, nodes[spec.arg.name])
        label = spec.target if mutation else spec.arg.name
        kind, mutated = ("mutation", position[spec.target]) if mutation else ("result", None)
        outputs.append(Output(node_spec(label, node), kind, mutated))
        returned.append(node)

    changed = {output.mutates for output in outputs}
    as_they_are = {i for i, a in enumerate(arguments) if a.kind == "input" and not a.spec.order} - changed
    lent = {nodes[name]: i for name, i in position.items() if i in as_they_are}
    memory = result_memory.memory_of(returned, lent, len(arguments))
    memory = [n if output.mutates is None else output.mutates for output, n in zip(outputs, memory, strict=True)]
    graph.output_node().args = (tuple(returned),)
    args, kwargs = torch.utils._pytree.tree_unflatten(inputs, exported.call_spec.in_spec)
    call = {
        "args": describe(args, _as_tree),
        "kwargs": describe(kwargs, _as_tree),
        "results": describe(torch.utils._pytree.tree_unflatten(results, exported.call_spec.out_spec), _as_tree),
    }
    fixed = {name for name, i in position.items() if arguments[i].kind != "input" and i not in changed}
    weights = {nodes[spec.arg.name] for spec in signature.input_specs if (spec.target or spec.arg.name) in fixed}
    module = lower_graph(graph, name, weights, Known(asked, exported.range_constraints))
    share_sizes(module, [argument.spec for argument in arguments])
    result_memory.give(module, memory, changed - {None})
    return Program(name, module, arguments, outputs, call, asked)


def on_cpu(exported: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """The program with everything on the CPU; itself when it is there, else a copy.

    torch takes its composite operators apart by device, on a GPU into fused operators that only torch's own
    kernels know. The weights come to the CPU in any case, to be arrays.
    """
    values = [node.meta.get("val") for node in exported.graph.nodes]
    leaves = torch.utils._pytree.tree_leaves((values, exported.state_dict, exported.constants))
    if all(leaf.device.type == "cpu" for leaf in leaves if isinstance(leaf, torch.Tensor)):
        return exported
    graph_module = copy.deepcopy(exported.graph_module)
    for node, copied_node in zip(exported.graph.nodes, graph_module.graph.nodes, strict=True):
        copied_node.name = node.name  # a copy renames what is called like a builtin, such as `input`
    copied = torch.export.ExportedProgram(  # without example inputs; the pass changes what it is given
        root=graph_module,
        graph=graph_module.graph,
        graph_signature=exported.graph_signature,
        state_dict=dict(exported.state_dict),
        range_constraints=exported.range_constraints,
        module_call_graph=exported.module_call_graph,
        constants=dict(exported.constants),
        verifiers=exported.verifiers,
    )
    return move_to_device_pass(copied, "cpu")


def lower_graph(graph: torch.fx.Graph, name: str, weights: set[torch.fx.Node], known: Known) -> mlir.ir.Module:
    """A functional graph of aten operators as linalg; all tensor placeholders are arguments of @main, of which some are
    weights, which calls do not change. What is `known` of open sizes holds in each call."""
    for node in graph.nodes:
        if node.stack_trace:
            node.stack_trace = user_frames(node.stack_trace)
    part_complex_numbers(graph, name, line_of)
    for node in graph.nodes:
        if _is_tensor(node) and node.meta["val"].is_complex():
            raise UnsupportedError(
                f"{name}: the result of {node.target}{line_of(node)} is complex; "
                "write it with real numbers: the real and the imaginary parts as tensors of their own"
            )
        if isinstance(node.meta.get("val"), torch.SymInt | torch.SymFloat | torch.SymBool) and _is_unbacked(node):
            user = next(iter(node.users))
            raise UnsupportedError(
                f"{name}: {user.target}{line_of(user)} is given a number that depends on the data; "
                "give it a fixed number, or compute with the tensor that the number is read from"
            )
        if _is_unbacked(node):  # torch-mlir never returns from some of them
            raise UnsupportedError(
                f"{name}: the size of the result of {node.target}{line_of(node)} depends on the data; "
                "give it a fixed size, such as a mask instead of a selection"
            )
        _check_product(node, name)
    settle(graph)
    join_slices(graph)
    roll_slices(graph)
    share_weights(graph)
    share_keys(graph)
    sum_products(graph, weights)
    sum_vector_products(graph)
    sum_before_turns(graph)
    move_once(graph)
    part_open_views(graph, known)
    empty_tensors.fill(graph)
    exact_numbers(graph)
    widen_narrow_integers(graph)
    context = mlir.kept_context()
    importer = mlir.importer("fx_importer").FxImporter(context=context)
    try:
        importer.import_stateless_graph(graph, func_name="main")
    except (NotImplementedError, TypeError, AssertionError, KeyError, ValueError) as error:
        for node in graph.nodes:
            if isinstance(node.target, torch._ops.HigherOrderOperator):
                raise UnsupportedError(
                    f"{name}: the control flow of {node.target}{line_of(node)} cannot be imported; "
                    "compute both branches and choose by torch.where, or write a loop of a fixed length in Python"
                ) from error
            if isinstance(node.meta.get("val"), torch.SymInt | torch.SymFloat) and f"{node.target}" in str(error):
                raise UnsupportedError(
                    f"{name}: torch-mlir does not know {node.target}{line_of(node)} of open sizes; "
                    "compute with sums, products and quotients of integers, or fix the sizes"
                ) from error
        raise UnsupportedError(f"{name}: torch-mlir cannot import the graph: {mlir.first_line(error)}") from error
    return lower_torch(importer.module, name)


def _is_other_inside(value: torch.Tensor) -> bool:
    """Whether a weight's type is one that a program has otherwise: two real numbers, or the bits of one."""
    return value.is_complex() or value.dtype in narrow_floats.KINDS


def _is_unbacked(node: torch.fx.Node) -> bool:
    """Whether a number, or a size of a tensor, depends on the data; where a view begins in memory matters to no one."""
    value = node.meta.get("val")
    return bool(free_unbacked_symbols(value.shape if isinstance(value, torch.Tensor) else value))


def array_of(tensor: torch.Tensor, what: str) -> np.ndarray:
    """The tensor's memory as an array (of bf16 and of narrow_floats.py the bits, of complex numbers both parts, as a
    last dimension of size 2); copied only from another device or layout."""
    if tensor.device.type == "meta" or isinstance(tensor, torch._subclasses.FakeTensor):
        raise UserError(f"{what} is on the meta device and has no data: load the weights first")
    tensor = tensor.detach().cpu().contiguous()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    if tensor.dtype in narrow_floats.KINDS:
        tensor = tensor.view(torch.uint8)
    return (tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).numpy()


def node_spec(name: str, node: torch.fx.Node) -> TensorSpec:
    """Name, element type and sizes of a graph node's tensor."""
    value = node.meta["val"]
    if value.dtype not in DTYPES:
        raise UnsupportedError(
            f"{name} has elements of type {value.dtype}; use one of {', '.join(DTYPES.values())}"
            + (", with the real and the imaginary parts apart" if value.is_complex() else "")
            + (", such as its bits as uint8, by `view`" if value.dtype in narrow_floats.KINDS else "")
        )
    shape = tuple(s if isinstance(s, int) else None for s in value.shape)
    symbols = tuple(None if isinstance(s, int) else symbol_of(s) for s in value.shape)
    return TensorSpec(name, DTYPES[value.dtype], shape, symbols if any(symbols) else ())


def example_sizes_of(node: torch.fx.Node) -> tuple[int | None, ...]:
    """The sizes that a graph node's tensor had in the example; None for those that are not known."""
    return tuple(map(of_example, node.meta["val"].shape))


def _is_tensor(node: torch.fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def _refuse_written_constants(exported: torch.export.ExportedProgram, name: str) -> None:
    """Raises UserError for a tensor that the model writes to and that is no buffer of it, as torch requires."""
    constants = set(exported.graph_signature.inputs_to_lifted_tensor_constants)
    of_constants: set[torch.fx.Node] = set()  # and what is computed from them, such as views
    for node in exported.graph.nodes:
        if node.name in constants or not of_constants.isdisjoint(node.all_input_nodes):
            of_constants.add(node)
        written = isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable
        if written and node.args and node.args[0] in of_constants:
            raise UserError(
                f"{name}: {node.target}{line_of(node)} writes to a tensor that is no buffer of the model; "
                "make it one with register_buffer"
            )


def _weight(exported: torch.export.ExportedProgram, target: str) -> torch.Tensor:
    return exported.state_dict[target] if target in exported.state_dict else exported.constants[target]


def _constant_input(node: torch.fx.Node, argument: Any, name: str) -> Tree:
    """A number or None among the inputs: fixed by the export, so no argument of the function."""
    value = getattr(argument, "value", argument)
    if node.users or not isinstance(value, CONSTANTS):
        raise UnsupportedError(f"{name}: the input {node.name} is a number that varies; pass it as a tensor")
    node.graph.erase_node(node)
    return {"constant": value}


def _constant_result(argument: Any, name: str) -> Tree:
    value = getattr(argument, "value", argument)
    if not isinstance(value, CONSTANTS):
        raise UnsupportedError(f"{name}: the result {argument.name} is no tensor; return tensors only")
    return {"constant": value}


class _Leaf:
    """A tree that torch's pytree functions take for a leaf (a bare dict they would open)."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree


def _as_tree(value: Any) -> Tree:
    if isinstance(value, _Leaf):
        return value.tree
    raise UnsupportedError(f"arguments and results may nest in list, tuple and dict, not in {type(value).__name__}")


def _effects(graph: torch.fx.Graph) -> str:
    """The operators that are called for more than their results."""
    ordered = [node for node in graph.nodes if str(node.target) == "with_effects"]
    return " and ".join(sorted({f"{node.args[1]}{line_of(node)}" for node in ordered})) or "an operator"


def _check_product(node: torch.fx.Node, name: str) -> None:
    """Raises UserError for a product of two types, which torch.export lets pass and no call of torch computes."""
    if node.target not in _PRODUCTS:
        return
    left, right = (str(operand.meta["val"].dtype).removeprefix("torch.") for operand in node.args[-2:])
    if left != right:
        raise UserError(
            f"{name}: {node.target}{line_of(node)} multiplies {left} with {right}, which torch does not; "
            "convert one of them (`x.to(weight.dtype)`), or the model as a whole"
        )
