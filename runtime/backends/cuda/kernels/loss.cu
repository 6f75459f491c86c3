//===- loss.cu - Softmax statistics and cross entropy ---------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A block takes a row of logits. Rows of an odd vocabulary start anywhere, so
// each is walked as a few single elements, packs of 16 bytes, and the rest.
// All kernels are bound by memory. A vocabulary that is not divided is read
// once: between the statistics and the gradient the row stays in shared memory,
// as far as that goes. Over shards a collective stands between the two, and
// each of them reads the logits.
//
//===----------------------------------------------------------------------===//

#include "elements.h"
#include "kernels.h"
#include "queries.h"

#include <algorithm>

namespace grt::cuda {
namespace {

constexpr int rowThreads = 512;
/// Packs of a thread that are on their way at a time, of a row in memory and of
/// one in shared memory.
template <class T> constexpr int aheadOfMemory = sizeof(T) == 8 ? 1 : 4;
template <class T> constexpr int aheadOfShared = sizeof(T) == 8 ? 1 : 2;
/// The number of blocks of a multiprocessor where a block keeps its row.
constexpr int rowBlocks = 2;

/// Calls body.run<N>(i) or body.run<1>(i) for all elements of [0, n), each on
/// one thread, in ascending order on each. `single` elements come before the
/// first pack.
template <int N, class Body>
__device__ void sweepRow(int n, int single, Body &body) {
  if (single > n)
    single = n;
  const int packs = (n - single) / N, rest = single + packs * N;
  const int thread = int(threadIdx.x);
  if (thread < single)
    body.template run<1>(thread);
  for (int p = thread; p < packs; p += rowThreads)
    body.template run<N>(single + p * N);
  if (rest + thread < n)
    body.template run<1>(rest + thread);
}
/// The same of body.take<N>(i, body.row.at<N>(i)), with `Ahead` packs a thread
/// on their way at a time.
template <int N, int Ahead, class Body>
__device__ void sweepAhead(int n, int single, Body &body) {
  if (single > n)
    single = n;
  const int packs = (n - single) / N, rest = single + packs * N;
  const int thread = int(threadIdx.x);
  if (thread < single)
    body.take(thread, body.row.template at<1>(thread));
  loadAhead<Ahead>(
      thread, packs, rowThreads,
      [&](int p) { return body.row.template at<N>(single + p * N); },
      [&](int p, const auto &pack) { body.take(single + p * N, pack); });
  if (rest + thread < n)
    body.take(rest + thread, body.row.template at<1>(rest + thread));
}

/// Elements before the first whole pack of a row.
template <class T> __device__ int before(const T *row) {
  uintptr_t over = reinterpret_cast<uintptr_t>(row) % 16;
  return over == 0 ? 0 : int((16 - over) / sizeof(T));
}

/// A row that is read where it is.
template <class T> struct PlainRow {
  const T *row;
  template <int N> __device__ Pack<T, N> at(int i) const {
    return load<N>(row + i);
  }
};

/// A row of which [begin, end), whole packs, are in shared memory. A pack is
/// fetched and read by one thread, so threads need not wait for each other.
template <class T> struct KeptRow {
  const T *row;
  T *kept;
  int begin, end;
  template <int N> __device__ Pack<T, N> at(int i) const {
#ifdef __CUDA_ARCH__
    // Either is loaded as what it is, and in words: nvcc would choose between
    // two addresses, and load by one that may be of any memory; and put
    // together elements of 16 bits one by one.
    if constexpr (N > 1) {
      uint4 words;
      if (i < end)
        asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(words.x), "=r"(words.y), "=r"(words.z),
                       "=r"(words.w)
                     : "r"(uint32_t(__cvta_generic_to_shared(kept + i - begin)))
                     : "memory");
      else
        words = *reinterpret_cast<const uint4 *>(row + i);
      using Result = Pack<T, N>;
      return __builtin_bit_cast(Result, words);
    } else
#endif
      return load<N>(N > 1 && i < end ? kept + (i - begin) : row + i);
  }
  /// All of a thread's packs are under way at once.
  template <int N> __device__ void run(int i) {
    if (N > 1 && i < end)
      copyAhead(kept + (i - begin), row + i);
  }
};

/// The largest of a pack; NaN is ignored, unless there is nothing else.
template <class T, int N>
__device__ Accumulator<T> largestOf(const Pack<T, N> &pack) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(T) == 2 && N == 8) {
    // Two at a time.
    auto both = [](uint32_t a, uint32_t b) {
      uint32_t c;
      asm("max.bf16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
      return c;
    };
    const uint4 w = __builtin_bit_cast(uint4, pack);
    const uint32_t top = both(both(w.x, w.y), both(w.z, w.w));
    return larger(bitsToFloat(top << 16), bitsToFloat(top & 0xffff0000u));
  } else
#endif
  {
    Accumulator<T> top = wide(pack.at[0]);
    for (int e = 1; e < N; ++e)
      top = larger(top, wide(pack.at[e]));
    return top;
  }
}

/// Largest logit, sum of exponentials of the distances to it, and, if that is
/// asked for, where the largest stands first, of the elements seen so far. Some
/// 6 instructions an element in 16 bits, one of them an exponential.
template <class T, class Row> struct RowStatistics {
  using A = Accumulator<T>;
  Row row;
  bool places;
  A maximum = -infinity<A>();
  A sum = 0;
  int place = 0;

  template <int N> __device__ void take(int i, const Pack<T, N> &in) {
    const A top = largestOf(in);
    if (top > maximum) {
      sum *= exponentialFor<T>(maximum - top);
      maximum = top;
      if (places)
        for (int e = N - 1; e >= 0; --e)
          if (wide(in.at[e]) == top)
            place = i + e;
    }
    A value[N];
    widen(in, value);
    for (int e = 0; e < N; ++e)
      value[e] = exponentialFor<T>(value[e] - maximum);
    // The sum is made in pairs: no value waits for all before it.
    for (int s = 1; s < N; s *= 2)
      for (int e = 0; e + s < N; e += 2 * s)
        value[e] += value[e + s];
    sum += value[0];
  }
};

/// The statistics of a row with the sum of the elements seen so far.
template <class T, class Row> struct RowTotals : RowStatistics<T, Row> {
  using A = Accumulator<T>;
  A total = 0;

  template <int N> __device__ void take(int i, const Pack<T, N> &in) {
    RowStatistics<T, Row>::template take<N>(i, in);
    A value[N];
    widen(in, value);
    for (int e = 0; e < N; ++e)
      total += value[e];
  }
};

/// The statistics of a whole row, the same on all threads.
template <class A> struct RowResult {
  A maximum;
  double sum;
  int64_t place; ///< where the largest stands first, if that is asked for
};
template <class T, class Row>
__device__ RowResult<Accumulator<T>>
combineRow(const RowStatistics<T, Row> &mine, int64_t validCols, int64_t none) {
  using A = Accumulator<T>;
  A maximum = teamCombine<rowThreads>(mine.maximum,
                                      [](A x, A y) { return larger(x, y); });
  // A thread without elements has a sum of 0 and must not make NaN of it.
  A share = mine.sum == A(0)
                ? A(0)
                : mine.sum * exponentialFor<T>(mine.maximum - maximum);
  double sum = teamSum<rowThreads>(double(share));
  int64_t place = mine.maximum == maximum && validCols > 0 ? mine.place : none;
  if (mine.places)
    place = teamCombine<rowThreads>(
        place, [](int64_t x, int64_t y) { return x < y ? x : y; });
  return {maximum, sum, place < validCols ? place : 0};
}

__device__ inline void complainOfLabel(Complaint *complaint, const char *name,
                                       int64_t label, int64_t row,
                                       int64_t limit) {
  if (atomicCAS(&complaint->taken, 0u, 1u) != 0)
    return;
  complaint->name = name;
  complaint->value = label;
  complaint->row = row;
  complaint->limit = limit;
  complaint->kind = Complaint::Label;
}

/// w bytes an element.
template <class T>
__global__ void __launch_bounds__(rowThreads)
    softmaxStatsKernel(LossArguments<T> a, Complaint *complaint,
                       const char *name) {
  using A = Accumulator<T>;
  const int64_t r = blockIdx.x;
  const T *row = a.logits + r * a.cols;
  const bool generate = a.step->mode == GRT_MODE_GENERATE;
  RowStatistics<T, PlainRow<T>> mine{{row}, generate};
  sweepAhead<packSize<T>, aheadOfMemory<T>>(int(a.validCols), before(row),
                                            mine);
  RowResult<A> all = combineRow(mine, a.validCols, a.cols);
  if (threadIdx.x != 0)
    return;
  A *stats = a.stats + 3 * r;
  stats[0] = all.maximum;
  stats[1] = A(all.sum);
  stats[2] = 0;
  if (generate) {
    stats[2] = A(all.place);
    return;
  }
  int64_t label = a.labels[r], local = label - a.firstColumn;
  if (label >= a.globalCols)
    complainOfLabel(complaint, name, label, r, a.globalCols);
  else if (label >= 0 && local >= 0 && local < a.validCols)
    stats[2] = wide(row[local]);
}

/// w bytes an element, one operation more than without the sum.
template <class T>
__global__ void __launch_bounds__(rowThreads)
    regularizedStatsKernel(LossArguments<T> a, Complaint *complaint,
                           const char *name) {
  using A = Accumulator<T>;
  const int64_t r = blockIdx.x;
  const T *row = a.logits + r * a.cols;
  const bool generate = a.step->mode == GRT_MODE_GENERATE;
  RowTotals<T, PlainRow<T>> mine{{{row}, generate}};
  sweepAhead<packSize<T>, aheadOfMemory<T>>(int(a.validCols), before(row),
                                            mine);
  RowResult<A> all = combineRow<T, PlainRow<T>>(mine, a.validCols, a.cols);
  const double total = teamSum<rowThreads>(double(mine.total));
  if (threadIdx.x != 0)
    return;
  A *stats = a.stats + 4 * r;
  stats[0] = all.maximum;
  stats[1] = A(all.sum);
  stats[2] = generate ? A(all.place) : A(0);
  stats[3] = A(total);
  if (generate)
    return;
  int64_t label = a.labels[r], local = label - a.firstColumn;
  if (label >= a.globalCols)
    complainOfLabel(complaint, name, label, r, a.globalCols);
  else if (label >= 0 && local >= 0 && local < a.validCols)
    stats[2] = wide(row[local]);
}

/// dlogits of one row: exp(logit - maximum) * factor, less inverseTokens at the
/// label. In 16 bits the factor goes into the exponent, some 5 instructions an
/// element.
template <class T, class Row> struct RowGradient {
  using A = Accumulator<T>;
  Row row;
  T *out;
  A maximum, factor, inverseTokens;
  int64_t label;
  int validCols;

  /// Returns the form of the factor that power() takes.
  __device__ static A prepared(double factor) {
    return sizeof(T) == 2 ? A(log2(factor)) : A(factor);
  }
  __device__ A power(A logit) const {
    if constexpr (sizeof(T) == 2)
      return quickPower(
          multiplyAdd(logit - maximum, 1.44269504088896340736f, factor));
    else
      return exponential(logit - maximum) * factor;
  }

  template <int N> __device__ void take(int i, const Pack<T, N> &in) {
    A p[N];
    widen(in, p);
    for (int e = 0; e < N; ++e)
      p[e] = power(p[e]);
    if (uint64_t(label - i) < uint64_t(N))
      for (int e = 0; e < N; ++e)
        if (i + e == label)
          p[e] -= inverseTokens;
    if (i + N > validCols)
      for (int e = 0; e < N; ++e)
        if (i + e >= validCols)
          p[e] = 0;
    store<N>(out + i, narrowAll<T, N>(p));
  }
};
/// dlogits of one row: exp(logit - maximum) * factor - uniform, less target at
/// the label. The factor may be negative, so it is no part of the exponent.
template <class T> struct RegularizedGradient {
  using A = Accumulator<T>;
  PlainRow<T> row;
  T *out;
  A maximum, factor, uniform, target;
  int64_t label;
  int validCols;

  template <int N> __device__ void take(int i, const Pack<T, N> &in) {
    A p[N];
    widen(in, p);
    for (int e = 0; e < N; ++e) {
      p[e] = exponentialFor<T>(p[e] - maximum) * factor - uniform;
      if (i + e == label)
        p[e] -= target;
      if (i + e >= validCols)
        p[e] = 0;
    }
    store<N>(out + i, narrowAll<T, N>(p));
  }
};
template <class T> struct RowOfZeros {
  T *out;
  template <int N> __device__ void run(int i) {
    Pack<T, N> zeros;
    for (int e = 0; e < N; ++e)
      zeros.at[e] = narrow<T>(Accumulator<T>(0));
    store<N>(out + i, zeros);
  }
};

template <class T, int Ahead, class Gradient>
__device__ void writeGradient(Gradient gradient, const T *row, int64_t cols) {
  // Packs only where both rows allow the same ones.
  const int single = before(gradient.out);
  if (before(row) == single) {
    sweepAhead<packSize<T>, Ahead>(int(cols), single, gradient);
    return;
  }
  for (int i = int(threadIdx.x); i < cols; i += rowThreads)
    gradient.take(i, gradient.row.template at<1>(i));
}

/// Returns the statistics of a shard's part of the block's row: `Width`
/// numbers, of which the first is the largest logit and, in a pass that
/// generates, the third its column.
template <int Width, class T>
__device__ auto statsOfShard(const LossArguments<T> &a, int64_t shard) {
  return a.stats + Width * (shard * a.rows + int64_t(blockIdx.x));
}

/// Returns the shard that has the largest logit of the block's row.
template <int Width, class T>
__device__ int64_t largestShard(const LossArguments<T> &a) {
  int64_t largest = 0;
  for (int64_t s = 1; s < a.shards; ++s)
    if (statsOfShard<Width>(a, s)[0] > statsOfShard<Width>(a, largest)[0])
      largest = s;
  return largest;
}

/// Makes the likeliest token the label of the block's row.
template <int Width, class T>
__device__ void labelLikeliest(const LossArguments<T> &a, int64_t largest) {
  if (threadIdx.x == 0)
    a.labels[blockIdx.x] =
        int32_t(largest * a.cols + int64_t(statsOfShard<Width>(a, largest)[2]));
}

/// Writes the results of the block's row if its label does not count: a
/// gradient of zeros, and 0 in each of the `Results` parts of `losses`.
/// Complains of a label that is no column.
template <int Results, class T>
__device__ void writeWithoutLoss(const LossArguments<T> &a, T *out,
                                 int64_t label, double *losses,
                                 Complaint *complaint, const char *name) {
  const int64_t r = blockIdx.x;
  if (threadIdx.x == 0) {
    for (int i = 0; i < Results; ++i)
      losses[i * a.rows + r] = 0;
    if (label >= 0)
      complainOfLabel(complaint, name, label, r, a.globalCols);
  }
  RowOfZeros<T> zeros{out};
  sweepRow<packSize<T>>(int(a.cols), before(out), zeros);
}

/// 2w bytes an element.
/// losses[r] is the row's part of the loss.
template <class T>
__global__ void __launch_bounds__(rowThreads)
    crossEntropyKernel(LossArguments<T> a, double *losses, Complaint *complaint,
                       const char *name) {
  using A = Accumulator<T>;
  const int64_t r = blockIdx.x;
  const int64_t largest = largestShard<3>(a);
  if (a.step->mode == GRT_MODE_GENERATE)
    return labelLikeliest<3>(a, largest);
  T *out = a.dlogits + r * a.cols;
  const int64_t label = a.labels[r];
  if (label < 0 || label >= a.globalCols)
    return writeWithoutLoss<1>(a, out, label, losses, complaint, name);
  auto stats = [&](int64_t shard) { return statsOfShard<3>(a, shard); };
  A maximum = stats(largest)[0];
  double sum = 0, logit = 0;
  for (int64_t s = 0; s < a.shards; ++s) {
    sum += double(stats(s)[1]) * exp(double(stats(s)[0]) - double(maximum));
    logit += double(stats(s)[2]);
  }
  if (threadIdx.x == 0)
    losses[r] = double(maximum) + log(sum) - logit;
  double inverseTokens = a.step->inverse_tokens;
  const T *row = a.logits + r * a.cols;
  using Gradient = RowGradient<T, PlainRow<T>>;
  writeGradient<T, aheadOfShared<T>>(
      Gradient{{row},
               out,
               maximum,
               Gradient::prepared(inverseTokens / sum),
               A(inverseTokens),
               label - a.firstColumn,
               int(a.validCols)},
      row, a.cols);
}

/// 2w bytes an element, an exponential each. losses[r] is the row's part of the
/// loss, losses[rows + r] the square of the logarithm of its exponentials' sum.
template <class T>
__global__ void __launch_bounds__(rowThreads)
    regularizedCrossEntropyKernel(LossArguments<T> a, double *losses,
                                  Complaint *complaint, const char *name) {
  using A = Accumulator<T>;
  const int64_t r = blockIdx.x;
  const int64_t largest = largestShard<4>(a);
  if (a.step->mode == GRT_MODE_GENERATE)
    return labelLikeliest<4>(a, largest);
  T *out = a.dlogits + r * a.cols;
  const int64_t label = a.labels[r];
  if (label < 0 || label >= a.globalCols)
    return writeWithoutLoss<2>(a, out, label, losses, complaint, name);
  auto stats = [&](int64_t shard) { return statsOfShard<4>(a, shard); };
  const double smoothing = a.step->mode == GRT_MODE_TRAIN ? a.smoothing : 0.0;
  const double share = smoothing / double(a.globalCols);
  const A maximum = stats(largest)[0];
  double sum = 0, logit = 0, total = 0;
  for (int64_t s = 0; s < a.shards; ++s) {
    sum += double(stats(s)[1]) * exp(double(stats(s)[0]) - double(maximum));
    logit += double(stats(s)[2]);
    total += double(stats(s)[3]);
  }
  const double logSum = double(maximum) + log(sum);
  if (threadIdx.x == 0) {
    losses[r] = logSum - (1 - smoothing) * logit - share * total;
    losses[a.rows + r] = logSum * logSum;
  }
  const double inverseTokens = a.step->inverse_tokens;
  const T *row = a.logits + r * a.cols;
  writeGradient<T, aheadOfShared<T>>(
      RegularizedGradient<T>{
          {row},
          out,
          maximum,
          A(inverseTokens * (1 + 2 * a.zLoss * logSum) / sum),
          A(inverseTokens * share),
          A(inverseTokens * (1 - smoothing)),
          label - a.firstColumn,
          int(a.validCols)},
      row, a.cols);
}

/// Statistics and cross entropy for a vocabulary that is not divided, with the
/// bits of both kernels. 2w
/// bytes an element where a row fits `keptElements`, whole packs; what is
/// beyond is read twice, the second time from the cache as a rule. Two
/// exponentials an element.
template <class T>
__global__ void __launch_bounds__(rowThreads, rowBlocks)
    softmaxCrossEntropyKernel(LossArguments<T> a, int64_t keptElements,
                              double *losses, Complaint *complaint,
                              const char *name) {
  using A = Accumulator<T>;
  const int64_t r = blockIdx.x;
  const T *row = a.logits + r * a.cols;
  T *out = a.dlogits + r * a.cols;
  const int cols = int(a.cols), single = before(row);
  KeptRow<T> kept{row, dynamicShared<T>(), single, single + int(keptElements)};
  sweepRow<packSize<T>>(cols, single, kept);
  // The values are on their way with the row; and the gradient may take the
  // logit's place.
  const bool generate = a.step->mode == GRT_MODE_GENERATE;
  const double inverseTokens = a.step->inverse_tokens;
  const int64_t label = a.labels[r];
  const bool counts = label >= 0 && label < a.cols;
  const A logit = counts ? wide(row[label]) : A(0);
  waitForCopies();
  RowStatistics<T, KeptRow<T>> mine{kept, generate};
  sweepAhead<packSize<T>, aheadOfShared<T>>(cols, single, mine);
  const RowResult<A> all = combineRow(mine, a.cols, a.cols);
  const double sum = double(A(all.sum));
  if (threadIdx.x == 0) {
    A *stats = a.stats + 3 * r;
    stats[0] = all.maximum;
    stats[1] = A(all.sum);
    stats[2] = generate ? A(all.place) : logit;
    if (generate) {
      a.labels[r] = int32_t(all.place);
    } else {
      losses[r] = counts ? double(all.maximum) + log(sum) - double(logit) : 0;
      if (label >= a.cols)
        complainOfLabel(complaint, name, label, r, a.cols);
    }
  }
  if (generate)
    return;
  if (!counts) {
    RowOfZeros<T> zeros{out};
    sweepRow<packSize<T>>(int(a.cols), before(out), zeros);
    return;
  }
  using Gradient = RowGradient<T, KeptRow<T>>;
  writeGradient<T, aheadOfShared<T>>(
      Gradient{kept, out, all.maximum, Gradient::prepared(inverseTokens / sum),
               A(inverseTokens), label, cols},
      row, a.cols);
}

/// The kernel is one block; it reads 8 bytes a row. Complains of a pass that
/// generates on a block of rows.
__global__ void __launch_bounds__(rowThreads)
    lossKernel(int64_t rows, const double *losses, const grt_step *step,
               double *loss, bool ofBlock, Complaint *complaint,
               const char *name) {
  if (step->mode == GRT_MODE_GENERATE) {
    if (ofBlock && threadIdx.x == 0 &&
        atomicCAS(&complaint->taken, 0u, 1u) == 0) {
      complaint->name = name;
      complaint->kind = Complaint::Generation;
    }
    return;
  }
  double sum = 0;
  for (int64_t r = threadIdx.x; r < rows; r += rowThreads)
    sum += losses[r];
  sum = teamSum<rowThreads>(sum);
  if (threadIdx.x == 0)
    *loss = sum;
}

/// Calls body with the arguments of every piece of the rows, but that `rows`
/// are all, and with the piece; statistics have `width` values.
template <class T, class Body>
void forEachPiece(const LossArguments<T> &all, const LossPieces &pieces,
                  int width, Body body) {
  for (int i = 0; i < pieces.count; ++i) {
    const LossPieces::Piece &piece = pieces.at[i];
    if (piece.count <= 0)
      continue;
    LossArguments<T> a = all;
    a.logits += piece.row * a.cols;
    a.labels += piece.label;
    a.stats += width * piece.row;
    if (a.dlogits)
      a.dlogits += piece.row * a.cols;
    body(a, piece);
  }
}

} // namespace

template <class T>
void softmaxStats(const Queue &queue, const LossArguments<T> &all,
                  const LossPieces &pieces) {
  forEachPiece(all, pieces, 3,
               [&](const LossArguments<T> &a, const auto &piece) {
                 launch(softmaxStatsKernel<T>, dim3(unsigned(piece.count)),
                        dim3(rowThreads), 0, queue.stream, a, queue.complaint,
                        queue.opName);
               });
}

namespace {

/// Returns the place in which the kernels of a loss leave that of every row.
double *rowLosses(const Queue &queue, int64_t rows) {
  if (uint64_t(rows) * sizeof(double) > queue.workspaceBytes)
    throw DeviceError("losses of " + std::to_string(rows) +
                      " rows do not fit the workspace of " +
                      std::to_string(queue.workspaceBytes) + " bytes");
  return static_cast<double *>(queue.workspace);
}

/// Bytes of a row that a block keeps: so many that two blocks share a
/// multiprocessor, one of which reads while the other one writes. A block has
/// less than 1 KiB of other shared memory, and the device takes 1 KiB for each.
int64_t keptBytes(int64_t rowBytes) {
  constexpr int64_t others = 2048;
  int64_t most =
      std::max<int64_t>(0, int64_t(gpu::sharedBytes()) / rowBlocks - others);
  return std::min(rowBytes, most) / 16 * 16;
}

} // namespace

template <class T>
void crossEntropy(const Queue &queue, const LossArguments<T> &all,
                  const LossPieces &pieces) {
  double *losses = rowLosses(queue, all.rows);
  forEachPiece(all, pieces, 3,
               [&](const LossArguments<T> &a, const auto &piece) {
                 launch(crossEntropyKernel<T>, dim3(unsigned(piece.count)),
                        dim3(rowThreads), 0, queue.stream, a,
                        losses + piece.row, queue.complaint, queue.opName);
               });
  launch(lossKernel, dim3(1), dim3(rowThreads), 0, queue.stream, all.rows,
         losses, all.step, all.loss, pieces.ofBlock, queue.complaint,
         queue.opName);
}

template <class T>
void regularizedStats(const Queue &queue, const LossArguments<T> &all,
                      const LossPieces &pieces) {
  forEachPiece(all, pieces, 4,
               [&](const LossArguments<T> &a, const auto &piece) {
                 launch(regularizedStatsKernel<T>, dim3(unsigned(piece.count)),
                        dim3(rowThreads), 0, queue.stream, a, queue.complaint,
                        queue.opName);
               });
}

template <class T>
void regularizedCrossEntropy(const Queue &queue, const LossArguments<T> &all,
                             const LossPieces &pieces) {
  double *losses = rowLosses(queue, 2 * all.rows);
  forEachPiece(
      all, pieces, 4, [&](const LossArguments<T> &a, const auto &piece) {
        launch(regularizedCrossEntropyKernel<T>, dim3(unsigned(piece.count)),
               dim3(rowThreads), 0, queue.stream, a, losses + piece.row,
               queue.complaint, queue.opName);
      });
  for (int value = 0; value < 2; ++value)
    launch(lossKernel, dim3(1), dim3(rowThreads), 0, queue.stream, all.rows,
           losses + value * all.rows, all.step, all.loss + value,
           pieces.ofBlock, queue.complaint, queue.opName);
}

template <class T>
void softmaxCrossEntropy(const Queue &queue, const LossArguments<T> &all,
                         const LossPieces &pieces) {
  double *losses = rowLosses(queue, all.rows);
  const int64_t kept = keptBytes(all.cols * int64_t(sizeof(T)));
  forEachPiece(all, pieces, 3,
               [&](const LossArguments<T> &a, const auto &piece) {
                 launch(softmaxCrossEntropyKernel<T>,
                        dim3(unsigned(piece.count)), dim3(rowThreads),
                        int(kept), queue.stream, a, kept / int64_t(sizeof(T)),
                        losses + piece.row, queue.complaint, queue.opName);
               });
  launch(lossKernel, dim3(1), dim3(rowThreads), 0, queue.stream, all.rows,
         losses, all.step, all.loss, pieces.ofBlock, queue.complaint,
         queue.opName);
}

#define GRT_INSTANTIATE(T)                                                     \
  template void softmaxStats(const Queue &, const LossArguments<T> &,          \
                             const LossPieces &);                              \
  template void crossEntropy(const Queue &, const LossArguments<T> &,          \
                             const LossPieces &);                              \
  template void softmaxCrossEntropy(const Queue &, const LossArguments<T> &,   \
                                    const LossPieces &);                       \
  template void regularizedStats(const Queue &, const LossArguments<T> &,      \
                                 const LossPieces &);                          \
  template void regularizedCrossEntropy(                                       \
      const Queue &, const LossArguments<T> &, const LossPieces &)
GRT_INSTANTIATE(float);
GRT_INSTANTIATE(double);
GRT_INSTANTIATE(BF16);

} // namespace grt::cuda
