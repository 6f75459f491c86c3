//===- compute.cpp - Products and other kernels ---------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "base/error.h"
#include "base/values.h"
#include "grt/cpu_bounds.h"
#include "measure.h"

#include <algorithm>
#include <deque>

namespace grt::profile {
namespace {

/// Blocks that live until the end of a measurement.
class Blocks {
public:
  Blocks(Probe &probe, grt_dtype dtype) : probe(probe), dtype(dtype) {}
  Block *make(int64_t elements) {
    Block &block = blocks.emplace_back(probe.device(),
                                       elements * int64_t(dtypeBytes(dtype)));
    block.fill(dtype);
    return &block;
  }
  /// Bytes of scratch, not filled.
  Block *scratch(uint64_t bytes) {
    return &blocks.emplace_back(probe.device(), int64_t(bytes));
  }

private:
  Probe &probe;
  grt_dtype dtype;
  std::deque<Block> blocks;
};

/// Between two uses of a layer's buffers a training step goes through those of
/// all other layers. So a call takes the next of several sets of buffers, which
/// together are larger than a core's own caches. (Sets of tiny operands stay in
/// them, as small models do.)
size_t setsOf(int64_t bytes) {
  constexpr int64_t beyondCaches = int64_t(16) << 20, most = 64;
  return size_t(
      std::clamp<int64_t>((beyondCaches + bytes - 1) / bytes, 1, most));
}

/// FLOP/s over the three products of a linear layer: forward, gradient of the
/// input, gradient of the weight. Six of their nine operands were not used
/// just before, as in a step, in which the layers before and after have touched
/// one operand of each.
double linearFlops(Probe &probe, grt_dtype dtype, int64_t rows, int64_t in,
                   int64_t out, double seconds) {
  struct Set {
    Block *x, *dx, *w, *dw, *y, *dy;
  };
  Blocks blocks(probe, dtype);
  std::vector<Set> sets(setsOf(2 * (rows * in + in * out + rows * out) *
                               int64_t(dtypeBytes(dtype))));
  for (Set &set : sets)
    set = {blocks.make(rows * in),  blocks.make(rows * in),
           blocks.make(in * out),   blocks.make(in * out),
           blocks.make(rows * out), blocks.make(rows * out)};
  size_t next = 0;
  double time = probe.time(seconds, [&] {
    const Set &set = sets[next++ % sets.size()];
    probe.launch(GRT_KERNEL_GEMM, dtype, {set.x, set.w, set.y},
                 {rows, out, in, 0, 0, 0, 0});
    probe.launch(GRT_KERNEL_GEMM, dtype, {set.dy, set.w, set.dx},
                 {rows, in, out, 0, 1, 0, 0});
    probe.launch(GRT_KERNEL_GEMM, dtype, {set.x, set.dy, set.dw},
                 {in, out, rows, 1, 0, 0, 0});
  });
  return 6.0 * double(rows) * double(in) * double(out) / time;
}

/// Causal attention forward and backward, one sample of 4 heads: seven products
/// per head, of which half the scores are computed.
std::pair<double, double> attentionFlops(Probe &probe, int64_t positions,
                                         int64_t headSize, double seconds) {
  constexpr int64_t heads = 4;
  constexpr grt_dtype dtype = GRT_F32;
  struct Set {
    Block *q, *k, *v, *o, *lse, *dout, *dq, *dk, *dv;
  };
  Blocks blocks(probe, dtype);
  int64_t width = heads * headSize, all = positions * width;
  std::vector<Set> sets(setsOf(8 * all * int64_t(dtypeBytes(dtype))));
  for (Set &set : sets)
    set = {blocks.make(all),
           blocks.make(all),
           blocks.make(all),
           blocks.make(all),
           blocks.make(heads * positions),
           blocks.make(all),
           blocks.make(all),
           blocks.make(all),
           blocks.make(all)};
  auto scratch = [&](int backward) {
    return blocks.scratch(
        uint64_t(probe.threads()) *
        grt_cpu_attention_scratch_bytes(positions, positions, headSize,
                                        sizeof(float), backward));
  };
  Block *forward = scratch(0), *backward = scratch(1);
  std::vector<int64_t> ints = {1,     positions, positions, heads,
                               heads, headSize,  width,     width,
                               width, 1,         0,         0};
  std::vector<double> reals = {0.125, 0};
  size_t next = 0;
  double time = probe.time(seconds, [&] {
    const Set &set = sets[next++ % sets.size()];
    probe.launch(GRT_KERNEL_ATTENTION, dtype,
                 {set.q, set.k, set.v, set.o, set.lse, forward}, ints, reals);
    probe.launch(GRT_KERNEL_ATTENTION_GRAD, dtype,
                 {set.q, set.k, set.v, set.o, set.lse, set.dout, set.dq, set.dk,
                  set.dv, backward},
                 ints, reals);
  });
  double product =
      double(heads) * double(positions) * double(positions) * double(headSize);
  return {harmonicMean(double(positions), double(positions), double(headSize)),
          7 * product / time};
}

/// The kernels of a transformer block that are no products, at 256 rows of 512,
/// and how often a block calls each.
void measureKernels(Probe &probe, double part, Measurement &result) {
  constexpr int64_t rows = 256, width = 512, wide = 4 * width;
  constexpr grt_dtype dtype = GRT_F32;
  Blocks blocks(probe, dtype);
  Block *x = blocks.make(rows * width), *y = blocks.make(rows * width);
  Block *z = blocks.make(rows * width), *w = blocks.make(rows * width);
  Block *big = blocks.make(rows * wide);
  Block *bigger = blocks.make(rows * wide), *pre = blocks.make(rows * wide);
  Block *gamma = blocks.make(width), *beta = blocks.make(width);
  Block *dgamma = blocks.make(width), *dbeta = blocks.make(width);
  Block *bias = blocks.make(wide), *stats = blocks.make(rows * 2);
  Block *labels = blocks.scratch(rows * sizeof(int32_t));
  Block *sums = blocks.make(rows * 3), *loss = blocks.make(2);
  struct Case {
    const char *name;
    int calls; ///< in a block; 0: elsewhere
    grt_kernel kernel;
    std::vector<Block *> buffers;
    std::vector<int64_t> ints;
    std::vector<double> reals;
  };
  const Case cases[] = {
      {"layer_norm",
       1,
       GRT_KERNEL_LAYER_NORM,
       {x, gamma, beta, y, stats},
       {rows, width},
       {1e-5}},
      {"add_layer_norm",
       1,
       GRT_KERNEL_ADD_LAYER_NORM,
       {x, y, gamma, beta, z, w, stats},
       {1, rows, width, 0},
       {1e-5, 0}},
      {"layer_norm_grad",
       0,
       GRT_KERNEL_LAYER_NORM_GRAD,
       {x, y, stats, gamma, z, dgamma, dbeta},
       {rows, width, 0},
       {}},
      {"layer_norm_add_grad",
       2,
       GRT_KERNEL_LAYER_NORM_ADD_GRAD,
       {x, y, stats, gamma, w, z, dgamma, dbeta},
       {rows, width, 0},
       {}},
      {"bias_gelu",
       1,
       GRT_KERNEL_BIAS_GELU,
       {big, bias, pre, bigger},
       {rows, wide, 1},
       {}},
      {"gelu_grad",
       1,
       GRT_KERNEL_GELU_GRAD,
       {pre, big, bigger},
       {rows * wide, 1},
       {}},
      {"add", 1, GRT_KERNEL_ADD, {x, y, z}, {rows * width}, {}},
      {"bias_grad", 2, GRT_KERNEL_BIAS_GRAD, {x, dgamma}, {rows, width, 0}, {}},
      {"bias_grad (wide)",
       2,
       GRT_KERNEL_BIAS_GRAD,
       {big, bias},
       {rows, wide, 0},
       {}},
      {"dropout_add",
       0,
       GRT_KERNEL_DROPOUT_ADD,
       {x, y, z},
       {1, rows, width, 0, 0},
       {0.1}},
      {"softmax_stats",
       0,
       GRT_KERNEL_SOFTMAX_STATS,
       {big, labels, sums},
       {rows, wide, wide, 0},
       {}},
      {"cross_entropy",
       0,
       GRT_KERNEL_CROSS_ENTROPY,
       {big, labels, sums, bigger, loss},
       {rows, wide, wide, 0, 1},
       {}},
  };
  double bytes = 0, seconds = 0;
  for (const Case &entry : cases) {
    KernelTime time{entry.name, 0, 0};
    time.seconds = probe.time(part / double(std::size(cases)), [&] {
      probe.launch(entry.kernel, dtype, entry.buffers, entry.ints, entry.reals);
    });
    for (const Block *block : entry.buffers)
      time.bytes += double(block->bytes());
    bytes += entry.calls * time.bytes;
    seconds += entry.calls * time.seconds;
    result.kernels.push_back(time);
  }
  result.memoryBandwidth = bytes / seconds;
}

/// Measures the work that a step does once per element: AdamW and the
/// gradient's norm, over state beyond every cache.
void measureUpdate(Probe &probe, double part, Measurement &result) {
  constexpr int64_t elements = int64_t(2) << 20;
  Blocks blocks(probe, GRT_F32);
  Block *values = blocks.make(elements), *gradients = blocks.make(elements);
  Block *state = blocks.scratch(2 * elements * sizeof(float));
  KernelTime update{"optimizer (adamw)", 0, 7.0 * 4 * double(elements)};
  update.seconds = probe.time(part / 2, [&] {
    probe.launch(GRT_KERNEL_OPTIMIZER, GRT_F32, {values, gradients, state},
                 {2, elements, 1, 0, elements, 1});
  });
  KernelTime norm{"norm", 0, 4.0 * double(elements)};
  norm.seconds = probe.time(part / 2, [&] {
    probe.launch(GRT_KERNEL_NORM, GRT_F32, {gradients},
                 {elements, 1, 0, elements, 0});
  });
  result.kernels.push_back(update);
  result.kernels.push_back(norm);
  result.optimizerBandwidth =
      (update.bytes + norm.bytes) / (update.seconds + norm.seconds);
}

double copyBandwidth(Probe &probe, double part) {
  constexpr int64_t bytes = int64_t(16) << 20;
  Block from(probe.device(), bytes), to(probe.device(), bytes);
  double time = probe.time(part, [&] {
    probe.launch(GRT_KERNEL_COPY, GRT_F32, {&from, &to},
                 {1, bytes, bytes, bytes});
  });
  return 2.0 * double(bytes) / time;
}

} // namespace

void measureCompute(Probe &probe, double part, bool quick,
                    Measurement &result) {
  // A block's products, `rows` times `width`: width x width, and four times as
  // wide; larger ones beside them show what the device can do.
  std::vector<int64_t> sizes = {16, 32, 64, 128, 256, 512, 1024};
  if (quick)
    sizes = {32, 128, 512};
  for (int64_t size : sizes) {
    // A cube, and a shape of the same harmonic mean that is flat.
    int64_t narrow = std::max<int64_t>(8, size * 3 / 4);
    double seconds = 0.4 * part / double(2 * sizes.size());
    double cube = linearFlops(probe, GRT_F32, size, size, size, seconds);
    double flat =
        linearFlops(probe, GRT_F32, narrow, narrow, 3 * size, seconds);
    result.products.push_back({double(size), 2 / (1 / cube + 1 / flat)});
    result.f32Flops = std::max(result.f32Flops, result.products.back().second);
  }
  const std::pair<int64_t, int64_t> shapes[] = {
      {16, 16}, {64, 32}, {128, 64}, {256, 64}, {512, 64}};
  for (auto [positions, headSize] : shapes)
    if (!quick || positions == 64 || positions == 256)
      result.attention.push_back(
          attentionFlops(probe, positions, headSize, 0.15 * part / 5));
  result.f64Flops = linearFlops(probe, GRT_F64, 256, 256, 256, 0.05 * part);
  try {
    result.bf16Flops = linearFlops(probe, GRT_BF16, 512, 512, 512, 0.05 * part);
  } catch (const Error &) {
    // The backend has none; it says so on every rank.
    result.bf16Flops = 0;
  }
  // Two FLOPs: what is measured is the call.
  Blocks blocks(probe, GRT_F32);
  Block *tiny = blocks.make(4);
  result.kernelOverhead = probe.time(0.05 * part, [&] {
    probe.launch(GRT_KERNEL_ADD, GRT_F32, {tiny, tiny, tiny}, {4});
  });
  result.copyBandwidth = copyBandwidth(probe, 0.05 * part);
  measureKernels(probe, 0.2 * part, result);
  measureUpdate(probe, 0.05 * part, result);
}

} // namespace grt::profile
