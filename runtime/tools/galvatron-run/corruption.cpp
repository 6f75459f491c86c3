//===- corruption.cpp - Which tokens stand for masks and spans ------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "corruption.h"

#include "base/error.h"
#include "core/manifest.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>

using namespace grt;

namespace {

class TokenFinder {
public:
  TokenFinder(const Program &program, const TextCoding &text)
      : text(text), below(program.vocabularySize()),
        config(nlohmann::json::parse(program.manifest().modelConfig, nullptr,
                                     /*allow_exceptions=*/false)) {}

  int64_t words() const {
    return text.vocabulary() ? text.vocabulary() : below;
  }

  /// A token as an option gives it.
  int32_t given(const char *option, const std::string &value) const {
    bool isNumber = value.size() < 10 &&
                    value.find_first_not_of("0123456789") == std::string::npos;
    std::optional<int32_t> token =
        isNumber ? std::optional(int32_t(std::stol(value))) : text.find(value);
    if (!token)
      invalid(std::string(option) + ": expected " +
              (text.vocabulary() ? "a token of the tokenizer, or its number"
                                 : "a number, or --tokenizer=FILE") +
              ", found '" + value + "'");
    if (*token >= below)
      invalid(std::string(option) + ": expected less than the vocabulary of " +
              str(below) + ", found " + str(*token));
    return *token;
  }
  std::optional<int32_t> configured(const std::string &key) const {
    if (!config.is_object() || !config.contains(key) ||
        !config[key].is_number_integer())
      return std::nullopt;
    int64_t token = config[key].get<int64_t>();
    return token >= 0 && token < below ? std::optional(int32_t(token))
                                       : std::nullopt;
  }
  int32_t needed(const std::string &option, const char *key,
                 const char *what) const {
    std::optional<int32_t> token = configured(key);
    if (!token)
      invalid(option + ": which token is " + what +
              " is not known; expected '" + key +
              "', a token of the vocabulary, in the configuration that the "
              "program was compiled from");
    return *token;
  }
  DecoderTokens ofDecoder(const std::string &option) const {
    DecoderTokens tokens;
    tokens.padding = needed(option, "pad_token_id", "padding");
    tokens.end = needed(option, "eos_token_id", "the end");
    tokens.start = needed(option, "decoder_start_token_id",
                          "the first that a decoder reads");
    return tokens;
  }
  /// Returns the tokens that stand for no text, as the tokenizer and the
  /// configuration say.
  std::vector<int32_t> special(int32_t mask) const {
    std::set<int32_t> tokens = {mask};
    for (int32_t token = 0; token < text.vocabulary(); ++token)
      if (text.isSpecial(token))
        tokens.insert(token);
    for (const char *key : {"bos_token_id", "cls_token_id", "eos_token_id",
                            "mask_token_id", "pad_token_id", "sep_token_id"})
      if (std::optional<int32_t> token = configured(key))
        tokens.insert(*token);
    return {tokens.begin(), tokens.end()};
  }

private:
  const TextCoding &text;
  const int64_t below;
  const nlohmann::json config;
};

int32_t findMask(const Options &options, const TextCoding &text,
                 const TokenFinder &finder) {
  if (!options.maskToken.empty())
    return finder.given("--mask-token", options.maskToken);
  for (const char *name : {"[MASK]", "<mask>"})
    if (std::optional<int32_t> token = text.find(name))
      return *token;
  if (std::optional<int32_t> token = finder.configured("mask_token_id"))
    return *token;
  invalid("--corrupt=tokens: which token is the mask is not known; expected "
          "--mask-token=TOKEN, or a --tokenizer with [MASK] or <mask>");
}

std::vector<int32_t> findSentinels(const Options &options,
                                   const TextCoding &text,
                                   const TokenFinder &finder) {
  std::vector<int32_t> sentinels;
  if (!options.firstSentinel.empty()) {
    for (int32_t token =
             finder.given("--first-sentinel", options.firstSentinel);
         token >= 0; --token)
      sentinels.push_back(token);
    return sentinels;
  }
  auto named = [&](size_t number) {
    return text.find("<extra_id_" + std::to_string(number) + ">");
  };
  while (std::optional<int32_t> token = named(sentinels.size()))
    sentinels.push_back(*token);
  if (sentinels.empty())
    invalid("--corrupt=spans: which tokens stand for spans is not known; "
            "expected --first-sentinel=TOKEN, from which they descend, or a "
            "--tokenizer with <extra_id_0>");
  return sentinels;
}

} // namespace

Status findCorruptionTokens(const Options &options, const Program &program,
                            const TextCoding &text, Corruption &corruption) {
  return guarded([&] {
    TokenFinder finder(program, text);
    switch (corruption.kind) {
    case Corruption::Kind::None:
      return;
    case Corruption::Kind::Tokens:
      corruption.mask = findMask(options, text, finder);
      corruption.special = finder.special(corruption.mask);
      corruption.words = finder.words();
      if (options.frameSamples) {
        text.frame(corruption.before, corruption.behind);
        if (corruption.before.empty() && corruption.behind.empty())
          invalid("--frame-samples: expected a --tokenizer that puts tokens "
                  "around a text");
      }
      return;
    case Corruption::Kind::Spans:
      corruption.sentinels = findSentinels(options, text, finder);
      DecoderTokens around = finder.ofDecoder("--corrupt=spans");
      corruption.padding = around.padding;
      corruption.end = around.end;
      corruption.start = around.start;
      return;
    }
  });
}

Status findDecoderTokens(const std::string &option, const Program &program,
                         const TextCoding &text, DecoderTokens &tokens) {
  return guarded(
      [&] { tokens = TokenFinder(program, text).ofDecoder(option); });
}
