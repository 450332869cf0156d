// One case or more for every diagnostic of the dialect (test_dialect_diagnostics.py counts them), and some of
// the constraints that IRDL checks from the declarations.
// RUN: kitsune-opt %s --split-input-file --verify-diagnostics

// kitsune.queue
func.func @queue_of_scalars(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    // expected-error@+1 {{'kitsune.queue' op tile type must be a ranked tensor, found f32}}
    %q = "kitsune.queue"() {sym_name = "q"} : () -> !kitsune.ring<f32, 2 : i64>
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @queue_of_unranked(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    // expected-error@+1 {{tile type must be a ranked tensor, found tensor<*xf32>}}
    %q = "kitsune.queue"() {sym_name = "q"} : () -> !kitsune.ring<tensor<*xf32>, 2 : i64>
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @queue_of_unknown_columns(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    // expected-error@+1 {{'kitsune.queue' op tile type may be dynamic in its rows only, dimension 0, found tensor<?x?xf32>}}
    %q = "kitsune.queue"() {sym_name = "q"} : () -> !kitsune.ring<tensor<?x?xf32>, 2 : i64>
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @queue_without_slots(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    // expected-error@+1 {{'kitsune.queue' op depth must be from 1 to 2147483647, found 0}}
    %q = "kitsune.queue"() {sym_name = "q"} : () -> !kitsune.ring<tensor<?x8xf32>, 0 : i64>
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @queue_too_deep(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    // expected-error@+1 {{depth must be from 1 to 2147483647, found 2147483648}}
    %q = "kitsune.queue"() {sym_name = "q"} : () -> !kitsune.ring<tensor<?x8xf32>, 2147483648 : i64>
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @queue_transport(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    // expected-error@+1 {{'kitsune.queue' op transport must be one of reg, smem, dsmem, l2, hbm, found "wire"}}
    %q = "kitsune.queue"() {sym_name = "q", transport = "wire"} : () -> !kitsune.ring<tensor<?x8xf32>, 2 : i64>
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @queue_transport_kind(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    // expected-error@+1 {{transport must be one of reg, smem, dsmem, l2, hbm, found 1 : i64}}
    %q = "kitsune.queue"() {sym_name = "q", transport = 1 : i64} : () -> !kitsune.ring<tensor<?x8xf32>, 2 : i64>
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @queue_in_function(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  // expected-error@+1 {{'kitsune.queue' op must stand directly in a kitsune.pipeline}}
  %q = "kitsune.queue"() {sym_name = "q"} : () -> !kitsune.ring<tensor<?x8xf32>, 2 : i64>
  return
}

// -----

func.func @queue_in_stage(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    "kitsune.stage"() ({
      // expected-error@+1 {{'kitsune.queue' op must stand directly in a kitsune.pipeline}}
      %q = "kitsune.queue"() {sym_name = "q"} : () -> !kitsune.ring<tensor<?x8xf32>, 2 : i64>
    }) {kind = "simt", sym_name = "s"} : () -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @queue_without_producer(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    // expected-error@+1 {{'kitsune.queue' op needs exactly one kitsune.put or kitsune.accumulate, found 0}}
    %q = "kitsune.queue"() {sym_name = "q"} : () -> !kitsune.ring<tensor<?x8xf32>, 2 : i64>
    "kitsune.stage"() ({
      %a = "kitsune.get"(%q) : (!kitsune.ring<tensor<?x8xf32>, 2 : i64>) -> tensor<?x8xf32>
    }) {kind = "simt", sym_name = "s"} : () -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @queue_put_twice(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    // expected-error@+1 {{needs exactly one kitsune.put or kitsune.accumulate, found 2}}
    %q = "kitsune.queue"() {sym_name = "q"} : () -> !kitsune.ring<tensor<?x8xf32>, 2 : i64>
    "kitsune.stage"() ({
      "kitsune.put"(%q, %t) : (!kitsune.ring<tensor<?x8xf32>, 2 : i64>, tensor<?x8xf32>) -> ()
      "kitsune.put"(%q, %t) : (!kitsune.ring<tensor<?x8xf32>, 2 : i64>, tensor<?x8xf32>) -> ()
    }) {kind = "simt", sym_name = "s"} : () -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @queue_without_consumer(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    // expected-error@+1 {{'kitsune.queue' op needs at least one consumer stage}}
    %q = "kitsune.queue"() {sym_name = "q"} : () -> !kitsune.ring<tensor<?x8xf32>, 2 : i64>
    "kitsune.stage"() ({
      "kitsune.put"(%q, %t) : (!kitsune.ring<tensor<?x8xf32>, 2 : i64>, tensor<?x8xf32>) -> ()
    }) {kind = "simt", sym_name = "s"} : () -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @queue_got_twice(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    // expected-error@+1 {{'kitsune.queue' op is taken from twice by one stage; get once and use the tile twice}}
    %q = "kitsune.queue"() {sym_name = "q"} : () -> !kitsune.ring<tensor<?x8xf32>, 2 : i64>
    "kitsune.stage"() ({
      "kitsune.put"(%q, %t) : (!kitsune.ring<tensor<?x8xf32>, 2 : i64>, tensor<?x8xf32>) -> ()
    }) {kind = "simt", sym_name = "s"} : () -> ()
    "kitsune.stage"() ({
      %a = "kitsune.get"(%q) : (!kitsune.ring<tensor<?x8xf32>, 2 : i64>) -> tensor<?x8xf32>
      %b = "kitsune.get"(%q) : (!kitsune.ring<tensor<?x8xf32>, 2 : i64>) -> tensor<?x8xf32>
    }) {kind = "simt", sym_name = "c"} : () -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @queue_against_order(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    // expected-error@+1 {{'kitsune.queue' op is consumed by stage 'c', which does not stand after its producer 's'}}
    %q = "kitsune.queue"() {sym_name = "q"} : () -> !kitsune.ring<tensor<?x8xf32>, 2 : i64>
    "kitsune.stage"() ({
      %a = "kitsune.get"(%q) : (!kitsune.ring<tensor<?x8xf32>, 2 : i64>) -> tensor<?x8xf32>
    }) {kind = "simt", sym_name = "c"} : () -> ()
    "kitsune.stage"() ({
      "kitsune.put"(%q, %t) : (!kitsune.ring<tensor<?x8xf32>, 2 : i64>, tensor<?x8xf32>) -> ()
    }) {kind = "simt", sym_name = "s"} : () -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @queue_to_itself(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    // expected-error@+1 {{is consumed by stage 's', which does not stand after its producer 's'}}
    %q = "kitsune.queue"() {sym_name = "q"} : () -> !kitsune.ring<tensor<?x8xf32>, 2 : i64>
    "kitsune.stage"() ({
      "kitsune.put"(%q, %t) : (!kitsune.ring<tensor<?x8xf32>, 2 : i64>, tensor<?x8xf32>) -> ()
      %a = "kitsune.get"(%q) : (!kitsune.ring<tensor<?x8xf32>, 2 : i64>) -> tensor<?x8xf32>
    }) {kind = "simt", sym_name = "s"} : () -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @queue_of_sums_got(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    // expected-error@+1 {{'kitsune.queue' op joins kitsune.accumulate with kitsune.reduce, or kitsune.put with kitsune.get}}
    %q = "kitsune.queue"() {sym_name = "q"} : () -> !kitsune.ring<tensor<?x8xf32>, 2 : i64>
    "kitsune.stage"() ({
      "kitsune.accumulate"(%q, %t) : (!kitsune.ring<tensor<?x8xf32>, 2 : i64>, tensor<?x8xf32>) -> ()
    }) {kind = "simt", sym_name = "s"} : () -> ()
    "kitsune.stage"() ({
      %a = "kitsune.get"(%q) : (!kitsune.ring<tensor<?x8xf32>, 2 : i64>) -> tensor<?x8xf32>
    }) {kind = "simt", sym_name = "c"} : () -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @queue_of_tiles_reduced(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    // expected-error@+1 {{joins kitsune.accumulate with kitsune.reduce, or kitsune.put with kitsune.get}}
    %q = "kitsune.queue"() {sym_name = "q"} : () -> !kitsune.ring<tensor<?x8xf32>, 2 : i64>
    "kitsune.stage"() ({
      "kitsune.put"(%q, %t) : (!kitsune.ring<tensor<?x8xf32>, 2 : i64>, tensor<?x8xf32>) -> ()
    }) {kind = "simt", sym_name = "s"} : () -> ()
    "kitsune.stage"() ({
      %a = "kitsune.reduce"(%q) : (!kitsune.ring<tensor<?x8xf32>, 2 : i64>) -> tensor<?x8xf32>
    }) {kind = "simt", sym_name = "c"} : () -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @queue_used_otherwise(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    // expected-error@+1 {{'kitsune.queue' op is used by builtin.unrealized_conversion_cast; only get, put, accumulate and reduce may}}
    %q = "kitsune.queue"() {sym_name = "q"} : () -> !kitsune.ring<tensor<?x8xf32>, 2 : i64>
    "kitsune.stage"() ({
      "kitsune.put"(%q, %t) : (!kitsune.ring<tensor<?x8xf32>, 2 : i64>, tensor<?x8xf32>) -> ()
      %c = builtin.unrealized_conversion_cast %q : !kitsune.ring<tensor<?x8xf32>, 2 : i64> to f32
    }) {kind = "simt", sym_name = "s"} : () -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @queue_without_name(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    // expected-error@+1 {{'kitsune.queue' op attribute "sym_name" is expected but not provided}}
    %q = "kitsune.queue"() : () -> !kitsune.ring<tensor<?x8xf32>, 2 : i64>
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

// kitsune.get, kitsune.put, kitsune.accumulate, kitsune.reduce
func.func @get_from_argument(%r: !kitsune.ring<tensor<?x8xf32>, 2 : i64>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    "kitsune.stage"() ({
      // expected-error@+1 {{'kitsune.get' op takes its queue straight from a kitsune.queue}}
      %a = "kitsune.get"(%r) : (!kitsune.ring<tensor<?x8xf32>, 2 : i64>) -> tensor<?x8xf32>
    }) {kind = "simt", sym_name = "s"} : () -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @put_from_argument(%r: !kitsune.ring<tensor<?x8xf32>, 2 : i64>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    "kitsune.stage"() ({
      // expected-error@+1 {{'kitsune.put' op takes its queue straight from a kitsune.queue}}
      "kitsune.put"(%r, %t) : (!kitsune.ring<tensor<?x8xf32>, 2 : i64>, tensor<?x8xf32>) -> ()
    }) {kind = "simt", sym_name = "s"} : () -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @get_of_another_type(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    %q = "kitsune.queue"() {sym_name = "q"} : () -> !kitsune.ring<tensor<?x8xf32>, 2 : i64>
    "kitsune.stage"() ({
      // expected-error@+1 {{'kitsune.get' op tile type tensor<?x9xf32> does not match queue tile type tensor<?x8xf32>}}
      %a = "kitsune.get"(%q) : (!kitsune.ring<tensor<?x8xf32>, 2 : i64>) -> tensor<?x9xf32>
    }) {kind = "simt", sym_name = "s"} : () -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @reduce_of_another_type(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    %q = "kitsune.queue"() {sym_name = "q"} : () -> !kitsune.ring<tensor<?x8xf32>, 2 : i64>
    "kitsune.stage"() ({
      // expected-error@+1 {{'kitsune.reduce' op tile type tensor<?x9xf32> does not match queue tile type tensor<?x8xf32>}}
      %a = "kitsune.reduce"(%q) : (!kitsune.ring<tensor<?x8xf32>, 2 : i64>) -> tensor<?x9xf32>
    }) {kind = "simt", sym_name = "s"} : () -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @put_of_another_type(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    %q = "kitsune.queue"() {sym_name = "q"} : () -> !kitsune.ring<tensor<?x8xf32>, 2 : i64>
    "kitsune.stage"() ({
      // expected-error@+1 {{'kitsune.put' op tile type tensor<64x8xf32> does not match queue tile type tensor<?x8xf32>}}
      "kitsune.put"(%q, %x) : (!kitsune.ring<tensor<?x8xf32>, 2 : i64>, tensor<64x8xf32>) -> ()
    }) {kind = "simt", sym_name = "s"} : () -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @accumulate_of_another_type(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    %q = "kitsune.queue"() {sym_name = "q"} : () -> !kitsune.ring<tensor<?x8xf32>, 2 : i64>
    "kitsune.stage"() ({
      // expected-error@+1 {{'kitsune.accumulate' op tile type tensor<64x8xf32> does not match queue tile type tensor<?x8xf32>}}
      "kitsune.accumulate"(%q, %x) : (!kitsune.ring<tensor<?x8xf32>, 2 : i64>, tensor<64x8xf32>) -> ()
    }) {kind = "simt", sym_name = "s"} : () -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @get_outside_a_stage(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    %q = "kitsune.queue"() {sym_name = "q"} : () -> !kitsune.ring<tensor<?x8xf32>, 2 : i64>
    // expected-error@+1 {{'kitsune.get' op must stand directly in a kitsune.stage}}
    %a = "kitsune.get"(%q) : (!kitsune.ring<tensor<?x8xf32>, 2 : i64>) -> tensor<?x8xf32>
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @put_in_a_loop(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    %q = "kitsune.queue"() {sym_name = "q"} : () -> !kitsune.ring<tensor<?x8xf32>, 2 : i64>
    "kitsune.stage"() ({
      scf.execute_region {
      // expected-error@+1 {{'kitsune.put' op must stand directly in a kitsune.stage}}
        "kitsune.put"(%q, %t) : (!kitsune.ring<tensor<?x8xf32>, 2 : i64>, tensor<?x8xf32>) -> ()
        scf.yield
      }
    }) {kind = "simt", sym_name = "s"} : () -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @get_from_a_tensor(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    "kitsune.stage"() ({
      // expected-error@+1 {{expected base type 'kitsune.ring' but got 'builtin.tensor'}}
      %a = "kitsune.get"(%x) : (tensor<64x8xf32>) -> tensor<?x8xf32>
    }) {kind = "simt", sym_name = "s"} : () -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @get_of_nothing(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    "kitsune.stage"() ({
      // expected-error@+1 {{op expects exactly 1 operands, but got 0}}
      %a = "kitsune.get"() : () -> tensor<?x8xf32>
    }) {kind = "simt", sym_name = "s"} : () -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

// kitsune.load
func.func @load_of_other_columns(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    "kitsune.stage"() ({
      // expected-error@+1 {{'kitsune.load' op result type tensor<?x9xf32> is not a row tile of tensor<64x8xf32>}}
      %l = "kitsune.load"(%x) : (tensor<64x8xf32>) -> tensor<?x9xf32>
    }) {kind = "simt", sym_name = "s"} : () -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @load_of_other_elements(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    "kitsune.stage"() ({
      // expected-error@+1 {{result type tensor<?x8xbf16> is not a row tile of tensor<64x8xf32>}}
      %l = "kitsune.load"(%x) : (tensor<64x8xf32>) -> tensor<?x8xbf16>
    }) {kind = "simt", sym_name = "s"} : () -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @load_outside_a_stage(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  // expected-error@+1 {{'kitsune.load' op must stand directly in a kitsune.stage}}
  %l = "kitsune.load"(%x) : (tensor<64x8xf32>) -> tensor<?x8xf32>
  return
}

// -----

// kitsune.scatter
func.func @scatter_of_other_elements(%x: tensor<64x8xbf16>, %to: tensor<64xi64>) {
  "kitsune.pipeline"() ({
    "kitsune.stage"() ({
      %t = "kitsune.load"(%x) : (tensor<64x8xbf16>) -> tensor<?x8xbf16>
      %r = "kitsune.load"(%to) : (tensor<64xi64>) -> tensor<?xi64>
      // expected-error@+1 {{'kitsune.scatter' op scatters tiles of f32 of two dimensions, found tensor<?x8xbf16>}}
      "kitsune.scatter"(%t, %r) {index = 0 : i64} : (tensor<?x8xbf16>, tensor<?xi64>) -> ()
    }) {kind = "simt", sym_name = "s"} : () -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @scatter_to_numbers_of_floats(%x: tensor<64x8xf32>, %to: tensor<64xf32>) {
  "kitsune.pipeline"() ({
    "kitsune.stage"() ({
      %t = "kitsune.load"(%x) : (tensor<64x8xf32>) -> tensor<?x8xf32>
      %r = "kitsune.load"(%to) : (tensor<64xf32>) -> tensor<?xf32>
      // expected-error@+1 {{'kitsune.scatter' op takes a tensor of integers as rows, found tensor<?xf32>}}
      "kitsune.scatter"(%t, %r) {index = 0 : i64} : (tensor<?x8xf32>, tensor<?xf32>) -> ()
    }) {kind = "simt", sym_name = "s"} : () -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @scatter_to_rows_of_rows(%x: tensor<64x8xf32>, %to: tensor<64x1xi64>) {
  "kitsune.pipeline"() ({
    "kitsune.stage"() ({
      %t = "kitsune.load"(%x) : (tensor<64x8xf32>) -> tensor<?x8xf32>
      %r = "kitsune.load"(%to) : (tensor<64x1xi64>) -> tensor<?x1xi64>
      // expected-error@+1 {{'kitsune.scatter' op wants a row for each of its tile's, found tensor<?x1xi64> for tensor<?x8xf32>}}
      "kitsune.scatter"(%t, %r) {index = 0 : i64} : (tensor<?x8xf32>, tensor<?x1xi64>) -> ()
    }) {kind = "simt", sym_name = "s"} : () -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @scatter_of_numbers_as_many(%x: tensor<64x8xf32>, %to: tensor<64xi64>, %n: index) {
  "kitsune.pipeline"() ({
    "kitsune.stage"() ({
      %t = "kitsune.load"(%x) : (tensor<64x8xf32>) -> tensor<?x8xf32>
      %r = "kitsune.load"(%to) : (tensor<64xi64>) -> tensor<?xi64>
      // expected-error@+1 {{'kitsune.scatter' op has as many rows as one tensor, found index}}
      "kitsune.scatter"(%t, %r, %n) {index = 0 : i64} : (tensor<?x8xf32>, tensor<?xi64>, index) -> ()
    }) {kind = "simt", sym_name = "s"} : () -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @scatter_to_any_rows(%x: tensor<64x8xf32>, %to: tensor<64xi64>) {
  %p = "kitsune.pipeline"() ({
    "kitsune.stage"() ({
      %t = "kitsune.load"(%x) : (tensor<64x8xf32>) -> tensor<?x8xf32>
      %r = "kitsune.load"(%to) : (tensor<64xi64>) -> tensor<?xi64>
      // expected-error@+1 {{'kitsune.scatter' op has rows of tensor<?x8xf32> without a tensor that has as many}}
      "kitsune.scatter"(%t, %r) {index = 0 : i64} : (tensor<?x8xf32>, tensor<?xi64>) -> ()
    }) {kind = "simt", sym_name = "s"} : () -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  %y = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<?x8xf32>
  return
}

// -----

func.func @scatter_into_other_columns(%x: tensor<64x8xf32>, %to: tensor<64xi64>) {
  %p = "kitsune.pipeline"() ({
    "kitsune.stage"() ({
      %t = "kitsune.load"(%x) : (tensor<64x8xf32>) -> tensor<?x8xf32>
      %r = "kitsune.load"(%to) : (tensor<64xi64>) -> tensor<?xi64>
      "kitsune.scatter"(%t, %r) {index = 0 : i64} : (tensor<?x8xf32>, tensor<?xi64>) -> ()
    }) {kind = "simt", sym_name = "s"} : () -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  // expected-error@+1 {{'kitsune.result' op type tensor<5x9xf32> does not have rows as the scattered tiles tensor<?x8xf32>}}
  %y = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<5x9xf32>
  return
}

// -----

// kitsune.store
func.func @store_of_a_scalar(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    %f = arith.constant 0.0 : f32
    // expected-error@+1 {{'kitsune.store' op stores a ranked tensor, found f32}}
    "kitsune.store"(%f) {index = 0 : i64} : (f32) -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @store_of_index_below_0(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    // expected-error@+1 {{'kitsune.store' op index must be an integer from 0 to 2147483647, found -1 : i64}}
    "kitsune.store"(%x) {index = -1 : i64} : (tensor<64x8xf32>) -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @store_of_truth(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    // expected-error@+1 {{index must be an integer from 0 to 2147483647, found true}}
    "kitsune.store"(%x) {index = true} : (tensor<64x8xf32>) -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @store_outside(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  // expected-error@+1 {{'kitsune.store' op must stand directly in a kitsune.stage or kitsune.pipeline}}
  "kitsune.store"(%x) {index = 0 : i64} : (tensor<64x8xf32>) -> ()
  return
}

// -----

func.func @store_without_index(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    // expected-error@+1 {{'kitsune.store' op attribute "index" is expected but not provided}}
    "kitsune.store"(%x) : (tensor<64x8xf32>) -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

// kitsune.stage
func.func @stage_kind(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    // expected-error@+1 {{'kitsune.stage' op kind must be one of tensor, simt, found "fpga"}}
    "kitsune.stage"() ({
      %l = "kitsune.load"(%x) : (tensor<64x8xf32>) -> tensor<?x8xf32>
    }) {kind = "fpga", sym_name = "s"} : () -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @stage_without_kind(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    // expected-error@+1 {{'kitsune.stage' op attribute "kind" is expected but not provided}}
    "kitsune.stage"() ({
      %l = "kitsune.load"(%x) : (tensor<64x8xf32>) -> tensor<?x8xf32>
    }) {sym_name = "s"} : () -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @stage_role(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    // expected-error@+1 {{'kitsune.stage' op role must be an integer from 0 to 2147483647, found "x"}}
    "kitsune.stage"() ({
      %l = "kitsune.load"(%x) : (tensor<64x8xf32>) -> tensor<?x8xf32>
    }) {kind = "simt", role = "x", sym_name = "s"} : () -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @stage_replicas(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    // expected-error@+1 {{'kitsune.stage' op replicas must be an integer from 1 to 2147483647, found 0 : i64}}
    "kitsune.stage"() ({
      %l = "kitsune.load"(%x) : (tensor<64x8xf32>) -> tensor<?x8xf32>
    }) {kind = "simt", replicas = 0 : i64, sym_name = "s"} : () -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @stage_without_body(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    // expected-error@+1 {{'kitsune.stage' op body must be one block, found 0}}
    "kitsune.stage"() ({}) {kind = "simt", sym_name = "s"} : () -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @stage_with_arguments(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    // expected-error@+1 {{'kitsune.stage' op body takes no arguments; it names the values around it}}
    "kitsune.stage"() ({
      ^body(%a: f32):
      %l = "kitsune.load"(%x) : (tensor<64x8xf32>) -> tensor<?x8xf32>
    }) {kind = "simt", sym_name = "s"} : () -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @stage_once_and_always(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    %q = "kitsune.queue"() {sym_name = "q"} : () -> !kitsune.ring<tensor<?x8xf32>, 2 : i64>
    "kitsune.stage"() ({
      "kitsune.accumulate"(%q, %t) : (!kitsune.ring<tensor<?x8xf32>, 2 : i64>, tensor<?x8xf32>) -> ()
    }) {kind = "simt", sym_name = "s"} : () -> ()
    // expected-error@+1 {{'kitsune.stage' op with a kitsune.reduce fires once, so it cannot get, put, load or accumulate row tiles}}
    "kitsune.stage"() ({
      %a = "kitsune.reduce"(%q) : (!kitsune.ring<tensor<?x8xf32>, 2 : i64>) -> tensor<?x8xf32>
      %l = "kitsune.load"(%x) : (tensor<64x8xf32>) -> tensor<?x8xf32>
    }) {kind = "simt", sym_name = "c"} : () -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @stage_outside(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  // expected-error@+1 {{'kitsune.stage' op must stand directly in a kitsune.pipeline}}
  "kitsune.stage"() ({
    %l = "kitsune.load"(%x) : (tensor<64x8xf32>) -> tensor<?x8xf32>
  }) {kind = "simt", sym_name = "s"} : () -> ()
  return
}

// -----

func.func @stage_in_a_stage(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    "kitsune.stage"() ({
      // expected-error@+1 {{'kitsune.stage' op must stand directly in a kitsune.pipeline}}
      "kitsune.stage"() ({
        %l = "kitsune.load"(%x) : (tensor<64x8xf32>) -> tensor<?x8xf32>
      }) {kind = "simt", sym_name = "s"} : () -> ()
    }) {kind = "simt", sym_name = "s"} : () -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @stage_of_two_regions(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    // expected-error@+1 {{'kitsune.stage' op unexpected number of regions: expected 1 but got 2}}
    "kitsune.stage"() ({}, {}) {kind = "simt", sym_name = "s"} : () -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

// kitsune.pipeline
func.func @pipeline_in_a_pipeline(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    // expected-error@+1 {{'kitsune.pipeline' op cannot stand in another kitsune.pipeline}}
    "kitsune.pipeline"() ({
      "kitsune.store"(%x) {index = 0 : i64} : (tensor<64x8xf32>) -> ()
    }) {sym_name = "inner"} : () -> !kitsune.outputs
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @pipeline_tile_rows(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  // expected-error@+1 {{'kitsune.pipeline' op tile_rows must be an integer from 1 to 2147483647, found 0 : i64}}
  "kitsune.pipeline"() ({
    "kitsune.store"(%x) {index = 0 : i64} : (tensor<64x8xf32>) -> ()
  }) {sym_name = "p", tile_rows = 0 : i64} : () -> !kitsune.outputs
  return
}

// -----

func.func @pipeline_target(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  // expected-error@+1 {{'kitsune.pipeline' op target must be the name of a target, found 90 : i64}}
  "kitsune.pipeline"() ({
    "kitsune.store"(%x) {index = 0 : i64} : (tensor<64x8xf32>) -> ()
  }) {sym_name = "p", target = 90 : i64} : () -> !kitsune.outputs
  return
}

// -----

func.func @pipeline_prediction(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  // expected-error@+1 {{'kitsune.pipeline' op predicted_us must be a number of microseconds, found "soon"}}
  "kitsune.pipeline"() ({
    "kitsune.store"(%x) {index = 0 : i64} : (tensor<64x8xf32>) -> ()
  }) {predicted_us = "soon", sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @pipeline_limit(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  // expected-error@+1 {{'kitsune.pipeline' op limit must be the name of a unit, found 3 : i64}}
  "kitsune.pipeline"() ({
    "kitsune.store"(%x) {index = 0 : i64} : (tensor<64x8xf32>) -> ()
  }) {limit = 3 : i64, sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @pipeline_shape(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  // expected-error@+1 {{'kitsune.pipeline' op shape must be one of chained, fused, spatial, found 'banana'}}
  "kitsune.pipeline"() ({
    "kitsune.store"(%x) {index = 0 : i64} : (tensor<64x8xf32>) -> ()
  }) {shape = "banana", sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @placed_without_a_role(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    // expected-error@+1 {{'kitsune.stage' op of a placed pipeline needs a role and replicas}}
    "kitsune.stage"() ({
      %a = "kitsune.load"(%x) : (tensor<64x8xf32>) -> tensor<16x8xf32>
      "kitsune.store"(%a) {index = 0 : i64} : (tensor<16x8xf32>) -> ()
    }) {kind = "simt", replicas = 4 : i64, sym_name = "s"} : () -> ()
  }) {sym_name = "p", tile_rows = 16 : i64} : () -> !kitsune.outputs
  return
}

// -----

func.func @placed_without_a_transport(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    // expected-error@+1 {{'kitsune.queue' op of a placed pipeline needs a transport}}
    %q = "kitsune.queue"() {sym_name = "q"} : () -> !kitsune.ring<tensor<16x8xf32>, 2 : i64>
    "kitsune.stage"() ({
      %a = "kitsune.load"(%x) : (tensor<64x8xf32>) -> tensor<16x8xf32>
      "kitsune.put"(%q, %a) : (!kitsune.ring<tensor<16x8xf32>, 2 : i64>, tensor<16x8xf32>) -> ()
    }) {kind = "simt", replicas = 1 : i64, role = 0 : i64, sym_name = "s"} : () -> ()
    "kitsune.stage"() ({
      %a = "kitsune.get"(%q) : (!kitsune.ring<tensor<16x8xf32>, 2 : i64>) -> tensor<16x8xf32>
      "kitsune.store"(%a) {index = 0 : i64} : (tensor<16x8xf32>) -> ()
    }) {kind = "simt", replicas = 1 : i64, role = 1 : i64, sym_name = "t"} : () -> ()
  }) {sym_name = "p", tile_rows = 16 : i64} : () -> !kitsune.outputs
  return
}

// -----

func.func @placed_load_of_other_rows(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    "kitsune.stage"() ({
      // expected-error@+1 {{'kitsune.load' op has a tile of type tensor<32x8xf32> in a pipeline whose tiles have 16 rows}}
      %a = "kitsune.load"(%x) : (tensor<64x8xf32>) -> tensor<32x8xf32>
      "kitsune.store"(%a) {index = 0 : i64} : (tensor<32x8xf32>) -> ()
    }) {kind = "simt", replicas = 4 : i64, role = 0 : i64, sym_name = "s"} : () -> ()
  }) {sym_name = "p", tile_rows = 16 : i64} : () -> !kitsune.outputs
  return
}

// -----

func.func @placed_load_of_open_rows(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    "kitsune.stage"() ({
      // expected-error@+1 {{'kitsune.load' op has a tile of type tensor<?x8xf32> in a pipeline whose tiles have 16 rows}}
      %a = "kitsune.load"(%x) : (tensor<64x8xf32>) -> tensor<?x8xf32>
      "kitsune.store"(%a) {index = 0 : i64} : (tensor<?x8xf32>) -> ()
    }) {kind = "simt", replicas = 4 : i64, role = 0 : i64, sym_name = "s"} : () -> ()
  }) {sym_name = "p", tile_rows = 16 : i64} : () -> !kitsune.outputs
  return
}

// -----

func.func @placed_store_of_other_rows(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    "kitsune.stage"() ({
      %a = "kitsune.load"(%x) : (tensor<64x8xf32>) -> tensor<16x8xf32>
      %b = tensor.extract_slice %a[0, 0] [8, 8] [1, 1] : tensor<16x8xf32> to tensor<8x8xf32>
      // expected-error@+1 {{'kitsune.store' op has a tile of type tensor<8x8xf32> in a pipeline whose tiles have 16 rows}}
      "kitsune.store"(%b) {index = 0 : i64} : (tensor<8x8xf32>) -> ()
    }) {kind = "simt", replicas = 4 : i64, role = 0 : i64, sym_name = "s"} : () -> ()
  }) {sym_name = "p", tile_rows = 16 : i64} : () -> !kitsune.outputs
  return
}

// -----

func.func @placed_put_of_other_rows(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    %q = "kitsune.queue"() {sym_name = "q", transport = "l2"} : () -> !kitsune.ring<tensor<8x8xf32>, 2 : i64>
    "kitsune.stage"() ({
      %a = "kitsune.load"(%x) : (tensor<64x8xf32>) -> tensor<16x8xf32>
      %b = tensor.extract_slice %a[0, 0] [8, 8] [1, 1] : tensor<16x8xf32> to tensor<8x8xf32>
      // expected-error@+1 {{'kitsune.put' op has a tile of type tensor<8x8xf32> in a pipeline whose tiles have 16 rows}}
      "kitsune.put"(%q, %b) : (!kitsune.ring<tensor<8x8xf32>, 2 : i64>, tensor<8x8xf32>) -> ()
    }) {kind = "simt", replicas = 1 : i64, role = 0 : i64, sym_name = "s"} : () -> ()
    "kitsune.stage"() ({
      %a = "kitsune.get"(%q) : (!kitsune.ring<tensor<8x8xf32>, 2 : i64>) -> tensor<8x8xf32>
      "kitsune.store"(%a) {index = 0 : i64} : (tensor<8x8xf32>) -> ()
    }) {kind = "simt", replicas = 1 : i64, role = 1 : i64, sym_name = "t"} : () -> ()
  }) {sym_name = "p", tile_rows = 16 : i64} : () -> !kitsune.outputs
  return
}

// -----

func.func @loads_of_unequal_rows(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>, %y: tensor<100x8xf32>) {
  "kitsune.pipeline"() ({
    "kitsune.stage"() ({
      %a = "kitsune.load"(%t) : (tensor<?x8xf32>) -> tensor<?x8xf32>
      %b = "kitsune.load"(%x) : (tensor<64x8xf32>) -> tensor<?x8xf32>
      // expected-error@+1 {{'kitsune.load' op streams a tensor of type tensor<100x8xf32> beside others of 64 rows}}
      %c = "kitsune.load"(%y) : (tensor<100x8xf32>) -> tensor<?x8xf32>
      "kitsune.store"(%c) {index = 0 : i64} : (tensor<?x8xf32>) -> ()
    }) {kind = "simt", sym_name = "s"} : () -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @result_of_other_rows(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  %p = "kitsune.pipeline"() ({
    "kitsune.stage"() ({
      %a = "kitsune.load"(%x) : (tensor<64x8xf32>) -> tensor<?x8xf32>
      "kitsune.store"(%a) {index = 0 : i64} : (tensor<?x8xf32>) -> ()
    }) {kind = "simt", sym_name = "s"} : () -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  // expected-error@+1 {{'kitsune.result' op type tensor<63x8xf32> does not have the 64 rows that the pipeline streams}}
  %r = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<63x8xf32>
  return
}

// -----

func.func @pipeline_without_body(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  // expected-error@+1 {{'kitsune.pipeline' op body must be one block, found 0}}
  %p = "kitsune.pipeline"() ({}) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @pipeline_of_two_blocks(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  // expected-error@+1 {{'kitsune.pipeline' op body must be one block, found 2}}
  "kitsune.pipeline"() ({
    "kitsune.store"(%x) {index = 0 : i64} : (tensor<64x8xf32>) -> ()
    cf.br ^next
    ^next:
    cf.br ^next
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @pipeline_with_arguments(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  // expected-error@+1 {{'kitsune.pipeline' op body takes no arguments; it names the values around it}}
  "kitsune.pipeline"() ({
    ^body(%a: f32):
    "kitsune.store"(%x) {index = 0 : i64} : (tensor<64x8xf32>) -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @pipeline_stores_twice(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  // expected-error@+1 {{'kitsune.pipeline' op stores outputs [0, 0]; wants each of 0 to n-1 once}}
  "kitsune.pipeline"() ({
    "kitsune.store"(%x) {index = 0 : i64} : (tensor<64x8xf32>) -> ()
    "kitsune.store"(%x) {index = 0 : i64} : (tensor<64x8xf32>) -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @pipeline_skips_an_output(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  // expected-error@+1 {{stores outputs [1]; wants each of 0 to n-1 once}}
  "kitsune.pipeline"() ({
    "kitsune.store"(%x) {index = 1 : i64} : (tensor<64x8xf32>) -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @pipeline_with_a_stranger(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    // expected-error@+1 {{'arith.constant' op stands beside stages; a designed pipeline holds only queues and stages}}
    %f = arith.constant 0.0 : f32
    "kitsune.stage"() ({
      %l = "kitsune.load"(%x) : (tensor<64x8xf32>) -> tensor<?x8xf32>
    }) {kind = "simt", sym_name = "s"} : () -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @pipeline_with_a_store_beside_stages(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    "kitsune.stage"() ({
      %l = "kitsune.load"(%x) : (tensor<64x8xf32>) -> tensor<?x8xf32>
    }) {kind = "simt", sym_name = "s"} : () -> ()
    // expected-error@+1 {{'kitsune.store' op stands beside stages}}
    "kitsune.store"(%x) {index = 0 : i64} : (tensor<64x8xf32>) -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @stages_of_one_name(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    "kitsune.stage"() ({
      %l = "kitsune.load"(%x) : (tensor<64x8xf32>) -> tensor<?x8xf32>
    }) {kind = "simt", sym_name = "s"} : () -> ()
    // expected-error@+1 {{'kitsune.stage' op has the name 's' of an earlier stage; names must be unique}}
    "kitsune.stage"() ({
      %l = "kitsune.load"(%x) : (tensor<64x8xf32>) -> tensor<?x8xf32>
    }) {kind = "simt", sym_name = "s"} : () -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @queues_of_one_name(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    %q = "kitsune.queue"() {sym_name = "q"} : () -> !kitsune.ring<tensor<?x8xf32>, 2 : i64>
    // expected-error@+1 {{'kitsune.queue' op has the name 'q' of an earlier queue; names must be unique}}
    %r = "kitsune.queue"() {sym_name = "q"} : () -> !kitsune.ring<tensor<?x8xf32>, 2 : i64>
    "kitsune.stage"() ({
      "kitsune.put"(%q, %t) : (!kitsune.ring<tensor<?x8xf32>, 2 : i64>, tensor<?x8xf32>) -> ()
      "kitsune.put"(%r, %t) : (!kitsune.ring<tensor<?x8xf32>, 2 : i64>, tensor<?x8xf32>) -> ()
    }) {kind = "simt", sym_name = "s"} : () -> ()
    "kitsune.stage"() ({
      %a = "kitsune.get"(%q) : (!kitsune.ring<tensor<?x8xf32>, 2 : i64>) -> tensor<?x8xf32>
      %b = "kitsune.get"(%r) : (!kitsune.ring<tensor<?x8xf32>, 2 : i64>) -> tensor<?x8xf32>
    }) {kind = "simt", sym_name = "c"} : () -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @outputs_used_otherwise(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  %p = "kitsune.pipeline"() ({
    "kitsune.store"(%x) {index = 0 : i64} : (tensor<64x8xf32>) -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  // expected-error@+1 {{'builtin.unrealized_conversion_cast' op uses the outputs of a kitsune.pipeline; only kitsune.result may}}
  %c = builtin.unrealized_conversion_cast %p : !kitsune.outputs to f32
  return
}

// -----

// kitsune.result
func.func @result_of_an_argument(%o: !kitsune.outputs) {
  // expected-error@+1 {{'kitsune.result' op takes its operand straight from a kitsune.pipeline or a kitsune.kernel}}
  %y = "kitsune.result"(%o) {index = 0 : i64} : (!kitsune.outputs) -> tensor<64x8xf32>
  return
}

// -----

func.func @result_of_more_sizes(%x: tensor<64x8xf32>, %n: index) {
  %p = "kitsune.pipeline"() ({
    "kitsune.store"(%x) {index = 0 : i64} : (tensor<64x8xf32>) -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  // expected-error@+1 {{'kitsune.result' op has 1 sizes for the 0 open ones of tensor<64x8xf32>}}
  %y = "kitsune.result"(%p, %n) {index = 0 : i64} : (!kitsune.outputs, index) -> tensor<64x8xf32>
  return
}

// -----

func.func @result_of_index_below_0(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  %p = "kitsune.pipeline"() ({
    "kitsune.store"(%x) {index = 0 : i64} : (tensor<64x8xf32>) -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  // expected-error@+1 {{'kitsune.result' op index must be an integer from 0 to 2147483647, found -1 : i64}}
  %y = "kitsune.result"(%p) {index = -1 : i64} : (!kitsune.outputs) -> tensor<64x8xf32>
  return
}

// -----

func.func @result_nobody_stores(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  %p = "kitsune.pipeline"() ({
    "kitsune.store"(%x) {index = 0 : i64} : (tensor<64x8xf32>) -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  // expected-error@+1 {{'kitsune.result' op index 1 has no kitsune.store in the pipeline}}
  %y = "kitsune.result"(%p) {index = 1 : i64} : (!kitsune.outputs) -> tensor<64x8xf32>
  return
}

// -----

func.func @result_of_other_columns(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  %p = "kitsune.pipeline"() ({
    "kitsune.stage"() ({
      %l = "kitsune.load"(%x) : (tensor<64x8xf32>) -> tensor<?x8xf32>
      "kitsune.store"(%l) {index = 0 : i64} : (tensor<?x8xf32>) -> ()
    }) {kind = "simt", sym_name = "s"} : () -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  // expected-error@+1 {{'kitsune.result' op type tensor<64x9xf32> is not made of row tiles tensor<?x8xf32>}}
  %y = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<64x9xf32>
  return
}

// -----

func.func @result_of_another_type(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  %p = "kitsune.pipeline"() ({
    "kitsune.store"(%x) {index = 0 : i64} : (tensor<64x8xf32>) -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  // expected-error@+1 {{'kitsune.result' op type tensor<?x8xf32> is not the stored type tensor<64x8xf32>}}
  %y = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<?x8xf32>
  return
}

// -----

// types
func.func @ring_of_a_number(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    // expected-error@+1 {{expected base attribute 'builtin.type' but got 'builtin.integer'}}
    %q = "kitsune.queue"() {sym_name = "q"} : () -> !kitsune.ring<1 : i64, 2 : i64>
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @ring_without_depth(%x: tensor<64x8xf32>, %t: tensor<?x8xf32>) {
  "kitsune.pipeline"() ({
    // expected-error@+1 {{expected 2 type arguments, but had 1}}
    %q = "kitsune.queue"() {sym_name = "q"} : () -> !kitsune.ring<tensor<8xf32>>
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

// the schedule level
func.func @kernel_without_agents(%A: tensor<64x64xbf16>, %m: index) {
  // expected-error@+1 {{'kitsune.kernel' op has no kitsune.agent}}
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @kernel_without_tiles(%A: tensor<64x64xbf16>, %m: index) {
  // expected-error@+1 {{'kitsune.kernel' op deals out its tiles by one kitsune.tiles}}
  %p = "kitsune.kernel"() ({
    "kitsune.agent"() ({
    ^bb0(%c: index):
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @kernel_of_two_rings_of_one_name(%A: tensor<64x64xbf16>, %m: index) {
  // expected-error@+1 {{'kitsune.kernel' op has two rings called 'x'; names must be unique}}
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    %y = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @kernel_that_skips_an_output(%A: tensor<64x64xbf16>, %m: index) {
  // expected-error@+1 {{'kitsune.kernel' op writes outputs [1]; wants each of 0 to n-1}}
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
      "kitsune.write"(%A, %m, %m) {dims = array<i64: 0, 1>, index = 1 : i64} : (tensor<64x64xbf16>, index, index) -> ()
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @result_that_no_kernel_writes(%A: tensor<64x64xbf16>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
      "kitsune.write"(%A, %m, %m) {dims = array<i64: 0, 1>, index = 0 : i64} : (tensor<64x64xbf16>, index, index) -> ()
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  // expected-error@+1 {{'kitsune.result' op takes output 1, which its kitsune.kernel does not write}}
  %o = "kitsune.result"(%p) {index = 1 : i64} : (!kitsune.outputs) -> tensor<64x64xbf16>
  return
}

// -----

func.func @agent_without_kernel(%A: tensor<64x64xbf16>, %m: index) {
  // expected-error@+1 {{'kitsune.agent' op stands in no kitsune.kernel}}
  "kitsune.agent"() ({
  ^bb0(%c: index):
  }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  return
}

// -----

func.func @agent_of_odd_registers(%A: tensor<64x64xbf16>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    // expected-error@+1 {{'kitsune.agent' op registers must be a multiple of 8 from 24 to 256, found 30}}
    "kitsune.agent"() ({
    ^bb0(%c: index):
    }) {copies = 1, registers = 30, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @agent_without_its_copys_number(%A: tensor<64x64xbf16>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    // expected-error@+1 {{'kitsune.agent' op has one block argument, the number of the copy, of type index}}
    "kitsune.agent"() ({
    ^bb0:
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @tiles_of_too_many_extents(%A: tensor<64x64xbf16>, %m: index) {
  %p = "kitsune.kernel"() ({
    // expected-error@+1 {{'kitsune.tiles' op tile has a size from 1 on for each extent, found [64, 64]}}
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64, 64>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @tiles_without_sizes(%A: tensor<64x64xbf16>, %m: index) {
  %p = "kitsune.kernel"() ({
    // expected-error@+1 {{'kitsune.tiles' op has an attribute tile, an array of i64}}
    %lo, %hi, %st = "kitsune.tiles"(%m) : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @ring_in_a_space_that_is_not(%A: tensor<64x64xbf16>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    // expected-error@+1 {{'kitsune.alloc_ring' op space must be one of smem, dsmem, l2, found "l1"}}
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "l1", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @ring_of_numbers(%A: tensor<64x64xbf16>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    // expected-error@+1 {{'kitsune.alloc_ring' op tile type must be a ranked tensor of known sizes, found bf16}}
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<bf16, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @ring_of_blocks(%A: tensor<64x64xbf16>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    // expected-error@+1 {{'kitsune.alloc_ring' op holds tiles of two dimensions in 1 slot or more, found !kitsune.ring<tensor<2x2x2xbf16>, 2 : i64>}}
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<2x2x2xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @slot_of_a_ring_from_elsewhere(%r: !kitsune.ring<tensor<64x64xbf16>, 2 : i64>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.acquire' op takes its operand straight from a kitsune.alloc_ring}}
      %s = "kitsune.acquire"(%r) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @slot_of_another_type(%A: tensor<64x64xbf16>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.wait' op gives a slot of type !kitsune.slot<tensor<64x24xbf16>>, of a ring of type !kitsune.ring<tensor<64x64xbf16>, 2 : i64>}}
      %s = "kitsune.wait"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x24xbf16>>
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @slot_closed_twice(%A: tensor<64x64xbf16>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.wait"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      // expected-error@+1 {{'kitsune.release' op closes a slot that is closed elsewhere too}}
      "kitsune.release"(%s) : (!kitsune.slot<tensor<64x64xbf16>>) -> ()
      "kitsune.release"(%s) : (!kitsune.slot<tensor<64x64xbf16>>) -> ()
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @copy_by_an_engine_that_is_not(%A: tensor<64x64xbf16>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      // expected-error@+1 {{'kitsune.copy' op engine must be one of tma, cp_async, found "st"}}
      %d = "kitsune.copy"(%s, %A, %m, %m) {dims = array<i64: 0, 1>, engine = "st"} : (!kitsune.slot<tensor<64x64xbf16>>, tensor<64x64xbf16>, index, index) -> !kitsune.token
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @copy_of_a_number(%A: bf16, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      // expected-error@+1 {{'kitsune.copy' op moves a box of a ranked tensor, found bf16 and tensor<64x64xbf16>}}
      %d = "kitsune.copy"(%s, %A, %m, %m) {dims = array<i64: 0, 1>, engine = "tma"} : (!kitsune.slot<tensor<64x64xbf16>>, bf16, index, index) -> !kitsune.token
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @copy_along_one_dimension_twice(%A: tensor<64x64xbf16>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      // expected-error@+1 {{'kitsune.copy' op dims must name a dimension of tensor<64x64xbf16> for each of tensor<64x64xbf16>, found [1, 1]}}
      %d = "kitsune.copy"(%s, %A, %m, %m) {dims = array<i64: 1, 1>, engine = "tma"} : (!kitsune.slot<tensor<64x64xbf16>>, tensor<64x64xbf16>, index, index) -> !kitsune.token
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @copy_from_too_few_offsets(%A: tensor<64x64xbf16>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      // expected-error@+1 {{'kitsune.copy' op has 1 offsets for the 2 dimensions of tensor<64x64xbf16>}}
      %d = "kitsune.copy"(%s, %A, %m) {dims = array<i64: 0, 1>, engine = "tma"} : (!kitsune.slot<tensor<64x64xbf16>>, tensor<64x64xbf16>, index) -> !kitsune.token
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @copy_to_another_element_type(%A: tensor<64x64xf32>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      // expected-error@+1 {{'kitsune.copy' op moves elements of tensor<64x64xf32> as those of tensor<64x64xbf16>}}
      %d = "kitsune.copy"(%s, %A, %m, %m) {dims = array<i64: 0, 1>, engine = "tma"} : (!kitsune.slot<tensor<64x64xbf16>>, tensor<64x64xf32>, index, index) -> !kitsune.token
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @last_rows_in_part_of_a_pattern(%A: tensor<100x64xbf16>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      // expected-error@+1 {{'kitsune.copy' op last must be a multiple of 8 and less than the rows of tensor<64x64xbf16>, found 36}}
      %d = "kitsune.copy"(%s, %A, %m, %m) {dims = array<i64: 0, 1>, engine = "tma", last = 36 : i64} : (!kitsune.slot<tensor<64x64xbf16>>, tensor<100x64xbf16>, index, index) -> !kitsune.token
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @last_rows_that_are_all(%A: tensor<100x64xbf16>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      // expected-error@+1 {{'kitsune.copy' op last must be a multiple of 8 and less than the rows of tensor<64x64xbf16>, found 64}}
      %d = "kitsune.copy"(%s, %A, %m, %m) {dims = array<i64: 0, 1>, engine = "tma", last = 64 : i64} : (!kitsune.slot<tensor<64x64xbf16>>, tensor<100x64xbf16>, index, index) -> !kitsune.token
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @last_rows_that_are_none(%A: tensor<100x64xbf16>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      // expected-error@+1 {{'kitsune.copy' op last must be an integer from 1 to 2147483647, found 0 : i64}}
      %d = "kitsune.copy"(%s, %A, %m, %m) {dims = array<i64: 0, 1>, engine = "tma", last = 0 : i64} : (!kitsune.slot<tensor<64x64xbf16>>, tensor<100x64xbf16>, index, index) -> !kitsune.token
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @last_rows_of_any_number(%A: tensor<?x64xbf16>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      // expected-error@+1 {{'kitsune.copy' op has last rows of a tensor whose rows are known, found tensor<?x64xbf16>}}
      %d = "kitsune.copy"(%s, %A, %m, %m) {dims = array<i64: 0, 1>, engine = "tma", last = 40 : i64} : (!kitsune.slot<tensor<64x64xbf16>>, tensor<?x64xbf16>, index, index) -> !kitsune.token
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @last_rows_along_columns(%A: tensor<100x64xbf16>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "columns", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      // expected-error@+1 {{'kitsune.copy' op has last rows where the copy engine fills boxes along rows}}
      %d = "kitsune.copy"(%s, %A, %m, %m) {dims = array<i64: 0, 1>, engine = "tma", last = 40 : i64} : (!kitsune.slot<tensor<64x64xbf16>>, tensor<100x64xbf16>, index, index) -> !kitsune.token
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @last_rows_that_threads_copy(%A: tensor<100x64xbf16>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      // expected-error@+1 {{'kitsune.copy' op has last rows where the copy engine fills boxes along rows}}
      %d = "kitsune.copy"(%s, %A, %m, %m) {dims = array<i64: 0, 1>, engine = "cp_async", last = 40 : i64} : (!kitsune.slot<tensor<64x64xbf16>>, tensor<100x64xbf16>, index, index) -> !kitsune.token
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @last_rows_that_threads_read(%A: tensor<100x64xbf16>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      // expected-error@+1 {{'kitsune.copy' op has last rows where products alone read them, and do not sum over them: 'x'}}
      %d = "kitsune.copy"(%s, %A, %m, %m) {dims = array<i64: 0, 1>, engine = "tma", last = 40 : i64} : (!kitsune.slot<tensor<64x64xbf16>>, tensor<100x64xbf16>, index, index) -> !kitsune.token
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %r = "kitsune.wait"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      %t = "kitsune.read"(%r) {dims = array<i64>} : (!kitsune.slot<tensor<64x64xbf16>>) -> tensor<64x64xbf16>
    }) {copies = 1, registers = 24, sym_name = "b", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @sums_without_agent(%A: tensor<64x64xbf16>, %m: index) {
  // expected-error@+1 {{'kitsune.sums' op stands in no kitsune.agent}}
  %z = "kitsune.sums"() : () -> !kitsune.acc<tensor<64x64xf32>>
  return
}

// -----

func.func @product_without_agent(%a: !kitsune.acc<tensor<64x64xf32>>, %s: !kitsune.slot<tensor<64x64xbf16>>, %w: !kitsune.slot<tensor<64x32xbf16>>, %m: index) {
  // expected-error@+1 {{'kitsune.product' op stands in no kitsune.agent}}
  %v, %e = "kitsune.product"(%a, %s, %s) {engine = "wgmma"} : (!kitsune.acc<tensor<64x64xf32>>, !kitsune.slot<tensor<64x64xbf16>>, !kitsune.slot<tensor<64x64xbf16>>) -> (!kitsune.acc<tensor<64x64xf32>>, !kitsune.token)
  return
}

// -----

func.func @product_by_an_engine_that_is_not(%a: !kitsune.acc<tensor<64x64xf32>>, %s: !kitsune.slot<tensor<64x64xbf16>>, %w: !kitsune.slot<tensor<64x32xbf16>>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.product' op engine must be one of wgmma, mma_sync, found "mma"}}
      %v, %e = "kitsune.product"(%a, %s, %s) {engine = "mma"} : (!kitsune.acc<tensor<64x64xf32>>, !kitsune.slot<tensor<64x64xbf16>>, !kitsune.slot<tensor<64x64xbf16>>) -> (!kitsune.acc<tensor<64x64xf32>>, !kitsune.token)
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @product_of_two_widths(%a: !kitsune.acc<tensor<64x64xf32>>, %s: !kitsune.slot<tensor<64x64xbf16>>, %w: !kitsune.slot<tensor<64x32xbf16>>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.product' op multiplies tiles of one type and width, found tensor<64x64xbf16> and tensor<64x32xbf16>}}
      %v, %e = "kitsune.product"(%a, %s, %w) {engine = "wgmma"} : (!kitsune.acc<tensor<64x64xf32>>, !kitsune.slot<tensor<64x64xbf16>>, !kitsune.slot<tensor<64x32xbf16>>) -> (!kitsune.acc<tensor<64x64xf32>>, !kitsune.token)
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @product_to_sums_of_other_sizes(%a: !kitsune.acc<tensor<64x32xf32>>, %s: !kitsune.slot<tensor<64x64xbf16>>, %w: !kitsune.slot<tensor<64x32xbf16>>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.product' op adds tensor<64x64xbf16> times tensor<64x64xbf16> to sums of tensor<64x32xf32>, whose sizes differ}}
      %v, %e = "kitsune.product"(%a, %s, %s) {engine = "wgmma"} : (!kitsune.acc<tensor<64x32xf32>>, !kitsune.slot<tensor<64x64xbf16>>, !kitsune.slot<tensor<64x64xbf16>>) -> (!kitsune.acc<tensor<64x32xf32>>, !kitsune.token)
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @window_of_two_numbers(%a: !kitsune.acc<tensor<64x16xf32>>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<104x64xbf16>, 2 : i64>
    %y = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "y"} : () -> !kitsune.ring<tensor<16x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.wait"(%x) : (!kitsune.ring<tensor<104x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<100x64xbf16>>
      %t = "kitsune.wait"(%y) : (!kitsune.ring<tensor<16x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<16x64xbf16>>
      // expected-error@+1 {{'kitsune.product' op window must be three numbers from 0 on, found array<i64: 0, 10>}}
      %v, %e = "kitsune.product"(%a, %s, %t) {engine = "wgmma", window = array<i64: 0, 10>} : (!kitsune.acc<tensor<64x16xf32>>, !kitsune.slot<tensor<100x64xbf16>>, !kitsune.slot<tensor<16x64xbf16>>) -> (!kitsune.acc<tensor<64x16xf32>>, !kitsune.token)
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @window_of_a_part(%a: !kitsune.acc<tensor<64x16xf32>>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "split", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<104x64xbf16>, 2 : i64>
    %y = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "y"} : () -> !kitsune.ring<tensor<16x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.wait"(%x) : (!kitsune.ring<tensor<104x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<100x64xbf16>>
      %t = "kitsune.wait"(%y) : (!kitsune.ring<tensor<16x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<16x64xbf16>>
      // expected-error@+1 {{'kitsune.product' op sees windows of a slot of rows that all copies have, by wgmma}}
      %v, %e = "kitsune.product"(%a, %s, %t) {engine = "wgmma", window = array<i64: 0, 10, 8>} : (!kitsune.acc<tensor<64x16xf32>>, !kitsune.slot<tensor<100x64xbf16>>, !kitsune.slot<tensor<16x64xbf16>>) -> (!kitsune.acc<tensor<64x16xf32>>, !kitsune.token)
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @window_of_lines_that_end(%a: !kitsune.acc<tensor<64x12xf32>>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<104x64xbf16>, 2 : i64>
    %y = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "y"} : () -> !kitsune.ring<tensor<12x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.wait"(%x) : (!kitsune.ring<tensor<104x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<100x64xbf16>>
      %t = "kitsune.wait"(%y) : (!kitsune.ring<tensor<12x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<12x64xbf16>>
      // expected-error@+1 {{'kitsune.product' op sees lines of 8 rows, found 12}}
      %v, %e = "kitsune.product"(%a, %t, %s) {engine = "wgmma", right_window = array<i64: 0, 10, 0>} : (!kitsune.acc<tensor<64x12xf32>>, !kitsune.slot<tensor<12x64xbf16>>, !kitsune.slot<tensor<100x64xbf16>>) -> (!kitsune.acc<tensor<64x12xf32>>, !kitsune.token)
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @window_beyond_a_slot(%a: !kitsune.acc<tensor<64x16xf32>>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<104x64xbf16>, 2 : i64>
    %y = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "y"} : () -> !kitsune.ring<tensor<16x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.wait"(%x) : (!kitsune.ring<tensor<104x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<100x64xbf16>>
      %t = "kitsune.wait"(%y) : (!kitsune.ring<tensor<16x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<16x64xbf16>>
      // expected-error@+1 {{'kitsune.product' op sees row 100 of tensor<100x64xbf16>}}
      %v, %e = "kitsune.product"(%a, %s, %t) {engine = "wgmma", window = array<i64: 23, 10, 8>} : (!kitsune.acc<tensor<64x16xf32>>, !kitsune.slot<tensor<100x64xbf16>>, !kitsune.slot<tensor<16x64xbf16>>) -> (!kitsune.acc<tensor<64x16xf32>>, !kitsune.token)
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @patch_of_other_places(%a: tensor<2x9x9x64xbf16>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.read' op patch must be two numbers whose product is a size of tensor<64x64xbf16>, found [8, 9]}}
      %t = "kitsune.read"(%a, %m, %m, %m, %m) {dims = array<i64: 1, 2, 3>, patch = array<i64: 8, 9>} : (tensor<2x9x9x64xbf16>, index, index, index, index) -> tensor<64x64xbf16>
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @product_that_sees_all_rows(%a: !kitsune.acc<tensor<32x64xf32>>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.wait"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      // expected-error@+1 {{'kitsune.product' op wants ring 'x' shared as "split" by the copies of its agent}}
      %v, %e = "kitsune.product"(%a, %s, %s) {engine = "wgmma"} : (!kitsune.acc<tensor<32x64xf32>>, !kitsune.slot<tensor<64x64xbf16>>, !kitsune.slot<tensor<64x64xbf16>>) -> (!kitsune.acc<tensor<32x64xf32>>, !kitsune.token)
    }) {copies = 2, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @product_of_other_sums(%a: !kitsune.acc<tensor<64x64xf32>>, %s: !kitsune.slot<tensor<64x64xbf16>>, %w: !kitsune.slot<tensor<64x32xbf16>>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.product' op gives sums of another type than it takes}}
      %v, %e = "kitsune.product"(%a, %s, %s) {engine = "wgmma"} : (!kitsune.acc<tensor<64x64xf32>>, !kitsune.slot<tensor<64x64xbf16>>, !kitsune.slot<tensor<64x64xbf16>>) -> (!kitsune.acc<tensor<64x32xf32>>, !kitsune.token)
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @settled_as_another_type(%a: !kitsune.acc<tensor<64x64xf32>>, %s: !kitsune.slot<tensor<64x64xbf16>>, %w: !kitsune.slot<tensor<64x32xbf16>>, %m: index) {
  // expected-error@+1 {{'kitsune.settle' op gives a tile of type tensor<64x32xf32>, its sums are !kitsune.acc<tensor<64x64xf32>>}}
  %h = "kitsune.settle"(%a) : (!kitsune.acc<tensor<64x64xf32>>) -> tensor<64x32xf32>
  return
}

// -----

func.func @dots_of_rows(%a: tensor<9x27x64xbf16>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 1>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      // expected-error@+1 {{'kitsune.dots' op multiplies tiles of two dimensions}}
      %c = "kitsune.dots"(%a, %a) : (tensor<9x27x64xbf16>, tensor<9x27x64xbf16>) -> tensor<27x27xf32>
    }) {copies = 1, registers = 24, sym_name = "a", warps = 1} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @dots_of_two_widths(%a: tensor<27x64xbf16>, %b: tensor<27x32xbf16>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 1>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      // expected-error@+1 {{'kitsune.dots' op multiplies tiles of one type and width, found tensor<27x64xbf16> and tensor<27x32xbf16>}}
      %c = "kitsune.dots"(%a, %b) : (tensor<27x64xbf16>, tensor<27x32xbf16>) -> tensor<27x27xf32>
    }) {copies = 1, registers = 24, sym_name = "a", warps = 1} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @dots_of_other_sizes(%a: tensor<27x64xbf16>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 1>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      // expected-error@+1 {{'kitsune.dots' op gives sums of f32, a row for each of tensor<27x64xbf16> and a column for each of tensor<27x64xbf16>'s}}
      %c = "kitsune.dots"(%a, %a) : (tensor<27x64xbf16>, tensor<27x64xbf16>) -> tensor<27x64xf32>
    }) {copies = 1, registers = 24, sym_name = "a", warps = 1} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @dots_of_many_warps(%a: tensor<27x64xbf16>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 1>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      // expected-error@+1 {{'kitsune.dots' op wants an agent of one copy and one warp, whose tiles do not lie by rows}}
      %c = "kitsune.dots"(%a, %a) : (tensor<27x64xbf16>, tensor<27x64xbf16>) -> tensor<27x27xf32>
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @dots_outside(%a: tensor<27x64xbf16>) {
  // expected-error@+1 {{'kitsune.dots' op stands in no kitsune.agent}}
  %c = "kitsune.dots"(%a, %a) : (tensor<27x64xbf16>, tensor<27x64xbf16>) -> tensor<27x27xf32>
  return
}

// -----

func.func @stash_of_another_type(%a: tensor<27x64xbf16>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 1>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      // expected-error@+1 {{'kitsune.stash' op gives the tile that it takes, found tensor<27x64xbf16>, tensor<27x64xf32>}}
      %c = "kitsune.stash"(%a) : (tensor<27x64xbf16>) -> tensor<27x64xf32>
    }) {copies = 1, registers = 24, sym_name = "a", warps = 1} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @write_without_kernel(%A: tensor<64x64xbf16>, %m: index) {
  // expected-error@+1 {{'kitsune.write' op stands in no kitsune.kernel}}
  "kitsune.write"(%A, %m, %m) {dims = array<i64: 0, 1>, index = 0 : i64} : (tensor<64x64xbf16>, index, index) -> ()
  return
}

// -----

func.func @lanes_without_vector(%m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 8>} : (index) -> (index, index, index)
    // expected-error@+1 {{'kitsune.agent' op has both lanes and vector, or neither}}
    "kitsune.agent"() ({
    ^bb0(%c: index):
    }) {copies = 1, lanes = 4, registers = 64, sym_name = "a", warps = 1} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @lanes_that_are_no_power_of_two(%m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 8>} : (index) -> (index, index, index)
    // expected-error@+1 {{'kitsune.agent' op lanes must be a power of two, found 12}}
    "kitsune.agent"() ({
    ^bb0(%c: index):
    }) {copies = 1, lanes = 12, registers = 64, sym_name = "a", vector = 4, warps = 1} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @more_lanes_than_threads(%m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 8>} : (index) -> (index, index, index)
    // expected-error@+1 {{'kitsune.agent' op has 32 threads in a copy for rows of 64 lanes}}
    "kitsune.agent"() ({
    ^bb0(%c: index):
    }) {copies = 1, lanes = 64, registers = 64, sym_name = "a", vector = 4, warps = 1} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @two_copies_of_several_warps(%m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 2>} : (index) -> (index, index, index)
    // expected-error@+1 {{'kitsune.agent' op of 2 warps wants rows of 64 lanes in one copy}}
    "kitsune.agent"() ({
    ^bb0(%c: index):
    }) {copies = 2, lanes = 64, registers = 64, sym_name = "a", vector = 4, warps = 2} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

// expected-error@+2 {{'kitsune.kernel' op ctas must be an integer from 1 to 2147483647, found 0 : i64}}
func.func @no_ctas(%m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 2>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
    }) {copies = 1, registers = 64, sym_name = "a", warps = 4} : () -> ()
  }) {ctas = 0, sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

// expected-error@+2 {{'kitsune.kernel' op single must be said without a value, found 1 : i64}}
func.func @single_tiles_are_said(%m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 2>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
    }) {copies = 1, registers = 64, sym_name = "a", warps = 4} : () -> ()
  }) {single = 1, sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @windows(%x: tensor<*xbf16>) {
  // expected-error@+1 {{'kitsune.windows' op makes a ranked tensor of one, found tensor<*xbf16> and tensor<2x9x192xbf16>}}
  %m = "kitsune.windows"(%x) {dilations = array<i64: 1>, filter = array<i64: 3>, low = array<i64: 1>, places = array<i64: 9>, strides = array<i64: 1>} : (tensor<*xbf16>) -> tensor<2x9x192xbf16>
  return
}

// -----

func.func @windows(%x: tensor<2x?x64xbf16>) {
  // expected-error@+1 {{'kitsune.windows' op takes images of known sizes, or of a count, with a batch and channels, found tensor<2x?x64xbf16>}}
  %m = "kitsune.windows"(%x) {dilations = array<i64: 1>, filter = array<i64: 3>, low = array<i64: 1>, places = array<i64: 9>, strides = array<i64: 1>} : (tensor<2x?x64xbf16>) -> tensor<2x9x192xbf16>
  return
}

// -----

func.func @windows(%x: tensor<2x?x64xbf16>, %n: tensor<?xi8>) {
  // expected-error@+1 {{'kitsune.windows' op of images of open sizes has an attribute upper, and neither sizes nor blocks}}
  %m = "kitsune.windows"(%x, %n) {dilations = array<i64: 1>, filter = array<i64: 3>, low = array<i64: 1>, places = array<i64: -1>, strides = array<i64: 1>} : (tensor<2x?x64xbf16>, tensor<?xi8>) -> tensor<?x192xbf16>
  return
}

// -----

func.func @windows(%x: tensor<2x?x64xbf16>, %n: tensor<?xi8>) {
  // expected-error@+1 {{'kitsune.windows' op makes a matrix of ?x192 elements of bf16, found tensor<2x?x192xbf16>}}
  %m = "kitsune.windows"(%x, %n) {dilations = array<i64: 1>, filter = array<i64: 3>, low = array<i64: 1>, places = array<i64: -1>, strides = array<i64: 1>, upper = array<i64: -1>} : (tensor<2x?x64xbf16>, tensor<?xi8>) -> tensor<2x?x192xbf16>
  return
}

// -----

func.func @windows(%x: tensor<2x9x64xbf16>) {
  // expected-error@+1 {{'kitsune.windows' op has chunks of up to 64 columns, multiples of 16}}
  %m = "kitsune.windows"(%x) {chunk = 24 : i64, dilations = array<i64: 1>, filter = array<i64: 3>, low = array<i64: 1>, places = array<i64: 9>, strides = array<i64: 1>} : (tensor<2x9x64xbf16>) -> tensor<2x9x216xbf16>
  return
}

// -----

func.func @windows(%x: tensor<2x9x64xbf16>) {
  // expected-error@+1 {{'kitsune.windows' op has an attribute low, an array of i64}}
  %m = "kitsune.windows"(%x) {dilations = array<i64: 1>, filter = array<i64: 3>, places = array<i64: 9>, strides = array<i64: 1>} : (tensor<2x9x64xbf16>) -> tensor<2x9x192xbf16>
  return
}

// -----

func.func @windows(%x: tensor<2x9x64xbf16>) {
  // expected-error@+1 {{'kitsune.windows' op has an attribute sizes, an array of i64}}
  %m = "kitsune.windows"(%x) {dilations = array<i64: 1>, filter = array<i64: 3>, low = array<i64: 1>, places = array<i64: 9>, sizes = 9 : i64, strides = array<i64: 1>} : (tensor<2x9x64xbf16>) -> tensor<2x9x192xbf16>
  return
}

// -----

func.func @windows(%x: tensor<2x9x64xbf16>) {
  // expected-error@+1 {{'kitsune.windows' op has both sizes and pitches, or neither}}
  %m = "kitsune.windows"(%x) {dilations = array<i64: 1>, filter = array<i64: 3>, low = array<i64: 1>, places = array<i64: 9>, sizes = array<i64: 9, 64>, strides = array<i64: 1>} : (tensor<2x9x64xbf16>) -> tensor<2x9x192xbf16>
  return
}

// -----

func.func @windows(%x: tensor<2x9x64xbf16>) {
  // expected-error@+1 {{'kitsune.windows' op strides has a number from 1 on for each of 1 dimensions of space}}
  %m = "kitsune.windows"(%x) {dilations = array<i64: 1>, filter = array<i64: 3>, low = array<i64: 1>, places = array<i64: 9>, strides = array<i64: 1, 1>} : (tensor<2x9x64xbf16>) -> tensor<2x9x192xbf16>
  return
}

// -----

func.func @windows(%x: tensor<2x9x64xbf16>) {
  // expected-error@+1 {{'kitsune.windows' op low has a number from 0 on for each of 1 dimensions of space}}
  %m = "kitsune.windows"(%x) {dilations = array<i64: 1>, filter = array<i64: 3>, low = array<i64: -1>, places = array<i64: 9>, strides = array<i64: 1>} : (tensor<2x9x64xbf16>) -> tensor<2x9x192xbf16>
  return
}

// -----

func.func @windows(%x: tensor<2x9x64xbf16>) {
  // expected-error@+1 {{'kitsune.windows' op takes elements of other images that tensor<2x9x64xbf16> does not have}}
  %m = "kitsune.windows"(%x) {dilations = array<i64: 1>, filter = array<i64: 3>, low = array<i64: 1>, pitches = array<i64: 576, 64>, places = array<i64: 9>, sizes = array<i64: 9, 128>, strides = array<i64: 1>} : (tensor<2x9x64xbf16>) -> tensor<2x9x192xbf16>
  return
}

// -----

func.func @windows(%x: tensor<2x9x64xbf16>) {
  // expected-error@+1 {{'kitsune.windows' op makes a matrix of 2x9x192 or 18x192 elements of bf16, found tensor<2x9x64xbf16>}}
  %m = "kitsune.windows"(%x) {dilations = array<i64: 1>, filter = array<i64: 3>, low = array<i64: 1>, places = array<i64: 9>, strides = array<i64: 1>} : (tensor<2x9x64xbf16>) -> tensor<2x9x64xbf16>
  return
}

// -----

func.func @windows(%x: tensor<?x9x64xbf16>) {
  // expected-error@+1 {{'kitsune.windows' op makes a matrix of ?x9x192 elements of bf16, found tensor<18x192xbf16>}}
  %m = "kitsune.windows"(%x) {dilations = array<i64: 1>, filter = array<i64: 3>, low = array<i64: 1>, places = array<i64: 9>, strides = array<i64: 1>} : (tensor<?x9x64xbf16>) -> tensor<18x192xbf16>
  return
}

// -----

func.func @ordered(%keys: tensor<4x1xi64>, %count: index) {
  // expected-error@+1 {{'kitsune.order' op takes a tensor of one dimension, found tensor<4x1xi64>}}
  %rows, %places = "kitsune.order"(%keys, %count) : (tensor<4x1xi64>, index) -> (tensor<4xi32>, tensor<4xi32>)
  return
}

// -----

func.func @ordered(%keys: tensor<4xi16>, %count: index) {
  // expected-error@+1 {{'kitsune.order' op takes keys of 32 or 64 bits, found tensor<4xi16>}}
  %rows, %places = "kitsune.order"(%keys, %count) : (tensor<4xi16>, index) -> (tensor<4xi32>, tensor<4xi32>)
  return
}

// -----

func.func @ordered(%keys: tensor<4xi64>, %count: index) {
  // expected-error@+1 {{'kitsune.order' op makes two tensors of type tensor<4xi32>, found tensor<4xi32> and tensor<4xi64>}}
  %rows, %places = "kitsune.order"(%keys, %count) : (tensor<4xi64>, index) -> (tensor<4xi32>, tensor<4xi64>)
  return
}

// -----

func.func @ordered(%keys: tensor<4xi64>, %count: index, %a: tensor<4xi64>, %b: tensor<4xi64>) {
  // expected-error@+1 {{'kitsune.order' op carries 8 bytes a row besides the keys, found 2 vectors}}
  %rows, %places, %moved:3 = "kitsune.order"(%keys, %count, %keys, %a, %b) : (tensor<4xi64>, index, tensor<4xi64>, tensor<4xi64>, tensor<4xi64>) -> (tensor<4xi32>, tensor<4xi32>, tensor<4xi64>, tensor<4xi64>, tensor<4xi64>)
  return
}

// -----

func.func @ordered(%keys: tensor<4xi64>, %count: index, %with: tensor<4xi32>) {
  // expected-error@+1 {{'kitsune.order' op carries vectors of type tensor<4xi64> and gives as many, found tensor<4xi32> and none}}
  %rows, %places = "kitsune.order"(%keys, %count, %with) : (tensor<4xi64>, index, tensor<4xi32>) -> (tensor<4xi32>, tensor<4xi32>)
  return
}

// -----

func.func @placed(%x: tensor<64x8x2xf32>, %to: tensor<64xi32>) {
  "kitsune.pipeline"() ({
    "kitsune.stage"() ({
      %tile = "kitsune.load"(%x) : (tensor<64x8x2xf32>) -> tensor<?x8x2xf32>
      %rows = "kitsune.load"(%to) : (tensor<64xi32>) -> tensor<?xi32>
      // expected-error@+1 {{'kitsune.place' op places tiles of two dimensions, found tensor<?x8x2xf32>}}
      "kitsune.place"(%tile, %rows) {index = 0 : i64} : (tensor<?x8x2xf32>, tensor<?xi32>) -> ()
    }) {kind = "simt", sym_name = "move"} : () -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @placed(%x: tensor<64x8xf32>, %to: tensor<64xi64>) {
  "kitsune.pipeline"() ({
    "kitsune.stage"() ({
      %tile = "kitsune.load"(%x) : (tensor<64x8xf32>) -> tensor<?x8xf32>
      %rows = "kitsune.load"(%to) : (tensor<64xi64>) -> tensor<?xi64>
      // expected-error@+1 {{'kitsune.place' op takes numbers of 32 bits as rows, found tensor<?xi64>}}
      "kitsune.place"(%tile, %rows) {index = 0 : i64} : (tensor<?x8xf32>, tensor<?xi64>) -> ()
    }) {kind = "simt", sym_name = "move"} : () -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @placed(%x: tensor<64x8xf32>, %to: tensor<64x2xi32>) {
  "kitsune.pipeline"() ({
    "kitsune.stage"() ({
      %tile = "kitsune.load"(%x) : (tensor<64x8xf32>) -> tensor<?x8xf32>
      %rows = "kitsune.load"(%to) : (tensor<64x2xi32>) -> tensor<?x2xi32>
      // expected-error@+1 {{'kitsune.place' op wants a row for each of its tile's, found tensor<?x2xi32> for tensor<?x8xf32>}}
      "kitsune.place"(%tile, %rows) {index = 0 : i64} : (tensor<?x8xf32>, tensor<?x2xi32>) -> ()
    }) {kind = "simt", sym_name = "move"} : () -> ()
  }) {sym_name = "p"} : () -> !kitsune.outputs
  return
}

// -----

func.func @sums_over_other_things(%A: tensor<64x64xbf16>, %B: tensor<64xbf16>, %F: tensor<100xf32>, %a: !kitsune.acc<tensor<64x64xf32>>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    %v = "kitsune.alloc_ring"() {box = "dense", share = "all", space = "smem", sym_name = "v"} : () -> !kitsune.ring<tensor<1x64xbf16>, 1 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      %d = "kitsune.acquire"(%v) : (!kitsune.ring<tensor<1x64xbf16>, 1 : i64>) -> !kitsune.slot<tensor<1x64xbf16>>
      // expected-error@+1 {{'kitsune.sums' op takes over the registers of tiles, found !kitsune.slot<tensor<64x64xbf16>>}}
      %z = "kitsune.sums"(%s) : (!kitsune.slot<tensor<64x64xbf16>>) -> !kitsune.acc<tensor<64x64xf32>>
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @sums_over_too_few(%A: tensor<64x64xbf16>, %B: tensor<64xbf16>, %F: tensor<100xf32>, %a: !kitsune.acc<tensor<64x64xf32>>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    %v = "kitsune.alloc_ring"() {box = "dense", share = "all", space = "smem", sym_name = "v"} : () -> !kitsune.ring<tensor<1x64xbf16>, 1 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      %d = "kitsune.acquire"(%v) : (!kitsune.ring<tensor<1x64xbf16>, 1 : i64>) -> !kitsune.slot<tensor<1x64xbf16>>
      // expected-error@+1 {{'kitsune.sums' op takes over the registers of 64 elements for 4096 sums}}
      %z = "kitsune.sums"(%B) : (tensor<64xbf16>) -> !kitsune.acc<tensor<64x64xf32>>
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @product_of_a_number(%A: tensor<64x64xbf16>, %B: tensor<64xbf16>, %F: tensor<100xf32>, %a: !kitsune.acc<tensor<64x64xf32>>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    %v = "kitsune.alloc_ring"() {box = "dense", share = "all", space = "smem", sym_name = "v"} : () -> !kitsune.ring<tensor<1x64xbf16>, 1 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      %d = "kitsune.acquire"(%v) : (!kitsune.ring<tensor<1x64xbf16>, 1 : i64>) -> !kitsune.slot<tensor<1x64xbf16>>
      // expected-error@+1 {{'kitsune.product' op multiplies a slot or a tile in registers, found index}}
      %u, %e = "kitsune.product"(%a, %m, %s) {engine = "wgmma"} : (!kitsune.acc<tensor<64x64xf32>>, index, !kitsune.slot<tensor<64x64xbf16>>) -> (!kitsune.acc<tensor<64x64xf32>>, !kitsune.token)
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @product_of_a_wide_tile(%A: tensor<64x64xbf16>, %B: tensor<64xbf16>, %F: tensor<100xf32>, %a: !kitsune.acc<tensor<64x64xf32>>, %w: !kitsune.slot<tensor<64x32xbf16>>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    %v = "kitsune.alloc_ring"() {box = "dense", share = "all", space = "smem", sym_name = "v"} : () -> !kitsune.ring<tensor<1x64xbf16>, 1 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      %d = "kitsune.acquire"(%v) : (!kitsune.ring<tensor<1x64xbf16>, 1 : i64>) -> !kitsune.slot<tensor<1x64xbf16>>
      // expected-error@+1 {{'kitsune.product' op multiplies tiles of one type and width, found tensor<64x64xbf16> and tensor<64x32xbf16>}}
      %u, %e = "kitsune.product"(%a, %A, %w) {engine = "wgmma"} : (!kitsune.acc<tensor<64x64xf32>>, tensor<64x64xbf16>, !kitsune.slot<tensor<64x32xbf16>>) -> (!kitsune.acc<tensor<64x64xf32>>, !kitsune.token)
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @part_of_a_row(%A: tensor<64x64xbf16>, %B: tensor<64xbf16>, %F: tensor<100xf32>, %a: !kitsune.acc<tensor<64x64xf32>>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    %v = "kitsune.alloc_ring"() {box = "dense", share = "all", space = "smem", sym_name = "v"} : () -> !kitsune.ring<tensor<1x64xbf16>, 1 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      %d = "kitsune.acquire"(%v) : (!kitsune.ring<tensor<1x64xbf16>, 1 : i64>) -> !kitsune.slot<tensor<1x64xbf16>>
      // expected-error@+1 {{'kitsune.part' op takes columns of a tile of two dimensions, found tensor<64xbf16> and tensor<8xbf16>}}
      %t = "kitsune.part"(%B) {first = 0 : i64} : (tensor<64xbf16>) -> tensor<8xbf16>
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @part_before_the_tile(%A: tensor<64x64xbf16>, %B: tensor<64xbf16>, %F: tensor<100xf32>, %a: !kitsune.acc<tensor<64x64xf32>>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    %v = "kitsune.alloc_ring"() {box = "dense", share = "all", space = "smem", sym_name = "v"} : () -> !kitsune.ring<tensor<1x64xbf16>, 1 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      %d = "kitsune.acquire"(%v) : (!kitsune.ring<tensor<1x64xbf16>, 1 : i64>) -> !kitsune.slot<tensor<1x64xbf16>>
      // expected-error@+1 {{'kitsune.part' op first must be an integer from 0 to 2147483647, found -8 : i64}}
      %t = "kitsune.part"(%A) {first = -8 : i64} : (tensor<64x64xbf16>) -> tensor<64x8xbf16>
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @part_of_other_elements(%A: tensor<64x64xbf16>, %B: tensor<64xbf16>, %F: tensor<100xf32>, %a: !kitsune.acc<tensor<64x64xf32>>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    %v = "kitsune.alloc_ring"() {box = "dense", share = "all", space = "smem", sym_name = "v"} : () -> !kitsune.ring<tensor<1x64xbf16>, 1 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      %d = "kitsune.acquire"(%v) : (!kitsune.ring<tensor<1x64xbf16>, 1 : i64>) -> !kitsune.slot<tensor<1x64xbf16>>
      // expected-error@+1 {{'kitsune.part' op gives columns of tensor<64x64xbf16> as tensor<64x8xf32>}}
      %t = "kitsune.part"(%A) {first = 0 : i64} : (tensor<64x64xbf16>) -> tensor<64x8xf32>
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @part_of_a_block(%A: tensor<64x64xbf16>, %B: tensor<64xbf16>, %F: tensor<100xf32>, %a: !kitsune.acc<tensor<64x64xf32>>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    %v = "kitsune.alloc_ring"() {box = "dense", share = "all", space = "smem", sym_name = "v"} : () -> !kitsune.ring<tensor<1x64xbf16>, 1 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      %d = "kitsune.acquire"(%v) : (!kitsune.ring<tensor<1x64xbf16>, 1 : i64>) -> !kitsune.slot<tensor<1x64xbf16>>
      // expected-error@+1 {{'kitsune.part' op gives columns 8 to 20 of tensor<64x64xbf16>; wants whole blocks of 8}}
      %t = "kitsune.part"(%A) {first = 8 : i64} : (tensor<64x64xbf16>) -> tensor<64x12xbf16>
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @part_beyond_the_tile(%A: tensor<64x64xbf16>, %B: tensor<64xbf16>, %F: tensor<100xf32>, %a: !kitsune.acc<tensor<64x64xf32>>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    %v = "kitsune.alloc_ring"() {box = "dense", share = "all", space = "smem", sym_name = "v"} : () -> !kitsune.ring<tensor<1x64xbf16>, 1 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      %d = "kitsune.acquire"(%v) : (!kitsune.ring<tensor<1x64xbf16>, 1 : i64>) -> !kitsune.slot<tensor<1x64xbf16>>
      // expected-error@+1 {{'kitsune.part' op gives columns 56 to 72 of tensor<64x64xbf16>; wants whole blocks of 8}}
      %t = "kitsune.part"(%A) {first = 56 : i64} : (tensor<64x64xbf16>) -> tensor<64x16xbf16>
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @select_of_two_types(%A: tensor<64x64xbf16>, %B: tensor<64xbf16>, %F: tensor<100xf32>, %a: !kitsune.acc<tensor<64x64xf32>>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    %v = "kitsune.alloc_ring"() {box = "dense", share = "all", space = "smem", sym_name = "v"} : () -> !kitsune.ring<tensor<1x64xbf16>, 1 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      %d = "kitsune.acquire"(%v) : (!kitsune.ring<tensor<1x64xbf16>, 1 : i64>) -> !kitsune.slot<tensor<1x64xbf16>>
      // expected-error@+1 {{expected 'tensor<64xbf16>' but got 'tensor<64x64xbf16>'}}
      %t = "kitsune.select"(%m, %B, %A) : (index, tensor<64xbf16>, tensor<64x64xbf16>) -> tensor<64xbf16>
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @select_of_nothing(%A: tensor<64x64xbf16>, %B: tensor<64xbf16>, %F: tensor<100xf32>, %a: !kitsune.acc<tensor<64x64xf32>>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    %v = "kitsune.alloc_ring"() {box = "dense", share = "all", space = "smem", sym_name = "v"} : () -> !kitsune.ring<tensor<1x64xbf16>, 1 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      %d = "kitsune.acquire"(%v) : (!kitsune.ring<tensor<1x64xbf16>, 1 : i64>) -> !kitsune.slot<tensor<1x64xbf16>>
      // expected-error@+1 {{'kitsune.select' op gives tensor<64xbf16>, one of nothing}}
      %t = "kitsune.select"(%m) : (index) -> tensor<64xbf16>
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @more_rows_than_a_slot(%A: tensor<64x64xbf16>, %B: tensor<64xbf16>, %F: tensor<100xf32>, %a: !kitsune.acc<tensor<64x64xf32>>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    %v = "kitsune.alloc_ring"() {box = "dense", share = "all", space = "smem", sym_name = "v"} : () -> !kitsune.ring<tensor<1x64xbf16>, 1 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      %d = "kitsune.acquire"(%v) : (!kitsune.ring<tensor<1x64xbf16>, 1 : i64>) -> !kitsune.slot<tensor<1x64xbf16>>
      // expected-error@+1 {{'kitsune.acquire' op gives a slot of type !kitsune.slot<tensor<72x64xbf16>>, of a ring of type !kitsune.ring<tensor<64x64xbf16>, 2 : i64>}}
      %t = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<72x64xbf16>>
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @copy_into_boxes(%A: tensor<64x64xbf16>, %B: tensor<64xbf16>, %F: tensor<100xf32>, %a: !kitsune.acc<tensor<64x64xf32>>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    %v = "kitsune.alloc_ring"() {box = "dense", share = "all", space = "smem", sym_name = "v"} : () -> !kitsune.ring<tensor<1x64xbf16>, 1 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      %d = "kitsune.acquire"(%v) : (!kitsune.ring<tensor<1x64xbf16>, 1 : i64>) -> !kitsune.slot<tensor<1x64xbf16>>
      // expected-error@+1 {{'kitsune.copy' op has an attribute into where slots are dense, and there alone, found ring 'x'}}
      %t = "kitsune.copy"(%s, %B) {dims = array<i64>, engine = "tma", into = 0 : i64} : (!kitsune.slot<tensor<64x64xbf16>>, tensor<64xbf16>) -> !kitsune.token
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @copy_of_a_box_into_elements(%A: tensor<64x64xbf16>, %B: tensor<64xbf16>, %F: tensor<100xf32>, %a: !kitsune.acc<tensor<64x64xf32>>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    %v = "kitsune.alloc_ring"() {box = "dense", share = "all", space = "smem", sym_name = "v"} : () -> !kitsune.ring<tensor<1x64xbf16>, 1 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      %d = "kitsune.acquire"(%v) : (!kitsune.ring<tensor<1x64xbf16>, 1 : i64>) -> !kitsune.slot<tensor<1x64xbf16>>
      // expected-error@+1 {{'kitsune.copy' op has an attribute into where slots are dense, and there alone, found ring 'v'}}
      %t = "kitsune.copy"(%d, %B, %m) {dims = array<i64: 0>, engine = "tma"} : (!kitsune.slot<tensor<1x64xbf16>>, tensor<64xbf16>, index) -> !kitsune.token
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @copy_of_other_elements_into_a_dense_slot(%A: tensor<64x64xbf16>, %B: tensor<64xbf16>, %F: tensor<100xf32>, %a: !kitsune.acc<tensor<64x64xf32>>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    %v = "kitsune.alloc_ring"() {box = "dense", share = "all", space = "smem", sym_name = "v"} : () -> !kitsune.ring<tensor<1x64xbf16>, 1 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      %d = "kitsune.acquire"(%v) : (!kitsune.ring<tensor<1x64xbf16>, 1 : i64>) -> !kitsune.slot<tensor<1x64xbf16>>
      // expected-error@+1 {{'kitsune.copy' op copies all of a tensor whose elements are the slot's, found tensor<100xf32> for tensor<1x64xbf16>}}
      %t = "kitsune.copy"(%d, %F) {dims = array<i64>, engine = "tma", into = 0 : i64} : (!kitsune.slot<tensor<1x64xbf16>>, tensor<100xf32>) -> !kitsune.token
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @copy_to_an_odd_place(%A: tensor<64x64xbf16>, %B: tensor<64xbf16>, %F: tensor<100xf32>, %a: !kitsune.acc<tensor<64x64xf32>>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    %v = "kitsune.alloc_ring"() {box = "dense", share = "all", space = "smem", sym_name = "v"} : () -> !kitsune.ring<tensor<1x64xbf16>, 1 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      %d = "kitsune.acquire"(%v) : (!kitsune.ring<tensor<1x64xbf16>, 1 : i64>) -> !kitsune.slot<tensor<1x64xbf16>>
      // expected-error@+1 {{'kitsune.copy' op copies multiples of 16 bytes to such places, found tensor<64xbf16>}}
      %t = "kitsune.copy"(%d, %B) {dims = array<i64>, engine = "tma", into = 4 : i64} : (!kitsune.slot<tensor<1x64xbf16>>, tensor<64xbf16>) -> !kitsune.token
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @copy_beyond_a_dense_slot(%A: tensor<64x64xbf16>, %B: tensor<64xbf16>, %F: tensor<100xf32>, %a: !kitsune.acc<tensor<64x64xf32>>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    %v = "kitsune.alloc_ring"() {box = "dense", share = "all", space = "smem", sym_name = "v"} : () -> !kitsune.ring<tensor<1x64xbf16>, 1 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      %d = "kitsune.acquire"(%v) : (!kitsune.ring<tensor<1x64xbf16>, 1 : i64>) -> !kitsune.slot<tensor<1x64xbf16>>
      // expected-error@+1 {{'kitsune.copy' op copies tensor<64xbf16> beyond the end of tensor<1x64xbf16>}}
      %t = "kitsune.copy"(%d, %B) {dims = array<i64>, engine = "tma", into = 8 : i64} : (!kitsune.slot<tensor<1x64xbf16>>, tensor<64xbf16>) -> !kitsune.token
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @read_of_a_part_of_a_slot_of_boxes(%A: tensor<64x64xbf16>, %B: tensor<64xbf16>, %F: tensor<100xf32>, %a: !kitsune.acc<tensor<64x64xf32>>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    %v = "kitsune.alloc_ring"() {box = "dense", share = "all", space = "smem", sym_name = "v"} : () -> !kitsune.ring<tensor<1x64xbf16>, 1 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      %d = "kitsune.acquire"(%v) : (!kitsune.ring<tensor<1x64xbf16>, 1 : i64>) -> !kitsune.slot<tensor<1x64xbf16>>
      // expected-error@+1 {{'kitsune.read' op gives all of a slot of 16-bit elements, found tensor<8xbf16> of tensor<64x64xbf16>}}
      %t = "kitsune.read"(%s, %m) : (!kitsune.slot<tensor<64x64xbf16>>, index) -> tensor<8xbf16>
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @read_of_a_slot_of_columns(%A: tensor<64x64xbf16>, %B: tensor<64xbf16>, %F: tensor<100xf32>, %a: !kitsune.acc<tensor<64x64xf32>>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "columns", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    %v = "kitsune.alloc_ring"() {box = "dense", share = "all", space = "smem", sym_name = "v"} : () -> !kitsune.ring<tensor<1x64xbf16>, 1 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      %d = "kitsune.acquire"(%v) : (!kitsune.ring<tensor<1x64xbf16>, 1 : i64>) -> !kitsune.slot<tensor<1x64xbf16>>
      // expected-error@+1 {{'kitsune.read' op reads tensors, rows in boxes and dense slots, ring 'x' has columns}}
      %t = "kitsune.read"(%s) : (!kitsune.slot<tensor<64x64xbf16>>) -> tensor<64x64xbf16>
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @read_of_a_slot_by_two_copies(%A: tensor<64x64xbf16>, %B: tensor<64xbf16>, %F: tensor<100xf32>, %a: !kitsune.acc<tensor<64x64xf32>>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    %v = "kitsune.alloc_ring"() {box = "dense", share = "all", space = "smem", sym_name = "v"} : () -> !kitsune.ring<tensor<1x64xbf16>, 1 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      %d = "kitsune.acquire"(%v) : (!kitsune.ring<tensor<1x64xbf16>, 1 : i64>) -> !kitsune.slot<tensor<1x64xbf16>>
      // expected-error@+1 {{'kitsune.read' op gives all of a slot to an agent of one copy}}
      %t = "kitsune.read"(%s) : (!kitsune.slot<tensor<64x64xbf16>>) -> tensor<64x64xbf16>
    }) {copies = 2, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @read_of_other_elements_of_a_slot(%A: tensor<64x64xbf16>, %B: tensor<64xbf16>, %F: tensor<100xf32>, %a: !kitsune.acc<tensor<64x64xf32>>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    %v = "kitsune.alloc_ring"() {box = "dense", share = "all", space = "smem", sym_name = "v"} : () -> !kitsune.ring<tensor<1x64xbf16>, 1 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      %d = "kitsune.acquire"(%v) : (!kitsune.ring<tensor<1x64xbf16>, 1 : i64>) -> !kitsune.slot<tensor<1x64xbf16>>
      // expected-error@+1 {{'kitsune.read' op gives elements of tensor<1x64xbf16> as tensor<8xf32>}}
      %t = "kitsune.read"(%d, %m) : (!kitsune.slot<tensor<1x64xbf16>>, index) -> tensor<8xf32>
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @read_of_more_than_a_slot(%A: tensor<64x64xbf16>, %B: tensor<64xbf16>, %F: tensor<100xf32>, %a: !kitsune.acc<tensor<64x64xf32>>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    %v = "kitsune.alloc_ring"() {box = "dense", share = "all", space = "smem", sym_name = "v"} : () -> !kitsune.ring<tensor<1x64xbf16>, 1 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      %d = "kitsune.acquire"(%v) : (!kitsune.ring<tensor<1x64xbf16>, 1 : i64>) -> !kitsune.slot<tensor<1x64xbf16>>
      // expected-error@+1 {{'kitsune.read' op gives tensor<72xbf16> from one place on of tensor<1x64xbf16>, found 1 places}}
      %t = "kitsune.read"(%d, %m) : (!kitsune.slot<tensor<1x64xbf16>>, index) -> tensor<72xbf16>
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @dense_ring_of_rows(%m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    // expected-error@+1 {{'kitsune.alloc_ring' op holds dense tiles of one row for all copies, found tensor<2x64xbf16>}}
    %x = "kitsune.alloc_ring"() {box = "dense", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<2x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @part_without_agent(%A: tensor<64x64xbf16>) {
  // expected-error@+1 {{'kitsune.part' op stands in no kitsune.agent}}
  %t = "kitsune.part"(%A) {first = 0 : i64} : (tensor<64x64xbf16>) -> tensor<64x8xbf16>
  return
}

// -----

func.func @select_without_agent(%A: tensor<64x64xbf16>, %m: index) {
  // expected-error@+1 {{'kitsune.select' op stands in no kitsune.agent}}
  %t = "kitsune.select"(%m, %A) : (index, tensor<64x64xbf16>) -> tensor<64x64xbf16>
  return
}

// -----

func.func @write_by_an_engine_that_is_not(%A: tensor<64x64xbf16>, %B: tensor<64xbf16>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.write' op engine must be tma or warps, found "bulk"}}
      "kitsune.write"(%A, %m, %m) {dims = array<i64: 0, 1>, engine = "bulk", index = 0 : i64} : (tensor<64x64xbf16>, index, index) -> ()
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @write_of_a_part_of_a_box(%A: tensor<64x176xbf16>, %m: index, %c0: index) -> tensor<64x352xbf16> {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.write' op is stored in boxes of 128 bytes of each row, found 176 of 352 columns of bf16}}
      "kitsune.write"(%A, %m, %c0) {dims = array<i64: 0, 1>, engine = "tma", index = 0 : i64} : (tensor<64x176xbf16>, index, index) -> ()
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  %r = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<64x352xbf16>
  return %r : tensor<64x352xbf16>
}

// -----

func.func @write_of_a_row_by_an_engine(%A: tensor<64x64xbf16>, %B: tensor<64xbf16>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.write' op has an engine for tiles of numbers along both dimensions, found tensor<64xbf16>}}
      "kitsune.write"(%B, %m) {dims = array<i64: 0>, engine = "tma", index = 0 : i64} : (tensor<64xbf16>, index) -> ()
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @rank_outside() {
  // expected-error@+1 {{'kitsune.rank' op stands in no kitsune.agent}}
  %r = "kitsune.rank"() : () -> index
  return
}

// -----

func.func @meet_outside(%A: tensor<64x64xf32>) {
  // expected-error@+1 {{'kitsune.meet' op stands in no kitsune.agent}}
  %t = "kitsune.meet"(%A) : (tensor<64x64xf32>) -> tensor<64x32xf32>
  return
}

// -----

func.func @meet_alone(%A: tensor<64x64xf32>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.meet' op stands in a kitsune.kernel whose CTAs work alone}}
      %t = "kitsune.meet"(%A) : (tensor<64x64xf32>) -> tensor<64x32xf32>
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @meet_of_vectors(%A: tensor<64xf32>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.meet' op adds up tiles of two dimensions, found tensor<64xf32> and tensor<32xf32>}}
      %t = "kitsune.meet"(%A) : (tensor<64xf32>) -> tensor<32xf32>
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {cluster = 2, sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @meet_of_words(%A: tensor<64x64xbf16>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.meet' op adds up tiles of f32, found tensor<64x64xbf16> and tensor<64x32xbf16>}}
      %t = "kitsune.meet"(%A) : (tensor<64x64xbf16>) -> tensor<64x32xbf16>
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {cluster = 2, sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @meet_of_other_shares(%A: tensor<64x64xf32>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.meet' op gives whole blocks of 8 columns, one of 2 shares of tensor<64x64xf32>, found tensor<64x16xf32>}}
      %t = "kitsune.meet"(%A) : (tensor<64x64xf32>) -> tensor<64x16xf32>
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {cluster = 2, sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @send_alone(%A: tensor<64x64xbf16>, %F: tensor<64xf32>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "own", space = "dsmem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.send' op fills a ring of each of the 0 other CTAs, found 1}}
      "kitsune.send"(%x, %A) {operandSegmentSizes = array<i32: 1, 1>} : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>, tensor<64x64xbf16>) -> ()
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {cluster = 1, sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @send_to_one_of_three(%A: tensor<64x64xbf16>, %F: tensor<64xf32>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "own", space = "dsmem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.send' op fills a ring of each of the 3 other CTAs, found 1}}
      "kitsune.send"(%x, %A) {operandSegmentSizes = array<i32: 1, 1>} : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>, tensor<64x64xbf16>) -> ()
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {cluster = 4, sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @send_to_the_own_ring(%A: tensor<64x64xbf16>, %F: tensor<64xf32>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "own", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.send' op fills rings in dsmem, ring 'x' is not}}
      "kitsune.send"(%x, %A) {operandSegmentSizes = array<i32: 1, 1>} : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>, tensor<64x64xbf16>) -> ()
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {cluster = 2, sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @send_of_other_elements(%A: tensor<64x64xbf16>, %F: tensor<64xf32>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "own", space = "dsmem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.send' op sends a tile of numbers as those of tensor<64x64xbf16>, found tensor<64xf32>}}
      "kitsune.send"(%x, %F) {operandSegmentSizes = array<i32: 1, 1>} : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>, tensor<64xf32>) -> ()
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {cluster = 2, sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @send_of_too_many_columns(%A: tensor<64x64xbf16>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "own", space = "dsmem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x32xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.send' op sends tensor<64x64xbf16> to a slot of tensor<64x32xbf16>, of 1 copies}}
      "kitsune.send"(%x, %A) {operandSegmentSizes = array<i32: 1, 1>} : (!kitsune.ring<tensor<64x32xbf16>, 2 : i64>, tensor<64x64xbf16>) -> ()
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {cluster = 2, sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @send_to_an_argument(%A: tensor<64x64xbf16>, %x: !kitsune.ring<tensor<64x64xbf16>, 2 : i64>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.send' op takes its rings straight from kitsune.alloc_rings}}
      "kitsune.send"(%x, %A) {operandSegmentSizes = array<i32: 1, 1>} : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>, tensor<64x64xbf16>) -> ()
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {cluster = 2, sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @total_alone(%A: tensor<64x64xbf16>, %F: tensor<64xf32>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.total' op stands in a kitsune.kernel whose CTAs work alone}}
      %t = "kitsune.total"(%F) {join = "arith.addf"} : (tensor<64xf32>) -> tensor<64xf32>
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {cluster = 1, sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @total_of_a_tile(%A: tensor<64x64xbf16>, %F: tensor<64xf32>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.total' op joins one f32 a row, found tensor<64x64xbf16> and tensor<64x64xbf16>}}
      %t = "kitsune.total"(%A) {join = "arith.addf"} : (tensor<64x64xbf16>) -> tensor<64x64xbf16>
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {cluster = 2, sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @total_by_subtraction(%A: tensor<64x64xbf16>, %F: tensor<64xf32>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.total' op join must be one of arith.addf, arith.mulf, arith.maximumf, arith.maxnumf, arith.minimumf, arith.minnumf, found "arith.subf"}}
      %t = "kitsune.total"(%F) {join = "arith.subf"} : (tensor<64xf32>) -> tensor<64xf32>
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {cluster = 2, sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @acquire_of_others_slots(%A: tensor<64x64xbf16>, %F: tensor<64xf32>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "own", space = "dsmem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.acquire' op opens a slot of ring 'x', which kitsune.send or kitsune.collect alone does}}
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {cluster = 2, sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @send_outside(%A: tensor<64x64xbf16>, %m: index) {
  // expected-error@+1 {{'kitsune.total' op stands in no kitsune.agent}}
  %t = "kitsune.total"(%A) {join = "arith.addf"} : (tensor<64x64xbf16>) -> tensor<64x64xbf16>
  return
}

// -----

func.func @a_ring_of_others_for_all(%A: tensor<64x64xbf16>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    // expected-error@+1 {{'kitsune.alloc_ring' op has tiles of other CTAs as rows that are each copy's own}}
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "dsmem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {cluster = 2, sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @a_cluster_of_none(%A: tensor<64x64xf32>, %m: index) {
  // expected-error@+1 {{'kitsune.kernel' op cluster must be an integer from 1 to 2147483647, found 0}}
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {cluster = 0, sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @stow_in_a_ring_of_all(%A: tensor<64x64xbf16>, %F: tensor<64x64xf32>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x32xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.stow' op wants rows of a ring that is each copy's own, ring 'x' is not}}
      %s = "kitsune.stow"(%x, %A) : (!kitsune.ring<tensor<64x32xbf16>, 2 : i64>, tensor<64x64xbf16>) -> !kitsune.slot<tensor<64x64xbf16>>
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @stow_of_other_elements(%A: tensor<64x64xbf16>, %F: tensor<64x64xf32>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "own", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x32xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.stow' op stows a tile of numbers as those of tensor<64x32xbf16>, found tensor<64x64xf32>}}
      %s = "kitsune.stow"(%x, %F) : (!kitsune.ring<tensor<64x32xbf16>, 2 : i64>, tensor<64x64xf32>) -> !kitsune.slot<tensor<64x64xf32>>
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @stow_as_another_slot(%A: tensor<64x64xbf16>, %F: tensor<64x64xf32>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "own", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x32xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.stow' op stows tensor<64x64xbf16> as a slot of tensor<64x32xbf16>, of 1 copies}}
      %s = "kitsune.stow"(%x, %A) : (!kitsune.ring<tensor<64x32xbf16>, 2 : i64>, tensor<64x64xbf16>) -> !kitsune.slot<tensor<64x32xbf16>>
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @stow_of_too_many_columns(%A: tensor<64x64xbf16>, %F: tensor<64x64xf32>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "own", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x32xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.stow' op stows tensor<64x64xbf16> in a slot of tensor<64x32xbf16>, of 1 copies}}
      %s = "kitsune.stow"(%x, %A) : (!kitsune.ring<tensor<64x32xbf16>, 2 : i64>, tensor<64x64xbf16>) -> !kitsune.slot<tensor<64x64xbf16>>
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @wait_for_what_is_stowed(%A: tensor<64x64xbf16>, %F: tensor<64x64xf32>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "own", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x32xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.wait' op opens a slot of ring 'x', which kitsune.stow alone does}}
      %s = "kitsune.wait"(%x) : (!kitsune.ring<tensor<64x32xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x32xbf16>>
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @stow_in_what_is_no_ring(%A: tensor<64x64xbf16>, %x: !kitsune.ring<tensor<64x64xbf16>, 2 : i64>) {
  // expected-error@+1 {{'kitsune.stow' op takes its ring straight from a kitsune.alloc_ring}}
  %s = "kitsune.stow"(%x, %A) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>, tensor<64x64xbf16>) -> !kitsune.slot<tensor<64x64xbf16>>
  return
}

// -----

func.func @stow_outside_agents(%A: tensor<64x64xbf16>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "own", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    // expected-error@+1 {{'kitsune.stow' op stands in no kitsune.agent}}
    %s = "kitsune.stow"(%x, %A) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>, tensor<64x64xbf16>) -> !kitsune.slot<tensor<64x64xbf16>>
    "kitsune.agent"() ({
    ^bb0(%c: index):
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @spread_of_a_row(%A: tensor<64x64xbf16>, %B: tensor<64xbf16>, %D: tensor<64x64xf64>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.spread' op gives the tile of two dimensions that it takes, found tensor<64xbf16>, tensor<64xbf16>}}
      %s = "kitsune.spread"(%B) {columns = array<i64: 0>} : (tensor<64xbf16>) -> tensor<64xbf16>
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @spread_as_another_tile(%A: tensor<64x64xbf16>, %B: tensor<64xbf16>, %D: tensor<64x64xf64>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.spread' op gives the tile of two dimensions that it takes, found tensor<64x64xbf16>, tensor<64x1xbf16>}}
      %s = "kitsune.spread"(%A) {columns = array<i64: 0>} : (tensor<64x64xbf16>) -> tensor<64x1xbf16>
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @spread_of_wide_elements(%A: tensor<64x64xbf16>, %B: tensor<64xbf16>, %D: tensor<64x64xf64>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.spread' op spreads elements of 32 bits or fewer, found f64}}
      %s = "kitsune.spread"(%D) {columns = array<i64: 0>} : (tensor<64x64xf64>) -> tensor<64x64xf64>
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @spread_of_nothing(%A: tensor<64x64xbf16>, %B: tensor<64xbf16>, %D: tensor<64x64xf64>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.spread' op has an attribute columns, an array of i64}}
      %s = "kitsune.spread"(%A) : (tensor<64x64xbf16>) -> tensor<64x64xbf16>
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @spread_beyond_the_tile(%A: tensor<64x64xbf16>, %B: tensor<64xbf16>, %D: tensor<64x64xf64>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.spread' op spreads columns of tensor<64x64xbf16>, found [3, 64]}}
      %s = "kitsune.spread"(%A) {columns = array<i64: 3, 64>} : (tensor<64x64xbf16>) -> tensor<64x64xbf16>
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @spread_outside_agents(%A: tensor<64x64xbf16>) {
  // expected-error@+1 {{'kitsune.spread' op stands in no kitsune.agent}}
  %s = "kitsune.spread"(%A) {columns = array<i64: 0>} : (tensor<64x64xbf16>) -> tensor<64x64xbf16>
  return
}

// -----

func.func @rows_of_a_row(%A: tensor<64x64xbf16>, %F: tensor<64x64xf32>, %I: tensor<64xi32>, %J: tensor<8xi32>, %m: index) -> tensor<100x64xbf16> {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.write_rows' op writes rows of a tile of two dimensions, found tensor<64xi32>}}
      "kitsune.write_rows"(%I, %I, %m, %m, %m) {index = 0} : (tensor<64xi32>, tensor<64xi32>, index, index, index) -> ()
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  %y = "kitsune.result"(%p) {index = 0} : (!kitsune.outputs) -> tensor<100x64xbf16>
  return %y : tensor<100x64xbf16>
}

// -----

func.func @added_rows_of_16_bits(%A: tensor<64x64xbf16>, %F: tensor<64x64xf32>, %I: tensor<64xi32>, %J: tensor<8xi32>, %m: index) -> tensor<100x64xbf16> {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.write_rows' op adds rows of f32, found tensor<64x64xbf16>}}
      "kitsune.write_rows"(%A, %I, %m, %m, %m) {adds, index = 0} : (tensor<64x64xbf16>, tensor<64xi32>, index, index, index) -> ()
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  %y = "kitsune.result"(%p) {index = 0} : (!kitsune.outputs) -> tensor<100x64xbf16>
  return %y : tensor<100x64xbf16>
}

// -----

func.func @rows_without_numbers(%A: tensor<64x64xbf16>, %F: tensor<64x64xf32>, %I: tensor<64xi32>, %J: tensor<8xi32>, %m: index) -> tensor<100x64xbf16> {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.write_rows' op wants an integer for each row of tensor<64x64xbf16>, found tensor<8xi32>}}
      "kitsune.write_rows"(%A, %J, %m, %m, %m) {index = 0} : (tensor<64x64xbf16>, tensor<8xi32>, index, index, index) -> ()
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  %y = "kitsune.result"(%p) {index = 0} : (!kitsune.outputs) -> tensor<100x64xbf16>
  return %y : tensor<100x64xbf16>
}

// -----

func.func @rows_without_a_size(%F: tensor<64x64xf32>, %I: tensor<64xi32>, %m: index) -> tensor<?x64xf32> {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.write_rows' op has rows of tensor<?x64xf32> without a tensor that has as many}}
      "kitsune.write_rows"(%F, %I, %m, %m, %m) {adds, index = 0} : (tensor<64x64xf32>, tensor<64xi32>, index, index, index) -> ()
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  %y = "kitsune.result"(%p) {index = 0} : (!kitsune.outputs) -> tensor<?x64xf32>
  return %y : tensor<?x64xf32>
}

// -----

func.func @rows_of_another_type(%A: tensor<64x64xbf16>, %F: tensor<64x64xf32>, %I: tensor<64xi32>, %J: tensor<8xi32>, %m: index) -> tensor<100x64xbf16> {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.write_rows' op writes rows of tensor<64x64xf32> to rows of tensor<100x64xbf16>}}
      "kitsune.write_rows"(%F, %I, %m, %m, %m) {index = 0} : (tensor<64x64xf32>, tensor<64xi32>, index, index, index) -> ()
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  %y = "kitsune.result"(%p) {index = 0} : (!kitsune.outputs) -> tensor<100x64xbf16>
  return %y : tensor<100x64xbf16>
}

// -----

func.func @rows_to_no_output(%A: tensor<64x64xbf16>, %F: tensor<64x64xf32>, %I: tensor<64xi32>, %J: tensor<8xi32>, %m: index) -> tensor<100x64xbf16> {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.write_rows' op index must be an integer from 0 to 2147483647, found -1 : i64}}
      "kitsune.write_rows"(%A, %I, %m, %m, %m) {index = -1} : (tensor<64x64xbf16>, tensor<64xi32>, index, index, index) -> ()
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  %y = "kitsune.result"(%p) {index = 0} : (!kitsune.outputs) -> tensor<100x64xbf16>
  return %y : tensor<100x64xbf16>
}

// -----

func.func @sums_that_begin_with_16_bits(%A: tensor<64x64xbf16>, %F: tensor<64x64xf32>, %I: tensor<64xi32>, %J: tensor<8xi32>, %m: index) -> tensor<100x64xbf16> {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.sums' op begins with tiles of f32, found tensor<64x64xbf16>}}
      %z = "kitsune.sums"(%A) {begin} : (tensor<64x64xbf16>) -> !kitsune.acc<tensor<64x64xf32>>
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  %y = "kitsune.result"(%p) {index = 0} : (!kitsune.outputs) -> tensor<100x64xbf16>
  return %y : tensor<100x64xbf16>
}

// -----

func.func @sums_that_begin_with_nothing(%A: tensor<64x64xbf16>, %F: tensor<64x64xf32>, %I: tensor<64xi32>, %J: tensor<8xi32>, %m: index) -> tensor<100x64xbf16> {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.sums' op begins with tiles of f32, found none}}
      %z = "kitsune.sums"() {begin} : () -> !kitsune.acc<tensor<64x64xf32>>
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  %y = "kitsune.result"(%p) {index = 0} : (!kitsune.outputs) -> tensor<100x64xbf16>
  return %y : tensor<100x64xbf16>
}

// -----

func.func @rows_outside_agents(%A: tensor<64x64xbf16>, %I: tensor<64xi32>, %m: index) {
  // expected-error@+1 {{'kitsune.write_rows' op stands in no kitsune.agent}}
  "kitsune.write_rows"(%A, %I, %m, %m, %m) {index = 0} : (tensor<64x64xbf16>, tensor<64xi32>, index, index, index) -> ()
  return
}

// -----

func.func @product_of_a_piece_that_is_not(%a: !kitsune.acc<tensor<64x64xf32>>, %s: !kitsune.slot<tensor<64x64xbf16>>, %w: !kitsune.slot<tensor<64x32xf32>>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.product' op piece must be high or low, of f32, found 'middle' of tensor<64x32xf32>}}
      %v, %e = "kitsune.product"(%a, %w, %w) {engine = "wgmma", piece = "middle"} : (!kitsune.acc<tensor<64x64xf32>>, !kitsune.slot<tensor<64x32xf32>>, !kitsune.slot<tensor<64x32xf32>>) -> (!kitsune.acc<tensor<64x64xf32>>, !kitsune.token)
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @product_of_a_piece_of_16_bits(%a: !kitsune.acc<tensor<64x64xf32>>, %s: !kitsune.slot<tensor<64x64xbf16>>, %w: !kitsune.slot<tensor<64x32xf32>>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.product' op piece must be high or low, of f32, found 'low' of tensor<64x64xbf16>}}
      %v, %e = "kitsune.product"(%a, %s, %s) {engine = "wgmma", piece = "low"} : (!kitsune.acc<tensor<64x64xf32>>, !kitsune.slot<tensor<64x64xbf16>>, !kitsune.slot<tensor<64x64xbf16>>) -> (!kitsune.acc<tensor<64x64xf32>>, !kitsune.token)
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @read_together_of_some_columns(%A: tensor<64x64xbf16>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.read' op is loaded together where it is rows of a tensor, found tensor<64x32xbf16> of tensor<64x64xbf16>}}
      %t = "kitsune.read"(%A, %m, %m) {dims = array<i64: 0, 1>, together} : (tensor<64x64xbf16>, index, index) -> tensor<64x32xbf16>
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @asked_rows_in_a_slot(%A: tensor<64x64xbf16>, %N: tensor<64x5xbf16>, %V: tensor<64xbf16>, %I: tensor<64xi32>, %F: tensor<64xf32>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %r = "kitsune.alloc_ring"() {box = "dense", share = "all", space = "smem", sym_name = "turn"} : () -> !kitsune.ring<tensor<1x16xi8>, 1 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%r) : (!kitsune.ring<tensor<1x16xi8>, 1 : i64>) -> !kitsune.slot<tensor<1x16xi8>>
      // expected-error@+1 {{'kitsune.prefetch' op fills slots of rings without elements, ring 'turn' has tiles of tensor<1x16xi8>}}
      "kitsune.prefetch"(%s, %A, %I, %m, %m) : (!kitsune.slot<tensor<1x16xi8>>, tensor<64x64xbf16>, tensor<64xi32>, index, index) -> ()
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @asked_elements(%A: tensor<64x64xbf16>, %N: tensor<64x5xbf16>, %V: tensor<64xbf16>, %I: tensor<64xi32>, %F: tensor<64xf32>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %r = "kitsune.alloc_ring"() {box = "dense", share = "all", space = "smem", sym_name = "turn"} : () -> !kitsune.ring<tensor<1x0xi8>, 1 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%r) : (!kitsune.ring<tensor<1x0xi8>, 1 : i64>) -> !kitsune.slot<tensor<1x0xi8>>
      // expected-error@+1 {{'kitsune.prefetch' op asks for rows of a tensor of two dimensions, found tensor<64xbf16>}}
      "kitsune.prefetch"(%s, %V, %I, %m, %m) : (!kitsune.slot<tensor<1x0xi8>>, tensor<64xbf16>, tensor<64xi32>, index, index) -> ()
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @asked_rows_of_few_bytes(%A: tensor<64x64xbf16>, %N: tensor<64x5xbf16>, %V: tensor<64xbf16>, %I: tensor<64xi32>, %F: tensor<64xf32>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %r = "kitsune.alloc_ring"() {box = "dense", share = "all", space = "smem", sym_name = "turn"} : () -> !kitsune.ring<tensor<1x0xi8>, 1 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%r) : (!kitsune.ring<tensor<1x0xi8>, 1 : i64>) -> !kitsune.slot<tensor<1x0xi8>>
      // expected-error@+1 {{'kitsune.prefetch' op asks for rows of multiples of 16 bytes, found tensor<64x5xbf16>}}
      "kitsune.prefetch"(%s, %N, %I, %m, %m) : (!kitsune.slot<tensor<1x0xi8>>, tensor<64x5xbf16>, tensor<64xi32>, index, index) -> ()
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @asked_rows_by_no_integers(%A: tensor<64x64xbf16>, %N: tensor<64x5xbf16>, %V: tensor<64xbf16>, %I: tensor<64xi32>, %F: tensor<64xf32>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %r = "kitsune.alloc_ring"() {box = "dense", share = "all", space = "smem", sym_name = "turn"} : () -> !kitsune.ring<tensor<1x0xi8>, 1 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%r) : (!kitsune.ring<tensor<1x0xi8>, 1 : i64>) -> !kitsune.slot<tensor<1x0xi8>>
      // expected-error@+1 {{'kitsune.prefetch' op wants an integer for each row of a tile, found tensor<64xf32>}}
      "kitsune.prefetch"(%s, %A, %F, %m, %m) : (!kitsune.slot<tensor<1x0xi8>>, tensor<64x64xbf16>, tensor<64xf32>, index, index) -> ()
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @asked_outside_agents(%s: !kitsune.slot<tensor<1x0xi8>>, %A: tensor<64x64xbf16>, %I: tensor<64xi32>, %m: index) {
  // expected-error@+1 {{'kitsune.prefetch' op stands in no kitsune.agent}}
  "kitsune.prefetch"(%s, %A, %I, %m, %m) : (!kitsune.slot<tensor<1x0xi8>>, tensor<64x64xbf16>, tensor<64xi32>, index, index) -> ()
  return
}

// -----

func.func @read_ahead_of_a_volume(%A: tensor<64x64x64xbf16>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.read' op is loaded ahead where it has rows and columns, or one of these, found tensor<64x64x64xbf16>}}
      %t = "kitsune.read"(%A, %m, %m, %m) {ahead, dims = array<i64: 0, 1, 2>} : (tensor<64x64x64xbf16>, index, index, index) -> tensor<64x64x64xbf16>
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @vectors_of_an_agent_without(%A: tensor<64x64xbf16>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.read' op says 'aligned' of rows and columns that lie by rows in an agent, found tensor<64x64xbf16>}}
      %t = "kitsune.read"(%A, %m, %m) {aligned, dims = array<i64: 0, 1>} : (tensor<64x64xbf16>, index, index) -> tensor<64x64xbf16>
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @roles_beside_agents(%A: tensor<64x64xbf16>, %F: tensor<64x64xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  // expected-error@+1 {{'kitsune.kernel' op has kitsune.roles beside agents or tiles of its own}}
  %p = "kitsune.kernel"() ({
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      "kitsune.agent"() ({
      ^bb0(%c: index):

      }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
    }) {replicas = 1, sym_name = "r"} : () -> ()
    "kitsune.agent"() ({
      ^bb0(%c: index):

      }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @roles_in_clusters(%A: tensor<64x64xbf16>, %F: tensor<64x64xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  // expected-error@+1 {{'kitsune.kernel' op has kitsune.roles, whose CTAs are one an SM and in no cluster, and go round the tiles}}
  %p = "kitsune.kernel"() ({
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      "kitsune.agent"() ({
      ^bb0(%c: index):

      }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
    }) {replicas = 1, sym_name = "r"} : () -> ()
  }) {cluster = 2, sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @two_roles_of_one_name(%A: tensor<64x64xbf16>, %F: tensor<64x64xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  // expected-error@+1 {{'kitsune.kernel' op has two roles called 'r'; names must be unique}}
  %p = "kitsune.kernel"() ({
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      "kitsune.agent"() ({
      ^bb0(%c: index):

      }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
    }) {replicas = 1, sym_name = "r"} : () -> ()
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      "kitsune.agent"() ({
      ^bb0(%c: index):

      }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
    }) {replicas = 1, sym_name = "r"} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @role_of_no_ctas(%A: tensor<64x64xbf16>, %F: tensor<64x64xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  %p = "kitsune.kernel"() ({
    // expected-error@+1 {{'kitsune.role' op replicas must be an integer from 1 to 2147483647, found 0 : i64}}
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      "kitsune.agent"() ({
      ^bb0(%c: index):

      }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
    }) {replicas = 0, sym_name = "r"} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @role_without_agents(%A: tensor<64x64xbf16>, %F: tensor<64x64xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  %p = "kitsune.kernel"() ({
    // expected-error@+1 {{'kitsune.role' op has no kitsune.agent}}
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    }) {replicas = 1, sym_name = "r"} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @role_without_tiles(%A: tensor<64x64xbf16>, %F: tensor<64x64xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  %p = "kitsune.kernel"() ({
    // expected-error@+1 {{'kitsune.role' op deals out its tiles by one kitsune.tiles}}
    "kitsune.role"() ({
      "kitsune.agent"() ({
      ^bb0(%c: index):

      }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
    }) {replicas = 1, sym_name = "r"} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @role_in_a_function() {
  // expected-error@+1 {{'kitsune.role' op must stand directly in a kitsune.kernel}}
  "kitsune.role"() ({
    %c = arith.constant 0 : index
  }) {replicas = 1, sym_name = "r"} : () -> ()
  return
}

// -----

func.func @ring_in_l2_of_parts(%A: tensor<64x64xbf16>, %F: tensor<64x64xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  %p = "kitsune.kernel"() ({
    // expected-error@+1 {{'kitsune.alloc_ring' op has tiles of other roles as rows, for all copies}}
    %q = "kitsune.alloc_ring"() {box = "rows", share = "split", space = "l2", sym_name = "q"} : () -> !kitsune.ring<tensor<64x128xbf16>, 2 : i64>
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      "kitsune.agent"() ({
      ^bb0(%c: index):

      }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
    }) {replicas = 1, sym_name = "r"} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @ring_in_l2_in_a_role(%A: tensor<64x64xbf16>, %F: tensor<64x64xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  %p = "kitsune.kernel"() ({
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      // expected-error@+1 {{'kitsune.alloc_ring' op lies in l2 where it stands between kitsune.roles, and there alone}}
      %q = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "l2", sym_name = "q"} : () -> !kitsune.ring<tensor<64x128xbf16>, 2 : i64>
      "kitsune.agent"() ({
      ^bb0(%c: index):

      }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
    }) {replicas = 1, sym_name = "r"} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @ring_of_a_cta_between_roles(%A: tensor<64x64xbf16>, %F: tensor<64x64xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  %p = "kitsune.kernel"() ({
    // expected-error@+1 {{'kitsune.alloc_ring' op lies in l2 where it stands between kitsune.roles, and there alone}}
    %q = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "q"} : () -> !kitsune.ring<tensor<64x128xbf16>, 2 : i64>
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      "kitsune.agent"() ({
      ^bb0(%c: index):

      }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
    }) {replicas = 1, sym_name = "r"} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @fill_of_a_part_of_shared_memory(%A: tensor<64x64xbf16>, %F: tensor<64x64xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  %p = "kitsune.kernel"() ({
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      %q = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "q"} : () -> !kitsune.ring<tensor<64x128xbf16>, 2 : i64>
      "kitsune.agent"() ({
      ^bb0(%c: index):
        %s = "kitsune.acquire"(%q) : (!kitsune.ring<tensor<64x128xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x128xbf16>>
        // expected-error@+1 {{'kitsune.fill' op fills a slot of 16-bit elements in smem whole, found tensor<64x64xbf16> from column 0 for tensor<64x128xbf16>}}
        "kitsune.fill"(%s, %A, %c0) : (!kitsune.slot<tensor<64x128xbf16>>, tensor<64x64xbf16>, index) -> ()
      }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
    }) {replicas = 1, sym_name = "r"} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @fill_of_columns(%A: tensor<64x64xbf16>, %F: tensor<64x64xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  %p = "kitsune.kernel"() ({
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      %q = "kitsune.alloc_ring"() {box = "columns", share = "all", space = "smem", sym_name = "q"} : () -> !kitsune.ring<tensor<64x128xbf16>, 2 : i64>
      "kitsune.agent"() ({
      ^bb0(%c: index):
        %s = "kitsune.acquire"(%q) : (!kitsune.ring<tensor<64x128xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x128xbf16>>
        // expected-error@+1 {{'kitsune.fill' op fills rows of slots, ring 'q' has columns}}
        "kitsune.fill"(%s, %A, %c0) : (!kitsune.slot<tensor<64x128xbf16>>, tensor<64x64xbf16>, index) -> ()
      }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
    }) {replicas = 1, sym_name = "r"} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @fill_of_other_numbers(%A: tensor<64x64xbf16>, %F: tensor<64x64xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  %p = "kitsune.kernel"() ({
    %q = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "l2", sym_name = "q"} : () -> !kitsune.ring<tensor<64x128xbf16>, 2 : i64>
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      "kitsune.agent"() ({
      ^bb0(%c: index):
        %s = "kitsune.acquire"(%q) : (!kitsune.ring<tensor<64x128xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x128xbf16>>
        // expected-error@+1 {{'kitsune.fill' op stores numbers as those of tensor<64x128xbf16>, found tensor<64x64xf32>}}
        "kitsune.fill"(%s, %F, %c0) : (!kitsune.slot<tensor<64x128xbf16>>, tensor<64x64xf32>, index) -> ()
      }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
    }) {replicas = 1, sym_name = "r"} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @fill_of_other_rows(%A: tensor<64x64xbf16>, %F: tensor<64x64xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  %p = "kitsune.kernel"() ({
    %q = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "l2", sym_name = "q"} : () -> !kitsune.ring<tensor<64x128xbf16>, 2 : i64>
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      "kitsune.agent"() ({
      ^bb0(%c: index):
        %s = "kitsune.acquire"(%q) : (!kitsune.ring<tensor<64x128xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x128xbf16>>
        // expected-error@+1 {{'kitsune.fill' op stores tensor<64x64xbf16> in a slot of tensor<64x128xbf16>, of 2 copies}}
        "kitsune.fill"(%s, %A, %c0) : (!kitsune.slot<tensor<64x128xbf16>>, tensor<64x64xbf16>, index) -> ()
      }) {copies = 2, registers = 24, sym_name = "a", warps = 4} : () -> ()
    }) {replicas = 1, sym_name = "r"} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @fill_of_part_of_a_box(%A: tensor<64x64xbf16>, %F: tensor<64x40xbf16>, %m: index) {
  %c0 = arith.constant 0 : index
  %p = "kitsune.kernel"() ({
    %q = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "l2", sym_name = "q"} : () -> !kitsune.ring<tensor<64x128xbf16>, 2 : i64>
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      "kitsune.agent"() ({
      ^bb0(%c: index):
        %s = "kitsune.acquire"(%q) : (!kitsune.ring<tensor<64x128xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x128xbf16>>
        // expected-error@+1 {{'kitsune.fill' op stores boxes of 128 bytes of each row, found tensor<64x40xbf16> for tensor<64x128xbf16>}}
        "kitsune.fill"(%s, %F, %c0) : (!kitsune.slot<tensor<64x128xbf16>>, tensor<64x40xbf16>, index) -> ()
      }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
    }) {replicas = 1, sym_name = "r"} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @fill_outside_agents(%s: !kitsune.slot<tensor<64x64xbf16>>, %A: tensor<64x64xbf16>, %m: index) {
  // expected-error@+1 {{'kitsune.fill' op stands in no kitsune.agent}}
  "kitsune.fill"(%s, %A, %m) : (!kitsune.slot<tensor<64x64xbf16>>, tensor<64x64xbf16>, index) -> ()
  return
}

// -----

func.func @copy_out_of_shared_memory(%A: tensor<64x64xbf16>, %F: tensor<64x64xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %q = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "q"} : () -> !kitsune.ring<tensor<64x128xbf16>, 2 : i64>
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x128xbf16>, 2 : i64>
    "kitsune.agent"() ({
      ^bb0(%c: index):
        %s = "kitsune.wait"(%q) : (!kitsune.ring<tensor<64x128xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x128xbf16>>
        %e = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x128xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x128xbf16>>
        // expected-error@+1 {{'kitsune.copy' op copies out of tensors and of slots in l2, ring 'q' is in smem}}
        %d = "kitsune.copy"(%e, %s, %c0, %c0) {dims = array<i64: 0, 1>, engine = "tma"} : (!kitsune.slot<tensor<64x128xbf16>>, !kitsune.slot<tensor<64x128xbf16>>, index, index) -> !kitsune.token
      }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @token_of_a_slot_in_l2(%A: tensor<64x64xbf16>, %F: tensor<64x64xf32>, %m: index) {
  %c0 = arith.constant 0 : index
  %p = "kitsune.kernel"() ({
    %q = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "l2", sym_name = "q"} : () -> !kitsune.ring<tensor<64x128xbf16>, 2 : i64>
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x128xbf16>, 2 : i64>
      "kitsune.agent"() ({
      ^bb0(%c: index):
        %s = "kitsune.wait"(%q) : (!kitsune.ring<tensor<64x128xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x128xbf16>>
        %e = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x128xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x128xbf16>>
        %d = "kitsune.copy"(%e, %s, %c0, %c0) {dims = array<i64: 0, 1>, engine = "tma"} : (!kitsune.slot<tensor<64x128xbf16>>, !kitsune.slot<tensor<64x128xbf16>>, index, index) -> !kitsune.token
        // expected-error@+1 {{'kitsune.release' op takes no tokens: a slot of ring 'q', in l2, waits for all copies by itself}}
        "kitsune.release"(%s, %d) : (!kitsune.slot<tensor<64x128xbf16>>, !kitsune.token) -> ()
      }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
    }) {replicas = 1, sym_name = "r"} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @fill_from_within_a_box(%A: tensor<64x64xbf16>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %p = "kitsune.kernel"() ({
    %q = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "l2", sym_name = "q"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      %x = "kitsune.alloc_ring"() {box = "columns", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
      "kitsune.agent"() ({
      ^bb0(%c: index):
        %s = "kitsune.acquire"(%q) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
        // expected-error@+1 {{'kitsune.fill' op stores whole boxes of 128 bytes of a slot's columns, found column 1}}
        "kitsune.fill"(%s, %A, %c1) : (!kitsune.slot<tensor<64x64xbf16>>, tensor<64x64xbf16>, index) -> ()
      }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
    }) {replicas = 1, sym_name = "r"} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @copy_across_a_slot_in_l2(%A: tensor<64x64xbf16>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %p = "kitsune.kernel"() ({
    %q = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "l2", sym_name = "q"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      %x = "kitsune.alloc_ring"() {box = "columns", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
      "kitsune.agent"() ({
      ^bb0(%c: index):
        %s = "kitsune.wait"(%q) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
        %e = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
        // expected-error@+1 {{'kitsune.copy' op copies rows and columns of a slot in l2 into boxes along rows}}
        %d = "kitsune.copy"(%e, %s, %c0, %c0) {dims = array<i64: 1, 0>, engine = "tma"} : (!kitsune.slot<tensor<64x64xbf16>>, !kitsune.slot<tensor<64x64xbf16>>, index, index) -> !kitsune.token
      }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
    }) {replicas = 1, sym_name = "r"} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @product_of_a_slot_in_l2(%A: tensor<64x64xbf16>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %p = "kitsune.kernel"() ({
    %q = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "l2", sym_name = "q"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      %x = "kitsune.alloc_ring"() {box = "columns", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
      "kitsune.agent"() ({
      ^bb0(%c: index):
        %s = "kitsune.wait"(%q) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
        %z = "kitsune.sums"() : () -> !kitsune.acc<tensor<64x64xf32>>
        // expected-error@+1 {{'kitsune.product' op multiplies what lies in shared memory, ring 'q' is in l2}}
        %t:2 = "kitsune.product"(%z, %A, %s) {engine = "wgmma"} : (!kitsune.acc<tensor<64x64xf32>>, tensor<64x64xbf16>, !kitsune.slot<tensor<64x64xbf16>>) -> (!kitsune.acc<tensor<64x64xf32>>, !kitsune.token)
      }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
    }) {replicas = 1, sym_name = "r"} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @copy_beyond_a_slot_in_l2(%A: tensor<64x64xbf16>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %p = "kitsune.kernel"() ({
    %q = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "l2", sym_name = "q"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
      "kitsune.agent"() ({
      ^bb0(%c: index):
        %s = "kitsune.wait"(%q) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
        %e = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
        // expected-error@+1 {{'kitsune.copy' op copies rows that a slot in l2 has, found 64 from row 1 of tensor<64x64xbf16>}}
        %d = "kitsune.copy"(%e, %s, %c1, %c0) {dims = array<i64: 0, 1>, engine = "tma"} : (!kitsune.slot<tensor<64x64xbf16>>, !kitsune.slot<tensor<64x64xbf16>>, index, index) -> !kitsune.token
        "kitsune.release"(%s) : (!kitsune.slot<tensor<64x64xbf16>>) -> ()
      }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
    }) {replicas = 1, sym_name = "r"} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @copy_somewhere_in_a_slot_in_l2(%A: tensor<64x64xbf16>, %m: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %p = "kitsune.kernel"() ({
    %q = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "l2", sym_name = "q"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.role"() ({
      %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
      %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
      "kitsune.agent"() ({
      ^bb0(%c: index):
        %s = "kitsune.wait"(%q) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
        %e = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
        // expected-error@+1 {{'kitsune.copy' op copies rows that a slot in l2 has, found 64 from a row that is no constant of tensor<64x64xbf16>}}
        %d = "kitsune.copy"(%e, %s, %m, %c0) {dims = array<i64: 0, 1>, engine = "tma"} : (!kitsune.slot<tensor<64x64xbf16>>, !kitsune.slot<tensor<64x64xbf16>>, index, index) -> !kitsune.token
        "kitsune.release"(%s) : (!kitsune.slot<tensor<64x64xbf16>>) -> ()
      }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
    }) {replicas = 1, sym_name = "r"} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @result_among_other_columns(%A: tensor<64x64xbf16>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
      "kitsune.write"(%A, %m, %m) {dims = array<i64: 0, 1>, index = 0 : i64} : (tensor<64x64xbf16>, index, index) -> ()
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  // expected-error@+1 {{'kitsune.result' op has 64 columns from 8 on of rows of 71 elements}}
  %o = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<64x64xbf16, #kitsune.columns<8 : i64, 71 : i64, true>>
  return
}

// -----

func.func @result_of_another_encoding(%A: tensor<64x64xbf16>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
      "kitsune.write"(%A, %m, %m) {dims = array<i64: 0, 1>, index = 0 : i64} : (tensor<64x64xbf16>, index, index) -> ()
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  // expected-error@+1 {{'kitsune.result' op a tensor's encoding is #kitsune.columns, found "rows"}}
  %o = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<64x64xbf16, "rows">
  return
}

// -----

func.func @vector_among_columns(%A: tensor<64xbf16>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
      "kitsune.write"(%A, %m) {dims = array<i64: 0>, index = 0 : i64} : (tensor<64xbf16>, index) -> ()
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  // expected-error@+1 {{'kitsune.result' op lies among the columns of longer rows where it has rows and columns, found tensor<64xbf16, #kitsune.columns<0 : i64, 64 : i64, true>>}}
  %o = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<64xbf16, #kitsune.columns<0 : i64, 64 : i64, true>>
  return
}

// -----

func.func @rows_of_a_table_among_columns(%A: tensor<64x64xbf16>, %to: tensor<64xi32>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
      "kitsune.write_rows"(%A, %to, %m, %m, %m) {index = 0 : i64} : (tensor<64x64xbf16>, tensor<64xi32>, index, index, index) -> ()
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  // expected-error@+1 {{'kitsune.result' op lies among the columns of longer rows where kitsune.writes alone make it}}
  %o = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<64x64xbf16, #kitsune.columns<0 : i64, 128 : i64, true>>
  return
}

// -----

func.func @stored_at_no_multiple_of_16_bytes(%A: tensor<64x56xbf16>, %B: tensor<64x60xbf16>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.write' op is stored at multiples of 16 bytes, as columns from 4 on of 128 are not}}
      "kitsune.write"(%A, %m, %m) {dims = array<i64: 0, 1>, engine = "tma", index = 0 : i64} : (tensor<64x56xbf16>, index, index) -> ()
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  %o = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<64x56xbf16, #kitsune.columns<4 : i64, 128 : i64, true>>
  return
}

// -----

func.func @stored_over_what_lies_beside(%A: tensor<64x56xbf16>, %B: tensor<64x60xbf16>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.write' op is stored 16 bytes at a time, beyond 60 columns of bf16 beside others}}
      "kitsune.write"(%B, %m, %m) {dims = array<i64: 0, 1>, engine = "tma", index = 0 : i64} : (tensor<64x60xbf16>, index, index) -> ()
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  %o = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<64x60xbf16, #kitsune.columns<0 : i64, 128 : i64, true>>
  return
}

// -----

func.func @pieces_of_16_bits(%m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 1 : i64>
    %q = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "q"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.wait"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 1 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      %t = "kitsune.acquire"(%q) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      // expected-error@+1 {{'kitsune.split' op makes pieces of bf16 of f32, found tensor<64x64xbf16> of tensor<64x64xbf16>}}
      "kitsune.split"(%s, %t) : (!kitsune.slot<tensor<64x64xbf16>>, !kitsune.slot<tensor<64x64xbf16>>) -> ()
    }) {copies = 1, registers = 88, sym_name = "make", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @pieces_in_another_order(%m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xf32>, 1 : i64>
    %q = "kitsune.alloc_ring"() {box = "columns", share = "all", space = "smem", sym_name = "q"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.wait"(%x) : (!kitsune.ring<tensor<64x64xf32>, 1 : i64>) -> !kitsune.slot<tensor<64x64xf32>>
      %t = "kitsune.acquire"(%q) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      // expected-error@+1 {{'kitsune.split' op takes and fills slots in smem, in boxes of one order}}
      "kitsune.split"(%s, %t) : (!kitsune.slot<tensor<64x64xf32>>, !kitsune.slot<tensor<64x64xbf16>>) -> ()
    }) {copies = 1, registers = 88, sym_name = "make", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @words_in_the_same_order(%m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "columns", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x32xf32>, 1 : i64>
    %q = "kitsune.alloc_ring"() {box = "columns", share = "all", space = "smem", sym_name = "q"} : () -> !kitsune.ring<tensor<64x32xf32>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.wait"(%x) : (!kitsune.ring<tensor<64x32xf32>, 1 : i64>) -> !kitsune.slot<tensor<64x32xf32>>
      %t = "kitsune.acquire"(%q) : (!kitsune.ring<tensor<64x32xf32>, 2 : i64>) -> !kitsune.slot<tensor<64x32xf32>>
      // expected-error@+1 {{'kitsune.split' op takes and fills slots in smem, in boxes of the other order}}
      "kitsune.split"(%s, %t) : (!kitsune.slot<tensor<64x32xf32>>, !kitsune.slot<tensor<64x32xf32>>) -> ()
    }) {copies = 1, registers = 88, sym_name = "make", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @words_of_half_a_block(%m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "columns", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<48x32xf32>, 1 : i64>
    %q = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "q"} : () -> !kitsune.ring<tensor<48x32xf32>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.wait"(%x) : (!kitsune.ring<tensor<48x32xf32>, 1 : i64>) -> !kitsune.slot<tensor<48x32xf32>>
      %t = "kitsune.acquire"(%q) : (!kitsune.ring<tensor<48x32xf32>, 2 : i64>) -> !kitsune.slot<tensor<48x32xf32>>
      // expected-error@+1 {{'kitsune.split' op turns blocks of 32 by 32 numbers, found tensor<48x32xf32>}}
      "kitsune.split"(%s, %t) : (!kitsune.slot<tensor<48x32xf32>>, !kitsune.slot<tensor<48x32xf32>>) -> ()
    }) {copies = 1, registers = 88, sym_name = "make", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @pieces_by_two_copies(%m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xf32>, 1 : i64>
    %q = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "q"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.wait"(%x) : (!kitsune.ring<tensor<64x64xf32>, 1 : i64>) -> !kitsune.slot<tensor<64x64xf32>>
      %t = "kitsune.acquire"(%q) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      // expected-error@+1 {{'kitsune.split' op is done by an agent of one copy, found 2}}
      "kitsune.split"(%s, %t) : (!kitsune.slot<tensor<64x64xf32>>, !kitsune.slot<tensor<64x64xbf16>>) -> ()
    }) {copies = 2, registers = 88, sym_name = "make", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @a_piece_of_rounded_numbers(%a: !kitsune.acc<tensor<64x64xf32>>, %w: !kitsune.slot<tensor<64x32xf32>>, %A: tensor<64x32xf32>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x32xf32>, 1 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x32xf32>, 1 : i64>) -> !kitsune.slot<tensor<64x32xf32>>
      %d = "kitsune.copy"(%s, %A, %m, %m) {dims = array<i64: 0, 1>, engine = "tma", rounded} : (!kitsune.slot<tensor<64x32xf32>>, tensor<64x32xf32>, index, index) -> !kitsune.token
      "kitsune.commit"(%s, %d) : (!kitsune.slot<tensor<64x32xf32>>, !kitsune.token) -> ()
    }) {copies = 1, registers = 24, sym_name = "feed", warps = 4} : () -> ()
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %t = "kitsune.wait"(%x) : (!kitsune.ring<tensor<64x32xf32>, 1 : i64>) -> !kitsune.slot<tensor<64x32xf32>>
      // expected-error@+1 {{'kitsune.product' op takes a piece of whole numbers, ring 'x' has rounded ones}}
      %v, %e = "kitsune.product"(%a, %t, %w) {engine = "wgmma", piece = "high"} : (!kitsune.acc<tensor<64x64xf32>>, !kitsune.slot<tensor<64x32xf32>>, !kitsune.slot<tensor<64x32xf32>>) -> (!kitsune.acc<tensor<64x64xf32>>, !kitsune.token)
    }) {copies = 1, registers = 240, sym_name = "math", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @rounded_16_bits(%A: tensor<64x32xf32>, %B: tensor<64x64xbf16>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 1 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 1 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      // expected-error@+1 {{'kitsune.copy' op has tensors of f32 rounded by the copy engine, found tensor<64x64xbf16>}}
      %d = "kitsune.copy"(%s, %B, %m, %m) {dims = array<i64: 0, 1>, engine = "tma", rounded} : (!kitsune.slot<tensor<64x64xbf16>>, tensor<64x64xbf16>, index, index) -> !kitsune.token
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @longer_lines_of_a_known_length(%A: tensor<64x64xbf16>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 1 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 1 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      // expected-error@+1 {{'kitsune.copy' op has longer lines of a tensor whose last size is open, found tensor<64x64xbf16>}}
      %d = "kitsune.copy"(%s, %A, %m, %m) {dims = array<i64: 0, 1>, engine = "tma", longer} : (!kitsune.slot<tensor<64x64xbf16>>, tensor<64x64xbf16>, index, index) -> !kitsune.token
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @rounded_by_threads(%A: tensor<64x32xf32>, %B: tensor<64x64xbf16>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x32xf32>, 1 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x32xf32>, 1 : i64>) -> !kitsune.slot<tensor<64x32xf32>>
      // expected-error@+1 {{'kitsune.copy' op has tensors of f32 rounded by the copy engine, found tensor<64x32xf32>}}
      %d = "kitsune.copy"(%s, %A, %m, %m) {dims = array<i64: 0, 1>, engine = "cp_async", rounded} : (!kitsune.slot<tensor<64x32xf32>>, tensor<64x32xf32>, index, index) -> !kitsune.token
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @blocks_of_no_whole_chunks(%x: tensor<2x9x96xbf16>) {
  // expected-error@+1 {{'kitsune.windows' op has blocks of multiples of 64 channels, found 2 of tensor<2x9x96xbf16>}}
  %m = "kitsune.windows"(%x) {blocks = 2 : i64, dilations = array<i64: 1>, filter = array<i64: 3>, low = array<i64: 1>, places = array<i64: 9>, strides = array<i64: 1>} : (tensor<2x9x96xbf16>) -> tensor<2x9x2x192xbf16>
  return
}

// -----

func.func @matrix_without_blocks(%x: tensor<2x9x128xbf16>) {
  // expected-error@+1 {{'kitsune.windows' op makes a matrix of 2x9x2x192 or 18x2x192 elements of bf16, found tensor<2x9x384xbf16>}}
  %m = "kitsune.windows"(%x) {blocks = 2 : i64, dilations = array<i64: 1>, filter = array<i64: 3>, low = array<i64: 1>, places = array<i64: 9>, strides = array<i64: 1>} : (tensor<2x9x128xbf16>) -> tensor<2x9x384xbf16>
  return
}

// -----

func.func @collect_alone(%A: tensor<64x32xbf16>, %F: tensor<64x32xf32>, %S: tensor<20x32xbf16>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "own", space = "dsmem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.collect' op stands in a kitsune.kernel whose CTAs work alone}}
      "kitsune.collect"(%x, %A) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>, tensor<64x32xbf16>) -> ()
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {cluster = 1, sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @collect_in_the_own_ring(%A: tensor<64x32xbf16>, %F: tensor<64x32xf32>, %S: tensor<20x32xbf16>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "own", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.collect' op fills a ring in dsmem, ring 'x' is not}}
      "kitsune.collect"(%x, %A) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>, tensor<64x32xbf16>) -> ()
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {cluster = 4, sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @collect_other_elements(%A: tensor<64x32xbf16>, %F: tensor<64x32xf32>, %S: tensor<20x32xbf16>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "own", space = "dsmem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.collect' op collects numbers as those of tensor<64x64xbf16>, found tensor<64x32xf32>}}
      "kitsune.collect"(%x, %F) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>, tensor<64x32xf32>) -> ()
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {cluster = 4, sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @collect_words(%A: tensor<64x32xbf16>, %F: tensor<64x32xf32>, %S: tensor<20x32xbf16>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "own", space = "dsmem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xf32>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.collect' op collects numbers of 16 bits, found tensor<64x64xf32>}}
      "kitsune.collect"(%x, %F) : (!kitsune.ring<tensor<64x64xf32>, 2 : i64>, tensor<64x32xf32>) -> ()
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {cluster = 4, sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @collect_some_rows(%A: tensor<64x32xbf16>, %F: tensor<64x32xf32>, %S: tensor<20x32xbf16>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "own", space = "dsmem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.collect' op collects blocks of 8 columns of a slot of tensor<64x64xbf16>, of 1 copies, found tensor<20x32xbf16>}}
      "kitsune.collect"(%x, %S) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>, tensor<20x32xbf16>) -> ()
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {cluster = 4, sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @collect_too_little(%A: tensor<64x32xbf16>, %F: tensor<64x32xf32>, %S: tensor<20x32xbf16>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "own", space = "dsmem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.collect' op fills 2 slots of tensor<64x64xbf16> with tensor<64x32xbf16> of each of 2 CTAs}}
      "kitsune.collect"(%x, %A) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>, tensor<64x32xbf16>) -> ()
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {cluster = 2, sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @collect_in_an_argument(%A: tensor<64x32xbf16>, %F: tensor<64x32xf32>, %S: tensor<20x32xbf16>, %x: !kitsune.ring<tensor<64x64xbf16>, 2 : i64>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%c: index):
      // expected-error@+1 {{'kitsune.collect' op takes its ring straight from a kitsune.alloc_ring}}
      "kitsune.collect"(%x, %A) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>, tensor<64x32xbf16>) -> ()
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {cluster = 4, sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @gathered_into_a_ring_of_columns(%A: tensor<64x64xbf16>, %H: tensor<64x64xf16>, %N: tensor<64x68xbf16>, %V: tensor<64xbf16>, %I: tensor<64xi32>, %J: tensor<32xi32>, %F: tensor<64xf32>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "columns", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      // expected-error@+1 {{'kitsune.gather_rows' op fills boxes along rows in smem, ring 'x' has columns}}
      %d = "kitsune.gather_rows"(%s, %A, %I, %m, %m, %m) : (!kitsune.slot<tensor<64x64xbf16>>, tensor<64x64xbf16>, tensor<64xi32>, index, index, index) -> !kitsune.token
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @gathered_into_a_vector(%A: tensor<64x64xbf16>, %H: tensor<64x64xf16>, %N: tensor<64x68xbf16>, %V: tensor<64xbf16>, %I: tensor<64xi32>, %J: tensor<32xi32>, %F: tensor<64xf32>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      // expected-error@+1 {{'kitsune.gather_rows' op copies rows of a tensor of two dimensions, found tensor<64xbf16>}}
      %d = "kitsune.gather_rows"(%s, %V, %I, %m, %m, %m) : (!kitsune.slot<tensor<64x64xbf16>>, tensor<64xbf16>, tensor<64xi32>, index, index, index) -> !kitsune.token
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @gathered_into_other_elements(%A: tensor<64x64xbf16>, %H: tensor<64x64xf16>, %N: tensor<64x68xbf16>, %V: tensor<64xbf16>, %I: tensor<64xi32>, %J: tensor<32xi32>, %F: tensor<64xf32>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      // expected-error@+1 {{'kitsune.gather_rows' op moves elements of tensor<64x64xf16> as those of tensor<64x64xbf16>}}
      %d = "kitsune.gather_rows"(%s, %H, %I, %m, %m, %m) : (!kitsune.slot<tensor<64x64xbf16>>, tensor<64x64xf16>, tensor<64xi32>, index, index, index) -> !kitsune.token
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @gathered_into_few_bytes(%A: tensor<64x64xbf16>, %H: tensor<64x64xf16>, %N: tensor<64x68xbf16>, %V: tensor<64xbf16>, %I: tensor<64xi32>, %J: tensor<32xi32>, %F: tensor<64xf32>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      // expected-error@+1 {{'kitsune.gather_rows' op copies rows of multiples of 16 bytes, found tensor<64x68xbf16>}}
      %d = "kitsune.gather_rows"(%s, %N, %I, %m, %m, %m) : (!kitsune.slot<tensor<64x64xbf16>>, tensor<64x68xbf16>, tensor<64xi32>, index, index, index) -> !kitsune.token
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @gathered_into_narrow_slots(%A: tensor<64x64xbf16>, %H: tensor<64x64xf16>, %N: tensor<64x68xbf16>, %V: tensor<64xbf16>, %I: tensor<64xi32>, %J: tensor<32xi32>, %F: tensor<64xf32>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x32xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x32xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x32xbf16>>
      // expected-error@+1 {{'kitsune.gather_rows' op fills slots of rows of 128 bytes, found tensor<64x32xbf16>}}
      %d = "kitsune.gather_rows"(%s, %A, %I, %m, %m, %m) : (!kitsune.slot<tensor<64x32xbf16>>, tensor<64x64xbf16>, tensor<64xi32>, index, index, index) -> !kitsune.token
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @gathered_into_numbers_of_fewer_rows(%A: tensor<64x64xbf16>, %H: tensor<64x64xf16>, %N: tensor<64x68xbf16>, %V: tensor<64xbf16>, %I: tensor<64xi32>, %J: tensor<32xi32>, %F: tensor<64xf32>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      // expected-error@+1 {{'kitsune.gather_rows' op wants an integer for each row of tensor<64x64xbf16>, found tensor<32xi32>}}
      %d = "kitsune.gather_rows"(%s, %A, %J, %m, %m, %m) : (!kitsune.slot<tensor<64x64xbf16>>, tensor<64x64xbf16>, tensor<32xi32>, index, index, index) -> !kitsune.token
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @gathered_into_no_integers(%A: tensor<64x64xbf16>, %H: tensor<64x64xf16>, %N: tensor<64x68xbf16>, %V: tensor<64xbf16>, %I: tensor<64xi32>, %J: tensor<32xi32>, %F: tensor<64xf32>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      // expected-error@+1 {{'kitsune.gather_rows' op wants an integer for each row of tensor<64x64xbf16>, found tensor<64xf32>}}
      %d = "kitsune.gather_rows"(%s, %A, %F, %m, %m, %m) : (!kitsune.slot<tensor<64x64xbf16>>, tensor<64x64xbf16>, tensor<64xf32>, index, index, index) -> !kitsune.token
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @gathered_outside_agents(%s: !kitsune.slot<tensor<64x64xbf16>>, %A: tensor<64x64xbf16>, %I: tensor<64xi32>, %m: index) {
  // expected-error@+1 {{'kitsune.gather_rows' op stands in no kitsune.agent}}
  %d = "kitsune.gather_rows"(%s, %A, %I, %m, %m, %m) : (!kitsune.slot<tensor<64x64xbf16>>, tensor<64x64xbf16>, tensor<64xi32>, index, index, index) -> !kitsune.token
  return
}

// -----

func.func @looked_up_of_a_table(%A: tensor<64x64xbf16>, %T: tensor<4x64x64xbf16>, %V: tensor<64xbf16>, %I: tensor<64xi32>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      // expected-error@+1 {{'kitsune.look_up' op takes a number of a tensor of one dimension, found tensor<64x64xbf16>}}
      %p0 = "kitsune.look_up"(%A, %m) {size = 5} : (tensor<64x64xbf16>, index) -> index
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @looked_up_of_no_integers(%A: tensor<64x64xbf16>, %T: tensor<4x64x64xbf16>, %V: tensor<64xbf16>, %I: tensor<64xi32>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      // expected-error@+1 {{'kitsune.look_up' op takes integers of 32 or 64 bits, found tensor<64xbf16>}}
      %p0 = "kitsune.look_up"(%V, %m) {size = 5} : (tensor<64xbf16>, index) -> index
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @looked_up_of_no_places(%A: tensor<64x64xbf16>, %T: tensor<4x64x64xbf16>, %V: tensor<64xbf16>, %I: tensor<64xi32>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      // expected-error@+1 {{'kitsune.look_up' op size must be an integer from 1 to 2147483647, found 0 : i64}}
      %p0 = "kitsune.look_up"(%I, %m) {size = 0} : (tensor<64xi32>, index) -> index
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @looked_up_wrapped_by_a_number(%A: tensor<64x64xbf16>, %T: tensor<4x64x64xbf16>, %V: tensor<64xbf16>, %I: tensor<64xi32>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      // expected-error@+1 {{'kitsune.look_up' op wrapped must be said without a value, found 5 : i64}}
      %p0 = "kitsune.look_up"(%I, %m) {size = 5, wrapped = 5 : i64} : (tensor<64xi32>, index) -> index
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @looked_up_for_a_sum(%A: tensor<64x64xbf16>, %T: tensor<4x64x64xbf16>, %V: tensor<64xbf16>, %I: tensor<64xi32>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      // expected-error@+1 {{'kitsune.look_up' op says where a kitsune.copy finds its box, and nothing else, found arith.addi}}
      %p0 = "kitsune.look_up"(%I, %m) {size = 5} : (tensor<64xi32>, index) -> index
      %q = arith.addi %p0, %m : index
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @looked_up_of_other_places(%A: tensor<64x64xbf16>, %T: tensor<4x64x64xbf16>, %V: tensor<64xbf16>, %I: tensor<64xi32>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      // expected-error@+1 {{'kitsune.look_up' op gives one of 5 places along dimension 0 of tensor<4x64x64xbf16>}}
      %p0 = "kitsune.look_up"(%I, %m) {size = 5} : (tensor<64xi32>, index) -> index
      %d = "kitsune.copy"(%s, %T, %p0, %m, %m) {dims = array<i64: 1, 2>, engine = "tma"} : (!kitsune.slot<tensor<64x64xbf16>>, tensor<4x64x64xbf16>, index, index, index) -> !kitsune.token
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @looked_up_along_a_box(%A: tensor<64x64xbf16>, %T: tensor<4x64x64xbf16>, %V: tensor<64xbf16>, %I: tensor<64xi32>, %m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      // expected-error@+1 {{'kitsune.look_up' op gives a place along dimension 1 of tensor<4x64x64xbf16>, along which a box has several}}
      %p0 = "kitsune.look_up"(%I, %m) {size = 64} : (tensor<64xi32>, index) -> index
      %d = "kitsune.copy"(%s, %T, %m, %p0, %m) {dims = array<i64: 1, 2>, engine = "tma"} : (!kitsune.slot<tensor<64x64xbf16>>, tensor<4x64x64xbf16>, index, index, index) -> !kitsune.token
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @looked_up_outside_agents(%I: tensor<64xi32>, %m: index) {
  // expected-error@+1 {{'kitsune.look_up' op stands in no kitsune.agent}}
  %p = "kitsune.look_up"(%I, %m) {size = 5} : (tensor<64xi32>, index) -> index
  return
}

// -----

func.func @awaited_columns_that_nobody_copies(%A: tensor<64x48xbf16>, %m: index) {
  %z = arith.constant 0 : index
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    // expected-error@+1 {{'kitsune.alloc_ring' op is waited for with 64 x 64 of a slot that is opened with 64 x 48}}
    %x = "kitsune.alloc_ring"() {box = "rows", share = "all", space = "smem", sym_name = "x"} : () -> !kitsune.ring<tensor<64x64xbf16>, 2 : i64>
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.acquire"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x48xbf16>>
      %d = "kitsune.copy"(%s, %A, %z, %z) {dims = array<i64: 0, 1>, engine = "tma"} : (!kitsune.slot<tensor<64x48xbf16>>, tensor<64x48xbf16>, index, index) -> !kitsune.token
      "kitsune.commit"(%s, %d) : (!kitsune.slot<tensor<64x48xbf16>>, !kitsune.token) -> ()
    }) {copies = 1, registers = 24, sym_name = "a", warps = 4} : () -> ()
    "kitsune.agent"() ({
    ^bb0(%c: index):
      %s = "kitsune.wait"(%x) : (!kitsune.ring<tensor<64x64xbf16>, 2 : i64>) -> !kitsune.slot<tensor<64x64xbf16>>
      "kitsune.release"(%s) : (!kitsune.slot<tensor<64x64xbf16>>) -> ()
    }) {copies = 1, registers = 24, sym_name = "b", warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @turned_rows_of_fewer_lanes(%m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
    // expected-error@+1 {{'kitsune.agent' op of 4 warps whose threads have rows of their own wants as many lanes}}
    "kitsune.agent"() ({
    ^bb0(%c: index):
    }) {copies = 1, lanes = 2, registers = 24, sym_name = "a", turned, vector = 1, warps = 4} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @turned_rows_of_too_many_a_thread(%m: index) {
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 256>} : (index) -> (index, index, index)
    // expected-error@+1 {{'kitsune.agent' op has threads of 8 rows each, more than 4}}
    "kitsune.agent"() ({
    ^bb0(%c: index):
    }) {copies = 1, lanes = 1, registers = 24, sym_name = "a", turned, vector = 8, warps = 1} : () -> ()
  }) {sym_name = "k"} : () -> !kitsune.outputs
  return
}

// -----

func.func @firsts(%x: tensor<4x8xf64>) {
  // expected-error@+1 {{'kitsune.firsts' op takes rows of f32, f16, bf16 or i32, found tensor<4x8xf64>}}
  %y:2 = "kitsune.firsts"(%x) : (tensor<4x8xf64>) -> (tensor<4x2xf64>, tensor<4x2xi64>)
  return
}

// -----

func.func @firsts(%x: tensor<4x8xf32>) {
  // expected-error@+1 {{'kitsune.firsts' op descending must be said without a value, found 1 : i64}}
  %y:2 = "kitsune.firsts"(%x) {descending = 1 : i64} : (tensor<4x8xf32>) -> (tensor<4x2xf32>, tensor<4x2xi64>)
  return
}

// -----

func.func @firsts(%x: tensor<4x8xf32>) {
  // expected-error@+1 {{'kitsune.firsts' op gives rows like those of tensor<4x8xf32>, found tensor<3x2xf32>}}
  %y:2 = "kitsune.firsts"(%x) : (tensor<4x8xf32>) -> (tensor<3x2xf32>, tensor<4x2xi64>)
  return
}

// -----

func.func @firsts(%x: tensor<4x8xf32>) {
  // expected-error@+1 {{'kitsune.firsts' op gives 1 to 8 elements of rows of tensor<4x8xf32>, found tensor<4x9xf32>}}
  %y:2 = "kitsune.firsts"(%x) : (tensor<4x8xf32>) -> (tensor<4x9xf32>, tensor<4x9xi64>)
  return
}

// -----

func.func @firsts(%x: tensor<4x8xf32>) {
  // expected-error@+1 {{'kitsune.firsts' op gives places of type tensor<4x2xi64>, found tensor<4x2xi32>}}
  %y:2 = "kitsune.firsts"(%x) : (tensor<4x8xf32>) -> (tensor<4x2xf32>, tensor<4x2xi32>)
  return
}

// -----

func.func @systems(%a: tensor<4x8x8xbf16>) {
  // expected-error@+1 {{'kitsune.cholesky' op takes matrices of f32 or f64, found tensor<4x8x8xbf16>}}
  %y = "kitsune.cholesky"(%a) : (tensor<4x8x8xbf16>) -> tensor<4x8x8xbf16>
  return
}

// -----

func.func @systems(%a: tensor<4x8x9xf32>) {
  // expected-error@+1 {{'kitsune.pivots' op takes square matrices of 1 to 128 rows, found tensor<4x8x9xf32>}}
  %y = "kitsune.pivots"(%a) : (tensor<4x8x9xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @systems(%a: tensor<4x8x8xf32>, %b: tensor<4x7x2xf32>) {
  // expected-error@+1 {{'kitsune.solve' op takes right sides of as many rows as tensor<4x8x8xf32> has, found tensor<4x7x2xf32>}}
  %y = "kitsune.solve"(%b, %a) : (tensor<4x7x2xf32>, tensor<4x8x8xf32>) -> tensor<4x7x2xf32>
  return
}

// -----

func.func @systems(%a: tensor<4x8x8xf32>, %b: tensor<4x8x2xf64>) {
  // expected-error@+1 {{'kitsune.solve' op takes numbers of one type, found tensor<4x8x2xf64> and tensor<4x8x8xf32>}}
  %y = "kitsune.solve"(%b, %a) : (tensor<4x8x2xf64>, tensor<4x8x8xf32>) -> tensor<4x8x2xf64>
  return
}

// -----

func.func @systems(%a: tensor<4x8x8xf32>, %b: tensor<4x8x2xf32>) {
  // expected-error@+1 {{'kitsune.substitute' op upper must be said without a value, found true}}
  %y = "kitsune.substitute"(%b, %a) {upper = true} : (tensor<4x8x2xf32>, tensor<4x8x8xf32>) -> tensor<4x8x2xf32>
  return
}

// -----

func.func @systems(%a: tensor<4x8x8xf32>) {
  // expected-error@+1 {{'kitsune.pivots' op gives a tensor of type tensor<4x8xf32>, found tensor<4x8x8xf32>}}
  %y = "kitsune.pivots"(%a) : (tensor<4x8x8xf32>) -> tensor<4x8x8xf32>
  return
}

// -----

func.func @filters(%x: tensor<2x9x8xbf16>, %g: tensor<2x9x8xbf16>) {
  // expected-error@+1 {{'kitsune.filter_gradient' op takes and gives tensors with channels last, found tensor<2x9x8xbf16>, tensor<2x9x8xbf16>, tensor<8xf32>}}
  %w = "kitsune.filter_gradient"(%x, %g) {dilation = array<i64: 1>, padding = array<i64: 1>, stride = array<i64: 1>} : (tensor<2x9x8xbf16>, tensor<2x9x8xbf16>) -> tensor<8xf32>
  return
}

// -----

func.func @filters(%x: tensor<2x9x8xi32>, %g: tensor<2x9x8xbf16>) {
  // expected-error@+1 {{'kitsune.filter_gradient' op takes images of f32, f64, f16 or bf16, found tensor<2x9x8xi32>}}
  %w = "kitsune.filter_gradient"(%x, %g) {dilation = array<i64: 1>, padding = array<i64: 1>, stride = array<i64: 1>} : (tensor<2x9x8xi32>, tensor<2x9x8xbf16>) -> tensor<3x8xf32>
  return
}

// -----

func.func @filters(%x: tensor<2x9x8xbf16>, %g: tensor<2x9x8xf32>) {
  // expected-error@+1 {{'kitsune.filter_gradient' op gives filters for an image and a gradient of its kind, found tensor<2x9x8xbf16> and tensor<2x9x8xf32>}}
  %w = "kitsune.filter_gradient"(%x, %g) {dilation = array<i64: 1>, padding = array<i64: 1>, stride = array<i64: 1>} : (tensor<2x9x8xbf16>, tensor<2x9x8xf32>) -> tensor<3x8xf32>
  return
}

// -----

func.func @filters(%x: tensor<2x9x8xbf16>, %g: tensor<2x9x8xbf16>) {
  // expected-error@+1 {{'kitsune.filter_gradient' op gives filters of known sizes of f32, found tensor<3x8xbf16>}}
  %w = "kitsune.filter_gradient"(%x, %g) {dilation = array<i64: 1>, padding = array<i64: 1>, stride = array<i64: 1>} : (tensor<2x9x8xbf16>, tensor<2x9x8xbf16>) -> tensor<3x8xbf16>
  return
}

// -----

func.func @filters(%x: tensor<2x9x8xbf16>, %g: tensor<2x9x8xbf16>) {
  // expected-error@+1 {{'kitsune.filter_gradient' op needs stride, an array of integers}}
  %w = "kitsune.filter_gradient"(%x, %g) {dilation = array<i64: 1>, padding = array<i64: 1>} : (tensor<2x9x8xbf16>, tensor<2x9x8xbf16>) -> tensor<3x8xf32>
  return
}

// -----

func.func @filters(%x: tensor<2x9x8xbf16>, %g: tensor<2x9x8xbf16>) {
  // expected-error@+1 {{'kitsune.filter_gradient' op has a stride from 1 on for each of 1 sizes, found [0]}}
  %w = "kitsune.filter_gradient"(%x, %g) {dilation = array<i64: 1>, padding = array<i64: 1>, stride = array<i64: 0>} : (tensor<2x9x8xbf16>, tensor<2x9x8xbf16>) -> tensor<3x8xf32>
  return
}

// -----

func.func @filters(%x: tensor<2x9x8xbf16>, %g: tensor<2x9x8xbf16>) {
  // expected-error@+1 {{'kitsune.filter_gradient' op has groups of 8 and of 8 channels for filters of 12}}
  %w = "kitsune.filter_gradient"(%x, %g) {dilation = array<i64: 1>, padding = array<i64: 1>, stride = array<i64: 1>} : (tensor<2x9x8xbf16>, tensor<2x9x8xbf16>) -> tensor<3x12xf32>
  return
}

// -----

func.func @transformed(%x: tensor<4x8xf32>) {
  // expected-error@+1 {{'kitsune.fourier' op takes one or two parts and gives two, or two and one, found 1 and 1}}
  %y = "kitsune.fourier"(%x) {dimension = 1 : i64, size = 8 : i64, scale = 1.0 : f64} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @transformed(%x: tensor<4x8xbf16>) {
  // expected-error@+1 {{'kitsune.fourier' op takes tensors of f32 or f64, found tensor<4x8xbf16>}}
  %y:2 = "kitsune.fourier"(%x) {dimension = 1 : i64, size = 8 : i64, scale = 1.0 : f64} : (tensor<4x8xbf16>) -> (tensor<4x8xbf16>, tensor<4x8xbf16>)
  return
}

// -----

func.func @transformed(%x: tensor<4x?xf32>) {
  // expected-error@+1 {{'kitsune.fourier' op goes along a dimension of a known size, found 1 of tensor<4x?xf32>}}
  %y:2 = "kitsune.fourier"(%x) {dimension = 1 : i64, size = 8 : i64, scale = 1.0 : f64} : (tensor<4x?xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>)
  return
}

// -----

func.func @transformed(%x: tensor<4x8xf32>) {
  // expected-error@+1 {{'kitsune.fourier' op has no transform of 17 numbers: its primes are up to 13}}
  %y:2 = "kitsune.fourier"(%x) {dimension = 1 : i64, size = 17 : i64, scale = 1.0 : f64} : (tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>)
  return
}

// -----

func.func @transformed(%x: tensor<4x8xf32>) {
  // expected-error@+1 {{'kitsune.fourier' op has no transform of 16384 numbers: at most 8192 of f32}}
  %y:2 = "kitsune.fourier"(%x) {dimension = 1 : i64, size = 16384 : i64, scale = 1.0 : f64} : (tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>)
  return
}

// -----

func.func @transformed(%x: tensor<4x8xf32>) {
  // expected-error@+1 {{'kitsune.fourier' op gives tensors like tensor<4x8xf32> but along dimension 1, found tensor<3x8xf32>}}
  %y:2 = "kitsune.fourier"(%x) {dimension = 1 : i64, size = 8 : i64, scale = 1.0 : f64} : (tensor<4x8xf32>) -> (tensor<3x8xf32>, tensor<3x8xf32>)
  return
}

// -----

func.func @transformed(%x: tensor<4x8xf32>) {
  // expected-error@+1 {{'kitsune.fourier' op gives up to 8 numbers, found tensor<4x9xf32>}}
  %y:2 = "kitsune.fourier"(%x) {dimension = 1 : i64, size = 8 : i64, scale = 1.0 : f64} : (tensor<4x8xf32>) -> (tensor<4x9xf32>, tensor<4x9xf32>)
  return
}

// -----

func.func @steps(%x: tensor<2x3x16xf32>, %w: tensor<1x4x16xf32>, %b: tensor<1x16xf32>, %h: tensor<1x2x4xf32>) {
  // expected-error@+1 {{'kitsune.recurrent' op has a cell of gru, lstm, relu, tanh, found mlp}}
  %y:2 = "kitsune.recurrent"(%x, %w, %b, %h) {cell = "mlp", time = 1 : i64} : (tensor<2x3x16xf32>, tensor<1x4x16xf32>, tensor<1x16xf32>, tensor<1x2x4xf32>) -> (tensor<2x3x4xf32>, tensor<1x2x4xf32>)
  return
}

// -----

func.func @steps(%x: tensor<2x3x16xf32>, %w: tensor<1x4x16xf32>, %b: tensor<1x16xf32>, %h: tensor<1x2x4xf32>) {
  // expected-error@+1 {{'kitsune.recurrent' op takes 5 parts and gives 3, found 4 and 2}}
  %y:2 = "kitsune.recurrent"(%x, %w, %b, %h) {cell = "lstm", time = 1 : i64} : (tensor<2x3x16xf32>, tensor<1x4x16xf32>, tensor<1x16xf32>, tensor<1x2x4xf32>) -> (tensor<2x3x4xf32>, tensor<1x2x4xf32>)
  return
}

// -----

func.func @steps(%x: tensor<2x3x4xf32>, %w: tensor<1x4x4xf16>, %b: tensor<1x4xf32>, %h: tensor<1x2x4xf32>) {
  // expected-error@+1 {{'kitsune.recurrent' op takes tensors of f32, f16 or bf16, all of one type, found tensor<2x3x4xf32> and tensor<1x4x4xf16>}}
  %y:2 = "kitsune.recurrent"(%x, %w, %b, %h) {cell = "tanh", time = 1 : i64} : (tensor<2x3x4xf32>, tensor<1x4x4xf16>, tensor<1x4xf32>, tensor<1x2x4xf32>) -> (tensor<2x3x4xf32>, tensor<1x2x4xf32>)
  return
}

// -----

func.func @steps(%x: f32, %w: tensor<1x4x4xf32>, %b: tensor<1x4xf32>, %h: tensor<1x2x4xf32>) {
  // expected-error@+1 {{'kitsune.recurrent' op takes tensors, found f32}}
  %y:2 = "kitsune.recurrent"(%x, %w, %b, %h) {cell = "tanh", time = 1 : i64} : (f32, tensor<1x4x4xf32>, tensor<1x4xf32>, tensor<1x2x4xf32>) -> (tensor<2x3x4xf32>, tensor<1x2x4xf32>)
  return
}

// -----

func.func @steps(%x: tensor<3x4xf32>, %w: tensor<1x4x4xf32>, %b: tensor<1x4xf32>, %h: tensor<1x2x4xf32>) {
  // expected-error@+1 {{'kitsune.recurrent' op takes gates, weights and states of three dimensions, of which time is 0 or 1}}
  %y:2 = "kitsune.recurrent"(%x, %w, %b, %h) {cell = "tanh", time = 1 : i64} : (tensor<3x4xf32>, tensor<1x4x4xf32>, tensor<1x4xf32>, tensor<1x2x4xf32>) -> (tensor<2x3x4xf32>, tensor<1x2x4xf32>)
  return
}

// -----

func.func @steps(%x: tensor<2x3x5xf32>, %w: tensor<1x4x4xf32>, %b: tensor<1x4xf32>, %h: tensor<1x2x4xf32>) {
  // expected-error@+1 {{'kitsune.recurrent' op has 1 gates of a width, found [2, 3, 5], [1, 4, 4], [1, 4] and [1, 2, 4]}}
  %y:2 = "kitsune.recurrent"(%x, %w, %b, %h) {cell = "tanh", time = 1 : i64} : (tensor<2x3x5xf32>, tensor<1x4x4xf32>, tensor<1x4xf32>, tensor<1x2x4xf32>) -> (tensor<2x3x4xf32>, tensor<1x2x4xf32>)
  return
}

// -----

func.func @steps(%x: tensor<2x3x4xf32>, %w: tensor<1x4x4xf32>, %b: tensor<1x4xf32>, %h: tensor<1x2x4xf32>) {
  // expected-error@+1 {{'kitsune.recurrent' op gives states of all steps and the last ones, found [[2, 3, 8], [1, 2, 4]]}}
  %y:2 = "kitsune.recurrent"(%x, %w, %b, %h) {cell = "tanh", time = 1 : i64} : (tensor<2x3x4xf32>, tensor<1x4x4xf32>, tensor<1x4xf32>, tensor<1x2x4xf32>) -> (tensor<2x3x8xf32>, tensor<1x2x4xf32>)
  return
}
