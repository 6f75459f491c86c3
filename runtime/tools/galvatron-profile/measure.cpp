//===- measure.cpp - Measures what a rank of this machine achieves
//---------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "measure.h"

#include "comm/threads.h"
#include "core/error.h"
#include "core/executor.h"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

namespace grt::profile {
namespace {

constexpr int64_t largeBytes = int64_t(4) << 20;
constexpr int64_t smallBytes = 64;
constexpr int64_t copyBytes = int64_t(16) << 20;
/// Windows per quantity; their median counts.
constexpr int windows = 3;

double secondsNow() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// What the rank threads share.
struct Shared {
  explicit Shared(int ranks) : ranks(ranks), gate(ranks), times(ranks) {}
  int ranks;
  std::barrier<> gate;
  std::vector<double> times;
};

/// Memory of the backend.
class Block {
public:
  Block(const grt_backend &backend, int64_t bytes)
      : backend(backend), bytes(bytes),
        memory(backend.allocate(size_t(bytes))) {
    if (!memory)
      fail("cannot allocate " + std::to_string(bytes) + " bytes");
  }
  ~Block() { backend.release(memory, size_t(bytes)); }
  Block(const Block &) = delete;
  Block &operator=(const Block &) = delete;
  void *data() const { return memory; }
  /// Touches every page and gives products something to multiply.
  template <class T> void fill() {
    T *p = static_cast<T *>(memory);
    for (int64_t i = 0; i < bytes / int64_t(sizeof(T)); ++i)
      p[i] = T((i * 7919) % 1021) / T(1021) - T(0.5);
  }

private:
  const grt_backend &backend;
  int64_t bytes;
  void *memory;
};

/// One rank's thread.
class RankProbe {
public:
  RankProbe(Shared &shared, const grt_backend &backend, int rank, int threads)
      : shared(shared), backend(backend), rank(rank),
        state(backend.create_rank(rank, threads)) {
    if (!state)
      fail("rank " + std::to_string(rank) +
           ": cannot make the backend's state");
    coordinates.dp_size = coordinates.sdp_size = coordinates.tp_size = 1;
  }
  ~RankProbe() { backend.destroy_rank(state); }
  RankProbe(const RankProbe &) = delete;
  RankProbe &operator=(const RankProbe &) = delete;

  void launch(grt_kernel kernel, grt_dtype dtype, std::vector<Block *> blocks,
              std::vector<int64_t> ints) {
    std::vector<grt_buffer> buffers(blocks.size());
    std::vector<void *> addresses;
    for (size_t i = 0; i < blocks.size(); ++i) {
      buffers[i] = {GRT_REGION_TRANSIENT, uint32_t(dtype), 0, 0};
      addresses.push_back(blocks[i]->data());
    }
    grt_kernel_op op = {uint32_t(kernel),
                        uint32_t(buffers.size()),
                        uint32_t(ints.size()),
                        0,
                        buffers.data(),
                        ints.data(),
                        nullptr,
                        "profile"};
    grt_call call = {&op, addresses.data(), &coordinates, &step, 0, state};
    char message[256] = "";
    if (backend.kernels[kernel](&call, message, sizeof(message)) != 0)
      fail(message);
  }

  /// Seconds per call of `body` while all ranks call it, the median over the
  /// windows and the mean over the ranks. Every rank makes as many calls.
  template <class Body> double time(double seconds, Body body) {
    body();
    double once = averaged([&] {
      double begin = secondsNow();
      body();
      return secondsNow() - begin;
    });
    int64_t count =
        std::max<int64_t>(1, int64_t(seconds / windows / std::max(once, 1e-9)));
    std::vector<double> results;
    for (int window = 0; window < windows; ++window)
      results.push_back(averaged([&] {
        double begin = secondsNow();
        for (int64_t i = 0; i < count; ++i)
          body();
        return (secondsNow() - begin) / double(count);
      }));
    return median(results);
  }

private:
  /// Runs `timed` on all ranks at once; the same mean on every rank.
  template <class Timed> double averaged(Timed timed) {
    shared.gate.arrive_and_wait();
    shared.times[rank] = timed();
    shared.gate.arrive_and_wait();
    double sum = std::accumulate(shared.times.begin(), shared.times.end(), 0.0);
    shared.gate.arrive_and_wait();
    return sum / double(shared.ranks);
  }

  Shared &shared;
  const grt_backend &backend;
  int rank;
  void *state;
  grt_coordinates coordinates = {};
  grt_step step = {};
};

double productFlops(RankProbe &probe, const grt_backend &backend,
                    grt_dtype dtype, int64_t m, int64_t n, int64_t k,
                    double seconds) {
  int64_t width = dtype == GRT_F64 ? 8 : 4;
  Block a(backend, m * k * width), b(backend, k * n * width);
  Block c(backend, m * n * width);
  for (Block *block : {&a, &b, &c}) {
    if (dtype == GRT_F64)
      block->fill<double>();
    else
      block->fill<float>();
  }
  double time = probe.time(seconds, [&] {
    probe.launch(GRT_KERNEL_GEMM, dtype, {&a, &b, &c}, {m, n, k, 0, 0, 0, 0});
  });
  return 2.0 * double(m) * double(n) * double(k) / time;
}

/// The same numbers on every rank.
Measurement measureRank(Shared &shared, const grt_backend &backend,
                        ThreadsWorld &world, int rank, double seconds) {
  Measurement result;
  result.ranks = shared.ranks;
  result.threadsPerRank = threadsPerRank(shared.ranks);
  RankProbe probe(shared, backend, rank, result.threadsPerRank);

  double part = seconds / 10;
  const int64_t shapes[][3] = {
      {512, 512, 512}, {256, 1024, 256}, {256, 256, 1024}};
  std::vector<double> products;
  for (const auto &shape : shapes)
    products.push_back(productFlops(probe, backend, GRT_F32, shape[0], shape[1],
                                    shape[2], part));
  result.f32Flops = median(products);
  result.f64Flops = productFlops(probe, backend, GRT_F64, 256, 256, 256, part);
  result.kernelOverhead =
      16.0 / productFlops(probe, backend, GRT_F32, 2, 2, 2, part / 2);

  {
    Block from(backend, copyBytes), to(backend, copyBytes);
    from.fill<float>();
    to.fill<float>();
    double time = probe.time(part, [&] {
      probe.launch(GRT_KERNEL_COPY, GRT_F32, {&from, &to},
                   {1, copyBytes, copyBytes, copyBytes});
    });
    result.memoryBandwidth = 2.0 * double(copyBytes) / time;
  }

  if (shared.ranks > 1) {
    std::unique_ptr<Communicator> communicator = world.join(rank);
    std::vector<int> everyone(size_t(shared.ranks));
    std::iota(everyone.begin(), everyone.end(), 0);
    Group &group = communicator->group(everyone);
    Block data(backend, largeBytes);
    std::memset(data.data(), 0, size_t(largeBytes));
    auto reduce = [&](int64_t bytes, double length) {
      return probe.time(length, [&] {
        communicator->allReduce(group, data.data(), uint64_t(bytes / 4),
                                GRT_F32);
      });
    };
    double small = reduce(smallBytes, 1.5 * part);
    double large = reduce(largeBytes, 2 * part);
    // 2 (n - 1) messages of bytes / n each.
    double messages = 2.0 * (shared.ranks - 1);
    result.linkLatency = small / messages;
    result.linkBandwidth = messages * double(largeBytes) / shared.ranks /
                           std::max(large - small, 1e-9);
  }
  return result;
}

} // namespace

int threadsPerRank(int ranks) {
  return std::max(1, int(std::thread::hardware_concurrency()) / ranks);
}

Measurement measure(int ranks, double seconds) {
  BackendHandle backend("cpu", "");
  ThreadsWorld world(ranks);
  Shared shared(ranks);
  std::vector<Measurement> results;
  results.resize(size_t(ranks));
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::exception_ptr failure;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        results[size_t(rank)] =
            measureRank(shared, *backend, world, rank, seconds);
      } catch (...) {
        std::lock_guard<std::mutex> lock(mutex);
        if (!failure)
          failure = std::current_exception();
        world.abort();
        // The others must not wait for this rank; it takes part no more.
        shared.gate.arrive_and_drop();
      }
    });
  for (std::thread &thread : threads)
    thread.join();
  if (failure)
    std::rethrow_exception(failure);
  return results[0];
}

} // namespace grt::profile
