//===- galvatron-compile.cpp - Compiles a model ---------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Pipelines/MeasureTop.h"
#include "galvatron/Pipelines/ToolOptions.h"

#include "galvatron/Dialect/Galvatron/Transforms/PlanAttributes.h"
#include "galvatron/Pipelines/PhasePipeline.h"
#include "galvatron/Schedule/Schedule.h"
#include "galvatron/Strategy/Dtype.h"
#include "galvatron/Support/Units.h"
#include "llvm/Support/raw_ostream.h"

using namespace galvatron;
namespace cl = llvm::cl;
namespace ir = mlir::galvatron;

namespace {

/// The phases up to one, or all, as help lists values.
std::string namesBefore(std::optional<Phase> end) {
  std::string names;
  for (Phase phase : ir::allPhases())
    if (!end || phase < *end)
      names += (names.empty() ? "" : "|") + ir::stringifyPhase(phase).str();
  return names;
}

struct CompileOptions {
  explicit CompileOptions(Tool &tool)
      : starts(namesBefore(Phase::Emit)), ends(namesBefore(std::nullopt)),
        output("o", cl::desc("where to write the program (or IR, or programs)"),
               cl::value_desc("prog.gvx"), cl::cat(tool.category())),
        backend("backend", cl::desc("must be the cluster's"),
                cl::value_desc("cpu|cuda"), cl::cat(tool.category())),
        from("compile-from",
             cl::desc("MODEL is IR as --compile-to=PHASE prints it"),
             cl::value_desc(starts), cl::init("import"),
             cl::cat(tool.category())),
        to("compile-to", cl::desc("stop after this phase and print the IR"),
           cl::value_desc(ends), cl::init("emit"), cl::cat(tool.category())),
        verifyEach("verify-each",
                   cl::desc("verify the IR behind every pass, not only where "
                            "it is read or printed"),
                   cl::cat(tool.category())),
        replan("replan", cl::desc("drop the plan that the module has"),
               cl::cat(tool.category())),
        generate("generate",
                 cl::desc("a program that generates: its layers keep keys and "
                          "values, for so many texts, of so many tokens of a "
                          "prompt and behind it"),
                 cl::value_desc("BATCH,PROMPT,LENGTH"), cl::ValueOptional,
                 cl::cat(tool.category())),
        top(tool) {}

  /// Values of options, which refer to them.
  std::string starts, ends;
  cl::opt<std::string> output, backend, from, to;
  cl::opt<bool> verifyEach, replan;
  cl::opt<std::string> generate;
  MeasureTop top;
};

/// Prints the IR at the end of a partial compilation.
int printModule(const Tool &tool, const CompileOptions &options,
                mlir::ModuleOp module) {
  if (llvm::Error error = verifyModule(module))
    return tool.report(std::move(error));
  std::string text;
  llvm::raw_string_ostream(text) << module << "\n";
  if (llvm::Error error = writeOutput(
          options.output.empty() ? "-" : llvm::StringRef(options.output), text))
    return tool.report(std::move(error));
  return 0;
}

/// Checks that --backend is the backend of the cluster's devices.
llvm::Error checkBackend(const CompileOptions &compile,
                         llvm::StringRef clusterName, llvm::StringRef backend) {
  if (compile.backend.empty() || backend == compile.backend)
    return llvm::Error::success();
  return makeError("option --backend: expected '" + backend +
                   "' as in cluster '" + clusterName + "', found '" +
                   compile.backend + "'");
}

/// `--measure-top`: a program for every plan, of the module as it was before it
/// had one.
int compileTop(const Tool &tool, const MeasureTop &top, const Cluster &cluster,
               mlir::ModuleOp module) {
  for (auto [i, result] : llvm::enumerate(top.plans())) {
    mlir::OwningOpRef<mlir::ModuleOp> copy(module.clone());
    PlanRequest request;
    request.given = result.plan();
    llvm::Expected<PlannerResult> planned = planModule(*copy, cluster, request);
    if (!planned)
      return tool.report(planned.takeError());
    if (!planned->feasible())
      return tool.report(planned->infeasible().str(), kExitFailed);
    if (llvm::Error error =
            compileProgram(*copy, Phase::Plan, top.path(i, ".gvx")))
      return tool.report(std::move(error));
  }
  return 0;
}

/// Makes the module one that generates, if --generate says so, and leaves of
/// the plans those under which a rank has the keys of all rows.
llvm::Error makeGenerate(const CompileOptions &compile,
                         const PlanOptions &options, bool keep,
                         mlir::ModuleOp module, PlannerOptions &planner) {
  if (!compile.generate.getNumOccurrences())
    return llvm::Error::success();
  llvm::Expected<GenerateOptions> generate =
      GenerateOptions::parse(compile.generate);
  if (!generate)
    return generate.takeError();
  if (keep || keepsKeys(module))
    return makeError("option --generate: the module was planned without it, or "
                     "has it already: expected a model that is not planned");
  for (const cl::Option *option : std::initializer_list<const cl::Option *>{
           &options.adapters, &options.documents, &options.maxBatch,
           &options.microBatches})
    if (option->getNumOccurrences())
      return makeError("options --generate and --" + option->ArgStr +
                       ": expected one of them");
  if (!planner.batch)
    planner.batch = generate->rows;
  if (*planner.batch < generate->rows)
    return makeError("option --batch: expected at least a position a pass for "
                     "each of the " +
                     llvm::Twine(generate->rows) +
                     " texts of --generate, found " +
                     llvm::Twine(*planner.batch));
  planner.microBatches = 1;
  if (planner.paradigms.empty())
    planner.paradigms = generatingParadigms();
  return keepKeys(module, *generate);
}

/// Goes from the model to the planned module; sets `done` to stop there. A plan
/// that was found is compiled though its table, or its JSON, could not be
/// written: `unwritten` is the exit code of that, else 0.
int planFirst(const Tool &tool, const PlanOptions &options,
              CompileOptions &compile, const LoadedModel &loaded, Phase to,
              bool &done, int &unwritten) {
  mlir::ModuleOp module = *loaded.module;
  llvm::Expected<std::optional<Plan>> given = options.givenPlan();
  if (!given)
    return tool.report(given.takeError());
  if (*given && compile.replan)
    return tool.report("options --plan and --replan: expected one of them",
                       kExitInvalid);
  bool keep = ir::hasPlan(module) && !compile.replan && !*given;
  if (compile.top.wanted() && (keep || *given))
    return tool.report("option --measure-top: expected a search, found " +
                           std::string(keep ? "a module with a plan (--replan "
                                              "drops it)"
                                            : "--plan"),
                       kExitInvalid);
  std::string search = options.searchOption();
  if (keep && !search.empty())
    return tool.report("option " + search +
                           ": the module has a plan, use --replan to drop it",
                       kExitInvalid);
  llvm::Expected<PlannerOptions> planner = options.plannerOptions();
  if (!planner)
    return tool.report(planner.takeError());
  llvm::Expected<AmpOptions> amp = options.ampOptions();
  if (!amp)
    return tool.report(amp.takeError());
  if (compile.top.wanted() && isBaseline(planner->space))
    return tool.report("option --measure-top: space '" + planner->space +
                           "' gives one plan",
                       kExitInvalid);
  if (llvm::Error error =
          makeGenerate(compile, options, keep, module, *planner))
    return tool.report(std::move(error));
  if (llvm::Error error = options.applyTraining(module, keep, *given))
    return tool.report(std::move(error));
  std::string dtype = ir::getTrainingOptions(module).dtype;
  if (to > Phase::Plan && !isExecutedDtype(dtype))
    return tool.report("dtype '" + dtype +
                           "' is planned, not executed: expected 'f32', "
                           "'bf16' or 'f64'",
                       kExitInvalid);
  // A given plan is checked here; the planner checks those that it searches.
  if (*given)
    if (llvm::Error error =
            checkClipping(*(*given)->schedule, (*given)->offload,
                          ir::getTrainingOptions(module)))
      return tool.report(std::move(error));
  if (!keep) {
    if (!*given)
      options.keepBatch(module, *planner);
    ir::removePlan(module);
  }
  done = to <= Phase::Annotate;
  if (done) {
    if (to == Phase::Annotate)
      if (llvm::Error error = runPhases(module, Phase::Import, to))
        return tool.report(std::move(error));
    return printModule(tool, compile, module);
  }

  llvm::Expected<Cluster> cluster = options.resolveCluster(module, keep);
  if (!cluster)
    return tool.report(cluster.takeError());
  if (llvm::Error error =
          checkBackend(compile, cluster->name(), cluster->backend()))
    return tool.report(std::move(error));
  if (keepsKeys(module) && cluster->backend() != "cpu")
    return tool.report("option --generate: expected devices of backend 'cpu', "
                       "which has attention to keys that are kept, found '" +
                           cluster->backend().str() + "'",
                       kExitInvalid);
  PlanRequest request;
  request.planner = *planner;
  request.amp = *amp;
  request.keepPlan = keep;
  request.given = *given;
  mlir::OwningOpRef<mlir::ModuleOp> unplanned;
  if (compile.top.wanted()) {
    unplanned = module.clone();
    request.inspect = [&](LayerModel &model, const PlannerOptions &asked,
                          PlannerResult &planned) {
      return compile.top.find(model, *cluster, asked, planned);
    };
  }
  llvm::Expected<PlannerResult> result = planModule(module, *cluster, request);
  if (!result)
    return tool.report(result.takeError());
  PlanAnswers answers;
  addRecords(answers, loaded);
  if (llvm::Error error = compile.top.addTo(answers))
    return tool.report(std::move(error));
  bool prints =
      to != Phase::Emit && (compile.output.empty() || compile.output == "-");
  bool found = result->feasible();
  if (found && keepsKeys(module))
    if (llvm::Error error = checkGenerates(result->plan()))
      return tool.report(std::move(error));
  unwritten = options.printResult(tool, *result, prints, std::move(answers));
  if (!found || unwritten == kExitInterrupted)
    return unwritten;
  if (compile.top.wanted()) {
    done = true;
    return compileTop(tool, compile.top, *cluster, *unplanned);
  }
  done = to == Phase::Plan;
  return done ? printModule(tool, compile, module) : 0;
}

/// Refuses options that say what a model, a plan or a training is: IR from
/// `plan` on says so itself, and functions were made for it.
llvm::Error checkReadAlone(Tool &tool, llvm::StringRef from) {
  static constexpr llvm::StringLiteral read[] = {"o", "backend", "compile-from",
                                                 "compile-to", "verify-each"};
  for (const auto &[name, option] : cl::getRegisteredOptions())
    if (option->getNumOccurrences() && !llvm::is_contained(read, name) &&
        llvm::is_contained(option->Categories, &tool.category()))
      return makeError("option --" + name + ": IR of the phase '" + from +
                       "' has a plan and a training of its own, expected no "
                       "option beside --compile-from but " +
                       "-o, --backend, --compile-to and --verify-each");
  return llvm::Error::success();
}

} // namespace

int main(int argc, char **argv) {
  Tool tool("galvatron-compile");
  ModelOptions modelOptions(tool);
  PlanOptions options(tool);
  CompileOptions compile(tool);
  if (std::optional<int> code =
          tool.parse(argc, argv, "MODEL --cluster=FILE|NAME -o FILE [options]",
                     "Compiles a model, or a planned module, into a program"))
    return *code;
  std::optional<Phase> from = ir::symbolizePhase(compile.from);
  std::optional<Phase> to = ir::symbolizePhase(compile.to);
  if (!from || !to)
    return tool.report("option --compile-" + std::string(from ? "to" : "from") +
                           ": expected one of " + ir::phaseNames() +
                           ", found '" + (from ? compile.to : compile.from) +
                           "'",
                       kExitInvalid);
  if (*from > *to || *from >= Phase::Emit)
    return tool.report("option --compile-from: expected a phase before 'emit' "
                       "and not after --compile-to, found '" +
                           compile.from + "'",
                       kExitInvalid);
  if (!compile.backend.empty() && compile.backend != "cpu" &&
      compile.backend != "cuda")
    return tool.report("option --backend: expected 'cpu' or 'cuda', found '" +
                           compile.backend + "'",
                       kExitInvalid);
  if (*to == Phase::Emit && compile.output.empty())
    return tool.report("expected -o with the program's file name",
                       kExitInvalid);

  if (compile.top.wanted() && (*from >= Phase::Plan || *to != Phase::Emit))
    return tool.report("option --measure-top: expected neither --compile-to "
                       "nor IR behind the plan",
                       kExitInvalid);
  if (llvm::Error error = compile.top.prepare(compile.output))
    return tool.report(std::move(error));
  std::string program = compile.top.wanted() ? "" : compile.output.getValue();
  ToolFiles files;
  options.addInputs(files);
  files.reads("MODEL", modelFile(modelOptions.model));
  if (llvm::Error error = files.writes("-o", program))
    return tool.report(std::move(error));
  if (llvm::Error error = files.writes("--json", options.json))
    return tool.report(std::move(error));

  if (compile.verifyEach)
    verifyAfterEachPass();
  auto context = createCompilerContext();
  llvm::Expected<LoadedModel> loaded =
      options.load(modelOptions, *context, /*estimate=*/false);
  if (!loaded)
    return tool.report(loaded.takeError());
  if (loaded->profile)
    return tool.report("a layer profile can be planned, not compiled",
                       kExitInvalid);
  tool.tell(loaded->notes, modelFile(modelOptions.model));
  mlir::ModuleOp module = *loaded->module;
  int unwritten = 0;
  if (*from < Phase::Plan) {
    bool done = false;
    int code = planFirst(tool, options, compile, *loaded, *to, done, unwritten);
    if (code || done)
      return code ? code : unwritten;
    from = Phase::Plan;
  }

  if (*ir::symbolizePhase(compile.from) >= Phase::Plan)
    if (llvm::Error error = checkReadAlone(tool, compile.from))
      return tool.report(std::move(error));

  ir::ClusterAttr cluster = ir::getCluster(module);
  if (cluster) {
    if (llvm::Error error =
            checkBackend(compile, cluster.getName(), cluster.getBackend()))
      return tool.report(std::move(error));
    if (cluster.getBackend().empty() && *to >= Phase::Bufferize)
      return tool.report("expected devices of one backend to compile for, "
                         "cluster '" +
                             cluster.getName().str() + "' has several",
                         kExitFailed);
  }
  if (*to == Phase::Emit) {
    if (llvm::Error error = compileProgram(module, *from, compile.output))
      return tool.report(std::move(error));
    return unwritten;
  }
  if (llvm::Error error = runPhases(module, *from, *to))
    return tool.report(std::move(error));
  int code = printModule(tool, compile, module);
  return code ? code : unwritten;
}
