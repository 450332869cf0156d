"""Flows for the tests of the proof: short constructors and a hypothesis strategy of arbitrary ones."""

from hypothesis import strategies as st

from kitsune_mlir.planning import target
from kitsune_mlir.planning.flow import Flow, Queue, Stage
from kitsune_mlir.planning.verify import verify

GPU = target.load("sm_90a")


def stage(name, role, replicas=1, once=False):
    return Stage(name, "simt", role, replicas, once)


def queue(name, producer, *consumers, depth=1, transport="l2", **more):
    return Queue(name, producer, consumers, depth, 64, transport, **more)


def flow(stages, *queues, cluster=None):
    """With clusters that hold a CTA of each role where there are dsmem queues, unless `cluster` says otherwise."""
    if cluster is None:
        roles = len({one.role for one in stages})
        cluster = max(2, roles) if any(one.transport == "dsmem" for one in queues) else 1
    return Flow("flow", tuple(stages), queues, cluster)


def errors(candidate, machine=GPU):
    return [finding for finding in verify(candidate, machine) if finding.severity == "error"]


@st.composite
def flows(draw, least_depth=0, most_lookahead=3, backwards=True, roles=4):
    """Up to 5 stages on up to `roles` roles, any queues between them, sound or not.

    Transports are fitted to the roles, so that deadlocks and not mistakes of transport are what varies.
    """
    replicas = [draw(st.integers(1, 3)) for _ in range(roles)]
    names = [f"s{i}" for i in range(draw(st.integers(1, 5)))]
    stages = []
    for name in names:
        role = draw(st.integers(0, roles - 1))
        stages.append(stage(name, role, replicas[role]))
    queues = []
    for i in range(draw(st.integers(0, 6)) if len(stages) > 1 else 0):
        producer = draw(st.integers(0, len(stages) - 1 if backwards else len(stages) - 2))
        after = list(range(len(stages))) if backwards else list(range(producer + 1, len(stages)))
        picked = draw(st.lists(st.sampled_from(after), min_size=1, max_size=2, unique=True))
        ends = [stages[producer], *(stages[c] for c in picked)]
        transports = ["l2"]
        if len({end.role for end in ends}) == 1:
            transports += ["smem", "reg"]
        elif len({end.replicas for end in ends}) == 1:
            transports.append("dsmem")
        queues.append(
            queue(
                f"q{i}",
                names[producer],
                *(names[c] for c in picked),
                depth=draw(st.integers(least_depth, 5)),
                transport=draw(st.sampled_from(transports)),
                lookahead=tuple(draw(st.integers(0, most_lookahead)) for _ in picked),
            )
        )
    if draw(st.booleans()):  # a reduction over rows, on a role of its own
        summed = draw(st.sampled_from(stages))
        depth = summed.replicas + draw(st.integers(-1 if least_depth == 0 else 0, 1))
        queues.append(queue("partial", summed.name, "sum", depth=depth, accumulates=True))
        stages.append(stage("sum", roles, once=True))
    return flow(stages, *queues)
