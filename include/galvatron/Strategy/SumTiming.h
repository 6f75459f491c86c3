//===- SumTiming.h - When a stage's gradients are summed --------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_STRATEGY_SUMTIMING_H
#define GALVATRON_STRATEGY_SUMTIMING_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>

namespace galvatron {

/// When gradients of a stage are summed over ranks, on devices with streams. It
/// changes no result, only times.
enum class SumTiming : uint8_t {
  /// Nobody has chosen: overlapsSums() has a rule.
  ByRule,
  /// Sums run behind the last backward passes of their layers, beside those of
  /// layers below; what clashes with a sum waits for it (AwaitedSums).
  Overlap,
  /// Sums run one after the other at the end of the step.
  AtEnd
};

/// "by-rule", "overlap", "at-end".
llvm::StringRef sumTimingName(SumTiming timing);
/// Reads a name; the error lists all.
llvm::Expected<SumTiming> parseSumTiming(llvm::StringRef text);

} // namespace galvatron

#endif // GALVATRON_STRATEGY_SUMTIMING_H
