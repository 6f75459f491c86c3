//===- PlanAttributes.cpp - The plan as attributes ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/Galvatron/Transforms/PlanAttributes.h"
#include "galvatron/Schedule/Schedule.h"
#include "galvatron/Simulate/Simulate.h"

#include "galvatron/Cost/ProfileLayerModel.h"
#include "galvatron/Dialect/Galvatron/IR/Executable.h"
#include "galvatron/Dialect/Galvatron/Transforms/LayerModelInterface.h"
#include "galvatron/Dialect/Galvatron/Transforms/ModelFlops.h"
#include "galvatron/Planner/Explain.h"
#include "galvatron/Support/Units.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/Remarks.h"

using namespace mlir;
using namespace mlir::galvatron;

::galvatron::TrainingOptions
mlir::galvatron::getTrainingOptions(ModuleOp module) {
  ::galvatron::TrainingOptions options;
  TrainingAttr training = getTraining(module);
  if (!training) {
    // Nobody has chosen: the element type is that of the parameters.
    for (auto parameter : module.getOps<ParameterOp>()) {
      options.dtype.clear();
      llvm::raw_string_ostream(options.dtype)
          << parameter.getTensorType().getElementType();
      break;
    }
    return options;
  }
  options.optimizer = ::galvatron::optimizerName(training.getOptimizer()).str();
  options.dtype = training.getDtype().str();
  options.clip = training.getClip();
  options.dropout = training.getDropout();
  options.decayAll = training.getDecayAll();
  options.clipDelayed = training.getClipDelayed();
  if (FloatAttr smoothing = training.getLabelSmoothing())
    options.labelSmoothing = smoothing.getValueAsDouble();
  if (FloatAttr zLoss = training.getZLoss())
    options.zLoss = zLoss.getValueAsDouble();
  return options;
}

TrainingAttr
mlir::galvatron::getTrainingAttr(MLIRContext *context,
                                 const ::galvatron::TrainingOptions &options) {
  auto term = [&](double value) {
    return value == 0 ? FloatAttr()
                      : FloatAttr::get(Float64Type::get(context), value);
  };
  // Options are checked where they are read.
  return TrainingAttr::get(
      context, *::galvatron::optimizerNamed(options.optimizer), options.dtype,
      options.clip, options.dropout, options.decayAll, options.clipDelayed,
      term(options.labelSmoothing), term(options.zLoss));
}

//===----------------------------------------------------------------------===//
// Layer models and clusters
//===----------------------------------------------------------------------===//

/// A model of opaque layers, from their profiles.
static llvm::Expected<std::unique_ptr<::galvatron::LayerModel>>
createProfileModel(ModelOp model,
                   const ::galvatron::TrainingOptions &training) {
  std::vector<::galvatron::ProfileLayer> layers;
  for (LayerOp layer : model.getLayers()) {
    assert(layer.isOpaque() && "a model's layers are of one kind");
    ProfileAttr profile = layer.getProfileAttr();
    ::galvatron::ProfileLayer entry;
    entry.name = layer.getLayerName().str();
    if (std::optional<double> forward = profile.getForwardTime()) {
      entry.measured = true;
      entry.forward = ::galvatron::BatchTimes({{1.0, *forward}});
      entry.backward =
          ::galvatron::BatchTimes({{1.0, *profile.getBackwardTime()}});
    }
    if (FloatAttr flops = profile.getForwardFlops())
      entry.forwardFlops = flops.getValueAsDouble();
    entry.forwardMovedBytes = double(profile.getForwardMovedBytes());
    entry.parameterBytes = profile.getParameterBytes();
    entry.boundaryBytes = profile.getBoundaryBytes();
    entry.intermediateBytes = profile.getIntermediateBytes();
    entry.tpAllReduceBytes = profile.getTpAllreduceBytes();
    entry.tpReplicatedBytes = profile.getTpReplicatedBytes();
    layers.push_back(std::move(entry));
  }
  return ::galvatron::ProfileLayerModel::get(
      model.getSymName().str(), training.dtype, std::move(layers), training);
}

FailureOr<std::unique_ptr<::galvatron::LayerModel>>
mlir::galvatron::createLayerModel(ModuleOp module,
                                  const ::galvatron::Cluster &cluster) {
  ModelOp model = getModel(module);
  if (!model)
    return failure();
  ::galvatron::TrainingOptions training = getTrainingOptions(module);
  SmallVector<LayerOp, 8> layers = model.getLayers();
  if (layers.empty())
    return model.emitOpError("expected layers, found none"), failure();
  if (failed(verifyExecutable(model)))
    return failure();
  auto create =
      [&]() -> llvm::Expected<std::unique_ptr<::galvatron::LayerModel>> {
    if (layers.front().isOpaque())
      return createProfileModel(model, training);
    auto *footprints = module.getContext()
                           ->getLoadedDialect<GalvatronDialect>()
                           ->getRegisteredInterface<LayerModelInterface>();
    if (!footprints)
      return ::galvatron::makeError("expected the context to have footprints: "
                                    "see registerFootprints()");
    return footprints->create(module, training.optimizer, cluster.backend(),
                              cluster.threadsPerDevice());
  };
  auto created = create();
  if (!created) {
    model.emitError(llvm::toString(created.takeError()));
    return failure();
  }
  return std::move(*created);
}

FailureOr<::galvatron::Cluster>
mlir::galvatron::resolveCluster(ModuleOp module, StringRef nameOrPath) {
  ClusterAttr present = getCluster(module);
  if (nameOrPath.empty()) {
    if (!present)
      return module.emitError(
                 "expected a cluster: the attribute "
                 "'galvatron.cluster', or a name or file, found none"),
             failure();
    auto cluster = present.toCluster();
    if (!cluster)
      return module.emitError(llvm::toString(cluster.takeError())), failure();
    return std::move(*cluster);
  }
  auto cluster = ::galvatron::Cluster::load(nameOrPath);
  if (!cluster)
    return module.emitError(llvm::toString(cluster.takeError())), failure();
  ClusterAttr attribute = ClusterAttr::get(module.getContext(), *cluster);
  if (present && present != attribute)
    return module.emitError()
               << "expected the module's cluster '" << present.getName()
               << "', found '" << nameOrPath << "', which differs from it",
           failure();
  module->setAttr(GalvatronDialect::kClusterAttr, attribute);
  return std::move(*cluster);
}

//===----------------------------------------------------------------------===//
// Plans
//===----------------------------------------------------------------------===//

bool mlir::galvatron::hasPlan(ModuleOp module) {
  if (getPlan(module))
    return true;
  auto result = module.walk([](LayerOp layer) {
    return layer.getStrategyAttr() || layer.getStageAttr()
               ? WalkResult::interrupt()
               : WalkResult::advance();
  });
  return result.wasInterrupted();
}

FailureOr<std::vector<std::vector<int64_t>>>
mlir::galvatron::getStageDevices(ModuleOp module, PlanAttr plan,
                                 int64_t deviceCount) {
  int64_t stageCount = plan.getPipelineDegree();
  if (!plan.getDevices()) {
    if (deviceCount % stageCount == 0)
      return ::galvatron::stageDevices(deviceCount, stageCount);
    return module.emitError()
               << "expected 'pipeline_degree' to divide the " << deviceCount
               << " devices of the cluster, found " << stageCount,
           failure();
  }
  std::vector<std::vector<int64_t>> groups;
  int64_t used = 0;
  for (auto numbers : plan.getDevices().getAsRange<DenseI64ArrayAttr>()) {
    used += numbers.size();
    groups.push_back(numbers.asArrayRef().vec());
  }
  if (used > deviceCount)
    return module.emitError()
               << "expected 'devices' of the plan to be among the "
               << deviceCount << " devices of the cluster, found " << used,
           failure();
  return groups;
}

/// Null where chunks are those of stages.
static ArrayAttr convertPacks(MLIRContext *context,
                              const ::galvatron::Plan &plan) {
  ::galvatron::ScheduleShape shape = plan.shape();
  if (!shape.hasPacks())
    return {};
  return ArrayAttr::get(context,
                        {DenseI64ArrayAttr::get(context, shape.forwardPacks),
                         DenseI64ArrayAttr::get(context, shape.backwardPacks)});
}

/// Null for equal groups of consecutive devices that are all there are.
static ArrayAttr convertDevices(ModuleOp module,
                                const ::galvatron::Plan &plan) {
  MLIRContext *context = module.getContext();
  int64_t used = 0;
  for (const ::galvatron::PlanStage &stage : plan.stages)
    used += static_cast<int64_t>(stage.devices.size());
  ClusterAttr cluster = getCluster(module);
  if (plan.hasConsecutiveDevices() &&
      (!cluster || used == cluster.getDeviceCount()))
    return {};
  SmallVector<Attribute> stages;
  for (const ::galvatron::PlanStage &stage : plan.stages)
    stages.push_back(DenseI64ArrayAttr::get(context, stage.devices));
  return ArrayAttr::get(context, stages);
}

/// Null where the rule decides on all stages.
static ArrayAttr convertSums(MLIRContext *context,
                             const ::galvatron::Plan &plan) {
  SmallVector<Attribute> names;
  for (const ::galvatron::PlanStage &stage : plan.stages)
    names.push_back(
        StringAttr::get(context, ::galvatron::sumTimingName(stage.sums)));
  bool isChosen =
      llvm::any_of(plan.stages, [](const ::galvatron::PlanStage &stage) {
        return stage.sums != ::galvatron::SumTiming::ByRule;
      });
  return isChosen ? ArrayAttr::get(context, names) : ArrayAttr();
}

/// Why the stages of layers are not the backward packs of a plan; empty if they
/// are.
static std::string checkPacks(ModelOp model,
                              const ::galvatron::ScheduleShape &shape) {
  int64_t run = -1;
  for (auto [index, layer] : llvm::enumerate(model.getLayers())) {
    if (run + 1 < shape.runCount() &&
        shape.backwardPacks[run + 1] == int64_t(index))
      ++run;
    int64_t stage = layer.getStageAttr() ? layer.getStageAttr().getInt() : 0;
    if (stage != run)
      return ("expected layer '" + layer.getLayerName() + "' in stage " +
              llvm::Twine(run) + ", the backward pack that has it, found " +
              llvm::Twine(stage))
          .str();
  }
  if (run + 1 != shape.runCount())
    return ("expected packs of the model's " +
            llvm::Twine(model.getLayers().size()) +
            " layers, found one that begins with layer " +
            llvm::Twine(shape.backwardPacks[run + 1]))
        .str();
  return "";
}

FailureOr<::galvatron::ScheduleShape>
mlir::galvatron::getScheduleShape(ModuleOp module) {
  ModelOp model = getModel(module);
  PlanAttr plan = getPlan(module);
  if (!model || !plan)
    return failure();
  int64_t degree = plan.getPipelineDegree(), count = degree;
  LayerOp last;
  for (LayerOp layer : model.getLayers())
    if (IntegerAttr stage = layer.getStageAttr();
        stage && (!last || stage.getInt() + 1 > count)) {
      last = layer;
      count = std::max(count, stage.getInt() + 1);
    }
  // Stages that go on behind the last group of devices begin with the first
  // group again.
  auto schedule =
      llvm::cantFail(::galvatron::parseSchedule(plan.getSchedule()));
  int64_t chunks = (count + degree - 1) / degree;
  ::galvatron::ScheduleShape shape = plan.getShape(chunks);
  if (shape.hasPacks()) {
    // The attribute's verifier has checked the packs by themselves.
    if (std::string error = checkPacks(model, shape); !error.empty())
      return module.emitError(error), failure();
    return shape;
  }
  llvm::Error error = schedule->check(shape);
  if (error && count > degree) {
    last.emitOpError() << "expected a stage below the " << degree
                       << " of the plan, found stage " << count - 1 << ": "
                       << llvm::toString(std::move(error));
    return failure();
  }
  if (error)
    return module.emitError(llvm::toString(std::move(error))), failure();
  if (count % degree)
    return module.emitError()
               << "expected a multiple of " << degree
               << " stages, as many chunks of each device group, found "
               << count,
           failure();
  return shape;
}

FailureOr<::galvatron::Plan>
mlir::galvatron::readPlan(ModuleOp module,
                          const ::galvatron::Cluster &cluster) {
  ModelOp model = getModel(module);
  if (!model)
    return failure();
  PlanAttr attribute = getPlan(module);
  if (!attribute)
    return module.emitError(
               "expected a 'galvatron.plan' attribute, found none"),
           failure();
  int64_t stageCount = attribute.getPipelineDegree();
  auto groups = getStageDevices(module, attribute, cluster.deviceCount());
  if (failed(groups))
    return failure();

  ::galvatron::Plan plan;
  plan.toolVersion = GALVATRON_VERSION;
  plan.model = model.getSymName().str();
  plan.cluster = cluster.name().str();
  plan.space = "given";
  plan.training = getTrainingOptions(module);
  plan.seqLen = model.getSequenceLength();
  plan.batch = attribute.getBatch();
  plan.microBatches = attribute.getMicroBatches();
  plan.schedule =
      llvm::cantFail(::galvatron::parseSchedule(attribute.getSchedule()));
  plan.offload = attribute.getOffloaded();
  plan.passTimes = attribute.getChunkTimes();
  plan.pipelineDegree = stageCount;
  FailureOr<::galvatron::ScheduleShape> shape = getScheduleShape(module);
  if (failed(shape))
    return failure();
  plan.forwardPacks = shape->forwardPacks;
  plan.forwardMicroBatches = shape->forwardMicroBatches;
  std::vector<::galvatron::LayerRange> ranges(shape->runCount());
  auto homeOfRun = [&](int64_t run) {
    return plan.schedule->home(*shape, shape->chunkOfRun(run));
  };
  for (std::vector<int64_t> &group : *groups) {
    ::galvatron::PlanStage stage;
    stage.devices = group;
    stage.sums = attribute.getSumsOf(static_cast<int64_t>(plan.stages.size()));
    plan.stages.push_back(std::move(stage));
  }
  for (StageOp stage : model.getStages())
    if (int64_t(stage.getIndex()) < shape->runCount())
      plan.stages[homeOfRun(stage.getIndex())].devices =
          stage.getDevices().vec();

  for (auto [index, layer] : llvm::enumerate(model.getLayers())) {
    if (!layer.getStrategyAttr())
      return layer.emitOpError() << "expected a strategy for layer '"
                                 << layer.getLayerName() << "', found none",
             failure();
    if (!layer.getStageAttr() && stageCount > 1)
      return layer.emitOpError() << "expected a stage for layer '"
                                 << layer.getLayerName() << "', found none",
             failure();
    int64_t number = layer.getStageAttr() ? layer.getStageAttr().getInt() : 0;
    if (ranges[number].count++ == 0)
      ranges[number].first = index;
    plan.layers.push_back({layer.getLayerName().str(), homeOfRun(number),
                           layer.getStrategyAttr().toStrategy()});
    if (KeptAttr kept = layer.getKeptAttr())
      plan.layers.back().kept = kept.toKeptValues();
  }
  std::vector<std::vector<::galvatron::LayerRange>> ofStage(stageCount);
  for (auto [number, range] : llvm::enumerate(ranges))
    ofStage[homeOfRun(int64_t(number))].push_back(range);
  for (auto [stage, chunks] : llvm::zip_equal(plan.stages, ofStage))
    stage.setRanges(chunks);
  if (llvm::Error error = plan.check()) {
    std::string message = llvm::toString(std::move(error));
    Operation *where = module;
    for (auto [index, layer] : llvm::enumerate(model.getLayers()))
      if (llvm::Error own = plan.checkLayer(index);
          own && llvm::toString(std::move(own)) == message)
        where = layer;
    return where->emitError(message), failure();
  }
  if (llvm::Error error = plan.checkDevices())
    return module.emitError(llvm::toString(std::move(error))), failure();
  return plan;
}

llvm::Error mlir::galvatron::writePricedPlan(
    ModuleOp module, ::galvatron::LayerModel &model,
    const ::galvatron::Cluster &cluster, const ::galvatron::Plan &plan,
    int64_t memory) {
  // The runtime shows predicted times beside measured ones. They are the same
  // for every micro-batch, so the tasks of one do; but packs run forward and
  // backward with micro-batches of their own.
  llvm::Expected<::galvatron::SimulationInput> input =
      plan.schedule->runsPacks()
          ? ::galvatron::simulationInput(model, cluster, plan)
          : ::galvatron::simulationOutline(model, cluster, plan);
  if (!input)
    return input.takeError();
  llvm::json::Value times = ::galvatron::predictedTimes(*input);
  writePlan(module, plan, memory, &times);
  return llvm::Error::success();
}

void mlir::galvatron::writePlan(ModuleOp module, const ::galvatron::Plan &plan,
                                int64_t memory,
                                const llvm::json::Value *predictedTimes) {
  MLIRContext *context = module.getContext();
  StringAttr offload;
  if (plan.offload != ::galvatron::Offload::Off)
    offload = StringAttr::get(context, ::galvatron::offloadName(plan.offload));
  DenseI64ArrayAttr passTimes;
  SmallVector<int64_t> numbers;
  for (const ::galvatron::PassTimes &times : plan.passTimes)
    numbers.append({times.forward, times.input, times.weight, times.message});
  if (!numbers.empty())
    passTimes = DenseI64ArrayAttr::get(context, numbers);
  module->setAttr(GalvatronDialect::kPlanAttr,
                  PlanAttr::get(context, plan.batch, plan.microBatches,
                                plan.schedule->name(), plan.pipelineDegree,
                                memory, convertDevices(module, plan), offload,
                                passTimes, convertPacks(context, plan),
                                plan.forwardMicroBatches,
                                convertSums(context, plan)));
  // The manifest wants the model's work, and is written when bodies are gone.
  llvm::json::Value json = plan.toJson();
  // The same plan gives the same module, however long the search took.
  (*json.getAsObject())["search-ms"] = 0.0;
  if (predictedTimes)
    (*json.getAsObject())["predicted-us"] = *predictedTimes;
  ModelOp model = *module.getOps<ModelOp>().begin();
  SmallVector<LayerOp, 8> layers = model.getLayers();
  if (!layers.empty() && !layers.front().isOpaque())
    (*json.getAsObject())["flops-per-sample"] =
        countModelFlopsPerSample(module);
  std::string report;
  llvm::raw_string_ostream(report) << json;
  module->setAttr(GalvatronDialect::kPlanReportAttr,
                  StringAttr::get(context, report));
  if (!getTraining(module))
    module->setAttr(GalvatronDialect::kTrainingAttr,
                    getTrainingAttr(context, plan.training));
  Builder builder(context);
  for (auto [number, chunk] : llvm::enumerate(plan.chunks()))
    for (int64_t l = chunk.layers.first; l < chunk.layers.end(); ++l)
      layers[l].setStageAttr(builder.getI64IntegerAttr(number));
  for (auto [layer, entry] : llvm::zip_equal(layers, plan.layers)) {
    layer.setStrategyAttr(StrategyAttr::get(context, entry.strategy));
    layer.setKeptAttr(entry.kept ? KeptAttr::get(context, *entry.kept)
                                 : KeptAttr());
  }
}

void mlir::galvatron::removePlan(ModuleOp module) {
  module->removeAttr(GalvatronDialect::kPlanAttr);
  module->removeAttr(GalvatronDialect::kPlanReportAttr);
  module.walk([](LayerOp layer) {
    layer.removeStrategyAttr();
    layer.removeKeptAttr();
    layer.removeStageAttr();
  });
}

void mlir::galvatron::emitDecisions(Location loc,
                                    ArrayRef<std::string> decisions) {
  for (const std::string &decision : ::galvatron::foldDecisions(decisions))
    remark::analysis(
        loc, remark::RemarkOpts::name("decision").category("galvatron-planner"))
        << decision;
}
