//===- Twin.h - One model under many plans, compared ------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

//
// The promise that a plan never changes the mathematics, as a test: the same
// model, data and seed run on one rank and under a plan on several, and what
// comes out is compared. Everything happens in this process.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_UNITTESTS_EXECUTION_TWIN_H
#define GALVATRON_UNITTESTS_EXECUTION_TWIN_H

#include "galvatron/Schedule/Schedule.h"
#include "galvatron/Strategy/DecisionTree.h"
#include "galvatron/Strategy/SumTiming.h"
#include "grt/session.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"

#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace galvatron::test {

/// A small model: a GPT-2, an encoder (`bert`, `modernbert`, `vit`, `deit`,
/// `dinov2`, and `swin`, of whose layers one is no block but merges positions),
/// an encoder-decoder
/// (`t5`, `t5_v1_1`, `umt5`, `bart`, `mbart`, `pegasus`), or a decoder of
/// another family with twice as many heads as `heads`, which are then those of
/// the keys, or any other, given as text.
struct TwinModel {
  int64_t vocabulary = 61, positions = 8, width = 32, layers = 6, heads = 8;
  int64_t keyHeads = 0; ///< of a decoder of another family; 0: `heads`
  double dropout = 0.1;
  std::string family = "gpt2";
  /// Keeps the documents of a sample apart.
  bool separatesDocuments = false;
  /// Texts whose keys and values the program keeps, as it generates; 0: it is
  /// one that trains.
  int64_t keptRows = 0;
  /// Modules that get adapters; empty: none, and everything is trained.
  std::string adapters;
  /// Backward passes go down to the first layer, below the lowest adapter, too.
  bool goesBelowAdapters = false;
  /// A module's text in place of a configuration: ELT and STAT stand for the
  /// element types of values and statistics, `layers` counts as above.
  std::string text;
  /// Blocks are split in parts, and the model has so many layers then; 0: they
  /// are whole.
  int64_t splitLayers = 0;
  /// Hugging Face config.json text.
  std::string config() const;
  bool hasDecoder() const {
    return family.find("t5") != std::string::npos ||
           family.find("bart") != std::string::npos || family == "pegasus";
  }
  /// Positions of what a decoder, or the only stack, reads.
  int64_t writtenPositions() const {
    return positions - (hasDecoder() ? 3 : 0);
  }
  /// Layers of the model: blocks, embeddings and head.
  int64_t modelLayers() const {
    return splitLayers ? splitLayers : layers + (hasDecoder() ? 3 : 2);
  }
};

/// A plan by hand.
struct TwinPlan {
  int64_t batch = 16, microBatches = 2;
  std::string schedule = "1f1b";
  /// Layers of each stage; of each chunk in the order of the model, where
  /// stages have several.
  std::vector<int64_t> stageLayers;
  int64_t chunks = 1; ///< of a stage
  Offload offload = Offload::Off;
  /// Of a schedule of packs: devices, and the first layers of forward packs.
  /// `stageLayers` are those of backward packs then.
  int64_t packDevices = 0;
  std::vector<int64_t> forwardPacks;
  int64_t forwardMicroBatches = 0;  ///< 0: as many as of backward packs
  std::vector<Strategy> strategies; ///< one a layer
  /// By stage when its gradients are summed; empty: by the rule for all.
  std::vector<SumTiming> sums;
  /// By chunk what its passes take, for schedules that list them by that.
  std::vector<PassTimes> passTimes;
  /// Stages are consecutive, equal groups of so many devices,
  int64_t devicesPerStage = 1;
  /// or these groups.
  std::vector<std::vector<int64_t>> devices;
  int64_t stages() const {
    return packDevices ? packDevices : int64_t(stageLayers.size()) / chunks;
  }
  int64_t world() const;
  /// `[2,4,2] 1f1b m4: dp2.tp2 | sdp4.ckpt x3 | ...`, to reproduce a failure.
  std::string str() const;
};

/// One rank, no pipeline.
TwinPlan singleRank(const TwinModel &model, int64_t batch,
                    int64_t microBatches = 1);
/// The even partition with one strategy for all layers.
TwinPlan uniformPlan(const TwinModel &model, int64_t stages,
                     const Strategy &strategy, int64_t batch,
                     int64_t microBatches, const std::string &schedule);

/// A different strategy on every layer, uneven stages, 2 to 8 ranks.
TwinPlan randomPlan(const TwinModel &model, std::mt19937 &generator);

/// Gives every layer a home of its own, of states and with `activations` of
/// what forward keeps, too; at least one is on the host. Both ends of the tie
/// have the same, as beside a device they must.
void mixHomes(TwinPlan &plan, std::mt19937 &generator, bool activations);

/// The optimizers of plan `number` of a sweep: updates hardly depend on the
/// plan, so they take turns, and the long run has all for every plan.
std::vector<std::string> optimizersInTurn(size_t number);

/// All that is executed, not only what the paper has.
::galvatron::SpaceOptions allStrategies();

struct TwinOptions {
  std::string dtype = "f64", optimizer = "adamw";
  bool dropout = true, clip = true, clipDelayed = false;
  double eps = 1e-8, learningRate = 1e-3, clipNorm = 0.5;
  double labelSmoothing = 0, zLoss = 0;
  int64_t steps = 5;
  bool sameBatch = false; ///< every step on the first step's batch
  /// Makes the batch of a step in place of `twinBatch`.
  std::function<::grt::DataBatch(const ::grt::Program &program, int64_t batch,
                                 int64_t step)>
      makeBatch = {};
  /// Of a program whose gradients are late: steps behind which nothing is
  /// begun. Behind others the next batch is.
  std::function<bool(int64_t step)> drainsBehind = {};
  uint64_t seed = 7;
  bool poison = true;
  /// Of the devices that the program is compiled for. What is compiled for
  /// devices with streams runs on the recording backend, which checks order and
  /// lifetimes of every access.
  std::string backend = "cpu";
  /// Runs what is compiled for devices with streams in place of the recording
  /// backend.
  const grt_backend *device = nullptr;
  /// Whether the IR is verified once memory is to be placed: off for faults
  /// that the verifier would find.
  bool verifyPlaced = true;
  /// Called on the module with its plan, before anything is made of it.
  std::function<void(mlir::ModuleOp)> changePlan;
  /// Called on the module after conversion to grt and scheduling, just before
  /// memory is placed: where faults are injected.
  std::function<void(mlir::ModuleOp)> corrupt;
  /// The same behind placement.
  std::function<void(mlir::ModuleOp)> corruptPlaced;
  /// On the recording backend: whether a stream really waits for an event.
  /// Called on the ranks' threads.
  std::function<bool(uint32_t stream, uint32_t event)> keepWait;
  /// What programs for devices with streams run on instead: the backend of this
  /// library, where it is built.
  std::string emulation;
  /// Changes what the recording backend's device does.
  void (*changeDevice)(grt_device &device) = nullptr;
  /// Called behind the last step.
  std::function<grt::Status(grt::Session &)> atEnd;
  /// Called after partition and collectives, before bodies become kernels.
  std::function<void(mlir::ModuleOp)> corruptBodies;
};

/// What a run leaves to compare.
struct TwinRun {
  std::string error; ///< empty if it ran
  std::vector<double> losses;
  std::vector<double> zLosses; ///< of programs with a z-loss
  std::vector<double> norms;   ///< empty where gradients are late
  grt::TensorMap gradients;    ///< of step 1
  grt::TensorMap parameters;   ///< after the last step
  std::vector<grt::RankMemory> memory;
  std::vector<grt::RankSwaps> swaps; ///< after the last step
};

/// The batch of a step, counted from 0: numbers that depend on nothing but the
/// datum, the step and their place.
::grt::DataBatch twinBatch(const ::grt::Program &program, int64_t batch,
                           int64_t step);

/// Biases and norms start at zero and one, and tables of relative positions at
/// zero; there they would hide faults (a bias added once a rank) and make
/// relative distances of key biases meaningless.
::grt::Status disturbVectors(::grt::Session &session);

/// Runs of one rank with everything, which twins are compared with: each is
/// made once.
class References {
public:
  explicit References(mlir::MLIRContext &context) : context(context) {}
  const TwinRun &of(const TwinModel &model, const TwinOptions &options,
                    int64_t batch);

private:
  mlir::MLIRContext &context;
  std::map<std::string, TwinRun> runs;
};

/// The backend that checks programs for devices with streams.
const grt_backend *recordingBackend();
/// That of a library among those that were built; null if it was not.
const grt_backend *builtBackend(const std::string &library);

/// Compiles to a program in a temporary file; returns an error message.
std::string compileTwin(mlir::MLIRContext &context, const TwinModel &model,
                        const TwinPlan &plan, const TwinOptions &options,
                        std::string &programBytes);

TwinRun runTwin(mlir::MLIRContext &context, const TwinModel &model,
                const TwinPlan &plan, const TwinOptions &options);

/// The same in two programs: `plan` does the first `before` of `options.steps`
/// steps and writes a checkpoint in `folder`, `resumed` goes on from it.
/// Gradients are those of step 1.
TwinRun runResumedTwin(mlir::MLIRContext &context, const TwinModel &model,
                       const TwinPlan &plan, const TwinPlan &resumed,
                       int64_t before, const std::string &folder,
                       const TwinOptions &options);

/// Relative distance |a - b| / |b| of two tensors. A reference whose norm is
/// below `floor` counts as zero: then the distance is 0 if |a - b| is at most
/// `floor` and infinite otherwise.
double tensorDistance(const std::vector<double> &a,
                      const std::vector<double> &b, double floor);

/// Largest relative distance over all tensors, the parts of fused projections
/// judged separately; `worst` names the tensor. The floor is `floorShare` times
/// the norm of all tensors together.
double largestDistance(const grt::TensorMap &run,
                       const grt::TensorMap &reference, std::string &worst,
                       double floorShare);

/// Bounds of one comparison; semantics: "what is compared, and how closely".
struct Bounds {
  double gradients, losses, parameters;
  /// Gradients below this share of all gradients' norm are judged absolutely.
  double floorShare = 1e-7;
};
/// Those of an element type and optimizer. In bf16 plans differ by the rounding
/// of activations and their gradients, whose places in the sums a plan moves.
Bounds getBounds(const std::string &dtype, const std::string &optimizer);

/// What differs by more than the bounds, a line each; empty if nothing does.
std::string compareRuns(const TwinRun &run, const TwinRun &reference,
                        const Bounds &bounds);

/// All dialects a twin needs.
void loadTwinDialects(mlir::MLIRContext &context);

/// Checks planned against measured peak of every rank (promise 3): never more
/// than planned, and at least 95% of it in arenas of 8 MiB and more; of smaller
/// ones, and of what `reserved` bytes of the plan leave, all but 128 KiB.
std::string checkMemory(const TwinRun &run, uint64_t reserved = 0);

} // namespace galvatron::test

#endif // GALVATRON_UNITTESTS_EXECUTION_TWIN_H
