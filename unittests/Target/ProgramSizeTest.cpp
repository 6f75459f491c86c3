//===- ProgramSizeTest.cpp - Programs are never unrolled ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TestModules.h"

#include "galvatron/Target/Program.h"
#include "grt/abi.h"

#include <chrono>

using namespace galvatron::testing;

namespace {

class ProgramSizeTest : public ModuleTest {
protected:
  /// A model of `layers` equal layers in `stages` stages of `ranks`
  /// data-parallel ranks each. The layer function has 40 kernels, as a
  /// transformer block has.
  std::string deepModel(int64_t layers, int64_t stages, int64_t ranks,
                        int64_t microBatches) {
    std::string levels = ranks > 1 ? "dp = " + str(ranks) : "";
    std::string text = llvm::formatv(
        R"mlir(
module attributes {{
  galvatron.plan = #galvatron.plan<batch = {0}, micro_batches = {1}, schedule = "1f1b", pipeline_degree = {2}>,
  galvatron.training = #galvatron.training<optimizer = "adamw", dtype = "f32", clip = true, dropout = true>} {{
)mlir",
        str(microBatches * ranks), str(microBatches), str(stages));
    for (int64_t i = 0; i < layers; ++i)
      text += "  galvatron.parameter @h." + str(i) +
              ".weight : tensor<64xf32> {decay, init = \"zeros\"}\n";
    // The first and the last layer read data: they have functions of their own.
    for (llvm::StringRef name :
         {"first.forward", "first.backward", "block.forward", "block.backward",
          "last.forward", "last.backward"}) {
      bool forward = name.ends_with("forward");
      text += "  grt.func @" + name.str() + " {\n    %x = grt.buffer " +
              (forward ? "input" : "grad_in") +
              " at 0 : memref<64xf32>\n    %y = grt.buffer " +
              (forward ? "output" : "grad_out") +
              " at 0 : memref<64xf32>\n    %t = grt.buffer transient : "
              "memref<64xf32>\n    grt.begin %t : memref<64xf32>\n";
      for (int i = 0; i < 40; ++i)
        text += "    grt.kernel add(%x, %t, %y) ints [64] {label = \"op" +
                str(i) +
                "\"} : memref<64xf32>, memref<64xf32>, memref<64xf32>\n";
      text += "    grt.end %t : memref<64xf32>\n  }\n";
    }
    text += "  galvatron.model @deep(%tokens: tensor<?x4xi32> is <tokens, "
            "below = 8>, %labels: "
            "tensor<?x4xi32> is <labels, below = 8>) {\n";
    std::string previous = "%tokens", type = "tensor<?x4xi32>";
    for (int64_t stage = 0, layer = 0; stage < stages; ++stage) {
      std::string list;
      for (int64_t rank = 0; rank < ranks; ++rank)
        list += (rank ? ", " : "") + str(stage * ranks + rank);
      if (stage > 0) {
        text += "    %t" + str(stage) + " = galvatron.transfer %s" +
                str(stage - 1) + " from " + str(stage - 1) + " to " +
                str(stage) + " : " + type + "\n";
        previous = "%t" + str(stage);
      }
      // The last layer gives the loss.
      std::string given =
          stage + 1 < stages ? "tensor<?x64xf32>" : "tensor<1xf64>";
      text += "    %s" + str(stage) + " = galvatron.stage " + str(stage) +
              " devices [" + list + "] -> " + given + " {\n";
      for (; layer < layers * (stage + 1) / stages; ++layer) {
        std::string name = str(layer);
        bool last = layer + 1 == layers;
        std::string body = layer == 0 ? "@first" : last ? "@last" : "@block";
        text += "      %l" + name + " = galvatron.layer \"h." + name + "\"(" +
                previous + (last ? ", %labels" : "") + ") params [@h." + name +
                ".weight] {strategy = #galvatron.strategy<[" + levels +
                "]>, stage = " + str(stage) + " : i64, forward = " + body +
                ".forward, backward = " + body +
                ".backward, layout = #galvatron.layout<samples = 1, "
                "input_bytes = " +
                (layer ? "256" : "0") +
                ", output_bytes = 256, stash_bytes = 0, "
                "tensors = [#galvatron.flat_tensor<parameter = @h." +
                name +
                ".weight, group = 0, offset = 0, view = [64], "
                "local_shape = [64]>], groups = "
                "[#galvatron.flat_group<elements = 64, shard_elements = 64>, "
                "#galvatron.flat_group<elements = 0, shard_elements = 0>]" +
                (layer == 0 ? ", data = [\"tokens\"]"
                 : last     ? ", data = [\"labels\"]"
                            : "") +
                ">} : (" + type + (last ? ", tensor<?x4xi32>" : "") + ") -> ";
        type = layer + 1 < layers ? "tensor<?x64xf32>" : "tensor<1xf64>";
        text += type + "\n";
        previous = "%l" + name;
      }
      text += "      galvatron.yield " + previous + " : " + type + "\n    }\n";
    }
    return text + "    galvatron.output %s" + str(stages - 1) + " : " + type +
           "\n  }\n}\n";
  }

  struct Measured {
    double seconds = 0;
    uint64_t bytes = 0;
  };

  Measured emit(int64_t layers, int64_t stages, int64_t ranks,
                int64_t microBatches) {
    auto module = parse(deepModel(layers, stages, ranks, microBatches));
    auto begin = std::chrono::steady_clock::now();
    mlir::FailureOr<std::string> program = mlir::failure();
    if (module && runPasses(*module))
      program = mlir::galvatron::buildProgram(*module);
    EXPECT_TRUE(succeeded(program));
    Measured result;
    result.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
            .count();
    result.bytes = succeeded(program) ? program->size() : 0;
    llvm::outs() << layers << " layers, " << microBatches << " micro-batches, "
                 << stages << " stages of " << ranks << ": "
                 << llvm::formatv("{0:f2}", result.seconds) << " s, "
                 << result.bytes << " bytes\n";
    return result;
  }
};

TEST_F(ProgramSizeTest, eighty_layers_sixty_four_micro_batches_64_ranks) {
  for (auto [stages, ranks] : {std::pair(8, 8), std::pair(64, 1)}) {
    Measured measured = emit(80, stages, ranks, 64);
    EXPECT_LT(measured.seconds, 5);
    EXPECT_LT(measured.bytes, 2u << 20);
  }
}

TEST_F(ProgramSizeTest, doubling_micro_batches_adds_tasks_only) {
  Measured small = emit(16, 4, 2, 32), large = emit(16, 4, 2, 64);
  // A micro-batch of a role is at most four tasks in `steady` and three in
  // `evaluate`, with six parts of transfers, plus rounding of the file's
  // segments.
  const size_t rows = 7 * sizeof(grt_task) + 6 * sizeof(grt_transfer_part);
  EXPECT_LT(large.bytes, small.bytes + 4 * 32 * rows + 8192);
}

} // namespace
