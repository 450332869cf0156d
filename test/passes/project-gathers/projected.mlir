// RUN: kitsune-opt %s --project-gathers --split-input-file | filecheck %s
// RUN: kitsune-opt %s --project-gathers=exact=true --split-input-file | filecheck %s --check-prefix=EXACT

#left = affine_map<(m, n, k) -> (m, k)>
#right = affine_map<(m, n, k) -> (n, k)>
#sums = affine_map<(m, n, k) -> (m, n)>
#row = affine_map<(i, j) -> (i)>
#id = affine_map<(i, j) -> (i, j)>

// 300 rows of a table of 40, 400 columns: the table's product is made once, and the sums begin with its rows.

// CHECK-LABEL: func.func @beside
// CHECK: %[[PART:.+]] = tensor.extract_slice %arg3[0, 8] [16, 400] [1, 1]
// CHECK: %[[P:.+]] = linalg.matmul {{.*}} ins(%arg0, %[[PART]] : tensor<40x400xbf16>, tensor<16x400xbf16>)
// CHECK: %[[T:.+]] = linalg.generic {{.*}} ins(%[[P]] : tensor<40x16xf32>) {{.*}}
// CHECK: arith.truncf
// CHECK: %[[G:.+]] = linalg.generic {{.*}} ins(%arg2 : tensor<300xi64>)
// CHECK: tensor.extract %[[T]][
// CHECK: %[[F:.+]] = linalg.generic {{.*}} ins(%[[G]] : tensor<300x16xbf16>)
// CHECK: arith.extf
// CHECK: %[[OWN:.+]] = tensor.extract_slice %arg3[0, 0] [16, 8] [1, 1]
// CHECK: linalg.matmul {{.*}} ins(%arg1, %[[OWN]] : {{.*}}) outs(%[[F]] : tensor<300x16xf32>)
// CHECK-NOT: tensor.concat
// EXACT-LABEL: func.func @beside
// EXACT: tensor.concat
func.func @beside(%x: tensor<40x400xbf16>, %e: tensor<300x8xbf16>, %at: tensor<300xi64>, %w: tensor<16x408xbf16>) -> tensor<300x16xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<300x400xbf16>
  %g = linalg.generic {indexing_maps = [#row, #id], iterator_types = ["parallel", "parallel"]} ins(%at : tensor<300xi64>) outs(%empty : tensor<300x400xbf16>) {
  ^bb0(%in: i64, %out: bf16):
    %i = arith.index_cast %in : i64 to index
    %j = linalg.index 1 : index
    %found = tensor.extract %x[%i, %j] : tensor<40x400xbf16>
    linalg.yield %found : bf16
  } -> tensor<300x400xbf16>
  %c = tensor.concat dim(1) %e, %g : (tensor<300x8xbf16>, tensor<300x400xbf16>) -> tensor<300x408xbf16>
  %start = tensor.empty() : tensor<300x16xf32>
  %filled = linalg.fill ins(%zero : f32) outs(%start : tensor<300x16xf32>) -> tensor<300x16xf32>
  %y = linalg.matmul indexing_maps = [#left, #right, #sums] ins(%c, %w : tensor<300x408xbf16>, tensor<16x408xbf16>) outs(%filled : tensor<300x16xf32>) -> tensor<300x16xf32>
  return %y : tensor<300x16xf32>
}

// -----

#left = affine_map<(m, n, k) -> (m, k)>
#right = affine_map<(m, n, k) -> (n, k)>
#sums = affine_map<(m, n, k) -> (m, n)>
#row = affine_map<(i, j) -> (i)>
#id = affine_map<(i, j) -> (i, j)>

// Of a table alone no product is left behind the gather.

// CHECK-LABEL: func.func @alone
// CHECK: %[[P:.+]] = linalg.matmul {{.*}} ins(%arg0, %{{.+}} : tensor<40x8xf32>, tensor<16x8xf32>)
// CHECK: tensor.extract %[[P]][
// CHECK-NOT: linalg.matmul
// CHECK: return
func.func @alone(%x: tensor<40x8xf32>, %at: tensor<300xi64>, %w: tensor<16x8xf32>) -> tensor<300x16xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<300x8xf32>
  %g = linalg.generic {indexing_maps = [#row, #id], iterator_types = ["parallel", "parallel"]} ins(%at : tensor<300xi64>) outs(%empty : tensor<300x8xf32>) {
  ^bb0(%in: i64, %out: f32):
    %i = arith.index_cast %in : i64 to index
    %j = linalg.index 1 : index
    %found = tensor.extract %x[%i, %j] : tensor<40x8xf32>
    linalg.yield %found : f32
  } -> tensor<300x8xf32>
  %start = tensor.empty() : tensor<300x16xf32>
  %filled = linalg.fill ins(%zero : f32) outs(%start : tensor<300x16xf32>) -> tensor<300x16xf32>
  %y = linalg.matmul indexing_maps = [#left, #right, #sums] ins(%g, %w : tensor<300x8xf32>, tensor<16x8xf32>) outs(%filled : tensor<300x16xf32>) -> tensor<300x16xf32>
  return %y : tensor<300x16xf32>
}

// -----

#left = affine_map<(m, n, k) -> (m, k)>
#right = affine_map<(m, n, k) -> (n, k)>
#sums = affine_map<(m, n, k) -> (m, n)>
#row = affine_map<(i, j) -> (i)>
#id = affine_map<(i, j) -> (i, j)>

// As many rows as the table has are multiplied as they are.

// CHECK-LABEL: func.func @few
// CHECK: linalg.matmul {{.*}} ins(%{{.+}}, %arg2 : tensor<60x8xf32>, tensor<16x8xf32>)
func.func @few(%x: tensor<40x8xf32>, %at: tensor<60xi64>, %w: tensor<16x8xf32>) -> tensor<60x16xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<60x8xf32>
  %g = linalg.generic {indexing_maps = [#row, #id], iterator_types = ["parallel", "parallel"]} ins(%at : tensor<60xi64>) outs(%empty : tensor<60x8xf32>) {
  ^bb0(%in: i64, %out: f32):
    %i = arith.index_cast %in : i64 to index
    %j = linalg.index 1 : index
    %found = tensor.extract %x[%i, %j] : tensor<40x8xf32>
    linalg.yield %found : f32
  } -> tensor<60x8xf32>
  %start = tensor.empty() : tensor<60x16xf32>
  %filled = linalg.fill ins(%zero : f32) outs(%start : tensor<60x16xf32>) -> tensor<60x16xf32>
  %y = linalg.matmul indexing_maps = [#left, #right, #sums] ins(%g, %w : tensor<60x8xf32>, tensor<16x8xf32>) outs(%filled : tensor<60x16xf32>) -> tensor<60x16xf32>
  return %y : tensor<60x16xf32>
}

// -----

#left = affine_map<(m, n, k) -> (m, k)>
#right = affine_map<(m, n, k) -> (n, k)>
#sums = affine_map<(m, n, k) -> (m, n)>
#row = affine_map<(i, j) -> (i)>
#id = affine_map<(i, j) -> (i, j)>

// Sums of other types are left as they are.

// CHECK-LABEL: func.func @double
// CHECK: linalg.matmul {{.*}} ins(%{{.+}}, %arg2 : tensor<300x8xf64>, tensor<16x8xf64>)
func.func @double(%x: tensor<40x8xf64>, %at: tensor<300xi64>, %w: tensor<16x8xf64>) -> tensor<300x16xf64> {
  %zero = arith.constant 0.0 : f64
  %empty = tensor.empty() : tensor<300x8xf64>
  %g = linalg.generic {indexing_maps = [#row, #id], iterator_types = ["parallel", "parallel"]} ins(%at : tensor<300xi64>) outs(%empty : tensor<300x8xf64>) {
  ^bb0(%in: i64, %out: f64):
    %i = arith.index_cast %in : i64 to index
    %j = linalg.index 1 : index
    %found = tensor.extract %x[%i, %j] : tensor<40x8xf64>
    linalg.yield %found : f64
  } -> tensor<300x8xf64>
  %start = tensor.empty() : tensor<300x16xf64>
  %filled = linalg.fill ins(%zero : f64) outs(%start : tensor<300x16xf64>) -> tensor<300x16xf64>
  %y = linalg.matmul indexing_maps = [#left, #right, #sums] ins(%g, %w : tensor<300x8xf64>, tensor<16x8xf64>) outs(%filled : tensor<300x16xf64>) -> tensor<300x16xf64>
  return %y : tensor<300x16xf64>
}
