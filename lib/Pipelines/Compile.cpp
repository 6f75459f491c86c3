//===- Compile.cpp - From a model to a program ----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Pipelines/Compile.h"

#include "galvatron/Dialect/GRT/IR/GRT.h"
#include "galvatron/Dialect/Galvatron/IR/DataKinds.h"
#include "galvatron/Dialect/Galvatron/Transforms/PlanAttributes.h"
#include "galvatron/InitAllDialects.h"
#include "galvatron/Pipelines/PhasePipeline.h"
#include "galvatron/Support/Units.h"
#include "galvatron/Target/Manifest.h"
#include "galvatron/Target/Program.h"
#include "grt/program_file.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SourceMgr.h"

#include <atomic>

using namespace galvatron;
using mlir::galvatron::GalvatronDialect;

char CompileError::ID = 0;

namespace {

/// Collects error diagnostics, with file and line where they are known.
class DiagnosticCollector {
public:
  explicit DiagnosticCollector(mlir::MLIRContext &context)
      : handler(&context, [this](mlir::Diagnostic &diagnostic) {
          return collect(diagnostic);
        }) {}

  std::string take(llvm::StringRef fallback) {
    return text.empty() ? fallback.str() : std::move(text);
  }

private:
  mlir::LogicalResult collect(mlir::Diagnostic &diagnostic) {
    if (diagnostic.getSeverity() != mlir::DiagnosticSeverity::Error)
      return mlir::failure();
    append(diagnostic);
    for (mlir::Diagnostic &note : diagnostic.getNotes()) {
      text += "\nnote: ";
      append(note);
    }
    return mlir::success();
  }

  void append(mlir::Diagnostic &diagnostic) {
    llvm::raw_string_ostream os(text);
    if (diagnostic.getSeverity() == mlir::DiagnosticSeverity::Error &&
        !text.empty())
      os << "\n";
    if (auto loc =
            diagnostic.getLocation()->findInstanceOf<mlir::FileLineColLoc>())
      os << loc.getFilename().getValue() << ":" << loc.getLine() << ":"
         << loc.getColumn() << ": ";
    os << diagnostic;
  }

  std::string text;
  mlir::ScopedDiagnosticHandler handler;
};

std::atomic<bool> verifiesEachPass = false;

/// Whether MLIR's verifier runs behind the last of some passes, if it does not
/// behind each.
enum class Verified { No, Yes };

/// Runs passes; on failure the diagnostics become the message.
std::optional<std::string>
runPasses(mlir::ModuleOp module, Verified verified,
          llvm::function_ref<void(mlir::OpPassManager &)> build) {
  DiagnosticCollector diagnostics(*module.getContext());
  mlir::PassManager manager(module.getContext());
  manager.enableVerifier(verifiesEachPass);
  build(manager);
  const bool verifies = verified == Verified::Yes && !verifiesEachPass;
  if (mlir::succeeded(manager.run(module)) &&
      (!verifies || mlir::succeeded(mlir::verify(module))))
    return std::nullopt;
  return diagnostics.take("a pass failed without a message");
}

double flopsPerSample(mlir::ModuleOp module) {
  auto report = module->getAttrOfType<mlir::StringAttr>(
      GalvatronDialect::kPlanReportAttr);
  if (!report)
    return 0;
  auto json = llvm::json::parse(report.getValue());
  if (!json) {
    llvm::consumeError(json.takeError());
    return 0;
  }
  const llvm::json::Object *object = json->getAsObject();
  return object ? object->getNumber("flops-per-sample").value_or(0) : 0;
}

} // namespace

void galvatron::verifyAfterEachPass() { verifiesEachPass = true; }

std::unique_ptr<mlir::MLIRContext> galvatron::createCompilerContext() {
  mlir::DialectRegistry registry;
  registerAllDialects(registry);
  auto context = std::make_unique<mlir::MLIRContext>(
      registry, mlir::MLIRContext::Threading::DISABLED);
  // A module read from a file may lack any of them.
  context->loadAllAvailableDialects();
  // An error about the module would print all of it.
  context->printOpOnDiagnostic(false);
  return context;
}

/// A safetensors file begins with the length of its JSON header.
static bool isSafetensors(llvm::StringRef content) {
  return content.size() > 8 && content[8] == '{' &&
         llvm::support::endian::read64le(content.data()) < content.size();
}

llvm::Expected<mlir::OwningOpRef<mlir::ModuleOp>>
galvatron::loadModel(llvm::StringRef content, llvm::StringRef fileName,
                     const ImportOptions &options, mlir::MLIRContext &context,
                     ImportNotes *notes) {
  // No IR begins with a brace, and no JSON object with anything else.
  if (content.ltrim().starts_with("{"))
    return importHuggingFaceConfig(content, fileName, options, context, notes);
  // The parser would complain of their first byte. Up to ABI 5 programs were
  // ELF files.
  if (content.starts_with(
          llvm::StringRef(grt::gvx::magic.data(), grt::gvx::magic.size())) ||
      content.starts_with("\177ELF"))
    return makeError(fileName + ": expected a model, found a program");
  if (isSafetensors(content))
    return makeError(fileName + ": expected a model, found weights: their "
                                "'config.json' describes it");
  DiagnosticCollector diagnostics(context);
  llvm::SourceMgr sources;
  sources.AddNewSourceBuffer(
      llvm::MemoryBuffer::getMemBufferCopy(content, fileName), llvm::SMLoc());
  auto module = mlir::parseSourceFile<mlir::ModuleOp>(sources, &context);
  if (!module)
    return makeError(diagnostics.take(fileName.str() + ": cannot be read"));
  return module;
}

llvm::Error galvatron::splitBlocks(mlir::ModuleOp module) {
  auto layers = [&] {
    size_t count = 0;
    for (auto model : module.getOps<mlir::galvatron::ModelOp>())
      count += model.getLayers().size();
    return count;
  };
  if (mlir::galvatron::hasPlan(module))
    return makeError("the module has a plan, of whole blocks");
  size_t before = layers();
  auto message =
      runPasses(module, Verified::No, [&](mlir::OpPassManager &manager) {
        manager.addPass(mlir::galvatron::createGalvatronSplitBlocks());
      });
  if (message)
    return makeError(*message);
  if (layers() == before)
    return makeError("expected a layer with two parts that each have a matrix "
                     "and meet in one value, found none");
  return llvm::Error::success();
}

llvm::Error galvatron::applyTraining(mlir::ModuleOp module,
                                     const TrainingOptions &training) {
  mlir::galvatron::GalvatronApplyTrainingOptions options;
  options.optimizer = training.optimizer;
  options.dtype = training.dtype;
  options.clip = training.clip;
  options.clipDelayed = training.clipDelayed;
  options.dropout = training.dropout;
  options.decayAll = training.decayAll;
  options.labelSmoothing = training.labelSmoothing;
  options.zLoss = training.zLoss;
  auto message =
      runPasses(module, Verified::No, [&](mlir::OpPassManager &manager) {
        manager.addPass(mlir::galvatron::createGalvatronApplyTraining(options));
      });
  return message ? makeError(*message) : llvm::Error::success();
}

llvm::Error galvatron::addAdapters(mlir::ModuleOp module,
                                   const AdapterOptions &options) {
  mlir::galvatron::GalvatronAddAdaptersOptions passOptions;
  passOptions.rank = options.rank;
  passOptions.alpha = options.alpha;
  passOptions.layers = options.layers;
  auto message =
      runPasses(module, Verified::No, [&](mlir::OpPassManager &manager) {
        manager.addPass(
            mlir::galvatron::createGalvatronAddAdapters(passOptions));
      });
  return message ? makeError(*message) : llvm::Error::success();
}

llvm::Error galvatron::separateDocuments(mlir::ModuleOp module,
                                         int64_t length) {
  mlir::galvatron::GalvatronSeparateDocumentsOptions options;
  options.length = length;
  auto message =
      runPasses(module, Verified::No, [&](mlir::OpPassManager &manager) {
        manager.addPass(
            mlir::galvatron::createGalvatronSeparateDocuments(options));
      });
  return message ? makeError(*message) : llvm::Error::success();
}

llvm::Error galvatron::keepKeys(mlir::ModuleOp module, int64_t rows,
                                int64_t length) {
  mlir::galvatron::GalvatronKeepKeysOptions options;
  options.rows = rows;
  options.length = length;
  auto message =
      runPasses(module, Verified::No, [&](mlir::OpPassManager &manager) {
        manager.addPass(mlir::galvatron::createGalvatronKeepKeys(options));
      });
  return message ? makeError(*message) : llvm::Error::success();
}

bool galvatron::keepsDocumentsApart(mlir::ModuleOp module) {
  auto isStart = [](mlir::galvatron::DataAttr datum) {
    return datum.getKind() == mlir::galvatron::kDocumentStarts;
  };
  return llvm::any_of(module.getOps<mlir::galvatron::ModelOp>(),
                      [&](mlir::galvatron::ModelOp model) {
                        return llvm::any_of(model.getDeclaredData(), isStart);
                      });
}

llvm::Expected<PlannerResult>
galvatron::planModule(mlir::ModuleOp module, const Cluster &cluster,
                      const PlanRequest &request) {
  namespace ir = mlir::galvatron;
  // Footprints come from layers that are compiled on the side.
  module.getContext()->loadDialect<mlir::grt::GRTDialect>();
  auto message =
      runPasses(module, Verified::No, [&](mlir::OpPassManager &manager) {
        buildPhasePipeline(manager, Phase::Annotate);
      });
  if (message)
    return makeError(*message);

  auto clusterAttr = ir::ClusterAttr::get(module.getContext(), cluster);
  bool keep = request.keepPlan || request.given;
  if (keep && !request.given && ir::getCluster(module) &&
      ir::getCluster(module) != clusterAttr)
    return makeError("expected the plan's cluster '" +
                     ir::getCluster(module).getName() + "', found '" +
                     cluster.name() + "', which differs from it");
  module->setAttr(GalvatronDialect::kClusterAttr, clusterAttr);

  DiagnosticCollector diagnostics(*module.getContext());
  auto model = ir::createLayerModel(module, cluster);
  if (mlir::failed(model))
    return makeError(diagnostics.take("the model cannot be planned"));
  int64_t memory = request.planner.memory.value_or(0);
  PlannerOptions options = request.planner;
  options.training = ir::getTrainingOptions(module);
  options.toolVersion = GALVATRON_VERSION;
  llvm::Expected<PlannerResult> result =
      [&]() -> llvm::Expected<PlannerResult> {
    if (!keep)
      return planSpace(**model, cluster, options, request.amp);
    if (request.given) {
      if (request.given->layers.size() != (*model)->layerCount())
        return makeError(
            "expected a plan for " + llvm::Twine((*model)->layerCount()) +
            " layers, found " + llvm::Twine(request.given->layers.size()));
      for (auto [l, layer] : llvm::enumerate(request.given->layers))
        if (layer.name != (*model)->layerName(l))
          return makeError("expected layer " + llvm::Twine(l) +
                           " of the plan to be '" + (*model)->layerName(l) +
                           "' as in the model, found '" + layer.name + "'");
      ir::writePlan(module, *request.given, memory);
    }
    auto given = ir::readPlan(module, cluster);
    if (mlir::failed(given))
      return makeError(diagnostics.take("the module has no plan"));
    if (!memory)
      memory = ir::getPlan(module).getMemory();
    if (memory)
      options.memory = memory;
    options.batch = given->batch;
    given->objective = options.objective;
    return evaluate(**model, cluster, *given,
                    memory ? std::optional(memory) : std::nullopt);
  }();
  if (!result)
    return result;
  if (result->feasible() && request.inspect)
    if (llvm::Error error = request.inspect(**model, options, *result))
      return error;
  ir::emitDecisions(module.getLoc(), result->decisions);
  if (!result->feasible())
    return result;
  if (llvm::Error error =
          ir::writePricedPlan(module, **model, cluster, result->plan(), memory))
    return error;
  return result;
}

llvm::Error galvatron::runPhases(mlir::ModuleOp module, Phase from, Phase to) {
  // What becomes a program is proven as one (verifyProgram); MLIR's verifier is
  // for IR that is read again.
  const Verified verified = to < Phase::Emit ? Verified::Yes : Verified::No;
  auto message = runPasses(module, verified, [&](mlir::OpPassManager &manager) {
    buildPhasePipelines(manager, from, to);
  });
  return message ? llvm::make_error<CompileError>(*message)
                 : llvm::Error::success();
}

llvm::Error galvatron::verifyModule(mlir::ModuleOp module) {
  auto message = runPasses(module, Verified::Yes, [](mlir::OpPassManager &) {});
  return message ? llvm::make_error<CompileError>(*message)
                 : llvm::Error::success();
}

llvm::Error galvatron::compileProgram(mlir::ModuleOp module, Phase from,
                                      llvm::StringRef outputPath) {
  if (llvm::Error error = runPhases(module, from, Phase::Emit))
    return error;
  DiagnosticCollector diagnostics(*module.getContext());
  mlir::galvatron::ManifestOptions options;
  options.flopsPerSample = flopsPerSample(module);
  if (mlir::succeeded(
          mlir::galvatron::emitProgram(module, outputPath, options)))
    return llvm::Error::success();
  return llvm::make_error<CompileError>(
      diagnostics.take("the program cannot be written"));
}

llvm::Expected<PlannerResult>
galvatron::compileModel(mlir::ModuleOp module, const Cluster &cluster,
                        const TrainingOptions &training,
                        const PlanRequest &request,
                        llvm::StringRef outputPath) {
  if (llvm::Error error = applyTraining(module, training))
    return error;
  llvm::Expected<PlannerResult> result = planModule(module, cluster, request);
  if (!result || !result->feasible())
    return result;
  if (llvm::Error error = compileProgram(module, Phase::Plan, outputPath))
    return error;
  return result;
}
