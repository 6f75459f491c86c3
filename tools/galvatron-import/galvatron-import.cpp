//===- galvatron-import.cpp - Imports a model -----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Check.h"

#include "galvatron/Pipelines/SoftwareModel.h"
#include "galvatron/Software/Document.h"
#include "galvatron/Software/Target.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

using namespace galvatron;
namespace cl = llvm::cl;

/// Gives the target the sizes of `model`, a file of its own, where the
/// software's files have none. Errors: a model too many or too few, or that of
/// its file.
static llvm::Error addModel(const Tool &tool, Target &target,
                            llvm::StringRef model,
                            const ModelOptions &options) {
  if (target.filesNameModel()) {
    if (model.empty())
      return llvm::Error::success();
    return makeError("option --from: files of '" + target.name() +
                     "' say the model's sizes: expected one file, found '" +
                     model + "' behind it");
  }
  if (model.empty())
    return makeError("option --from: files of '" + target.name() +
                     "' say no model: expected its config.json or shape behind "
                     "the file");
  llvm::Expected<SoftwareModel> sizes = readSoftwareModel(model, options);
  if (!sizes)
    return sizes.takeError();
  tool.tell(sizes->notes, modelFile(model));
  target.setModel(std::move(sizes->shape));
  return llvm::Error::success();
}

/// `--from=`: another software's file as a shape with its configuration, or as
/// a module that has both as its attribute.
static int importFrom(const Tool &tool, llvm::StringRef from,
                      const ModelOptions &options, llvm::StringRef model,
                      llvm::StringRef output) {
  llvm::StringRef path = options.model;
  llvm::Expected<SoftwareRequest> request = SoftwareRequest::parse(from);
  if (!request)
    return tool.report("option --from: " + llvm::toString(request.takeError()),
                       kExitInvalid);
  if (request->execution)
    return tool.report("option --from: an execution has no files",
                       kExitInvalid);
  auto target = TargetRegistry::make(*request);
  if (!target)
    return tool.report("option --from: " + llvm::toString(target.takeError()),
                       kExitInvalid);
  if (llvm::Error error = addModel(tool, **target, model, options))
    return tool.report(std::move(error));
  ToolFiles files;
  files.reads("FILE", path);
  if (llvm::Error error = files.writes("-o", output))
    return tool.report(std::move(error));
  llvm::Expected<std::string> content = readInput(path);
  if (!content)
    return tool.report(content.takeError());
  llvm::Expected<SoftwareReading> reading = (*target)->read(*content, path);
  if (!reading)
    return tool.report(reading.takeError());
  if (!reading->passed.empty())
    llvm::errs() << "galvatron-import: " << path
                 << ": passed over, as no time or memory depends on them: "
                 << llvm::join(reading->passed, " ") << "\n";
  if (!reading->unread.empty())
    llvm::errs() << "galvatron-import: " << path
                 << ": not read, as the file does not say what is in it: "
                 << llvm::join(reading->unread, " ") << "\n";
  llvm::errs() << "galvatron-import: " << path << ": "
               << reading->configuration.str() << " on " << reading->devices
               << " devices\n";
  SoftwareDocument document{reading->shape, reading->configuration};
  std::string text = llvm::formatv("{0:2}\n", document.toJson());
  if (output.ends_with(".mlir")) {
    auto context = createCompilerContext();
    auto module = softwareModule(document, path, *context);
    if (!module)
      return tool.report(module.takeError());
    text.clear();
    llvm::raw_string_ostream(text) << **module << "\n";
  }
  if (llvm::Error error = writeOutput(output, text))
    return tool.report(std::move(error));
  return 0;
}

int main(int argc, char **argv) {
  Tool tool("galvatron-import");
  ModelOptions options(tool);
  cl::opt<std::string> output("o", cl::desc("where to write the module"),
                              cl::value_desc("model.mlir"), cl::init("-"),
                              cl::cat(tool.category()));
  cl::opt<bool> check("check",
                      cl::desc("say of each file whether it is executed, "
                               "planned from an estimate or refused, and why"),
                      cl::cat(tool.category()));
  cl::opt<std::string> from(
      "from",
      cl::desc("read a file of other training software: its sizes and plan"),
      cl::value_desc("NAME"), cl::cat(tool.category()));
  cl::list<std::string> more(cl::Positional, cl::desc("[MODEL..]"),
                             cl::cat(tool.category()));
  if (std::optional<int> code = tool.parse(
          argc, argv, "MODEL | --check MODEL.. | --from=NAME FILE [MODEL]",
          "Imports a model: MODEL is a Hugging Face config.json"))
    return *code;
  if (options.model.empty())
    return tool.report("expected a model: a Hugging Face 'config.json'",
                       kExitInvalid);
  if (from.getNumOccurrences()) {
    bool configures = options.seqLen.getNumOccurrences() ||
                      options.splitBlocks ||
                      options.ignoreField.getNumOccurrences();
    if (check || more.size() > 1 || (more.empty() && configures))
      return tool.report("option --from: expected one file, and the model "
                         "behind it where the file says none",
                         kExitInvalid);
    return importFrom(tool, from, options, more.empty() ? "" : more.front(),
                      output);
  }
  llvm::Expected<ImportOptions> import = options.importOptions();
  if (!import)
    return tool.report(import.takeError());
  if (check) {
    std::vector<std::string> models = {options.model};
    models.insert(models.end(), more.begin(), more.end());
    return checkFiles(tool, models, *import);
  }
  if (!more.empty())
    return tool.report("expected one model, or --check, found '" +
                           options.model + "' and '" + more.front() + "'",
                       kExitInvalid);
  std::string path = modelFile(options.model);
  ToolFiles files;
  files.reads("MODEL", path);
  if (llvm::Error error = files.writes("-o", output))
    return tool.report(std::move(error));
  llvm::Expected<std::string> content = readInput(path);
  if (!content)
    return tool.report(content.takeError());

  auto context = createCompilerContext();
  ImportNotes notes;
  auto module =
      importHuggingFaceConfig(*content, path, *import, *context, &notes);
  if (!module)
    return tool.report(module.takeError());
  tool.tell(notes, path);
  if (llvm::Error error = options.apply(**module))
    return tool.report(std::move(error));
  std::string text;
  llvm::raw_string_ostream(text) << **module << "\n";
  if (llvm::Error error = writeOutput(output, text))
    return tool.report(std::move(error));
  return 0;
}
