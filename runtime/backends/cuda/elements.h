//===- elements.h - Functions of one element ------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_CUDA_ELEMENTS_H
#define GRT_BACKENDS_CUDA_ELEMENTS_H

#include "portable.h"

#include "grt/abi.h"
#include "grt/philox.h"

namespace grt::cuda {

GRT_EVERYWHERE float exponential(float x) { return expf(x); }
GRT_EVERYWHERE double exponential(double x) { return exp(x); }
/// 2^x; the device's approximation is within 2^-22, and gives 0 below 2^-126.
GRT_EVERYWHERE float quickPower(float x) {
#ifdef __CUDA_ARCH__
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#else
  return exp2f(x);
#endif
}
/// 1 / x for x > 2^-126; the device's approximation is within 2^-23.
GRT_EVERYWHERE float quickInverse(float x) {
#ifdef __CUDA_ARCH__
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#else
  return 1 / x;
#endif
}
/// e^x of what was read in type T: for 16 bits, whose own error is 2^-9, in two
/// instructions.
template <class T>
GRT_EVERYWHERE Accumulator<T> exponentialFor(Accumulator<T> x) {
  if constexpr (sizeof(T) == 2)
    return quickPower(x * 1.44269504088896340736f);
  else
    return exponential(x);
}
GRT_EVERYWHERE float logarithm(float x) { return logf(x); }
GRT_EVERYWHERE double logarithm(double x) { return log(x); }
GRT_EVERYWHERE float hyperbolicTangent(float x) { return tanhf(x); }
GRT_EVERYWHERE double hyperbolicTangent(double x) { return tanh(x); }
GRT_EVERYWHERE float cosineOf(float x) { return cosf(x); }
GRT_EVERYWHERE double cosineOf(double x) { return cos(x); }
GRT_EVERYWHERE float sineOf(float x) { return sinf(x); }
GRT_EVERYWHERE double sineOf(double x) { return sin(x); }
GRT_EVERYWHERE float squareRoot(float x) { return sqrtf(x); }
GRT_EVERYWHERE double squareRoot(double x) { return sqrt(x); }

// gelu(x) = x * cdf(x); the tanh form has (1 + tanh u) / 2 = 1 / (1 + e^-2u)
// for cdf. `Quick` is for results of 8 bits: the device's approximate
// exponential and quotient are within 2^-20 and take a third of the
// instructions, without which the kernels would be bound by arithmetic.

struct GeluConstants {
  static constexpr double sqrtTwoOverPi = 0.79788456080286535588;
  static constexpr double cubic = 0.044715;
  static constexpr double sqrtHalf = 0.70710678118654752440;
  static constexpr double inverseSqrtTwoPi = 0.39894228040143267794;
};

template <bool Quick> GRT_EVERYWHERE float logistic(float minusX) {
#ifdef __CUDA_ARCH__
  if (Quick)
    return __fdividef(1.0f, 1.0f + __expf(minusX));
#endif
  return 1.0f / (1.0f + expf(minusX));
}
template <bool Quick> GRT_EVERYWHERE double logistic(double minusX) {
  return 1.0 / (1.0 + exp(minusX));
}

template <bool Quick, class A> GRT_EVERYWHERE A geluLogistic(A x) {
  constexpr A a = A(-2 * GeluConstants::sqrtTwoOverPi);
  constexpr A b = A(-2 * GeluConstants::sqrtTwoOverPi * GeluConstants::cubic);
  return logistic<Quick>(x * (x * x * b + a));
}

GRT_EVERYWHERE float normalDistribution(float x) {
  return 0.5f * erfcf(-x * float(GeluConstants::sqrtHalf));
}
GRT_EVERYWHERE double normalDistribution(double x) {
  return 0.5 * erfc(-x * GeluConstants::sqrtHalf);
}

/// The normal distribution at x, and exp(-x^2 / 2), which is its slope times
/// sqrt(2 pi).
template <class A> struct Normal {
  A cdf, bell;
};
template <bool Quick> GRT_EVERYWHERE Normal<float> normal(float x) {
  if (!Quick)
    return {normalDistribution(x), exponential(-0.5f * x * x)};
  // erfc(z) = t P(t) exp(-z^2) for z >= 0 with t = 1 / (1 + 0.4 z); P was
  // fitted at the Chebyshev nodes of [t(9.5), 1] and is within 4e-6 of the
  // exact quotient there. Some 17 instructions, a third of those of erfcf().
  const float z = fabsf(x) * float(GeluConstants::sqrtHalf);
  const float t = quickInverse(multiplyAdd(z, 0.4f, 1.0f));
  float p = -0.07637114947f;
  p = multiplyAdd(p, t, 0.1193820753f);
  p = multiplyAdd(p, t, 0.1636192004f);
  p = multiplyAdd(p, t, 0.1136566711f);
  p = multiplyAdd(p, t, 0.2329354417f);
  p = multiplyAdd(p, t, 0.220738377f);
  p = multiplyAdd(p, t, 0.2260377023f);
  const float bell = quickPower(x * x * -0.72134752044448170368f);
  const float tail = p * t * bell * 0.5f;
  return {x < 0 ? tail : 1.0f - tail, bell};
}
template <bool Quick> GRT_EVERYWHERE Normal<double> normal(double x) {
  return {normalDistribution(x), exponential(-0.5 * x * x)};
}

template <bool Quick, class A> GRT_EVERYWHERE A gelu(A x, bool approximate) {
  return x * (approximate ? geluLogistic<Quick>(x) : normal<Quick>(x).cdf);
}

/// The slope of gelu at x.
template <bool Quick, class A>
GRT_EVERYWHERE A geluSlope(A x, bool approximate) {
  if (!approximate) {
    const Normal<A> at = normal<Quick>(x);
    return at.cdf + x * at.bell * A(GeluConstants::inverseSqrtTwoPi);
  }
  constexpr A a = A(2 * GeluConstants::sqrtTwoOverPi);
  constexpr A b = A(6 * GeluConstants::sqrtTwoOverPi * GeluConstants::cubic);
  A s = geluLogistic<Quick>(x);
  return s + x * s * (A(1) - s) * (x * x * b + a);
}

/// The numbers that one update of an element needs; see Optimizer.
template <class A> struct UpdateNumbers {
  A clip, decay, momentum, rate;
  A keep1, take1, keep2, take2, shrink, coupled, rootScale, eps;
};

/// Updates one element in PyTorch's form (torch.optim.SGD, Adam, AdamW): weight
/// decay is added to the gradient for SGD and Adam and is decoupled for AdamW;
/// epsilon is added after the square root.
template <class A>
GRT_EVERYWHERE UpdateNumbers<A> updateNumbers(const grt_step &step, bool sgd,
                                              bool decoupled, bool decays) {
  UpdateNumbers<A> u = {};
  double decay = decays ? step.weight_decay : 0;
  u.clip = A(step.clip_factor);
  u.decay = A(decay);
  if (sgd) {
    u.momentum = A(step.momentum);
    u.rate = A(step.learning_rate);
    return u;
  }
  double correction1 = 1 - pow(step.beta1, double(step.step));
  double correction2 = 1 - pow(step.beta2, double(step.step));
  u.keep1 = A(step.beta1);
  u.take1 = A(1 - step.beta1);
  u.keep2 = A(step.beta2);
  u.take2 = A(1 - step.beta2);
  u.shrink = decoupled ? A(1 - step.learning_rate * decay) : A(1);
  u.coupled = decoupled ? A(0) : u.decay;
  u.rate = A(step.learning_rate / correction1);
  u.rootScale = A(1 / sqrt(correction2));
  u.eps = A(step.eps);
  return u;
}

template <class A>
GRT_EVERYWHERE void updateSgd(const UpdateNumbers<A> &u, A &p, A g,
                              A &velocity) {
  g = g * u.clip + p * u.decay;
  velocity = velocity * u.momentum + g;
  p = p - velocity * u.rate;
}
template <class A>
GRT_EVERYWHERE void updateAdam(const UpdateNumbers<A> &u, A &p, A g, A &m,
                               A &v) {
  g = g * u.clip + p * u.coupled;
  m = m * u.keep1 + g * u.take1;
  v = v * u.keep2 + g * g * u.take2;
  p = p * u.shrink - m * u.rate / (squareRoot(v) * u.rootScale + u.eps);
}

} // namespace grt::cuda

#endif // GRT_BACKENDS_CUDA_ELEMENTS_H
