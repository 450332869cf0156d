"""What is read off the kernels of operators: bytes, lines and turns, for known access patterns."""

import pytest

from kitsune_mlir import mlir
from kitsune_mlir.codegen.kernel_work import work_of
from kitsune_mlir.passes import pipeline
from kitsune_mlir.runtime.host_program import Launch, View, row_major

GENERIC = """
func.func @main(%a: {inputs[0]}, %b: {inputs[1]}) -> {result} {{
  %e = tensor.empty() : {result}
  {fill}
  %c = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{iterators}]}}
    ins(%a, %b : {inputs[0]}, {inputs[1]}) outs({start} : {result}) {{
    ^bb0(%x: {elements[0]}, %y: {elements[1]}, %z: f32):
      {body}
      linalg.yield %v : f32
  }} -> {result}
  return %c : {result}
}}
"""
FILL = "%zero = arith.constant 0.0 : f32\n%f = linalg.fill ins(%zero : f32) outs(%e : {0}) -> {0}"


def work(shapes, maps, iterators, body, dtypes=("f32", "f32")):
    """The work of the one kernel of a linalg.generic of two inputs; `shapes` are those of its inputs and its result."""
    *inputs, result = (f"tensor<{'x'.join(map(str, shape))}x" for shape in shapes)
    inputs = [f"{head}{dtype}>" for head, dtype in zip(inputs, dtypes)]
    result += "f32>"
    loops = ", ".join(f"d{i}" for i in range(len(iterators)))
    reduces = "reduction" in iterators
    text = GENERIC.format(
        inputs=inputs,
        result=result,
        fill=FILL.format(result) if reduces else "",
        start="%f" if reduces else "%e",
        maps=", ".join(f"affine_map<({loops}) -> ({map_})>" for map_ in maps),
        iterators=", ".join(f'"{kind}"' for kind in iterators),
        elements=dtypes,
        body=body,
    )
    module = mlir.parse(text, mlir.context())
    pipeline.run(module, [pipeline.make("convert-linalg-to-gpu", "")])
    (function,) = mlir.walk(module, "gpu.func")
    (launch,) = mlir.walk(module, "gpu.launch_func")
    blocks = launch.operands[0].owner.attributes["value"].value
    main = mlir.walk(module, "func.func")[0].regions[0].blocks[0]
    views = []
    for value in list(launch.operands)[6:]:
        known = [i for i, argument in enumerate(main.arguments) if argument == value]
        shape, dtype = (shapes[known[0]], dtypes[known[0]]) if known else (shapes[2], "f32")
        views.append(View(known[0] if known else 2, dtype, 0, tuple(shape), row_major(shape)))
    return work_of(function, Launch("k", (blocks, 1, 1), (256, 1, 1), tuple(views)), 32)


ADD = "%v = arith.addf %x, %y : f32"
TIMES = "%p = arith.mulf %x, %y : f32\n%v = arith.addf %z, %p : f32"
PARALLEL = ["parallel", "parallel"]


def test_elementwise_reads_and_writes_everything_once():
    found = work([(512, 256), (512, 256), (512, 256)], ["d0, d1"] * 3, PARALLEL, ADD)
    assert found.read_bytes == 2 * 512 * 256 * 4 and found.written_bytes == 512 * 256 * 4
    assert found.l2_bytes == 3 * 512 * 256 * 4
    assert found.lines == 3 * 512 * 256 / 32  # a warp's access is one line of 128 bytes
    assert found.sent == 512 * 256 / 32


@pytest.mark.parametrize("size", [512, 508])
def test_a_transposed_operand_is_read_across_memory(size):
    """By a rectangle of threads, which reads whole sectors."""
    along = work([(size, size)] * 3, ["d0, d1"] * 3, PARALLEL, ADD)
    across = work([(size, size)] * 3, ["d0, d1", "d1, d0", "d0, d1"], PARALLEL, ADD)
    assert across.lines < 3 * along.lines and across.sent < 2 * along.sent
    assert across.l2_bytes < 1.1 * along.l2_bytes
    assert across.read_bytes == along.read_bytes  # each byte once from DRAM


def test_a_row_that_all_share_stays_in_the_cache():
    found = work([(512, 256), (256,), (512, 256)], ["d0, d1", "d1", "d0, d1"], PARALLEL, ADD)
    assert found.read_bytes == 512 * 256 * 4 + 256 * 4


def test_a_sum_goes_through_its_rows():
    maps, iterators = ["d0, d1", "d0, d1", "d0"], ["parallel", "reduction"]
    found = work([(8192, 256), (8192, 256), (8192,)], maps, iterators, TIMES)
    assert found.blocks == 8192 * 32 // 256  # a warp a row
    assert found.read_bytes == pytest.approx(2 * 8192 * 256 * 4, rel=0.01)
    shorter = work([(8192, 64), (8192, 64), (8192,)], maps, iterators, TIMES)
    assert found.cycles > shorter.cycles and found.instructions > 1.5 * shorter.instructions


def test_a_product_loads_an_element_for_several_results():
    maps, iterators = ["d0, d2", "d2, d1", "d0, d1"], [*PARALLEL, "reduction"]
    found = work([(8192, 64), (64, 512), (8192, 512)], maps, iterators, TIMES)
    multiplied = 8192 * 512 * 64
    assert multiplied / 32 < found.instructions < 8 * multiplied / 32
    assert found.read_bytes == (8192 * 64 + 64 * 512) * 4


def test_rows_of_a_table_are_taken_for_scattered_but_whole():
    body = "%i = arith.index_cast %y : i64 to index\n%j = linalg.index 1 : index\n%v = tensor.extract %a[%i, %j] : "
    maps = ["0, 0", "d0", "d0, d1"]
    found = work([(1000, 64), (4096,), (4096, 64)], maps, PARALLEL, body + "tensor<1000x64xf32>", ("f32", "i64"))
    assert found.lines <= 4096 * 64 / 32 * 4  # not one for each element
    assert found.read_bytes <= 1000 * 64 * 4 + 4096 * 8


def test_scattered_numbers_of_a_small_table_lie_in_its_few_lines():
    body = """%n = arith.fptosi %y : f32 to i64
      %i = arith.index_cast %n : i64 to index
      %v = tensor.extract %a[%i] : tensor<33xf32>"""
    found = work([(33,), (4096,), (4096,)], ["0", "d0", "d0"], PARALLEL[:1], body)
    assert found.lines <= 4096 / 32 * (2 + 1 + 1)


def test_what_a_block_has_read_it_reads_from_the_cache():
    body = """%i = linalg.index 0 : index
      %j = linalg.index 1 : index
      %c511 = arith.constant 511 : index
      %k = arith.subi %c511, %i : index
      %t = tensor.extract %a[%i, %j] : tensor<512x256xf32>
      %u = tensor.extract %a[%k, %j] : tensor<512x256xf32>
      %w = arith.subf %t, %u : f32
      %v = arith.subf %w, %t : f32"""
    once = work([(512, 256), (1,), (512, 256)], ["0, 0", "0", "d0, d1"], PARALLEL, body)
    again = work([(512, 256), (1,), (512, 256)], ["0, 0", "0", "d0, d1"], PARALLEL, body.replace("%k, %j", "%i, %j"))
    assert once.l2_bytes == pytest.approx(1.5 * again.l2_bytes, rel=0.01)


def test_a_product_and_its_sum_are_one_instruction():
    maps, iterators = ["d0, d1", "d0, d1", "d0"], ["parallel", "reduction"]
    fused = work([(8192, 256), (8192, 256), (8192,)], maps, iterators, TIMES)
    apart = work([(8192, 256), (8192, 256), (8192,)], maps, iterators, TIMES.replace("addf", "maximumf"))
    assert apart.instructions - fused.instructions == pytest.approx(8192 * 256 / 32, rel=0.01)


def test_indices_before_the_first_are_outside():
    """An index of -1 is compared as an unsigned number, which is a large one."""
    body = """%i = linalg.index 0 : index
      %c400 = arith.constant 400 : index
      %j = arith.subi %i, %c400 : index
      %c512 = arith.constant 512 : index
      %inside = arith.cmpi ult, %j, %c512 : index
      %d = linalg.index 1 : index
      %v = scf.if %inside -> f32 {
        %t = tensor.extract %a[%j, %d] : tensor<512x256xf32>
        scf.yield %t : f32
      } else {
        scf.yield %y : f32
      }"""
    found = work([(512, 256), (512, 256), (512, 256)], ["0, 0", "d0, d1", "d0, d1"], PARALLEL, body)
    assert found.read_bytes == 512 * 256 * 4  # the block in the middle is at row 256, and loads no other


def test_places_of_floats_are_those_of_the_numbers_that_they_are_made_of():
    """Threads that have the same number read the same row of a table."""
    body = """
      %n = arith.fptosi %x : f32 to i32
      %i = arith.index_cast %n : i32 to index
      %j = linalg.index 1 : index
      %w = tensor.extract %b[%i, %j] : tensor<4096x32xf32>
      %v = arith.addf %w, %y : f32"""
    found = work([(4096,), (4096, 32), (4096, 32)], ["d0", "d0, d1", "d0, d1"], PARALLEL, body)
    assert found.lines < 4096 * 4  # lines of both tables and of the result, and some of the numbers


def test_places_that_are_computed_of_integers_are_known():
    """Neighbours of a larger image lie between the same elements."""
    body = """
      %j = linalg.index 1 : index
      %i = arith.index_cast %j : index to i32
      %f = arith.sitofp %i : i32 to f32
      %half = arith.constant 0.5 : f32
      %p = arith.mulf %f, %half : f32
      %n = arith.fptosi %p : f32 to i32
      %k = arith.index_cast %n : i32 to index
      %r = linalg.index 0 : index
      %w = tensor.extract %b[%r, %k] : tensor<64x512xf32>
      %v = arith.addf %w, %x : f32"""
    found = work([(64, 512), (64, 512), (64, 512)], ["d0, d1", "d0, d1", "d0, d1"], PARALLEL, body)
    assert found.lines <= 3 * 64 * 512 / 32
