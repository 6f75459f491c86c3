//===- ties.cpp - Parameters that two layers share ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/ties.h"
#include <utility>

namespace grt {

char *Ties::addressOf(const TieEnd &end, bool gradient) const {
  const Layer &layer = facts.role->layers[end.layer];
  return memories.home(layer) + (gradient ? layer.gradient : layer.parameter);
}

ExchangeCall Ties::callOf(size_t number, bool reduce) const {
  const Tie &tie = facts.manifest.ties[number];
  const TieTables &tables = facts.state.ties[number];
  ExchangeCall call;
  call.table =
      reduce ? &tables.reduce[facts.self] : &tables.broadcast[facts.self];
  auto address = [&](const TieEnd &end) {
    return end.role == facts.roleNumber ? addressOf(end, reduce)
                                        : memories.arena->base();
  };
  call.source = address(reduce ? tie.borrower : tie.owner);
  call.destination = address(reduce ? tie.owner : tie.borrower);
  call.bytesPerUnit = reduce ? facts.manifest.accumulatorBytes()
                             : facts.manifest.elementBytes();
  call.add = reduce;
  call.dtype = facts.manifest.accumulatorType();
  return call;
}

void Ties::note(const Tie &tie, bool reduce) const {
  for (const TieEnd *end : {&tie.owner, &tie.borrower}) {
    if (end->role != facts.roleNumber)
      continue;
    const StepPlaces &places = memories.layers[size_t(end->layer)].places;
    memories.noteUseBy(*places.home, addressOf(*end, reduce),
                       reduce ? places.gradientBytes : places.parameterBytes,
                       "tied parameters");
  }
}

void Ties::run(bool reduce) {
  memories.swaps.reachHome();
  observer.at(nullptr);
  observer.notePlace(reduce ? "sum of tied gradients"
                            : "copy of tied parameters");
  if (reduce && scratch.bytes) {
    if (scratch.offset == facts.role->slots.offset)
      streams.handoffs.beforeFunction(0);
    else
      streams.handoffs.beforeBuffer(0, scratch);
    inUse.begin(scratch);
  }
  if (reduce)
    copyGradients();
  for (const Own &each : own) {
    const size_t number = each.number;
    if (reduce && !each.reduces)
      continue;
    if (!each.isLeft) {
      ExchangeCall call = callOf(number, reduce);
      note(facts.manifest.ties[number], reduce);
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
    inUse.end(scratch);
  streams.handoffs.afterFunctions();
}

void Ties::copyGradients() {
  auto isMine = [](const Own &tie) { return tie.isLeft && tie.borrows; };
  for (const Own &tie : own)
    if (isMine(tie))
      for (const ExchangePeer &peer :
           facts.state.ties[tie.number].reduce[facts.self].sends)
        memories.communicator->awaitTaken(peer.peer, tie.number);
  const uint64_t wide = facts.manifest.accumulatorBytes();
  int copied = -1;
  for (const Own &tie : own) {
    // Of a layer all that is borrowed.
    const int number = facts.manifest.ties[tie.number].borrower.layer;
    if (!isMine(tie) || std::exchange(copied, number) == number)
      continue;
    const Layer &layer = facts.role->layers[size_t(number)];
    uint64_t borrowed = uint64_t(layer.groups[1].shardElements) * wide;
    char *gradients = memories.home(layer) + layer.gradient +
                      uint64_t(layer.groups[0].shardElements) * wide;
    memories.device->copy(GRT_STREAM_COMPUTE, gradients + borrowed, gradients,
                          borrowed);
  }
}

void Ties::leaveGradients(size_t number) {
  ExchangeCall call = callOf(number, /*reduce=*/true);
  const Layer &layer =
      facts.role->layers[size_t(facts.manifest.ties[number].borrower.layer)];
  // Borrowed gradients are a layer's last ones, their copy is behind them.
  call.source = static_cast<const char *>(call.source) +
                uint64_t(layer.groups[1].shardElements) * call.bytesPerUnit;
  for (const ExchangePeer &peer : call.table->sends)
    memories.communicator->post(call, peer, number);
}

void Ties::leaveValues(size_t number) {
  ExchangeCall call = callOf(number, /*reduce=*/false);
  for (const ExchangePeer &peer : call.table->sends)
    memories.communicator->post(call, peer, number);
}

void Ties::take(size_t number, bool reduce) {
  ExchangeCall call = callOf(number, reduce);
  for (const ExchangePeer &peer : call.table->receives)
    memories.communicator->take(call, peer, number);
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
           facts.state.ties[tie.number].broadcast[facts.self].sends)
        memories.communicator->awaitTaken(peer.peer, tie.number);
}

} // namespace grt
