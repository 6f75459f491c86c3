//===- galvatron-import.cpp - Imports a model -----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Pipelines/ToolOptions.h"

#include "llvm/Support/raw_ostream.h"

using namespace galvatron;
namespace cl = llvm::cl;

int main(int argc, char **argv) {
  Tool tool("galvatron-import");
  ModelOptions options(tool);
  cl::opt<std::string> output("o", cl::desc("where to write the module"),
                              cl::value_desc("model.mlir"), cl::init("-"),
                              cl::cat(tool.category()));
  if (std::optional<int> code =
          tool.parse(argc, argv, "MODEL [options]",
                     "Imports a model: MODEL is a Hugging Face config.json"))
    return *code;
  if (options.model.empty())
    return tool.report("expected a model: a Hugging Face 'config.json'",
                       kExitInvalid);
  llvm::Expected<ImportOptions> import = options.importOptions();
  if (!import)
    return tool.report(import.takeError());
  std::string path = modelFile(options.model);
  ToolFiles files;
  files.reads("MODEL", path);
  if (llvm::Error error = files.writes("-o", output))
    return tool.report(std::move(error));
  llvm::Expected<std::string> content = readInput(path);
  if (!content)
    return tool.report(content.takeError());

  auto context = createCompilerContext();
  auto module = importHuggingFaceConfig(*content, path, *import, *context);
  if (!module)
    return tool.report(module.takeError());
  std::string text;
  llvm::raw_string_ostream(text) << **module << "\n";
  if (llvm::Error error = writeOutput(output, text))
    return tool.report(std::move(error));
  return 0;
}
