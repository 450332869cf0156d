"""Random kernels of products at the schedule level: see random_kernels.py."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from kitsune_mlir.dialects.schedule import engines
from kitsune_mlir.planning.target import Target

from .kernel_text import Text, module_text, numbers, tensor_type
from .random_epilogues import FORMS, followed
from .random_loops import PlainLoop, ProductLoop

CHUNK = 64  # columns of k in a slot
ROWS = 64  # of a tile that a copy multiplies, or twice as many without warpgroups
WARPGROUP = 128  # threads
REGISTERS, SHARED = 65_536, 227 * 1024  # of an SM
FEED_REGISTERS, MAKE_REGISTERS = 24, 88
LEAST_OTHERS = 72  # registers of a thread besides its sums
LEAST_AT_LAUNCH = 26  # registers besides a product's sums that ptxas wants before agents share theirs out


class RandomProduct:
    """Draws one, tiles and all, that fits an SM."""

    def __init__(self, rng: random.Random, sms: int, turns: int, target: Target):
        self.rng, self.target = rng, target
        self.engines = engines(target.products)
        self.warpgroups = target.has_warpgroups
        while True:
            self._draw(sms, turns)
            if self._fits():
                return

    def _draw(self, sms: int, turns: int) -> None:
        rng = self.rng
        self.ctas = rng.choice([1, 1, 1, 2])
        self.copies = rng.choice([1, 1, 2, 2, 3])
        self.across = {"left": rng.random() < 0.4, "right": rng.random() < 0.5}
        self.columns = 64 * rng.randint(1, 4) if self.across["right"] else 8 * rng.randint(1, 32)
        self.rows = ROWS
        if not self.warpgroups:
            self.columns, self.rows = -(-self.columns // 16) * 16, rng.choice([ROWS, 2 * ROWS])
        self.form = rng.choice(FORMS)
        self.sums = rng.choice([1, 1, 1, 2]) if self.form in ("plain", "relu") else 1
        self.terms = rng.choice([1, 1, 1, 2]) if self.sums == 1 else 1
        self.one_ring = self.terms == 2 and rng.random() < 0.5
        self.element = rng.choice(["bf16", "f16"])
        self.output = rng.choice(["f32", self.element])
        self.chunks = rng.choice([1, 2, 3, 3, 5, 8])
        self.stays = self.chunks <= 3 and self.sums == self.terms == 1 and rng.random() < 0.2
        self.split = rng.choice([2, 3]) if not self.stays and self.form == "plain" and rng.random() < 0.3 else 1
        self.batch = rng.choice([0, 0, 1, 3]) if not self.stays else 0
        self.k = CHUNK * self.chunks * self.split - 8 * rng.randrange(8)
        tiles = max(1, sms * self.ctas * turns // (max(self.batch, 1) * self.split))
        whole = self.stays or self.form == "less the largest"
        across = 1 if whole else min(tiles, rng.choice([1, 1, 2, 3]))
        self.n = self.columns * across - (0 if self.form == "less the largest" else 8 * rng.randrange(4))
        self.n = max(self.n, 8)
        self.m = self.copies * self.rows * max(1, tiles // across) - rng.randrange(self.rows)
        self.m = -(-self.m // 8) * 8 if self.across["left"] else self.m
        self.is_open = not self.batch and self.split == 1 and not self.across["left"] and rng.random() < 0.3
        self.element_out = "f32" if self.split > 1 else self.output
        alone = self.sums == self.terms == 1 and not self.stays
        whole = self.across["right"] or self.columns == CHUNK
        self.makes = self.warpgroups and alone and whole and rng.random() < 0.4
        self.rings = self._rings()
        self.feeds = 2 if len(self.rings) > 1 and rng.random() < 0.3 else 1
        self.loops = ("behind",) * 2 if not self.stays and rng.random() < 0.4 else (self._loop(), self._loop())

    def _loop(self) -> str:
        """How an agent goes over the chunks of a tile: producer and consumer may do so differently where they are
        constantly many, and the proof goes over them one by one."""
        known = [form for form, each in (("one", 1), ("pairs", 2), ("nested", 3)) if self.chunks % each == 0]
        return self.rng.choice(known) if self.split == 1 and not self.stays else "one"

    def _rings(self) -> dict[str, tuple[str, int]]:
        """By name, which operand's chunks a ring holds, and its slots."""
        names = {"left0": "left", "right0": "right"}
        if self.terms == 2 and not self.one_ring:
            names |= {"left1": "left", "right1": "right"}
        if self.sums == 2:
            names |= {"right1": "right"}
        rng = self.rng
        slots = {name: rng.choice([1, 2, 2, 3, 4, 5]) for name in names}
        if self.stays:
            slots["right0"] = self.chunks
        if self.makes:
            names["made"], slots["made"] = "right", rng.choice([1, 2, 3])
        return {name: (operand, slots[name]) for name, operand in names.items()}

    @property
    def threads(self) -> int:
        return WARPGROUP * (self.feeds + self.copies + self.makes)

    def _fits(self) -> bool:
        nbytes = sum(slots * (self._slot_rows(operand) * 128 + 16) for operand, slots in self.rings.values())
        given = REGISTERS // (self.threads * self.ctas) // 8 * 8
        sums = self.sums * self.columns * self.rows // WARPGROUP
        if not self.warpgroups:
            self.registers = self.feed_registers = min(248, given)
            enough = self.registers >= sums + LEAST_OTHERS
            return (nbytes + 1024) * self.ctas <= self.target.shared_bytes and enough
        self.feed_registers = FEED_REGISTERS
        rest = given * self.threads - WARPGROUP * (self.feeds * FEED_REGISTERS + self.makes * MAKE_REGISTERS)
        self.registers = min(240, rest // (self.copies * WARPGROUP) // 8 * 8)
        sums *= 2 if self.form != "plain" else 1
        enough = self.registers >= sums + LEAST_OTHERS and given >= self.columns // 2 + LEAST_AT_LAUNCH
        return (nbytes + 1024) * self.ctas <= SHARED and enough

    def _slot_rows(self, operand: str) -> int:
        rows = self.copies * self.rows if operand == "left" else self.columns
        return -(-rows // 8) * 8

    # ---- the text

    def text(self) -> tuple[str, tuple[Any, ...], tuple[tuple[int, ...], ...]]:
        lead = [self.batch] if self.batch else []
        m = None if self.is_open else self.m
        left = [*lead, self.k, self.m] if self.across["left"] else [*lead, m, self.k]
        right = [*lead, self.k, self._stride(self.n)] if self.across["right"] else [*lead, self.n, self.k]
        products = max(self.terms, self.sums)
        inputs = [(left, self.element)] + [(right, self.element)]
        self.operands = {"left0": 0, "right0": 1}
        if products == 2:
            self.operands["right1"] = len(inputs)
            inputs.append((right, self.element))
        if self.terms == 2:
            self.operands["left1"] = len(inputs)
            inputs.append((left, self.element))
        self.more = len(inputs)
        if self.form == "bias":
            inputs.append(([self.n], "f32"))
        if self.form == "residual":
            inputs.append(([*lead, m, self.n], self.element))
        self.types = [tensor_type(shape, element) for shape, element in inputs]
        parts = [self.split] if self.split > 1 else []
        result = [*parts, *lead, m, self.n]
        around, body = Text(), Text(count=1000)
        self._kernel(around, body)
        attributes = f", ctas = {self.ctas}" if self.ctas > 1 else ""
        text = module_text(
            self.types, [tensor_type(result, self.element_out)], around, body, attributes, self.target.name
        )

        def known(shape: Sequence[int | None]) -> tuple[int, ...]:
            return tuple(self.m if size is None else size for size in shape)

        return text, tuple((known(shape), element) for shape, element in inputs), (known(result),)

    @staticmethod
    def _stride(size: int) -> int:
        return -(-size // 8) * 8

    def _kernel(self, around: Text, text: Text) -> None:
        sizes = {"s": 1, "b": 1, "m": self.copies * self.rows, "n": self.columns}
        self.roles = [
            role for role, is_there in (("s", self.split > 1), ("b", self.batch), ("m", 1), ("n", 1)) if is_there
        ]
        extents = {"s": self.split, "b": self.batch, "n": self.n, "m": self.m}
        names = [around.constant(extents[role]) for role in self.roles]
        if self.is_open:
            names[self.roles.index("m")] = "%rows"
            around.add(f"%rows = tensor.dim %A0, {around.constant(0)} : {self.types[0]}")
        index = ", ".join(["index"] * len(names))
        tile = numbers([sizes[role] for role in self.roles])
        text.add(
            f'%lo, %hi, %st = "kitsune.tiles"({", ".join(names)}) {{tile = {tile}}} : ({index}) -> '
            "(index, index, index)"
        )
        self.counts = {role: -(-extents[role] // sizes[role]) for role in self.roles}
        self.sizes = sizes
        for name, (operand, _) in self.rings.items():
            box = "columns" if self.across[operand] and not self._is_by_rows(name) else "rows"
            share = "split" if operand == "left" else "all"
            text.add(
                f'%{name} = "kitsune.alloc_ring"() {{box = "{box}", share = "{share}", space = "smem", sym_name = '
                f'"{name}"}} : () -> {self._ring_type(name)}'
            )
        steps = self._steps()
        if self.rng.random() < 0.2:
            self.rng.shuffle(steps)
        feeds = (
            [steps] if self.feeds == 1 else [[s for s in steps if ("left" in s[0]) == left] for left in (True, False)]
        )
        for number, own in enumerate(feeds):
            self._agent(text, f"feed{number}", 1, self.feed_registers, lambda own=own: self._feed(text, own))
        self._agent(text, "math", self.copies, self.registers, lambda: self._math(text))
        if self.makes:
            self._agent(text, "make", 1, MAKE_REGISTERS, lambda: self._make(text))

    def _steps(self) -> list[tuple[str, int]]:
        """What is copied for a chunk, in order: (ring, number of the tensor)."""
        if self.one_ring:
            found = [("left0", "left0"), ("right0", "right0"), ("left0", "left1"), ("right0", "right1")]
        else:
            found = [(name, name) for name in self.rings if name != "made"]
        return [(ring, self.operands[name]) for ring, name in found]

    def _is_by_rows(self, name: str) -> bool:
        """Whether a ring's boxes lie along rows whichever way its operand does: threads read them, or fill them."""
        return self.makes and self.rings[name][0] == "right"

    @property
    def turned(self) -> bool:
        """Whether products take the right operand as it lies."""
        return self.makes and self.across["right"]

    @property
    def multiplied(self) -> str:
        """The ring out of which the right operand is multiplied first."""
        return "made" if self.makes else "right0"

    def _tile_type(self, name: str) -> str:
        operand = self.rings[name][0]
        rows = self.copies * self.rows if operand == "left" else self.columns
        shape = (CHUNK, rows) if operand == "right" and self.turned else (rows, CHUNK)
        return f"tensor<{shape[0]}x{shape[1]}x{self.element}>"

    def _ring_type(self, name: str) -> str:
        return f"!kitsune.ring<{self._tile_type(name)}, {self.rings[name][1]} : i64>"

    def slot_type(self, name: str) -> str:
        return f"!kitsune.slot<{self._tile_type(name)}>"

    @staticmethod
    def _agent(text: Text, name: str, copies: int, registers: int, body: Any) -> None:
        text.add('"kitsune.agent"() ({\n^bb0(%copy: index):')
        body()
        text.add(f'}}) {{copies = {copies}, registers = {registers}, sym_name = "{name}", warps = 4}} : () -> ()')

    def _over_tiles(self, text: Text, body: Any) -> None:
        tile = text.name()
        text.add(f"scf.for {tile} = %lo to %hi step %st {{")
        at, rest = {}, tile
        for role in reversed(self.roles):
            number = rest
            if role != self.roles[0]:
                number = text.index("remui", rest, text.constant(self.counts[role]))
                rest = text.index("divui", rest, text.constant(self.counts[role]))
            at[role] = number if self.sizes[role] == 1 else text.index("muli", number, text.constant(self.sizes[role]))
        body(at)
        text.add("}")

    def _over_chunks(self, text: Text, at: dict[str, str], form: str, chunk: Any) -> None:
        """`chunk` emits what is done for the chunk at an offset of k."""
        part = CHUNK * self.chunks
        if self.split > 1:
            first = text.index("muli", at["s"], text.constant(part))
            last = text.index("minui", text.index("addi", first, text.constant(part)), text.constant(self.k))
        else:
            first, last = text.constant(0), text.constant(part)
        each = {"one": 1, "behind": 1, "pairs": 2, "nested": 3}[form]
        if form == "behind":
            chunk(first)
            first = text.index("addi", first, text.constant(CHUNK))
        k = text.name()
        chunk.begin(f"scf.for {k} = {first} to {last} step {text.constant(CHUNK * each)}")
        if form == "nested":
            inner = text.name()
            chunk.begin(
                f"scf.for {inner} = {text.constant(0)} to {text.constant(CHUNK * each)} step {text.constant(CHUNK)}"
            )
            chunk(text.index("addi", k, inner))
            chunk.end()
        else:
            for number in range(each):
                chunk(k if not number else text.index("addi", k, text.constant(CHUNK * number)))
        chunk.end()

    def _feed(self, text: Text, steps: Sequence[tuple[str, int]]) -> None:
        if self.stays and ("right0", 1) in steps:
            for number in range(self.chunks):
                self._copy(text, "right0", 1, {"n": text.constant(0), "k": text.constant(CHUNK * number)})
            steps = [step for step in steps if step[0] != "right0"]
            if not steps:
                return

        def tile(at: dict[str, str]) -> None:
            def one(k: str) -> None:
                for ring, number in steps:
                    self._copy(text, ring, number, at | {"k": k})

            self._over_chunks(text, at, self.loops[0], PlainLoop(text, one))

        self._over_tiles(text, tile)

    def _copy(self, text: Text, ring: str, number: int, at: dict[str, str]) -> None:
        slot_type, operand = self.slot_type(ring), self.rings[ring][0]
        own = "m" if operand == "left" else "n"
        roles = [*("b" if self.batch else ""), *(["k", own] if self.across[operand] else [own, "k"])]
        (slot,) = text.call("acquire", [f"%{ring}"], "", f"({self._ring_type(ring)}) -> {slot_type}")
        offsets = [at[role] for role in roles]
        axes = ["k", own] if operand == "right" and self.turned else [own, "k"]
        attributes = f'{{dims = {numbers([roles.index(role) for role in axes])}, engine = "{self.engines[0]}"}}'
        types = ", ".join([slot_type, self.types[number], *["index"] * len(offsets)])
        (token,) = text.call("copy", [slot, f"%A{number}", *offsets], attributes, f"({types}) -> !kitsune.token")
        text.call("commit", [slot, token], "", f"({slot_type}, !kitsune.token) -> ()", 0)

    def _math(self, text: Text) -> None:
        acc = f"!kitsune.acc<tensor<{self.rows}x{self.columns}xf32>>"
        kept = []
        if self.stays:
            kept = [self.take(text, "right0") for _ in range(self.chunks)]

        def tile(at: dict[str, str]) -> None:
            begun = [text.call("sums", [], "", f"() -> {acc}")[0] for _ in range(self.sums)]
            chunks = ProductLoop(self, text, acc, begun, kept, self.loops[1] == "behind")
            if self.stays:
                for number in range(self.chunks):
                    chunks(str(number))
            else:
                self._over_chunks(text, at, self.loops[1], chunks)
            first = self.rng.random() < 0.5
            if first:
                chunks.close()
            self._finish(text, at, chunks.sums, acc, () if first else (chunks.close,))

        self._over_tiles(text, tile)
        for slot in kept:
            text.call("release", [slot], "", f"({self.slot_type('right0')}) -> ()", 0)

    def _make(self, text: Text) -> None:
        """Chunks of the right operand, of which what is negative is left out."""
        slot, tile = self.slot_type("made"), self._tile_type("made")
        first, late = self.rng.random() < 0.5, self.rng.random() < 0.5

        def acquire() -> str:
            return text.call("acquire", ["%made"], "", f"({self._ring_type('made')}) -> {slot}")[0]

        def one(_: str) -> None:
            into = acquire() if first else ""
            taken = self.take(text, "right0")
            (read,) = text.call("read", [taken], "", f"({slot}) -> {tile}")
            if not late:
                text.call("release", [taken], "", f"({slot}) -> ()", 0)
            into = into or acquire()
            lines = [
                f"%w = arith.extf %x0 : {self.element} to f32",
                "%m = arith.maximumf %w, %nothing : f32",
                f"%t = arith.truncf %m : f32 to {self.element}",
                f"linalg.yield %t : {self.element}",
            ]
            made = text.generic([(read, tile, "r, c")], "\n".join(lines), tile)
            text.call("fill", [into, made, text.constant(0)], "", f"({slot}, {tile}, index) -> ()", 0)
            text.call("commit", [into], "", f"({slot}) -> ()", 0)
            if late:
                text.call("release", [taken], "", f"({slot}) -> ()", 0)

        self._over_tiles(text, lambda at: self._over_chunks(text, at, self.loops[0], PlainLoop(text, one)))

    def take(self, text: Text, ring: str) -> str:
        return text.call("wait", [f"%{ring}"], "", f"({self._ring_type(ring)}) -> {self.slot_type(ring)}")[0]

    def _finish(self, text: Text, at: dict[str, str], sums: Sequence[str], acc: str, then: Sequence[Any]) -> None:
        """Settles the sums, does `then`, and writes what follows."""
        kind = f"tensor<{self.rows}x{self.columns}xf32>"
        tiles = [text.call("settle", [one], "", f"({acc}) -> {kind}")[0] for one in sums]
        for each in then:
            each()
        half = text.index("muli", "%copy", text.constant(self.rows))
        own = at | {"m": text.index("addi", at["m"], half)}
        value = followed(self, text, own, tiles, kind)
        offsets = [own[role] for role in self.roles]
        dims = [self.roles.index("m"), self.roles.index("n")]
        written = f"tensor<{self.rows}x{self.columns}x{self.element_out}>"
        types = ", ".join([written, *["index"] * len(offsets)])
        text.call("write", [value, *offsets], f"{{dims = {numbers(dims)}, index = 0}}", f"({types}) -> ()", 0)
