//===- executor.h - One rank of a running program -------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A rank walks its role's task lists. For every task it binds the regions of
// the layer at hand to addresses in its arena, then runs the calls of the
// layer's functions.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_EXECUTOR_H
#define GRT_CORE_EXECUTOR_H

#include "comm/activity.h"
#include "core/arena.h"
#include "core/backend_table.h"
#include "core/bound_layer.h"
#include "core/commands.h"
#include "core/device.h"
#include "core/device_communicator.h"
#include "core/flight.h"
#include "core/handoffs.h"
#include "core/home_swaps.h"
#include "core/layout.h"
#include "core/pair_counts.h"
#include "core/parameter_rules.h"
#include "core/places.h"
#include "core/program_text.h"
#include "core/step_end.h"
#include "core/ties.h"
#include "core/trace.h"
#include "core/update_calls.h"
#include "grt/session.h"
#include "program/reader.h"

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>

namespace grt {

/// A backend. Its library is never unloaded: threads that it started may
/// outlive a session, and the next session would load it again.
class BackendHandle {
public:
  /// Loads `libgrt_<name>.so` from `folder`, or from beside this library.
  BackendHandle(const std::string &name, const std::string &folder);
  /// Uses a backend that is part of the process.
  explicit BackendHandle(const grt_backend *backend) : table(*backend) {}
  BackendHandle(const BackendHandle &) = delete;
  BackendHandle &operator=(const BackendHandle &) = delete;

  const grt_backend &operator*() const { return *table; }
  const grt_backend *operator->() const { return &*table; }

private:
  BackendTable table;
};

class Workers;

/// A global batch: of each of the program's data the values, and over how many
/// of them the loss is a mean: those of the counted datum that are not
/// negative.
struct GlobalBatch {
  std::vector<std::vector<char>> values;
  uint64_t countedValues = 0;
};

/// What a pass over a batch is told. It does not change while ranks run: those
/// that are late with one pass are not disturbed by what is set for the next.
struct PassInput {
  uint64_t step = 0; ///< of the running or last step, from 1
  grt_mode mode = GRT_MODE_TRAIN;
  Hyperparameters hyperparameters = {};
  std::shared_ptr<const GlobalBatch> batch = {};
  /// The batch behind it, if its forward passes are to begin; only where
  /// gradients are late.
  std::shared_ptr<const GlobalBatch> next = {};
  bool begun = false;    ///< forward passes of `batch` were done ahead
  bool recorded = false; ///< a trace is taken of the step
  /// How long its device waits is measured in the step, which is no graph then.
  bool measuresWaits = false;
  /// What this process asks all others for: see Session::anywhere.
  uint32_t requests = 0;
  /// The global batch is so many of the program's.
  uint64_t parts = 1;
  /// In evaluate mode: Rank::hits is wanted.
  bool countsHits = false;
  /// In generate mode the row of micro-batch 0 whose logits are kept, and how
  /// many from there on; -1: none's.
  int64_t scoredToken = -1, scoredRows = 1;
};

/// What all ranks of a session share; read-only while ranks run.
struct RunState {
  const Program &program;
  const Manifest &manifest;
  const grt_backend &backend;
  SessionOptions options;
  /// The kernels of what is done at home, where that is the host's memory and
  /// the backend has a device; null elsewhere.
  const grt_backend *homeBackend = nullptr;
  bool poison = false;
  double copyRate = 0; ///< see SessionOptions
  int threadsPerRank = 1;
  bool oneProcess = true; ///< has all ranks
  /// Ranks do not meet at the end of a step: gradients are late, or nothing of
  /// a step needs all of them.
  bool ahead() const {
    return manifest.delay > 0 ||
           (options.onNan == OnNan::Late && !manifest.clip &&
            !manifest.updatesJustInTime && !backend.device);
  }
  /// [exchange][global rank] and [tie].
  std::vector<LocalTables> exchanges = {};
  std::vector<TieTables> ties = {};
  /// By parameter what the run's groups say; empty without groups.
  std::vector<ParameterRule> rules = {};
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
  /// What the next pass is of.
  void take(std::shared_ptr<const PassInput> pass) { input = std::move(pass); }
  /// One training step. Where gradients are late it also does forward passes
  /// of the next batch, if there is one.
  void train();
  /// The newest weights were not made by the last step. Without an older
  /// version of them that is a copy.
  void changedWeights(bool olderToo) {
    hasOlderWeights = olderToo;
    stepEnd.forget();
  }
  /// The norm by which the next batch is clipped, where that is one batch late;
  /// negative: there is none. Between steps.
  double normOfLastStep() const { return stepEnd.normBefore; }
  void setNormOfLastStep(double norm) { stepEnd.normBefore = norm; }
  /// Makes older versions, where there are any, if they are not there.
  void completeWeights();
  /// What was begun with others and left for later is ended, so that newest
  /// weights are everywhere.
  void settle();
  /// Forward passes of the whole batch, or of micro-batch 0 only.
  void evaluate(bool firstMicroBatchOnly);
  /// Called with its loss as soon as it is known, where ranks go on without
  /// each other.
  std::function<void(const LossSums &)> lossIsKnown;
  /// Returns when all that this rank was asked for is done.
  void finish();
  /// Seconds that the rank has waited for others since the last call: see
  /// RankWork.
  double takeWaits();
  /// Recorded events get the device's times.
  void finishRecording();
  /// Replaces `values` by their sum over all ranks; every rank calls it.
  void addOverRanks(std::span<double> values);

  /// Finds where the values of the last step ceased to be finite.
  void inspect();
  std::string describeNotFinite() const;

  /// Whether losses are computed here, so that the loss of a step is known as
  /// soon as all such ranks have done it.
  bool hasLoss() const;
  StepResults results;

  int globalRank() const { return self; }
  int localRank() const { return local; }
  /// For what is in the host's memory.
  Communicator &peers() { return host; }
  int roleIndex() const { return roleNumber; }
  const Role &role() const { return *roleData; }
  /// Where states have their home; if that is a device's memory, the host goes
  /// there through `access` only.
  char *home(const Layer &layer) const { return placesOf(layer).home->base; }
  Device &access(const Layer &layer) const {
    return *placesOf(layer).home->memory;
  }
  /// Adds the samples of a batch that it reads, by datum; once it is loaded.
  void addSamplesRead(SamplesRead &samples) const;
  RankMemory memoryUse() const;
  /// Of states that have their home on the host, bytes since loading.
  const RankSwaps &swapped() const { return swaps.figures; }
  /// The first values of a micro-batch of the counted datum, where predictions
  /// arrive in generate mode. False on ranks whose role does not have it.
  bool readLabels(int64_t microBatch, std::span<int32_t> labels) const;
  /// Logits of the scored rows of PassInput: those of the vocabulary from
  /// `first` on, `count` of each.
  struct Scores {
    int64_t first = 0;
    size_t count = 0;
    std::vector<double> values;
  };
  /// Of the last pass; empty on ranks that have none of them.
  const Scores &scores() const { return inspection.scores; }
  /// How many values of the last pass that count have the largest logit of
  /// their row; of those whose loss is computed here, once of a TP group.
  uint64_t hits() const { return inspection.hits; }
  /// Holds sample 0 of every micro-batch and is the first of its TP group.
  bool isFirstOfLastLayer() const;

  /// What the rank does outside its program, for the watchdog; `name` is the
  /// program's.
  void note(const char *what, const char *name) const {
    activity.begin(what, name);
  }
  void advance() const { activity.advance(); }
  /// Both from any thread, and nothing without a device: whether something of
  /// this rank's has failed in the background, and the end of what is under
  /// way.
  bool hasFailed(std::string &message) const;
  void abortDevice() const;
  /// What carries the device's collectives, with its version.
  std::string collectivesLibrary() const;
  RankFlight flight() const;
  /// Lets the activity know what the device has done. From any thread.
  void lookAtMarks() const;
  /// How many graphs a step is, once it is warm; 0: it is always put on streams
  /// call by call.
  int graphsPerStep() const {
    return !graphs.wanted ? 0 : graphs.isOne ? 1 : 2;
  }
  /// Why it is not one; empty if it is, or where there is no device.
  const std::string &whyNotOneGraph() const { return graphs.whyNotOne; }

private:
  friend class RankLoader;
  friend class StepEnd;
  friend class Ties;

  /// The step as graphs of the device (executor_graph.cpp).
  struct StepGraphs {
    bool wanted = false; ///< steps can be graphs, and are to be
    bool isOne = false;  ///< the device decides of the update
    std::string whyNotOne;
    Group *everyone = nullptr; ///< where one graph is of several ranks
    bool capturing = false;    ///< one is being made
    bool ran = false;          ///< since work was last put on streams
    std::vector<bool> made;
    /// Where results arrive; null if this rank has none.
    const double *losses = nullptr, *norm = nullptr;
    /// The step block as the device has decided, where it does.
    const grt_step *step = nullptr;
    bool eventsTell = true; ///< when results are there
  };
  using Phase = LayerPhase;
  std::shared_ptr<const PassInput> input = std::make_shared<PassInput>();
  /// Results that are inspected beside a pass.
  struct Inspection {
    Scores scores;
    uint64_t hits = 0;
    bool ofOutputs = false; ///< of layers, for values that are not finite
    double notFinite = 0;   ///< where, see inspect.cpp
  };
  const StepPlaces &placesOf(const Layer &layer) const {
    return layers[size_t(&layer - roleData->layers.data())].places;
  }

  struct ChunkState {
    const Chunk *chunk = nullptr;
    size_t number = 0; ///< of the role's list
    /// Its slots in the arena, which are all that batches in flight take turns
    /// in.
    uint32_t firstSlot = 0, slots = 1;
    uint64_t partsOfSlot = 1; ///< micro-batches that share one at home
    /// Of the running step: a backward pass was run, or the weight part of one,
    /// and gradients were reduced behind it already.
    bool backwardSeen = false, weightSeen = false, reduced = false;
    void beginStep() { backwardSeen = weightSeen = reduced = false; }
    uint32_t slotOf(uint16_t slot, uint64_t shift) const {
      return firstSlot + uint32_t((slot + shift) % slots);
    }
  };

  /// The step block that kernels of the running side read.
  grt_step *stepBlock() const { return side->isHost ? step : deviceStep; }

  void lookAtDeviceMemory();
  /// Puts a global batch where tasks of the generation read it.
  void fillData(unsigned generation, const GlobalBatch &batch);
  /// Where one micro-batch of a copy lies, of the batch that tasks are run for.
  Extent microBatchExtent(const DataCopy &copy, uint64_t microBatch) const {
    uint64_t bytes = copy.extent.bytes /
                     uint64_t(manifest.microBatchesOf(copy.ofForwardPacks));
    return {copy.extent.offset + batchOffset(roleData->data) +
                microBatch * bytes,
            bytes};
  }
  /// Batches that are under way at once take turns in a region's parts.
  uint64_t batchOffset(const Extent &region) const {
    return region.bytes / manifest.batchesAtOnce() * progress.place;
  }
  /// What follows is for the batch that a part is run for, or one behind it:
  /// its data, its step block and its version of the weights.
  void turnTo(unsigned generation);
  /// The step block of a generation, as kernels are to read it.
  void fillStep(unsigned generation, uint64_t number, uint64_t countedValues);
  void beginStep();
  /// Executes a batch, or one whose gradients are late.
  void trainBatch();
  void trainLate();
  void runPart(grt_part part, bool firstMicroBatchOnly);
  /// Tasks [from, to) of a part, all micro-batches.
  void runTasks(grt_part part, size_t from, size_t to);
  /// Of a transfer the parts of the mask take part.
  void runTask(const grt_task &task, unsigned parts, bool endsStep);
  void execute(const grt_task &task, unsigned parts, bool endsStep);
  /// Events of the schedule: those that a task's stream waits for, and the one
  /// behind it.
  void beginOrder(const grt_task &task);
  void endOrder(const grt_task &task);
  const grt_schedule &schedule() const {
    return state.program.file().schedules()[size_t(roleNumber)];
  }
  const grt_transfer_part *partsOf(const grt_task &task) const {
    return schedule().transfers + task.first;
  }
  /// The step as graphs that the device runs again and again.
  bool stepsByGraphs() const;
  void trainByGraphs();
  /// Puts the decision of decideUpdate on COMPUTE.
  void decideOnDevice();
  /// Forward and backward of all parts of the batch (executor_accumulate.cpp).
  void runSteadyParts();
  /// Adds up the losses of a part and puts the data of the next one where it is
  /// read; false if there is none.
  bool toNextPart();
  template <typename Body> void runGraph(uint32_t number, Body body);
  /// Work that is put on streams one by one follows.
  void leaveGraphs();
  /// An event behind what stands on the stream, for the flight recorder.
  void leaveMark(uint32_t stream);
  /// Behind what was put there up to an operation (Activity::mark).
  void leaveMark(uint32_t stream, uint64_t operation);
  // Commands (executor_commands.cpp).
  TaskFrame frameOf(const ChunkState &chunk, const grt_task &task) const;
  /// A pass of a chunk.
  void runPass(ChunkState &chunk, const grt_task &task);
  void run(Procedure procedure, const TaskFrame &frame);
  /// Whether the command is for this task and this rank.
  bool isFor(const gvx::Command &command, const TaskFrame &frame) const;
  void runCommand(const gvx::Command &command, const TaskFrame &frame);
  void runCall(const gvx::Command &command, const TaskFrame &frame);
  void runSwap(const gvx::Command &command, const TaskFrame &frame);
  /// Adds a gradient to one of as many bytes.
  void addGradient(const Extent &to, const Extent &from);
  // Transfers (executor_transfers.cpp).
  void transfer(const grt_task &task, unsigned parts);
  /// An end of a message that a transfer moves.
  struct Moved {
    const grt_transfer_part *part = nullptr;
    const gvx::Message *message = nullptr;
    char *memory = nullptr;
    Extent extent;        ///< of the arena; no bytes at home
    int64_t handoff = -1; ///< -1: all functions share the memory
    bool sends() const { return part->direction == GRT_SEND; }
  };
  /// Those of the mask; how many they are.
  size_t movedBy(const grt_task &task, unsigned parts, Moved *moved);
  /// The calls that move them; how many they are.
  size_t callsFor(std::span<const Moved> moved, ExchangeCall *calls) const;
  void beginTransfer(std::span<const Moved> moved);
  void endTransfer(std::span<const Moved> moved);
  /// The state of a task's chunk.
  ChunkState &chunkOf(uint16_t number);
  // Of states with their home on the host (executor_swaps.cpp).
  /// Copies states of a chunk between their home and the arena.
  void swap(const grt_task &task);
  /// Tells a checking backend what the host itself uses.
  void noteUseBy(const Side &who, const void *address, uint64_t bytes,
                 const char *name) const {
    if (who.isHost)
      device->note(GRT_NOTE_AT_HOME, address, bytes, name);
  }
  /// What backward needs of a micro-batch.
  void swapSlot(const gvx::Command &command, const TaskFrame &frame);
  /// Parameters of another pack take the place of those that were there.
  void takeTurn(const Chunk &chunk);
  /// Whether evaluation of sample 0 alone runs a micro-batch of a chunk.
  bool hasFirstSample(bool forwardOnly, uint32_t microBatch) const {
    return int64_t(microBatch) < (forwardOnly ? manifest.perSlot(true) : 1);
  }
  void reduceGradients(size_t layer);
  /// Runs collectives over states of a layer on a stream.
  void runOnStates(const StepPlaces &places,
                   const std::vector<StateCollective> &collectives,
                   grt_stream stream, const char *what);
  /// What comes on `stream` runs behind the sums of gradients begun so far.
  void awaitSums(grt_stream stream);
  /// Gathered parameters of a layer, where functions find them. Their life is
  /// the executor's: from when the gather is put on its stream on.
  const Gathered &gatheredOf(size_t layer, Phase phase) const;
  Extent gatheredExtent(size_t layer, uint32_t slot, Phase phase) const;
  /// Puts the gather of a layer's parameters on its stream, behind everything
  /// on COMPUTE.
  void startGather(const gvx::Command &command, uint32_t slot);
  void synchroniseGradients(const ChunkState &chunk);
  void update(const ChunkState &chunk);
  /// COMPUTE comes behind all other streams.
  void joinStreams();
  /// Tells a checking backend what comes.
  void notePlace(const char *what);

  void bind(size_t layer, uint32_t microBatch, uint32_t slot, Phase phase);
  void call(int function, const Layer &layer, Phase phase);
  /// Calls of layer functions. Throw Error or Aborted.
  void run(const gvx::Call &call);
  void launch(const grt_kernel_op &op);
  /// Calls use(call, rule) for the calls that a call is under the rules of the
  /// run's parameter groups; no rule: the call as it is.
  template <class Use> void expand(const grt_kernel_op &op, const Use &use) {
    grt_kernel_op patched = op;
    if (const auto *calls = updateCalls.of(op, *runningLayer)) {
      for (const PartialCall &call : *calls) {
        patched.ints = call.ints.data();
        patched.int_count = uint32_t(call.ints.size());
        use(patched, &call.rule);
      }
      return;
    }
    if (const auto ints = updateCalls.decayingInts(op); !ints.empty())
      patched.ints = ints.data();
    use(patched, static_cast<const ParameterRule *>(nullptr));
  }
  /// Who runs functions of a layer in a phase.
  const Side *sideOf(const Layer &layer, Phase phase) const {
    return phase == Phase::Norm || phase == Phase::Update ? placesOf(layer).side
                                                          : &here;
  }
  /// The call itself, with a step block that may be its own.
  void start(const grt_kernel_op &op, grt_step *block);
  void communicate(const grt_collective_op &op);
  /// An all-to-all or a shift.
  void moveBlocks(const grt_collective_op &op, Group *group, const char *in,
                  char *out);
  void order(const grt_event_op &op);
  void beginLife(const grt_buffer &buffer);
  void endLife(const grt_buffer &buffer);
  void keepScores(const grt_kernel_op &op, const void *logits);
  void countHits(const grt_kernel_op &op, const void *labels,
                 const void *stats);
  void reshard(int exchange, const void *source, void *destination);
  /// Where a buffer of the running function lies.
  char *resolve(const grt_buffer &buffer, const char *name, size_t position);
  void inspectLayer(size_t layer);
  bool isFinite(Device &memory, const char *values, uint64_t bytes,
                grt_dtype dtype);
  /// Life of buffers that the executor itself hands on; training only.
  bool tracks() const {
    return input->mode == GRT_MODE_TRAIN && !inspection.ofOutputs;
  }
  void begin(const Extent &extent);
  /// `sent`: it may still be on its way on another stream.
  void end(const Extent &extent, bool sent = false);
  /// Poisons what dies, if that is wanted.
  LiveSet::Dead poisonDead();
  [[noreturn]] void failHere(const std::string &what) const;
  [[noreturn]] void failCall(const grt_kernel_op &op,
                             const char *message) const;

  RunState &state;
  const Manifest &manifest;
  Communicator &host;
  /// For what is in arenas: the host's, or around `devices`.
  Communicator *communicator;
  Activity &activity;
  PairCounts pairCounts;
  Group *everyone = nullptr;
  Recorder *recorder;
  int self, local = 0, roleNumber = 0;
  const Role *roleData = nullptr;
  void *backendState = nullptr;
  std::unique_ptr<Arena> arena;
  /// No memory where the arena is the states' home.
  std::unique_ptr<HomeMemory> homeMemory;
  /// Where there is a device and the host does what is done at home.
  void *homeState = nullptr;
  std::unique_ptr<Device> homeDevice;
  /// The device on the arena; on states at home the same, or the host with
  /// kernels of its own.
  Side here, atHome;
  const Side *side = &here; ///< of the running function
  /// Tasks of the schedule are on GRT_STREAM_IN and GRT_STREAM_OUT, even if
  /// they have nothing to copy here.
  bool swapsOnStreams = false;
  /// Some layer's update is not done at home beside a device.
  bool updatesHere = true;
  uint32_t firstScheduleEvent = 0;
  const Chunk *packHere = nullptr; ///< whose parameters count as live
  HomeSwaps swaps;
  std::unique_ptr<Device> device;
  std::unique_ptr<Communicator> aroundDevices;
  std::atomic<DeviceCommunicator *> devices = nullptr;
  LiveSet live;
  /// As the host has it and as kernels see it; on a device two copies.
  grt_step *step = nullptr, *deviceStep = nullptr;
  grt_step hostStep = {};
  /// Which batch tasks are for, and what of it is done.
  struct BatchState {
    uint64_t since = 0; ///< batches since the prologue
    uint64_t place = 0; ///< its part of the regions that batches take turns in
    /// From the newest parameters to those that tasks read.
    uint64_t weights = 0;
    uint64_t part = 0;        ///< of a step over several
    LossSums earlierLosses;   ///< of the parts before
    bool leavesSums = false;  ///< gradients stay this rank's own
    bool accumulates = false; ///< functions add to gradients
    bool reduces = false;     ///< gradients are under way on GRADIENT
  };
  BatchState progress;
  bool hasOlderWeights = false;
  uint64_t olderOffset = 0; ///< from a parameter to its older version
  Ties ties{*this};
  std::vector<LayerState> layers;
  BoundLayer bound;
  const LayerState *running = nullptr;
  const Layer *runningLayer = nullptr;
  /// By copy of the role: which samples of a micro-batch it has, and how many.
  struct HeldSamples {
    SampleRuns runs;
    int64_t count = 0;
  };
  std::vector<HeldSamples> samplesHeld;
  std::vector<ChunkState> chunks;
  Procedures procedures;
  Handoffs handoffs;
  /// Events behind operations, for the flight recorder; they take turns.
  struct Marks {
    uint32_t first = 0, kept = 0, left = 0;
  };
  Marks marks;
  StepGraphs graphs;
  /// Behind the results of a step that is one graph.
  static constexpr uint32_t resultsEvent =
      Device::firstOwnEvent + GRT_STREAM_COUNT;
  bool warm = false; ///< a step was done
  StepEnd stepEnd{*this};
  Inspection inspection;
  uint64_t staticBytes = 0, outsideBytes = 0, deviceBytesSeen = 0;
  UpdateCalls updateCalls;
};

} // namespace grt

#endif // GRT_CORE_EXECUTOR_H
