// A classifier of pictures by hand: 8 x 8 pixels as four patches of 16, a linear
// layer, two residual feed-forward layers that share one body, and a head that
// gives each patch a class of ten; the picture's class is the label of all four.
// No tokens: what the arguments are is said behind them.

galvatron.parameter @"patch.weight" : tensor<16x32xf32> {decay, init = "normal", std = 1.0e-1 : f64}
galvatron.parameter @"patch.bias" : tensor<32xf32> {init = "zeros"}
galvatron.parameter @"mlp.0.up" : tensor<32x64xf32> {decay, init = "normal", std = 1.0e-1 : f64}
galvatron.parameter @"mlp.0.bias" : tensor<64xf32> {init = "zeros"}
galvatron.parameter @"mlp.0.down" : tensor<64x32xf32> {decay, init = "normal", std = 1.0e-1 : f64}
galvatron.parameter @"mlp.1.up" : tensor<32x64xf32> {decay, init = "normal", std = 1.0e-1 : f64}
galvatron.parameter @"mlp.1.bias" : tensor<64xf32> {init = "zeros"}
galvatron.parameter @"mlp.1.down" : tensor<64x32xf32> {decay, init = "normal", std = 1.0e-1 : f64}
galvatron.parameter @"head.weight" : tensor<32x10xf32> {decay, init = "normal", std = 1.0e-1 : f64}

galvatron.model @classifier(%images: tensor<?x4x16xf32> is <images>,
                            %classes: tensor<?x4xi32> is <classes, below = 10>) {
  %0 = galvatron.layer "patch" @patch(%images) params [@"patch.weight", @"patch.bias"]
    : (tensor<?x4x16xf32>) -> tensor<?x4x32xf32>
  %1 = galvatron.layer "mlp.0" @mlp(%0) params [@"mlp.0.up", @"mlp.0.bias", @"mlp.0.down"]
    : (tensor<?x4x32xf32>) -> tensor<?x4x32xf32>
  %2 = galvatron.layer "mlp.1" @mlp(%1) params [@"mlp.1.up", @"mlp.1.bias", @"mlp.1.down"]
    : (tensor<?x4x32xf32>) -> tensor<?x4x32xf32>
  %loss = galvatron.layer "head" @head(%2, %classes) params [@"head.weight"]
    : (tensor<?x4x32xf32>, tensor<?x4xi32>) -> tensor<1xf64>
  galvatron.output %loss : tensor<1xf64>
}

func.func private @patch(%x: tensor<?x4x16xf32>, %w: tensor<16x32xf32>,
    %b: tensor<32xf32>) -> tensor<?x4x32xf32> {
  %0 = nn.linear %x, %w : (tensor<?x4x16xf32>, tensor<16x32xf32>) -> tensor<?x4x32xf32>
  %y = nn.bias_add %0, %b : (tensor<?x4x32xf32>, tensor<32xf32>) -> tensor<?x4x32xf32>
  return %y : tensor<?x4x32xf32>
}

func.func private @mlp(%x: tensor<?x4x32xf32>,
    %up: tensor<32x64xf32> {nn.factors = ["", "ffn"]},
    %bias: tensor<64xf32> {nn.factors = ["ffn"]},
    %down: tensor<64x32xf32> {nn.factors = ["ffn", ""]}) -> tensor<?x4x32xf32>
    attributes {nn.factor_units = {ffn = 64 : i64}} {
  %0 = nn.linear %x, %up : (tensor<?x4x32xf32>, tensor<32x64xf32>) -> tensor<?x4x64xf32>
  %1 = nn.bias_add %0, %bias : (tensor<?x4x64xf32>, tensor<64xf32>) -> tensor<?x4x64xf32>
  %2 = nn.gelu %1 {approximate} : (tensor<?x4x64xf32>) -> tensor<?x4x64xf32>
  %3 = nn.linear %2, %down : (tensor<?x4x64xf32>, tensor<64x32xf32>) -> tensor<?x4x32xf32>
  %y = nn.add %x, %3 : (tensor<?x4x32xf32>, tensor<?x4x32xf32>) -> tensor<?x4x32xf32>
  return %y : tensor<?x4x32xf32>
}

func.func private @head(%x: tensor<?x4x32xf32>, %classes: tensor<?x4xi32>,
    %w: tensor<32x10xf32>) -> tensor<1xf64> {
  %logits = nn.linear %x, %w : (tensor<?x4x32xf32>, tensor<32x10xf32>) -> tensor<?x4x10xf32>
  %loss, %dlogits = nn.cross_entropy %logits, %classes {classes = 10 : i64}
    : (tensor<?x4x10xf32>, tensor<?x4xi32>) -> (tensor<1xf64>, tensor<?x4x10xf32>)
  return %loss : tensor<1xf64>
}
