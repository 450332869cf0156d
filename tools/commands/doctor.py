"""kitsune doctor: what is installed here, and what each missing piece disables."""

from __future__ import annotations

import argparse
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any

from .console import print_json


@dataclass(frozen=True)
class Finding:
    """One piece: `found` is its version or path, None when it is missing."""

    piece: str
    found: str | None
    needed: bool  # nothing can be compiled without it
    disables: str  # what its absence costs


OLDEST = (3, 11)  # Python, as in pyproject.toml
PACKAGES = (  # distribution, needed, what does not work without it
    ("numpy", True, "everything"),
    ("torch-mlir", True, "compiling (saved artifacts still run)"),
    ("llvmlite", True, "compiling (saved artifacts still run)"),
    ("torch", False, "nn.Module and .pt2 models, comparing with torch: install kitsune-mlir[torch]"),
    ("onnx", False, ".onnx models: install kitsune-mlir[onnx]"),
    ("cuda-core", False, "running on a GPU (compiling for one works): install kitsune-mlir[cuda]"),
    ("ml-dtypes", False, "bfloat16 numpy results (they come as uint16 bits): install ml-dtypes"),
    ("safetensors", False, "inputs from .safetensors files: install safetensors"),
)


def add(subparsers: Any) -> argparse.ArgumentParser:
    parser = subparsers.add_parser("doctor", help="what is installed, and what is missing")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(run=run)
    return parser


def run(options: argparse.Namespace) -> int:
    found = list(findings())
    if options.json:
        print_json([asdict(finding) for finding in found])
    else:
        width = max(len(finding.piece) for finding in found)
        for finding in found:
            mark = "ok     " if finding.found else "MISSING" if finding.needed else "absent "
            text = finding.found or f"disables {finding.disables}"
            print(f"{mark} {finding.piece:<{width}}  {text}")
    return int(any(finding.needed and finding.found is None for finding in found))


def findings() -> Iterator[Finding]:
    """Every piece in turn."""
    version = platform.python_version() if sys.version_info >= OLDEST else None
    yield Finding(
        "Python {}.{} or newer".format(*OLDEST), version, True, f"everything (this is {platform.python_version()})"
    )
    yield Finding("kitsune-mlir", _version("kitsune-mlir"), True, "everything")
    for name, needed, disables in PACKAGES:
        yield Finding(name, _version(name), needed, disables)
    linker = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    yield Finding("C compiler", linker, False, "compiling for the CPU, which links with it (saved artifacts still run)")
    from kitsune_mlir.codegen import ptxas

    yield Finding("ptxas", ptxas.find(), False, "register counts in plans; the driver assembles PTX at load time")
    yield Finding("GPU", _gpus(), False, "running GPU targets here (compiling for one works)")


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _gpus() -> str | None:
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return None
    query = [smi, "--query-gpu=name,driver_version", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True, check=False)
    return "; ".join(done.stdout.strip().splitlines()) or None if done.returncode == 0 else None
