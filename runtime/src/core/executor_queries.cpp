//===- executor_queries.cpp - What a rank is asked for --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/executor.h"

#include <algorithm>

namespace grt {

void Rank::lookAtDeviceMemory() {
  if (*device && (*device)->peak_bytes)
    deviceBytesSeen =
        std::max(deviceBytesSeen, (*device)->peak_bytes(backendState));
}

void Rank::addSamplesRead(SamplesRead &samples) const {
  for (size_t i = 0; i < samplesHeld.size(); ++i) {
    const DataCopy &copy = roleData->copies[i];
    const auto &[runs, count] = samplesHeld[i];
    for (int64_t m = 0; m < manifest.microBatchesOf(copy.ofForwardPacks); ++m)
      samples[copy.datum].push_back({runs.first + m * runs.stride, count});
  }
}

RankMemory Rank::memoryUse() const {
  // Beside a device's arena the heap is other memory. (Before a program is
  // loaded there is neither.)
  const bool onDevice = device && *device;
  return {self,
          roleData->arenaBytes,
          staticBytes + live.peakBytes() + (onDevice ? 0 : outsideBytes),
          outsideBytes,
          deviceBytesSeen,
          roleData->homeBytes,
          homeMemory ? homeMemory->pageableBytes() : 0};
}

bool Rank::readLabels(int64_t microBatch, std::span<int32_t> labels) const {
  for (const DataCopy &copy : roleData->copies)
    if (manifest.data[copy.datum].counted && !copy.ofForwardPacks) {
      Extent from = microBatchExtent(copy, uint64_t(microBatch));
      device->download(labels.data(), arena->base() + from.offset,
                       labels.size_bytes());
      return true;
    }
  return false;
}

void Rank::leaveMark(uint32_t stream) { leaveMark(stream, activity.begun()); }

void Rank::leaveMark(uint32_t stream, uint64_t number) {
  if (!*device || graphs.capturing || !(*device)->query || !marks.kept)
    return;
  uint32_t event = marks.first + marks.left++ % marks.kept;
  activity.forgetMark(event);
  device->record(stream, event);
  activity.mark(stream, event, number);
}

RankFlight Rank::flight() const { return {&activity, schedule().transfers}; }

void Rank::lookAtMarks() const {
  if (!state.backend.device || !state.backend.device->query)
    return;
  activity.lookAtMarks([this](uint32_t event) {
    char text[256] = "";
    int32_t done = 0;
    return backendState &&
           state.backend.device->query(backendState, event, &done, text,
                                       sizeof(text)) == 0 &&
           done;
  });
}

bool Rank::hasFailed(std::string &message) const {
  char text[1024] = "";
  const DeviceCommunicator *mine = devices.load();
  if (!mine || !mine->hasFailed(text, sizeof(text)))
    return false;
  text[sizeof(text) - 1] = 0;
  message =
      "rank " + std::to_string(self) + ", " + activity.describe() + ": " + text;
  return true;
}

void Rank::abortDevice() const {
  if (const DeviceCommunicator *mine = devices.load())
    mine->abortDevice();
}

std::string Rank::collectivesLibrary() const {
  const DeviceCommunicator *mine = devices.load();
  return mine ? mine->library() : "";
}

bool Rank::isFirstOfLastLayer() const {
  const LayerState &last = layers.back();
  return roleData->layers.back().output == OutputKind::Loss &&
         last.block == 0 && last.countsLoss();
}

} // namespace grt
