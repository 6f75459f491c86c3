//===- ProgramTablesTest.cpp - Rows of programs from modules --------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TestModules.h"

#include "galvatron/Target/Program.h"

using namespace galvatron::testing;

namespace gvx = grt::gvx;

namespace {

class ProgramTablesTest : public ModuleTest {
protected:
  /// The error at the module's first wrong operation.
  std::string refusalOf(const std::string &text) {
    auto module = parse(text);
    EXPECT_TRUE(bool(module));
    std::string message;
    mlir::ScopedDiagnosticHandler handler(&context,
                                          [&](mlir::Diagnostic &diagnostic) {
                                            message = diagnostic.str();
                                            return mlir::success();
                                          });
    gvx::ProgramBuilder program;
    EXPECT_TRUE(mlir::failed(mlir::galvatron::addTables(*module, program)));
    return message;
  }
};

const char *const layer = R"mlir(
    grt.layer "a" {index = 0 : i64, strategy = #galvatron.strategy<[tp = 2]>, samples = 4 : i64, forward = @f, backward = @f, tensors = [],
      groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>, #galvatron.flat_group<elements = 0, shard_elements = 0>],
      input_bytes = 128 : i64, output_bytes = 128 : i64, stash_bytes = 0 : i64}
  })mlir";

const std::string text = std::string(R"mlir(
  grt.func @f {
    %x = grt.buffer input at 0 : memref<4x8xf32>
    %t = grt.buffer transient at 64 : memref<4x8xf32>
    %y = grt.buffer output at 0 : memref<4x8xf32>
    grt.begin %t : memref<4x8xf32>
    grt.kernel scale(%x, %t) ints [32] reals [2.5] {label = "twice and a bit"} : memref<4x8xf32>, memref<4x8xf32>
    grt.all_reduce %t over tp : memref<4x8xf32>
    %v = grt.view %t at 8 : memref<4x8xf32> to memref<4x2xf32>
    %w = grt.view %y at 0 : memref<4x8xf32> to memref<4x2xf32>
    grt.kernel copy(%v, %w) ints [4, 8, 32, 8] : memref<4x2xf32>, memref<4x2xf32>
    grt.end %t : memref<4x8xf32>
  }
  grt.func @g {
    %p = grt.buffer parameter at 0 : memref<8xf32>
    %s = grt.buffer stash at 0 : memref<2x8xf32>
    grt.record 0 on compute
    grt.wait 0 on gather
    grt.all_gather %p to %s over sdp on gather : memref<8xf32> to memref<2x8xf32>
    grt.record 1 on gather
    grt.wait 1 on compute
  }
  grt.role @stage0 stage 0 devices [0, 1] slots 1 {)mlir") +
                         layer + R"mlir(
  grt.schedule @stage0.schedule role @stage0 {
    grt.part steady {
      grt.task forward micro_batch 3 slot 0
      grt.task transfer recv_activation 2 send_gradient 1 slot 0
      grt.task backward micro_batch 3 slot 0 sync_behind
    }
    grt.part step_end {
      grt.task norm
    }
  })mlir";

/// A buffer as region, element type, offset, bytes.
std::vector<uint64_t> numbers(const grt_buffer &buffer) {
  return {buffer.region, buffer.dtype, buffer.offset, buffer.bytes};
}

TEST_F(ProgramTablesTest, every_call_is_a_row) {
  auto module = parse(text);
  ASSERT_TRUE(bool(module));
  gvx::ProgramBuilder program;
  ASSERT_TRUE(mlir::succeeded(mlir::galvatron::addTables(*module, program)));
  const gvx::Tables &t = program.tables;
  ASSERT_EQ(t.functions.size(), 2u);
  EXPECT_EQ(t.functions[1].calls.first, 5u);
  std::string kinds;
  for (const gvx::Call &call : t.calls)
    kinds += std::to_string(uint32_t(call.kind));
  EXPECT_EQ(kinds, "30104"
                   "22122");
  // A strided operand is given all the bytes that the kernel reaches: two
  // columns of four rows end 104 bytes behind the start of the view.
  std::vector<std::vector<uint64_t>> buffers;
  for (const grt_buffer &buffer : t.buffers)
    buffers.push_back(numbers(buffer));
  const std::vector<std::vector<uint64_t>> expected = {
      {GRT_REGION_TRANSIENT, GRT_F32, 64, 128},
      {GRT_REGION_INPUT, GRT_F32, 0, 128},
      {GRT_REGION_TRANSIENT, GRT_F32, 64, 128},
      {GRT_REGION_TRANSIENT, GRT_F32, 72, 104},
      {GRT_REGION_OUTPUT, GRT_F32, 0, 32},
      {GRT_REGION_TRANSIENT, GRT_F32, 64, 128}};
  EXPECT_EQ(buffers, expected);
  EXPECT_EQ(t.integers, (std::vector<int64_t>{32, 4, 8, 32, 8}));
  EXPECT_EQ(t.reals, std::vector<double>{2.5});
  ASSERT_EQ(t.kernels.size(), 2u);
  EXPECT_EQ(t.kernels[0].kernel, uint32_t(GRT_KERNEL_SCALE));
  EXPECT_STREQ(t.names.c_str() + t.kernels[0].name, "twice and a bit");
  EXPECT_STREQ(t.names.c_str() + t.kernels[1].name, "copy");
  ASSERT_EQ(t.collectives.size(), 2u);
  EXPECT_EQ(t.collectives[0].axis, uint32_t(GRT_AXIS_TP));
  EXPECT_EQ(t.collectives[1].collective, uint32_t(GRT_ALL_GATHER));
  EXPECT_EQ(t.collectives[1].stream, uint32_t(GRT_STREAM_GATHER));
  EXPECT_EQ(numbers(t.collectives[1].out),
            (std::vector<uint64_t>{GRT_REGION_STASH, GRT_F32, 0, 64}));
  ASSERT_EQ(t.events.size(), 4u);
  EXPECT_EQ(t.events[1].event, 0u);
  EXPECT_EQ(t.events[1].stream, uint32_t(GRT_STREAM_GATHER));
  EXPECT_EQ(t.events[1].wait, 1u);
}

/// Counts are a buffer of their own, and calls that wait for texts say so.
TEST_F(ProgramTablesTest, counts_largest_values_and_texts) {
  auto module = parse(R"mlir(
  grt.func @f {
    %x = grt.buffer input at 0 : memref<4x8xf32>
    %c = grt.buffer data at 64 : memref<2x2xi32>
    %y = grt.buffer output at 0 : memref<8x8xf32>
    grt.all_to_all_counts %x to %y by %c units 32 over tp : memref<4x8xf32> to memref<8x8xf32> by memref<2x2xi32>
    grt.all_reduce_max %y over tp {grt.texts_begin} : memref<8x8xf32>
  })mlir");
  ASSERT_TRUE(bool(module));
  gvx::ProgramBuilder program;
  ASSERT_TRUE(mlir::succeeded(mlir::galvatron::addTables(*module, program)));
  const gvx::Tables &t = program.tables;
  ASSERT_EQ(t.collectives.size(), 2u);
  EXPECT_EQ(t.collectives[0].collective, uint32_t(GRT_ALL_TO_ALL_COUNTS));
  EXPECT_EQ(t.collectives[0].argument, 32);
  EXPECT_EQ(t.collectives[1].collective, uint32_t(GRT_ALL_REDUCE_MAX));
  EXPECT_EQ(t.collectives[1].argument, 0);
  ASSERT_EQ(t.buffers.size(), 1u);
  EXPECT_EQ(numbers(t.buffers[0]),
            (std::vector<uint64_t>{GRT_REGION_DATA, GRT_I32, 64, 16}));
  ASSERT_EQ(t.calls.size(), 2u);
  EXPECT_EQ(t.calls[0].when, gvx::CallWhen::Always);
  EXPECT_EQ(t.calls[1].when, gvx::CallWhen::TextsBegin);
}

TEST_F(ProgramTablesTest, every_task_is_a_row) {
  auto module = parse(text);
  ASSERT_TRUE(bool(module));
  gvx::ProgramBuilder program;
  ASSERT_TRUE(mlir::succeeded(mlir::galvatron::addTables(*module, program)));
  const gvx::Tables &t = program.tables;
  ASSERT_EQ(t.roles.size(), 1u);
  EXPECT_EQ(t.roles[0].parts[GRT_PART_STEADY].count, 3u);
  EXPECT_EQ(t.roles[0].parts[GRT_PART_STEP_END].first, 3u);
  EXPECT_EQ(t.roles[0].parts[GRT_PART_STEP_END].count, 1u);
  ASSERT_EQ(t.tasks.size(), 4u);
  EXPECT_EQ(t.tasks[0].micro_batch, 3u);
  EXPECT_EQ(t.tasks[1].kind, GRT_TASK_TRANSFER);
  EXPECT_EQ(t.tasks[1].count, 2u);
  EXPECT_EQ(t.tasks[2].flags, GRT_SYNC_BEHIND);
  EXPECT_EQ(t.tasks[3].kind, GRT_TASK_NORM);
  ASSERT_EQ(t.transfers.size(), 2u);
  EXPECT_EQ(t.transfers[0].direction, GRT_SEND);
  EXPECT_EQ(t.transfers[0].value, GRT_GRADIENT);
  EXPECT_EQ(t.transfers[0].micro_batch, 1u);
  EXPECT_EQ(t.transfers[1].direction, GRT_RECEIVE);
  EXPECT_EQ(t.transfers[1].value, GRT_ACTIVATION);
}

TEST_F(ProgramTablesTest, what_has_no_row_is_refused) {
  EXPECT_EQ(refusalOf(R"mlir(grt.func @f {
    %t = grt.buffer transient : memref<4xf32>
    grt.begin %t : memref<4xf32>
    grt.end %t : memref<4xf32>
  })mlir"),
            "'grt.begin' op expected buffers with offsets: run "
            "'galvatron-allocate-arena' first");
  EXPECT_EQ(refusalOf(std::string("grt.func @f {}\n") +
                      "grt.role @stage0 stage 0 devices [0, 1] slots 1 {" +
                      layer),
            "'grt.role' op expected a schedule of role 'stage0': run "
            "'galvatron-schedule-tasks' first");
  // Nothing is left out silently.
  EXPECT_EQ(refusalOf("grt.func @f {}\nfunc.func @body() {\n  return\n}"),
            "'func.func' op expected to have been converted before a program "
            "is emitted");
}

} // namespace
