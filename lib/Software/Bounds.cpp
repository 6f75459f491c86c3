//===- Bounds.cpp - What a configuration takes at least -------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Software/Bounds.h"

#include "Context.h"
#include "Memory.h"
#include "Passes.h"

#include "galvatron/Cost/LayerCost.h"

#include "llvm/ADT/STLExtras.h"

#include <numeric>

using namespace llvm;

namespace galvatron {

/// The link that ranks of tensor parallelism meet where they are placed best:
/// stages meet links of their own. Nodes are alike, and so are groups as far
/// apart as a multiple of both sizes.
static GroupLink bestTensorLink(int64_t tensor, const Cluster &cluster) {
  GroupLink best;
  if (tensor == 1)
    return best;
  constexpr double kMessage = 1 << 24; // large enough that bandwidth decides
  const int64_t period = std::min(
      cluster.deviceCount(), tensor * cluster.nodeGroups().front().devices);
  double least = 0;
  for (int64_t first = 0; first < period; first += tensor) {
    std::vector<int64_t> group(size_t(tensor), 0);
    std::iota(group.begin(), group.end(), first);
    GroupLink link = cluster.linkOfGroups({group});
    double seconds = link.seconds(Collective::AllReduce, kMessage);
    if (least == 0 || seconds < least) {
      least = seconds;
      best = link;
    }
  }
  return best;
}

LeastSteps::LeastSteps(const Execution &execution, const Cluster &cluster)
    : execution(execution), dtype(cantFail(halfTypeOf(cluster))),
      cluster(cantFail(softwareCluster(cluster, {}, execution))) {}

const LeastSteps::Seconds &LeastSteps::secondsOf(const ModelShape &shape,
                                                 const Configuration &degrees) {
  const bool again = degrees.recompute == Recompute::Full;
  auto [entry, isNew] = known.insert(
      {{shape.vocabulary, degrees.tensor, degrees.data, degrees.context,
        degrees.microBatch, degrees.stateShards(), int64_t(degrees.sharding),
        int64_t(degrees.sequenceParallel), int64_t(degrees.recompute),
        degrees.modules.scores + 2 * degrees.modules.norms +
            4 * int64_t(degrees.modules.mlp),
        degrees.pipeline, degrees.batch, int64_t(degrees.chunks > 1),
        degrees.pipeline == 1 ? degrees.recomputedOf(degrees.blocks.front())
                              : 0,
        int64_t(degrees.schedule->splitsBackward())},
       {}});
  Seconds &seconds = entry->second;
  if (!isNew)
    return seconds;
  auto model = cantFail(softwareModel(shape, degrees, execution, dtype));
  auto link = links.find(degrees.tensor);
  if (link == links.end())
    link =
        links.insert({degrees.tensor, bestTensorLink(degrees.tensor, cluster)})
            .first;
  const Strategy blocks = degrees.strategyOfBlocks(),
                 ends = degrees.strategyOfEnds();
  auto partsOf = [&](size_t kind, const Strategy &strategy) {
    LayerFootprint footprint =
        cantFail(degrees.schedule->splitsBackward()
                     ? model->splitFootprint(kind, strategy, degrees.microBatch)
                     : model->footprint(kind, strategy, degrees.microBatch));
    // The collectives of replicas and shards are no part of the bound.
    erase_if(footprint.collectives, [](const LayerCollective &collective) {
      return !isInsideFunctions(collective.among);
    });
    return layerTimeParts(footprint, strategy, {{}, {}, link->second}, cluster,
                          {0}, dtype);
  };
  // Embedding, block and head are three kinds.
  LayerTimeParts block = partsOf(1, again ? blocks : ends);
  seconds.forward = block.forward + block.tpForward;
  seconds.backward = block.backward;
  seconds.sent = block.tpBackward;
  // Blocks that are recomputed have whole backward passes.
  if (degrees.schedule->splitsBackward()) {
    LayerTimeParts plain = partsOf(1, ends);
    seconds.weights = plain.weight + plain.tpWeight;
  }
  seconds.slowdown = block.slowdown;
  seconds.again = block.recompute + block.tpRecompute;
  // What all blocks compute again is in no count of blocks.
  if (degrees.recompute == Recompute::Operations ||
      degrees.recompute == Recompute::Modules)
    seconds.backward += seconds.again;
  addSharing(seconds, *model, degrees);
  if (degrees.pipeline > 1)
    seconds.message =
        bestMove(degrees, degrees.chunks > 1)
            .seconds(double(model->boundaryBytesPerSample(0)),
                     double(degrees.microBatch * degrees.sharing()));
  auto [ring, isNewRing] = contextLinks.insert(
      {{degrees.tensor, degrees.data, degrees.context}, {}});
  if (isNewRing)
    ring->second = contextLink(degrees, cluster);
  const ContextSeconds context =
      contextSeconds(shape, degrees, execution, cluster, ring->second, dtype);
  seconds.contextForward = context.forward;
  seconds.contextBackward = context.backward;
  for (auto [kind, end] :
       {std::pair(0, &seconds.embedding), {2, &seconds.head}}) {
    LayerTimeParts parts = partsOf(size_t(kind), ends);
    *end = parts.forward + parts.backward + parts.tpForward;
    seconds.weightsOfEnds += parts.weight;
  }
  return seconds;
}

const ReshardRate &LeastSteps::bestMove(const Configuration &degrees,
                                        bool inTurn) {
  const int64_t stages = degrees.pipeline;
  auto [entry, isNew] =
      moves.insert({{degrees.tensor, stages, int64_t(inTurn)}, {}});
  ReshardRate &best = entry->second;
  if (!isNew)
    return best;
  // The split of samples and rows depends on no other degree.
  Configuration plain;
  plain.tensor = degrees.tensor;
  plain.data = degrees.sharing();
  const Strategy strategy = plain.strategyOfEnds();
  const int64_t ranks = cluster.deviceCount() / stages;
  auto devicesOf = [&](int64_t stage) {
    std::vector<int64_t> devices(size_t(ranks), 0);
    std::iota(devices.begin(), devices.end(), stage * ranks);
    return devices;
  };
  constexpr double kBytes = 1 << 24; // large enough that bandwidth decides
  for (int64_t stage = 0; stage < (inTurn ? stages : stages - 1); ++stage) {
    const std::vector<int64_t> from = devicesOf(stage),
                               to = devicesOf((stage + 1) % stages);
    for (bool back : {false, true}) {
      ReshardRate rate = reshardRate(cluster, strategy, strategy,
                                     back ? to : from, back ? from : to);
      if ((stage == 0 && !back) ||
          rate.seconds(kBytes, 1) < best.seconds(kBytes, 1))
        best = rate;
    }
  }
  return best;
}

const std::vector<StrategyLinks> &
LeastSteps::linksOfStages(const Strategy &strategy, int64_t stages) {
  auto [entry, isNew] = stageLinks.insert({{strategy.str(), stages}, {}});
  std::vector<StrategyLinks> &found = entry->second;
  const int64_t ranks = cluster.deviceCount() / stages;
  for (int64_t first = 0; isNew && first < cluster.deviceCount();
       first += ranks) {
    std::vector<int64_t> stage(size_t(ranks), 0);
    std::iota(stage.begin(), stage.end(), first);
    found.push_back(linksOf(cluster, strategy, stage));
  }
  return found;
}

void LeastSteps::addSharing(Seconds &seconds, LayerModel &model,
                            const Configuration &degrees) {
  bool exchanges = degrees.shards() > 1;
  bool sums = !execution.overlaps && degrees.shards() == 1;
  // Sums of one stage run beside its last pass; of several, while others work.
  bool beside = execution.overlaps && degrees.pipeline == 1;
  if (degrees.sharing() == 1 || (!exchanges && !sums && !beside))
    return;
  const std::vector<StrategyLinks> &stages =
      linksOfStages(degrees.strategyOfEnds(), degrees.pipeline);
  seconds.passes =
      cantFail(passSums(model, cluster, stages.front(), degrees, execution));
  const LayerFootprint block = cantFail(
      model.footprint(1, degrees.strategyOfBlocks(), degrees.microBatch));
  auto least = [](double &seconds, double found) {
    seconds = seconds == 0 ? found : std::min(seconds, found);
  };
  // On the stage where it is fastest.
  for (const StrategyLinks &links : stages) {
    auto on = [&](CollectiveGroup among, Collective kind, CollectiveTime when) {
      int64_t bytes = block.bytesOf(among, kind, when);
      return bytes > 0 ? links.of(among).seconds(kind, double(bytes)) : 0;
    };
    using Group = CollectiveGroup;
    using Time = CollectiveTime;
    if (exchanges) {
      const double gather =
          on(Group::Parameters, Collective::AllGather, Time::Forward);
      least(seconds.gather, gather);
      least(seconds.exchange,
            2 * gather + on(Group::Parameters, Collective::ReduceScatter,
                            Time::Backward));
    }
    double summed = 0;
    for (Group among : {Group::Parameters, Group::Gradients})
      summed += on(among, Collective::AllReduce, Time::Step) +
                on(among, Collective::ReduceScatter, Time::Step);
    if (sums)
      least(seconds.sums, summed);
    if (beside)
      least(seconds.beside, summed);
  }
}

double LeastSteps::pathSeconds(const Seconds &one,
                               const Configuration &degrees) {
  const bool splits = degrees.schedule->splitsBackward();
  // Gradients of weights are put off, so that the chunk in front does not wait
  // for them.
  auto weightsOf = [&](int64_t blocks) {
    return one.weights * double(blocks - degrees.recomputedOf(blocks));
  };
  const double backward = one.backward + one.sent;
  // A stage's second chunk in a V follows its first where the V is folded.
  const bool folded = degrees.schedule->name() == "zb-v";
  const size_t messages = 2 * (degrees.blocks.size() - 1 - (folded ? 1 : 0));
  double path = one.embedding + one.head + double(messages) * one.message -
                one.weightsOfEnds;
  double last = 0;
  for (int64_t count : degrees.blocks) {
    const double blocks = double(count);
    const double exchange = splits ? 0 : (one.exchange - one.gather) * blocks;
    last = overlapSeconds(one.forward * blocks, one.gather * blocks,
                          one.slowdown) +
           overlapSeconds(backward * blocks - weightsOf(count) +
                              one.again * double(degrees.recomputedOf(count)),
                          exchange, one.slowdown);
    path += last;
  }
  // Behind the last pass of the first chunk are the gradients of its weights.
  path += weightsOf(degrees.blocks.front());
  return path + double(degrees.microBatches() - 1) * last;
}

double LeastSteps::leastMs(const ModelShape &shape,
                           const Configuration &degrees) {
  const double m = double(degrees.microBatches());
  // The communication of TP stands in the way of a forward pass; of a backward
  // pass part of it may run beside the products of weights.
  const Seconds &one = secondsOf(shape, degrees);
  StringRef schedule = degrees.schedule->name();
  bool whole =
      schedule == "1f1b" || schedule == "interleaved" || schedule == "gpipe";
  const double backward = one.backward + (whole ? one.sent : 0);
  const double block = one.forward + backward;
  auto againOf = [&](int64_t blocks) {
    return one.again * double(degrees.recomputedOf(blocks));
  };
  // Chunk c is on stage c mod P, or folded where the schedule is a V.
  const size_t stages = size_t(degrees.pipeline), count = degrees.blocks.size();
  std::vector<double> work(stages, 0), exchanged(stages, 0);
  bool folded = degrees.schedule->name() == "zb-v";
  for (size_t chunk = 0; chunk < count; ++chunk) {
    size_t stage = chunk % stages;
    if (folded && chunk >= stages)
      stage = 2 * stages - 1 - chunk;
    work[stage] +=
        block * double(degrees.blocks[chunk]) + againOf(degrees.blocks[chunk]);
    exchanged[stage] += double(degrees.blocks[chunk]);
    if (chunk == 0)
      work[stage] += one.embedding;
    if (chunk + 1 == count)
      work[stage] += one.head;
  }
  // A stage waits for the forward passes in front of it, and a step for the
  // backward passes behind its last one, unless parts of these are put off.
  // Steps follow each other without a pause where stages do not meet.
  bool filled = execution.stagesMeet || schedule != "zb-h2";
  // `waiting`: the same as `around` where shards exchange.
  double least = 0, around = 0, filling = 0, waiting = 0;
  for (size_t stage = 0; stage < stages; ++stage) {
    // A stage has its messages in front of passes and behind them: of whole
    // stages an activation goes while a gradient comes. The last gradient that
    // it sends may be behind its work.
    const double onward = double(degrees.chunks) - double(stage + 1 == stages),
                 back = double(degrees.chunks) - double(stage == 0);
    const double messages =
        whole ? (m * onward + (m - 1) * back) * one.message : 0;
    const double busy = m * work[stage] + messages;
    least = std::max(least, around + busy);
    const int64_t blocks = degrees.blocks[stage];
    // Gathers and sums of shards take turns, and slow what runs beside them.
    const double exchange = exchanged[stage] * one.exchange;
    auto passes = [&](double sent) {
      return overlapSeconds(work[stage], sent, one.slowdown);
    };
    least = std::max(
        least, waiting + (m - 1) * passes(exchange) +
                   passes(exchange + exchanged[stage] * one.beside) + messages);
    // Sums that nothing runs beside come behind the last pass.
    least = std::max(least, filling + busy + exchanged[stage] * one.sums);
    if (filled)
      filling += one.forward * double(blocks);
    if (filled)
      around += one.forward * double(blocks) +
                (whole ? backward * double(blocks) + againOf(blocks) : 0);
    if (filled)
      waiting += overlapSeconds(one.forward * double(blocks),
                                one.gather * double(blocks), one.slowdown);
    if (filled && whole)
      waiting += overlapSeconds(backward * double(blocks) + againOf(blocks),
                                (one.exchange - one.gather) * double(blocks),
                                one.slowdown);
  }
  if (filled)
    least = std::max(least, pathSeconds(one, degrees));
  // Less is saved of a longer step than that is longer.
  double saved = 0;
  if (one.passes)
    saved = std::max(savedSeconds(one.passes->inFront, least),
                     savedSeconds(one.passes->ahead, least));
  return (least - saved) * 1e3 +
         contextMs({one.contextForward, one.contextBackward}, degrees);
}

int64_t leastAllocated(const ModelShape &shape, const Configuration &degrees,
                       const Execution &execution) {
  const std::vector<ProfileLayer> layers =
      softwareLayers(shape, degrees, execution);
  const ProfileLayer &block = layers[1];
  const int64_t stages = degrees.pipeline, chunks = degrees.chunks;
  const int64_t shards = degrees.shards();
  const int64_t parts = degrees.stateShards();
  // On a rank: parameters, gradients, an f32 copy and two moments.
  auto statesOf = [&](const ProfileLayer &layer) {
    int64_t parameters = layer.parameterBytes / degrees.tensor;
    int64_t gradients = parameters * (execution.halfGradients ? 1 : 2);
    return (parameters + gradients) / shards + parameters * 6 / parts;
  };
  // Kept of a chunk by a forward pass of a micro-batch.
  const int64_t cut = block.intermediateBytes - block.tpReplicatedBytes;
  const int64_t kept =
      block.boundaryBytes + block.tpReplicatedBytes + cut / degrees.tensor;
  auto keptOf = [&](int64_t blocks) {
    int64_t again = degrees.recomputedOf(blocks);
    return degrees.microBatch *
           (again * block.boundaryBytes + (blocks - again) * kept);
  };
  // The first stage has most passes in flight.
  int64_t blocks = 0, fewest = shape.layers;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    // In a V the first stage's second chunk is the last one of the model.
    bool folded = degrees.schedule->name() == "zb-v";
    int64_t count = folded && chunk > 0
                        ? degrees.blocks.back()
                        : degrees.blocks[size_t(chunk * stages)];
    blocks += count;
    fewest = std::min(fewest, count);
  }
  int64_t flight = 1;
  if (degrees.schedule->name() == "1f1b")
    flight = std::min(stages, degrees.microBatches());
  else if (degrees.schedule->name() == "interleaved")
    flight = std::min(degrees.microBatches() * chunks,
                      2 * (stages - 1) + (chunks - 1) * stages + 1);
  else if (degrees.schedule->name() == "gpipe")
    flight = degrees.microBatches();
  else if (degrees.schedule->name() == "zb-v")
    flight = foldedPasses(degrees, 0);
  // A last stage's logits may be counted once; nothing is said of one stage.
  if (stages == 1)
    flight = 1;
  // Parameters that ZeRO-2 keeps gathered, and gradients that wait for the last
  // pass.
  const int64_t whole =
      (layers.front().parameterBytes + blocks * block.parameterBytes) /
      degrees.tensor;
  int64_t beside = 0;
  if (degrees.sharding == Sharding::Gradients)
    beside += whole * (shards - 1) / shards;
  if (!execution.sumsEveryPass && shards > 1 && degrees.microBatches() > 1)
    beside += whole;
  // The last block's backward pass, with all of the chunk kept; on one stage
  // the head's may have more.
  auto duringBackward = [&](const ProfileLayer &layer) {
    int64_t parameters = layer.parameterBytes / degrees.tensor;
    int64_t gathered =
        shards > 1 ? parameters * (execution.halfGradients ? 2 : 3) : 0;
    return gathered + degrees.microBatch * layer.again.bytes;
  };
  int64_t passing = duringBackward(block);
  if (degrees.recomputedOf(fewest) == fewest)
    passing += degrees.microBatch * (kept - block.boundaryBytes);
  int64_t states = statesOf(layers.front()) + blocks * statesOf(block);
  if (stages == 1) {
    const ProfileLayer &head = layers.back();
    const int64_t logits =
        head.tpReplicatedBytes +
        (head.intermediateBytes - head.tpReplicatedBytes) / degrees.tensor;
    passing = std::max(passing,
                       duringBackward(head) +
                           degrees.microBatch * (logits + head.boundaryBytes));
    if (head.borrowedBytes == 0)
      states += statesOf(head);
  }
  // The price takes it off whichever layer's backward pass is the largest.
  if (execution.gathersMatrices && shards > 1)
    passing -= gatheredBeyondAMatrix(shape) / degrees.tensor;
  return states + beside + flight * keptOf(fewest) + passing;
}

} // namespace galvatron
