//===- reference_backend.cpp - Kernels as plain loops, for tests ----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "reference_backend.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace grt::test {
namespace {

/// A buffer of either floating-point type, seen as doubles.
class Values {
public:
  Values(const grt_call *call, int index)
      : memory(static_cast<char *>(call->buffers[index])),
        wide(call->op->buffers[index].dtype == GRT_F64) {}
  double operator[](int64_t i) const {
    return wide ? reinterpret_cast<double *>(memory)[i]
                : reinterpret_cast<float *>(memory)[i];
  }
  void set(int64_t i, double value) {
    if (wide)
      reinterpret_cast<double *>(memory)[i] = value;
    else
      reinterpret_cast<float *>(memory)[i] = float(value);
  }
  void put(int64_t i, double value, bool add) {
    set(i, add ? (*this)[i] + value : value);
  }

private:
  char *memory;
  bool wide;
};

bool adds(const grt_call *call, int64_t acc) {
  return acc == 1 || (acc == 2 && call->accumulate);
}

int32_t *integers(const grt_call *call, int index) {
  return static_cast<int32_t *>(call->buffers[index]);
}

int32_t gemm(const grt_call *call, char *, size_t) {
  const int64_t *ints = call->op->ints;
  int64_t m = ints[0], n = ints[1], k = ints[2];
  bool add = adds(call, ints[5]);
  Values a(call, 0), b(call, 1), c(call, 2);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = ints[6] ? Values(call, 3)[j] : 0;
      for (int64_t p = 0; p < k; ++p)
        sum += a[ints[3] ? p * m + i : i * k + p] *
               b[ints[4] ? j * k + p : p * n + j];
      c.put(i * n + j, sum, add);
    }
  return 0;
}

int32_t biasGrad(const grt_call *call, char *, size_t) {
  const int64_t *ints = call->op->ints;
  Values dy(call, 0), dbias(call, 1);
  for (int64_t j = 0; j < ints[1]; ++j) {
    double sum = 0;
    for (int64_t i = 0; i < ints[0]; ++i)
      sum += dy[i * ints[1] + j];
    dbias.put(j, sum, adds(call, ints[2]));
  }
  return 0;
}

int32_t add(const grt_call *call, char *, size_t) {
  Values a(call, 0), b(call, 1), y(call, 2);
  for (int64_t i = 0; i < call->op->ints[0]; ++i)
    y.set(i, a[i] + b[i]);
  return 0;
}

int64_t firstRow(const grt_call *call, int64_t localRows, int64_t sharded) {
  return sharded ? call->coordinates->tp_index * localRows : 0;
}

int32_t embedding(const grt_call *call, char *, size_t) {
  const int64_t *ints = call->op->ints;
  int64_t width = ints[1], localRows = ints[2];
  int64_t first = firstRow(call, localRows, ints[3]);
  Values table(call, 1), y(call, 2);
  for (int64_t r = 0; r < ints[0]; ++r) {
    int64_t row = integers(call, 0)[r] - first;
    for (int64_t c = 0; c < width; ++c)
      y.set(r * width + c,
            row >= 0 && row < localRows ? table[row * width + c] : 0);
  }
  return 0;
}

int32_t embeddingGrad(const grt_call *call, char *, size_t) {
  const int64_t *ints = call->op->ints;
  int64_t width = ints[1], localRows = ints[2];
  int64_t first = firstRow(call, localRows, ints[3]);
  Values dy(call, 1), dtable(call, 2);
  if (!adds(call, ints[4]))
    for (int64_t i = 0; i < localRows * width; ++i)
      dtable.set(i, 0);
  for (int64_t r = 0; r < ints[0]; ++r) {
    int64_t row = integers(call, 0)[r] - first;
    if (row >= 0 && row < localRows)
      for (int64_t c = 0; c < width; ++c)
        dtable.put(row * width + c, dy[r * width + c], true);
  }
  return 0;
}

int32_t softmaxStats(const grt_call *call, char *, size_t) {
  const int64_t *ints = call->op->ints;
  int64_t cols = ints[1], global = ints[2];
  int64_t first = firstRow(call, cols, ints[3]);
  int64_t valid = std::clamp<int64_t>(global - first, 0, cols);
  Values logits(call, 0), stats(call, 2);
  for (int64_t r = 0; r < ints[0]; ++r) {
    double largest = -INFINITY, sum = 0;
    int64_t best = 0;
    for (int64_t c = 0; c < valid; ++c)
      if (logits[r * cols + c] > largest) {
        largest = logits[r * cols + c];
        best = c;
      }
    for (int64_t c = 0; c < valid; ++c)
      sum += std::exp(logits[r * cols + c] - largest);
    int64_t label = integers(call, 1)[r] - first;
    stats.set(3 * r, largest);
    stats.set(3 * r + 1, sum);
    stats.set(3 * r + 2, call->step->mode == GRT_MODE_GENERATE ? double(best)
                         : label >= 0 && label < valid
                             ? logits[r * cols + label]
                             : 0);
  }
  return 0;
}

int32_t crossEntropy(const grt_call *call, char *, size_t) {
  const int64_t *ints = call->op->ints;
  int64_t rows = ints[0], cols = ints[1], global = ints[2], shards = ints[4];
  int64_t first = firstRow(call, cols, ints[3]);
  Values logits(call, 0), stats(call, 2), dlogits(call, 3);
  double loss = 0;
  for (int64_t r = 0; r < rows; ++r) {
    double largest = -INFINITY, sum = 0, target = 0;
    int64_t best = 0;
    for (int64_t s = 0; s < shards; ++s)
      if (stats[3 * (s * rows + r)] > largest) {
        largest = stats[3 * (s * rows + r)];
        best = s * cols + int64_t(stats[3 * (s * rows + r) + 2]);
      }
    if (call->step->mode == GRT_MODE_GENERATE) {
      integers(call, 1)[r] = int32_t(best);
      continue;
    }
    for (int64_t s = 0; s < shards; ++s) {
      sum += stats[3 * (s * rows + r) + 1] *
             std::exp(stats[3 * (s * rows + r)] - largest);
      target += stats[3 * (s * rows + r) + 2];
    }
    int64_t label = integers(call, 1)[r];
    if (label >= 0)
      loss += largest + std::log(sum) - target;
    for (int64_t c = 0; c < cols; ++c) {
      double p = std::exp(logits[r * cols + c] - largest) / sum;
      bool counts = label >= 0 && first + c < global;
      dlogits.set(r * cols + c, counts ? (p - (first + c == label)) *
                                             call->step->inverse_tokens
                                       : 0);
    }
  }
  *static_cast<double *>(call->buffers[4]) = loss;
  return 0;
}

int32_t zero(const grt_call *call, char *, size_t) {
  std::memset(call->buffers[0], 0, call->op->buffers[0].bytes);
  return 0;
}

/// Calls `visit(element in the shard, segment's third number)`.
template <typename Visit>
void forSegments(const grt_call *call, const int64_t *ints, Visit visit) {
  int64_t shard = ints[0], begin = call->coordinates->sdp_index * shard;
  for (int64_t s = 0; s < ints[1]; ++s) {
    const int64_t *segment = ints + 2 + 3 * s;
    for (int64_t i = 0; i < segment[1]; ++i) {
      int64_t element = segment[0] + i - begin;
      if (element >= 0 && element < shard)
        visit(element, segment[2]);
    }
  }
}

int32_t optimizer(const grt_call *call, char *message, size_t bytes) {
  const int64_t *ints = call->op->ints;
  const grt_step &step = *call->step;
  int64_t shard = ints[1];
  if (step.update_left_out)
    return 0;
  Values parameter(call, 0), gradient(call, 1), state(call, 2);
  if (!std::isfinite(step.clip_factor)) {
    std::snprintf(message, bytes, "clip factor is not finite");
    return 1;
  }
  forSegments(call, ints + 1, [&](int64_t i, int64_t decays) {
    double value = parameter[i], grad = gradient[i] * step.clip_factor;
    double decay = decays ? step.weight_decay : 0;
    if (ints[0] == 0) {
      grad += decay * value;
      double momentum = step.momentum * state[i] + grad;
      state.set(i, momentum);
      parameter.set(i, value - step.learning_rate * momentum);
      return;
    }
    if (ints[0] == 2)
      value -= step.learning_rate * decay * value;
    else
      grad += decay * value;
    double m = step.beta1 * state[i] + (1 - step.beta1) * grad;
    double v = step.beta2 * state[shard + i] + (1 - step.beta2) * grad * grad;
    state.set(i, m);
    state.set(shard + i, v);
    double t = double(step.step);
    double mHat = m / (1 - std::pow(step.beta1, t));
    double vHat = v / (1 - std::pow(step.beta2, t));
    parameter.set(i, value - step.learning_rate * mHat /
                                 (std::sqrt(vHat) + step.eps));
  });
  return 0;
}

int32_t norm(const grt_call *call, char *, size_t) {
  if (call->coordinates->dp_index != 0)
    return 0;
  Values gradient(call, 0);
  forSegments(call, call->op->ints, [&](int64_t i, int64_t replicated) {
    if (!replicated || call->coordinates->tp_index == 0)
      call->step->local_norm_squared += gradient[i] * gradient[i];
  });
  return 0;
}

void *createRank(int32_t, int32_t) { return nullptr; }
void destroyRank(void *) {}
void *allocate(size_t bytes) {
  return std::aligned_alloc(64, (bytes + 63) / 64 * 64);
}
void release(void *memory, size_t) { std::free(memory); }

} // namespace

const grt_backend *referenceBackend() {
  static const grt_backend backend = [] {
    static const auto kernels = [] {
      std::array<grt_kernel_function, GRT_KERNEL_COUNT> all{};
      all[GRT_KERNEL_GEMM] = gemm;
      all[GRT_KERNEL_BIAS_GRAD] = biasGrad;
      all[GRT_KERNEL_ADD] = add;
      all[GRT_KERNEL_EMBEDDING] = embedding;
      all[GRT_KERNEL_EMBEDDING_GRAD] = embeddingGrad;
      all[GRT_KERNEL_SOFTMAX_STATS] = softmaxStats;
      all[GRT_KERNEL_CROSS_ENTROPY] = crossEntropy;
      all[GRT_KERNEL_ZERO] = zero;
      all[GRT_KERNEL_OPTIMIZER] = optimizer;
      all[GRT_KERNEL_NORM] = norm;
      return all;
    }();
    grt_backend table{};
    table.abi_version = GRT_ABI_VERSION;
    table.bytes = sizeof(table);
    table.name = "reference";
    table.kernels = kernels.data();
    table.kernel_count = uint32_t(kernels.size());
    table.create_rank = createRank;
    table.destroy_rank = destroyRank;
    table.allocate = allocate;
    table.release = release;
    return table;
  }();
  return &backend;
}

} // namespace grt::test
