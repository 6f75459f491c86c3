//===- options_test.cpp - One table of options ----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "options.h"
#include "straggler.h"

#include "gtest/gtest.h"

#include <set>
#include <sstream>

namespace {

TEST(Options, HelpHasThoseThatAreParsed) {
  std::vector<std::string> parsed = parsedOptions(), helped = helpedOptions();
  std::set<std::string> expected(parsed.begin(), parsed.end());
  expected.erase("-h");
  EXPECT_EQ(std::set<std::string>(helped.begin(), helped.end()), expected);
  EXPECT_EQ(helped.size(), expected.size()) << "an option stands twice";
}

TEST(Options, HelpFitsATerminal) {
  std::istringstream lines(helpText());
  for (std::string line; std::getline(lines, line);)
    EXPECT_LE(line.size(), 79u) << line;
}

TEST(Straggler, IsNamedOnceAfterTwoWindows) {
  StragglerWatch watch;
  auto work = [](double slow) {
    // The others of its stage wait for rank 2; stage 1 has less to do.
    return std::vector<grt::RankWork>{{0, 0, slow}, {1, 0, slow}, {2, 0, 0.1},
                                      {3, 0, slow}, {4, 1, 7},    {5, 1, 7.1}};
  };
  EXPECT_EQ(watch.look(work(0.5), 10, 50), "");
  EXPECT_EQ(watch.look(work(0.5), 10, 50), "");
  EXPECT_EQ(watch.look(work(5), 10, 50), "") << "one window may be chance";
  EXPECT_EQ(watch.look(work(5), 10, 50),
            "straggler: rank 2 works 198 ms a step, the others of its stage "
            "100 ms (median); they wait for it");
  EXPECT_EQ(watch.look(work(5), 10, 50), "") << "once";
  EXPECT_EQ(watch.look(work(0.5), 10, 50), "");
  EXPECT_EQ(watch.look(work(5), 10, 50), "");
  EXPECT_NE(watch.look(work(5), 10, 50), "") << "it is slow again";
}

} // namespace
