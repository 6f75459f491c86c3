//===- executor.h - One rank of a running program -------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A rank walks its role's task lists. For every task it binds the regions of
// the layer at hand to addresses in its arena, then calls the layer's
// functions, which come back through the entry points of abi.h.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_EXECUTOR_H
#define GRT_CORE_EXECUTOR_H

#include "core/activity.h"
#include "core/arena.h"
#include "core/layout.h"
#include "core/trace.h"
#include "grt/session.h"

#include <memory>
#include <optional>

namespace grt {
class Rank;
}

/// What compiled code carries around; opaque to it.
struct grt_context {
  grt::Rank *rank = nullptr;
};

namespace grt {

/// A backend. Its library is never unloaded: threads that it started may
/// outlive a session, and the next session would load it again.
class BackendHandle {
public:
  /// Loads `libgrt_<name>.so` from `folder`, or from beside this library.
  BackendHandle(const std::string &name, const std::string &folder);
  /// Uses a backend that is part of the process.
  explicit BackendHandle(const grt_backend *backend) : table(backend) {}
  BackendHandle(const BackendHandle &) = delete;
  BackendHandle &operator=(const BackendHandle &) = delete;

  const grt_backend &operator*() const { return *table; }
  const grt_backend *operator->() const { return table; }

private:
  const grt_backend *table = nullptr;
};

/// What all ranks of a session share; read-only while ranks run.
struct RunState {
  const Program &program;
  const Manifest &manifest;
  const grt_backend &backend;
  SessionOptions options;
  Hyperparameters hyperparameters;
  bool poison = false;
  int threadsPerRank = 1;
  /// [exchange][global rank] and [tie].
  std::vector<std::vector<ExchangeTable>> exchanges = {};
  std::vector<TieTables> ties = {};
  /// The global batch, [batch][seq-len], and how many labels are >= 0.
  std::vector<int32_t> tokens = {}, labels = {};
  uint64_t validTokens = 0;
  uint64_t step = 0; ///< of the running or last step, from 1
  grt_mode mode = GRT_MODE_TRAIN;
  /// Set when a rank has failed; the others stop at their next operation.
  std::atomic<bool> failed = false;
};

class Rank {
public:
  /// With a recorder, whose communicator and backend these are then too, steps
  /// can be recorded.
  Rank(RunState &state, Communicator &communicator, Activity &activity,
       Recorder *recorder = nullptr);
  ~Rank();
  Rank(const Rank &) = delete;
  Rank &operator=(const Rank &) = delete;

  /// Called once, on the rank's own thread: arena, groups, initial weights.
  void load();
  /// One training step.
  void train();
  /// Forward passes of the whole batch, or of micro-batch 0 only.
  void evaluate(bool firstMicroBatchOnly);
  /// Replaces `values` by their sum over all ranks; every rank calls it.
  void addOverRanks(std::span<double> values);

  /// Finds where the values of the last step ceased to be finite.
  void inspect();
  std::string describeNotFinite() const;

  /// Results of the last `train` or `evaluate`, the same on all ranks.
  double lossSum = 0;
  double gradientNorm = 0;
  /// The loss or the norm is not finite, so nothing was updated.
  bool updateLeftOut = false;

  const Program &program() const { return state.program; }
  int globalRank() const { return self; }
  int localRank() const { return local; }
  Communicator &peers() { return communicator; }
  int roleIndex() const { return roleNumber; }
  const Role &role() const { return *roleData; }
  char *memory() const { return arena->base(); }
  uint64_t measuredPeakBytes() const;
  uint64_t outsideArenaBytes() const { return outsideBytes; }
  /// Labels of a micro-batch, where predictions arrive in generate mode; null
  /// on ranks whose role has no labels.
  const int32_t *labels(int64_t microBatch) const;
  /// Holds sample 0 of every micro-batch and is the first of its TP group.
  bool isFirstOfLastLayer() const;

  /// The entry points of abi.h. Throw Error or Aborted.
  void launch(const grt_kernel_op &op);
  void communicate(const grt_collective_op &op);
  void beginLife(const grt_buffer &buffer);
  void endLife(const grt_buffer &buffer);
  /// What the rank does outside its program, for the watchdog.
  void note(const char *what, const char *name) const {
    activity.begin(what, name);
  }
  void advance() const { activity.advance(); }
  /// Keeps an exception until the compiled function has returned.
  void keep(std::exception_ptr exception) { kept = exception; }

private:
  using Phase = LayerPhase;
  struct Region {
    char *base = nullptr;
    uint64_t bytes = 0;
  };
  struct LayerState {
    grt_coordinates coordinates;
    int64_t block = 0;
    Group *groups[3] = {};
    uint64_t outputBytes = 0;
  };

  void initialiseWeights();
  void prepareLayer(size_t layer);
  /// Walks every function of the role without running it: the backend takes
  /// what memory its kernels need outside the arena.
  void prepareKernels();
  void fillData();
  void beginStep();
  void runPart(grt_part part, bool firstMicroBatchOnly);
  void runTask(const grt_task &task);
  void forward(uint32_t microBatch, uint32_t slot);
  void backward(uint32_t microBatch, uint32_t slot);
  void transfer(const grt_task &task);
  void synchroniseGradients();
  void tie(bool reduce);
  void norm();
  void update();
  void gatherResults(double normSquared);

  void bind(size_t layer, uint32_t microBatch, uint32_t slot, Phase phase);
  void call(int function, const Layer &layer, Phase phase);
  void reshard(int exchange, const void *source, void *destination);
  char *resolve(const grt_buffer &buffer, const char *name, size_t position);
  Extent inputExtent(size_t layer, uint32_t slot) const;
  Extent boundaryExtent(int buffer, uint64_t bytes) const;
  void inspectLayer(size_t layer);
  /// Life of buffers that the executor itself hands on; training only.
  bool tracks() const { return state.mode == GRT_MODE_TRAIN && !inspecting; }
  void begin(const Extent &extent);
  void end(const Extent &extent);
  [[noreturn]] void failHere(const std::string &what) const;

  RunState &state;
  const Manifest &manifest;
  Communicator &communicator;
  Activity &activity;
  Group *everyone = nullptr;
  Recorder *recorder;
  int self, local = 0, roleNumber = 0;
  const Role *roleData = nullptr;
  grt_context context;
  std::unique_ptr<Arena> arena;
  LiveSet live;
  void *backendState = nullptr;
  grt_step *step = nullptr;
  std::vector<LayerState> layers;
  Region regions[GRT_REGION_COUNT];
  const LayerState *running = nullptr;
  const Layer *runningLayer = nullptr;
  uint64_t tokenBytes = 0, labelOffset = 0, labelBytes = 0;
  bool preparing = false; ///< functions are walked, not run
  size_t marks = 0;       ///< begin marks of the function walked last
  bool accumulate = false;
  bool backwardSeen = false;
  bool inspecting = false; ///< layers' outputs are looked at
  double notFinite = 0;    ///< where, see inspect.cpp
  uint64_t staticBytes = 0, outsideBytes = 0;
  std::vector<double> gathered;
  std::vector<int64_t> patchedInts;
  std::exception_ptr kept;
};

/// "gemm", "layer-norm", ...
const char *kernelName(uint32_t kernel);

} // namespace grt

#endif // GRT_CORE_EXECUTOR_H
