//===- ConfigReader.cpp - Fields of a configuration -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ConfigReader.h"

#include "galvatron/Support/Units.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/raw_ostream.h"

using namespace galvatron;

namespace {

/// Fields of every family that say how a checkpoint was stored or how the
/// library runs it, and change neither the model nor its training.
constexpr llvm::StringLiteral kHarmless[] = {"architectures",
                                             "auto_map",
                                             "bad_words_ids",
                                             "begin_suppress_tokens",
                                             "bos_token_id",
                                             "chunk_size_feed_forward",
                                             "cls_token_id",
                                             "diversity_penalty",
                                             "do_sample",
                                             "dtype",
                                             "early_stopping",
                                             "encoder_no_repeat_ngram_size",
                                             "eos_token_id",
                                             "exponential_decay_length_penalty",
                                             "finetuning_task",
                                             "forced_bos_token_id",
                                             "forced_eos_token_id",
                                             "gradient_checkpointing",
                                             "id2label",
                                             "is_encoder_decoder",
                                             "keys_to_ignore_at_inference",
                                             "label2id",
                                             "length_penalty",
                                             "mask_token_id",
                                             "max_length",
                                             "min_length",
                                             "model_type",
                                             "n_ctx",
                                             "no_repeat_ngram_size",
                                             "num_beam_groups",
                                             "num_beams",
                                             "num_labels",
                                             "num_return_sequences",
                                             "output_attentions",
                                             "output_hidden_states",
                                             "output_scores",
                                             "pretraining_tp",
                                             "remove_invalid_values",
                                             "repetition_penalty",
                                             "return_dict",
                                             "return_dict_in_generate",
                                             "sep_token_id",
                                             "suppress_tokens",
                                             "task_specific_params",
                                             "temperature",
                                             "tf_legacy_loss",
                                             "tokenizer_class",
                                             "top_k",
                                             "top_p",
                                             "torch_dtype",
                                             "torchscript",
                                             "transformers_version",
                                             "typical_p",
                                             "use_bfloat16",
                                             "use_cache"};

/// The bound keeps every byte count of a model within 64 bits.
constexpr int64_t kLimit = int64_t(1) << 31;

/// Whether a field that no family asked for leaves the model as it is.
bool isHarmless(llvm::StringRef field, const llvm::json::Value &value) {
  // Nothing is set: null, or no entry.
  const llvm::json::Object *object = value.getAsObject();
  const llvm::json::Array *array = value.getAsArray();
  if (value.kind() == llvm::json::Value::Null || (object && object->empty()) ||
      (array && array->empty()))
    return true;
  // Names with an underscore in front are the library's own notes.
  return field.starts_with("_") || field.starts_with("summary_") ||
         llvm::is_contained(kHarmless, field);
}

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
  return text;
}

int64_t ConfigReader::checkPositive(llvm::StringRef field,
                                    const llvm::json::Value &value) {
  std::optional<int64_t> integer = value.getAsInteger();
  if (integer && *integer >= 1 && *integer < kLimit)
    return *integer;
  fail(field, "expected an integer of at least 1 and below 2147483648, found " +
                  print(field));
  return 1;
}

int64_t ConfigReader::positive(llvm::StringRef field) {
  if (const llvm::json::Value *value = get(field))
    return checkPositive(field, *value);
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
  return checkPositive(field, *value);
}

int64_t ConfigReader::positiveOr(llvm::StringRef field, int64_t fallback) {
  return positiveOrNull(field, fallback).value_or(fallback);
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
  if (!value)
    return fallback;
  if (std::optional<double> number = value->getAsNumber())
    return *number;
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

bool ConfigReader::booleanOr(llvm::StringRef field, bool fallback) {
  const llvm::json::Value *value = get(field);
  if (!value)
    return fallback;
  if (std::optional<bool> boolean = value->getAsBoolean())
    return *boolean;
  fail(field, "expected true or false, found " + print(field));
  return fallback;
}

std::string ConfigReader::stringOr(llvm::StringRef field,
                                   llvm::StringRef fallback) {
  const llvm::json::Value *value = get(field);
  if (!value)
    return fallback.str();
  if (auto text = value->getAsString())
    return text->str();
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
  ConfigReader reader(nested, fileName, modelType);
  reader.prefix = (prefix + field + ".").str();
  return reader;
}

void ConfigReader::finishNested(ConfigReader &reader) {
  if (llvm::Error nested = reader.finish()) {
    std::string message = llvm::toString(std::move(nested));
    if (error.empty())
      error = message;
  }
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
  if (!value)
    return fallback;
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

llvm::Error ConfigReader::finish() {
  // Sorted, so that the same file has the same error everywhere.
  std::vector<llvm::StringRef> rest;
  for (const auto &field : object)
    if (!asked.contains(field.first) && !isHarmless(field.first, field.second))
      rest.push_back(field.first);
  llvm::sort(rest);
  for (llvm::StringRef field : rest)
    fail(field, "not known for the model type '" + modelType + "', found " +
                    print(field));
  return firstError();
}

llvm::Error ConfigReader::firstError() const {
  return error.empty() ? llvm::Error::success() : makeError(error);
}
