//===- ProfileLayerModel.h - A model from a layer profile -------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Estimates in the style of arXiv 2307.02031, Sec. III: memory from bytes per
// sample, times measured on one device or derived from FLOPs. The formulas are
// in docs/cost-model.md, section "Layer profiles".
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_COST_PROFILELAYERMODEL_H
#define GALVATRON_COST_PROFILELAYERMODEL_H

#include "galvatron/Cost/LayerModel.h"
#include "galvatron/Strategy/Optimizer.h"
#include "galvatron/Strategy/Plan.h"
#include "llvm/Support/JSON.h"

#include <memory>
#include <optional>

namespace galvatron {

/// Milliseconds of a batch of samples on one device: piecewise linear through
/// the measured points, through the origin below the first and with the slope
/// of the last piece above the last.
class BatchTimes {
public:
  BatchTimes() = default;
  /// Points sorted by batch, batches distinct and positive.
  explicit BatchTimes(std::vector<std::pair<double, double>> points)
      : points(std::move(points)) {}
  double milliseconds(double samples) const;

private:
  std::vector<std::pair<double, double>> points;
};

/// Times of a layer on one device type under tensor parallelism of one degree,
/// the communication of which they contain.
struct ProfileTimes {
  std::string deviceType; ///< "": on every one
  int64_t tp = 1;
  BatchTimes forward, backward;
};

struct ProfileLayer {
  std::string name;
  int64_t count = 1;
  bool measured = false;
  BatchTimes forward, backward;
  /// The weight part of a measured backward (nothing: the layer stays whole; of
  /// counted FLOPs it is known), and the bytes that the input part keeps for it
  /// per sample.
  std::optional<BatchTimes> weight;
  int64_t weightBytes = 0;
  /// Instead of these times. All device types have the same degrees, 1 among
  /// them; under others a layer is split as if nothing else were known.
  std::vector<ProfileTimes> times;
  double forwardFlops = 0, forwardMovedBytes = 0; ///< per sample
  /// The bytes that the matrix products read and write besides parameters, per
  /// sample; negative: boundary and intermediate bytes stand for it.
  double forwardProductBytes = -1;
  /// Attention's products, besides `forwardFlops`, and what they read and
  /// write, per sample: they are of another size than the others, and fused
  /// kernels have an efficiency curve of their own.
  double forwardAttentionFlops = 0, forwardAttentionBytes = 0;
  /// Attention's FLOPs in the backward pass, per sample: more than twice the
  /// forward ones where scores are not kept but computed again. Negative:
  /// twice.
  double backwardAttentionFlops = -1;
  int64_t forwardKernels = 0; ///< whatever the samples
  int64_t parameterBytes = 0;
  /// Bytes among these that belong to a parameter of the first layer that this
  /// one uses too, as a tied head does: it is held, its gradient goes to the
  /// owner, and it has no optimizer state here.
  int64_t borrowedBytes = 0;
  int64_t boundaryBytes = 0; ///< of the layer's input, per sample
  /// The bytes of the input that a rank is sent from another stage, per sample:
  /// less than `boundaryBytes` where ranks of TP send each other parts and
  /// gather them. Negative: all of it.
  int64_t sentBytes = -1;
  int64_t intermediateBytes = 0; ///< kept for backward besides it, per sample
  int64_t tpAllReduceBytes = 0;  ///< per sample and direction
  int64_t tpReplicatedBytes = 0; ///< part of intermediates TP does not split
  /// Part of `forwardMovedBytes` that TP does not split; negative: the same
  /// part as of the intermediates.
  double tpReplicatedMovedBytes = -1;
  /// The work that a backward pass repeats where a layer that is not recomputed
  /// keeps a part of its values alone: per sample, of one rank under the degree
  /// of TP that the profile is for.
  struct Again {
    double flops = 0;      ///< of products of the forward ones' size
    double movedBytes = 0; ///< by kernels limited by memory bandwidth
    int64_t kernels = 0;   ///< whatever the samples
    /// Bytes of the values, of which one layer's are there at a time.
    int64_t bytes = 0;
    int64_t tpAllReduceBytes = 0; ///< sent again

    bool operator==(const Again &other) const = default;
  };
  Again again;
};

/// The way in which the software that a profile speaks of trains; by default as
/// the runtime here does.
struct ProfileSoftware {
  /// The type in which gradients of parameters are stored and summed; empty:
  /// f32, or f64 beside f64.
  std::string gradientDtype;
  /// Sharded parameters are gathered while the layer before computes.
  bool gathersAhead = false;
  /// A backward pass writes its gradients of parameters in the compute type,
  /// and another kernel adds them to those of the step.
  bool addsGradients = false;
  /// Every rank has the sums of all gradients (an all-reduce), not only of its
  /// part, where states are sharded and parameters are not.
  bool sumsEverywhere = false;
  /// The ranks that shard parameters (`sdp`) shard optimizer states alone:
  /// parameters and gradients are whole, gradients are summed once a step among
  /// these ranks and then, in parts, among groups of them (`dp`).
  bool shardsStatesAlone = false;
};

class ProfileLayerModel : public LayerModel {
public:
  /// Reads the layer profile JSON (version 1).
  static llvm::Expected<std::unique_ptr<ProfileLayerModel>>
  fromJson(const llvm::json::Value &value, std::string name,
           const TrainingOptions &training = {});
  /// `measuredFlops`: FLOP/s of the device that times were measured on; 0 if
  /// they hold for every device.
  static llvm::Expected<std::unique_ptr<ProfileLayerModel>>
  get(std::string name, std::string dtype, std::vector<ProfileLayer> layers,
      const TrainingOptions &training = {}, double measuredFlops = 0,
      ProfileSoftware software = {});

  std::string name() const override { return modelName; }
  std::string hash() const override { return modelHash; }
  std::string profileHash() const override { return modelHash; }
  std::string dtype() const override { return elementType; }
  bool exact() const override { return false; }
  size_t layerCount() const override { return kinds.size(); }
  std::string layerName(size_t layer) const override;
  size_t kindOf(size_t layer) const override { return kinds[layer]; }
  int64_t boundaryBytesPerSample(size_t layer) const override;
  std::vector<Tie> ties() const override;
  /// The count of parameters from their bytes, borrowed ones once.
  int64_t parameterCount() const override;
  std::vector<std::string> measuredTypes() const override;
  /// Returns 0: nothing is known of layers whose time was measured.
  double flopsPerSample() const override;
  llvm::Expected<LayerFootprint>
  footprint(size_t kind, const Strategy &strategy, int64_t samples) override;
  /// Returns whether the profile has the weight part of some layer, or its
  /// FLOPs.
  bool splitsBackward() const override;
  llvm::Expected<LayerFootprint> splitFootprint(size_t kind,
                                                const Strategy &strategy,
                                                int64_t samples) override;

private:
  llvm::Error checkTimes(const std::vector<ProfileLayer> &layers);

  std::vector<std::string> typesMeasured;
  std::string modelName, modelHash, elementType;
  int64_t width = 0, gradientWidth = 0; ///< bytes of an element
  Optimizer optimizer = Optimizer::AdamW;
  std::vector<ProfileLayer> profile;
  std::vector<size_t> kinds;        ///< by layer
  std::vector<size_t> indexInKind;  ///< by layer
  std::vector<int64_t> outputBytes; ///< by kind, per sample
  double measuredFlops = 0;
  ProfileSoftware software; ///< with the gradients' type
};

} // namespace galvatron

#endif // GALVATRON_COST_PROFILELAYERMODEL_H
