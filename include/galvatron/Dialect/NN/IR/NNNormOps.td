//===- NNNormOps.td - Norms with weights -------------------*- tablegen -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_NN_IR_NNNORMOPS_TD
#define GALVATRON_DIALECT_NN_IR_NNNORMOPS_TD

include "galvatron/Dialect/NN/IR/NNBase.td"

def NN_LayerNormOp
    : NN_ForwardOp<"layer_norm", ["getFlops"], [], [], ["getElementRole"]> {
  let summary = "Layer normalisation over the last dimension.";
  let description = [{
    `stats[.., 0]` is the mean and `stats[.., 1]` is `1/sqrt(variance + eps)`.
    Without `beta` nothing is added to what is scaled.

    Constraints:
    1. `x` has rank >= 1; `gamma` and `beta`, where it is there, are vectors as
       long as its last dimension.
    2. `y` has the type of `x`.
    3. `stats` has the shape of `x` with 2 for the last dimension.
    4. `eps` is positive.
  }];
  let arguments = (ins NN_Float:$x, NN_Float:$gamma, Optional<NN_Float>:$beta,
                       F64Attr:$eps);
  let results = (outs NN_Float:$y, NN_Statistics:$stats);
  let assemblyFormat = [{
    $x `,` $gamma (`,` $beta^)? attr-dict `:`
    functional-type(operands, results)
  }];
}

def NN_LayerNormGradOp
    : NN_Op<"layer_norm_grad",
            ["getFlops"], [], ["getReusableOperand", "supportsAccumulation"],
            [], ["getElementRole"]> {
  let summary = "Gradients of a layer normalisation.";
  let description = [{
    Constraints:
    1. `dx` and `dy` have the type of `x`.
    2. `gamma`, `dgamma` and, of a norm with `beta`, `dbeta` are vectors as long
       as the last dimension.
    3. `stats` has the shape of `x` with 2 for the last dimension.
  }];
  let arguments = (ins NN_Float:$dy, NN_Float:$x, NN_Statistics:$stats,
                       NN_Float:$gamma);
  let results = (outs NN_Float:$dx, NN_Statistics:$dgamma,
                      Optional<NN_Statistics>:$dbeta);
  let assemblyFormat = [{
    $dy `,` $x `,` $stats `,` $gamma attr-dict `:`
    functional-type(operands, results)
  }];
}

def NN_AddLayerNormOp
    : NN_Op<"add_layer_norm", ["getFlops"], [], ["getReusableOperand"], [],
            ["getElementRole", "removeDropout"]> {
  let summary = "Dropout, a residual addition and a layer norm in one pass.";
  let description = [{
    `sum = dropout(x) + residual`; `y` and `stats` are those of `nn.layer_norm`
    of `sum`. Made by `nn-fuse` after partition, so it has no gradient of its
    own.

    Constraints:
    1. `residual`, `sum` and `y` have the type of `x`.
    2. `gamma` and `beta` are vectors as long as the last dimension of `x`.
    3. `stats` has the shape of `x` with 2 for the last dimension.
    4. `eps` is positive.
    5. `0 <= p < 1`.
    6. `x` has rank >= 2.

    ```mlir
    %sum, %y, %stats = nn.add_layer_norm %x, %residual, %gamma, %beta
        {eps = 1.0e-5 : f64}
      : (tensor<4x64x768xf32>, tensor<4x64x768xf32>, tensor<768xf32>,
         tensor<768xf32>)
      -> (tensor<4x64x768xf32>, tensor<4x64x768xf32>, tensor<4x64x2xf32>)
    ```
  }];
  let arguments = (ins NN_Float:$x, NN_Float:$residual, NN_Float:$gamma,
                       NN_Float:$beta, F64Attr:$eps,
                       DefaultValuedAttr<F64Attr, "0.0">:$p,
                       DefaultValuedAttr<I64Attr, "0">:$op_index);
  let results = (outs NN_Float:$sum, NN_Float:$y, NN_Statistics:$stats);
  let assemblyFormat = [{
    $x `,` $residual `,` $gamma `,` $beta attr-dict `:`
    functional-type(operands, results)
  }];
}

def NN_LayerNormAddGradOp
    : NN_Op<"layer_norm_add_grad",
            ["getFlops"], [], ["getReusableOperand", "supportsAccumulation"],
            [], ["getElementRole"]> {
  let summary = "Gradients of a layer normalisation and of what goes past it.";
  let description = [{
    As `nn.layer_norm_grad`, with `residual`, the gradient that reaches `x` past
    the normalisation, added to `dx`. Made by `nn-fuse` after partition.

    Constraints:
    1. `dx`, `dy` and `residual` have the type of `x`.
    2. `gamma`, `dgamma`, `dbeta` are vectors as long as the last dimension.
    3. `stats` has the shape of `x` with 2 for the last dimension.
  }];
  let arguments = (ins NN_Float:$dy, NN_Float:$x, NN_Statistics:$stats,
                       NN_Float:$gamma, NN_Float:$residual);
  let results = (outs NN_Float:$dx, NN_Statistics:$dgamma,
                      NN_Statistics:$dbeta);
  let assemblyFormat = [{
    $dy `,` $x `,` $stats `,` $gamma `,` $residual attr-dict `:`
    functional-type(operands, results)
  }];
}

def NN_RMSNormOp
    : NN_ForwardOp<"rms_norm", ["getFlops"], [], [], ["getElementRole"]> {
  let summary = "Normalisation by the root of the mean square.";
  let description = [{
    `y = gamma * (x * stats)` over the last dimensions, as many as `gamma` has,
    with `stats` = `1/sqrt(mean(x^2) + eps)`. What stands in brackets is rounded
    to the element type before it is scaled. With `unit_offset` it is
    `y = (1 + gamma) * (x * stats)`, rounded once (Gemma). None of these
    dimensions is ever cut.

    Constraints:
    1. `gamma` has rank >= 1 and the last dimensions of `x`.
    2. `y` has the type of `x`.
    3. `stats` has the shape of `x` with 1 for each of these dimensions.
    4. `eps` is positive.

    ```mlir
    %y, %stats = nn.rms_norm %x, %gamma {eps = 1.0e-6 : f64}
      : (tensor<?x64x768xf32>, tensor<768xf32>)
      -> (tensor<?x64x768xf32>, tensor<?x64x1xf32>)
    ```
  }];
  let arguments = (ins NN_Float:$x, NN_Float:$gamma, F64Attr:$eps,
                       UnitAttr:$unit_offset);
  let results = (outs NN_Float:$y, NN_Statistics:$stats);
  let assemblyFormat = [{
    $x `,` $gamma attr-dict `:` functional-type(operands, results)
  }];
}

def NN_RMSNormGradOp
    : NN_Op<"rms_norm_grad",
            ["getFlops"], [], ["getReusableOperand", "supportsAccumulation"],
            [], ["getElementRole"]> {
  let summary = "Gradients of a normalisation by the root of the mean square.";
  let description = [{
    Constraints:
    1. `dx` and `dy` have the type of `x`.
    2. `gamma` and `dgamma` have rank >= 1 and the last dimensions of `x`.
    3. `stats` has the shape of `x` with 1 for each of these dimensions.
  }];
  let arguments = (ins NN_Float:$dy, NN_Float:$x, NN_Statistics:$stats,
                       NN_Float:$gamma, UnitAttr:$unit_offset);
  let results = (outs NN_Float:$dx, NN_Statistics:$dgamma);
  let assemblyFormat = [{
    $dy `,` $x `,` $stats `,` $gamma attr-dict `:`
    functional-type(operands, results)
  }];
}

#endif // GALVATRON_DIALECT_NN_IR_NNNORMOPS_TD
