//===- BruteForce.cpp - Oracles for the solvers ---------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "BruteForce.h"

#include <algorithm>
#include <set>

using namespace llvm;

namespace galvatron::bruteforce {
static void growPartition(const PartitionProblem &problem,
                          std::vector<int64_t> &sizes, int64_t used,
                          std::optional<PartitionSolution> &best) {
  auto count = static_cast<int64_t>(
      std::max(problem.layers.size(), problem.stageLayers.size()));
  auto done = static_cast<int64_t>(sizes.size());
  if (done == problem.stages) {
    if (used != count)
      return;
    Picoseconds sum = 0, largest = 0, cuts = 0, end = 0;
    int64_t at = 0;
    for (int64_t s = 0; s < problem.stages; ++s) {
      if (!problem.mostLayers.empty() && sizes[s] > problem.mostLayers[s][at])
        return;
      Picoseconds stage = 0, own = 0;
      for (int64_t i = 0; i < sizes[s]; ++i, ++at) {
        stage += problem.layers.empty() ? problem.stageLayers[at][s]
                                        : problem.layers[at];
        own += problem.ends.empty() ? 0 : problem.ends[at][s];
      }
      sum += stage;
      largest = std::max(largest, stage);
      end = std::max(end, own);
      if (s + 1 < problem.stages && !problem.cuts.empty())
        cuts += problem.cuts[at - 1][s];
    }
    Picoseconds cost = (problem.microBatches - 1) * largest + sum + cuts + end;
    if (!best || cost < best->cost)
      best = PartitionSolution{cost, sizes};
    return;
  }
  for (int64_t size = count - used; size >= 1; --size) {
    sizes.push_back(size);
    growPartition(problem, sizes, used + size, best);
    sizes.pop_back();
  }
}

std::optional<PartitionSolution>
solvePartition(const PartitionProblem &problem) {
  std::optional<PartitionSolution> best;
  std::vector<int64_t> sizes;
  growPartition(problem, sizes, 0, best);
  return best;
}

namespace {

/// One partition of a pipeline, priced term by term from the definitions.
class PipelinePricer {
public:
  PipelinePricer(const PipelineProblem &problem,
                 const std::vector<int64_t> &partition)
      : problem(problem) {
    for (size_t s = 0; s < partition.size(); ++s) {
      first.push_back(stageOf.size());
      for (int64_t i = 0; i < partition[s]; ++i)
        stageOf.push_back(s);
      behind.push_back(stageOf.size());
    }
    choice.assign(stageOf.size(), 0);
  }

  const PipelineOption &option(size_t layer) const {
    size_t place = problem.stages.at(stageOf[layer]).place;
    return problem.optionSets.at(problem.layers.at(place).at(layer))
        .at(choice[layer]);
  }

  /// The next choice in lexicographic order; false after the last.
  bool advance() {
    for (size_t l = choice.size(); l-- > 0;) {
      size_t place = problem.stages.at(stageOf[l]).place;
      if (++choice[l] <
          problem.optionSets.at(problem.layers.at(place).at(l)).size())
        return true;
      choice[l] = 0;
    }
    return false;
  }

  int64_t memory(size_t s) const {
    int64_t inFlight = problem.stages[s].inFlight;
    int64_t state = 0, kept = 0, region = 0, buffers = 0;
    for (size_t l = first[s]; l < behind[s]; ++l) {
      state += option(l).state;
      kept += inFlight * (option(l).kept + entering(s, l));
      buffers = std::max(buffers, option(l).boundary);
      int64_t overlaid = 0;
      for (size_t later = l + 1; later < behind[s]; ++later)
        overlaid += option(later).kept + entering(s, later);
      region = std::max(region, option(l).transient - overlaid);
      if (l > first[s] && changes(l) && !problem.boundaryBehind.empty())
        buffers = std::max(buffers, live(l - 1, l - 1) + live(l - 1, l));
    }
    if (s + 1 == problem.stages.size() || problem.boundaryBehind.empty())
      return state + kept + region + buffers;
    size_t last = behind[s] - 1;
    int64_t output = live(last, last);
    int64_t bytes = state + kept + region + std::max(buffers, output + output);
    bool passes = problem.boundaries.at(problem.boundaryBehind.at(last))
                      .passing.at(option(last).layoutClass) > 0;
    if (problem.stages[s].sendsFromTransient && !passes)
      bytes =
          std::min(bytes, state + kept + std::max(region, output) + buffers);
    return bytes;
  }

  bool changes(size_t l) const {
    size_t former = option(l - 1).layoutClass, own = option(l).layoutClass;
    if (!problem.layouts.empty())
      return problem.layouts.at(former) != problem.layouts.at(own);
    return former != own;
  }
  /// Bytes of what lives behind `former`, in the class of layer `holder`.
  int64_t live(size_t former, size_t holder) const {
    return problem.boundaries.at(problem.boundaryBehind.at(former))
        .live.at(option(holder).layoutClass);
  }
  /// What passes a layer that comes first of its class in its stage.
  int64_t entering(size_t s, size_t l) const {
    if (l == 0 || problem.boundaryBehind.empty() ||
        (l > first[s] && !changes(l)))
      return 0;
    return problem.boundaries.at(problem.boundaryBehind.at(l - 1))
        .passing.at(option(l).layoutClass);
  }

  int64_t excess() const {
    int64_t largest = std::numeric_limits<int64_t>::min();
    for (size_t s = 0; s < problem.stages.size(); ++s)
      largest = std::max({largest, memory(s) - problem.stages[s].memory,
                          onHost(s) - problem.stages[s].hostMemory});
    return largest;
  }

  int64_t onHost(size_t s) const {
    int64_t bytes = 0;
    for (size_t l = first[s]; l < behind[s]; ++l)
      bytes += option(l).host + problem.stages[s].inFlight * option(l).hostKept;
    return bytes;
  }

  Picoseconds time(size_t s, bool sync) const {
    Picoseconds sum = 0;
    auto cell = [&](size_t matrix, size_t former) {
      return problem.matrices.at(matrix).at(option(former).layoutClass *
                                                problem.classes +
                                            option(former + 1).layoutClass);
    };
    for (size_t l = first[s]; l < behind[s]; ++l)
      sum += sync ? option(l).time : option(l).nosync;
    for (size_t l = first[s]; l + 1 < behind[s]; ++l)
      sum += cell(problem.transforms.at(problem.stages[s].place).at(l), l);
    if (s + 1 < problem.stages.size()) {
      size_t last = behind[s] - 1;
      sum += cell(problem.cuts.at(problem.cutPlace.at(s)).at(last).activation,
                  last);
    }
    if (s > 0) {
      size_t former = first[s] - 1;
      sum +=
          cell(problem.cuts.at(problem.cutPlace.at(s - 1)).at(former).gradient,
               former);
    }
    if (sync)
      for (const PipelineTie &tie : problem.ties)
        if (stageOf[tie.owner] == s) {
          size_t pair = s * problem.stages.size() + stageOf[tie.borrower];
          sum += problem.tieTables.at(tie.table.at(pair))
                     .at(option(tie.owner).tieKey * problem.tieKeys +
                         option(tie.borrower).tieKey);
        }
    return sum;
  }

  /// Whether the layers of all ties are held as PipelineTie::alike says.
  bool isAlike() const {
    std::set<size_t> owners; // keys
    for (const PipelineTie &tie : problem.ties)
      if (tie.alike && problem.ownersAlike)
        owners.insert(option(tie.owner).tieKey);
    if (owners.size() > 1)
      return false;
    for (const PipelineTie &tie : problem.ties) {
      size_t owner = stageOf[tie.owner], borrower = stageOf[tie.borrower];
      if (!tie.alike || owner == borrower)
        continue;
      size_t pair = owner * problem.stages.size() + borrower;
      size_t own = option(tie.owner).tieKey;
      auto costOf = [&](size_t key) {
        return problem.tieTables.at(tie.table.at(pair))
            .at(own * problem.tieKeys + key);
      };
      size_t place = problem.stages[borrower].place;
      std::set<Picoseconds> costs;
      for (const PipelineOption &other :
           problem.optionSets.at(problem.layers.at(place).at(tie.borrower)))
        costs.insert(costOf(other.tieKey));
      Picoseconds asked =
          costs.count(costOf(own)) ? costOf(own) : *costs.begin();
      if (costOf(option(tie.borrower).tieKey) != asked)
        return false;
    }
    return true;
  }

  Picoseconds cost() const {
    Picoseconds sum = 0, largest = 0;
    for (size_t s = 0; s < problem.stages.size(); ++s) {
      sum += time(s, true);
      largest = std::max(largest, time(s, problem.slowestAlone));
    }
    if (problem.slowestAlone)
      return largest;
    return sum + (problem.microBatches - 1) * largest;
  }

  std::vector<uint32_t> choice;

private:
  const PipelineProblem &problem;
  std::vector<size_t> stageOf, first, behind;
};

template <typename Visit>
void forEachPartition(const PipelineProblem &problem,
                      std::vector<int64_t> &sizes, int64_t used, Visit visit) {
  auto count = static_cast<int64_t>(problem.layerCount());
  if (sizes.size() == problem.stages.size()) {
    if (used == count &&
        (problem.partition.empty() || problem.partition == sizes))
      visit(sizes);
    return;
  }
  for (int64_t size = 1; size <= count - used; ++size) {
    sizes.push_back(size);
    forEachPartition(problem, sizes, used + size, visit);
    sizes.pop_back();
  }
}

} // namespace

std::optional<PipelineSolution> solvePipeline(const PipelineProblem &problem) {
  std::optional<PipelineSolution> best;
  std::vector<int64_t> sizes;
  forEachPartition(problem, sizes, 0, [&](const std::vector<int64_t> &own) {
    PipelinePricer pricer(problem, own);
    do {
      if (pricer.excess() > 0 || !pricer.isAlike())
        continue;
      Picoseconds cost = pricer.cost();
      if (!best || cost < best->cost)
        best = PipelineSolution{cost, own, pricer.choice};
    } while (pricer.advance());
  });
  return best;
}

int64_t leastExcess(const PipelineProblem &problem) {
  int64_t least = std::numeric_limits<int64_t>::max();
  std::vector<int64_t> sizes;
  forEachPartition(problem, sizes, 0, [&](const std::vector<int64_t> &own) {
    PipelinePricer pricer(problem, own);
    do
      least = std::min(least, pricer.excess());
    while (pricer.advance());
  });
  return least;
}

/// T and M from their definition, layer by layer.
static HomesSolution priceHomes(const HomesProblem &problem,
                                const std::vector<int64_t> &sizes,
                                const std::vector<uint32_t> &choice) {
  HomesSolution priced{sizes, choice, 0, 0};
  std::vector<size_t> chunkOf;
  for (size_t c = 0; c < sizes.size(); ++c)
    chunkOf.insert(chunkOf.end(), static_cast<size_t>(sizes[c]), c);
  auto optionOf = [&](size_t l) -> const HomesOption & {
    size_t place = problem.chunks[chunkOf[l]].place;
    return problem.optionSets[problem.layers[place][l]][choice[l]];
  };
  for (const HomesRow &row : problem.rows) {
    double time = 0;
    for (size_t l = 0; l < chunkOf.size(); ++l) {
      size_t c = chunkOf[l];
      const HomesOption &option = optionOf(l);
      time += (row.isOther ? option.otherForward : option.forward) *
                  row.forward[c] +
              (row.isOther ? option.otherBackward : option.backward) *
                  row.backward[c] +
              (row.input.empty() ? 0 : option.input * row.input[c]) +
              option.sums * row.sums[c] + option.end * row.end[c];
      if (l + 1 < chunkOf.size() && chunkOf[l + 1] != c)
        time +=
            row.out[c] * problem.out[c][l] + row.back[c] * problem.back[c][l];
    }
    priced.longest = std::max(priced.longest, time);
  }
  for (size_t home = 0; home < problem.memory.size(); ++home) {
    int64_t bytes = 0, slots = 0, largest = 0;
    for (size_t c = 0; c < sizes.size(); ++c) {
      if (problem.chunks[c].home != home)
        continue;
      int64_t kept = 0;
      for (size_t l = 0; l < chunkOf.size(); ++l)
        if (chunkOf[l] == c) {
          bytes += optionOf(l).state;
          kept += optionOf(l).kept;
        }
      slots += problem.chunks[c].slots;
      largest = std::max(largest, kept);
    }
    bytes += slots * largest;
    priced.fullness = std::max(priced.fullness,
                               static_cast<double>(bytes) /
                                   static_cast<double>(problem.memory[home]));
  }
  return priced;
}

std::optional<HomesSolution> solveHomes(const HomesProblem &problem) {
  std::optional<HomesSolution> best;
  size_t count = problem.layerCount();
  std::vector<int64_t> sizes(problem.chunks.size(), 1);
  // The ends of all chunks but the last, in lexicographic order.
  std::function<void(size_t, int64_t)> partitions = [&](size_t c,
                                                        int64_t left) {
    if (c + 1 < sizes.size()) {
      auto behind = static_cast<int64_t>(sizes.size() - c - 1);
      for (sizes[c] = 1; sizes[c] <= left - behind; ++sizes[c])
        partitions(c + 1, left - sizes[c]);
      return;
    }
    sizes[c] = left;
    if (!problem.partition.empty() && problem.partition != sizes)
      return;
    std::vector<size_t> options;
    for (size_t chunk = 0; chunk < sizes.size(); ++chunk)
      for (int64_t i = 0; i < sizes[chunk]; ++i) {
        size_t place = problem.chunks[chunk].place;
        size_t set = problem.layers[place][options.size()];
        options.push_back(problem.optionSets[set].size());
      }
    std::vector<uint32_t> choice(count, 0);
    while (true) {
      HomesSolution priced = priceHomes(problem, sizes, choice);
      if (priced.fullness <= 1 && (!best || priced.longest < best->longest))
        best = std::move(priced);
      size_t l = 0;
      while (l < count && ++choice[l] == options[l])
        choice[l++] = 0;
      if (l == count)
        return;
    }
  };
  partitions(0, static_cast<int64_t>(count));
  return best;
}

} // namespace galvatron::bruteforce
