"""Tensors of the caller as arrays the runners take, and back. numpy only; torch is used when the caller did.

bfloat16, which numpy has not, is held as its bits in uint16 inside; at the border it is torch.bfloat16 for
callers with torch tensors, else ml_dtypes.bfloat16 when that package is installed, else the bits.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from kitsune_mlir.errors import UserError
from kitsune_mlir.program import TensorSpec

# What torch and numpy call an element type.
_NAMES = {
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "i64": "int64",
    "i32": "int32",
    "i16": "int16",
    "i8": "int8",
    "u8": "uint8",
    "i1": "bool",
}


def storage(spec: TensorSpec) -> np.dtype:
    """The numpy type that runners see: MLIR has no unsigned integers, so u8 is i8 there."""
    return np.dtype(np.int8) if spec.dtype == "u8" else spec.numpy_dtype


def is_torch(value: Any) -> bool:
    """Whether `value` is a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_cuda(value: Any) -> bool:
    """Whether `value` is a torch tensor on a GPU."""
    return is_torch(value) and value.is_cuda


def is_captured() -> bool:
    """Whether what torch's current stream is given goes into a CUDA graph."""
    return bool(sys.modules["torch"].cuda.is_current_stream_capturing())


def kind(value: Any) -> tuple[Any, ...]:
    """All of `value` that `check` looks at, hashable: equal for two values, if one fits a spec both do."""
    if is_torch(value):
        return value.dtype, value.shape, value.device, value.layout
    return (type(value), value.dtype, value.shape) if isinstance(value, np.ndarray | np.generic) else (type(value),)


def torch_dtype(spec: TensorSpec) -> Any:
    """torch's element type of a spec."""
    return getattr(sys.modules["torch"], _NAMES[spec.dtype])


def check(value: Any, spec: TensorSpec) -> None:
    """Raises UserError, naming the input, when `value` is no tensor of the spec's element type and shape."""
    if not is_torch(value) and not isinstance(value, np.ndarray | np.generic):
        raise UserError(f"input '{spec.name}' must be a numpy array or torch tensor, found {type(value).__name__}")
    if is_torch(value) and (value.device.type == "meta" or value.layout != sys.modules["torch"].strided):
        kind = "on the meta device" if value.device.type == "meta" else "sparse"
        raise UserError(f"input '{spec.name}' must be a dense tensor with data, found one that is {kind}")
    found = str(value.dtype).removeprefix("torch.")
    bits = spec.dtype == "bf16" and found == "uint16"
    if found != _NAMES[spec.dtype] and not bits:
        raise UserError(f"input '{spec.name}' must be {spec.dtype}, found {found}")
    shape = tuple(value.shape)
    fits = len(shape) == len(spec.shape) and all(b in (None, a) for a, b in zip(shape, spec.shape, strict=True))
    if not fits:
        wanted = ", ".join("any" if size is None else str(size) for size in spec.shape)
        raise UserError(f"input '{spec.name}' must have the shape [{wanted}], found {list(shape)}")


def ordered(value: Any, spec: TensorSpec) -> Any:
    """A view of a caller's tensor with the dimensions of @main's argument."""
    if not spec.order:
        return value
    return value.permute(spec.order) if is_torch(value) else np.transpose(value, spec.order)


def to_array(value: Any, spec: TensorSpec) -> np.ndarray:
    """A checked `value` as a C-contiguous array of `storage(spec)` on the host, sharing memory where it can."""
    if is_torch(value):
        torch = sys.modules["torch"]
        value = value.detach().cpu().resolve_neg().contiguous()
        array = (value.view(torch.int16) if value.dtype == torch.bfloat16 else value).numpy()
    else:
        array = np.asarray(value)
        array = array if array.flags.c_contiguous else array.copy()
    return array.view(storage(spec))


def from_array(array: np.ndarray, spec: TensorSpec, like_torch: bool, device: Any = None) -> Any:
    """An output as the caller wants it: a torch tensor (on `device`), or a numpy array."""
    array = array.view(spec.numpy_dtype)
    if like_torch:
        torch = sys.modules["torch"]
        tensor = torch.from_numpy(array.view(np.int16) if spec.dtype == "bf16" else array)
        tensor = tensor.view(torch.bfloat16) if spec.dtype == "bf16" else tensor
        return tensor if device is None else tensor.to(device)
    if spec.dtype == "bf16":
        try:
            import ml_dtypes
        except ImportError:
            return array
        return array.view(ml_dtypes.bfloat16)
    return array


def write(value: Any, into: Any) -> None:
    """Gives a tensor that the model changes in place its new contents."""
    if is_torch(into):
        into.copy_(value)
        return
    array = value.detach().cpu() if is_torch(value) else value
    if is_torch(array):
        torch = sys.modules["torch"]
        array = (array.view(torch.int16) if array.dtype == torch.bfloat16 else array).numpy()
    np.copyto(into, array.view(into.dtype))
