"""Sums over the rows at the schedule level, without a GPU: the proof accepts them, the interpreter gives numpy's
numbers, and what is broken in them is found."""

import re

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from kitsune_mlir import mlir
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.dialects import schedule as dialect
from kitsune_mlir.errors import UserError
from kitsune_mlir.passes import pipeline
from kitsune_mlir.passes.schedule_events import Reading
from kitsune_mlir.planning import schedule_proof, target
from kitsune_mlir.schedule import run
from kitsune_mlir.schedule.numeric import rounded
from kitsune_mlir.schedule.rings import ScheduleFault

GPU = target.load("sm_90a")
PARALLEL = 'iterator_types = ["parallel", "parallel"]'
SAME = "affine_map<(i, j) -> (i, j)>"
ACROSS = "affine_map<(m, n, k) -> (k, m)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>"
ALONG = "affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> ({weight})>, affine_map<(m, n, k) -> (m, n)>"


def zeros(name, kind):
    return f"""
  %e{name} = tensor.empty() : {kind}
  %z{name} = linalg.fill ins(%zero : f32) outs(%e{name} : {kind}) -> {kind}"""


def model(rows, inputs, outputs, gated=True, turned=False, weight=None, factor="0.5"):
    """x transposed times y, or, `turned`, the other way round; `gated`, times the larger of y and y times a factor;
    with a `weight` ("k, n" or "n, k") also what is gated times that."""
    x, y = f"tensor<{rows}x{inputs}xbf16>", f"tensor<{rows}x{outputs}xbf16>"
    m, n = (outputs, inputs) if turned else (inputs, outputs)
    total, text, g = f"tensor<{m}x{n}xf32>", "", "%y"
    if gated:
        g = "%g"
        text = f"""
  %eg = tensor.empty() : {y}
  %g = linalg.generic {{indexing_maps = [{SAME}, {SAME}], {PARALLEL}}} ins(%y : {y}) outs(%eg : {y}) {{
  ^bb0(%v: bf16, %o: bf16):
    %f = arith.extf %v : bf16 to f32
    %half = arith.mulf %f, %factor : f32
    %most = arith.maximumf %f, %half : f32
    %t = arith.truncf %most : f32 to bf16
    linalg.yield %t : bf16
  }} -> {y}"""
    a, b = (f"{g}, %x", f"{y}, {x}") if turned else (f"%x, {g}", f"{x}, {y}")
    text += f"""{zeros("s", total)}
  %sum = linalg.matmul indexing_maps = [{ACROSS}] ins({a} : {b}) outs(%zs : {total}) -> {total}"""
    if weight is None:
        return f"""func.func @main(%x: {x}, %y: {y}) -> {total} {{
  %zero = arith.constant 0.0 : f32
  %factor = arith.constant {factor} : f32{text}
  return %sum : {total}\n}}"""
    w = f"tensor<{outputs}x{inputs}xbf16>" if weight == "k, n" else f"tensor<{inputs}x{outputs}xbf16>"
    text += f"""{zeros("d", f"tensor<{rows}x{inputs}xf32>")}
  %d = linalg.matmul indexing_maps = [{ALONG.format(weight=weight)}] ins({g}, %w : {y}, {w})
    outs(%zd : tensor<{rows}x{inputs}xf32>) -> tensor<{rows}x{inputs}xf32>
  %eb = tensor.empty() : {x}
  %dx = linalg.generic {{indexing_maps = [{SAME}, {SAME}], {PARALLEL}}} ins(%d : tensor<{rows}x{inputs}xf32>)
    outs(%eb : {x}) {{
  ^bb0(%v: f32, %o: bf16):
    %t = arith.truncf %v : f32 to bf16
    linalg.yield %t : bf16
  }} -> {x}"""
    return f"""func.func @main(%x: {x}, %y: {y}, %w: {w}) -> ({x}, {total}) {{
  %zero = arith.constant 0.0 : f32
  %factor = arith.constant {factor} : f32{text}
  return %dx, %sum : {x}, {total}\n}}"""


def scheduled(text, path="sm_90a"):
    """The module with the kernel of a model, proven."""
    module = mlir.parse(text, mlir.context())
    steps = ["partition-dataflow", "design-pipeline", "place-stages", "schedule-chains", "verify-dataflow"]
    options = {"partition-dataflow": "min-summed=0", "place-stages": "shape=chained"}
    pipeline.run(module, [pipeline.make(step, options.get(step, ""), path) for step in steps])
    assert not list(kitsune.pipelines(module))
    return module


def arguments(rows, inputs, outputs, gated=True, turned=False, weight=None):
    """What a model takes, small whole numbers, and what the kernel should give, its parts added up."""
    random = np.random.default_rng(rows)
    x, y = (random.integers(-2, 3, (rows, width)).astype(np.float32) for width in (inputs, outputs))
    g = np.maximum(y, 0.5 * y) if gated else y
    wanted = [g.T @ x if turned else x.T @ g]
    if weight is None:
        return [x, y], wanted
    w = random.integers(-1, 2, (outputs, inputs)).astype(np.float32)
    return [x, y, w if weight == "k, n" else w.T], [*wanted, rounded(g @ w, "bf16")]


def found(kernel, given_, ctas, seed):
    """What a kernel gives, its parts added up."""
    parts, *others = run(kernel, given_, ctas=ctas, seed=seed)
    return [parts.sum(axis=0), *others]


FORMS = [
    (200, 64, 64, False, False, None),
    (1, 200, 104, False, False, None),
    (300, 320, 72, False, True, None),
    (130, 72, 320, True, False, None),
    (200, 256, 256, True, False, "k, n"),
    (65, 128, 72, True, True, "n, k"),
]


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_the_interpreter_agrees(form, gpu_of):
    """However few CTAs there are, and slots."""
    text = str(scheduled(model(*form), gpu_of(6)))
    for few in (False, True):
        module = mlir.parse(with_fewer_slots(text) if few else text, mlir.context())
        (kernel,) = dialect.kernels(module)
        assert not schedule_proof.verify(Reading(kernel).schedule(), GPU)
        given_, wanted = arguments(*form)
        for seed in (1, 2):
            for one, other in zip(found(kernel, given_, 5 if few else 2, seed), wanted, strict=True):
                np.testing.assert_array_equal(one, other)


def with_fewer_slots(text):
    """A module whose rings have two slots, as few as there may be, but those that are open together: weights."""
    rings = {line.split(" : () -> ")[1] for line in text.split("\n") if "alloc_ring" in line and "weights" not in line}
    for line in [line for line in text.split("\n") if "weights" in line]:
        rings -= {line.split(" : () -> ")[1]}
    for ring in rings:
        text = text.replace(ring, re.sub(r", \d+ : i64>", ", 2 : i64>", ring))
    return text


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_sum_is_proven_and_right(data, gpu_of):
    """Whatever placement takes."""
    draw, widths = data.draw, st.integers(1, 40).map(lambda eights: 8 * eights)
    gated, turned = draw(st.booleans()), draw(st.booleans())
    form = draw(st.integers(1, 300)), draw(widths), draw(widths), gated, turned
    form = (*form, draw(st.sampled_from([None, "k, n", "n, k"])) if gated else None)
    try:
        module = scheduled(model(*form), gpu_of(draw(st.integers(1, 8))))
    except UserError as error:
        assume("cannot be chained" not in str(error))
        raise
    (kernel,) = dialect.kernels(module)
    given_, wanted = arguments(*form)
    for one, other in zip(found(kernel, given_, draw(st.integers(1, 4)), draw(st.integers(0, 9))), wanted, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("factor, said", [("0x7F800000", "is not finite where all that it is computed from is zero")])
def test_rows_beyond_the_last_do_no_harm(factor, said):
    """Infinity times a zero that stands for a row which is not there is no number."""
    with pytest.raises(UserError, match=f"cannot be chained: .*{said}"):
        scheduled(model(100, 64, 64, factor=factor))


MUTANTS = {  # the first line that is changed, how, and what the proof says
    "a chunk is not filled": (
        r'"kitsune\.fill"',
        lambda lines: lines[1:],
        "commits a slot of ring 'made' into which nothing was copied",
    ),
    "a chunk is filled twice": (
        r'"kitsune\.fill"',
        lambda lines: [lines[0], *lines],
        "may write twice into the slot of ring 'made'",
    ),
    "a chunk is read behind its release": (
        r'"kitsune\.read"',
        lambda lines: [lines[1], lines[0], *lines[2:]],
        "uses a slot of ring 'load0', opened at .*, that was closed",
    ),
    "a chunk is given back while it is multiplied": (
        r'"kitsune\.release"\(%\d+, %\d+#1, %\d+#1\)',
        lambda lines: [without_tokens(lines[0]), *lines[1:]],
        "closes a slot of ring 'made' without the token of the product that reads it",
    ),
}


def without_tokens(line):
    """The release of a slot that waits for nothing."""
    slot, kind = re.search(r"%\d+", line)[0], line.split(" : (")[1].split(",")[0]
    return f'"kitsune.release"({slot}) {{operandSegmentSizes = array<i32: 1, 0>}} : ({kind}) -> ()'


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_schedule_is_refused(name):
    """By the proof; and the interpreter faults at it, or gives other numbers."""
    pattern, change, said = MUTANTS[name]
    form = FORMS[4]
    lines = str(scheduled(model(*form))).split("\n")
    at = next(i for i, line in enumerate(lines) if re.search(pattern, line))
    module = mlir.parse("\n".join([*lines[:at], *change(lines[at:])]), mlir.context())
    (kernel,) = dialect.kernels(module)
    faults = schedule_proof.verify(Reading(kernel).schedule(), GPU)
    assert re.search(said, "; ".join(map(str, faults))), faults
    given_, wanted = arguments(*form)
    with pytest.raises((ScheduleFault, AssertionError)):
        for seed in range(4):
            for one, other in zip(found(kernel, given_, 2, seed), wanted, strict=True):
                np.testing.assert_array_equal(one, other)
