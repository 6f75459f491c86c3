//===- Manifest.cpp - What a program says about itself --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Target/Manifest.h"
#include "galvatron/Cluster/Cluster.h"
#include "galvatron/Dialect/GRT/Transforms/Roles.h"
#include "galvatron/Schedule/Schedule.h"
#include "galvatron/Strategy/Strategy.h"
#include "grt/abi.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/Support/JSON.h"

using namespace mlir;
using namespace mlir::grt;

namespace {

/// What a manifest tells of a module, checked.
class ManifestFacts {
public:
  ManifestFacts(ModuleOp module,
                const mlir::galvatron::ManifestOptions &options)
      : module(module), symbolTable(module), options(options) {}

  LogicalResult collect() {
    plan = mlir::galvatron::getPlan(module);
    training = mlir::galvatron::getTraining(module);
    model = module->getAttrOfType<ModelAttr>(kModelAttr);
    if (!plan || !training || !model)
      return module.emitOpError()
             << "expected 'galvatron.plan', 'galvatron.training' and '"
             << kModelAttr << "' attributes on a program";
    FailureOr<SmallVector<RoleOp>> found = getRoles(module);
    if (failed(found))
      return failure();
    roles = *found;
    if (roles.empty())
      return module.emitOpError("expected roles, found none: run "
                                "'galvatron-schedule-tasks' first");
    FailureOr<SmallVector<TiedTensor>> tied = getTies(roles);
    if (failed(tied))
      return failure();
    ties = *tied;

    for (auto func : module.getOps<FuncOp>())
      functions.try_emplace(func.getSymNameAttr(), functions.size());
    for (auto exchange : module.getOps<ExchangeOp>())
      exchanges.try_emplace(exchange.getSymNameAttr(), exchanges.size());
    for (auto parameter : module.getOps<mlir::galvatron::ParameterOp>())
      parameters.try_emplace(parameter.getSymNameAttr(), parameters.size());
    for (RoleOp role : roles)
      if (failed(checkRole(role)))
        return failure();

    if (failed(readJson("model configuration", options.modelConfig,
                        model.getConfig(), modelConfig)))
      return failure();
    return readJson("plan", options.plan,
                    module->getAttrOfType<StringAttr>(
                        mlir::galvatron::GalvatronDialect::kPlanReportAttr),
                    planReport);
  }

protected:
  ModuleOp module;
  SymbolTable symbolTable;
  const mlir::galvatron::ManifestOptions &options;
  mlir::galvatron::PlanAttr plan;
  mlir::galvatron::TrainingAttr training;
  ModelAttr model;
  SmallVector<RoleOp> roles;
  SmallVector<TiedTensor> ties;
  /// Numbers in module order.
  llvm::DenseMap<StringAttr, int64_t> functions, exchanges, parameters;
  std::string modelConfig, planReport;
  int64_t world = 0;

private:
  LogicalResult checkRole(RoleOp role) {
    world += role.getDevices().size();
    if (!role.getArenaBytes() || !role.getSlotBytes() || !role.getArena() ||
        !role.getLedger())
      return role.emitOpError("expected its arena: run "
                              "'galvatron-allocate-arena' first");
    for (auto layer : role.getLayers().getOps<LayerOp>()) {
      if (!layer.getPlacement())
        return layer.emitOpError("expected a placement: run "
                                 "'galvatron-allocate-arena' first");
      for (auto tensor :
           layer.getTensors().getAsRange<mlir::galvatron::FlatTensorAttr>()) {
        FlatSymbolRefAttr symbol = tensor.getParameter();
        if (!parameters.contains(symbol.getAttr()))
          return layer.emitOpError() << "expected tensor " << symbol
                                     << " to name a 'galvatron.parameter'";
      }
    }
    return success();
  }

  /// The JSON text of an option, or else of the module; an empty object if
  /// neither is there.
  LogicalResult readJson(StringRef what, StringRef option, StringAttr attribute,
                         std::string &result) {
    result = !option.empty() ? option.str()
             : attribute     ? attribute.getValue().str()
                             : std::string("{}");
    llvm::Expected<llvm::json::Value> value = llvm::json::parse(result);
    if (!value)
      return module.emitOpError() << "expected JSON as the " << what << ": "
                                  << llvm::toString(value.takeError());
    return success();
  }
};

class ManifestWriter : ManifestFacts {
public:
  /// The facts have been collected: a JSON stream that was begun must be
  /// written whole.
  explicit ManifestWriter(ManifestFacts facts)
      : ManifestFacts(std::move(facts)), stream(text), json(stream) {}

  std::string write() {
    json.object([&] {
      writeHeader();
      writeData();
      writeParameters();
      writeExchanges();
      writeTies();
      json.attributeArray("roles", [&] {
        for (RoleOp role : roles)
          writeRole(role);
      });
    });
    json.flush();
    return std::move(text);
  }

private:
  //===--------------------------------------------------------------------===//
  // Writing
  //===--------------------------------------------------------------------===//

  void writeRaw(StringRef key, StringRef value) {
    json.attributeBegin(key);
    json.rawValue(value);
    json.attributeEnd();
  }

  void writeNumbers(StringRef key, ArrayRef<int64_t> numbers) {
    json.attributeArray(key, [&] {
      for (int64_t number : numbers)
        json.value(number);
    });
  }

  void writeRows(StringRef key, ArrayRef<int64_t> numbers, size_t length) {
    json.attributeArray(key, [&] {
      for (size_t i = 0; i < numbers.size(); i += length)
        json.array([&] {
          for (int64_t number : numbers.slice(i, length))
            json.value(number);
        });
    });
  }

  double predictedStepMs() {
    if (options.predictedStepMs)
      return *options.predictedStepMs;
    llvm::Expected<llvm::json::Value> value = llvm::json::parse(planReport);
    if (!value) {
      llvm::consumeError(value.takeError());
      return 0;
    }
    const llvm::json::Object *object = value->getAsObject();
    return object ? object->getNumber("iteration-ms").value_or(0) : 0;
  }

  /// Nothing if the module has none.
  std::optional<::galvatron::Cluster> getCluster() {
    auto clusterAttr = mlir::galvatron::getCluster(module);
    if (!clusterAttr)
      return std::nullopt;
    llvm::Expected<::galvatron::Cluster> cluster = clusterAttr.toCluster();
    if (cluster)
      return *cluster;
    llvm::consumeError(cluster.takeError());
    return std::nullopt;
  }

  /// The nodes that the plan was priced on, by rank, equal neighbours once.
  void writeNodes() {
    std::optional<::galvatron::Cluster> cluster = getCluster();
    if (!cluster || world > cluster->deviceCount())
      return;
    struct Group {
      int64_t count, devices;
      double bandwidth, network;
    };
    SmallVector<Group> groups;
    for (int64_t first = 0, next; first < world; first = next) {
      next = first + 1;
      while (next < world && cluster->nodeOf(next) == cluster->nodeOf(first))
        ++next;
      Group node{1, next - first, 0, 0};
      if (node.devices > 1)
        node.bandwidth = cluster->linkBetween(first, first + 1).bandwidth;
      if (node.devices < world)
        node.network =
            cluster->linkBetween(first, next < world ? next : 0).bandwidth;
      if (!groups.empty() && groups.back().devices == node.devices &&
          groups.back().bandwidth == node.bandwidth &&
          groups.back().network == node.network)
        ++groups.back().count;
      else
        groups.push_back(node);
    }
    json.attributeArray("nodes", [&] {
      for (const Group &group : groups)
        json.object([&] {
          json.attribute("count", group.count);
          json.attribute("devices", group.devices);
          if (group.bandwidth > 0)
            json.attribute("bandwidth", group.bandwidth);
          if (group.network > 0)
            json.attribute("network-bandwidth", group.network);
        });
    });
  }

  double peakFlops() {
    std::optional<::galvatron::Cluster> cluster = getCluster();
    if (!cluster)
      return 0;
    SmallVector<int64_t> devices;
    for (RoleOp role : roles)
      for (int64_t device : role.getDevices())
        if (device < cluster->deviceCount())
          devices.push_back(device);
    return cluster->flopsTogether(devices, training.getDtype());
  }

  void writeHeader() {
    json.attribute("abi", GRT_ABI_VERSION);
    json.attribute("tool-version", GALVATRON_VERSION);
    json.attributeObject(
        "target", [&] { json.attribute("backend", getBackend(module)); });
    json.attribute("dtype", training.getDtype());
    json.attribute("world", world);
    writeNodes();
    json.attribute("batch", plan.getBatch());
    json.attribute("micro-batches", plan.getMicroBatches());
    json.attribute("schedule", plan.getSchedule());
    // What a schedule that drains after every batch has needs no words.
    const ::galvatron::Schedule &schedule =
        *llvm::cantFail(::galvatron::parseSchedule(plan.getSchedule()));
    ::galvatron::ScheduleShape shape{plan.getPipelineDegree(),
                                     plan.getMicroBatches()};
    if (int64_t delay = schedule.delay(shape); delay > 0) {
      json.attribute("weight-versions", schedule.weightVersions(shape));
      json.attribute("delay", delay);
    }
    if (plan.getPacks()) {
      ::galvatron::ScheduleShape packs = plan.getShape(1);
      json.attribute("forward-packs", int64_t(packs.forwardPacks.size()));
      if (packs.regroups())
        json.attribute("forward-micro-batches", packs.forwardMicroBatches);
    }
    json.attributeObject("training", [&] {
      json.attribute("optimizer",
                     ::galvatron::optimizerName(training.getOptimizer()));
      json.attribute("dtype", training.getDtype());
      json.attribute("clip", training.getClip());
      json.attribute("dropout", training.getDropout());
      json.attribute("decay-all", training.getDecayAll());
      if (mlir::FloatAttr smoothing = training.getLabelSmoothing())
        json.attribute("label-smoothing", smoothing.getValueAsDouble());
      if (mlir::FloatAttr zLoss = training.getZLoss())
        json.attribute("z-loss", zLoss.getValueAsDouble());
    });
    writeAdapters();
    writeRaw("model-config", modelConfig);
    writeRaw("plan", planReport);
    json.attribute("predicted-step-ms", predictedStepMs());
    json.attribute("flops-per-sample", options.flopsPerSample);
    json.attribute("peak-flops", peakFlops());
    json.attributeArray("functions", [&] {
      for (auto func : module.getOps<FuncOp>())
        json.value(func.getSymName());
    });
  }

  void writeAdapters() {
    mlir::galvatron::AdaptersAttr adapters =
        mlir::galvatron::getAdapters(module);
    if (!adapters)
      return;
    json.attributeObject("adapters", [&] {
      json.attribute("rank", adapters.getRank());
      json.attribute("alpha", adapters.getAlpha().getValueAsDouble());
      json.attribute("in-first", adapters.getInFirst());
      json.attributeArray("modules", [&] {
        for (auto name : adapters.getModules().getAsRange<StringAttr>())
          json.value(name.getValue());
      });
      if (adapters.getRanks())
        writeNumbers("ranks", adapters.getRanks().asArrayRef());
      if (adapters.getAlphas())
        json.attributeArray("alphas", [&] {
          for (double alpha : adapters.getAlphas().asArrayRef())
            json.value(alpha);
        });
    });
  }

  void writeData() {
    json.attributeArray("data", [&] {
      for (mlir::galvatron::DataAttr datum : getModelData(module))
        json.object([&] {
          json.attribute("name", datum.getName());
          json.attribute("kind", datum.getKind());
          std::string element;
          llvm::raw_string_ostream(element)
              << datum.getTensorType().getElementType();
          json.attribute("type", element);
          writeNumbers("shape", datum.getSampleShape());
          json.attribute("bytes-per-sample", datum.getBytesPerSample());
          if (datum.getBelow())
            json.attribute("below", datum.getBelow());
          json.attribute("counted", datum.isCounted());
        });
    });
  }

  void writeParameters() {
    json.attributeArray("parameters", [&] {
      for (auto parameter : module.getOps<mlir::galvatron::ParameterOp>())
        json.object([&] {
          json.attribute("name", parameter.getSymName());
          writeNumbers("shape", parameter.getTensorType().getShape());
          json.attributeObject("init", [&] {
            json.attribute("kind", parameter.getInit());
            if (auto std = parameter.getStd())
              json.attribute("std", std->convertToDouble());
            if (auto value = parameter.getValue())
              json.attribute("value", value->convertToDouble());
          });
          json.attribute("decay", parameter.getDecay());
          if (ArrayAttr copies = parameter.getCopiesAttr())
            json.attributeArray("copies", [&] {
              for (auto copy : copies.getAsRange<StringAttr>())
                json.value(copy.getValue());
            });
          if (mlir::galvatron::PartAttr part = parameter.getPartAttr())
            json.attributeObject("part", [&] {
              json.attribute("of", part.getOf().getValue());
              json.attribute("first", part.getFirst());
              json.attribute("count", part.getCount());
              json.attribute("stride", part.getStride());
            });
        });
    });
  }

  void writeExchanges() {
    json.attributeArray("exchanges", [&] {
      for (auto exchange : module.getOps<ExchangeOp>())
        json.object([&] {
          json.attribute("name", exchange.getSymName());
          json.attribute("bytes-per-unit", exchange.getBytesPerUnit());
          if (std::optional<ArrayRef<int64_t>> tensors = exchange.getTensors())
            writeRows("tensors", *tensors, 3);
          writeRows("transfers", exchange.getTransfers(), 5);
        });
    });
  }

  void writeTies() {
    json.attributeArray("ties", [&] {
      for (const TiedTensor &tie : ties)
        json.object([&] {
          json.attribute("parameter", parameters.lookup(tie.parameter));
          auto end = [&](StringRef key, const TensorPlace &place) {
            json.attributeObject(key, [&] {
              json.attribute("role", place.role);
              json.attribute("layer", place.layer);
              json.attribute("tensor", place.tensor);
            });
          };
          end("owner", tie.owner);
          end("borrower", tie.borrower);
        });
    });
  }

  void writeExchangeRef(StringRef key, FlatSymbolRefAttr symbol) {
    if (symbol)
      json.attribute(key, exchanges.lookup(symbol.getAttr()));
    else
      json.attribute(key, nullptr);
  }

  void writeFunctionRef(StringRef key, FlatSymbolRefAttr symbol) {
    if (symbol)
      json.attribute(key, functions.lookup(symbol.getAttr()));
    else
      json.attribute(key, nullptr);
  }

  void writeChunk(const RoleChunk &chunk) {
    json.attribute("number", chunk.number);
    json.attribute("layer-count", int64_t(chunk.layers.size()));
    json.attribute("slots", chunk.slots);
    writeExchangeRef("send-activation", chunk.sendActivation);
    writeExchangeRef("recv-activation", chunk.recvActivation);
    writeExchangeRef("send-gradient", chunk.sendGradient);
    writeExchangeRef("recv-gradient", chunk.recvGradient);
    if (chunk.forwardOnly)
      json.attribute("forward-only", true);
    if (chunk.recvStash) {
      json.attribute("stash-from", chunk.stashFrom);
      writeExchangeRef("recv-stash", chunk.recvStash);
    }
  }

  /// Copies of data in micro-batches of another size than the program's.
  llvm::SmallDenseSet<int64_t> copiesOfForwardPacks(RoleOp role) {
    llvm::SmallDenseSet<int64_t> numbers;
    if (!plan.getPacks() || !plan.getShape(1).regroups())
      return numbers;
    for (const RoleChunk &chunk : getChunks(role))
      for (LayerOp layer : chunk.layers)
        if (DenseI64ArrayAttr data = layer.getPlacement()->getData();
            data && chunk.forwardOnly)
          numbers.insert_range(data.asArrayRef());
    return numbers;
  }

  void writeExtent(StringRef name, ExtentAttr extent) {
    writeNumbers(name, {extent.getOffset(), extent.getBytes()});
  }

  /// By chunk, of roles whose chunks are packs.
  static SmallVector<ArrayRef<int64_t>> framesOf(ArenaAttr arena) {
    SmallVector<ArrayRef<int64_t>> rows;
    if (arena.getFrames())
      for (auto row : arena.getFrames().getAsRange<DenseI64ArrayAttr>())
        rows.push_back(row.asArrayRef());
    return rows;
  }

  void writeStates(ArenaAttr arena) {
    writeExtent("parameters", arena.getParameters());
    writeExtent("gradients", arena.getGradients());
    writeExtent("optimizer", arena.getOptimizer());
  }

  void writeRole(RoleOp role) {
    ArenaAttr arena = *role.getArena();
    json.object([&] {
      json.attribute("stage", role.getStage());
      writeNumbers("devices", role.getDevices());
      json.attributeObject("arena", [&] {
        json.attribute("bytes", *role.getArenaBytes());
        // Where home is the host the arena has what is resident.
        if (arena.getHomeBytes() > 0) {
          writeExtent("parameters", arena.getResidentParameters());
          writeExtent("gradients", arena.getResidentGradients());
          if (arena.getResidentOptimizer())
            writeExtent("optimizer", arena.getResidentOptimizer());
        } else {
          writeStates(arena);
        }
        writeExtent("slots", arena.getSlots());
        if (arena.getAwaySlot())
          writeExtent("away-slot", arena.getAwaySlot());
        writeExtent("transient", arena.getTransient());
        if (DenseI64ArrayAttr window = arena.getWindow())
          writeNumbers("window", window);
        if (arena.getWorkspace())
          writeExtent("workspace", arena.getWorkspace());
        // The first two have the same bytes, from either end. Without a place
        // of its own what comes lies at the beginning of the region.
        ExtentAttr boundary = arena.getBoundary(), sent = arena.getSent();
        ExtentAttr received = arena.getReceived();
        if (sent && !received)
          received = boundary;
        auto writeBuffer = [&](int64_t offset, int64_t bytes) {
          json.array([&] {
            json.value(offset);
            json.value(bytes);
          });
        };
        json.attributeArray("boundary", [&] {
          if (!arena.getFrames())
            for (ExtentAttr extent : {boundary, boundary, received, sent})
              if (extent)
                writeBuffer(extent.getOffset(), extent.getBytes());
          // Every pack has four of its own.
          for (ArrayRef<int64_t> row : framesOf(arena))
            for (int64_t i : {0, 0, 2, 4})
              writeBuffer(row[i], row[i + 1]);
        });
        if (arena.getPacks())
          writeExtent("packs", arena.getPacks());
        writeExtent("data", arena.getData());
        writeExtent("loss", arena.getLoss());
        writeExtent("step", arena.getStep());
      });
      if (arena.getHomeBytes() > 0)
        json.attributeObject("home", [&] {
          json.attribute("bytes", arena.getHomeBytes());
          writeStates(arena);
          if (arena.getHomeSlots())
            writeExtent("slots", arena.getHomeSlots());
          if (arena.getHomeSlotBytes() > 0)
            json.attribute("slot-bytes", arena.getHomeSlotBytes());
        });
      if (std::optional<int64_t> places = role.getWaitingPlaces())
        json.attribute("waiting-places", *places);
      json.attributeObject("ledger", [&] {
        LedgerAttr ledger = *role.getLedger();
        for (auto [name, bytes] :
             {std::pair("parameters", ledger.getParameters()),
              {"gradients", ledger.getGradients()},
              {"optimizer", ledger.getOptimizer()},
              {"activations", ledger.getActivations()},
              {"backward", ledger.getBackward()},
              {"communication", ledger.getCommunication()},
              {"workspace", ledger.getWorkspace()},
              {"runtime", ledger.getRuntime()}})
          json.attribute(name, bytes);
      });
      json.attribute("slot-bytes", *role.getSlotBytes());
      json.attributeArray("data", [&] {
        ArrayAttr copies = arena.getCopies();
        if (!copies)
          return;
        llvm::SmallDenseSet<int64_t> ofForward = copiesOfForwardPacks(role);
        for (auto [number, row] : llvm::enumerate(copies))
          json.object([&] {
            auto copy = cast<DenseI64ArrayAttr>(row);
            json.attribute("datum", copy[0]);
            writeNumbers("extent", copy.asArrayRef().drop_front());
            if (ofForward.contains(int64_t(number)))
              json.attribute("of-forward-packs", true);
          });
      });
      json.attributeArray("layers", [&] {
        int64_t number = 0, buffer = 0;
        for (const RoleChunk &chunk : getChunks(role)) {
          for (LayerOp layer : chunk.layers)
            json.object([&] {
              writeLayer(layer, number++, chunk.forwardOnly, buffer);
            });
          buffer += arena.getFrames() ? kBuffersOfPack : 0;
        }
      });
      json.attributeArray("chunks", [&] {
        SmallVector<ArrayRef<int64_t>> frames = framesOf(arena);
        for (auto [number, chunk] : llvm::enumerate(getChunks(role)))
          json.object([&, number = number, &chunk = chunk] {
            writeChunk(chunk);
            if (!frames.empty())
              json.attribute("waiting-bytes", frames[number].back());
          });
      });
    });
  }

  void writeTensor(mlir::galvatron::FlatTensorAttr tensor) {
    json.object([&] {
      json.attribute("parameter",
                     parameters.lookup(tensor.getParameter().getAttr()));
      json.attribute("group", tensor.getGroup());
      json.attribute("offset", tensor.getOffset());
      writeNumbers("view", tensor.getView());
      writeNumbers("local-shape", tensor.getLocalShape());
      json.attribute("tp-dim", tensor.getTpDim());
    });
  }

  /// The most transient bytes that any of the functions needs.
  int64_t transientBytes(ArrayRef<FlatSymbolRefAttr> symbols) {
    int64_t most = 0;
    for (FlatSymbolRefAttr symbol : symbols)
      if (symbol)
        most = std::max(most, symbolTable.lookup<FuncOp>(symbol.getAttr())
                                  .getTransientBytes()
                                  .value_or(0));
    return most;
  }

  void writeGathered(StringRef key, int64_t offset) {
    if (offset < 0)
      return;
    json.attributeObject(key, [&] { json.attribute("offset", offset); });
  }

  /// Where a layer finds its inputs and what passes it: holders as the offset
  /// of the tensor in a slot.
  void writeTensorsAlive(LayerOp layer) {
    if (!layer.getFrontBytes())
      return;
    json.attribute("front-bytes", layer.getFront());
    json.attribute("behind-bytes", layer.getBehind());
    SmallVector<LayerOp> layers(
        layer->getParentOfType<RoleOp>().getLayers().getOps<LayerOp>());
    auto write = [&](StringRef key, ArrayRef<int64_t> rows, size_t length) {
      SmallVector<int64_t> numbers;
      for (size_t i = 0; i < rows.size(); i += length) {
        int64_t stash = layers[rows[i]].getPlacement()->getStash();
        numbers.push_back(stash + rows[i + 1]);
        llvm::append_range(numbers, rows.slice(i + 2, length - 2));
      }
      if (!numbers.empty())
        writeRows(key, numbers, length - 1);
    };
    write("inputs", layer.getInputRows(), LayerOp::kInputRow);
    write("passes", layer.getPassRows(), LayerOp::kPassRow);
    if (std::optional<ArrayRef<int64_t>> outputs = layer.getOutputs())
      writeNumbers("outputs", *outputs);
  }

  /// `firstBuffer`: of its chunk.
  void writeLayer(LayerOp layer, int64_t number, bool forwardOnly,
                  int64_t firstBuffer) {
    ::galvatron::Strategy strategy = layer.getStrategy().toStrategy();
    PlacementAttr placement = *layer.getPlacement();
    json.attribute("name", layer.getLayerName());
    json.attribute("index", layer.getIndex());
    if (layer.getDropoutKey())
      json.attribute("dropout-key", *layer.getDropoutKey());
    json.attribute("strategy", strategy.str());
    json.attributeArray("levels", [&] {
      for (auto [i, level] : llvm::enumerate(strategy.levels()))
        json.object([&] {
          json.attribute("kind", level.paradigm->executedAs());
          json.attribute("degree", level.degree);
          json.attribute("stride", strategy.stride(i));
        });
    });
    json.attribute("samples", layer.getSamples());
    writeFunctionRef("forward", layer.getForwardAttr());
    writeFunctionRef("recompute", layer.getRecomputeAttr());
    writeFunctionRef("backward", layer.getBackwardAttr());
    if (layer.getWeightAttr())
      writeFunctionRef("weight", layer.getWeightAttr());
    writeFunctionRef("update", layer.getUpdateAttr());
    writeFunctionRef("norm", layer.getNormAttr());
    json.attributeArray("tensors", [&] {
      for (auto tensor :
           layer.getTensors().getAsRange<mlir::galvatron::FlatTensorAttr>())
        writeTensor(tensor);
    });
    json.attributeArray("groups", [&] {
      for (auto group :
           layer.getGroups().getAsRange<mlir::galvatron::FlatGroupAttr>())
        json.object([&] {
          json.attribute("elements", group.getElements());
          json.attribute("shard-elements", group.getShardElements());
        });
    });

    json.attribute("parameter", placement.getParameter());
    // What is updated on the device has no gradients at home.
    if (placement.getResidentOptimizer() < 0)
      json.attribute("gradient", placement.getGradient());
    json.attribute("optimizer", placement.getOptimizer());
    if (placement.getResidentParameter() >= 0) {
      json.attribute("resident-parameter", placement.getResidentParameter());
      json.attribute("resident-gradient", placement.getResidentGradient());
      if (placement.getResidentOptimizer() >= 0)
        json.attribute("resident-optimizer", placement.getResidentOptimizer());
    }
    json.attribute("stash", placement.getStash());
    if (strategy.home().activations)
      json.attribute("kept-away", true);
    json.attribute("input-bytes", layer.getInputBytes());
    json.attribute("stash-bytes", layer.getStashBytes());
    writeTensorsAlive(layer);
    json.attribute("transient", placement.getBackwardTransient());
    json.attribute("forward-transient", placement.getForwardTransient());
    int64_t backward =
        transientBytes({layer.getRecomputeAttr(), layer.getBackwardAttr(),
                        layer.getWeightAttr()});
    json.attribute("transient-bytes", forwardOnly ? 0 : backward);
    json.attribute("forward-transient-bytes",
                   transientBytes({layer.getForwardAttr()}));
    json.attribute("recompute-stash-bytes", layer.getRecomputeStashBytes());
    writeGathered("forward-gathered", placement.getForwardGathered());
    writeGathered("backward-gathered", placement.getBackwardGathered());

    DenseI64ArrayAttr data = placement.getData();
    writeNumbers("data", data ? data.asArrayRef() : ArrayRef<int64_t>());
    // What is resharded waits in the region of one chunk, whatever is sent.
    ArenaAttr arena = *layer->getParentOfType<RoleOp>().getArena();
    bool hasPlace =
        arena.getSent() && (arena.getReceived() || !layer.getForwardReshard());
    json.attributeObject("output", [&] {
      OutputPlace place = placement.getOutput();
      json.attribute("kind", stringifyOutputPlace(place));
      if (place == OutputPlace::Slot)
        json.attribute("layer", number + 1);
      else if (place == OutputPlace::Boundary)
        json.attribute("buffer", firstBuffer + (hasPlace ? kSentBuffer : 1));
    });
    for (auto [key, buffer] : {std::pair("grad-in", placement.getGradIn()),
                               {"grad-out", placement.getGradOut()}}) {
      if (buffer >= 0)
        json.attribute(key, firstBuffer + buffer);
      else
        json.attribute(key, nullptr);
    }
    writeExchangeRef("forward-reshard", layer.getForwardReshardAttr());
    writeExchangeRef("backward-reshard", layer.getBackwardReshardAttr());
  }

  std::string text;
  llvm::raw_string_ostream stream;
  llvm::json::OStream json;
};

} // namespace

FailureOr<std::string>
mlir::galvatron::writeManifest(ModuleOp module,
                               const ManifestOptions &options) {
  ManifestFacts facts(module, options);
  if (failed(facts.collect()))
    return failure();
  return ManifestWriter(std::move(facts)).write();
}
