//===- ToolOptions.cpp - Command line of the tools ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Pipelines/ToolOptions.h"

#include "galvatron/Cluster/Backend.h"
#include "galvatron/Dialect/Galvatron/Transforms/PlanAttributes.h"
#include "galvatron/Planner/Explain.h"
#include "galvatron/Schedule/Schedule.h"
#include "galvatron/Strategy/Dtype.h"
#include "galvatron/Strategy/Optimizer.h"
#include "galvatron/Support/CommandLine.h"
#include "galvatron/Support/Json.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/raw_ostream.h"

using namespace galvatron;
namespace cl = llvm::cl;
namespace ir = mlir::galvatron;

/// Steps of search that --search-limit counts as one.
static constexpr int64_t kStepsOfLimit = 1'000'000;

//===----------------------------------------------------------------------===//
// ModelOptions
//===----------------------------------------------------------------------===//

ModelOptions::ModelOptions(Tool &tool)
    : model(cl::Positional, cl::desc("MODEL"), cl::cat(tool.category())),
      seqLen("seq-len",
             cl::desc("tokens of a sample; as many as the model has positions "
                      "if not given"),
             cl::value_desc("N"), cl::init(0), cl::cat(tool.category())),
      decoderSeqLen("decoder-seq-len",
                    cl::desc("tokens of a sample that a decoder reads; as many "
                             "as its encoder unless given"),
                    cl::value_desc("N"), cl::init(0), cl::cat(tool.category())),
      ignoreField("ignore-field",
                  cl::desc("pass a field of a config.json that its family does "
                           "not read; may be repeated"),
                  cl::value_desc("NAME"), cl::cat(tool.category())),
      part("part",
           cl::desc("what of a model for images and text to take: text "
                    "(default)"),
           cl::value_desc("NAME"), cl::cat(tool.category())),
      splitBlocks("split-blocks",
                  cl::desc("make layers of the two parts of a block, attention "
                           "and feed-forward, each with its own strategy"),
                  cl::cat(tool.category())) {}

llvm::Error ModelOptions::apply(mlir::ModuleOp module) const {
  if (!splitBlocks)
    return llvm::Error::success();
  llvm::Error error = galvatron::splitBlocks(module);
  return error ? makeError("option --split-blocks: " +
                           llvm::toString(std::move(error)))
               : llvm::Error::success();
}

llvm::Expected<ImportOptions> ModelOptions::importOptions() const {
  for (const cl::opt<int64_t> *length : {&seqLen, &decoderSeqLen})
    if (length->getNumOccurrences() && *length < 1)
      return makeError("option --" + length->ArgStr +
                       ": expected at least 1, found " +
                       llvm::Twine(int64_t(*length)));
  if (part.getNumOccurrences() && part != "text")
    return makeError("option --part: expected 'text', the only part that can "
                     "be taken, found '" +
                     part + "'");
  ImportOptions options;
  options.namesPart = part.getNumOccurrences() > 0;
  options.seqLen = seqLen;
  options.decoderSeqLen = decoderSeqLen;
  for (const std::string &name : ignoreField) {
    if (name.empty())
      return makeError("option --ignore-field: expected the name of a field");
    if (!llvm::is_contained(options.ignoredFields, name))
      options.ignoredFields.push_back(name);
  }
  return options;
}

//===----------------------------------------------------------------------===//
// PlanOptions
//===----------------------------------------------------------------------===//

/// Values as help lists them, and completions take them from there.
static std::string valuesOf(llvm::ArrayRef<std::vector<std::string>> lists) {
  std::string values;
  for (const std::vector<std::string> &list : lists)
    for (const std::string &value : list)
      values += (values.empty() ? "" : "|") + value;
  return values;
}

/// Those that --schedule can force; the ones of packs are --space's.
static std::vector<std::string> forcedSchedules() {
  std::vector<std::string> names;
  for (const auto &schedule : ScheduleRegistry::get().all())
    if (!schedule->runsPacks())
      names.push_back(schedule->name().str());
  return names;
}

PlanOptions::PlanOptions(Tool &tool)
    : spaceNames(valuesOf({plannerSpaces(), baselineSpaces()})),
      scheduleNames(
          valuesOf({forcedSchedules(), std::vector<std::string>{"any"}})),
      spaceHelp("search space (default: " + PlannerOptions().space + "); " +
                llvm::join(baselineSpaces(), ", ") +
                " are searched in their own way"),
      cluster("cluster", cl::desc("built-in cluster or cluster file"),
              cl::value_desc("FILE|NAME"), cl::cat(tool.category())),
      memory("memory",
             cl::desc("memory of every device, e.g. 16GiB; the cluster's if "
                      "not given"),
             cl::value_desc("SIZE"), cl::cat(tool.category())),
      planFile("plan",
               cl::desc("obey the plan of a plan JSON instead of searching"),
               cl::value_desc("FILE"), cl::cat(tool.category())),
      space("space", cl::desc(spaceHelp), cl::value_desc(spaceNames),
            cl::cat(tool.category())),
      schedule("schedule",
               cl::desc("force a schedule (default: 1f1b); any: the fastest of "
                        "those that change no mathematics"),
               cl::value_desc(scheduleNames), cl::cat(tool.category())),
      strategy("strategy", cl::desc("force one strategy, e.g. sdp4.ckpt"),
               cl::value_desc("S"), cl::cat(tool.category())),
      layers("layers",
             cl::desc("give some layers a strategy, search the others: "
                      "'h.1:tp2.ckpt;h.5-h.9:sdp2'"),
             cl::value_desc("PINS"), cl::cat(tool.category())),
      partition("partition",
                cl::desc("force the layers of every stage, e.g. 7,6,6,7"),
                cl::value_desc("N,.."), cl::cat(tool.category())),
      microBatchRule("micro-batch-rule",
                     cl::desc("search: every divisor of the batch; paper: one "
                              "number per pipeline degree"),
                     cl::value_desc("search|paper"), cl::init("search"),
                     cl::cat(tool.category())),
      optimizerTime("optimizer-time",
                    cl::desc("count the time of updates and norms: on, or off "
                             "as in the paper"),
                    cl::value_desc("on|off"), cl::init("on"),
                    cl::cat(tool.category())),
      objective("objective",
                cl::desc("minimise what the simulator says that a step takes, "
                         "or Eq. 9"),
                cl::value_desc("executed|paper"), cl::init("executed"),
                cl::cat(tool.category())),
      placement(
          "placement",
          cl::desc("how --space=amp places its ranks (default: heuristic)"),
          cl::value_desc("heuristic|anneal"), cl::cat(tool.category())),
      groups("groups",
             cl::desc("devices of the stages: equal, or any for unequal groups "
                      "in any order (the default of --space=bmw where nodes "
                      "differ)"),
             cl::value_desc("equal|any"), cl::cat(tool.category())),
      devices("devices",
              cl::desc("whether all devices have a part in the plan, or any "
                       "number of them, if that is executed faster (default: "
                       "all)"),
              cl::value_desc("all|any"), cl::cat(tool.category())),
      ringLink(
          "ring-link",
          cl::desc("what a ring of --space=amp has: the slowest link "
                   "between its neighbours (the default), or the lowest in "
                   "the group"),
          cl::value_desc("neighbours|lowest"), cl::cat(tool.category())),
      paradigms(
          "paradigms",
          cl::desc("what strategies are made of, some of "
                   "dp,zdp,sdp,tp,tsp,cp,scp,zcp,up,sup,ring,sring (default: "
                   "dp,zdp,sdp,tp, where samples are long all; "
                   "dp,sdp,tp under --objective=paper)"),
          cl::value_desc("LIST"), cl::cat(tool.category())),
      offload(
          "offload",
          cl::desc("states with their home on the host: off (default), "
                   "layers: of those layers for which that is best, "
                   "optimizer, all; behind any of these ',activations': "
                   "what forward keeps, too (alone: of some layers), behind "
                   "the latter two ',just-in-time': a chunk is updated "
                   "behind its last backward pass; behind all ',prefetch': "
                   "parameters come a chunk ahead; of packs, behind "
                   "all,just-in-time ',update-on-device': optimizer state "
                   "comes to the devices for it; or any: the plan that is "
                   "executed fastest among these"),
          cl::value_desc("STATES"), cl::cat(tool.category())),
      hostMemory("host-memory",
                 cl::desc("memory of every node's host for what --offload "
                          "leaves there, e.g. 64GiB; no bound if not given"),
                 cl::value_desc("SIZE"), cl::cat(tool.category())),
      keep("keep",
           cl::desc("values of a layer that all layers which have them keep, "
                    "beside --strategy, or may keep, in a search, in the "
                    "model's words or Megatron's names of modules; with '-' "
                    "in front all that is needed but these"),
           cl::value_desc("VALUE,.."), cl::cat(tool.category())),
      batch("batch", cl::desc("samples of a step; searched if not given"),
            cl::value_desc("N"), cl::init(0), cl::cat(tool.category())),
      maxBatch("max-batch", cl::desc("largest batch searched"),
               cl::value_desc("N"), cl::init(2048), cl::cat(tool.category())),
      batchStep("batch-step", cl::desc("step of the batches searched"),
                cl::value_desc("N"), cl::init(8), cl::cat(tool.category())),
      pipelineDegree("pipeline-degree", cl::desc("force the number of stages"),
                     cl::value_desc("N"), cl::init(0),
                     cl::cat(tool.category())),
      microBatches("micro-batches", cl::desc("force the micro-batches"),
                   cl::value_desc("N"), cl::init(0), cl::cat(tool.category())),
      chunks("chunks",
             cl::desc("chunks of layers of every stage, where the schedule has "
                      "several (default: 2)"),
             cl::value_desc("V"), cl::cat(tool.category())),
      placementSeed("placement-seed", cl::desc("seed of --placement=anneal"),
                    cl::value_desc("N"), cl::init(1), cl::cat(tool.category())),
      gap("gap",
          cl::desc("accept a plan proven within so many percent; 0: only the "
                   "best"),
          cl::value_desc("PERCENT"), cl::init(0), cl::cat(tool.category())),
      timeLimit("time-limit",
                cl::desc("stop with the best plan so far; no limit if not "
                         "given"),
                cl::value_desc("SECONDS"), cl::init(0),
                cl::cat(tool.category())),
      searchLimit("search-limit",
                  cl::desc("give a batch up after so many million steps of "
                           "search, with the gap proven by then; 0: never"),
                  cl::value_desc("N"),
                  cl::init(kDefaultMostSteps / kStepsOfLimit),
                  cl::cat(tool.category())),
      threads("threads",
              cl::desc("threads of the planner, which change no plan; 0: one "
                       "for each processor"),
              cl::value_desc("N"), cl::init(0), cl::cat(tool.category())),
      keepDpSdp("keep-dp-sdp", cl::desc("keep strategies with both DP and SDP"),
                cl::cat(tool.category())),
      blocksOfBlocks("blocks-of-blocks",
                     cl::desc("search strategies with two levels that cut "
                              "rows, as cp2.tsp2, where both are searched"),
                     cl::cat(tool.category())),
      selective("selective",
                cl::desc("search strategies that keep a part of a layer's "
                         "values, .ckpt1 to .ckpt4, beside all and none "
                         "(--strategy and --layers take points to .ckpt9): the "
                         "default in the spaces bmw and base under "
                         "--objective=executed, and an error elsewhere"),
                cl::cat(tool.category())),
      noSelective("no-selective",
                  cl::desc("layers keep all of their values or none, as in the "
                           "paper"),
                  cl::cat(tool.category())),
      allowDelayed("allow-delayed",
                   cl::desc("--schedule=any looks at 2bw too, whose gradients "
                            "are one batch late"),
                   cl::cat(tool.category())),
      decisions("decisions", cl::desc("print what the planner chose and why"),
                cl::cat(tool.category())),
      optimizer("optimizer", cl::desc("the optimizer"),
                cl::value_desc("adamw|adam|sgd"), cl::init("adamw"),
                cl::cat(tool.category())),
      dtype("dtype", cl::desc("element type; f16 and tf32 can be planned"),
            cl::value_desc("f32|bf16|f64|f16|tf32"), cl::init("f32"),
            cl::cat(tool.category())),
      clip("clip",
           cl::desc("clipping by the global norm; delayed: by the norm of the "
                    "batch before (schedule 2bw)"),
           cl::value_desc("on|off|delayed"), cl::init("on"),
           cl::cat(tool.category())),
      dropout("dropout", cl::desc("dropout as the model says, or off"),
              cl::value_desc("model|off"), cl::init("model"),
              cl::cat(tool.category())),
      decayAll("decay-all", cl::desc("weight decay on vectors too"),
               cl::cat(tool.category())),
      labelSmoothing(
          "label-smoothing",
          cl::desc("part of a label's weight that all classes share"),
          cl::value_desc("0.1"), cl::init(0), cl::cat(tool.category())),
      zLoss("z-loss",
            cl::desc("factor of the mean squared log-sum-exp of the logits"),
            cl::value_desc("1e-4"), cl::init(0), cl::cat(tool.category())),
      adapters("adapters",
               cl::desc("trains low-rank adapters of these modules ('*' "
                        "stands for any name) and freezes all else"),
               cl::value_desc("rank=R,alpha=A,layers='NAME;..'|from=DIR"),
               cl::cat(tool.category())),
      documents("documents",
                cl::desc("attention: it stays inside the documents of a "
                         "sample, where positions begin anew"),
                cl::value_desc("attention"), cl::cat(tool.category())),
      documentLength("document-length",
                     cl::desc("with --documents=attention, the mean length of "
                              "documents in tokens, each token counting once, "
                              "which attention is priced by; a sample's "
                              "without"),
                     cl::value_desc("N"), cl::cat(tool.category())),
      json("json", cl::desc("write the plan as JSON ('-': standard output)"),
           cl::value_desc("FILE"), cl::ValueOptional,
           cl::cat(tool.category())) {}

void PlanOptions::addInputs(ToolFiles &files) const {
  files.reads("--cluster", cluster);
  files.reads("--plan", planFile);
}

llvm::Expected<std::optional<Plan>> PlanOptions::givenPlan() const {
  if (!planFile.getNumOccurrences())
    return std::optional<Plan>();
  if (std::string search = searchOption(); !search.empty())
    return makeError("options --plan and " + search + ": expected one of them");
  llvm::Expected<Plan> plan = readPlanFile(planFile);
  if (!plan)
    return plan.takeError();
  return std::optional(std::move(*plan));
}

llvm::Expected<LoadedModel> PlanOptions::load(const ModelOptions &options,
                                              mlir::MLIRContext &context,
                                              bool estimate) const {
  if (options.model.empty())
    return makeError("expected a model: a '.mlir' file, a 'config.json' or a "
                     "layer profile");
  llvm::Expected<ImportOptions> import = options.importOptions();
  if (!import)
    return import.takeError();
  if (llvm::Error error = checkDocuments())
    return error;
  std::string path = modelFile(options.model);
  llvm::Expected<std::string> content = readInput(path);
  if (!content)
    return content.takeError();
  LoadedModel loaded;
  if (llvm::StringRef(*content).ltrim().starts_with("{")) {
    llvm::Expected<llvm::json::Value> value = parseJson(*content, path);
    if (!value)
      return value.takeError();
    if (value->getAsObject()->get("cluster-hash"))
      return makeError(path + ": expected a model, found a plan: --plan=" +
                       path + " beside its model");
    if (value->getAsObject()->getObject("shape"))
      return makeError(path + ": expected a model, found a shape: "
                              "galvatron-plan takes it with --for");
    // A profile lists layers, a configuration describes them.
    bool isConfig = isHuggingFaceConfig(*value);
    bool isProfile = value->getAsObject()->get("layers") && !isConfig;
    bool isEstimated =
        estimate && isConfig && !isImportedFamily(*value->getAsObject());
    if (isProfile && options.ignoreField.getNumOccurrences())
      return makeError("option --ignore-field: expected a configuration, found "
                       "a layer profile");
    if ((isProfile || isEstimated) && options.splitBlocks)
      return makeError("option --split-blocks: expected a model that can be "
                       "imported, found " +
                       llvm::Twine(isProfile ? "a layer profile"
                                             : "one that is planned from an "
                                               "estimate"));
    for (const cl::Option *option : std::initializer_list<const cl::Option *>{
             &adapters, &documents, &documentLength, &labelSmoothing, &zLoss})
      if ((isProfile || isEstimated) && option->getNumOccurrences())
        return makeError("option --" + option->ArgStr +
                         ": expected a model with layers' bodies, found a "
                         "layer profile");
    if (isProfile && options.seqLen.getNumOccurrences())
      return makeError("option --seq-len: a layer profile has its own "
                       "sequence length");
    if ((isProfile || isEstimated) && options.decoderSeqLen.getNumOccurrences())
      return makeError("option --decoder-seq-len: expected the configuration "
                       "of a family with a decoder of its own, found '" +
                       path + "'");
    if (isProfile || isEstimated) {
      llvm::Expected<TrainingOptions> requested = training({});
      if (!requested)
        return requested.takeError();
      if (isEstimated) {
        llvm::Expected<int64_t> width = elementBytes(requested->dtype);
        if (!width)
          return width.takeError();
        llvm::Expected<EstimatedProfile> estimated = estimateHuggingFaceConfig(
            *value->getAsObject(), path, requested->dtype, *width, *import);
        if (!estimated)
          return estimated.takeError();
        // Programs on devices with streams gather a layer ahead.
        if (llvm::Expected<Cluster> devices = Cluster::load(cluster)) {
          if (backendTraits(devices->backend()).streams)
            estimated->profile["gathers-ahead"] = true;
        } else {
          llvm::consumeError(devices.takeError()); // told where it is planned
        }
        value = llvm::json::Value(std::move(estimated->profile));
        loaded.notice = std::move(estimated->notice);
        loaded.notes = std::move(estimated->notes);
        loaded.records = loaded.notes.records();
      }
      auto profile = ProfileLayerModel::fromJson(*value, path, *requested);
      if (!profile)
        return makeError(path + ": " + llvm::toString(profile.takeError()));
      loaded.profile = std::move(*profile);
      return loaded;
    }
  } else if (options.part.getNumOccurrences()) {
    return makeError("option --part: an imported model was read already");
  } else if (options.ignoreField.getNumOccurrences()) {
    return makeError("option --ignore-field: an imported model was read "
                     "already");
  } else if (options.seqLen.getNumOccurrences()) {
    return makeError("option --seq-len: an imported model has its sequence "
                     "length already");
  } else if (options.decoderSeqLen.getNumOccurrences()) {
    return makeError("option --decoder-seq-len: an imported model has its "
                     "sequence lengths already");
  }
  auto module = loadModel(*content, path, *import, context, &loaded.notes);
  if (!module)
    return module.takeError();
  if (llvm::Error error = options.apply(**module))
    return std::move(error);
  loaded.module = std::move(*module);
  auto records = (*loaded.module)
                     ->getAttrOfType<mlir::ArrayAttr>(
                         mlir::galvatron::GalvatronDialect::kNotesAttr);
  if (records)
    for (auto record : records.getAsRange<mlir::StringAttr>())
      loaded.records.push_back(record.str());
  return loaded;
}

llvm::Expected<TrainingOptions>
PlanOptions::training(TrainingOptions base) const {
  auto onOff = [](const cl::opt<std::string> &option, llvm::StringRef on,
                  llvm::StringRef off, bool &value) -> llvm::Error {
    if (option == on || option == off) {
      value = option == on;
      return llvm::Error::success();
    }
    return makeError("option --" + option.ArgStr + ": expected '" + on +
                     "' or '" + off + "', found '" + option + "'");
  };
  if (optimizer.getNumOccurrences())
    base.optimizer = optimizer;
  if (dtype.getNumOccurrences())
    base.dtype = dtype;
  if (clip.getNumOccurrences()) {
    if (clip != "on" && clip != "off" && clip != "delayed")
      return makeError("option --clip: expected 'on', 'off' or 'delayed', "
                       "found '" +
                       clip + "'");
    base.clip = clip != "off";
    base.clipDelayed = clip == "delayed";
  }
  if (dropout.getNumOccurrences())
    if (llvm::Error error = onOff(dropout, "model", "off", base.dropout))
      return error;
  if (decayAll.getNumOccurrences())
    base.decayAll = decayAll;
  if (labelSmoothing.getNumOccurrences())
    base.labelSmoothing = labelSmoothing;
  if (zLoss.getNumOccurrences())
    base.zLoss = zLoss;
  if (std::string wrong = base.wrongLoss(); !wrong.empty())
    return makeError("option --" +
                     (zLoss.getNumOccurrences() && zLoss != 0 &&
                              wrong.find("z-loss") != std::string::npos
                          ? zLoss.ArgStr
                          : labelSmoothing.ArgStr) +
                     ": " + wrong);
  if (!optimizerNamed(base.optimizer))
    return makeError("option --optimizer: expected " + optimizerList() +
                     ", found '" + base.optimizer + "'");
  if (!isPlannedDtype(base.dtype))
    return makeError("option --dtype: expected " + plannedDtypeList() +
                     ", found '" + base.dtype + "'");
  return base;
}

/// Refuses a plan for samples of another length whose layers keep some of their
/// values: these are numbered in bodies of one length.
static llvm::Error checkLength(mlir::ModuleOp module, const Plan &given) {
  ir::ModelOp model = ir::getModel(module);
  const int64_t tokens = model ? model.getSequenceLength() : 0;
  if (tokens == 0 || given.seqLen == 0 || given.seqLen == tokens ||
      llvm::none_of(given.layers, [](const PlanLayer &layer) {
        return layer.kept.has_value();
      }))
    return llvm::Error::success();
  return makeError(
      "option --plan: the plan is for " + llvm::Twine(given.seqLen) +
      " tokens, found " + llvm::Twine(tokens) +
      ": plan again, or use --seq-len=" + llvm::Twine(given.seqLen));
}

llvm::Error PlanOptions::applyTraining(mlir::ModuleOp module, bool keep,
                                       const std::optional<Plan> &given) const {
  if (given)
    if (llvm::Error error = checkLength(module, *given))
      return error;
  if (llvm::Error error = applyAdapters(module, keep))
    return error;
  if (llvm::Error error = applyDocuments(module, keep))
    return error;
  TrainingOptions present = ir::getTrainingOptions(module);
  llvm::Expected<TrainingOptions> requested =
      training(given ? given->training : present);
  if (!requested)
    return requested.takeError();
  if (given && *requested != given->training)
    return makeError("option --plan: the plan was made for other training "
                     "options than the command line's");
  if (*requested == present && ir::getTraining(module))
    return llvm::Error::success();
  if (ir::getTraining(module)) {
    if (keep)
      return makeError("expected the training options that the module was "
                       "planned with, found others: use --replan");
    if (requested->dropout && !present.dropout)
      return makeError("option --dropout: the module has no dropout any more");
  }
  return galvatron::applyTraining(module, *requested);
}

llvm::Error PlanOptions::applyAdapters(mlir::ModuleOp module, bool keep) const {
  if (!adapters.getNumOccurrences())
    return llvm::Error::success();
  llvm::Expected<AdapterOptions> options = AdapterOptions::parse(adapters);
  if (!options)
    return options.takeError();
  if (ir::AdaptersAttr present = ir::getAdapters(module))
    return makeError("option --adapters: the module has adapters of rank " +
                     llvm::Twine(present.getRank()) + " already");
  llvm::StringRef name = space;
  const bool delays = schedule == "2bw" || allowDelayed;
  if (delays || name == "2bw" || name.starts_with("harmony"))
    return makeError("option --adapters: expected a schedule with one version "
                     "of parameters, all of them at one place, found '" +
                     (delays ? llvm::StringRef("2bw") : name) +
                     "', under which all are trained");
  if (keep)
    return makeError("option --adapters: the module was planned without it: "
                     "use --replan");
  if (!options->from.empty())
    options = readAdapterConfig(options->from, module);
  return options ? addAdapters(module, *options) : options.takeError();
}

llvm::Error PlanOptions::checkDocuments() const {
  if (documents.getNumOccurrences() && documents != "attention")
    return makeError("option --documents: expected 'attention', found '" +
                     documents + "'");
  if (documentLength.getNumOccurrences() && documentLength < 1)
    return makeError("option --document-length: expected at least 1, found " +
                     llvm::Twine(documentLength));
  return llvm::Error::success();
}

llvm::Error PlanOptions::applyDocuments(mlir::ModuleOp module,
                                        bool keep) const {
  bool hasLength = documentLength.getNumOccurrences();
  if (!documents.getNumOccurrences())
    return hasLength ? makeError("option --document-length: expected "
                                 "--documents=attention beside it")
                     : llvm::Error::success();
  if (keepsDocumentsApart(module))
    return hasLength ? makeError("option --document-length: the module keeps "
                                 "its documents apart already")
                     : llvm::Error::success();
  if (keep)
    return makeError("option --documents: the module was planned without it: "
                     "use --replan");
  return separateDocuments(module, hasLength ? documentLength : 0);
}

llvm::Expected<Cluster> PlanOptions::resolveCluster(mlir::ModuleOp module,
                                                    bool keep) const {
  ir::ClusterAttr present = module ? ir::getCluster(module) : nullptr;
  if (cluster.empty() && !present)
    return makeError("expected --cluster with a built-in name or a file; "
                     "galvatron-plan --list-clusters tells the names");
  if (optimizerTime != "on" && optimizerTime != "off")
    return makeError("option --optimizer-time: expected 'on' or 'off', found "
                     "'" +
                     optimizerTime + "'");
  llvm::Expected<Cluster> found =
      cluster.empty() ? present.toCluster() : Cluster::load(cluster);
  if (!found)
    return found.takeError();
  if (optimizerTime == "off")
    found = found->withoutOptimizerTime();
  if (!keep || !present ||
      present == ir::ClusterAttr::get(module.getContext(), *found))
    return found;
  if (cluster.empty())
    return makeError("option --optimizer-time: the module was planned with the "
                     "time of updates: use --replan");
  return makeError("option --cluster: expected the module's cluster '" +
                   present.getName() + "', found '" + cluster +
                   "', which differs from it");
}

llvm::Expected<AmpOptions> PlanOptions::ampOptions() const {
  AmpOptions options;
  if (placement.getNumOccurrences()) {
    llvm::Expected<Placement> parsed = parsePlacement(placement);
    if (!parsed)
      return makeError("option --placement: " +
                       llvm::toString(parsed.takeError()));
    options.placement = *parsed;
  }
  if (placementSeed.getNumOccurrences() &&
      options.placement != Placement::Anneal)
    return makeError("option --placement-seed: expected --placement=anneal "
                     "beside it");
  options.seed = static_cast<uint64_t>(placementSeed.getValue());
  if (ringLink.getNumOccurrences()) {
    if (ringLink != "neighbours" && ringLink != "lowest")
      return makeError("option --ring-link: expected 'neighbours' or 'lowest', "
                       "found '" +
                       ringLink + "'");
    options.ring =
        ringLink == "lowest" ? RingLink::Lowest : RingLink::Neighbours;
  }
  return options;
}

llvm::Expected<PlannerOptions> PlanOptions::plannerOptions() const {
  PlannerOptions options;
  auto positive = [](const cl::opt<int64_t> &option) -> llvm::Error {
    if (!option.getNumOccurrences() || option >= 1)
      return llvm::Error::success();
    return makeError("option --" + option.ArgStr +
                     ": expected at least 1, found " + llvm::Twine(option));
  };
  for (const cl::opt<int64_t> *option :
       {&batch, &maxBatch, &batchStep, &pipelineDegree, &microBatches})
    if (llvm::Error error = positive(*option))
      return error;
  for (const cl::opt<int64_t> *option : {&batch, &maxBatch, &batchStep})
    if (*option > kMostBatch)
      return makeError("option --" + option->ArgStr +
                       ": expected at most 2^30 samples, found " +
                       llvm::Twine(*option));
  if (batch.getNumOccurrences() && maxBatch.getNumOccurrences())
    return makeError("options --batch and --max-batch: expected one of them");
  if (space.getNumOccurrences())
    options.space = space;
  if (memory.getNumOccurrences()) {
    llvm::Expected<int64_t> bytes = parseBytes(memory);
    if (!bytes)
      return makeError("option --memory: " + llvm::toString(bytes.takeError()));
    options.memory = *bytes;
  }
  if (batch.getNumOccurrences())
    options.batch = batch;
  options.maxBatch = maxBatch;
  options.batchStep = batchStep;
  if (pipelineDegree.getNumOccurrences())
    options.pipelineDegree = pipelineDegree;
  if (microBatches.getNumOccurrences())
    options.microBatches = microBatches;
  options.chunks = 0;
  if (chunks.getNumOccurrences()) {
    if (chunks < 1)
      return makeError("option --chunks: expected at least 1, found " +
                       llvm::Twine(chunks));
    options.chunks = chunks;
  }
  options.anySchedule = schedule == "any";
  if (schedule.getNumOccurrences() && !options.anySchedule) {
    llvm::Expected<const Schedule *> kind = parseSchedule(schedule);
    if (!kind)
      return makeError("option --schedule: " +
                       llvm::toString(kind.takeError()));
    options.schedule = *kind;
  }
  if (microBatchRule == "paper")
    options.microBatchRule = MicroBatchRule::Paper;
  else if (microBatchRule != "search")
    return makeError("option --micro-batch-rule: expected 'search' or 'paper', "
                     "found '" +
                     microBatchRule + "'");
  llvm::Expected<Objective> minimised = parseObjective(objective);
  if (!minimised)
    return makeError("option --objective: " +
                     llvm::toString(minimised.takeError()));
  options.objective = *minimised;
  if (groups.getNumOccurrences()) {
    llvm::Expected<Groups> parsed = parseGroups(groups);
    if (!parsed)
      return makeError("option --groups: " +
                       llvm::toString(parsed.takeError()));
    options.groups = *parsed;
  }
  if (devices.getNumOccurrences() && devices != "all" && devices != "any")
    return makeError("option --devices: expected 'all' or 'any', found '" +
                     devices + "'");
  options.mayIdle = devices == "any";
  if (strategy.getNumOccurrences()) {
    llvm::Expected<Strategy> parsed = Strategy::parse(strategy);
    if (!parsed)
      return makeError("option --strategy: " +
                       llvm::toString(parsed.takeError()));
    options.strategy = *parsed;
  }
  if (layers.getNumOccurrences()) {
    llvm::Expected<std::vector<LayerPin>> pins = parsePins(layers);
    if (!pins)
      return makeError("option --layers: " + llvm::toString(pins.takeError()));
    options.pins = std::move(*pins);
  }
  if (partition.getNumOccurrences()) {
    llvm::SmallVector<llvm::StringRef> parts;
    llvm::StringRef(partition).split(parts, ',');
    for (llvm::StringRef part : parts) {
      int64_t length = 0;
      if (part.trim().getAsInteger(10, length) || length < 1)
        return makeError("option --partition: expected numbers of layers like "
                         "'7,6,6,7', found '" +
                         partition + "'");
      options.partition.push_back(length);
    }
  }
  for (const cl::opt<double> *option : {&gap, &timeLimit})
    if (!(*option >= 0)) // nor "nan"
      return makeError("option --" + option->ArgStr +
                       ": expected at least 0, found " +
                       llvm::formatv("{0}", option->getValue()).str());
  options.gapPercent = gap;
  constexpr int64_t most = int64_t(1) << 40;
  if (searchLimit < 0 || searchLimit > most)
    return makeError("option --search-limit: expected 0 to 2^40, found " +
                     llvm::Twine(searchLimit));
  options.mostSteps = searchLimit * kStepsOfLimit;
  // Who says how long to search wants no other end.
  if (timeLimit.getNumOccurrences() && !searchLimit.getNumOccurrences())
    options.mostSteps = 0;
  constexpr int64_t mostThreads = 1024;
  if (threads < 0 || threads > mostThreads)
    return makeError("option --threads: expected 0 to " +
                     llvm::Twine(mostThreads) + ", found " +
                     llvm::Twine(threads));
  planningThreads = std::make_unique<Threads>(static_cast<unsigned>(threads));
  options.threads = planningThreads.get();
  options.keepDpSdp = keepDpSdp;
  options.blocksOfBlocks = blocksOfBlocks;
  if (selective && noSelective)
    return makeError("options --selective and --no-selective: expected one of "
                     "them");
  if (selective && options.objective == Objective::Paper)
    return makeError("option --selective: expected --objective=executed, since "
                     "layers of the paper keep all or nothing");
  bool hasPoints = options.space == "bmw" || options.space == "base";
  if (selective && !hasPoints)
    return makeError("option --selective: expected the space 'bmw' or 'base', "
                     "found '" +
                     options.space + "', whose layers recompute nothing");
  options.selective =
      hasPoints && options.objective != Objective::Paper && !noSelective;
  std::vector<Strategy> given;
  if (options.strategy)
    given.push_back(*options.strategy);
  for (const LayerPin &pin : options.pins)
    given.push_back(pin.strategy);
  for (const Strategy &pinned : given)
    if (pinned.point() > 0 &&
        (noSelective || options.objective == Objective::Paper))
      return makeError(
          llvm::Twine("option --") +
          (noSelective ? "no-selective" : "objective=paper") +
          ": expected strategies under which layers keep all or nothing, found "
          "'" +
          pinned.str() + "'");
  if (keep.getNumOccurrences()) {
    llvm::SmallVector<llvm::StringRef> words;
    llvm::StringRef(keep).split(words, ',');
    for (llvm::StringRef word : words) {
      if (word.ltrim('-').empty())
        return makeError("option --keep: expected VALUE,.. of the layers, "
                         "found '" +
                         keep + "'");
      options.keep.push_back(word.str());
    }
    if (!options.strategy && !options.selective)
      return makeError("option --keep: expected --strategy beside it, which "
                       "says how layers that keep these values are spread, or "
                       "a search of that: the space 'bmw' or 'base' under "
                       "--objective=executed, without --no-selective");
  }
  if (allowDelayed && !options.anySchedule)
    return makeError("option --allow-delayed: expected --schedule=any, which "
                     "looks at synchronous schedules alone without it");
  options.allowDelayed = allowDelayed;
  options.anyOffload = offload == "any";
  // Of single layers, without their states.
  if (offload == "activations") {
    options.offload = Offload::Layers;
    options.offload.activations = true;
    options.offloadStates = false;
  } else if (offload.getNumOccurrences() && !options.anyOffload) {
    llvm::Expected<Offload> states = parseOffload(offload);
    if (!states)
      return makeError(
          "option --offload: " + llvm::toString(states.takeError()) +
          "; or 'activations', or 'any'");
    options.offload = *states;
  }
  if (hostMemory.getNumOccurrences()) {
    llvm::Expected<int64_t> bytes = parseBytes(hostMemory);
    if (!bytes)
      return makeError("option --host-memory: " +
                       llvm::toString(bytes.takeError()));
    if (options.offload == Offload::Off && !options.anyOffload)
      return makeError("option --host-memory: nothing has its home on the "
                       "host, expected --offload=layers, optimizer, all or "
                       "any");
    options.hostMemory = *bytes;
  }
  llvm::Expected<std::vector<Paradigm>> allowed = givenParadigms();
  if (!allowed)
    return allowed.takeError();
  options.paradigms = std::move(*allowed);
  options.toolVersion = GALVATRON_VERSION;
  watch.begin(options, timeLimit.getNumOccurrences()
                           ? std::optional<double>(timeLimit)
                           : std::nullopt);
  return options;
}

llvm::Expected<std::vector<Paradigm>> PlanOptions::givenParadigms() const {
  if (!paradigms.getNumOccurrences())
    return std::vector<Paradigm>();
  llvm::Expected<std::vector<Paradigm>> list = parseParadigms(paradigms);
  if (!list)
    return makeError("option --paradigms: " + llvm::toString(list.takeError()));
  return list;
}

void PlanOptions::keepBatch(mlir::ModuleOp module,
                            PlannerOptions &planner) const {
  ir::PlanAttr present = ir::getPlan(module);
  if (!present || batch.getNumOccurrences() || maxBatch.getNumOccurrences() ||
      batchStep.getNumOccurrences())
    return;
  planner.batch = present.getBatch();
  llvm::errs() << "note: planning for batch " << present.getBatch()
               << " as in the plan that is dropped; --max-batch=N searches "
                  "another\n";
}

std::string PlanOptions::searchOption() const {
  const cl::Option *search[] = {&space,        &schedule,      &strategy,
                                &layers,       &partition,     &batch,
                                &maxBatch,     &batchStep,     &pipelineDegree,
                                &microBatches, &chunks,        &microBatchRule,
                                &gap,          &timeLimit,     &searchLimit,
                                &keepDpSdp,    &selective,     &noSelective,
                                &placement,    &ringLink,      &placementSeed,
                                &paradigms,    &offload,       &hostMemory,
                                &allowDelayed, &groups,        &devices,
                                &keep,         &blocksOfBlocks};
  for (const cl::Option *option : search)
    if (option->getNumOccurrences())
      return ("--" + option->ArgStr).str();
  return "";
}

/// How the terminal that standard output (or standard error) may be wants its
/// text.
static TableStyle styleOf(bool standardError) {
  using llvm::sys::Process;
  bool colours = standardError ? Process::StandardErrHasColors()
                               : Process::StandardOutHasColors();
  // https://no-color.org: whoever sets it wants none.
  std::optional<std::string> refused = Process::GetEnv("NO_COLOR");
  return {standardError ? Process::StandardErrColumns()
                        : Process::StandardOutColumns(),
          colours && (!refused || refused->empty())};
}

void galvatron::addRecords(PlanAnswers &answers, const LoadedModel &model) {
  if (!model.records.empty())
    answers.json["notes"] = llvm::json::Array(model.records);
}

int PlanOptions::printResult(const Tool &tool, const PlannerResult &result,
                             bool stdoutTaken, PlanAnswers answers) const {
  watch.end();
  if (decisions)
    for (const std::string &decision : foldDecisions(result.decisions))
      llvm::errs() << decision << "\n";
  bool feasible = result.feasible();
  std::vector<OutputFile> &files = answers.files;
  if (json.getNumOccurrences()) {
    // A bare --json means standard output.
    std::string path = json.empty() ? "-" : std::string(json);
    stdoutTaken |= path == "-";
    llvm::json::Value value =
        feasible ? result.plan().toJson() : result.infeasible().toJson();
    if (feasible && result.idleDevices > 0)
      (*value.getAsObject())["idle-devices"] = result.idleDevices;
    for (auto &answer : answers.json)
      (*value.getAsObject())[answer.first] = std::move(answer.second);
    files.push_back({path, llvm::formatv("{0:2}\n", value).str()});
  }
  // What was found is told before anything can go wrong with files.
  int exitCode = 0;
  if (feasible) {
    llvm::raw_ostream &os = stdoutTaken ? llvm::errs() : llvm::outs();
    result.plan().print(os, styleOf(stdoutTaken));
    if (result.idleDevices > 0)
      os << "  " << result.idleDevices
         << (result.idleDevices == 1 ? " device stays" : " devices stay")
         << " idle: "
         << (result.allDevicesMs
                 ? llvm::formatv("the best plan with all of them takes {0:f3} "
                                 "ms\n",
                                 *result.allDevicesMs)
                       .str()
                 : "no plan has a part for each\n");
    os << answers.text;
    if (llvm::Error error = flushStandardOutput())
      exitCode = tool.report(std::move(error));
    if (watch.interrupted())
      exitCode = tool.report("interrupted: the plan is the best so far, others "
                             "may be faster",
                             kExitInterrupted);
  } else if (watch.interrupted()) {
    exitCode = tool.report("interrupted before a plan was found: " +
                               result.infeasible().str(),
                           kExitInterrupted);
  } else {
    exitCode = tool.report(result.infeasible().str(), kExitFailed);
  }
  for (const OutputFile &file : files)
    if (llvm::Error error = writeOutput(file.path, file.content))
      exitCode = tool.report(std::move(error));
  return exitCode;
}
