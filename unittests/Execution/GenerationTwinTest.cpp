//===- GenerationTwinTest.cpp - Keys and values that are kept -------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A program that keeps keys and values and one of the same weights that
// computes whole sequences give the same logits behind every token, whatever
// the plan, and whichever tokens of several texts are computed together.
//
//===----------------------------------------------------------------------===//

#include "Twin.h"

#include "grt/program_file.h"

#include "gtest/gtest.h"

#include <cmath>
#include <span>

using namespace galvatron;
using namespace galvatron::test;

namespace {

using Text = std::vector<int32_t>;

std::string compile(mlir::MLIRContext &context, const TwinModel &model,
                    const TwinPlan &plan, const std::string &dtype) {
  TwinOptions options;
  options.dtype = dtype;
  options.dropout = false;
  std::string bytes;
  EXPECT_EQ(compileTwin(context, model, plan, options, bytes), "");
  return bytes;
}

/// Starts a program; null, with the reason in `refusal`, if it is refused.
std::unique_ptr<::grt::Session> start(const std::string &bytes,
                                      std::string &refusal) {
  std::shared_ptr<const ::grt::Program> program;
  ::grt::Status status = ::grt::Program::loadMemory(bytes, "twin", program);
  ::grt::SessionOptions sessionOptions;
  sessionOptions.seed = 11;
  sessionOptions.poison = true;
  sessionOptions.threadsPerRank = 2;
  sessionOptions.backendFolder = BACKEND_FOLDER;
  std::unique_ptr<::grt::Session> session;
  if (status)
    status = ::grt::Session::create(program, sessionOptions, session);
  if (status)
    status = disturbVectors(*session);
  refusal = status ? "" : status.message();
  return status ? std::move(session) : nullptr;
}

/// Loads a compiled twin, with biases and norms that are not those of the
/// start.
std::unique_ptr<::grt::Session> load(mlir::MLIRContext &context,
                                     const TwinModel &model,
                                     const TwinPlan &plan,
                                     const std::string &dtype) {
  std::string refusal;
  auto session = start(compile(context, model, plan, dtype), refusal);
  EXPECT_EQ(refusal, "");
  return session;
}

/// Texts of lengths from 3 to that of the model.
std::vector<Text> makeTexts(const TwinModel &model) {
  std::vector<Text> texts;
  const int64_t most = model.writtenPositions();
  for (int64_t length : {most, int64_t(3), most - 1}) {
    Text &text = texts.emplace_back();
    for (int64_t i = 0; i < length; ++i)
      text.push_back(int32_t((13 * i * i + 7 * length + i) % model.vocabulary));
  }
  return texts;
}

/// What an encoder reads of each of these texts, longer and shorter than they.
std::vector<Text> makeSources(const TwinModel &model) {
  std::vector<Text> sources;
  for (int64_t length : {int64_t(2), model.positions, model.positions - 1}) {
    Text &source = sources.emplace_back();
    for (int64_t i = 0; i < length; ++i)
      source.push_back(
          int32_t((5 * i * i + 3 * length + i) % model.vocabulary));
  }
  return sources;
}

/// Logits behind every token of every text.
using Logits = std::vector<std::vector<std::vector<double>>>;

/// `sources` are those of the texts that an encoder reads; empty: none does.
Logits logitsOfWhole(::grt::Session &session, const std::vector<Text> &texts,
                     const std::vector<Text> &sources) {
  Logits logits;
  for (size_t t = 0; t < texts.size(); ++t) {
    const Text &text = texts[t];
    std::optional<::grt::EncoderPrompt> source;
    if (!sources.empty())
      source = {sources[t], /*padding=*/0};
    auto &of = logits.emplace_back(text.size());
    for (size_t i = 0; i < text.size(); ++i) {
      ::grt::Status status =
          session.predictScores(std::span(text).subspan(0, i + 1), of[i],
                                source ? &*source : nullptr);
      EXPECT_TRUE(status) << status.message();
    }
  }
  return logits;
}

/// The same of a program that keeps keys: text i in row `rows[i]`, the tokens
/// in passes of `each` at most, by turns of the texts or one text behind the
/// other.
Logits logitsOfKept(::grt::Session &session, const std::vector<Text> &texts,
                    const std::vector<Text> &sources,
                    const std::vector<int32_t> &rows, size_t each,
                    bool byTurns) {
  std::vector<std::pair<size_t, size_t>> order; // text and position
  for (size_t i = 0; i < texts.size(); ++i)
    for (size_t at = 0; at < texts[i].size(); ++at)
      order.emplace_back(i, at);
  if (byTurns)
    std::stable_sort(order.begin(), order.end(),
                     [](auto a, auto b) { return a.second < b.second; });
  Logits logits;
  for (const Text &text : texts)
    logits.emplace_back(text.size());
  for (size_t first = 0, next = 0; first < order.size(); first = next) {
    std::vector<::grt::RowToken> tokens;
    std::vector<::grt::RowSource> begin;
    size_t end = std::min(order.size(), first + each);
    for (size_t at = first; at < end; ++at) {
      auto [text, position] = order[at];
      const bool begins = position == 0 && !sources.empty();
      // The one before it in the row has to be read to its end.
      if (begins && at > first && rows[order[at - 1].first] == rows[text]) {
        end = at;
        break;
      }
      tokens.push_back({rows[text], int32_t(position), texts[text][position]});
      if (begins)
        begin.push_back({rows[text], {sources[text], /*padding=*/0}});
    }
    std::vector<int32_t> likeliest;
    std::vector<double> scores;
    ::grt::Status status = session.decode(tokens, likeliest, &scores, begin);
    EXPECT_TRUE(status) << status.message();
    if (!status)
      return logits;
    next = end;
    const size_t words = scores.size() / tokens.size();
    for (size_t i = 0; i < tokens.size(); ++i) {
      auto begin = scores.begin() + std::ptrdiff_t(i * words);
      auto [text, position] = order[first + i];
      logits[text][position].assign(begin, begin + std::ptrdiff_t(words));
      EXPECT_EQ(likeliest[i],
                int32_t(std::max_element(begin, begin + words) - begin));
    }
  }
  return logits;
}

double largestDifference(const Logits &a, const Logits &b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t at = 0; at < a[i].size(); ++at) {
      EXPECT_EQ(a[i][at].size(), b[i][at].size());
      for (size_t w = 0; w < std::min(a[i][at].size(), b[i][at].size()); ++w)
        // What is no number is far from all.
        if (const double apart = std::fabs(a[i][at][w] - b[i][at][w]);
            !(apart <= largest))
          largest = apart;
    }
  return largest;
}

/// Stages of equal numbers of layers under one strategy.
TwinPlan planOf(const TwinModel &model, int64_t stages, const char *strategy,
                int64_t samples) {
  return uniformPlan(model, stages, *Strategy::parse(strategy), samples,
                     /*microBatches=*/1, "1f1b");
}

/// Compares logits of one family under some plans.
void compare(mlir::MLIRContext &context, const char *family, const char *dtype,
             double most) {
  SCOPED_TRACE(std::string(family) + " " + dtype);
  TwinModel model;
  model.family = family;
  model.layers = 2;
  const bool isGrouped = !model.hasDecoder() &&
                         !llvm::is_contained({"gpt2", "gpt_neox", "gptj",
                                              "falcon", "opt", "bloom", "mpt"},
                                             model.family);
  model.keyHeads = isGrouped ? 4 : 0;
  model.heads = isGrouped ? 4 : 8;
  const std::vector<Text> texts = makeTexts(model);
  auto whole = load(context, model, singleRank(model, 1), dtype);
  ASSERT_TRUE(whole);
  const std::vector<Text> sources =
      model.hasDecoder() ? makeSources(model) : std::vector<Text>();
  const Logits expected = logitsOfWhole(*whole, texts, sources);
  model.keptRows = 3;
  struct Case {
    int64_t stages;
    const char *strategy;
    int64_t samples;
  };
  for (const Case &one : std::vector<Case>{
           {1, "single", 3}, {1, "tp2", 1}, {2, "single", 5}, {2, "tp2", 3}}) {
    SCOPED_TRACE(one.strategy + std::string(" x") + std::to_string(one.stages));
    auto kept =
        load(context, model,
             planOf(model, one.stages, one.strategy, one.samples), dtype);
    ASSERT_TRUE(kept);
    // A row is used again by what another text had in it.
    for (bool byTurns : {true, false}) {
      const std::vector<int32_t> rows = byTurns ? std::vector<int32_t>{2, 0, 1}
                                                : std::vector<int32_t>{0, 0, 0};
      EXPECT_LE(largestDifference(expected,
                                  logitsOfKept(*kept, texts, sources, rows,
                                               size_t(one.samples), byTurns)),
                most);
    }
  }
}

TEST(GenerationTwin, LogitsAreThoseOfWholeSequences) {
  mlir::MLIRContext context;
  loadTwinDialects(context);
  for (const char *family :
       {"gpt2",     "llama",      "mistral", "gemma2",  "qwen2",       "phi",
        "gpt_neox", "gptj",       "falcon",  "qwen3",   "gemma3_text", "phi3",
        "stablelm", "starcoder2", "olmo2",   "cohere2", "granite",     "glm4",
        "smollm3",  "opt",        "bloom",   "mpt"})
    compare(context, family, "f64", 1e-12);
  for (const char *family : {"gpt2", "llama", "mistral", "gemma2"})
    compare(context, family, "f32", 1e-5);
}

/// The encoder reads a text's source once, and the decoder keeps its keys.
TEST(GenerationTwin, LogitsBehindEncodersAreThoseOfWholeSequences) {
  mlir::MLIRContext context;
  loadTwinDialects(context);
  for (const char *family :
       {"t5", "t5_v1_1", "umt5", "bart", "mbart", "pegasus"})
    compare(context, family, "f64", 1e-12);
  for (const char *family : {"t5_v1_1", "bart"})
    compare(context, family, "f32", 1e-5);
}

TEST(GenerationTwin, WhatDoesNotFitIsRefused) {
  mlir::MLIRContext context;
  loadTwinDialects(context);
  TwinModel model;
  model.layers = 1;
  auto whole = load(context, model, singleRank(model, 1), "f32");
  model.keptRows = 2;
  auto kept = load(context, model, singleRank(model, 2), "f32");
  ASSERT_TRUE(whole && kept);
  std::vector<int32_t> result;
  auto refusal = [&](::grt::Session &session,
                     const std::vector<::grt::RowToken> &tokens) {
    return session.decode(tokens, result).message();
  };
  EXPECT_EQ(refusal(*whole, {{0, 0, 1}}),
            "decoding: expected a program that keeps keys and values, "
            "galvatron-compile --generate makes one");
  EXPECT_EQ(refusal(*kept, {}), "decoding: expected 1 to 2 tokens, found 0");
  EXPECT_EQ(refusal(*kept, {{0, 0, 1}, {2, 0, 1}}),
            "decoding: expected rows below 2, positions below 8 and tokens "
            "below 61, found row 2, position 0 and token 1");
  EXPECT_NE(refusal(*kept, {{0, 8, 1}}), "");
  EXPECT_NE(refusal(*kept, {{0, 0, 61}}), "");
  ASSERT_TRUE(kept->decode(std::vector<::grt::RowToken>{{1, 0, 1}}, result));
  ::grt::StepResult step;
  EXPECT_TRUE(kept->setBatch(twinBatch(kept->program(), 2, 0)));
  EXPECT_NE(kept->step(step).message().find("is not trained"),
            std::string::npos);
}

/// The rows of a program's calls, whose section is found by its header.
std::span<::grt::gvx::Call> callsOf(std::string &file) {
  using namespace ::grt::gvx;
  const auto *sections =
      reinterpret_cast<const Section *>(file.data() + sizeof(Header));
  for (uint32_t i = 0; i < sectionCount; ++i)
    if (sections[i].kind == SectionKind::Calls)
      return {reinterpret_cast<Call *>(file.data() + sections[i].offset),
              size_t(sections[i].rows)};
  ADD_FAILURE() << "no section of calls";
  return {};
}

/// A call that runs in other passes than it should is refused when the program
/// is loaded, or changes nothing.
TEST(GenerationTwin, CallsInOtherPassesAreRefused) {
  using ::grt::gvx::CallKind;
  using ::grt::gvx::CallWhen;
  mlir::MLIRContext context;
  loadTwinDialects(context);
  for (const char *family : {"t5_v1_1", "bart"}) {
    TwinModel model;
    model.family = family;
    model.layers = 2;
    const std::vector<Text> texts = makeTexts(model),
                            sources = makeSources(model);
    model.keptRows = 3;
    const std::string file =
        compile(context, model, planOf(model, 1, "single", 3), "f64");
    auto logits = [&](::grt::Session &session) {
      return logitsOfKept(session, texts, sources, {2, 0, 1}, 3, true);
    };
    std::string refusal, changed = file;
    auto session = start(file, refusal);
    ASSERT_TRUE(session) << refusal;
    const Logits expected = logits(*session);
    size_t begins = 0, refused = 0, accepted = 0;
    const size_t count = callsOf(changed).size();
    for (size_t i = 0; i < count; ++i) {
      changed = file;
      ::grt::gvx::Call &call = callsOf(changed)[i];
      if (call.kind != CallKind::Launch)
        continue;
      begins += call.when == CallWhen::TextsBegin;
      call.when = call.when == CallWhen::Always ? CallWhen::TextsBegin
                                                : CallWhen::Always;
      ::grt::gvx::seal(changed);
      session = start(changed, refusal);
      if (!session) {
        ++refused;
        continue;
      }
      ++accepted;
      SCOPED_TRACE(std::string(family) + ", call " + std::to_string(i));
      EXPECT_LE(largestDifference(expected, logits(*session)), 1e-12);
    }
    EXPECT_GE(begins, 10u);
    EXPECT_GE(refused, 10 * accepted) << accepted;
  }
}

/// Caches are no part of the model: files and views have its tensors alone.
TEST(GenerationTwin, CachesAreNoTensorsOfTheModel) {
  mlir::MLIRContext context;
  loadTwinDialects(context);
  TwinModel model;
  model.layers = 1;
  auto whole = load(context, model, singleRank(model, 1), "f32");
  model.keptRows = 2;
  auto kept = load(context, model, singleRank(model, 2), "f32");
  ASSERT_TRUE(whole && kept);
  ::grt::TensorMap of, ofKept;
  ASSERT_TRUE(whole->parameters(of));
  ASSERT_TRUE(kept->parameters(ofKept));
  ASSERT_EQ(of.size(), ofKept.size());
  for (const auto &[name, tensor] : of)
    EXPECT_EQ(tensor.values, ofKept[name].values) << name;
  EXPECT_EQ(kept->program().facts().parameters,
            whole->program().facts().parameters);
}

} // namespace
