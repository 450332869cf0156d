"""Roles: stages with CTAs of their own, at the schedule level. The proof, the interpreter and the generated code."""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from schedules import with_slots
from test_schedule_chains import arguments, chain
from torch import nn

import kitsune_mlir
from kitsune_mlir import mlir
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.dialects import schedule as dialect
from kitsune_mlir.passes import pipeline
from kitsune_mlir.passes.schedule_events import Reading
from kitsune_mlir.planning import schedule_proof, target
from kitsune_mlir.schedule import run
from kitsune_mlir.schedule.rings import ScheduleFault
from kitsune_mlir.tools.gpusim import Simulation

GPU = target.load("sm_90a")
STEPS = ("partition-dataflow", "design-pipeline", "place-stages", "schedule-chains", "verify-dataflow")


def scheduled(text, path):
    """The module with the kernel of a model whose stages have CTAs of their own."""
    module = mlir.parse(text, mlir.context())
    options = {"place-stages": "shape=spatial"}
    pipeline.run(module, [pipeline.make(step, options.get(step, ""), path) for step in STEPS])
    return module


@pytest.mark.parametrize(
    "rows, widths, sms",
    [
        (700, (64, 128, 64, 64), 6),
        (1, (128, 64, 192, 64), 6),
        (300, (64, 600, 512, 64), 5),  # products in passes, long ones, and a cast of what comes from another role
        (900, (256, 320, 24), 2),
    ],
    ids=str,
)
@pytest.mark.parametrize("slots", [None, 1])
def test_the_interpreter_agrees(rows, widths, sms, slots, gpu_of):
    """However few slots there are."""
    module = scheduled(chain(rows, widths), gpu_of(sms))
    assert not list(kitsune.pipelines(module))
    if slots is not None:
        module = mlir.parse(with_slots(str(module), slots), mlir.context())
    (kernel,) = dialect.kernels(module)
    assert [part.label for part in kernel.parts] == [f"s{i}" for i in range(len(widths) - 1)]
    assert not schedule_proof.verify(Reading(kernel).schedule(), GPU)
    given_, wanted = arguments(rows, widths)
    for seed in (1, 2):
        (found,) = run(kernel, given_, seed=seed)
        np.testing.assert_array_equal(found, wanted)


TILE = "tensor<64x64xbf16>"
DIMS = 'dims = array<i64: 0, 1>, engine = "tma"'
RING, SLOT = f"!kitsune.ring<{TILE}, 2 : i64>", f"!kitsune.slot<{TILE}>"


def taking(ring, of):
    """A turn of the agent that feeds, and one of who takes what it brings."""
    q = f"!kitsune.ring<{TILE}, {of} : i64>"
    feeds = [
        f'%s{ring} = "kitsune.wait"(%{ring}) : ({q}) -> {SLOT}',
        f'%e{ring} = "kitsune.acquire"(%x) : ({RING}) -> {SLOT}',
        f'%d{ring} = "kitsune.copy"(%e{ring}, %s{ring}, %c0, %c0) {{{DIMS}}} :'
        f" ({SLOT}, {SLOT}, index, index) -> !kitsune.token",
        f'"kitsune.commit"(%e{ring}, %d{ring}) : ({SLOT}, !kitsune.token) -> ()',
        f'"kitsune.release"(%s{ring}) : ({SLOT}) -> ()',
    ]
    uses = [f'%u{ring} = "kitsune.wait"(%x) : ({RING}) -> {SLOT}', f'"kitsune.release"(%u{ring}) : ({SLOT}) -> ()']
    return feeds, uses


def filling(ring, of):
    return [
        f'%f{ring} = "kitsune.acquire"(%{ring}) : (!kitsune.ring<{TILE}, {of} : i64>) -> {SLOT}',
        f'"kitsune.fill"(%f{ring}, %A, %c0) : ({SLOT}, {TILE}, index) -> ()',
        f'"kitsune.commit"(%f{ring}) : ({SLOT}) -> ()',
    ]


def role(name, replicas, takes, fills):
    """A role that takes slots of rings, in this order, and fills others."""
    turns = [taking(*ring) for ring in takes]
    waits, uses = ([line for turn in turns for line in turn[side]] for side in (0, 1))
    fill = [line for ring in fills for line in filling(*ring)]
    head = ['%lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)']
    feed = []
    if takes:
        head += [
            f'%x = "kitsune.alloc_ring"() {{box = "rows", share = "all", space = "smem", sym_name = "x"}} :'
            f" () -> {RING}"
        ]
        feed = agent(waits, 'sym_name = "feed"', 24)
    body = "\n".join([*head, *feed, *agent([*uses, *fill], 'sym_name = "math"', 240)])
    return f'"kitsune.role"() ({{\n{body}\n}}) {{replicas = {replicas}, sym_name = "{name}"}} : () -> ()'


def agent(body, name, registers):
    loop = ["scf.for %i = %lo to %hi step %st {", *body, "}"]
    attributes = f"copies = 1, registers = {registers}, {name}, warps = 4"
    return ['"kitsune.agent"() ({', "^bb0(%copy: index):", *loop, f"}}) {{{attributes}}} : () -> ()"]


@st.composite
def kernels(draw):
    """Roles, and rings between them in any direction, each taken by one role or two; whether roles wait in a circle."""
    count = draw(st.integers(2, 4))
    rings = []
    for number in range(draw(st.integers(1, 5))):
        fills = draw(st.integers(0, count - 1))
        takes = draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=2))
        rings.append((f"q{number}", draw(st.integers(1, 3)), fills, takes))
    roles = []
    for number in range(count):
        taken = draw(st.permutations([(name, slots) for name, slots, _, takes in rings if number in takes]))
        filled = draw(st.permutations([(name, slots) for name, slots, fills, _ in rings if number == fills]))
        roles.append(role(f"r{number}", draw(st.integers(1, 3)), taken, filled))
    alloc = [
        f'%{name} = "kitsune.alloc_ring"() {{box = "rows", share = "all", space = "l2", sym_name = "{name}"}} :'
        f" () -> !kitsune.ring<{TILE}, {slots} : i64>"
        for name, slots, _, _ in rings
    ]
    body = "\n".join(alloc + roles)
    after = {number: {fills for _, _, fills, takes in rings if number in takes} for number in range(count)}
    for _ in range(count):
        after = {number: waits.union(*(after[other] for other in waits)) for number, waits in after.items()}
    text = f"""func.func @main(%A: {TILE}, %m: index) {{
%c0 = arith.constant 0 : index
%p = "kitsune.kernel"() ({{
{body}
}}) {{sym_name = "k", target = "sm_90a"}} : () -> !kitsune.outputs
return
}}"""
    return text, any(number in waits for number, waits in after.items())


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(kernels(), st.integers(1, 7), st.integers(0, 3))
def test_what_is_proven_runs_and_nothing_else(drawn, tiles, seed):
    text, in_a_circle = drawn
    module = mlir.parse(text, mlir.context())
    (kernel,) = dialect.kernels(module)
    faults = [fault.message for fault in schedule_proof.verify(Reading(kernel).schedule(), GPU)]
    assert bool(faults) == in_a_circle, faults
    given_ = [np.zeros((64, 64), np.float32), 64 * tiles - 5]
    if faults:
        with pytest.raises(ScheduleFault, match="deadlock"):
            run(kernel, given_, seed=seed)
    else:
        run(kernel, given_, seed=seed)


def kernel_of(rings, *roles):
    """A kernel of these rings between roles, with their slots; of each role the bodies of its agents."""
    alloc = [
        f'%{name} = "kitsune.alloc_ring"() {{box = "rows", share = "all", space = "{space}", sym_name = "{name}"}} :'
        f" () -> !kitsune.ring<{TILE}, {slots} : i64>"
        for name, slots, space in [*((name, slots, "l2") for name, slots in rings), ("x", 2, "smem")]
    ]
    *between, inside = alloc
    tiles = '%lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)'
    made = []
    for number, bodies in enumerate(roles):
        own = [inside] if len(bodies) > 1 else []
        agents = [
            line
            for i, body in enumerate(bodies)
            for line in ['"kitsune.agent"() ({', "^bb0(%copy: index):", *body,
                         f'}}) {{copies = 1, registers = 24, sym_name = "a{i}", warps = 4}} : () -> ()']
        ]  # fmt: skip
        made += [
            '"kitsune.role"() ({',
            tiles,
            *own,
            *agents,
            f'}}) {{replicas = 1, sym_name = "r{number}"}} : () -> ()',
        ]
    lines = [*between, *made]
    return "\n".join([
        f"func.func @main(%A: {TILE}, %m: index) {{", *(f"%c{i} = arith.constant {i} : index" for i in range(3)),
        '%p = "kitsune.kernel"() ({', *lines, '}) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs',
        "return", "}",
    ])  # fmt: skip


def over_tiles(*body, counter="i"):
    return [f"scf.for %{counter} = %lo to %hi step %st {{", *body, "}"]


def twice(*body):
    return ["scf.for %o = %c0 to %c2 step %c1 {", *body, "}"]


FEEDS_A, USES_A = taking("a", 1)
FEEDS_B, USES_B = taking("b", 1)
FILLS_A, FILLS_B = filling("a", 1), filling("b", 1)
IF = ["%cond = arith.cmpi eq, %m, %c0 : index", "scf.if %cond {"]
HANGS = {  # the rings' names, then roles; what the proof says
    "one agent fills two rings in two loops": (
        "ab",
        ([*over_tiles(*FILLS_A), *over_tiles(*FILLS_B, counter="j")],),
        (over_tiles(*FEEDS_A, *FEEDS_B), over_tiles(*USES_A, *USES_B)),
        "are two loops of 'a0'",
    ),
    "one agent takes two rings in two loops": (
        "ab",
        (over_tiles(*FILLS_A, *FILLS_B),),
        ([*over_tiles(*FEEDS_A), *over_tiles(*FEEDS_B)], [*over_tiles(*USES_A), *over_tiles(*USES_B)]),
        "are two loops of 'a0'",
    ),
    "a loop over tiles goes round twice": (
        "a",
        (over_tiles(*FILLS_A),),
        (twice(*over_tiles(*FEEDS_A)), twice(*over_tiles(*USES_A))),
        "are two loops of 'a0'",
    ),
    "a loop over tiles that may be left out": (
        "a",
        (over_tiles(*FILLS_A),),
        ([*IF, *over_tiles(*FEEDS_A), "}"], [*IF, *over_tiles(*USES_A), "}"]),
        "elsewhere than in a turn of the loop over tiles",
    ),
    "nothing is stored in a slot": (
        "a",
        (over_tiles(FILLS_A[0], FILLS_A[2]),),
        (over_tiles(*FEEDS_A), over_tiles(*USES_A)),
        "fills slots of ring 'a', into which nothing is copied",
    ),
    "nothing is copied out of a slot": (
        "a",
        (over_tiles(*FILLS_A),),
        (over_tiles(FEEDS_A[0], FEEDS_A[4]),),
        "takes slots of ring 'a', out of which nothing is copied",
    ),
}


@pytest.mark.parametrize("name", HANGS)
def test_what_the_theorem_supposes_is_asked(name):
    """Each hangs, or would on a GPU, and is refused."""
    rings, *roles, said = HANGS[name]
    module = mlir.parse(kernel_of([(ring, 1) for ring in rings], *roles), mlir.context())
    (kernel,) = dialect.kernels(module)
    faults = [fault.message for fault in schedule_proof.verify(Reading(kernel).schedule(), GPU)]
    assert any(said in fault for fault in faults), faults


WIDE, COLUMNS = "tensor<64x256xbf16>", 256


def filled_by(pieces, rolled):
    """A kernel of two roles, of which the first fills columns of each slot: from one on, so many. In loops if `rolled`,
    whose counters say where."""
    lines = ['%s = "kitsune.acquire"(%q) : (!q) -> !s']
    for number, (first, width) in enumerate(pieces):
        column = f"%c{first}"
        if rolled:
            column = f"%at{number}"
            lines += [
                f"scf.for %n{number} = %c{first // 64} to %c{first // 64 + 1} step %c1 {{",
                f"{column} = arith.muli %n{number}, %c64 : index",
            ]
        lines.append(f'"kitsune.fill"(%s, %A{width}, {column}) : (!s, tensor<64x{width}xbf16>, index) -> ()')
        lines += ["}"] * rolled
    lines.append('"kitsune.commit"(%s) : (!s) -> ()')
    feeds = [line.replace(f"({SLOT})", "(!s)") for line in FEEDS_A]
    feeds = [line.replace(f"({SLOT}, {SLOT},", f"({SLOT}, !s,") for line in feeds]
    feeds[0] = '%sa = "kitsune.wait"(%q) : (!q) -> !s'
    roles = kernel_of([], (over_tiles(*lines),), (over_tiles(*feeds), over_tiles(*USES_A)))
    ring = '%q = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "l2", sym_name = "q"} : () -> !q'
    roles = roles.replace('%p = "kitsune.kernel"() ({', '%p = "kitsune.kernel"() ({\n' + ring)
    constants = "\n".join(f"%c{i} = arith.constant {i} : index" for i in (3, 4, 64, 128, 192))
    tiles = ", ".join(f"%A{width}: tensor<64x{width}xbf16>" for width in (64, 128, 256))
    roles = roles.replace(f"(%A: {TILE}, %m: index) {{", f"({tiles}, %m: index) {{\n{constants}")
    return f"!q = !kitsune.ring<{WIDE}, 1 : i64>\n!s = !kitsune.slot<{WIDE}>\n{roles}"


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.tuples(st.sampled_from((0, 64, 128, 192)), st.sampled_from((64, 64, 128, 256))), min_size=1, max_size=4
    ),
    st.booleans(),
)
@example([(128, 128), (0, 128)], True)
@example([(0, 128), (192, 64), (128, 64)], False)
@example([(0, 64), (64, 256)], True)  # a piece that goes beyond the last column
def test_slots_are_filled_once_and_whole(pieces, rolled):
    """The proof and the interpreter agree on which are."""
    module = mlir.parse(filled_by(pieces, rolled), mlir.context())
    (kernel,) = dialect.kernels(module)
    faults = [fault.message for fault in schedule_proof.verify(Reading(kernel).schedule(), GPU)]
    given_ = [*(np.zeros((64, width), np.float32) for width in (64, 128, 256)), 150]
    filled = np.zeros(COLUMNS, int)
    for first, width in pieces:
        filled[first : first + width] += 1
    assert bool(faults) == bool((filled != 1).any()), faults
    if faults:
        with pytest.raises(ScheduleFault, match="not filled whole" if filled.max() == 1 else "again|not filled whole"):
            run(kernel, given_, seed=0)
    else:
        run(kernel, given_, seed=0)


class TwoSources(nn.Module):
    """A role that takes what two others make, of one type."""

    def __init__(self):
        super().__init__()
        self.one, self.two, self.head = nn.Linear(64, 256), nn.Linear(128, 256), nn.Linear(512, 64)

    def forward(self, x, y):
        return self.head(torch.cat([torch.relu(self.one(x)), torch.relu(self.two(y))], 1))


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize(
    "model, shapes, sms",
    [
        (nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256)), [(36_000, 256)], 132),
        (TwoSources(), [(36_000, 64), (36_000, 128)], 12),
    ],
    ids=["deep rings", "two sources"],
)
def test_rings_between_roles_take_no_shared_memory(model, shapes, sms, gpu_of):
    """Of a whole GPU, with as many slots as it wants: what is scheduled is proven, and fits."""
    args = tuple(torch.randn(shape, dtype=torch.bfloat16) for shape in shapes)
    options = {"place-stages": "shape=spatial"}
    compiled = kitsune_mlir.compile(model.bfloat16(), args, target=gpu_of(sms), options=options)
    assert "scheduled roles" in {launch["form"] for launch in compiled.plan["launches"]}


class TwoHeads(nn.Module):
    """One tile to two roles, of which each makes a result of its own."""

    def __init__(self):
        super().__init__()
        self.trunk, self.one, self.two = nn.Linear(64, 128), nn.Linear(128, 64), nn.Linear(128, 72)

    def forward(self, x):
        h = torch.relu(self.trunk(x))
        return torch.tanh(self.one(h)), self.two(h)


MODELS = {
    "a chain": (
        lambda: nn.Sequential(nn.Linear(64, 136), nn.ReLU(), nn.Linear(136, 64), nn.ReLU(), nn.Linear(64, 64)),
        64,
    ),
    "products in passes": (lambda: nn.Sequential(nn.Linear(64, 600), nn.GELU(), nn.Linear(600, 320)), 64),
    "two heads": (TwoHeads, 64),
}


@pytest.mark.parametrize("name, rows", [("a chain", 1), *((name, 500) for name in MODELS)])
def test_kernels_in_the_simulator(name, rows, gpu_of):
    """Twice, so that the second run finds what the first left in the workspace."""
    make, width = MODELS[name]
    torch.manual_seed(3)
    model, x = make().bfloat16().eval(), torch.randn(rows, width, dtype=torch.bfloat16)
    compiled = kitsune_mlir.compile(model, (x,), target=gpu_of(6), options={"place-stages": "shape=spatial"})
    assert "kitsune.role" in compiled.mlir("small:schedule-chains")
    with torch.no_grad():
        wanted = model(x)
    found = Simulation(compiled, seed=1)
    for _ in range(2):
        results = found(x)
        pairs = zip(*(value if isinstance(value, tuple) else (value,) for value in (results, wanted)), strict=True)
        for result, right in pairs:
            torch.testing.assert_close(result.float(), right.float(), atol=2e-2, rtol=2e-2)


def test_a_stage_alone_is_no_role(gpu_of):
    """A kernel without rings between roles has no workspace in which CTAs could count."""
    torch.manual_seed(3)
    model, x = (
        nn.Sequential(nn.Linear(356, 24), nn.SiLU()).bfloat16().eval(),
        torch.randn(63, 356, dtype=torch.bfloat16),
    )
    compiled = kitsune_mlir.compile(model, (x,), target=gpu_of(6), options={"place-stages": "shape=spatial"})
    assert "kitsune.role" not in compiled.mlir("small:schedule-chains")
    with torch.no_grad():
        torch.testing.assert_close(Simulation(compiled, seed=1)(x).float(), model(x).float(), atol=2e-2, rtol=2e-2)


def test_the_plan_says_what_runs(gpu_of, unassembled):
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64)).bfloat16()
    x = torch.randn(500, 64, dtype=torch.bfloat16)
    compiled = kitsune_mlir.compile(model, (x,), target=gpu_of(6), options={"place-stages": "shape=spatial"})
    (launch,) = compiled.plan["launches"]
    assert launch["form"] == "scheduled roles"
    assert "2 + 4 CTAs" in launch["computes"]
