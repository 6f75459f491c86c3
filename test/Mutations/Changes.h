//===- Changes.h - Single changes of a module -------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// All single changes that can be made to a module, found by reflection: no
// operation, attribute or type is named here, so that new ones are covered.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_TEST_MUTATIONS_CHANGES_H
#define GALVATRON_TEST_MUTATIONS_CHANGES_H

#include "mlir/IR/BuiltinOps.h"

#include <random>
#include <string>
#include <vector>

namespace galvatron::test {

enum class ChangeKind {
  DropOperation,   ///< results are replaced by an operand of their type
  Duplicate,       ///< the copy stands behind the operation
  Reorder,         ///< with the operation behind it
  SwapOperands,    ///< of one type
  ReplaceOperand,  ///< by the value of its type that is defined in front
  DropAttribute,   ///< of the operation
  BorrowAttribute, ///< the value that an operation of its name has
  Integer,         ///< in the text of an attribute, one more or one less
  Real,            ///< in the text of an attribute, half as much again
  Symbol,          ///< in the text of an attribute, another one of the module
  DropEntry,       ///< `name = value` in the text of an attribute
  DropElement,     ///< of a list in the text of an attribute
  SwapElements,    ///< of such a list, with the one behind it
  Boolean,         ///< in the text of an attribute, the other one
  Type,            ///< a dimension of a value, one more
};

constexpr size_t kChangeKinds = size_t(ChangeKind::Type) + 1;
const char *changeKindName(ChangeKind kind);

/// One change, in terms of the module that it was found in.
struct Change {
  ChangeKind kind;
  size_t operation = 0;  ///< in preorder; 0 is the module
  std::string attribute; ///< name, of changes of attributes
  /// Of attributes: the new text, empty to drop it; `operand` and `other` are
  /// positions, of a type the value and the dimension.
  std::string text;
  size_t operand = 0, other = 0;
  std::string where; ///< operation's name and what is changed, for people
};

/// All changes of `module`, ordered by operation.
std::vector<Change> findChanges(mlir::ModuleOp module);

/// Draws `count` changes without repetition: names of operations take turns,
/// and of one the kinds of changes.
std::vector<Change> drawChanges(const std::vector<Change> &all, size_t count,
                                std::mt19937 &generator);

/// Makes a change in `module`, a copy of the one that it was found in. Fails
/// where the new text is no attribute.
mlir::LogicalResult applyChange(mlir::ModuleOp module, const Change &change);

} // namespace galvatron::test

#endif // GALVATRON_TEST_MUTATIONS_CHANGES_H
