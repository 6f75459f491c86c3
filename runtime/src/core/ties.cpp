//===- ties.cpp - Parameters that two layers share ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/ties.h"
#include "base/error.h"

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

const Side &Ties::sideOf(const Tie &tie) const {
  const TieEnd &end = owns(tie) ? tie.owner : tie.borrower;
  return *memories.layers[size_t(end.layer)].places.home;
}

void Ties::run(const gvx::Command &command) {
  const auto number = size_t(command.number);
  switch (command.kind) {
  case gvx::CommandKind::SumTied:
  case gvx::CommandKind::GiveTied:
    return meet(number, command.kind == gvx::CommandKind::SumTied);
  case gvx::CommandKind::KeepTied:
    return keepGradients(size_t(command.layer));
  case gvx::CommandKind::LeaveTied:
    return leave(number);
  case gvx::CommandKind::TakeTied:
    return take(number);
  case gvx::CommandKind::ExpectTied:
    expected[number] = true;
    return;
  case gvx::CommandKind::AwaitTied:
    return awaitTaken(number);
  default:
    observer.failHere("command " + str(uint8_t(command.kind)) +
                      " is none that a rank runs");
  }
}

void Ties::meet(size_t number, bool reduce) {
  const Tie &tie = facts.manifest.ties[number];
  observer.at(nullptr);
  observer.notePlace(reduce ? "sum of tied gradients"
                            : "copy of tied parameters");
  const Extent arriving = reduce ? scratch : Extent();
  if (arriving.bytes) {
    if (arriving.offset == facts.role->slots.offset)
      streams.handoffs.beforeFunction(0);
    else
      streams.handoffs.beforeBuffer(0, arriving);
    inUse.begin(arriving);
  }
  const ExchangeCall call = callOf(number, reduce);
  note(tie, reduce);
  if (!call.table->empty())
    sideOf(tie).communicator->exchange({&call, 1});
  inUse.end(arriving);
}

uint64_t Ties::behindBorrowed(const Layer &layer) const {
  return uint64_t(layer.groups[1].shardElements) *
         facts.manifest.accumulatorBytes();
}

void Ties::keepGradients(size_t number) {
  const Layer &layer = facts.role->layers[number];
  const uint64_t bytes = behindBorrowed(layer);
  char *gradients = memories.home(layer) + layer.gradient +
                    uint64_t(layer.groups[0].shardElements) *
                        facts.manifest.accumulatorBytes();
  memories.device->copy(GRT_STREAM_COMPUTE, gradients + bytes, gradients,
                        bytes);
}

void Ties::leave(size_t number) {
  const Tie &tie = facts.manifest.ties[number];
  const bool reduce = !owns(tie);
  ExchangeCall call = callOf(number, reduce);
  // Borrowed gradients are a layer's last ones, their copy is behind them.
  if (reduce)
    call.source =
        static_cast<const char *>(call.source) +
        behindBorrowed(facts.role->layers[size_t(tie.borrower.layer)]);
  for (const ExchangePeer &peer : call.table->sends)
    memories.communicator->post(call, peer, number);
}

void Ties::take(size_t number) {
  const bool reduce = owns(facts.manifest.ties[number]);
  if (!reduce && !expected[number])
    return;
  expected[number] = false;
  const ExchangeCall call = callOf(number, reduce);
  for (const ExchangePeer &peer : call.table->receives)
    memories.communicator->take(call, peer, number);
}

void Ties::awaitTaken(size_t number) const {
  const TieTables &tables = facts.state.ties[number];
  const bool reduce = !owns(facts.manifest.ties[number]);
  for (const ExchangePeer &peer :
       (reduce ? tables.reduce : tables.broadcast)[facts.self].sends)
    memories.communicator->awaitTaken(peer.peer, number);
}

} // namespace grt
