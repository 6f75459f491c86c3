//===- LayerModel.h - What the planner knows of a model ---------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A model is a sequence of layers; for every kind of layer, strategy and number
// of samples it gives a footprint. Models made from IR compile the layer
// function and give exact bytes; layer profiles give estimates.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_COST_LAYERMODEL_H
#define GALVATRON_COST_LAYERMODEL_H

#include "galvatron/Cluster/Measured.h"
#include "galvatron/Schedule/Schedule.h"
#include "galvatron/Strategy/KeptValues.h"
#include "galvatron/Strategy/Strategy.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace galvatron {

/// Matrix products of one size: FLOPs and the harmonic mean of the dimensions
/// (Cluster/Measured.h), 0 if it is not known.
struct ProductWork {
  double flops = 0;
  double size = 0;
  bool attention = false; ///< of an attention kernel
};

/// Computation of one direction of a layer on one rank.
struct ComputeWork {
  double flops = 0;      ///< of all products
  double movedBytes = 0; ///< of kernels limited by memory bandwidth
  int64_t kernels = 0;
  /// Sizes of the products, as far as they are known.
  llvm::ArrayRef<ProductWork> products;
};

/// The ranks that a collective of a layer is among.
enum class CollectiveGroup : uint8_t {
  Tensor,     ///< on the axis of tensor parallelism
  Context,    ///< on the axis of context parallelism
  Parameters, ///< among which parameters are sharded
  Gradients,  ///< that sum gradients once a step
};

/// True for the groups of a layer's axes.
inline bool isInsideFunctions(CollectiveGroup group) {
  return group == CollectiveGroup::Tensor || group == CollectiveGroup::Context;
}

/// When a collective of a layer runs.
enum class CollectiveTime : uint8_t {
  Forward,
  Recompute,
  Backward, ///< all of it, or the input part of one that is split
  Weight,   ///< weight part of a backward pass that is split
  Step,     ///< once a step, in front of the update
  Update,   ///< behind the update
};

/// Calls of a collective on buffers of one size.
struct LayerCollective {
  CollectiveGroup among;
  Collective kind;
  CollectiveTime when;
  int64_t bytes = 0; ///< of the whole buffer, all calls together
  int64_t calls = 1;

  bool operator==(const LayerCollective &other) const = default;
};

/// Calls of a collective inside a function that run, on devices with streams,
/// beside one computation of that function: the shifts of a ring's keys to the
/// next step beside the attention of the step that has them still.
struct OverlappedCollective {
  LayerCollective calls; ///< LayerFootprint::collectives counts them as well
  /// The computation: a product, or the bytes that it moves.
  ProductWork product;
  double movedBytes = 0;
  int64_t times = 1; ///< a function has so many that are alike
};

/// Bytes of a layer's temporaries, from where these begin, that collectives of
/// its functions read or write.
struct CollectiveBuffer {
  int64_t begin = 0, end = 0;

  auto operator<=>(const CollectiveBuffer &other) const = default;
};

/// Seconds measured on one device type.
struct MeasuredSeconds {
  llvm::StringRef deviceType; ///< the model owns the name
  double forward = 0, backward = 0;
};

/// The needs of one layer under one strategy, as one rank sees it (the largest,
/// where ranks differ), for one micro-batch with a given number of local
/// samples. Byte counts that enter memory are multiples of 64.
struct LayerFootprint {
  // Memory.
  int64_t inputBytes = 0;  ///< boundary activation in; 0 if it is tokens
  int64_t outputBytes = 0; ///< boundary activation out; 0 if it is the loss
  /// Tensors that are alive in front of the layer, or behind it, and that the
  /// layer in front, or this one, did not make.
  int64_t passingInBytes = 0, passingOutBytes = 0;
  int64_t stashBytes = 0; ///< kept for backward besides the input; 0 under ckpt
  int64_t forwardTransient = 0; ///< largest live temporaries of forward
  /// Largest live temporaries of backward: under ckpt with the recomputed
  /// stash; with gathered SDP parameters and full SDP gradients.
  int64_t backwardTransient = 0;
  /// Bytes of unsharded parameters that the executor gathers and not the
  /// function, as on devices with streams; included in the two fields above.
  int64_t forwardGathered = 0, backwardGathered = 0;
  /// Ascending; under ckpt those of backward have the recomputed stash in
  /// front.
  llvm::SmallVector<CollectiveBuffer, 0> forwardBuffers, backwardBuffers;
  int64_t parameterBytes = 0; ///< states held by the rank
  int64_t gradientBytes = 0;
  int64_t borrowedGradientBytes = 0; ///< of these, of borrowed parameters
  int64_t optimizerBytes = 0;
  /// States and activations of the layer that are offloaded to the host, where
  /// layers differ in that.
  LayerHome home;
  /// The bytes per sample of each of the data that the layer reads, in the
  /// order of its body.
  llvm::SmallVector<int64_t, 2> dataBytesPerSample;

  // Computation of this rank. "Moved" bytes are those of the kernels that are
  // limited by memory bandwidth; matrix products are counted by FLOPs alone.
  double forwardFlops = 0, forwardMovedBytes = 0;
  double backwardFlops = 0, backwardMovedBytes = 0;
  double recomputeFlops = 0, recomputeMovedBytes = 0; ///< 0 without ckpt
  int64_t forwardKernels = 0, backwardKernels = 0, recomputeKernels = 0;
  /// True if the backward pass is two functions (splitFootprint()). Fields that
  /// begin with `weight` then hold the share of the one for gradients of
  /// parameters.
  bool split = false;
  double weightFlops = 0, weightMovedBytes = 0;
  int64_t weightKernels = 0;
  llvm::SmallVector<ProductWork, 1> weightProducts;
  double weightSeconds = 0; ///< if `measured`
  /// Sizes of these products, for devices with an efficiency curve.
  llvm::SmallVector<ProductWork, 1> forwardProducts, backwardProducts,
      recomputeProducts;
  /// Measured seconds, which replace FLOPs, moved bytes and kernels if
  /// `measured`.
  bool measured = false;
  double forwardSeconds = 0, backwardSeconds = 0, recomputeSeconds = 0;
  /// FLOP/s of the device that was measured; 0: times hold for every device.
  double measuredFlops = 0;
  /// Instead of them, where every device type has times of its own. A layer
  /// that is recomputed takes one more forward pass.
  llvm::SmallVector<MeasuredSeconds, 0> measuredOn;

  ComputeWork forwardWork() const {
    return {forwardFlops, forwardMovedBytes, forwardKernels, forwardProducts};
  }
  ComputeWork backwardWork() const {
    return {backwardFlops, backwardMovedBytes, backwardKernels,
            backwardProducts};
  }
  ComputeWork weightWork() const {
    return {weightFlops, weightMovedBytes, weightKernels, weightProducts};
  }
  ComputeWork recomputeWork() const {
    return {recomputeFlops, recomputeMovedBytes, recomputeKernels,
            recomputeProducts};
  }

  // Communication.
  llvm::SmallVector<LayerCollective, 6> collectives;
  llvm::SmallVector<OverlappedCollective, 0> overlapped;

  /// Adds calls of a collective; those that move nothing are left out, and
  /// calls on buffers of the size of others are counted with them.
  void addCollective(const LayerCollective &added);
  /// Bytes of the collectives of one kind, all calls together; 0 if there are
  /// none.
  int64_t bytesOf(CollectiveGroup among, Collective kind,
                  CollectiveTime when) const;

  // Once a step, of the rank's own states: bytes that the optimizer's update
  // reads and writes, and that the gradient's norm reads.
  int64_t updateBytes = 0;
  int64_t normBytes = 0;
};

/// Bytes per element that an update touches: the parameter is read and written
/// (a bf16 one only written, its f32 master belongs to the state), the gradient
/// read, every value of the state read and written.
constexpr int64_t updateTraffic(int64_t elementBytes, int64_t accumulatorBytes,
                                int64_t stateValues) {
  return (elementBytes < accumulatorBytes ? 1 : 2) * elementBytes +
         accumulatorBytes + 2 * stateValues * accumulatorBytes;
}

/// A parameter used by two layers: the borrower's gradient goes to the owner
/// and the new value comes back, once a step. `bytes` is the whole tensor's.
struct Tie {
  size_t ownerLayer;
  size_t borrowerLayer;
  int64_t bytes;
};

/// The tensors that are alive between two layers: bytes of one sample each, not
/// rounded. A layer's output comes first, in order, then what passes it.
struct LiveTensors {
  llvm::SmallVector<int64_t, 1> made, passing;

  /// Bytes with `samples` local samples, each tensor at a multiple of 64.
  static int64_t bytes(llvm::ArrayRef<int64_t> tensors, int64_t samples);
  int64_t passingBytes(int64_t samples) const {
    return bytes(passing, samples);
  }
  int64_t allBytes(int64_t samples) const {
    return bytes(made, samples) + passingBytes(samples);
  }
};

/// Seconds that the forward fields of a footprint take under a strategy: its
/// computation, and its collectives of the time Forward.
using ForwardSeconds =
    std::function<double(const LayerFootprint &, const Strategy &)>;

/// Several threads may ask a model at the same time.
class LayerModel {
public:
  virtual ~LayerModel() = default;

  virtual std::string name() const = 0;
  /// The hash of everything that changes footprints.
  virtual std::string hash() const = 0;
  /// The hash of measured times, "" if there are none.
  virtual std::string profileHash() const { return ""; }
  /// Key into DeviceType::flops.
  virtual std::string dtype() const = 0;
  virtual int64_t sequenceLength() const { return 0; }
  /// True if footprints are the arena's bytes, false if they are estimates.
  virtual bool exact() const = 0;

  virtual size_t layerCount() const = 0;
  virtual std::string layerName(size_t layer) const = 0;
  /// Layers of equal kind are interchangeable: same footprints. Kinds are
  /// numbered from 0 without gaps.
  virtual size_t kindOf(size_t layer) const = 0;
  /// The device types that times were measured on; empty if the model can be
  /// priced on every one.
  virtual std::vector<std::string> measuredTypes() const { return {}; }
  /// Bytes of one sample of what is alive between `layer` and the next one, not
  /// rounded; 0 for the last layer.
  virtual int64_t boundaryBytesPerSample(size_t layer) const = 0;
  /// The tensors that are alive between `layer` and the next one.
  virtual LiveTensors liveTensors(size_t layer) const;
  /// Which of the model's data a layer reads, in the order of its body; empty
  /// if that is not known, and copies are its own.
  virtual std::vector<int64_t> dataOf(size_t layer) const { return {}; }
  virtual std::vector<Tie> ties() const { return {}; }
  /// Elements of all parameters, tied ones counted once; 0 if not known.
  virtual int64_t parameterCount() const { return 0; }
  /// FLOPs of the matrix products of one sample, forward and backward, without
  /// recomputation: what model FLOPs utilisation counts. 0 if not known.
  virtual double flopsPerSample() const { return 0; }

  /// The footprint with `samples` local samples. An error means that the layer
  /// cannot have this strategy, and says why. Implementations cache.
  virtual llvm::Expected<LayerFootprint>
  footprint(size_t kind, const Strategy &strategy, int64_t samples) = 0;

  /// The footprint of a strategy with a point whose temporaries need not be
  /// placed for it: they are no more than footprint() says, and all else is
  /// what that says, unless point and strategy gather unlike, which no search
  /// offers (docs/search.md, "Points"). Errors are some of those of
  /// footprint().
  virtual llvm::Expected<LayerFootprint>
  leastFootprint(size_t kind, const Strategy &strategy, int64_t samples) {
    return footprint(kind, strategy, samples);
  }

  /// Gives the times by which points are chosen (Strategy::point()), those of a
  /// cluster with this hash. Points that were chosen by another one's are
  /// forgotten. Until then there are none but those that were given.
  virtual void setPointTimes(llvm::StringRef /*clusterHash*/,
                             ForwardSeconds /*seconds*/) {}
  /// The number of a layer's points. A strategy with a later one means the
  /// last, and a layer without any keeps all that it needs.
  virtual int64_t pointCount(size_t /*kind*/, const Strategy & /*strategy*/,
                             int64_t /*samples*/) {
    return 0;
  }
  /// The values that a layer keeps at the strategy's point. The error says why
  /// points cannot be chosen.
  virtual llvm::Expected<KeptValues>
  keptValues(size_t kind, const Strategy &strategy, int64_t samples);
  /// Makes a set the strategy's point for so many local samples, whatever the
  /// prices. Error: the layer has no such values, or another body.
  virtual llvm::Error givePoint(size_t kind, const Strategy &strategy,
                                int64_t samples, const KeptValues &kept);

  /// The values of a kind's body in the model's words, in the order in which
  /// they are computed; empty if it has no body.
  virtual std::vector<NamedValue> valuesOf(size_t /*kind*/) { return {}; }
  /// Makes a set the one point of a kind of layer, whatever the strategy and
  /// the prices. Error: as givePoint().
  virtual llvm::Error keepOnly(size_t kind, std::vector<KeptValue> values);

  /// Whether splitFootprint() knows more than footprint().
  virtual bool splitsBackward() const { return false; }
  /// The footprint under a schedule that splits backward passes: what the input
  /// part keeps for the weight part counts as kept. Layers that cannot be split
  /// have that of footprint().
  virtual llvm::Expected<LayerFootprint>
  splitFootprint(size_t kind, const Strategy &strategy, int64_t samples) {
    return footprint(kind, strategy, samples);
  }
  /// The footprint under `schedule`: split if that splits backward passes, and
  /// with the strategy's offload.
  llvm::Expected<LayerFootprint> footprintUnder(const Schedule &schedule,
                                                size_t kind,
                                                const Strategy &strategy,
                                                int64_t samples);
  /// The same with the temporaries of leastFootprint(), but where backward
  /// passes are split, of which all is compiled.
  llvm::Expected<LayerFootprint> leastFootprintUnder(const Schedule &schedule,
                                                     size_t kind,
                                                     const Strategy &strategy,
                                                     int64_t samples);
};

} // namespace galvatron

#endif // GALVATRON_COST_LAYERMODEL_H
