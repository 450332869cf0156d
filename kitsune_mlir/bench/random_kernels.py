"""Random kernels at the schedule level that have code on a target, as the text of a module: drawn by a seed.

A kernel is a product, sums of several or two of them from one left operand, or a group of rows. Drawn are sizes,
tiles, orders of the operands' dimensions, rings and their slots, which agent feeds which ring, how the loop over k goes
(one by one, in pairs, in a loop in a loop, the slot before released behind the next product), whether the right operand
stays in shared memory for all tiles, or is computed by an agent on the way, parts of k, CTAs on an SM, what follows.
Inputs are small whole numbers, so that results are exact in any order of additions.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

from kitsune_mlir.planning import target as targets

from .kernel_text import Text, module_text, numbers, tensor_type
from .random_products import RandomProduct

WARP = 32  # threads
REGISTERS = 65_536  # of an SM
_LINE = re.compile(r'"kitsune\.(acquire|commit|wait|release|copy|fill|product|settle)"')
_TOKENS = re.compile(r'("kitsune\.release"\(%\w+)(?:, %\w+)+\) : \((!kitsune\.slot<[^>]*>>?)(?:, !kitsune\.token)+\)')


@dataclass(frozen=True)
class RandomKernel:
    """`text` is a module whose @main is the kernel, `inputs` the shapes and types of its arguments, `outputs` the
    shapes of its results; the target has `sms` SMs."""

    seed: int
    text: str
    inputs: tuple[tuple[tuple[int, ...], str], ...]
    outputs: tuple[tuple[int, ...], ...]
    sms: int


def draw(seed: int, most_turns: int = 8, target: str = "sm_90a") -> RandomKernel:
    """The kernel of a seed for a target with tensor cores. `most_turns` bounds how many tiles a CTA takes."""
    rng = random.Random(seed)
    sms = rng.choice([1, 2, 4, 4])
    turns = rng.randint(1, most_turns)
    on = targets.load(target)
    made = _rows(rng, sms, turns, target) if rng.random() < 0.2 else RandomProduct(rng, sms, turns, on).text()
    return RandomKernel(seed, *made, sms)


def mutants(kernel: RandomKernel) -> Iterator[str]:
    """Texts in which one operation on slots is forgotten, stands elsewhere or waits for less, in random order: an
    endless supply, of which many are no valid IR. None of a kernel without rings."""
    rng = random.Random(kernel.seed)
    lines = kernel.text.split("\n")
    places = [number for number, line in enumerate(lines) if _LINE.search(line)]
    while places:
        changed, at, kind = list(lines), rng.choice(places), rng.randrange(4)
        if kind == 0:
            changed.pop(at)
        elif kind == 1:
            changed[at], changed[at + 1] = changed[at + 1], changed[at]
        elif kind == 2:
            changed.insert(rng.choice(places), changed.pop(at))
        else:
            changed[at] = _TOKENS.sub(r"\1) : (\2)", changed[at])
        if changed != lines:
            yield "\n".join(changed)


def _rows(
    rng: random.Random, sms: int, turns: int, target: str
) -> tuple[str, tuple[tuple[tuple[int, ...], str], ...], tuple[tuple[int, ...], ...]]:
    """A group of rows: of up to two statistics each is taken from what is there, and subtracted."""
    warps = rng.choice([1, 1, 2, 4, 8])
    lanes = WARP * warps if warps > 1 else 1 << rng.randrange(6)
    copies, ctas = (1 if warps > 1 else rng.choice([1, 2, 4, 8])), rng.choice([1, 2])
    vector = rng.choice([1, 2, 4, 8])
    columns = vector * rng.randint(1, max(1, lanes * rng.choice([1, 3, 48 // vector])))
    own = max(1, WARP // lanes)  # rows of a copy
    rows = max(1, sms * ctas * turns * copies * own - rng.randrange(copies * own))
    element, output = rng.choice(["f32", "bf16"]), rng.choice(["f32", "bf16"])
    is_open, has_bias, tells = rng.random() < 0.3, rng.random() < 0.3, rng.random() < 0.3
    shape = [None if is_open else rows, columns]
    types = [tensor_type(shape, element), *([tensor_type([columns], "f32")] if has_bias else [])]
    around, text = Text(), Text(count=1000)
    extent = around.constant(rows)
    if is_open:
        extent = "%rows"
        around.add(f"%rows = tensor.dim %A0, {around.constant(0)} : {types[0]}")
    tile = copies * own
    text.add(
        f'%lo, %hi, %st = "kitsune.tiles"({extent}) {{tile = {numbers([tile])}}} : (index) -> (index, index, index)'
    )
    text.add('"kitsune.agent"() ({\n^bb0(%copy: index):\nscf.for %t = %lo to %hi step %st {')
    first = text.index("muli", "%t", text.constant(tile))
    first = text.index("addi", first, text.index("muli", "%copy", text.constant(own)))
    zero, wide = text.constant(0), f"tensor<{own}x{columns}xf32>"
    box, one = f"tensor<{own}x{columns}x{element}>", f"tensor<{own}xf32>"
    (x,) = text.call("read", ["%A0", first, zero], "{dims = array<i64: 0, 1>}", f"({types[0]}, index, index) -> {box}")
    if element != "f32":
        x = text.generic([(x, box, "r, c")], f"%0 = arith.extf %x0 : {element} to f32\nlinalg.yield %0 : f32", wide)
    if has_bias:
        column = f"tensor<{columns}xf32>"
        (bias,) = text.call("read", ["%A1", zero], "{dims = array<i64: 0>}", f"({types[1]}, index) -> {column}")
        body = "%0 = arith.addf %x0, %x1 : f32\nlinalg.yield %0 : f32"
        x = text.generic([(x, wide, "r, c"), (bias, column, "c")], body, wide)
    statistic = None
    for _ in range(rng.choice([0, 1, 1, 2, 2])):
        join, start = rng.choice([("maximumf", "%least"), ("addf", "%nothing")])
        body = f"%0 = arith.{join} %x0, %o : f32\nlinalg.yield %0 : f32"
        statistic = text.generic([(x, wide, "r, c")], body, one, start)
        body = "%0 = arith.subf %x0, %x1 : f32\nlinalg.yield %0 : f32"
        x = text.generic([(x, wide, "r, c"), (statistic, one, "r")], body, wide)
    written = f"tensor<{own}x{columns}x{output}>"
    body = "linalg.yield %x0 : f32"
    if output != "f32":
        body = f"%0 = arith.truncf %x0 : f32 to {output}\nlinalg.yield %0 : {output}"
    x = text.generic([(x, wide, "r, c")], body, written)
    text.call("write", [x, first, zero], "{dims = array<i64: 0, 1>, index = 0}", f"({written}, index, index) -> ()", 0)
    results = [tensor_type(shape, output)]
    if statistic and tells:
        text.call("write", [statistic, first], "{dims = array<i64: 0>, index = 1}", f"({one}, index) -> ()", 0)
        results.append(tensor_type(shape[:1], "f32"))
    registers = min(248, REGISTERS // (copies * warps * WARP * ctas) // 8 * 8)
    text.add(
        f'}}\n}}) {{copies = {copies}, lanes = {lanes}, registers = {registers}, sym_name = "rows", vector = {vector}, '
        f"warps = {warps}}} : () -> ()"
    )
    whole = module_text(types, results, around, text, f", ctas = {ctas}" if ctas > 1 else "", target)
    inputs = (((rows, columns), element), *([((columns,), "f32")] if has_bias else []))
    return whole, inputs, ((rows, columns), (rows,))[: len(results)]
