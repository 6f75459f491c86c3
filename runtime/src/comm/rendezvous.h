//===- rendezvous.h - Processes meet at an address ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_COMM_RENDEZVOUS_H
#define GRT_COMM_RENDEZVOUS_H

#include "comm/sockets.h"
#include "comm/tcp.h"

#include <vector>

namespace grt {

/// Everyone's contact, in the order of ranks. Collective. Throws Error, where
/// process 0 knows why on all processes that came.
std::vector<Contact> meet(const Rendezvous &at, const Contact &own);

} // namespace grt

#endif // GRT_COMM_RENDEZVOUS_H
