//===- ClusterVerifiers.cpp - Checks of clusters --------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The numbers in the comments are those of the constraints in
// GalvatronAttrs.td.
//
//===----------------------------------------------------------------------===//

#include "Numbers.h"
#include "galvatron/Cluster/Measured.h"
#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"

#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace mlir::galvatron;

using EmitError = llvm::function_ref<InFlightDiagnostic()>;

LogicalResult LinkAttr::verify(EmitError emitError, FloatAttr bandwidth,
                               FloatAttr latency) {
  // (C1)
  if (!isNumber(bandwidth, /*positive=*/true))
    return emitError()
           << "expected 'bandwidth' of a link to be a positive f64, found "
           << bandwidth;
  if (!isNumber(latency, /*positive=*/false))
    return emitError()
           << "expected 'latency' of a link to be a non-negative f64, found "
           << latency;
  return success();
}

/// Positive f64 numbers, two by two.
static bool arePairs(ArrayAttr numbers) {
  return numbers.size() % 2 == 0 && llvm::all_of(numbers, [](Attribute entry) {
           return isNumber(entry, /*positive=*/true);
         });
}

LogicalResult
DeviceTypeAttr::verify(EmitError emitError, StringRef name, StringRef backend,
                       int64_t memory, DictionaryAttr flops,
                       FloatAttr memoryBandwidth, FloatAttr overlapSlowdown,
                       FloatAttr kernelOverhead, int64_t reservedMemory,
                       ArrayAttr efficiency, ArrayAttr attentionEfficiency,
                       FloatAttr optimizerBandwidth, FloatAttr hostOverhead,
                       FloatAttr hostBandwidth, FloatAttr hostMemoryBandwidth) {
  auto error = [&]() {
    return emitError() << "device type '" << name << "': ";
  };
  // (C1)
  if (memory < 1)
    return error() << "expected 'memory' to be positive, found " << memory;
  // (C2)
  if (backend != "cpu" && backend != "cuda")
    return error() << "expected 'backend' to be 'cpu' or 'cuda', found '"
                   << backend << "'";
  // (C3)
  if (flops.empty())
    return error() << "expected 'flops' for at least one element type";
  for (NamedAttribute entry : flops)
    if (!isNumber(entry.getValue(), /*positive=*/true))
      return error() << "expected 'flops' of '" << entry.getName().getValue()
                     << "' to be a positive f64, found " << entry.getValue();
  // (C4)
  if (!isNumber(memoryBandwidth, /*positive=*/true))
    return error() << "expected 'memory_bandwidth' to be a positive f64, found "
                   << memoryBandwidth;
  if (!isNumber(overlapSlowdown, /*positive=*/true) ||
      overlapSlowdown.getValueAsDouble() < 1.0)
    return error()
           << "expected 'overlap_slowdown' to be an f64 of at least 1, found "
           << overlapSlowdown;
  if (!isNumber(kernelOverhead, /*positive=*/false))
    return error()
           << "expected 'kernel_overhead' to be a non-negative f64, found "
           << kernelOverhead;
  // (C5)
  for (ArrayAttr curve : {efficiency, attentionEfficiency})
    if (curve && !arePairs(curve))
      return error() << "expected an efficiency to be pairs of a size and a "
                        "fraction, found "
                     << curve;
  // (C6)
  if (optimizerBandwidth && !isNumber(optimizerBandwidth, /*positive=*/false))
    return error()
           << "expected 'optimizer_bandwidth' to be a non-negative f64, found "
           << optimizerBandwidth;
  for (auto [key, value] : {std::pair("host_overhead", hostOverhead),
                            {"host_bandwidth", hostBandwidth},
                            {"host_memory_bandwidth", hostMemoryBandwidth}})
    if (value && !isNumber(value, /*positive=*/false))
      return error() << "expected '" << key
                     << "' to be a non-negative f64, found " << value;
  return success();
}

LogicalResult NodeAttr::verify(EmitError emitError, int64_t count, StringRef,
                               int64_t devices, LinkAttr, LinkAttr, int64_t) {
  // (C1)
  if (count < 1 || devices < 1)
    return emitError() << "expected 'count' and 'devices' of a node to be at "
                          "least 1, found "
                       << count << " and " << devices;
  return success();
}

LogicalResult CollectiveAttr::verify(EmitError emitError, StringRef kind,
                                     int64_t, bool, int64_t, int64_t,
                                     ArrayAttr times) {
  // (C1)
  if (!::galvatron::parseCollective(kind))
    return emitError() << "expected " << ::galvatron::collectiveNames()
                       << ", found '" << kind << "'";
  // (C2)
  if (times.empty() || !arePairs(times))
    return emitError() << "expected 'times' to be pairs of bytes and seconds, "
                          "found "
                       << times;
  return success();
}

LogicalResult ClusterAttr::verify(EmitError emitError, StringRef name,
                                  ArrayAttr deviceTypes, ArrayAttr nodes,
                                  LinkAttr network, ArrayAttr matrix,
                                  ArrayAttr collectives) {
  auto error = [&]() { return emitError() << "cluster '" << name << "': "; };
  // (C1)
  llvm::StringSet<> names;
  if (deviceTypes.empty() || nodes.empty())
    return error() << "expected at least one device type and one node";
  for (Attribute attribute : deviceTypes) {
    auto type = dyn_cast<DeviceTypeAttr>(attribute);
    if (!type)
      return error() << "expected #galvatron.device_type, found " << attribute;
    if (!names.insert(type.getName()).second)
      return error() << "expected device types of different names, found two '"
                     << type.getName() << "'";
  }
  int64_t nodeCount = 0, deviceCount = 0;
  bool allHaveNetwork = true;
  for (Attribute attribute : nodes) {
    auto node = dyn_cast<NodeAttr>(attribute);
    if (!node)
      return error() << "expected #galvatron.node, found " << attribute;
    // (C2)
    if (!names.contains(node.getDeviceType()))
      return error() << "expected a node of one of the device types, found '"
                     << node.getDeviceType() << "'";
    // (C3)
    if (node.getDevices() > 1 && !node.getLink())
      return error() << "expected a link in a node of " << node.getDevices()
                     << " devices";
    allHaveNetwork &= bool(node.getNetwork());
    nodeCount += node.getCount();
    deviceCount += node.getCount() * node.getDevices();
  }
  // (C4)
  if (nodeCount > 1 && !network && !allHaveNetwork)
    return error() << "expected a network between " << nodeCount << " nodes";
  // (C6)
  if (collectives)
    for (Attribute table : collectives)
      if (!isa<CollectiveAttr>(table))
        return error() << "expected #galvatron.collective, found " << table;
  // (C5)
  if (!matrix)
    return success();
  bool square = static_cast<int64_t>(matrix.size()) == deviceCount;
  for (Attribute row : matrix) {
    auto numbers = dyn_cast<DenseF64ArrayAttr>(row);
    square &= numbers && static_cast<int64_t>(numbers.size()) == deviceCount;
  }
  if (!square)
    return error() << "expected 'bandwidth_matrix' to have " << deviceCount
                   << " rows of " << deviceCount << " f64 numbers";
  return success();
}
