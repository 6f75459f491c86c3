//===- cublaslt.cpp - A libcublasLt of loops ------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Products of column-major matrices as the library's manual defines them, in
// f64, on memory of the host. Matrices, pointers of epilogues, alignments and
// the workspace are held to what was promised when the algorithm was asked for.
// Beside the tests' CUDA runtime nothing is computed: products are put on its
// streams.
//
//===----------------------------------------------------------------------===//

#include "fakes.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <cublasLt.h>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace {

/// Ranks are threads, each with a handle of its own.
std::recursive_mutex mutex;
std::set<const void *> alive, handles;
std::string complaints;
std::map<std::string, int> answers;
int64_t runs = 0, lastNumber = -1;

bool expect(bool holds, const std::string &what) {
  if (!holds)
    complaints += what + "\n";
  return holds;
}
bool expectAlive(const void *handle, const char *what) {
  return expect(alive.count(handle) != 0, std::string(what) + " is not alive");
}

struct Attributes {
  std::map<int, std::vector<char>> values;
  template <class T> T get(int name, T otherwise) const {
    auto found = values.find(name);
    if (found == values.end() || found->second.size() != sizeof(T))
      return otherwise;
    std::memcpy(&otherwise, found->second.data(), sizeof(T));
    return otherwise;
  }
};
struct Layout {
  cudaDataType type;
  uint64_t rows, columns;
  int64_t distance;
};
/// What an algorithm was asked for, kept in the algorithm.
struct Promise {
  uint64_t workspace;
  uint32_t alignment;
  uint32_t number; ///< in the order of the heuristics
};
/// Algorithms that heuristics name, unless "candidates" was answered.
constexpr int namedAlgorithms = 3;

template <class Handle, class Thing> cublasStatus_t make(Handle *handle) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  auto *made = new Thing();
  alive.insert(made);
  *handle = reinterpret_cast<Handle>(made);
  return CUBLAS_STATUS_SUCCESS;
}
template <class Thing, class Handle>
cublasStatus_t destroy(Handle handle, const char *what) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  if (!expectAlive(handle, what))
    return CUBLAS_STATUS_INVALID_VALUE;
  alive.erase(handle);
  delete reinterpret_cast<Thing *>(handle);
  return CUBLAS_STATUS_SUCCESS;
}
template <class Handle>
cublasStatus_t setIn(Handle handle, int name, const void *value, size_t bytes) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  if (!expectAlive(handle, "a descriptor that is set"))
    return CUBLAS_STATUS_INVALID_VALUE;
  auto *from = static_cast<const char *>(value);
  reinterpret_cast<Attributes *>(handle)->values[name] = {from, from + bytes};
  return CUBLAS_STATUS_SUCCESS;
}

double read(const void *array, cudaDataType type, int64_t i) {
  if (type == CUDA_R_64F)
    return static_cast<const double *>(array)[i];
  if (type == CUDA_R_32F)
    return static_cast<const float *>(array)[i];
  uint32_t bits = uint32_t(static_cast<const uint16_t *>(array)[i]) << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
void write(void *array, cudaDataType type, int64_t i, double x) {
  if (type == CUDA_R_64F) {
    static_cast<double *>(array)[i] = x;
  } else if (type == CUDA_R_32F) {
    static_cast<float *>(array)[i] = float(x);
  } else {
    float value = float(x);
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    static_cast<uint16_t *>(array)[i] =
        uint16_t((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
  }
}

double gelu(double x, double *slope) {
  const double a = std::sqrt(2 / M_PI), b = 0.044715;
  double t = std::tanh(a * (x + b * x * x * x));
  *slope = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * a * (1 + 3 * b * x * x);
  return 0.5 * x * (1 + t);
}

} // namespace

GRT_FAKE void grt_fake_cublaslt_answer(const char *kind, int status) {
  answers[kind] = status;
}
GRT_FAKE int64_t grt_fake_cublaslt_live() { return int64_t(alive.size()); }
GRT_FAKE int64_t grt_fake_cublaslt_runs() { return runs; }
GRT_FAKE int64_t grt_fake_cublaslt_last() { return lastNumber; }
GRT_FAKE const char *grt_fake_cublaslt_complaints() {
  static std::string told;
  told = std::move(complaints);
  complaints.clear();
  return told.c_str();
}

GRT_FAKE cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  if (GrtFakeCudaUse *use = grtFakeCudaUse();
      use && use(nullptr, "cublasLtCreate"))
    return CUBLAS_STATUS_INTERNAL_ERROR;
  make<cublasLtHandle_t, Attributes>(handle);
  handles.insert(*handle);
  return CUBLAS_STATUS_SUCCESS;
}
GRT_FAKE cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  expect(handles.size() > 1 || alive.size() == 1,
         "descriptors outlive the last handle");
  handles.erase(handle);
  return destroy<Attributes>(handle, "a handle that is destroyed");
}
GRT_FAKE cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *handle,
                                                 cublasComputeType_t compute,
                                                 cudaDataType_t scale) {
  expect((compute == CUBLAS_COMPUTE_64F) == (scale == CUDA_R_64F),
         "scale factors are not of the type of the sums");
  return make<cublasLtMatmulDesc_t, Attributes>(handle);
}
GRT_FAKE cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t handle) {
  return destroy<Attributes>(handle, "a description that is destroyed");
}
GRT_FAKE cublasStatus_t cublasLtMatmulDescSetAttribute(
    cublasLtMatmulDesc_t handle, cublasLtMatmulDescAttributes_t name,
    const void *value, size_t bytes) {
  return setIn(handle, name, value, bytes);
}
GRT_FAKE cublasStatus_t
cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *handle, cudaDataType type,
                           uint64_t rows, uint64_t columns, int64_t distance) {
  expect(distance >= int64_t(rows), "columns overlap");
  make<cublasLtMatrixLayout_t, Layout>(handle);
  *reinterpret_cast<Layout *>(*handle) = {type, rows, columns, distance};
  return CUBLAS_STATUS_SUCCESS;
}
GRT_FAKE cublasStatus_t
cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t handle) {
  return destroy<Layout>(handle, "a layout that is destroyed");
}
GRT_FAKE cublasStatus_t
cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *handle) {
  return make<cublasLtMatmulPreference_t, Attributes>(handle);
}
GRT_FAKE cublasStatus_t
cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t handle) {
  return destroy<Attributes>(handle, "a preference that is destroyed");
}
GRT_FAKE cublasStatus_t
cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t handle,
                                     cublasLtMatmulPreferenceAttributes_t name,
                                     const void *value, size_t bytes) {
  return setIn(handle, name, value, bytes);
}
GRT_FAKE const char *cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED ? "not supported" : "failed";
}

GRT_FAKE cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
    cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
    cublasLtMatmulPreference_t preference, int wanted,
    cublasLtMatmulHeuristicResult_t *results, int *count) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  expectAlive(handle, "the handle of heuristics");
  *count = 0;
  if (int status = answers["heuristic"])
    return cublasStatus_t(status);
  const auto &asked = *reinterpret_cast<Attributes *>(preference);
  Promise promise = {
      asked.get<uint64_t>(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 0),
      asked.get<uint32_t>(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 256), 0};
  if (wanted < 1 ||
      !expect(promise.workspace > 4096, "no workspace is offered"))
    return CUBLAS_STATUS_INVALID_VALUE;
  const int named =
      answers["candidates"] ? answers["candidates"] : namedAlgorithms;
  for (*count = 0; *count < std::min(wanted, named); ++*count) {
    cublasLtMatmulHeuristicResult_t &result = results[*count];
    promise.number = uint32_t(*count);
    promise.workspace = 4096 * uint64_t(*count + 1);
    result = {};
    std::memcpy(result.algo.data, &promise, sizeof(promise));
    result.workspaceSize = promise.workspace;
    result.state = CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_SUCCESS;
}

/// GRT_FAKE_CUBLASLT: another release, for programs that are tested whole.
GRT_FAKE size_t cublasLtGetVersion() {
  const char *version = std::getenv("GRT_FAKE_CUBLASLT");
  return version ? size_t(std::atoi(version)) : 130100;
}

GRT_FAKE cublasStatus_t cublasLtMatmulAlgoCheck(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
    cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
    cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    const cublasLtMatmulAlgo_t *algorithm,
    cublasLtMatmulHeuristicResult_t *result) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  if (int status = answers["check"])
    return cublasStatus_t(status);
  for (const void *each :
       {static_cast<const void *>(handle),
        static_cast<const void *>(description), static_cast<const void *>(a),
        static_cast<const void *>(b), static_cast<const void *>(c),
        static_cast<const void *>(d)})
    if (!expectAlive(each, "what an algorithm is checked with"))
      return CUBLAS_STATUS_INVALID_VALUE;
  Promise promise;
  std::memcpy(&promise, algorithm->data, sizeof(promise));
  *result = {};
  result->algo = *algorithm;
  result->workspaceSize = promise.workspace;
  result->state = CUBLAS_STATUS_SUCCESS;
  return CUBLAS_STATUS_SUCCESS;
}

GRT_FAKE cublasStatus_t cublasLtMatmul(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
    const void *alpha, const void *a, cublasLtMatrixLayout_t layoutA,
    const void *b, cublasLtMatrixLayout_t layoutB, const void *beta,
    const void *c, cublasLtMatrixLayout_t layoutC, void *d,
    cublasLtMatrixLayout_t layoutD, const cublasLtMatmulAlgo_t *algorithm,
    void *workspace, size_t workspaceBytes, cudaStream_t stream) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  if (int status = answers["matmul"])
    return cublasStatus_t(status);
  bool right = expectAlive(handle, "the handle of a product") &&
               expectAlive(description, "the description of a product");
  for (const void *layout : {layoutA, layoutB, layoutC, layoutD})
    right = expectAlive(layout, "a layout of a product") && right;
  if (!right || !expect(algorithm, "a product without an algorithm"))
    return CUBLAS_STATUS_INVALID_VALUE;
  const auto &of = *reinterpret_cast<Attributes *>(description);
  const auto &la = *reinterpret_cast<Layout *>(layoutA);
  const auto &lb = *reinterpret_cast<Layout *>(layoutB);
  const auto &ld = *reinterpret_cast<Layout *>(layoutD);
  Promise promise;
  std::memcpy(&promise, algorithm->data, sizeof(promise));
  expect(workspace && workspaceBytes >= promise.workspace,
         "the workspace is smaller than the algorithm's");
  const auto epilogue = of.get<cublasLtEpilogue_t>(
      CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DEFAULT);
  auto *bias = of.get<char *>(CUBLASLT_MATMUL_DESC_BIAS_POINTER, nullptr);
  auto *aux =
      of.get<char *>(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, nullptr);
  const bool readsBias = epilogue == CUBLASLT_EPILOGUE_BIAS ||
                         epilogue == CUBLASLT_EPILOGUE_GELU_BIAS ||
                         epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
  const bool sumsA = epilogue == CUBLASLT_EPILOGUE_BGRADA;
  const bool hasAux = epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
                      epilogue == CUBLASLT_EPILOGUE_DGELU;
  std::vector<const void *> arrays = {a, b, c, d};
  if (readsBias || sumsA)
    arrays.push_back(bias);
  if (hasAux)
    arrays.push_back(aux);
  // Below the first page are the placeholders that told alignments before.
  for (const void *array : arrays)
    if (!expect(reinterpret_cast<uintptr_t>(array) > 4096,
                "an array of a product was not given") ||
        !expect(reinterpret_cast<uintptr_t>(array) % promise.alignment == 0,
                "an array is aligned to less than was promised"))
      return CUBLAS_STATUS_INVALID_VALUE;
  const bool transA = of.get<int32_t>(CUBLASLT_MATMUL_DESC_TRANSA, 0) != 0;
  const bool transB = of.get<int32_t>(CUBLASLT_MATMUL_DESC_TRANSB, 0) != 0;
  const int64_t m = int64_t(ld.rows), n = int64_t(ld.columns);
  const int64_t k = int64_t(transA ? la.rows : la.columns);
  if (!expect(int64_t(transA ? la.columns : la.rows) == m &&
                  int64_t(transB ? lb.columns : lb.rows) == k &&
                  int64_t(transB ? lb.rows : lb.columns) == n,
              "shapes of a product do not meet"))
    return CUBLAS_STATUS_INVALID_VALUE;
  const int64_t auxDistance =
      of.get<int64_t>(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, 0);
  expect(!hasAux || (auxDistance >= m && auxDistance % 8 == 0),
         "the auxiliary matrix has columns of no multiple of 8");
  const auto biasType = cudaDataType(
      of.get<int32_t>(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, ld.type));
  if (GrtFakeCudaUse *use = grtFakeCudaUse()) {
    ++runs;
    lastNumber = promise.number;
    // Every shape and algorithm may have a kernel of its own.
    std::string what = "cublasLtMatmul";
    for (int64_t each : {m, n, k, int64_t(transA), int64_t(transB),
                         int64_t(epilogue), int64_t(promise.number)})
      what += " " + std::to_string(each);
    return use(stream, what.c_str()) ? CUBLAS_STATUS_EXECUTION_FAILED
                                     : CUBLAS_STATUS_SUCCESS;
  }
  const cudaDataType scale = la.type == CUDA_R_64F ? CUDA_R_64F : CUDA_R_32F;
  const double one = read(alpha, scale, 0), onto = read(beta, scale, 0);
  auto left = [&](int64_t i, int64_t p) {
    return read(a, la.type, transA ? i * la.distance + p : p * la.distance + i);
  };
  for (int64_t j = 0; j < n; ++j)
    for (int64_t i = 0; i < m; ++i) {
      const int64_t place = j * ld.distance + i;
      double x = onto != 0 ? onto * read(c, ld.type, place) : 0, slope;
      for (int64_t p = 0; p < k; ++p)
        x += one * left(i, p) *
             read(b, lb.type,
                  transB ? p * lb.distance + j : j * lb.distance + p);
      if (readsBias)
        x += read(bias, biasType, i);
      if (epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS)
        write(aux, la.type, j * auxDistance + i, x);
      if (epilogue == CUBLASLT_EPILOGUE_GELU_BIAS ||
          epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS)
        x = gelu(x, &slope);
      if (epilogue == CUBLASLT_EPILOGUE_DGELU) {
        gelu(read(aux, la.type, j * auxDistance + i), &slope);
        x *= slope;
      }
      write(d, ld.type, place, x);
    }
  for (int64_t i = 0; sumsA && i < m; ++i) {
    double sum = 0;
    for (int64_t p = 0; p < k; ++p)
      sum += left(i, p);
    write(bias, biasType, i, sum);
  }
  ++runs;
  lastNumber = promise.number;
  return CUBLAS_STATUS_SUCCESS;
}
