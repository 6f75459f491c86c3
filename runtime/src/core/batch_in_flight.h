//===- batch_in_flight.h - The batch that tasks are run for ---------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Of the batches that are under way at once the one that tasks are run for: its
// data, its step block, and the version of the weights that it uses.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_BATCH_IN_FLIGHT_H
#define GRT_CORE_BATCH_IN_FLIGHT_H

#include "core/rank_memories.h"
#include "core/told_numbers.h"

#include <memory>
#include <span>
#include <vector>

namespace grt {

class BatchInFlight {
public:
  BatchInFlight(const RankFacts &facts, const RankMemories &memories)
      : facts(facts), memories(memories) {}

  /// What follows is for the batch that a part is run for, or one behind it.
  void turnTo(unsigned generation);
  /// No batch was begun.
  void begin();
  /// The step block of a generation, as kernels are to read it.
  void fillStep(unsigned generation, uint64_t number, uint64_t countedValues);
  /// Puts a global batch where tasks of the generation read it.
  void fillData(unsigned generation, const GlobalBatch &batch);
  /// The step block that kernels of a side read.
  grt_step *stepBlock(const Side &of) const {
    return of.isHost ? step : deviceStep;
  }
  /// Hands a factor by which gradients are clipped to kernels of the device.
  void uploadClipFactor();
  /// Where one micro-batch of a copy lies.
  Extent microBatchExtent(const DataCopy &copy, uint64_t microBatch) const;
  /// The first sample of the program's batch in that of the step.
  int64_t firstSample() const { return int64_t(part) * facts.manifest.batch; }
  /// Micro-batches since the prologue, by which slots are taken in turn.
  uint64_t microBatchesBefore() const {
    return since * uint64_t(facts.manifest.microBatches);
  }
  /// Whether evaluation of sample 0 alone runs a micro-batch of a chunk.
  bool hasFirstSample(bool forwardOnly, uint32_t microBatch) const {
    return int64_t(microBatch) <
           (forwardOnly ? facts.manifest.perSlot(true) : 1);
  }
  /// The first values of a micro-batch of the counted datum, where predictions
  /// arrive in generate mode. False on ranks whose role does not have it.
  bool readLabels(int64_t microBatch, std::span<int32_t> labels) const;
  /// Adds the samples of a batch that it reads, by datum.
  void addSamplesRead(SamplesRead &samples) const;

  std::shared_ptr<const PassInput> input = std::make_shared<PassInput>();
  /// As the host has it and as kernels see it; on a device two copies.
  grt_step *step = nullptr, *deviceStep = nullptr;
  uint64_t since = 0; ///< batches since the prologue
  /// From the newest parameters to those that tasks read.
  uint64_t weights = 0;
  uint64_t part = 0;       ///< of a step over several
  LossSums earlierLosses;  ///< of the parts before
  bool leavesSums = false; ///< gradients stay this rank's own
  // Set when the rank is loaded.
  uint64_t olderOffset = 0; ///< from a parameter to its older version
  /// By copy of the role: which samples of a micro-batch it has, and how many.
  struct HeldSamples {
    SampleRuns runs;
    int64_t count = 0;
  };
  std::vector<HeldSamples> samplesHeld;

private:
  /// Batches that are under way at once take turns in a region's parts.
  uint64_t offsetIn(const Extent &region) const {
    return region.bytes / facts.manifest.batchesAtOnce() * place;
  }

  const RankFacts &facts;
  const RankMemories &memories;
  grt_step hostStep = {};
  uint64_t place = 0; ///< its part of the regions that batches take turns in
};

} // namespace grt

#endif // GRT_CORE_BATCH_IN_FLIGHT_H
