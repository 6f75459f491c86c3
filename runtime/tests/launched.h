//===- launched.h - Runs of several processes in tests --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_TESTS_LAUNCHED_H
#define GRT_TESTS_LAUNCHED_H

#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace grt::test {

/// A port of the loopback that is free now, below those that connections are
/// given (from 32768 on): one of them could take it before it is listened at.
/// Not the same twice; of one thread.
inline uint16_t freePort() {
  static std::mt19937 random{std::random_device()()};
  static std::set<uint16_t> given;
  while (true) {
    const auto port = uint16_t(20000 + random() % 12000);
    if (!given.insert(port).second)
      continue;
    int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    address.sin_port = htons(port);
    const bool isFree = ::bind(socket, reinterpret_cast<sockaddr *>(&address),
                               sizeof(address)) == 0;
    ::close(socket);
    if (isFree)
      return port;
  }
}

/// Runs commands in a folder of their own, with 10400 bytes of text.
class Launched : public testing::Test {
protected:
  void SetUp() override {
    folder = testing::TempDir() + "launched-" + std::to_string(getpid());
    std::filesystem::create_directories(folder);
    std::ofstream text(folder + "/text.txt");
    for (int i = 0; i < 400; ++i)
      text << "abcdefghijklmnopqrstuvwxyz";
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  /// The exit code; what was said is in `output`.
  int run(const std::string &command) {
    FILE *pipe =
        popen(("cd " + folder + "; { " + command + "; } 2>&1").c_str(), "r");
    char buffer[4096];
    output.clear();
    while (size_t got = fread(buffer, 1, sizeof(buffer), pipe))
      output.append(buffer, got);
    int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  std::string folder, output;
};

} // namespace grt::test

#endif // GRT_TESTS_LAUNCHED_H
