"""Random scheduled kernels as text: agents that were one program, taken apart, and then perturbed.

An agent's program is a list of items: ("open", ring, side), ("close", ring, side) of the oldest open slot,
("if", items) where the kernel's flag is set, and ("loop", bounds, items, carried), where the slots of the `carried`
(ring, side) go from turn to turn. Bounds are "tiles", "m", known at run time, or a digit. A ring is (slots, producer,
consumer).
"""

TILE = "tensor<2x2xf32>"
BOUNDS = {"tiles": "%lo to %hi step %st", "m": "%c0 to %m step %c1"}
BOUNDS |= {f"{n}": f"%c0 to %c{n} step %c1" for n in range(10)}
CONSTANTS = "\n".join(f"%c{n} = arith.constant {n} : index" for n in range(10))
HEAD = f"""!s = !kitsune.slot<{TILE}>
!a = !kitsune.acc<{TILE}>
!t = !kitsune.token
func.func @f(%A: {TILE}, %n: index, %m: index, %flag: i1) {{
  {CONSTANTS}
  %p = "kitsune.kernel"() ({{
    %lo, %hi, %st = "kitsune.tiles"(%n) {{tile = array<i64: 1>}} : (index) -> (index, index, index)
"""


def draw_schedule(rng):
    """A kernel's text."""
    agents = [f"a{i}" for i in range(rng.choice([2, 2, 3]))]
    rings = {}
    for i in range(rng.choice([1, 2, 2, 3])):
        ends = rng.sample(agents, 2) if rng.random() < 0.95 else [agents[0]] * 2
        rings[f"r{i}"] = (rng.choice([1, 1, 2, 2, 3, 4]), *ends)
    programs = _programs(rng, agents, rings, rng.choice([1, 2, 2, 3]))
    for _ in range(rng.choice([0, 0, 1, 1, 2, 3])):
        _perturb(rng, programs[rng.choice(agents)])
    return text_of(rings, programs, rng)


def _programs(rng, agents, rings, depth):
    """What each agent does, one piece of the common program after another."""
    programs = {agent: [] for agent in agents}
    for _ in range(rng.choice([1, 1, 2, 3])):
        if depth and rng.random() < 0.7:
            inner = _programs(rng, agents, rings, depth - 1)
            bounds = rng.choice(["tiles", "tiles", "m", "1", "2", "3"])
            carried = [r for r in rings if rng.random() < 0.25]
            for agent in agents:
                own = [(r, side) for r in carried for side in _sides(rings[r], agent)]
                # The consumer keeps its slot from one turn to the next; the producer fills one more.
                kept = [(r, side) for r, side in own if side == "consumer"]
                body = inner[agent] + [item for r, side in own for item in (("open", r, side), ("close", r, side))]
                before = [("open", r, side) for r, side in own]
                before += [("close", r, side) for r, side in own if side == "producer"]
                after = [("close", r, side) for r, side in kept]
                programs[agent] += [*before, ("loop", bounds, body, kept), *after]
        elif rng.random() < 0.1:
            inner = _programs(rng, agents, rings, 0)
            for agent in agents:
                programs[agent].append(("if", inner[agent]))
        else:
            for ring in rng.sample(list(rings), rng.randint(1, len(rings))):
                for agent in agents:
                    for side in _sides(rings[ring], agent):
                        programs[agent] += [("open", ring, side), ("close", ring, side)]
    return programs


def _sides(ring, agent):
    return [side for side, end in zip(("producer", "consumer"), ring[1:], strict=True) if end == agent]


def _perturb(rng, items):
    """One small change somewhere: neighbours swapped, an item moved or dropped, other bounds."""
    bodies = [next(part for part in item if isinstance(part, list)) for item in items if item[0] in ("loop", "if")]
    if bodies and rng.random() < 0.6:
        _perturb(rng, rng.choice(bodies))
        return
    if len(items) < 2:
        return
    i = rng.randrange(len(items) - 1)
    kind = rng.random()
    if kind < 0.7:
        items[i], items[i + 1] = items[i + 1], items[i]
    elif kind < 0.85:
        items.insert(rng.randrange(len(items)), items.pop(i))
    elif items[i][0] == "loop":
        items[i] = ("loop", rng.choice(list(BOUNDS)), *items[i][2:])
    elif kind < 0.9:
        items.pop(i)
    else:
        items.insert(rng.randrange(len(items)), items[i])


def text_of(rings, programs, rng=None):
    """A kernel's text. With `rng` an agent may have two copies, and a token may be forgotten."""
    lines = [HEAD]
    for name, (slots, *_) in rings.items():
        lines.append(
            f'%{name} = "kitsune.alloc_ring"() {{box = "rows", share = "all", space = "smem", sym_name = "{name}"}} : '
            f"() -> !kitsune.ring<{TILE}, {slots} : i64>"
        )
    for agent, items in programs.items():
        copies = 2 if rng and rng.random() < 0.5 and all(ring[1] != agent for ring in rings.values()) else 1
        lines.append('"kitsune.agent"() ({\n^bb0(%copy: index):')
        writer = _Writer(rng, rings, {key: [] for r in rings for key in ((r, "producer"), (r, "consumer"))})
        lines += [*writer.block(items), *writer.rest()]
        lines.append(f'}}) {{copies = {copies}, registers = 40, sym_name = "{agent}", warps = 1}} : () -> ()')
    return "\n".join([*lines, '}) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs\nreturn\n}'])


class _Writer:
    """Names for slots and tokens. `open` holds (slot, token) of each ring's open slots, the oldest first."""

    def __init__(self, rng, rings, open_):
        self.rng, self.rings, self.open, self.count = rng, rings, open_, 0

    def name(self):
        self.count += 1
        return f"%v{self.count}"

    def block(self, items):
        return [line for item in items for line in self.item(item)]

    def item(self, item):
        match item:
            case ("open", ring, side):
                return self.begin(ring, side)
            case ("close", ring, side):
                return self.end(ring, side)
            case ("loop", bounds, body, carried):
                return self.loop(bounds, body, [key for key in carried if self.open[key]])
            case ("if", body):
                outer, self.open = self.open, {key: [] for key in self.open}
                lines, self.open = self.block(body), outer
                return ["scf.if %flag {", *lines, "}"]

    def begin(self, ring, side):
        slot, token = self.name(), self.name()
        self.open[ring, side].append((slot, token))
        kind = f"!kitsune.ring<{TILE}, {self.rings[ring][0]} : i64>"
        name = "acquire" if side == "producer" else "wait"
        lines = [f'{slot} = "kitsune.{name}"(%{ring}) : ({kind}) -> !s']
        if side == "producer":
            dims = '{dims = array<i64: 0, 1>, engine = "tma"}'
            lines.append(f'{token} = "kitsune.copy"({slot}, %A, %c0, %c0) {dims} : (!s, {TILE}, index, index) -> !t')
        else:
            zero, total = self.name(), self.name()
            lines.append(f'{zero} = "kitsune.sums"() : () -> !a')
            product = f'"kitsune.product"({zero}, {slot}, {slot}) {{engine = "wgmma"}} : (!a, !s, !s) -> (!a, !t)'
            lines.append(f"{total}, {token} = {product}")
        return lines

    def end(self, ring, side):
        if not self.open[ring, side]:
            return []
        slot, token = self.open[ring, side].pop(0)
        name = "commit" if side == "producer" else "release"
        if self.rng and self.rng.random() < 0.004:
            return [f'"kitsune.{name}"({slot}) : (!s) -> ()']
        return [f'"kitsune.{name}"({slot}, {token}) : (!s, !t) -> ()']

    def loop(self, bounds, body, carried):
        inits = [value for key in carried for value in self.open[key][0]]
        arguments, results = [self.name() for _ in inits], self.name()
        outer, self.open = self.open, {key: [] for key in self.open}
        for i, key in enumerate(carried):
            outer[key] = outer[key][1:]
            self.open[key] = [tuple(arguments[2 * i : 2 * i + 2])]
        lines = self.block(body)
        yields = []
        for key in carried:
            yields += self.open[key].pop(0) if self.open[key] else inits[:2]
        self.open = outer
        for i, key in enumerate(carried):
            self.open[key].insert(0, (f"{results}#{2 * i}", f"{results}#{2 * i + 1}"))
        if not carried:
            return [f"scf.for {self.name()} = {BOUNDS[bounds]} {{", *lines, "}"]
        types = ", ".join(["!s, !t"] * len(carried))
        pairs = ", ".join(f"{a} = {i}" for a, i in zip(arguments, inits, strict=True))
        head = f"{results}:{len(inits)} = scf.for {self.name()} = {BOUNDS[bounds]} iter_args({pairs}) -> ({types}) {{"
        return [head, *lines, f"scf.yield {', '.join(yields)} : {types}", "}"]

    def rest(self):
        """What perturbation left open is closed."""
        return [line for ring, side in self.open for _ in list(self.open[ring, side]) for line in self.end(ring, side)]
