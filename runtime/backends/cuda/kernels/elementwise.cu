//===- elementwise.cu - Kernels that take every element on its own --------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// All of these are bound by memory: a thread moves one pack of 16 bytes of
// every array, and the arithmetic between is a few dozen instructions a pack
// where a device of the H100's kind has time for about 400. Bytes are stated
// for an element of w bytes.
//
//===----------------------------------------------------------------------===//

#include "map.h"
#include "masked.h"

#include <algorithm>

namespace grt::cuda {
namespace {

/// y = x + bias. 2w bytes an element, 1 addition.
template <class T> struct BiasAdd {
  const T *x, *bias;
  T *y;
  int64_t n;
  template <int N> __device__ void run(int64_t i) const {
    Pack<T, N> in = load<N>(x + i), b = load<N>(bias + divide(i, n).rest), out;
    for (int e = 0; e < N; ++e)
      out.at[e] = narrow<T>(wide(in.at[e]) + wide(b.at[e]));
    store<N>(y + i, out);
  }
};

/// y = x * scale, row by row. 2w bytes an element, 1 product.
template <class T> struct ColumnScale {
  const T *x, *scale;
  T *y;
  int64_t n;
  template <int N> __device__ void run(int64_t i) const {
    Pack<T, N> in = load<N>(x + i), s = load<N>(scale + divide(i, n).rest), out;
    for (int e = 0; e < N; ++e)
      out.at[e] = narrow<T>(wide(in.at[e]) * wide(s.at[e]));
    store<N>(y + i, out);
  }
};

template <class T> constexpr bool quick = sizeof(T) == 2;

/// y = gelu(x). 2w bytes an element, about 15 operations in the tanh form, 20
/// in that of erf (40 where results have more than 16 bits).
template <class T, bool Approximate> struct Gelu {
  const T *x;
  T *y;
  template <int N> __device__ void run(int64_t i) const {
    Accumulator<T> value[N];
    widen(load<N>(x + i), value);
    for (int e = 0; e < N; ++e)
      value[e] = gelu<quick<T>>(value[e], Approximate);
    store<N>(y + i, narrowAll<T, N>(value));
  }
};

/// pre = x + bias, y = gelu(pre), of the sum before it is rounded. 3w bytes an
/// element.
template <class T, bool Approximate> struct BiasGelu {
  const T *x, *bias;
  T *pre, *y;
  int64_t n;
  template <int N> __device__ void run(int64_t i) const {
    Accumulator<T> value[N], b[N];
    widen(load<N>(x + i), value);
    widen(load<N>(bias + divide(i, n).rest), b);
    for (int e = 0; e < N; ++e)
      value[e] += b[e];
    store<N>(pre + i, narrowAll<T, N>(value));
    for (int e = 0; e < N; ++e)
      value[e] = gelu<quick<T>>(value[e], Approximate);
    store<N>(y + i, narrowAll<T, N>(value));
  }
};

/// dx = dy * gelu'(x). 3w bytes an element, about 20 operations in the tanh
/// form, 25 in that of erf (60 where results have more than 16 bits).
template <class T, bool Approximate> struct GeluGrad {
  const T *x, *dy;
  T *dx;
  template <int N> __device__ void run(int64_t i) const {
    Accumulator<T> value[N], d[N];
    widen(load<N>(x + i), value);
    widen(load<N>(dy + i), d);
    for (int e = 0; e < N; ++e)
      value[e] = d[e] * geluSlope<quick<T>>(value[e], Approximate);
    store<N>(dx + i, narrowAll<T, N>(value));
  }
};

/// y = cap tanh(x / cap). 2w bytes an element, about 20 operations.
template <class T> struct SoftCap {
  const T *x;
  T *y;
  Accumulator<T> cap, inverse;
  template <int N> __device__ void run(int64_t i) const {
    Accumulator<T> value[N];
    widen(load<N>(x + i), value);
    for (int e = 0; e < N; ++e)
      value[e] = hyperbolicTangent(value[e] * inverse) * cap;
    store<N>(y + i, narrowAll<T, N>(value));
  }
};

/// dx = dy (1 - (y / cap)^2). 3w bytes an element, 4 operations.
template <class T> struct SoftCapGrad {
  const T *y, *dy;
  T *dx;
  Accumulator<T> inverse;
  template <int N> __device__ void run(int64_t i) const {
    Accumulator<T> value[N], d[N];
    widen(load<N>(y + i), value);
    widen(load<N>(dy + i), d);
    for (int e = 0; e < N; ++e) {
      value[e] *= inverse;
      d[e] -= d[e] * value[e] * value[e];
    }
    store<N>(dx + i, narrowAll<T, N>(d));
  }
};

/// y = gate / (1 + e^-gate) up. 3w bytes an element, about 12 operations.
template <class T> struct GatedSilu {
  const T *gate, *up;
  T *y;
  template <int N> __device__ void run(int64_t i) const {
    Pack<T, N> g = load<N>(gate + i), u = load<N>(up + i), out;
    for (int e = 0; e < N; ++e) {
      auto x = wide(g.at[e]);
      out.at[e] = narrow<T>(x * logistic<quick<T>>(-x) * wide(u.at[e]));
    }
    store<N>(y + i, out);
  }
};

/// Computes, with s = 1 / (1 + e^-gate), dup = dy gate s and dgate = dy up s (1
/// + gate (1 - s)). 5w bytes an element, about 18 operations.
template <class T> struct GatedSiluGrad {
  const T *gate, *up, *dy;
  T *dgate, *dup;
  template <int N> __device__ void run(int64_t i) const {
    Pack<T, N> g = load<N>(gate + i), u = load<N>(up + i), in = load<N>(dy + i);
    Pack<T, N> left, right;
    for (int e = 0; e < N; ++e) {
      auto x = wide(g.at[e]), d = wide(in.at[e]);
      auto s = logistic<quick<T>>(-x);
      left.at[e] = narrow<T>(d * wide(u.at[e]) * s * (x * (1 - s) + 1));
      right.at[e] = narrow<T>(d * x * s);
    }
    store<N>(dgate + i, left);
    store<N>(dup + i, right);
  }
};

/// y = x, no further from 0 than `limit`; NaN stays. 2w bytes an element.
template <class T> struct Clip {
  const T *x;
  T *y;
  Accumulator<T> limit;
  template <int N> __device__ void run(int64_t i) const {
    Accumulator<T> value[N];
    widen(load<N>(x + i), value);
    for (int e = 0; e < N; ++e) {
      if (value[e] > limit)
        value[e] = limit;
      if (value[e] < -limit)
        value[e] = -limit;
    }
    store<N>(y + i, narrowAll<T, N>(value));
  }
};

/// y = x, rounded. The bytes of both, once.
template <class T> struct Round {
  const Accumulator<T> *x;
  T *y;
  template <int N> __device__ void run(int64_t i) const {
    const auto sums = load<N>(x + i);
    Accumulator<T> value[N];
    for (int e = 0; e < N; ++e)
      value[e] = sums.at[e];
    store<N>(y + i, narrowAll<T, N>(value));
  }
};

/// dx = dy where |x| <= limit, else 0. 3w bytes an element.
template <class T> struct ClipGrad {
  const T *x, *dy;
  T *dx;
  Accumulator<T> limit;
  template <int N> __device__ void run(int64_t i) const {
    Accumulator<T> value[N], d[N];
    widen(load<N>(x + i), value);
    widen(load<N>(dy + i), d);
    for (int e = 0; e < N; ++e)
      if (value[e] > limit || value[e] < -limit)
        d[e] = 0;
    store<N>(dx + i, narrowAll<T, N>(d));
  }
};

/// y = gelu(gate) up. 3w bytes an element, about 16 operations.
template <class T, bool Approximate> struct GatedGelu {
  const T *gate, *up;
  T *y;
  template <int N> __device__ void run(int64_t i) const {
    Pack<T, N> g = load<N>(gate + i), u = load<N>(up + i), out;
    for (int e = 0; e < N; ++e)
      out.at[e] =
          narrow<T>(gelu<quick<T>>(wide(g.at[e]), Approximate) * wide(u.at[e]));
    store<N>(y + i, out);
  }
};

/// dup = dy gelu(gate), dgate = dy up gelu'(gate). 5w bytes an element, about
/// 30 operations.
template <class T, bool Approximate> struct GatedGeluGrad {
  const T *gate, *up, *dy;
  T *dgate, *dup;
  template <int N> __device__ void run(int64_t i) const {
    Pack<T, N> g = load<N>(gate + i), u = load<N>(up + i), in = load<N>(dy + i);
    Pack<T, N> left, right;
    for (int e = 0; e < N; ++e) {
      auto x = wide(g.at[e]), d = wide(in.at[e]);
      left.at[e] =
          narrow<T>(d * wide(u.at[e]) * geluSlope<quick<T>>(x, Approximate));
      right.at[e] = narrow<T>(d * gelu<quick<T>>(x, Approximate));
    }
    store<N>(dgate + i, left);
    store<N>(dup + i, right);
  }
};

/// y = max(x, 0); NaN stays. 2w bytes an element.
template <class T> struct Relu {
  const T *x;
  T *y;
  template <int N> __device__ void run(int64_t i) const {
    Pack<T, N> in = load<N>(x + i), out;
    for (int e = 0; e < N; ++e) {
      auto value = wide(in.at[e]);
      out.at[e] = narrow<T>(value < 0 ? Accumulator<T>(0) : value);
    }
    store<N>(y + i, out);
  }
};

/// dx = dy where y > 0. 3w bytes an element.
template <class T> struct ReluGrad {
  const T *y, *dy;
  T *dx;
  template <int N> __device__ void run(int64_t i) const {
    Pack<T, N> kept = load<N>(y + i), in = load<N>(dy + i), out;
    for (int e = 0; e < N; ++e)
      out.at[e] = wide(kept.at[e]) > 0 ? in.at[e] : narrow<T>(0);
    store<N>(dx + i, out);
  }
};

/// The arguments of the kernel of ROTARY: frequencies go with the launch.
template <class T> struct RotaryTurn {
  int64_t positions, heads, headDim, pairs;
  int64_t firstPosition;
  bool inverse, interleaved;
  double factor;
  const T *x;
  T *y;
  Accumulator<T> frequencies[GRT_ROTARY_PAIRS];
};

/// Cosine and sine of pair i at position t.
template <class T>
__device__ void makeTurn(const RotaryTurn<T> &r, int64_t t, int64_t i,
                         Accumulator<T> *cosines, Accumulator<T> *sines) {
  using A = Accumulator<T>;
  A angle = A(r.firstPosition + t) * r.frequencies[i];
  A sine = A(sineOf(angle) * A(r.factor));
  cosines[i] = wide(narrow<T>(A(cosineOf(angle) * A(r.factor))));
  sines[i] = wide(narrow<T>(r.inverse ? -sine : sine));
}

/// A block turns one position of one sample. Its cosines and sines are in
/// shared memory, so that each serves all heads. 2w bytes an element.
template <class T>
__global__ void __launch_bounds__(mapThreads) rotaryKernel(RotaryTurn<T> r) {
  using A = Accumulator<T>;
  A *cosines = dynamicShared<A>(), *sines = cosines + r.pairs;
  const int64_t t = blockIdx.x;
  for (int64_t i = threadIdx.x; i < r.pairs; i += mapThreads)
    makeTurn(r, t, i, cosines, sines);
  __syncthreads();
  const int64_t row =
      (int64_t(blockIdx.y) * r.positions + t) * r.heads * r.headDim;
  const int64_t rest = r.headDim - r.pairs;
  for (int64_t i = threadIdx.x; i < r.heads * rest; i += mapThreads) {
    Quotient at = divide(i, rest);
    int64_t place = row + at.quotient * r.headDim + at.rest;
    if (at.rest < r.pairs) {
      const int64_t apart = r.interleaved ? 1 : r.pairs;
      const int64_t first = r.interleaved ? place + at.rest : place;
      A low = wide(r.x[first]), high = wide(r.x[first + apart]);
      A c = cosines[at.rest], s = sines[at.rest];
      r.y[first] = narrow<T>(low * c - high * s);
      r.y[first + apart] = narrow<T>(high * c + low * s);
    } else {
      // Elements behind the pairs.
      r.y[place + r.pairs] = r.x[place + r.pairs];
    }
  }
}

/// Packs of pairs that a thread has on their way at a time.
constexpr int rotaryAhead = 4;

/// The same of whole heads, in packs: a block turns one position of as many
/// samples as give its threads something to do, so that cosines and sines, some
/// hundred instructions each, are made once for all of them; and while rows are
/// on their way.
template <class T, int N>
__global__ void __launch_bounds__(mapThreads)
    rotaryPacksKernel(RotaryTurn<T> r, int64_t samples, int samplesOfBlock,
                      Divisor heads, Divisor packs) {
  using A = Accumulator<T>;
  A *cosines = dynamicShared<A>(), *sines = cosines + r.pairs;
  const int64_t t = blockIdx.x;
  const int64_t firstSample = int64_t(blockIdx.y) * samplesOfBlock;
  const int64_t mine = samples - firstSample < samplesOfBlock
                           ? samples - firstSample
                           : samplesOfBlock;
  const int64_t items = mine * r.heads * (r.pairs / N);
  int64_t places[rotaryAhead];
  int columns[rotaryAhead];
  Pack<T, N> low[rotaryAhead], high[rotaryAhead];
  auto fetch = [&](int64_t first) {
#pragma unroll
    for (int a = 0; a < rotaryAhead; ++a)
      if (const int64_t i = first + a * mapThreads; i < items) {
        const Quotient pack = packs.divide(i);
        const Quotient head = heads.divide(pack.quotient);
        const int64_t row = (firstSample + head.quotient) * r.positions + t;
        columns[a] = int(pack.rest) * N;
        places[a] = (row * r.heads + head.rest) * r.headDim + columns[a];
        low[a] = load<N>(r.x + places[a]);
        high[a] = load<N>(r.x + places[a] + r.pairs);
      }
  };
  fetch(threadIdx.x);
  for (int64_t i = threadIdx.x; i < r.pairs; i += mapThreads)
    makeTurn(r, t, i, cosines, sines);
  __syncthreads();
  for (int64_t first = threadIdx.x; first < items;) {
#pragma unroll
    for (int a = 0; a < rotaryAhead; ++a)
      if (first + a * mapThreads < items) {
        A l[N], h[N], left[N], right[N];
        widen(low[a], l);
        widen(high[a], h);
        for (int e = 0; e < N; ++e) {
          const A c = cosines[columns[a] + e], s = sines[columns[a] + e];
          left[e] = l[e] * c - h[e] * s;
          right[e] = h[e] * c + l[e] * s;
        }
        store<N>(r.y + places[a], narrowAll<T, N>(left));
        store<N>(r.y + places[a] + r.pairs, narrowAll<T, N>(right));
      }
    first += rotaryAhead * mapThreads;
    fetch(first);
  }
}

/// y = a + b. 3w bytes an element, 1 addition.
template <class T> struct Add {
  const T *a, *b;
  T *y;
  template <int N> __device__ void run(int64_t i) const {
    Pack<T, N> left = load<N>(a + i), right = load<N>(b + i), out;
    for (int e = 0; e < N; ++e)
      out.at[e] = narrow<T>(wide(left.at[e]) + wide(right.at[e]));
    store<N>(y + i, out);
  }
};

/// y = factor x. 2w bytes an element, 1 multiplication.
template <class T> struct Scale {
  const T *x;
  T *y;
  Accumulator<T> factor;
  template <int N> __device__ void run(int64_t i) const {
    Pack<T, N> in = load<N>(x + i), out;
    for (int e = 0; e < N; ++e)
      out.at[e] = narrow<T>(wide(in.at[e]) * factor);
    store<N>(y + i, out);
  }
};

/// y[s, t] = x[s, t] + table[t]. 2w bytes an element (the table stays in the
/// second-level cache), 1 addition.
template <class T> struct PositionAdd {
  const T *x, *table;
  T *y;
  int64_t perSample;
  template <int N> __device__ void run(int64_t i) const {
    Pack<T, N> in = load<N>(x + i),
               at = load<N>(table + divide(i, perSample).rest), out;
    for (int e = 0; e < N; ++e)
      out.at[e] = narrow<T>(wide(in.at[e]) + wide(at.at[e]));
    store<N>(y + i, out);
  }
};

/// y[s, t] = x[s, t] + table[t - starts[s, t]].
template <class T> struct DocumentPositionAdd {
  const T *x, *table;
  const int32_t *starts;
  T *y;
  int64_t positions, width;
  template <int N> __device__ void run(int64_t i) const {
    const Quotient row = divide(i, width);
    const int64_t position =
        divide(row.quotient, positions).rest - starts[row.quotient];
    Pack<T, N> in = load<N>(x + i),
               at = load<N>(table + position * width + row.rest), out;
    for (int e = 0; e < N; ++e)
      out.at[e] = narrow<T>(wide(in.at[e]) + wide(at.at[e]));
    store<N>(y + i, out);
  }
};

/// Packs that a thread drops elements of: the key of the masks is made once for
/// all of a block's.
constexpr int dropoutPacks = 4;

/// y = dropout(x) (+ residual). 2w or 3w bytes an element, some 20
/// instructions: half of what a device of the H100's kind has time for while it
/// moves 2w.
template <class T, int N, bool Residual>
__global__ void __launch_bounds__(mapThreads)
    dropoutKernel(int64_t packs, Divisor packsOfRow, Mask<T> mask, const T *x,
                  const T *residual, T *y) {
  using A = Accumulator<T>;
  const int64_t first =
      int64_t(blockIdx.x) * (mapThreads * dropoutPacks) + threadIdx.x;
  Pack<T, N> in[dropoutPacks], onto[dropoutPacks];
#pragma unroll
  for (int k = 0; k < dropoutPacks; ++k)
    if (const int64_t p = first + k * mapThreads; p < packs) {
      in[k] = load<N>(x + p * N);
      if constexpr (Residual)
        onto[k] = load<N>(residual + p * N);
    }
  const StepKey step = stepKey(mask.arguments.key);
#pragma unroll
  for (int k = 0; k < dropoutPacks; ++k)
    if (const int64_t p = first + k * mapThreads; p < packs) {
      A value[N], add[N];
      widen(in[k], value);
      const Quotient place = packsOfRow.divide(p);
      drop<N>(mask, step, place.quotient, place.rest * N, value);
      if constexpr (Residual) {
        widen(onto[k], add);
        for (int e = 0; e < N; ++e)
          value[e] += add[e];
      }
      store<N>(y + p * N, narrowAll<T, N>(value));
    }
}

/// y[r] = table[tokens[r]]. 2w bytes an element.
template <class T> struct Embedding {
  const int32_t *tokens;
  const T *table;
  T *y;
  int64_t width;
  TableSlice slice;
  Complaint *complaint;
  const char *name;

  template <int N> __device__ void run(int64_t i) const {
    Quotient place = divide(i, width);
    int64_t token = tokens[place.quotient];
    if ((token < 0 || token >= slice.limit) && place.rest == 0 &&
        atomicCAS(&complaint->taken, 0u, 1u) == 0) {
      complaint->name = name;
      complaint->value = token;
      complaint->row = place.quotient;
      complaint->limit = slice.limit;
      complaint->kind = Complaint::Token;
    }
    int64_t local = token - slice.first;
    Pack<T, N> out;
    if (local >= 0 && local < slice.localRows)
      out = load<N>(table + local * width + place.rest);
    else
      for (int e = 0; e < N; ++e)
        out.at[e] = narrow<T>(Accumulator<T>(0));
    store<N>(y + i, out);
  }
};

/// Patches across and down.
GRT_EVERYWHERE int64_t patchesOf(int64_t pixels, int64_t size, bool padded) {
  return (pixels + (padded ? size - 1 : 0)) / size;
}

/// Patches of images. 2w bytes an element; what is read one after another are
/// rows of a patch, which are moved in packs where they are whole ones.
template <class T> struct Patches {
  PatchArguments a;
  const T *images;
  T *y;
  Divisor patchCols, patchRows, channels, across, down;

  Patches(const PatchArguments &a, const T *images, T *y)
      : a(a), images(images), y(y), patchCols(a.patchCols),
        patchRows(a.patchRows), channels(a.channels),
        across(patchesOf(a.cols, a.patchCols, a.padded)),
        down(patchesOf(a.rows, a.patchRows, a.padded)) {}

  template <int N> __device__ void run(int64_t i) const {
    Quotient column = patchCols.divide(i);
    Quotient row = patchRows.divide(column.quotient);
    Quotient channel = channels.divide(row.quotient);
    Quotient left = across.divide(channel.quotient);
    Quotient top = down.divide(left.quotient);
    int64_t plane = top.quotient * a.channels + channel.rest;
    int64_t line = top.rest * a.patchRows + row.rest;
    int64_t place = left.rest * a.patchCols + column.rest;
    Pack<T, N> out;
    if (line < a.rows && place < a.cols)
      out = load<N>(images + (plane * a.rows + line) * a.cols + place);
    else
      for (int e = 0; e < N; ++e)
        out.at[e] = narrow<T>(Accumulator<T>(0));
    store<N>(y + i, out);
  }
};

/// Rows of `units` words of type U. Twice the bytes that are copied.
template <class U> struct CopyRows {
  const char *source;
  char *target;
  int64_t units, sourceStride, targetStride;
  template <int N> __device__ void run(int64_t i) const {
    Quotient place = divide(i, units);
    const U *from =
        reinterpret_cast<const U *>(source + place.quotient * sourceStride);
    U *to = reinterpret_cast<U *>(target + place.quotient * targetStride);
    to[place.rest] = from[place.rest];
  }
};

} // namespace

template <class T>
void biasAdd(const Queue &queue, int64_t rows, int64_t n, const T *x,
             const T *bias, T *y) {
  map<T>(queue, rows * n, n, {x, bias, y}, BiasAdd<T>{x, bias, y, n});
}

template <class T>
void columnScale(const Queue &queue, int64_t rows, int64_t n, const T *x,
                 const T *scale, T *y) {
  map<T>(queue, rows * n, n, {x, scale, y}, ColumnScale<T>{x, scale, y, n});
}

template <class T>
void biasGelu(const Queue &queue, int64_t rows, int64_t n, const T *x,
              const T *bias, T *pre, T *y, bool approximate) {
  if (!bias) {
    if (approximate)
      map<T>(queue, rows * n, 0, {x, y}, Gelu<T, true>{x, y});
    else
      map<T>(queue, rows * n, 0, {x, y}, Gelu<T, false>{x, y});
    return;
  }
  if (approximate)
    map<T>(queue, rows * n, n, {x, bias, pre, y},
           BiasGelu<T, true>{x, bias, pre, y, n});
  else
    map<T>(queue, rows * n, n, {x, bias, pre, y},
           BiasGelu<T, false>{x, bias, pre, y, n});
}

template <class T>
void geluGrad(const Queue &queue, int64_t n, const T *x, const T *dy, T *dx,
              bool approximate) {
  if (approximate)
    map<T>(queue, n, 0, {x, dy, dx}, GeluGrad<T, true>{x, dy, dx});
  else
    map<T>(queue, n, 0, {x, dy, dx}, GeluGrad<T, false>{x, dy, dx});
}

template <class T> void relu(const Queue &queue, int64_t n, const T *x, T *y) {
  map<T>(queue, n, 0, {x, y}, Relu<T>{x, y});
}

template <class T>
void reluGrad(const Queue &queue, int64_t n, const T *y, const T *dy, T *dx) {
  map<T>(queue, n, 0, {y, dy, dx}, ReluGrad<T>{y, dy, dx});
}

template <class T>
void roundSums(const Queue &queue, int64_t n, const Accumulator<T> *x, T *y) {
  map<T>(queue, n, 0, {x, y}, Round<T>{x, y});
}

template <class T>
void softCap(const Queue &queue, int64_t n, const T *x, T *y, double cap) {
  using A = Accumulator<T>;
  map<T>(queue, n, 0, {x, y}, SoftCap<T>{x, y, A(cap), A(1 / cap)});
}

template <class T>
void softCapGrad(const Queue &queue, int64_t n, const T *y, const T *dy, T *dx,
                 double cap) {
  map<T>(queue, n, 0, {y, dy, dx},
         SoftCapGrad<T>{y, dy, dx, Accumulator<T>(1 / cap)});
}

template <class T>
void clip(const Queue &queue, int64_t n, const T *x, T *y, double limit) {
  map<T>(queue, n, 0, {x, y}, Clip<T>{x, y, Accumulator<T>(limit)});
}

template <class T>
void clipGrad(const Queue &queue, int64_t n, const T *x, const T *dy, T *dx,
              double limit) {
  map<T>(queue, n, 0, {x, dy, dx},
         ClipGrad<T>{x, dy, dx, Accumulator<T>(limit)});
}

template <class T>
void gatedGelu(const Queue &queue, int64_t n, const T *gate, const T *up, T *y,
               bool approximate) {
  if (approximate)
    map<T>(queue, n, 0, {gate, up, y}, GatedGelu<T, true>{gate, up, y});
  else
    map<T>(queue, n, 0, {gate, up, y}, GatedGelu<T, false>{gate, up, y});
}

template <class T>
void gatedGeluGrad(const Queue &queue, int64_t n, const T *gate, const T *up,
                   const T *dy, T *dgate, T *dup, bool approximate) {
  if (approximate)
    map<T>(queue, n, 0, {gate, up, dy, dgate, dup},
           GatedGeluGrad<T, true>{gate, up, dy, dgate, dup});
  else
    map<T>(queue, n, 0, {gate, up, dy, dgate, dup},
           GatedGeluGrad<T, false>{gate, up, dy, dgate, dup});
}

template <class T>
void gatedSilu(const Queue &queue, int64_t n, const T *gate, const T *up,
               T *y) {
  map<T>(queue, n, 0, {gate, up, y}, GatedSilu<T>{gate, up, y});
}

template <class T>
void gatedSiluGrad(const Queue &queue, int64_t n, const T *gate, const T *up,
                   const T *dy, T *dgate, T *dup) {
  map<T>(queue, n, 0, {gate, up, dy, dgate, dup},
         GatedSiluGrad<T>{gate, up, dy, dgate, dup});
}

template <class T>
void rotary(const Queue &queue, const RotaryArguments &a, const T *x, T *y) {
  using A = Accumulator<T>;
  if (a.samples <= 0 || a.positions <= 0 || a.heads <= 0)
    return;
  RotaryTurn<T> r = {
      a.positions, a.heads,       a.headDim, a.pairs, a.firstPosition,
      a.inverse,   a.interleaved, a.factor,  x,       y,
      {}};
  for (int64_t i = 0; i < a.pairs; ++i)
    r.frequencies[i] = A(a.frequencies[i]);
  constexpr int N = packSize<T>;
  const int shared = int(2 * a.pairs * int64_t(sizeof(A)));
  if (a.pairs > 0 && !a.interleaved && a.headDim == 2 * a.pairs &&
      a.pairs % N == 0 && aligned({x, y})) {
    const int64_t items = a.heads * (a.pairs / N);
    const int64_t together =
        std::clamp<int64_t>(rotaryAhead * mapThreads / items, 1, a.samples);
    launch(rotaryPacksKernel<T, N>,
           dim3(unsigned(a.positions),
                unsigned((a.samples + together - 1) / together)),
           dim3(mapThreads), shared, queue.stream, r, a.samples, int(together),
           Divisor(a.heads), Divisor(a.pairs / N));
    return;
  }
  launch(rotaryKernel<T>, dim3(unsigned(a.positions), unsigned(a.samples)),
         dim3(mapThreads), shared, queue.stream, r);
}

template <class T>
void add(const Queue &queue, int64_t n, const T *a, const T *b, T *y) {
  map<T>(queue, n, 0, {a, b, y}, Add<T>{a, b, y});
}

template <class T>
void scale(const Queue &queue, int64_t n, const T *x, T *y, double factor) {
  map<T>(queue, n, 0, {x, y}, Scale<T>{x, y, Accumulator<T>(factor)});
}

template <class T>
void positionAdd(const Queue &queue, int64_t samples, int64_t t, int64_t width,
                 const T *x, const T *table, T *y) {
  map<T>(queue, samples * t * width, t * width, {x, table, y},
         PositionAdd<T>{x, table, y, t * width});
}

template <class T>
void documentPositionAdd(const Queue &queue, int64_t samples, int64_t t,
                         int64_t width, const int32_t *starts, const T *x,
                         const T *table, T *y) {
  map<T>(queue, samples * t * width, width, {x, table, y},
         DocumentPositionAdd<T>{x, table, starts, y, t, width});
}

template <class T>
void dropout(const Queue &queue, const DropoutArguments &d, const T *x,
             const T *residual, T *y) {
  int64_t n = d.rows * d.cols;
  if (d.key.p == 0) {
    if (residual)
      add(queue, n, x, residual, y);
    else if (x != y)
      gpu::copy(queue.stream, y, x, uint64_t(n) * sizeof(T));
    return;
  }
  if (n <= 0)
    return;
  auto run = [&](auto *kernel, int64_t width) {
    const int64_t packs = n / width, block = mapThreads * dropoutPacks;
    launch(kernel, dim3(unsigned((packs + block - 1) / block)),
           dim3(mapThreads), 0, queue.stream, packs, Divisor(d.cols / width),
           Mask<T>(d), x, residual, y);
  };
  constexpr int N = packSize<T>;
  if (d.cols % N == 0 && aligned({x, residual, y}))
    residual ? run(dropoutKernel<T, N, true>, N)
             : run(dropoutKernel<T, N, false>, N);
  else
    residual ? run(dropoutKernel<T, 1, true>, 1)
             : run(dropoutKernel<T, 1, false>, 1);
}

template <class T>
void embedding(const Queue &queue, int64_t rows, int64_t width,
               const TableSlice &slice, const int32_t *tokens, const T *table,
               T *y) {
  map<T>(queue, rows * width, width, {table, y},
         Embedding<T>{tokens, table, y, width, slice, queue.complaint,
                      queue.opName});
}

template <class T>
void patches(const Queue &queue, const PatchArguments &a, const T *images,
             T *y) {
  int64_t count = a.samples * patchesOf(a.rows, a.patchRows, a.padded) *
                  patchesOf(a.cols, a.patchCols, a.padded);
  const int64_t n = count * a.channels * a.patchRows * a.patchCols;
  if (n <= 0)
    return;
  constexpr int N = packSize<T>;
  if (a.patchCols % N == 0 && a.cols % N == 0 && aligned({images, y}))
    launchMap<N>(queue, n, Patches<T>(a, images, y));
  else
    launchMap<1>(queue, n, Patches<T>(a, images, y));
}

void copyRows(const Queue &queue, int64_t rows, int64_t rowBytes,
              int64_t sourceStride, int64_t targetStride, const void *source,
              void *target) {
  if (rows <= 0 || rowBytes <= 0)
    return;
  if (rows == 1 || (sourceStride == rowBytes && targetStride == rowBytes)) {
    gpu::copy(queue.stream, target, source, uint64_t(rows * rowBytes));
    return;
  }
  uint64_t bits = uint64_t(rowBytes) | uint64_t(sourceStride) |
                  uint64_t(targetStride) | reinterpret_cast<uintptr_t>(source) |
                  reinterpret_cast<uintptr_t>(target);
  auto run = [&](auto word) {
    using U = decltype(word);
    int64_t units = rowBytes / int64_t(sizeof(U));
    launchMap<1>(queue, rows * units,
                 CopyRows<U>{static_cast<const char *>(source),
                             static_cast<char *>(target), units, sourceStride,
                             targetStride});
  };
  if (bits % 16 == 0)
    run(Pack<uint32_t, 4>());
  else if (bits % 4 == 0)
    run(uint32_t());
  else if (bits % 2 == 0)
    run(uint16_t());
  else
    run(uint8_t());
}

#define GRT_INSTANTIATE(T)                                                     \
  template void biasAdd(const Queue &, int64_t, int64_t, const T *, const T *, \
                        T *);                                                  \
  template void biasGelu(const Queue &, int64_t, int64_t, const T *,           \
                         const T *, T *, T *, bool);                           \
  template void geluGrad(const Queue &, int64_t, const T *, const T *, T *,    \
                         bool);                                                \
  template void relu(const Queue &, int64_t, const T *, T *);                  \
  template void reluGrad(const Queue &, int64_t, const T *, const T *, T *);   \
  template void roundSums(const Queue &, int64_t, const Accumulator<T> *,      \
                          T *);                                                \
  template void softCap(const Queue &, int64_t, const T *, T *, double);       \
  template void softCapGrad(const Queue &, int64_t, const T *, const T *, T *, \
                            double);                                           \
  template void clip(const Queue &, int64_t, const T *, T *, double);          \
  template void clipGrad(const Queue &, int64_t, const T *, const T *, T *,    \
                         double);                                              \
  template void columnScale(const Queue &, int64_t, int64_t, const T *,        \
                            const T *, T *);                                   \
  template void gatedGelu(const Queue &, int64_t, const T *, const T *, T *,   \
                          bool);                                               \
  template void gatedGeluGrad(const Queue &, int64_t, const T *, const T *,    \
                              const T *, T *, T *, bool);                      \
  template void gatedSilu(const Queue &, int64_t, const T *, const T *, T *);  \
  template void gatedSiluGrad(const Queue &, int64_t, const T *, const T *,    \
                              const T *, T *, T *);                            \
  template void rotary(const Queue &, const RotaryArguments &, const T *,      \
                       T *);                                                   \
  template void add(const Queue &, int64_t, const T *, const T *, T *);        \
  template void scale(const Queue &, int64_t, const T *, T *, double);         \
  template void positionAdd(const Queue &, int64_t, int64_t, int64_t,          \
                            const T *, const T *, T *);                        \
  template void documentPositionAdd(const Queue &, int64_t, int64_t, int64_t,  \
                                    const int32_t *, const T *, const T *,     \
                                    T *);                                      \
  template void dropout(const Queue &, const DropoutArguments &, const T *,    \
                        const T *, T *);                                       \
  template void embedding(const Queue &, int64_t, int64_t, const TableSlice &, \
                          const int32_t *, const T *, T *);                    \
  template void patches(const Queue &, const PatchArguments &, const T *, T *)
GRT_INSTANTIATE(float);
GRT_INSTANTIATE(double);
GRT_INSTANTIATE(BF16);

} // namespace grt::cuda
