// A layer of 369 columns that another one reads is written in rows of 752 bytes, as tensor copies read them, and not
// copied to such; the copy engine stores it then, where warps would store rows of 738 bytes. What @main returns stays.

// RUN: kitsune-opt %s --schedule-products --place-columns --verify-dataflow | filecheck %s
// CHECK:       "kitsune.write"({{.*}}engine = "tma"
// CHECK:       %[[A:.*]] = "kitsune.result"({{.*}} -> tensor<?x369xbf16, #kitsune.columns<0 : i64, 376 : i64, false>>
// CHECK-NOT:   linalg.generic{{.*}}tensor<?x376xbf16>
// CHECK:       "kitsune.copy"({{.*}}, %[[A]], {{.*}}engine = "tma"
// CHECK:       "kitsune.result"({{.*}} -> tensor<?x369xbf16>{{$}}

// RUN: kitsune-opt %s --schedule-products=target=sm_80 --place-columns --convert-kitsune-to-gpu=target=sm_80 --convert-linalg-to-gpu=target=sm_80 | filecheck %s --check-prefix=HOST
// HOST:        func.func @main
// HOST:        %[[ROWS:.*]] = memref.dim
// HOST:        %[[ALL:.*]] = memref.alloc(%[[ROWS]]) : memref<?x376xbf16>
// HOST-NEXT:   call @product0({{.*}}, %[[ALL]])
// HOST:        call @product1(%[[ALL]],

#x = affine_map<(i, j, k) -> (i, k)>
#w = affine_map<(i, j, k) -> (j, k)>
#y = affine_map<(i, j, k) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>

func.func @main(%x: tensor<?x256xbf16>, %w: tensor<369x256xbf16>, %v: tensor<369x369xbf16>) -> tensor<?x369xbf16> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x256xbf16>
  %zero = arith.constant 0.0 : f32
  %e0 = tensor.empty(%n) : tensor<?x369xf32>
  %f0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<?x369xf32>) -> tensor<?x369xf32>
  %p0 = linalg.matmul indexing_maps = [#x, #w, #y] ins(%x, %w : tensor<?x256xbf16>, tensor<369x256xbf16>) outs(%f0 : tensor<?x369xf32>) -> tensor<?x369xf32>
  %g0 = tensor.empty(%n) : tensor<?x369xbf16>
  %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%p0 : tensor<?x369xf32>) outs(%g0 : tensor<?x369xbf16>) {
  ^bb0(%in: f32, %out: bf16):
    %t = arith.truncf %in : f32 to bf16
    linalg.yield %t : bf16
  } -> tensor<?x369xbf16>
  %e1 = tensor.empty(%n) : tensor<?x369xf32>
  %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<?x369xf32>) -> tensor<?x369xf32>
  %p1 = linalg.matmul indexing_maps = [#x, #w, #y] ins(%a, %v : tensor<?x369xbf16>, tensor<369x369xbf16>) outs(%f1 : tensor<?x369xf32>) -> tensor<?x369xf32>
  %g1 = tensor.empty(%n) : tensor<?x369xbf16>
  %b = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%p1 : tensor<?x369xf32>) outs(%g1 : tensor<?x369xbf16>) {
  ^bb0(%in: f32, %out: bf16):
    %t = arith.truncf %in : f32 to bf16
    linalg.yield %t : bf16
  } -> tensor<?x369xbf16>
  return %b : tensor<?x369xbf16>
}
