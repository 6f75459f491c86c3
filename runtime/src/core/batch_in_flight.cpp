//===- batch_in_flight.cpp - The batch that tasks are run for -------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/batch_in_flight.h"

namespace grt {

void BatchInFlight::turnTo(unsigned generation) {
  place = (since + generation) % facts.manifest.batchesAtOnce();
  // What is left of a batch uses the parameters that it was begun with.
  weights = input->mode == GRT_MODE_TRAIN && generation == 0 ? olderOffset : 0;
  const Extent &blocks = facts.role->step;
  deviceStep = reinterpret_cast<grt_step *>(memories.arena->base() +
                                            blocks.offset + offsetIn(blocks));
  step = *memories.device ? &hostStep : deviceStep;
}

void BatchInFlight::begin() {
  part = 0;
  earlierLosses = {};
  since = 0;
}

void BatchInFlight::fillStep(unsigned generation, uint64_t number,
                             uint64_t countedValues) {
  turnTo(generation);
  const Hyperparameters &h = input->hyperparameters;
  step->step = number;
  step->seed = facts.state.options.seed;
  step->mode = input->mode;
  step->update_left_out = 0;
  step->learning_rate = h.learningRate;
  step->beta1 = h.beta1;
  step->beta2 = h.beta2;
  step->eps = h.eps;
  step->weight_decay = h.weightDecay;
  step->momentum = h.momentum;
  step->clip_factor = 1;
  step->inverse_tokens = countedValues ? 1.0 / double(countedValues) : 0.0;
  step->local_norm_squared = step->local_loss = 0;
  step->clip_norm = h.clipNorm;
  step->skip_norm = h.skipNorm;
  if (*memories.device)
    memories.device->upload(reinterpret_cast<char *>(deviceStep), step,
                            sizeof(grt_step));
}

void BatchInFlight::uploadClipFactor() {
  if (*memories.device)
    memories.device->upload(reinterpret_cast<char *>(&deviceStep->clip_factor),
                            &step->clip_factor, sizeof(double));
}

void BatchInFlight::fillData(unsigned generation, const GlobalBatch &batch) {
  turnTo(generation);
  for (size_t i = 0; i < samplesHeld.size(); ++i) {
    const DataCopy &copy = facts.role->copies[i];
    uint64_t sampleBytes = facts.manifest.data[copy.datum].bytesPerSample;
    const int64_t count = facts.manifest.microBatchesOf(copy.ofForwardPacks);
    const SampleRuns &runs = samplesHeld[i].runs;
    for (int64_t m = 0; m < count; ++m) {
      Extent to = microBatchExtent(copy, uint64_t(m));
      uint64_t sample = uint64_t(firstSample() + runs.first + m * runs.stride);
      memories.device->upload(memories.arena->base() + to.offset,
                              batch.values[copy.datum].data() +
                                  sample * sampleBytes,
                              uint64_t(samplesHeld[i].count) * sampleBytes);
    }
  }
}

Extent BatchInFlight::microBatchExtent(const DataCopy &copy,
                                       uint64_t microBatch) const {
  uint64_t bytes = copy.extent.bytes /
                   uint64_t(facts.manifest.microBatchesOf(copy.ofForwardPacks));
  return {copy.extent.offset + offsetIn(facts.role->data) + microBatch * bytes,
          bytes};
}

bool BatchInFlight::readLabels(int64_t microBatch,
                               std::span<int32_t> labels) const {
  for (const DataCopy &copy : facts.role->copies)
    if (facts.manifest.data[copy.datum].counted && !copy.ofForwardPacks) {
      Extent from = microBatchExtent(copy, uint64_t(microBatch));
      memories.device->download(labels.data(),
                                memories.arena->base() + from.offset,
                                labels.size_bytes());
      return true;
    }
  return false;
}

void BatchInFlight::addSamplesRead(SamplesRead &samples) const {
  for (size_t i = 0; i < samplesHeld.size(); ++i) {
    const DataCopy &copy = facts.role->copies[i];
    const auto &[runs, count] = samplesHeld[i];
    const int64_t parts = facts.manifest.microBatchesOf(copy.ofForwardPacks);
    for (int64_t m = 0; m < parts; ++m)
      samples[copy.datum].push_back({runs.first + m * runs.stride, count});
  }
}

} // namespace grt
