//===- Input.cpp - Durations of a plan's operations -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Cluster/Backend.h"
#include "galvatron/Cost/ExchangeName.h"
#include "galvatron/Cost/StageContents.h"
#include "galvatron/Schedule/Schedule.h"
#include "galvatron/Schedule/SwapOrder.h"
#include "galvatron/Simulate/Simulate.h"
#include "galvatron/Strategy/Concurrency.h"
#include "galvatron/Strategy/ReshardPlan.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/EquivalenceClasses.h"
#include "llvm/ADT/STLExtras.h"

#include <cmath>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

using namespace llvm;

namespace galvatron {
namespace {

SumsPlace sumsPlace(const Plan &plan, size_t stage) {
  return {stage == 0, plan.schedule->runsPacks() || plan.chunksPerStage() > 1};
}

class InputMaker {
public:
  InputMaker(LayerModel &model, const Cluster &cluster, const Plan &plan,
             bool outline)
      : model(model), cluster(cluster), plan(plan), outline(outline) {}

  Expected<SimulationInput> make() {
    if (Error error = checkPlan(model, cluster, plan))
      return error;
    contention = planContention(cluster, plan);
    SimulationInput input;
    // Eq. 9, whatever the plan was chosen by.
    double sum = 0, slowest = 0;
    for (const PlanStage &stage : plan.stages) {
      sum += stage.timeMs;
      slowest = std::max(slowest, stage.timeNosyncMs);
    }
    input.predictedSeconds =
        (static_cast<double>(plan.microBatches - 1) * slowest + sum) / 1e3;
    std::vector<TieRoles> ties;
    std::vector<PlanChunk> chunks = plan.chunks();
    ScheduleShape shape = plan.shape();
    // Chunks with states; packs that run forward only are in front of them.
    auto chunkOf = [&](int64_t layer) {
      int64_t at = 0;
      while (layer >= chunks[at].layers.end())
        ++at;
      return shape.chunkOfRun(at);
    };
    for (const Tie &tie : model.ties()) {
      const PlanLayer &owner = plan.layers[tie.ownerLayer];
      const PlanLayer &borrower = plan.layers[tie.borrowerLayer];
      ties.push_back({owner.stage, borrower.stage, chunkOf(tie.ownerLayer),
                      chunkOf(tie.borrowerLayer)});
      input.ties.push_back(makeTie(owner, borrower, tie.bytes));
    }
    auto stages = static_cast<int64_t>(plan.stages.size());
    if (shape.hasPacks()) {
      std::vector<PlanChunk> forward = forwardPacks(shape);
      Expected<std::vector<TieRoles>> copies =
          addCopies(input, shape, forward, chunkOf);
      if (!copies)
        return copies.takeError();
      append_range(ties, *copies);
      chunks.insert(chunks.begin(), forward.begin(), forward.end());
    }
    if (outline)
      input.outlineOf = std::exchange(shape.microBatches, 1);
    input.program = plan.schedule->build(shape, std::move(ties));
    for (int64_t s = 0; s < stages; ++s) {
      Expected<SimulatedRole> role = makeRole(s);
      if (!role)
        return role.takeError();
      BackendTraits backend =
          backendTraits(cluster.backendOf(plan.stages[s].devices));
      input.tiesMeet |= backend.streams;
      role->oneQueue = backend.oneQueue;
      std::vector<Strategy> strategies = plan.strategiesOf(plan.stages[s]);
      role->canOverlapSums = canOverlapSums(cluster, plan, s);
      if (role->canOverlapSums) {
        if (overlapsSums(strategies, plan.stages[s].sums, sumsPlace(plan, s)))
          setSyncBehind(input.program.roles[s]);
        // Awaited sums are those begun in the pass: at its end, none is begun
        // that anything waits for.
        for (auto [layer, sums] :
             zip_equal(role->layers, awaitedSums(strategies))) {
          layer.backwardAwaitsSums = !sums.pass.empty();
          layer.reshardAwaitsSums = !sums.reshard.empty();
        }
      }
      input.roles.push_back(std::move(*role));
    }
    // Copies run beside computation where the devices have memory of their own.
    if (input.tiesMeet && shape.residentChunks > 0 && !shape.hasPacks())
      if (Error error = assignSwapStreams(input.program))
        return std::move(error);
    // The chain of forward packs ends in the last backward pack.
    size_t forward = shape.forwardPacks.size();
    int64_t ofForward = plan.forwardSamples(),
            samples = plan.microBatchSamples();
    for (size_t c = 0; c + 1 < chunks.size(); ++c)
      input.cuts.push_back(
          makeCut(chunks[c], c + 1 == forward ? chunks.back() : chunks[c + 1],
                  c < forward ? ofForward : samples));
    if (shape.hasPacks())
      for (auto [c, chunk] : enumerate(input.program.chunks))
        input.stashes.push_back(
            chunk.stashFrom < 0
                ? SimulatedCut()
                : makeStash(chunks[chunk.stashFrom], chunks[c], ofForward));
    return input;
  }

private:
  /// The packs that run forward only, and the stages that have them.
  std::vector<PlanChunk> forwardPacks(const ScheduleShape &shape) const {
    std::vector<PlanChunk> packs;
    ArrayRef<int64_t> first = shape.forwardPacks;
    for (size_t pack = 0; pack < first.size(); ++pack) {
      int64_t end = pack + 1 < first.size() ? first[pack + 1]
                                            : shape.backwardPacks.back();
      packs.push_back({plan.schedule->home(shape, static_cast<int64_t>(pack)),
                       {first[pack], end - first[pack]}});
    }
    return packs;
  }

  /// Layers that a stage runs forward for others take the values of the stage
  /// that has their states behind every update.
  Expected<std::vector<TieRoles>>
  addCopies(SimulationInput &input, const ScheduleShape &shape,
            ArrayRef<PlanChunk> forward,
            function_ref<int64_t(int64_t)> chunkOf) {
    std::vector<TieRoles> copies;
    for (auto [number, pack] : enumerate(forward))
      for (int64_t l = pack.layers.first; l < pack.layers.end(); ++l) {
        const PlanLayer &layer = plan.layers[l];
        if (layer.stage == pack.stage)
          continue;
        Expected<int64_t> samples =
            layer.strategy.localSamples(plan.microBatchSamples());
        if (!samples)
          return samples.takeError();
        Expected<LayerFootprint> footprint =
            model.footprint(model.kindOf(l), layer.strategy, *samples);
        if (!footprint)
          return footprint.takeError();
        PlanLayer copy = layer;
        copy.stage = pack.stage;
        SimulatedTie tie = makeTie(layer, copy, footprint->parameterBytes);
        tie.reduce = {};
        input.ties.push_back(std::move(tie));
        TieRoles roles{layer.stage, pack.stage, chunkOf(l),
                       static_cast<int64_t>(number)};
        roles.forwardOnly = true;
        copies.push_back(roles);
      }
    return copies;
  }

  /// The uplinks that messages cross; none if all links are given one by one.
  class Uplinks {
  public:
    explicit Uplinks(const Cluster &cluster)
        : cluster(cluster), crossed(2 * cluster.nodeCount()) {}

    void cross(int64_t from, int64_t to) {
      int64_t source = cluster.nodeOf(from), target = cluster.nodeOf(to);
      if (source == target || cluster.hasBandwidthMatrix())
        return;
      crossed.set(static_cast<unsigned>(2 * source));
      crossed.set(static_cast<unsigned>(2 * target + 1));
    }
    std::vector<int32_t> ascending() const {
      std::vector<int32_t> uplinks;
      for (unsigned uplink : crossed.set_bits())
        uplinks.push_back(static_cast<int32_t>(uplink));
      return uplinks;
    }

  private:
    const Cluster &cluster;
    llvm::BitVector crossed;
  };

  std::vector<int32_t> ringUplinks(const Strategy &strategy, ParadigmSet among,
                                   ArrayRef<int64_t> devices) const {
    Uplinks uplinks(cluster);
    for (ArrayRef<int64_t> ring : strategy.groups(among))
      for (size_t i = 0; i < ring.size(); ++i)
        uplinks.cross(devices[ring[i]], devices[ring[(i + 1) % ring.size()]]);
    return uplinks.ascending();
  }

  /// Transfers scale with the samples, so the fewest possible tell who sends to
  /// whom.
  static std::vector<ReshardTransfer> whoMeets(const Strategy &from,
                                               const Strategy &to,
                                               ArrayRef<int64_t> fromDevices,
                                               ArrayRef<int64_t> toDevices) {
    return reshardPlan(from, to, fromDevices, toDevices,
                       std::lcm(from.sampleShards(), to.sampleShards()))
        .transfers;
  }

  /// The move of a boundary of `bytes` per sample, of a micro-batch of
  /// `samples`, one direction.
  SimulatedExchange makeReshard(const Strategy &from, const Strategy &to,
                                ArrayRef<int64_t> fromDevices,
                                ArrayRef<int64_t> toDevices, int64_t bytes,
                                int64_t samples) const {
    SimulatedExchange exchange;
    if (bytes == 0)
      return exchange;
    ReshardRate rate = reshardRate(cluster, from, to, fromDevices, toDevices);
    exchange.seconds =
        rate.seconds(static_cast<double>(bytes), static_cast<double>(samples));
    if (cluster.nodeCount() > 1) {
      Uplinks uplinks(cluster);
      for (const ReshardTransfer &transfer :
           whoMeets(from, to, fromDevices, toDevices))
        uplinks.cross(transfer.srcRank, transfer.dstRank);
      exchange.uplinks = uplinks.ascending();
    }
    return exchange;
  }

  std::vector<int64_t> oneOfEachNode(ArrayRef<int64_t> devices) const {
    std::map<int64_t, int64_t> ofNode;
    for (int64_t device : devices)
      ofNode.try_emplace(cluster.nodeOf(device), device);
    std::vector<int64_t> some;
    for (auto [node, device] : ofNode)
      some.push_back(device);
    return some;
  }

  SimulatedTie makeTie(const PlanLayer &owner, const PlanLayer &borrower,
                       int64_t bytes) const {
    ArrayRef<int64_t> ownerDevices = plan.stages[owner.stage].devices;
    ArrayRef<int64_t> borrowerDevices = plan.stages[borrower.stage].devices;
    TieTime time = tieTime(cluster, owner.strategy, borrower.strategy,
                           ownerDevices, borrowerDevices, bytes);
    SimulatedTie tie;
    tie.reduce.seconds = time.reduce;
    tie.broadcast.seconds = time.broadcast;
    // A single device of each node stands for all: the others' links are the
    // same.
    std::vector<int64_t> borrowers = oneOfEachNode(borrowerDevices);
    Uplinks reduce(cluster), broadcast(cluster);
    for (int64_t a : oneOfEachNode(ownerDevices))
      for (int64_t b : borrowers) {
        reduce.cross(b, a);
        broadcast.cross(a, b);
      }
    tie.reduce.uplinks = reduce.ascending();
    tie.broadcast.uplinks = broadcast.ascending();
    return tie;
  }

  Expected<SimulatedRole> makeRole(int64_t number) {
    const PlanStage &stage = plan.stages[number];
    SimulatedRole role;
    role.devices = stage.devices;
    Expected<StageContents> contents =
        stageContents(model, cluster, plan, number);
    if (!contents)
      return contents.takeError();
    if (plan.schedule->runsPacks())
      return makePacks(std::move(role), *contents, number);
    for (auto [i, l] : enumerate(stage.layers())) {
      const Strategy &strategy = plan.layers[l].strategy;
      SimulatedLayer layer =
          makeLayer(strategy, stage.devices, contents->layers[i].footprint,
                    contention[number]);
      layer.name = plan.layers[l].name;
      layer.inputBytes = contents->layers[i].heldBytes();
      if (!plan.beginsChunk(l)) {
        const Strategy &before = plan.layers[l - 1].strategy;
        int64_t bytes = model.boundaryBytesPerSample(l - 1);
        int64_t samples = plan.microBatchSamples();
        role.layers.back().reshardForward = makeReshard(
            before, strategy, stage.devices, stage.devices, bytes, samples);
        layer.reshardBackward = makeReshard(strategy, before, stage.devices,
                                            stage.devices, bytes, samples);
      }
      role.layers.push_back(std::move(layer));
      if (l + 1 == plan.layers.size() || plan.beginsChunk(l + 1))
        role.chunkEnds.push_back(role.layers.size());
    }
    if (stage.gathersAhead)
      markGathersAhead(*contents, plan, number);
    for (auto [layer, content] : zip_equal(role.layers, contents->layers)) {
      layer.forwardAhead = content.forwardAhead;
      layer.backwardAhead = content.backwardAhead;
    }
    // An outline is asked for times alone.
    if (outline)
      return role;
    // Memory is decided as when the plan was priced.
    StageShape &shape = contents->shape;
    shape.wholeBuffers = shape.backend.registersBuffers;
    role.ledger = stageLedger(contents->layers, shape);
    if (role.ledger.total() > stage.ledger.total()) {
      shape.wholeBuffers = false;
      role.ledger = stageLedger(contents->layers, shape);
    }
    int64_t kept = 0;
    size_t position = 0, chunk = 0;
    for (auto [layer, temporaries] :
         zip_equal(role.layers,
                   placeTemporaries(contents->layers, contents->shape))) {
      if (position++ == role.chunkEnds[chunk]) {
        ++chunk;
        kept = 0;
      }
      kept += layer.inputBytes + layer.stashBytes;
      layer.forwardTransient = temporaries.forwardEnd - kept;
      layer.backwardTransient = temporaries.backwardEnd - kept;
    }
    return role;
  }

  /// The packs of a stage: those that run forward only, which its contents
  /// have behind its own, and its own. Memory is not followed through them:
  /// activations have their home on the host.
  SimulatedRole makePacks(SimulatedRole role, const StageContents &contents,
                          int64_t number) {
    role.ledger = stageLedger(contents.layers, contents.shape);
    std::vector<LayerRange> own = plan.stages[number].ranges(), ranges;
    for (const PlanChunk &pack : forwardPacks(plan.shape()))
      if (pack.stage == number)
        ranges.push_back(pack.layers);
    size_t copies = ranges.size(), at = plan.stages[number].layers().size();
    append_range(ranges, own);
    for (auto [position, range] : enumerate(ranges)) {
      if (position == copies)
        at = 0;
      // Contents have a stage's own in front.
      size_t chunk =
          position < copies ? own.size() + position : position - copies;
      for (int64_t l = range.first; l < range.end(); ++l, ++at) {
        const StageLayer &content = contents.layers[at];
        SimulatedLayer layer = makeLayer(plan.layers[l].strategy, role.devices,
                                         content.footprint, contention[number]);
        layer.name = plan.layers[l].name;
        layer.inputBytes = content.heldBytes();
        LayerTimeParts &time = layer.time;
        if (position < copies) {
          time.backward = time.recompute = time.scatter = time.sync = 0;
          time.norm = time.update = time.swapGradients = 0;
        }
        // Its squares are added where its gradients are, in front of the
        // update.
        if (contents.shape.chunks[chunk].updatesOnDevice)
          time.update += std::exchange(time.norm, 0);
        // The copy from home is what goes into the pack's first layer.
        time.swapKept = l == range.first && range.first > 0
                            ? hostCopySeconds(cluster, role.devices,
                                              content.footprint.inputBytes)
                            : 0;
        role.layers.push_back(std::move(layer));
      }
      role.chunkEnds.push_back(role.layers.size());
    }
    return role;
  }

  SimulatedLayer makeLayer(const Strategy &strategy, ArrayRef<int64_t> devices,
                           const LayerFootprint &footprint,
                           const CoreContention &stageContention) {
    Placement &placement =
        placements[{devices.front(), strategy.levels().vec()}];
    if (!placement.known) {
      placement.known = true;
      placement.links = linksOf(cluster, strategy, devices);
      placement.dp =
          ringUplinks(strategy, strategy.gradientSumLevels(), devices);
      placement.sdp =
          ringUplinks(strategy, strategy.parameterSharding(), devices);
      placement.tp = ringUplinks(strategy, strategy.insideFunctions(), devices);
    }
    SimulatedLayer layer;
    layer.strategy = strategy;
    layer.time = layerTimeParts(footprint, strategy, placement.links, cluster,
                                devices, model.dtype(), stageContention);
    if (plan.offload.byLayer())
      layer.time = partsAt(strategy.home(), layer.time);
    else if (plan.offload != Offload::Off)
      layer.time = partsAt({/*states=*/true, /*activations=*/true}, layer.time);
    layer.dpUplinks = placement.dp;
    layer.sdpUplinks = placement.sdp;
    layer.tpUplinks = placement.tp;
    layer.stashBytes = align64(footprint.stashBytes);
    using Time = CollectiveTime;
    layer.forwardExchange =
        exchangeName(footprint, placement.links, Time::Forward);
    layer.backwardExchange =
        exchangeName(footprint, placement.links,
                     {Time::Recompute, Time::Backward, Time::Weight});
    return layer;
  }

  /// Stages, strategies on both sides, bytes of a sample and samples: what a
  /// cut depends on. The chunks of two stages meet in the same way.
  using CutKey =
      std::tuple<int64_t, int64_t, Strategy, Strategy, int64_t, int64_t>;

  SimulatedCut makeCut(const PlanChunk &chunk, const PlanChunk &behind,
                       int64_t samples) {
    size_t last = behind.layers.first - 1;
    CutKey key = {chunk.stage,
                  behind.stage,
                  plan.layers[last].strategy,
                  plan.layers[last + 1].strategy,
                  model.boundaryBytesPerSample(last),
                  samples};
    auto entry = cuts.find(key);
    if (entry == cuts.end())
      entry = cuts.emplace(key, makeCut(key)).first;
    return entry->second;
  }

  SimulatedCut makeCut(const CutKey &key) const {
    const auto &[stageNumber, nextNumber, from, to, bytes, samples] = key;
    const PlanStage &stage = plan.stages[stageNumber];
    const PlanStage &next = plan.stages[nextNumber];
    SimulatedCut cut;
    cut.activation =
        makeReshard(from, to, stage.devices, next.devices, bytes, samples);
    cut.gradient =
        makeReshard(to, from, next.devices, stage.devices, bytes, samples);
    // A pack's message to its own stage goes to a place of its own, too.
    if (plan.schedule->runsPacks() && stageNumber == nextNumber) {
      cut.activation.seconds = copySeconds(
          cluster, stage.devices, bytes * samples / from.sampleShards());
      cut.gradient.seconds = cut.activation.seconds;
    }

    // The grouping is of both directions, so that it serves grouped transfers
    // too.
    EquivalenceClasses<int64_t> together;
    for (ArrayRef<int64_t> devices :
         {ArrayRef(stage.devices), ArrayRef(next.devices)})
      for (int64_t device : devices)
        together.insert(device);
    for (bool back : {false, true})
      for (const ReshardTransfer &transfer :
           back ? whoMeets(to, from, next.devices, stage.devices)
                : whoMeets(from, to, stage.devices, next.devices))
        together.unionSets(transfer.srcRank, transfer.dstRank);
    std::map<int64_t, int32_t> numbers;
    auto groupOf = [&](int64_t device) {
      return numbers
          .try_emplace(together.getLeaderValue(device), numbers.size())
          .first->second;
    };
    for (int64_t device : stage.devices)
      cut.senderGroup.push_back(groupOf(device));
    for (int64_t device : next.devices)
      cut.receiverGroup.push_back(groupOf(device));
    cut.groups = static_cast<int32_t>(numbers.size());
    return cut;
  }

  /// A message that goes home, where its device type has a link to the host
  /// over that first.
  SimulatedCut makeStash(const PlanChunk &from, const PlanChunk &to,
                         int64_t samples) {
    SimulatedCut stash = makeCut(from, to, samples);
    ArrayRef<int64_t> devices = plan.stages[from.stage].devices;
    size_t behind = to.layers.first;
    int64_t bytes = model.boundaryBytesPerSample(behind - 1) * samples /
                    plan.layers[behind].strategy.sampleShards();
    if (double rate = cluster.deviceType(devices.front()).hostBandwidth;
        rate > 0)
      stash.activation.seconds += static_cast<double>(bytes) / rate;
    return stash;
  }

  struct Placement {
    bool known = false;
    StrategyLinks links;
    std::vector<int32_t> dp, sdp, tp;
  };

  LayerModel &model;
  const Cluster &cluster;
  const Plan &plan;
  bool outline;
  std::vector<CoreContention> contention; ///< by stage
  /// Placements by first device of the stage and strategy.
  std::map<std::pair<int64_t, std::vector<Level>>, Placement> placements;
  std::map<CutKey, SimulatedCut> cuts;
};

} // namespace

bool canOverlapSums(const Cluster &cluster, const Plan &plan, size_t stage) {
  const PlanStage &at = plan.stages[stage];
  std::vector<Strategy> strategies = plan.strategiesOf(at);
  return backendTraits(cluster.backendOf(at.devices)).streams &&
         plan.shape().residentChunks == 0 && sumsGradients(strategies) &&
         whyNotOverlapSums(strategies, sumsPlace(plan, stage)).empty();
}

void setSumsOverlap(SimulationInput &input, size_t role, bool overlap) {
  assert(input.roles[role].canOverlapSums && "there is no choice");
  RoleProgram &program = input.program.roles[role];
  for (SchedulePart part : {SchedulePart::Steady, SchedulePart::Drain})
    for (Task &task : program.part(part))
      task.flags &= ~SyncBehind;
  if (overlap)
    setSyncBehind(program);
}

json::Value predictedTimes(const SimulationInput &input) {
  auto put = [](json::Object &object, StringRef key, double seconds) {
    // Times are whole nanoseconds: digits beyond are noise.
    if (double rounded = std::round(seconds * 1e9); rounded > 0)
      object[key] = rounded / 1e3;
  };
  // Names that are not the usual one of an exchange that takes time.
  auto putName = [](json::Object &object, StringRef key, StringRef times,
                    StringRef name) {
    if (object.get(times) && !name.empty() && name != "tp all-reduce")
      object[key] = name;
  };
  json::Array roles, cuts, ties;
  for (const SimulatedRole &role : input.roles) {
    json::Array layers;
    double slowdown = 1;
    for (const SimulatedLayer &layer : role.layers) {
      const LayerTimeParts &time = layer.time;
      slowdown = std::max(slowdown, time.slowdown);
      json::Object object;
      put(object, "gather", time.gather);
      put(object, "forward", time.forward);
      put(object, "tp-forward", time.tpForward);
      put(object, "recompute", time.recompute);
      put(object, "backward", time.backward);
      put(object, "tp-backward", time.tpRecompute + time.tpBackward);
      if (time.split && input.program.schedule->splitsBackward()) {
        put(object, "weight", time.weight);
        put(object, "tp-weight", time.tpWeight);
      }
      putName(object, "exchange-forward", "tp-forward", layer.forwardExchange);
      putName(object, "exchange-backward", "tp-backward",
              layer.backwardExchange);
      put(object, "scatter", time.scatter);
      put(object, "sync", time.sync);
      put(object, "norm", time.norm);
      put(object, "update", time.update);
      put(object, "reshard-forward", layer.reshardForward.seconds);
      put(object, "reshard-backward", layer.reshardBackward.seconds);
      if (input.program.residentChunks > 0) {
        put(object, "swap-parameters", time.swapParameters);
        put(object, "swap-gradients", time.swapGradients);
        if (input.program.updateOnDevice)
          put(object, "swap-optimizer", time.swapOptimizer);
      }
      if (input.program.slotsAtHome)
        put(object, "swap-kept", time.swapKept);
      if (!layers.empty()) {
        json::Object &before = *layers.back().getAsObject();
        int64_t count = *before.getInteger("count");
        object["count"] = count;
        if (object == before) {
          before["count"] = count + 1;
          continue;
        }
      }
      object["count"] = 1;
      layers.push_back(std::move(object));
    }
    roles.push_back(
        json::Object{{"slowdown", slowdown}, {"layers", std::move(layers)}});
  }
  for (const SimulatedCut &cut : input.cuts) {
    json::Object object;
    put(object, "activation", cut.activation.seconds);
    put(object, "gradient", cut.gradient.seconds);
    cuts.push_back(std::move(object));
  }
  for (auto [tie, ends] : zip_equal(input.ties, input.program.ties)) {
    json::Object object;
    put(object, "reduce", tie.reduce.seconds);
    put(object, "broadcast", tie.broadcast.seconds);
    // A program has one tie of each tensor, and here layers are copied whole.
    if (input.program.hasPacks) {
      object["owner"] = ends.owner;
      object["borrower"] = ends.borrower;
      if (ends.forwardOnly)
        object["forward-only"] = true;
    }
    ties.push_back(std::move(object));
  }
  json::Object times{{"roles", std::move(roles)},
                     {"cuts", std::move(cuts)},
                     {"ties", std::move(ties)}};
  if (input.program.hasPacks) {
    json::Array stashes;
    for (const SimulatedCut &stash : input.stashes) {
      json::Object object;
      put(object, "activation", stash.activation.seconds);
      stashes.push_back(std::move(object));
    }
    times["stashes"] = std::move(stashes);
  }
  return times;
}

Expected<SimulationInput>
simulationInput(LayerModel &model, const Cluster &cluster, const Plan &plan) {
  return InputMaker(model, cluster, plan, /*outline=*/false).make();
}

Expected<SimulationInput>
simulationOutline(LayerModel &model, const Cluster &cluster, const Plan &plan) {
  return InputMaker(model, cluster, plan, /*outline=*/true).make();
}

} // namespace galvatron
