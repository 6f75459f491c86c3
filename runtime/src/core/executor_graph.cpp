//===- executor_graph.cpp - Steps as graphs of the device -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a step puts on streams is the same in every step: addresses are the
// plan's, and what changes (step number, learning rate, clip factor, the batch)
// stands in the arena, where the host puts it before the step. So a step is put
// on streams once, as a graph, and then only started. In the middle of it the
// device decides whether the update is done and how it clips, from the results
// that all ranks gather; the host gets the results there, decides the same, and
// prepares the next step while the update runs.
//
// Where the device cannot decide there are two graphs: 0 up to the copy of the
// results to the host, which decides with them; 1, the update and what follows.
//
// The first step is an ordinary one: libraries take what they need the first
// time.
//
//===----------------------------------------------------------------------===//

#include "base/error.h"
#include "core/executor.h"
#include "grt/update_decision.h"

#include <cstddef>

namespace grt {

bool Rank::stepsByGraphs() const {
  return warm && graphs.wanted && input->parts == 1 && !input->measuresWaits &&
         !(recorder && recorder->isActive());
}

void Rank::leaveGraphs() {
  if (!std::exchange(graphs.ran, false))
    return;
  // TRANSFER alone begins without a look at COMPUTE.
  device->order(GRT_STREAM_COMPUTE, GRT_STREAM_TRANSFER);
}

template <typename Body> void Rank::runGraph(uint32_t number, Body body) {
  graphs.made.resize(2);
  if (!graphs.made[number]) {
    results.stepKind = StepKind::Calls;
    // All streams leave COMPUTE behind what was done so far.
    handoffs.forget();
    auto makes = [&](auto call) {
      try {
        device->check(call);
      } catch (const Error &error) {
        throw Error(error.exitCode(), std::string(error.what()) +
                                          "; --no-cuda-graph runs without");
      }
    };
    makes([&](char *message, size_t bytes) {
      return (*device)->begin_graph(backendState, message, bytes);
    });
    graphs.capturing = true;
    activity.collectives.beginGraph(number);
    body();
    activity.collectives.endGraph();
    graphs.capturing = false;
    makes([&](char *message, size_t bytes) {
      return (*device)->end_graph(backendState, number, message, bytes);
    });
    handoffs.forget();
    graphs.made[number] = true;
  }
  activity.begin("graph", nullptr);
  leaveMark(GRT_STREAM_COMPUTE, activity.begun() - 1);
  activity.collectives.start(number, activity.begun());
  device->check([&](char *message, size_t bytes) {
    return (*device)->launch_graph(backendState, number, message, bytes);
  });
  activity.end();
  graphs.ran = true;
  leaveMark(GRT_STREAM_COMPUTE);
}

void Rank::decideOnDevice() {
  runningLayer = nullptr;
  notePlace("decision of the update");
  if (hasLoss())
    device->check([&](char *message, size_t bytes) {
      return (*device)->add_results(
          backendState,
          reinterpret_cast<const double *>(arena->base() +
                                           roleData->loss.offset),
          uint64_t(manifest.microBatches * manifest.lossValues), deviceStep,
          message, bytes);
    });
  // This rank's two numbers, which stand behind each other.
  static_assert(offsetof(grt_step, local_loss) ==
                offsetof(grt_step, local_norm_squared) + sizeof(double));
  const double *results = &deviceStep->local_norm_squared;
  if (graphs.everyone) {
    // Kernels leave nothing in the workspace that later ones read.
    char *all = arena->base() + roleData->workspace.offset;
    communicator->allGather(*graphs.everyone, results, all,
                            sizeof(RankResults));
    results = reinterpret_cast<const double *>(all);
  }
  device->check([&](char *message, size_t bytes) {
    return (*device)->decide_update(backendState, results,
                                    uint64_t(host.size()), manifest.clip,
                                    deviceStep, message, bytes);
  });
}

void Rank::trainByGraphs() {
  const grt_task_list &end = schedule().parts[GRT_PART_STEP_END];
  size_t norm = 0;
  while (end.tasks[norm].kind != GRT_TASK_NORM)
    ++norm;
  auto update = [&] {
    runTasks(GRT_PART_STEP_END, norm + 1, end.count);
    joinStreams();
  };
  runGraph(0, [&] {
    runTasks(GRT_PART_STEADY, 0, schedule().parts[GRT_PART_STEADY].count);
    runTasks(GRT_PART_STEP_END, 0, norm);
    stepEnd.sumNorm();
    joinStreams();
    if (graphs.isOne)
      decideOnDevice();
    stepEnd.fetch(/*withNorm=*/true);
    graphs.losses = stepEnd.fetched.losses;
    graphs.norm = stepEnd.fetched.norm;
    if (!graphs.isOne)
      return;
    if (device->hasHostEvents())
      device->recordForHost(resultsEvent);
    update();
  });
  // An evaluation has its results elsewhere.
  stepEnd.fetched.losses = graphs.losses;
  stepEnd.fetched.norm = graphs.norm;
  stepEnd.decide(/*onDevice=*/graphs.isOne);
  // Nothing changes without an update, so nothing has to be sent on either.
  if (graphs.isOne || results.updateLeftOut)
    return;
  runGraph(1, update);
}

} // namespace grt
