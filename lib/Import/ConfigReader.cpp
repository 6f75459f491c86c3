//===- ConfigReader.cpp - Fields of a configuration -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ConfigReader.h"

#include "FieldTable.h"
#include "galvatron/Support/Suggest.h"
#include "galvatron/Support/Units.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/raw_ostream.h"

#include <cmath>

using namespace galvatron;

namespace {

/// The bound keeps every byte count of a model within 64 bits.
constexpr int64_t kLimit = int64_t(1) << 31;

} // namespace

void ConfigReader::fail(llvm::StringRef field, const llvm::Twine &message) {
  if (error.empty())
    error = (fileName + ": field '" + prefix + field + "': " + message).str();
}

const llvm::json::Value *ConfigReader::get(llvm::StringRef field) {
  asked.insert(field);
  return object.get(field);
}

std::string ConfigReader::print(llvm::StringRef field) const {
  std::string text;
  llvm::raw_string_ostream(text) << *object.get(field);
  // The beginning of a long list or object says which it is.
  constexpr size_t kLongest = 100;
  if (text.size() > kLongest)
    text = llvm::StringRef(text).take_front(kLongest).str() + "..";
  return text;
}

int64_t ConfigReader::checkPositive(llvm::StringRef field,
                                    const llvm::json::Value &value) {
  std::optional<int64_t> integer = value.getAsInteger();
  const bool isLayers = isLayerCount(field);
  if (integer && *integer >= 1 &&
      *integer < (isLayers ? kMostLayers + 1 : kLimit))
    return *integer;
  fail(field, "expected an integer of at least 1 and " +
                  llvm::Twine(isLayers ? "at most " : "below ") +
                  llvm::Twine(isLayers ? kMostLayers : kLimit) + ", found " +
                  print(field));
  return 1;
}

int64_t ConfigReader::positive(llvm::StringRef field) {
  if (const llvm::json::Value *value = get(field)) {
    int64_t number = checkPositive(field, *value);
    have(field, number);
    return number;
  }
  fail(field, "missing");
  return 1;
}

llvm::StringRef ConfigReader::givenOf(Names fields) {
  llvm::StringRef found;
  for (llvm::StringRef field : fields)
    if (get(field) && found.empty())
      found = field;
  return found.empty() ? llvm::StringRef(fields.front()) : found;
}

int64_t ConfigReader::positive(Names fields) {
  return positive(givenOf(fields));
}

int64_t ConfigReader::positiveOr(Names fields, int64_t fallback) {
  return positiveOr(givenOf(fields), fallback);
}

std::optional<int64_t>
ConfigReader::positiveOrNull(llvm::StringRef field,
                             std::optional<int64_t> fallback) {
  const llvm::json::Value *value = get(field);
  if (!value)
    return fallback;
  if (value->kind() == llvm::json::Value::Null)
    return std::nullopt;
  int64_t number = checkPositive(field, *value);
  have(field, number);
  return number;
}

int64_t ConfigReader::positiveOr(llvm::StringRef field, int64_t fallback) {
  int64_t number = positiveOrNull(field, fallback).value_or(fallback);
  have(field, number);
  return number;
}

std::vector<int64_t> ConfigReader::positivesOr(llvm::StringRef field,
                                               std::vector<int64_t> fallback) {
  const llvm::json::Value *value = get(field);
  if (!value || value->kind() == llvm::json::Value::Null)
    return fallback;
  const llvm::json::Array *array = value->getAsArray();
  if (!array || array->empty()) {
    fail(field, "expected a list of integers, found " + print(field));
    return fallback;
  }
  std::vector<int64_t> result;
  for (const llvm::json::Value &entry : *array)
    result.push_back(checkPositive(field, entry));
  return result;
}

int64_t ConfigReader::countOr(llvm::StringRef field, int64_t fallback) {
  const llvm::json::Value *value = get(field);
  if (!value || value->kind() == llvm::json::Value::Null)
    return fallback;
  std::optional<int64_t> integer = value->getAsInteger();
  if (integer && *integer >= 0 && *integer < kLimit)
    return *integer;
  fail(field, "expected an integer of at least 0 and below 2147483648, found " +
                  print(field));
  return fallback;
}

double ConfigReader::numberOr(llvm::StringRef field, double fallback) {
  const llvm::json::Value *value = get(field);
  std::optional<double> number = value ? value->getAsNumber() : fallback;
  if (number) {
    have(field, *number);
    return *number;
  }
  fail(field, "expected a number, found " + print(field));
  return fallback;
}

double ConfigReader::probabilityOr(llvm::StringRef field, double fallback) {
  double value = numberOr(field, fallback);
  if (!get(field) || (value >= 0 && value < 1))
    return value;
  fail(field, "expected a probability in [0, 1), found " + print(field));
  return fallback;
}

double ConfigReader::positiveNumberOr(llvm::StringRef field, double fallback) {
  double value = numberOr(field, fallback);
  if (!get(field) || value > 0)
    return value;
  fail(field, "expected a positive number, found " + print(field));
  return fallback;
}

std::optional<double>
ConfigReader::positiveNumberOrNull(llvm::StringRef field) {
  const llvm::json::Value *value = get(field);
  if (!value || value->kind() == llvm::json::Value::Null)
    return std::nullopt;
  return positiveNumberOr(field, 1);
}

double ConfigReader::positiveNumber(llvm::StringRef field) {
  if (!get(field))
    fail(field, "missing");
  return positiveNumberOr(field, 1);
}

std::vector<double> ConfigReader::positiveNumbers(llvm::StringRef field) {
  const llvm::json::Value *value = get(field);
  std::vector<double> result;
  if (const llvm::json::Array *array = value ? value->getAsArray() : nullptr) {
    for (const llvm::json::Value &entry : *array)
      if (auto number = entry.getAsNumber();
          number && *number > 0 && std::isfinite(*number))
        result.push_back(*number);
    if (result.size() == array->size())
      return result;
  }
  fail(field, value
                  ? "expected a list of positive numbers, found " + print(field)
                  : "missing");
  return {};
}

bool ConfigReader::booleanOr(llvm::StringRef field, bool fallback) {
  const llvm::json::Value *value = get(field);
  std::optional<bool> boolean = value ? value->getAsBoolean() : fallback;
  if (boolean) {
    have(field, *boolean);
    return *boolean;
  }
  fail(field, "expected true or false, found " + print(field));
  return fallback;
}

std::string ConfigReader::stringOr(llvm::StringRef field,
                                   llvm::StringRef fallback) {
  const llvm::json::Value *value = get(field);
  auto text = value ? value->getAsString() : fallback;
  if (text) {
    have(field, text->str());
    return text->str();
  }
  fail(field, "expected a string, found " + print(field));
  return fallback.str();
}

std::optional<std::vector<std::string>>
ConfigReader::strings(llvm::StringRef field) {
  const llvm::json::Value *value = get(field);
  if (!value || value->kind() == llvm::json::Value::Null)
    return std::nullopt;
  std::vector<std::string> result;
  if (const llvm::json::Array *array = value->getAsArray()) {
    for (const llvm::json::Value &entry : *array) {
      auto text = entry.getAsString();
      if (!text)
        break;
      result.push_back(text->str());
    }
    if (result.size() == array->size())
      return result;
  }
  fail(field, "expected a list of strings, found " + print(field));
  return std::nullopt;
}

std::optional<std::vector<bool>> ConfigReader::flags(llvm::StringRef field) {
  const llvm::json::Value *value = get(field);
  if (!value || value->kind() == llvm::json::Value::Null)
    return std::nullopt;
  std::vector<bool> result;
  if (const llvm::json::Array *array = value->getAsArray()) {
    for (const llvm::json::Value &entry : *array) {
      auto flag = entry.getAsBoolean();
      auto number = entry.getAsInteger();
      if (!flag && number != 0 && number != 1)
        break;
      result.push_back(flag.value_or(number == 1));
    }
    if (result.size() == array->size())
      return result;
  }
  fail(field, "expected a list of 0 and 1, found " + print(field));
  return std::nullopt;
}

const llvm::json::Object *ConfigReader::nested(llvm::StringRef field) {
  const llvm::json::Value *value = get(field);
  if (!value || value->kind() == llvm::json::Value::Null)
    return nullptr;
  if (const llvm::json::Object *result = value->getAsObject())
    return result;
  fail(field, "expected an object, found " + print(field));
  return nullptr;
}

ConfigReader
ConfigReader::nestedReader(llvm::StringRef field,
                           const llvm::json::Object &nested) const {
  ConfigReader reader(nested, fileName, modelType, ignored);
  reader.prefix = (prefix + field + ".").str();
  return reader;
}

void ConfigReader::finishNested(ConfigReader &reader) {
  if (llvm::Error nested = reader.finish()) {
    std::string message = llvm::toString(std::move(nested));
    if (error.empty())
      error = message;
  }
  llvm::append_range(passed, reader.passed);
  llvm::append_range(dropped, reader.dropped);
}

std::pair<int64_t, int64_t> ConfigReader::sizeOr(llvm::StringRef field,
                                                 int64_t fallback) {
  const llvm::json::Value *value = get(field);
  if (!value || value->kind() == llvm::json::Value::Null)
    return {fallback, fallback};
  const llvm::json::Array *array = value->getAsArray();
  if (!array) {
    int64_t size = checkPositive(field, *value);
    return {size, size};
  }
  if (array->size() == 2)
    return {checkPositive(field, (*array)[0]),
            checkPositive(field, (*array)[1])};
  fail(field,
       "expected a size or a list of rows and columns, found " + print(field));
  return {fallback, fallback};
}

std::optional<int64_t>
ConfigReader::paddingToken(std::optional<int64_t> fallback,
                           int64_t vocabulary) {
  const llvm::json::Value *value = get("pad_token_id");
  if (!value) {
    if (fallback && *fallback >= vocabulary)
      fail("pad_token_id", "absent, which means " + llvm::Twine(*fallback) +
                               ", expected a number below 'vocab_size' = " +
                               llvm::Twine(vocabulary) + ", or null");
    return fallback;
  }
  if (value->kind() == llvm::json::Value::Null)
    return std::nullopt;
  int64_t token = countOr("pad_token_id", 0);
  if (token >= vocabulary)
    fail("pad_token_id",
         "expected a number below 'vocab_size' = " + llvm::Twine(vocabulary) +
             ", found " + llvm::Twine(token));
  return token;
}

int64_t ConfigReader::classes() {
  const llvm::json::Object *names = nested("id2label");
  int64_t named = names ? int64_t(names->size()) : 2;
  int64_t count = countOr("num_labels", named);
  get("label2id");
  if (count < 2) {
    fail(has("num_labels") ? "num_labels" : "id2label",
         "expected at least 2 classes, found " + llvm::Twine(count));
    return 2;
  }
  return count;
}

void ConfigReader::passOver(Names fields) {
  for (llvm::StringRef field : fields)
    get(field);
}

void ConfigReader::expectPlain(llvm::StringRef field,
                               const llvm::json::Value &plain,
                               const llvm::Twine &why) {
  const llvm::json::Value *value = get(field);
  if (!value || value->kind() == llvm::json::Value::Null || *value == plain)
    return;
  std::string expected;
  llvm::raw_string_ostream(expected) << plain;
  fail(field, why + ", expected " + expected + ", found " + print(field));
}

void ConfigReader::expectArchitecture(Names names) {
  std::optional<std::vector<std::string>> given = strings("architectures");
  if (!given || given->empty() || llvm::is_contained(names, given->front()))
    return;
  std::string expected;
  llvm::raw_string_ostream stream(expected);
  llvm::interleave(
      names, stream,
      [&](llvm::StringRef name) { stream << "'" << name << "'"; }, " or ");
  fail("architectures",
       "expected " + expected + ", found '" + given->front() + "'");
}

void ConfigReader::expectForeign(llvm::StringRef field,
                                 const llvm::json::Value &plain,
                                 const llvm::Twine &why) {
  if (llvm::is_contained(ignored, prefix + field.str()))
    return;
  expectPlain(field, plain, why);
}

void ConfigReader::have(llvm::StringRef field, llvm::json::Value value) {
  auto meaning = meaningOf(field);
  llvm::StringRef name = meaning ? meaning->name : field;
  if (std::optional<bool> flag = value.getAsBoolean();
      flag && meaning && meaning->negated)
    value = !*flag;
  effects[name].push_back(std::move(value));
}

std::string ConfigReader::found(llvm::StringRef field, int64_t value) const {
  if (has(field))
    return ", found " + std::to_string(value);
  return ", but it is not given and its default is " + std::to_string(value);
}

llvm::SmallVector<llvm::json::Value, 2>
ConfigReader::effectsOf(llvm::StringRef meaning) const {
  if (auto it = effects.find(meaning); it != effects.end())
    return {it->second.begin(), it->second.end()};
  return fixedEffects(modelType, meaning);
}

std::string ConfigReader::guess(llvm::StringRef field) const {
  // Guesses among the names that the family knows and the file does not have.
  std::vector<std::string> missing;
  for (const auto &name : asked.keys())
    if (!has(name))
      missing.push_back(name.str());
  llvm::sort(missing);
  llvm::StringRef nearest;
  // More letters than these are not misspelt.
  unsigned least = std::min<unsigned>(3, unsigned(field.size() + 3) / 4 + 1);
  for (const std::string &name : missing)
    if (unsigned distance = field.edit_distance(name, true, least);
        distance < least) {
      least = distance;
      nearest = name;
    }
  return nearest.str();
}

std::string ConfigReader::judge(llvm::StringRef field,
                                const llvm::json::Value &value) {
  bool isOff = isEmptyValue(value) || value == llvm::json::Value(false);
  auto pass = [&] {
    if (!isOff || !isQuietWhenOff(field))
      passed.push_back("'" + prefix + field.str() + "': " + print(field));
    return "";
  };
  std::string unknown =
      (refusal.empty() ? "not known for the model type '" + modelType + "'"
                       : refusal) +
      ", found " + print(field);
  if (isLibraryNote(field))
    return "";
  if (isEmptyValue(value))
    return pass();
  if (auto meaning = meaningOf(field)) {
    std::optional<bool> flag = value.getAsBoolean();
    llvm::json::Value said =
        flag && meaning->negated ? llvm::json::Value(!*flag) : value;
    llvm::SmallVector<llvm::json::Value, 2> values = effectsOf(meaning->name);
    for (const llvm::json::Value &effect : values)
      if (sameValue(said, effect))
        return pass();
    llvm::StringRef by = switchOf(field);
    const llvm::json::Value *state = by.empty() ? nullptr : object.get(by);
    if (state && (*state == llvm::json::Value(false)))
      return pass();
    if (values.empty())
      return unknown + "; other families read it";
    std::string effect;
    llvm::raw_string_ostream(effect)
        << (flag && meaning->negated && values.front().getAsBoolean()
                ? llvm::json::Value(!*values.front().getAsBoolean())
                : values.front());
    return unknown + "; other families read it, here " + effect +
           " is in effect";
  }
  bool off = value == llvm::json::Value(false) ||
             (isOffAtZero(field) && value.getAsNumber() == 0.0);
  // A misspelt name that says no says it of a field that is read.
  if ((off && guess(field).empty()) || isForeignNote(field, value))
    return pass();
  return unknown;
}

llvm::Error ConfigReader::finish() {
  for (const std::string &name : ignored) {
    llvm::StringRef field = name;
    if (!field.consume_front(prefix) || !has(field))
      continue;
    if (asked.contains(field)) {
      fail(field, "expected a field that '" + modelType +
                      "' does not read for --ignore-field");
      continue;
    }
    dropped.push_back(name);
  }
  // Sorted, so that the same file has the same error everywhere.
  std::vector<llvm::StringRef> rest;
  for (const auto &field : object)
    if (!asked.contains(field.first) &&
        !llvm::is_contained(dropped, prefix + field.first.str()))
      rest.push_back(field.first);
  llvm::sort(rest);
  std::string first = std::move(error), misspelt, foreign;
  for (llvm::StringRef field : rest) {
    std::string why = judge(field, *object.get(field));
    if (why.empty())
      continue;
    error.clear();
    std::string meant = meaningOf(field) ? "" : guess(field);
    fail(field,
         why + (meant.empty() ? "; --ignore-field=" + prefix + field.str() +
                                    " if it changes nothing"
                              : "; did you mean '" + meant + "'?"));
    if (misspelt.empty() && !meant.empty())
      misspelt = error;
    if (foreign.empty())
      foreign = error;
  }
  error = !misspelt.empty()               ? misspelt
          : first.empty() || unknownFirst ? (foreign.empty() ? first : foreign)
                                          : first;
  return firstError();
}

std::string ConfigReader::ownCode() const {
  const llvm::json::Object *map = object.getObject("auto_map");
  if (!map || map->empty())
    return "";
  // The class of the model, else whatever is named.
  const llvm::json::Value *code = nullptr;
  for (llvm::StringRef field :
       {"AutoModelForCausalLM", "AutoModelForMaskedLM", "AutoModel"})
    if (!code)
      code = map->get(field);
  std::string text;
  llvm::raw_string_ostream(text) << (code ? *code : map->begin()->second);
  return "the file names code of its own, " + text +
         ": taken for the library's '" + modelType + "'";
}

llvm::Error ConfigReader::firstError() const {
  return error.empty() ? llvm::Error::success() : makeError(error);
}
