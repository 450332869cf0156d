// RUN: kitsune-opt --overlap-launches=target=sm_90a %s | filecheck %s
// RUN: kitsune-opt --overlap-launches=target=sm_89 %s | filecheck --check-prefix OLD %s

// OLD-NOT: griddepcontrol

module attributes {gpu.container_module} {
  gpu.module @kernels {
    // A kernel waits for the one before it where it first touches memory.
    // CHECK-LABEL: gpu.func @reads
    // CHECK-NEXT: nvvm.griddepcontrol launch_dependents
    // CHECK-NEXT: gpu.thread_id
    // CHECK-NEXT: nvvm.griddepcontrol wait
    // CHECK-NEXT: memref.load
    gpu.func @reads(%a: memref<256xf32>, %b: memref<256xf32>) kernel {
      %i = gpu.thread_id x
      %x = memref.load %a[%i] : memref<256xf32>
      memref.store %x, %b[%i] : memref<256xf32>
      gpu.return
    }

    // Barriers in shared memory are its own; a branch that reads is not passed.
    // CHECK-LABEL: gpu.func @barriers
    // CHECK: scf.if
    // CHECK-NEXT: nvvm.mbarrier.init
    // CHECK: gpu.barrier
    // CHECK-NEXT: nvvm.griddepcontrol wait
    // CHECK-NEXT: scf.if
    // CHECK-NEXT: memref.load
    gpu.func @barriers(%a: memref<256xf32>, %b: memref<256xf32>, %p: !llvm.ptr<3>, %first: i1) kernel {
      %i = gpu.thread_id x
      %one = arith.constant 1 : i32
      scf.if %first {
        nvvm.mbarrier.init %p, %one : !llvm.ptr<3>, i32
      }
      gpu.barrier
      scf.if %first {
        %x = memref.load %a[%i] : memref<256xf32>
        memref.store %x, %b[%i] : memref<256xf32>
      }
      gpu.return
    }

    // One whose loads want all of the cache waits for nothing: it begins when the one before has ended.
    // CHECK-LABEL: gpu.func @alone
    // CHECK-NEXT: nvvm.griddepcontrol launch_dependents
    // CHECK-NEXT: gpu.thread_id
    // CHECK-NEXT: memref.load
    gpu.func @alone(%a: memref<256xf32>, %b: memref<256xf32>) kernel attributes {kitsune.begins_alone} {
      %i = gpu.thread_id x
      %x = memref.load %a[%i] : memref<256xf32>
      memref.store %x, %b[%i] : memref<256xf32>
      gpu.return
    }

    // Many blocks come one after another.
    // CHECK-LABEL: gpu.func @many
    // CHECK-NEXT: gpu.thread_id
    // CHECK-NEXT: memref.load
    gpu.func @many(%a: memref<256xf32>, %b: memref<256xf32>) kernel {
      %i = gpu.thread_id x
      %x = memref.load %a[%i] : memref<256xf32>
      memref.store %x, %b[%i] : memref<256xf32>
      gpu.return
    }

    // What is no kernel stays as it is.
    // CHECK-LABEL: gpu.func @helper
    // CHECK-NEXT: memref.load
    gpu.func @helper(%a: memref<256xf32>, %i: index) -> f32 {
      %x = memref.load %a[%i] : memref<256xf32>
      gpu.return %x : f32
    }
  }

  func.func @main(%a: memref<256xf32>, %b: memref<256xf32>) {
    %few = arith.constant 2112 : index
    %many = arith.constant 2113 : index
    %one = arith.constant 1 : index
    gpu.launch_func @kernels::@reads blocks in (%few, %one, %one) threads in (%one, %one, %one)
        args(%a : memref<256xf32>, %b : memref<256xf32>)
    gpu.launch_func @kernels::@many blocks in (%many, %one, %one) threads in (%one, %one, %one)
        args(%a : memref<256xf32>, %b : memref<256xf32>)
    return
  }
}
