//===- Suggest.cpp - The name that was probably meant ---------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Support/Suggest.h"

#include "llvm/ADT/Twine.h"

using namespace llvm;

std::string galvatron::didYouMean(StringRef found,
                                  ArrayRef<std::string> known) {
  // Names that differ in more than half of their letters are not misspelt.
  unsigned least = (found.size() + 1) / 2;
  StringRef nearest;
  for (const std::string &name : known) {
    unsigned distance = found.edit_distance(name, /*AllowReplacements=*/true,
                                            /*MaxEditDistance=*/least);
    if (distance < least) {
      least = distance;
      nearest = name;
    }
  }
  if (nearest.empty())
    return "";
  return ("; did you mean '" + nearest + "'?").str();
}
