//===- ClusterFile.cpp - Reading and writing cluster files ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Cluster/Cluster.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/YAMLTraits.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;

namespace {

/// A quantity as the file has it. Distinct types so that each has its own
/// parser and the error points at the value's line.
struct BytesText {
  int64_t value = 0;
};
struct BandwidthText {
  double value = 0;
};
struct SecondsText {
  double value = 0;
};
struct FlopsText {
  double value = 0;
};

struct LinkText {
  BandwidthText bandwidth;
  SecondsText latency;
};

struct DeviceTypeText {
  std::string name, backend;
  BytesText memory;
  std::map<std::string, FlopsText> flops;
  BandwidthText memoryBandwidth;
  double overlapSlowdown = 1.3;
  SecondsText kernelOverhead;
};

struct NodeGroupText {
  int64_t count = 1;
  std::string deviceType;
  int64_t devices = 1;
  std::optional<LinkText> link;
};

struct ClusterText {
  std::string name;
  std::vector<DeviceTypeText> deviceTypes;
  std::vector<NodeGroupText> nodes;
  std::optional<LinkText> network;
  std::vector<std::vector<BandwidthText>> matrix;
};

/// llvm::yaml keeps the StringRef: the message must outlive the call.
StringRef keep(Error error) {
  static thread_local std::string message;
  message = toString(std::move(error));
  return message;
}

} // namespace

namespace llvm::yaml {

template <typename Text, typename Value>
static StringRef readQuantity(StringRef scalar, Text &text,
                              Expected<Value> (*parse)(StringRef)) {
  Expected<Value> value = parse(scalar);
  if (!value)
    return keep(value.takeError());
  text.value = *value;
  return {};
}

#define GALVATRON_QUANTITY(TEXT, PARSE, PRINT)                                 \
  template <> struct ScalarTraits<TEXT> {                                      \
    static void output(const TEXT &text, void *, raw_ostream &os) {            \
      os << PRINT(text.value);                                                 \
    }                                                                          \
    static StringRef input(StringRef scalar, void *, TEXT &text) {             \
      return readQuantity(scalar, text, PARSE);                                \
    }                                                                          \
    static QuotingType mustQuote(StringRef) { return QuotingType::None; }      \
  };
GALVATRON_QUANTITY(BytesText, galvatron::parseBytes, galvatron::printBytes)
GALVATRON_QUANTITY(BandwidthText, galvatron::parseBandwidth,
                   galvatron::printBandwidth)
GALVATRON_QUANTITY(SecondsText, galvatron::parseSeconds,
                   galvatron::printSeconds)
GALVATRON_QUANTITY(FlopsText, galvatron::parseFlops, galvatron::printFlops)
#undef GALVATRON_QUANTITY

template <> struct MappingTraits<LinkText> {
  static void mapping(IO &io, LinkText &link) {
    io.mapRequired("bandwidth", link.bandwidth);
    io.mapOptional("latency", link.latency);
  }
  static const bool flow = true;
};

template <> struct CustomMappingTraits<std::map<std::string, FlopsText>> {
  static void inputOne(IO &io, StringRef key,
                       std::map<std::string, FlopsText> &flops) {
    io.mapRequired(key.str().c_str(), flops[key.str()]);
  }
  static void output(IO &io, std::map<std::string, FlopsText> &flops) {
    for (auto &[dtype, rate] : flops)
      io.mapRequired(dtype.c_str(), rate);
  }
};

template <> struct MappingTraits<DeviceTypeText> {
  static void mapping(IO &io, DeviceTypeText &type) {
    io.mapRequired("name", type.name);
    io.mapRequired("backend", type.backend);
    io.mapRequired("memory", type.memory);
    io.mapRequired("flops", type.flops);
    io.mapRequired("memory-bandwidth", type.memoryBandwidth);
    io.mapOptional("overlap-slowdown", type.overlapSlowdown);
    io.mapOptional("kernel-overhead", type.kernelOverhead);
  }
};

template <> struct MappingTraits<NodeGroupText> {
  static void mapping(IO &io, NodeGroupText &group) {
    io.mapOptional("count", group.count);
    io.mapRequired("device-type", group.deviceType);
    io.mapRequired("devices", group.devices);
    io.mapOptional("link", group.link);
  }
};

template <> struct SequenceTraits<std::vector<BandwidthText>> {
  static size_t size(IO &, std::vector<BandwidthText> &row) {
    return row.size();
  }
  static BandwidthText &element(IO &, std::vector<BandwidthText> &row,
                                size_t index) {
    if (index >= row.size())
      row.resize(index + 1);
    return row[index];
  }
  static const bool flow = true;
};

} // namespace llvm::yaml

LLVM_YAML_IS_SEQUENCE_VECTOR(DeviceTypeText)
LLVM_YAML_IS_SEQUENCE_VECTOR(NodeGroupText)
LLVM_YAML_IS_SEQUENCE_VECTOR(std::vector<BandwidthText>)

namespace llvm::yaml {
template <> struct MappingTraits<ClusterText> {
  static void mapping(IO &io, ClusterText &cluster) {
    io.mapRequired("name", cluster.name);
    io.mapRequired("device-types", cluster.deviceTypes);
    io.mapRequired("nodes", cluster.nodes);
    io.mapOptional("network", cluster.network);
    io.mapOptional("bandwidth-matrix", cluster.matrix);
  }
};
} // namespace llvm::yaml

namespace galvatron {

static Link toLink(const LinkText &text) {
  return {text.bandwidth.value, text.latency.value};
}

static LinkText toText(const Link &link) {
  return {{link.bandwidth}, {link.latency}};
}

Expected<Cluster> Cluster::parse(StringRef yaml, StringRef fileName) {
  struct Diagnostics {
    std::string fileName, first;
  } diagnostics{fileName.str(), ""};
  auto handler = [](const SMDiagnostic &diagnostic, void *context) {
    auto *out = static_cast<Diagnostics *>(context);
    if (out->first.empty())
      out->first = out->fileName + ":" +
                   std::to_string(diagnostic.getLineNo()) + ":" +
                   std::to_string(diagnostic.getColumnNo() + 1) + ": " +
                   diagnostic.getMessage().str();
  };
  ClusterText text;
  // An empty document would leave every field at its default.
  if (yaml.trim().empty())
    return makeError(fileName + ": expected a cluster, found an empty file");
  yaml::Input input(yaml, nullptr, handler, &diagnostics);
  input >> text;
  if (input.error())
    return makeError(diagnostics.first.empty()
                         ? fileName + ": expected a cluster file (YAML)"
                         : Twine(diagnostics.first));

  std::vector<DeviceType> types;
  for (DeviceTypeText &from : text.deviceTypes) {
    DeviceType type;
    type.name = from.name;
    type.backend = from.backend;
    type.memory = from.memory.value;
    for (const auto &[dtype, rate] : from.flops)
      type.flops[dtype] = rate.value;
    type.memoryBandwidth = from.memoryBandwidth.value;
    type.overlapSlowdown = from.overlapSlowdown;
    type.kernelOverhead = from.kernelOverhead.value;
    types.push_back(std::move(type));
  }
  std::vector<NodeGroup> nodes;
  for (const NodeGroupText &from : text.nodes)
    nodes.push_back({from.count, from.deviceType, from.devices,
                     from.link ? toLink(*from.link) : Link()});
  std::optional<Link> network;
  if (text.network)
    network = toLink(*text.network);
  std::vector<std::vector<double>> matrix;
  for (const auto &row : text.matrix) {
    matrix.emplace_back();
    for (const BandwidthText &entry : row)
      matrix.back().push_back(entry.value);
  }
  Expected<Cluster> cluster = get(text.name, std::move(types), std::move(nodes),
                                  network, std::move(matrix));
  if (!cluster)
    return makeError(fileName + ": " + toString(cluster.takeError()));
  return cluster;
}

std::string Cluster::toYaml() const {
  ClusterText text;
  text.name = clusterName;
  for (const DeviceType &from : types) {
    DeviceTypeText type;
    type.name = from.name;
    type.backend = from.backend;
    type.memory.value = from.memory;
    for (const auto &[dtype, rate] : from.flops)
      type.flops[dtype].value = rate;
    type.memoryBandwidth.value = from.memoryBandwidth;
    type.overlapSlowdown = from.overlapSlowdown;
    type.kernelOverhead.value = from.kernelOverhead;
    text.deviceTypes.push_back(std::move(type));
  }
  for (const NodeGroup &from : groups) {
    NodeGroupText group{from.count, from.deviceType, from.devices, {}};
    if (from.link.bandwidth > 0)
      group.link = toText(from.link);
    text.nodes.push_back(std::move(group));
  }
  if (network)
    text.network = toText(*network);
  for (const std::vector<double> &row : bandwidthMatrix) {
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
  for (const std::string &name : builtinNames())
    if (nameOrPath == name)
      return builtin(name);
  ErrorOr<std::unique_ptr<MemoryBuffer>> buffer =
      MemoryBuffer::getFile(nameOrPath, /*IsText=*/true);
  if (!buffer) {
    std::string known = join(builtinNames(), ", ");
    return makeError("cluster '" + nameOrPath +
                     "' is neither a file that can be read (" +
                     buffer.getError().message() +
                     ") nor a built-in cluster (" + known + ")");
  }
  return parse((*buffer)->getBuffer(), nameOrPath);
}

} // namespace galvatron
