"""What schedule-products makes, without a GPU: the proof accepts it, and the interpreter gives torch's numbers."""

from math import prod

import numpy as np
import pytest
import torch
from functions import Function
from hypothesis import given, settings
from hypothesis import strategies as st

import kitsune_mlir
from kitsune_mlir import mlir
from kitsune_mlir.dialects import clusters
from kitsune_mlir.dialects import schedule as dialect
from kitsune_mlir.mlir import arith, ir, scf
from kitsune_mlir.operations import users_of
from kitsune_mlir.passes import pipeline, priced_product
from kitsune_mlir.planning import product_engines
from kitsune_mlir.planning import target as targets
from kitsune_mlir.planning.cost import DRAM, L2, LATENCY, TENSOR
from kitsune_mlir.planning.thin_products import MOST_ROWS, MOST_TERMS, SMALL
from kitsune_mlir.precision import give
from kitsune_mlir.schedule import run
from kitsune_mlir.schedule.rings import rounded_to_tf32
from kitsune_mlir.weights import is_weight

BATCHED = """
func.func @main(%a: tensor<{left}xf32>, %b: tensor<{right}xf32>) -> tensor<{b}x{m}x{n}xf32> {{
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<{b}x{m}x{n}xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<{b}x{m}x{n}xf32>) -> tensor<{b}x{m}x{n}xf32>
  %c = linalg.batch_matmul indexing_maps = [affine_map<(b, m, n, k) -> (b, {order_a})>,
    affine_map<(b, m, n, k) -> (b, {order_b})>, affine_map<(b, m, n, k) -> (b, m, n)>]
    ins(%a, %b : tensor<{left}xf32>, tensor<{right}xf32>) outs(%f : tensor<{b}x{m}x{n}xf32>) -> tensor<{b}x{m}x{n}xf32>
  return %c : tensor<{b}x{m}x{n}xf32>
}}
"""


def scheduled(b, m, n, k, turned, element="bf16", precision="highest"):
    """The module with the kernel of a batched product of random sizes, proven."""
    shapes = {"m": m, "n": n, "k": k}
    orders = ["k, m" if turned[0] else "m, k", "n, k" if turned[1] else "k, n"]
    left, right = ("x".join(map(str, [b, *(shapes[d] for d in order.split(", "))])) for order in orders)
    text = BATCHED.format(left=left, right=right, b=b, m=m, n=n, order_a=orders[0], order_b=orders[1])
    text = text.replace(f"%a: tensor<{left}xf32>", f"%a: tensor<{left}x{element}>")
    text = text.replace(f"%b: tensor<{right}xf32>", f"%b: tensor<{right}x{element}>")
    both = "tensor<{0}x{2}>, tensor<{1}x{2}>)"
    text = text.replace(both.format(left, right, "f32"), both.format(left, right, element))
    module = mlir.parse(text, mlir.context())
    give(module, precision)
    steps = [pipeline.make("schedule-products", "", "sm_90a"), pipeline.make("verify-dataflow", "", "sm_90a")]
    pipeline.run(module, steps)
    return module


SIZES = st.tuples(st.integers(1, 3), st.integers(1, 200), st.integers(1, 300), st.integers(1, 5000))


@settings(max_examples=25, deadline=None, derandomize=True)
@given(SIZES, st.tuples(st.booleans(), st.booleans()), st.sampled_from(["bf16", "f16", "f32"]))
def test_our_own_schedules_are_proven(sizes, turned, element):
    """Sizes that are no multiples of anything, few rows with long sums, both orders of both operands."""
    module = scheduled(*sizes, turned, element)
    kernels = list(dialect.kernels(module))
    small = sizes[3] <= MOST_TERMS or max(sizes[1:]) <= SMALL
    thin = small or min(sizes[1:3]) <= MOST_ROWS  # then it may be left to others
    assert len(kernels) == (np.prod(np.array(sizes, float)) >= 1 << 16) or (thin and not kernels)
    for kernel in kernels:
        assert kernel.attributes["predicted_us"].value >= targets.load("sm_90a").launch_us
        assert kernel.attributes["limit"].value in (TENSOR, L2, DRAM, LATENCY)


@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("sizes", [(2, 72, 136, 200), (1, 40, 48, 2504)], ids=str)
def test_the_interpreter_agrees(sizes, turned):
    """Sizes whose rows tensor copies take as they are; the second one's sum is cut into parts."""
    b, m, n, k = sizes
    module = scheduled(*sizes, turned)  # kept: the kernel goes with it
    (kernel,) = dialect.kernels(module)
    rng = np.random.default_rng(0)
    left, right = (np.float32(rng.integers(-8, 8, shape)) for shape in ((b, m, k), (b, k, n)))
    arguments = [left.mT if turned[0] else left, right.mT if turned[1] else right]
    (found,) = run(kernel, arguments, ctas=3, seed=1)
    wanted = np.float32(left @ right)
    np.testing.assert_allclose(found.sum(0) if found.ndim == 4 else found, wanted, rtol=1e-5, atol=1e-3)


@pytest.fixture
def made_for_nothing(monkeypatch):
    monkeypatch.setattr("kitsune_mlir.planning.product_tiles._MADE", 0.0)


@pytest.mark.usefixtures("made_for_nothing")
@pytest.mark.parametrize("turned", [(False, False), (True, True)])
def test_pieces_that_are_made_in_the_kernel(turned):
    """Their sum is the number, and infinities come out where they belong."""
    b, m, n, k = 2, 72, 136, 200
    module = scheduled(b, m, n, k, turned, "f32")  # kept: the kernel goes with it
    (kernel,) = dialect.kernels(module)
    assert [agent.label for agent in kernel.agents] == ["feed", "math", "make"]
    rng = np.random.default_rng(0)
    left, right = (rng.standard_normal(shape, np.float32) for shape in ((b, m, k), (b, k, n)))
    left[0, 3, 5], right[0, 5] = -np.inf, np.abs(right[0, 5])
    arguments = [left.mT if turned[0] else left, right.mT if turned[1] else right]
    (found,) = run(kernel, arguments, ctas=3, seed=1)
    np.testing.assert_allclose(found, left.astype(np.float64) @ right, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("turned", [(True, False), (False, False), (True, True)])
@pytest.mark.parametrize("sizes", [(1, 256, 200, 8001), (2, 72, 136, 300), (3, 40, 56, 1030)], ids=str)
def test_words_that_are_turned_in_the_kernel(sizes, turned):
    """Operands in tf32 whose rows are not along k, of sums of any length; of several parts those that are cut."""
    b, m, n, k = sizes
    module = scheduled(b, m, n, k, turned, "f32", "high")  # kept: the kernel goes with it
    (kernel,) = dialect.kernels(module)
    assert [agent.label for agent in kernel.agents] == ["feed", "math", "make"]
    wanted = {"left": turned[0], "right": not turned[1]}
    rings = {ring.label: ring for ring in kernel.rings}
    assert {name: f"{name}_whole" in rings for name in wanted} == wanted
    assert all(rings[name].layout == "rows" and rings[name].is_rounded for name in wanted)
    rng = np.random.default_rng(0)
    left, right = (rng.standard_normal(shape, np.float32) for shape in ((b, m, k), (b, k, n)))
    arguments = [left.mT if turned[0] else left, right.mT if turned[1] else right]
    (found,) = run(kernel, arguments, ctas=3, seed=1)
    exact = np.float64(rounded_to_tf32(left, ties_up=False)) @ rounded_to_tf32(right, ties_up=False)
    np.testing.assert_allclose(found.sum(0) if found.ndim == 4 else found, exact, rtol=1e-4, atol=1e-3)


def test_pieces_are_made_in_the_kernel_where_sums_are_short():
    """H100: 1,024 products of 128 x 64 by 64 x 128 took 60 us so, 120 with kernels before; longer sums lose."""
    for (b, m, k), others in (((1024, 128, 64), ["make"]), ((1, 50_176, 576), [])):
        module = scheduled(b, m, 128, k, (False, False), "f32")  # kept: the kernel goes with it
        (kernel,) = dialect.kernels(module)
        assert [agent.label for agent in kernel.agents] == ["feed", "math", *others]


@pytest.mark.usefixtures("made_for_nothing")
def test_pieces_wait_for_what_they_are_made_of():
    """The proof refuses a kernel that gives f32 back before its pieces are made."""
    module = scheduled(2, 72, 136, 200, (False, False), "f32")
    split = mlir.walk(module, "kitsune.split")[0]
    (release,) = users_of(split.operands[0], "kitsune.release")
    release.move_before(split)
    assert "kitsune.split" in refused(module)


@pytest.mark.parametrize("kept, sizes", [("right", (1, 30_000, 40, 264)), ("left", (1, 40, 60_000, 264))])
def test_an_operand_that_all_tiles_have_is_kept(kept, sizes):
    """It is copied once for all tiles of a CTA, its slots opened before them and released behind them."""
    b, m, n, k = sizes
    module = scheduled(*sizes, (False, True))
    (kernel,) = dialect.kernels(module)
    assert {ring.label: ring.slots for ring in kernel.rings}[kept] == -(-k // 64)
    waits = [op for op in mlir.walk(kernel, "kitsune.wait") if op.parent.name == "kitsune.agent"]
    assert [op.operands[0].owner.opview.label for op in waits] == [kept] * -(-k // 64)
    rng = np.random.default_rng(0)
    left, right = (np.float32(rng.integers(-8, 8, shape)) for shape in ((b, m, k), (b, n, k)))
    (found,) = run(kernel, [left, right], ctas=3, seed=1)
    np.testing.assert_array_equal(found, left @ right.mT)


WINDOWS = """
func.func @main(%x: tensor<3x9x7x{channels}xbf16>, %w: tensor<40x{columns}xbf16>) -> tensor<3x{places}x40xf32> {{
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<3x{places}x40xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<3x{places}x40xf32>) -> tensor<3x{places}x40xf32>
  %m = "kitsune.windows"(%x) {{{windows}}} : (tensor<3x9x7x{channels}xbf16>) -> tensor<3x{places}x{columns}xbf16>
  %c = linalg.generic {{indexing_maps = [affine_map<(b, m, n, k) -> (b, m, k)>, affine_map<(b, m, n, k) -> (n, k)>,
      affine_map<(b, m, n, k) -> (b, m, n)>], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}}
      ins(%m, %w : tensor<3x{places}x{columns}xbf16>, tensor<40x{columns}xbf16>)
      outs(%f : tensor<3x{places}x40xf32>) {{
  ^bb0(%p: bf16, %q: bf16, %s: f32):
    %0 = arith.extf %p : bf16 to f32
    %1 = arith.extf %q : bf16 to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %s, %2 : f32
    linalg.yield %3 : f32
  }} -> tensor<3x{places}x40xf32>
  return %c : tensor<3x{places}x40xf32>
}}
"""


@pytest.mark.parametrize("channels", [64, 72])
@pytest.mark.parametrize("stride, low, places", [(1, 1, (9, 7)), (2, 0, (4, 3)), (3, 2, (4, 3))])
def test_products_of_windows_are_convolutions(channels, stride, low, places):
    """The interpreter reads the matrix of windows, and gives what torch's convolution does."""
    depth = -(-channels // 64) * 64
    numbers = {"dilations": (1, 1), "filter": (3, 3), "low": (low,) * 2, "places": places, "strides": (stride,) * 2}
    windows = ", ".join(f"{name} = array<i64: {a}, {b}>" for name, (a, b) in numbers.items())
    text = WINDOWS.format(channels=channels, columns=9 * depth, places=places[0] * places[1], windows=windows)
    module = mlir.parse(text, mlir.context())
    steps = [pipeline.make("schedule-products", "", "sm_90a"), pipeline.make("verify-dataflow", "", "sm_90a")]
    pipeline.run(module, steps)
    (kernel,) = dialect.kernels(module)
    random = np.random.default_rng(channels)
    x, f = (random.integers(-2, 3, shape).astype(np.float32) for shape in ((3, 9, 7, channels), (40, 3, 3, channels)))
    rows = np.pad(f, [(0, 0)] * 3 + [(0, depth - channels)]).reshape(40, -1)
    found = run(kernel, [x, rows])[0].reshape(-1, 3, prod(places), 40).sum(0)  # of parts, or of one
    around = np.pad(x, [(0, 0), (low, 9), (low, 9), (0, 0)])
    wanted = np.zeros((3, *places, 40), np.float32)
    for ky, kx in np.ndindex(3, 3):
        part = around[:, ky : ky + stride * places[0] : stride, kx : kx + stride * places[1] : stride]
        wanted += part @ f[:, ky, kx].T
    np.testing.assert_array_equal(found, wanted.reshape(3, -1, 40))


LINEAR = """
func.func @main(%a: tensor<{m}x{k}xbf16>, %b: tensor<{n}x{k}xbf16>) -> tensor<{m}x{n}xf32> {{
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<{m}x{n}xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32>
  %c = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
    affine_map<(m, n, k) -> (m, n)>] ins(%a, %b : tensor<{m}x{k}xbf16>, tensor<{n}x{k}xbf16>)
    outs(%f : tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32>
  return %c : tensor<{m}x{n}xf32>
}}
"""
FORMS = {  # what choose is asked for, sizes, CTAs
    "two sets": ({"widths": (256,)}, (300, 520, 200), 3),
    "sets of other widths": ({"widths": (192,)}, (130, 200, 200), 2),
    "a cluster": ({"widths": (64,), "clusters": (2,), "most_split": 1}, (100, 200, 520), 4),
    "few rows": ({"widths": (64,), "clusters": (4,), "most_split": 1}, (40, 128, 1030), 4),
    "three warpgroups": ({"widths": (128,), "most_split": 1}, (400, 200, 520), 2),
}


@pytest.fixture(params=FORMS, ids=str)
def formed(request, monkeypatch):
    """A module with a kernel of one of the forms, proven; its arguments, what it should give, and CTAs."""
    asked, (m, n, k), ctas = FORMS[request.param]
    every = priced_product.choose.__wrapped__
    if request.param == "three warpgroups":
        monkeypatch.setattr(product_engines.Warpgroups, "copies", (3,))
    monkeypatch.setattr(priced_product, "choose", lambda *args, **given: every(*args, **given | asked))
    module = mlir.parse(LINEAR.format(m=m, n=n, k=-(-k // 8) * 8), mlir.context())
    pipeline.run(module, [pipeline.make(name, "", "sm_90a") for name in ("schedule-products", "verify-dataflow")])
    rng = np.random.default_rng(0)
    left, right = (np.float32(rng.integers(-8, 8, (size, -(-k // 8) * 8))) for size in (m, n))
    return module, [left, right], left @ right.T, ctas


def test_forms_in_the_interpreter(formed):
    """More tiles than CTAs, in any order of agents and of what they began."""
    module, arguments, wanted, ctas = formed
    (kernel,) = dialect.kernels(module)
    for seed in range(2):
        (found,) = run(kernel, arguments, ctas=ctas, seed=seed)
        np.testing.assert_array_equal(found, wanted)


def refused(module):
    """What the proof says of a module that it refuses."""
    with mlir.collect_errors(module.context) as errors, pytest.raises(ir.MLIRError):
        pipeline.run(module, [pipeline.make("verify-dataflow", "", "sm_90a")])
    return " ".join(errors)


def test_forms_without_a_release_are_refused(formed):
    module, *_ = formed
    (kernel,) = dialect.kernels(module)
    mlir.walk(kernel, "kitsune.release")[0].erase()
    assert "slot of ring" in refused(module) or "open slots of ring" in refused(module)


@pytest.mark.parametrize("formed", ["a cluster", "few rows"], indirect=True)
def test_ctas_that_do_not_all_meet_are_refused(formed):
    """Where a CTA comes together with others as often as its own number says."""
    module, *_ = formed
    (kernel,) = dialect.kernels(module)
    for meeting in mlir.walk(kernel, "kitsune.meet"):
        with meeting.location, ir.InsertionPoint(meeting):
            rank = clusters.RankOp(ir.IndexType.get()).results[0]
            zero, one = (arith.ConstantOp.create_index(number).result for number in (0, 1))
            loop = scf.ForOp(zero, rank, one)
            with ir.InsertionPoint(loop.body):
                clusters.MeetOp(meeting.operands[0], meeting.results[0].type)
                scf.yield_([])
        assert "meets other CTAs of the cluster as often as the CTA's number says" in refused(module)


def test_numbers_are_rounded_to_tf32_as_threads_and_as_copies_do():
    """The larger of two that are as near, or the even one; infinities stay."""
    x = np.array([1 + 2**-11, 1 + 3 * 2**-11, 1 + 2**-12, -np.inf], np.float32)
    up, even = (rounded_to_tf32(x, ties_up) for ties_up in (True, False))
    np.testing.assert_array_equal(up, np.array([1 + 2**-10, 1 + 2**-9, 1, -np.inf], np.float32))
    np.testing.assert_array_equal(even, np.array([1, 1 + 2**-9, 1, -np.inf], np.float32))


@pytest.mark.usefixtures("unassembled")
def test_functions_in_f64_are_not_computed_on_a_products_tiles():
    """Of digamma a kernel had 900 KB of code, and took minutes to assemble."""
    model, x = torch.nn.Sequential(torch.nn.Linear(128, 128), Function(torch.digamma)), torch.randn(128, 128)
    compiled = kitsune_mlir.compile(model, (x,), target="sm_90a")
    assert any(launch["computes"] == "elementwise" for launch in compiled.plan["launches"])


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("is_open", [False, True])
def test_pieces_of_a_slice_that_alone_is_read(is_open):
    """The first of an image's tokens is classified: its numbers are made pieces, those of no other token."""
    torch.manual_seed(0)
    layers = torch.nn.Linear(192, 192), torch.nn.ReLU(), torch.nn.LayerNorm(192)
    model = torch.nn.Sequential(*layers, Function(lambda x: x[:, 0]), torch.nn.Linear(192, 1000)).eval()
    x = torch.randn(64, 37, 192)
    shapes = ({0: torch.export.Dim("images", min=2)},) if is_open else None
    compiled = kitsune_mlir.compile(model, (x,), target="sm_90a", dynamic_shapes=shapes, matmul_precision="highest")
    module = compiled.module("sm_90a:schedule-products")
    pieces = [op.results[0] for op in mlir.walk(module, "linalg.generic") if len(op.results) == 3]
    made = [list(ir.RankedTensorType(value.type).shape) for value in pieces if not is_weight(value)]
    assert made[-1] == [ir.ShapedType.get_dynamic_size() if is_open else 64, 1, 192]
