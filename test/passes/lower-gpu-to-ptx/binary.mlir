// RUN: kitsune-opt --lower-gpu-to-ptx=target=sm_80 %s | filecheck %s

// CHECK: gpu.binary @kernels <#gpu.select_object<0 : i64>> {kitsune.launch = "{}"} [#gpu.object<#nvvm.target<chip = "sm_80">, assembly = "{{.*}}.target sm_80{{.*}}.visible .entry half({{.*}}">]
// CHECK-NOT: gpu.module
module attributes {gpu.container_module} {
  gpu.module @kernels attributes {kitsune.launch = "{}"} {
    gpu.func @half(%x: memref<?xf32>) kernel {
      %i = gpu.thread_id x
      %c = arith.constant 0.5 : f32
      %v = memref.load %x[%i] : memref<?xf32>
      %w = arith.mulf %v, %c : f32
      memref.store %w, %x[%i] : memref<?xf32>
      gpu.return
    }
  }
}
