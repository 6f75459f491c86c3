// RUN: galvatron-opt %s --cse --canonicalize | FileCheck %s

// Collectives are calls that every rank takes part in: equal ones stay apart,
// unused ones stay.
// CHECK-LABEL: func.func @two_equal_all_reduces_one_unused
// CHECK-COUNT-3: galvatron.all_reduce
// CHECK: galvatron.gather_parameters
func.func @two_equal_all_reduces_one_unused(%x: tensor<2x8xf32>) -> (tensor<2x8xf32>, tensor<2x8xf32>) {
  %0 = galvatron.all_reduce %x over tp : tensor<2x8xf32>
  %1 = galvatron.all_reduce %x over tp : tensor<2x8xf32>
  %2 = galvatron.all_reduce %x over tp : tensor<2x8xf32>
  galvatron.gather_parameters over sdp
  return %0, %1 : tensor<2x8xf32>, tensor<2x8xf32>
}
