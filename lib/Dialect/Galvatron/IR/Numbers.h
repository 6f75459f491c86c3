//===- Numbers.h - Numbers in attributes ------------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_DIALECT_GALVATRON_IR_NUMBERS_H
#define GALVATRON_LIB_DIALECT_GALVATRON_IR_NUMBERS_H

#include "mlir/IR/BuiltinAttributes.h"

#include <cmath>

namespace mlir::galvatron {

/// A finite f64 number; optionally positive.
inline bool isNumber(Attribute attribute, bool positive) {
  auto number = dyn_cast_or_null<FloatAttr>(attribute);
  if (!number || !number.getType().isF64())
    return false;
  double value = number.getValueAsDouble();
  return std::isfinite(value) && (positive ? value > 0 : value >= 0);
}

} // namespace mlir::galvatron

#endif // GALVATRON_LIB_DIALECT_GALVATRON_IR_NUMBERS_H
