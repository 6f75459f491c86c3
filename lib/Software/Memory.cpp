//===- Memory.cpp - Step and peak as a software has them ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Memory.h"

#include "Context.h"

#include <algorithm>

namespace galvatron {

int64_t gatheredBeyondAMatrix(const ModelShape &shape) {
  int64_t h = shape.hidden, f = shape.inner;
  return 2 * 2 * (4 * h * h + 2 * h * f - h * std::max(3 * h, f));
}

/// Bytes of buckets beside the gradients, and of parameters that stay gathered.
static int64_t bucketBytes(const Configuration &degrees, const Execution &facts,
                           int64_t parameters) {
  if (degrees.sharing() == 1)
    return 0;
  if (degrees.sharding == Sharding::Parameters)
    return 2 * (facts.bucketElements + facts.prefetchElements +
                std::min(facts.liveElements, parameters));
  // One is filled while the other is summed.
  bool two = facts.overlaps && degrees.sharding != Sharding::None;
  return 2 * facts.bucketElements * (two ? 2 : 1);
}

std::pair<int64_t, int64_t> interleavedPasses(int64_t stages, int64_t chunks,
                                              int64_t index,
                                              int64_t microBatches) {
  int64_t warmup = 2 * (stages - 1 - index) + (chunks - 1) * stages;
  int64_t places = 0;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    int64_t ticks = warmup + (chunks - 1 - 2 * chunk) * stages + 1;
    int64_t turn = stages * chunks;
    // Rounds towards minus infinity: late chunks begin behind the warm-up.
    int64_t rounds = ticks >= 0 ? ticks / turn : -((-ticks + turn - 1) / turn);
    int64_t rest = ticks - rounds * turn;
    places += std::min(microBatches, rounds * stages + std::min(rest, stages));
  }
  return {std::min(microBatches * chunks, warmup + 1), places};
}

int64_t foldedPasses(const Configuration &degrees, int64_t index) {
  const ScheduleShape shape{degrees.pipeline, degrees.microBatches(),
                            degrees.chunks};
  return degrees.schedule->slots(shape, index) +
         degrees.schedule->slots(shape, 2 * degrees.pipeline - 1 - index);
}

int64_t allocatedBytes(const Plan &plan, const ModelShape &whole,
                       const Configuration &degrees, const Execution &facts) {
  const ModelShape shape = partOfSample(whole, degrees);
  const int64_t stages = int64_t(plan.stages.size());
  const int64_t samples = degrees.microBatch;
  const int64_t boundary = 2 * samples * shape.tokens * shape.hidden;
  const int64_t sharded = degrees.shards();
  const int64_t parts = degrees.stateShards();
  bool stay = facts.gathersAll || degrees.sharding == Sharding::Gradients;
  int64_t most = 0;
  for (int64_t index = 0; index < stages; ++index) {
    const StageLedger &ledger = plan.stages[size_t(index)].ledger;
    int64_t parameters = ledger.parameters / 2 * sharded;
    int64_t states = ledger.parameters + ledger.gradients + ledger.optimizer;
    int64_t flight = std::min(stages - index, plan.microBatches);
    int64_t kept = ledger.activations;
    if (plan.schedule->name() == "interleaved") {
      auto [atOnce, places] =
          interleavedPasses(stages, degrees.chunks, index, plan.microBatches);
      kept = int64_t(__int128(kept) * atOnce / places);
    }
    // A slot has room for the logits; they are there but once.
    const int64_t logits = facts.logitBytes * samples * shape.tokens *
                           shape.vocabulary / degrees.tensor;
    if (plan.schedule->name() == "zb-v") {
      // The first stage has the last chunk; the second has neither end.
      const int64_t inside = plan.stages[size_t(stages > 1)].ledger.activations;
      if (index == 0 && stages > 1)
        kept =
            std::min(kept, int64_t(__int128(inside) * foldedPasses(degrees, 0) /
                                   foldedPasses(degrees, 1)) +
                               logits);
    } else if (index > 0 && index == stages - 1) {
      kept = std::min(kept, plan.stages[size_t(index) - 1].ledger.activations +
                                logits);
    }
    int64_t passes = kept + ledger.backward;
    if (facts.gathersMatrices && sharded > 1)
      passes -= gatheredBeyondAMatrix(shape) / degrees.tensor;
    if (facts.gradientCopies == GradientCopies::Stay) {
      passes = std::max(passes, kept + 2 * parameters);
    } else if (facts.gradientCopies == GradientCopies::Pass) {
      // They are whole when a micro-batch's activations are gone.
      int64_t others = int64_t(__int128(kept) * (flight - 1) / flight);
      passes = std::max(passes, others + 2 * parameters);
    }
    passes += ledger.communication + contextBytes(whole, degrees, facts);
    if (facts.keepsOutputs && stages > 1)
      passes += flight * boundary;
    if (stay)
      passes += 2 * parameters * (sharded - 1) / sharded;
    if (!facts.sumsEveryPass && sharded > 1 && plan.microBatches > 1)
      passes += 2 * parameters;
    if (facts.replicaBuckets && degrees.sharing() > 1 &&
        degrees.sharding == Sharding::None)
      passes += 2 * parameters;
    passes += bucketBytes(degrees, facts, parameters);
    int64_t update = facts.updateBytes * parameters / parts;
    most = std::max(most, states + std::max(passes, update) + ledger.workspace);
  }
  return most;
}

bool fitsCard(int64_t allocated, const ModelShape &shape,
              const Configuration &degrees, const Execution &facts,
              const DeviceType &type) {
  bool card = facts.figure == MemoryFigure::Card;
  double beside =
      card ? facts.contextOn(type.name) : double(type.reservedMemory);
  double block = 0;
  if (card) {
    int64_t scores = facts.keepsScores ? 2 * shape.heads * shape.tokens : 0;
    block = double(degrees.microBatch * shape.tokens *
                   std::max(4 * shape.vocabulary, scores) / degrees.tensor);
  }
  return double(allocated) + beside + block <= double(type.memory);
}

double stepMs(const Plan &plan, const Execution &facts) {
  int64_t enough = 2 * plan.pipelineDegree - 1;
  if (facts.stagesMeet || plan.schedule->name() != "zb-h2" ||
      plan.microBatches < enough)
    return plan.iterationMs;
  double most = 0;
  for (const PlanStage &stage : plan.stages)
    most = std::max(most, double(plan.microBatches - 1) * stage.timeNosyncMs +
                              stage.timeMs + stage.optimizerMs);
  return most;
}

int64_t shownBytes(int64_t allocated, const Execution &execution,
                   const DeviceType &type) {
  if (execution.figure == MemoryFigure::Allocated)
    return allocated;
  const bool card = execution.figure == MemoryFigure::Card;
  return std::min(type.memory,
                  int64_t((card ? execution.contextOn(type.name) : 0) +
                          execution.allocatorReserve * double(allocated)));
}

} // namespace galvatron
