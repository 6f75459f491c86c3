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
// Forward only: lse is the logarithm of the sum of exponentials here and in our
// kernels, which do the backward pass. The library's would have to add to dq
// atomically, or to keep the whole of the scores' gradient in its workspace (2
// bytes a score): where that fitted, for a few small shapes, what it wrote was
// not a number (cuDNN 9.19, H200).
//
// On that machine forward is right where rows fill tiles of 128, and 0.8 of our
// kernel's time; where they do not it gave NaN, so those are ours.
//
//===----------------------------------------------------------------------===//

#include "fused_attention.h"

#include "grt/cuda_bounds.h"
#include "library.h"

#include <algorithm>
#include <cfloat>
#include <cstdio>
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
                      s.window, s.scale);
  };
  return key(*this) < key(other);
}

namespace {

/// The functions of the library that are used here.
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
  // A descriptor that the library calls bad is one that this version of it does
  // not take.
  if (CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED ||
      CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_BAD_PARAM)
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
    return between(type, d, {d[1] * d[2] * d[3], d[2] * d[3], d[3], 1});
  }
  Descriptor &between(cudnnDataType_t type, const Dimensions &d,
                      const Dimensions &strides) {
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
  /// The same numbers in the order that y's dimensions and strides say.
  void reshape(Descriptor &x, Descriptor &y) {
    Descriptor &made = add(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    made.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x)
        .set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
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

/// The part that the graphs of both passes begin with.
class AttentionGraph : public Graph {
public:
  explicit AttentionGraph(const AttentionShape &s)
      : s(s), perRow{s.samples, s.heads, s.queryRows, 1},
        perScore{s.samples, s.heads, s.queryRows, s.keyRows} {}

  /// Rows of queries: `stride` from row to row.
  Descriptor &queries(int64_t number, int64_t stride) {
    return tensor(number, CUDNN_DATA_BFLOAT16,
                  {s.samples, s.heads, s.queryRows, s.headDim},
                  {s.queryRows * stride, s.headDim, stride, 1});
  }
  /// Rows of keys or values.
  Descriptor &keys(int64_t number, int64_t stride) {
    return tensor(number, CUDNN_DATA_BFLOAT16,
                  {s.samples, s.kvHeads, s.keyRows, s.headDim},
                  {s.keyRows * stride, s.headDim, stride, 1});
  }
  /// The same, transposed, as a product's right operand.
  Descriptor &keysAcross(int64_t number, int64_t stride) {
    return tensor(number, CUDNN_DATA_BFLOAT16,
                  {s.samples, s.kvHeads, s.headDim, s.keyRows},
                  {s.keyRows * stride, s.headDim, 1, stride});
  }
  Descriptor &statistics(int64_t number) {
    return tensor(number, CUDNN_DATA_FLOAT, perRow,
                  {s.heads * s.queryRows, s.queryRows, 1, 1});
  }
  Descriptor &scores(cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    return between(type, perScore);
  }
  Descriptor &rows() { return between(CUDNN_DATA_FLOAT, perRow); }

  Descriptor &productOf(Descriptor &a, Descriptor &b) {
    Descriptor &made = scores();
    multiply(a, b, made);
    return made;
  }
  Descriptor &scoresOf(cudnnPointwiseMode_t what, Descriptor &x,
                       Descriptor *b = nullptr) {
    Descriptor &made = scores();
    pointwise(what, x, b, nullptr, made);
    return made;
  }
  /// Sets the scores that a causal row does not see to the lowest number.
  Descriptor &masked(Descriptor &x) {
    if (!s.causal)
      return x;
    Descriptor &row = scores(CUDNN_DATA_INT32);
    Descriptor &column = scores(CUDNN_DATA_INT32);
    Descriptor &seen = scores(CUDNN_DATA_BOOLEAN);
    Descriptor &made = scores();
    pointwise(CUDNN_POINTWISE_GEN_INDEX, x, nullptr, nullptr, row, 2);
    pointwise(CUDNN_POINTWISE_GEN_INDEX, x, nullptr, nullptr, column, 3);
    pointwise(CUDNN_POINTWISE_CMP_GE, row, &column, nullptr, seen);
    pointwise(CUDNN_POINTWISE_BINARY_SELECT, x, &scalar(Lowest), &seen, made);
    return made;
  }

private:
  const AttentionShape &s;
  const Dimensions perRow, perScore;
};

std::unique_ptr<Descriptor>
forwardPlan(const AttentionShape &s, cudnnHandle_t handle, uint64_t workspace) {
  AttentionGraph graph(s);
  Descriptor &q = graph.queries(Q, s.qStride);
  Descriptor &k = graph.keysAcross(K, s.kStride);
  Descriptor &v = graph.keys(V, s.vStride);
  Descriptor &o = graph.queries(O, s.heads * s.headDim);
  Descriptor &lse = graph.statistics(Lse);
  Descriptor &scaled = graph.scoresOf(
      CUDNN_POINTWISE_MUL, graph.productOf(q, k), &graph.scalar(ScaleFactor));
  Descriptor &seen = graph.masked(scaled);
  Descriptor &maximum = graph.rows(), &sum = graph.rows(),
             &logarithm = graph.rows();
  Descriptor &weights = graph.scores(CUDNN_DATA_BFLOAT16);
  graph.reduce(CUDNN_REDUCE_TENSOR_MAX, seen, maximum);
  Descriptor &distance = graph.scoresOf(CUDNN_POINTWISE_SUB, seen, &maximum);
  Descriptor &power = graph.scoresOf(CUDNN_POINTWISE_EXP, distance);
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
    float scale = shape.scale, lowest = -FLT_MAX;
    std::vector<int64_t> numbers;
    std::vector<void *> addresses;
    uintptr_t bits = 0;
    auto pass = [&](Tensor number, const void *address) {
      numbers.push_back(number);
      addresses.push_back(const_cast<void *>(address));
    };
    auto array = [&](Tensor number, const void *address) {
      pass(number, address);
      bits |= reinterpret_cast<uintptr_t>(address);
    };
    array(Q, a.q);
    array(K, a.k);
    array(V, a.v);
    array(O, a.o);
    array(Lse, a.lse);
    if (!plan || bits % 16)
      return false;
    pass(ScaleFactor, &scale);
    if (shape.causal)
      pass(Lowest, &lowest);
    try {
      execute(queue, *plan, numbers, addresses);
      return true;
    } catch (const Unsupported &why) {
      // Nothing was put on the stream; our own kernels do the work from here
      // on.
      std::fprintf(stderr, "%s: '%s' goes without cuDNN\n", why.what(),
                   queue.opName ? queue.opName : "attention");
      plans[shape] = nullptr;
      return false;
    }
  }

private:
  void execute(const Queue &queue, Descriptor &plan,
               const std::vector<int64_t> &numbers,
               const std::vector<void *> &addresses) {
    check(dnn().setStream(handle, queue.stream), "cudnnSetStream");
    Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
             numbers.data(), int64_t(numbers.size()))
        .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
             addresses.data(), int64_t(addresses.size()))
        .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR,
             queue.workspace);
    pack.finalize("the addresses of attention");
    check(dnn().execute(handle, plan.get(), pack.get()), "cudnnBackendExecute");
  }

  /// Whether the graph is meant for such a shape. Its mask begins at the first
  /// key, ours ends at the last; it has no window. What fills no tile of 128
  /// rows makes it read what stands behind the end, with weights of zero: zero
  /// times whatever that is.
  static bool mayDo(const AttentionShape &s) {
    return !s.window && (!s.causal || s.queryRows == s.keyRows) &&
           s.queryRows % 128 == 0 && s.keyRows % 128 == 0;
  }

  /// Null where the library has none.
  Descriptor *planOf(const AttentionShape &s) {
    auto found = plans.find(s);
    if (found != plans.end())
      return found->second.get();
    std::unique_ptr<Descriptor> plan;
    if (mayDo(s))
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
