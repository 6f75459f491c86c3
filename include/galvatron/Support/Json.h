//===- Json.h - Reading JSON objects strictly -------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Helpers around llvm::json: every missing, mistyped or unknown key is an error
// that names the key's path ("layers[3].count") and what was expected there.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_SUPPORT_JSON_H
#define GALVATRON_SUPPORT_JSON_H

#include "llvm/Support/Error.h"
#include "llvm/Support/JSON.h"

#include <optional>
#include <string>
#include <vector>

namespace galvatron {

/// Parses `text`; the error carries `name` and the line.
llvm::Expected<llvm::json::Value> parseJson(llvm::StringRef text,
                                            llvm::StringRef name);

/// JSON text on one line, with numbers as they were written: 1.0 is no 1 to
/// readers that tell them apart.
std::string compactJson(llvm::StringRef text);

/// Reads the members of one JSON object. The first error sticks, later reads
/// give zero values; call `finish` at the end.
class ObjectReader {
public:
  /// `path` is the object's place in the document, "" for the whole.
  ObjectReader(const llvm::json::Value &value, std::string path);

  bool has(llvm::StringRef key);
  int64_t integer(llvm::StringRef key);
  int64_t integerOr(llvm::StringRef key, int64_t fallback);
  /// A count of bytes or the like: an integer that is not negative.
  int64_t natural(llvm::StringRef key);
  int64_t naturalOr(llvm::StringRef key, int64_t fallback);
  double number(llvm::StringRef key);
  double numberOr(llvm::StringRef key, double fallback);
  bool booleanOr(llvm::StringRef key, bool fallback);
  std::string string(llvm::StringRef key);
  std::string stringOr(llvm::StringRef key, llvm::StringRef fallback);
  /// Null (and an error) if the member is missing or not an array/object.
  const llvm::json::Array *array(llvm::StringRef key);
  const llvm::json::Value *value(llvm::StringRef key);

  std::string pathOf(llvm::StringRef key) const;
  void fail(const llvm::Twine &message);
  bool failed() const { return error.has_value(); }
  /// Success, or the first error. Keys never asked for are an error if
  /// `rejectUnknown`.
  llvm::Error finish(bool rejectUnknown = true);

private:
  const llvm::json::Value *get(llvm::StringRef key, bool required);
  /// Members that nobody asked for.
  std::vector<llvm::StringRef> unknownKeys() const;

  const llvm::json::Object *object;
  std::string path;
  std::optional<std::string> error;
  /// Whether `error` says that a key is missing.
  bool isMissing = false;
  std::vector<std::string> asked;
};

} // namespace galvatron

#endif // GALVATRON_SUPPORT_JSON_H
