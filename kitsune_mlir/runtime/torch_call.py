"""Runs of a GpuRunner for callers with torch tensors on its GPU.

The memory of results, and under stream capture all other memory of a run, comes from torch's allocator: what is
captured in a CUDA graph then lies in the graph's own memory, as with any operator of torch. Results that torch returns
as views of one tensor, or of an input, may be that here, too.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from .host_program import BYTES, View
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
        self._memories = [self._memory(number, dtypes) for number in range(len(prepared.result_bytes))]
        self._results = [
            (source, None if not source.given and self._is_all(view, source.index) else view, dtype)
            for view, source, dtype in zip(prepared.results, prepared.sources, dtypes, strict=True)
        ]

    def _shown(self, number: int) -> list[int]:
        """The results that lie in a memory."""
        return [i for i, source in enumerate(self._prepared.sources) if not source.given and source.index == number]

    def _is_all(self, view: View, number: int) -> bool:
        """Whether a result, the only one there, is all of a memory."""
        whole = view.is_dense and view.nbytes == self._prepared.result_bytes[number]
        return whole and len(self._shown(number)) == 1

    def _memory(self, number: int, dtypes: Sequence[Any]) -> tuple[tuple[int, ...], Any]:
        """Shape and dtype of a tensor that is a memory for results."""
        first = self._shown(number)[0]
        view = self._prepared.results[first]
        elements = self._prepared.result_bytes[number] // BYTES[view.dtype]
        return view.shape if self._is_all(view, number) else (elements,), dtypes[first]

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """All results of @main as torch tensors, on torch's current stream."""
        torch, runner, prepared = self._torch, self._runner, self._prepared
        runner.check_earlier()
        with runner.lock:
            stream = runner.device.torch_stream()
            tensors, pointers = self._on_gpu(inputs, stream)  # the former live until all is on the stream
            made = [torch.empty(shape, dtype=dtype, device=self._gpu) for shape, dtype in self._memories]
            targets = [memory.data_ptr() for memory in made]
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
            return [
                made[source.index]
                if view is None
                else self._view(view, (tensors if source.given else made)[source.index], dtype, stream)
                for source, view, dtype in self._results
            ]

    def _view(self, view: View, base: Any, dtype: Any, stream: int) -> Any:
        """A result that is a part of a tensor, or of an input that was copied from the host."""
        if not isinstance(base, self._torch.Tensor):
            count = prod(base.shape)
            owned = self._torch.empty((count,), dtype=dtype, device=self._gpu)
            self._runner.device.copy(owned.data_ptr(), base.pointer, count * BYTES[view.dtype], stream)
            base = owned
        return base.detach().as_strided(view.shape, view.strides, base.storage_offset() + view.offset)

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
