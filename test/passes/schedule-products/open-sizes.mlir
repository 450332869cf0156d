// Scores of all rows with all, and weights of an open number: one open size is rows, columns and what is summed over.
// Lines of an open length are put into longer ones, which begin at multiples of 16 bytes; warps store such lines.

// RUN: kitsune-opt %s --split-input-file --schedule-products --verify-dataflow --verify-diagnostics > %t.mlir
// RUN: filecheck %s < %t.mlir
// CHECK-LABEL: func.func @main
// CHECK:     "kitsune.write"{{.*}} engine = "warps"{{.*}}tensor<64x{{.*}}xf32>
// CHECK:     %[[SCORES:.*]] = "kitsune.result"{{.*}} -> tensor<3x?x?xf32>
// CHECK:     %[[WEIGHTS:.*]] = linalg.generic
// CHECK:     %[[WORDS:.*]] = arith.divui
// CHECK:     %[[LENGTH:.*]] = arith.muli %[[WORDS]]
// CHECK:     %[[EMPTY:.*]] = tensor.empty(%{{.*}}, %[[LENGTH]]) : tensor<3x?x?xbf16>
// CHECK:     %[[LONGER:.*]] = tensor.insert_slice %[[WEIGHTS]] into %[[EMPTY]]
// CHECK:     "kitsune.copy"({{.*}}, %[[LONGER]], {{.*}} longer

// RUN: kitsune-opt %s --schedule-products --convert-kitsune-to-gpu --split-input-file | filecheck %s --check-prefix=GPU
// GPU: \22dims\22: [null, null, 3], \22strides\22: [2, 2], {{.*}}\22line\22: 8

#q = affine_map<(b, i, j, k) -> (b, i, k)>
#k = affine_map<(b, i, j, k) -> (b, j, k)>
#s = affine_map<(b, i, j, k) -> (b, i, j)>
#v = affine_map<(b, i, j, k) -> (b, k, j)>
#id = affine_map<(b, i, j) -> (b, i, j)>

func.func @main(%q: tensor<3x?x64xbf16>, %v: tensor<3x?x72xbf16>) -> tensor<3x?x72xf32> attributes {
    kitsune.example = [array<i64: 3, 200, 64>, array<i64: 3, 200, 72>],
    kitsune.symbols = [array<i64: -1, 0, -1>, array<i64: -1, 0, -1>]} {
  %one = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %q, %one : tensor<3x?x64xbf16>
  %e = tensor.empty(%n, %n) : tensor<3x?x?xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<3x?x?xf32>) -> tensor<3x?x?xf32>
  %s = linalg.batch_matmul indexing_maps = [#q, #k, #s] ins(%q, %q : tensor<3x?x64xbf16>, tensor<3x?x64xbf16>) outs(%f : tensor<3x?x?xf32>) -> tensor<3x?x?xf32>
  %h = tensor.empty(%n, %n) : tensor<3x?x?xbf16>
  %w = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%s : tensor<3x?x?xf32>) outs(%h : tensor<3x?x?xbf16>) {
  ^bb0(%x: f32, %o: bf16):
    %i = linalg.index 2 : index
    %p = arith.index_cast %i : index to i64
    %r = arith.sitofp %p : i64 to f32
    %m = arith.mulf %x, %r : f32
    %t = arith.truncf %m : f32 to bf16
    linalg.yield %t : bf16
  } -> tensor<3x?x?xbf16>
  %g = tensor.empty(%n) : tensor<3x?x72xf32>
  %z = linalg.fill ins(%zero : f32) outs(%g : tensor<3x?x72xf32>) -> tensor<3x?x72xf32>
  %y = linalg.batch_matmul indexing_maps = [#q, #v, #s] ins(%w, %v : tensor<3x?x?xbf16>, tensor<3x?x72xbf16>) outs(%z : tensor<3x?x72xf32>) -> tensor<3x?x72xf32>
  return %y : tensor<3x?x72xf32>
}

// -----

// Sizes that are not known to be equal are asked for each, of the tensors that have them.
// CHECK-LABEL: func.func @main(%arg0: tensor<?x64xbf16>, %arg1: tensor<?x64xbf16>)
// CHECK-NOT: linalg.matmul
// CHECK:     linalg.fill
// CHECK:     %[[M:.*]] = tensor.dim %arg0
// CHECK:     %[[N:.*]] = tensor.dim %arg1
// CHECK:     "kitsune.tiles"(%[[M]], %[[N]])
// CHECK:     %[[ROWS:.*]] = tensor.dim %arg0
// CHECK:     %[[COLUMNS:.*]] = tensor.dim %arg1
// CHECK:     "kitsune.result"(%{{.*}}, %[[ROWS]], %[[COLUMNS]]) {index = 0 : i64{{.*}}} : (!kitsune.outputs, index, index) -> tensor<?x?xf32>

#x = affine_map<(i, j, k) -> (i, k)>
#y = affine_map<(i, j, k) -> (j, k)>
#z = affine_map<(i, j, k) -> (i, j)>

func.func @main(%x: tensor<?x64xbf16>, %y: tensor<?x64xbf16>) -> tensor<?x?xf32> {
  %none = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %y, %none : tensor<?x64xbf16>
  %m = tensor.dim %x, %none : tensor<?x64xbf16>
  %e = tensor.empty(%m, %n) : tensor<?x?xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
  %s = linalg.matmul indexing_maps = [#x, #y, #z] ins(%x, %y : tensor<?x64xbf16>, tensor<?x64xbf16>) outs(%f : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %s : tensor<?x?xf32>
}

// -----

// Where nobody else has the length of lines, sums go to the ends of longer ones, which are zeros.
// CHECK-LABEL: func.func @main
// CHECK-COUNT-2: {kitsune.open_padded}
// CHECK: sym_name = "product0"

#x = affine_map<(i, j, k) -> (i, k)>
#y = affine_map<(i, j, k) -> (j, k)>
#z = affine_map<(i, j, k) -> (i, j)>

func.func @main(%x: tensor<?x?xbf16>, %y: tensor<?x?xbf16>) -> tensor<?x?xf32> {
  %none = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %m = tensor.dim %x, %none : tensor<?x?xbf16>
  %n = tensor.dim %y, %none : tensor<?x?xbf16>
  %e = tensor.empty(%m, %n) : tensor<?x?xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
  %s = linalg.matmul indexing_maps = [#x, #y, #z] ins(%x, %y : tensor<?x?xbf16>, tensor<?x?xbf16>) outs(%f : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %s : tensor<?x?xf32>
}
