//===- TestStrategy.h - Strategies from their text, in tests --------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef UNITTESTS_TESTSTRATEGY_H
#define UNITTESTS_TESTSTRATEGY_H

#include "galvatron/Strategy/Strategy.h"

inline galvatron::Strategy get(const char *text) {
  return llvm::cantFail(galvatron::Strategy::parse(text));
}

#endif // UNITTESTS_TESTSTRATEGY_H
