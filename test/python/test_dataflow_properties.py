"""Random operator graphs: the pipelined result equals torch's, however it is designed, placed and scheduled."""

import torch
from cpu_case import runner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_graphs import graphs

from kitsune_mlir import mlir
from kitsune_mlir.codegen import cpu
from kitsune_mlir.frontend import import_model
from kitsune_mlir.passes import pipeline
from kitsune_mlir.planning import target

MACHINE = target.load("cpu")
PLACEMENTS = (
    ("", "shape=spatial tile-rows=8", {"threads": 3}),
    ("", "shape=fused tile-rows=16", {"deterministic": True}),
    ("fuse=false", "shape=spatial tile-rows=16", {"deterministic": True}),
    ("fuse=false", "shape=fused tile-rows=8", {}),
)
PAIRS = st.permutations(PLACEMENTS).map(lambda order: order[:2])
ROWS = ([1], [7], [16], [37], [2, 9], [3, 1, 5])
PATIENT = settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@PATIENT
@given(graph=graphs(), rows=st.sampled_from(ROWS), placements=PAIRS)
def test_pipelined_equals_torch(graph, rows, placements):
    model, width = graph
    check(model, torch.randn(*rows, width), None, placements)


@PATIENT
@given(
    graph=graphs(most_steps=5, most_outputs=0), rows=st.sampled_from([[1], [9], [40], [2, 9], [3, 5]]), placements=PAIRS
)
def test_open_rows(graph, rows, placements):
    model, width = graph
    check(model, torch.randn(*rows, width), ({0: torch.export.Dim("rows", min=1, max=4096)},), placements)


def check(model, x, dynamic_shapes, placements):
    model, x = model.eval(), torch.ones_like(x).uniform_(-2, 2, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        wanted = model.double()(x.double())
        model.float()
    example = x if dynamic_shapes is None else torch.ones(13, *x.shape[1:])
    program = import_model(model, (example,), dynamic_shapes=dynamic_shapes)
    pipeline.run(program.module, [pipeline.make("partition-dataflow")])
    assert mlir.walk(program.module, "kitsune.pipeline"), "a graph has a product"
    constants = [argument.value for argument in program.arguments]
    for design, place, schedule in placements:
        section = build(program.module, design, place)
        found = runner(section, constants, **schedule).run([x.numpy()])
        for result, expected in zip(found[-len(wanted) :], wanted, strict=True):
            distance = (torch.from_numpy(result).double() - expected).norm()
            assert distance <= 1e-5 * expected.norm() + 1e-6, f"{design} {place} {schedule}: off by {float(distance)}"


def build(module, design, place):
    module = mlir.clone(module)
    options = {"design-pipeline": design, "place-stages": f"target=cpu {place}"}
    passes = ("design-pipeline", "place-stages", "verify-dataflow", "convert-kitsune-to-cpu")
    pipeline.run(module, [pipeline.make(name, options.get(name, "")) for name in passes])
    return cpu.build(module, MACHINE, opt_level=0)
