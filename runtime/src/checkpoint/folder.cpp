//===- folder.cpp - The checkpoint folder of a run ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "base/error.h"
#include "base/files.h"
#include "base/random.h"
#include "base/sha256.h"
#include "base/signal_stack.h"
#include "grt/checkpoint.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>
#include <sys/file.h>
#include <sys/stat.h>
#include <thread>
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

/// Content of a mark: the process that holds the folder, and how often it has
/// shown that it lives. All texts have one length, so that a mark is
/// overwritten in its place.
struct Mark {
  std::string machine; ///< of its kernel, new with every start
  std::string host;    ///< for messages
  uint64_t process = 0, beat = 0;
  bool opening = false; ///< does not know yet whether it may have the folder

  std::string text() const {
    char numbers[64];
    std::snprintf(numbers, sizeof(numbers), "%010llu %010llu %s\n",
                  static_cast<unsigned long long>(process),
                  static_cast<unsigned long long>(beat),
                  opening ? "opens" : "holds");
    return machine + "\n" + host + "\n" + numbers;
  }
  static Mark parse(const std::string &text) {
    Mark mark;
    std::istringstream lines(text);
    std::string state;
    std::getline(lines, mark.machine);
    std::getline(lines, mark.host);
    lines >> mark.process >> mark.beat >> state;
    mark.opening = state == "opens";
    return mark;
  }
};

/// Returns the text of a mark, or nothing if it is gone.
std::optional<std::string> readMark(const std::string &path) {
  try {
    return readWholeFile(path, 4096);
  } catch (const Error &) {
    return std::nullopt;
  }
}

Mark ownMark() {
  Mark mark;
  // Files of /proc have no size by which they could be read whole.
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  std::getline(boot, mark.machine);
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  mark.host = name;
  mark.process = uint64_t(getpid());
  mark.opening = true;
  return mark;
}

} // namespace

/// Keeps a mark in the folder and a thread that shows that its process lives.
/// flock() ends with the process, but not every file system has it, and of
/// those that machines share some keep it to the machine. So another run looks
/// whether the marks of others change.
class CheckpointFolder::Lease {
public:
  Lease(std::string path, double seconds)
      : path(std::move(path)), mark(ownMark()), file(File::create(this->path)),
        seconds(seconds) {
    write();
    beats = std::thread([this] { beat(); });
  }
  ~Lease() {
    {
      std::lock_guard<std::mutex> lock(mutex);
      ended = true;
    }
    wake.notify_all();
    beats.join();
    if (!lost)
      ::unlink(path.c_str());
  }

  const std::string &machine() const { return mark.machine; }
  bool isLost() const { return lost; }

  /// The folder is this run's.
  void hold() {
    std::lock_guard<std::mutex> lock(mutex);
    mark.opening = false;
    show();
  }

  /// Waits until another run's mark changes (it lives), goes, or has stood for
  /// three beats, and is removed then. The error says who lives.
  void outlive(const std::string &other, const std::string &folder) const {
    std::string name = std::filesystem::path(other).filename().string();
    std::string own = std::filesystem::path(path).filename().string();
    std::optional<std::string> first;
    auto end = std::chrono::steady_clock::now() +
               std::chrono::duration<double>(3 * seconds);
    std::error_code problem;
    while (std::chrono::steady_clock::now() < end) {
      std::optional<std::string> now = readMark(other);
      if (!now && !std::filesystem::exists(other, problem))
        return;
      // A mark without its last line end is being written and says nothing yet.
      if (now && !now->ends_with("\n"))
        now.reset();
      if (!first || !now || now == first) {
        first = first ? first : now;
        std::this_thread::sleep_for(std::chrono::duration<double>(seconds / 8));
        continue;
      }
      Mark found = Mark::parse(*now);
      // The run whose mark has the first name stays, if two begin together.
      if (found.opening && own < name)
        return;
      fail("another run writes its checkpoints to '" + folder + "': process " +
           str(found.process) + " on '" + found.host + "'");
    }
    removePath(other);
  }

private:
  void beat() {
    SignalStack stack;
    std::unique_lock<std::mutex> lock(mutex);
    while (!wake.wait_for(lock, std::chrono::duration<double>(seconds),
                          [&] { return ended; })) {
      ++mark.beat;
      show();
    }
  }
  void show() {
    // The mark is gone if another run has taken this one for dead.
    struct stat own{}, there{};
    if (stat(path.c_str(), &there) != 0) {
      lost = lost || errno == ENOENT;
      return;
    }
    lost =
        lost || fstat(file.handle(), &own) != 0 || own.st_ino != there.st_ino;
    if (!lost)
      write();
  }
  /// A beat that cannot be written is one that others do not see.
  void write() const {
    std::string text = mark.text();
    static_cast<void>(pwrite(file.handle(), text.data(), text.size(), 0));
  }

  const std::string path;
  Mark mark;
  File file;
  const double seconds;
  std::atomic<bool> lost = false;
  bool ended = false;
  std::mutex mutex;
  std::condition_variable wake;
  std::thread beats;
};

CheckpointFolder::CheckpointFolder() = default;

CheckpointFolder::~CheckpointFolder() {
  lease.reset();
  for (const std::string &path : made)
    removeEmptyDirectory(path);
  if (descriptor >= 0)
    close(descriptor);
}

void CheckpointFolder::checkHeld() const {
  if (lease && lease->isLost())
    fail("another run has taken '" + folder +
         "', as this one gave no sign of life there");
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
    opened->made = makeDirectory(path);
    opened->descriptor =
        ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (opened->descriptor < 0)
      fail(ExitStorage, "cannot open '" + path + "': " + strerror(errno));
    // Released by the system however the process ends.
    bool locked = flock(opened->descriptor, LOCK_EX | LOCK_NB) == 0;
    if (!locked && errno == EWOULDBLOCK)
      fail("another run writes its checkpoints to '" + path + "'");
    // A folder that cannot be written to shows here, before hours of training.
    std::string name = markPrefix + hexadecimal(randomBytes(8));
    opened->lease =
        std::make_unique<Lease>(path + "/" + name, options.beatSeconds);
    opened->markName = name;
    // Partial files are left over from runs that were killed.
    std::error_code problem;
    std::vector<std::string> partial;
    for (const auto &entry :
         std::filesystem::directory_iterator(path, problem)) {
      std::string other = entry.path().filename().string();
      if (other.size() > 8 && other.ends_with(".partial") &&
          stepOf(other.substr(0, other.size() - 8)))
        partial.push_back(entry.path().string());
      if (!other.starts_with(markPrefix) || other == name)
        continue;
      // No other process of this machine lives if this one has the lock.
      Mark mark =
          Mark::parse(readMark(entry.path().string()).value_or(std::string()));
      if (locked && mark.machine == opened->lease->machine())
        removePath(entry.path().string());
      else
        opened->lease->outlive(entry.path().string(), path);
    }
    opened->lease->hold();
    for (const std::string &each : partial)
      removePath(each);
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
  return checkpointPath(folder, step);
}

std::string checkpointPath(const std::string &folder, uint64_t step) {
  std::string digits = std::to_string(step);
  if (digits.size() < 8)
    digits.insert(0, 8 - digits.size(), '0');
  return folder + "/" + std::string(prefix) + digits;
}

} // namespace grt
