//===- StageMemory.h - The memory of a stage --------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The one memory formula: the search compares it with the budget, the plan
// prints it, and the compiled program asks for an arena of exactly this size.
// It is Eq. 1/2 of arXiv 2307.02031 for k micro-batches in flight:
//
//   f_l = align64(input) + align64(stash)        kept per micro-batch in flight
//   b_l = max(backward transient,
//             forward transient + align64(output) - front of l)
//   activations = k * sum f_l                    the stash slots
//   backward    = max_l max(0, b_l - sum_{j>l} f_j)
//   communication = max(max_l g_l, max_l r_l, 2 * live behind the last layer)
//
// Communication holds gradients on their way between two layers, and outputs
// that wait to be resharded or sent. Two such sets live at once: the gradients
// of a layer's output and input while it runs backward (g_l), those of one
// boundary in both layouts while it is resharded (r_l), and at the end of a
// stage what is sent on and the gradient that comes back. Each set takes the
// other end of the region in turn, so that two neighbours fit whatever their
// sizes are. A set has all tensors that are alive at its boundary, each at a
// multiple of 64 bytes.
//
// Where messages are sent before the next function runs and no tensor passes
// the end of the stage, its output may instead wait in the transient region,
// in the room in front of its layer's forward temporaries: that is then at
// least so large, and communication without its last term. A stage takes what
// is less (an embedding alone: one set instead of two).
//
// No gradient waits between layers while a forward function runs, only its
// output, at the end of the region. So forward temporaries that are larger than
// those of backward go on over the beginning of that region, which then follows
// the transient one: the tensors in front of the layer and those behind it fit
// there together, so forward finds at least the bytes of those in front. (More
// where another layer's are larger; no term of one layer tells, so what a stage
// then takes beyond its need is less than that difference.) Not with streams,
// where a gradient is on its way while the next function runs, nor where
// messages have regions of their own or backward passes are split: b_l then has
// all of it.
//
// A tensor that passes layers is kept once by the first of neighbouring layers
// of one layout: it counts like an input of that one (StageLayer::entering).
//
//   data        = micro-batches * sum over copies of align64(their samples)
//
// A schedule that goes on with the next batch while one is under way
// (Schedule::delay) has the data and a step block of each of them, and the
// parameters in as many versions as it says. Versions and batches lie behind
// one another, each as a stage with one would have it.
//
// A datum that several layers of a stage read is there once for each way in
// which samples are dealt to ranks (StageData). The search, which sees layers
// one by one, counts a copy for each: it never promises too little.
//
// Temporaries overlay what later layers keep in the same slot, which is dead
// (or not yet filled) while a layer runs, and go on in the transient region
// behind it. The one exception is the output of a forward function, which may
// already be the next layer's input in the slot: hence forward temporaries
// start behind it, and the output is part of b_l.
//
// Where backward passes are split (Schedule::splitsBackward) what later layers
// keep is needed until their weight parts have run, behind the input parts of
// all layers. So nothing is overlaid: temporaries lie behind the slot, and
//
//   backward    = max_l max(forward transient, backward transient)
//
// Gathered parameters (part of a layer's temporaries, at their end) stand by
// themselves where the backend has streams. If a stage gathers a layer ahead,
// those of two neighbours live at one time, and no formula of single layers
// tells how far that reaches: placeTemporaries() lays them out, low and high in
// turns. The search does not know of this: what a plan leaves of the budget
// decides whether its stages gather ahead (fitStage).
//
// A stage of several chunks has the states and data of all of them; slots are
// of one size, the largest that a chunk needs, and every chunk has its own.
// Temporaries overlay what later layers of the same chunk keep. Between layers
// it has a region each for an output that waits, a gradient that came and the
// gradients of the chunk that runs (grt/accesses.h says why).
//
// Where states have their home on the host (Plan::offload) the arena has the
// parameters and gradients of as many chunks as may be there at once; a stage's
// chunks take the places in turns, and a place is as large as the largest of
// its chunks. Where every layer has a home of its own (Strategy::home) the
// arena has all parameters and gradients, and the optimizer state of the layers
// that stay; what the others have at home is their states. What layers keep
// whose activations go home is not in the slots: the arena has it once.
//
// Chunks that are packs (Schedule/Packs.cpp) take turns on a device. What runs
// layers forward only has their parameters and keeps their inputs; what forward
// functions keep besides are temporaries there. Everything that a pack needs
// is one frame, which begins where that of any other pack does:
//
//   frame = slot + transient + parameters + gradients
//           + max(output, gradient that came + between layers)
//
// for no output waits while a pack runs backward. Where a pack is updated on
// the device its optimizer state comes when its last backward pass is over,
// over all that only its passes need:
//
//   frame = max(slot + transient + max(output, ...), optimizer state)
//           + parameters + gradients
//
// and the ledger has what the passes would not need of it as optimizer state.
// Such a pack has no gradients at home. Messages wait at the other end of what
// frames take, each in a place as large as its receiver needs it; where
// messages into two packs wait at one time theirs are as large as the larger.
// So packs and messages take
//
//   max over packs (frame + places in use while the pack is there)
//
// and the ledger is that of the pack that needs the most. At home is what goes
// into packs that recompute, of all micro-batches. Where packs that run forward
// only have micro-batches of another size everything of theirs is counted with
// that; they have copies of data of their own, and what goes into the last pack
// lies at home with the rest.
//
// There is one transient region, yet with several slots each of them needs it
// right behind itself. So the region is a window: the same memory is mapped
// behind every slot (only one function runs at a time). Slots then end, and the
// window begins, at multiples of the backend's granule; what that may cost,
// (k + 1) granules, is reserved.
//
// A slot's end is a border between two pieces of memory. Where the backend
// registers pieces for its collectives, temporaries of a layer begin so much
// later that no buffer of a collective goes over it, if the budget holds that
// (fitStage). Layers like the last one of a chunk take no more by that: all its
// temporaries are behind the border.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_COST_STAGEMEMORY_H
#define GALVATRON_COST_STAGEMEMORY_H

#include "galvatron/Cluster/Backend.h"
#include "galvatron/Cost/LayerModel.h"
#include "galvatron/Schedule/Schedule.h"
#include "galvatron/Strategy/Plan.h"

#include <optional>
#include <utility>
#include <vector>

namespace galvatron {

/// Bytes of the runtime's step block.
inline constexpr int64_t kStepBlockBytes = 256;

/// Bytes that a rank may take outside its arena after loading: argument tables
/// that oneDNN makes and frees in every call (about 500 bytes), growth of
/// standard containers. Reserved at the arena's end, so that the arena's size
/// bounds everything that a step touches.
inline constexpr int64_t kRuntimeScratchBytes = 4096;

/// The alignment of the workspace of a backend's libraries, in bytes. Not more
/// than the runtime's scratch, so that rounding up never leaves what is
/// reserved.
inline constexpr int64_t kLibraryAlignment = 4096;
static_assert(kLibraryAlignment <= kRuntimeScratchBytes);

/// The bytes of one layer of a stage that memory counts.
struct StageLayer {
  LayerFootprint footprint;
  int64_t samples = 0; ///< local samples of a micro-batch
  /// Micro-batches of a layer that runs forward only and has its own; 0: those
  /// of the stage.
  int64_t microBatches = 0;
  /// Whether its parameters are gathered while the layer that runs before it
  /// computes: the one in front in forward, the one behind in backward.
  bool forwardAhead = false, backwardAhead = false;
  /// Bytes of the tensors alive in front of the layer and behind it, in its own
  /// layout.
  int64_t front = 0, behind = 0;
  /// Bytes of tensors that the layer in front did not make, where this one
  /// holds them first: it begins the stage or has another layout.
  int64_t entering = 0;
  /// Its layout differs from that of the layer in front in its stage.
  bool resharded = false;

  /// The stage's layer that runs backward, for a layer that runs forward only:
  /// it has the parameters at home of both; -1: this layer has a copy.
  int64_t parametersOf = -1;

  /// The bytes of tensors in front of it that it holds, besides what its
  /// functions keep.
  int64_t heldBytes() const;
  /// LayerModel::dataOf(), and which samples each rank holds
  /// (Strategy::sampleLayout): layers that agree in both share a copy.
  std::vector<int64_t> data = {};
  SampleLayout sampleLayout;
};

/// A stage's layer under `strategy`.
StageLayer makeStageLayer(LayerFootprint footprint, int64_t samples,
                          std::vector<int64_t> data, const Strategy &strategy);

/// Samples of one of the model's data that layers of a stage read.
struct DataCopy {
  int64_t datum = 0;              ///< -1: not known
  int64_t bytesPerMicroBatch = 0; ///< a multiple of 64
  int64_t microBatches = 0;       ///< see StageLayer

  int64_t bytes(int64_t ofStage) const {
    return (microBatches > 0 ? microBatches : ofStage) * bytesPerMicroBatch;
  }
};
/// One copy of a datum for all layers that read the same samples of it in the
/// same micro-batches.
struct StageData {
  std::vector<DataCopy> copies;
  /// The copy of each datum of each layer, by layer.
  std::vector<std::vector<int64_t>> byLayer;

  int64_t bytes(int64_t microBatches) const;
};
StageData stageData(llvm::ArrayRef<StageLayer> layers);

/// Bytes of one micro-batch of all that a layer reads, if it shares nothing.
int64_t dataBytesPerMicroBatch(const LayerFootprint &footprint,
                               int64_t samples);

/// Layers of a stage that run as one.
struct StageChunk {
  size_t layers = 0; ///< behind those of the chunks before it
  int64_t inFlight = 1;
  bool last = false; ///< of the model
  /// Properties of a pack: it runs forward only, and nothing that goes on with
  /// another chunk's output comes into it.
  bool forwardOnly = false, readsData = false;
  int64_t number = 0; ///< among the chunks of all roles
  /// TaskProgram::updatesOnDevice.
  bool updatesOnDevice = false;
};

/// The footprint of a layer that runs forward only: nobody needs its gradients,
/// or what its forward function keeps.
LayerFootprint forwardOnlyFootprint(LayerFootprint footprint);

/// The terms that one layer adds to the formula.
struct LayerMemory {
  int64_t kept = 0; ///< f_l
  /// Temporaries of either direction; those of forward with the output in front
  /// of them. StageShape::transientBytes() makes b_l of them.
  int64_t forward = 0, backward = 0;
  int64_t parameters = 0; ///< one version
  int64_t otherState = 0; ///< gradients and optimizer
  int64_t borrowed = 0;   ///< gradients of borrowed parameters
  int64_t dataBytes = 0;  ///< of a micro-batch, if it shares nothing
  int64_t host = 0;       ///< states that have their home there
  int64_t hostKept = 0;   ///< per micro-batch in flight
  int64_t boundary = 0;   ///< g_l
  int64_t behind = 0;     ///< tensors alive behind it, in its layout
  int64_t front() const { return boundary - behind; } ///< alive in front of it
};
/// `splits`: under a schedule that splits backward passes.
LayerMemory layerMemory(const LayerFootprint &footprint, int64_t samples,
                        bool splits = false);

struct StageShape {
  int64_t inFlight = 1; ///< of all chunks together
  int64_t microBatches = 1;
  bool lastStage = false; ///< has the loss block
  BackendTraits backend;  ///< of the stage's devices
  /// Empty if it has one and messages share a region with what lies between
  /// layers.
  std::vector<StageChunk> chunks;
  /// Versions of the parameters, and batches that are under way at once.
  int64_t weightVersions = 1, batches = 1;
  /// Messages that are sent and received have regions of their own.
  bool separatesMessages = false;
  /// Backward passes are split: nothing overlays what a slot holds.
  bool splitsBackward = false;

  /// Gradients of borrowed parameters are left for the owner, who takes them
  /// while those of the next batch are made: there is a copy of them.
  bool leavesGradients = false;
  bool copiesBorrowed() const { return leavesGradients && !backend.streams; }
  /// The bytes of a layer's gradients, and of the copy.
  int64_t gradientBytes(const LayerFootprint &footprint) const;

  /// The bytes of a layer's states and data.
  int64_t stateBytes(const LayerMemory &memory) const;
  /// The number of its chunks whose parameters and gradients are on the devices
  /// at once, where all states have their home on the host; 0: states are
  /// there.
  int64_t residentChunks = 0;
  /// Says that only the states of layers whose footprint says so have their
  /// home on the host.
  bool homesByLayer = false;
  /// Whether states of a layer have their home on the host.
  bool isAway(const LayerFootprint &footprint) const {
    return residentChunks > 0 && (!homesByLayer || footprint.home.states);
  }
  /// Slots have their home on the host, and the devices have one.
  bool slotsAtHome = false;
  int64_t slotsOnDevice() const {
    return slotsAtHome && !homesByLayer ? 1 : inFlight;
  }
  /// Its chunks are packs, whose messages wait. A slot at home has what goes
  /// into so many micro-batches of a chunk: more than one where those of
  /// forward packs are larger.
  bool hasPacks = false;
  /// Buffers of collectives, and gathered parameters, lie in a slot or in the
  /// window behind it, never in both (fitStage).
  bool wholeBuffers = false;
  WaitingMessages waiting = {};
  int64_t microBatchesPerSlot = 1;
  /// Whether nothing waits in the region between layers while a forward runs,
  /// but its own output: nothing runs between a function and the message of
  /// what it made. With streams a message is on its way while the next one
  /// runs.
  bool forwardFreesBoundary() const {
    return chunks.empty() && !separatesMessages && !splitsBackward &&
           !backend.streams;
  }
  /// Whether the stage's last output may wait in the transient region.
  bool mayShareTransient() const {
    return !lastStage && forwardFreesBoundary();
  }
  /// b_l.
  int64_t transientBytes(const LayerMemory &memory) const;
  /// Takes all that a schedule says besides its slots.
  void setSchedule(const Schedule &schedule, const ScheduleShape &shape);
};

/// Bytes of a stage besides its layers: loss block, step block, the runtime's
/// scratch, the backend's workspace and the granules of the window.
int64_t stageConstantBytes(const StageShape &shape);

StageLedger stageLedger(llvm::ArrayRef<StageLayer> layers,
                        const StageShape &shape);
/// The bytes a rank of the stage has on the host: all states, where their home
/// is there, else nothing.
StageLedger hostLedger(llvm::ArrayRef<StageLayer> layers,
                       const StageShape &shape);

/// Decides about what is had only if `available` bytes hold it, and returns
/// the ledger: first all buffers of collectives are whole, where that is worth
/// something; then layers gather ahead as they are marked. What does not fit is
/// given up in this order.
StageLedger fitStage(llvm::MutableArrayRef<StageLayer> layers,
                     StageShape &shape, int64_t available);

/// Temporaries of a layer while it runs. All in the slot.
struct LayerTemporaries {
  /// Gathered parameters, where the layer has them.
  int64_t forwardGathered = 0, backwardGathered = 0;
  /// The end of everything that lives, what the layer keeps included.
  int64_t forwardEnd = 0, backwardEnd = 0;
  /// Bytes that stay free in front of the temporaries, so that no buffer of a
  /// collective is in two pieces.
  int64_t forwardGap = 0, backwardGap = 0;
};
/// Places the temporaries of the layers of one chunk; `splits`: all behind the
/// slot. No buffer of a collective is on both sides of `border`, if there is
/// one.
std::vector<LayerTemporaries>
placeTemporaries(llvm::ArrayRef<StageLayer> layers, bool splits = false,
                 std::optional<int64_t> border = std::nullopt);
/// Places the temporaries of all chunks of a stage.
std::vector<LayerTemporaries>
placeTemporaries(llvm::ArrayRef<StageLayer> layers, const StageShape &shape);

/// A byte range of the arena.
struct ArenaRegion {
  int64_t offset = 0;
  int64_t bytes = 0;
};

/// The places of everything of a stage. All offsets are multiples of 64 from
/// the arena's base, unless they are said to be in the slot.
struct StageLayout {
  struct LayerPlacement {
    int64_t parameters = 0, gradients = 0, optimizer = 0;
    /// These three are on the host.
    bool isAway = false;
    /// Places in the arena while the chunk is there, if home is the host.
    int64_t residentParameters = 0, residentGradients = 0;
    int64_t residentOptimizer = -1; ///< if it is updated there
    /// The input, then the stash behind it, in the slot or in `awaySlot`.
    int64_t stash = 0;
    /// Places in the slot: the base of the temporaries of forward and of
    /// backward (and recompute).
    int64_t forwardTransient = 0, backwardTransient = 0;
    /// Places in the slot of gathered parameters, of layers that have them.
    int64_t forwardGathered = 0, backwardGathered = 0;
  };
  /// The place of a copy of data, all micro-batches.
  struct DataPlacement {
    DataCopy copy; ///< of the first batch
    ArenaRegion region;
  };

  /// The boundary region is the end of the transient one where forward
  /// temporaries need it.
  ArenaRegion slots, transient;
  /// The stash of layers whose activations go home, of one micro-batch.
  ArenaRegion awaySlot;
  /// Regions of a rank's memory on the host, if `homeBytes` are there, and then
  /// of the layers whose states do have their home there.
  ArenaRegion parameters, gradients, optimizer;
  ArenaRegion residentParameters, residentGradients;
  ArenaRegion residentOptimizer; ///< of layers that stay
  int64_t homeBytes = 0;
  /// The slots in it, where they have their home there.
  ArenaRegion homeSlots;
  int64_t homeSlotBytes = 0; ///< each
  /// Sets of tensors between layers, from both of its ends in turn.
  ArenaRegion boundary;
  /// Regions of a stage with several chunks: a gradient that came, and an
  /// output that waits to be sent or resharded. Else these are in `boundary`,
  /// but `sent` may be a part of `transient`.
  ArenaRegion received, sent;
  /// Regions of a stage of packs, by chunk: the same three, of which the last
  /// may lie over the others, and how large the places are in which messages
  /// into it wait, from the end of `packs` down.
  struct PackPlacement {
    ArenaRegion boundary, received, sent;
    int64_t waitingBytes = 0; ///< each
  };
  std::vector<PackPlacement> chunks;
  ArenaRegion packs; ///< what packs and messages take in turns
  ArenaRegion data, loss, step;
  ArenaRegion workspace; ///< reserved, see kRuntimeScratchBytes
  /// The room the backend's libraries work in, inside `workspace`, at a
  /// multiple of kLibraryAlignment.
  ArenaRegion libraries;
  /// Slot i begins at slots.offset + i * slotStride.
  int64_t slotCount = 1, slotBytes = 0, slotStride = 0;
  /// Bytes that are mapped `slotCount` times, once behind each slot: the first
  /// time at `transient.offset`, then every `slotStride`. 0: no window.
  int64_t windowBytes = 0;
  int64_t bytes = 0; ///< of the arena; equals stageLedger().total()
  /// Addresses that the arena takes: its bytes and the window's repetitions.
  int64_t addressBytes() const { return bytes + (slotCount - 1) * windowBytes; }
  std::vector<LayerPlacement> layers;
  std::vector<DataPlacement> copies;
  /// The copy of each datum of each layer, by layer.
  std::vector<std::vector<int64_t>> layerData;
};

StageLayout stageLayout(llvm::ArrayRef<StageLayer> layers,
                        const StageShape &shape);

} // namespace galvatron

#endif // GALVATRON_COST_STAGEMEMORY_H
