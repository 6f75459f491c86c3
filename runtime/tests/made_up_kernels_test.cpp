//===- made_up_kernels_test.cpp - Another list by the same macros ---------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What is made of a list, and what is checked of calls, without any kernel of
// ours. Nothing else of the runtime is linked, whose list is another one.
//
//===----------------------------------------------------------------------===//

#define GRT_KERNEL_LIST "made_up_kernels.def"
#include "grt/kernel_checks.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

using namespace grt;

namespace {

static_assert(GRT_KERNEL_FOLD == 0 && GRT_KERNEL_TALLY_UP == 1 &&
              GRT_KERNEL_SCALED == 2 && GRT_KERNEL_COUNT == 3);

/// A call that can be changed.
struct Call {
  uint32_t kernel;
  std::vector<grt_buffer> buffers;
  std::vector<int64_t> ints;
  std::vector<double> reals;

  std::string wrong() const {
    const grt_kernel_op op = {kernel,
                              uint32_t(buffers.size()),
                              uint32_t(ints.size()),
                              uint32_t(reals.size()),
                              buffers.data(),
                              ints.data(),
                              reals.data(),
                              "test"};
    return wrongWith(op, kernelForms[kernel].name);
  }
  Call with(size_t i, int64_t value) const {
    Call changed = *this;
    changed.ints[i] = value;
    return changed;
  }
  Call with(size_t i, uint32_t dtype, uint64_t bytes) const {
    Call changed = *this;
    changed.buffers[i].dtype = dtype;
    changed.buffers[i].bytes = bytes;
    return changed;
  }
};

/// Two samples of 5 rows of 3 elements, 8 apart; folds of 2 rows.
const Call fold = {
    GRT_KERNEL_FOLD,
    {{0, GRT_BF16, 0, (9 * 8 + 3) * 2}, {0, GRT_F32, 0, 2 * 2 * 3 * 4}},
    {2, 5, 3, 8, 2, 0, 2, 0, 6},
    {0.5, 1, 2}};
const Call tally = {
    GRT_KERNEL_TALLY_UP, {{0, GRT_F64, 0, 100}}, {12, 2, 0, 4, 1, 4, 8, 0}, {}};

/// A row of scales for 3 rows, and one scale for 5 columns.
const Call scaled = {GRT_KERNEL_SCALED,
                     {{0, GRT_U8, 0, 3 * 7},
                      {0, GRT_U8, 64, 7 * 5},
                      {0, GRT_BF16, 128, 3 * 5 * 2},
                      {0, GRT_F32, 192, 3 * 4},
                      {0, GRT_F32, 256, 4}},
                     {3, 5, 7, 1, 0, 0, 1},
                     {}};

TEST(MadeUpKernels, Tables) {
  EXPECT_STREQ(kernelForms[GRT_KERNEL_TALLY_UP].name, "tally-up");
  const KernelForm &form = kernelForms[GRT_KERNEL_FOLD];
  EXPECT_EQ(form.buffers, 2);
  EXPECT_EQ(form.ints, 8);
  EXPECT_EQ(form.reals, 1);
  EXPECT_EQ(form.typed, kernels::Fold::x);
  EXPECT_EQ(form.stepUse, StepUse::Reads);
  EXPECT_EQ(accOf(GRT_KERNEL_FOLD, fold.ints.data(), fold.ints.size()), 2);
  EXPECT_EQ(accOf(GRT_KERNEL_TALLY_UP, tally.ints.data(), 2), 0);
  const auto n = intsOf<kernels::Fold>(fold.ints.data(), 8);
  EXPECT_EQ(n.stride, 8);
  EXPECT_EQ(n.seed, 7) << "of a call that does not name it";
  EXPECT_EQ(int(kernels::Fold::scratch), 3);
  EXPECT_EQ(int(kernels::Fold::weight), 1);
}

TEST(MadeUpKernels, RightCalls) {
  EXPECT_EQ(fold.wrong(), "");
  Call shorter = fold;
  shorter.ints.pop_back();
  EXPECT_EQ(shorter.wrong(), "");
  // Rows end with the columns that stand behind them, at most.
  EXPECT_EQ(fold.with(0, GRT_BF16, 10 * 8 * 2).wrong(), "");
  Call padded = fold.with(5, 1).with(1, GRT_F32, 2 * 3 * 3 * 4);
  EXPECT_EQ(padded.wrong(), "");
  Call masked = fold.with(7, 1);
  masked.buffers.push_back({0, GRT_I32, 0, 40});
  EXPECT_EQ(masked.wrong(), "");
  masked.buffers.push_back({0, GRT_U8, 0, 1});
  EXPECT_EQ(masked.wrong(), "") << "with scratch";
  EXPECT_EQ(tally.wrong(), "");
}

TEST(MadeUpKernels, WrongCalls) {
  for (const auto &[call, expected] : std::vector<std::pair<Call, std::string>>{
           {fold.with(0, -1),
            "expected a number that is not negative for 'samples', found -1"},
           {fold.with(5, 2), "expected 0 or 1 for 'padded', found 2"},
           {fold.with(6, 3), "expected 0, 1 or 2 for 'acc', found 3"},
           {fold.with(8, 4),
            "expected a number from 5 to 9 for 'seed', found 4"},
           {fold.with(4, 0), "a fold has positions, found 0 and 5"},
           {fold.with(3, 9), "programs have even rows, found 9 and 3"},
           {fold.with(4, 3), "expected 4 reals for kernel 'fold', found 3"},
           {fold.with(7, 1), "expected 3 buffers for kernel 'fold', found 2"},
           {fold.with(2, 4), "expected at least 152 bytes and at most 160 "
                             "in 'x', found 150"},
           {fold.with(0, GRT_BF16, 162),
            "expected at least 150 bytes and at most 160 in 'x', found "
            "162"},
           {fold.with(0, GRT_I32, 300),
            "expected floating point elements in 'x', found 'i32'"},
           {fold.with(0, 9, 300),
            "expected elements of a known type in 'x', found type 9"},
           {fold.with(1, GRT_BF16, 24),
            "expected 'f32' elements in 'y', found 'bf16'"},
           {fold.with(1, GRT_F32, 52), "expected 48 bytes in 'y', found 52"},
           {tally.with(0, GRT_F64, 88),
            "expected at least 96 bytes in 'counts', found 88"},
           {tally.with(1, 3), "expected 9 integers for 3 segments, found 6"},
           {tally.with(1, mostSize),
            "expected 6917529027641081853 integers for 2305843009213693951 "
            "segments, found 6"},
           {tally.with(0, INT64_MAX),
            "expected a number from 0 to 2305843009213693951 for 'n', found "
            "9223372036854775807"},
           {tally.with(4, 2), "expected segments of a begin, a length and a "
                              "flag 0 or 1, found [0, 4, 2]"},
           {tally.with(5, 3),
            "expected segments behind each other, found [3, 8, 0]"},
       })
    EXPECT_EQ(call.wrong(), expected);
  Call call = fold;
  call.buffers.push_back({0, GRT_F32, 0, 4});
  EXPECT_EQ(call.wrong(), "expected 'i8' elements in 'scratch', found 'f32'");
  call = fold;
  call.ints.resize(7);
  EXPECT_EQ(call.wrong(), "expected 9 integers for kernel 'fold', found 7");
  // Sizes whose product no integer holds.
  call = fold.with(0, mostSize).with(1, mostSize);
  EXPECT_NE(call.wrong().find("in 'x', found 150"), std::string::npos);
}

/// Products of scaled operands have both operands' types and scales beside
/// them, of which every size and every mode is held against the buffers.
TEST(MadeUpKernels, ScaledOperands) {
  EXPECT_EQ(scaled.wrong(), "");
  EXPECT_EQ(scaled.with(4, 1).with(4, GRT_F32, 5 * 4).wrong(), "");
  // Each operand is of either type.
  EXPECT_EQ(scaled.with(5, 1).with(6, 0).wrong(), "");
  for (const auto &[call, expected] : std::vector<std::pair<Call, std::string>>{
           {scaled.with(3, 0), "expected 4 bytes in 'aScale', found 12"},
           {scaled.with(4, 1), "expected 20 bytes in 'bScale', found 4"},
           {scaled.with(2, 8), "expected 24 bytes in 'a', found 21"},
           {scaled.with(6, 2), "expected 0 or 1 for 'bType', found 2"},
           {scaled.with(1, GRT_BF16, 7 * 5 * 2),
            "expected 'i8' elements in 'b', found 'bf16'"},
           {scaled.with(4, GRT_BF16, 2),
            "expected 'f32' elements in 'bScale', found 'bf16'"}})
    EXPECT_EQ(call.wrong(), expected);
}

} // namespace
