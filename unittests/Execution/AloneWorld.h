//===- AloneWorld.h - A rank without the others -----------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_UNITTESTS_EXECUTION_ALONEWORLD_H
#define GALVATRON_UNITTESTS_EXECUTION_ALONEWORLD_H

#include "grt/session.h"

#include <memory>

namespace galvatron::test {

/// One of `ranks` ranks, whose others are not there: collectives return at once
/// as if every member gave what this one gives, and what is received is what
/// was in the buffer.
std::shared_ptr<grt::World> aloneWorld(int rank, int ranks);

} // namespace galvatron::test

#endif // GALVATRON_UNITTESTS_EXECUTION_ALONEWORLD_H
