// RUN: galvatron-opt %s --galvatron-annotate-costs | FileCheck %s

// A relative bias moves what its table has and computes nothing: the layer has
// the 6 * 15 operations of the sum. The table's gradient adds as many numbers.

galvatron.parameter @table : tensor<32x6xf32> {init = "ones"}

func.func private @bias(%x: tensor<?x6x15xf32>, %table: tensor<32x6xf32>) -> tensor<?x6x15xf32> {
  %0 = nn.relative_bias %table {bidirectional, max_distance = 128 : i64} : (tensor<32x6xf32>) -> tensor<?x6x15xf32>
  %1 = nn.add %x, %0 : (tensor<?x6x15xf32>, tensor<?x6x15xf32>) -> tensor<?x6x15xf32>
  return %1 : tensor<?x6x15xf32>
}

galvatron.model @m(%x: tensor<?x6x15xf32> is <images>) {
  // CHECK: galvatron.layer "a"
  // CHECK-SAME: forward_flops = 9.000000e+01 : f64
  %0 = galvatron.layer "a" @bias(%x) params [@table] : (tensor<?x6x15xf32>) -> tensor<?x6x15xf32>
  galvatron.output %0 : tensor<?x6x15xf32>
}
