//===- manifest.h - What a compiled program says about itself -------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The manifest as plain structs. `parseManifest` checks everything that later
// code relies on, so that the executor needs no checks of its own: indices are
// in range, regions lie inside the arena, shapes, groups and degrees agree.
// Sizes are bytes unless a name says elements. Offsets are relative to the
// arena unless said otherwise.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_MANIFEST_H
#define GRT_CORE_MANIFEST_H

#include "base/values.h"
#include "core/prediction.h"
#include "grt/abi.h"
#include "grt/datum.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace grt {

/// A contiguous piece of an arena.
struct Extent {
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

/// How values of a parameter start. Sinusoids: row r of a table of positions
/// has the sines of r / 10000^(2 c / columns) for c = 0, 1, .. in its first
/// half, which has the column more where their number is odd, and the cosines
/// in the second, rounded to f32. Such a table is never trained.
enum class InitKind { Normal, Constant, Sinusoids };

/// A parameter of the model, as Hugging Face names it.
/// Where a parameter stands in a tensor of files that holds several: of every
/// `stride` rows of its first dimension it has `count` from `first` on.
struct StoredPart {
  std::string of; ///< the tensor's name
  int64_t first = 0, count = 0, stride = 0;
};

struct Parameter {
  std::string name;
  std::vector<int64_t> shape;
  InitKind init = InitKind::Constant;
  double std = 0;      ///< of normal values
  double constant = 0; ///< what all values are otherwise
  bool decay = false;
  /// Whether layers keep it while they generate: it is no part of the model and
  /// in no file.
  bool isCache = false;
  /// Names of tensors that are copies of it in files; none is saved.
  std::vector<std::string> copies;
  /// Absent: files have a tensor of its name.
  std::optional<StoredPart> part;

  int64_t elements() const;
  /// The shape of the tensor that files have: that of `part->of`, or its own.
  std::vector<int64_t> storedShape() const;
  /// Calls `use(first, at, count)` for every stretch of its elements [first,
  /// first + count) that lies together in that tensor, at element `at` there.
  template <typename Use>
  void eachStored(int64_t first, int64_t count, Use use) const {
    if (!part)
      return use(first, first, count);
    const int64_t row = elements() / shape[0], group = row * part->count;
    for (int64_t end = first + count; first < end;) {
      int64_t inGroup = first % group;
      int64_t length = std::min(group - inGroup, end - first);
      use(first, (first / group * part->stride + part->first) * row + inGroup,
          length);
      first += length;
    }
  }
};

/// Rows of an exchange: `units` consecutive units go from unit `sourceUnit` of
/// the source rank's buffer to `destinationUnit` of the destination rank's.
struct Transfer {
  int source = 0;
  int destination = 0;
  int64_t sourceUnit = 0;
  int64_t destinationUnit = 0;
  int64_t units = 0;
};

/// One of several tensors that an exchange moves together: bytes of a unit, and
/// where it begins in the source's and in the destination's buffer.
struct ExchangeTensor {
  uint64_t bytes = 0, source = 0, destination = 0;
};

/// Samples of a datum that layers of a role read: one copy for all that hold
/// the same samples. Every micro-batch has as many bytes of the extent.
struct DataCopy {
  int datum = 0;
  Extent extent; ///< of all micro-batches
  /// They are those of packs that run forward only, where those have their own.
  bool ofForwardPacks = false;
};

struct Exchange {
  std::string name;
  uint64_t bytesPerUnit = 0;           ///< of all tensors
  std::vector<ExchangeTensor> tensors; ///< empty: one, at the beginning
  std::vector<Transfer> transfers;

  /// Bytes of a unit of its tables: of several tensors rows count bytes.
  uint64_t tableUnit() const { return tensors.empty() ? bytesPerUnit : 1; }
};

/// All axes, by number.
inline constexpr grt_axis kAxes[] = {
#define GRT_AXIS(NAME, ...) GRT_AXIS_##NAME,
#include "grt/axes.def"
};

struct Level {
  /// The axis says what its ranks hold: the same (dp), shards (sdp), or a part
  /// of a factor (tp).
  grt_axis axis = GRT_AXIS_DP;
  int64_t degree = 1;
  int64_t stride = 1;
  /// Its ranks work on blocks of the rows of the same samples.
  bool cutsPositions = false;

  /// True if its ranks are a group of an axis, alone or with another level.
  bool isOn(grt_axis which) const {
    return which == GRT_AXIS_CP ? cutsPositions : axis == which;
  }
};

/// A parameter tensor (or its tensor-parallel slice) in a layer's flat group.
struct LayerTensor {
  int parameter = 0;
  int group = 0;      ///< 0 owned, 1 borrowed; 2 and 3 the same, not trained
  int64_t offset = 0; ///< elements from the start of the group's whole flat
  std::vector<int64_t> view; ///< reshaped parameter; `tpDim` counts in it
  std::vector<int64_t> localShape;
  int tpDim = -1; ///< -1: replicated over TP

  int64_t localElements() const;
  bool isBorrowed() const { return group & 1; }
  bool isFrozen() const { return group >= 2; }
  /// The layer updates it, and has states of it.
  bool isTrained() const { return group == 0; }
};

struct FlatGroup {
  int64_t elements = 0;      ///< whole flat, padded
  int64_t shardElements = 0; ///< that a rank holds
};

enum class OutputKind { Slot, Boundary, Loss };

/// Sharded parameters in full, as functions of one direction read them: group 0
/// and, at the next multiple of GRT_ALIGNMENT, group 1. No bytes: there are
/// none, the functions gather what they need.
struct Gathered {
  uint64_t offset = 0; ///< in a slot, may go on behind it
  uint64_t bytes = 0;
};

/// A tensor in front of a layer: where a slot holds it, and where the set of
/// all tensors alive there has its gradient.
struct InputTensor {
  uint64_t slot = 0, front = 0, bytes = 0;
};

/// A tensor alive in front of a layer and behind it.
struct PassingTensor {
  uint64_t slot = 0, front = 0, behind = 0, bytes = 0;
  bool used = false; ///< by the layer itself, too
};

struct Layer {
  std::string name;
  int64_t index = 0;      ///< in the model
  int64_t dropoutKey = 0; ///< that masks are keyed by
  std::string strategy;
  std::vector<Level> levels; ///< outermost first
  /// The SDP axis cuts the optimizer state of group 0 only (ZeRO-1, level
  /// `zdp`): parameters and gradients are whole on each of its ranks.
  bool cutsStateOnly = false;
  /// The ranks of the TP axis do the same and hold the same (level `replica`):
  /// its functions run as if there were one of them.
  bool replicated = false;
  int64_t samples = 0;      ///< of one micro-batch on one rank
  bool forwardOnly = false; ///< as its chunk
  int forward = 0;
  int recompute = -1;
  int backward = 0; ///< or its input part
  int weight = -1;  ///< the weight part of a backward function that is split
  int update = -1;
  int norm = -1; ///< adds to step.local_norm_squared
  std::vector<LayerTensor> tensors;
  /// Of tensors by `LayerTensor::group`, one behind the other. Those behind the
  /// first ones are not trained.
  FlatGroup groups[4];
  static constexpr size_t trainedGroups = 2;
  /// In the rank's home, see Role.
  uint64_t parameter = 0, gradient = 0, optimizer = 0;
  /// Where functions of forward and backward find them in the arena: the same,
  /// or while the chunk is there.
  uint64_t residentParameter = 0, residentGradient = 0;
  /// Its states have their home on the host; else `parameter`, `gradient` and
  /// `optimizer` are in the arena.
  bool isAway = false;
  /// What it keeps goes there in between, and is in the role's `awaySlot`.
  bool keptAway = false;
  /// It is updated in the arena, where its optimizer state comes for that;
  /// `gradient` says nothing then.
  bool updatesOnDevice = false;
  /// Whether its gradients are still there at the end of a step.
  bool holdsGradients() const { return !updatesOnDevice; }
  uint64_t residentOptimizer = 0;
  uint64_t stash = 0; ///< offset in a slot: input, then kept values
  uint64_t inputBytes = 0, stashBytes = 0;
  /// Of all tensors alive in front of the layer; behind it, 0: not said.
  uint64_t frontBytes = 0, behindBytes = 0;
  /// In the order of the functions' inputs; empty: `stash` has them in order.
  std::vector<InputTensor> inputs;
  std::vector<PassingTensor> passes;
  std::vector<uint64_t> outputs; ///< bytes of each result, if there are several
  uint64_t transient = 0;        ///< offset in a slot, may go on behind it
  uint64_t transientBytes = 0, recomputeStashBytes = 0;
  /// Temporaries of the forward function lie behind the output, which may be
  /// the next layer's input in the slot.
  uint64_t forwardTransient = 0, forwardTransientBytes = 0;
  Gathered forwardGathered, backwardGathered; ///< latter: of recompute too
  /// Copies of the role, in the order in which the layer's functions number
  /// their data.
  std::vector<int> data;
  OutputKind output = OutputKind::Slot;
  int outputBuffer = -1; ///< boundary buffer if output is Boundary
  int gradIn = -1, gradOut = -1;
  int forwardReshard = -1, backwardReshard = -1;

  /// Ranks of a group: a product of levels, where some cut samples and others
  /// positions. The axis cp has those that cut positions, whatever they hold.
  int64_t degree(grt_axis axis) const;
  /// In which a micro-batch is cut.
  int64_t sampleBlocks() const {
    return degree(GRT_AXIS_DP) * degree(GRT_AXIS_SDP) / degree(GRT_AXIS_CP);
  }
  /// Elements that a rank holds of all groups, and of those in front of one.
  int64_t heldElements() const { return heldBefore(4); }
  int64_t heldBefore(int group) const {
    int64_t count = 0;
    for (int g = 0; g < group; ++g)
      count += groups[g].shardElements;
    return count;
  }
  /// Elements that a rank has gradients of.
  int64_t trainedElements() const { return heldBefore(2); }
  /// Of what a rank holds of group 0, the elements that it updates.
  int64_t ownedElements() const {
    return groups[0].shardElements / (cutsStateOnly ? degree(GRT_AXIS_SDP) : 1);
  }
};

/// A run of layers of a role, with what its neighbours in the model exchange
/// with it.
struct Chunk {
  int number = 0; ///< over all roles, in the order of the model
  size_t firstLayer = 0, layerCount = 0; ///< of the role's
  /// Its slots among those of the role.
  uint32_t firstSlot = 0, slots = 0;
  int sendActivation = -1, recvActivation = -1, sendGradient = -1,
      recvGradient = -1;
  /// Of packs: it runs forward only; the chunk that sends it what it recomputes
  /// from, and by which exchange.
  bool forwardOnly = false;
  int stashFrom = -1, recvStash = -1;
  uint64_t waitingBytes = 0; ///< of packs, each place of messages into it
  int64_t firstIndex = 0;    ///< of its first layer, in the model

  size_t endLayer() const { return firstLayer + layerCount; }
};

struct Role {
  int stage = 0;
  std::vector<int> devices; ///< global ranks; the position is the local rank
  uint64_t arenaBytes = 0;
  /// States have their home in so much memory of the host, and come to the
  /// arena for forward and backward; 0: the arena is their home. All that
  /// happens once a step is done at home.
  uint64_t homeBytes = 0;
  Extent residentParameters, residentGradients;
  Extent residentOptimizer; ///< of layers that are not away
  /// Of the home: `parameters`, `gradients`, `optimizer`.
  Extent parameters, gradients, optimizer, slots, transient, data, loss, step;
  /// Of the home: slots, if they have theirs there; the arena has one then.
  Extent homeSlots;
  bool slotsAtHome = false;
  uint64_t homeSlotBytes = 0; ///< each
  /// Where some layers' activations alone have their home there: what these
  /// keep, of one micro-batch. The slots are in the arena then.
  Extent awaySlot;
  /// Of a role whose chunks are packs: what they and messages that came take in
  /// turns, the former from its beginning, the latter from its end on.
  Extent packs;
  uint64_t waitingPlaces = 0;
  /// Where messages into a chunk wait, as large as they are.
  Extent waitingExtent(const Chunk &chunk, uint64_t place,
                       uint64_t bytes) const {
    return {packs.offset + packs.bytes - (place + 1) * chunk.waitingBytes,
            bytes};
  }
  bool hasOneSlot() const { return slotsAtHome && awaySlot.bytes == 0; }
  int64_t slotsInArena() const { return hasOneSlot() ? 1 : slotCount; }
  /// Where a layer keeps what backward needs of a micro-batch.
  uint64_t keptOffset(const Layer &layer, uint32_t slot) const {
    return (layer.keptAway ? awaySlot.offset
                           : slots.offset + slot * slotStride) +
           layer.stash;
  }
  /// Sets of tensors between layers: two that may be the ends of one region,
  /// and where the role has several chunks what was received and what is sent.
  /// Packs have four each, one behind the other.
  std::vector<Extent> boundary;
  /// For the libraries of the backend; no bytes: they want none.
  Extent workspace;
  std::map<std::string, uint64_t> ledger;
  int64_t slotCount = 0; ///< of all chunks
  uint64_t slotBytes = 0;
  uint64_t slotStride = 0;
  /// Memory that lies behind every slot: as many views of the same bytes as
  /// there are slots. No bytes: no window.
  Extent window;

  /// Addresses that the arena takes: its bytes and the window's repetitions.
  uint64_t addressBytes() const {
    return arenaBytes + uint64_t(slotsInArena() - 1) * window.bytes;
  }
  std::vector<DataCopy> copies;
  std::vector<Layer> layers;
  /// Numbers ascend, and each has the layers and slots behind those before it.
  std::vector<Chunk> chunks;

  /// Null if it is another role's.
  const Chunk *chunk(int number) const;
};

struct TieEnd {
  int role = 0, layer = 0, tensor = 0;
};

struct Tie {
  int parameter = 0;
  TieEnd owner, borrower;
};

/// Low-rank adapters: beside each of some products, whose weights W are frozen,
/// two with matrices A, [rank, in], and B, [out, rank], add
/// alpha / rank (x A) B.
struct Adapters {
  int64_t rank = 0; ///< 0: there are none
  double alpha = 0;
  bool inFirst = false; ///< W is [in, out] and not [out, in]
  std::vector<std::string> modules;
  /// Those of each module; empty: `rank` and `alpha`.
  std::vector<int64_t> ranks;
  std::vector<double> alphas;

  int64_t rankOf(size_t module) const {
    return ranks.empty() ? rank : ranks[module];
  }
  double alphaOf(size_t module) const {
    return alphas.empty() ? alpha : alphas[module];
  }
  double scaleOf(size_t module) const {
    return alphaOf(module) / double(rankOf(module));
  }
  /// Names of a module's tensors in files.
  static std::string weightOf(const std::string &module);
  static std::string firstOf(const std::string &module);  ///< A
  static std::string secondOf(const std::string &module); ///< B
};

/// Equal nodes of the cluster that the plan was priced on.
struct PlannedNodes {
  int64_t count = 0, devices = 0; ///< devices of each
  /// Bytes per second between two devices of a node, and of the link to other
  /// nodes, which its devices share; 0: unknown.
  double bandwidth = 0, networkBandwidth = 0;
};

struct Manifest {
  std::string toolVersion;
  std::string backend;
  grt_dtype dtype = GRT_F32;
  int64_t world = 0, batch = 0, microBatches = 0;
  /// By rank; empty: the program does not say.
  std::vector<PlannedNodes> nodes;
  /// The node of each rank; empty as well.
  std::vector<int> nodeOfRank() const;
  /// The numbers of the parameters that are a tensor of files, or its parts;
  /// empty if there is no tensor of this name.
  std::vector<int> parametersOf(const std::string &tensor) const;
  std::vector<Datum> data;
  std::string schedule;
  /// How many batches gradients are late; the schedule goes on without a drain
  /// then. Versions of the parameters: the newest, and behind it older ones.
  int64_t delay = 0, weightVersions = 1;
  /// Chunks are updated before the gradients of all are known. Not of the
  /// manifest's text: the task table says it.
  bool updatesJustInTime = false;
  std::string optimizer; ///< adamw, adam or sgd
  bool clip = true;
  /// Label smoothing, and the factor of the z-loss; 0: none.
  double labelSmoothing = 0, zLoss = 0;
  /// Weight decay is of all trained parameters, whatever their rank.
  bool decayAll = false;
  /// Numbers that a micro-batch adds up: its loss, and with either of the two
  /// above LossSums::squares.
  int64_t lossValues = 1;
  uint64_t lossBytes() const { return uint64_t(lossValues) * sizeof(double); }
  Adapters adapters;
  std::string modelConfig; ///< JSON text, keys in the order of the file
  double predictedStepMs = 0, flopsPerSample = 0, peakFlops = 0;
  /// Predicted times and peak are those of a built-in cluster, not measured.
  bool nominal = false;
  std::vector<std::string> functions;
  std::vector<Parameter> parameters;
  std::vector<Exchange> exchanges;
  std::vector<Tie> ties;
  std::vector<Role> roles;
  int chunkCount = 0;
  /// Chunks are packs: so many that run forward only, and behind them those
  /// that run backward.
  bool hasPacks = false;
  int forwardPacks = 0;
  /// Micro-batches of packs that run forward only, and of everything else.
  /// Where they differ one is a multiple of the other, what forward packs make
  /// is regrouped at home, and a rank has the same consecutive samples of the
  /// batch in both.
  int64_t forwardMicroBatches = 0;
  bool regroups() const {
    return hasPacks && forwardMicroBatches != microBatches;
  }
  int64_t microBatchesOf(bool forwardOnly) const {
    return forwardOnly ? forwardMicroBatches : microBatches;
  }
  /// Those that share a slot at home, of the larger size as well as of the
  /// smaller.
  int64_t perSlot(bool forwardOnly) const {
    return microBatchesOf(forwardOnly) /
           std::min(forwardMicroBatches, microBatches);
  }
  /// The output of the last forward pack is one of those that go home.
  bool sendsHome(const Chunk &chunk) const {
    return regroups() && chunk.number + 1 == forwardPacks;
  }
  /// The chunk at the other end of what one sends or receives; -1: there is
  /// none.
  int peerOf(const grt_transfer_part &part) const;
  /// Null if there is no such chunk.
  const Chunk *chunk(int number) const;
  /// The layer of a role whose input another chunk recomputes from, which
  /// `sender` runs forward; -1: it has none.
  static int stashLayer(const Role &role, const Chunk &sender,
                        const Chunk &receiver);
  /// What the cost model says of a step's parts, if the program has it.
  std::optional<PredictedTimes> predicted;

  uint64_t elementBytes() const;
  grt_dtype accumulatorType() const {
    return dtype == GRT_F64 ? GRT_F64 : GRT_F32;
  }
  uint64_t accumulatorBytes() const { return dtype == GRT_F64 ? 8 : 4; }
  /// Optimizer state tensors per parameter: m and v, or the momentum.
  int64_t optimizerStates() const { return optimizer == "sgd" ? 1 : 2; }
  /// Whether owned parameters are rounded copies of master weights, which stand
  /// behind a layer's optimizer states and have the accumulator type.
  bool hasMasterWeights() const { return elementBytes() < accumulatorBytes(); }
  /// Bytes of a layer's optimizer region, and where its master weights begin.
  uint64_t optimizerBytes(const Layer &layer) const;
  uint64_t masterOffset(const Layer &layer) const;
  /// Whether states of any layer have their home on the host.
  bool hasHomes() const;
  int64_t samplesPerMicroBatch(bool forwardOnly = false) const {
    return batch / microBatchesOf(forwardOnly);
  }
  /// Batches that are under way at once: each has its part of the regions
  /// `data` and `step`.
  uint64_t batchesAtOnce() const { return uint64_t(delay) + 1; }
  /// From a parameter to the same one a version older.
  uint64_t versionStride(const Role &role) const {
    return role.parameters.bytes / uint64_t(weightVersions);
  }
  /// The datum of kind "tokens" that the samples' length is counted in, the
  /// first; null if the model has none.
  const Datum *tokens() const;
  /// Those that a decoder reads behind an encoder, the second of kind "tokens";
  /// null if there is none.
  const Datum *decoderTokens() const;
  /// Whether there is nothing but tokens, a mask of an encoder's, and a label
  /// for each token of the decoder, or of the only ones.
  bool predictsTokens() const;
  /// The datum of a kind; null if there is none.
  const Datum *datumOf(const char *kind) const;
  /// The one that the loss is a mean over.
  const Datum &counted() const;
  /// Tokens of a sample; 0 without tokens.
  int64_t sequenceLength() const;
};

/// Rounds up to GRT_ALIGNMENT.
inline uint64_t alignUp(uint64_t bytes) {
  return (bytes + GRT_ALIGNMENT - 1) / GRT_ALIGNMENT * GRT_ALIGNMENT;
}

/// Parses and checks a manifest. Throws Error with exit code 2 whose message
/// begins with "manifest: " and names the place.
Manifest parseManifest(std::string_view text);

/// A parameter that is stored, as one that has an owner is.
struct StoredParameter {
  int index = 0;
  bool isFrozen = false;
};

/// The parameters that are stored, by name.
std::vector<StoredParameter> storedParameters(const Manifest &manifest);

} // namespace grt

#endif // GRT_CORE_MANIFEST_H
