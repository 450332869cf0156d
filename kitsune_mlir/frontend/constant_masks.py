"""Masks that are known when a model is imported, as `~torch.eye(n, dtype=bool)` and buffers are, select known elements:

    x[:, mask]    =>    x[:, rows, columns], of constants that say where the mask is true

torch.export knows no numbers of a mask, and takes what it selects to be of any number; taking the graph apart anew
finds the sizes.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument
from torch.fx import Node
from torch.fx.node import map_arg
from torch.utils._pytree import tree_leaves

from .selection_forms import mask_of

aten = torch.ops.aten

LARGEST = 1 << 22  # elements of what is computed here


def known_masks_as_places(exported: ExportedProgram) -> ExportedProgram:
    """The program without selections by known masks; the given one where it has none."""
    values = _Values(exported)
    known = [node.name for node in exported.graph.nodes if _known(node, values) is not None]
    if not known:
        return exported
    changed = copy.deepcopy(exported)
    values = _Values(changed)
    for node in list(changed.graph.nodes):
        if node.name in known:
            mask, value = mask_of(node), _known(node, values)
            assert mask is not None and value is not None
            places = [_constant(changed, each, f"{node.name}_places_{i}", node) for i, each in enumerate(value)]
            place = node.args[1].index(mask)
            node.args = (node.args[0], [*node.args[1][:place], *places, *node.args[1][place + 1 :]])
    changed.graph_module.recompile()
    return changed


def _known(node: Node, values: _Values) -> tuple[torch.Tensor, ...] | None:
    """Where the mask by which an operator selects is true, if that is known."""
    if node.op != "call_function" or node.target is not aten.index.Tensor or (mask := mask_of(node)) is None:
        return None
    value = values.of(mask)
    return None if value is None else value.nonzero(as_tuple=True)


class _Values:
    """The tensors of a graph that no input changes, computed as they are asked for."""

    def __init__(self, exported: ExportedProgram):
        signature = exported.graph_signature
        changed = {spec.target for spec in signature.output_specs}
        self.named = {
            spec.arg.name: exported.state_dict.get(spec.target, exported.constants.get(spec.target))
            for spec in signature.input_specs
            if spec.kind in (InputKind.BUFFER, InputKind.CONSTANT_TENSOR) and spec.target not in changed
        }
        self.found: dict[Node, torch.Tensor | None] = {}

    def of(self, node: Node) -> torch.Tensor | None:
        if node not in self.found:
            self.found[node] = self._compute(node)
        return self.found[node]

    def _compute(self, node: Node) -> torch.Tensor | None:
        if _is_changed(node):
            return None
        if node.op == "placeholder":
            return self.named.get(node.name)
        value, target = node.meta.get("val"), node.target
        if not isinstance(target, torch._ops.OpOverload) or not isinstance(value, torch.Tensor):
            return None
        if _changes(target) or torch.Tag.nondeterministic_seeded in target.tags:
            return None
        sizes = [size for size in tree_leaves((list(value.shape), node.args)) if isinstance(size, torch.SymInt)]
        if sizes or value.numel() > LARGEST:
            return None
        operands = {one: self.of(one) for one in node.all_input_nodes}
        if any(operand is None for operand in operands.values()):
            return None
        args, kwargs = map_arg((node.args, node.kwargs), operands.__getitem__)
        with torch.no_grad():
            return target(*args, **kwargs)


def _is_changed(node: Node) -> bool:
    """Whether a tensor is written to, by itself or by a view of it."""
    users = [user for user in node.users if isinstance(user.target, torch._ops.OpOverload) and user.args[0] is node]
    return any(_changes(user.target) or (user.target.is_view and _is_changed(user)) for user in users)


def _changes(target: torch._ops.OpOverload) -> bool:
    return target._schema.is_mutable and target is not aten.detach_.default


def _constant(exported: ExportedProgram, value: torch.Tensor, name: str, like: Node) -> Node:
    """A constant of the program, as one that the model has."""
    graph, fake = exported.graph, like.meta["val"].fake_mode
    with graph.inserting_before(next(iter(graph.nodes))):
        node = graph.placeholder(name)
    node.meta["val"] = fake.from_tensor(value, static_shapes=True)
    argument: Any = TensorArgument(name=node.name)
    exported.graph_signature.input_specs.insert(0, InputSpec(InputKind.CONSTANT_TENSOR, argument, name))
    exported.constants[name] = value
    return node
