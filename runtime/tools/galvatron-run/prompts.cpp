//===- prompts.cpp - The texts that are to be continued -------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "prompts.h"

#include "base/error.h"
#include "base/text.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

using namespace grt;

namespace {

/// The text of a line of a .jsonl.
std::string textOfLine(const std::string &line, const std::string &place) {
  const nlohmann::json value =
      nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (value.is_string())
    return value.get<std::string>();
  if (value.is_object() && value.contains("prompt") &&
      value["prompt"].is_string())
    return value["prompt"].get<std::string>();
  invalid(place + ": expected a JSON string, or an object with a string "
                  "\"prompt\"");
}

/// A text that is to be continued, and what messages about it begin with.
struct GivenText {
  std::string text, place;
};

std::vector<GivenText> readTexts(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    invalid("--prompts: cannot read '" + path + "'");
  const bool isJson = path.ends_with(".jsonl");
  std::vector<GivenText> texts;
  std::string line;
  for (size_t number = 1; std::getline(file, line); ++number) {
    // Lines may end in "\r\n".
    if (line.ends_with('\r'))
      line.pop_back();
    if (line.empty())
      continue;
    const std::string place = path + ":" + std::to_string(number);
    texts.push_back({isJson ? textOfLine(line, place) : line, place});
  }
  if (texts.empty())
    invalid("--prompts: expected a text a line, found none in '" + path + "'");
  return texts;
}

/// Reads one number of the file, if it has one that is not null.
template <class T>
void readNumber(const nlohmann::json &config, const char *key,
                const std::string &path, double least, double most, T &result) {
  if (!config.contains(key) || config[key].is_null())
    return;
  const nlohmann::json &value = config[key];
  if (!value.is_number() || value.get<double>() < least ||
      value.get<double>() > most)
    invalid(path + ": expected \"" + key + "\" to be a number from " +
            nlohmann::json(least).dump() + " to " +
            nlohmann::json(most).dump() + ", found " + value.dump());
  result = value.get<T>();
}

void addEnds(const nlohmann::json &value, const std::string &path,
             int64_t vocabulary, std::set<int32_t> &ends) {
  if (value.is_array()) {
    for (const nlohmann::json &each : value)
      addEnds(each, path, vocabulary, ends);
    return;
  }
  if (!value.is_number_integer() || value.get<int64_t>() < 0 ||
      value.get<int64_t>() >= vocabulary)
    invalid(path + ": expected \"eos_token_id\" to be tokens below " +
            std::to_string(vocabulary) + ", found " + value.dump());
  ends.insert(value.get<int32_t>());
}

/// Names the fields of the file that choose other tokens in the library and are
/// not read here, "" if it has none but at values that say nothing.
std::string unreadFields(const nlohmann::json &config) {
  const std::pair<const char *, nlohmann::json> plain[] = {
      {"num_beams", 1},
      {"num_beam_groups", 1},
      {"penalty_alpha", 0},
      {"repetition_penalty", 1},
      {"encoder_repetition_penalty", 1},
      {"no_repeat_ngram_size", 0},
      {"encoder_no_repeat_ngram_size", 0},
      {"min_length", 0},
      {"min_new_tokens", 0},
      {"min_p", 0},
      {"typical_p", 1},
      {"suppress_tokens", nullptr},
      {"begin_suppress_tokens", nullptr},
      {"bad_words_ids", nullptr},
      {"forced_decoder_ids", nullptr},
      {"forced_eos_token_id", nullptr}};
  std::string names;
  for (const auto &[name, value] : plain)
    if (config.contains(name) && !config[name].is_null() &&
        config[name] != value)
      names += (names.empty() ? "" : ", ") + std::string(name);
  return names;
}

/// Takes from the file what no option says.
void readConfig(const std::string &path, const Options &options,
                int64_t vocabulary, bool hasEncoder, GenerationRules &rules) {
  std::ifstream file(path);
  if (!file)
    invalid("cannot read '" + path + "'");
  const nlohmann::json config =
      nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object())
    invalid("'" + path + "': expected a JSON object");
  rules.unread = unreadFields(config);
  if (options.endToken.empty() && config.contains("eos_token_id") &&
      !config["eos_token_id"].is_null())
    addEnds(config["eos_token_id"], path, vocabulary, rules.ends);
  if (!options.given.count("--tokens"))
    readNumber(config, "max_new_tokens", path, 1, 1e9, rules.mostTokens);
  if (hasEncoder)
    readNumber(config, "forced_bos_token_id", path, 0, double(vocabulary - 1),
               rules.forced);
  const bool draws = config.contains("do_sample") &&
                     config["do_sample"].is_boolean() &&
                     config["do_sample"].get<bool>();
  if (!draws || options.given.count("--temperature"))
    return;
  rules.sampling.temperature = 1;
  rules.sampling.topK = 50; // the library's own default
  readNumber(config, "temperature", path, 0, 1e9, rules.sampling.temperature);
  readNumber(config, "top_k", path, 0, 1e9, rules.sampling.topK);
  readNumber(config, "top_p", path, 0, 1, rules.sampling.topP);
}

/// Reads the texts that the encoder of a program reads.
void readSources(const Options &options, const Program &program,
                 const TextCoding &text, const std::vector<GivenText> &texts,
                 KeptPrompts &result) {
  if (options.given.count("--tokens") &&
      options.tokens > uint64_t(program.cacheLength()))
    invalid("--tokens: expected at most the " + str(program.cacheLength()) +
            " that the program keeps of a text, found " + str(options.tokens));
  DecoderTokens around;
  if (Status status = findDecoderTokens("--generate", program, text, around);
      !status)
    fail(ExitCode(status.exitCode()), status.message());
  result.rules.ends.insert(around.end);
  for (const auto &[one, place] : texts) {
    BegunText &begun = result.prompts.emplace_back();
    begun.tokens = {around.start};
    begun.padding = around.padding;
    if (Status status =
            encodeSource(place, program, text, around, one, begun.source);
        !status)
      fail(ExitCode(status.exitCode()), status.message());
    result.texts.emplace_back();
  }
  result.continuations.resize(result.prompts.size());
}

} // namespace

std::string generationConfigPath(const Options &options) {
  if (!options.generationConfig.empty() || options.init.empty())
    return options.generationConfig;
  std::error_code missing;
  const std::filesystem::path init = options.init;
  const std::filesystem::path folder =
      std::filesystem::is_directory(init, missing) ? init : init.parent_path();
  const std::filesystem::path found = folder / "generation_config.json";
  return std::filesystem::exists(found, missing) ? found.string() : "";
}

Status encodeSource(const std::string &place, const Program &program,
                    const TextCoding &text, const DecoderTokens &around,
                    const std::string &source, std::vector<int32_t> &tokens) {
  std::vector<int32_t> own, behind;
  if (Status status = text.encode(source, own); !status)
    return Status(status.exitCode(), place + ": " + status.message());
  text.frame(tokens, behind);
  if (behind.empty())
    behind = {around.end};
  tokens.insert(tokens.end(), own.begin(), own.end());
  tokens.insert(tokens.end(), behind.begin(), behind.end());
  if (tokens.size() <= size_t(program.sequenceLength()))
    return Status();
  return Status(ExitInvalid, place + ": the text has " +
                                 std::to_string(tokens.size()) +
                                 " tokens with the end, expected at most the " +
                                 std::to_string(program.sequenceLength()) +
                                 " of the program's encoder");
}

Status readPrompts(const Options &options, const Program &program,
                   const TextCoding &text, KeptPrompts &result) {
  return guarded([&] {
    result.rules.mostTokens = options.tokens;
    result.rules.sampling = options.sampling;
    if (text.end() >= 0)
      result.rules.ends.insert(text.end());
    if (const std::string path = generationConfigPath(options); !path.empty())
      readConfig(path, options, program.vocabularySize(),
                 program.cachesSources(), result.rules);
    const std::vector<GivenText> texts =
        options.generate
            ? std::vector<GivenText>{{*options.generate, "--generate"}}
            : readTexts(options.prompts);
    if (program.cachesSources())
      return readSources(options, program, text, texts, result);
    const int64_t length = program.cacheLength();
    for (const auto &[one, place] : texts) {
      std::vector<int32_t> tokens;
      if (Status status = text.encode(one, tokens); !status)
        fail(ExitCode(status.exitCode()), place + ": " + status.message());
      if (tokens.size() >= uint64_t(length))
        invalid(place + ": expected a prompt of at most " +
                std::to_string(length - 1) + " tokens, as the program keeps " +
                std::to_string(length) + ", found " +
                std::to_string(tokens.size()));
      const uint64_t all = tokens.size() + result.rules.mostTokens;
      if (options.given.count("--tokens") && all > uint64_t(length))
        invalid((options.generate ? "" : place + ": ") +
                "--tokens: expected a prompt and what is behind it of at most "
                "the " +
                std::to_string(length) +
                " tokens that the program keeps, found " +
                std::to_string(tokens.size()) + " and " +
                std::to_string(options.tokens));
      result.texts.push_back(one);
      result.prompts.push_back({std::move(tokens), {}});
    }
    result.continuations.resize(result.prompts.size());
  });
}

std::string continuationText(const TextCoding &text,
                             const std::vector<int32_t> &prompt,
                             const std::vector<int32_t> &tokens) {
  std::vector<int32_t> both = prompt;
  both.insert(both.end(), tokens.begin(), tokens.end());
  const std::string before = text.decode(prompt), all = text.decode(both);
  return all.starts_with(before) ? all.substr(before.size())
                                 : text.decode(tokens);
}
