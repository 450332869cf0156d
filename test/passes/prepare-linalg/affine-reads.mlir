// RUN: kitsune-opt %s --prepare-linalg | filecheck %s

// Numbers that grow evenly with their place are a map: those of windows, counted from the front alone.

// CHECK-LABEL: func.func @windows
// CHECK:         linalg.generic {indexing_maps = [#[[M:.*]], #{{.*}}], iterator_types = ["parallel", "parallel", "parallel"]} ins(%arg0 : tensor<?x20xf32>)
// CHECK-NOT:     tensor.extract
func.func @windows(%x: tensor<?x20xf32>) -> tensor<?x3x9xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0 : i64
  %two = arith.constant 2 : i64
  %twenty = arith.constant 20 : i64
  %n = tensor.dim %x, %c0 : tensor<?x20xf32>
  %d = tensor.empty() : tensor<3x9xi64>
  %m = linalg.generic {indexing_maps = [affine_map<(k, w) -> (k, w)>], iterator_types = ["parallel", "parallel"]} outs(%d : tensor<3x9xi64>) {
  ^bb0(%o: i64):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %k = arith.index_cast %i : index to i64
    %w = arith.index_cast %j : index to i64
    %s = arith.muli %w, %two : i64
    %a = arith.addi %k, %s : i64
    linalg.yield %a : i64
  } -> tensor<3x9xi64>
  %e = tensor.empty(%n) : tensor<?x3x9xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(b, k, w) -> (k, w)>, affine_map<(b, k, w) -> (b, k, w)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%m : tensor<3x9xi64>) outs(%e : tensor<?x3x9xf32>) {
  ^bb0(%a: i64, %o: f32):
    %b = linalg.index 0 : index
    %less = arith.cmpi slt, %a, %zero : i64
    %behind = arith.addi %a, %twenty : i64
    %c = arith.select %less, %behind, %a : i64
    %d1 = arith.index_cast %c : i64 to index
    %v = tensor.extract %x[%b, %d1] : tensor<?x20xf32>
    linalg.yield %v : f32
  } -> tensor<?x3x9xf32>
  return %y : tensor<?x3x9xf32>
}

// Places behind the end are none.

// CHECK-LABEL: func.func @behind
// CHECK:         tensor.extract
func.func @behind(%x: tensor<20xf32>) -> tensor<3x9xf32> {
  %e = tensor.empty() : tensor<3x9xf32>
  %c3 = arith.constant 3 : index
  %y = linalg.generic {indexing_maps = [affine_map<(k, w) -> (k, w)>], iterator_types = ["parallel", "parallel"]} outs(%e : tensor<3x9xf32>) {
  ^bb0(%o: f32):
    %k = linalg.index 0 : index
    %w = linalg.index 1 : index
    %s = arith.muli %w, %c3 : index
    %a = arith.addi %k, %s : index
    %v = tensor.extract %x[%a] : tensor<20xf32>
    linalg.yield %v : f32
  } -> tensor<3x9xf32>
  return %y : tensor<3x9xf32>
}
