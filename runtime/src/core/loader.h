//===- loader.h - Making a rank ready -------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Brings a rank from its role to where it can run steps: memory, groups, what
// commands and functions are bound to, kernels and communicators that were used
// once, initial weights. It dies then; what runs steps asks nothing of it.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_LOADER_H
#define GRT_CORE_LOADER_H

#include "core/executor.h"

#include <map>
#include <utility>
#include <vector>

namespace grt {

class Workers;
struct TensorStretch;

class RankLoader {
public:
  explicit RankLoader(Rank &rank);

  /// Whether ranks do not meet at the end of a step: of a program by which they
  /// do not, or that leaves it to the run.
  static bool goesAhead(const RankFacts &facts);
  /// All of it; on the rank's own thread, and collective over all ranks.
  void load();

private:
  void makeHome();
  /// Other ranks' devices write slots at home, too, so those are pinned in one
  /// piece: throws Error with ExitMemory if the machine does not.
  void pinHomeOfPacks();
  /// Says which side does which work; `outStream`: the stream on which swaps
  /// leave the device.
  void setUpSides(uint32_t outStream);
  void checkTies() const;
  void prepareTies();
  void prepareLayer(size_t layer);
  void clearMemory();
  void initialiseWeights();
  /// Initial values of runs that lie behind one another.
  void initialiseStretch(Workers &workers, const Layer &layer,
                         const LayerTensor &tensor,
                         const TensorStretch &stretch);
  std::vector<int> allRanks() const;
  // loader_devices.cpp
  void joinDevices();
  /// Tells a checking backend what lies where.
  void noteMemory() const;
  DeviceCommunicator &connectDevices(const grt_device_collectives *collectives);
  /// Makes the groups of all ranks, a round at a time.
  void joinGroups(DeviceCommunicator &mine,
                  const std::vector<std::vector<StreamGroup>> &rounds,
                  uint32_t atOnce);
  /// Nothing is allocated later for rows of exchanges.
  void reserveRows(DeviceCommunicator &mine) const;
  /// Where gradients of tied parameters wait to be added.
  void placeTied(DeviceCommunicator &mine);
  /// Of the schedule, of handoffs and for marks.
  void numberEvents();
  void chooseGraphs(const grt_device_collectives *collectives);
  // loader_calls.cpp
  /// Walks every function of the role without running it: checks its calls, and
  /// the backend takes what memory its kernels need outside the arena.
  void prepareKernels();
  /// Returns how many lives of buffers the function begins.
  size_t walk(int function);
  void prepareLaunch(const grt_kernel_op &op);
  void prepareCall(const grt_kernel_op &op);
  void prepareCollective(const grt_collective_op &op);
  // loader_warm.cpp
  struct Use {
    uint32_t stream;
    CollectiveKind kind;
    uint32_t dtype;
    bool adds;
    int64_t distance = 0; ///< of a shift
    auto operator<=>(const Use &) const = default;
  };
  /// Whether kernels and communicators are used once before the first step.
  bool warms() const;
  /// Memory of the arena that holds nothing before the first step; in one of
  /// the pieces between the ends of windows, if it is for collectives.
  Extent warmMemory(bool inOnePiece) const;
  /// Runs a kernel there; its status.
  int32_t runDry(const grt_kernel_op &op, char *message, size_t bytes);
  /// The program calls a collective with so many bytes (CollectiveCall).
  void noteUse(const Group *group, const Use &use, uint64_t bytes);
  void noteUsesOfLayer(size_t number);
  void useOnce(Group &group, const Use &use, uint64_t bytes);
  void warmCommunicators();
  void warmExchanges();
  void warmTies();
  void warmDecision();
  void warmSums();
  /// Collective over all ranks. Everything is loaded and connected behind it,
  /// and memory is clear.
  void warmUp();

  const RankFacts &facts;
  RankMemories &memories;
  Observer &observer;
  MemoryInUse &inUse;
  BatchInFlight &batch;
  CallRunner &calls;
  RankStreams &streams;
  Ties &ties;
  StepEnd &stepEnd;
  Interpreter &interpreter;
  StepGraphs &graphs;
  RunState &state;
  const Manifest &manifest;
  Communicator &host;
  Activity &activity;
  const Role &role;
  const int self, local;
  /// The least and the most bytes of every use of a group.
  std::map<const Group *, std::map<Use, std::pair<uint64_t, uint64_t>>> uses;
};

} // namespace grt

#endif // GRT_CORE_LOADER_H
