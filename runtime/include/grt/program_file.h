//===- program_file.h - The format of compiled programs ---------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A program (`.gvx`) is data: a header, a table of sections, and the sections,
// which are tables of rows without pointers. docs/formats.md describes it byte
// by byte. All numbers are little-endian. Equal programs are equal bytes: the
// order of everything follows from the order of calls, and what is between
// sections is zero.
//
// The compiler and the tests write programs with ProgramBuilder; the runtime
// reads them with ProgramFile (program/reader.h) and with nothing else.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_PROGRAM_FILE_H
#define GRT_PROGRAM_FILE_H

#include "grt/abi.h"

#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace grt {

struct Manifest;

/// The phase of a layer that a function computes. Rows of programs name it by
/// its number.
enum class LayerPhase : uint8_t {
  Forward,
  Recompute,
  Backward, ///< or the input part of one
  Weight,
  Update,
  Norm
};
inline constexpr uint8_t layerPhaseCount = 6;

} // namespace grt

namespace grt::gvx {

/// The version of the format, which counts on from that of the ABI: up to 6 a
/// program had the ABI's.
inline constexpr uint32_t formatVersion = 10;

static_assert(std::endian::native == std::endian::little,
              "rows of programs are read in place");

/// The first bytes of a program. The bytes around the name are changed by a
/// transfer that takes the file for text.
inline constexpr std::array<char, 8> magic = {'\x89', 'G',  'V',    'X',
                                              '\r',   '\n', '\x1a', '\n'};

/// Sections start at multiples of this many bytes.
inline constexpr uint64_t sectionAlignment = 16;
/// A program has at most so many bytes.
inline constexpr uint64_t mostBytes = uint64_t(1) << 30;
/// A call of a kernel has at most so many buffers.
inline constexpr uint32_t mostBuffers = 16;

struct Header {
  std::array<char, 8> magic;
  uint32_t version;  ///< formatVersion
  uint32_t sections; ///< sectionCount
  uint64_t bytes;    ///< of the whole file
  /// SHA-256 of all bytes behind the header.
  std::array<uint8_t, 32> digest;
  uint64_t reserved; ///< 0
};
static_assert(sizeof(Header) == 64);

/// All sections, in the order of the file. Each is there, if only with no rows.
enum class SectionKind : uint32_t {
  Functions = 0,   ///< Function
  Calls = 1,       ///< Call
  Kernels = 2,     ///< Kernel
  Collectives = 3, ///< Collective
  Events = 4,      ///< Event
  Buffers = 5,     ///< grt_buffer
  Integers = 6,    ///< int64_t
  Reals = 7,       ///< double
  Roles = 8,       ///< Role
  Tasks = 9,       ///< grt_task
  Transfers = 10,  ///< grt_transfer_part
  Procedures = 11, ///< Procedure
  Commands = 12,   ///< Command
  Places = 13,     ///< Place
  Messages = 14,   ///< Message
  Names = 15,      ///< bytes: names, each ended by a zero
  Manifest = 16    ///< bytes: JSON text
};
inline constexpr uint32_t sectionCount = 17;

/// A row of the table of sections, which follows the header.
struct Section {
  SectionKind kind;
  uint32_t rowBytes;
  uint64_t offset; ///< from the beginning of the file
  uint64_t rows;
};
static_assert(sizeof(Section) == 24);

/// Rows of another section. Ranges of one kind follow each other without gaps
/// and cover their section: every row belongs to one owner.
struct Range {
  uint32_t first;
  uint32_t count;
};

/// A layer function is a range of calls. Functions are numbered as in the
/// manifest.
struct Function {
  Range calls;
};
static_assert(sizeof(Function) == 8);

enum class CallKind : uint16_t {
  Launch = 0,      ///< a kernel; `index` is a row of Kernels
  Communicate = 1, ///< a collective; a row of Collectives
  Order = 2,       ///< an event between streams; a row of Events
  BeginLife = 3,   ///< a buffer's bytes count as live; a row of Buffers
  EndLife = 4      ///< they count no longer
};

/// Passes in which a call runs. Those that only compute what an encoder makes
/// of a text run when it begins to be written, not with each token of it.
enum class CallWhen : uint16_t { Always = 0, TextsBegin = 1 };

struct Call {
  CallKind kind;
  CallWhen when; ///< TextsBegin: of Launch and Communicate alone
  uint32_t index;
};
static_assert(sizeof(Call) == 8);

/// The descriptor of a call of a kernel: grt_kernel_op without pointers.
struct Kernel {
  uint32_t kernel; ///< grt_kernel
  uint32_t name;   ///< byte of Names where the name starts
  Range buffers, integers, reals;
};
static_assert(sizeof(Kernel) == 32);

/// grt_collective_op without pointers.
struct Collective {
  uint32_t collective; ///< grt_collective
  uint32_t axis;       ///< grt_axis
  uint32_t acc;
  uint32_t stream; ///< grt_stream
  uint32_t name;
  /// SHIFT: distance; ALL_TO_ALL_COUNTS: bytes of a unit, whose counts are the
  /// next row of Buffers; else 0.
  int32_t argument;
  grt_buffer in, out;
};
static_assert(sizeof(Collective) == 72);

/// grt_event_op without pointers.
struct Event {
  uint32_t event;
  uint32_t stream; ///< grt_stream
  uint32_t wait;
  uint32_t name;
};
static_assert(sizeof(Event) == 16);

/// The schedule of a role: its parts as ranges of Tasks, and the parts of its
/// transfers; and what its tasks are: procedures, the ends of its messages, and
/// the places that both name. Roles are numbered as in the manifest.
struct Role {
  Range parts[GRT_PART_COUNT];
  Range transfers;
  Range procedures, places, messages;
};
static_assert(sizeof(Role) == 72);

/// The commands of a chunk's tasks of one kind; of swaps, of one kind with
/// these classes, tiers and stream, which are 0 for others.
struct Procedure {
  uint16_t chunk; ///< over all roles; 0 for what is of a role
  uint8_t task;   ///< grt_task_kind, or a kind of kindsOfRole
  uint8_t classes;
  uint8_t tiers;
  uint8_t stream;
  /// 1 if the host has a part in a command of it, so that no graph of a device
  /// can have it; else 0.
  uint8_t needsHost;
  uint8_t reserved; ///< 0
  Range commands;

  bool isOf(const grt_task &other) const {
    const bool swaps = other.kind == GRT_TASK_SWAP;
    return task == other.kind && chunk == other.chunk &&
           (!swaps || (classes == other.classes && tiers == other.tiers &&
                       stream == other.stream));
  }
};
static_assert(sizeof(Procedure) == 16);

/// The kind of the procedure that copies the newest parameters of a role over
/// those a version older. Tasks of kind NORM have one a role: squares of the
/// gradients that are updated when all are known, and the decision of that.
inline constexpr uint8_t ofVersions = 255;
/// The kind of the procedure of a role that takes the values of ties which
/// their owners have left: before what needs them, in tasks of kind
/// TIE_BROADCAST that end no step. Those that do, and tasks of kind TIE_REDUCE,
/// have one a role too, as long as the role has an end of a tie.
inline constexpr uint8_t ofTaken = 254;
/// The kind of the procedure of a role that follows all tasks of a training
/// step, where ranks may go on without the others.
inline constexpr uint8_t ofStepEnd = 253;
/// The kind of the procedure of a role that follows all tasks of an evaluation.
inline constexpr uint8_t ofEvaluation = 252;

/// All kinds of procedures that are a role's and no chunk's.
inline constexpr uint8_t kindsOfRole[] = {
    GRT_TASK_NORM, ofVersions, GRT_TASK_TIE_REDUCE, GRT_TASK_TIE_BROADCAST,
    ofTaken,       ofStepEnd,  ofEvaluation};

/// True if a procedure of this kind is of a role's ties.
constexpr bool isOfTies(uint8_t task) {
  return task == GRT_TASK_TIE_REDUCE || task == GRT_TASK_TIE_BROADCAST ||
         task == ofTaken;
}

/// True if a task of this kind (grt_task_kind) is a procedure of its chunk.
constexpr bool isProcedure(uint8_t task) {
  switch (task) {
  case GRT_TASK_FORWARD:
  case GRT_TASK_BACKWARD:
  case GRT_TASK_BACKWARD_INPUT:
  case GRT_TASK_BACKWARD_WEIGHT:
  case GRT_TASK_SYNC_GRADIENTS:
  case GRT_TASK_UPDATE:
  case GRT_TASK_SWAP:
    return true;
  default:
    return false;
  }
}

enum class CommandKind : uint8_t {
  Call,      ///< the function of the layer and the phase
  Gather,    ///< puts the gather of the layer's parameters on its stream,
             ///< behind the sums begun so far if `number` is 1
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
  SwapSlot,  ///< what backward needs of a micro-batch, `to` in the arena and
             ///< `from` at home, in or out by tiers `number`
  // Of the end of a step or an evaluation.
  Return,   ///< nothing behind it in the procedure is run
  TellLoss, ///< the batch's loss is told to whoever waits for it here
  Decide,   ///< all ranks tell each other losses and squares of gradients, and
            ///< decide alike how to clip; of the update if `number` is 1
  DecideLate, ///< squares are told, and what clips are those of the batch
              ///< before
  TellAll,    ///< losses are told, and nobody waits for those of others
  Meet,       ///< all ranks tell each other losses
  // Of tie `number`. Who owns it gives values and takes gradients.
  SumTied,    ///< gradients go to the owner, who adds them; both ends meet
  GiveTied,   ///< values go to the other end; both ends meet
  KeepTied,   ///< all borrowed gradients of the layer are copied to where they
              ///< are left
  LeaveTied,  ///< what this end gives is left for the other
  TakeTied,   ///< what the other end has left is taken; of values those that
              ///< are expected
  ExpectTied, ///< values of this step are going to be left
  AwaitTied   ///< what this end has left was taken
};
inline constexpr uint8_t commandKindCount = 34;

/// True of commands over ties.
constexpr bool isOfTie(CommandKind kind) {
  return kind >= CommandKind::SumTied;
}

/// True of commands with which a step or an evaluation ends.
constexpr bool isOfEnd(CommandKind kind) {
  return kind >= CommandKind::Return && kind < CommandKind::SumTied;
}

/// Condition on the task or the rank under which a command runs.
enum class When : uint8_t {
  Always,
  First,      ///< the chunk has not run backward in this step
  SumsBehind, ///< gradients are summed behind the pass of each layer
  /// The first of the ranks on the TP axis of a layer that hold the same.
  OncePerGroup,
  OnDevice, ///< the arena is a device's
  OnHost,   ///< or the host's, who can leave messages
  LeftOut,  ///< it was decided to leave the update out
  /// The run does not ask ranks to wait for each other at the end of a step. It
  /// may choose so where nothing in the program depends on all of them.
  GoesAhead,
  LastLoss ///< the same, and the task has the last loss of the batch
};
inline constexpr uint8_t whenCount = 9;

/// Fields that a kind does not name are 0, and `layer` -1.
struct Command {
  CommandKind kind;
  When when;
  LayerPhase phase; ///< of Call and Gather
  uint8_t stream;   ///< grt_stream
  int32_t layer;    ///< of the role
  int32_t number;
  uint32_t to, from; ///< Places of the role, from 1 on; 0: none
};
static_assert(sizeof(Command) == 20);

/// Bytes of the arena, or of the home, of slot, place and part 0 of a task, and
/// the way from each to the next. A role's places are there once, in the order
/// in which procedures and then messages name them.
struct Place {
  uint64_t offset, bytes;
  int64_t perSlot, perPlace, perPart;
};
static_assert(sizeof(Place) == 40);

/// Condition under which an end of a message and functions wait for each other.
enum class Shared : uint8_t {
  WithAll,   ///< all functions
  WithSlot,  ///< those that use the slot
  WithBuffer ///< those that use boundary buffer `buffer`
};

/// An end of a message between chunks. Parts of transfers are of it that have
/// its chunks, direction and value.
struct Message {
  uint16_t chunk, peer;
  uint8_t direction; ///< grt_direction
  uint8_t value;     ///< grt_value
  Shared shared;
  uint8_t home; ///< 1: the place is at home; 2: the other end's is; 0: neither
  int32_t exchange;
  int32_t buffer; ///< -1: none
  uint32_t place; ///< as of a command

  bool isOf(const grt_transfer_part &part) const {
    return chunk == part.chunk && peer == part.peer_chunk &&
           direction == part.direction && value == part.value;
  }
};
static_assert(sizeof(Message) == 20);

static_assert(sizeof(grt_buffer) == 24 && sizeof(grt_task) == 24 &&
              sizeof(grt_transfer_part) == 16);

/// What of a layer is done beside others on streams. A file has the commands
/// that come of it.
struct LayerOrder {
  /// Its parameters are gathered while the layer that runs before it does.
  bool forwardAhead = false, backwardAhead = false;
  /// What of its backward pass waits for the sums of gradients that were begun
  /// behind the passes of layers above it (GRT_SYNC_BEHIND).
  bool gatherAwaitsSums = false, backwardAwaitsSums = false,
       reshardAwaitsSums = false;
};

/// The sections of a program in memory.
struct Tables {
  std::vector<Function> functions;
  std::vector<Call> calls;
  std::vector<Kernel> kernels;
  std::vector<Collective> collectives;
  std::vector<Event> events;
  std::vector<grt_buffer> buffers;
  std::vector<int64_t> integers;
  std::vector<double> reals;
  std::vector<Role> roles;
  std::vector<grt_task> tasks;
  std::vector<grt_transfer_part> transfers;
  std::vector<Procedure> procedures;
  std::vector<Command> commands;
  std::vector<Place> places;
  std::vector<Message> messages;
  std::string names, manifest;

  /// For lowerTasks(), by role and layer; where there is none nothing waits.
  std::vector<std::vector<LayerOrder>> orders;
  /// What lowerTasks() has read of `manifest` and checked; null if it refused
  /// it, or has not been asked.
  std::shared_ptr<const ::grt::Manifest> read;

  /// The file of these tables as they are, right or wrong.
  std::string file() const;
};

/// Writes the digest of a file's bytes into its header, which must be there.
void seal(std::string &file);

/// Treatment of a file's digest: compared with that of its bytes, or known to
/// be theirs, as they were sealed just now.
enum class Digest { Compared, Known };

/// Returns the reason for which the runtime refuses a file by itself, without
/// its manifest; "" if it does not. `name` is used in the message.
std::string refusal(std::string_view file, const std::string &name,
                    Digest digest = Digest::Compared);

/// Returns the reason for which the runtime refuses a whole program when it
/// loads it or makes its ranks: refusal(), and its manifest, its layout, calls
/// of kernels, schedules and functions as they agree with each other. "" if it
/// does not. `made`: the tables that the file was made of; a manifest that was
/// read of the same text is not read again.
std::string loadRefusal(std::string_view file, const std::string &name,
                        Digest digest = Digest::Compared,
                        const Tables *made = nullptr);

/// Fills the tables of procedures, commands, places and messages from the
/// manifest, which it reads, and the tasks. False, and they stay empty, if
/// these do not fit each other: loadRefusal() says why.
bool lowerTasks(Tables &tables);

/// Makes the tables of a program from its calls and tasks in their order.
class ProgramBuilder {
public:
  /// Calls from here on belong to the next function.
  void beginFunction();
  void launch(uint32_t kernel, std::span<const grt_buffer> buffers,
              std::span<const int64_t> integers, std::span<const double> reals,
              std::string_view name);
  /// `row.name` is set here. `counts` are those of ALL_TO_ALL_COUNTS.
  void communicate(Collective row, std::string_view name,
                   const grt_buffer *counts = nullptr);
  void order(uint32_t event, uint32_t stream, bool waits,
             std::string_view name);
  void beginLife(const grt_buffer &buffer);
  void endLife(const grt_buffer &buffer);
  /// Passes in which the newest call runs, a launch or a collective.
  void runsWhen(CallWhen when) { tables.calls.back().when = when; }

  /// Tasks from here on belong to the next role.
  void beginRole();
  /// Parts are added in their order. A task that transfers is given its parts
  /// here.
  void addTask(grt_part part, grt_task task,
               std::span<const grt_transfer_part> transfers = {});

  /// The file of what was added, with a manifest (JSON text), and the commands
  /// of all tasks. Empty if the runtime would refuse it by itself, whatever its
  /// manifest; `problem` then says what was expected and found.
  std::string finish(std::string_view manifest, std::string &problem);

  /// The rows so far.
  Tables tables;

private:
  void addCall(CallKind kind, size_t index);
  uint32_t nameOf(std::string_view name);

  /// Start of each name; a name is there once.
  std::unordered_map<std::string, uint32_t> starts;
};

} // namespace grt::gvx

#endif // GRT_PROGRAM_FILE_H
