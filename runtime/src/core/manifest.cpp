//===- manifest.cpp - Parsing and checking manifests ----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/manifest.h"
#include "core/error.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>

namespace grt {
namespace {

using Json = nlohmann::ordered_json;

/// Bound on every count and offset, so that sums and products of two of them
/// cannot overflow where they are checked.
constexpr int64_t largest = int64_t(1) << 52;

[[noreturn]] void bad(const std::string &path, const std::string &what) {
  invalid("manifest: " + (path.empty() ? what : path + ": " + what));
}

/// A JSON value and where it stands, for messages.
class Node {
public:
  Node(const Json &value, std::string path)
      : value(&value), path(std::move(path)) {}

  [[noreturn]] void error(const std::string &what) const { bad(path, what); }
  const std::string &where() const { return path; }
  const Json &json() const { return *value; }

  Node at(const char *key) const {
    if (!value->is_object())
      error("expected an object");
    auto it = value->find(key);
    if (it == value->end())
      error(std::string("missing key '") + key + "'");
    return Node(*it, path.empty() ? key : path + "." + key);
  }
  bool has(const char *key) const {
    auto it = value->is_object() ? value->find(key) : value->end();
    return it != value->end() && !it->is_null();
  }
  std::vector<Node> list() const {
    if (!value->is_array())
      error("expected a list");
    std::vector<Node> nodes;
    nodes.reserve(value->size());
    for (size_t i = 0; i < value->size(); ++i)
      nodes.emplace_back((*value)[i], path + "[" + str(i) + "]");
    return nodes;
  }
  int64_t integer(int64_t least = 0, int64_t most = largest) const {
    if (!value->is_number_integer())
      error("expected an integer");
    if (value->is_number_unsigned() &&
        value->get<uint64_t>() > uint64_t(std::numeric_limits<int64_t>::max()))
      error("integer out of range");
    int64_t number = value->get<int64_t>();
    if (number < least || number > most)
      error("expected an integer from " + str(least) + " to " + str(most) +
            ", found " + str(number));
    return number;
  }
  uint64_t offset() const {
    uint64_t number = uint64_t(integer());
    if (number % GRT_ALIGNMENT)
      error("expected a multiple of " + str(GRT_ALIGNMENT) + ", found " +
            str(int64_t(number)));
    return number;
  }
  double number() const {
    if (!value->is_number())
      error("expected a number");
    return value->get<double>();
  }
  bool boolean() const {
    if (!value->is_boolean())
      error("expected true or false");
    return value->get<bool>();
  }
  std::string string() const {
    if (!value->is_string())
      error("expected a string");
    return value->get<std::string>();
  }
  std::vector<int64_t> integers(int64_t least) const {
    std::vector<int64_t> numbers;
    for (const Node &node : list())
      numbers.push_back(node.integer(least));
    return numbers;
  }

private:
  const Json *value;
  std::string path;
};

int64_t product(const Node &node, const std::vector<int64_t> &shape) {
  int64_t total = 1;
  for (int64_t dim : shape) {
    if (dim > 0 && total > largest / dim)
      node.error("too many elements");
    total *= dim;
  }
  return total;
}

/// An index into a table of `count` entries, or -1 for null or absent.
int optionalIndex(const Node &node, const char *key, size_t count) {
  if (!node.has(key))
    return -1;
  return int(node.at(key).integer(0, int64_t(count) - 1));
}

Extent parseExtent(const Node &node) {
  std::vector<Node> pair = node.list();
  if (pair.size() != 2)
    node.error("expected [offset, bytes]");
  return Extent{pair[0].offset(), uint64_t(pair[1].integer())};
}

bool contains(const Extent &outer, uint64_t offset, uint64_t bytes) {
  return offset >= outer.offset && offset + bytes <= outer.offset + outer.bytes;
}

Parameter parseParameter(const Node &node) {
  Parameter parameter;
  parameter.name = node.at("name").string();
  parameter.shape = node.at("shape").integers(1);
  product(node.at("shape"), parameter.shape);
  Node init = node.at("init");
  std::string kind = init.at("kind").string();
  if (kind == "normal") {
    parameter.init = InitKind::Normal;
    parameter.std = init.at("std").number();
  } else if (kind == "zeros") {
    parameter.init = InitKind::Zeros;
  } else if (kind == "ones") {
    parameter.init = InitKind::Ones;
  } else {
    init.error("expected kind 'normal', 'zeros' or 'ones', found '" + kind +
               "'");
  }
  parameter.decay = node.at("decay").boolean();
  if (node.has("tie-of"))
    parameter.alias = node.at("tie-of").string();
  return parameter;
}

/// Widths of the types that data have.
const std::pair<const char *, grt_dtype> dataTypes[] = {
    {"i32", GRT_I32}, {"f32", GRT_F32}, {"f64", GRT_F64}, {"bf16", GRT_BF16}};

Datum parseDatum(const Node &node) {
  Datum datum;
  datum.name = node.at("name").string();
  datum.kind = node.at("kind").string();
  std::string type = node.at("type").string();
  const auto *known =
      std::find_if(std::begin(dataTypes), std::end(dataTypes),
                   [&](const auto &entry) { return type == entry.first; });
  if (known == std::end(dataTypes))
    node.at("type").error("expected 'i32', 'f32', 'f64' or 'bf16', found '" +
                          type + "'");
  datum.type = known->second;
  datum.shape = node.at("shape").integers(1);
  int64_t elements = product(node.at("shape"), datum.shape);
  datum.bytesPerSample = uint64_t(node.at("bytes-per-sample").integer(1));
  if (uint64_t(elements) * dtypeBytes(datum.type) != datum.bytesPerSample)
    node.at("bytes-per-sample")
        .error("expected the bytes of " + str(elements) + " values of " + type +
               ", found " + str(int64_t(datum.bytesPerSample)));
  if (datum.type == GRT_I32)
    datum.below = node.at("below").integer(1, (int64_t(1) << 31) - 1);
  datum.counted = node.at("counted").boolean();
  if (datum.counted && datum.type != GRT_I32)
    node.at("counted").error("only integers are counted, found " + type);
  return datum;
}

void parseData(const Node &node, Manifest &manifest) {
  int64_t counted = 0;
  for (const Node &entry : node.list()) {
    Datum datum = parseDatum(entry);
    for (const Datum &other : manifest.data)
      if (other.name == datum.name)
        entry.at("name").error("two data are called '" + datum.name + "'");
    if (uint64_t(manifest.batch) > uint64_t(largest) / datum.bytesPerSample)
      bad("batch", "too large");
    counted += datum.counted;
    manifest.data.push_back(std::move(datum));
  }
  if (counted != 1)
    node.error("expected one datum that is counted, found " + str(counted));
}

/// Copies lie in the arena's data region, each for itself.
void parseCopies(const Node &node, const Manifest &manifest, Role &role) {
  for (const Node &entry : node.list()) {
    DataCopy copy;
    copy.datum =
        int(entry.at("datum").integer(0, int64_t(manifest.data.size()) - 1));
    copy.extent = parseExtent(entry.at("extent"));
    // Further batches lie behind the first as it does itself.
    Extent first = role.data;
    first.bytes /= manifest.batchesAtOnce();
    if (!contains(first, copy.extent.offset, copy.extent.bytes))
      entry.at("extent").error("leaves the data region of " +
                               str(int64_t(first.bytes)) + " bytes");
    if (copy.extent.bytes % uint64_t(manifest.microBatches))
      entry.at("extent").error(
          "expected as many bytes for each of " + str(manifest.microBatches) +
          " micro-batches, found " + str(int64_t(copy.extent.bytes)));
    if (!role.copies.empty() &&
        copy.extent.offset <
            role.copies.back().extent.offset + role.copies.back().extent.bytes)
      entry.at("extent").error("begins in the copy before it");
    role.copies.push_back(copy);
  }
}

Exchange parseExchange(const Node &node, int64_t world) {
  Exchange exchange;
  exchange.name = node.at("name").string();
  exchange.bytesPerUnit = uint64_t(node.at("bytes-per-unit").integer(1));
  uint64_t sum = 0;
  if (node.has("tensors"))
    for (const Node &row : node.at("tensors").list()) {
      std::vector<int64_t> numbers = row.integers(0);
      if (numbers.size() != 3)
        row.error("expected [bytes of a unit, source offset, destination "
                  "offset]");
      exchange.tensors.push_back(
          {uint64_t(numbers[0]), uint64_t(numbers[1]), uint64_t(numbers[2])});
      sum += uint64_t(numbers[0]);
    }
  if (!exchange.tensors.empty() && sum != exchange.bytesPerUnit)
    node.at("tensors").error("tensors of " + str(int64_t(sum)) +
                             " bytes a unit, expected " +
                             str(int64_t(exchange.bytesPerUnit)));
  for (const Node &row : node.at("transfers").list()) {
    std::vector<Node> fields = row.list();
    if (fields.size() != 5)
      row.error("expected [source, destination, source unit, destination unit, "
                "units]");
    Transfer transfer;
    transfer.source = int(fields[0].integer(0, world - 1));
    transfer.destination = int(fields[1].integer(0, world - 1));
    transfer.sourceUnit = fields[2].integer();
    transfer.destinationUnit = fields[3].integer();
    transfer.units = fields[4].integer(1);
    exchange.transfers.push_back(transfer);
  }
  return exchange;
}

LayerTensor parseTensor(const Node &node, const Manifest &manifest,
                        int64_t tp) {
  LayerTensor tensor;
  tensor.parameter = int(
      node.at("parameter").integer(0, int64_t(manifest.parameters.size()) - 1));
  tensor.group = int(node.at("group").integer(0, 1));
  tensor.offset = node.at("offset").integer();
  tensor.localShape = node.at("local-shape").integers(1);
  const Parameter &parameter = manifest.parameters[tensor.parameter];
  tensor.view =
      node.has("view") ? node.at("view").integers(1) : parameter.shape;
  if (product(node, tensor.view) != parameter.elements())
    node.at("view").error("view of '" + parameter.name + "' has " +
                          str(product(node, tensor.view)) +
                          " elements, expected " + str(parameter.elements()));
  tensor.tpDim =
      int(node.at("tp-dim").integer(-1, int64_t(tensor.view.size()) - 1));
  std::vector<int64_t> expected = tensor.view;
  if (tensor.tpDim >= 0)
    expected[tensor.tpDim] = (expected[tensor.tpDim] + tp - 1) / tp;
  if (expected != tensor.localShape)
    node.at("local-shape")
        .error("does not match the view of '" + parameter.name + "' cut in " +
               str(tp) + " along dimension " + str(tensor.tpDim));
  return tensor;
}

std::vector<Level> parseLevels(const Node &node, size_t devices) {
  std::vector<Level> levels;
  bool seen[3] = {};
  for (const Node &entry : node.list()) {
    Level level;
    std::string kind = entry.at("kind").string();
    if (kind == "dp")
      level.axis = GRT_AXIS_DP;
    else if (kind == "sdp")
      level.axis = GRT_AXIS_SDP;
    else if (kind == "tp")
      level.axis = GRT_AXIS_TP;
    else
      entry.error("expected kind 'dp', 'sdp' or 'tp', found '" + kind + "'");
    if (seen[level.axis])
      entry.error("kind '" + kind + "' stands twice");
    seen[level.axis] = true;
    level.degree = entry.at("degree").integer(1, int64_t(devices));
    level.stride = entry.at("stride").integer(1, int64_t(devices));
    levels.push_back(level);
  }
  int64_t stride = 1;
  for (auto it = levels.rbegin(); it != levels.rend(); ++it) {
    if (it->stride != stride)
      node.error("expected stride " + str(stride) + ", found " +
                 str(it->stride));
    stride *= it->degree;
  }
  if (stride != int64_t(devices))
    node.error("degrees multiply to " + str(stride) + ", expected " +
               str(int64_t(devices)) + " devices");
  return levels;
}

/// Functions, tensors and flat groups of a layer.
void parseLayerCode(const Node &node, const Manifest &manifest, Layer &layer) {
  size_t functions = manifest.functions.size();
  layer.forward = int(node.at("forward").integer(0, int64_t(functions) - 1));
  layer.recompute = optionalIndex(node, "recompute", functions);
  layer.backward = int(node.at("backward").integer(0, int64_t(functions) - 1));
  layer.weight = optionalIndex(node, "weight", functions);
  if (layer.weight >= 0 && layer.recompute >= 0)
    node.at("weight").error("a layer that is recomputed has no weight part");
  layer.update = optionalIndex(node, "update", functions);
  layer.norm = optionalIndex(node, "norm", functions);

  int64_t sdp = layer.degree(GRT_AXIS_SDP);
  std::vector<Node> groups = node.at("groups").list();
  if (groups.size() > 2)
    node.at("groups").error("expected at most two groups");
  for (size_t g = 0; g < groups.size(); ++g) {
    FlatGroup &group = layer.groups[g];
    group.elements = groups[g].at("elements").integer();
    group.shardElements = groups[g].at("shard-elements").integer();
    if (group.shardElements * sdp != group.elements)
      groups[g].error("expected " + str(sdp) + " shards of " +
                      str(group.shardElements) + " elements to make " +
                      str(group.elements));
    if (uint64_t(group.shardElements) * manifest.elementBytes() % GRT_ALIGNMENT)
      groups[g].error("shard is not a multiple of " + str(GRT_ALIGNMENT) +
                      " bytes");
  }
  for (const Node &entry : node.at("tensors").list()) {
    LayerTensor tensor =
        parseTensor(entry, manifest, layer.degree(GRT_AXIS_TP));
    if (tensor.offset + tensor.localElements() >
        layer.groups[tensor.group].elements)
      entry.error("tensor ends at element " +
                  str(tensor.offset + tensor.localElements()) +
                  " of a group of " + str(layer.groups[tensor.group].elements));
    layer.tensors.push_back(std::move(tensor));
  }
  if (layer.groups[0].elements > 0 && (layer.update < 0 || layer.norm < 0))
    node.error("a layer that owns parameters needs an update and a norm "
               "function");
}

/// Where parameters are gathered, below `limit`.
void parseGathered(const Node &layerNode, const char *key,
                   const Manifest &manifest, uint64_t limit, const Layer &layer,
                   Gathered &gathered) {
  if (!layerNode.has(key))
    return;
  Node node = layerNode.at(key);
  if (layer.degree(GRT_AXIS_SDP) == 1)
    node.error("nothing of the layer is sharded");
  gathered.offset = node.at("offset").offset();
  gathered.ahead = node.at("ahead").boolean();
  for (const FlatGroup &group : layer.groups)
    gathered.bytes +=
        alignUp(uint64_t(group.elements) * manifest.elementBytes());
  if (gathered.offset > limit || gathered.bytes > limit - gathered.offset)
    node.error("gathered parameters end at byte " +
               str(int64_t(gathered.offset + gathered.bytes)) + " of the " +
               str(int64_t(limit)) + " of a slot");
}

/// Offsets of a layer, checked against the role's regions.
void parseLayerMemory(const Node &node, const Manifest &manifest,
                      const Role &role, Layer &layer) {
  uint64_t held =
      uint64_t(layer.groups[0].shardElements + layer.groups[1].shardElements);
  layer.parameter = node.at("parameter").offset();
  layer.gradient = node.at("gradient").offset();
  layer.optimizer = node.at("optimizer").offset();
  Extent newest = role.parameters;
  newest.bytes = manifest.versionStride(role);
  if (held &&
      !contains(newest, layer.parameter, held * manifest.elementBytes()))
    node.at("parameter").error("parameters leave their region");
  if (held && !contains(role.gradients, layer.gradient,
                        held * manifest.accumulatorBytes()))
    node.at("gradient").error("gradients leave their region");
  uint64_t state = manifest.optimizerBytes(layer);
  if (state && !contains(role.optimizer, layer.optimizer, state))
    node.at("optimizer").error("optimizer state leaves its region");

  layer.stash = node.at("stash").offset();
  layer.inputBytes = uint64_t(node.at("input-bytes").integer());
  layer.stashBytes = uint64_t(node.at("stash-bytes").integer());
  if (layer.stash + alignUp(layer.inputBytes) + layer.stashBytes >
          role.slotBytes &&
      layer.inputBytes + layer.stashBytes)
    node.at("stash").error("stash ends at byte " +
                           str(int64_t(layer.stash + alignUp(layer.inputBytes) +
                                       layer.stashBytes)) +
                           " of a slot of " + str(int64_t(role.slotBytes)));
  layer.transient = node.at("transient").offset();
  layer.transientBytes = uint64_t(node.at("transient-bytes").integer());
  layer.recomputeStashBytes =
      node.has("recompute-stash-bytes")
          ? uint64_t(node.at("recompute-stash-bytes").integer())
          : 0;
  // Behind the only slot, and behind every slot with a window, the transient
  // region follows.
  uint64_t limit = role.slotBytes;
  if (role.transient.offset == role.slots.offset + role.slotBytes &&
      (role.slotCount == 1 || role.window.offset == role.transient.offset))
    limit += role.slotCount == 1 ? role.transient.bytes : role.window.bytes;
  auto checkEnd = [&](const char *name, uint64_t begin, uint64_t bytes) {
    if (bytes && begin + bytes > limit)
      node.at(name).error("transients end at byte " +
                          str(int64_t(begin + bytes)) + " of the " +
                          str(int64_t(limit)) + " of a slot");
  };
  checkEnd("transient", layer.transient,
           alignUp(layer.recomputeStashBytes) + layer.transientBytes);
  parseGathered(node, "forward-gathered", manifest, limit, layer,
                layer.forwardGathered);
  parseGathered(node, "backward-gathered", manifest, limit, layer,
                layer.backwardGathered);
  layer.forwardTransient = layer.transient;
  layer.forwardTransientBytes =
      alignUp(layer.recomputeStashBytes) + layer.transientBytes;
  if (!node.has("forward-transient"))
    return;
  layer.forwardTransient = node.at("forward-transient").offset();
  layer.forwardTransientBytes =
      uint64_t(node.at("forward-transient-bytes").integer());
  checkEnd("forward-transient", layer.forwardTransient,
           layer.forwardTransientBytes);
}

/// Where a layer finds its inputs, and what passes it.
void parseTensorsAlive(const Node &node, const Role &role, Layer &layer) {
  layer.frontBytes = layer.inputBytes;
  if (!node.has("front-bytes"))
    return;
  layer.frontBytes = uint64_t(node.at("front-bytes").integer());
  layer.behindBytes = uint64_t(node.at("behind-bytes").integer());
  auto rows = [&](const char *key, size_t length, auto take) {
    if (!node.has(key))
      return;
    for (const Node &row : node.at(key).list()) {
      std::vector<int64_t> numbers = row.integers(0);
      if (numbers.size() != length)
        row.error("expected " + str(int64_t(length)) + " numbers, found " +
                  str(int64_t(numbers.size())));
      take(row, numbers);
    }
  };
  auto within = [](const Node &row, const char *what, int64_t offset,
                   int64_t bytes, uint64_t all) {
    if (uint64_t(offset) > all || uint64_t(bytes) > all - uint64_t(offset))
      row.error("ends at byte " + str(offset + bytes) + " of the " +
                str(int64_t(all)) + " " + what);
  };
  rows("inputs", 3, [&](const Node &row, const std::vector<int64_t> &n) {
    within(row, "of a slot", n[0], n[2], role.slotBytes);
    within(row, "in front of the layer", n[1], n[2], layer.frontBytes);
    layer.inputs.push_back({uint64_t(n[0]), uint64_t(n[1]), uint64_t(n[2])});
  });
  rows("passes", 5, [&](const Node &row, const std::vector<int64_t> &n) {
    within(row, "of a slot", n[0], n[3], role.slotBytes);
    within(row, "in front of the layer", n[1], n[3], layer.frontBytes);
    within(row, "behind the layer", n[2], n[3], layer.behindBytes);
    layer.passes.push_back({uint64_t(n[0]), uint64_t(n[1]), uint64_t(n[2]),
                            uint64_t(n[3]), n[4] != 0});
  });
  if (node.has("outputs"))
    for (int64_t bytes : node.at("outputs").integers(0))
      layer.outputs.push_back(uint64_t(bytes));
}

/// Where the layer's boundary values come from and go to.
void parseLayerWiring(const Node &node, const Manifest &manifest,
                      const Role &role, size_t layerNumber, const Chunk &chunk,
                      Layer &layer) {
  for (const Node &copy : node.at("data").list()) {
    int number = int(copy.integer(0, int64_t(role.copies.size()) - 1));
    const DataCopy &read = role.copies[number];
    uint64_t needed = uint64_t(layer.samples) *
                      manifest.data[read.datum].bytesPerSample,
             given = read.extent.bytes / uint64_t(manifest.microBatches);
    if (needed > given)
      copy.error("a micro-batch of '" + manifest.data[read.datum].name +
                 "' takes " + str(int64_t(needed)) + " bytes, its copy has " +
                 str(int64_t(given)));
    layer.data.push_back(number);
  }

  Node output = node.at("output");
  std::string kind = output.at("kind").string();
  if (kind == "slot") {
    layer.output = OutputKind::Slot;
    int64_t next = output.at("layer").integer();
    if (next != int64_t(layerNumber) + 1 || size_t(next) >= chunk.endLayer())
      output.error("expected the next layer of the chunk, found " + str(next));
  } else if (kind == "boundary") {
    layer.output = OutputKind::Boundary;
    layer.outputBuffer =
        int(output.at("buffer").integer(0, int64_t(role.boundary.size()) - 1));
  } else if (kind == "loss") {
    layer.output = OutputKind::Loss;
  } else {
    output.error("expected kind 'slot', 'boundary' or 'loss', found '" + kind +
                 "'");
  }
  layer.gradIn = optionalIndex(node, "grad-in", role.boundary.size());
  layer.gradOut = optionalIndex(node, "grad-out", role.boundary.size());
  layer.forwardReshard =
      optionalIndex(node, "forward-reshard", manifest.exchanges.size());
  layer.backwardReshard =
      optionalIndex(node, "backward-reshard", manifest.exchanges.size());
  if (layer.forwardReshard >= 0 && (layer.output != OutputKind::Boundary ||
                                    layerNumber + 1 == chunk.endLayer()))
    node.at("forward-reshard")
        .error("needs a boundary output and a next layer");
  if (layer.backwardReshard >= 0 &&
      (layer.gradOut < 0 || layerNumber == chunk.firstLayer))
    node.at("backward-reshard")
        .error("needs a gradient output and a previous layer");
  // Nothing of the chunk runs before them that they could be gathered beside.
  if (layer.forwardGathered.ahead && layerNumber == chunk.firstLayer)
    node.at("forward-gathered").error("a chunk's first layer is not ahead");
  if (layer.backwardGathered.ahead && layerNumber + 1 == chunk.endLayer())
    node.at("backward-gathered").error("a chunk's last layer is not ahead");
}

Layer parseLayer(const Node &node, const Manifest &manifest, const Role &role,
                 size_t layerNumber, const Chunk &chunk) {
  Layer layer;
  layer.name = node.at("name").string();
  layer.index = node.at("index").integer();
  layer.strategy = node.at("strategy").string();
  layer.levels = parseLevels(node.at("levels"), role.devices.size());
  layer.samples = node.at("samples").integer(1);
  int64_t blocks = layer.degree(GRT_AXIS_DP) * layer.degree(GRT_AXIS_SDP);
  if (blocks * layer.samples != manifest.samplesPerMicroBatch())
    node.at("samples").error(str(blocks) + " blocks of " + str(layer.samples) +
                             " samples, expected a micro-batch of " +
                             str(manifest.samplesPerMicroBatch()));
  parseLayerCode(node, manifest, layer);
  parseLayerMemory(node, manifest, role, layer);
  parseTensorsAlive(node, role, layer);
  parseLayerWiring(node, manifest, role, layerNumber, chunk, layer);
  return layer;
}

/// Where the slots lie that one window follows. Without a window they stand
/// shoulder to shoulder.
void parseWindow(const Node &node, Role &role) {
  role.slotStride = role.slotBytes;
  if (!node.has("window"))
    return;
  Node window = node.at("window");
  std::vector<int64_t> numbers = window.integers(0);
  if (numbers.size() != 3)
    window.error("expected an offset, bytes and a stride, found " +
                 str(numbers.size()) + " numbers");
  role.window = {uint64_t(numbers[0]), uint64_t(numbers[1])};
  role.slotStride = uint64_t(numbers[2]);
  if (role.slotStride < role.slotBytes + role.window.bytes)
    window.error("expected a stride of at least " +
                 str(int64_t(role.slotBytes + role.window.bytes)) +
                 " bytes, found " + str(numbers[2]));
  if (role.slotStride > uint64_t(largest) / uint64_t(role.slotCount))
    window.error("is too large");
  uint64_t last = role.window.offset +
                  uint64_t(role.slotCount - 1) * role.slotStride +
                  role.window.bytes;
  if (last > role.addressBytes())
    window.error("leaves the arena of " + str(int64_t(role.arenaBytes)) +
                 " bytes");
}

void parseArena(const Node &node, const Manifest &manifest, Role &role) {
  role.arenaBytes = uint64_t(node.at("bytes").integer(1));
  const std::pair<const char *, Extent *> regions[] = {
      {"parameters", &role.parameters},
      {"gradients", &role.gradients},
      {"optimizer", &role.optimizer},
      {"slots", &role.slots},
      {"transient", &role.transient},
      {"data", &role.data},
      {"loss", &role.loss},
      {"step", &role.step},
      {"workspace", &role.workspace}};
  parseWindow(node, role);
  Extent whole{0, role.addressBytes()};
  for (const auto &[name, extent] : regions) {
    if (extent == &role.workspace && !node.has(name))
      continue;
    *extent = parseExtent(node.at(name));
    if (!contains(whole, extent->offset, extent->bytes))
      node.at(name).error("leaves the arena of " +
                          str(int64_t(role.arenaBytes)) + " bytes");
  }
  // Both buffers as one extent of two halves, or each with its own extent.
  Node boundary = node.at("boundary");
  std::vector<Node> entries = boundary.list();
  const size_t needed = role.chunks.size() > 1 ? 4 : 2;
  if (entries.size() == needed && entries[0].json().is_array()) {
    for (const Node &entry : entries)
      role.boundary.push_back(parseExtent(entry));
  } else if (needed > 2) {
    boundary.error("expected 4 buffers, as the role has several chunks");
  } else {
    Extent both = parseExtent(boundary);
    if (both.bytes % (2 * GRT_ALIGNMENT))
      boundary.error("expected two halves of a multiple of " +
                     str(GRT_ALIGNMENT) + " bytes");
    role.boundary = {{both.offset, both.bytes / 2},
                     {both.offset + both.bytes / 2, both.bytes / 2}};
  }
  for (const Extent &extent : role.boundary)
    if (!contains(whole, extent.offset, extent.bytes))
      boundary.error("leaves the arena of " + str(int64_t(role.arenaBytes)) +
                     " bytes");
  uint64_t batches = manifest.batchesAtOnce();
  if (role.step.bytes / batches < sizeof(grt_step))
    node.at("step").error("expected at least " +
                          str(batches * sizeof(grt_step)) + " bytes");
  const std::pair<const char *, uint64_t> equal[] = {
      {"parameters", uint64_t(manifest.weightVersions)},
      {"data", batches},
      {"step", batches}};
  for (const auto &[name, count] : equal)
    if (uint64_t bytes = parseExtent(node.at(name)).bytes;
        bytes % (count * GRT_ALIGNMENT) && count > 1)
      node.at(name).error("expected " + str(count) +
                          " parts of a multiple of " + str(GRT_ALIGNMENT) +
                          " bytes, found " + str(bytes));
}

/// Boundary buffers must hold what the layers put into them.
void checkBuffers(const Node &node, const Manifest &manifest,
                  const Role &role) {
  size_t count = role.layers.size();
  for (size_t i = 0; i < count; ++i) {
    const Layer &layer = role.layers[i];
    if (layer.output == OutputKind::Loss && i + 1 != count)
      node.error("only the last layer may give the loss, found '" + layer.name +
                 "'");
    if (layer.output == OutputKind::Loss &&
        role.loss.bytes < uint64_t(manifest.microBatches) * sizeof(double))
      node.at("arena").at("loss").error("expected one f64 per micro-batch");
    if (layer.gradOut >= 0 &&
        role.boundary[layer.gradOut].bytes < layer.frontBytes)
      node.at("arena")
          .at("boundary")
          .error("gradient of the input of '" + layer.name + "' does not fit");
  }
}

/// Appends a chunk to its role's.
void parseChunk(const Node &node, const Manifest &manifest, Role &role) {
  // What a task's row can name.
  constexpr int64_t mostChunks = 1 << 16, mostSlots = 1 << 16;
  constexpr int64_t mostLayers = 1 << 20;
  Chunk chunk;
  chunk.number = int(node.at("number").integer(0, mostChunks - 1));
  chunk.layerCount = size_t(node.at("layer-count").integer(1, mostLayers));
  chunk.slots = uint32_t(node.at("slots").integer(1, mostSlots));
  if (!role.chunks.empty()) {
    const Chunk &before = role.chunks.back();
    if (chunk.number <= before.number)
      node.at("number").error("expected more than " + str(before.number) +
                              ", the chunk before, found " + str(chunk.number));
    chunk.firstLayer = before.endLayer();
    chunk.firstSlot = before.firstSlot + before.slots;
  }
  size_t exchanges = manifest.exchanges.size();
  chunk.sendActivation = optionalIndex(node, "send-activation", exchanges);
  chunk.recvActivation = optionalIndex(node, "recv-activation", exchanges);
  chunk.sendGradient = optionalIndex(node, "send-gradient", exchanges);
  chunk.recvGradient = optionalIndex(node, "recv-gradient", exchanges);
  role.slotCount += chunk.slots;
  if (role.slotCount > mostSlots)
    node.at("slots").error("expected at most " + str(mostSlots) +
                           " slots of a role, found " + str(role.slotCount));
  role.chunks.push_back(chunk);
}

Role parseRole(const Node &node, const Manifest &manifest) {
  Role role;
  role.stage = int(node.at("stage").integer(0, manifest.world));
  for (int64_t device : node.at("devices").integers(0)) {
    if (device >= manifest.world)
      node.at("devices").error("rank " + str(device) + " of a world of " +
                               str(manifest.world));
    role.devices.push_back(int(device));
  }
  if (role.devices.empty())
    node.at("devices").error("expected at least one rank");
  for (const Node &chunk : node.at("chunks").list())
    parseChunk(chunk, manifest, role);
  if (role.chunks.empty())
    node.at("chunks").error("expected at least one chunk");
  role.slotBytes = node.at("slot-bytes").offset();
  if (role.slotBytes && uint64_t(role.slotCount) > largest / role.slotBytes)
    node.error("slots are too large");
  parseArena(node.at("arena"), manifest, role);
  if (node.has("ledger")) {
    uint64_t sum = 0;
    for (const auto &[key, value] : node.at("ledger").json().items()) {
      uint64_t bytes =
          uint64_t(Node(value, node.where() + ".ledger." + key).integer());
      role.ledger[key] = bytes;
      sum += bytes;
    }
    if (sum != role.arenaBytes)
      node.at("ledger").error("sums to " + str(int64_t(sum)) +
                              " bytes, expected the arena's " +
                              str(int64_t(role.arenaBytes)));
  }
  if (uint64_t(role.slotCount - 1) * role.slotStride + role.slotBytes >
      role.slots.bytes)
    node.at("chunks").error(str(role.slotCount) + " slots of " +
                            str(int64_t(role.slotBytes)) + " bytes, found " +
                            str(int64_t(role.slots.bytes)));
  parseCopies(node.at("data"), manifest, role);
  std::vector<Node> layers = node.at("layers").list();
  if (layers.size() != role.chunks.back().endLayer())
    node.at("layers").error(
        "expected the " + str(int64_t(role.chunks.back().endLayer())) +
        " layers of its chunks, found " + str(int64_t(layers.size())));
  for (const Chunk &chunk : role.chunks)
    for (size_t i = chunk.firstLayer; i < chunk.endLayer(); ++i)
      role.layers.push_back(parseLayer(layers[i], manifest, role, i, chunk));
  std::vector<bool> read(role.copies.size());
  for (const Layer &layer : role.layers)
    for (int copy : layer.data)
      read[copy] = true;
  for (size_t i = 0; i < read.size(); ++i)
    if (!read[i])
      node.at("data").list()[i].error("no layer reads it");
  checkBuffers(node, manifest, role);
  return role;
}

TieEnd parseTieEnd(const Node &node, const Manifest &manifest, int parameter,
                   int group) {
  TieEnd end;
  end.role =
      int(node.at("role").integer(0, int64_t(manifest.roles.size()) - 1));
  const Role &role = manifest.roles[end.role];
  end.layer = int(node.at("layer").integer(0, int64_t(role.layers.size()) - 1));
  const Layer &layer = role.layers[end.layer];
  end.tensor =
      int(node.at("tensor").integer(0, int64_t(layer.tensors.size()) - 1));
  const LayerTensor &tensor = layer.tensors[end.tensor];
  if (tensor.parameter != parameter || tensor.group != group)
    node.error("does not name a tensor of the parameter in group " +
               str(group));
  if (tensor.tpDim > 0)
    node.error("a tied tensor must be replicated or cut along dimension 0, "
               "found dimension " +
               str(tensor.tpDim));
  return end;
}

/// A duration in microseconds, 0 if absent.
double duration(const Node &node, const char *key) {
  if (!node.has(key))
    return 0;
  double time = node.at(key).number();
  if (!(time >= 0 && time <= 1e15))
    node.at(key).error("expected microseconds, found " + std::to_string(time));
  return time;
}

PredictedTimes parsePredicted(const Node &node, const Manifest &manifest) {
  PredictedTimes times;
  auto expect = [](const Node &at, size_t found, size_t expected) {
    if (found != expected)
      at.error("expected " + str(int64_t(expected)) + " entries, found " +
               str(int64_t(found)));
  };
  for (const Node &entry : node.at("roles").list()) {
    PredictedTimes::Role role;
    role.slowdown = entry.at("slowdown").number();
    if (!(role.slowdown >= 1 && role.slowdown <= 2))
      entry.at("slowdown").error("expected a number from 1 to 2");
    size_t most = times.roles.size() < manifest.roles.size()
                      ? manifest.roles[times.roles.size()].layers.size()
                      : 0;
    for (const Node &layer : entry.at("layers").list()) {
      LayerTimes one;
      one.gather = duration(layer, "gather");
      one.forward = duration(layer, "forward");
      one.tpForward = duration(layer, "tp-forward");
      one.recompute = duration(layer, "recompute");
      one.backward = duration(layer, "backward");
      one.tpBackward = duration(layer, "tp-backward");
      one.split = layer.has("weight");
      one.weight = duration(layer, "weight");
      one.tpWeight = duration(layer, "tp-weight");
      if (one.weight > one.backward || one.tpWeight > one.tpBackward)
        layer.error("a weight part is longer than its backward pass");
      one.scatter = duration(layer, "scatter");
      one.sync = duration(layer, "sync");
      one.norm = duration(layer, "norm");
      one.update = duration(layer, "update");
      one.reshardForward = duration(layer, "reshard-forward");
      one.reshardBackward = duration(layer, "reshard-backward");
      role.layers.insert(role.layers.end(),
                         size_t(layer.at("count").integer(1, int64_t(most))),
                         one);
    }
    expect(entry.at("layers"), role.layers.size(), most);
    if (times.roles.size() < manifest.roles.size())
      for (const Chunk &chunk : manifest.roles[times.roles.size()].chunks)
        role.chunks.push_back(
            {chunk.number, chunk.firstLayer, chunk.layerCount});
    times.roles.push_back(std::move(role));
  }
  expect(node.at("roles"), times.roles.size(), manifest.roles.size());
  for (const Node &entry : node.at("cuts").list())
    times.cuts.push_back(
        {duration(entry, "activation"), duration(entry, "gradient")});
  expect(node.at("cuts"), times.cuts.size(), size_t(manifest.chunkCount) - 1);
  for (const Node &entry : node.at("ties").list()) {
    expect(node.at("ties"), node.at("ties").list().size(),
           manifest.ties.size());
    const Tie &tie = manifest.ties[times.ties.size()];
    times.ties.push_back({tie.owner.role, tie.borrower.role,
                          duration(entry, "reduce"),
                          duration(entry, "broadcast")});
  }
  return times;
}

void checkWorld(const Manifest &manifest) {
  std::vector<int> seen(manifest.world, 0);
  for (const Role &role : manifest.roles)
    for (int rank : role.devices)
      if (seen[rank]++)
        bad("roles", "rank " + str(rank) + " stands twice");
  for (int64_t rank = 0; rank < manifest.world; ++rank)
    if (!seen[rank])
      bad("roles", "rank " + str(rank) + " has no role");

  std::vector<int> homes(size_t(manifest.chunkCount), 0);
  for (const Role &role : manifest.roles)
    for (const Chunk &chunk : role.chunks) {
      if (chunk.number >= manifest.chunkCount)
        bad("roles",
            "chunk " + str(chunk.number) + " of " + str(manifest.chunkCount));
      if (homes[size_t(chunk.number)]++)
        bad("roles", "chunk " + str(chunk.number) + " stands twice");
    }

  std::vector<int> owners(manifest.parameters.size(), 0);
  for (const Role &role : manifest.roles)
    for (const Layer &layer : role.layers)
      for (const LayerTensor &tensor : layer.tensors)
        owners[tensor.parameter] += tensor.group == 0;
  for (size_t i = 0; i < owners.size(); ++i)
    if (owners[i] > 1 ||
        (owners[i] == 0 && manifest.parameters[i].alias.empty()))
      bad("parameters", "'" + manifest.parameters[i].name + "' has " +
                            str(owners[i]) + " owners, expected one");
}

} // namespace

const Chunk *Role::chunk(int number) const {
  for (const Chunk &chunk : chunks)
    if (chunk.number == number)
      return &chunk;
  return nullptr;
}

int64_t Parameter::elements() const {
  int64_t total = 1;
  for (int64_t dim : shape)
    total *= dim;
  return total;
}

int64_t LayerTensor::localElements() const {
  int64_t total = 1;
  for (int64_t dim : localShape)
    total *= dim;
  return total;
}

int64_t Layer::degree(grt_axis axis) const {
  for (const Level &level : levels)
    if (level.axis == axis)
      return level.degree;
  return 1;
}

const Datum *Manifest::tokens() const {
  for (const Datum &datum : data)
    if (datum.kind == "tokens")
      return &datum;
  return nullptr;
}

const Datum &Manifest::counted() const {
  return *std::find_if(data.begin(), data.end(),
                       [](const Datum &datum) { return datum.counted; });
}

int64_t Manifest::sequenceLength() const {
  const Datum *datum = tokens();
  return datum ? datum->elements() : 0;
}

uint64_t Manifest::elementBytes() const { return dtypeBytes(dtype); }

uint64_t Manifest::optimizerBytes(const Layer &layer) const {
  return uint64_t(layer.groups[0].shardElements) * accumulatorBytes() *
         uint64_t(optimizerStates() + (hasMasterWeights() ? 1 : 0));
}

uint64_t Manifest::masterOffset(const Layer &layer) const {
  return layer.optimizer + uint64_t(layer.groups[0].shardElements) *
                               accumulatorBytes() * uint64_t(optimizerStates());
}

uint64_t dtypeBytes(uint32_t dtype) {
  switch (dtype) {
  case GRT_F64:
    return 8;
  case GRT_BF16:
    return 2;
  case GRT_U8:
    return 1;
  default:
    return 4;
  }
}

const char *dtypeName(uint32_t dtype) {
  static const char *const names[] = {"f32", "f64", "bf16", "i32", "u8"};
  return dtype < 5 ? names[dtype] : "unknown";
}

Manifest parseManifest(std::string_view text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded())
    bad("", "not valid JSON");
  Node root(json, "");
  int64_t abi = root.at("abi").integer();
  if (abi != GRT_ABI_VERSION)
    bad("abi", "expected version " + str(GRT_ABI_VERSION) + ", found " +
                   str(abi) + ": compile again");
  Manifest manifest;
  if (root.has("tool-version"))
    manifest.toolVersion = root.at("tool-version").string();
  manifest.backend = root.at("target").at("backend").string();
  if (root.at("target").has("cpu"))
    manifest.targetCpu = root.at("target").at("cpu").string();
  std::string dtype = root.at("dtype").string();
  if (dtype == "f32")
    manifest.dtype = GRT_F32;
  else if (dtype == "f64")
    manifest.dtype = GRT_F64;
  else if (dtype == "bf16")
    manifest.dtype = GRT_BF16;
  else
    bad("dtype", "expected 'f32', 'f64' or 'bf16', found '" + dtype + "'");
  manifest.world = root.at("world").integer(1, 1 << 20);
  manifest.batch = root.at("batch").integer(1);
  manifest.microBatches = root.at("micro-batches").integer(1);
  if (manifest.batch % manifest.microBatches)
    bad("micro-batches", str(manifest.microBatches) +
                             " micro-batches do not divide a batch of " +
                             str(manifest.batch));
  parseData(root.at("data"), manifest);
  manifest.schedule = root.at("schedule").string();
  if (root.has("delay"))
    manifest.delay = root.at("delay").integer(0, 1);
  if (root.has("weight-versions"))
    manifest.weightVersions = root.at("weight-versions").integer(1, 2);
  // The older version is what gradients that are late are those of.
  if (manifest.weightVersions != manifest.delay + 1)
    bad("weight-versions", "expected " + str(manifest.delay + 1) +
                               " as gradients are " + str(manifest.delay) +
                               " batches late, found " +
                               str(manifest.weightVersions));
  Node training = root.at("training");
  manifest.optimizer = training.at("optimizer").string();
  if (manifest.optimizer != "adamw" && manifest.optimizer != "adam" &&
      manifest.optimizer != "sgd")
    training.at("optimizer")
        .error("expected 'adamw', 'adam' or 'sgd', found '" +
               manifest.optimizer + "'");
  manifest.clip = training.at("clip").boolean();
  if (manifest.clip && manifest.delay)
    training.at("clip").error("expected no clipping by the global norm where "
                              "updates do not wait for all ranks");
  manifest.modelConfig = root.at("model-config").json().dump(2);
  if (root.has("predicted-step-ms"))
    manifest.predictedStepMs = root.at("predicted-step-ms").number();
  if (root.has("flops-per-sample"))
    manifest.flopsPerSample = root.at("flops-per-sample").number();
  if (root.has("peak-flops"))
    manifest.peakFlops = root.at("peak-flops").number();
  for (const Node &node : root.at("functions").list())
    manifest.functions.push_back(node.string());
  for (const Node &node : root.at("parameters").list())
    manifest.parameters.push_back(parseParameter(node));
  for (const Node &node : root.at("exchanges").list())
    manifest.exchanges.push_back(parseExchange(node, manifest.world));
  for (const Node &node : root.at("roles").list())
    manifest.roles.push_back(parseRole(node, manifest));
  for (const Role &role : manifest.roles)
    manifest.chunkCount += int(role.chunks.size());
  for (const Node &node : root.at("ties").list()) {
    Tie tie;
    tie.parameter =
        int(node.at("parameter")
                .integer(0, int64_t(manifest.parameters.size()) - 1));
    tie.owner = parseTieEnd(node.at("owner"), manifest, tie.parameter, 0);
    tie.borrower = parseTieEnd(node.at("borrower"), manifest, tie.parameter, 1);
    manifest.ties.push_back(tie);
  }
  checkWorld(manifest);
  if (root.has("plan") && root.at("plan").has("nominal-cluster"))
    manifest.nominal = root.at("plan").at("nominal-cluster").boolean();
  // Laid out along a step that ends before the next begins.
  if (!manifest.delay && root.has("plan") &&
      root.at("plan").has("predicted-us"))
    manifest.predicted =
        parsePredicted(root.at("plan").at("predicted-us"), manifest);
  return manifest;
}

} // namespace grt
