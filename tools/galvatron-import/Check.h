//===- Check.h - What can be had of configurations --------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_TOOLS_GALVATRONIMPORT_CHECK_H
#define GALVATRON_TOOLS_GALVATRONIMPORT_CHECK_H

#include "galvatron/Pipelines/ToolOptions.h"

namespace galvatron {

/// Prints a line for each file: `executed`, with the exact number of
/// parameters; `planned`, from an estimate and with what it assumes; or
/// `refused`, with the reason. Returns the exit code: kExitFailed if a file is
/// refused.
int checkFiles(const Tool &tool, llvm::ArrayRef<std::string> files,
               const ImportOptions &options);

} // namespace galvatron

#endif // GALVATRON_TOOLS_GALVATRONIMPORT_CHECK_H
