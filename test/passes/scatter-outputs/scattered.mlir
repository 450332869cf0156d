// RUN: kitsune-opt %s --scatter-outputs --split-input-file | filecheck %s
// RUN: kitsune-opt %s --scatter-outputs=target=sm_89 --split-input-file | filecheck %s --check-prefix=OTHER

// What a chained pipeline stores to be added to rows of zeros leaves it so; the pipeline's price is that of the additions.

// CHECK-LABEL: func.func @added
// CHECK: %[[TILE:.+]] = "kitsune.load"(%arg0)
// CHECK: %[[TO:.+]] = "kitsune.load"(%arg1) : (tensor<256xi64>) -> tensor<128xi64>
// CHECK: "kitsune.scatter"(%[[TILE]], %[[TO]]) {index = 0 : i64{{.*}}} : (tensor<128x32xf32>, tensor<128xi64>) -> ()
// CHECK: %[[R:.+]] = "kitsune.result"(%{{.+}}) {index = 0 : i64} : (!kitsune.outputs) -> tensor<9x32xf32>
// CHECK-NOT: tm_tensor.scatter
// CHECK: return %[[R]]
// OTHER-LABEL: func.func @added
// OTHER: tm_tensor.scatter
func.func @added(%x: tensor<256x32xf32>, %to: tensor<256xi64>) -> tensor<9x32xf32> {
  %p = "kitsune.pipeline"() ({
    "kitsune.stage"() ({
      %tile = "kitsune.load"(%x) : (tensor<256x32xf32>) -> tensor<128x32xf32>
      "kitsune.store"(%tile) {index = 0 : i64} : (tensor<128x32xf32>) -> ()
    }) {kind = "simt", replicas = 2 : i64, role = 0 : i64, sym_name = "s0"} : () -> ()
  }) {predicted_us = 2.0 : f64, shape = "chained", sym_name = "p", target = "sm_90a", tile_rows = 128 : i64} : () -> !kitsune.outputs
  %r = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<256x32xf32>
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<9x32xf32>
  %table = linalg.fill ins(%zero : f32) outs(%empty : tensor<9x32xf32>) -> tensor<9x32xf32>
  %updates = tensor.expand_shape %r [[0, 1], [2]] output_shape [256, 1, 32] : tensor<256x32xf32> into tensor<256x1x32xf32>
  %at = tensor.expand_shape %to [[0, 1]] output_shape [256, 1] : tensor<256xi64> into tensor<256x1xi64>
  %s = tm_tensor.scatter {dimension_map = array<i64: 0>} unique_indices(false) ins(%updates, %at : tensor<256x1x32xf32>, tensor<256x1xi64>) outs(%table : tensor<9x32xf32>) {
  ^bb0(%update: f32, %old: f32):
    %total = arith.addf %old, %update : f32
    tm_tensor.yield %total : f32
  } -> tensor<9x32xf32>
  return %s : tensor<9x32xf32>
}

// -----

// A table of any number of rows has as many as a tensor that the pipeline is told the rows of.

// CHECK-LABEL: func.func @any_rows
// CHECK: "kitsune.scatter"(%{{.+}}, %{{.+}}, %arg2) {index = 0 : i64{{.*}}} : (tensor<128x32xf32>, tensor<128xi64>, tensor<?x8xf32>) -> ()
// CHECK: %[[R:.+]] = "kitsune.result"(%{{.+}}) {index = 0 : i64} : (!kitsune.outputs) -> tensor<?x32xf32>
// CHECK-NOT: tm_tensor.scatter
// CHECK: return %[[R]]
func.func @any_rows(%x: tensor<256x32xf32>, %to: tensor<256xi64>, %like: tensor<?x8xf32>) -> tensor<?x32xf32> {
  %p = "kitsune.pipeline"() ({
    "kitsune.stage"() ({
      %tile = "kitsune.load"(%x) : (tensor<256x32xf32>) -> tensor<128x32xf32>
      "kitsune.store"(%tile) {index = 0 : i64} : (tensor<128x32xf32>) -> ()
    }) {kind = "simt", replicas = 2 : i64, role = 0 : i64, sym_name = "s0"} : () -> ()
  }) {predicted_us = 2.0 : f64, shape = "chained", sym_name = "p", target = "sm_90a", tile_rows = 128 : i64} : () -> !kitsune.outputs
  %r = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<256x32xf32>
  %zero = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : index
  %n = tensor.dim %like, %c0 : tensor<?x8xf32>
  %empty = tensor.empty(%n) : tensor<?x32xf32>
  %table = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x32xf32>) -> tensor<?x32xf32>
  %updates = tensor.expand_shape %r [[0, 1], [2]] output_shape [256, 1, 32] : tensor<256x32xf32> into tensor<256x1x32xf32>
  %at = tensor.expand_shape %to [[0, 1]] output_shape [256, 1] : tensor<256xi64> into tensor<256x1xi64>
  %s = tm_tensor.scatter {dimension_map = array<i64: 0>} unique_indices(false) ins(%updates, %at : tensor<256x1x32xf32>, tensor<256x1xi64>) outs(%table : tensor<?x32xf32>) {
  ^bb0(%update: f32, %old: f32):
    %total = arith.addf %old, %update : f32
    tm_tensor.yield %total : f32
  } -> tensor<?x32xf32>
  return %s : tensor<?x32xf32>
}

// -----

// Of a tensor whose rows the pipeline streams, or of a number, it is not told.

// CHECK-LABEL: func.func @unknown_rows
// CHECK-NOT: kitsune.scatter
// CHECK: tm_tensor.scatter
func.func @unknown_rows(%x: tensor<?x32xf32>, %to: tensor<?xi64>) -> tensor<?x32xf32> {
  %p = "kitsune.pipeline"() ({
    "kitsune.stage"() ({
      %tile = "kitsune.load"(%x) : (tensor<?x32xf32>) -> tensor<128x32xf32>
      "kitsune.store"(%tile) {index = 0 : i64} : (tensor<128x32xf32>) -> ()
    }) {kind = "simt", replicas = 2 : i64, role = 0 : i64, sym_name = "s0"} : () -> ()
  }) {predicted_us = 2.0 : f64, shape = "chained", sym_name = "p", target = "sm_90a", tile_rows = 128 : i64} : () -> !kitsune.outputs
  %r = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<?x32xf32>
  %zero = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x32xf32>
  %empty = tensor.empty(%n) : tensor<?x32xf32>
  %table = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x32xf32>) -> tensor<?x32xf32>
  %updates = tensor.expand_shape %r [[0, 1], [2]] output_shape [%n, 1, 32] : tensor<?x32xf32> into tensor<?x1x32xf32>
  %at = tensor.expand_shape %to [[0, 1]] output_shape [%n, 1] : tensor<?xi64> into tensor<?x1xi64>
  %s = tm_tensor.scatter {dimension_map = array<i64: 0>} unique_indices(false) ins(%updates, %at : tensor<?x1x32xf32>, tensor<?x1xi64>) outs(%table : tensor<?x32xf32>) {
  ^bb0(%update: f32, %old: f32):
    %total = arith.addf %old, %update : f32
    tm_tensor.yield %total : f32
  } -> tensor<?x32xf32>
  return %s : tensor<?x32xf32>
}

// -----

// Maxima, and sums that do not begin at zero, are kernels of their own.

// CHECK-LABEL: func.func @others
// CHECK-NOT: kitsune.scatter
// CHECK: tm_tensor.scatter
// CHECK: tm_tensor.scatter
func.func @others(%x: tensor<256x32xf32>, %to: tensor<256xi64>, %before: tensor<9x32xf32>) -> (tensor<9x32xf32>, tensor<9x32xf32>) {
  %p = "kitsune.pipeline"() ({
    "kitsune.stage"() ({
      %tile = "kitsune.load"(%x) : (tensor<256x32xf32>) -> tensor<128x32xf32>
      "kitsune.store"(%tile) {index = 0 : i64} : (tensor<128x32xf32>) -> ()
      "kitsune.store"(%tile) {index = 1 : i64} : (tensor<128x32xf32>) -> ()
    }) {kind = "simt", replicas = 2 : i64, role = 0 : i64, sym_name = "s0"} : () -> ()
  }) {predicted_us = 2.0 : f64, shape = "chained", sym_name = "p", target = "sm_90a", tile_rows = 128 : i64} : () -> !kitsune.outputs
  %r = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<256x32xf32>
  %q = "kitsune.result"(%p) {index = 1 : i64} : (!kitsune.outputs) -> tensor<256x32xf32>
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<9x32xf32>
  %table = linalg.fill ins(%zero : f32) outs(%empty : tensor<9x32xf32>) -> tensor<9x32xf32>
  %updates = tensor.expand_shape %r [[0, 1], [2]] output_shape [256, 1, 32] : tensor<256x32xf32> into tensor<256x1x32xf32>
  %more = tensor.expand_shape %q [[0, 1], [2]] output_shape [256, 1, 32] : tensor<256x32xf32> into tensor<256x1x32xf32>
  %at = tensor.expand_shape %to [[0, 1]] output_shape [256, 1] : tensor<256xi64> into tensor<256x1xi64>
  %s = tm_tensor.scatter {dimension_map = array<i64: 0>} unique_indices(false) ins(%updates, %at : tensor<256x1x32xf32>, tensor<256x1xi64>) outs(%table : tensor<9x32xf32>) {
  ^bb0(%update: f32, %old: f32):
    %most = arith.maximumf %old, %update : f32
    tm_tensor.yield %most : f32
  } -> tensor<9x32xf32>
  %t = tm_tensor.scatter {dimension_map = array<i64: 0>} unique_indices(false) ins(%more, %at : tensor<256x1x32xf32>, tensor<256x1xi64>) outs(%before : tensor<9x32xf32>) {
  ^bb0(%update: f32, %old: f32):
    %total = arith.addf %old, %update : f32
    tm_tensor.yield %total : f32
  } -> tensor<9x32xf32>
  return %s, %t : tensor<9x32xf32>, tensor<9x32xf32>
}

// -----

#row = affine_map<(i, j) -> (i)>
#id = affine_map<(i, j) -> (i, j)>

// What is stored in the order of some keys, and only put back, is placed; additions in that order are as many bytes as
// the table has.

// CHECK-LABEL: func.func @ordered
// CHECK: %[[K:.+]]:2 = "kitsune.order"
// CHECK: %[[TO:.+]] = linalg.generic
// CHECK: %[[AT:.+]] = "kitsune.load"(%[[K]]#0) : (tensor<256xi32>) -> tensor<128xi32>
// CHECK: "kitsune.place"(%{{.+}}, %[[AT]]) {index = 0 : i64} : (tensor<128x32xf32>, tensor<128xi32>) -> ()
// CHECK: %[[R:.+]] = "kitsune.result"(%{{.+}}) {index = 0 : i64} : (!kitsune.outputs) -> tensor<256x32xf32>
// CHECK-NOT: linalg.generic
// CHECK: return %[[R]]
// OTHER-LABEL: func.func @ordered
// OTHER-NOT: kitsune.place
// OTHER: return
func.func @ordered(%x: tensor<256x32xf32>, %to: tensor<256xi64>) -> tensor<256x32xf32> {
  %count = arith.constant 9 : index
  %rows, %places = "kitsune.order"(%to, %count) : (tensor<256xi64>, index) -> (tensor<256xi32>, tensor<256xi32>)
  %some = tensor.empty() : tensor<256x32xf32>
  %in = linalg.generic {indexing_maps = [#row, #id], iterator_types = ["parallel", "parallel"]} ins(%rows : tensor<256xi32>) outs(%some : tensor<256x32xf32>) {
  ^bb0(%a: i32, %out: f32):
    %i = arith.index_cast %a : i32 to index
    %j = linalg.index 1 : index
    %found = tensor.extract %x[%i, %j] : tensor<256x32xf32>
    linalg.yield %found : f32
  } -> tensor<256x32xf32>
  %p = "kitsune.pipeline"() ({
    "kitsune.stage"() ({
      %tile = "kitsune.load"(%in) : (tensor<256x32xf32>) -> tensor<128x32xf32>
      "kitsune.store"(%tile) {index = 0 : i64} : (tensor<128x32xf32>) -> ()
    }) {kind = "simt", replicas = 2 : i64, role = 0 : i64, sym_name = "s0"} : () -> ()
  }) {predicted_us = 2.0 : f64, shape = "chained", sym_name = "p", target = "sm_90a", tile_rows = 128 : i64} : () -> !kitsune.outputs
  %r = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<256x32xf32>
  %back = linalg.generic {indexing_maps = [#row, #id], iterator_types = ["parallel", "parallel"]} ins(%places : tensor<256xi32>) outs(%some : tensor<256x32xf32>) {
  ^bb0(%a: i32, %out: f32):
    %i = arith.index_cast %a : i32 to index
    %j = linalg.index 1 : index
    %found = tensor.extract %r[%i, %j] : tensor<256x32xf32>
    linalg.yield %found : f32
  } -> tensor<256x32xf32>
  return %back : tensor<256x32xf32>
}

// -----

// What is summed and read otherwise leaves in both ways; the first output stays what it was.

// CHECK-LABEL: func.func @both
// CHECK: "kitsune.scatter"(%[[TILE:.+]], %{{.+}}) {index = 1 : i64
// CHECK: "kitsune.store"(%[[TILE]]) {index = 0 : i64}
// CHECK: predicted_us
// CHECK-DAG: %[[R:.+]] = "kitsune.result"(%{{.+}}) {index = 0 : i64} : (!kitsune.outputs) -> tensor<256x32xf32>
// CHECK-DAG: %[[S:.+]] = "kitsune.result"(%{{.+}}) {index = 1 : i64} : (!kitsune.outputs) -> tensor<9x32xf32>
// CHECK: return %[[R]], %[[S]]
// OTHER-LABEL: func.func @both
// OTHER: tm_tensor.scatter
func.func @both(%x: tensor<256x32xf32>, %to: tensor<256xi64>) -> (tensor<256x32xf32>, tensor<9x32xf32>) {
  %p = "kitsune.pipeline"() ({
    "kitsune.stage"() ({
      %tile = "kitsune.load"(%x) : (tensor<256x32xf32>) -> tensor<128x32xf32>
      "kitsune.store"(%tile) {index = 0 : i64} : (tensor<128x32xf32>) -> ()
    }) {kind = "simt", replicas = 2 : i64, role = 0 : i64, sym_name = "s0"} : () -> ()
  }) {predicted_us = 2.0 : f64, shape = "chained", sym_name = "p", target = "sm_90a", tile_rows = 128 : i64} : () -> !kitsune.outputs
  %r = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<256x32xf32>
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<9x32xf32>
  %table = linalg.fill ins(%zero : f32) outs(%empty : tensor<9x32xf32>) -> tensor<9x32xf32>
  %updates = tensor.expand_shape %r [[0, 1], [2]] output_shape [256, 1, 32] : tensor<256x32xf32> into tensor<256x1x32xf32>
  %at = tensor.expand_shape %to [[0, 1]] output_shape [256, 1] : tensor<256xi64> into tensor<256x1xi64>
  %s = tm_tensor.scatter {dimension_map = array<i64: 0>} unique_indices(false) ins(%updates, %at : tensor<256x1x32xf32>, tensor<256x1xi64>) outs(%table : tensor<9x32xf32>) {
  ^bb0(%update: f32, %old: f32):
    %total = arith.addf %old, %update : f32
    tm_tensor.yield %total : f32
  } -> tensor<9x32xf32>
  return %r, %s : tensor<256x32xf32>, tensor<9x32xf32>
}
