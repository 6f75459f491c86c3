//===- variables_test.cpp - The environment stays as it is ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "grt/session.h"
#include "grt/variables.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>
#include <unistd.h>
#include <vector>

using namespace grt;

namespace {

TEST(Variables, AreMissingUnlessTheUserSaysOtherwise) {
  auto missing = [](std::map<std::string, const char *> set) {
    std::string names;
    for (const LibraryVariable &variable :
         missingLibraryVariables([&](const char *name) -> const char * {
           auto at = set.find(name);
           return at == set.end() ? nullptr : at->second;
         }))
      names += variable.name + std::string("=") + variable.value + " ";
    return names;
  };
  const std::string order = "NCCL_LAUNCH_ORDER_IMPLICIT=1 ";
  EXPECT_EQ(missing({}), "GOMP_SPINCOUNT=1000 " + order);
  EXPECT_EQ(missing({{"GOMP_SPINCOUNT", "5"}}), order);
  EXPECT_EQ(missing({{"OMP_WAIT_POLICY", "passive"}}), order);
  EXPECT_EQ(missing({{"NCCL_LAUNCH_ORDER_IMPLICIT", "0"}}),
            "GOMP_SPINCOUNT=1000 ");
}

TEST(Variables, AreSetByToolsWhereTheUserDidNot) {
  setenv("GOMP_SPINCOUNT", "5", 1);
  setLibraryVariables();
  EXPECT_STREQ(std::getenv("GOMP_SPINCOUNT"), "5");
  unsetenv("GOMP_SPINCOUNT");
  unsetenv("OMP_WAIT_POLICY");
  setLibraryVariables();
  EXPECT_STREQ(std::getenv("GOMP_SPINCOUNT"), "1000");
}

#ifdef TEST_BACKENDS

std::vector<std::string> wholeEnvironment() {
  std::vector<std::string> result;
  for (char **entry = environ; *entry; ++entry)
    result.push_back(*entry);
  return result;
}

TEST(Variables, ASessionChangesNoneAndSaysOnceWhatIsMissing) {
  unsetenv("GOMP_SPINCOUNT");
  unsetenv("OMP_WAIT_POLICY");
  const std::vector<std::string> before = wholeEnvironment();
  std::shared_ptr<const Program> program;
  ASSERT_TRUE(Program::loadFile(TEST_BACKENDS "/bigram1.gvx", program));
  auto notesOf = [&](int threads) {
    SessionOptions options;
    options.threadsPerRank = threads;
    std::unique_ptr<Session> session;
    Status status = Session::create(program, options, session);
    EXPECT_TRUE(status) << status.message();
    return session ? session->notes() : std::vector<std::string>();
  };
  // One thread has no other to wait for.
  EXPECT_EQ(notesOf(1), std::vector<std::string>());
  std::vector<std::string> notes = notesOf(2);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("GOMP_SPINCOUNT is not set, so that OpenMP's threads "
                          "spin for milliseconds"),
            std::string::npos)
      << notes[0];
  EXPECT_EQ(notesOf(2), std::vector<std::string>());
  EXPECT_EQ(wholeEnvironment(), before);
}

#endif

} // namespace
