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
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace grt::test {

/// A port of the loopback that is free now.
inline uint16_t freePort() {
  int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto *at = reinterpret_cast<sockaddr *>(&address);
  EXPECT_EQ(::bind(socket, at, length), 0);
  EXPECT_EQ(::getsockname(socket, at, &length), 0);
  ::close(socket);
  return ntohs(address.sin_port);
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
