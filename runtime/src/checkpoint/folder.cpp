//===- folder.cpp - The checkpoint folder of a run ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "checkpoint/files.h"
#include "core/error.h"
#include "core/random.h"
#include "core/sha256.h"
#include "grt/checkpoint.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/file.h>
#include <unistd.h>

namespace grt {
namespace {

constexpr std::string_view prefix = "step-";
constexpr const char *markPrefix = ".run-";

/// The step of a complete checkpoint's folder name.
std::optional<uint64_t> stepOf(const std::string &name) {
  if (name.size() < prefix.size() + 8 || name.size() > prefix.size() + 18 ||
      name.compare(0, prefix.size(), prefix) != 0)
    return std::nullopt;
  std::string digits = name.substr(prefix.size());
  if (digits.find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;
  return std::stoull(digits);
}

} // namespace

CheckpointFolder::~CheckpointFolder() {
  if (!markName.empty())
    ::unlink((folder + "/" + markName).c_str());
  if (descriptor >= 0)
    close(descriptor);
}

Status CheckpointFolder::open(const std::string &path,
                              const CheckpointOptions &options,
                              std::unique_ptr<CheckpointFolder> &result) {
  return guarded([&] {
    std::unique_ptr<CheckpointFolder> opened(new CheckpointFolder);
    opened->folder = path;
    opened->settings = options;
    if (!options.leads) {
      result = std::move(opened);
      return;
    }
    makeDirectory(path);
    opened->descriptor =
        ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (opened->descriptor < 0)
      fail(ExitStorage, "cannot open '" + path + "': " + strerror(errno));
    // Released by the system however the process ends. File systems without
    // locks leave it to the user not to start a run twice.
    if (flock(opened->descriptor, LOCK_EX | LOCK_NB) != 0 &&
        errno == EWOULDBLOCK)
      fail("another run writes its checkpoints to '" + path + "'");
    // What a killed run left behind.
    std::error_code problem;
    for (const auto &entry :
         std::filesystem::directory_iterator(path, problem)) {
      std::string name = entry.path().filename().string();
      if (name.starts_with(markPrefix) ||
          (name.size() > 8 && name.ends_with(".partial") &&
           stepOf(name.substr(0, name.size() - 8))))
        removePath(entry.path().string());
    }
    // Whether it can be written to should show before hours of training.
    std::string name = markPrefix + hexadecimal(randomBytes(8));
    File::create(path + "/" + name).close();
    opened->markName = name;
    result = std::move(opened);
  });
}

std::vector<uint64_t> checkpointSteps(const std::string &folder) {
  std::vector<uint64_t> found;
  std::error_code problem;
  for (const auto &entry :
       std::filesystem::directory_iterator(folder, problem)) {
    std::optional<uint64_t> step = stepOf(entry.path().filename().string());
    if (step && entry.is_directory(problem))
      found.push_back(*step);
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<uint64_t> CheckpointFolder::steps() const {
  return checkpointSteps(folder);
}

std::optional<std::string> CheckpointFolder::newest() const {
  std::vector<uint64_t> found = steps();
  if (found.empty())
    return std::nullopt;
  return stepFolder(found.back());
}

std::string CheckpointFolder::stepFolder(uint64_t step) const {
  std::string digits = std::to_string(step);
  if (digits.size() < 8)
    digits.insert(0, 8 - digits.size(), '0');
  return folder + "/" + std::string(prefix) + digits;
}

} // namespace grt
