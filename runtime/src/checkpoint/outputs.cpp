//===- outputs.cpp - Trying outputs before the work -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "grt/outputs.h"
#include "base/error.h"
#include "base/text.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <map>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <vector>

namespace grt {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const Output &output, const std::string &what,
                         const std::string &path, int error) {
  fail(codeOfPath(error), output.option + "='" + output.path + "': cannot " +
                              what + " '" + path + "': " + strerror(error));
}

/// Creates a file that is not there, and removes it.
void tryCreating(const Output &output, const std::string &path) {
  int file =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file < 0)
    refuse(output, "create", output.path, errno);
  ::close(file);
  ::unlink(path.c_str());
}

/// A name beside `path` that nobody else takes.
std::string besides(const std::string &path) {
  return path + ".trial-" + std::to_string(getpid());
}

/// The folder whose file system will have the file `path`.
std::string parentOf(const std::string &path) {
  std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

/// The file that is made where `path` is written in its place: a link may lead
/// to one that is not there yet.
std::string followed(fs::path path) {
  std::error_code failed;
  constexpr int mostLinks = 40; // as the system follows
  for (int i = 0; i < mostLinks && fs::is_symlink(path, failed); ++i) {
    fs::path target = fs::read_symlink(path, failed);
    if (failed)
      break;
    path = path.parent_path() / target; // an absolute one stays as it is
  }
  return path.string();
}

void tryFile(const Output &output) {
  struct stat status{};
  if (::stat(output.path.c_str(), &status) != 0) {
    if (errno != ENOENT)
      refuse(output, "create", output.path, errno);
    return tryCreating(output, output.kind == Output::Whole
                                   ? besides(output.path)
                                   : followed(output.path));
  }
  if (S_ISDIR(status.st_mode))
    refuse(output, "write", output.path, EISDIR);
  if (S_ISREG(status.st_mode) && output.kind == Output::Whole)
    return tryCreating(output, besides(output.path));
  // Opening a pipe could wait for its reader.
  if (S_ISFIFO(status.st_mode)) {
    if (::access(output.path.c_str(), W_OK) != 0)
      refuse(output, "write", output.path, errno);
    return;
  }
  int file = ::open(output.path.c_str(), O_WRONLY | O_CLOEXEC);
  if (file < 0)
    refuse(output, "write", output.path, errno);
  ::close(file);
}

/// Folders that were made for a trial; they go with it, the last one first.
class MadeFolders {
public:
  ~MadeFolders() {
    while (!made.empty()) {
      ::rmdir(made.back().c_str());
      made.pop_back();
    }
  }
  void make(const Output &output, const fs::path &path) {
    struct stat status{};
    if (path.empty() || ::stat(path.c_str(), &status) == 0) {
      if (!path.empty() && !S_ISDIR(status.st_mode))
        refuse(output, "make directory", path.string(), ENOTDIR);
      return;
    }
    if (path.has_parent_path() && path.parent_path() != path)
      make(output, path.parent_path());
    if (::mkdir(path.c_str(), 0777) != 0) {
      // "a/" names the folder that its parent "a" was.
      if (errno == EEXIST)
        return;
      refuse(output, "make directory", path.string(), errno);
    }
    made.push_back(path.string());
  }

private:
  std::vector<std::string> made;
};

/// True if both paths name one file, of which one or both may not be there yet.
/// Pipes and devices can be written by several.
bool isOneFile(const std::string &a, const std::string &b) {
  std::error_code missing;
  for (const std::string &path : {a, b})
    if (fs::exists(path, missing) && !fs::is_regular_file(path, missing))
      return false;
  if (fs::equivalent(a, b, missing) && !missing)
    return true;
  // A relative name of nothing stays relative otherwise.
  auto place = [](const std::string &path) {
    std::error_code failed;
    fs::path found = fs::weakly_canonical(fs::absolute(path, failed), failed);
    return failed ? fs::path(path) : found;
  };
  return place(a) == place(b);
}

void refuseShared(const Output &output, const std::string &other) {
  fail(ExitInvalid, output.option + "='" + output.path +
                        "': expected a file of its own, found that of " +
                        other);
}

void checkOutputsApart(std::span<const Output> outputs,
                       std::span<const Input> inputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].kind == Output::Folder)
      continue;
    for (const Input &input : inputs)
      if (isOneFile(outputs[i].path, input.path))
        refuseShared(outputs[i], input.option);
    for (size_t j = 0; j < i; ++j)
      if (outputs[j].kind != Output::Folder &&
          isOneFile(outputs[i].path, outputs[j].path))
        refuseShared(outputs[i], outputs[j].option);
  }
}

/// Space that outputs take of one file system, and that it has available.
struct Demand {
  uint64_t bytes = 0, available = 0;
  size_t outputs = 0;
  std::string options, path;
};

void addDemand(const Output &output, const std::string &folder,
               std::map<dev_t, Demand> &demands) {
  struct stat status{};
  struct statvfs space{};
  if (output.bytes == 0 || ::stat(folder.c_str(), &status) != 0 ||
      ::statvfs(folder.c_str(), &space) != 0)
    return;
  Demand &demand = demands[status.st_dev];
  demand.bytes += output.bytes;
  demand.available = uint64_t(space.f_bavail) * space.f_frsize;
  demand.options += (demand.outputs++ == 0 ? "" : " and ") + output.option;
  demand.path = output.path;
}

} // namespace

Status tryOutputs(std::span<const Output> outputs,
                  std::span<const Input> inputs) {
  return guarded([&] {
    checkOutputsApart(outputs, inputs);
    std::map<dev_t, Demand> demands;
    struct rlimit limit{};
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0)
      limit.rlim_cur = RLIM_INFINITY;
    for (const Output &output : outputs) {
      MadeFolders folders;
      std::string folder = output.path;
      if (output.kind == Output::Folder) {
        folders.make(output, output.path);
        tryCreating(output, besides(output.path + "/file"));
      } else {
        tryFile(output);
        folder = parentOf(output.path);
      }
      if (limit.rlim_cur != RLIM_INFINITY &&
          output.largestFile > limit.rlim_cur)
        fail(ExitStorage, output.option + "='" + output.path +
                              "': needs a file of " +
                              bytesText(output.largestFile) +
                              ", the process may write files of " +
                              bytesText(limit.rlim_cur) + " (ulimit -f)");
      addDemand(output, folder, demands);
    }
    for (const auto &[device, demand] : demands)
      if (demand.bytes > demand.available)
        fail(ExitStorage, demand.options +
                              (demand.outputs == 1 ? " needs " : " need ") +
                              bytesText(demand.bytes) + ", '" + demand.path +
                              "' has " + bytesText(demand.available) + " left");
  });
}

} // namespace grt
