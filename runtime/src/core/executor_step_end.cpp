//===- executor_step_end.cpp - What ends a step ---------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Sums of gradients over ranks and between the ends of ties, their norm, losses
// and what is decided from both, and the update.
//
//===----------------------------------------------------------------------===//

#include "core/executor.h"
#include "grt/update_decision.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace grt {

void Rank::runOnStates(const StepPlaces &places,
                       const std::vector<StateCollective> &collectives,
                       grt_stream stream, const char *what) {
  notePlace(what);
  const Side &does = *places.side;
  Communicator &by = *does.communicator;
  does.memory->order(GRT_STREAM_COMPUTE, stream);
  by.onStream(stream);
  for (const StateCollective &each : collectives) {
    const bool gathers = each.kind == CollectiveKind::AllGather;
    noteUseBy(does, gathers ? places.parameters : places.gradients,
              gathers ? places.parameterBytes : places.gradientBytes, what);
    switch (each.kind) {
    case CollectiveKind::AllGather:
      by.allGather(*each.group, each.from, each.to, each.bytes());
      break;
    case CollectiveKind::ReduceScatter:
      by.reduceScatter(*each.group, each.from, each.to, each.elements,
                       each.dtype, /*accumulate=*/false);
      break;
    default:
      by.allReduce(*each.group, each.to, each.elements, each.dtype);
    }
  }
  by.onStream(GRT_STREAM_COMPUTE);
}

void Rank::reduceGradients(size_t number) {
  const Layer &layer = roleData->layers[number];
  const StepPlaces &places = layers[number].places;
  activity.setLayer(&layer);
  runningLayer = &layer;
  if (recorder)
    recorder->layer = int32_t(number);
  if (places.sums.empty())
    return;
  runOnStates(places, places.sums, GRT_STREAM_GRADIENT, "sum of gradients");
  if (places.side->isHost)
    return;
  leaveMark(GRT_STREAM_GRADIENT);
  progress.reduces = true;
}

void Rank::awaitSums(grt_stream stream) {
  if (progress.reduces)
    device->order(GRT_STREAM_GRADIENT, stream);
}

void Rank::synchroniseGradients(const ChunkState &at) {
  if (!at.reduced)
    run(procedures.of(at.number, GRT_TASK_SYNC_GRADIENTS), {});
  awaitSums(GRT_STREAM_COMPUTE);
  progress.reduces = false;
}

char *Rank::tiedAddress(const TieEnd &end, bool gradient) const {
  const Layer &layer = roleData->layers[end.layer];
  return home(layer) + (gradient ? layer.gradient : layer.parameter);
}

ExchangeCall Rank::tieCall(size_t number, bool reduce) const {
  const Tie &tie = manifest.ties[number];
  const TieTables &tables = state.ties[number];
  ExchangeCall call;
  call.table = reduce ? &tables.reduce[self] : &tables.broadcast[self];
  auto address = [&](const TieEnd &end) {
    return end.role == roleNumber ? tiedAddress(end, reduce) : arena->base();
  };
  call.source = address(reduce ? tie.borrower : tie.owner);
  call.destination = address(reduce ? tie.owner : tie.borrower);
  call.bytesPerUnit =
      reduce ? manifest.accumulatorBytes() : manifest.elementBytes();
  call.add = reduce;
  call.dtype = manifest.accumulatorType();
  return call;
}

void Rank::noteTied(const Tie &tie, bool reduce) const {
  for (const TieEnd *end : {&tie.owner, &tie.borrower}) {
    if (end->role != roleNumber)
      continue;
    const StepPlaces &places = layers[size_t(end->layer)].places;
    noteUseBy(*places.home, tiedAddress(*end, reduce),
              reduce ? places.gradientBytes : places.parameterBytes,
              "tied parameters");
  }
}

void Rank::tie(bool reduce) {
  swaps.reachHome();
  runningLayer = nullptr;
  notePlace(reduce ? "sum of tied gradients" : "copy of tied parameters");
  if (reduce && tieScratch.bytes) {
    if (tieScratch.offset == roleData->slots.offset)
      handoffs.beforeFunction(0);
    else
      handoffs.beforeBuffer(0, tieScratch);
    begin(tieScratch);
  }
  if (reduce)
    copyTiedGradients();
  for (const OwnTie &own : ownTies) {
    const size_t number = own.number;
    if (reduce && !own.reduces)
      continue;
    if (!own.isLeft) {
      ExchangeCall call = tieCall(number, reduce);
      noteTied(manifest.ties[number], reduce);
      if (!call.table->empty())
        own.side->communicator->exchange({&call, 1});
    } else if (!reduce && own.owns) {
      leaveTiedValues(number);
    } else if (!reduce) {
      awaitsTied = true;
    } else if (own.owns) {
      takeTied(number, /*reduce=*/true);
    } else {
      leaveTiedGradients(number);
    }
  }
  if (reduce)
    end(tieScratch);
  handoffs.afterFunctions();
}

void Rank::norm() {
  swaps.reachHome();
  if (manifest.delay)
    return normLate();
  // Nothing depends on it, so nobody waits for it.
  if (state.ahead())
    return;
  sumNorm();
  fetchResults(/*withNorm=*/true);
  decideUpdate();
}

void Rank::sumNorm() { run(procedures.norm(), {}); }

void Rank::decideUpdate(bool onDevice) {
  gatherResults(onDevice);
  // The same numbers on all ranks, so the same decision.
  const Hyperparameters &h = input->hyperparameters;
  const UpdateDecision decision = grt::decideUpdate(
      reinterpret_cast<const RankResults *>(gathered.data()),
      uint64_t(host.size()), manifest.clip, h.clipNorm, h.skipNorm);
  updateLeftOut = !manifest.updatesJustInTime && decision.leftOut;
  step->clip_factor = decision.clipFactor;
  if (onDevice) {
    if ((graphs.step->update_left_out != 0) != decision.leftOut ||
        graphs.step->clip_factor != decision.clipFactor)
      failHere("the device decides otherwise than the host: it " +
               std::string(graphs.step->update_left_out
                               ? "leaves the update out"
                               : "updates") +
               " and clips by " + std::to_string(graphs.step->clip_factor) +
               ", expected " + std::to_string(decision.clipFactor) +
               (decision.leftOut ? " and no update" : " and an update"));
    return;
  }
  // On a device this round trip through the host empties its queues: it costs
  // the latency of a copy back, a gather over the host and the launch of the
  // update, some tens of microseconds per step and more across machines. Where
  // the step is one graph the device decides.
  if (*device && updatesHere)
    device->upload(reinterpret_cast<char *>(&deviceStep->clip_factor),
                   &step->clip_factor, sizeof(double));
}

bool Rank::hasLoss() const {
  return roleData->layers.back().output == OutputKind::Loss &&
         layers.back().isFirst;
}

void Rank::fetchResults(bool withNorm) {
  fetched.losses = fetched.norm = fetched.normAtHome = nullptr;
  if (hasLoss())
    fetched.losses = static_cast<const double *>(
        device->fetch(arena->base() + roleData->loss.offset,
                      uint64_t(manifest.microBatches) * sizeof(double)));
  if (!withNorm)
    return;
  if (atHome.isHost)
    fetched.normAtHome = &step->local_norm_squared;
  if (!updatesHere)
    return;
  const auto *block = static_cast<const grt_step *>(
      device->fetch(deviceStep, sizeof(grt_step)));
  fetched.norm = &block->local_norm_squared;
  if (graphs.capturing)
    graphs.step = block;
}

void Rank::addLosses() {
  ownLoss = progress.earlierLosses;
  for (int64_t m = 0; fetched.losses && m < manifest.microBatches; ++m)
    ownLoss += fetched.losses[m];
}

void Rank::awaitGraph() {
  auto areThere = [&] {
    const volatile uint64_t &step = graphs.step->step;
    return step == input->step;
  };
  if (graphs.eventsTell && device->hasHostEvents()) {
    device->await(resultsEvent);
    // A driver might take an earlier start's record for this one's.
    graphs.eventsTell = areThere();
    if (graphs.eventsTell)
      return;
  }
  device->wait();
  if (!areThere())
    failHere("the graph has left results of step " + str(graphs.step->step) +
             ", expected " + str(input->step));
}

void Rank::gatherResults(bool ofGraph) {
  if (ofGraph)
    awaitGraph();
  else
    device->wait();
  addLosses();
  if (state.ahead() && input->mode == GRT_MODE_TRAIN)
    return shareLosses();
  double mine[2] = {(fetched.norm ? *fetched.norm : 0) +
                        (fetched.normAtHome ? *fetched.normAtHome : 0),
                    ownLoss};
  host.gather(mine, gathered);
  double squares = 0;
  lossSum = 0;
  for (size_t r = 0; r < gathered.size(); r += 2) {
    squares += gathered[r];
    lossSum += gathered[r + 1];
  }
  gradientNorm = std::sqrt(squares);
}

void Rank::update(const ChunkState &at) {
  // Values that others have not taken yet are about to change.
  for (const OwnTie &tie : ownTies)
    if (tie.isLeft && tie.owns)
      for (const ExchangePeer &peer :
           state.ties[tie.number].broadcast[self].sends)
        communicator->awaitTaken(peer.peer, tie.number);
  run(procedures.of(at.number, GRT_TASK_UPDATE), {});
}

} // namespace grt
