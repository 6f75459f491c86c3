//===- AllocateArena.cpp - galvatron-allocate-arena -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Cluster/Cluster.h"
#include "galvatron/Cost/StageMemory.h"
#include "galvatron/Dialect/GRT/Transforms/Passes.h"
#include "galvatron/Dialect/GRT/Transforms/Roles.h"
#include "galvatron/Dialect/GRT/Transforms/Transients.h"
#include "galvatron/Strategy/Dtype.h"

#include "mlir/IR/Builders.h"

namespace mlir::grt {
#define GEN_PASS_DEF_ALLOCATEARENA
#include "galvatron/Dialect/GRT/Transforms/Passes.h.inc"
} // namespace mlir::grt

using namespace mlir;
using namespace mlir::grt;
using ::galvatron::LayerFootprint;
using ::galvatron::StageLayer;
using ::galvatron::StageLayout;
using ::galvatron::StageLedger;
using ::galvatron::StageShape;

namespace {

/// Sizes that hold for the whole module.
struct ProgramFacts {
  int64_t microBatches = 1;
  int64_t degree = 1;
  mlir::galvatron::PlanAttr plan;
  const ::galvatron::Schedule *schedule = nullptr;
  SmallVector<mlir::galvatron::DataAttr> data;
  int64_t elementBytes = 0;
  int64_t accumulatorBytes = 0;
  int64_t optimizerValues = 2; ///< see getOptimizerValues()
  ::galvatron::BackendTraits backend;
};

FailureOr<ProgramFacts> getFacts(ModuleOp module) {
  ProgramFacts facts;
  auto plan = mlir::galvatron::getPlan(module);
  auto training = mlir::galvatron::getTraining(module);
  if (!plan || !training || !module->hasAttr(kModelAttr))
    return module.emitOpError()
           << "expected 'galvatron.plan', 'galvatron.training' and '"
           << kModelAttr << "' attributes on a module with roles";
  facts.microBatches = plan.getMicroBatches();
  facts.degree = plan.getPipelineDegree();
  facts.plan = plan;
  // The attribute's verifier has parsed it.
  facts.schedule =
      llvm::cantFail(::galvatron::parseSchedule(plan.getSchedule()));
  facts.data = getModelData(module);
  StringRef dtype = training.getDtype();
  llvm::Expected<int64_t> width = ::galvatron::elementBytes(dtype);
  if (!width)
    return module.emitOpError()
           << "'galvatron.training': " << llvm::toString(width.takeError());
  facts.elementBytes = *width;
  facts.accumulatorBytes = dtype == "f64" ? 8 : 4;
  facts.optimizerValues = getOptimizerValues(
      training.getOptimizer(), facts.elementBytes, facts.accumulatorBytes);
  facts.backend = ::galvatron::backendTraits(getBackend(module));
  return facts;
}

/// What the layers of a role need and where it goes.
class RoleAllocator {
public:
  /// There are `chunkCount` chunks in all roles. `program`, where chunks are
  /// packs, has its tasks under `number`. `functions` are those of the module.
  RoleAllocator(RoleOp role, const SymbolTable &functions,
                const ProgramFacts &facts, int64_t chunkCount,
                const ::galvatron::TaskProgram *program, int64_t number)
      : role(role), functions(functions), facts(facts), program(program),
        number(number), module(role->getParentOfType<ModuleOp>()),
        layers(role.getLayers().getOps<LayerOp>()), chunks(getChunks(role)),
        lastChunk(chunkCount - 1),
        isLast(chunks.back().number == chunkCount - 1) {}

  LogicalResult run() {
    int64_t each = (lastChunk + 1) / facts.degree;
    ::galvatron::ScheduleShape scheduled = facts.plan.getShape(each);
    forwardMicroBatches =
        scheduled.regroups() ? scheduled.forwardMicroBatches : 0;
    for (const RoleChunk &chunk : chunks) {
      resharded = false;
      for (LayerOp layer : chunk.layers)
        if (failed(collect(layer, chunk.forwardOnly)))
          return failure();
    }
    StageShape shape{
        role.getSlots(), facts.microBatches, isLast, facts.backend, {}};
    packs = int64_t(scheduled.forwardPacks.size());
    shape.setSchedule(*facts.schedule, scheduled);
    separates = facts.schedule->separatesMessages(scheduled);
    if (separates)
      for (const RoleChunk &chunk : chunks)
        shape.chunks.push_back(
            {chunk.layers.size(), chunk.slots, chunk.number == lastChunk,
             chunk.forwardOnly, chunk.number == 0 || chunk.number == packs,
             chunk.number, program && program->updatesOnDevice(chunk.number)});
    if (program)
      shape.waiting = ::galvatron::waitingMessages(*program, number);
    FailureOr<std::optional<int64_t>> available = getAvailable();
    if (failed(available))
      return failure();
    StageLedger ledger = fitLedger(shape, *available);
    if (*available && ledger.total() > **available)
      return role.emitOpError() << "expected at most " << **available
                                << " bytes, the memory of its devices, found "
                                << ledger.total() << ": " << ledger.str();
    StageLayout layout = ::galvatron::stageLayout(stageLayers, shape);
    if (layout.bytes != ledger.total())
      return role.emitOpError()
             << "expected an arena of the ledger's " << ledger.total()
             << " bytes, found " << layout.bytes;
    apply(layout, ledger, shape);
    return success();
  }

private:
  FuncOp lookup(FlatSymbolRefAttr symbol) {
    return symbol ? functions.lookup<FuncOp>(symbol.getAttr()) : FuncOp();
  }

  LogicalResult collect(LayerOp layer, bool forwardOnly) {
    FuncOp forward = lookup(layer.getForwardAttr());
    FuncOp recompute = lookup(layer.getRecomputeAttr());
    FuncOp backward = lookup(layer.getBackwardAttr());
    FuncOp weight = lookup(layer.getWeightAttr());
    LayerFootprint footprint;
    footprint.home = layer.getStrategy().toStrategy().home();
    footprint.inputBytes = alignBytes(layer.getInputBytes());
    footprint.outputBytes = alignBytes(layer.getOutputBytes());
    footprint.stashBytes = alignBytes(layer.getStashBytes());
    setTransients(footprint, FunctionBytes::of(forward),
                  FunctionBytes::of(recompute), FunctionBytes::of(backward),
                  FunctionBytes::of(weight), layer.getRecomputeStashBytes());
    for (auto [number, group] : llvm::enumerate(
             layer.getGroups().getAsRange<mlir::galvatron::FlatGroupAttr>())) {
      int64_t elements = group.getShardElements();
      footprint.parameterBytes += alignBytes(elements * facts.elementBytes);
      if (number >= mlir::galvatron::kTrainedGroups)
        continue;
      int64_t gradients = alignBytes(elements * facts.accumulatorBytes);
      footprint.gradientBytes += gradients;
      if (number == 1)
        footprint.borrowedGradientBytes = gradients;
      if (number == 0)
        footprint.optimizerBytes = alignBytes(
            elements / layer.getStrategy().toStrategy().optimizerShards() *
            facts.optimizerValues * facts.accumulatorBytes);
    }
    FailureOr<SmallVector<int64_t>> data = getLayerData(layer, facts.data);
    if (failed(data))
      return failure();
    for (int64_t datum : *data)
      footprint.dataBytesPerSample.push_back(
          mlir::galvatron::DataAttr(facts.data[datum]).getBytesPerSample());

    // A function must stay within what its layer sets aside for it.
    auto fits = [&](FuncOp func, std::optional<int64_t> needed, int64_t given,
                    StringRef what) -> LogicalResult {
      if (!func || !needed || *needed <= alignBytes(given))
        return success();
      InFlightDiagnostic diagnostic = layer.emitOpError()
                                      << "expected '" << func.getSymName()
                                      << "' to need at most " << given << " "
                                      << what << " bytes, found " << *needed;
      diagnostic.attachNote(func.getLoc()) << "function stands here";
      return diagnostic;
    };
    int64_t kept =
        std::max(layer.getStashBytes(), layer.getRecomputeStashBytes());
    if (failed(fits(forward, forward.getStashBytes(), layer.getStashBytes(),
                    "stash")) ||
        failed(fits(recompute,
                    recompute ? recompute.getStashBytes() : std::nullopt,
                    layer.getRecomputeStashBytes(), "stash")) ||
        // Who runs forward only names the one of the layer's other copy.
        (!forwardOnly &&
         failed(fits(backward, backward.getStashBytes(), kept, "stash"))) ||
        failed(fits(weight, weight ? weight.getStashBytes() : std::nullopt,
                    kept, "stash")) ||
        failed(fits(forward, forward.getInputBytes(), getInputBytes(layer),
                    "input")) ||
        failed(fits(forward, forward.getOutputBytes(), layer.getOutputBytes(),
                    "output")))
      return failure();
    int64_t front = alignBytes(layer.getFront());
    int64_t behind = alignBytes(layer.getBehind());
    footprint.passingInBytes = front - footprint.inputBytes;
    footprint.passingOutBytes = behind - footprint.outputBytes;
    StageLayer stageLayer = ::galvatron::makeStageLayer(
        std::move(footprint), layer.getSamples(), {data->begin(), data->end()},
        layer.getStrategy().toStrategy());
    if (forwardOnly)
      stageLayer.footprint =
          ::galvatron::forwardOnlyFootprint(stageLayer.footprint);
    if (forwardOnly)
      stageLayer.parametersOf = getLayerWithStates(role, layer);
    if (forwardOnly)
      stageLayer.microBatches = forwardMicroBatches;
    stageLayer.forwardAhead = layer.getForwardAhead();
    stageLayer.backwardAhead = layer.getBackwardAhead();
    stageLayer.front = front;
    stageLayer.behind = behind;
    stageLayer.resharded = resharded;
    resharded = bool(layer.getForwardReshardAttr());
    stageLayers.push_back(std::move(stageLayer));
    return success();
  }

  /// Bytes of the inputs of a layer's functions, wherever they lie.
  int64_t getInputBytes(LayerOp layer) {
    ArrayRef<int64_t> rows = layer.getInputRows();
    if (rows.empty())
      return layer.getInputBytes();
    int64_t bytes = 0;
    for (size_t i = 0; i < rows.size(); i += LayerOp::kInputRow)
      bytes += alignBytes(rows[i + 3]);
    return bytes;
  }

  /// Memory of the role's devices, if it is known.
  FailureOr<std::optional<int64_t>> getAvailable() {
    std::optional<int64_t> memory;
    if (int64_t given = mlir::galvatron::getPlan(module).getMemory(); given > 0)
      memory = given;
    auto clusterAttr = mlir::galvatron::getCluster(module);
    if (!clusterAttr)
      return memory;
    llvm::Expected<::galvatron::Cluster> cluster = clusterAttr.toCluster();
    if (!cluster)
      return role.emitOpError(llvm::toString(cluster.takeError()));
    for (int64_t device : role.getDevices())
      if (device >= cluster->deviceCount())
        return role.emitOpError()
               << "expected devices of the cluster's " << cluster->deviceCount()
               << ", found device " << device;
    return std::optional(cluster->budgetOf(role.getDevices(), memory));
  }

  /// The ledger; where it would not fit otherwise, buffers of collectives may
  /// be in two pieces, and gathers come one layer after the other.
  StageLedger fitLedger(StageShape &shape, std::optional<int64_t> available) {
    auto gatherAhead = [&] {
      return llvm::any_of(stageLayers, [](const StageLayer &layer) {
        return layer.forwardAhead || layer.backwardAhead;
      });
    };
    int64_t wanted = ::galvatron::stageLedger(stageLayers, shape).total();
    bool wereAhead = gatherAhead();
    shape.wholeBuffers = shape.backend.registersBuffers;
    StageLedger ledger = ::galvatron::stageLedger(stageLayers, shape);
    if (!available)
      return ledger;
    int64_t whole = ledger.total();
    ledger = ::galvatron::fitStage(stageLayers, shape, *available);
    if (shape.backend.registersBuffers && !shape.wholeBuffers)
      role.emitRemark() << "buffers of collectives may be in two pieces, which "
                           "are not registered: in one each it needs "
                        << whole << " bytes, its devices have " << *available;
    if (!wereAhead || gatherAhead())
      return ledger;
    role.emitRemark() << "parameters are not gathered a layer ahead: with that "
                         "it needs "
                      << wanted << " bytes, its devices have " << *available;
    for (auto [layer, stageLayer] : llvm::zip_equal(layers, stageLayers)) {
      LayerOp op = layer;
      op.setForwardAhead(stageLayer.forwardAhead);
      op.setBackwardAhead(stageLayer.backwardAhead);
    }
    return ledger;
  }

  /// Everything the layers' regions are bound to, from where the gradient of a
  /// layer's output comes to where that of its input goes.
  void apply(const StageLayout &layout, const StageLedger &ledger,
             const StageShape &shape) {
    MLIRContext *context = role.getContext();
    Builder builder(context);
    auto range = [&](const ::galvatron::ArenaRegion &region) {
      return ExtentAttr::get(context, region.offset, region.bytes);
    };
    auto rangeIf = [&](bool isThere, const ::galvatron::ArenaRegion &region) {
      return isThere ? range(region) : ExtentAttr();
    };
    role.setArenaBytes(layout.bytes);
    role.setSlotBytes(layout.slotBytes);
    ArrayAttr copies;
    if (!layout.copies.empty())
      copies = builder.getArrayAttr(llvm::map_to_vector(
          layout.copies,
          [&](const StageLayout::DataPlacement &copy) -> Attribute {
            return builder.getDenseI64ArrayAttr(
                {copy.copy.datum, copy.region.offset, copy.region.bytes});
          }));
    ArrayAttr frames;
    if (shape.hasPacks)
      frames = builder.getArrayAttr(llvm::map_to_vector(
          layout.chunks,
          [&](const StageLayout::PackPlacement &at) -> Attribute {
            return builder.getDenseI64ArrayAttr(
                {at.boundary.offset, at.boundary.bytes, at.received.offset,
                 at.received.bytes, at.sent.offset, at.sent.bytes,
                 at.waitingBytes});
          }));
    bool hasHome = layout.homeBytes > 0;
    DenseI64ArrayAttr window;
    if (layout.windowBytes > 0)
      window = builder.getDenseI64ArrayAttr(
          {layout.transient.offset, layout.windowBytes, layout.slotStride});
    role.setArenaAttr(ArenaAttr::get(
        context, range(layout.parameters), range(layout.gradients),
        range(layout.optimizer), range(layout.slots), range(layout.transient),
        range(layout.boundary), range(layout.data), range(layout.loss),
        range(layout.step), copies, layout.homeBytes,
        rangeIf(hasHome, layout.residentParameters),
        rangeIf(hasHome, layout.residentGradients),
        rangeIf(hasHome && layout.residentOptimizer.bytes > 0,
                layout.residentOptimizer),
        rangeIf(separates, layout.received),
        rangeIf(separates || layout.sent.bytes > 0, layout.sent), window,
        rangeIf(layout.libraries.bytes > 0, layout.libraries),
        rangeIf(shape.homesByLayer ? layout.awaySlot.bytes > 0
                                   : shape.slotsAtHome,
                layout.homeSlots),
        rangeIf(layout.awaySlot.bytes > 0, layout.awaySlot),
        rangeIf(shape.hasPacks, layout.packs),
        shape.hasPacks || shape.homesByLayer ? layout.homeSlotBytes : 0,
        frames));
    role.setLedgerAttr(LedgerAttr::get(
        context, ledger.parameters, ledger.gradients, ledger.optimizer,
        ledger.activations, ledger.backward, ledger.communication,
        ledger.workspace, ledger.runtime));

    for (const RoleChunk &chunk : chunks)
      applyChunk(chunk, layout);
  }

  /// The gradient that comes into the last layer lies at the beginning of the
  /// boundary region, buffer 0, since a forward output may wait at its end,
  /// buffer 1, to be sent. From there the two take turns; a reshard between two
  /// layers is one turn more. Under some schedules what comes and what waits
  /// have buffers of their own.
  void applyChunk(const RoleChunk &chunk, const StageLayout &layout) {
    constexpr int64_t none = -1;
    bool isFirst = chunk.number == packs;
    bool hasHome = layout.homeBytes > 0;
    int64_t incoming = separates ? kReceivedBuffer : 0;
    for (size_t l = chunk.layers.size(); l-- > 0;) {
      LayerOp layer = chunk.layers[l];
      size_t i = chunk.firstLayer + l;
      const StageLayout::LayerPlacement &at = layout.layers[i];
      const LayerFootprint &footprint = stageLayers[i].footprint;
      bool isEnd = l + 1 == chunk.layers.size();
      bool isLoss = chunk.number == lastChunk && isEnd;
      int64_t gradIn = isLoss || chunk.forwardOnly ? none : incoming;
      int64_t gradOut = none;
      if (!(isFirst && l == 0) && !chunk.forwardOnly) {
        gradOut = incoming == 0 ? 1 : 0;
        incoming = layer.getBackwardReshard() ? 1 - gradOut : gradOut;
      }
      OutputPlace output = isLoss ? OutputPlace::Loss
                           : layer.getForwardReshard() || isEnd
                               ? OutputPlace::Boundary
                               : OutputPlace::Slot;
      DenseI64ArrayAttr data;
      if (!layout.layerData[i].empty())
        data = DenseI64ArrayAttr::get(role.getContext(), layout.layerData[i]);
      layer.setPlacementAttr(PlacementAttr::get(
          role.getContext(), at.parameters, at.gradients, at.optimizer,
          at.stash, at.forwardTransient, at.backwardTransient,
          hasHome && at.isAway ? at.residentParameters : none,
          hasHome && at.isAway ? at.residentGradients : none,
          at.residentOptimizer,
          footprint.forwardGathered > 0 ? at.forwardGathered : none,
          footprint.backwardGathered > 0 ? at.backwardGathered : none, data,
          gradIn, gradOut, output));
    }
  }

  RoleOp role;
  const SymbolTable &functions;
  const ProgramFacts &facts;
  const ::galvatron::TaskProgram *program;
  int64_t number; ///< of the role
  ModuleOp module;
  SmallVector<LayerOp> layers;
  SmallVector<RoleChunk> chunks;
  std::vector<StageLayer> stageLayers;
  int64_t lastChunk; ///< of the model
  bool isLast;       ///< has it
  /// What is sent and received has regions of its own.
  bool separates = false;
  int64_t packs = 0; ///< that run forward only, in front of the others
  int64_t forwardMicroBatches = 0; ///< theirs, if they have other ones
  /// The layer collected next holds samples in another layout.
  bool resharded = false;
};

class AllocateArenaPass
    : public mlir::grt::impl::AllocateArenaBase<AllocateArenaPass> {
  using AllocateArenaBase::AllocateArenaBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    for (auto func : module.getOps<FuncOp>())
      if (failed(allocateTransients(func)))
        return signalPassFailure();
    if (functionsOnly || module.getOps<RoleOp>().empty())
      return;
    FailureOr<SmallVector<RoleOp>> roles = getRoles(module);
    FailureOr<ProgramFacts> facts = getFacts(module);
    if (failed(roles) || failed(facts))
      return signalPassFailure();
    FailureOr<SmallVector<PlacedChunk>> chunks = getChunks(*roles);
    if (failed(chunks))
      return signalPassFailure();
    // How many messages wait beside a pack its tasks tell.
    std::optional<ReadProgram> read;
    if (roles->front().getWaitingPlaces()) {
      FailureOr<ReadProgram> tasks = readTaskProgram(module);
      if (failed(tasks))
        return signalPassFailure();
      read = std::move(*tasks);
    }
    const SymbolTable functions(module);
    for (auto [number, role] : llvm::enumerate(*roles))
      if (failed(RoleAllocator(role, functions, *facts, chunks->size(),
                               read ? &read->program : nullptr,
                               static_cast<int64_t>(number))
                     .run()))
        return signalPassFailure();
  }
};

} // namespace
