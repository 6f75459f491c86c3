//===- dispatch_products.cpp - Calls of products --------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "call.h"
#include "choices.h"
#include "dispatch.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <random>
#include <utility>
#include <vector>

namespace grt::cuda {
namespace {

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
  ProductShape s = {};
  s.dtype = s.result = op.buffers[kernels::Gemm::a].dtype;
  s.alignment = alignmentOf(addresses);
  auto matrices = [&](const auto &n) {
    s.m = n.M;
    s.n = n.N;
    s.k = n.K;
    if constexpr (requires { n.transA; }) {
      s.transA = n.transA != 0;
      s.transB = n.transB != 0;
    }
    return n;
  };
  switch (op.kernel) {
  case GRT_KERNEL_GEMM_GELU:
    s.epilogue = matrices(intsOf<kernels::GemmGelu>(op)).hasPre != 0
                     ? Epilogue::GeluKept
                     : Epilogue::Gelu;
    break;
  case GRT_KERNEL_GEMM_GELU_GRAD:
    matrices(intsOf<kernels::GemmGeluGrad>(op));
    s.epilogue = Epilogue::GeluGrad;
    break;
  case GRT_KERNEL_GEMM_BIAS_GRAD:
    matrices(intsOf<kernels::GemmBiasGrad>(op));
    s.epilogue = Epilogue::BiasGrad;
    s.transA = true;
    s.transB = false;
    s.add = add;
    s.result = op.buffers[kernels::GemmBiasGrad::c].dtype;
    break;
  default:
    s.epilogue = matrices(intsOf<kernels::Gemm>(op)).hasBias != 0
                     ? Epilogue::Bias
                     : Epilogue::None;
    s.add = add;
    s.result = op.buffers[kernels::Gemm::c].dtype;
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
  return accOf(op.kernel, op.ints, op.int_count);
}

/// What the library's epilogue is not for: its GELU has the tanh form.
bool hasOtherForm(const grt_kernel_op &op) {
  return (op.kernel == GRT_KERNEL_GEMM_GELU &&
          intsOf<kernels::GemmGelu>(op).approximate == 0) ||
         (op.kernel == GRT_KERNEL_GEMM_GELU_GRAD &&
          intsOf<kernels::GemmGeluGrad>(op).approximate == 0);
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
  const T *a = call.buffer<T>(kernels::Gemm::a);
  const T *b = call.buffer<T>(kernels::Gemm::b);
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

} // namespace

bool isProduct(uint32_t kernel) {
  return kernel == GRT_KERNEL_GEMM || kernel == GRT_KERNEL_GEMM_GELU ||
         kernel == GRT_KERNEL_GEMM_GELU_GRAD ||
         kernel == GRT_KERNEL_GEMM_BIAS_GRAD;
}

template <class T> void runGemm(const Call &call) {
  using K = kernels::Gemm;
  const T *bias = call.buffer<T>(K::bias, call.ints<K>().hasBias);
  ProductShape shape = productShape(call);
  if (shape.m <= 0 || shape.n <= 0)
    return;
  multiply(call, call.queue(), shape, call.buffer<void>(K::c), bias);
}

template <class T> void runGemmGelu(const Call &call) {
  using K = kernels::GemmGelu;
  const auto n = call.ints<K>();
  T *pre = call.buffer<T>(K::pre, n.hasPre);
  ProductShape shape = productShape(call);
  if (shape.m <= 0 || shape.n <= 0)
    return;
  Queue queue = call.queue();
  T *bias = call.buffer<T>(K::bias), *y = call.buffer<T>(K::y);
  if (!hasOtherForm(call.op()) &&
      runInLibrary(call, queue, shape,
                   {call.buffer<T>(K::a), call.buffer<T>(K::b), y, bias, pre}))
    return;
  T *biased = pre ? pre : y;
  multiply<T>(call, queue, withoutPass(shape), biased, bias);
  biasGelu<T>(queue, 1, shape.m * shape.n, biased, nullptr, nullptr, y,
              n.approximate != 0);
}

template <class T> void runGemmGeluGrad(const Call &call) {
  using K = kernels::GemmGeluGrad;
  const auto n = call.ints<K>();
  ProductShape shape = productShape(call);
  if (shape.m <= 0 || shape.n <= 0)
    return;
  Queue queue = call.queue();
  T *x = call.buffer<T>(K::x), *c = call.buffer<T>(K::c);
  if (!hasOtherForm(call.op()) &&
      runInLibrary(call, queue, shape,
                   {call.buffer<T>(K::a), call.buffer<T>(K::b), c, nullptr, x}))
    return;
  multiply<T>(call, queue, withoutPass(shape), c, nullptr);
  geluGrad<T>(queue, shape.m * shape.n, x, c, c, n.approximate != 0);
}

template <class T> void runGemmBiasGrad(const Call &call) {
  using K = kernels::GemmBiasGrad;
  ProductShape shape = productShape(call);
  if (shape.n <= 0)
    return;
  Queue queue = call.queue();
  auto *dbias = call.buffer<Accumulator<T>>(K::dbias);
  void *c = call.buffer<void>(K::c);
  if (shape.m > 0) {
    if (runInLibrary(
            call, queue, shape,
            {call.buffer<T>(K::a), call.buffer<T>(K::b), c, dbias, nullptr}))
      return;
    multiply<T>(call, queue, withoutPass(shape), c, nullptr);
  }
  biasGrad<T>(queue, shape.k, shape.n, call.buffer<T>(K::b), dbias, shape.add);
}

GRT_CUDA_KERNEL(Gemm)
GRT_CUDA_KERNEL(GemmGelu)
GRT_CUDA_KERNEL(GemmGeluGrad)
GRT_CUDA_KERNEL(GemmBiasGrad)

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
    const grt_coordinates alone = {0, 1, 0, 1, 0, 1, 0, 0, 1, 0, 1};
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

void prepareProduct(Rank &rank, const grt_kernel_op &op) {
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

} // namespace grt::cuda
