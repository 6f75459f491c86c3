//===- ScheduleTasks.cpp - galvatron-schedule-tasks -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Cluster/Backend.h"
#include "galvatron/Dialect/GRT/Transforms/Passes.h"
#include "galvatron/Dialect/GRT/Transforms/Roles.h"
#include "galvatron/Dialect/GRT/Transforms/Transients.h"
#include "galvatron/Dialect/Galvatron/IR/Executable.h"
#include "galvatron/Dialect/Galvatron/IR/LiveSets.h"
#include "galvatron/Schedule/Schedule.h"
#include "galvatron/Strategy/Concurrency.h"
#include "galvatron/Strategy/Plan.h"
#include "galvatron/Strategy/ReshardPlan.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/StringSet.h"

namespace mlir::grt {
#define GEN_PASS_DEF_SCHEDULETASKS
#include "galvatron/Dialect/GRT/Transforms/Passes.h.inc"
} // namespace mlir::grt

using namespace mlir;
using namespace mlir::grt;
using ::galvatron::ReshardPlan;
using ::galvatron::Strategy;
using mlir::galvatron::LiveSet;

namespace {

/// Makes exchanges, one for all places that move the same samples.
class ExchangeMaker {
public:
  ExchangeMaker(OpBuilder &builder, ModuleOp module)
      : builder(builder), symbols(module) {}

  /// The exchange of `plan`; a new one is called after `name`.
  /// `tensors` are rows of three numbers, or empty if there is one tensor.
  FlatSymbolRefAttr get(Location loc, const ReshardPlan &plan,
                        int64_t bytesPerUnit, ArrayRef<int64_t> tensors,
                        StringRef name) {
    SmallVector<int64_t> numbers;
    for (const ::galvatron::ReshardTransfer &transfer : plan.transfers)
      numbers.append({transfer.srcRank, transfer.dstRank, transfer.srcUnit,
                      transfer.dstUnit, transfer.units});
    DenseI64ArrayAttr rows =
        tensors.empty() ? nullptr : builder.getDenseI64ArrayAttr(tensors);
    Key key(bytesPerUnit, builder.getDenseI64ArrayAttr(numbers), rows);
    auto it = known.find(key);
    if (it != known.end())
      return it->second;
    auto exchange =
        ExchangeOp::create(builder, loc, builder.getStringAttr(name),
                           builder.getI64IntegerAttr(bytesPerUnit),
                           builder.getDenseI64ArrayAttr(numbers), rows);
    symbols.insert(exchange);
    return known[key] = FlatSymbolRefAttr::get(exchange.getSymNameAttr());
  }

private:
  using Key = std::tuple<int64_t, Attribute, Attribute>;

  OpBuilder &builder;
  SymbolTable symbols;
  llvm::DenseMap<Key, FlatSymbolRefAttr> known;
};

/// The tensors of a boundary, in order, as ranks of one strategy hold them.
class HeldSet {
public:
  HeldSet(const LiveSet &set, int64_t samples) : samples(samples) {
    for (OpResult value : set) {
      offsets[value] = end;
      end += alignBytes(bytesOf(value));
    }
  }

  int64_t bytesOf(Value value) const {
    return samples * mlir::galvatron::getSampleBytes(value);
  }
  int64_t offsetOf(Value value) const { return offsets.lookup(value); }
  bool contains(Value value) const { return offsets.contains(value); }
  int64_t bytes() const { return end; }

private:
  int64_t samples, end = 0;
  llvm::DenseMap<Value, int64_t> offsets;
};

class ScheduleTasksPass
    : public mlir::grt::impl::ScheduleTasksBase<ScheduleTasksPass> {
  void runOnOperation() override {
    if (failed(run(getOperation())))
      signalPassFailure();
  }

  LogicalResult run(ModuleOp module) {
    auto model = mlir::galvatron::getModel(module);
    // Roles follow the order of the layers.
    if (!model || failed(mlir::galvatron::verifyExecutable(model)))
      return failure();
    auto plan = mlir::galvatron::getPlan(module);
    if (!plan)
      return module.emitOpError(
          "expected a 'galvatron.plan' attribute, found none");
    SmallVector<mlir::galvatron::StageOp> stages = model.getStages();
    if (stages.empty())
      return model.emitOpError("expected the layers in stages: run "
                               "'galvatron-split-stages' first");
    // Stages of the same devices are chunks of one role.
    int64_t degree = plan.getPipelineDegree();
    if (stages.size() % degree && !plan.getPacks())
      return model.emitOpError()
             << "expected " << degree
             << " stages as the plan says, or a multiple, found "
             << stages.size();
    samples = plan.getBatch() / plan.getMicroBatches();
    llvm::Expected<const ::galvatron::Schedule *> parsed =
        ::galvatron::parseSchedule(plan.getSchedule());
    if (!parsed)
      return module.emitOpError(llvm::toString(parsed.takeError()));
    schedule = *parsed;
    int64_t chunksEach = int64_t(stages.size()) / degree;
    shape = plan.getShape(chunksEach);
    if (llvm::Error error = schedule->check(shape))
      return module.emitOpError(llvm::toString(std::move(error)));
    forwardSamples = shape.regroups()
                         ? plan.getBatch() / shape.forwardMicroBatches
                         : samples;
    auto training = mlir::galvatron::getTraining(module);
    bool delays = schedule->delay(shape) > 0;
    if (delays)
      for (auto parameter : module.getOps<mlir::galvatron::ParameterOp>())
        if (parameter.getFrozen())
          return parameter.emitOpError()
                 << "expected all parameters to be trained under schedule '"
                 << plan.getSchedule()
                 << "', which keeps an older version of them, found one that "
                    "is frozen";
    shape.delayedNorm = delays && training && training.getClip();
    if (training) {
      ::galvatron::TrainingOptions asked;
      asked.clip = training.getClip();
      asked.clipDelayed = training.getClipDelayed();
      if (llvm::Error error =
              ::galvatron::checkClipping(*schedule, plan.getOffloaded(), asked))
        return module.emitOpError(llvm::toString(std::move(error)));
    }
    liveSets = mlir::galvatron::getLiveSets(model);

    OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
    ExchangeMaker exchanges(builder, module);
    SmallVector<RoleOp> roles;
    SmallVector<ChunkSource> sources = getSources(stages);
    if (shape.hasPacks() && failed(checkPacks(sources)))
      return failure();
    for (int64_t number = 0; number < degree; ++number) {
      SmallVector<ChunkSource> chunks;
      for (const ChunkSource &source : sources)
        if (schedule->home(shape, source.number) == number)
          chunks.push_back(source);
      FailureOr<RoleOp> role = buildRole(builder, exchanges, number, chunks);
      if (failed(role))
        return failure();
      roles.push_back(*role);
    }
    auto opOf = [&](const ChunkSource &source) {
      return getChunkOp(roles[schedule->home(shape, source.number)],
                        source.number);
    };
    for (size_t i = 0; i + 1 < sources.size(); ++i)
      if (!shape.hasPacks() &&
          (failed(connect(exchanges, sources[i], opOf(sources[i]), "activation",
                          sources[i + 1], opOf(sources[i + 1]),
                          liveSets[sources[i + 1].firstLayer])) ||
           failed(connect(exchanges, sources[i + 1], opOf(sources[i + 1]),
                          "gradient", sources[i], opOf(sources[i]),
                          liveSets[sources[i + 1].firstLayer]))))
        return failure();
    if (shape.hasPacks() && failed(connectPacks(exchanges, sources, opOf)))
      return failure();

    FailureOr<SmallVector<TiedTensor>> ties = getTies(roles);
    if (failed(ties))
      return failure();
    std::vector<::galvatron::TieRoles> tieRoles;
    for (const TiedTensor &tie : *ties)
      tieRoles.push_back(getTieRoles(roles, tie));
    ::galvatron::TaskProgram program = schedule->build(shape, tieRoles);
    const SymbolTable functions(module);
    if (::galvatron::backendTraits(getBackend(module)).streams)
      for (auto [number, role, tasks] : llvm::enumerate(roles, program.roles)) {
        gatherAhead(role, functions);
        ::galvatron::SumsPlace place{number == 0, program.hasSeveralChunks()};
        auto chosen = plan.getSumsOf(static_cast<int64_t>(number));
        std::vector<::galvatron::Strategy> strategies = getStrategies(role);
        // Gradients whose home is the host's memory are summed there.
        if (program.residentChunks > 0)
          continue;
        if (chosen == ::galvatron::SumTiming::Overlap)
          if (std::string reason =
                  ::galvatron::whyNotOverlapSums(strategies, place);
              !reason.empty())
            return module.emitError()
                   << "expected 'sums' of stage " << number
                   << " to be 'at-end', found 'overlap': " << reason;
        if (::galvatron::overlapsSums(strategies, chosen, place)) {
          ::galvatron::setSyncBehind(tasks);
          awaitSums(role);
        }
      }
    buildSchedules(builder, roles, program);

    ArrayAttr data = model.getDataAttr();
    module->setAttr(kModelAttr,
                    ModelAttr::get(&getContext(), model.getSymNameAttr(),
                                   data ? data : builder.getArrayAttr({}),
                                   model.getConfigAttr()));
    model.erase();
    return success();
  }

  /// Layers of the model that become a chunk.
  struct ChunkSource {
    SmallVector<mlir::galvatron::LayerOp> layers;
    SmallVector<int64_t> devices;
    int64_t number;
    int64_t firstLayer; ///< in the model
    bool forwardOnly = false;

    Location getLoc() const {
      return mlir::galvatron::LayerOp(layers.front())->getLoc();
    }
  };

  /// Stages, and in front of them packs of their layers that run forward only.
  SmallVector<ChunkSource>
  getSources(ArrayRef<mlir::galvatron::StageOp> stages) {
    SmallVector<ChunkSource> runs;
    // By role: a forward pack has the devices of the stages that share its.
    SmallVector<SmallVector<int64_t>> devices(shape.roles);
    for (auto [run, stage] : llvm::enumerate(stages)) {
      mlir::galvatron::StageOp op = stage;
      int64_t number = shape.chunkOfRun(int64_t(run));
      runs.push_back({op.getLayers(), SmallVector<int64_t>(op.getDevices()),
                      number, int64_t(layers.size())});
      llvm::append_range(layers, op.getLayers());
      devices[schedule->home(shape, number)] = runs.back().devices;
    }
    SmallVector<ChunkSource> sources;
    ArrayRef<int64_t> packs = shape.forwardPacks;
    for (auto [number, first] : llvm::enumerate(packs)) {
      int64_t end = number + 1 < packs.size() ? packs[number + 1]
                                              : shape.backwardPacks.back();
      int64_t role = schedule->home(shape, int64_t(number));
      sources.push_back({SmallVector<mlir::galvatron::LayerOp>(
                             ArrayRef(layers).slice(first, end - first)),
                         devices[role], int64_t(number), first,
                         /*forwardOnly=*/true});
    }
    llvm::append_range(sources, runs);
    return sources;
  }

  /// What packs cannot do yet.
  LogicalResult checkPacks(ArrayRef<ChunkSource> sources) {
    for (const ChunkSource &source : sources)
      for (auto [i, op] : llvm::enumerate(source.layers)) {
        mlir::galvatron::LayerOp layer = op;
        Strategy strategy = layer.getStrategyAttr().toStrategy();
        if (strategy.checkpoint() || strategy.point() > 0)
          return layer.emitOpError()
                 << "expected a strategy without 'ckpt' in a pack, which is "
                    "recomputed as a whole, found '"
                 << strategy.str() << "'";
        mlir::galvatron::LayerOp other = sources.front().layers.front();
        Strategy first = other.getStrategyAttr().toStrategy();
        if (strategy.str() != first.str())
          return layer.emitOpError()
                 << "expected one strategy in all packs, found '"
                 << strategy.str() << "' beside '" << first.str() << "'";
        if (source.forwardOnly && failed(checkBorrowed(layer)))
          return failure();
        // What goes home is in one piece where a pack begins, which holds it.
        int64_t begin = source.firstLayer;
        size_t front = liveSets[begin].size();
        if (i > 0 || front < 2 || source.forwardOnly)
          continue;
        bool goesHome = source.number + 1 < shape.allChunks();
        if (goesHome && !llvm::is_contained(shape.forwardPacks, begin))
          return layer.emitOpError()
                 << "expected a pack that runs forward only to begin with it "
                    "too: what the backward pack recomputes from are "
                 << front << " tensors";
        if (shape.regroups())
          return layer.emitOpError()
                 << "expected one tensor in front of a backward pack where "
                    "micro-batches have two sizes, found "
                 << front;
      }
    return success();
  }

  /// A layer that runs forward only has all parameters in one group. Where a
  /// rank has a shard of each group those of two are not one.
  LogicalResult checkBorrowed(mlir::galvatron::LayerOp layer) {
    // Copies in other stages take values of parameters as ties do.
    Strategy strategy = layer.getStrategyAttr().toStrategy();
    if (shape.roles > 1 && strategy.on(::galvatron::LayerAxis::Tensor))
      return layer.emitOpError()
             << "'" << strategy.str()
             << "' is for packs of one group of devices: copies of cut "
                "parameters in other stages would have to be given their parts";
    auto groups =
        llvm::to_vector(layer.getLayoutAttr()
                            .getGroups()
                            .getAsRange<mlir::galvatron::FlatGroupAttr>());
    if (groups.size() > mlir::galvatron::kTrainedGroups)
      return layer.emitOpError()
             << "expected all parameters to be trained in packs, found some "
                "that are frozen";
    bool shards = llvm::any_of(groups, [](auto group) {
      return group.getShardElements() != group.getElements();
    });
    bool both = llvm::all_of(
        groups, [](auto group) { return group.getElements() > 0; });
    if (shards && both)
      return layer.emitOpError()
             << "expected no tied parameter in a layer with '"
             << layer.getStrategyAttr().toStrategy().str()
             << "' that a pack runs forward only";
    return success();
  }

  /// Exchanges of forward packs, which are a chain that ends in the last pack,
  /// of gradients of the others, and of what goes home for them.
  LogicalResult
  connectPacks(ExchangeMaker &exchanges, ArrayRef<ChunkSource> sources,
               llvm::function_ref<Operation *(const ChunkSource &)> opOf) {
    auto forward = int64_t(shape.forwardPacks.size());
    auto last = int64_t(sources.size()) - 1;
    auto chunks = schedule->build(shape).chunks;
    for (int64_t i = 0; i <= last; ++i) {
      const ChunkSource &source = sources[i];
      if (i < forward) {
        const ChunkSource &next = sources[i + 1 < forward ? i + 1 : last];
        if (!(shape.regroups() && i + 1 == forward) &&
            failed(connect(exchanges, source, opOf(source), "activation", next,
                           opOf(next), liveSets[next.firstLayer])))
          return failure();
        continue;
      }
      if (i > forward &&
          failed(connect(exchanges, source, opOf(source), "gradient",
                         sources[i - 1], opOf(sources[i - 1]),
                         liveSets[source.firstLayer])))
        return failure();
      int64_t from = chunks[i].stashFrom;
      if (from < 0)
        continue;
      if (failed(connect(exchanges, sources[from], nullptr, "stash", source,
                         opOf(source), liveSets[source.firstLayer])))
        return failure();
      opOf(source)->setAttr("stash_from",
                            Builder(&getContext()).getI64IntegerAttr(from));
    }
    return success();
  }

  struct Reshards {
    FlatSymbolRefAttr forward, backward;
  };

  FailureOr<SmallVector<Reshards>> buildReshards(ExchangeMaker &exchanges,
                                                 const ChunkSource &chunk) {
    SmallVector<mlir::galvatron::LayerOp> layers = chunk.layers;
    SmallVector<Reshards> reshards(layers.size());
    for (size_t i = 0; i < layers.size(); ++i) {
      if (failed(check(layers[i], chunk.forwardOnly)))
        return failure();
      if (i > 0 &&
          failed(buildReshards(exchanges, chunk, layers[i - 1], layers[i],
                               liveSets[chunk.firstLayer + i],
                               reshards[i - 1].forward, reshards[i].backward)))
        return failure();
    }
    return reshards;
  }

  FailureOr<RoleOp> buildRole(OpBuilder &builder, ExchangeMaker &exchanges,
                              int64_t number, ArrayRef<ChunkSource> chunks) {
    OpBuilder::InsertionGuard guard(builder);
    // Exchanges go in front of the roles that name them.
    SmallVector<SmallVector<Reshards>> reshards;
    int64_t slots = 0;
    for (const ChunkSource &chunk : chunks) {
      FailureOr<SmallVector<Reshards>> made = buildReshards(exchanges, chunk);
      if (failed(made))
        return failure();
      reshards.push_back(std::move(*made));
      slots += schedule->slots(shape, chunk.number);
    }
    auto role = RoleOp::create(
        builder, chunks.front().getLoc(), ("stage" + Twine(number)).str(),
        number, chunks.front().devices, slots,
        /*send_activation=*/FlatSymbolRefAttr(),
        /*recv_activation=*/FlatSymbolRefAttr(),
        /*send_gradient=*/FlatSymbolRefAttr(),
        /*recv_gradient=*/FlatSymbolRefAttr(),
        /*arena_bytes=*/IntegerAttr(),
        /*slot_bytes=*/IntegerAttr(), /*arena=*/ArenaAttr(),
        /*ledger=*/LedgerAttr(),
        shape.hasPacks()
            ? builder.getI64IntegerAttr(schedule->waitingPlaces(shape, number))
            : IntegerAttr());
    builder.createBlock(&role.getLayers());
    int64_t position = 0; // of a layer in the role
    for (auto [chunk, reshardsOf] : llvm::zip_equal(chunks, reshards)) {
      if (chunks.size() > 1 || shape.hasPacks())
        ChunkOp::create(
            builder, chunk.getLoc(), builder.getI64IntegerAttr(chunk.number),
            builder.getI64IntegerAttr(schedule->slots(shape, chunk.number)),
            /*send_activation=*/FlatSymbolRefAttr(),
            /*recv_activation=*/FlatSymbolRefAttr(),
            /*send_gradient=*/FlatSymbolRefAttr(),
            /*recv_gradient=*/FlatSymbolRefAttr(),
            chunk.forwardOnly ? builder.getUnitAttr() : UnitAttr(),
            /*stash_from=*/IntegerAttr(), /*recv_stash=*/FlatSymbolRefAttr());
      // By value: the layer of the role that holds it, and where there.
      llvm::DenseMap<Value, std::pair<int64_t, int64_t>> holders;
      for (auto [i, layer] : llvm::enumerate(chunk.layers)) {
        int64_t index = chunk.firstLayer + int64_t(i);
        LayerOp made =
            buildLayer(builder, layer, index, reshardsOf[i], chunk.forwardOnly);
        if (chunk.forwardOnly)
          borrowAll(made);
        bool holdsAll = i == 0 || reshardsOf[i - 1].forward;
        placeTensors(made, layer, index, position++, holdsAll, holders);
      }
    }
    return role;
  }

  /// The layer's parameters are those of another one that updates them.
  void borrowAll(LayerOp layer) {
    Builder builder(&getContext());
    auto groups = llvm::to_vector(
        layer.getGroups().getAsRange<mlir::galvatron::FlatGroupAttr>());
    // Group 1 lies behind group 0.
    int64_t owned = groups[0].getElements();
    int64_t all = owned + groups[1].getElements();
    int64_t shard = groups[0].getShardElements() + groups[1].getShardElements();
    SmallVector<Attribute> tensors;
    for (auto tensor :
         layer.getTensors().getAsRange<mlir::galvatron::FlatTensorAttr>())
      tensors.push_back(mlir::galvatron::FlatTensorAttr::get(
          &getContext(), tensor.getParameter(), /*group=*/1,
          tensor.getOffset() + (tensor.getGroup() == 0 ? 0 : owned),
          tensor.getView(), tensor.getLocalShape(), tensor.getTpDim()));
    layer.setTensorsAttr(builder.getArrayAttr(tensors));
    layer.setGroupsAttr(builder.getArrayAttr(
        {mlir::galvatron::FlatGroupAttr::get(&getContext(), 0, 0),
         mlir::galvatron::FlatGroupAttr::get(&getContext(), all, shard)}));
    layer.removeUpdateAttr();
    layer.removeNormAttr();
  }

  /// What names the exchanges of a chunk: a `grt.chunk`, or its role.
  static Operation *getChunkOp(RoleOp role, int64_t number) {
    for (const RoleChunk &chunk : getChunks(role))
      if (chunk.number == number)
        return chunk.op;
    llvm_unreachable("the role has the chunk");
  }

  /// Marks what waits for sums of gradients of the layers above.
  void awaitSums(RoleOp role) {
    for (auto [op, sums] :
         llvm::zip(role.getLayers().getOps<LayerOp>(),
                   ::galvatron::awaitedSums(getStrategies(role)))) {
      op.setGatherAwaitsSums(!sums.gather.empty());
      op.setBackwardAwaitsSums(!sums.pass.empty());
      op.setReshardAwaitsSums(!sums.reshard.empty());
    }
  }

  /// Marks the layers whose parameters may be gathered ahead.
  void gatherAhead(RoleOp role, const SymbolTable &functions) {
    auto gathers = [&](FlatSymbolRefAttr symbol) {
      auto func =
          symbol ? functions.lookup<FuncOp>(symbol.getAttr()) : FuncOp();
      return func && func.getGatheredBytes().value_or(0) > 0;
    };
    for (const RoleChunk &chunk : getChunks(role))
      for (auto [layer, ahead] : llvm::zip_equal(
               chunk.layers,
               ::galvatron::gathersAhead(getStrategies(chunk.layers)))) {
        LayerOp op = layer;
        op.setForwardAhead(ahead.forward && gathers(op.getForwardAttr()));
        op.setBackwardAhead(ahead.backward && (gathers(op.getRecomputeAttr()) ||
                                               gathers(op.getBackwardAttr())));
      }
  }

  /// Of a layer as a chunk runs it: those that run forward only may have
  /// micro-batches of their own.
  mlir::galvatron::LayoutAttr layoutOf(mlir::galvatron::LayerOp layer,
                                       bool forwardOnly) const {
    return forwardOnly && shape.regroups() ? layer.getPackLayoutAttr()
                                           : layer.getLayoutAttr();
  }
  int64_t samplesOf(bool forwardOnly) const {
    return forwardOnly ? forwardSamples : samples;
  }

  /// What convert-nn-to-grt must have left on the layer.
  LogicalResult check(mlir::galvatron::LayerOp layer, bool forwardOnly) {
    mlir::galvatron::LayoutAttr layout = layoutOf(layer, forwardOnly);
    if (!layer.getStrategyAttr() || !layer.getForwardAttr() ||
        !layer.getBackwardAttr() || !layout)
      return layer.emitOpError("expected 'strategy', 'forward', 'backward' and "
                               "'layout': run 'convert-nn-to-grt' first");
    int64_t local = layout.getSamples();
    int64_t shards = layer.getStrategyAttr().getSampleShards();
    if (int64_t expected = samplesOf(forwardOnly); local * shards != expected)
      return layer.emitOpError()
             << "expected " << shards << " times its samples to make the "
             << expected << " of a micro-batch, found " << local;
    return success();
  }

  LayerOp buildLayer(OpBuilder &builder, mlir::galvatron::LayerOp layer,
                     int64_t index, const Reshards &reshards,
                     bool forwardOnly) {
    mlir::galvatron::LayoutAttr layout = layoutOf(layer, forwardOnly);
    bool ofPack = forwardOnly && shape.regroups();
    auto integer = [&](int64_t value) {
      return builder.getI64IntegerAttr(value);
    };
    return LayerOp::create(
        builder, layer.getLoc(), layer.getLayerNameAttr(),
        builder.getI64IntegerAttr(index), layer.getStrategyAttr(),
        integer(layout.getSamples()),
        ofPack ? layer.getPackForwardAttr() : layer.getForwardAttr(),
        layer.getRecomputeAttr(), layer.getBackwardAttr(),
        layer.getWeightAttr(), layer.getUpdateAttr(), layer.getNormAttr(),
        layout.getTensors(), layout.getGroups(),
        integer(layout.getInputBytes()), integer(layout.getOutputBytes()),
        integer(layout.getStashBytes()),
        integer(layout.getRecomputeStashBytes()), /*front_bytes=*/IntegerAttr(),
        /*behind_bytes=*/IntegerAttr(), /*inputs=*/DenseI64ArrayAttr(),
        /*passes=*/DenseI64ArrayAttr(), /*outputs=*/DenseI64ArrayAttr(),
        layout.getData(), reshards.forward, reshards.backward,
        /*forward_ahead=*/UnitAttr(),
        /*backward_ahead=*/UnitAttr(), /*gather_awaits_sums=*/UnitAttr(),
        /*backward_awaits_sums=*/UnitAttr(), /*reshard_awaits_sums=*/UnitAttr(),
        /*placement=*/PlacementAttr(), layer.getDropoutKeyAttr());
  }

  /// Says which tensors a layer holds, where it finds its inputs and what
  /// passes it. In a chain there is nothing to say.
  void
  placeTensors(LayerOp made, mlir::galvatron::LayerOp layer, int64_t index,
               int64_t number, bool holdsAll,
               llvm::DenseMap<Value, std::pair<int64_t, int64_t>> &holders) {
    const LiveSet &front = liveSets[index], &behind = liveSets[index + 1];
    HeldSet before(front, made.getSamples()), after(behind, made.getSamples());
    int64_t held = 0;
    for (OpResult value : front) {
      if (!holdsAll && holders.contains(value))
        continue;
      holders[value] = {number, before.offsetOf(value)};
      held = before.offsetOf(value) + alignBytes(before.bytesOf(value));
    }
    SmallVector<int64_t> inputs, passes, outputs;
    bool inOrder = true;
    int64_t expected = 0;
    for (Value operand : layer.getInputs()) {
      Value value = mlir::galvatron::getOrigin(operand);
      if (!before.contains(value))
        continue;
      auto [holder, offset] = holders.lookup(value);
      inputs.append(
          {holder, offset, before.offsetOf(value), before.bytesOf(value)});
      inOrder &= holder == number && offset == expected;
      expected += alignBytes(before.bytesOf(value));
    }
    for (OpResult value : front) {
      if (!after.contains(value))
        continue;
      auto [holder, offset] = holders.lookup(value);
      bool used = llvm::any_of(layer.getInputs(), [&](Value operand) {
        return mlir::galvatron::getOrigin(operand) == value;
      });
      passes.append({holder, offset, before.offsetOf(value),
                     after.offsetOf(value), before.bytesOf(value), used});
    }
    for (OpResult value : behind)
      if (value.getOwner() == layer)
        outputs.push_back(after.bytesOf(value));
    if (inOrder && passes.empty() && front.size() <= 1 && behind.size() <= 1)
      return;
    made.setInputBytes(held);
    made.setFrontBytes(before.bytes());
    made.setBehindBytes(after.bytes());
    if (!inputs.empty())
      made.setInputs(inputs);
    if (!passes.empty())
      made.setPasses(passes);
    if (behind.size() > 1)
      made.setOutputs(outputs);
  }

  /// Rows of the tensors of a boundary that a reshard moves; none if there is
  /// one.
  SmallVector<int64_t> getTensors(const LiveSet &set, const Strategy &from,
                                  const Strategy &to) {
    SmallVector<int64_t> rows;
    if (set.size() < 2)
      return rows;
    HeldSet source(set, samples / from.sampleShards());
    HeldSet target(set, samples / to.sampleShards());
    for (OpResult value : set)
      rows.append({mlir::galvatron::getSampleBytes(value),
                   source.offsetOf(value), target.offsetOf(value)});
    return rows;
  }

  /// Bytes of one sample of all that is alive behind `layer`.
  FailureOr<int64_t> getBytesPerUnit(mlir::galvatron::LayerOp layer,
                                     const LiveSet &set) {
    if (set.size() < 2)
      return getBytesPerUnit(layer);
    int64_t bytes = 0;
    for (OpResult value : set)
      bytes += mlir::galvatron::getSampleBytes(value);
    return bytes;
  }

  /// Bytes of one sample of what `layer` makes.
  FailureOr<int64_t> getBytesPerUnit(mlir::galvatron::LayerOp layer) {
    mlir::galvatron::LayoutAttr layout = layer.getLayoutAttr();
    if (int64_t bytes = layout.getBytesPerUnit(); bytes > 0)
      return bytes;
    int64_t bytes = layout.getOutputBytes();
    int64_t local = layout.getSamples();
    if (bytes % local != 0)
      return layer.emitOpError()
             << "expected 'output_bytes' of its layout to be a multiple of its "
             << local << " samples, found " << bytes;
    return bytes / local;
  }

  LogicalResult buildReshards(ExchangeMaker &exchanges,
                              const ChunkSource &chunk,
                              mlir::galvatron::LayerOp from,
                              mlir::galvatron::LayerOp to, const LiveSet &set,
                              FlatSymbolRefAttr &forward,
                              FlatSymbolRefAttr &backward) {
    Strategy before = from.getStrategyAttr().toStrategy();
    Strategy after = to.getStrategyAttr().toStrategy();
    ArrayRef<int64_t> devices = chunk.devices;
    ReshardPlan there =
        ::galvatron::reshardPlan(before, after, devices, devices, samples);
    if (there.transfers.empty())
      return success();
    ReshardPlan back =
        ::galvatron::reshardPlan(after, before, devices, devices, samples);
    FailureOr<int64_t> bytes = getBytesPerUnit(from, set);
    if (failed(bytes))
      return failure();
    std::string prefix = ("stage" + Twine(chunk.number) + ".").str();
    std::string a = before.withCheckpoint(false).onDevices().str();
    std::string b = after.withCheckpoint(false).onDevices().str();
    forward =
        exchanges.get(to.getLoc(), there, *bytes,
                      getTensors(set, before, after), prefix + a + "-to-" + b);
    backward =
        exchanges.get(to.getLoc(), back, *bytes, getTensors(set, after, before),
                      prefix + b + "-to-" + a);
    return success();
  }

  /// The exchange of what a chunk sends another one: `value` is "activation",
  /// "gradient" or "stash", and `set` the tensors in front of the later one.
  LogicalResult connect(ExchangeMaker &exchanges, const ChunkSource &from,
                        Operation *sender, StringRef value,
                        const ChunkSource &to, Operation *receiver,
                        const LiveSet &set) {
    bool back = value == "gradient";
    const ChunkSource &behind = back ? from : to;
    mlir::galvatron::LayerOp made = layers[behind.firstLayer - 1];
    Strategy before = made.getStrategyAttr().toStrategy();
    Strategy after = mlir::galvatron::LayerOp(behind.layers.front())
                         .getStrategyAttr()
                         .toStrategy();
    Strategy source = back ? after : before, target = back ? before : after;
    FailureOr<int64_t> bytes = getBytesPerUnit(made, set);
    if (failed(bytes))
      return failure();
    // Stages are known by the one in front, packs by the layer behind.
    int64_t cut = shape.hasPacks() ? behind.firstLayer : behind.number - 1;
    std::string name = ("cut" + Twine(cut) + "." + value).str();
    ReshardPlan plan = ::galvatron::chunkTransferPlan(
        source, target, from.devices, to.devices, samplesOf(from.forwardOnly));
    FlatSymbolRefAttr exchange = exchanges.get(
        to.getLoc(), plan, *bytes, getTensors(set, source, target), name);
    // The same names on both kinds of operations.
    if (sender)
      sender->setAttr(("send_" + value).str(), exchange);
    receiver->setAttr(("recv_" + value).str(), exchange);
    return success();
  }

  /// Samples of one micro-batch over all ranks of a stage; of packs that run
  /// forward only.
  int64_t samples = 0, forwardSamples = 0;
  const ::galvatron::Schedule *schedule = nullptr;
  ::galvatron::ScheduleShape shape;
  SmallVector<mlir::galvatron::LayerOp> layers; ///< of the model
  /// By layer of the model: what is alive in front of it.
  SmallVector<LiveSet> liveSets;
};

} // namespace
