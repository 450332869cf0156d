// RUN: kitsune-opt %s --partition-dataflow --design-pipeline --place-stages="target=sm_90a shape=chained tile-rows=128" --schedule-chains --split-input-file | filecheck %s
// RUN: kitsune-opt %s --partition-dataflow --design-pipeline --place-stages="target=sm_90a shape=chained tile-rows=128" --schedule-chains --verify-dataflow --split-input-file | filecheck %s
// RUN: kitsune-opt %s --partition-dataflow --design-pipeline --place-stages="target=sm_90a shape=chained tile-rows=64" --schedule-chains --verify-dataflow --split-input-file | filecheck %s --check-prefix=SHORT

// Two layers. The first one's operand is streamed, its sums are settled, what follows is computed and kept as a part,
// which the second one multiplies. Weights come in boxes of as many rows as the product has columns.

// CHECK-LABEL: func.func @chain
// CHECK-NOT:     kitsune.pipeline
// CHECK:         %[[P:.*]] = "kitsune.kernel"() ({
// CHECK:           "kitsune.tiles"(%{{.*}}) {{.*}}tile = array<i64: 128>}
// CHECK:           %[[V:.*]] = "kitsune.alloc_ring"() {box = "dense", {{.*}}sym_name = "vectors_bf16"} : () -> !kitsune.ring<tensor<1x80xbf16>, 1 : i64>
// CHECK:           %[[X:.*]] = "kitsune.alloc_ring"() {box = "rows", share = "split", {{.*}}sym_name = "tiles"} : () -> !kitsune.ring<tensor<128x64xbf16>, 4 : i64>
// CHECK:           %[[W:.*]] = "kitsune.alloc_ring"() {box = "rows", share = "all", {{.*}}sym_name = "weights"} : () -> !kitsune.ring<tensor<64x64xbf16>, 12 : i64>
// CHECK:           %[[A:.*]] = "kitsune.acquire"(%[[V]])
// CHECK:           %[[D0:.*]] = "kitsune.copy"(%[[A]], %arg2) {{.*}}into = 0 : i64
// CHECK:           %[[D1:.*]] = "kitsune.copy"(%[[A]], %arg4) {{.*}}into = 64 : i64
// CHECK:           "kitsune.commit"(%[[A]], %[[D0]], %[[D1]])
// CHECK:           scf.for
// CHECK:             "kitsune.copy"(%{{.*}}, %arg0
// CHECK:             "kitsune.copy"(%{{.*}}, %arg1
// CHECK:             "kitsune.copy"(%{{.*}}, %arg0
// CHECK:             "kitsune.copy"(%{{.*}}, %arg1
// CHECK:             "kitsune.acquire"(%[[W]]) {{.*}} -> !kitsune.slot<tensor<16x64xbf16>>
// CHECK:             "kitsune.copy"(%{{.*}}, %arg3
// CHECK:         }) {copies = 1 : i64, registers = 24 : i64, sym_name = "feed", warps = 4 : i64}
// CHECK:           %[[B:.*]] = "kitsune.wait"(%[[V]])
// CHECK:           scf.for
// CHECK:             %[[X0:.*]] = "kitsune.wait"(%[[X]])
// CHECK:             %[[Z:.*]] = "kitsune.sums"() 
// CHECK:             %[[W0:.*]] = "kitsune.wait"(%[[W]])
// CHECK:             %[[S0:.*]]:2 = "kitsune.product"(%[[Z]], %[[X0]], %[[W0]])
// CHECK:             %[[X1:.*]] = "kitsune.wait"(%[[X]])
// CHECK:             %[[W1:.*]] = "kitsune.wait"(%[[W]])
// CHECK:             %[[S1:.*]]:2 = "kitsune.product"(%[[S0]]#0, %[[X1]], %[[W1]])
// CHECK:             "kitsune.release"(%[[W0]], %[[S0]]#1)
// CHECK:             "kitsune.release"(%[[X0]], %[[S0]]#1)
// CHECK:             %[[H:.*]] = "kitsune.settle"(%[[S1]]#0)
// CHECK:             "kitsune.release"(%[[W1]], %[[S1]]#1)
// CHECK:             "kitsune.release"(%[[X1]], %[[S1]]#1)
// CHECK:             %[[BIAS:.*]] = "kitsune.read"(%[[B]], %{{.*}}) {{.*}} -> tensor<64xbf16>
// CHECK:             %[[Y:.*]] = linalg.generic {{.*}} ins(%[[H]], %[[BIAS]] :
// CHECK:             %[[PART:.*]] = "kitsune.part"(%[[Y]]) {first = 0 : i64} : (tensor<64x64xbf16>) -> tensor<64x64xbf16>
// CHECK:             %[[Z2:.*]] = "kitsune.sums"() {{.*}} -> !kitsune.acc<tensor<64x16xf32>>
// CHECK:             %[[W2:.*]] = "kitsune.wait"(%[[W]]) {{.*}} -> !kitsune.slot<tensor<16x64xbf16>>
// CHECK:             "kitsune.product"(%[[Z2]], %[[PART]], %[[W2]])
// CHECK:             "kitsune.write"
// CHECK:           "kitsune.release"(%[[B]])
// CHECK:         }) {copies = 2 : i64, registers = 240 : i64, sym_name = "math", warps = 4 : i64}
// CHECK:         %[[OUT:.*]] = "kitsune.result"(%[[P]]) {index = 0 : i64}
// CHECK:         return %[[OUT]]

func.func @chain(%h0: tensor<300x128xbf16>, %w0: tensor<64x128xbf16>, %b0: tensor<64xbf16>, %w1: tensor<16x64xbf16>, %b1: tensor<16xbf16>) -> tensor<300x16xbf16> {
  %zero = arith.constant 0.0 : f32
  %e0 = tensor.empty() : tensor<300x64xf32>
  %f0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<300x64xf32>) -> tensor<300x64xf32>
  %p0 = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
    affine_map<(m, n, k) -> (m, n)>] ins(%h0, %w0 : tensor<300x128xbf16>, tensor<64x128xbf16>)
    outs(%f0 : tensor<300x64xf32>) -> tensor<300x64xf32>
  %o0 = tensor.empty() : tensor<300x64xbf16>
  %h1 = linalg.generic {indexing_maps = [affine_map<(r, c) -> (r, c)>, affine_map<(r, c) -> (c)>,
    affine_map<(r, c) -> (r, c)>], iterator_types = ["parallel", "parallel"]}
    ins(%p0, %b0 : tensor<300x64xf32>, tensor<64xbf16>) outs(%o0 : tensor<300x64xbf16>) {
  ^bb0(%a: f32, %c: bf16, %o: bf16):
    %0 = arith.extf %c : bf16 to f32
    %1 = arith.addf %a, %0 : f32
    %2 = arith.maximumf %1, %zero : f32
    %3 = arith.truncf %2 : f32 to bf16
    linalg.yield %3 : bf16
  } -> tensor<300x64xbf16>
  %e1 = tensor.empty() : tensor<300x16xf32>
  %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<300x16xf32>) -> tensor<300x16xf32>
  %p1 = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
    affine_map<(m, n, k) -> (m, n)>] ins(%h1, %w1 : tensor<300x64xbf16>, tensor<16x64xbf16>)
    outs(%f1 : tensor<300x16xf32>) -> tensor<300x16xf32>
  %o1 = tensor.empty() : tensor<300x16xbf16>
  %h2 = linalg.generic {indexing_maps = [affine_map<(r, c) -> (r, c)>, affine_map<(r, c) -> (c)>,
    affine_map<(r, c) -> (r, c)>], iterator_types = ["parallel", "parallel"]}
    ins(%p1, %b1 : tensor<300x16xf32>, tensor<16xbf16>) outs(%o1 : tensor<300x16xbf16>) {
  ^bb0(%a: f32, %c: bf16, %o: bf16):
    %0 = arith.extf %c : bf16 to f32
    %1 = arith.addf %a, %0 : f32
    %2 = arith.maximumf %1, %zero : f32
    %3 = arith.truncf %2 : f32 to bf16
    linalg.yield %3 : bf16
  } -> tensor<300x16xbf16>
  return %h2 : tensor<300x16xbf16>
}

// -----

// Wider tiles are in two sets of sums: the first set's columns are computed wide beside the second's products, and
// packed behind them; the second's while the next layer's products run. Equal layers are a loop, which takes such a tile
// round, and selects what each layer reads.

// CHECK-LABEL: func.func @layers
// CHECK:         sym_name = "feed"
// CHECK:         %[[FIRST:.*]] = "kitsune.settle"
// CHECK:         "kitsune.part"(%{{.*}}) {first = 0 : i64, wide} : (tensor<64x128xbf16>) -> tensor<64x8xbf16>
// CHECK:         scf.for {{.*}} iter_args(
// CHECK:           tensor.concat dim(1)
// CHECK:           "kitsune.sums"(%{{.*}}) {{.*}}(tensor<64x8xbf16>, {{.*}}) -> !kitsune.acc<tensor<64x128xf32>>
// CHECK:           "kitsune.product"
// CHECK:           scf.yield

func.func @layers(%h0: tensor<300x256xbf16>, %w0: tensor<256x256xbf16>, %b0: tensor<256xbf16>, %w1: tensor<256x256xbf16>, %b1: tensor<256xbf16>, %w2: tensor<256x256xbf16>, %b2: tensor<256xbf16>, %w3: tensor<256x256xbf16>, %b3: tensor<256xbf16>, %w4: tensor<8x256xbf16>, %b4: tensor<8xbf16>) -> tensor<300x8xbf16> {
  %zero = arith.constant 0.0 : f32
  %e0 = tensor.empty() : tensor<300x256xf32>
  %f0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<300x256xf32>) -> tensor<300x256xf32>
  %p0 = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
    affine_map<(m, n, k) -> (m, n)>] ins(%h0, %w0 : tensor<300x256xbf16>, tensor<256x256xbf16>)
    outs(%f0 : tensor<300x256xf32>) -> tensor<300x256xf32>
  %o0 = tensor.empty() : tensor<300x256xbf16>
  %h1 = linalg.generic {indexing_maps = [affine_map<(r, c) -> (r, c)>, affine_map<(r, c) -> (c)>,
    affine_map<(r, c) -> (r, c)>], iterator_types = ["parallel", "parallel"]}
    ins(%p0, %b0 : tensor<300x256xf32>, tensor<256xbf16>) outs(%o0 : tensor<300x256xbf16>) {
  ^bb0(%a: f32, %c: bf16, %o: bf16):
    %0 = arith.extf %c : bf16 to f32
    %1 = arith.addf %a, %0 : f32
    %2 = arith.maximumf %1, %zero : f32
    %3 = arith.truncf %2 : f32 to bf16
    linalg.yield %3 : bf16
  } -> tensor<300x256xbf16>
  %e1 = tensor.empty() : tensor<300x256xf32>
  %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<300x256xf32>) -> tensor<300x256xf32>
  %p1 = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
    affine_map<(m, n, k) -> (m, n)>] ins(%h1, %w1 : tensor<300x256xbf16>, tensor<256x256xbf16>)
    outs(%f1 : tensor<300x256xf32>) -> tensor<300x256xf32>
  %o1 = tensor.empty() : tensor<300x256xbf16>
  %h2 = linalg.generic {indexing_maps = [affine_map<(r, c) -> (r, c)>, affine_map<(r, c) -> (c)>,
    affine_map<(r, c) -> (r, c)>], iterator_types = ["parallel", "parallel"]}
    ins(%p1, %b1 : tensor<300x256xf32>, tensor<256xbf16>) outs(%o1 : tensor<300x256xbf16>) {
  ^bb0(%a: f32, %c: bf16, %o: bf16):
    %0 = arith.extf %c : bf16 to f32
    %1 = arith.addf %a, %0 : f32
    %2 = arith.maximumf %1, %zero : f32
    %3 = arith.truncf %2 : f32 to bf16
    linalg.yield %3 : bf16
  } -> tensor<300x256xbf16>
  %e2 = tensor.empty() : tensor<300x256xf32>
  %f2 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<300x256xf32>) -> tensor<300x256xf32>
  %p2 = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
    affine_map<(m, n, k) -> (m, n)>] ins(%h2, %w2 : tensor<300x256xbf16>, tensor<256x256xbf16>)
    outs(%f2 : tensor<300x256xf32>) -> tensor<300x256xf32>
  %o2 = tensor.empty() : tensor<300x256xbf16>
  %h3 = linalg.generic {indexing_maps = [affine_map<(r, c) -> (r, c)>, affine_map<(r, c) -> (c)>,
    affine_map<(r, c) -> (r, c)>], iterator_types = ["parallel", "parallel"]}
    ins(%p2, %b2 : tensor<300x256xf32>, tensor<256xbf16>) outs(%o2 : tensor<300x256xbf16>) {
  ^bb0(%a: f32, %c: bf16, %o: bf16):
    %0 = arith.extf %c : bf16 to f32
    %1 = arith.addf %a, %0 : f32
    %2 = arith.maximumf %1, %zero : f32
    %3 = arith.truncf %2 : f32 to bf16
    linalg.yield %3 : bf16
  } -> tensor<300x256xbf16>
  %e3 = tensor.empty() : tensor<300x256xf32>
  %f3 = linalg.fill ins(%zero : f32) outs(%e3 : tensor<300x256xf32>) -> tensor<300x256xf32>
  %p3 = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
    affine_map<(m, n, k) -> (m, n)>] ins(%h3, %w3 : tensor<300x256xbf16>, tensor<256x256xbf16>)
    outs(%f3 : tensor<300x256xf32>) -> tensor<300x256xf32>
  %o3 = tensor.empty() : tensor<300x256xbf16>
  %h4 = linalg.generic {indexing_maps = [affine_map<(r, c) -> (r, c)>, affine_map<(r, c) -> (c)>,
    affine_map<(r, c) -> (r, c)>], iterator_types = ["parallel", "parallel"]}
    ins(%p3, %b3 : tensor<300x256xf32>, tensor<256xbf16>) outs(%o3 : tensor<300x256xbf16>) {
  ^bb0(%a: f32, %c: bf16, %o: bf16):
    %0 = arith.extf %c : bf16 to f32
    %1 = arith.addf %a, %0 : f32
    %2 = arith.maximumf %1, %zero : f32
    %3 = arith.truncf %2 : f32 to bf16
    linalg.yield %3 : bf16
  } -> tensor<300x256xbf16>
  %e4 = tensor.empty() : tensor<300x8xf32>
  %f4 = linalg.fill ins(%zero : f32) outs(%e4 : tensor<300x8xf32>) -> tensor<300x8xf32>
  %p4 = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
    affine_map<(m, n, k) -> (m, n)>] ins(%h4, %w4 : tensor<300x256xbf16>, tensor<8x256xbf16>)
    outs(%f4 : tensor<300x8xf32>) -> tensor<300x8xf32>
  %o4 = tensor.empty() : tensor<300x8xbf16>
  %h5 = linalg.generic {indexing_maps = [affine_map<(r, c) -> (r, c)>, affine_map<(r, c) -> (c)>,
    affine_map<(r, c) -> (r, c)>], iterator_types = ["parallel", "parallel"]}
    ins(%p4, %b4 : tensor<300x8xf32>, tensor<8xbf16>) outs(%o4 : tensor<300x8xbf16>) {
  ^bb0(%a: f32, %c: bf16, %o: bf16):
    %0 = arith.extf %c : bf16 to f32
    %1 = arith.addf %a, %0 : f32
    %2 = arith.maximumf %1, %zero : f32
    %3 = arith.truncf %2 : f32 to bf16
    linalg.yield %3 : bf16
  } -> tensor<300x8xbf16>
  return %h5 : tensor<300x8xbf16>
}

// -----

// f32 in full precision: a chunk is three products of tf32 numbers, the small ones first, whose sums are added outside
// of tensor cores. A weight comes in two pieces, each in a box of 32 columns.

// CHECK-LABEL: func.func @f32
// CHECK-NOT:     kitsune.pipeline
// CHECK:         %[[W:.*]] = "kitsune.alloc_ring"() {box = "rows", share = "all", {{.*}}sym_name = "weights"} : () -> !kitsune.ring<tensor<64x32xf32>, {{.*}}>
// CHECK:         sym_name = "feed"
// CHECK:         %[[HIGH:.*]] = "kitsune.wait"(%[[W]])
// CHECK:         %[[LOW:.*]] = "kitsune.wait"(%[[W]])
// CHECK:         "kitsune.product"(%{{.*}}, %[[X:.*]], %[[HIGH]]) {{.*}}piece = "low"}
// CHECK:         "kitsune.product"(%{{.*}}, %[[X]], %[[LOW]]) {{.*}}piece = "high"}
// CHECK:         %[[S:.*]]:2 = "kitsune.product"(%{{.*}}, %[[X]], %[[HIGH]]) {{.*}}piece = "high"}
// CHECK:         %[[FIRST:.*]] = "kitsune.settle"(%[[S]]#0)
// CHECK:         %[[SECOND:.*]] = "kitsune.settle"
// CHECK:         %[[SUM:.*]] = linalg.generic {{.*}} ins(%[[FIRST]], %[[SECOND]] :
// CHECK:         "kitsune.part"(%[[SUM]]) {first = 0 : i64, wide}

// SHORT-LABEL: func.func @f32
// SHORT:         "kitsune.tiles"(%{{.*}}) {{.*}}tile = array<i64: 64>}
// SHORT:         }) {copies = 1 : i64, registers = 248 : i64, sym_name = "feed", warps = 4 : i64}
// SHORT:         }) {copies = 1 : i64, registers = 248 : i64, sym_name = "math", warps = 4 : i64}
func.func @f32(%h0: tensor<300x128xf32>, %w0: tensor<64x128xf32>, %b0: tensor<64xf32>, %w1: tensor<16x64xf32>, %b1: tensor<16xf32>) -> tensor<300x16xf32> {
  %zero = arith.constant 0.0 : f32
  %e0 = tensor.empty() : tensor<300x64xf32>
  %f0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<300x64xf32>) -> tensor<300x64xf32>
  %p0 = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
    affine_map<(m, n, k) -> (m, n)>] ins(%h0, %w0 : tensor<300x128xf32>, tensor<64x128xf32>)
    outs(%f0 : tensor<300x64xf32>) -> tensor<300x64xf32>
  %o0 = tensor.empty() : tensor<300x64xf32>
  %h1 = linalg.generic {indexing_maps = [affine_map<(r, c) -> (r, c)>, affine_map<(r, c) -> (c)>,
    affine_map<(r, c) -> (r, c)>], iterator_types = ["parallel", "parallel"]}
    ins(%p0, %b0 : tensor<300x64xf32>, tensor<64xf32>) outs(%o0 : tensor<300x64xf32>) {
  ^bb0(%a: f32, %c: f32, %o: f32):
    %1 = arith.addf %a, %c : f32
    %2 = arith.maximumf %1, %zero : f32
    linalg.yield %2 : f32
  } -> tensor<300x64xf32>
  %e1 = tensor.empty() : tensor<300x16xf32>
  %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<300x16xf32>) -> tensor<300x16xf32>
  %p1 = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
    affine_map<(m, n, k) -> (m, n)>] ins(%h1, %w1 : tensor<300x64xf32>, tensor<16x64xf32>)
    outs(%f1 : tensor<300x16xf32>) -> tensor<300x16xf32>
  %o1 = tensor.empty() : tensor<300x16xf32>
  %h2 = linalg.generic {indexing_maps = [affine_map<(r, c) -> (r, c)>, affine_map<(r, c) -> (c)>,
    affine_map<(r, c) -> (r, c)>], iterator_types = ["parallel", "parallel"]}
    ins(%p1, %b1 : tensor<300x16xf32>, tensor<16xf32>) outs(%o1 : tensor<300x16xf32>) {
  ^bb0(%a: f32, %c: f32, %o: f32):
    %1 = arith.addf %a, %c : f32
    %2 = arith.maximumf %1, %zero : f32
    linalg.yield %2 : f32
  } -> tensor<300x16xf32>
  return %h2 : tensor<300x16xf32>
}

// -----

// A tile of 330 columns waits in shared memory for its product, in six slots that nobody else fills.

// CHECK-LABEL: func.func @wide
// CHECK:         %[[O:.*]] = "kitsune.alloc_ring"() {box = "rows", share = "own", {{.*}}sym_name = "stowed_0"} : () -> !kitsune.ring<tensor<128x64xbf16>, 6 : i64>
// CHECK:         sym_name = "feed"
// CHECK:         %[[P0:.*]] = "kitsune.part"(%{{.*}}) {first = 0 : i64} : (tensor<64x330xbf16>) -> tensor<64x64xbf16>
// CHECK:         %[[P5:.*]] = "kitsune.part"(%{{.*}}) {first = 320 : i64} : (tensor<64x330xbf16>) -> tensor<64x10xbf16>
// CHECK:         %[[S0:.*]] = "kitsune.stow"(%[[O]], %[[P0]])
// CHECK:         "kitsune.stow"(%[[O]], %[[P5]]) {{.*}} -> !kitsune.slot<tensor<128x10xbf16>>
// CHECK:         %[[T:.*]]:2 = "kitsune.product"(%{{.*}}, %[[S0]], %{{.*}})
// CHECK:         "kitsune.release"(%[[S0]], %[[T]]#1)

func.func @wide(%h0: tensor<300x64xbf16>, %w0: tensor<330x64xbf16>, %w1: tensor<8x330xbf16>) -> tensor<300x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e0 = tensor.empty() : tensor<300x330xf32>
  %f0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<300x330xf32>) -> tensor<300x330xf32>
  %p0 = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
    affine_map<(m, n, k) -> (m, n)>] ins(%h0, %w0 : tensor<300x64xbf16>, tensor<330x64xbf16>)
    outs(%f0 : tensor<300x330xf32>) -> tensor<300x330xf32>
  %o0 = tensor.empty() : tensor<300x330xbf16>
  %h1 = linalg.generic {indexing_maps = [affine_map<(r, c) -> (r, c)>, affine_map<(r, c) -> (r, c)>],
    iterator_types = ["parallel", "parallel"]} ins(%p0 : tensor<300x330xf32>) outs(%o0 : tensor<300x330xbf16>) {
  ^bb0(%a: f32, %o: bf16):
    %1 = arith.maximumf %a, %zero : f32
    %2 = arith.truncf %1 : f32 to bf16
    linalg.yield %2 : bf16
  } -> tensor<300x330xbf16>
  %e1 = tensor.empty() : tensor<300x8xf32>
  %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<300x8xf32>) -> tensor<300x8xf32>
  %p1 = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
    affine_map<(m, n, k) -> (m, n)>] ins(%h1, %w1 : tensor<300x330xbf16>, tensor<8x330xbf16>)
    outs(%f1 : tensor<300x8xf32>) -> tensor<300x8xf32>
  return %p1 : tensor<300x8xf32>
}
