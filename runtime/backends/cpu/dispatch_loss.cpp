//===- dispatch_loss.cpp - Calls of losses --------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dispatch.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace grt::cpu {

namespace {

/// Arguments that all kernels of the loss have, for a piece of their rows. The
/// vocabulary is whole unless the kernel says otherwise.
template <class K, class T>
LossArguments<T> lossArguments(const Call &call, const Call::RowPiece &piece) {
  const auto n = call.ints<K>();
  LossArguments<T> a = {};
  a.generate = call.step().mode == GRT_MODE_GENERATE;
  Call::checkGeneration(n.labelRows, a.generate);
  constexpr bool regularized =
      std::is_same_v<K, kernels::RegularizedStats> ||
      std::is_same_v<K, kernels::RegularizedCrossEntropy>;
  a.width = regularized ? 4 : 3;
  if constexpr (std::is_same_v<K, kernels::SoftmaxCrossEntropy>) {
    a.cols = a.globalCols = n.cols;
  } else {
    a.cols = n.localCols;
    a.globalCols = n.globalCols;
    a.firstColumn = n.sharded != 0 ? call.at().tp_index * a.cols : 0;
  }
  a.logits = call.buffer<T>(K::logits) + piece.row * a.cols;
  a.labels = call.buffer<int32_t>(K::labels) + piece.number;
  a.stats = call.buffer<Accumulator<T>>(K::stats) + a.width * piece.row;
  a.rows = piece.count;
  a.statsRows = n.rows;
  if constexpr (requires { K::dlogits; })
    a.dlogits = call.buffer<T>(K::dlogits) + piece.row * a.cols;
  const int64_t globalCols = a.globalCols;
  a.validCols = std::clamp<int64_t>(globalCols - a.firstColumn, 0, a.cols);
  a.inverseTokens = call.step().inverse_tokens;
  if (!a.generate)
    for (int64_t r = 0; r < a.rows; ++r)
      if (a.labels[r] >= globalCols)
        throw CallError("label " + std::to_string(a.labels[r]) + " at row " +
                        std::to_string(r) + " is not below " +
                        std::to_string(globalCols));
  return a;
}

/// Row statistics of three values or, regularized, of four.
template <class K, class T> void runStats(const Call &call) {
  const auto n = call.ints<K>();
  call.forEachPieceOf(n.rows, n.labelRows, n.balanced,
                      [&](const Call::RowPiece &piece) {
                        call.table<T>().softmaxStats(
                            call.threads(), lossArguments<K, T>(call, piece));
                      });
}

} // namespace

template <class T> void runSoftmaxStats(const Call &call) {
  runStats<kernels::SoftmaxStats, T>(call);
}

template <class T> void runRegularizedStats(const Call &call) {
  runStats<kernels::RegularizedStats, T>(call);
}

namespace {

/// From the statistics of all shards; adds to the loss and, with statistics of
/// four values, to the sum of squares of the logarithms of all exponentials.
template <class T>
void crossEntropy(const Call &call, const LossArguments<T> &a, int32_t *labels,
                  double &loss, double *squares = nullptr) {
  auto stats = [&](int64_t shard, int64_t row) {
    return a.stats + a.width * (shard * a.statsRows + row);
  };
  const bool smooths = a.smoothing != 0;
  for (int64_t r = 0; r < a.rows; ++r) {
    int64_t largest = 0;
    for (int64_t s = 1; s < a.shards; ++s)
      if (stats(s, r)[0] > stats(largest, r)[0])
        largest = s;
    if (a.generate) {
      labels[r] = int32_t(largest * a.cols + int64_t(stats(largest, r)[2]));
      continue;
    }
    if (labels[r] < 0)
      continue;
    double maximum = stats(largest, r)[0], sum = 0, logit = 0, all = 0;
    for (int64_t s = 0; s < a.shards; ++s) {
      sum +=
          double(stats(s, r)[1]) * std::exp(double(stats(s, r)[0]) - maximum);
      logit += double(stats(s, r)[2]);
      if (smooths)
        all += double(stats(s, r)[3]);
    }
    if (smooths)
      logit =
          (1 - a.smoothing) * logit + a.smoothing / double(a.globalCols) * all;
    loss += maximum + std::log(sum) - logit;
    if (squares) {
      const double logSum = maximum + std::log(sum);
      *squares += logSum * logSum;
    }
  }
  if (!a.generate)
    call.table<T>().crossEntropyGrad(call.threads(), a);
}

} // namespace

template <class T> void runCrossEntropy(const Call &call) {
  using K = kernels::CrossEntropy;
  const auto n = call.ints<K>();
  double loss = 0;
  call.forEachPieceOf(
      n.rows, n.labelRows, n.balanced, [&](const Call::RowPiece &piece) {
        LossArguments<T> a = lossArguments<K, T>(call, piece);
        a.shards = n.shards;
        crossEntropy(call, a, call.buffer<int32_t>(K::labels) + piece.number,
                     loss);
      });
  if (call.step().mode != GRT_MODE_GENERATE)
    *call.buffer<double>(K::loss) = loss;
}

template <class T> void runRegularizedCrossEntropy(const Call &call) {
  using K = kernels::RegularizedCrossEntropy;
  const auto n = call.ints<K>();
  call.checkLossTerms(call.real(K::smoothing), call.real(K::zLoss));
  double losses[2] = {};
  call.forEachPieceOf(
      n.rows, n.labelRows, n.balanced, [&](const Call::RowPiece &piece) {
        LossArguments<T> a = lossArguments<K, T>(call, piece);
        if (call.step().mode == GRT_MODE_TRAIN)
          a.smoothing = call.real(K::smoothing);
        a.zLoss = call.real(K::zLoss);
        a.shards = n.shards;
        crossEntropy(call, a, call.buffer<int32_t>(K::labels) + piece.number,
                     losses[0], &losses[1]);
      });
  if (call.step().mode != GRT_MODE_GENERATE)
    std::copy_n(losses, 2, call.buffer<double>(K::loss));
}

template <class T> void runSoftmaxCrossEntropy(const Call &call) {
  using K = kernels::SoftmaxCrossEntropy;
  const auto n = call.ints<K>();
  const int64_t cols = n.cols;
  // So many rows that they are in the cache when they are read again, and that
  // every thread has some.
  constexpr int64_t cachedBytes = 1 << 20;
  const int64_t rowBytes = std::max<int64_t>(1, cols * int64_t(sizeof(T)));
  const int64_t block =
      std::max<int64_t>(call.threads(), cachedBytes / rowBytes);
  double loss = 0;
  call.forEachPieceOf(
      n.rows, n.labelRows, n.balanced, [&](const Call::RowPiece &piece) {
        LossArguments<T> a = lossArguments<K, T>(call, piece);
        a.shards = 1;
        int32_t *labels = call.buffer<int32_t>(K::labels) + piece.number;
        for (int64_t begin = 0; begin < piece.count; begin += block) {
          LossArguments<T> part = a;
          part.rows = std::min(block, piece.count - begin);
          part.logits += begin * cols;
          part.labels += begin;
          part.stats += 3 * begin;
          part.dlogits += begin * cols;
          call.table<T>().softmaxStats(call.threads(), part);
          crossEntropy(call, part, labels + begin, loss);
        }
      });
  if (call.step().mode != GRT_MODE_GENERATE)
    *call.buffer<double>(K::loss) = loss;
}

GRT_CPU_KERNEL(SoftmaxStats)
GRT_CPU_KERNEL(RegularizedStats)
GRT_CPU_KERNEL(CrossEntropy)
GRT_CPU_KERNEL(RegularizedCrossEntropy)
GRT_CPU_KERNEL(SoftmaxCrossEntropy)

} // namespace grt::cpu
