//===- Gpt2Config.cpp - Reads a GPT-2 configuration -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Gpt2.h"

#include "galvatron/Support/Units.h"

using namespace galvatron;

namespace {

/// Reads fields one by one; the first error sticks.
class FieldReader {
public:
  FieldReader(const llvm::json::Object &object, llvm::StringRef fileName)
      : object(object), fileName(fileName) {}

  void fail(llvm::StringRef field, const llvm::Twine &message) {
    if (error.empty())
      error = (fileName + ": field '" + field + "': " + message).str();
  }

  /// An integer of at least 1.
  int64_t positive(llvm::StringRef field) {
    const llvm::json::Value *value = object.get(field);
    if (!value) {
      fail(field, "missing");
      return 1;
    }
    return positive(field, *value);
  }

  int64_t positiveOr(llvm::StringRef field, int64_t fallback) {
    const llvm::json::Value *value = object.get(field);
    if (!value || value->kind() == llvm::json::Value::Null)
      return fallback;
    return positive(field, *value);
  }

  /// A number in [0, 1).
  double probabilityOr(llvm::StringRef field, double fallback) {
    double value = numberOr(field, fallback);
    if (!(value >= 0 && value < 1))
      fail(field, "expected a probability in [0, 1), found " + print(field));
    return value;
  }

  double positiveNumberOr(llvm::StringRef field, double fallback) {
    double value = numberOr(field, fallback);
    if (!(value > 0))
      fail(field, "expected a positive number, found " + print(field));
    return value;
  }

  bool booleanOr(llvm::StringRef field, bool fallback) {
    const llvm::json::Value *value = object.get(field);
    if (!value)
      return fallback;
    if (std::optional<bool> boolean = value->getAsBoolean())
      return *boolean;
    fail(field, "expected true or false, found " + print(field));
    return fallback;
  }

  std::string stringOr(llvm::StringRef field, llvm::StringRef fallback) {
    const llvm::json::Value *value = object.get(field);
    if (!value)
      return fallback.str();
    if (auto text = value->getAsString())
      return text->str();
    fail(field, "expected a string, found " + print(field));
    return fallback.str();
  }

  llvm::Error finish() {
    return error.empty() ? llvm::Error::success() : makeError(error);
  }

private:
  std::string print(llvm::StringRef field) {
    std::string text;
    llvm::raw_string_ostream(text) << *object.get(field);
    return text;
  }

  int64_t positive(llvm::StringRef field, const llvm::json::Value &value) {
    // The bound keeps every byte count of a model within 64 bits.
    constexpr int64_t limit = int64_t(1) << 31;
    std::optional<int64_t> integer = value.getAsInteger();
    if (integer && *integer >= 1 && *integer < limit)
      return *integer;
    fail(field, "expected an integer of at least 1 and below 2147483648, "
                "found " +
                    print(field));
    return 1;
  }

  double numberOr(llvm::StringRef field, double fallback) {
    const llvm::json::Value *value = object.get(field);
    if (!value)
      return fallback;
    if (std::optional<double> number = value->getAsNumber())
      return *number;
    fail(field, "expected a number, found " + print(field));
    return fallback;
  }

  const llvm::json::Object &object;
  llvm::StringRef fileName;
  std::string error;
};

} // namespace

llvm::Expected<Gpt2Config> Gpt2Config::parse(const llvm::json::Value &value,
                                             llvm::StringRef fileName) {
  FieldReader reader(*value.getAsObject(), fileName);
  Gpt2Config config;
  config.vocabSize = reader.positive("vocab_size");
  config.positions = reader.positive("n_positions");
  config.width = reader.positive("n_embd");
  config.layers = reader.positive("n_layer");
  config.heads = reader.positive("n_head");
  config.inner = reader.positiveOr("n_inner", 4 * config.width);
  config.layerNormEps = reader.positiveNumberOr("layer_norm_epsilon", 1e-5);
  config.residualDropout = reader.probabilityOr("resid_pdrop", 0.1);
  config.embeddingDropout = reader.probabilityOr("embd_pdrop", 0.1);
  config.attentionDropout = reader.probabilityOr("attn_pdrop", 0.1);
  config.initializerRange = reader.positiveNumberOr("initializer_range", 0.02);
  config.scaleAttention = reader.booleanOr("scale_attn_weights", true);
  config.tied = reader.booleanOr("tie_word_embeddings", true);

  std::string activation = reader.stringOr("activation_function", "gelu_new");
  config.tanhGelu = activation == "gelu_new" ||
                    activation == "gelu_pytorch_tanh" ||
                    activation == "gelu_fast";
  if (!config.tanhGelu && activation != "gelu")
    reader.fail("activation_function",
                "unsupported activation '" + activation +
                    "', expected 'gelu_new', 'gelu_pytorch_tanh', 'gelu_fast' "
                    "or 'gelu'");
  if (config.width % config.heads)
    reader.fail("n_embd", "expected a multiple of 'n_head' = " +
                              llvm::Twine(config.heads) + ", found " +
                              llvm::Twine(config.width));
  // Blocks share one body, so what differs from block to block, or adds to a
  // block, would silently be lost.
  for (llvm::StringRef field :
       {"scale_attn_by_inverse_layer_idx", "add_cross_attention"})
    if (reader.booleanOr(field, false))
      reader.fail(field, "unsupported, expected false, found true");
  if (llvm::Error error = reader.finish())
    return error;
  return config;
}
