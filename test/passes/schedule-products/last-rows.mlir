// Of 264 rows in tiles of 128 the last tile has 8, of 4096 columns in tiles of 96 the last one 64, and boxes of the copy
// engine end with them: rows that are not there take it longer than others.

// RUN: kitsune-opt %s --schedule-products --verify-dataflow > %t.mlir
// RUN: filecheck %s < %t.mlir
// CHECK-LABEL: @rows
// CHECK:         "kitsune.tiles"{{.*}}tile = array<i64: 128, 96>
// CHECK:         "kitsune.copy"({{.*}}, %arg0, {{.*}}last = 8 : i64
// CHECK:         "kitsune.copy"({{.*}}, %arg1, {{.*}}last = 64 : i64

// Of a batch the last tile of each is copied so.
// CHECK-LABEL: @batches
// CHECK:         "kitsune.copy"({{.*}}, %arg0, {{.*}}dims = array<i64: 1, 2>, {{.*}}last = 104 : i64

// What lies along k, and what has any number of rows, has whole boxes.
// CHECK-LABEL: @along_k
// CHECK:         "kitsune.kernel"
// CHECK-NOT:     last =
// CHECK:       func.func @any_rows
// CHECK:         "kitsune.kernel"
// CHECK-NOT:     last =

// A tensor map more, one of two for each box, and the bytes that no box brings.
// RUN: kitsune-opt %t.mlir --convert-kitsune-to-gpu | filecheck %s --check-prefix=GPU
// GPU:       \22product0\22{{.*}}\22box\22: [64, 128]{{.*}}\22box\22: [64, 8]{{.*}}\22box\22: [64, 96]{{.*}}\22box\22: [64, 64]
// GPU:       mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [$0], 15360;
// GPU:       mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [$0], 4096;

// Threads copy no rows that are not there.
// RUN: kitsune-opt %s --schedule-products=target=sm_80 | filecheck %s --check-prefix=THREADS
// THREADS: engine = "cp_async"
// THREADS-NOT: last =

#x = affine_map<(i, j, k) -> (i, k)>
#w = affine_map<(i, j, k) -> (j, k)>
#wk = affine_map<(i, j, k) -> (k, j)>
#xk = affine_map<(i, j, k) -> (k, i)>
#y = affine_map<(i, j, k) -> (i, j)>

func.func @rows(%x: tensor<264x4096xbf16>, %w: tensor<4096x4096xbf16>) -> tensor<264x4096xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<264x4096xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<264x4096xf32>) -> tensor<264x4096xf32>
  %y = linalg.matmul indexing_maps = [#x, #w, #y] ins(%x, %w : tensor<264x4096xbf16>, tensor<4096x4096xbf16>) outs(%f : tensor<264x4096xf32>) -> tensor<264x4096xf32>
  return %y : tensor<264x4096xf32>
}

func.func @batches(%x: tensor<64x100x256xbf16>, %w: tensor<64x256x256xbf16>) -> tensor<64x100x256xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x100x256xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<64x100x256xf32>) -> tensor<64x100x256xf32>
  %y = linalg.batch_matmul ins(%x, %w : tensor<64x100x256xbf16>, tensor<64x256x256xbf16>) outs(%f : tensor<64x100x256xf32>) -> tensor<64x100x256xf32>
  return %y : tensor<64x100x256xf32>
}

func.func @along_k(%x: tensor<256x264xbf16>, %w: tensor<256x1000xbf16>) -> tensor<264x1000xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<264x1000xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<264x1000xf32>) -> tensor<264x1000xf32>
  %y = linalg.matmul indexing_maps = [#xk, #wk, #y] ins(%x, %w : tensor<256x264xbf16>, tensor<256x1000xbf16>) outs(%f : tensor<264x1000xf32>) -> tensor<264x1000xf32>
  return %y : tensor<264x1000xf32>
}

func.func @any_rows(%x: tensor<?x256xbf16>, %w: tensor<1024x256xbf16>) -> tensor<?x1024xf32> {
  %zero = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : index
  %d = tensor.dim %x, %c0 : tensor<?x256xbf16>
  %e = tensor.empty(%d) : tensor<?x1024xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x1024xf32>) -> tensor<?x1024xf32>
  %y = linalg.matmul indexing_maps = [#x, #w, #y] ins(%x, %w : tensor<?x256xbf16>, tensor<1024x256xbf16>) outs(%f : tensor<?x1024xf32>) -> tensor<?x1024xf32>
  return %y : tensor<?x1024xf32>
}
