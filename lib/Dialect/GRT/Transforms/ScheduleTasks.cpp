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
    if (stages.size() % degree)
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
    shape = ::galvatron::ScheduleShape::of(degree, plan.getMicroBatches(),
                                           chunksEach, plan.getOffloaded());
    shape.passTimes = plan.getChunkTimes();
    if (llvm::Error error = schedule->check(shape))
      return module.emitOpError(llvm::toString(std::move(error)));
    auto training = mlir::galvatron::getTraining(module);
    bool delays = schedule->delay(shape) > 0;
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
    SmallVector<int64_t> begins; // the first layers of stages, in the model
    int64_t layerCount = 0;
    for (mlir::galvatron::StageOp stage : stages) {
      begins.push_back(layerCount);
      layerCount += stage.getLayers().size();
    }
    for (int64_t number = 0; number < degree; ++number) {
      SmallVector<ChunkSource> chunks;
      for (int64_t chunk = 0; chunk < shape.allChunks(); ++chunk)
        if (schedule->home(shape, chunk) == number)
          chunks.push_back({stages[chunk], chunk, begins[chunk]});
      FailureOr<RoleOp> role = buildRole(builder, exchanges, number, chunks);
      if (failed(role))
        return failure();
      roles.push_back(*role);
    }
    for (size_t i = 0; i + 1 < stages.size(); ++i)
      if (failed(connect(exchanges, stages[i],
                         getChunkOp(roles[schedule->home(shape, i)], i),
                         stages[i + 1],
                         getChunkOp(roles[schedule->home(shape, i + 1)], i + 1),
                         liveSets[begins[i + 1]])))
        return failure();

    FailureOr<SmallVector<TiedTensor>> ties = getTies(roles);
    if (failed(ties))
      return failure();
    std::vector<::galvatron::TieRoles> tieRoles;
    for (const TiedTensor &tie : *ties)
      tieRoles.push_back(getTieRoles(roles, tie));
    ::galvatron::TaskProgram program = schedule->build(shape, tieRoles);
    if (::galvatron::backendTraits(getBackend(module)).streams)
      for (auto [role, tasks] : llvm::zip_equal(roles, program.roles)) {
        gatherAhead(role);
        std::vector<Strategy> strategies = getStrategies(role);
        bool reduces = llvm::any_of(strategies, [](const Strategy &strategy) {
          return strategy.degree(strategy.summedOnce()) > 1;
        });
        if (reduces && ::galvatron::whyNotSyncBehind(strategies).empty())
          ::galvatron::setSyncBehind(tasks);
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

  /// A stage of the model that becomes a chunk.
  struct ChunkSource {
    mlir::galvatron::StageOp stage;
    int64_t number;
    int64_t firstLayer; ///< in the model
  };

  struct Reshards {
    FlatSymbolRefAttr forward, backward;
  };

  FailureOr<SmallVector<Reshards>> buildReshards(ExchangeMaker &exchanges,
                                                 const ChunkSource &chunk) {
    mlir::galvatron::StageOp stage = chunk.stage;
    SmallVector<mlir::galvatron::LayerOp> layers = stage.getLayers();
    SmallVector<Reshards> reshards(layers.size());
    for (size_t i = 0; i < layers.size(); ++i) {
      if (failed(check(layers[i])))
        return failure();
      if (i > 0 &&
          failed(buildReshards(exchanges, stage, layers[i - 1], layers[i],
                               liveSets[chunk.firstLayer + i],
                               reshards[i - 1].forward, reshards[i].backward)))
        return failure();
    }
    return reshards;
  }

  FailureOr<RoleOp> buildRole(OpBuilder &builder, ExchangeMaker &exchanges,
                              int64_t number, ArrayRef<ChunkSource> chunks) {
    OpBuilder::InsertionGuard guard(builder);
    mlir::galvatron::StageOp stage = chunks.front().stage;
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
    auto role =
        RoleOp::create(builder, stage.getLoc(), ("stage" + Twine(number)).str(),
                       number, stage.getDevices(), slots,
                       /*send_activation=*/FlatSymbolRefAttr(),
                       /*recv_activation=*/FlatSymbolRefAttr(),
                       /*send_gradient=*/FlatSymbolRefAttr(),
                       /*recv_gradient=*/FlatSymbolRefAttr(),
                       /*arena_bytes=*/IntegerAttr(),
                       /*slot_bytes=*/IntegerAttr(), /*arena=*/ArenaAttr(),
                       /*ledger=*/LedgerAttr());
    builder.createBlock(&role.getLayers());
    int64_t position = 0; // of a layer in the role
    for (auto [chunk, reshardsOf] : llvm::zip_equal(chunks, reshards)) {
      if (chunks.size() > 1)
        ChunkOp::create(builder, ChunkSource(chunk).stage.getLoc(),
                        chunk.number, schedule->slots(shape, chunk.number),
                        /*send_activation=*/FlatSymbolRefAttr(),
                        /*recv_activation=*/FlatSymbolRefAttr(),
                        /*send_gradient=*/FlatSymbolRefAttr(),
                        /*recv_gradient=*/FlatSymbolRefAttr());
      // By value: the layer of the role that holds it, and where there.
      llvm::DenseMap<Value, std::pair<int64_t, int64_t>> holders;
      for (auto [i, layer] :
           llvm::enumerate(ChunkSource(chunk).stage.getLayers())) {
        int64_t index = chunk.firstLayer + int64_t(i);
        LayerOp made = buildLayer(builder, layer, index, reshardsOf[i]);
        bool holdsAll = i == 0 || reshardsOf[i - 1].forward;
        placeTensors(made, layer, index, position++, holdsAll, holders);
      }
    }
    return role;
  }

  /// What names the exchanges of a chunk: a `grt.chunk`, or its role.
  static Operation *getChunkOp(RoleOp role, int64_t number) {
    for (const RoleChunk &chunk : getChunks(role))
      if (chunk.number == number)
        return chunk.op;
    llvm_unreachable("the role has the chunk");
  }

  /// Marks the layers whose parameters may be gathered ahead.
  void gatherAhead(RoleOp role) {
    auto gathers = [&](FlatSymbolRefAttr symbol) {
      auto func = symbol ? getOperation().lookupSymbol<FuncOp>(symbol.getAttr())
                         : FuncOp();
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

  /// What convert-nn-to-grt must have left on the layer.
  LogicalResult check(mlir::galvatron::LayerOp layer) {
    mlir::galvatron::LayoutAttr layout = layer.getLayoutAttr();
    if (!layer.getStrategyAttr() || !layer.getForwardAttr() ||
        !layer.getBackwardAttr() || !layout)
      return layer.emitOpError("expected 'strategy', 'forward', 'backward' and "
                               "'layout': run 'convert-nn-to-grt' first");
    int64_t local = layout.getSamples();
    int64_t shards = layer.getStrategyAttr().getSampleShards();
    if (local * shards != samples)
      return layer.emitOpError()
             << "expected " << shards << " times its samples to make the "
             << samples << " of a micro-batch, found " << local;
    return success();
  }

  LayerOp buildLayer(OpBuilder &builder, mlir::galvatron::LayerOp layer,
                     int64_t index, const Reshards &reshards) {
    mlir::galvatron::LayoutAttr layout = layer.getLayoutAttr();
    auto integer = [&](int64_t value) {
      return builder.getI64IntegerAttr(value);
    };
    return LayerOp::create(
        builder, layer.getLoc(), layer.getLayerNameAttr(),
        builder.getI64IntegerAttr(index), layer.getStrategyAttr(),
        integer(layout.getSamples()), layer.getForwardAttr(),
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
        /*backward_ahead=*/UnitAttr(), /*placement=*/PlacementAttr());
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
                              mlir::galvatron::StageOp stage,
                              mlir::galvatron::LayerOp from,
                              mlir::galvatron::LayerOp to, const LiveSet &set,
                              FlatSymbolRefAttr &forward,
                              FlatSymbolRefAttr &backward) {
    Strategy before = from.getStrategyAttr().toStrategy();
    Strategy after = to.getStrategyAttr().toStrategy();
    ArrayRef<int64_t> devices = stage.getDevices();
    ReshardPlan there =
        ::galvatron::reshardPlan(before, after, devices, devices, samples);
    if (there.kind == ::galvatron::ReshardKind::None)
      return success();
    ReshardPlan back =
        ::galvatron::reshardPlan(after, before, devices, devices, samples);
    FailureOr<int64_t> bytes = getBytesPerUnit(from, set);
    if (failed(bytes))
      return failure();
    std::string prefix = ("stage" + Twine(stage.getIndex()) + ".").str();
    std::string a = before.withCheckpoint(false).str();
    std::string b = after.withCheckpoint(false).str();
    forward =
        exchanges.get(to.getLoc(), there, *bytes,
                      getTensors(set, before, after), prefix + a + "-to-" + b);
    backward =
        exchanges.get(to.getLoc(), back, *bytes, getTensors(set, after, before),
                      prefix + b + "-to-" + a);
    return success();
  }

  /// Exchanges of both directions between neighbouring chunks.
  LogicalResult connect(ExchangeMaker &exchanges,
                        mlir::galvatron::StageOp stage, Operation *chunk,
                        mlir::galvatron::StageOp nextStage, Operation *next,
                        const LiveSet &set) {
    mlir::galvatron::LayerOp from = stage.getLayers().back();
    mlir::galvatron::LayerOp to = nextStage.getLayers().front();
    Strategy before = from.getStrategyAttr().toStrategy();
    Strategy after = to.getStrategyAttr().toStrategy();
    FailureOr<int64_t> bytes = getBytesPerUnit(from, set);
    if (failed(bytes))
      return failure();
    std::string cut = ("cut" + Twine(stage.getIndex())).str();
    FlatSymbolRefAttr activation = exchanges.get(
        nextStage.getLoc(),
        ::galvatron::handOnPlan(before, after, stage.getDevices(),
                                nextStage.getDevices(), samples),
        *bytes, getTensors(set, before, after), cut + ".activation");
    FlatSymbolRefAttr gradient = exchanges.get(
        nextStage.getLoc(),
        ::galvatron::handOnPlan(after, before, nextStage.getDevices(),
                                stage.getDevices(), samples),
        *bytes, getTensors(set, after, before), cut + ".gradient");
    // The same names on both kinds of operations.
    chunk->setAttr("send_activation", activation);
    next->setAttr("recv_activation", activation);
    next->setAttr("send_gradient", gradient);
    chunk->setAttr("recv_gradient", gradient);
    return success();
  }

  /// Samples of one micro-batch over all ranks of a stage.
  int64_t samples = 0;
  const ::galvatron::Schedule *schedule = nullptr;
  ::galvatron::ScheduleShape shape;
  /// By layer of the model: what is alive in front of it.
  SmallVector<LiveSet> liveSets;
};

} // namespace
