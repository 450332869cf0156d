// Expected diagnostics are found by line, relative line, neighbour and regular expression.
// RUN: kitsune-opt %s --split-input-file --verify-diagnostics

func.func @wrong() -> i64 {
  %a = arith.constant 0 : i32
  // expected-error@+1 {{type of return operand 0 ('i32') doesn't match}}
  return %a : i32
}

// -----

func.func @same_line() { return %x : i32 } // expected-error {{use of undeclared SSA value name}}

// -----

func.func @regular_expression() {
  // expected-error-re @below {{shape of elements literal ({{.[0-9]+.}}) does not match}}
  %c = "arith.constant"() {value = dense<[1, 2]> : tensor<3xi32>} : () -> tensor<3xi32>
  return
}

// -----

func.func @fine() { return }
