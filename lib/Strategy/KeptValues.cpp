//===- KeptValues.cpp - What a layer keeps for backward -------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Strategy/KeptValues.h"
#include "galvatron/Support/Json.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace llvm;

namespace galvatron {

std::string KeptValue::str() const {
  std::string text = std::to_string(operation);
  if (result > 0)
    text += ":" + std::to_string(result);
  return text;
}

Expected<KeptValue> KeptValue::parse(StringRef text) {
  auto isNumber = [](StringRef digits) {
    return !digits.empty() && digits.size() <= 6 && all_of(digits, isDigit);
  };
  auto [operation, result] = text.split(':');
  KeptValue value;
  if (!isNumber(operation) || (text.contains(':') && !isNumber(result)))
    return makeError("expected an operation's number and, unless it is 0, a "
                     "result's, like '7' or '7:1', found '" +
                     text + "'");
  operation.getAsInteger(10, value.operation);
  if (!result.empty())
    result.getAsInteger(10, value.result);
  return value;
}

Error checkAscending(const std::vector<KeptValue> &values) {
  for (size_t i = 1; i < values.size(); ++i)
    if (values[i] <= values[i - 1])
      return makeError("expected kept values in ascending order, found '" +
                       values[i].str() + "' behind '" + values[i - 1].str() +
                       "'");
  return Error::success();
}

json::Value KeptValues::toJson() const {
  json::Array array;
  for (const KeptValue &value : values)
    array.push_back(value.str());
  return json::Object{{"body", body}, {"values", std::move(array)}};
}

Expected<KeptValues> KeptValues::fromJson(const json::Value &value,
                                          const std::string &path) {
  ObjectReader reader(value, path);
  KeptValues kept;
  kept.body = reader.string("body");
  if (const json::Array *array = reader.array("values"))
    for (const json::Value &entry : *array) {
      std::optional<StringRef> text = entry.getAsString();
      if (!text) {
        reader.fail("'" + path + ".values': expected strings");
        break;
      }
      Expected<KeptValue> parsed = KeptValue::parse(*text);
      if (!parsed) {
        reader.fail("'" + path + ".values': " + toString(parsed.takeError()));
        break;
      }
      kept.values.push_back(*parsed);
    }
  if (Error error = checkAscending(kept.values))
    reader.fail("'" + path + ".values': " + toString(std::move(error)));
  if (Error error = reader.finish(/*rejectUnknown=*/true))
    return error;
  return kept;
}

} // namespace galvatron
