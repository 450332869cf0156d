"""What a good eager implementation of a model would take on an H100, of its operators' bytes and operations alone."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

DRAM_BYTES_PER_US, LAUNCH_US = 2.5e6, 2.5
OPERATIONS_PER_US = {torch.bfloat16: 5e8, torch.float16: 5e8, torch.float32: 2.5e8}


class Eager(TorchDispatchMode):
    """Adds up in `us` what a model that runs within takes, on meta tensors too: for each operator that is no view a
    launch, and its bytes or its operations, whichever take longer; these of numbers of one type."""

    def __init__(self, dtype: torch.dtype):
        super().__init__()
        self.dtype, self.us, self.operations = dtype, 0.0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if not func.is_view and func.namespace == "aten" and "empty" not in func.name():
            size = self.dtype.itemsize
            read = [leaf.numel() for leaf in tree_leaves((args, kwargs, found)) if isinstance(leaf, torch.Tensor)]
            count = flop_registry.get(func.overloadpacket)
            operations = count(*args, **(kwargs or {}), out_val=found) if count else 0
            self.operations += operations
            self.us += LAUNCH_US + max(sum(read) * size / DRAM_BYTES_PER_US, operations / OPERATIONS_PER_US[self.dtype])
        return found
