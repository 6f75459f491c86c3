//===- galvatron-plan.cpp - Plans a model ---------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Baselines.h"
#include "ForSoftware.h"
#include "Questions.h"

#include "galvatron/Pipelines/MeasureTop.h"
#include "galvatron/Pipelines/SimulateOption.h"
#include "galvatron/Pipelines/ToolOptions.h"
#include "galvatron/Schedule/Schedule.h"
#include "galvatron/Strategy/DecisionTree.h"
#include "galvatron/Support/OutputFile.h"

#include "galvatron/Baselines/Baselines.h"
#include "galvatron/Dialect/Galvatron/Transforms/PlanAttributes.h"
#include "galvatron/Planner/IdleDevices.h"
#include "galvatron/Planner/Knee.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

using namespace galvatron;
namespace cl = llvm::cl;

/// `--list-strategies=N`: the decision trees of N devices, without a model.
static int listAll(const Tool &tool, const PlanOptions &options,
                   int64_t devices) {
  if (devices < 1)
    return tool.report("option --list-strategies: expected at least 1 device, "
                       "found " +
                           std::to_string(devices),
                       kExitInvalid);
  SpaceOptions space;
  space.keepDpSdp = options.keepDpSdp;
  space.blocksOfBlocks = options.blocksOfBlocks;
  llvm::Expected<std::vector<Paradigm>> paradigms = options.givenParadigms();
  if (!paradigms)
    return tool.report(llvm::toString(paradigms.takeError()), kExitInvalid);
  if (!paradigms->empty())
    space.paradigms = ParadigmSet(*paradigms);
  llvm::json::Array list;
  std::string text;
  for (const PipelineStrategy &strategy : listStrategies(devices, space)) {
    list.push_back(strategy.str());
    text += strategy.str() + "\n";
  }
  std::string path = "-";
  if (options.json.getNumOccurrences()) {
    text = llvm::formatv("{0:2}\n", llvm::json::Value(std::move(list))).str();
    if (!options.json.empty())
      path = options.json;
  }
  if (llvm::Error error = writeOutput(path, text))
    return tool.report(std::move(error));
  return 0;
}

/// `--list-clusters`: the device types of built-in clusters.
static int listClusters(const Tool &tool) {
  std::string text =
      "MxTYPE is a node of M devices, NxMxTYPE are N such nodes, as in 8xh100 "
      "and 4x8xa100-80gb.\n--print-cluster=NAME prints one as a file to "
      "edit. Types (nominal figures):\n";
  for (const std::string &type : Cluster::builtinTypes())
    text += llvm::formatv("  {0,-10} {1}\n", type,
                          Cluster::describeBuiltinType(type));
  if (llvm::Error error = writeOutput("-", text))
    return tool.report(std::move(error));
  return 0;
}

/// `--print-cluster=NAME`: a cluster file to edit.
static int printCluster(const Tool &tool, llvm::StringRef name) {
  llvm::Expected<Cluster> cluster = Cluster::load(name);
  if (!cluster)
    return tool.report(cluster.takeError());
  if (llvm::Error error = writeOutput("-", cluster->toYaml()))
    return tool.report(std::move(error));
  return 0;
}

/// Adds to the answers the smaller batch that is almost as fast, if --batch is
/// not given.
static void addKnee(LayerModel &model, const Cluster &cluster,
                    const PlannerOptions &planner, const Plan &plan,
                    PlanAnswers &answers) {
  if (planner.batch)
    return;
  std::optional<Knee> knee = findKnee(model, cluster, planner, plan);
  answers.json["knee"] = knee ? knee->toJson() : llvm::json::Value(nullptr);
  if (knee)
    answers.text = "  " + knee->str(plan) + "\n" + answers.text;
}

/// Adds to the answers the fewer devices that take less time, if the batch
/// divides badly.
static void addFewer(LayerModel &model, const Cluster &cluster,
                     const PlannerOptions &planner, const AmpOptions &amp,
                     const Plan &plan, PlanAnswers &answers) {
  std::optional<FewerDevices> fewer = findFewerDevices(
      cluster, planner, plan,
      [&](const Cluster &smaller, const PlannerOptions &asked) {
        return planSpace(model, smaller, asked, amp);
      });
  if (!fewer)
    return;
  answers.json["fewer-devices"] = fewer->toJson();
  answers.text = "  " + fewer->str(cluster) + "\n" + answers.text;
}

int main(int argc, char **argv) {
  Tool tool("galvatron-plan");
  ModelOptions modelOptions(tool);
  PlanOptions options(tool);
  SimulateOption simulate(tool);
  MeasureTop top(tool);
  cl::opt<std::string> output(
      "o", cl::desc("where to write the planned module, or plans"),
      cl::value_desc("planned.mlir"), cl::cat(tool.category()));
  cl::opt<bool> keepPlan("keep-plan",
                         cl::desc("price the plan that the module has; so it "
                                  "is without --replan, too"),
                         cl::cat(tool.category()));
  cl::opt<bool> replan("replan", cl::desc("drop the plan that the module has"),
                       cl::cat(tool.category()));
  Questions questions(tool);
  ForSoftware software(tool);
  cl::opt<int64_t> list("list-strategies",
                        cl::desc("list the strategies of N devices"),
                        cl::value_desc("N"), cl::cat(tool.category()));
  cl::opt<bool> clusters("list-clusters",
                         cl::desc("list the device types of built-in clusters"),
                         cl::cat(tool.category()));
  cl::opt<std::string> shown("print-cluster",
                             cl::desc("print a cluster as a file to edit"),
                             cl::value_desc("NAME"), cl::cat(tool.category()));
  if (std::optional<int> code = tool.parse(
          argc, argv, "MODEL --cluster=FILE|NAME [options]",
          "Plans a model for a cluster: MODEL is a module, a Hugging "
          "Face config.json or a layer profile"))
    return *code;
  if (list.getNumOccurrences())
    return listAll(tool, options, list);
  if (clusters)
    return listClusters(tool);
  if (shown.getNumOccurrences())
    return printCluster(tool, shown);
  if (software.listed())
    return software.printList(tool);
  if (std::string missing = software.missing(); !missing.empty())
    return tool.report(missing, kExitInvalid);
  if (software.wanted()) {
    std::string asked = questions.askedBesideComparison();
    if (!asked.empty() || !output.empty() || simulate.wanted() || top.wanted())
      return tool.report("option --for: expected no request for " +
                             (asked.empty() ? "a module, a simulation or "
                                              "other plans"
                                            : asked) +
                             ": it is answered for this runtime's plans",
                         kExitInvalid);
    return software.run(tool, modelOptions, options, keepPlan,
                        questions.compared());
  }

  llvm::Expected<PlannerOptions> planner = options.plannerOptions();
  if (!planner)
    return tool.report(planner.takeError());
  llvm::Expected<AmpOptions> amp = options.ampOptions();
  if (!amp)
    return tool.report(amp.takeError());
  if (keepPlan && !options.searchOption().empty())
    return tool.report("options --keep-plan and " + options.searchOption() +
                           ": expected one of them",
                       kExitInvalid);
  if (keepPlan && replan)
    return tool.report("options --keep-plan and --replan: expected one of them",
                       kExitInvalid);
  llvm::Expected<std::optional<Plan>> given = options.givenPlan();
  if (!given)
    return tool.report(given.takeError());
  if (*given && (keepPlan || replan))
    return tool.report("options --plan and " +
                           std::string(keepPlan ? "--keep-plan" : "--replan") +
                           ": expected one of them",
                       kExitInvalid);
  ToolFiles files;
  options.addInputs(files);
  if (llvm::Error error = questions.prepare(files))
    return tool.report(std::move(error));
  if (llvm::Error error = simulate.prepare(files))
    return tool.report(std::move(error));
  if (top.wanted() && (keepPlan || *given))
    return tool.report("option --measure-top: expected a search, found " +
                           std::string(keepPlan ? "--keep-plan" : "--plan"),
                       kExitInvalid);
  if (top.wanted() && isBaseline(planner->space))
    return tool.report("option --measure-top: space '" + planner->space +
                           "' gives one plan",
                       kExitInvalid);
  if (llvm::Error error = top.prepare(output))
    return tool.report(std::move(error));
  std::string moduleFile = top.wanted() ? "" : output.getValue();
  // A module may get its plan in place.
  std::string model = modelFile(modelOptions.model);
  bool inPlace = llvm::StringRef(model).ends_with(".mlir") &&
                 isSameFile(model, moduleFile);
  files.reads("MODEL", model);
  if (llvm::Error error =
          inPlace ? checkOutput(moduleFile) : files.writes("-o", moduleFile))
    return tool.report(std::move(error));
  if (llvm::Error error = files.writes("--json", options.json))
    return tool.report(std::move(error));
  auto context = createCompilerContext();
  llvm::Expected<LoadedModel> loaded =
      options.load(modelOptions, *context, /*estimate=*/true);
  if (!loaded)
    return tool.report(loaded.takeError());
  if (!loaded->notice.empty())
    llvm::errs() << "galvatron-plan: warning: " << loaded->notice << "\n";
  tool.tell(loaded->notes, model);

  if (loaded->profile) {
    if (keepPlan || !moduleFile.empty())
      return tool.report("a layer profile has no module: expected neither "
                         "--keep-plan nor -o, but with --measure-top",
                         kExitInvalid);
    llvm::Expected<Cluster> cluster = options.resolveCluster({}, false);
    if (!cluster)
      return tool.report(cluster.takeError());
    llvm::Expected<TrainingOptions> training =
        options.training(*given ? (*given)->training : TrainingOptions());
    if (!training)
      return tool.report(training.takeError());
    planner->training = *training;
    planner->training.dtype = loaded->profile->dtype();
    if (isBaseline(planner->space))
      return printBaseline(tool, *loaded->profile, *cluster, *planner, *amp,
                           options, simulate, questions);
    if (*given) {
      planner->batch = (*given)->batch;
      (*given)->objective = planner->objective;
    }
    llvm::Expected<PlannerResult> result =
        *given ? evaluate(*loaded->profile, *cluster, **given, planner->memory)
               : planSpace(*loaded->profile, *cluster, *planner, *amp);
    if (!result)
      return tool.report(result.takeError());
    PlanAnswers answers;
    if (result->feasible()) {
      if (llvm::Error error = simulate.run(*loaded->profile, *cluster, *result))
        return tool.report(std::move(error));
      if (llvm::Error error =
              top.find(*loaded->profile, *cluster, *planner, *result))
        return tool.report(std::move(error));
      llvm::Expected<PlanAnswers> found = questions.answer(
          *loaded->profile, *cluster, *planner, result->plan());
      if (!found)
        return tool.report(found.takeError());
      answers = std::move(*found);
      if (!*given) {
        addKnee(*loaded->profile, *cluster, *planner, result->plan(), answers);
        addFewer(*loaded->profile, *cluster, *planner, *amp, result->plan(),
                 answers);
      }
    }
    addRecords(answers, *loaded);
    simulate.addTo(answers);
    if (llvm::Error error = top.addTo(answers))
      return tool.report(std::move(error));
    return options.printResult(tool, *result, /*stdoutTaken=*/false,
                               std::move(answers));
  }

  if (isBaseline(planner->space)) {
    if (!isExecutedSpace(planner->space))
      return tool.report("space '" + planner->space +
                             "': expected a layer profile, found a module: " +
                             notExecutedSpace(planner->space),
                         kExitInvalid);
    // A page about packs has no more than the plan and its step.
    std::string asked = llvm::StringRef(planner->space).starts_with("harmony-")
                            ? questions.askedOfSearches()
                            : questions.asked();
    if (!asked.empty())
      return tool.report("space '" + planner->space +
                             "': expected no request for " + asked +
                             ", which is answered by searches of other spaces",
                         kExitInvalid);
  }
  mlir::ModuleOp module = *loaded->module;
  // A plan is never dropped without being told, as in galvatron-compile.
  bool keep =
      keepPlan || (mlir::galvatron::hasPlan(module) && !replan && !*given);
  if (keep && !options.searchOption().empty())
    return tool.report("option " + options.searchOption() +
                           ": the module has a plan, use --replan to drop it",
                       kExitInvalid);
  if (keep && top.wanted())
    return tool.report("option --measure-top: the module has a plan, use "
                       "--replan to drop it",
                       kExitInvalid);
  llvm::Expected<Cluster> cluster = options.resolveCluster(module, keep);
  if (!cluster)
    return tool.report(cluster.takeError());
  if (llvm::Error error = options.applyTraining(module, keep, *given))
    return tool.report(std::move(error));
  if (!keep) {
    if (!*given)
      options.keepBatch(module, *planner);
    mlir::galvatron::removePlan(module);
  }
  PlanRequest request;
  request.planner = *planner;
  request.amp = *amp;
  request.keepPlan = keep;
  request.given = *given;
  PlanAnswers answers;
  request.inspect = [&](LayerModel &model, const PlannerOptions &asked,
                        PlannerResult &planned) -> llvm::Error {
    if (llvm::Error error = simulate.run(model, *cluster, planned))
      return error;
    if (llvm::Error error = top.find(model, *cluster, asked, planned))
      return error;
    llvm::Expected<PlanAnswers> found =
        questions.answer(model, *cluster, asked, planned.plan());
    if (!found)
      return found.takeError();
    answers = std::move(*found);
    if (!keep && !*given) {
      addKnee(model, *cluster, asked, planned.plan(), answers);
      addFewer(model, *cluster, asked, *amp, planned.plan(), answers);
    }
    return llvm::Error::success();
  };
  llvm::Expected<PlannerResult> result = planModule(module, *cluster, request);
  if (!result)
    return tool.report(result.takeError());
  addRecords(answers, *loaded);
  simulate.addTo(answers);
  if (llvm::Error error = top.addTo(answers))
    return tool.report(std::move(error));
  if (result->feasible() && !moduleFile.empty()) {
    std::string text;
    llvm::raw_string_ostream(text) << module << "\n";
    answers.files.push_back({moduleFile, std::move(text)});
  }
  return options.printResult(tool, *result, moduleFile == "-",
                             std::move(answers));
}
