//===- live_tensors.cpp - Tensors that live between layers ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/live_tensors.h"
#include "base/error.h"
#include "core/layout.h"

#include <algorithm>
#include <string>
#include <vector>

namespace grt {
namespace {

/// A tensor of the set between two layers.
struct LiveTensor {
  uint64_t offset = 0; ///< in the set
  uint64_t bytes = 0;
  uint64_t slot = 0; ///< offset in the slot that holds it
  /// Its bytes are those of its set, which may be rounded up.
  bool isRounded = false;
  /// It is in no slot: its holder's values are away, or it has none yet, as it
  /// is in a boundary buffer.
  bool isElsewhere = false;
  bool isInput = false, passes = false; ///< of the layer behind the set

  bool hasBytes(uint64_t other) const {
    return other == bytes || (isRounded && alignUp(other) == bytes);
  }
};

/// In the order of their offsets.
using LiveSet = std::vector<LiveTensor>;

std::string rangeText(uint64_t offset, uint64_t bytes) {
  return "[" + str(offset) + ", " + str(offset + bytes) + ")";
}

/// The tensors of a set, by their places in it.
std::string textOfTensors(const LiveSet &set) {
  std::string text;
  for (const LiveTensor &tensor : set)
    text += (text.empty() ? "" : ", ") + rangeText(tensor.offset, tensor.bytes);
  return text.empty() ? "none" : text;
}

std::string textInSlot(const LiveSet &set) {
  std::string text;
  for (const LiveTensor &tensor : set)
    text += (text.empty() ? "" : ", ") + rangeText(tensor.slot, tensor.bytes) +
            " with its gradient at " + str(tensor.offset);
  return text.empty() ? "none" : text;
}

/// Where the next tensor of a set begins.
uint64_t endOfSet(const LiveSet &set) {
  return set.empty() ? 0 : set.back().offset + alignUp(set.back().bytes);
}

/// Whether so many bytes are said to be those of a set, which need not be
/// rounded up if it is one tensor.
bool hasSizeOf(const LiveSet &set, uint64_t bytes) {
  return bytes == endOfSet(set) || (set.size() == 1 && set[0].hasBytes(bytes));
}

/// Which side of an exchange.
enum class ExchangeSide { Source, Destination };

/// The tensors that an exchange moves, as its side has them.
LiveSet movedBy(const Exchange &exchange, int64_t samples, ExchangeSide side) {
  const auto count = uint64_t(samples);
  if (exchange.tensors.empty())
    return {{0, exchange.bytesPerUnit * count}};
  LiveSet set;
  for (const ExchangeTensor &tensor : exchange.tensors)
    set.push_back(
        {side == ExchangeSide::Source ? tensor.source : tensor.destination,
         tensor.bytes * count});
  return set;
}

class LiveTensorsCheck {
public:
  LiveTensorsCheck(const Manifest &manifest, const Role &role,
                   const Chunk &chunk)
      : manifest(manifest), role(role), chunk(chunk) {}

  void run() {
    set = received();
    for (number = chunk.firstLayer; number < chunk.endLayer(); ++number) {
      checkInputs();
      checkPasses();
      checkFront();
      if (manifest.hasPacks)
        checkStash();
      set = behind();
      if (number + 1 < chunk.endLayer())
        goOn();
    }
    --number;
    checkMoved(chunk.sendActivation, ExchangeSide::Source);
    checkMoved(chunk.recvGradient, ExchangeSide::Destination);
    if (manifest.hasPacks && manifest.sendsHome(chunk))
      checkMoved(manifest.chunk(manifest.chunkCount - 1)->recvStash,
                 ExchangeSide::Source);
  }

private:
  const Layer &at() const { return role.layers[number]; }

  [[noreturn]] void refuse(const std::string &what) const {
    invalid("manifest: layer '" + at().name + "': " + what);
  }

  /// Says that the layer holds a set, one tensor behind the other.
  void hold(const Layer &layer, LiveSet &held) const {
    for (LiveTensor &tensor : held) {
      tensor.slot = layer.stash + tensor.offset;
      tensor.isElsewhere = layer.keptAway;
    }
    if (!hasSizeOf(held, layer.inputBytes))
      invalid("manifest: layer '" + layer.name +
              "': expected it to hold the tensors " + textOfTensors(held) +
              ", found " + str(layer.inputBytes) + " bytes");
  }

  /// What comes to the chunk, which its first layer holds.
  LiveSet received() const {
    const Layer &first = role.layers[chunk.firstLayer];
    const int exchange =
        chunk.recvActivation >= 0 ? chunk.recvActivation : chunk.recvStash;
    LiveSet result;
    if (exchange >= 0)
      result = movedBy(manifest.exchanges[size_t(exchange)], first.samples,
                       ExchangeSide::Destination);
    hold(first, result);
    return result;
  }

  //===--------------------------------------------------------------------===//
  // In front of a layer
  //===--------------------------------------------------------------------===//

  LiveTensor *find(uint64_t slot, uint64_t front, uint64_t bytes,
                   bool isElsewhere) {
    const auto it = std::ranges::find_if(set, [&](const LiveTensor &tensor) {
      return tensor.slot == slot && tensor.offset == front &&
             tensor.hasBytes(bytes) && tensor.isElsewhere == isElsewhere;
    });
    return it == set.end() ? nullptr : &*it;
  }

  void checkInputs() {
    const Layer &layer = at();
    // Without rows it is all that the layer holds.
    std::vector<InputTensor> inputs = layer.inputs;
    if (inputs.empty() && layer.inputBytes)
      inputs = {{layer.stash, 0, layer.inputBytes}};
    const bool isElsewhere = layer.inputs.empty() && layer.keptAway;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const InputTensor &input = inputs[i];
      LiveTensor *tensor =
          find(input.slot, input.front, input.bytes, isElsewhere);
      if (!tensor)
        refuse("input " + str(i) +
               ": expected a tensor that lives in front of the layer, " +
               textInSlot(set) + ", found " +
               rangeText(input.slot, input.bytes) +
               " of the slot with its gradient at " + str(input.front));
      tensor->isInput = true;
    }
  }

  void checkPasses() {
    for (const PassingTensor &each : at().passes) {
      LiveTensor *tensor =
          find(each.slot, each.front, each.bytes, /*isElsewhere=*/false);
      if (!tensor || tensor->passes)
        refuse("passes: expected tensors that live in front of the layer, " +
               textInSlot(set) + ", each once, found " +
               rangeText(each.slot, each.bytes) +
               " of the slot with its gradient at " + str(each.front));
      tensor->passes = true;
      if (tensor->isInput != each.used)
        refuse("passes: expected that it says of " +
               rangeText(each.slot, each.bytes) + " whether it is an input " +
               "too, " + str(int(tensor->isInput)) + ", found " +
               str(int(each.used)));
    }
  }

  /// Nothing in front of a layer ends there unseen, and the set is as large as
  /// the layer's gradients of it.
  void checkFront() const {
    for (const LiveTensor &tensor : set)
      if (tensor.bytes && !tensor.isInput && !tensor.passes)
        refuse("expected the tensor " + rangeText(tensor.slot, tensor.bytes) +
               " in front of it to be an input or to pass it, found neither");
    if (!hasSizeOf(set, at().frontBytes))
      refuse("expected the tensors " + textOfTensors(set) +
             " in front of it, found " + str(at().frontBytes) + " bytes");
    const int back =
        number == chunk.firstLayer ? chunk.sendGradient : at().backwardReshard;
    checkMoved(back, ExchangeSide::Source);
  }

  /// What a chunk recomputes from is held by the layer whose input it is.
  void checkStash() const {
    for (const Role &other : manifest.roles)
      for (const Chunk &receiver : other.chunks) {
        if (Manifest::stashLayer(role, chunk, receiver) != int(number))
          continue;
        checkMoved(receiver.recvStash, ExchangeSide::Source);
        for (const LiveTensor &tensor : set)
          if (tensor.slot != at().stash + tensor.offset)
            refuse("expected it to hold all tensors in front of it, which "
                   "chunk " +
                   str(receiver.number) + " recomputes from, found " +
                   rangeText(tensor.slot, tensor.bytes) + " elsewhere");
      }
  }

  //===--------------------------------------------------------------------===//
  // Behind a layer
  //===--------------------------------------------------------------------===//

  /// The tensors that the layer makes.
  LiveSet made() const {
    const Layer &layer = at();
    LiveSet result;
    for (uint64_t bytes : layer.outputs)
      result.push_back({endOfSet(result), bytes});
    if (!layer.outputs.empty() || layer.output == OutputKind::Loss)
      return result;
    if (!layer.passes.empty())
      refuse("expected 'outputs' of a layer that tensors pass, found none");
    const uint64_t bytes = outputBytes(manifest, role, number);
    if (bytes)
      result.push_back({.bytes = bytes, .isRounded = true});
    return result;
  }

  void checkApart(const LiveSet &tensors, const PassingTensor &passing) const {
    for (const LiveTensor &tensor : tensors)
      if (!tensor.isElsewhere &&
          overlap({tensor.slot, tensor.bytes}, {passing.slot, passing.bytes}))
        refuse("passes: expected a tensor apart from " +
               rangeText(tensor.slot, tensor.bytes) + " of the slot, found " +
               rangeText(passing.slot, passing.bytes));
  }

  /// What the layer makes, and behind it what passes.
  LiveSet behind() const {
    const Layer &layer = at();
    LiveSet result = made();
    if (layer.output == OutputKind::Slot)
      hold(role.layers[number + 1], result);
    else
      for (LiveTensor &tensor : result)
        tensor.isElsewhere = true;
    std::vector<PassingTensor> passes = layer.passes;
    std::ranges::sort(passes, {}, &PassingTensor::behind);
    for (const PassingTensor &tensor : passes) {
      if (tensor.behind != endOfSet(result))
        refuse("passes: expected a tensor at " + str(endOfSet(result)) +
               " behind the layer, found one at " + str(tensor.behind));
      checkApart(result, tensor);
      result.push_back({tensor.behind, tensor.bytes, tensor.slot});
    }
    if (!hasSizeOf(result, outputBytes(manifest, role, number)))
      refuse("expected the tensors " + textOfTensors(result) +
             " behind it, found " + str(outputBytes(manifest, role, number)) +
             " bytes");
    return result;
  }

  /// From behind a layer to the front of the next one, which holds what it
  /// gets by an exchange.
  void goOn() {
    const Layer &next = role.layers[number + 1];
    checkMoved(next.backwardReshard, ExchangeSide::Destination);
    checkMoved(at().forwardReshard, ExchangeSide::Source);
    if (at().forwardReshard < 0)
      return;
    set = movedBy(manifest.exchanges[size_t(at().forwardReshard)], next.samples,
                  ExchangeSide::Destination);
    hold(next, set);
  }

  /// Checks that an exchange, if there is one, moves the set as it is here.
  void checkMoved(int number, ExchangeSide side) const {
    if (number < 0)
      return;
    const Exchange &exchange = manifest.exchanges[size_t(number)];
    const LiveSet moved = movedBy(exchange, at().samples, side);
    if (!std::ranges::equal(moved, set, [](const auto &one, const auto &other) {
          return one.offset == other.offset && other.hasBytes(one.bytes);
        }))
      refuse("expected exchange '" + exchange.name + "' to move the tensors " +
             textOfTensors(set) + ", found " + textOfTensors(moved));
  }

  const Manifest &manifest;
  const Role &role;
  const Chunk &chunk;
  size_t number = 0; ///< of the layer at hand
  LiveSet set;       ///< in front of it, then behind it
};

} // namespace

void checkLiveTensors(const Manifest &manifest, const Role &role,
                      const Chunk &chunk) {
  LiveTensorsCheck(manifest, role, chunk).run();
}

} // namespace grt
