"""Sizes of the cases that are named by their sizes: chains of layers, and single layers (products with epilogues)."""

from __future__ import annotations

import re
from dataclasses import dataclass

CHAIN_ROWS, CHAIN_LAYERS, CHAIN_INPUTS = 1_048_576, 10, 64
CHAIN_WIDTHS = (64, 128, 192, 256, 320, 512, 1024)
CHAIN_ACTIVATIONS = ("relu", "silu", "gelu", "layernorm")
LINEAR_ACTIVATIONS = ("relu", "silu", "gelu", "none")

_CHAIN = re.compile(rf"chain-([1-9]\d*)(?:x([1-9]\d*))?(?:-(\d+))?(?:-({'|'.join(CHAIN_ACTIVATIONS)}))?")
_LINEAR = re.compile(rf"linear-(\d+)-([1-9]\d*)-([1-9]\d*)(?:-({'|'.join(LINEAR_ACTIVATIONS)}))?(-nobias)?")

SQUARE = "linear-8192-8192-8192-none-nobias"  # the product that cuBLAS is best at
# Layers of examples/models in their benchmark sizes (examples/models/__init__.py, FULL), and where they stand there.
# Those whose own layer has no bias or activation are given them where it says so.
GEMMS = {
    "linear-1048576-256-256-relu": "nerf-1m, trunk",
    "linear-1048576-256-316-relu": "nerf-1m, trunk after the skip (256 + 60)",
    "linear-1048576-128-280-relu": "nerf-1m, colour head (256 + 24)",
    "linear-65536-256-256-relu": "nerf-64k, trunk",
    "linear-2048-256-512-relu": "dlrm-2k, bottom",
    "linear-2048-1024-479-relu": "dlrm-2k, top after the dots (128 + 351)",
    "linear-2048-1024-1024-relu": "dlrm-2k, top",
    "linear-16384-1024-479-relu": "dlrm-16k, top after the dots (128 + 351)",
    "linear-16384-1024-1024-relu": "dlrm-16k, top",
    "linear-16384-512-1024-relu": "dlrm-16k, top",
    "linear-1310720-128-384-relu": "mgn, edges, first layer",
    "linear-1310720-128-128-relu": "mgn, edges, second layer",
    "linear-218453-128-256-relu": "mgn, nodes, first layer",
    "linear-327660-512-1536-silu": "graphcast, edges, first layer",
    "linear-327660-512-512-none": "graphcast, edges, second layer (bias only)",
    "linear-40962-512-1024-silu": "graphcast, nodes, first layer",
    "linear-2048-4096-4096-silu": "llama-ctx, query and output (bias and SiLU are ours)",
    "linear-2048-1024-4096-silu": "llama-ctx, key and value (bias and SiLU are ours)",
}

SWEEP_ROWS = (1, 17, 128, 1000, 4096, 16_384, 65_536, 262_144, 1_048_576)
SWEEP_LAYERS = (1, 2, 3, 5, 20)
SWEEP_WIDTHS = (72, 96, 100, 160, 224, 250, 264)
# Few rows, of which a product is as many bytes of weights: Llama's layers for so many tokens, and narrower ones.
SWEEP_LINEAR = (
    *(f"linear-{rows}-4096-4096-none" for rows in (1, 16, 64, 128, 512)),
    *(f"linear-{rows}-{n}-{k}-none" for rows, n, k in ((1, 14336, 4096), (16, 4096, 14336), (128, 1024, 8192))),
    *(f"linear-{rows}-1024-4096-none" for rows in (256, 512, 1024)),
    "linear-256-256-2048-relu",
)


@dataclass(frozen=True)
class Chain:
    """x [rows, CHAIN_INPUTS] through `layers` layers of one width, each followed by its activation."""

    width: int
    layers: int = CHAIN_LAYERS
    rows: int = CHAIN_ROWS
    activation: str = "relu"

    @staticmethod
    def parse(name: str) -> Chain | None:
        """`chain-WIDTH[xLAYERS][-ROWS][-ACTIVATION]`, such as chain-256, chain-64-gelu, chain-256x10-4096-silu."""
        if (match := _CHAIN.fullmatch(name)) is None:
            return None
        width, layers, rows, activation = match.groups()
        return Chain(int(width), int(layers or CHAIN_LAYERS), int(rows or CHAIN_ROWS), activation or "relu")


@dataclass(frozen=True)
class Layer:
    """act(x [m, k] W^T [k, n] + bias [n]): a product with its epilogue."""

    m: int
    n: int
    k: int
    activation: str = "relu"
    bias: bool = True

    @staticmethod
    def parse(name: str) -> Layer | None:
        """`linear-M-N-K[-ACTIVATION][-nobias]`; relu where none is named, `none-nobias` is the bare product."""
        if (match := _LINEAR.fullmatch(name)) is None:
            return None
        m, n, k, activation, bare = match.groups()
        return Layer(int(m), int(n), int(k), activation or "relu", not bare)


def chains() -> tuple[str, ...]:
    """Every width with every activation."""
    return tuple(
        f"chain-{width}" + ("" if activation == "relu" else f"-{activation}")
        for activation in CHAIN_ACTIVATIONS
        for width in CHAIN_WIDTHS
    )


def sweep() -> tuple[str, ...]:
    """Off the sweet spot: few rows, rows that fill no tile, other depths, widths that no instruction likes."""
    rows = [f"chain-256x{CHAIN_LAYERS}-{count}" for count in SWEEP_ROWS]
    depths = [f"chain-256x{layers}" for layers in SWEEP_LAYERS]
    return (*rows, *depths, *(f"chain-{width}" for width in SWEEP_WIDTHS), *SWEEP_LINEAR)
