//===- Settings.cpp - Assignments of a configuration file -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Settings.h"

#include "galvatron/Support/Json.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/YAMLParser.h"

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
    if (!settings.set(name, value.str()))
      return makeError(fileName + ": '" + name + "' is set twice");
  }
  return settings;
}

bool Settings::set(std::string key, std::string value) {
  if (!values.insert({key, std::move(value)}).second)
    return false;
  order.push_back(std::move(key));
  return true;
}

/// The key of an element that is no scalar: "data_stages[0]".
static std::string placeIn(StringRef key, size_t index) {
  return (key + "[" + Twine(index) + "]").str();
}

/// The text of a scalar; none of an object, an array or null.
static std::optional<std::string> scalarText(const json::Value &value) {
  if (std::optional<StringRef> text = value.getAsString())
    return text->str();
  if (value.kind() == json::Value::Boolean ||
      value.kind() == json::Value::Number)
    return formatv("{0}", value).str();
  return std::nullopt;
}

Error Settings::addJson(const json::Value &value, const std::string &key) {
  if (value.kind() == json::Value::Null)
    return Error::success();
  if (const json::Object *object = value.getAsObject()) {
    std::vector<std::string> names;
    for (const auto &[name, member] : *object)
      names.push_back(StringRef(name).str());
    llvm::sort(names);
    for (const std::string &name : names)
      if (Error error = addJson(*object->get(name),
                                key.empty() ? name : key + "." + name))
        return error;
    return Error::success();
  }
  const json::Array *array = value.getAsArray();
  std::vector<std::string> texts;
  for (size_t i = 0; array && i < array->size(); ++i) {
    if (std::optional<std::string> text = scalarText((*array)[i]))
      texts.push_back(std::move(*text));
    else if (Error error = addJson((*array)[i], placeIn(key, i)))
      return error;
  }
  if (!array)
    texts.push_back(*scalarText(value));
  if (!array || !texts.empty())
    set(key, join(texts, ","));
  return Error::success();
}

Error Settings::addYaml(yaml::Node *node, const std::string &key) {
  SmallString<32> storage;
  if (!node || isa<yaml::NullNode>(node))
    return Error::success();
  if (auto *mapping = dyn_cast<yaml::MappingNode>(node)) {
    for (yaml::KeyValueNode &pair : *mapping) {
      auto *name = dyn_cast_or_null<yaml::ScalarNode>(pair.getKey());
      if (!name)
        return makeError(fileName + ": expected keys that are words");
      std::string whole = name->getValue(storage).str();
      if (!key.empty())
        whole = key + "." + whole;
      if (Error error = addYaml(pair.getValue(), whole))
        return error;
    }
    return Error::success();
  }
  std::vector<std::string> texts;
  auto addScalar = [&](yaml::Node *element) {
    auto *scalar = dyn_cast_or_null<yaml::ScalarNode>(element);
    if (scalar)
      texts.push_back(scalar->getValue(storage).str());
    return scalar != nullptr;
  };
  auto *sequence = dyn_cast<yaml::SequenceNode>(node);
  size_t index = 0;
  if (sequence)
    for (yaml::Node &element : *sequence) {
      if (!addScalar(&element))
        if (Error error = addYaml(&element, placeIn(key, index)))
          return error;
      ++index;
    }
  else if (!addScalar(node))
    return makeError(fileName + ": '" + key + "': expected a value");
  if (sequence && texts.empty())
    return Error::success();
  if (texts.size() == 1 && (texts[0] == "null" || texts[0] == "~"))
    return Error::success();
  if (!set(key, join(texts, ",")))
    return makeError(fileName + ": '" + key + "' is set twice");
  return Error::success();
}

/// Whether brackets, or dashes and question marks of YAML on one line, are
/// nested deeper than any configuration: readers call themselves for each.
static bool isTooDeep(StringRef text) {
  constexpr int kMostDeep = 100;
  int depth = 0, marks = 0;
  for (char c : text) {
    depth += (c == '[' || c == '{') - (c == ']' || c == '}');
    marks = c == '\n' ? 0 : marks + (c == '-' || c == '?' || c == ':');
    if (depth > kMostDeep || marks > 10 * kMostDeep)
      return true;
  }
  return false;
}

Expected<Settings> Settings::parseNested(StringRef text, StringRef fileName) {
  Settings settings;
  settings.fileName = fileName.str();
  if (isTooDeep(text))
    return makeError(fileName + ": nested too deeply for a configuration");
  if (text.ltrim().starts_with("{")) {
    Expected<json::Value> value = parseJson(text, fileName);
    if (!value)
      return value.takeError();
    if (Error error = settings.addJson(*value, ""))
      return error;
    return settings;
  }
  std::string message;
  SourceMgr sources;
  sources.setDiagHandler(
      [](const SMDiagnostic &diagnostic, void *context) {
        std::string &first = *static_cast<std::string *>(context);
        if (first.empty())
          first = ("line " + Twine(diagnostic.getLineNo()) + ": " +
                   diagnostic.getMessage())
                      .str();
      },
      &message);
  yaml::Stream stream(text, sources);
  auto document = stream.begin();
  yaml::Node *root = document == stream.end() ? nullptr : document->getRoot();
  if (!message.empty())
    return makeError(fileName + ": " + message);
  if (!isa_and_nonnull<yaml::MappingNode>(root))
    return makeError(fileName + ": expected a mapping of keys to values");
  Error error = settings.addYaml(root, "");
  if (!message.empty()) {
    consumeError(std::move(error));
    return makeError(fileName + ": " + message);
  }
  if (error)
    return error;
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
  if (StringRef(*value).equals_insensitive("true"))
    return true;
  if (!StringRef(*value).equals_insensitive("false"))
    fail(key, "expected true or false, found '" + *value + "'");
  return false;
}

void Settings::expect(StringRef key, ArrayRef<StringRef> words,
                      const Twine &reason) {
  const std::string *value = find(key);
  if (!value || any_of(words, [&](StringRef word) {
        return word.equals_insensitive(*value);
      }))
    return;
  fail(key, "expected " + join(words, " or ") + ", found '" + *value +
                "': " + reason);
}

std::vector<std::string> Settings::others() const {
  std::vector<std::string> others;
  for (const std::string &key : order)
    if (!asked.count(key))
      others.push_back(key);
  return others;
}

std::vector<std::string> Settings::askedKeys() const {
  std::vector<std::string> keys;
  for (const auto &[key, value] : asked)
    keys.push_back(key);
  return keys;
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
