//===- DelayedPipeline.h - PipeDream-2BW in closed form ---------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Time and memory of a pipeline of blocks that are all alike, as the planner of
// PipeDream-2BW has them (Narayanan et al., "Memory-Efficient
// Pipeline-Parallel DNN Training", arXiv 2006.09503, appendix A), and of the
// schedules it is set beside. A pipeline has `depth` stages and `width`
// replicas; a batch is cut into micro-batches. Under 2BW a stage keeps two
// versions of its weights and never waits for the pipeline to drain.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_COST_DELAYEDPIPELINE_H
#define GALVATRON_COST_DELAYEDPIPELINE_H

#include "galvatron/Cost/ProfileLayerModel.h"

#include <cstdint>

namespace galvatron {

/// A stack of equal blocks. Activations are bytes per sample.
struct DelayedBlocks {
  int64_t count = 1;
  BatchTimes forward, backward; ///< of a micro-batch through one block
  int64_t parameterBytes = 0;   ///< of a block
  int64_t gradientBytes = 0;    ///< of a block, in the full ledger
  int64_t optimizerBytes = 0;   ///< of a block, in the full ledger
  int64_t activationBytes = 0;  ///< of a block: all that backward needs
  int64_t boundaryBytes = 0;    ///< between two blocks
};

struct DelayedLinks {
  int64_t devicesPerNode = 1;
  double intraRate = 0; ///< inside a node, bytes per second
  double interRate = 0; ///< between nodes
  /// The published formulas judge width and depth each for itself: a link is
  /// fast if that many devices fit in a node. With this, only what a placement
  /// can have at once is fast: replicas of a stage side by side, or stages of a
  /// pipeline, whichever is better.
  bool placed = false;
};

enum class DelayedSchedule : uint8_t {
  TwoBuffers,     ///< 2BW
  Flush,          ///< 1F1B that drains at the end of a batch
  GPipe,          ///< all forwards, then all backwards
  VersionPerStage ///< PipeDream: as many versions of the weights as stages
};
/// "2bw", "1f1b", "gpipe", "pipedream".
llvm::StringRef delayedScheduleName(DelayedSchedule schedule);
std::optional<DelayedSchedule> parseDelayedSchedule(llvm::StringRef name);

/// The way in which a stage runs its micro-batches (Algorithm 1 compares the
/// three).
enum class DelayedExecution : uint8_t {
  OneByOne, ///< one stage at a time: no pipelining, one version, one
            ///< micro-batch
  Pipelined,
  Recomputed ///< pipelined; activations are made again from a stage's input
};
/// "one-by-one", "pipelined", "recomputed".
llvm::StringRef delayedExecutionName(DelayedExecution execution);

struct DelayedShape {
  int64_t width = 1, depth = 1, microBatch = 1;
  DelayedExecution execution = DelayedExecution::Pipelined;
  bool operator==(const DelayedShape &other) const = default;
};

struct DelayedSetting {
  DelayedBlocks blocks;
  DelayedLinks links;
  DelayedSchedule schedule = DelayedSchedule::TwoBuffers;
  int64_t batch = 1; ///< samples of a batch, of all replicas
  /// The factor by which recomputation multiplies a stage's computation.
  double recomputeFactor = 4.0 / 3;
  /// Gradients and optimizer state count, which the paper's formula leaves out.
  bool fullLedger = false;

  /// Micro-batches per batch and replica; 0 if they are not whole.
  int64_t microBatches(const DelayedShape &shape) const {
    return batch % (shape.width * shape.microBatch)
               ? 0
               : batch / (shape.width * shape.microBatch);
  }
  /// Blocks of the largest stage.
  int64_t stageBlocks(const DelayedShape &shape) const {
    return (blocks.count + shape.depth - 1) / shape.depth;
  }
};

/// Parts of a stage's time, in seconds.
struct DelayedTimes {
  double compute = 0;  ///< of a micro-batch, recomputation included
  double boundary = 0; ///< of a micro-batch, to and from the neighbours
  double exchange = 0; ///< of gradients, once a batch
  /// The time that a micro-batch adds to a batch: the samples of one in all
  /// replicas over it are the throughput.
  double microBatch = 0;
};

DelayedTimes delayedTimes(const DelayedSetting &setting,
                          const DelayedShape &shape);

/// Bytes of the largest stage.
struct DelayedMemory {
  int64_t weights = 0, gradients = 0, optimizer = 0;
  int64_t activations = 0; ///< of the micro-batches in flight, or recomputed
  int64_t boundaries = 0;  ///< inputs of the micro-batches in flight
  int64_t total() const {
    return weights + gradients + optimizer + activations + boundaries;
  }
};

DelayedMemory delayedMemory(const DelayedSetting &setting,
                            const DelayedShape &shape);

} // namespace galvatron

#endif // GALVATRON_COST_DELAYEDPIPELINE_H
