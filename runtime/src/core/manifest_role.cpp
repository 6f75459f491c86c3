//===- manifest_role.cpp - Roles, their layers and arenas -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/manifest_node.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

namespace grt {

using namespace parsing;

namespace {

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
    copy.ofForwardPacks = entry.has("of-forward-packs");
    if (copy.ofForwardPacks && !manifest.regroups())
      entry.at("of-forward-packs")
          .error("expected micro-batches of two sizes, found one");
    int64_t count = manifest.microBatchesOf(copy.ofForwardPacks);
    if (copy.extent.bytes % uint64_t(count))
      entry.at("extent").error("expected as many bytes for each of " +
                               str(count) + " micro-batches, found " +
                               str(int64_t(copy.extent.bytes)));
    if (!role.copies.empty() &&
        copy.extent.offset <
            role.copies.back().extent.offset + role.copies.back().extent.bytes)
      entry.at("extent").error("begins in the copy before it");
    role.copies.push_back(copy);
  }
}

LayerTensor parseTensor(const Node &node, const Manifest &manifest,
                        int64_t tp) {
  LayerTensor tensor;
  tensor.parameter = int(
      node.at("parameter").integer(0, int64_t(manifest.parameters.size()) - 1));
  tensor.group = int(node.at("group").integer(0, 3));
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

/// A kind of levels: the axis that their ranks are on, and what these cut or
/// replicate.
struct LevelKind {
  const char *name;
  grt_axis axis;
  bool cutsPositions, cutsStateOnly, replicates;
};
constexpr LevelKind levelKinds[] = {
    {"dp", GRT_AXIS_DP, false, false, false},
    {"sdp", GRT_AXIS_SDP, false, false, false},
    {"tp", GRT_AXIS_TP, false, false, false},
    {"zdp", GRT_AXIS_SDP, false, true, false},
    {"cp", GRT_AXIS_DP, true, false, false},
    {"scp", GRT_AXIS_SDP, true, false, false},
    {"zcp", GRT_AXIS_SDP, true, true, false},
    {"replica", GRT_AXIS_TP, false, false, true}};

const LevelKind &levelKindOf(const Node &entry) {
  const std::string name = entry.at("kind").string();
  std::string known;
  for (const LevelKind &kind : levelKinds) {
    if (name == kind.name)
      return kind;
    const bool isFirst = &kind == levelKinds;
    const bool isLast = &kind + 1 == std::end(levelKinds);
    known += std::string(isFirst  ? "'"
                         : isLast ? " or '"
                                  : ", '") +
             kind.name + "'";
  }
  entry.error("expected kind " + known + ", found '" + name + "'");
}

/// Says also, of the layer, what its axes do.
std::vector<Level> parseLevels(const Node &node, size_t devices, Layer &layer) {
  std::vector<Level> levels;
  bool &cutsStateOnly = layer.cutsStateOnly;
  bool holdsWhole = false, shardsParameters = false, cutsPositions = false;
  std::set<std::pair<grt_axis, bool>> seen;
  for (const Node &entry : node.list()) {
    Level level;
    const LevelKind &kind = levelKindOf(entry);
    level.axis = kind.axis;
    level.cutsPositions = kind.cutsPositions;
    cutsStateOnly |= kind.cutsStateOnly;
    holdsWhole |= kind.axis == GRT_AXIS_DP;
    shardsParameters |= kind.axis == GRT_AXIS_SDP && !kind.cutsStateOnly;
    layer.replicated |= kind.replicates;
    // One level of a kind, and one that cuts positions.
    if (!seen.insert({level.axis, level.cutsPositions}).second ||
        (level.cutsPositions && std::exchange(cutsPositions, true)) ||
        (cutsStateOnly && (holdsWhole || shardsParameters)))
      entry.error(std::string("kind '") + kind.name +
                  "' stands twice, or beside one that it cannot stand beside");
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
  int64_t held = layer.cutsStateOnly ? 1 : sdp;
  std::vector<Node> groups = node.at("groups").list();
  if (groups.size() > std::size(layer.groups))
    node.at("groups").error("expected at most four groups");
  if (groups.size() > 2 && (manifest.hasPacks || manifest.weightVersions > 1))
    node.at("groups").error("expected all parameters to be trained in packs "
                            "and with older versions of parameters");
  for (size_t g = 0; g < groups.size(); ++g) {
    FlatGroup &group = layer.groups[g];
    group.elements = groups[g].at("elements").integer();
    group.shardElements = groups[g].at("shard-elements").integer();
    if (group.shardElements * held != group.elements)
      groups[g].error("expected " + str(held) + " shards of " +
                      str(group.shardElements) + " elements to make " +
                      str(group.elements));
    // Of borrowed and frozen parameters nobody has a part to update.
    int64_t parts = g == 0 ? sdp / held : 1;
    uint64_t shard = uint64_t(group.shardElements) * manifest.elementBytes();
    if (group.shardElements % parts || shard / uint64_t(parts) % GRT_ALIGNMENT)
      groups[g].error("shard is not a multiple of " + str(GRT_ALIGNMENT) +
                      " bytes");
  }
  for (const Node &entry : node.at("tensors").list()) {
    LayerTensor tensor = parseTensor(
        entry, manifest, layer.replicated ? 1 : layer.degree(GRT_AXIS_TP));
    if (layer.replicated && tensor.tpDim >= 0)
      entry.at("tp-dim").error("nothing of the layer is cut");
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
  if (layer.degree(GRT_AXIS_SDP) == 1 || layer.cutsStateOnly)
    node.error("nothing of the layer is sharded");
  gathered.offset = node.at("offset").offset();
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
  const auto held = uint64_t(layer.heldElements());
  const uint64_t gradientBytes =
      uint64_t(layer.trainedElements()) * manifest.accumulatorBytes();
  layer.parameter = node.at("parameter").offset();
  layer.updatesOnDevice = node.has("resident-optimizer");
  if (layer.updatesOnDevice &&
      (!manifest.hasPacks || layer.forwardOnly || manifest.clip))
    node.at("resident-optimizer")
        .error(
            "expected it of packs that run backward, without clipping, only");
  if (!layer.updatesOnDevice)
    layer.gradient = node.at("gradient").offset();
  layer.optimizer = node.at("optimizer").offset();
  // Of a role with a home only some layers may have theirs there.
  layer.isAway = role.homeBytes > 0 && node.has("resident-parameter");
  const bool stays = role.homeBytes > 0 && !layer.isAway;
  const Extent &gradients = stays ? role.residentGradients : role.gradients;
  const Extent &optimizer = stays ? role.residentOptimizer : role.optimizer;
  Extent newest = stays ? role.residentParameters : role.parameters;
  if (!stays)
    newest.bytes = manifest.versionStride(role);
  if (held &&
      !contains(newest, layer.parameter, held * manifest.elementBytes()))
    node.at("parameter").error("parameters leave their region");
  bool learns = gradientBytes && !layer.forwardOnly;
  if (learns && !layer.updatesOnDevice &&
      !contains(gradients, layer.gradient, gradientBytes))
    node.at("gradient").error("gradients leave their region");
  uint64_t state = manifest.optimizerBytes(layer);
  if (state && !contains(optimizer, layer.optimizer, state))
    node.at("optimizer").error("optimizer state leaves its region");

  layer.residentParameter = layer.parameter;
  layer.residentGradient = layer.gradient;
  if (stays && manifest.hasPacks)
    node.error("expected 'resident-parameter', as packs have all states at "
               "home");
  if (layer.isAway) {
    layer.residentParameter = node.at("resident-parameter").offset();
    layer.residentGradient = node.at("resident-gradient").offset();
    if (held && !contains(role.residentParameters, layer.residentParameter,
                          held * manifest.elementBytes()))
      node.at("resident-parameter").error("parameters leave their region");
    if (learns && !contains(role.residentGradients, layer.residentGradient,
                            gradientBytes))
      node.at("resident-gradient").error("gradients leave their region");
    if (layer.updatesOnDevice)
      layer.residentOptimizer = node.at("resident-optimizer").offset();
    if (layer.updatesOnDevice && state &&
        !contains(role.residentParameters, layer.residentOptimizer, state))
      node.at("resident-optimizer").error("optimizer state leaves its region");
  }

  layer.stash = node.at("stash").offset();
  layer.inputBytes = uint64_t(node.at("input-bytes").integer());
  layer.stashBytes = uint64_t(node.at("stash-bytes").integer());
  // What a layer that runs forward only keeps is temporary.
  uint64_t kept = layer.forwardOnly ? 0 : layer.stashBytes;
  layer.keptAway = node.has("kept-away");
  if (layer.keptAway && node.has("inputs"))
    node.at("kept-away")
        .error("expected activations with one tensor between "
               "two layers");
  uint64_t room = layer.keptAway ? role.awaySlot.bytes : role.slotBytes;
  if (layer.stash + alignUp(layer.inputBytes) + kept > room &&
      layer.inputBytes + kept)
    node.at("stash").error(
        "stash ends at byte " +
        str(int64_t(layer.stash + alignUp(layer.inputBytes) + kept)) +
        " of a slot of " + str(int64_t(room)));
  layer.transient = node.at("transient").offset();
  layer.transientBytes = uint64_t(node.at("transient-bytes").integer());
  layer.recomputeStashBytes =
      uint64_t(node.at("recompute-stash-bytes").integer());
  // Behind the only slot, and behind every slot with a window, the transient
  // region follows.
  uint64_t limit = role.slotBytes;
  if (role.transient.offset == role.slots.offset + role.slotBytes &&
      (role.slotsInArena() == 1 || role.window.offset == role.transient.offset))
    limit +=
        role.slotsInArena() == 1 ? role.transient.bytes : role.window.bytes;
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
  layer.forwardTransient = node.at("forward-transient").offset();
  layer.forwardTransientBytes =
      uint64_t(node.at("forward-transient-bytes").integer());
  // What a layer without a backward pass keeps is in front of them.
  checkEnd("forward-transient", layer.forwardTransient,
           (layer.forwardOnly ? alignUp(layer.stashBytes) : 0) +
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
    if (offset % GRT_ALIGNMENT)
      row.error("expected places that are multiples of " + str(GRT_ALIGNMENT) +
                " bytes, found " + str(offset));
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
             given = read.extent.bytes /
                     uint64_t(manifest.microBatchesOf(read.ofForwardPacks));
    if (read.ofForwardPacks != (layer.forwardOnly && manifest.regroups()))
      copy.error("is in micro-batches of another size than the layer's");
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
}

Layer parseLayer(const Node &node, const Manifest &manifest, const Role &role,
                 size_t layerNumber, const Chunk &chunk) {
  Layer layer;
  layer.name = node.at("name").string();
  layer.index = node.at("index").integer();
  layer.dropoutKey =
      node.has("dropout-key") ? node.at("dropout-key").integer() : layer.index;
  layer.strategy = node.at("strategy").string();
  layer.levels = parseLevels(node.at("levels"), role.devices.size(), layer);
  layer.samples = node.at("samples").integer(1);
  layer.forwardOnly = chunk.forwardOnly;
  int64_t blocks = layer.sampleBlocks();
  int64_t expected = manifest.samplesPerMicroBatch(layer.forwardOnly);
  if (blocks * layer.samples != expected)
    node.at("samples").error(str(blocks) + " blocks of " + str(layer.samples) +
                             " samples, expected a micro-batch of " +
                             str(expected));
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
  if (role.slotStride > uint64_t(largest) / uint64_t(role.slotsInArena()))
    window.error("is too large");
  uint64_t last = role.window.offset +
                  uint64_t(role.slotsInArena() - 1) * role.slotStride +
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
      {"workspace", &role.workspace},
      {"away-slot", &role.awaySlot}};
  // It decides how many slots the arena has.
  if (node.has("away-slot"))
    role.awaySlot = parseExtent(node.at("away-slot"));
  parseWindow(node, role);
  Extent whole{0, role.addressBytes()};
  for (const auto &[name, extent] : regions) {
    if (extent == &role.workspace && !node.has(name))
      continue;
    if (extent == &role.awaySlot && !node.has(name))
      continue;
    if (extent == &role.optimizer && role.homeBytes > 0 && !node.has(name))
      continue;
    *extent = parseExtent(node.at(name));
    if (!contains(whole, extent->offset, extent->bytes))
      node.at(name).error("leaves the arena of " +
                          str(int64_t(role.arenaBytes)) + " bytes");
  }
  // Both buffers as one extent of two halves, or each with its own extent.
  Node boundary = node.at("boundary");
  std::vector<Node> entries = boundary.list();
  const bool several = role.chunks.size() > 1 || manifest.hasPacks;
  const size_t wanted = manifest.hasPacks ? 4 * role.chunks.size() : 4;
  if ((entries.size() == wanted || (entries.size() == 2 && !several)) &&
      entries[0].isList()) {
    for (const Node &entry : entries)
      role.boundary.push_back(parseExtent(entry));
  } else if (several) {
    boundary.error("expected " + str(int64_t(wanted)) +
                   " buffers, as the role has several chunks");
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
  if (manifest.hasPacks) {
    role.packs = parseExtent(node.at("packs"));
    if (!contains(whole, role.packs.offset, role.packs.bytes))
      node.at("packs").error("leaves the arena of " +
                             str(int64_t(role.arenaBytes)) + " bytes");
    for (const Chunk &chunk : role.chunks)
      if (role.waitingPlaces &&
          chunk.waitingBytes > role.packs.bytes / role.waitingPlaces)
        node.at("packs").error(
            "has " + str(int64_t(role.packs.bytes)) + " bytes, too few for " +
            str(int64_t(role.waitingPlaces)) + " messages of " +
            str(int64_t(chunk.waitingBytes)));
  }
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
        role.loss.bytes <
            uint64_t(manifest.microBatches) * manifest.lossBytes())
      node.at("arena").at("loss").error("expected " + str(manifest.lossValues) +
                                        " f64 per micro-batch");
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
  chunk.slots =
      uint32_t(node.at("slots").integer(manifest.hasPacks ? 0 : 1, mostSlots));
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
  if (manifest.hasPacks) {
    bool forwardOnly = chunk.number < manifest.forwardPacks;
    if (node.has("forward-only") != forwardOnly)
      node.at("number").error("expected the first " +
                              str(manifest.forwardPacks) +
                              " chunks to run forward only, and no others");
    chunk.forwardOnly = forwardOnly;
    chunk.recvStash = optionalIndex(node, "recv-stash", exchanges);
    chunk.waitingBytes = node.at("waiting-bytes").offset();
    if (chunk.recvStash >= 0)
      chunk.stashFrom =
          int(node.at("stash-from").integer(0, manifest.forwardPacks - 1));
    if ((chunk.recvStash >= 0) != (chunk.slots > 0))
      node.at("slots").error("expected slots at home of a chunk that "
                             "recomputes, and of no other, found " +
                             str(int64_t(chunk.slots)));
  }
  role.slotCount += chunk.slots;
  if (role.slotCount > mostSlots)
    node.at("slots").error("expected at most " + str(mostSlots) +
                           " slots of a role, found " + str(role.slotCount));
  role.chunks.push_back(chunk);
}

/// The arena has what is resident, and the home the states.
void parseHome(const Node &node, const Manifest &manifest, Role &role) {
  role.residentParameters = role.parameters;
  role.residentGradients = role.gradients;
  role.residentOptimizer = role.optimizer;
  Extent whole{0, role.homeBytes};
  for (const auto &[name, extent] : {std::pair("parameters", &role.parameters),
                                     {"gradients", &role.gradients},
                                     {"optimizer", &role.optimizer}}) {
    *extent = parseExtent(node.at(name));
    if (!contains(whole, extent->offset, extent->bytes))
      node.at(name).error("leaves the home of " + str(int64_t(role.homeBytes)) +
                          " bytes");
  }
  if (role.slotsAtHome) {
    role.homeSlots = parseExtent(node.at("slots"));
    if (!contains(whole, role.homeSlots.offset, role.homeSlots.bytes))
      node.at("slots").error("leaves the home of " +
                             str(int64_t(role.homeBytes)) + " bytes");
    role.homeSlotBytes = node.has("slot-bytes")
                             ? uint64_t(node.at("slot-bytes").integer())
                         : manifest.hasPacks ? 0
                                             : role.slotBytes;
  }
  if (manifest.delay)
    node.error("schedule '" + manifest.schedule +
               "' needs all states in the arena");
}

} // namespace

Role parsing::parseRole(const Node &node, const Manifest &manifest) {
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
  if (node.has("home"))
    role.homeBytes = uint64_t(node.at("home").at("bytes").integer(1));
  role.slotsAtHome = role.homeBytes > 0 && node.at("home").has("slots");
  if (manifest.hasPacks && !role.slotsAtHome)
    node.error("packs need states and slots with their home on the host");
  if (manifest.hasPacks)
    role.waitingPlaces =
        uint64_t(node.at("waiting-places").integer(0, 1 << 16));
  parseArena(node.at("arena"), manifest, role);
  if (role.homeBytes > 0)
    parseHome(node.at("home"), manifest, role);
  if (node.has("ledger")) {
    uint64_t sum = 0;
    for (const auto &[key, value] : node.at("ledger").entries()) {
      uint64_t bytes = uint64_t(value.integer());
      role.ledger[key] = bytes;
      sum += bytes;
    }
    if (sum != role.arenaBytes)
      node.at("ledger").error("sums to " + str(int64_t(sum)) +
                              " bytes, expected the arena's " +
                              str(int64_t(role.arenaBytes)));
  }
  if (uint64_t(role.slotsInArena() - 1) * role.slotStride + role.slotBytes >
      role.slots.bytes)
    node.at("chunks").error(str(role.slotsInArena()) + " slots of " +
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
  for (Chunk &chunk : role.chunks) {
    chunk.firstIndex = role.layers[chunk.firstLayer].index;
    for (size_t i = chunk.firstLayer; i < chunk.endLayer(); ++i)
      if (role.layers[i].updatesOnDevice !=
          role.layers[chunk.firstLayer].updatesOnDevice)
        layers[i].error("expected all layers of chunk " + str(chunk.number) +
                        " to be updated on the device, or none");
  }
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

} // namespace grt
