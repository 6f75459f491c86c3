//===- abi.h - The C ABI between compiled programs and the runtime --------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What compiled programs (`.gvx`), backends and the runtime share besides the
// JSON manifest (docs/manifest.md). It is plain C, free of MLIR.
//
// A program is data (grt/program_file.h): layer functions as lists of calls,
// each with a constant descriptor, and tables of tasks. A buffer is named by a
// *region* and a byte offset in it. Before a task's functions run, the executor
// binds every region to an address inside the rank's arena, so that all layers
// of one body and strategy, on all ranks of a role, share the same functions.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_ABI_H
#define GRT_ABI_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GRT_ABI_VERSION 6
/// Every buffer starts at a multiple of this many bytes inside its region.
#define GRT_ALIGNMENT 64

/// Element types. "Compute type" in the list of kernels is F32, BF16 or F64 as
/// the program says; "accumulator type" is F64 for F64 programs and F32 for all
/// others.
typedef enum grt_dtype {
  GRT_F32 = 0,
  GRT_F64 = 1,
  GRT_BF16 = 2,
  GRT_I32 = 3,
  GRT_U8 = 4
} grt_dtype;

/// Region of the arena that a buffer's offset is relative to. The executor
/// binds all of them before it calls a layer function.
typedef enum grt_region {
  GRT_REGION_PARAMETER = 0, ///< the layer's parameters held by this rank, flat
  GRT_REGION_GRADIENT = 1,  ///< the layer's gradient accumulators, flat
  GRT_REGION_OPTIMIZER = 2, ///< the layer's optimizer state, flat
  GRT_REGION_STASH = 3, ///< values kept from forward (or recompute) to backward
  GRT_REGION_TRANSIENT = 4, ///< temporaries of the running function
  GRT_REGION_INPUT = 5,     ///< boundary activation coming in
  GRT_REGION_OUTPUT = 6,    ///< boundary activation going out
  GRT_REGION_GRAD_IN = 7,   ///< gradient of the output, coming in
  GRT_REGION_GRAD_OUT = 8,  ///< gradient of the input, going out
  GRT_REGION_DATA = 9,      ///< data of the layer, each 64-byte aligned
  GRT_REGION_LOSS = 10, ///< one f64 per micro-batch, or two: sums over tokens
  GRT_REGION_GATHERED = 11, ///< the layer's parameters in full, read only
  GRT_REGION_COUNT = 12
} grt_region;

/// A buffer: `bytes` bytes at `offset` in `region`.
typedef struct grt_buffer {
  uint32_t region; ///< grt_region
  uint32_t dtype;  ///< grt_dtype
  uint64_t
      offset; ///< bytes from the region's base, a multiple of GRT_ALIGNMENT
              ///< except where a kernel reads columns of a packed buffer
  uint64_t bytes;
} grt_buffer;

/// The list of kernels; a test may have its own.
#ifndef GRT_KERNEL_LIST
#define GRT_KERNEL_LIST "grt/kernels.def"
#endif

/// Kernels: `GRT_KERNEL_GEMM = 0` and so on. The list says what each takes and
/// does.
typedef enum grt_kernel {
#define GRT_KERNEL(NAME, Name, number, ...) GRT_KERNEL_##NAME = number,
#include GRT_KERNEL_LIST
  GRT_KERNEL_COUNT
} grt_kernel;

/// Rows of the table of RELATIVE_BIAS, at most.
#define GRT_RELATIVE_BUCKETS 256

/// Pairs of elements that ROTARY turns in a head, at most.
#define GRT_ROTARY_PAIRS 256

/// Elements of a head of CACHED_ATTENTION, at most.
#define GRT_CACHED_HEAD 1024

/// Rules by which parameters are updated: an integer of OPTIMIZER.
typedef enum grt_optimizer {
  GRT_OPTIMIZER_SGD = 0, ///< with momentum
  GRT_OPTIMIZER_ADAM = 1,
  GRT_OPTIMIZER_ADAMW = 2
} grt_optimizer;

/// Axes of a layer's strategy along which a collective runs: `GRT_AXIS_DP = 0`
/// and so on. The list says what each is for.
typedef enum grt_axis {
#define GRT_AXIS(NAME, name, number, ...) GRT_AXIS_##NAME = number,
#include "grt/axes.def"
  GRT_AXIS_COUNT
} grt_axis;

/// Queues of a device, each in order, between them only what events say. A
/// backend whose calls are done when they return has none, and a program for it
/// has everything on GRT_STREAM_COMPUTE. The list says what each is for.
typedef enum grt_stream {
#define GRT_STREAM(NAME, Name, name, number, ...) GRT_STREAM_##NAME = number,
#include "grt/axes.def"
  GRT_STREAM_COUNT
} grt_stream;

typedef enum grt_collective {
  /// in == out, summed over the group; the same bits on every member.
  GRT_ALL_REDUCE = 0,
  /// out is the members' inputs, concatenated by their index on the axis.
  GRT_ALL_GATHER = 1,
  /// out = the member's slice of the sum of all inputs; `acc` as for kernels.
  /// When it adds, the member's own slice of `in` is undefined afterwards.
  GRT_REDUCE_SCATTER = 2,
  /// Block i of out is the block for this member of member i's in; in and out
  /// have a block of equal size for each member.
  GRT_ALL_TO_ALL = 3,
  /// All-to-all with blocks of as many units as `counts` says, one behind the
  /// other; in and out have the sizes that they may need at most.
  GRT_ALL_TO_ALL_COUNTS = 4,
  /// out is in of the member whose index on the axis is `distance` below this
  /// one's, around the axis.
  GRT_SHIFT = 5,
  /// in == out, the largest over the group of each element; the same bits on
  /// every member. Of integers too.
  GRT_ALL_REDUCE_MAX = 6,
  GRT_COLLECTIVE_COUNT = 7
} grt_collective;

/// Constant descriptor of one kernel call.
typedef struct grt_kernel_op {
  uint32_t kernel; ///< grt_kernel
  uint32_t buffer_count;
  uint32_t int_count;
  uint32_t real_count;
  const grt_buffer *buffers;
  const int64_t *ints;
  const double *reals;
  const char *name; ///< for messages and traces, e.g. "h.attn.c_attn"
} grt_kernel_op;

/// Constant descriptor of one collective call inside a layer function.
typedef struct grt_collective_op {
  uint32_t collective; ///< grt_collective
  uint32_t axis;       ///< grt_axis, of the running layer's strategy
  uint32_t acc;
  uint32_t stream; ///< grt_stream
  grt_buffer in;
  grt_buffer out;
  const char *name;
  int32_t distance;    ///< of SHIFT, not 0; else 0
  uint32_t unit_bytes; ///< of ALL_TO_ALL_COUNTS, not 0; else 0
  /// The counts of ALL_TO_ALL_COUNTS, I32, members x members, the same on all
  /// members: member i sends `counts[i][j]` units, 0 or more, to member j. The
  /// host reads them at the call. Other collectives have no bytes here.
  grt_buffer counts;
} grt_collective_op;

/// Constant descriptor of one call that orders streams. Events are numbered per
/// function call; an event is recorded before it is waited for.
///
/// What a program promises: at the beginning of a function GRT_STREAM_COMPUTE
/// is behind everything that the function may touch, other streams are behind
/// nothing; at its end COMPUTE has waited for all that the function put on
/// other streams. Marks of lifetimes stand in the order of COMPUTE.
typedef struct grt_event_op {
  uint32_t event;
  uint32_t stream; ///< grt_stream
  uint32_t wait;   ///< 0: record the event, 1: the stream waits for it
  uint32_t reserved;
  const char *name;
} grt_event_op;

/// A function has at most so many events.
#define GRT_FUNCTION_EVENTS 64

/// Kind of a role's task; tasks run in order. A chunk is a run of layers that a
/// role runs as one; chunks are numbered over all roles, in the order of the
/// model.
typedef enum grt_task_kind {
  /// Runs a chunk forward for (micro_batch, slot).
  GRT_TASK_FORWARD = 0,
  /// Runs a chunk backward for (micro_batch, slot).
  GRT_TASK_BACKWARD = 1,
  /// Messages between chunks, all parts as one grouped operation: `first`,
  /// `count` name rows of the schedule's table of parts.
  GRT_TASK_TRANSFER = 2,
  /// All-reduces the gradients of each layer of a chunk over its dp axis
  /// (layers descending). Layers of level `zdp` reduce-scatter them.
  GRT_TASK_SYNC_GRADIENTS = 3,
  /// Borrowers' gradients of tied parameters go to their owners and are added.
  GRT_TASK_TIE_REDUCE = 4,
  /// Global gradient norm (and loss): gathered over all ranks, added in rank
  /// order.
  GRT_TASK_NORM = 5,
  /// Runs the update function of each layer of a chunk; with level `zdp`, then
  /// gathers the layer's parameters.
  GRT_TASK_UPDATE = 6,
  /// Owners' new values of tied parameters go to the borrowers.
  GRT_TASK_TIE_BROADCAST = 7,
  /// A backward pass in two parts. The input part runs the layers' backward
  /// functions, which leave in the slot what their weight functions read.
  GRT_TASK_BACKWARD_INPUT = 8,
  /// The weight part, behind the input part of the same micro-batch, at any
  /// time until the end of the step: runs the layers' weight functions. What
  /// the slot holds ends with it.
  GRT_TASK_BACKWARD_WEIGHT = 9,
  /// Copies what `classes` says of all layers of a chunk between their home on
  /// the host and the arena, which way `tiers` says.
  GRT_TASK_SWAP = 10
} grt_task_kind;

/// `classes` of a SWAP task.
typedef enum grt_swap_class {
  GRT_SWAP_PARAMETERS = 1,
  GRT_SWAP_GRADIENTS = 2, ///< the sum over the micro-batches so far
  /// Activations that forward keeps of a micro-batch, whose slot is then the
  /// offloaded one.
  GRT_SWAP_ACTIVATIONS = 4,
  /// Optimizer state of a chunk that is updated in the arena: to the device
  /// alone, to the host with the parameters.
  GRT_SWAP_OPTIMIZER = 8
} grt_swap_class;

/// `tiers` of a SWAP task.
typedef enum grt_swap_tiers {
  GRT_TO_DEVICE = 1,
  GRT_TO_HOST = 2
} grt_swap_tiers;

/// `flags` of a BACKWARD or BACKWARD_WEIGHT task.
typedef enum grt_backward_flag {
  /// The gradients of each layer are all-reduced over its dp axis on
  /// GRT_STREAM_GRADIENT behind the layer's last function; the chunk's
  /// GRT_TASK_SYNC_GRADIENTS then only waits for it.
  GRT_SYNC_BEHIND = 1
} grt_backward_flag;

/// A task waits for at most so many events: its stream, of four that tasks are
/// on, for the other three.
#define GRT_TASK_WAITS 3
/// A schedule has at most so many events.
#define GRT_SCHEDULE_EVENTS 32

/// One row of a role's task table. Fields that a kind does not name are 0, and
/// so are those that no kind names yet: they have their places because a row
/// that grew would need another version.
typedef struct grt_task {
  uint8_t kind;   ///< grt_task_kind
  uint8_t flags;  ///< grt_backward_flag set
  uint16_t chunk; ///< of tasks that run layers, SYNC_GRADIENTS, UPDATE, SWAP
  uint16_t slot;  ///< of tasks that run layers: stash slot of the chunk, or
                  ///< the place in which its message waits; SWAP of
                  ///< activations
  uint8_t generation;   ///< FORWARD: batches behind the part's
  uint8_t classes;      ///< SWAP: grt_swap_class set
  uint32_t micro_batch; ///< of tasks that run layers; SWAP of activations
  uint32_t first;       ///< TRANSFER: the first part
  uint16_t count;       ///< TRANSFER: parts
  uint8_t stream;       ///< SWAP: grt_stream, where the device has several
  uint8_t tiers;        ///< SWAP: grt_swap_tiers
  /// Events of the schedule, from 1 on, if swaps have streams of their own; 0
  /// is none. Before the task its stream waits for `waits`, behind it `records`
  /// is recorded there. The stream of tasks that run layers is
  /// GRT_STREAM_COMPUTE, that of TRANSFER is GRT_STREAM_TRANSFER; what is done
  /// at home has none, and the host waits for GRT_STREAM_OUT before it.
  uint8_t records;
  uint8_t waits[GRT_TASK_WAITS];
} grt_task;

typedef enum grt_direction { GRT_SEND = 0, GRT_RECEIVE = 1 } grt_direction;

typedef enum grt_value {
  /// Activation of the chunk before in the model's order, for the one behind
  /// it.
  GRT_ACTIVATION = 0,
  /// Gradient of the chunk behind, for the one before it.
  GRT_GRADIENT = 1,
  /// Input of a layer that one chunk runs forward and another one again, sent
  /// to the other one's home; only if chunks are packs.
  GRT_STASH = 2
} grt_value;

/// A part of a transfer: what a chunk sends to, or receives from another one,
/// whose role is known by its number.
typedef struct grt_transfer_part {
  uint8_t direction; ///< grt_direction
  uint8_t value;     ///< grt_value
  uint16_t chunk;
  uint16_t peer_chunk;
  /// Slot of the chunk, for a received activation or an offloaded stash. If
  /// chunks are packs: the place in which another message waits.
  uint16_t slot;
  uint32_t micro_batch;
  uint8_t generation; ///< batches behind the part's
  uint8_t reserved[3];
} grt_transfer_part;

/// A transfer has at most one part of each direction and value.
#define GRT_TRANSFER_PARTS 4

/// Parts of a schedule. Synchronous schedules have an empty prologue and drain
/// and run `steady` once a step; `evaluate` is forward only. Others run the
/// prologue before a batch that nothing was done for yet, then `steady` if
/// another batch follows and `drain` if none does; `step end` behind either. A
/// batch behind the part's is the next one. Slots of a chunk are counted from
/// the prologue on: with every batch since they shift by the number of
/// micro-batches, modulo their own.
typedef enum grt_part {
  GRT_PART_PROLOGUE = 0,
  GRT_PART_STEADY = 1,
  GRT_PART_STEP_END = 2,
  GRT_PART_DRAIN = 3,
  GRT_PART_EVALUATE = 4,
  GRT_PART_COUNT = 5
} grt_part;

typedef struct grt_task_list {
  const grt_task *tasks;
  uint64_t count;
} grt_task_list;

typedef struct grt_schedule {
  grt_task_list parts[GRT_PART_COUNT];
  const grt_transfer_part *transfers; ///< of all transfers of the role
  uint64_t transfer_count;
} grt_schedule;

/// Execution modes of a forward pass.
typedef enum grt_mode {
  GRT_MODE_TRAIN = 0,
  GRT_MODE_EVALUATE = 1, ///< no dropout
  GRT_MODE_GENERATE = 2  ///< no dropout; cross entropy writes argmax to labels
} grt_mode;

/// The step block: scalars that change from step to step. It lives in the arena
/// and kernels read it; nothing of it is ever baked into a call.
typedef struct grt_step {
  uint64_t step; ///< counts from 1 (Adam's bias correction)
  uint64_t seed;
  uint32_t mode; ///< grt_mode
  /// Nonzero if the optimizer changes nothing in this step.
  uint32_t update_left_out;
  double learning_rate;
  double beta1, beta2, eps, weight_decay;
  double momentum;
  double clip_factor;        ///< gradients are multiplied by it in the update
  double inverse_tokens;     ///< 1 / number of valid tokens of the global batch
  double local_norm_squared; ///< this rank's part, see GRT_KERNEL_NORM
  // These fields are used if the backend decides on the update: see grt_device.
  double local_loss; ///< this rank's part
  double clip_norm;  ///< gradients of a larger norm are scaled to it
  double skip_norm;  ///< those of a larger norm update nothing; 0: any does
} grt_step;

#ifdef __cplusplus
}
#endif

#endif // GRT_ABI_H
