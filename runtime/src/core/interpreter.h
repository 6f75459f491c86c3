//===- interpreter.h - Running the tasks of a rank ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Walks the tasks of a role's parts and runs their commands, which the program
// has. It asks nothing of how the program was made.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_INTERPRETER_H
#define GRT_CORE_INTERPRETER_H

#include "core/call_runner.h"
#include "core/commands.h"
#include "core/rank_streams.h"
#include "core/step_end.h"
#include "core/ties.h"

#include <span>
#include <vector>

namespace grt {

class Interpreter {
public:
  Interpreter(const RankFacts &facts, RankMemories &memories,
              Observer &observer, BatchInFlight &batch, MemoryInUse &inUse,
              CallRunner &calls, RankStreams &streams, Ties &ties,
              StepEnd &stepEnd);

  /// No task of a step was run.
  void beginStep();
  void runPart(grt_part part, bool firstMicroBatchOnly = false);
  /// Tasks [from, to) of a part, all micro-batches.
  void runTasks(grt_part part, size_t from, size_t to);
  /// Squares of all gradients of the rank.
  void sumNorm() { run(procedures.norm(), {}); }
  /// Runs what follows all tasks of a step, or of an evaluation.
  void endStep() { run(procedures.stepEnd(), {}); }
  void endEvaluation() { run(procedures.evaluationEnd(), {}); }
  /// Values of ties are there, if they are under way.
  void takeTied() { run(procedures.ofTies(gvx::ofTaken), {}); }
  /// Makes older versions of weights.
  void makeOlderWeights() { run(procedures.older(), {}); }

  Procedures procedures; ///< set when the rank is loaded

private:
  struct ChunkState {
    const Chunk *chunk = nullptr;
    size_t number = 0; ///< of the role's list
    /// Its slots in the arena, which are all that batches in flight take turns
    /// in.
    uint32_t firstSlot = 0, slots = 1;
    uint64_t partsOfSlot = 1; ///< micro-batches that share one at home
    /// Of the running step: a backward pass was run, or the weight part of one,
    /// and gradients were reduced behind it already.
    bool backwardSeen = false, weightSeen = false, reduced = false;
    uint32_t slotOf(uint16_t slot, uint64_t shift) const {
      return firstSlot + uint32_t((slot + shift) % slots);
    }
  };
  /// The state of a task's chunk.
  ChunkState &chunkOf(uint16_t number);
  TaskFrame frameOf(const ChunkState &chunk, const grt_task &task) const;
  /// Of a transfer the parts that take part.
  unsigned partsOf(const grt_task &task, bool firstMicroBatchOnly) const;
  /// Whether nothing of the batch's losses is still to come behind the task,
  /// and somebody waits for them before the step ends.
  bool isLastLoss(const grt_task &task) const;
  void runTask(const grt_task &task, unsigned parts);
  void execute(const grt_task &task, unsigned parts);
  /// A pass of a chunk.
  void runPass(ChunkState &chunk, const grt_task &task);
  void synchroniseGradients(const ChunkState &chunk);
  /// False if it was left before its end.
  bool run(Procedure procedure, const TaskFrame &frame);
  /// Runs a command of the end of a step.
  void runEnd(const gvx::Command &command);
  /// Whether the command is for this task and this rank.
  bool isFor(const gvx::Command &command, const TaskFrame &frame) const;
  void runCommand(const gvx::Command &command, const TaskFrame &frame);
  void reduceGradients(size_t layer);
  /// Runs collectives over states of a layer on a stream.
  void runOnStates(const StepPlaces &places,
                   const std::vector<StateCollective> &collectives,
                   grt_stream stream, const char *what);
  /// Puts the gather of a layer's parameters on its stream, behind everything
  /// on COMPUTE.
  void startGather(const gvx::Command &command, uint32_t slot);
  // Between the device and home (interpreter_swaps.cpp).
  void swap(const grt_task &task);
  void runSwap(const gvx::Command &command, const TaskFrame &frame);
  /// What backward needs of a micro-batch.
  void swapSlot(const gvx::Command &command, const TaskFrame &frame);
  // Messages (interpreter_transfers.cpp).
  void transfer(const grt_task &task, unsigned parts);
  /// An end of a message that a transfer moves.
  struct Moved {
    const grt_transfer_part *part = nullptr;
    const gvx::Message *message = nullptr;
    char *memory = nullptr;
    Extent extent;        ///< of the arena; no bytes at home
    int64_t handoff = -1; ///< -1: all functions share the memory
    bool sends() const { return part->direction == GRT_SEND; }
  };
  /// Those of the mask; how many they are.
  size_t movedBy(const grt_task &task, unsigned parts, Moved *moved);
  /// The calls that move them; how many they are.
  size_t callsFor(std::span<const Moved> moved, ExchangeCall *calls) const;
  void beginTransfer(std::span<const Moved> moved);
  void endTransfer(std::span<const Moved> moved);

  const RankFacts &facts;
  RankMemories &memories;
  Observer &observer;
  BatchInFlight &batch;
  MemoryInUse &inUse;
  CallRunner &calls;
  RankStreams &streams;
  Ties &ties;
  StepEnd &stepEnd;
  std::vector<ChunkState> chunks;
  grt_part running = GRT_PART_STEADY; ///< the part whose tasks are run
};

} // namespace grt

#endif // GRT_CORE_INTERPRETER_H
