"""Clusters: CTAs that run at once and reach one another's shared memory (PTX ISA, Cluster of Cooperative Thread
Arrays; mapa; barrier.cluster; cp.async.bulk).

CTAs of a cluster lay their shared memory out alike: `remote` turns an address of the own shared memory into that of
the same place in another CTA's. A CTA must not end while others may still reach it: `barrier` stands last.
"""

from __future__ import annotations

from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.mlir import arith, ir, memref


def set_size(kernel: ir.OpView, ctas: int) -> None:
    """The kernel's (a gpu.func's) launches are of clusters of that many neighbouring CTAs."""
    kernel.attributes["nvvm.cluster_dim"] = ir.DenseI32ArrayAttr.get([ctas, 1, 1])


def size_of(kernel: ir.Operation) -> int:
    """How many CTAs those clusters have."""
    if "nvvm.cluster_dim" not in kernel.attributes:
        return 1
    return ir.DenseI32ArrayAttr(kernel.attributes["nvvm.cluster_dim"])[0]


def rank() -> ir.Value:
    """The CTA's number in its cluster, i32."""
    return device.assembly("mov.u32 $0, %cluster_ctarank;", result=device.i32(), memory=False)


def arrive() -> None:
    """Half of a barrier of all threads of the cluster: what the thread did before is seen after their `wait`."""
    device.assembly("barrier.cluster.arrive.release;")


def wait() -> None:
    """The other half: returns when all threads of the cluster that have not ended arrived."""
    device.assembly("barrier.cluster.wait.acquire;")


def barrier() -> None:
    """All threads of the cluster; orders their accesses to each other's shared memory."""
    arrive()
    wait()


def remote(place: Int, cta: Int) -> ir.Value:
    """The address, for the functions here, of the place in the shared memory of the cluster's CTA of that rank."""
    return device.assembly("mapa.shared::cluster.u32 $0, $1, $2;", place, cta, result=device.i32(), memory=False)


def remote_arrive(barrier: ir.Value, condition: ir.Value) -> None:
    """Counts an arrival at a `remote` mbarrier for each thread in which `condition` (i1) holds.

    It releases what the thread did in its CTA's shared memory, or saw done there, to those who wait with
    `waits.on_cluster`; nothing in global memory, for that takes a trip to L2, half a microsecond
    (PTX ISA, membar/fence: sync_restrict)."""
    fence = "fence.release.sync_restrict::shared::cta.cluster;"
    text = device.where(1, fence, "mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [$0];")
    device.assembly(text, barrier, condition)


def copy(source: Int, destination: ir.Value, nbytes: Int, barrier: ir.Value) -> None:
    """One thread: copies own shared memory to a `remote` place; the bytes (a multiple of 16) count on the mbarrier,
    `remote` too, of the same CTA as the destination. Writers of the source fence (tma.fence) before."""
    text = "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [$0], [$1], $2, [$3];"
    device.assembly(text, destination, source, nbytes, barrier)


def send_word(destination: ir.Value, word: ir.Value, barrier: ir.Value) -> None:
    """Stores 4 bytes (an f32) to a `remote` place; they count on the mbarrier, `remote` too, of the same CTA
    (PTX ISA, st.async)."""
    text = "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [$0], $1, [$2];"
    device.assembly(text, destination, arith.bitcast(device.i32(), word), barrier)


def send(destination: ir.Value, words: ir.Value, barrier: ir.Value) -> None:
    """Stores a vector of four i32 to a `remote` place, a multiple of 16; its bytes count as those of `send_word`."""
    text = "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [$0], {$1, $2, $3, $4}, [$5];"
    device.assembly(text, destination, *device.parts(words), barrier)


# What follows is for kernels of operators (codegen/gpu_kernel.py), whose buffers in shared memory are memrefs: places
# are 64 bits wide, and each is one piece of PTX, which the simulator knows by its text.

MEET = "barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;"
INIT = """{
.reg .b32 place;
cvt.u32.u64 place, $0;
mbarrier.init.shared::cta.b64 [place], 1;
fence.mbarrier_init.release.cluster;
}"""
EXPECT = """{
.reg .b32 place;
cvt.u32.u64 place, $0;
mbarrier.arrive.expect_tx.relaxed.cta.shared::cta.b64 _, [place], $1;
}"""
SEND = """{
.reg .b32 place, signal;
cvt.u32.u64 place, $0;
cvt.u32.u64 signal, $1;
mapa.shared::cluster.u32 place, place, $2;
mapa.shared::cluster.u32 signal, signal, $2;
st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [place], $3, [signal];
}"""
AWAIT = """{
.reg .pred done;
.reg .b32 place;
cvt.u32.u64 place, $0;
AGAIN:
mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [place], $1;
@!done bra AGAIN;
}"""


def meet() -> None:
    """`barrier`, as one instruction of inline PTX."""
    device.assembly(MEET)


def place_in(buffer: ir.Value, number: ir.Value, nbytes: int) -> ir.Value:
    """The place (i64) of the element of that number (an index) of a buffer in shared memory."""
    first = memref.extract_aligned_pointer_as_index(buffer)
    far = arith.muli(number, arith.ConstantOp.create_index(nbytes).result)
    return arith.index_cast(device.i64(), arith.addi(first, far))


def begin(barrier: ir.Value) -> None:
    """One thread: an mbarrier, of one arrival a phase, at a place. Others may use it behind a `meet`."""
    device.assembly(INIT, barrier)


def expect(barrier: ir.Value, nbytes: int) -> None:
    """One thread: the arrival of a phase, in which so many bytes come (PTX ISA, mbarrier.arrive.expect_tx)."""
    device.assembly(EXPECT, barrier, nbytes)


def send_to(place: ir.Value, barrier: ir.Value, cta: ir.Value, word: ir.Value) -> None:
    """Stores an f32 at the place in the shared memory of the cluster's CTA of that rank (i32), where it counts on the
    mbarrier; nothing waits for it here (PTX ISA, st.async)."""
    device.assembly(SEND, place, barrier, cta, arith.bitcast(device.i32(), word))


def await_(barrier: ir.Value, parity: ir.Value) -> None:
    """Waits until a phase of this parity (i32) has ended: what was sent is there."""
    device.assembly(AWAIT, barrier, parity)
