//===- CommandLine.h - Command lines, and what --help prints ----*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Options are declared with llvm::cl. What is told of them is ours: help that
// fits a terminal, in the form of the runtime's tools, and errors of one line
// as others are. LLVM's parser writes its own past any stream that it is given,
// so that values are looked at before it sees them.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_SUPPORT_COMMANDLINE_H
#define GALVATRON_SUPPORT_COMMANDLINE_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/CommandLine.h"

#include <optional>
#include <string>

namespace galvatron {

/// The name, usage and description of a tool.
struct ToolText {
  llvm::StringRef name;
  llvm::StringRef usage;    ///< behind the name: "MODEL [options]"
  llvm::StringRef overview; ///< a sentence without a full stop
  llvm::StringRef exitCodes;
};

/// The text that --help prints: the options of `category` with values and
/// defaults. No line has more than 79 columns.
std::string helpOf(const ToolText &tool, llvm::cl::OptionCategory &category);

/// Wraps the help that LLVM prints of a tool's options to 79 columns: the text
/// of each begins in one column, and behind a longer option on its own line.
std::string wrapLibraryHelp(llvm::StringRef help);

/// Parses the command line of a tool whose options have `category`; those of
/// libraries stay hidden. Returns the exit code of a tool that is done: 0 for
/// --help and --version, 1 if standard output did not take them, 2 on wrong
/// usage, which is told on standard error. Nothing if the tool's work begins.
std::optional<int> parseCommandLine(const ToolText &tool,
                                    llvm::cl::OptionCategory &category,
                                    int argc, char **argv);

} // namespace galvatron

#endif // GALVATRON_SUPPORT_COMMANDLINE_H
