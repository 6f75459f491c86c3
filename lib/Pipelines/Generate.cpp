//===- Generate.cpp - The option --generate -------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Pipelines/Compile.h"

#include "galvatron/Dialect/Galvatron/IR/DataKinds.h"
#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Support/Units.h"

using namespace galvatron;
namespace ir = mlir::galvatron;

llvm::Expected<GenerateOptions> GenerateOptions::parse(llvm::StringRef text) {
  GenerateOptions options;
  if (text.empty())
    return options;
  llvm::SmallVector<llvm::StringRef> numbers;
  text.split(numbers, ',');
  int64_t *const values[] = {&options.rows, &options.prompt, &options.length};
  bool isGood = numbers.size() == 3;
  for (size_t i = 0; i < numbers.size() && isGood; ++i)
    isGood = !numbers[i].getAsInteger(10, *values[i]) && *values[i] >= 1 &&
             *values[i] <= INT32_MAX;
  if (!isGood)
    return makeError(
        "option --generate: expected BATCH,PROMPT,LENGTH, texts at "
        "a time, tokens of a prompt and tokens behind it, each from 1 "
        "to 2147483647, found '" +
        text + "'");
  return options;
}

/// The tokens that the samples of the first model have, of each of its rows of
/// them: of an encoder in front of those of a decoder.
static llvm::SmallVector<int64_t> countTokens(mlir::ModuleOp module) {
  llvm::SmallVector<int64_t> counts;
  for (ir::ModelOp model : module.getOps<ir::ModelOp>()) {
    for (ir::DataAttr datum : model.getDeclaredData())
      if (datum.isSequence())
        counts.push_back(datum.getElementsPerSample());
    break;
  }
  return counts;
}

/// Positions of a text behind an encoder, which reads the prompt.
static llvm::Expected<int64_t> lengthBehind(int64_t source, int64_t most,
                                            const GenerateOptions &options) {
  if (!options.prompt)
    return most;
  if (options.prompt > source)
    return makeError(
        "option --generate: expected a prompt of at most the " +
        llvm::Twine(source) + " tokens that the model's encoder reads, found " +
        llvm::Twine(options.prompt) + "; --seq-len says how many it reads");
  if (options.length > most)
    return makeError(
        "option --generate: expected at most the " + llvm::Twine(most) +
        " tokens of the model's decoder, found " + llvm::Twine(options.length) +
        "; --decoder-seq-len says how many it has");
  return options.length;
}

bool galvatron::keepsKeys(mlir::ModuleOp module) {
  return llvm::any_of(module.getOps<ir::ParameterOp>(),
                      [](ir::ParameterOp parameter) {
                        return parameter.getInit() == ir::kCacheInit;
                      });
}

llvm::Error galvatron::keepKeys(mlir::ModuleOp module,
                                const GenerateOptions &options) {
  const llvm::SmallVector<int64_t> tokens = countTokens(module);
  if (tokens.size() == 2) {
    llvm::Expected<int64_t> length =
        lengthBehind(tokens[0], tokens[1], options);
    return length ? keepKeys(module, options.rows, *length)
                  : length.takeError();
  }
  const int64_t most = tokens.empty() ? 0 : tokens.front();
  const int64_t length =
      options.prompt ? options.prompt + options.length : most;
  if (!most)
    return makeError("option --generate: expected a model that reads tokens, "
                     "found none");
  if (length > most)
    return makeError("option --generate: expected a prompt and what is behind "
                     "it of at most the model's " +
                     llvm::Twine(most) + " tokens together, found " +
                     llvm::Twine(length) + "; --seq-len says how many it has");
  return keepKeys(module, options.rows, length);
}

/// Whether ranks of a level have all samples, and all positions of what stands
/// between products: so each has the keys of its heads of every text.
static bool hasAllRows(Paradigm paradigm) {
  return !paradigm->splitsBatch && paradigm->axis == LayerAxis::Tensor &&
         paradigm->resting == RestingState::Whole;
}

std::vector<Paradigm> galvatron::generatingParadigms() {
  std::vector<Paradigm> found;
  llvm::copy_if(ParadigmRegistry::all(), std::back_inserter(found), hasAllRows);
  return found;
}

llvm::Error galvatron::checkGenerates(const Plan &plan) {
  for (const PlanLayer &layer : plan.layers)
    for (const Level &level : layer.strategy.levels())
      if (!hasAllRows(level.paradigm))
        return makeError(
            "option --generate: expected layers under tensor "
            "parallelism (tp) and stages alone, as a rank keeps the "
            "keys and values of all rows, found layer '" +
            layer.name + "' under " + layer.strategy.str());
  // A pass writes keys and values where they stay; states of the host come to
  // the device and are given up there.
  if (plan.offload != Offload::Off)
    return makeError("option --generate: expected all states on the devices, "
                     "as keys and values are kept between passes, found "
                     "--offload=" +
                     offloadName(plan.offload));
  if (plan.microBatches != 1)
    return makeError("option --generate: expected one micro-batch, found " +
                     llvm::Twine(plan.microBatches));
  return llvm::Error::success();
}
