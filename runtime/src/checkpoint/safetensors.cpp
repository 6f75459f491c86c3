//===- safetensors.cpp - Writing safetensors files ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "checkpoint/safetensors.h"
#include "core/error.h"
#include "core/manifest.h"

#include <nlohmann/json.hpp>

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

namespace grt {

AtomicFile::AtomicFile(const std::string &path)
    : path(path), temporary(path + ".tmp") {
  descriptor =
      open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0)
    failed("create");
}

AtomicFile::~AtomicFile() {
  if (descriptor < 0)
    return;
  close(descriptor);
  unlink(temporary.c_str());
}

void AtomicFile::failed(const char *what) {
  fail(std::string("cannot ") + what + " '" + path + "': " + strerror(errno));
}

void AtomicFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t wrote = ::write(descriptor, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR)
      continue;
    if (wrote < 0)
      failed("write");
    bytes.remove_prefix(size_t(wrote));
  }
}

void AtomicFile::commit() {
  if (fsync(descriptor) != 0)
    failed("flush");
  if (rename(temporary.c_str(), path.c_str()) != 0)
    failed("rename to");
  close(descriptor);
  descriptor = -1;
  // The new name, too, must survive a crash.
  std::string folder = std::filesystem::path(path).parent_path().string();
  int directory =
      open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY);
  if (directory >= 0) {
    fsync(directory);
    close(directory);
  }
}

void writeSafetensors(const std::string &path,
                      const std::vector<TensorEntry> &entries,
                      const std::function<std::vector<char>(size_t)> &data) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  header["__metadata__"] = {{"format", "pt"}};
  uint64_t offset = 0;
  std::vector<uint64_t> sizes;
  for (const TensorEntry &entry : entries) {
    uint64_t bytes = dtypeBytes(entry.dtype);
    for (int64_t dim : entry.shape)
      bytes *= uint64_t(dim);
    const char *type = entry.dtype == GRT_F64    ? "F64"
                       : entry.dtype == GRT_BF16 ? "BF16"
                                                 : "F32";
    header[entry.name] = {{"dtype", type},
                          {"shape", entry.shape},
                          {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
    sizes.push_back(bytes);
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string length(8, '\0');
  for (int i = 0; i < 8; ++i)
    length[i] = char(uint64_t(text.size()) >> (8 * i));

  AtomicFile file(path);
  file.write(length);
  file.write(text);
  for (size_t i = 0; i < entries.size(); ++i) {
    std::vector<char> bytes = data(i);
    if (bytes.size() != sizes[i])
      fail("'" + entries[i].name + "' has " + std::to_string(bytes.size()) +
           " bytes, expected " + std::to_string(sizes[i]));
    file.write({bytes.data(), bytes.size()});
  }
  file.commit();
}

void makeDirectory(const std::string &path) {
  std::error_code problem;
  std::filesystem::create_directories(path, problem);
  if (problem || !std::filesystem::is_directory(path, problem))
    fail("cannot make directory '" + path + "'" +
         (problem ? ": " + problem.message() : ""));
}

} // namespace grt
