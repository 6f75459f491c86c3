//===- update.h - Optimizers and the gradient norm ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The formulas are PyTorch's (torch.optim.SGD, Adam, AdamW): weight decay is
// added to the gradient for SGD and Adam and is decoupled for AdamW; epsilon is
// added after the square root.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_CPU_ISA_UPDATE_H
#define GRT_BACKENDS_CPU_ISA_UPDATE_H

#include "vector.h"

namespace grt::cpu {
namespace {

template <class T>
void optimize(int threads, const OptimizerArguments &o, int64_t n, T *parameter,
              Accumulator<T> *master, const Accumulator<T> *gradient,
              Accumulator<T> *first, Accumulator<T> *second) {
  using A = Accumulator<T>;
  auto load = [=](int64_t i, auto at) {
    if constexpr (sizeof(T) == sizeof(A))
      return at.load(parameter + i);
    else
      return at.load(master + i);
  };
  auto store = [=](int64_t i, auto at, Vec<A> p) {
    if constexpr (sizeof(T) != sizeof(A))
      at.store(master + i, p);
    at.store(parameter + i, p);
  };
  const A clip = A(o.clipFactor), decay = A(o.weightDecay);
  if (o.kind == GRT_OPTIMIZER_SGD) {
    const A momentum = A(o.momentum), rate = A(o.learningRate);
    parallelFor(threads, n, elementGrain, [&](int, int64_t begin, int64_t end) {
      sweep<A>(begin, end, [=](int64_t i, auto at) {
        Vec<A> p = load(i, at);
        Vec<A> g = at.load(gradient + i) * clip + p * decay;
        Vec<A> velocity = at.load(first + i) * momentum + g;
        at.store(first + i, velocity);
        store(i, at, p - velocity * rate);
      });
    });
    return;
  }
  const bool decoupled = o.kind == GRT_OPTIMIZER_ADAMW;
  const A keep1 = A(o.beta1), take1 = A(1 - o.beta1);
  const A keep2 = A(o.beta2), take2 = A(1 - o.beta2);
  const A shrink = decoupled ? A(1 - o.learningRate * o.weightDecay) : A(1);
  const A coupled = decoupled ? A(0) : decay;
  const A rate = A(o.learningRate / o.correction1);
  const A rootScale = A(1 / __builtin_sqrt(o.correction2));
  const A eps = A(o.eps);
  parallelFor(threads, n, elementGrain, [&](int, int64_t begin, int64_t end) {
    sweep<A>(begin, end, [=](int64_t i, auto at) {
      Vec<A> p = load(i, at);
      Vec<A> g = at.load(gradient + i) * clip + p * coupled;
      Vec<A> m = at.load(first + i) * keep1 + g * take1;
      Vec<A> v = at.load(second + i) * keep2 + g * g * take2;
      at.store(first + i, m);
      at.store(second + i, v);
      Vec<A> root = squareRoot(v) * rootScale + eps;
      store(i, at, p * shrink - m * rate / root);
    });
  });
}

/// Returns the sum of squares of a part that one thread works on.
template <class T> double partOfSquares(int64_t n, const T *x) {
  // 32 sums side by side, written for the vectoriser.
  constexpr int width = 32;
  double sums[width] = {};
  int64_t whole = n / width * width;
  for (int64_t i = 0; i < whole; i += width)
    for (int l = 0; l < width; ++l)
      sums[l] += double(x[i + l]) * double(x[i + l]);
  double sum = 0;
  for (int64_t i = whole; i < n; ++i)
    sum += double(x[i]) * double(x[i]);
  for (double part : sums)
    sum += part;
  return sum;
}

template <class T> double sumOfSquares(int threads, int64_t n, const T *x) {
  // Parts whose number and size do not depend on the threads, nor does the sum.
  constexpr int64_t mostParts = 64, leastElements = 65536;
  int64_t size = (n + mostParts - 1) / mostParts;
  size = size < leastElements ? leastElements : (size + 63) / 64 * 64;
  int64_t parts = (n + size - 1) / size;
  double sums[mostParts];
  parallelFor(threads, parts, 1, [&](int, int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p)
      sums[p] = partOfSquares(smaller(size, n - p * size), x + p * size);
  });
  double sum = 0;
  for (int64_t p = 0; p < parts; ++p)
    sum += sums[p];
  return sum;
}

} // namespace
} // namespace grt::cpu

#endif // GRT_BACKENDS_CPU_ISA_UPDATE_H
