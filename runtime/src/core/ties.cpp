//===- ties.cpp - Parameters that two layers share ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/ties.h"
#include "core/executor.h"

#include <utility>

namespace grt {

char *Ties::addressOf(const TieEnd &end, bool gradient) const {
  const Layer &layer = rank.roleData->layers[end.layer];
  return rank.home(layer) + (gradient ? layer.gradient : layer.parameter);
}

ExchangeCall Ties::callOf(size_t number, bool reduce) const {
  const Tie &tie = rank.manifest.ties[number];
  const TieTables &tables = rank.state.ties[number];
  ExchangeCall call;
  call.table =
      reduce ? &tables.reduce[rank.self] : &tables.broadcast[rank.self];
  auto address = [&](const TieEnd &end) {
    return end.role == rank.roleNumber ? addressOf(end, reduce)
                                       : rank.arena->base();
  };
  call.source = address(reduce ? tie.borrower : tie.owner);
  call.destination = address(reduce ? tie.owner : tie.borrower);
  call.bytesPerUnit =
      reduce ? rank.manifest.accumulatorBytes() : rank.manifest.elementBytes();
  call.add = reduce;
  call.dtype = rank.manifest.accumulatorType();
  return call;
}

void Ties::note(const Tie &tie, bool reduce) const {
  for (const TieEnd *end : {&tie.owner, &tie.borrower}) {
    if (end->role != rank.roleNumber)
      continue;
    const StepPlaces &places = rank.layers[size_t(end->layer)].places;
    rank.noteUseBy(*places.home, addressOf(*end, reduce),
                   reduce ? places.gradientBytes : places.parameterBytes,
                   "tied parameters");
  }
}

void Ties::run(bool reduce) {
  rank.swaps.reachHome();
  rank.runningLayer = nullptr;
  rank.notePlace(reduce ? "sum of tied gradients" : "copy of tied parameters");
  if (reduce && scratch.bytes) {
    if (scratch.offset == rank.roleData->slots.offset)
      rank.handoffs.beforeFunction(0);
    else
      rank.handoffs.beforeBuffer(0, scratch);
    rank.begin(scratch);
  }
  if (reduce)
    copyGradients();
  for (const Own &each : own) {
    const size_t number = each.number;
    if (reduce && !each.reduces)
      continue;
    if (!each.isLeft) {
      ExchangeCall call = callOf(number, reduce);
      note(rank.manifest.ties[number], reduce);
      if (!call.table->empty())
        each.side->communicator->exchange({&call, 1});
    } else if (!reduce && each.owns) {
      leaveValues(number);
    } else if (!reduce) {
      awaitsValues = true;
    } else if (each.owns) {
      take(number, /*reduce=*/true);
    } else {
      leaveGradients(number);
    }
  }
  if (reduce)
    rank.end(scratch);
  rank.handoffs.afterFunctions();
}

void Ties::copyGradients() {
  auto isMine = [](const Own &tie) { return tie.isLeft && tie.borrows; };
  for (const Own &tie : own)
    if (isMine(tie))
      for (const ExchangePeer &peer :
           rank.state.ties[tie.number].reduce[rank.self].sends)
        rank.communicator->awaitTaken(peer.peer, tie.number);
  const uint64_t wide = rank.manifest.accumulatorBytes();
  int copied = -1;
  for (const Own &tie : own) {
    // Of a layer all that is borrowed.
    const int number = rank.manifest.ties[tie.number].borrower.layer;
    if (!isMine(tie) || std::exchange(copied, number) == number)
      continue;
    const Layer &layer = rank.roleData->layers[size_t(number)];
    uint64_t borrowed = uint64_t(layer.groups[1].shardElements) * wide;
    char *gradients = rank.home(layer) + layer.gradient +
                      uint64_t(layer.groups[0].shardElements) * wide;
    rank.device->copy(GRT_STREAM_COMPUTE, gradients + borrowed, gradients,
                      borrowed);
  }
}

void Ties::leaveGradients(size_t number) {
  ExchangeCall call = callOf(number, /*reduce=*/true);
  const Layer &layer =
      rank.roleData->layers[size_t(rank.manifest.ties[number].borrower.layer)];
  // Borrowed gradients are a layer's last ones, their copy is behind them.
  call.source = static_cast<const char *>(call.source) +
                uint64_t(layer.groups[1].shardElements) * call.bytesPerUnit;
  for (const ExchangePeer &peer : call.table->sends)
    rank.communicator->post(call, peer, number);
}

void Ties::leaveValues(size_t number) {
  ExchangeCall call = callOf(number, /*reduce=*/false);
  for (const ExchangePeer &peer : call.table->sends)
    rank.communicator->post(call, peer, number);
}

void Ties::take(size_t number, bool reduce) {
  ExchangeCall call = callOf(number, reduce);
  for (const ExchangePeer &peer : call.table->receives)
    rank.communicator->take(call, peer, number);
}

void Ties::takeValues() {
  if (!std::exchange(awaitsValues, false))
    return;
  for (const Own &tie : own)
    if (tie.isLeft && tie.borrows)
      take(tie.number, /*reduce=*/false);
}

void Ties::awaitTaken() const {
  for (const Own &tie : own)
    if (tie.isLeft && tie.owns)
      for (const ExchangePeer &peer :
           rank.state.ties[tie.number].broadcast[rank.self].sends)
        rank.communicator->awaitTaken(peer.peer, tie.number);
}

} // namespace grt
