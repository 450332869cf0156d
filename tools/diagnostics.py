"""Diagnostics for kitsune-opt: collected from MLIR and from passes, printed or checked against comments."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from kitsune_mlir.mlir import Remark, ir

_FILE = re.compile(r'"((?:[^"\\]|\\.)*)":(\d+):(\d+)')
_EXPECTED = re.compile(
    r"expected-(error|note|remark|warning)(-re)? *(@([+-][0-9]+|above|below|unknown))? *\{\{(.*)\}\}$"
)
_SEVERITY = {"ERROR": "error", "WARNING": "warning", "NOTE": "note", "REMARK": "remark"}
BUFFER = "-"  # the name that MLIR gives to text without a file name


@dataclass(frozen=True)
class Diagnostic:
    """One message. `file` is "" and `line` 0 where the location is unknown."""

    kind: str  # error, warning, note, remark
    message: str
    file: str = ""
    line: int = 0
    column: int = 0

    def text(self, input_name: str) -> str:
        """`file:line:column: kind: message`, with the input's own name for its unnamed buffer."""
        if not self.file:
            return f"{self.kind}: {self.message}"
        name = input_name if self.file == BUFFER else self.file
        return f"{name}:{self.line}:{self.column}: {self.kind}: {self.message}"


def at(kind: str, message: str, location: ir.Location) -> Diagnostic:
    """A diagnostic at the innermost file of a location (the bindings give no structure: read as text)."""
    match = _FILE.search(str(location))
    if not match:
        return Diagnostic(kind, message)
    return Diagnostic(kind, message, match[1], int(match[2]), int(match[3]))


@dataclass
class Collector:
    """Gathers what a context emits: attach with `ctx.attach_diagnostic_handler(collector.take)`."""

    found: list[Diagnostic] = field(default_factory=list)

    def take(self, diagnostic: ir.Diagnostic) -> bool:
        kind = _SEVERITY[diagnostic.severity.name]
        self.found.append(at(kind, diagnostic.message, diagnostic.location))
        for note in diagnostic.notes:
            if not note.message.startswith("see current operation"):  # a dump of the op, not a message
                self.found.append(at("note", note.message, note.location))
        return True

    def remarks(self, remarks: list[Remark]) -> None:
        self.found += [at("remark", remark.message, remark.origin) for remark in remarks]

    def error(self, message: str) -> None:
        self.found.append(Diagnostic("error", message))

    @property
    def failed(self) -> bool:
        return any(diagnostic.kind == "error" for diagnostic in self.found)


@dataclass
class Expected:
    """An `expected-error@+1 {{...}}` comment; `line` 0 stands for @unknown."""

    kind: str
    pattern: re.Pattern[str]
    text: str
    line: int
    comment_line: int
    met: bool = False

    def accepts(self, diagnostic: Diagnostic, input_names: tuple[str, ...]) -> bool:
        here = diagnostic.line if diagnostic.file in input_names else 0
        return (
            diagnostic.kind == self.kind and here == self.line and self.pattern.search(diagnostic.message) is not None
        )


def expectations(lines: list[str], first_line: int) -> list[Expected]:
    """The expectations in the comments of a chunk whose first line is numbered `first_line`.

    As in mlir-opt: `@above` and `@below` mean the nearest line without an expectation; `@unknown`
    also takes a diagnostic whose location lies in another file (the model's source).
    """
    matches = {n: match for n, line in enumerate(lines, first_line) if (match := _EXPECTED.search(line.rstrip()))}
    found = []
    for n, match in matches.items():
        kind, is_regex, where, text = match[1], match[2], match[4] or "+0", match[5]
        if where == "unknown":
            line = 0
        elif where in ("above", "below"):
            step = -1 if where == "above" else 1
            line = n + step
            while line in matches:
                line += step
        else:
            line = n + int(where)
        found.append(Expected(kind, _pattern(text, bool(is_regex)), text, line, n))
    return found


def check(found: list[Diagnostic], expected: list[Expected], input_names: tuple[str, ...], strict: bool) -> list[str]:
    """What is wrong: expectations not met and, when strict, diagnostics nobody expected."""
    problems = []
    for diagnostic in found:
        match = next((e for e in expected if not e.met and e.accepts(diagnostic, input_names)), None)
        if match is not None:
            match.met = True
        elif strict:
            unexpected = replace(diagnostic, kind=f"error: unexpected {diagnostic.kind}")
            problems.append(unexpected.text(input_names[0]))
    for e in expected:
        if not e.met:
            problems.append(f'{input_names[0]}:{e.comment_line}: error: expected {e.kind} "{e.text}" was not produced')
    return problems


def _pattern(text: str, is_regex: bool) -> re.Pattern[str]:
    if not is_regex:
        return re.compile(re.escape(text))
    pieces = re.split(r"\{\{(.*?)\}\}", text)  # odd pieces are the regular expressions
    return re.compile("".join(piece if i % 2 else re.escape(piece) for i, piece in enumerate(pieces)))
