//===- harness.cpp - Calls kernels of a backend under test ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "harness.h"

#include "core/backend_table.h"
#include "grt/cpu_bounds.h"
#include "grt/cuda_bounds.h"
#include "grt/kernel_checks.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <dlfcn.h>
#include <stdexcept>

namespace grt::conformance {

namespace {
const grt_backend *loaded = nullptr;
constexpr unsigned char guardByte = 0xa5;

/// Kernel calls so far: what was fetched before the last is stale.
std::atomic<uint64_t> calls{1};

/// Copies to and from a device, on a rank for nothing else. Done on return.
void copyAndWait(void *to, const void *from, uint64_t bytes) {
  static void *rank = backend().create_rank(0, 1);
  const grt_device &device = *backend().device;
  char message[256] = "";
  if (device.copy(rank, GRT_STREAM_IN, to, from, bytes, message,
                  sizeof(message)) != 0 ||
      device.synchronise(rank, GRT_STREAM_IN, message, sizeof(message)) != 0)
    throw std::runtime_error(message);
}

grt_dtype exactIn = GRT_F32;

/// Rounding is to the nearest, ties to even.
uint16_t toBF16(double value) {
  uint32_t bits = std::bit_cast<uint32_t>(float(value));
  if (std::isnan(value))
    return uint16_t(bits >> 16 | 0x40u);
  return uint16_t((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
double fromBF16(uint16_t bits) {
  return double(std::bit_cast<float>(uint32_t(bits) << 16));
}

uint64_t elementBytes(grt_dtype dtype) {
  switch (dtype) {
  case GRT_F64:
    return 8;
  case GRT_BF16:
    return 2;
  case GRT_U8:
    return 1;
  default:
    return 4;
  }
}
} // namespace

const grt_backend &backend() { return *loaded; }

void loadBackend(const std::string &path) {
  void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library)
    throw std::runtime_error(dlerror());
  auto get = reinterpret_cast<const grt_backend *(*)()>(
      dlsym(library, "grt_backend_get"));
  if (!get)
    throw std::runtime_error("'" + path + "' does not export grt_backend_get");
  static const BackendTable table(*get());
  loaded = &*table;
}

double rounded(double value, grt_dtype dtype) {
  return dtype == GRT_F64   ? value
         : dtype == GRT_F32 ? double(float(value))
                            : fromBF16(toBF16(value));
}

void Random::setType(grt_dtype dtype) { exactIn = dtype; }

uint32_t Random::bits() {
  state = state * 6364136223846793005ull + 1442695040888963407ull;
  return uint32_t(state >> 33) * 2u ^ uint32_t(state >> 17);
}

double Random::real(double scale) {
  return scale * (double(bits() >> 20) / 2048.0 - 1.0);
}

int64_t Random::integer(int64_t low, int64_t high) {
  return low + int64_t(bits() % uint64_t(high - low));
}

Values Random::values(int64_t count, double scale, double offset) {
  Values result;
  for (int64_t i = 0; i < count; ++i)
    result.push_back(rounded(double(float(offset + real(scale))), exactIn));
  return result;
}

Buffer::Buffer(grt_dtype dtype, int64_t count) : type(dtype), elements(count) {
  memory = static_cast<char *>(backend().allocate(allBytes()));
  host = backend().device
             ? static_cast<char *>(backend().device->allocate_host(allBytes()))
             : memory;
  if (!memory || !host)
    throw std::bad_alloc();
  std::memset(host, guardByte, allBytes());
  send();
}

Buffer::~Buffer() {
  if (host != memory)
    backend().device->release_host(host, allBytes());
  backend().release(memory, allBytes());
}

void Buffer::send() {
  if (host != memory)
    copyAndWait(memory, host, allBytes());
  fetched = calls;
}

void Buffer::fetch() const {
  if (host == memory || fetched == calls)
    return;
  uint64_t now = calls;
  copyAndWait(host, memory, allBytes());
  fetched = now;
}

void *Buffer::onHost() const {
  fetch();
  return host + guardBytes;
}

uint64_t Buffer::bytes() const {
  return uint64_t(elements) * elementBytes(type);
}

void Buffer::fill(const Values &values) {
  ASSERT_EQ(int64_t(values.size()), elements);
  void *data = onHost();
  for (int64_t i = 0; i < elements; ++i)
    switch (type) {
    case GRT_F32:
      static_cast<float *>(data)[i] = float(values[i]);
      break;
    case GRT_F64:
      static_cast<double *>(data)[i] = values[i];
      break;
    case GRT_BF16:
      static_cast<uint16_t *>(data)[i] = toBF16(values[i]);
      break;
    case GRT_I32:
      static_cast<int32_t *>(data)[i] = int32_t(values[i]);
      break;
    default:
      static_cast<unsigned char *>(data)[i] = (unsigned char)(values[i]);
    }
  send();
}

void Buffer::poison() {
  std::memset(onHost(), 0xff, bytes());
  send();
}

double Buffer::at(int64_t i) const {
  void *data = onHost();
  switch (type) {
  case GRT_F32:
    return static_cast<float *>(data)[i];
  case GRT_F64:
    return static_cast<double *>(data)[i];
  case GRT_BF16:
    return fromBF16(static_cast<uint16_t *>(data)[i]);
  case GRT_I32:
    return static_cast<int32_t *>(data)[i];
  default:
    return static_cast<unsigned char *>(data)[i];
  }
}

void Buffer::write(const void *from) {
  std::memcpy(onHost(), from, bytes());
  send();
}

void Buffer::readInto(void *to) const { std::memcpy(to, onHost(), bytes()); }

Values Buffer::read() const {
  Values result;
  for (int64_t i = 0; i < elements; ++i)
    result.push_back(at(i));
  return result;
}

bool Buffer::guardsIntact() const {
  fetch();
  for (uint64_t i = 0; i < guardBytes; ++i)
    if ((unsigned char)(host[i]) != guardByte ||
        (unsigned char)(host[guardBytes + bytes() + i]) != guardByte)
      return false;
  return true;
}

Values blockOfRows(const Values &values, int64_t rank, int64_t ranks,
                   bool balanced) {
  const int64_t pieces = balanced ? 2 * ranks : ranks;
  const int64_t count = int64_t(values.size()) / pieces;
  auto piece = [&](int64_t number) { return values.begin() + number * count; };
  Values block(piece(rank), piece(rank + 1));
  if (balanced)
    block.insert(block.end(), piece(pieces - 1 - rank), piece(pieces - rank));
  return block;
}

Device::Device(int threads) : state(backend().create_rank(0, threads)) {
  at = {};
  at.dp_size = at.sdp_size = at.tp_size = at.block_count = 1;
  step = {};
  step.step = 1;
  step.seed = 42;
  step.learning_rate = 0.01;
  step.beta1 = 0.9;
  step.beta2 = 0.95;
  step.eps = 1e-8;
  step.clip_factor = 1;
  step.inverse_tokens = 1;
  if (!state)
    throw std::runtime_error(backend().failure ? backend().failure()
                                               : "no rank");
  if (backend().device)
    stepOnDevice = std::make_unique<Buffer>(GRT_U8, int64_t(sizeof(grt_step)));
}

Device::~Device() { backend().destroy_rank(state); }

int32_t Device::call(grt_kernel kernel, const std::vector<Argument> &buffers,
                     const Integers &ints, const Values &reals, bool prepare,
                     std::string &message) {
  std::vector<grt_buffer> descriptors;
  std::vector<void *> addresses;
  for (const Argument &argument : buffers) {
    uint64_t offset = uint64_t(argument.firstElement) *
                      elementBytes(argument.buffer->dtype());
    descriptors.push_back({GRT_REGION_TRANSIENT,
                           uint32_t(argument.buffer->dtype()), 0,
                           argument.buffer->bytes() - offset});
    addresses.push_back(static_cast<char *>(argument.buffer->data()) + offset);
  }
  grt_kernel_op op = {uint32_t(kernel),      uint32_t(buffers.size()),
                      uint32_t(ints.size()), uint32_t(reals.size()),
                      descriptors.data(),    ints.data(),
                      reals.data(),          "test"};
  char text[256] = "";
  // A kernel may be called as the list of kernels says.
  if (prepare) {
    EXPECT_EQ(wrongWith(op, kernelForms[kernel].name, /*ofPrograms=*/false),
              "");
  }
  if (prepare && backend().prepare) {
    EXPECT_EQ(backend().prepare(state, &op, text, sizeof(text)), 0) << text;
  }
  grt_step *stepBlock = &step;
  if (stepOnDevice) {
    stepBlock = static_cast<grt_step *>(stepOnDevice->data());
    stepOnDevice->write(&step);
  }
  grt_call call = {&op, addresses.data(), &at, stepBlock, accumulate, state};
  int32_t status = backend().kernels[kernel](&call, text, sizeof(text));
  ++calls;
  if (stepOnDevice) {
    // Faults that a kernel finds in its data are known when it is done.
    int32_t done = backend().device->synchronise(
        state, GRT_STREAM_COUNT, status == 0 ? text : nullptr,
        status == 0 ? sizeof(text) : 0);
    status = status != 0 ? status : done;
    stepOnDevice->readInto(&step);
  }
  message = text;
  for (const Argument &argument : buffers)
    EXPECT_TRUE(argument.buffer->guardsIntact())
        << "kernel " << kernel << " wrote outside a buffer";
  return status;
}

void Device::run(grt_kernel kernel, const std::vector<Argument> &buffers,
                 const Integers &ints, const Values &reals) {
  std::string message;
  EXPECT_EQ(call(kernel, buffers, ints, reals, true, message), 0) << message;
}

std::string Device::refused(grt_kernel kernel,
                            const std::vector<Argument> &buffers,
                            const Integers &ints, const Values &reals) {
  std::string message;
  EXPECT_NE(call(kernel, buffers, ints, reals, false, message), 0);
  return message;
}

uint64_t attentionScratchBytes(int64_t samples, int64_t tq, int64_t tk,
                               int64_t heads, int64_t kvHeads, int64_t headDim,
                               uint32_t elementBytes, bool backward,
                               bool biased) {
  if (backend().device) {
    uint64_t bytes = grt_cuda_attention_scratch_bytes(
        samples, tq, tk, heads, kvHeads, headDim, elementBytes, backward);
    if (biased)
      bytes += grt_cuda_bias_scratch_bytes(samples, tq, tk, heads, elementBytes,
                                           backward);
    return bytes;
  }
  uint64_t bytes =
      grt_cpu_attention_scratch_bytes(tq, tk, headDim, elementBytes, backward);
  if (biased)
    bytes += grt_cpu_bias_scratch_bytes(tq, tk, elementBytes, backward);
  return mostThreads * bytes;
}

uint64_t windowScratchBytes(int64_t windows, int64_t window, int64_t heads,
                            int64_t headDim, uint32_t elementBytes,
                            bool backward) {
  return backend().device ? grt_cuda_window_scratch_bytes(
                                windows, window, heads, elementBytes, backward)
                          : grt_cpu_window_scratch_bytes(windows, window, heads,
                                                         headDim, elementBytes,
                                                         backward, mostThreads);
}

std::unique_ptr<Buffer> KernelTest::input(const Values &values) const {
  auto buffer = std::make_unique<Buffer>(dtype(), int64_t(values.size()));
  buffer->fill(values);
  return buffer;
}

std::unique_ptr<Buffer> KernelTest::integers(const Values &values) const {
  auto buffer = std::make_unique<Buffer>(GRT_I32, int64_t(values.size()));
  buffer->fill(values);
  return buffer;
}

std::unique_ptr<Buffer> KernelTest::output(int64_t count) const {
  auto buffer = std::make_unique<Buffer>(dtype(), count);
  buffer->poison();
  return buffer;
}

std::unique_ptr<Buffer> KernelTest::sums(int64_t count) const {
  auto buffer = std::make_unique<Buffer>(accumulator(), count);
  buffer->poison();
  return buffer;
}

std::unique_ptr<Buffer> KernelTest::sums(const Values &values) const {
  auto buffer = std::make_unique<Buffer>(accumulator(), int64_t(values.size()));
  buffer->fill(values);
  return buffer;
}

std::string
instanceName(const testing::TestParamInfo<KernelTest::ParamType> &info) {
  auto [dtype, threads] = info.param;
  return std::string(dtype == GRT_F32   ? "f32"
                     : dtype == GRT_F64 ? "f64"
                                        : "bf16") +
         "_threads" + std::to_string(threads);
}

Values KernelTest::rounded(Values values) const {
  for (double &value : values)
    value = conformance::rounded(value, dtype());
  return values;
}

void KernelTest::expectNear(const Values &found, const Values &expected,
                            const std::string &what, double f32, double f64,
                            double floor, const Values &onTheWay) const {
  ASSERT_EQ(found.size(), expected.size()) << what;
  ASSERT_TRUE(onTheWay.empty() || onTheWay.size() == found.size()) << what;
  double largest = floor;
  for (double value : expected)
    if (std::isfinite(value))
      largest = std::max(largest, std::fabs(value));
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i] == expected[i])
      continue;
    double bound = (dtype() == GRT_F64 ? f64 : f32) * largest;
    if (dtype() == GRT_BF16)
      bound += (std::fabs(expected[i]) +
                (onTheWay.empty() ? 0 : std::fabs(onTheWay[i]))) /
               256;
    ASSERT_LE(std::fabs(found[i] - expected[i]), bound)
        << what << " at " << i << ": expected " << expected[i] << ", found "
        << found[i];
    ASSERT_FALSE(std::isnan(found[i])) << what << " at " << i << " is NaN";
  }
}

void KernelTest::expectSame(const Values &found, const Values &expected,
                            const std::string &what) const {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (size_t i = 0; i < found.size(); ++i)
    ASSERT_EQ(found[i], expected[i]) << what << " at " << i;
}

} // namespace grt::conformance
