//===- model_config.cpp - Configurations of two models --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "model_config.h"

#include "base/error.h"
#include "base/files.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>

namespace {

using ConfigJson = nlohmann::json;

/// Tokens that stand around what a decoder writes behind an encoder.
constexpr const char *tokensAroundText[] = {"decoder_start_token_id",
                                            "eos_token_id", "pad_token_id"};

bool standsAroundText(const std::string &field) {
  return std::ranges::find(tokensAroundText, field) !=
         std::end(tokensAroundText);
}

/// Fields that change nothing of a model that has its weights: notes of the
/// library, what it generates with, and how weights begin.
bool changesNothing(const std::string &field) {
  static const std::set<std::string> others = {
      "architectures",
      "attn_implementation",
      "auto_map",
      "bad_words_ids",
      "begin_suppress_tokens",
      "chunk_size_feed_forward",
      "classifier_dropout",
      "diversity_penalty",
      "do_sample",
      "dtype",
      "early_stopping",
      "encoder_no_repeat_ngram_size",
      "exponential_decay_length_penalty",
      "finetuning_task",
      "gradient_checkpointing",
      "id2label",
      "init_std",
      "initializer_cutoff_factor",
      "initializer_factor",
      "initializer_range",
      "keys_to_ignore_at_inference",
      "label2id",
      "length_penalty",
      "max_length",
      "min_length",
      "n_ctx",
      "no_repeat_ngram_size",
      "num_beam_groups",
      "num_beams",
      "num_labels",
      "num_return_sequences",
      "output_attentions",
      "output_hidden_states",
      "output_scores",
      "prefix",
      "pretraining_tp",
      "problem_type",
      "remove_invalid_values",
      "repetition_penalty",
      "return_dict",
      "return_dict_in_generate",
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
  return field.starts_with("_") ||
         (field.ends_with("_token_id") && !standsAroundText(field)) ||
         others.count(field);
}

/// Writes rotations as configurations had them first: the base in `rope_theta`,
/// all else in `rope_scaling`, which is null where there is nothing else.
void unifyRotations(ConfigJson &config) {
  auto found = config.find("rope_parameters");
  if (found != config.end() && found->is_object() &&
      found->contains("rope_theta")) {
    const ConfigJson parameters = *found;
    config["rope_theta"] = parameters["rope_theta"];
    config["rope_scaling"] = parameters;
    config["rope_scaling"].erase("rope_theta");
    config.erase("rope_parameters");
  }
  if (!config.contains("rope_theta"))
    return;
  ConfigJson &scaling = config["rope_scaling"];
  if (!scaling.is_object())
    return;
  if (scaling.contains("type")) {
    scaling["rope_type"] = scaling["type"];
    scaling.erase("type");
  }
  if (scaling.value("rope_type", ConfigJson("default")) == "default")
    scaling = nullptr;
}

/// Leaves out what a configuration has and its model does not use.
void leaveUnused(ConfigJson &config) {
  // Of a decoder alone these are a matter of the tokenizer.
  if (config.value("is_encoder_decoder", ConfigJson(true)) == false ||
      !config.contains("decoder_start_token_id"))
    for (const char *field : tokensAroundText)
      config.erase(field);
  std::erase_if(config.get_ref<ConfigJson::object_t &>(),
                [](const auto &field) { return changesNothing(field.first); });
  // A rotation has no table of positions that could end.
  if (config.contains("rope_theta") && config["rope_scaling"].is_null())
    config.erase("max_position_embeddings");
  const ConfigJson type = config.value("model_type", ConfigJson());
  const bool isQwen =
      type.is_string() && type.get<std::string>().starts_with("qwen");
  if (config.value("use_sliding_window", ConfigJson(!isQwen)) == false) {
    config.erase("sliding_window");
    config.erase("max_window_layers");
  }
}

/// Unifies rotations and leaves out unused fields, of nested configurations as
/// well (`text_config`).
void normalise(ConfigJson &config) {
  for (auto &[field, value] : config.items())
    if (value.is_object() && field.ends_with("_config"))
      normalise(value);
  unifyRotations(config);
  leaveUnused(config);
}

/// True if a null in a field says that there is none, and not that the library
/// has a value of its own.
bool isOffByNull(const std::string &field) {
  return field == "rope_scaling" || field == "sliding_window" ||
         field == "attn_logit_softcapping" ||
         field == "final_logit_softcapping";
}

/// A value as a line has room for it.
std::string configText(const ConfigJson &value) {
  constexpr size_t most = 60;
  const std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true,
                                      ConfigJson::error_handler_t::replace);
  return text.size() <= most ? text : text.substr(0, most - 2) + "..";
}

/// Appends the fields of two objects that differ; `prefix` stands before names.
void compareFields(const ConfigJson &found, const ConfigJson &programs,
                   const std::string &prefix, std::string &result) {
  for (const auto &[field, value] : found.items()) {
    auto other = programs.find(field);
    if (other == programs.end() || value == *other)
      continue;
    if (value.is_object() && other->is_object()) {
      compareFields(value, *other, prefix + field + ".", result);
      continue;
    }
    if ((value.is_null() || other->is_null()) && !isOffByNull(field))
      continue;
    result += (result.empty() ? "" : "; ") + prefix + field + " of " +
              configText(value) + ", the program's is " + configText(*other);
  }
}

} // namespace

std::string differingFields(const std::string &found,
                            const std::string &programs) {
  ConfigJson configs[2];
  const std::string *texts[] = {&found, &programs};
  // The comparison recurses, so deep values are none of a configuration.
  constexpr int mostDepth = 32;
  for (int i = 0; i < 2; ++i) {
    bool isDeep = false;
    configs[i] = ConfigJson::parse(
        *texts[i],
        [&](int depth, ConfigJson::parse_event_t, ConfigJson &) {
          isDeep |= depth > mostDepth;
          return depth <= mostDepth;
        },
        /*allow_exceptions=*/false);
    if (isDeep || !configs[i].is_object())
      return "";
    normalise(configs[i]);
  }
  std::string result;
  compareFields(configs[0], configs[1], "", result);
  return result;
}

std::string warningOfConfig(const std::string &weights,
                            const std::string &programs) {
  namespace fs = std::filesystem;
  std::error_code missing;
  fs::path folder = weights;
  if (!fs::is_directory(folder, missing)) {
    if (!folder.filename().string().starts_with("model"))
      return "";
    folder = folder.parent_path();
  }
  const fs::path path = folder / "config.json";
  // A warning is lost, and no run, where the file cannot be read.
  constexpr uint64_t mostBytes = 1 << 20;
  std::string text;
  try {
    if (fs::is_regular_file(path, missing))
      text = grt::readWholeFile(path.string(), mostBytes);
  } catch (const grt::Error &) {
    return "";
  }
  const std::string fields = differingFields(text, programs);
  return fields.empty() ? ""
                        : "'" + path.string() +
                              "' is not the configuration that the program "
                              "was compiled from: " +
                              fields;
}
