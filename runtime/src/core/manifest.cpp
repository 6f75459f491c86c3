//===- manifest.cpp - Parsing and checking manifests ----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/manifest_node.h"
#include "core/nearest.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

namespace grt {

using namespace parsing;

namespace {

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
  } else if (kind == "constant") {
    parameter.constant = init.at("value").number();
  } else if (kind == "ones") {
    parameter.constant = 1;
  } else if (kind == "sinusoids") {
    parameter.init = InitKind::Sinusoids;
    if (parameter.shape.size() != 2)
      init.error("expected a matrix for kind 'sinusoids', found " +
                 str(parameter.shape.size()) + " dimensions");
  } else if (kind == "cache") {
    parameter.isCache = true;
  } else if (kind != "zeros") {
    init.error("expected kind 'normal', 'constant', 'zeros', 'ones', "
               "'sinusoids' or 'cache', found '" +
               kind + "'");
  }
  parameter.decay = node.at("decay").boolean();
  if (node.has("copies"))
    for (const Node &copy : node.at("copies").list())
      parameter.copies.push_back(copy.string());
  if (node.has("part")) {
    Node part = node.at("part");
    StoredPart stored{part.at("of").string(), part.at("first").integer(0),
                      part.at("count").integer(1),
                      part.at("stride").integer(1)};
    if (stored.count > stored.stride ||
        stored.first > stored.stride - stored.count)
      part.error("expected rows inside the stride of " + str(stored.stride) +
                 ", found " + str(stored.count) + " from " + str(stored.first) +
                 " on");
    if (parameter.shape[0] % stored.count)
      part.error("expected a multiple of its " + str(stored.count) +
                 " rows, found " + str(parameter.shape[0]));
    constexpr int64_t mostRows = int64_t(1) << 46;
    if (parameter.shape[0] / stored.count > mostRows / stored.stride)
      part.error("expected a tensor of at most 2^46 rows");
    parameter.part = std::move(stored);
  }
  return parameter;
}

/// The parts of a tensor have its rows, each row once.
void checkParts(const Node &node, const std::vector<Parameter> &parameters) {
  std::map<std::string, std::vector<const Parameter *>> tensors;
  std::set<std::string> names;
  for (const Parameter &parameter : parameters) {
    names.insert(parameter.name);
    if (parameter.part)
      tensors[parameter.part->of].push_back(&parameter);
  }
  for (auto &[name, parts] : tensors) {
    if (names.count(name))
      node.error("'" + name + "' is a parameter and a tensor of several");
    std::sort(parts.begin(), parts.end(), [](const auto *a, const auto *b) {
      return a->part->first < b->part->first;
    });
    int64_t end = 0;
    for (const Parameter *parameter : parts) {
      if (parameter->part->first != end ||
          parameter->storedShape() != parts.front()->storedShape())
        node.error("the parts of '" + name +
                   "' do not fill its rows once each: '" + parameter->name +
                   "' has rows from " + str(parameter->part->first) +
                   " on, expected " + str(end));
      end += parameter->part->count;
    }
    if (end != parts.front()->part->stride)
      node.error("the parts of '" + name + "' have " + str(end) + " of " +
                 str(parts.front()->part->stride) + " rows");
  }
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

/// The name of an exchange inside functions, the usual one if absent.
std::string exchangeName(const Node &node, const char *key) {
  return node.has(key) ? node.at(key).string() : ExchangeNames().forward;
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
      one.exchanges.forward = exchangeName(layer, "exchange-forward");
      one.exchanges.backward = exchangeName(layer, "exchange-backward");
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
      one.swapParameters = duration(layer, "swap-parameters");
      one.swapGradients = duration(layer, "swap-gradients");
      one.swapOptimizer = duration(layer, "swap-optimizer");
      one.swapKept = duration(layer, "swap-kept");
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
  if (manifest.hasPacks) {
    for (const Node &entry : node.at("stashes").list())
      times.stashes.push_back(duration(entry, "activation"));
    expect(node.at("stashes"), times.stashes.size(),
           size_t(manifest.chunkCount));
    // Layers are copied whole, so an entry is not one of the program's ties.
    auto most = int64_t(manifest.roles.size()) - 1;
    for (const Node &entry : node.at("ties").list())
      times.ties.push_back({int(entry.at("owner").integer(0, most)),
                            int(entry.at("borrower").integer(0, most)),
                            duration(entry, "reduce"),
                            duration(entry, "broadcast"),
                            entry.has("forward-only")});
    return times;
  }
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

std::vector<PlannedNodes> parseNodes(const Node &node, int64_t world) {
  std::vector<PlannedNodes> nodes;
  int64_t devices = 0;
  auto bandwidth = [](const Node &entry, const char *key) {
    if (!entry.has(key))
      return 0.0;
    double value = entry.at(key).number();
    if (!(value > 0 && value <= 1e18))
      entry.at(key).error("expected bytes per second above 0");
    return value;
  };
  for (const Node &entry : node.list()) {
    PlannedNodes group;
    group.count = entry.at("count").integer(1, world);
    group.devices = entry.at("devices").integer(1, world);
    group.bandwidth = bandwidth(entry, "bandwidth");
    group.networkBandwidth = bandwidth(entry, "network-bandwidth");
    devices += group.count * group.devices;
    if (devices > world)
      break;
    nodes.push_back(group);
  }
  if (devices != world)
    node.error("expected the devices of " + str(world) + " ranks, found " +
               (devices > world ? "more" : str(devices)));
  return nodes;
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
        owners[tensor.parameter] += !tensor.isBorrowed();
  for (size_t i = 0; i < owners.size(); ++i)
    if (owners[i] != 1)
      bad("parameters", "'" + manifest.parameters[i].name + "' has " +
                            str(owners[i]) + " owners, expected one");
}

/// The shape of a matrix as files have it, of one parameter or of its parts.
std::vector<int64_t> storedMatrix(const Node &node, const Manifest &manifest,
                                  const std::string &name) {
  const std::vector<int> parts = manifest.parametersOf(name);
  if (parts.empty())
    node.error("expected a parameter '" + name + "', found none");
  const Parameter &first = manifest.parameters[size_t(parts.front())];
  if (first.shape.size() != 2)
    node.error("expected '" + name + "' to be a matrix");
  return first.storedShape();
}

/// Adapters whose parameters are there, with matrices that fit together.
void parseAdapters(const Node &node, Manifest &manifest) {
  Adapters &adapters = manifest.adapters;
  adapters.rank = node.at("rank").integer(1);
  adapters.alpha = node.at("alpha").number();
  adapters.inFirst = node.at("in-first").boolean();
  for (const Node &entry : node.at("modules").list())
    adapters.modules.push_back(entry.string());
  auto expectAll = [&](const char *key, size_t found) {
    if (found != adapters.modules.size())
      node.at(key).error("expected one for each of the " +
                         str(adapters.modules.size()) + " modules, found " +
                         str(found));
  };
  if (node.has("ranks")) {
    for (const Node &entry : node.at("ranks").list())
      adapters.ranks.push_back(entry.integer(1));
    expectAll("ranks", adapters.ranks.size());
  }
  if (node.has("alphas")) {
    for (const Node &entry : node.at("alphas").list())
      adapters.alphas.push_back(entry.number());
    expectAll("alphas", adapters.alphas.size());
  }
  const std::vector<Node> entries = node.at("modules").list();
  for (size_t i = 0; i < entries.size(); ++i) {
    const std::string &module = adapters.modules[i];
    auto shapeOf = [&](const std::string &name) {
      return storedMatrix(entries[i], manifest, name);
    };
    std::vector<int64_t> weight = shapeOf(Adapters::weightOf(module));
    if (adapters.inFirst)
      std::swap(weight[0], weight[1]);
    const int64_t rank = adapters.rankOf(i);
    if (shapeOf(Adapters::firstOf(module)) !=
            std::vector<int64_t>{rank, weight[1]} ||
        shapeOf(Adapters::secondOf(module)) !=
            std::vector<int64_t>{weight[0], rank})
      entries[i].error("expected matrices of rank " + str(rank) +
                       " that fit the weight");
  }
}

} // namespace

static JsonTree parsedTree(std::string_view text) {
  std::optional<JsonTree> tree = JsonTree::parse(text);
  if (!tree)
    bad("", "not valid JSON");
  return std::move(*tree);
}

Document::Document(std::string_view text) : tree(parsedTree(text)) {}

void Document::check() const {
  std::vector<uint32_t> open; // what is around a value
  for (uint32_t value = 0; value < tree.size();) {
    while (!open.empty() && tree.end(open.back()) <= value)
      open.pop_back();
    if (tree.isMember(value) && !tree.wasAskedFor(value)) {
      if (!free.contains(open.back()))
        refuse(open.back(), value);
      value = tree.end(value);
      continue;
    }
    if (tree.isContainer(value))
      open.push_back(value);
    ++value;
  }
}

void Document::refuse(uint32_t object, uint32_t member) const {
  std::vector<std::string> known;
  auto add = [&](std::string_view key) {
    if (std::ranges::find(known, key) == known.end())
      known.emplace_back(key);
  };
  for (uint32_t each = object + 1; each < tree.end(object);
       each = tree.end(each))
    if (tree.wasAskedFor(each))
      add(tree.key(each));
  for (const auto &[of, key] : absent)
    if (of == object)
      add(key);
  const std::string key(tree.key(member)), path = tree.pathOf(member);
  if (std::ranges::find(known, key) != known.end())
    bad(path, "stands twice");
  std::string expected = nearestName(key, known);
  if (!expected.empty())
    expected = "expected '" + expected + "'";
  for (size_t i = 0; i < known.size() && !expected.starts_with("expected '");
       ++i)
    expected += (i ? ", '" : "expected keys '") + known[i] + "'";
  bad(path,
      "unknown key; " + (expected.empty() ? "expected none here" : expected));
}

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

std::vector<int64_t> Parameter::storedShape() const {
  std::vector<int64_t> stored = shape;
  if (part)
    stored[0] = shape[0] / part->count * part->stride;
  return stored;
}

int64_t LayerTensor::localElements() const {
  int64_t total = 1;
  for (int64_t dim : localShape)
    total *= dim;
  return total;
}

int64_t Layer::degree(grt_axis axis) const {
  int64_t product = 1;
  for (const Level &level : levels)
    if (level.isOn(axis))
      product *= level.degree;
  return product;
}

std::vector<int> Manifest::nodeOfRank() const {
  std::vector<int> result;
  int number = 0;
  for (const PlannedNodes &group : nodes)
    for (int64_t i = 0; i < group.count; ++i, ++number)
      result.insert(result.end(), size_t(group.devices), number);
  return result;
}

const Datum *Manifest::tokens() const {
  for (const Datum &datum : data)
    if (datum.kind == "tokens")
      return &datum;
  return nullptr;
}

const Datum *Manifest::decoderTokens() const {
  const Datum *first = tokens();
  for (const Datum &datum : data)
    if (&datum != first && datum.kind == "tokens")
      return &datum;
  return nullptr;
}

bool Manifest::predictsTokens() const {
  const Datum *first = tokens(), *decoder = decoderTokens();
  if (!first)
    return false;
  for (const Datum &datum : data) {
    bool isMask =
        decoder && datum.kind == "mask" && datum.shape == first->shape;
    // A prompt is one document.
    bool areStarts = datum.kind == "document_starts";
    if (&datum != first && &datum != decoder && !datum.counted && !isMask &&
        !areStarts)
      return false;
  }
  return counted().shape == (decoder ? decoder : first)->shape;
}

const Datum *Manifest::datumOf(const char *kind) const {
  for (const Datum &datum : data)
    if (datum.kind == kind)
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

std::string Adapters::weightOf(const std::string &module) {
  return module + ".weight";
}
std::string Adapters::firstOf(const std::string &module) {
  return "base_model.model." + module + ".lora_A.weight";
}
std::string Adapters::secondOf(const std::string &module) {
  return "base_model.model." + module + ".lora_B.weight";
}

std::vector<int> Manifest::parametersOf(const std::string &tensor) const {
  std::vector<int> numbers;
  for (size_t i = 0; i < parameters.size(); ++i)
    if (tensor ==
        (parameters[i].part ? parameters[i].part->of : parameters[i].name))
      numbers.push_back(int(i));
  return numbers;
}

uint64_t Manifest::elementBytes() const { return dtypeBytes(dtype); }

uint64_t Manifest::optimizerBytes(const Layer &layer) const {
  return uint64_t(layer.ownedElements()) * accumulatorBytes() *
         uint64_t(optimizerStates() + (hasMasterWeights() ? 1 : 0));
}

bool Manifest::hasHomes() const {
  return std::any_of(roles.begin(), roles.end(),
                     [](const Role &role) { return role.homeBytes > 0; });
}

uint64_t Manifest::masterOffset(const Layer &layer) const {
  return layer.optimizer + uint64_t(layer.ownedElements()) *
                               accumulatorBytes() * uint64_t(optimizerStates());
}

int Manifest::peerOf(const grt_transfer_part &part) const {
  int number = part.chunk;
  bool sends = part.direction == GRT_SEND;
  if (part.value == GRT_STASH) {
    const Chunk *at = chunk(sends ? part.peer_chunk : number);
    if (!at || at->stashFrom < 0)
      return -1;
    return sends ? (at->stashFrom == number ? part.peer_chunk : -1)
                 : at->stashFrom;
  }
  bool isGradient = part.value == GRT_GRADIENT;
  // Forward packs are a chain that ends in the last chunk, the others one in
  // which gradients go.
  if (hasPacks && !isGradient) {
    // What is regrouped goes home instead.
    if (regroups() &&
        (sends ? number + 1 == forwardPacks : number + 1 == chunkCount))
      return -1;
    if (sends)
      return number >= forwardPacks       ? -1
             : number + 1 == forwardPacks ? chunkCount - 1
                                          : number + 1;
    return number + 1 == chunkCount ? forwardPacks - 1
           : number < forwardPacks  ? number - 1
                                    : -1;
  }
  int peer = number + (sends != isGradient ? 1 : -1);
  return peer < chunkCount && std::min(peer, number) >= forwardPacks ? peer
                                                                     : -1;
}

int Manifest::stashLayer(const Role &role, const Chunk &sender,
                         const Chunk &receiver) {
  for (size_t i = sender.firstLayer; i < sender.endLayer(); ++i)
    if (receiver.stashFrom == sender.number &&
        role.layers[i].index == receiver.firstIndex)
      return int(i);
  return -1;
}

const Chunk *Manifest::chunk(int number) const {
  for (const Role &role : roles)
    if (const Chunk *found = role.chunk(number))
      return found;
  return nullptr;
}

Manifest parseManifest(std::string_view text) {
  Document document(text);
  const Node root(document);
  int64_t abi = root.at("abi").integer();
  if (abi != GRT_ABI_VERSION)
    bad("abi", "expected version " + str(GRT_ABI_VERSION) + ", found " +
                   str(abi) + ": compile again");
  Manifest manifest;
  if (root.has("tool-version"))
    manifest.toolVersion = root.at("tool-version").string();
  manifest.backend = root.at("target").at("backend").string();
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
  if (root.has("nodes"))
    manifest.nodes = parseNodes(root.at("nodes"), manifest.world);
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
  manifest.hasPacks = root.has("forward-packs");
  if (manifest.hasPacks)
    manifest.forwardPacks = int(root.at("forward-packs").integer(0, 1 << 16));
  manifest.forwardMicroBatches = manifest.microBatches;
  if (root.has("forward-micro-batches")) {
    int64_t forward = root.at("forward-micro-batches").integer(1);
    auto [few, many] = std::minmax(forward, manifest.microBatches);
    if (!manifest.forwardPacks || manifest.batch % forward || many % few)
      bad("forward-micro-batches",
          "expected forward packs, and a divisor of the batch of " +
              str(manifest.batch) + " that divides " +
              str(manifest.microBatches) + " or is a multiple, found " +
              str(forward));
    manifest.forwardMicroBatches = forward;
  }
  Node training = root.at("training");
  manifest.optimizer = training.at("optimizer").string();
  if (manifest.optimizer != "adamw" && manifest.optimizer != "adam" &&
      manifest.optimizer != "sgd")
    training.at("optimizer")
        .error("expected 'adamw', 'adam' or 'sgd', found '" +
               manifest.optimizer + "'");
  manifest.clip = training.at("clip").boolean();
  auto lossTerm = [&](const char *name, double limit) {
    if (!training.has(name))
      return 0.0;
    const double value = training.at(name).number();
    if (!(value >= 0 && value < limit))
      training.at(name).error("expected a number from 0 to below " +
                              std::to_string(limit) + ", found " +
                              std::to_string(value));
    return value;
  };
  manifest.labelSmoothing = lossTerm("label-smoothing", 1);
  manifest.zLoss = lossTerm("z-loss", 1e6);
  if (manifest.labelSmoothing != 0 || manifest.zLoss != 0)
    manifest.lossValues = 2;
  // The functions have these already.
  if (training.has("dtype") && training.at("dtype").string() != dtype)
    training.at("dtype").error("expected '" + dtype + "', found '" +
                               training.at("dtype").string() + "'");
  if (training.has("dropout"))
    training.at("dropout").boolean();
  if (training.has("decay-all"))
    manifest.decayAll = training.at("decay-all").boolean();
  // It is printed, and written into folders of weights.
  const auto config = nlohmann::ordered_json::parse(
      root.at("model-config").json(), nullptr, /*allow_exceptions=*/false);
  if (config.is_discarded())
    root.at("model-config").error("not valid JSON");
  manifest.modelConfig = config.dump(2);
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
  checkParts(root.at("parameters"), manifest.parameters);
  for (const Node &node : root.at("exchanges").list())
    manifest.exchanges.push_back(parseExchange(node, manifest.world));
  for (const Node &node : root.at("roles").list())
    manifest.roles.push_back(parseRole(node, manifest));
  for (const Role &role : manifest.roles)
    manifest.chunkCount += int(role.chunks.size());
  // The last chunk takes what the last of them gives, and learns from it.
  if (manifest.hasPacks && manifest.forwardPacks >= manifest.chunkCount)
    bad("forward-packs", "expected less than the " + str(manifest.chunkCount) +
                             " chunks, found " + str(manifest.forwardPacks));
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
  if (root.has("adapters"))
    parseAdapters(root.at("adapters"), manifest);
  if (root.has("plan")) {
    // A plan may have more keys than its readers know.
    const Node plan = root.at("plan");
    plan.allowOthers();
    if (plan.has("nominal-cluster"))
      manifest.nominal = plan.at("nominal-cluster").boolean();
    // Laid out along a step that ends before the next begins.
    if (!manifest.delay && plan.has("predicted-us"))
      manifest.predicted = parsePredicted(plan.at("predicted-us"), manifest);
  }
  document.check();
  return manifest;
}

std::vector<StoredParameter> storedParameters(const Manifest &manifest) {
  std::vector<StoredParameter> stored;
  for (const Role &role : manifest.roles)
    for (const Layer &layer : role.layers)
      for (const LayerTensor &tensor : layer.tensors)
        if (!tensor.isBorrowed() &&
            !manifest.parameters[size_t(tensor.parameter)].isCache)
          stored.push_back({tensor.parameter, tensor.isFrozen()});
  std::sort(stored.begin(), stored.end(),
            [&](const StoredParameter &a, const StoredParameter &b) {
              return manifest.parameters[size_t(a.index)].name <
                     manifest.parameters[size_t(b.index)].name;
            });
  return stored;
}

} // namespace grt
