//===- Compile.h - From a model to a program --------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The way from a model to a program as functions, for the tools and for tests
// that compile and run in one process. Nothing here reads or writes a file,
// except for the program itself.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_PIPELINES_COMPILE_H
#define GALVATRON_PIPELINES_COMPILE_H

#include "galvatron/Baselines/Baselines.h"
#include "galvatron/Cluster/Cluster.h"
#include "galvatron/Dialect/Galvatron/Transforms/Phase.h"
#include "galvatron/Import/HuggingFace.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/IR/OwningOpRef.h"

#include <functional>
#include <optional>

namespace galvatron {

using mlir::galvatron::Phase;

/// A compilation that failed although its input was valid; every other error of
/// these functions means wrong usage or invalid input.
class CompileError : public llvm::ErrorInfo<CompileError> {
public:
  static char ID;
  explicit CompileError(std::string message) : message(std::move(message)) {}
  void log(llvm::raw_ostream &os) const override { os << message; }
  std::error_code convertToErrorCode() const override {
    return llvm::inconvertibleErrorCode();
  }

private:
  std::string message;
};

/// A context with every dialect registered and without threads of its own.
std::unique_ptr<mlir::MLIRContext> createCompilerContext();

/// Makes MLIR's verifier run behind every pass of this process from here on.
/// Without this it runs where IR comes in and where it leaves: on a model that
/// is read or imported, behind the last phase of runPhases() in front of
/// `emit`, and in verifyModule(). What becomes a program is proven as one.
void verifyAfterEachPass();

/// Reads a model: IR (text or bytecode) or a Hugging Face configuration, which
/// is imported. Errors say file and line.
llvm::Expected<mlir::OwningOpRef<mlir::ModuleOp>>
loadModel(llvm::StringRef content, llvm::StringRef fileName,
          const ImportOptions &options, mlir::MLIRContext &context,
          ImportNotes *notes = nullptr);

/// Makes layers of the parts of blocks (galvatron-split-blocks). Errors: a
/// module that is planned already, or has no layer that can be split.
llvm::Error splitBlocks(mlir::ModuleOp module);

/// Sets the training options of a module and gives its bodies their types
/// (galvatron-apply-training).
llvm::Error applyTraining(mlir::ModuleOp module,
                          const TrainingOptions &training);

/// Low-rank adapters, as `--adapters` says: `rank=16,alpha=32,layers=NAMES`, or
/// `from=DIR`, a folder with an adapter_config.json of PEFT.
struct AdapterOptions {
  int64_t rank = 8;
  double alpha = 0;   ///< what they add is scaled by alpha / rank
  std::string layers; ///< modules, see galvatron-add-adapters
  std::string from;   ///< has these instead, if not empty

  /// Reads the value of an option. Without `alpha` it is twice the rank.
  static llvm::Expected<AdapterOptions> parse(llvm::StringRef text);
};

/// Returns the adapters that `directory` has of a module's model: those modules
/// that adapter_config.json names by PEFT's rules, with a rank and an alpha
/// each.
llvm::Expected<AdapterOptions> readAdapterConfig(llvm::StringRef directory,
                                                 mlir::ModuleOp module);

/// Adds adapters to a module (galvatron-add-adapters).
llvm::Error addAdapters(mlir::ModuleOp module, const AdapterOptions &options);

/// Keeps the documents of a module's samples apart
/// (galvatron-separate-documents). `length` is their mean length in tokens,
/// each token counting once, which costs go by; 0: that of a sample.
llvm::Error separateDocuments(mlir::ModuleOp module, int64_t length);
/// Whether that was done.
bool keepsDocumentsApart(mlir::ModuleOp module);

/// The sizes that `--generate=batch,prompt,length` gives a program.
struct GenerateOptions {
  int64_t rows = 1;   ///< texts at a time
  int64_t prompt = 0; ///< tokens of a prompt; 0: all are the model's
  int64_t length = 0; ///< tokens behind it

  /// Reads the value of the option, which may be empty.
  static llvm::Expected<GenerateOptions> parse(llvm::StringRef text);
};

/// Makes a module generate with kept keys and values (galvatron-keep-keys), so
/// many positions of so many texts.
llvm::Error keepKeys(mlir::ModuleOp module, int64_t rows, int64_t length);
llvm::Error keepKeys(mlir::ModuleOp module, const GenerateOptions &options);
/// Whether that was done.
bool keepsKeys(mlir::ModuleOp module);
/// The paradigms of layers of a module that generates.
std::vector<Paradigm> generatingParadigms();
/// Error: a plan under which ranks have the keys of some rows only.
llvm::Error checkGenerates(const Plan &plan);

struct PlanRequest {
  /// Search options. `training` and `toolVersion` are taken from the module and
  /// this build.
  PlannerOptions planner;
  AmpOptions amp;
  /// Price the plan that the module has instead of searching one. A memory in
  /// `planner` replaces that of the plan.
  bool keepPlan = false;
  /// A plan to write into the module before it is priced, as if it had been
  /// edited by hand.
  std::optional<Plan> given;
  /// Sees every feasible outcome with the layers' costs behind it, which do not
  /// outlive planModule, before the plan goes into the module. The options are
  /// those under which it can be planned again: those above, or, for a plan
  /// that was kept, its batch and memory.
  std::function<llvm::Error(LayerModel &, const PlannerOptions &,
                            PlannerResult &)>
      inspect = nullptr;
};

/// Annotates the module, and plans it for `cluster`. On success the plan is in
/// the module; an infeasible outcome leaves its plan as it was. Decisions also
/// go out as remarks.
llvm::Expected<PlannerResult> planModule(mlir::ModuleOp module,
                                         const Cluster &cluster,
                                         const PlanRequest &request);

/// Takes a module that is through the phase `from` to the phase `to`, at most
/// `lower`; planning is planModule's. What it leaves in front of `emit` is
/// verified. Errors are CompileErrors.
llvm::Error runPhases(mlir::ModuleOp module, Phase from, Phase to);

/// Runs MLIR's verifier on a module that is about to be printed. Errors are
/// CompileErrors.
llvm::Error verifyModule(mlir::ModuleOp module);

/// Writes the program of a module that is through `from` (`plan` or later, at
/// most `allocate`) to `outputPath`.
llvm::Error compileProgram(mlir::ModuleOp module, Phase from,
                           llvm::StringRef outputPath);

/// Trains, plans and compiles in one. If the outcome is infeasible nothing is
/// written.
llvm::Expected<PlannerResult> compileModel(mlir::ModuleOp module,
                                           const Cluster &cluster,
                                           const TrainingOptions &training,
                                           const PlanRequest &request,
                                           llvm::StringRef outputPath);

} // namespace galvatron

#endif // GALVATRON_PIPELINES_COMPILE_H
