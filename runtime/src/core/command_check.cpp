//===- command_check.cpp - Commands as whoever runs them expects them -----===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "base/error.h"
#include "core/capture.h"
#include "core/commands.h"
#include "core/layout.h"
#include "core/program_text.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <vector>

namespace grt {
namespace {

using gvx::CommandKind;

/// Checks the rows of a role.
class CommandCheck {
public:
  CommandCheck(const ProgramFile &program, const Manifest &manifest,
               size_t number)
      : program(program), manifest(manifest), role(manifest.roles[number]),
        schedule(program.schedules()[number]), rows(program.ofRole(number)),
        name("commands of role " + str(number)) {}

  void run() {
    for (const gvx::Procedure &row : rows.procedures)
      checkProcedure(row);
    checkTasks();
    for (const gvx::Message &row : rows.messages)
      checkMessage(row);
    checkParts();
  }

private:
  [[noreturn]] void refuse(const std::string &what) const {
    if (!running)
      invalid(place + ": " + what);
    invalid(name + ", " + procedureName(*running) + ", command " +
            str(command - program.commands(*running).data()) + ": " + what);
  }

  //===--------------------------------------------------------------------===//
  // Who has which rows
  //===--------------------------------------------------------------------===//

  void checkTasks() {
    place = name;
    size_t ofRole = 0, used = 0;
    std::vector<bool> named(rows.procedures.size());
    for (uint8_t task : gvx::kindsOfRole) {
      gvx::Procedure of{};
      of.task = task;
      const auto found = size_t(
          std::ranges::count(rows.procedures, task, &gvx::Procedure::task));
      const size_t wanted = expectedOf(task);
      if (found != wanted)
        refuse(std::string(wanted ? "expected a procedure of '"
                                  : "expected no procedure of '") +
               procedureName(of) + "', found " + str(found));
      ofRole += found;
    }
    for (const grt_task_list &list : schedule.parts)
      for (const grt_task &task : std::span(list.tasks, list.count)) {
        if (!gvx::isProcedure(task.kind))
          continue;
        const auto row = std::ranges::find_if(
            rows.procedures, [&](const auto &each) { return each.isOf(task); });
        if (row == rows.procedures.end())
          refuse("expected a procedure of the task '" + textOf(task, schedule) +
                 "', found none");
        const size_t at = size_t(row - rows.procedures.begin());
        used += !named[at];
        named[at] = true;
      }
    const size_t all = used + ofRole;
    if (all != rows.procedures.size())
      refuse("expected " + str(all) +
             " procedures, one for each kind of task, found " +
             str(rows.procedures.size()));
  }

  /// How many procedures of a kind that is the role's it has.
  size_t expectedOf(uint8_t task) const {
    if (task == gvx::ofVersions)
      return manifest.delay > 0;
    if (gvx::isOfTies(task))
      return !tieCommands(task).empty();
    const EndCommands ends = endCommands(manifest, task, false);
    return !ends.before.empty() || !ends.behind.empty();
  }

  //===--------------------------------------------------------------------===//
  // Ties, and ends of steps
  //===--------------------------------------------------------------------===//

  std::vector<gvx::Command> tieCommands(uint8_t task) const {
    return grt::tieCommands(manifest, size_t(&role - manifest.roles.data()),
                            task);
  }

  /// Checks that commands over ties, and those that end a step or an
  /// evaluation, are the compiler's: a whole procedure, or the first and last
  /// commands of one and none in between.
  void checkGiven(const gvx::Procedure &procedure, const Chunk *chunk) {
    const bool isOfTies = gvx::isOfTies(procedure.task);
    const bool isWhole = isOfTies || procedure.task == gvx::ofStepEnd ||
                         procedure.task == gvx::ofEvaluation;
    const EndCommands ends =
        endCommands(manifest, procedure.task, chunk && hasLoss(role, *chunk));
    std::vector<gvx::Command> wanted = ends.before;
    if (isOfTies || procedure.task == GRT_TASK_UPDATE)
      std::ranges::copy(tieCommands(procedure.task),
                        std::back_inserter(wanted));
    const std::span<const gvx::Command> found = program.commands(procedure);
    const size_t most =
        found.size() - std::min(found.size(), ends.behind.size());
    const size_t last = isWhole ? wanted.size() : std::max(wanted.size(), most);
    for (size_t i = 0; i < wanted.size(); ++i)
      expectGiven(procedure, i, &wanted[i]);
    for (size_t i = wanted.size(); i < last; ++i)
      if (gvx::isOfTie(found[i].kind) || gvx::isOfEnd(found[i].kind))
        expectGiven(procedure, i, nullptr);
    for (size_t i = 0; i < ends.behind.size(); ++i)
      expectGiven(procedure, last + i, &ends.behind[i]);
    if (last + ends.behind.size() < found.size())
      expectGiven(procedure, last + ends.behind.size(), nullptr);
  }
  /// Refuses a command that is not the wanted one; null: whatever it is.
  void expectGiven(const gvx::Procedure &procedure, size_t number,
                   const gvx::Command *wanted) {
    const std::span<const gvx::Command> commands = program.commands(procedure);
    const gvx::Command *found =
        number < commands.size() ? &commands[number] : nullptr;
    if (wanted && found &&
        std::memcmp(wanted, found, sizeof(gvx::Command)) == 0)
      return;
    place = name + ", " + procedureName(procedure);
    refuse("expected " +
           (wanted ? "'" + textOf(*wanted, rows.places) + "'"
            : gvx::isOfEnd(found->kind) ? "nothing of the end of a step"
            : gvx::isOfTie(found->kind) ? "nothing of ties"
                                        : "the end") +
           " as command " + str(number) + ", found " +
           (found ? "'" + textOf(*found, rows.places) + "'" : "the end"));
  }

  void checkParts() {
    place = name;
    std::vector<bool> named(rows.messages.size());
    size_t used = 0;
    for (const grt_transfer_part &part :
         std::span(schedule.transfers, schedule.transfer_count)) {
      const auto row =
          std::ranges::find_if(rows.messages, [&](const gvx::Message &each) {
            return each.isOf(part);
          });
      if (row == rows.messages.end())
        refuse("expected a message between chunks " + str(part.chunk) +
               " and " + str(part.peer_chunk) + " of direction " +
               str(part.direction) + ", value " + str(part.value) +
               ", found none");
      const size_t at = size_t(row - rows.messages.begin());
      used += !named[at];
      named[at] = true;
    }
    if (used != rows.messages.size())
      refuse("expected " + str(used) +
             " messages, one for each kind of part of a transfer, found " +
             str(rows.messages.size()));
  }

  //===--------------------------------------------------------------------===//
  // Places
  //===--------------------------------------------------------------------===//

  /// A place stays inside of a memory for all tasks of the chunk; null: of the
  /// role. `parts` share a slot at home.
  void checkPlace(uint32_t number, const Chunk *of, const Extent &memory,
                  bool isHome, int64_t parts, const char *what) const {
    if (number == 0)
      refuse(std::string("expected a place ") + what + ", found none");
    const gvx::Place &at = rows.places[number - 1];
    __int128 least = at.offset, most = __int128(at.offset) + at.bytes;
    auto move = [&](int64_t step, uint64_t first, uint64_t count) {
      const __int128 from = __int128(step) * first;
      const __int128 to = __int128(step) * (first + count - 1);
      least += std::min(from, to);
      most += std::max(from, to);
    };
    const bool hasSlots = of && role.slotsInArena() > 1;
    move(at.perSlot, hasSlots ? of->firstSlot : 0,
         hasSlots ? std::max<uint64_t>(of->slots, 1) : 1);
    // Tasks name places that are there (checkTask).
    uint64_t places = manifest.hasPacks ? role.waitingPlaces : 0;
    if (isHome && of)
      places = std::min<uint64_t>(
          of->slots,
          role.homeSlotBytes ? role.homeSlots.bytes / role.homeSlotBytes : 0);
    move(at.perPlace, 0, std::max<uint64_t>(places, 1));
    move(at.perPart, 0, uint64_t(std::max<int64_t>(parts, 1)));
    if (least < __int128(memory.offset) ||
        most > __int128(memory.offset) + memory.bytes)
      refuse(std::string("expected a place ") + what + " in bytes " +
             str(memory.offset) + " to " + str(memory.offset + memory.bytes) +
             ", found " + str(at.bytes) + " bytes at " + str(at.offset) +
             ", which move by " + str(at.perSlot) + ", " + str(at.perPlace) +
             " and " + str(at.perPart));
  }
  Extent arena() const { return {0, role.addressBytes()}; }
  Extent home() const { return {0, role.homeBytes}; }
  uint64_t bytesOf(uint32_t number) const {
    return rows.places[number - 1].bytes;
  }

  //===--------------------------------------------------------------------===//
  // Commands
  //===--------------------------------------------------------------------===//

  /// Whether a function of this phase is for tasks of a procedure.
  static bool suits(LayerPhase phase, uint8_t task) {
    switch (task) {
    case GRT_TASK_FORWARD:
      return phase == LayerPhase::Forward;
    case GRT_TASK_BACKWARD:
    case GRT_TASK_BACKWARD_INPUT:
      return phase == LayerPhase::Recompute || phase == LayerPhase::Backward;
    case GRT_TASK_BACKWARD_WEIGHT:
      return phase == LayerPhase::Weight;
    case GRT_TASK_UPDATE:
      return phase == LayerPhase::Update || phase == LayerPhase::Norm;
    case GRT_TASK_NORM:
      return phase == LayerPhase::Norm;
    default:
      return false;
    }
  }

  void checkProcedure(const gvx::Procedure &procedure) {
    place = name;
    const bool ofChunk = gvx::isProcedure(procedure.task);
    const Chunk *chunk = ofChunk ? role.chunk(procedure.chunk) : nullptr;
    if (ofChunk ? !chunk
                : std::ranges::find(gvx::kindsOfRole, procedure.task) ==
                      std::end(gvx::kindsOfRole))
      refuse("a procedure of chunk " + str(procedure.chunk) + ", task " +
             str(procedure.task) + ", which the role does not have");
    if (procedure.task != GRT_TASK_SWAP &&
        (procedure.classes || procedure.tiers || procedure.stream))
      refuse("classes, tiers or a stream of a procedure that is no swap");
    checkGiven(procedure, chunk);
    running = &procedure;
    for (const gvx::Command &row : program.commands(procedure)) {
      command = &row;
      checkCommand(row, procedure.task, chunk);
    }
    running = nullptr;
    place = name + ", " + procedureName(procedure);
    const char *part = hostPartOf(procedure, role, program);
    if (procedure.needsHost != (part != nullptr))
      refuse(
          part ? std::string("expected the mark that it needs the host, as ") +
                     part
               : "expected no mark that it needs the host");
  }

  const Layer &layerOf(const gvx::Command &row, const Chunk *chunk) const {
    const size_t first = chunk ? chunk->firstLayer : 0;
    const size_t behind = chunk ? chunk->endLayer() : role.layers.size();
    if (row.layer < 0 || size_t(row.layer) < first ||
        size_t(row.layer) >= behind)
      refuse("expected a layer from " + str(first) + " to " + str(behind - 1) +
             ", found " + str(row.layer));
    return role.layers[size_t(row.layer)];
  }

  void expectNumber(int32_t found, uint64_t below, const char *what) const {
    if (found < 0 || uint64_t(found) >= below)
      refuse(std::string("expected ") + what + " below " + str(below) +
             ", found " + str(found));
  }

  void checkCommand(const gvx::Command &row, uint8_t task, const Chunk *chunk) {
    switch (row.kind) {
    case CommandKind::Call:
      if (functionOf(layerOf(row, chunk), row.phase) < 0 ||
          !suits(row.phase, task))
        refuse("expected a function of the layer for this phase, which the "
               "task has, found phase " +
               str(uint8_t(row.phase)));
      break;
    case CommandKind::Gather:
      checkGather(row, task, layerOf(row, chunk));
      break;
    case CommandKind::Collect:
    case CommandKind::Sum:
      layerOf(row, chunk);
      break;
    case CommandKind::Order:
      expectNumber(row.number, GRT_STREAM_COUNT, "a stream");
      break;
    case CommandKind::TakeTurn:
      expectNumber(row.number, role.chunks.size(), "a chunk of the role");
      break;
    case CommandKind::SwapIn:
    case CommandKind::SwapOut:
      layerOf(row, chunk);
      checkSwap(row, chunk, row.kind == CommandKind::SwapOut, home());
      break;
    case CommandKind::SwapSlot:
      if (role.homeSlotBytes == 0 || row.number < GRT_TO_DEVICE ||
          row.number > GRT_TO_HOST)
        refuse("expected slots at home and tiers 1 or 2, found tiers " +
               str(row.number));
      checkSwap(row, chunk, /*out=*/false, role.homeSlots);
      break;
    default:
      checkMemory(row, chunk);
    }
  }

  /// Of a command whose places are in the arena.
  void checkMemory(const gvx::Command &row, const Chunk *chunk) const {
    auto inArena = [&](uint32_t number, const char *what) {
      checkPlace(number, chunk, arena(), /*isHome=*/false, 1, what);
    };
    switch (row.kind) {
    case CommandKind::Begin:
    case CommandKind::End:
      inArena(row.to, "that lives");
      break;
    case CommandKind::Copy:
    case CommandKind::Add:
      inArena(row.from, "that is read");
      inArena(row.to, "that is written");
      expectEqual(row);
      if (bytesOf(row.to) % manifest.elementBytes())
        refuse("expected whole elements, found " + str(bytesOf(row.to)) +
               " bytes");
      break;
    case CommandKind::Reshard:
      expectReshard(row.number, chunk);
      inArena(row.from, "that is read");
      inArena(row.to, "that is written");
      checkExchange(manifest.exchanges[size_t(row.number)], role,
                    bytesOf(row.from), bytesOf(row.to));
      break;
    case CommandKind::UseBuffer:
      expectNumber(row.number, role.boundary.size(), "a boundary buffer");
      if (row.to)
        inArena(row.to, "that is used");
      break;
    default:
      break;
    }
  }
  void expectEqual(const gvx::Command &row) const {
    if (bytesOf(row.to) != bytesOf(row.from))
      refuse("expected two places of one size, found " +
             str(bytesOf(row.from)) + " and " + str(bytesOf(row.to)) +
             " bytes");
  }

  /// Ranks of other roles would not take part.
  void expectReshard(int32_t number, const Chunk *chunk) const {
    for (size_t i = chunk ? chunk->firstLayer : 0;
         number >= 0 && i < (chunk ? chunk->endLayer() : 0); ++i)
      if (role.layers[i].forwardReshard == number ||
          role.layers[i].backwardReshard == number)
        return;
    refuse("expected an exchange inside of the stage, found " + str(number));
  }

  void checkGather(const gvx::Command &row, uint8_t task,
                   const Layer &layer) const {
    const bool isForward = row.phase == LayerPhase::Forward;
    const Gathered &full =
        isForward ? layer.forwardGathered : layer.backwardGathered;
    if (!full.bytes || !suits(row.phase, task))
      refuse("expected parameters that are gathered for the task, found "
             "none of phase " +
             str(uint8_t(row.phase)));
    expectNumber(row.number, 2, "a flag");
  }

  /// `out`: the place at home is that which is written.
  void checkSwap(const gvx::Command &row, const Chunk *chunk, bool out,
                 const Extent &memory) const {
    checkPlace(out ? row.from : row.to, chunk, arena(), false, 1,
               "in the arena");
    checkPlace(out ? row.to : row.from, chunk, memory, /*isHome=*/true,
               chunk ? manifest.perSlot(chunk->forwardOnly) : 1, "at home");
    expectEqual(row);
  }

  //===--------------------------------------------------------------------===//
  // Messages
  //===--------------------------------------------------------------------===//

  void checkMessage(const gvx::Message &row) {
    place = name + ", message of chunk " + str(row.chunk) + " with chunk " +
            str(row.peer);
    const Chunk *chunk = role.chunk(row.chunk);
    const Chunk *peer = manifest.chunk(row.peer);
    if (!chunk || !peer)
      refuse("expected a chunk of the role and one of the program");
    const bool sends = row.direction == GRT_SEND;
    const bool isStash = row.value == GRT_STASH;
    const int expected = exchangeOf(row, *chunk, *peer);
    if (row.exchange != expected || expected < 0)
      refuse("expected exchange " + str(expected) + ", found " +
             str(row.exchange));
    const uint8_t end = !isStash ? 0 : sends ? 2 : 1;
    if (row.home != end)
      refuse("expected " + str(end) + " for its ends at home, found " +
             str(row.home));
    const bool hasBuffer = row.shared == gvx::Shared::WithBuffer;
    if (hasBuffer)
      expectNumber(row.buffer, role.boundary.size(), "a boundary buffer");
    else if (row.buffer != -1)
      refuse("expected no boundary buffer, found " + str(row.buffer));
    if (row.home == 1)
      return checkPlace(row.place, chunk, role.homeSlots, /*isHome=*/true,
                        manifest.perSlot(true), "at home");
    checkPlace(row.place, chunk, arena(), /*isHome=*/false, 1, "in the arena");
    checkExchange(manifest.exchanges[size_t(row.exchange)], role,
                  sends ? bytesOf(row.place) : 0,
                  sends ? 0 : bytesOf(row.place), sends, !sends);
  }

  static int exchangeOf(const gvx::Message &row, const Chunk &chunk,
                        const Chunk &peer) {
    const bool sends = row.direction == GRT_SEND;
    switch (row.value) {
    case GRT_STASH:
      return sends ? peer.recvStash : chunk.recvStash;
    case GRT_GRADIENT:
      return sends ? chunk.sendGradient : chunk.recvGradient;
    default:
      return sends ? chunk.sendActivation : chunk.recvActivation;
    }
  }

  /// Units of an exchange are inside of the places of its two ends.
  void checkExchange(const Exchange &exchange, const Role &role, uint64_t from,
                     uint64_t to, bool isSource = true,
                     bool isDestination = true) const {
    auto holds = [&](int64_t units, uint64_t bytes, bool sends) {
      if (exchange.tensors.empty())
        return uint64_t(units) <= bytes / exchange.bytesPerUnit;
      return std::ranges::all_of(exchange.tensors, [&](const auto &tensor) {
        const uint64_t first = sends ? tensor.source : tensor.destination;
        return first <= bytes &&
               uint64_t(units) <=
                   (bytes - first) / std::max<uint64_t>(tensor.bytes, 1);
      });
    };
    for (const Transfer &row : exchange.transfers) {
      const bool fits =
          (!isSource || holds(row.sourceUnit + row.units, from, true)) &&
          (!isDestination || holds(row.destinationUnit + row.units, to, false));
      if (!fits)
        refuse("exchange '" + exchange.name + "' of stage " + str(role.stage) +
               " needs more than places of " + str(from) + " and " + str(to) +
               " bytes");
    }
  }

  const ProgramFile &program;
  const Manifest &manifest;
  const Role &role;
  const grt_schedule &schedule;
  const ProgramFile::RoleCommands &rows;
  const std::string name;
  std::string place; ///< of what is checked, where it is no command
  const gvx::Procedure *running = nullptr;
  const gvx::Command *command = nullptr; ///< of it
};

} // namespace

void checkCommands(const ProgramFile &program, const Manifest &manifest) {
  for (size_t r = 0; r < manifest.roles.size(); ++r)
    CommandCheck(program, manifest, r).run();
}

} // namespace grt
