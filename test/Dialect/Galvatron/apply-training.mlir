// RUN: galvatron-opt %s "--galvatron-apply-training=dtype=f64 dropout=false optimizer=sgd clip=false" | FileCheck %s --check-prefixes=CHECK,F64
// RUN: galvatron-opt %s --galvatron-apply-training=dtype=bf16 | FileCheck %s --check-prefixes=CHECK,BF16
// Plans for types that nothing computes in: values of as many bytes.
// RUN: galvatron-opt %s --galvatron-apply-training=dtype=f16 | FileCheck %s --check-prefix=HALF
// RUN: galvatron-opt %s --galvatron-apply-training=dtype=tf32 | FileCheck %s --check-prefix=TF32
// There and back again.
// RUN: galvatron-opt %s --galvatron-apply-training=dtype=f64 --galvatron-apply-training=dtype=f32 | FileCheck %s --check-prefixes=CHECK,F32
// RUN: not galvatron-opt %s --galvatron-apply-training=dtype=f8 2>&1 | FileCheck %s --check-prefix=BAD
// Losses with terms are two numbers, in bodies, layers and the model.
// RUN: galvatron-opt %s "--galvatron-apply-training=label-smoothing=0.1 z-loss=1e-4 dtype=f64" | FileCheck %s --check-prefix=TERMS
// RUN: not galvatron-opt %s --galvatron-apply-training=label-smoothing=1 2>&1 | FileCheck %s --check-prefix=WRONG
// TERMS: clip = true, dropout = true, label_smoothing = 1.000000e-01 : f64, z_loss = 1.000000e-04 : f64>
// TERMS-LABEL: @head
// TERMS-SAME: -> tensor<2xf64>
// TERMS: nn.cross_entropy {{.*}} smoothing = 1.000000e-01 : f64, z_loss = 1.000000e-04 : f64} {{.*}} -> (tensor<2xf64>
// TERMS: galvatron.layer "h" {{.*}} -> tensor<2xf64>
// TERMS: galvatron.output %{{.*}} : tensor<2xf64>
// WRONG: expected a label smoothing from 0 to below 1, found 1

// F64: galvatron.training = #galvatron.training<optimizer = "sgd", dtype = "f64", clip = false, dropout = false>
// BF16: galvatron.training = #galvatron.training<optimizer = "adamw", dtype = "bf16", clip = true, dropout = true>
// F64: galvatron.parameter @g : tensor<12xf64>
// BF16: galvatron.parameter @g : tensor<12xbf16>
// F32: galvatron.parameter @g : tensor<12xf32>
// BAD: expected 'dtype' to be 'f32', 'tf32', 'f16', 'bf16' or 'f64', found 'f8'
// HALF: galvatron.training = #galvatron.training<optimizer = "adamw", dtype = "f16"
// HALF: galvatron.parameter @g : tensor<12xbf16>
// TF32: galvatron.training = #galvatron.training<optimizer = "adamw", dtype = "tf32"
// TF32: galvatron.parameter @g : tensor<12xf32>
galvatron.parameter @g : tensor<12xf32> {init = "ones"}
galvatron.parameter @w : tensor<12x36xf32> {init = "ones"}
galvatron.parameter @v : tensor<32x12xf32> {init = "ones"}

// Row statistics have the accumulator type.
// CHECK-LABEL: @body
// F64: nn.layer_norm {{.*}} -> (tensor<?x4x12xf64>, tensor<?x4x2xf64>)
// BF16: nn.layer_norm {{.*}} -> (tensor<?x4x12xbf16>, tensor<?x4x2xf32>)
// F32: nn.layer_norm {{.*}} -> (tensor<?x4x12xf32>, tensor<?x4x2xf32>)
// F64: nn.attention {{.*}} {causal, heads = 3 : i64, scale
// F64-SAME: tensor<?x3x4xf64>
// F64-NOT: nn.dropout
// BF16: nn.attention {{.*}} dropout = 1.000000e-01 : f64{{.*}} tensor<?x3x4xf32>
// BF16: nn.dropout
func.func private @body(%x: tensor<?x4x12xf32>, %g: tensor<12xf32>, %w: tensor<12x3x12xf32>) -> tensor<?x4x12xf32> {
  %y, %s = nn.layer_norm %x, %g, %g {eps = 1.0e-5 : f64} : (tensor<?x4x12xf32>, tensor<12xf32>, tensor<12xf32>) -> (tensor<?x4x12xf32>, tensor<?x4x2xf32>)
  %q = nn.linear %y, %w : (tensor<?x4x12xf32>, tensor<12x3x12xf32>) -> tensor<?x4x3x12xf32>
  %o, %l = nn.attention %q {heads = 3 : i64, causal, scale = 0.5 : f64, dropout = 1.0e-1 : f64} : (tensor<?x4x3x12xf32>) -> (tensor<?x4x12xf32>, tensor<?x3x4xf32>)
  %d = nn.dropout %o {p = 1.0e-1 : f64, op_index = 1 : i64} : (tensor<?x4x12xf32>) -> tensor<?x4x12xf32>
  return %d : tensor<?x4x12xf32>
}
// A loss is f64 whatever the element type.
// CHECK-LABEL: @head
// CHECK-SAME: -> tensor<1xf64>
// CHECK: nn.cross_entropy {{.*}} -> (tensor<1xf64>
func.func private @head(%x: tensor<?x4x12xf32>, %t: tensor<?x4xi32>, %v: tensor<32x12xf32>) -> tensor<1xf64> {
  %0 = nn.linear %x, %v {transpose_weight} : (tensor<?x4x12xf32>, tensor<32x12xf32>) -> tensor<?x4x32xf32>
  %loss, %g = nn.cross_entropy %0, %t {classes = 32 : i64} : (tensor<?x4x32xf32>, tensor<?x4xi32>) -> (tensor<1xf64>, tensor<?x4x32xf32>)
  return %loss : tensor<1xf64>
}
// CHECK: galvatron.model @m
// F64: galvatron.layer "b" {{.*}} -> tensor<?x4x12xf64>
// CHECK: galvatron.output %{{.*}} : tensor<1xf64>
galvatron.model @m(%x: tensor<?x4x12xf32> is <images>, %t: tensor<?x4xi32> is <tokens, below = 32>) {
  %0 = galvatron.layer "b" @body(%x) params [@g, @w] : (tensor<?x4x12xf32>) -> tensor<?x4x12xf32>
  %1 = galvatron.layer "h" @head(%0, %t) params [@v] : (tensor<?x4x12xf32>, tensor<?x4xi32>) -> tensor<1xf64>
  galvatron.output %1 : tensor<1xf64>
}
