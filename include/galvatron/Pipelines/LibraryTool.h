//===- LibraryTool.h - Tools whose main is MLIR's ---------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_PIPELINES_LIBRARYTOOL_H
#define GALVATRON_PIPELINES_LIBRARYTOOL_H

#include "llvm/ADT/StringRef.h"

namespace galvatron {

/// Prepares a tool's command line at the start of main, before passes are
/// registered: --version is ours, and --help fits a terminal and leaves out the
/// options that LLVM's code generators bring along, which do nothing here. They
/// are still taken, and --help-hidden shows them.
void prepareLibraryTool(llvm::StringRef name, int argc, char **argv);

} // namespace galvatron

#endif // GALVATRON_PIPELINES_LIBRARYTOOL_H
