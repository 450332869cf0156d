// RUN: kitsune-opt %s --schedule-attention | filecheck %s
// RUN: kitsune-opt %s --schedule-attention --verify-dataflow

// Two products with a softmax between them: neither scores nor weights are tensors. Of a causal mask tiles have no
// columns behind their last row's, and those of many columns come first. The next columns are multiplied, into the
// registers that these had, before weights are computed of these; sums begin with what they were, times what the largest
// number's growth makes of it.

#bmk = affine_map<(b, m, n, k) -> (b, m, k)>
#bnk = affine_map<(b, m, n, k) -> (b, n, k)>
#bmn = affine_map<(b, m, n, k) -> (b, m, n)>
#all = affine_map<(b, m, n) -> (b, m, n)>
#row = affine_map<(b, m, n) -> (b, m, 0)>
#row0 = affine_map<(b, m, n) -> (b, m)>
#mn = affine_map<(b, m, n) -> (m, n)>

// CHECK-LABEL: func.func @causal
// CHECK:         %[[A:.*]] = "kitsune.kernel"
// CHECK:           "kitsune.tiles"(%c512, %c8) {{.*}}tile = array<i64: 64, 1>
// CHECK:           %[[Q:.*]] = "kitsune.alloc_ring"() {box = "rows", share = "split"{{.*}}sym_name = "left"
// CHECK:           %[[K:.*]] = "kitsune.alloc_ring"() {box = "rows", share = "all"{{.*}}sym_name = "right"
// CHECK:           %[[V:.*]] = "kitsune.alloc_ring"() {box = "columns", share = "all"{{.*}}sym_name = "values"
// CHECK:           "kitsune.agent"
// CHECK:             "kitsune.copy"({{.*}}, %arg0,
// CHECK:             %[[UPPER:.*]] = arith.minui
// CHECK:             "kitsune.copy"({{.*}}, %arg1,
// CHECK:             %[[LAST:.*]] = arith.subi %[[UPPER]], %[[STEP:.*]] : index
// CHECK-NEXT:        scf.for %{{.*}} to %[[LAST]] step %[[STEP]]
// CHECK:               "kitsune.copy"({{.*}}, %arg1,
// CHECK:               "kitsune.copy"({{.*}}, %arg2,
// CHECK:               "kitsune.copy"({{.*}}, %arg2,
// CHECK:             "kitsune.copy"({{.*}}, %arg2,
// CHECK:           "kitsune.agent"
// CHECK:             %[[LEFT:.*]] = "kitsune.wait"(%[[Q]])
// CHECK:             "kitsune.product"({{.*}}, %[[LEFT]],
// CHECK:             scf.for {{.*}} iter_args(%{{[^=]*}} = {{.*}}, %[[TOP:[^ ]*]] = {{.*}}, %{{.*}} = {{.*}}, %[[ACC:[^ ]*]] = {{.*}}, %[[SLOT:[^ ]*]] = {{.*}}, %[[DONE:[^ ]*]] = {{.*}}) ->
// CHECK-NEXT:          %[[S:.*]] = "kitsune.settle"(%[[ACC]])
// CHECK-NEXT:          "kitsune.release"(%[[SLOT]], %[[DONE]])
// CHECK-NEXT:          %[[HELD:.*]] = "kitsune.part"(%[[S]]) {{.*}}wide
// CHECK-NEXT:          %[[NEXT:.*]] = "kitsune.sums"(%[[S]])
// CHECK:               "kitsune.product"(%[[NEXT]], %[[LEFT]],
// CHECK:               arith.maximumf
// CHECK:               math.exp2
// CHECK:               %[[PART:.*]] = "kitsune.part"({{.*}}) {{.*}}wide
// CHECK-NEXT:          "kitsune.sums"(%[[PART]]) {begin
// CHECK:               "kitsune.wait"(%[[V]])
// CHECK:             arith.divf
// CHECK:             "kitsune.write"
// CHECK-NOT:         "kitsune.write"
// CHECK:         "kitsune.result"(%[[A]]) {index = 0 : i64}
// CHECK-NOT:     linalg.batch_matmul
func.func @causal(%q: tensor<8x512x64xbf16>, %k: tensor<8x512x64xbf16>, %v: tensor<8x512x64xbf16>) -> tensor<8x512x64xbf16> {
  %zero = arith.constant 0.0 : f32
  %never = arith.constant 0xFF800000 : f32
  %scale = arith.constant 0.125 : f32
  %e = tensor.empty() : tensor<8x512x512xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8x512x512xf32>) -> tensor<8x512x512xf32>
  %s = linalg.batch_matmul indexing_maps = [#bmk, #bnk, #bmn] ins(%q, %k : tensor<8x512x64xbf16>, tensor<8x512x64xbf16>) outs(%f : tensor<8x512x512xf32>) -> tensor<8x512x512xf32>
  %x = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%s : tensor<8x512x512xf32>) outs(%e : tensor<8x512x512xf32>) {
  ^bb0(%a: f32, %o: f32):
    %y = arith.mulf %a, %scale : f32
    linalg.yield %y : f32
  } -> tensor<8x512x512xf32>
  %em = tensor.empty() : tensor<512x512xi1>
  %mask = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]} outs(%em : tensor<512x512xi1>) {
  ^bb0(%o: i1):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %c = arith.cmpi sle, %j, %i : index
    linalg.yield %c : i1
  } -> tensor<512x512xi1>
  %z = linalg.generic {indexing_maps = [#mn, #all, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%mask, %x : tensor<512x512xi1>, tensor<8x512x512xf32>) outs(%e : tensor<8x512x512xf32>) {
  ^bb0(%c: i1, %a: f32, %o: f32):
    %y = arith.select %c, %a, %never : f32
    linalg.yield %y : f32
  } -> tensor<8x512x512xf32>
  %er = tensor.empty() : tensor<8x512x1xf32>
  %fm = linalg.fill ins(%never : f32) outs(%er : tensor<8x512x1xf32>) -> tensor<8x512x1xf32>
  %top = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "parallel", "reduction"]} ins(%z : tensor<8x512x512xf32>) outs(%fm : tensor<8x512x1xf32>) {
  ^bb0(%a: f32, %o: f32):
    %y = arith.maximumf %a, %o : f32
    linalg.yield %y : f32
  } -> tensor<8x512x1xf32>
  %less = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%z, %top : tensor<8x512x512xf32>, tensor<8x512x1xf32>) outs(%e : tensor<8x512x512xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %y = arith.subf %a, %b : f32
    linalg.yield %y : f32
  } -> tensor<8x512x512xf32>
  %power = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%less : tensor<8x512x512xf32>) outs(%e : tensor<8x512x512xf32>) {
  ^bb0(%a: f32, %o: f32):
    %y = math.exp %a : f32
    linalg.yield %y : f32
  } -> tensor<8x512x512xf32>
  %fs = linalg.fill ins(%zero : f32) outs(%er : tensor<8x512x1xf32>) -> tensor<8x512x1xf32>
  %sum = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "parallel", "reduction"]} ins(%power : tensor<8x512x512xf32>) outs(%fs : tensor<8x512x1xf32>) {
  ^bb0(%a: f32, %o: f32):
    %y = arith.addf %a, %o : f32
    linalg.yield %y : f32
  } -> tensor<8x512x1xf32>
  %ep = tensor.empty() : tensor<8x512x512xbf16>
  %p = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%power, %sum : tensor<8x512x512xf32>, tensor<8x512x1xf32>) outs(%ep : tensor<8x512x512xbf16>) {
  ^bb0(%a: f32, %b: f32, %o: bf16):
    %y = arith.divf %a, %b : f32
    %w = arith.truncf %y : f32 to bf16
    linalg.yield %w : bf16
  } -> tensor<8x512x512xbf16>
  %ev = tensor.empty() : tensor<8x512x64xf32>
  %fv = linalg.fill ins(%zero : f32) outs(%ev : tensor<8x512x64xf32>) -> tensor<8x512x64xf32>
  %r = linalg.batch_matmul ins(%p, %v : tensor<8x512x512xbf16>, tensor<8x512x64xbf16>) outs(%fv : tensor<8x512x64xf32>) -> tensor<8x512x64xf32>
  %er16 = tensor.empty() : tensor<8x512x64xbf16>
  %out = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%r : tensor<8x512x64xf32>) outs(%er16 : tensor<8x512x64xbf16>) {
  ^bb0(%a: f32, %o: bf16):
    %w = arith.truncf %a : f32 to bf16
    linalg.yield %w : bf16
  } -> tensor<8x512x64xbf16>
  return %out : tensor<8x512x64xbf16>
}

// Weights that something else takes are tensors: nothing is done.

// CHECK-LABEL: func.func @given_away
// CHECK-NOT:     kitsune.kernel
// CHECK:         linalg.batch_matmul
// CHECK:         linalg.batch_matmul
func.func @given_away(%q: tensor<8x512x64xbf16>, %k: tensor<8x512x64xbf16>, %v: tensor<8x512x64xbf16>) -> (tensor<8x512x64xbf16>, tensor<8x512x512xbf16>) {
  %zero = arith.constant 0.0 : f32
  %never = arith.constant 0xFF800000 : f32
  %scale = arith.constant 0.125 : f32
  %e = tensor.empty() : tensor<8x512x512xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8x512x512xf32>) -> tensor<8x512x512xf32>
  %s = linalg.batch_matmul indexing_maps = [#bmk, #bnk, #bmn] ins(%q, %k : tensor<8x512x64xbf16>, tensor<8x512x64xbf16>) outs(%f : tensor<8x512x512xf32>) -> tensor<8x512x512xf32>
  %x = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%s : tensor<8x512x512xf32>) outs(%e : tensor<8x512x512xf32>) {
  ^bb0(%a: f32, %o: f32):
    %y = arith.mulf %a, %scale : f32
    linalg.yield %y : f32
  } -> tensor<8x512x512xf32>
  %em = tensor.empty() : tensor<512x512xi1>
  %mask = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]} outs(%em : tensor<512x512xi1>) {
  ^bb0(%o: i1):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %c = arith.cmpi sle, %j, %i : index
    linalg.yield %c : i1
  } -> tensor<512x512xi1>
  %z = linalg.generic {indexing_maps = [#mn, #all, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%mask, %x : tensor<512x512xi1>, tensor<8x512x512xf32>) outs(%e : tensor<8x512x512xf32>) {
  ^bb0(%c: i1, %a: f32, %o: f32):
    %y = arith.select %c, %a, %never : f32
    linalg.yield %y : f32
  } -> tensor<8x512x512xf32>
  %er = tensor.empty() : tensor<8x512x1xf32>
  %fm = linalg.fill ins(%never : f32) outs(%er : tensor<8x512x1xf32>) -> tensor<8x512x1xf32>
  %top = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "parallel", "reduction"]} ins(%z : tensor<8x512x512xf32>) outs(%fm : tensor<8x512x1xf32>) {
  ^bb0(%a: f32, %o: f32):
    %y = arith.maximumf %a, %o : f32
    linalg.yield %y : f32
  } -> tensor<8x512x1xf32>
  %less = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%z, %top : tensor<8x512x512xf32>, tensor<8x512x1xf32>) outs(%e : tensor<8x512x512xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %y = arith.subf %a, %b : f32
    linalg.yield %y : f32
  } -> tensor<8x512x512xf32>
  %power = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%less : tensor<8x512x512xf32>) outs(%e : tensor<8x512x512xf32>) {
  ^bb0(%a: f32, %o: f32):
    %y = math.exp %a : f32
    linalg.yield %y : f32
  } -> tensor<8x512x512xf32>
  %fs = linalg.fill ins(%zero : f32) outs(%er : tensor<8x512x1xf32>) -> tensor<8x512x1xf32>
  %sum = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "parallel", "reduction"]} ins(%power : tensor<8x512x512xf32>) outs(%fs : tensor<8x512x1xf32>) {
  ^bb0(%a: f32, %o: f32):
    %y = arith.addf %a, %o : f32
    linalg.yield %y : f32
  } -> tensor<8x512x1xf32>
  %ep = tensor.empty() : tensor<8x512x512xbf16>
  %p = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%power, %sum : tensor<8x512x512xf32>, tensor<8x512x1xf32>) outs(%ep : tensor<8x512x512xbf16>) {
  ^bb0(%a: f32, %b: f32, %o: bf16):
    %y = arith.divf %a, %b : f32
    %w = arith.truncf %y : f32 to bf16
    linalg.yield %w : bf16
  } -> tensor<8x512x512xbf16>
  %ev = tensor.empty() : tensor<8x512x64xf32>
  %fv = linalg.fill ins(%zero : f32) outs(%ev : tensor<8x512x64xf32>) -> tensor<8x512x64xf32>
  %r = linalg.batch_matmul ins(%p, %v : tensor<8x512x512xbf16>, tensor<8x512x64xbf16>) outs(%fv : tensor<8x512x64xf32>) -> tensor<8x512x64xf32>
  %er16 = tensor.empty() : tensor<8x512x64xbf16>
  %out = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%r : tensor<8x512x64xf32>) outs(%er16 : tensor<8x512x64xbf16>) {
  ^bb0(%a: f32, %o: bf16):
    %w = arith.truncf %a : f32 to bf16
    linalg.yield %w : bf16
  } -> tensor<8x512x64xbf16>
  return %out, %p : tensor<8x512x64xbf16>, tensor<8x512x512xbf16>
}

// Of a row group whose result is the sum of its rows, and not their largest number taken off, there are no weights.

// CHECK-LABEL: func.func @no_weights
// CHECK-NOT:     kitsune.kernel
// CHECK:         linalg.batch_matmul
// CHECK:         linalg.batch_matmul
func.func @no_weights(%q: tensor<8x512x64xbf16>, %k: tensor<8x512x64xbf16>, %v: tensor<8x512x64xbf16>) -> tensor<8x512x64xbf16> {
  %zero = arith.constant 0.0 : f32
  %never = arith.constant 0xFF800000 : f32
  %scale = arith.constant 0.125 : f32
  %e = tensor.empty() : tensor<8x512x512xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8x512x512xf32>) -> tensor<8x512x512xf32>
  %s = linalg.batch_matmul indexing_maps = [#bmk, #bnk, #bmn] ins(%q, %k : tensor<8x512x64xbf16>, tensor<8x512x64xbf16>) outs(%f : tensor<8x512x512xf32>) -> tensor<8x512x512xf32>
  %x = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%s : tensor<8x512x512xf32>) outs(%e : tensor<8x512x512xf32>) {
  ^bb0(%a: f32, %o: f32):
    %y = arith.mulf %a, %scale : f32
    linalg.yield %y : f32
  } -> tensor<8x512x512xf32>
  %em = tensor.empty() : tensor<512x512xi1>
  %mask = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]} outs(%em : tensor<512x512xi1>) {
  ^bb0(%o: i1):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %c = arith.cmpi sle, %j, %i : index
    linalg.yield %c : i1
  } -> tensor<512x512xi1>
  %z = linalg.generic {indexing_maps = [#mn, #all, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%mask, %x : tensor<512x512xi1>, tensor<8x512x512xf32>) outs(%e : tensor<8x512x512xf32>) {
  ^bb0(%c: i1, %a: f32, %o: f32):
    %y = arith.select %c, %a, %never : f32
    linalg.yield %y : f32
  } -> tensor<8x512x512xf32>
  %er = tensor.empty() : tensor<8x512x1xf32>
  %fm = linalg.fill ins(%never : f32) outs(%er : tensor<8x512x1xf32>) -> tensor<8x512x1xf32>
  %top = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "parallel", "reduction"]} ins(%z : tensor<8x512x512xf32>) outs(%fm : tensor<8x512x1xf32>) {
  ^bb0(%a: f32, %o: f32):
    %y = arith.maximumf %a, %o : f32
    linalg.yield %y : f32
  } -> tensor<8x512x1xf32>
  %less = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%z, %top : tensor<8x512x512xf32>, tensor<8x512x1xf32>) outs(%e : tensor<8x512x512xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %y = arith.mulf %a, %b : f32
    linalg.yield %y : f32
  } -> tensor<8x512x512xf32>
  %power = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%less : tensor<8x512x512xf32>) outs(%e : tensor<8x512x512xf32>) {
  ^bb0(%a: f32, %o: f32):
    %y = math.exp %a : f32
    linalg.yield %y : f32
  } -> tensor<8x512x512xf32>
  %fs = linalg.fill ins(%zero : f32) outs(%er : tensor<8x512x1xf32>) -> tensor<8x512x1xf32>
  %sum = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "parallel", "reduction"]} ins(%power : tensor<8x512x512xf32>) outs(%fs : tensor<8x512x1xf32>) {
  ^bb0(%a: f32, %o: f32):
    %y = arith.addf %a, %o : f32
    linalg.yield %y : f32
  } -> tensor<8x512x1xf32>
  %ep = tensor.empty() : tensor<8x512x512xbf16>
  %p = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%power, %sum : tensor<8x512x512xf32>, tensor<8x512x1xf32>) outs(%ep : tensor<8x512x512xbf16>) {
  ^bb0(%a: f32, %b: f32, %o: bf16):
    %y = arith.divf %a, %b : f32
    %w = arith.truncf %y : f32 to bf16
    linalg.yield %w : bf16
  } -> tensor<8x512x512xbf16>
  %ev = tensor.empty() : tensor<8x512x64xf32>
  %fv = linalg.fill ins(%zero : f32) outs(%ev : tensor<8x512x64xf32>) -> tensor<8x512x64xf32>
  %r = linalg.batch_matmul ins(%p, %v : tensor<8x512x512xbf16>, tensor<8x512x64xbf16>) outs(%fv : tensor<8x512x64xf32>) -> tensor<8x512x64xf32>
  %er16 = tensor.empty() : tensor<8x512x64xbf16>
  %out = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%r : tensor<8x512x64xf32>) outs(%er16 : tensor<8x512x64xbf16>) {
  ^bb0(%a: f32, %o: bf16):
    %w = arith.truncf %a : f32 to bf16
    linalg.yield %w : bf16
  } -> tensor<8x512x64xbf16>
  return %out : tensor<8x512x64xbf16>
}

// What weights are divided by is computed of the sum, in the operator that divides: sums are divided by the same.

// CHECK-LABEL: func.func @over_a_root
// CHECK:         "kitsune.kernel"
// CHECK:           %[[ROOT:.*]] = math.sqrt
// CHECK-NEXT:      arith.divf {{.*}}, %[[ROOT]]
// CHECK:           "kitsune.write"
func.func @over_a_root(%q: tensor<8x512x64xbf16>, %k: tensor<8x512x64xbf16>, %v: tensor<8x512x64xbf16>) -> tensor<8x512x64xbf16> {
  %zero = arith.constant 0.0 : f32
  %never = arith.constant 0xFF800000 : f32
  %scale = arith.constant 0.125 : f32
  %e = tensor.empty() : tensor<8x512x512xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8x512x512xf32>) -> tensor<8x512x512xf32>
  %s = linalg.batch_matmul indexing_maps = [#bmk, #bnk, #bmn] ins(%q, %k : tensor<8x512x64xbf16>, tensor<8x512x64xbf16>) outs(%f : tensor<8x512x512xf32>) -> tensor<8x512x512xf32>
  %x = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%s : tensor<8x512x512xf32>) outs(%e : tensor<8x512x512xf32>) {
  ^bb0(%a: f32, %o: f32):
    %y = arith.mulf %a, %scale : f32
    linalg.yield %y : f32
  } -> tensor<8x512x512xf32>
  %em = tensor.empty() : tensor<512x512xi1>
  %mask = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]} outs(%em : tensor<512x512xi1>) {
  ^bb0(%o: i1):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %c = arith.cmpi sle, %j, %i : index
    linalg.yield %c : i1
  } -> tensor<512x512xi1>
  %z = linalg.generic {indexing_maps = [#mn, #all, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%mask, %x : tensor<512x512xi1>, tensor<8x512x512xf32>) outs(%e : tensor<8x512x512xf32>) {
  ^bb0(%c: i1, %a: f32, %o: f32):
    %y = arith.select %c, %a, %never : f32
    linalg.yield %y : f32
  } -> tensor<8x512x512xf32>
  %er = tensor.empty() : tensor<8x512x1xf32>
  %fm = linalg.fill ins(%never : f32) outs(%er : tensor<8x512x1xf32>) -> tensor<8x512x1xf32>
  %top = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "parallel", "reduction"]} ins(%z : tensor<8x512x512xf32>) outs(%fm : tensor<8x512x1xf32>) {
  ^bb0(%a: f32, %o: f32):
    %y = arith.maximumf %a, %o : f32
    linalg.yield %y : f32
  } -> tensor<8x512x1xf32>
  %less = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%z, %top : tensor<8x512x512xf32>, tensor<8x512x1xf32>) outs(%e : tensor<8x512x512xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %y = arith.subf %a, %b : f32
    linalg.yield %y : f32
  } -> tensor<8x512x512xf32>
  %power = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%less : tensor<8x512x512xf32>) outs(%e : tensor<8x512x512xf32>) {
  ^bb0(%a: f32, %o: f32):
    %y = math.exp %a : f32
    linalg.yield %y : f32
  } -> tensor<8x512x512xf32>
  %fs = linalg.fill ins(%zero : f32) outs(%er : tensor<8x512x1xf32>) -> tensor<8x512x1xf32>
  %sum = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "parallel", "reduction"]} ins(%power : tensor<8x512x512xf32>) outs(%fs : tensor<8x512x1xf32>) {
  ^bb0(%a: f32, %o: f32):
    %y = arith.addf %a, %o : f32
    linalg.yield %y : f32
  } -> tensor<8x512x1xf32>
  %ep = tensor.empty() : tensor<8x512x512xbf16>
  %p = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%power, %sum : tensor<8x512x512xf32>, tensor<8x512x1xf32>) outs(%ep : tensor<8x512x512xbf16>) {
  ^bb0(%a: f32, %b: f32, %o: bf16):
    %root = math.sqrt %b : f32
    %y = arith.divf %a, %root : f32
    %w = arith.truncf %y : f32 to bf16
    linalg.yield %w : bf16
  } -> tensor<8x512x512xbf16>
  %ev = tensor.empty() : tensor<8x512x64xf32>
  %fv = linalg.fill ins(%zero : f32) outs(%ev : tensor<8x512x64xf32>) -> tensor<8x512x64xf32>
  %r = linalg.batch_matmul ins(%p, %v : tensor<8x512x512xbf16>, tensor<8x512x64xbf16>) outs(%fv : tensor<8x512x64xf32>) -> tensor<8x512x64xf32>
  %er16 = tensor.empty() : tensor<8x512x64xbf16>
  %out = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%r : tensor<8x512x64xf32>) outs(%er16 : tensor<8x512x64xbf16>) {
  ^bb0(%a: f32, %o: bf16):
    %w = arith.truncf %a : f32 to bf16
    linalg.yield %w : bf16
  } -> tensor<8x512x64xbf16>
  return %out : tensor<8x512x64xbf16>
}
