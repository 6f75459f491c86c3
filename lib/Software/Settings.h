//===- Settings.h - Assignments of a configuration file ---------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_SOFTWARE_SETTINGS_H
#define GALVATRON_LIB_SOFTWARE_SETTINGS_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/JSON.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace llvm::yaml {
class Node;
} // namespace llvm::yaml

namespace galvatron {

/// Values by "section.key": lines `key = value` under `[section]` of a TOML
/// file, lines `config.section.key = value` of a Python function, or mappings
/// within mappings of YAML or JSON. The first error sticks and counts from then
/// on as a value of 1.
class Settings {
public:
  /// Lines of other forms are left. Error: a key that is set twice.
  static llvm::Expected<Settings> parse(llvm::StringRef text,
                                        llvm::StringRef fileName);

  /// JSON if the text begins with a brace, else YAML. Lists of scalars are
  /// joined by commas, mappings in lists have keys with their place ("[0]");
  /// null is no value. Errors: no mapping, a key that is set twice.
  static llvm::Expected<Settings> parseNested(llvm::StringRef text,
                                              llvm::StringRef fileName);

  bool has(llvm::StringRef key) const { return values.count(key.str()) > 0; }
  /// The text of a string, without quotes; empty if it is absent.
  llvm::StringRef text(llvm::StringRef key);
  int64_t count(llvm::StringRef key, int64_t absent);
  /// Counts, or -1 for what is left over.
  int64_t countOrRest(llvm::StringRef key, int64_t absent);
  bool flag(llvm::StringRef key, bool absent);
  /// Fails if the key has a value that is none of `words`, in whatever case;
  /// `reason` says why another one is not taken.
  void expect(llvm::StringRef key, llvm::ArrayRef<llvm::StringRef> words,
              const llvm::Twine &reason);
  /// Keys that nobody asked for, in their order.
  std::vector<std::string> others() const;
  /// Keys that somebody asked for, whether they are there or not.
  std::vector<std::string> askedKeys() const;
  void fail(llvm::StringRef key, const llvm::Twine &message);
  llvm::Error finish();

private:
  const std::string *find(llvm::StringRef key);
  /// False if it is set already.
  bool set(std::string key, std::string value);
  llvm::Error addJson(const llvm::json::Value &value, const std::string &key);
  llvm::Error addYaml(llvm::yaml::Node *node, const std::string &key);

  std::string fileName;
  std::map<std::string, std::string> values;
  std::vector<std::string> order;
  std::map<std::string, bool> asked;
  std::optional<std::string> error;
};

} // namespace galvatron

#endif // GALVATRON_LIB_SOFTWARE_SETTINGS_H
