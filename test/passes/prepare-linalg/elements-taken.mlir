// RUN: kitsune-opt %s --prepare-linalg | filecheck %s

#whole = affine_map<(r, c) -> (r, c)>
#row = affine_map<(r, c) -> (r, 0)>

// One class of each row: what is elementwise is computed of its number alone, and of the row's; the exponential is not
// taken apart where something else reads it.

// CHECK-LABEL: func.func @loss
// CHECK-NOT:     tensor<64x1000xf32>
// CHECK:         tensor.extract %arg0[%[[ROW:.*]], %{{.*}}] : tensor<64x1000xbf16>
// CHECK:         tensor.extract %arg1[%[[ROW]], %c0] : tensor<64x1xf32>
// CHECK:         arith.subf
// CHECK:         linalg.yield
func.func @loss(%x: tensor<64x1000xbf16>, %sum: tensor<64x1xf32>, %label: tensor<64xi64>) -> tensor<64xf32> {
  %e = tensor.empty() : tensor<64x1000xf32>
  %p = linalg.generic {indexing_maps = [#whole, #row, #whole], iterator_types = ["parallel", "parallel"]}
      ins(%x, %sum : tensor<64x1000xbf16>, tensor<64x1xf32>) outs(%e : tensor<64x1000xf32>) {
  ^bb0(%a: bf16, %s: f32, %o: f32):
    %0 = arith.extf %a : bf16 to f32
    %1 = arith.subf %0, %s : f32
    linalg.yield %1 : f32
  } -> tensor<64x1000xf32>
  %o = tensor.empty() : tensor<64xf32>
  %l = linalg.generic {indexing_maps = [affine_map<(r) -> (r)>, affine_map<(r) -> (r)>], iterator_types = ["parallel"]}
      ins(%label : tensor<64xi64>) outs(%o : tensor<64xf32>) {
  ^bb0(%n: i64, %out: f32):
    %row = linalg.index 0 : index
    %class = arith.index_cast %n : i64 to index
    %0 = tensor.extract %p[%row, %class] : tensor<64x1000xf32>
    linalg.yield %0 : f32
  } -> tensor<64xf32>
  return %l : tensor<64xf32>
}

// CHECK-LABEL: func.func @read_by_others
// CHECK:         %[[ALL:.*]] = linalg.generic
// CHECK:           math.exp
// CHECK:         tensor.extract %[[ALL]]
// CHECK:         return %[[ALL]]
func.func @read_by_others(%x: tensor<64x1000xf32>, %label: tensor<64xi64>) -> (tensor<64x1000xf32>, tensor<64xf32>) {
  %e = tensor.empty() : tensor<64x1000xf32>
  %p = linalg.generic {indexing_maps = [#whole, #whole], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<64x1000xf32>) outs(%e : tensor<64x1000xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = math.exp %a : f32
    linalg.yield %0 : f32
  } -> tensor<64x1000xf32>
  %o = tensor.empty() : tensor<64xf32>
  %l = linalg.generic {indexing_maps = [affine_map<(r) -> (r)>, affine_map<(r) -> (r)>], iterator_types = ["parallel"]}
      ins(%label : tensor<64xi64>) outs(%o : tensor<64xf32>) {
  ^bb0(%n: i64, %out: f32):
    %row = linalg.index 0 : index
    %class = arith.index_cast %n : i64 to index
    %0 = tensor.extract %p[%row, %class] : tensor<64x1000xf32>
    linalg.yield %0 : f32
  } -> tensor<64xf32>
  return %p, %l : tensor<64x1000xf32>, tensor<64xf32>
}

// Scores that others read are taken as they are: the product's kernel rounds them, and does not write its sums.
// CHECK-LABEL: func.func @scores
// CHECK:         linalg.matmul
// CHECK:         %[[SCORES:.*]] = linalg.generic
// CHECK:           arith.truncf
// CHECK:         tensor.extract %[[SCORES]]
func.func @scores(%x: tensor<64x32xbf16>, %w: tensor<32x1000xbf16>, %label: tensor<64xi64>) -> (tensor<64x1000xbf16>, tensor<64xbf16>) {
  %zero = arith.constant 0.0 : f32
  %i = tensor.empty() : tensor<64x1000xf32>
  %f = linalg.fill ins(%zero : f32) outs(%i : tensor<64x1000xf32>) -> tensor<64x1000xf32>
  %s = linalg.matmul ins(%x, %w : tensor<64x32xbf16>, tensor<32x1000xbf16>) outs(%f : tensor<64x1000xf32>) -> tensor<64x1000xf32>
  %e = tensor.empty() : tensor<64x1000xbf16>
  %p = linalg.generic {indexing_maps = [#whole, #whole], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<64x1000xf32>) outs(%e : tensor<64x1000xbf16>) {
  ^bb0(%a: f32, %o: bf16):
    %0 = arith.truncf %a : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<64x1000xbf16>
  %o = tensor.empty() : tensor<64xbf16>
  %l = linalg.generic {indexing_maps = [affine_map<(r) -> (r)>, affine_map<(r) -> (r)>], iterator_types = ["parallel"]}
      ins(%label : tensor<64xi64>) outs(%o : tensor<64xbf16>) {
  ^bb0(%n: i64, %out: bf16):
    %row = linalg.index 0 : index
    %class = arith.index_cast %n : i64 to index
    %0 = tensor.extract %p[%row, %class] : tensor<64x1000xbf16>
    linalg.yield %0 : bf16
  } -> tensor<64xbf16>
  return %p, %l : tensor<64x1000xbf16>, tensor<64xbf16>
}

// What others read is taken as it is rounded, of operands that are: with them fused, others have other numbers.
// CHECK-LABEL: func.func @rounded
// CHECK:           math.exp
// CHECK:         %[[ALL:.*]] = linalg.generic
// CHECK:           arith.mulf
// CHECK:         tensor.extract %[[ALL]]
func.func @rounded(%x: tensor<64x1000xbf16>, %label: tensor<64xi64>) -> (tensor<64x1000xbf16>, tensor<64xbf16>) {
  %e = tensor.empty() : tensor<64x1000xbf16>
  %g = linalg.generic {indexing_maps = [#whole, #whole], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<64x1000xbf16>) outs(%e : tensor<64x1000xbf16>) {
  ^bb0(%a: bf16, %o: bf16):
    %0 = math.exp %a : bf16
    linalg.yield %0 : bf16
  } -> tensor<64x1000xbf16>
  %p = linalg.generic {indexing_maps = [#whole, #whole], iterator_types = ["parallel", "parallel"]}
      ins(%g : tensor<64x1000xbf16>) outs(%e : tensor<64x1000xbf16>) {
  ^bb0(%a: bf16, %o: bf16):
    %0 = arith.mulf %a, %a : bf16
    linalg.yield %0 : bf16
  } -> tensor<64x1000xbf16>
  %o = tensor.empty() : tensor<64xbf16>
  %l = linalg.generic {indexing_maps = [affine_map<(r) -> (r)>, affine_map<(r) -> (r)>], iterator_types = ["parallel"]}
      ins(%label : tensor<64xi64>) outs(%o : tensor<64xbf16>) {
  ^bb0(%n: i64, %out: bf16):
    %row = linalg.index 0 : index
    %class = arith.index_cast %n : i64 to index
    %0 = tensor.extract %p[%row, %class] : tensor<64x1000xbf16>
    linalg.yield %0 : bf16
  } -> tensor<64xbf16>
  return %p, %l : tensor<64x1000xbf16>, tensor<64xbf16>
}

// Through slices, and what is around: the exponentials that a sum of each row reads are computed again.
// CHECK-LABEL: func.func @views
// CHECK-NOT:     tensor.pad
// CHECK:         %[[SUM:.*]] = linalg.generic
// CHECK:         linalg.generic
// CHECK:           %[[PLACE:.*]] = arith.addi %{{.*}}, %c3
// CHECK:           tensor.extract %arg0[%{{.*}}, %[[PLACE]]] : tensor<64x1000xf32>
// CHECK:           math.exp
// CHECK:         linalg.generic
// CHECK:           %[[ANY:.*]] = arith.cmpi ult
// CHECK:           %[[IN:.*]] = arith.cmpi ult
// CHECK:           %[[ELSE:.*]] = arith.select %[[ANY]]
// CHECK:           arith.select %[[IN]], %{{.*}}, %[[ELSE]]
// CHECK:           math.exp
// CHECK:           arith.select %[[IN]]
func.func @views(%x: tensor<64x1000xf32>, %label: tensor<64xi64>) -> (tensor<64x1xf32>, tensor<64xf32>, tensor<64xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x1000xf32>
  %g = linalg.generic {indexing_maps = [#whole, #whole], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<64x1000xf32>) outs(%e : tensor<64x1000xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = math.exp %a : f32
    linalg.yield %0 : f32
  } -> tensor<64x1000xf32>
  %i = tensor.empty() : tensor<64x1xf32>
  %f = linalg.fill ins(%zero : f32) outs(%i : tensor<64x1xf32>) -> tensor<64x1xf32>
  %sum = linalg.generic {indexing_maps = [#whole, #row], iterator_types = ["parallel", "reduction"]}
      ins(%g : tensor<64x1000xf32>) outs(%f : tensor<64x1xf32>) {
  ^bb0(%a: f32, %s: f32):
    %0 = arith.addf %a, %s : f32
    linalg.yield %0 : f32
  } -> tensor<64x1xf32>
  %cut = tensor.extract_slice %g[0, 3] [64, 997] [1, 1] : tensor<64x1000xf32> to tensor<64x997xf32>
  %longer = tensor.pad %g low[0, 2] high[0, 1] {
  ^bb0(%r: index, %c: index):
    tensor.yield %zero : f32
  } : tensor<64x1000xf32> to tensor<64x1003xf32>
  %o = tensor.empty() : tensor<64xf32>
  %l = linalg.generic {indexing_maps = [affine_map<(r) -> (r)>, affine_map<(r) -> (r)>], iterator_types = ["parallel"]}
      ins(%label : tensor<64xi64>) outs(%o : tensor<64xf32>) {
  ^bb0(%n: i64, %out: f32):
    %row = linalg.index 0 : index
    %class = arith.index_cast %n : i64 to index
    %0 = tensor.extract %cut[%row, %class] : tensor<64x997xf32>
    linalg.yield %0 : f32
  } -> tensor<64xf32>
  %m = linalg.generic {indexing_maps = [affine_map<(r) -> (r)>, affine_map<(r) -> (r)>], iterator_types = ["parallel"]}
      ins(%label : tensor<64xi64>) outs(%o : tensor<64xf32>) {
  ^bb0(%n: i64, %out: f32):
    %row = linalg.index 0 : index
    %class = arith.index_cast %n : i64 to index
    %0 = tensor.extract %longer[%row, %class] : tensor<64x1003xf32>
    linalg.yield %0 : f32
  } -> tensor<64xf32>
  return %sum, %l, %m : tensor<64x1xf32>, tensor<64xf32>, tensor<64xf32>
}
