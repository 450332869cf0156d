"""What a flow asks of its target: co-resident CTAs, clusters, memory for rings."""

from __future__ import annotations

from collections.abc import Iterator

from .flow import Finding, Flow
from .target import Target

CLUSTER_MOST = 8  # CTAs; the portable limit (CUDA programming guide, thread block clusters)


def check_resources(flow: Flow, target: Target) -> Iterator[Finding]:
    """Residency, clusters, ring capacity, idle replicas."""
    ctas = {role: stages[0].replicas for role, stages in flow.roles.items()}
    if sum(ctas.values()) > target.sms:
        each = ", ".join(f"{'+'.join(s.name for s in flow.roles[role])}: {n}" for role, n in ctas.items())
        yield _excess(
            target,
            flow.name,
            f"needs {sum(ctas.values())} CTAs at once ({each}), but {target.name} holds {target.sms}, one an SM; "
            "take fewer replicas or merge roles",
        )
    yield from _clusters(flow, target)
    for role, used in shared_bytes(flow).items():
        if used > target.shared_bytes:
            names = ", ".join(stage.name for stage in flow.roles[role])
            yield _excess(
                target,
                flow.roles[role][0].name,
                f"(role {role}: {names}) has {used} bytes of rings in shared memory, but {target.name} has "
                f"{target.shared_bytes} a CTA; use fewer slots, smaller tiles or l2",
            )
    l2 = sum(queue.depth * queue.tile_bytes for queue in flow.queues if queue.transport == "l2")
    if l2 > target.l2_bytes:
        yield _excess(
            target,
            flow.name,
            f"has {l2} bytes of rings in L2, but {target.name} has {target.l2_bytes}; use fewer slots, smaller "
            "tiles or hbm",
        )
    yield from _starved(flow)


def _excess(target: Target, subject: str, message: str) -> Finding:
    """On a CPU threads are preempted and rings lie in memory, so there an excess is slow, not wrong."""
    return Finding("error" if target.kind == "gpu" else "warning", subject, message)


def shared_bytes(flow: Flow) -> dict[int, int]:
    """Most bytes of rings at once in the shared memory of one CTA of each role.

    A dsmem ring lies with its consumers, all the time; in a role whose CTAs share tiles in a cluster there is room
    for the other CTAs' shares of one tile, whichever of its dsmem queues it is in; partial sums come when no tile is
    left. An smem ring joins
    stages of one role, which run one after another: it needs its memory from its producer to its last consumer, and
    rings of other times may lie in the same place; unless a consumer looks ahead, which keeps tiles from one round to
    the next.
    """
    return {role: _most(flow, role) for role in flow.roles}


def _most(flow: Flow, role: int) -> int:
    order = {stage.name: i for i, stage in enumerate(flow.roles[role])}
    always, spans, shared = 0, [], [0]
    for queue in flow.queues:
        size = queue.depth * queue.tile_bytes
        takers = [order[name] for name in queue.consumers if name in order]
        if queue.transport == "dsmem" and queue.accumulates:
            continue
        if queue.transport == "dsmem" and queue.producer in order and takers:
            shared.append(size * (flow.cluster - 1) // flow.cluster)
        elif queue.transport == "dsmem":
            always += size if takers else 0
        elif queue.transport == "smem" and queue.producer in order:
            if any(queue.lookaheads) or not takers:
                always += size
            else:
                spans.append((order[queue.producer], max(takers), size))
    alive = (sum(size for first, last, size in spans if first <= i <= last) for i in range(len(order)))
    return always + max(shared) + max(alive, default=0)


def _clusters(flow: Flow, target: Target) -> Iterator[Finding]:
    """Clusters that the target has, whole ones in every role, and each dsmem queue inside one."""
    size = flow.cluster
    if size > 1 and not target.clusters:
        yield Finding("error", flow.name, f"runs in clusters of {size} CTAs, but {target.name} has no clusters")
        return
    if size > CLUSTER_MOST:
        message = f"makes a cluster of {size} CTAs, but at most {CLUSTER_MOST} are portable; take fewer"
        yield Finding("error", flow.name, message)
        return
    joined = {role: {role} for role in flow.roles}
    for queue in flow.queues:
        if queue.transport != "dsmem":
            continue
        for name in queue.consumers:
            merged = joined[flow.stage(queue.producer).role] | joined[flow.stage(name).role]
            for role in merged:
                joined[role] = merged
        if flow.cluster < (wanted := max(2, len(merged))):
            message = (
                f"has transport dsmem between CTAs that share no cluster: '{flow.name}' runs in clusters of "
                f"{flow.cluster}, which would have to be of {wanted}; use l2"
            )
            yield Finding("error", queue.name, message)
            return
    if any(len(roles) > 1 for roles in joined.values()):
        return  # a cluster is one CTA of each role
    for stages in flow.roles.values():
        if stages[0].replicas % size and not all(stage.once for stage in stages):
            message = f"has {stages[0].replicas} replicas, which are not whole clusters of {size} CTAs"
            yield Finding("error", stages[0].name, message)


def _starved(flow: Flow) -> Iterator[Finding]:
    """Rings that are safe but too shallow to keep both ends at work."""
    for queue in flow.queues:
        ends = [flow.stage(name) for name in (queue.producer, *queue.consumers)]
        if queue.accumulates or queue.on_cta or all(stage.role == ends[0].role for stage in ends):
            continue
        held = [stage.replicas * (1 + ahead) for stage, ahead in zip(ends[1:], queue.lookaheads, strict=True)]
        wanted = ends[0].replicas + max(held)
        if queue.depth < wanted:
            yield Finding(
                "warning",
                queue.name,
                f"has a depth of {queue.depth}; {wanted} would let every replica of both ends hold its tiles",
            )
