// RUN: kitsune-opt %s --convert-linalg-to-gpu --join-launches --split-input-file | filecheck %s

// Rows of two tables and a third tensor side by side: one launch, whose ranges of blocks write where each part belongs.
// Neighbours of a row are a word.

#row = affine_map<(r, c) -> (r)>
#whole = affine_map<(r, c) -> (r, c)>

// CHECK-LABEL: func.func @main
// CHECK:         memref.alloc() {{.*}} : memref<4096x192xbf16>
// CHECK-NOT:     memref.alloc
// CHECK-COUNT-1: gpu.launch_func {{ *}}@kernels::@joined_0
// CHECK-NOT:     gpu.launch_func
// CHECK:         return
// CHECK:       gpu.func @joined_0
// CHECK-COUNT-3: vector.load {{.*}} vector<{{[48]}}xbf16>
func.func @main(%x: tensor<4096x64xbf16>, %a: tensor<100x64xbf16>, %b: tensor<50x64xbf16>, %i: tensor<4096xi64>)
    -> tensor<4096x192xbf16> {
  %e = tensor.empty() : tensor<4096x64xbf16>
  %p = linalg.generic {indexing_maps = [#row, #whole], iterator_types = ["parallel", "parallel"]}
      ins(%i : tensor<4096xi64>) outs(%e : tensor<4096x64xbf16>) {
  ^bb0(%at: i64, %u: bf16):
    %r = arith.index_cast %at : i64 to index
    %c = linalg.index 1 : index
    %v = tensor.extract %a[%r, %c] : tensor<100x64xbf16>
    linalg.yield %v : bf16
  } -> tensor<4096x64xbf16>
  %q = linalg.generic {indexing_maps = [#row, #whole], iterator_types = ["parallel", "parallel"]}
      ins(%i : tensor<4096xi64>) outs(%e : tensor<4096x64xbf16>) {
  ^bb0(%at: i64, %u: bf16):
    %r = arith.index_cast %at : i64 to index
    %c = linalg.index 1 : index
    %v = tensor.extract %b[%r, %c] : tensor<50x64xbf16>
    linalg.yield %v : bf16
  } -> tensor<4096x64xbf16>
  %y = tensor.concat dim(1) %x, %p, %q : (tensor<4096x64xbf16>, tensor<4096x64xbf16>, tensor<4096x64xbf16>) -> tensor<4096x192xbf16>
  return %y : tensor<4096x192xbf16>
}

// -----

// A column that is computed makes no words.

#row = affine_map<(r, c) -> (r)>
#whole = affine_map<(r, c) -> (r, c)>

// CHECK-LABEL: func.func @main
// CHECK:         gpu.launch_func {{ *}}@kernels::@joined_0
// CHECK:       gpu.func @joined_0
// CHECK:         vector.load
// CHECK:         } else {
// CHECK-NOT:     vector.load
// CHECK:         memref.load %{{.*}} : memref<100x64xbf16>
func.func @main(%x: tensor<4096x64xbf16>, %a: tensor<100x64xbf16>, %i: tensor<4096xi64>)
    -> (tensor<4096x128xbf16>, tensor<4096x64xbf16>) {
  %e = tensor.empty() : tensor<4096x64xbf16>
  %p = linalg.generic {indexing_maps = [#row, #whole], iterator_types = ["parallel", "parallel"]}
      ins(%i : tensor<4096xi64>) outs(%e : tensor<4096x64xbf16>) {
  ^bb0(%at: i64, %u: bf16):
    %r = arith.index_cast %at : i64 to index
    %c = linalg.index 1 : index
    %last = arith.constant 63 : index
    %back = arith.subi %last, %c : index
    %v = tensor.extract %a[%r, %back] : tensor<100x64xbf16>
    linalg.yield %v : bf16
  } -> tensor<4096x64xbf16>
  %y = tensor.concat dim(1) %x, %p : (tensor<4096x64xbf16>, tensor<4096x64xbf16>) -> tensor<4096x128xbf16>
  return %y, %p : tensor<4096x128xbf16>, tensor<4096x64xbf16>
}

// -----

// What a kernel makes of a concatenation and a weight is in neither's memory: the concatenation is computed where the
// kernel reads it, not copied there lest the weight be written.

// CHECK-LABEL: func.func @main
// CHECK:         memref.alloc() {{.*}} : memref<64x96xbf16>
// CHECK-NOT:     memref.alloc
// CHECK-NOT:     memref.copy
// CHECK-COUNT-1: gpu.launch_func {{ *}}@kernels::@joined_0
// CHECK-NOT:     memref.copy
// CHECK-NOT:     gpu.launch_func
// CHECK:         call @layer
func.func private @layer(tensor<64x96xbf16>, tensor<32x96xbf16>) -> tensor<64x32xbf16>
func.func @main(%w: tensor<32x96xbf16>, %x: tensor<64x32xbf16>, %y: tensor<64x64xbf16>) -> tensor<64x32xbf16> {
  %h = tensor.concat dim(1) %x, %y : (tensor<64x32xbf16>, tensor<64x64xbf16>) -> tensor<64x96xbf16>
  %r = call @layer(%h, %w) : (tensor<64x96xbf16>, tensor<32x96xbf16>) -> tensor<64x32xbf16>
  return %r : tensor<64x32xbf16>
}

// -----

// What a kernel reads later is not written before: the elementwise operator between has memory of its own.

#v = affine_map<(r, c) -> (r, c)>

// CHECK-LABEL: func.func @main
// CHECK:         gpu.launch_func {{ *}}@kernels::@elementwise_0 {{.*}}args(%[[H:.+]] : memref<64x96xf32>, %[[E:.+]] : memref<64x96xf32>)
// CHECK:         call @layer(%[[E]], %[[H]])
func.func private @layer(tensor<64x96xf32>, tensor<64x96xf32>) -> tensor<64x32xf32>
func.func @main(%x: tensor<64x32xf32>, %y: tensor<64x64xf32>) -> tensor<64x32xf32> {
  %h = tensor.concat dim(1) %x, %y : (tensor<64x32xf32>, tensor<64x64xf32>) -> tensor<64x96xf32>
  %o = tensor.empty() : tensor<64x96xf32>
  %e = linalg.generic {indexing_maps = [#v, #v], iterator_types = ["parallel", "parallel"]}
      ins(%h : tensor<64x96xf32>) outs(%o : tensor<64x96xf32>) {
  ^bb0(%a: f32, %b: f32):
    %n = arith.negf %a : f32
    linalg.yield %n : f32
  } -> tensor<64x96xf32>
  %r = call @layer(%e, %h) : (tensor<64x96xf32>, tensor<64x96xf32>) -> tensor<64x32xf32>
  return %r : tensor<64x32xf32>
}

// -----

// The first of several rows, where strides are open until the call, does not lie as a tensor of its own.

// CHECK-LABEL: func.func @main
// CHECK:         %[[FIRST:.+]] = memref.subview %arg0[0, 0, 0]
// CHECK-NOT:     memref.cast
// CHECK:         gpu.launch_func {{ *}}@kernels::@copy_0 {{.*}}args(%[[OWN:.+]] : memref<?x?xf32>, %[[FIRST]] :
// CHECK:         call @rows(%[[OWN]])
func.func private @rows(tensor<?x?xf32>) -> tensor<4xf32>
func.func @main(%x: tensor<?x8x?xf32>) -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %m = tensor.dim %x, %c0 : tensor<?x8x?xf32>
  %n = tensor.dim %x, %c2 : tensor<?x8x?xf32>
  %first = tensor.extract_slice %x[0, 0, 0] [%m, 1, %n] [1, 1, 1] : tensor<?x8x?xf32> to tensor<?x?xf32>
  %r = call @rows(%first) : (tensor<?x?xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}
