//===- replay.cpp - Runs a fuzzer's entry function over files -------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Stands in for libFuzzer's driver: every file that is named, and every file of
// every folder, whole, cut short at some lengths, and with some bytes changed.
//
//===----------------------------------------------------------------------===//

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

namespace fs = std::filesystem;

namespace {

size_t inputs = 0;

void runInput(const std::vector<uint8_t> &bytes) {
  ++inputs;
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

void runFile(const fs::path &path) {
  std::ifstream in(path, std::ios::binary);
  std::vector<char> text((std::istreambuf_iterator<char>(in)), {});
  std::vector<uint8_t> bytes(text.begin(), text.end());
  runInput(bytes);
  std::mt19937 random(unsigned(bytes.size()));
  for (int round = 0; round < 16 && !bytes.empty(); ++round) {
    std::vector<uint8_t> changed(bytes.begin(),
                                 bytes.begin() + long(random() % bytes.size()));
    runInput(changed);
    changed = bytes;
    for (int i = 0; i <= round % 4; ++i)
      changed[random() % changed.size()] = uint8_t(random());
    runInput(changed);
  }
}

} // namespace

int main(int argc, char **argv) {
  for (int i = 1; i < argc; ++i) {
    if (!fs::is_directory(argv[i])) {
      runFile(argv[i]);
      continue;
    }
    for (const auto &entry : fs::directory_iterator(argv[i]))
      runFile(entry.path());
  }
  std::printf("%zu inputs\n", inputs);
  return inputs == 0;
}
