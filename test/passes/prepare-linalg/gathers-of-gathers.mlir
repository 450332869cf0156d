// RUN: kitsune-opt %s --prepare-linalg | filecheck %s

// Rows out of the blocks of a product, halves of them multiplied, with a number for each row, and put into blocks again:
// numbers are gathered, then both halves, once.

// CHECK-LABEL: func.func @blocks
// CHECK-DAG:     %[[LOW:.*]] = tensor.extract_slice %arg0[0, 0] [120, 64]
// CHECK-DAG:     %[[HIGH:.*]] = tensor.extract_slice %arg0[0, 64] [120, 64]
// CHECK-DAG:     tensor.extract %arg1[%{{.*}}] : tensor<100xi64>
// CHECK-DAG:     tensor.extract %arg3[%{{.*}}] : tensor<100xf32>
// CHECK-DAG:     tensor.extract %[[LOW]][%{{.*}}] : tensor<120x64xf32>
// CHECK-DAG:     tensor.extract %[[HIGH]][%{{.*}}] : tensor<120x64xf32>
// CHECK:         linalg.generic {{.*}} outs(%{{.*}} : tensor<130x64xf32>)
// CHECK:           arith.mulf
// CHECK-NOT:     tensor.extract
// CHECK:         return
func.func @blocks(%t: tensor<120x128xf32>, %n: tensor<100xi64>, %m: tensor<130xi64>, %w: tensor<100xf32>) -> tensor<130x64xf32> {
  %e0 = tensor.empty() : tensor<100x128xf32>
  %a = linalg.generic {indexing_maps = [affine_map<(r, c) -> (r)>, affine_map<(r, c) -> (r, c)>],
      iterator_types = ["parallel", "parallel"]} ins(%n : tensor<100xi64>) outs(%e0 : tensor<100x128xf32>) {
  ^bb0(%in: i64, %out: f32):
    %row = arith.index_cast %in : i64 to index
    %column = linalg.index 1 : index
    %x = tensor.extract %t[%row, %column] : tensor<120x128xf32>
    linalg.yield %x : f32
  } -> tensor<100x128xf32>
  %low = tensor.extract_slice %a[0, 0] [100, 64] [1, 1] : tensor<100x128xf32> to tensor<100x64xf32>
  %high = tensor.extract_slice %a[0, 64] [100, 64] [1, 1] : tensor<100x128xf32> to tensor<100x64xf32>
  %e1 = tensor.empty() : tensor<100x64xf32>
  %b = linalg.generic {indexing_maps = [affine_map<(r, c) -> (r, c)>, affine_map<(r, c) -> (r, c)>, affine_map<(r, c) -> (r)>,
      affine_map<(r, c) -> (r, c)>], iterator_types = ["parallel", "parallel"]}
      ins(%low, %high, %w : tensor<100x64xf32>, tensor<100x64xf32>, tensor<100xf32>) outs(%e1 : tensor<100x64xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32, %out: f32):
    %p = arith.mulf %x, %y : f32
    %q = arith.mulf %p, %z : f32
    linalg.yield %q : f32
  } -> tensor<100x64xf32>
  %e2 = tensor.empty() : tensor<130x64xf32>
  %c = linalg.generic {indexing_maps = [affine_map<(r, c) -> (r)>, affine_map<(r, c) -> (r, c)>],
      iterator_types = ["parallel", "parallel"]} ins(%m : tensor<130xi64>) outs(%e2 : tensor<130x64xf32>) {
  ^bb0(%in: i64, %out: f32):
    %row = arith.index_cast %in : i64 to index
    %column = linalg.index 1 : index
    %x = tensor.extract %b[%row, %column] : tensor<100x64xf32>
    linalg.yield %x : f32
  } -> tensor<130x64xf32>
  return %c : tensor<130x64xf32>
}

// Many times as many rows as there are would compute each many times.

// CHECK-LABEL: func.func @many
// CHECK:         math.exp
// CHECK:         tensor.extract {{.*}} : tensor<100x64xf32>
// CHECK:         return
func.func @many(%t: tensor<120x64xf32>, %n: tensor<100xi64>, %m: tensor<900xi64>) -> tensor<900x64xf32> {
  %e0 = tensor.empty() : tensor<100x64xf32>
  %a = linalg.generic {indexing_maps = [affine_map<(r, c) -> (r)>, affine_map<(r, c) -> (r, c)>],
      iterator_types = ["parallel", "parallel"]} ins(%n : tensor<100xi64>) outs(%e0 : tensor<100x64xf32>) {
  ^bb0(%in: i64, %out: f32):
    %row = arith.index_cast %in : i64 to index
    %column = linalg.index 1 : index
    %x = tensor.extract %t[%row, %column] : tensor<120x64xf32>
    %y = math.exp %x : f32
    linalg.yield %y : f32
  } -> tensor<100x64xf32>
  %e2 = tensor.empty() : tensor<900x64xf32>
  %c = linalg.generic {indexing_maps = [affine_map<(r, c) -> (r)>, affine_map<(r, c) -> (r, c)>],
      iterator_types = ["parallel", "parallel"]} ins(%m : tensor<900xi64>) outs(%e2 : tensor<900x64xf32>) {
  ^bb0(%in: i64, %out: f32):
    %row = arith.index_cast %in : i64 to index
    %column = linalg.index 1 : index
    %x = tensor.extract %a[%row, %column] : tensor<100x64xf32>
    linalg.yield %x : f32
  } -> tensor<900x64xf32>
  return %c : tensor<900x64xf32>
}

// Every other column is that of the table.

// CHECK-LABEL: func.func @interleaved
// CHECK:         tensor.extract_slice %arg0[0, 1] [120, 64] [1, 2]
// CHECK:         return
func.func @interleaved(%t: tensor<120x128xf32>, %n: tensor<100xi64>, %m: tensor<110xi64>) -> tensor<110x64xf32> {
  %e0 = tensor.empty() : tensor<100x128xf32>
  %a = linalg.generic {indexing_maps = [affine_map<(r, c) -> (r)>, affine_map<(r, c) -> (r, c)>],
      iterator_types = ["parallel", "parallel"]} ins(%n : tensor<100xi64>) outs(%e0 : tensor<100x128xf32>) {
  ^bb0(%in: i64, %out: f32):
    %row = arith.index_cast %in : i64 to index
    %column = linalg.index 1 : index
    %x = tensor.extract %t[%row, %column] : tensor<120x128xf32>
    linalg.yield %x : f32
  } -> tensor<100x128xf32>
  %odd = tensor.extract_slice %a[0, 1] [100, 64] [1, 2] : tensor<100x128xf32> to tensor<100x64xf32>
  %e2 = tensor.empty() : tensor<110x64xf32>
  %c = linalg.generic {indexing_maps = [affine_map<(r, c) -> (r)>, affine_map<(r, c) -> (r, c)>],
      iterator_types = ["parallel", "parallel"]} ins(%m : tensor<110xi64>) outs(%e2 : tensor<110x64xf32>) {
  ^bb0(%in: i64, %out: f32):
    %row = arith.index_cast %in : i64 to index
    %column = linalg.index 1 : index
    %x = tensor.extract %odd[%row, %column] : tensor<100x64xf32>
    linalg.yield %x : f32
  } -> tensor<110x64xf32>
  return %c : tensor<110x64xf32>
}
