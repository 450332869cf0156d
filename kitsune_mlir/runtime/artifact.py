"""The artifact: one file that holds a compiled model and runs with the runtime alone.

A zip archive, nothing compressed: `manifest.json`; `weights/N`, the bytes of argument N of @main, row-major;
`TARGET/FILE` for the files of each target's section. docs/artifact.md describes it, and what is to be trusted.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from kitsune_mlir import files
from kitsune_mlir.codegen.section import Section
from kitsune_mlir.errors import InternalError, KitsuneError, UserError
from kitsune_mlir.program import Argument, Output, TensorSpec

from . import manifest as manifests
from .executable import Interface
from .schema import Mismatch, expect

FORMAT = 4
ALIGNMENT = 64  # of weights in memory, in bytes
_CHUNK = 1 << 20


@dataclass
class Content:
    """What an artifact holds. `kinds` ("cpu" or "gpu"), `sections` and `plans` are by target name; `digest` is the
    sha256 of the manifest in the file that it was read from or written to last, "" without one."""

    interface: Interface
    kinds: dict[str, str]
    sections: dict[str, Section]
    plans: dict[str, dict[str, Any]]
    digest: str = ""


def save(content: Content, path: str | os.PathLike[str], version: str) -> None:
    """Writes the artifact, whole or not at all, and sets the content's digest. Raises UserError when it cannot."""
    members = _members(content)
    manifest = _manifest(content, {name: hashlib.sha256(data).hexdigest() for name, data in members.items()}, version)
    text = json.dumps(manifest, indent=1).encode()
    _check_own(text, content)
    with files.output(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, data in {"manifest.json": memoryview(text), **members}.items():
            info = zipfile.ZipInfo(name)
            info.file_size = data.nbytes
            with archive.open(info, "w") as member:
                member.write(data)
    content.digest = hashlib.sha256(text).hexdigest()


def load(path: str | os.PathLike[str], digest: str | None = None) -> Content:
    """Reads an artifact into memory and checks it against itself.

    Raises UserError for a missing, foreign, truncated or changed file, for another format version, and for a manifest
    whose sha256 is not `digest`, where that is given.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"there is no artifact '{path}'")
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            return _read(_Members(archive, os.fstat(file.fileno()).st_size), path, digest)
    except KitsuneError:
        raise
    except Mismatch as error:
        raise UserError(f"'{path}' is not a kitsune artifact, or is damaged ({error}): save it anew") from error
    except OSError as error:
        raise UserError(f"cannot read '{path}': {error.strerror or error}") from error
    except MemoryError as error:
        raise UserError(f"there is not enough memory to load '{path}'") from error
    except Exception as error:  # zipfile and json raise all kinds of them
        raise UserError(f"'{path}' is not a kitsune artifact, or is damaged: save it anew") from error


def _members(content: Content) -> dict[str, memoryview]:
    """The bytes of all members but the manifest."""
    found = {
        f"{target}/{name}": memoryview(data)
        for target, section in content.sections.items()
        for name, data in sorted(section.files.items())
    }
    content.interface.settle()
    for i, argument in enumerate(content.interface.arguments):
        if argument.value is not None:
            flat = np.ascontiguousarray(argument.value).reshape(-1)
            found[f"weights/{i}"] = memoryview(flat.view(np.uint8))
    return found


def _manifest(content: Content, hashes: Mapping[str, str], version: str) -> dict[str, Any]:
    interface = content.interface
    arguments: list[dict[str, Any]] = [{"spec": asdict(a.spec), "kind": a.kind} for a in interface.arguments]
    for i, argument in enumerate(arguments):
        if (name := f"weights/{i}") in hashes:
            argument["sha256"] = hashes[name]
    return {
        "kitsune_format": FORMAT,
        "version": version,
        "name": interface.name,
        "signature": interface.signature,
        "arguments": arguments,
        "outputs": [asdict(output) for output in interface.outputs],
        "conditions": interface.conditions,
        "targets": {
            name: {
                "kind": content.kinds[name],
                "section": section.manifest,
                "files": {file: hashes[f"{name}/{file}"] for file in sorted(section.files)},
                "plan": content.plans[name],
            }
            for name, section in content.sections.items()
        },
    }


def _check_own(text: bytes, content: Content) -> None:
    """Raises InternalError for a manifest that `load` would refuse."""
    manifest = json.loads(text)
    try:
        manifests.check(manifest)
        for name, section in content.sections.items():
            manifests.check_section(manifest, name, section.files)
    except Mismatch as error:
        raise InternalError(f"the compiled model does not fit its own description: {error}") from error


class _Members:
    """The members of an archive, each read once, whole, and compared with its checksum."""

    def __init__(self, archive: zipfile.ZipFile, size: int):
        self._archive, self._infos = archive, {info.filename: info for info in archive.infolist()}
        expect(len(self._infos) == len(archive.infolist()), "no two members may have one name")
        for name, info in self._infos.items():
            stored = info.compress_type == zipfile.ZIP_STORED and info.file_size == info.compress_size <= size
            expect(stored, f"member {name!r} must be stored as it is")

    def take(self, name: str, sha256: str | None = None) -> bytes:
        """The bytes of a member, which is then no longer among the members."""
        data = bytearray(self.size(name))
        self.take_into(memoryview(data), name, sha256)
        return bytes(data)

    def take_into(self, memory: memoryview, name: str, sha256: str | None) -> None:
        """The same into memory of the member's size. Raises Mismatch for a member that is not what it was."""
        found = hashlib.sha256()
        with self._archive.open(self._infos.pop(name)) as file:
            for start in range(0, len(memory), _CHUNK):
                chunk = memory[start : start + _CHUNK]
                _fill(chunk, file, name)
                found.update(chunk)
        expect(sha256 in (None, found.hexdigest()), f"member {name!r} is not what the manifest's checksum says")

    def size(self, name: str) -> int:
        """The bytes of a member. Raises Mismatch when there is none."""
        expect(name in self._infos, f"it must have a member {name!r}")
        return self._infos[name].file_size

    def end(self) -> None:
        """Raises Mismatch when a member is left that nobody asked for."""
        expect(not self._infos, f"it must not have a member {next(iter(self._infos), None)!r}")


def _fill(memory: memoryview, file: IO[bytes], name: str) -> None:
    at = 0
    while at < len(memory):
        count = file.readinto(memory[at:])  # type: ignore[attr-defined]
        expect(count > 0, f"member {name!r} ends too early")
        at += count


def _read(members: _Members, path: Path, digest: str | None) -> Content:
    text = members.take("manifest.json")
    found = hashlib.sha256(text).hexdigest()
    if digest is not None and str(digest).strip().lower() != found:
        raise UserError(f"'{path}' has the digest {found}, and {digest} was asked for: it is another artifact")
    manifest = json.loads(text)
    _check_version(manifest, path)
    manifests.check(manifest)
    arguments = [_argument(members, i, entry) for i, entry in enumerate(manifest["arguments"])]
    sections = {}
    for name, target in manifest["targets"].items():
        held = {file: members.take(f"{name}/{file}", sha256) for file, sha256 in target["files"].items()}
        manifests.check_section(manifest, name, held)
        sections[name] = Section(target["section"], held)
    members.end()
    outputs = [Output(_spec(entry["spec"]), entry["kind"], entry["mutates"]) for entry in manifest["outputs"]]
    return Content(
        interface=Interface(
            manifest["name"], manifest["signature"], arguments, outputs, manifest.get("conditions", [])
        ),
        kinds={name: target["kind"] for name, target in manifest["targets"].items()},
        sections=sections,
        plans={name: target["plan"] for name, target in manifest["targets"].items()},
        digest=found,
    )


def _check_version(manifest: Any, path: Path) -> None:
    expect(isinstance(manifest, dict) and "kitsune_format" in manifest, "its manifest names no format")
    if manifest["kitsune_format"] != FORMAT:
        raise UserError(
            f"'{path}' has artifact format {manifest['kitsune_format']} (written by kitsune-mlir"
            f" {manifest.get('version')}), this version reads format {FORMAT}: compile the model again"
        )


def _argument(members: _Members, number: int, entry: Mapping[str, Any]) -> Argument:
    """An argument of @main; its value, if it has one, in memory of our own, which the model may change."""
    spec = _spec(entry["spec"])
    if entry["kind"] == "input":
        return Argument(spec, entry["kind"])
    name, nbytes = f"weights/{number}", manifests.nbytes(entry["spec"])
    expect(members.size(name) == nbytes, f"member {name!r} must have the {nbytes} bytes of {spec}")
    room = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    value = room[start : start + nbytes]
    members.take_into(memoryview(value), name, entry["sha256"])
    return Argument(spec, entry["kind"], value.view(spec.numpy_dtype).reshape(spec.shape))


def _spec(entry: Mapping[str, Any]) -> TensorSpec:
    sizes = (tuple(entry[key]) for key in ("shape", "symbols", "order"))
    return TensorSpec(entry["name"], entry["dtype"], *sizes)
