//===- gather.h - Global views of what ranks hold -------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CHECKPOINT_GATHER_H
#define GRT_CHECKPOINT_GATHER_H

#include "core/executor.h"

#include <memory>
#include <span>
#include <vector>

namespace grt {

enum class Held {
  Parameter,
  Gradient,
  FirstState,  ///< m, or the momentum
  SecondState, ///< v
  Older,       ///< the parameter, a version before the newest
  Frozen       ///< a parameter that is not trained
};

/// Element type of a kind of tensor.
grt_dtype heldType(const Manifest &manifest, Held kind);

/// The kinds of optimizer state of the program, and what follows the
/// parameter's name in theirs: ".m", ".v", ".momentum".
std::vector<Held> stateKinds(const Manifest &manifest);
const char *stateSuffix(const Manifest &manifest, Held kind);
/// Suffix of a parameter's name in the name of its Held::Older.
inline constexpr const char *olderSuffix = ".older";

/// Base address of the tensors of a kind that the rank keeps of one of its
/// layers; runs count elements of `heldType` from there.
char *heldBase(const Manifest &manifest, const Rank &rank, const Layer &layer,
               Held kind);

/// True if the rank answers for the elements of a tensor that it holds. Exactly
/// one holder of every element does: the first of its DP group and, where the
/// tensor is replicated over TP, of its TP group.
bool ownsTensor(const Layer &layer, const LayerTensor &tensor, int localRank);

/// The kind of tensor that ranks hold of a parameter's value.
inline Held valueKind(const StoredParameter &parameter) {
  return parameter.isFrozen ? Held::Frozen : Held::Parameter;
}

/// Returns the stored parameters that have a value of a kind: gradients and
/// states have the trained ones alone. Held::Parameter stands for values of
/// both.
std::vector<StoredParameter> storedParameters(const Manifest &manifest,
                                              Held kind);

/// A rank's part in bringing a parameter (or its gradient or state) to rank 0
/// in the Hugging Face layout: an exchange in elements, from what it holds of
/// `layer` (null: nothing is sent) into the whole.
struct GatherPart {
  ExchangeTable table;
  const Layer *layer = nullptr;
};
GatherPart gatherPart(const Manifest &manifest, int rank, int parameter);

/// Returns memory of the host from which the part that the rank sends can be
/// read, as units of it: the arena itself, or a copy of a device's.
const char *heldOnHost(const Manifest &manifest, const Rank &rank,
                       const GatherPart &part, Held kind,
                       std::vector<char> &copy);

/// Writes the value of a parameter into what the rank holds of it.
void scatterTensor(const Manifest &manifest, const Rank &rank, int parameter,
                   std::span<const double> values);

} // namespace grt

#endif // GRT_CHECKPOINT_GATHER_H
