//===- LibraryTool.cpp - Tools whose main is MLIR's -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Pipelines/LibraryTool.h"

#include "galvatron/Support/CommandLine.h"
#include "galvatron/Support/OutputFile.h"

#include "mlir/IR/MLIRContext.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/raw_ostream.h"

#include <cstdio>
#include <cstdlib>
#include <unistd.h>

namespace cl = llvm::cl;

namespace {

/// LLVM's parser prints help or version and ends the process. So that it can be
/// wrapped, standard output is a file until then.
struct HelpCapture {
  std::string tool;
  int standardOutput = -1;
  FILE *file = nullptr;
} capture;

/// At exit, while `llvm::outs()` is still there.
void printCapturedHelp() {
  llvm::outs().flush();
  std::string help;
  char bytes[4096];
  std::rewind(capture.file);
  while (size_t got = std::fread(bytes, 1, sizeof(bytes), capture.file))
    help.append(bytes, got);
  dup2(capture.standardOutput, STDOUT_FILENO);
  std::error_code code =
      galvatron::writeWhole("-", galvatron::wrapLibraryHelp(help));
  if (!code)
    return;
  llvm::errs() << capture.tool
               << ": error: cannot write standard output: " << code.message()
               << "\n";
  _exit(1);
}

void captureHelp(llvm::StringRef name) {
  llvm::outs(); // made before, and so destroyed behind, what is done at exit
  capture.tool = name.str();
  capture.standardOutput = dup(STDOUT_FILENO);
  capture.file = std::tmpfile();
  if (capture.standardOutput < 0 || !capture.file)
    return; // lines are long, then
  dup2(fileno(capture.file), STDOUT_FILENO);
  std::atexit(printCapturedHelp);
}

} // namespace

void galvatron::prepareLibraryTool(llvm::StringRef name, int argc,
                                   char **argv) {
  if (llvm::any_of(llvm::ArrayRef(argv, argc).drop_front(),
                   [](llvm::StringRef argument) {
                     return argument == "-h" || argument == "-help" ||
                            argument == "--version" ||
                            argument.starts_with("--help");
                   }))
    captureHelp(name);
  // What is there before any of MLIR's or ours is LLVM's.
  for (auto &[option, registered] : cl::getRegisteredOptions())
    if (!option.starts_with("help") && option != "version" &&
        registered->getOptionHiddenFlag() == cl::NotHidden)
      registered->setHiddenFlag(cl::Hidden);
  // The operation of an error is its line in the file that was given; printed
  // in full, it would be the whole module as often as not.
  mlir::registerMLIRContextCLOptions();
  auto &known = cl::getRegisteredOptions();
  if (auto it = known.find("mlir-print-op-on-diagnostic"); it != known.end())
    static_cast<cl::opt<bool> *>(it->second)->setInitialValue(false);
  cl::SetVersionPrinter([tool = name.str()](llvm::raw_ostream &os) {
    os << tool << " " << GALVATRON_VERSION << "\n";
  });
}
