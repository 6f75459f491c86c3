//===- Encoder.cpp - What encoders share ----------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Encoder.h"

#include <cmath>

using namespace galvatron;
using llvm::StringRef;
using llvm::Twine;
using mlir::Value;

EncoderConfig EncoderConfig::readCommon(ConfigReader &reader, double normEps,
                                        double dropout, StringRef activation) {
  EncoderConfig config;
  config.normEps = reader.positiveNumberOr("layer_norm_eps", normEps);
  config.hiddenDropout = reader.probabilityOr("hidden_dropout_prob", dropout);
  config.attentionDropout =
      reader.probabilityOr("attention_probs_dropout_prob", dropout);
  config.initializerRange = reader.positiveNumberOr("initializer_range", 0.02);
  config.readActivation(reader, "hidden_act", activation);
  reader.expectPlain("is_decoder", false);
  reader.expectPlain("add_cross_attention", false);
  return config;
}

void EncoderConfig::readActivation(ConfigReader &reader, StringRef field,
                                   StringRef fallback) {
  std::string activation = reader.stringOr(field, fallback);
  tanhGelu = activation == "gelu_new" || activation == "gelu_pytorch_tanh";
  if (!tanhGelu && activation != "gelu")
    reader.fail(field, "unsupported activation '" + activation +
                           "', expected 'gelu', 'gelu_new' or "
                           "'gelu_pytorch_tanh'");
}

EncoderConfig EncoderConfig::read(ConfigReader &reader, double dropout,
                                  const EncoderSizes &defaults) {
  int64_t width = reader.positiveOr("hidden_size", defaults.width);
  int64_t layers = reader.positiveOr("num_hidden_layers", defaults.layers);
  int64_t heads = reader.positiveOr("num_attention_heads", defaults.heads);
  int64_t inner = reader.positiveOr("intermediate_size", defaults.inner);
  EncoderConfig config =
      readCommon(reader, /*normEps=*/1e-12, dropout, defaults.activation);
  config.width = width;
  config.layers = layers;
  config.heads = heads;
  config.inner = inner;
  if (width % heads)
    reader.fail("hidden_size",
                "expected a multiple of 'num_attention_heads' = " +
                    Twine(heads) + reader.found("hidden_size", width));
  reader.have("num_key_value_heads", heads);
  reader.have("head_dim", width / heads);
  return config;
}

void EncoderConfig::addNorm(BodyParameters &list, const Twine &name) const {
  list.push_back({(name + ".weight").str(), {width}, Initial::ones()});
  list.push_back({(name + ".bias").str(), {width}, Initial::zeros()});
}

void EncoderConfig::addDense(BodyParameters &list, const Twine &name,
                             int64_t out, int64_t in, StringRef factor,
                             StringRef contracted) const {
  BodyParameter weight = {(name + ".weight").str(), {out, in}, normal()};
  BodyParameter bias = {(name + ".bias").str(), {out}, Initial::zeros()};
  if (!factor.empty() || !contracted.empty())
    weight.factors = {factor, contracted};
  if (!factor.empty())
    bias.factors = {factor};
  list.push_back(std::move(weight));
  list.push_back(std::move(bias));
}

void EncoderConfig::addAttention(BodyParameters &list, StringRef prefix) const {
  int64_t size = width / heads;
  for (StringRef name : {"query", "key", "value"}) {
    list.push_back({(prefix + name + ".weight").str(),
                    {width, width},
                    normal(),
                    {heads, size, width},
                    {"heads", "", ""}});
    if (projectionBias)
      list.push_back({(prefix + name + ".bias").str(),
                      {width},
                      Initial::zeros(),
                      {heads, size},
                      {"heads", ""}});
  }
  addDense(list, "attention.output.dense", width, width, "", "heads");
}

void EncoderConfig::addFeedForward(BodyParameters &list) const {
  addDense(list, "intermediate.dense", inner, width, "ffn");
  addDense(list, "output.dense", width, inner, "", "ffn");
}

Value EncoderConfig::norm(ModelBuilder &b, Value x, ParameterCursor &parameters,
                          double eps) const {
  Value weight = parameters.next(), bias = parameters.next();
  return b.layerNorm(x, weight, bias, eps);
}

Value EncoderConfig::dense(ModelBuilder &b, Value x, int64_t out,
                           ParameterCursor &parameters) const {
  Value weight = parameters.next(), bias = parameters.next();
  return b.biasAdd(b.linear(x, weight, {out}, /*transpose=*/true), bias);
}

std::array<Value, 3>
EncoderConfig::projections(ModelBuilder &b, Value x,
                           ParameterCursor &parameters) const {
  int64_t size = width / heads;
  auto projection = [&] {
    Value y = b.linear(x, parameters.next(), {heads, size}, /*transpose=*/true);
    return projectionBias ? b.biasAdd(y, parameters.next()) : y;
  };
  Value q = projection(), k = projection(), v = projection();
  return {q, k, v};
}

AttentionOptions EncoderConfig::attentionOptions() const {
  AttentionOptions options;
  options.scale = 1 / std::sqrt(double(width / heads));
  options.dropout = attentionDropout;
  options.causal = false;
  return options;
}

Value EncoderConfig::attention(ModelBuilder &b, Value x, Value mask,
                               ParameterCursor &parameters) const {
  auto [q, k, v] = projections(b, x, parameters);
  AttentionOptions options = attentionOptions();
  options.mask = mask;
  return dense(b, b.groupedAttention(q, k, v, options), width, parameters);
}

Value EncoderConfig::feedForward(ModelBuilder &b, Value x,
                                 ParameterCursor &parameters) const {
  Value hidden = b.gelu(dense(b, x, inner, parameters), tanhGelu);
  return dense(b, hidden, width, parameters);
}
