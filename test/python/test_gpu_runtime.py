"""Plans of the host program, results as DLPack, which code runs on which GPU."""

import gc

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kitsune_mlir.errors import InternalError, UnsupportedError
from kitsune_mlir.runtime import device_tensor, host_program
from kitsune_mlir.runtime.cuda import CudaDevice, runs_on
from kitsune_mlir.runtime.gpu import GpuRunner


def manifest(program, arguments=(("f32", [None, 4]),)):
    return {
        "program": program,
        "arguments": [{"dtype": dtype, "shape": shape} for dtype, shape in arguments],
        "globals": {"g": {"offset": 256, "dtype": "i64", "shape": [3]}},
        "pipelines": {"p": {"launch": {}}, "sums": {"launch": {"zeroed": [1]}}},
    }


def launch(*arguments, grid=1):
    return {"op": "launch", "kernel": "k", "grid": [grid, 1, 1], "block": [32, 1, 1], "args": list(arguments)}


def test_sizes_and_views():
    program = [
        {"op": "dim", "to": "n", "of": "a0", "dim": 0},
        {"op": "arith.addi", "to": "m", "args": ["n", 255], "types": ["i64"] * 3},
        {"op": "arith.divui", "to": "blocks", "args": ["m", 256], "types": ["i64"] * 3},
        {"op": "global", "to": "g", "name": "g"},
        {"op": "alloc", "to": "b", "dtype": "bf16", "shape": ["n", 6]},
        {"op": "metadata", "of": "b", "base": "base", "offset": "o", "sizes": ["s0", "s1"], "strides": ["t0", "t1"]},
        {"op": "arith.muli", "to": "skip", "args": ["t0", 2], "types": ["i64"] * 3},
        {"op": "arith.subi", "to": "rest", "args": ["s0", 2], "types": ["i64"] * 3},
        {"op": "view", "to": "v", "of": "base", "offset": "skip", "shape": ["rest", 3], "strides": ["t0", 2]},
        launch("a0", "v", "g", ["i32", "n"], grid="blocks"),
        {"op": "pipeline", "name": "p", "args": ["v"], "results": [{"to": "r", "dtype": "f32", "shape": ["n"]}]},
        {"op": "return", "values": ["r"]},
    ]
    plan = host_program.make_plan(manifest(program), [(300, 4)])
    call, pipeline = plan.calls
    assert call.grid == (2, 1, 1)
    view = call.arguments[1]
    assert (view.offset, view.shape, view.strides, view.byte_offset) == (12, (298, 3), (6, 2), 24)
    assert call.arguments[3] == ("i32", 300)
    assert pipeline.results == (plan.results[0],) and plan.results[0].shape == (300,)
    kinds = [buffer.kind for buffer in plan.buffers]
    assert kinds == ["argument", "global", "arena", "result"]
    assert plan.arena_bytes == 3840  # 300 x 6 bf16, aligned


def sums(name, of, rows, other):
    results = [{"to": other, "dtype": "f32", "shape": [8]}, {"to": name, "dtype": "f32", "shape": [rows, 4]}]
    return {"op": "pipeline", "name": "sums", "args": [of], "results": results}


def test_what_is_filled_is_filled_together():
    """Before all kernels, and where nothing else lies while it is used; a result by itself, where it is written."""
    steps = [sums("s", "a0", 100, "x"), sums("t", "s", 30, "y"), sums("u", "t", 50, "z")]
    plan = host_program.make_plan(manifest([*steps, {"op": "return", "values": ["u"]}]), [(300, 4)])
    assert [type(call).__name__ for call in plan.calls] == ["Fill", "Pipeline", "Pipeline", "Fill", "Pipeline"]
    early, first, second, late, third = plan.calls
    assert early.views == (first.results[1], second.results[1])
    assert late.views == (third.results[1],) == tuple(plan.results)
    s, t, x, y = (plan.buffers[v.buffer].offset for v in (*early.views, first.results[0], second.results[0]))
    assert t == s + 1792  # 100 x 4 f32, aligned
    assert not {x, y} & set(range(s, t + 480))


def test_what_is_large_is_filled_where_it_is_used():
    rows = host_program.EARLY_BYTES // 16 + 1
    steps = [launch("a0"), sums("s", "a0", rows, "x"), sums("t", "s", 30, "y")]
    plan = host_program.make_plan(manifest([*steps, {"op": "return", "values": ["y"]}]), [(300, 4)])
    assert [type(call).__name__ for call in plan.calls] == ["Launch", "Fill", "Pipeline", "Fill", "Pipeline"]


@pytest.mark.parametrize(
    "steps, message",
    [
        ([{"op": "arith.divui", "to": "n", "args": [1, 0], "types": ["i64"] * 3}], "'arith.divui' fails for these"),
        ([{"op": "arith.addi", "to": "n", "args": [1], "types": ["i64"] * 2}], "'arith.addi' fails for these"),
        ([{"op": "arith.shrui", "to": "n", "args": [1, 0], "types": ["f32"] * 3}], "'arith.shrui' fails for these"),
        ([{"op": "arith.addi", "to": "n", "args": [1 << 70, 1], "types": ["i64"] * 3}], "'arith.addi' fails for these"),
        ([{"op": "alloc", "to": "b", "dtype": "f32", "shape": [-1]}], "there is no tensor of the shape"),
        ([{"op": "view", "to": "b", "of": "a0", "offset": 4, "shape": [3, 4], "strides": [4, 1]}], "beyond a buffer"),
        ([{"op": "view", "to": "b", "of": "a0", "offset": 0, "shape": [3], "strides": [-1]}], "beyond a buffer"),
    ],
)
def test_a_program_beyond_its_buffers(steps, message):
    with pytest.raises(InternalError, match=message):
        host_program.make_plan(manifest([*steps, launch("b" if steps[0]["op"] == "view" else "a0")]), [(3, 4)])


def test_nothing_is_launched_for_no_rows():
    program = [{"op": "dim", "to": "n", "of": "a0", "dim": 0}, launch("a0", grid="n")]
    assert host_program.make_plan(manifest(program), [(0, 4)]).calls == []


def test_an_unknown_step_is_named():
    with pytest.raises(InternalError, match="'teleport'"):
        host_program.make_plan(manifest([{"op": "teleport"}]), [(1, 4)])


@given(st.lists(st.tuples(st.integers(1, 5000), st.integers(0, 12), st.integers(0, 6)), min_size=1, max_size=14))
@settings(max_examples=60, deadline=None)
def test_buffers_alive_together_lie_apart(wanted):
    """Buffer i has `size` bytes and is used by launches `first` to `first + span`."""
    program = [{"op": "alloc", "to": f"b{i}", "dtype": "i8", "shape": [size]} for i, (size, _, _) in enumerate(wanted)]
    for time in range(20):
        program.append(launch(*(f"b{i}" for i, (_, first, span) in enumerate(wanted) if first <= time <= first + span)))
    plan = host_program.make_plan(manifest(program), [(1, 4)])
    placed = [
        (buffer.offset, buffer.offset + buffer.nbytes, first, first + span)
        for buffer, (_, first, span) in zip(plan.buffers[1:], wanted, strict=True)
    ]
    for i, (start, end, first, last) in enumerate(placed):
        assert end <= plan.arena_bytes and start % host_program.ALIGNMENT == 0
        for other_start, other_end, other_first, other_last in placed[:i]:
            together = first <= other_last and other_first <= last
            assert not together or end <= other_start or other_end <= start


@pytest.mark.parametrize(
    "steps, returned, message",
    [
        ([{"op": "global", "to": "g", "name": "g"}], "g", "result 0 is a constant of the code's"),
        ([{"op": "view", "to": "v", "of": "a0", "offset": 1, "shape": [12], "strides": [1]}], "v", "beyond a buffer"),
    ],
)
def test_results_are_views_of_what_may_be_given_away(steps, returned, message):
    with pytest.raises(InternalError, match=message):
        host_program.make_plan(manifest([*steps, {"op": "return", "values": [returned]}]), [(3, 4)])


class HostMemory:
    number = 0

    def __init__(self, array):
        self.array = array
        self.pointer = array.ctypes.data


@pytest.mark.parametrize(("dtype", "array", "torch_dtype"), [
    ("f32", np.arange(6, dtype=np.float32).reshape(2, 3), torch.float32),
    ("bf16", np.arange(6).astype(ml_dtypes.bfloat16).reshape(3, 2), torch.bfloat16),
    ("i64", np.array(7), torch.int64),
    ("i1", np.array([True, False]), torch.bool),
])  # fmt: skip
def test_torch_takes_results_over_without_a_copy(monkeypatch, dtype, array, torch_dtype):
    monkeypatch.setattr(device_tensor, "_KDL_CUDA", 1)  # as if on the CPU
    memory = HostMemory(array)
    before = len(device_tensor._exported)
    tensor = torch.from_dlpack(device_tensor.DeviceTensor(memory.pointer, array.shape, dtype, memory, memory, 0))
    assert tensor.dtype == torch_dtype and tuple(tensor.shape) == array.shape
    assert tensor.data_ptr() == memory.pointer
    np.testing.assert_array_equal(tensor.float().numpy(), array.astype(np.float32))
    assert len(device_tensor._exported) == before + 1
    del tensor
    gc.collect()
    assert len(device_tensor._exported) == before


def test_torch_takes_over_a_view(monkeypatch):
    monkeypatch.setattr(device_tensor, "_KDL_CUDA", 1)  # as if on the CPU
    array = np.arange(12, dtype=np.float32)
    memory = HostMemory(array)
    memory.read = lambda target, pointer, stream: target.ravel().__setitem__(slice(None), array[2 : 2 + target.size])
    view = device_tensor.DeviceTensor(memory.pointer + 8, (4, 2), "f32", memory, memory, 0, (1, 4))
    wanted = array[2:].take([[0, 4], [1, 5], [2, 6], [3, 7]])
    assert torch.equal(torch.from_dlpack(view), torch.from_numpy(wanted))
    np.testing.assert_array_equal(view.numpy(), wanted)
    assert view.__cuda_array_interface__["strides"] == (4, 16)


@pytest.mark.parametrize(("chip", "capability", "runs"), [
    ("sm_90a", (9, 0), True),
    ("sm_90a", (10, 0), False),
    ("sm_80", (9, 0), True),
    ("sm_89", (8, 0), False),
    ("sm_100a", (10, 0), True),
    ("sm_120", (12, 0), True),
])  # fmt: skip
def test_architectures(chip, capability, runs):
    assert runs_on(chip, capability) == runs


def test_without_a_gpu_there_is_a_sentence():
    try:
        CudaDevice()
    except UnsupportedError as error:
        assert "GPU" in str(error)


def test_a_copy_from_the_host_is_over_when_it_returns():
    calls, device = [], CudaDevice.__new__(CudaDevice)
    device._call = lambda name, *arguments: calls.append((name, arguments[-1]))
    device.write(1 << 20, np.ones(4), 7)
    assert calls == [("cuMemcpyHtoDAsync", 7), ("cuStreamSynchronize", 7)]


def test_code_of_another_version_is_refused():
    with pytest.raises(UnsupportedError, match="compile it again"):
        GpuRunner({"version": 0, "target": "sm_90a"}, {}, [])
