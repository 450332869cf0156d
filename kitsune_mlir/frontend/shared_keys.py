"""Few rows of several heads that share keys are multiplied as rows of one matrix.

Before, as `repeat_kv` or an expanded cache has it, where a step of decoding has one row of each of 32 heads:

    %keys = view(expand(unsqueeze(%cache, 2), [2, 8, 4, 512, 64]), [64, 512, 64])
    %scores = bmm(%queries, permute(%keys, [0, 2, 1]))            # %queries : 64x1x64

After, so that the cache is read once, not once for each head:

    %scores = view(bmm(view(%queries, [16, 4, 64]), permute(view(%cache, [16, 512, 64]), [0, 2, 1])), [64, 1, 512])

A tile of a product has as many rows of its own for each matrix of a batch, most of which would be empty.
"""

from __future__ import annotations

from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from .moved_dimensions import SAME_ORDER, Size, aten, call, keeps_order, same_shape, view

_VIEWS = {aten.view.default, aten._unsafe_view.default, aten.reshape.default}
MOST_ROWS = 32  # of a head: tiles have 64


def share_keys(graph: Graph) -> None:
    """Multiplies the rows of neighbours in a batch together where these have one matrix."""
    changed = False
    for product in graph.find_nodes(op="call_function", target=aten.bmm.default):
        x, repeated = product.args
        batch, rows, width = x.meta["val"].shape
        if not isinstance(rows, int) or rows > MOST_ROWS:
            continue
        with graph.inserting_before(product):
            source, times, turned = _repeated(repeated)
            if source is None:
                continue
            count, (inner, outputs) = batch // times, product.args[1].meta["val"].shape[1:]
            matrices = view(source, [count, outputs, inner] if turned else [count, inner, outputs])
            flat = view(_whole(x), [count, times * rows, width])
            if matrices is None or flat is None:
                continue
            if turned:
                matrices = call(source, [count, inner, outputs], aten.permute.default, matrices, [0, 2, 1])
            whole = call(product, [count, times * rows, outputs], aten.bmm.default, flat, matrices)
            apart = view(whole, [batch, rows, outputs], x)
        if apart is not None:
            product.replace_all_uses_with(apart)
            for user in list(apart.users):  # whose sizes are the model's own, of which more is known
                if user.target in _VIEWS:
                    user.replace_input_with(apart, whole)
            changed = True
    if changed:  # torch-mlir would compare sizes that are equal, but are computed otherwise now
        for same in filter(keeps_order, graph.find_nodes(op="call_function", target=aten.expand.default)):
            if all(user.op != "output" for user in same.users):
                same.replace_all_uses_with(same.args[0])
        graph.eliminate_dead_code()


def _whole(node: Node) -> Node:
    """What a value is a view of that has the same elements in the same order."""
    while keeps_order(node):
        node = node.args[0]
    return node


def _repeated(node: Node) -> tuple[Node | None, int, bool]:
    """What the matrices of a batch are of which as many neighbours as are said are one; and whether their dimensions
    have changed places since. None where no such are known."""
    turned = False
    while node.op == "call_function":
        shape = node.meta["val"].shape
        if node.target is aten.permute.default:
            rank = len(shape)
            if node.args[1] != [*range(rank - 2), rank - 1, rank - 2]:
                break
            turned = not turned
        elif node.target not in SAME_ORDER:
            break
        elif (
            node.target is aten.expand.default and (times := _times(node.args[0].meta["val"].shape, shape)) is not None
        ):
            if times > 1:
                return node.args[0], times, turned
        elif not same_shape(node.args[0].meta["val"].shape[-2:], shape[-2:]):
            break
        node = node.args[0]
    return None, 1, False


def _times(shape: list[Size], repeated: list[Size]) -> int | None:
    """How often each matrix is repeated, the last two dimensions being its own; None where not neighbours are one."""
    own = [1] * (len(repeated) - len(shape)) + list(shape)
    if len(shape) < 2 or not same_shape(own[-2:], repeated[-2:]):
        return None
    *outer, last = [d for d, size in enumerate(repeated[:-2]) if not statically_known_true(size == 1)] or [0]
    if not same_shape([own[d] for d in outer], [repeated[d] for d in outer]):
        return None
    if statically_known_true(own[last] == repeated[last]):
        return 1
    return repeated[last] if own[last] == 1 and isinstance(repeated[last], int) else None
