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
#include <vector>

namespace galvatron {

struct FlagName {
  std::string name; ///< without dashes
  bool takesValue;
  bool takesMore = false; ///< words behind the value belong to it
};

/// The `--flag value`s of a script's text or of arguments alone, in whatever
/// words of the shell stand around them: quotes, comments, lines that go on.
/// Variables have the value that the script gives them, or their default
/// (`${N:-8}`). The first error sticks and counts from then on as a value of 1.
class Arguments {
public:
  /// Errors: a flag that is given twice with another value, or whose value is
  /// missing.
  static llvm::Expected<Arguments> parse(llvm::StringRef text,
                                         llvm::StringRef fileName,
                                         llvm::ArrayRef<FlagName> known);

  /// Words that nobody read: flags that are not known, and variables that the
  /// script does not set where flags may stand.
  const std::vector<std::string> &unread() const { return notRead; }

  bool has(llvm::StringRef flag) const { return values.count(flag.str()) > 0; }
  int64_t required(llvm::StringRef flag);
  int64_t count(llvm::StringRef flag, int64_t absent);
  /// The value as it stands there; empty if it is absent.
  llvm::StringRef text(llvm::StringRef flag) const;
  /// Which of `words` the flag has; 0 if it is absent.
  size_t oneOf(llvm::StringRef flag, llvm::ArrayRef<llvm::StringRef> words);
  void fail(llvm::StringRef flag, const llvm::Twine &message);
  llvm::Error finish();

private:
  std::string fileName;
  std::map<std::string, std::string> values;
  std::vector<std::string> notRead;
  std::optional<std::string> error;
};

} // namespace galvatron

#endif // GALVATRON_LIB_SOFTWARE_ARGUMENTS_H
