//===- Phase.cpp - The phases of compilation ------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/Galvatron/Transforms/Phase.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir::galvatron;

static constexpr Phase phases[] = {
    Phase::Import,        Phase::Annotate,  Phase::Plan,      Phase::Split,
    Phase::Differentiate, Phase::Partition, Phase::Bufferize, Phase::Schedule,
    Phase::Allocate,      Phase::Emit};

llvm::ArrayRef<Phase> mlir::galvatron::allPhases() { return phases; }

llvm::StringRef mlir::galvatron::stringifyPhase(Phase phase) {
  switch (phase) {
  case Phase::Import:
    return "import";
  case Phase::Annotate:
    return "annotate";
  case Phase::Plan:
    return "plan";
  case Phase::Split:
    return "split";
  case Phase::Differentiate:
    return "differentiate";
  case Phase::Partition:
    return "partition";
  case Phase::Bufferize:
    return "bufferize";
  case Phase::Schedule:
    return "schedule";
  case Phase::Allocate:
    return "allocate";
  case Phase::Emit:
    return "emit";
  }
  llvm_unreachable("every phase has a name");
}

std::optional<Phase> mlir::galvatron::symbolizePhase(llvm::StringRef name) {
  for (Phase phase : phases)
    if (stringifyPhase(phase) == name)
      return phase;
  return std::nullopt;
}

std::string mlir::galvatron::phaseNames() {
  return llvm::join(llvm::map_range(phases, stringifyPhase), ", ");
}
