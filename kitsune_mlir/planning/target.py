"""Descriptions of the machines that plans are made for, read from targets/*.json.

Pure data: no MLIR. Rates are measured where a measurement exists (each file says), so that predicted
and measured times can be set side by side.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, get_type_hints

from kitsune_mlir.errors import UserError
from kitsune_mlir.files import output

FOLDER = Path(__file__).resolve().parents[1] / "targets"
if not FOLDER.is_dir():  # an editable install keeps the folder at the top of the checkout
    FOLDER = Path(__file__).resolve().parents[2] / "targets"


# On which part of the multiprocessors clusters of so many CTAs find places: they do not straddle the chip's parts (an
# H100 of 132 holds 30 clusters of 4, and 15 of 8).
PLACES = {1: 1.0, 2: 1.0, 4: 0.91, 8: 0.91, 16: 0.85}


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
    launch_us: float  # an empty kernel behind another, captured in a graph
    chip: str = ""  # NVPTX processor: "sm_90a"
    ptx_features: str = ""  # "+ptx86"
    products: str = "mma"  # "wgmma", "mma" (mma.sync), or "fma"
    call_us: float = 0.0  # that a graph of kernels takes besides
    clusters: bool = False
    tma: bool = False

    @property
    def has_tensor_cores(self) -> bool:
        """Whether products are multiplied by tensor cores."""
        return self.kind == "gpu" and self.products in ("wgmma", "mma")

    @property
    def has_warpgroups(self) -> bool:
        """Whether warpgroups multiply together, out of what the copy engine brings; else warps do, by themselves."""
        return self.products == "wgmma"

    def clusters_at_once(self, ctas: int) -> int:
        """How many clusters of so many CTAs find places at a time; others begin when these end."""
        share = next((share for most, share in PLACES.items() if ctas <= most), min(PLACES.values()))
        return max(1, int(self.sms * share) // ctas)

    @property
    def overlaps_launches(self) -> bool:
        """Whether a kernel may take its places while the one before it ends (PTX ISA, griddepcontrol: sm_90 on)."""
        return self._is_of(90)

    @property
    def adds_words(self) -> bool:
        """Whether several neighbouring f32 are added to memory by one operation (PTX ISA, red.v4.f32: sm_90 on)."""
        return self._is_of(90)

    def _is_of(self, capability: int) -> bool:
        """Whether the chip is an NVIDIA GPU of that compute capability, times ten, or a later one."""
        found = re.match(r"sm_(\d+)", self.chip)
        return found is not None and int(found[1]) >= capability

    def override(self, **fields: Any) -> Target:
        """This target with some fields replaced (for tests and what-if plans)."""
        return dataclasses.replace(self, **fields)

    def save(self, path: Path) -> str:
        """Writes a file that `load` reads; gives its path, which stands for the target wherever a name does."""
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        fields = {name: value for name, value in vars(self).items() if value != defaults[name]}
        with output(path) as file:  # others may read it at this moment, as it was
            file.write(json.dumps(fields).encode())
        return str(path)


def names() -> list[str]:
    """The targets that ship with the package."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def load(name: str) -> Target:
    """A target by name, or from the path of a JSON file. Raises UserError when there is none."""
    path = Path(name) if name.endswith(".json") else FOLDER / f"{name}.json"
    if not path.is_file():
        raise UserError(f"unknown target '{name}': give one of {', '.join(names())}, or the path of a .json file")
    try:
        return _described(path.read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"target file {path} is not valid: {error}") from error


@lru_cache(maxsize=64)
def _described(text: str) -> Target:
    """What a target file says; each pass asks for it. Raises ValueError for what is wrong with it."""
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("it must hold one object")
    if problem := next(_problems(found), None):
        raise ValueError(problem)
    return Target(**found)


@cache
def _kinds() -> dict[str, Any]:
    return get_type_hints(Target)


def _problems(found: dict[str, Any]) -> Iterator[str]:
    """What is wrong with the fields of a target file, a phrase each."""
    kinds = _kinds()
    for field in dataclasses.fields(Target):
        if field.name not in found and field.default is dataclasses.MISSING:
            yield f"the field '{field.name}' is missing"
    for name, value in found.items():
        wanted = kinds.get(name)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if wanted is None:
            yield f"there is no field '{name}'; the fields are {', '.join(kinds)}"
        elif wanted in (int, float) and (not number or value <= 0 or (wanted is int and value != int(value))):
            yield f"'{name}' must be a {'whole ' if wanted is int else ''}number above 0, found {value!r}"
        elif wanted in (str, bool) and not isinstance(value, wanted):
            yield f"'{name}' must be a {wanted.__name__}, found {value!r}"
    if "kind" in found and found["kind"] not in ("gpu", "cpu"):
        yield f"'kind' must be gpu or cpu, found {found['kind']!r}"
