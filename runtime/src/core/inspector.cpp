//===- inspector.cpp - What is looked at beside a pass --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/inspector.h"
#include "base/error.h"
#include "comm/rank_messages.h"
#include "core/call_checks.h"
#include "core/init.h"
#include "core/program_text.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace grt {
namespace {

/// Whether all values are finite. Exponents are compared as integers, so the
/// answer does not depend on how the compiler treats NaNs.
template <typename Bits>
bool finiteBits(const char *values, uint64_t bytes, Bits exponent) {
  for (uint64_t at = 0; at + sizeof(Bits) <= bytes; at += sizeof(Bits)) {
    Bits bits;
    __builtin_memcpy(&bits, values + at, sizeof(Bits));
    if ((bits & exponent) == exponent)
      return false;
  }
  return true;
}

bool allFinite(const char *values, uint64_t bytes, grt_dtype dtype) {
  switch (dtype) {
  case GRT_F64:
    return finiteBits<uint64_t>(values, bytes, 0x7ff0000000000000ull);
  case GRT_BF16:
    return finiteBits<uint16_t>(values, bytes, 0x7f80);
  case GRT_F32:
    return finiteBits<uint32_t>(values, bytes, 0x7f800000u);
  case GRT_I32:
  case GRT_U8:
    return true;
  }
  fail("expected a known element type, found type " + str(int64_t(dtype)));
}

constexpr int64_t nothing = std::numeric_limits<int64_t>::max();

/// What was found, as one number of which the smallest counts: layers in the
/// order of the model, parameters before outputs; then gradients, last layer
/// first.
enum Place { InParameters = 0, InOutput = 1 };
int64_t forwardKey(int64_t layer, Place place) { return 2 * layer + place; }
int64_t gradientKey(int64_t layer) { return nothing - 1 - layer; }

bool isFinite(Device &memory, const char *values, uint64_t bytes,
              grt_dtype dtype) {
  bool finite = true;
  uint64_t width = dtypeBytes(dtype);
  memory.read(values, bytes / width, width,
              [&](const char *piece, uint64_t, uint64_t count) {
                finite &= allFinite(piece, count * width, dtype);
              });
  return finite;
}

/// What a kernel of the loss says of its logits. Without more a vocabulary is
/// not divided.
struct LossShape {
  explicit LossShape(const grt_kernel_op &op) {
    auto divided = [&](const auto &n) {
      rows = n.rows;
      columns = n.localCols;
      globalColumns = n.globalCols;
      isSharded = n.sharded != 0;
      shards = n.shards;
      isBlock = n.labelRows != 0;
      isBalanced = n.balanced != 0;
    };
    if (op.kernel == GRT_KERNEL_CROSS_ENTROPY) {
      divided(intsOf<kernels::CrossEntropy>(op));
    } else if (op.kernel == GRT_KERNEL_REGULARIZED_CROSS_ENTROPY) {
      divided(intsOf<kernels::RegularizedCrossEntropy>(op));
      statistics = 4;
    } else {
      const auto n = intsOf<kernels::SoftmaxCrossEntropy>(op);
      rows = n.rows;
      columns = globalColumns = n.cols;
      isBlock = n.labelRows != 0;
      isBalanced = n.balanced != 0;
    }
  }
  int64_t rows, columns, globalColumns;
  bool isBlock = false;    ///< of the rows, which the ranks of a group divide
  bool isBalanced = false; ///< in two pieces
  bool isSharded = false;
  int64_t shards = 1;
  int64_t statistics = 3; ///< values of a row
};
} // namespace

//===----------------------------------------------------------------------===//
// Logits and hits
//===----------------------------------------------------------------------===//

void Inspector::lookAtKernel(const grt_kernel_op &op, const LayerState &layer,
                             void *const buffers[]) {
  if (op.kernel != GRT_KERNEL_CROSS_ENTROPY &&
      op.kernel != GRT_KERNEL_SOFTMAX_CROSS_ENTROPY &&
      op.kernel != GRT_KERNEL_REGULARIZED_CROSS_ENTROPY)
    return;
  if (batch.input->scoredToken >= 0)
    keepScores(op, layer, buffers[kernels::CrossEntropy::logits]);
  if (batch.input->countsHits)
    countHits(op, layer, buffers[kernels::CrossEntropy::labels],
              buffers[kernels::CrossEntropy::stats]);
}

void Inspector::keepScores(const grt_kernel_op &op, const LayerState &layer,
                           const void *logits) {
  if (memories.layers.back().block != 0)
    return;
  const LossShape shape(op);
  const PassInput &input = *batch.input;
  if (shape.isBlock)
    observer.failHere(
        "a rank with a block of the rows cannot score the token of "
        "another's: expected a plan whose last layer has them whole");
  if (input.scoredToken + input.scoredRows > shape.rows)
    observer.failHere("cross-entropy has no row " +
                      str(input.scoredToken + input.scoredRows - 1));
  // A TP rank has its columns of them.
  int64_t columns = shape.columns;
  scores.first = shape.isSharded ? layer.coordinates.tp_index * columns : 0;
  const auto each = size_t(
      std::clamp<int64_t>(shape.globalColumns - scores.first, 0, columns));
  scores.count = each;
  scores.values.resize(size_t(input.scoredRows) * each);
  uint32_t dtype = op.buffers[kernels::CrossEntropy::logits].dtype;
  for (int64_t row = 0; row < input.scoredRows; ++row)
    memories.device->read(
        static_cast<const char *>(logits) +
            uint64_t((input.scoredToken + row) * columns) * dtypeBytes(dtype),
        each, dtypeBytes(dtype),
        [&](const char *piece, uint64_t first, uint64_t count) {
          loadValues(piece, int64_t(count), grt_dtype(dtype),
                     scores.values.data() + size_t(row) * each + first);
        });
}

void Inspector::countHits(const grt_kernel_op &op, const LayerState &layer,
                          const void *labels, const void *stats) {
  const LossShape shape(op);
  // All of a TP group have the statistics of all shards; of others each has its
  // own rows.
  const grt_coordinates &at = layer.coordinates;
  if (shape.isBlock ? !layer.isFirst : !layer.countsLoss())
    return;
  const int64_t rows = shape.rows, shards = shape.shards;
  const int64_t half = rows / 2;
  // The label of a row, which of a block are those of all.
  auto labelOf = [&](int64_t row) {
    if (!shape.isBlock)
      return row;
    if (!shape.isBalanced)
      return at.block_index * rows + row;
    return row < half ? at.block_index * half + row
                      : (2 * at.block_count - 2 - at.block_index) * half + row;
  };
  const uint64_t width =
      dtypeBytes(op.buffers[kernels::CrossEntropy::stats].dtype);
  // So many rows at a time, as nothing is allocated between steps.
  constexpr int64_t block = 128;
  int32_t right[block];
  double largest[block], logit[block], values[4 * block];
  for (int64_t begin = 0, count = 0; begin < rows; begin += count) {
    const bool isFirstHalf = shape.isBalanced && begin < half;
    count = std::min(block, (isFirstHalf ? half : rows) - begin);
    memories.device->download(right,
                              static_cast<const char *>(labels) +
                                  uint64_t(labelOf(begin)) * sizeof(int32_t),
                              uint64_t(count) * sizeof(int32_t));
    for (int64_t shard = 0; shard < shards; ++shard) {
      memories.device->read(
          static_cast<const char *>(stats) +
              uint64_t((shard * rows + begin) * shape.statistics) * width,
          uint64_t(count * shape.statistics), width,
          [&](const char *piece, uint64_t first, uint64_t number) {
            loadValues(
                piece, int64_t(number),
                grt_dtype(op.buffers[kernels::CrossEntropy::stats].dtype),
                values + first);
          });
      // The largest logit, the sum, and that of the label, or 0.
      for (int64_t row = 0; row < count; ++row) {
        const double *of = values + shape.statistics * row;
        largest[row] = shard ? std::max(largest[row], of[0]) : of[0];
        logit[row] = shard ? logit[row] + of[2] : of[2];
      }
    }
    for (int64_t row = 0; row < count; ++row)
      hits += right[row] >= 0 && logit[row] >= largest[row];
  }
}

//===----------------------------------------------------------------------===//
// Values that are not finite
//===----------------------------------------------------------------------===//

void Inspector::begin() {
  notFinite = nothing;
  auto scan = [&](const Layer &layer, uint64_t base, grt_dtype dtype) {
    bool finite = true;
    uint64_t width = dtypeBytes(dtype);
    for (const LayerTensor &tensor : layer.tensors)
      forEachStretch(layer, tensor, facts.local, [&](const TensorStretch &of) {
        finite &=
            isFinite(memories.access(layer),
                     memories.home(layer) + base + uint64_t(of.held()) * width,
                     uint64_t(of.count()) * width, dtype);
      });
    return finite;
  };
  for (const Layer &layer : facts.role->layers) {
    if (!scan(layer, layer.parameter, facts.manifest.dtype))
      notFinite = std::min(notFinite, forwardKey(layer.index, InParameters));
    // Those of what is updated on the device are there no more.
    if (layer.holdsGradients() &&
        !scan(layer, layer.gradient, facts.manifest.accumulatorType()))
      notFinite = std::min(notFinite, gradientKey(layer.index));
  }
  looksAtOutputs = true;
}

void Inspector::lookAtOutput(size_t number, LayerPhase phase,
                             const BoundLayer &bound) {
  if (!looksAtOutputs || phase != LayerPhase::Forward)
    return;
  const Layer &layer = memories.layer(number);
  const bool isLoss = layer.output == OutputKind::Loss;
  const BoundLayer::Region &output =
      bound.region(isLoss ? GRT_REGION_LOSS : GRT_REGION_OUTPUT);
  uint64_t bytes = isLoss ? output.bytes : memories.layers[number].outputBytes;
  grt_dtype dtype = isLoss ? GRT_F64 : facts.manifest.dtype;
  bool finite = true;
  uint64_t at = 0;
  // Between several tensors, and behind them, is nothing of the layer's.
  for (uint64_t each : layer.outputs) {
    finite &= isFinite(*memories.device, output.base + at, each, dtype);
    at += alignUp(each);
  }
  if (layer.outputs.empty())
    finite = isFinite(*memories.device, output.base, bytes, dtype);
  if (!finite)
    notFinite = std::min(notFinite, forwardKey(layer.index, InOutput));
}

void Inspector::end() {
  looksAtOutputs = false;
  const std::vector<int64_t> all =
      gatherOfRanks(facts.host, MessageKind::NotFinite, notFinite);
  notFinite = *std::min_element(all.begin(), all.end());
}

std::string Inspector::describeNotFinite() const {
  if (notFinite == nothing)
    return "though no layer has a value that is not finite";
  std::string place = "gradient";
  int64_t index = nothing - 1 - notFinite;
  if (notFinite < nothing / 2) {
    index = notFinite / 2;
    place = notFinite % 2 == InParameters ? "parameters" : "output";
  }
  for (const Role &role : facts.manifest.roles)
    for (const Layer &layer : role.layers)
      if (layer.index == index)
        return "the first layer with a value that is not finite is '" +
               layer.name + "', in its " + place +
               (place == "gradient" ? "; the forward pass is finite" : "");
  return "in layer " + std::to_string(index);
}

} // namespace grt
