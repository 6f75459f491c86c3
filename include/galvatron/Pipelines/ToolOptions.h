//===- ToolOptions.h - Command line of the tools ----------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The command line that galvatron-import, galvatron-plan and galvatron-compile
// share. Exit codes: 0 done, 1 infeasible or failed, 2 wrong usage or invalid
// input.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_PIPELINES_TOOLOPTIONS_H
#define GALVATRON_PIPELINES_TOOLOPTIONS_H

#include "galvatron/Cost/ProfileLayerModel.h"
#include "galvatron/Pipelines/Compile.h"
#include "galvatron/Pipelines/PlanWatch.h"
#include "galvatron/Support/Threads.h"

#include "llvm/Support/CommandLine.h"

#include <optional>
#include <string>

namespace galvatron {

inline constexpr int kExitFailed = 1;
inline constexpr int kExitInvalid = 2;
/// The exit status that a shell gives for SIGPIPE.
inline constexpr int kExitClosedPipe = 141;

/// Name, version, and options that every tool has. Make one at the start of
/// main, before any option.
class Tool {
public:
  explicit Tool(llvm::StringRef name);

  llvm::cl::OptionCategory &category() { return options; }
  /// Parses the command line, see parseCommandLine: returns the exit code of a
  /// tool that is done, such as behind --help and on wrong usage.
  std::optional<int> parse(int argc, char **argv, llvm::StringRef usage,
                           llvm::StringRef overview);
  /// Prints an error and returns the exit code that belongs to it. That nobody
  /// reads standard output any more (`| head`) is no error to be told.
  int report(llvm::Error error) const;
  int report(llvm::StringRef message, int exitCode) const;
  /// Prints what the reader of a configuration has to tell.
  void tell(const ImportNotes &notes, llvm::StringRef fileName) const;

private:
  std::string name;
  llvm::cl::OptionCategory options;
};

/// The content of a file, or of standard input for "-".
llvm::Expected<std::string> readInput(llvm::StringRef path);
/// The file that a model's path names: of a folder its "config.json".
std::string modelFile(llvm::StringRef path);
/// Reads a plan JSON. Errors name the file; the JSON of an infeasible outcome
/// is one.
llvm::Expected<Plan> readPlanFile(llvm::StringRef path);
/// Standard output is a pipe that nobody reads any more.
class ClosedPipe : public llvm::ErrorInfo<ClosedPipe> {
public:
  static char ID;
  void log(llvm::raw_ostream &os) const override {
    os << "nobody reads standard output";
  }
  std::error_code convertToErrorCode() const override {
    return std::make_error_code(std::errc::broken_pipe);
  }
};

/// Writes a file, whole or not at all, or standard output for "-".
llvm::Error writeOutput(llvm::StringRef path, llvm::StringRef content);
/// Flushes standard output; the error says why it did not take everything.
llvm::Error flushStandardOutput();
/// tryOutput as an error: kExitInvalid for a wrong name, kExitFailed where the
/// storage fails.
llvm::Error checkOutput(llvm::StringRef path);

/// The files that a tool is told to read and write: none is written over one
/// that is read, nor twice.
class ToolFiles {
public:
  /// `path` may be another name than of a file; `option` is for messages.
  void reads(llvm::StringRef option, llvm::StringRef path);
  /// Also tries it, see checkOutput.
  llvm::Error writes(llvm::StringRef option, llvm::StringRef path);

private:
  struct Use {
    std::string option, path;
  };
  std::vector<Use> uses;
};

/// The model that is to be planned: a module, or the layers of a measured
/// profile.
struct LoadedModel {
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::unique_ptr<ProfileLayerModel> profile;
  std::string notice; ///< what the user should know of it, or empty
  ImportNotes notes;  ///< of the reader of a configuration
  /// Decisions made while the model was read, which belong to the plan.
  std::vector<std::string> records;
};

/// Options for where a model comes from.
struct ModelOptions {
  explicit ModelOptions(Tool &tool);

  llvm::cl::opt<std::string> model;
  llvm::cl::opt<int64_t> seqLen;
  llvm::cl::opt<int64_t> decoderSeqLen;
  llvm::cl::list<std::string> ignoreField;
  llvm::cl::opt<std::string> part;
  llvm::cl::opt<bool> splitBlocks;

  llvm::Expected<ImportOptions> importOptions() const;
  /// Does to a module that was read what the options ask for.
  llvm::Error apply(mlir::ModuleOp module) const;
};

/// A file that is to be written once a plan was printed.
struct OutputFile {
  std::string path; ///< "-": standard output
  std::string content;
};

/// Answers to questions about a plan, for the plan's JSON, for the terminal and
/// for files.
struct PlanAnswers {
  llvm::json::Object json;
  std::string text;
  std::vector<OutputFile> files;
};

/// Puts the records of a model among what the plan's JSON has.
void addRecords(PlanAnswers &answers, const LoadedModel &model);

/// Options of planning and training, and what they come to.
struct PlanOptions {
  explicit PlanOptions(Tool &tool);

  /// Text that options refer to.
  std::string spaceNames, scheduleNames, spaceHelp;
  llvm::cl::opt<std::string> cluster, memory, planFile, space, schedule,
      strategy, layers, partition, microBatchRule, optimizerTime, objective,
      placement, groups, devices, ringLink, paradigms, offload, hostMemory,
      keep;
  llvm::cl::opt<int64_t> batch, maxBatch, batchStep, pipelineDegree,
      microBatches, chunks, placementSeed;
  llvm::cl::opt<double> gap, timeLimit;
  llvm::cl::opt<int64_t> searchLimit; ///< million steps
  llvm::cl::opt<int64_t> threads;
  llvm::cl::opt<bool> keepDpSdp, blocksOfBlocks, selective, noSelective,
      allowDelayed, decisions;
  llvm::cl::opt<std::string> optimizer, dtype, clip, dropout;
  llvm::cl::opt<bool> decayAll;
  llvm::cl::opt<double> labelSmoothing, zLoss;
  llvm::cl::opt<std::string> adapters;
  llvm::cl::opt<std::string> documents;
  llvm::cl::opt<int64_t> documentLength; ///< tokens
  llvm::cl::opt<std::string> json;
  mutable PlanWatch watch; ///< begun by plannerOptions()
  /// The threads of the planner, begun by plannerOptions().
  mutable std::unique_ptr<Threads> planningThreads;

  /// The cluster's and the plan's files.
  void addInputs(ToolFiles &files) const;
  /// The plan of --plan, which is then obeyed instead of searched for; nothing
  /// if the option was not given.
  llvm::Expected<std::optional<Plan>> givenPlan() const;
  /// The paradigms of --paradigms; empty if the option was not given.
  llvm::Expected<std::vector<Paradigm>> givenParadigms() const;
  /// Reads the model; `training` gets what the command line says of it. With
  /// `estimate`, a configuration of a family that cannot be imported gives a
  /// profile estimated from its sizes.
  llvm::Expected<LoadedModel> load(const ModelOptions &options,
                                   mlir::MLIRContext &context,
                                   bool estimate) const;
  /// The training options of the command line on top of `base`.
  llvm::Expected<TrainingOptions> training(TrainingOptions base) const;
  /// Gives a module its training options. With `keep` they are those it was
  /// planned with, and the command line must agree; with a plan that is `given`
  /// they are that plan's, and module and command line must agree.
  llvm::Error applyTraining(mlir::ModuleOp module, bool keep,
                            const std::optional<Plan> &given = {}) const;
  /// Adds the adapters of --adapters. With `keep` the module was planned
  /// already, and must have them.
  llvm::Error applyAdapters(mlir::ModuleOp module, bool keep) const;
  /// Refuses values of --documents and --document-length that they do not have.
  llvm::Error checkDocuments() const;
  /// Keeps the documents of samples apart, if --documents says so. With `keep`
  /// the module was planned already and must be as the command line says.
  llvm::Error applyDocuments(mlir::ModuleOp module, bool keep) const;
  /// The cluster of the command line or of the module. With `keep` both must
  /// agree.
  llvm::Expected<Cluster> resolveCluster(mlir::ModuleOp module,
                                         bool keep) const;
  /// Returns the planner's options, which must not outlive this object. From
  /// here on the time limit counts, and Ctrl-C ends the search only.
  llvm::Expected<PlannerOptions> plannerOptions() const;
  /// The options that space 'amp' alone has.
  llvm::Expected<AmpOptions> ampOptions() const;
  /// Keeps, with --replan, the batch of the plan that is dropped, which belongs
  /// to the training and not to the plan, unless the command line says another.
  /// Says so on standard error.
  void keepBatch(mlir::ModuleOp module, PlannerOptions &planner) const;
  /// The first option given that asks for another plan; "" if there is none.
  std::string searchOption() const;

  /// Prints the table with the answers' text behind it and, if asked for, the
  /// decisions; then writes the plan JSON with the answers' keys and the
  /// answers' files. A file that cannot be written is reported and takes
  /// nothing from the others. Returns the exit code, kExitInterrupted for a
  /// plan of a search that Ctrl-C ended. The table goes to standard error if
  /// standard output is taken, as `stdoutTaken` says, or by the JSON.
  int printResult(const Tool &tool, const PlannerResult &result,
                  bool stdoutTaken, PlanAnswers answers = {}) const;
};

} // namespace galvatron

#endif // GALVATRON_PIPELINES_TOOLOPTIONS_H
