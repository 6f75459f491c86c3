//===- Simulate.cpp - A plan's step, operation by operation ---------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Simulate/Simulate.h"
#include "Graph.h"
#include "galvatron/Schedule/Schedule.h"
#include "galvatron/Schedule/SwapOrder.h"

#include "galvatron/Schedule/Verify.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/Format.h"

#include <algorithm>
#include <set>
#include <tuple>

using namespace llvm;

namespace galvatron {

StringRef activityName(Activity activity) {
  switch (activity) {
  case Activity::Forward:
    return "forward";
  case Activity::Recompute:
    return "recompute";
  case Activity::Backward:
    return "backward";
  case Activity::BackwardWeight:
    return "backward weight";
  case Activity::Gather:
    return "gather";
  case Activity::ReduceScatter:
    return "reduce-scatter";
  case Activity::GradientSync:
    return "gradient sync";
  case Activity::ExchangeForward:
  case Activity::ExchangeBackward:
    return "tp all-reduce";
  case Activity::Reshard:
    return "reshard";
  case Activity::SendActivation:
    return "send activation";
  case Activity::ReceiveActivation:
    return "receive activation";
  case Activity::SendGradient:
    return "send gradient";
  case Activity::ReceiveGradient:
    return "receive gradient";
  case Activity::SendStash:
    return "send stash";
  case Activity::ReceiveStash:
    return "receive stash";
  case Activity::TieReduce:
    return "tie reduce";
  case Activity::TieBroadcast:
    return "tie broadcast";
  case Activity::Norm:
    return "norm";
  case Activity::Swap:
    return "swap";
  case Activity::Update:
    return "update";
  }
  llvm_unreachable("all activities are handled");
}

double swapSeconds(const Task &task, ArrayRef<SimulatedLayer> layers) {
  double seconds = 0;
  for (const SimulatedLayer &layer : layers) {
    if (task.classes & SwapParameters)
      seconds += layer.time.swapParameters;
    if (task.classes & SwapGradients)
      seconds += layer.time.swapGradients;
    if (task.classes & SwapOptimizer)
      seconds += layer.time.swapOptimizer;
    if (task.classes & SwapActivations)
      seconds += layer.time.swapKept;
  }
  return seconds;
}

/// Splits the iteration by what runs: computation, else communication, else
/// nothing.
static void splitTime(SimulatedActor &actor, double iteration) {
  struct Edge {
    double time;
    int computation, communication;
  };
  std::vector<Edge> edges;
  for (const SimulatedSpan &span : actor.spans) {
    if (span.finish <= span.start)
      continue;
    int computation = span.stream == Stream::Compute ? 1 : 0;
    edges.push_back({span.start, computation, 1 - computation});
    edges.push_back({span.finish, -computation, computation - 1});
  }
  llvm::stable_sort(
      edges, [](const Edge &a, const Edge &b) { return a.time < b.time; });
  int computation = 0, communication = 0;
  double last = 0;
  for (const Edge &edge : edges) {
    double length = edge.time - last;
    if (computation > 0)
      actor.compute += length;
    if (computation > 0 && communication > 0)
      actor.overlapped += length;
    if (computation == 0 && communication > 0)
      actor.exposed += length;
    last = edge.time;
    computation += edge.computation;
    communication += edge.communication;
  }
  actor.bubble = std::max(0.0, iteration - actor.compute - actor.exposed);
}

/// Follows what is kept and what is temporary through the layers' runs.
static void followMemory(SimulatedActor &actor, const SimulatedRole &role,
                         const RoleGraph &graph, int32_t offset,
                         const Timeline &timeline, bool slotsAtHome) {
  // Copies to the host are not followed there: a device has one slot.
  if (slotsAtHome) {
    actor.peakActivations = role.ledger.activations;
    actor.peakTemporaries = role.ledger.backward;
    actor.peakBytes = role.ledger.total();
    return;
  }
  struct Change {
    double time;
    OperationId order; ///< of changes at one time
    bool begins;
    int64_t activations, temporaries;
  };
  std::vector<Change> changes;
  std::set<int32_t> received; // layers whose inputs come from other roles
  for (const Arrival &arrival : graph.arrivals) {
    received.insert(arrival.layer);
    changes.push_back({timeline.start[arrival.operation + offset],
                       arrival.operation, true,
                       role.layers[arrival.layer].inputBytes, 0});
  }
  for (const LayerPass &run : graph.runs) {
    const SimulatedLayer &layer = role.layers[run.layer];
    double begin = timeline.start[run.begin.front() + offset], end = begin;
    for (OperationId id : run.end)
      end = std::max(end, timeline.finish[id + offset]);
    int64_t kept = layer.inputBytes + layer.stashBytes;
    int64_t transient =
        run.forward ? layer.forwardTransient : layer.backwardTransient;
    int64_t filled = received.count(run.layer) ? layer.stashBytes : kept;
    changes.push_back(
        {begin, run.begin.front(), true, run.forward ? filled : 0, transient});
    changes.push_back(
        {end, run.end.back(), false, run.frees ? -kept : 0, -transient});
  }
  // Runs that end make room for those that begin at the same time, in program
  // order.
  llvm::stable_sort(changes, [](const Change &a, const Change &b) {
    return std::make_tuple(a.time, a.order, !a.begins) <
           std::make_tuple(b.time, b.order, !b.begins);
  });
  MemoryPoint at;
  for (const Change &change : changes) {
    at.activations += change.activations;
    at.temporaries += change.temporaries;
    actor.peakActivations = std::max(actor.peakActivations, at.activations);
    actor.peakTemporaries = std::max(actor.peakTemporaries, at.temporaries);
    actor.peakBytes =
        std::max(actor.peakBytes, at.activations + at.temporaries);
    if (!actor.memory.empty() && actor.memory.back().time == change.time)
      actor.memory.pop_back();
    at.time = change.time;
    actor.memory.push_back(at);
  }
  actor.peakBytes +=
      role.ledger.total() - role.ledger.activations - role.ledger.backward;
}

Expected<Simulation> simulate(const SimulationInput &input,
                              const SimulationOptions &options) {
  assert(!input.outlineOf && "an outline has not all tasks");
  if (input.program.roles.size() != input.roles.size() ||
      input.cuts.size() + 1 != input.program.chunks.size() ||
      input.program.ties.size() != input.ties.size())
    return makeError("simulation: " + Twine(input.program.roles.size()) +
                     " roles with " + Twine(input.roles.size()) + " costs, " +
                     Twine(input.cuts.size()) + " cuts and " +
                     Twine(input.ties.size()) + " ties for " +
                     Twine(input.program.ties.size()));
  std::vector<ScheduleFault> faults = verifySchedule(input.program);
  if (!faults.empty())
    return makeError("simulation: the schedule is not sound: " +
                     faults.front().message);
  Graph graph(input, options);
  Timeline timeline = graph.engine.run();
  if (timeline.stuck >= 0) {
    const Operation &operation = graph.engine.operation(timeline.stuck);
    return makeError("simulation: actor " + Twine(operation.actor) +
                     " is stuck on stream '" + streamName(operation.stream) +
                     "'");
  }

  Simulation simulation;
  simulation.seconds = timeline.end;
  simulation.predictedSeconds = input.predictedSeconds;
  simulation.operations = graph.engine.size();
  simulation.events = timeline.events;
  for (auto [number, role] : enumerate(graph.roles))
    for (int32_t rank = 0; rank < role.actors; ++rank) {
      SimulatedActor actor;
      actor.role = static_cast<int64_t>(number);
      actor.localRank = options.expandRanks ? rank : -1;
      actor.spans.reserve(role.operations.size());
      for (const RoleOperation &operation : role.operations) {
        OperationId id = operation.first + rank;
        if (graph.engine.operation(id).stream == Stream::Posted)
          continue;
        actor.spans.push_back({timeline.start[id], timeline.finish[id],
                               graph.engine.operation(id).stream,
                               operation.activity, operation.layer,
                               operation.microBatch, operation.task});
      }
      splitTime(actor, timeline.end);
      followMemory(actor, input.roles[number], role, rank, timeline,
                   input.program.slotsAtHome);
      simulation.actors.push_back(std::move(actor));
    }
  return simulation;
}

/// The first one that runs a single chunk, with backward passes in as many
/// parts as `schedule` has.
static const Schedule &forOneChunk(const Schedule &schedule) {
  for (const auto &other : ScheduleRegistry::get().all()) {
    Error refused = other->check({});
    bool isRefused = bool(refused);
    consumeError(std::move(refused));
    if (!isRefused && other->splitsBackward() == schedule.splitsBackward())
      return *other;
  }
  llvm_unreachable("a whole stage can be run in either way");
}

/// True if two layers take the same time in all they do.
static bool isAsLong(const SimulatedLayer &a, const SimulatedLayer &b) {
  auto parts = [](const SimulatedLayer &layer) {
    return std::tie(layer.strategy, layer.time, layer.dpUplinks,
                    layer.sdpUplinks, layer.tpUplinks, layer.reshardForward,
                    layer.reshardBackward, layer.forwardAhead,
                    layer.backwardAhead, layer.backwardAwaitsSums,
                    layer.reshardAwaitsSums);
  };
  return parts(a) == parts(b);
}

/// True if gradients of a chunk are summed behind its last backward pass.
static bool sumsBehind(const SimulationInput &input, size_t number,
                       const ChunkLayers &chunk) {
  return any_of(input.program.roles[chunk.role].part(SchedulePart::Steady),
                [number](const Task &task) {
                  return task.endsGradients() && task.chunk == number &&
                         (task.flags & SyncBehind);
                });
}

/// A chunk by itself: how long its tasks take when nothing holds them up.
static Expected<SimulatedLayer> asOneLayer(const SimulationInput &input,
                                           const ChunkLayers &chunk,
                                           bool sumsBehind) {
  const SimulatedRole &role = input.roles[chunk.role];
  SimulationInput alone;
  const Schedule &schedule = forOneChunk(*input.program.schedule);
  bool splits = schedule.splitsBackward();
  alone.program = schedule.build({});
  alone.roles = {role};
  alone.roles.front().chunkEnds.clear();
  alone.roles.front().layers.assign(role.layers.begin() + chunk.begin,
                                    role.layers.begin() + chunk.end);
  auto run = [&]() -> Expected<std::vector<SimulatedTask>> {
    Expected<Simulation> simulation = simulate(alone);
    if (!simulation)
      return simulation.takeError();
    return simulatedTasks(alone, simulation->actors.front(),
                          /*withCollectives=*/true);
  };
  auto lengthOf = [](ArrayRef<SimulatedTask> tasks, TaskKind kind) {
    for (const SimulatedTask &task : tasks)
      if (task.task.kind == kind)
        return std::max(0.0, task.finish - task.start);
    return 0.0;
  };
  Expected<std::vector<SimulatedTask>> plain = run();
  if (!plain)
    return plain.takeError();
  SimulatedLayer layer;
  layer.time.forward = lengthOf(*plain, TaskKind::Forward);
  layer.time.backward = lengthOf(*plain, TaskKind::Backward);
  if (splits) {
    layer.time.split = true;
    layer.time.weight = lengthOf(*plain, TaskKind::BackwardWeight);
    layer.time.backward =
        lengthOf(*plain, TaskKind::BackwardInput) + layer.time.weight;
  }
  layer.time.sync = lengthOf(*plain, TaskKind::SyncGradients);
  layer.time.norm = lengthOf(*plain, TaskKind::Norm);
  layer.time.update = lengthOf(*plain, TaskKind::Update);
  for (const SimulatedLayer &each : alone.roles.front().layers) {
    layer.time.swapParameters += each.time.swapParameters;
    layer.time.swapGradients += each.time.swapGradients;
    layer.time.swapOptimizer += each.time.swapOptimizer;
    layer.time.swapKept += each.time.swapKept;
  }
  if (sumsBehind) {
    setSyncBehind(alone.program.roles.front());
    Expected<std::vector<SimulatedTask>> behind = run();
    if (!behind)
      return behind.takeError();
    // The time that the sums add to the last backward pass, slowdown included.
    layer.time.sync = std::max(
        0.0,
        splits ? lengthOf(*behind, TaskKind::BackwardWeight) - layer.time.weight
               : lengthOf(*behind, TaskKind::Backward) - layer.time.backward);
  }
  return layer;
}

/// Seconds between batches that overlap: from the end of one to that of the
/// next, on the role where that takes longest, once the pipeline is full.
static Expected<double> secondsBetweenSteps(const SimulationInput &input) {
  constexpr int64_t full = 3, measured = 2;
  SimulationOptions options;
  options.batches = full + measured + 1; // the last one drains
  Expected<Simulation> simulation = simulate(input, options);
  if (!simulation)
    return simulation.takeError();
  double longest = 0;
  for (const SimulatedActor &actor : simulation->actors) {
    double begin = 0, end = 0;
    size_t tasks = 0;
    int64_t batch = 0;
    std::vector<size_t> behind; // tasks up to the end of each batch
    for (SchedulePart part : trainingParts(input.program, options.batches)) {
      tasks += input.program.roles[actor.role].part(part).size();
      if (part == SchedulePart::StepEnd && ++batch <= full + measured)
        behind.push_back(tasks);
    }
    for (const SimulatedSpan &span : actor.spans) {
      auto task = static_cast<size_t>(span.task);
      if (task < behind[full - 1])
        begin = std::max(begin, span.finish);
      if (task < behind.back())
        end = std::max(end, span.finish);
    }
    longest = std::max(longest, (end - begin) / measured);
  }
  return longest;
}

/// Returns simulate().seconds and nothing else, of a program that its schedule
/// made: it is proven before it runs, and one that is stuck is seen here.
static Expected<double> secondsAlone(const SimulationInput &input) {
  Graph graph(input, {}, /*records=*/false);
  Timeline timeline = graph.engine.run();
  if (timeline.stuck >= 0)
    return makeError("simulation: actor " +
                     Twine(graph.engine.operation(timeline.stuck).actor) +
                     " is stuck");
  return timeline.end;
}

/// Operations of a layer are gathers, both directions, recomputation, scatter,
/// TP, reshards.
static size_t operationsOf(size_t layers, size_t chunks, int64_t microBatches) {
  constexpr size_t ofLayer = 8, ofCut = 4;
  return (ofLayer * layers + ofCut * chunks) *
         static_cast<size_t>(microBatches);
}

size_t stepOperations(const SimulationInput &input) {
  size_t layers = 0;
  for (const SimulatedRole &role : input.roles)
    layers += role.layers.size();
  return operationsOf(layers, input.program.chunks.size(),
                      input.microBatches());
}

size_t stepOperations(const Plan &plan) {
  return operationsOf(plan.layers.size(), plan.chunks().size(),
                      plan.microBatches);
}

/// The program of an input with so many micro-batches in place of its own.
static Expected<TaskProgram> rebuilt(const SimulationInput &input,
                                     int64_t microBatches) {
  TaskProgram program = input.program.schedule->build(
      ScheduleShape::of(input.program, microBatches), input.program.ties);
  if (input.program.swapsOnStreams)
    if (Error error = assignSwapStreams(program))
      return std::move(error);
  return program;
}

/// An input with the tasks of all its micro-batches.
static Expected<SimulationInput> wholeOf(const SimulationInput &input) {
  SimulationInput whole = input;
  if (!input.outlineOf)
    return whole;
  whole.outlineOf = 0;
  Expected<TaskProgram> program = rebuilt(input, input.microBatches());
  if (!program)
    return program.takeError();
  whole.program = std::move(*program);
  for (auto [all, outlined] :
       zip_equal(whole.program.roles, input.program.roles))
    if (syncsBehind(outlined))
      setSyncBehind(all);
  return whole;
}

bool mayEndAlone(const SimulationInput &input, const Plan &plan) {
  return !plan.training.clip && !input.program.goesOn() && !input.tiesMeet &&
         plan.stages.size() > 1;
}

Expected<double> secondsWithoutNorm(const SimulationInput &input) {
  Expected<SimulationInput> alone = wholeOf(input);
  if (!alone)
    return alone.takeError();
  for (RoleProgram &role : alone->program.roles)
    erase_if(role.part(SchedulePart::StepEnd),
             [](const Task &task) { return task.kind == TaskKind::Norm; });
  return secondsBetweenSteps(*alone);
}

Expected<double> simulatedSeconds(const SimulationInput &input,
                                  size_t mostOperations) {
  auto seconds = [](const SimulationInput &what) -> Expected<double> {
    if (what.program.goesOn())
      return secondsBetweenSteps(what);
    return secondsAlone(what);
  };
  auto roles = static_cast<int64_t>(input.roles.size());
  int64_t chunks = static_cast<int64_t>(input.program.chunks.size()) / roles;
  int64_t count = input.microBatches();
  if (stepOperations(input) <= mostOperations) {
    if (!input.outlineOf)
      return seconds(input);
    Expected<SimulationInput> whole = wholeOf(input);
    return whole ? seconds(*whole) : whole.takeError();
  }

  SimulationInput coarse = input;
  coarse.outlineOf = 0;
  for (SimulatedRole &role : coarse.roles) {
    role.layers.clear();
    role.chunkEnds.clear();
  }
  // Most chunks are alike, and looked at once.
  struct Known {
    ArrayRef<SimulatedLayer> layers;
    size_t role;
    bool sumsBehind;
    SimulatedLayer layer;
  };
  std::vector<Known> known;
  for (auto [number, chunk] : enumerate(chunkLayers(input))) {
    const SimulatedRole &own = input.roles[chunk.role];
    ArrayRef<SimulatedLayer> layers =
        ArrayRef(own.layers).slice(chunk.begin, chunk.end - chunk.begin);
    bool behind = sumsBehind(input, number, chunk);
    auto alike = llvm::find_if(known, [&](const Known &other) {
      return other.sumsBehind == behind &&
             input.roles[other.role].devices.size() == own.devices.size() &&
             llvm::equal(other.layers, layers, isAsLong);
    });
    if (alike == known.end()) {
      Expected<SimulatedLayer> layer = asOneLayer(input, chunk, behind);
      if (!layer)
        return layer.takeError();
      known.push_back({layers, chunk.role, behind, std::move(*layer)});
      alike = std::prev(known.end());
    }
    SimulatedRole &role = coarse.roles[chunk.role];
    role.layers.push_back(alike->layer);
    role.chunkEnds.push_back(role.layers.size());
  }
  auto withMicroBatches = [&](int64_t microBatches) -> Expected<double> {
    Expected<TaskProgram> program = rebuilt(input, microBatches);
    if (!program)
      return program.takeError();
    coarse.program = std::move(*program);
    return seconds(coarse);
  };
  // The pipeline is full and empties again well within these.
  // Chunks take micro-batches in groups of as many as there are roles.
  int64_t over = chunks > 1 ? count % roles : 0;
  int64_t some = 3 * roles + over, fewer = 2 * roles + over;
  if (count <= some + fewer)
    return withMicroBatches(count);
  Expected<double> longer = withMicroBatches(some);
  if (!longer)
    return longer;
  Expected<double> shorter = withMicroBatches(fewer);
  if (!shorter)
    return shorter;
  return *longer + static_cast<double>(count - some) * (*longer - *shorter) /
                       static_cast<double>(some - fewer);
}

std::vector<SimulatedTask> simulatedTasks(const SimulationInput &input,
                                          const SimulatedActor &actor,
                                          bool withCollectives,
                                          int64_t batches) {
  std::vector<SimulatedTask> tasks;
  const RoleProgram &program = input.program.roles[actor.role];
  for (SchedulePart part : trainingParts(input.program, batches))
    for (const Task &task : program.part(part))
      tasks.push_back({task, -1, -1});
  for (const SimulatedSpan &span : actor.spans) {
    if (span.stream == Stream::Collective && !withCollectives)
      continue;
    SimulatedTask &task = tasks[span.task];
    task.start = task.start < 0 ? span.start : std::min(task.start, span.start);
    task.finish = std::max(task.finish, span.finish);
  }
  return tasks;
}

/// The average over ranks of a part of the iteration.
static double shareOf(const SimulationInput &input,
                      const Simulation &simulation,
                      double SimulatedActor::*part) {
  double sum = 0, ranks = 0;
  for (const SimulatedActor &actor : simulation.actors) {
    double weight =
        actor.localRank >= 0
            ? 1
            : static_cast<double>(input.roles[actor.role].devices.size());
    sum += weight * actor.*part;
    ranks += weight;
  }
  return simulation.seconds > 0 ? sum / ranks / simulation.seconds : 0;
}

double Simulation::bubbleShare(const SimulationInput &input) const {
  return shareOf(input, *this, &SimulatedActor::bubble);
}
double Simulation::exposedShare(const SimulationInput &input) const {
  return shareOf(input, *this, &SimulatedActor::exposed);
}
double Simulation::computeShare(const SimulationInput &input) const {
  return shareOf(input, *this, &SimulatedActor::compute);
}

void printSimulation(raw_ostream &os, const SimulationInput &input,
                     const Simulation &simulation) {
  os << format("executed: %.3f ms", simulation.seconds * 1e3);
  if (simulation.predictedSeconds > 0)
    os << format(", %.3f of Eq. 9", simulation.ratio());
  // The text does not say "exposed", which in a plan's table counts the
  // slowdown of computation beside communication, too.
  os << format("; compute %.1f%%, communication alone %.1f%%, bubble %.1f%%\n",
               100 * simulation.computeShare(input),
               100 * simulation.exposedShare(input),
               100 * simulation.bubbleShare(input));
  os << "  stage       compute         alone        bubble  peak activations\n";
  for (const SimulatedActor &actor : simulation.actors)
    os << format("  %-5d  %9.3f ms  %9.3f ms  %9.3f ms  ",
                 static_cast<int>(actor.role), actor.compute * 1e3,
                 actor.exposed * 1e3, actor.bubble * 1e3)
       << printBytesRounded(actor.peakActivations) << "\n";
}

} // namespace galvatron
