//===- update_decision.h - Whether a step updates, and how it clips -------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What is decided at the end of a step from the results of all ranks. A host
// does it where a step is put on streams call by call, the device where the
// step is one graph: both by this code, with the same bits. Only sums, a square
// root and a quotient in f64, which IEEE 754 rounds in one way.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_UPDATE_DECISION_H
#define GRT_UPDATE_DECISION_H

#include <math.h>
#include <stdint.h>

#ifdef __CUDACC__
#define GRT_DECISION_FUNCTION __host__ __device__ inline
#else
#define GRT_DECISION_FUNCTION inline
#endif

namespace grt {

/// A rank's part of the squared norm and the loss: grt_step::local_norm_squared
/// and local_loss.
struct RankResults {
  double normSquared, loss;
};

struct UpdateDecision {
  double loss; ///< the sum over ranks
  double norm; ///< of the gradients of all ranks
  /// The loss or the norm is not finite, or the norm is above `skipNorm`.
  bool leftOut;
  double clipFactor;
};

/// False for NaN too.
GRT_DECISION_FUNCTION bool isFiniteNumber(double x) { return x - x == 0; }

/// Decides from the results of all ranks, in the order of ranks. `clips`:
/// gradients of a norm above `clipNorm` are scaled to it. A `skipNorm` of 0 is
/// none.
GRT_DECISION_FUNCTION UpdateDecision decideUpdate(const RankResults *results,
                                                  uint64_t ranks, bool clips,
                                                  double clipNorm,
                                                  double skipNorm) {
  UpdateDecision d = {0, 0, false, 1};
  double squares = 0;
  for (uint64_t r = 0; r < ranks; ++r) {
    squares += results[r].normSquared;
    d.loss += results[r].loss;
  }
  d.norm = sqrt(squares);
  d.leftOut = !isFiniteNumber(d.loss) || !isFiniteNumber(d.norm) ||
              (skipNorm > 0 && d.norm > skipNorm);
  if (clips) {
    double factor = clipNorm / (d.norm + 1e-6);
    d.clipFactor = factor < 1.0 ? factor : 1.0;
  }
  return d;
}

} // namespace grt

#endif // GRT_UPDATE_DECISION_H
