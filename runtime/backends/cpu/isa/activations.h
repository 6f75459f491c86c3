//===- activations.h - ReLU, gated GELU, caps and limits ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_CPU_ISA_ACTIVATIONS_H
#define GRT_BACKENDS_CPU_ISA_ACTIVATIONS_H

#include "math.h"

namespace grt::cpu {
namespace {

template <class T>
void gatedGelu(int threads, int64_t n, const T *gate, const T *up, T *y,
               bool approximate) {
  using A = Accumulator<T>;
  parallelFor(threads, n, elementGrain, [&](int, int64_t begin, int64_t end) {
    sweep<A>(begin, end, [&](int64_t i, auto at) {
      at.store(y + i, gelu(at.load(gate + i), approximate) * at.load(up + i));
    });
  });
}

template <class T>
void gatedGeluGrad(int threads, int64_t n, const T *gate, const T *up,
                   const T *dy, T *dgate, T *dup, bool approximate) {
  using A = Accumulator<T>;
  parallelFor(threads, n, elementGrain, [&](int, int64_t begin, int64_t end) {
    sweep<A>(begin, end, [&](int64_t i, auto at) {
      Vec<A> g = at.load(gate + i), u = at.load(up + i), d = at.load(dy + i);
      at.store(dgate + i, d * u * geluSlope(g, approximate));
      at.store(dup + i, d * gelu(g, approximate));
    });
  });
}

template <class T> void relu(int threads, int64_t n, const T *x, T *y) {
  using A = Accumulator<T>;
  parallelFor(threads, n, elementGrain, [&](int, int64_t begin, int64_t end) {
    sweep<A>(begin, end, [&](int64_t i, auto at) {
      // The comparison is false for NaN, which stays.
      Vec<A> v = at.load(x + i);
      at.store(y + i, v < A(0) ? splat(A(0)) : v);
    });
  });
}

template <class T>
void reluGrad(int threads, int64_t n, const T *y, const T *dy, T *dx) {
  using A = Accumulator<T>;
  parallelFor(threads, n, elementGrain, [&](int, int64_t begin, int64_t end) {
    sweep<A>(begin, end, [&](int64_t i, auto at) {
      Vec<A> d = at.load(dy + i);
      at.store(dx + i, at.load(y + i) > A(0) ? d : splat(A(0)));
    });
  });
}

template <class T>
void softCap(int threads, int64_t n, const T *x, T *y, double cap) {
  using A = Accumulator<T>;
  const A factor = A(cap), inverse = A(1 / cap);
  parallelFor(threads, n, elementGrain, [&](int, int64_t begin, int64_t end) {
    sweep<A>(begin, end, [&](int64_t i, auto at) {
      at.store(y + i, hyperbolicTangent(at.load(x + i) * inverse) * factor);
    });
  });
}

template <class T>
void softCapGrad(int threads, int64_t n, const T *y, const T *dy, T *dx,
                 double cap) {
  using A = Accumulator<T>;
  const A inverse = A(1 / cap);
  parallelFor(threads, n, elementGrain, [&](int, int64_t begin, int64_t end) {
    sweep<A>(begin, end, [&](int64_t i, auto at) {
      Vec<A> t = at.load(y + i) * inverse;
      at.store(dx + i, at.load(dy + i) * (A(1) - t * t));
    });
  });
}

template <class T>
void round(int threads, int64_t n, const Accumulator<T> *x, T *y) {
  using A = Accumulator<T>;
  parallelFor(threads, n, elementGrain, [&](int, int64_t begin, int64_t end) {
    sweep<A>(begin, end,
             [&](int64_t i, auto at) { at.store(y + i, at.load(x + i)); });
  });
}

template <class T>
void clip(int threads, int64_t n, const T *x, T *y, double limit) {
  using A = Accumulator<T>;
  const A most = A(limit);
  parallelFor(threads, n, elementGrain, [&](int, int64_t begin, int64_t end) {
    sweep<A>(begin, end, [&](int64_t i, auto at) {
      // So that NaN stays.
      Vec<A> v = at.load(x + i);
      v = v > most ? splat(most) : v;
      at.store(y + i, v < -most ? splat(-most) : v);
    });
  });
}

template <class T>
void clipGrad(int threads, int64_t n, const T *x, const T *dy, T *dx,
              double limit) {
  using A = Accumulator<T>;
  const A most = A(limit);
  parallelFor(threads, n, elementGrain, [&](int, int64_t begin, int64_t end) {
    sweep<A>(begin, end, [&](int64_t i, auto at) {
      Vec<A> v = at.load(x + i), d = at.load(dy + i);
      d = v > most ? splat(A(0)) : d;
      at.store(dx + i, v < -most ? splat(A(0)) : d);
    });
  });
}

} // namespace
} // namespace grt::cpu

#endif // GRT_BACKENDS_CPU_ISA_ACTIVATIONS_H
