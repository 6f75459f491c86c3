// RUN: galvatron-opt %s --galvatron-allocate-arena --split-input-file --verify-diagnostics | FileCheck %s

// Buffers that are not live together share memory; each is rounded up to 64.
// CHECK-LABEL: grt.func @reuse attributes {transient_bytes = 192 : i64}
grt.func @reuse {
  // CHECK: %{{.*}} = grt.buffer transient at [[#A:]] : memref<32xf32>
  %a = grt.buffer transient : memref<32xf32>
  // CHECK: %{{.*}} = grt.buffer transient at [[#B:]] : memref<1xf32>
  %b = grt.buffer transient : memref<1xf32>
  // An offset that is there is replaced.
  // CHECK: %{{.*}} = grt.buffer transient at [[#A]] : memref<32xf32>
  %c = grt.buffer transient at 640 : memref<32xf32>
  // A buffer without a use is dropped.
  // CHECK-NOT: memref<7xf32>
  %unused = grt.buffer transient : memref<7xf32>
  %view = grt.view %unused at 0 : memref<7xf32> to memref<3xf32>
  grt.begin %a : memref<32xf32>
  grt.kernel zero(%a) : memref<32xf32>
  grt.begin %b : memref<1xf32>
  grt.kernel zero(%b) : memref<1xf32>
  grt.end %a : memref<32xf32>
  grt.begin %c : memref<32xf32>
  grt.kernel zero(%c) : memref<32xf32>
  grt.end %b : memref<1xf32>
  grt.end %c : memref<32xf32>
}

// CHECK-LABEL: grt.func @nothing attributes {transient_bytes = 0 : i64}
grt.func @nothing {}

// -----

// A role that needs more than its devices have is refused with the ledger.
module attributes {
  galvatron.plan = #galvatron.plan<batch = 1, micro_batches = 1, schedule = "1f1b", pipeline_degree = 1, memory = 1000>,
  galvatron.training = #galvatron.training<optimizer = "sgd", dtype = "f64", clip = true, dropout = true>,
  grt.model = #grt.model<name = "m", data = [
    #galvatron.data<tokens, below = 8> : tensor<?x4xi32>,
    #galvatron.data<labels, below = 8> : tensor<?x4xi32>]>} {
  galvatron.parameter @w : tensor<64xf64> {init = "zeros"}
  grt.func @f {}
  // expected-error @+1 {{'grt.role' op expected at most 1000 bytes, the memory of its devices, found 5952: parameters 512 B, gradients 512 B, optimizer 512 B, workspace 4.00 KiB, runtime 320 B}}
  grt.role @stage0 stage 0 devices [0] slots 1 {
    grt.layer "a" {index = 0 : i64, strategy = #galvatron.strategy<[]>, samples = 1 : i64, forward = @f, backward = @f,
      tensors = [#galvatron.flat_tensor<parameter = @w, group = 0, offset = 0, view = [64], local_shape = [64], tp_dim = -1>],
      groups = [#galvatron.flat_group<elements = 64, shard_elements = 64>, #galvatron.flat_group<elements = 0, shard_elements = 0>],
      input_bytes = 0 : i64, output_bytes = 0 : i64, stash_bytes = 0 : i64}
  }
}

// -----

// A function must stay within what its layer sets aside.
module attributes {
  galvatron.plan = #galvatron.plan<batch = 1, micro_batches = 1, schedule = "1f1b", pipeline_degree = 1>,
  galvatron.training = #galvatron.training<optimizer = "sgd", dtype = "f32", clip = true, dropout = true>,
  grt.model = #grt.model<name = "m", data = [
    #galvatron.data<tokens, below = 8> : tensor<?x4xi32>,
    #galvatron.data<labels, below = 8> : tensor<?x4xi32>]>} {
  // expected-note @+1 {{function stands here}}
  grt.func @f attributes {stash_bytes = 256 : i64} {}
  grt.func @g {}
  grt.role @stage0 stage 0 devices [0] slots 1 {
    // expected-error @+1 {{expected 'f' to need at most 64 stash bytes, found 256}}
    grt.layer "a" {index = 0 : i64, strategy = #galvatron.strategy<[]>, samples = 1 : i64, forward = @f, backward = @g, tensors = [],
      groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>],
      input_bytes = 0 : i64, output_bytes = 0 : i64, stash_bytes = 64 : i64}
  }
}

// -----

// Roles cannot be placed without the facts of the model.
// expected-error @+1 {{expected 'galvatron.plan', 'galvatron.training' and 'grt.model' attributes on a module with roles}}
module {
  grt.func @f {}
  grt.role @stage0 stage 0 devices [0] slots 1 {
    grt.layer "a" {index = 0 : i64, strategy = #galvatron.strategy<[]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [],
      groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>],
      input_bytes = 0 : i64, output_bytes = 0 : i64, stash_bytes = 64 : i64}
  }
}
