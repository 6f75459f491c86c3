// RUN: galvatron-opt %s -split-input-file -verify-diagnostics --galvatron-differentiate-layers --galvatron-partition-layers

// Six units do not divide by four.

module attributes {galvatron.plan = #galvatron.plan<batch = 8, micro_batches = 2, schedule = "1f1b", pipeline_degree = 1>, galvatron.training = #galvatron.training<optimizer = "adamw", dtype = "f32", clip = true, dropout = true>} {
galvatron.parameter @wi : tensor<16x24xf32> {init = "zeros"}
galvatron.parameter @wf : tensor<24x16xf32> {init = "zeros"}
func.func private @body(%x: tensor<?x8x16xf32>, %wi: tensor<16x24xf32> {nn.factors = ["", "ffn"]}, %wf: tensor<24x16xf32> {nn.factors = ["ffn", ""]}) -> tensor<?x8x16xf32>
    attributes {nn.factor_units = {ffn = 6 : i64}} {
  %h = nn.linear %x, %wi : (tensor<?x8x16xf32>, tensor<16x24xf32>) -> tensor<?x8x24xf32>
  %y = nn.linear %h, %wf : (tensor<?x8x24xf32>, tensor<24x16xf32>) -> tensor<?x8x16xf32>
  return %y : tensor<?x8x16xf32>
}
galvatron.model @m(%x: tensor<?x8x16xf32> is <images>) {
  // expected-error@below {{layer 'l' cannot have strategy 'tp4': factor 'ffn' has 6 units, which tensor parallel degree 4 does not divide}}
  %0 = galvatron.layer "l" @body(%x) params [@wi, @wf] {strategy = #galvatron.strategy<[tp = 4]>, stage = 0 : i64} : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  galvatron.output %0 : tensor<?x8x16xf32>
}
}

// -----

// Ceil-sized shards of two units leave nothing for the fourth rank.

module attributes {galvatron.plan = #galvatron.plan<batch = 8, micro_batches = 2, schedule = "1f1b", pipeline_degree = 1>, galvatron.training = #galvatron.training<optimizer = "adamw", dtype = "f32", clip = true, dropout = true>} {
galvatron.parameter @wi : tensor<16x5xf32> {init = "zeros"}
galvatron.parameter @wf : tensor<5x16xf32> {init = "zeros"}
func.func private @body(%x: tensor<?x8x16xf32>, %wi: tensor<16x5xf32> {nn.factors = ["", "ffn"]}, %wf: tensor<5x16xf32> {nn.factors = ["ffn", ""]}) -> tensor<?x8x16xf32>
    attributes {nn.factor_units = {ffn = 5 : i64}, nn.uneven = ["ffn"]} {
  %h = nn.linear %x, %wi : (tensor<?x8x16xf32>, tensor<16x5xf32>) -> tensor<?x8x5xf32>
  %y = nn.linear %h, %wf : (tensor<?x8x5xf32>, tensor<5x16xf32>) -> tensor<?x8x16xf32>
  return %y : tensor<?x8x16xf32>
}
galvatron.model @m(%x: tensor<?x8x16xf32> is <images>) {
  // expected-error@below {{layer 'l' cannot have strategy 'tp4': factor 'ffn' has 5 units, too few for a shard on each of 4 ranks}}
  %0 = galvatron.layer "l" @body(%x) params [@wi, @wf] {strategy = #galvatron.strategy<[tp = 4]>, stage = 0 : i64} : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  galvatron.output %0 : tensor<?x8x16xf32>
}
}

// -----

// Six units fill three shards of two exactly; the fourth rank has none.

module attributes {galvatron.plan = #galvatron.plan<batch = 8, micro_batches = 2, schedule = "1f1b", pipeline_degree = 1>, galvatron.training = #galvatron.training<optimizer = "adamw", dtype = "f32", clip = true, dropout = true>} {
galvatron.parameter @wi : tensor<16x6xf32> {init = "zeros"}
galvatron.parameter @wf : tensor<6x16xf32> {init = "zeros"}
func.func private @body(%x: tensor<?x8x16xf32>, %wi: tensor<16x6xf32> {nn.factors = ["", "ffn"]}, %wf: tensor<6x16xf32> {nn.factors = ["ffn", ""]}) -> tensor<?x8x16xf32>
    attributes {nn.factor_units = {ffn = 6 : i64}, nn.uneven = ["ffn"]} {
  %h = nn.linear %x, %wi : (tensor<?x8x16xf32>, tensor<16x6xf32>) -> tensor<?x8x6xf32>
  %y = nn.linear %h, %wf : (tensor<?x8x6xf32>, tensor<6x16xf32>) -> tensor<?x8x16xf32>
  return %y : tensor<?x8x16xf32>
}
galvatron.model @m(%x: tensor<?x8x16xf32> is <images>) {
  // expected-error@below {{layer 'l' cannot have strategy 'tp4': factor 'ffn' has 6 units, too few for a shard on each of 4 ranks}}
  %0 = galvatron.layer "l" @body(%x) params [@wi, @wf] {strategy = #galvatron.strategy<[tp = 4]>, stage = 0 : i64} : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  galvatron.output %0 : tensor<?x8x16xf32>
}
}

// -----

// Seven units are enough: the fourth rank has one of two.

module attributes {galvatron.plan = #galvatron.plan<batch = 8, micro_batches = 2, schedule = "1f1b", pipeline_degree = 1>, galvatron.training = #galvatron.training<optimizer = "adamw", dtype = "f32", clip = true, dropout = true>} {
galvatron.parameter @wi : tensor<16x7xf32> {init = "zeros"}
galvatron.parameter @wf : tensor<7x16xf32> {init = "zeros"}
func.func private @body(%x: tensor<?x8x16xf32>, %wi: tensor<16x7xf32> {nn.factors = ["", "ffn"]}, %wf: tensor<7x16xf32> {nn.factors = ["ffn", ""]}) -> tensor<?x8x16xf32>
    attributes {nn.factor_units = {ffn = 7 : i64}, nn.uneven = ["ffn"]} {
  %h = nn.linear %x, %wi : (tensor<?x8x16xf32>, tensor<16x7xf32>) -> tensor<?x8x7xf32>
  %y = nn.linear %h, %wf : (tensor<?x8x7xf32>, tensor<7x16xf32>) -> tensor<?x8x16xf32>
  return %y : tensor<?x8x16xf32>
}
galvatron.model @m(%x: tensor<?x8x16xf32> is <images>) {
  %0 = galvatron.layer "l" @body(%x) params [@wi, @wf] {strategy = #galvatron.strategy<[tp = 4]>, stage = 0 : i64} : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  galvatron.output %0 : tensor<?x8x16xf32>
}
}

// -----

module attributes {galvatron.plan = #galvatron.plan<batch = 8, micro_batches = 2, schedule = "1f1b", pipeline_degree = 1>, galvatron.training = #galvatron.training<optimizer = "adamw", dtype = "f32", clip = true, dropout = true>} {
galvatron.parameter @wi : tensor<16x24xf32> {init = "zeros"}
galvatron.parameter @wf : tensor<24x16xf32> {init = "zeros"}
func.func private @body(%x: tensor<?x8x16xf32>, %wi: tensor<16x24xf32> {nn.factors = ["", "ffn"]}, %wf: tensor<24x16xf32> {nn.factors = ["ffn", ""]}) -> tensor<?x8x16xf32>
    attributes {nn.factor_units = {ffn = 24 : i64}} {
  %h = nn.linear %x, %wi : (tensor<?x8x16xf32>, tensor<16x24xf32>) -> tensor<?x8x24xf32>
  %y = nn.linear %h, %wf : (tensor<?x8x24xf32>, tensor<24x16xf32>) -> tensor<?x8x16xf32>
  return %y : tensor<?x8x16xf32>
}
galvatron.model @m(%x: tensor<?x8x16xf32> is <images>) {
  // expected-error@below {{strategy 'dp4.sdp2' cuts a micro-batch into 8 blocks, which does not divide its 4 samples}}
  %0 = galvatron.layer "l" @body(%x) params [@wi, @wf] {strategy = #galvatron.strategy<[dp = 4, sdp = 2]>, stage = 0 : i64} : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  galvatron.output %0 : tensor<?x8x16xf32>
}
}

// -----

module attributes {galvatron.plan = #galvatron.plan<batch = 8, micro_batches = 2, schedule = "1f1b", pipeline_degree = 1>, galvatron.training = #galvatron.training<optimizer = "adamw", dtype = "f32", clip = true, dropout = true>} {
galvatron.parameter @wi : tensor<16x24xf32> {init = "zeros"}
galvatron.parameter @wf : tensor<24x16xf32> {init = "zeros"}
func.func private @body(%x: tensor<?x8x16xf32>, %wi: tensor<16x24xf32> {nn.factors = ["", "ffn"]}, %wf: tensor<24x16xf32> {nn.factors = ["ffn", ""]}) -> tensor<?x8x16xf32>
    attributes {nn.factor_units = {ffn = 24 : i64}} {
  %h = nn.linear %x, %wi : (tensor<?x8x16xf32>, tensor<16x24xf32>) -> tensor<?x8x24xf32>
  %y = nn.linear %h, %wf : (tensor<?x8x24xf32>, tensor<24x16xf32>) -> tensor<?x8x16xf32>
  return %y : tensor<?x8x16xf32>
}
galvatron.model @m(%x: tensor<?x8x16xf32> is <images>) {
  // expected-error@below {{expected layer 'l' to have a strategy and to be differentiated}}
  %0 = galvatron.layer "l" @body(%x) params [@wi, @wf] {stage = 0 : i64} : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  galvatron.output %0 : tensor<?x8x16xf32>
}
}

// -----

// expected-error@below {{expected a 'galvatron.plan' with the batch and the micro-batches to partition for}}
module attributes {galvatron.training = #galvatron.training<optimizer = "adamw", dtype = "f32", clip = true, dropout = true>} {
galvatron.parameter @wi : tensor<16x24xf32> {init = "zeros"}
galvatron.parameter @wf : tensor<24x16xf32> {init = "zeros"}
func.func private @body(%x: tensor<?x8x16xf32>, %wi: tensor<16x24xf32> {nn.factors = ["", "ffn"]}, %wf: tensor<24x16xf32> {nn.factors = ["ffn", ""]}) -> tensor<?x8x16xf32>
    attributes {nn.factor_units = {ffn = 24 : i64}} {
  %h = nn.linear %x, %wi : (tensor<?x8x16xf32>, tensor<16x24xf32>) -> tensor<?x8x24xf32>
  %y = nn.linear %h, %wf : (tensor<?x8x24xf32>, tensor<24x16xf32>) -> tensor<?x8x16xf32>
  return %y : tensor<?x8x16xf32>
}
galvatron.model @m(%x: tensor<?x8x16xf32> is <images>) {
  %0 = galvatron.layer "l" @body(%x) params [@wi, @wf] {strategy = #galvatron.strategy<[tp = 2]>, stage = 0 : i64} : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  galvatron.output %0 : tensor<?x8x16xf32>
}
}

// -----

// A norm over the split dimension.

module attributes {galvatron.plan = #galvatron.plan<batch = 8, micro_batches = 2, schedule = "1f1b", pipeline_degree = 1>, galvatron.training = #galvatron.training<optimizer = "adamw", dtype = "f32", clip = true, dropout = true>} {
galvatron.parameter @w : tensor<16x16xf32> {init = "zeros"}
galvatron.parameter @g : tensor<16xf32> {init = "zeros"}
galvatron.parameter @b : tensor<16xf32> {init = "zeros"}
func.func private @body(%x: tensor<?x8x16xf32>, %w: tensor<16x16xf32> {nn.factors = ["", "ffn"]}, %g: tensor<16xf32>, %b: tensor<16xf32>) -> tensor<?x8x16xf32>
    attributes {nn.factor_units = {ffn = 16 : i64}} {
  %h = nn.linear %x, %w : (tensor<?x8x16xf32>, tensor<16x16xf32>) -> tensor<?x8x16xf32>
  // expected-error@below {{expected operand 0 to be split in a dimension that this operation can split, found it split in dimension 2}}
  %y, %s = nn.layer_norm %h, %g, %b {eps = 1.0e-5 : f64} : (tensor<?x8x16xf32>, tensor<16xf32>, tensor<16xf32>) -> (tensor<?x8x16xf32>, tensor<?x8x2xf32>)
  return %y : tensor<?x8x16xf32>
}
galvatron.model @m(%x: tensor<?x8x16xf32> is <images>) {
  %0 = galvatron.layer "l" @body(%x) params [@w, @g, @b] {strategy = #galvatron.strategy<[tp = 2]>, stage = 0 : i64} : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  galvatron.output %0 : tensor<?x8x16xf32>
}
}

// -----

// A column product without a row product.

module attributes {galvatron.plan = #galvatron.plan<batch = 8, micro_batches = 2, schedule = "1f1b", pipeline_degree = 1>, galvatron.training = #galvatron.training<optimizer = "adamw", dtype = "f32", clip = true, dropout = true>} {
galvatron.parameter @w : tensor<16x16xf32> {init = "zeros"}
// expected-error@below {{expected result 0 (output) to be replicated, found split 2}}
func.func private @body(%x: tensor<?x8x16xf32>, %w: tensor<16x16xf32> {nn.factors = ["", "ffn"]}) -> tensor<?x8x16xf32>
    attributes {nn.factor_units = {ffn = 16 : i64}} {
  %h = nn.linear %x, %w : (tensor<?x8x16xf32>, tensor<16x16xf32>) -> tensor<?x8x16xf32>
  return %h : tensor<?x8x16xf32>
}
galvatron.model @m(%x: tensor<?x8x16xf32> is <images>) {
  %0 = galvatron.layer "l" @body(%x) params [@w] {strategy = #galvatron.strategy<[tp = 2]>, stage = 0 : i64} : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  galvatron.output %0 : tensor<?x8x16xf32>
}
}

// -----

// The bias of a column product must be split with it.

module attributes {galvatron.plan = #galvatron.plan<batch = 8, micro_batches = 2, schedule = "1f1b", pipeline_degree = 1>, galvatron.training = #galvatron.training<optimizer = "adamw", dtype = "f32", clip = true, dropout = true>} {
galvatron.parameter @w : tensor<16x16xf32> {init = "zeros"}
galvatron.parameter @b : tensor<16xf32> {init = "zeros"}
func.func private @body(%x: tensor<?x8x16xf32>, %w: tensor<16x16xf32> {nn.factors = ["", "ffn"]}, %b: tensor<16xf32>) -> tensor<?x8x16xf32>
    attributes {nn.factor_units = {ffn = 16 : i64}} {
  %h = nn.linear %x, %w : (tensor<?x8x16xf32>, tensor<16x16xf32>) -> tensor<?x8x16xf32>
  // expected-error@below {{expected operand 1 to be split along its dimension as another operand is, found it the same on all ranks}}
  %y = nn.bias_add %h, %b : (tensor<?x8x16xf32>, tensor<16xf32>) -> tensor<?x8x16xf32>
  return %y : tensor<?x8x16xf32>
}
galvatron.model @m(%x: tensor<?x8x16xf32> is <images>) {
  %0 = galvatron.layer "l" @body(%x) params [@w, @b] {strategy = #galvatron.strategy<[tp = 2]>, stage = 0 : i64} : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  galvatron.output %0 : tensor<?x8x16xf32>
}
}

// -----

// Two column products in a row.

module attributes {galvatron.plan = #galvatron.plan<batch = 8, micro_batches = 2, schedule = "1f1b", pipeline_degree = 1>, galvatron.training = #galvatron.training<optimizer = "adamw", dtype = "f32", clip = true, dropout = true>} {
galvatron.parameter @w : tensor<16x16xf32> {init = "zeros"}
galvatron.parameter @v : tensor<16x16xf32> {init = "zeros"}
func.func private @body(%x: tensor<?x8x16xf32>, %w: tensor<16x16xf32> {nn.factors = ["", "ffn"]}, %v: tensor<16x16xf32> {nn.factors = ["", "ffn"]}) -> tensor<?x8x16xf32>
    attributes {nn.factor_units = {ffn = 16 : i64}} {
  %h = nn.linear %x, %w : (tensor<?x8x16xf32>, tensor<16x16xf32>) -> tensor<?x8x16xf32>
  // expected-error@below {{expected operands that are split along one factor, found them split along two}}
  %y = nn.linear %h, %v : (tensor<?x8x16xf32>, tensor<16x16xf32>) -> tensor<?x8x16xf32>
  return %y : tensor<?x8x16xf32>
}
galvatron.model @m(%x: tensor<?x8x16xf32> is <images>) {
  %0 = galvatron.layer "l" @body(%x) params [@w, @v] {strategy = #galvatron.strategy<[tp = 2]>, stage = 0 : i64} : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  galvatron.output %0 : tensor<?x8x16xf32>
}
}

// -----

// A body without factors is replicated, and that is said.

module attributes {galvatron.plan = #galvatron.plan<batch = 8, micro_batches = 2, schedule = "1f1b", pipeline_degree = 1>, galvatron.training = #galvatron.training<optimizer = "adamw", dtype = "f32", clip = true, dropout = true>} {
galvatron.parameter @w : tensor<16x16xf32> {init = "zeros"}
func.func private @body(%x: tensor<?x8x16xf32>, %w: tensor<16x16xf32>) -> tensor<?x8x16xf32> {
  %h = nn.linear %x, %w : (tensor<?x8x16xf32>, tensor<16x16xf32>) -> tensor<?x8x16xf32>
  return %h : tensor<?x8x16xf32>
}
galvatron.model @m(%x: tensor<?x8x16xf32> is <images>) {
  // expected-remark@below {{the body of layer 'l' has no factor to split: it is replicated under 'tp2'}}
  %0 = galvatron.layer "l" @body(%x) params [@w] {strategy = #galvatron.strategy<[tp = 2]>, stage = 0 : i64} : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  galvatron.output %0 : tensor<?x8x16xf32>
}
}


// -----

// Attention numbers its heads by rank, so with dropout it cannot be replicated.

module attributes {galvatron.plan = #galvatron.plan<batch = 8, micro_batches = 2, schedule = "1f1b", pipeline_degree = 1>, galvatron.training = #galvatron.training<optimizer = "adamw", dtype = "f32", clip = true, dropout = true>} {
galvatron.parameter @w : tensor<16x3x16xf32> {init = "zeros"}
func.func private @body(%x: tensor<?x8x16xf32>, %w: tensor<16x3x16xf32>) -> tensor<?x8x16xf32> {
  %q = nn.linear %x, %w : (tensor<?x8x16xf32>, tensor<16x3x16xf32>) -> tensor<?x8x3x16xf32>
  // expected-error@below {{expected a factor to split 'nn.attention' by: it cannot be the same on all 2 ranks of a tensor-parallel group}}
  %o, %lse = nn.attention %q {heads = 4 : i64, causal, scale = 0.5 : f64, dropout = 0.1 : f64, op_index = 0 : i64} : (tensor<?x8x3x16xf32>) -> (tensor<?x8x16xf32>, tensor<?x4x8xf32>)
  return %o : tensor<?x8x16xf32>
}
galvatron.model @m(%x: tensor<?x8x16xf32> is <images>) {
  %0 = galvatron.layer "l" @body(%x) params [@w] {strategy = #galvatron.strategy<[tp = 2]>, stage = 0 : i64} : (tensor<?x8x16xf32>) -> tensor<?x8x16xf32>
  galvatron.output %0 : tensor<?x8x16xf32>
}
}

// -----

// Attention to kept keys finds slopes of distances by its heads' numbers.

module attributes {galvatron.plan = #galvatron.plan<batch = 8, micro_batches = 1, schedule = "1f1b", pipeline_degree = 1>, galvatron.training = #galvatron.training<optimizer = "adamw", dtype = "f32", clip = true, dropout = true>} {
galvatron.parameter @w : tensor<16x3x16xf32> {frozen, init = "zeros"}
galvatron.parameter @k : tensor<2x4x6x4xf32> {frozen, init = "cache"}
galvatron.parameter @v : tensor<2x4x6x4xf32> {frozen, init = "cache"}
func.func private @body(%x: tensor<?x1x16xf32>, %r: tensor<?x1xi32>, %p: tensor<?x1xi32>, %w: tensor<16x3x16xf32> {nn.frozen}, %k: tensor<2x4x6x4xf32> {nn.frozen}, %v: tensor<2x4x6x4xf32> {nn.frozen}) -> tensor<?x1x16xf32> {
  %q = nn.linear %x, %w : (tensor<?x1x16xf32>, tensor<16x3x16xf32>) -> tensor<?x1x3x16xf32>
  // expected-error@below {{expected a factor to split 'nn.cached_attention' by: it cannot be the same on all 2 ranks of a tensor-parallel group}}
  %o = nn.cached_attention %q keys %k values %v rows %r at %p {heads = 4 : i64, scale = 0.5 : f64, distance = 1.0 : f64} : (tensor<?x1x3x16xf32>, tensor<2x4x6x4xf32>, tensor<2x4x6x4xf32>, tensor<?x1xi32>, tensor<?x1xi32>) -> tensor<?x1x16xf32>
  return %o : tensor<?x1x16xf32>
}
galvatron.model @m(%x: tensor<?x1x16xf32> is <images>, %r: tensor<?x1xi32> is <cache_rows, below = 2>, %p: tensor<?x1xi32> is <positions, below = 6>) {
  %0 = galvatron.layer "l" @body(%x, %r, %p) params [@w, @k, @v] {strategy = #galvatron.strategy<[tp = 2]>, stage = 0 : i64} : (tensor<?x1x16xf32>, tensor<?x1xi32>, tensor<?x1xi32>) -> tensor<?x1x16xf32>
  galvatron.output %0 : tensor<?x1x16xf32>
}
}

// -----

// A sample takes 256 KiB, a billion of them more than is added up.

module attributes {galvatron.plan = #galvatron.plan<batch = 1073741824, micro_batches = 1, schedule = "1f1b", pipeline_degree = 1>, galvatron.training = #galvatron.training<optimizer = "adamw", dtype = "f32", clip = true, dropout = true>} {
// expected-error@below {{to take at most 70368744177664 bytes with 1073741824 samples, the largest is argument 0 of type 'tensor<?x65536xf32>'}}
func.func private @body(%x: tensor<?x65536xf32>) -> tensor<?x65536xf32> {
  %y = nn.gelu %x : (tensor<?x65536xf32>) -> tensor<?x65536xf32>
  return %y : tensor<?x65536xf32>
}
galvatron.model @many_samples(%x: tensor<?x65536xf32> is <images>) {
  %0 = galvatron.layer "l" @body(%x) {strategy = #galvatron.strategy<[]>, stage = 0 : i64} : (tensor<?x65536xf32>) -> tensor<?x65536xf32>
  galvatron.output %0 : tensor<?x65536xf32>
}
}

// -----

// Three heads' keys are neither split over two ranks nor shared by them.

module attributes {galvatron.plan = #galvatron.plan<batch = 8, micro_batches = 2, schedule = "1f1b", pipeline_degree = 1>, galvatron.training = #galvatron.training<optimizer = "adamw", dtype = "f32", clip = true, dropout = true>} {
galvatron.parameter @q : tensor<6x4x16xf32> {init = "zeros"}
galvatron.parameter @k : tensor<3x4x16xf32> {init = "zeros"}
func.func private @body(%x: tensor<?x8x16xf32>, %q: tensor<6x4x16xf32> {nn.factors = ["heads", "", ""]}, %k: tensor<3x4x16xf32> {nn.factors = ["key_heads", "", ""]}) -> tensor<?x8x24xf32>
    attributes {nn.factor_units = {heads = 6 : i64, key_heads = 3 : i64}, nn.shared = ["key_heads"]} {
  %0 = nn.linear %x, %q {transpose_weight} : (tensor<?x8x16xf32>, tensor<6x4x16xf32>) -> tensor<?x8x6x4xf32>
  %1 = nn.linear %x, %k {transpose_weight} : (tensor<?x8x16xf32>, tensor<3x4x16xf32>) -> tensor<?x8x3x4xf32>
  %o, %lse = nn.grouped_attention %0, %1, %1 {causal, scale = 0.5 : f64} : (tensor<?x8x6x4xf32>, tensor<?x8x3x4xf32>, tensor<?x8x3x4xf32>) -> (tensor<?x8x24xf32>, tensor<?x6x8xf32>)
  return %o : tensor<?x8x24xf32>
}
galvatron.model @m(%x: tensor<?x8x16xf32> is <images>) {
  // expected-error@below {{layer 'l' cannot have strategy 'tp2': factor 'key_heads' has 3 units, which tensor parallel degree 2 neither divides nor is a multiple of}}
  %0 = galvatron.layer "l" @body(%x) params [@q, @k] {strategy = #galvatron.strategy<[tp = 2]>, stage = 0 : i64} : (tensor<?x8x16xf32>) -> tensor<?x8x24xf32>
  galvatron.output %0 : tensor<?x8x24xf32>
}
}

// -----

// Four samples of three positions are no eight blocks of rows.

module attributes {galvatron.plan = #galvatron.plan<batch = 8, micro_batches = 2, schedule = "1f1b", pipeline_degree = 1>, galvatron.training = #galvatron.training<optimizer = "adamw", dtype = "f32", clip = true, dropout = true>} {
galvatron.parameter @wi : tensor<16x24xf32> {init = "zeros"}
galvatron.parameter @wf : tensor<24x16xf32> {init = "zeros"}
// expected-error@below {{cannot have strategy 'tsp8': 4 samples of 3 positions are 12 rows, which degree 8 of 'tsp' does not divide}}
func.func private @body(%x: tensor<?x3x16xf32>, %wi: tensor<16x24xf32> {nn.factors = ["", "ffn"]}, %wf: tensor<24x16xf32> {nn.factors = ["ffn", ""]}) -> tensor<?x3x16xf32>
    attributes {nn.factor_units = {ffn = 24 : i64}} {
  %h = nn.linear %x, %wi : (tensor<?x3x16xf32>, tensor<16x24xf32>) -> tensor<?x3x24xf32>
  %p = nn.linear %h, %wf : (tensor<?x3x24xf32>, tensor<24x16xf32>) -> tensor<?x3x16xf32>
  %y = nn.add %x, %p : (tensor<?x3x16xf32>, tensor<?x3x16xf32>) -> tensor<?x3x16xf32>
  return %y : tensor<?x3x16xf32>
}
galvatron.model @m(%x: tensor<?x3x16xf32> is <images>) {
  %0 = galvatron.layer "l" @body(%x) params [@wi, @wf] {strategy = #galvatron.strategy<[tsp = 8]>, stage = 0 : i64} : (tensor<?x3x16xf32>) -> tensor<?x3x16xf32>
  galvatron.output %0 : tensor<?x3x16xf32>
}
}
