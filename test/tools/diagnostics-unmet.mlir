// What was expected and did not come, and what came unexpected, both fail the run.
// RUN: not kitsune-opt %s --split-input-file --verify-diagnostics 2>&1 | filecheck %s

// CHECK-DAG: diagnostics-unmet.mlir:5: error: expected error "never" was not produced
// expected-error@unknown {{never}}
func.func @fine() { return }

// -----

// CHECK-DAG: diagnostics-unmet.mlir:11:34: error: unexpected error: use of undeclared SSA value name
func.func @unexpected() { return %x : i32 }
