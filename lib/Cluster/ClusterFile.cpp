//===- ClusterFile.cpp - Reading and writing cluster files ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FileFormat.h"

#include "galvatron/Support/Suggest.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SourceMgr.h"

using namespace llvm;
using namespace galvatron::file;

namespace {

struct DeviceTypeText {
  std::string name, backend;
  BytesText memory, reservedMemory;
  std::map<std::string, FlopsText> flops;
  BandwidthText memoryBandwidth;
  double overlapSlowdown = 1.3;
  SecondsText kernelOverhead, hostOverhead;
  std::optional<BandwidthText> optimizerBandwidth;
  BandwidthText hostBandwidth, hostMemoryBandwidth;
  CurveText efficiency, attentionEfficiency;
};

struct NodeGroupText {
  int64_t count = 1;
  std::string deviceType;
  int64_t devices = 1;
  std::optional<LinkText> link, network;
  int64_t cores = 0;
};

struct CollectiveText {
  std::string kind, span = "node";
  int64_t ranks = 2, stride = 0, concurrent = 1;
  std::vector<std::vector<std::string>> times; ///< [size, time]
};

struct ClusterText {
  std::string name;
  std::vector<DeviceTypeText> deviceTypes;
  std::vector<NodeGroupText> nodes;
  std::optional<LinkText> network;
  std::vector<std::vector<BandwidthText>> matrix;
  std::vector<CollectiveText> collectives;
};

} // namespace

namespace llvm::yaml {

template <> struct MappingTraits<DeviceTypeText> {
  static void mapping(IO &io, DeviceTypeText &type) {
    mapKeys(io, [&](auto &keys) {
      keys.mapRequired("name", type.name);
      keys.mapRequired("backend", type.backend);
      keys.mapRequired("memory", type.memory);
      if (!keys.outputting() || type.reservedMemory.value > 0)
        keys.mapOptional("reserved-memory", type.reservedMemory);
      keys.mapRequired("flops", type.flops);
      keys.mapRequired("memory-bandwidth", type.memoryBandwidth);
      keys.mapOptional("overlap-slowdown", type.overlapSlowdown);
      keys.mapOptional("kernel-overhead", type.kernelOverhead);
      if (!keys.outputting() || type.hostOverhead.value > 0)
        keys.mapOptional("host-overhead", type.hostOverhead);
      keys.mapOptional("optimizer-bandwidth", type.optimizerBandwidth);
      if (!keys.outputting() || type.hostBandwidth.value > 0)
        keys.mapOptional("host-bandwidth", type.hostBandwidth);
      if (!keys.outputting() || type.hostMemoryBandwidth.value > 0)
        keys.mapOptional("host-memory-bandwidth", type.hostMemoryBandwidth);
      keys.mapOptional("efficiency", type.efficiency);
      keys.mapOptional("attention-efficiency", type.attentionEfficiency);
    });
  }
};

template <> struct MappingTraits<NodeGroupText> {
  static void mapping(IO &io, NodeGroupText &group) {
    mapKeys(io, [&](auto &keys) {
      keys.mapOptional("count", group.count);
      keys.mapRequired("device-type", group.deviceType);
      keys.mapRequired("devices", group.devices);
      keys.mapOptional("link", group.link);
      keys.mapOptional("network", group.network);
      keys.mapOptional("cores", group.cores, int64_t(0));
    });
  }
};

template <> struct MappingTraits<CollectiveText> {
  static void mapping(IO &io, CollectiveText &table) {
    mapKeys(io, [&](auto &keys) {
      keys.mapRequired("kind", table.kind);
      keys.mapRequired("ranks", table.ranks);
      keys.mapOptional("span", table.span, std::string("node"));
      keys.mapOptional("stride", table.stride, int64_t(0));
      keys.mapOptional("concurrent", table.concurrent, int64_t(1));
      keys.mapRequired("times", table.times);
    });
  }
};

} // namespace llvm::yaml

LLVM_YAML_IS_SEQUENCE_VECTOR(DeviceTypeText)
LLVM_YAML_IS_SEQUENCE_VECTOR(NodeGroupText)
LLVM_YAML_IS_SEQUENCE_VECTOR(CollectiveText)
LLVM_YAML_IS_SEQUENCE_VECTOR(std::vector<BandwidthText>)

namespace llvm::yaml {
template <> struct MappingTraits<ClusterText> {
  static void mapping(IO &io, ClusterText &cluster) {
    mapKeys(io, [&](auto &keys) {
      keys.mapRequired("name", cluster.name);
      keys.mapOptional("device-types", cluster.deviceTypes);
      keys.mapRequired("nodes", cluster.nodes);
      keys.mapOptional("network", cluster.network);
      keys.mapOptional("bandwidth-matrix", cluster.matrix);
      keys.mapOptional("collectives", cluster.collectives);
    });
  }
};
} // namespace llvm::yaml

namespace galvatron {

static Expected<CollectiveTable> toTable(const CollectiveText &text,
                                         const Twine &where) {
  CollectiveTable table;
  std::optional<Collective> kind = parseCollective(text.kind);
  if (!kind)
    return makeError(where + ": expected kind " + collectiveNames() +
                     ", found '" + text.kind + "'");
  if (text.span != "node" && text.span != "network")
    return makeError(where + ": expected span 'node' or 'network', found '" +
                     text.span + "'");
  table.kind = *kind;
  table.ranks = text.ranks;
  table.acrossNodes = text.span == "network";
  table.stride = text.stride;
  table.concurrent = text.concurrent;
  for (size_t i = 0; i < text.times.size(); ++i) {
    std::string at = (where + ".times[" + Twine(i) + "]").str();
    if (text.times[i].size() != 2)
      return makeError(at + ": expected [size, time]");
    Expected<int64_t> bytes = parseBytes(text.times[i][0]);
    if (!bytes)
      return makeError(at + ": " + toString(bytes.takeError()));
    Expected<double> seconds = parseSeconds(text.times[i][1]);
    if (!seconds)
      return makeError(at + ": " + toString(seconds.takeError()));
    table.times.push_back({*bytes, *seconds});
  }
  return table;
}

static CollectiveText tableText(const CollectiveTable &table) {
  CollectiveText text;
  text.kind = collectiveName(table.kind).str();
  text.ranks = table.ranks;
  text.span = table.acrossNodes ? "network" : "node";
  text.stride = table.stride;
  text.concurrent = table.concurrent;
  for (const auto &[bytes, seconds] : table.times)
    text.times.push_back({printBytes(bytes), printSeconds(seconds)});
  return text;
}

/// Adds the built-in types that nodes name and the file does not describe, and
/// the links that nodes of such a type have where it states none.
static Error addBuiltinTypes(ClusterDescription &to, const ClusterText &text) {
  int64_t nodes = 0;
  for (const NodeGroup &group : to.nodes)
    nodes += group.count;
  std::vector<std::string> known = Cluster::builtinTypes();
  for (const DeviceTypeText &type : text.deviceTypes)
    known.push_back(type.name);
  for (size_t i = 0; i < to.nodes.size(); ++i) {
    NodeGroup &group = to.nodes[i];
    const NodeGroupText &from = text.nodes[i];
    auto describes = [&](const auto &type) {
      return type.name == group.deviceType;
    };
    if (any_of(text.deviceTypes, describes))
      continue;
    if (!is_contained(known, group.deviceType))
      return makeError("nodes[" + Twine(i) + "]: unknown device type '" +
                       group.deviceType + "'" +
                       didYouMean(group.deviceType, known));
    // Two nodes of two devices have all that there is to take over.
    Expected<Cluster> builtin = Cluster::builtin("2x2x" + group.deviceType);
    if (!builtin)
      return builtin.takeError();
    if (none_of(to.deviceTypes, describes))
      to.deviceTypes.push_back(builtin->deviceTypes().front());
    if (!from.link && group.devices > 1)
      group.link = builtin->nodeGroups().front().link;
    if (!from.network && !text.network && nodes > 1)
      group.network = builtin->networkLink();
  }
  return Error::success();
}

Expected<Cluster> Cluster::parse(StringRef yaml, StringRef fileName) {
  struct Diagnostics {
    std::string fileName, first;
    MeantKeys meant;
  } diagnostics{fileName.str(), "", {}};
  auto handler = [](const SMDiagnostic &diagnostic, void *context) {
    auto *out = static_cast<Diagnostics *>(context);
    if (!out->first.empty())
      return;
    std::string message = diagnostic.getMessage().str();
    out->first = out->fileName + ":" + std::to_string(diagnostic.getLineNo()) +
                 ":" + std::to_string(diagnostic.getColumnNo() + 1) + ": " +
                 message;
    for (const auto &[key, meant] : out->meant)
      if (message == "unknown key '" + key + "'")
        out->first += meant;
  };
  ClusterText text;
  yaml::Input input(yaml, &diagnostics.meant, handler, &diagnostics);
  yaml::EmptyContext none;
  if (input.setCurrentDocument())
    yaml::yamlize(input, text, /*Required=*/true, none);
  else if (!input.error())
    return makeError(fileName + ": expected a cluster, found an empty file");
  if (input.error())
    return makeError(diagnostics.first.empty()
                         ? fileName + ": expected a cluster file (YAML)"
                         : Twine(diagnostics.first));

  auto described = [&]() -> Expected<ClusterDescription> {
    ClusterDescription to;
    to.name = text.name;
    for (DeviceTypeText &from : text.deviceTypes) {
      DeviceType type;
      type.name = from.name;
      type.backend = from.backend;
      type.memory = from.memory.value;
      type.reservedMemory = from.reservedMemory.value;
      for (const auto &[dtype, rate] : from.flops)
        type.flops[dtype] = rate.value;
      type.memoryBandwidth = from.memoryBandwidth.value;
      type.overlapSlowdown = from.overlapSlowdown;
      type.kernelOverhead = from.kernelOverhead.value;
      type.hostOverhead = from.hostOverhead.value;
      if (from.optimizerBandwidth)
        type.optimizerBandwidth = from.optimizerBandwidth->value;
      type.hostBandwidth = from.hostBandwidth.value;
      type.hostMemoryBandwidth = from.hostMemoryBandwidth.value;
      std::string where = "device type '" + from.name + "'";
      Expected<EfficiencyCurve> curve =
          toCurve(from.efficiency, where + ".efficiency");
      if (!curve)
        return curve.takeError();
      type.efficiency = *curve;
      curve =
          toCurve(from.attentionEfficiency, where + ".attention-efficiency");
      if (!curve)
        return curve.takeError();
      type.attentionEfficiency = *curve;
      to.deviceTypes.push_back(std::move(type));
    }
    for (const NodeGroupText &from : text.nodes) {
      NodeGroup group{from.count, from.deviceType, from.devices,
                      from.link ? toLink(*from.link) : Link()};
      if (from.network)
        group.network = toLink(*from.network);
      group.cores = from.cores;
      to.nodes.push_back(std::move(group));
    }
    if (text.network)
      to.network = toLink(*text.network);
    if (Error error = addBuiltinTypes(to, text))
      return std::move(error);
    for (const auto &row : text.matrix) {
      to.matrix.emplace_back();
      for (const BandwidthText &entry : row)
        to.matrix.back().push_back(entry.value);
    }
    for (size_t i = 0; i < text.collectives.size(); ++i) {
      Expected<CollectiveTable> table =
          toTable(text.collectives[i], "collectives[" + Twine(i) + "]");
      if (!table)
        return table.takeError();
      to.collectives.push_back(std::move(*table));
    }
    return to;
  };
  Expected<ClusterDescription> description = described();
  if (!description)
    return makeError(fileName + ": " + toString(description.takeError()));
  Expected<Cluster> cluster = get(std::move(*description));
  if (!cluster)
    return makeError(fileName + ": " + toString(cluster.takeError()));
  return cluster;
}

std::string Cluster::toYaml() const {
  ClusterText text;
  text.name = description.name;
  for (const DeviceType &from : description.deviceTypes) {
    DeviceTypeText type;
    type.name = from.name;
    type.backend = from.backend;
    type.memory.value = from.memory;
    type.reservedMemory.value = from.reservedMemory;
    for (const auto &[dtype, rate] : from.flops)
      type.flops[dtype].value = rate;
    type.memoryBandwidth.value = from.memoryBandwidth;
    type.overlapSlowdown = from.overlapSlowdown;
    type.kernelOverhead.value = from.kernelOverhead;
    type.hostOverhead.value = from.hostOverhead;
    if (from.optimizerBandwidth)
      type.optimizerBandwidth = BandwidthText{*from.optimizerBandwidth};
    type.hostBandwidth.value = from.hostBandwidth;
    type.hostMemoryBandwidth.value = from.hostMemoryBandwidth;
    type.efficiency = toText(from.efficiency);
    type.attentionEfficiency = toText(from.attentionEfficiency);
    text.deviceTypes.push_back(std::move(type));
  }
  for (const NodeGroup &from : description.nodes) {
    NodeGroupText group{from.count, from.deviceType, from.devices, {}, {}};
    if (from.link.bandwidth > 0)
      group.link = toText(from.link);
    if (from.network)
      group.network = toText(*from.network);
    group.cores = from.cores;
    text.nodes.push_back(std::move(group));
  }
  if (description.network)
    text.network = toText(*description.network);
  for (const CollectiveTable &from : description.collectives)
    text.collectives.push_back(tableText(from));
  for (const std::vector<double> &row : description.matrix) {
    text.matrix.emplace_back();
    for (double entry : row)
      text.matrix.back().push_back({entry});
  }
  std::string result;
  raw_string_ostream os(result);
  yaml::Output output(os, nullptr, /*WrapColumn=*/0);
  output << text;
  // The document markers are noise in a file of one document.
  StringRef body = result;
  body.consume_front("---\n");
  body.consume_back("...\n");
  return body.str();
}

Expected<Cluster> Cluster::load(StringRef nameOrPath) {
  if (isBuiltinPattern(nameOrPath))
    return builtin(nameOrPath);
  ErrorOr<std::unique_ptr<MemoryBuffer>> buffer =
      MemoryBuffer::getFile(nameOrPath, /*IsText=*/true);
  if (!buffer)
    return makeError("cluster '" + nameOrPath +
                     "' is neither a file that can be read (" +
                     buffer.getError().message() +
                     ") nor a built-in cluster (MxTYPE or NxMxTYPE, as in "
                     "'8xh100'; types: " +
                     join(builtinTypes(), ", ") + ")");
  return parse((*buffer)->getBuffer(), nameOrPath);
}

} // namespace galvatron
