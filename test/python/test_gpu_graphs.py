"""Gathers in stages, scatters on the way out and products before gathers, in the simulator."""

import copy
import random

import pytest
import torch
from torch import nn

import kitsune_mlir
from kitsune_mlir.codegen.schedule.prefetch import PrefetchCode
from kitsune_mlir.passes import single_products
from kitsune_mlir.tools.gpusim.faults import Deadlock
from kitsune_mlir.tools.gpusim.simulation import Simulation
from kitsune_mlir.tools.gpusim.space import Space

BOUNDS = {torch.bfloat16: 3e-2, torch.float16: 6e-3, torch.float32: 4e-6}


def run(model, args, target, **options):
    """The launches of a model that is compiled and run, against float64."""
    model = model.eval()
    exact = copy.deepcopy(model).double()
    with torch.no_grad():
        wanted = exact(*(x.double() if x.is_floating_point() else x for x in args))
        compiled = kitsune_mlir.compile(model, args, target=target, options=options)
    simulation = Simulation(compiled)
    dtype = next(model.parameters()).dtype
    found = simulation(*args)
    for a, b in zip(*(x if isinstance(x, tuple) else (x,) for x in (found, wanted)), strict=True):
        assert a.dtype == dtype and a.shape == b.shape
        assert (a.double() - b).norm() <= BOUNDS[dtype] * b.norm() + 1e-6
    return compiled.plan["launches"]


class Messages(nn.Module):
    """A network on edges and the nodes at their ends, whose results are summed at the receivers."""

    def __init__(self, nodes, edges, width, inner, norm=True):
        super().__init__()
        self.first, self.last = nn.Linear(edges + 2 * nodes, inner), nn.Linear(inner, width)
        self.norm = nn.LayerNorm(width) if norm else nn.Identity()

    def forward(self, x, e, senders, receivers):
        ends = self.take(x, senders), self.take(x, receivers)
        messages = self.norm(self.last(torch.relu(self.first(torch.cat([e, *ends], 1)))))
        total = torch.zeros(x.shape[0], messages.shape[1], dtype=x.dtype).index_add(0, receivers, messages)
        return total, messages

    def take(self, x, numbers):
        return torch.index_select(x, 0, numbers)


class Indexed(Messages):
    def take(self, x, numbers):
        return x[numbers]


def graph(kind, nodes, edges):
    """Senders and receivers."""
    if kind == "hub":
        return torch.randint(0, nodes, (edges,)), torch.full((edges,), nodes - 1)
    if kind == "loops":
        return (torch.arange(edges) % nodes,) * 2
    if kind == "few":  # most nodes are isolated
        return torch.randint(0, nodes, (edges,)), torch.randint(0, max(1, nodes // 8), (edges,))
    return torch.randint(0, nodes, (edges,)), torch.randint(0, nodes, (edges,))


CASES = [  # kind, nodes, edges, widths of nodes, edges, results and hidden layer
    ("any", 40, 300, 32, 16, 64, 48),
    ("hub", 40, 150, 64, 64, 64, 64),
    ("few", 64, 1, 24, 40, 32, 40),
    ("loops", 9, 129, 16, 8, 20, 24),
    ("any", 300, 64, 128, 128, 128, 128),
    ("any", 50, 200, 256, 32, 48, 64),  # wide rows: products are made before
]


PAIRS = [(case, torch.bfloat16) for case in CASES] + [(CASES[0], torch.float32), (CASES[-1], torch.float32)]


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("case, dtype", PAIRS)
def test_messages(case, dtype, small_gpu):
    kind, nodes, edges, width, own, results, inner = case
    torch.manual_seed(7)
    model = Messages(width, own, results, inner).to(dtype)
    ends = graph(kind, nodes, edges)
    x, e = torch.randn(nodes, width, dtype=dtype), torch.randn(edges, own, dtype=dtype)
    launches = run(model, (x, e, *ends), small_gpu)
    forms = {launch["form"] for launch in launches}
    if dtype == torch.bfloat16:
        assert "scheduled chain" in forms


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("cluster, dtype", [(2, torch.bfloat16), (4, torch.float16), (2, torch.float32)])
def test_messages_that_ctas_share(cluster, dtype, small_gpu):
    """Each CTA of a cluster adds the columns that it has, and takes those of rows that are multiplied before."""
    torch.manual_seed(9)
    model, place = Messages(256, 64, 128, 64).to(dtype), f"shape=chained tile-rows=128 cluster={cluster}"
    edges = 300 if cluster == 4 else 150  # two clusters that go round, or four
    args = torch.randn(50, 256, dtype=dtype), torch.randn(edges, 64, dtype=dtype), *graph("any", 50, edges)
    launches = run(model, args, small_gpu, **{"place-stages": place})
    assert f"columns shared by {cluster} CTAs" in ", ".join(launch["computes"] for launch in launches)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("index", [torch.int64, torch.int32], ids=["i64", "i32"])
def test_rows_that_python_indexes_are_gathered_in_the_kernel(index, small_gpu):
    """Numbers of 32 bits, which torch makes wider, and such as count from the end."""
    torch.manual_seed(11)
    model = Indexed(64, 64, 64, 64).bfloat16()
    ends = (numbers.to(index) for numbers in graph("any", 40, 200))
    args = torch.randn(40, 64).bfloat16(), torch.randn(200, 64).bfloat16(), *ends
    args[2][:5] -= 40
    assert [launch["form"] for launch in run(model, args, small_gpu)] == ["fill", "scheduled chain", "operator"]


@pytest.mark.usefixtures("unassembled")  # kernels of messages assemble in test_hopper_ptx.py
def test_a_graph_is_one_kernel(small_gpu):
    """Nothing is gathered to memory, and no message is read again to be added."""
    torch.manual_seed(1)
    model = Messages(128, 128, 128, 128).bfloat16()
    args = torch.randn(60, 128).bfloat16(), torch.randn(200, 128).bfloat16(), *graph("any", 60, 200)
    assert [launch["form"] for launch in run(model, args, small_gpu)] == ["fill", "scheduled chain", "operator"]
    args = torch.randn(6_000, 128).bfloat16(), torch.randn(20_000, 128).bfloat16(), *graph("any", 6_000, 20_000)
    declined = kitsune_mlir.compile(model, args, target="sm_90a").plan["declined"]
    assert not [entry for entry in declined if entry["operator"] == "tm_tensor.scatter"]


class Summed(nn.Module):
    """What is added to zeros leaves by a scatter; to something else, it does not."""

    def __init__(self, start):
        super().__init__()
        self.net, self.start = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32)), start

    def forward(self, e, receivers, x):
        table = torch.zeros_like(x) if self.start == "zeros" else x
        return table.index_add(0, receivers, self.net(e))


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("index", [torch.int64, torch.int32], ids=["i64", "i32"])
@pytest.mark.parametrize("start", ["zeros", "table"])
def test_sums(start, index, small_gpu):
    torch.manual_seed(2)
    args = torch.randn(140, 32).bfloat16(), torch.randint(0, 30, (140,)).to(index), torch.randn(30, 32).bfloat16()
    run(Summed(start).bfloat16(), args, small_gpu)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bf16", "f32"])
def test_rows_that_meet_are_summed_before_they_are_added(dtype, small_gpu, monkeypatch):
    """A thread adds once for each run of rows to the same place among the eight that it has: in order, against it, all
    to one place, alternating, and runs over the borders of threads, warps and tiles. 36 columns are no whole piece."""
    rows, columns, added = 300, 36, []

    class Layer(Summed):
        def __init__(self):
            super().__init__("zeros")
            self.net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, columns))

    def add(self, addresses, values):
        added.append(len(addresses))
        return plain(self, addresses, values)

    plain = Space.add
    monkeypatch.setattr(Space, "add", add)
    torch.manual_seed(12)
    model, places = Layer().to(dtype).eval(), torch.zeros(50, columns, dtype=dtype)
    ordered = torch.sort(torch.randint(0, 50, (rows,)))[0]
    orders = ordered, ordered.flip(0), torch.full((rows,), 49), torch.arange(rows) % 2, torch.arange(rows) // 13
    tiles = torch.randn(rows, 32, dtype=dtype)
    compiled = kitsune_mlir.compile(model, (tiles, ordered, places), target=small_gpu)
    simulation, exact = Simulation(compiled), copy.deepcopy(model).double()
    for to in orders:
        added.clear()
        found = simulation(tiles, to, places)
        wanted = exact(tiles.double(), to, places.double()).detach()
        assert (found.double() - wanted).norm() <= BOUNDS[dtype] * wanted.norm()
        runs = sum(len(torch.unique_consecutive(part)) for part in to.split(8))
        assert sum(added) == runs * columns // 4


class Looked(nn.Module):
    """A product of rows of a table: made before where they are few, of the rows where they are many."""

    def __init__(self, rows, width, outputs, dtype=torch.bfloat16):
        super().__init__()
        self.table, self.first = nn.Embedding(rows, width), nn.Linear(width, outputs)
        self.last = nn.Linear(outputs, 24)
        self.to(dtype)

    def forward(self, index):
        return self.last(torch.tanh(self.first(self.table(index))))


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("rows, count, width", [(20, 150, 40), (500, 100, 40), (500, 100, 300), (30, 150, 300)])
def test_embeddings(rows, count, width, small_gpu):
    torch.manual_seed(3)
    run(Looked(rows, width, 48), (torch.randint(0, rows, (count,)),), small_gpu)


def test_negative_rows_are_counted_from_the_end(small_gpu):
    class Indexed(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(64, 32)

        def forward(self, x, index):
            return torch.relu(self.net(x[index]))

    torch.manual_seed(4)
    run(Indexed().bfloat16(), (torch.randn(40, 64).bfloat16(), torch.randint(-40, 40, (90,))), small_gpu)


def test_exact_products_are_left_alone(small_gpu):
    torch.manual_seed(5)
    args = (torch.randint(0, 20, (150,)),)
    launches = run(Looked(20, 40, 48), args, small_gpu, **{"project-gathers": "exact=true"})
    assert launches


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("seed", range(3))
def test_random_graphs(seed, small_gpu):
    rng = random.Random(seed)
    torch.manual_seed(seed)
    dtype = rng.choice([torch.bfloat16, torch.float16])
    nodes, edges = rng.randint(1, 80), rng.randint(1, 260)
    width, own = (rng.choice([8, 17, 32, 64, 96, 130]) for _ in range(2))
    results, inner = (rng.choice([16, 20, 33, 64, 128]) for _ in range(2))
    model = Messages(width, own, results, inner, norm=rng.random() < 0.5).to(dtype)
    ends = graph(rng.choice(["any", "hub", "few", "loops"]), nodes, edges)
    run(model, (torch.randn(nodes, width, dtype=dtype), torch.randn(edges, own, dtype=dtype), *ends), small_gpu)


@pytest.mark.usefixtures("unassembled")
def test_graphs_of_any_size(small_gpu):
    """Compiled once, for every number of nodes and edges, none among them."""
    torch.manual_seed(6)
    nodes, edges = torch.export.Dim("nodes", min=2), torch.export.Dim("edges", min=2)
    shapes = {"x": {0: nodes}, "e": {0: edges}, "senders": {0: edges}, "receivers": {0: edges}}
    model = Messages(32, 16, 32, 48).bfloat16().eval()

    def arguments(nodes, edges):
        ends = graph("any", nodes, edges) if edges else (torch.zeros(0, dtype=torch.int64),) * 2
        return torch.randn(nodes, 32).bfloat16(), torch.randn(edges, 16).bfloat16(), *ends

    with torch.no_grad():
        compiled = kitsune_mlir.compile(model, arguments(20, 70), target=small_gpu, dynamic_shapes=shapes)
    assert [launch["form"] for launch in compiled.plan["launches"]] == ["fill", "scheduled chain", "operator"]
    simulation, exact = Simulation(compiled), copy.deepcopy(model).double()
    for sizes in ((20, 70), (7, 300), (50, 3), (5, 0)):
        args = arguments(*sizes)
        with torch.no_grad():
            wanted = exact(*(x.double() if x.is_floating_point() else x for x in args))
        for a, b in zip(simulation(*args), wanted, strict=True):
            assert a.shape == b.shape and (a.double() - b).norm() <= 3e-2 * b.norm() + 1e-6


class OneLayer(nn.Module):
    """A product alone in its kernel, whose tiles leave by additions."""

    def __init__(self, width, outputs):
        super().__init__()
        self.layer = nn.Linear(width, outputs)

    def forward(self, e, receivers, x):
        return torch.zeros_like(x).index_add(0, receivers, self.layer(e))


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("rows, width, outputs", [(700, 256, 256), (40, 1024, 384), (300, 64, 24), (130, 192, 520)])
def test_single_products(rows, width, outputs, small_gpu):
    """In two sets of sums, of few rows split over k, of few columns, in several passes."""
    torch.manual_seed(9)
    args = torch.randn(rows, width).bfloat16(), torch.randint(0, 30, (rows,)), torch.randn(30, outputs).bfloat16()
    run(OneLayer(width, outputs).bfloat16(), args, small_gpu)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("width", [132, 316, 351])
def test_single_products_of_rows_that_threads_read(width, small_gpu, monkeypatch):
    """Threads read rows as they are, where DRAM would take long for a copy of them with longer ones."""
    torch.manual_seed(11)
    monkeypatch.setattr(single_products, "dram_us", lambda *_: 1.0)
    model = nn.Sequential(nn.Linear(width, 256), nn.ReLU()).bfloat16()
    (launch,) = run(model, (torch.randn(600, width).bfloat16(),), small_gpu)
    assert len(launch["tile"]) == 1


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("rows, dtype", [(30, torch.bfloat16), (150, torch.float32)])
def test_single_products_of_gathered_rows(rows, dtype, small_gpu):
    """Tiles of rows and of columns; boxes of few rows."""
    torch.manual_seed(13)
    model = nn.Sequential(nn.Embedding(200, 64), nn.Linear(64, 700), nn.ReLU()).to(dtype)
    launches = run(model, (torch.randint(0, 200, (rows,)),), small_gpu)
    assert [launch["form"] for launch in launches] == ["scheduled chain"] and len(launches[0]["tile"]) == 2


@pytest.mark.usefixtures("unassembled")
def test_sums_of_passes_begin_with_gathered_columns(small_gpu):
    torch.manual_seed(14)
    model, edges = Messages(300, 16, 33, 256, norm=False), 150
    args = torch.randn(40, 300), torch.randn(edges, 16), *graph("any", 40, edges)
    assert "chained" not in {launch["form"] for launch in run(model, args, small_gpu)}


class Taken(nn.Module):
    """Elements of other rows for each column, then a product."""

    def __init__(self, form, width):
        super().__init__()
        self.form, self.net = form, nn.Sequential(nn.Linear(width, 48), nn.Tanh(), nn.Linear(48, 32))

    def forward(self, x, index):
        if self.form == "gather":
            return self.net(torch.gather(x, 0, index))
        return self.net(x[index[:, 0]] + x[index[:, 1]])


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("form", ["gather", "two rows"])
def test_rows_of_each_column(form, small_gpu):
    torch.manual_seed(10)
    args = torch.randn(50, 64).bfloat16(), torch.randint(0, 50, (140, 64))
    run(Taken(form, 64).bfloat16(), args, small_gpu)


def test_sequences_of_rows(small_gpu):
    torch.manual_seed(11)
    run(Looked(90, 64, 48), (torch.randint(0, 90, (3, 17)),), small_gpu)


@pytest.fixture
def prefetched(monkeypatch):
    """A list to which the simulator adds how many rows each prefetch asks for."""
    asked, look = [], Space.prefetch
    monkeypatch.setattr(Space, "prefetch", lambda self, *given: asked.append(len(given[0])) or look(self, *given))
    return asked


def edges_between(nodes, edges):
    """A model of messages along edges, and its arguments."""
    torch.manual_seed(8)
    args = torch.randn(nodes, 64).bfloat16(), torch.randn(edges, 16).bfloat16(), *graph("any", nodes, edges)
    return Messages(64, 16, 32, 64).bfloat16(), args


@pytest.mark.usefixtures("unassembled")
def test_rows_are_asked_for_a_tile_ahead(small_gpu, prefetched, monkeypatch):
    """The rows of both ends of each edge are asked for once; where the agent that asks does not say that it did,
    warpgroups wait for ever."""
    edges = 1300
    model, args = edges_between(90, edges)
    assert "scheduled chain" in {launch["form"] for launch in run(model, args, small_gpu)}
    assert sum(prefetched) == 2 * edges
    monkeypatch.setattr(PrefetchCode, "_commit", lambda self, op: None)
    with pytest.raises(Deadlock):
        run(model, args, small_gpu)


@pytest.mark.usefixtures("unassembled")
def test_rows_whose_numbers_are_taken_out_of_a_table_are_asked_for(small_gpu, prefetched):
    """What each graph of a batch has, at its edges: the graph of an edge is that of the node where it begins."""

    class Globals(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(80, 64), nn.ReLU(), nn.Linear(64, 64))

        def forward(self, e, whole, graphs, senders):
            return self.net(torch.cat([e, whole[graphs[senders]]], 1))

    torch.manual_seed(9)
    numbers = torch.randint(0, 7, (90,)), torch.randint(0, 90, (1300,))
    args = torch.randn(1300, 16).bfloat16(), torch.randn(7, 64).bfloat16(), *numbers
    model = Globals().bfloat16()
    assert "scheduled chain" in {launch["form"] for launch in run(model, args, small_gpu)}
    assert sum(prefetched) == 1300
    edges, nodes = torch.export.Dim("edges", min=2), torch.export.Dim("nodes", min=2)
    shapes = ({0: edges}, None, {0: nodes}, {0: edges})
    compiled = kitsune_mlir.compile(model, args, target=small_gpu, dynamic_shapes=shapes)
    torch.testing.assert_close(Simulation(compiled)(*args), model(*args), rtol=3e-2, atol=3e-2)
