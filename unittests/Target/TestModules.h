//===- TestModules.h - Modules by hand for the tests of emission ----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A bigram model, a table of logits and cross entropy, as it stands after
// convert-nn-to-grt: layer functions on buffers, and stages of layers with
// their layouts. Written as text, so that these tests need no other pass.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_UNITTESTS_TARGET_TESTMODULES_H
#define GALVATRON_UNITTESTS_TARGET_TESTMODULES_H

#include "galvatron/Dialect/GRT/IR/GRT.h"
#include "galvatron/Dialect/GRT/Transforms/Passes.h"

#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/FormatVariadic.h"

#include <gtest/gtest.h>

#include <string>

namespace galvatron::testing {

inline std::string str(int64_t number) { return std::to_string(number); }

/// Sizes of the bigram model.
struct Bigram {
  int64_t vocab = 32, seqLen = 8, batch = 8, microBatches = 2;
  /// Strategies of the two layers, in the syntax of the attribute, and the
  /// local samples that follow from them.
  std::string embedLevels, lossLevels;
  int64_t embedShards = 1, lossShards = 1;
  /// Devices of one stage, or of two.
  std::vector<std::vector<int64_t>> stages{{0}};
  std::string schedule = "1f1b";

  int64_t samples(int64_t shards) const {
    return batch / microBatches / shards;
  }
};

inline std::string memref(llvm::ArrayRef<int64_t> shape, llvm::StringRef type) {
  std::string text = "memref<";
  for (int64_t size : shape)
    text += str(size) + "x";
  return text + type.str() + ">";
}

inline std::string embedFunctions(const Bigram &model) {
  int64_t samples = model.samples(model.embedShards), v = model.vocab;
  std::string tokens = memref({samples, model.seqLen}, "i32");
  std::string table = memref({v, v}, "f32"), flat = memref({v * v}, "f32");
  std::string logits = memref({samples, model.seqLen, v}, "f32");
  std::string rows = str(samples * model.seqLen), bytes = str(v * v);
  std::string output = str(samples * model.seqLen * v * 4);
  return llvm::formatv(R"mlir(
  grt.func @embed.forward attributes {{output_bytes = {6} : i64} {{
    %t = grt.buffer data at 0 : {0}
    %w = grt.buffer parameter at 0 : {1}
    %y = grt.buffer output at 0 : {3}
    grt.kernel embedding(%t, %w, %y) ints [{4}, {7}, {7}, 0] : {0}, {1}, {3}
  }
  grt.func @embed.backward {{
    %t = grt.buffer data at 0 : {0}
    %dy = grt.buffer grad_in at 0 : {3}
    %dw = grt.buffer gradient at 0 : {1}
    grt.kernel embedding_grad(%t, %dy, %dw) ints [{4}, {7}, {7}, 0, 2, -1] : {0}, {3}, {1}
  }
  grt.func @embed.update {{
    %w = grt.buffer parameter at 0 : {2}
    %g = grt.buffer gradient at 0 : {2}
    %s = grt.buffer optimizer at 0 : memref<2x{5}xf32>
    grt.kernel optimizer(%w, %g, %s) ints [2, {5}, 1, 0, {5}, 1] : {2}, {2}, memref<2x{5}xf32>
  }
  grt.func @embed.norm {{
    %g = grt.buffer gradient at 0 : {2}
    grt.kernel norm(%g) ints [{5}, 1, 0, {5}, 1] : {2}
  }
)mlir",
                       tokens, table, flat, logits, rows, bytes, output, str(v))
      .str();
}

inline std::string lossFunctions(const Bigram &model) {
  int64_t samples = model.samples(model.lossShards), v = model.vocab;
  int64_t rows = samples * model.seqLen;
  return llvm::formatv(R"mlir(
  grt.func @loss.forward attributes {{input_bytes = {4} : i64, stash_bytes = {4} : i64} {{
    %x = grt.buffer input at 0 : {0}
    %l = grt.buffer data at 0 : {1}
    %d = grt.buffer stash at 0 : {0}
    %s = grt.buffer transient : memref<{2}x3xf32>
    %loss = grt.buffer loss at 0 : memref<1xf64>
    grt.begin %d : {0}
    grt.begin %s : memref<{2}x3xf32>
    grt.kernel softmax_stats(%x, %l, %s) ints [{2}, {3}, {3}, 0] : {0}, {1}, memref<{2}x3xf32>
    grt.kernel cross_entropy(%x, %l, %s, %d, %loss) ints [{2}, {3}, {3}, 0, 1]
      : {0}, {1}, memref<{2}x3xf32>, {0}, memref<1xf64>
    grt.end %s : memref<{2}x3xf32>
  }
  grt.func @loss.backward attributes {{stash_bytes = {4} : i64} {{
    %d = grt.buffer stash at 0 : {0}
    %dx = grt.buffer grad_out at 0 : {0}
    grt.kernel copy(%d, %dx) ints [1, {4}, {4}, {4}] : {0}, {0}
    grt.end %d : {0}
  }
)mlir",
                       memref({samples, model.seqLen, v}, "f32"),
                       memref({samples, model.seqLen}, "i32"), str(rows),
                       str(v), str(rows * v * 4))
      .str();
}

inline std::string stages(const Bigram &model) {
  int64_t v = model.vocab;
  int64_t unit = model.seqLen * v * 4;
  int64_t embed = model.samples(model.embedShards);
  int64_t loss = model.samples(model.lossShards);
  std::string logits = "tensor<?x" + str(model.seqLen) + "x" + str(v) + "xf32>";
  auto devices = [](const std::vector<int64_t> &list) {
    std::string text;
    for (int64_t device : list)
      text += (text.empty() ? "" : ", ") + str(device);
    return "devices [" + text + "]";
  };
  bool split = model.stages.size() == 2;
  std::string embedLayer =
      llvm::formatv(R"mlir(
      %0 = galvatron.layer "embed"(%tokens) params [@table.weight] {{
          strategy = #galvatron.strategy<[{0}]>, stage = 0 : i64,
          forward = @embed.forward, backward = @embed.backward,
          update = @embed.update, norm = @embed.norm,
          layout = #galvatron.layout<samples = {1}, input_bytes = 0,
            output_bytes = {2}, stash_bytes = 0,
            recompute_stash_bytes = 0, bytes_per_unit = {3},
            tensors = [#galvatron.flat_tensor<parameter = @table.weight, group = 0,
              offset = 0, view = [{4}, {4}],
              local_shape = [{4}, {4}], tp_dim = -1>],
            groups = [#galvatron.flat_group<elements = {5}, shard_elements = {5}>,
                      #galvatron.flat_group<elements = 0, shard_elements = 0>],
            data = ["tokens"]>}
          : (tensor<?x{6}xi32>) -> {7})mlir",
                    model.embedLevels, str(embed), str(embed * unit), str(unit),
                    str(v), str(v * v), str(model.seqLen), logits)
          .str();
  std::string lossLayer =
      llvm::formatv(R"mlir(
      %2 = galvatron.layer "loss"(%{0}, %labels) {{
          strategy = #galvatron.strategy<[{1}]>, stage = {2} : i64,
          forward = @loss.forward, backward = @loss.backward,
          layout = #galvatron.layout<samples = {3}, input_bytes = {4},
            output_bytes = 0, stash_bytes = {4}, tensors = [],
            groups = [#galvatron.flat_group<elements = 0, shard_elements = 0>,
                      #galvatron.flat_group<elements = 0, shard_elements = 0>],
            data = ["labels"]>}
          : ({5}, tensor<?x{6}xi32>) -> tensor<1xf64>)mlir",
                    split ? "t" : "0", model.lossLevels, split ? "1" : "0",
                    str(loss), str(loss * unit), logits, str(model.seqLen))
          .str();
  std::string text = "    %s = galvatron.stage 0 " + devices(model.stages[0]) +
                     " -> " + (split ? logits : "tensor<1xf64>") + " {" +
                     embedLayer;
  if (split)
    text += "\n      galvatron.yield %0 : " + logits +
            "\n    }\n    %t = galvatron.transfer %s from 0 to 1 : " + logits +
            "\n    %u = galvatron.stage 1 " + devices(model.stages[1]) +
            " -> tensor<1xf64> {";
  text += lossLayer + "\n      galvatron.yield %2 : tensor<1xf64>\n    }\n";
  return text + "    galvatron.output %" + (split ? "u" : "s") +
         " : tensor<1xf64>\n";
}

inline std::string moduleText(const Bigram &model) {
  return llvm::formatv(
             R"mlir(
module attributes {{
  galvatron.plan = #galvatron.plan<batch = {0}, micro_batches = {1}, schedule = "{2}", pipeline_degree = {3}>,
  galvatron.training = #galvatron.training<optimizer = "adamw", dtype = "f32", clip = true, dropout = true>} {{
  galvatron.parameter @table.weight : tensor<{4}x{4}xf32> {{decay, init = "normal", std = 2.0e-2 : f64}
{5}{6}
  galvatron.model @bigram(%tokens: tensor<?x{7}xi32> is <tokens, below = {4}>,
                          %labels: tensor<?x{7}xi32> is <labels, below = {4}>)
      attributes {{config = "{{\22model_type\22: \22bigram\22}"} {{
{8}  }
})mlir",
             str(model.batch), str(model.microBatches), model.schedule,
             str(model.stages.size()), str(model.vocab), embedFunctions(model),
             lossFunctions(model), str(model.seqLen), stages(model))
      .str();
}

/// A context with the dialects of these modules.
class ModuleTest : public ::testing::Test {
protected:
  ModuleTest() : context(registry(), mlir::MLIRContext::Threading::DISABLED) {}

  static mlir::DialectRegistry registry() {
    mlir::DialectRegistry registry;
    registry.insert<mlir::grt::GRTDialect, mlir::galvatron::GalvatronDialect>();
    return registry;
  }

  mlir::OwningOpRef<mlir::ModuleOp> parse(const std::string &text) {
    auto module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
    EXPECT_TRUE(module) << text;
    return module;
  }

  /// Schedule, proof and arena.
  bool runPasses(mlir::ModuleOp module) {
    mlir::PassManager manager(&context);
    manager.addPass(mlir::grt::createScheduleTasks());
    manager.addPass(mlir::grt::createVerifySchedule());
    manager.addPass(mlir::grt::createAllocateArena());
    return mlir::succeeded(manager.run(module));
  }

  mlir::MLIRContext context;
};

} // namespace galvatron::testing

#endif // GALVATRON_UNITTESTS_TARGET_TESTMODULES_H
