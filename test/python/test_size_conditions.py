"""What a trace takes for granted of open sizes is asked of each call, and is known where views are taken apart."""

import functions
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir.errors import UserError
from kitsune_mlir.size_conditions import is_condition, is_met, names_of, text

OPEN = torch.export.Dim.AUTO


def patches(x):
    """Patches of 2 x 2 pixels as channels, as einops writes them."""
    b, c, h, w = x.shape
    return x.reshape(b, c, h // 2, 2, w // 2, 2).permute(0, 2, 4, 1, 3, 5).reshape(b, h // 2, w // 2, c * 4)


def padded(x):
    """Pairs of a row, which has one number more where it is odd."""
    x = F.pad(x, (0, 1)) if x.shape[1] % 2 else x
    return x.view(x.shape[0], -1, 2).sum(2)


# A function, the example's sizes, those of a call, and those of one that is refused.
CASES = {
    "view of one": (lambda x: x.view(-1, 2).sum(1), (6,), (8,), (5,)),
    "view of two": (lambda x: x.view(-1, 2) * 2, (4, 6), (3, 6), (3, 5)),
    "view between": (lambda x: x.view(x.shape[0], -1, 3) + 1, (2, 6), (3, 9), (2, 7)),
    "view in front": (lambda x: x.view(3, -1) + 1, (6, 2), (9, 5), (5, 1)),
    "view of a batch": (lambda x: x.view(-1, 2, x.shape[1]) @ torch.ones(x.shape[1], 1), (6, 4), (8, 5), (5, 3)),
    "unflatten": (lambda x: x.unflatten(1, (-1, 2)) + 1, (3, 6), (2, 8), (3, 7)),
    "unflatten, two first": (lambda x: x.unflatten(1, (2, -1)) + 1, (3, 6), (2, 8), (3, 7)),
    "chunk": (lambda x: torch.cat(x.chunk(3, 1)[::-1], 1) * 2, (3, 6), (2, 8), (2, 4)),
    "split": (lambda x: torch.cat(x.split(x.shape[1] // 2, 1)[::-1], 1), (3, 6), (2, 8), (3, 7)),
    "glu": (lambda x: F.glu(x, 1), (3, 6), (2, 8), (3, 7)),
    "pixel_unshuffle": (lambda x: F.pixel_unshuffle(x, 2) + 1, (2, 3, 4, 6), (1, 3, 6, 4), (2, 3, 5, 6)),
    "channel_shuffle": (lambda x: F.channel_shuffle(x, 2) + 1, (2, 6, 4), (1, 8, 3), (2, 7, 5)),
    "groups": (lambda x: F.group_norm(x, 2), (2, 6, 5), (3, 4, 3), (2, 7, 5)),
    "patches": (patches, (2, 3, 4, 6), (1, 3, 8, 4), (1, 3, 4, 7)),
    "qubits": (lambda x: x.reshape(-1, 2, 2, 2).permute(0, 2, 1, 3).reshape(x.shape), (16,), (24,), (12,)),
    "a branch": (padded, (3, 5), (2, 9), (3, 6)),
    "a branch of two sizes": (lambda x: x * 2 if x.shape[0] * x.shape[1] > 10 else x * 3, (3, 5), (7, 2), (2, 4)),
}


@pytest.mark.parametrize("function, example, called, refused", CASES.values(), ids=CASES)
def test_call(function, example, called, refused):
    model = functions.OfOne(function)
    open_ = {0: OPEN} if len(example) == 1 else {d: OPEN for d in range(len(example)) if d != 1 or len(example) < 4}
    compiled = kitsune_mlir.compile(model, (torch.randn(example),), dynamic_shapes=(open_,))
    for sizes in (example, called):
        x = torch.randn(sizes)
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-5)
    with pytest.raises(kitsune_mlir.UserError, match="must hold, as the model was exported"):
        compiled(torch.randn(refused))


def test_views_of_other_inputs_sizes():
    class Masked(nn.Module):
        def forward(self, x, mask):
            b, h, w = mask.shape
            return (x.view(b, 4, h * w, h * w) + mask.flatten(1).view(b, 1, 1, h * w)).softmax(-1)

    shapes = ({0: OPEN, 1: OPEN, 2: OPEN}, {0: OPEN, 1: OPEN, 2: OPEN})

    def inputs(b, h, w):
        return torch.randn(4 * b, h * w, h * w), torch.randn(b, h, w)

    compiled = kitsune_mlir.compile(Masked(), inputs(2, 3, 4), dynamic_shapes=shapes)
    for sizes in ((1, 3, 4), (3, 5, 3)):
        given = inputs(*sizes)
        torch.testing.assert_close(compiled(*given), Masked()(*given))


def test_artifact(tmp_path):
    compiled = kitsune_mlir.compile(
        functions.OfOne(CASES["glu"][0]), (torch.randn(3, 6),), dynamic_shapes=({0: OPEN, 1: OPEN},)
    )
    compiled.save(tmp_path / "glu.kitsune")
    with pytest.raises(kitsune_mlir.UserError, match=r"x.shape\[1\] % 2 == 0 must hold"):
        kitsune_mlir.load(tmp_path / "glu.kitsune")(torch.randn(3, 7))


def test_numbers_of_the_example_are_refused():
    """Of a count of parts that fixes the size it is made of, nothing is left open."""
    with pytest.raises(kitsune_mlir.UnsupportedError, match="for 3, as in the example"):
        kitsune_mlir.compile(
            functions.OfOne(lambda x: torch.cat(x.split(2, 1)[::-1], 1)),
            (torch.randn(3, 6),),
            dynamic_shapes=({0: OPEN, 1: OPEN},),
        )


def test_conditions():
    found = ["and", ["==", ["%", ["*", 3, "n"], ["+", "m", 1]], 0], ["not", ["<", ["max", "n", 2], 2]]]
    assert is_condition(found) and names_of(found) == {"n", "m"}
    assert is_met(found, {"n": 2, "m": 5}) and not is_met(found, {"n": 2, "m": 3})
    assert is_met(["==", ["%", "n", "m"], 0], {"n": 2, "m": 0})  # of an empty tensor
    assert text(found, {"n": "x.shape[0]"}) == "3 * x.shape[0] % (m + 1) == 0 and not max(x.shape[0], 2) < 2"
    for wrong in ([], ["+"], ["**", "n", 2], ["%", 1], ["==", 1, 2, 3], ["not", 1, 2], [["+"], 1], {"n": 1}, 1.5, None):
        assert not is_condition(wrong)


def test_what_rules_take_for_granted_is_asked_too():
    """Keys and values of lengths of their own, which attention that is taken apart finds equal in the example."""

    def attended(q, k, v):
        keys, values = (t[:, :, None].expand(-1, -1, 2, -1, -1).reshape(t.shape[0], 4, *t.shape[2:]) for t in (k, v))
        return F.scaled_dot_product_attention(q, keys, values)

    def drawn(keys, values):
        return torch.randn(3, 4, 1, 16), torch.randn(3, 2, keys, 16), torch.randn(3, 2, values, 16)

    sizes = (({0: OPEN}, {0: OPEN, 2: OPEN}, {0: OPEN, 2: OPEN}),)
    compiled = kitsune_mlir.compile(functions.Function(attended), drawn(9, 9), target="cpu", dynamic_shapes=sizes)
    for length in (9, 5):
        args = drawn(length, length)
        torch.testing.assert_close(compiled(*args), attended(*args))
    with pytest.raises(UserError, match="must agree in size|must hold"):
        compiled(*drawn(9, 8))
