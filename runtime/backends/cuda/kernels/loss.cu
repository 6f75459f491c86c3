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
/// Of a multiprocessor, where a block keeps its row.
constexpr int rowBlocks = 2;

/// Calls body.run<N>(i) or body.run<1>(i) for all elements of [0, n), each on
/// one thread. `single` elements come before the first pack.
template <int N, class Body>
__device__ void sweepRow(int64_t n, int64_t single, Body &body) {
  if (single > n)
    single = n;
  int64_t packs = (n - single) / N, rest = single + packs * N;
  if (int64_t(threadIdx.x) < single)
    body.template run<1>(threadIdx.x);
  for (int64_t p = threadIdx.x; p < packs; p += rowThreads)
    body.template run<N>(single + p * N);
  if (rest + int64_t(threadIdx.x) < n)
    body.template run<1>(rest + threadIdx.x);
}

/// Elements before the first whole pack of a row.
template <class T> __device__ int64_t before(const T *row) {
  uintptr_t over = reinterpret_cast<uintptr_t>(row) % 16;
  return over == 0 ? 0 : int64_t((16 - over) / sizeof(T));
}

/// A row that is read where it is.
template <class T> struct PlainRow {
  const T *row;
  template <int N> __device__ Pack<T, N> at(int64_t i) const {
    return load<N>(row + i);
  }
};

/// A row of which [begin, end), whole packs, are in shared memory. A pack is
/// fetched and read by one thread, so threads need not wait for each other.
template <class T> struct KeptRow {
  const T *row;
  T *kept;
  int64_t begin, end;
  template <int N> __device__ Pack<T, N> at(int64_t i) const {
    return load<N>(N > 1 && i < end ? kept + (i - begin) : row + i);
  }
  /// All of a thread's packs are under way at once.
  template <int N> __device__ void run(int64_t i) {
    if (N > 1 && i < end)
      copyAhead(kept + (i - begin), row + i);
  }
};

/// Largest logit, sum of exponentials of the distances to it, and where the
/// largest stands first, of the elements seen so far.
template <class T, class Row> struct RowStatistics {
  using A = Accumulator<T>;
  Row row;
  A maximum = -infinity<A>();
  A sum = 0;
  int64_t place = 0;

  template <int N> __device__ void run(int64_t i) {
    Pack<T, N> in = row.template at<N>(i);
    A top = wide(in.at[0]);
    int64_t at = i;
    for (int e = 1; e < N; ++e)
      if (wide(in.at[e]) > top) {
        top = wide(in.at[e]);
        at = i + e;
      }
    if (top > maximum || (top == maximum && at < place)) {
      place = at;
      sum *= exponential(maximum - top);
      maximum = top;
    }
    for (int e = 0; e < N; ++e)
      sum += exponential(wide(in.at[e]) - maximum);
  }
};

/// Those of a whole row, the same on all threads.
template <class A> struct RowResult {
  A maximum;
  double sum;
  int64_t place; ///< where the largest stands first, if that is asked for
};
template <class T, class Row>
__device__ RowResult<Accumulator<T>>
combineRow(const RowStatistics<T, Row> &mine, int64_t validCols, bool generate,
           int64_t none) {
  using A = Accumulator<T>;
  A maximum = teamCombine<rowThreads>(mine.maximum,
                                      [](A x, A y) { return larger(x, y); });
  // A thread without elements has a sum of 0 and must not make NaN of it.
  A share =
      mine.sum == A(0) ? A(0) : mine.sum * exponential(mine.maximum - maximum);
  double sum = teamSum<rowThreads>(double(share));
  int64_t place = mine.maximum == maximum && validCols > 0 ? mine.place : none;
  if (generate)
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

/// w bytes an element; a comparison, an exponential and an addition each.
template <class T>
__global__ void __launch_bounds__(rowThreads)
    softmaxStatsKernel(LossArguments<T> a, Complaint *complaint,
                       const char *name) {
  using A = Accumulator<T>;
  const int64_t r = blockIdx.x;
  const T *row = a.logits + r * a.cols;
  RowStatistics<T, PlainRow<T>> mine{{row}};
  sweepRow<packSize<T>>(a.validCols, before(row), mine);
  bool generate = a.step->mode == GRT_MODE_GENERATE;
  RowResult<A> all = combineRow(mine, a.validCols, generate, a.cols);
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

/// dlogits of one row.
template <class T, class Row> struct RowGradient {
  using A = Accumulator<T>;
  Row row;
  T *out;
  A maximum, factor, inverseTokens;
  int64_t label, validCols;

  template <int N> __device__ void run(int64_t i) {
    Pack<T, N> in = row.template at<N>(i), result;
    for (int e = 0; e < N; ++e) {
      A p = exponentialFor<T>(wide(in.at[e]) - maximum) * factor;
      if (i + e == label)
        p -= inverseTokens;
      result.at[e] = narrow<T>(i + e < validCols ? p : A(0));
    }
    store<N>(out + i, result);
  }
};
template <class T> struct RowOfZeros {
  T *out;
  template <int N> __device__ void run(int64_t i) {
    Pack<T, N> zeros;
    for (int e = 0; e < N; ++e)
      zeros.at[e] = narrow<T>(Accumulator<T>(0));
    store<N>(out + i, zeros);
  }
};

template <class T, class Row>
__device__ void writeGradient(RowGradient<T, Row> gradient, const T *row,
                              int64_t cols) {
  // Packs only where both rows allow the same ones.
  T *out = gradient.out;
  bool alike = before(row) == before(out);
  sweepRow<packSize<T>>(alike ? cols : 0, before(out), gradient);
  for (int64_t i = threadIdx.x; !alike && i < cols; i += rowThreads)
    gradient.template run<1>(i);
}

/// 2w bytes an element; an exponential, a product and two comparisons each.
/// losses[r] is the row's part of the loss.
template <class T>
__global__ void __launch_bounds__(rowThreads)
    crossEntropyKernel(LossArguments<T> a, double *losses, Complaint *complaint,
                       const char *name) {
  using A = Accumulator<T>;
  const int64_t r = blockIdx.x;
  auto stats = [&](int64_t shard) {
    return a.stats + 3 * (shard * a.rows + r);
  };
  int64_t largest = 0;
  for (int64_t s = 1; s < a.shards; ++s)
    if (stats(s)[0] > stats(largest)[0])
      largest = s;
  if (a.step->mode == GRT_MODE_GENERATE) {
    if (threadIdx.x == 0)
      a.labels[r] = int32_t(largest * a.cols + int64_t(stats(largest)[2]));
    return;
  }
  T *out = a.dlogits + r * a.cols;
  int64_t label = a.labels[r];
  bool counts = label >= 0 && label < a.globalCols;
  if (!counts) {
    if (threadIdx.x == 0) {
      losses[r] = 0;
      if (label >= 0)
        complainOfLabel(complaint, name, label, r, a.globalCols);
    }
    RowOfZeros<T> zeros{out};
    sweepRow<packSize<T>>(a.cols, before(out), zeros);
    return;
  }
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
  writeGradient(RowGradient<T, PlainRow<T>>{{row},
                                            out,
                                            maximum,
                                            A(inverseTokens / sum),
                                            A(inverseTokens),
                                            label - a.firstColumn,
                                            a.validCols},
                row, a.cols);
}

/// The two above for a vocabulary that is not divided, with their bits. 2w
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
  const int64_t single = before(row);
  KeptRow<T> kept{row, dynamicShared<T>(), single, single + keptElements};
  sweepRow<packSize<T>>(a.cols, single, kept);
  waitForCopies();
  RowStatistics<T, KeptRow<T>> mine{kept};
  sweepRow<packSize<T>>(a.cols, single, mine);
  const bool generate = a.step->mode == GRT_MODE_GENERATE;
  const int64_t label = a.labels[r];
  const bool counts = label >= 0 && label < a.cols;
  // Before the threads meet below: the gradient may take its place.
  const A logit = counts ? wide(row[label]) : A(0);
  const RowResult<A> all = combineRow(mine, a.cols, generate, a.cols);
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
    sweepRow<packSize<T>>(a.cols, before(out), zeros);
    return;
  }
  const double inverseTokens = a.step->inverse_tokens;
  writeGradient(RowGradient<T, KeptRow<T>>{kept, out, all.maximum,
                                           A(inverseTokens / sum),
                                           A(inverseTokens), label, a.cols},
                row, a.cols);
}

/// One block; 8 bytes a row.
__global__ void __launch_bounds__(rowThreads)
    lossKernel(int64_t rows, const double *losses, const grt_step *step,
               double *loss) {
  if (step->mode == GRT_MODE_GENERATE)
    return;
  double sum = 0;
  for (int64_t r = threadIdx.x; r < rows; r += rowThreads)
    sum += losses[r];
  sum = teamSum<rowThreads>(sum);
  if (threadIdx.x == 0)
    *loss = sum;
}

} // namespace

template <class T>
void softmaxStats(const Queue &queue, const LossArguments<T> &a) {
  if (a.rows > 0)
    launch(softmaxStatsKernel<T>, dim3(unsigned(a.rows)), dim3(rowThreads), 0,
           queue.stream, a, queue.complaint, queue.opName);
}

namespace {

/// Where the kernels of a loss leave that of every row.
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
void crossEntropy(const Queue &queue, const LossArguments<T> &a) {
  double *losses = rowLosses(queue, a.rows);
  if (a.rows > 0)
    launch(crossEntropyKernel<T>, dim3(unsigned(a.rows)), dim3(rowThreads), 0,
           queue.stream, a, losses, queue.complaint, queue.opName);
  launch(lossKernel, dim3(1), dim3(rowThreads), 0, queue.stream, a.rows, losses,
         a.step, a.loss);
}

template <class T>
void softmaxCrossEntropy(const Queue &queue, const LossArguments<T> &a) {
  double *losses = rowLosses(queue, a.rows);
  const int64_t kept = keptBytes(a.cols * int64_t(sizeof(T)));
  if (a.rows > 0)
    launch(softmaxCrossEntropyKernel<T>, dim3(unsigned(a.rows)),
           dim3(rowThreads), int(kept), queue.stream, a,
           kept / int64_t(sizeof(T)), losses, queue.complaint, queue.opName);
  launch(lossKernel, dim3(1), dim3(rowThreads), 0, queue.stream, a.rows, losses,
         a.step, a.loss);
}

#define GRT_INSTANTIATE(T)                                                     \
  template void softmaxStats(const Queue &, const LossArguments<T> &);         \
  template void crossEntropy(const Queue &, const LossArguments<T> &);         \
  template void softmaxCrossEntropy(const Queue &, const LossArguments<T> &)
GRT_INSTANTIATE(float);
GRT_INSTANTIATE(double);
GRT_INSTANTIATE(BF16);

} // namespace grt::cuda
