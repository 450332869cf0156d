"""The interpreter of scheduled kernels: right numbers in any order, tiles beyond the end, and what it refuses to do."""

import math
import re

import ml_dtypes
import numpy as np
import pytest
from schedules import PRODUCT, WIDTH, faults, kernel_of, operands

from kitsune_mlir.errors import UnsupportedError, UserError
from kitsune_mlir.schedule import Program, numeric, run

# Softmax over the columns, then erf, for columns before %n; of bf16 rows, 4 at a time.
ROWS = """func.func @f(%x: tensor<?x8xbf16>, %n: index) -> tensor<?x8xbf16> {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %m = tensor.dim %x, %c0 : tensor<?x8xbf16>
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 4>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      scf.for %t = %lo to %hi step %st {
        %row = affine.apply affine_map<(t) -> (t * 4)>(%t)
        %in = "kitsune.read"(%x, %row, %c0) {dims = array<i64: 0, 1>}
            : (tensor<?x8xbf16>, index, index) -> tensor<4x8xbf16>
        %zero = arith.constant 0.0 : f32
        %low = arith.constant -1.0e30 : f32
        %v = tensor.empty() : tensor<4xf32>
        %w = tensor.empty() : tensor<4x8xf32>
        %f = linalg.fill ins(%low : f32) outs(%v : tensor<4xf32>) -> tensor<4xf32>
        %g = linalg.fill ins(%zero : f32) outs(%v : tensor<4xf32>) -> tensor<4xf32>
        %most = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
            iterator_types = ["parallel", "reduction"]} ins(%in : tensor<4x8xbf16>) outs(%f : tensor<4xf32>) {
        ^bb0(%a: bf16, %sum: f32):
          %b = arith.extf %a : bf16 to f32
          %r = arith.maximumf %b, %sum : f32
          linalg.yield %r : f32
        } -> tensor<4xf32>
        %e = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>,
            affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
            ins(%in, %most : tensor<4x8xbf16>, tensor<4xf32>) outs(%w : tensor<4x8xf32>) {
        ^bb0(%a: bf16, %b: f32, %out: f32):
          %c = arith.extf %a : bf16 to f32
          %d = arith.subf %c, %b : f32
          %r = math.exp %d : f32
          linalg.yield %r : f32
        } -> tensor<4x8xf32>
        %total = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
            iterator_types = ["parallel", "reduction"]} ins(%e : tensor<4x8xf32>) outs(%g : tensor<4xf32>) {
        ^bb0(%a: f32, %sum: f32):
          %r = arith.addf %a, %sum : f32
          linalg.yield %r : f32
        } -> tensor<4xf32>
        %z = tensor.empty() : tensor<4x8xbf16>
        %y = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>,
            affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
            ins(%e, %total : tensor<4x8xf32>, tensor<4xf32>) outs(%z : tensor<4x8xbf16>) {
        ^bb0(%a: f32, %b: f32, %out: bf16):
          %q = arith.divf %a, %b : f32
          %h = math.erf %q : f32
          %j = linalg.index 1 : index
          %before = arith.cmpi slt, %j, %n : index
          %s = arith.select %before, %h, %q : f32
          %r = arith.truncf %s : f32 to bf16
          linalg.yield %r : bf16
        } -> tensor<4x8xbf16>
        "kitsune.write"(%y, %row, %c0) {dims = array<i64: 0, 1>, index = 0 : i64}
            : (tensor<4x8xbf16>, index, index) -> ()
      }
    }) {copies = 1, registers = 40, sym_name = "rows", warps = 4} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  %o = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<?x8xbf16>
  return %o : tensor<?x8xbf16>
}"""


@pytest.mark.parametrize("rows", [1, 31, 32, 33, 100])
@pytest.mark.parametrize("ctas", [1, 3, 9])
def test_a_product_in_any_order(rows, ctas):
    module, kernel = kernel_of(PRODUCT)
    arguments, wanted = operands(rows, seed=rows)
    program = Program(kernel)
    for seed in range(3):
        (found,) = program.run(arguments, ctas, seed, [(rows, WIDTH)])
        np.testing.assert_array_equal(found, wanted)


def test_the_body_of_a_tile_is_computed_as_linalg_says():
    module, kernel = kernel_of(ROWS)
    x = np.random.default_rng(0).standard_normal((10, 8)).astype(np.float32).astype(ml_dtypes.bfloat16)
    wide = x.astype(np.float64)
    e = np.exp(wide - wide.max(1, keepdims=True))
    soft = e / e.sum(1, keepdims=True)
    wanted = np.where(np.arange(8) < 3, np.vectorize(math.erf)(soft), soft)
    for given in (x, x.view(np.uint16), x.astype(np.float32)):
        (found,) = run(kernel, (given, 3), ctas=2, shapes=[(10, 8)])
        np.testing.assert_allclose(found, wanted, rtol=2**-8)
        assert (found == found.astype(ml_dtypes.bfloat16).astype(np.float32)).all()


def test_bf16_is_rounded_to_nearest_even():
    bits = np.random.default_rng(0).integers(0, 1 << 32, 10_000, dtype=np.uint32)
    values = np.concatenate(
        [bits.view(np.float32), np.float32([np.nan, np.inf, -np.inf, 0.0, 1 + 2**-8, 1 + 3 * 2**-8])]
    )
    with np.errstate(all="ignore"):
        wanted = values.astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(numeric.rounded(values, "bf16"), wanted)


def test_a_deadlock_says_who_waits_for_what():
    (fault,) = faults(PRODUCT.replace("bf16>, 2 : i64", "bf16>, 1 : i64"), [0], ctas=1)
    assert fault.startswith("deadlock: ")
    assert "waits for an empty slot of ring 'right': copy 0 of 'load' in CTA 0" in fault
    assert "waits for a full slot of ring 'left': copy 1 of 'math' in CTA 0" in fault or "ring 'right': copy 1" in fault


def test_outputs_are_written_once_and_whole():
    moved = PRODUCT.replace('"kitsune.write"(%o, %row, %col)', '"kitsune.write"(%o, %row, %c0)')
    assert "writes elements of output 0 again, with other values" in faults(moved, [0])[0]
    fewer = PRODUCT.replace('"kitsune.tiles"(%m, %c48)', '"kitsune.tiles"(%c32, %c48)')
    assert "kernel 'product' never writes element (32, 0) of output 0" in faults(fewer, [0])[0]


def test_what_cannot_be_run_is_said():
    module, kernel = kernel_of(PRODUCT)
    arguments, _ = operands()
    with pytest.raises(UserError, match="wants argument 2 of its function"):
        run(kernel, arguments[:2])
    with pytest.raises(UserError, match="give the outputs' shapes"):
        run(kernel, arguments)
    module, kernel = kernel_of(PRODUCT.replace("arith.maximumf %n, %zero", "math.cbrt %n"))
    with pytest.raises(UnsupportedError, match=r"-:\d+: math.cbrt is not known"):
        run(kernel, arguments)


def test_a_faults_line_is_the_operations():
    fault = faults(PRODUCT.replace('"kitsune.release"(%pa, %q) : (!s, !t)', '"kitsune.release"(%pa) : (!s)'), [0])[0]
    line = 1 + PRODUCT[: PRODUCT.index('"kitsune.release"(%pa')].count("\n")
    assert fault.startswith(f"-:{line}: copy ")


def test_what_nobody_wrote_reaches_no_output():
    """The fault says where it comes from: beyond the end of an operand, a box that ends before the rows that are left,
    a tensor that nothing was written to, a place outside of a tensor."""

    def first_fault(old, new):
        assert old in PRODUCT
        return faults(PRODUCT.replace(old, new), [0])[0]

    beyond = first_fault('"kitsune.read"(%bias, %col)', '"kitsune.read"(%bias, %c32)')
    assert re.search(r"'math' in CTA \d writes to output 0 numbers from beyond argument 2, which -:61 reads", beyond)
    box = 'dims = array<i64: 0, 1>, engine = "tma"} : (!s, tensor<48x64xbf16>'
    short = first_fault(box, f"last = 8 : i64, {box}")
    assert "writes to output 0 numbers of ring 'right' that nobody filled in this turn" in short
    add = "%n = arith.addf %sum, %b : f32"
    unwritten = first_fault(add, "%w0 = arith.extf %out : bf16 to f32\n %n = arith.addf %sum, %w0 : f32")
    assert "writes to output 0 numbers of a tensor that nobody wrote" in unwritten
    take = "%i0 = linalg.index 1 : index\n %i1 = arith.addi %i0, %c32 : index\n %o0 = tensor.extract %bias[%i1]"
    outside = first_fault(add, f"{take} : tensor<48xf32>\n %e0 = math.exp %o0 : f32\n %n = arith.addf %sum, %e0 : f32")
    assert re.search(r"writes to output 0 numbers that -:\d+ takes from outside of a tensor", outside)


def test_boxes_of_lines_that_were_made_longer_end_where_the_call_says():
    text = PRODUCT.replace("tensor<?x64xbf16>", "tensor<?x?xbf16>")
    module, kernel = kernel_of(text.replace('"tma"} : (!s, tensor<?x?xbf16>', '"tma", longer} : (!s, tensor<?x?xbf16>'))
    (a, b, bias), _ = operands(50)
    a[:, 50:] = np.nan  # behind the 50 elements of a line, up to 56
    (found,) = run(kernel, (a[:, :56], b, bias), shapes=[(50, WIDTH)])
    np.testing.assert_array_equal(found, np.maximum(a[:, :50] @ b[:, :50].T + bias, 0))
