"""Runs of a GpuRunner for callers with torch tensors on its GPU.

Results, and under stream capture all other memory of a run, come from torch's allocator: what is captured in a CUDA
graph then lies in the graph's own memory, as with any operator of torch.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .prepared import Prepared

if TYPE_CHECKING:
    from .gpu import GpuRunner


class TorchCall:
    """Runs on inputs of the shapes and dtypes that `prepared` is for; the caller sees to that. Inputs are torch
    tensors on the GPU, or numpy arrays, which are copied there. `dtypes` are torch's, of the results."""

    def __init__(self, runner: GpuRunner, prepared: Prepared, dtypes: Sequence[Any]):
        self._torch: Any = sys.modules["torch"]
        self._runner, self._prepared = runner, prepared
        self._gpu = self._torch.device("cuda", runner.device.number)
        self._results = [(view.shape, dtype) for view, dtype in zip(prepared.results, dtypes, strict=True)]

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """All results of @main as torch tensors, on torch's current stream."""
        torch, runner, prepared = self._torch, self._runner, self._prepared
        runner.check_earlier()
        with runner.lock:
            stream = runner.device.torch_stream()
            tensors, pointers = self._on_gpu(inputs, stream)  # the former live until all is on the stream
            results = [torch.empty(shape, dtype=dtype, device=self._gpu) for shape, dtype in self._results]
            targets = [result.data_ptr() for result in results]
            if not torch.cuda.is_current_stream_capturing():
                prepared.run(stream, pointers, targets, runner.arena(prepared.arena_bytes, stream))
            elif reserved := prepared.reserved.get(stream):
                prepared.run(stream, pointers, targets, reserved.arena.pointer, reserved.workspaces.pointer)
            else:
                arena, workspaces = (
                    torch.empty(max(1, nbytes), dtype=torch.uint8, device=self._gpu)
                    for nbytes in (prepared.arena_bytes, prepared.workspace_bytes)
                )
                prepared.zero_counters(workspaces.data_ptr(), stream)  # recorded too
                prepared.run(stream, pointers, targets, arena.data_ptr(), workspaces.data_ptr())
            del tensors
        return results

    def _on_gpu(self, inputs: Sequence[Any], stream: int) -> tuple[list[Any], list[int]]:
        """The inputs, dense and on the GPU, and where they lie."""
        tensor_type = self._torch.Tensor
        owners, pointers = [], []
        for position, value in enumerate(inputs):
            if isinstance(value, tensor_type):
                plain = value.is_contiguous() and not value.is_neg()  # a negated view's memory has the other sign
                dense = value if plain else value.detach().resolve_neg().contiguous()
                owners.append(dense)
                pointers.append(dense.data_ptr())
            else:
                copied = self._runner.copy_input(position, value, stream)
                owners.append(copied)
                pointers.append(copied.pointer)
        return owners, pointers
