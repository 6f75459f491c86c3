//===- harness.h - Calls kernels of a backend under test ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The suite loads a backend by path (`--backend=PATH`, default libgrt_cpu.so
// beside the test) and holds every kernel of the list against naive loops in
// f64. Memory comes from the backend. Where it is a device's, buffers have a
// copy on the host, which goes there when it was written and is fetched when it
// is read after a call.
//
// Every buffer stands between guard zones that are checked after each call, and
// what a kernel must write is filled with NaN before it.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CONFORMANCE_KERNELS_HARNESS_H
#define GRT_CONFORMANCE_KERNELS_HARNESS_H

#include "grt/backend.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

namespace grt::conformance {

using Values = std::vector<double>;
/// A rank's block of the rows of `values`, which all have one size; with
/// `balanced` a piece from the front and the one that mirrors it, half as large
/// each.
Values blockOfRows(const Values &values, int64_t rank, int64_t ranks,
                   bool balanced);
using Integers = std::vector<int64_t>;

/// The backend under test; loaded by main.
const grt_backend &backend();
void loadBackend(const std::string &path);

/// `value` as an element of that type holds it.
double rounded(double value, grt_dtype dtype);

/// Deterministic numbers in [-scale, scale), each exact in f32 (12 bits), and
/// in bf16 where that is the type under test.
class Random {
public:
  explicit Random(uint64_t seed) : state(seed * 2654435761u + 1) {}
  /// The type in which the numbers of all generators must be exact.
  static void setType(grt_dtype dtype);
  uint32_t bits();
  double real(double scale = 1);
  int64_t integer(int64_t low, int64_t high); ///< in [low, high)
  Values values(int64_t count, double scale = 1, double offset = 0);

private:
  uint64_t state;
};

/// One array in the backend's memory, of any element type.
class Buffer {
public:
  Buffer(grt_dtype dtype, int64_t count);
  ~Buffer();
  Buffer(const Buffer &) = delete;
  Buffer &operator=(const Buffer &) = delete;

  void fill(const Values &values);
  void poison(); ///< all bytes 0xff: NaN in every float type
  /// All bytes, as they are.
  void write(const void *from);
  void readInto(void *to) const;
  Values read() const;
  double at(int64_t i) const;
  /// The arguments of a kernel.
  void *data() const { return memory + guardBytes; }
  uint64_t bytes() const;
  grt_dtype dtype() const { return type; }
  int64_t count() const { return elements; }
  bool guardsIntact() const;

private:
  static constexpr uint64_t guardBytes = 256;
  uint64_t allBytes() const { return bytes() + 2 * guardBytes; }
  /// The elements on the host, up to date.
  void *onHost() const;
  void send();
  void fetch() const;

  char *memory;
  char *host;                   ///< `memory`, or a copy of it
  mutable uint64_t fetched = 0; ///< calls that the copy has seen
  grt_dtype type;
  int64_t elements;
};

/// A buffer argument: where it starts and how far it reaches.
struct Argument {
  Buffer *buffer;
  int64_t firstElement = 0;
  Argument(Buffer &buffer, int64_t firstElement = 0)
      : buffer(&buffer), firstElement(firstElement) {}
};

/// A rank with its coordinates and step block, on the calling thread.
class Device {
public:
  explicit Device(int threads);
  ~Device();
  Device(const Device &) = delete;
  Device &operator=(const Device &) = delete;

  grt_coordinates at;
  grt_step step;
  bool accumulate = false;

  /// Runs a kernel; expects success and intact guards.
  void run(grt_kernel kernel, const std::vector<Argument> &buffers,
           const Integers &ints, const Values &reals = {});
  /// Runs a kernel that must fail; returns its message.
  std::string refused(grt_kernel kernel, const std::vector<Argument> &buffers,
                      const Integers &ints, const Values &reals = {});

private:
  int32_t call(grt_kernel kernel, const std::vector<Argument> &buffers,
               const Integers &ints, const Values &reals, bool prepare,
               std::string &message);
  void *state;
  std::unique_ptr<Buffer> stepOnDevice; ///< null where the host's will do
};

/// The most threads that the suites give a rank.
inline constexpr int mostThreads = 3;

/// Bytes of `scratch` that the backend under test asks of ATTENTION or, with
/// `biased`, BIASED_ATTENTION, and of their gradients, with as many threads.
uint64_t attentionScratchBytes(int64_t samples, int64_t tq, int64_t tk,
                               int64_t heads, int64_t kvHeads, int64_t headDim,
                               uint32_t elementBytes, bool backward,
                               bool biased);

/// The same of WINDOW_ATTENTION and its gradient; `windows` counts those of all
/// samples.
uint64_t windowScratchBytes(int64_t windows, int64_t window, int64_t heads,
                            int64_t headDim, uint32_t elementBytes,
                            bool backward);

/// The suites run for every element type and for one and several threads.
class KernelTest : public testing::TestWithParam<std::tuple<grt_dtype, int>> {
protected:
  KernelTest() : device(std::get<1>(GetParam())) { Random::setType(dtype()); }

  grt_dtype dtype() const { return std::get<0>(GetParam()); }
  grt_dtype accumulator() const {
    return dtype() == GRT_F64 ? GRT_F64 : GRT_F32;
  }
  /// A buffer of the compute type holding `values`.
  std::unique_ptr<Buffer> input(const Values &values) const;
  std::unique_ptr<Buffer> integers(const Values &values) const;
  /// A poisoned buffer of the compute, or the accumulator type.
  std::unique_ptr<Buffer> output(int64_t count) const;
  std::unique_ptr<Buffer> sums(int64_t count) const;
  std::unique_ptr<Buffer> sums(const Values &values) const;

  /// `values` as the compute type holds them.
  Values rounded(Values values) const;

  /// |found - expected| <= tolerance * (largest |expected| + floor), element by
  /// element; the tolerance is `f32` or `f64` as the type under test says. bf16
  /// has that of f32, and the rounding of a result: 2^-8 of the element; and
  /// the same of each of `onTheWay`, numbers that may have been stored in 16
  /// bits before the result was made of them.
  void expectNear(const Values &found, const Values &expected,
                  const std::string &what, double f32 = 2e-6,
                  double f64 = 1e-13, double floor = 1e-3,
                  const Values &onTheWay = {}) const;
  void expectSame(const Values &found, const Values &expected,
                  const std::string &what) const;

  Device device;
};

/// "bf16_threads3"
std::string
instanceName(const testing::TestParamInfo<KernelTest::ParamType> &info);

/// Instantiates a suite derived from KernelTest.
#define GRT_KERNEL_SUITE(SUITE)                                                \
  INSTANTIATE_TEST_SUITE_P(                                                    \
      Backend, SUITE,                                                          \
      testing::Combine(testing::Values(GRT_F32, GRT_F64, GRT_BF16),            \
                       testing::Values(1, mostThreads)),                       \
      instanceName)

} // namespace grt::conformance

#endif // GRT_CONFORMANCE_KERNELS_HARNESS_H
