"""Rows put into the order of their keys, in the simulator of operators' kernels and on a CPU."""

import numpy as np
import pytest
import torch

import kitsune_mlir
from kitsune_mlir.codegen import gpu_radix, gpu_tile_order
from kitsune_mlir.tools.gpusim import MemoryFault
from kitsune_mlir.tools.gpusim.simulation import Simulation

MODULE = """
func.func @main(%keys: tensor<?x{kind}>, %table: tensor<?x4xf32>) -> (tensor<?xi32>, tensor<?xi32>) {{
  %c0 = arith.constant 0 : index
  %count = tensor.dim %table, %c0 : tensor<?x4xf32>
  %rows, %places = "kitsune.order"(%keys, %count) : (tensor<?x{kind}>, index) -> (tensor<?xi32>, tensor<?xi32>)
  return %rows, %places : tensor<?xi32>, tensor<?xi32>
}}
"""
CARRIES = """
func.func @main(%keys: tensor<?x{kind}>, %a: tensor<?x{kind}>) -> (tensor<?xi32>, tensor<?x{kind}>, tensor<?x{kind}>) {{
  %count = arith.constant 40 : index
  %rows, %places, %a1, %keys1 = "kitsune.order"(%keys, %count, %a, %keys) : (tensor<?x{kind}>, index, tensor<?x{kind}>, tensor<?x{kind}>) -> (tensor<?xi32>, tensor<?xi32>, tensor<?x{kind}>, tensor<?x{kind}>)
  return %rows, %a1, %keys1 : tensor<?xi32>, tensor<?x{kind}>, tensor<?x{kind}>
}}
"""  # noqa: E501


DTYPES = {"i64": torch.int64, "i32": torch.int32}


def on_both(folder, text):
    """A module on a CPU and in the simulator."""
    (path := folder / "order.mlir").write_text(text)
    compiled = kitsune_mlir.compile(str(path), target=["cpu", "sm_90a"])
    compiled.target = "cpu"
    return [compiled, Simulation(compiled)]


@pytest.fixture(scope="module", params=DTYPES)
def ordered(request, tmp_path_factory):
    """The order on both targets, by keys of a kind, and that kind."""
    return on_both(tmp_path_factory.mktemp("order"), MODULE.format(kind=request.param)), DTYPES[request.param]


def keys(kind, rows, count):
    if kind == "hub":
        return np.full(rows, max(0, count - 1))
    if kind == "wrong":  # some that are none, from negative ones to one too many
        return np.random.default_rng(1).integers(-3, count + 3, rows)
    found = np.random.default_rng(2).integers(0, max(1, count), rows)
    return {"sorted": np.sort(found), "reversed": np.sort(found)[::-1].copy()}.get(kind, found)


SIZES = [(0, 5), (1, 1), (300, 1000), (2500, 40), (64, 0)]


@pytest.mark.parametrize("kind", ["any", "sorted", "reversed", "hub", "wrong"])
def test_orders(ordered, kind):
    functions, dtype = ordered
    for rows, count in SIZES if dtype == torch.int64 or kind in ("any", "wrong") else SIZES[:3]:
        found = keys(kind, rows, count)
        args = torch.from_numpy(found).to(dtype), torch.zeros(count, 4)
        for function in functions:
            order, places = (np.asarray(x) for x in function(*args))
            inside = np.where((found < 0) | (found >= count), count, found)
            assert np.array_equal(order, np.argsort(inside, kind="stable"))
            assert np.array_equal(order[places], np.arange(rows))


def test_digits():
    """They are all bits of the keys, and no more than threads have counts of."""
    for count in (1, 5, 700, 1 << 18, 300_000, 1 << 31):
        found = gpu_radix.digits(count)
        assert [digit.shift for digit in found] == [digit.bits * number for number, digit in enumerate(found)]
        assert sum(digit.bits for digit in found) >= (count - 1).bit_length()
        assert all(gpu_radix.LEAST_BITS <= digit.bits <= gpu_radix.MOST_BITS for digit in found)
    assert [len(gpu_radix.digits(count)) for count in (512, 513, 218_454, 300_000)] == [1, 2, 2, 3]


@pytest.mark.parametrize("kind", DTYPES)
def test_carries_vectors(tmp_path, kind):
    """Any numbers of all their bits, and keys that are none."""
    functions, dtype = on_both(tmp_path, CARRIES.format(kind=kind)), DTYPES[kind]
    limits = torch.iinfo(dtype)
    for rows in (0, 1, 300, 1001):
        found = keys("wrong", rows, 40)
        found[:1] = limits.max
        others = np.random.default_rng(4).integers(limits.min, limits.max, rows, endpoint=True)
        for function in functions:
            order, a, own = (
                np.asarray(x) for x in function(torch.from_numpy(found).to(dtype), torch.from_numpy(others).to(dtype))
            )
            inside = np.where((found < 0) | (found >= 40), 40, found)
            assert np.array_equal(order, np.argsort(inside, kind="stable"))
            assert np.array_equal(a, others[order]) and np.array_equal(own, found[order])


SIZED = CARRIES.replace("?", "2500").format(kind="i32")


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("kind", ["any", "reversed", "hub"])
@pytest.mark.parametrize("count", [700, 300_000])
def test_known_sizes(tmp_path, kind, count):
    """Several tiles, of which the last is not full; two digits, and three."""
    functions = on_both(tmp_path, SIZED.replace("constant 40", f"constant {count}"))
    found = keys(kind, 2500, count)
    for function in functions:
        order, a, own = (np.asarray(x) for x in function(*2 * [torch.from_numpy(found).int()]))
        assert np.array_equal(order, np.argsort(found, kind="stable"))
        assert np.array_equal(a, found[order]) and np.array_equal(own, found[order])


def test_lanes_that_do_not_meet(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_tile_order, "meet", lambda: None)
    _, simulation = on_both(tmp_path, SIZED)
    with pytest.raises(MemoryFault, match="before a barrier"):
        simulation(*2 * [torch.arange(2500, dtype=torch.int32)])


def test_large(tmp_path):
    """What goes through shared memory is not priced as accesses to anywhere; arrays there begin where words do."""
    text = SIZED.replace("2500", "1310720").replace("constant 40", "constant 218453")
    (path := tmp_path / "order.mlir").write_text(text)
    compiled = kitsune_mlir.compile(str(path), target="sm_90a")
    assert 15 < sum(launch["predicted_us"] for launch in compiled.plan["launches"]) < 60
    assert ".shared .align 16" in compiled.ptx and ".shared .align 4 " not in compiled.ptx
