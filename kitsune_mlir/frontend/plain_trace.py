"""Exported graphs taken apart by a plain trace, where nothing in them writes.

`ExportedProgram.run_decompositions` traces a graph twice, through AOTAutograd, and makes it functional: first to find
what it writes to, then with a wrapper around every tensor. A graph that writes nothing comes out of one trace without
wrappers node for node the same, in 0.4 of the time; of open sizes, too, for which torch computes with symbols in each
trace. Where something in it writes after all, such as a rule that adds in place, or a size depends on the data, it is
torch's to take apart. What changes a tensor in place that nothing else reads, as a ReLU behind a convolution does, is
traced as what gives another one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import disable_fake_tensor_cache
from torch.export import ExportedProgram, _trace, exported_program
from torch.export.graph_signature import ConstantArgument, ExportGraphSignature, OutputKind
from torch.fx import Graph, GraphModule, Interpreter, Node, _symbolic_trace
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.fx.passes.runtime_assert import insert_deferred_runtime_asserts
from torch.fx.traceback import preserve_node_meta
from torch.utils._pytree import tree_leaves

from . import composite_operators

_DETACH = torch.ops.aten.detach_.default
_WANTED = (
    (exported_program, "_split_decomp_table_to_cia_and_python_decomp"),
    (exported_program, "_override_composite_implicit_decomp"),
    (_trace, "_ignore_backend_decomps"),
    (_symbolic_trace, "_Patcher"),
)
# Operators that torch takes apart into others, none of which gives a view of what they are given.
_FRESH = {
    getattr(torch.ops.aten, name).default
    for name in "batch_norm conv1d conv2d conv3d group_norm instance_norm layer_norm linear matmul".split()
}
_DROPOUTS = {getattr(torch.ops.aten, f"{name}dropout_").default for name in ("", "alpha_", "feature_")}
_KNOWN = all(hasattr(module, name) for module, name in _WANTED)


def taken_apart(
    exported: ExportedProgram, table: dict[Any, Callable[..., Any]]
) -> tuple[GraphModule, ExportGraphSignature]:
    """The program's graph by these rules, in aten operators that write nothing, and what its inputs and outputs are."""
    values = [node.meta.get("val") for node in exported.graph.find_nodes(op="placeholder")]
    with _not_looked_up(values):
        written = _written_for_others(exported.graph)
        found = _plain(exported, table, written) if _KNOWN and _is_plain(exported, written) else None
        if found is None:
            decomposed = exported.run_decompositions(table)
            return decomposed.graph_module, decomposed.graph_signature
    return found


@contextlib.contextmanager
def _not_looked_up(values: list[Any]) -> Iterator[None]:
    """Within the `with`, where a size of these values is open, what an operator gives of shapes is computed each time.
    To keep it and to look it up takes longer then, for each key is made of the symbols of all sizes."""
    shapes = [value.shape for value in values if isinstance(value, torch.Tensor)]
    mode = detect_fake_mode(values)
    if mode is None or all(isinstance(size, int) for shape in shapes for size in shape):
        yield
        return
    with disable_fake_tensor_cache(mode):
        yield


@contextlib.contextmanager
def _modules_unwatched() -> Iterator[None]:
    """Within the `with`, traces do not look for calls of modules, of which a graph has none. They would change what all
    modules inherit, which takes the longer, the more graphs there are: each is a class of modules."""
    patcher = _symbolic_trace._Patcher
    patch = patcher.patch_method

    def patch_others(own: Any, kind: type, *rest: Any, **options: Any) -> None:
        if kind is not torch.nn.Module:
            patch(own, kind, *rest, **options)

    patcher.patch_method = patch_others
    try:
        yield
    finally:
        patcher.patch_method = patch


def _is_plain(exported: ExportedProgram, written: Mapping[Node, Any]) -> bool:
    """Whether all inputs that are read are tensors, no size depends on the data, and nothing writes that the graph
    shows, but for what is `written` for others."""
    outputs = {spec.kind for spec in exported.graph_signature.output_specs}
    plain = (node in written or _is_plain_node(node) for node in exported.graph.nodes)
    return outputs <= {OutputKind.USER_OUTPUT} and all(plain)


def _is_plain_node(node: Node) -> bool:
    if node.op == "output":
        return True
    value = node.meta.get("val")
    if node.op == "placeholder":
        return isinstance(value, torch.Tensor) or not node.users
    if node.op != "call_function" or node.target is operator.floordiv or free_unbacked_symbols(value):
        return False
    return node.target is _DETACH or _writes_nothing(node)


def _written_for_others(graph: Graph) -> dict[Node, Any]:
    """What changes in place what another operator has made, and nothing else reads, and the operator that gives as much
    without that. A dropout that drops nothing changes nothing."""
    found: dict[Node, Any] = {}
    fresh: set[Node] = set()  # of those, what is given memory that no one else has
    for node in graph.nodes:
        if node.op != "call_function" or not node.args or not isinstance(node.args[0], Node):
            continue
        given = node.args[0]
        if node.target in _DROPOUTS and (node.args[1] == 0 or not node.args[2]):
            found[node] = _itself
        elif (other := _out_of_place(node.target)) is not None and _keeps_type(node):
            if list(given.users) == [node] and (given in fresh or _is_fresh(given)):
                found[node] = other
                fresh.add(node)
    return found


def _itself(x: torch.Tensor, *_: Any) -> torch.Tensor:
    return x


def _out_of_place(target: Any) -> Any:
    """The operator of the same arguments that writes nothing; None where there is none, or it draws numbers."""
    if not isinstance(target, torch._ops.OpOverload) or not target._opname.endswith("_") or target is _DETACH:
        return None
    other = getattr(getattr(torch.ops.aten, target._opname.rstrip("_"), None), target._overloadname, None)
    if other is None or torch.Tag.nondeterministic_seeded in (*target.tags, *other.tags):
        return None
    own, others = ([(each.name, str(each.type)) for each in op._schema.arguments] for op in (target, other))
    return other if own == others and len(other._schema.returns) == 1 and not other._schema.is_mutable else None


def _is_fresh(node: Node) -> bool:
    """Whether an operator gives memory of its own."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or any(each.alias_info for each in target._schema.returns):
        return False
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(target.name(), "CompositeImplicitAutograd")
    return not composite or target in _FRESH


def _keeps_type(node: Node) -> bool:
    """Whether what an operator is given besides the tensor that it changes gives results of its type."""
    changed = node.args[0].meta.get("val")
    if not isinstance(changed, torch.Tensor):
        return False
    kind = changed.dtype
    leaves = tree_leaves((node.args[1:], node.kwargs))
    values = [leaf.meta.get("val") for leaf in leaves if isinstance(leaf, Node)]
    alike = all(isinstance(value, torch.Tensor) and value.dtype in (kind, torch.bool) for value in values)
    return alike and (kind.is_floating_point or not any(isinstance(leaf, float) for leaf in leaves))


def _writes_nothing(node: Node) -> bool:
    if isinstance(node.target, torch._ops.HigherOrderOperator):
        return False
    return not (isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable)


class _Run(Interpreter):
    """Runs a graph without what detaches a tensor in place, as torch does each constant: nothing has gradients here;
    and with operators in the places of those that are `written` for others."""

    def __init__(self, module: GraphModule, written: Mapping[Node, Any]):
        super().__init__(module)
        self._written = written

    def run_node(self, n: Node) -> Any:
        if n not in self._written:
            return super().run_node(n)
        with self._set_current_node(n):
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            return self._written[n](*args, **kwargs)

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return args[0] if target is _DETACH else super().call_function(target, args, kwargs)


def _plain(
    exported: ExportedProgram, table: dict[Any, Callable[..., Any]], written: Mapping[Node, Any]
) -> tuple[GraphModule, ExportGraphSignature] | None:
    """None where the trace shows what writes, or makes tensors of its own."""
    placeholders = exported.graph.find_nodes(op="placeholder")
    values = [node.meta.get("val") for node in placeholders]
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    mode = detect_fake_mode(tensors)
    if mode is None:
        return None
    composite, others = composite_operators.divided(table)
    run = _Run(exported.graph_module, written).run

    def traceable(*given: torch.Tensor) -> Any:
        rest = iter(given)
        args = [next(rest) if isinstance(value, torch.Tensor) else value for value in values]
        return run(*args, enable_io_processing=False)

    with (
        _trace._ignore_backend_decomps(),
        mode,
        exported_program._override_composite_implicit_decomp(composite),
        preserve_node_meta(),
        enable_python_dispatcher(),
        torch.no_grad(),
        _modules_unwatched(),
    ):
        try:
            traced = make_fx(traceable, decomposition_table=others)(*tensors)
        except RuntimeError:
            return None  # torch's own trace says what is wrong, if it finds that too
    traced.graph.eliminate_dead_code()
    if traced.graph.find_nodes(op="call_function", target=torch.ops.aten.sym_size.int):
        # What is computed of open sizes is computed once, at the beginning.
        insert_deferred_runtime_asserts(traced, mode.shape_env, "plain trace", export=True)
    if traced.graph.find_nodes(op="get_attr") or not all(map(_writes_nothing, traced.graph.nodes)):
        return None
    if traced.graph.find_nodes(op="call_function", target=operator.floordiv):
        return None  # a product of sizes, which torch's own trace has as one
    graph, copies, inputs = Graph(), {}, iter(traced.graph.find_nodes(op="placeholder"))
    for node in placeholders:
        copy = graph.placeholder(node.name)
        copy.name = node.name  # which is another where a builtin has that name
        traced_one = next(inputs) if isinstance(node.meta.get("val"), torch.Tensor) else None
        copy.meta = dict((traced_one or node).meta)
        if traced_one is not None:
            copies[traced_one] = copy
    for node in traced.graph.nodes:
        if node.op != "placeholder":
            copies[node] = graph.node_copy(node, copies.__getitem__)
    returned = graph.output_node().args[0]
    specs = exported.graph_signature.output_specs
    if any(isinstance(one.arg, ConstantArgument) == isinstance(value, Node) for one, value in zip(specs, returned)):
        return None  # a number of open sizes that is always the same
    specs = [
        dataclasses.replace(one, arg=dataclasses.replace(one.arg, name=value.name)) if isinstance(value, Node) else one
        for one, value in zip(specs, returned)
    ]
    return GraphModule({}, graph), ExportGraphSignature(exported.graph_signature.input_specs, specs)
