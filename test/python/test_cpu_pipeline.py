# ruff: noqa: E501  (MLIR text)
"""Placed pipelines on the CPU: every schedule computes what numpy does, in any number of rows."""

import threading

import numpy as np
import pytest
from cpu_case import build, error, from_bf16, runner, to_bf16

from kitsune_mlir.errors import UserError

RANDOM = np.random.default_rng(1)
SCHEDULES = [{}, {"deterministic": True}, {"threads": 2}, {"threads": 5}]


def network(rows=None, tile=8, replicas=(1, 2, 3, 1), roles=(0, 1, 2, 3), depth=2, dtype="f32"):
    """lift: h = x w^T + 1; square: s = h * h and the sum of s over rows; join: y = s v + h (a skip); total: sum / 2."""
    whole = "?" if rows is None else rows
    ring = f"!kitsune.ring<tensor<{tile}x40x{dtype}>, {depth} : i64>"
    sums = "!kitsune.ring<tensor<40xf32>, 1 : i64>"
    t40, wx, wy = f"tensor<{tile}x40x{dtype}>", f"tensor<{whole}x12x{dtype}>", f"tensor<{whole}x40x{dtype}>"
    place = [f"role = {role} : i64, replicas = {count} : i64" for role, count in zip(roles, replicas, strict=True)]
    widen = "%wide = arith.extf %in : bf16 to f32" if dtype == "bf16" else "%wide = arith.mulf %in, %one : f32"
    narrow = "%n = arith.truncf %p : f32 to bf16" if dtype == "bf16" else "%n = arith.addf %p, %zero : f32"
    maps = "#map2 = affine_map<(d0, d1) -> (d0, d1)>\n#row = affine_map<(d0, d1) -> (d1)>\n"
    loops = 'iterator_types = ["parallel", "parallel"]'
    return f"""
    {maps}
    func.func @main(%x: {wx}, %w: tensor<40x12x{dtype}>, %v: tensor<40x40x{dtype}>) -> ({wy}, tensor<40xf32>) {{
      %zero = arith.constant 0.0 : f32
      %one = arith.constant 1.0 : f32
      %p = "kitsune.pipeline"() ({{
        %q0 = "kitsune.queue"() {{sym_name = "lifted", transport = "l2"}} : () -> {ring}
        %q1 = "kitsune.queue"() {{sym_name = "squared", transport = "l2"}} : () -> {ring}
        %q2 = "kitsune.queue"() {{sym_name = "sums", transport = "l2"}} : () -> {sums}
        "kitsune.stage"() ({{
          %t = "kitsune.load"(%x) : ({wx}) -> tensor<{tile}x12x{dtype}>
          %e = tensor.empty() : tensor<{tile}x40xf32>
          %f = linalg.fill ins(%zero : f32) outs(%e : tensor<{tile}x40xf32>) -> tensor<{tile}x40xf32>
          %m = linalg.matmul indexing_maps = [affine_map<(m,n,k)->(m,k)>, affine_map<(m,n,k)->(n,k)>, affine_map<(m,n,k)->(m,n)>]
              ins(%t, %w : tensor<{tile}x12x{dtype}>, tensor<40x12x{dtype}>) outs(%f : tensor<{tile}x40xf32>) -> tensor<{tile}x40xf32>
          %o = tensor.empty() : {t40}
          %h = linalg.generic {{indexing_maps = [#map2, #map2], {loops}}} ins(%m : tensor<{tile}x40xf32>) outs(%o : {t40}) {{
          ^bb0(%in: f32, %out: {dtype}):
            %p = arith.addf %in, %one : f32
            {narrow}
            linalg.yield %n : {dtype}
          }} -> {t40}
          "kitsune.put"(%q0, %h) : ({ring}, {t40}) -> ()
        }}) {{kind = "tensor", sym_name = "lift", {place[0]}}} : () -> ()
        "kitsune.stage"() ({{
          %h = "kitsune.get"(%q0) : ({ring}) -> {t40}
          %e = tensor.empty() : {t40}
          %s = linalg.mul ins(%h, %h : {t40}, {t40}) outs(%e : {t40}) -> {t40}
          %e2 = tensor.empty() : tensor<40xf32>
          %f2 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<40xf32>) -> tensor<40xf32>
          %sum = linalg.generic {{indexing_maps = [#map2, #row], iterator_types = ["reduction", "parallel"]}}
              ins(%s : {t40}) outs(%f2 : tensor<40xf32>) {{
          ^bb0(%in: {dtype}, %out: f32):
            {widen}
            %a = arith.addf %wide, %out : f32
            linalg.yield %a : f32
          }} -> tensor<40xf32>
          "kitsune.put"(%q1, %s) : ({ring}, {t40}) -> ()
          "kitsune.accumulate"(%q2, %sum) : ({sums}, tensor<40xf32>) -> ()
        }}) {{kind = "simt", sym_name = "square", {place[1]}}} : () -> ()
        "kitsune.stage"() ({{
          %s = "kitsune.get"(%q1) : ({ring}) -> {t40}
          %h = "kitsune.get"(%q0) : ({ring}) -> {t40}
          %e = tensor.empty() : tensor<{tile}x40xf32>
          %f = linalg.fill ins(%zero : f32) outs(%e : tensor<{tile}x40xf32>) -> tensor<{tile}x40xf32>
          %m = linalg.matmul ins(%s, %v : {t40}, tensor<40x40x{dtype}>) outs(%f : tensor<{tile}x40xf32>) -> tensor<{tile}x40xf32>
          %o = tensor.empty() : {t40}
          %y = linalg.generic {{indexing_maps = [#map2, #map2, #map2], {loops}}}
              ins(%m, %h : tensor<{tile}x40xf32>, {t40}) outs(%o : {t40}) {{
          ^bb0(%mm: f32, %in: {dtype}, %out: {dtype}):
            {widen}
            %p = arith.addf %mm, %wide : f32
            {narrow}
            linalg.yield %n : {dtype}
          }} -> {t40}
          "kitsune.store"(%y) {{index = 0 : i64}} : ({t40}) -> ()
        }}) {{kind = "tensor", sym_name = "join", {place[2]}}} : () -> ()
        "kitsune.stage"() ({{
          %s = "kitsune.reduce"(%q2) : ({sums}) -> tensor<40xf32>
          %e = tensor.empty() : tensor<40xf32>
          %h = linalg.generic {{indexing_maps = [affine_map<(i)->(i)>, affine_map<(i)->(i)>], iterator_types = ["parallel"]}}
              ins(%s : tensor<40xf32>) outs(%e : tensor<40xf32>) {{
          ^bb0(%in: f32, %out: f32):
            %half = arith.constant 0.5 : f32
            %m = arith.mulf %in, %half : f32
            linalg.yield %m : f32
          }} -> tensor<40xf32>
          "kitsune.store"(%h) {{index = 1 : i64}} : (tensor<40xf32>) -> ()
        }}) {{kind = "simt", sym_name = "total", {place[3]}}} : () -> ()
      }}) {{sym_name = "net", tile_rows = {tile} : i64, target = "cpu"}} : () -> !kitsune.outputs
      %y = "kitsune.result"(%p) {{index = 0 : i64}} : (!kitsune.outputs) -> {wy}
      %s = "kitsune.result"(%p) {{index = 1 : i64}} : (!kitsune.outputs) -> tensor<40xf32>
      return %y, %s : {wy}, tensor<40xf32>
    }}"""


def reference(x, w, v):
    x, w, v = (array.astype("f8") for array in (x, w, v))
    h = x @ w.T + 1
    return h * h @ v + h, (h * h).sum(0) / 2


def numbers(*shape):
    return (RANDOM.standard_normal(shape) / 4).astype("f4")


@pytest.fixture(scope="module")
def open_rows():
    return build(network(), "convert-kitsune-to-cpu")


@pytest.mark.parametrize("rows", [0, 1, 7, 8, 9, 64, 301])
@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_any_rows_under_any_schedule(open_rows, rows, schedule):
    x, w, v = numbers(rows, 12), numbers(40, 12), numbers(40, 40)
    kept = [array.copy() for array in (x, w, v)]
    call = runner(open_rows, **schedule)
    for _ in range(3):  # the queues are as good as new after a run
        y, sums = call.run([x, w, v])
        wanted_y, wanted_sums = reference(x, w, v)
        assert y.shape == (rows, 40) and error(y, wanted_y) < 1e-6
        assert error(sums, wanted_sums) < 1e-6
    assert all((a == b).all() for a, b in zip((x, w, v), kept, strict=True))


@pytest.mark.parametrize(
    "roles, replicas", [((0, 0, 0, 1), (3, 3, 3, 1)), ((0, 1, 0, 2), (2, 3, 2, 1)), ((0, 1, 1, 2), (3, 2, 2, 1))]
)
@pytest.mark.parametrize("depth", [1, 3])
def test_roles_and_replicas(roles, replicas, depth):
    section = build(network(rows=83, roles=roles, replicas=replicas, depth=depth), "convert-kitsune-to-cpu")
    x, w, v = numbers(83, 12), numbers(40, 12), numbers(40, 40)
    for schedule in SCHEDULES:
        y, sums = runner(section, **schedule).run([x, w, v])
        wanted_y, wanted_sums = reference(x, w, v)
        assert error(y, wanted_y) < 1e-6 and error(sums, wanted_sums) < 1e-6


def test_bf16():
    section = build(network(rows=37, dtype="bf16"), "convert-kitsune-to-cpu")
    x, w, v = (to_bf16(array) for array in (numbers(37, 12), numbers(40, 12), numbers(40, 40)))
    for schedule in SCHEDULES:
        y, sums = runner(section, **schedule).run([x, w, v])
        wanted_y, wanted_sums = reference(*(from_bf16(array) for array in (x, w, v)))
        assert error(from_bf16(y), wanted_y) < 1e-2 and error(sums, wanted_sums) < 1e-2


def test_few_rows_are_not_worth_packing_for():
    section = build(network(rows=5), "convert-kitsune-to-cpu")
    x, w, v = numbers(5, 12), numbers(40, 12), numbers(40, 40)
    y, sums = runner(section).run([x, w, v])
    wanted_y, wanted_sums = reference(x, w, v)
    assert error(y, wanted_y) < 1e-6 and error(sums, wanted_sums) < 1e-6


def test_deterministic_runs_are_bit_equal(open_rows):
    inputs = [numbers(301, 12), numbers(40, 12), numbers(40, 40)]
    first = runner(open_rows, deterministic=True).run(inputs)
    second = runner(open_rows, deterministic=True).run(inputs)
    threaded = runner(open_rows).run(inputs)
    assert all((a == b).all() for a, b in zip(first, second, strict=True))
    assert (first[0] == threaded[0]).all(), "rows do not depend on the schedule"


def test_weights_are_packed_once_and_not_handed_to_stages(open_rows):
    (plan,) = open_rows.manifest["pipelines"]
    residents = [operand for stage in plan["stages"] for operand in stage["operands"] if operand[0] == "resident"]
    assert len(residents) == 2 and plan["pointers"] == 5  # x, two packed weights; y, sums


def test_streams_of_different_lengths_are_refused():
    kind = "tensor<?x4xf32>"
    source = f"""
    func.func @main(%x: {kind}, %y: {kind}) -> {kind} {{
      %p = "kitsune.pipeline"() ({{
        "kitsune.stage"() ({{
          %a = "kitsune.load"(%x) : ({kind}) -> tensor<8x4xf32>
          %b = "kitsune.load"(%y) : ({kind}) -> tensor<8x4xf32>
          %e = tensor.empty() : tensor<8x4xf32>
          %s = linalg.add ins(%a, %b : tensor<8x4xf32>, tensor<8x4xf32>) outs(%e : tensor<8x4xf32>) -> tensor<8x4xf32>
          "kitsune.store"(%s) {{index = 0 : i64}} : (tensor<8x4xf32>) -> ()
        }}) {{kind = "simt", sym_name = "add", role = 0 : i64, replicas = 2 : i64}} : () -> ()
      }}) {{sym_name = "sum", tile_rows = 8 : i64, target = "cpu"}} : () -> !kitsune.outputs
      %out = "kitsune.result"(%p) {{index = 0 : i64}} : (!kitsune.outputs) -> {kind}
      return %out : {kind}
    }}"""
    call = runner(build(source, "convert-kitsune-to-cpu"))
    x, y = numbers(21, 4), numbers(21, 4)
    with pytest.raises(UserError, match="differ"):
        call.run([x, y[:20]])
    assert (call.run([x, y])[0] == x + y).all()


def test_threads_below_one_are_refused(open_rows):
    with pytest.raises(UserError, match="threads must be at least 1"):
        runner(open_rows, threads=0)


def test_the_missing_pass_is_named():
    placed = network(rows=8)
    with pytest.raises(UserError, match="run place-stages"):
        build(placed.replace("tile_rows = 8 : i64, ", ""), "convert-kitsune-to-cpu")


def test_calls_from_several_threads(open_rows):
    call, w, v = runner(open_rows), numbers(40, 12), numbers(40, 40)
    errors = []

    def work(rows):
        for _ in range(5):
            x = numbers(rows, 12)
            errors.append(error(call.run([x, w, v])[0], reference(x, w, v)[0]))

    workers = [threading.Thread(target=work, args=(rows,)) for rows in (33, 100)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(errors) == 10 and max(errors) < 1e-6
