//===- EstimatedSizes.h - Sizes of a model that is only planned -*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_IMPORT_ESTIMATEDSIZES_H
#define GALVATRON_LIB_IMPORT_ESTIMATEDSIZES_H

#include "ConfigReader.h"
#include "WeightsHeader.h"

namespace galvatron {

/// The sizes of a stack of equal blocks, in elements.
struct EstimatedSizes {
  int64_t hidden = 1, layers = 1, heads = 1, queries = 1, keys = 1, inner = 1;
  int64_t vocabulary = 1, positions = 0;
  int64_t table = 1; ///< width of the table of words
  bool gated = false, causal = true, tied = true;
  bool knownFamily = false, fromWeights = false;
  bool rmsNorm = false, learnedPositions = false, innerBias = false;
  std::vector<int64_t> windows; ///< keys that a query sees, by layer; 0: all

  // Parameters. Those of matrices in a block are what its products take.
  double blockProducts = 0, blockVectors = 0;
  double embedding = 0; ///< the table of words and what stands beside it
  double head = 0;      ///< without the table where that is tied
  double tableElements = 0;
  int64_t blockKernels = 0; ///< of a forward pass
  /// Elements of matrices beside the blocks that words go through: in front of
  /// them, and behind them, the table among these.
  double embeddingProducts = 0, headProducts = 0;

  double parameters() const {
    return embedding + double(layers) * (blockProducts + blockVectors) + head;
  }
  /// Pairs of a query and a key that it sees, over all layers.
  double attendedPairs(int64_t tokens) const;
};

/// Reads the sizes; every field that could change one is read, or refused by
/// `reader.finish()` later. Errors are the reader's. With weights beside the
/// configuration, whose shapes decide later, nothing has to say whether there
/// is a gate.
EstimatedSizes readEstimatedSizes(ConfigReader &reader, bool hasWeights);

/// Puts the shapes of weights in place of what was worked out.
llvm::Error takeWeights(EstimatedSizes &sizes, const WeightShapes &weights,
                        const ConfigReader &reader);

} // namespace galvatron

#endif // GALVATRON_LIB_IMPORT_ESTIMATEDSIZES_H
