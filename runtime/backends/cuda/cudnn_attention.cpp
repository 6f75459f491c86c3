//===- cudnn_attention.cpp - Attention through cuDNN's graphs -------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// cuDNN fuses attention where a graph of its operations has the shape that it
// looks for:
//
//   scores = q k^T                                [samples, heads, Tq, Tk]
//   scores = scores * scale
//   scores = row >= column ? scores : lowest      if causal
//   maximum = max over columns; e = exp(scores - maximum); sum = sum over
//   columns lse = maximum + log(sum); weights = e / sum o = weights v
//
// Everything between q, k, v and lse, o is virtual. Matrices are handed over
// with their strides, so packed projections are read in place. The library's
// own C interface is used; it is loaded when GRT_CUDA_ATTENTION asks for it.
//
//===----------------------------------------------------------------------===//

#include "fused_attention.h"

#include "grt/cuda_bounds.h"
#include "library.h"

#include <algorithm>
#include <cfloat>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime_api.h>
#include <cudnn_graph.h>
#include <map>
#include <tuple>
#include <vector>

namespace grt::cuda {

bool AttentionShape::operator<(const AttentionShape &other) const {
  auto key = [](const AttentionShape &s) {
    return std::tuple(s.samples, s.queryRows, s.keyRows, s.heads, s.kvHeads,
                      s.headDim, s.qStride, s.kStride, s.vStride, s.causal,
                      s.scale);
  };
  return key(*this) < key(other);
}

namespace {

/// What we use of the library.
struct Functions {
  decltype(&cudnnCreate) create;
  decltype(&cudnnDestroy) destroy;
  decltype(&cudnnSetStream) setStream;
  decltype(&cudnnGetErrorString) errorString;
  decltype(&cudnnBackendCreateDescriptor) make;
  decltype(&cudnnBackendDestroyDescriptor) discard;
  decltype(&cudnnBackendSetAttribute) set;
  decltype(&cudnnBackendGetAttribute) get;
  decltype(&cudnnBackendFinalize) finalize;
  decltype(&cudnnBackendExecute) execute;

  Functions() {
    Library library{"libcudnn.so.9", "libcudnn.so"};
    auto find = [&](auto &function, const char *name) {
      std::remove_pointer_t<std::remove_reference_t<decltype(function)>> *found;
      library.find(found, name);
      function = found;
    };
    find(create, "cudnnCreate");
    find(destroy, "cudnnDestroy");
    find(setStream, "cudnnSetStream");
    find(errorString, "cudnnGetErrorString");
    find(make, "cudnnBackendCreateDescriptor");
    find(discard, "cudnnBackendDestroyDescriptor");
    find(set, "cudnnBackendSetAttribute");
    find(get, "cudnnBackendGetAttribute");
    find(finalize, "cudnnBackendFinalize");
    find(execute, "cudnnBackendExecute");
  }
};

const Functions &dnn() {
  static const Functions functions;
  return functions;
}

/// A shape that the library does not take, not a failure.
class Unsupported : public DeviceError {
public:
  using DeviceError::DeviceError;
};

void check(cudnnStatus_t status, const char *what) {
  if (status == CUDNN_STATUS_SUCCESS)
    return;
  std::string message = std::string(what) + ": " + dnn().errorString(status);
  if (CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED)
    throw Unsupported(message);
  throw DeviceError(message);
}

/// Owns a descriptor.
class Descriptor {
public:
  explicit Descriptor(cudnnBackendDescriptorType_t type) {
    check(dnn().make(type, &descriptor), "cudnnBackendCreateDescriptor");
  }
  ~Descriptor() { dnn().discard(descriptor); }
  Descriptor(const Descriptor &) = delete;
  Descriptor &operator=(const Descriptor &) = delete;

  template <class T>
  Descriptor &set(cudnnBackendAttributeName_t name,
                  cudnnBackendAttributeType_t type, const T *values,
                  int64_t count) {
    check(dnn().set(descriptor, name, type, count, values),
          "cudnnBackendSetAttribute");
    return *this;
  }
  template <class T>
  Descriptor &set(cudnnBackendAttributeName_t name,
                  cudnnBackendAttributeType_t type, const T &value) {
    return set(name, type, &value, 1);
  }
  Descriptor &set(cudnnBackendAttributeName_t name, const Descriptor &other) {
    return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, other.descriptor);
  }
  void finalize(const char *what) { check(dnn().finalize(descriptor), what); }
  cudnnBackendDescriptor_t get() const { return descriptor; }

private:
  cudnnBackendDescriptor_t descriptor = nullptr;
};

/// The tensors that memory stands behind; their numbers in the graph.
enum Tensor : int64_t {
  Q = 1,
  K,
  V,
  O,
  Lse,
  ScaleFactor,
  Lowest,
  FirstVirtual
};

/// Collects tensors and operations, and makes a plan of them.
class Graph {
public:
  using Dimensions = int64_t[4];

  Descriptor &tensor(int64_t number, cudnnDataType_t type,
                     const Dimensions &dimensions, const Dimensions &strides,
                     bool isVirtual = false, bool byValue = false) {
    Descriptor &made = add(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const int64_t alignment = 16;
    made.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, number)
        .set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type)
        .set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, dimensions, 4)
        .set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, strides, 4)
        .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, alignment)
        .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, isVirtual)
        .set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, byValue);
    made.finalize("a tensor of attention");
    return made;
  }
  /// Rows of four dimensions, dense.
  Descriptor &between(cudnnDataType_t type, const Dimensions &d) {
    const Dimensions strides = {d[1] * d[2] * d[3], d[2] * d[3], d[3], 1};
    return tensor(nextVirtual++, type, d, strides, true);
  }
  Descriptor &scalar(int64_t number) {
    const Dimensions ones = {1, 1, 1, 1};
    return tensor(number, CUDNN_DATA_FLOAT, ones, ones, false, true);
  }

  void multiply(Descriptor &a, Descriptor &b, Descriptor &c) {
    Descriptor &kind = add(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    kind.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE,
             CUDNN_DATA_FLOAT);
    kind.finalize("a product of attention");
    Descriptor &made = add(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    made.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, a)
        .set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, b)
        .set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, c)
        .set(CUDNN_ATTR_OPERATION_MATMUL_DESC, kind);
    operation(made);
  }
  void reduce(cudnnReduceTensorOp_t what, Descriptor &x, Descriptor &y) {
    Descriptor &kind = add(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    kind.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE,
             CUDNN_DATA_FLOAT)
        .set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE,
             what);
    kind.finalize("a reduction of attention");
    Descriptor &made = add(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    made.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x)
        .set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y)
        .set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, kind);
    operation(made);
  }
  /// y = what(x), what(x, b), or t ? x : b. `axis` is for indices.
  void pointwise(cudnnPointwiseMode_t what, Descriptor &x, Descriptor *b,
                 Descriptor *t, Descriptor &y, int64_t axis = -1) {
    Descriptor &kind = add(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    kind.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, what)
        .set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE,
             CUDNN_DATA_FLOAT);
    if (axis >= 0)
      kind.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, axis);
    kind.finalize("a function of attention");
    Descriptor &made = add(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    made.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind)
        .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x)
        .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    if (b)
      made.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b);
    if (t)
      made.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, *t);
    operation(made);
  }

  /// The first plan that the library names which is deterministic and fits.
  std::unique_ptr<Descriptor> plan(cudnnHandle_t handle, uint64_t workspace) {
    Descriptor &graph = add(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle)
        .set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
             operations.data(), int64_t(operations.size()));
    graph.finalize("the graph of attention");
    Descriptor &heuristic = add(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
        .set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE,
             CUDNN_HEUR_MODE_A);
    heuristic.finalize("the heuristics of attention");
    constexpr int64_t most = 8;
    std::vector<cudnnBackendDescriptor_t> found;
    std::vector<Descriptor *> configurations;
    for (int64_t i = 0; i < most; ++i) {
      configurations.push_back(&add(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
      found.push_back(configurations.back()->get());
    }
    int64_t count = 0;
    check(dnn().get(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                    CUDNN_TYPE_BACKEND_DESCRIPTOR, most, &count, found.data()),
          "the engines of attention");
    for (int64_t i = 0; i < std::min(count, most); ++i)
      try {
        if (!isDeterministic(*configurations[size_t(i)]))
          continue;
        auto made = std::make_unique<Descriptor>(
            CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
        made->set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle)
            .set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                 *configurations[size_t(i)]);
        made->finalize("a plan of attention");
        int64_t bytes = 0, one = 0;
        check(dnn().get(made->get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                        CUDNN_TYPE_INT64, 1, &one, &bytes),
              "the workspace of attention");
        if (uint64_t(bytes) <= workspace)
          return made;
      } catch (const Unsupported &) {
        // The next may do.
      }
    throw Unsupported("no engine");
  }

private:
  Descriptor &add(cudnnBackendDescriptorType_t type) {
    return *descriptors.emplace_back(std::make_unique<Descriptor>(type));
  }
  void operation(Descriptor &made) {
    made.finalize("an operation of attention");
    operations.push_back(made.get());
  }
  bool isDeterministic(Descriptor &configuration) {
    Descriptor &engine = add(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    cudnnBackendDescriptor_t place = engine.get();
    int64_t count = 0;
    check(dnn().get(configuration.get(), CUDNN_ATTR_ENGINECFG_ENGINE,
                    CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &place),
          "an engine of attention");
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    check(dnn().get(engine.get(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                    CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT,
                    &count, notes),
          "the notes of an engine");
    for (int64_t i = 0; i < count; ++i)
      if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)
        return false;
    return true;
  }

  std::vector<std::unique_ptr<Descriptor>> descriptors;
  std::vector<cudnnBackendDescriptor_t> operations;
  int64_t nextVirtual = FirstVirtual;
};

std::unique_ptr<Descriptor>
forwardPlan(const AttentionShape &s, cudnnHandle_t handle, uint64_t workspace) {
  using Dimensions = Graph::Dimensions;
  Graph graph;
  const int64_t d = s.headDim, width = s.heads * d;
  Descriptor &q =
      graph.tensor(Q, CUDNN_DATA_BFLOAT16, {s.samples, s.heads, s.queryRows, d},
                   {s.queryRows * s.qStride, d, s.qStride, 1});
  // Transposed, as a product's right operand.
  Descriptor &k =
      graph.tensor(K, CUDNN_DATA_BFLOAT16, {s.samples, s.kvHeads, d, s.keyRows},
                   {s.keyRows * s.kStride, d, 1, s.kStride});
  Descriptor &v =
      graph.tensor(V, CUDNN_DATA_BFLOAT16, {s.samples, s.kvHeads, s.keyRows, d},
                   {s.keyRows * s.vStride, d, s.vStride, 1});
  Descriptor &o =
      graph.tensor(O, CUDNN_DATA_BFLOAT16, {s.samples, s.heads, s.queryRows, d},
                   {s.queryRows * width, d, width, 1});
  const Dimensions perRow = {s.samples, s.heads, s.queryRows, 1};
  const Dimensions perScore = {s.samples, s.heads, s.queryRows, s.keyRows};
  Descriptor &lse = graph.tensor(Lse, CUDNN_DATA_FLOAT, perRow,
                                 {s.heads * s.queryRows, s.queryRows, 1, 1});
  auto scores = [&](cudnnDataType_t type = CUDNN_DATA_FLOAT) -> Descriptor & {
    return graph.between(type, perScore);
  };
  auto rows = [&]() -> Descriptor & {
    return graph.between(CUDNN_DATA_FLOAT, perRow);
  };
  Descriptor *last = &scores();
  graph.multiply(q, k, *last);
  Descriptor &scaled = scores();
  graph.pointwise(CUDNN_POINTWISE_MUL, *last, &graph.scalar(ScaleFactor),
                  nullptr, scaled);
  last = &scaled;
  if (s.causal) {
    Descriptor &row = scores(CUDNN_DATA_INT32);
    Descriptor &column = scores(CUDNN_DATA_INT32);
    Descriptor &seen = scores(CUDNN_DATA_BOOLEAN);
    Descriptor &masked = scores();
    graph.pointwise(CUDNN_POINTWISE_GEN_INDEX, *last, nullptr, nullptr, row, 2);
    graph.pointwise(CUDNN_POINTWISE_GEN_INDEX, *last, nullptr, nullptr, column,
                    3);
    graph.pointwise(CUDNN_POINTWISE_CMP_GE, row, &column, nullptr, seen);
    graph.pointwise(CUDNN_POINTWISE_BINARY_SELECT, *last, &graph.scalar(Lowest),
                    &seen, masked);
    last = &masked;
  }
  Descriptor &maximum = rows(), &sum = rows(), &logarithm = rows();
  Descriptor &distance = scores(), &power = scores();
  Descriptor &weights = scores(CUDNN_DATA_BFLOAT16);
  graph.reduce(CUDNN_REDUCE_TENSOR_MAX, *last, maximum);
  graph.pointwise(CUDNN_POINTWISE_SUB, *last, &maximum, nullptr, distance);
  graph.pointwise(CUDNN_POINTWISE_EXP, distance, nullptr, nullptr, power);
  graph.reduce(CUDNN_REDUCE_TENSOR_ADD, power, sum);
  graph.pointwise(CUDNN_POINTWISE_LOG, sum, nullptr, nullptr, logarithm);
  graph.pointwise(CUDNN_POINTWISE_ADD, maximum, &logarithm, nullptr, lse);
  graph.pointwise(CUDNN_POINTWISE_DIV, power, &sum, nullptr, weights);
  graph.multiply(weights, v, o);
  return graph.plan(handle, workspace);
}

class Cudnn : public FusedAttention {
public:
  Cudnn() { check(dnn().create(&handle), "cudnnCreate"); }
  ~Cudnn() override {
    plans.clear();
    dnn().destroy(handle);
  }

  void prepare(const AttentionShape &shape) override { planOf(shape); }

  bool run(const Queue &queue, const AttentionShape &shape,
           const AttentionArguments<BF16> &a) override {
    Descriptor *plan = planOf(shape);
    uintptr_t bits = 0;
    for (const void *address : {(const void *)a.q, (const void *)a.k,
                                (const void *)a.v, (const void *)a.o})
      bits |= reinterpret_cast<uintptr_t>(address);
    if (!plan || bits % 16)
      return false;
    float scale = shape.scale, lowest = -FLT_MAX;
    std::vector<int64_t> numbers = {Q, K, V, O, Lse, ScaleFactor};
    std::vector<void *> addresses = {const_cast<BF16 *>(a.q),
                                     const_cast<BF16 *>(a.k),
                                     const_cast<BF16 *>(a.v),
                                     a.o,
                                     a.lse,
                                     &scale};
    if (shape.causal) {
      numbers.push_back(Lowest);
      addresses.push_back(&lowest);
    }
    check(dnn().setStream(handle, queue.stream), "cudnnSetStream");
    Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
             numbers.data(), int64_t(numbers.size()))
        .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
             addresses.data(), int64_t(addresses.size()))
        .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR,
             queue.workspace);
    pack.finalize("the addresses of attention");
    check(dnn().execute(handle, plan->get(), pack.get()),
          "cudnnBackendExecute");
    return true;
  }

private:
  /// Null where the library has none.
  Descriptor *planOf(const AttentionShape &s) {
    auto found = plans.find(s);
    if (found != plans.end())
      return found->second.get();
    std::unique_ptr<Descriptor> plan;
    // Its mask begins at the first key, ours ends at the last.
    if (!s.causal || s.queryRows == s.keyRows)
      try {
        plan = forwardPlan(s, handle, GRT_CUDA_WORKSPACE);
      } catch (const Unsupported &) {
        // Our own kernels do it.
      }
    return plans.emplace(s, std::move(plan)).first->second.get();
  }

  cudnnHandle_t handle = nullptr;
  std::map<AttentionShape, std::unique_ptr<Descriptor>> plans;
};

} // namespace

std::unique_ptr<FusedAttention> openFusedAttention() {
  const char *wish = std::getenv("GRT_CUDA_ATTENTION");
  if (!wish || std::strcmp(wish, "cudnn"))
    return nullptr;
  return std::make_unique<Cudnn>();
}

} // namespace grt::cuda
