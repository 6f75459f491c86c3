//===- Optimizer.cpp - Rules by which parameters are updated --------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Strategy/Optimizer.h"

using namespace llvm;

namespace galvatron {

static constexpr StringLiteral optimizerNames[] = {"sgd", "adam", "adamw"};

StringRef optimizerName(Optimizer optimizer) {
  return optimizerNames[static_cast<size_t>(optimizer)];
}

std::optional<Optimizer> optimizerNamed(StringRef name) {
  for (size_t number = 0; number < std::size(optimizerNames); ++number)
    if (optimizerNames[number] == name)
      return static_cast<Optimizer>(number);
  return std::nullopt;
}

StringRef optimizerList() { return "'adamw', 'adam' or 'sgd'"; }

int64_t optimizerMoments(Optimizer optimizer) {
  return optimizer == Optimizer::SGD ? 1 : 2;
}

} // namespace galvatron
