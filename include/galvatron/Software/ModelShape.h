//===- ModelShape.h - A transformer by its sizes ----------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_SOFTWARE_MODELSHAPE_H
#define GALVATRON_SOFTWARE_MODELSHAPE_H

#include "llvm/Support/Error.h"
#include "llvm/Support/JSON.h"

#include <cstdint>
#include <string>

namespace galvatron {

/// A decoder of equal blocks between an embedding and a head, as training
/// software is told of it: what its flags name, no mathematics.
struct ModelShape {
  std::string name;
  int64_t layers = 1, hidden = 1;
  int64_t heads = 1, keyHeads = 1;
  int64_t headWidth = 0;  ///< elements of a head
  int64_t inner = 1;      ///< width between the products of the feed-forward
  int64_t vocabulary = 1; ///< words, without rows of padding
  int64_t tokens = 1;     ///< of a sample
  bool gated = false;     ///< three products in the feed-forward, else two
  bool tied = false;      ///< the head is the embedding's table
  // Fields on which no time depends, for the files that are written.
  bool rotary = true;      ///< else learned positions
  bool rmsNorm = true;     ///< else layer norms, with biases
  bool biases = false;     ///< of products
  double rotaryBase = 1e4; ///< of rotary positions
  int64_t positions = 0;   ///< the most tokens; 0: `tokens`

  int64_t queries() const { return heads * headWidth; }
  int64_t keys() const { return keyHeads * headWidth; }
  int64_t matrices() const { return gated ? 3 : 2; }
  /// Elements of a block's matrices.
  int64_t blockWeights() const {
    return hidden * (queries() + 2 * keys()) + queries() * hidden +
           matrices() * hidden * inner;
  }

  /// Whether a JSON document is a shape: {"version": 1, "shape": {..}}.
  static bool isShape(const llvm::json::Value &value);
  /// Error: a size below 1 or beyond 2^24, heads that the keys' do not divide.
  llvm::Error check() const;

  bool operator==(const ModelShape &other) const = default;
};

} // namespace galvatron

#endif // GALVATRON_SOFTWARE_MODELSHAPE_H
