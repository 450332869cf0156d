// RUN: kitsune-opt %s --convolutions-to-products --split-input-file --verify-diagnostics | filecheck %s

// CHECK-LABEL: func.func @few
// CHECK:         linalg.conv_2d_nchw_fchw
func.func @few(%x: tensor<1x2x4x4xbf16>, %f: tensor<2x2x3x3xbf16>, %z: tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xf32> {
  %c = linalg.conv_2d_nchw_fchw {dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>}
      ins(%x, %f : tensor<1x2x4x4xbf16>, tensor<2x2x3x3xbf16>) outs(%z : tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xf32>
  return %c : tensor<1x2x2x2xf32>
}

// -----

// CHECK-LABEL: func.func @begins_elsewhere
// CHECK:         linalg.conv_2d_nchw_fchw
func.func @begins_elsewhere(%x: tensor<1x64x9x9xbf16>, %f: tensor<64x64x3x3xbf16>, %z: tensor<1x64x7x7xf32>)
    -> tensor<1x64x7x7xf32> {
  // expected-remark@+1 {{is no product on tensor cores: its sums begin with something else than a number for each channel}}
  %c = linalg.conv_2d_nchw_fchw {dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>}
      ins(%x, %f : tensor<1x64x9x9xbf16>, tensor<64x64x3x3xbf16>) outs(%z : tensor<1x64x7x7xf32>)
      -> tensor<1x64x7x7xf32>
  return %c : tensor<1x64x7x7xf32>
}

// -----

// CHECK-LABEL: func.func @open_space
// CHECK:         linalg.conv_2d_nchw_fchw
func.func @open_space(%x: tensor<1x64x?x9xbf16>, %f: tensor<64x64x3x3xbf16>, %z: tensor<1x64x?x7xf32>)
    -> tensor<1x64x?x7xf32> {
  // expected-remark@+1 {{is no product on tensor cores: a size besides the batch's is open until the call}}
  %c = linalg.conv_2d_nchw_fchw {dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>}
      ins(%x, %f : tensor<1x64x?x9xbf16>, tensor<64x64x3x3xbf16>) outs(%z : tensor<1x64x?x7xf32>)
      -> tensor<1x64x?x7xf32>
  return %c : tensor<1x64x?x7xf32>
}

// -----

// CHECK-LABEL: func.func @vectors
// CHECK:         linalg.conv_1d_ncw_fcw
func.func @vectors(%x: tensor<?x64x99xbf16>, %f: tensor<1x64x3xbf16>, %n: index) -> tensor<?x1x97xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty(%n) : tensor<?x1x97xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x1x97xf32>) -> tensor<?x1x97xf32>
  // expected-remark@+1 {{is no product on tensor cores: of each of an open number of images it makes a vector, and a tile is 64 rows}}
  %c = linalg.conv_1d_ncw_fcw {dilations = dense<1> : vector<1xi64>, strides = dense<1> : vector<1xi64>}
      ins(%x, %f : tensor<?x64x99xbf16>, tensor<1x64x3xbf16>) outs(%z : tensor<?x1x97xf32>) -> tensor<?x1x97xf32>
  return %c : tensor<?x1x97xf32>
}

// -----

// CHECK-LABEL: func.func @f64
// CHECK:         linalg.conv_1d_ncw_fcw
func.func @f64(%x: tensor<1x64x99xf64>, %f: tensor<64x64x3xf64>, %z: tensor<1x64x97xf64>) -> tensor<1x64x97xf64> {
  // expected-remark@+1 {{is no product on tensor cores: it multiplies f64 with f64}}
  %c = linalg.conv_1d_ncw_fcw {dilations = dense<1> : vector<1xi64>, strides = dense<1> : vector<1xi64>}
      ins(%x, %f : tensor<1x64x99xf64>, tensor<64x64x3xf64>) outs(%z : tensor<1x64x97xf64>) -> tensor<1x64x97xf64>
  return %c : tensor<1x64x97xf64>
}

// -----

// CHECK-LABEL: func.func @f16_sums
// CHECK:         linalg.conv_1d_ncw_fcw
func.func @f16_sums(%x: tensor<1x64x99xf16>, %f: tensor<64x64x3xf16>, %z: tensor<1x64x97xf16>) -> tensor<1x64x97xf16> {
  // expected-remark@+1 {{is no product on tensor cores: its sums are no f32}}
  %c = linalg.conv_1d_ncw_fcw {dilations = dense<1> : vector<1xi64>, strides = dense<1> : vector<1xi64>}
      ins(%x, %f : tensor<1x64x99xf16>, tensor<64x64x3xf16>) outs(%z : tensor<1x64x97xf16>) -> tensor<1x64x97xf16>
  return %c : tensor<1x64x97xf16>
}

// -----

// Windows too far apart, and folded ones whose filter is dilated along a row.

// CHECK-LABEL: func.func @far_apart
// CHECK:         linalg.conv_1d_ncw_fcw
func.func @far_apart(%x: tensor<1x64x99xbf16>, %f: tensor<64x64x3xbf16>) -> tensor<1x64x11xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x64x11xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<1x64x11xf32>) -> tensor<1x64x11xf32>
  // expected-remark@+1 {{is no product on tensor cores: its windows are 9 elements apart}}
  %c = linalg.conv_1d_ncw_fcw {dilations = dense<2> : vector<1xi64>, strides = dense<9> : vector<1xi64>}
      ins(%x, %f : tensor<1x64x99xbf16>, tensor<64x64x3xbf16>) outs(%z : tensor<1x64x11xf32>) -> tensor<1x64x11xf32>
  return %c : tensor<1x64x11xf32>
}

// -----

// Three channels' filters of nine elements, four of them: 108 multiply-adds for each place.
// CHECK-LABEL: func.func @few_numbers
// CHECK:         linalg.conv_2d_nchw_fchw
func.func @few_numbers(%x: tensor<1x3x66x66xbf16>, %f: tensor<4x3x3x3xbf16>) -> tensor<1x4x64x64xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x4x64x64xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<1x4x64x64xf32>) -> tensor<1x4x64x64xf32>
  // expected-remark@+1 {{is no product on tensor cores: threads read its few numbers where they lie sooner than tensor cores multiply them}}
  %c = linalg.conv_2d_nchw_fchw {dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>}
      ins(%x, %f : tensor<1x3x66x66xbf16>, tensor<4x3x3x3xbf16>) outs(%z : tensor<1x4x64x64xf32>)
      -> tensor<1x4x64x64xf32>
  return %c : tensor<1x4x64x64xf32>
}
