// RUN: kitsune-opt %s --schedule-rows --split-input-file | filecheck %s
// RUN: kitsune-opt %s --schedule-rows --verify-dataflow --split-input-file

// The mean of each row is taken off it: one read, a reduction and two operators on tiles, one write.

#whole = affine_map<(r, c) -> (r, c)>
#row = affine_map<(r, c) -> (r, 0)>

// CHECK-LABEL: func.func @centred
// CHECK-NOT:     linalg.generic
// CHECK:         %[[P:.*]] = "kitsune.kernel"() ({
// CHECK:           "kitsune.tiles"(%{{.*}}) {{.*}}tile = array<i64: [[TILE:[0-9]+]]>}
// CHECK:             scf.for
// CHECK:               %[[X:.*]] = "kitsune.read"(%arg0, %[[R:.*]], %{{.*}}) {dims = array<i64: 0, 1>,{{.*}} -> tensor<[[ROWS:[0-9]+]]x64xbf16>
// CHECK:               %[[SUM:.*]] = linalg.generic {{.*}} iterator_types = ["parallel", "reduction"]} ins(%[[X]] : tensor<[[ROWS]]x64xbf16>)
// CHECK:               %[[MEAN:.*]] = linalg.generic {{.*}} ins(%[[SUM]] : tensor<[[ROWS]]xf32>)
// CHECK:               %[[Y:.*]] = linalg.generic {{.*}} ins(%[[X]], %[[MEAN]] :
// CHECK:               "kitsune.write"(%[[Y]], %[[R]], %{{.*}}) {dims = array<i64: 0, 1>, index = 0 : i64,
// CHECK:         }) {copies = {{.*}}, lanes = {{.*}}, registers = {{.*}}, sym_name = "rows", vector = 8 : i64, warps = 1
// CHECK:         {ctas = {{.*}}, predicted_us = {{.*}}, sym_name = "rows0", target = "sm_90a"}
// CHECK:         %[[OUT:.*]] = "kitsune.result"(%[[P]]) {index = 0 : i64} : (!kitsune.outputs) -> tensor<4096x64xbf16>
// CHECK:         return %[[OUT]]
func.func @centred(%x: tensor<4096x64xbf16>) -> tensor<4096x64xbf16> {
  %zero = arith.constant 0.0 : f32
  %part = arith.constant 0.015625 : f32
  %e = tensor.empty() : tensor<4096x1xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4096x1xf32>) -> tensor<4096x1xf32>
  %sum = linalg.generic {indexing_maps = [#whole, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<4096x64xbf16>) outs(%f : tensor<4096x1xf32>) {
  ^bb0(%a: bf16, %s: f32):
    %0 = arith.extf %a : bf16 to f32
    %1 = arith.addf %0, %s : f32
    linalg.yield %1 : f32
  } -> tensor<4096x1xf32>
  %mean = linalg.generic {indexing_maps = [#whole, #whole], iterator_types = ["parallel", "parallel"]}
      ins(%sum : tensor<4096x1xf32>) outs(%e : tensor<4096x1xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.mulf %a, %part : f32
    linalg.yield %0 : f32
  } -> tensor<4096x1xf32>
  %o = tensor.empty() : tensor<4096x64xbf16>
  %y = linalg.generic {indexing_maps = [#whole, #row, #whole], iterator_types = ["parallel", "parallel"]}
      ins(%x, %mean : tensor<4096x64xbf16>, tensor<4096x1xf32>) outs(%o : tensor<4096x64xbf16>) {
  ^bb0(%a: bf16, %m: f32, %u: bf16):
    %0 = arith.extf %a : bf16 to f32
    %1 = arith.subf %0, %m : f32
    %2 = arith.truncf %1 : f32 to bf16
    linalg.yield %2 : bf16
  } -> tensor<4096x64xbf16>
  return %y : tensor<4096x64xbf16>
}

// -----

// A sum over the first dimension is no reduction over columns, and an elementwise operator alone no group.

#turned = affine_map<(c, r) -> (r, c)>
#column = affine_map<(c, r) -> (c)>

// CHECK-LABEL: func.func @others
// CHECK-NOT:     kitsune.kernel
func.func @others(%x: tensor<40x64xf32>) -> tensor<64xf32> {
  %zero = arith.constant 0.0 : f32
  %o = tensor.empty() : tensor<40x64xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(r, c) -> (r, c)>, affine_map<(r, c) -> (r, c)>], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<40x64xf32>) outs(%o : tensor<40x64xf32>) {
  ^bb0(%a: f32, %u: f32):
    %0 = arith.mulf %a, %a : f32
    linalg.yield %0 : f32
  } -> tensor<40x64xf32>
  %e = tensor.empty() : tensor<64xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %sum = linalg.generic {indexing_maps = [#turned, #column], iterator_types = ["parallel", "reduction"]}
      ins(%y : tensor<40x64xf32>) outs(%f : tensor<64xf32>) {
  ^bb0(%a: f32, %s: f32):
    %0 = arith.addf %a, %s : f32
    linalg.yield %0 : f32
  } -> tensor<64xf32>
  return %sum : tensor<64xf32>
}

// -----

// Rows of three dimensions, the first open until the call: one dimension of them, unless an operand has only some. Here
// all of a batch's rows add the same.

#whole = affine_map<(b, r, c) -> (b, r, c)>
#batch = affine_map<(b, r, c) -> (b, c)>
#row = affine_map<(b, r, c) -> (b, r)>

// CHECK-LABEL: func.func @batched
// CHECK:         "kitsune.tiles"(%{{.*}}, %{{.*}}) {{.*}}tile = array<i64: 1, {{[0-9]+}}>}
// CHECK-DAG:       "kitsune.read"({{.*}}) {dims = array<i64: 1, 2>, {{.*}} : (tensor<?x33x65xf32>, {{.*}}) -> tensor<{{[0-9]+}}x65xf32>
// CHECK-DAG:       "kitsune.read"({{.*}}) {dims = array<i64: 1>, {{.*}} : (tensor<?x65xf32>, {{.*}}) -> tensor<65xf32>
// CHECK:           "kitsune.write"({{.*}}) {dims = array<i64: 1>, index = 0 : i64,
// CHECK:         "kitsune.result"(%{{.*}}) {index = 0 : i64} : (!kitsune.outputs) -> tensor<?x33xf32>
func.func @batched(%x: tensor<?x33x65xf32>, %y: tensor<?x65xf32>) -> tensor<?x33xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %b = tensor.dim %x, %c0 : tensor<?x33x65xf32>
  %o = tensor.empty(%b) : tensor<?x33x65xf32>
  %z = linalg.generic {indexing_maps = [#whole, #batch, #whole], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %y : tensor<?x33x65xf32>, tensor<?x65xf32>) outs(%o : tensor<?x33x65xf32>) {
  ^bb0(%a: f32, %d: f32, %u: f32):
    %0 = arith.addf %a, %d : f32
    linalg.yield %0 : f32
  } -> tensor<?x33x65xf32>
  %e = tensor.empty(%b) : tensor<?x33xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x33xf32>) -> tensor<?x33xf32>
  %sum = linalg.generic {indexing_maps = [#whole, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%z : tensor<?x33x65xf32>) outs(%f : tensor<?x33xf32>) {
  ^bb0(%a: f32, %s: f32):
    %0 = arith.addf %a, %s : f32
    linalg.yield %0 : f32
  } -> tensor<?x33xf32>
  return %sum : tensor<?x33xf32>
}
