//===- limits_test.cpp - Memory and space that a run may take -------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "base/error.h"
#include "base/text.h"
#include "core/host_memory.h"
#include "grt/outputs.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <sys/wait.h>
#include <tuple>
#include <unistd.h>

using namespace grt;

namespace {

/// A system as its files show it, in a folder of its own.
class HostMemoryTest : public testing::Test {
protected:
  HostMemoryTest() {
    root = testing::TempDir() + "host-memory-" + std::to_string(getpid());
    paths = {root + "/meminfo", root + "/groups", root + "/boot",
             root + "/mount"};
    write("meminfo", "MemTotal:       24000000 kB\nMemFree: 1 kB\n"
                     "MemAvailable:   16777216 kB\n");
    write("boot", "7f1c-boot\n");
  }
  ~HostMemoryTest() override { std::filesystem::remove_all(root); }

  void write(const std::string &name, const std::string &text) {
    std::filesystem::path path = root + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }

  std::string root;
  MemoryPaths paths;
};

constexpr uint64_t gib = uint64_t(1) << 30;

TEST_F(HostMemoryTest, TheMachineSaysWhatIsAvailable) {
  std::optional<MemoryBound> bound = machineMemory(paths);
  ASSERT_TRUE(bound);
  EXPECT_EQ(bound->bytes, 16 * gib);
  EXPECT_NE(bound->source.find("MemAvailable of "), std::string::npos);
  uint64_t scope = bound->scope;
  write("boot", "another\n");
  EXPECT_NE(machineMemory(paths)->scope, scope);
  write("meminfo", "MemTotal: 5 kB\n"); // kernels before 3.14
  EXPECT_FALSE(machineMemory(paths));
  // The real one.
  ASSERT_TRUE(machineMemory());
  EXPECT_GT(machineMemory()->bytes, 0u);
}

TEST_F(HostMemoryTest, TheTightestGroupOfVersion2Counts) {
  EXPECT_FALSE(groupMemory(paths));
  write("groups", "0::/user.slice/job/step\n");
  write("mount/user.slice/job/step/memory.max", "max\n");
  write("mount/user.slice/job/step/memory.current", "1073741824\n");
  EXPECT_FALSE(groupMemory(paths));
  // 8 GiB, of which 3 are used; 1 GiB of those is file cache.
  write("mount/user.slice/job/memory.max", "8589934592\n");
  write("mount/user.slice/job/memory.current", "3221225472\n");
  write("mount/user.slice/job/memory.stat",
        "anon 5\nfile 1200000000\ninactive_file 536870912\n"
        "active_file 536870912\nshmem 7\n");
  std::optional<MemoryBound> bound = groupMemory(paths);
  ASSERT_TRUE(bound);
  EXPECT_EQ(bound->bytes, 6 * gib);
  EXPECT_EQ(bound->source, "memory.max of " + root + "/mount/user.slice/job");
  // A tighter one above it.
  write("mount/user.slice/memory.max", "4294967296\n");
  write("mount/user.slice/memory.current", "4300000000\n");
  uint64_t scope = bound->scope;
  bound = groupMemory(paths);
  EXPECT_EQ(bound->bytes, 0u);
  EXPECT_NE(bound->scope, scope);
}

TEST_F(HostMemoryTest, GroupsOfVersion1AndContainers) {
  write("groups", "12:cpu,cpuacct:/job\n9:memory:/docker/1f\n1:name=a:/x\n");
  write("mount/memory/memory.limit_in_bytes", "2147483648\n");
  write("mount/memory/memory.usage_in_bytes", "1073741824\n");
  // The group's own folder is not in the container's mount; its root is it.
  std::optional<MemoryBound> bound = groupMemory(paths);
  ASSERT_TRUE(bound);
  EXPECT_EQ(bound->bytes, gib);
  write("mount/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_FALSE(groupMemory(paths));
}

TEST_F(HostMemoryTest, RanksThatShareABoundAreAddedUp) {
  MemoryBound machine{10 * gib, "MemAvailable", 5};
  MemoryBound group{4 * gib, "memory.max", 6};
  // Two processes here, in one group; a third on another machine.
  std::vector<RankNeed> ranks = {
      {3 * gib, 5, 6}, {3 * gib, 5, 6}, {9 * gib, 8, 9}};
  EXPECT_NO_THROW(checkHostMemory(ranks, machine, std::nullopt));
  EXPECT_NO_THROW(checkHostMemory(ranks, std::nullopt, std::nullopt));
  for (bool inGroup : {false, true}) {
    std::string expected = "the arenas of the 2 ranks in this control group "
                           "need 6 GiB, 4 GiB are available (memory.max)";
    if (!inGroup) {
      ranks[0].bytes = 8 * gib;
      expected = "the arenas of the 2 ranks on this machine need 11 GiB, 10 "
                 "GiB are available (MemAvailable)";
    } else {
      ranks[0].bytes = 3 * gib;
    }
    try {
      checkHostMemory(ranks, machine,
                      inGroup ? std::optional(group) : std::nullopt);
      ADD_FAILURE() << expected;
    } catch (const Error &error) {
      EXPECT_EQ(error.exitCode(), ExitMemory);
      EXPECT_NE(std::string(error.what()).find(expected), std::string::npos)
          << error.what();
    }
  }
  // Exactly what is there is not too much.
  ranks[0].bytes = ranks[1].bytes = 2 * gib;
  EXPECT_NO_THROW(checkHostMemory(ranks, machine, group));
}

TEST(Outputs, SpaceIsComparedWithTheDisk) {
  std::string path = testing::TempDir() + "outputs-" + std::to_string(getpid());
  auto check = [&](uint64_t save, uint64_t checkpoint) {
    std::vector<Output> outputs = {
        {"--save", path + "/model", Output::Folder, save},
        {"--checkpoint", path + "/run/kept", Output::Folder, checkpoint}};
    Status status = tryOutputs(outputs);
    EXPECT_FALSE(std::filesystem::exists(path));
    return status;
  };
  EXPECT_TRUE(check(1, 1));
  Status status = check(1, uint64_t(1) << 60);
  EXPECT_EQ(status.exitCode(), ExitStorage);
  EXPECT_NE(status.message().find("--save and --checkpoint need 1024 PiB"),
            std::string::npos)
      << status.message();
  EXPECT_NE(check(uint64_t(1) << 60, 0).message().find("--save needs 1024 PiB"),
            std::string::npos);
  // Together they are too much, though each alone would do.
  uint64_t free = std::filesystem::space(testing::TempDir()).available;
  EXPECT_TRUE(check(free / 2, 0));
  EXPECT_EQ(check(free / 2 + free / 8, free / 2 + free / 8).exitCode(),
            ExitStorage);
}

TEST(Outputs, APathThatIsWrongIsNotStorageThatFails) {
  for (int wrong : {ENOENT, ENOTDIR, EISDIR, EACCES, ENAMETOOLONG})
    EXPECT_EQ(codeOfPath(wrong), ExitInvalid) << wrong;
  for (int failing : {EIO, ENOSPC, EDQUOT, ESTALE, EROFS, EMFILE, EINTR})
    EXPECT_EQ(codeOfPath(failing), ExitStorage) << failing;
}

/// A path that leads nowhere is refused with what is wrong about it, whichever
/// way the file will be written.
TEST(Outputs, PathsThatLeadNowhereAreRefusedWithTheirReason) {
  std::string path =
      testing::TempDir() + "outputs-paths-" + std::to_string(getpid());
  namespace fs = std::filesystem;
  fs::create_directories(path + "/folder");
  std::ofstream(path + "/file") << "text";
  fs::create_symlink("loop", path + "/loop");
  fs::create_symlink("folder/new", path + "/link");
  const std::string tooLong(300, 'x');
  const std::tuple<std::string, const char *, int> cases[] = {
      {"/file/below", "create", ENOTDIR},
      {"/loop", "create", ELOOP},
      {"/" + tooLong, "create", ENAMETOOLONG},
      {"/folder", "write", EISDIR},
      {"/none/file", "create", ENOENT}};
  for (Output::Kind kind : {Output::Stream, Output::Whole})
    for (const auto &[name, verb, error] : cases) {
      std::string whole = path + name;
      const Output output = {"--log", whole, kind};
      Status status = tryOutputs({&output, 1});
      EXPECT_EQ(status.exitCode(), ExitInvalid);
      EXPECT_EQ(status.message(), "--log='" + whole + "': cannot " + verb +
                                      " '" + whole + "': " + strerror(error));
    }
  const Output model = {"--save", path + "/file/a", Output::Folder};
  EXPECT_EQ(tryOutputs({&model, 1}).message(),
            "--save='" + path + "/file/a': cannot make directory '" + path +
                "/file': " + strerror(ENOTDIR));
  // A link to a file that is not there yet is a place for it.
  for (Output::Kind kind : {Output::Stream, Output::Whole}) {
    const Output output = {"--log", path + "/link", kind};
    Status status = tryOutputs({&output, 1});
    EXPECT_TRUE(status) << status.message();
    EXPECT_TRUE(fs::is_symlink(path + "/link"));
    EXPECT_TRUE(fs::is_empty(path + "/folder"));
  }
  fs::remove_all(path);
}

/// No output overwrites an input, by whatever name, or another output.
TEST(Outputs, AreFilesOfTheirOwn) {
  std::string path = testing::TempDir() + "outputs-own-" +
                     std::to_string(getpid()),
              other = path + "-link";
  std::ofstream(path) << "data";
  std::filesystem::create_symlink(path, other);
  const std::vector<Input> inputs = {{"--data", path}, {"--init", path + "-w"}};
  auto check = [&](std::vector<Output> outputs) {
    return tryOutputs(outputs, inputs).message();
  };
  EXPECT_EQ(check({{"--log", path}}),
            "--log='" + path +
                "': expected a file of its own, found that of --data");
  EXPECT_NE(check({{"--log", other}}), "");
  // One that is not there.
  EXPECT_NE(check({{"--log", path + "-w"}}), "");
  EXPECT_EQ(check({{"--log", path + "-x"}, {"--trace", path + "-x"}}),
            "--trace='" + path +
                "-x': expected a file of its own, found that of --log");
  EXPECT_NE(check({{"--log", "not-there"}, {"--trace", "./not-there"}}), "");
  EXPECT_EQ(check({{"--log", path + "-x"}, {"--trace", path + "-y"}}), "");
  EXPECT_EQ(check({{"--log", "/dev/null"}, {"--trace", "/dev/null"}}), "");
  // Folders hold files of different names.
  EXPECT_EQ(check({{"--save", path + "-d", Output::Folder},
                   {"--checkpoint", path + "-d", Output::Folder}}),
            "");
  std::filesystem::remove(other);
  std::filesystem::remove(path);
}

/// Opening a pipe to see whether it can be written would wait for its reader.
TEST(Outputs, APipeIsTriedWithoutAReader) {
  std::string path =
      testing::TempDir() + "outputs-pipe-" + std::to_string(getpid());
  ASSERT_EQ(mkfifo(path.c_str(), 0666), 0);
  const std::vector<Output> outputs = {{"--trace", path}};
  EXPECT_TRUE(tryOutputs(outputs));
  ASSERT_EQ(chmod(path.c_str(), 0444), 0);
  // Root may write to whatever it can open.
  pid_t child = fork();
  if (child == 0) {
    if (getuid() == 0 && setuid(65534) != 0)
      _exit(0);
    Status status = tryOutputs(outputs);
    bool refused = !status && status.exitCode() == ExitInvalid &&
                   status.message().find(path) != std::string::npos;
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  std::filesystem::remove(path);
}

TEST(Outputs, TextOfBytes) {
  EXPECT_EQ(bytesText(0), "0 bytes");
  EXPECT_EQ(bytesText(1000), "1000 bytes");
  EXPECT_EQ(bytesText(1536), "1.5 KiB");
  EXPECT_EQ(bytesText(300 * 1024), "300 KiB");
  EXPECT_EQ(bytesText(gib / 10 * 144), "14.4 GiB");
}

TEST(Outputs, TextOfDurations) {
  const std::pair<double, const char *> cases[] = {
      {-1, "0 s"},
      {0.6, "1 s"},
      {59.4, "59 s"},
      {59.5, "1m 00s"},
      {185, "3m 05s"},
      {3599, "59m 59s"},
      {3600, "1h 00m"},
      {7859, "2h 10m"},
      {86399, "23h 59m"},
      {86400, "1d 0h"},
      {4 * 86400 + 3 * 3600 + 3599, "4d 3h"}};
  for (const auto &[seconds, expected] : cases)
    EXPECT_EQ(durationText(seconds), expected) << seconds;
}

} // namespace
