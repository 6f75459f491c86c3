//===- onednn_gemm.cpp - Products through oneDNN --------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// oneDNN 2.6 and later (matmul with plain layouts). The scratchpad is the
// call's scratch, so that a step allocates nothing once every shape is
// prepared, but for the few hundred bytes of argument tables that oneDNN makes
// and frees in every call. What a primitive wants depends on its threads. Where
// that is more than the call has, a product in bf16 gets fewer threads, for
// oneDNN is several times as fast there as the backend's own code, and one in
// f32 is left to that. Only its "brg:..." implementations are used (AVX-512;
// for bf16 with the instructions for it, AMX where there is some). Those named
// "gemm:..." pack operands in memory of their own in every call, and "ref:..."
// is slow: such products are left to the backend's own code.
//
//===----------------------------------------------------------------------===//

#include "rank.h"
#include "team.h"

#include <oneapi/dnnl/dnnl.hpp>

#include <bit>
#include <functional>
#include <string_view>
#include <unordered_map>

namespace grt::cpu {

namespace {

struct ShapeHash {
  size_t operator()(const GemmShape &s) const {
    size_t hash = 0;
    for (int64_t part :
         {s.m, s.n, s.k,
          int64_t(s.transA) | int64_t(s.transB) << 1 | int64_t(s.bias) << 2 |
              int64_t(s.add) << 3 | int64_t(s.narrow) << 4 |
              int64_t(s.narrowResult) << 5})
      hash =
          (hash ^ std::hash<int64_t>()(part)) * size_t(0x9E3779B97F4A7C15ull);
    return hash;
  }
};

/// A primitive with its arguments; running it sets four or five addresses.
struct Product {
  int threads = 1;
  bool refused = false; ///< not for oneDNN; nothing else is set
  uint64_t scratchBytes = 0;
  dnnl::matmul primitive;
  dnnl::memory a, b, c, bias, scratch;
  std::unordered_map<int, dnnl::memory> arguments;
};

/// Sets this thread's number of threads for OpenMP's library and oneDNN, for a
/// scope.
class TeamSize {
public:
  explicit TeamSize(int threads) : before(grt_cpu_team_size()) {
    if (threads != before)
      grt_cpu_team_set_size(threads);
  }
  ~TeamSize() {
    if (grt_cpu_team_size() != before)
      grt_cpu_team_set_size(before);
  }
  TeamSize(const TeamSize &) = delete;
  TeamSize &operator=(const TeamSize &) = delete;

private:
  int before;
};

} // namespace

struct OneDnnGemm::Implementation {
  explicit Implementation(int threads)
      : threads(threads), engine(dnnl::engine::kind::cpu, 0), stream(engine) {}

  int threads;
  dnnl::engine engine;
  dnnl::stream stream;
  std::unordered_map<GemmShape, Product, ShapeHash> products;

  Product make(const GemmShape &shape, uint64_t scratchBytes);
  Product &product(const GemmShape &shape, uint64_t scratchBytes);
};

/// oneDNN reads the rows of b in place. Where they lie whole pages apart they
/// share few sets of the cache: measured 47 GFLOP/s for 256x3072x768 in f32,
/// where the backend's own code, which packs, has 92. (It copies b itself where
/// the distance is a power of two, where b is transposed, and in bf16.)
static bool rowsCollide(const GemmShape &s) {
  constexpr uint64_t page = 4096;
  uint64_t distance = uint64_t(s.n) * sizeof(float);
  return !s.narrow && !s.transB && distance % page == 0 &&
         !std::has_single_bit(distance);
}

Product OneDnnGemm::Implementation::make(const GemmShape &s,
                                         uint64_t scratchBytes) {
  using dnnl::memory;
  auto describe = [&](int64_t rows, int64_t cols, bool transposed,
                      bool narrow) {
    return memory::desc(
        {rows, cols}, narrow ? memory::data_type::bf16 : memory::data_type::f32,
        transposed ? memory::dims{1, rows} : memory::dims{cols, 1});
  };
  memory::desc a = describe(s.m, s.k, s.transA, s.narrow);
  memory::desc b = describe(s.k, s.n, s.transB, s.narrow);
  memory::desc c = describe(s.m, s.n, false, s.narrowResult);
  memory::desc bias = describe(1, s.n, false, s.narrow);

  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (s.add) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attributes.set_post_ops(sum);
  }
  dnnl::matmul::desc description =
      s.bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
  Product product;
  if (rowsCollide(s)) {
    product.refused = true;
    return product;
  }
  dnnl::matmul::primitive_desc chosen;
  for (int team = s.threadsOf(threads);; team = (team + 1) / 2) {
    // A primitive is made for the team size of the moment.
    TeamSize size(team);
    chosen = {description, attributes, engine, /*allow_empty=*/true};
    std::string_view name = chosen ? chosen.impl_info_str() : "";
    if (!name.starts_with("brg")) {
      product.refused = true;
      return product;
    }
    product.threads = team;
    product.scratchBytes = chosen.scratchpad_desc().get_size();
    if (product.scratchBytes <= scratchBytes)
      break;
    if (!s.narrow || team == 1) {
      product.refused = true;
      return product;
    }
  }
  TeamSize size(product.threads);
  product.primitive = dnnl::matmul(chosen);
  product.a = memory(a, engine, DNNL_MEMORY_NONE);
  product.b = memory(b, engine, DNNL_MEMORY_NONE);
  product.c = memory(c, engine, DNNL_MEMORY_NONE);
  product.scratch = memory(chosen.scratchpad_desc(), engine, DNNL_MEMORY_NONE);
  product.arguments = {{DNNL_ARG_SRC, product.a},
                       {DNNL_ARG_WEIGHTS, product.b},
                       {DNNL_ARG_DST, product.c},
                       {DNNL_ARG_SCRATCHPAD, product.scratch}};
  if (s.bias) {
    product.bias = memory(bias, engine, DNNL_MEMORY_NONE);
    product.arguments.insert({DNNL_ARG_BIAS, product.bias});
  }
  return product;
}

Product &OneDnnGemm::Implementation::product(const GemmShape &shape,
                                             uint64_t scratchBytes) {
  auto found = products.find(shape);
  if (found == products.end())
    found = products.emplace(shape, make(shape, scratchBytes)).first;
  return found->second;
}

OneDnnGemm::OneDnnGemm(int threads)
    : implementation(std::make_unique<Implementation>(threads)) {}

OneDnnGemm::~OneDnnGemm() = default;

void OneDnnGemm::prepare(const GemmShape &shape, uint64_t scratchBytes) {
  implementation->product(shape, scratchBytes);
}

bool OneDnnGemm::run(const GemmShape &shape, const void *a, const void *b,
                     void *c, const void *bias, Scratch scratch) {
  Implementation &self = *implementation;
  Product &product = self.product(shape, scratch.bytes);
  // Another call of the same shape may have had more.
  if (product.refused || product.scratchBytes > scratch.bytes)
    return false;
  product.a.set_data_handle(const_cast<void *>(a));
  product.b.set_data_handle(const_cast<void *>(b));
  product.c.set_data_handle(c);
  if (shape.bias)
    product.bias.set_data_handle(const_cast<void *>(bias));
  product.scratch.set_data_handle(scratch.memory);
  TeamSize team(product.threads);
  product.primitive.execute(self.stream, product.arguments);
  self.stream.wait();
  return true;
}

} // namespace grt::cpu
