//===- function_check.cpp - The proof of a program's functions ------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/function_check.h"
#include "base/error.h"
#include "core/byte_set.h"
#include "core/layout.h"
#include "core/program_text.h"
#include "grt/kernels.h"
#include "grt/stream_order.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

namespace grt {
namespace {

namespace streams = galvatron::streams;

/// What a call does with bytes of a region.
struct Use {
  grt_buffer buffer;
  bool writes = false;
  uint64_t read = 0; ///< bytes from the start that must have been written
};

std::vector<Use> usesOf(const grt_kernel_op &op) {
  std::vector<Use> uses;
  const KernelBuffers known = buffersOf(op);
  if (known.size() != op.buffer_count)
    return uses;
  const int64_t acc = accOf(op.kernel, op.ints, op.int_count);
  for (uint32_t i = 0; i < op.buffer_count; ++i) {
    const KernelBuffer &what = known[i];
    Use use{op.buffers[i], writes(what.access), 0};
    const bool needs = what.access == Access::Read ||
                       what.access == Access::ReadWrite ||
                       // 2: added to where a sum is under way.
                       (what.access == Access::Accumulate && acc == 1);
    const auto each = uint64_t(what.elements == Elements::Bytes
                                   ? 1
                                   : bytesOfElement(use.buffer.dtype));
    // Between the rows of others may be what nobody reads.
    const int64_t elements = what.hasRows ? what.width : elementsOf(what.shape);
    if (needs && elements > 0 && uint64_t(elements) <= use.buffer.bytes / each)
      use.read = uint64_t(elements) * each;
    uses.push_back(use);
  }
  return uses;
}

/// Flat groups of tensors have padding, which is gathered and summed with what
/// it holds: of what collectives read the first element stands for all.
std::vector<Use> usesOf(const grt_collective_op &op) {
  const auto first = [](const grt_buffer &buffer) {
    return std::min(uint64_t(bytesOfElement(buffer.dtype)), buffer.bytes);
  };
  if (op.collective == GRT_ALL_REDUCE || op.collective == GRT_ALL_REDUCE_MAX)
    return {{op.in, true, first(op.in)}};
  if (op.collective == GRT_ALL_TO_ALL_COUNTS)
    return {{op.in, false, first(op.in)},
            {op.out, true, 0},
            {op.counts, false, op.counts.bytes}};
  const bool scatters = op.collective == GRT_REDUCE_SCATTER;
  return {{op.in, scatters && op.acc != 0, first(op.in)},
          {op.out, true, scatters && op.acc == 1 ? first(op.out) : 0}};
}

/// What functions of one layer hand on to each other.
struct HandedOn {
  std::map<uint32_t, ByteSet> written; ///< by region
  /// Buffers of other regions than the transient one, by region, begin and
  /// bytes.
  std::multiset<std::tuple<uint32_t, uint64_t, uint64_t>> lives;
};

/// Follows the calls of one function.
class FunctionProof {
public:
  /// Regions of `handed.written` hold what is said there when the function
  /// begins, and what it has written at its end; all others are what they have
  /// to be.
  FunctionProof(const ProgramFile &program, size_t function, HandedOn &handed)
      : program(program), calls(program.calls(function)), handed(handed) {}

  /// What is wrong, and in which call.
  std::string run() {
    for (at = 0; at < calls.size() && wrong.empty(); ++at)
      follow(calls[at]);
    if (wrong.empty() && usesStreams)
      checkStreams();
    return wrong;
  }

  /// Whether calls have as many buffers as their kernels.
  bool suits() const { return allSuit; }

private:
  /// A transient buffer from its begin on.
  struct Life {
    uint64_t begin, end;
    int64_t memory;
    ByteSet written;
  };

  void refuse(const std::string &what) {
    if (wrong.empty())
      wrong = "call " + str(uint64_t(at)) + ": " + what;
  }
  static std::string textOf(const grt_buffer &buffer, uint64_t bytes) {
    return std::string(regionName(buffer.region)) + "[" + str(buffer.offset) +
           ", " + str(buffer.offset + bytes) + ")";
  }

  void follow(const gvx::Call &call) {
    switch (call.kind) {
    case gvx::CallKind::Launch:
      allSuit &= buffersOf(program.kernel(call.index)).size() ==
                 program.kernel(call.index).buffer_count;
      return work(usesOf(program.kernel(call.index)), GRT_STREAM_COMPUTE, -1);
    case gvx::CallKind::Communicate: {
      const grt_collective_op &op = program.collective(call.index);
      return work(usesOf(op), op.stream, int(op.axis));
    }
    case gvx::CallKind::Order:
      usesStreams = true;
      return;
    case gvx::CallKind::BeginLife:
      return begin(program.buffer(call.index));
    case gvx::CallKind::EndLife:
      return end(program.buffer(call.index));
    }
  }

  void begin(const grt_buffer &buffer) {
    if (buffer.region != GRT_REGION_TRANSIENT) {
      handed.lives.emplace(buffer.region, buffer.offset, buffer.bytes);
      return put(streams::Operation::Kind::Begin, 0, -1,
                 {byteUse(buffer, true)});
    }
    const uint64_t behind = buffer.offset + buffer.bytes;
    for (const Life &life : lives)
      if (life.begin < behind && buffer.offset < life.end)
        return refuse("begins " + textOf(buffer, buffer.bytes) +
                      " where another buffer lives");
    lives.push_back({buffer.offset, behind, GRT_REGION_COUNT + begun++, {}});
    put(streams::Operation::Kind::Begin, 0, -1, {byteUse(buffer, true)});
  }
  void end(const grt_buffer &buffer) {
    put(streams::Operation::Kind::Work, 0, -1, {byteUse(buffer, true)});
    const std::string notBegun =
        "ends " + textOf(buffer, buffer.bytes) + ", which was not begun";
    if (buffer.region != GRT_REGION_TRANSIENT) {
      const auto begun =
          handed.lives.find({buffer.region, buffer.offset, buffer.bytes});
      if (begun == handed.lives.end())
        return refuse(notBegun);
      handed.lives.erase(begun);
      return;
    }
    const auto life = std::ranges::find_if(lives, [&](const Life &each) {
      return each.begin == buffer.offset &&
             each.end == buffer.offset + buffer.bytes;
    });
    if (life == lives.end())
      return refuse(notBegun);
    lives.erase(life);
  }

  /// The life that has all of a buffer; null if none has.
  Life *lifeOf(const grt_buffer &buffer) {
    for (Life &life : lives)
      if (life.begin <= buffer.offset &&
          buffer.offset + buffer.bytes <= life.end)
        return &life;
    return nullptr;
  }
  /// Whether one buffer that is kept has all of another.
  bool isKept(const grt_buffer &buffer) const {
    return std::ranges::any_of(handed.lives, [&](const auto &life) {
      const auto &[region, begin, bytes] = life;
      return region == buffer.region && begin <= buffer.offset &&
             buffer.offset + buffer.bytes <= begin + bytes;
    });
  }
  streams::ByteUse byteUse(const grt_buffer &buffer, bool writes) {
    int64_t memory = buffer.region;
    if (buffer.region == GRT_REGION_TRANSIENT)
      if (const Life *life = lifeOf(buffer))
        memory = life->memory;
    return {memory, buffer.offset, buffer.offset + buffer.bytes, writes};
  }

  void work(const std::vector<Use> &uses, uint32_t stream, int axis) {
    std::vector<streams::ByteUse> bytes;
    for (const Use &use : uses)
      look(use);
    for (const Use &use : uses) {
      store(use);
      bytes.push_back(byteUse(use.buffer, use.writes));
    }
    usesStreams |= stream != GRT_STREAM_COMPUTE;
    put(streams::Operation::Kind::Work, stream, axis, std::move(bytes));
  }
  /// Whether a call may use the bytes as it does.
  void look(const Use &use) {
    const grt_buffer &buffer = use.buffer;
    const ByteSet *there = nullptr;
    if (buffer.region == GRT_REGION_GATHERED && use.writes)
      return refuse("writes " + textOf(buffer, buffer.bytes));
    if (buffer.region == GRT_REGION_TRANSIENT) {
      const Life *life = lifeOf(buffer);
      if (!life && buffer.bytes)
        return refuse("uses " + textOf(buffer, buffer.bytes) +
                      ", which does not live");
      if (life)
        there = &life->written;
    } else if (buffer.region == GRT_REGION_STASH && buffer.bytes &&
               !isKept(buffer)) {
      return refuse("uses " + textOf(buffer, buffer.bytes) +
                    ", which does not live");
    } else if (const auto found = handed.written.find(buffer.region);
               found != handed.written.end()) {
      there = &found->second;
    }
    if (there && !there->has(buffer.offset, buffer.offset + use.read))
      refuse("reads " + textOf(buffer, use.read) +
             ", which no call before has written");
  }
  void store(const Use &use) {
    if (!use.writes)
      return;
    const grt_buffer &buffer = use.buffer;
    const uint64_t behind = buffer.offset + buffer.bytes;
    if (buffer.region == GRT_REGION_TRANSIENT) {
      if (Life *life = lifeOf(buffer))
        life->written.add(buffer.offset, behind);
    } else if (const auto found = handed.written.find(buffer.region);
               found != handed.written.end()) {
      found->second.add(buffer.offset, behind);
    }
  }

  void put(streams::Operation::Kind kind, uint32_t stream, int axis,
           std::vector<streams::ByteUse> uses) {
    operations.push_back({kind, uint8_t(stream), axis, std::move(uses)});
  }

  /// That events order what must not run at one time.
  void checkStreams() {
    put(streams::Operation::Kind::Return, 0, -1, {});
    const std::vector<streams::Positions> needs =
        streams::findNeeds(operations);
    std::map<uint32_t, streams::Positions> recorded;
    streams::Progress progress;
    int number = 0;
    auto come = [&] {
      const size_t stream = operations[size_t(++number)].stream;
      if (const auto missing =
              progress.findMissing(stream, needs[size_t(number)]))
        refuse("expected stream '" + std::string(streamName(uint32_t(stream))) +
               "' to wait for stream '" + streamName(uint32_t(*missing)) +
               "' before");
      progress.run(stream, number);
    };
    for (at = 0; at < calls.size(); ++at) {
      if (calls[at].kind != gvx::CallKind::Order) {
        come();
        continue;
      }
      // Events are recorded before they are waited for (program/reader.h).
      const grt_event_op &event = program.event(calls[at].index);
      if (event.wait)
        progress.wait(event.stream, recorded[event.event]);
      else
        recorded[event.event] = progress.at(event.stream);
    }
    come();
  }

  const ProgramFile &program;
  const std::span<const gvx::Call> calls;
  HandedOn &handed;
  std::vector<Life> lives;
  int64_t begun = 0;
  /// As stream_order.h wants them: the first is the function's start.
  std::vector<streams::Operation> operations{1};
  bool usesStreams = false, allSuit = true;
  size_t at = 0;
  std::string wrong;
};

/// Proves functions of layers, each once for what may stand before it.
class FunctionProofs {
public:
  FunctionProofs(const Manifest &manifest, const ProgramFile &program)
      : manifest(manifest), program(program) {}

  /// The functions of a layer, as they follow each other.
  void look(const Role &role, size_t number) {
    const Layer &layer = role.layers[number];
    const std::vector<uint64_t> outputs = outputsOf(manifest, role, number);
    const std::vector<uint64_t> inputs = inputsOf(layer);
    if (!seen.insert({layer.forward, layer.recompute, layer.backward,
                      layer.weight, layer.norm, layer.update, outputs, inputs})
             .second)
      return;
    HandedOn kept;
    kept.written[GRT_REGION_STASH];
    prove(layer.forward, kept, GRT_REGION_OUTPUT, outputs);
    if (!layer.forwardOnly) {
      // Again, with what it kept at first.
      prove(layer.recompute, kept, GRT_REGION_OUTPUT, {});
      prove(layer.backward, kept, GRT_REGION_GRAD_OUT, inputs);
      prove(layer.weight, kept, std::nullopt, {});
    }
    HandedOn nothing;
    prove(layer.norm, nothing, std::nullopt, {});
    prove(layer.update, nothing, std::nullopt, {});
  }

  std::string wrong;

private:
  /// Bytes of the tensors that a forward function makes.
  static std::vector<uint64_t> outputsOf(const Manifest &manifest,
                                         const Role &role, size_t number) {
    const Layer &layer = role.layers[number];
    if (!layer.outputs.empty() || layer.output == OutputKind::Loss)
      return layer.outputs;
    return {outputBytes(manifest, role, number)};
  }
  /// Those that a backward function makes gradients of.
  static std::vector<uint64_t> inputsOf(const Layer &layer) {
    if (layer.inputs.empty())
      return {layer.inputBytes};
    std::vector<uint64_t> bytes;
    for (const InputTensor &input : layer.inputs)
      bytes.push_back(input.bytes);
    return bytes;
  }

  /// `made`: the region that the function makes anew, with tensors of so many
  /// bytes one behind the other.
  void prove(int function, HandedOn &handed, std::optional<uint32_t> made,
             const std::vector<uint64_t> &tensors) {
    if (function < 0 || !wrong.empty())
      return;
    if (made)
      handed.written[*made] = {};
    FunctionProof proof(program, size_t(function), handed);
    std::string what = proof.run();
    uint64_t at = 0;
    for (uint64_t bytes : tensors) {
      // Bytes in a slot are rounded up: the last ones may be padding.
      const uint64_t padding = std::min<uint64_t>(
          bytes, bytes % GRT_ALIGNMENT ? 0 : GRT_ALIGNMENT - 1);
      if (what.empty() && proof.suits() &&
          !handed.written[*made].has(at, at + bytes - padding))
        what = "at its end: expected it to have written " +
               std::string(regionName(*made)) + "[" + str(at) + ", " +
               str(at + bytes) + ")";
      at += alignUp(bytes);
    }
    if (made)
      handed.written.erase(*made);
    if (!what.empty())
      wrong =
          "function '" + manifest.functions[size_t(function)] + "', " + what;
  }

  const Manifest &manifest;
  const ProgramFile &program;
  std::set<std::tuple<int, int, int, int, int, int, std::vector<uint64_t>,
                      std::vector<uint64_t>>>
      seen;
};

} // namespace

std::string wrongFunctions(const Manifest &manifest,
                           const ProgramFile &program) {
  FunctionProofs proofs(manifest, program);
  for (const Role &role : manifest.roles)
    for (size_t i = 0; i < role.layers.size(); ++i)
      proofs.look(role, i);
  return proofs.wrong;
}

} // namespace grt
