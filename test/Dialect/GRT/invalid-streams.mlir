// RUN: galvatron-opt %s --split-input-file --verify-diagnostics

//===----------------------------------------------------------------------===//
// grt.record, grt.wait
//===----------------------------------------------------------------------===//

// C1
grt.func @f {
  // expected-error @+1 {{expected an event of 0 to 63, found 64}}
  grt.record 64 on compute
}

// -----

// C1
grt.func @f {
  // expected-error @+1 {{expected an event of 0 to 63, found -1}}
  grt.wait -1 on gather
}

// -----

//===----------------------------------------------------------------------===//
// grt.func
//===----------------------------------------------------------------------===//

// C4: recorded twice
grt.func @f {
  // expected-note @+1 {{first recorded here}}
  grt.record 0 on compute
  // expected-error @+1 {{expected one record of an event, found a second}}
  grt.record 0 on gather
}

// -----

// C4: waited for before it is recorded
grt.func @f {
  // expected-error @+1 {{expected event 3 to be recorded before, found no record of it}}
  grt.wait 3 on gather
  grt.record 3 on compute
}

// -----

// C4: waited for on its own stream
grt.func @f {
  // expected-note @+1 {{recorded here}}
  grt.record 0 on gather
  // expected-error @+1 {{expected to wait on another stream than the event's, found the same}}
  grt.wait 0 on gather
}

// -----

// C4: never waited for
grt.func @f {
  // expected-error @+1 {{expected a wait for the event, found none}}
  grt.record 0 on compute
}

// -----

// C5: read before it is there
grt.func @f {
  %shard = grt.buffer parameter at 0 : memref<64xf32>
  %full = grt.buffer stash at 0 : memref<2x64xf32>
  %y = grt.buffer output at 0 : memref<2x64xf32>
  grt.record 0 on compute
  grt.wait 0 on gather
  // expected-note @+1 {{for what stands here}}
  grt.all_gather %shard to %full over sdp on gather : memref<64xf32> to memref<2x64xf32>
  // expected-error @+1 {{expected stream 'compute' to wait for stream 'gather' before, found no wait}}
  grt.kernel scale(%full, %y) ints [128] reals [2.0] : memref<2x64xf32>, memref<2x64xf32>
}

// -----

// C5: overwritten while it is read
grt.func @f {
  %shard = grt.buffer parameter at 0 : memref<64xf32>
  %full = grt.buffer stash at 0 : memref<2x64xf32>
  %y = grt.buffer output at 0 : memref<2x64xf32>
  grt.record 0 on compute
  // expected-note @+1 {{for what stands here}}
  grt.kernel scale(%full, %y) ints [128] reals [2.0] : memref<2x64xf32>, memref<2x64xf32>
  grt.wait 0 on gather
  // expected-error @+1 {{expected stream 'gather' to wait for stream 'compute' before, found no wait}}
  grt.all_gather %shard to %full over sdp on gather : memref<64xf32> to memref<2x64xf32>
  grt.record 1 on gather
  grt.wait 1 on compute
}

// -----

// C5: the slice of the source that a sum waits in is a write
grt.func @f {
  %full = grt.buffer stash at 0 : memref<2x64xf32>
  %sum = grt.buffer gradient at 0 : memref<64xf32>
  %y = grt.buffer output at 0 : memref<2x64xf32>
  grt.record 0 on compute
  grt.wait 0 on gradient
  // expected-note @+1 {{for what stands here}}
  grt.reduce_scatter %full to %sum over sdp acc 2 on gradient : memref<2x64xf32> to memref<64xf32>
  grt.record 1 on gradient
  // expected-error @+1 {{expected stream 'compute' to wait for stream 'gradient' before, found no wait}}
  grt.kernel scale(%full, %y) ints [128] reals [2.0] : memref<2x64xf32>, memref<2x64xf32>
  grt.wait 1 on compute
}

// -----

// C5: used before the mark that gives it memory
grt.func @f {
  %shard = grt.buffer parameter at 0 : memref<64xf32>
  %y = grt.buffer output at 0 : memref<64xf32>
  %full = grt.buffer transient : memref<2x64xf32>
  grt.record 0 on compute
  grt.wait 0 on gather
  // expected-note @+1 {{for what stands here}}
  grt.kernel zero(%y) : memref<64xf32>
  grt.begin %full : memref<2x64xf32>
  // expected-error @+1 {{expected stream 'gather' to wait for stream 'compute' before, found no wait}}
  grt.all_gather %shard to %full over sdp on gather : memref<64xf32> to memref<2x64xf32>
  grt.record 1 on gather
  grt.wait 1 on compute
  grt.end %full : memref<2x64xf32>
}

// -----

// C5: memory given away while it is used
grt.func @f {
  %full = grt.buffer transient : memref<2x64xf32>
  %sum = grt.buffer gradient at 0 : memref<64xf32>
  grt.begin %full : memref<2x64xf32>
  grt.kernel zero(%full) : memref<2x64xf32>
  grt.record 0 on compute
  grt.wait 0 on gradient
  // expected-note @+1 {{for what stands here}}
  grt.reduce_scatter %full to %sum over sdp on gradient : memref<2x64xf32> to memref<64xf32>
  grt.record 1 on gradient
  // expected-error @+1 {{expected stream 'compute' to wait for stream 'gradient' before, found no wait}}
  grt.end %full : memref<2x64xf32>
  grt.wait 1 on compute
}

// -----

// C5: two collectives over one axis
grt.func @f {
  %shard = grt.buffer parameter at 0 : memref<64xf32>
  %full = grt.buffer stash at 0 : memref<2x64xf32>
  %other = grt.buffer stash at 512 : memref<2x64xf32>
  grt.record 0 on compute
  grt.wait 0 on gather
  // expected-note @+1 {{for what stands here}}
  grt.all_gather %shard to %full over sdp on gather : memref<64xf32> to memref<2x64xf32>
  grt.record 1 on gather
  // expected-error @+1 {{expected stream 'compute' to wait for stream 'gather' before, found no wait}}
  grt.all_gather %shard to %other over sdp : memref<64xf32> to memref<2x64xf32>
  grt.wait 1 on compute
}

// -----

// C6: before the function's start
// expected-note @+1 {{for the function's start}}
grt.func @f {
  %shard = grt.buffer parameter at 0 : memref<64xf32>
  %full = grt.buffer stash at 0 : memref<2x64xf32>
  // expected-error @+1 {{expected stream 'gather' to wait for stream 'compute' before, found no wait}}
  grt.all_gather %shard to %full over sdp on gather : memref<64xf32> to memref<2x64xf32>
  grt.record 1 on gather
  grt.wait 1 on compute
}

// -----

// C6: not joined
grt.func @f {
  %shard = grt.buffer parameter at 0 : memref<64xf32>
  %full = grt.buffer stash at 0 : memref<2x64xf32>
  grt.record 0 on compute
  grt.wait 0 on gather
  // expected-note @+1 {{for what stands here}}
  grt.all_gather %shard to %full over sdp on gather : memref<64xf32> to memref<2x64xf32>
  // expected-error @+1 {{expected stream 'compute' to wait for stream 'gather' before, found no wait}}
  grt.return
}
