//===- parts_test.cpp - Hashes, random numbers, live ranges, ties ---------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "base/allocation.h"
#include "base/error.h"
#include "base/files.h"
#include "base/sha256.h"
#include "checkpoint/safetensors.h"
#include "core/arena.h"
#include "core/home.h"
#include "core/init.h"
#include "core/nearest.h"
#include "core/workers.h"
#include "grt/philox.h"
#include "grt/session.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <thread>

using namespace grt;

namespace {

std::string hex(std::string_view bytes) {
  std::string text;
  for (uint8_t byte : sha256(bytes)) {
    char pair[3];
    std::snprintf(pair, sizeof(pair), "%02x", byte);
    text += pair;
  }
  return text;
}

// The examples of FIPS 180-4, and lengths around the padding.
TEST(Sha256, KnownAnswers) {
  EXPECT_EQ(hex(""), "e3b0c44298fc1c149afbf4c8996fb924"
                     "27ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex("abc"), "ba7816bf8f01cfea414140de5dae2223"
                        "b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// The known answers published with Random123 for philox4x32-10.
TEST(Philox, KnownAnswers) {
  PhiloxBlock zeros = philox({0, 0}, 0, 0, 0, 0);
  EXPECT_EQ(zeros.lane[0], 0x6627e8d5u);
  EXPECT_EQ(zeros.lane[1], 0xe169c58du);
  EXPECT_EQ(zeros.lane[2], 0xbc57ac4cu);
  EXPECT_EQ(zeros.lane[3], 0x9b00dbd8u);
  PhiloxBlock ones = philox({~0u, ~0u}, ~0u, ~0u, ~0u, ~0u);
  EXPECT_EQ(ones.lane[0], 0x408f276du);
  EXPECT_EQ(ones.lane[1], 0x41c83b0eu);
  EXPECT_EQ(ones.lane[2], 0xa20bc7c6u);
  EXPECT_EQ(ones.lane[3], 0x6d5451fdu);
  PhiloxBlock pi = philox({0xa4093822u, 0x299f31d0u}, 0x243f6a88u, 0x85a308d3u,
                          0x13198a2eu, 0x03707344u);
  EXPECT_EQ(pi.lane[0], 0xd16cfe09u);
  EXPECT_EQ(pi.lane[1], 0x94fdccebu);
  EXPECT_EQ(pi.lane[2], 0x5001e420u);
  EXPECT_EQ(pi.lane[3], 0x24126ea1u);
}

Parameter normalParameter(const std::string &name) {
  Parameter parameter;
  parameter.name = name;
  parameter.shape = {1000, 1000};
  parameter.init = InitKind::Normal;
  parameter.std = 0.02;
  return parameter;
}

TEST(InitialValues, AreNormal) {
  constexpr int64_t count = 1000000;
  std::vector<double> values(count);
  initialValues(normalParameter("h.0.attn.c_attn.weight"), 1, 0, count, GRT_F64,
                values.data());
  double sum = 0, squares = 0, beyond = 0;
  for (double value : values) {
    sum += value;
    squares += value * value;
    beyond += std::abs(value) > 0.04;
  }
  EXPECT_NEAR(sum / count, 0, 0.02 * 5 / 1000);
  EXPECT_NEAR(std::sqrt(squares / count), 0.02, 1e-4);
  EXPECT_NEAR(beyond / count, 0.0455, 0.003);
}

TEST(InitialValues, DependOnNothingButSeedNameAndElement) {
  std::vector<float> whole(5000), part(5000), other(5000);
  initialValues(normalParameter("a"), 1, 0, 5000, GRT_F32, whole.data());
  std::mt19937 random(2);
  for (int64_t at = 0; at < 5000;) {
    int64_t count = std::min<int64_t>(5000 - at, int64_t(random() % 700));
    initialValues(normalParameter("a"), 1, at, count, GRT_F32,
                  part.data() + at);
    at += count;
  }
  EXPECT_EQ(whole, part);
  initialValues(normalParameter("b"), 1, 0, 5000, GRT_F32, other.data());
  EXPECT_NE(whole, other);
  initialValues(normalParameter("a"), 2, 0, 5000, GRT_F32, other.data());
  EXPECT_NE(whole, other);
}

// Results are the same with all instructions, and if an index outgrows 32 bits.
TEST(InitialValues, AreSumsOfPhilox) {
  PhiloxKey key = philoxKey(3, hashName("a"));
  for (uint64_t first : {uint64_t(0), (uint64_t(1) << 32) - 300}) {
    std::vector<double> values(700);
    initialValues(normalParameter("a"), 3, int64_t(first), 700, GRT_F64,
                  values.data());
    for (uint64_t i = 0; i < 700; ++i) {
      int64_t sum = 0;
      for (uint32_t third = 0; third < 3; ++third)
        for (uint32_t lane : philox(key, uint32_t(first + i),
                                    uint32_t((first + i) >> 32), third, 0)
                                 .lane)
          sum += lane >> 8;
      ASSERT_EQ(values[i], double(sum - 6 * ((1 << 24) - 1)) * (0.02 * 0x1p-24))
          << first + i;
    }
  }
  std::vector<IrwinHallSums> functions = irwinHallFunctions();
  for (uint64_t first : {uint64_t(5), (uint64_t(1) << 32) - 100}) {
    std::vector<int32_t> expected(irwinHallBlock), found(irwinHallBlock);
    for (int64_t i = 0; i < irwinHallBlock; ++i)
      for (uint32_t third = 0; third < 3; ++third)
        for (uint32_t lane :
             philox(key, uint32_t(first + uint64_t(i)),
                    uint32_t((first + uint64_t(i)) >> 32), third, 0)
                 .lane)
          expected[size_t(i)] += int32_t(lane >> 8);
    for (IrwinHallSums function : functions) {
      function(key, first, found.data());
      EXPECT_EQ(found, expected);
    }
  }
}

TEST(InitialValues, AreTheSameInSeveralPlaces) {
  std::vector<uint16_t> narrow(1000), narrowAlone(1000);
  std::vector<float> wide(1000), wideAlone(1000);
  initialValues(normalParameter("a"), 1, 77, 1000,
                {{GRT_BF16, narrow.data()}, {GRT_F32, wide.data()}});
  initialValues(normalParameter("a"), 1, 77, 1000, GRT_BF16,
                narrowAlone.data());
  initialValues(normalParameter("a"), 1, 77, 1000, GRT_F32, wideAlone.data());
  EXPECT_EQ(narrow, narrowAlone);
  EXPECT_EQ(wide, wideAlone);
}

// The definition of the Transformer's positions (Vaswani et al., arXiv
// 1706.03762), with all sines in front of all cosines; in f32, as libraries
// have them.
TEST(InitialValues, AreSinesThenCosines) {
  for (int64_t columns : {6, 5, 1}) {
    Parameter table;
    table.name = "positions";
    table.shape = {70, columns};
    table.init = InitKind::Sinusoids;
    std::vector<double> values(size_t(70 * columns));
    initialValues(table, 1, 0, 70 * columns, GRT_F64, values.data());
    const int64_t half = (columns + 1) / 2;
    for (int64_t row = 0; row < 70; ++row)
      for (int64_t column = 0; column < columns; ++column) {
        bool isSine = column < half;
        double rate =
            std::exp(-std::log(10000.0) * 2 *
                     double(isSine ? column : column - half) / double(columns));
        double angle = double(row) * rate;
        ASSERT_NEAR(values[size_t(row * columns + column)],
                    isSine ? std::sin(angle) : std::cos(angle), 1e-7)
            << row << ", " << column;
      }
    // A part of it, as of a rank that has a part of the rows.
    std::vector<float> part(40);
    initialValues(table, 2, 11, 40, GRT_F32, part.data());
    for (size_t i = 0; i < part.size(); ++i)
      ASSERT_EQ(part[i], values[i + 11]);
  }
}

TEST(Workers, ShareEveryLoopOnce) {
  Workers workers(4);
  for (int64_t count : {0, 1, 63, 64, 1000, 100000, 5}) {
    std::vector<std::atomic<int>> visits(static_cast<size_t>(count));
    std::atomic<int> parts{0};
    workers.share(count, 64, [&](int64_t first, int64_t last) {
      ++parts;
      for (int64_t i = first; i < last; ++i)
        ++visits[size_t(i)];
    });
    EXPECT_EQ(parts, std::clamp<int64_t>(count / 64, 1, 4)) << count;
    for (const std::atomic<int> &visit : visits)
      ASSERT_EQ(visit, 1) << count;
  }
}

// Written down once: a change here changes every seed's weights.
TEST(InitialValues, AreTheSameForever) {
  float values[3];
  initialValues(normalParameter("transformer.wte.weight"), 0, 0, 3, GRT_F32,
                values);
  EXPECT_EQ(values[0], 0x1.148186p-10f);
  EXPECT_EQ(values[1], 0x1.437276p-8f);
  EXPECT_EQ(values[2], -0x1.007d9ap-8f);
  double wide[3];
  initialValues(normalParameter("transformer.wte.weight"), 0, 0, 3, GRT_F64,
                wide);
  PhiloxKey key = philoxKey(0, hashName("transformer.wte.weight"));
  for (uint32_t i = 0; i < 3; ++i) {
    int64_t sum = 0;
    for (uint32_t third = 0; third < 3; ++third)
      for (uint32_t lane : philox(key, i, 0, third, 0).lane)
        sum += lane >> 8;
    double expected = double(sum - 6 * ((1 << 24) - 1)) / (1 << 24) * 0.02;
    EXPECT_NEAR(wide[i], expected, 1e-17);
    EXPECT_EQ(values[i], float(wide[i]));
  }
}

TEST(StoreValues, RoundsBf16ToNearestEven) {
  const double in[] = {1.0, 1.00390625, 1.01171875, -3.1415926, INFINITY};
  uint16_t bits[5];
  storeValues(in, 5, GRT_BF16, bits);
  EXPECT_EQ(bits[0], 0x3f80);
  EXPECT_EQ(bits[1], 0x3f80); // half way, down to even
  EXPECT_EQ(bits[2], 0x3f82); // half way, up to even
  EXPECT_EQ(bits[3], 0xc049);
  EXPECT_EQ(bits[4], 0x7f80);
  const double nan = NAN;
  storeValues(&nan, 1, GRT_BF16, bits);
  double back;
  loadValues(bits, 1, GRT_BF16, &back);
  EXPECT_TRUE(std::isnan(back));
}

TEST(LiveSet, CountsBytesOnce) {
  LiveSet live;
  live.begin(0, 100);
  live.begin(200, 50);
  EXPECT_EQ(live.liveBytes(), 150u);
  live.begin(50, 100); // half of it is live already
  EXPECT_EQ(live.liveBytes(), 200u);
  live.begin(0, 100); // all of it is
  EXPECT_EQ(live.liveBytes(), 200u);
  EXPECT_TRUE(live.end(0, 100));
  EXPECT_EQ(live.liveBytes(), 200u);
  EXPECT_TRUE(live.end(0, 100));
  EXPECT_EQ(live.liveBytes(), 150u);
  EXPECT_FALSE(live.end(0, 100));
  EXPECT_TRUE(live.end(50, 100));
  EXPECT_TRUE(live.end(200, 50));
  EXPECT_EQ(live.liveBytes(), 0u);
  EXPECT_EQ(live.peakBytes(), 200u);
}

TEST(LiveSet, AgreesWithCountingBytes) {
  std::mt19937 random(9);
  LiveSet live;
  std::vector<int> covered(500);
  std::vector<std::pair<uint64_t, uint64_t>> open;
  for (int round = 0; round < 3000; ++round) {
    if (open.empty() || random() % 2) {
      uint64_t at = random() % 400, bytes = 1 + random() % 100;
      live.begin(at, bytes);
      open.push_back({at, bytes});
      for (uint64_t i = at; i < at + bytes; ++i)
        ++covered[i];
    } else {
      size_t which = random() % open.size();
      auto [at, bytes] = open[which];
      open.erase(open.begin() + long(which));
      ASSERT_TRUE(live.end(at, bytes));
      for (uint64_t i = at; i < at + bytes; ++i)
        --covered[i];
    }
    uint64_t expected = 0;
    for (int count : covered)
      expected += count > 0;
    ASSERT_EQ(live.liveBytes(), expected);
  }
}

TEST(LiveSet, TellsWhatNobodyElseHolds) {
  std::vector<char> memory(300, 1);
  LiveSet live;
  live.begin(0, 200);
  live.begin(100, 200);
  EXPECT_TRUE(live.end(0, 200, [&](uint64_t from, uint64_t to) {
    std::fill(memory.begin() + long(from), memory.begin() + long(to),
              char(0xff));
  }));
  EXPECT_EQ(memory[99], char(0xff));
  EXPECT_EQ(memory[100], 1);
  size_t mark = live.mark();
  live.begin(0, 10);
  live.rewind(mark);
  EXPECT_EQ(live.liveBytes(), 200u);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(Allocation, CountsThisThreadsPeak) {
  beginAllocationCount();
  {
    // Kept where the compiler cannot know that nobody reads them.
    std::vector<char> large(100000), more(50000);
    char *volatile kept[] = {large.data(), more.data()};
    EXPECT_GE(allocationPeakBytes(), 150000u);
    EXPECT_EQ(kept[0][0], kept[1][0]);
  }
  void *volatile memory = std::malloc(1000);
  memory = std::realloc(memory, 120000);
  std::free(memory);
  EXPECT_LT(allocationPeakBytes(), 160000u);
  void *volatile aligned = std::aligned_alloc(64, 256000);
  std::free(aligned);
  EXPECT_GE(allocationPeakBytes(), 256000u);
  EXPECT_LT(allocationPeakBytes(), 270000u);
  // A block that cannot grow stays, and is counted on.
  beginAllocationCount();
  memory = std::malloc(100000);
  volatile size_t tooMuch = SIZE_MAX / 4;
  EXPECT_EQ(std::realloc(memory, tooMuch), nullptr);
  void *volatile beside = std::malloc(50000);
  EXPECT_GE(allocationPeakBytes(), 150000u);
  std::free(beside);
  std::free(memory);
  beginAllocationCount();
  std::thread([] { std::vector<char> elsewhere(100000); }).join();
  EXPECT_LT(allocationPeakBytes(), 10000u);
}
#endif

TEST(Files, WhatCannotBeReadOrMadeSaysWhy) {
  auto refusal = [](auto act) {
    try {
      act();
      return std::string();
    } catch (const Error &error) {
      return std::string(error.what());
    }
  };
  std::string path =
      testing::TempDir() + "grt-files-" + std::to_string(getpid());
  std::ofstream(path) << "12345";
  EXPECT_EQ(readWholeFile(path, 5), "12345");
  EXPECT_EQ(refusal([&] { readWholeFile(path, 4); }),
            "'" + path + "' has 5 bytes, expected at most 4");
  for (const std::string &wrong : {path, path + "/below"})
    EXPECT_EQ(refusal([&] { makeDirectory(wrong); }),
              "cannot make directory '" + wrong + "': Not a directory");
  std::filesystem::remove(path);
  EXPECT_EQ(makeDirectory(path + "/below"),
            (std::vector<std::string>{path + "/below", path}));
  EXPECT_TRUE(makeDirectory(path).empty());
  std::filesystem::remove_all(path);
}

TEST(AtomicFile, AppearsWholeOrNotAtAll) {
  std::string path = testing::TempDir() + "atomic";
  std::filesystem::remove(path);
  {
    AtomicFile file(path);
    file.write("half");
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_FALSE(std::filesystem::exists(path + ".tmp"));
  AtomicFile file(path);
  file.write("whole");
  file.commit();
  EXPECT_EQ(std::filesystem::file_size(path), 5u);
  EXPECT_THROW(AtomicFile("/nowhere/file"), Error);
}

/// A device that pins no more than four pages at once, and what it has pinned.
struct PinningDevice {
  static constexpr uint64_t most = 4 * HomeMemory::page;
  static inline std::map<void *, uint64_t> pinned;

  PinningDevice() {
    device.pin_host = [](void *memory, uint64_t bytes, char *, size_t) {
      return int32_t(bytes > most || !pinned.emplace(memory, bytes).second);
    };
    device.unpin_host = [](void *memory, uint64_t bytes) {
      if (auto found = pinned.find(memory);
          found != pinned.end() && found->second == bytes)
        pinned.erase(found);
    };
    backend.device = &device;
  }
  grt_device device{};
  grt_backend backend{};
};

TEST(HomeMemory, RangesAreUnpinnedAsTheyWerePinned) {
  constexpr uint64_t page = HomeMemory::page;
  PinningDevice on;
  {
    HomeMemory home(on.backend, 20 * page, 0);
    home.pin(0, 3 * page);
    home.pin(4 * page, 8 * page);
    EXPECT_EQ(on.pinned.size(), 2u);
    EXPECT_TRUE(home.isPinned(0, 3 * page));
    EXPECT_FALSE(home.isPinned(2 * page, 3 * page));
    // Half of what was asked for.
    EXPECT_TRUE(home.isPinned(4 * page, 4 * page));
    EXPECT_FALSE(home.isPinned(4 * page, 4 * page + 1));
    EXPECT_EQ(home.pageableBytes(), 4 * page);
  }
  EXPECT_TRUE(on.pinned.empty());
}

TEST(RankSwaps, AllKindsOfStatesCount) {
  RankSwaps swaps;
  swaps.parameters = {1, 20};
  swaps.gradients = {300, 4000};
  swaps.optimizer = {50000, 600000};
  swaps.activations = {7000000, 80000000};
  EXPECT_EQ(swaps.in(), 7050301u);
  EXPECT_EQ(swaps.out(), 80604020u);
}

TEST(Nearest, NameWithTheFewestEdits) {
  EXPECT_EQ(editDistance("", ""), 0u);
  EXPECT_EQ(editDistance("", "abc"), 3u);
  EXPECT_EQ(editDistance("abc", ""), 3u);
  EXPECT_EQ(editDistance("kitten", "sitting"), 3u);
  EXPECT_EQ(editDistance("--step", "--steps"), 1u);
  EXPECT_EQ(editDistance("ab", "ba"), 2u);
  // The nearest wherever it stands, the first of several.
  EXPECT_EQ(nearestName("--timeuot", {"--timeout", "--timeouts"}), "--timeout");
  EXPECT_EQ(nearestName("--timeuot", {"--timeouts", "--timeout"}), "--timeout");
  EXPECT_EQ(nearestName("axx", {"ayx", "axy"}), "ayx");
  // A third of the letters may be wrong, no more.
  EXPECT_EQ(nearestName("abcdef", {"abcdXY"}), "abcdXY");
  EXPECT_EQ(nearestName("abcdef", {"abcXYZ"}), "");
  EXPECT_EQ(nearestName("ab", {"ax"}), "");
  EXPECT_EQ(nearestName("abc", {}), "");
  EXPECT_EQ(unknownOption("--x", ""), "unknown option '--x'; see --help");
  EXPECT_EQ(unknownOption("--x", "--y"),
            "unknown option '--x'; did you mean '--y'?");
}

} // namespace
