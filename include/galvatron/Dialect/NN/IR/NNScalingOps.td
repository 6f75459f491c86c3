//===- NNScalingOps.td - Norms without weights, factors ----*- tablegen -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_NN_IR_NNSCALINGOPS_TD
#define GALVATRON_DIALECT_NN_IR_NNSCALINGOPS_TD

include "galvatron/Dialect/NN/IR/NNBase.td"

def NN_StandardizeOp
    : NN_ForwardOp<"standardize", ["getFlops"], [], [], ["getElementRole"]> {
  let summary = "Layer normalisation without weights.";
  let description = [{
    `y = (x - mean) / sqrt(variance + eps)` over the last dimension; `stats` as in
    `nn.layer_norm` (OLMo).

    Constraints:
    1. `x` has rank >= 1, and `y` its type.
    2. `stats` has the shape of `x` with 2 for the last dimension.
    3. `eps` is positive.
  }];
  let arguments = (ins NN_Float:$x, F64Attr:$eps);
  let results = (outs NN_Float:$y, NN_Statistics:$stats);
  let assemblyFormat = "$x attr-dict `:` functional-type(operands, results)";
}

def NN_StandardizeGradOp
    : NN_Op<"standardize_grad", ["getFlops"], [], ["getReusableOperand"]> {
  let summary = "Gradient of a layer normalisation without weights.";
  let description = [{
    Constraints:
    1. `dx` and `dy` have the type of `x`.
    2. `stats` has the shape of `x` with 2 for the last dimension.
  }];
  let arguments = (ins NN_Float:$dy, NN_Float:$x, NN_Statistics:$stats);
  let results = (outs NN_Float:$dx);
  let assemblyFormat = [{
    $dy `,` $x `,` $stats attr-dict `:` functional-type(operands, results)
  }];
}

def NN_ClipOp : NN_ForwardOp<"clip", ["getFlops"], [], ["getReusableOperand"]> {
  let summary = "Keeps values within a limit, by cutting them off.";
  let description = [{
    `y = min(max(x, -limit), limit)`, as OLMo has it of queries, keys and values.

    Constraints:
    1. `y` has the type of `x`.
    2. `limit` is positive.
  }];
  let arguments = (ins NN_Float:$x, F64Attr:$limit);
  let results = (outs NN_Float:$y);
  let assemblyFormat = "$x attr-dict `:` functional-type(operands, results)";
}

def NN_ClipGradOp
    : NN_Op<"clip_grad", ["getFlops"], [], ["getReusableOperand"]> {
  let summary = "Gradient of a clipped value.";
  let description = [{
    `dx` is `dy` where `x` is within the limit or at it, else 0.

    Constraints:
    1. `dy` and `dx` have the type of `x`.
    2. `limit` is positive.
  }];
  let arguments = (ins NN_Float:$x, NN_Float:$dy, F64Attr:$limit);
  let results = (outs NN_Float:$dx);
  let assemblyFormat = [{
    $x `,` $dy attr-dict `:` functional-type(operands, results)
  }];
}

def NN_ColumnScaleOp
    : NN_ForwardOp<"column_scale", ["getFlops"], ["propagatesPartialSums"],
                   ["getReusableOperand"]> {
  let summary = "Multiplies every row by a vector, element by element.";
  let description = [{
    `y[.., i] = x[.., i] * scale[i]`, the layer scale of CaiT and DINOv2 (Touvron
    et al., arXiv 2103.17239). `scale` may have several of the last dimensions:
    one for each element of every head (norms of queries and keys of Command R+).

    Constraints:
    1. `x` has rank >= 1; `scale` has its last dimension, or more of the last.
    2. `y` has the type of `x`.
  }];
  let arguments = (ins NN_Float:$x, NN_Float:$scale);
  let results = (outs NN_Float:$y);
  let assemblyFormat = [{
    $x `,` $scale attr-dict `:` functional-type(operands, results)
  }];
}

def NN_ColumnScaleGradOp
    : NN_Op<"column_scale_grad", ["getFlops"], [], ["supportsAccumulation"], [],
            ["getElementRole"]> {
  let summary = "Gradient of the vector that multiplies rows.";
  let description = [{
    `dscale[i]` is the sum over rows of `dy[.., i] * x[.., i]`.

    Constraints:
    1. `x` has the type of `dy`.
    2. `dscale` has the last dimension, or more of the last.
  }];
  let arguments = (ins NN_Float:$dy, NN_Float:$x);
  let results = (outs NN_Statistics:$dscale);
  let assemblyFormat = [{
    $dy `,` $x attr-dict `:` functional-type(operands, results)
  }];
}

#endif // GALVATRON_DIALECT_NN_IR_NNSCALINGOPS_TD
