"""What schedule-chains makes, without a GPU: the proof accepts it, and the interpreter gives numpy's numbers."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kitsune_mlir import mlir
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.dialects import schedule as dialect
from kitsune_mlir.passes import pipeline
from kitsune_mlir.passes.schedule_events import Reading
from kitsune_mlir.planning import schedule_proof, target
from kitsune_mlir.schedule import run
from kitsune_mlir.schedule.numeric import rounded

GPU = target.load("sm_90a")
LAYER = """
  %e{i} = tensor.empty() : tensor<{rows}x{n}xf32>
  %f{i} = linalg.fill ins(%zero : f32) outs(%e{i} : tensor<{rows}x{n}xf32>) -> tensor<{rows}x{n}xf32>
  %p{i} = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
    affine_map<(m, n, k) -> (m, n)>] ins(%h{i}, %w{i} : tensor<{rows}x{k}xbf16>, tensor<{n}x{k}xbf16>)
    outs(%f{i} : tensor<{rows}x{n}xf32>) -> tensor<{rows}x{n}xf32>
  %o{i} = tensor.empty() : tensor<{rows}x{n}xbf16>
  %h{next} = linalg.generic {{indexing_maps = [affine_map<(r, c) -> (r, c)>, affine_map<(r, c) -> (c)>,
    affine_map<(r, c) -> (r, c)>], iterator_types = ["parallel", "parallel"]}}
    ins(%p{i}, %b{i} : tensor<{rows}x{n}xf32>, tensor<{n}xbf16>) outs(%o{i} : tensor<{rows}x{n}xbf16>) {{
  ^bb0(%a: f32, %c: bf16, %o: bf16):
    %0 = arith.extf %c : bf16 to f32
    %1 = arith.addf %a, %0 : f32
    %2 = arith.maximumf %1, %zero : f32
    %3 = arith.truncf %2 : f32 to bf16
    linalg.yield %3 : bf16
  }} -> tensor<{rows}x{n}xbf16>"""


def chain(rows, widths):
    """Layers with ReLU of these widths, as linalg; the last one's result and the one's before it are returned."""
    layers = list(zip(widths, widths[1:]))
    tensors = "".join(f", %w{i}: tensor<{n}x{k}xbf16>, %b{i}: tensor<{n}xbf16>" for i, (k, n) in enumerate(layers))
    body = "".join(LAYER.format(i=i, next=i + 1, rows=rows, n=n, k=k) for i, (k, n) in enumerate(layers))
    count, types = len(layers), f"tensor<{rows}x{widths[-1]}xbf16>"
    return f"""func.func @main(%h0: tensor<{rows}x{widths[0]}xbf16>{tensors}) -> {types} {{
  %zero = arith.constant 0.0 : f32{body}
  return %h{count} : {types}\n}}"""


def gathering(count):
    """Layers of so many rows beside those of both ends of an edge, as linalg."""
    path = Path(__file__).parents[1] / "passes" / "schedule-chains" / "gathers.mlir"
    return path.read_text().replace("40000", str(count)).replace("@edges", "@main")


def scheduled(text, tile_rows=128, place=""):
    """The module with the kernels of a model, proven."""
    module = mlir.parse(text, mlir.context())
    steps = ["partition-dataflow", "design-pipeline", "place-stages", "schedule-chains", "verify-dataflow"]
    options = {"place-stages": place or f"shape=chained tile-rows={tile_rows}"}
    pipeline.run(module, [pipeline.make(step, options.get(step, ""), "sm_90a") for step in steps])
    return module


def arguments(rows, widths, seed=0):
    """What `chain` takes, small whole numbers, and what it should give."""
    random = np.random.default_rng(seed)
    h, found = random.integers(-2, 3, (rows, widths[0])).astype(np.float32), []
    found.append(h)
    for k, n in zip(widths, widths[1:]):
        w = random.integers(-1, 2, (n, k)) * (random.random((n, k)) < 4 / k)
        b = random.integers(-2, 3, n)
        found += [w.astype(np.float32), b.astype(np.float32)]
        h = rounded(np.maximum(h @ w.T + b, 0), "bf16")
    return found, h


def check(rows, widths, seeds=(0,), tile_rows=128):
    module = scheduled(chain(rows, widths), tile_rows)
    (kernel,) = dialect.kernels(module)
    assert not list(kitsune.pipelines(module))
    given_, wanted = arguments(rows, widths)
    for seed in seeds:
        (found,) = run(kernel, given_, ctas=2, seed=seed)
        np.testing.assert_array_equal(found, wanted)
    return module, kernel


@pytest.mark.parametrize(
    "rows, widths",
    [
        (130, (256, 256, 256, 256, 8)),  # two sets of sums, a loop over unfinished tiles
        (70, (128, 128, 128, 128, 128)),  # a loop over whole tiles
        (1, (3, 100, 5)),  # rows that are no multiples of 16 bytes
        (129, (640, 144, 72)),  # a loop over chunks, sets that end within a chunk
        (128, (64, 200, 136, 24)),
        (70, (250, 250, 250, 250, 256, 256, 256, 8)),  # a loop whose columns end within a block, then one of 256
        (66, (64, 136, 600)),  # a loop over columns, the last of which are no pass's all
    ],
    ids=str,
)
def test_the_interpreter_agrees(rows, widths):
    check(rows, widths, (1, 2))


@pytest.mark.parametrize("tile_rows", [64, 128])
def test_wide_tiles_are_stowed(tile_rows):
    """A tile of 330 columns waits for the next product in shared memory; in a loop over layers its slots go round."""
    _, kernel = check(130, (64, 330, 330, 330, 24), (1,), tile_rows)
    (ring,) = [ring for ring in kernel.rings if ring.sharing == "own"]
    assert (ring.slots, list(ring.tile.shape)) == (6, [tile_rows, 64])
    assert [agent.count for agent in kernel.agents] == [1, tile_rows // 64]


WIDTHS = st.lists(st.integers(1, 256), min_size=3, max_size=5)


@settings(max_examples=12, deadline=None, derandomize=True)
@given(st.integers(1, 140), WIDTHS)
def test_chains_of_any_widths(rows, widths):
    check(rows, widths)


def test_weights_are_kept_where_there_is_room():
    """With many rows the boxes of weights are copied in front of the loop over tiles, each to a slot of its own."""
    module = scheduled(chain(60_000, (128, 128, 128, 128)))
    (kernel,) = dialect.kernels(module)
    slots = {ring.label: ring.slots for ring in kernel.rings}
    assert slots == {"vectors_bf16": 1, "tiles": 4, "weights_128": 6}
    small = str(module).replace("60000", "260")
    module = mlir.parse(small, mlir.context())
    (kernel,) = dialect.kernels(module)
    given_, wanted = arguments(260, (128, 128, 128, 128))
    for seed in (0, 1):
        (found,) = run(kernel, given_, ctas=2, seed=seed)
        np.testing.assert_array_equal(found, wanted)


def faults(text):
    module = mlir.parse(text, mlir.context())
    (kernel,) = dialect.kernels(module)
    return [str(fault) for fault in schedule_proof.verify(Reading(kernel).schedule(), GPU)]


@pytest.fixture(scope="module")
def text():
    return str(scheduled(chain(300, (256, 256, 256, 256, 8))))


def test_a_box_of_another_size_is_refused(text):
    """Where the feeding agent fills fewer rows of a slot than are multiplied."""
    assert faults(text) == []
    feed, math = text.split('sym_name = "feed"')
    cut = feed.replace("slot<tensor<8x64xbf16>>", "slot<tensor<16x64xbf16>>") + 'sym_name = "feed"' + math
    assert cut != text  # the boxes of the last layer have 8 rows
    (fault,) = faults(cut)
    assert "takes 8 rows of a slot of ring 'weights' where 'feed' fills 16" in fault


def released_early(text, release):
    """A slot is released where the product that reads it has begun: no other release has waited for that."""
    early = release[0].replace(f", {release[1]}", "").replace(", !kitsune.token", "").replace("i32: 1, 1", "i32: 1, 0")
    name = release[1].removesuffix("#1")
    product = re.search(rf'\n *{name}:2 = "kitsune.product".*', text)[0]
    return text.replace(release[0], "").replace(product, product + early)


def test_stowed_tiles_are_proven():
    """A slot that is not released, that is released before its product, or that another tile lies in still."""
    text = str(scheduled(chain(100, (64, 330, 8))))
    assert faults(text) == []
    stow, slot = re.search(r'\n *(%\d+) = "kitsune.stow".*', text).group(0, 1)
    release = re.search(rf'\n *"kitsune.release"\({slot}, (%\d+#1)\).*', text)
    (fault,) = faults(text.replace(release[0], ""))
    assert "closes a slot of ring 'stowed_0' before the one that was opened earlier" in fault
    (fault,) = faults(released_early(text, release))
    assert "closes a slot of ring 'stowed_0' without the token of the product that reads it" in fault
    (fault,) = faults(text.replace("ring<tensor<128x64xbf16>, 6 : i64>", "ring<tensor<128x64xbf16>, 5 : i64>"))
    assert "closes a cycle of waits" in fault and "the release of ring 'stowed_0' in 'math'" in fault


def test_what_ctas_send_is_proven():
    """A tile that is not sent, is not given back, or is given back while a product reads it; and rings that are
    too short for what is sent before any of it is taken."""
    text = str(scheduled(chain(300, (64, 160, 32)), place="shape=chained cluster=2"))
    assert faults(text) == []
    sends = re.findall(r'\n *"kitsune.send".*', text)
    (fault, *_) = faults(text.replace(sends[1], ""))
    assert "ring 'sent_1'" in fault
    release = re.search(r'\n *"kitsune.release"\(%\d+, (%\d+#1)\).*slot<tensor<128x64xbf16>>.*', text)
    (fault, *_) = faults(text.replace(release[0], ""))
    assert "ring 'sent_1'" in fault
    (fault,) = faults(released_early(text, release))
    assert "closes a slot of ring 'sent_1' without the token of the product that reads it" in fault
    (fault,) = faults(text.replace("ring<tensor<128x64xbf16>, 2 : i64>", "ring<tensor<128x64xbf16>, 1 : i64>"))
    assert "closes a cycle of waits" in fault and "ring 'sent_1'" in fault


def test_vectors_are_released_last(text):
    """A tile that was read from a slot may be used until the slot is released, also by what no ring is part of."""
    release = re.search(r'\n *"kitsune.release"\(%\d+\) .*slot<tensor<1x776xbf16>>\) -> \(\)', text)
    wait = re.search(r'\n *%\d+ = "kitsune.wait".*slot<tensor<1x776xbf16>>', text)
    without = text.replace(release[0], "")
    (fault,) = faults(without.replace(wait[0], wait[0] + release[0]))
    assert "uses a slot of ring 'vectors_bf16'" in fault and "that was closed" in fault
    write = re.search(r'\n *"kitsune.write".*', text)[0]
    (fault,) = faults(text.replace(write, "").replace(release[0], release[0] + _above_the_loop(text, write)))
    assert "stands behind the release of a slot of ring 'vectors_bf16' that tiles were read from" in fault


def _above_the_loop(text, write):
    """A write of something that is there behind the loop over tiles, in the place of one in it."""
    late = "\n %late = tensor.empty() : tensor<64x8xbf16>\n %zero = arith.constant 0 : index"
    return late + re.sub(r"%\w+, %\w+, %\w+", "%late, %zero, %zero", write, count=1)


def test_every_vector_is_copied(text):
    """A slot that several copies fill is not committed without one of them, nor written twice."""
    line, name = re.search(r'\n *(%\d+) = "kitsune.copy"\(.*into = 512 : i64.*', text).group(0, 1)
    (fault,) = faults(text.replace(line, line.replace("into = 512", "into = 256")))
    assert "copies twice into elements of the slot of ring 'vectors_bf16'" in fault
    commit = re.search(rf'\n *"kitsune.commit"\(.*{name}, .*', text)[0]
    shorter = commit.replace(f"{name}, ", "").replace("i32: 1, 4", "i32: 1, 3").replace("!kitsune.token, ", "", 1)
    (fault,) = faults(text.replace(line, "").replace(commit, shorter))
    assert "commits a slot of ring 'vectors_bf16' without 256 of its elements" in fault


def test_what_is_placed_as_a_chain_and_is_none_still_runs():
    """Nothing that placement does; the pipeline is declined, and its operators run one at a time."""
    module = mlir.parse(chain(300, (64, 72, 8)), mlir.context())
    steps = [("partition-dataflow", ""), ("design-pipeline", ""), ("place-stages", "shape=chained tile-rows=128")]
    pipeline.run(module, [pipeline.make(step, option, "sm_90a") for step, option in steps])
    (placed,) = kitsune.pipelines(module)
    placed.attributes["cluster"] = mlir.ir.IntegerAttr.get(mlir.ir.IntegerType.get_signless(64, module.context), 4)
    steps = "schedule-chains", "convert-kitsune-to-gpu"
    with mlir.collect_remarks() as remarks:
        pipeline.run(module, [pipeline.make(step, "", "sm_90a") for step in steps])
    assert not list(kitsune.pipelines(module)) and not list(dialect.kernels(module))
    (remark,) = remarks
    assert "runs bulk-synchronously: 72 columns are not shared evenly by a cluster of 4" in remark.message


def test_mutants_of_who_asks():
    """Rows that nobody asks for, a turn that is not given back, and one that is given on before they are asked for."""
    text = str(scheduled(gathering(40000)))
    assert not faults(text)
    asked = re.findall(r'\n *"kitsune.prefetch".*', text)
    (fault,) = faults(text.replace(asked[0], "").replace(asked[1], ""))
    assert "commits a slot of ring 'turn' into which nothing was copied" in fault
    slot = re.search(r'\n *(%\d+) = "kitsune.wait"\(.*tensor<1x0xi8>>', text)[1]
    given = re.search(rf'\n *"kitsune.release"\({slot}\).*', text)[0]
    (fault,) = faults(text.replace(given, ""))
    assert "has 0 open slots of ring 'turn' before a turn, 1 behind it" in fault
    done = re.search(r'\n *"kitsune.commit"\((%\d+)\) \{.*tensor<1x0xi8>>.*', text)[0]
    (fault,) = faults(text.replace(asked[1], "").replace(done, done + asked[1]))
    assert "uses a slot of ring 'turn'" in fault and "was closed" in fault
