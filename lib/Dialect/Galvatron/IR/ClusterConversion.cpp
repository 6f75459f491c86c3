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

/// f64 attributes and not a dense array: those print without loss.
static ArrayAttr convertNumbers(Builder &builder, ArrayRef<double> numbers) {
  SmallVector<Attribute> attributes;
  for (double number : numbers)
    attributes.push_back(builder.getF64FloatAttr(number));
  return builder.getArrayAttr(attributes);
}

static SmallVector<double> convertNumbers(ArrayAttr attributes) {
  SmallVector<double> numbers;
  for (auto number : attributes.getAsRange<FloatAttr>())
    numbers.push_back(number.getValueAsDouble());
  return numbers;
}

/// Sizes and fractions one after the other; null for no curve.
static ArrayAttr convertCurve(Builder &builder,
                              const ::galvatron::EfficiencyCurve &curve) {
  SmallVector<double> numbers;
  for (const auto &[size, fraction] : curve.points())
    numbers.append({size, fraction});
  return numbers.empty() ? ArrayAttr() : convertNumbers(builder, numbers);
}

static ::galvatron::EfficiencyCurve convertCurve(ArrayAttr attributes) {
  if (!attributes)
    return {};
  std::vector<::galvatron::EfficiencyCurve::Point> points;
  SmallVector<double> numbers = convertNumbers(attributes);
  for (size_t i = 0; i + 1 < numbers.size(); i += 2)
    points.push_back({numbers[i], numbers[i + 1]});
  return ::galvatron::EfficiencyCurve(std::move(points));
}

ClusterAttr ClusterAttr::get(MLIRContext *context,
                             const ::galvatron::Cluster &cluster) {
  Builder builder(context);
  SmallVector<Attribute> types, nodes, matrix, collectives;
  auto ifAny = [&](double number) {
    return number > 0 ? builder.getF64FloatAttr(number) : FloatAttr();
  };
  for (const ::galvatron::DeviceType &type : cluster.deviceTypes()) {
    NamedAttrList flops;
    for (const auto &[dtype, value] : type.flops)
      flops.set(dtype, builder.getF64FloatAttr(value));
    types.push_back(DeviceTypeAttr::get(
        context, type.name, type.backend, type.memory,
        flops.getDictionary(context),
        builder.getF64FloatAttr(type.memoryBandwidth),
        builder.getF64FloatAttr(type.overlapSlowdown),
        builder.getF64FloatAttr(type.kernelOverhead), type.reservedMemory,
        convertCurve(builder, type.efficiency),
        convertCurve(builder, type.attentionEfficiency),
        type.optimizerBandwidth
            ? builder.getF64FloatAttr(*type.optimizerBandwidth)
            : FloatAttr(),
        ifAny(type.hostOverhead), ifAny(type.hostBandwidth),
        ifAny(type.hostMemoryBandwidth)));
  }
  for (const ::galvatron::NodeGroup &group : cluster.nodeGroups())
    nodes.push_back(NodeAttr::get(
        context, group.count, group.deviceType, group.devices,
        group.devices > 1 ? convertLink(builder, group.link) : LinkAttr(),
        group.network ? convertLink(builder, *group.network) : LinkAttr(),
        group.cores));
  for (const std::vector<double> &row : cluster.matrix())
    matrix.push_back(builder.getDenseF64ArrayAttr(row));
  for (const ::galvatron::CollectiveTable &table : cluster.collectives()) {
    SmallVector<double> times;
    for (const auto &[bytes, seconds] : table.times)
      times.append({static_cast<double>(bytes), seconds});
    collectives.push_back(
        CollectiveAttr::get(context, ::galvatron::collectiveName(table.kind),
                            table.ranks, table.acrossNodes, table.stride,
                            table.concurrent, convertNumbers(builder, times)));
  }
  return get(
      context, cluster.name(), builder.getArrayAttr(types),
      builder.getArrayAttr(nodes),
      cluster.networkLink() ? convertLink(builder, *cluster.networkLink())
                            : LinkAttr(),
      matrix.empty() ? ArrayAttr() : builder.getArrayAttr(matrix),
      collectives.empty() ? ArrayAttr() : builder.getArrayAttr(collectives));
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
    type.reservedMemory = attribute.getReservedMemory();
    type.efficiency = convertCurve(attribute.getEfficiency());
    type.attentionEfficiency = convertCurve(attribute.getAttentionEfficiency());
    if (FloatAttr bandwidth = attribute.getOptimizerBandwidth())
      type.optimizerBandwidth = bandwidth.getValueAsDouble();
    if (FloatAttr overhead = attribute.getHostOverhead())
      type.hostOverhead = overhead.getValueAsDouble();
    if (FloatAttr bandwidth = attribute.getHostBandwidth())
      type.hostBandwidth = bandwidth.getValueAsDouble();
    if (FloatAttr bandwidth = attribute.getHostMemoryBandwidth())
      type.hostMemoryBandwidth = bandwidth.getValueAsDouble();
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
    if (attribute.getNetwork())
      group.network = convertLink(attribute.getNetwork());
    group.cores = attribute.getCores();
    nodes.push_back(std::move(group));
  }
  std::optional<::galvatron::Link> network;
  if (getNetwork())
    network = convertLink(getNetwork());
  std::vector<std::vector<double>> matrix;
  if (getBandwidthMatrix())
    for (auto row : getBandwidthMatrix().getAsRange<DenseF64ArrayAttr>())
      matrix.emplace_back(row.asArrayRef().begin(), row.asArrayRef().end());
  std::vector<::galvatron::CollectiveTable> collectives;
  if (getCollectives())
    for (auto attribute : getCollectives().getAsRange<CollectiveAttr>()) {
      ::galvatron::CollectiveTable table;
      table.kind = *::galvatron::parseCollective(attribute.getKind());
      table.ranks = attribute.getRanks();
      table.acrossNodes = attribute.getAcrossNodes();
      table.stride = attribute.getStride();
      table.concurrent = attribute.getConcurrent();
      SmallVector<double> times = convertNumbers(attribute.getTimes());
      for (size_t i = 0; i + 1 < times.size(); i += 2)
        table.times.push_back({static_cast<int64_t>(times[i]), times[i + 1]});
      collectives.push_back(std::move(table));
    }
  return ::galvatron::Cluster::get(::galvatron::ClusterDescription{
      getName().str(), std::move(types), std::move(nodes), std::move(network),
      std::move(matrix), std::move(collectives)});
}
