"""The proof that a scheduled kernel may be launched: slots, rates, deadlock, resources. `docs/proof.md` says what is
proven and why that is so, and what is taken for granted.

Checked in this order, each on the ground of the ones before; the first group that finds a fault ends the proof.
Without faults, for any trip counts: every slot is opened and closed once, in order, and nothing reads or writes it
outside of that; every agent ends, in whatever order agents and asynchronous work go on; all slots are empty then; and
the target's registers and shared memory hold the kernel.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from . import schedule_deadlock, schedule_roles
from .schedule import Agent, Fault, Open, Refused, Schedule, conditions, opens
from .schedule_deadlock import Ends
from .schedule_roles import Roles
from .schedule_slots import events
from .target import Target

MOST_CONDITIONS = 6  # on which branches with ring operations may depend: each way is proven by itself
SLOT_ALIGNMENT = 1024  # bytes; swizzled boxes repeat after so many (PTX ISA, tensor swizzling modes)
BARRIER_BYTES = 16  # of a slot: an mbarrier for full and one for empty
WARP = 32  # threads
REGISTERS = 65_536  # of an SM
MOST_THREADS = 1024  # of a CTA


def verify(schedule: Schedule | Roles, target: Target) -> list[Fault]:
    """Why `schedule` must not be launched on `target`: the faults of the first group that has any."""
    if isinstance(schedule, Roles):
        found = [fault for role in schedule.roles for fault in verify(role.schedule, target)]
        return found or list(schedule_roles.faults(schedule, target))
    for group in (_ends(schedule), _runs(schedule), _resources(schedule, target)):
        if faults := list(group):
            return list(dict.fromkeys(faults))
    return []


def _ends(schedule: Schedule) -> Iterator[Fault]:
    """One producing and one consuming agent of each ring in use, and one copy of the first; of a ring that is each
    copy's own both are one agent."""
    for ring in schedule.rings:
        found: dict[str, dict[str, Open]] = {"producer": {}, "consumer": {}}
        for agent in schedule.agents:
            for step in opens(agent.steps):
                if step.ring == ring.name:
                    found[step.side].setdefault(agent.name, step)
        for side, does in (("producer", "fills"), ("consumer", "takes")):
            agents = list(found[side])
            if len(agents) > 1:
                place = found[side][agents[1]].place
                yield Fault(
                    place, f"{does} slots of ring '{ring.name}' in '{agents[1]}', where '{agents[0]}' {does} them too"
                )
        if bool(found["producer"]) != bool(found["consumer"]):
            missing = "takes" if found["producer"] else "fills"
            yield Fault(ring.place, f"has ring '{ring.name}', of which no agent {missing} slots")
        if ring.own:
            for name in found["producer"].keys() - found["consumer"].keys():
                yield Fault(ring.place, f"has ring '{ring.name}', each copy's own, which '{name}' fills for others")
            continue
        for name, step in found["producer"].items():
            if (copies := _agent(schedule, name).copies) > 1:
                yield Fault(step.place, f"fills slots of ring '{ring.name}' in {copies} copies of '{name}'; wants one")


def _agent(schedule: Schedule, name: str) -> Agent:
    return next(agent for agent in schedule.agents if agent.name == name)


def _runs(schedule: Schedule) -> Iterator[Fault]:
    """Slots, rates and deadlock, for each way in which branches may go."""
    branches = [branch for agent in schedule.agents for branch in conditions(agent.steps)]
    texts = list(dict.fromkeys(branch.condition for branch in branches if branch.condition is not None))
    if len(texts) > MOST_CONDITIONS:
        yield Fault(schedule.place, f"branches on {len(texts)} conditions; up to {MOST_CONDITIONS} are proven")
        return
    rings = {ring.name: ring for ring in schedule.rings}
    ends = _ends_of(schedule)
    for ways in itertools.product((False, True), repeat=len(texts)):
        decided = dict(zip(texts, ways, strict=True))
        bodies, faults = {}, []
        for agent in schedule.agents:
            try:
                bodies[agent.name] = events(agent, decided)
            except Refused as refused:
                faults.append(refused.fault)
        if not faults:
            try:
                schedule_deadlock.check(bodies, rings, ends, schedule.tiles)
            except Refused as refused:
                faults.append(refused.fault)
        if faults:
            yield from faults
            return


def _ends_of(schedule: Schedule) -> dict[str, Ends]:
    agents: dict[tuple[str, str], str] = {}
    for agent in schedule.agents:
        for step in opens(agent.steps):
            agents[step.ring, step.side] = agent.name
    rings = [ring.name for ring in schedule.rings if (ring.name, "producer") in agents]
    return {name: Ends(agents[name, "producer"], agents[name, "consumer"]) for name in rings}


def shared_bytes(schedule: Schedule) -> int:
    """The shared memory of the rings in a CTA, with their barriers, and of the boxes through which tiles leave."""
    rings = (ring for ring in schedule.rings if not ring.between)
    slots = ((ring.slots, -(-ring.slot_bytes // SLOT_ALIGNMENT) * SLOT_ALIGNMENT) for ring in rings)
    return schedule.outbox_bytes + sum(count * (nbytes + BARRIER_BYTES) for count, nbytes in slots)


def _resources(schedule: Schedule, target: Target) -> Iterator[Fault]:
    threads = sum(agent.copies * agent.warps * WARP for agent in schedule.agents)
    if threads > MOST_THREADS:
        yield Fault(schedule.place, f"has {threads} threads in a CTA, whose most are {MOST_THREADS}")
        return
    # A launch gives all threads equally many, a multiple of 8; agents of warpgroups give up or take of those (PTX ISA,
    # setmaxnreg), others keep them.
    given = REGISTERS // (threads * schedule.ctas) // 8 * 8
    if not target.has_warpgroups:
        for agent in schedule.agents:
            if agent.registers > given:
                yield Fault(
                    agent.place,
                    f"'{agent.name}' wants {agent.registers} registers of a thread, but the {threads} threads of a CTA "
                    f"are given {given} each, and {target.name} hands none on",
                )
    pool = threads * given
    wanted = {agent.name: agent.copies * agent.warps * WARP * agent.registers for agent in schedule.agents}
    if sum(wanted.values()) > pool:
        each = ", ".join(f"'{name}' {count}" for name, count in wanted.items())
        yield Fault(
            schedule.place,
            f"wants {sum(wanted.values())} registers in a CTA ({each}), but its {threads} threads are given {pool}"
            + (f" where an SM holds {schedule.ctas} CTAs" if schedule.ctas > 1 else ""),
        )
    if (used := shared_bytes(schedule)) * schedule.ctas > target.shared_bytes:
        largest = max(schedule.rings, key=lambda ring: ring.slots * ring.slot_bytes)
        yield Fault(
            largest.place,
            f"has rings of {used} bytes in shared memory, the largest being '{largest.name}', but {target.name} has "
            f"{target.shared_bytes // schedule.ctas} a CTA; use fewer slots or smaller tiles",
        )
