//===- KeptSets.h - Which values are kept for backward ----------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A forward pass is a graph of operations and the values that they make.
// Backward needs some of the values. It has them because they were kept, which
// takes bytes, or because it computes them again from what was kept and from
// the inputs, which takes time. With a(v) = 1 if value v is available in
// backward, and r(o) = 1 if operation o is computed again, a price of a byte
// asks for the least
//
//   sum over v of price * bytes(v) * a(v) * (1 - r(maker of v))
//   + sum over o of time(o) * r(o)
//
// where needed values are available and the operands of an operation that is
// computed again are, too. Every term has at most one variable that is one and
// one that is zero, so this is a minimum cut: exact, whatever the graph. An
// operation with several results is one variable: it is computed once.
//
// Stepping the price gives the sets on the lower hull of (bytes, time), and
// nothing else can: what lies between two neighbours of the hull is reached by
// one layer of several that has the one set, and others that have the other.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_SEARCH_KEPTSETS_H
#define GALVATRON_SEARCH_KEPTSETS_H

#include "galvatron/Support/Units.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace galvatron {

/// Properties:
/// - an operation stands behind those that make its operands;
/// - every value has one maker. Inputs, which are always available, are no
///   values;
/// - what is needed may be kept, so keeping it is always enough.
struct KeptProblem {
  struct Value {
    int64_t bytes = 0;
    bool needed = false; ///< by backward
    /// False of what is only on its way: the terms of a sum, a gathered value.
    bool mayBeKept = true;
  };
  struct Operation {
    std::vector<size_t> operands, results; ///< numbers of values
    Picoseconds time = 0;
    /// False if it must not run twice.
    bool mayBeRemade = true;
  };
  std::vector<Value> values;
  std::vector<Operation> operations;

  /// The properties above, and sizes, times and their sums not negative.
  llvm::Error check() const;
};

/// Values that are kept, ascending, and what that takes.
struct KeptSet {
  std::vector<size_t> values;
  int64_t bytes = 0;
  Picoseconds time = 0; ///< of what backward computes again

  bool operator==(const KeptSet &other) const = default;
};

/// Bytes and time of keeping these values; nothing if backward needs others
/// besides, or if one of them may not be kept.
std::optional<KeptSet> priceKept(const KeptProblem &problem,
                                 llvm::ArrayRef<size_t> kept);

/// A set with the least bytesWeight * bytes + timeWeight * time. Weights are
/// not negative and below 2^62; sums of bytes and of times stay below 2^62.
KeptSet cheapestKept(const KeptProblem &problem, int64_t bytesWeight,
                     int64_t timeWeight);

/// The vertices of the lower hull of (bytes, time) over all sets, from the one
/// that takes the least time (and of these the fewest bytes) to the one that
/// takes the fewest bytes (and of these the least time).
std::vector<KeptSet> keptHull(const KeptProblem &problem);

/// Returns at most `most` vertices between the first and the last one,
/// ascending. The loss of a choice is the largest time between the hull and
/// what mixes of the chosen ones and both ends take for the same bytes. Of
/// choices whose loss is at most `enough`, or the least there is, this is one
/// with the fewest vertices and of these the least loss.
std::vector<size_t> choosePoints(llvm::ArrayRef<KeptSet> hull, size_t most,
                                 Picoseconds enough = 0);

} // namespace galvatron

#endif // GALVATRON_SEARCH_KEPTSETS_H
