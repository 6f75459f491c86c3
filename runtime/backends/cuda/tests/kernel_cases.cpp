//===- kernel_cases.cpp - A call of every kernel, and what bounds it ------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "kernel_cases.h"

#include "../../common/call.h"
#include "grt/cuda_bounds.h"

#include <algorithm>
#include <stdexcept>

namespace grt::test {

namespace {

using Buffer = profile::DeviceProbe::Buffer;
constexpr int64_t words = 50304, headDim = 64;
constexpr double epsilon = 1e-5, scale = 0.125, dropped = 0.1;

Buffer bf(int64_t count) { return {GRT_BF16, count}; }
Buffer f(int64_t count) { return {GRT_F32, count}; }
Buffer below(int64_t count, int64_t limit) {
  return {GRT_I32, count, int32_t(limit)};
}

/// Collects the cases; sizes that many of them share.
struct Builder {
  int64_t rows, width, sequence, samples, heads, n, wide, wideN;
  std::vector<KernelCase> all;

  Builder(int64_t rows, int64_t width)
      : rows(rows), width(width), sequence(std::clamp<int64_t>(rows, 1, 1024)),
        samples(rows / sequence), heads(width / headDim), n(rows * width),
        wide(4 * width), wideN(4 * n) {
    if (rows < 1 || rows % sequence != 0 || width < headDim ||
        width % headDim != 0)
      throw std::invalid_argument(
          "expected rows in whole sequences of 1024, and a width of a multiple "
          "of 64, found " +
          std::to_string(rows) + " and " + std::to_string(width));
  }

  void add(std::string name, grt_kernel kernel, std::vector<Buffer> buffers,
           std::vector<int64_t> ints, std::vector<double> reals = {}) {
    all.push_back({std::move(name), kernel, std::move(buffers), std::move(ints),
                   std::move(reals)});
  }

  void products() {
    add("gemm, forward", GRT_KERNEL_GEMM,
        {bf(n), bf(width * wide), bf(wideN), bf(wide)},
        {rows, wide, width, 0, 0, 0, 1});
    add("gemm, gradient of weights", GRT_KERNEL_GEMM,
        {bf(n), bf(wideN), f(width * wide)}, {width, wide, rows, 1, 0, 0, 0});
    add("gemm, gradient of the input", GRT_KERNEL_GEMM,
        {bf(n), bf(width * wide), bf(wideN)}, {rows, wide, width, 0, 1, 0, 0});
    // Where the library refuses an epilogue, its share is below that of the
    // product alone by the pass that is made instead.
    add("gemm-gelu, forward", GRT_KERNEL_GEMM_GELU,
        {bf(n), bf(width * wide), bf(wide), bf(wideN), bf(wideN)},
        {rows, wide, width, 0, 0, 1, 1});
    add("gemm-gelu-grad", GRT_KERNEL_GEMM_GELU_GRAD,
        {bf(n), bf(width * wide), bf(wideN), bf(wideN)},
        {rows, wide, width, 0, 1, 1});
    add("gemm-bias-grad", GRT_KERNEL_GEMM_BIAS_GRAD,
        {bf(n), bf(wideN), f(width * wide), f(wide)}, {width, wide, rows, 0});
  }

  void norms() {
    add("layer-norm", GRT_KERNEL_LAYER_NORM,
        {bf(n), bf(width), bf(width), bf(n), f(2 * rows)}, {rows, width},
        {epsilon});
    add("layer-norm-grad", GRT_KERNEL_LAYER_NORM_GRAD,
        {bf(n), bf(n), f(2 * rows), bf(width), bf(n), f(width), f(width)},
        {rows, width, 0});
    add("add-layer-norm", GRT_KERNEL_ADD_LAYER_NORM,
        {bf(n), bf(n), bf(width), bf(width), bf(n), bf(n), f(2 * rows)},
        {samples, sequence, width, 0}, {epsilon, dropped});
    add("layer-norm-add-grad", GRT_KERNEL_LAYER_NORM_ADD_GRAD,
        {bf(n), bf(n), f(2 * rows), bf(width), bf(n), bf(n), f(width),
         f(width)},
        {rows, width, 0});
    add("centered-norm", GRT_KERNEL_CENTERED_NORM,
        {bf(n), bf(width), bf(n), f(2 * rows)}, {rows, width}, {epsilon});
    add("centered-norm-grad", GRT_KERNEL_CENTERED_NORM_GRAD,
        {bf(n), bf(n), f(2 * rows), bf(width), bf(n), f(width)},
        {rows, width, 0});
    add("plain-norm", GRT_KERNEL_PLAIN_NORM, {bf(n), bf(n), f(2 * rows)},
        {rows, width}, {epsilon});
    add("plain-norm-grad", GRT_KERNEL_PLAIN_NORM_GRAD,
        {bf(n), bf(n), f(2 * rows), bf(n)}, {rows, width});
    add("rms-norm", GRT_KERNEL_RMS_NORM, {bf(n), bf(width), bf(n), f(rows)},
        {rows, width, 0}, {epsilon});
    add("rms-norm-grad", GRT_KERNEL_RMS_NORM_GRAD,
        {bf(n), bf(n), f(rows), bf(width), bf(n), f(width)},
        {rows, width, 0, 0});
  }

  void elementwise() {
    add("bias-add", GRT_KERNEL_BIAS_ADD, {bf(n), bf(width), bf(n)},
        {rows, width});
    add("bias-grad", GRT_KERNEL_BIAS_GRAD, {bf(n), f(width)}, {rows, width, 0});
    for (int64_t tanh : {1, 0}) {
      const std::string form = tanh ? ", tanh" : ", erf";
      add("gelu" + form, GRT_KERNEL_GELU, {bf(wideN), bf(wideN)},
          {wideN, tanh});
      add("gelu-grad" + form, GRT_KERNEL_GELU_GRAD,
          {bf(wideN), bf(wideN), bf(wideN)}, {wideN, tanh});
      add("bias-gelu" + form, GRT_KERNEL_BIAS_GELU,
          {bf(wideN), bf(wide), bf(wideN), bf(wideN)}, {rows, wide, tanh});
    }
    add("dropout", GRT_KERNEL_DROPOUT, {bf(n), bf(n)},
        {samples, sequence, width, 0, 0}, {dropped});
    add("dropout-add", GRT_KERNEL_DROPOUT_ADD, {bf(n), bf(n), bf(n)},
        {samples, sequence, width, 0, 0}, {dropped});
    add("add", GRT_KERNEL_ADD, {bf(n), bf(n), bf(n)}, {n});
    add("scale", GRT_KERNEL_SCALE, {bf(n), bf(n)}, {n}, {0.5});
    add("relu", GRT_KERNEL_RELU, {bf(wideN), bf(wideN)}, {wideN});
    add("relu-grad", GRT_KERNEL_RELU_GRAD, {bf(wideN), bf(wideN), bf(wideN)},
        {wideN});
    add("soft-cap", GRT_KERNEL_SOFT_CAP, {bf(wideN), bf(wideN)}, {wideN}, {30});
    add("soft-cap-grad", GRT_KERNEL_SOFT_CAP_GRAD,
        {bf(wideN), bf(wideN), bf(wideN)}, {wideN}, {30});
    add("clip", GRT_KERNEL_CLIP, {bf(n), bf(n)}, {n}, {8});
    add("clip-grad", GRT_KERNEL_CLIP_GRAD, {bf(n), bf(n), bf(n)}, {n}, {8});
    add("column-scale", GRT_KERNEL_COLUMN_SCALE, {bf(n), bf(width), bf(n)},
        {rows, width});
    add("column-scale-grad", GRT_KERNEL_COLUMN_SCALE_GRAD,
        {bf(n), bf(n), f(width)}, {rows, width, 0});
    const std::vector<Buffer> gated = {bf(wideN), bf(wideN), bf(wideN)};
    const std::vector<Buffer> back = {bf(wideN), bf(wideN), bf(wideN),
                                      bf(wideN), bf(wideN)};
    add("gated-silu", GRT_KERNEL_GATED_SILU, gated, {wideN});
    add("gated-silu-grad", GRT_KERNEL_GATED_SILU_GRAD, back, {wideN});
    add("gated-gelu", GRT_KERNEL_GATED_GELU, gated, {wideN});
    add("gated-gelu-grad", GRT_KERNEL_GATED_GELU_GRAD, back, {wideN});
    std::vector<double> turns = {1};
    for (int64_t pair = 0; pair < headDim / 2; ++pair)
      turns.push_back(1 / double(pair + 1));
    add("rotary", GRT_KERNEL_ROTARY, {bf(n), bf(n)},
        {samples, sequence, heads, headDim, 0, headDim / 2}, turns);
    // A position for each of the samples, behind a cache of one row.
    const int64_t kept = sequence * width;
    add("cached-attention", GRT_KERNEL_CACHED_ATTENTION,
        {bf(samples * width), bf(samples * width), bf(samples * width),
         bf(kept), bf(kept), below(samples, 1), below(samples, sequence),
         bf(samples * width)},
        {samples, 1, sequence, heads, heads, headDim, width, width, width, 0},
        {scale, 0, 0});
    add("cached-cross-attention", GRT_KERNEL_CACHED_CROSS_ATTENTION,
        {bf(samples * width), bf(n), bf(n), bf(kept), bf(kept),
         below(samples, 1), below(samples, 1), below(samples, sequence),
         bf(samples * width)},
        {samples, 1, sequence, heads, heads, headDim, width, width, width},
        {scale});
    add("drop-path", GRT_KERNEL_DROP_PATH, {bf(n), bf(n)},
        {samples, sequence * width, 0, 0}, {dropped});
    add("mean", GRT_KERNEL_MEAN, {bf(n), bf(samples * width)},
        {samples, sequence, width});
    add("mean-grad", GRT_KERNEL_MEAN_GRAD, {bf(samples * width), bf(n)},
        {samples, sequence, width});
    add("transpose", GRT_KERNEL_TRANSPOSE, {bf(n), bf(n)},
        {samples, sequence, width});
    // A whole weight: what one rank does.
    add("own-part", GRT_KERNEL_OWN_PART, {bf(n), bf(n)}, {1, 1, n, 1, 0});
    // A third of the columns of a packed projection.
    add("copy", GRT_KERNEL_COPY, {bf(3 * n), bf(n)},
        {rows, 2 * width, 6 * width, 2 * width});
    add("zero", GRT_KERNEL_ZERO, {f(n)}, {});
    add("round", GRT_KERNEL_ROUND, {bf(n), f(n)}, {n});
  }

  void tables() {
    add("embedding", GRT_KERNEL_EMBEDDING,
        {below(rows, words), bf(words * width), bf(n)},
        {rows, width, words, 0});
    add("embedding-grad", GRT_KERNEL_EMBEDDING_GRAD,
        {below(rows, words), bf(n), f(words * width)},
        {rows, width, words, 0, 0});
    add("position-add", GRT_KERNEL_POSITION_ADD,
        {bf(n), bf(sequence * width), bf(n)}, {samples, sequence, width});
    add("position-grad", GRT_KERNEL_POSITION_GRAD, {bf(n), f(sequence * width)},
        {samples, sequence, width, sequence, 0});
    add("position-grad-behind-two", GRT_KERNEL_POSITION_GRAD,
        {bf(n), f((sequence + 2) * width)},
        {samples, sequence, width, sequence + 2, 0, 2});
    constexpr int64_t buckets = 32, furthest = 128;
    add("relative-bias", GRT_KERNEL_RELATIVE_BIAS,
        {bf(buckets * heads), bf(samples * heads * (2 * sequence - 1))},
        {samples, heads, sequence, buckets, furthest, 1});
    add("relative-bias-grad", GRT_KERNEL_RELATIVE_BIAS_GRAD,
        {bf(samples * heads * (2 * sequence - 1)), f(buckets * heads)},
        {samples, heads, sequence, buckets, furthest, 1, 0});
  }

  void loss() {
    const int64_t chunk = std::min<int64_t>(rows, 4096), logits = chunk * words;
    add("softmax-stats", GRT_KERNEL_SOFTMAX_STATS,
        {bf(logits), below(chunk, words), f(3 * chunk)},
        {chunk, words, words, 0});
    add("cross-entropy", GRT_KERNEL_CROSS_ENTROPY,
        {bf(logits),
         below(chunk, words),
         f(3 * chunk),
         bf(logits),
         {GRT_F64, 1}},
        {chunk, words, words, 0, 1});
    add("regularized-stats", GRT_KERNEL_REGULARIZED_STATS,
        {bf(logits), below(chunk, words), f(4 * chunk)},
        {chunk, words, words, 0});
    add("regularized-cross-entropy", GRT_KERNEL_REGULARIZED_CROSS_ENTROPY,
        {bf(logits),
         below(chunk, words),
         f(4 * chunk),
         bf(logits),
         {GRT_F64, 2}},
        {chunk, words, words, 0, 1}, {0.1, 1e-4});
    add("softmax-cross-entropy", GRT_KERNEL_SOFTMAX_CROSS_ENTROPY,
        {bf(logits),
         below(chunk, words),
         f(3 * chunk),
         bf(logits),
         {GRT_F64, 1}},
        {chunk, words});
  }

  void update() {
    add("optimizer, adamw", GRT_KERNEL_OPTIMIZER,
        {bf(n), f(n), {GRT_F32, 3 * n, 1, true}}, {2, n, 1, 0, n, 1});
    add("norm", GRT_KERNEL_NORM, {f(n)}, {n, 1, 0, n, 0});
  }

  enum class Scores { Plain, Biased, Shaped };
  void attention(bool backward, Scores scores, double p) {
    const bool biased = scores == Scores::Biased;
    const bool shaped = scores == Scores::Shaped;
    std::vector<Buffer> buffers = {bf(3 * n), bf(3 * n), bf(3 * n), bf(n),
                                   f(rows * heads)};
    if (backward)
      for (int64_t elements : {n, 3 * n, 3 * n, 3 * n})
        buffers.push_back(bf(elements));
    uint64_t scratch = grt_cuda_attention_scratch_bytes(
        samples, sequence, sequence, heads, heads, headDim, 2, backward);
    if (biased)
      scratch += grt_cuda_bias_scratch_bytes(samples, sequence, sequence, heads,
                                             2, backward);
    buffers.push_back(f(int64_t(scratch / 4)));
    std::vector<int64_t> ints = {samples,   sequence, sequence,  heads,
                                 heads,     headDim,  3 * width, 3 * width,
                                 3 * width, !biased,  0,         0};
    if (biased) {
      for (bool gradient : {false, true})
        if (!gradient || backward)
          buffers.push_back(bf(samples * heads * (2 * sequence - 1)));
      ints.push_back(heads);
    }
    std::vector<double> reals = {scale, p};
    if (shaped)
      reals.insert(reals.end(), {50, 0});
    const grt_kernel kernels[3][2] = {
        {GRT_KERNEL_ATTENTION, GRT_KERNEL_ATTENTION_GRAD},
        {GRT_KERNEL_BIASED_ATTENTION, GRT_KERNEL_BIASED_ATTENTION_GRAD},
        {GRT_KERNEL_SHAPED_ATTENTION, GRT_KERNEL_SHAPED_ATTENTION_GRAD}};
    add(std::string(biased   ? "biased-"
                    : shaped ? "shaped-"
                             : "") +
            "attention" + (backward ? "-grad" : "") +
            (p > 0 ? ", dropout" : ""),
        kernels[int(scores)][backward], std::move(buffers), std::move(ints),
        std::move(reals));
  }

  /// The first step of a ring, whose only rank has all rows.
  void ring(bool backward) {
    std::vector<Buffer> buffers = {bf(n), bf(n), bf(n)};
    if (backward)
      buffers.insert(buffers.end(),
                     {bf(n), f(rows * heads), bf(n), f(n), f(n), f(n)});
    else
      buffers.insert(buffers.end(), {f(n), f(rows * heads)});
    buffers.push_back(
        f(int64_t(grt_cuda_attention_scratch_bytes(1, rows, rows, heads, heads,
                                                   headDim, 2, backward)) /
          4));
    add(backward ? "ring-attention-grad" : "ring-attention",
        backward ? GRT_KERNEL_RING_ATTENTION_GRAD : GRT_KERNEL_RING_ATTENTION,
        std::move(buffers),
        {1, rows, rows, heads, heads, headDim, width, width, width, 1, 0, 0, 0,
         sequence, 0, rows, 0, 0},
        {scale, 0});
  }

  /// Of images of 224 by 224 with patches of 16, and of 56 by 56 positions with
  /// windows of 7.
  void vision() {
    constexpr int64_t side = 224, patch = 16, channels = 3;
    constexpr int64_t patches = (side / patch) * (side / patch);
    constexpr int64_t grid = 56, window = 7, shift = 3, across = grid / window;
    const int64_t images = std::max<int64_t>(1, rows / patches);
    const int64_t pixels = images * channels * side * side;
    add("patches", GRT_KERNEL_PATCHES, {bf(pixels), bf(pixels)},
        {images, channels, side, side, patch, patch});
    const int64_t grids = std::max<int64_t>(1, rows / (grid * grid));
    const int64_t positions = grids * grid * grid, elements = positions * width;
    add("windows", GRT_KERNEL_WINDOWS, {bf(elements), bf(elements)},
        {grids, grid, grid, width, window, shift, 0, 0});
    const int64_t table = (2 * window - 1) * (2 * window - 1) * heads;
    for (bool backward : {false, true}) {
      std::vector<Buffer> buffers = {bf(elements), bf(elements), bf(elements),
                                     bf(elements), f(positions * heads)};
      if (backward)
        buffers.insert(buffers.end(), 4, bf(elements));
      buffers.push_back(
          f(int64_t(grt_cuda_window_scratch_bytes(grids * across * across,
                                                  window, heads, 2, backward) /
                    4)));
      buffers.push_back(bf(table));
      std::vector<int64_t> ints = {grids, across, across,  window,
                                   shift, heads,  headDim, 0};
      if (backward) {
        buffers.push_back(f(table));
        ints.push_back(0);
      }
      add(backward ? "window-attention-grad" : "window-attention",
          backward ? GRT_KERNEL_WINDOW_ATTENTION_GRAD
                   : GRT_KERNEL_WINDOW_ATTENTION,
          std::move(buffers), std::move(ints), {scale, 0});
    }
  }
};

/// Pairs of a query and a key that it sees, of one head of one sample.
uint64_t pairsOf(int64_t tq, int64_t tk, bool causal, int64_t window) {
  uint64_t pairs = 0;
  for (int64_t r = 0; r < tq; ++r) {
    const int64_t end =
        causal ? std::clamp<int64_t>(r + tk - tq + 1, 0, tk) : tk;
    const int64_t begin =
        window ? std::clamp<int64_t>(r + tk - tq - window + 1, 0, tk) : 0;
    pairs += uint64_t(std::max<int64_t>(end - begin, 0));
  }
  return pairs;
}

uint64_t operationsOf(const grt_kernel_op &op) {
  auto product = [](const auto &n) { return uint64_t(2 * n.M * n.N * n.K); };
  if (isWindowAttention(op.kernel)) {
    const WindowShape shape(op);
    const uint64_t pairs = uint64_t(shape.windows() * shape.positions() *
                                    shape.positions() * shape.heads);
    return pairs * uint64_t(shape.headDim) *
           (isAttentionGrad(op.kernel) ? 10 : 4);
  }
  if (op.kernel == GRT_KERNEL_RING_ATTENTION ||
      op.kernel == GRT_KERNEL_RING_ATTENTION_GRAD) {
    const auto n = intsOf<kernels::RingAttention>(op);
    return uint64_t(n.heads * n.headDim * (n.Tq / n.length)) *
           pairsOf(n.length, n.length, n.causal, 0) *
           (isAttentionGrad(op.kernel) ? 10 : 4);
  }
  if (isAttention(op.kernel)) {
    const auto n = intsOf<kernels::Attention>(op);
    return uint64_t(n.samples * n.heads * n.headDim) *
           pairsOf(n.Tq, n.Tk, n.causal, n.window) *
           (isAttentionGrad(op.kernel) ? 10 : 4);
  }
  switch (op.kernel) {
  case GRT_KERNEL_GEMM:
    return product(intsOf<kernels::Gemm>(op));
  case GRT_KERNEL_GEMM_GELU:
    return product(intsOf<kernels::GemmGelu>(op));
  case GRT_KERNEL_GEMM_GELU_GRAD:
    return product(intsOf<kernels::GemmGeluGrad>(op));
  case GRT_KERNEL_GEMM_BIAS_GRAD:
    return product(intsOf<kernels::GemmBiasGrad>(op));
  default:
    return 0;
  }
}

/// Of one buffer, once.
uint64_t bytesOf(const grt_kernel_op &op, uint32_t place,
                 const KernelBuffer &buffer) {
  const grt_buffer &named = op.buffers[place];
  const int64_t width = bytesOfElement(named.dtype);
  // Rows that are looked up.
  if (op.kernel == GRT_KERNEL_EMBEDDING && place == kernels::Embedding::table) {
    const auto n = intsOf<kernels::Embedding>(op);
    return uint64_t(n.rows * n.width * width);
  }
  if (buffer.hasRows)
    return uint64_t(elementsOf(buffer.shape) * buffer.width *
                    (buffer.elements == Elements::Bytes ? 1 : width));
  return named.bytes;
}

} // namespace

std::vector<KernelCase> kernelCases(int64_t rows, int64_t width) {
  Builder builder(rows, width);
  builder.products();
  builder.norms();
  builder.elementwise();
  builder.tables();
  builder.loss();
  builder.update();
  for (bool backward : {false, true}) {
    for (double p : {0.0, dropped})
      builder.attention(backward, Builder::Scores::Plain, p);
    builder.attention(backward, Builder::Scores::Biased, 0);
    builder.attention(backward, Builder::Scores::Shaped, 0);
    builder.ring(backward);
  }
  builder.vision();
  std::stable_sort(builder.all.begin(), builder.all.end(),
                   [](const KernelCase &a, const KernelCase &b) {
                     return a.kernel < b.kernel;
                   });
  return std::move(builder.all);
}

KernelWork workOf(const grt_kernel_op &op) {
  KernelWork work;
  const KernelBuffers buffers = buffersOf(op);
  for (uint32_t i = 0; i < op.buffer_count && i < buffers.size(); ++i) {
    const Access access = buffers[i].access;
    if (access == Access::Scratch)
      continue;
    // Labels are written where tokens are generated, and else read; parameters
    // in bf16 are rounded from the master weights of the state.
    const bool once =
        op.kernel == GRT_KERNEL_CROSS_ENTROPY ||
        op.kernel == GRT_KERNEL_SOFTMAX_CROSS_ENTROPY ||
        (op.kernel == GRT_KERNEL_OPTIMIZER &&
         i == kernels::Optimizer::parameter && op.buffers[i].dtype == GRT_BF16);
    const bool both = access == Access::ReadWrite && !once;
    work.bytes += (both ? 2 : 1) * bytesOf(op, i, buffers[i]);
  }
  work.operations = operationsOf(op);
  return work;
}

KernelWork workOf(const KernelCase &call) {
  std::vector<grt_buffer> buffers;
  for (const Buffer &buffer : call.buffers)
    buffers.push_back({0, uint32_t(buffer.dtype), 0, buffer.bytes()});
  const grt_kernel_op op = {uint32_t(call.kernel),
                            uint32_t(buffers.size()),
                            uint32_t(call.ints.size()),
                            uint32_t(call.reals.size()),
                            buffers.data(),
                            call.ints.data(),
                            call.reals.data(),
                            call.name.c_str()};
  return workOf(op);
}

} // namespace grt::test
