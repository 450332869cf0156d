"""The models that are timed: by name, in suites, or as `kitsune compile` takes them. torch is imported late,
and with it the zoo and the everyday models, whose tables make modules."""

from __future__ import annotations

import dataclasses
import importlib
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from kitsune_mlir.errors import UserError

from . import shapes
from .shapes import Chain, Layer

DTYPES = {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}
PLAIN_MODES = ("eager", "graph")  # an operator at a time: cuBLAS, and a kernel for what follows
TORCH_MODES = (*PLAIN_MODES, "reduce-overhead", "max-autotune")
APPLICATIONS = "nerf-64k nerf-1m dlrm-2k dlrm-16k mgn mgn-small graphcast llama-tok-1 llama-tok-16 llama-ctx".split()
PATTERN_ROWS = (4096, 16_384, 65_536)
# Forms of the paper's patterns among which the planner chooses, each of which `PATTERN@FORM` asks for: options of
# passes. "bulk" is our own bulk-synchronous code of the same tiles: a kernel a stage.
_BULK = {"cut-pipelines": "stages=true"}
_HIDDEN = {"l2": {"place-stages": "shape=spatial"}, "bulk": _BULK}
PATTERNS = {f"hidden-4096-{rows}": _HIDDEN for rows in PATTERN_ROWS} | {
    "batch-reduction": {},
    "multicast": {"bulk": _BULK},
}
AS = "@"  # between a case and its form
ZOOS = {"zoo": "medium", "zoo-small": "small", "zoo-large": "large"}  # suites, by the size of their cases
SUITES = ("gemms", "chains", "sweep", "applications", "patterns", *ZOOS, "everyday", "fields")
_NET = re.compile(r"net-(\d+)")
_PROGRAM = re.compile(r"program-(\d+)")
_ATTENTION = re.compile(r"attention-(?:(batch|rows|columns|tokens|all)-)?(\d+)")
_BLOCKS = re.compile(r"block-(?:(batch|tokens|all)-)?(\d+)")
_GRAPH = re.compile(r"graph-(open-)?(\d+)")
_IMAGE = re.compile(r"image-(batch-)?(\d+)")


@dataclass(frozen=True)
class Case:
    """A model on the CPU with example arguments; `make` gives (nn.Module, args, dynamic_shapes or None). `form` are
    options of passes by pass, on top of what is asked for."""

    name: str
    make: Callable[[], tuple[Any, tuple[Any, ...], Any]]
    form: Mapping[str, str] = field(default_factory=dict)


def suite(name: str) -> tuple[str, ...]:
    """The names of the cases of one of SUITES."""
    match name:
        case "gemms":
            return (shapes.SQUARE, *shapes.GEMMS)
        case "chains":
            return shapes.chains()
        case "sweep":
            return shapes.sweep()
        case "applications":
            return tuple(APPLICATIONS)
        case "patterns":
            formed = [(case, *(f"{case}{AS}{form}" for form in forms)) for case, forms in PATTERNS.items()]
            return (*(name for names in formed for name in names), "edge-mlp")
        case "everyday":
            from . import everyday

            return everyday.names()
        case "fields":
            from . import fields

            return fields.names()
    from . import zoo

    return zoo.names(ZOOS[name])


def find(name: str, dtype: str | None) -> Case:
    """The case of that name, or of a model as `kitsune compile` takes it.

    `dtype` is a key of DTYPES; None is bf16 for a named case, and for an everyday model, a random net
    or any other model its own types. A random program has no other types.
    What a name of the zoo says of its type holds in any case.
    Raises UserError for what names no case; a model of the user's own fails in `make`.
    """
    if ":" in name:
        return Case(name, partial(_from_spec, name, dtype))
    if name.endswith(".pt2"):
        return Case(name, partial(_from_file, name, dtype))
    if name in APPLICATIONS:
        return Case(name, partial(_application, name, dtype or "bf16"))
    case, _, form = name.partition(AS)
    if form in PATTERNS.get(case, ()):
        return dataclasses.replace(find(case, dtype), name=name, form=PATTERNS[case][form])
    if name in suite("patterns") or Chain.parse(name) or Layer.parse(name):
        from . import networks

        return Case(name, partial(networks.make, name, dtype or "bf16"))
    if match := _NET.fullmatch(name):
        return Case(name, partial(_net, int(match[1]), dtype))
    if match := _PROGRAM.fullmatch(name):
        return Case(name, partial(_program, int(match[1])))
    if match := _ATTENTION.fullmatch(name):
        module = "random_attention"
        return Case(name, partial(_drawn, module, module, int(match[2]), match[1] or "", dtype))
    if match := _BLOCKS.fullmatch(name):
        return Case(name, partial(_drawn, "draw_blocks", "random_blocks", int(match[2]), match[1] or "", dtype))
    if match := _GRAPH.fullmatch(name):
        return Case(name, partial(_drawn, "random_graphs", "random_graphs", int(match[2]), bool(match[1]), dtype))
    if match := _IMAGE.fullmatch(name):
        return Case(name, partial(_image, int(match[2]), bool(match[1]), dtype))
    if name.startswith("zoo/"):
        from . import zoo

        if zoo.is_case(name):
            return Case(name, partial(zoo.make, name, dtype or "bf16"))
    if name.startswith("everyday/") and name in suite("everyday"):
        return Case(name, partial(_everyday, name, dtype))
    if name.startswith("fields/") and name in suite("fields"):
        return Case(name, partial(_field, name, dtype))
    sized = (
        "chain-WIDTH[xLAYERS][-ROWS][-ACTIVATION], linear-M-N-K[-ACTIVATION][-nobias], net-SEED, program-SEED,"
        " attention-[batch-|rows-|columns-|tokens-|all-]SEED, block-[batch-|tokens-|all-]SEED, of which such a size, or"
        " each, is open until the call, graph-[open-]SEED, of which nodes and edges are open,"
        " image-[batch-]SEED,"
        " zoo/NAME[-TYPE][-SIZE], everyday/NAME, fields/NAME"
    )
    known = ", ".join([*APPLICATIONS, *suite("patterns")])
    raise UserError(f"there is no case '{name}': give module:function, a .pt2 file, {sized}, or one of {known}")


def _from_spec(spec: str, dtype: str | None) -> tuple[Any, tuple[Any, ...], Any]:
    from kitsune_mlir.frontend.model_spec import load_model

    module, args, shapes = load_model(spec)
    return *_cast(module, args, dtype), shapes


def _from_file(path: str, dtype: str | None) -> tuple[Any, tuple[Any, ...], Any]:
    import torch

    if not Path(path).is_file():
        raise UserError(f"there is no model file '{path}'")
    exported = torch.export.load(path)
    args, kwargs = exported.example_inputs or ((), {})
    if kwargs or not args:
        raise UserError(f"{path} was not exported with positional example arguments only: give module:function instead")
    return *_cast(exported.module(), args, dtype), None


def _application(name: str, dtype: str) -> tuple[Any, tuple[Any, ...], None]:
    """From examples/models of a checkout: the one that this package lies in, or the current folder."""
    import torch

    roots = [str(root) for root in (Path(__file__).resolve().parents[2], Path.cwd())]
    sys.path[:0] = [root for root in roots if Path(root, "examples", "models").is_dir() and root not in sys.path]
    try:
        models = importlib.import_module("examples.models")
    except ModuleNotFoundError as error:
        raise UserError(f"{name} is one of a checkout's examples/models: run from the folder of a checkout") from error
    module, args = models.FULL[name](getattr(torch, DTYPES[dtype]))
    return module, args, None


def _everyday(name: str, dtype: str | None) -> tuple[Any, tuple[Any, ...], None]:
    from . import everyday

    return *_cast(*everyday.make(name), dtype), None


def _field(name: str, dtype: str | None) -> tuple[Any, tuple[Any, ...], Any]:
    from . import fields

    module, args, shapes = fields.make(name)
    return *_cast(module, args, dtype), shapes


def _net(seed: int, dtype: str | None) -> tuple[Any, tuple[Any, ...], None]:
    """The random network of a seed, in torch's precision of f32 products that it was drawn with."""
    import torch

    from .draw_nets import draw
    from .random_nets import build

    net = draw(seed)
    torch.set_float32_matmul_precision(net.precision)
    return *build(dataclasses.replace(net, dtype=dtype or net.dtype), seed), None


def _program(seed: int) -> tuple[Any, tuple[Any, ...], None]:
    """The tensor program of a seed, of the types that it was drawn with."""
    from . import random_programs

    return *random_programs.make(seed), None


def _drawn(
    drawing: str, making: str, seed: int, open_: str | bool, dtype: str | None
) -> tuple[Any, tuple[Any, ...], Any]:
    """What modules of this package of these names draw of a seed, and make of that; `open_` says what of it is open
    until the call."""
    draws, makes = (importlib.import_module(f".{name}", __package__) for name in (drawing, making))
    shapes = draws.open_sizes(draws.draw(seed, open=open_))
    return *_cast(*makes.make(seed, open=open_), dtype), shapes


def _image(seed: int, open_: bool, dtype: str | None) -> tuple[Any, tuple[Any, ...], Any]:
    """The network of images of a seed, in torch's precision of f32 products that it was drawn with."""
    import torch

    from .draw_images import draw
    from .random_images import build, open_sizes

    net = draw(seed, open=open_)
    torch.set_float32_matmul_precision(net.precision)
    return *_cast(*build(net, seed), dtype), open_sizes(net)


def _cast(module: Any, args: tuple[Any, ...], dtype: str | None) -> tuple[Any, tuple[Any, ...]]:
    if dtype is None:
        return module, args
    import torch

    kind = getattr(torch, DTYPES[dtype])

    def cast(leaf: Any) -> Any:
        return leaf.to(kind) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf

    return module.to(kind), torch.utils._pytree.tree_map(cast, args)
