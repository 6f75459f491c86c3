// RUN: galvatron-reduce %s -reduction-tree='traversal-mode=0 test=%S/Inputs/holds_a_product.sh' | FileCheck %s
// RUN: sed '/@product/,$d' %s > %t.dull.mlir
// RUN: not galvatron-reduce %t.dull.mlir -reduction-tree='traversal-mode=0 test=%S/Inputs/holds_a_product.sh' -o %t.none 2>&1 | FileCheck %s --check-prefix=DULL
// DULL: warning: uninterested module will not be reduced
// What is tried is often no module any more, which is nobody's concern; a file
// that is none is.
// RUN: galvatron-reduce %s -reduction-tree='traversal-mode=0 test=%S/Inputs/holds_a_product.sh' -o %t.small 2>&1 | count 0
// RUN: echo 'func.func @x( {' > %t.bad.mlir
// RUN: not galvatron-reduce %t.bad.mlir -reduction-tree='traversal-mode=0 test=%S/Inputs/holds_a_product.sh' 2>&1 | FileCheck %s --check-prefix=BAD
// BAD: bad.mlir:1:14: error: expected non-function type

// CHECK-NOT: @unrelated
// CHECK: func.func private @product
// CHECK: nn.linear
func.func private @unrelated(%x: tensor<?x4x8xf32>) -> tensor<?x4x8xf32> {
  %0 = nn.gelu %x : (tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
  return %0 : tensor<?x4x8xf32>
}
func.func private @product(%x: tensor<?x4x8xf32>, %w: tensor<8x8xf32>) -> tensor<?x4x8xf32> {
  %0 = nn.linear %x, %w : (tensor<?x4x8xf32>, tensor<8x8xf32>) -> tensor<?x4x8xf32>
  return %0 : tensor<?x4x8xf32>
}
