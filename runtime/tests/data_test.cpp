//===- data_test.cpp - Token files, samples, learning rates ---------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "grt/data.h"
#include "grt/learning_rate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <numeric>
#include <set>
#include <unistd.h>

using namespace grt;

namespace {

std::string write(const std::string &name, const std::string &bytes) {
  std::string path = testing::TempDir() + name;
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

std::vector<DataFiles> files(std::vector<std::string> paths) {
  return {{"", std::move(paths)}};
}

Datum integers(const std::string &kind, int64_t below,
               std::vector<int64_t> shape) {
  Datum datum;
  datum.name = datum.kind = kind;
  datum.shape = std::move(shape);
  datum.bytesPerSample = uint64_t(datum.elements()) * 4;
  datum.below = below;
  datum.counted = kind == "labels" || kind == "classes";
  return datum;
}

/// Tokens, and labels that are the next ones.
Status open(const DataOptions &options, int64_t vocabulary, int64_t length,
            std::unique_ptr<Dataset> &result) {
  return Dataset::open(options,
                       {integers("tokens", vocabulary, {length}),
                        integers("labels", vocabulary, {length})},
                       result);
}

template <typename Value>
std::vector<Value> valuesOf(const std::vector<char> &bytes) {
  std::vector<Value> values(bytes.size() / sizeof(Value));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

Status take(const Status &status, const DataBatch &batch,
            std::vector<int32_t> &inputs, std::vector<int32_t> &labels) {
  if (status) {
    inputs = valuesOf<int32_t>(batch[0]);
    labels = valuesOf<int32_t>(batch[1]);
  }
  return status;
}
Status trainingBatch(const Dataset &data, uint64_t first, int64_t batch,
                     std::vector<int32_t> &inputs,
                     std::vector<int32_t> &labels) {
  DataBatch values;
  return take(data.trainingBatch(first, batch, values), values, inputs, labels);
}
Status validationBatch(const Dataset &data, uint64_t index, int64_t batch,
                       std::vector<int32_t> &inputs,
                       std::vector<int32_t> &labels) {
  DataBatch values;
  return take(data.validationBatch(index, batch, values), values, inputs,
              labels);
}

TEST(Permutation, IsABijection) {
  for (uint64_t size : {1, 2, 3, 4, 5, 16, 17, 64, 65, 1000, 4096})
    for (uint64_t epoch : {0, 1}) {
      Permutation order(size, 7, epoch);
      std::set<uint64_t> seen;
      for (uint64_t i = 0; i < size; ++i) {
        EXPECT_LT(order(i), size);
        seen.insert(order(i));
      }
      EXPECT_EQ(seen.size(), size);
    }
}

TEST(Permutation, DependsOnSeedAndEpoch) {
  Permutation a(1000, 1, 0), b(1000, 2, 0), c(1000, 1, 1);
  int equalSeeds = 0, equalEpochs = 0, fixedPoints = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    equalSeeds += a(i) == b(i);
    equalEpochs += a(i) == c(i);
    fixedPoints += a(i) == i;
  }
  EXPECT_LT(equalSeeds, 10);
  EXPECT_LT(equalEpochs, 10);
  EXPECT_LT(fixedPoints, 10);
}

TEST(Dataset, SamplesAndLabels) {
  std::string text;
  for (int i = 0; i < 43; ++i) // ten samples of four, two tokens dropped
    text.push_back(char(i));
  std::unique_ptr<Dataset> file;
  DataOptions options;
  options.files = files({write("samples.txt", text)});
  options.validationFraction = 0.25;
  Status status = open(options, 64, 4, file);
  ASSERT_TRUE(status) << status.message();
  EXPECT_EQ(file->trainingSamples(), 8u);
  EXPECT_EQ(file->validationSamples(), 2u);

  // One epoch sees every training sample once, whatever the batch.
  for (int64_t batch : {1, 2, 4, 8}) {
    std::multiset<int32_t> firsts;
    std::vector<int32_t> inputs, labels;
    for (uint64_t step = 1; step <= uint64_t(8 / batch); ++step) {
      ASSERT_TRUE(trainingBatch(*file, (step - 1) * uint64_t(batch), batch,
                                inputs, labels));
      for (int64_t s = 0; s < batch; ++s) {
        firsts.insert(inputs[s * 4]);
        EXPECT_EQ(inputs[s * 4] % 4, 0);
        for (int t = 0; t < 4; ++t)
          EXPECT_EQ(labels[s * 4 + t], inputs[s * 4 + t] + 1);
      }
    }
    EXPECT_EQ(firsts, (std::multiset<int32_t>{0, 4, 8, 12, 16, 20, 24, 28}));
  }

  std::vector<int32_t> inputs, labels;
  EXPECT_EQ(file->validationBatches(3), 1u);
  ASSERT_TRUE(validationBatch(*file, 0, 3, inputs, labels));
  EXPECT_EQ(inputs[0], 32);
  EXPECT_EQ(inputs[4], 36);
  EXPECT_EQ(labels[7], 40);
  EXPECT_EQ(labels[8], -1);
}

TEST(Dataset, WideTokens) {
  std::string narrow, wide;
  for (int i = 0; i < 9; ++i) {
    int token = 1000 * i;
    narrow += {char(token), char(token >> 8)};
    wide += {char(token), char(token >> 8), 0, 0};
  }
  for (bool isWide : {false, true}) {
    std::unique_ptr<Dataset> file;
    DataOptions options;
    options.files =
        files({write(isWide ? "t.u32" : "t.u16", isWide ? wide : narrow)});
    ASSERT_TRUE(open(options, 8001, 8, file));
    std::vector<int32_t> inputs, labels;
    ASSERT_TRUE(trainingBatch(*file, 2, 1, inputs, labels));
    for (int i = 0; i < 8; ++i) {
      EXPECT_EQ(inputs[i], 1000 * i);
      EXPECT_EQ(labels[i], 1000 * (i + 1));
    }
    Status status = open(options, 7000, 8, file);
    EXPECT_EQ(status.exitCode(), 2);
    EXPECT_NE(status.message().find("token 7000 at position 7, expected less "
                                    "than the vocabulary of 7000"),
              std::string::npos);
  }
}

TEST(Dataset, SeveralFiles) {
  // Three samples of four, then two: no sample crosses the border, whatever is
  // left at a file's end is dropped.
  std::string first, second;
  for (int i = 0; i < 15; ++i)
    first.push_back(char(i));
  for (int i = 100; i < 109; ++i)
    second += {char(i), 0};
  std::unique_ptr<Dataset> data;
  DataOptions options;
  options.files =
      files({write("first.txt", first), write("second.u16", second)});
  Status status = open(options, 128, 4, data);
  ASSERT_TRUE(status) << status.message();
  EXPECT_EQ(data->trainingSamples(), 5u);
  std::vector<int32_t> inputs, labels;
  ASSERT_TRUE(trainingBatch(*data, 0, 5, inputs, labels));
  std::set<int32_t> firsts;
  for (int s = 0; s < 5; ++s) {
    firsts.insert(inputs[s * 4]);
    for (int t = 0; t < 4; ++t)
      EXPECT_EQ(labels[s * 4 + t], inputs[s * 4 + t] + 1);
  }
  EXPECT_EQ(firsts, (std::set<int32_t>{0, 4, 8, 100, 104}));

  // The order is the files', and every file is known again.
  std::vector<DataIdentity> identity = data->identity();
  ASSERT_EQ(identity.size(), 2u);
  EXPECT_EQ(identity[1].format, "u16");
  EXPECT_EQ(identity[1].tokens, 9u);
  second[3] ^= 1;
  write("second.u16", second);
  std::unique_ptr<Dataset> other;
  ASSERT_TRUE(open(options, 512, 4, other));
  EXPECT_EQ(other->identity()[0], identity[0]);
  EXPECT_NE(other->identity()[1], identity[1]);
}

TEST(Dataset, EveryEpochHasAnOrderOfItsOwn) {
  std::string text;
  for (int i = 0; i <= 100; ++i) // 25 samples of four
    text.push_back(char(i));
  DataOptions options;
  options.files = files({write("epochs.txt", text)});
  options.seed = 9;
  std::unique_ptr<Dataset> data, again;
  ASSERT_TRUE(open(options, 128, 4, data));
  ASSERT_TRUE(open(options, 128, 4, again));
  std::vector<std::vector<int32_t>> epochs(3);
  std::vector<int32_t> labels, other;
  for (uint64_t epoch = 0; epoch < 3; ++epoch) {
    ASSERT_TRUE(trainingBatch(*data, epoch * 25, 25, epochs[epoch], labels));
    ASSERT_TRUE(trainingBatch(*again, epoch * 25, 25, other, labels));
    EXPECT_EQ(epochs[epoch], other) << epoch;
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
  EXPECT_NE(epochs[0], epochs[2]);
  for (std::vector<int32_t> &epoch : epochs)
    std::sort(epoch.begin(), epoch.end());
  EXPECT_EQ(epochs[0], epochs[1]);
  EXPECT_EQ(epochs[0], epochs[2]);
}

TEST(Dataset, TheLabelAtTheEndOfAFile) {
  // A sample of T tokens needs the one behind it: of a file of exactly N * T
  // tokens the last sample has no last label and is dropped.
  for (int tokens : {8, 9, 12, 13}) {
    std::string text;
    for (int i = 0; i < tokens; ++i)
      text.push_back(char(i));
    DataOptions options;
    options.files = files({write("end.txt", text)});
    std::unique_ptr<Dataset> data;
    ASSERT_TRUE(open(options, 128, 4, data));
    uint64_t samples = uint64_t(tokens - 1) / 4;
    EXPECT_EQ(data->trainingSamples(), samples) << tokens;
    std::vector<int32_t> inputs, labels;
    ASSERT_TRUE(trainingBatch(*data, 0, int64_t(samples), inputs, labels));
    int32_t last = *std::max_element(labels.begin(), labels.end());
    EXPECT_EQ(last, int32_t(samples) * 4) << tokens;
    for (size_t i = 0; i < inputs.size(); ++i)
      EXPECT_EQ(labels[i], inputs[i] + 1);
  }
  // T tokens are no sample, T + 1 are one.
  DataOptions options;
  options.files = files({write("end.txt", std::string(4, 'a'))});
  std::unique_ptr<Dataset> data;
  EXPECT_EQ(open(options, 128, 4, data).exitCode(), 2);
  options.files = files({write("end.txt", std::string(5, 'a'))});
  EXPECT_TRUE(open(options, 128, 4, data));
}

TEST(Dataset, TheTailOfALongFileIsPartOfItsIdentity) {
  std::string text(200000, 'a');
  DataOptions options;
  auto identity = [&] {
    options.files = files({write("tail.txt", text)});
    std::unique_ptr<Dataset> data;
    EXPECT_TRUE(open(options, 256, 4, data));
    return data->identity()[0];
  };
  DataIdentity whole = identity();
  text.back() = 'b';
  EXPECT_NE(identity(), whole);
  text.back() = 'a';
  EXPECT_EQ(identity(), whole);
  text[text.size() - 65536] = 'b';
  EXPECT_NE(identity(), whole);
}

TEST(Dataset, AllSamplesMayBeForValidation) {
  DataOptions options;
  options.files = files({write("all.txt", std::string(41, 'a'))});
  options.validationFraction = 1;
  std::unique_ptr<Dataset> data;
  ASSERT_TRUE(open(options, 128, 4, data));
  EXPECT_EQ(data->trainingSamples(), 0u);
  EXPECT_EQ(data->validationSamples(), 10u);
  std::vector<int32_t> inputs, labels;
  EXPECT_EQ(trainingBatch(*data, 0, 1, inputs, labels).exitCode(), 2);
}

TEST(Dataset, BatchesDoNotDependOnHowTheyAreCut) {
  std::string text;
  for (int i = 0; i < 101; ++i)
    text.push_back(char(i));
  std::unique_ptr<Dataset> data;
  DataOptions options;
  options.files = files({write("cut.txt", text)});
  ASSERT_TRUE(open(options, 128, 4, data));
  std::vector<int32_t> whole, part, labels;
  ASSERT_TRUE(trainingBatch(*data, 0, 60, whole, labels)); // over two epochs
  for (uint64_t first : {0, 7, 20, 24, 25, 49})
    for (int64_t batch : {1, 4, 11}) {
      ASSERT_TRUE(trainingBatch(*data, first, batch, part, labels));
      EXPECT_TRUE(std::equal(part.begin(), part.end(),
                             whole.begin() + long(first) * 4));
    }
}

TEST(Dataset, FilesThatChangeAreErrors) {
  std::unique_ptr<Dataset> data;
  DataOptions options;
  options.files = files({write("change.txt", std::string(4096, 'a'))});
  options.validationFraction = 0.25;
  ASSERT_TRUE(open(options, 256, 8, data));
  std::vector<int32_t> inputs, labels;
  ASSERT_TRUE(trainingBatch(*data, 0, 2, inputs, labels));
  write("change.txt", "short");
  for (const Status &status : {trainingBatch(*data, 2, 2, inputs, labels),
                               validationBatch(*data, 0, 2, inputs, labels)}) {
    EXPECT_EQ(status.exitCode(), ExitStorage);
    EXPECT_NE(status.message().find("expected 4096 bytes, found 5"),
              std::string::npos);
  }
  options.files = files({write("empty.txt", "")});
  EXPECT_NE(open(options, 256, 8, data).message().find("is empty"),
            std::string::npos);
}

/// A `.npy` file as NumPy writes it, of version 1; of another one with a header
/// whose length needs more than two bytes.
template <typename Value>
std::string npy(const std::string &descr, const std::string &shape,
                const std::vector<Value> &values, char version = 1) {
  std::string header = "{'descr': '" + descr +
                       "', 'fortran_order': False, 'shape': " + shape + ", }";
  header.resize((header.size() + 10 + 64) / 64 * 64 - 11, ' ');
  if (version > 1)
    header.resize(0x10203, ' ');
  header += '\n';
  std::string bytes("\x93NUMPY");
  bytes += {version, 0, char(header.size()), char(header.size() >> 8)};
  if (version > 1)
    bytes += {char(header.size() >> 16), 0};
  return bytes + header +
         std::string(reinterpret_cast<const char *>(values.data()),
                     values.size() * sizeof(Value));
}

Datum reals(const std::string &kind, std::vector<int64_t> shape, uint32_t type,
            uint64_t width) {
  Datum datum;
  datum.name = datum.kind = kind;
  datum.shape = std::move(shape);
  datum.type = type;
  datum.bytesPerSample = uint64_t(datum.elements()) * width;
  return datum;
}

TEST(Dataset, ImagesAndClasses) {
  // Five images of 2 x 3 bytes, their classes in two files.
  std::vector<uint8_t> pixels(30);
  for (size_t i = 0; i < pixels.size(); ++i)
    pixels[i] = uint8_t(8 * i);
  DataOptions options;
  options.files = {
      {"classes",
       {write("a.npy", npy<int64_t>("<i8", "(3,)", {4, -7, 2})),
        write("b.npy", npy<uint8_t>("|u1", "(2,)", {0, 1}))}},
      {"", {write("images.npy", npy("|u1", "(5, 2, 3)", pixels))}}};
  options.validationFraction = 1; // the order of the files
  std::vector<Datum> data = {reals("images", {2, 3}, GRT_F32, 4),
                             integers("classes", 5, {})};
  std::unique_ptr<Dataset> opened;
  Status status = Dataset::open(options, data, opened);
  ASSERT_TRUE(status) << status.message();
  ASSERT_EQ(opened->validationSamples(), 5u);
  DataBatch batch;
  ASSERT_TRUE(opened->validationBatch(0, 6, batch));
  std::vector<float> images = valuesOf<float>(batch[0]);
  for (size_t i = 0; i < 30; ++i)
    EXPECT_EQ(images[i], float(pixels[i] / 255.0)) << i;
  for (size_t i = 30; i < 36; ++i)
    EXPECT_EQ(images[i], 0.0f);
  // A negative class does not count, nor does what is missing.
  EXPECT_EQ(valuesOf<int32_t>(batch[1]),
            (std::vector<int32_t>{4, -1, 2, 0, 1, -1}));
  EXPECT_EQ(opened->identity().size(), 3u);
  EXPECT_EQ(opened->identity()[0].format, "npy");
  EXPECT_EQ(opened->fileNames()[0], options.files[1].paths[0]);
  // Labels have a file of their own: no value of an image is left out.
  EXPECT_EQ(opened->usable().labels, opened->usable().all);

  // Training deals both alike.
  options.validationFraction = 0;
  ASSERT_TRUE(Dataset::open(options, data, opened));
  ASSERT_TRUE(opened->trainingBatch(0, 5, batch));
  images = valuesOf<float>(batch[0]);
  std::vector<int32_t> classes = valuesOf<int32_t>(batch[1]);
  for (size_t s = 0; s < 5; ++s) {
    size_t sample = size_t(std::lround(images[6 * s] * 255 / 48));
    EXPECT_EQ(classes[s], (std::vector<int32_t>{4, -1, 2, 0, 1})[sample]);
  }
}

TEST(Dataset, FloatingValuesOfEveryWidth) {
  std::vector<float> singles = {0.5f, -1.25f, 3.0e-5f, 1e30f};
  std::vector<double> doubles(singles.begin(), singles.end());
  for (bool wide : {false, true})
    for (uint32_t type :
         {uint32_t(GRT_F32), uint32_t(GRT_F64), uint32_t(GRT_BF16)}) {
      DataOptions options;
      options.validationFraction = 1;
      std::string path =
          write("values.npy", wide ? npy("<f8", "(2, 2)", doubles)
                                   : npy("<f4", "(2, 2)", singles));
      options.files = {
          {"images", {path}},
          {"classes", {write("c.npy", npy<uint8_t>("|b1", "(2,)", {1, 0}))}}};
      uint64_t width = type == GRT_F64 ? 8 : type == GRT_F32 ? 4 : 2;
      std::unique_ptr<Dataset> data;
      Status status = Dataset::open(
          options,
          {reals("images", {2}, type, width), integers("classes", 2, {})},
          data);
      ASSERT_TRUE(status) << status.message();
      DataBatch batch;
      ASSERT_TRUE(data->validationBatch(0, 2, batch));
      if (type == GRT_F64)
        EXPECT_EQ(valuesOf<double>(batch[0]), doubles);
      else if (type == GRT_F32)
        EXPECT_EQ(valuesOf<float>(batch[0]), singles);
      else // 0.5 and -1.25 have few digits
        EXPECT_EQ(valuesOf<uint16_t>(batch[0])[1], 0xbfa0);
      EXPECT_EQ(valuesOf<int32_t>(batch[1]), (std::vector<int32_t>{1, 0}));
    }
}

/// Lengths of headers have four bytes from version 2 on.
TEST(Dataset, ArraysOfEveryVersionAreRead) {
  for (char version : {1, 2, 3}) {
    DataOptions options;
    options.validationFraction = 1;
    options.files = {
        {"images",
         {write("v.npy", npy<float>("<f4", "(2, 2)", {1, 2, 3, 4}, version))}},
        {"classes",
         {write("vc.npy", npy<uint8_t>("|u1", "(2,)", {1, 0}, version))}}};
    std::unique_ptr<Dataset> data;
    Status status = Dataset::open(
        options, {reals("images", {2}, GRT_F32, 4), integers("classes", 2, {})},
        data);
    ASSERT_TRUE(status) << status.message();
    DataBatch batch;
    ASSERT_TRUE(data->validationBatch(0, 2, batch));
    EXPECT_EQ(valuesOf<float>(batch[0]), (std::vector<float>{1, 2, 3, 4}));
    EXPECT_EQ(valuesOf<int32_t>(batch[1]), (std::vector<int32_t>{1, 0}));
  }
}

TEST(Dataset, SeveralKindsOfIntegers) {
  std::string text;
  for (int i = 0; i < 21; ++i)
    text.push_back(char(i));
  DataOptions options;
  options.validationFraction = 1;
  std::string types(20, 0);
  types[6] = 1;
  options.files = {{"tokens", {write("t.txt", text)}},
                   {"segments", {write("s.txt", types)}}};
  Datum segments = integers("token_types", 2, {4});
  segments.name = "segments";
  std::unique_ptr<Dataset> data;
  Status status = Dataset::open(
      options,
      {integers("labels", 64, {4}), segments, integers("tokens", 64, {4})},
      data);
  ASSERT_TRUE(status) << status.message();
  DataBatch batch;
  ASSERT_TRUE(data->validationBatch(0, 2, batch));
  EXPECT_EQ(valuesOf<int32_t>(batch[0])[7], 8);
  EXPECT_EQ(valuesOf<int32_t>(batch[1])[6], 1);
  EXPECT_EQ(valuesOf<int32_t>(batch[2])[7], 7);
}

TEST(Dataset, WhatCannotBeReadIsNamed) {
  std::vector<Datum> data = {reals("images", {2, 2}, GRT_F32, 4),
                             integers("classes", 5, {})};
  std::vector<float> pixels(12);
  std::string images = write("i.npy", npy("<f4", "(3, 2, 2)", pixels));
  std::string classes = write("c.npy", npy<int32_t>("<i4", "(3,)", {0, 1, 2}));
  auto message = [&](const std::vector<DataFiles> &files) {
    DataOptions options;
    options.files = files;
    std::unique_ptr<Dataset> opened;
    Status status = Dataset::open(options, data, opened);
    EXPECT_EQ(status.exitCode(), 2);
    return status.message();
  };
  auto has = [](const std::string &text, const std::string &part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  auto withImages = [&](const std::string &bytes) {
    return message(
        {{"images", {write("wrong.npy", bytes)}}, {"classes", {classes}}});
  };
  has(message({{"images", {images}}}),
      "data 'classes' of kind 'classes': expected a file, --data=classes=FILE");
  has(message({{"sounds", {images}}}),
      "data 'sounds': expected one of the program's, 'images', 'classes'");
  has(message({{"", {images}},
               {"classes",
                {write("w.npy", npy<int32_t>("<i4", "(3,)", {0, 5, 2}))}}}),
      "'classes' has 5 at position 1, expected less than 5");
  has(message(
          {{"", {images}},
           {"classes", {write("w.npy", npy<int32_t>("<i4", "(2,)", {0, 1}))}}}),
      "data 'classes' has 2 samples, expected the 3 of 'images'");
  has(message({{"", {images}}, {"classes", {images}}}),
      "expected samples of shape [] for 'classes', found an array of shape "
      "[3, 2, 2]");
  has(message({{"", {images}},
               {"classes",
                {write("w.npy", npy<float>("<f4", "(3,)", {0, 1, 2}))}}}),
      "expected integers for 'classes', found elements of type f4");
  has(message({{"", {write("i.txt", std::string(12, 'a'))}},
               {"classes", {classes}}}),
      "expected an array file (.npy) for 'images'");
  has(withImages(npy("<f4", "(3, 4)", pixels)),
      "expected samples of shape [2, 2] for 'images', found an array of shape "
      "[3, 4]");
  has(withImages(npy("<f4", "(4, 2, 2)", pixels)),
      "expected 16 elements of type f4");
  has(withImages(npy(">f4", "(3, 2, 2)", pixels)),
      "expected the least significant byte first, found '>f4'");
  has(withImages(npy("<c8", "(3, 2, 2)", pixels)), "found '<c8'");
  has(withImages("images"), "expected an array file, which begins with");
  has(withImages(std::string("\x93NUMPY\x09\x00\x10\x00", 10)),
      "expected version 1, 2 or 3");
  has(withImages(std::string("\x93NUMPY\x01\x00\xff\x00{", 11)),
      "the header ends at byte 265 of a file of 11");
  auto header = [&](const std::string &text) {
    return withImages(std::string("\x93NUMPY\x01\x00", 8) +
                      std::string({char(text.size()), 0}) + text);
  };
  has(header("{'descr': '<f4', 'fortran_order': True, 'shape': (3,)}"),
      "expected rows first, found an array in Fortran order");
  has(header("{'descr': '<f4', 'shape': (3,)}"),
      "expected the key 'fortran_order'");
  has(header("{'descr': '<f4', 'descr': '<f4'}"), "found 'descr'");
  has(header("{'shape': (3, -1)}"), "byte 24: expected a number");
  has(header("{'shape': (4503599627370496, 4)}"),
      "expected at most 4503599627370496 elements");
  std::string ones; // 64 dimensions and one more
  for (int i = 0; i < 64; ++i)
    ones += "1,";
  has(header("{'shape': (" + ones + ")}"), "expected the key 'descr'");
  has(header("{'shape': (" + ones + "1)}"), "expected at most 64 dimensions");
  has(header("{'fortran_order': 1}"), "expected True or False");
  has(header("['descr']"), "byte 10: expected '{', found '['");
  has(header("{'descr': '<f4'} 1"), "expected the end of the header");

  // An array of tokens does not say which comes after the last.
  data = {integers("tokens", 5, {3}), integers("labels", 5, {3})};
  has(message(
          {{"", {write("t.npy", npy<uint8_t>("|u1", "(1, 3)", {0, 1, 2}))}}}),
      "an array of samples has no next tokens");
}

/// Processes read their part of the batch that all read together, and all count
/// the same.
TEST(Dataset, ProcessesReadTheirSamplesAlone) {
  std::vector<float> pixels(60);
  std::iota(pixels.begin(), pixels.end(), 0.0f);
  std::vector<int8_t> classes;
  for (int i = 0; i < 30; ++i)
    classes.push_back(int8_t(i % 4 - 1));
  std::string images = write("i.npy", npy("<f4", "(30, 2)", pixels));
  std::string text(121, 'a');
  for (size_t i = 0; i < text.size(); ++i)
    text[i] = char(i);
  DataOptions pictures, tokens;
  pictures.files = {
      {"", {images}},
      {"classes", {write("c.npy", npy("|i1", "(30,)", classes))}}};
  tokens.files = files({write("t.txt", text)});
  pictures.validationFraction = tokens.validationFraction = 0.2;
  const std::vector<Datum> kinds[] = {
      {reals("images", {2}, GRT_F32, 4), integers("classes", 3, {})},
      {integers("tokens", 128, {4}), integers("labels", 128, {4})}};
  for (int kind : {0, 1}) {
    std::unique_ptr<Dataset> data;
    ASSERT_TRUE(Dataset::open(kind ? tokens : pictures, kinds[kind], data));
    for (bool validates : {false, true}) {
      auto load = [&](DataBatch &batch, const SamplesRead *wanted,
                      uint64_t &counted) {
        // 24 samples are for training, the other 6 for validation.
        return validates ? data->validationBatch(0, 10, batch, wanted, &counted)
                         : data->trainingBatch(20, 10, batch, wanted, &counted);
      };
      DataBatch whole;
      uint64_t counted = 0;
      ASSERT_TRUE(load(whole, nullptr, counted));
      uint64_t expected = 0;
      for (int32_t value : valuesOf<int32_t>(whole[1]))
        expected += value >= 0;
      EXPECT_EQ(counted, expected);
      EXPECT_GT(expected, 0u);
      for (int64_t processes : {1, 2, 5}) {
        DataBatch joined;
        for (const std::vector<char> &values : whole)
          joined.emplace_back(values.size());
        for (int64_t p = 0; p < processes; ++p) {
          int64_t each = 10 / processes;
          // The second datum is read by another stage.
          SamplesRead wanted = {{{p * each, each}},
                                {{(processes - 1 - p) * each, each}}};
          DataBatch part;
          ASSERT_TRUE(load(part, &wanted, counted));
          EXPECT_EQ(counted, expected);
          for (size_t d : {0, 1}) {
            auto bytes = long(kinds[kind][d].bytesPerSample);
            std::copy_n(part[d].begin() + wanted[d][0].first * bytes,
                        each * bytes,
                        joined[d].begin() + wanted[d][0].first * bytes);
          }
        }
        EXPECT_EQ(joined, whole) << processes;
      }
    }
  }
}

/// The front of a long file is checked when it is opened and the rest as it is
/// read: a trillion tokens (in a file with a hole) are there at once.
TEST(Dataset, LongFilesAreCheckedAsTheyAreRead) {
  constexpr uint64_t trillion = 1'000'000'000'000;
  std::string path = write("long.u16", "");
  if (truncate(path.c_str(), off_t(2 * trillion)) != 0)
    GTEST_SKIP() << "the file system has no files of 2 TB";
  DataOptions options;
  options.files = files({path});
  std::unique_ptr<Dataset> data;
  ASSERT_TRUE(open(options, 100, 1024, data));
  EXPECT_EQ(data->trainingSamples(), (trillion - 1) / 1024);
  std::vector<int32_t> inputs, labels;
  for (uint64_t first : {uint64_t(0), trillion})
    ASSERT_TRUE(trainingBatch(*data, first, 4, inputs, labels));
  data.reset();

  // The one bad token is in the last sample.
  uint64_t samples = uint64_t(1) << 16, tokens = samples * 1024 + 1;
  ASSERT_EQ(truncate(path.c_str(), 0), 0);
  ASSERT_EQ(truncate(path.c_str(), off_t(2 * tokens)), 0);
  {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(std::streamoff(2 * (tokens - 5)));
    file.put(char(200));
  }
  options.validationFraction = 1.0 / double(samples);
  ASSERT_TRUE(open(options, 100, 1024, data));
  EXPECT_TRUE(trainingBatch(*data, 0, 4, inputs, labels));
  Status status = validationBatch(*data, 0, 1, inputs, labels);
  EXPECT_EQ(status.exitCode(), 2);
  EXPECT_NE(status.message().find("token 200 at position 67108860"),
            std::string::npos)
      << status.message();
  std::remove(path.c_str());
}

TEST(LearningRate, WarmsUpAndFalls) {
  LearningRateSchedule schedule{1.0, 0.1, 10, 110};
  EXPECT_DOUBLE_EQ(schedule.at(1), 0.1);
  EXPECT_DOUBLE_EQ(schedule.at(10), 1.0);
  EXPECT_NEAR(schedule.at(60), 0.55, 1e-12);
  EXPECT_DOUBLE_EQ(schedule.at(110), 0.1);
  EXPECT_DOUBLE_EQ((LearningRateSchedule{1.0, 1.0, 0, 1}).at(1), 1.0);
  for (uint64_t step = 11; step < 110; ++step)
    EXPECT_GT(schedule.at(step), schedule.at(step + 1));
}

TEST(LearningRate, Schedules) {
  // Peak 1, end 0.1, 10 steps of warm-up, 110 in all.
  LearningRateSchedule s{1.0, 0.1, 10, 110, Decay::Linear};
  EXPECT_DOUBLE_EQ(s.at(5), 0.5);
  EXPECT_DOUBLE_EQ(s.at(10), 1.0);
  EXPECT_NEAR(s.at(60), 0.55, 1e-12);
  EXPECT_NEAR(s.at(85), 0.325, 1e-12);
  EXPECT_DOUBLE_EQ(s.at(110), 0.1);
  // A decay with a length of its own ends earlier, and stays.
  s.decaySteps = 50;
  EXPECT_NEAR(s.at(35), 0.55, 1e-12);
  EXPECT_DOUBLE_EQ(s.at(60), 0.1);
  EXPECT_DOUBLE_EQ(s.at(110), 0.1);
  s.decay = Decay::Cosine;
  EXPECT_NEAR(s.at(35), 0.55, 1e-12);
  EXPECT_NEAR(s.at(20), 0.1 + 0.45 * (1 + std::cos(M_PI * 0.2)), 1e-12);
  EXPECT_DOUBLE_EQ(s.at(60), 0.1);
  // Stable, then down at the end.
  s.decay = Decay::WarmupStableDecay;
  EXPECT_DOUBLE_EQ(s.at(11), 1.0);
  EXPECT_DOUBLE_EQ(s.at(60), 1.0);
  EXPECT_NEAR(s.at(85), 0.55, 1e-12);
  EXPECT_DOUBLE_EQ(s.at(110), 0.1);
  s.decaySteps = 0;
  EXPECT_EQ(s.decayBegin(), 99u);
  EXPECT_DOUBLE_EQ(s.at(99), 1.0);
  EXPECT_LT(s.at(100), 1.0);
  EXPECT_DOUBLE_EQ(s.at(110), 0.1);
  s.decay = Decay::Constant;
  for (uint64_t step : {11, 60, 110, 200})
    EXPECT_DOUBLE_EQ(s.at(step), 1.0);
  for (const DecayName &known : decayNames) {
    EXPECT_EQ(parseDecay(known.name), known.decay);
    EXPECT_EQ(nameOf(known.decay), known.name);
  }
  EXPECT_FALSE(parseDecay("step"));
}

} // namespace
