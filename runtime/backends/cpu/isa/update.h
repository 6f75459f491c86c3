//===- update.h - Optimizers and the gradient norm
//-------------------------===//
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

inline float squareRoot(float x) { return __builtin_sqrtf(x); }
inline double squareRoot(double x) { return __builtin_sqrt(x); }

template <class T>
void optimize(int threads, const OptimizerArguments &o, int64_t n, T *parameter,
              const Accumulator<T> *gradient, Accumulator<T> *first,
              Accumulator<T> *second) {
  using A = Accumulator<T>;
  const A clip = A(o.clipFactor), decay = A(o.weightDecay);
  if (o.kind == OptimizerKind::Sgd) {
    const A momentum = A(o.momentum), rate = A(o.learningRate);
    parallelFor(threads, n, elementGrain, [&](int, int64_t begin, int64_t end) {
#pragma GCC ivdep
      for (int64_t i = begin; i < end; ++i) {
        A p = parameter[i];
        A g = gradient[i] * clip + decay * p;
        A velocity = momentum * first[i] + g;
        first[i] = velocity;
        parameter[i] = T(p - rate * velocity);
      }
    });
    return;
  }
  const bool decoupled = o.kind == OptimizerKind::AdamW;
  const A keep1 = A(o.beta1), take1 = A(1 - o.beta1);
  const A keep2 = A(o.beta2), take2 = A(1 - o.beta2);
  const A shrink = decoupled ? A(1 - o.learningRate * o.weightDecay) : A(1);
  const A coupled = decoupled ? A(0) : decay;
  const A rate = A(o.learningRate / o.correction1);
  const A rootScale = A(1 / __builtin_sqrt(o.correction2));
  const A eps = A(o.eps);
  parallelFor(threads, n, elementGrain, [&](int, int64_t begin, int64_t end) {
#pragma GCC ivdep
    for (int64_t i = begin; i < end; ++i) {
      A p = parameter[i];
      A g = gradient[i] * clip + coupled * p;
      A m = keep1 * first[i] + take1 * g;
      A v = keep2 * second[i] + take2 * g * g;
      first[i] = m;
      second[i] = v;
      parameter[i] =
          T(p * shrink - rate * m / (squareRoot(v) * rootScale + eps));
    }
  });
}

template <class T> double sumOfSquares(int64_t n, const T *x) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i)
    sum += double(x[i]) * double(x[i]);
  return sum;
}

} // namespace
} // namespace grt::cpu

#endif // GRT_BACKENDS_CPU_ISA_UPDATE_H
