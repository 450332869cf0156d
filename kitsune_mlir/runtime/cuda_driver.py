"""Calls of the CUDA driver through cuda-bindings, with errors in the driver's words."""

from __future__ import annotations

from typing import Any

from kitsune_mlir.errors import InternalError

SUCCESS = 0  # CUDA_SUCCESS of cuda.h


def call(driver: Any, name: str, *arguments: Any) -> Any:
    """The first result of function `name` of cuda.bindings.driver, None if it has none; raises InternalError."""
    status, *results = getattr(driver, name)(*arguments)
    check(driver, name, status)
    return results[0] if results else None


def check(driver: Any, name: str, status: int) -> None:
    """Raises InternalError unless `status`, which function `name` returned, means success."""
    if status != SUCCESS:
        said = driver.cuGetErrorString(driver.CUresult(status))[1]
        raise InternalError(f"{name} failed: {said.decode() if said else status}")


def attribute(driver: Any, name: str) -> Any:
    """A launch attribute whose value is not set yet."""
    found = driver.CUlaunchAttribute()
    found.id = getattr(driver.CUlaunchAttributeID, f"CU_LAUNCH_ATTRIBUTE_{name}")
    return found


def overlap(driver: Any) -> Any:
    """The launch attribute of a kernel that waits itself for the end of the one before it on its stream."""
    found = attribute(driver, "PROGRAMMATIC_STREAM_SERIALIZATION")
    found.value.programmaticStreamSerializationAllowed = 1
    return found


def in_clusters(driver: Any, ctas: int) -> Any:
    """The launch attribute of a kernel whose grid is clusters of so many CTAs."""
    found = attribute(driver, "CLUSTER_DIMENSION")
    size = found.value.clusterDim
    size.x, size.y, size.z = ctas, 1, 1
    return found
