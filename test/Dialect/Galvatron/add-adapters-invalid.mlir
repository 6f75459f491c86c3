// RUN: galvatron-opt %s --galvatron-add-adapters="layers=up;missing" --split-input-file --verify-diagnostics

module {
  galvatron.parameter @l.up.weight : tensor<4x4xf32> {init = "ones"}
  galvatron.parameter @l.down.weight : tensor<4x4xf32> {init = "ones"}
  func.func private @block(%x: tensor<?x4xf32>, %up: tensor<4x4xf32>, %down: tensor<4x4xf32>) -> tensor<?x4xf32> {
    %0 = nn.linear %x, %up : (tensor<?x4xf32>, tensor<4x4xf32>) -> tensor<?x4xf32>
    %1 = nn.linear %0, %down : (tensor<?x4xf32>, tensor<4x4xf32>) -> tensor<?x4xf32>
    return %1 : tensor<?x4xf32>
  }
  // expected-error@below {{expected products with weights called 'missing' for adapters, found none; there are up, down}}
  galvatron.model @model(%in: tensor<?x4xf32>) {
    %0 = galvatron.layer "l" @block(%in) params [@l.up.weight, @l.down.weight] : (tensor<?x4xf32>) -> tensor<?x4xf32>
    galvatron.output %0 : tensor<?x4xf32>
  }
}

// -----

// A weight of two layers, as a tied head has.
module {
  galvatron.parameter @l.up.weight : tensor<4x4xf32> {init = "ones"}
  func.func private @block(%x: tensor<?x4xf32>, %up: tensor<4x4xf32>) -> tensor<?x4xf32> {
    %0 = nn.linear %x, %up : (tensor<?x4xf32>, tensor<4x4xf32>) -> tensor<?x4xf32>
    return %0 : tensor<?x4xf32>
  }
  galvatron.model @model(%in: tensor<?x4xf32>) {
    // expected-error@below {{expected no adapter of 'l.up', whose weight is tied to another layer}}
    %0 = galvatron.layer "l" @block(%in) params [@l.up.weight] : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %1 = galvatron.layer "m" @block(%0) params [@l.up.weight] : (tensor<?x4xf32>) -> tensor<?x4xf32>
    galvatron.output %1 : tensor<?x4xf32>
  }
}

// -----

// Files have all weights in one order.
module {
  galvatron.parameter @l.up.weight : tensor<4x4xf32> {init = "ones"}
  galvatron.parameter @l.missing.weight : tensor<4x4xf32> {init = "ones"}
  func.func private @block(%x: tensor<?x4xf32>, %up: tensor<4x4xf32>, %down: tensor<4x4xf32>) -> tensor<?x4xf32> {
    %0 = nn.linear %x, %up : (tensor<?x4xf32>, tensor<4x4xf32>) -> tensor<?x4xf32>
    %1 = nn.linear %0, %down {transpose_weight} : (tensor<?x4xf32>, tensor<4x4xf32>) -> tensor<?x4xf32>
    return %1 : tensor<?x4xf32>
  }
  galvatron.model @model(%in: tensor<?x4xf32>) {
    // expected-error@below {{expected weights of all adapters in one order, found 'l.missing' in another one}}
    %0 = galvatron.layer "l" @block(%in) params [@l.up.weight, @l.missing.weight] : (tensor<?x4xf32>) -> tensor<?x4xf32>
    galvatron.output %0 : tensor<?x4xf32>
  }
}

// -----

module {
  galvatron.parameter @l.up.weight : tensor<4x4xf32> {frozen, init = "ones"}
  // expected-note@below {{'block' is here}}
  func.func private @block(%x: tensor<?x4xf32>, %up: tensor<4x4xf32>) -> tensor<?x4xf32> {
    %0 = nn.linear %x, %up : (tensor<?x4xf32>, tensor<4x4xf32>) -> tensor<?x4xf32>
    return %0 : tensor<?x4xf32>
  }
  galvatron.model @model(%in: tensor<?x4xf32>) {
    // expected-error@below {{expected argument 1 of 'block' with 'nn.frozen', as 'l.up.weight' is frozen}}
    %0 = galvatron.layer "l" @block(%in) params [@l.up.weight] : (tensor<?x4xf32>) -> tensor<?x4xf32>
    galvatron.output %0 : tensor<?x4xf32>
  }
}

// -----

// expected-error@below {{expected 'nn.frozen', without a value, on a parameter or an input of floating-point elements, found it on argument 0}}
func.func private @tokens(%x: tensor<?xi32> {nn.frozen}) {
  return
}
