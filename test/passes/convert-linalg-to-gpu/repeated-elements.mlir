// A softmax of an open number of columns: its exponentials, which are summed and divided, are not written.

// RUN: kitsune-opt %s --convert-linalg-to-gpu | filecheck %s
// CHECK-LABEL: func.func @main
// CHECK-COUNT-3: gpu.launch_func
// CHECK-NOT:     gpu.launch_func
// CHECK:         return
// CHECK:       gpu.func @reduce_1
// CHECK:         math.exp
// CHECK:       gpu.func @elementwise_0
// CHECK:         math.exp

// Of a known number of columns they are: such rows are a row group's, where one is asked for.
// RUN: sed "s/6000x?x/6000x50x/g; s/tensor.empty(%n)/tensor.empty()/" %s | kitsune-opt --convert-linalg-to-gpu | filecheck %s --check-prefix=KNOWN
// KNOWN-COUNT-4: gpu.launch_func

#all = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i, 0)>

func.func @main(%x: tensor<6000x?xf32>) -> tensor<6000x?xf32> {
  %one = arith.constant 1 : index
  %least = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %x, %one : tensor<6000x?xf32>
  %a = tensor.empty() : tensor<6000x1xf32>
  %b = linalg.fill ins(%least : f32) outs(%a : tensor<6000x1xf32>) -> tensor<6000x1xf32>
  %m = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<6000x?xf32>) outs(%b : tensor<6000x1xf32>) {
  ^bb0(%p: f32, %o: f32):
    %r = arith.maximumf %p, %o : f32
    linalg.yield %r : f32
  } -> tensor<6000x1xf32>
  %w = tensor.empty(%n) : tensor<6000x?xf32>
  %e = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel"]} ins(%x, %m : tensor<6000x?xf32>, tensor<6000x1xf32>) outs(%w : tensor<6000x?xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %d = arith.subf %p, %q : f32
    %r = math.exp %d : f32
    linalg.yield %r : f32
  } -> tensor<6000x?xf32>
  %f = linalg.fill ins(%zero : f32) outs(%a : tensor<6000x1xf32>) -> tensor<6000x1xf32>
  %s = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]} ins(%e : tensor<6000x?xf32>) outs(%f : tensor<6000x1xf32>) {
  ^bb0(%p: f32, %o: f32):
    %r = arith.addf %p, %o : f32
    linalg.yield %r : f32
  } -> tensor<6000x1xf32>
  %y = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel"]} ins(%e, %s : tensor<6000x?xf32>, tensor<6000x1xf32>) outs(%w : tensor<6000x?xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.divf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<6000x?xf32>
  return %y : tensor<6000x?xf32>
}
