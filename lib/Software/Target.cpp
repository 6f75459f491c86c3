//===- Target.cpp - Training software that plans are written for ----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Memory.h"
#include "Targets.h"

#include "galvatron/Strategy/DecisionTree.h"
#include "galvatron/Support/Suggest.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <map>

using namespace llvm;

namespace galvatron {
namespace {

using Entry = std::pair<std::string, TargetRegistry::Factory>;

std::vector<Entry> &targets() {
  static std::vector<Entry> all = {{"megatron", makeMegatronTarget},
                                   {"torchtitan", makeTorchtitanTarget},
                                   {"fsdp", makeFsdpTarget},
                                   {"deepspeed", makeDeepSpeedTarget},
                                   {"nanotron", makeNanotronTarget},
                                   {"hetu-galvatron", makeHetuGalvatronTarget}};
  return all;
}

} // namespace

Expected<SoftwareRequest> SoftwareRequest::parse(StringRef text) {
  SmallVector<StringRef, 8> parts;
  text.split(parts, ',');
  SoftwareRequest request;
  StringRef name = parts.front();
  request.execution = name.consume_front("execution:");
  request.name = name.str();
  if (name.empty())
    return makeError("expected a name in front, found '" + text + "'");
  for (StringRef part : ArrayRef(parts).drop_front()) {
    auto [option, value] = part.split('=');
    if (option.empty() || value.empty())
      return makeError("expected OPTION=VALUE behind '" + name + "', found '" +
                       part + "'");
    for (const auto &other : request.options)
      if (other.first == option)
        return makeError("option '" + option + "' is given twice");
    request.options.push_back({option.str(), value.str()});
  }
  return request;
}

Expected<ProfiledAnswer>
Target::planFromProfiles(const json::Value &, StringRef path,
                         std::optional<int64_t>) const {
  return makeError(path + ": '" + name() + "' has no profiles");
}

std::vector<std::string> TargetRegistry::names() {
  std::vector<std::string> names;
  for (const Entry &entry : targets())
    names.push_back(entry.first);
  return names;
}

void TargetRegistry::add(StringRef name, Factory factory) {
  assert(!is_contained(names(), name) && "a target of this name is there");
  targets().push_back({name.str(), factory});
}

Expected<std::unique_ptr<Target>>
TargetRegistry::make(const SoftwareRequest &request) {
  for (const Entry &entry : targets()) {
    if (entry.first != request.name)
      continue;
    std::unique_ptr<Target> target = entry.second();
    for (const auto &[option, value] : request.options)
      if (Error error = target->setOption(option, value))
        return error;
    return target;
  }
  return makeError("unknown software '" + request.name + "', expected " +
                   join(names(), ", ") + didYouMean(request.name, names()));
}

/// Tells configurations apart.
static std::string keyOf(const Configuration &configuration) {
  std::string key = configuration.str();
  for (int64_t blocks : configuration.blocks)
    key += " " + std::to_string(blocks);
  return key;
}

Expected<TargetAnswer> findFastest(const Target &target,
                                   const ModelShape &shape,
                                   const Cluster &cluster, int64_t batch) {
  if (Expected<std::string> dtype = halfTypeOf(cluster); !dtype)
    return dtype.takeError();
  const Execution execution = target.executionOn(cluster);
  struct Candidate {
    double leastMs;
    int64_t leastBytes;
    Configuration configuration;
  };
  LeastSteps bounds(execution, cluster);
  std::vector<Candidate> candidates;
  if (Error error = target.visit(
          shape, cluster, batch, [&](const Configuration &configuration) {
            const ModelShape trained = target.asTrained(shape, configuration);
            candidates.push_back(
                {bounds.leastMs(trained, configuration),
                 leastAllocated(trained, configuration, execution),
                 configuration});
          }))
    return error;
  if (candidates.empty()) {
    TargetAnswer none;
    none.feasible = none.expressible = false;
    return none;
  }
  stable_sort(candidates, [](const Candidate &a, const Candidate &b) {
    return a.leastMs < b.leastMs;
  });
  const DeviceType &type = cluster.deviceType(0);
  std::optional<TargetAnswer> best, smallest;
  size_t priced = 0;
  auto priceOf = [&](const Candidate &candidate) {
    ++priced;
    return price(target.asTrained(shape, candidate.configuration),
                 candidate.configuration, execution, cluster);
  };
  // Keeps the candidate that needs least, of those that do not fit.
  auto needsLess = [&](const Candidate &candidate, SoftwarePrice &price) {
    if (!smallest || price.allocated < smallest->price.allocated)
      smallest =
          TargetAnswer{candidate.configuration, std::move(price), 0, 0, false};
  };
  // More recomputation of a plan that fits only takes longer.
  std::map<std::string, int64_t> fewestThatFit;
  for (const Candidate &candidate : candidates) {
    if (best && candidate.leastMs >= best->price.stepMs)
      break;
    Configuration base = candidate.configuration;
    // Less than any whole block, but not nothing.
    const int64_t again =
        base.recompute == Recompute::Operations
            ? 1
            : 2 * base.recomputedOf(*max_element(base.blocks));
    // Modules take less or more than some blocks, so each set is by itself.
    if (base.recompute != Recompute::Modules)
      base.recompute = Recompute::None;
    base.recomputedBlocks = base.recomputedEvery = 0;
    auto [fewest, isNew] = fewestThatFit.insert({keyOf(base), INT64_MAX});
    if (again > fewest->second)
      continue;
    if (!fitsCard(candidate.leastBytes,
                  target.asTrained(shape, candidate.configuration),
                  candidate.configuration, execution, type))
      continue;
    Expected<SoftwarePrice> found = priceOf(candidate);
    if (!found)
      return found.takeError();
    if (!found->fits) {
      needsLess(candidate, *found);
      continue;
    }
    fewest->second = again;
    if (!best || found->stepMs < best->price.stepMs)
      best = TargetAnswer{candidate.configuration, std::move(*found)};
  }
  // If nothing fits, the answer is the configuration that needs least.
  if (!best)
    stable_sort(candidates, [](const Candidate &a, const Candidate &b) {
      return a.leastBytes < b.leastBytes;
    });
  for (const Candidate &candidate : candidates) {
    if (best || (smallest && candidate.leastBytes >= smallest->price.allocated))
      break;
    Expected<SoftwarePrice> found = priceOf(candidate);
    if (!found)
      return found.takeError();
    needsLess(candidate, *found);
  }
  TargetAnswer answer = std::move(best ? *best : *smallest);
  answer.space = candidates.size();
  answer.priced = priced;
  return answer;
}

bool canCutPositions(const ModelShape &shape, int64_t context, int64_t tensor) {
  constexpr int64_t kFewestTokens = 2048;
  return context == 1 || (shape.tokens % (2 * context * tensor) == 0 &&
                          shape.tokens / context >= kFewestTokens);
}

void visitDegrees(const ModelShape &shape, int64_t devices, int64_t batch,
                  const DegreeLimits &limits,
                  function_ref<void(const Configuration &)> visit) {
  Configuration degrees;
  degrees.batch = batch;
  auto visitBatches = [&] {
    if (batch % degrees.data)
      return;
    for (int64_t samples : divisors(batch / degrees.data)) {
      degrees.microBatch = samples;
      visit(degrees);
    }
  };
  for (int64_t tensor : divisors(devices)) {
    if (shape.keyHeads % tensor || shape.inner % tensor ||
        (limits.tensor && !limits.tensor(tensor)))
      continue;
    degrees.tensor = tensor;
    const int64_t others = devices / tensor;
    for (int64_t stages : divisors(others)) {
      if (stages > (limits.stages ? shape.layers : 1))
        continue;
      degrees.pipeline = stages;
      for (int64_t context : divisors(others / stages)) {
        if (context > 1 &&
            (!limits.context || !limits.context(context, tensor)))
          continue;
        degrees.context = context;
        degrees.data = others / stages / context;
        visitBatches();
      }
    }
  }
}

Error readCount(StringRef target, StringRef option, StringRef value,
                int64_t least, int64_t most, int64_t &count) {
  if (!value.getAsInteger(10, count) && count >= least && count <= most)
    return Error::success();
  return makeError("option '" + option + "' of " + target +
                   ": expected a count of at least " + Twine(least) +
                   ", found '" + value + "'");
}

Expected<SoftwareReading> checkedReading(SoftwareReading reading,
                                         StringRef fileName) {
  if (Error error = reading.configuration.check(reading.shape))
    return makeError(fileName + ": " + toString(std::move(error)));
  return reading;
}

} // namespace galvatron
