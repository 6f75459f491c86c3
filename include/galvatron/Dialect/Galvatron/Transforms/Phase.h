//===- Phase.h - The phases of compilation ----------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_DIALECT_GALVATRON_TRANSFORMS_PHASE_H
#define GALVATRON_DIALECT_GALVATRON_TRANSFORMS_PHASE_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <optional>
#include <string>

namespace mlir::galvatron {

/// The phases of compilation in their order. `galvatron-verify-phase` states
/// what holds after each.
enum class Phase {
  Import,
  Annotate,
  Plan,
  Split,
  Differentiate,
  Partition,
  Bufferize,
  Schedule,
  Allocate,
  Emit
};

/// "import", "annotate", ...
llvm::StringRef stringifyPhase(Phase phase);
std::optional<Phase> symbolizePhase(llvm::StringRef name);
/// Returns all phases, in order.
llvm::ArrayRef<Phase> allPhases();
/// "import, annotate, ..." for messages and help.
std::string phaseNames();

} // namespace mlir::galvatron

#endif // GALVATRON_DIALECT_GALVATRON_TRANSFORMS_PHASE_H
