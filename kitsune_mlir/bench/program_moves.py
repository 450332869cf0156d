"""Rules of random programs: views, moved elements, and what is gathered, scattered and sorted."""

from __future__ import annotations

from typing import Any

from .program_picks import any_dim, any_dims, certain, index, partner
from .random_programs import Drawing, Unfit, Value


def viewed(d: Drawing) -> None:
    x = d.pick(lambda value: value.rank > 0)
    match d.rng.randrange(8):
        case 0:
            d.call("torch.permute", x, d.rng.sample(range(x.rank), x.rank))
        case 1:
            d.call("torch.transpose", x, any_dim(d, x), any_dim(d, x))
        case 2:
            first = d.rng.randrange(x.rank)
            d.call("torch.flatten", x, first, d.rng.randrange(first, x.rank))
        case 3:
            dim = any_dim(d, x, 4)
            part = d.rng.choice([n for n in range(2, min(x.shape[dim], 17)) if x.shape[dim] % n == 0] or [1])
            if x.rank > 4:
                raise Unfit
            d.call("torch.unflatten", x, dim, d.rng.choice(((part, -1), (-1, part))))
        case 4:
            d.call("torch.movedim", x, any_dim(d, x), any_dim(d, x))
        case 5:
            d.call("torch.reshape", x, d.rng.choice(((-1,), (x.shape[0], -1), (-1, x.shape[-1]), (1, *x.shape))))
        case 6:
            d.call("torch.unsqueeze", x, d.rng.randrange(-1, x.rank))
        case _:
            d.call("torch.squeeze", x)


def sliced(d: Drawing) -> None:
    x = d.pick(lambda value: value.rank > 0)
    d.call("own.index", x, *slices(d, x))


def slices(d: Drawing, x: Value) -> list[Any]:
    """Places of x: slices, perhaps with steps, and numbers."""
    found: list[Any] = []
    for size in x.shape[: d.rng.randint(1, x.rank)]:
        first, last = sorted(d.rng.choices(range(size + 1), k=2))
        if first == last:
            first, last = 0, size
        step = d.rng.choice((1, 1, 2, 3))
        found.append(d.rng.choice((slice(first, last, step), slice(None), slice(None, None, step), first - size)))
    return found


def cut(d: Drawing) -> None:
    x = d.pick(lambda value: value.rank > 0)
    dim = any_dim(d, x, 2)
    size = x.shape[dim]
    match d.rng.randrange(6):
        case 0:
            d.call("torch.chunk", x, d.rng.choice((2, 3, 4)), dim)
        case 1:
            first = d.rng.randrange(1, size)
            d.call("torch.split", x, [first, size - first], dim)
        case 2:
            if size > 8:
                raise Unfit
            d.call("torch.unbind", x, dim)
        case 3:
            d.call("torch.select", x, dim, d.rng.randrange(-size, size))
        case 4:
            first = d.rng.randrange(size)
            d.call("torch.narrow", x, dim, first, d.rng.randint(1, size - first))
        case _:
            length = d.rng.randint(1, min(size, 9))
            d.call("Tensor.unfold", x, dim, length, d.rng.randint(1, length + 1))


def diagonals(d: Drawing) -> None:
    x = d.pick(lambda value: value.rank >= 2)
    dims = d.rng.sample(range(x.rank), 2)
    match d.rng.randrange(3):
        case 0:
            d.call("torch.diagonal", x, d.rng.choice((0, 1, -1)), *dims)
        case 1:
            d.call(d.rng.choice(("torch.tril", "torch.triu")), x, d.rng.choice((0, 1, -2)))
        case _:
            d.call("torch.diag_embed", d.floating(1, 3))


def joined(d: Drawing) -> None:
    x = d.pick(lambda value: value.rank > 0)
    dim = any_dim(d, x)
    at = dim % x.rank

    def fits(y: Value) -> bool:
        return y.rank == x.rank and all(a == b or i == at for i, (a, b) in enumerate(zip(x.shape, y.shape)))

    others = [d.pick(lambda y: fits(y) and y.is_float == x.is_float) for _ in range(d.rng.randint(1, 3))]
    if d.rng.random() < 0.3 and all(y.shape == x.shape for y in others):
        d.call("torch.stack", [x, *others], dim)
    else:
        d.call("torch.cat", [x, *others], dim)


def padded(d: Drawing) -> None:
    x = d.floating(1)
    mode = d.rng.choice(("constant", "constant", "reflect", "replicate", "circular"))
    pairs = d.rng.randint(1, min(x.rank, 3)) if mode == "constant" else x.rank - 2
    if pairs < 1:
        raise Unfit
    amounts = [d.rng.choice((0, 1, 2, 5)) for _ in range(2 * pairs)]
    if mode == "constant":
        d.call("F.pad", x, [n if d.rng.random() < 0.8 else -1 for n in amounts], value=d.rng.choice((0.0, 0.5)))
    else:
        d.call("F.pad", x, amounts, mode)


def moved(d: Drawing) -> None:
    x = d.pick(lambda value: value.rank > 0)
    dim = any_dim(d, x)
    match d.rng.randrange(7):
        case 0:
            d.call("torch.roll", x, d.rng.choice((1, -2, 5)), dim)
        case 1:
            d.call("torch.flip", x, any_dims(d, x))
        case 2:
            d.call("torch.tile", x, [d.rng.choice((1, 2, 3)) for _ in x.shape])
        case 3:
            d.call("torch.repeat_interleave", x, d.rng.choice((2, 3)), dim)
        case 4:
            shape = [d.rng.choice(d.sizes) if size == 1 else -1 for size in x.shape]
            d.call("Tensor.expand", x, [d.rng.choice((2, 3)), *shape] if x.rank < 5 else shape)
        case 5:
            d.call("torch.rot90", x, 1, d.rng.sample(range(x.rank), 2) if x.rank > 1 else (0, 1))
        case _:
            d.call("Tensor.repeat", x, [2, *(1 for _ in x.shape)] if x.rank < 5 else [1, 2, 1, 1, 1])


def made(d: Drawing) -> None:
    """Tensors that are made of nothing."""
    x = d.floating(1)
    match d.rng.randrange(3):
        case 0:
            d.call("torch.add", x, d.call("own.arrange", x.shape[-1], x))
        case 1:
            d.call("torch.mul", x, d.call("own.spaced", -1.0, 1.0, x))
        case _:
            d.call("torch.meshgrid", *(d.floating(1, 1, lambda y: y.dtype == d.dtype) for _ in range(2)), indexing="ij")


def gathered(d: Drawing) -> None:
    x = d.pick(lambda value: value.rank > 0)
    dim = any_dim(d, x)
    size = x.shape[dim]
    length = d.rng.choice(d.sizes)
    places = [slice(None)] * (dim % x.rank)
    match d.rng.randrange(5):
        case 0:
            d.call("torch.index_select", x, dim, index(d, (length,), size))
        case 1:
            shape = list(x.shape)
            shape[dim] = length
            numbers = index(d, tuple(shape), size)
            d.call(*d.rng.choice((("torch.gather", x, dim, numbers), ("torch.take_along_dim", x, numbers, dim))))
        case 2:
            d.call("own.index", x, *places, index(d, d.shape(d.rng.randint(1, 2)), size))
        case 3:
            if x.rank < 2:
                raise Unfit
            pair = [index(d, (length,), n) for n in x.shape[:2]]
            d.call("own.index", x, *pair)
        case _:
            rows = d.rng.choice((*d.sizes, 1000))
            table = d.given((rows, d.rng.choice(d.sizes)), weight=True)
            d.call("F.embedding", index(d, d.shape(d.rng.randint(1, 2)), rows), table)


def scattered(d: Drawing) -> None:
    x = d.floating(1)
    dim = any_dim(d, x)
    rows = d.rng.choice(d.sizes)
    match d.rng.randrange(6):
        case 0:
            d.call("own.scatter_zeros", index(d, (x.shape[dim],), rows), x, rows, dim)
        case 1:
            d.call(
                "torch.index_add",
                d.given([rows if i == dim % x.rank else n for i, n in enumerate(x.shape)]),
                dim,
                index(d, (x.shape[dim],), rows),
                d.call("Tensor.to", x, d.dtype),
            )
        case 2:
            base = d.call(
                "Tensor.to", d.given([rows if i == dim % x.rank else n for i, n in enumerate(x.shape)]), x.dtype
            )
            d.call("torch.scatter_add", base, dim, index(d, x.shape, rows), x)
        case 3:
            base = d.call(
                "Tensor.to", d.given([rows if i == dim % x.rank else n for i, n in enumerate(x.shape)]), x.dtype
            )
            reduce = d.rng.choice(("amax", "amin", "mean", "sum"))
            d.call("torch.scatter_reduce", base, dim, index(d, x.shape, rows), x, reduce)
        case 4:
            base = d.call("Tensor.to", d.given((rows, *x.shape[1:])), x.dtype)
            d.call("torch.index_put", base, (index(d, x.shape[:1], rows),), x, accumulate=True)
        case _:
            d.call(
                "torch.scatter",
                x,
                dim,
                d.call("torch.argsort", d.call("torch.abs", d.given(x.shape, 1 << 40)), dim),
                d.call("torch.mul", x, 0.5),
            )


def hot(d: Drawing) -> None:
    classes = d.rng.choice((3, 8, 16, 33))
    x = index(d, d.shape(d.rng.randint(1, 2)), classes)
    d.call("own.one_hot", x, classes, d.floating())


def sorted_(d: Drawing) -> None:
    x = certain(d, 1)
    dim = any_dim(d, x, 2)
    count, descending = d.rng.randint(1, min(x.shape[dim], 20)), d.rng.random() < 0.5
    match d.rng.randrange(5):
        case 0:
            d.call("torch.sort", x, stable=True, dim=dim, descending=descending)
        case 1:
            d.call("torch.argsort", x, stable=True, dim=dim)
        case 2:
            d.call("own.ordered", x, dim, descending)
        case 3:
            d.call("own.largest", x, count, dim)
        case _:
            if not x.exact.sort(dim).values.diff(dim=dim).all():
                raise Unfit  # which of equal ones is first is not said
            d.call("torch.topk", x, count, dim, descending)


def bucketed(d: Drawing) -> None:
    x = certain(d)
    edges = d.call("own.ordered", d.given((d.rng.choice((3, 8, 33)),)), 0, False)
    if x.dtype != edges.dtype:
        raise Unfit
    d.call("torch.bucketize", x, edges, right=d.rng.random() < 0.5)


def changed(d: Drawing) -> None:
    """In place."""
    x = d.floating(1)
    places = slices(d, x)
    match d.rng.randrange(5):
        case 0:
            d.call("own.change", x, d.rng.choice(("add_", "mul_", "sub_")), partner(d, x))
        case 1:
            d.call("own.put", x, d.rng.choice((0.5, 0.0)), *places)
        case 2:
            d.call("own.put", x, d.call("torch.mul", d.call("own.index", x, *places), 0.5), *places)
        case 3:
            d.call("own.change_part", x, d.rng.choice(("add_", "mul_")), tuple(places), d.rng.choice((0.5, 2.0)))
        case _:
            d.call("own.change", x, d.rng.choice(("tanh_", "relu_", "sigmoid_", "neg_")))
