//===- identity.cpp - What tells weights from others ----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// For processes that must load the same weights from folders of their own
// machines. Hashing all bytes would read the model once more on each; edges and
// sizes find another model, another step and a copy that was cut short.
//
//===----------------------------------------------------------------------===//

#include "base/error.h"
#include "base/sha256.h"
#include "grt/checkpoint.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

namespace grt {
namespace {

namespace fs = std::filesystem;

/// Bytes hashed at each end of a file, as for data files.
constexpr uint64_t edgeBytes = 1 << 16;

/// Its name, its size and the hash of its edges.
std::string identifyFile(const fs::path &path, uint64_t &bytes) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file)
    fail(codeOfPath(errno),
         "cannot open '" + path.string() + "': " + strerror(errno));
  uint64_t size = uint64_t(file.tellg());
  std::string head(std::min(edgeBytes, size), 0);
  std::string tail(std::min(edgeBytes, size - head.size()), 0);
  file.seekg(0);
  file.read(head.data(), std::streamsize(head.size()));
  file.seekg(std::streamoff(size - tail.size()));
  file.read(tail.data(), std::streamsize(tail.size()));
  if (!file)
    fail(ExitStorage, "cannot read '" + path.string() + "'");
  bytes += size;
  return path.filename().string() + " " + str(size) + " " +
         hashText(head + tail) + "\n";
}

} // namespace

std::vector<std::string> weightFiles(const std::string &path) {
  std::error_code problem;
  if (!fs::is_directory(path, problem))
    return {path};
  std::vector<std::string> files;
  for (const auto &entry : fs::directory_iterator(path, problem)) {
    std::string suffix = entry.path().extension().string();
    if (entry.is_regular_file(problem) &&
        (suffix == ".safetensors" || suffix == ".json"))
      files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

Status identifyWeights(const std::string &path, std::string &identity) {
  return guarded([&] {
    std::error_code problem;
    std::vector<std::string> files = weightFiles(path);
    uint64_t bytes = 0;
    std::string all;
    for (const std::string &file : files)
      all += identifyFile(file, bytes);
    // The name of a single file may differ.
    if (!fs::is_directory(path, problem))
      all.erase(0, all.find(' '));
    identity = str(files.size()) + (files.size() == 1 ? " file" : " files") +
               " of " + str(bytes) + " bytes, hash " +
               hashText(all).substr(0, 16);
  });
}

} // namespace grt
