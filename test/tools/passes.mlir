// RUN: kitsune-opt %s --canonicalize --cse | filecheck %s
// RUN: kitsune-opt %s --pass-pipeline='builtin.module(canonicalize{max-iterations=2},func.func(cse))' | filecheck %s
// RUN: kitsune-opt - --canonicalize -cse < %s | filecheck %s
// RUN: kitsune-opt %s --linalg-generalize-named-ops="" --linalg-fuse-elementwise-ops --verify-roundtrip -o %t
// RUN: filecheck %s --input-file %t
// RUN: kitsune-opt %s --emit=bytecode | kitsune-opt --canonicalize | filecheck %s

// CHECK-LABEL: func.func @twice
// CHECK-NEXT: arith.addi
// CHECK-NEXT: return
func.func @twice(%a: i32) -> i32 {
  %zero = arith.constant 0 : i32
  %b = arith.addi %a, %zero : i32
  %c = arith.addi %b, %a : i32
  return %c : i32
}
