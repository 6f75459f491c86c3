//===- SumTiming.cpp - When a stage's gradients are summed ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Strategy/SumTiming.h"

#include "galvatron/Support/Units.h"

#include "llvm/Support/ErrorHandling.h"

using namespace llvm;

namespace galvatron {

StringRef sumTimingName(SumTiming timing) {
  switch (timing) {
  case SumTiming::ByRule:
    return "by-rule";
  case SumTiming::Overlap:
    return "overlap";
  case SumTiming::AtEnd:
    return "at-end";
  }
  llvm_unreachable("all ways are handled");
}

Expected<SumTiming> parseSumTiming(StringRef text) {
  for (SumTiming timing :
       {SumTiming::ByRule, SumTiming::Overlap, SumTiming::AtEnd})
    if (text == sumTimingName(timing))
      return timing;
  return makeError("expected 'by-rule', 'overlap' or 'at-end', found '" + text +
                   "'");
}

} // namespace galvatron
