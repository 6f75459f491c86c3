//===- cublaslt.cpp - Products through cuBLASLt ---------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The library's matrices are column-major, ours row-major. A row-major matrix X
// of R rows and C columns is, read column by column with C as the distance of
// columns, its transpose. So for c = op(a) op(b) we ask for the transpose,
//
//   c^T [n, m] = op(b)^T [n, k] op(a)^T [k, m],
//
// with our b as the library's first operand and our a as its second:
//   b   as stored    the library reads    needs [n, k]    so
//       [k, n]       [n, k], distance n   itself          not transposed
//       [n, k]       [k, n], distance k   its transpose   transposed (transB)
//   a   as stored    the library reads    needs [k, m]    so
//       [m, k]       [k, m], distance k   itself          not transposed
//       [k, m]       [m, k], distance m   its transpose   transposed (transA)
// c is read as [n, m] with distance n, and a bias over the library's rows is
// one over our columns, as it must be. So is a bias' gradient: what the library
// calls the gradient "based on the input matrix A" is summed over k from our b.
//
// Its GELU has the tanh form. Behind the product it writes, or for the gradient
// reads, what the GELU is applied to: an "auxiliary" matrix like c, whose
// distance of columns must be a multiple of 8. A bias' gradient has the type of
// c, which is why it is taken from the gradient of the weight (f32) and not, as
// the library could, together with that of the GELU (bf16): gradients of
// parameters are not rounded to bf16. It is written, never added to; where it
// should be added it goes through the end of the workspace.
//
// Sums are f32 for f32 and bf16, f64 for f64. GRT_CUDA_TF32=1 rounds f32
// operands to TF32, which has the exponent of f32 and 11 bits of mantissa.
// Sums in parts go through the workspace, in a fixed order: no atomics.
//
//===----------------------------------------------------------------------===//

#include "products.h"

#include "grt/cuda_bounds.h"
#include "library.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cublasLt.h>
#include <map>

namespace grt::cuda {

namespace {

/// The functions of the library that are used here.
struct Functions {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtMatmulAlgoCheck) algorithmCheck;
  decltype(&cublasLtGetVersion) version;
  decltype(&cublasLtMatmulDescCreate) descriptionCreate;
  decltype(&cublasLtMatmulDescDestroy) descriptionDestroy;
  decltype(&cublasLtMatmulDescSetAttribute) descriptionSet;
  decltype(&cublasLtMatrixLayoutCreate) layoutCreate;
  decltype(&cublasLtMatrixLayoutDestroy) layoutDestroy;
  decltype(&cublasLtMatmulPreferenceCreate) preferenceCreate;
  decltype(&cublasLtMatmulPreferenceDestroy) preferenceDestroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preferenceSet;
  decltype(&cublasLtGetStatusString) statusString;

  Functions() {
    Library library{"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"};
    auto find = [&](auto &function, const char *name) {
      std::remove_pointer_t<std::remove_reference_t<decltype(function)>> *found;
      library.find(found, name);
      function = found;
    };
    find(create, "cublasLtCreate");
    find(destroy, "cublasLtDestroy");
    find(matmul, "cublasLtMatmul");
    find(heuristic, "cublasLtMatmulAlgoGetHeuristic");
    find(algorithmCheck, "cublasLtMatmulAlgoCheck");
    find(version, "cublasLtGetVersion");
    find(descriptionCreate, "cublasLtMatmulDescCreate");
    find(descriptionDestroy, "cublasLtMatmulDescDestroy");
    find(descriptionSet, "cublasLtMatmulDescSetAttribute");
    find(layoutCreate, "cublasLtMatrixLayoutCreate");
    find(layoutDestroy, "cublasLtMatrixLayoutDestroy");
    find(preferenceCreate, "cublasLtMatmulPreferenceCreate");
    find(preferenceDestroy, "cublasLtMatmulPreferenceDestroy");
    find(preferenceSet, "cublasLtMatmulPreferenceSetAttribute");
    find(statusString, "cublasLtGetStatusString");
  }
};

const Functions &lt() {
  static const Functions functions;
  return functions;
}

void check(cublasStatus_t status, const char *what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw DeviceError(std::string(what) + ": " + lt().statusString(status));
}

cudaDataType typeOf(uint32_t dtype) {
  switch (dtype) {
  case GRT_F64:
    return CUDA_R_64F;
  case GRT_F32:
    return CUDA_R_32F;
  case GRT_BF16:
    return CUDA_R_16BF;
  default:
    throw DeviceError("cannot multiply elements of dtype " +
                      std::to_string(dtype));
  }
}

/// A product made ready; refused if it has no algorithm.
struct Prepared {
  cublasLtMatmulDesc_t description = nullptr;
  cublasLtMatrixLayout_t first = nullptr, second = nullptr, result = nullptr;
  cublasLtMatmulAlgo_t algorithm;
  std::vector<Algorithm> candidates;
  uint64_t workspace = 0;
  uint64_t sums = 0; ///< bytes at the end of the workspace that it leaves free
  bool refused = true;

  Prepared() = default;
  Prepared(const Prepared &) = delete;
  Prepared &operator=(const Prepared &) = delete;
  ~Prepared() {
    for (cublasLtMatrixLayout_t layout : {first, second, result})
      if (layout)
        lt().layoutDestroy(layout);
    if (description)
      lt().descriptionDestroy(description);
  }
};

class CublasLt : public Products {
public:
  CublasLt() {
    const char *wish = std::getenv("GRT_CUDA_TF32");
    tf32 = wish && std::strcmp(wish, "0") != 0;
    check(lt().create(&handle), "cublasLtCreate");
  }
  ~CublasLt() override {
    products.clear();
    lt().destroy(handle);
  }

  bool prepare(const ProductShape &shape) override {
    return !product(shape).refused;
  }

  std::vector<Algorithm> candidates(const ProductShape &shape) override {
    return product(shape).candidates;
  }

  bool take(const ProductShape &shape, const Algorithm *algorithm) override {
    Prepared &p = product(shape);
    p.refused = true;
    if (!algorithm)
      return true;
    if (!p.description)
      return false;
    static_assert(sizeof(algorithm->data) == sizeof(p.algorithm));
    std::memcpy(&p.algorithm, algorithm->data, sizeof(p.algorithm));
    cublasLtMatmulHeuristicResult_t found = {};
    if (lt().algorithmCheck(handle, p.description, p.first, p.second, p.result,
                            p.result, &p.algorithm,
                            &found) != CUBLAS_STATUS_SUCCESS ||
        found.state != CUBLAS_STATUS_SUCCESS ||
        found.workspaceSize > GRT_CUDA_WORKSPACE - p.sums)
      return false;
    p.workspace = found.workspaceSize;
    p.refused = false;
    return true;
  }

  std::string version() const override {
    return "cuBLASLt " + std::to_string(lt().version());
  }

  bool run(const Queue &queue, const ProductShape &shape,
           const ProductBuffers &buffers) override {
    Prepared &p = product(shape);
    if (p.refused || queue.workspaceBytes < GRT_CUDA_WORKSPACE)
      return false;
    void *bias = p.sums ? static_cast<char *>(queue.workspace) +
                              GRT_CUDA_WORKSPACE - p.sums
                        : buffers.bias;
    auto point = [&](cublasLtMatmulDescAttributes_t attribute, void *to) {
      if (to)
        check(lt().descriptionSet(p.description, attribute, &to, sizeof(to)),
              "cublasLtMatmulDescSetAttribute");
    };
    point(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    point(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, buffers.kept);
    // Scale factors have the type of the sums.
    const double one64 = 1, onto64 = shape.add ? 1 : 0;
    const float one32 = 1, onto32 = shape.add ? 1 : 0;
    bool wide = shape.dtype == GRT_F64;
    const void *one = wide ? static_cast<const void *>(&one64) : &one32;
    const void *onto = wide ? static_cast<const void *>(&onto64) : &onto32;
    cublasStatus_t status =
        lt().matmul(handle, p.description, one, buffers.b, p.first, buffers.a,
                    p.second, onto, buffers.c, p.result, buffers.c, p.result,
                    &p.algorithm, queue.workspace, p.workspace, queue.stream);
    if (isRefusal(status)) {
      // Nothing was put on the stream. Heuristics may name what the library
      // then does not run; this shape has another algorithm from here on.
      p.refused = true;
      std::fprintf(
          stderr, "cublasLtMatmul refuses '%s' (%s): it goes without\n",
          queue.opName ? queue.opName : "product", lt().statusString(status));
      return false;
    }
    check(status, "cublasLtMatmul");
    if (p.sums) {
      float *onto = static_cast<float *>(buffers.bias);
      grt::cuda::add<float>(queue, shape.n, static_cast<float *>(bias), onto,
                            onto);
    }
    return true;
  }

private:
  /// Whether the library says that it will not, rather than that it failed.
  static bool isRefusal(cublasStatus_t status) {
    return status == CUBLAS_STATUS_NOT_SUPPORTED ||
           status == CUBLAS_STATUS_INVALID_VALUE ||
           status == CUBLAS_STATUS_ARCH_MISMATCH;
  }

  static uint64_t sumsBytes(const ProductShape &s) {
    return (uint64_t(s.n) * sizeof(float) + 255) / 256 * 256;
  }

  /// Whether the library may have such an epilogue at all.
  static bool mayDo(const ProductShape &s) {
    switch (s.epilogue) {
    case Epilogue::None:
    case Epilogue::Bias:
      return true;
    case Epilogue::Gelu:
      return s.dtype != GRT_F64;
    case Epilogue::GeluKept:
    case Epilogue::GeluGrad:
      return s.dtype != GRT_F64 && s.n % 8 == 0 && s.alignment >= 16;
    case Epilogue::BiasGrad:
      return s.result == GRT_F32 && sumsBytes(s) < GRT_CUDA_WORKSPACE;
    }
    return false;
  }

  static uint32_t epilogueOf(Epilogue epilogue) {
    switch (epilogue) {
    case Epilogue::None:
      break;
    case Epilogue::Bias:
      return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::Gelu:
      return CUBLASLT_EPILOGUE_GELU_BIAS;
    case Epilogue::GeluKept:
      return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case Epilogue::GeluGrad:
      return CUBLASLT_EPILOGUE_DGELU;
    case Epilogue::BiasGrad:
      return CUBLASLT_EPILOGUE_BGRADA;
    }
    return CUBLASLT_EPILOGUE_DEFAULT;
  }

  void describe(const ProductShape &s, Prepared &p) const {
    bool wide = s.dtype == GRT_F64;
    cublasComputeType_t compute = wide ? CUBLAS_COMPUTE_64F
                                  : tf32 && s.dtype == GRT_F32
                                      ? CUBLAS_COMPUTE_32F_FAST_TF32
                                      : CUBLAS_COMPUTE_32F;
    check(lt().descriptionCreate(&p.description, compute,
                                 wide ? CUDA_R_64F : CUDA_R_32F),
          "cublasLtMatmulDescCreate");
    auto set = [&](cublasLtMatmulDescAttributes_t attribute,
                   const auto &value) {
      check(
          lt().descriptionSet(p.description, attribute, &value, sizeof(value)),
          "cublasLtMatmulDescSetAttribute");
    };
    const int32_t plain = CUBLAS_OP_N, transposed = CUBLAS_OP_T;
    set(CUBLASLT_MATMUL_DESC_TRANSA, s.transB ? transposed : plain);
    set(CUBLASLT_MATMUL_DESC_TRANSB, s.transA ? transposed : plain);
    // The library takes the alignment of what it does not read yet from the
    // address.
    void *const aligned = reinterpret_cast<void *>(uintptr_t(s.alignment));
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogueOf(s.epilogue));
    bool kept =
        s.epilogue == Epilogue::GeluKept || s.epilogue == Epilogue::GeluGrad;
    if (kept) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aligned);
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, s.n);
    }
    if (s.epilogue != Epilogue::None && s.epilogue != Epilogue::GeluGrad) {
      const bool written = s.epilogue == Epilogue::BiasGrad;
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, aligned);
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
          int32_t(typeOf(written ? s.result : s.dtype)));
      if (written && s.add)
        p.sums = sumsBytes(s);
    }
    auto layout = [&](cublasLtMatrixLayout_t &made, uint32_t dtype,
                      int64_t rows, int64_t columns) {
      check(lt().layoutCreate(&made, typeOf(dtype), uint64_t(rows),
                              uint64_t(columns), rows),
            "cublasLtMatrixLayoutCreate");
    };
    layout(p.first, s.dtype, s.transB ? s.k : s.n, s.transB ? s.n : s.k);
    layout(p.second, s.dtype, s.transA ? s.m : s.k, s.transA ? s.k : s.m);
    layout(p.result, s.result, s.n, s.m);
  }

  void choose(const ProductShape &s, Prepared &p) const {
    cublasLtMatmulPreference_t preference = nullptr;
    check(lt().preferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute,
                   const auto &value) {
      lt().preferenceSet(preference, attribute, &value, sizeof(value));
    };
    const uint64_t most = GRT_CUDA_WORKSPACE - p.sums;
    const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, most);
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions);
    for (auto attribute : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                           CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                           CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                           CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      set(attribute, s.alignment);
    // The candidates come in order of the time that the library expects; the
    // first is taken unless they are tried, so that the same machine makes the
    // same choice.
    cublasLtMatmulHeuristicResult_t found[mostCandidates] = {};
    int count = 0;
    cublasStatus_t status =
        lt().heuristic(handle, p.description, p.first, p.second, p.result,
                       p.result, preference, mostCandidates, found, &count);
    lt().preferenceDestroy(preference);
    // "Not supported" is an answer; others are failures.
    if (status != CUBLAS_STATUS_NOT_SUPPORTED &&
        status != CUBLAS_STATUS_INVALID_VALUE)
      check(status, "cublasLtMatmulAlgoGetHeuristic");
    if (status != CUBLAS_STATUS_SUCCESS)
      return;
    for (int i = 0; i < count; ++i) {
      if (found[i].state != CUBLAS_STATUS_SUCCESS ||
          found[i].workspaceSize > most)
        continue;
      Algorithm candidate = {};
      std::memcpy(candidate.data, &found[i].algo, sizeof(candidate.data));
      candidate.workspace = found[i].workspaceSize;
      p.candidates.push_back(candidate);
    }
    if (p.candidates.empty())
      return;
    std::memcpy(&p.algorithm, p.candidates.front().data, sizeof(p.algorithm));
    p.workspace = p.candidates.front().workspace;
    p.refused = false;
  }

  Prepared &product(const ProductShape &shape) {
    std::unique_ptr<Prepared> &entry = products[shape];
    if (!entry) {
      auto made = std::make_unique<Prepared>();
      if (mayDo(shape)) {
        describe(shape, *made);
        choose(shape, *made);
      }
      entry = std::move(made);
    }
    return *entry;
  }

  cublasLtHandle_t handle = nullptr;
  bool tf32 = false;
  std::map<ProductShape, std::unique_ptr<Prepared>> products;
};

} // namespace

std::unique_ptr<Products> openProducts() {
  const char *wish = std::getenv("GRT_CUDA_PRODUCTS");
  if (wish && !std::strcmp(wish, "own"))
    return nullptr;
  return std::make_unique<CublasLt>();
}

} // namespace grt::cuda
