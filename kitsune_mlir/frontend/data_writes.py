"""Parameters whose `data` a model sets while it runs, as encoders that follow others do: their numbers are written.

    p.data = p.data * 0.9 + q.data * 0.1      =>      p.data.copy_(p.data.clone() * 0.9 + q.data * 0.1)

torch has a parameter stand for other memory then, which AOTAutograd refuses beside other changes. The numbers are the
same where that memory is new, and where nobody keeps what `p.data` was."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch.fx import GraphModule, Node

_READ = torch._C._autograd._get_data_attr
_SET = torch.Tensor.set_
_COMPUTED = frozenset("add sub mul div truediv neg lerp where clamp cat stack addcmul addcdiv clone".split())
_IN_PLACE = frozenset("iadd isub imul itruediv".split())


def written(gm: GraphModule) -> GraphModule:
    """The same graph of Dynamo where nothing is set so; else another one, in which numbers are written. What is not
    known to be new memory is left as it is."""
    if not gm.graph.find_nodes(op="call_function", target=_SET):
        return gm
    gm = GraphModule(gm, copy.deepcopy(gm.graph))
    order = {node: i for i, node in enumerate(gm.graph.nodes)}
    for node in gm.graph.find_nodes(op="call_function", target=_SET):
        at = order[node]
        if len(node.args) == 2 and _is_new(node.args[1]) and _are_alike(*node.args):
            reads = [user for user in node.args[0].users if user.target is _READ and order.get(user, at) < at]
            if not any(map(_is_written, reads)):
                _write(gm, node, reads)
    gm.recompile()
    return gm


def _write(gm: GraphModule, node: Node, reads: list[Node]) -> None:
    for read in reads:
        with gm.graph.inserting_after(read):
            own = gm.graph.call_function(torch.clone, (read,))
        own.meta = dict(read.meta)
        read.replace_all_uses_with(own, lambda user, own=own: user is not own)
    parameter, value = node.args
    with gm.graph.inserting_before(node):
        data = gm.graph.call_function(_READ, (parameter,))
        data.meta = dict(parameter.meta)
        made = gm.graph.call_method("copy_", (data, value))
        made.meta = dict(node.meta)
    for user in list(node.users):  # what takes back that torch counted a change
        gm.graph.erase_node(user)
    gm.graph.erase_node(node)


def _is_new(value: Any) -> bool:
    """Whether it has new memory: it is the result of an operator that makes new numbers, or such a one changed."""
    if not isinstance(value, Node):
        return False
    return _is_new(value.args[0]) if _writes(value) else _name(value).strip("_") in _COMPUTED


def _is_written(value: Node) -> bool:
    """Whether something writes to it or to what may be a view of it."""
    return any(_writes(user) or not _is_new(user) and _is_written(user) for user in value.users)


def _are_alike(parameter: Node, value: Node) -> bool:
    one, other = (node.meta.get("example_value") for node in (parameter, value))
    known = isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)
    return known and one.shape == other.shape and one.dtype == other.dtype and one.device == other.device


def _writes(node: Node) -> bool:
    name = _name(node)
    return name in _IN_PLACE or name.endswith("_") and not name.endswith("__")


def _name(node: Node) -> str:
    return getattr(node.target, "__name__", str(node.target))
