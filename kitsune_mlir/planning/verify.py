"""The proof that a placed pipeline can be launched: structure, rates, deadlock, resources.

Checked in this order, each on the ground of the ones before; the first group that finds an error ends
the proof. Without errors: every queue has one producer side and is filled and drained at equal rates,
no schedule deadlocks (`deadlock.py` has the theorem and its proof), and every CTA that another one
waits for is resident with its rings.

The proof is about the queues of the dialect. What it takes for granted, and so does not cover:

- The generated code does what a flow says: releases each tile it acquired, hands slots out by tile
  number (not by "some slot is empty"), orders memory by acquire and release.
- What kernels wait for that is no queue in the IR. In a Hopper kernel (`codegen/hopper/`) these are the
  rings that a producer warpgroup fills for its CTA's consumers, of boxes of weights and of streamed
  tiles; the exchange of tiles and of sums
  of rows in a cluster, and the shares of tiles that CTAs of a partial sum tell each other; the rounds in
  which partial sums meet; the barriers of warpgroups, CTAs and clusters. Their order is tested, on the
  simulator of kernels (`tools/gpusim`) and on GPUs, not proven.
- A dsmem queue inside a role is such an exchange: the proof counts its memory and asks for whole clusters,
  and treats its waits as those of a ring.
- A consumer acquires at most its lookahead. One that keeps L tiles it has finished with must be given
  to the proof as a ring that is L n tiles shallower.
- A stage body ends: no loop in it is endless and no load in it traps. It computes each row of a tile from
  the same rows of what it takes.
- Tiles have the rows that the pipeline says, and streamed tensors equal rows: the dialect's verifier checks
  what types say, the runtime the sizes that are open until the call.
- One CTA an SM. What registers and the driver allow is asked of the driver before launch, as is how
  many clusters fit: clusters do not straddle GPCs, so fewer may than SMs / size.
- Shared memory other than rings between stages (weights, streamed tiles, staging buffers, vectors) is added
  up by code generation, which is asked before placement decides.
- L2 is a cache: rings that fit may still be evicted by other traffic. That costs time, not results.
- The pipeline has the GPU to itself; two pipelines at once share the SMs counted here.
"""

from __future__ import annotations

from collections.abc import Iterator

from .deadlock import Wait, repair
from .flow import TRANSPORTS, UNITS, Finding, Flow, Queue
from .resources import check_resources
from .target import Target


def verify(flow: Flow, target: Target) -> list[Finding]:
    """Everything wrong with `flow` on `target`, errors of the first failing group only.

    With no finding of severity "error" the flow completes for any number of row tiles.
    """
    findings: list[Finding] = []
    for group in (_structure(flow), _rates(flow), _deadlock(flow), check_resources(flow, target)):
        findings += group
        if any(finding.severity == "error" for finding in findings):
            break
    return findings


def _error(subject: str, message: str) -> Finding:
    return Finding("error", subject, message)


def _structure(flow: Flow) -> Iterator[Finding]:
    """Names, counts, transports; every queue's producer before its consumers in program order."""
    order = {stage.name: i for i, stage in enumerate(flow.stages)}
    for kind, names in (("stage", [s.name for s in flow.stages]), ("queue", [q.name for q in flow.queues])):
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield _error(name, f"names {names.count(name)} {kind}s; give each a name of its own")
    for stage in flow.stages:
        if stage.unit not in UNITS:
            yield _error(stage.name, f"unit must be one of {', '.join(UNITS)}, found '{stage.unit}'")
        if stage.replicas < 1:
            yield _error(stage.name, f"needs at least 1 replica, found {stage.replicas}")
    for role, stages in flow.roles.items():
        for stage in stages[1:]:
            if stage.replicas != stages[0].replicas:
                yield _error(
                    stage.name,
                    f"has {stage.replicas} replicas, but '{stages[0].name}' of the same role {role} has "
                    f"{stages[0].replicas}; the stages of a role run on the same CTAs",
                )
    for queue in flow.queues:
        unknown = [name for name in (queue.producer, *queue.consumers) if name not in order]
        if unknown:
            yield _error(queue.name, f"joins stage '{unknown[0]}', which '{flow.name}' does not have")
            continue
        yield from _queue_structure(flow, queue, order)


def _queue_structure(flow: Flow, queue: Queue, order: dict[str, int]) -> Iterator[Finding]:
    if not queue.consumers:
        yield _error(queue.name, "needs at least 1 consumer, found 0; its producer would fill it and wait for ever")
    if len(set(queue.consumers)) != len(queue.consumers):
        yield _error(queue.name, "names a consumer twice; take the tile once and use it twice")
    for consumer in queue.consumers:
        if order[consumer] <= order[queue.producer]:
            yield _error(
                queue.name,
                f"is taken from by '{consumer}', which does not stand after its producer '{queue.producer}'; "
                "queues must follow program order",
            )
    if queue.depth < 1:
        yield _error(queue.name, f"needs a depth of at least 1, found {queue.depth}")
    if queue.tile_bytes < 0:
        yield _error(queue.name, f"needs a tile size of 0 bytes or more, found {queue.tile_bytes}")
    if len(queue.lookaheads) != len(queue.consumers) or any(ahead < 0 for ahead in queue.lookahead):
        yield _error(
            queue.name,
            f"needs a lookahead of 0 or more for each of {len(queue.consumers)} consumers, found {queue.lookahead}",
        )
    if queue.transport not in TRANSPORTS:
        yield _error(queue.name, f"needs a transport of {', '.join(TRANSPORTS)}, found '{queue.transport}'")
        return
    ends = [flow.stage(name) for name in (queue.producer, *queue.consumers)]
    if queue.transport in ("reg", "smem") and (stray := next((s for s in ends if s.role != ends[0].role), None)):
        yield _error(
            queue.name,
            f"has transport {queue.transport}, which stays in one CTA, but '{stray.name}' has role {stray.role} and "
            f"'{ends[0].name}' role {ends[0].role}; use dsmem, l2 or hbm, or give them one role",
        )
    if queue.transport == "dsmem" and (odd := next((s for s in ends if s.replicas != ends[0].replicas), None)):
        yield _error(
            queue.name,
            f"has transport dsmem, which pairs replicas, but '{odd.name}' has {odd.replicas} and '{ends[0].name}' "
            f"{ends[0].replicas}; use l2 or equal numbers",
        )


def _rates(flow: Flow) -> Iterator[Finding]:
    """Each queue is filled and drained once a tile, or once: never one side so and the other so."""
    for role, stages in flow.roles.items():
        late = next((stage for stage in stages if stage.once and not stage.split), None)
        if late is not None and len({stage.once for stage in stages}) > 1:
            yield _error(late.name, f"fires once but shares role {role} with stages that fire on every tile")
    taken: set[str] = set()
    for queue in flow.queues:
        if flow.stage(queue.producer).once:
            yield _error(queue.name, f"is put in by '{queue.producer}', which fires once: it may only store")
        for stage in (flow.stage(name) for name in queue.consumers):
            taken.add(stage.name)
            if queue.accumulates and not stage.once:
                yield _error(
                    queue.name,
                    f"carries one partial sum a replica, but '{stage.name}' takes from it on every tile",
                )
            if stage.once and not queue.accumulates:
                yield _error(queue.name, f"carries every tile, but '{stage.name}' takes from it once")
        if queue.accumulates:
            yield from _accumulation(flow, queue)
    for stage in flow.stages:
        if stage.once and stage.name not in taken:
            yield _error(stage.name, "fires once but takes from no accumulating queue")
        if stage.once and not stage.split and stage.replicas != 1:
            yield _error(stage.name, f"fires once, on 1 replica, found {stage.replicas}: each would store the sum")


def _accumulation(flow: Flow, queue: Queue) -> Iterator[Finding]:
    replicas = flow.stage(queue.producer).replicas
    whole = not any(flow.stage(name).split for name in queue.consumers)  # else replicas leave blocks of partial sums
    if whole and queue.depth < replicas:
        yield _error(
            queue.name,
            f"needs a depth of at least {replicas}, found {queue.depth}: each replica of '{queue.producer}' leaves "
            "a partial sum there, and all are taken before any is released",
        )
    if any(queue.lookahead):
        yield _error(queue.name, f"accumulates, so lookahead must be 0, found {queue.lookahead}")


def _deadlock(flow: Flow) -> Iterator[Finding]:
    found = repair(flow)
    depths = {queue.name: queue.depth for queue in flow.queues}
    for name, needed in found.depths.items():
        yield _error(
            name,
            f"needs a depth of at least {needed}, found {depths[name]}, or less lookahead; as it is, "
            f"{_explain(found.cycles[name])}",
        )
    for name in found.hopeless:
        yield _error(
            name,
            "looks ahead at tiles that cannot exist yet at any depth; set lookahead to 0 or give the stages "
            f"different roles; as it is, {_explain(found.cycles[name])}",
        )


def _explain(cycle: list[Wait]) -> str:
    return "; ".join(str(wait) for wait in cycle)
