// RUN: kitsune-opt %S/../place-stages/accumulated.mlir --partition-dataflow --design-pipeline --place-stages=target=sm_90a --schedule-chains --verify-dataflow | filecheck %s
// RUN: kitsune-opt %S/../cut-pipelines/stages.mlir --partition-dataflow=min-summed=0 --design-pipeline --place-stages='target=sm_90a shape=chained' --schedule-chains --verify-dataflow | filecheck %s --check-prefix=TWO

// A tile is a block of the sum of a part of the rows. Its rows are copied 64 at a time, and multiplied into sums that the
// loop over them carries; behind it they are written as the part's. What adds up the parts stands behind the kernel.

// CHECK-LABEL: func.func @gradient
// CHECK:         "kitsune.tiles"(%{{.*}}) {{.*}}tile = array<i64: 1, 128, 256>}
// CHECK:         box = "columns", share = "split", space = "smem", sym_name = "left"
// CHECK:         box = "columns", share = "all", space = "smem", sym_name = "right"
// CHECK:         sym_name = "feed"
// CHECK:         %[[DONE:.*]]:4 = scf.for %{{.*}} iter_args(%[[SUMS:.*]] = %{{.*}}, %[[L:.*]] = %{{.*}}, %[[R:.*]] = %{{.*}}, %[[T:.*]] = %{{.*}})
// CHECK:           "kitsune.product"(%[[SUMS]], %{{.*}}, %{{.*}}) {engine = "wgmma"}
// CHECK:           "kitsune.release"(%[[L]], %[[T]])
// CHECK:           "kitsune.release"(%[[R]], %[[T]])
// CHECK:         %[[TILE:.*]] = "kitsune.settle"(%[[DONE]]#0)
// CHECK:         "kitsune.write"(%[[TILE]], {{.*}}dims = array<i64: 1, 2>, index = 0
// CHECK:         %[[PARTS:.*]] = "kitsune.result"(%{{.*}}) {index = 0 : i64} : (!kitsune.outputs) -> tensor<66x256x256xf32>
// CHECK:         linalg.generic {{.*}} ins(%[[PARTS]], %[[PARTS]]
// CHECK-COUNT-65: arith.addf

// The gradient that both products take is computed by an agent, chunk by chunk, into a ring: one multiplies it as it
// lies, across its rows, the other along its columns with the CTA's half of the weight's, a quarter each warpgroup.

// TWO-LABEL: func.func @gradients
// TWO:         box = "rows", share = "all", space = "smem", sym_name = "made"{{.*}} !kitsune.ring<tensor<64x64xbf16>
// TWO:         box = "columns", share = "split", space = "smem", sym_name = "weights"{{.*}} !kitsune.ring<tensor<128x64xbf16>, 4 : i64>
// TWO:         sym_name = "feed"
// TWO:         scf.for {{.*}} iter_args
// TWO:           %[[DX:.*]] = "kitsune.sums"
// TWO:           %[[X:.*]] = "kitsune.wait"
// TWO:           %[[G:.*]] = "kitsune.wait"
// TWO:           %[[ONE:.*]]:2 = "kitsune.product"(%{{.*}}, %[[X]], %[[G]]) {engine = "wgmma", turned}
// TWO:           %[[OTHER:.*]]:2 = "kitsune.product"(%[[DX]], %[[G]], %{{.*}}) {engine = "wgmma"}
// TWO:           "kitsune.release"(%[[G]], %[[ONE]]#1, %[[OTHER]]#1)
// TWO:         "kitsune.write"({{.*}}) {dims = array<i64: 0, 1>, engine = "tma", index = 1 : i64
// TWO:         sym_name = "math"
// TWO:         %[[SLOT:.*]] = "kitsune.wait"
// TWO:         %[[DY:.*]] = "kitsune.read"(%[[SLOT]])
// TWO:         "kitsune.release"(%[[SLOT]])
// TWO:         %[[TO:.*]] = "kitsune.acquire"
// TWO:         %[[RELU:.*]] = linalg.generic {{.*}} ins(%[[DY]] : tensor<64x64xbf16>)
// TWO:         "kitsune.fill"(%[[TO]], %[[RELU]]
// TWO:         "kitsune.commit"(%[[TO]])
// TWO:         sym_name = "make"
