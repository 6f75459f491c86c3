//===- Concurrency.h - Collectives side by side -----------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Any two collectives whose groups share two or more ranks need one order on
// all of these. On devices with streams it is a question of the strategies of a
// stage's layers what may run beside what.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_STRATEGY_CONCURRENCY_H
#define GALVATRON_STRATEGY_CONCURRENCY_H

#include "galvatron/Strategy/Strategy.h"

#include <string>
#include <vector>

namespace galvatron {

/// Why gradients of a role with these layers cannot be reduced behind their
/// backward passes: an all-reduce would run beside a collective with which it
/// shares two or more ranks, and such two need one order on all of them. Empty
/// if they can. Ranks are local.
std::string whyNotSyncBehind(llvm::ArrayRef<Strategy> layers);

/// Why the sharded parameters of `layer` cannot be gathered while `beside`, its
/// neighbour in the stage, computes: as above, collectives would run beside
/// each other that need one order. Empty if they can. What scatters the
/// neighbour's gradients does not matter: it waits for the gather.
std::string whyNotGatherAhead(const Strategy &beside, const Strategy &layer);

/// Which layers of a role may be gathered while the layer that runs before them
/// computes.
struct GatherAhead {
  bool forward = false, backward = false;
};
std::vector<GatherAhead> gathersAhead(llvm::ArrayRef<Strategy> layers);

} // namespace galvatron

#endif // GALVATRON_STRATEGY_CONCURRENCY_H
