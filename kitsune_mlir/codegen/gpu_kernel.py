"""Kernels of the plain path: a gpu.func built op by op, the host values it uses, and its launch.

    kernel = Kernel(kernels, origin, "generic")
    with kernel.body():                       # builds inside the gpu.func
        x = kernel.inside(host_memref)        # a host value, as the kernel sees it
        ...
    kernel.launch(blocks)                     # gpu.launch_func where `origin` stands

Memref arguments of a kernel are passed as expanded descriptors (see host_program.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from math import prod

from kitsune_mlir import determinism
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.generics import all_hold
from kitsune_mlir.mlir import arith, gpu, ir, location, memref, replace_op, scf, walk
from kitsune_mlir.operations import producer

from .hopper import cluster
from .index_checks import COMPUTED, KNOWN, Checks, origin
from .pipeline import device

MODULE = "kernels"
SHARED = "workgroup_attributions"  # of a kernel, how many of its block's last arguments are in shared memory
STATIC = (
    48 << 10
)  # bytes of one of these, at most; a larger one, of which a kernel has one, is as large as launches say
PRICED = "kitsune.predicted_us"  # of a kernel: microseconds of a launch
THREADS = 256  # of a block that has one element, or one warp a result, to compute
WARP = 32

Size = int | ir.Value
See = Callable[[ir.Value], ir.Value]  # what brings a host value to where it is needed


class KernelNames:
    """Names of kernels, of which those with the same code are kept once."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}  # by code
        self._counts: dict[str, int] = {}  # by label

    def settle(self, function: ir.Operation, label: str) -> str:
        """Names a finished kernel, or erases it when there is one with its code; gives the name."""
        code = function.get_asm(use_local_scope=True)
        if code in self._names:
            function.erase()
        else:
            count = self._counts.get(label, 0)
            self._counts[label] = count + 1
            self._names[code] = f"{label}_{count}"
            function.attributes["sym_name"] = ir.StringAttr.get(self._names[code])
        return self._names[code]


class Kernels:
    """The gpu.module @kernels of a module; kernels with the same code are kept once. `adds_words`: the chip adds
    several neighbouring numbers to memory by one operation; `has_tensor_cores`: it has mma.sync."""

    def __init__(self, module: ir.Module, adds_words: bool = False, has_tensor_cores: bool = False):
        self.adds_words, self.has_tensor_cores = adds_words, has_tensor_cores
        self.names = KernelNames()
        self.checks, self.deterministic = Checks(), determinism.of(module)
        module.operation.attributes["gpu.container_module"] = ir.UnitAttr.get(module.context)
        with module.context, ir.Location.unknown(), ir.InsertionPoint(module.body):
            self.module = gpu.GPUModuleOp(MODULE)
            self.module.bodyRegion.blocks.append()

    @property
    def block(self) -> ir.Block:
        return self.module.bodyRegion.blocks[0]

    def prune(self, module: ir.Module) -> None:
        """Erases the kernels that nobody launches, and adds what the others need beside them."""
        launched = {str(op.attributes["kernel"]) for op in walk(module, "gpu.launch_func")}
        for op in list(self.block.operations):
            if f"@{MODULE}::@{op.name.value}" not in launched:
                op.erase()
        self.checks.write(self.module.operation)


class Kernel:
    """One kernel that computes what the host operation `origin` does. `origin` stays where it is."""

    def __init__(self, kernels: Kernels, origin: ir.Operation, label: str, threads: int = THREADS):
        self._kernels, self._origin, self._label, self.threads = kernels, origin, label, threads
        self._captured: list[ir.Value] = []
        self._shared: list[ir.Operation] = []
        self._inside: dict[int, ir.Value] = {}
        with origin.context, origin.location, ir.InsertionPoint(kernels.block):
            none = ir.FunctionType.get([], [])
            self._function = gpu.GPUFuncOp(none, "kernel", kernel=True, known_block_size=[threads, 1, 1])
            self._entry = self._function.add_entry_block()
        with origin.context, origin.location, ir.InsertionPoint(self._entry):
            self._first = arith.ConstantOp.create_index(0).operation  # what `inside` brings stands before it
            self._end = gpu.ReturnOp([]).operation

    @contextlib.contextmanager
    def body(self) -> Iterator[None]:
        """Builds at the kernel's end."""
        with self._origin.context, self._origin.location, ir.InsertionPoint(self._end):
            yield

    def inside(self, value: ir.Value) -> ir.Value:
        """The kernel's form of a host value: an argument; a copy of a constant; for what is computed from
        elements of tensors, which only the device has, the same computation."""
        key = hash(value)
        if key not in self._inside:
            self._inside[key] = self._bring(value)
        return self._inside[key]

    def shared(self, shape: Sequence[int], element: ir.Type) -> ir.Value:
        """A memref in the block's shared memory."""
        space = ir.Attribute.parse("#gpu.address_space<workgroup>")
        kind = ir.MemRefType.get(list(shape), element, memory_space=space)
        self._shared.append(memref.AllocaOp(kind, [], []).operation)  # until `launch`
        return self._shared[-1].results[0]

    def priced(self, us: float) -> None:
        """Says what a launch at the example's sizes takes: more is known than what its code shows."""
        self._function.attributes[PRICED] = ir.FloatAttr.get_f64(us)

    def in_clusters(self, ctas: int) -> None:
        """Has so many neighbouring blocks run at once, which reach one another's shared memory (hopper/cluster.py)."""
        if ctas > 1:
            cluster.set_size(self._function, ctas)

    def _bring(self, value: ir.Value) -> ir.Value:
        owner = producer(value)
        if owner is not None and (owner.name == "arith.constant" or depends_on_data(value)):
            operands = [self.inside(operand) for operand in owner.operands]
            copy = owner.clone(ir.InsertionPoint(self._first))
            for i, operand in enumerate(operands):
                copy.operands[i] = operand
            return copy.results[_position(value)]
        self._captured.append(value)
        return self._entry.add_argument(value.type, self._origin.location)

    def check_load(self, loaded: ir.Operation, copy: ir.Operation) -> ir.Value:
        """The kernel's copy of a memref.load whose indices a tensor may hold, or a word from there on, made safe; what
        it gives. An index out of range is reported, and 0 is in its place; nothing is loaded where a dimension has
        no elements. That is known before the index is, so that loads do not wait for one another."""
        buffer, *indices = copy.operands
        shape, there = ir.MemRefType(buffer.type).shape, None
        kinds = [origin(index, count) for index, count in zip(list(loaded.operands)[1:], shape, strict=True)]
        if all(kind == KNOWN for kind in kinds):
            return copy.results[0]
        with ir.InsertionPoint(copy), copy.location:
            for axis, (kind, index) in enumerate(zip(kinds, indices, strict=True)):
                if kind == KNOWN:
                    continue
                fits = self._fits(index, extent(buffer, axis), loaded if kind != COMPUTED else None)
                copy.operands[1 + axis] = arith.select(fits, index, as_value(0))
                if shape[axis] <= 0:  # open, or none
                    some = arith.cmpi(arith.CmpIPredicate.ne, as_value(extent(buffer, axis)), as_value(0))
                    there = all_hold(there, some)
            if there is None:
                return copy.results[0]
            kind = copy.results[0].type
            guard = scf.IfOp(there, [kind], has_else=True)
        with copy.location:
            with ir.InsertionPoint(guard.then_block):
                end = scf.YieldOp(copy.results)
            copy.move_before(end.operation)
            with ir.InsertionPoint(guard.else_block):
                scf.YieldOp([_zero(kind)])
        return guard.results[0]

    def check_row(self, row: ir.Value, size: Size) -> ir.Value:
        """Whether a scatter's row is one of so many. It is reported where it is not."""
        return self._fits(row, size, self._origin)

    def _fits(self, index: ir.Value, size: Size, checked: ir.Operation | None) -> ir.Value:
        """Whether index < size; it is reported where it is not, if an operation is checked so."""
        fits, checks = device.below(index, as_value(size)), self._kernels.checks
        if checked is not None:
            checks.report(device.flipped(fits), checks.number_at(location(checked.location)))
        return fits

    def launch(self, blocks: Size | Callable[[], Size]) -> ir.Operation:
        """Ends the kernel and launches it on `blocks` (a host value, or what makes one there) blocks, before
        `origin`."""
        types = [argument.type for argument in self._entry.arguments]
        with self._origin.context, self._origin.location, ir.InsertionPoint(self._origin):
            kind = ir.FunctionType.get(types, [])
            self._function.operation.attributes["function_type"] = ir.TypeAttr.get(kind)
            in_shared_memory(self._function.operation, self._shared)
            name = self._kernels.names.settle(self._function.operation, self._label)
            one = arith.ConstantOp.create_index(1).result
            grid = (as_value(blocks() if callable(blocks) else blocks), one, one)
            block = (as_value(self.threads), one, one)
            return gpu.LaunchFuncOp([MODULE, name], grid, block, self._captured).operation


def dynamic_bytes(function: ir.Operation) -> int:
    """The bytes of a kernel's buffer in shared memory that is larger than those that need not be asked for."""
    count = ir.IntegerAttr(function.attributes[SHARED]).value if SHARED in function.attributes else 0
    arguments = list(function.regions[0].blocks[0].arguments)
    kinds = [ir.MemRefType(argument.type) for argument in arguments[len(arguments) - count :]]
    return max((own for kind in kinds if (own := prod(kind.shape) * kind.element_type.width // 8) > STATIC), default=0)


def in_shared_memory(function: ir.Operation, buffers: Sequence[ir.Operation]) -> None:
    """Makes allocations in a kernel arguments of its block behind its own, which are in shared memory (gpu.func)."""
    for buffer in buffers:
        argument = function.regions[0].blocks[0].add_argument(buffer.results[0].type, buffer.location)
        replace_op(buffer, argument)
    if buffers:
        count = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), len(buffers))
        function.attributes[SHARED] = count
        # LLVM loads words of 16 bytes from large arrays, but declares those to begin at multiples of an element.
        aligned = ir.Attribute.parse(f"[{', '.join(['{llvm.align = 16 : i64}'] * len(buffers))}]")
        function.attributes["workgroup_attrib_attrs"] = aligned


def _zero(kind: ir.Type) -> ir.Value:
    """Zero of a type, or as many as a vector has."""
    if isinstance(kind, ir.VectorType):
        element = kind.element_type
        one = ir.FloatAttr.get(element, 0.0) if isinstance(element, ir.FloatType) else ir.IntegerAttr.get(element, 0)
        return arith.ConstantOp(kind, ir.DenseElementsAttr.get_splat(kind, one)).result
    return arith.constant(kind, 0.0 if isinstance(kind, ir.FloatType) else 0)


def _position(value: ir.Value) -> int:
    return ir.OpResult(value).result_number


def depends_on_data(value: ir.Value) -> bool:
    """Whether a scalar of the host function is computed from elements of tensors."""
    if isinstance(value.type, ir.MemRefType) or isinstance(value.owner, ir.Block):
        return False
    owner = value.owner.operation
    if owner.name == "memref.load":
        return True
    if not owner.name.startswith(("arith.", "math.")):
        if owner.name.startswith("memref.") or owner.name == "affine.apply":
            return False  # sizes
        raise UnsupportedError(
            f"{location(owner.location)}: a value of {owner.name} decides what the host does next, and only the GPU"
            " knows it"
        )
    return any(depends_on_data(operand) for operand in owner.operands)


def as_value(size: Size) -> ir.Value:
    """A size as an index value."""
    return arith.ConstantOp.create_index(size).result if isinstance(size, int) else size


def extent(buffer: ir.Value, dimension: int) -> Size:
    """A dimension's size; a memref.dim when it is dynamic."""
    kind = ir.MemRefType(buffer.type)
    if kind.is_dynamic_dim(dimension):
        return memref.DimOp(buffer, arith.ConstantOp.create_index(dimension)).result
    return kind.shape[dimension]


def product(sizes: Sequence[Size]) -> Size:
    """The product, folded as far as it is known."""
    known, total = 1, None
    for size in sizes:
        if isinstance(size, int):
            known *= size
        else:
            total = size if total is None else arith.muli(total, size)
    if total is None or known == 0:
        return known
    return total if known == 1 else arith.muli(total, as_value(known))


def ceildiv(size: Size, divisor: int) -> Size:
    """The quotient, rounded up."""
    if isinstance(size, int):
        return -(-size // divisor)
    return arith.divui(arith.addi(size, as_value(divisor - 1)), as_value(divisor))


def power_of_two(number: int) -> int:
    """The least one that is no less."""
    return 1 << max(0, number - 1).bit_length()


def linear_id(threads: int) -> ir.Value:
    """blockIdx * threads + threadIdx."""
    block, thread = gpu.block_id(gpu.Dimension.x), gpu.thread_id(gpu.Dimension.x)
    return arith.addi(arith.muli(block, as_value(threads)), thread)


def thread_of(block: ir.Value, threads: int) -> ir.Value:
    """The same of a block of that number."""
    return arith.addi(arith.muli(block, as_value(threads)), gpu.thread_id(gpu.Dimension.x))


def of_warp() -> tuple[ir.Value, ir.Value]:
    """A thread's lane, and the number of its warp among all."""
    thread = linear_id(THREADS)
    return arith.remui(gpu.thread_id(gpu.Dimension.x), as_value(WARP)), arith.divui(thread, as_value(WARP))


def in_block(thread: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The warp that a thread of a block is in, and its lane."""
    return arith.divui(thread, as_value(WARP)), arith.remui(thread, as_value(WARP))


def shuffled(word: ir.Value, lane: ir.Value, mode: gpu.ShuffleMode) -> ir.Value:
    """What another lane of the warp has of a word of 32 bits; all lanes must be here."""
    return gpu.shuffle(word, lane, device.value(WARP), mode)[0]


@contextlib.contextmanager
def only_if(index: ir.Value, bound: Size) -> Iterator[None]:
    """What is built inside runs where index < bound."""
    with device.when(device.below(index, as_value(bound))):
        yield


@contextlib.contextmanager
def of_points(
    kernels: Kernels, origin: ir.Operation, label: str, sizes: Callable[[See], list[Size]]
) -> Iterator[tuple[Kernel, list[ir.Value]]]:
    """A kernel with a thread for each point of a space, whose code is built inside from the thread's point on; it is
    launched behind that. `sizes`, given what shows a value where it is needed, are those of the space."""
    kernel = Kernel(kernels, origin, label)
    with kernel.body():
        own, index = sizes(kernel.inside), linear_id(THREADS)
        with only_if(index, product(own)):
            yield kernel, delinearize(index, own)
    kernel.launch(lambda: ceildiv(product(sizes(on_host)), THREADS))


def on_host(value: ir.Value) -> ir.Value:
    """A host value where the host needs it."""
    return value


def delinearize(index: ir.Value, sizes: Sequence[Size]) -> list[ir.Value]:
    """The coordinates of element `index`, the last one running fastest. In 32 bits where they suffice."""
    known = [size for size in sizes if isinstance(size, int)]
    narrow = len(known) == len(sizes) and product(known) < 2**31
    kind = ir.IntegerType.get_signless(32) if narrow else ir.IndexType.get()
    rest = arith.index_cast(kind, index) if narrow else index
    found: list[ir.Value] = []
    for size in reversed(sizes[1:]):
        divisor = arith.constant(kind, size) if isinstance(size, int) else size
        quotient = arith.divui(rest, divisor)
        if isinstance(size, int):
            found.append(arith.remui(rest, divisor))
        else:  # what is open is divided by once
            found.append(arith.subi(rest, arith.muli(quotient, divisor)))
        rest = quotient
    found.append(rest)
    if narrow:
        found = [arith.index_castui(ir.IndexType.get(), part) for part in found]
    return found[::-1][: len(sizes)]
