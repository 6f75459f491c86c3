//===- commands.h - What a rank does for a task ---------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A task is a procedure of its chunk, a list of commands. How a program keeps
// its states, what passes a layer, which chunk waits for what and where: all
// of that is in the lists, which are made once, when a rank is loaded. A
// command of its own may depend on the task's slot, place and micro-batch.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_COMMANDS_H
#define GRT_CORE_COMMANDS_H

#include "core/places.h"

#include <map>
#include <span>
#include <vector>

namespace grt {

/// The facts of a task that the places of its commands depend on.
struct TaskFrame {
  uint32_t microBatch = 0;
  uint32_t slot = 0;  ///< in the arena
  uint32_t place = 0; ///< of a message that waits, or of a slot at home
  uint64_t part = 0;  ///< of that slot
  /// The chunk has not run backward in this step.
  bool isFirst = false;
  /// Gradients are summed behind the pass of each layer.
  bool sumsBehind = false;
};

/// Bytes of the arena, or of the home, of slot, place and part 0, and the way
/// from each to the next.
struct MovingPlace {
  uint64_t offset = 0, bytes = 0;
  int64_t perSlot = 0, perPlace = 0, perPart = 0;

  MovingPlace() = default;
  MovingPlace(const Extent &extent)
      : offset(extent.offset), bytes(extent.bytes) {}
  Extent at(const TaskFrame &frame) const {
    return {offset + uint64_t(perSlot * frame.slot + perPlace * frame.place +
                              perPart * int64_t(frame.part)),
            bytes};
  }
};

enum class CommandKind : uint8_t {
  Call,      ///< function `number` of the layer, in the phase
  Gather,    ///< puts the gather of the layer's parameters on its stream
  Collect,   ///< gathers what the layer's update has made
  Sum,       ///< puts the sum of the layer's gradients on its stream
  AwaitSum,  ///< `stream` comes behind the sums begun so far
  AwaitHome, ///< the host waits for what is on its way home
  Order,     ///< `stream` comes behind stream `number`
  Begin,     ///< `to` is live
  End,       ///< it is not
  Copy,      ///< `to` = `from`, both in the arena
  Add,       ///< `to` += `from`, both in the arena
  Reshard,   ///< exchange `number` inside the stage
  UseSlot,   ///< functions are about to use the slot
  UseBuffer, ///< or `to`, a part of boundary buffer `number`
  Used,      ///< what functions used may be transferred
  Mark,      ///< remembers what is live
  Rewind,    ///< nothing is live that was not then
  TakeTurn,  ///< the chunk's parameters take the place of those there
  SwapIn,    ///< `to` in the arena = `from` at home, of class `number`
  SwapOut,   ///< `to` at home = `from` in the arena
  SwapSlot,  ///< what backward needs of a micro-batch, in or out
};

/// On which tasks of its kind a command is for.
enum class When : uint8_t { Always, First, SumsBehind };

struct Command {
  CommandKind kind = CommandKind::Call;
  When when = When::Always;
  LayerPhase phase = LayerPhase::Forward;
  uint8_t stream = GRT_STREAM_COMPUTE;
  int32_t layer = -1; ///< of the role
  int32_t number = -1;
  MovingPlace from, to;
};

using Procedure = std::vector<Command>;

/// One end of a message between chunks.
struct MessageEnd {
  int exchange = -1;
  MovingPlace place;
  /// The functions that use the place too and are waited for: those that
  /// use the slot, or a boundary buffer of this number. None: all functions.
  enum class Shared : uint8_t { WithAll, WithSlot, WithBuffer };
  Shared shared = Shared::WithAll;
  int buffer = -1;
  bool isHome = false;   ///< the place is one of the home
  bool goesHome = false; ///< the other end's is
};

/// The procedures of a role's tasks.
class Procedures {
public:
  Procedures() = default;
  /// `layers` are prepared; the tasks have been checked.
  Procedures(const Manifest &manifest, const Role &role,
             std::span<const LayerState> layers, const grt_schedule &schedule);

  /// Of a pass, a sum of gradients or an update of a chunk of the role, which
  /// is number `chunk` of its list.
  const Procedure &of(size_t chunk, uint8_t taskKind) const {
    return chunks[chunk].passes[taskKind];
  }
  const Procedure &swap(size_t chunk, const grt_task &task) const {
    return chunks[chunk].swaps.at(swapKey(task));
  }
  /// Of the role's part of this number of all transfers.
  const MessageEnd &message(size_t part) const { return messages[part]; }
  /// Squares of all gradients, but of those that are updated when no others are
  /// known.
  const Procedure &norm() const { return squares; }
  /// Makes the older version of all parameters that of the newest, if there is
  /// one.
  const Procedure &older() const { return copies; }

private:
  struct OfChunk {
    std::array<Procedure, GRT_TASK_SWAP + 1> passes;
    std::map<uint32_t, Procedure> swaps;
  };
  static uint32_t swapKey(const grt_task &task) {
    return uint32_t(task.classes) << 16 | uint32_t(task.tiers) << 8 |
           task.stream;
  }

  std::vector<OfChunk> chunks;
  std::vector<MessageEnd> messages;
  Procedure squares, copies;
};

} // namespace grt

#endif // GRT_CORE_COMMANDS_H
