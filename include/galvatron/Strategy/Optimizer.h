//===- Optimizer.h - Rules by which parameters are updated ------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Options and files name optimizers; in the IR and in a program's kernels they
// are these numbers, which are those of the C ABI (grt_optimizer).
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_STRATEGY_OPTIMIZER_H
#define GALVATRON_STRATEGY_OPTIMIZER_H

#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <optional>

namespace galvatron {

enum class Optimizer : uint8_t {
  SGD,  ///< with momentum
  Adam, ///< decay as part of the gradient
  AdamW ///< decoupled decay
};

/// "sgd", "adam", "adamw".
llvm::StringRef optimizerName(Optimizer optimizer);
/// Returns the optimizer of a name; nothing for another name.
std::optional<Optimizer> optimizerNamed(llvm::StringRef name);
/// "'adamw', 'adam' or 'sgd'", for messages.
llvm::StringRef optimizerList();
/// Values that it keeps for every parameter: the momentum, or two moments.
int64_t optimizerMoments(Optimizer optimizer);

} // namespace galvatron

#endif // GALVATRON_STRATEGY_OPTIMIZER_H
