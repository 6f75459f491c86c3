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

ArrayRef<RecomputeModule> recomputeModules() {
  static constexpr RecomputeModule modules[] = {
      {"core_attn", "attention between the projections", true},
      {"layernorm", "norms", true},
      {"mlp",
       "what is between the norm behind attention and the sum with the "
       "residual",
       true},
      {"moe", "experts", false},
      {"moe_act", "activations of experts", false},
      {"shared_experts", "experts of all tokens", false},
      {"mla_up_proj", "projections of latent attention", false},
  };
  return modules;
}

std::optional<std::vector<KeptValue>>
selectValues(ArrayRef<NamedValue> values, ArrayRef<std::string> words) {
  std::vector<char> chosen(values.size(), 0);
  bool any = false, adds = false, found = false;
  for (StringRef word : words) {
    bool takesAway = word.consume_front("-");
    if (takesAway && !any)
      for (auto [value, is] : zip_equal(values, chosen))
        is = value.needed;
    any = true;
    adds |= !takesAway;
    for (auto [value, is] : zip_equal(values, chosen)) {
      StringRef name = value.name;
      bool meant = name == word || is_contained(value.modules, word) ||
                   (name.consume_front(word) && name.starts_with("."));
      if (!meant)
        continue;
      is = !takesAway;
      found = true;
    }
  }
  std::vector<KeptValue> selected;
  for (auto [value, is] : zip_equal(values, chosen))
    if (is)
      selected.push_back(value.value);
  if (!found || (adds && selected.empty()))
    return std::nullopt;
  llvm::sort(selected);
  return selected;
}

Error checkAscending(const std::vector<KeptValue> &values) {
  for (size_t i = 1; i < values.size(); ++i)
    if (values[i] <= values[i - 1])
      return makeError("expected kept values in ascending order, found '" +
                       values[i].str() + "' behind '" + values[i - 1].str() +
                       "'");
  return Error::success();
}

std::string KeptValues::text() const {
  if (names.empty() && remade.empty())
    return "";
  std::string text =
      names.empty() ? "keeps nothing" : "keeps " + join(names, ", ");
  if (!remade.empty())
    text += "; computes " + join(remade, ", ") + " again";
  return text;
}

json::Value KeptValues::toJson() const {
  json::Array array;
  for (const KeptValue &value : values)
    array.push_back(value.str());
  json::Object object{{"body", body}, {"values", std::move(array)}};
  if (!names.empty())
    object["names"] = json::Array(names);
  if (!remade.empty())
    object["remade"] = json::Array(remade);
  return object;
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
  for (auto [key, list] :
       {std::pair{"names", &kept.names}, std::pair{"remade", &kept.remade}}) {
    if (!reader.has(key))
      continue;
    const json::Array *array = reader.array(key);
    for (const json::Value &entry : array ? *array : json::Array()) {
      std::optional<StringRef> text = entry.getAsString();
      if (!text) {
        reader.fail("'" + path + "." + key + "': expected strings");
        break;
      }
      list->push_back(text->str());
    }
  }
  if (Error error = checkAscending(kept.values))
    reader.fail("'" + path + ".values': " + toString(std::move(error)));
  if (Error error = reader.finish(/*rejectUnknown=*/true))
    return error;
  return kept;
}

} // namespace galvatron
