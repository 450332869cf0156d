"""Scheduled kernels as text, for the tests of the interpreter and of the proof."""

import functools

import numpy as np

from kitsune_mlir import mlir
from kitsune_mlir.dialects import schedule as dialect
from kitsune_mlir.passes.schedule_events import Reading
from kitsune_mlir.planning import schedule_proof, target
from kitsune_mlir.planning.schedule import Refused
from kitsune_mlir.schedule import ScheduleFault, run

GPU = target.load("sm_90a")
ROWS, WIDTH, DEPTH = 100, 48, 64

# relu(A B^T + bias): two warpgroups with the rows of a tile in halves; one slot of each ring goes round the loop over k.
PRODUCT = """!x = !kitsune.ring<tensor<32x16xbf16>, 3 : i64>
!y = !kitsune.ring<tensor<32x16xbf16>, 2 : i64>
!s = !kitsune.slot<tensor<32x16xbf16>>
!a = !kitsune.acc<tensor<16x32xf32>>
!t = !kitsune.token
func.func @f(%A: tensor<?x64xbf16>, %B: tensor<48x64xbf16>, %bias: tensor<48xf32>) -> tensor<?x48xbf16> {
  %c0 = arith.constant 0 : index
  %c16 = arith.constant 16 : index
  %c32 = arith.constant 32 : index
  %c48 = arith.constant 48 : index
  %c64 = arith.constant 64 : index
  %m = tensor.dim %A, %c0 : tensor<?x64xbf16>
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m, %c48) {tile = array<i64: 32, 32>} : (index, index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "split", space = "smem", sym_name = "left"} : () -> !x
    %y = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "right"} : () -> !y
    "kitsune.agent"() ({
    ^bb0(%c: index):
      scf.for %t = %lo to %hi step %st {
        %i, %j = affine.delinearize_index %t into (2) : index, index
        %row = arith.muli %i, %c32 : index
        %col = arith.muli %j, %c32 : index
        scf.for %k = %c0 to %c64 step %c16 {
          %s = "kitsune.acquire"(%x) : (!x) -> !s
          %d = "kitsune.copy"(%s, %A, %row, %k) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, tensor<?x64xbf16>, index, index) -> !t
          "kitsune.commit"(%s, %d) : (!s, !t) -> ()
          %s1 = "kitsune.acquire"(%y) : (!y) -> !s
          %d1 = "kitsune.copy"(%s1, %B, %col, %k) {dims = array<i64: 0, 1>, engine = "tma"} : (!s, tensor<48x64xbf16>, index, index) -> !t
          "kitsune.commit"(%s1, %d1) : (!s, !t) -> ()
        }
      }
    }) {copies = 1, registers = 40, sym_name = "load", warps = 4} : () -> ()
    "kitsune.agent"() ({
    ^bb0(%c: index):
      scf.for %t = %lo to %hi step %st {
        %i, %j = affine.delinearize_index %t into (2) : index, index
        %top = arith.muli %i, %c32 : index
        %half = arith.muli %c, %c16 : index
        %row = arith.addi %top, %half : index
        %col = arith.muli %j, %c32 : index
        %z = "kitsune.sums"() : () -> !a
        %a0 = "kitsune.wait"(%x) : (!x) -> !s
        %b0 = "kitsune.wait"(%y) : (!y) -> !s
        %u0, %t0 = "kitsune.product"(%z, %a0, %b0) {engine = "wgmma"} : (!a, !s, !s) -> (!a, !t)
        %r:4 = scf.for %k = %c16 to %c64 step %c16 iter_args(%u = %u0, %pa = %a0, %pb = %b0, %q = %t0) -> (!a, !s, !s, !t) {
          %a = "kitsune.wait"(%x) : (!x) -> !s
          %b = "kitsune.wait"(%y) : (!y) -> !s
          %v, %e = "kitsune.product"(%u, %a, %b) {engine = "wgmma"} : (!a, !s, !s) -> (!a, !t)
          "kitsune.release"(%pa, %q) : (!s, !t) -> ()
          "kitsune.release"(%pb, %q) : (!s, !t) -> ()
          scf.yield %v, %a, %b, %e : !a, !s, !s, !t
        }
        %h = "kitsune.settle"(%r#0) : (!a) -> tensor<16x32xf32>
        "kitsune.release"(%r#1, %r#3) : (!s, !t) -> ()
        "kitsune.release"(%r#2, %r#3) : (!s, !t) -> ()
        %bias_t = "kitsune.read"(%bias, %col) {dims = array<i64: 0>} : (tensor<48xf32>, index) -> tensor<32xf32>
        %e = tensor.empty() : tensor<16x32xbf16>
        %o = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
            ins(%h, %bias_t : tensor<16x32xf32>, tensor<32xf32>) outs(%e : tensor<16x32xbf16>) {
        ^bb0(%sum: f32, %b: f32, %out: bf16):
          %zero = arith.constant 0.0 : f32
          %n = arith.addf %sum, %b : f32
          %w = arith.maximumf %n, %zero : f32
          %g = arith.truncf %w : f32 to bf16
          linalg.yield %g : bf16
        } -> tensor<16x32xbf16>
        "kitsune.write"(%o, %row, %col) {dims = array<i64: 0, 1>, index = 0 : i64} : (tensor<16x32xbf16>, index, index) -> ()
      }
    }) {copies = 2, registers = 232, sym_name = "math", warps = 4} : () -> ()
  }) {sym_name = "product", target = "sm_90a"} : () -> !kitsune.outputs
  %o = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<?x48xbf16>
  return %o : tensor<?x48xbf16>
}
"""


@functools.cache
def context():
    return mlir.context()


def kernel_of(text):
    """The only kernel of a module; the module lives as long as it does."""
    module = mlir.parse(text, context(), "kernel.mlir")
    (kernel,) = dialect.kernels(module)
    return module, kernel


def proof(text):
    """What the proof finds, as text."""
    _, kernel = kernel_of(text)
    try:
        return [str(fault) for fault in schedule_proof.verify(Reading(kernel).schedule(), GPU)]
    except Refused as refused:
        return [str(refused.fault)]


def operands(rows=ROWS, seed=0):
    """A, B and bias of PRODUCT, and what it should give. A and B hold small whole numbers: bf16 has those exactly."""
    random = np.random.default_rng(seed)
    a, b = (random.integers(-3, 4, (n, DEPTH)).astype(np.float32) for n in (rows, WIDTH))
    bias = random.integers(-3, 4, WIDTH).astype(np.float32)
    return (a, b, bias), np.maximum(a @ b.T + bias, 0)


def faults(text, seeds=range(12), ctas=2, rows=ROWS):
    """What the interpreter finds wrong with a mutant of PRODUCT, one text for each seed that finds anything."""
    _, kernel = kernel_of(text)
    found = []
    arguments, _ = operands(rows)
    for seed in seeds:
        try:
            run(kernel, arguments, ctas, seed, [(rows, WIDTH)])
        except ScheduleFault as fault:
            found.append(str(fault))
    return found
