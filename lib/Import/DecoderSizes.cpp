//===- DecoderSizes.cpp - Sizes that other software is told of ------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "EstimatedFamilies.h"
#include "EstimatedSizes.h"
#include "Family.h"
#include "FieldTable.h"
#include "LanguagePart.h"
#include "galvatron/Import/HuggingFace.h"
#include "galvatron/Support/Json.h"
#include "galvatron/Support/Units.h"

using namespace galvatron;

/// Scripts of other software are written of these families alone, and of LLaMA
/// without scaled rotation and biases of attention: what else a model does
/// would be lost in them.
static std::string unsaidOf(const llvm::json::Object &config,
                            llvm::StringRef modelType) {
  if (!llvm::is_contained({"gpt2", "llama", "mistral"}, modelType))
    return ("'" + modelType + "' does more than 'gpt2', 'llama' or 'mistral'")
        .str();
  for (llvm::StringRef field : {"rope_scaling", "rope_parameters"})
    if (const llvm::json::Object *rotation = config.getObject(field))
      for (llvm::StringRef name : {"rope_type", "type"})
        if (auto type = rotation->getString(name); type && *type != "default")
          return ("field '" + field + "': rotation is scaled").str();
  if (config.getBoolean("attention_bias").value_or(false))
    return "field 'attention_bias': true";
  return "";
}

/// Error: more tokens than the model has positions. Distances (ALiBi) have no
/// limit.
static llvm::Error checkLength(const llvm::json::Object &config,
                               llvm::StringRef fileName,
                               llvm::StringRef modelType, int64_t positions,
                               int64_t tokens) {
  bool distances = llvm::is_contained({"bloom", "mpt"}, modelType) ||
                   config.getBoolean("alibi").value_or(false);
  if (distances || positions == 0 || tokens <= positions)
    return llvm::Error::success();
  llvm::StringRef said = "max_position_embeddings";
  for (llvm::StringRef field : spellingsOf(said))
    if (config.get(field))
      said = field;
  return makeError(fileName + ": field '" + said +
                   "': expected at least the sequence length " +
                   llvm::Twine(tokens) + ", found " + llvm::Twine(positions));
}

llvm::Expected<DecoderSizes>
galvatron::readDecoderSizes(const llvm::json::Object &config,
                            llvm::StringRef fileName,
                            const ImportOptions &options) {
  if (hasLanguagePart(config)) {
    llvm::Expected<llvm::json::Object> part = languagePart(config, fileName);
    if (!part)
      return part.takeError();
    ImportOptions whole = options;
    whole.namesPart = false;
    llvm::Expected<DecoderSizes> sizes =
        readDecoderSizes(*part, fileName, whole);
    if (sizes)
      sizes->notes.part = "the language model of '" +
                          config.getString("model_type").value_or("").str() +
                          "'";
    return sizes;
  }
  if (options.namesPart)
    return makeError("option --part: expected a model for images and text, "
                     "found '" +
                     fileName + "'");
  if (!config.getString("model_type"))
    return makeError(fileName + ": field 'model_type': expected a string");
  llvm::StringRef modelType = *config.getString("model_type");
  if (isImportedFamily(config) && !estimatedFamily(modelType))
    return makeError(fileName +
                     ": field 'model_type': expected a decoder of "
                     "equal blocks, as other software is told of, "
                     "found '" +
                     modelType + "'");
  if (llvm::Error error = refuseForeign(modelType, fileName))
    return error;
  ConfigReader reader(config, fileName, modelType, options.ignoredFields);
  EstimatedSizes sizes = readEstimatedSizes(reader, /*hasWeights=*/false);
  if (!sizes.causal)
    reader.fail("model_type", "expected a decoder, found '" + modelType + "'");
  if (sizes.table != sizes.hidden)
    reader.fail("embedding_size", "expected the width of the model");
  DecoderSizes result;
  if (llvm::Error error = reader.finish())
    return error;
  if (llvm::Error error =
          takeNotes(reader, options.ignoredFields, result.notes))
    return error;
  int64_t tokens = options.seqLen ? options.seqLen : sizes.positions;
  if (llvm::Error error =
          checkLength(config, fileName, modelType, sizes.positions, tokens))
    return error;
  for (int64_t window : sizes.windows)
    if (window && window < tokens)
      return makeError(fileName +
                       ": field 'sliding_window': expected none, or "
                       "at least the tokens of a sample, " +
                       llvm::Twine(tokens) + ", found " + llvm::Twine(window));
  result.unsaid = unsaidOf(config, modelType);
  result.layers = sizes.layers;
  result.hidden = sizes.hidden;
  result.heads = sizes.heads;
  result.headWidth = sizes.queries / sizes.heads;
  result.keyHeads = sizes.keys / result.headWidth;
  result.inner = sizes.inner;
  result.vocabulary = sizes.vocabulary;
  result.positions = sizes.positions;
  result.gated = sizes.gated;
  result.tied = sizes.tied;
  result.biases = sizes.innerBias;
  result.rmsNorm = sizes.rmsNorm;
  result.rotary = !sizes.learnedPositions;
  for (llvm::StringRef field : spellingsOf("rope_theta"))
    if (auto base = config.getNumber(field))
      result.rotaryBase = *base;
  if (const llvm::json::Object *rotary = config.getObject("rope_parameters"))
    if (auto base = rotary->getNumber("rope_theta"))
      result.rotaryBase = *base;
  return result;
}
