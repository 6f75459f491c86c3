//===- backend.h - What a backend gives the executor ----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A backend is a shared object `libgrt_<name>.so`, loaded when a program asks
// for it, that exports `grt_backend_get`. It fills one table of kernels and one
// of memory calls; the executor and the communicators do the rest.
//
// Tables grow at their end only and begin with their size as the backend was
// compiled, so that a backend and a runtime of different age work together: the
// runtime reads what both know, and what an older backend lacks counts as null.
// A program that needs a kernel the backend lacks is refused by that kernel's
// name when a session loads it. Zero a table, then set members by name.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKEND_H
#define GRT_BACKEND_H

#include "grt/abi.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Position of the running rank on the axes of the running layer. Indices are 0
/// and sizes 1 on axes that the layer's strategy lacks; a level `zdp` is an sdp
/// axis.
typedef struct grt_coordinates {
  int64_t dp_index, dp_size;
  int64_t sdp_index, sdp_size;
  int64_t tp_index, tp_size;
  int64_t layer;         ///< index of the layer in the model
  int64_t first_sample;  ///< global number in the batch of local sample 0
  int64_t local_samples; ///< samples of the micro-batch on this rank
  /// The index and number of the ranks that divide rows: those of context
  /// parallelism, else of tensor parallelism.
  int64_t block_index, block_count;
} grt_coordinates;

/// One kernel call with its buffers resolved to addresses. On a backend with a
/// device these and `step` are the device's, and the call puts its work on
/// GRT_STREAM_COMPUTE.
typedef struct grt_call {
  const grt_kernel_op *op;
  void *const *buffers; ///< op->buffer_count addresses
  const grt_coordinates *coordinates;
  grt_step *step;
  int32_t accumulate; ///< 1 on every micro-batch of a step but the first
  void *rank_state;   ///< what `create_rank` returned
} grt_call;

/// Returns 0, or non-zero after writing a message (lower case, no full stop).
typedef int32_t (*grt_kernel_function)(const grt_call *call, char *message,
                                       size_t message_bytes);

/// An arena of `bytes` bytes. `window_bytes` of them, at `window_offset`, are
/// mapped `window_count` times, `window_stride` apart: several micro-batches in
/// flight share one region for temporaries that each of them has right behind
/// what it keeps. The arena takes bytes + (window_count - 1) * window_bytes
/// addresses. Without a window `window_bytes` is 0 and the other fields say
/// nothing. If `whole_buffers` is not 0 no buffer of a collective or an
/// exchange lies on both sides of an end of one of these views, so that
/// libraries may register the memory behind each.
typedef struct grt_arena {
  uint64_t bytes;
  uint64_t window_offset;
  uint64_t window_bytes;
  uint64_t window_stride;
  uint64_t window_count;
  uint64_t whole_buffers;
} grt_arena;

/// Functions of a backend with a device of its own: memory that the host cannot
/// touch, streams, events. Calls put work on a stream and return; buffers of
/// the host that a call names are read or written when the stream gets there,
/// so they stay until then and are memory of `allocate_host`, or the home of
/// states (`pin_host`). Status and message as for kernels; a failure of earlier
/// work may show at any later call. Streams are grt_stream, events are numbered
/// from 0 to `event_count` - 1 per rank.
typedef struct grt_device {
  uint32_t bytes; ///< sizeof(grt_device)
  uint32_t event_count;
  /// Memory of the device that the backend's libraries may use on COMPUTE until
  /// the rank is destroyed; called once, before `prepare`. Null where a backend
  /// wants none. Without this call a backend that wants some takes its own.
  int32_t (*use_workspace)(void *rank_state, void *memory, uint64_t bytes,
                           char *message, size_t message_bytes);
  void *(*allocate_host)(uint64_t bytes); ///< NULL when there is no memory
  void (*release_host)(void *memory, uint64_t bytes);
  int32_t (*fill)(void *rank_state, uint32_t stream, void *to, int32_t byte,
                  uint64_t bytes, char *message, size_t message_bytes);
  /// Copies bytes between any two of host and device, or within the device.
  int32_t (*copy)(void *rank_state, uint32_t stream, void *to, const void *from,
                  uint64_t bytes, char *message, size_t message_bytes);
  int32_t (*record)(void *rank_state, uint32_t stream, uint32_t event,
                    char *message, size_t message_bytes);
  int32_t (*wait)(void *rank_state, uint32_t stream, uint32_t event,
                  char *message, size_t message_bytes);
  /// The host waits for the stream; GRT_STREAM_COUNT: for all of them.
  int32_t (*synchronise)(void *rank_state, uint32_t stream, char *message,
                         size_t message_bytes);
  /// Everything put on any stream between begin and end becomes a graph, number
  /// `graph` from 0, and is not run; COMPUTE is the stream that the others
  /// leave at the beginning and join at the end. Events of the graph and events
  /// outside know nothing of each other: each waits for its own records only.
  /// Null where the backend cannot. `launch` runs the graph on COMPUTE, as
  /// often as it is called, with the arguments of the calls that made it.
  int32_t (*begin_graph)(void *rank_state, char *message, size_t message_bytes);
  int32_t (*end_graph)(void *rank_state, uint32_t graph, char *message,
                       size_t message_bytes);
  int32_t (*launch_graph)(void *rank_state, uint32_t graph, char *message,
                          size_t message_bytes);
  /// Milliseconds of the device between two recorded events, both done. Null
  /// where events have no times; those of `stamp` do.
  int32_t (*elapsed)(void *rank_state, uint32_t first, uint32_t second,
                     double *milliseconds, char *message, size_t message_bytes);
  /// Puts the time of the device, once the stream gets there, into a place of
  /// its own; `number` counts from 0. Not inside a graph. `stamped` tells it,
  /// in milliseconds since some moment, once the stream was synchronised. Null
  /// where the backend has no clock.
  int32_t (*stamp)(void *rank_state, uint32_t stream, uint32_t number,
                   char *message, size_t message_bytes);
  int32_t (*stamped)(void *rank_state, uint32_t number, double *milliseconds,
                     char *message, size_t message_bytes);
  /// Tells whether the event, recorded outside graphs, is done. From any
  /// thread; null where nobody can say.
  int32_t (*query)(void *rank_state, uint32_t event, int32_t *done,
                   char *message, size_t message_bytes);
  /// Most bytes of the device that this process had in use so far, contexts and
  /// libraries included; 0 if unknown, null where nobody can say.
  uint64_t (*peak_bytes)(void *rank_state);
  /// Collectives for worlds of one rank per process, and for worlds whose ranks
  /// are all threads of this process; null if there is no such way.
  const struct grt_device_collectives *collectives;
  const struct grt_device_collectives *local_collectives;
  /// Called before the calls that it describes, in the order of the rank's
  /// calls; null in all backends but those that check. `kind` is a grt_note;
  /// `name` lives as long as the call. Never fails: what is wrong shows at a
  /// later call.
  void (*note)(void *rank_state, uint32_t kind, const void *address,
               uint64_t bytes, const char *name);
  /// Bytes of the device's last cache; 0 if unknown, null where nobody can say.
  uint64_t (*cache_bytes)(void *rank_state);
  /// Pins memory that the host has already, so that `copy` takes it as memory
  /// of `allocate_host`; both ends are multiples of 4096. Fails where the
  /// machine allows no more, and nothing is pinned then. `unpin_host` comes
  /// before the memory is given back. Null where a backend pins only what it
  /// allocates. `copy` also takes memory that is not pinned, and may then wait
  /// for the copy, but none that is pinned in part.
  int32_t (*pin_host)(void *memory, uint64_t bytes, char *message,
                      size_t message_bytes);
  void (*unpin_host)(void *memory, uint64_t bytes);
  /// Two functions by which a step can be one graph: they make the decision,
  /// from the results of all ranks, whether the update is done and how
  /// gradients are clipped (grt/update_decision.h), which the host makes
  /// otherwise. Both put work on COMPUTE and are null, or both there.
  /// `add_results` writes the sum of `count` losses (f64), in their order, to
  /// step->local_loss, which stands behind step->local_norm_squared.
  /// `decide_update` takes that pair of every rank from `results`, in the order
  /// of ranks (those of one rank may be the step block's own), and writes
  /// step->clip_factor and step->update_left_out; with `clips` gradients above
  /// step->clip_norm are clipped.
  int32_t (*add_results)(void *rank_state, const double *losses, uint64_t count,
                         grt_step *step, char *message, size_t message_bytes);
  int32_t (*decide_update)(void *rank_state, const double *results,
                           uint64_t ranks, int32_t clips, grt_step *step,
                           char *message, size_t message_bytes);
  /// Records an event for the host, which `await` waits for: where a graph is
  /// being made, every start of it records the event once it gets there. No
  /// stream waits for such an event. Null both where a host can wait for whole
  /// streams only.
  int32_t (*record_for_host)(void *rank_state, uint32_t stream, uint32_t event,
                             char *message, size_t message_bytes);
  int32_t (*await)(void *rank_state, uint32_t event, char *message,
                   size_t message_bytes);
} grt_device;

/// Kind of a call of `grt_device.note`.
typedef enum grt_note {
  /// These bytes of the arena hold `name` for ever.
  GRT_NOTE_STATIC = 0,
  /// These bytes of the arena hold buffers that begin and end.
  GRT_NOTE_DYNAMIC = 1,
  /// A buffer begins or ends.
  GRT_NOTE_BEGIN = 2,
  GRT_NOTE_END = 3,
  /// All buffers end; from here on beginnings and ends are told if `bytes` is
  /// not 0.
  GRT_NOTE_FORGET = 4,
  /// The calls that follow belong to `name`, e.g. "step 3, layer 'h.1'".
  GRT_NOTE_PLACE = 5,
  /// Everything so far, on any stream, comes before what is put on COMPUTE from
  /// here on: the end of a step.
  GRT_NOTE_JOINED = 6,
  /// A layer function begins, and ends: what it put on other streams comes
  /// before what is put on COMPUTE after it.
  GRT_NOTE_FUNCTION_BEGIN = 7,
  GRT_NOTE_FUNCTION_END = 8,
  /// These bytes are the host's and the home of states, pinned or not; with 0
  /// bytes, no longer.
  GRT_NOTE_HOME = 9,
  /// The host itself is about to read and write these bytes of it.
  GRT_NOTE_AT_HOME = 10
} grt_note;

/// One piece of an exchange, to or from one peer, at an address of this rank's.
typedef struct grt_exchange_piece {
  int32_t peer;
  uint32_t reserved;
  void *address;
  uint64_t bytes;
} grt_exchange_piece;

/// Collectives over device memory, put on a stream like everything else. `rank`
/// here is always the global rank. Every member makes the same calls in the
/// same order per group.
typedef struct grt_device_collectives {
  uint32_t bytes; ///< sizeof(grt_device_collectives)
  /// Nonzero if graphs may hold them.
  int32_t in_graphs;
  /// "nccl", "device"
  const char *name;
  /// Bytes that identify a world, made by rank 0 and handed to all by the host.
  uint64_t identity_bytes;
  int32_t (*make_identity)(void *identity, char *message, size_t message_bytes);
  /// Joins the world; collective over all ranks.
  int32_t (*join)(void *rank_state, const void *identity, int32_t rank,
                  int32_t ranks, char *message, size_t message_bytes);
  /// The group of these ranks in this order, this rank among them. Collective
  /// over all ranks of the world: a rank outside gives `count` 0 and gets null.
  /// In one such call ranks may make several groups that share no rank: those
  /// that give the same list are one group.
  int32_t (*make_group)(void *rank_state, const int32_t *ranks, int32_t count,
                        void **group, char *message, size_t message_bytes);
  int32_t (*all_reduce)(void *rank_state, void *group, uint32_t stream,
                        void *data, uint64_t count, uint32_t dtype,
                        char *message, size_t message_bytes);
  int32_t (*all_gather)(void *rank_state, void *group, uint32_t stream,
                        const void *in, void *out, uint64_t bytes,
                        char *message, size_t message_bytes);
  /// Reduces and scatters as Communicator::reduceScatter; `scratch` has count
  /// elements and is used if `accumulate`. It may be this member's own slice of
  /// `in`.
  int32_t (*reduce_scatter)(void *rank_state, void *group, uint32_t stream,
                            const void *in, void *out, uint64_t count,
                            uint32_t dtype, int32_t accumulate, void *scratch,
                            char *message, size_t message_bytes);
  /// Moves all pieces as one grouped operation. Pieces between two ranks match
  /// in the order of the calls, over all streams, and in their order within a
  /// call.
  int32_t (*exchange)(void *rank_state, uint32_t stream,
                      const grt_exchange_piece *sends, uint64_t send_count,
                      const grt_exchange_piece *receives,
                      uint64_t receive_count, char *message,
                      size_t message_bytes);
  /// Tells whether an operation has failed in the background; polled by the
  /// watchdog.
  int32_t (*check)(void *rank_state, char *message, size_t message_bytes);
  /// Begins to end what is under way on this rank, from any thread, and returns
  /// at once. All ranks of the process that have joined the world are aborted
  /// with it.
  void (*abort)(void *rank_state);
  /// The library that carries them, with its version: "NCCL 2.28.9 of
  /// '/usr/lib/libnccl.so.2'"; valid for ever. Null if it is the backend
  /// itself.
  const char *(*library)(void);
  /// Called by all ranks before `join` and before calls of `make_group`: what
  /// is made next is used on these streams, a bit each (1 <<
  /// GRT_STREAM_COMPUTE), and shall have something of its own for each, so that
  /// nothing on one waits for another: of `join`, exchanges; of `make_group`,
  /// the rank's group. `anywhere` has the bits of all ranks, `streams` those of
  /// this rank. `at_once`: on how many streams there are collectives of any
  /// kind, which share what the device gives them. Null where nothing is made,
  /// or where it is all one.
  int32_t (*use_streams)(void *rank_state, uint32_t streams, uint32_t anywhere,
                         uint32_t at_once, char *message, size_t message_bytes);
  // Collectives that a backend may lack: null then, and refused by name where a
  // program has them.
  /// As Communicator::allReduceMax.
  int32_t (*all_reduce_max)(void *rank_state, void *group, uint32_t stream,
                            void *data, uint64_t count, uint32_t dtype,
                            char *message, size_t message_bytes);
  /// Exchanges equal blocks of `bytes` bytes, as Communicator::allToAll.
  int32_t (*all_to_all)(void *rank_state, void *group, uint32_t stream,
                        const void *in, void *out, uint64_t bytes,
                        char *message, size_t message_bytes);
  /// An exchange between members of a group, all of which call it, on what the
  /// group has for this stream: `peer` of a piece is a member's index, of
  /// another one than this rank. At most one piece in each direction between
  /// two members. A member may have no pieces.
  int32_t (*exchange_in_group)(void *rank_state, void *group, uint32_t stream,
                               const grt_exchange_piece *sends,
                               uint64_t send_count,
                               const grt_exchange_piece *receives,
                               uint64_t receive_count, char *message,
                               size_t message_bytes);
} grt_device_collectives;

/// The first three members are where they are in every version.
typedef struct grt_backend {
  uint32_t abi_version; ///< GRT_ABI_VERSION: what calls and buffers mean
  uint32_t bytes;       ///< sizeof(grt_backend)
  const char *name;     ///< "cpu"
  /// Kernels by grt_kernel; null for one that the backend lacks, as it does
  /// those from `kernel_count` on. Fewer and more than GRT_KERNEL_COUNT are
  /// both allowed.
  const grt_kernel_function *kernels;
  uint32_t kernel_count;
  uint32_t reserved; ///< 0
  /// State of one rank (primitive cache, thread count). `threads` >= 1.
  void *(*create_rank)(int32_t rank, int32_t threads);
  void (*destroy_rank)(void *rank_state);
  /// Plain memory; NULL when the device has less.
  void *(*allocate)(size_t bytes);
  void (*release)(void *memory, size_t bytes);
  /// An arena with a window; NULL when the device has less, or cannot map the
  /// window at these offsets (CPUs need multiples of the page size). Both
  /// functions are null where the backend knows no windows.
  void *(*map_arena)(const grt_arena *arena);
  void (*unmap_arena)(void *memory, const grt_arena *arena);
  /// Takes now, on the rank's thread, whatever memory outside the arena the
  /// calls of `op` would take the first time (a primitive and its scratchpad).
  /// The executor calls it at load for every op of the rank's program. Status
  /// and message as for kernels; null where nothing is ever taken.
  int32_t (*prepare)(void *rank_state, const grt_kernel_op *op, char *message,
                     size_t message_bytes);
  /// Null where kernels are done when they return and the host reads and writes
  /// the arena.
  const grt_device *device;
  /// The reason for which the last `create_rank`, `allocate` or `map_arena` of
  /// the calling thread gave null (lower case, no full stop); null if there is
  /// nothing to say.
  const char *(*failure)(void);
  /// Choices that the ranks of this process have measured, or were given, and
  /// that decide how sums are rounded: lines of the backend's own, empty if
  /// there are none; valid until the calling thread's next call. Both functions
  /// are null where kernels always run the same way.
  const char *(*choices)(void);
  /// Takes such lines, of an earlier run or another process, before ranks are
  /// created: they go before all that is measured. Empty ones take back those
  /// given before. Lines of another device or library are no error: they are
  /// left, which is said on standard error. Status and message as for kernels.
  int32_t (*choose)(const char *choices, char *message, size_t message_bytes);
  /// The devices that this process may use, counted without a context on any of
  /// them. All three functions are null where ranks are on the host, else all
  /// there. Status and message as for kernels.
  int32_t (*count_devices)(int32_t *count, char *message, size_t message_bytes);
  /// The ranks that this process creates are on device `device`, from 0 to
  /// count - 1; before the first of them, and not again with another.
  int32_t (*use_device)(int32_t device, char *message, size_t message_bytes);
  /// Writes what no other device of any machine has and every process that uses
  /// this process's device sees (a UUID; of a part of a device that part's), as
  /// text that ends with a zero.
  int32_t (*device_identity)(char *identity, size_t identity_bytes,
                             char *message, size_t message_bytes);
} grt_backend;

/// The backend's only export. Never fails; the table is static.
const grt_backend *grt_backend_get(void);

#ifdef __cplusplus
}
#endif

#endif // GRT_BACKEND_H
