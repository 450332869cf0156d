"""Descriptions of the machines that plans are made for, read from targets/*.json.

Pure data: no MLIR. Rates are measured where a measurement exists (each file says), so that predicted
and measured times can be set side by side.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

from kitsune_mlir.errors import UserError

FOLDER = Path(__file__).resolve().parents[1] / "targets"
if not FOLDER.is_dir():  # an editable install keeps the folder at the top of the checkout
    FOLDER = Path(__file__).resolve().parents[2] / "targets"


@dataclass(frozen=True)
class Target:
    """One machine. On a CPU an "sm" is a core, and shared memory is its L2 cache."""

    name: str  # what users type: "sm_90a", "cpu"
    kind: str  # "gpu" or "cpu"
    description: str
    sms: int
    shared_bytes: int  # a CTA's most, opted in
    l2_bytes: int
    dram_gbps: float
    l2_gbps: float  # all SMs together
    tensor_tflops: float  # bf16 products, fp32 sums, dense
    simt_tflops: float  # fp32, fused multiply-add counted as two
    launch_us: float  # an empty kernel, captured in a graph
    chip: str = ""  # NVPTX processor: "sm_90a"
    ptx_features: str = ""  # "+ptx86"
    products: str = "mma"  # "wgmma", "mma" (mma.sync), or "fma"
    clusters: bool = False
    tma: bool = False

    def override(self, **fields: object) -> Target:
        """This target with some fields replaced (for tests and what-if plans)."""
        return dataclasses.replace(self, **fields)


def names() -> list[str]:
    """The targets that ship with the package."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def load(name: str) -> Target:
    """A target by name, or from the path of a JSON file. Raises UserError when there is none."""
    path = Path(name) if name.endswith(".json") else FOLDER / f"{name}.json"
    if not path.is_file():
        raise UserError(f"unknown target '{name}': give one of {', '.join(names())}, or the path of a .json file")
    try:
        return Target(**json.loads(path.read_text()))
    except (TypeError, ValueError) as error:
        raise UserError(f"target file {path} is not valid: {error}") from error
