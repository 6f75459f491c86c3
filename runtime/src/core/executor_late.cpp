//===- executor_late.cpp - Steps whose gradients are late -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A schedule that goes on (docs/2bw.md) begins with the next batch while it
// ends one: forward passes of the next batch use the newest weights W(t), what
// is left of batch t uses W(t-1), and the update makes W(t+1) of W(t). Newest
// parameters always lie in front, where checkpoints, ties and evaluations look;
// before an update makes them newer they are copied over those a version older,
// which nobody needs any more.
//
// What was begun of a batch is nothing but time: it can be given up at any
// moment and done again.
//
//===----------------------------------------------------------------------===//

#include "core/error.h"
#include "core/executor.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace grt {

void Rank::completeWeights() {
  if (!std::exchange(hasOlderWeights, true))
    run(procedures.older(), {});
}

//===----------------------------------------------------------------------===//
// Ties
//===----------------------------------------------------------------------===//
//
// Neither end waits for the other, as long as that is not far behind. The
// borrower leaves a copy of its gradient, as the next batch's first backward
// pass is next; the owner takes it for its own update of the same batch, which
// comes later in any case. The owner leaves the value where it is, as its next
// update is a batch away; the borrower takes it before its own next update, or
// before its first forward pass that needs it. Over the memory of devices both
// ends meet instead.

void Rank::copyTiedGradients() {
  auto isMine = [](const OwnTie &tie) { return tie.isLeft && tie.borrows; };
  for (const OwnTie &tie : ownTies)
    if (isMine(tie))
      for (const ExchangePeer &peer : state.ties[tie.number].reduce[self].sends)
        communicator->awaitTaken(peer.peer, tie.number);
  const uint64_t wide = manifest.accumulatorBytes();
  int copied = -1;
  for (const OwnTie &tie : ownTies) {
    // Of a layer all that is borrowed.
    const int number = manifest.ties[tie.number].borrower.layer;
    if (!isMine(tie) || std::exchange(copied, number) == number)
      continue;
    const Layer &layer = roleData->layers[size_t(number)];
    uint64_t borrowed = uint64_t(layer.groups[1].shardElements) * wide;
    char *gradients = home(layer) + layer.gradient +
                      uint64_t(layer.groups[0].shardElements) * wide;
    device->copy(GRT_STREAM_COMPUTE, gradients + borrowed, gradients, borrowed);
  }
}

void Rank::leaveTiedGradients(size_t number) {
  ExchangeCall call = tieCall(number, /*reduce=*/true);
  const Layer &layer =
      roleData->layers[size_t(manifest.ties[number].borrower.layer)];
  // Borrowed gradients are a layer's last ones, their copy is behind them.
  call.source = static_cast<const char *>(call.source) +
                uint64_t(layer.groups[1].shardElements) * call.bytesPerUnit;
  for (const ExchangePeer &peer : call.table->sends)
    communicator->post(call, peer, number);
}

void Rank::leaveTiedValues(size_t number) {
  ExchangeCall call = tieCall(number, /*reduce=*/false);
  for (const ExchangePeer &peer : call.table->sends)
    communicator->post(call, peer, number);
}

void Rank::takeTied(size_t number, bool reduce) {
  ExchangeCall call = tieCall(number, reduce);
  for (const ExchangePeer &peer : call.table->receives)
    communicator->take(call, peer, number);
}

void Rank::takeTiedValues() {
  if (!std::exchange(awaitsTied, false))
    return;
  for (const OwnTie &tie : ownTies)
    if (tie.isLeft && tie.borrows)
      takeTied(tie.number, /*reduce=*/false);
}

//===----------------------------------------------------------------------===//
// Numbers that all ranks want to know
//===----------------------------------------------------------------------===//

void Rank::hearNumbers() {
  const std::optional<ToldNumbers::Sums> heard = told.hear(host);
  if (!heard)
    return;
  requestsHeard = heard->requests;
  if (!manifest.clip)
    return;
  normBefore = std::sqrt(heard->squares);
  if (!std::isfinite(normBefore))
    fail(ExitNumerics,
         "step " + str(lastStep) + ": the gradient norm is " +
             (std::isnan(normBefore) ? "nan" : "infinite") +
             ", which is found one batch late: weights are of no use any more, "
             "a checkpoint of before is");
}

void Rank::normLate() {
  sumNorm();
  fetchResults(/*withNorm=*/true);
  device->wait();
  double squares = *fetched.norm;
  hearNumbers();
  step->clip_factor = 1;
  if (normBefore >= 0)
    step->clip_factor =
        std::min(1.0, input->hyperparameters.clipNorm / (normBefore + 1e-6));
  if (*device)
    device->upload(reinterpret_cast<char *>(&deviceStep->clip_factor),
                   &step->clip_factor, sizeof(double));
  addLosses();
  told.tell(host, ownLoss, input->requests, squares);
  lastStep = input->step;
}

void Rank::shareLosses() {
  // The session adds up those of its own process.
  if (state.oneProcess)
    return;
  // What is asked for may come later than losses, from ranks that are behind.
  if (!manifest.clip) {
    hearNumbers();
    told.tell(host, ownLoss, input->requests, /*squares=*/0);
  }
  // Losses are known before the last gradient comes.
  lossSum = 0;
  for (int rank : withLoss)
    lossSum += rank == self ? ownLoss : told.lossOf(host, rank);
}

void Rank::settle() { takeTiedValues(); }

//===----------------------------------------------------------------------===//
// A step
//===----------------------------------------------------------------------===//

void Rank::trainLate() {
  // The host writes where an earlier batch has been read.
  device->waitForAll();
  leaveGraphs();
  if (input->begun) {
    ++progress.since;
    updateLeftOut = false;
    for (ChunkState &chunk : chunks)
      chunk.beginStep();
    activity.setStep(input->step);
  } else {
    beginStep();
  }
  completeWeights();
  // Hyperparameters may have changed since the batch was begun.
  fillStep(0, input->step, input->batch->countedValues);
  bool goesOn = input->next != nullptr;
  if (goesOn) {
    fillStep(1, input->step + 1, input->next->countedValues);
    fillData(1, *input->next);
  }
  if (!input->begun)
    runPart(GRT_PART_PROLOGUE, false);
  runPart(goesOn ? GRT_PART_STEADY : GRT_PART_DRAIN, false);
  runPart(GRT_PART_STEP_END, false);
  joinStreams();
  turnTo(0);
  fetchResults(/*withNorm=*/false);
  gatherResults();
}

} // namespace grt
