//===- FunctionsByName.h - Functions of a module ----------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_GALVATRON_TRANSFORMS_FUNCTIONSBYNAME_H
#define GALVATRON_DIALECT_GALVATRON_TRANSFORMS_FUNCTIONSBYNAME_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

namespace mlir::galvatron {

/// The functions of tensors of a module, by name. A symbol table has the
/// parameters too, which are many times as many.
class FunctionsByName {
public:
  explicit FunctionsByName(ModuleOp module) {
    for (auto function : module.getOps<func::FuncOp>())
      functions[function.getSymNameAttr()] = function;
  }

  /// The function that a symbol names; null if there is no symbol, or none.
  func::FuncOp lookup(FlatSymbolRefAttr symbol) const {
    return symbol ? functions.lookup(symbol.getAttr()) : func::FuncOp();
  }

private:
  llvm::DenseMap<StringAttr, func::FuncOp> functions;
};

} // namespace mlir::galvatron

#endif // GALVATRON_DIALECT_GALVATRON_TRANSFORMS_FUNCTIONSBYNAME_H
