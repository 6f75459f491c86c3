//===- Plan.h - A complete parallel plan ------------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The plan that the planner returns, that the plan JSON holds (version 1: keys
// may be added, none may vanish), and that the compiler puts into the module.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_STRATEGY_PLAN_H
#define GALVATRON_STRATEGY_PLAN_H

#include "galvatron/Schedule/Offload.h"
#include "galvatron/Schedule/PassTimes.h"
#include "galvatron/Strategy/KeptValues.h"
#include "galvatron/Strategy/Strategy.h"
#include "galvatron/Strategy/SumTiming.h"
#include "galvatron/Support/TextTable.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

#include <optional>
#include <string>
#include <vector>

namespace galvatron {

class Schedule;
struct ScheduleShape;
const Schedule &defaultSchedule();

/// Options that change bytes or code and are therefore fixed at compile time.
struct TrainingOptions {
  std::string optimizer = "adamw"; ///< adamw, adam or sgd
  std::string dtype = "f32";       ///< see Dtype.h
  bool clip = true;
  bool clipDelayed = false; ///< by the norm of the batch before
  bool dropout = true;      ///< as the model says; false: off
  bool decayAll = false;
  /// Label smoothing, from 0 to below 1, and the factor of the z-loss; 0: none.
  double labelSmoothing = 0, zLoss = 0;

  /// An error message about the loss's terms; empty if they are valid.
  std::string wrongLoss() const;
  llvm::json::Value toJson() const;
  static llvm::Expected<TrainingOptions>
  fromJson(const llvm::json::Value &value);
  bool operator==(const TrainingOptions &other) const = default;
};

/// The bytes of the stage's largest rank, by purpose. Their sum is the arena.
struct StageLedger {
  int64_t parameters = 0;
  int64_t gradients = 0;
  int64_t optimizer = 0;
  int64_t activations = 0;
  int64_t backward = 0;
  int64_t communication = 0;
  int64_t workspace = 0;
  int64_t runtime = 0;

  int64_t total() const {
    return parameters + gradients + optimizer + activations + backward +
           communication + workspace + runtime;
  }
  bool operator==(const StageLedger &other) const = default;

  /// Name and bytes of every part, in a fixed order.
  std::vector<std::pair<llvm::StringRef, int64_t>> entries() const;
  llvm::json::Value toJson() const;
  static llvm::Expected<StageLedger> fromJson(const llvm::json::Value &value,
                                              const std::string &path);
  /// "parameters 1.2 GiB, gradients ..." without the zero entries.
  std::string str() const;
};

/// Neighbouring layers.
struct LayerRange {
  int64_t first = 0, count = 0;

  int64_t end() const { return first + count; }
  /// "3-5", or "3".
  std::string str() const;
};

struct PlanStage {
  std::vector<int64_t> devices; ///< global ranks, by local rank
  /// The layers of its first chunk.
  int64_t firstLayer = 0;
  int64_t layerCount = 0;
  /// The layers of all chunks of a stage that has several, in the order of the
  /// model.
  std::vector<LayerRange> chunks;
  /// Time of one micro-batch with and without gradient synchronisation: C and
  /// C_nosync of arXiv 2307.02031, Eq. 9. Transfers to neighbouring stages are
  /// added to the sending stage, tied parameters to their owner's stage. C has
  /// the P-th part of `optimizerMs`: the stages update side by side.
  double timeMs = 0;
  double timeNosyncMs = 0;
  /// Parts of timeNosyncMs: the forward pass with its transfers, and what the
  /// devices would take if communication took no time.
  double forwardMs = 0;
  double computeMs = 0;
  /// Gradient norm and optimizer's update, once a step.
  double optimizerMs = 0;
  int64_t peakBytes = 0;
  int64_t availableBytes = 0; ///< the budget; 0 if it is not known
  /// The bytes of its largest rank on the host, where states have their home
  /// there.
  StageLedger hostLedger;
  /// The bytes that device types keep back besides: contexts, communicators.
  int64_t reservedBytes = 0;
  /// Sharded parameters are gathered while the layer before them computes,
  /// where that is sound; the ledger has room for it.
  bool gathersAhead = false;
  /// When its gradients are summed, where the planner chose; on devices with
  /// streams.
  SumTiming sums = SumTiming::ByRule;
  StageLedger ledger;

  /// The layers of each of its chunks.
  std::vector<LayerRange> ranges() const;
  /// The layers of all chunks, ascending.
  std::vector<size_t> layers() const;
  /// "0-3", or "0-3, 8-11".
  std::string layerText() const;
  void setRanges(llvm::ArrayRef<LayerRange> ranges);
};

/// Layers that a stage runs as one, by their number in the order of the model.
struct PlanChunk {
  int64_t stage = 0;
  LayerRange layers;
};

struct PlanLayer {
  std::string name;
  int64_t stage = 0;
  Strategy strategy;
  /// The layer's parts of its stage's times, without reshards.
  double timeMs = 0;
  double timeNosyncMs = 0;
  /// States, and activations of all micro-batches in flight: what the layer
  /// adds to the stage's peak besides shared buffers.
  int64_t memoryBytes = 0;
  /// The values that it keeps for backward, if its strategy has a point;
  /// nothing in a plan by hand that leaves the choice to prices.
  std::optional<KeptValues> kept = std::nullopt;
};

/// The parts of one step of a stage's devices. No part is below 0, and they add
/// up to the iteration.
struct TimeSplit {
  double computeMs = 0;
  /// Communication that computation does not hide, gradient synchronisation
  /// and the slowdown of computation that runs beside communication.
  double communicationMs = 0;
  /// Gradient norm and update as Eq. 9 counts them: the mean over the stages.
  double optimizerMs = 0;
  double bubbleMs = 0; ///< waiting for other stages' micro-batches
};

/// Neighbouring layers of one stage with one strategy.
struct LayerRun {
  size_t begin = 0, end = 0;

  size_t size() const { return end - begin; }
};

/// Which time of a step a plan is chosen by: what the simulator says that the
/// runtime takes, or Eq. 9 of arXiv 2307.02031, which adds up what stages do
/// side by side.
enum class Objective : uint8_t { Executed, Paper };
/// "executed", "paper".
llvm::StringRef objectiveName(Objective objective);
/// Reads a name; the error lists both.
llvm::Expected<Objective> parseObjective(llvm::StringRef text);

/// The largest batch, so that samples times bytes of a sample stay within 63
/// bits.
constexpr int64_t kMostBatch = int64_t(1) << 30;

struct Plan {
  std::string toolVersion;
  std::string model;
  std::string modelHash;
  std::string cluster;
  std::string clusterHash;
  std::string profileHash; ///< empty if no measured profile was used
  std::string space;       ///< the variant searched, or "given"
  TrainingOptions training;
  int64_t seqLen = 0;
  int64_t batch = 0; ///< samples of one step over all ranks
  int64_t microBatches = 1;
  const Schedule *schedule = &defaultSchedule();
  Offload offload = Offload::Off;
  int64_t pipelineDegree = 1;
  /// The objective that was minimised: it says what `iterationMs` is.
  Objective objective = Objective::Paper;
  /// Milliseconds of a step: the simulator's, or (m - 1) * max C_nosync + sum C
  /// (Eq. 9).
  double iterationMs = 0;
  /// The most milliseconds that a simulated iteration takes, in closed form.
  std::optional<double> boundMs;
  /// The proven gap where the iteration is simulated: no plan for this batch in
  /// the space is simulated faster by more than this many percent; nothing if
  /// that is not proven of any number.
  std::optional<double> gapPercent;
  /// The simulator's milliseconds of the same step, if it was asked.
  std::optional<double> simulatedIterationMs;
  double samplesPerSecond = 0;
  /// Elements of the model's parameters, and FLOPs of one sample without
  /// recomputation (Cost/LayerModel.h); 0 if not known.
  int64_t parameters = 0;
  double flopsPerSample = 0;
  /// FLOP/s that the plan's devices together reach in large products.
  double peakFlops = 0;
  /// The cluster is a built-in one: its figures are data sheets and
  /// assumptions, not measurements.
  bool nominal = false;
  double searchMs = 0;
  /// Which search found the plan: "exact"; "heuristic", Algorithm 2; "quick",
  /// what an exact search that was stopped tries at its end. Empty if none did.
  std::string foundBy;
  /// No plan of the space is faster by more than this many percent; nothing if
  /// that is not proven of any number.
  std::optional<double> provenGapPercent;
  /// The stages' groups of devices, and ways to hold shared parameters, of which
  /// that was proven, and what is executed; empty if of all that the space has.
  std::string provenAmong;
  /// The schedules of whose plans `gapPercent` is proven, separated by ", ",
  /// where several were compared; empty if one was asked for.
  std::string provenSchedule;
  /// The parts of the plan that were given and not searched, in words ("the
  /// given strategy and pipeline degree"): `gapPercent` is proven of plans that
  /// have these. Empty if nothing was given but the batch.
  std::string provenGiven;
  /// Iteration of the best plan that the bi-objective heuristic finds for the
  /// same batch, pipeline degree and micro-batches; 0: not known.
  double heuristicMs = 0;
  /// Peaks are arena sizes (true) or estimates from a profile (false).
  bool exactPeak = false;
  std::vector<PlanStage> stages;
  std::vector<PlanLayer> layers;
  /// The times that the schedule's order of passes is made for, by chunk, where
  /// it is made for any times.
  std::vector<PassTimes> passTimes;
  /// The first layers of the packs that run forward only, in a schedule of
  /// packs. The stages' chunks are the backward packs.
  std::vector<int64_t> forwardPacks;
  /// Their micro-batches; 0: as many as `microBatches`, which are those of
  /// backward packs.
  int64_t forwardMicroBatches = 0;

  double tokensPerSecond() const {
    return samplesPerSecond * static_cast<double>(seqLen);
  }
  /// FLOP/s that the model's mathematics takes of each device, and their part
  /// of what large products reach there (MFU); 0 if not known.
  double flopsPerDevice() const;
  double utilisation() const;

  /// Samples of one micro-batch over all ranks of a stage.
  int64_t microBatchSamples() const { return batch / microBatches; }
  /// Samples of one micro-batch of packs that run forward only.
  int64_t forwardSamples() const {
    return forwardMicroBatches > 0 ? batch / forwardMicroBatches
                                   : microBatchSamples();
  }

  /// The shape its schedule is made for. Every stage has as many chunks, unless
  /// they are packs.
  ScheduleShape shape() const;
  /// The strategies of the layers of a range or a stage, in the order of the
  /// model.
  std::vector<Strategy> strategiesOf(const LayerRange &range) const;
  std::vector<Strategy> strategiesOf(const PlanStage &stage) const;
  /// Whether a layer is the first one of a chunk. The layer before may be of
  /// the same stage even so.
  bool beginsChunk(size_t layer) const;
  int64_t chunksPerStage() const;
  std::vector<PlanChunk> chunks() const;

  /// The parts that the strategies of its layers have on the host, as the least
  /// that a plan with them says; Off: nothing.
  Offload homesOfLayers() const;

  /// 1 - max C / sum C over the stages, and the same of peak bytes: how well
  /// time and memory are balanced (arXiv 2307.02031, Eq. 6-8).
  double alphaTime() const;
  double alphaMemory() const;

  /// Structure only: stages cover the layers in order, every strategy fills its
  /// stage, no device twice, sample counts divide. Not memory.
  llvm::Error check() const;
  /// The part of `check` for one layer: whether its strategy fills its stage
  /// and cuts a micro-batch evenly. Its stage must be one of the plan's.
  llvm::Error checkLayer(size_t index) const;

  /// Whether the stages together have the devices from 0 on, as a program's
  /// ranks are numbered, in any order and groups of any size. Other plans can
  /// be priced, and are not executed.
  llvm::Error checkDevices() const;
  /// Whether stages are equal groups of consecutive devices, in their order.
  bool hasConsecutiveDevices() const;

  llvm::json::Value toJson() const;
  /// Reads a plan JSON and checks it, devices too; unknown keys are kept out
  /// but allowed.
  static llvm::Expected<Plan> fromJson(const llvm::json::Value &value);

  TimeSplit timeSplit(size_t stage) const;
  /// Mean over all devices.
  TimeSplit timeSplit() const;

  /// The layers folded into the longest possible runs.
  std::vector<LayerRun> runs() const;
  /// "h.0-h.11 x12".
  std::string runName(LayerRun run) const;
  /// "tp4.ckpt1, h.0: keeps ln_1; computes mlp.c_fc again" of each set, with
  /// the first layer that has it, in their order; empty if no layer keeps a
  /// part of its values, or if these have no names.
  std::vector<std::string> keptTexts() const;
  /// "pp2 m4 batch 32: sdp4.tp2 x12, dp8 x2", commonest strategy first.
  std::string summary() const;

  /// The stage whose memory is fullest. Bytes over the budget count, too.
  size_t fullestStage() const;
  /// Peak over budget of a stage; 0 if the budget is not known.
  double memoryFill(size_t stage) const;
  /// The stage with the longest micro-batch, which sets the pipeline's pace.
  size_t slowestStage() const;
  /// Whether memory rather than time is what limits the plan, judged by how
  /// full the fullest stage is: plans come in steps, so the last few percent
  /// are rarely of use. (Planner/Explain.h proves it by planning again.)
  bool memoryBinds() const { return memoryFill(fullestStage()) >= 0.95; }
  /// "124M parameters, 65.9k tokens/s, 12.3 TFLOP/s a device, MFU ...", as far
  /// as they are known.
  std::string throughput() const;
  /// Returns one sentence on what limits the plan, and how closely.
  std::string binding() const;
  /// Returns one sentence where the cluster's figures are not measured; else
  /// empty.
  std::string nominalNote() const;

  /// A table a person can read. Three and more neighbouring stages that differ
  /// in their place, their memory and a thousandth of their times are one row.
  void print(llvm::raw_ostream &os, TableStyle style = {}) const;
};

/// "0-3" for consecutive devices, "0-1,4" otherwise.
std::string deviceRange(llvm::ArrayRef<int64_t> devices);

/// Why there is no plan. `stage` is -1 if no stage is to blame.
struct Infeasible {
  std::string reason;
  int64_t stage = -1;
  int64_t neededBytes = 0;
  int64_t availableBytes = 0;
  StageLedger ledger; ///< of the stage that does not fit
  /// Changes that would help, cheapest first, as sentences.
  std::vector<std::string> relaxations;
  /// Inputs with which a plan was found, all else being equal; 0: none was.
  int64_t fittingMemory = 0; ///< the least memory of every device, bytes
  int64_t fittingBatch = 0;
  int64_t fittingDevices = 0;

  /// {"infeasible": {...}}.
  llvm::json::Value toJson() const;
  /// Returns one paragraph: reason, stage, both numbers, ledger, relaxations.
  std::string str() const;
};

/// Error: why gradients cannot be clipped as is asked for, by what planner,
/// passes and tools refuse it.
llvm::Error checkClipping(const Schedule &schedule, Offload offload,
                          const TrainingOptions &training);

} // namespace galvatron

#endif // GALVATRON_STRATEGY_PLAN_H
