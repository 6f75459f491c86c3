//===- step_end.cpp - Losses, norms and what is decided -------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/step_end.h"
#include "base/error.h"
#include "grt/update_decision.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace grt {

void StepEnd::decide(bool ofUpdate) {
  fetch(/*withNorm=*/true);
  decideFetched(ofUpdate, /*onDevice=*/false);
}

void StepEnd::decideFetched(bool ofUpdate, bool onDevice) {
  gather(onDevice);
  // The same numbers on all ranks, so the same decision.
  const Hyperparameters &h = batch.input->hyperparameters;
  for (size_t r = 0; r < gathered.ranks(); ++r) {
    const RankNumbers &each = gathered[r];
    decidedBy[r] = {each.squares, each.loss.loss + each.loss.squares};
  }
  const UpdateDecision decision =
      decideUpdate(decidedBy.data(), uint64_t(facts.host.size()),
                   facts.manifest.clip, h.clipNorm, h.skipNorm);
  results.updateLeftOut = ofUpdate && decision.leftOut;
  batch.step->clip_factor = decision.clipFactor;
  if (onDevice)
    return checkDecision(decision);
  // On a device this round trip through the host empties its queues: it costs
  // the latency of a copy back, a gather over the host and the launch of the
  // update, some tens of microseconds per step and more across machines. Where
  // the step is one graph the device decides.
  if (memories.updatesHere)
    batch.uploadClipFactor();
}

void StepEnd::checkDecision(const UpdateDecision &decision) const {
  const bool leftOut = graphStep->update_left_out != 0;
  if (leftOut != decision.leftOut ||
      graphStep->clip_factor != decision.clipFactor)
    observer.failHere(
        "the device decides otherwise than the host: it " +
        std::string(leftOut ? "leaves the update out" : "updates") +
        " and clips by " + std::to_string(graphStep->clip_factor) +
        ", expected " + std::to_string(decision.clipFactor) +
        (decision.leftOut ? " and no update" : " and an update"));
}

void StepEnd::meet() {
  fetch(/*withNorm=*/false);
  gather(/*ofGraph=*/false);
}

void StepEnd::fetch(bool withNorm) {
  fetched.losses = fetched.norm = fetched.normAtHome = nullptr;
  if (memories.hasLoss())
    fetched.losses = static_cast<const double *>(memories.device->fetch(
        memories.arena->base() + facts.role->loss.offset,
        uint64_t(facts.manifest.microBatches) * facts.manifest.lossBytes()));
  if (!withNorm)
    return;
  if (memories.atHome.isHost)
    fetched.normAtHome = &batch.step->local_norm_squared;
  if (!memories.updatesHere)
    return;
  const auto *block = static_cast<const grt_step *>(
      memories.device->fetch(batch.deviceStep, sizeof(grt_step)));
  fetched.norm = &block->local_norm_squared;
  if (observer.capturing)
    graphStep = block;
}

LossSums StepEnd::fetchedLosses() const {
  LossSums sums;
  const int64_t values = facts.manifest.lossValues;
  for (int64_t m = 0; fetched.losses && m < facts.manifest.microBatches; ++m) {
    const double *of = fetched.losses + m * values;
    sums += {of[0], values > 1 ? of[1] : 0};
  }
  return sums;
}

void StepEnd::addLosses() {
  results.ownLoss = batch.earlierLosses;
  results.ownLoss += fetchedLosses();
}

void StepEnd::awaitGraph() {
  auto areThere = [&] {
    const volatile uint64_t &step = graphStep->step;
    return step == batch.input->step;
  };
  if (eventsTell && memories.device->hasHostEvents()) {
    memories.device->await(resultsEvent);
    // A driver might take an earlier start's record for this one's.
    eventsTell = areThere();
    if (eventsTell)
      return;
  }
  memories.device->wait();
  if (!areThere())
    observer.failHere("the graph has left results of step " +
                      str(graphStep->step) + ", expected " +
                      str(batch.input->step));
}

void StepEnd::gather(bool ofGraph) {
  if (ofGraph)
    awaitGraph();
  else
    memories.device->wait();
  addLosses();
  const bool trains = batch.input->mode == GRT_MODE_TRAIN;
  gathered.mine().front() = {(fetched.norm ? *fetched.norm : 0) +
                                 (fetched.normAtHome ? *fetched.normAtHome : 0),
                             results.ownLoss,
                             trains ? batch.input->requests : 0,
                             inUse.figures().measuredPeakBytes};
  gathered.gather(facts.host);
  double squares = 0;
  uint64_t requests = 0;
  results.lossSum = {};
  results.peakBytes = 0;
  for (size_t r = 0; r < gathered.ranks(); ++r) {
    const RankNumbers &each = gathered[r];
    squares += each.squares;
    results.lossSum += each.loss;
    requests |= each.requests;
    results.peakBytes = std::max(results.peakBytes, each.peakBytes);
  }
  results.gradientNorm = std::sqrt(squares);
  if (trains)
    results.requestsHeard = uint32_t(requests);
}

//===----------------------------------------------------------------------===//
// Ranks that go on without the others
//===----------------------------------------------------------------------===//

void StepEnd::tellLoss() {
  if (!lossIsKnown || !memories.hasLoss())
    return;
  fetch(/*withNorm=*/false);
  addLosses();
  lossIsKnown(results.ownLoss);
}

void StepEnd::tellAll() {
  fetch(/*withNorm=*/false);
  memories.device->wait();
  addLosses();
  // The session adds up those of its own process.
  if (facts.state.oneProcess)
    return;
  // What is asked for may come later than losses, from ranks that are behind.
  if (!std::exchange(hasTold, false)) {
    hear();
    told.tell(facts.host, results.ownLoss, batch.input->requests,
              /*squares=*/0);
  }
  // Losses are known before the last gradient comes.
  results.lossSum = {};
  for (const Role &role : facts.manifest.roles)
    if (role.layers.back().output == OutputKind::Loss)
      for (int other : role.devices)
        results.lossSum += other == facts.self ? results.ownLoss
                                               : told.lossOf(facts.host, other);
}

std::optional<ToldNumbers::Sums> StepEnd::hear() {
  const std::optional<ToldNumbers::Sums> heard = told.hear(facts.host);
  if (heard)
    results.requestsHeard = heard->requests;
  return heard;
}

void StepEnd::decideLate() {
  fetch(/*withNorm=*/true);
  memories.device->wait();
  const double squares = *fetched.norm;
  if (const std::optional<ToldNumbers::Sums> heard = hear()) {
    normBefore = std::sqrt(heard->squares);
    if (!std::isfinite(normBefore))
      fail(ExitNumerics,
           "step " + str(batch.input->step - 1) + ": the gradient norm is " +
               (std::isnan(normBefore) ? "nan" : "infinite") +
               ", which is found one batch late: weights are of no use any "
               "more, a checkpoint of before is");
  }
  batch.step->clip_factor = 1;
  if (normBefore >= 0)
    batch.step->clip_factor = std::min(
        1.0, batch.input->hyperparameters.clipNorm / (normBefore + 1e-6));
  batch.uploadClipFactor();
  addLosses();
  told.tell(facts.host, results.ownLoss, batch.input->requests, squares);
  hasTold = true;
}

} // namespace grt
