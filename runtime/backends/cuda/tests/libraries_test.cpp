//===- libraries_test.cpp - How libraries are called, and their refusals --===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The backend's own calls of cuBLASLt and cuDNN, through the loading that it
// does anyway, against the libraries of fakes/: no device is there.
//
//===----------------------------------------------------------------------===//

#include "fakes/fakes.h"
#include "fused_attention.h"
#include "grt/cuda_bounds.h"
#include "products.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <cublasLt.h>
#include <cudnn_graph.h>
#include <dlfcn.h>
#include <random>

namespace grt::cuda {

/// The one kernel that products need, on the host.
template <class T>
void add(const Queue &, int64_t n, const T *a, const T *b, T *y) {
  for (int64_t i = 0; i < n; ++i)
    y[i] = a[i] + b[i];
}
template void add<float>(const Queue &, int64_t, const float *, const float *,
                         float *);

} // namespace grt::cuda

using namespace grt::cuda;

namespace {

/// A library of fakes/; the backend loads the same file by the same name.
class Fake {
public:
  Fake(const char *file, const std::string &name)
      : handle(dlopen(file, RTLD_NOW)), name(name) {
    if (!handle)
      throw std::runtime_error(dlerror());
  }
  void answer(const char *kind, int status) const {
    find<GrtFakeAnswer>("answer")(kind, status);
  }
  int64_t live() const { return find<GrtFakeLive>("live")(); }
  int64_t runs() const { return find<GrtFakeRuns>("runs")(); }
  int64_t last() const { return find<GrtFakeLast>("last")(); }
  std::string complaints() const {
    return find<GrtFakeComplaints>("complaints")();
  }

private:
  template <class Function> Function *find(const char *what) const {
    void *found = dlsym(handle, ("grt_fake_" + name + "_" + what).c_str());
    if (!found)
      throw std::runtime_error("not a library of tests: " + name);
    return reinterpret_cast<Function *>(found);
  }
  void *handle;
  std::string name;
};

const Fake &blas() {
  static const Fake fake("libcublasLt.so.13", "cublaslt");
  return fake;
}
const Fake &dnn() {
  static const Fake fake("libcudnn.so.9", "cudnn");
  return fake;
}

/// Memory of a kind that a device gives out.
struct Aligned {
  explicit Aligned(size_t bytes)
      : memory(static_cast<char *>(
            std::aligned_alloc(256, (bytes + 255) / 256 * 256))) {}
  ~Aligned() { std::free(memory); }
  Aligned(const Aligned &) = delete;
  Aligned &operator=(const Aligned &) = delete;
  float *floats() const { return reinterpret_cast<float *>(memory); }
  char *memory;
};

class Libraries : public testing::Test {
protected:
  Libraries() : workspace(GRT_CUDA_WORKSPACE) {
    queue = {nullptr, workspace.memory, GRT_CUDA_WORKSPACE, nullptr, "h.0"};
    for (const Fake *fake : {&blas(), &dnn()}) {
      for (const char *kind : {"matmul", "heuristic", "check", "candidates",
                               "finalize", "execute"})
        fake->answer(kind, 0);
      fake->complaints();
    }
  }
  ~Libraries() override {
    for (const Fake *fake : {&blas(), &dnn()}) {
      EXPECT_EQ(fake->complaints(), "");
      EXPECT_EQ(fake->live(), 0);
    }
  }
  Aligned workspace;
  Queue queue = {};
};

constexpr int64_t m = 5, n = 16, k = 7;

ProductShape shapeOf(Epilogue epilogue, bool transA = false,
                     bool transB = false, bool add = false) {
  return {m, n, k, transA, transB, add, epilogue, GRT_F32, GRT_F32, 256};
}

double geluOf(double x, double *slope) {
  const double a = std::sqrt(2 / M_PI), b = 0.044715;
  double t = std::tanh(a * (x + b * x * x * x));
  *slope = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * a * (1 + 3 * b * x * x);
  return 0.5 * x * (1 + t);
}

/// The matrices of a product, row by row, and what it should make of them.
struct Matrices {
  Matrices() : a(4096), b(4096), c(4096), bias(4096), kept(4096) {
    std::mt19937 random(1);
    for (const Aligned *each : {&a, &b, &c, &bias, &kept})
      for (int i = 0; i < 512; ++i)
        each->floats()[i] = float(int(random() % 1000) - 500) / 250;
  }
  ProductBuffers buffers() const {
    return {a.memory, b.memory, c.memory, bias.memory, kept.memory};
  }
  Aligned a, b, c, bias, kept;
};

TEST_F(Libraries, RowMajorProductsOfEveryForm) {
  std::unique_ptr<Products> products = openProducts();
  for (Epilogue epilogue :
       {Epilogue::None, Epilogue::Bias, Epilogue::Gelu, Epilogue::GeluKept,
        Epilogue::GeluGrad, Epilogue::BiasGrad})
    for (int form = 0; form < 8; ++form) {
      ProductShape s = shapeOf(epilogue, form & 1, form & 2, form & 4);
      // Sums over rows of b are taken of b as it stands.
      if (epilogue == Epilogue::BiasGrad && s.transB)
        continue;
      Matrices at;
      std::vector<float> c(at.c.floats(), at.c.floats() + m * n);
      std::vector<float> bias(at.bias.floats(), at.bias.floats() + n);
      std::vector<float> kept(at.kept.floats(), at.kept.floats() + m * n);
      ASSERT_TRUE(products->prepare(s));
      ASSERT_TRUE(products->run(queue, s, at.buffers()));
      const float *a = at.a.floats(), *b = at.b.floats();
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
          double x = s.add ? c[size_t(i * n + j)] : 0, slope = 1;
          for (int64_t p = 0; p < k; ++p)
            x += double(a[s.transA ? p * m + i : i * k + p]) *
                 double(b[s.transB ? j * k + p : p * n + j]);
          if (epilogue == Epilogue::Bias || epilogue == Epilogue::Gelu ||
              epilogue == Epilogue::GeluKept)
            x += double(bias[size_t(j)]);
          if (epilogue == Epilogue::GeluKept)
            EXPECT_NEAR(at.kept.floats()[i * n + j], x, 1e-4);
          if (epilogue == Epilogue::Gelu || epilogue == Epilogue::GeluKept)
            x = geluOf(x, &slope);
          else if (epilogue == Epilogue::GeluGrad)
            geluOf(double(kept[size_t(i * n + j)]), &slope);
          if (epilogue == Epilogue::GeluGrad)
            x *= slope;
          ASSERT_NEAR(at.c.floats()[i * n + j], x, 1e-4)
              << int(epilogue) << " " << form;
        }
      for (int64_t j = 0; epilogue == Epilogue::BiasGrad && j < n; ++j) {
        double sum = s.add ? double(bias[size_t(j)]) : 0;
        for (int64_t p = 0; p < k; ++p)
          sum += double(b[p * n + j]);
        EXPECT_NEAR(at.bias.floats()[j], sum, 1e-4);
      }
      EXPECT_EQ(blas().complaints(), "") << int(epilogue) << " " << form;
    }
}

TEST_F(Libraries, AProductThatIsRefusedWhenItRunsGoesWithout) {
  for (cublasStatus_t status :
       {CUBLAS_STATUS_NOT_SUPPORTED, CUBLAS_STATUS_INVALID_VALUE,
        CUBLAS_STATUS_ARCH_MISMATCH}) {
    std::unique_ptr<Products> products = openProducts();
    Matrices at;
    ProductShape fused = shapeOf(Epilogue::Bias), plain = fused;
    plain.epilogue = Epilogue::None;
    ASSERT_TRUE(products->prepare(fused));
    blas().answer("matmul", status);
    EXPECT_FALSE(products->run(queue, fused, at.buffers()));
    blas().answer("matmul", 0);
    // Not asked again, and others are not concerned.
    int64_t before = blas().runs();
    EXPECT_FALSE(products->run(queue, fused, at.buffers()));
    EXPECT_FALSE(products->prepare(fused));
    EXPECT_EQ(blas().runs(), before);
    EXPECT_TRUE(products->run(queue, plain, at.buffers()));
    EXPECT_EQ(blas().runs(), before + 1);
  }
}

TEST_F(Libraries, AProductThatFailsIsAFailure) {
  std::unique_ptr<Products> products = openProducts();
  Matrices at;
  blas().answer("matmul", CUBLAS_STATUS_EXECUTION_FAILED);
  EXPECT_THROW(products->run(queue, shapeOf(Epilogue::None), at.buffers()),
               DeviceError);
}

TEST_F(Libraries, ProductsWithoutAnAlgorithmAreRefusedAtOnce) {
  std::unique_ptr<Products> products = openProducts();
  blas().answer("heuristic", CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_FALSE(products->prepare(shapeOf(Epilogue::Gelu)));
  Matrices at;
  EXPECT_FALSE(products->run(queue, shapeOf(Epilogue::Gelu), at.buffers()));
}

class CudnnLibrary : public Libraries {
protected:
  CudnnLibrary() : memory(4096) {
    setenv("GRT_CUDA_ATTENTION", "cudnn", 1);
    library = openFusedAttention();
    unsetenv("GRT_CUDA_ATTENTION");
    shape.samples = shape.heads = shape.kvHeads = 2;
    shape.queryRows = shape.keyRows = 128;
    shape.headDim = 64;
    shape.qStride = shape.kStride = shape.vStride = 128;
    shape.causal = true;
    shape.scale = 0.125f;
    auto *narrow = reinterpret_cast<BF16 *>(memory.memory);
    arguments.q = arguments.k = arguments.v = arguments.dout = narrow;
    arguments.o = arguments.dq = arguments.dk = arguments.dv = narrow;
    arguments.lse = arguments.delta = memory.floats();
  }
  Aligned memory;
  AttentionShape shape = {};
  AttentionArguments<BF16> arguments = {};
  std::unique_ptr<FusedAttention> library;
};

TEST_F(CudnnLibrary, APlanIsBuiltAndRuns) {
  library->prepare(shape);
  int64_t before = dnn().runs();
  EXPECT_TRUE(library->run(queue, shape, arguments));
  EXPECT_EQ(dnn().runs(), before + 1);
  EXPECT_EQ(dnn().complaints(), "");
}

TEST_F(CudnnLibrary, RowsThatFillNoTileAreOurs) {
  for (auto [queries, keys] : {std::pair<int64_t, int64_t>{64, 64},
                               {200, 200},
                               {128, 192},
                               {64, 128}}) {
    shape.causal = queries == keys;
    shape.queryRows = queries;
    shape.keyRows = keys;
    library->prepare(shape);
    int64_t before = dnn().runs();
    EXPECT_FALSE(library->run(queue, shape, arguments))
        << queries << " x " << keys;
    EXPECT_EQ(dnn().runs(), before);
  }
}

TEST_F(CudnnLibrary, WhatItCallsBadWhenBuiltIsOurs) {
  for (cudnnStatus_t status :
       {CUDNN_STATUS_BAD_PARAM, CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER,
        CUDNN_STATUS_NOT_SUPPORTED}) {
    dnn().answer("finalize", status);
    shape.samples = 10 + int64_t(status); // another plan
    library->prepare(shape);
    dnn().answer("finalize", 0);
    EXPECT_FALSE(library->run(queue, shape, arguments));
  }
}

TEST_F(CudnnLibrary, WhatItRefusesWhenItRunsIsOursFromThereOn) {
  library->prepare(shape);
  dnn().answer("execute", CUDNN_STATUS_BAD_PARAM);
  EXPECT_FALSE(library->run(queue, shape, arguments));
  dnn().answer("execute", 0);
  int64_t before = dnn().runs();
  EXPECT_FALSE(library->run(queue, shape, arguments));
  EXPECT_EQ(dnn().runs(), before);
  // Another shape is another plan.
  shape.samples = 3;
  EXPECT_TRUE(library->run(queue, shape, arguments));
}

TEST_F(CudnnLibrary, FailuresAreFailures) {
  library->prepare(shape);
  dnn().answer("execute", CUDNN_STATUS_EXECUTION_FAILED);
  EXPECT_THROW(library->run(queue, shape, arguments), DeviceError);
}

TEST_F(Libraries, CandidatesAreThoseWithinTheWorkspace) {
  auto products = openProducts();
  Matrices at;
  const ProductShape shape = shapeOf(Epilogue::None);
  // The first until another is taken.
  ASSERT_EQ(products->candidates(shape).size(), 3u);
  EXPECT_TRUE(products->run(queue, shape, at.buffers()));
  EXPECT_EQ(blas().last(), 0);
  const Algorithm third = products->candidates(shape)[2];
  EXPECT_TRUE(products->take(shape, &third));
  EXPECT_TRUE(products->run(queue, shape, at.buffers()));
  EXPECT_EQ(blas().last(), 2);
  EXPECT_TRUE(products->take(shape, nullptr));
  EXPECT_FALSE(products->run(queue, shape, at.buffers()));
  // What another run chose, and this library does not do.
  blas().answer("check", CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_FALSE(products->take(shape, &third));
  EXPECT_FALSE(products->run(queue, shape, at.buffers()));
  blas().answer("check", 0);
  Algorithm large = third;
  const uint64_t bytes = GRT_CUDA_WORKSPACE + 1;
  std::memcpy(large.data, &bytes, sizeof(bytes));
  EXPECT_FALSE(products->take(shape, &large));
  // No more than are asked for.
  blas().answer("candidates", 100);
  const ProductShape other = shapeOf(Epilogue::Bias);
  EXPECT_EQ(products->candidates(other).size(),
            size_t(Products::mostCandidates));
  EXPECT_EQ(products->version(), "cuBLASLt 130100");
}

} // namespace
