//===- dispatch_step.cpp - Calls that copy, and those of a step's end -----===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dispatch.h"

#include <cmath>
#include <cstring>

namespace grt::cpu {

namespace {

void copyRows(int64_t rows, int64_t rowBytes, int64_t sourceStride,
              int64_t targetStride, const char *source, char *target) {
  if (sourceStride == rowBytes && targetStride == rowBytes) {
    std::memcpy(target, source, size_t(rows * rowBytes));
    return;
  }
  for (int64_t r = 0; r < rows; ++r)
    std::memcpy(target + r * targetStride, source + r * sourceStride,
                size_t(rowBytes));
}

} // namespace

template <class> void runCopy(const Call &call) {
  using K = kernels::Copy;
  const auto n = call.ints<K>();
  copyRows(n.rows, n.rowBytes, n.srcStrideBytes, n.dstStrideBytes,
           call.buffer<char>(K::src), call.buffer<char>(K::dst));
}

template <class T> void runOwnPart(const Call &call) {
  using K = kernels::OwnPart;
  const auto n = call.ints<K>();
  int64_t rows = n.rows, parts = n.parts;
  int64_t bytes = n.partElements * int64_t(sizeof(T)), all = parts * bytes;
  int64_t offset = call.ownPart(parts, n.ranks, n.ofBlocks) * bytes;
  const char *x = call.buffer<char>(K::x);
  char *y = call.buffer<char>(K::y);
  if (n.back == 0) {
    copyRows(rows, bytes, all, bytes, x + offset, y);
    return;
  }
  std::memset(y, 0, size_t(rows * all));
  copyRows(rows, bytes, bytes, all, x, y + offset);
}

template <class> void runZero(const Call &call) {
  using K = kernels::Zero;
  std::memset(call.buffer<char>(K::dst), 0, call.descriptor(K::dst).bytes);
}

template <class T> void runOptimizer(const Call &call) {
  using K = kernels::Optimizer;
  const auto n = call.ints<K>();
  using A = Accumulator<T>;
  const grt_step &step = call.step();
  int64_t kind = n.optimizer, shardElements = n.shardElements;
  call.checkOptimizer(kind);
  if (step.update_left_out)
    return;
  OptimizerArguments o = {};
  o.kind = grt_optimizer(kind);
  o.learningRate = step.learning_rate;
  o.beta1 = step.beta1;
  o.beta2 = step.beta2;
  o.eps = step.eps;
  o.momentum = step.momentum;
  o.clipFactor = step.clip_factor;
  o.correction1 = 1 - std::pow(step.beta1, double(step.step));
  o.correction2 = 1 - std::pow(step.beta2, double(step.step));
  T *parameter = call.buffer<T>(K::parameter);
  const A *gradient = call.buffer<A>(K::gradient);
  A *first = call.buffer<A>(K::state);
  A *second = first + shardElements;
  // Behind the moments, where parameters are narrower than what they round.
  A *master = o.kind == GRT_OPTIMIZER_SGD ? second : second + shardElements;
  call.forEachSegment<K>([&](int64_t begin, int64_t length, int64_t decay) {
    o.weightDecay = decay ? step.weight_decay : 0;
    call.table<T>().optimize(call.threads(), o, length, parameter + begin,
                             master + begin, gradient + begin, first + begin,
                             second + begin);
  });
}

template <class T> void runNorm(const Call &call) {
  using K = kernels::Norm;
  if (call.at().dp_index != 0)
    return;
  const auto *gradient = call.buffer<Accumulator<T>>(K::gradient);
  double sum = 0;
  call.forEachSegment<K>(
      [&](int64_t begin, int64_t length, int64_t replicated) {
        if (!replicated || call.at().tp_index == 0)
          sum += call.table<T>().sumOfSquares(call.threads(), length,
                                              gradient + begin);
      });
  call.step().local_norm_squared += sum;
}

GRT_CPU_KERNEL(Copy)
GRT_CPU_KERNEL(OwnPart)
GRT_CPU_KERNEL(Zero)
GRT_CPU_KERNEL(Optimizer)
GRT_CPU_KERNEL(Norm)

} // namespace grt::cpu
