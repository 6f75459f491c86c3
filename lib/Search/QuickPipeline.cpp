//===- QuickPipeline.cpp - A pipeline at once -----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Search/QuickPipeline.h"

#include "llvm/ADT/ArrayRef.h"

#include <algorithm>
#include <cmath>

using namespace llvm;

namespace galvatron {
namespace {

/// One stage, all layers of one layout class.
class QuickStage {
public:
  QuickStage(const PipelineProblem &problem, size_t stage, size_t begin,
             size_t count, size_t layoutClass)
      : problem(problem), number(stage), stage(problem.stages[stage]),
        begin(begin), count(count), layoutClass(layoutClass) {}

  /// Fills `choice` of the stage's layers; false if they do not fit.
  bool solve(MutableArrayRef<uint32_t> choice) const {
    std::vector<uint32_t> cheap(count), lean(count);
    if (!choose(0, cheap))
      return false;
    if (fits(cheap))
      return take(cheap, choice);
    // Picoseconds a byte: from next to nothing to more than any layer takes.
    double low = -10, high = 20;
    auto chooseAt = [&](double exponent, std::vector<uint32_t> &into) {
      return choose(std::exp2(exponent), into) && fits(into);
    };
    if (!chooseAt(high, lean))
      return false;
    std::vector<uint32_t> tried(count);
    for (int i = 0; i < 20; ++i) {
      double middle = (low + high) / 2;
      if (chooseAt(middle, tried)) {
        high = middle;
        lean = tried;
      } else {
        low = middle;
        cheap = tried;
      }
    }
    // Equal layers change together at one price: as many as fit change.
    for (size_t i = 0; i < count; ++i) {
      uint32_t kept = std::exchange(lean[i], cheap[i]);
      if (!fits(lean))
        lean[i] = kept;
    }
    return take(lean, choice);
  }

private:
  const std::vector<PipelineOption> &optionsOf(size_t layer) const {
    return problem.optionSets[problem.layers[stage.place][begin + layer]];
  }

  /// The cheapest options if a byte costs `price`.
  bool choose(double price, std::vector<uint32_t> &into) const {
    // A stage's share of what the slowest one adds.
    double weight = static_cast<double>(problem.microBatches - 1) /
                    static_cast<double>(problem.stages.size());
    for (size_t l = 0; l < count; ++l) {
      const std::vector<PipelineOption> &options = optionsOf(l);
      if (l > 0 && &options == &optionsOf(l - 1)) {
        into[l] = into[l - 1];
        continue;
      }
      double least = std::numeric_limits<double>::infinity();
      for (uint32_t i = 0; i < options.size(); ++i) {
        const PipelineOption &option = options[i];
        if (option.layoutClass != layoutClass)
          continue;
        double cost = static_cast<double>(option.time) +
                      weight * static_cast<double>(option.nosync) +
                      price * static_cast<double>(option.state +
                                                  stage.inFlight * option.kept +
                                                  option.transient);
        if (cost < least) {
          least = cost;
          into[l] = i;
        }
      }
      if (std::isinf(least))
        return false;
    }
    return true;
  }

  bool fits(ArrayRef<uint32_t> chosen) const {
    SmallVector<const PipelineOption *> options;
    for (size_t l = 0; l < count; ++l)
      options.push_back(&optionsOf(l)[chosen[l]]);
    return stageExcess(problem, number, begin, options) <= 0;
  }

  static bool take(ArrayRef<uint32_t> chosen,
                   MutableArrayRef<uint32_t> choice) {
    std::copy(chosen.begin(), chosen.end(), choice.begin());
    return true;
  }

  const PipelineProblem &problem;
  size_t number;
  const PipelineStage &stage;
  size_t begin, count, layoutClass;
};

} // namespace

std::optional<PipelineSolution>
quickPipeline(const PipelineProblem &problem,
              const std::vector<int64_t> &partition) {
  std::optional<PipelineSolution> best;
  for (size_t c = 0; c < problem.classes; ++c) {
    std::vector<uint32_t> choice(problem.layerCount());
    size_t begin = 0;
    bool fits = true;
    for (size_t s = 0; s < partition.size() && fits; ++s) {
      auto count = static_cast<size_t>(partition[s]);
      fits = QuickStage(problem, s, begin, count, c)
                 .solve(MutableArrayRef(choice).slice(begin, count));
      begin += count;
    }
    if (!fits)
      continue;
    Picoseconds cost = evaluatePipeline(problem, partition, choice).cost;
    if (!best || cost < best->cost)
      best = PipelineSolution{cost, partition, std::move(choice)};
  }
  return best;
}

} // namespace galvatron
