//===- Arguments.h - Flags of a launch script -------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_SOFTWARE_ARGUMENTS_H
#define GALVATRON_LIB_SOFTWARE_ARGUMENTS_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace galvatron {

struct FlagName {
  std::string name; ///< without dashes
  bool takesValue;
};

/// The `--flag value`s of a script's text or of arguments alone, in whatever
/// words of the shell stand around them: quotes, comments, lines that go on.
/// The first error sticks and counts from then on as a value of 1.
class Arguments {
public:
  /// Errors: a flag that is not known, with what was probably meant, one given
  /// twice with another value, a value that is missing, or of a variable.
  static llvm::Expected<Arguments> parse(llvm::StringRef text,
                                         llvm::StringRef fileName,
                                         llvm::ArrayRef<FlagName> known);

  bool has(llvm::StringRef flag) const { return values.count(flag.str()) > 0; }
  int64_t required(llvm::StringRef flag);
  int64_t count(llvm::StringRef flag, int64_t absent);
  /// Which of `words` the flag has; 0 if it is absent.
  size_t oneOf(llvm::StringRef flag, llvm::ArrayRef<llvm::StringRef> words);
  void fail(llvm::StringRef flag, const llvm::Twine &message);
  llvm::Error finish();

private:
  std::string fileName;
  std::map<std::string, std::string> values;
  std::optional<std::string> error;
};

} // namespace galvatron

#endif // GALVATRON_LIB_SOFTWARE_ARGUMENTS_H
