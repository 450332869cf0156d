"""The artifact: one file that holds a compiled model and runs with the runtime alone.

A zip archive, nothing compressed: `manifest.json`; `weights/N.npy` for argument N of @main, aligned so that
it can be mapped into memory; `TARGET/FILE` for the files of each target's section.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kitsune_mlir.codegen.section import Section
from kitsune_mlir.errors import UserError
from kitsune_mlir.program import Argument, Output, TensorSpec

from .executable import Interface

FORMAT = 2
_ALIGN = 64


@dataclass
class Content:
    """What an artifact holds. `kinds` ("cpu" or "gpu"), `sections` and `plans` are by target name."""

    interface: Interface
    kinds: dict[str, str]
    sections: dict[str, Section]
    plans: dict[str, dict[str, Any]]


def save(content: Content, path: str | os.PathLike[str], version: str) -> None:
    """Writes the artifact; the file appears whole or not at all. Raises UserError when it cannot."""
    path = Path(path)
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            temporary = Path(file.name)
            try:
                with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
                    _write(archive, content, version)
                file.flush()
                os.chmod(temporary, 0o644)
                os.replace(temporary, path)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error


def load(path: str | os.PathLike[str]) -> Content:
    """Reads an artifact; weights stay in the file until they are used.

    Raises UserError for a missing, foreign or truncated file, and for another format version.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"there is no artifact '{path}'")
    try:
        with zipfile.ZipFile(path) as archive:
            manifest = json.loads(archive.read("manifest.json"))
            _check_version(manifest, path)
            return _read(archive, manifest, path)
    except (zipfile.BadZipFile, KeyError, ValueError, TypeError, EOFError) as error:
        raise UserError(f"'{path}' is not a kitsune artifact, or is damaged: save it anew") from error


def _check_version(manifest: Any, path: Path) -> None:
    if not isinstance(manifest, dict) or "kitsune_format" not in manifest:
        raise KeyError("kitsune_format")
    if manifest["kitsune_format"] != FORMAT:
        raise UserError(
            f"'{path}' has artifact format {manifest['kitsune_format']} (written by kitsune-mlir"
            f" {manifest.get('version')}), this version reads format {FORMAT}: compile the model again"
        )


def _write(archive: zipfile.ZipFile, content: Content, version: str) -> None:
    interface = content.interface
    manifest = {
        "kitsune_format": FORMAT,
        "version": version,
        "name": interface.name,
        "signature": interface.signature,
        "arguments": [{"spec": asdict(a.spec), "kind": a.kind} for a in interface.arguments],
        "outputs": [asdict(output) for output in interface.outputs],
        "targets": {
            name: {
                "kind": content.kinds[name],
                "section": section.manifest,
                "files": sorted(section.files),
                "plan": content.plans[name],
            }
            for name, section in content.sections.items()
        },
    }
    archive.writestr("manifest.json", json.dumps(manifest, indent=1))
    for target, section in content.sections.items():
        for name, data in section.files.items():
            archive.writestr(f"{target}/{name}", data)
    for i, argument in enumerate(interface.arguments):
        if argument.value is not None:
            _write_weight(archive, f"weights/{i}.npy", argument.value)


def _write_weight(archive: zipfile.ZipFile, name: str, value: np.ndarray) -> None:
    """Pads the member's extra field so that the array's data, which .npy aligns in itself, is aligned."""
    assert archive.fp is not None
    info = zipfile.ZipInfo(name)
    header = 30 + len(name.encode())
    info.extra = _padding(-(archive.fp.tell() + header) % _ALIGN)
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, np.lib.format.header_data_from_array_1_0(value))
    info.file_size = head.tell() + value.nbytes
    with archive.open(info, "w") as member:
        member.write(head.getvalue())
        member.write(memoryview(np.ascontiguousarray(value)).cast("B") if value.size else b"")


def _padding(count: int) -> bytes:
    """An extra field of `count` bytes, or of 64 more where the four of its own header do not fit."""
    if not count:
        return b""
    count = count if count >= 4 else count + _ALIGN
    return b"\xff\xff" + (count - 4).to_bytes(2, "little") + bytes(count - 4)


def _read(archive: zipfile.ZipFile, manifest: dict[str, Any], path: Path) -> Content:
    members = set(archive.namelist())
    arguments = []
    for i, entry in enumerate(manifest["arguments"]):
        name = f"weights/{i}.npy"
        value = _map_weight(archive, name, path) if name in members else None
        if value is None and entry["kind"] != "input":
            raise KeyError(name)
        arguments.append(Argument(_spec(entry["spec"]), entry["kind"], value))
    outputs = [Output(_spec(entry["spec"]), entry["kind"], entry["mutates"]) for entry in manifest["outputs"]]
    targets = manifest["targets"]
    return Content(
        interface=Interface(manifest["name"], manifest["signature"], arguments, outputs),
        kinds={name: entry["kind"] for name, entry in targets.items()},
        sections={
            name: Section(entry["section"], {file: archive.read(f"{name}/{file}") for file in entry["files"]})
            for name, entry in targets.items()
        },
        plans={name: entry["plan"] for name, entry in targets.items()},
    )


def _map_weight(archive: zipfile.ZipFile, name: str, path: Path) -> np.ndarray:
    """The array of a stored member, mapped copy-on-write: the model may change a buffer, never the file."""
    info = archive.getinfo(name)
    with path.open("rb") as file:
        file.seek(info.header_offset + 26)
        lengths = file.read(4)
        start = info.header_offset + 30 + int.from_bytes(lengths[:2], "little") + int.from_bytes(lengths[2:], "little")
        file.seek(start)
        np.lib.format.read_magic(file)
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
        if not np.prod(shape, dtype=np.int64):
            return np.zeros(shape, dtype)
        order = "F" if fortran else "C"
        return np.memmap(path, dtype, mode="c", offset=file.tell(), shape=shape, order=order)


def _spec(entry: dict[str, Any]) -> TensorSpec:
    return TensorSpec(entry["name"], entry["dtype"], tuple(entry["shape"]), tuple(entry["symbols"]))
