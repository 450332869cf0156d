"""Scheduled kernels as text, for the tests of the interpreter and of the proof."""

import functools
from pathlib import Path

import numpy as np

from kitsune_mlir import mlir
from kitsune_mlir.dialects import schedule as dialect
from kitsune_mlir.passes.schedule_events import Reading
from kitsune_mlir.planning import schedule_proof, target
from kitsune_mlir.planning.schedule import Refused
from kitsune_mlir.schedule import Program, ScheduleFault

GPU = target.load("sm_90a")
ROWS, WIDTH, DEPTH = 100, 48, 64

PRODUCT = (Path(__file__).parents[1] / "passes" / "verify-dataflow" / "kernel.mlir").read_text()


@functools.cache
def context():
    return mlir.context()


@functools.lru_cache(maxsize=2)
def kernel_of(text):
    """A module and its only kernel, which may be used as long as the module is kept."""
    module = mlir.parse(text, context(), "kernel.mlir")
    (kernel,) = dialect.kernels(module)
    return module, kernel


def proof(text):
    """What the proof finds, as text."""
    module, kernel = kernel_of(text)
    try:
        return [str(fault) for fault in schedule_proof.verify(Reading(kernel).schedule(), GPU)]
    except Refused as refused:
        return [str(refused.fault)]


def operands(rows=ROWS, seed=0):
    """A, B and bias of PRODUCT, relu(A B^T + bias), and what it should give: small whole numbers, which bf16 has."""
    random = np.random.default_rng(seed)
    a, b = (random.integers(-3, 4, (n, DEPTH)).astype(np.float32) for n in (rows, WIDTH))
    bias = random.integers(-3, 4, WIDTH).astype(np.float32)
    return (a, b, bias), np.maximum(a @ b.T + bias, 0)


def faults(text, seeds=range(12), ctas=2, rows=ROWS):
    """What the interpreter finds wrong with a mutant of PRODUCT, one text for each seed that finds anything."""
    module, kernel = kernel_of(text)
    program, found = Program(kernel), []
    arguments = operands(rows)[0]
    for seed in seeds:
        try:
            program.run(arguments, ctas, seed, [(rows, WIDTH)])
        except ScheduleFault as fault:
            found.append(str(fault))
    return found


def with_slots(text, slots):
    """A module in which rings between roles have so many slots."""
    for ring in {line.split(" : () -> ")[1] for line in text.split("\n") if 'space = "l2"' in line}:
        text = text.replace(ring, f"{ring.rsplit(', ', 1)[0]}, {slots} : i64>")
    return text
