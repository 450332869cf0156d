// RUN: kitsune-opt %s --schedule-rows | filecheck %s

#whole = affine_map<(r, c) -> (r, c)>
#row = affine_map<(r, c) -> (r)>

// Of rows of 100,001 numbers the largest is found, and in the same pass the sum of exponentials: parts begin at a multiple
// of eight elements behind the tensor's first, and are read while the one before is dealt with.

// CHECK-LABEL: func.func @wide
// CHECK:         "kitsune.agent"
// CHECK:           %[[FIRST:.*]] = arith.minui %{{.*}}, %c100001
// CHECK:           scf.for %{{.*}} = %{{.*}} to %[[FIRST]] step %[[FEW:.*]] iter_args
// CHECK:             arith.cmpi slt
// CHECK:             arith.maximumf
// CHECK:             math.exp
// CHECK:           %[[AHEAD:.*]] = "kitsune.read"(%arg0, %{{.*}}, %[[FIRST]]) {aligned,
// CHECK:           scf.for %{{.*}} = %[[FIRST]] to %[[LAST:.*]] step %{{.*}} iter_args({{.*}}%[[AHEAD]])
// CHECK:             %[[NEXT:.*]] = "kitsune.read"{{.*}} {aligned, {{.*}} whole}
// CHECK-NOT:         arith.cmpi slt
// CHECK:             scf.yield {{.*}}%[[NEXT]]
// CHECK:           scf.for %{{.*}} = %[[LAST]] to %c100001
// CHECK:             arith.cmpi slt
// CHECK-NOT:     "kitsune.kernel"
func.func @wide(%x: tensor<400x100001xbf16>) -> (tensor<400xf32>, tensor<400xf32>) {
  %zero = arith.constant 0.0 : f32
  %least = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<400xf32>
  %w = tensor.empty() : tensor<400x100001xf32>
  %f0 = linalg.fill ins(%least : f32) outs(%e : tensor<400xf32>) -> tensor<400xf32>
  %f1 = linalg.fill ins(%zero : f32) outs(%e : tensor<400xf32>) -> tensor<400xf32>
  %largest = linalg.generic {indexing_maps = [#whole, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<400x100001xbf16>) outs(%f0 : tensor<400xf32>) {
  ^bb0(%a: bf16, %s: f32):
    %0 = arith.extf %a : bf16 to f32
    %1 = arith.maximumf %0, %s : f32
    linalg.yield %1 : f32
  } -> tensor<400xf32>
  %weights = linalg.generic {indexing_maps = [#whole, #row, #whole], iterator_types = ["parallel", "parallel"]}
      ins(%x, %largest : tensor<400x100001xbf16>, tensor<400xf32>) outs(%w : tensor<400x100001xf32>) {
  ^bb0(%a: bf16, %m: f32, %o: f32):
    %0 = arith.extf %a : bf16 to f32
    %1 = arith.subf %0, %m : f32
    %2 = math.exp %1 : f32
    linalg.yield %2 : f32
  } -> tensor<400x100001xf32>
  %sum = linalg.generic {indexing_maps = [#whole, #row], iterator_types = ["parallel", "reduction"]}
      ins(%weights : tensor<400x100001xf32>) outs(%f1 : tensor<400xf32>) {
  ^bb0(%a: f32, %s: f32):
    %0 = arith.addf %a, %s : f32
    linalg.yield %0 : f32
  } -> tensor<400xf32>
  return %largest, %sum : tensor<400xf32>, tensor<400xf32>
}

// Rows of open length, whose mean is taken off: whole where there are few columns, else gone through twice. What a sum is
// divided by is computed of the length that the kernel is told.

// CHECK-LABEL: func.func @open
// CHECK:         "kitsune.agent"
// CHECK:           %[[LAST:.*]] = arith.subi %{{.*}}, %c1{{.*}} : index
// CHECK:           %[[SHORT:.*]] = arith.cmpi ult, %[[LAST]], %c{{[0-9]+}} : index
// CHECK:           scf.if %[[SHORT]] {
// CHECK-NOT:         scf.for
// CHECK:             "kitsune.write"
// CHECK:           } else {
// CHECK-COUNT-3:     scf.for
// CHECK:             arith.sitofp
// CHECK:             scf.for
// CHECK:               "kitsune.write"{{.*}} until}
// CHECK:             scf.for
// CHECK:               "kitsune.write"{{.*}} {aligned, {{.*}} whole}
// CHECK:         "kitsune.result"{{.*}} -> tensor<4096x?xf32>
func.func @open(%x: tensor<4096x?xf32>) -> tensor<4096x?xf32> attributes {kitsune.example = [array<i64: 4096, 700>]} {
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %x, %c1 : tensor<4096x?xf32>
  %i = arith.index_cast %n : index to i64
  %count = arith.sitofp %i : i64 to f32
  %e = tensor.empty() : tensor<4096xf32>
  %w = tensor.empty(%n) : tensor<4096x?xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4096xf32>) -> tensor<4096xf32>
  %sum = linalg.generic {indexing_maps = [#whole, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<4096x?xf32>) outs(%f : tensor<4096xf32>) {
  ^bb0(%a: f32, %s: f32):
    %0 = arith.addf %a, %s : f32
    linalg.yield %0 : f32
  } -> tensor<4096xf32>
  %mean = linalg.generic {indexing_maps = [affine_map<(r) -> (r)>, affine_map<(r) -> (r)>], iterator_types = ["parallel"]}
      ins(%sum : tensor<4096xf32>) outs(%e : tensor<4096xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.divf %a, %count : f32
    linalg.yield %0 : f32
  } -> tensor<4096xf32>
  %y = linalg.generic {indexing_maps = [#whole, #row, #whole], iterator_types = ["parallel", "parallel"]}
      ins(%x, %mean : tensor<4096x?xf32>, tensor<4096xf32>) outs(%w : tensor<4096x?xf32>) {
  ^bb0(%a: f32, %m: f32, %o: f32):
    %0 = arith.subf %a, %m : f32
    linalg.yield %0 : f32
  } -> tensor<4096x?xf32>
  return %y : tensor<4096x?xf32>
}
