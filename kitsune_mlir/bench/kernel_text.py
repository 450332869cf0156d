"""Kernels at the schedule level as text: lines of operations, and the module around them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


def tensor_type(shape: Sequence[int | None], element: str) -> str:
    return f"tensor<{''.join('?x' if size is None else f'{size}x' for size in shape)}{element}>"


@dataclass
class Text:
    """Lines of a block, and the constants that they use."""

    lines: list[str] = field(default_factory=list)
    constants: set[int] = field(default_factory=set)
    count: int = 0

    def add(self, line: str) -> None:
        self.lines.append(line)

    def name(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def constant(self, number: int) -> str:
        self.constants.add(number)
        return f"%c{number}"

    def index(self, op: str, a: str, b: str) -> str:
        name = self.name()
        self.add(f"{name} = arith.{op} {a}, {b} : index")
        return name

    def call(self, op: str, operands: Sequence[str], attributes: str, types: str, results: int = 1) -> list[str]:
        names = [self.name() for _ in range(results)]
        given = f"{', '.join(names)} = " if names else ""
        self.add(f'{given}"kitsune.{op}"({", ".join(operands)}) {attributes} : {types}')
        return names

    def generic(self, inputs: Sequence[tuple[str, str, str]], body: str, kind: str, start_at: str = "") -> str:
        """Elementwise on (value, type, map) of rows and columns; with `start_at` along the columns: then the body joins
        %x0 with what is so far, %o."""
        name, start = self.name(), self.name()
        self.add(f"{start} = tensor.empty() : {kind}")
        if start_at:
            filled = self.name()
            self.add(f"{filled} = linalg.fill ins({start_at} : f32) outs({start} : {kind}) -> {kind}")
            start = filled
        maps = ", ".join(f"affine_map<(r, c) -> ({map_})>" for *_, map_ in inputs)
        out, last = ("r", "reduction") if start_at else ("r, c", "parallel")
        operands = ", ".join(value for value, *_ in inputs), ", ".join(type_ for _, type_, _ in inputs)
        self.add(
            f"{name} = linalg.generic {{indexing_maps = [{maps}, affine_map<(r, c) -> ({out})>], iterator_types = "
            f'["parallel", "{last}"]}} ins({operands[0]} : {operands[1]}) outs({start} : {kind}) {{'
        )
        arguments = [f"%x{i}: {element_of(type_)}" for i, (_, type_, _) in enumerate(inputs)]
        self.add(f"^bb0({', '.join(arguments)}, %o: {element_of(kind)}):\n{body}\n}} -> {kind}")
        return name


def element_of(type_: str) -> str:
    return type_.rstrip(">").split("x")[-1]


def numbers(values: Sequence[int]) -> str:
    return f"array<i64: {', '.join(map(str, values))}>"


def module_text(
    inputs: Sequence[str], results: Sequence[str], text: Text, kernel: Text, attributes: str, target: str
) -> str:
    """The module of a kernel, whose lines are in `kernel`."""
    arguments = ", ".join(f"%A{i}: {type_}" for i, type_ in enumerate(inputs))
    head = [f"func.func @main({arguments}) -> ({', '.join(results)}) {{", "%least = arith.constant 0xFF800000 : f32"]
    head.append("%nothing = arith.constant 0.0 : f32")
    head += [f"%c{n} = arith.constant {n} : index" for n in sorted(text.constants | kernel.constants)]
    body = [*text.lines, '%p = "kitsune.kernel"() ({', *kernel.lines]
    body.append(f'}}) {{sym_name = "k", target = "{target}"{attributes}}} : () -> !kitsune.outputs')
    for i, type_ in enumerate(results):
        body.append(f'%y{i} = "kitsune.result"(%p) {{index = {i}}} : (!kitsune.outputs) -> {type_}')
    names = ", ".join(f"%y{i}" for i in range(len(results)))
    return "\n".join([*head, *body, f"return {names} : {', '.join(results)}", "}"])
