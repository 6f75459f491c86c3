//===- kernel_list_test.cpp - The list of kernels -------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "grt/data_bounds.h"
#include "grt/kernel_checks.h"

#include "../backends/common/call.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <string_view>
#include <vector>

using namespace grt;

namespace {

std::string accessesOf(uint32_t kernel, std::vector<int64_t> ints,
                       size_t given = 16) {
  std::string text;
  for (const KernelBuffer &buffer :
       buffersOf(kernel, ints.data(), ints.size(), given)) {
    constexpr const char *letters[] = {"r", "w", "rw", "a", "s"};
    text += std::string(text.empty() ? "" : " ") + buffer.name + ":" +
            letters[size_t(buffer.access)];
  }
  return text;
}

std::string integersOf(uint32_t kernel) {
  std::string text;
  for (const KernelInt &integer : kernelInts(kernel))
    text += std::string(text.empty() ? "" : " ") + integer.name;
  return text;
}

/// The numbers are those of programs that were compiled long ago.
TEST(KernelList, NamesAndNumbers) {
  EXPECT_EQ(int(GRT_KERNEL_GEMM), 0);
  EXPECT_EQ(int(GRT_KERNEL_ZERO), 20);
  EXPECT_EQ(int(GRT_KERNEL_SOFTMAX_CROSS_ENTROPY), 51);
  EXPECT_EQ(int(GRT_KERNEL_SHAPED_ATTENTION_GRAD), 57);
  EXPECT_EQ(int(GRT_KERNEL_CACHED_ATTENTION), 58);
  EXPECT_EQ(int(GRT_KERNEL_RING_ATTENTION_GRAD), 68);
  EXPECT_EQ(int(GRT_KERNEL_CACHED_CROSS_ATTENTION), 70);
  EXPECT_STREQ(kernelForms[GRT_KERNEL_GEMM].name, "gemm");
  EXPECT_STREQ(kernelForms[GRT_KERNEL_LAYER_NORM_ADD_GRAD].name,
               "layer-norm-add-grad");
  std::set<std::string> names;
  for (const KernelForm &form : kernelForms)
    EXPECT_TRUE(names.insert(form.name).second) << form.name;
}

/// Programs are printed before anything has checked them.
TEST(KernelList, BuffersOfAnyIntegers) {
  for (int64_t any : {INT64_MIN, int64_t(-1), INT64_MAX})
    for (uint32_t kernel = 0; kernel < GRT_KERNEL_COUNT; ++kernel) {
      const std::vector<int64_t> ints(kernelInts(kernel).size(), any);
      for (const KernelBuffer &buffer :
           buffersOf(kernel, ints.data(), ints.size(), 16)) {
        EXPECT_GE(buffer.reach(), 0) << kernelForms[kernel].name;
        EXPECT_GE(buffer.most(), buffer.reach()) << kernelForms[kernel].name;
      }
    }
}

TEST(KernelList, IntegersHaveTheOrderOfTheAbi) {
  EXPECT_EQ(integersOf(GRT_KERNEL_GEMM), "M N K transA transB acc hasBias");
  EXPECT_EQ(integersOf(GRT_KERNEL_EMBEDDING_GRAD),
            "rows width localRows sharded acc padding tokenRows balanced");
  EXPECT_EQ(integersOf(GRT_KERNEL_BIASED_ATTENTION),
            "samples Tq Tk heads kvHeads headDim qStride kStride vStride "
            "causal opIndex window biasHeads hasMask hasStarts headsOfBlocks");
  EXPECT_EQ(integersOf(GRT_KERNEL_SHAPED_ATTENTION),
            "samples Tq Tk heads kvHeads headDim qStride kStride vStride "
            "causal opIndex window hasMask hasStarts headsOfBlocks");
  EXPECT_EQ(integersOf(GRT_KERNEL_ATTENTION),
            "samples Tq Tk heads kvHeads headDim qStride kStride vStride "
            "causal opIndex window hasMask hasStarts length balanced "
            "headsOfBlocks");
  EXPECT_EQ(integersOf(GRT_KERNEL_OPTIMIZER),
            "optimizer shardElements segments");
  EXPECT_EQ(integersOf(GRT_KERNEL_ZERO), "");

  const int64_t ints[] = {5, 6, 7, 1, 2};
  const auto named = intsOf<kernels::EmbeddingGrad>(ints, 5);
  EXPECT_EQ(named.rows, 5);
  EXPECT_EQ(named.acc, 2);
  EXPECT_EQ(named.padding, -1) << "of a call that does not name it";
}

TEST(KernelList, Accesses) {
  EXPECT_EQ(accessesOf(GRT_KERNEL_LAYER_NORM_GRAD, {4, 8, 2}),
            "dy:r x:r stats:r gamma:r dx:w dgamma:a dbeta:a");
  EXPECT_EQ(accessesOf(GRT_KERNEL_GEMM, {4, 4, 4, 0, 0, 0, 0}),
            "a:r b:r c:a scratch:s");
  EXPECT_EQ(accessesOf(GRT_KERNEL_GEMM, {4, 4, 4, 0, 0, 0, 1}, 4),
            "a:r b:r c:a bias:r");
  EXPECT_EQ(accessesOf(GRT_KERNEL_CROSS_ENTROPY, {4, 8, 8, 0, 1}),
            "logits:r labels:rw stats:r dlogits:w loss:w");
  // Calls of earlier compilers end before the mask's flag.
  std::vector<int64_t> attention(12, 1);
  EXPECT_EQ(accessesOf(GRT_KERNEL_ATTENTION, attention),
            "q:r k:r v:r o:w lse:w scratch:s");
  attention.push_back(1);
  EXPECT_EQ(accessesOf(GRT_KERNEL_ATTENTION, attention),
            "q:r k:r v:r o:w lse:w scratch:s mask:r");
  EXPECT_EQ(accessesOf(GRT_KERNEL_CACHED_ATTENTION,
                       {2, 3, 9, 4, 2, 8, 32, 16, 16, 0}),
            "q:r k:r v:r keys:rw values:rw row:r position:r o:w");
  EXPECT_EQ(accessesOf(GRT_KERNEL_CACHED_ATTENTION,
                       {2, 3, 9, 4, 2, 8, 32, 16, 16, 0, 1, 4, 17}),
            "q:r k:r v:r keys:rw values:rw row:r position:r o:w bias:r");
  EXPECT_EQ(kernelForms[GRT_KERNEL_DROPOUT].stepUse, StepUse::Reads);
  EXPECT_EQ(kernelForms[GRT_KERNEL_NORM].stepUse, StepUse::AddsNorm);
  EXPECT_EQ(kernelForms[GRT_KERNEL_GEMM].stepUse, StepUse::None);
}

TEST(KernelList, EveryKernelIsWhole) {
  for (uint32_t kernel = 0; kernel < GRT_KERNEL_COUNT; ++kernel) {
    SCOPED_TRACE(kernelForms[kernel].name);
    std::set<std::string> names;
    bool adds = false, isOptional = false;
    for (const KernelBuffer &buffer : buffersOf(kernel, nullptr, 0, 16)) {
      EXPECT_TRUE(names.insert(buffer.name).second) << buffer.name;
      adds |= buffer.access == Access::Accumulate;
      EXPECT_FALSE(isOptional) << "what a call may lack is the last";
      isOptional = buffer.isOptional;
    }
    bool hasAcc = false, mayEnd = false;
    for (const KernelInt &integer : kernelInts(kernel)) {
      EXPECT_TRUE(names.insert(integer.name).second) << integer.name;
      EXPECT_LE(integer.least, integer.most) << integer.name;
      EXPECT_TRUE(integer.isOptional || !mayEnd) << integer.name;
      hasAcc |= std::string(integer.name) == "acc";
      mayEnd = integer.isOptional;
    }
    EXPECT_EQ(hasAcc, adds);
    EXPECT_LE(kernelForms[kernel].ints, int(kernelInts(kernel).size()));
  }
}

/// A balanced block that is cut again, balanced, gives balanced blocks of all
/// rows: number `block * sharers + i`.
TEST(Blocks, BlocksOfABalancedBlockAreBalanced) {
  for (int64_t ranks : {2, 3})
    for (int64_t sharers : {2, 3, 4})
      for (int64_t index = 0; index < ranks * sharers; ++index) {
        grt_coordinates at = {};
        at.block_index = index / sharers;
        at.block_count = ranks;
        at.tp_index = index % sharers;
        at.tp_size = sharers;
        grt_call call = {};
        call.coordinates = &at;
        const int64_t own = 6, whole = own * sharers;
        auto numbersOf = [&](int64_t rows, int64_t ofBlock) {
          std::vector<int64_t> numbers;
          CallReader(call).forEachRowPiece(
              rows, /*balanced=*/1,
              [&](const auto &piece) {
                for (int64_t row = 0; row < piece.count; ++row)
                  numbers.push_back(piece.number + row);
              },
              ofBlock);
          return numbers;
        };
        const std::vector<int64_t> block = numbersOf(whole, 0);
        const std::vector<int64_t> found = numbersOf(own, 1);
        ASSERT_EQ(int64_t(found.size()), own);
        for (int64_t row = 0; row < own; ++row) {
          const int64_t half = own / 2;
          const int64_t piece =
              row < half ? at.tp_index : 2 * sharers - 1 - at.tp_index;
          EXPECT_EQ(found[size_t(row)],
                    block[size_t(piece * half + row % half)])
              << index << " of " << ranks * sharers;
        }
      }
}

/// Queries of all samples are on one rank each, and of causal attention every
/// rank executes as many pairs of a query and a key, whatever the number of
/// samples, and blocks that begin inside them.
TEST(Blocks, BalancedOnesHaveEqualWork) {
  for (int64_t samples : {1, 2, 3, 5})
    for (int64_t ranks : {2, 3, 4, 8}) {
      SCOPED_TRACE(std::to_string(samples) + " samples on " +
                   std::to_string(ranks));
      const int64_t length = 48, rows = samples * length / ranks;
      std::vector<int> seen(size_t(samples * length));
      std::vector<int64_t> pairs(size_t(ranks), 0);
      for (int64_t rank = 0; rank < ranks; ++rank) {
        grt_coordinates at = {};
        at.block_index = rank;
        at.block_count = ranks;
        grt_call call = {};
        call.coordinates = &at;
        int64_t next = 0;
        CallReader(call).forEachRowRun(
            rows, length, /*balanced=*/1, [&](const auto &run) {
              EXPECT_EQ(run.row, next);
              next += run.count;
              for (int64_t i = 0; i < run.count; ++i) {
                ++seen[size_t(run.sample * length + run.first + i)];
                pairs[size_t(rank)] += run.first + i + 1;
              }
            });
        EXPECT_EQ(next, rows);
        EXPECT_EQ(pairs[size_t(rank)] * ranks,
                  samples * length * (length + 1) / 2);
      }
      EXPECT_EQ(seen, std::vector<int>(seen.size(), 1));
    }
}

/// Masks have two values: other integers in their place would hide keys at
/// random.
TEST(KernelList, MasksHaveTwoValues) {
  int masks = 0;
  for (uint32_t kernel = 0; kernel < GRT_KERNEL_COUNT; ++kernel) {
    // Every flag is 1, so that every buffer is there.
    const std::vector<int64_t> ones(kernelInts(kernel).size(), 1);
    const KernelBuffers buffers =
        buffersOf(kernel, ones.data(), ones.size(), 16);
    for (size_t i = 0; i < buffers.size(); ++i) {
      const bool isMask = std::string_view(buffers[i].name) == "mask";
      masks += isMask;
      if (isMask) {
        EXPECT_EQ(valuesToldApart(kernel, ones.data(), ones.size(), i, 1), 2)
            << kernelForms[kernel].name;
      }
    }
  }
  EXPECT_GE(masks, 8);
}

} // namespace
