//===- LanguagePart.cpp - The language model of a larger one --------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LanguagePart.h"

#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"

using namespace galvatron;
using llvm::StringLiteral;
using llvm::StringRef;
namespace json = llvm::json;

namespace {

/// Types of whole models whose language model reads words as it does alone.
struct Whole {
  StringLiteral modelType;
  /// The family of the language model; "": the one that `text_config` names.
  StringLiteral family;
};
constexpr Whole kWholes[] = {{"gemma3", "gemma3_text"},
                             {"idefics3", ""},
                             {"internvl", ""},
                             {"llava", ""},
                             {"llava_next", ""},
                             {"llava_onevision", ""},
                             {"mistral3", ""},
                             {"qwen2_5_vl", "qwen2"},
                             {"qwen2_vl", "qwen2"},
                             {"qwen3_vl", "qwen3"},
                             {"smolvlm", ""}};

/// Fields of the whole that older files have beside those of their language
/// model.
constexpr StringLiteral kOfImages[] = {
    "vision_config",       "text_config",       "vision_start_token_id",
    "vision_end_token_id", "vision_token_id",   "image_token_id",
    "video_token_id",      "image_token_index", "video_token_index"};

const Whole *wholeOf(const json::Object &config) {
  auto type = config.getString("model_type");
  const auto *found = llvm::find_if(kWholes, [&](const Whole &whole) {
    return type && *type == whole.modelType;
  });
  return found == std::end(kWholes) ? nullptr : found;
}

/// Rotation by sections of axes, made plain.
void makeRotationPlain(json::Object &config) {
  for (StringRef field : {"rope_scaling", "rope_parameters"}) {
    json::Object *rotation = config.getObject(field);
    if (!rotation || !rotation->erase("mrope_section"))
      continue;
    rotation->erase("mrope_interleaved");
    for (StringRef name : {"type", "rope_type"})
      if (rotation->getString(name) == StringRef("mrope"))
        (*rotation)[name] = "default";
  }
}

} // namespace

bool galvatron::hasLanguagePart(const json::Object &config) {
  return wholeOf(config) != nullptr;
}

llvm::Expected<json::Object> galvatron::languagePart(const json::Object &config,
                                                     StringRef fileName) {
  const Whole &whole = *wholeOf(config);
  const json::Object *nested = config.getObject("text_config");
  if (!nested && config.get("text_config"))
    return makeError(fileName + ": field 'text_config': expected an object");
  json::Object part;
  if (nested) {
    part = *nested;
  } else if (whole.family.empty() || !config.get("hidden_size")) {
    return makeError(fileName + ": field 'text_config': missing");
  } else {
    part = config;
    for (StringRef field : kOfImages)
      part.erase(field);
  }
  // Some versions of the library name the whole's class here as well.
  part.erase("architectures");
  if (!whole.family.empty()) {
    auto type = part.getString("model_type");
    std::string usual = (whole.modelType + "_text").str();
    if (nested && type && *type != usual && *type != whole.family &&
        *type != whole.modelType)
      return makeError(fileName +
                       ": field 'text_config.model_type': expected '" + usual +
                       "', found '" + *type + "'");
    part["model_type"] = whole.family;
  }
  const json::Value *tied = config.get("tie_word_embeddings");
  const json::Value *own = part.get("tie_word_embeddings");
  if (tied && own && *tied != *own)
    return makeError(fileName +
                     ": field 'text_config.tie_word_embeddings': expected that "
                     "of the whole model");
  if (tied)
    part["tie_word_embeddings"] = *tied;
  makeRotationPlain(part);
  return part;
}
