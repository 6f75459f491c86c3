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

/// One product: shapes, what is transposed, what happens to c, and types.
struct ProductShape {
  int64_t m, n, k;
  bool transA, transB, bias, add;
  uint32_t dtype;  ///< of a, b and the bias
  uint32_t result; ///< of c
  /// What the addresses of a, b, c and the bias are multiples of.
  uint32_t alignment;
  bool operator<(const ProductShape &other) const;
};

/// Products by a library, algorithms chosen once per shape.
class Products {
public:
  virtual ~Products() = default;
  /// Chooses the algorithm for a shape.
  virtual void prepare(const ProductShape &shape) = 0;
  /// c = op(a) op(b) (+ c) (+ bias). False, and nothing is done, where the
  /// library has no algorithm within the workspace.
  virtual bool run(const Queue &queue, const ProductShape &shape, const void *a,
                   const void *b, void *c, const void *bias) = 0;
};

/// Throws where the library cannot be loaded; null where there is none to load
/// (tests on the CPU) or GRT_CUDA_PRODUCTS is `own`.
std::unique_ptr<Products> openProducts();

} // namespace grt::cuda

#endif // GRT_BACKENDS_CUDA_PRODUCTS_H
