//===- Json.cpp - Reading JSON objects strictly ---------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Support/Json.h"
#include "galvatron/Support/Suggest.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace llvm;

namespace galvatron {

/// Returns true if brackets outside of strings are nested deeper than a stack
/// allows: the parser calls itself for each.
static bool isTooDeep(StringRef text) {
  constexpr int kMostDeep = 1000;
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    char letter = text[i];
    if (quoted && letter == '\\')
      ++i;
    else if (letter == '"')
      quoted = !quoted;
    else if (!quoted)
      depth +=
          (letter == '[' || letter == '{') - (letter == ']' || letter == '}');
    if (depth > kMostDeep)
      return true;
  }
  return false;
}

Expected<json::Value> parseJson(StringRef text, StringRef name) {
  if (isTooDeep(text))
    return makeError(name + ": invalid JSON: nested too deeply");
  Expected<json::Value> value = json::parse(text);
  if (value)
    return value;
  std::string reason = toString(value.takeError());
  // "[3:7, byte=41]: Expected ..." becomes "name:3:7: expected ...".
  StringRef rest = reason;
  std::string place;
  if (rest.consume_front("[")) {
    place = rest.split(',').first.str() + ": ";
    rest = rest.split("]: ").second;
  }
  // The parser's word where it found none.
  std::string lowered =
      rest == "Invalid JSON value" ? "expected a value" : rest.str();
  if (!lowered.empty())
    lowered[0] = toLower(lowered[0]);
  return makeError(name + ":" + (place.empty() ? " " : place) +
                   "invalid JSON: " + lowered);
}

std::string compactJson(StringRef text) {
  std::string result;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    char letter = text[i];
    if (!quoted && isSpace(letter))
      continue;
    result += letter;
    if (quoted && letter == '\\' && i + 1 < text.size())
      result += text[++i];
    else if (letter == '"')
      quoted = !quoted;
  }
  return result;
}

static StringRef kindName(const json::Value &value) {
  switch (value.kind()) {
  case json::Value::Null:
    return "null";
  case json::Value::Boolean:
    return "a boolean";
  case json::Value::Number:
    return "a number";
  case json::Value::String:
    return "a string";
  case json::Value::Array:
    return "an array";
  case json::Value::Object:
    return "an object";
  }
  llvm_unreachable("all kinds are handled");
}

ObjectReader::ObjectReader(const json::Value &value, std::string path)
    : object(value.getAsObject()), path(std::move(path)) {
  if (!object)
    fail((this->path.empty() ? std::string("document")
                             : "'" + this->path + "'") +
         ": expected an object, found " + kindName(value));
}

std::string ObjectReader::pathOf(StringRef key) const {
  return path.empty() ? key.str() : path + "." + key.str();
}

void ObjectReader::fail(const Twine &message) {
  if (!error)
    error = message.str();
}

const json::Value *ObjectReader::get(StringRef key, bool required) {
  if (!is_contained(asked, key))
    asked.push_back(key.str());
  if (!object)
    return nullptr;
  const json::Value *value = object->get(key);
  if (!value && required && !error) {
    fail("missing key '" + pathOf(key) + "'");
    isMissing = true;
  }
  return value;
}

bool ObjectReader::has(StringRef key) { return get(key, false) != nullptr; }

const json::Value *ObjectReader::value(StringRef key) { return get(key, true); }

int64_t ObjectReader::integer(StringRef key) {
  const json::Value *value = get(key, true);
  if (!value)
    return 0;
  // llvm's getAsInteger also takes 3.0 and refuses 3.5.
  if (std::optional<int64_t> number = value->getAsInteger())
    return *number;
  fail("'" + pathOf(key) + "': expected an integer, found " + kindName(*value));
  return 0;
}

int64_t ObjectReader::integerOr(StringRef key, int64_t fallback) {
  return has(key) ? integer(key) : fallback;
}

int64_t ObjectReader::natural(StringRef key) {
  int64_t value = integer(key);
  if (value < 0) {
    fail("'" + pathOf(key) + "': expected an integer of at least 0, found " +
         Twine(value));
    return 0;
  }
  return value;
}

int64_t ObjectReader::naturalOr(StringRef key, int64_t fallback) {
  return has(key) ? natural(key) : fallback;
}

double ObjectReader::number(StringRef key) {
  const json::Value *value = get(key, true);
  if (!value)
    return 0;
  if (std::optional<double> number = value->getAsNumber())
    return *number;
  fail("'" + pathOf(key) + "': expected a number, found " + kindName(*value));
  return 0;
}

double ObjectReader::numberOr(StringRef key, double fallback) {
  return has(key) ? number(key) : fallback;
}

bool ObjectReader::booleanOr(StringRef key, bool fallback) {
  const json::Value *value = get(key, false);
  if (!value)
    return fallback;
  if (std::optional<bool> boolean = value->getAsBoolean())
    return *boolean;
  fail("'" + pathOf(key) + "': expected true or false, found " +
       kindName(*value));
  return fallback;
}

std::string ObjectReader::string(StringRef key) {
  const json::Value *value = get(key, true);
  if (!value)
    return "";
  if (std::optional<StringRef> text = value->getAsString())
    return text->str();
  fail("'" + pathOf(key) + "': expected a string, found " + kindName(*value));
  return "";
}

std::string ObjectReader::stringOr(StringRef key, StringRef fallback) {
  return has(key) ? string(key) : fallback.str();
}

const json::Array *ObjectReader::array(StringRef key) {
  const json::Value *value = get(key, true);
  if (!value)
    return nullptr;
  if (const json::Array *array = value->getAsArray())
    return array;
  fail("'" + pathOf(key) + "': expected an array, found " + kindName(*value));
  return nullptr;
}

std::vector<StringRef> ObjectReader::unknownKeys() const {
  std::vector<StringRef> keys;
  if (object)
    for (const auto &member : *object)
      if (!is_contained(asked, StringRef(member.first)))
        keys.push_back(member.first);
  return keys;
}

Error ObjectReader::finish(bool rejectUnknown) {
  for (StringRef key :
       rejectUnknown ? unknownKeys() : std::vector<StringRef>()) {
    std::string meant = didYouMean(key, asked);
    // A required key may be missing because it is misspelt.
    if (!error || (isMissing && !meant.empty())) {
      error = "unknown key '" + pathOf(key) + "'" + meant;
      break;
    }
  }
  if (error)
    return makeError(*error);
  return Error::success();
}

} // namespace galvatron
