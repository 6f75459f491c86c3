//===- layer_check.cpp - What the functions of a layer have to do ---------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/layer_check.h"
#include "base/error.h"
#include "core/call_checks.h"
#include "core/like_layers.h"
#include "core/program_text.h"
#include "core/text_begins.h"
#include "grt/axes.h"
#include "grt/data_bounds.h"
#include "grt/kernels.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

namespace grt {
namespace {

/// Begins and ends of bytes, by begin.
using Pieces = std::vector<std::pair<uint64_t, uint64_t>>;

class LayerCheck {
public:
  LayerCheck(const Manifest &manifest, const ProgramFile &program)
      : manifest(manifest), program(program) {}

  std::string run() {
    for (const Role &role : manifest.roles) {
      LikeLayers kinds(manifest);
      for (const Layer &layer : role.layers) {
        if (!kinds.add(layer))
          continue;
        suits = true;
        for (int function : {layer.forward, layer.recompute, layer.backward,
                             layer.weight, layer.norm, layer.update})
          checkCalls(role, layer, function);
        // What does not suit its kernel is for those who know kernels.
        if (!suits)
          return "";
        if (!layer.forwardOnly) {
          checkGradients(layer);
          checkSegments<kernels::Norm>(layer, layer.norm, GRT_KERNEL_NORM);
        }
        checkSegments<kernels::Optimizer>(layer, layer.update,
                                          GRT_KERNEL_OPTIMIZER);
        if (!wrong.empty())
          return wrong;
      }
    }
    return "";
  }

private:
  void refuse(const Layer &layer, int function, const std::string &what) {
    if (wrong.empty())
      wrong = "function '" + manifest.functions[size_t(function)] +
              "' of layer '" + layer.name + "': " + what;
  }

  //===--------------------------------------------------------------------===//
  // Gradients
  //===--------------------------------------------------------------------===//

  /// Adds the gradients that a function writes to `pieces`.
  void addWritten(int function, Pieces &pieces) const {
    auto add = [&](const grt_buffer &buffer) {
      if (buffer.region == GRT_REGION_GRADIENT && buffer.bytes)
        pieces.push_back({buffer.offset, buffer.offset + buffer.bytes});
    };
    if (function < 0)
      return;
    for (const gvx::Call &call : program.calls(size_t(function)))
      if (call.kind == gvx::CallKind::Communicate) {
        add(program.collective(call.index).out);
      } else if (call.kind == gvx::CallKind::Launch) {
        const grt_kernel_op &op = program.kernel(call.index);
        const KernelBuffers known = buffersOf(op);
        for (uint32_t i = 0; i < op.buffer_count && i < known.size(); ++i)
          if (writes(known[i].access))
            add(op.buffers[i]);
      }
  }

  const Pieces &writtenBy(const Layer &layer) {
    const auto [it, isNew] =
        written.try_emplace({layer.backward, layer.weight});
    Pieces &pieces = it->second;
    if (!isNew)
      return pieces;
    addWritten(layer.backward, pieces);
    addWritten(layer.weight, pieces);
    std::ranges::sort(pieces);
    return pieces;
  }

  static bool covers(const Pieces &pieces, uint64_t begin, uint64_t end) {
    for (const auto &[first, last] : pieces)
      if (first <= begin)
        begin = std::max(begin, last);
    return begin >= end;
  }

  /// Gradients of parameters are written, or the shard of their sums.
  void checkGradients(const Layer &layer) {
    const Pieces &pieces = writtenBy(layer);
    const uint64_t each = manifest.accumulatorBytes();
    uint64_t base = 0;
    for (size_t g = 0; g < Layer::trainedGroups; ++g) {
      const FlatGroup &group = layer.groups[g];
      const uint64_t shard = uint64_t(group.shardElements) * each;
      const bool isCut = group.shardElements != group.elements;
      for (const LayerTensor &tensor : layer.tensors) {
        if (size_t(tensor.group) != g)
          continue;
        const uint64_t begin =
            base + (isCut ? 0 : uint64_t(tensor.offset)) * each;
        const uint64_t end =
            isCut ? base + shard
                  : begin + uint64_t(tensor.localElements()) * each;
        if (!covers(pieces, begin, end))
          refuse(layer, layer.backward,
                 "expected a call that writes the gradient of '" +
                     manifest.parameters[size_t(tensor.parameter)].name +
                     "', bytes " + str(begin) + " to " + str(end) +
                     ", found none");
      }
      base += shard;
    }
  }

  //===--------------------------------------------------------------------===//
  // Updates and norms
  //===--------------------------------------------------------------------===//

  /// What the flag of a tensor's segment has to be.
  template <class K> bool flagOf(const LayerTensor &tensor) const {
    if constexpr (std::is_same_v<K, kernels::Optimizer>)
      return manifest.parameters[size_t(tensor.parameter)].decay;
    else
      return tensor.tpDim < 0; // the same on all ranks, counted once
  }

  /// What is wrong with the buffers of an update or a norm, which are the
  /// layer's states from their beginning on, and with its rule.
  std::string wrongStates(const grt_kernel_op &op) const {
    static constexpr uint32_t ofUpdate[] = {
        GRT_REGION_PARAMETER, GRT_REGION_GRADIENT, GRT_REGION_OPTIMIZER};
    const bool updates = op.kernel == GRT_KERNEL_OPTIMIZER;
    for (uint32_t i = 0; i < op.buffer_count; ++i) {
      const uint32_t region = updates ? ofUpdate[i] : GRT_REGION_GRADIENT;
      if (op.buffers[i].region != region || op.buffers[i].offset != 0)
        return std::string("expected buffer ") + str(i) + " to be " +
               regionName(region) + " from its beginning on";
    }
    static constexpr const char *rules[] = {"sgd", "adam", "adamw"};
    static_assert(GRT_OPTIMIZER_SGD == 0 && GRT_OPTIMIZER_ADAM == 1 &&
                  GRT_OPTIMIZER_ADAMW == 2);
    if (updates &&
        manifest.optimizer != rules[intsOf<kernels::Optimizer>(op).optimizer])
      return "expected the rule '" + manifest.optimizer + "', found '" +
             rules[intsOf<kernels::Optimizer>(op).optimizer] + "'";
    return "";
  }

  /// A function of updates or of the norm has every tensor that the layer owns
  /// once.
  template <class K>
  void checkSegments(const Layer &layer, int function, uint32_t kernel) {
    std::map<int64_t, std::pair<const LayerTensor *, int>> tensors;
    for (const LayerTensor &tensor : layer.tensors)
      if (tensor.isTrained())
        tensors[tensor.offset] = {&tensor, 0};
    if (function < 0)
      return;
    for (const gvx::Call &call : program.calls(size_t(function))) {
      if (call.kind != gvx::CallKind::Launch)
        continue;
      const grt_kernel_op &op = program.kernel(call.index);
      if (op.kernel != kernel)
        continue;
      if (std::string what = wrongStates(op); !what.empty())
        refuse(layer, function, textOf(program, call) + ": " + what);
      forEachSegment<K>(op, [&](const KernelSegment &segment) {
        const auto it = tensors.find(segment.begin);
        if (it == tensors.end())
          return; // wrongCall
        ++it->second.second;
        const LayerTensor &tensor = *it->second.first;
        if ((segment.flag != 0) != flagOf<K>(tensor))
          refuse(layer, function,
                 "expected the flag " + str(int(flagOf<K>(tensor))) + " of '" +
                     manifest.parameters[size_t(tensor.parameter)].name +
                     "', found " + str(segment.flag));
      });
    }
    for (const auto &[offset, seen] : tensors)
      if (seen.second != 1)
        refuse(layer, function,
               std::string("expected one '") + kernelName(kernel) + "' of '" +
                   manifest.parameters[size_t(seen.first->parameter)].name +
                   "', found " + str(seen.second));
  }

  //===--------------------------------------------------------------------===//
  // Calls
  //===--------------------------------------------------------------------===//

  void checkCalls(const Role &role, const Layer &layer, int function) {
    if (function < 0 || !wrong.empty() ||
        !seen.insert({function, layer.degree(GRT_AXIS_DP),
                      layer.degree(GRT_AXIS_SDP), layer.degree(GRT_AXIS_TP),
                      layer.degree(GRT_AXIS_CP), layer.replicated, layer.data})
             .second)
      return;
    sums.clear();
    for (const gvx::Call &call : program.calls(size_t(function))) {
      std::string what;
      if (call.kind == gvx::CallKind::Communicate) {
        const grt_collective_op &op = program.collective(call.index);
        what = wrongCollective(layer, op);
        if (what.empty())
          what = wrongStream(op);
        if (what.empty() && op.collective == GRT_ALL_REDUCE && isSummed(op))
          what = "its buffer is summed over this axis already";
        forgetSums(op.out);
        if (op.collective == GRT_ALL_REDUCE)
          sums.push_back(&op);
      } else if (call.kind == gvx::CallKind::Launch) {
        const grt_kernel_op &op = program.kernel(call.index);
        if (!wrongCall(op, layer).empty()) {
          suits = false;
          return;
        }
        what = wrongData(role, layer, op);
        for (uint32_t i = 0; i < op.buffer_count; ++i)
          if (writes(buffersOf(op)[i].access))
            forgetSums(op.buffers[i]);
      }
      if (!what.empty())
        refuse(layer, function, textOf(program, call) + ": " + what);
    }
  }

  static bool meet(const grt_buffer &one, const grt_buffer &other) {
    return one.region == other.region &&
           one.offset < other.offset + other.bytes &&
           other.offset < one.offset + one.bytes;
  }
  bool isSummed(const grt_collective_op &op) const {
    return std::ranges::any_of(sums, [&](const grt_collective_op *sum) {
      return sum->axis == op.axis && meet(sum->out, op.out);
    });
  }
  void forgetSums(const grt_buffer &written) {
    std::erase_if(sums, [&](const grt_collective_op *sum) {
      return meet(sum->out, written);
    });
  }

  static int64_t membersOf(const Layer &layer, uint32_t axis) {
    return layer.replicated && axis == GRT_AXIS_TP
               ? 1
               : layer.degree(grt_axis(axis));
  }

  /// What is wrong with the blocks of an all-to-all or a shift.
  static std::string wrongBlocks(const grt_collective_op &op,
                                 uint64_t members) {
    const bool shifts = op.collective == GRT_SHIFT;
    const bool counted = op.collective == GRT_ALL_TO_ALL_COUNTS;
    if (!shifts && !counted && op.collective != GRT_ALL_TO_ALL)
      return "";
    if (meet(op.in, op.out))
      return "expected an input and an output that do not overlap";
    const uint64_t each = bytesOfElement(op.in.dtype);
    if (op.collective == GRT_ALL_TO_ALL && op.in.bytes % (members * each))
      return "expected a block of whole elements for each of " + str(members) +
             " ranks, found " + str(op.in.bytes) + " bytes";
    if (shifts && uint64_t(std::abs(int64_t(op.distance))) >= members)
      return "expected a distance below " + str(members) + ", found " +
             str(op.distance);
    if (!counted)
      return "";
    if (op.unit_bytes % each || op.in.bytes % op.unit_bytes ||
        op.out.bytes % op.unit_bytes)
      return "expected whole units of whole elements, found units of " +
             str(op.unit_bytes) + ", " + str(op.in.bytes) + " bytes in and " +
             str(op.out.bytes) + " out";
    if (op.counts.dtype != GRT_I32 ||
        op.counts.bytes / members / 4 != members ||
        op.counts.bytes % (members * 4))
      return "expected counts of " + str(members) + " by " + str(members) +
             " i32, found " + str(op.counts.bytes) + " bytes of " +
             dtypeName(op.counts.dtype);
    if (meet(op.counts, op.out))
      return "expected counts and an output that do not overlap";
    return "";
  }

  static std::string wrongCollective(const Layer &layer,
                                     const grt_collective_op &op) {
    // Bytes do not tell it of what has as many in as out.
    if ((op.axis == GRT_AXIS_CP || op.collective == GRT_ALL_REDUCE) &&
        layer.degree(grt_axis(op.axis)) == 1)
      return "expected an axis that the layer's ranks are on, of which this is "
             "none";
    const auto members = uint64_t(membersOf(layer, op.axis));
    const bool gathers = op.collective == GRT_ALL_GATHER;
    const bool scatters = op.collective == GRT_REDUCE_SCATTER;
    const bool counted = op.collective == GRT_ALL_TO_ALL_COUNTS;
    // Sizes of regions are below 2^64 by far, those of a file may not be.
    auto isTimes = [&](uint64_t part, uint64_t whole) {
      return whole % members == 0 && whole / members == part;
    };
    const bool fits = gathers    ? isTimes(op.in.bytes, op.out.bytes)
                      : scatters ? isTimes(op.out.bytes, op.in.bytes)
                      : counted  ? true // each has what it may need at most
                                 : op.in.bytes == op.out.bytes;
    if (!fits || op.in.dtype != op.out.dtype)
      return "expected bytes and types that fit " + str(members) +
             " ranks, found " + str(op.in.bytes) + " of " +
             dtypeName(op.in.dtype) + " in and " + str(op.out.bytes) + " of " +
             dtypeName(op.out.dtype) + " out";
    const bool inPlace =
        op.collective == GRT_ALL_REDUCE || op.collective == GRT_ALL_REDUCE_MAX;
    if (inPlace &&
        (op.in.region != op.out.region || op.in.offset != op.out.offset))
      return "expected a result in place, found another buffer out";
    if (std::string what = wrongBlocks(op, members); !what.empty())
      return what;
    if (op.acc && !scatters)
      return "expected acc 0, found " + str(op.acc);
    // Ranks of other axes have other samples.
    const bool ofParameters =
        (gathers && op.in.region == GRT_REGION_PARAMETER) ||
        (scatters && op.out.region == GRT_REGION_GRADIENT);
    if (!axisForms[op.axis].parameters && ofParameters)
      return "expected the axis sdp, which cuts parameters";
    if (!axisForms[op.axis].values && !ofParameters)
      return "expected the axis tp or cp, as ranks of others have other "
             "samples, and this is no gather of parameters or sum of gradients";
    return "";
  }

  /// Gathers of parameters and sums of their gradients have streams of their
  /// own, or none of the program has: what is in a queue beside others runs in
  /// another order on other ranks. Shifts may be on that of gathers, where
  /// kernels run beside them, or on that of kernels.
  std::string wrongStream(const grt_collective_op &op) {
    const bool gathers =
        op.collective == GRT_ALL_GATHER && op.in.region == GRT_REGION_PARAMETER;
    const bool sums = op.collective == GRT_REDUCE_SCATTER &&
                      op.out.region == GRT_REGION_GRADIENT;
    const bool aside =
        op.collective == GRT_SHIFT && op.stream == GRT_STREAM_GATHER;
    const uint32_t own = gathers || aside ? GRT_STREAM_GATHER
                         : sums           ? GRT_STREAM_GRADIENT
                                          : GRT_STREAM_COMPUTE;
    if (!onStreams && (gathers || sums || aside))
      onStreams = op.stream != GRT_STREAM_COMPUTE;
    const uint32_t expected =
        onStreams.value_or(false) ? own : uint32_t(GRT_STREAM_COMPUTE);
    return op.stream == expected
               ? ""
               : std::string("expected stream '") + streamName(expected) +
                     "', found '" + streamName(op.stream) + "'";
  }

  std::string wrongData(const Role &role, const Layer &layer,
                        const grt_kernel_op &op) const {
    for (uint32_t i = 0; i < op.buffer_count; ++i) {
      const Datum *datum = datumOf(manifest, role, layer, op.buffers[i]);
      const std::optional<int64_t> count =
          datum ? valuesToldApart(op.kernel, op.ints, op.int_count, i,
                                  membersOf(layer, GRT_AXIS_TP))
                : std::nullopt;
      if (datum && mayHaveNoRow(*datum) && !takesNoRow(op.kernel, i))
        return "expected '" + datum->name +
               "', which may be -1, to be read as the rows of a cache alone";
      if (count && datum->below > *count)
        return "expected '" + datum->name + "' below the " + str(*count) +
               " values that it tells apart, found below " + str(datum->below);
    }
    return "";
  }

  const Manifest &manifest;
  const ProgramFile &program;
  std::map<std::pair<int, int>, Pieces> written;
  /// Functions whose calls were checked, with what that depends on.
  std::set<std::tuple<int, int64_t, int64_t, int64_t, int64_t, bool,
                      std::vector<int>>>
      seen;
  bool suits = true; ///< all calls of the layer suit their kernels
  /// Whether collectives of parameters have streams of their own, once one is
  /// known.
  std::optional<bool> onStreams;
  /// Sums of the function at hand that nothing has written to since.
  std::vector<const grt_collective_op *> sums;
  std::string wrong;
};

/// Layers are numbered along the chunks; packs have the model twice.
std::string wrongNumbers(const Manifest &manifest) {
  std::vector<std::pair<const Role *, const Chunk *>> chunks(
      size_t(manifest.chunkCount));
  for (const Role &role : manifest.roles)
    for (const Chunk &chunk : role.chunks)
      chunks[size_t(chunk.number)] = {&role, &chunk};
  int64_t next = 0;
  for (size_t i = 0; i < chunks.size(); ++i) {
    const auto [role, chunk] = chunks[i];
    if (manifest.hasPacks && int(i) == manifest.forwardPacks)
      next = 0;
    for (size_t l = chunk->firstLayer; l < chunk->endLayer(); ++l, ++next)
      if (const Layer &layer = role->layers[l]; layer.index != next)
        return "layer '" + layer.name + "' of chunk " + str(i) +
               ": expected index " + str(next) + ", found " + str(layer.index);
  }
  return "";
}

/// What the loss is a mean over is read by the layer that gives it.
std::string wrongCounted(const Manifest &manifest) {
  for (const Role &role : manifest.roles)
    for (const Layer &layer : role.layers) {
      const bool reads = std::ranges::any_of(layer.data, [&](int copy) {
        return manifest.data[size_t(role.copies[size_t(copy)].datum)].counted;
      });
      const bool gives = layer.output == OutputKind::Loss;
      if (reads != gives)
        return "layer '" + layer.name + "', which gives " +
               (gives ? "the" : "no") + " loss: expected it " +
               (gives ? "" : "not ") + "to read '" + manifest.counted().name +
               "', which the loss is a mean over";
    }
  return "";
}

/// A parameter that a layer borrows has one tie to its owner; packs that run
/// forward only may have it where its states are.
std::string wrongTies(const Manifest &manifest) {
  for (size_t r = 0; r < manifest.roles.size() && !manifest.hasPacks; ++r) {
    const std::vector<Layer> &layers = manifest.roles[r].layers;
    for (size_t l = 0; l < layers.size(); ++l)
      for (size_t t = 0; t < layers[l].tensors.size(); ++t) {
        const auto ties =
            std::ranges::count_if(manifest.ties, [&](const Tie &tie) {
              return tie.borrower.role == int(r) &&
                     tie.borrower.layer == int(l) &&
                     tie.borrower.tensor == int(t);
            });
        const LayerTensor &tensor = layers[l].tensors[t];
        // What is not trained is the same in both from the beginning on.
        const int expected = tensor.isBorrowed() && !tensor.isFrozen() ? 1 : 0;
        if (ties != expected)
          return "layer '" + layers[l].name + "': expected " + str(expected) +
                 " ties of '" +
                 manifest.parameters[size_t(tensor.parameter)].name +
                 "', found " + str(ties);
      }
  }
  return "";
}

/// Every step has its norm and every evaluation its micro-batches, whatever the
/// order of tasks.
std::string wrongParts(const grt_schedule &schedule, const Manifest &manifest,
                       const Role &role) {
  auto count = [&](grt_part part, auto is) {
    const grt_task_list &list = schedule.parts[part];
    return uint64_t(std::count_if(list.tasks, list.tasks + list.count, is));
  };
  const std::string place = "schedule of stage " + str(role.stage);
  const uint64_t norms = count(GRT_PART_STEP_END, [](const grt_task &task) {
    return task.kind == GRT_TASK_NORM;
  });
  if (const uint64_t expected = needsNorm(manifest); norms != expected)
    return place + ", step end: expected " + (expected ? "one" : "no") +
           " norm, found " + str(norms);
  for (const Chunk &chunk : role.chunks) {
    const uint64_t forwards =
        count(GRT_PART_EVALUATE, [&](const grt_task &task) {
          return task.kind == GRT_TASK_FORWARD && task.chunk == chunk.number;
        });
    if (!manifest.hasPacks && forwards != uint64_t(manifest.microBatches))
      return place + ", evaluate: expected the " + str(manifest.microBatches) +
             " micro-batches to be run forward by chunk " + str(chunk.number) +
             ", found " + str(forwards);
  }
  return "";
}

} // namespace

const Datum *datumOf(const Manifest &manifest, const Role &role,
                     const Layer &layer, const grt_buffer &buffer) {
  uint64_t begin = 0;
  if (buffer.region != GRT_REGION_DATA)
    return nullptr;
  for (int copy : layer.data) {
    const Datum &datum = manifest.data[size_t(role.copies[size_t(copy)].datum)];
    if (buffer.offset == begin)
      return &datum;
    begin += alignUp(uint64_t(layer.samples) * datum.bytesPerSample);
  }
  return nullptr;
}

std::string wrongLayers(const Manifest &manifest, const ProgramFile &program) {
  if (std::string wrong = wrongNumbers(manifest); !wrong.empty())
    return wrong;
  if (std::string wrong = wrongCounted(manifest); !wrong.empty())
    return wrong;
  if (std::string wrong = wrongTies(manifest); !wrong.empty())
    return wrong;
  for (size_t r = 0; r < manifest.roles.size(); ++r)
    if (std::string wrong =
            wrongParts(program.schedules()[r], manifest, manifest.roles[r]);
        !wrong.empty())
      return wrong;
  if (std::string wrong = LayerCheck(manifest, program).run(); !wrong.empty())
    return wrong;
  return wrongTextBegins(manifest, program);
}

} // namespace grt
