"""Model inputs from files or at random, and outputs to files; numpy throughout."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kitsune_mlir import files
from kitsune_mlir.errors import UserError
from kitsune_mlir.program import TensorSpec


def read(path: str, specs: Sequence[TensorSpec]) -> list[Any]:
    """The inputs, by name, from a .npz or .safetensors file; extra tensors in it are an error too."""
    if not Path(path).is_file():
        raise UserError(f"there is no input file '{path}'")
    found = _tensors(path)
    names = [spec.name for spec in specs]
    if set(found) != set(names):
        raise UserError(f"{path} holds {_list(found)}, the model's inputs are {_list(names)}")
    return [found[name] for name in names]


def random(specs: Sequence[TensorSpec], rows: int, seed: int) -> list[np.ndarray]:
    """Standard normal floats, integers 0 and 1 (indices must stay in range); `rows` for dynamic sizes."""
    generator = np.random.default_rng(seed)
    return [_random(spec, [rows if size is None else size for size in spec.shape], generator) for spec in specs]


def write(path: str, specs: Sequence[TensorSpec], outputs: Sequence[Any]) -> None:
    """Writes outputs by name to a .npz, whole or not at all; bfloat16 widened to float32."""
    if not path.endswith(".npz"):
        raise UserError(f"output file {path} must end in .npz")
    with files.output(path) as file:
        np.savez(file, **{spec.name: _storable(value) for spec, value in zip(specs, outputs)})


def _tensors(path: str) -> dict[str, Any]:
    if path.endswith(".npz"):
        try:
            with np.load(path, allow_pickle=False) as file:
                return dict(file)
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise UserError(f"{path} is not a readable .npz file") from error
    if path.endswith(".safetensors"):
        try:
            from safetensors import SafetensorError
            from safetensors.numpy import load_file
        except ImportError:
            raise UserError(f"reading {path} needs the safetensors package: pip install safetensors") from None
        try:
            return load_file(path)
        except SafetensorError as error:
            raise UserError(f"{path} is not a readable .safetensors file") from error
    raise UserError(f"input file {path} must end in .npz or .safetensors")


def _random(spec: TensorSpec, shape: list[int], generator: np.random.Generator) -> np.ndarray:
    if spec.dtype == "bf16":
        bits = generator.standard_normal(shape, np.float32).view(np.uint32) >> 16
        return _bfloat16(bits.astype(np.uint16))
    if spec.dtype.startswith("f"):
        return generator.standard_normal(shape).astype(spec.numpy_dtype)
    return generator.integers(0, 2, shape).astype(spec.numpy_dtype)


def _bfloat16(bits: np.ndarray) -> np.ndarray:
    try:
        import ml_dtypes
    except ImportError:
        return bits
    return bits.view(ml_dtypes.bfloat16)


def _storable(value: Any) -> np.ndarray:
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.float() if str(value.dtype) == "torch.bfloat16" else value
    value = np.asarray(value)
    return value.astype(np.float32) if value.dtype.name == "bfloat16" else value


def _list(names: Any) -> str:
    return ", ".join(map(str, names)) or "nothing"
