// RUN: galvatron-opt %s -split-input-file --galvatron-insert-collectives | FileCheck %s

// A conversion belongs to the uses that list it: %p is summed once for the two that
// do, and the one between them reads the partial sum itself. So does the result.

// CHECK-LABEL: func.func private @f.forward
// CHECK: [[P:%[a-z0-9_]+]] = nn.linear
// CHECK-NEXT: [[SUM:%[a-z0-9_]+]] = galvatron.all_reduce [[P]] over{{ +}}tp
// CHECK-NEXT: [[A:%[a-z0-9_]+]] = nn.gelu [[SUM]]
// CHECK-NEXT: [[B:%[a-z0-9_]+]] = nn.scale [[P]]
// CHECK-NEXT: [[C:%[a-z0-9_]+]] = nn.add [[A]], [[SUM]]
// CHECK-NEXT: [[D:%[a-z0-9_]+]] = galvatron.all_reduce [[B]] over{{ +}}tp
// CHECK-NEXT: return [[C]], [[D]], [[P]]
func.func private @f.forward(%x: tensor<4x8xf32> {nn.role = "stash", galvatron.slice = #galvatron.slice<state = <[split 1]>>},
    %w: tensor<8x16xf32> {nn.role = "parameter", galvatron.slice = #galvatron.slice<global_shape = [8, 16], state = <[split 0]>>})
    -> (tensor<4x16xf32> {nn.role = "output"}, tensor<4x16xf32> {nn.role = "output"}, tensor<4x16xf32> {nn.role = "stash"})
    attributes {galvatron.partition = #galvatron.partition<direction = forward, axes = [tp = 2]>} {
  %p = nn.linear %x, %w {galvatron.sharding = #galvatron.sharding<results = ([unreduced]), factors = [1]>} : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
  %a = nn.gelu %p {galvatron.sharding = #galvatron.sharding<results = ([replicated]), operands = {0 = [replicated]}>} : (tensor<4x16xf32>) -> tensor<4x16xf32>
  %b = nn.scale %p {factor = 2.0 : f64, galvatron.sharding = #galvatron.sharding<results = ([unreduced])>} : (tensor<4x16xf32>) -> tensor<4x16xf32>
  %s = nn.add %a, %p {galvatron.sharding = #galvatron.sharding<results = ([replicated]), operands = {1 = [replicated]}>} : (tensor<4x16xf32>, tensor<4x16xf32>) -> tensor<4x16xf32>
  return {galvatron.sharding = #galvatron.sharding<operands = {1 = [replicated]}>} %s, %b, %p : tensor<4x16xf32>, tensor<4x16xf32>, tensor<4x16xf32>
}

// -----

// Rows of a sum and the sum are made of each other: whichever comes first is the one
// that the terms are added for.

// CHECK-LABEL: func.func private @rows_first.forward
// CHECK: [[P:%[a-z0-9_]+]] = nn.linear
// CHECK-NEXT: [[ROWS:%[a-z0-9_]+]] = galvatron.reduce_scatter_rows [[P]] over{{ +}}tp : tensor<4x3x16xf32> -> tensor<6x16xf32, #nn.rows<length = 3, degree = 2>>
// CHECK-NEXT: [[A:%[a-z0-9_]+]] = nn.gelu [[ROWS]]
// CHECK-NEXT: [[SUM:%[a-z0-9_]+]] = galvatron.gather_rows [[ROWS]]
// CHECK-NEXT: [[B:%[a-z0-9_]+]] = nn.relu [[SUM]]
// CHECK-NEXT: [[OUT:%[a-z0-9_]+]] = galvatron.gather_rows [[A]]
// CHECK-NEXT: return [[OUT]], [[B]]
func.func private @rows_first.forward(%x: tensor<4x3x8xf32> {nn.role = "stash", galvatron.slice = #galvatron.slice<state = <[split 2]>>},
    %w: tensor<8x16xf32> {nn.role = "parameter", galvatron.slice = #galvatron.slice<global_shape = [8, 16], state = <[split 0]>>})
    -> (tensor<4x3x16xf32> {nn.role = "output"}, tensor<4x3x16xf32> {nn.role = "output"})
    attributes {galvatron.partition = #galvatron.partition<direction = forward, axes = [tsp = 2]>} {
  %p = nn.linear %x, %w {galvatron.sharding = #galvatron.sharding<results = ([unreduced]), factors = [2]>} : (tensor<4x3x8xf32>, tensor<8x16xf32>) -> tensor<4x3x16xf32>
  %a = nn.gelu %p {galvatron.sharding = #galvatron.sharding<results = ([rows]), operands = {0 = [rows]}>} : (tensor<4x3x16xf32>) -> tensor<4x3x16xf32>
  %b = nn.relu %p {galvatron.sharding = #galvatron.sharding<results = ([replicated]), operands = {0 = [replicated]}>} : (tensor<4x3x16xf32>) -> tensor<4x3x16xf32>
  return {galvatron.sharding = #galvatron.sharding<operands = {0 = [replicated]}>} %a, %b : tensor<4x3x16xf32>, tensor<4x3x16xf32>
}

// CHECK-LABEL: func.func private @sum_first.forward
// CHECK: [[P:%[a-z0-9_]+]] = nn.linear
// CHECK-NEXT: [[SUM:%[a-z0-9_]+]] = galvatron.all_reduce [[P]]
// CHECK-NEXT: [[B:%[a-z0-9_]+]] = nn.relu [[SUM]]
// CHECK-NEXT: [[ROWS:%[a-z0-9_]+]] = galvatron.slice_rows [[SUM]] over{{ +}}tp : tensor<4x3x16xf32> -> tensor<6x16xf32, #nn.rows<length = 3, degree = 2>>
// CHECK-NEXT: nn.gelu [[ROWS]]
func.func private @sum_first.forward(%x: tensor<4x3x8xf32> {nn.role = "stash", galvatron.slice = #galvatron.slice<state = <[split 2]>>},
    %w: tensor<8x16xf32> {nn.role = "parameter", galvatron.slice = #galvatron.slice<global_shape = [8, 16], state = <[split 0]>>})
    -> (tensor<4x3x16xf32> {nn.role = "output"}, tensor<4x3x16xf32> {nn.role = "output"})
    attributes {galvatron.partition = #galvatron.partition<direction = forward, axes = [tsp = 2]>} {
  %p = nn.linear %x, %w {galvatron.sharding = #galvatron.sharding<results = ([unreduced]), factors = [2]>} : (tensor<4x3x8xf32>, tensor<8x16xf32>) -> tensor<4x3x16xf32>
  %b = nn.relu %p {galvatron.sharding = #galvatron.sharding<results = ([replicated]), operands = {0 = [replicated]}>} : (tensor<4x3x16xf32>) -> tensor<4x3x16xf32>
  %a = nn.gelu %p {galvatron.sharding = #galvatron.sharding<results = ([rows]), operands = {0 = [rows]}>} : (tensor<4x3x16xf32>) -> tensor<4x3x16xf32>
  return {galvatron.sharding = #galvatron.sharding<operands = {0 = [replicated]}>} %a, %b : tensor<4x3x16xf32>, tensor<4x3x16xf32>
}
