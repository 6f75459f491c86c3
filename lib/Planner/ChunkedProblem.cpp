//===- ChunkedProblem.cpp - Shapes with chunks as plain data --------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ChunkedProblem.h"

#include "galvatron/Cluster/Backend.h"
#include "galvatron/Schedule/Schedule.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

using namespace llvm;

namespace galvatron::planner {

namespace {

class ChunkedProblemMaker {
public:
  ChunkedProblemMaker(LayerModel &model, const Cluster &cluster,
                      const PlannerOptions &options, const Space &space,
                      const Plan &plan, BusyBound &times)
      : model(model), cluster(cluster), options(options), space(space),
        plan(plan), times(times), schedule(*plan.schedule),
        stages(static_cast<size_t>(plan.pipelineDegree)),
        shape(ScheduleShape::of(plan.pipelineDegree, plan.microBatches,
                                chunksOf(options), plan.offload)),
        count(static_cast<double>(plan.microBatches)) {}

  std::optional<ChunkedProblem> make() {
    // A partition that is given may have another number of chunks.
    const auto chunks = static_cast<size_t>(shape.allChunks());
    bool isOther =
        !options.partition.empty() && options.partition.size() != chunks;
    if (chunks > model.layerCount() || isOther || !addHomes())
      return std::nullopt;
    addChunks();
    if (!addOptions())
      return std::nullopt;
    addRows();
    addMessages();
    made.homes.partition = options.partition;
    cantFail(made.homes.check());
    return std::move(made);
  }

private:
  /// Memory of the stages; what is not the layers' is taken off.
  bool addHomes() {
    for (const PlanStage &stage : plan.stages) {
      StageShape constant;
      constant.setSchedule(schedule, shape);
      constant.microBatches = plan.microBatches;
      constant.backend = backendTraits(cluster.backendOf(stage.devices));
      int64_t bytes = cluster.budgetOf(stage.devices, options.memory) -
                      stageConstantBytes(constant);
      if (bytes <= 0)
        return false;
      made.homes.memory.push_back(bytes);
    }
    return true;
  }

  void addChunks() {
    std::map<size_t, size_t> places; // by BusyBound's number
    for (int64_t c = 0; c < shape.allChunks(); ++c) {
      auto home = static_cast<size_t>(schedule.home(shape, c));
      // Stages whose ranks share cores differ in more than their place.
      size_t key = cluster.sharesCores() ? home : times.placeOf(plan, home);
      auto [place, isNew] = places.try_emplace(key, placeStages.size());
      if (isNew)
        placeStages.push_back(home);
      // A device has one slot where slots have their home on the host.
      int64_t slots = shape.slotsAtHome ? 1 : schedule.slots(shape, c);
      made.homes.chunks.push_back({home, place->second, slots});
    }
    std::vector<int64_t> slots(stages, 0);
    for (const HomesChunk &chunk : made.homes.chunks)
      mostSlots = std::max(mostSlots, slots[chunk.home] += chunk.slots);
  }

  /// Lower bounds of an option's time. Where parameters are gathered ahead,
  /// both of two streams are busy for `max (a + (s - 1) g, g + (s - 1) a)` at
  /// least (overlapSeconds()). Each of the two is a sum over layers: the first
  /// is that of rows of computation, the second that of rows of moving.
  HomesOption optionOf(const BusyBound::Times &parts) const {
    HomesOption option;
    double beside = slowdown - 1;
    if (anyAhead) {
      option.otherForward = parts.forwardMoved + beside * parts.forward;
      option.otherBackward = parts.backwardMoved + beside * parts.backward;
    }
    option.forward =
        parts.forward + (anyAhead ? beside : 1) * parts.forwardMoved;
    option.backward = anyAhead ? parts.backward + beside * parts.backwardMoved
                               : parts.backwardInLine;
    option.input = parts.input + (anyAhead ? beside : 1) * parts.forwardMoved;
    option.kept = parts.memory.kept;
    if (plan.offload == Offload::Off) {
      option.sums = parts.sums;
      option.end = parts.end;
      option.state = parts.memory.parameters + parts.memory.otherState;
      return option;
    }
    // Chunks that are swapped may be updated behind others' passes. Parameters
    // are on the devices for a step's passes, or as long as their chunk runs:
    // then the largest chunk's add to the slots of the largest one.
    if (plan.offload.states == Offload::States::All)
      option.kept += parts.memory.parameters / mostSlots;
    else
      option.state = parts.memory.parameters;
    return option;
  }

  std::vector<Strategy> strategiesOf(size_t stage) const {
    return space.strategies(
        static_cast<int64_t>(plan.stages[stage].devices.size()));
  }

  bool addOptions() {
    int64_t samples = plan.microBatchSamples();
    size_t layers = model.layerCount();
    // The key is place, kind and the strategy that a layer must have.
    std::map<std::tuple<size_t, size_t, std::string>, size_t> known;
    std::vector<std::vector<const BusyBound::Times *>> parts;
    for (size_t place = 0; place < placeStages.size(); ++place) {
      std::vector<size_t> &sets = made.homes.layers.emplace_back();
      std::vector<Strategy> all = strategiesOf(placeStages[place]);
      erase_if(all, [&](const Strategy &strategy) {
        return !strategy.divides(samples);
      });
      for (size_t l = 0; l < layers; ++l) {
        std::vector<Strategy> own = all;
        std::string pin;
        if (!space.pins.empty() && space.pins[l]) {
          own = {*space.pins[l]};
          pin = own.front().str();
        }
        size_t kind = model.kindOf(l);
        auto [set, isNew] =
            known.try_emplace({place, kind, pin}, made.strategies.size());
        sets.push_back(set->second);
        if (!isNew)
          continue;
        made.strategies.emplace_back();
        parts.emplace_back();
        for (const Strategy &strategy : own) {
          const BusyBound::Times &found =
              times.timesOf(plan, kind, strategy, placeStages[place]);
          if (!found.refusal.empty())
            continue;
          made.strategies.back().push_back(strategy);
          parts.back().push_back(&found);
          anyAhead |= found.ahead;
          slowdown = std::min(slowdown, found.slowdown);
        }
        if (parts.back().empty())
          return false;
      }
    }
    for (const auto &list : parts) {
      auto &set = made.homes.optionSets.emplace_back();
      for (const BusyBound::Times *each : list)
        set.push_back(optionOf(*each));
    }
    sumsAreLong = hasLongSums();
    return true;
  }

  /// Returns true if sums of gradients take longer than a backward pass where
  /// layers have the options that are the fastest of a step.
  bool hasLongSums() const {
    double sums = 0, backward = 0;
    for (size_t set : made.homes.layers.front()) {
      const HomesOption &option = *std::ranges::min_element(
          made.homes.optionSets[set], {}, [&](const HomesOption &each) {
            return count * (each.forward + each.backward) + each.sums +
                   each.end;
          });
      sums += option.sums;
      backward += option.backward;
    }
    return sums > backward;
  }

  /// The part of a time by which sums of gradients beside it are shorter than
  /// behind it.
  double hiddenPart() const {
    bool isBeside = any_of(plan.stages, [&](const PlanStage &stage) {
      return backendTraits(cluster.backendOf(stage.devices)).streams;
    });
    return isBeside ? 2 - slowdown : 0;
  }

  /// Adds a row, in which a chunk's sums count as if all of them were hidden.
  /// Where that chunk's last backward pass is the last one of its home, they
  /// save no more than that pass is long: this is another row.
  void addRow(HomesRow row, size_t chunk, bool endsHome) {
    made.homes.rows.push_back(row);
    if (!endsHome || !sumsAreLong || hiddenPart() == 0)
      return;
    row.sums[chunk] = 1;
    row.backward[chunk] -= hiddenPart();
    made.homes.rows.push_back(std::move(row));
  }

  /// The row with all sums of a home as long as they are, less what the passes
  /// save that come behind the beginning of the first of them: one of its last
  /// chunk, and as many of the others as have slots (docs/search.md).
  HomesRow withSumsBesidePasses(HomesRow row, size_t home) const {
    const std::vector<HomesChunk> &chunks = made.homes.chunks;
    bool isLast = !schedule.splitsBackward();
    for (size_t c = chunks.size(); c-- > 0;) {
      if (chunks[c].home != home)
        continue;
      double passes = std::exchange(isLast, false)
                          ? 1
                          : static_cast<double>(
                                schedule.slots(shape, static_cast<int64_t>(c)));
      row.sums[c] = 1;
      row.backward[c] = std::max(0.0, count - hiddenPart() * passes);
      if (c > 0)
        row.back[c - 1] =
            std::max(0.0, row.back[c - 1] - hiddenPart() * passes);
    }
    return row;
  }

  /// The work of a home from its first backward pass on: that begins once the
  /// first micro-batch has gone forward through all chunks, and back through
  /// those behind the home's last one, of which the input parts do where
  /// backward passes have two; before it the home has done no more forward
  /// passes than its slots hold. Where backward passes are whole the last
  /// gradients go back through the chunks before its first one.
  HomesRow rowBehindFill(size_t home) const {
    const std::vector<HomesChunk> &chunks = made.homes.chunks;
    bool isWhole = !schedule.splitsBackward();
    size_t first = chunks.size(), last = 0;
    for (size_t c = 0; c < chunks.size(); ++c)
      if (chunks[c].home == home) {
        first = std::min(first, c);
        last = c;
      }
    HomesRow row;
    for (size_t c = 0; c < chunks.size(); ++c) {
      bool isOwn = chunks[c].home == home;
      double behind =
          std::max(0.0, count - static_cast<double>(schedule.slots(
                                    shape, static_cast<int64_t>(c))));
      row.forward.push_back(1 + (isOwn ? behind : 0));
      bool isPassed = c > last || (isWhole && c < first);
      row.backward.push_back(isOwn ? count : isPassed && isWhole ? 1 : 0);
      row.input.push_back(!isOwn && isPassed && !isWhole ? 1 : 0);
      row.sums.push_back(isOwn && !isWhole ? 1 - hiddenPart() : 0);
      row.end.push_back(
          chunks[c].home == (isWhole ? chunks.front().home : home) ? 1 : 0);
      if (c + 1 == chunks.size())
        break;
      row.out.push_back(1 + (isOwn ? behind : 0));
      row.back.push_back((chunks[c + 1].home == home ? count - 1 : 0) +
                         (c >= last || (isWhole && c < first) ? 1 : 0));
    }
    if (isWhole)
      row.sums[0] = 1 - hiddenPart();
    return row;
  }

  /// The rows of BusyBound::leastSeconds(), and those behind the first backward
  /// pass.
  void addRows() {
    const std::vector<HomesChunk> &chunks = made.homes.chunks;
    bool returns = !schedule.splitsBackward();
    for (size_t home = 0; home < stages; ++home) {
      addRow(rowBehindFill(home), 0, returns);
      size_t first = 0;
      while (chunks[first].home != home)
        ++first;
      HomesRow row;
      for (size_t c = 0; c < chunks.size(); ++c) {
        bool isOwn = chunks[c].home == home;
        row.forward.push_back(isOwn ? count : c < first ? 1 : 0);
        row.backward.push_back(isOwn ? count : 0);
        row.sums.push_back(isOwn ? 1 - hiddenPart() : 0);
        row.end.push_back(isOwn ? 1 : 0);
        if (c + 1 == chunks.size())
          break;
        // A message inside a stage is none of its links'.
        row.out.push_back(isOwn ? count : 0);
        row.back.push_back(chunks[c + 1].home == home ? count - 1 : 0);
      }
      if (sumsAreLong && hiddenPart() > 0)
        made.homes.rows.push_back(withSumsBesidePasses(row, home));
      if (anyAhead) {
        HomesRow &moving = made.homes.rows.emplace_back(row);
        moving.isOther = true;
      }
      addRow(row, first, returns);
      if (!returns || first == 0)
        continue;
      // Its last gradients go back through all chunks before the first one.
      for (size_t c = 0; c < chunks.size(); ++c) {
        if (c < first) {
          row.backward[c] += 1;
          row.back[c] += 1;
        }
        row.sums[c] = 0;
        row.end[c] = chunks[c].home == chunks.front().home ? 1 : 0;
      }
      row.sums[0] = 1 - hiddenPart();
      addRow(std::move(row), 0, returns);
    }
  }

  void addMessages() {
    size_t layers = model.layerCount();
    // Moves between so many devices are dear to price.
    constexpr size_t mostDevices = 128;
    bool priced = all_of(plan.stages, [](const PlanStage &stage) {
      return stage.devices.size() <= mostDevices;
    });
    std::map<size_t, StrategySet> sets; // by devices of a stage
    auto setOf = [&](size_t stage) -> const StrategySet & {
      auto [set, isNew] = sets.try_emplace(plan.stages[stage].devices.size());
      if (isNew)
        set->second = StrategySet::make(strategiesOf(stage), space.pins);
      return set->second;
    };
    const std::vector<HomesChunk> &chunks = made.homes.chunks;
    for (size_t c = 0; c + 1 < chunks.size(); ++c) {
      std::vector<double> &out = made.homes.out.emplace_back(layers);
      std::vector<double> &back = made.homes.back.emplace_back(layers);
      if (!priced || chunks[c].home == chunks[c + 1].home)
        continue;
      for (size_t l = 0; l + 1 < layers; ++l)
        std::tie(out[l], back[l]) = times.leastMessages(
            plan, setOf(chunks[c].home), setOf(chunks[c + 1].home),
            static_cast<int64_t>(chunks[c].home),
            static_cast<int64_t>(chunks[c + 1].home),
            model.boundaryBytesPerSample(l));
    }
  }

  LayerModel &model;
  const Cluster &cluster;
  const PlannerOptions &options;
  const Space &space;
  const Plan &plan;
  BusyBound &times;
  const Schedule &schedule;
  size_t stages;
  ScheduleShape shape;
  double count;
  ChunkedProblem made;
  std::vector<size_t> placeStages; ///< a stage of each place
  bool anyAhead = false;
  bool sumsAreLong = false;
  double slowdown = 2;
  int64_t mostSlots = 1; ///< of a home
};

} // namespace

std::optional<ChunkedProblem>
ChunkedProblem::make(LayerModel &model, const Cluster &cluster,
                     const PlannerOptions &options, const Space &space,
                     const Plan &shape, BusyBound &times) {
  return ChunkedProblemMaker(model, cluster, options, space, shape, times)
      .make();
}

} // namespace galvatron::planner
