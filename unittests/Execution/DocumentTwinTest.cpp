//===- DocumentTwinTest.cpp - Documents that are kept apart ---------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Documents of a batch, packed or each in a sample of its own, have the same
// gradients, whatever the plan.
//
//===----------------------------------------------------------------------===//

#include "Twin.h"

#include "galvatron/Strategy/DecisionTree.h"
#include "gtest/gtest.h"

#include <cmath>
#include <cstring>

using namespace galvatron;
using namespace galvatron::test;

namespace {

/// Documents of each sample of a batch, by their lengths; what is left of a
/// sample is padding.
using Packing = std::vector<std::vector<int64_t>>;

const Packing packed = {{8}, {3, 5}, {1, 2, 4}, {2, 2, 2, 2}};

/// The same documents, one a sample.
Packing alone() {
  Packing result;
  for (const std::vector<int64_t> &sample : packed)
    for (int64_t length : sample)
      result.push_back({length});
  return result;
}

/// A token of a document, and none in its place.
int32_t tokenOf(int64_t document, int64_t position) {
  return int32_t((17 * document + 5 * position * position + 3) % 61);
}

/// What a program reads of documents; those of an ordinary program have no
/// starts.
::grt::DataBatch batchOf(const ::grt::Program &program, const Packing &packing,
                         int64_t samples) {
  ::grt::DataBatch batch;
  for (const ::grt::Datum &datum : program.data()) {
    std::vector<int32_t> values;
    int64_t document = 0;
    for (int64_t s = 0; s < samples; ++s) {
      int64_t left = datum.elements();
      auto add = [&](int64_t length, bool isPadding) {
        auto start = int32_t(datum.elements() - left);
        for (int64_t i = 0; i < length; ++i)
          values.push_back(
              datum.kind == "document_starts" ? start
              : datum.kind == "tokens" ? (isPadding ? 0 : tokenOf(document, i))
              : isPadding || i + 1 == length ? -1
                                             : tokenOf(document, i + 1));
        left -= length;
      };
      if (s < int64_t(packing.size()))
        for (int64_t length : packing[size_t(s)]) {
          add(length, false);
          ++document;
        }
      add(left, true);
    }
    const auto *bytes = reinterpret_cast<const char *>(values.data());
    batch.emplace_back(bytes, bytes + values.size() * sizeof(int32_t));
  }
  return batch;
}

class DocumentTwinTest : public ::testing::Test {
protected:
  DocumentTwinTest() { loadTwinDialects(context); }

  TwinRun runPacked(TwinModel model, const Packing &packing,
                    const TwinPlan &plan, const std::string &dtype) {
    TwinOptions options;
    options.dtype = dtype;
    options.dropout = false;
    options.eps = dtype == "f64" ? 1e-8 : 1e-6;
    options.steps = 2;
    options.makeBatch = [&](const ::grt::Program &program, int64_t batch,
                            int64_t) {
      return batchOf(program, packing, batch);
    };
    return runTwin(context, model, plan, options);
  }

  mlir::MLIRContext context;
};

/// Learnt positions, rotations, windows, and biases of distance (ALiBi).
class PackedDocuments : public DocumentTwinTest,
                        public ::testing::WithParamInterface<const char *> {};

TEST_P(PackedDocuments, HaveTheGradientsOfDocumentsAlone) {
  TwinModel model;
  model.family = GetParam();
  model.layers = 2;
  model.separatesDocuments = false;
  TwinRun expected = runPacked(model, alone(), singleRank(model, 12), "f64");
  ASSERT_EQ(expected.error, "");
  model.separatesDocuments = true;
  TwinRun run = runPacked(model, packed, singleRank(model, 4, 2), "f64");
  ASSERT_EQ(run.error, "");
  EXPECT_EQ(checkMemory(run), "");
  EXPECT_EQ(compareRuns(run, expected, getBounds("f64", "adamw")), "");
  // Ranks that divide positions, and in attention heads (Ulysses).
  if (std::getenv("GALVATRON_LONG") || model.family == "gpt2" ||
      model.family == "mistral") {
    const Strategy strategy = llvm::cantFail(Strategy::parse("up2"));
    TwinRun exchanged = runPacked(
        model, packed, uniformPlan(model, 1, strategy, 4, 2, "1f1b"), "f64");
    ASSERT_EQ(exchanged.error, "");
    EXPECT_EQ(compareRuns(exchanged, expected, getBounds("f64", "adamw")), "");
  }

  // Which the documents would not have if they saw each other.
  model.separatesDocuments = false;
  TwinRun mixed = runPacked(model, packed, singleRank(model, 4), "f64");
  ASSERT_EQ(mixed.error, "");
  std::string worst;
  EXPECT_GT(largestDistance(mixed.gradients, expected.gradients, worst, 1e-7),
            1e-3);
}

TEST_P(PackedDocuments, HaveThemUnderRandomPlans) {
  TwinModel model;
  model.family = GetParam();
  model.separatesDocuments = true;
  std::mt19937 generator(2026);
  TwinOptions options;
  options.steps = 2;
  options.eps = 1e-8;
  int64_t count = std::getenv("GALVATRON_LONG") ? 20 : 2;
  References references{context};
  for (int64_t i = 0; i < count; ++i) {
    TwinPlan plan = randomPlan(model, generator);
    SCOPED_TRACE(plan.str());
    const TwinRun &expected = references.of(model, options, plan.batch);
    ASSERT_EQ(expected.error, "");
    TwinRun run = runTwin(context, model, plan, options);
    ASSERT_EQ(run.error, "");
    EXPECT_EQ(checkMemory(run), "");
    EXPECT_EQ(compareRuns(run, expected, getBounds("f64", "adamw")), "");
  }
}

/// The recording backend checks order and lifetime of every access.
TEST_P(PackedDocuments, OnDevicesWithStreams) {
  TwinModel model;
  model.family = GetParam();
  model.layers = 2;
  model.separatesDocuments = true;
  TwinOptions options;
  options.dtype = "f32";
  options.eps = 1e-6;
  options.steps = 2;
  References references{context};
  const TwinRun &expected = references.of(model, options, 16);
  ASSERT_EQ(expected.error, "");
  options.backend = "cuda";
  Strategy strategy = llvm::cantFail(Strategy::parse("sdp2.tp2.ckpt"));
  TwinRun run = runTwin(
      context, model, uniformPlan(model, 2, strategy, 16, 2, "1f1b"), options);
  ASSERT_EQ(run.error, "");
  EXPECT_EQ(compareRuns(run, expected, getBounds("f32", "adamw")), "");
}

INSTANTIATE_TEST_SUITE_P(Families, PackedDocuments,
                         ::testing::Values("gpt2", "opt", "llama", "mistral",
                                           "falcon", "bloom", "gemma2"),
                         [](const auto &info) {
                           return std::string(info.param);
                         });

/// Encoders see what follows, and an encoder-decoder reads two rows of tokens.
TEST_F(DocumentTwinTest, OtherModelsAreRefusedByName) {
  auto refusal = [&](const char *family) {
    TwinModel model;
    model.family = family;
    model.separatesDocuments = true;
    std::string bytes;
    return compileTwin(context, model, singleRank(model, 4), {}, bytes);
  };
  EXPECT_NE(refusal("bert").find("mixes the positions of a sample"),
            std::string::npos);
  EXPECT_NE(refusal("t5").find("expected one row of tokens"),
            std::string::npos);
  EXPECT_NE(refusal("vit").find("expected a row of tokens"), std::string::npos);
}

} // namespace
