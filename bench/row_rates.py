"""Rates of rows by number beside what the GPU gives at best: gathers beside copies of rows in order, sums by index
beside bare reductions in L2.

    python bench/row_rates.py --rows 1000000 --places 200000

A gather takes `rows` random rows of a table of `places`; beside it torch copies as many rows that follow one another. A
sum by index adds `rows` rows of f32 at random places; beside it a kernel of ours alone issues red.v4.f32 (PTX ISA, red)
for as many elements, whose values it does not read. Caches are as the run before left them. Printed are medians in
microseconds, and the ratio of the rates.
"""

from __future__ import annotations

import argparse
import ctypes
from collections.abc import Callable
from typing import Any

import torch

import kitsune_mlir

ROW_BYTES = (128, 256, 512)
THREADS = 256
REDUCE = """.version 8.1
.target sm_90
.address_size 64
.visible .entry reduce(.param .u64 table, .param .u64 rows, .param .u32 count, .param .u32 words)
{
  .reg .pred p;
  .reg .b32 r<8>;
  .reg .b64 d<8>;
  .reg .f32 f;
  mov.u32 r0, %ctaid.x;
  mov.u32 r1, %tid.x;
  mad.lo.u32 r0, r0, 256, r1;
  ld.param.u32 r2, [count];
  ld.param.u32 r3, [words];
  mul.lo.u32 r4, r2, r3;
  setp.ge.u32 p, r0, r4;
  @p bra end;
  div.u32 r4, r0, r3;
  rem.u32 r5, r0, r3;
  ld.param.u64 d0, [rows];
  mad.wide.u32 d0, r4, 4, d0;
  ld.global.u32 r6, [d0];
  mad.lo.u32 r6, r6, r3, r5;
  ld.param.u64 d1, [table];
  mad.wide.u32 d1, r6, 16, d1;
  mov.f32 f, 0f3F800000;
  red.relaxed.gpu.global.add.v4.f32 [d1], {f, f, f, f};
end:
  ret;
}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--places", type=int, default=200_000)
    options = parser.parse_args()
    torch.manual_seed(1)
    numbers = torch.randint(0, options.places, (options.rows,))
    print(f"{torch.cuda.get_device_name()}: {options.rows} rows, {options.places} places")
    for nbytes in ROW_BYTES:
        gathered, copied = _gather(nbytes // 2, numbers, options)
        print(
            f"{nbytes} bytes: gather {gathered:.1f} us, copy in order {copied:.1f}, {copied / gathered:.2f} of its rate"
        )
    for nbytes in ROW_BYTES:
        summed, reduced = _sum(nbytes // 4, numbers, options)
        print(f"{nbytes} bytes: sum by index {summed:.1f} us, red.v4.f32 alone {reduced:.1f}, {reduced / summed:.2f}")


def _gather(columns: int, numbers: torch.Tensor, options: argparse.Namespace) -> tuple[float, float]:
    """Microseconds of our gather of rows of bf16 and of torch's copy."""
    table = torch.randn(options.places, columns).bfloat16()
    ours = _on_gpu(lambda table, numbers: torch.index_select(table, 0, numbers), table, numbers)
    rows = torch.randn(options.rows, columns, device="cuda").bfloat16()
    return _median_us(ours), _median_us(rows.clone)


def _sum(columns: int, numbers: torch.Tensor, options: argparse.Namespace) -> tuple[float, float]:
    """Microseconds of our sum of rows of f32 at numbered places and of reductions alone."""

    def add(rows: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        return torch.zeros(options.places, columns).index_add(0, numbers, rows)

    ours = _on_gpu(add, torch.randn(options.rows, columns), numbers)
    table = torch.zeros(options.places, columns, device="cuda")
    return _median_us(ours), _median_us(_reductions(table, numbers.int().cuda()))


class _Function(torch.nn.Module):
    def __init__(self, function: Callable[..., torch.Tensor]):
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        return self.function(*args)


def _on_gpu(function: Callable[..., torch.Tensor], *args: torch.Tensor) -> Callable[[], Any]:
    """The function compiled, in a CUDA graph, its result compared with torch's first."""
    compiled = kitsune_mlir.compile(_Function(function), args, target="sm_90a")
    given = [x.cuda() for x in args]
    wanted = function(*args)
    assert (compiled(*given).cpu() - wanted).norm() <= 1e-5 * wanted.norm(), "the result is wrong"
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        compiled(*given)
    return graph.replay


def _reductions(table: torch.Tensor, numbers: torch.Tensor) -> Callable[[], None]:
    from cuda.bindings import driver

    def call(name: str, *arguments: Any) -> Any:
        error, *found = getattr(driver, name)(*arguments)
        assert error == driver.CUresult.CUDA_SUCCESS, f"{name}: {error.name}"
        return found[0] if found else None

    function = call("cuModuleGetFunction", call("cuModuleLoadData", REDUCE.encode() + b"\0"), b"reduce")
    count, words = len(numbers), table.shape[1] // 4
    values = (table.data_ptr(), numbers.data_ptr(), count, words)
    kinds = (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32)
    blocks = -(-count * words // THREADS)

    def launch() -> None:
        stream = torch.cuda.current_stream().cuda_stream
        call("cuLaunchKernel", function, blocks, 1, 1, THREADS, 1, 1, 0, stream, (values, kinds), 0)

    launch()
    torch.cuda.synchronize()
    wanted = torch.bincount(numbers, minlength=len(table)).float()
    assert torch.equal(table[:, 0], wanted), "the reductions are wrong"
    return launch


def _median_us(call: Callable[[], Any], runs: int = 20) -> float:
    times = []
    for number in range(runs + 3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times += [begin.elapsed_time(end) * 1e3] if number > 2 else []
    return sorted(times)[len(times) // 2]


if __name__ == "__main__":
    main()
