//===- FunctionValues.h - What layer functions compute ----------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// From `differentiate` on a layer's functions say what they compute: the phase
// that makes them numbers the values that they return, or leave in buffers, and
// writes the number on them as `galvatron.values`. IR of a phase that is read
// again is refused where a function computes something else.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_GALVATRON_TRANSFORMS_FUNCTIONVALUES_H
#define GALVATRON_DIALECT_GALVATRON_TRANSFORMS_FUNCTIONVALUES_H

#include "galvatron/Dialect/Galvatron/IR/FunctionValuesAttr.h"
#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <string>

namespace mlir::galvatron {

/// A number of a whole, and numbers of its parts in their order.
struct NumberedValues {
  /// A part: an operation, or `what` of the whole, as an argument.
  struct Part {
    uint64_t number;
    Operation *op;
    std::string what;
  };

  uint64_t whole = 0;
  SmallVector<Part> parts;

  void add(uint64_t number, Operation *op) {
    parts.push_back({number, op, ""});
  }
  void add(uint64_t number, const Twine &what) {
    parts.push_back({number, nullptr, what.str()});
  }
  /// The text of `galvatron.values`: the whole as 16 hexadecimal digits, a
  /// blank, and of each part 12 bits as two characters.
  std::string str() const;
  /// Whether an attribute has the number of the whole.
  bool isOf(StringAttr attribute) const;
  /// Notes, on an error that the whole differs from `expected`, which is such a
  /// text, the first part that is not there, or behind which one is missing.
  void addNote(InFlightDiagnostic &error, StringRef expected) const;
};

/// The number of the values that a function of tensors returns: operations with
/// their attributes, and from which arguments they come. Operations that
/// nothing returned needs, and the order of those that do not need each other,
/// change nothing.
NumberedValues numberValues(func::FuncOp function);

/// The attributes of a module that functions and roles are made of: training,
/// cluster and adapters.
ArrayRef<StringLiteral> settledModuleAttrs();

/// The number of what a model and its layers say of themselves: configuration
/// and data, parameters, functions and what they keep; and of the module's
/// settled attributes. Strategies are settled by `partition`; before it only
/// what they recompute counts.
NumberedValues numberModel(ModelOp model, bool withStrategies);

/// (M4) Checks that a model has a number, and that it is `found`.
LogicalResult verifyModelNumber(ModelOp model, const NumberedValues &found);

/// Checks that a function has a number, and that it is `found`.
LogicalResult verifyValues(Operation *function, const NumberedValues &found);

} // namespace mlir::galvatron

#endif // GALVATRON_DIALECT_GALVATRON_TRANSFORMS_FUNCTIONVALUES_H
