//===- call.h - A kernel call, taken apart --------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What backends share: how the descriptor of every kernel must look, and
// reading one. grt/abi.h says what the arguments mean.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_COMMON_CALL_H
#define GRT_BACKENDS_COMMON_CALL_H

#include "grt/backend.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>

namespace grt {

/// A call that cannot be carried out; becomes its message.
class CallError : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

struct KernelForm {
  const char *name;
  int buffers, ints, reals; ///< least counts
  int typed;                ///< the buffer whose dtype decides; -1 none
};

/// Indexed by grt_kernel.
inline constexpr KernelForm kernelForms[GRT_KERNEL_COUNT] = {
    {"gemm", 3, 7, 0, 0},
    {"bias-add", 3, 2, 0, 0},
    {"bias-grad", 2, 3, 0, 0},
    {"layer-norm", 5, 2, 1, 0},
    {"layer-norm-grad", 7, 3, 0, 0},
    {"gelu", 2, 2, 0, 0},
    {"gelu-grad", 3, 2, 0, 0},
    {"bias-gelu", 4, 3, 0, 0},
    {"attention", 6, 12, 2, 0},
    {"attention-grad", 10, 12, 2, 0},
    {"dropout", 2, 5, 1, 0},
    {"dropout-add", 3, 5, 1, 0},
    {"add", 3, 1, 0, 0},
    {"embedding", 3, 4, 0, 1},
    {"embedding-grad", 3, 5, 0, 1},
    {"position-add", 3, 3, 0, 0},
    {"position-grad", 2, 5, 0, 0},
    {"softmax-stats", 3, 4, 0, 0},
    {"cross-entropy", 5, 5, 0, 0},
    {"copy", 2, 4, 0, -1},
    {"zero", 1, 0, 0, -1},
    {"optimizer", 3, 3, 0, 0},
    {"norm", 1, 2, 0, 0},
    {"scale", 2, 1, 1, 0},
    {"add-layer-norm", 7, 4, 2, 0},
    {"layer-norm-add-grad", 8, 3, 0, 0},
    {"gemm-gelu", 4, 7, 0, 0},
    {"gemm-gelu-grad", 4, 6, 0, 0},
    {"gemm-bias-grad", 4, 4, 0, 0},
    {"rms-norm", 4, 2, 1, 0},
    {"rms-norm-grad", 6, 3, 0, 0},
    {"rotary", 2, 6, 1, 0},
    {"gated-silu", 3, 1, 0, 0},
    {"gated-silu-grad", 5, 1, 0, 0},
    {"patches", 2, 6, 0, 0},
    {"relu", 2, 1, 0, 0},
    {"relu-grad", 3, 1, 0, 0},
    {"gated-gelu", 3, 1, 0, 0},
    {"gated-gelu-grad", 5, 1, 0, 0},
    {"relative-bias", 2, 6, 0, 0},
    {"relative-bias-grad", 2, 7, 0, 0},
    {"biased-attention", 7, 13, 2, 0},
    {"biased-attention-grad", 12, 13, 2, 0},
    {"windows", 2, 8, 0, 0},
    {"window-attention", 7, 8, 2, 0},
    {"window-attention-grad", 12, 9, 2, 0},
    {"drop-path", 2, 4, 1, 0},
    {"mean", 2, 3, 0, 0},
    {"mean-grad", 2, 3, 0, 0},
    {"transpose", 2, 3, 0, 0},
    {"own-part", 2, 5, 0, 0},
    {"softmax-cross-entropy", 5, 2, 0, 0},
};

[[noreturn]] inline void tooFew(const char *kernel, const char *what,
                                int64_t least, int64_t found) {
  throw CallError(std::string("kernel ") + kernel + " takes at least " +
                  std::to_string(least) + " " + what + ", found " +
                  std::to_string(found));
}

inline void checkCounts(const grt_kernel_op &op) {
  const KernelForm &form = kernelForms[op.kernel];
  if (int64_t(op.buffer_count) < form.buffers)
    tooFew(form.name, "buffers", form.buffers, op.buffer_count);
  if (int64_t(op.int_count) < form.ints)
    tooFew(form.name, "integers", form.ints, op.int_count);
  if (int64_t(op.real_count) < form.reals)
    tooFew(form.name, "reals", form.reals, op.real_count);
}

/// The element type that decides which code runs; `backend` is for the message.
inline uint32_t computeType(const grt_kernel_op &op, const char *backend) {
  const KernelForm &form = kernelForms[op.kernel];
  if (form.typed < 0)
    return GRT_F32;
  uint32_t dtype = op.buffers[form.typed].dtype;
  if (dtype != GRT_F32 && dtype != GRT_F64 && dtype != GRT_BF16)
    throw CallError(std::string("kernel ") + form.name + " of the " + backend +
                    " backend takes f32, f64 or bf16, found dtype " +
                    std::to_string(dtype));
  return dtype;
}

/// Runs `body`, turning exceptions into a status and a message that begins with
/// `what`.
template <class Body>
int32_t guarded(const char *what, char *message, size_t messageBytes,
                Body body) {
  try {
    body();
    return 0;
  } catch (const std::exception &error) {
    std::snprintf(message, messageBytes, "%s: %s", what, error.what());
  } catch (...) {
    std::snprintf(message, messageBytes, "%s: unknown failure", what);
  }
  return 1;
}
/// The name of an op in messages: its own, or its kernel's.
inline const char *nameOf(const grt_kernel_op &op) {
  return op.name && *op.name ? op.name : kernelForms[op.kernel].name;
}

/// The kernels of attention: whether they are gradients, whether they have a
/// bias by distance, and whether they are of windows.
constexpr bool isAttentionGrad(uint32_t kernel) {
  return kernel == GRT_KERNEL_ATTENTION_GRAD ||
         kernel == GRT_KERNEL_BIASED_ATTENTION_GRAD ||
         kernel == GRT_KERNEL_WINDOW_ATTENTION_GRAD;
}
constexpr bool isWindowAttention(uint32_t kernel) {
  return kernel == GRT_KERNEL_WINDOW_ATTENTION ||
         kernel == GRT_KERNEL_WINDOW_ATTENTION_GRAD;
}
constexpr bool isBiasedAttention(uint32_t kernel) {
  return kernel == GRT_KERNEL_BIASED_ATTENTION ||
         kernel == GRT_KERNEL_BIASED_ATTENTION_GRAD;
}
constexpr bool isAttention(uint32_t kernel) {
  return kernel == GRT_KERNEL_ATTENTION || isAttentionGrad(kernel) ||
         isBiasedAttention(kernel) || isWindowAttention(kernel);
}
/// Among their buffers the scratch, behind which a bias and its gradient stand.
constexpr int attentionScratch(bool backward) { return backward ? 9 : 5; }
/// The integers of a kernel of attention inside windows.
struct WindowShape {
  int64_t samples, down, across, window, shift, heads, headDim, opIndex;
  explicit WindowShape(const grt_kernel_op &op)
      : samples(op.ints[0]), down(op.ints[1]), across(op.ints[2]),
        window(op.ints[3]), shift(op.ints[4]), heads(op.ints[5]),
        headDim(op.ints[6]), opIndex(op.ints[7]) {}
  int64_t perSample() const { return down * across; }
  int64_t windows() const { return samples * perSample(); }
  int64_t positions() const { return window * window; }
  /// Columns of a row of the table of relative positions, which is square.
  int64_t side() const { return 2 * window - 1; }
};

/// Whether a mask is there, the last buffer.
inline bool hasAttentionMask(const grt_kernel_op &op) {
  if (isWindowAttention(op.kernel))
    return false;
  uint32_t flag = isBiasedAttention(op.kernel) ? 13 : 12;
  return op.int_count > flag && op.ints[flag] != 0;
}

/// Reads the descriptor of one call. Counts were checked before.
class CallReader {
public:
  explicit CallReader(const grt_call &call) : call(call) {}

  const grt_kernel_op &op() const { return *call.op; }
  template <class T> T *buffer(int i) const {
    return static_cast<T *>(call.buffers[i]);
  }
  const grt_buffer &descriptor(int i) const { return call.op->buffers[i]; }
  int64_t integer(int i) const { return call.op->ints[i]; }
  double real(int i) const { return call.op->reals[i]; }
  const int64_t *integers() const { return call.op->ints; }
  int bufferCount() const { return int(call.op->buffer_count); }
  int64_t integerCount() const { return call.op->int_count; }

  /// What an `acc` of abi.h means for this call.
  bool add(int64_t acc) const { return acc == 1 || (acc == 2 && accumulate()); }
  bool accumulate() const { return call.accumulate != 0; }
  const grt_coordinates &at() const { return *call.coordinates; }

  /// Throws unless p is a probability that leaves something.
  static void checkDropout(double p) {
    if (!(p >= 0 && p < 1))
      throw CallError("dropout probability must be in [0, 1), found " +
                      std::to_string(p));
  }
  /// A buffer that stands last, and only there if an integer says so.
  void checkBuffers(int count, const char *what) const {
    if (bufferCount() < count)
      throw CallError(std::string("kernel ") + kernelForms[op().kernel].name +
                      " with " + what + " takes " + std::to_string(count) +
                      " buffers, found " + std::to_string(bufferCount()));
  }
  /// The mask of a kernel of attention; null: there is none.
  const int32_t *attentionMask() const {
    if (!hasAttentionMask(op()))
      return nullptr;
    int place = kernelForms[op().kernel].buffers;
    checkBuffers(place + 1, "a mask");
    return buffer<const int32_t>(place);
  }
  /// BIASED_ATTENTION: the bias has the heads of all ranks.
  void checkBiasHeads(int64_t globalHeads) const {
    if (integer(12) != globalHeads)
      throw CallError("a bias of attention is of all " +
                      std::to_string(globalHeads) + " heads, found " +
                      std::to_string(integer(12)));
  }
  /// RELATIVE_BIAS and its gradient.
  void checkRelativeBias() const {
    int64_t buckets = integer(3), distance = integer(4);
    bool bidirectional = integer(5) != 0;
    int64_t near = buckets / (bidirectional ? 4 : 2);
    if (near < 1 || buckets > GRT_RELATIVE_BUCKETS || distance <= near)
      throw CallError(
          "relative positions take " + std::string(bidirectional ? "4" : "2") +
          " to " + std::to_string(GRT_RELATIVE_BUCKETS) +
          " buckets and a largest distance beyond the near ones, found " +
          std::to_string(buckets) + " and " + std::to_string(distance));
  }
  /// The token that EMBEDDING_GRAD leaves out; -1: none.
  int64_t embeddingPadding() const {
    return integerCount() > 5 ? integer(5) : -1;
  }
  /// WINDOWS and WINDOW_ATTENTION: they have positions, and no turn goes
  /// beyond.
  void checkWindow(int64_t window, int64_t shift) const {
    if (window <= 0 || shift < 0 || shift >= window)
      throw CallError("windows have at least one position and a shift below "
                      "their side, found " +
                      std::to_string(window) + " and " + std::to_string(shift));
  }
  /// The part of OWN_PART that is this rank's.
  int64_t ownPart() const {
    int64_t parts = integer(1), ranks = integer(3);
    if (parts < 1 || ranks < 1 || parts * ranks != at().tp_size)
      throw CallError("parts and the ranks of each must make up the " +
                      std::to_string(at().tp_size) +
                      " ranks of tensor parallelism, found " +
                      std::to_string(parts) + " and " + std::to_string(ranks));
    return at().tp_index / ranks;
  }
  /// The probability of DROP_PATH in the running layer.
  double dropPathProbability() const {
    double p = real(0) * double(at().layer - integer(3));
    checkDropout(p);
    return p;
  }
  /// Whether PATCHES go beyond the image.
  bool padsPatches() const { return integerCount() > 6 && integer(6) != 0; }
  /// PATCHES: they have elements.
  void checkPatches() const {
    if (integer(4) <= 0 || integer(5) <= 0)
      throw CallError("patches have at least one row and column, found " +
                      std::to_string(integer(4)) + " and " +
                      std::to_string(integer(5)));
  }
  void checkHeads(int64_t heads, int64_t kvHeads) const {
    if (kvHeads <= 0 || heads % kvHeads != 0)
      throw CallError("heads must be a multiple of key heads, found " +
                      std::to_string(heads) + " and " +
                      std::to_string(kvHeads));
  }
  void checkScratch(int index, uint64_t bytes) const {
    if (descriptor(index).bytes < bytes)
      throw CallError("attention needs " + std::to_string(bytes) +
                      " bytes of scratch, found " +
                      std::to_string(descriptor(index).bytes));
  }
  /// ROTARY: its pairs stand in a head and each has a frequency.
  void checkRotary() const {
    int64_t headDim = integer(3), pairs = integer(5);
    if (pairs < 0 || 2 * pairs > headDim || pairs > GRT_ROTARY_PAIRS)
      throw CallError("rotary pairs must fill at most a head of " +
                      std::to_string(headDim) + " and be no more than " +
                      std::to_string(GRT_ROTARY_PAIRS) + ", found " +
                      std::to_string(pairs));
    if (int64_t(op().real_count) < 1 + pairs)
      tooFew("rotary", "reals", 1 + pairs, op().real_count);
  }
  void checkOptimizer(int64_t kind) const {
    if (kind < 0 || kind > 2)
      throw CallError("optimizer must be 0, 1 or 2, found " +
                      std::to_string(kind));
  }

  /// Calls body(local begin, length, flag) for the part of every segment that
  /// stands in the rank's shard. Segments start at integer `from`.
  template <class Body>
  void forEachSegment(int from, int64_t shardElements, Body body) const {
    int64_t segments = integer(from - 1);
    if (integerCount() < from + 3 * segments)
      throw CallError(std::to_string(segments) + " segments take " +
                      std::to_string(from + 3 * segments) +
                      " integers, found " + std::to_string(integerCount()));
    int64_t shardBegin = at().sdp_index * shardElements;
    for (int64_t s = 0; s < segments; ++s) {
      const int64_t *segment = integers() + from + 3 * s;
      int64_t begin = std::max(segment[0], shardBegin);
      int64_t end =
          std::min(segment[0] + segment[1], shardBegin + shardElements);
      if (begin < end)
        body(begin - shardBegin, end - begin, segment[2]);
    }
  }

protected:
  const grt_call &call;
};

} // namespace grt

#endif // GRT_BACKENDS_COMMON_CALL_H
