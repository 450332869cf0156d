"""Kernels of schedules in which one instruction is broken, all instructions by turns: the simulator finds each."""

import re
from collections import Counter

import pytest
import torch
from functions import Function
from kernel_mutants import mutants
from schedules import with_slots
from test_gpu_models import check, interface_of
from torch.nn import functional as F

from kitsune_mlir import mlir
from kitsune_mlir.codegen import gpu
from kitsune_mlir.dialects import schedule as dialect
from kitsune_mlir.frontend import import_model
from kitsune_mlir.passes import pipeline, schedule_products
from kitsune_mlir.passes.priced_product import PricedProduct
from kitsune_mlir.planning import attention_tiles
from kitsune_mlir.planning import target as targets
from kitsune_mlir.precision import give
from kitsune_mlir.runtime.gpu import GpuRunner
from kitsune_mlir.tools.gpusim import KernelFault
from kitsune_mlir.tools.gpusim.device import SimulatedDevice

SCHEDULE = ["prepare-linalg", "schedule-attention", "schedule-products", "schedule-rows"]
CHAINS = ["prepare-linalg", "partition-dataflow", "design-pipeline", "place-stages", "schedule-chains"]
LOWER = ["convert-kitsune-to-gpu", "convert-linalg-to-gpu"]
CHAINED = {"kitsune.role": "spatial", "kitsune.fill": "chained"}  # shapes, by what the kernel must have
BF16 = torch.bfloat16
AS_GOOD = {"no wait on an mbarrier": 2, "no fence before products": 1}
OF_ROLES = AS_GOOD | {
    "no fence before products": 3,
    "arrivals in place of": 4,
    "no arrival": 2,
    "an arrival twice": 2,
    "a wait for all products but": 1,
    "no barrier of the CTA": 1,
    "no fence between proxies": 1,
}
SHARED_KB = {  # so little that slots are filled again
    "kitsune.role": 112,
    "kitsune.fill": 128,
    "kitsune.split": 120,
    "left_whole": 100,
}
# Where CTAs have nothing to do with each other.
SMS = {"pairs = 6": 1, "left_whole": 1, "kitsune.split": 1, 'sym_name = "values"': 1}
OF_SUMS = {
    "no wait on an mbarrier": 2,
    "a parity that is not flipped": 2,
    "no fence before products": 3,
    "a wait for all products but": 1,
    "no fence between proxies": 2,
}
OF_PIECES = {"no wait on an mbarrier": 5, "no fence before products": 5}
OF_WORDS = {"no fence before products": 1}
OF_MADE = OF_PIECES | {
    "no wait on an mbarrier": 12,
    "a parity that is not flipped": 4,
    "no fence between proxies": 8,
}
OF_TURNED = OF_WORDS | {"no wait on an mbarrier": 4, "no fence between proxies": 6}
OF_ATTENTION = AS_GOOD | {"no wait on an mbarrier": 3, "a wait for all products but": 1}
KERNELS = {  # a function, shapes, a type, what the schedule must have, how many mutants are as good, by what they lack
    "product": (lambda x, y: torch.relu(x @ y), ((150, 320), (320, 128)), BF16, 'engine = "tma", index', AS_GOOD),
    "batched, split": (torch.bmm, ((3, 60, 1344), (3, 1344, 40)), BF16, "tile = array<i64: 1, 1, 64, ", AS_GOOD),
    "with a row group": (lambda x, y: (x @ y).softmax(-1), ((250, 320), (320, 64)), BF16, "reduction", AS_GOOD),
    "f32 in pieces": (torch.mm, ((100, 256), (256, 32)), torch.float32, "pairs = 6", OF_PIECES),
    "f32 in tf32": (torch.mm, ((200, 288), (288, 130)), torch.float32, "rounded", OF_WORDS),
    "f32 turned there": (lambda x, y: x.t() @ y, ((520, 60), (520, 72)), torch.float32, "left_whole", OF_TURNED),
    "f32 in pieces made there": (torch.bmm, ((2, 60, 128), (2, 128, 40)), torch.float32, "kitsune.split", OF_MADE),
    "rows of several warps": (lambda x: F.layer_norm(x, x.shape[-1:]), ((41, 5000),), BF16, "lanes = 128", {}),
    "roles": (
        lambda x, w, v: F.linear(torch.relu(F.linear(x, w)), v),
        ((700, 64), (192, 64), (64, 192)),
        BF16,
        "kitsune.role",
        OF_ROLES,
    ),
    "sums": (
        lambda x, y, w: (torch.relu(y) @ w, x.t() @ torch.relu(y)),
        ((260, 128), (260, 128), (128, 128)),
        BF16,
        "kitsune.fill",
        OF_SUMS,
    ),
    "attention": (
        F.scaled_dot_product_attention,
        ((1, 4, 70, 40), (1, 4, 140, 40), (1, 4, 140, 40)),
        BF16,
        'sym_name = "values"',
        OF_ATTENTION,
    ),
    "one statistic": (lambda x: x - x.amax(-1, keepdim=True), ((41, 5000),), BF16, "lanes = 128", {}),
}


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("name", KERNELS)
def test_each_broken_instruction_is_found(name, gpu_of, monkeypatch):
    """But for some that are as good: a wait for an empty slot of the second ring, for who found one empty in the first,
    of as many slots, knows that the product has ended that read both, and with an even number of turns in a loop's a
    wrong parity is no wait; and a fence before a product whose sums are in flight (PTX ISA, wgmma.fence). In roles also
    who gives vectors back, which nobody fills again; a release a product too early, of a slot that is not the next to
    be filled; and the barrier before counters are zeroed by the last CTA, whose first thread has waited for all that
    others do with them. So is the fence between proxies behind the wait for stores into a slot, for their end is one
    (PTX ISA, Async proxy); those of other CTAs, before a slot is filled and before it is copied out of, are not. In
    sums what is true of weights, which are copied once, and of a ring of as many slots as two turns fill, whose first
    slot of a turn is never its last; waits for empty slots for who has waited for one of the left operand's; a wait for
    what two releases have waited for. Where pieces are made in the kernel, those of a chunk are taken, and given back,
    all at once: of what is waited for, and of fences, the last would do. Of attention it is a wait for scores that have
    ended with the products of weights before them, and waits for empty slots of a ring at a tile's begin and end, for
    who has waited for another's. Not as good, as an H100 showed, are fences
    between threads' loads out of a slot and the copies that fill it again: the simulator asks for none there."""
    function, shapes, dtype, has, as_good = KERNELS[name]
    chains = has in CHAINED
    shared_kb = SHARED_KB.get(has, 160 if chains else 72)
    tiny_gpu = gpu_of(SMS.get(has, 2), shared_bytes=shared_kb * 1024)  # whose rings are gone round
    if has in ("kitsune.split", "left_whole"):
        monkeypatch.setattr(PricedProduct, "before_us", lambda _: 1e3)
    monkeypatch.setattr(attention_tiles, "_COLUMNS", (64,))  # so that slots of single chunks do
    monkeypatch.setattr(schedule_products, "is_faster", lambda *_: True)  # a row group is computed with its product
    torch.manual_seed(0)
    args = tuple(torch.randn(shape, dtype=dtype) for shape in shapes)
    program = import_model(Function(function), args)
    give(program.module, "high" if has in ("rounded", "left_whole") else "highest")
    steps = CHAINS if chains else SCHEDULE
    options = {"place-stages": f"shape={CHAINED.get(has)}", "partition-dataflow": "min-summed=0"}
    pipeline.run(program.module, [pipeline.make(step, options.get(step, ""), tiny_gpu) for step in steps])
    (kernel,) = dialect.kernels(program.module)
    assert has in str(kernel), kernel
    module = mlir.parse(with_slots(str(program.module), 1), mlir.context())
    pipeline.run(module, [pipeline.make(step, "", tiny_gpu) for step in LOWER])
    section = gpu.build(module, targets.load(tiny_gpu))
    wanted, decoded = Function(function)(*args), {}

    def run(seed):
        device = SimulatedDevice(module, seed, decoded)
        runner = GpuRunner(section.manifest, section.files, interface_of(program).constants(), device)
        check(program, runner, args, wanted, 2e-2)

    for seed in range(3):
        run(seed)
    broken = mutants(decoded.values())
    missed = [mutant for mutant in broken if not is_found(run, mutant, 0)]
    for seed in (1, 2):  # of a kind of which no more are missed than are as good, another order finds none either
        left = Counter(map(kind_of, missed))
        missed = [
            mutant
            for mutant in missed
            if left[kind_of(mutant)] == as_good.get(kind_of(mutant)) or not is_found(run, mutant, seed)
        ]
    found = Counter(map(kind_of, missed))
    assert found == as_good and len(missed) < len(broken), [mutant.said for mutant in missed]


def kind_of(mutant):
    """What a mutant lacks, without numbers."""
    return re.sub(r"^\d+ | \d+$", "", mutant.said)


def is_found(run, mutant, seed):
    """Whether a run, with the kernel broken, says so or gives wrong numbers."""
    try:
        with mutant:
            run(seed)
    except (KernelFault, AssertionError):
        return True
    return False
