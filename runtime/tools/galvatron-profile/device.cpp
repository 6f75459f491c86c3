//===- device.cpp - Measures what a device achieves -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The same questions as compute.cpp asks of CPU ranks, at the sizes that keep a
// GPU busy and in the type that it trains in.
//
//===----------------------------------------------------------------------===//

#include "device.h"
#include "base/error.h"
#include "core/executor.h"
#include "core/placement.h"
#include "device_probe.h"

#include "grt/cuda_bounds.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace grt::profile {
namespace {

using Buffer = DeviceProbe::Buffer;

Buffer bf(int64_t count) { return {GRT_BF16, count}; }
Buffer f(int64_t count) { return {GRT_F32, count}; }

/// FLOP/s over the three products of a linear layer: forward, gradient of the
/// input, gradient of the weight.
double linearFlops(DeviceProbe &probe, grt_dtype dtype, int64_t rows,
                   int64_t in, int64_t out, double seconds) {
  Buffer x{dtype, rows * in}, w{dtype, in * out}, y{dtype, rows * out};
  Buffer dw{dtype == GRT_BF16 ? GRT_F32 : dtype, in * out};
  double time = probe.kernel(seconds / 3, GRT_KERNEL_GEMM, {x, w, y},
                             {rows, out, in, 0, 0, 0, 0}) +
                probe.kernel(seconds / 3, GRT_KERNEL_GEMM, {y, w, x},
                             {rows, in, out, 0, 1, 0, 0}) +
                probe.kernel(seconds / 3, GRT_KERNEL_GEMM, {x, y, dw},
                             {in, out, rows, 1, 0, 2, 0});
  return 6.0 * double(rows) * double(in) * double(out) / time;
}

/// Causal attention forward and backward: seven products per head, of which
/// half the scores are computed. With the size of one head's product.
std::pair<double, double> attentionFlops(DeviceProbe &probe, int64_t samples,
                                         int64_t positions, int64_t heads,
                                         int64_t headSize, double seconds) {
  int64_t width = heads * headSize, all = samples * positions * width;
  int64_t rows = samples * positions * heads;
  std::vector<int64_t> ints = {samples, positions, positions, heads,
                               heads,   headSize,  width,     width,
                               width,   1,         0,         0};
  std::vector<double> reals = {1 / std::sqrt(double(headSize)), 0};
  auto scratch = [&](int backward) {
    uint64_t bytes = grt_cuda_attention_scratch_bytes(
        samples, positions, positions, heads, heads, headSize, 2, backward);
    return f(int64_t(bytes / sizeof(float)));
  };
  double time =
      probe.kernel(seconds / 2, GRT_KERNEL_ATTENTION,
                   {bf(all), bf(all), bf(all), bf(all), f(rows), scratch(0)},
                   ints, reals) +
      probe.kernel(seconds / 2, GRT_KERNEL_ATTENTION_GRAD,
                   {bf(all), bf(all), bf(all), bf(all), f(rows), bf(all),
                    bf(all), bf(all), bf(all), scratch(1)},
                   ints, reals);
  double product = double(samples * heads) * double(positions) *
                   double(positions) * double(headSize);
  return {harmonicMean(double(positions), double(positions), double(headSize)),
          7 * product / time};
}

/// The kernels of a transformer block that are no products, and how often a
/// block calls each.
void measureKernels(DeviceProbe &probe, int64_t rows, int64_t width,
                    double seconds, Measurement &result) {
  int64_t n = rows * width, wide = 4 * width;
  struct Case {
    const char *name;
    int calls;
    grt_kernel kernel;
    std::vector<Buffer> buffers;
    std::vector<int64_t> ints;
    std::vector<double> reals;
  };
  const Case cases[] = {
      {"layer_norm",
       2,
       GRT_KERNEL_LAYER_NORM,
       {bf(n), bf(width), bf(width), bf(n), f(2 * rows)},
       {rows, width},
       {1e-5}},
      {"layer_norm_grad",
       2,
       GRT_KERNEL_LAYER_NORM_GRAD,
       {bf(n), bf(n), f(2 * rows), bf(width), bf(n), f(width), f(width)},
       {rows, width, 0},
       {}},
      {"bias_gelu",
       1,
       GRT_KERNEL_BIAS_GELU,
       {bf(4 * n), bf(wide), bf(4 * n), bf(4 * n)},
       {rows, wide, 1},
       {}},
      {"gelu_grad",
       1,
       GRT_KERNEL_GELU_GRAD,
       {bf(4 * n), bf(4 * n), bf(4 * n)},
       {4 * n, 1},
       {}},
      {"add", 4, GRT_KERNEL_ADD, {bf(n), bf(n), bf(n)}, {n}, {}},
      {"bias_grad",
       2,
       GRT_KERNEL_BIAS_GRAD,
       {bf(n), f(width)},
       {rows, width, 0},
       {}},
      {"bias_grad (wide)",
       2,
       GRT_KERNEL_BIAS_GRAD,
       {bf(4 * n), f(wide)},
       {rows, wide, 0},
       {}},
  };
  double bytes = 0, time = 0;
  for (const Case &entry : cases) {
    KernelTime found{entry.name, 0, 0};
    found.seconds =
        probe.kernel(seconds / double(std::size(cases)), entry.kernel,
                     entry.buffers, entry.ints, entry.reals);
    for (const Buffer &buffer : entry.buffers)
      found.bytes += double(buffer.bytes());
    bytes += entry.calls * found.bytes;
    time += entry.calls * found.seconds;
    result.kernels.push_back(found);
  }
  result.memoryBandwidth = bytes / time;
  KernelTime update{"optimizer (adamw)", 0, 30.0 * double(4 * n)};
  update.seconds =
      probe.kernel(seconds / 7, GRT_KERNEL_OPTIMIZER,
                   {bf(4 * n), f(4 * n), {GRT_F32, 12 * n, 1, true}},
                   {2, 4 * n, 1, 0, 4 * n, 1});
  result.kernels.push_back(update);
  KernelTime norm{"norm", 0, 4.0 * double(4 * n)};
  norm.seconds = probe.kernel(seconds / 7, GRT_KERNEL_NORM, {f(4 * n)},
                              {4 * n, 1, 0, 4 * n, 0});
  result.kernels.push_back(norm);
}

} // namespace

Measurement measureDevice(const std::string &name, int64_t largest,
                          const MeasureOptions &options) {
  BackendHandle backend(name, "");
  if (!backend->device)
    invalid("backend '" + name +
            "' has no device; ranks on the CPU are measured without --backend");
  placeProcess(*backend, /*share=*/false);
  DeviceProbe probe(*backend, options.ended);
  Measurement result;
  result.backend = backend->name;
  result.hosts = {0};
  double part = options.seconds;
  std::vector<int64_t> sizes;
  for (int64_t size = std::min<int64_t>(largest, 128); size <= largest;
       size *= options.quick ? 4 : 2)
    sizes.push_back(size);
  for (int64_t size : sizes) {
    // The shapes are those of a training step: rows are tokens, and more than a
    // weight is wide. A cube of the same harmonic mean would leave most of a
    // large device without work, and tell what starting a product takes.
    const int64_t rows = largest;
    const double wanted =
        2 / std::max(3 / double(size) - 1 / double(rows), 1 / double(rows));
    constexpr int64_t step = 64;
    const int64_t width =
        std::clamp(int64_t(std::llround(wanted / double(step))) * step,
                   std::min(step, rows), rows);
    double seconds = 0.4 * part / double(2 * sizes.size());
    double few = linearFlops(probe, GRT_BF16, rows, width, width, seconds);
    double many = linearFlops(probe, GRT_BF16, 4 * rows, width, width, seconds);
    result.products.push_back(
        {harmonicMean(double(rows), double(width), double(width)),
         2 / (1 / few + 1 / many)});
    result.bf16Flops =
        std::max(result.bf16Flops, result.products.back().second);
  }
  // The batch falls as sequences grow, as a training batch of tokens does.
  struct Shape {
    int64_t positions, headSize;
  };
  for (Shape shape : {Shape{128, 64},
                      {256, 64},
                      {512, 64},
                      {1024, 64},
                      {2048, 64},
                      {1024, 128}}) {
    if (shape.positions > largest)
      continue;
    int64_t samples = std::max<int64_t>(1, largest / shape.positions);
    result.attention.push_back(attentionFlops(probe, samples, shape.positions,
                                              largest >= 1024 ? 16 : 2,
                                              shape.headSize, 0.2 * part / 6));
  }
  int64_t half = std::max<int64_t>(16, largest / 2);
  result.f32Flops = linearFlops(probe, GRT_F32, half, half, half, 0.05 * part);
  result.f64Flops = linearFlops(probe, GRT_F64, half, half, half, 0.05 * part);
  // Two FLOPs: what is measured is the call.
  result.kernelOverhead =
      probe.kernel(0.05 * part, GRT_KERNEL_ADD, {f(4), f(4), f(4)}, {4});
  result.copyBandwidth = 2.0 * double(largest) * 32768 /
                         probe.copies(0.05 * part, uint64_t(largest) * 32768);
  // Long enough that their start and end, which the overhead has, are no part.
  measureKernels(probe, 4 * largest, std::max<int64_t>(16, largest / 8),
                 0.2 * part, result);
  // The size is rounded up to whole MiB.
  constexpr uint64_t mebibyte = 1 << 20;
  result.outsideBytes =
      (probe.outsideBytes() + mebibyte - 1) / mebibyte * mebibyte;
  return result;
}

} // namespace grt::profile
