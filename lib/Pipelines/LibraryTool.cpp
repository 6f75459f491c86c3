//===- LibraryTool.cpp - Tools whose main is MLIR's -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Pipelines/LibraryTool.h"

#include "mlir/IR/MLIRContext.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/raw_ostream.h"

namespace cl = llvm::cl;

void galvatron::prepareLibraryTool(llvm::StringRef name) {
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
