//===- call.h - A kernel call, taken apart --------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What backends share: reading the descriptor of a call as the list of kernels
// (grt/kernels.def) has it.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_COMMON_CALL_H
#define GRT_BACKENDS_COMMON_CALL_H

#include "grt/backend.h"
#include "grt/kernels.h"

#include <algorithm>
#include <cmath>
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

/// The complaint about a generating pass whose ranks have blocks of rows.
inline constexpr const char *generationOfBlocks =
    "a rank with a block of the rows cannot tell the tokens of all positions: "
    "generation needs a plan whose last layer has them whole";

[[noreturn]] inline void tooFew(const char *kernel, const char *what,
                                int64_t least, int64_t found) {
  throw CallError(std::string("kernel ") + kernel + " takes at least " +
                  std::to_string(least) + " " + what + ", found " +
                  std::to_string(found));
}

/// Throws unless a call of kernel K has what every call of it has, and keeps
/// the kernel's rules.
template <class K> void checkForm(const grt_kernel_op &op) {
  constexpr KernelForm form = kernelForms[K::kernel];
  if (int64_t(op.buffer_count) < form.buffers)
    tooFew(form.name, "buffers", form.buffers, op.buffer_count);
  if (int64_t(op.int_count) < form.ints)
    tooFew(form.name, "integers", form.ints, op.int_count);
  if (int64_t(op.real_count) < form.reals)
    tooFew(form.name, "reals", form.reals, op.real_count);
  const BrokenRule rule =
      factsOf<K>(op.ints, op.int_count).broken(/*ofPrograms=*/false);
  if (rule.text)
    throw CallError(std::string(rule.text) + ", found " +
                    std::to_string(rule.first) + " and " +
                    std::to_string(rule.second));
}
inline void checkForm(const grt_kernel_op &op) {
  visitKernel(op.kernel, [&](auto k) { checkForm<decltype(k)>(op); });
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
         kernel == GRT_KERNEL_SHAPED_ATTENTION_GRAD ||
         kernel == GRT_KERNEL_WINDOW_ATTENTION_GRAD ||
         kernel == GRT_KERNEL_RING_ATTENTION_GRAD;
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
         kernel == GRT_KERNEL_SHAPED_ATTENTION ||
         kernel == GRT_KERNEL_RING_ATTENTION || isBiasedAttention(kernel) ||
         isWindowAttention(kernel);
}
/// Among their buffers the scratch.
constexpr int attentionScratch(bool backward) {
  using namespace kernels;
  static_assert(
      int(BiasedAttention::scratch) == int(Attention::scratch) &&
      int(ShapedAttention::scratch) == int(Attention::scratch) &&
      int(ShapedAttentionGrad::scratch) == int(AttentionGrad::scratch) &&
      int(WindowAttention::scratch) == int(Attention::scratch) &&
      int(RingAttention::scratch) == int(Attention::scratch) &&
      int(RingAttentionGrad::scratch) == int(AttentionGrad::scratch) &&
      int(BiasedAttentionGrad::scratch) == int(AttentionGrad::scratch) &&
      int(WindowAttentionGrad::scratch) == int(AttentionGrad::scratch));
  return backward ? int(AttentionGrad::scratch) : int(Attention::scratch);
}
/// The same of the struct of a kernel of attention.
template <class K> inline constexpr bool isBackward = requires { K::dout; };
template <class K> inline constexpr bool isBiased = requires { K::bias; };
template <class K> inline constexpr bool isShaped = requires { K::distance; };

/// The integers of a kernel of attention inside windows.
struct WindowShape : kernels::WindowAttention::Ints {
  explicit WindowShape(const grt_kernel_op &op)
      : kernels::WindowAttention::Ints(intsOf<kernels::WindowAttention>(op)) {}
  int64_t perSample() const { return down * across; }
  int64_t windows() const { return samples * perSample(); }
  int64_t positions() const { return window * window; }
  /// Columns of a row of the table of relative positions, which is square.
  int64_t side() const { return 2 * window - 1; }
};

/// Reads the descriptor of one call. Counts were checked before.
class CallReader {
public:
  explicit CallReader(const grt_call &call) : call(call) {}

  const grt_kernel_op &op() const { return *call.op; }
  template <class T> T *buffer(int i) const {
    return static_cast<T *>(call.buffers[i]);
  }
  const grt_buffer &descriptor(int i) const { return call.op->buffers[i]; }
  double real(int i) const { return call.op->reals[i]; }
  int bufferCount() const { return int(call.op->buffer_count); }
  /// The integers by name.
  template <class K> typename K::Ints ints() const { return intsOf<K>(op()); }

  /// Returns whether the call adds to its result, from its integer `acc`.
  bool add(int64_t acc) const { return acc == 1 || (acc == 2 && accumulate()); }
  bool accumulate() const { return call.accumulate != 0; }
  const grt_coordinates &at() const { return *call.coordinates; }

  /// Throws unless p is a probability that leaves something.
  static void checkDropout(double p) {
    if (!(p >= 0 && p < 1))
      throw CallError("dropout probability must be in [0, 1), found " +
                      std::to_string(p));
  }
  /// A buffer that is there only if an integer, `flag`, says so; null if not.
  template <class T> T *buffer(int i, int64_t flag) const {
    if (flag == 0)
      return nullptr;
    if (bufferCount() <= i)
      tooFew(kernelForms[op().kernel].name, "buffers", i + 1, bufferCount());
    return buffer<T>(i);
  }
  /// The first of the heads that attention has on this rank, of as many on
  /// each, and how many all ranks have: with `ofBlocks` those of all blocks of
  /// rows inside those of a tensor-parallel rank.
  int64_t firstHead(int64_t heads, bool ofBlocks) const {
    const int64_t part =
        ofBlocks ? at().tp_index * at().block_count + at().block_index
                 : at().tp_index;
    return part * heads;
  }
  int64_t globalHeads(int64_t heads, bool ofBlocks) const {
    return heads * at().tp_size * (ofBlocks ? at().block_count : 1);
  }
  /// BIASED_ATTENTION: the bias has the heads of all ranks.
  static void checkBiasHeads(int64_t heads, int64_t globalHeads) {
    if (heads != globalHeads)
      throw CallError("a bias of attention is of all " +
                      std::to_string(globalHeads) + " heads, found " +
                      std::to_string(heads));
  }
  static void checkCap(double cap) {
    if (!(cap > 0 && std::isfinite(cap)))
      throw CallError("expected a cap that is positive and finite, found " +
                      std::to_string(cap));
  }
  /// SHAPED_ATTENTION: a cap is 0 or positive, and both numbers are finite.
  static void checkShape(double cap, double distance) {
    if (!(cap >= 0 && std::isfinite(cap) && std::isfinite(distance)))
      throw CallError(
          "scores have a cap of 0 or more and a factor of distances "
          "that are finite, found " +
          std::to_string(cap) + " and " + std::to_string(distance));
  }
  /// CACHED_ATTENTION: of every sample a row of the cache, or -1, and a
  /// position below `positions`; CACHED_CROSS_ATTENTION: or a number of keys.
  static void checkPlaces(const int32_t *row, const int32_t *position,
                          int64_t samples, int64_t rows, int64_t positions) {
    for (int64_t s = 0; s < samples; ++s)
      if (row[s] < -1 || row[s] >= rows || position[s] < 0 ||
          position[s] >= positions)
        throw CallError(
            "sample " + std::to_string(s) + " has row and position " +
            std::to_string(row[s]) + " and " + std::to_string(position[s]) +
            ", expected a row from -1 on below " + std::to_string(rows) +
            " and a position below " + std::to_string(positions));
  }
  /// REGULARIZED_CROSS_ENTROPY: a part of the label's weight, and a factor.
  static void checkLossTerms(double smoothing, double zLoss) {
    if (!(smoothing >= 0 && smoothing < 1 && zLoss >= 0 &&
          std::isfinite(zLoss)))
      throw CallError("a loss has a label smoothing in [0, 1) and a factor of "
                      "the z-loss that is 0 or more and finite, found " +
                      std::to_string(smoothing) + " and " +
                      std::to_string(zLoss));
  }
  /// The part of OWN_PART that is this rank's.
  int64_t ownPart(int64_t parts, int64_t ranks, int64_t ofBlocks) const {
    if (ofBlocks == 1 || ofBlocks == 2) {
      if (parts != at().block_count || ranks != 1)
        throw CallError("parts must be those of the " +
                        std::to_string(at().block_count) +
                        " ranks that divide rows, found " +
                        std::to_string(parts) + " of " + std::to_string(ranks));
      return ofBlocks == 1 ? at().block_index : parts - 1 - at().block_index;
    }
    if (parts < 1 || ranks < 1 || parts * ranks != at().tp_size)
      throw CallError("parts and the ranks of each must make up the " +
                      std::to_string(at().tp_size) +
                      " ranks of tensor parallelism, found " +
                      std::to_string(parts) + " and " + std::to_string(ranks));
    const int64_t part = at().tp_index / ranks;
    return ofBlocks == 0 ? part : parts - 1 - part;
  }
  /// A piece of a block of rows: `count` rows from row `row` of the block on,
  /// which are rows `number` and so on of all blocks.
  struct RowPiece {
    int64_t row, number, count;
  };
  /// A block of rows: its number, and how many there are.
  struct BlockNumber {
    int64_t index, count;
  };
  /// This rank's block; with `ofBlock` the one that it has of the block that it
  /// shares with the ranks of tensor parallelism (kernels.def).
  BlockNumber blockNumber(int64_t ofBlock = 0) const {
    if (ofBlock == 0)
      return {at().block_index, at().block_count};
    return {at().block_index * at().tp_size + at().tp_index,
            at().block_count * at().tp_size};
  }
  /// Calls `visit` for the pieces of this rank's block of `rows` rows: one, or
  /// two where blocks are balanced (kernels.def).
  template <class Visit>
  void forEachRowPiece(int64_t rows, int64_t balanced, Visit visit,
                       int64_t ofBlock = 0) const {
    forEachRowPieceOf(blockNumber(ofBlock), rows, balanced, visit);
  }
  /// The same of a block that may be another rank's.
  template <class Visit>
  static void forEachRowPieceOf(BlockNumber block, int64_t rows,
                                int64_t balanced, Visit visit) {
    if (balanced == 0)
      return visit(RowPiece{0, block.index * rows, rows});
    if (rows % 2 != 0)
      throw CallError("a balanced block has an even number of rows, found " +
                      std::to_string(rows));
    const int64_t half = rows / 2;
    visit(RowPiece{0, block.index * half, half});
    visit(RowPiece{half, (2 * block.count - 1 - block.index) * half, half});
  }
  /// The rows of one sample in a block: `count` rows, of which the first is row
  /// `row` of the block and position `first` of sample `sample`, counted from
  /// the first sample that the ranks divide.
  struct RowRun {
    int64_t sample, first, count, row;
  };
  /// Calls `visit` for what this rank's block of `rows` rows has of samples of
  /// `length` positions, in order.
  template <class Visit>
  void forEachRowRun(int64_t rows, int64_t length, int64_t balanced,
                     Visit visit) const {
    forEachRowRunOf(at().block_index, rows, length, balanced, visit);
  }
  /// The same of block `block`.
  template <class Visit>
  void forEachRowRunOf(int64_t block, int64_t rows, int64_t length,
                       int64_t balanced, Visit visit) const {
    const BlockNumber blockOf = {block, at().block_count};
    forEachRowPieceOf(blockOf, rows, balanced, [&](const RowPiece &piece) {
      for (int64_t row = 0; row < piece.count;) {
        const int64_t number = piece.number + row, first = number % length;
        const int64_t left = piece.count - row, behind = length - first;
        const RowRun run = {number / length, first,
                            left < behind ? left : behind, piece.row + row};
        visit(run);
        row += run.count;
      }
    });
  }
  /// The samples of `length` positions whose rows the ranks divide into blocks
  /// of `rows`. Throws unless they are whole ones.
  int64_t samplesOfBlocks(int64_t rows, int64_t length) const {
    const int64_t all = rows * at().block_count;
    if (length < 1 || all % length != 0)
      throw CallError("blocks of " + std::to_string(rows) + " rows of " +
                      std::to_string(at().block_count) +
                      " ranks must make up samples of " +
                      std::to_string(length) + " positions");
    return all / length;
  }
  /// The block whose keys the step of a ring has, `distance` in front of this
  /// rank's. Throws unless `allRows` are those of all blocks of `rows` rows.
  int64_t blockOfStep(int64_t rows, int64_t allRows, int64_t distance) const {
    if (rows * at().block_count != allRows)
      throw CallError("blocks of " + std::to_string(rows) + " rows of " +
                      std::to_string(at().block_count) +
                      " ranks must make up " + std::to_string(allRows) +
                      " rows of a ring");
    return (at().block_index + at().block_count - distance) % at().block_count;
  }
  /// Throws unless integers of all rows, tokens or labels, are those of this
  /// rank's rows, or with `allRows` of the rows of all blocks.
  void checkRowsOfBlocks(int64_t rows, int64_t allRows) const {
    if (allRows != 0 && allRows != rows * at().block_count)
      throw CallError("blocks of " + std::to_string(rows) + " rows of " +
                      std::to_string(at().block_count) +
                      " ranks must make up " + std::to_string(allRows) +
                      " tokens or labels");
  }
  /// Calls `visit` for the pieces of `rows` rows, which with `allRows` are this
  /// rank's block of so many.
  template <class Visit>
  void forEachPieceOf(int64_t rows, int64_t allRows, int64_t balanced,
                      Visit visit) const {
    checkRowsOfBlocks(rows, allRows);
    if (allRows == 0)
      return visit(RowPiece{0, 0, rows});
    forEachRowPiece(rows, balanced, visit);
  }
  /// Throws if tokens of all positions are asked for of a block of rows.
  static void checkGeneration(int64_t labelRows, bool generates) {
    if (labelRows != 0 && generates)
      throw CallError(generationOfBlocks);
  }
  /// Calls `visit(row, count, number)` for the rows of dropout's buffers, which
  /// are `samples` times `rowsPerSample`, or with a `length` a block of rows:
  /// `count` from `row` on, whose keys are those of `number` and so on. `n` are
  /// the integers of the kernel.
  template <class Ints, class Visit>
  void forEachDropoutPiece(const Ints &n, Visit visit) const {
    const auto first = uint64_t(at().first_sample);
    const int64_t rows = n.rowsPerSample;
    const auto per = uint64_t(rows);
    if (n.length == 0)
      return visit(int64_t(0), n.samples * rows, first * per);
    forEachRowPiece(
        n.samples, n.balanced,
        [&](const RowPiece &piece) {
          visit(piece.row * rows, piece.count * rows,
                (first * uint64_t(n.length) + uint64_t(piece.number)) * per);
        },
        n.ofBlock);
  }
  /// The probability of DROP_PATH in the running layer.
  double dropPathProbability() const {
    using K = kernels::DropPath;
    double p = real(K::rate) * double(at().layer - ints<K>().firstLayer);
    checkDropout(p);
    return p;
  }
  void checkScratch(int index, uint64_t bytes) const {
    if (descriptor(index).bytes < bytes)
      throw CallError("attention needs " + std::to_string(bytes) +
                      " bytes of scratch, found " +
                      std::to_string(descriptor(index).bytes));
  }
  /// ROTARY: each pair has a frequency.
  void checkFrequencies(int64_t pairs) const {
    using K = kernels::Rotary;
    if (int64_t(op().real_count) < K::frequency + pairs)
      tooFew("rotary", "reals", K::frequency + pairs, op().real_count);
  }
  void checkOptimizer(int64_t kind) const {
    if (kind < GRT_OPTIMIZER_SGD || kind > GRT_OPTIMIZER_ADAMW)
      throw CallError("optimizer must be 0, 1 or 2, found " +
                      std::to_string(kind));
  }

  /// Calls body(local begin, length, flag) for the part of every segment that
  /// stands in the rank's shard.
  template <class K, class Body> void forEachSegment(Body body) const {
    const auto n = ints<K>();
    const int64_t shardBegin = at().sdp_index * n.shardElements;
    auto own = [&](const KernelSegment &segment) {
      int64_t begin = std::max(segment.begin, shardBegin);
      int64_t end = std::min(segment.begin + segment.length,
                             shardBegin + n.shardElements);
      if (begin < end)
        body(begin - shardBegin, end - begin, segment.flag);
    };
    if (!grt::forEachSegment<K>(op(), own))
      throw CallError(std::to_string(n.segments) +
                      " segments take more integers than " +
                      std::to_string(op().int_count));
  }

protected:
  const grt_call &call;
};

} // namespace grt

#endif // GRT_BACKENDS_COMMON_CALL_H
