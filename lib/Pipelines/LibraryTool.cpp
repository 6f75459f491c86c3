//===- LibraryTool.cpp - Tools whose main is MLIR's -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Pipelines/LibraryTool.h"

#include "llvm/Support/CommandLine.h"
#include "llvm/Support/raw_ostream.h"

namespace cl = llvm::cl;

void galvatron::prepareLibraryTool(llvm::StringRef name) {
  // What is there before any of MLIR's or ours is LLVM's.
  for (auto &[option, registered] : cl::getRegisteredOptions())
    if (!option.starts_with("help") && option != "version" &&
        registered->getOptionHiddenFlag() == cl::NotHidden)
      registered->setHiddenFlag(cl::Hidden);
  cl::SetVersionPrinter([tool = name.str()](llvm::raw_ostream &os) {
    os << tool << " " << GALVATRON_VERSION << "\n";
  });
}
