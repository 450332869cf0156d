// RUN: kitsune-opt %s --partition-dataflow --split-input-file --verify-diagnostics | filecheck %s

// What cannot stream rows stays outside, as it was, with the reason.

// CHECK-LABEL: func.func @wide_gather
// CHECK-NOT: kitsune.pipeline
// CHECK: tensor.extract
// CHECK: "kitsune.pipeline"
func.func @wide_gather(%table: tensor<100x144xf32>, %index: tensor<64xi64>, %w: tensor<144x8xf32>) -> tensor<64x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x144xf32>
  // expected-remark @below {{stays outside pipelines: gathers more of a row for a product than registers hold}}
  %g = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%index : tensor<64xi64>) outs(%e : tensor<64x144xf32>) {
  ^bb0(%at: i64, %out: f32):
    %row = arith.index_cast %at : i64 to index
    %column = linalg.index 1 : index
    %v = tensor.extract %table[%row, %column] : tensor<100x144xf32>
    linalg.yield %v : f32
  } -> tensor<64x144xf32>
  %e1 = tensor.empty() : tensor<64x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e1 : tensor<64x8xf32>) -> tensor<64x8xf32>
  %y = linalg.matmul ins(%g, %w : tensor<64x144xf32>, tensor<144x8xf32>) outs(%f : tensor<64x8xf32>) -> tensor<64x8xf32>
  return %y : tensor<64x8xf32>
}

// -----

// A few columns of a table are an operand in registers.

// CHECK-LABEL: func.func @gather
// CHECK: "kitsune.pipeline"
// CHECK: tensor.extract
func.func @gather(%table: tensor<100x16xf32>, %index: tensor<64xi64>, %w: tensor<16x8xf32>) -> tensor<64x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x16xf32>
  %g = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%index : tensor<64xi64>) outs(%e : tensor<64x16xf32>) {
  ^bb0(%at: i64, %out: f32):
    %row = arith.index_cast %at : i64 to index
    %column = linalg.index 1 : index
    %v = tensor.extract %table[%row, %column] : tensor<100x16xf32>
    linalg.yield %v : f32
  } -> tensor<64x16xf32>
  %e1 = tensor.empty() : tensor<64x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e1 : tensor<64x8xf32>) -> tensor<64x8xf32>
  %y = linalg.matmul ins(%g, %w : tensor<64x16xf32>, tensor<16x8xf32>) outs(%f : tensor<64x8xf32>) -> tensor<64x8xf32>
  return %y : tensor<64x8xf32>
}

// -----

// CHECK-LABEL: func.func @batched
// CHECK-NOT: kitsune.pipeline
// CHECK: linalg.batch_matmul
func.func @batched(%q: tensor<4x16x8xf32>, %k: tensor<4x8x16xf32>) -> tensor<4x16x16xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x16x16xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4x16x16xf32>) -> tensor<4x16x16xf32>
  // expected-remark @below {{stays outside pipelines: both operands of the product change with the row}}
  %s = linalg.batch_matmul ins(%q, %k : tensor<4x16x8xf32>, tensor<4x8x16xf32>) outs(%f : tensor<4x16x16xf32>) -> tensor<4x16x16xf32>
  return %s : tensor<4x16x16xf32>
}

// -----

// CHECK-LABEL: func.func @convolution
// CHECK-NOT: kitsune.pipeline
// CHECK: linalg.conv_2d_nchw_fchw
func.func @convolution(%x: tensor<1x3x8x8xf32>, %w: tensor<4x3x3x3xf32>) -> tensor<1x4x6x6xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x4x6x6xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32>
  // expected-remark @below {{stays outside pipelines: its window crosses rows}}
  %y = linalg.conv_2d_nchw_fchw {dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>}
      ins(%x, %w : tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32>) outs(%f : tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32>
  return %y : tensor<1x4x6x6xf32>
}

// -----

// Without a product there is nothing to overlap.

// CHECK-LABEL: func.func @elementwise
// CHECK-NOT: kitsune.pipeline
func.func @elementwise(%x: tensor<64x8xf32>) -> tensor<64x8xf32> {
  %e = tensor.empty() : tensor<64x8xf32>
  // expected-remark @below {{stays outside pipelines: no matrix product streams these rows}}
  %y = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<64x8xf32>) outs(%e : tensor<64x8xf32>) {
  ^bb0(%v: f32, %out: f32):
    %n = arith.negf %v : f32
    linalg.yield %n : f32
  } -> tensor<64x8xf32>
  return %y : tensor<64x8xf32>
}

// -----

// A row number, a part of the rows and rows put together are other rows than the ones that stream.

#id = affine_map<(i, j) -> (i, j)>

// CHECK-LABEL: func.func @rows
// CHECK: "kitsune.pipeline"() ({
// CHECK-NEXT: tensor.empty
// CHECK-NEXT: linalg.fill
// CHECK-NEXT: linalg.matmul
// CHECK-NEXT: "kitsune.store"
// CHECK-NEXT: })
func.func @rows(%x: tensor<64x8xf32>, %w: tensor<8x8xf32>) -> (tensor<32x8xf32>, tensor<128x8xf32>, tensor<64x8xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<64x8xf32>) -> tensor<64x8xf32>
  %y = linalg.matmul ins(%x, %w : tensor<64x8xf32>, tensor<8x8xf32>) outs(%f : tensor<64x8xf32>) -> tensor<64x8xf32>
  // expected-remark @below {{stays outside pipelines: takes some of the rows}}
  %half = tensor.extract_slice %y[0, 0] [32, 8] [1, 1] : tensor<64x8xf32> to tensor<32x8xf32>
  // expected-remark @below {{stays outside pipelines: concatenates along the rows}}
  %both = tensor.concat dim(0) %y, %y : (tensor<64x8xf32>, tensor<64x8xf32>) -> tensor<128x8xf32>
  // expected-remark @below {{stays outside pipelines: reads the row number}}
  %number = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y : tensor<64x8xf32>) outs(%e : tensor<64x8xf32>) {
  ^bb0(%v: f32, %out: f32):
    %i = linalg.index 0 : index
    %n = arith.index_cast %i : index to i32
    %m = arith.sitofp %n : i32 to f32
    %p = arith.mulf %v, %m : f32
    linalg.yield %p : f32
  } -> tensor<64x8xf32>
  return %half, %both, %number : tensor<32x8xf32>, tensor<128x8xf32>, tensor<64x8xf32>
}

// -----

// A number that is known at the call only, such as how many rows there are, is no part of a kernel.

#id = affine_map<(i, j) -> (i, j)>

// CHECK-LABEL: func.func @counted
// CHECK: "kitsune.pipeline"() ({
// CHECK-NEXT: tensor.empty
// CHECK-NEXT: linalg.fill
// CHECK-NEXT: linalg.matmul
// CHECK-NEXT: "kitsune.store"
// CHECK-NEXT: })
func.func @counted(%x: tensor<?x8xf32>, %w: tensor<8x8xf32>) -> tensor<?x8xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %rows = tensor.dim %x, %c0 : tensor<?x8xf32>
  %whole = arith.index_cast %rows : index to i64
  %count = arith.sitofp %whole : i64 to f32
  %e = tensor.empty(%rows) : tensor<?x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x8xf32>) -> tensor<?x8xf32>
  %y = linalg.matmul ins(%x, %w : tensor<?x8xf32>, tensor<8x8xf32>) outs(%f : tensor<?x8xf32>) -> tensor<?x8xf32>
  // expected-remark @below {{stays outside pipelines: reads a number that is known at the call only}}
  %mean = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y : tensor<?x8xf32>) outs(%e : tensor<?x8xf32>) {
  ^bb0(%v: f32, %out: f32):
    %p = arith.divf %v, %count : f32
    linalg.yield %p : f32
  } -> tensor<?x8xf32>
  return %mean : tensor<?x8xf32>
}

// -----

// Nor is one that a tensor is filled with, or one that is computed of how many rows there are.

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i, 0)>

func.func @counted_twice(%x: tensor<?x8xf32>, %w: tensor<8x8xf32>, %t: tensor<?xf32>, %n: tensor<?x1xi64>) -> (tensor<?x8xf32>, tensor<?x8xf32>) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %none = arith.constant 0 : i64
  %rows = tensor.dim %x, %c0 : tensor<?x8xf32>
  %count = arith.index_cast %rows : index to i64
  %e = tensor.empty(%rows) : tensor<?x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x8xf32>) -> tensor<?x8xf32>
  %y = linalg.matmul ins(%x, %w : tensor<?x8xf32>, tensor<8x8xf32>) outs(%f : tensor<?x8xf32>) -> tensor<?x8xf32>
  %one = tensor.empty() : tensor<1x1xi64>
  %counts = linalg.fill ins(%count : i64) outs(%one : tensor<1x1xi64>) -> tensor<1x1xi64>
  // expected-remark @below {{stays outside pipelines: reads a number that is known at the call only}}
  %m = linalg.generic {indexing_maps = [#id, affine_map<(i, j) -> (0, 0)>, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y, %counts : tensor<?x8xf32>, tensor<1x1xi64>) outs(%e : tensor<?x8xf32>) {
  ^bb0(%v: f32, %c: i64, %out: f32):
    %s = arith.sitofp %c : i64 to f32
    %p = arith.divf %v, %s : f32
    linalg.yield %p : f32
  } -> tensor<?x8xf32>
  %length = affine.apply affine_map<()[n] -> (n * 2)>()[%rows]
  // expected-remark @below {{stays outside pipelines: reads a number that is known at the call only}}
  %z = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y, %n : tensor<?x8xf32>, tensor<?x1xi64>) outs(%e : tensor<?x8xf32>) {
  ^bb0(%v: f32, %i: i64, %out: f32):
    %below = arith.cmpi slt, %i, %none : i64
    %size = arith.index_cast %length : index to i64
    %last = arith.addi %i, %size : i64
    %at = arith.select %below, %last, %i : i64
    %k = arith.index_cast %at : i64 to index
    %g = tensor.extract %t[%k] : tensor<?xf32>
    %p = arith.mulf %v, %g : f32
    linalg.yield %p : f32
  } -> tensor<?x8xf32>
  return %m, %z : tensor<?x8xf32>, tensor<?x8xf32>
}
