//===- IRLayerModel.cpp - Footprints by compiling layers ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Footprint/IRLayerModel.h"
#include "BodyCompiler.h"
#include "DiagnosticText.h"
#include "ValueNames.h"
#include "galvatron/Cluster/Measured.h"
#include "galvatron/Dialect/Galvatron/IR/LiveSets.h"
#include "galvatron/Dialect/Galvatron/Transforms/LayerModelInterface.h"
#include "galvatron/Dialect/Galvatron/Transforms/ModelFlops.h"
#include "galvatron/Dialect/Galvatron/Transforms/PlanAttributes.h"
#include "galvatron/Strategy/Dtype.h"
#include "galvatron/Support/Hash.h"

#include <map>
#include <mutex>
#include <tuple>

using namespace mlir;
using ::galvatron::LayerFootprint;
using ::galvatron::LayerModel;
using ::galvatron::LiveTensors;
using ::galvatron::Strategy;
using ::galvatron::Tie;
using mlir::galvatron::BodyCompiler;
using mlir::galvatron::CompiledLayer;
using mlir::galvatron::DiagnosticText;

namespace {

llvm::Error makeError(const Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

class IRLayerModel : public LayerModel {
public:
  static llvm::Expected<std::unique_ptr<LayerModel>>
  create(ModuleOp module, StringRef optimizer, const grt::KernelTarget &target);

  std::string name() const override { return modelName; }
  std::string hash() const override { return modelHash; }
  std::string dtype() const override { return elementType; }
  int64_t sequenceLength() const override { return sequence; }
  bool exact() const override { return true; }
  size_t layerCount() const override { return layers.size(); }
  std::string layerName(size_t layer) const override {
    return layers[layer].name;
  }
  size_t kindOf(size_t layer) const override { return layers[layer].kind; }
  int64_t boundaryBytesPerSample(size_t layer) const override {
    return layers[layer].boundary;
  }
  LiveTensors liveTensors(size_t layer) const override {
    return layers[layer].behind;
  }
  std::vector<int64_t> dataOf(size_t layer) const override {
    return layers[layer].data;
  }
  std::vector<Tie> ties() const override { return tied; }
  int64_t parameterCount() const override { return parameters; }
  double flopsPerSample() const override { return flops; }
  llvm::Expected<LayerFootprint>
  footprint(size_t kind, const Strategy &strategy, int64_t samples) override {
    std::lock_guard lock(mutex);
    return footprint(kind, strategy, samples, /*splits=*/false);
  }
  llvm::Expected<LayerFootprint> leastFootprint(size_t kind,
                                                const Strategy &strategy,
                                                int64_t samples) override;
  void setPointTimes(StringRef clusterHash,
                     ::galvatron::ForwardSeconds seconds) override;
  int64_t pointCount(size_t kind, const Strategy &strategy,
                     int64_t /*samples*/) override {
    std::lock_guard lock(mutex);
    if (kinds[kind].only)
      return 1;
    return pointSeconds
               ? int64_t(pointsOf(kind, strategy.axes()).variants.size())
               : 0;
  }
  llvm::Expected<::galvatron::KeptValues>
  keptValues(size_t kind, const Strategy &strategy, int64_t samples) override;
  llvm::Error givePoint(size_t kind, const Strategy &strategy, int64_t samples,
                        const ::galvatron::KeptValues &kept) override;
  std::vector<::galvatron::NamedValue> valuesOf(size_t kind) override;
  llvm::Error keepOnly(size_t kind,
                       std::vector<::galvatron::KeptValue> values) override;
  bool splitsBackward() const override { return true; }
  llvm::Expected<LayerFootprint> splitFootprint(size_t kind,
                                                const Strategy &strategy,
                                                int64_t samples) override {
    std::lock_guard lock(mutex);
    return footprint(kind, strategy, samples, /*splits=*/true);
  }

private:
  struct Layer {
    std::string name;
    size_t kind;
    int64_t boundary;
    LiveTensors behind;
    std::vector<int64_t> data; ///< arguments of the model
  };
  /// A body with a certain set of borrowed parameters, between boundaries of
  /// certain sizes.
  struct Kind {
    StringAttr callee;
    BodyCompiler *compiler;
    SmallVector<int64_t> borrowed;
    LiveTensors front, behind;
    std::vector<::galvatron::NamedValue> names; ///< of the body's values
    /// The one point, see keepOnly().
    std::optional<BodyCompiler::Variant> only;
    bool operator==(const Kind &other) const {
      return callee == other.callee && borrowed == other.borrowed &&
             front.made == other.front.made &&
             front.passing == other.front.passing &&
             behind.passing == other.behind.passing;
    }
  };
  using Axes = BodyCompiler::Axes;
  using Variant = BodyCompiler::Variant;
  /// The points of a layer, in their order, or why they cannot be chosen.
  struct Points {
    std::vector<Variant> variants;
    std::string refusal;
  };
  /// Kind, samples, sums once a step, what is kept, splits, partition.
  /// Footprints depend neither on the order of levels, but for that of axes,
  /// nor on the DP degree beyond whether there is one.
  using Key = std::tuple<size_t, int64_t, bool, Variant, bool,
                         ::galvatron::LayerPartition>;

  llvm::Error build(ModuleOp module);
  /// Null, with a diagnostic, if the body has no gradient.
  BodyCompiler *compilerOf(func::FuncOp body, ArrayRef<bool> dataInputs);
  llvm::Expected<LayerFootprint> footprint(size_t kind,
                                           const Strategy &strategy,
                                           int64_t samples, bool splits);
  llvm::Expected<LayerFootprint> compile(const Kind &kind,
                                         const Strategy &strategy,
                                         Variant variant, int64_t samples,
                                         bool splits);
  LayerFootprint footprintOf(const Kind &kind, const CompiledLayer &compiled,
                             const Strategy &strategy, int64_t samples) const;
  llvm::Expected<Variant> variantOf(size_t kind, const Strategy &strategy,
                                    int64_t samples);
  const Points &pointsOf(size_t kind, const Axes &axes);
  Points choosePoints(const Kind &kind, const Axes &axes, int64_t samples);
  double backwardSeconds(const LayerFootprint &footprint,
                         const Strategy &strategy) const;

  /// Values of a body in the model's words, with those that are needed.
  std::vector<::galvatron::NamedValue> namedValues(size_t kind);

  /// The lock of all calls that compile, or read what others compiled.
  std::mutex mutex;
  OwningOpRef<ModuleOp> scratch;
  std::string modelName, modelHash, elementType, backend;
  ::galvatron::Optimizer optimizer = ::galvatron::Optimizer::AdamW;
  int64_t threads = 1;
  int64_t sequence = 0, parameters = 0;
  double flops = 0;
  std::vector<Layer> layers;
  /// By what tells apart bodies that take something else.
  std::map<std::string, BodyCompiler> compilers;
  std::vector<Kind> kinds;
  std::vector<Tie> tied;
  std::map<Key, LayerFootprint> footprints;
  std::map<Key, std::string> refusals;
  /// The seconds by which points are chosen, and their cluster.
  ::galvatron::ForwardSeconds pointSeconds;
  std::string pointCluster;
  std::map<std::pair<size_t, Axes>, Points> points;
  /// By samples and point, whatever prices say.
  std::map<std::tuple<size_t, Axes, int64_t, int64_t>, Variant> given;
};

llvm::Expected<std::unique_ptr<LayerModel>>
IRLayerModel::create(ModuleOp module, StringRef optimizer,
                     const grt::KernelTarget &target) {
  auto model = std::make_unique<IRLayerModel>();
  auto rule = ::galvatron::optimizerNamed(optimizer);
  if (!rule)
    return makeError("expected an optimizer " + ::galvatron::optimizerList() +
                     ", found '" + optimizer + "'");
  model->optimizer = *rule;
  model->backend = target.backend.str();
  model->threads = target.threads;
  DiagnosticText diagnostics(module.getContext());
  if (llvm::Error error = model->build(module)) {
    if (diagnostics.text.empty())
      return error;
    llvm::consumeError(std::move(error));
    return makeError(diagnostics.text);
  }
  return std::unique_ptr<LayerModel>(std::move(model));
}

LiveTensors makeLiveTensors(const mlir::galvatron::LiveSet &set,
                            mlir::galvatron::LayerOp maker) {
  LiveTensors tensors;
  for (OpResult value : set)
    (value.getOwner() == maker ? tensors.made : tensors.passing)
        .push_back(mlir::galvatron::getSampleBytes(value));
  return tensors;
}

BodyCompiler *IRLayerModel::compilerOf(func::FuncOp body,
                                       ArrayRef<bool> dataInputs) {
  OpBuilder builder = OpBuilder::atBlockEnd(scratch->getBody());
  std::string hash = nn::hashBody(body);
  std::string text = hash;
  for (bool isData : dataInputs)
    text += isData ? '1' : '0';
  if (auto known = compilers.find(text); known != compilers.end())
    return &known->second;
  auto copy = cast<func::FuncOp>(builder.clone(*body));
  FailureOr<nn::DerivedFunctions> derived =
      nn::differentiateBody(copy, dataInputs);
  if (failed(derived))
    return nullptr;
  return &compilers
              .try_emplace(std::move(text), *derived, body.getName(), hash,
                           grt::KernelTarget{backend, threads})
              .first->second;
}

static std::string nameOf(Type type) {
  std::string name;
  llvm::raw_string_ostream(name) << type;
  return name;
}

llvm::Error IRLayerModel::build(ModuleOp module) {
  mlir::galvatron::ModelOp model = mlir::galvatron::getModel(module);
  if (!model)
    return makeError("expected a module with one galvatron.model");
  modelName = model.getSymName().str();
  sequence = model.getSequenceLength();
  flops = mlir::galvatron::countModelFlopsPerSample(module);
  elementType = "f32";
  scratch = ModuleOp::create(module.getLoc());

  std::string text;
  llvm::raw_string_ostream stream(text);
  for (mlir::galvatron::DataAttr datum : model.getDeclaredData())
    stream << datum << '\n';

  SymbolTable symbols(module);
  llvm::StringMap<BodyCompiler *> bodies;
  llvm::DenseMap<StringAttr, size_t> owners;
  SmallVector<mlir::galvatron::LayerOp, 8> modelLayers = model.getLayers();
  SmallVector<mlir::galvatron::LiveSet> liveSets =
      mlir::galvatron::getLiveSets(model);
  for (mlir::galvatron::LayerOp layer : modelLayers) {
    if (layer.isOpaque() || !layer.getCalleeAttr())
      return makeError("expected layer '" + layer.getLayerName() +
                       "' to have a body");
    StringRef callee = layer.getCallee().value();
    auto [known, inserted] = bodies.try_emplace(callee);
    auto body = symbols.lookup<func::FuncOp>(callee);
    for (Type type : body.getArgumentTypes()) {
      auto tensor = dyn_cast<RankedTensorType>(type);
      if (!tensor || tensor.getElementType().isInteger(32))
        continue;
      std::string name = nameOf(tensor.getElementType());
      if (!::galvatron::isExecutedDtype(name))
        return makeError("expected the body of layer '" + layer.getLayerName() +
                         "' to take elements of f32, f64, bf16 or i32, found " +
                         nameOf(type));
      elementType = name;
    }
    if (inserted) {
      body.print(stream, OpPrintingFlags().useLocalScope());
      known->second = compilerOf(body, layer.getDataInputs());
      if (!known->second)
        return makeError("layer '" + layer.getLayerName() +
                         "' has no gradient");
    }
    Kind kind;
    kind.callee = layer.getCalleeAttr().getAttr();
    kind.compiler = known->second;
    size_t number = layers.size();
    for (auto [index, symbol] : llvm::enumerate(layer.getParamSymbols())) {
      auto [owner, first] = owners.try_emplace(symbol.getAttr(), number);
      stream << symbol.getValue() << ' ';
      auto parameter =
          symbols.lookup<mlir::galvatron::ParameterOp>(symbol.getValue());
      if (first) {
        parameters += parameter.getTensorType().getNumElements();
        continue;
      }
      kind.borrowed.push_back(int64_t(index));
      // A frozen parameter has the same values in both from the beginning on.
      if (parameter.getFrozen())
        continue;
      tied.push_back({owner->second, number,
                      nn::countBytes(parameter.getTensorType(), 1)});
    }
    if (number > 0)
      kind.front = layers.back().behind;
    kind.behind = makeLiveTensors(liveSets[number + 1], layer);
    auto found = llvm::find(kinds, kind);
    if (found == kinds.end()) {
      std::vector<std::string> names;
      for (FlatSymbolRefAttr symbol : layer.getParamSymbols())
        names.push_back(symbol.getValue().str());
      kind.names = mlir::galvatron::nameValues(
          symbols.lookup<func::FuncOp>(kind.callee), names);
      kinds.push_back(kind);
      found = std::prev(kinds.end());
    }
    int64_t boundary = 0;
    for (OpResult value : liveSets[number + 1])
      boundary += mlir::galvatron::getSampleBytes(value);
    stream << layer.getLayerName() << ' ' << callee << '\n';
    // In a chain the order of the layers says it all.
    if (!kind.behind.passing.empty() || kind.behind.made.size() > 1)
      for (Value operand : modelLayers[number + 1].getInputs()) {
        Value origin = mlir::galvatron::getOrigin(operand);
        if (auto source = origin.getDefiningOp<mlir::galvatron::LayerOp>())
          stream << source.getLayerName() << '#'
                 << cast<OpResult>(origin).getResultNumber() << ' ';
      }
    std::vector<int64_t> data;
    for (unsigned i = 0; i < layer.getInputs().size(); ++i)
      if (BlockArgument argument = layer.getDataArgument(i)) {
        data.push_back(argument.getArgNumber());
        stream << argument.getArgNumber() << ' ';
      }
    layers.push_back({layer.getLayerName().str(), size_t(found - kinds.begin()),
                      boundary, kind.behind, std::move(data)});
  }
  // Footprints of f16 and tf32 are those of the type with the same bytes; times
  // are of the type that was asked for.
  std::string chosen = mlir::galvatron::getTrainingOptions(module).dtype;
  if (::galvatron::storedAs(chosen) == elementType)
    elementType = chosen;
  modelHash = ::galvatron::contentHash(text);
  return llvm::Error::success();
}

llvm::Expected<LayerFootprint> IRLayerModel::footprint(size_t kind,
                                                       const Strategy &strategy,
                                                       int64_t samples,
                                                       bool splits) {
  llvm::Expected<Variant> variant = variantOf(kind, strategy, samples);
  if (!variant)
    return variant.takeError();
  Key key = {kind,     samples, strategy.sumsOnce(),
             *variant, splits,  strategy.partition()};
  if (auto found = footprints.find(key); found != footprints.end())
    return found->second;
  if (auto found = refusals.find(key); found != refusals.end())
    return makeError(found->second);
  llvm::Expected<LayerFootprint> result =
      compile(kinds[kind], strategy, *variant, samples, splits);
  if (!result) {
    refusals[key] = llvm::toString(result.takeError());
    return makeError(refusals[key]);
  }
  footprints[key] = *result;
  return *result;
}

llvm::Expected<LayerFootprint>
IRLayerModel::leastFootprint(size_t kind, const Strategy &strategy,
                             int64_t samples) {
  std::lock_guard lock(mutex);
  llvm::Expected<Variant> variant = variantOf(kind, strategy, samples);
  if (!variant)
    return variant.takeError();
  if (*variant <= BodyCompiler::kKeepsNothing)
    return footprint(kind, strategy, samples, /*splits=*/false);
  const Kind &layer = kinds[kind];
  llvm::Expected<CompiledLayer> measured =
      layer.compiler->measure(strategy, *variant, layer.borrowed, samples);
  if (!measured)
    return measured.takeError();
  return footprintOf(layer, *measured, strategy, samples);
}

/// Lists the collectives of a compiled layer.
void addCollectives(LayerFootprint &footprint, const CompiledLayer &layer,
                    const Strategy &strategy) {
  using ::galvatron::Collective;
  using Group = ::galvatron::CollectiveGroup;
  using Time = ::galvatron::CollectiveTime;
  auto addThoseOf = [&](const mlir::galvatron::CompiledFunction &function,
                        Time when) {
    for (::galvatron::LayerCollective work : function.work.collectives) {
      work.when = when;
      footprint.addCollective(work);
    }
    for (::galvatron::OverlappedCollective work : function.work.overlapped) {
      work.calls.when = when;
      footprint.overlapped.push_back(work);
    }
  };
  addThoseOf(layer.forward, Time::Forward);
  addThoseOf(layer.recompute, Time::Recompute);
  addThoseOf(layer.backward, Time::Backward);
  addThoseOf(layer.weight, Time::Weight);

  const grt::FlatLayout &layout = *layer.layout;
  for (const grt::FlatBucket &bucket : layout.buckets) {
    auto add = [&](Group among, Collective kind, Time when, int64_t elements,
                   int64_t elementBytes) {
      footprint.addCollective({among, kind, when, elements * elementBytes});
    };
    if (layout.shards > 1) {
      // The parameters that recomputation gathers are there for backward.
      for (Time when :
           {Time::Forward, layer.recomputes ? Time::Recompute : Time::Backward})
        add(Group::Parameters, Collective::AllGather, when, bucket.elements,
            layout.elementBytes);
      if (bucket.frozen)
        continue;
      add(Group::Parameters, Collective::ReduceScatter,
          layer.split ? Time::Weight : Time::Backward, bucket.elements,
          layout.accumulatorBytes);
    }
    if (bucket.frozen)
      continue;
    if (bucket.optimizerShards > 1) {
      add(Group::Gradients, Collective::ReduceScatter, Time::Step,
          bucket.shardElements, layout.accumulatorBytes);
      add(Group::Gradients, Collective::AllGather, Time::Update,
          bucket.shardElements, layout.elementBytes);
    } else if (strategy.sumsOnce()) {
      add(Group::Gradients, Collective::AllReduce, Time::Step,
          bucket.shardElements, layout.accumulatorBytes);
    }
  }
}

llvm::Expected<LayerFootprint>
IRLayerModel::compile(const Kind &kind, const Strategy &strategy,
                      Variant variant, int64_t samples, bool splits) {
  llvm::Expected<CompiledLayer> compiled =
      kind.compiler->compile(strategy, variant, kind.borrowed, samples, splits);
  if (!compiled)
    return compiled.takeError();
  return footprintOf(kind, *compiled, strategy, samples);
}

LayerFootprint IRLayerModel::footprintOf(const Kind &kind,
                                         const CompiledLayer &compiled,
                                         const Strategy &strategy,
                                         int64_t samples) const {
  const auto &[forward, recompute, backward, weight, recomputes, split,
               layoutOf, data] = compiled;
  const grt::FlatLayout &layout = *layoutOf;

  LayerFootprint footprint;
  footprint.dataBytesPerSample.assign(data.begin(), data.end());
  // The tensors that it holds are what the layer in front made for it and for
  // others.
  footprint.inputBytes = LiveTensors::bytes(kind.front.made, samples);
  footprint.passingInBytes = kind.front.passingBytes(samples);
  footprint.passingOutBytes = kind.behind.passingBytes(samples);
  footprint.outputBytes = forward.regions.outputBytes;
  footprint.split = split;
  footprint.stashBytes =
      split ? backward.regions.stashBytes : forward.regions.stashBytes;
  grt::setTransients(footprint, forward.bytes, recompute.bytes, backward.bytes,
                     weight.bytes, recompute.regions.stashBytes);
  footprint.parameterBytes = layout.parameterBytes();
  footprint.gradientBytes = layout.gradientBytes();
  footprint.borrowedGradientBytes =
      layout.borrowedShardElements() * layout.accumulatorBytes;
  footprint.optimizerBytes = layout.optimizerBytes(optimizer);
  footprint.forwardFlops = forward.work.flops;
  footprint.forwardMovedBytes = forward.work.movedBytes;
  footprint.forwardKernels = forward.work.kernels;
  footprint.forwardProducts = forward.work.products;
  footprint.recomputeProducts = recompute.work.products;
  footprint.weightFlops = weight.work.flops;
  footprint.weightMovedBytes = weight.work.movedBytes;
  footprint.weightKernels = weight.work.kernels;
  footprint.weightProducts = weight.work.products;
  mlir::galvatron::FunctionWork whole = backward.work;
  whole.addComputation(weight.work);
  footprint.backwardProducts = whole.products;
  footprint.recomputeFlops = recompute.work.flops;
  footprint.recomputeMovedBytes = recompute.work.movedBytes;
  footprint.recomputeKernels = recompute.work.kernels;
  footprint.backwardFlops = whole.flops;
  footprint.backwardMovedBytes = whole.movedBytes;
  footprint.backwardKernels = whole.kernels;
  addCollectives(footprint, compiled, strategy);
  // Borrowed parameters are updated by their owner.
  int64_t owned = layout.updatedElements();
  footprint.normBytes = owned * layout.accumulatorBytes;
  footprint.updateBytes =
      owned * ::galvatron::updateTraffic(
                  layout.elementBytes, layout.accumulatorBytes,
                  grt::getOptimizerValues(optimizer, layout.elementBytes,
                                          layout.accumulatorBytes));
  return footprint;
}

//===----------------------------------------------------------------------===//
// Points
//===----------------------------------------------------------------------===//

/// More are hardly of use: with the ends, a stage's layers that mix two
/// neighbours lose little of the hull (docs/kept.md).
constexpr size_t kChosenPoints = 4;

void IRLayerModel::setPointTimes(StringRef clusterHash,
                                 ::galvatron::ForwardSeconds seconds) {
  std::lock_guard lock(mutex);
  if (pointSeconds && pointCluster == clusterHash)
    return;
  pointCluster = clusterHash.str();
  pointSeconds = std::move(seconds);
  points.clear();
}

/// Samples of a micro-batch by which points are chosen, so that they are the
/// same sets for all sizes: bytes and times both grow with the samples. Few,
/// since 32-bit sizes bound them, and more than one, at which kernels' launches
/// may count as much as what they do.
constexpr int64_t kSamplesOfPoints = 4;

/// Seconds of all that runs in backward.
double IRLayerModel::backwardSeconds(const LayerFootprint &footprint,
                                     const Strategy &strategy) const {
  LayerFootprint all;
  all.forwardFlops = footprint.recomputeFlops + footprint.backwardFlops;
  all.forwardMovedBytes =
      footprint.recomputeMovedBytes + footprint.backwardMovedBytes;
  all.forwardKernels = footprint.recomputeKernels + footprint.backwardKernels;
  all.forwardProducts = footprint.backwardProducts;
  llvm::append_range(all.forwardProducts, footprint.recomputeProducts);
  using Time = ::galvatron::CollectiveTime;
  for (::galvatron::LayerCollective work : footprint.collectives)
    if (work.when == Time::Recompute || work.when == Time::Backward) {
      work.when = Time::Forward;
      all.addCollective(work);
    }
  for (::galvatron::OverlappedCollective work : footprint.overlapped)
    if (work.calls.when == Time::Recompute ||
        work.calls.when == Time::Backward) {
      work.calls.when = Time::Forward;
      all.overlapped.push_back(work);
    }
  return pointSeconds(all, strategy);
}

IRLayerModel::Points IRLayerModel::choosePoints(const Kind &kind,
                                                const Axes &axes,
                                                int64_t samples) {
  Points result;
  Strategy strategy = cantFail(Strategy::get(axes, /*checkpoint=*/false));
  auto seconds = [&](const mlir::galvatron::FunctionWork &work) {
    LayerFootprint one;
    one.forwardFlops = work.flops;
    one.forwardMovedBytes = work.movedBytes;
    one.forwardKernels = work.kernels;
    one.forwardProducts = work.products;
    for (const ::galvatron::LayerCollective &collective : work.collectives)
      one.addCollective(collective);
    return pointSeconds(one, strategy);
  };
  auto sets =
      kind.compiler->choosePoints(axes, samples, seconds, kChosenPoints);
  if (!sets) {
    result.refusal = llvm::toString(sets.takeError());
    return result;
  }
  // Fusion and launches do not add up: what is compiled decides.
  struct Compiled {
    Variant variant;
    int64_t kept;
    double seconds;
    std::optional<int64_t> transient; ///< once it is asked for
  };
  std::vector<Compiled> all;
  auto add = [&](Variant variant) {
    bool isPoint = variant > BodyCompiler::kKeepsNothing;
    auto layer =
        isPoint
            ? kind.compiler->measure(strategy, variant, kind.borrowed, samples)
            : kind.compiler->compile(strategy, variant, kind.borrowed, samples,
                                     /*splits=*/false);
    if (!layer)
      return llvm::consumeError(layer.takeError());
    LayerFootprint footprint = footprintOf(kind, *layer, strategy, samples);
    all.push_back({variant, footprint.stashBytes,
                   backwardSeconds(footprint, strategy), std::nullopt});
  };
  add(BodyCompiler::kKeepsAll);
  add(BodyCompiler::kKeepsNothing);
  for (const ::galvatron::KeptValues &set : *sets)
    if (auto variant = kind.compiler->variantOf(set))
      add(*variant);
    else
      llvm::consumeError(variant.takeError());
  // Nor does the allocator add up. Most points need no compiling to see that
  // nothing dominates them.
  auto transientOf = [&](Compiled &one) {
    if (!one.transient) {
      auto footprint = compile(kind, strategy, one.variant, samples,
                               /*splits=*/false);
      one.transient = footprint ? std::max(footprint->forwardTransient,
                                           footprint->backwardTransient)
                                : std::numeric_limits<int64_t>::max();
      if (!footprint)
        llvm::consumeError(footprint.takeError());
    }
    return *one.transient;
  };
  for (Compiled &one : all) {
    bool isPoint = one.variant > BodyCompiler::kKeepsNothing;
    // The first of two that take the same stays.
    bool dominated =
        isPoint && llvm::any_of(all, [&](Compiled &other) {
          if (&other == &one || other.kept > one.kept ||
              other.seconds > one.seconds ||
              transientOf(other) > transientOf(one))
            return false;
          return other.kept < one.kept || other.seconds < one.seconds ||
                 transientOf(other) < transientOf(one) || &other < &one;
        });
    if (isPoint && !dominated)
      result.variants.push_back(one.variant);
  }
  return result;
}

const IRLayerModel::Points &IRLayerModel::pointsOf(size_t kind,
                                                   const Axes &axes) {
  auto [it, fresh] = points.try_emplace({kind, axes});
  if (fresh)
    it->second = choosePoints(kinds[kind], axes, kSamplesOfPoints);
  return it->second;
}

llvm::Expected<BodyCompiler::Variant>
IRLayerModel::variantOf(size_t kind, const Strategy &strategy,
                        int64_t samples) {
  int64_t point = strategy.point();
  if (point == 0)
    return BodyCompiler::variantOf(strategy);
  Axes axes = strategy.axes();
  if (kinds[kind].only)
    return *kinds[kind].only;
  if (auto found = given.find({kind, axes, samples, point});
      found != given.end())
    return found->second;
  auto refused = [&](const Twine &why) {
    return makeError("strategy '" + strategy.str() + "': " + why);
  };
  if (!pointSeconds)
    return refused("expected the values that it keeps, or a cluster to choose "
                   "them by");
  const Points &found = pointsOf(kind, axes);
  if (!found.refusal.empty())
    return refused(found.refusal);
  if (found.variants.empty())
    return kinds[kind].compiler->variantThatKeepsAll();
  return found.variants[std::min(size_t(point), found.variants.size()) - 1];
}

llvm::Expected<::galvatron::KeptValues>
IRLayerModel::keptValues(size_t kind, const Strategy &strategy,
                         int64_t samples) {
  std::lock_guard lock(mutex);
  llvm::Expected<Variant> variant = variantOf(kind, strategy, samples);
  if (!variant)
    return variant.takeError();
  if (*variant <= BodyCompiler::kKeepsNothing)
    return makeError("strategy '" + strategy.str() +
                     "' has no point that keeps a part of the values");
  ::galvatron::KeptValues kept = kinds[kind].compiler->keptBy(*variant);
  for (const ::galvatron::NamedValue &value : namedValues(kind))
    if (llvm::is_contained(kept.values, value.value))
      kept.names.push_back(value.name);
    else if (value.needed)
      kept.remade.push_back(value.name);
  return kept;
}

std::vector<::galvatron::NamedValue> IRLayerModel::valuesOf(size_t kind) {
  std::lock_guard lock(mutex);
  return namedValues(kind);
}

std::vector<::galvatron::NamedValue> IRLayerModel::namedValues(size_t kind) {
  std::vector<::galvatron::NamedValue> values = kinds[kind].names;
  BodyCompiler &compiler = *kinds[kind].compiler;
  const ::galvatron::KeptValues all =
      compiler.keptBy(compiler.variantThatKeepsAll());
  for (::galvatron::NamedValue &value : values)
    value.needed = llvm::is_contained(all.values, value.value);
  return values;
}

llvm::Error IRLayerModel::keepOnly(size_t kind,
                                   std::vector<::galvatron::KeptValue> values) {
  std::lock_guard lock(mutex);
  BodyCompiler &compiler = *kinds[kind].compiler;
  ::galvatron::KeptValues kept;
  kept.body = compiler.keptBy(compiler.variantThatKeepsAll()).body;
  kept.values = std::move(values);
  llvm::Expected<Variant> variant = compiler.variantOf(kept);
  if (!variant)
    return variant.takeError();
  kinds[kind].only = *variant;
  return llvm::Error::success();
}

llvm::Error IRLayerModel::givePoint(size_t kind, const Strategy &strategy,
                                    int64_t samples,
                                    const ::galvatron::KeptValues &kept) {
  std::lock_guard lock(mutex);
  llvm::Expected<Variant> variant = kinds[kind].compiler->variantOf(kept);
  if (!variant)
    return variant.takeError();
  given[{kind, strategy.axes(), samples, strategy.point()}] = *variant;
  return llvm::Error::success();
}

/// The interface by which planning passes ask for models.
class FootprintInterface : public mlir::galvatron::LayerModelInterface {
public:
  using LayerModelInterface::LayerModelInterface;

  llvm::Expected<std::unique_ptr<LayerModel>>
  create(ModuleOp module, StringRef optimizer, StringRef backend,
         int64_t threads) const override {
    return IRLayerModel::create(module, optimizer, {backend, threads});
  }
};

} // namespace

auto ::galvatron::createIRLayerModel(ModuleOp module, StringRef optimizer,
                                     const grt::KernelTarget &target)
    -> llvm::Expected<std::unique_ptr<LayerModel>> {
  return IRLayerModel::create(module, optimizer, target);
}

void ::galvatron::registerFootprints(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context,
                            mlir::galvatron::GalvatronDialect *dialect) {
    context->loadDialect<func::FuncDialect, grt::GRTDialect, nn::NNDialect>();
    dialect->addInterface<FootprintInterface>();
  });
}
