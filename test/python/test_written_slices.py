"""Tensors that are written slice by slice are concatenations, also of very many parts."""

import pytest
import torch
from functions import Function, computed, on_both
from torch.export import Dim

import kitsune_mlir
from kitsune_mlir.planning import joined_launches
from kitsune_mlir.tools.gpusim import Simulation


def steps(x):
    """A recurrence whose loop writes its results."""
    out, state = torch.zeros_like(x), torch.zeros_like(x[:, 0])
    for step in range(x.shape[1]):
        state = torch.exp(-state) * x[:, step]
        out[:, step] = state / (1 + state * state)
    return out


def halves(x):
    out = torch.zeros_like(x)
    out[:, -3:] = x[:, :3].exp()
    out[:, : x.shape[1] - 3] = x[:, 3:]
    return out


def some(x):
    """What the second write leaves of the first is read, and a part of what was there before."""
    out = x.clone()
    out[:, 1:3] = 1.0
    before = out.sum(1)
    out[:, 2] = x[:, 0]
    return out, before


def corners(x):
    """Parts of several dimensions, which begin where these do, are not all of them."""
    out = torch.zeros_like(x)
    out[:, :3, :2] = x[:, :3, :2] * 2
    out[:1, :, 5:] += x[1:, :, 5:]
    out[:, :4, 1:7:2] = 3.0
    return out


@pytest.mark.parametrize("written", [steps, halves, some, corners])
def test_written_slices(written):
    x = torch.rand(2, 5, 8)
    compiled = kitsune_mlir.compile(Function(written), (x,), target="cpu")
    torch.testing.assert_close(compiled(x), written(x))
    concatenated = "tensor.concat" in compiled.mlir("linalg")
    assert concatenated == (written in (steps, halves))
    assert "arith.cmpi" not in compiled.mlir("linalg")


@pytest.mark.parametrize("written", [steps, halves])
def test_of_any_number_of_rows(written):
    """Writes to columns write all rows."""
    shapes = (({0: torch.export.Dim("rows", min=2)},),)
    compiled = kitsune_mlir.compile(Function(written), (torch.rand(2, 5, 8),), target="cpu", dynamic_shapes=shapes)
    x = torch.rand(3, 5, 8)
    torch.testing.assert_close(compiled(x), written(x))
    assert "tensor.concat" in compiled.mlir("linalg") and "tensor.insert_slice" not in compiled.mlir("linalg")


def test_more_parts_than_a_kernel_has_parameters_for(small_gpu, monkeypatch):
    """The parts are columns, of which each is apart from the others though all begin in the first row."""

    def turned(x):
        return torch.cat([x[:, i : i + 1] for i in reversed(range(7))], 1)

    monkeypatch.setattr(joined_launches, "MOST_BYTES", 4 * 2 * 56)
    x = torch.rand(3, 7)
    compiled = kitsune_mlir.compile(Function(turned), (x,), target=small_gpu)
    assert len(compiled.plan["launches"]) == 2
    torch.testing.assert_close(torch.as_tensor(Simulation(compiled, seed=1)(x)), turned(x))


def test_the_last_row_of_an_open_size():
    """Of several open sizes: what is written ends behind where it begins."""

    def bounded(u):
        v = u * 2
        v[:, -1] = 1
        v[:, :, -1] = v[:, :, 0]
        v[:, -2, -3] = 5
        return v

    sizes = {d: Dim(name, min=4, max=99) for d, name in enumerate("bhw")}
    compiled = kitsune_mlir.compile(Function(bounded), (torch.randn(4, 6, 9),), dynamic_shapes=((sizes,),))
    for shape in ((4, 6, 9), (5, 4, 7)):
        x = torch.randn(shape)
        torch.testing.assert_close(torch.as_tensor(compiled(x)), bounded(x))


@pytest.mark.usefixtures("unassembled")
def test_the_last_row_of_some_known_ones():
    """What is written is a view of the tensor that is written to, whose strides are open: nothing is left to copy."""

    def ended(x):
        y = x * 2
        y[0, -1] = 7
        y[2, :, -1] = y[1, :, 0] + 1
        return y

    sizes = {1: Dim("rows", min=2, max=99)}
    for run in on_both(Function(ended), (torch.randn(3, 4, 5),), dynamic_shapes=((sizes,),)):
        for rows in (4, 2, 33):
            x = torch.randn(3, rows, 5)
            torch.testing.assert_close(torch.as_tensor(run(x)), ended(x))


@pytest.mark.usefixtures("unassembled")
def test_borders_and_sources_are_written_with_a_step():
    """A wave on a grid: no kernel is there for what is set in what another one computes."""

    def wave(u, v, force):
        for step in range(3):
            v = v + u.roll(1, -1) + u.roll(-1, -1) - 2 * u
            u = u + 0.1 * v
            u[:, 0], u[:, :, -1] = 0, 1
            u[:, 3, 2] += 0.5 * step
        return u, v, u[:, 2:4] * force

    batch = {0: Dim("b", min=2, max=99)}
    drawn = lambda count: tuple(torch.randn(count, 6, 9) for _ in "uv") + (torch.tensor(0.3),)  # noqa: E731
    for shapes in (None, ((batch, batch, None),)):
        compiled = kitsune_mlir.compile(Function(wave), drawn(3), target="sm_90a", dynamic_shapes=shapes)
        assert not {"copy", "fill"} & {*computed(compiled)}
        for args in [drawn(3), *([drawn(5)] if shapes else [])]:
            for found, wanted in zip(Simulation(compiled, seed=1)(*args), wave(*args), strict=True):
                torch.testing.assert_close(torch.as_tensor(found), wanted)
