//===- verify.cpp - Whether a checkpoint is whole -------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Reads all of a checkpoint, without a program or ranks, and compares it with
// its checksums.
//
//===----------------------------------------------------------------------===//

#include "base/error.h"
#include "checkpoint/pieces.h"
#include "checkpoint/state.h"

#include <algorithm>
#include <filesystem>
#include <set>

namespace grt {
namespace {

/// Bytes that are read at once; a multiple of every element's.
constexpr uint64_t pieceBytes = uint64_t(1) << 20;

uint64_t sumOf(const File &file, const StoredTensor &tensor) {
  uint64_t width = safetensorsTypeBytes(tensor.dtype), sum = 0;
  std::vector<char> piece(std::min(pieceBytes, tensor.bytes));
  for (uint64_t at = 0; at < tensor.bytes; at += piece.size()) {
    uint64_t bytes = std::min<uint64_t>(piece.size(), tensor.bytes - at);
    file.readAt(tensor.offset + at, piece.data(), bytes);
    sum += elementSum(piece.data(), int64_t(at / width), int64_t(bytes / width),
                      width);
  }
  return sum;
}

} // namespace

Status verifyCheckpoint(const std::string &checkpoint) {
  return guarded([&] {
    CheckpointManifest manifest = readCheckpointManifest(checkpoint);
    std::set<std::string> missing;
    for (const auto &[name, sum] : manifest.sums)
      missing.insert(name);
    for (const TensorFile &stored : manifest.files) {
      std::string path = checkpoint + "/" + stored.name;
      SafetensorsFile file(path);
      if (hashText(file.header()) != stored.headerHash)
        invalid("'" + path +
                "' is damaged: its header differs from the one "
                "that was written");
      for (const auto &[name, tensor] : file.tensors()) {
        auto sum = manifest.sums.find(name);
        if (sum == manifest.sums.end())
          invalid("'" + path + "' has tensor '" + name +
                  "', which the checkpoint does not know");
        if (sumOf(file.file(), tensor) != sum->second)
          invalid("'" + path + "' is damaged: the values of tensor '" + name +
                  "' do not add up to their checksum");
        missing.erase(name);
      }
    }
    if (!missing.empty())
      invalid("checkpoint '" + checkpoint + "' has no tensor '" +
              *missing.begin() + "'");
  });
}

Status setCheckpointAside(const std::string &checkpoint) {
  return guarded([&] {
    // A single damaged checkpoint is enough to look at, and space is for those
    // that are whole.
    std::string parent =
        std::filesystem::path(checkpoint).parent_path().string();
    std::error_code problem;
    std::vector<std::string> before;
    for (const auto &entry :
         std::filesystem::directory_iterator(parent, problem))
      if (entry.path().extension() == ".damaged")
        before.push_back(entry.path().string());
    for (const std::string &each : before)
      removePath(each);
    renamePath(checkpoint, checkpoint + ".damaged");
  });
}

} // namespace grt
