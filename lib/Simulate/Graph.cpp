//===- Graph.cpp - The operations of a task program -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Graph.h"

#include "llvm/ADT/STLExtras.h"

#include <cassert>
#include <numeric>

using namespace llvm;

namespace galvatron {

std::vector<ChunkLayers> chunkLayers(const SimulationInput &input) {
  std::vector<ChunkLayers> chunks;
  std::vector<size_t> seen(input.roles.size(), 0);
  for (const ProgramChunk &chunk : input.program.chunks) {
    auto number = static_cast<size_t>(chunk.role);
    const SimulatedRole &role = input.roles[number];
    size_t position = seen[number]++;
    if (role.chunkEnds.empty())
      chunks.push_back({number, 0, role.layers.size()});
    else
      chunks.push_back({number,
                        position == 0 ? 0 : role.chunkEnds[position - 1],
                        role.chunkEnds[position]});
  }
  return chunks;
}

static std::vector<double> slowdownsOf(const SimulationInput &input,
                                       bool expandRanks) {
  std::vector<double> slowdowns;
  for (const SimulatedRole &role : input.roles) {
    double slowdown = 1;
    for (const SimulatedLayer &layer : role.layers)
      slowdown = std::max(slowdown, layer.time.slowdown);
    slowdowns.insert(slowdowns.end(), expandRanks ? role.devices.size() : 1,
                     slowdown);
  }
  return slowdowns;
}

static std::vector<char> oneQueues(const SimulationInput &input,
                                   bool expandRanks) {
  std::vector<char> oneQueue;
  for (const SimulatedRole &role : input.roles)
    oneQueue.insert(oneQueue.end(), expandRanks ? role.devices.size() : 1,
                    role.oneQueue);
  return oneQueue;
}

Graph::Graph(const SimulationInput &input, const SimulationOptions &options,
             bool records)
    : engine(slowdownsOf(input, options.expandRanks),
             oneQueues(input, options.expandRanks)),
      input(input), options(options), chunks(chunkLayers(input)),
      records(records) {
  int32_t actors = 0;
  for (const SimulatedRole &simulated : input.roles) {
    RoleGraph graph;
    graph.firstActor = actors;
    graph.actors = options.expandRanks
                       ? static_cast<int32_t>(simulated.devices.size())
                       : 1;
    actors += graph.actors;
    roles.push_back(std::move(graph));
  }
  for (size_t number = 0; number < input.roles.size(); ++number)
    buildRole(number);
}

void Graph::buildRole(size_t number) {
  role = number;
  tail.clear();
  collective = lastSum = lastOut = -1;
  events.clear();
  doneAtHome.clear();
  reduced.clear();
  taskNumber = 0;
  batch = 0;
  occurrences.clear();
  groupings.clear();
  wholeRole.groupOf.assign(roles[role].actors, 0);
  const RoleProgram &program = input.program.roles[role];
  for (SchedulePart part : trainingParts(input.program, options.batches)) {
    for (const Task &task : program.part(part)) {
      microBatch = -1;
      waitForEvents(task);
      switch (task.kind) {
      case TaskKind::Forward:
        forward(task);
        break;
      case TaskKind::Backward:
      case TaskKind::BackwardInput:
        backward(task);
        break;
      case TaskKind::BackwardWeight:
        backwardWeight(task);
        break;
      case TaskKind::Transfer:
        transfer(task);
        break;
      case TaskKind::SyncGradients:
        syncGradients(task);
        break;
      case TaskKind::TieReduce:
      case TaskKind::TieBroadcast:
        tie(task, part);
        break;
      case TaskKind::Norm:
        norm();
        break;
      case TaskKind::Update:
        touchStates(Activity::Update, &LayerTimeParts::update,
                    chunks[task.chunk].begin, chunks[task.chunk].end);
        break;
      case TaskKind::Swap:
        swap(task);
        break;
      }
      recordEvent(task);
      ++taskNumber;
    }
    batch += part == SchedulePart::StepEnd;
  }
}

OperationId Graph::emit(Stream stream, Activity activity, double seconds,
                        int32_t layer, ArrayRef<OperationId> after,
                        ArrayRef<int32_t> uplinks, const Grouping *grouping,
                        int32_t join, int32_t flow) {
  RoleGraph &graph = roles[role];
  Operation operation;
  operation.stream = stream;
  operation.work = seconds;
  operation.uplinkSet = -1;
  if (options.shareUplinks && !uplinks.empty()) {
    auto [it, isNew] = uplinkSets.try_emplace(uplinks.data(), -1);
    if (isNew)
      it->second = engine.addUplinks(uplinks);
    operation.uplinkSet = it->second;
  }
  operation.flow = flow >= 0 ? flow : flows++;
  if (grouping && join < 0 && options.expandRanks)
    join = engine.addJoins(grouping->groups);
  auto first = static_cast<OperationId>(engine.size());
  Ids mine(after.begin(), after.end());
  for (int32_t actor = 0; actor < graph.actors; ++actor) {
    operation.actor = graph.firstActor + actor;
    operation.join = join < 0 ? -1 : join + grouping->groupOf[actor];
    engine.add(operation, mine);
    for (OperationId &id : mine)
      ++id;
  }
  if (records)
    graph.operations.push_back(
        {first, activity, layer, microBatch, taskNumber});
  if (stream == Stream::Collective)
    collective = first;
  return first;
}

const Graph::Grouping *Graph::groupingOf(int32_t layer, ParadigmSet among) {
  if (!options.expandRanks)
    return &wholeRole;
  auto [it, isNew] = groupings.try_emplace({layer, among});
  Grouping &grouping = it->second;
  if (!isNew)
    return &grouping;
  const Strategy &strategy = input.roles[role].layers[layer].strategy;
  std::map<int64_t, int32_t> numbers;
  for (int32_t rank = 0; rank < roles[role].actors; ++rank)
    grouping.groupOf.push_back(
        numbers.try_emplace(strategy.group(rank, among).front(), numbers.size())
            .first->second);
  grouping.groups = static_cast<int32_t>(numbers.size());
  return &grouping;
}

Graph::Rendezvous &Graph::rendezvous(int kind, int64_t place,
                                     int64_t occurrence, int32_t groups) {
  std::vector<Rendezvous> &known = allRendezvous[{kind, place}];
  auto number = static_cast<size_t>(occurrence);
  assert(number <= known.size() && "each end counts on from 0");
  if (number == known.size())
    known.push_back({engine.addJoins(groups), flows++});
  return known[number];
}

//===----------------------------------------------------------------------===//
// Layers
//===----------------------------------------------------------------------===//

OperationId Graph::gather(size_t number, ArrayRef<OperationId> after) {
  const SimulatedLayer &layer = input.roles[role].layers[number];
  auto l = static_cast<int32_t>(number);
  return layer.time.gather == 0
             ? -1
             : emit(Stream::Collective, Activity::Gather, layer.time.gather, l,
                    after, layer.sdpUplinks,
                    groupingOf(l, layer.strategy.parameterSharding()));
}

OperationId Graph::reduce(Activity activity, double seconds, size_t number,
                          ArrayRef<OperationId> after) {
  if (seconds == 0)
    return -1;
  const SimulatedLayer &layer = input.roles[role].layers[number];
  auto l = static_cast<int32_t>(number);
  bool once = activity == Activity::GradientSync;
  OperationId reduced =
      emit(Stream::Collective, activity, seconds, l, after,
           once ? layer.dpUplinks : layer.sdpUplinks,
           once ? groupingOf(l, layer.strategy.gradientSumLevels())
                : groupingOf(l, layer.strategy.parameterSharding()));
  if (once)
    lastSum = reduced;
  return reduced;
}

void Graph::waitForEvents(const Task &task) {
  if (!input.program.swapsOnStreams || task.kind == TaskKind::Swap)
    return;
  for (uint8_t event : task.waits)
    if (event > 0)
      append_range(tail, events[event]);
  // The host waits for all that is on its way home, and nothing is put on
  // streams meanwhile.
  if (endsStep(task.kind) && lastOut >= 0)
    tail.push_back(lastOut);
}

void Graph::recordEvent(const Task &task) {
  if (!input.program.swapsOnStreams || task.kind == TaskKind::Swap)
    return;
  if (task.records > 0)
    events[task.records] = tail;
  if (endsStep(task.kind))
    doneAtHome = tail;
}

void Graph::swap(const Task &task) {
  const ChunkLayers &chunk = chunks[task.chunk];
  double seconds =
      swapSeconds(task, ArrayRef(input.roles[role].layers)
                            .slice(chunk.begin, chunk.end - chunk.begin));
  if (!input.program.swapsOnStreams) {
    if (seconds > 0)
      tail = {emit(Stream::Exchange, Activity::Swap, seconds, -1, tail)};
    return;
  }
  Ids after = doneAtHome;
  for (uint8_t event : task.waits)
    if (event > 0)
      append_range(after, events[event]);
  OperationId copy = emit(task.out ? Stream::CopyOut : Stream::CopyIn,
                          Activity::Swap, seconds, -1, after);
  if (task.out)
    lastOut = copy;
  if (task.records > 0)
    events[task.records] = {copy};
}

void Graph::forward(const Task &task) {
  microBatch = static_cast<int32_t>(task.microBatch);
  const std::vector<SimulatedLayer> &layers = input.roles[role].layers;
  const ChunkLayers &chunk = chunks[task.chunk];
  Activity activity = input.program.recomputes(task.chunk) ? Activity::Recompute
                                                           : Activity::Forward;
  OperationId gathered = -1;
  for (size_t number = chunk.begin; number < chunk.end; ++number) {
    const SimulatedLayer &layer = layers[number];
    auto l = static_cast<int32_t>(number);
    if (number == chunk.begin || !layer.forwardAhead)
      gathered = gather(number, tail);
    Ids start = tail;
    if (gathered >= 0)
      start.push_back(gathered);
    OperationId compute =
        emit(Stream::Compute, activity, layer.time.forward, l, start);
    // A gather runs beside this layer, into what the layer before it used.
    if (number + 1 < chunk.end && layers[number + 1].forwardAhead)
      gathered = gather(number + 1, start);
    tail = {compute};
    if (layer.time.tpForward > 0)
      tail = {emit(Stream::Exchange, Activity::ExchangeForward,
                   layer.time.tpForward, l, tail, layer.tpUplinks,
                   groupingOf(l, layer.strategy.insideFunctions()))};
    if (records)
      roles[role].runs.push_back(
          {true, l, {compute}, {tail.begin(), tail.end()}});
    if (layer.reshardForward.seconds > 0)
      tail = {emit(Stream::Exchange, Activity::Reshard,
                   layer.reshardForward.seconds, l, tail,
                   layer.reshardForward.uplinks, &wholeRole)};
  }
}

void Graph::backward(const Task &task) {
  microBatch = static_cast<int32_t>(task.microBatch);
  const std::vector<SimulatedLayer> &layers = input.roles[role].layers;
  const ChunkLayers &chunk = chunks[task.chunk];
  if (task.flags & SyncBehind)
    reduced.insert(task.chunk);
  OperationId gathered = -1;
  for (size_t number = chunk.end; number-- > chunk.begin;) {
    const SimulatedLayer &layer = layers[number];
    const LayerTimeParts &time = layer.time;
    auto l = static_cast<int32_t>(number);
    if (number + 1 == chunk.end || !layer.backwardAhead)
      gathered = gather(number, tail);
    if (layer.backwardAwaitsSums)
      awaitSums();
    Ids start = tail;
    if (gathered >= 0)
      start.push_back(gathered);
    const Ids before = start;
    // A layer that cannot be split has its weight part here too.
    bool splits = task.kind == TaskKind::BackwardInput && time.split;
    LayerPass run{false, l, {}, {}};
    OperationId compute = -1;
    if (time.recompute > 0) {
      compute =
          emit(Stream::Compute, Activity::Recompute, time.recompute, l, start);
      run.begin = {compute};
      start = {compute};
    }
    double computed = std::max(0.0, time.backward - (splits ? time.weight : 0));
    compute = emit(Stream::Compute, Activity::Backward, computed, l, start);
    if (run.begin.empty())
      run.begin = {compute};
    if (number > chunk.begin && layers[number - 1].backwardAhead)
      gathered = gather(number - 1, before);

    // Gradients of a function are scattered while the rest of it computes; at
    // its end it waits for that.
    tail = {compute};
    if (OperationId scattered = reduce(
            Activity::ReduceScatter, splits ? 0 : time.scatter, number, before);
        scattered >= 0)
      tail.push_back(scattered);
    double exchanged =
        time.tpRecompute + time.tpBackward - (splits ? time.tpWeight : 0);
    if (exchanged > 0)
      tail = {emit(Stream::Exchange, Activity::ExchangeBackward, exchanged, l,
                   tail, layer.tpUplinks,
                   groupingOf(l, layer.strategy.insideFunctions()))};
    run.frees = task.kind == TaskKind::Backward;
    run.end.assign(tail.begin(), tail.end());
    if (records)
      roles[role].runs.push_back(std::move(run));
    if (layer.reshardBackward.seconds > 0) {
      if (layer.reshardAwaitsSums)
        awaitSums();
      tail = {emit(Stream::Exchange, Activity::Reshard,
                   layer.reshardBackward.seconds, l, tail,
                   layer.reshardBackward.uplinks, &wholeRole)};
    }
    if (task.flags & SyncBehind)
      reduce(Activity::GradientSync, time.sync, number, tail);
  }
}

void Graph::backwardWeight(const Task &task) {
  microBatch = static_cast<int32_t>(task.microBatch);
  const std::vector<SimulatedLayer> &layers = input.roles[role].layers;
  const ChunkLayers &chunk = chunks[task.chunk];
  if (task.flags & SyncBehind)
    reduced.insert(task.chunk);
  for (size_t number = chunk.end; number-- > chunk.begin;) {
    const SimulatedLayer &layer = layers[number];
    const LayerTimeParts &time = layer.time;
    auto l = static_cast<int32_t>(number);
    if (layers[number].backwardAwaitsSums)
      awaitSums();
    const Ids before = tail;
    // A layer without a weight part has a task of no time here, at whose end
    // its activations are freed.
    OperationId compute = emit(Stream::Compute, Activity::BackwardWeight,
                               time.split ? time.weight : 0, l, tail);
    tail = {compute};
    if (OperationId scattered =
            reduce(Activity::ReduceScatter, time.split ? time.scatter : 0,
                   number, before);
        scattered >= 0)
      tail.push_back(scattered);
    if (time.split && time.tpWeight > 0)
      tail = {emit(Stream::Exchange, Activity::ExchangeBackward, time.tpWeight,
                   l, tail, layer.tpUplinks,
                   groupingOf(l, layer.strategy.insideFunctions()))};
    LayerPass run{false, l, {compute}, {tail.begin(), tail.end()}};
    run.frees = true;
    if (records)
      roles[role].runs.push_back(std::move(run));
    if (task.flags & SyncBehind)
      reduce(Activity::GradientSync, time.sync, number, tail);
  }
}

/// Makes what comes run behind the sums of gradients begun so far.
void Graph::awaitSums() {
  if (lastSum >= 0)
    tail.push_back(lastSum);
}

/// Sums gradients over DP ranks, or waits for what the last backward began.
void Graph::syncGradients(const Task &task) {
  const std::vector<SimulatedLayer> &layers = input.roles[role].layers;
  const ChunkLayers &chunk = chunks[task.chunk];
  bool summed = reduced.erase(task.chunk) > 0;
  for (size_t number = chunk.end; !summed && number-- > chunk.begin;)
    reduce(Activity::GradientSync, layers[number].time.sync, number, tail);
  if (collective >= 0)
    tail.push_back(collective);
}

//===----------------------------------------------------------------------===//
// Between roles
//===----------------------------------------------------------------------===//

namespace {
/// Kinds of rendezvous.
enum {
  ActivationRendezvous,
  GradientRendezvous,
  StashRendezvous,
  NormRendezvous,
  TieRendezvous,
  TiedValues
};
} // namespace

void Graph::message(const TransferPart &part, Ids &ends) {
  bool gradient = part.isGradient(), stash = part.value == TransferValue::Stash;
  // A stash is known by the pack that recomputes from it.
  int64_t cut = stash && part.sends() ? part.peerChunk
                : stash               ? part.chunk
                                      : std::min(part.chunk, part.peerChunk);
  const SimulatedCut &costs = stash ? input.stashes[cut] : input.cuts[cut];
  const SimulatedExchange &exchange =
      gradient ? costs.gradient : costs.activation;
  int kind = stash      ? StashRendezvous
             : gradient ? GradientRendezvous
                        : ActivationRendezvous;
  // A role may have both ends.
  int64_t occurrence = occurrences[{kind, 2 * cut + part.sends()}]++;
  Rendezvous met =
      rendezvous(kind, cut, occurrence, options.expandRanks ? costs.groups : 1);
  Grouping ofRanks;
  if (options.expandRanks)
    ofRanks.groupOf =
        part.sends() != gradient ? costs.senderGroup : costs.receiverGroup;
  const Grouping &grouping = options.expandRanks ? ofRanks : wholeRole;
  Activity activity = Activity::SendActivation;
  switch (part.value) {
  case TransferValue::Activation:
    activity =
        part.sends() ? Activity::SendActivation : Activity::ReceiveActivation;
    break;
  case TransferValue::Gradient:
    activity =
        part.sends() ? Activity::SendGradient : Activity::ReceiveGradient;
    break;
  case TransferValue::Stash:
    activity = part.sends() ? Activity::SendStash : Activity::ReceiveStash;
    break;
  }
  microBatch = static_cast<int32_t>(part.microBatch);
  ends.push_back(emit(part.sends() ? Stream::Send : Stream::Receive, activity,
                      exchange.seconds, -1, tail, exchange.uplinks, &grouping,
                      met.join, met.flow));
}

void Graph::transfer(const Task &task) {
  // The buffers of a stage's boundary are used again by what follows: the rank
  // waits for all parts, as the runtime does.
  Ids ends;
  for (const TransferPart &part : task.parts) {
    message(part, ends);
    if (!part.sends() && part.value == TransferValue::Activation)
      roles[role].arrivals.push_back(
          {ends.back(), static_cast<int32_t>(chunks[part.chunk].begin)});
  }
  tail = ends;
}

void Graph::tie(const Task &task, SchedulePart part) {
  bool reduce = task.kind == TaskKind::TieReduce;
  bool takesLater = part != SchedulePart::StepEnd;
  auto self = static_cast<int64_t>(role);
  for (auto [number, roles] : enumerate(input.program.ties)) {
    bool owns = roles.owner == self;
    if (!owns && roles.borrower != self)
      continue;
    // A pack that runs forward only has no gradient to give.
    if (reduce && roles.forwardOnly)
      continue;
    bool meets = !input.program.goesOn() || input.tiesMeet ||
                 roles.owner == roles.borrower;
    if (takesLater && (meets || owns))
      continue;
    // Values of an update are taken in the batch behind, of the last one never.
    if (!meets && !reduce && owns == takesLater)
      continue;
    if (!meets && !reduce && (owns ? batch + 1 == options.batches : batch == 0))
      continue;
    const SimulatedExchange &exchange =
        reduce ? input.ties[number].reduce : input.ties[number].broadcast;
    auto place = static_cast<int64_t>(number);
    int kind = meets || reduce ? TieRendezvous : TiedValues;
    Rendezvous met = rendezvous(kind, place, occurrences[{kind, place}]++, 1);
    Activity activity = reduce ? Activity::TieReduce : Activity::TieBroadcast;
    if (!meets && owns != reduce) {
      // The value is left for the other end, which takes it later.
      emit(Stream::Posted, activity, 0, -1, tail, {}, &wholeRole, met.join,
           met.flow);
      continue;
    }
    tail = {emit(Stream::Exchange, activity, exchange.seconds, -1, tail,
                 exchange.uplinks, &wholeRole, met.join, met.flow)};
  }
}

/// Layers of the role, one after the other, on each of its ranks.
void Graph::touchStates(Activity activity, double LayerTimeParts::*part,
                        size_t begin, size_t end) {
  double seconds = 0;
  for (size_t number = begin; number < end; ++number)
    seconds += input.roles[role].layers[number].time.*part;
  if (seconds > 0)
    tail = {emit(Stream::Compute, activity, seconds, -1, tail)};
}

void Graph::norm() {
  touchStates(Activity::Norm, &LayerTimeParts::norm, 0,
              input.roles[role].layers.size());
  // The norm of the batch before is there already.
  if (input.program.goesOn())
    return;
  Rendezvous met =
      rendezvous(NormRendezvous, 0, occurrences[{NormRendezvous, 0}]++, 1);
  tail = {emit(Stream::Exchange, Activity::Norm, 0, -1, tail, {}, &wholeRole,
               met.join, met.flow)};
}

} // namespace galvatron
