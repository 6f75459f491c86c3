//===- tasks.h - Task orders of pipeline schedules --------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A schedule is a list of tasks per role (= pipeline stage), in five parts. All
// ranks of a role run the same list, so its size depends on the number of
// micro-batches only. A role runs one chunk of layers or several; chunks are
// numbered over all roles, in the order of the model. Numbers and fields match
// the task table of a compiled program.
//
// A schedule that drains runs `steady` and `step-end` for every batch. One that
// goes on begins with the prologue, in which the first micro-batches of a batch
// go forward; `steady` is a batch that does the same for the one behind it,
// `drain` a batch with none behind it. A task's batch is the one that the part
// is run for, plus its generation.
//
// The compiler makes such lists and the runtime reads them out of programs;
// both ask here, and in accesses.h, what tasks mean.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_TASKS_H
#define GRT_TASKS_H

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace galvatron::tasks {

enum class TaskKind : uint8_t {
  Forward = 0,
  Backward = 1,
  Transfer = 2,
  SyncGradients = 3,
  TieReduce = 4,
  Norm = 5,
  Update = 6,
  /// The owner gives the new values of tied parameters, in `step-end`. Where
  /// batches go on it does not wait for who borrows them, and in the part for
  /// the batch behind such a task is where the borrower takes them.
  TieBroadcast = 7,
  /// The two parts of a backward pass that is split: what the gradient of the
  /// chunk's input needs, and what gradients of parameters need besides.
  BackwardInput = 8,
  BackwardWeight = 9,
  /// Copies between the host and a device.
  Swap = 10
};

/// True if a task of this kind is one of `step-end`.
bool endsStep(TaskKind kind);

enum class TransferDirection : uint8_t { Send = 0, Receive = 1 };

enum class TransferValue : uint8_t {
  Activation = 0, ///< of a chunk, for the next one
  Gradient = 1,   ///< of a chunk's input, for the chunk before
  /// Input of a chunk that recomputes: from the one that has run it forward to
  /// the other one's home.
  Stash = 2
};

/// "activation", "gradient", "stash".
std::string_view transferValueName(TransferValue value);

/// One message of a transfer task, as one of its two ends has it.
struct TransferPart {
  TransferDirection direction = TransferDirection::Send;
  TransferValue value = TransferValue::Activation;
  uint16_t chunk = 0;
  uint16_t peerChunk = 0;
  /// Slot of the chunk, for a received activation or an offloaded stash; if
  /// there are packs, the place in which the message waits.
  uint16_t slot = 0;
  uint8_t generation = 0;
  uint32_t microBatch = 0;

  bool sends() const { return direction == TransferDirection::Send; }
  bool isGradient() const { return value == TransferValue::Gradient; }
  bool operator==(const TransferPart &other) const = default;
};

/// The kinds of messages in the order in which a transfer has them: the n-th
/// message from one role to another meets the n-th that the other one awaits,
/// so of two in one transfer both ends must know which is the first.
inline constexpr std::pair<TransferDirection, TransferValue>
    kTransferMessages[] = {
        {TransferDirection::Send, TransferValue::Activation},
        {TransferDirection::Send, TransferValue::Gradient},
        {TransferDirection::Receive, TransferValue::Activation},
        {TransferDirection::Receive, TransferValue::Gradient},
        {TransferDirection::Send, TransferValue::Stash},
        {TransferDirection::Receive, TransferValue::Stash}};
/// True if `first` stands in front of `second` in that order.
bool standsBefore(const TransferPart &first, const TransferPart &second);

/// Flags of a task that adds the last gradients of a chunk: a backward task, or
/// its weight part where it is split.
enum BackwardFlag : uint8_t {
  /// The all-reduce of a layer's gradients over its DP groups starts behind the
  /// layer's backward pass; sync-gradients only waits for it.
  SyncBehind = 1
};

/// Data that a swap moves between a chunk's home on the host and its device.
enum SwapClass : uint8_t {
  SwapParameters = 1,
  SwapGradients = 2,   ///< the sum over the micro-batches so far
  SwapActivations = 4, ///< what forward keeps of a micro-batch
  /// Optimizer state: in behind the last backward pass of a chunk, out with the
  /// parameters that the update has made.
  SwapOptimizer = 8
};

/// Queues of a device that tasks are put on, by the numbers of the C ABI.
enum class TaskStream : uint8_t { Compute = 0, Transfer = 3, In = 4, Out = 5 };

/// Fields that a kind does not use are 0.
struct Task {
  TaskKind kind = TaskKind::Forward;
  uint8_t flags = 0; ///< set of BackwardFlag
  /// Chunk of tasks that compute, of SyncGradients, Update and Swap.
  uint16_t chunk = 0;
  uint16_t slot = 0; ///< of the chunk
  /// Forward: batches behind the one that the part is run for.
  uint8_t generation = 0;
  uint32_t microBatch = 0;
  /// Set of SwapClass that a swap moves, and whether it leaves the device.
  /// `slot` and `microBatch` are of activations.
  uint8_t classes = 0;
  bool out = false;
  /// Stream of a swap, if swaps have streams of their own (swap_order.h), and
  /// events, from 1 on, that the task's stream waits for before it and records
  /// behind it; 0 is none.
  TaskStream stream = TaskStream::Compute;
  uint8_t records = 0;
  std::array<uint8_t, 3> waits{};
  /// Messages of a transfer, which is one grouped operation. At most one of
  /// each direction and value, in the order of kTransferMessages.
  std::vector<TransferPart> parts;

  /// Null if there is none.
  const TransferPart *part(TransferDirection direction,
                           TransferValue value) const;
  /// True if `chunk` means anything.
  bool isOfChunk() const;
  /// True if it runs layers of a micro-batch, so that `slot` means something.
  bool computes() const;
  /// True if it adds what is missing to the gradients of a micro-batch.
  bool endsGradients() const;
  /// "forward mb 3 slot 1", "backward mb 3 slot 1 sync-behind", "transfer
  /// send-activation mb 3, recv-gradient mb 0"; with chunks "forward chunk 2 mb
  /// 3 slot 1"; of a later batch "forward mb 3 of next batch slot 1".
  std::string str(bool withChunks = false) const;
  bool operator==(const Task &other) const = default;
};

/// Returns one grouped operation of these messages, which it puts in their
/// order.
Task transferOf(std::vector<TransferPart> parts);

enum class SchedulePart : uint8_t {
  Prologue,
  Steady,
  StepEnd,
  Drain,
  Evaluate
};
inline constexpr size_t kSchedulePartCount = 5;
std::string_view schedulePartName(SchedulePart part);

struct RoleProgram {
  std::vector<Task> parts[kSchedulePartCount];
  /// Number of places in which messages that came wait, if there are packs.
  int64_t waitingPlaces = 0;
  /// Sets between layers that are known to share no memory, although the
  /// program does not separate messages: outputs and received messages, outputs
  /// and gradients that are worked on, and received messages and those
  /// gradients.
  struct Apart {
    bool outputAndReceived = false, outputAndGradients = false,
         receivedAndGradients = false;
  };
  Apart apart;

  std::vector<Task> &part(SchedulePart which) { return parts[size_t(which)]; }
  const std::vector<Task> &part(SchedulePart which) const {
    return parts[size_t(which)];
  }
};

/// Roles of the owner and the borrower of a tied parameter, and the chunks that
/// have it; -1: any of the role may.
struct TieRoles {
  int64_t owner;
  int64_t borrower;
  int64_t ownerChunk = -1, borrowerChunk = -1;
  /// The borrower runs forward only, so that it has no gradient to give.
  bool forwardOnly = false;
};

/// A run of layers that a role runs as one.
struct ProgramChunk {
  int64_t role = 0;
  int64_t slots = 1; ///< micro-batches in flight
  /// True for a pack that runs layers forward for others, which run them again.
  bool forwardOnly = false;
  /// The chunk that sends to this pack's home what it runs forward from; -1:
  /// none does.
  int64_t stashFrom = -1;
};

struct TaskProgram {
  int64_t microBatches = 1;
  /// Versions of the parameters that are kept; by how many batches gradients
  /// are late.
  int64_t weightVersions = 1, delay = 0;
  /// True if received messages and those that wait to be sent have regions of
  /// their own.
  bool separatesMessages = false;
  /// Chunks whose parameters and gradients a role's devices have at once, where
  /// the home of all states is the host; 0: everything is on the devices.
  int64_t residentChunks = 0;
  /// Chunks are updated as soon as their gradients are at home, in `steady`:
  /// see updatesBehind.
  bool justInTime = false;
  /// True if chunks are updated on the devices, not at home: see
  /// updatesOnDevice.
  bool updateOnDevice = false;
  /// The chunks' slots are on the host, and a role's devices have one that all
  /// micro-batches take in turns: what forward keeps goes home unless it is
  /// used next, and comes back for backward.
  bool slotsAtHome = false;
  /// Chunks are packs: first those that run layers forward only,
  /// then those that run them again and backward, each in the order of the
  /// model. The last one does both at once. Slots at home hold what goes into
  /// a chunk and nothing else.
  bool hasPacks = false;
  /// Devices have memory and streams of their own, so that swaps are on streams
  /// that only events order (swap_order.h).
  bool swapsOnStreams = false;
  /// Micro-batches of chunks that run forward only; 0: as many as of the
  /// others. Where the numbers differ the larger is a multiple of the smaller.
  /// What forward packs make is regrouped at home then: the last chunk takes
  /// its input from there too, as a stash of the last forward pack's output.
  int64_t forwardMicroBatches = 0;
  std::vector<ProgramChunk> chunks; ///< in the order of the model
  std::vector<RoleProgram> roles;
  std::vector<TieRoles> ties;

  /// Numbers of a role's chunks, ascending.
  std::vector<int64_t> chunksOf(int64_t role) const;
  /// The place for resident chunks that a chunk takes: a role's chunks take
  /// turns.
  int64_t residencyOf(int64_t chunk) const;
  /// True if batches follow each other without a drain. Gradients are those of
  /// older weights then, and only then.
  bool goesOn() const { return delay > 0; }
  /// True if a chunk is updated behind its last backward pass. A chunk with a
  /// tied parameter is not, as its gradients are summed over chunks first: it
  /// is updated in `step-end`.
  bool updatesBehind(int64_t chunk) const;
  /// True if that is done on the devices: its optimizer state comes, gradients
  /// stay, and the new parameters go home.
  bool updatesOnDevice(int64_t chunk) const {
    return updateOnDevice && updatesBehind(chunk);
  }
  /// Number that is added to the slots of a chunk, modulo their number, with
  /// every batch that goes on: micro-batches take the slots in turns.
  int64_t slotShift(int64_t chunk) const {
    return goesOn() ? microBatches % chunks[chunk].slots : 0;
  }
  /// The chunk at the other end of a chunk's message; -1: there is none. A
  /// stash has one receiver, which `peerChunk` names, and that one sender.
  int64_t peerOf(const TransferPart &part) const;
  /// True if micro-batches have two sizes.
  bool regroups() const {
    return forwardMicroBatches != 0 && forwardMicroBatches != microBatches;
  }
  int64_t microBatchesOf(int64_t chunk) const {
    return regroups() && chunks[chunk].forwardOnly ? forwardMicroBatches
                                                   : microBatches;
  }
  /// Micro-batches of the larger size, each of which has a slot at home, and of
  /// the smaller one, which are the parts that slots at home are filled and
  /// read in. Of one size both are all.
  int64_t groups() const;
  int64_t parts() const;
  /// The group of a chunk's micro-batch, and the first of its parts; those of
  /// the next micro-batch come behind its own.
  int64_t groupOf(int64_t chunk, int64_t microBatch) const {
    return microBatch * groups() / microBatchesOf(chunk);
  }
  int64_t firstPartOf(int64_t chunk, int64_t microBatch) const {
    return microBatch * parts() / microBatchesOf(chunk);
  }
  /// True if the output of a chunk goes home to be regrouped.
  bool sendsHome(int64_t chunk) const {
    return regroups() && chunk + 1 == forwardPacks();
  }
  /// The number of chunks that run forward only; they stand in front.
  int64_t forwardPacks() const;
  /// True if the forward passes of a chunk repeat those of forward packs.
  bool recomputes(int64_t chunk) const;
  /// True if a chunk's input is data and not made by another chunk.
  bool readsData(int64_t chunk) const;
  /// The chunks that recompute from what goes through a chunk, ascending.
  std::vector<int64_t> stashesOf(int64_t chunk) const;
  /// True if gradients of tied parameters are summed over the role's chunks and
  /// others'.
  bool sumsTied(int64_t role) const;
  /// True if a chunk's number is not its role's.
  bool hasSeveralChunks() const {
    return hasPacks || chunks.size() > roles.size();
  }
  /// True if a role has parameters of another role's, so that it takes their
  /// values while batches go on.
  bool takesTied(int64_t role) const;
  bool isLastChunk(int64_t chunk) const {
    return chunk + 1 == int64_t(chunks.size());
  }
};

/// The parts that so many batches run, one after the other. The batch that
/// parts are run for changes behind every `step-end`.
std::vector<SchedulePart> trainingParts(const TaskProgram &program,
                                        int64_t batches);

} // namespace galvatron::tasks

#endif // GRT_TASKS_H
