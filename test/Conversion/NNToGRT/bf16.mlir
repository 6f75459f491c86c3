// RUN: galvatron-opt %s --pass-pipeline='builtin.module(galvatron-differentiate-layers,galvatron-insert-recompute,galvatron-partition-layers,galvatron-insert-collectives,func.func(nn-fuse),convert-nn-to-grt)' | FileCheck %s

// Activations, their gradients and parameters are bf16. Row statistics and
// gradients of parameters are f32, and so are the moments and the master weights
// of the optimizer: three values for every element of the shard. Under SDP the
// gather moves bf16, the reduce-scatter f32.

module attributes {galvatron.plan = #galvatron.plan<batch = 8, micro_batches = 2, schedule = "1f1b", pipeline_degree = 1>, galvatron.training = #galvatron.training<optimizer = "adamw", dtype = "bf16", clip = true, dropout = true>} {
galvatron.parameter @"wte" : tensor<64x16xbf16> {init = "normal", std = 2.0e-2 : f64, decay}
galvatron.parameter @"g" : tensor<16xbf16> {init = "ones"}
galvatron.parameter @"b" : tensor<16xbf16> {init = "zeros"}
galvatron.parameter @"w" : tensor<16x64xbf16> {init = "normal", std = 2.0e-2 : f64, decay}
func.func private @embed(%tokens: tensor<?x8xi32>, %wte: tensor<64x16xbf16>) -> tensor<?x8x16xbf16> {
  %0 = nn.embedding %tokens, %wte : (tensor<?x8xi32>, tensor<64x16xbf16>) -> tensor<?x8x16xbf16>
  return %0 : tensor<?x8x16xbf16>
}
func.func private @head(%x: tensor<?x8x16xbf16>, %labels: tensor<?x8xi32>, %g: tensor<16xbf16>, %b: tensor<16xbf16>, %w: tensor<16x64xbf16>) -> tensor<1xf64> {
  %n, %s = nn.layer_norm %x, %g, %b {eps = 1.0e-5 : f64} : (tensor<?x8x16xbf16>, tensor<16xbf16>, tensor<16xbf16>) -> (tensor<?x8x16xbf16>, tensor<?x8x2xf32>)
  %h = nn.linear %n, %w : (tensor<?x8x16xbf16>, tensor<16x64xbf16>) -> tensor<?x8x64xbf16>
  %loss, %d = nn.cross_entropy %h, %labels {classes = 64 : i64} : (tensor<?x8x64xbf16>, tensor<?x8xi32>) -> (tensor<1xf64>, tensor<?x8x64xbf16>)
  return %loss : tensor<1xf64>
}
galvatron.model @m(%tokens: tensor<?x8xi32> is <tokens, below = 64>, %labels: tensor<?x8xi32> is <labels, below = 64>) {
  %0 = galvatron.layer "wte" @embed(%tokens) params [@"wte"] {strategy = #galvatron.strategy<[sdp = 2]>, stage = 0 : i64} : (tensor<?x8xi32>) -> tensor<?x8x16xbf16>
  %1 = galvatron.layer "head" @head(%0, %labels) params [@"g", @"b", @"w"] {strategy = #galvatron.strategy<[sdp = 2]>, stage = 0 : i64} : (tensor<?x8x16xbf16>, tensor<?x8xi32>) -> tensor<1xf64>
  galvatron.output %1 : tensor<1xf64>
}
}

// CHECK-LABEL: grt.func @embed.sdp2.b2.forward
// CHECK: grt.all_gather {{.*}} : memref<512xbf16> to memref<1024xbf16>

// CHECK-LABEL: grt.func @embed.sdp2.b2.backward
// CHECK: grt.kernel embedding_grad({{.*}}) {{.*}} : memref<2x8xi32>, memref<2x8x16xbf16>, memref<64x16xf32>
// CHECK: grt.reduce_scatter {{.*}} : memref<1024xf32> to memref<512xf32>

// CHECK-LABEL: grt.func @head.sdp2.b2.forward
// CHECK: grt.kernel layer_norm({{.*}}) {{.*}} memref<2x8x16xbf16>, memref<2x8x2xf32>
// CHECK: grt.kernel gemm({{.*}}) {{.*}} : memref<2x8x16xbf16>, memref<16x64xbf16>, memref<2x8x64xbf16>
// CHECK: grt.kernel softmax_cross_entropy({{.*}}) {{.*}} : memref<2x8x64xbf16>, memref<2x8xi32>, memref<16x3xf32>, memref<2x8x64xbf16>, memref<1xf64>

// CHECK-LABEL: grt.func @head.sdp2.b2.backward
// CHECK: grt.kernel gemm({{.*}}) {{.*}} {label = "linear_input_grad"} : memref<2x8x64xbf16>, memref<16x64xbf16>, memref<2x8x16xbf16>
// CHECK: grt.kernel gemm({{.*}}) {{.*}} {label = "linear_weight_grad"} : memref<2x8x16xbf16>, memref<2x8x64xbf16>, memref<16x64xf32>
// CHECK: grt.kernel layer_norm_grad({{.*}}) {{.*}} memref<2x8x16xbf16>, memref<16xf32>, memref<16xf32>

// CHECK-LABEL: grt.func @embed.sdp2.b2.update
// CHECK: grt.kernel optimizer({{.*}}) ints [2, 512, 1, 0, 1024, 1] {label = "adamw"} : memref<512xbf16>, memref<512xf32>, memref<1536xf32>
