//===- Graph.h - The operations of a task program ---------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Turns tasks into operations of the engine. An operation of a role is a block
// of operations of its actors: one if a role is one actor, else one per rank.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_SIMULATE_GRAPH_H
#define GALVATRON_LIB_SIMULATE_GRAPH_H

#include "galvatron/Simulate/Simulate.h"

#include "llvm/ADT/DenseMap.h"

#include <map>
#include <set>

namespace galvatron {

/// An operation of a role; rank `r` runs the engine's operation `first + r`.
struct RoleOperation {
  OperationId first;
  Activity activity;
  int32_t layer, microBatch, task;
};

/// A layer's function in one micro-batch: it runs from the first start of
/// `begin` to the last finish of `end`.
struct LayerPass {
  bool forward;
  int32_t layer;
  llvm::SmallVector<OperationId, 2> begin, end;
  bool frees = false; ///< what was kept for it
};

/// The arrival of a micro-batch's activation, which fills the first input of a
/// chunk.
struct Arrival {
  OperationId operation;
  int32_t layer;
};

struct RoleGraph {
  int32_t firstActor = 0;
  int32_t actors = 1;
  std::vector<RoleOperation> operations;
  std::vector<LayerPass> runs;
  std::vector<Arrival> arrivals;
};

class Graph {
public:
  /// `records`: what its operations and passes are is asked for, beside when
  /// the last one ends.
  Graph(const SimulationInput &input, const SimulationOptions &options,
        bool records = true);

  EventEngine engine;
  std::vector<RoleGraph> roles;

private:
  using Ids = llvm::SmallVector<OperationId, 4>;

  /// Members of a role that wait for each other: the group of each actor.
  struct Grouping {
    std::vector<int32_t> groupOf;
    int32_t groups = 1;
  };
  /// A rendezvous of several roles: first join and flow.
  struct Rendezvous {
    int32_t join, flow;
  };

  void buildRole(size_t number);
  void swap(const Task &task);
  /// The events a task waits for, and those that others may wait for behind it.
  void waitForEvents(const Task &task);
  void recordEvent(const Task &task);
  void forward(const Task &task);
  void backward(const Task &task);
  void backwardWeight(const Task &task);
  OperationId gather(size_t layer, llvm::ArrayRef<OperationId> after);
  OperationId reduce(Activity activity, double seconds, size_t layer,
                     llvm::ArrayRef<OperationId> after);
  void awaitSums();
  void syncGradients(const Task &task);
  void transfer(const Task &task);
  void message(const TransferPart &part, Ids &ends);
  void tie(const Task &task, SchedulePart part);
  void norm();
  void touchStates(Activity activity, double LayerTimeParts::*part,
                   size_t begin, size_t end);

  /// Adds an operation to all actors of the role. `join` is the first of
  /// `grouping`'s joins; new ones are made if it is -1 and ranks are expanded.
  OperationId emit(Stream stream, Activity activity, double seconds,
                   int32_t layer, llvm::ArrayRef<OperationId> after,
                   llvm::ArrayRef<int32_t> uplinks = {},
                   const Grouping *grouping = nullptr, int32_t join = -1,
                   int32_t flow = -1);
  /// The groups of these levels of a layer.
  const Grouping *groupingOf(int32_t layer, ParadigmSet among);
  Rendezvous &rendezvous(int kind, int64_t place, int64_t occurrence,
                         int32_t groups);

  const SimulationInput &input;
  SimulationOptions options;
  std::vector<ChunkLayers> chunks;
  int32_t flows = 0;
  bool records;
  /// Rendezvous by kind and place, in the order of their occurrences.
  std::map<std::pair<int, int64_t>, std::vector<Rendezvous>> allRendezvous;
  /// The engine's sets by where the input has their uplinks.
  llvm::DenseMap<const int32_t *, int32_t> uplinkSets;

  // The role at hand.
  size_t role = 0;
  Ids tail;                    ///< what the next task comes after
  OperationId collective = -1; ///< the last one on the collective stream
  OperationId lastSum = -1;    ///< the last sum of gradients begun
  /// The operations of swaps with streams of their own: by event what it stands
  /// for, the last copy out, and what the host has done at home last.
  std::map<uint8_t, Ids> events;
  OperationId lastOut = -1;
  Ids doneAtHome;
  std::set<uint16_t> reduced; ///< chunks whose gradients are being summed
  int32_t taskNumber = 0, microBatch = -1;
  int64_t batch = 0; ///< that parts are run for
  std::map<std::pair<int, int64_t>, int64_t> occurrences;
  std::map<std::pair<int32_t, ParadigmSet>, Grouping> groupings;
  Grouping wholeRole;
};

} // namespace galvatron

#endif // GALVATRON_LIB_SIMULATE_GRAPH_H
