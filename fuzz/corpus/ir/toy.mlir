// A model of six layers, small enough to read after every phase: an embedding,
// four residual feed-forward layers that share one body, and a head that uses
// the embedding's table again. 4 tokens a sample, 16 words, width 8.

galvatron.parameter @"embed.table" : tensor<16x8xf32> {decay, init = "normal", std = 2.0e-2 : f64}
galvatron.parameter @"mlp.0.up" : tensor<8x16xf32> {decay, init = "normal", std = 2.0e-2 : f64}
galvatron.parameter @"mlp.0.bias" : tensor<16xf32> {init = "zeros"}
galvatron.parameter @"mlp.0.down" : tensor<16x8xf32> {decay, init = "normal", std = 2.0e-2 : f64}
galvatron.parameter @"mlp.1.up" : tensor<8x16xf32> {decay, init = "normal", std = 2.0e-2 : f64}
galvatron.parameter @"mlp.1.bias" : tensor<16xf32> {init = "zeros"}
galvatron.parameter @"mlp.1.down" : tensor<16x8xf32> {decay, init = "normal", std = 2.0e-2 : f64}
galvatron.parameter @"mlp.2.up" : tensor<8x16xf32> {decay, init = "normal", std = 2.0e-2 : f64}
galvatron.parameter @"mlp.2.bias" : tensor<16xf32> {init = "zeros"}
galvatron.parameter @"mlp.2.down" : tensor<16x8xf32> {decay, init = "normal", std = 2.0e-2 : f64}
galvatron.parameter @"mlp.3.up" : tensor<8x16xf32> {decay, init = "normal", std = 2.0e-2 : f64}
galvatron.parameter @"mlp.3.bias" : tensor<16xf32> {init = "zeros"}
galvatron.parameter @"mlp.3.down" : tensor<16x8xf32> {decay, init = "normal", std = 2.0e-2 : f64}

galvatron.model @toy(%tokens: tensor<?x4xi32> is <tokens, below = 16>, %labels: tensor<?x4xi32> is <labels, below = 16>) {
  %0 = galvatron.layer "embed" @toy.embed(%tokens) params [@"embed.table"]
    : (tensor<?x4xi32>) -> tensor<?x4x8xf32>
  %1 = galvatron.layer "mlp.0" @toy.mlp(%0) params [@"mlp.0.up", @"mlp.0.bias", @"mlp.0.down"]
    : (tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
  %2 = galvatron.layer "mlp.1" @toy.mlp(%1) params [@"mlp.1.up", @"mlp.1.bias", @"mlp.1.down"]
    : (tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
  %3 = galvatron.layer "mlp.2" @toy.mlp(%2) params [@"mlp.2.up", @"mlp.2.bias", @"mlp.2.down"]
    : (tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
  %4 = galvatron.layer "mlp.3" @toy.mlp(%3) params [@"mlp.3.up", @"mlp.3.bias", @"mlp.3.down"]
    : (tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
  %loss = galvatron.layer "head" @toy.head(%4, %labels) params [@"embed.table"]
    : (tensor<?x4x8xf32>, tensor<?x4xi32>) -> tensor<1xf64>
  galvatron.output %loss : tensor<1xf64>
}

func.func private @toy.embed(%tokens: tensor<?x4xi32>,
    %table: tensor<16x8xf32> {nn.factors = ["vocab", ""]}) -> tensor<?x4x8xf32>
    attributes {nn.factor_units = {vocab = 16 : i64}, nn.uneven = ["vocab"]} {
  %y = nn.embedding %tokens, %table
    : (tensor<?x4xi32>, tensor<16x8xf32>) -> tensor<?x4x8xf32>
  return %y : tensor<?x4x8xf32>
}

func.func private @toy.mlp(%x: tensor<?x4x8xf32>,
    %up: tensor<8x16xf32> {nn.factors = ["", "ffn"]},
    %bias: tensor<16xf32> {nn.factors = ["ffn"]},
    %down: tensor<16x8xf32> {nn.factors = ["ffn", ""]}) -> tensor<?x4x8xf32>
    attributes {nn.factor_units = {ffn = 16 : i64}} {
  %0 = nn.linear %x, %up : (tensor<?x4x8xf32>, tensor<8x16xf32>) -> tensor<?x4x16xf32>
  %1 = nn.bias_add %0, %bias : (tensor<?x4x16xf32>, tensor<16xf32>) -> tensor<?x4x16xf32>
  %2 = nn.gelu %1 {approximate} : (tensor<?x4x16xf32>) -> tensor<?x4x16xf32>
  %3 = nn.linear %2, %down : (tensor<?x4x16xf32>, tensor<16x8xf32>) -> tensor<?x4x8xf32>
  %y = nn.add %x, %3 : (tensor<?x4x8xf32>, tensor<?x4x8xf32>) -> tensor<?x4x8xf32>
  return %y : tensor<?x4x8xf32>
}

func.func private @toy.head(%x: tensor<?x4x8xf32>, %labels: tensor<?x4xi32>,
    %table: tensor<16x8xf32> {nn.factors = ["vocab", ""]}) -> tensor<1xf64>
    attributes {nn.factor_units = {vocab = 16 : i64}, nn.uneven = ["vocab"]} {
  %logits = nn.linear %x, %table {transpose_weight}
    : (tensor<?x4x8xf32>, tensor<16x8xf32>) -> tensor<?x4x16xf32>
  %loss, %dlogits = nn.cross_entropy %logits, %labels {classes = 16 : i64}
    : (tensor<?x4x16xf32>, tensor<?x4xi32>) -> (tensor<1xf64>, tensor<?x4x16xf32>)
  return %loss : tensor<1xf64>
}
