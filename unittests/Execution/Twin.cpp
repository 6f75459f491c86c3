//===- Twin.cpp - One model under many plans, compared --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Twin.h"

#include "galvatron/Cluster/Backend.h"
#include "galvatron/Conversion/NNToGRT/LayerSteps.h"
#include "galvatron/Dialect/GRT/Transforms/Passes.h"
#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Dialect/Galvatron/Transforms/Passes.h"
#include "galvatron/Dialect/NN/IR/NN.h"
#include "galvatron/Dialect/NN/Transforms/Passes.h"
#include "galvatron/Import/HuggingFace.h"
#include "galvatron/Planner/Planner.h"
#include "galvatron/Strategy/DecisionTree.h"
#include "galvatron/Support/Units.h"
#include "galvatron/Target/Program.h"
#include "grt/checkpoint.h"
#include "mlir/AsmParser/AsmParser.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/DynamicLibrary.h"
#include "llvm/Support/xxhash.h"

#include <array>
#include <cmath>
#include <cstring>

using namespace mlir;

namespace galvatron::test {

int64_t TwinPlan::world() const {
  if (devices.empty())
    return devicesPerStage * stages();
  int64_t count = 0;
  for (const std::vector<int64_t> &stage : devices)
    count += int64_t(stage.size());
  return count;
}

std::string TwinPlan::str() const {
  std::string text;
  llvm::raw_string_ostream stream(text);
  stream << '[';
  llvm::interleave(stageLayers, stream, ",");
  stream << "]";
  if (devices.empty())
    stream << " x" << devicesPerStage;
  for (const std::vector<int64_t> &stage : devices)
    stream << ' ' << deviceRange(stage);
  if (offload != Offload::Off)
    stream << " offload " << offloadName(offload);
  for (SumTiming timing : sums)
    stream << ' ' << sumTimingName(timing);
  if (packDevices) {
    stream << " on " << packDevices << ", forward from ";
    llvm::interleave(forwardPacks, stream, ",");
    if (forwardMicroBatches)
      stream << " in " << forwardMicroBatches;
  }
  stream << ' ' << schedule << " B" << batch << " m" << microBatches << ": ";
  llvm::interleave(
      strategies, stream, [&](const Strategy &s) { stream << s.str(); }, " ");
  return text;
}

TwinPlan singleRank(const TwinModel &model, int64_t batch,
                    int64_t microBatches) {
  return uniformPlan(model, 1, Strategy(), batch, microBatches, "1f1b");
}

TwinPlan uniformPlan(const TwinModel &model, int64_t stages,
                     const Strategy &strategy, int64_t batch,
                     int64_t microBatches, const std::string &schedule) {
  TwinPlan plan;
  plan.batch = batch;
  plan.microBatches = microBatches;
  plan.schedule = schedule;
  plan.stageLayers = evenPartition(model.modelLayers(), stages);
  plan.strategies.assign(size_t(model.modelLayers()), strategy);
  plan.devicesPerStage = strategy.devices();
  return plan;
}

const TwinRun &References::of(const TwinModel &model,
                              const TwinOptions &options, int64_t batch) {
  std::string key;
  llvm::raw_string_ostream stream(key);
  stream << model.config() << model.separatesDocuments << model.adapters
         << model.goesBelowAdapters << ' ' << options.dtype << options.optimizer
         << options.dropout << options.clip << ' ' << batch << ' '
         << options.eps << ' ' << options.steps << ' ' << options.labelSmoothing
         << ' ' << options.zLoss;
  auto [entry, inserted] = runs.try_emplace(key);
  if (inserted)
    entry->second = runTwin(context, model, singleRank(model, batch), options);
  return entry->second;
}

std::vector<std::string> optimizersInTurn(size_t number) {
  if (std::getenv("GALVATRON_LONG"))
    return {"adamw", "sgd"};
  return {number % 3 == 2 ? "sgd" : "adamw"};
}

SpaceOptions allStrategies() {
  SpaceOptions space;
  space.paradigms.insert(Paradigm::ZDP);
  space.paradigms.insert(*ParadigmRegistry::find("tsp"));
  return space;
}

TwinPlan randomPlan(const TwinModel &model, std::mt19937 &generator) {
  auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(generator);
  };
  TwinPlan plan;
  int64_t layers = model.modelLayers();
  int64_t world = int64_t(1) << pick(1, 3);
  int64_t stages = int64_t(1) << pick(0, 3);
  while (stages > world)
    stages /= 2;
  plan.devicesPerStage = world / stages;
  plan.schedule = pick(0, 1) ? "1f1b" : "gpipe";
  plan.batch = 16;
  plan.stageLayers.assign(size_t(stages), 1);
  for (int64_t left = layers - stages; left > 0; --left)
    ++plan.stageLayers[size_t(pick(0, stages - 1))];
  SpaceOptions space = allStrategies();
  space.keepDpSdp = true;
  std::vector<Strategy> all = enumerateStrategies(plan.devicesPerStage, space);
  int64_t shards = 1;
  for (int64_t i = 0; i < layers; ++i) {
    plan.strategies.push_back(all[size_t(pick(0, int64_t(all.size()) - 1))]);
    // Samples divide into blocks of rows, whatever the positions.
    const Strategy &strategy = plan.strategies.back();
    int64_t blocks = strategy.sampleShards();
    for (const Level &axis : strategy.axes())
      if (axis.paradigm->resting == RestingState::Rows)
        blocks *= axis.degree;
    shards = std::max(shards, blocks);
  }
  plan.microBatches = int64_t(1) << pick(0, 4);
  while (plan.batch / plan.microBatches % shards != 0)
    plan.microBatches /= 2;
  return plan;
}

void mixHomes(TwinPlan &plan, std::mt19937 &generator, bool activations) {
  plan.offload = Offload::Layers;
  plan.offload.activations = activations;
  auto give = [&](Strategy &strategy, unsigned bits) {
    strategy =
        strategy.withHome({bool(bits & 1), activations && bool(bits & 2)});
  };
  for (Strategy &strategy : plan.strategies)
    give(strategy, generator() % 4);
  give(plan.strategies[generator() % plan.strategies.size()], 3);
  Strategy &last = plan.strategies.back();
  last = last.withHome(
      {plan.strategies.front().home().states, last.home().activations});
}

void loadTwinDialects(MLIRContext &context) {
  loadImportDialects(context);
  context.loadDialect<mlir::grt::GRTDialect>();
}

static void annotatePlan(ModuleOp module, const TwinPlan &plan,
                         const TwinOptions &options) {
  MLIRContext *context = module.getContext();
  Builder builder(context);
  auto model = mlir::galvatron::getModel(module);
  size_t layer = 0, stage = 0;
  int64_t left = plan.stageLayers[0];
  for (mlir::galvatron::LayerOp op : model.getLayers()) {
    while (left == 0)
      left = plan.stageLayers[++stage];
    --left;
    op.setStrategyAttr(
        mlir::galvatron::StrategyAttr::get(context, plan.strategies[layer++]));
    op.setStageAttr(builder.getI64IntegerAttr(int64_t(stage)));
  }
  std::string text;
  llvm::raw_string_ostream stream(text);
  stream << "#galvatron.plan<batch = " << plan.batch
         << ", micro_batches = " << plan.microBatches << ", schedule = \""
         << plan.schedule << "\", pipeline_degree = " << plan.stages();
  if (!plan.devices.empty()) {
    stream << ", devices = [";
    llvm::interleaveComma(plan.devices, stream, [&](auto &stage) {
      stream << "array<i64: ";
      llvm::interleaveComma(stage, stream);
      stream << '>';
    });
    stream << ']';
  }
  if (plan.offload != Offload::Off)
    stream << ", offload = \"" << offloadName(plan.offload) << "\"";
  if (!plan.passTimes.empty()) {
    stream << ", pass_times = [";
    llvm::interleaveComma(plan.passTimes, stream, [&](const PassTimes &times) {
      stream << times.forward << ", " << times.input << ", " << times.weight
             << ", " << times.message;
    });
    stream << ']';
  }
  if (!plan.sums.empty()) {
    stream << ", sums = [";
    llvm::interleaveComma(plan.sums, stream, [&](SumTiming timing) {
      stream << '"' << sumTimingName(timing) << '"';
    });
    stream << ']';
  }
  if (plan.packDevices) {
    std::vector<int64_t> backward;
    int64_t first = 0;
    for (int64_t layers : plan.stageLayers) {
      backward.push_back(first);
      first += layers;
    }
    stream << ", packs = [";
    const std::array lists = {plan.forwardPacks, backward};
    for (const std::vector<int64_t> &packs : lists) {
      stream << "array<i64";
      if (!packs.empty())
        stream << ": ";
      llvm::interleaveComma(packs, stream);
      stream << (&packs == lists.end() - 1 ? ">]" : ">, ");
    }
    if (plan.forwardMicroBatches)
      stream << ", forward_micro_batches = " << plan.forwardMicroBatches;
  }
  stream << ">";
  module->setAttr("galvatron.plan", parseAttribute(text, context));
  text.clear();
  stream << "#galvatron.training<optimizer = \"" << options.optimizer
         << "\", dtype = \"" << options.dtype
         << "\", clip = " << (options.clip ? "true" : "false")
         << (options.clipDelayed ? ", clip_delayed = true" : "")
         << ", dropout = " << (options.dropout ? "true" : "false");
  if (options.labelSmoothing != 0)
    stream << ", label_smoothing = "
           << llvm::format("%e", options.labelSmoothing);
  if (options.zLoss != 0)
    stream << ", z_loss = " << llvm::format("%e", options.zLoss);
  stream << ">";
  module->setAttr("galvatron.training", parseAttribute(text, context));
  text.clear();
  stream << "name: twin\n"
            "device-types:\n"
            "  - {name: core, backend: "
         << options.backend
         << ", memory: 1GiB,"
            " flops: {f32: 50GFLOPS, f64: 8GFLOPS, bf16: 100GFLOPS},"
            " memory-bandwidth: 9GB/s}\n"
            "nodes:\n"
            "  - {count: 1, device-type: core, devices: "
         << plan.world() << ", link: {bandwidth: 3GB/s, latency: 15us}}\n";
  auto cluster = Cluster::parse(text, "twin.yaml");
  if (!cluster)
    llvm::report_fatal_error(cluster.takeError());
  module->setAttr("galvatron.cluster",
                  mlir::galvatron::ClusterAttr::get(context, *cluster));
}

/// The model as a module.
static llvm::Expected<OwningOpRef<ModuleOp>>
readModel(const TwinModel &model, const ImportOptions &import,
          MLIRContext &context) {
  if (model.text.empty())
    return importHuggingFaceConfig(model.config(), "config.json", import,
                                   context);
  std::string text = model.text;
  auto replace = [&](llvm::StringRef from, llvm::StringRef to) {
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos;)
      text.replace(at, from.size(), to);
  };
  replace("ELT", import.dtype);
  replace("STAT", import.dtype == "f64" ? "f64" : "f32");
  auto module = parseSourceString<ModuleOp>(text, &context);
  if (!module)
    return makeError("the model's text cannot be parsed");
  return module;
}

/// Gives inputs gradients that nothing trained has made.
static void thawInputs(ModuleOp module) {
  SymbolTable symbols(module);
  for (auto model : module.getOps<mlir::galvatron::ModelOp>())
    for (mlir::galvatron::LayerOp layer : model.getLayers()) {
      auto body = symbols.lookup<func::FuncOp>(*layer.getCallee());
      for (unsigned i = 0; i < layer.getInputs().size(); ++i)
        body.removeArgAttr(i, nn::kFrozenAttr);
    }
}

std::string compileTwin(MLIRContext &context, const TwinModel &model,
                        const TwinPlan &plan, const TwinOptions &options,
                        std::string &programBytes) {
  std::string error;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    if (diagnostic.getSeverity() == DiagnosticSeverity::Error && error.empty())
      error = diagnostic.str();
    return success();
  });
  ImportOptions import;
  import.dtype = options.dtype;
  if (model.text.empty() && model.hasDecoder())
    import.decoderSeqLen = model.writtenPositions();
  TwinModel used = model;
  if (!options.dropout)
    used.dropout = 0;
  auto module = readModel(used, import, context);
  if (!module)
    return llvm::toString(module.takeError());
  if (!*module)
    return error;

  auto run = [&](llvm::function_ref<void(PassManager &)> add) {
    PassManager pm(&context);
    add(pm);
    return succeeded(pm.run(**module));
  };
  if (model.splitLayers && !run([](PassManager &pm) {
        pm.addPass(mlir::galvatron::createGalvatronSplitBlocks());
      }))
    return error;
  if (!model.adapters.empty() && !run([&](PassManager &pm) {
        mlir::galvatron::GalvatronAddAdaptersOptions adapters;
        adapters.rank = 3;
        adapters.alpha = 4.5;
        adapters.layers = model.adapters;
        pm.addPass(mlir::galvatron::createGalvatronAddAdapters(adapters));
      }))
    return error;
  if (model.goesBelowAdapters)
    thawInputs(**module);
  if (model.separatesDocuments && !run([](PassManager &pm) {
        pm.addPass(mlir::galvatron::createGalvatronSeparateDocuments());
      }))
    return error;
  if (model.keptRows && !run([&](PassManager &pm) {
        mlir::galvatron::GalvatronKeepKeysOptions kept;
        kept.rows = model.keptRows;
        kept.length = model.writtenPositions();
        pm.addPass(mlir::galvatron::createGalvatronKeepKeys(kept));
      }))
    return error;
  const bool hasTerms = options.labelSmoothing != 0 || options.zLoss != 0;
  if (hasTerms && !run([&](PassManager &pm) {
        mlir::galvatron::GalvatronApplyTrainingOptions training;
        training.dtype = options.dtype;
        training.labelSmoothing = options.labelSmoothing;
        training.zLoss = options.zLoss;
        pm.addPass(mlir::galvatron::createGalvatronApplyTraining(training));
      }))
    return error;
  annotatePlan(**module, plan, options);
  if (options.changePlan)
    options.changePlan(**module);
  bool ok = run([](PassManager &pm) {
    pm.addPass(mlir::galvatron::createGalvatronSplitStages());
    mlir::grt::addLayerSteps(pm, mlir::galvatron::Phase::Differentiate);
    mlir::grt::addLayerSteps(pm, mlir::galvatron::Phase::Partition);
  });
  if (ok && options.corruptBodies)
    options.corruptBodies(**module);
  ok = ok && run([](PassManager &pm) {
         mlir::grt::addLayerSteps(pm, mlir::galvatron::Phase::Bufferize);
         pm.addPass(mlir::grt::createScheduleTasks());
         pm.addPass(mlir::grt::createAssignStreams());
         pm.addPass(mlir::grt::createVerifySchedule());
       });
  if (ok && options.corrupt)
    options.corrupt(**module);
  ok = ok && run([&](PassManager &pm) {
         pm.enableVerifier(options.verifyPlaced);
         pm.addPass(mlir::grt::createAllocateArena());
       });
  if (!ok)
    return error.empty() ? "a pass failed without a message" : error;
  if (options.corruptPlaced)
    options.corruptPlaced(**module);

  // Faults are found when the program is loaded or run, so it is not checked
  // before.
  FailureOr<std::string> bytes = mlir::galvatron::buildProgram(**module);
  if (succeeded(bytes))
    programBytes = std::move(*bytes);
  else if (error.empty())
    return "no program was emitted";
  return error;
}

const grt_backend *builtBackend(const std::string &name) {
  std::string error;
  auto library = llvm::sys::DynamicLibrary::getPermanentLibrary(
      (GALVATRON_BACKEND_FOLDER "/" + name).c_str(), &error);
  void *symbol = library.isValid()
                     ? library.getAddressOfSymbol("grt_backend_get")
                     : nullptr;
  return symbol ? reinterpret_cast<decltype(&grt_backend_get)>(symbol)()
                : nullptr;
}

const grt_backend *recordingBackend() {
  static const grt_backend *const table = [] {
    const grt_backend *built = builtBackend("libgrt_recording.so");
    if (!built)
      llvm::report_fatal_error("libgrt_recording.so cannot be loaded");
    return built;
  }();
  return table;
}

namespace {

const std::function<bool(uint32_t, uint32_t)> *keepWait = nullptr;

int32_t waitIfKept(void *state, uint32_t stream, uint32_t event, char *message,
                   size_t capacity) {
  return (*keepWait)(stream, event)
             ? recordingBackend()->device->wait(state, stream, event, message,
                                                capacity)
             : 0;
}

/// The same with waits left out, or another device; one session at a time.
const grt_backend *faultyBackend(const TwinOptions &options) {
  static grt_device device;
  static grt_backend table;
  keepWait = &options.keepWait;
  device = *recordingBackend()->device;
  if (options.keepWait)
    device.wait = waitIfKept;
  if (options.changeDevice)
    options.changeDevice(device);
  table = *recordingBackend();
  table.device = &device;
  return &table;
}

/// A compiled twin in execution; keeps the first error.
class Running {
public:
  Running(MLIRContext &context, const TwinModel &model, const TwinPlan &plan,
          const TwinOptions &options, TwinRun &result)
      : plan(plan), options(options), result(result) {
    std::string bytes;
    result.error = compileTwin(context, model, plan, options, bytes);
    if (!ok())
      return;
    std::shared_ptr<const ::grt::Program> program;
    ::grt::SessionOptions sessionOptions;
    sessionOptions.seed = options.seed;
    sessionOptions.poison = options.poison;
    // All ranks are threads of this process.
    sessionOptions.shareDevices = true;
    sessionOptions.backendFolder = GALVATRON_BACKEND_FOLDER;
    // Ranks are threads, on the one device of the tests' libraries.
    sessionOptions.shareDevices = true;
    if (backendTraits(options.backend).streams)
      sessionOptions.backend =
          options.device               ? options.device
          : !options.emulation.empty() ? builtBackend(options.emulation)
          : options.keepWait || options.changeDevice ? faultyBackend(options)
                                                     : recordingBackend();
    if (!check(::grt::Program::loadMemory(bytes, "twin", program)))
      return;
    if (program->gradientDelay() > 0 || program->updatesJustInTime())
      sessionOptions.onNan = ::grt::OnNan::Late;
    if (!check(::grt::Session::create(program, sessionOptions, session)))
      return;
    ::grt::Hyperparameters &h = session->hyperparameters();
    h.eps = options.eps;
    h.learningRate = options.learningRate;
    h.clipNorm = options.clipNorm;
  }

  bool ok() const { return result.error.empty(); }
  bool check(const ::grt::Status &status) {
    if (!status.ok() && ok())
      result.error = status.message();
    return status.ok();
  }

  void disturb() {
    if (ok())
      check(disturbVectors(*session));
  }
  void step(int64_t step);
  void finish() {
    if (ok() && options.atEnd)
      check(options.atEnd(*session));
    if (ok())
      check(session->parameters(result.parameters));
    if (!ok())
      return;
    result.memory = session->memory();
    result.swaps = session->swaps();
  }

  std::unique_ptr<::grt::Session> session;

private:
  const TwinPlan &plan;
  const TwinOptions &options;
  TwinRun &result;
};

} // namespace

::grt::Status disturbVectors(::grt::Session &session) {
  ::grt::TensorMap initial;
  ::grt::Status status = session.parameters(initial);
  for (auto &[name, tensor] : initial) {
    auto isZero = [](double value) { return value == 0; };
    if (tensor.shape.size() != 1 && !llvm::all_of(tensor.values, isZero))
      continue;
    uint32_t state = uint32_t(llvm::xxh3_64bits(name));
    for (double &value : tensor.values) {
      state = state * 1664525u + 1013904223u;
      value += 0.1 * (double(state >> 8) / double(1 << 24) - 0.5);
    }
    if (status)
      status = session.setParameter(name, tensor.values);
  }
  return status;
}

/// Some values of the counted datum are left out, of one sample more than of
/// another: a mean of means would show.
static std::vector<char> makeValues(const ::grt::Datum &datum, int64_t batch,
                                    int64_t step) {
  std::vector<char> bytes(size_t(batch) * datum.bytesPerSample);
  uint32_t state = uint32_t(llvm::xxh3_64bits(datum.name)) + uint32_t(step);
  int64_t length = datum.elements();
  uint64_t width = datum.bytesPerSample / uint64_t(length);
  for (int64_t i = 0; i < batch * length; ++i) {
    char *to = &bytes[size_t(i) * width];
    state = state * 1664525u + 1013904223u;
    if (!datum.below) {
      // Of so few digits that every element type has it.
      double value = double(int32_t((state >> 8) % 129) - 64) / 64;
      auto single = float(value);
      if (datum.type == GRT_F64)
        std::memcpy(to, &value, sizeof(value));
      else if (datum.type == GRT_F32)
        std::memcpy(to, &single, sizeof(single));
      else // bf16: the leading half
        std::memcpy(to, reinterpret_cast<const char *>(&single) + width, width);
      continue;
    }
    auto value = int32_t((state >> 8) % uint32_t(datum.below));
    int64_t sample = i / length, position = i % length;
    if (datum.kind == "document_starts") {
      // Some positions begin a document, and the others have the one before's.
      value = int32_t(position);
      if (position > 0 && (state >> 8) % 3 != 0)
        std::memcpy(&value, to - width, sizeof(value));
    }
    if (datum.counted && (length > 4 ? position >= length - sample % 5
                                     : (sample + position) % 5 == 3))
      value = -1;
    std::memcpy(to, &value, sizeof(value));
  }
  return bytes;
}

::grt::DataBatch twinBatch(const ::grt::Program &program, int64_t batch,
                           int64_t step) {
  ::grt::DataBatch values;
  for (const ::grt::Datum &datum : program.data())
    values.push_back(makeValues(datum, batch, step));
  return values;
}

/// One step, counted from 0.
void Running::step(int64_t step) {
  auto batchOf = [&](int64_t number) {
    auto make = options.makeBatch ? options.makeBatch : twinBatch;
    return make(session->program(), plan.batch, options.sameBatch ? 0 : number);
  };
  if (!ok())
    return;
  bool late = session->program().gradientDelay() > 0;
  bool goesOn = late && step + 1 < options.steps &&
                !(options.drainsBehind && options.drainsBehind(step));
  ::grt::StepResult out;
  if ((!session->hasBegun() && !check(session->setBatch(batchOf(step)))) ||
      (goesOn && !check(session->setNextBatch(batchOf(step + 1)))) ||
      !check(session->step(out)))
    return;
  result.losses.push_back(out.loss);
  if (options.zLoss != 0)
    result.zLosses.push_back(out.zLoss);
  if (!late)
    result.norms.push_back(out.gradientNorm);
  if (step != 0)
    return;
  if (!session->program().updatesOnDevice()) {
    check(session->gradients(result.gradients));
    return;
  }
  // Those of packs that are updated on the device are there no more, but behind
  // the first step the first moment is what was added of them.
  ::grt::TensorMap states;
  check(session->optimizerState(states));
  for (auto &[name, tensor] : states) {
    llvm::StringRef parameter = name;
    if (!parameter.consume_back(".m"))
      continue;
    for (double &value : tensor.values)
      value /= 1 - session->hyperparameters().beta1;
    result.gradients[parameter.str()] = std::move(tensor);
  }
}

TwinRun runTwin(MLIRContext &context, const TwinModel &model,
                const TwinPlan &plan, const TwinOptions &options) {
  TwinRun result;
  Running run(context, model, plan, options, result);
  run.disturb();
  for (int64_t step = 0; step < options.steps; ++step)
    run.step(step);
  run.finish();
  return result;
}

TwinRun runResumedTwin(MLIRContext &context, const TwinModel &model,
                       const TwinPlan &plan, const TwinPlan &resumed,
                       int64_t before, const std::string &folder,
                       const TwinOptions &options) {
  TwinRun result;
  std::unique_ptr<::grt::CheckpointFolder> checkpoints;
  {
    Running run(context, model, plan, options, result);
    run.disturb();
    for (int64_t step = 0; step < before; ++step)
      run.step(step);
    ::grt::TrainingState state;
    state.step = uint64_t(before);
    if (!run.ok() ||
        !run.check(::grt::CheckpointFolder::open(folder, {}, checkpoints)) ||
        !run.check(run.session->writeCheckpoint(*checkpoints, state)))
      return result;
  }
  Running run(context, model, resumed, options, result);
  if (!run.ok() || !run.check(run.session->resume(*checkpoints->newest())))
    return result;
  for (int64_t step = before; step < options.steps; ++step)
    run.step(step);
  run.finish();
  return result;
}

double tensorDistance(const std::vector<double> &a,
                      const std::vector<double> &b, double floor) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    double d = (i < a.size() ? a[i] : NAN) - b[i];
    difference += d * d;
    norm += b[i] * b[i];
  }
  difference = std::sqrt(difference);
  norm = std::sqrt(norm);
  if (std::isnan(difference))
    return INFINITY;
  if (norm < floor)
    return difference <= floor ? 0 : INFINITY;
  return norm > 0 ? difference / norm : (difference > 0 ? INFINITY : 0);
}

double largestDistance(const ::grt::TensorMap &run,
                       const ::grt::TensorMap &reference, std::string &worst,
                       double floorShare) {
  double total = 0;
  for (const auto &[name, tensor] : reference)
    for (double value : tensor.values)
      total += value * value;
  double floor = floorShare * std::sqrt(total);
  double largest = 0;
  auto judge = [&](const std::string &name, const std::vector<double> &a,
                   const std::vector<double> &b) {
    double distance = tensorDistance(a, b, floor);
    if (distance > largest) {
      largest = distance;
      worst = name;
    }
  };
  for (const auto &[name, tensor] : reference) {
    auto found = run.find(name);
    if (found == run.end() ||
        found->second.values.size() != tensor.values.size()) {
      worst = name;
      return INFINITY;
    }
    const std::vector<double> &a = found->second.values, &b = tensor.values;
    if (name.find("c_attn") == std::string::npos) {
      judge(name, a, b);
      continue;
    }
    // Queries, keys and values are three tensors that share a name.
    size_t columns = size_t(tensor.shape.back()), third = columns / 3;
    for (size_t part = 0; part < 3; ++part) {
      std::vector<double> pa, pb;
      for (size_t row = 0; row < b.size() / columns; ++row)
        for (size_t c = part * third; c < (part + 1) * third; ++c) {
          pa.push_back(a[row * columns + c]);
          pb.push_back(b[row * columns + c]);
        }
      judge(name + "[" + "qkv"[part] + "]", pa, pb);
    }
  }
  if (run.size() != reference.size()) {
    worst = "the number of tensors";
    return INFINITY;
  }
  return largest;
}

Bounds getBounds(const std::string &dtype, const std::string &optimizer) {
  if (dtype == "f64")
    return {1e-11, 1e-11, 1e-11};
  if (dtype == "bf16")
    return {5e-2, 2e-3, optimizer == "sgd" ? 5e-3 : 3e-2, 2e-3};
  return {1e-5, 1e-5, optimizer == "sgd" ? 1e-5 : 2e-5};
}

std::string compareRuns(const TwinRun &run, const TwinRun &reference,
                        const Bounds &bounds) {
  std::string text, worst;
  llvm::raw_string_ostream stream(text);
  double distance = largestDistance(run.gradients, reference.gradients, worst,
                                    bounds.floorShare);
  if (!(distance <= bounds.gradients))
    stream << "gradient of '" << worst << "' differs by " << distance << "\n";
  for (size_t i = 0; i < reference.zLosses.size(); ++i)
    if (double found = i < run.zLosses.size() ? run.zLosses[i] : NAN;
        !(std::abs(found / reference.zLosses[i] - 1) <= bounds.losses))
      stream << "z-loss of step " << i + 1 << " is " << found << ", expected "
             << reference.zLosses[i] << "\n";
  for (size_t i = 0; i < reference.losses.size(); ++i) {
    double loss = std::abs(run.losses[i] / reference.losses[i] - 1);
    if (!(loss <= bounds.losses))
      stream << "loss of step " << i + 1 << " differs by " << loss << "\n";
    double norm = reference.norms.empty()
                      ? 0
                      : std::abs(run.norms[i] / reference.norms[i] - 1);
    if (!(norm <= bounds.gradients))
      stream << "gradient norm of step " << i + 1 << " differs by " << norm
             << "\n";
  }
  distance = largestDistance(run.parameters, reference.parameters, worst, 0);
  if (!(distance <= bounds.parameters))
    stream << "parameter '" << worst << "' differs by " << distance << "\n";
  return text;
}

std::string checkMemory(const TwinRun &run, uint64_t reserved) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  for (const ::grt::RankMemory &rank : run.memory) {
    uint64_t planned = rank.plannedPeakBytes, measured = rank.measuredPeakBytes;
    if (measured > planned)
      stream << "rank " << rank.rank << " (" << rank.outsideArenaBytes
             << " outside the arena) touched " << measured
             << " bytes, more than the planned " << planned << "\n";
    // Of small arenas, granules of the window and rounding are a larger share.
    if (double(planned) - double(reserved) >
        std::max(1.05 * double(measured), double(measured) + 128.0 * 1024))
      stream << "rank " << rank.rank << " planned " << planned
             << " bytes but touched only " << measured << "\n";
  }
  return text;
}

} // namespace galvatron::test
