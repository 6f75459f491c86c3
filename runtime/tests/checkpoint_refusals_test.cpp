//===- checkpoint_refusals_test.cpp - What checkpoints may not say --------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/pieces.h"
#include "checkpoint/state.h"
#include "checkpoint_training.h"
#include "files.h"
#include "grt/checkpoint.h"
#include "tensors.h"

#include <cmath>
#include <cstring>
#include <set>

using namespace grt;
using namespace grt::test;

namespace {

/// Wrong texts are refused at any place of a checkpoint's own text.
TEST(Checkpoint, WrongTextsAreRefusedWithTheirPlace) {
  std::string path = freshFolder("texts");
  Training run{ModelPlan()};
  ASSERT_TRUE(run.write(path));
  std::string step = Training::newest(path);
  std::string good = readAll(step + "/checkpoint.json");
  auto refusal = [](const std::string &text) -> std::string {
    try {
      parseCheckpointManifest(text, "given");
      return "";
    } catch (const Error &error) {
      EXPECT_EQ(error.exitCode(), 2);
      return error.what();
    }
  };
  EXPECT_EQ(refusal(good), "");
  EXPECT_EQ(refusal(good.substr(0, 99)), "'given': not valid JSON");
  EXPECT_EQ(refusal("[]"), "'given': expected an object");
  using json = nlohmann::json;
  struct Case {
    const char *pointer;
    json value;
    const char *expected;
  };
  const Case cases[] = {
      {"/format", "tar", "'given', format: expected '"},
      {"/version", 99, "'given', version: expected "},
      {"/training/step", -1, "training, step: expected a natural number"},
      {"/training/step", 1.5, "training, step: expected a natural number"},
      {"/training/betas", json::array({0.9}), "expected two numbers"},
      {"/training/betas/1", "big", "betas[1]: expected a number"},
      {"/training/lr", nullptr, "training, lr: expected a number"},
      {"/training/decay-all", 1, "decay-all: expected true or false"},
      {"/training/lr-schedule", 7, "lr-schedule: expected a string"},
      {"/training/lr-schedule", "steep",
       "expected constant, linear, cosine or wsd, found 'steep'"},
      {"/training/accumulate", 0, "accumulate: expected at least 1"},
      {"/training/seq-len", UINT64_MAX, "seq-len: number too large"},
      {"/training/data", json::object(), "training, data: expected a list"},
      {"/files/0/name", "../other", "expected the name of a file, found '../"},
      {"/files/0/name", "..", "expected the name of a file, found '..'"},
      {"/tensors", json::array(), "tensors: expected an object"},
      {"/tensors/wte.weight", "0123456789abcdeF",
       "tensor 'wte.weight': expected 16 hexadecimal digits, found '01"},
  };
  for (const Case &each : cases) {
    json changed = json::parse(good);
    changed[json::json_pointer(each.pointer)] = each.value;
    std::string message = refusal(changed.dump());
    EXPECT_NE(message.find(each.expected), std::string::npos)
        << each.pointer << ": " << message;
  }
  // A key that is missing is named with what lacks it; some came later.
  const std::set<std::string> optional = {"best-validation", "kernel-choices",
                                          "lr-schedule",     "norm-before",
                                          "tool-version",    "validation-data"};
  for (const char *object : {"", "/training", "/files/0"}) {
    const json::json_pointer place(object);
    const json whole = json::parse(good);
    for (const auto &[key, value] : whole[place].items()) {
      json without = whole;
      without[place].erase(key);
      std::string message = refusal(without.dump());
      if (optional.count(key))
        EXPECT_EQ(message, "");
      else
        EXPECT_TRUE(message.ends_with(": missing key '" + key + "'"))
            << key << ": " << message;
    }
  }
  // A number that JSON cannot hold is written into the text by hand.
  json changed = json::parse(good);
  changed["training"]["lr"] = "LARGE";
  std::string large = changed.dump();
  large.replace(large.find("\"LARGE\""), 7, "1e999");
  EXPECT_NE(refusal(large).find("given"), std::string::npos);

  // Sums of the texts that name no checkpoint, or lack a tensor.
  auto resumed = [&](const std::string &file, const std::string &text) {
    std::string before = readAll(step + "/" + file);
    std::string sums = readAll(step + "/SHA256SUMS");
    writeAll(step + "/" + file, text);
    if (file == "checkpoint.json")
      writeAll(step + "/SHA256SUMS", writeSums({{file, text}}));
    Training other{ModelPlan()};
    Status status = other.session->resume(step);
    EXPECT_EQ(status.exitCode(), 2);
    writeAll(step + "/" + file, before);
    writeAll(step + "/SHA256SUMS", sums);
    return status.message();
  };
  std::string sums = writeSums({{"weights", "of no checkpoint"}});
  writeAll(step + "/weights", "of no checkpoint");
  EXPECT_NE(resumed("SHA256SUMS", sums).find("does not name checkpoint.json"),
            std::string::npos);
  changed = json::parse(good);
  changed["tensors"].erase("wte.weight");
  EXPECT_NE(resumed("checkpoint.json", changed.dump())
                .find("has no sum of tensor 'wte.weight'"),
            std::string::npos);

  // Verification reads all of a checkpoint, so it finds what the list and the
  // files lack.
  auto verified = [&](const json &document) {
    std::string text = document.dump(), before = readAll(step + "/SHA256SUMS");
    writeAll(step + "/checkpoint.json", text);
    writeAll(step + "/SHA256SUMS", writeSums({{"checkpoint.json", text}}));
    Status status = verifyCheckpoint(step);
    EXPECT_EQ(status.exitCode(), 2);
    writeAll(step + "/checkpoint.json", good);
    writeAll(step + "/SHA256SUMS", before);
    return status.message();
  };
  EXPECT_TRUE(verifyCheckpoint(step));
  const std::string weights = step + "/model-00001-of-00001.safetensors";
  EXPECT_EQ(verified(changed), "'" + weights +
                                   "' has tensor 'wte.weight', which the "
                                   "checkpoint does not know");
  changed = json::parse(good);
  changed["tensors"]["more"] = changed["tensors"]["wte.weight"];
  EXPECT_EQ(verified(changed),
            "checkpoint '" + step + "' has no tensor 'more'");
  changed = json::parse(good);
  changed["tensors"]["wte.weight"] = "0123456789abcdef";
  EXPECT_EQ(verified(changed),
            "'" + weights +
                "' is damaged: the values of tensor 'wte.weight' do not add "
                "up to their checksum");
  changed = json::parse(good);
  for (json &file : changed["files"])
    file["header-sha256"] = std::string(64, '0');
  EXPECT_NE(verified(changed).find("' is damaged: its header differs from the "
                                   "one that was written"),
            std::string::npos);
}

/// A header that still says where all values are, and values, are compared with
/// what was written.
TEST(Checkpoint, ChangedFilesAreRefused) {
  std::string path = freshFolder("changed");
  Training run{ModelPlan()};
  ASSERT_TRUE(run.write(path));
  const std::string step = Training::newest(path),
                    weights = step + "/model-00001-of-00001.safetensors";
  const std::string good = readAll(weights);
  auto refused = [](const Status &status) {
    EXPECT_EQ(status.exitCode(), status ? 0 : 2);
    return status.message();
  };
  auto resumed = [&] {
    return refused(Training{ModelPlan()}.session->resume(step));
  };
  EXPECT_EQ(refused(verifyCheckpoint(step)), "");
  std::string changed = good;
  size_t format = changed.find("\"pt\"");
  ASSERT_NE(format, std::string::npos);
  changed[format + 1] = 'P';
  writeAll(weights, changed);
  EXPECT_EQ(refused(verifyCheckpoint(step)),
            "'" + weights +
                "' is damaged: its header differs from the one "
                "that was written");
  EXPECT_EQ(resumed(), "'" + weights +
                           "' is damaged: the SHA-256 of its header differs "
                           "from the one in checkpoint.json");
  // The last tensor by name.
  changed = good;
  changed.back() ^= 1;
  writeAll(weights, changed);
  EXPECT_EQ(refused(verifyCheckpoint(step)),
            "'" + weights +
                "' is damaged: the values of tensor 'wte.weight' "
                "do not add up to their checksum");
  EXPECT_EQ(resumed(), "checkpoint '" + step +
                           "' is damaged: the values of tensor "
                           "'wte.weight' do not add up to their "
                           "checksum");
  writeAll(weights, good + '\0');
  EXPECT_EQ(resumed(), "'" + weights + "': tensors end at byte " +
                           std::to_string(good.size()) + ", the file has " +
                           std::to_string(good.size() + 1) + " bytes");
  writeAll(weights, good);

  // The sums name another tensor.
  std::string text = readAll(step + "/checkpoint.json");
  const std::string whole = text;
  text.replace(text.rfind("\"wte.weight\""), 12, "\"wte.height\"");
  auto describe = [&](const std::string &as) {
    writeAll(step + "/checkpoint.json", as);
    writeAll(step + "/SHA256SUMS", writeSums({{"checkpoint.json", as}}));
  };
  describe(text);
  EXPECT_EQ(refused(verifyCheckpoint(step)),
            "'" + weights +
                "' has tensor 'wte.weight', which the checkpoint "
                "does not know");
  nlohmann::json more = nlohmann::json::parse(whole);
  more["tensors"]["more"] = "0123456789abcdef";
  describe(more.dump());
  EXPECT_EQ(refused(verifyCheckpoint(step)),
            "checkpoint '" + step + "' has no tensor 'more'");
  more = nlohmann::json::parse(whole);
  more["files"][0]["bytes"] = 7;
  describe(more.dump());
  const std::string first = more["files"][0]["name"];
  EXPECT_EQ(resumed(),
            "'" + step + "/" + first + "' has " +
                std::to_string(std::filesystem::file_size(step + "/" + first)) +
                " bytes, expected 7");

  // Lines of sums.
  const std::string sum(64, 'a');
  for (const std::string &line :
       {sum + "  ", sum + " checkpoint.json", sum + "  a/checkpoint.json"}) {
    writeAll(step + "/SHA256SUMS", line + "\n");
    EXPECT_EQ(resumed(), "'" + step +
                             "/SHA256SUMS': expected lines of a SHA-256 and "
                             "the name of a file, found '" +
                             line + "'");
  }
  writeAll(step + "/SHA256SUMS", sum + "  checkpoint.json\n");
  EXPECT_EQ(resumed(), "'" + step +
                           "/checkpoint.json' is damaged: its SHA-256 differs "
                           "from the one in SHA256SUMS");
}

TEST(Checkpoint, OfAnotherStepIsNotWritten) {
  std::string path = freshFolder("step");
  Training run{ModelPlan()};
  std::unique_ptr<CheckpointFolder> folder;
  ASSERT_TRUE(CheckpointFolder::open(path, CheckpointOptions(), folder));
  TrainingState state;
  state.step = 3;
  Status status = run.session->writeCheckpoint(*folder, state);
  EXPECT_EQ(status.exitCode(), 2);
  EXPECT_EQ(status.message(),
            "checkpoint: expected the state of step 0, found step 3");
}

/// Weights of several files, which an index names.
TEST(Weights, IndexesAreChecked) {
  const std::string folder = freshFolder("indexed");
  auto refusal = [&](const std::string &text) {
    try {
      for (const std::string &file : indexedFiles(text, "index", folder))
        EXPECT_EQ(file, folder + "/a");
      return std::string();
    } catch (const Error &error) {
      EXPECT_EQ(error.exitCode(), 2);
      return std::string(error.what());
    }
  };
  EXPECT_EQ(refusal(R"({"weight_map": {"t": "a", "u": "a"}})"), "");
  for (const char *text : {"", "[]", "{}", R"({"weight_map": ["a"]})"})
    EXPECT_EQ(refusal(text),
              "'index': expected a JSON object with 'weight_map'");
  for (const char *file : {"7", R"("../a")", R"("/a")"})
    EXPECT_EQ(refusal(R"({"weight_map": {"t": )" + std::string(file) + "}}"),
              "'index': tensor 't': expected the name of a file in the same "
              "folder");

  makeDirectory(folder);
  const std::vector<TensorEntry> entries = {{"t", GRT_F32, {2}}};
  for (const char *name : {"a", "b"})
    writeSafetensors(folder + "/" + name, entries,
                     [](size_t) { return std::vector<char>(8); });
  writeAll(folder + "/model.safetensors.index.json",
           R"({"weight_map": {"t": "a", "u": "b"}})");
  EXPECT_EQ(Training{ModelPlan()}.session->loadWeights(folder).message(),
            "'" + folder + "/b': tensor 't' stands in two files");
  std::filesystem::remove(folder + "/model.safetensors.index.json");
  const std::string none = "'" + folder +
                           "': expected model.safetensors or "
                           "model.safetensors.index.json in this folder";
  EXPECT_EQ(Training{ModelPlan()}.session->loadWeights(folder).message(), none);
  writeAll(folder + "/pytorch_model.bin", "");
  EXPECT_EQ(Training{ModelPlan()}.session->loadWeights(folder).message(),
            none + ", found pytorch_model.bin; transformers converts it: "
                   "AutoModel.from_pretrained(..).save_pretrained(..)");
}

TEST(Safetensors, WrongHeadersAreRefusedByTheirTensor) {
  // Returns the refusal of a header whose file has 8 bytes of data.
  auto refusal = [](const std::string &header) -> std::string {
    std::string bytes(8, 0);
    uint64_t length = header.size();
    std::memcpy(bytes.data(), &length, 8);
    bytes += header;
    try {
      parseSafetensorsHeader(bytes, bytes.size() + 8, "given");
      return "";
    } catch (const Error &error) {
      EXPECT_EQ(error.exitCode(), 2);
      return error.what();
    }
  };
  auto entry = [](const std::string &dtype, const std::string &shape,
                  const std::string &range) {
    return "{\"a\": {\"dtype\": " + dtype + ", \"shape\": " + shape +
           ", \"data_offsets\": " + range + "}}";
  };
  EXPECT_EQ(refusal(entry("\"F32\"", "[2]", "[0, 8]")), "");
  EXPECT_EQ(refusal(entry("\"F32\"", "[2]", "[0, 8]") + "   "), "");
  const std::pair<std::string, std::string> cases[] = {
      {"[1]", "'given': its header is not a JSON object"},
      {" {}", "'given': its header is not a JSON object"},
      {"{\"a\": }", "'given': its header is not a JSON object"},
      {"{\"a\"",
       "'given': expected its header to be a JSON object with nothing "
       "but spaces behind it, found byte 34"},
      {entry("\"F32\"", "[2]", "[0, 8]") + "  \n",
       "nothing but spaces behind it, found byte 10"},
      {entry("\"F32\"", "[2]", "[0, 8]") + std::string(3, 0),
       "nothing but spaces behind it, found byte 0"},
      {"{\"a\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0, "
       "4]}, \"a\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [4, "
       "8]}}",
       "'given': 'a' stands twice in its header"},
      {"{\"a\": {\"dtype\": \"F32\", \"shape\": [2], \"shape\": [2], "
       "\"data_offsets\": [0, 8]}}",
       "'given': 'shape' stands twice in its header"},
      {"{\"__metadata__\": {\"step\": 3}}",
       "'given': '__metadata__', 'step': expected a string, found 3"},
      {"{\"__metadata__\": [\"pt\"]}",
       "'given': expected '__metadata__' to be an object of strings"},
      {"{\"a\": {\"dtype\": \"F32\"}}",
       "tensor 'a': expected 'dtype', 'shape' and 'data_offsets'"},
      {"{\"a\": 3}",
       "tensor 'a': expected 'dtype', 'shape' and 'data_offsets'"},
      {entry("32", "[2]", "[0, 8]"),
       "tensor 'a': expected 'dtype' to be a string"},
      {entry("\"F32\"", "2", "[0, 8]"),
       "tensor 'a': expected 'shape' to be a list"},
      {entry("\"F32\"", "[-2]", "[0, 8]"),
       "tensor 'a': expected 'shape' to hold natural numbers whose product "
       "fits 64 bits"},
      {entry("\"F32\"", "[4294967296, 4294967296]", "[0, 8]"),
       "tensor 'a': expected 'shape' to hold natural numbers whose product "
       "fits 64 bits"},
      {entry("\"F32\"", "[2]", "[8, 0]"),
       "tensor 'a': expected 'data_offsets' to be [begin, end]"},
      {entry("\"F32\"", "[2]", "[0]"),
       "tensor 'a': expected 'data_offsets' to be [begin, end]"},
      {entry("\"F32\"", "[2]", "[0, 16]"),
       "tensor 'a': its data ends at byte 16 of the data, which has 8"},
      {entry("\"F32\"", "[3]", "[0, 8]"),
       "tensor 'a': shape [3] of F32 takes 12 bytes, found 8"},
  };
  for (const auto &[header, expected] : cases)
    EXPECT_NE(refusal(header).find(expected), std::string::npos)
        << header << ": " << refusal(header);
  // Lengths that do not fit the file, or what was read of it.
  auto cut = [](uint64_t length, size_t read, uint64_t file) -> std::string {
    std::string bytes(8, 0);
    std::memcpy(bytes.data(), &length, 8);
    bytes += "{}      ";
    try {
      parseSafetensorsHeader(std::string_view(bytes).substr(0, read), file,
                             "given");
      return "";
    } catch (const Error &error) {
      EXPECT_EQ(error.exitCode(), 2);
      return error.what();
    }
  };
  const std::string none = "'given': expected a safetensors file";
  EXPECT_EQ(cut(8, 16, 16), "");
  EXPECT_EQ(cut(8, 7, 16), none + ", found 7 bytes");
  EXPECT_EQ(cut(8, 15, 16), "'given': the header is cut short");
  EXPECT_EQ(cut(9, 16, 16),
            none + "; its header of 9 bytes does not fit into 16 bytes: cut "
                   "short, or not safetensors at all");
  EXPECT_EQ(cut(100'000'000, 16, 1 << 30), "'given': the header is cut short");
  EXPECT_EQ(cut(100'000'001, 16, 1 << 30),
            none + "; its header of 100000001 bytes does not fit into "
                   "1073741824 bytes: cut short, or not safetensors at all");
}

TEST(Safetensors, HalfPrecisionWidensExactly) {
  const uint16_t halves[] = {0x0000, 0x8000, 0x3c00, 0xc000, 0x7bff,
                             0x0400, 0x0001, 0x03ff, 0x7c00, 0x3555};
  const double expected[] = {0,        -0.0,
                             1,        -2,
                             65504,    0x1p-14,
                             0x1p-24,  1023 * 0x1p-24,
                             INFINITY, double(0x555) / 4096};
  float floats[10];
  double doubles[10];
  convertStored("F16", halves, 10, GRT_F32, floats);
  convertStored("F16", halves, 10, GRT_F64, doubles);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(double(floats[i]), expected[i]) << i;
    EXPECT_EQ(doubles[i], expected[i]) << i;
  }
}

} // namespace
