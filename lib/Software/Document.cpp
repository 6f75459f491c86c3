//===- Document.cpp - A shape with its configuration as JSON --------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Software/Document.h"

#include "galvatron/Strategy/Plan.h"
#include "galvatron/Support/Json.h"
#include "galvatron/Support/Units.h"

using namespace llvm;

namespace galvatron {
namespace {

json::Value toJson(const ModelShape &shape) {
  return json::Object{
      {"layers", shape.layers},         {"hidden", shape.hidden},
      {"heads", shape.heads},           {"key-heads", shape.keyHeads},
      {"head-width", shape.headWidth},  {"ffn", shape.inner},
      {"vocabulary", shape.vocabulary}, {"tokens", shape.tokens},
      {"gated", shape.gated},           {"tied", shape.tied},
      {"rotary", shape.rotary},         {"rotary-base", shape.rotaryBase},
      {"rms-norm", shape.rmsNorm},      {"biases", shape.biases},
      {"positions", shape.positions}};
}

Error read(ModelShape &shape, const json::Value &value) {
  ObjectReader reader(value, "shape");
  shape.layers = reader.integer("layers");
  shape.hidden = reader.integer("hidden");
  shape.heads = reader.integer("heads");
  shape.keyHeads = reader.integerOr("key-heads", shape.heads);
  shape.headWidth = reader.integerOr(
      "head-width", shape.heads > 0 ? shape.hidden / shape.heads : 1);
  shape.inner = reader.integer("ffn");
  shape.vocabulary = reader.integer("vocabulary");
  shape.tokens = reader.integer("tokens");
  shape.gated = reader.booleanOr("gated", false);
  shape.tied = reader.booleanOr("tied", false);
  shape.rotary = reader.booleanOr("rotary", true);
  shape.rotaryBase = reader.numberOr("rotary-base", 1e4);
  shape.rmsNorm = reader.booleanOr("rms-norm", true);
  shape.biases = reader.booleanOr("biases", false);
  shape.positions = reader.naturalOr("positions", 0);
  if (Error error = reader.finish())
    return error;
  return shape.check();
}

constexpr StringLiteral kShardings[] = {"none", "optimizer", "gradients",
                                        "parameters"};
constexpr StringLiteral kRecomputes[] = {"none", "attention", "operations",
                                         "full", "modules"};

json::Value toJson(const Configuration &configuration) {
  json::Object object{
      {"batch", configuration.batch},
      {"micro-batch", configuration.microBatch},
      {"tensor", configuration.tensor},
      {"pipeline", configuration.pipeline},
      {"data", configuration.data},
      {"context", configuration.context},
      {"sharding", kShardings[size_t(configuration.sharding)]},
      {"shard-group", configuration.shardGroup},
      {"sequence-parallel", configuration.sequenceParallel},
      {"recompute", kRecomputes[size_t(configuration.recompute)]},
      {"recomputed-blocks", configuration.recomputedBlocks},
      {"recomputed-every", configuration.recomputedEvery},
      {"schedule", configuration.schedule->name()},
      {"chunks", configuration.chunks},
      {"blocks", json::Array(configuration.blocks)}};
  if (configuration.recompute == Recompute::Modules)
    object["recomputed-modules"] = configuration.modules.str();
  return object;
}

/// The place of a word among others.
size_t wordOf(ObjectReader &reader, StringRef key,
              ArrayRef<StringLiteral> words) {
  std::string word = reader.stringOr(key, words.front());
  std::string list;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == word)
      return i;
    list += (i ? ", '" : "'") + words[i].str() + "'";
  }
  reader.fail("'" + reader.pathOf(key) + "': expected one of " + list +
              ", found '" + word + "'");
  return 0;
}

Error read(Configuration &configuration, const json::Value &value,
           const ModelShape &shape) {
  ObjectReader reader(value, "configuration");
  auto degree = [&](StringRef key) {
    int64_t number = reader.integerOr(key, 1);
    if (number < 1 || number > kMostBatch)
      reader.fail("'" + reader.pathOf(key) + "': expected 1 to 2^30, found " +
                  Twine(number));
    return std::clamp<int64_t>(number, 1, kMostBatch);
  };
  configuration.batch = degree("batch");
  configuration.microBatch = degree("micro-batch");
  configuration.tensor = degree("tensor");
  configuration.pipeline = degree("pipeline");
  configuration.data = degree("data");
  configuration.context = degree("context");
  configuration.chunks = degree("chunks");
  configuration.shardGroup = reader.naturalOr("shard-group", 0);
  configuration.sharding = Sharding(wordOf(reader, "sharding", kShardings));
  configuration.recompute = Recompute(wordOf(reader, "recompute", kRecomputes));
  SmallVector<StringRef> modules;
  const std::string list = reader.stringOr("recomputed-modules", "");
  StringRef(list).split(modules, ' ', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
  for (StringRef module : modules)
    if (!configuration.modules.set(module))
      reader.fail("'configuration.recomputed-modules': expected core_attn, "
                  "layernorm or mlp, found '" +
                  module + "'");
  if (!modules.empty() && configuration.recompute != Recompute::Modules)
    reader.fail("'configuration.recomputed-modules': expected none without "
                "'recompute' being 'modules'");
  configuration.recomputedBlocks = reader.naturalOr("recomputed-blocks", 0);
  configuration.recomputedEvery = reader.naturalOr("recomputed-every", 0);
  configuration.sequenceParallel = reader.booleanOr("sequence-parallel", false);
  Expected<const Schedule *> schedule =
      parseSchedule(reader.stringOr("schedule", defaultSchedule().name()));
  if (schedule)
    configuration.schedule = *schedule;
  else
    reader.fail("'configuration.schedule': " + toString(schedule.takeError()));
  if (reader.has("blocks")) {
    const json::Array *blocks = reader.array("blocks");
    for (size_t i = 0; blocks && i < blocks->size(); ++i)
      configuration.blocks.push_back((*blocks)[i].getAsInteger().value_or(-1));
  } else if (!reader.failed()) {
    configuration.blocks = Configuration::evenBlocks(
        shape.layers, configuration.pipeline * configuration.chunks);
  }
  if (Error error = reader.finish())
    return error;
  return configuration.check(shape);
}

} // namespace

json::Value SoftwareDocument::toJson() const {
  json::Object document{{"version", 1}, {"shape", galvatron::toJson(shape)}};
  if (configuration)
    document["configuration"] = galvatron::toJson(*configuration);
  return document;
}

Expected<SoftwareDocument> SoftwareDocument::fromJson(const json::Value &value,
                                                      StringRef name) {
  ObjectReader reader(value, "");
  if (int64_t version = reader.integer("version");
      !reader.failed() && version != 1)
    reader.fail("'version': expected 1, found " + Twine(version));
  SoftwareDocument document;
  document.shape.name = name.str();
  if (const json::Value *sizes = reader.value("shape"))
    if (Error error = read(document.shape, *sizes))
      reader.fail(toString(std::move(error)));
  if (reader.has("configuration") && !reader.failed()) {
    document.configuration.emplace();
    if (Error error = read(*document.configuration,
                           *reader.value("configuration"), document.shape))
      reader.fail(toString(std::move(error)));
  }
  if (Error error = reader.finish())
    return error;
  return document;
}

} // namespace galvatron
