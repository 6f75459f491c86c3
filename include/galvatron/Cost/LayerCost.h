//===- LayerCost.h - Time of layers, reshards and ties ----------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The formulas of arXiv 2307.02031, Sec. III-A and V: ring collectives over the
// slowest link of the groups of a level, communication overlapping backward
// computation with both slowed down, recomputation as one more forward. Stated
// in full in docs/cost-model.md.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_COST_LAYERCOST_H
#define GALVATRON_COST_LAYERCOST_H

#include "galvatron/Cluster/Cluster.h"
#include "galvatron/Cost/LayerModel.h"
#include "galvatron/Strategy/Strategy.h"
#include "llvm/Support/ErrorHandling.h"

namespace galvatron {

/// Which link a ring has: the slowest between its neighbours, a node's uplink
/// shared by all rings of the level, with measured tables; or the slowest of
/// all pairs of the group, as AMP has it (docs/amp.md).
enum class RingLink : uint8_t { Neighbours, Lowest };

/// Links of a layer's groups on given devices: of those that sum gradients once
/// a step and gather what was updated, of those that shard parameters, and of
/// those on the axes of tensor and of context parallelism.
struct StrategyLinks {
  GroupLink gradients, parameters, tensorParallel, contextParallel;

  const GroupLink &of(CollectiveGroup group) const {
    switch (group) {
    case CollectiveGroup::Tensor:
      return tensorParallel;
    case CollectiveGroup::Context:
      return contextParallel;
    case CollectiveGroup::Parameters:
      return parameters;
    case CollectiveGroup::Gradients:
      return gradients;
    }
    llvm_unreachable("all groups are handled");
  }
};
StrategyLinks linksOf(const Cluster &cluster, const Strategy &strategy,
                      llvm::ArrayRef<int64_t> devices,
                      RingLink ring = RingLink::Neighbours);

/// Seconds of one layer for one micro-batch, each part as if it ran alone.
/// Communication is per direction: `gather` is one SDP gather, needed before
/// forward and again before backward.
struct LayerTimeParts {
  double forward = 0; ///< computation
  double recompute = 0;
  double backward = 0; ///< computation, without the recomputation
  double tpForward = 0, tpRecompute = 0, tpBackward = 0;
  /// Whether backward is two functions, and what the one for gradients of
  /// parameters has of `backward` and `tpBackward`; scatters are its too.
  bool split = false;
  double weight = 0, tpWeight = 0;
  double gather = 0, scatter = 0;
  double sync = 0;     ///< sums of gradients once a step
  double slowdown = 1; ///< of both sides while they overlap
  /// Once a step, on all ranks of the pipeline at the same time: the squares of
  /// the gradients, and the optimizer's update with the gather behind it.
  double norm = 0, update = 0;
  /// Norm and update by the host on offloaded states, beside devices with
  /// memory of their own; elsewhere equal to `norm` and `update`.
  double normAtHome = 0, updateAtHome = 0;
  /// A copy of what the rank holds between host and device, one way.
  double swapParameters = 0, swapGradients = 0, swapOptimizer = 0;
  double swapKept = 0; ///< what backward needs of a micro-batch

  bool operator==(const LayerTimeParts &other) const = default;
};

/// Seconds of one layer for one micro-batch.
struct LayerTime {
  double forward = 0;        ///< computation + SDP gather + TP all-reduces
  double backward = 0;       ///< with recompute and gradient synchronisation
  double backwardNosync = 0; ///< the same without the DP all-reduce

  double total() const { return forward + backward; }
  double totalNosync() const { return forward + backwardNosync; }
};

/// max(x, y) + (slowdown - 1) * min(x, y): x and y overlap and slow each other
/// down.
double overlapSeconds(double x, double y, double slowdown);

/// Seconds that one device of a type computes, alone on its core:
///   sum over products of flops / (FLOP/s * efficiency(size))
///   + moved bytes / memory bandwidth + kernels * kernel overhead.
/// Products of unknown size reach the full rate. In TF32 products take, beside
/// their flops at the full rate, the transfers of their elements, which are f32
/// (docs/cost-model.md). Where the host launches
/// kernels one by one, at least the seconds of their launches less
/// `communication`, the seconds of the same pass in which the device
/// communicates: the host launches on meanwhile.
double computeSeconds(const ComputeWork &work, const DeviceType &type,
                      llvm::StringRef dtype, double communication = 0);

/// Factors by which the devices of a stage compute slower than alone, in the
/// order of the stage's devices, because they share cores with each other and
/// with other stages; empty: as much as when all devices of a node compute
/// (Cluster::coreContention).
using CoreContention = std::vector<double>;

/// The contention of every stage of a pipeline with `microBatches`. Stage i
/// works in slots i to i + microBatches - 1: at the beginning and the end of a
/// step the cores of waiting stages are free for the others. A node's
/// contention is the mean of max(1, devices that work / cores) over the slots
/// in which one of them does. For equal stages whose communication takes no
/// time Eq. 9 is then exact, which it is not with the contention of the full
/// pipeline. Empty lists for a cluster that shares no cores.
std::vector<CoreContention>
pipelineContention(const Cluster &cluster,
                   llvm::ArrayRef<std::vector<int64_t>> stages,
                   int64_t microBatches);

/// The slowest of `devices`, which all have flops for `dtype`, decides each
/// part.
LayerTimeParts
layerTimeParts(const LayerFootprint &footprint, const Strategy &strategy,
               const StrategyLinks &links, const Cluster &cluster,
               llvm::ArrayRef<int64_t> devices, llvm::StringRef dtype,
               llvm::ArrayRef<double> contention = {});
/// The parts of a layer with this home on the host: norm and update are done
/// there, and of the copies it has its own.
LayerTimeParts partsAt(LayerHome home, LayerTimeParts parts);
/// Returns the parts with copies added, for formulas that know none: those of a
/// step count with the update, those of a micro-batch with its passes.
/// `beside`: these run beside computation, so that a pass takes the longer of
/// both.
LayerTimeParts withCopies(LayerTimeParts parts, bool beside);
/// The parts put together: communication of backward overlaps its computation,
/// everything else is a sum.
LayerTime layerTime(const LayerTimeParts &parts);
/// Time of a layer whose parameters are gathered while the layer before
/// computes and sums over TP ranks, in forward as in backward; exact if both
/// layers take the same time.
LayerTime layerTimeGatheredAhead(const LayerTimeParts &parts);
LayerTime layerTime(const LayerFootprint &footprint, const Strategy &strategy,
                    const Cluster &cluster, llvm::ArrayRef<int64_t> devices,
                    llvm::StringRef dtype);
LayerTime layerTime(const LayerFootprint &footprint, const Strategy &strategy,
                    const StrategyLinks &links, const Cluster &cluster,
                    llvm::ArrayRef<int64_t> devices, llvm::StringRef dtype);

/// Time of one reshard as a function of the boundary's bytes per sample and the
/// micro-batch's samples: latency + secondsPerByte * bytesPerSample * samples.
struct ReshardRate {
  double latency = 0;
  double secondsPerByte = 0;

  double seconds(double bytesPerSample, double samples) const {
    return latency + secondsPerByte * bytesPerSample * samples;
  }
};

/// The bytes per second assumed of a device with memory of its own where its
/// cluster file says nothing: PCIe 3.0 with 16 lanes reaches some three
/// quarters of its 15.75 GB/s, and a device's share of the host's memory is
/// that of two channels of DDR4, of which an update reaches about half.
inline constexpr double kHostBandwidth = 12e9, kHostMemoryBandwidth = 16e9;

/// Seconds of a copy of `bytes` between the host's memory and that of each of
/// these devices, all at once. Devices that have none of their own copy inside
/// the host's: they read and write what moves, at their memory bandwidth, or
/// where their type has a bandwidth to the host at that, if it is slower (a run
/// is as slow under SessionOptions::copyRate).
double hostCopySeconds(const Cluster &cluster, llvm::ArrayRef<int64_t> devices,
                       int64_t bytes);

/// Seconds of a copy of `bytes` inside the memory of each of these devices, all
/// at once: it reads and writes what it moves, at the device's memory
/// bandwidth.
double copySeconds(const Cluster &cluster, llvm::ArrayRef<int64_t> devices,
                   int64_t bytes);

/// Returns the rate of one direction: every rank sends and receives its
/// transfers one after the other, all ranks at once; the busiest decides.
ReshardRate reshardRate(const Cluster &cluster, const Strategy &from,
                        const Strategy &to, llvm::ArrayRef<int64_t> fromDevices,
                        llvm::ArrayRef<int64_t> toDevices);

/// Seconds of the two exchanges of a tied parameter.
struct TieTime {
  double reduce = 0;    ///< the borrower's gradient to the owner
  double broadcast = 0; ///< the value back

  double total() const { return reduce + broadcast; }
};
/// The tie times of all pairs of an owner's and a borrower's strategy, the
/// owner's major. `bytes` is the size of the whole tensor. The work for one
/// pair grows with the devices and the shards that the tensor is cut into, not
/// with the pairs of devices.
std::vector<TieTime> tieTimes(const Cluster &cluster,
                              llvm::ArrayRef<Strategy> owners,
                              llvm::ArrayRef<Strategy> borrowers,
                              llvm::ArrayRef<int64_t> ownerDevices,
                              llvm::ArrayRef<int64_t> borrowerDevices,
                              int64_t bytes);
/// The tie time of one pair.
TieTime tieTime(const Cluster &cluster, const Strategy &owner,
                const Strategy &borrower, llvm::ArrayRef<int64_t> ownerDevices,
                llvm::ArrayRef<int64_t> borrowerDevices, int64_t bytes);
/// Returns the seconds of both exchanges in sum.
double tieSeconds(const Cluster &cluster, const Strategy &owner,
                  const Strategy &borrower,
                  llvm::ArrayRef<int64_t> ownerDevices,
                  llvm::ArrayRef<int64_t> borrowerDevices, int64_t bytes);

} // namespace galvatron

#endif // GALVATRON_COST_LAYERCOST_H
