// RUN: kitsune-opt --split-input-file --convert-linalg-to-gpu %s | filecheck %s

// A sum along memory is a warp's; one across it is shared by four lanes of each warp and by the warps of a block, 4 for
// 64 rows. Both start from the fill's value: no fill is launched.

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#turned = affine_map<(d0, d1) -> (d1, d0)>

// CHECK-LABEL: func.func @main
// CHECK-NOT: fill
// CHECK: gpu.launch_func @kernels::@reduce_0 blocks in (%c8,
// CHECK-NOT: fill
// CHECK: gpu.launch_func @kernels::@reduce_1 blocks in (%c16, {{.+}} threads in (%c128,
// CHECK: return
func.func @main(%x: tensor<64x128xf32>) -> (tensor<64xf32>, tensor<128xf32>) {
  %zero = arith.constant 0.0 : f32
  %e0 = tensor.empty() : tensor<64xf32>
  %f0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<64xf32>) -> tensor<64xf32>
  %rows = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<64x128xf32>) outs(%f0 : tensor<64xf32>) {
    ^bb0(%in: f32, %out: f32):
      %s = arith.addf %in, %out : f32
      linalg.yield %s : f32
  } -> tensor<64xf32>
  %e1 = tensor.empty() : tensor<128xf32>
  %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<128xf32>) -> tensor<128xf32>
  %columns = linalg.generic {indexing_maps = [#turned, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<64x128xf32>) outs(%f1 : tensor<128xf32>) {
    ^bb0(%in: f32, %out: f32):
      %s = arith.addf %in, %out : f32
      linalg.yield %s : f32
  } -> tensor<128xf32>
  return %rows, %columns : tensor<64xf32>, tensor<128xf32>
}

// CHECK: gpu.func @reduce_0
// CHECK: %[[PART:.+]] = scf.for {{.+}} iter_args(%{{.+}} = %{{.+}}) -> (f32)
// CHECK-COUNT-5: gpu.shuffle xor
// CHECK: memref.store
// CHECK: gpu.func @reduce_1({{.+}}) workgroup(%[[SHARED:.+]] : memref<4x8xf32, #gpu.address_space<workgroup>> {llvm.align = 16 : i64})
// CHECK: scf.for {{.+}} iter_args
// CHECK-COUNT-2: gpu.shuffle xor
// CHECK: memref.store %{{.+}}, %[[SHARED]]
// CHECK: gpu.barrier
// CHECK: scf.for {{.+}} iter_args
// CHECK: memref.load %[[SHARED]]
// CHECK: memref.store

// -----

// Two reduced loops are one, also where a dimension of one element stands before sizes that are open until the call.

// CHECK-LABEL: func.func @main
// CHECK: memref.collapse_shape %{{.+}} : memref<1x?x1x1x?xf32
// CHECK: gpu.launch_func
func.func @main(%x: tensor<1x?x1x1x?xf32>, %y: tensor<1x1x?x64xf32>, %out: tensor<1x?x64xf32>) -> tensor<1x?x64xf32> {
  %z = linalg.generic {
      indexing_maps = [affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d3, d4, d5)>,
                       affine_map<(d0, d1, d2, d3, d4, d5) -> (d3, d4, d5, d2)>,
                       affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2)>],
      iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %y : tensor<1x?x1x1x?xf32>, tensor<1x1x?x64xf32>) outs(%out : tensor<1x?x64xf32>) {
    ^bb0(%a: f32, %b: f32, %sum: f32):
      %p = arith.mulf %a, %b : f32
      %s = arith.addf %sum, %p : f32
      linalg.yield %s : f32
  } -> tensor<1x?x64xf32>
  return %z : tensor<1x?x64xf32>
}

// -----

// So are those of a slice, where what is cut stands before them; lines that are cut lie apart.

// CHECK-LABEL: func.func @main
// CHECK: %[[CHANNELS:.+]] = memref.subview %{{.+}} : memref<4x16x28x28xf32> to memref<4x8x28x28xf32
// CHECK: memref.collapse_shape %[[CHANNELS]] {{.+}} into memref<4x8x784xf32
// CHECK: %[[LINES:.+]] = memref.subview %{{.+}} : memref<4x16x28x28xf32> to memref<4x16x28x20xf32
// CHECK-NOT: memref.collapse_shape %[[LINES]]
// CHECK: return
#image = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#channel = affine_map<(d0, d1, d2, d3) -> (d1)>
func.func @main(%x: tensor<4x16x28x28xf32>, %e0: tensor<8xf32>, %e1: tensor<16xf32>) -> (tensor<8xf32>, tensor<16xf32>) {
  %channels = tensor.extract_slice %x[0, 8, 0, 0] [4, 8, 28, 28] [1, 1, 1, 1]
      : tensor<4x16x28x28xf32> to tensor<4x8x28x28xf32>
  %s0 = linalg.generic {indexing_maps = [#image, #channel], iterator_types = ["reduction", "parallel", "reduction", "reduction"]}
      ins(%channels : tensor<4x8x28x28xf32>) outs(%e0 : tensor<8xf32>) {
    ^bb0(%in: f32, %out: f32):
      %s = arith.addf %in, %out : f32
      linalg.yield %s : f32
  } -> tensor<8xf32>
  %lines = tensor.extract_slice %x[0, 0, 0, 8] [4, 16, 28, 20] [1, 1, 1, 1]
      : tensor<4x16x28x28xf32> to tensor<4x16x28x20xf32>
  %s1 = linalg.generic {indexing_maps = [#image, #channel], iterator_types = ["reduction", "parallel", "reduction", "reduction"]}
      ins(%lines : tensor<4x16x28x20xf32>) outs(%e1 : tensor<16xf32>) {
    ^bb0(%in: f32, %out: f32):
      %s = arith.addf %in, %out : f32
      linalg.yield %s : f32
  } -> tensor<16xf32>
  return %s0, %s1 : tensor<8xf32>, tensor<16xf32>
}

// -----

// What is taken off a sum is added with the other sign, so that a warp has it together.

#along = affine_map<(d0, d1) -> (d0, d1)>
#one = affine_map<(d0, d1) -> (d0)>

// CHECK-LABEL: func.func @main
// CHECK: gpu.launch_func @kernels::@reduce_0 blocks in (%c8,
// CHECK: gpu.func @reduce_0
// CHECK: gpu.shuffle
func.func @main(%x: tensor<64x128xf32>) -> tensor<64xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<64xf32>
  %start = linalg.fill ins(%zero : f32) outs(%empty : tensor<64xf32>) -> tensor<64xf32>
  %rest = linalg.generic {indexing_maps = [#along, #one], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<64x128xf32>) outs(%start : tensor<64xf32>) {
    ^bb0(%in: f32, %out: f32):
      %s = arith.subf %out, %in : f32
      linalg.yield %s : f32
  } -> tensor<64xf32>
  return %rest : tensor<64xf32>
}

// -----

// Words of neighbours are read of what lies along results, where rows have a number each besides, as those of a norm.

#id = affine_map<(d0, d1) -> (d0, d1)>
#number = affine_map<(d0, d1) -> (d0)>
#column = affine_map<(d0, d1) -> (d1)>

// CHECK-LABEL: func.func @main
// CHECK: gpu.func @product_0
// CHECK-COUNT-2: vector.load {{.*}} vector<{{[248]}}xbf16>
// CHECK: memref.load {{.*}} memref<4096xf32
func.func @main(%x: tensor<4096x256xbf16>, %y: tensor<4096x256xbf16>, %r: tensor<4096xf32>, %e: tensor<256xf32>) -> tensor<256xf32> {
  %s = linalg.generic {indexing_maps = [#id, #id, #number, #column], iterator_types = ["reduction", "parallel"]}
      ins(%x, %y, %r : tensor<4096x256xbf16>, tensor<4096x256xbf16>, tensor<4096xf32>) outs(%e : tensor<256xf32>) {
    ^bb0(%a: bf16, %b: bf16, %in: f32, %out: f32):
      %0 = arith.extf %a : bf16 to f32
      %1 = arith.extf %b : bf16 to f32
      %2 = arith.mulf %0, %1 : f32
      %3 = arith.mulf %2, %in : f32
      %4 = arith.addf %3, %out : f32
      linalg.yield %4 : f32
  } -> tensor<256xf32>
  return %s : tensor<256xf32>
}
