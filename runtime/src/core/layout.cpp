//===- layout.cpp - Which rank holds what ---------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/layout.h"
#include "base/error.h"
#include "core/exchange_check.h"
#include "core/live_tensors.h"
#include "grt/axes.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

namespace grt {
namespace {

/// An interval of a parameter's elements that a rank holds, and where it starts
/// in the region. A tensor that is cut along another dimension than its first
/// has many.
struct HeldInterval {
  int rank;
  int64_t begin, end;
  int64_t held;
};

/// The most intervals of one end of a tie.
constexpr size_t mostIntervals = size_t(1) << 22;

std::vector<HeldInterval> heldIntervals(const Manifest &manifest,
                                        const TieEnd &end) {
  const Role &role = manifest.roles[end.role];
  const Layer &layer = role.layers[end.layer];
  const LayerTensor &tensor = layer.tensors[end.tensor];
  size_t intervals = role.devices.size();
  for (int i = 0; i < tensor.tpDim; ++i)
    if (__builtin_mul_overflow(intervals, size_t(tensor.view[i]), &intervals))
      intervals = mostIntervals + 1;
  if (intervals > mostIntervals)
    invalid("ties: a tensor of layer '" + layer.name +
            "' is held in more than " + str(mostIntervals) + " pieces");
  std::vector<HeldInterval> result;
  for (size_t local = 0; local < role.devices.size(); ++local)
    forEachRun(layer, tensor, int(local), [&](const TensorRun &run) {
      if (run.owned)
        result.push_back({role.devices[local], run.global,
                          run.global + run.count, run.held});
    });
  return result;
}

/// Collects rows by (source, destination) and sorts them into tables of some
/// ranks.
class TableBuilder {
public:
  explicit TableBuilder(LocalRanks ranks) : ranks(ranks) {}

  void add(int source, int destination, int64_t sourceUnit,
           int64_t destinationUnit, int64_t units) {
    // Who has a peer is counted everywhere, rows are kept where they are used.
    std::vector<ExchangeRow> &list = rows[{destination, source}];
    if (!ranks.contains(source) && !ranks.contains(destination))
      return;
    if (!list.empty()) {
      ExchangeRow &last = list.back();
      if (last.localUnit + last.units == destinationUnit &&
          last.peerUnit + last.units == sourceUnit) {
        last.units += units;
        return;
      }
    }
    list.push_back({destinationUnit, sourceUnit, units});
  }

  /// Every rank's peers ascend.
  LocalTables tables() const {
    LocalTables result(ranks);
    int before = -1;
    size_t receives = 0;
    for (const auto &[pair, list] : rows) {
      auto [destination, source] = pair;
      receives = destination == before ? receives + 1 : 1;
      before = destination;
      result.mostReceives = std::max(result.mostReceives, receives);
      if (ranks.contains(destination))
        result[destination].receives.push_back({source, list});
      if (!ranks.contains(source))
        continue;
      ExchangePeer send{destination, list};
      for (ExchangeRow &row : send.rows)
        std::swap(row.localUnit, row.peerUnit);
      result[source].sends.push_back(std::move(send));
    }
    return result;
  }

private:
  LocalRanks ranks;
  std::map<std::pair<int, int>, std::vector<ExchangeRow>> rows;
};

/// Intervals in the order of their first elements, so that the ones that meet a
/// range are found without a look at all of them.
class IntervalIndex {
public:
  explicit IntervalIndex(const std::vector<HeldInterval> &intervals) {
    for (const HeldInterval &interval : intervals) {
      sorted.push_back(&interval);
      longest = std::max(longest, interval.end - interval.begin);
    }
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const HeldInterval *a, const HeldInterval *b) {
                       return a->begin < b->begin;
                     });
  }

  /// The intervals that have an element of [begin, end), in the order that they
  /// were given in.
  std::vector<const HeldInterval *> overlapping(int64_t begin,
                                                int64_t end) const {
    auto at = std::partition_point(sorted.begin(), sorted.end(),
                                   [&](const HeldInterval *interval) {
                                     return interval->begin <= begin - longest;
                                   });
    std::vector<const HeldInterval *> found;
    for (; at != sorted.end() && (*at)->begin < end; ++at)
      if ((*at)->end > begin)
        found.push_back(*at);
    std::sort(found.begin(), found.end()); // places in one array
    return found;
  }

private:
  std::vector<const HeldInterval *> sorted;
  int64_t longest = 0;
};

LocalTables transferTables(const std::vector<HeldInterval> &sources,
                           const std::vector<HeldInterval> &targets,
                           LocalRanks ranks) {
  TableBuilder builder(ranks);
  const IntervalIndex index(sources);
  size_t turn = 0; // of the rank among those that receive
  for (const HeldInterval &target : targets) {
    turn += &target != targets.data() && target.rank != (&target - 1)->rank;
    const std::vector<const HeldInterval *> near =
        index.overlapping(target.begin, target.end);
    std::vector<int64_t> cuts{target.begin, target.end};
    for (const HeldInterval *source : near)
      for (int64_t cut : {source->begin, source->end})
        if (cut > target.begin && cut < target.end)
          cuts.push_back(cut);
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    for (size_t c = 0; c + 1 < cuts.size(); ++c) {
      std::vector<const HeldInterval *> candidates;
      const HeldInterval *chosen = nullptr;
      for (const HeldInterval *source : near)
        if (source->begin <= cuts[c] && cuts[c + 1] <= source->end) {
          candidates.push_back(source);
          if (source->rank == target.rank)
            chosen = source;
        }
      if (candidates.empty())
        invalid("ties: elements from " + str(cuts[c]) +
                " on are held by no source");
      if (!chosen)
        chosen = candidates[turn % candidates.size()];
      builder.add(chosen->rank, target.rank,
                  chosen->held + cuts[c] - chosen->begin,
                  target.held + cuts[c] - target.begin, cuts[c + 1] - cuts[c]);
    }
  }
  return builder.tables();
}

/// Two sets of tensors that live at one time.
void checkApart(const Role &role, const std::string &place, int buffer,
                uint64_t bytes, int otherBuffer, uint64_t otherBytes) {
  if (buffer >= 0 && otherBuffer >= 0 &&
      overlap(boundaryExtent(role, buffer, bytes),
              boundaryExtent(role, otherBuffer, otherBytes)))
    invalid(place + str(int64_t(bytes)) + " bytes of boundary buffer " +
            str(buffer) + " meet " + str(int64_t(otherBytes)) +
            " bytes of boundary buffer " + str(otherBuffer));
}

/// The gradient that comes into a chunk lies there while any chunk of the role
/// runs forward, and while the gradient of an input is sent.
void checkArrival(const Manifest &manifest, const Role &role, size_t number) {
  const Layer &layer = role.layers[number];
  uint64_t bytes = outputBytes(manifest, role, number);
  std::string place = "manifest: layer '" + layer.name + "': ";
  for (size_t i = 0; i < role.layers.size(); ++i)
    checkApart(role, place, layer.gradIn, bytes, role.layers[i].outputBuffer,
               outputBytes(manifest, role, i));
  for (const Chunk &chunk : role.chunks) {
    const Layer &first = role.layers[chunk.firstLayer];
    checkApart(role, place, layer.gradIn, bytes, first.gradOut,
               first.frontBytes);
  }
  // An output of any chunk waits while another one runs backward.
  for (const Chunk &chunk : role.chunks) {
    size_t last = chunk.endLayer() - 1;
    for (const Layer &other : role.layers)
      checkApart(role, place, role.layers[last].outputBuffer,
                 outputBytes(manifest, role, last), other.gradOut,
                 other.frontBytes);
  }
}

/// Temporaries of a function and a set of tensors between layers that is there
/// while it runs: both may lie in the transient region. One slot tells, since
/// all views of that region are one memory.
void checkTemporaries(const Role &role, const std::string &place,
                      const char *which, const Extent &inSlot, int buffer,
                      uint64_t bytes) {
  Extent temporaries{role.slots.offset + inSlot.offset, inSlot.bytes};
  if (buffer >= 0 && overlap(temporaries, boundaryExtent(role, buffer, bytes)))
    invalid(place + str(int64_t(inSlot.bytes)) + " bytes of temporaries of " +
            which + " meet " + str(int64_t(bytes)) +
            " bytes of boundary buffer " + str(buffer));
}

void checkInsideChunk(const Manifest &manifest, const Role &role,
                      const Chunk &chunk) {
  for (size_t i = chunk.firstLayer; i < chunk.endLayer(); ++i) {
    const Layer &layer = role.layers[i];
    std::string place = "manifest: layer '" + layer.name + "': ";
    uint64_t bytes = outputBytes(manifest, role, i);
    for (int buffer : {layer.outputBuffer, layer.gradIn})
      if (buffer >= 0 && alignUp(bytes) > role.boundary[size_t(buffer)].bytes)
        invalid(place + str(int64_t(bytes)) +
                " bytes behind it, boundary "
                "buffer " +
                str(buffer) + " has " +
                str(int64_t(role.boundary[size_t(buffer)].bytes)));
    checkApart(role, place, layer.gradIn, bytes, layer.gradOut,
               layer.frontBytes);
    checkTemporaries(role, place, "forward",
                     {layer.forwardTransient, layer.forwardTransientBytes},
                     layer.outputBuffer, bytes);
    const Extent backward{layer.transient, alignUp(layer.recomputeStashBytes) +
                                               layer.transientBytes};
    checkTemporaries(role, place, "backward", backward, layer.gradIn, bytes);
    checkTemporaries(role, place, "backward", backward, layer.gradOut,
                     layer.frontBytes);
    if (i + 1 < chunk.endLayer()) {
      if (role.layers[i + 1].backwardReshard >= 0)
        checkApart(role, place, layer.gradIn, bytes, role.layers[i + 1].gradOut,
                   role.layers[i + 1].frontBytes);
      continue;
    }
    // Packs take turns, and none has an output while it runs backward.
    if (manifest.hasPacks)
      continue;
    // A gradient comes while an output, of whichever chunk, waits to be sent.
    for (const Chunk &other : role.chunks) {
      size_t last = other.endLayer() - 1;
      checkApart(role, place, layer.gradIn, bytes,
                 role.layers[last].outputBuffer,
                 outputBytes(manifest, role, last));
    }
    if (role.chunks.size() > 1)
      checkArrival(manifest, role, i);
  }
}

/// What goes from a layer of a chunk to the next one, and what comes back.
void checkNeighbours(const Manifest &manifest, const Role &role,
                     const Chunk &chunk, size_t i) {
  const Layer &layer = role.layers[i], &next = role.layers[i + 1];
  std::string place = "manifest: layer '" + layer.name + "': ";
  if (layer.output == OutputKind::Loss ||
      (layer.output == OutputKind::Boundary && layer.forwardReshard < 0))
    invalid(place + "its output does not reach '" + next.name + "'");
  if (layer.forwardReshard >= 0)
    checkExchange(manifest.exchanges[layer.forwardReshard],
                  {&role, &layer, outputBytes(manifest, role, i)},
                  {&role, &next, next.inputBytes});
  const bool isSame = haveSameSamples(role, layer, next);
  if (layer.forwardReshard < 0 && !isSame)
    invalid(place +
            "expected an exchange of its output, as ranks have other "
            "samples of '" +
            next.name + "', found none");
  if (chunk.forwardOnly)
    return;
  if (next.gradOut < 0 || layer.gradIn < 0)
    invalid(place + "expected a buffer of the gradient that comes from '" +
            next.name + "', found " + str(next.gradOut) + " and " +
            str(layer.gradIn));
  if (next.backwardReshard < 0 && !isSame)
    invalid(place +
            "expected an exchange of its gradient, as ranks have "
            "other samples of '" +
            next.name + "', found none");
  if (next.backwardReshard < 0 && next.gradOut != layer.gradIn)
    invalid(place + "its gradient comes in buffer " + str(layer.gradIn) +
            ", '" + next.name + "' writes buffer " + str(next.gradOut));
  if (next.backwardReshard >= 0) {
    if (next.gradOut == layer.gradIn)
      invalid(place + "a reshard needs two gradient buffers");
    checkExchange(manifest.exchanges[next.backwardReshard],
                  {&role, &next, next.frontBytes},
                  {&role, &layer, outputBytes(manifest, role, i)});
  }
}

/// A chunk with the role whose ranks run it.
struct ChunkAt {
  const Role *home = nullptr;
  const Chunk *chunk = nullptr;
};

/// What goes from the chunk's last layer to the first one of the next.
void checkActivations(const Manifest &manifest, const std::string &place,
                      const ChunkAt &at, const ChunkAt &next) {
  const Layer &last = at.home->layers[at.chunk->endLayer() - 1];
  const Layer &first = next.home->layers[next.chunk->firstLayer];
  int sent = at.chunk->sendActivation, received = next.chunk->recvActivation;
  if (sent != received || sent < 0)
    invalid(place + "activations are sent by exchange " + str(sent) +
            ", the next chunk receives exchange " + str(received));
  if (last.output != OutputKind::Boundary)
    invalid(place + "the last layer's output is in no boundary buffer");
  checkExchange(manifest.exchanges[sent],
                {at.home, &last,
                 outputBytes(manifest, *at.home, at.chunk->endLayer() - 1)},
                {next.home, &first, first.inputBytes});
}

/// What comes back, if anything does.
void checkGradients(const Manifest &manifest, const std::string &place,
                    const ChunkAt &at, const ChunkAt &next) {
  const Layer &last = at.home->layers[at.chunk->endLayer() - 1];
  const Layer &first = next.home->layers[next.chunk->firstLayer];
  int received = at.chunk->recvGradient, sent = next.chunk->sendGradient;
  if (received != sent)
    invalid(place + "gradients are received by exchange " + str(received) +
            ", the next chunk sends exchange " + str(sent));
  if (received < 0) {
    if (manifest.hasPacks)
      return;
    invalid(place + "expected an exchange of gradients, found none");
  }
  if (last.gradIn < 0 || first.gradOut < 0)
    invalid(place + "gradients need buffers on both sides of the cut");
  checkExchange(manifest.exchanges[received],
                {next.home, &first, first.frontBytes},
                {at.home, &last,
                 outputBytes(manifest, *at.home, at.chunk->endLayer() - 1)});
}

std::string placeOf(const ChunkAt &at) {
  return "manifest: chunk " + str(at.chunk->number) + " of stage " +
         str(at.home->stage) + ": ";
}

void checkBetweenChunks(const Manifest &manifest,
                        const std::vector<ChunkAt> &chunks, size_t index) {
  const Role &role = *chunks[index].home;
  const Chunk &chunk = *chunks[index].chunk;
  std::string place = placeOf(chunks[index]);
  if (index == 0 && (chunk.recvActivation >= 0 || chunk.sendGradient >= 0))
    invalid(place + "the first chunk has no previous one");
  if (index + 1 == chunks.size()) {
    if (chunk.sendActivation >= 0 || chunk.recvGradient >= 0)
      invalid(place + "the last chunk has no next one");
    if (role.layers[chunk.endLayer() - 1].output != OutputKind::Loss)
      invalid(place + "the last layer does not give the loss");
    return;
  }
  const ChunkAt &next = chunks[index + 1];
  checkActivations(manifest, place, chunks[index], next);
  checkGradients(manifest, place, chunks[index], next);
}

/// The messages of a pack, those that it sends.
void checkPack(const Manifest &manifest, const std::vector<ChunkAt> &chunks,
               const ChunkAt &at) {
  const Chunk &chunk = *at.chunk;
  std::string place = placeOf(at);
  auto peerOf = [&](grt_direction direction,
                    grt_value value) -> const ChunkAt * {
    grt_transfer_part part{};
    part.direction = uint8_t(direction);
    part.value = uint8_t(value);
    part.chunk = uint16_t(chunk.number);
    int peer = manifest.peerOf(part);
    return peer < 0 ? nullptr : &chunks[size_t(peer)];
  };
  auto fits = [&](const ChunkAt &receiver, uint64_t bytes) {
    if (receiver.chunk->waitingBytes < bytes)
      invalid(place + "sends " + str(int64_t(bytes)) + " bytes to places of " +
              str(int64_t(receiver.chunk->waitingBytes)));
  };
  if (const ChunkAt *next = peerOf(GRT_SEND, GRT_ACTIVATION)) {
    checkActivations(manifest, place, at, *next);
    fits(*next, next->home->layers[next->chunk->firstLayer].inputBytes);
  } else if (chunk.sendActivation >= 0) {
    invalid(place + "sends activations to no chunk");
  }
  if (const ChunkAt *before = peerOf(GRT_SEND, GRT_GRADIENT)) {
    checkGradients(manifest, placeOf(*before), *before, at);
    fits(*before,
         outputBytes(manifest, *before->home, before->chunk->endLayer() - 1));
  } else if (chunk.sendGradient >= 0) {
    invalid(place + "sends gradients to no chunk");
  }
  bool isLast = size_t(chunk.number) + 1 == chunks.size();
  if (isLast && manifest.regroups() != (chunk.recvStash >= 0))
    invalid(place + "expected the last chunk to take its input from home where "
                    "micro-batches have two sizes, and only there");
  if (isLast &&
      at.home->layers[chunk.endLayer() - 1].output != OutputKind::Loss)
    invalid(place + "the last layer does not give the loss");
  if (chunk.recvStash < 0)
    return;
  const ChunkAt &from = chunks[size_t(chunk.stashFrom)];
  const Layer &first = at.home->layers[chunk.firstLayer];
  // Both that which fills a slot and that which reads it.
  const Exchange &exchange = manifest.exchanges[size_t(chunk.recvStash)];
  uint64_t each = uint64_t(first.samples) * exchange.bytesPerUnit;
  uint64_t bytes = each * uint64_t(manifest.perSlot(false) - 1) +
                   std::max(each, first.inputBytes);
  if (bytes > at.home->homeSlotBytes)
    invalid(place + "a stash of " + str(int64_t(bytes)) +
            " bytes, slots at home have " +
            str(int64_t(at.home->homeSlotBytes)));
  ExchangeEnd source{from.home, nullptr, 0};
  if (isLast) {
    const Layer &last = from.home->layers[from.chunk->endLayer() - 1];
    if (!manifest.sendsHome(*from.chunk) || last.output != OutputKind::Boundary)
      invalid(place + "chunk " + str(chunk.stashFrom) +
              " does not send its output home");
    source.layer = &last;
    source.bytes = from.home->boundary[size_t(last.outputBuffer)].bytes;
  } else {
    int layer = Manifest::stashLayer(*from.home, *from.chunk, chunk);
    if (layer < 0)
      invalid(place + "its first layer is none of chunk " +
              str(chunk.stashFrom) + "'s");
    source.layer = &from.home->layers[size_t(layer)];
    source.bytes = source.layer->inputBytes;
  }
  checkExchange(exchange, source,
                {at.home, &first,
                 at.home->homeSlotBytes / uint64_t(manifest.perSlot(true))});
}

} // namespace

bool overlap(const Extent &a, const Extent &b) {
  return a.bytes && b.bytes && a.offset < b.offset + b.bytes &&
         b.offset < a.offset + a.bytes;
}

uint64_t outputBytes(const Manifest &manifest, const Role &role,
                     size_t number) {
  const Layer &layer = role.layers[number];
  if (layer.behindBytes)
    return layer.behindBytes;
  if (layer.output == OutputKind::Slot)
    return role.layers[number + 1].inputBytes;
  int exchange = layer.forwardReshard;
  // A pack that recomputes sends nothing on, but gets a gradient as large.
  for (const Chunk &chunk : role.chunks)
    if (number + 1 == chunk.endLayer())
      exchange = chunk.sendActivation >= 0 ? chunk.sendActivation
                 : manifest.sendsHome(chunk)
                     ? manifest.chunk(manifest.chunkCount - 1)->recvStash
                     : chunk.recvGradient;
  if (layer.output != OutputKind::Boundary || exchange < 0)
    return 0;
  return uint64_t(layer.samples) * manifest.exchanges[exchange].bytesPerUnit;
}

Extent boundaryExtent(const Role &role, int buffer, uint64_t bytes) {
  if (buffer < 0)
    return {};
  const Extent &region = role.boundary[size_t(buffer)];
  return {buffer % 4 == 1 ? region.offset + region.bytes - alignUp(bytes)
                          : region.offset,
          bytes};
}

int64_t axisIndex(const Layer &layer, int localRank, grt_axis axis) {
  int64_t index = 0;
  for (const Level &level : layer.levels)
    if (level.isOn(axis))
      index = index * level.degree + localRank / level.stride % level.degree;
  return index;
}

std::vector<int> axisRanks(const Role &role, const Layer &layer, int localRank,
                           grt_axis axis) {
  std::vector<int64_t> members = {localRank};
  for (const Level &level : layer.levels) {
    if (!level.isOn(axis))
      continue;
    std::vector<int64_t> more;
    for (int64_t member : members) {
      int64_t first =
          member - member / level.stride % level.degree * level.stride;
      for (int64_t i = 0; i < level.degree; ++i)
        more.push_back(first + i * level.stride);
    }
    members = std::move(more);
  }
  std::vector<int> ranks;
  for (int64_t member : members)
    ranks.push_back(role.devices[size_t(member)]);
  return ranks;
}

std::vector<std::vector<StreamGroup>> groupRounds(const Manifest &manifest) {
  std::map<std::vector<int>, uint32_t> groups;
  for (const Role &role : manifest.roles)
    for (const Layer &layer : role.layers)
      for (grt_axis axis : kAxes)
        for (size_t local = 0; local < role.devices.size(); ++local)
          if (layer.degree(axis) > 1)
            groups[axisRanks(role, layer, int(local), axis)] |=
                axisForms[axis].streams;
  std::vector<std::vector<StreamGroup>> rounds;
  std::vector<std::set<int>> taken;
  for (const auto &[group, streams] : groups) {
    size_t round = 0;
    auto meets = [&](int rank) { return taken[round].count(rank) > 0; };
    while (round < rounds.size() &&
           std::any_of(group.begin(), group.end(), meets))
      ++round;
    rounds.resize(std::max(rounds.size(), round + 1));
    taken.resize(rounds.size());
    rounds[round].push_back({group, streams});
    taken[round].insert(group.begin(), group.end());
  }
  return rounds;
}

uint32_t exchangeStreams(const Manifest &manifest) {
  uint32_t streams = manifest.ties.empty() ? 0 : 1u << GRT_STREAM_COMPUTE;
  for (const Role &role : manifest.roles) {
    for (const Layer &layer : role.layers)
      if (layer.forwardReshard >= 0 || layer.backwardReshard >= 0)
        streams |= 1u << GRT_STREAM_COMPUTE;
    for (const Chunk &chunk : role.chunks)
      if (std::max({chunk.sendActivation, chunk.recvActivation,
                    chunk.sendGradient, chunk.recvGradient, chunk.recvStash}) >=
          0)
        streams |= 1u << GRT_STREAM_TRANSFER;
  }
  return streams;
}

int64_t stateShift(const Layer &layer, int localRank) {
  return layer.cutsStateOnly ? -axisIndex(layer, localRank, GRT_AXIS_SDP) *
                                   layer.ownedElements()
                             : 0;
}

SampleRuns samplesOf(const Manifest &manifest, const Layer &layer,
                     int localRank) {
  int64_t block = sampleBlock(layer, localRank);
  // Micro-batches of two sizes are cut out of one share of the batch.
  if (manifest.regroups())
    return {block * (manifest.batch / layer.sampleBlocks()), layer.samples};
  return {block * layer.samples, manifest.samplesPerMicroBatch()};
}

int64_t sampleBlock(const Layer &layer, int localRank) {
  int64_t block = 0;
  for (const Level &level : layer.levels)
    if (axisForms[level.axis].cuts && !level.cutsPositions)
      block = block * level.degree + localRank / level.stride % level.degree;
  return block;
}

void forEachRun(const Layer &layer, const LayerTensor &tensor, int localRank,
                const std::function<void(const TensorRun &)> &visit) {
  // The tensor as outer x dim x inner; only dim is cut.
  int64_t outer = 1, dim = 1, inner = 1, localDim = 1, tp = 0;
  if (tensor.tpDim < 0) {
    dim = localDim = tensor.localElements();
  } else {
    for (int i = 0; i < tensor.tpDim; ++i)
      outer *= tensor.view[i];
    for (size_t i = size_t(tensor.tpDim) + 1; i < tensor.view.size(); ++i)
      inner *= tensor.view[i];
    dim = tensor.view[tensor.tpDim];
    localDim = tensor.localShape[tensor.tpDim];
    tp = axisIndex(layer, localRank, GRT_AXIS_TP);
  }
  // The last shards may be short or empty.
  int64_t valid = std::clamp<int64_t>(dim - tp * localDim, 0, localDim) * inner;
  const FlatGroup &group = layer.groups[tensor.group];
  int64_t index = axisIndex(layer, localRank, GRT_AXIS_SDP);
  int64_t shardBegin = layer.cutsStateOnly ? 0 : index * group.shardElements;
  int64_t shardEnd = shardBegin + group.shardElements;
  // Of what is held, and where it is cut for it.
  int64_t ownedBegin = shardBegin, ownedEnd = shardEnd;
  if (layer.cutsStateOnly && tensor.isTrained()) {
    ownedBegin = index * layer.ownedElements();
    ownedEnd = ownedBegin + layer.ownedElements();
  } else if (layer.cutsStateOnly && tensor.isFrozen() && index > 0) {
    ownedEnd = ownedBegin; // All hold the same; the first speaks for all.
  }
  int64_t regionBegin = layer.heldBefore(tensor.group);
  for (int64_t o = 0; o < outer; ++o) {
    int64_t flat = tensor.offset + o * localDim * inner;
    int64_t begin = std::max(flat, shardBegin);
    int64_t end = std::min(flat + valid, shardEnd);
    const int64_t cuts[] = {begin, std::clamp(ownedBegin, begin, end),
                            std::clamp(ownedEnd, begin, end), end};
    for (int part = 0; part < 3; ++part)
      if (cuts[part] < cuts[part + 1])
        visit({(o * dim + tp * localDim) * inner + cuts[part] - flat,
               regionBegin + cuts[part] - shardBegin,
               cuts[part + 1] - cuts[part], part == 1});
  }
}

void forEachStretch(const Layer &layer, const LayerTensor &tensor,
                    int localRank,
                    const std::function<void(const TensorStretch &)> &visit) {
  std::array<TensorRun, TensorStretch::mostRuns> runs;
  TensorStretch stretch;
  auto end = [&] {
    if (!stretch.runs.empty())
      visit(stretch);
    stretch.runs = {};
  };
  forEachRun(layer, tensor, localRank, [&](const TensorRun &run) {
    const size_t number = stretch.runs.size();
    if (number == runs.size() ||
        (number > 0 && (stretch.owned() != run.owned ||
                        stretch.held() + stretch.count() != run.held)))
      end();
    runs[stretch.runs.size()] = run;
    stretch.runs = std::span(runs).first(stretch.runs.size() + 1);
  });
  end();
}

LocalTables exchangeTables(const Exchange &exchange, LocalRanks ranks) {
  TableBuilder builder(ranks);
  for (const Transfer &transfer : exchange.transfers) {
    if (exchange.tensors.empty())
      builder.add(transfer.source, transfer.destination, transfer.sourceUnit,
                  transfer.destinationUnit, transfer.units);
    for (const ExchangeTensor &tensor : exchange.tensors) {
      auto bytes = int64_t(tensor.bytes);
      builder.add(transfer.source, transfer.destination,
                  int64_t(tensor.source) + transfer.sourceUnit * bytes,
                  int64_t(tensor.destination) +
                      transfer.destinationUnit * bytes,
                  transfer.units * bytes);
    }
  }
  return builder.tables();
}

TieTables tieTables(const Manifest &manifest, const Tie &tie,
                    LocalRanks ranks) {
  std::vector<HeldInterval> owner = heldIntervals(manifest, tie.owner);
  std::vector<HeldInterval> borrower = heldIntervals(manifest, tie.borrower);
  return {transferTables(borrower, owner, ranks),
          transferTables(owner, borrower, ranks)};
}

void checkWiring(const Manifest &manifest) {
  for (size_t i = 0; i < manifest.roles.size(); ++i) {
    if (manifest.roles[i].stage != int(i))
      invalid("manifest: roles: expected stage " + str(int64_t(i)) +
              ", found " + str(manifest.roles[i].stage));
    for (const Chunk &chunk : manifest.roles[i].chunks) {
      checkInsideChunk(manifest, manifest.roles[i], chunk);
      for (size_t l = chunk.firstLayer; l + 1 < chunk.endLayer(); ++l)
        checkNeighbours(manifest, manifest.roles[i], chunk, l);
    }
    checkArena(manifest, manifest.roles[i]);
  }
  std::vector<ChunkAt> chunks(size_t(manifest.chunkCount));
  for (const Role &role : manifest.roles)
    for (const Chunk &chunk : role.chunks)
      chunks[size_t(chunk.number)] = {&role, &chunk};
  for (size_t i = 0; i < chunks.size(); ++i)
    if (manifest.hasPacks)
      checkPack(manifest, chunks, chunks[i]);
    else
      checkBetweenChunks(manifest, chunks, i);
  for (const Role &role : manifest.roles)
    for (const Chunk &chunk : role.chunks)
      checkLiveTensors(manifest, role, chunk);
  for (const Tie &tie : manifest.ties)
    tieTables(manifest, tie, {});
}

} // namespace grt
