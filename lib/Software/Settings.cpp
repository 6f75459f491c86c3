//===- Settings.cpp - Assignments of a configuration file -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Settings.h"

#include "galvatron/Support/Units.h"

using namespace llvm;

namespace galvatron {

/// Without a comment behind it, outside of quotes.
static StringRef withoutComment(StringRef line) {
  char quote = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    if (quote)
      quote = line[i] == quote ? 0 : quote;
    else if (line[i] == '"' || line[i] == '\'')
      quote = line[i];
    else if (line[i] == '#')
      return line.take_front(i);
  }
  return line;
}

Expected<Settings> Settings::parse(StringRef text, StringRef fileName) {
  Settings settings;
  settings.fileName = fileName.str();
  std::string section;
  while (!text.empty()) {
    auto [line, rest] = text.split('\n');
    text = rest;
    line = withoutComment(line).trim();
    if (line.starts_with("[") && line.ends_with("]")) {
      section = line.drop_front().drop_back().trim().str() + ".";
      continue;
    }
    auto [left, right] = line.split('=');
    StringRef key = left.trim(), value = right.trim();
    if (line.find('=') == StringRef::npos || key.empty() ||
        key.find_first_of(" (\"'") != StringRef::npos)
      continue;
    std::string name = section + key.str();
    if (section.empty()) {
      if (!key.consume_front("config."))
        continue;
      name = key.str();
    }
    if (value.size() >= 2 && (value[0] == '"' || value[0] == '\'') &&
        value.back() == value[0])
      value = value.drop_front().drop_back();
    if (!settings.values.insert({name, value.str()}).second)
      return makeError(fileName + ": '" + name + "' is set twice");
    settings.order.push_back(name);
  }
  return settings;
}

const std::string *Settings::find(StringRef key) {
  asked[key.str()] = true;
  auto entry = values.find(key.str());
  return entry == values.end() ? nullptr : &entry->second;
}

StringRef Settings::text(StringRef key) {
  const std::string *value = find(key);
  return value ? StringRef(*value) : StringRef();
}

int64_t Settings::countOrRest(StringRef key, int64_t absent) {
  const std::string *value = find(key);
  if (!value)
    return absent;
  int64_t number = 0;
  if (!StringRef(*value).getAsInteger(10, number) &&
      (number >= 0 || number == -1) && number <= (int64_t(1) << 40))
    return number;
  fail(key, "expected a count, found '" + *value + "'");
  return 1;
}

int64_t Settings::count(StringRef key, int64_t absent) {
  int64_t number = countOrRest(key, absent);
  if (number >= 0)
    return number;
  fail(key, "expected a count, found '-1'");
  return 1;
}

bool Settings::flag(StringRef key, bool absent) {
  const std::string *value = find(key);
  if (!value)
    return absent;
  if (*value == "true" || *value == "True")
    return true;
  if (*value != "false" && *value != "False")
    fail(key, "expected true or false, found '" + *value + "'");
  return false;
}

std::vector<std::string> Settings::others() const {
  std::vector<std::string> others;
  for (const std::string &key : order)
    if (!asked.count(key))
      others.push_back(key);
  return others;
}

void Settings::fail(StringRef key, const Twine &message) {
  if (!error)
    error = (fileName + ": '" + key + "': " + message).str();
}

Error Settings::finish() {
  if (error)
    return makeError(*error);
  return Error::success();
}

} // namespace galvatron
