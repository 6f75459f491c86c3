//===- ScheduleTasks.cpp - galvatron-schedule-tasks -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Cluster/Backend.h"
#include "galvatron/Dialect/GRT/Transforms/Passes.h"
#include "galvatron/Dialect/GRT/Transforms/Roles.h"
#include "galvatron/Dialect/Galvatron/IR/Executable.h"
#include "galvatron/Schedule/Schedule.h"
#include "galvatron/Strategy/Concurrency.h"
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

namespace {

/// Makes exchanges, one for all places that move the same samples.
class ExchangeMaker {
public:
  ExchangeMaker(OpBuilder &builder, ModuleOp module)
      : builder(builder), symbols(module) {}

  /// The exchange of `plan`; a new one is called after `name`.
  FlatSymbolRefAttr get(Location loc, const ReshardPlan &plan,
                        int64_t bytesPerUnit, StringRef name) {
    SmallVector<int64_t> numbers;
    for (const ::galvatron::ReshardTransfer &transfer : plan.transfers)
      numbers.append({transfer.srcRank, transfer.dstRank, transfer.srcUnit,
                      transfer.dstUnit, transfer.units});
    std::pair<int64_t, Attribute> key(bytesPerUnit,
                                      builder.getDenseI64ArrayAttr(numbers));
    auto it = known.find(key);
    if (it != known.end())
      return it->second;
    auto exchange =
        ExchangeOp::create(builder, loc, name, bytesPerUnit, numbers);
    symbols.insert(exchange);
    return known[key] = FlatSymbolRefAttr::get(exchange.getSymNameAttr());
  }

private:
  OpBuilder &builder;
  SymbolTable symbols;
  llvm::DenseMap<std::pair<int64_t, Attribute>, FlatSymbolRefAttr> known;
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
    if (int64_t(stages.size()) != plan.getPipelineDegree())
      return model.emitOpError()
             << "expected " << plan.getPipelineDegree()
             << " stages as the plan says, found " << stages.size();
    samples = plan.getBatch() / plan.getMicroBatches();
    llvm::Expected<const ::galvatron::Schedule *> parsed =
        ::galvatron::parseSchedule(plan.getSchedule());
    if (!parsed)
      return module.emitOpError(llvm::toString(parsed.takeError()));
    schedule = *parsed;
    shape = {plan.getPipelineDegree(), plan.getMicroBatches()};
    if (llvm::Error error = schedule->check(shape))
      return module.emitOpError(llvm::toString(std::move(error)));

    OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
    ExchangeMaker exchanges(builder, module);
    SmallVector<RoleOp> roles;
    int64_t index = 0;
    for (mlir::galvatron::StageOp stage : stages) {
      FailureOr<RoleOp> role = buildRole(builder, exchanges, stage, index);
      if (failed(role))
        return failure();
      roles.push_back(*role);
    }
    for (size_t i = 0; i + 1 < stages.size(); ++i)
      if (failed(connect(exchanges, stages[i], roles[i], stages[i + 1],
                         roles[i + 1])))
        return failure();

    FailureOr<SmallVector<TiedTensor>> ties = getTies(roles);
    if (failed(ties))
      return failure();
    std::vector<::galvatron::TieRoles> tieRoles;
    for (const TiedTensor &tie : *ties)
      tieRoles.push_back({tie.owner.role, tie.borrower.role});
    ::galvatron::TaskProgram program = schedule->build(shape, tieRoles);
    if (::galvatron::backendTraits(getBackend(module)).streams)
      for (auto [role, tasks] : llvm::zip_equal(roles, program.roles)) {
        gatherAhead(role);
        std::vector<Strategy> strategies = getStrategies(role);
        bool reduces = llvm::any_of(strategies, [](const Strategy &strategy) {
          return strategy.degree(::galvatron::Paradigm::DP) > 1;
        });
        if (reduces && ::galvatron::whyNotSyncBehind(strategies).empty())
          ::galvatron::setSyncBehind(tasks);
      }
    buildSchedules(builder, roles, program);

    SmallVector<NamedAttribute> facts = {
        builder.getNamedAttr("name", model.getSymNameAttr()),
        builder.getNamedAttr("seq_len", model.getSeqLenAttr()),
        builder.getNamedAttr("vocab", model.getVocabAttr())};
    if (StringAttr config = model.getConfigAttr())
      facts.push_back(builder.getNamedAttr("config", config));
    module->setAttr(kModelAttr, builder.getDictionaryAttr(facts));
    model.erase();
    return success();
  }

  FailureOr<RoleOp> buildRole(OpBuilder &builder, ExchangeMaker &exchanges,
                              mlir::galvatron::StageOp stage, int64_t &index) {
    OpBuilder::InsertionGuard guard(builder);
    int64_t number = stage.getIndex();
    int64_t slots = schedule->slots(shape, number, /*chunk=*/number);
    // Exchanges go in front of the roles that name them.
    SmallVector<mlir::galvatron::LayerOp> layers = stage.getLayers();
    SmallVector<Reshards> reshards(layers.size());
    for (size_t i = 0; i < layers.size(); ++i) {
      if (failed(check(layers[i])))
        return failure();
      if (i > 0 &&
          failed(buildReshards(exchanges, stage, layers[i - 1], layers[i],
                               reshards[i - 1].forward, reshards[i].backward)))
        return failure();
    }
    auto role =
        RoleOp::create(builder, stage.getLoc(), ("stage" + Twine(number)).str(),
                       number, stage.getDevices(), slots,
                       /*send_activation=*/FlatSymbolRefAttr(),
                       /*recv_activation=*/FlatSymbolRefAttr(),
                       /*send_gradient=*/FlatSymbolRefAttr(),
                       /*recv_gradient=*/FlatSymbolRefAttr(),
                       /*arena_bytes=*/IntegerAttr(),
                       /*slot_bytes=*/IntegerAttr(), /*arena=*/DictionaryAttr(),
                       /*ledger=*/DictionaryAttr());
    builder.createBlock(&role.getLayers());
    for (auto [layer, reshard] : llvm::zip(layers, reshards))
      buildLayer(builder, layer, index++, reshard);
    return role;
  }

  /// Marks the layers whose parameters may be gathered ahead.
  void gatherAhead(RoleOp role) {
    auto gathers = [&](FlatSymbolRefAttr symbol) {
      auto func = symbol ? getOperation().lookupSymbol<FuncOp>(symbol.getAttr())
                         : FuncOp();
      return func && func.getGatheredBytes().value_or(0) > 0;
    };
    for (auto [layer, ahead] :
         llvm::zip_equal(role.getLayers().getOps<LayerOp>(),
                         ::galvatron::gathersAhead(getStrategies(role)))) {
      LayerOp op = layer;
      op.setForwardAhead(ahead.forward && gathers(op.getForwardAttr()));
      op.setBackwardAhead(ahead.backward && (gathers(op.getRecomputeAttr()) ||
                                             gathers(op.getBackwardAttr())));
    }
  }

  struct Reshards {
    FlatSymbolRefAttr forward, backward;
  };

  /// What convert-nn-to-grt must have left on the layer.
  LogicalResult check(mlir::galvatron::LayerOp layer) {
    DictionaryAttr layout = layer.getLayoutAttr();
    if (!layer.getStrategyAttr() || !layer.getForwardAttr() ||
        !layer.getBackwardAttr() || !layout)
      return layer.emitOpError("expected 'strategy', 'forward', 'backward' and "
                               "'layout': run 'convert-nn-to-grt' first");
    for (StringRef key :
         {"samples", "input_bytes", "output_bytes", "stash_bytes"})
      if (!layout.getAs<IntegerAttr>(key))
        return layer.emitOpError()
               << "expected an integer '" << key << "' in its layout";
    for (StringRef key : {"tensors", "groups"})
      if (!layout.getAs<ArrayAttr>(key))
        return layer.emitOpError()
               << "expected an array '" << key << "' in its layout";
    int64_t local = layout.getAs<IntegerAttr>("samples").getInt();
    int64_t shards = layer.getStrategyAttr().getSampleShards();
    if (local * shards != samples)
      return layer.emitOpError()
             << "expected " << shards << " times its samples to make the "
             << samples << " of a micro-batch, found " << local;
    return success();
  }

  LayerOp buildLayer(OpBuilder &builder, mlir::galvatron::LayerOp layer,
                     int64_t index, const Reshards &reshards) {
    DictionaryAttr layout = layer.getLayoutAttr();
    auto integer = [&](StringRef key) {
      auto value = layout.getAs<IntegerAttr>(key);
      return builder.getI64IntegerAttr(value ? value.getInt() : 0);
    };
    return LayerOp::create(
        builder, layer.getLoc(), layer.getLayerNameAttr(),
        builder.getI64IntegerAttr(index), layer.getStrategyAttr(),
        integer("samples"), layer.getForwardAttr(), layer.getRecomputeAttr(),
        layer.getBackwardAttr(), layer.getUpdateAttr(), layer.getNormAttr(),
        layout.getAs<ArrayAttr>("tensors"), layout.getAs<ArrayAttr>("groups"),
        integer("input_bytes"), integer("output_bytes"), integer("stash_bytes"),
        integer("recompute_stash_bytes"), layout.getAs<StringAttr>("data"),
        reshards.forward, reshards.backward, /*forward_ahead=*/UnitAttr(),
        /*backward_ahead=*/UnitAttr(), /*placement=*/DictionaryAttr());
  }

  /// Bytes of one sample of the boundary behind `layer`.
  FailureOr<int64_t> getBytesPerUnit(mlir::galvatron::LayerOp layer) {
    DictionaryAttr layout = layer.getLayoutAttr();
    if (auto bytes = layout.getAs<IntegerAttr>("bytes_per_unit"))
      return bytes.getInt();
    int64_t bytes = layout.getAs<IntegerAttr>("output_bytes").getInt();
    int64_t local = layout.getAs<IntegerAttr>("samples").getInt();
    if (bytes % local != 0)
      return layer.emitOpError()
             << "expected 'output_bytes' of its layout to be a multiple of its "
             << local << " samples, found " << bytes;
    return bytes / local;
  }

  LogicalResult
  buildReshards(ExchangeMaker &exchanges, mlir::galvatron::StageOp stage,
                mlir::galvatron::LayerOp from, mlir::galvatron::LayerOp to,
                FlatSymbolRefAttr &forward, FlatSymbolRefAttr &backward) {
    Strategy before = from.getStrategyAttr().toStrategy();
    Strategy after = to.getStrategyAttr().toStrategy();
    ArrayRef<int64_t> devices = stage.getDevices();
    ReshardPlan there =
        ::galvatron::reshardPlan(before, after, devices, devices, samples);
    if (there.kind == ::galvatron::ReshardKind::None)
      return success();
    ReshardPlan back =
        ::galvatron::reshardPlan(after, before, devices, devices, samples);
    FailureOr<int64_t> bytes = getBytesPerUnit(from);
    if (failed(bytes))
      return failure();
    std::string prefix = ("stage" + Twine(stage.getIndex()) + ".").str();
    std::string a = before.withCheckpoint(false).str();
    std::string b = after.withCheckpoint(false).str();
    forward =
        exchanges.get(to.getLoc(), there, *bytes, prefix + a + "-to-" + b);
    backward =
        exchanges.get(to.getLoc(), back, *bytes, prefix + b + "-to-" + a);
    return success();
  }

  /// Exchanges of both directions between neighbouring stages.
  LogicalResult connect(ExchangeMaker &exchanges,
                        mlir::galvatron::StageOp stage, RoleOp role,
                        mlir::galvatron::StageOp nextStage, RoleOp next) {
    mlir::galvatron::LayerOp from = stage.getLayers().back();
    mlir::galvatron::LayerOp to = nextStage.getLayers().front();
    Strategy before = from.getStrategyAttr().toStrategy();
    Strategy after = to.getStrategyAttr().toStrategy();
    FailureOr<int64_t> bytes = getBytesPerUnit(from);
    if (failed(bytes))
      return failure();
    std::string cut = ("cut" + Twine(stage.getIndex())).str();
    FlatSymbolRefAttr activation = exchanges.get(
        nextStage.getLoc(),
        ::galvatron::reshardPlan(before, after, stage.getDevices(),
                                 nextStage.getDevices(), samples),
        *bytes, cut + ".activation");
    FlatSymbolRefAttr gradient = exchanges.get(
        nextStage.getLoc(),
        ::galvatron::reshardPlan(after, before, nextStage.getDevices(),
                                 stage.getDevices(), samples),
        *bytes, cut + ".gradient");
    role.setSendActivationAttr(activation);
    next.setRecvActivationAttr(activation);
    next.setSendGradientAttr(gradient);
    role.setRecvGradientAttr(gradient);
    return success();
  }

  /// Samples of one micro-batch over all ranks of a stage.
  int64_t samples = 0;
  const ::galvatron::Schedule *schedule = nullptr;
  ::galvatron::ScheduleShape shape;
};

} // namespace
