//===- Executable.h - Which models are compiled -----------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The dialect can say more than is compiled. These checks refuse the rest with
// the reason. Whatever plans a model or turns it into roles calls them first.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_GALVATRON_IR_EXECUTABLE_H
#define GALVATRON_DIALECT_GALVATRON_IR_EXECUTABLE_H

#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"

namespace mlir::galvatron {

/// Checks that the layers are a chain:
/// 1. every layer but the first takes all results of the layer in front of it,
///    each once and in order, and otherwise only arguments of the model;
/// 2. the first layer takes only arguments of the model;
/// 3. the model's output is results of the last layer.
/// Values are followed through stages, transfers and reshards.
LogicalResult verifyChain(ModelOp model);

/// Checks that what is executed is what the model says: that stages, where
/// there are some, together have the devices from 0 on, and that the model's
/// output is results of the last layer. Models with opaque layers, which are
/// not executed, must be chains. Of others:
/// 1. every layer but the last gives floating-point tensors whose first
///    dimension alone is dynamic, of one element type, and some layer uses
///    each; every layer but the first takes some of them, none twice;
/// 2. the last layer gives the loss, a `tensor<1xf64>`, or `tensor<2xf64>` with
///    the sum that a z-loss is the mean of;
/// 3. every argument of the model is declared (`#galvatron.data`) and read; the
///    loss is a mean over exactly one of them; layers of one body read data as
///    the same operands;
/// 4. all parameters have one element type: that of `galvatron.training` if the
///    module has it, else f32, f64 or bf16.
LogicalResult verifyExecutable(ModelOp model);

/// Whether parameters of this element type are those of the training.
bool isStoredAs(Type type, TrainingAttr training);

} // namespace mlir::galvatron

#endif // GALVATRON_DIALECT_GALVATRON_IR_EXECUTABLE_H
