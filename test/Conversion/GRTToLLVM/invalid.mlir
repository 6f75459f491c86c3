// RUN: galvatron-opt %s --convert-grt-to-llvm --split-input-file --verify-diagnostics

grt.func @f {
  %t = grt.buffer transient : memref<4xf32>
  // expected-error @+1 {{expected buffers with offsets: run 'galvatron-allocate-arena' first}}
  grt.begin %t : memref<4xf32>
  grt.end %t : memref<4xf32>
}

// -----

grt.func @f {}
// expected-error @+1 {{expected a schedule of role 'stage0': run 'galvatron-schedule-tasks' first}}
grt.role @stage0 stage 0 devices [0] slots 1 {
  grt.layer "a" {index = 0 : i64, strategy = #galvatron.strategy<[]>, samples = 1 : i64, forward = @f, backward = @f, tensors = [],
    groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>],
    input_bytes = 0 : i64, output_bytes = 0 : i64, stash_bytes = 0 : i64}
}

// -----

// Nothing is left out silently.
grt.func @f {}
// expected-error @+1 {{expected to have been converted before 'convert-grt-to-llvm'}}
func.func @body() {
  return
}
