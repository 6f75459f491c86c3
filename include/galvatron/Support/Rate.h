//===- Rate.h - Text of a rate ----------------------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_SUPPORT_RATE_H
#define GALVATRON_SUPPORT_RATE_H

#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

#include <string>

namespace galvatron {

/// Returns "35.52", and of rates that two decimals do not show two digits:
/// "0.0032".
inline std::string rateText(double rate) {
  constexpr double least = 0.01;
  std::string text;
  llvm::raw_string_ostream(text)
      << llvm::format(rate > 0 && rate < least ? "%.2g" : "%.2f", rate);
  return text;
}

} // namespace galvatron

#endif // GALVATRON_SUPPORT_RATE_H
