//===- Builtin.cpp - Built-in clusters ------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FileFormat.h"

#include "galvatron/Support/Suggest.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/SourceMgr.h"

using namespace llvm;
using namespace galvatron::file;

namespace {

/// Figures that a device type has unless its entry says otherwise.
struct AssumedText {
  NumberText reachedFlops, reachedBandwidth, halfSize, overlapSlowdown;
  BytesText reservedMemory;
  SecondsText kernelOverhead;
};

/// An entry of DeviceTypes.yaml.
struct BuiltinText {
  std::string name, deviceName, description, source, backend = "cuda";
  BytesText memory;
  std::map<std::string, FlopsText> peakFlops, flops;
  std::optional<BandwidthText> peakMemoryBandwidth, memoryBandwidth;
  std::optional<BytesText> reservedMemory;
  std::optional<NumberText> halfSize, overlapSlowdown;
  std::optional<SecondsText> kernelOverhead;
  LinkText link, network;
};

struct DeviceTypesText {
  AssumedText assumed;
  std::vector<BuiltinText> types;
};

/// The text of lib/Cluster/DeviceTypes.yaml.
const char deviceTypes[] =
#include "DeviceTypes.inc"
    ;

} // namespace

namespace llvm::yaml {

template <> struct MappingTraits<AssumedText> {
  static void mapping(IO &io, AssumedText &assumed) {
    io.mapRequired("reached-flops", assumed.reachedFlops);
    io.mapRequired("reached-bandwidth", assumed.reachedBandwidth);
    io.mapRequired("half-size", assumed.halfSize);
    io.mapRequired("reserved-memory", assumed.reservedMemory);
    io.mapRequired("overlap-slowdown", assumed.overlapSlowdown);
    io.mapRequired("kernel-overhead", assumed.kernelOverhead);
  }
};

template <> struct MappingTraits<BuiltinText> {
  static void mapping(IO &io, BuiltinText &type) {
    io.mapRequired("name", type.name);
    io.mapRequired("description", type.description);
    io.mapRequired("source", type.source);
    io.mapOptional("device-name", type.deviceName, type.name);
    io.mapOptional("backend", type.backend);
    io.mapRequired("memory", type.memory);
    io.mapOptional("reserved-memory", type.reservedMemory);
    io.mapOptional("peak-flops", type.peakFlops);
    io.mapOptional("flops", type.flops);
    io.mapOptional("peak-memory-bandwidth", type.peakMemoryBandwidth);
    io.mapOptional("memory-bandwidth", type.memoryBandwidth);
    io.mapOptional("half-size", type.halfSize);
    io.mapOptional("overlap-slowdown", type.overlapSlowdown);
    io.mapOptional("kernel-overhead", type.kernelOverhead);
    io.mapRequired("link", type.link);
    io.mapRequired("network", type.network);
  }
};

} // namespace llvm::yaml

LLVM_YAML_IS_SEQUENCE_VECTOR(BuiltinText)

namespace llvm::yaml {
template <> struct MappingTraits<DeviceTypesText> {
  static void mapping(IO &io, DeviceTypesText &text) {
    io.mapRequired("assumed", text.assumed);
    io.mapRequired("types", text.types);
  }
};
} // namespace llvm::yaml

namespace galvatron {
namespace {

/// A device type with what joins its devices inside a node, and nodes.
struct BuiltinType {
  std::string name, description;
  DeviceType type;
  Link link, network;
};

BuiltinType toBuiltin(const BuiltinText &from, const AssumedText &assumed) {
  DeviceType type;
  type.name = from.deviceName;
  type.backend = from.backend;
  type.memory = from.memory.value;
  type.reservedMemory =
      from.reservedMemory.value_or(assumed.reservedMemory).value;
  for (const auto &[dtype, peak] : from.peakFlops)
    type.flops[dtype] = peak.value * assumed.reachedFlops.value;
  for (const auto &[dtype, rate] : from.flops)
    type.flops[dtype] = rate.value;
  type.memoryBandwidth =
      from.memoryBandwidth
          ? from.memoryBandwidth->value
          : assumed.reachedBandwidth.value *
                from.peakMemoryBandwidth.value_or(BandwidthText()).value;
  if (double half = from.halfSize.value_or(assumed.halfSize).value)
    type.efficiency = EfficiencyCurve::hyperbola(half);
  type.overlapSlowdown =
      from.overlapSlowdown.value_or(assumed.overlapSlowdown).value;
  type.kernelOverhead =
      from.kernelOverhead.value_or(assumed.kernelOverhead).value;
  return {from.name, from.description, std::move(type), toLink(from.link),
          toLink(from.network)};
}

/// All entries of DeviceTypes.yaml, which is part of the program: what cannot
/// be read in it is a mistake of the build.
ArrayRef<BuiltinType> builtins() {
  static const std::vector<BuiltinType> types = [] {
    DeviceTypesText text;
    yaml::Input input(deviceTypes);
    input >> text;
    if (input.error())
      report_fatal_error("DeviceTypes.yaml cannot be read");
    std::vector<BuiltinType> types;
    for (const BuiltinText &entry : text.types)
      types.push_back(toBuiltin(entry, text.assumed));
    return types;
  }();
  return types;
}

/// Takes "Nx" off the front: a number of at least 1 without leading zeros.
/// Returns 0, and leaves the text alone, if there is none; numbers beyond the
/// largest cluster count as one too many.
int64_t takeCount(StringRef &text) {
  size_t digits = text.take_while(isDigit).size();
  if (digits == 0 || text[0] == '0' ||
      !text.drop_front(digits).starts_with("x"))
    return 0;
  int64_t count = 0;
  if (text.take_front(digits).getAsInteger(10, count))
    count = kMostDevices + 1;
  text = text.drop_front(digits + 1);
  return std::min(count, kMostDevices + 1);
}

} // namespace

std::vector<std::string> Cluster::builtinTypes() {
  std::vector<std::string> names;
  for (const BuiltinType &builtin : builtins())
    names.push_back(builtin.name);
  return names;
}

StringRef Cluster::describeBuiltinType(StringRef name) {
  for (const BuiltinType &builtin : builtins())
    if (name == builtin.name)
      return builtin.description;
  return "";
}

bool Cluster::isBuiltinPattern(StringRef name) {
  if (!takeCount(name))
    return false;
  takeCount(name);
  return !name.empty() && isAlpha(name[0]) && !name.contains('/') &&
         !name.contains('.');
}

Expected<Cluster> Cluster::builtin(StringRef name) {
  StringRef typeName = name;
  int64_t nodes = 1, devices = takeCount(typeName);
  if (int64_t second = devices ? takeCount(typeName) : 0) {
    nodes = devices;
    devices = second;
  }
  if (!devices)
    return makeError("unknown built-in cluster '" + name +
                     "', expected MxTYPE or NxMxTYPE as in '8xh100' and "
                     "'4x8xa100-80gb'");
  if (devices > kMostDevices || nodes > kMostDevices / devices)
    return makeError("built-in cluster '" + name + "': expected at most " +
                     Twine(kMostDevices) + " devices");
  for (const BuiltinType &builtin : builtins()) {
    if (typeName != builtin.name)
      continue;
    const DeviceType &type = builtin.type;
    NodeGroup group{nodes, type.name, devices,
                    devices > 1 ? builtin.link : Link()};
    std::optional<Link> network;
    if (nodes > 1)
      network = builtin.network;
    return get(name.str(), {type}, {group}, network);
  }
  std::vector<std::string> known = builtinTypes();
  return makeError("built-in cluster '" + name + "': unknown device type '" +
                   typeName + "', expected one of " + join(known, ", ") +
                   didYouMean(typeName, known));
}

} // namespace galvatron
