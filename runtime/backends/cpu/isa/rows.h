//===- rows.h - Element-wise, row-wise and column-wise kernels ------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef GRT_BACKENDS_CPU_ISA_ROWS_H
#define GRT_BACKENDS_CPU_ISA_ROWS_H

#include "math.h"

namespace grt::cpu {
namespace {

template <class T>
void biasAdd(int threads, int64_t rows, int64_t n, const T *x, const T *bias,
             T *y) {
  using A = Accumulator<T>;
  parallelFor(threads, rows, rowGrain(n), [&](int, int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      sweep<A>(0, n, [&](int64_t i, auto at) {
        at.store(y + r * n + i, at.load(x + r * n + i) + at.load(bias + i));
      });
  });
}

/// Column sums are taken over blocks of this many rows, which bounds the
/// rounding error and lets a block stay in the first-level cache.
constexpr int64_t sumRows = 32;

/// Writes or adds the sums over rows of `value(i, at)` at elements i = r * n +
/// c.
template <class A, class Value>
void columnSums(int threads, int64_t rows, int64_t n, A *sums, bool add,
                Value value) {
  threads = threadsForElements(threads, rows * n);
  // Threads share out columns, so that their number does not change the sums.
  parallelFor(threads, n, 256, [&](int, int64_t begin, int64_t end) {
    for (int64_t r0 = 0; r0 < rows || r0 == 0; r0 += sumRows) {
      int64_t r1 = smaller(r0 + sumRows, rows);
      bool addHere = add || r0 > 0;
      sweep<A>(begin, end, [&](int64_t i, auto at) {
        Vec<A> sum{};
        for (int64_t r = r0; r < r1; ++r)
          sum += value(r * n + i, at);
        at.store(sums + i, addHere ? sum + at.load(sums + i) : sum);
      });
    }
  });
}

template <class T>
void biasGrad(int threads, int64_t rows, int64_t n, const T *dy,
              Accumulator<T> *dbias, bool add) {
  columnSums(threads, rows, n, dbias, add,
             [&](int64_t i, auto at) { return at.load(dy + i); });
}

template <class T>
void columnScale(int threads, int64_t rows, int64_t n, const T *x,
                 const T *scale, T *y) {
  using A = Accumulator<T>;
  parallelFor(threads, rows, rowGrain(n), [&](int, int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      sweep<A>(0, n, [&](int64_t i, auto at) {
        at.store(y + r * n + i, at.load(x + r * n + i) * at.load(scale + i));
      });
  });
}

template <class T>
void columnScaleGrad(int threads, int64_t rows, int64_t n, const T *dy,
                     const T *x, Accumulator<T> *dscale, bool add) {
  columnSums(threads, rows, n, dscale, add, [&](int64_t i, auto at) {
    return at.load(dy + i) * at.load(x + i);
  });
}

/// `stats` gets two values.
template <class T>
void normalizeRow(int64_t n, const T *row, const T *gamma, const T *beta, T *y,
                  Accumulator<T> *stats, double eps) {
  using A = Accumulator<T>;
  constexpr int64_t stride = 4 * lanes<A>;
  // Four independent sums hide the latency of the additions.
  Vec<A> s0{}, s1{}, s2{}, s3{};
  int64_t whole = n / stride * stride;
  for (int64_t i = 0; i < whole; i += stride) {
    s0 += loadWhole(row + i);
    s1 += loadWhole(row + i + lanes<A>);
    s2 += loadWhole(row + i + 2 * lanes<A>);
    s3 += loadWhole(row + i + 3 * lanes<A>);
  }
  sweep<A>(whole, n, [&](int64_t i, auto at) { s0 += at.load(row + i); });
  A mean = horizontalSum<A>((s0 + s1) + (s2 + s3)) / A(n);
  s0 = s1 = s2 = s3 = Vec<A>{};
  for (int64_t i = 0; i < whole; i += stride) {
    Vec<A> d0 = loadWhole(row + i) - mean;
    Vec<A> d1 = loadWhole(row + i + lanes<A>) - mean;
    Vec<A> d2 = loadWhole(row + i + 2 * lanes<A>) - mean;
    Vec<A> d3 = loadWhole(row + i + 3 * lanes<A>) - mean;
    s0 += d0 * d0;
    s1 += d1 * d1;
    s2 += d2 * d2;
    s3 += d3 * d3;
  }
  A rest = horizontalSum<A>((s0 + s1) + (s2 + s3));
  for (int64_t i = whole; i < n; ++i)
    rest += (wide(row[i]) - mean) * (wide(row[i]) - mean);
  A inverse = A(1.0 / __builtin_sqrt(double(rest) / double(n) + eps));
  stats[0] = mean;
  stats[1] = inverse;
  sweep<A>(0, n, [&](int64_t i, auto at) {
    Vec<A> normal = (at.load(row + i) - mean) * inverse;
    Vec<A> scaled = gamma ? normal * at.load(gamma + i) : normal;
    at.store(y + i, beta ? scaled + at.load(beta + i) : scaled);
  });
}

template <class T>
void layerNorm(int threads, int64_t rows, int64_t n, const T *x, const T *gamma,
               const T *beta, T *y, Accumulator<T> *stats, double eps) {
  parallelFor(threads, rows, rowGrain(n), [&](int, int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      normalizeRow(n, x + r * n, gamma, beta, y + r * n, stats + 2 * r, eps);
  });
}

/// dgamma and dbeta of rows [r0, r1), columns [begin, end).
template <class T>
void layerNormColumns(int64_t r0, int64_t r1, int64_t begin, int64_t end,
                      int64_t n, const T *dy, const T *x,
                      const Accumulator<T> *stats, Accumulator<T> *dgamma,
                      Accumulator<T> *dbeta, bool add) {
  using A = Accumulator<T>;
  sweep<A>(begin, end, [&](int64_t i, auto at) {
    Vec<A> gammaSum{}, betaSum{};
    for (int64_t r = r0; r < r1; ++r) {
      Vec<A> g = at.load(dy + r * n + i);
      Vec<A> normal =
          (at.load(x + r * n + i) - stats[2 * r]) * stats[2 * r + 1];
      gammaSum += g * normal;
      betaSum += g;
    }
    at.store(dgamma + i, add ? gammaSum + at.load(dgamma + i) : gammaSum);
    if (dbeta)
      at.store(dbeta + i, add ? betaSum + at.load(dbeta + i) : betaSum);
  });
}

/// Computes, with x^ the normalised input and g = dy gamma, dx = (g - mean(g) -
/// x^ mean(g x^)) / sqrt(var + eps) (+ residual).
template <class T>
void layerNormRow(int64_t n, const T *dy, const T *x, Accumulator<T> mean,
                  Accumulator<T> inverse, const T *gamma, const T *residual,
                  T *dx) {
  using A = Accumulator<T>;
  Vec<A> sum{}, product{};
  auto scaled = [&](int64_t i, auto at) -> Vec<A> {
    Vec<A> g = at.load(dy + i);
    return gamma ? g * at.load(gamma + i) : g;
  };
  sweep<A>(0, n, [&](int64_t i, auto at) {
    Vec<A> g = scaled(i, at);
    // Lanes past the end hold g = 0.
    sum += g;
    product += g * ((at.load(x + i) - mean) * inverse);
  });
  A meanG = horizontalSum<A>(sum) / A(n);
  A meanProduct = horizontalSum<A>(product) / A(n);
  sweep<A>(0, n, [&](int64_t i, auto at) {
    Vec<A> g = scaled(i, at);
    Vec<A> normal = (at.load(x + i) - mean) * inverse;
    Vec<A> value = (g - meanG - normal * meanProduct) * inverse;
    at.store(dx + i, residual ? value + at.load(residual + i) : value);
  });
}

template <class T>
void layerNormGrad(int threads, int64_t rows, int64_t n, const T *dy,
                   const T *x, const Accumulator<T> *stats, const T *gamma,
                   const T *residual, T *dx, Accumulator<T> *dgamma,
                   Accumulator<T> *dbeta, bool add) {
  auto rowPart = [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      layerNormRow(n, dy + r * n, x + r * n, stats[2 * r], stats[2 * r + 1],
                   gamma, residual ? residual + r * n : nullptr, dx + r * n);
  };
  if (!dgamma)
    return parallelFor(
        threads, rows, rowGrain(n),
        [&](int, int64_t begin, int64_t end) { rowPart(begin, end); });
  // dx may stand where dy stood: the sums over a block's rows come first.
  threads = threadsForElements(threads, rows * n);
  if (threads <= 1 || rows == 0) {
    for (int64_t r0 = 0; r0 < rows || r0 == 0; r0 += sumRows) {
      int64_t r1 = smaller(r0 + sumRows, rows);
      layerNormColumns(r0, r1, 0, n, n, dy, x, stats, dgamma, dbeta,
                       add || r0 > 0);
      rowPart(r0, r1);
    }
    return;
  }
  parallelFor(threads, n, 128, [&](int, int64_t begin, int64_t end) {
    for (int64_t r0 = 0; r0 < rows; r0 += sumRows)
      layerNormColumns(r0, smaller(r0 + sumRows, rows), begin, end, n, dy, x,
                       stats, dgamma, dbeta, add || r0 > 0);
  });
  parallelFor(threads, rows, rowGrain(n),
              [&](int, int64_t begin, int64_t end) { rowPart(begin, end); });
}

template <bool Value> struct Constant {
  static constexpr bool value = Value;
};

template <class T>
void biasGelu(int threads, int64_t rows, int64_t n, const T *x, const T *bias,
              T *pre, T *y, bool approximate) {
  using A = Accumulator<T>;
  auto run = [&](auto form) {
    if (!bias) {
      parallelFor(threads, rows * n, elementGrain,
                  [&](int, int64_t begin, int64_t end) {
                    sweep<A>(begin, end, [&](int64_t i, auto at) {
                      at.store(y + i, gelu(at.load(x + i), form.value));
                    });
                  });
      return;
    }
    parallelFor(threads, rows, rowGrain(n),
                [&](int, int64_t begin, int64_t end) {
                  for (int64_t r = begin; r < end; ++r)
                    sweep<A>(0, n, [&](int64_t i, auto at) {
                      Vec<A> v = at.load(x + r * n + i) + at.load(bias + i);
                      at.store(pre + r * n + i, v);
                      at.store(y + r * n + i, gelu(v, form.value));
                    });
                });
  };
  if (approximate)
    run(Constant<true>());
  else
    run(Constant<false>());
}

template <class T>
void geluGrad(int threads, int64_t n, const T *x, const T *dy, T *dx,
              bool approximate) {
  using A = Accumulator<T>;
  parallelFor(threads, n, elementGrain, [&](int, int64_t begin, int64_t end) {
    if (approximate)
      sweep<A>(begin, end, [&](int64_t i, auto at) {
        at.store(dx + i, at.load(dy + i) * geluSlope(at.load(x + i), true));
      });
    else
      sweep<A>(begin, end, [&](int64_t i, auto at) {
        at.store(dx + i, at.load(dy + i) * geluSlope(at.load(x + i), false));
      });
  });
}

/// `kept` in the lanes whose number is at least the threshold, 0 in the others.
inline Vec<float> keptFactor(const uint32_t *numbers, uint32_t threshold,
                             float kept) {
  return loadWhole(numbers) >= threshold ? splat(kept) : splat(0.0f);
}
inline Vec<double> keptFactor(const uint32_t *numbers, uint32_t threshold,
                              double kept) {
  Vec<double> factor;
  for (int l = 0; l < lanes<double>; ++l)
    factor[l] = numbers[l] >= threshold ? kept : 0;
  return factor;
}

/// Row r of dropout(x) (+ residual, unless null).
template <class T>
void dropoutRow(const DropoutArguments &d, int64_t r, const T *x,
                const T *residual, T *y) {
  using A = Accumulator<T>;
  // A chunk is what one set of lanes gives: 4 columns a lane.
  constexpr int64_t chunk = 4 * lanes<uint32_t>;
  const DropoutStream &stream = d.stream;
  const uint32_t threshold = stream.threshold;
  A kept = A(stream.keptScale);
  uint64_t lastColumn = d.firstColumn + uint64_t(d.cols);
  // The end may be read past by one vector.
  uint32_t numbers[chunk + lanes<uint32_t>];
  uint64_t row = d.firstRow + uint64_t(r);
  for (uint64_t c = d.firstColumn / 4 * 4; c < lastColumn; c += chunk) {
    Lanes32 counter[4] = {splat(uint32_t(row)), splat(uint32_t(row >> 32)),
                          laneNumbers() + uint32_t(c / 4),
                          splat(stream.opIndex)};
    philoxLanes(stream.keyLo, stream.keyHi, counter);
    using N = uint32_t;
    Lanes32 even0 = interleave<N, false>(counter[0], counter[2]);
    Lanes32 even1 = interleave<N, true>(counter[0], counter[2]);
    Lanes32 odd0 = interleave<N, false>(counter[1], counter[3]);
    Lanes32 odd1 = interleave<N, true>(counter[1], counter[3]);
    constexpr int width = lanes<N>;
    storeWhole(numbers, interleave<N, false>(even0, odd0));
    storeWhole(numbers + width, interleave<N, true>(even0, odd0));
    storeWhole(numbers + 2 * width, interleave<N, false>(even1, odd1));
    storeWhole(numbers + 3 * width, interleave<N, true>(even1, odd1));
    // [from, to) are local columns; numbers[0] belongs to column c - first.
    int64_t base = int64_t(c) - int64_t(d.firstColumn);
    int64_t from = base < 0 ? 0 : base;
    int64_t to = smaller(base + chunk, d.cols);
    const uint32_t *number = numbers + (from - base);
    const T *in = x + r * d.cols + from;
    const T *plus = residual ? residual + r * d.cols + from : nullptr;
    T *out = y + r * d.cols + from;
    sweep<A>(0, to - from, [=](int64_t i, auto at) {
      Vec<A> v = at.load(in + i) * keptFactor(number + i, threshold, kept);
      at.store(out + i, plus ? v + at.load(plus + i) : v);
    });
  }
}

template <class T>
void dropout(int threads, const DropoutArguments &d, const T *x,
             const T *residual, T *y) {
  parallelFor(threads, d.rows, rowGrain(d.cols),
              [&](int, int64_t begin, int64_t end) {
                for (int64_t r = begin; r < end; ++r)
                  dropoutRow(d, r, x, residual, y);
              });
}

/// A row is summed and, while it is in the first-level cache, normalised.
template <class T>
void addLayerNorm(int threads, int64_t rows, int64_t n,
                  const DropoutArguments *dropout, const T *x,
                  const T *residual, const T *gamma, const T *beta, T *sum,
                  T *y, Accumulator<T> *stats, double eps) {
  using A = Accumulator<T>;
  parallelFor(threads, rows, rowGrain(n), [&](int, int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      if (dropout)
        dropoutRow(*dropout, r, x, residual, sum);
      else
        sweep<A>(r * n, (r + 1) * n, [&](int64_t i, auto at) {
          at.store(sum + i, at.load(x + i) + at.load(residual + i));
        });
      normalizeRow(n, sum + r * n, gamma, beta, y + r * n, stats + 2 * r, eps);
    }
  });
}

template <class T>
void add(int threads, int64_t n, const T *a, const T *b, T *y) {
  using A = Accumulator<T>;
  parallelFor(threads, n, elementGrain, [&](int, int64_t begin, int64_t end) {
    sweep<A>(begin, end, [&](int64_t i, auto at) {
      at.store(y + i, at.load(a + i) + at.load(b + i));
    });
  });
}

template <class T>
void scale(int threads, int64_t n, const T *x, T *y, double factor) {
  using A = Accumulator<T>;
  A f = A(factor);
  parallelFor(threads, n, elementGrain, [&](int, int64_t begin, int64_t end) {
    sweep<A>(begin, end,
             [&](int64_t i, auto at) { at.store(y + i, at.load(x + i) * f); });
  });
}

template <class T>
void embedding(int threads, int64_t rows, int64_t width, int64_t first,
               int64_t localRows, const int32_t *tokens, const T *table, T *y) {
  parallelFor(
      threads, rows, rowGrain(width), [&](int, int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          int64_t local = int64_t(tokens[r]) - first;
          if (local >= 0 && local < localRows)
            __builtin_memcpy(y + r * width, table + local * width,
                             size_t(width) * sizeof(T));
          else
            __builtin_memset(y + r * width, 0, size_t(width) * sizeof(T));
        }
      });
}

template <class T>
void embeddingGrad(int threads, int64_t rows, int64_t width, int64_t first,
                   int64_t localRows, int64_t padding, const int32_t *tokens,
                   const T *dy, Accumulator<T> *dtable, bool add) {
  using A = Accumulator<T>;
  if (!add)
    parallelFor(threads, localRows * width, elementGrain,
                [&](int, int64_t begin, int64_t end) {
                  __builtin_memset(dtable + begin, 0,
                                   size_t(end - begin) * sizeof(A));
                });
  threads = threadsForElements(threads, rows * width);
  // Threads share out columns: rows stay in order for every element.
  parallelFor(threads, width, 64, [&](int, int64_t begin, int64_t end) {
    for (int64_t r = 0; r < rows; ++r) {
      int64_t local = int64_t(tokens[r]) - first;
      if (local < 0 || local >= localRows || tokens[r] == padding)
        continue;
      A *sum = dtable + local * width;
      sweep<A>(begin, end, [&](int64_t i, auto at) {
        at.store(sum + i, at.load(sum + i) + at.load(dy + r * width + i));
      });
    }
  });
}

template <class T>
void positionAdd(int threads, int64_t samples, int64_t t, int64_t width,
                 const int32_t *starts, const T *x, const T *table, T *y) {
  for (int64_t s = 0; s < samples; ++s) {
    // Neighbours of one document take neighbouring rows of the table.
    for (int64_t begin = 0, end; begin < t; begin = end) {
      const int64_t first = starts ? begin - starts[s * t + begin] : 0;
      end = starts ? begin + 1 : t;
      while (end < t && starts[s * t + end] == starts[s * t + begin])
        ++end;
      const int64_t at = (s * t + begin) * width;
      add(threads, (end - begin) * width, x + at, table + first * width,
          y + at);
    }
  }
}

/// The gradient of a table whose positions count from the documents' first
/// ones. Threads share out columns.
template <class T>
void documentPositionGrad(int threads, int64_t samples, int64_t t,
                          int64_t width, const int32_t *starts, const T *dy,
                          Accumulator<T> *dtable, bool add) {
  using A = Accumulator<T>;
  parallelFor(
      threads, width, lanes<A> * 4, [&](int, int64_t begin, int64_t end) {
        for (int64_t p = 0; p < t && !add; ++p)
          __builtin_memset(dtable + p * width + begin, 0,
                           size_t(end - begin) * sizeof(A));
        for (int64_t row = 0; row < samples * t; ++row) {
          A *sum = dtable + (row % t - starts[row]) * width;
          sweep<A>(begin, end, [&](int64_t i, auto at) {
            at.store(sum + i, at.load(sum + i) + at.load(dy + row * width + i));
          });
        }
      });
}

template <class T>
void positionGrad(int threads, int64_t samples, int64_t t, int64_t width,
                  int64_t tableRows, const int32_t *starts, const T *dy,
                  Accumulator<T> *dtable, bool add) {
  using A = Accumulator<T>;
  int64_t n = t * width;
  auto rows = [&](int, int64_t begin, int64_t end) {
    sweep<A>(begin, end, [&](int64_t i, auto at) {
      Vec<A> sum = add ? at.load(dtable + i) : Vec<A>{};
      for (int64_t s = 0; s < samples; ++s)
        sum += at.load(dy + s * n + i);
      at.store(dtable + i, sum);
    });
  };
  if (starts)
    documentPositionGrad(threads, samples, t, width, starts, dy, dtable, add);
  else
    parallelFor(threads, n, elementGrain, rows);
  if (!add)
    __builtin_memset(dtable + n, 0,
                     size_t((tableRows - t) * width) * sizeof(*dtable));
}

} // namespace
} // namespace grt::cpu

#endif // GRT_BACKENDS_CPU_ISA_ROWS_H
