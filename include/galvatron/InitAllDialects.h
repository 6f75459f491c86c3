//===- InitAllDialects.h - Registers the dialects ---------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_INITALLDIALECTS_H
#define GALVATRON_INITALLDIALECTS_H

#include "mlir/IR/DialectRegistry.h"

namespace galvatron {

/// Every dialect that a module may hold between import and emission, and the
/// footprints that planning asks for.
void registerAllDialects(mlir::DialectRegistry &registry);

} // namespace galvatron

#endif // GALVATRON_INITALLDIALECTS_H
