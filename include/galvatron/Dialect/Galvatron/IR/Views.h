//===- Views.h - Shapes that are views of each other ------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_GALVATRON_IR_VIEWS_H
#define GALVATRON_DIALECT_GALVATRON_IR_VIEWS_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"

namespace mlir::galvatron {

/// True if both shapes have as many elements and the dimensions of one come
/// from those of the other by joining neighbours, so that no row of it ends in
/// the middle of one of the other's.
inline bool areViews(llvm::ArrayRef<int64_t> one,
                     llvm::ArrayRef<int64_t> other) {
  auto rowSizes = [](llvm::ArrayRef<int64_t> shape) {
    llvm::SmallVector<int64_t> sizes = {1};
    for (int64_t size : llvm::reverse(shape))
      sizes.push_back(sizes.back() * size);
    return sizes;
  };
  llvm::SmallVector<int64_t> a = rowSizes(one), b = rowSizes(other);
  auto within = [](llvm::ArrayRef<int64_t> few, llvm::ArrayRef<int64_t> many) {
    return llvm::all_of(
        few, [&](int64_t size) { return llvm::is_contained(many, size); });
  };
  return a.back() == b.back() && (within(a, b) || within(b, a));
}

} // namespace mlir::galvatron

#endif // GALVATRON_DIALECT_GALVATRON_IR_VIEWS_H
