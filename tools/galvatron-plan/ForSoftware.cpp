//===- ForSoftware.cpp - Plans for other training software ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ForSoftware.h"

#include "galvatron/Pipelines/SoftwareModel.h"
#include "galvatron/Software/PublishedRuns.h"
#include "galvatron/Software/Target.h"
#include "galvatron/Support/Json.h"
#include "galvatron/Support/OutputFile.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

#include <numeric>

using namespace galvatron;
namespace cl = llvm::cl;

ForSoftware::ForSoftware(Tool &tool)
    : request("for",
              cl::desc("plan for other training software; execution:NAME "
                       "prices one plan as it executes"),
              cl::value_desc("SOFTWARE[,OPTION=VALUE..]"),
              cl::cat(tool.category())),
      launch("launch", cl::desc("write the files that start the plan of --for"),
             cl::value_desc("DIR"), cl::cat(tool.category())),
      present("template",
              cl::desc("a present file of the software: --launch writes it "
                       "with the plan's keys changed, all else as it is"),
              cl::value_desc("FILE"), cl::cat(tool.category())),
      list("list-software", cl::desc("list what --for takes"),
           cl::cat(tool.category())) {}

std::string ForSoftware::missing() const {
  if (launch.getNumOccurrences() && !wanted())
    return "option --launch: expected --for beside it";
  if (present.getNumOccurrences() && !launch.getNumOccurrences())
    return "option --template: expected --for and --launch beside it";
  return "";
}

int ForSoftware::printList(const Tool &tool) const {
  std::string text = "Software that plans are written for:\n";
  for (const std::string &name : TargetRegistry::names()) {
    SoftwareRequest plain{false, name, {}};
    text += llvm::formatv(
        "  {0,-22} {1}\n", name,
        llvm::cantFail(TargetRegistry::make(plain))->description());
  }
  text += "Executions, of which execution:NAME prices a plan:\n";
  for (const std::string &name : Execution::names())
    text += llvm::formatv("  {0,-22} {1}\n", name,
                          llvm::cantFail(Execution::named(name)).software);
  if (llvm::Error error = writeOutput("-", text))
    return tool.report(std::move(error));
  return 0;
}

namespace {

/// The first option that was given and that the request has no use for.
std::string uselessOption(const PlanOptions &options, bool priceOne) {
  std::vector<const cl::Option *> useless = {
      &options.planFile,       &options.space,         &options.layers,
      &options.objective,      &options.placement,     &options.groups,
      &options.devices,        &options.ringLink,      &options.paradigms,
      &options.offload,        &options.hostMemory,    &options.maxBatch,
      &options.batchStep,      &options.gap,           &options.keepDpSdp,
      &options.allowDelayed,   &options.optimizer,     &options.dtype,
      &options.clip,           &options.decayAll,      &options.memory,
      &options.microBatchRule, &options.optimizerTime, &options.adapters,
      &options.blocksOfBlocks};
  if (!priceOne)
    for (const cl::Option *option : std::initializer_list<const cl::Option *>{
             &options.schedule, &options.strategy, &options.partition,
             &options.pipelineDegree, &options.microBatches, &options.chunks})
      useless.push_back(option);
  for (const cl::Option *option : useless)
    if (option->getNumOccurrences())
      return "--" + option->ArgStr.str();
  return "";
}

/// Options of a plan that its strategies cannot express.
struct PlanWords {
  bool cutsRows = false;
  Recompute recompute = Recompute::None;
  int64_t every = 0; ///< one block of so many is recomputed; 0: not said
  int64_t context = 1;
  int64_t statesGroup = 0; ///< ranks that share optimizer states; 0: all
};

/// The execution that a request names, with its facts; options of the plan go
/// to `words`. Errors name the option.
llvm::Expected<Execution> readExecution(const SoftwareRequest &request,
                                        PlanWords &words) {
  llvm::Expected<Execution> execution = Execution::named(request.name);
  if (!execution)
    return execution.takeError();
  auto expected = [](const llvm::Twine &what, llvm::StringRef found) {
    return makeError(what + ", found '" + found + "'");
  };
  std::vector<std::pair<std::string, std::string>> facts;
  for (const auto &[name, value] : request.options) {
    if (name == "sequence-parallel") {
      if (value != "on" && value != "off")
        return expected("'sequence-parallel': expected 'on' or 'off'", value);
      words.cutsRows = value == "on";
    } else if (name == "context-parallel") {
      if (llvm::StringRef(value).getAsInteger(10, words.context) ||
          words.context < 1 || words.context > (int64_t(1) << 20))
        return expected("'context-parallel': expected a degree of at least 1",
                        value);
    } else if (name == "states-group") {
      if (llvm::StringRef(value).getAsInteger(10, words.statesGroup) ||
          words.statesGroup < 1)
        return expected("'states-group': expected a count of at least 1 rank",
                        value);
    } else if (name == "recompute") {
      if (value == "attention")
        words.recompute = Recompute::Attention;
      else if (value == "operations")
        words.recompute = Recompute::Operations;
      else if (llvm::StringRef count = value;
               count.consume_front("every-") &&
               !count.getAsInteger(10, words.every) && words.every > 0)
        words.recompute = Recompute::Full;
      else if (value != "none")
        return expected("'recompute': expected 'attention', 'operations', "
                        "'every-N' (one block of N) or 'none' ('.ckpt' in "
                        "--strategy is all)",
                        value);
    } else {
      facts.push_back({name, value});
    }
  }
  if (llvm::Error error = execution->set(facts))
    return error;
  return execution;
}

/// The plan that an execution is asked about, from the options that force one.
llvm::Expected<Configuration> forcedPlan(const PlanOptions &options,
                                         const ModelShape &shape,
                                         const Execution &execution,
                                         const PlanWords &words) {
  if (!options.batch.getNumOccurrences() ||
      !options.microBatches.getNumOccurrences())
    return makeError("option --for: an execution prices one plan: expected "
                     "--batch and --micro-batches beside --strategy");
  llvm::Expected<Strategy> strategy = Strategy::parse(options.strategy);
  if (!strategy)
    return makeError("option --strategy: " +
                     llvm::toString(strategy.takeError()));
  llvm::Expected<Configuration> configuration =
      Configuration::fromStrategy(*strategy);
  if (!configuration)
    return makeError("option --strategy: " +
                     llvm::toString(configuration.takeError()));
  // Ranks that share parameters, of which some have parts of the same samples.
  const int64_t context = words.context;
  configuration->context = context;
  if (configuration->data % context || configuration->shardGroup % context)
    return makeError("option --for: 'context-parallel': expected a divisor of "
                     "the degrees that --strategy has beside tp, found " +
                     llvm::Twine(context));
  configuration->data /= context;
  configuration->shardGroup /= context;
  if (const int64_t group = words.statesGroup) {
    if (configuration->sharding != Sharding::Optimizer)
      return makeError("option --for: 'states-group': expected zdp in "
                       "--strategy, found '" +
                       strategy->str() + "'");
    if (group % context || configuration->sharing() % group)
      return makeError(
          "option --for: 'states-group': expected a divisor of the " +
          llvm::Twine(configuration->sharing()) + " ranks of zdp, and a " +
          "multiple of 'context-parallel', found " + llvm::Twine(group));
    configuration->shardGroup = group / context;
  }
  configuration->sequenceParallel |=
      words.cutsRows && configuration->tensor > 1;
  if (configuration->recompute == Recompute::None) {
    configuration->recompute = words.recompute;
    configuration->recomputedEvery = words.every;
  }
  llvm::Expected<PlannerOptions> planner = options.plannerOptions();
  if (!planner)
    return planner.takeError();
  configuration->pipeline = planner->pipelineDegree.value_or(1);
  configuration->batch = *planner->batch;
  int64_t passes = *planner->microBatches * configuration->data;
  if (configuration->batch % passes)
    return makeError("option --micro-batches: expected micro-batches times "
                     "replicas, " +
                     llvm::Twine(passes) + ", to divide the batch, " +
                     llvm::Twine(configuration->batch));
  configuration->microBatch = configuration->batch / passes;
  if (planner->schedule)
    configuration->schedule = planner->schedule;
  if (planner->anySchedule)
    return makeError("option --schedule: expected one, found 'any'");
  configuration->chunks = planner->chunks ? planner->chunks : 1;
  int64_t parts = configuration->pipeline * configuration->chunks;
  if (!planner->partition.empty()) {
    configuration->blocks = planner->partition;
    configuration->blocks.front() -= 1;
    configuration->blocks.back() -= 1;
  } else if (execution.cutsByWork) {
    configuration->blocks = Configuration::blocksByWork(shape, parts);
  } else {
    configuration->blocks = Configuration::evenBlocks(shape.layers, parts);
    if (configuration->blocks.empty())
      return makeError("expected --partition: " + llvm::Twine(shape.layers) +
                       " blocks do not divide by " + llvm::Twine(parts) +
                       " chunks");
  }
  return configuration;
}

std::string memoryText(const SoftwarePrice &price) {
  return llvm::formatv("{0} allocated of {1}",
                       printBytesRounded(price.allocated),
                       printBytesRounded(price.memory));
}

/// The published runs behind an execution, as the list of executions says it.
std::string standingText(const Execution &execution) {
  const Standing standing = standingOf(execution.name);
  if (!standing.runs)
    return "  unchecked: no published run stands behind '" + execution.name +
           "'\n";
  return llvm::formatv("  behind '{0}' stand {1} published runs, median error "
                       "of a step {2:f1}%\n",
                       execution.name, standing.runs, standing.medianError)
      .str();
}

} // namespace

llvm::Expected<std::string>
ForSoftware::fillPresent(Target &target, std::vector<LaunchFile> &files,
                         PricedPlan priced) const {
  if (!present.getNumOccurrences())
    return "";
  llvm::Expected<std::string> text = readInput(present);
  if (!text)
    return text.takeError();
  std::vector<std::string> changed;
  auto fail = [](llvm::Error error) {
    return makeError("option --template: " + llvm::toString(std::move(error)));
  };
  llvm::Expected<std::string> filled =
      fillTemplate(target, *text, present, files.front().content, &changed);
  if (!filled)
    return fail(filled.takeError());
  llvm::Expected<std::vector<std::string>> unread =
      checkFilled(target, *filled, present, std::move(priced));
  if (!unread)
    return fail(unread.takeError());
  files.front().content = std::move(*filled);
  std::string told;
  if (!changed.empty())
    told += llvm::formatv("  changed in {0}: {1}\n", present,
                          llvm::join(changed, ", "));
  if (!unread->empty())
    told += llvm::formatv("  kept in {0}, and not read: {1}\n", present,
                          llvm::join(*unread, " "));
  return told;
}

llvm::Expected<std::string>
ForSoftware::writeFiles(std::vector<LaunchFile> files) const {
  std::string folder = launch, text;
  if (std::error_code error = llvm::sys::fs::create_directories(folder))
    return makeError("option --launch: '" + folder + "': " + error.message());
  for (LaunchFile &file : files) {
    llvm::SmallString<128> path(folder);
    llvm::sys::path::append(path, file.name);
    if (llvm::Error error = writeOutput(path, file.content))
      return error;
    if (file.executable)
      (void)llvm::sys::fs::setPermissions(path, llvm::sys::fs::perms(0755));
    text += llvm::formatv("  wrote {0}\n", path.str());
  }
  return text;
}

int ForSoftware::runProfiled(const Tool &tool, const Target &target,
                             const ModelOptions &modelOptions,
                             const PlanOptions &options, bool keepPlan) const {
  auto invalid = [&](const llvm::Twine &message) {
    return tool.report(message.str(), kExitInvalid);
  };
  if (keepPlan)
    return invalid("option --keep-plan: '" + target.name() +
                   "' plans from profiles, which have no plan");
  if (present.getNumOccurrences())
    return invalid("option --template: '" + target.name() +
                   "' writes a whole configuration");
  if (options.cluster.getNumOccurrences())
    return invalid("options --for and --cluster: expected one of them: the "
                   "profiles of '" +
                   target.name() + "' are of a machine");
  if (options.batch.getNumOccurrences() && options.batch < 1)
    return invalid("option --batch: expected at least 1");
  llvm::StringRef path = modelOptions.model;
  if (path.empty())
    return invalid("expected a model: the profiles of '" + target.name() + "'");
  llvm::Expected<std::string> content = readInput(path);
  if (!content)
    return tool.report(content.takeError());
  llvm::Expected<llvm::json::Value> value = parseJson(*content, path);
  if (!value)
    return tool.report(value.takeError());
  std::optional<int64_t> batch;
  if (options.batch.getNumOccurrences())
    batch = options.batch;
  llvm::Expected<ProfiledAnswer> answer =
      target.planFromProfiles(*value, path, batch);
  if (!answer)
    return tool.report(answer.takeError());
  if (!answer->infeasible.empty())
    return tool.report(answer->infeasible, kExitFailed);
  if (launch.getNumOccurrences()) {
    llvm::Expected<std::string> wrote = writeFiles(std::move(answer->files));
    if (!wrote)
      return tool.report(wrote.takeError());
    answer->text += *wrote;
  }
  bool asJson = options.json.getNumOccurrences();
  std::string file = options.json.empty() ? "-" : std::string(options.json);
  answer->json["software"] = target.name();
  if (asJson)
    if (llvm::Error error = writeOutput(
            file,
            llvm::formatv("{0:2}\n", llvm::json::Value(std::move(answer->json)))
                .str()))
      return tool.report(std::move(error));
  if (!asJson || file != "-")
    if (llvm::Error error = writeOutput("-", answer->text))
      return tool.report(std::move(error));
  return 0;
}

llvm::Error ForSoftware::addComparison(llvm::StringRef file,
                                       const Target &target,
                                       const Cluster &cluster,
                                       const ModelShape &shape,
                                       const TargetAnswer &answer,
                                       PlanAnswers &answers) const {
  auto fail = [&](const llvm::Twine &message) {
    return makeError("option --compare: " + message);
  };
  llvm::Expected<SoftwareDocument> other = readSoftwareDocument(file);
  if (!other)
    return fail(llvm::toString(other.takeError()));
  if (!other->configuration)
    return fail(file + ": expected a plan, as galvatron-import --from writes "
                       "it, found a model without one");
  other->shape.name = shape.name;
  if (other->shape != shape)
    return fail(file +
                ": expected a plan of the same model, found other sizes");
  const Configuration &configuration = *other->configuration;
  if (configuration.batch != answer.configuration.batch)
    return fail(file + ": expected a plan of " +
                llvm::Twine(answer.configuration.batch) +
                " samples a step, found " + llvm::Twine(configuration.batch));
  const Execution execution = target.executionOn(cluster);
  llvm::Expected<SoftwarePrice> priced =
      price(target.asTrained(shape, configuration), configuration, execution,
            cluster);
  if (!priced)
    return fail(file + ": " + llvm::toString(priced.takeError()));
  answers.json["compare"] = priced->toJson(configuration, execution);
  answers.text += llvm::formatv(
      "  beside it {0}: {1}; {2:f1} ms a step, {3}{4}; the plan above takes "
      "{5:f1}% of its time\n",
      file, configuration.str(), priced->stepMs, memoryText(*priced),
      priced->fits ? "" : ", which does not fit",
      100 * answer.price.stepMs / priced->stepMs);
  return llvm::Error::success();
}

int ForSoftware::run(const Tool &tool, const ModelOptions &modelOptions,
                     const PlanOptions &options, bool keepPlan,
                     llvm::StringRef compared) const {
  auto invalid = [&](const llvm::Twine &message) {
    return tool.report(message.str(), kExitInvalid);
  };
  llvm::Expected<SoftwareRequest> asked = SoftwareRequest::parse(request);
  if (!asked)
    return invalid("option --for: " + llvm::toString(asked.takeError()));
  if (std::string option = uselessOption(options, asked->execution);
      !option.empty())
    return invalid("options --for and " + option +
                   ": expected one of them: the software decides");
  if (asked->execution && !compared.empty())
    return invalid("options --for and --compare: an execution has no plans of "
                   "files, expected one of " +
                   llvm::join(TargetRegistry::names(), ", "));
  if (asked->execution && launch.getNumOccurrences())
    return invalid("options --for and --launch: an execution has no files, "
                   "expected one of " +
                   llvm::join(TargetRegistry::names(), ", "));
  std::unique_ptr<Target> target;
  if (!asked->execution) {
    auto made = TargetRegistry::make(*asked);
    if (!made)
      return invalid("option --for: " + llvm::toString(made.takeError()) +
                     (llvm::is_contained(TargetRegistry::names(), asked->name)
                          ? ""
                          : "; execution:NAME prices one plan as "
                            "--list-software has it"));
    target = std::move(*made);
    if (target->takesProfiles() && !compared.empty())
      return invalid("option --compare: '" + target->name() +
                     "' takes a configuration as its option, "
                     "configuration=FILE");
    if (target->takesProfiles())
      return runProfiled(tool, *target, modelOptions, options, keepPlan);
  }
  llvm::Expected<SoftwareModel> model =
      readSoftwareModel(modelOptions.model, modelOptions);
  if (!model)
    return tool.report(model.takeError());
  tool.tell(model->notes, modelFile(modelOptions.model));
  if (target && launch.getNumOccurrences() && target->filesNameModel() &&
      !model->unsaid.empty())
    return invalid("option --launch: a file of '" + target->name() +
                   "' would start another model than '" +
                   modelFile(modelOptions.model) + "': " + model->unsaid +
                   "; without --launch it is priced");
  const ModelShape &shape = model->shape;
  llvm::Expected<Cluster> cluster = options.resolveCluster({}, false);
  if (!cluster)
    return tool.report(cluster.takeError());

  Execution execution;
  TargetAnswer answer;
  std::optional<PlannerResult> unrestricted;
  if (asked->execution) {
    PlanWords words;
    llvm::Expected<Execution> read = readExecution(*asked, words);
    if (!read)
      return invalid("option --for: " + llvm::toString(read.takeError()));
    execution = std::move(*read);
    if (!options.strategy.getNumOccurrences()) {
      if (std::string option = uselessOption(options, /*priceOne=*/false);
          !option.empty())
        return invalid("option " + option + ": expected --strategy beside it");
      if (!options.batch.getNumOccurrences() || options.batch < 1)
        return invalid("option --for: expected --batch, the samples of a step");
      llvm::Expected<PlannerResult> searched =
          planUnrestricted(shape, execution, *cluster, options.batch);
      if (!searched)
        return tool.report(searched.takeError());
      return options.printResult(tool, *searched, /*stdoutTaken=*/false);
    }
    llvm::Expected<Configuration> forced =
        forcedPlan(options, shape, execution, words);
    if (!forced)
      return tool.report(forced.takeError());
    answer.configuration = std::move(*forced);
  } else {
    execution = target->executionOn(*cluster);
  }
  if (target && !keepPlan) {
    // A present plan has a batch.
    int64_t batch = options.batch.getNumOccurrences() ? options.batch
                    : model->configuration ? model->configuration->batch
                                           : 0;
    if (batch < 1)
      return invalid("option --for: expected --batch, the samples of a step");
    llvm::Expected<TargetAnswer> found =
        findFastest(*target, shape, *cluster, batch);
    if (!found)
      return tool.report(found.takeError());
    answer = std::move(*found);
    if (!answer.expressible)
      return tool.report(
          llvm::formatv("software '{0}' can express no plan of {1} samples a "
                        "step on {2} devices",
                        target->name(), batch, cluster->deviceCount())
              .str(),
          kExitFailed);
    llvm::Expected<PlannerResult> searched =
        planUnrestricted(shape, execution, *cluster, batch);
    if (!searched)
      return tool.report(searched.takeError());
    if (searched->feasible())
      unrestricted = std::move(*searched);
  } else {
    if (keepPlan && !model->configuration)
      return invalid("option --keep-plan: expected a model with a plan, as "
                     "galvatron-import --from writes it");
    if (keepPlan) {
      answer.configuration = *model->configuration;
      if (options.batch.getNumOccurrences() &&
          options.batch != answer.configuration.batch)
        return invalid("options --keep-plan and --batch: the file's plan has " +
                       llvm::Twine(answer.configuration.batch) +
                       " samples a step, found " +
                       llvm::Twine(options.batch.getValue()) +
                       "; without --keep-plan a plan is found for them");
    }
    llvm::Expected<SoftwarePrice> priced =
        price(target ? target->asTrained(shape, answer.configuration) : shape,
              answer.configuration, execution, *cluster);
    if (!priced)
      return tool.report(priced.takeError());
    answer.price = std::move(*priced);
  }

  const SoftwarePrice &price = answer.price;
  PlanAnswers answers;
  llvm::json::Object software =
      std::move(*price.toJson(answer.configuration, execution).getAsObject());
  answers.text = llvm::formatv(
      "  as '{0}' executes it: {1}; {2:f1} ms a step, {3}{4}\n", execution.name,
      answer.configuration.str(), price.stepMs, memoryText(price),
      price.fits ? "" : ", which does not fit");
  answers.text += standingText(execution);
  if (const PublishedRun *run =
          nearestRun(execution.name, shape, answer.configuration,
                     cluster->deviceType(0).name)) {
    software["nearest-run"] = run->toJson();
    answers.text += llvm::formatv(
        "  the nearest of them, {0} {1}: {2}; {3:f1} ms published, {4:f1} "
        "predicted\n",
        run->source, run->id, run->str(), run->seconds * 1e3,
        run->predicted * 1e3);
  }
  if (target) {
    software["software"] = target->name();
    if (!keepPlan) {
      software["configurations"] = int64_t(answer.space);
      software["priced"] = int64_t(answer.priced);
      answers.text += llvm::formatv(
          "  the fastest of {0} configurations of '{1}', {2} of them priced\n",
          answer.space, target->name(), answer.priced);
      if (!answer.feasible)
        return tool.report(
            llvm::formatv(
                "no configuration of '{0}' fits: {1} needs least, {2}",
                target->name(), answer.configuration.str(), memoryText(price))
                .str(),
            kExitFailed);
    }
  }
  if (unrestricted) {
    // This time has no costs that hold for one degree alone; the software's
    // price has them.
    const Plan &free = unrestricted->plan();
    software["unrestricted-ms"] = free.iterationMs;
    software["unrestricted"] = free.summary();
    answers.text += llvm::formatv(
        "  of all plans, a strategy a layer, the best would take {0:f1} ms "
        "({1:f1}% of it): {2}\n",
        free.iterationMs, 100 * free.iterationMs / price.stepMs,
        free.summary());
  }
  answers.json["software"] = std::move(software);
  if (target && !compared.empty())
    if (llvm::Error error =
            addComparison(compared, *target, *cluster, shape, answer, answers))
      return tool.report(std::move(error));
  if (target && launch.getNumOccurrences()) {
    std::vector<LaunchFile> files =
        target->write(shape, answer.configuration, *cluster);
    const PricedPlan priced{shape, answer.configuration, cluster->nodeCount(),
                            llvm::cantFail(halfTypeOf(*cluster))};
    // A present plan may be another software's, or of files that this one has
    // no more.
    if (keepPlan)
      if (auto unread = checkFilled(*target, files.front().content,
                                    files.front().name, priced);
          !unread)
        return invalid("option --launch: no file of '" + target->name() +
                       "' says " + answer.configuration.str() + ": " +
                       llvm::toString(unread.takeError()));
    llvm::Expected<std::string> told = fillPresent(*target, files, priced);
    if (!told)
      return tool.report(told.takeError());
    llvm::Expected<std::string> wrote = writeFiles(std::move(files));
    if (!wrote)
      return tool.report(wrote.takeError());
    answers.text += *told + *wrote;
  }
  PlannerResult result;
  result.outcome = price.plan;
  return options.printResult(tool, result, /*stdoutTaken=*/false,
                             std::move(answers));
}
