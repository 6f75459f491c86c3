//===- ClusterConversion.cpp - Cluster attribute and planner's type -------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Cluster/Cluster.h"
#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace mlir::galvatron;

static LinkAttr convertLink(Builder &builder, const ::galvatron::Link &link) {
  return LinkAttr::get(builder.getContext(),
                       builder.getF64FloatAttr(link.bandwidth),
                       builder.getF64FloatAttr(link.latency));
}

static ::galvatron::Link convertLink(LinkAttr link) {
  return {link.getBandwidth().getValueAsDouble(),
          link.getLatency().getValueAsDouble()};
}

ClusterAttr ClusterAttr::get(MLIRContext *context,
                             const ::galvatron::Cluster &cluster) {
  Builder builder(context);
  SmallVector<Attribute> types, nodes, matrix;
  for (const ::galvatron::DeviceType &type : cluster.deviceTypes()) {
    NamedAttrList flops;
    for (const auto &[dtype, value] : type.flops)
      flops.set(dtype, builder.getF64FloatAttr(value));
    types.push_back(
        DeviceTypeAttr::get(context, type.name, type.backend, type.memory,
                            flops.getDictionary(context),
                            builder.getF64FloatAttr(type.memoryBandwidth),
                            builder.getF64FloatAttr(type.overlapSlowdown),
                            builder.getF64FloatAttr(type.kernelOverhead)));
  }
  for (const ::galvatron::NodeGroup &group : cluster.nodeGroups())
    nodes.push_back(NodeAttr::get(
        context, group.count, group.deviceType, group.devices,
        group.devices > 1 ? convertLink(builder, group.link) : LinkAttr()));
  for (const std::vector<double> &row : cluster.matrix())
    matrix.push_back(builder.getDenseF64ArrayAttr(row));
  return get(context, cluster.name(), builder.getArrayAttr(types),
             builder.getArrayAttr(nodes),
             cluster.networkLink()
                 ? convertLink(builder, *cluster.networkLink())
                 : LinkAttr(),
             matrix.empty() ? ArrayAttr() : builder.getArrayAttr(matrix));
}

llvm::Expected<::galvatron::Cluster> ClusterAttr::toCluster() const {
  std::vector<::galvatron::DeviceType> types;
  for (auto attribute : getDeviceTypes().getAsRange<DeviceTypeAttr>()) {
    ::galvatron::DeviceType type;
    type.name = attribute.getName().str();
    type.backend = attribute.getBackend().str();
    type.memory = attribute.getMemory();
    for (NamedAttribute entry : attribute.getFlops())
      type.flops[entry.getName().str()] =
          cast<FloatAttr>(entry.getValue()).getValueAsDouble();
    type.memoryBandwidth = attribute.getMemoryBandwidth().getValueAsDouble();
    type.overlapSlowdown = attribute.getOverlapSlowdown().getValueAsDouble();
    type.kernelOverhead = attribute.getKernelOverhead().getValueAsDouble();
    types.push_back(std::move(type));
  }
  std::vector<::galvatron::NodeGroup> nodes;
  for (auto attribute : getNodes().getAsRange<NodeAttr>()) {
    ::galvatron::NodeGroup group;
    group.count = attribute.getCount();
    group.deviceType = attribute.getDeviceType().str();
    group.devices = attribute.getDevices();
    if (attribute.getLink())
      group.link = convertLink(attribute.getLink());
    nodes.push_back(std::move(group));
  }
  std::optional<::galvatron::Link> network;
  if (getNetwork())
    network = convertLink(getNetwork());
  std::vector<std::vector<double>> matrix;
  if (getBandwidthMatrix())
    for (auto row : getBandwidthMatrix().getAsRange<DenseF64ArrayAttr>())
      matrix.emplace_back(row.asArrayRef().begin(), row.asArrayRef().end());
  return ::galvatron::Cluster::get(getName().str(), std::move(types),
                                   std::move(nodes), std::move(network),
                                   std::move(matrix));
}
