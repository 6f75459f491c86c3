//===- exchange_check.h - What exchanges have to move -----------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_EXCHANGE_CHECK_H
#define GRT_CORE_EXCHANGE_CHECK_H

#include "core/manifest.h"

namespace grt {

/// One side of an exchange: the ranks of a role, the layer whose samples they
/// have, and the size of the buffer on each of them.
struct ExchangeEnd {
  const Role *role;
  const Layer *layer;
  uint64_t bytes;
};

/// Checks an exchange where it is used. Throws Error (2) unless
///
///  - its ranks are those of its ends, and its units inside their buffers;
///  - every unit of a destination is a sample that the rank has of its layer,
///    comes from one rank, and from the unit that is this sample there (not
///    asked where the ends have micro-batches of two sizes);
///  - where it moves several tensors, they lie one behind the other at both
///    ends, in one order.
void checkExchange(const Exchange &exchange, const ExchangeEnd &from,
                   const ExchangeEnd &to);

/// Whether every rank of a role has the same samples of two layers.
bool haveSameSamples(const Role &role, const Layer &one, const Layer &other);

} // namespace grt

#endif // GRT_CORE_EXCHANGE_CHECK_H
