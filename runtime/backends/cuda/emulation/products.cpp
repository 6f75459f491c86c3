//===- products.cpp - A library of products for tests ---------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// GRT_CUDA_PRODUCTS=loops: what products.h promises, in plain loops and f64,
// and refused where cublaslt.cpp would refuse. It shows that calls reach a
// library with the right matrices and fall back where it declines; what the
// real one does with them only a device can show.
//
//===----------------------------------------------------------------------===//

#include "products.h"

#include "portable.h"

#include <cmath>
#include <cstdlib>
#include <cstring>

namespace grt::cuda {
namespace {

double load(const void *array, uint32_t dtype, int64_t i) {
  if (dtype == GRT_F64)
    return static_cast<const double *>(array)[i];
  if (dtype == GRT_F32)
    return static_cast<const float *>(array)[i];
  return wide(static_cast<const BF16 *>(array)[i]);
}

void store(void *array, uint32_t dtype, int64_t i, double x) {
  if (dtype == GRT_F64)
    static_cast<double *>(array)[i] = x;
  else if (dtype == GRT_F32)
    static_cast<float *>(array)[i] = float(x);
  else
    static_cast<BF16 *>(array)[i] = narrow<BF16>(float(x));
}

/// The tanh form, and its slope.
double gelu(double x, double *slope = nullptr) {
  const double a = std::sqrt(2 / M_PI), b = 0.044715;
  double t = std::tanh(a * (x + b * x * x * x));
  if (slope)
    *slope = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * a * (1 + 3 * b * x * x);
  return 0.5 * x * (1 + t);
}

class Loops : public Products {
public:
  bool prepare(const ProductShape &s) override {
    bool kept =
        s.epilogue == Epilogue::GeluKept || s.epilogue == Epilogue::GeluGrad;
    if (s.epilogue == Epilogue::BiasGrad)
      return s.result == GRT_F32;
    return s.epilogue == Epilogue::None || s.epilogue == Epilogue::Bias ||
           (s.dtype != GRT_F64 && (!kept || s.n % 8 == 0));
  }

  bool run(const Queue &, const ProductShape &s,
           const ProductBuffers &at) override {
    if (!prepare(s))
      return false;
    for (int64_t i = 0; i < s.m; ++i)
      for (int64_t j = 0; j < s.n; ++j) {
        const int64_t place = i * s.n + j;
        double x = s.add ? load(at.c, s.result, place) : 0;
        for (int64_t k = 0; k < s.k; ++k)
          x += load(at.a, s.dtype, s.transA ? k * s.m + i : i * s.k + k) *
               load(at.b, s.dtype, s.transB ? j * s.k + k : k * s.n + j);
        double slope = 1;
        if (s.epilogue == Epilogue::Bias || s.epilogue == Epilogue::Gelu ||
            s.epilogue == Epilogue::GeluKept)
          x += load(at.bias, s.dtype, j);
        if (s.epilogue == Epilogue::GeluKept)
          store(at.kept, s.dtype, place, x);
        if (s.epilogue == Epilogue::Gelu || s.epilogue == Epilogue::GeluKept)
          x = gelu(x);
        if (s.epilogue == Epilogue::GeluGrad)
          gelu(load(at.kept, s.dtype, place), &slope);
        store(at.c, s.result, place, x * slope);
      }
    for (int64_t j = 0; s.epilogue == Epilogue::BiasGrad && j < s.n; ++j) {
      double sum = s.add ? load(at.bias, s.result, j) : 0;
      for (int64_t k = 0; k < s.k; ++k)
        sum += load(at.b, s.dtype, k * s.n + j);
      store(at.bias, s.result, j, sum);
    }
    return true;
  }
};

} // namespace

std::unique_ptr<Products> openProducts() {
  const char *wish = std::getenv("GRT_CUDA_PRODUCTS");
  if (!wish || std::strcmp(wish, "loops"))
    return nullptr;
  return std::make_unique<Loops>();
}

} // namespace grt::cuda
