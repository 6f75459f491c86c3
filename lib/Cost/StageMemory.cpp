//===- StageMemory.cpp - The memory of a stage ----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Cost/StageMemory.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

using namespace llvm;

namespace galvatron {

StageLayer makeStageLayer(LayerFootprint footprint, int64_t samples,
                          std::vector<int64_t> data, const Strategy &strategy) {
  StageLayer layer;
  layer.footprint = std::move(footprint);
  layer.samples = samples;
  if (!data.empty())
    layer.sampleLayout = strategy.sampleLayout();
  layer.data = std::move(data);
  return layer;
}

static int64_t datumBytes(int64_t samples, int64_t bytesPerSample) {
  return align64(multiplyBytes(samples, bytesPerSample));
}

int64_t dataBytesPerMicroBatch(const LayerFootprint &footprint,
                               int64_t samples) {
  int64_t bytes = 0;
  for (int64_t each : footprint.dataBytesPerSample)
    bytes = addBytes(bytes, datumBytes(samples, each));
  return bytes;
}

StageData stageData(ArrayRef<StageLayer> layers) {
  StageData data;
  std::map<std::tuple<int64_t, SampleLayout, int64_t>, int64_t> known;
  for (const StageLayer &layer : layers) {
    std::vector<int64_t> &copies = data.byLayer.emplace_back();
    ArrayRef<int64_t> bytes = layer.footprint.dataBytesPerSample;
    assert((layer.data.empty() || layer.data.size() == bytes.size()) &&
           "the footprint has every datum of the layer");
    for (size_t i = 0; i < bytes.size(); ++i) {
      DataCopy copy{layer.data.empty() ? -1 : layer.data[i],
                    datumBytes(layer.samples, bytes[i]), layer.microBatches};
      auto place = static_cast<int64_t>(data.copies.size());
      if (copy.datum >= 0)
        place =
            known
                .try_emplace(
                    {copy.datum, layer.sampleLayout, layer.microBatches}, place)
                .first->second;
      if (place == static_cast<int64_t>(data.copies.size()))
        data.copies.push_back(copy);
      copies.push_back(place);
    }
  }
  return data;
}

int64_t StageData::bytes(int64_t microBatches) const {
  int64_t sum = 0;
  for (const DataCopy &copy : copies)
    sum = addBytes(sum, multiplyBytes(copy.microBatches > 0 ? copy.microBatches
                                                            : microBatches,
                                      copy.bytesPerMicroBatch));
  return sum;
}

LayerMemory layerMemory(const LayerFootprint &footprint, int64_t samples,
                        bool splits) {
  LayerMemory memory;
  memory.kept = align64(footprint.inputBytes) + align64(footprint.stashBytes);
  // A device has one micro-batch's, whatever is in flight.
  if (footprint.home.activations)
    memory.hostKept = std::exchange(memory.kept, 0);
  memory.forward = align64(footprint.forwardTransient);
  // The output may be what the next layer keeps.
  if (memory.forward > 0 && !splits)
    memory.forward += align64(footprint.outputBytes);
  memory.backward = align64(footprint.backwardTransient);
  memory.parameters = align64(footprint.parameterBytes);
  memory.otherState =
      align64(footprint.gradientBytes) +
      (footprint.home.states ? 0 : align64(footprint.optimizerBytes)) +
      memory.hostKept;
  if (footprint.home.states)
    memory.host = memory.parameters + align64(footprint.gradientBytes) +
                  align64(footprint.optimizerBytes);
  memory.borrowed = align64(footprint.borrowedGradientBytes);
  memory.dataBytes = dataBytesPerMicroBatch(footprint, samples);
  memory.behind =
      align64(footprint.outputBytes) + align64(footprint.passingOutBytes);
  memory.boundary =
      align64(footprint.inputBytes) + align64(footprint.outputBytes) +
      align64(footprint.passingInBytes) + align64(footprint.passingOutBytes);
  return memory;
}

LayerFootprint forwardOnlyFootprint(LayerFootprint footprint) {
  footprint.forwardTransient =
      align64(footprint.stashBytes) + align64(footprint.forwardTransient);
  footprint.stashBytes = footprint.backwardTransient = 0;
  // Packs have one piece.
  footprint.forwardBuffers.clear();
  footprint.backwardBuffers.clear();
  footprint.gradientBytes = footprint.borrowedGradientBytes = 0;
  footprint.optimizerBytes = 0;
  return footprint;
}

int64_t StageLayer::heldBytes() const {
  return align64(footprint.inputBytes) + entering;
}

static int64_t workspaceBytes(const StageShape &shape) {
  int64_t slots = shape.slotsOnDevice();
  int64_t granules = slots > 1 ? slots + 1 : 0;
  return kRuntimeScratchBytes + shape.backend.workspaceBytes +
         granules * shape.backend.mappingGranule;
}

void StageShape::setSchedule(const Schedule &schedule,
                             const ScheduleShape &shape) {
  weightVersions = schedule.weightVersions(shape);
  batches = schedule.delay(shape) + 1;
  leavesGradients = schedule.delay(shape) > 0 && shape.roles > 1;
  residentChunks = shape.residentChunks;
  homesByLayer = shape.homesByLayer;
  slotsAtHome = shape.slotsAtHome;
  splitsBackward = schedule.splitsBackward();
  separatesMessages = schedule.separatesMessages(shape);
  hasPacks = shape.hasPacks();
  // Forward's are the fewer if they are the larger.
  microBatchesPerSlot = shape.microBatches / shape.groups();
}

int64_t StageShape::gradientBytes(const LayerFootprint &footprint) const {
  return addBytes(align64(footprint.gradientBytes),
                  copiesBorrowed() ? align64(footprint.borrowedGradientBytes)
                                   : 0);
}

int64_t StageShape::stateBytes(const LayerMemory &memory) const {
  int64_t data =
      multiplyBytes(batches, multiplyBytes(microBatches, memory.dataBytes));
  // States at home on the host take turns in the arena.
  if (residentChunks > 0 && !homesByLayer)
    return data;
  int64_t states = addBytes(multiplyBytes(weightVersions, memory.parameters),
                            memory.otherState);
  return addBytes(addBytes(states, copiesBorrowed() ? memory.borrowed : 0),
                  data);
}

int64_t StageShape::transientBytes(const LayerMemory &memory) const {
  int64_t spared = forwardFreesBoundary() ? memory.front() : 0;
  return std::max(memory.backward, memory.forward - spared);
}

/// Two f64 a micro-batch: the loss, and what a z-loss is the mean of.
static int64_t lossBytes(const StageShape &shape) {
  return shape.lastStage ? align64(16 * shape.microBatches) : 0;
}

int64_t stageConstantBytes(const StageShape &shape) {
  return shape.batches * kStepBlockBytes + workspaceBytes(shape) +
         lossBytes(shape);
}

namespace {

/// The bytes that one direction of a layer needs behind what earlier layers and
/// itself keep.
struct Pass {
  int64_t gap = 0;      ///< bytes in front of the temporaries
  int64_t top = 0;      ///< where temporaries besides gathered parameters end
  int64_t gathered = 0; ///< bytes
  bool ahead = false;
  int64_t offset = 0; ///< of the gathered parameters
  int64_t end = 0;    ///< of everything that lives while the layer runs

  /// Temporaries, gathered parameters not among them, begin at `base` or as
  /// much behind it as keeps `buffers` on one side of the border.
  void place(int64_t base, int64_t bytes, ArrayRef<CollectiveBuffer> buffers,
             std::optional<int64_t> border) {
    for (bool moved = border.has_value(); std::exchange(moved, false);)
      for (const CollectiveBuffer &buffer : buffers)
        if (int64_t begin = base + gap + buffer.begin;
            begin < *border && base + gap + buffer.end > *border) {
          gap += *border - begin;
          moved = true;
        }
    top = base + gap + bytes;
  }
};

/// Places the gathered parameters of one direction; `step` leads from a layer
/// to the one that runs behind it. From the last layer down: there the
/// temporaries are highest, so what the last pair needs nobody exceeds who
/// takes the place below or above its neighbour's.
void placeGathered(MutableArrayRef<Pass> passes, int step,
                   std::optional<int64_t> border) {
  auto count = static_cast<int>(passes.size());
  auto isThere = [&](int l) { return l >= 0 && l < count; };
  // Gathered while the layer in front runs.
  auto isAhead = [&](int l) {
    return passes[l].ahead && passes[l].gathered > 0 && isThere(l - step);
  };
  for (int l = count; l-- > 0;) {
    Pass &pass = passes[l];
    if (pass.gathered == 0)
      continue;
    pass.offset = pass.top;
    if (isAhead(l))
      pass.offset = std::max(pass.offset, passes[l - step].top);
    auto keepWhole = [&] {
      if (border && pass.offset < *border &&
          pass.offset + pass.gathered > *border)
        pass.offset = *border;
    };
    keepWhole();
    if (l + 1 == count)
      continue;
    const Pass &later = passes[l + 1];
    bool together = later.gathered > 0 && isAhead(step > 0 ? l + 1 : l);
    if (together && pass.offset < later.offset + later.gathered &&
        later.offset < pass.offset + pass.gathered)
      pass.offset = later.offset + later.gathered;
    keepWhole();
  }
  for (int l = 0; l < count; ++l) {
    Pass &pass = passes[l];
    pass.end = pass.top;
    if (pass.gathered > 0)
      pass.end = std::max(pass.end, pass.offset + pass.gathered);
    if (int next = l + step; isThere(next) && isAhead(next))
      pass.end =
          std::max(pass.end, passes[next].offset + passes[next].gathered);
  }
}

} // namespace

/// The bytes that a micro-batch keeps for a layer, and of it what is in a slot.
static int64_t heldAndStashed(const StageLayer &layer) {
  return layer.heldBytes() + align64(layer.footprint.stashBytes);
}
static int64_t keptBytes(const StageLayer &layer) {
  return layer.footprint.home.activations ? 0 : heldAndStashed(layer);
}

/// The bytes that a micro-batch keeps in a slot for the layers of a chunk.
static int64_t keptBytes(ArrayRef<StageLayer> layers) {
  int64_t sum = 0;
  for (const StageLayer &layer : layers)
    sum = addBytes(sum, keptBytes(layer));
  return sum;
}

std::vector<LayerTemporaries> placeTemporaries(ArrayRef<StageLayer> layers,
                                               bool splits,
                                               std::optional<int64_t> border) {
  std::vector<Pass> forward(layers.size()), backward(layers.size());
  int64_t kept = splits ? keptBytes(layers) : 0;
  for (size_t l = 0; l < layers.size(); ++l) {
    const LayerFootprint &footprint = layers[l].footprint;
    if (!splits)
      kept += keptBytes(layers[l]);
    forward[l].gathered = align64(footprint.forwardGathered);
    backward[l].gathered = align64(footprint.backwardGathered);
    forward[l].ahead = layers[l].forwardAhead;
    backward[l].ahead = layers[l].backwardAhead;
    forward[l].top = kept;
    if (footprint.forwardTransient > 0)
      forward[l].place(kept + (splits ? 0 : align64(footprint.outputBytes)),
                       align64(footprint.forwardTransient) -
                           forward[l].gathered,
                       footprint.forwardBuffers, border);
    backward[l].place(
        kept, align64(footprint.backwardTransient) - backward[l].gathered,
        footprint.backwardBuffers, border);
  }
  placeGathered(forward, 1, border);
  placeGathered(backward, -1, border);
  std::vector<LayerTemporaries> result;
  for (size_t l = 0; l < layers.size(); ++l)
    result.push_back({forward[l].offset, backward[l].offset, forward[l].end,
                      backward[l].end, forward[l].gap, backward[l].gap});
  return result;
}

namespace {
/// A chunk with its layers.
struct ChunkOfStage {
  ArrayRef<StageLayer> layers;
  bool last;
  bool forwardOnly = false, readsData = false;
  int64_t inFlight = 1, number = 0;
  bool updatesOnDevice = false;
};
} // namespace

static std::vector<ChunkOfStage> chunksOf(ArrayRef<StageLayer> layers,
                                          const StageShape &shape) {
  if (shape.chunks.empty())
    return {{layers, shape.lastStage}};
  std::vector<ChunkOfStage> chunks;
  for (const StageChunk &chunk : shape.chunks) {
    chunks.push_back({layers.take_front(chunk.layers), chunk.last,
                      chunk.forwardOnly, chunk.readsData, chunk.inFlight,
                      chunk.number, chunk.updatesOnDevice});
    layers = layers.drop_front(chunk.layers);
  }
  return chunks;
}

/// The bytes that backward needs of a micro-batch, the most of any chunk.
static int64_t slotBytes(ArrayRef<StageLayer> layers, const StageShape &shape) {
  int64_t slot = 0;
  for (const ChunkOfStage &chunk : chunksOf(layers, shape))
    slot = std::max(slot, keptBytes(chunk.layers));
  return slot;
}

std::vector<LayerTemporaries> placeTemporaries(ArrayRef<StageLayer> layers,
                                               const StageShape &shape) {
  // Only where a window is behind each of several slots.
  std::optional<int64_t> border;
  if (shape.wholeBuffers && !shape.hasPacks && shape.slotsOnDevice() > 1)
    border = slotBytes(layers, shape);
  std::vector<LayerTemporaries> all;
  for (const ChunkOfStage &chunk : chunksOf(layers, shape))
    append_range(all,
                 placeTemporaries(chunk.layers, shape.splitsBackward, border));
  return all;
}

namespace {
/// Bytes of the places between layers.
struct BetweenLayers {
  int64_t boundary = 0, received = 0, sent = 0;
  /// Messages that are sent wait at the beginning of the transient region
  /// instead.
  bool sendsFromTransient = false;

  int64_t total() const { return boundary + received + sent; }
  void add(const ChunkOfStage &chunk);
};
} // namespace

void BetweenLayers::add(const ChunkOfStage &chunk) {
  int64_t behind = chunk.layers.back().behind;
  if (chunk.forwardOnly) {
    sent = std::max(sent, behind);
    return;
  }
  for (auto [l, layer] : enumerate(chunk.layers)) {
    boundary = std::max(boundary,
                        layerMemory(layer.footprint, layer.samples).boundary);
    if (!layer.resharded)
      continue;
    int64_t before = chunk.layers[l - 1].behind;
    boundary = std::max(boundary, before + layer.front);
    sent = std::max(sent, before);
  }
  if (chunk.last)
    return;
  received = std::max(received, behind);
  sent = std::max(sent, behind);
}

static BetweenLayers betweenLayers(ArrayRef<StageLayer> layers,
                                   const StageShape &shape) {
  BetweenLayers bytes;
  for (const ChunkOfStage &chunk : chunksOf(layers, shape))
    bytes.add(chunk);
  return bytes;
}

namespace {
/// The bytes of one pack while it is on the devices.
struct PackFrame {
  int64_t slot = 0, transient = 0, parameters = 0, gradients = 0;
  /// It is updated there: optimizer state comes behind the passes, over all
  /// that only they need, so that is in front of parameters and gradients.
  bool updates = false;
  int64_t optimizer = 0;
  BetweenLayers between;
  int64_t waiting = 0;      ///< places in use, which are messages' of any pack
  int64_t waitingBytes = 0; ///< each place of messages into this one

  int64_t temporariesEnd() const { return slot + transient; }
  /// No output waits while the pack runs backward.
  int64_t betweenBytes() const {
    return std::max(between.sent, between.received + between.boundary);
  }
  int64_t communication() const { return betweenBytes() + waiting; }
  int64_t statesBegin() const {
    return updates ? std::max(temporariesEnd() + betweenBytes(), optimizer)
                   : temporariesEnd();
  }
  int64_t statesEnd() const { return statesBegin() + parameters + gradients; }
  int64_t betweenBegin() const {
    return updates ? temporariesEnd() : statesEnd();
  }
  int64_t total() const {
    return statesEnd() + (updates ? 0 : betweenBytes()) + waiting;
  }
};
} // namespace

/// The bytes that come into a pack as a message: an activation into those that
/// run forward only and the last one, unless that is data or comes from home,
/// and a gradient into all others.
static int64_t messageBytes(const ChunkOfStage &chunk) {
  if (!chunk.forwardOnly && !chunk.last)
    return chunk.layers.back().behind;
  bool fromHome = chunk.inFlight > 0;
  return chunk.readsData || fromHome ? 0 : chunk.layers.front().front;
}

static std::vector<PackFrame> packFrames(ArrayRef<StageLayer> layers,
                                         const StageShape &shape) {
  std::vector<PackFrame> frames;
  std::vector<ChunkOfStage> chunks = chunksOf(layers, shape);
  std::map<int64_t, int64_t> places; // bytes of each, by the receiver's number
  for (const ChunkOfStage &chunk : chunks) {
    PackFrame frame;
    frame.slot = keptBytes(chunk.layers);
    for (const LayerTemporaries &placed :
         placeTemporaries(chunk.layers, shape.splitsBackward))
      frame.transient = std::max(
          frame.transient,
          std::max(placed.forwardEnd, placed.backwardEnd) - frame.slot);
    for (const StageLayer &layer : chunk.layers) {
      frame.parameters =
          addBytes(frame.parameters, align64(layer.footprint.parameterBytes));
      frame.gradients =
          addBytes(frame.gradients, align64(layer.footprint.gradientBytes));
      frame.updates = chunk.updatesOnDevice;
      if (frame.updates)
        frame.optimizer =
            addBytes(frame.optimizer, align64(layer.footprint.optimizerBytes));
    }
    frame.between.add(chunk);
    places[chunk.number] = messageBytes(chunk);
    frames.push_back(frame);
  }
  // Sizes that meet become one, until none is left that differ.
  for (bool changed = true; std::exchange(changed, false);)
    for (auto [one, other] : shape.waiting.together) {
      int64_t most = std::max(places[one], places[other]);
      changed |= places[one] != places[other];
      places[one] = places[other] = most;
    }
  for (auto [chunk, frame] : zip_equal(chunks, frames)) {
    frame.waitingBytes = places[chunk.number];
    for (const WaitingMessages::Use &use : shape.waiting.uses)
      if (use.beside == chunk.number)
        frame.waiting = std::max(frame.waiting,
                                 multiplyBytes(use.places, places[use.chunk]));
  }
  return frames;
}

/// The one that decides about the arena.
static PackFrame largestFrame(ArrayRef<PackFrame> frames) {
  return *std::max_element(frames.begin(), frames.end(),
                           [](const PackFrame &a, const PackFrame &b) {
                             return a.total() < b.total();
                           });
}

namespace {
/// The regions of a stage of which one decides about another's size.
struct SharedRegions {
  int64_t slot = 0;
  int64_t transient = 0;
  BetweenLayers between;
  std::vector<LayerTemporaries> temporaries;
  /// Forward temporaries go on over the beginning of the region between layers,
  /// which follows the transient one.
  bool forwardGoesOn = false;
};
} // namespace

static SharedRegions sharedRegions(ArrayRef<StageLayer> layers,
                                   const StageShape &shape) {
  SharedRegions regions;
  regions.slot = slotBytes(layers, shape);
  regions.temporaries = placeTemporaries(layers, shape);
  // A layer's temporaries may use what later layers keep.
  int64_t forwardEnd = 0;
  for (auto [layer, placed] : zip_equal(layers, regions.temporaries)) {
    int64_t spared = shape.forwardFreesBoundary()
                         ? layerMemory(layer.footprint, layer.samples).front()
                         : 0;
    regions.transient =
        std::max(regions.transient,
                 std::max(placed.forwardEnd - spared, placed.backwardEnd) -
                     regions.slot);
    forwardEnd = std::max(forwardEnd, placed.forwardEnd - regions.slot);
  }
  auto finish = [&] {
    regions.forwardGoesOn = forwardEnd > regions.transient;
    return regions;
  };
  BetweenLayers &between = regions.between;
  between = betweenLayers(layers, shape);
  if (!shape.chunks.empty())
    return finish();
  // One region has them all; what is sent and received lives at one time.
  between.received = between.sent = 0;
  if (shape.lastStage)
    return finish();
  int64_t behind = layers.back().behind;
  int64_t together = std::max(between.boundary, 2 * behind);
  bool passes = behind > align64(layers.back().footprint.outputBytes);
  int64_t transient = std::max(regions.transient, behind);
  if (shape.mayShareTransient() && !passes &&
      transient + between.boundary < regions.transient + together) {
    between.sendsFromTransient = true;
    regions.transient = transient;
    return finish();
  }
  between.boundary = together;
  return finish();
}

namespace {
/// A place for one chunk's states while they are on the devices.
struct Residence {
  int64_t parameters = 0, gradients = 0;
};
} // namespace

static std::vector<Residence> residences(ArrayRef<StageLayer> layers,
                                         const StageShape &shape) {
  std::vector<Residence> places(static_cast<size_t>(shape.residentChunks));
  if (places.empty())
    return places;
  for (auto [number, chunk] : enumerate(chunksOf(layers, shape))) {
    Residence own;
    for (const StageLayer &layer : chunk.layers) {
      own.parameters =
          addBytes(own.parameters, align64(layer.footprint.parameterBytes));
      own.gradients =
          addBytes(own.gradients, align64(layer.footprint.gradientBytes));
    }
    Residence &place = places[number % places.size()];
    place.parameters = std::max(place.parameters, own.parameters);
    place.gradients = std::max(place.gradients, own.gradients);
  }
  return places;
}

/// True, by layer, if it is updated on the device.
static std::vector<bool> updatedOnDevice(ArrayRef<StageLayer> layers,
                                         const StageShape &shape) {
  std::vector<bool> updated;
  for (const ChunkOfStage &chunk : chunksOf(layers, shape))
    updated.insert(updated.end(), chunk.layers.size(), chunk.updatesOnDevice);
  return updated;
}

/// One version of the states of layers that are away, or of all others.
static void addStates(ArrayRef<StageLayer> layers, const StageShape &shape,
                      bool away, StageLedger &ledger) {
  for (const StageLayer &layer : layers) {
    const LayerFootprint &footprint = layer.footprint;
    if (shape.isAway(footprint) != away)
      continue;
    auto add = [](int64_t &sum, int64_t bytes) {
      sum = addBytes(sum, align64(bytes));
    };
    if (layer.parametersOf < 0)
      add(ledger.parameters, footprint.parameterBytes);
    add(ledger.gradients, shape.gradientBytes(footprint));
    add(ledger.optimizer, footprint.optimizerBytes);
  }
}

/// The bytes that a micro-batch keeps for layers whose activations go home, the
/// most of any chunk.
static int64_t awayKeptBytes(ArrayRef<StageLayer> layers,
                             const StageShape &shape) {
  int64_t most = 0;
  for (const ChunkOfStage &chunk : chunksOf(layers, shape)) {
    int64_t bytes = 0;
    for (const StageLayer &layer : chunk.layers)
      if (layer.footprint.home.activations)
        bytes = addBytes(bytes, heldAndStashed(layer));
    most = std::max(most, bytes);
  }
  return most;
}

/// The bytes that go into a pack that recomputes, the most of any.
static int64_t stashBytes(ArrayRef<StageLayer> layers,
                          const StageShape &shape) {
  int64_t most = 0;
  for (const ChunkOfStage &chunk : chunksOf(layers, shape))
    if (chunk.inFlight > 0)
      most = std::max(most, chunk.layers.front().front);
  return multiplyBytes(shape.microBatchesPerSlot, most);
}

/// Slots on the host. The last chunk of the model runs backward behind forward:
/// if it has one slot that never leaves the device.
static int64_t homeSlots(const StageShape &shape) {
  if (!shape.slotsAtHome)
    return 0;
  if (shape.hasPacks || shape.homesByLayer)
    return shape.inFlight;
  bool staysHere = shape.chunks.empty() ? shape.lastStage && shape.inFlight == 1
                                        : shape.chunks.back().last &&
                                              shape.chunks.back().inFlight == 1;
  return shape.inFlight - staysHere;
}

/// Each of them.
static int64_t homeSlotBytes(ArrayRef<StageLayer> layers,
                             const StageShape &shape) {
  return shape.hasPacks       ? stashBytes(layers, shape)
         : shape.homesByLayer ? awayKeptBytes(layers, shape)
                              : slotBytes(layers, shape);
}

StageLedger hostLedger(ArrayRef<StageLayer> layers, const StageShape &shape) {
  StageLedger ledger;
  if (shape.residentChunks == 0)
    return ledger;
  addStates(layers, shape, /*away=*/true, ledger);
  for (auto [layer, updated] :
       zip_equal(layers, updatedOnDevice(layers, shape)))
    if (updated)
      ledger.gradients -= shape.gradientBytes(layer.footprint);
  ledger.activations =
      multiplyBytes(homeSlots(shape), homeSlotBytes(layers, shape));
  return ledger;
}

/// The ledger with whole buffers of collectives, or without if that is too
/// much.
static StageLedger fitWholeBuffers(ArrayRef<StageLayer> layers,
                                   StageShape &shape, int64_t available) {
  shape.wholeBuffers = shape.backend.registersBuffers;
  StageLedger ledger = stageLedger(layers, shape);
  if (!shape.wholeBuffers || ledger.total() <= available)
    return ledger;
  shape.wholeBuffers = false;
  return stageLedger(layers, shape);
}

StageLedger fitStage(MutableArrayRef<StageLayer> layers, StageShape &shape,
                     int64_t available) {
  StageLedger ledger = fitWholeBuffers(layers, shape, available);
  if (ledger.total() <= available)
    return ledger;
  for (StageLayer &layer : layers)
    layer.forwardAhead = layer.backwardAhead = false;
  return fitWholeBuffers(layers, shape, available);
}

StageLedger stageLedger(ArrayRef<StageLayer> layers, const StageShape &shape) {
  StageLedger ledger;
  addStates(layers, shape, /*away=*/false, ledger);
  ledger.parameters = multiplyBytes(shape.weightVersions, ledger.parameters);
  if (shape.residentChunks > 0) {
    ledger.parameters = ledger.gradients = 0;
    for (const Residence &place : residences(layers, shape)) {
      ledger.parameters = addBytes(ledger.parameters, place.parameters);
      ledger.gradients = addBytes(ledger.gradients, place.gradients);
    }
  }
  if (shape.hasPacks) {
    PackFrame frame = largestFrame(packFrames(layers, shape));
    ledger.parameters = frame.parameters;
    ledger.gradients = frame.gradients;
    ledger.activations = frame.slot;
    ledger.backward = frame.transient;
    ledger.communication = frame.communication();
    // Bytes that are more than the passes need.
    ledger.optimizer = frame.total() - frame.temporariesEnd() -
                       frame.parameters - frame.gradients -
                       frame.communication();
  } else {
    SharedRegions regions = sharedRegions(layers, shape);
    ledger.activations =
        addBytes(multiplyBytes(shape.slotsOnDevice(), regions.slot),
                 awayKeptBytes(layers, shape));
    ledger.backward = regions.transient;
    ledger.communication = regions.between.total();
  }
  ledger.workspace = workspaceBytes(shape);
  ledger.runtime = addBytes(
      multiplyBytes(shape.batches, stageData(layers).bytes(shape.microBatches)),
      stageConstantBytes(shape) - ledger.workspace);
  return ledger;
}

StageLayout stageLayout(ArrayRef<StageLayer> layers, const StageShape &shape) {
  StageLedger ledger = stageLedger(layers, shape);
  SharedRegions regions = sharedRegions(layers, shape);
  const BetweenLayers &between = regions.between;
  StageLayout layout;
  layout.layers.resize(layers.size());
  int64_t transient =
      ledger.backward + (regions.forwardGoesOn ? between.boundary : 0);
  int64_t at = 0;
  auto place = [&](ArenaRegion &region, int64_t bytes) {
    region = {at, bytes};
    at += bytes;
  };
  // The slots come first: the arena begins at a granule.
  int64_t slots = shape.slotsOnDevice();
  std::vector<PackFrame> frames;
  if (shape.hasPacks)
    frames = packFrames(layers, shape);
  layout.slotCount = slots;
  layout.slotBytes = slotBytes(layers, shape);
  layout.slotStride = layout.slotBytes;
  if (shape.hasPacks) {
    // Data outside the slot may go on to where messages wait.
    place(layout.packs, largestFrame(frames).total());
    layout.slots = {layout.packs.offset, layout.slotBytes};
    layout.transient = {layout.slotBytes,
                        layout.packs.bytes - layout.slotBytes};
  } else if (slots > 1 && transient > 0) {
    int64_t granule = shape.backend.mappingGranule;
    auto slotEnd = static_cast<int64_t>(alignTo(layout.slotBytes, granule));
    layout.windowBytes = static_cast<int64_t>(alignTo(transient, granule));
    layout.slotStride = slotEnd + layout.windowBytes;
    layout.slots.offset = slotEnd - layout.slotBytes;
    layout.slots.bytes = (slots - 1) * layout.slotStride + layout.slotBytes;
    layout.transient = {slotEnd, transient};
    at = slots * layout.slotStride;
  } else {
    place(layout.slots, slots * layout.slotBytes);
    place(layout.transient, transient);
  }
  place(layout.awaySlot, awayKeptBytes(layers, shape));
  StageLedger home = hostLedger(layers, shape);
  layout.homeBytes = home.total();
  if (layout.homeBytes > 0) {
    if (shape.hasPacks) {
      layout.residentParameters = layout.residentGradients = layout.packs;
    } else {
      place(layout.residentParameters, ledger.parameters);
      place(layout.residentGradients, ledger.gradients);
      place(layout.residentOptimizer, ledger.optimizer);
    }
    layout.parameters = {0, home.parameters};
    layout.gradients = {home.parameters, home.gradients};
    layout.optimizer = {home.parameters + home.gradients, home.optimizer};
    layout.homeSlots = {layout.optimizer.offset + layout.optimizer.bytes,
                        home.activations};
    layout.homeSlotBytes = homeSlotBytes(layers, shape);
  } else {
    place(layout.parameters, ledger.parameters);
    place(layout.gradients, ledger.gradients);
    place(layout.optimizer, ledger.optimizer);
  }
  for (const PackFrame &frame : frames) {
    const BetweenLayers &own = frame.between;
    int64_t begin = layout.packs.offset + frame.betweenBegin();
    layout.chunks.push_back({{begin, own.boundary},
                             {begin + own.boundary, own.received},
                             {begin, own.sent},
                             frame.waitingBytes});
  }
  if (regions.forwardGoesOn && !shape.hasPacks)
    layout.boundary = {layout.transient.offset + ledger.backward,
                       between.boundary};
  else if (!shape.hasPacks)
    place(layout.boundary, between.boundary);
  if (between.sendsFromTransient)
    layout.sent = {layout.transient.offset, layers.back().behind};
  if (!shape.chunks.empty() && !shape.hasPacks) {
    place(layout.received, between.received);
    place(layout.sent, between.sent);
  }
  StageData data = stageData(layers);
  int64_t copyBegin = at;
  place(layout.data, shape.batches * data.bytes(shape.microBatches));
  for (const DataCopy &copy : data.copies) {
    int64_t bytes = copy.bytes(shape.microBatches);
    layout.copies.push_back({copy, {copyBegin, bytes}});
    copyBegin += bytes;
  }
  layout.layerData = std::move(data.byLayer);
  place(layout.loss, lossBytes(shape));
  place(layout.step, shape.batches * kStepBlockBytes);
  layout.bytes = ledger.total();
  // The rest of the reserved granules stays here.
  layout.workspace = {at, layout.addressBytes() - at};
  if (shape.backend.workspaceBytes > 0)
    layout.libraries = {static_cast<int64_t>(alignTo(at, kLibraryAlignment)),
                        shape.backend.workspaceBytes};

  int64_t parameters = layout.parameters.offset;
  int64_t gradients = layout.gradients.offset;
  int64_t optimizer = layout.optimizer.offset;
  int64_t stayingOptimizer = layout.residentOptimizer.offset;
  int64_t stash = 0, awayStash = 0;
  const std::vector<LayerTemporaries> &temporaries = regions.temporaries;
  // The first layers of chunks, and what a slot keeps for all of a chunk's.
  std::map<size_t, int64_t> begins;
  size_t begin = 0;
  for (const ChunkOfStage &chunk : chunksOf(layers, shape)) {
    begins[begin] = keptBytes(chunk.layers);
    begin += chunk.layers.size();
  }
  int64_t keptByChunk = 0;
  std::vector<Residence> places = residences(layers, shape);
  size_t chunk = 0;
  int64_t residentParameters = 0, residentGradients = 0;
  int64_t residentOptimizer = 0;
  std::vector<bool> updated = updatedOnDevice(layers, shape);
  for (size_t l = 0; l < layers.size(); ++l) {
    const LayerFootprint &footprint = layers[l].footprint;
    auto begun = begins.find(l);
    if (begun != begins.end()) {
      stash = awayStash = 0;
      keptByChunk = begun->second;
    }
    StageLayout::LayerPlacement &placement = layout.layers[l];
    if (!places.empty()) {
      if (begun != begins.end() && shape.hasPacks) {
        const PackFrame &frame = frames[chunk++];
        residentParameters = layout.packs.offset + frame.statesBegin();
        residentGradients = residentParameters + frame.parameters;
        residentOptimizer = layout.packs.offset;
      } else if (begun != begins.end()) {
        residentParameters = layout.residentParameters.offset;
        residentGradients = layout.residentGradients.offset;
        for (const Residence &before :
             ArrayRef(places).take_front(chunk++ % places.size())) {
          residentParameters += before.parameters;
          residentGradients += before.gradients;
        }
      }
      placement.residentParameters = residentParameters;
      placement.residentGradients = residentGradients;
      residentParameters += align64(footprint.parameterBytes);
      residentGradients += align64(footprint.gradientBytes);
      if (updated[l]) {
        placement.residentOptimizer = residentOptimizer;
        residentOptimizer += align64(footprint.optimizerBytes);
      }
    }
    int64_t &kept = footprint.home.activations ? awayStash : stash;
    placement.stash = kept;
    placement.isAway = shape.isAway(footprint);
    if (layout.homeBytes > 0 && !placement.isAway) {
      placement.parameters = placement.residentParameters;
      placement.gradients = placement.residentGradients;
      placement.optimizer = stayingOptimizer;
      stayingOptimizer += align64(footprint.optimizerBytes);
    } else {
      placement.parameters = parameters;
      placement.gradients = gradients;
      placement.optimizer = optimizer;
      if (layers[l].parametersOf < 0)
        parameters += align64(footprint.parameterBytes);
      gradients += updated[l] ? 0 : shape.gradientBytes(footprint);
      optimizer += align64(footprint.optimizerBytes);
    }
    kept += heldAndStashed(layers[l]);
    // The slot is followed by the transient region, so one range serves.
    placement.backwardTransient = stash;
    placement.forwardTransient = stash + align64(footprint.outputBytes);
    if (shape.splitsBackward)
      placement.backwardTransient = placement.forwardTransient = keptByChunk;
    placement.forwardTransient += temporaries[l].forwardGap;
    placement.backwardTransient += temporaries[l].backwardGap;
    placement.forwardGathered = temporaries[l].forwardGathered;
    placement.backwardGathered = temporaries[l].backwardGathered;
  }
  for (size_t l = 0; l < layers.size(); ++l)
    if (int64_t other = layers[l].parametersOf; other >= 0)
      layout.layers[l].parameters = layout.layers[other].parameters;
  return layout;
}

} // namespace galvatron
