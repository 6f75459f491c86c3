//===- files.cpp - Files that survive a crash -----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "base/files.h"
#include "base/error.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace grt {

void (*fileOperationHook)(const char *operation, const std::string &path,
                          const std::string &to) = nullptr;

namespace {

void about(const char *operation, const std::string &path,
           const std::string &to = "") {
  if (fileOperationHook)
    fileOperationHook(operation, path, to);
}

[[noreturn]] void cannot(const char *what, const std::string &path,
                         const std::string &reason) {
  fail(ExitStorage,
       std::string("cannot ") + what + " '" + path + "': " + reason);
}

} // namespace

File::File(File &&other) noexcept
    : name(std::move(other.name)),
      descriptor(std::exchange(other.descriptor, -1)) {}

File &File::operator=(File &&other) noexcept {
  close();
  name = std::move(other.name);
  descriptor = std::exchange(other.descriptor, -1);
  return *this;
}

File::~File() { close(); }

void File::close() {
  if (descriptor >= 0)
    ::close(descriptor);
  descriptor = -1;
}

void File::failed(const char *what) const {
  cannot(what, name, strerror(errno));
}

File File::create(const std::string &path) {
  about("create", path);
  File file;
  file.name = path;
  file.descriptor =
      ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file.descriptor < 0)
    file.failed("create");
  return file;
}

File File::openToWrite(const std::string &path) {
  File file;
  file.name = path;
  file.descriptor = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (file.descriptor < 0)
    file.failed("open");
  return file;
}

File File::openToRead(const std::string &path) {
  File file;
  file.name = path;
  file.descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status{};
  if (file.descriptor < 0 || fstat(file.descriptor, &status) != 0)
    fail(codeOfPath(errno), "cannot open '" + path + "': " + strerror(errno));
  if (!S_ISREG(status.st_mode))
    invalid("'" + path + "' is not a regular file");
  return file;
}

uint64_t File::bytes() const {
  struct stat status{};
  if (fstat(descriptor, &status) != 0)
    failed("look at");
  return uint64_t(status.st_size);
}

void File::write(std::string_view bytes) {
  about("write", name);
  while (!bytes.empty()) {
    ssize_t wrote = ::write(descriptor, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR)
      continue;
    if (wrote < 0)
      failed("write");
    bytes.remove_prefix(size_t(wrote));
  }
}

void File::writeAt(uint64_t offset, const void *from, uint64_t bytes) const {
  about("write", name);
  const char *begin = static_cast<const char *>(from);
  for (uint64_t done = 0; done < bytes;) {
    ssize_t wrote =
        pwrite(descriptor, begin + done, bytes - done, off_t(offset + done));
    if (wrote < 0 && errno == EINTR)
      continue;
    if (wrote < 0)
      failed("write");
    done += uint64_t(wrote);
  }
}

void File::readAt(uint64_t offset, void *to, uint64_t bytes) const {
  char *begin = static_cast<char *>(to);
  for (uint64_t done = 0; done < bytes;) {
    ssize_t got =
        pread(descriptor, begin + done, bytes - done, off_t(offset + done));
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      failed("read");
    if (got == 0)
      invalid("'" + name + "' ends at byte " + std::to_string(offset + done) +
              ", expected at least " + std::to_string(offset + bytes));
    done += uint64_t(got);
  }
}

void File::reserve(uint64_t bytes) const {
  about("reserve", name);
  // Returns its error; file systems that cannot do it get zeros written.
  int problem = posix_fallocate(descriptor, 0, off_t(bytes));
  if (problem)
    cannot("reserve space for", name, strerror(problem));
}

void File::flush() const {
  about("flush", name);
  if (fsync(descriptor) != 0)
    failed("flush");
}

namespace {

bool isDevice(const std::string &path) {
  struct stat status{};
  return stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode) &&
         !S_ISDIR(status.st_mode);
}

} // namespace

AtomicFile::AtomicFile(const std::string &path)
    : path(path), inPlace(isDevice(path)),
      file(inPlace ? File::openToWrite(path) : File::create(path + ".tmp")) {}

AtomicFile::~AtomicFile() {
  if (!committed && !inPlace)
    unlink((path + ".tmp").c_str());
}

void AtomicFile::commit() {
  if (inPlace)
    return;
  file.flush();
  renamePath(path + ".tmp", path);
  committed = true;
  // The new name, too, must survive a crash.
  std::string folder = std::filesystem::path(path).parent_path().string();
  flushDirectory(folder.empty() ? "." : folder);
}

void openStandardDescriptors() {
  // The lowest free number is given, so those below are open already.
  for (int number : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(number, F_GETFD) == -1 && errno == EBADF &&
        open("/dev/null", O_RDWR) < 0)
      return; // a system without it
}

void writeStandardOutput(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() ||
      std::fflush(stdout) != 0)
    fail(ExitStorage,
         std::string("cannot write standard output: ") + strerror(errno));
}

std::string readWholeFile(const std::string &path, uint64_t most) {
  File file = File::openToRead(path);
  uint64_t bytes = file.bytes();
  if (bytes > most)
    invalid("'" + path + "' has " + std::to_string(bytes) +
            " bytes, expected at most " + std::to_string(most));
  std::string text(bytes, '\0');
  file.readAt(0, text.data(), bytes);
  return text;
}

std::vector<std::string> makeDirectory(const std::string &path) {
  namespace fs = std::filesystem;
  about("make directory", path);
  // New names must survive a crash, as what is put below them does.
  std::vector<std::string> changed, missing;
  std::error_code problem;
  for (fs::path made = path; !made.empty() && !fs::exists(made, problem);
       made = made.parent_path()) {
    missing.push_back(made.string());
    changed.push_back(made.has_parent_path() ? made.parent_path().string()
                                             : ".");
  }
  fs::create_directories(path, problem);
  if (problem || !std::filesystem::is_directory(path, problem))
    fail(ExitStorage, "cannot make directory '" + path + "'" +
                          (problem ? ": " + problem.message() : ""));
  for (const std::string &parent : changed)
    flushDirectory(parent);
  return missing;
}

void removeEmptyDirectory(const std::string &path) {
  std::error_code problem;
  if (!std::filesystem::is_empty(path, problem) || problem)
    return;
  about("remove", path);
  // What somebody else has put there meanwhile keeps it.
  rmdir(path.c_str());
}

void flushDirectory(const std::string &path) {
  about("flush directory", path);
  int directory = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0)
    return;
  // Some file systems cannot flush directories; their names are as safe as
  // they make them.
  fsync(directory);
  close(directory);
}

void renamePath(const std::string &from, const std::string &to) {
  about("rename", from, to);
  if (rename(from.c_str(), to.c_str()) != 0)
    cannot("rename to", to, strerror(errno));
}

void removePath(const std::string &path) {
  about("remove", path);
  std::error_code problem;
  std::filesystem::remove_all(path, problem);
  if (problem)
    cannot("remove", path, problem.message());
}

} // namespace grt
