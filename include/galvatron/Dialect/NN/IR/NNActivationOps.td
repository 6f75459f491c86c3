//===- NNActivationOps.td - Functions of single elements ---*- tablegen -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_NN_IR_NNACTIVATIONOPS_TD
#define GALVATRON_DIALECT_NN_IR_NNACTIVATIONOPS_TD

include "galvatron/Dialect/NN/IR/NNBase.td"

def NN_GatedSiluOp
    : NN_ForwardOp<"gated_silu", ["getFlops"], [], ["getReusableOperand"]> {
  let summary = "A sigmoid linear unit as gate of another value.";
  let description = [{
    `y = gate / (1 + exp(-gate)) * up`, the activation of SwiGLU.

    Constraints:
    1. `up` and `y` have the type of `gate`.
  }];
  let arguments = (ins NN_Float:$gate, NN_Float:$up);
  let results = (outs NN_Float:$y);
  let assemblyFormat = [{
    $gate `,` $up attr-dict `:` functional-type(operands, results)
  }];
}

def NN_GatedSiluGradOp
    : NN_Op<"gated_silu_grad", ["getFlops"], [], ["getReusableOperand"]> {
  let summary = "Gradients of a gated sigmoid linear unit.";
  let description = [{
    Constraints:
    1. `up`, `dy`, `dgate` and `dup` have the type of `gate`.
  }];
  let arguments = (ins NN_Float:$gate, NN_Float:$up, NN_Float:$dy);
  let results = (outs NN_Float:$dgate, NN_Float:$dup);
  let assemblyFormat = [{
    $gate `,` $up `,` $dy attr-dict `:` functional-type(operands, results)
  }];
}

def NN_GatedGeluOp
    : NN_ForwardOp<"gated_gelu", ["getFlops"], [], ["getReusableOperand"]> {
  let summary = "A Gaussian error linear unit as gate of another value.";
  let description = [{
    `y = gelu(gate) * up`, the GELU in its tanh form, with `exact` in the erf form.

    Constraints:
    1. `up` and `y` have the type of `gate`.
  }];
  let arguments = (ins NN_Float:$gate, NN_Float:$up, UnitAttr:$exact);
  let results = (outs NN_Float:$y);
  let assemblyFormat = [{
    $gate `,` $up attr-dict `:` functional-type(operands, results)
  }];
}

def NN_GatedGeluGradOp
    : NN_Op<"gated_gelu_grad", ["getFlops"], [], ["getReusableOperand"]> {
  let summary = "Gradients of a gated Gaussian error linear unit.";
  let description = [{
    Constraints:
    1. `up`, `dy`, `dgate` and `dup` have the type of `gate`.
  }];
  let arguments = (ins NN_Float:$gate, NN_Float:$up, NN_Float:$dy,
                       UnitAttr:$exact);
  let results = (outs NN_Float:$dgate, NN_Float:$dup);
  let assemblyFormat = [{
    $gate `,` $up `,` $dy attr-dict `:` functional-type(operands, results)
  }];
}

def NN_ReluOp : NN_ForwardOp<"relu", ["getFlops"], [], ["getReusableOperand"]> {
  let summary = "Rectified linear unit.";
  let description = [{
    Constraints:
    1. `y` has the type of `x`.
  }];
  let arguments = (ins NN_Float:$x);
  let results = (outs NN_Float:$y);
  let assemblyFormat = "$x attr-dict `:` functional-type(operands, results)";
}

def NN_ReluGradOp
    : NN_Op<"relu_grad", ["getFlops"], [], ["getReusableOperand"]> {
  let summary = "Gradient of a rectified linear unit, from its result.";
  let description = [{
    `dx` is `dy` where `y` is positive, else 0. The product behind keeps `y` as
    well, `x` nobody else.

    Constraints:
    1. `dy` and `dx` have the type of `y`.
  }];
  let arguments = (ins NN_Float:$y, NN_Float:$dy);
  let results = (outs NN_Float:$dx);
  let assemblyFormat = [{
    $y `,` $dy attr-dict `:` functional-type(operands, results)
  }];
}

def NN_ScaleOp
    : NN_ForwardOp<"scale", [], ["propagatesPartialSums"],
                   ["getReusableOperand"]> {
  let summary = "Multiplies by a constant.";
  let description = [{
    With `rounded` the factor is what the element type of `x` holds of it.

    Constraints:
    1. `y` has the type of `x`.
  }];
  let arguments = (ins NN_Float:$x, F64Attr:$factor, UnitAttr:$rounded);
  let results = (outs NN_Float:$y);
  let assemblyFormat = "$x attr-dict `:` functional-type(operands, results)";
}

def NN_SoftCapOp
    : NN_ForwardOp<"soft_cap", ["getFlops"], [], ["getReusableOperand"]> {
  let summary = "Keeps values within a cap, smoothly.";
  let description = [{
    `y = cap * tanh(x / cap)`, as Gemma 2 has it of logits.

    Constraints:
    1. `y` has the type of `x`.
    2. `cap` is positive.
  }];
  let arguments = (ins NN_Float:$x, F64Attr:$cap);
  let results = (outs NN_Float:$y);
  let assemblyFormat = "$x attr-dict `:` functional-type(operands, results)";
}

def NN_SoftCapGradOp
    : NN_Op<"soft_cap_grad", ["getFlops"], [], ["getReusableOperand"]> {
  let summary = "Gradient of a soft cap, from its result.";
  let description = [{
    `dx = dy * (1 - (y / cap)^2)`.

    Constraints:
    1. `dy` and `dx` have the type of `y`.
    2. `cap` is positive.
  }];
  let arguments = (ins NN_Float:$y, NN_Float:$dy, F64Attr:$cap);
  let results = (outs NN_Float:$dx);
  let assemblyFormat = [{
    $y `,` $dy attr-dict `:` functional-type(operands, results)
  }];
}

def NN_GeluOp : NN_ForwardOp<"gelu", ["getFlops"], [], ["getReusableOperand"]> {
  let summary = "Gaussian error linear unit.";
  let description = [{
    With `approximate` the tanh form (`gelu_new` of GPT-2), else the erf form.

    Constraints:
    1. `y` has the type of `x`.
  }];
  let arguments = (ins NN_Float:$x, UnitAttr:$approximate);
  let results = (outs NN_Float:$y);
  let assemblyFormat = "$x attr-dict `:` functional-type(operands, results)";
}

def NN_GeluGradOp
    : NN_Op<"gelu_grad", ["getFlops"], [], ["getReusableOperand"]> {
  let summary = "Gradient of a Gaussian error linear unit.";
  let description = [{
    Constraints:
    1. `dy` and `dx` have the type of `x`.
  }];
  let arguments = (ins NN_Float:$x, NN_Float:$dy, UnitAttr:$approximate);
  let results = (outs NN_Float:$dx);
  let assemblyFormat = [{
    $x `,` $dy attr-dict `:` functional-type(operands, results)
  }];
}

#endif // GALVATRON_DIALECT_NN_IR_NNACTIVATIONOPS_TD
