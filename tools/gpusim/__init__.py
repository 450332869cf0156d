"""The simulator of GPU kernels: runs what the compiler generates for a GPU on a CPU, and says what is wrong with it.

    from kitsune_mlir.tools.gpusim import Simulation

    compiled = kitsune_mlir.compile(model, args, target="sm_90a")
    y = Simulation(compiled)(*args)        # raises MemoryFault or Deadlock, else gives what a GPU would

`kitsune run --simulate MODEL` is the same on the command line. What runs is not PTX but the IR that PTX is translated
from, after the last pass (`convert-linalg-to-gpu`), with the inline PTX in it. An artifact does not hold that IR.

There are two kinds of kernels, each with a model of its own:

* A kernel of a single operator (lockstep.py): the threads of many CTAs at once, in lockstep. Accesses are checked
  against the bounds of their buffers, not for races.
* A kernel whose warps take roles (warp_kernel.py, warp_agent.py, assembler.py): warps that go together are an agent,
  which parts where some of them may wait and joins where they meet. Agents and copies in flight take turns at random.

In the latter every byte that is written during a launch, in shared memory, in results and in the workspace, has the
stamps of who wrote and read it (memory.py), and vector clocks (clocks.py) say what comes before what: barriers,
mbarriers, releases and acquires make order as the PTX ISA's memory consistency model says, and nothing else does. So a
race is found whether or not it shows in the numbers. Modelled are

* CTAs, warps that diverge, clusters and their distributed shared memory (cta.py), `barrier`, `barrier.cluster`;
* mbarriers: arrivals, bytes that are expected, phases, parities, the fence behind their making that copies and other
  CTAs want (barriers.py, phases.py);
* tensor copies with tensor maps and swizzles, bulk copies, `st.async`: checked when they are issued, done at
  a random later time (copies.py, tma.py); `cp.async` of threads, done when an arrival waits for it (thread_copies.py);
* wgmma: fragments, descriptors, fences, groups, sums that nobody may read before the wait (wgmma.py, products.py);
  mma.sync (mma.py), whose sums of tf32 are cut off as tensor cores do, and ldmatrix;
* atomic operations and counters at GPU scope, which must be zero after a launch; the generic proxy and each CTA's async
  proxy, in shared and in global memory, and the fences between them (clocks.py).

Faults (faults.py) are races, accesses out of bounds or misaligned, reads of what nobody wrote, instructions that not
all of the threads reach that must, CTAs that end while others use their shared memory; and deadlocks, with who waits,
for what, and, where it is a counter, at which line of the model. Memory that was not written is NaN.

Not modelled are time; caches, bank conflicts and occupancy: all CTAs of a launch are taken to be resident; what ptxas
makes of the code, registers and spills included; the CUDA runtime: streams (copies and launches of the host come one
after another) and CUDA graphs. But a thread that has not waited for the kernel before (griddepcontrol) may not use what
kernels of the run have written. The order in which a product adds is numpy's. Warps of a warpgroup that need not wait
go in lockstep, and an arrival releases its whole warp; races between their threads are found all the same. Copies and
products of a CTA are one async proxy. One run is one random order: another `seed` is another.
"""

from .faults import Deadlock, KernelFault, MemoryFault
from .simulation import Simulation

__all__ = ["Deadlock", "KernelFault", "MemoryFault", "Simulation"]
