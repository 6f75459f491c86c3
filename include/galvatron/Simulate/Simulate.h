//===- Simulate.h - A plan's step, operation by operation -------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Runs the task program of a plan with the durations of Cost/: every layer of
// every micro-batch, collectives, reshards, rendezvous transfers between
// stages. It judges Eq. 9 of arXiv 2307.02031, which knows the stages only by
// their sums. What is simulated, and where the two differ, is in
// docs/simulator.md.
//
// The ranks of a role do the same at the same time, so one of them stands for
// all; the expanded simulation, which runs every rank, is there to prove it.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_SIMULATE_SIMULATE_H
#define GALVATRON_SIMULATE_SIMULATE_H

#include "galvatron/Cluster/Cluster.h"
#include "galvatron/Cost/LayerCost.h"
#include "galvatron/Cost/LayerModel.h"
#include "galvatron/Schedule/TaskProgram.h"
#include "galvatron/Simulate/EventEngine.h"
#include "galvatron/Strategy/Plan.h"

#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

#include <string>
#include <vector>

namespace galvatron {

//===----------------------------------------------------------------------===//
// Input of a simulation
//===----------------------------------------------------------------------===//

/// Communication with a fixed duration. Uplinks are numbered 2 * node for what
/// leaves a node and 2 * node + 1 for what enters it.
struct SimulatedExchange {
  double seconds = 0;
  std::vector<int32_t> uplinks;

  bool operator==(const SimulatedExchange &other) const = default;
};

struct SimulatedLayer {
  std::string name;
  Strategy strategy;
  LayerTimeParts time;
  std::vector<int32_t> dpUplinks, sdpUplinks, tpUplinks;
  /// Names of what its passes exchange inside functions (exchangeName()).
  std::string forwardExchange, backwardExchange;
  /// Exchanges to the next layer of the stage, and of the gradient back to the
  /// one before; 0 at the stage's ends.
  SimulatedExchange reshardForward, reshardBackward;
  /// Whether the layer's parameters are gathered while the layer that runs
  /// before it computes, or between the two.
  bool forwardAhead = false, backwardAhead = false;
  /// Whether the backward pass, or the reshard behind it, waits for the sums of
  /// gradients of the layers behind, where these run beside backward passes.
  bool backwardAwaitsSums = false, reshardAwaitsSums = false;
  /// Bytes on a rank, multiples of 64: kept from forward to backward, and
  /// temporaries (those of forward with the output).
  int64_t inputBytes = 0, stashBytes = 0;
  int64_t forwardTransient = 0, backwardTransient = 0;
};

struct SimulatedRole {
  std::vector<int64_t> devices; ///< global ranks by local rank
  /// The layers of all its chunks, in the order of their numbers: packs that
  /// run forward only are in front, and have layers of their own here.
  std::vector<SimulatedLayer> layers;
  /// The ends of the chunks, each behind its last layer; empty: it has one.
  std::vector<size_t> chunkEnds;
  StageLedger ledger;
  /// Its communication shares what a device can send (BackendTraits).
  bool oneQueue = false;
  /// Its gradients may be summed in either way (SumTiming).
  bool canOverlapSums = false;
};

/// The boundary between a chunk and the next one. Of packs a forward pack and
/// the one that takes its activation, or a backward pack and the one that gives
/// it a gradient.
struct SimulatedCut {
  SimulatedExchange activation, gradient;
  /// Which ranks of both sides wait for each other, by local rank: those that
  /// have a transfer in common, directly or through others.
  std::vector<int32_t> senderGroup, receiverGroup;
  int32_t groups = 1;
};

/// Two layers that share a tensor or, of packs, a layer and a copy of it that
/// runs forward only, which takes its values.
struct SimulatedTie {
  SimulatedExchange reduce, broadcast;
};

struct SimulationInput {
  /// The tasks in the form that the compiler makes for the stages' backends:
  /// with SyncBehind where gradients are summed behind the last backward pass.
  TaskProgram program;
  /// Micro-batches of the step where `program` has the tasks of fewer, 0 where
  /// it has all: tasks of thousands of micro-batches take hundreds of MiB.
  /// simulatedSeconds(), secondsWithoutNorm() and stepBounds() take such an
  /// input, simulate() does not.
  int64_t outlineOf = 0;
  std::vector<SimulatedRole> roles;
  std::vector<SimulatedCut> cuts; ///< one less than chunks
  /// The transfers to packs that recompute, by chunk (`activation`, of a cut
  /// between the sender and the pack). Empty without packs.
  std::vector<SimulatedCut> stashes;
  std::vector<SimulatedTie> ties; ///< as in the program
  /// Makes both ends of a tie meet even where batches go on: devices with
  /// streams have nothing that waits for neither.
  bool tiesMeet = false;
  double predictedSeconds = 0; ///< Eq. 9

  int64_t microBatches() const {
    return outlineOf ? outlineOf : program.microBatches;
  }
};

/// A role's layers that one of its chunks runs.
struct ChunkLayers {
  size_t role = 0, begin = 0, end = 0;
};
/// The layers of each chunk of the program, by chunk.
std::vector<ChunkLayers> chunkLayers(const SimulationInput &input);
/// Returns the seconds of a swap of a chunk of these layers.
double swapSeconds(const Task &task, llvm::ArrayRef<SimulatedLayer> layers);

/// The task program of a plan with its durations. Errors: the plan does not
/// match the model or the cluster.
llvm::Expected<SimulationInput>
simulationInput(LayerModel &model, const Cluster &cluster, const Plan &plan);
/// The input with the tasks of one micro-batch only (`outlineOf`), without the
/// ledgers of whole stages and where their temporaries are.
llvm::Expected<SimulationInput>
simulationOutline(LayerModel &model, const Cluster &cluster, const Plan &plan);

/// Whether gradients of a stage may be summed in either way: its devices have
/// streams, there are sums, and nothing forbids them beside backward passes.
bool canOverlapSums(const Cluster &cluster, const Plan &plan, size_t stage);

/// Sets whether a role's gradients are summed beside its last backward passes,
/// where that is to be had (`canOverlapSums`), or at the end of the step.
void setSumsOverlap(SimulationInput &input, size_t role, bool overlap);

/// The durations as JSON, in microseconds, for the manifest of a program: the
/// runtime lays them out along the program's tasks. Equal neighbouring layers
/// are one entry with a count, zeros are left out.
llvm::json::Value predictedTimes(const SimulationInput &input);

//===----------------------------------------------------------------------===//
// Results of a simulation
//===----------------------------------------------------------------------===//

struct SimulationOptions {
  /// Simulates every rank on its own instead of one for all of a role.
  bool expandRanks = false;
  /// Operations of several stages at one node's uplink share its bandwidth.
  bool shareUplinks = true;
  /// The number of batches, one behind the other; the schedule says whether the
  /// pipeline drains between them.
  int64_t batches = 1;
};

enum class Activity : uint8_t {
  Forward,
  Recompute,
  Backward,
  BackwardWeight, ///< of a backward pass in two parts; the other is Backward
  Gather,
  ReduceScatter,
  GradientSync,
  ExchangeForward, ///< inside functions (SimulatedLayer::forwardExchange)
  ExchangeBackward,
  Reshard,
  SendActivation,
  ReceiveActivation,
  SendGradient,
  ReceiveGradient,
  SendStash, ///< to the home of a pack that recomputes
  ReceiveStash,
  TieReduce,
  TieBroadcast,
  Norm, ///< squares of the gradients, and their exchange
  Update,
  Swap ///< between host and device
};
/// "forward", "gather", "send activation", ...
llvm::StringRef activityName(Activity activity);

struct SimulatedSpan {
  double start = 0, finish = 0; ///< seconds
  Stream stream = Stream::Compute;
  Activity activity = Activity::Forward;
  int32_t layer = -1;      ///< in the role, -1 if it is no layer's
  int32_t microBatch = -1; ///< -1 if it is no micro-batch's
  int32_t task = 0;        ///< in the order of the role's tasks of a step
};

/// Bytes from `time` on, until the next point.
struct MemoryPoint {
  double time = 0;
  int64_t activations = 0; ///< kept for backward
  int64_t temporaries = 0; ///< of the layer that runs
};

/// A role, or a rank if ranks were expanded. Times are seconds and add up to
/// the iteration.
struct SimulatedActor {
  int64_t role = 0;
  int64_t localRank = -1; ///< -1: all of the role
  double compute = 0;     ///< computation runs, communication or not beside it
  double exposed = 0;     ///< communication runs and no computation
  double bubble = 0;      ///< nothing runs
  double overlapped = 0;  ///< part of `compute` with communication beside it
  int64_t peakActivations = 0, peakTemporaries = 0;
  int64_t peakBytes = 0;            ///< with the ledger's states, of one moment
  std::vector<SimulatedSpan> spans; ///< by stream in order
  std::vector<MemoryPoint> memory;
};

struct Simulation {
  double seconds = 0;
  double predictedSeconds = 0; ///< Eq. 9
  size_t operations = 0;
  uint64_t events = 0;
  std::vector<SimulatedActor> actors;

  /// Simulated over predicted, 0 if nothing was predicted.
  double ratio() const {
    return predictedSeconds > 0 ? seconds / predictedSeconds : 0;
  }
  /// Shares of the iteration over all ranks.
  double bubbleShare(const SimulationInput &input) const;
  double exposedShare(const SimulationInput &input) const;
  double computeShare(const SimulationInput &input) const;
};

/// Seconds of a step, as simulate() says. In a step of more than about so many
/// operations a stage's pass over a micro-batch is one operation, as long as
/// the stage alone takes, and micro-batches beyond five for each stage take
/// what one more takes then. Uplinks that collectives of several stages share
/// are not shared in such a step.
llvm::Expected<double> simulatedSeconds(const SimulationInput &input,
                                        size_t mostOperations = 20000);

/// About so many operations a step has, as the limit of simulatedSeconds()
/// counts them.
size_t stepOperations(const SimulationInput &input);
/// The same of a plan without packs.
size_t stepOperations(const Plan &plan);

/// Whether stages go on without a norm of all gradients, if the run asks for
/// it: those of CPU ranks whose gradients are not clipped.
bool mayEndAlone(const SimulationInput &input, const Plan &plan);
/// Seconds from step to step where they do: of a schedule that drains, once
/// steps follow each other evenly.
llvm::Expected<double> secondsWithoutNorm(const SimulationInput &input);

/// Bounds of what simulate() says, in closed form, by the times of the stages'
/// tasks (docs/simulator.md, "Bounds").
struct StepBounds {
  double lower = 0, upper = 0; ///< seconds
};
StepBounds stepBounds(const SimulationInput &input);
/// The lower one alone, which takes less time.
double leastStepSeconds(const SimulationInput &input);

/// The times of the passes of every chunk, in hundredths of the mean one.
std::vector<PassTimes> passTimes(const SimulationInput &input);

/// Errors: the schedule is not sound; the message is that of the proof.
llvm::Expected<Simulation> simulate(const SimulationInput &input,
                                    const SimulationOptions &options = {});

/// A task of an actor, from its first operation to its last.
struct SimulatedTask {
  Task task;
  double start = 0, finish = 0; ///< seconds; equal if it takes no time
};
/// The tasks of an actor's step in order. Collectives may run behind their task
/// (SyncBehind) and count only if asked for.
std::vector<SimulatedTask> simulatedTasks(const SimulationInput &input,
                                          const SimulatedActor &actor,
                                          bool withCollectives,
                                          int64_t batches = 1);

/// A table: one line per stage, the iteration beside Eq. 9's.
void printSimulation(llvm::raw_ostream &os, const SimulationInput &input,
                     const Simulation &simulation);

/// Chrome trace event format (JSON): a process per rank, or per role if all
/// ranks together would have more than `mostEvents` slices; a thread per
/// stream and one for the tasks; a counter for memory.
void writeTrace(llvm::raw_ostream &os, const SimulationInput &input,
                const Simulation &simulation, size_t mostEvents = 500000);

} // namespace galvatron

#endif // GALVATRON_SIMULATE_SIMULATE_H
