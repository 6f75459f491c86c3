//===- Cluster.h - Devices, nodes and links ---------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A cluster is a list of nodes, each with devices of one type joined by a link,
// and a network between nodes. Devices are numbered node by node; these numbers
// are the global ranks. The file format is docs/cost-model.md, section
// "Cluster files".
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_CLUSTER_CLUSTER_H
#define GALVATRON_CLUSTER_CLUSTER_H

#include "galvatron/Cluster/Measured.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace galvatron {

/// Most devices of a cluster: beyond every machine, and small enough for sums
/// over pairs of devices.
constexpr int64_t kMostDevices = int64_t(1) << 20;

/// The link that one ring or one pair of ranks sees.
struct Link {
  double bandwidth = 0; ///< bytes per second, one direction; 0: no link needed
  double latency = 0;   ///< seconds per message

  bool operator==(const Link &other) const = default;
};

struct DeviceType {
  std::string name;
  std::string backend; ///< "cpu" or "cuda"
  int64_t memory = 0;  ///< bytes of the device
  /// Bytes of it that no plan gets: the driver's context, communicators'
  /// buffers. Taken off every budget, `--memory` included.
  int64_t reservedMemory = 0;
  /// Achieved FLOP/s of large matrix products by dtype ("f32", "bf16", "f64").
  std::map<std::string, double> flops;
  /// Which part of it smaller products reach, and attention kernels. No curve:
  /// all of it; attention without one uses the products'.
  EfficiencyCurve efficiency, attentionEfficiency;
  double memoryBandwidth = 0; ///< bytes per second
  /// The slowdown of both sides while computation and communication overlap, at
  /// least 1; exactly 2 means that nothing is gained by overlapping.
  double overlapSlowdown = 1.3;
  double kernelOverhead = 0; ///< seconds per kernel call
  /// Seconds in which the host launches a kernel, where it does so one by one:
  /// the kernels of a pass of a layer take at least as long as their launches.
  /// 0: launches are never waited for, as with whole steps as graphs.
  double hostOverhead = 0;
  /// Bytes per second of the optimizer's update and of the gradient norm, which
  /// touch every state once; 0: both take no time. Nothing: the memory's.
  std::optional<double> optimizerBandwidth;
  /// Bytes per second of devices with memory of their own: between it and the
  /// host's, one direction, and of the optimizer's update and the norm where
  /// the host has a device's states. 0: what Cost assumes (LayerCost.h).
  double hostBandwidth = 0, hostMemoryBandwidth = 0;

  bool operator==(const DeviceType &other) const = default;
};

struct NodeGroup {
  int64_t count = 1;
  std::string deviceType;
  int64_t devices = 1; ///< per node
  Link link;           ///< between devices of a node
  /// The link from these nodes to the others; the cluster's network if not
  /// given.
  std::optional<Link> network;
  /// Processor cores that the node's devices share (CPU ranks); 0: every device
  /// computes on its own.
  int64_t cores = 0;

  /// Threads of the kernels of a CPU rank on one of these devices, which have
  /// scratch memory for so many: its share of the cores.
  int64_t threadsPerDevice() const { return threadsPerDevice(cores, devices); }
  static int64_t threadsPerDevice(int64_t cores, int64_t devices) {
    // The number of a device's own cores is not known: this is enough for most
    // machines.
    constexpr int64_t unknown = 4;
    return cores == 0 ? unknown : std::max(int64_t(1), cores / devices);
  }

  bool operator==(const NodeGroup &other) const = default;
};

/// The link that the collectives of one level meet: the slowest edge of its
/// rings, and measured tables where the cluster has them. Not to be used after
/// the cluster is gone: it owns the tables.
struct GroupLink : Link {
  int64_t ranks = 1;
  /// Most ring edges that leave one node at the same time and share its uplink;
  /// 1 if no ring leaves a node.
  int64_t sharing = 1;
  /// Most members of a group on one node, whose all-to-alls share its uplink; 1
  /// if no group spans nodes.
  int64_t perNode = 1;
  /// Measured tables by Collective; null where nothing was measured.
  std::array<const CollectiveTable *, kCollectiveCount> tables = {};

  /// Seconds of one collective; `bytes` is the size of the full (not sharded)
  /// buffer, of an all-to-all or a shift that of one member. A table answers if
  /// there is one, the formulas below if not; an all-reduce without a table is
  /// a reduce-scatter and an all-gather.
  double seconds(Collective kind, double bytes) const;
};

/// Everything a cluster file says.
struct ClusterDescription {
  std::string name;
  std::vector<DeviceType> deviceTypes;
  std::vector<NodeGroup> nodes;
  std::optional<Link> network;
  std::vector<std::vector<double>> matrix; ///< bytes per second, or empty
  std::vector<CollectiveTable> collectives;

  bool operator==(const ClusterDescription &other) const = default;
};

class Cluster {
public:
  /// Checks everything; the error names the entry.
  static llvm::Expected<Cluster> get(ClusterDescription description);
  static llvm::Expected<Cluster>
  get(std::string name, std::vector<DeviceType> deviceTypes,
      std::vector<NodeGroup> nodes, std::optional<Link> network,
      std::vector<std::vector<double>> matrix = {}) {
    return get(ClusterDescription{std::move(name),
                                  std::move(deviceTypes),
                                  std::move(nodes),
                                  network,
                                  std::move(matrix),
                                  {}});
  }
  /// Reads a cluster file's text; errors carry `fileName` and the line.
  static llvm::Expected<Cluster> parse(llvm::StringRef yaml,
                                       llvm::StringRef fileName);
  /// A built-in name, or else a file's path. Where both exist, the file is
  /// meant if the path has a slash or a dot.
  static llvm::Expected<Cluster> load(llvm::StringRef nameOrPath);
  /// A built-in cluster by pattern: MxTYPE is a node of M devices, NxMxTYPE are
  /// N such nodes ("8xh100", "128x8xh100"). Counts have no leading zeros.
  static llvm::Expected<Cluster> builtin(llvm::StringRef name);
  /// Whether `name` looks like such a pattern, of a known type or not.
  static bool isBuiltinPattern(llvm::StringRef name);
  /// The device types that patterns may name.
  static std::vector<std::string> builtinTypes();
  /// Returns one line on a device type and its links; "" if it is none of
  /// these.
  static llvm::StringRef describeBuiltinType(llvm::StringRef name);

  llvm::StringRef name() const { return description.name; }
  int64_t deviceCount() const {
    return static_cast<int64_t>(deviceNode.size());
  }
  int64_t nodeCount() const { return static_cast<int64_t>(nodeStart.size()); }
  int64_t nodeOf(int64_t device) const { return deviceNode[device]; }
  /// Index into nodeGroups().
  size_t nodeGroupOf(int64_t device) const { return deviceGroup[device]; }
  bool hasBandwidthMatrix() const { return !description.matrix.empty(); }
  const DeviceType &deviceType(int64_t device) const {
    return description.deviceTypes[deviceTypeIndex[device]];
  }
  llvm::ArrayRef<DeviceType> deviceTypes() const {
    return description.deviceTypes;
  }
  llvm::ArrayRef<NodeGroup> nodeGroups() const { return description.nodes; }
  const std::optional<Link> &networkLink() const { return description.network; }
  /// The explicit bandwidth matrix, bytes per second; empty if there is none.
  const std::vector<std::vector<double>> &matrix() const {
    return description.matrix;
  }
  llvm::ArrayRef<CollectiveTable> collectives() const {
    return description.collectives;
  }
  /// The one backend of all devices, or "" if they differ.
  llvm::StringRef backend() const;
  /// The most threads that a CPU rank has, see NodeGroup.
  int64_t threadsPerDevice() const;
  /// The one backend of some devices, or "" if they differ.
  llvm::StringRef backendOf(llvm::ArrayRef<int64_t> devices) const;
  /// True if all devices are of one type.
  bool isUniform() const;
  /// Smallest memory among `devices`, bytes.
  int64_t memoryOf(llvm::ArrayRef<int64_t> devices) const;
  /// The bytes that a plan may use of each of `devices`: the smallest memory,
  /// or `memory` if given, less what the device type reserves.
  int64_t budgetOf(llvm::ArrayRef<int64_t> devices,
                   std::optional<int64_t> memory = {}) const;
  /// The memory that each of `devices` must have for a plan to get `bytes`.
  int64_t memoryFor(llvm::ArrayRef<int64_t> devices, int64_t bytes) const;
  /// The factor by which a device computes slower than alone because the
  /// devices of its node share cores and all compute: max(1, devices / cores).
  double coreContention(int64_t device) const;
  /// Whether some node has more devices than cores.
  bool sharesCores() const;
  /// Smallest FLOP/s for `dtype` among `devices`; 0 if some type has no entry.
  double flopsOf(llvm::ArrayRef<int64_t> devices, llvm::StringRef dtype) const;
  /// The mean FLOP/s that each of `devices` reaches while all of them compute:
  /// those that share cores take turns.
  double flopsTogether(llvm::ArrayRef<int64_t> devices,
                       llvm::StringRef dtype) const;
  /// Whether this is a built-in cluster or one of built-in types, whose figures
  /// are data sheets and assumptions.
  bool isNominal() const;

  /// The link between two different devices, one pair at a time.
  Link linkBetween(int64_t a, int64_t b) const;
  /// The link for sends and receives: with a `send` table, the line through its
  /// first and last point.
  Link pairLink(int64_t a, int64_t b) const;
  /// Whether that link depends on the nodes of both alone: there is no matrix
  /// of bandwidths and no `send` table for a stride.
  bool linksByNode() const;
  /// The slowest link between neighbours of the ring that visits `group` in
  /// order; {0, 0} for fewer than two devices.
  Link linkOfGroup(llvm::ArrayRef<int64_t> group) const;
  /// The slowest such link over several rings that run at the same time, with
  /// the tables that fit them. A node's uplink is shared by all ring edges that
  /// leave the node: an edge gets no more than the uplink's bandwidth divided
  /// by their number.
  GroupLink linkOfGroups(llvm::ArrayRef<std::vector<int64_t>> concurrent) const;
  /// The slowest link between any two members of one of the groups, on which no
  /// other ring runs, and without tables: AMP's (docs/amp.md).
  GroupLink
  lowestLinkOfGroups(llvm::ArrayRef<std::vector<int64_t>> groups) const;

  /// This cluster with the memory of every device and the bandwidth of every
  /// link (network and matrix, too) multiplied; latencies stay.
  Cluster scaled(double memory, double bandwidth) const;
  /// This cluster with updates and norms that take no time.
  Cluster withoutOptimizerTime() const;
  /// This kind of cluster with `count` devices: more or fewer nodes, or a part
  /// of one or, of a single node without a network, a larger node. Nothing if
  /// the nodes are not all alike, there is an explicit matrix, or `count` is
  /// neither a number of whole nodes nor less than one.
  std::optional<Cluster> resized(int64_t count) const;

  /// This cluster without the nodes of a device type. Nothing if it has none of
  /// them, or no others, or an explicit matrix.
  std::optional<Cluster> without(llvm::StringRef deviceType) const;

  /// The file format again; parse(toYaml()) gives an equal cluster.
  std::string toYaml() const;
  /// The hash of everything but the name. Made once for a cluster and its
  /// copies.
  const std::string &hash() const;

  bool operator==(const Cluster &other) const {
    return description == other.description;
  }

private:
  /// This cluster with `change` applied, the devices in the same nodes.
  Cluster with(llvm::function_ref<void(ClusterDescription &)> change) const;
  /// The link from a device's node to the others.
  const Link &uplink(int64_t device) const;
  int64_t mostOnOneNode(llvm::ArrayRef<int64_t> ring) const;
  const CollectiveTable *tableFor(Collective kind,
                                  llvm::ArrayRef<int64_t> ring) const;

  ClusterDescription description;
  std::vector<int64_t> deviceNode;
  std::vector<size_t> deviceTypeIndex;
  std::vector<size_t> deviceGroup;
  std::vector<int64_t> nodeStart;
  /// Printing numbers so that they can be read again takes longer than pricing
  /// a plan, and every plan has the hash.
  struct Hash {
    std::once_flag once;
    std::string text;
  };
  std::shared_ptr<Hash> known = std::make_shared<Hash>();
};

/// Ring times in seconds over `link` for `ranks` ranks; `bytes` is the size of
/// the full (not sharded) buffer. Zero for one rank.
double allReduceSeconds(const Link &link, int64_t ranks, double bytes);
double allGatherSeconds(const Link &link, int64_t ranks, double bytes);
/// Every member sends a block of its buffer of `bytes` to each other. If the
/// group spans nodes, `perNode` members of each share what it has of `link`;
/// else that is 1.
double allToAllSeconds(const Link &link, int64_t ranks, double bytes,
                       int64_t perNode);
double reduceScatterSeconds(const Link &link, int64_t ranks, double bytes);
/// A step of a ring: every member sends its buffer of `bytes` to the next.
double shiftSeconds(const Link &link, int64_t ranks, double bytes);
double pointToPointSeconds(const Link &link, double bytes);

} // namespace galvatron

#endif // GALVATRON_CLUSTER_CLUSTER_H
