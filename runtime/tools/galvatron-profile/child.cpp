//===- child.cpp - Another tool as a process of this one ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "child.h"

#include "base/error.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

namespace grt::profile {
namespace {

/// The reader of the child's output looks this often whether all is to end.
constexpr int lookEveryMs = 100;
constexpr size_t mostSaid = 1 << 20;

void check(int error, const std::string &what) {
  if (error)
    fail(what + ": " + std::strerror(error));
}

/// A pipe, of which the ends close themselves.
class Pipe {
public:
  Pipe() {
    if (pipe2(ends.data(), O_CLOEXEC) != 0)
      check(errno, "cannot make a pipe");
  }
  ~Pipe() {
    closeEnd(0);
    closeEnd(1);
  }
  Pipe(const Pipe &) = delete;
  Pipe &operator=(const Pipe &) = delete;
  int reader() const { return ends[0]; }
  int writer() const { return ends[1]; }
  void closeWriter() { closeEnd(1); }

private:
  void closeEnd(size_t end) {
    if (ends[end] >= 0)
      ::close(ends[end]);
    ends[end] = -1;
  }
  std::array<int, 2> ends = {-1, -1};
};

/// The attributes and file actions of posix_spawn, released at the end of the
/// scope.
struct SpawnSettings {
  SpawnSettings() {
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  }
  SpawnSettings(const SpawnSettings &) = delete;
  SpawnSettings &operator=(const SpawnSettings &) = delete;
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
};

pid_t start(const std::string &path, const std::vector<std::string> &arguments,
            int errors) {
  std::vector<char *> passed = {const_cast<char *>(path.c_str())};
  for (const std::string &argument : arguments)
    passed.push_back(const_cast<char *>(argument.c_str()));
  passed.push_back(nullptr);
  SpawnSettings settings;
  posix_spawn_file_actions_addopen(&settings.files, STDIN_FILENO, "/dev/null",
                                   O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&settings.files, STDOUT_FILENO, "/dev/null",
                                   O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&settings.files, errors, STDERR_FILENO);
  // A terminal's Ctrl-C is this process's to pass on, so that the child's own
  // words about it are not taken for a failure.
  posix_spawnattr_setflags(&settings.attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&settings.attributes, 0);
  pid_t process = 0;
  check(posix_spawn(&process, path.c_str(), &settings.files,
                    &settings.attributes, passed.data(), environ),
        "cannot start '" + path + "'");
  return process;
}

} // namespace

std::string toolBesideThis(const std::string &name) {
  std::error_code problem;
  std::filesystem::path own =
      std::filesystem::read_symlink("/proc/self/exe", problem);
  if (problem)
    fail("cannot find the folder of this program: " + problem.message());
  std::string path = (own.parent_path() / name).string();
  if (access(path.c_str(), X_OK) != 0)
    invalid("expected " + name + " beside this program, found no '" + path +
            "' that can be executed");
  return path;
}

ChildEnd runChild(const std::string &path,
                  const std::vector<std::string> &arguments,
                  const std::function<bool()> &ended) {
  Pipe errors;
  pid_t process = start(path, arguments, errors.writer());
  errors.closeWriter();
  ChildEnd end;
  bool told = false;
  for (;;) {
    if (!told && ended()) {
      ::kill(process, SIGTERM);
      told = true;
    }
    pollfd waited = {errors.reader(), POLLIN, 0};
    if (::poll(&waited, 1, lookEveryMs) <= 0)
      continue; // nothing yet, or a signal
    std::array<char, 4096> part;
    ssize_t bytes = ::read(errors.reader(), part.data(), part.size());
    if (bytes < 0 && errno == EINTR)
      continue;
    if (bytes <= 0)
      break;
    if (end.said.size() < mostSaid)
      end.said.append(part.data(), size_t(bytes));
  }
  int status = 0;
  while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  end.exitCode =
      WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return end;
}

} // namespace grt::profile
