//===- AllocationTest.cpp - What steps take beside the arena --------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A plan names every byte that a rank works in. Once a program is loaded its
// steps on the CPU backend take nothing else: neither the heap nor the mapped
// memory of the process grows, whichever library takes it.
//
//===----------------------------------------------------------------------===//

#include "Twin.h"

#include "gtest/gtest.h"

#include <fstream>
#include <malloc.h>
#include <unistd.h>

using namespace galvatron;
using namespace galvatron::test;

// Sanitizers keep books of their own.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif

namespace {

/// Of this process, in bytes.
struct ProcessMemory {
  int64_t heap = 0;   ///< given out by malloc, in all its arenas
  int64_t mapped = 0; ///< writable and private, touched or not

  static ProcessMemory now() {
    struct mallinfo2 info = mallinfo2();
    // Fields of proc(5): size, resident, shared, text, lib, data.
    std::ifstream statm("/proc/self/statm");
    int64_t fields[6] = {};
    for (int64_t &field : fields)
      statm >> field;
    return {int64_t(info.uordblks + info.hblkhd),
            fields[5] * int64_t(sysconf(_SC_PAGESIZE))};
  }
};

class AllocationTest
    : public ::testing::TestWithParam<std::tuple<const char *, const char *>> {
protected:
  AllocationTest() { loadTwinDialects(context); }
  mlir::MLIRContext context;
};

TEST_P(AllocationTest, StepsTakeNothingBesideTheArena) {
#ifdef SANITIZED
  GTEST_SKIP() << "the sanitizer takes memory of its own";
#endif
  auto [dtype, strategy] = GetParam();
  // Products large enough that all codes for them pack or copy something.
  TwinModel model;
  model.positions = 64;
  model.width = 256;
  model.layers = 2;
  TwinOptions options;
  options.dtype = dtype;
  TwinPlan plan =
      uniformPlan(model, 1, llvm::cantFail(Strategy::parse(strategy)),
                  /*batch=*/8, /*microBatches=*/2, "1f1b");
  std::string bytes;
  ASSERT_EQ(compileTwin(context, model, plan, options, bytes), "");
  std::shared_ptr<const grt::Program> program;
  grt::Status status = grt::Program::loadMemory(bytes, "twin", program);
  ASSERT_TRUE(status) << status.message();
  grt::SessionOptions sessionOptions;
  sessionOptions.threadsPerRank = 1;
  sessionOptions.backendFolder = BACKEND_FOLDER;
  std::unique_ptr<grt::Session> session;
  status = grt::Session::create(program, sessionOptions, session);
  ASSERT_TRUE(status) << status.message();

  std::vector<int32_t> tokens(size_t(plan.batch * model.positions), 7);
  ASSERT_TRUE(session->setBatch(tokens, tokens));
  ProcessMemory before = ProcessMemory::now(), first;
  for (int step = 0; step < 3; ++step) {
    grt::StepResult result;
    ASSERT_TRUE(session->setBatch(tokens, tokens));
    status = session->step(result);
    ASSERT_TRUE(status) << status.message();
    if (step == 0)
      first = ProcessMemory::now();
  }
  ProcessMemory last = ProcessMemory::now();
  // The least product of this model packs more than this in one call.
  constexpr int64_t few = 16 * 1024;
  EXPECT_LE(last.heap - before.heap, few);
  EXPECT_LE(last.mapped - first.mapped, few);
  // oneDNN makes some code at its first call in a process, in bf16 in maps of
  // 512 KiB; a thread's scratch would be more.
  EXPECT_LE(first.mapped - before.mapped, 1024 * 1024);
}

INSTANTIATE_TEST_SUITE_P(
    Ranks, AllocationTest,
    ::testing::Combine(::testing::Values("f32", "f64", "bf16"),
                       ::testing::Values("single", "tp2.ckpt", "sdp2")));

} // namespace
