//===- rotary.h - Rotary embedding and gated SiLU -------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_CPU_ISA_ROTARY_H
#define GRT_BACKENDS_CPU_ISA_ROTARY_H

#include "math.h"

namespace grt::cpu {
namespace {

/// Cosines and sines of the turns of one position.
template <class T>
void rotaryTurns(const RotaryArguments &a, int64_t position, T *cosines,
                 T *sines) {
  using A = Accumulator<T>;
  for (int64_t i = 0; i < a.pairs; ++i) {
    double angle = double(A(position) * A(a.frequencies[i]));
    double sine = __builtin_sin(angle) * a.factor;
    cosines[i] = narrow<T>(A(__builtin_cos(angle) * a.factor));
    sines[i] = narrow<T>(A(a.inverse ? -sine : sine));
  }
}

/// Turns the heads of one row.
template <class T>
void rotaryRow(const RotaryArguments &a, const T *cosines, const T *sines,
               const T *x, T *y) {
  using A = Accumulator<T>;
  for (int64_t h = 0; h < a.heads; ++h) {
    const T *in = x + h * a.headDim;
    T *out = y + h * a.headDim;
    for (int64_t i = 0; i < a.pairs && a.interleaved; ++i) {
      const A low = wide(in[2 * i]), high = wide(in[2 * i + 1]);
      const A c = wide(cosines[i]), d = wide(sines[i]);
      out[2 * i] = narrow<T>(low * c - high * d);
      out[2 * i + 1] = narrow<T>(high * c + low * d);
    }
    sweep<A>(0, a.interleaved ? 0 : a.pairs, [&](int64_t i, auto at) {
      Vec<A> low = at.load(in + i), high = at.load(in + a.pairs + i);
      Vec<A> c = at.load(cosines + i), d = at.load(sines + i);
      at.store(out + i, low * c - high * d);
      at.store(out + a.pairs + i, high * c + low * d);
    });
    if (in != out)
      __builtin_memcpy(out + 2 * a.pairs, in + 2 * a.pairs,
                       size_t(a.headDim - 2 * a.pairs) * sizeof(T));
  }
}

/// Threads share out positions: cosines and sines of one serve all samples and
/// heads, unless every row has a position of its own.
template <class T>
void rotary(int threads, const RotaryArguments &a, const T *x, T *y) {
  const int64_t perRow = a.heads * a.headDim;
  auto positions = [&](int, int64_t begin, int64_t end) {
    T cosines[GRT_ROTARY_PAIRS], sines[GRT_ROTARY_PAIRS];
    for (int64_t t = begin; t < end; ++t) {
      rotaryTurns(a, a.firstPosition + t, cosines, sines);
      for (int64_t s = 0; s < a.samples; ++s) {
        const int64_t place = (s * a.positions + t) * perRow;
        rotaryRow(a, cosines, sines, x + place, y + place);
      }
    }
  };
  auto rows = [&](int, int64_t begin, int64_t end) {
    T cosines[GRT_ROTARY_PAIRS], sines[GRT_ROTARY_PAIRS];
    for (int64_t row = begin; row < end; ++row) {
      rotaryTurns(a, a.each[row], cosines, sines);
      rotaryRow(a, cosines, sines, x + row * perRow, y + row * perRow);
    }
  };
  if (a.each)
    parallelFor(threads, a.samples * a.positions, rowGrain(perRow), rows);
  else
    parallelFor(threads, a.positions, rowGrain(a.samples * perRow), positions);
}

/// 1 / (1 + e^-x).
template <class A>
inline __attribute__((always_inline)) Vec<A> logistic(Vec<A> x) {
  return A(1) / (exponential(-x) + A(1));
}

template <class T>
void gatedSilu(int threads, int64_t n, const T *gate, const T *up, T *y) {
  using A = Accumulator<T>;
  parallelFor(threads, n, elementGrain, [&](int, int64_t begin, int64_t end) {
    sweep<A>(begin, end, [&](int64_t i, auto at) {
      Vec<A> g = at.load(gate + i);
      at.store(y + i, g * logistic<A>(g) * at.load(up + i));
    });
  });
}

/// Computes, with s = 1 / (1 + e^-gate), dup = dy gate s and dgate = dy up s (1
/// + gate (1 - s)).
template <class T>
void gatedSiluGrad(int threads, int64_t n, const T *gate, const T *up,
                   const T *dy, T *dgate, T *dup) {
  using A = Accumulator<T>;
  parallelFor(threads, n, elementGrain, [&](int, int64_t begin, int64_t end) {
    sweep<A>(begin, end, [&](int64_t i, auto at) {
      Vec<A> g = at.load(gate + i), u = at.load(up + i), d = at.load(dy + i);
      Vec<A> s = logistic<A>(g);
      at.store(dgate + i, d * u * s * (g * (A(1) - s) + A(1)));
      at.store(dup + i, d * g * s);
    });
  });
}

} // namespace
} // namespace grt::cpu

#endif // GRT_BACKENDS_CPU_ISA_ROTARY_H
