//===- Candidate.cpp - One pipeline shape as a problem --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Candidate.h"

#include "galvatron/Cost/StageContents.h"
#include "galvatron/Schedule/Schedule.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"

#include <algorithm>
#include <limits>
#include <map>

using namespace llvm;

namespace galvatron::planner {

std::unique_ptr<Candidate> Candidate::make(CostTables &tables,
                                           const Shape &shape,
                                           std::string &refusal, int64_t fewest,
                                           Moves moves, Points points) {
  return makeIn(shape.form(tables.searched()), tables, shape, refusal, fewest,
                moves, points);
}

std::unique_ptr<Candidate> Candidate::makeIn(StepForm form, CostTables &tables,
                                             const Shape &shape,
                                             std::string &refusal,
                                             int64_t fewest, Moves moves,
                                             std::optional<Points> points) {
  std::unique_ptr<Candidate> candidate(
      new Candidate(tables, shape, fewest > 0 ? fewest : shape.microBatches));
  PipelineProblem &problem = candidate->theProblem;
  problem.microBatches = form == StepForm::Drain    ? shape.microBatches
                         : form == StepForm::Filled ? shape.microBatches + 1
                                                    : 1;
  problem.slowestAlone = form == StepForm::Steady;
  problem.classes = shape.layout->set->classes.size();
  problem.tieKeys = shape.layout->set->tieKeys.size();
  if (!candidate->addOptions(form, refusal, points))
    return nullptr;
  if (moves == Moves::All) {
    if (!candidate->leaveOutLong(refusal))
      return nullptr;
    candidate->addTransfers();
    if (countsAllMessages(form) && !tables.incomplete())
      candidate->countAllMessages();
    candidate->addBoundaries();
    if (!candidate->addTies(refusal))
      return nullptr;
  } else {
    candidate->shortenLong();
    candidate->makeTransfersFree();
    if (moves == Moves::LeastCuts && !tables.incomplete())
      candidate->addLeastCuts();
  }
  if (tables.incomplete())
    return nullptr;
  if (Error error = problem.check()) {
    refusal = toString(std::move(error));
    return nullptr;
  }
  return candidate;
}

std::unique_ptr<Candidate> Candidate::makeUnbound(CostTables &tables,
                                                  const Shape &shape,
                                                  std::string &refusal,
                                                  Moves moves) {
  std::unique_ptr<Candidate> candidate =
      makeIn(shape.form(tables.searched()), tables, shape, refusal,
             /*fewest=*/0, moves, /*points=*/std::nullopt);
  if (!candidate)
    return nullptr;
  PipelineProblem &problem = candidate->theProblem;
  for (std::vector<PipelineOption> &set : problem.optionSets)
    for (PipelineOption &option : set)
      option.kept = option.transient = option.state = option.boundary =
          option.host = option.hostKept = 0;
  problem.boundaries.clear();
  problem.boundaryBehind.clear();
  for (PipelineStage &stage : problem.stages) {
    stage.memory = 0;
    stage.hostMemory = kAnyBytes;
  }
  return candidate;
}

StageShape Candidate::stageShape(size_t stage) const {
  StageShape shape;
  ScheduleShape scheduled{theShape.degree(), memoryMicroBatches};
  shape.inFlight =
      theShape.schedule->slots(scheduled, static_cast<int64_t>(stage));
  shape.setSchedule(*theShape.schedule, scheduled);
  shape.homesByLayer = theShape.layout->set->hasHomes();
  shape.residentChunks = shape.homesByLayer;
  shape.microBatches = memoryMicroBatches;
  shape.lastStage = static_cast<int64_t>(stage) + 1 == theShape.layout->degree;
  shape.backend = theShape.layout->backend[stage];
  return shape;
}

void Candidate::setMemory(PipelineOption &option, const KindOption &from,
                          const StageShape &shape, const PipelineStage &stage) {
  option.kept = from.memory.kept;
  option.transient = shape.transientBytes(from.memory);
  option.state = shape.stateBytes(from.memory);
  option.boundary = from.memory.boundary;
  // One sum less to compare by where nothing bounds it.
  if (stage.hostMemory != kAnyBytes) {
    option.host = from.memory.host;
    option.hostKept = from.memory.hostKept;
  }
  // Messages that the stage's last layer sends and receives; of any layer as
  // much, since it may be the last.
  if (shape.separatesMessages)
    option.boundary += 2 * from.memory.behind;
  if (!shape.splitsBackward)
    return;
  // Temporaries overlay nothing, so what all slots keep is there like state.
  // Stages share options: all have as many slots (zb-h1, zb-h2).
  option.state += shape.inFlight * option.kept;
  option.kept = 0;
}

/// Why a layer cannot have the strategy that it is given.
static std::string pinRefusal(LayerModel &model, const Schedule &schedule,
                              size_t layer, const Strategy &strategy,
                              int64_t samples) {
  bool isTied = any_of(model.ties(), [&](const Tie &tie) {
    return tie.ownerLayer == layer || tie.borrowerLayer == layer;
  });
  std::string text = "layer '" + model.layerName(layer) +
                     "' cannot have the strategy '" + strategy.str() +
                     "' that it is given: ";
  Expected<int64_t> local = strategy.localSamples(samples);
  if (!local)
    return text + toString(local.takeError());
  Expected<LayerFootprint> footprint =
      model.footprintUnder(schedule, model.kindOf(layer), strategy, *local);
  if (footprint && strategy.home().states && isTied)
    return text + "it has a tied parameter, and beside devices with memory of "
                  "their own the states of both its layers are searched there";
  // Its cost is what is too large.
  return text +
         (footprint ? "it has no price" : toString(footprint.takeError()));
}

/// The least cost of a pipeline that has a certain option in some layer.
static Picoseconds boundWith(const KindOption &option, const KindOptions &kind,
                             const Shape &shape, StepForm form,
                             const FreeBound &least, size_t layers) {
  FreeBound with = least;
  with.time += option.time - kind.leastTime;
  with.nosyncSum += option.nosync - kind.leastNosync;
  with.forwardSum += option.form.forward - kind.leastForward;
  // The slowest stage takes no less than the mean one.
  with.nosync =
      std::max({with.nosync, option.nosync, with.nosyncSum / shape.degree()});
  return stepBound(shape, form, with, layers);
}

bool Candidate::addOptions(StepForm form, std::string &refusal,
                           std::optional<Points> points) {
  const Layout &layout = *theShape.layout;
  const StrategySet &set = *layout.set;
  std::optional<FreeBound> least;
  if (!tables.pricesPoints() || !set.hasPoints())
    points.reset();
  else if (points && points->within < kNoBound)
    least = freeBound(tables, theShape);
  auto mayHavePoints = [&](const KindOption &option, const KindOptions &kind) {
    return points &&
           (!least || boundWith(option, kind, theShape, form, *least,
                                model().layerCount()) <= points->within);
  };
  const std::vector<size_t> &contentions = tables.contentionsOf(theShape);
  std::map<std::tuple<size_t, size_t, size_t>, size_t> placeIndex;
  for (size_t s = 0; s < layout.devices.size(); ++s) {
    const StrategySubset &own = layout.own[s];
    StageShape shape = stageShape(s);
    PipelineStage stage;
    stage.inFlight = shape.inFlight;
    stage.memory = layout.memory[s] - stageConstantBytes(shape);
    stage.hostMemory = layout.hostMemory[s];
    stage.sendsFromTransient = shape.mayShareTransient();
    auto [it, fresh] = placeIndex.try_emplace(
        {layout.place[s], layout.movePlace[s], contentions[s]},
        placeIndex.size());
    stage.place = it->second;
    theProblem.stages.push_back(stage);
    if (!fresh)
      continue;
    theProblem.layers.emplace_back();
    theProblem.layers.back().reserve(model().layerCount());
    std::map<std::pair<size_t, std::optional<size_t>>, size_t> setOfKind;
    for (size_t l = 0; l < model().layerCount(); ++l) {
      std::optional<size_t> pin = set.pinOf(l);
      auto [known, isNew] = setOfKind.try_emplace({model().kindOf(l), pin},
                                                  theProblem.optionSets.size());
      theProblem.layers.back().push_back(known->second);
      if (!isNew)
        continue;
      const KindOptions &kind =
          tables.kindOptions(model().kindOf(l), theShape, s);
      if (none_of(kind.options, [&](const KindOption &option) {
            return set.allows(pin, own.strategy + option.strategy);
          })) {
        refusal =
            pin ? pinRefusal(model(), *theShape.schedule, l,
                             set.strategies[*pin], theShape.samples())
                : "layer '" + model().layerName(l) + "' has no strategy on " +
                      std::to_string(layout.devices[s].size()) + " devices" +
                      (kind.refusal.empty() ? "" : ": " + kind.refusal);
        return false;
      }
      theProblem.optionSets.emplace_back();
      strategyOf.emplace_back();
      theProblem.optionSets.back().reserve(kind.options.size());
      strategyOf.back().reserve(kind.options.size());
      auto add = [&](const KindOption &from) {
        size_t strategy = own.strategy + from.strategy;
        if (!set.allows(pin, strategy))
          return;
        PipelineOption option;
        option.layoutClass = set.classOf[strategy];
        option.tieKey = set.tieKeyOf[strategy];
        option.time =
            from.form.summed(form, theShape.degree(), theShape.microBatches);
        option.nosync = from.nosync;
        setMemory(option, from, shape, stage);
        theProblem.optionSets.back().push_back(option);
        strategyOf.back().push_back(strategy);
      };
      llvm::for_each(kind.options, add);
      for (const KindOption &plain : kind.options)
        if (!pin && mayHavePoints(plain, kind))
          llvm::for_each(tables.pointOptions(model().kindOf(l), theShape, s,
                                             plain, points->bytes),
                         add);
    }
  }
  return true;
}

std::optional<size_t> Candidate::keepOptions(
    llvm::function_ref<bool(size_t set, size_t option)> isKept) {
  for (size_t set = 0; set < theProblem.optionSets.size(); ++set) {
    std::vector<PipelineOption> &options = theProblem.optionSets[set];
    size_t kept = 0;
    for (size_t i = 0; i < options.size(); ++i)
      if (isKept(set, i)) {
        options[kept] = options[i];
        strategyOf[set][kept++] = strategyOf[set][i];
      }
    options.resize(kept);
    strategyOf[set].resize(kept);
    if (kept == 0)
      return set;
  }
  return std::nullopt;
}

bool Candidate::leaveOut(llvm::function_ref<bool(const Strategy &)> isLeftOut) {
  std::vector<char> isKept;
  for (const Strategy &strategy : theShape.layout->set->strategies)
    isKept.push_back(!isLeftOut(strategy));
  return !keepOptions(
      [&](size_t set, size_t i) { return isKept[strategyOf[set][i]]; });
}

/// Leaves out the options whose times cannot be summed with all others. A
/// pipeline with one of them costs more than `longest` (leastCost()), so that
/// no plan is lost as long as a faster one is found. False if a layer has no
/// other.
bool Candidate::leaveOutLong(std::string &refusal) {
  Picoseconds most = theProblem.mostSummable();
  std::optional<size_t> emptied = keepOptions([&](size_t set, size_t i) {
    bool isLong = theProblem.leastCost(theProblem.optionSets[set][i]) > most;
    if (isLong)
      longest = most;
    return !isLong;
  });
  if (!emptied)
    return true;
  for (const std::vector<size_t> &place : theProblem.layers)
    if (auto it = llvm::find(place, *emptied); it != place.end())
      refusal = "layer '" + model().layerName(it - place.begin()) +
                "' takes too long under every strategy for a step to be "
                "summed";
  return false;
}

void Candidate::shortenLong() {
  Picoseconds most = theProblem.mostSummable() / 2;
  for (std::vector<PipelineOption> &options : theProblem.optionSets)
    for (PipelineOption &option : options)
      if (theProblem.leastCost(option) > most) {
        option.time = std::min(option.time, most);
        option.nosync = std::min(option.nosync, most / theProblem.microBatches);
      }
}

/// A matrix over the classes (or tie keys) of all groups from one over those of
/// two. What neither group has no layer of theirs can have: there stands what
/// the first one that they have costs, which leaves rows and columns the least
/// and the most that they had.
std::vector<Picoseconds> Candidate::spread(ArrayRef<Picoseconds> block,
                                           const StrategySubset &rows,
                                           const StrategySubset &columns,
                                           size_t side, bool ties) const {
  auto sizeOf = [&](const StrategySubset &own) {
    return ties ? own.set->tieKeys.size() : own.set->classes.size();
  };
  size_t height = sizeOf(rows), width = sizeOf(columns);
  if (height == side && width == side)
    return block.vec();
  auto place = [&](size_t index, const StrategySubset &own, size_t size) {
    size_t first = ties ? own.tieKey : own.layoutClass;
    return index >= first && index < first + size ? index - first : 0;
  };
  std::vector<Picoseconds> matrix;
  matrix.reserve(side * side);
  for (size_t row = 0; row < side; ++row)
    for (size_t column = 0; column < side; ++column)
      matrix.push_back(block[place(row, rows, height) * width +
                             place(column, columns, width)]);
  return matrix;
}

void Candidate::addTransfers() {
  const Layout &layout = *theShape.layout;
  int64_t samples = theShape.samples();
  size_t count = model().layerCount();
  auto times = [&](const std::vector<ReshardRate> &rates, int64_t bytes) {
    std::vector<Picoseconds> matrix;
    matrix.reserve(rates.size());
    for (const ReshardRate &rate : rates)
      matrix.push_back(transferPicoseconds(rate, bytes, samples));
    return matrix;
  };
  auto add = [&](ArrayRef<Picoseconds> block, const StrategySubset &former,
                 const StrategySubset &latter) {
    theProblem.matrices.push_back(
        spread(block, former, latter, theProblem.classes, /*ties=*/false));
    return theProblem.matrices.size() - 1;
  };
  // Few different sizes of boundaries: one matrix each.
  std::vector<char> seen(theProblem.layers.size(), 0);
  theProblem.transforms.resize(theProblem.layers.size());
  for (size_t s = 0; s < layout.devices.size(); ++s) {
    size_t place = theProblem.stages[s].place;
    if (std::exchange(seen[place], 1))
      continue;
    const StrategySubset &own = layout.own[s];
    const auto &rates =
        tables.boundaryRates(*own.set, *own.set, layout.movePlace[s]);
    if (tables.incomplete())
      return;
    std::map<int64_t, size_t> known;
    theProblem.transforms[place].reserve(count);
    for (size_t l = 0; l + 1 < count; ++l) {
      int64_t bytes = model().boundaryBytesPerSample(l);
      auto [it, fresh] = known.try_emplace(bytes, 0);
      if (fresh) {
        std::vector<Picoseconds> both = times(rates.forward, bytes);
        std::vector<Picoseconds> gradient = times(rates.backward, bytes);
        for (size_t cell = 0; cell < both.size(); ++cell)
          both[cell] += gradient[cell];
        it->second = add(both, own, own);
      }
      theProblem.transforms[place].push_back(it->second);
    }
  }
  std::map<size_t, size_t> cutIndex;
  for (auto [s, place] : enumerate(layout.cutPlace)) {
    const StrategySubset &former = layout.own[s], &latter = layout.own[s + 1];
    auto [index, isNew] = cutIndex.try_emplace(place, theProblem.cuts.size());
    theProblem.cutPlace.push_back(index->second);
    if (!isNew)
      continue;
    theProblem.cuts.emplace_back();
    const auto &rates = tables.boundaryRates(*former.set, *latter.set, place);
    if (tables.incomplete())
      return;
    std::map<int64_t, PipelineCut> known;
    theProblem.cuts.back().reserve(count);
    for (size_t l = 0; l + 1 < count; ++l) {
      int64_t bytes = model().boundaryBytesPerSample(l);
      auto [it, fresh] = known.try_emplace(bytes);
      if (fresh) {
        it->second.activation =
            add(times(rates.forward, bytes), former, latter);
        it->second.gradient = add(times(rates.backward, bytes), former, latter);
      }
      theProblem.cuts.back().push_back(it->second);
    }
  }
}

/// Counts the messages of all micro-batches, where the formula is not a sum
/// over one of them. A message occupies both of its ends, opposite ones go at
/// the same time, and those at one uplink share it.
void Candidate::countAllMessages() {
  PipelineProblem &problem = theProblem;
  std::vector<std::vector<Picoseconds>> matrices;
  std::map<std::tuple<size_t, size_t, int64_t>, size_t> made;
  auto numberOf = [&](size_t one, size_t other, int64_t users) {
    auto [it, fresh] = made.try_emplace({one, other, users}, matrices.size());
    if (!fresh)
      return it->second;
    std::vector<Picoseconds> &times = matrices.emplace_back();
    for (auto [a, b] :
         zip_equal(problem.matrices[one], problem.matrices[other]))
      times.push_back(theShape.microBatches * users * std::max(a, b));
    return it->second;
  };
  for (std::vector<size_t> &place : problem.transforms)
    for (size_t &matrix : place)
      matrix = numberOf(matrix, matrix, 1);
  std::vector<int64_t> users =
      messagesAtUplinks(tables.devices(), theShape.layout->devices);
  std::vector<std::vector<PipelineCut>> cuts;
  std::map<std::pair<size_t, int64_t>, size_t> places;
  for (auto [place, count] : zip_equal(problem.cutPlace, users)) {
    auto [it, fresh] = places.try_emplace({place, count}, cuts.size());
    if (fresh) {
      cuts.emplace_back();
      for (const PipelineCut &cut : problem.cuts[place])
        cuts.back().push_back(
            problem.slowestAlone
                ? PipelineCut{numberOf(cut.activation, cut.gradient, count),
                              numberOf(cut.activation, cut.gradient, count)}
                : PipelineCut{numberOf(cut.activation, cut.activation, 1),
                              numberOf(cut.gradient, cut.gradient, 1)});
    }
    place = it->second;
  }
  problem.cuts = std::move(cuts);
  problem.matrices = std::move(matrices);
}

void Candidate::addBoundaries() {
  const StrategySet &set = *theShape.layout->set;
  // Few different sets of tensors.
  std::map<std::pair<SmallVector<int64_t, 1>, SmallVector<int64_t, 1>>, size_t>
      known;
  for (size_t l = 0; l + 1 < model().layerCount(); ++l) {
    LiveTensors tensors = model().liveTensors(l);
    auto [it, fresh] = known.try_emplace({tensors.made, tensors.passing},
                                         theProblem.boundaries.size());
    theProblem.boundaryBehind.push_back(it->second);
    if (!fresh)
      continue;
    PipelineBoundary &boundary = theProblem.boundaries.emplace_back();
    for (size_t strategy : set.classes) {
      // No layer has the class if its degree does not divide the samples.
      const Strategy &member = set.strategies[strategy];
      int64_t local = member.divides(theShape.samples())
                          ? cantFail(member.localSamples(theShape.samples()))
                          : 0;
      boundary.live.push_back(tensors.allBytes(local));
      boundary.passing.push_back(tensors.passingBytes(local));
    }
  }
}

/// All classes are alike then.
void Candidate::makeTransfersFree() {
  size_t layers = theProblem.layerCount();
  theProblem.classes = theProblem.tieKeys = 1;
  for (std::vector<PipelineOption> &set : theProblem.optionSets)
    for (PipelineOption &option : set)
      option.layoutClass = option.tieKey = 0;
  theProblem.matrices.emplace_back(1, 0);
  theProblem.transforms.assign(theProblem.layers.size(),
                               std::vector<size_t>(layers - 1, 0));
  theProblem.cutPlace.assign(theProblem.stages.size() - 1, 0);
  if (!theProblem.cutPlace.empty())
    theProblem.cuts.assign(1, std::vector<PipelineCut>(layers - 1));
}

void Candidate::addLeastCuts() {
  const Layout &layout = *theShape.layout;
  theProblem.cuts.clear();
  std::map<Picoseconds, size_t> matrixOf;
  auto add = [&](Picoseconds time) {
    auto [it, fresh] = matrixOf.try_emplace(time, theProblem.matrices.size());
    if (fresh)
      theProblem.matrices.emplace_back(1, time);
    return it->second;
  };
  std::map<size_t, size_t> cutIndex;
  for (auto [s, place] : enumerate(layout.cutPlace)) {
    auto [index, isNew] = cutIndex.try_emplace(place, theProblem.cuts.size());
    theProblem.cutPlace[s] = index->second;
    if (!isNew)
      continue;
    std::vector<PipelineCut> &cuts = theProblem.cuts.emplace_back();
    cuts.reserve(model().layerCount());
    int64_t before = -1;
    for (size_t l = 0; l + 1 < model().layerCount(); ++l) {
      int64_t bytes = model().boundaryBytesPerSample(l);
      if (std::exchange(before, bytes) == bytes) {
        cuts.push_back(cuts.back());
        continue;
      }
      CostTables::LeastMove move =
          tables.leastMove(*layout.own[s].set, *layout.own[s + 1].set, place,
                           bytes, theShape.samples());
      cuts.push_back({add(move.activation), add(move.gradient)});
    }
  }
}

/// Pairs of layers that share parameters: up to so many are searched in all
/// combinations of strategies, and more than so many not at all.
constexpr size_t kFewTies = 3, kMostTies = 1024;

namespace {
/// The layers of a model that share parameters.
struct SharingLayers {
  explicit SharingLayers(const LayerModel &model) {
    for (const Tie &tie : model.ties())
      bytes[{tie.ownerLayer, tie.borrowerLayer}].push_back(tie.bytes);
    for (const auto &[pair, sizes] : bytes)
      ++borrowers[pair.first];
  }
  bool areFew() const { return bytes.size() <= kFewTies; }
  /// True if layers that borrow of an owner hold its parameters as it does.
  bool areAlike(size_t owner) const {
    return !areFew() &&
           (borrowers.lookup(owner) > 1 || borrowers.size() > kFewTies);
  }

  /// Bytes of all tensors that an owner and a borrower share: they are one tie,
  /// whose times add up.
  llvm::MapVector<std::pair<size_t, size_t>, SmallVector<int64_t>> bytes;
  llvm::MapVector<size_t, size_t> borrowers; ///< by owner
};
} // namespace

std::string Candidate::tieRule(const LayerModel &model, bool severalStages) {
  const SharingLayers sharing(model);
  const auto alike = llvm::count_if(sharing.borrowers, [&](const auto &owner) {
    return sharing.areAlike(owner.first);
  });
  // On one stage the layers that share one owner's parameters have any
  // strategies; those of several groups may have to be alike.
  if (alike == 0 || (!severalStages && alike == 1))
    return "";
  return "shared parameters held alike, in at most " +
         std::to_string(kMostTieChoices) + " ways";
}

/// False if so many layers share parameters that a search could not go through
/// what they may have.
bool Candidate::addTies(std::string &refusal) {
  const Layout &layout = *theShape.layout;
  size_t stages = layout.devices.size(), count = model().layerCount();
  const SharingLayers sharing(model());
  if (sharing.bytes.size() > kMostTies) {
    refusal = "expected at most " + std::to_string(kMostTies) +
              " pairs of layers that share parameters, found " +
              std::to_string(sharing.bytes.size());
    return false;
  }
  for (const auto &[pair, bytes] : sharing.bytes) {
    PipelineTie out;
    std::tie(out.owner, out.borrower) = pair;
    out.alike = sharing.areAlike(out.owner) && !layout.set->pinOf(out.borrower);
    out.table.assign(stages * stages, 0);
    std::map<size_t, size_t> known;
    for (size_t o = 0; o < stages; ++o)
      for (size_t b = o; b < stages; ++b) {
        // Pairs of stages that cannot hold the two layers have no table.
        if ((out.owner == 0 && o > 0) ||
            (out.borrower + 1 == count && b + 1 < stages))
          continue;
        size_t place = tables.placeOf(layout.devices[o], layout.devices[b]);
        auto [it, fresh] =
            known.try_emplace(place, theProblem.tieTables.size());
        if (fresh) {
          const StrategySubset &owner = layout.own[o], &user = layout.own[b];
          std::vector<Picoseconds> times;
          for (int64_t tensor : bytes) {
            const std::vector<Picoseconds> &added =
                tables.tieTimes(*owner.set, *user.set, place, tensor);
            if (tables.incomplete())
              return true; // and no candidate
            times.resize(added.size(), 0);
            for (auto [time, more] : zip_equal(times, added))
              time += more;
          }
          theProblem.tieTables.push_back(
              spread(times, owner, user, theProblem.tieKeys, /*ties=*/true));
        }
        out.table[o * stages + b] = it->second;
      }
    theProblem.ties.push_back(std::move(out));
  }
  auto areFew = [&] {
    return countTieChoices(theProblem, kMostTieChoices) <= kMostTieChoices;
  };
  if (sharing.areFew() || areFew())
    return true;
  theProblem.ownersAlike = true;
  if (areFew())
    return true;
  refusal = std::to_string(sharing.bytes.size()) +
            " layers share parameters with layers in front of them, in too "
            "many ways to be searched over " +
            std::to_string(stages) + " stages: expected " +
            (stages > 1 ? "fewer stages (--pipeline-degree), or " : "") +
            "their strategies to be given (--strategy)";
  return false;
}

size_t Candidate::bytes() const {
  size_t count = sizeof(Candidate);
  for (const std::vector<PipelineOption> &set : theProblem.optionSets)
    count += set.size() *
             (sizeof(PipelineOption) + sizeof(size_t) + sizeof(LeastEnd));
  for (const std::vector<Picoseconds> &matrix : theProblem.matrices)
    count += matrix.size() * sizeof(Picoseconds);
  // Indices by place and layer, twice, and by cut and layer.
  count +=
      theProblem.layerCount() * (2 * theProblem.layers.size() * sizeof(size_t) +
                                 theProblem.cuts.size() * sizeof(PipelineCut));
  return count;
}

Solved Candidate::toSolved(const PipelineSolution &solution) const {
  Solved solved;
  solved.cost = solution.cost;
  solved.partition = solution.partition;
  size_t layer = 0;
  for (size_t s = 0; s < solution.partition.size(); ++s)
    for (int64_t i = 0; i < solution.partition[s]; ++i, ++layer)
      solved.strategies.push_back(
          strategyOf[setOf(s, layer)][solution.choice[layer]]);
  return solved;
}

bool Candidate::fits(const Solved &solved) const {
  std::vector<uint32_t> choice;
  size_t layer = 0;
  for (size_t s = 0; s < solved.partition.size(); ++s)
    for (int64_t i = 0; i < solved.partition[s]; ++i, ++layer) {
      const std::vector<size_t> &own = strategyOf[setOf(s, layer)];
      auto option = llvm::find(own, solved.strategies[layer]);
      if (option == own.end())
        return false;
      choice.push_back(option - own.begin());
    }
  return evaluatePipeline(theProblem, solved.partition, choice).fits;
}

bool Candidate::priceBytes(const PipelineSolution &solution) const {
  const Layout &layout = *theShape.layout;
  bool had = false;
  size_t layer = 0;
  for (size_t s = 0; s < solution.partition.size(); ++s)
    for (int64_t i = 0; i < solution.partition[s]; ++i, ++layer) {
      size_t set = setOf(s, layer), choice = solution.choice[layer];
      size_t strategy = strategyOf[set][choice];
      if (!layout.set->isPoint[strategy])
        continue;
      size_t own = strategy - layout.own[s].strategy;
      const KindOptions &kind =
          tables.kindOptions(model().kindOf(layer), theShape, s);
      auto plain = find_if(kind.options, [&](const KindOption &option) {
        return is_contained(layout.own[s].set->pointsOf[option.strategy], own);
      });
      const std::vector<KindOption> &points = tables.pointOptions(
          model().kindOf(layer), theShape, s, *plain, PointBytes::Exact);
      auto point = find_if(points, [&](const KindOption &option) {
        return option.strategy == own;
      });
      // Other shapes may have made them exact since this problem was made.
      PipelineOption exact;
      if (point != points.end())
        setMemory(exact, *point, stageShape(s), theProblem.stages[s]);
      had |= point == points.end() ||
             exact.transient != theProblem.optionSets[set][choice].transient;
    }
  return had;
}

MemoryNeed Candidate::memoryNeed() const {
  PipelineNeed need = leastNeed(theProblem);
  Solved solved = toSolved(need.solution);
  size_t layer = 0;
  for (size_t s = 0; s < need.stage; ++s)
    layer += solved.partition[s];
  size_t first = layer;
  std::vector<StageLayer> layers;
  std::vector<Strategy> strategies;
  for (int64_t i = 0; i < solved.partition[need.stage]; ++i, ++layer) {
    const Strategy &strategy =
        theShape.layout->set->strategies[solved.strategies[layer]];
    int64_t samples = cantFail(strategy.localSamples(theShape.samples()));
    layers.push_back(makeStageLayer(
        cantFail(model().footprintUnder(
            *theShape.schedule, model().kindOf(layer), strategy, samples)),
        samples, model().dataOf(layer), strategy));
    strategies.push_back(strategy);
  }
  connectLayers(layers, strategies, model(), first);
  MemoryNeed result;
  result.stage = static_cast<int64_t>(need.stage);
  StageShape shape = stageShape(need.stage);
  result.ledger = stageLedger(layers, shape);
  result.needed = result.ledger.total();
  result.available = theShape.layout->memory[need.stage];
  StageLedger host = hostLedger(layers, shape);
  int64_t room = theShape.layout->hostMemory[need.stage];
  if (host.total() - room > result.excess()) {
    result.ledger = host;
    result.needed = host.total();
    result.available = room;
    result.onHost = true;
  }
  return result;
}

/// The slowest stage takes at least w_0 N_0 + w_1 N_1 + ... for weights w of
/// sum 1, so at least as long as if every layer were where w N is least. Stages
/// count by how fast each would do the whole model. A stage's moves count with
/// it.
static Picoseconds slowestStage(CostTables &tables, const Shape &shape,
                                ArrayRef<CostTables::LeastMove> moves) {
  const Layout &layout = *shape.layout;
  const LayerModel &model = tables.layerModel();
  const std::vector<size_t> &contentions = tables.contentionsOf(shape);
  std::map<size_t, int64_t> layersOfKind;
  for (size_t l = 0; l < model.layerCount(); ++l)
    ++layersOfKind[model.kindOf(l)];
  struct Sort {
    size_t stage;
    int64_t count = 0;
    double weight = 0;
  };
  std::map<std::pair<size_t, size_t>, Sort> sorts;
  for (size_t s = 0; s < layout.place.size(); ++s)
    ++sorts.try_emplace({layout.place[s], contentions[s]}, Sort{s})
          .first->second.count;
  auto leastOn = [&](const Sort &sort, size_t kind) {
    return static_cast<double>(
        tables.kindOptions(kind, shape, sort.stage).leastNosync);
  };
  double sum = 0;
  for (auto &[key, sort] : sorts) {
    double whole = 0;
    for (auto [kind, count] : layersOfKind)
      whole += static_cast<double>(count) * leastOn(sort, kind);
    if (whole <= 0)
      return 0;
    sort.weight = 1 / whole;
    sum += static_cast<double>(sort.count) * sort.weight;
  }
  double bound = 0;
  for (auto [kind, count] : layersOfKind) {
    double least = std::numeric_limits<double>::infinity();
    for (auto &[key, sort] : sorts)
      least = std::min(least, sort.weight / sum * leastOn(sort, kind));
    bound += static_cast<double>(count) * least;
  }
  auto weightOf = [&](size_t stage) {
    return sorts.at({layout.place[stage], contentions[stage]}).weight / sum;
  };
  for (size_t s = 0; s < moves.size(); ++s)
    bound += weightOf(s) * static_cast<double>(moves[s].activation) +
             weightOf(s + 1) * static_cast<double>(moves[s].gradient);
  // A little less for what doubles round.
  constexpr double rounding = 1 - 1e-12;
  return static_cast<Picoseconds>(
      std::min(bound * rounding, static_cast<double>(kMostTime)));
}

FreeBound freeBound(CostTables &tables, const Shape &shape, bool cuts) {
  // A cut that is not among the moves costs nothing.
  std::vector<CostTables::LeastMove> moves;
  if (cuts)
    moves = leastCuts(tables, shape);
  const Layout &layout = *shape.layout;
  const LayerModel &model = tables.layerModel();
  const std::vector<size_t> &contentions = tables.contentionsOf(shape);
  std::map<size_t, FreeBound> ofKind;
  // One stage of each sort.
  std::map<std::pair<size_t, size_t>, size_t> stages;
  for (size_t s = 0; s < layout.place.size(); ++s)
    stages.try_emplace({layout.place[s], contentions[s]}, s);
  Picoseconds time = 0, nosync = 0, largest = 0, forward = 0;
  for (size_t l = 0; l < model.layerCount(); ++l) {
    auto [it, fresh] = ofKind.try_emplace(model.kindOf(l));
    FreeBound &least = it->second;
    if (fresh) {
      least = {kNoBound, kNoBound, kNoBound, kNoBound};
      for (const auto &[sort, stage] : stages) {
        const KindOptions &kind =
            tables.kindOptions(model.kindOf(l), shape, stage);
        // A candidate needs options for every kind on every place.
        if (kind.options.empty())
          return {kNoBound, kNoBound, kNoBound, kNoBound};
        least.time = std::min(least.time, kind.leastTime);
        least.nosync = std::min(least.nosync, kind.leastNosync);
        least.forwardSum = std::min(least.forwardSum, kind.leastForward);
      }
    }
    // A bound needs no more than what can be summed.
    time = std::min(time + std::min(least.time, kMostTime), kNoBound - 1);
    nosync = std::min(nosync + std::min(least.nosync, kMostTime), kNoBound - 1);
    largest = std::max(largest, least.nosync);
    forward =
        std::min(forward + std::min(least.forwardSum, kMostTime), kNoBound - 1);
  }
  Picoseconds moved = 0;
  for (const CostTables::LeastMove &move : moves)
    moved = std::min(moved + move.activation + move.gradient, kMostTime);
  time = std::min(time + moved, kNoBound - 1);
  nosync = std::min(nosync + moved, kNoBound - 1);
  Picoseconds share = (nosync + layout.degree - 1) / layout.degree;
  if (!layout.hasEqualGroups() || stages.size() > 1)
    share = std::max(share, slowestStage(tables, shape, moves));
  return {time, std::max(share, largest), nosync, forward, moved};
}

/// Cut s is behind one of the layers that leave each stage before it and each
/// behind it a layer; what it moves has at least the bytes of the smallest of
/// these boundaries.
std::vector<CostTables::LeastMove> leastCuts(CostTables &tables,
                                             const Shape &shape) {
  const Layout &layout = *shape.layout;
  const LayerModel &model = tables.layerModel();
  size_t stages = layout.devices.size(), count = model.layerCount();
  std::vector<CostTables::LeastMove> moves;
  for (size_t s = 0; s + 1 < stages && stages <= count; ++s) {
    int64_t bytes = std::numeric_limits<int64_t>::max();
    for (size_t l = s; l <= count - stages + s; ++l)
      bytes = std::min(bytes, model.boundaryBytesPerSample(l));
    moves.push_back(tables.leastMove(*layout.own[s].set, *layout.own[s + 1].set,
                                     layout.cutPlace[s], bytes,
                                     shape.samples()));
  }
  return moves;
}

Picoseconds pipelineBound(int64_t microBatches, Picoseconds time,
                          Picoseconds nosync) {
  __int128 sum = static_cast<__int128>(microBatches - 1) * nosync + time;
  return static_cast<Picoseconds>(std::min<__int128>(sum, kNoBound - 1));
}

Picoseconds stepBound(const Shape &shape, StepForm form, const FreeBound &least,
                      size_t layers) {
  if (least.time >= kNoBound)
    return kNoBound;
  int64_t stages = shape.degree();
  switch (form) {
  case StepForm::Drain:
    break;
  case StepForm::Filled:
    // Forward times are rounded layer by layer.
    return pipelineBound(
        shape.microBatches + 1,
        std::max<Picoseconds>(0, least.forwardSum / stages * (stages - 1) -
                                     stages * static_cast<int64_t>(layers)),
        least.nosync);
  case StepForm::Steady:
    // The slowest stage takes no less than the mean one.
    return pipelineBound(shape.microBatches, least.time / stages, least.nosync);
  case StepForm::Lockstep:
    return pipelineBound(shape.microBatches + 1, 0, least.nosyncSum);
  }
  return pipelineBound(shape.microBatches, least.time, least.nosync);
}

} // namespace galvatron::planner
