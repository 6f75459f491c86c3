//===- executor_calls.cpp - Calls of layer functions ----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "base/error.h"
#include "core/executor.h"
#include "core/init.h"
#include "core/program_text.h"

#include <algorithm>
#include <cstring>

namespace grt {
void Rank::failHere(const std::string &what) const {
  fail("rank " + std::to_string(self) +
       (input->step ? ", step " + str(input->step) : "") +
       (runningLayer ? ", layer '" + runningLayer->name + "'" : "") + ": " +
       what);
}

void Rank::failCall(const grt_kernel_op &op, const char *message) const {
  const char *name = *op.name ? op.name : kernelName(op.kernel);
  failHere(std::string(kernelName(op.kernel)) + " '" + name + "': " + message);
}

char *Rank::resolve(const grt_buffer &buffer, const char *name,
                    size_t position) {
  char *address = bound.resolve(buffer);
  if (!address && !bound.has(buffer))
    failHere(bound.describeOutside(buffer, name, position));
  return address;
}

void Rank::run(const gvx::Call &call) {
  const ProgramFile &file = state.program.file();
  switch (call.kind) {
  case gvx::CallKind::Launch:
    return launch(file.kernel(call.index));
  case gvx::CallKind::Communicate:
    return communicate(file.collective(call.index));
  case gvx::CallKind::Order:
    return order(file.event(call.index));
  case gvx::CallKind::BeginLife:
    return beginLife(file.buffer(call.index));
  case gvx::CallKind::EndLife:
    return endLife(file.buffer(call.index));
  }
}

void Rank::launch(const grt_kernel_op &op) {
  expand(op, [&](const grt_kernel_op &each, const ParameterRule *rule) {
    if (!rule || !rule->hasScalars() || op.kernel != GRT_KERNEL_OPTIMIZER)
      return start(each, stepBlock());
    // Not on a device: Session refuses that.
    grt_step own = *step;
    own.learning_rate *= rule->rate;
    own.weight_decay = rule->decay.value_or(own.weight_decay);
    start(each, &own);
  });
}

void Rank::start(const grt_kernel_op &op, grt_step *block) {
  const char *name = *op.name ? op.name : kernelName(op.kernel);
  if (state.failed.load(std::memory_order_relaxed))
    throw Aborted();
  activity.begin(kernelName(op.kernel), op.name);
  void *buffers[gvx::mostBuffers];
  char message[256] = "";
  for (uint32_t i = 0; i < op.buffer_count; ++i) {
    buffers[i] = resolve(op.buffers[i], name, i);
    noteUseBy(*side, buffers[i], op.buffers[i].bytes, name);
  }
  grt_call call{
      &op,        buffers, &running->coordinates, block, progress.accumulates,
      side->state};
  if (side->backend->kernels[op.kernel](&call, message, sizeof(message))) {
    message[sizeof(message) - 1] = 0;
    failCall(op, message);
  }
  const bool isLoss = op.kernel == GRT_KERNEL_CROSS_ENTROPY ||
                      op.kernel == GRT_KERNEL_SOFTMAX_CROSS_ENTROPY ||
                      op.kernel == GRT_KERNEL_REGULARIZED_CROSS_ENTROPY;
  if (isLoss && input->scoredToken >= 0)
    keepScores(op, buffers[kernels::CrossEntropy::logits]);
  if (isLoss && input->countsHits)
    countHits(op, buffers[kernels::CrossEntropy::labels],
              buffers[kernels::CrossEntropy::stats]);
  activity.end();
}

namespace {
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

void Rank::keepScores(const grt_kernel_op &op, const void *logits) {
  const LayerState &last = layers.back();
  if (last.block != 0)
    return;
  const LossShape shape(op);
  if (shape.isBlock)
    failHere("a rank with a block of the rows cannot score the token of "
             "another's: expected a plan whose last layer has them whole");
  if (input->scoredToken + input->scoredRows > shape.rows)
    failHere("cross-entropy has no row " +
             str(input->scoredToken + input->scoredRows - 1));
  // A TP rank has its columns of them.
  int64_t columns = shape.columns;
  inspection.scores.first =
      shape.isSharded ? running->coordinates.tp_index * columns : 0;
  const auto each = size_t(std::clamp<int64_t>(
      shape.globalColumns - inspection.scores.first, 0, columns));
  inspection.scores.count = each;
  inspection.scores.values.resize(size_t(input->scoredRows) * each);
  uint32_t dtype = op.buffers[kernels::CrossEntropy::logits].dtype;
  for (int64_t row = 0; row < input->scoredRows; ++row)
    device->read(static_cast<const char *>(logits) +
                     uint64_t((input->scoredToken + row) * columns) *
                         dtypeBytes(dtype),
                 each, dtypeBytes(dtype),
                 [&](const char *piece, uint64_t first, uint64_t count) {
                   loadValues(piece, int64_t(count), grt_dtype(dtype),
                              inspection.scores.values.data() +
                                  size_t(row) * each + first);
                 });
}

void Rank::countHits(const grt_kernel_op &op, const void *labels,
                     const void *stats) {
  const LossShape shape(op);
  // All of a TP group have the statistics of all shards; of others each has its
  // own rows.
  const grt_coordinates &at = running->coordinates;
  if (shape.isBlock ? !running->isFirst : !running->countsLoss())
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
    device->download(right,
                     static_cast<const char *>(labels) +
                         uint64_t(labelOf(begin)) * sizeof(int32_t),
                     uint64_t(count) * sizeof(int32_t));
    for (int64_t shard = 0; shard < shards; ++shard) {
      device->read(
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
      inspection.hits += right[row] >= 0 && logit[row] >= largest[row];
  }
}

void Rank::communicate(const grt_collective_op &op) {
  const char *name = *op.name ? op.name : "collective";
  char *in = resolve(op.in, name, 0), *out = resolve(op.out, name, 1);
  activity.begin("collective", name);
  notePlace(name);
  communicator->onStream(grt_stream(op.stream));
  Group *group = running->groups[op.axis];
  uint64_t members = group ? uint64_t(group->size()) : 1;
  auto expect = [&](uint64_t inBytes, uint64_t outBytes) {
    if (inBytes != outBytes || op.in.dtype != op.out.dtype)
      failHere(std::string("'") + name + "' has " + str(op.in.bytes) +
               " bytes of " + dtypeName(op.in.dtype) + " in and " +
               str(op.out.bytes) + " bytes of " + dtypeName(op.out.dtype) +
               " out over " + str(members) + " ranks");
  };
  auto dtype = grt_dtype(op.out.dtype);
  uint64_t count = op.out.bytes / dtypeBytes(op.out.dtype);
  bool add = op.acc == 1 || (op.acc == 2 && progress.accumulates);
  switch (grt_collective(op.collective)) {
  case GRT_ALL_REDUCE:
    expect(op.in.bytes, op.out.bytes);
    if (in != out)
      device->copy(op.stream, out, in, op.in.bytes);
    if (group)
      communicator->allReduce(*group, out, count, dtype);
    break;
  case GRT_ALL_GATHER:
    expect(op.in.bytes * members, op.out.bytes);
    if (group)
      communicator->allGather(*group, in, out, op.in.bytes);
    else if (in != out)
      device->copy(op.stream, out, in, op.in.bytes);
    break;
  case GRT_REDUCE_SCATTER:
    expect(op.in.bytes, op.out.bytes * members);
    if (!group)
      group = &communicator->group({self});
    communicator->reduceScatter(*group, in, out, count, dtype, add);
    break;
  case GRT_ALL_REDUCE_MAX:
    expect(op.in.bytes, op.out.bytes);
    if (in != out)
      device->copy(op.stream, out, in, op.in.bytes);
    if (group)
      communicator->allReduceMax(*group, out, count, dtype);
    break;
  case GRT_ALL_TO_ALL:
  case GRT_ALL_TO_ALL_COUNTS:
  case GRT_SHIFT:
    moveBlocks(op, group, in, out);
    break;
  case GRT_COLLECTIVE_COUNT:
    break;
  }
  communicator->onStream(GRT_STREAM_COMPUTE);
}

void Rank::moveBlocks(const grt_collective_op &op, Group *group, const char *in,
                      char *out) {
  if (!group)
    group = &communicator->group({self});
  const auto members = uint64_t(group->size());
  if (op.collective == GRT_ALL_TO_ALL)
    return communicator->allToAll(*group, in, out, op.in.bytes / members);
  if (op.collective == GRT_SHIFT)
    return communicator->shift(*group, in, out, op.in.bytes, op.distance);
  const auto place =
      std::find(group->ranks().begin(), group->ranks().end(), self);
  const auto index = size_t(place - group->ranks().begin());
  // Counts are values: which call has wrong ones is said.
  try {
    communicator->allToAll(*group, in, out,
                           pairCounts.read(*device,
                                           resolve(op.counts, op.name, 2), op,
                                           members, index));
  } catch (const Error &error) {
    failHere(std::string("'") + op.name + "': " + error.what());
  }
}

void Rank::order(const grt_event_op &op) {
  if (op.wait)
    device->wait(op.stream, op.event);
  else
    device->record(op.stream, op.event);
}

void Rank::beginLife(const grt_buffer &buffer) {
  char *address = resolve(buffer, "begin", 0);
  if (!buffer.bytes)
    return;
  live.begin(uint64_t(address - arena->base()), buffer.bytes);
  device->note(GRT_NOTE_BEGIN, address, buffer.bytes);
}

void Rank::endLife(const grt_buffer &buffer) {
  char *address = resolve(buffer, "end", 0);
  if (!buffer.bytes)
    return;
  if (!live.end(uint64_t(address - arena->base()), buffer.bytes, poisonDead()))
    failHere("a buffer of " + str(buffer.bytes) + " bytes at " +
             str(buffer.offset) + " of region " + regionName(buffer.region) +
             " ends that never began");
  device->note(GRT_NOTE_END, address, buffer.bytes);
}

} // namespace grt
