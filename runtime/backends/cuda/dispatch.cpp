//===- dispatch.cpp - From calls of the C ABI to kernels ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One function per kernel of abi.h: reads the descriptor and derives what
// depends on the rank's coordinates. Buffers and the step block are the
// device's, so what depends on their contents is the kernels' to find out.
//
//===----------------------------------------------------------------------===//

#include "dispatch.h"
#include "choices.h"
#include "rank.h"

#include "../common/call.h"
#include "grt/cuda_bounds.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <random>
#include <utility>
#include <vector>

namespace grt::cuda {
namespace {

/// A call of a rank of this backend.
class Call : public CallReader {
public:
  using CallReader::CallReader;
  /// On the device.
  grt_step *step() const { return call.step; }
  Rank &rank() const { return *static_cast<Rank *>(call.rank_state); }
  Queue queue() const { return rank().queue(nameOf(op())); }
};

/// What addresses are surely multiples of, up to the alignment of buffers.
uint32_t alignmentOf(uintptr_t bits) {
  uint32_t alignment = GRT_ALIGNMENT;
  while (bits % alignment)
    alignment /= 2;
  return alignment;
}

/// The product of a call; `add` says whether gradients are added to.
ProductShape productShape(const grt_kernel_op &op, bool add,
                          uintptr_t addresses) {
  const int64_t *i = op.ints;
  uint32_t dtype = op.buffers[0].dtype;
  ProductShape s = {};
  s.m = i[0];
  s.n = i[1];
  s.k = i[2];
  s.dtype = s.result = dtype;
  s.alignment = alignmentOf(addresses);
  if (op.kernel != GRT_KERNEL_GEMM_BIAS_GRAD) {
    s.transA = i[3] != 0;
    s.transB = i[4] != 0;
  }
  switch (op.kernel) {
  case GRT_KERNEL_GEMM_GELU:
    s.epilogue = i[6] != 0 ? Epilogue::GeluKept : Epilogue::Gelu;
    break;
  case GRT_KERNEL_GEMM_GELU_GRAD:
    s.epilogue = Epilogue::GeluGrad;
    break;
  case GRT_KERNEL_GEMM_BIAS_GRAD:
    s.epilogue = Epilogue::BiasGrad;
    s.transA = true;
    s.transB = false;
    s.add = add;
    s.result = op.buffers[2].dtype;
    break;
  default:
    s.epilogue = i[6] != 0 ? Epilogue::Bias : Epilogue::None;
    s.add = add;
    s.result = op.buffers[2].dtype;
  }
  return s;
}

/// The product of the same matrices without what needs an own pass over its
/// result, or over an operand.
ProductShape withoutPass(ProductShape s) {
  switch (s.epilogue) {
  case Epilogue::Gelu:
  case Epilogue::GeluKept:
    s.epilogue = Epilogue::Bias;
    break;
  case Epilogue::GeluGrad:
  case Epilogue::BiasGrad:
    s.epilogue = Epilogue::None;
    break;
  case Epilogue::None:
  case Epilogue::Bias:
    break;
  }
  return s;
}

/// The `acc` of a product; those without one overwrite.
int64_t productMode(const grt_kernel_op &op) {
  return op.kernel == GRT_KERNEL_GEMM             ? op.ints[5]
         : op.kernel == GRT_KERNEL_GEMM_BIAS_GRAD ? op.ints[3]
                                                  : 0;
}

bool isProduct(uint32_t kernel) {
  return kernel == GRT_KERNEL_GEMM || kernel == GRT_KERNEL_GEMM_GELU ||
         kernel == GRT_KERNEL_GEMM_GELU_GRAD ||
         kernel == GRT_KERNEL_GEMM_BIAS_GRAD;
}

/// What the library's epilogue is not for: its GELU has the tanh form.
bool hasOtherForm(const grt_kernel_op &op) {
  return (op.kernel == GRT_KERNEL_GEMM_GELU ||
          op.kernel == GRT_KERNEL_GEMM_GELU_GRAD) &&
         op.ints[5] == 0;
}

ProductShape productShape(const Call &call) {
  uintptr_t bits = 0;
  for (int i = 0; i < call.bufferCount(); ++i)
    bits |= reinterpret_cast<uintptr_t>(call.buffer<void>(i));
  return productShape(call.op(), call.add(productMode(call.op())), bits);
}

bool runInLibrary(const Call &call, const Queue &queue,
                  const ProductShape &shape, const ProductBuffers &buffers) {
  Products *library = call.rank().products.get();
  return library && shape.k > 0 && library->run(queue, shape, buffers);
}

/// A product without epilogue or with a bias, by the library or by our kernel.
template <class T>
void multiply(const Call &call, const Queue &queue, const ProductShape &shape,
              void *c, const T *bias) {
  const T *a = call.buffer<T>(0), *b = call.buffer<T>(1);
  if (runInLibrary(call, queue, shape,
                   {a, b, c, const_cast<T *>(bias), nullptr}))
    return;
  ProductArguments<T> p = {shape.m,      shape.n,   shape.k, shape.transA,
                           shape.transB, shape.add, a,       b,
                           bias};
  using A = Accumulator<T>;
  if constexpr (sizeof(T) != sizeof(A))
    if (shape.result == GRT_BF16)
      return product(queue, p, static_cast<T *>(c));
  product(queue, p, static_cast<A *>(c));
}

template <class T> void runGemm(const Call &call) {
  bool bias = call.integer(6) != 0;
  if (bias)
    call.checkBuffers(4, "a bias");
  ProductShape shape = productShape(call);
  if (shape.m <= 0 || shape.n <= 0)
    return;
  multiply(call, call.queue(), shape, call.buffer<void>(2),
           bias ? call.buffer<T>(3) : nullptr);
}

template <class T> void runGemmGelu(const Call &call) {
  bool kept = call.integer(6) != 0;
  if (kept)
    call.checkBuffers(5, "a result before the activation");
  ProductShape shape = productShape(call);
  if (shape.m <= 0 || shape.n <= 0)
    return;
  Queue queue = call.queue();
  T *bias = call.buffer<T>(2), *y = call.buffer<T>(3);
  T *pre = kept ? call.buffer<T>(4) : nullptr;
  if (!hasOtherForm(call.op()) &&
      runInLibrary(call, queue, shape,
                   {call.buffer<T>(0), call.buffer<T>(1), y, bias, pre}))
    return;
  T *biased = kept ? pre : y;
  multiply(call, queue, withoutPass(shape), biased, bias);
  biasGelu<T>(queue, 1, shape.m * shape.n, biased, nullptr, nullptr, y,
              call.integer(5) != 0);
}

template <class T> void runGemmGeluGrad(const Call &call) {
  ProductShape shape = productShape(call);
  if (shape.m <= 0 || shape.n <= 0)
    return;
  Queue queue = call.queue();
  T *x = call.buffer<T>(2), *c = call.buffer<T>(3);
  if (!hasOtherForm(call.op()) &&
      runInLibrary(call, queue, shape,
                   {call.buffer<T>(0), call.buffer<T>(1), c, nullptr, x}))
    return;
  multiply<T>(call, queue, withoutPass(shape), c, nullptr);
  geluGrad<T>(queue, shape.m * shape.n, x, c, c, call.integer(5) != 0);
}

template <class T> void runGemmBiasGrad(const Call &call) {
  ProductShape shape = productShape(call);
  if (shape.n <= 0)
    return;
  Queue queue = call.queue();
  auto *dbias = call.buffer<Accumulator<T>>(3);
  void *c = call.buffer<void>(2);
  if (shape.m > 0) {
    if (runInLibrary(call, queue, shape,
                     {call.buffer<T>(0), call.buffer<T>(1), c, dbias, nullptr}))
      return;
    multiply<T>(call, queue, withoutPass(shape), c, nullptr);
  }
  biasGrad<T>(queue, shape.k, shape.n, call.buffer<T>(1), dbias, shape.add);
}

template <class T> void runBiasAdd(const Call &call) {
  biasAdd(call.queue(), call.integer(0), call.integer(1), call.buffer<T>(0),
          call.buffer<T>(1), call.buffer<T>(2));
}

template <class T> void runBiasGrad(const Call &call) {
  biasGrad<T>(call.queue(), call.integer(0), call.integer(1), call.buffer<T>(0),
              call.buffer<Accumulator<T>>(1), call.add(call.integer(2)));
}

template <class T> void runLayerNorm(const Call &call) {
  layerNorm<T>(call.queue(), call.integer(0), call.integer(1),
               call.buffer<T>(0), call.buffer<T>(1), call.buffer<T>(2),
               call.buffer<T>(3), call.buffer<Accumulator<T>>(4), call.real(0));
}

template <class T> void runLayerNormGrad(const Call &call) {
  using A = Accumulator<T>;
  layerNormGrad<T>(call.queue(), call.integer(0), call.integer(1),
                   call.buffer<T>(0), call.buffer<T>(1), call.buffer<A>(2),
                   call.buffer<T>(3), nullptr, call.buffer<T>(4),
                   call.buffer<A>(5), call.buffer<A>(6),
                   call.add(call.integer(2)));
}

template <class T> void runLayerNormAddGrad(const Call &call) {
  using A = Accumulator<T>;
  layerNormGrad<T>(call.queue(), call.integer(0), call.integer(1),
                   call.buffer<T>(0), call.buffer<T>(1), call.buffer<A>(2),
                   call.buffer<T>(3), call.buffer<T>(4), call.buffer<T>(5),
                   call.buffer<A>(6), call.buffer<A>(7),
                   call.add(call.integer(2)));
}

template <class T> void runRmsNorm(const Call &call) {
  rmsNorm<T>(call.queue(), call.integer(0), call.integer(1), call.buffer<T>(0),
             call.buffer<T>(1), call.buffer<T>(2),
             call.buffer<Accumulator<T>>(3), call.real(0));
}

template <class T> void runRmsNormGrad(const Call &call) {
  using A = Accumulator<T>;
  rmsNormGrad<T>(call.queue(), call.integer(0), call.integer(1),
                 call.buffer<T>(0), call.buffer<T>(1), call.buffer<A>(2),
                 call.buffer<T>(3), call.buffer<T>(4), call.buffer<A>(5),
                 call.add(call.integer(2)));
}

template <class T> void runRotary(const Call &call) {
  call.checkRotary();
  RotaryArguments a = {};
  a.samples = call.integer(0);
  a.positions = call.integer(1);
  a.heads = call.integer(2);
  a.headDim = call.integer(3);
  a.inverse = call.integer(4) != 0;
  a.pairs = call.integer(5);
  a.factor = call.real(0);
  a.frequencies = call.op().reals + 1;
  rotary<T>(call.queue(), a, call.buffer<T>(0), call.buffer<T>(1));
}

template <class T> void runGatedSilu(const Call &call) {
  gatedSilu<T>(call.queue(), call.integer(0), call.buffer<T>(0),
               call.buffer<T>(1), call.buffer<T>(2));
}

template <class T> void runGatedSiluGrad(const Call &call) {
  gatedSiluGrad<T>(call.queue(), call.integer(0), call.buffer<T>(0),
                   call.buffer<T>(1), call.buffer<T>(2), call.buffer<T>(3),
                   call.buffer<T>(4));
}

template <class T> void runRelu(const Call &call) {
  relu<T>(call.queue(), call.integer(0), call.buffer<T>(0), call.buffer<T>(1));
}

template <class T> void runReluGrad(const Call &call) {
  reluGrad<T>(call.queue(), call.integer(0), call.buffer<T>(0),
              call.buffer<T>(1), call.buffer<T>(2));
}

template <class T> void runGatedGelu(const Call &call) {
  gatedGelu<T>(call.queue(), call.integer(0), call.buffer<T>(0),
               call.buffer<T>(1), call.buffer<T>(2));
}

template <class T> void runGatedGeluGrad(const Call &call) {
  gatedGeluGrad<T>(call.queue(), call.integer(0), call.buffer<T>(0),
                   call.buffer<T>(1), call.buffer<T>(2), call.buffer<T>(3),
                   call.buffer<T>(4));
}

/// RELATIVE_BIAS and its gradient.
template <class T> void runRelativeBias(const Call &call) {
  call.checkRelativeBias();
  RelativeBiasArguments a = {
      call.integer(0), call.integer(1), call.integer(2), call.integer(3),
      RelativeBuckets(call.integer(3), call.integer(4), call.integer(5) != 0)};
  if (call.op().kernel == GRT_KERNEL_RELATIVE_BIAS)
    relativeBias<T>(call.queue(), a, call.buffer<T>(0), call.buffer<T>(1));
  else
    relativeBiasGrad<T>(call.queue(), a, call.buffer<T>(0),
                        call.buffer<Accumulator<T>>(1),
                        call.add(call.integer(6)));
}

template <class T> void runGelu(const Call &call) {
  biasGelu<T>(call.queue(), 1, call.integer(0), call.buffer<T>(0), nullptr,
              nullptr, call.buffer<T>(1), call.integer(1) != 0);
}

template <class T> void runGeluGrad(const Call &call) {
  geluGrad<T>(call.queue(), call.integer(0), call.buffer<T>(0),
              call.buffer<T>(1), call.buffer<T>(2), call.integer(1) != 0);
}

template <class T> void runBiasGelu(const Call &call) {
  biasGelu<T>(call.queue(), call.integer(0), call.integer(1), call.buffer<T>(0),
              call.buffer<T>(1), call.buffer<T>(2), call.buffer<T>(3),
              call.integer(2) != 0);
}

DropoutKey dropoutKeyOf(const Call &call, double p, int64_t opIndex) {
  CallReader::checkDropout(p);
  return {call.step(), call.at().layer, uint32_t(opIndex), p};
}

AttentionShape attentionShape(const grt_kernel_op &op) {
  const int64_t *i = op.ints;
  return {i[0], i[1], i[2], i[3],      i[4],  i[5],
          i[6], i[7], i[8], i[9] != 0, i[11], float(op.reals[0])};
}

/// The buffers that all kernels of attention have up to their scratch.
template <class T> AttentionArguments<T> attentionArguments(const Call &call) {
  using A = Accumulator<T>;
  AttentionArguments<T> a = {};
  a.q = call.buffer<T>(0);
  a.k = call.buffer<T>(1);
  a.v = call.buffer<T>(2);
  a.o = call.buffer<T>(3);
  a.lse = call.buffer<A>(4);
  if (isAttentionGrad(call.op().kernel)) {
    a.dout = call.buffer<T>(5);
    a.dq = call.buffer<T>(6);
    a.dk = call.buffer<T>(7);
    a.dv = call.buffer<T>(8);
    a.delta = call.buffer<A>(attentionScratch(/*backward=*/true));
  }
  return a;
}

/// ATTENTION (5 + 1 buffers), BIASED_ATTENTION and their gradients (9 + 1).
template <class T> void runAttention(const Call &call) {
  using A = Accumulator<T>;
  AttentionShape s = attentionShape(call.op());
  call.checkHeads(s.heads, s.kvHeads);
  const bool backward = isAttentionGrad(call.op().kernel);
  const bool biased = isBiasedAttention(call.op().kernel);
  int scratch = attentionScratch(backward);
  uint64_t bytes = grt_cuda_attention_scratch_bytes(
      s.samples, s.queryRows, s.keyRows, s.heads, s.kvHeads, s.headDim,
      sizeof(T), backward);
  const uint64_t sums = bytes;
  if (biased)
    bytes += grt_cuda_bias_scratch_bytes(s.samples, s.queryRows, s.keyRows,
                                         s.heads, sizeof(T), backward);
  call.checkScratch(scratch, bytes);
  AttentionArguments<T> a = attentionArguments<T>(call);
  a.samples = s.samples;
  a.queryRows = s.queryRows;
  a.keyRows = s.keyRows;
  a.heads = s.heads;
  a.kvHeads = s.kvHeads;
  a.headDim = s.headDim;
  a.qStride = s.qStride;
  a.kStride = s.kStride;
  a.vStride = s.vStride;
  a.causal = s.causal;
  a.window = s.window;
  a.mask = call.attentionMask();
  a.scale = call.real(0);
  a.dropout = dropoutKeyOf(call, call.real(1), call.integer(10));
  a.firstSample = call.at().first_sample;
  a.firstHead = call.at().tp_index * a.heads;
  a.globalHeads = call.at().tp_size * a.heads;
  if (biased) {
    call.checkBiasHeads(a.globalHeads);
    a.bias = call.buffer<T>(scratch + 1);
    if (backward) {
      a.dbias = call.buffer<T>(scratch + 2);
      a.biasSums = reinterpret_cast<A *>(call.buffer<char>(scratch) + sums);
    }
  }
  Queue queue = call.queue();
  if constexpr (sizeof(T) == 2) {
    FusedAttention *library = call.rank().fusedAttention.get();
    if (library && !backward && a.dropout.p == 0 && !a.mask && !biased &&
        library->run(queue, s, a))
      return;
    if (!call.rank().plainAttention && !biased && tensorAttentionTakes(a))
      return backward ? tensorAttentionGrad(queue, a)
                      : tensorAttention(queue, a);
  }
  if (backward)
    attentionGrad(queue, a);
  else
    attention(queue, a);
}

/// WINDOW_ATTENTION (5 + 1 buffers and the table) and its gradient (9 + 1, the
/// table and its gradient).
template <class T> void runWindowAttention(const Call &call) {
  using A = Accumulator<T>;
  const bool backward = isAttentionGrad(call.op().kernel);
  const WindowShape s(call.op());
  call.checkWindow(s.window, s.shift);
  const int scratch = attentionScratch(backward);
  call.checkScratch(
      scratch, grt_cuda_window_scratch_bytes(s.windows(), s.window, s.heads,
                                             sizeof(T), backward));
  AttentionArguments<T> a = attentionArguments<T>(call);
  a.samples = s.windows();
  a.queryRows = a.keyRows = s.positions();
  a.heads = a.kvHeads = s.heads;
  a.headDim = s.headDim;
  a.qStride = a.kStride = a.vStride = s.heads * s.headDim;
  a.scale = call.real(0);
  a.dropout = dropoutKeyOf(call, call.real(1), s.opIndex);
  a.firstSample = call.at().first_sample * s.perSample();
  a.firstHead = call.at().tp_index * a.heads;
  a.globalHeads = call.at().tp_size * a.heads;
  a.windows.table = call.buffer<T>(scratch + 1);
  a.windows.down = s.down;
  a.windows.across = s.across;
  a.windows.window = s.window;
  a.windows.shift = s.shift;
  if (backward) {
    a.windows.dtable = call.buffer<A>(scratch + 2);
    a.windows.add = call.add(call.integer(8));
    a.windows.sums = a.delta + a.samples * a.heads * a.queryRows;
    a.windows.parts = std::min<int64_t>(a.samples, GRT_CUDA_WINDOW_PARTS);
    attentionGrad(call.queue(), a);
  } else {
    attention(call.queue(), a);
  }
}

template <class T>
void runDropoutCall(const Call &call, const T *residual, T *y) {
  int64_t samples = call.integer(0), rowsPerSample = call.integer(1);
  DropoutArguments d = {};
  d.rows = samples * rowsPerSample;
  d.cols = call.integer(2);
  d.firstRow = uint64_t(call.at().first_sample) * uint64_t(rowsPerSample);
  d.firstColumn =
      call.integer(4) != 0 ? uint64_t(call.at().tp_index * d.cols) : 0;
  d.key = dropoutKeyOf(call, call.real(0), call.integer(3));
  dropout<T>(call.queue(), d, call.buffer<T>(0), residual, y);
}

template <class T> void runDropout(const Call &call) {
  runDropoutCall<T>(call, nullptr, call.buffer<T>(1));
}
template <class T> void runDropoutAdd(const Call &call) {
  runDropoutCall<T>(call, call.buffer<T>(1), call.buffer<T>(2));
}

template <class T> void runAddLayerNorm(const Call &call) {
  int64_t rowsPerSample = call.integer(1);
  DropoutArguments d = {};
  d.rows = call.integer(0) * rowsPerSample;
  d.cols = call.integer(2);
  d.firstRow = uint64_t(call.at().first_sample) * uint64_t(rowsPerSample);
  d.key = dropoutKeyOf(call, call.real(1), call.integer(3));
  addLayerNorm<T>(call.queue(), d, call.buffer<T>(0), call.buffer<T>(1),
                  call.buffer<T>(2), call.buffer<T>(3), call.buffer<T>(4),
                  call.buffer<T>(5), call.buffer<Accumulator<T>>(6),
                  call.real(0));
}

template <class T> void runAdd(const Call &call) {
  add<T>(call.queue(), call.integer(0), call.buffer<T>(0), call.buffer<T>(1),
         call.buffer<T>(2));
}

template <class T> void runScale(const Call &call) {
  scale<T>(call.queue(), call.integer(0), call.buffer<T>(0), call.buffer<T>(1),
           call.real(0));
}

TableSlice tableSlice(const Call &call) {
  int64_t localRows = call.integer(2);
  if (call.integer(3) == 0)
    return {0, localRows, localRows};
  return {call.at().tp_index * localRows, localRows,
          call.at().tp_size * localRows};
}

template <class T> void runEmbedding(const Call &call) {
  embedding<T>(call.queue(), call.integer(0), call.integer(1), tableSlice(call),
               call.buffer<int32_t>(0), call.buffer<T>(1), call.buffer<T>(2));
}

template <class T> void runEmbeddingGrad(const Call &call) {
  embeddingGrad<T>(call.queue(), call.integer(0), call.integer(1),
                   tableSlice(call), call.embeddingPadding(),
                   call.buffer<int32_t>(0), call.buffer<T>(1),
                   call.buffer<Accumulator<T>>(2), call.add(call.integer(4)));
}

template <class T> void runPositionAdd(const Call &call) {
  positionAdd<T>(call.queue(), call.integer(0), call.integer(1),
                 call.integer(2), call.buffer<T>(0), call.buffer<T>(1),
                 call.buffer<T>(2));
}

template <class T> void runPositionGrad(const Call &call) {
  positionGrad<T>(call.queue(), call.integer(0), call.integer(1),
                  call.integer(2), call.integer(3), call.buffer<T>(0),
                  call.buffer<Accumulator<T>>(1), call.add(call.integer(4)));
}

template <class T> void runPatches(const Call &call) {
  call.checkPatches();
  PatchArguments a = {call.integer(0),   call.integer(1), call.integer(2),
                      call.integer(3),   call.integer(4), call.integer(5),
                      call.padsPatches()};
  patches(call.queue(), a, call.buffer<const T>(0), call.buffer<T>(1));
}

template <class T> void runWindows(const Call &call) {
  call.checkWindow(call.integer(4), call.integer(5));
  WindowsArguments a = {call.integer(0),      call.integer(1),
                        call.integer(2),      call.integer(3),
                        call.integer(4),      call.integer(5),
                        call.integer(6) != 0, call.integer(7) != 0};
  windows<T>(call.queue(), a, call.buffer<T>(0), call.buffer<T>(1));
}

template <class T> void runDropPath(const Call &call) {
  DropPathArguments a = {
      call.integer(0), call.integer(1), uint64_t(call.at().first_sample),
      dropoutKeyOf(call, call.dropPathProbability(), call.integer(2))};
  dropPath<T>(call.queue(), a, call.buffer<T>(0), call.buffer<T>(1));
}

/// MEAN and MEAN_GRAD.
template <class T> void runMean(const Call &call) {
  MeanArguments a = {call.integer(0), call.integer(1), call.integer(2)};
  if (call.op().kernel == GRT_KERNEL_MEAN)
    mean<T>(call.queue(), a, call.buffer<T>(0), call.buffer<T>(1));
  else
    meanGrad<T>(call.queue(), a, call.buffer<T>(0), call.buffer<T>(1));
}

template <class T> void runTranspose(const Call &call) {
  transpose<T>(call.queue(), call.integer(0), call.integer(1), call.integer(2),
               call.buffer<T>(0), call.buffer<T>(1));
}

/// What SOFTMAX_STATS and CROSS_ENTROPY share.
template <class T> LossArguments<T> lossArguments(const Call &call) {
  LossArguments<T> a = {};
  a.logits = call.buffer<T>(0);
  a.labels = call.buffer<int32_t>(1);
  a.stats = call.buffer<Accumulator<T>>(2);
  a.rows = call.integer(0);
  a.cols = call.integer(1);
  a.globalCols = call.integer(2);
  a.firstColumn = call.integer(3) != 0 ? call.at().tp_index * a.cols : 0;
  a.validCols = std::clamp<int64_t>(a.globalCols - a.firstColumn, 0, a.cols);
  a.step = call.step();
  return a;
}

template <class T> void runSoftmaxStats(const Call &call) {
  softmaxStats(call.queue(), lossArguments<T>(call));
}

template <class T> void runCrossEntropy(const Call &call) {
  LossArguments<T> a = lossArguments<T>(call);
  a.dlogits = call.buffer<T>(3);
  a.loss = call.buffer<double>(4);
  a.shards = call.integer(4);
  crossEntropy(call.queue(), a);
}

template <class T> void runSoftmaxCrossEntropy(const Call &call) {
  LossArguments<T> a = {};
  a.logits = call.buffer<T>(0);
  a.labels = call.buffer<int32_t>(1);
  a.stats = call.buffer<Accumulator<T>>(2);
  a.dlogits = call.buffer<T>(3);
  a.loss = call.buffer<double>(4);
  a.rows = call.integer(0);
  a.cols = a.globalCols = a.validCols = call.integer(1);
  a.shards = 1;
  a.step = call.step();
  softmaxCrossEntropy(call.queue(), a);
}

void runCopy(const Call &call) {
  copyRows(call.queue(), call.integer(0), call.integer(1), call.integer(2),
           call.integer(3), call.buffer<void>(0), call.buffer<void>(1));
}

template <class T> void runOwnPart(const Call &call) {
  int64_t rows = call.integer(0), parts = call.integer(1);
  int64_t bytes = call.integer(2) * int64_t(sizeof(T)), all = parts * bytes;
  int64_t offset = call.ownPart() * bytes;
  const char *x = call.buffer<char>(0);
  char *y = call.buffer<char>(1);
  if (call.integer(4) == 0) {
    copyRows(call.queue(), rows, bytes, all, bytes, x + offset, y);
    return;
  }
  gpu::fill(call.rank().stream(GRT_STREAM_COMPUTE), y, 0, uint64_t(rows * all));
  copyRows(call.queue(), rows, bytes, bytes, all, x, y + offset);
}

void runZero(const Call &call) {
  gpu::fill(call.rank().stream(GRT_STREAM_COMPUTE), call.buffer<void>(0), 0,
            call.descriptor(0).bytes);
}

template <class T> void runOptimizer(const Call &call) {
  using A = Accumulator<T>;
  int64_t kind = call.integer(0), shardElements = call.integer(1);
  call.checkOptimizer(kind);
  std::vector<Segment> segments;
  call.forEachSegment(3, shardElements,
                      [&](int64_t begin, int64_t length, int64_t decay) {
                        segments.push_back({begin, length, decay != 0});
                      });
  A *first = call.buffer<A>(2), *second = first + shardElements;
  // Behind the moments, where parameters are narrower than what they round.
  bool sgd = grt_optimizer(kind) == GRT_OPTIMIZER_SGD;
  A *master = sgd ? second : second + shardElements;
  optimize<T>(call.queue(), grt_optimizer(kind), call.step(), segments.data(),
              int(segments.size()), call.buffer<T>(0), master,
              call.buffer<A>(1), first, second);
}

template <class T> void runNorm(const Call &call) {
  if (call.at().dp_index != 0)
    return;
  std::vector<Segment> segments;
  call.forEachSegment(2, call.integer(0),
                      [&](int64_t begin, int64_t length, int64_t replicated) {
                        if (!replicated || call.at().tp_index == 0)
                          segments.push_back({begin, length, false});
                      });
  sumOfSquares<Accumulator<T>>(call.queue(), call.step(), segments.data(),
                               int(segments.size()),
                               call.buffer<Accumulator<T>>(0));
}

/// A kernel's code for every type.
struct KernelEntry {
  void (*f32)(const Call &call);
  void (*f64)(const Call &call);
  void (*bf16)(const Call &call);
};

#define GRT_ALL(FUNCTION) {FUNCTION<float>, FUNCTION<double>, FUNCTION<BF16>}

/// Indexed by grt_kernel.
const KernelEntry kernelEntries[GRT_KERNEL_COUNT] = {
    GRT_ALL(runGemm),
    GRT_ALL(runBiasAdd),
    GRT_ALL(runBiasGrad),
    GRT_ALL(runLayerNorm),
    GRT_ALL(runLayerNormGrad),
    GRT_ALL(runGelu),
    GRT_ALL(runGeluGrad),
    GRT_ALL(runBiasGelu),
    GRT_ALL(runAttention),
    GRT_ALL(runAttention),
    GRT_ALL(runDropout),
    GRT_ALL(runDropoutAdd),
    GRT_ALL(runAdd),
    GRT_ALL(runEmbedding),
    GRT_ALL(runEmbeddingGrad),
    GRT_ALL(runPositionAdd),
    GRT_ALL(runPositionGrad),
    GRT_ALL(runSoftmaxStats),
    GRT_ALL(runCrossEntropy),
    {runCopy, runCopy, runCopy},
    {runZero, runZero, runZero},
    GRT_ALL(runOptimizer),
    GRT_ALL(runNorm),
    GRT_ALL(runScale),
    GRT_ALL(runAddLayerNorm),
    GRT_ALL(runLayerNormAddGrad),
    GRT_ALL(runGemmGelu),
    GRT_ALL(runGemmGeluGrad),
    GRT_ALL(runGemmBiasGrad),
    GRT_ALL(runRmsNorm),
    GRT_ALL(runRmsNormGrad),
    GRT_ALL(runRotary),
    GRT_ALL(runGatedSilu),
    GRT_ALL(runGatedSiluGrad),
    GRT_ALL(runPatches),
    GRT_ALL(runRelu),
    GRT_ALL(runReluGrad),
    GRT_ALL(runGatedGelu),
    GRT_ALL(runGatedGeluGrad),
    GRT_ALL(runRelativeBias),
    GRT_ALL(runRelativeBias),
    GRT_ALL(runAttention),
    GRT_ALL(runAttention),
    GRT_ALL(runWindows),
    GRT_ALL(runWindowAttention),
    GRT_ALL(runWindowAttention),
    GRT_ALL(runDropPath),
    GRT_ALL(runMean),
    GRT_ALL(runMean),
    GRT_ALL(runTranspose),
    GRT_ALL(runOwnPart),
    GRT_ALL(runSoftmaxCrossEntropy),
};

#undef GRT_ALL

} // namespace

void launchCall(const grt_call &call) {
  checkCounts(*call.op);
  const KernelEntry &entry = kernelEntries[call.op->kernel];
  uint32_t dtype = computeType(*call.op, "cuda");
  (dtype == GRT_F32   ? entry.f32
   : dtype == GRT_F64 ? entry.f64
                      : entry.bf16)(Call(call));
}

namespace {

/// Times a call of an op on memory of its own. What it reads are random bits of
/// small numbers: devices run faster on constant ones.
class Trial {
public:
  /// Has no memory where the device has none.
  Trial(Rank &rank, const grt_kernel_op &op) : rank(rank), op(op) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < op.buffer_count; ++i)
      bytes += roundUp(op.buffers[i].bytes);
    memory = static_cast<char *>(gpu::allocate(bytes));
    random = static_cast<uint16_t *>(gpu::allocateHost(randomBytes));
    if (!memory || !random)
      return;
    std::minstd_rand generator(1);
    // Halves of f32, or bf16: between 2^-4 and 1, of both signs.
    for (uint64_t i = 0; i < randomBytes / 2; ++i)
      random[i] = uint16_t(0x3d80u + generator() % 0x200u +
                           (generator() % 2 ? 0x8000u : 0));
    const Stream stream = rank.stream(GRT_STREAM_COMPUTE);
    for (uint64_t at = 0; at < bytes; at += randomBytes)
      gpu::copy(stream, memory + at, random, std::min(randomBytes, bytes - at));
    char *place = memory;
    for (uint32_t i = 0; i < op.buffer_count; ++i) {
      addresses.push_back(place);
      place += roundUp(op.buffers[i].bytes);
    }
  }
  ~Trial() {
    try {
      rank.synchronise(GRT_STREAM_COMPUTE);
    } catch (const DeviceError &) {
      // The next call says it.
    }
    for (Event event : {first, last})
      if (event)
        gpu::destroyEvent(event);
    if (memory)
      gpu::release(memory);
    if (random)
      gpu::releaseHost(random);
  }
  Trial(const Trial &) = delete;
  Trial &operator=(const Trial &) = delete;

  /// Milliseconds; below zero without memory. `add`: as on later micro-batches.
  double run(bool add) {
    if (addresses.empty())
      return -1;
    const grt_coordinates alone = {0, 1, 0, 1, 0, 1, 0, 0, 1};
    const grt_call call = {&op, addresses.data(), &alone, nullptr, add, &rank};
    if (!first)
      first = gpu::makeEvent(/*timed=*/true);
    if (!last)
      last = gpu::makeEvent(/*timed=*/true);
    const Stream stream = rank.stream(GRT_STREAM_COMPUTE);
    launchCall(call);
    gpu::record(stream, first);
    for (int i = 0; i < runs; ++i)
      launchCall(call);
    gpu::record(stream, last);
    gpu::synchronise(stream);
    return gpu::millisecondsBetween(first, last) / runs;
  }

private:
  static constexpr uint64_t randomBytes = 1 << 20;
  /// One alone shows the latency of its launch.
  static constexpr int runs = 5;
  static uint64_t roundUp(uint64_t bytes) {
    return (bytes + GRT_ALIGNMENT - 1) / GRT_ALIGNMENT * GRT_ALIGNMENT;
  }

  Rank &rank;
  const grt_kernel_op &op;
  char *memory = nullptr;
  uint16_t *random = nullptr;
  std::vector<void *> addresses;
  Event first = nullptr, last = nullptr;
};

/// Sets the algorithms of a product's call as choices.h says.
void tryProduct(Rank &rank, const grt_kernel_op &op, const ProductShape &shape,
                bool add) {
  Choices *choices = choicesOfProcess(*rank.products);
  if (!choices)
    return;
  std::unique_ptr<Trial> trial;
  bool told = false;
  chooseAlgorithms(
      *rank.products, *choices, hasOtherForm(op) ? withoutPass(shape) : shape,
      withoutPass(shape), [&] {
        if (!trial)
          trial = std::make_unique<Trial>(rank, op);
        double time = trial->run(add);
        if (time < 0 && !std::exchange(told, true))
          std::fprintf(stderr, "'%s': no memory to try algorithms in\n",
                       nameOf(op));
        return time;
      });
}

} // namespace

void prepareCall(Rank &rank, const grt_kernel_op &op) {
  checkCounts(op);
  rank.queue(nameOf(op)); // its workspace
  if (isProduct(op.kernel) && rank.products) {
    uintptr_t offsets = 0;
    for (uint32_t i = 0; i < op.buffer_count; ++i)
      offsets |= op.buffers[i].offset;
    // acc 2 overwrites first and adds later.
    int64_t mode = productMode(op);
    for (bool add : {false, true}) {
      ProductShape shape = productShape(op, add, offsets);
      if (mode != 2 && add != (mode == 1))
        continue;
      if (shape.m <= 0 || shape.n <= 0 || shape.k <= 0)
        continue;
      if (hasOtherForm(op) || !rank.products->prepare(shape))
        rank.products->prepare(withoutPass(shape));
      tryProduct(rank, op, shape, add);
    }
  }
  if (op.kernel == GRT_KERNEL_ATTENTION && rank.fusedAttention &&
      op.buffers[0].dtype == GRT_BF16 && op.reals[1] == 0 &&
      !hasAttentionMask(op))
    rank.fusedAttention->prepare(attentionShape(op));
}

} // namespace grt::cuda
