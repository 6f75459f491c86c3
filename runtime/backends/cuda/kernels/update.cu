//===- update.cu - Optimizers and the gradient norm -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "elements.h"
#include "kernels.h"

#include "grt/update_decision.h"

#include <algorithm>

namespace grt::cuda {
namespace {

constexpr int updateThreads = 256;
/// Elements that a block takes, whole packs of any type.
constexpr int64_t blockElements = 4096;

/// Segments as a kernel gets them: block b works on the last segment whose
/// firstBlock is not above b.
struct Segments {
  Segment at[mostSegments];
  int64_t firstBlock[mostSegments + 1];
  int count;
};

Segments tableOf(const Segment *segments, int count) {
  Segments table = {};
  table.count = count;
  for (int s = 0; s < count; ++s) {
    table.at[s] = segments[s];
    table.firstBlock[s + 1] =
        table.firstBlock[s] +
        (segments[s].length + blockElements - 1) / blockElements;
  }
  return table;
}

/// The elements [begin, end) of the shard that this block works on.
struct Work {
  int64_t begin, end;
  bool flag;
};
__device__ inline Work workOf(const Segments &segments) {
  int64_t block = blockIdx.x;
  int s = 0;
  while (block >= segments.firstBlock[s + 1])
    ++s;
  const Segment &segment = segments.at[s];
  int64_t begin =
      segment.begin + (block - segments.firstBlock[s]) * blockElements;
  int64_t end = segment.begin + segment.length;
  return {begin, begin + blockElements < end ? begin + blockElements : end,
          segment.flag};
}

template <class T, grt_optimizer Kind> struct Update {
  using A = Accumulator<T>;
  T *parameter;
  A *master;
  const A *gradient;
  A *first, *second;

  /// Whether packs of N elements from i on may be moved whole.
  template <int N> __device__ bool allows(int64_t i) const {
    uintptr_t bits = reinterpret_cast<uintptr_t>(gradient + i) |
                     reinterpret_cast<uintptr_t>(first + i);
    if (Kind != GRT_OPTIMIZER_SGD)
      bits |= reinterpret_cast<uintptr_t>(second + i);
    if (sizeof(T) != sizeof(A))
      bits |=
          reinterpret_cast<uintptr_t>(master + i) |
          reinterpret_cast<uintptr_t>(parameter + i) * (sizeof(A) / sizeof(T));
    else
      bits |= reinterpret_cast<uintptr_t>(parameter + i);
    return bits % 16 == 0;
  }

  template <int N>
  __device__ void run(int64_t i, const UpdateNumbers<A> &numbers) const {
    Pack<A, N> g = load<N>(gradient + i), m = load<N>(first + i), v, p;
    if constexpr (sizeof(T) == sizeof(A))
      p = load<N>(parameter + i);
    else
      p = load<N>(master + i);
    if constexpr (Kind != GRT_OPTIMIZER_SGD)
      v = load<N>(second + i);
    for (int e = 0; e < N; ++e)
      if constexpr (Kind == GRT_OPTIMIZER_SGD)
        updateSgd(numbers, p.at[e], g.at[e], m.at[e]);
      else
        updateAdam(numbers, p.at[e], g.at[e], m.at[e], v.at[e]);
    store<N>(first + i, m);
    if constexpr (Kind != GRT_OPTIMIZER_SGD)
      store<N>(second + i, v);
    if constexpr (sizeof(T) == sizeof(A)) {
      store<N>(parameter + i, p);
    } else {
      store<N>(master + i, p);
      Pack<T, N> copy;
      for (int e = 0; e < N; ++e)
        copy.at[e] = narrow<T>(p.at[e]);
      store<N>(parameter + i, copy);
    }
  }
};

/// Bytes an element: f32 28 (parameter, m and v read and written, gradient
/// read; SGD 20), bf16 30 (the master weight likewise, and the copy written;
/// SGD 22). About 15 operations. Bound by memory.
template <class T, grt_optimizer Kind>
__global__ void __launch_bounds__(updateThreads)
    updateKernel(const __grid_constant__ Segments segments,
                 const grt_step *step, Update<T, Kind> update) {
  using A = Accumulator<T>;
  constexpr int N = packSize<A>;
  __shared__ UpdateNumbers<A> numbers;
  if (step->update_left_out)
    return;
  Work work = workOf(segments);
  // Two powers in f64: one thread does it for the block.
  if (threadIdx.x == 0)
    numbers = updateNumbers<A>(*step, Kind == GRT_OPTIMIZER_SGD,
                               Kind == GRT_OPTIMIZER_ADAMW, work.flag);
  __syncthreads();
  int64_t packs =
      update.template allows<N>(work.begin) ? (work.end - work.begin) / N : 0;
  for (int64_t p = threadIdx.x; p < packs; p += updateThreads)
    update.template run<N>(work.begin + p * N, numbers);
  for (int64_t i = work.begin + packs * N + threadIdx.x; i < work.end;
       i += updateThreads)
    update.template run<1>(i, numbers);
}

/// Sum of squares of a block's elements, in f64. Bytes an element: its own; 2
/// operations in f64. Bound by memory, where f64 has 1/64 of the rate of f32
/// nearly by that.
template <class A>
__global__ void __launch_bounds__(updateThreads)
    squaresKernel(const __grid_constant__ Segments segments, const A *x,
                  double *partial) {
  constexpr int N = packSize<A>;
  Work work = workOf(segments);
  double sum = 0;
  bool whole = reinterpret_cast<uintptr_t>(x + work.begin) % 16 == 0;
  int64_t packs = whole ? (work.end - work.begin) / N : 0;
  const A *from = x + work.begin;
  loadAhead<blockElements / (updateThreads * N)>(
      int(threadIdx.x), int(packs), updateThreads,
      [&](int p) { return load<N>(from + p * N); },
      [&](int, const Pack<A, N> &in) {
        for (int e = 0; e < N; ++e)
          sum += double(in.at[e]) * double(in.at[e]);
      });
  for (int64_t i = work.begin + packs * N + threadIdx.x; i < work.end;
       i += updateThreads)
    sum += double(x[i]) * double(x[i]);
  sum = teamSum<updateThreads>(sum);
  if (threadIdx.x == 0)
    partial[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(updateThreads)
    addSquaresKernel(int64_t count, const double *partial, grt_step *step) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += updateThreads)
    sum += partial[i];
  sum = teamSum<updateThreads>(sum);
  if (threadIdx.x == 0)
    step->local_norm_squared += sum;
}

/// Adds a double of each micro-batch, in their order, in one thread.
__global__ void addResultsKernel(const double *losses, uint64_t count,
                                 grt_step *step) {
  double sum = 0;
  for (uint64_t m = 0; m < count; ++m)
    sum += losses[m];
  step->local_loss = sum;
}

/// Decides by two doubles of each rank, in one thread.
__global__ void decideUpdateKernel(const RankResults *results, uint64_t ranks,
                                   bool clips, grt_step *step) {
  const UpdateDecision decision = grt::decideUpdate(
      results, ranks, clips, step->clip_norm, step->skip_norm);
  step->clip_factor = decision.clipFactor;
  step->update_left_out = decision.leftOut;
}

/// Calls body(table) for up to mostSegments segments at a time.
template <class Body>
void inTables(const Segment *segments, int count, Body body) {
  for (int begin = 0; begin < count; begin += mostSegments) {
    Segments table =
        tableOf(segments + begin, std::min(mostSegments, count - begin));
    if (table.firstBlock[table.count] > 0)
      body(table, dim3(unsigned(table.firstBlock[table.count])));
  }
}

template <class T, grt_optimizer Kind>
void launchUpdate(const Queue &queue, const grt_step *step,
                  const Segment *segments, int count,
                  const Update<T, Kind> &update) {
  inTables(segments, count, [&](const Segments &table, dim3 blocks) {
    launch(updateKernel<T, Kind>, blocks, dim3(updateThreads), 0, queue.stream,
           table, step, update);
  });
}

} // namespace

template <class T>
void optimize(const Queue &queue, grt_optimizer kind, const grt_step *step,
              const Segment *segments, int count, T *parameter,
              Accumulator<T> *master, const Accumulator<T> *gradient,
              Accumulator<T> *first, Accumulator<T> *second) {
  if (kind == GRT_OPTIMIZER_SGD)
    launchUpdate<T, GRT_OPTIMIZER_SGD>(
        queue, step, segments, count,
        {parameter, master, gradient, first, second});
  else if (kind == GRT_OPTIMIZER_ADAM)
    launchUpdate<T, GRT_OPTIMIZER_ADAM>(
        queue, step, segments, count,
        {parameter, master, gradient, first, second});
  else
    launchUpdate<T, GRT_OPTIMIZER_ADAMW>(
        queue, step, segments, count,
        {parameter, master, gradient, first, second});
}

template <class A>
void sumOfSquares(const Queue &queue, grt_step *step, const Segment *segments,
                  int count, const A *x) {
  inTables(segments, count, [&](const Segments &table, dim3 blocks) {
    if (uint64_t(blocks.x) * sizeof(double) > queue.workspaceBytes)
      throw DeviceError("sums of " + std::to_string(blocks.x) +
                        " blocks do not fit the workspace of " +
                        std::to_string(queue.workspaceBytes) + " bytes");
    double *partial = static_cast<double *>(queue.workspace);
    launch(squaresKernel<A>, blocks, dim3(updateThreads), 0, queue.stream,
           table, x, partial);
    launch(addSquaresKernel, dim3(1), dim3(updateThreads), 0, queue.stream,
           int64_t(blocks.x), partial, step);
  });
}

void addResults(const Queue &queue, const double *losses, uint64_t count,
                grt_step *step) {
  launch(addResultsKernel, dim3(1), dim3(1), 0, queue.stream, losses, count,
         step);
}

void decideUpdate(const Queue &queue, const double *results, uint64_t ranks,
                  bool clips, grt_step *step) {
  launch(decideUpdateKernel, dim3(1), dim3(1), 0, queue.stream,
         reinterpret_cast<const RankResults *>(results), ranks, clips, step);
}

#define GRT_INSTANTIATE(T)                                                     \
  template void optimize(const Queue &, grt_optimizer, const grt_step *,       \
                         const Segment *, int, T *, Accumulator<T> *,          \
                         const Accumulator<T> *, Accumulator<T> *,             \
                         Accumulator<T> *)
GRT_INSTANTIATE(float);
GRT_INSTANTIATE(double);
GRT_INSTANTIATE(BF16);
template void sumOfSquares(const Queue &, grt_step *, const Segment *, int,
                           const float *);
template void sumOfSquares(const Queue &, grt_step *, const Segment *, int,
                           const double *);

} // namespace grt::cuda
