"""Products of a batch that has the same matrix for every element become one product of all rows.

Before, as torch takes a linear layer of rows apart that do not lie one behind the other:

    %w = expand(%weight, [8, 64, 192]);  %y = bmm(%x, view(%w, [8, 64, 192]));  %z = add(view(%y, [8, 2, 192]), %bias)

After, as it arrives where they do:

    %y = addmm(%bias, view(%x, [16, 64]), %weight);  %z = view(%y, [8, 2, 192])

So does one matrix times a column of each element (`w @ x.unsqueeze(-1)`): the columns are rows.
"""

from __future__ import annotations

import torch
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from .moved_dimensions import SAME_ORDER, call, same_shape, view

aten = torch.ops.aten


def share_weights(graph: Graph) -> None:
    """Puts `mm` or `addmm` in the place of each `bmm` whose second operand is one matrix, repeated, or whose first one
    is, if it multiplies one column of each element."""
    for product in graph.find_nodes(op="call_function", target=aten.bmm.default):
        if same_shape(product.meta["val"].shape[2:], [1]):
            _share_left(product)
    for product in graph.find_nodes(op="call_function", target=aten.bmm.default):
        x, repeated = product.args
        matrix = _matrix(repeated)
        if matrix is None:
            continue
        batch, rows, width = x.meta["val"].shape
        outputs, last, bias = product.meta["val"].shape[2], *_bias(product)
        with graph.inserting_before(product):
            flat = view(x, [batch * rows, width])
            target, first = (aten.mm.default, ()) if bias is None else (aten.addmm.default, (bias,))
            whole = call(product, [batch * rows, outputs], target, *first, flat, matrix)
            apart = view(whole, [batch, rows, outputs], x)
        if apart is not None:
            product.replace_all_uses_with(apart)
            if bias is not None:
                last.replace_all_uses_with(last.args[0])
    graph.eliminate_dead_code()


def _share_left(product: Node) -> None:
    """Puts `mm` in the place of a `bmm` of one matrix, repeated, with a column of each element of the batch."""
    repeated, columns = product.args
    matrix = _matrix(repeated)
    if matrix is None:
        return
    batch, width, _ = columns.meta["val"].shape
    outputs = product.meta["val"].shape[1]
    with product.graph.inserting_before(product):
        flat = view(columns, [batch, width])
        turned = call(matrix, [width, outputs], aten.permute.default, matrix, [1, 0])
        whole = call(product, [batch, outputs], aten.mm.default, flat, turned)
        apart = view(whole, [batch, outputs, 1], columns)
    if apart is not None:
        product.replace_all_uses_with(apart)
        product.graph.erase_node(product)


def _matrix(repeated: Node) -> Node | None:
    """The matrix that all elements of a batch are, or None. Its sizes stay the last two in all views of the batch."""
    sizes = repeated.meta["val"].shape[-2:]
    node = repeated
    while node.op == "call_function" and node.target in SAME_ORDER and same_shape(node.meta["val"].shape[-2:], sizes):
        source = node.args[0]
        shape = source.meta["val"].shape
        if node.target is aten.expand.default and all(statically_known_true(size == 1) for size in shape[:-2]):
            if not same_shape(shape[-2:], sizes):
                return None
            if len(shape) == 2:
                return source
            with node.graph.inserting_before(node):
                return view(source, list(sizes))
        node = source
    return None


def _bias(product: Node) -> tuple[Node, Node | None]:
    """The bias that is added to all rows of a product and nothing else is done to, and the sum."""
    columns = product.meta["val"].shape[-1:]
    last = product
    while len(last.users) == 1:
        last, before = next(iter(last.users)), last
        if last.op != "call_function" or last.args[0] is not before:
            break
        if last.target in SAME_ORDER and same_shape(last.meta["val"].shape[-1:], columns):
            continue
        bias = last.args[1] if last.target is aten.add.Tensor and not last.kwargs else None
        if not isinstance(bias, Node) or bias.meta["val"].dtype != product.meta["val"].dtype or not bias < product:
            break
        return last, bias if same_shape(bias.meta["val"].shape, columns) else None
    return last, None
