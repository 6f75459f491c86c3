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

void Rank::reduceGradients(size_t number) {
  const Layer &layer = roleData->layers[number];
  Group *group =
      groupAtHome(number, layer.cutsStateOnly ? GRT_AXIS_SDP : GRT_AXIS_DP);
  activity.setLayer(&layer);
  runningLayer = &layer;
  if (recorder)
    recorder->layer = int32_t(number);
  if (!group)
    return;
  uint64_t held =
      uint64_t(layer.groups[0].shardElements + layer.groups[1].shardElements);
  notePlace("sum of gradients");
  const Side &does = sideOf(layer);
  Communicator *communicator = does.communicator;
  does.memory->order(GRT_STREAM_COMPUTE, GRT_STREAM_GRADIENT);
  communicator->onStream(GRT_STREAM_GRADIENT);
  char *gradient = layer.updatesOnDevice
                       ? arena->base() + layer.residentGradient
                       : home(layer) + layer.gradient;
  const grt_dtype dtype = manifest.accumulatorType();
  if (isHosts(layer))
    noteAtHome(gradient, held * dtypeBytes(dtype), "sum of gradients");
  if (layer.cutsStateOnly) {
    // Of what it does not update a rank needs no sum; borrowers' gradients go
    // to the owner, whole from any of them.
    uint64_t owned = uint64_t(layer.ownedElements());
    uint64_t borrowed = uint64_t(layer.groups[1].shardElements);
    if (owned)
      communicator->reduceScatter(*group, gradient,
                                  gradient - stateShift(layer, local) *
                                                 int64_t(dtypeBytes(dtype)),
                                  owned, dtype, /*accumulate=*/false);
    if (borrowed)
      communicator->allReduce(*group,
                              gradient + (held - borrowed) * dtypeBytes(dtype),
                              borrowed, dtype);
  } else {
    communicator->allReduce(*group, gradient, held, dtype);
  }
  communicator->onStream(GRT_STREAM_COMPUTE);
  if (isHosts(layer))
    return;
  leaveMark(GRT_STREAM_GRADIENT);
  reducing = true;
}

void Rank::awaitSums(grt_stream stream) {
  if (reducing)
    device->order(GRT_STREAM_GRADIENT, stream);
}

void Rank::synchroniseGradients(const ChunkState &at) {
  if (!at.reduced)
    for (size_t i = at.chunk->endLayer(); i-- > at.chunk->firstLayer;)
      reduceGradients(i);
  awaitSums(GRT_STREAM_COMPUTE);
  reducing = false;
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
    const Layer &layer = roleData->layers[end->layer];
    uint64_t held =
        uint64_t(layer.groups[0].shardElements + layer.groups[1].shardElements);
    if (!layer.isAway)
      continue;
    noteAtHome(
        tiedAddress(*end, reduce),
        held * (reduce ? manifest.accumulatorBytes() : manifest.elementBytes()),
        "tied parameters");
  }
}

void Rank::tie(bool reduce) {
  runningLayer = nullptr;
  notePlace(reduce ? "sum of tied gradients" : "copy of tied parameters");
  if (reduce && tieScratch.bytes) {
    if (tieScratch.offset == roleData->slots.offset)
      beforeFunction(0);
    else
      beforeBoundary(0, tieScratch);
    begin(tieScratch);
  }
  if (reduce)
    copyTiedGradients();
  for (size_t i = 0; i < manifest.ties.size(); ++i) {
    const Tie &tie = manifest.ties[i];
    bool owns = tie.owner.role == roleNumber;
    if (!owns && tie.borrower.role != roleNumber)
      continue;
    const TieEnd &end = tie.borrower;
    if (reduce && manifest.roles[end.role].layers[end.layer].forwardOnly)
      continue;
    if (!isLeft(i)) {
      ExchangeCall call = tieCall(i, reduce);
      noteTied(tie, reduce);
      if (!call.table->empty())
        homeOf(tie).communicator->exchange({&call, 1});
    } else if (!reduce && owns) {
      leaveTiedValues(i);
    } else if (!reduce) {
      awaitsTied = true;
    } else if (owns) {
      takeTied(i, /*reduce=*/true);
    } else {
      leaveTiedGradients(i);
    }
  }
  if (reduce)
    end(tieScratch);
  afterFunctions();
}

void Rank::norm() {
  if (manifest.delay)
    return normLate();
  // Nothing depends on it, so nobody waits for it.
  if (state.ahead())
    return;
  sumNorm();
  fetchResults(/*withNorm=*/true);
  decideUpdate();
}

void Rank::sumNorm() {
  // Of what is updated on the device they were added in front of that.
  for (size_t i = 0; i < layers.size(); ++i)
    if (!roleData->layers[i].updatesOnDevice)
      addSquares(i);
}

void Rank::addSquares(size_t number) {
  const Layer &layer = roleData->layers[number];
  // Of what several ranks hold alike one of them adds the squares.
  if (layer.norm < 0 || (layer.replicated && !layers[number].isFirst))
    return;
  bind(number, 0, 0, Phase::Update);
  call(layer.norm, layer, Phase::Norm);
}

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
    if ((graphStep->update_left_out != 0) != decision.leftOut ||
        graphStep->clip_factor != decision.clipFactor)
      failHere("the device decides otherwise than the host: it " +
               std::string(graphStep->update_left_out ? "leaves the update out"
                                                      : "updates") +
               " and clips by " + std::to_string(graphStep->clip_factor) +
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
  fetchedLosses = fetchedNorm = fetchedNormAtHome = nullptr;
  if (hasLoss())
    fetchedLosses = static_cast<const double *>(
        device->fetch(arena->base() + roleData->loss.offset,
                      uint64_t(manifest.microBatches) * sizeof(double)));
  if (!withNorm)
    return;
  if (hostIsHome())
    fetchedNormAtHome = &step->local_norm_squared;
  if (!updatesHere)
    return;
  const auto *block = static_cast<const grt_step *>(
      device->fetch(deviceStep, sizeof(grt_step)));
  fetchedNorm = &block->local_norm_squared;
  if (capturing)
    graphStep = block;
}

void Rank::addLosses() {
  ownLoss = earlierLosses;
  for (int64_t m = 0; fetchedLosses && m < manifest.microBatches; ++m)
    ownLoss += fetchedLosses[m];
}

void Rank::awaitGraph() {
  auto areThere = [&] {
    const volatile uint64_t &step = graphStep->step;
    return step == input->step;
  };
  if (eventsTell && device->hasHostEvents()) {
    device->await(resultsEvent);
    // A driver might take an earlier start's record for this one's.
    eventsTell = areThere();
    if (eventsTell)
      return;
  }
  device->wait();
  if (!areThere())
    failHere("the graph has left results of step " + str(graphStep->step) +
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
  double mine[2] = {(fetchedNorm ? *fetchedNorm : 0) +
                        (fetchedNormAtHome ? *fetchedNormAtHome : 0),
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

void Rank::update(const Chunk &chunk) {
  // Values that others have not taken yet are about to change.
  for (size_t i = 0; i < manifest.ties.size(); ++i)
    if (isLeft(i) && manifest.ties[i].owner.role == roleNumber)
      for (const ExchangePeer &peer : state.ties[i].broadcast[self].sends)
        communicator->awaitTaken(peer.peer, i);
  for (size_t i = chunk.firstLayer; i < chunk.endLayer(); ++i) {
    const Layer &layer = roleData->layers[i];
    if (manifest.delay)
      keepWeights(layer);
    if (layer.updatesOnDevice)
      addSquares(i);
    if (layer.update < 0)
      continue;
    bind(i, 0, 0, Phase::Update);
    call(layer.update, layer, Phase::Update);
    if (layer.cutsStateOnly)
      gatherUpdated(i);
  }
  if (updatesOnDevice(chunk))
    forResident(chunk, Resident::Gradients,
                [&](const Extent &extent) { end(extent); });
}

void Rank::gatherUpdated(size_t number) {
  const Layer &layer = roleData->layers[number];
  Group *group = groupAtHome(number, GRT_AXIS_SDP);
  if (!group)
    return;
  uint64_t width = manifest.elementBytes();
  char *parameters = layer.updatesOnDevice
                         ? arena->base() + layer.residentParameter
                         : home(layer) + layer.parameter;
  notePlace("gather of updated parameters");
  if (isHosts(layer))
    noteAtHome(parameters,
               uint64_t(layer.groups[0].shardElements +
                        layer.groups[1].shardElements) *
                   width,
               "gather of updated parameters");
  sideOf(layer).communicator->allGather(
      *group, parameters - stateShift(layer, local) * int64_t(width),
      parameters, uint64_t(layer.ownedElements()) * width);
}

} // namespace grt
