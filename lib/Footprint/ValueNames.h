//===- ValueNames.h - Values of a body in the model's words -----*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A value is named by the parameter that the operation which makes it reads,
// without what all parameters of the layer begin with: self_attn.q_proj. Of
// several operations of one module the last has its name, and others theirs
// behind it: mlp.c_fc.linear. An operation without parameters has its own name
// behind that of its operand, self_attn.q_proj.rotary, or behind what its
// operands' names have in common, self_attn.attention. A result that is not the
// first has its name behind that: self_attn.attention.lse.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_FOOTPRINT_VALUENAMES_H
#define GALVATRON_LIB_FOOTPRINT_VALUENAMES_H

#include "galvatron/Strategy/KeptValues.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mlir::galvatron {

/// Names all values of a body but losses, in the order in which they are
/// computed. `parameters` are those of a layer of it, and the body's last
/// arguments. No two values have one name.
std::vector<::galvatron::NamedValue>
nameValues(func::FuncOp body, ArrayRef<std::string> parameters);

} // namespace mlir::galvatron

#endif // GALVATRON_LIB_FOOTPRINT_VALUENAMES_H
