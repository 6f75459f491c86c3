//===- products.h - Products through cuBLASLt -----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_CUDA_PRODUCTS_H
#define GRT_BACKENDS_CUDA_PRODUCTS_H

#include "kernels.h"

#include <memory>
#include <string>
#include <tuple>
#include <vector>

namespace grt::cuda {

/// The work that a product does besides. GELUs have the tanh form.
enum class Epilogue : uint8_t {
  None,
  Bias,     ///< c += bias
  Gelu,     ///< c = gelu(c + bias)
  GeluKept, ///< the same, and kept = c + bias
  GeluGrad, ///< c *= gelu'(kept)
  BiasGrad  ///< bias (+)= the sum over rows of b, in the type of c
};

/// The shape of one product: sizes, what is transposed, what happens to c, and
/// types.
struct ProductShape {
  int64_t m, n, k;
  bool transA, transB, add;
  Epilogue epilogue;
  uint32_t dtype;  ///< of a, b, a bias that is read, and `kept`
  uint32_t result; ///< of c, and of a bias that is written
  /// The number that the addresses of all buffers are multiples of.
  uint32_t alignment;
  bool operator<(const ProductShape &other) const {
    auto key = [](const ProductShape &s) {
      return std::tuple(s.m, s.n, s.k, s.transA, s.transB, s.add, s.epilogue,
                        s.dtype, s.result, s.alignment);
    };
    return key(*this) < key(other);
  }
};

/// The addresses of its matrices; what the epilogue does not name is null.
struct ProductBuffers {
  const void *a, *b;
  void *c;
  void *bias; ///< [n]
  void *kept; ///< as c
};

/// An algorithm as a library keeps it, to be taken again by the same version.
struct Algorithm {
  uint64_t data[8];
  uint64_t workspace; ///< bytes
};

/// Products by a library, algorithms chosen once per shape.
class Products {
public:
  virtual ~Products() = default;
  /// Chooses the algorithm for a shape. False where the library has none within
  /// the workspace.
  virtual bool prepare(const ProductShape &shape) = 0;
  /// The algorithms that the library names for a shape within the workspace, at
  /// most `mostCandidates`, in the order of the times it expects; empty where
  /// it has none, or names none.
  virtual std::vector<Algorithm> candidates(const ProductShape &) { return {}; }
  static constexpr int mostCandidates = 8;
  /// Runs a shape by this algorithm from here on, or, with null, not at all.
  /// False, and none is taken, where the library cannot run it.
  virtual bool take(const ProductShape &, const Algorithm *) { return false; }
  /// Returns the library and version that algorithms belong to: "cuBLASLt
  /// 130100".
  virtual std::string version() const { return ""; }
  /// c = op(a) op(b) (+ c), and the epilogue. False, and nothing is done, where
  /// there is no algorithm, or the library refuses it when it is run: then, and
  /// ever after.
  virtual bool run(const Queue &queue, const ProductShape &shape,
                   const ProductBuffers &buffers) = 0;
};

/// Throws where the library cannot be loaded; null where there is none to load
/// (tests on the CPU) or GRT_CUDA_PRODUCTS is `own`.
std::unique_ptr<Products> openProducts();

} // namespace grt::cuda

#endif // GRT_BACKENDS_CUDA_PRODUCTS_H
