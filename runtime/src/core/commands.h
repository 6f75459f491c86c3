//===- commands.h - What a rank does for a task ---------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A task is a procedure of its chunk, a list of commands, which the compiler
// has made (lowering.cpp) and the program has. How a program keeps its states,
// what passes a layer, which chunk waits for what and where: all of that is in
// the lists. A place of a command may move with the task's slot, place and
// micro-batch.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_COMMANDS_H
#define GRT_CORE_COMMANDS_H

#include "core/manifest.h"
#include "program/reader.h"

#include <array>
#include <span>
#include <string>
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
  /// The task is of the micro-batch that has the batch's last loss, and
  /// somebody waits for that.
  bool isLastLoss = false;
};

inline Extent extentOf(const gvx::Place &place, const TaskFrame &frame) {
  return {place.offset + uint64_t(place.perSlot * frame.slot +
                                  place.perPlace * frame.place +
                                  place.perPart * int64_t(frame.part)),
          place.bytes};
}

/// The function of a layer for a phase; negative if it has none.
int functionOf(const Layer &layer, LayerPhase phase);

using Procedure = std::span<const gvx::Command>;

/// Whether the borrower of a tie has gradients for its owner.
bool hasGradients(const Manifest &manifest, const Tie &tie);

/// The commands over the ends of ties that a role has, for a kind of procedure
/// for which gvx::isOfTies; or what updates do before their functions. None if
/// there are none.
///
/// At the end of a step both ends of a tie meet. Under a schedule that goes on
/// ends of two roles do not, as long as neither is far behind. The borrower
/// leaves a copy of its gradient, as the next batch's first backward pass is
/// next; the owner takes it for its own update of the same batch, which comes
/// later in any case. The owner leaves the value where it is, as its next
/// update is a batch away; the borrower takes it before its own next update, or
/// before its first forward pass that needs it. Over the memory of devices both
/// ends meet instead.
std::vector<gvx::Command> tieCommands(const Manifest &manifest, size_t role,
                                      uint8_t task);

/// The commands of one kind of procedure with which steps or evaluations end.
struct EndCommands {
  std::vector<gvx::Command> before; ///< in front of all others of it
  std::vector<gvx::Command> behind; ///< behind them
};

/// Returns the commands of a kind of procedure with which steps end. All ranks
/// meet at the norm and decide of the update there. Three kinds of programs
/// differ: where gradients are late ranks do not meet, and what clips is the
/// norm of the batch before; where no update depends on all ranks the run may
/// choose not to meet; and where updates are done just in time the decision is
/// of none. `hasLoss`: the procedure is of the chunk that has the model's loss.
EndCommands endCommands(const Manifest &manifest, uint8_t task, bool hasLoss);

/// Whether anything depends on the squares of gradients.
bool needsNorm(const Manifest &manifest);
/// Whether a chunk of a role ends with the model's loss.
bool hasLoss(const Role &role, const Chunk &chunk);
/// Whether no update of the program depends on what all ranks tell each other,
/// so that the run may choose to go ahead.
bool mayGoAhead(const Manifest &manifest);

/// The procedures of a role's tasks, as its program has them.
class Procedures {
public:
  Procedures() = default;
  /// The program has been checked, and outlives this object.
  Procedures(const ProgramFile &program, size_t number, const Role &role);

  /// Of a pass, a sum of gradients or an update of a chunk of the role, which
  /// is number `chunk` of its list.
  Procedure of(size_t chunk, uint8_t taskKind) const {
    return chunks[chunk].passes[taskKind];
  }
  Procedure swap(size_t chunk, const grt_task &task) const;
  /// Of the role's part of this number of all transfers.
  const gvx::Message &message(size_t part) const { return *messages[part]; }
  /// Squares of all gradients, but of those that are updated when no others are
  /// known; and behind it the decision of the update.
  Procedure norm() const { return squares; }
  Procedure decision() const { return decided; }
  /// Procedures that follow all tasks of a step, and of an evaluation.
  Procedure stepEnd() const { return ended; }
  Procedure evaluationEnd() const { return evaluated; }
  /// Makes the older version of all parameters that of the newest, if there is
  /// one.
  Procedure older() const { return copies; }
  /// Of the role's ties: gvx::isOfTies.
  Procedure ofTies(uint8_t task) const {
    return task == GRT_TASK_TIE_REDUCE      ? summed
           : task == GRT_TASK_TIE_BROADCAST ? given
                                            : taken;
  }

  /// The bytes of a place of a command or a message; none for place 0.
  Extent extent(uint32_t place, const TaskFrame &frame) const {
    return place ? extentOf(places[place - 1], frame) : Extent();
  }

private:
  struct Swap {
    const gvx::Procedure *row;
    Procedure commands;
  };
  struct OfChunk {
    std::array<Procedure, GRT_TASK_SWAP + 1> passes;
    std::vector<Swap> swaps; ///< of few kinds
  };

  std::span<const gvx::Place> places;
  std::vector<OfChunk> chunks;
  std::vector<const gvx::Message *> messages;
  Procedure squares, decided, copies, summed, given, taken, ended, evaluated;
};

/// Checks that every task and message of a role has its row, once, and that
/// rows name what the role has, so that whoever runs them needs no checks:
/// layers with the function of the phase, exchanges, streams, places inside of
/// the arena and the home, whatever the slot and the micro-batch. The manifest
/// and the tasks have been checked. Throws Error with exit code 2.
void checkCommands(const ProgramFile &program, const Manifest &manifest);

} // namespace grt

#endif // GRT_CORE_COMMANDS_H
