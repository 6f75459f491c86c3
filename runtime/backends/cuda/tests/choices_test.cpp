//===- choices_test.cpp - Algorithms that are tried, and kept -------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// How algorithms of products are chosen by times that the test makes up, and
// that what is written down is taken again.
//
//===----------------------------------------------------------------------===//

#include "choices.h"
#include "queries.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <thread>
#include <unistd.h>

std::string grt::cuda::gpu::deviceKind() { return "no device"; }

using namespace grt::cuda;

namespace {

constexpr ProductShape plain = {
    128, 64, 32, false, false, false, Epilogue::None, GRT_BF16, GRT_BF16, 256};
constexpr ProductShape fused = [] {
  ProductShape shape = plain;
  shape.epilogue = Epilogue::GeluGrad;
  return shape;
}();

/// A library that names algorithms 0, 1, ... of every shape.
class Library : public Products {
public:
  bool prepare(const ProductShape &shape) override {
    return named.count(shape) != 0;
  }
  bool run(const Queue &, const ProductShape &,
           const ProductBuffers &) override {
    return false;
  }
  std::vector<Algorithm> candidates(const ProductShape &shape) override {
    std::vector<Algorithm> all;
    for (int i = 0; i < named[shape]; ++i)
      all.push_back({{uint64_t(i)}, 4096});
    return all;
  }
  bool take(const ProductShape &shape, const Algorithm *algorithm) override {
    taken[shape] = algorithm ? int(algorithm->data[0]) : -1;
    return !algorithm || algorithm->data[0] != refused;
  }
  std::string version() const override { return "library 1"; }

  std::map<ProductShape, int> named, taken;
  uint64_t refused = 99;
};

class ChoicesTest : public testing::Test {
protected:
  ChoicesTest()
      : path(testing::TempDir() + "grt-choices-test-" +
             std::to_string(getpid())) {
    std::remove(path.c_str());
    library.named = {{plain, 3}, {fused, 3}};
    library.taken = {{plain, 0}, {fused, 0}};
  }
  ~ChoicesTest() override {
    std::remove(path.c_str());
    std::remove((path + ".lock").c_str());
  }

  /// Milliseconds of the call as it is set up: by the epilogue's algorithm, or
  /// by that of the product alone and a pass.
  double timed() {
    ++calls;
    int with = library.taken[fused], alone = library.taken[plain];
    return with >= 0 ? fusedTimes[size_t(with)]
                     : plainTimes[size_t(alone)] + pass;
  }
  void choose(const ProductShape &shape, const std::string &maker = "one") {
    Choices choices(maker, path);
    chooseAlgorithms(library, choices, shape, plain, [&] { return timed(); });
  }
  std::string content() const {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

  const std::string path;
  Library library;
  std::vector<double> fusedTimes{5, 4, 6}, plainTimes{3, 2, 2};
  double pass = 3;
  int calls = 0;
};

TEST_F(ChoicesTest, TheQuickestIsTaken) {
  choose(fused);
  // 4 with the epilogue, 2 + 3 without.
  EXPECT_EQ(library.taken[fused], 1);
  // Of two that take as long the first.
  EXPECT_EQ(library.taken[plain], 1);
  EXPECT_EQ(calls, 6);
}

TEST_F(ChoicesTest, WithoutTheEpilogueWhereThatIsQuicker) {
  pass = 1;
  choose(fused);
  EXPECT_EQ(library.taken[fused], -1);
  EXPECT_EQ(library.taken[plain], 1);
  EXPECT_NE(content().find("without-epilogue"), std::string::npos);
}

TEST_F(ChoicesTest, WhatIsKnownIsNotTriedAgain) {
  for (double passTime : {3.0, 1.0}) {
    std::remove(path.c_str());
    pass = passTime;
    choose(fused);
    auto chosen = library.taken;
    library.taken = {{plain, 0}, {fused, 0}};
    fusedTimes = {1, 9, 9};
    calls = 0;
    choose(fused);
    EXPECT_EQ(calls, 0);
    EXPECT_EQ(library.taken[fused], chosen[fused]);
    if (chosen[fused] < 0)
      EXPECT_EQ(library.taken[plain], chosen[plain]);
    fusedTimes = {5, 4, 6};
  }
}

TEST_F(ChoicesTest, AProductThatAnotherCallHasChosen) {
  choose(plain);
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(library.taken[plain], 0);
  // The whole call was timed with the epilogue: all as quick.
  library.taken[fused] = -1;
  std::remove(path.c_str());
  choose(plain);
  EXPECT_EQ(library.taken[plain], 1);
  calls = 0;
  choose(fused);
  // What is known of the product once, then each candidate of the epilogue.
  EXPECT_EQ(calls, 4);
  EXPECT_EQ(library.taken[fused], 1);
}

TEST_F(ChoicesTest, OtherMakersAreToldAndTriedAnew) {
  choose(fused, "one");
  calls = 0;
  testing::internal::CaptureStderr();
  choose(fused, "two");
  EXPECT_NE(testing::internal::GetCapturedStderr().find(
                "is of one, this is two: products are chosen anew"),
            std::string::npos);
  EXPECT_EQ(calls, 6);
  EXPECT_EQ(content().rfind("# products of two\n", 0), 0u);
}

TEST_F(ChoicesTest, AnAlgorithmThatIsRefusedIsToldAndTriedAnew) {
  choose(fused);
  library.refused = 1;
  calls = 0;
  testing::internal::CaptureStderr();
  choose(fused);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("it is chosen anew"),
            std::string::npos);
  EXPECT_GT(calls, 0);
  EXPECT_EQ(library.taken[fused], 0);
}

TEST_F(ChoicesTest, NoTimesLeaveTheLibrarysFirst) {
  fusedTimes = {-1, -1, -1};
  plainTimes = {-9, -9, -9};
  choose(fused);
  EXPECT_EQ(library.taken[fused], 0);
  EXPECT_EQ(library.taken[plain], 0);
  EXPECT_EQ(content(), "");
}

TEST_F(ChoicesTest, AnEpilogueThatTheLibraryLacks) {
  library.named[fused] = 0;
  library.taken[fused] = -1;
  choose(fused);
  EXPECT_EQ(library.taken[plain], 1);
  EXPECT_EQ(library.taken[fused], -1);
  EXPECT_EQ(calls, 3);
}

/// Two processes that both began without a file.
TEST_F(ChoicesTest, WhatAnotherProcessAddedIsTaken) {
  Choices ours("one", path);
  choose(fused);
  auto chosen = library.taken;
  library.taken = {{plain, 0}, {fused, 0}};
  fusedTimes = {1, 9, 9};
  calls = 0;
  chooseAlgorithms(library, ours, fused, plain, [&] { return timed(); });
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(library.taken[fused], chosen[fused]);
}

TEST_F(ChoicesTest, OneTriesAtATime) {
  Choices ours("one", path), theirs("one", path);
  std::atomic<bool> entered = false;
  std::thread other;
  {
    Choices::Held held = ours.hold();
    other = std::thread([&] {
      Choices::Held mine = theirs.hold();
      entered = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(entered);
  }
  other.join();
  EXPECT_TRUE(entered);
}

/// What a checkpoint held goes before the file, and is not measured.
TEST_F(ChoicesTest, WhatIsGivenGoesFirst) {
  Choices before("one", path);
  chooseAlgorithms(library, before, fused, plain, [&] { return timed(); });
  const auto chosen = library.taken;
  const std::string given = before.usedText();
  std::remove(path.c_str());
  // Another order of times, in a file of its own.
  fusedTimes = {1, 9, 9};
  choose(fused);
  ASSERT_NE(library.taken[fused], chosen.at(fused));
  const std::string file = content();

  Choices after("one", path);
  after.give(given);
  calls = 0;
  chooseAlgorithms(library, after, fused, plain, [&] { return timed(); });
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(library.taken[fused], chosen.at(fused));
  EXPECT_EQ(content(), file);
  // Without them, the file's.
  after.give("");
  chooseAlgorithms(library, after, fused, plain, [&] { return timed(); });
  EXPECT_EQ(library.taken[fused], 0);
}

/// Without a file nothing is tried: what was not given stays as prepared.
TEST_F(ChoicesTest, GivenWithoutAFile) {
  Choices before("one", path);
  chooseAlgorithms(library, before, plain, plain, [&] { return timed(); });
  chooseAlgorithms(library, before, fused, plain, [&] { return timed(); });
  const auto chosen = library.taken;
  library.taken = {{plain, 0}, {fused, 0}};
  calls = 0;
  Choices after("one", "");
  EXPECT_EQ(after.usedText(), "");
  chooseAlgorithms(library, after, fused, plain, [&] { return timed(); });
  EXPECT_EQ(after.usedText(), "");
  EXPECT_EQ(library.taken[fused], 0);
  after.give(before.usedText());
  chooseAlgorithms(library, after, fused, plain, [&] { return timed(); });
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(library.taken[plain], chosen.at(plain));
  EXPECT_EQ(library.taken[fused], chosen.at(fused));
  EXPECT_EQ(after.usedText(), before.usedText());

  // One that the library does not run any more: its first.
  library.refused = uint64_t(chosen.at(fused));
  testing::internal::CaptureStderr();
  chooseAlgorithms(library, after, fused, plain, [&] { return timed(); });
  EXPECT_NE(testing::internal::GetCapturedStderr().find("it is chosen anew"),
            std::string::npos);
  EXPECT_EQ(library.taken[fused], 0);
  EXPECT_EQ(calls, 0);

  // Of another device: none, which is said.
  Choices other("two", "");
  testing::internal::CaptureStderr();
  other.give(before.usedText());
  EXPECT_NE(testing::internal::GetCapturedStderr().find(
                "what the run before chose is of one, this is two"),
            std::string::npos);
  EXPECT_FALSE(other.find(fused));
  EXPECT_THROW(other.give("something"), DeviceError);
}

/// A checkpoint holds what its own products run by, not all of a file.
TEST_F(ChoicesTest, WhatWasUsed) {
  choose(fused);
  Choices after("one", path);
  EXPECT_EQ(after.usedText(), "");
  chooseAlgorithms(library, after, plain, plain, [&] { return timed(); });
  const std::string used = after.usedText();
  EXPECT_NE(used, "");
  EXPECT_LT(used.size(), after.text().size());
  EXPECT_EQ(after.text(), content());
}

TEST_F(ChoicesTest, MalformedFiles) {
  for (const char *text :
       {"something\n", "# products of one\n1 2 3\n",
        "# products of one\n1 2 3 0 0 0 9 2 2 256 = without-epilogue\n",
        "# products of one\n1 2 3 0 0 0 1 2 2 256 = without-epilogue x\n",
        "# products of one\n1 2 3 0 0 0 1 2 2 256 = 1 2 3 4 5 6 7 8\n",
        "# products of one\n1 2 3 0 0 0 1 2 2 256 : 1 2 3 4 5 6 7 8 9\n"}) {
    std::ofstream(path) << text;
    EXPECT_THROW(Choices("one", path), DeviceError) << text;
  }
  std::ofstream(path) << "# products of one\n"
                         "1 2 3 0 0 0 1 2 2 256 = 1 2 3 4 5 6 7 ff 9\n";
  Choices choices("one", path);
  EXPECT_EQ(choices.text(), content());
}

} // namespace
