//===- CommandLineTest.cpp - What --help prints ---------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Support/CommandLine.h"

#include "gtest/gtest.h"

using namespace galvatron;
namespace cl = llvm::cl;

namespace {

TEST(CommandLine, HelpHasValuesAndDefaultsInLinesOfATerminal) {
  cl::OptionCategory category("help test");
  cl::opt<int64_t> number("help-test-number", cl::init(8), cl::value_desc("N"),
                          cl::desc("a number"), cl::cat(category));
  cl::opt<bool> flag("help-test-flag", cl::desc("a flag"), cl::cat(category));
  cl::opt<std::string> file("help-test-a-long-name-of-a-file",
                            cl::ValueOptional, cl::value_desc("FILE"),
                            cl::desc("where it goes"), cl::cat(category));
  std::string values = "one";
  for (int i = 0; i < 20; ++i)
    values += "|value-" + std::to_string(i);
  cl::opt<std::string> list("help-test-list", cl::value_desc(values),
                            cl::init("one"), cl::desc("one of many"),
                            cl::cat(category));
  std::string text =
      helpOf({"tool", "MODEL [options]", "Does something with MODEL", "0 done"},
             category);
  EXPECT_EQ(text, R"(usage: tool MODEL [options]

Does something with MODEL.

  --help-test-a-long-name-of-a-file[=FILE]
                            where it goes
  --help-test-flag          a flag
  --help-test-list=one|value-0|value-1|value-2|value-3|value-4|value-5|value-6|
    value-7|value-8|value-9|value-10|value-11|value-12|value-13|value-14|
    value-15|value-16|value-17|value-18|value-19
                            one of many (default: one)
  --help-test-number=N      a number (default: 8)
  --version, --help

Options are --NAME=VALUE or --NAME VALUE.

exit codes: 0 done
)");
}

TEST(CommandLine, HelpOfLibrariesIsWrapped) {
  std::string words = "words";
  for (int i = 0; i < 20; ++i)
    words += " and words";
  std::string text = wrapLibraryHelp(
      "OVERVIEW: a tool\n\nOPTIONS:\n\n"
      "  --short          - a text\n"
      "    --much-longer-than-the-column=<string> -   " +
      words + "\n    =value       -   what it does\n  plain " + words + "\n");
  EXPECT_EQ(text, R"(OVERVIEW: a tool

OPTIONS:

  --short                   a text
    --much-longer-than-the-column=<string>
                            words and words and words and words and words and
                            words and words and words and words and words and
                            words and words and words and words and words and
                            words and words and words and words and words and
                            words
    =value                  what it does
  plain words and words and words and words and words and words and words and
  words and words and words and words and words and words and words and words
  and words and words and words and words and words and words
)");
}

} // namespace
