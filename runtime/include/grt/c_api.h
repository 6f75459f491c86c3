//===- c_api.h - Sessions of compiled programs, in C ----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A program in C, or in any language that calls C, trains a compiled program
// (`.gvx`) in its own process. docs/embedding.md has a walk through it.
//
// - Functions return a grt_code, 0 if they did what they say. The text of an
//   error is grt_error_text(), of the calling thread.
// - Structures begin with `size`, which the caller sets to the sizeof that it
//   was compiled with. Fields that a shorter one lacks are taken as zero, and
//   not written. A longer one must have zeros behind what this library knows.
//   Zero always means "as usual", so that an initialiser says what differs:
//   `grt_session_options options = {sizeof options, "model.gvx"};`
// - Memory stays whose it is: nothing that is passed in is used after a call
//   has returned. Strings that are returned live as long as the session.
// - Calls of one session come from one thread at a time. Of several processes
//   all make the calls that are marked "collective", in the same order.
// - The library changes nothing of its process: no environment, no allocator,
//   no handler of signals, nothing printed; it never ends it.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_C_API_H
#define GRT_C_API_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Result of a call. The numbers are the exit codes of the tools.
typedef enum grt_code {
  GRT_CODE_DONE = 0,
  GRT_CODE_FAILED = 1,    ///< otherwise
  GRT_CODE_INVALID = 2,   ///< wrong arguments or files, found before the work
  GRT_CODE_NUMERICS = 3,  ///< a loss or gradient norm that is not finite
  GRT_CODE_PEER_LOST = 4, ///< a process is gone, or a rank makes no progress
  GRT_CODE_STORAGE = 5,   ///< a file cannot be written, or no longer be read
  GRT_CODE_MEMORY = 6     ///< memory that is needed cannot be had
} grt_code;

/// The library's version, "0.1.0".
const char *grt_version(void);

/// Message of the last call of this thread that failed; empty before one has.
/// Lives until the thread's next call.
const char *grt_error_text(void);

/// Reaction of a session to a loss or gradient norm that is not finite.
typedef enum grt_on_nan {
  /// GRT_ON_NAN_STOP, or LATE for programs whose updates do not wait for all
  /// ranks.
  GRT_ON_NAN_DEFAULT = 0,
  GRT_ON_NAN_STOP = 1, ///< the step is an error and left undone
  GRT_ON_NAN_SKIP = 2, ///< its update is left out, and the session goes on
  GRT_ON_NAN_LATE = 3  ///< the step is an error behind its update
} grt_on_nan;

/// Value of grt_session_options::processes for the processes of a launcher.
#define GRT_PROCESSES_OF_LAUNCHER (-1)

typedef struct grt_session_options {
  size_t size;
  /// File of the program; or null, and the program is the `program_bytes` at
  /// `program_data`.
  const char *program;
  const void *program_data;
  size_t program_bytes;
  /// Folder of the plug-ins; null: beside the library, then the system's path.
  const char *plugins;

  /// Key of all random numbers. Ignored if `resume` is given, which has its
  /// own.
  uint64_t seed;
  /// A checkpoint (`step-00000100`) to go on from, or a folder of checkpoints,
  /// whose newest it is; null: none.
  const char *resume;
  /// Weights to begin with: a safetensors file, or a folder of a Hugging Face
  /// model; null: random ones.
  const char *weights;
  int32_t on_nan; ///< grt_on_nan
  /// Threads of a rank's kernels; 0: its share of the cores.
  int32_t threads_per_rank;
  /// A rank that makes no progress for so many seconds is an error; 0: never.
  double timeout;

  /// Number of processes that hold the ranks: 0 or 1, this one alone, on
  /// threads; more, those that meet as the fields below say;
  /// GRT_PROCESSES_OF_LAUNCHER, those of torchrun, mpirun or srun, by their
  /// variables, or this one alone if there are none.
  int32_t processes;
  int32_t process; ///< which of them this is, from 0
  /// Ranks of this process; 0: an equal share.
  int32_t local_ranks;
  /// Its device, among those that it may use; 0: the first.
  int32_t device;
  /// Address at which process 0 listens and the others come to, by TCP.
  const char *address;
  uint16_t port;
  /// Name of the run; processes of another are turned away. May be null.
  const char *run;
  /// File with a secret of the run, mode 0600, which processes of several
  /// machines need; null: GALVATRON_LAUNCH_SECRET, if it is set.
  const char *secret_file;
  /// Seconds in which all must have come; 0: 120.
  double rendezvous_seconds;
} grt_session_options;

typedef struct grt_session grt_session;

/// Loads the program, allocates the arenas, starts the ranks, and makes or
/// reads the weights. Collective. `*session` is null behind an error.
int32_t grt_session_create(const grt_session_options *options,
                           grt_session **session);
/// Waits until all processes have come here, and destroys the session, even
/// where it fails. Collective. Steps whose loss is still to come are given up
/// (grt_session_flush).
int32_t grt_session_close(grt_session *session);
/// Destroys it at once; for the other processes this one is lost. Null is
/// nothing.
void grt_session_destroy(grt_session *session);

typedef struct grt_session_facts {
  size_t size;
  int32_t ranks;           ///< of all processes
  int32_t local_ranks;     ///< of this one
  int32_t first_rank;      ///< of this one's
  int32_t leads;           ///< 1 in the process with rank 0
  int64_t batch;           ///< samples of the program's global batch
  size_t data;             ///< see grt_session_datum
  size_t tensors;          ///< see grt_session_tensor
  uint64_t elements;       ///< that are trained
  uint64_t steps;          ///< that are done, with those before `resume`
  uint64_t samples;        ///< of these steps
  int32_t losses_late;     ///< how many calls a step's loss comes late
  int32_t threads;         ///< of a rank's kernels
  double predicted_ms;     ///< of a step; 0: unknown
  double flops_per_sample; ///< of forward and backward
} grt_session_facts;
int32_t grt_session_facts_of(const grt_session *session,
                             grt_session_facts *facts);

/// One of the arrays that a batch consists of.
typedef struct grt_datum {
  size_t size;
  const char *name; ///< "tokens"
  uint32_t type;    ///< grt_dtype (grt/abi.h): GRT_I32, or the model's type
  uint32_t dimensions;
  const int64_t *shape; ///< of one sample
  uint64_t bytes;       ///< of one sample
  int64_t below;        ///< bound of integers; 0: none
  /// 1: a negative value takes no part in the loss, which is the mean over the
  /// others.
  int32_t counted;
} grt_datum;
int32_t grt_session_datum(const grt_session *session, size_t index,
                          grt_datum *datum);

/// A batch is one array for each of the program's data: the values of all
/// samples of the global batch, row-major with the samples first, the same in
/// all processes. It may be a multiple of the program's batch, which a step
/// then does in parts before its one update.
typedef struct grt_array {
  const void *values;
  uint64_t bytes;
} grt_array;

typedef struct grt_step_result {
  size_t size;
  uint64_t step;        ///< that this is of, from 1; 0: none was ended
  double loss;          ///< mean over `counted` values
  double gradient_norm; ///< global, before clipping; 0 where losses are late
  double learning_rate;
  double milliseconds;
  uint64_t counted;
  int32_t skipped; ///< 1: nothing was updated
} grt_step_result;

/// One training step. Where losses are late (schedule 2bw, whose ranks begin
/// with a batch before all have ended the one before) a call hands a batch in
/// and ends the step of the batch of the call before: the first ends none
/// (`result->step` is 0), and grt_session_flush ends the last. Collective.
int32_t grt_session_step(grt_session *session, const grt_array *batch,
                         size_t arrays, grt_step_result *result);
/// Ends the step that was handed in and not ended, if there is one, and waits
/// until devices have done all that they were asked for. Collective.
int32_t grt_session_flush(grt_session *session, grt_step_result *result);
/// Loss of a batch without dropout; nothing is changed. Not between a step that
/// was handed in and its end. Collective.
int32_t grt_session_evaluate(grt_session *session, const grt_array *batch,
                             size_t arrays, double *loss, uint64_t *counted);

/// Numbers of the update, for the steps that are ended from then on.
typedef struct grt_hyperparameters {
  size_t size;
  double learning_rate;
  double beta1, beta2, eps;
  double weight_decay;
  double momentum;
  double clip_norm; ///< used if the program clips
  double skip_norm; ///< larger norms update nothing; 0: none does
} grt_hyperparameters;
int32_t grt_session_hyperparameters(const grt_session *session,
                                    grt_hyperparameters *values);
/// Sets all hyperparameters, so callers ask for them first and change some.
/// Fields that a shorter structure lacks stay as they are. Collective.
int32_t grt_session_set_hyperparameters(grt_session *session,
                                        const grt_hyperparameters *values);

/// A parameter, under its Hugging Face name.
typedef struct grt_tensor {
  size_t size;
  const char *name;
  uint32_t dimensions;
  const int64_t *shape;
  uint64_t elements;
} grt_tensor;
int32_t grt_session_tensor(const grt_session *session, size_t index,
                           grt_tensor *tensor);

typedef enum grt_values {
  GRT_VALUES_PARAMETER = 0,
  /// The gradient of the last step, summed over all samples, before clipping.
  GRT_VALUES_GRADIENT = 1,
  GRT_VALUES_FIRST_STATE = 2, ///< Adam's m, or the momentum
  GRT_VALUES_SECOND_STATE = 3 ///< Adam's v
} grt_values;
/// Copies the values of a whole tensor, row-major, from the ranks that hold its
/// parts to `values`, which has room for `elements`; in the process with rank
/// 0, elsewhere `values` may be null. Collective.
int32_t grt_session_read(grt_session *session, size_t tensor, int32_t what,
                         double *values, uint64_t elements);
/// Replaces a parameter on every rank that holds a part of it, by values that
/// are the same in all processes. Collective.
int32_t grt_session_write(grt_session *session, size_t tensor,
                          const double *values, uint64_t elements);

/// Writes `folder`/model.safetensors and config.json, as a Hugging Face model.
/// Collective.
int32_t grt_session_save(grt_session *session, const char *folder);
/// Writes a checkpoint of the steps that are done, `folder`/step-00000100, from
/// which grt_session_options::resume or galvatron-run --resume go on; the
/// `keep` newest stay (0: 2). One run holds a folder at a time: this one until
/// it names another. Collective.
int32_t grt_session_checkpoint(grt_session *session, const char *folder,
                               uint64_t keep);

/// Bytes of one rank of this process.
typedef struct grt_rank_memory {
  size_t size;
  int32_t rank;
  uint64_t planned;  ///< its arena, as the plan has it
  uint64_t measured; ///< the most of it that was in use at once
  uint64_t home;     ///< beside it, on the host, for states that live there
  uint64_t device;   ///< the most of its device that was in use, by whomever
} grt_rank_memory;
int32_t grt_session_memory(grt_session *session, int32_t local_rank,
                           grt_rank_memory *memory);

#ifdef __cplusplus
}
#endif

#endif // GRT_C_API_H
