// RUN: kitsune-opt --overlap-launches=target=sm_90a --split-input-file %s | filecheck %s

// Threads that read tensors which are arguments that nobody writes do not wait; the others of their branch do, and those
// of the other branch.
module attributes {gpu.container_module} {
  gpu.module @p_kernel attributes {kitsune.pipeline = "p"} {
    // CHECK-LABEL: gpu.func @p
    // CHECK-NEXT: nvvm.griddepcontrol launch_dependents
    // CHECK: scf.if %{{.*}} {
    // CHECK-NEXT: scf.if
    // CHECK-NEXT: memref.load
    // CHECK: kitsune.reads
    // CHECK-NEXT: nvvm.griddepcontrol wait
    // CHECK-NEXT: memref.load
    // CHECK: } else {
    // CHECK-NEXT: nvvm.griddepcontrol wait
    // CHECK-NEXT: memref.load
    // CHECK: }
    // CHECK-NEXT: nvvm.griddepcontrol wait
    // CHECK-NEXT: memref.store
    gpu.func @p(%x: memref<64xf32>, %w: memref<64xf32>, %y: memref<64xf32>, %feeds: i1, %first: i1) kernel {
      %i = gpu.thread_id x
      %z = arith.constant 0.0 : f32
      scf.if %feeds {
        scf.if %first {
          %a = memref.load %w[%i] : memref<64xf32>
        } {kitsune.reads = array<i64: 1>}
        %b = memref.load %x[%i] : memref<64xf32>
      } else {
        %c = memref.load %x[%i] : memref<64xf32>
      }
      memref.store %z, %y[%i] : memref<64xf32>
      gpu.return
    }
  }
  func.func private @p(memref<64xf32>, memref<64xf32>) -> memref<64xf32>
  func.func @main(%x: memref<64xf32>, %w: memref<8x8xf32>) -> memref<64xf32> {
    %flat = memref.collapse_shape %w [[0, 1]] : memref<8x8xf32> into memref<64xf32>
    %h = func.call @p(%x, %flat) : (memref<64xf32>, memref<64xf32>) -> memref<64xf32>
    %y = func.call @p(%h, %flat) : (memref<64xf32>, memref<64xf32>) -> memref<64xf32>
    return %y : memref<64xf32>
  }
}

// -----

// A tensor that another kernel makes, at one of the calls, is waited for by all.
module attributes {gpu.container_module} {
  gpu.module @q_kernel attributes {kitsune.pipeline = "q"} {
    // CHECK-LABEL: gpu.func @q
    // CHECK-NEXT: nvvm.griddepcontrol launch_dependents
    // CHECK-NEXT: gpu.thread_id
    // CHECK-NEXT: nvvm.griddepcontrol wait
    // CHECK-NEXT: scf.if
    gpu.func @q(%x: memref<64xf32>, %first: i1) kernel {
      %i = gpu.thread_id x
      scf.if %first {
        %a = memref.load %x[%i] : memref<64xf32>
      } {kitsune.reads = array<i64: 0>}
      gpu.return
    }
  }
  func.func private @q(memref<64xf32>) -> memref<64xf32>
  func.func @main(%x: memref<64xf32>) -> memref<64xf32> {
    %h = func.call @q(%x) : (memref<64xf32>) -> memref<64xf32>
    %y = func.call @q(%h) : (memref<64xf32>) -> memref<64xf32>
    return %y : memref<64xf32>
  }
}

// -----

// So is an argument that the program writes.
module attributes {gpu.container_module} {
  gpu.module @r_kernel attributes {kitsune.pipeline = "r"} {
    // CHECK-LABEL: gpu.func @r
    // CHECK-NEXT: nvvm.griddepcontrol launch_dependents
    // CHECK-NEXT: gpu.thread_id
    // CHECK-NEXT: nvvm.griddepcontrol wait
    // CHECK-NEXT: scf.if
    gpu.func @r(%x: memref<64xf32>, %first: i1) kernel {
      %i = gpu.thread_id x
      scf.if %first {
        %a = memref.load %x[%i] : memref<64xf32>
      } {kitsune.reads = array<i64: 0>}
      gpu.return
    }
  }
  func.func private @r(memref<64xf32>) -> memref<64xf32>
  func.func @main(%x: memref<64xf32>) {
    %h = func.call @r(%x) : (memref<64xf32>) -> memref<64xf32>
    memref.copy %h, %x : memref<64xf32> to memref<64xf32>
    return
  }
}

// -----

// What is computed of weights alone is there when the program is loaded.
module attributes {gpu.container_module} {
  gpu.module @kernels {
    gpu.func @twice(%x: memref<64xf32>, %y: memref<64xf32>) kernel {
      %i = gpu.thread_id x
      %a = memref.load %x[%i] : memref<64xf32>
      %b = arith.addf %a, %a : f32
      memref.store %b, %y[%i] : memref<64xf32>
      gpu.return
    }
  }
  gpu.module @s_kernel attributes {kitsune.pipeline = "s"} {
    // CHECK-LABEL: gpu.func @s
    // CHECK: scf.if
    // CHECK-NEXT: memref.load
    // CHECK: kitsune.reads
    // CHECK-NEXT: nvvm.griddepcontrol wait
    // CHECK-NEXT: memref.load
    gpu.func @s(%x: memref<64xf32>, %w: memref<64xf32>, %first: i1) kernel {
      %i = gpu.thread_id x
      scf.if %first {
        %a = memref.load %w[%i] : memref<64xf32>
      } {kitsune.reads = array<i64: 1>}
      %b = memref.load %x[%i] : memref<64xf32>
      gpu.return
    }
  }
  func.func private @s(memref<64xf32>, memref<64xf32>) -> memref<64xf32>
  func.func @main(%x: memref<64xf32>, %w: memref<64xf32>) -> memref<64xf32> attributes {kitsune.weights = array<i64: 1>} {
    %one = arith.constant 1 : index
    %kept = memref.alloc() : memref<64xf32>
    gpu.launch_func @kernels::@twice blocks in (%one, %one, %one) threads in (%one, %one, %one)
        args(%w : memref<64xf32>, %kept : memref<64xf32>)
    %y = func.call @s(%x, %kept) : (memref<64xf32>, memref<64xf32>) -> memref<64xf32>
    return %y : memref<64xf32>
  }
}
