//===- ring.h - Merges steps of attention in a ring -------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A step of a ring walks over its own keys as any attention does, and what the
// steps before have left comes in at the end: two means of values are added,
// each weighed by the sum of exponentials that it stands for (Liu et al., arXiv
// 2310.01889).
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_CUDA_RING_H
#define GRT_BACKENDS_CUDA_RING_H

#include "elements.h"

namespace grt::cuda {

/// The factors of two means in their sum, and the logarithm of the sum of
/// exponentials that this stands for.
template <class A> struct MergedMeans {
  A lse, before, own;
};

/// Merges a mean with the logarithm `before` and one with `own`; minus infinity
/// is that of no key.
template <class A> __device__ MergedMeans<A> mergeMeans(A before, A own) {
  if (before == -infinity<A>())
    return {own, A(0), A(1)};
  if (own == -infinity<A>())
    return {before, A(1), A(0)};
  const A top = larger(before, own);
  const A lse =
      top + logarithm(exponential(before - top) + exponential(own - top));
  return {lse, exponential(before - lse), exponential(own - lse)};
}

} // namespace grt::cuda

#endif // GRT_BACKENDS_CUDA_RING_H
