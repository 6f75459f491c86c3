//===- live_tensors.h - Tensors that live between layers --------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_LIVE_TENSORS_H
#define GRT_CORE_LIVE_TENSORS_H

#include "core/manifest.h"

namespace grt {

/// Follows the tensors that live between the layers of a chunk, from those that
/// an exchange brings to those that one takes away. The set behind a layer has
/// its results first and then what passes it, each at the next multiple of
/// GRT_ALIGNMENT. Throws Error (2) unless
///
///  - every input of a layer is one whole tensor of the set in front of it,
///    which the slot holds where the row says, and so is what passes the layer,
///    which says of each whether it is an input too;
///  - every tensor is an input of the next layer, or passes it;
///  - the sets are as large as the layers on both sides say, and what a layer
///    holds is as large as what is put there;
///  - exchanges move these tensors and no others;
///  - tensors of one set are apart in the slot.
///
/// So bytes that were written are read as the tensor that was written there.
void checkLiveTensors(const Manifest &manifest, const Role &role,
                      const Chunk &chunk);

} // namespace grt

#endif // GRT_CORE_LIVE_TENSORS_H
