"""Graphs that AOTAutograd makes, in which parameters are inputs like any other."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.fx import Graph, GraphModule, Node
from torch.utils._pytree import tree_map

from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.program import Argument, Output, Program
from kitsune_mlir.signature import Tree

from . import narrow_floats
from .broadcasts import share_sizes
from .checks import drop_checks, refuse_sparse
from .complex_numbers import view_weights_as_real
from .given_orders import ORDER, lie_as_given, order_of
from .guards import settle_sizes
from .joint_graphs import expand, is_view, keep_copies, viewed
from .numbers import numbers_as_tensors
from .random_numbers import lift
from .size_conditions import Known
from .sizes import sizes_of_inputs
from .summed_slices import join_slices
from .torch_program import array_of, example_sizes_of, lower_graph, node_spec

_UNKNOWN = (torch.uint16, torch.uint32, torch.uint64)


@dataclass(frozen=True)
class AotGraph:
    """A graph's Program, and what of its values and results are numbers, which a Program has none of.

    `taken` are the positions, among the graph's values, of the Program's arguments; a number is passed as a tensor of
    one i64, or, where it is a size and ~i stands for its position, as one of so many rows and no elements; complex
    numbers are as torch.view_as_real has them. Behind them come the random numbers that `draw` gives for a
    device. `given` computes those results that are numbers, inputs or views of inputs from all values, `places` says
    where they are among the results, `pairs` which of the others are complex numbers, of two real ones, and `kinds` the
    types of those that are bits of numbers, as values of these types are (narrow_floats.py). Results of the Program
    whose elements lie in another order than that of their dimensions have these in that order: by place, `orders` has
    which dimension of the graph's each of them is.
    """

    program: Program
    taken: list[int]
    draw: Callable[[Any], list[torch.Tensor]]
    given: Callable[..., Sequence[Any]]
    places: list[int]
    pairs: list[int]
    kinds: dict[int, torch.dtype]
    orders: dict[int, tuple[int, ...]]

    def completed(self, results: Sequence[Any], values: Sequence[Any]) -> list[Any]:
        """The graph's results, of those of its Program and its own values."""
        found = list(results)
        for place in self.pairs:
            found[place] = torch.view_as_complex(found[place])
        for place, kind in self.kinds.items():
            found[place] = found[place].view(kind)
        for place, order in self.orders.items():
            found[place] = found[place].permute([order.index(d) for d in range(len(order))])
        for place, value in zip(self.places, self.given(*values) if self.places else (), strict=True):
            found[place] = value
        return found


def import_aot_graph(
    gm: GraphModule,
    name: str,
    fixed: Mapping[int, torch.Tensor],
    examples: Sequence[Any] = (),
    changed: Collection[int] = (),
) -> AotGraph:
    """The Program of a functional graph of aten operators; `gm` is left as it is.

    `examples`, if there are any, say how its values lie in memory, and `changed` are the positions of those that torch
    writes new values into when a call is over. Its inputs are the tensor placeholders in order,
    whatever they are to the model: a call passes the weights too, but for those that are `fixed`, by their position,
    whose numbers the Program has. Sizes that come as integers are read off the tensors instead. A call returns a list
    with None where the graph has it, or a number. Raises UnsupportedError for what cannot be imported.
    """
    whole = GraphModule(gm, copy.deepcopy(gm.graph))  # some of torch-mlir's rules want a graph that belongs to a module
    graph = whole.graph
    for node, value in zip(graph.find_nodes(op="placeholder"), examples):
        if isinstance(value, torch.Tensor):
            node.meta["val"] = value
    settle_sizes(graph)
    _move_to_cpu(graph)
    refuse_sparse(graph, name)
    drop_checks(graph)
    keep_copies(graph, _at(graph, changed))
    expand(graph)
    join_slices(graph)
    places = [i for i, value in enumerate(_results(graph)) if _is_number(value) or _is_given(value)]
    given = _of_values(gm, places, name)
    _set_results(graph, [None if i in places else value for i, value in enumerate(_results(graph))])
    pairs = _complex_results_as_real(graph)
    graph.eliminate_dead_code()
    taken = _numbers_from_tensors(graph, name)
    for node in graph.find_nodes(op="placeholder"):  # such as the state of random numbers that attention did not draw
        if _is_of_no_use(node):
            taken.pop(graph.find_nodes(op="placeholder").index(node))
            graph.erase_node(node)
    view_weights_as_real(graph, set())
    kinds = {i: node.meta["val"].dtype for i, node in enumerate(_results(graph)) if narrow_floats.are_held_by(node)}
    narrow_floats.as_bits(graph)
    placeholders = list(graph.find_nodes(op="placeholder"))
    lie_as_given(graph, {node.name for i, node in zip(taken, placeholders, strict=True) if i not in fixed})
    arguments = [_argument(node, fixed.get(i), name) for i, node in zip(taken, placeholders, strict=True)]
    weights = {node for node, argument in zip(placeholders, arguments, strict=True) if argument.kind != "input"}
    taken = [i for i, node in zip(taken, placeholders, strict=True) if node not in weights]
    draw = lift(graph, placeholders[-1])
    drawn = graph.find_nodes(op="placeholder")[len(placeholders) :]
    arguments += [_argument(node, None, name) for node in drawn]
    arguments += _constants_as_placeholders(graph, gm, [*placeholders, *drawn], name)

    orders = _lie_as_wanted(graph, _results(gm.graph))
    outputs: list[Output] = []
    returned: list[Node] = []
    results: list[Tree] = []
    for value in _results(graph):
        if not isinstance(value, Node):
            results.append({"constant": value})
            continue
        if value in returned:  # a result that is kept for the gradients as well
            results.append({"leaf": returned.index(value)})
            continue
        results.append({"leaf": len(outputs)})
        outputs.append(Output(node_spec(value.name, value)))
        returned.append(value)
    _set_results(graph, returned)

    signature = {
        "args": {"tuple": [{"leaf": i} for i in range(len(taken) + len(drawn))]},
        "kwargs": {"dict": {}},
        "results": {"list": results},
    }
    module = lower_graph(graph, name, weights, Known((), {}))
    share_sizes(module, [argument.spec for argument in arguments])
    return AotGraph(
        Program(name, module, arguments, outputs, signature), taken, draw, given, places, pairs, kinds, orders
    )


def _move_to_cpu(graph: Graph) -> None:
    """Has a graph and its fake values on the CPU: torch-mlir knows no other device, and torch takes operators apart by
    device."""
    cpu = torch.device("cpu")

    def moved(value: Any) -> Any:
        if not isinstance(value, FakeTensor) or value.device == cpu:
            return value
        with value.fake_mode:
            return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=cpu)

    for node in graph.nodes:
        if "val" in node.meta:
            node.meta["val"] = tree_map(moved, node.meta["val"])
        if "device" in node.kwargs:
            node.kwargs = {**node.kwargs, "device": cpu}
        if node.target is torch.ops.prims.device_put.default:
            node.target, node.args, node.kwargs = torch.ops.aten.clone.default, node.args[:1], {}


def _at(graph: Graph, positions: Collection[int]) -> set[Node]:
    return {node for i, node in enumerate(graph.find_nodes(op="placeholder")) if i in positions}


def _argument(node: Node, value: torch.Tensor | None, name: str) -> Argument:
    if value is None or value.is_complex():
        spec = replace(node_spec(node.name, node), order=node.meta.get(ORDER, ()))
        return Argument(spec, "input", None, example_sizes_of(node))
    own = value.detach().to("cpu", copy=True)  # what changes torch's is not seen
    return Argument(node_spec(node.name, node), "parameter", array_of(own, f"{name}: {node.name}"))


def _results(graph: Graph) -> Sequence[Any]:
    return graph.output_node().args[0]


def _set_results(graph: Graph, results: Sequence[Any]) -> None:
    graph.output_node().args = (tuple(results),)


def _lie_as_wanted(graph: Graph, wanted: Sequence[Any]) -> dict[int, tuple[int, ...]]:
    """Gives results whose elements lie in another order in torch's graph, which gives what is `wanted`, the dimensions
    in that order; gives these, by place."""
    found, results = {}, list(_results(graph))
    for place, (node, torchs) in enumerate(zip(results, wanted, strict=True)):
        value = torchs.meta["val"] if isinstance(node, Node) else None
        order = order_of(value) if isinstance(value, torch.Tensor) else None
        if order is None:
            continue
        with graph.inserting_before(graph.output_node()):
            results[place] = graph.call_function(torch.ops.aten.permute.default, (node, list(order)))
        results[place].meta["val"] = node.meta["val"].permute(order).contiguous()
        found[place] = order
    _set_results(graph, results)
    return found


def _complex_results_as_real(graph: Graph) -> list[int]:
    """Makes results of complex types real, with a last dimension of size 2; the positions of these."""
    results = list(_results(graph))
    found = [i for i, value in enumerate(results) if isinstance(value, Node) and value.meta["val"].is_complex()]
    made: dict[Node, Node] = {}
    for i in found:
        whole = results[i]
        if whole not in made:
            with graph.inserting_before(graph.output_node()):
                made[whole] = graph.call_function(torch.ops.aten.view_as_real.default, (whole,))
            value = whole.meta["val"]
            with detect_fake_mode((value,)) or contextlib.nullcontext():
                made[whole].meta["val"] = torch.view_as_real(value.resolve_conj())
        results[i] = made[whole]
    _set_results(graph, results)
    return found


def _is_of_no_use(node: Node) -> bool:
    """Whether nothing reads a tensor of a type that a Program has none of."""
    value = node.meta["val"]
    return not node.users and isinstance(value, torch.Tensor) and value.dtype in _UNKNOWN


def _is_number(value: Any) -> bool:
    return isinstance(value, Node) and not isinstance(value.meta.get("val"), torch.Tensor)


def _is_given(value: Any) -> bool:
    """Whether a result is an input or a view of one, with nothing to compute: what a forward pass keeps often is."""
    value = viewed(value) if isinstance(value, Node) else None
    return value is not None and value.op == "placeholder" and isinstance(value.meta["val"], torch.Tensor)


def _of_values(gm: GraphModule, places: Sequence[int], name: str) -> Callable[..., Sequence[Any]]:
    """What computes the results that are numbers, such as sizes, or views of inputs, from all values. Raises
    UnsupportedError for a number that the graph reads from a tensor which it computes."""
    graph = copy.deepcopy(gm.graph)
    _set_results(graph, [_results(graph)[i] for i in places])
    drop_checks(graph)
    sizes_of_inputs(graph)
    graph.eliminate_dead_code()
    for node in graph.nodes:
        if node.op == "call_function" and not _is_number(node) and not is_view(node.target):
            raise UnsupportedError(f"{name}: a part of the model returns a number of its data; return tensors only")
    return GraphModule(gm, graph).forward


def _numbers_from_tensors(graph: Graph, name: str) -> list[int]:
    """Replaces integer placeholders by the sizes that they are, or by tensors; the positions of those that are left,
    ~i for a tensor that has a number as its size."""
    placeholders = graph.find_nodes(op="placeholder")
    tensors = [node for node in placeholders if not _is_number(node)]
    made: list[Node] = []
    kept = [node in tensors or bool(node.users) for node in placeholders]
    with graph.inserting_before(next(node for node in graph.nodes if node.op != "placeholder")):
        for i, node in enumerate(placeholders):
            if node in tensors or not node.users:
                continue
            size = node.meta["val"]
            found = ((t, axis) for t in tensors for axis, s in enumerate(t.meta["val"].shape) if _same(s, size))
            if (at := next(found, None)) is not None:
                kept[i] = False
                read = graph.call_function(torch.ops.aten.sym_size.int, at)
            elif isinstance(size, torch.SymInt):
                read = graph.call_function(torch.ops.aten._local_scalar_dense.default, (node,))
                made.append(node)
            else:
                raise UnsupportedError(f"{name}: the number {node.name} is no integer; pass a tensor")
            read.meta["val"] = size
            node.replace_all_uses_with(read, lambda user, read=read: user is not read)
    mode = detect_fake_mode([node.meta["val"] for node in tensors]) or FakeTensorMode()
    for node in made:
        with mode:
            node.meta["val"] = torch.empty((), dtype=torch.int64)
    numbers_as_tensors(graph)
    taken = []
    for i, (node, stays) in enumerate(zip(placeholders, kept, strict=True)):
        if node in made and _is_size(node):
            taken.append(~i)
            _give_as_size(graph, node, mode)
            stays = bool(node.users)
        if stays:
            taken.append(i)
        else:
            graph.erase_node(node)
    return taken


def _is_size(number: Node) -> bool:
    """Whether what reads the number as such is left."""
    return any(reader.target is torch.ops.aten._local_scalar_dense.default for reader in number.users)


def _give_as_size(graph: Graph, number: Node, mode: FakeTensorMode) -> None:
    """Puts a tensor of so many rows, of no elements each, in front of the number, which is read off it."""
    with graph.inserting_before(number):
        held = graph.placeholder(f"{number.name}_rows")
    readers = [reader for reader in number.users if reader.target is torch.ops.aten._local_scalar_dense.default]
    for reader in readers:
        with mode:
            held.meta["val"] = torch.empty((reader.meta["val"], 0))
        with graph.inserting_before(reader):
            size = graph.call_function(torch.ops.aten.sym_size.int, (held, 0))
        size.meta["val"] = reader.meta["val"]
        reader.replace_all_uses_with(size)
        graph.erase_node(reader)


def _same(size: object, symbol: object) -> bool:
    return isinstance(size, torch.SymInt) and isinstance(symbol, torch.SymInt) and size.node.expr == symbol.node.expr


def _constants_as_placeholders(graph: Graph, gm: GraphModule, placeholders: list[Node], name: str) -> list[Argument]:
    """Makes tensors that the graph holds arguments after `placeholders`."""
    arguments: list[Argument] = []
    mode = detect_fake_mode([node.meta["val"] for node in placeholders]) or FakeTensorMode()
    last = placeholders[-1] if placeholders else None
    for node in graph.find_nodes(op="get_attr"):
        tensor = getattr(gm, node.target)
        if not isinstance(tensor, torch.Tensor):
            continue  # a branch or a loop's body
        with graph.inserting_after(last) if last is not None else graph.inserting_before():
            last = graph.placeholder(node.name)
        last.meta["val"] = mode.from_tensor(tensor, static_shapes=True)  # what the importer reads types from
        node.replace_all_uses_with(last)
        graph.erase_node(node)
        arguments.append(Argument(node_spec(last.name, last), "constant", array_of(tensor, f"{name}: {node.target}")))
    return arguments
