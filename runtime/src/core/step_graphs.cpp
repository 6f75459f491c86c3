//===- step_graphs.cpp - Steps as graphs of the device --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/step_graphs.h"
#include "base/error.h"
#include "grt/update_decision.h"

#include <cstddef>
#include <utility>

namespace grt {

bool StepGraphs::holdStep() const {
  return warm && wanted && batch.input->parts == 1 &&
         !batch.input->measuresWaits &&
         !(facts.recorder && facts.recorder->isActive());
}

void StepGraphs::leave() {
  if (!std::exchange(ran, false))
    return;
  // TRANSFER alone begins without a look at COMPUTE.
  memories.device->order(GRT_STREAM_COMPUTE, GRT_STREAM_TRANSFER);
}

template <typename Body> void StepGraphs::capture(uint32_t number, Body body) {
  Device &device = *memories.device;
  CollectiveLog &collectives = facts.activity.collectives;
  stepEnd.results.stepKind = StepKind::Calls;
  // All streams leave COMPUTE behind what was done so far.
  streams.handoffs.forget();
  auto makes = [&](auto call) {
    try {
      device.check(call);
    } catch (const Error &error) {
      throw Error(error.exitCode(),
                  std::string(error.what()) + "; --no-cuda-graph runs without");
    }
  };
  makes([&](char *message, size_t bytes) {
    return device->begin_graph(memories.backendState, message, bytes);
  });
  observer.capturing = true;
  collectives.beginGraph(number);
  body();
  collectives.endGraph();
  observer.capturing = false;
  makes([&](char *message, size_t bytes) {
    return device->end_graph(memories.backendState, number, message, bytes);
  });
  streams.handoffs.forget();
  made[number] = true;
}

template <typename Body> void StepGraphs::run(uint32_t number, Body body) {
  Device &device = *memories.device;
  Activity &activity = facts.activity;
  made.resize(2);
  if (!made[number])
    capture(number, body);
  activity.begin("graph", nullptr);
  observer.leaveMark(GRT_STREAM_COMPUTE, activity.begun() - 1);
  activity.collectives.start(number, activity.begun());
  device.check([&](char *message, size_t bytes) {
    return device->launch_graph(memories.backendState, number, message, bytes);
  });
  activity.end();
  ran = true;
  observer.leaveMark(GRT_STREAM_COMPUTE);
}

void StepGraphs::decideOnDevice() {
  Device &device = *memories.device;
  char *arena = memories.arena->base();
  grt_step *step = batch.deviceStep;
  observer.at(nullptr);
  observer.notePlace("decision of the update");
  if (memories.hasLoss())
    device.check([&](char *message, size_t bytes) {
      return device->add_results(
          memories.backendState,
          reinterpret_cast<const double *>(arena + facts.role->loss.offset),
          uint64_t(facts.manifest.microBatches * facts.manifest.lossValues),
          step, message, bytes);
    });
  // This rank's two numbers, which stand behind each other.
  static_assert(offsetof(grt_step, local_loss) ==
                offsetof(grt_step, local_norm_squared) + sizeof(double));
  const double *results = &step->local_norm_squared;
  if (everyone) {
    // Kernels leave nothing in the workspace that later ones read.
    char *all = arena + facts.role->workspace.offset;
    memories.communicator->allGather(*everyone, results, all,
                                     sizeof(RankResults));
    results = reinterpret_cast<const double *>(all);
  }
  device.check([&](char *message, size_t bytes) {
    return device->decide_update(memories.backendState, results,
                                 uint64_t(facts.host.size()),
                                 facts.manifest.clip, step, message, bytes);
  });
}

void StepGraphs::train() {
  const grt_schedule &schedule = facts.schedule();
  const grt_task_list &end = schedule.parts[GRT_PART_STEP_END];
  size_t norm = 0;
  while (end.tasks[norm].kind != GRT_TASK_NORM)
    ++norm;
  auto update = [&] {
    interpreter.runTasks(GRT_PART_STEP_END, norm + 1, end.count);
    streams.join();
  };
  run(0, [&] {
    interpreter.runTasks(GRT_PART_STEADY, 0,
                         schedule.parts[GRT_PART_STEADY].count);
    interpreter.runTasks(GRT_PART_STEP_END, 0, norm);
    interpreter.sumNorm();
    streams.join();
    if (isOne)
      decideOnDevice();
    stepEnd.fetch(/*withNorm=*/true);
    fetched = stepEnd.fetched;
    if (!isOne)
      return;
    if (memories.device->hasHostEvents())
      memories.device->recordForHost(StepEnd::resultsEvent);
    update();
  });
  // An evaluation has its results elsewhere.
  stepEnd.fetched = fetched;
  const gvx::Command &decision = interpreter.procedures.decision().front();
  stepEnd.decideFetched(/*ofUpdate=*/decision.number, /*onDevice=*/isOne);
  // Nothing changes without an update, so nothing has to be sent on either.
  if (isOne || stepEnd.results.updateLeftOut)
    return;
  run(1, update);
}

} // namespace grt
