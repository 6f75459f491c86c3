//===- Bodies.h - Derivatives of layer bodies -------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

//
// From a layer's body to the functions that the layer needs, still on whole
// tensors. Arguments and results carry their role as the discardable attribute
// `nn.role`; the order is fixed:
//
//   forward   (input|data.., parameter..) -> (output|loss.., stash..)
//   recompute (input|data.., parameter..) -> (stash..)
//   backward  (gradient.., input|data.., stash.., parameter..)
//                                  -> (input_gradient.., parameter_gradient..)
//
// `gradient` has one entry for each output that is not a loss, `input_gradient`
// one for each input, `parameter_gradient` one a parameter. Data are what the
// loader delivers: they have no gradient, whatever their element type. The
// gradient of an input that is frozen, which nothing trained has made, is
// zeros, and no operation is there for it.
//
// If only a part of what backward needs is kept (buildKept), `stash` is that
// part, and backward begins from it.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_NN_TRANSFORMS_BODIES_H
#define GALVATRON_DIALECT_NN_TRANSFORMS_BODIES_H

#include "galvatron/Dialect/NN/IR/NN.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mlir::nn {

ValueRole getArgRole(func::FuncOp function, unsigned index);
ValueRole getResultRole(func::FuncOp function, unsigned index);
void setArgRole(func::FuncOp function, unsigned index, ValueRole role);
void setResultRole(func::FuncOp function, unsigned index, ValueRole role);

/// Whether an argument of a body or of a layer function is a parameter that is
/// not trained, or one of a body an input that nothing trained has made.
bool isFrozen(func::FuncOp function, unsigned index);

/// The numbers, among the parameters of a layer function, of those that are
/// trained, ascending: a backward function gives their gradients in this order.
SmallVector<unsigned> getTrainedParameters(func::FuncOp function);

/// A loss is a single f64 that has no sample dimension, or two of them, see
/// `nn.cross_entropy`.
bool isLossType(Type type);

/// Checks that the values of a function take at most kMostLayerBytes together
/// with `samples` samples, so that no sum of sizes overflows. The diagnostic
/// names the largest of them.
LogicalResult verifySizes(func::FuncOp function, int64_t samples);

struct DerivedFunctions {
  func::FuncOp forward;
  func::FuncOp backward;
};

/// Builds `<body>.forward` and `<body>.backward` behind `body`. Its first
/// arguments are boundary tensors, or data where `dataInputs` says so; the
/// others, behind as many, are parameters, which have gradients unless
/// kFrozenAttr says that they are not trained. What backward refers to of the
/// forward pass becomes the stash. Fails, with a diagnostic, on operations
/// without a gradient, on parameters that the loss does not depend on, on sizes
/// that cannot be summed (verifySizes), and on two operations that draw random
/// numbers by one key.
FailureOr<DerivedFunctions> differentiateBody(func::FuncOp body,
                                              ArrayRef<bool> dataInputs);

/// Builds `<forward>_only` (outputs, no stash) behind `forward`.
func::FuncOp buildForwardOnly(func::FuncOp forward, StringRef name);

/// Builds the recomputation of the stash behind `forward`: what backward does
/// not need is not computed. Null if there is nothing to recompute.
func::FuncOp buildRecompute(func::FuncOp forward, StringRef name);

/// An operation of a body and one of its results, by number. A body's forward
/// function has the same operations in the same order.
using BodyValue = std::pair<unsigned, unsigned>;

/// Hash of a body's text without its name and what does not change its values'
/// shapes: names the body in sets of kept values.
std::string hashBody(func::FuncOp body);

/// Whether a forward operation may run a second time in backward: it has no
/// effects. Random numbers are functions of their keys.
bool mayBeRemade(Operation *op);

/// The stash of a forward function, in its order.
SmallVector<BodyValue> getStash(func::FuncOp forward);

/// Builds `<stem>.forward`, which keeps `kept` and nothing else for backward,
/// and `<stem>.backward`, which computes again what else it needs, behind
/// `whole`, the functions that keep all of it. `kept` ascends. Fails, with a
/// diagnostic, on values that the body does not have, and if an operation that
/// must not run twice would.
FailureOr<DerivedFunctions> buildKept(const DerivedFunctions &whole,
                                      ArrayRef<BodyValue> kept, StringRef stem);

/// Fuses neighbouring operations of a partitioned function: linear + bias, bias
/// + GELU, dropout + residual. Backend-neutral; changes no value.
void fuseFunction(func::FuncOp function);

/// Fuses products of a function that went through fuseFunction with what stands
/// behind them, for backends whose products have epilogues.
void fuseProducts(func::FuncOp function);

} // namespace mlir::nn

#endif // GALVATRON_DIALECT_NN_TRANSFORMS_BODIES_H
