// RUN: kitsune-opt --join-launches=target=sm_90a --split-input-file %s | filecheck %s

// What does not depend on one another is side by side, in blocks of its own.
// CHECK-LABEL: func.func @main
// CHECK: %[[GRID:.*]] = arith.addi %c3{{.*}}, %c2
// CHECK: gpu.launch_func @kernels::@joined_0 blocks in (%[[GRID]], %c1{{.*}}, %c1{{.*}}) threads in (%c256
// CHECK-SAME: args(%c3{{[_0-9a-z]*}} : index, %arg0 : memref<600xf32>, %[[P:.*]] : memref<600xf32>, %arg1 : memref<300xf32>, %[[Q:.*]] : memref<300xf32>)
// CHECK-NEXT: return %[[P]], %[[Q]]
// CHECK: gpu.func @joined_0(%[[COUNT:.*]]: index,
// CHECK-SAME: kernel attributes {kitsune.joined = ["a", "b"], known_block_size = array<i32: 256, 1, 1>}
// CHECK: %[[BLOCK:.*]] = gpu.block_id x
// CHECK: %[[FIRST:.*]] = arith.cmpi ult, %[[BLOCK]], %[[COUNT]]
// CHECK: scf.if %[[FIRST]] {
// CHECK: arith.muli %[[BLOCK]], %c256
// CHECK: } else {
// CHECK: %[[OTHER:.*]] = arith.subi %[[BLOCK]], %[[COUNT]]
// CHECK: arith.muli %[[OTHER]], %c256
// CHECK-NOT: gpu.func
module attributes {gpu.container_module} {
  func.func @main(%x: memref<600xf32>, %y: memref<300xf32>) -> (memref<600xf32>, memref<300xf32>) {
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c3 = arith.constant 3 : index
    %c256 = arith.constant 256 : index
    %p = memref.alloc() : memref<600xf32>
    gpu.launch_func @kernels::@a blocks in (%c3, %c1, %c1) threads in (%c256, %c1, %c1) args(%x : memref<600xf32>, %p : memref<600xf32>)
    %q = memref.alloc() : memref<300xf32>
    gpu.launch_func @kernels::@b blocks in (%c2, %c1, %c1) threads in (%c256, %c1, %c1) args(%y : memref<300xf32>, %q : memref<300xf32>)
    return %p, %q : memref<600xf32>, memref<300xf32>
  }
  gpu.module @kernels {
    gpu.func @a(%x: memref<600xf32>, %p: memref<600xf32>) kernel attributes {known_block_size = array<i32: 256, 1, 1>} {
      %c256 = arith.constant 256 : index
      %c600 = arith.constant 600 : index
      %block = gpu.block_id x
      %thread = gpu.thread_id x
      %first = arith.muli %block, %c256 : index
      %i = arith.addi %first, %thread : index
      %in = arith.cmpi ult, %i, %c600 : index
      scf.if %in {
        %v = memref.load %x[%i] : memref<600xf32>
        memref.store %v, %p[%i] : memref<600xf32>
      }
      gpu.return
    }
    gpu.func @b(%y: memref<300xf32>, %q: memref<300xf32>) kernel attributes {known_block_size = array<i32: 256, 1, 1>} {
      %c256 = arith.constant 256 : index
      %c300 = arith.constant 300 : index
      %block = gpu.block_id x
      %thread = gpu.thread_id x
      %first = arith.muli %block, %c256 : index
      %i = arith.addi %first, %thread : index
      %in = arith.cmpi ult, %i, %c300 : index
      scf.if %in {
        %v = memref.load %y[%i] : memref<300xf32>
        memref.store %v, %q[%i] : memref<300xf32>
      }
      gpu.return
    }
  }
}

// -----

// What does is done by one block in turn, if that is cheaper than a launch: the two blocks of @b by a loop. Buffers in
// shared memory are the joined kernel's.
// CHECK-LABEL: func.func @main
// CHECK: gpu.launch_func @kernels::@joined_0 blocks in (%c1{{.*}}, %c1{{.*}}, %c1{{.*}})
// CHECK-NEXT: return
// CHECK: gpu.func @joined_0(%[[X:.*]]: memref<300xf32>, %[[P:.*]]: memref<300xf32>, %[[Q:.*]]: memref<300xf32>) workgroup(%[[S:.*]] : memref<256xf32, #gpu.address_space<workgroup>>
// CHECK: scf.for %[[TURN:.*]] = %c0{{.*}} to %c2{{.*}} step
// CHECK: memref.load %[[X]]
// CHECK: memref.store %{{.*}}, %[[P]]
// CHECK: gpu.barrier
// CHECK: scf.for
// CHECK: memref.load %[[P]]
// CHECK: memref.store %{{.*}}, %[[S]]
// CHECK: gpu.barrier
// CHECK: memref.load %[[S]]
// CHECK: memref.store %{{.*}}, %[[Q]]
// CHECK: gpu.barrier
module attributes {gpu.container_module} {
  func.func @main(%x: memref<300xf32>) -> memref<300xf32> {
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c256 = arith.constant 256 : index
    %p = memref.alloc() : memref<300xf32>
    gpu.launch_func @kernels::@a blocks in (%c2, %c1, %c1) threads in (%c256, %c1, %c1) args(%x : memref<300xf32>, %p : memref<300xf32>)
    %q = memref.alloc() : memref<300xf32>
    gpu.launch_func @kernels::@b blocks in (%c2, %c1, %c1) threads in (%c256, %c1, %c1) args(%p : memref<300xf32>, %q : memref<300xf32>)
    return %q : memref<300xf32>
  }
  gpu.module @kernels {
    gpu.func @a(%x: memref<300xf32>, %p: memref<300xf32>) kernel attributes {known_block_size = array<i32: 256, 1, 1>} {
      %c256 = arith.constant 256 : index
      %c300 = arith.constant 300 : index
      %block = gpu.block_id x
      %thread = gpu.thread_id x
      %first = arith.muli %block, %c256 : index
      %i = arith.addi %first, %thread : index
      %in = arith.cmpi ult, %i, %c300 : index
      scf.if %in {
        %v = memref.load %x[%i] : memref<300xf32>
        memref.store %v, %p[%i] : memref<300xf32>
      }
      gpu.return
    }
    gpu.func @b(%p: memref<300xf32>, %q: memref<300xf32>) workgroup(%s: memref<256xf32, #gpu.address_space<workgroup>>) kernel attributes {known_block_size = array<i32: 256, 1, 1>} {
      %c0 = arith.constant 0 : index
      %c256 = arith.constant 256 : index
      %c299 = arith.constant 299 : index
      %block = gpu.block_id x
      %thread = gpu.thread_id x
      %first = arith.muli %block, %c256 : index
      %i = arith.addi %first, %thread : index
      %at = arith.minui %i, %c299 : index
      %v = memref.load %p[%at] : memref<300xf32>
      memref.store %v, %s[%thread] : memref<256xf32, #gpu.address_space<workgroup>>
      gpu.barrier
      %w = memref.load %s[%thread] : memref<256xf32, #gpu.address_space<workgroup>>
      memref.store %w, %q[%at] : memref<300xf32>
      gpu.return
    }
  }
}

// -----

// A kernel of weights alone runs once, when the program is loaded: it is not joined with what each call does. Neither is
// one that depends on many blocks.
// CHECK-LABEL: func.func @main
// CHECK: gpu.launch_func @kernels::@a blocks in (%c1{{.*}}, {{.*}} args(%arg1
// CHECK: gpu.launch_func @kernels::@b blocks in (%c40
// CHECK: gpu.launch_func @kernels::@a blocks in (%c1{{.*}}, {{.*}} args(%{{alloc.*}} :
// CHECK: return
module attributes {gpu.container_module} {
  func.func @main(%x: memref<256xf32>, %w: memref<256xf32>) -> (memref<256xf32>, memref<256xf32>) attributes {kitsune.weights = array<i64: 1>} {
    %c1 = arith.constant 1 : index
    %c40 = arith.constant 40 : index
    %c256 = arith.constant 256 : index
    %p = memref.alloc() : memref<256xf32>
    %q = memref.alloc() : memref<256xf32>
    %r = memref.alloc() : memref<256xf32>
    gpu.launch_func @kernels::@a blocks in (%c1, %c1, %c1) threads in (%c256, %c1, %c1) args(%w : memref<256xf32>, %p : memref<256xf32>)
    gpu.launch_func @kernels::@b blocks in (%c40, %c1, %c1) threads in (%c256, %c1, %c1) args(%x : memref<256xf32>, %p : memref<256xf32>, %q : memref<256xf32>)
    gpu.launch_func @kernels::@a blocks in (%c1, %c1, %c1) threads in (%c256, %c1, %c1) args(%q : memref<256xf32>, %r : memref<256xf32>)
    return %q, %r : memref<256xf32>, memref<256xf32>
  }
  gpu.module @kernels {
    gpu.func @a(%x: memref<256xf32>, %p: memref<256xf32>) kernel attributes {known_block_size = array<i32: 256, 1, 1>} {
      %thread = gpu.thread_id x
      %v = memref.load %x[%thread] : memref<256xf32>
      memref.store %v, %p[%thread] : memref<256xf32>
      gpu.return
    }
    gpu.func @b(%x: memref<256xf32>, %w: memref<256xf32>, %p: memref<256xf32>) kernel attributes {known_block_size = array<i32: 256, 1, 1>} {
      %thread = gpu.thread_id x
      %v = memref.load %x[%thread] : memref<256xf32>
      %u = memref.load %w[%thread] : memref<256xf32>
      %s = arith.addf %u, %v : f32
      memref.store %s, %p[%thread] : memref<256xf32>
      gpu.return
    }
  }
}

// -----

// Blocks of a launch have the same number of threads, any number.
// CHECK-LABEL: func.func @main
// CHECK: gpu.launch_func @kernels::@joined_0 blocks in {{.*}} threads in (%c512
// CHECK: gpu.launch_func @kernels::@b blocks in {{.*}} threads in (%c256
// CHECK: gpu.func @joined_0
// CHECK-SAME: kernel attributes {kitsune.joined = ["a", "c"], known_block_size = array<i32: 512, 1, 1>}
module attributes {gpu.container_module} {
  func.func @main(%x: memref<1024xf32>) -> (memref<1024xf32>, memref<1024xf32>, memref<1024xf32>) {
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c4 = arith.constant 4 : index
    %c256 = arith.constant 256 : index
    %c512 = arith.constant 512 : index
    %p = memref.alloc() : memref<1024xf32>
    gpu.launch_func @kernels::@a blocks in (%c2, %c1, %c1) threads in (%c512, %c1, %c1) args(%x : memref<1024xf32>, %p : memref<1024xf32>)
    %q = memref.alloc() : memref<1024xf32>
    gpu.launch_func @kernels::@b blocks in (%c4, %c1, %c1) threads in (%c256, %c1, %c1) args(%x : memref<1024xf32>, %q : memref<1024xf32>)
    %r = memref.alloc() : memref<1024xf32>
    gpu.launch_func @kernels::@c blocks in (%c2, %c1, %c1) threads in (%c512, %c1, %c1) args(%x : memref<1024xf32>, %r : memref<1024xf32>)
    return %p, %q, %r : memref<1024xf32>, memref<1024xf32>, memref<1024xf32>
  }
  gpu.module @kernels {
    gpu.func @a(%x: memref<1024xf32>, %p: memref<1024xf32>) kernel attributes {known_block_size = array<i32: 512, 1, 1>} {
      %c512 = arith.constant 512 : index
      %block = gpu.block_id x
      %thread = gpu.thread_id x
      %first = arith.muli %block, %c512 : index
      %i = arith.addi %first, %thread : index
      %0 = memref.load %x[%i] : memref<1024xf32>
      memref.store %0, %p[%i] : memref<1024xf32>
      gpu.return
    }
    gpu.func @b(%x: memref<1024xf32>, %p: memref<1024xf32>) kernel attributes {known_block_size = array<i32: 256, 1, 1>} {
      %c256 = arith.constant 256 : index
      %block = gpu.block_id x
      %thread = gpu.thread_id x
      %first = arith.muli %block, %c256 : index
      %i = arith.addi %first, %thread : index
      %0 = memref.load %x[%i] : memref<1024xf32>
      memref.store %0, %p[%i] : memref<1024xf32>
      gpu.return
    }
    gpu.func @c(%x: memref<1024xf32>, %p: memref<1024xf32>) kernel attributes {known_block_size = array<i32: 512, 1, 1>} {
      %c512 = arith.constant 512 : index
      %block = gpu.block_id x
      %thread = gpu.thread_id x
      %first = arith.muli %block, %c512 : index
      %i = arith.addi %first, %thread : index
      %0 = memref.load %x[%i] : memref<1024xf32>
      %1 = math.exp %0 : f32
      memref.store %1, %p[%i] : memref<1024xf32>
      gpu.return
    }
  }
}
