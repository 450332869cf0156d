"""Random operator graphs as planning sees them: plain nodes in topological order."""

from hypothesis import strategies as st

from kitsune_mlir.planning.graph import MOVE, PRODUCT, REDUCTION, SIMT, Node


@st.composite
def nodes(draw, most=10, spaces=(None, 0, 0, 1), kinds=(PRODUCT, SIMT, SIMT, MOVE, REDUCTION), wholes=True):
    """Up to `most` nodes that read earlier ones; nothing streams a sum over rows, which has none."""
    found = []
    for i in range(draw(st.integers(1, most))):
        earlier = st.lists(st.integers(0, i - 1), max_size=3, unique=True) if i else st.just([])
        streams = [s for s in draw(earlier) if found[s].kind != REDUCTION]
        whole = [w for w in draw(earlier) if w not in streams] if wholes and draw(st.booleans()) else []
        kind, space = draw(st.sampled_from(kinds)), draw(st.sampled_from(spaces))
        reason = "" if space is not None else "excluded"
        found.append(Node(i, f"op{i}", tuple(streams), tuple(whole), space, kind, reason))
    return found


def successors(graph):
    """Node -> the nodes that read it, as tiles or whole."""
    reading = {node.index: set() for node in graph}
    for node in graph:
        for source in (*node.streams, *node.wholes):
            reading[source].add(node.index)
    return reading


def reachable(edges, start):
    """What can be reached from `start` along at least one edge."""
    seen, stack = set(), list(edges[start])
    while stack:
        if (vertex := stack.pop()) not in seen:
            seen.add(vertex)
            stack.extend(edges[vertex])
    return seen
