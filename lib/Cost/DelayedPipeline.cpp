//===- DelayedPipeline.cpp - PipeDream-2BW in closed form -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Cost/DelayedPipeline.h"

#include <algorithm>

using namespace llvm;

namespace galvatron {

static constexpr std::pair<DelayedSchedule, StringRef> delayedSchedules[] = {
    {DelayedSchedule::TwoBuffers, "2bw"},
    {DelayedSchedule::Flush, "1f1b"},
    {DelayedSchedule::GPipe, "gpipe"},
    {DelayedSchedule::VersionPerStage, "pipedream"}};

StringRef delayedScheduleName(DelayedSchedule schedule) {
  for (const auto &[value, name] : delayedSchedules)
    if (value == schedule)
      return name;
  llvm_unreachable("all schedules have names");
}

std::optional<DelayedSchedule> parseDelayedSchedule(StringRef name) {
  for (const auto &[value, text] : delayedSchedules)
    if (text == name)
      return value;
  return std::nullopt;
}

StringRef delayedExecutionName(DelayedExecution execution) {
  switch (execution) {
  case DelayedExecution::OneByOne:
    return "one-by-one";
  case DelayedExecution::Pipelined:
    return "pipelined";
  case DelayedExecution::Recomputed:
    return "recomputed";
  }
  llvm_unreachable("all executions are handled");
}

namespace {

/// Seconds of one micro-batch's boundaries and of a batch's gradient exchange,
/// if the neighbours and the replicas have these rates.
struct LinkTimes {
  double boundary, exchange;
};

/// The ways in which width and depth can lie on nodes.
SmallVector<LinkTimes, 2> linkTimes(const DelayedSetting &setting,
                                    const DelayedShape &shape) {
  const DelayedLinks &links = setting.links;
  const DelayedBlocks &blocks = setting.blocks;
  auto rate = [&](int64_t devices) {
    return devices <= links.devicesPerNode ? links.intraRate : links.interRate;
  };
  auto times = [&](double depthRate, double widthRate) -> LinkTimes {
    auto samples = static_cast<double>(shape.microBatch);
    auto width = static_cast<double>(shape.width);
    auto parameters = static_cast<double>(setting.stageBlocks(shape)) *
                      static_cast<double>(blocks.parameterBytes);
    return {shape.depth > 1
                ? 2 * samples * static_cast<double>(blocks.boundaryBytes) /
                      depthRate
                : 0,
            shape.width > 1 ? 2 * (width - 1) / width * parameters / widthRate
                            : 0};
  };
  if (!links.placed)
    return {times(rate(shape.depth), rate(shape.width))};
  double across = rate(shape.width * shape.depth);
  return {times(across, rate(shape.width)), times(rate(shape.depth), across)};
}

/// The seconds that one micro-batch adds to a batch of `m` of them.
double effective(const DelayedSetting &setting, const DelayedShape &shape,
                 double compute, const LinkTimes &links) {
  auto m = static_cast<double>(setting.microBatches(shape));
  auto depth = static_cast<double>(shape.depth);
  double stage = compute + links.boundary;
  double shared = links.exchange / m;
  if (shape.execution == DelayedExecution::OneByOne)
    return depth * std::max(stage, shared);
  switch (setting.schedule) {
  case DelayedSchedule::TwoBuffers:
    return std::max(stage, shared);
  case DelayedSchedule::VersionPerStage:
    // The weights change with every micro-batch.
    return std::max(stage, links.exchange);
  case DelayedSchedule::Flush:
  case DelayedSchedule::GPipe:
    // Gradients are whole when the last micro-batch has passed.
    return ((m + depth - 1) * stage + links.exchange) / m;
  }
  llvm_unreachable("all schedules are handled");
}

} // namespace

DelayedTimes delayedTimes(const DelayedSetting &setting,
                          const DelayedShape &shape) {
  auto samples = static_cast<double>(shape.microBatch);
  double block = (setting.blocks.forward.milliseconds(samples) +
                  setting.blocks.backward.milliseconds(samples)) /
                 1000;
  DelayedTimes best;
  best.compute =
      static_cast<double>(setting.stageBlocks(shape)) * block *
      (shape.execution == DelayedExecution::Recomputed ? setting.recomputeFactor
                                                       : 1);
  bool first = true;
  for (const LinkTimes &links : linkTimes(setting, shape)) {
    double time = effective(setting, shape, best.compute, links);
    if (!std::exchange(first, false) && time >= best.microBatch)
      continue;
    best.microBatch = time;
    best.boundary = links.boundary;
    best.exchange = links.exchange;
  }
  return best;
}

DelayedMemory delayedMemory(const DelayedSetting &setting,
                            const DelayedShape &shape) {
  const DelayedBlocks &blocks = setting.blocks;
  int64_t stage = setting.stageBlocks(shape);
  int64_t versions = 1, inFlight = 1;
  if (shape.execution != DelayedExecution::OneByOne) {
    int64_t m = setting.microBatches(shape);
    switch (setting.schedule) {
    case DelayedSchedule::TwoBuffers:
      versions = 2;
      inFlight = shape.depth;
      break;
    case DelayedSchedule::VersionPerStage:
      versions = shape.depth;
      inFlight = shape.depth;
      break;
    case DelayedSchedule::Flush:
      inFlight = std::min(shape.depth, m);
      break;
    case DelayedSchedule::GPipe:
      inFlight = m;
      break;
    }
  }
  int64_t kept = shape.execution == DelayedExecution::Recomputed ? 1 : inFlight;
  DelayedMemory memory;
  memory.weights = versions * stage * blocks.parameterBytes;
  if (setting.fullLedger) {
    memory.gradients = stage * blocks.gradientBytes;
    memory.optimizer = stage * blocks.optimizerBytes;
  }
  memory.activations = kept * stage * blocks.activationBytes * shape.microBatch;
  memory.boundaries = inFlight * blocks.boundaryBytes * shape.microBatch;
  return memory;
}

} // namespace galvatron
