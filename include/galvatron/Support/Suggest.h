//===- Suggest.h - The name that was probably meant -------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_SUPPORT_SUGGEST_H
#define GALVATRON_SUPPORT_SUGGEST_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <string>

namespace galvatron {

/// The end of a message about an unknown name: "; did you mean 'h100'?" with
/// the known name of the least edit distance, the first of several. Empty if
/// none is nearer than half of the name.
std::string didYouMean(llvm::StringRef found,
                       llvm::ArrayRef<std::string> known);

} // namespace galvatron

#endif // GALVATRON_SUPPORT_SUGGEST_H
