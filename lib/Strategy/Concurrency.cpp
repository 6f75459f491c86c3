//===- Concurrency.cpp - Collectives side by side -------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Strategy/Concurrency.h"

#include "llvm/ADT/STLExtras.h"

using namespace llvm;

namespace galvatron {

std::string whyNotGatherAhead(const Strategy &beside, const Strategy &layer) {
  if (!layer.with(&ParadigmDescriptor::parameters))
    return "nothing of it (" + layer.str() + ") is sharded";
  // With equal layouts nothing else can clash: ranks of one TP group hold the
  // same samples, those of one SDP group different ones.
  if (beside.sampleLayout() != layer.sampleLayout())
    return "the gather of " + layer.str() +
           " would run beside the reshard from " + beside.str();
  return "";
}

std::vector<GatherAhead> gathersAhead(ArrayRef<Strategy> layers) {
  std::vector<GatherAhead> ahead(layers.size());
  for (size_t l = 0; l < layers.size(); ++l) {
    ahead[l].forward =
        l > 0 && whyNotGatherAhead(layers[l - 1], layers[l]).empty();
    ahead[l].backward = l + 1 < layers.size() &&
                        whyNotGatherAhead(layers[l + 1], layers[l]).empty();
  }
  return ahead;
}

std::string whyNotSyncBehind(ArrayRef<Strategy> layers) {
  for (size_t l = 0; l < layers.size(); ++l) {
    const Strategy &layer = layers[l];
    Paradigm summed = layer.summedOnce();
    if (!summed)
      continue;
    // What runs after the layer's backward pass: the layers before it.
    for (size_t j = l; j-- > 0;) {
      auto clash = [&](StringRef what) {
        return ("the sum of gradients of layer " + Twine(l) + " (" +
                layer.str() + ") would run beside " + what + " of layer " +
                Twine(j) + " (" + layers[j].str() + ")")
            .str();
      };
      if (layers[j].sampleLayout() != layers[j + 1].sampleLayout())
        return clash("the reshard");
      for (Paradigm paradigm : ParadigmRegistry::all()) {
        if (!paradigm->communicatesInPasses())
          continue;
        for (int64_t rank = 0; rank < layer.devices(); ++rank) {
          auto reduced = layer.group(rank, summed);
          auto beside = layers[j].group(rank, paradigm);
          if (count_if(reduced, [&](int64_t member) {
                return is_contained(beside, member);
              }) > 1)
            return clash(paradigm->purpose);
        }
      }
    }
  }
  return "";
}

} // namespace galvatron
