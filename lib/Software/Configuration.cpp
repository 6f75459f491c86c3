//===- Configuration.cpp - A plan as training software is told it ---------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Software/Configuration.h"

#include "galvatron/Strategy/KeptValues.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/FormatVariadic.h"

#include <numeric>

using namespace llvm;

namespace galvatron {

std::vector<int64_t> Configuration::evenBlocks(int64_t blocks, int64_t chunks) {
  if (chunks < 1 || blocks % chunks)
    return {};
  return std::vector<int64_t>(size_t(chunks), blocks / chunks);
}

std::vector<int64_t> Configuration::blocksCounting(int64_t blocks,
                                                   int64_t chunks,
                                                   bool embedding, bool loss) {
  std::vector<int64_t> counts = evenBlocks(blocks + embedding + loss, chunks);
  if (counts.empty())
    return {};
  counts.front() -= embedding;
  counts.back() -= loss;
  if (counts.front() < 1 || counts.back() < 1)
    return {};
  return counts;
}

void Configuration::visitDivisions(
    const ModelShape &shape,
    function_ref<void(const Configuration &)> visit) const {
  Configuration divided = *this;
  for (auto [embedding, loss] :
       {std::pair(false, false), std::pair(true, true), std::pair(false, true),
        std::pair(true, false)}) {
    if ((embedding || loss) && pipeline == 1)
      continue;
    divided.blocks =
        blocksCounting(shape.layers, pipeline * chunks, embedding, loss);
    // Two chunks of which each has an end are even.
    bool again =
        embedding && loss && pipeline * chunks == 2 && shape.layers % 2 == 0;
    if (!divided.blocks.empty() && !again)
      visit(divided);
  }
}

std::pair<bool, bool> Configuration::countedEnds() const {
  int64_t most = *max_element(blocks);
  return {blocks.front() < most, blocks.back() < most};
}

std::vector<int64_t> Configuration::blocksByWork(const ModelShape &shape,
                                                 int64_t stages) {
  double layer = 4 * double(shape.hidden) * double(shape.hidden) +
                 3 * double(shape.inner) * double(shape.hidden);
  double total = double(shape.layers) * layer +
                 double(shape.vocabulary) * double(shape.hidden);
  std::vector<int64_t> counts(size_t(stages), 0);
  size_t stage = 0;
  for (int64_t index = 0; index < shape.layers; ++index) {
    ++counts[stage];
    if (double(index + 1) * layer >
            total * double(stage + 1) / double(stages) &&
        stage + 1 < counts.size())
      ++stage;
  }
  return counts;
}

int64_t Configuration::shards() const {
  if (sharding != Sharding::Parameters && sharding != Sharding::Gradients)
    return 1;
  return stateShards();
}

int64_t Configuration::stateShards() const {
  if (sharding == Sharding::None)
    return 1;
  return (shardGroup ? shardGroup : data) * context;
}

Strategy Configuration::strategy(bool ofBlocks, int64_t data,
                                 int64_t shards) const {
  SmallVector<Level, 3> levels;
  auto add = [&](Paradigm paradigm, int64_t degree) {
    if (degree > 1)
      levels.push_back({paradigm, degree});
  };
  // Under ZeRO-2 the planner cuts parameters, too; what differs is counted when
  // it is priced.
  if (sharding == Sharding::Parameters || sharding == Sharding::Gradients ||
      (sharding == Sharding::Optimizer && shards < data)) {
    add(Paradigm::DP, data / shards);
    add(Paradigm::SDP, shards);
  } else {
    add(sharding == Sharding::Optimizer ? Paradigm::ZDP : Paradigm::DP, data);
  }
  add(Paradigm::TP, tensor);
  return cantFail(
      Strategy::get(levels, ofBlocks && recompute == Recompute::Full));
}

bool RecomputedModules::set(StringRef name) {
  bool *module = StringSwitch<bool *>(name)
                     .Case("core_attn", &scores)
                     .Case("layernorm", &norms)
                     .Case("mlp", &mlp)
                     .Default(nullptr);
  return module && (*module = true);
}

std::string RecomputedModules::str() const {
  std::vector<std::string> names;
  for (const RecomputeModule &module : recomputeModules()) {
    RecomputedModules with = *this;
    if (with.set(module.name) && with == *this)
      names.push_back(module.name.str());
  }
  return join(names, " ");
}

std::string Configuration::str() const {
  const Strategy shown =
      shownStrategy(/*ofBlocks=*/recomputedBlocks == 0 && recomputedEvery == 0);
  std::string text = formatv("pp{0} m{1} {2}, {3} a micro-batch", pipeline,
                             microBatches(), shown.str(), microBatch);
  if (context > 1)
    text += formatv(", positions cut in {0}", context);
  if (groupsStates())
    text += formatv(", optimizer states cut in {0}", stateShards());
  if (chunks > 1)
    text += formatv(", {0} chunks", chunks);
  if (sharding == Sharding::Gradients)
    text += ", parameters stay";
  if (sequenceParallel)
    text += ", rows cut";
  if (recompute == Recompute::Full && recomputedBlocks)
    text += formatv(", {0} blocks of a chunk recomputed", recomputedBlocks);
  if (recompute == Recompute::Full && recomputedEvery)
    text += formatv(", one block of {0} recomputed", recomputedEvery);
  if (recompute == Recompute::Attention)
    text += ", scores recomputed";
  if (recompute == Recompute::Operations)
    text += ", operations recomputed";
  if (recompute == Recompute::Modules)
    text += ", " + modules.str() + " recomputed";
  return text;
}

int64_t Configuration::recomputedOf(int64_t blocksOfChunk) const {
  if (recompute != Recompute::Full)
    return 0;
  if (recomputedEvery)
    return blocksOfChunk / recomputedEvery;
  return recomputedBlocks ? std::min(recomputedBlocks, blocksOfChunk)
                          : blocksOfChunk;
}

Error Configuration::check(const ModelShape &shape) const {
  auto divides = [](const Twine &what, int64_t whole, const Twine &by,
                    int64_t part) -> Error {
    if (part > 0 && whole % part == 0)
      return Error::success();
    return makeError("expected " + what + ", " + Twine(whole) +
                     ", to divide by " + by + ", found " + Twine(part));
  };
  if (Error error =
          divides("the batch", batch, "replicas times samples of a micro-batch",
                  data * microBatch))
    return error;
  if (Error error =
          divides("the heads", shape.heads, "tensor parallelism", tensor))
    return error;
  if (Error error = divides("the width of feed-forwards", shape.inner,
                            "tensor parallelism", tensor))
    return error;
  if (shardGroup)
    if (Error error =
            divides("the replicas", data, "the shard group", shardGroup))
      return error;
  if (sharding == Sharding::Gradients && pipeline > 1)
    return makeError("expected one stage beside sharded gradients (ZeRO-2), "
                     "found " +
                     Twine(pipeline));
  if (recompute == Recompute::Modules && !modules.norms && !modules.mlp)
    return makeError("expected layernorm or mlp among recomputed modules, "
                     "found '" +
                     modules.str() + "'");
  if (sequenceParallel)
    if (Error error = divides("the tokens of a sample", shape.tokens,
                              "tensor and context parallelism, which cut rows",
                              tensor * context))
      return error;
  if (context > 1)
    if (Error error = divides("the tokens of a sample", shape.tokens,
                              "twice context parallelism, which deals them in "
                              "pairs of parts",
                              2 * context))
      return error;
  int64_t sum = std::accumulate(blocks.begin(), blocks.end(), int64_t(0));
  if (int64_t(blocks.size()) != pipeline * chunks || sum != shape.layers ||
      any_of(blocks, [](int64_t count) { return count < 0; }))
    return makeError("expected " + Twine(pipeline * chunks) +
                     " counts of blocks, " + Twine(shape.layers) +
                     " in all, found " + Twine(blocks.size()) + " counts and " +
                     Twine(sum) + " blocks");
  return Error::success();
}

Expected<Configuration> Configuration::fromStrategy(const Strategy &strategy) {
  Configuration result;
  if (strategy.home())
    return makeError("strategy '" + strategy.str() +
                     "': expected everything on the device");
  if (strategy.point() > 0)
    return makeError(
        "strategy '" + strategy.str() +
        "': expected a layer that keeps all of its values or none");
  result.recompute = strategy.checkpoint() ? Recompute::Full : Recompute::None;
  ArrayRef<Level> levels = strategy.levels();
  for (size_t i = 0; i < levels.size(); ++i) {
    Paradigm paradigm = levels[i].paradigm;
    int64_t degree = levels[i].degree;
    bool innermost = i + 1 == levels.size();
    bool first = i == 0;
    if (paradigm->axis == LayerAxis::Tensor && innermost) {
      result.tensor = degree;
      result.sequenceParallel = paradigm->resting == RestingState::Rows;
    } else if (paradigm == Paradigm::DP && first) {
      result.data = degree;
    } else if (paradigm == Paradigm::ZDP && first) {
      result.data = degree;
      result.sharding = Sharding::Optimizer;
    } else if (paradigm == Paradigm::SDP &&
               (first || (i == 1 && result.data > 1 &&
                          result.sharding == Sharding::None))) {
      if (!first)
        result.shardGroup = degree;
      result.data *= degree;
      result.sharding = Sharding::Parameters;
    } else {
      return makeError("strategy '" + strategy.str() + "': level '" +
                       paradigm.name() + Twine(degree) +
                       "': expected dp, zdp, sdp or dp.sdp outside and tp or "
                       "tsp innermost, as software takes degrees");
    }
  }
  return result;
}

} // namespace galvatron
