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

namespace grt::cuda {

/// What a product does besides. GELUs have the tanh form.
enum class Epilogue : uint8_t {
  None,
  Bias,     ///< c += bias
  Gelu,     ///< c = gelu(c + bias)
  GeluKept, ///< the same, and kept = c + bias
  GeluGrad, ///< c *= gelu'(kept)
  BiasGrad  ///< bias (+)= the sum over rows of b, in the type of c
};

/// One product: shapes, what is transposed, what happens to c, and types.
struct ProductShape {
  int64_t m, n, k;
  bool transA, transB, add;
  Epilogue epilogue;
  uint32_t dtype;  ///< of a, b, a bias that is read, and `kept`
  uint32_t result; ///< of c, and of a bias that is written
  /// What the addresses of all buffers are multiples of.
  uint32_t alignment;
  bool operator<(const ProductShape &other) const;
};

/// Where its matrices are; what the epilogue does not name is null.
struct ProductBuffers {
  const void *a, *b;
  void *c;
  void *bias; ///< [n]
  void *kept; ///< as c
};

/// Products by a library, algorithms chosen once per shape.
class Products {
public:
  virtual ~Products() = default;
  /// Chooses the algorithm for a shape. False where the library has none within
  /// the workspace.
  virtual bool prepare(const ProductShape &shape) = 0;
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
