//===- step_end.cpp - Losses, norms and what is decided -------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/step_end.h"
#include "base/error.h"
#include "core/executor.h"
#include "grt/update_decision.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace grt {

void StepEnd::norm() {
  rank.swaps.reachHome();
  if (rank.manifest.delay)
    return normLate();
  // Nothing depends on it, so nobody waits for it.
  if (rank.state.ahead())
    return;
  sumNorm();
  fetch(/*withNorm=*/true);
  decide();
}

void StepEnd::sumNorm() { rank.run(rank.procedures.norm(), {}); }

void StepEnd::decide(bool onDevice) {
  gather(onDevice);
  // The same numbers on all ranks, so the same decision.
  const Hyperparameters &h = rank.input->hyperparameters;
  for (size_t r = 0; r < gathered.size(); ++r)
    decidedBy[r] = {gathered[r].squares,
                    gathered[r].loss + gathered[r].squaredLogSums};
  const UpdateDecision decision =
      grt::decideUpdate(decidedBy.data(), uint64_t(rank.host.size()),
                        rank.manifest.clip, h.clipNorm, h.skipNorm);
  rank.results.updateLeftOut =
      !rank.manifest.updatesJustInTime && decision.leftOut;
  rank.step->clip_factor = decision.clipFactor;
  if (onDevice) {
    if ((rank.graphs.step->update_left_out != 0) != decision.leftOut ||
        rank.graphs.step->clip_factor != decision.clipFactor)
      rank.failHere("the device decides otherwise than the host: it " +
                    std::string(rank.graphs.step->update_left_out
                                    ? "leaves the update out"
                                    : "updates") +
                    " and clips by " +
                    std::to_string(rank.graphs.step->clip_factor) +
                    ", expected " + std::to_string(decision.clipFactor) +
                    (decision.leftOut ? " and no update" : " and an update"));
    return;
  }
  // On a device this round trip through the host empties its queues: it costs
  // the latency of a copy back, a gather over the host and the launch of the
  // update, some tens of microseconds per step and more across machines. Where
  // the step is one graph the device decides.
  if (*rank.device && rank.updatesHere)
    rank.device->upload(reinterpret_cast<char *>(&rank.deviceStep->clip_factor),
                        &rank.step->clip_factor, sizeof(double));
}

void StepEnd::fetch(bool withNorm) {
  fetched.losses = fetched.norm = fetched.normAtHome = nullptr;
  if (rank.hasLoss())
    fetched.losses = static_cast<const double *>(rank.device->fetch(
        rank.arena->base() + rank.roleData->loss.offset,
        uint64_t(rank.manifest.microBatches) * rank.manifest.lossBytes()));
  if (!withNorm)
    return;
  if (rank.atHome.isHost)
    fetched.normAtHome = &rank.step->local_norm_squared;
  if (!rank.updatesHere)
    return;
  const auto *block = static_cast<const grt_step *>(
      rank.device->fetch(rank.deviceStep, sizeof(grt_step)));
  fetched.norm = &block->local_norm_squared;
  if (rank.graphs.capturing)
    rank.graphs.step = block;
}

LossSums StepEnd::fetchedLosses() const {
  LossSums sums;
  const int64_t values = rank.manifest.lossValues;
  for (int64_t m = 0; fetched.losses && m < rank.manifest.microBatches; ++m) {
    const double *of = fetched.losses + m * values;
    sums += {of[0], values > 1 ? of[1] : 0};
  }
  return sums;
}

void StepEnd::addLosses() {
  rank.results.ownLoss = rank.progress.earlierLosses;
  rank.results.ownLoss += fetchedLosses();
}

void StepEnd::awaitGraph() {
  auto areThere = [&] {
    const volatile uint64_t &step = rank.graphs.step->step;
    return step == rank.input->step;
  };
  if (rank.graphs.eventsTell && rank.device->hasHostEvents()) {
    rank.device->await(Rank::resultsEvent);
    // A driver might take an earlier start's record for this one's.
    rank.graphs.eventsTell = areThere();
    if (rank.graphs.eventsTell)
      return;
  }
  rank.device->wait();
  if (!areThere())
    rank.failHere("the graph has left results of step " +
                  str(rank.graphs.step->step) + ", expected " +
                  str(rank.input->step));
}

void StepEnd::gather(bool ofGraph) {
  if (ofGraph)
    awaitGraph();
  else
    rank.device->wait();
  addLosses();
  if (rank.state.ahead() && rank.input->mode == GRT_MODE_TRAIN)
    return shareLosses();
  const bool trains = rank.input->mode == GRT_MODE_TRAIN;
  RankNumbers::gather(rank.host,
                      {(fetched.norm ? *fetched.norm : 0) +
                           (fetched.normAtHome ? *fetched.normAtHome : 0),
                       rank.results.ownLoss.loss,
                       trains ? double(rank.input->requests) : 0,
                       double(rank.memoryUse().measuredPeakBytes),
                       rank.results.ownLoss.squares},
                      gathered);
  double squares = 0, peak = 0;
  uint32_t requests = 0;
  rank.results.lossSum = {};
  for (const RankNumbers &each : gathered) {
    squares += each.squares;
    rank.results.lossSum += {each.loss, each.squaredLogSums};
    requests |= uint32_t(each.requests);
    peak = std::max(peak, each.peakBytes);
  }
  rank.results.gradientNorm = std::sqrt(squares);
  rank.results.peakBytes = uint64_t(peak);
  if (trains)
    rank.results.requestsHeard = requests;
}

void StepEnd::hear() {
  const std::optional<ToldNumbers::Sums> heard = told.hear(rank.host);
  if (!heard)
    return;
  rank.results.requestsHeard = heard->requests;
  if (!rank.manifest.clip)
    return;
  normBefore = std::sqrt(heard->squares);
  if (!std::isfinite(normBefore))
    fail(ExitNumerics,
         "step " + str(lastStep) + ": the gradient norm is " +
             (std::isnan(normBefore) ? "nan" : "infinite") +
             ", which is found one batch late: weights are of no use any more, "
             "a checkpoint of before is");
}

void StepEnd::normLate() {
  sumNorm();
  fetch(/*withNorm=*/true);
  rank.device->wait();
  double squares = *fetched.norm;
  hear();
  rank.step->clip_factor = 1;
  if (normBefore >= 0)
    rank.step->clip_factor = std::min(
        1.0, rank.input->hyperparameters.clipNorm / (normBefore + 1e-6));
  if (*rank.device)
    rank.device->upload(reinterpret_cast<char *>(&rank.deviceStep->clip_factor),
                        &rank.step->clip_factor, sizeof(double));
  addLosses();
  told.tell(rank.host, rank.results.ownLoss, rank.input->requests, squares);
  lastStep = rank.input->step;
}

void StepEnd::shareLosses() {
  // The session adds up those of its own process.
  if (rank.state.oneProcess)
    return;
  // What is asked for may come later than losses, from ranks that are behind.
  if (!rank.manifest.clip) {
    hear();
    told.tell(rank.host, rank.results.ownLoss, rank.input->requests,
              /*squares=*/0);
  }
  // Losses are known before the last gradient comes.
  rank.results.lossSum = {};
  for (int other : withLoss)
    rank.results.lossSum += other == rank.self ? rank.results.ownLoss
                                               : told.lossOf(rank.host, other);
}

} // namespace grt
