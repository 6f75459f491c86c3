//===- call_checks.cpp - Kernel calls of a program that is loaded ---------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/call_checks.h"
#include "core/manifest.h"
#include "grt/kernel_checks.h"

namespace grt {

namespace {

/// Segments are the tensors that a layer has of its own.
template <class K>
std::string wrongSegment(const grt_kernel_op &op, const Layer &layer) {
  std::string wrong;
  forEachSegment<K>(op, [&](const KernelSegment &segment) {
    for (const LayerTensor &tensor : layer.tensors)
      if (tensor.isTrained() && tensor.offset == segment.begin &&
          tensor.localElements() == segment.length)
        return;
    wrong = "expected segments that are parameters of the layer, found " +
            std::to_string(segment.length) + " elements at " +
            std::to_string(segment.begin);
  });
  return wrong;
}

} // namespace

std::string wrongCall(const grt_kernel_op &op, const Layer &layer) {
  std::string wrong = wrongWith(op, kernelForms[op.kernel].name);
  if (wrong.empty() && op.kernel == GRT_KERNEL_OPTIMIZER)
    wrong = wrongSegment<kernels::Optimizer>(op, layer);
  if (wrong.empty() && op.kernel == GRT_KERNEL_NORM)
    wrong = wrongSegment<kernels::Norm>(op, layer);
  return wrong;
}

std::vector<int64_t> decayingAll(const grt_kernel_op &op) {
  std::vector<int64_t> ints(op.ints, op.ints + op.int_count);
  for (size_t at = firstSegment<kernels::Optimizer>;
       at + segmentInts <= ints.size(); at += segmentInts)
    ints[at + segmentFlag] = 1;
  return ints;
}

} // namespace grt
