//===- profile.cpp - Time by kernel, beside what the machine can do -------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "profile.h"
#include "core/executor.h"
#include "core/program_text.h"
#include "grt/kernels.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

namespace galvatron::bench {
namespace {

double now() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

int64_t width(uint32_t dtype) {
  return dtype == GRT_F64 ? 8 : dtype == GRT_BF16 ? 2 : dtype == GRT_U8 ? 1 : 4;
}

/// The calls of one descriptor: of one place in a layer function.
struct Site {
  std::string name;
  uint32_t dtype = GRT_F32;
  double seconds = 0, least = 0;
  int64_t calls = 0;
  Work work; ///< of all calls
};

struct State {
  const grt_backend *backend = nullptr;
  std::optional<grt::BackendTable> table;
  std::mutex mutex;
  std::map<const void *, Site> sites;
};
State state;

/// Products are told apart by shape, everything else by kernel.
std::string key(const grt_kernel_op &op) {
  std::string name = grt::kernelName(op.kernel);
  if (op.kernel != GRT_KERNEL_GEMM)
    return name;
  const auto n = grt::intsOf<grt::kernels::Gemm>(op);
  char text[96];
  std::snprintf(text, sizeof(text), " %lldx%lldx%lld %c%c%s", (long long)n.M,
                (long long)n.N, (long long)n.K, n.transA ? 't' : 'n',
                n.transB ? 't' : 'n', n.acc ? " +" : "");
  return name + text;
}

template <int Kernel>
int32_t measured(const grt_call *call, char *message, size_t bytes) {
  double begin = now();
  int32_t status = state.backend->kernels[Kernel](call, message, bytes);
  double seconds = now() - begin;
  Work work = workOf(*call->op, call->accumulate != 0);
  std::lock_guard<std::mutex> lock(state.mutex);
  Site &site = state.sites[call->op->buffers];
  if (site.calls == 0) {
    site.name = key(*call->op);
    site.dtype = call->op->buffers[0].dtype;
    site.least = seconds;
  }
  site.seconds += seconds;
  site.least = std::min(site.least, seconds);
  ++site.calls;
  site.work.flops += work.flops;
  site.work.bytes += work.bytes;
  return status;
}

template <int... Kernels> void wrap(std::integer_sequence<int, Kernels...>) {
  ((state.table->kernels[Kernels] = measured<Kernels>), ...);
}

/// Runs products of several shapes and returns the most FLOP/s seen: a peak is
/// what the machine can do, not what one shape reaches or what it did while
/// something else ran.
double peakProduct(const grt_backend &backend, void *rank, grt_dtype dtype) {
  // m, n, k and whether the right side is transposed.
  const int64_t shapes[][4] = {
      {768, 768, 768, 0}, {2048, 512, 1536, 1}, {1024, 1024, 1024, 1}};
  double best = 0;
  for (const int64_t *shape : shapes) {
    int64_t m = shape[0], n = shape[1], k = shape[2];
    size_t bytes[3] = {size_t(m * k * width(dtype)),
                       size_t(k * n * width(dtype)),
                       size_t(m * n * width(dtype))};
    std::vector<char> memory[3];
    grt_buffer buffers[3];
    void *addresses[3];
    for (int i = 0; i < 3; ++i) {
      memory[i].resize(bytes[i]);
      buffers[i] = {GRT_REGION_TRANSIENT, uint32_t(dtype), 0, bytes[i]};
      addresses[i] = memory[i].data();
    }
    int64_t ints[7] = {m, n, k, 0, shape[3], 0, 0};
    grt_kernel_op op = {GRT_KERNEL_GEMM, 3,    7,       0,
                        buffers,         ints, nullptr, "peak"};
    grt_coordinates at = {0, 1, 0, 1, 0, 1, 0, 0, 1, 0, 1};
    grt_step step = {};
    grt_call call = {&op, addresses, &at, &step, 0, rank};
    char message[256] = "";
    for (int i = 0; i < 40; ++i) {
      double begin = now();
      if (backend.kernels[GRT_KERNEL_GEMM](&call, message, sizeof(message)) !=
          0)
        return 0;
      if (i > 1)
        best = std::max(best, 2.0 * double(m * n * k) / (now() - begin));
    }
  }
  return best;
}

/// y = a + b and a = a + b over buffers that no cache holds: where the result
/// is a third buffer, its lines are read before they are written, uncounted.
double peakBandwidth(const grt_backend &backend, void *rank) {
  const int64_t n = int64_t(16) << 20;
  size_t bytes = size_t(n) * sizeof(float);
  // Apart by no multiple of a page, or the three streams share cache sets.
  size_t apart = bytes + 4096 / 3 / 64 * 64;
  void *memory = backend.allocate(3 * apart);
  if (!memory)
    throw std::runtime_error("cannot allocate memory for the bandwidth");
  std::memset(memory, 0, 3 * apart);
  char *base = static_cast<char *>(memory);
  grt_buffer buffer = {GRT_REGION_TRANSIENT, GRT_F32, 0, bytes};
  grt_buffer buffers[3] = {buffer, buffer, buffer};
  grt_kernel_op op = {GRT_KERNEL_ADD, 3, 1, 0, buffers, &n, nullptr, "peak"};
  grt_coordinates at = {0, 1, 0, 1, 0, 1, 0, 0, 1, 0, 1};
  grt_step step = {};
  double best = 0;
  for (char *result : {base, base + 2 * apart}) {
    void *addresses[3] = {base, base + apart, result};
    grt_call call = {&op, addresses, &at, &step, 0, rank};
    char message[256] = "";
    for (int i = 0; i < 20; ++i) {
      double begin = now();
      if (backend.kernels[GRT_KERNEL_ADD](&call, message, sizeof(message)) != 0)
        return 0;
      best = std::max(best, 3.0 * double(bytes) / (now() - begin));
    }
  }
  backend.release(memory, 3 * apart);
  return best;
}

} // namespace

Work workOf(const grt_kernel_op &op, bool accumulate) {
  using namespace grt::kernels;
  Work work;
  for (uint32_t b = 0; b < op.buffer_count; ++b)
    work.bytes += double(op.buffers[b].bytes);
  int64_t element = op.buffer_count ? width(op.buffers[0].dtype) : 4;
  switch (op.kernel) {
  case GRT_KERNEL_GEMM: {
    const auto n = grt::intsOf<Gemm>(op);
    work.flops = 2.0 * double(n.M) * double(n.N) * double(n.K);
    if (n.acc == 1 || (n.acc == 2 && accumulate))
      work.bytes += double(op.buffers[Gemm::c].bytes);
    return work;
  }
  case GRT_KERNEL_ATTENTION:
  case GRT_KERNEL_ATTENTION_GRAD: {
    // Views reach over the packed buffer: count rows instead. Forward has two
    // products with the scores, backward five.
    bool backward = op.kernel == GRT_KERNEL_ATTENTION_GRAD;
    const auto n = grt::intsOf<Attention>(op);
    double q = double(n.samples * n.Tq * n.heads * n.headDim);
    double kv = double(n.samples * n.Tk * n.kvHeads * n.headDim);
    double seen = double(n.Tk) / (n.causal ? 2.0 : 1.0);
    if (n.window)
      seen = std::min(seen, double(n.window));
    work.flops = (backward ? 5 : 2) * 2.0 * q * seen;
    work.bytes = double(element) * (backward ? 4 * q + 4 * kv : 2 * q + 2 * kv);
    return work;
  }
  case GRT_KERNEL_EMBEDDING: {
    const auto n = grt::intsOf<Embedding>(op);
    work.bytes = 2.0 * double(n.rows * n.width) *
                 double(width(op.buffers[Embedding::table].dtype));
    return work;
  }
  case GRT_KERNEL_OPTIMIZER:
    // Parameter and state are read and written.
    work.bytes += double(op.buffers[Optimizer::parameter].bytes) +
                  double(op.buffers[Optimizer::state].bytes);
    return work;
  default:
    return work;
  }
}

Peaks measurePeaks(const grt_backend &backend, int threads) {
  void *rank = backend.create_rank(0, threads);
  if (!rank)
    throw std::runtime_error("cannot make a rank of the backend");
  Peaks peaks;
  peaks.f32Flops = peakProduct(backend, rank, GRT_F32);
  peaks.bf16Flops = peakProduct(backend, rank, GRT_BF16);
  peaks.bytesPerSecond = peakBandwidth(backend, rank);
  backend.destroy_rank(rank);
  return peaks;
}

Profile::Profile(const grt_backend &backend) {
  state.backend = &backend;
  state.table.emplace(backend);
  wrap(std::make_integer_sequence<int, GRT_KERNEL_COUNT>());
}

const grt_backend *Profile::table() const { return &**state.table; }

void Profile::reset() {
  std::lock_guard<std::mutex> lock(state.mutex);
  state.sites.clear();
}

void Profile::print(std::FILE *out, const Peaks &peaks, int ranks, double steps,
                    double seconds) const {
  struct Line {
    double seconds = 0, atBest = 0, allowed = 0;
    int64_t calls = 0;
    Work work;
  };
  std::map<std::string, Line> byName;
  double inside = 0;
  for (const auto &[address, site] : state.sites) {
    double peak = site.dtype == GRT_BF16 ? peaks.bf16Flops : peaks.f32Flops;
    Line &line = byName[site.name];
    line.seconds += site.seconds;
    line.atBest += site.least * double(site.calls);
    line.allowed += std::max(peak > 0 ? site.work.flops / peak : 0,
                             site.work.bytes / peaks.bytesPerSecond);
    line.calls += site.calls;
    line.work.flops += site.work.flops;
    line.work.bytes += site.work.bytes;
    inside += site.seconds;
  }
  std::vector<std::pair<std::string, Line>> lines(byName.begin(), byName.end());
  std::sort(lines.begin(), lines.end(), [](const auto &a, const auto &b) {
    return a.second.atBest > b.second.atBest;
  });
  std::fprintf(
      out,
      "peaks: %.0f GFLOP/s f32, %.0f GFLOP/s bf16, %.1f GB/s; times "
      "are per step and rank,\n\"at best\" if every call took as long "
      "as the fastest of its place; rates and the\nfraction of the "
      "roofline are at best\n\n"
      "| kernel | calls | ms | %% of step | ms at best | GFLOP/s | GB/s "
      "| of roofline |\n|---|---|---|---|---|---|---|---|\n",
      peaks.f32Flops / 1e9, peaks.bf16Flops / 1e9, peaks.bytesPerSecond / 1e9);
  double each = steps * ranks;
  for (const auto &[name, line] : lines)
    // Ranks share the machine whose peaks were measured.
    std::fprintf(
        out, "| %s | %.0f | %.2f | %.1f | %.2f | %.1f | %.1f | %.2f |\n",
        name.c_str(), double(line.calls) / each, 1e3 * line.seconds / each,
        100 * line.seconds / ranks / seconds, 1e3 * line.atBest / each,
        line.work.flops / line.atBest / 1e9,
        line.work.bytes / line.atBest / 1e9,
        line.allowed * ranks / line.atBest);
  std::fprintf(out, "| outside kernels | | %.2f | %.1f | | | | |\n",
               1e3 * (seconds - inside / ranks) / steps,
               100 * (1 - inside / ranks / seconds));
}

} // namespace galvatron::bench
