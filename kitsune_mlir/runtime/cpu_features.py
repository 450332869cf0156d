"""What the processor at hand can do, so that code for another one is refused instead of crashing."""

from __future__ import annotations

import platform
from pathlib import Path

# The instruction sets that a compiler for x86 may use on its own accord, as Linux names them.
_X86 = ("sse3 ssse3 sse4_1 sse4_2 popcnt movbe avx avx2 fma f16c bmi1 bmi2 abm adx avx_vnni avx512f avx512bw avx512cd"
        " avx512dq avx512vl avx512_bf16 avx512_vnni avx512vbmi avx512_vbmi2 avx512ifma avx512_bitalg avx512_vpopcntdq"
        " avx512_fp16 avx512_vp2intersect gfni vaes vpclmulqdq amx_tile amx_bf16 amx_int8").split()  # fmt: skip


def host() -> dict[str, object]:
    """{"machine": "x86_64", "features": [...]}; the features are empty where Linux does not tell them."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    flags = next((line.split(":", 1)[1].split() for line in lines if line.startswith(("flags", "Features"))), [])
    x86 = platform.machine() in ("x86_64", "AMD64")
    return {"machine": platform.machine(), "features": [flag for flag in flags if not x86 or flag in _X86]}


def missing(wanted: dict[str, object]) -> list[str]:
    """What `wanted`, a `host()` of the machine that compiled, has and this machine lacks."""
    here = host()
    if here["machine"] != wanted["machine"]:
        return [str(wanted["machine"])]
    return [feature for feature in wanted["features"] if feature not in here["features"]]


def vector_bytes() -> int:
    """Bytes of the widest vector register."""
    features = host()["features"]
    return 64 if "avx512f" in features else 32 if "avx" in features else 16
