//===- listening_test.cpp - Where processes listen, and their secrets -----===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "base/sha256.h"
#include "comm/greeting.h"
#include "comm/secret.h"
#include "joining.h"
#include "launched.h"

#include <cerrno>
#include <dlfcn.h>
#include <sys/stat.h>

using namespace grt;
using namespace grt::test;

namespace {

/// An address of this machine that others can use.
std::optional<Endpoint> outerEndpoint() {
  for (const Endpoint &endpoint : machineEndpoints(0))
    if (!endpoint.isLoopback())
      return endpoint;
  return std::nullopt;
}

std::string addressOf(const Endpoint &endpoint) {
  std::string text = endpoint.text();
  return text.substr(0, text.rfind(':'));
}

TEST(Listening, OnTheLoopbackUnlessTold) {
  uint16_t port = freePort();
  Meeter first(at(0, 2, port));
  awaitListener(port);
  std::optional<Endpoint> outer = outerEndpoint();
  if (!outer)
    GTEST_SKIP() << "the machine has no network";
  outer->port = port;
  std::string problem;
  EXPECT_FALSE(connectTo(*outer, after(5), problem));
  EXPECT_EQ(problem, "Connection refused");
  Membership membership = joinRun(at(1, 2, port));
  first.end();
  for (const auto &[rank, contact] : membership.contacts) {
    EXPECT_GT(contact.count, 0u);
    for (uint32_t i = 0; i < contact.count; ++i)
      EXPECT_TRUE(contact.endpoints[i].isLoopback());
  }
}

TEST(Listening, OtherMachinesNeedASecret) {
  std::optional<Endpoint> outer = outerEndpoint();
  if (!outer)
    GTEST_SKIP() << "the machine has no network";
  uint16_t port = freePort();
  for (int rank : {0, 1}) {
    Rendezvous open = at(rank, 2, port);
    open.address = addressOf(*outer);
    open.secret.clear();
    Meeter meeter(open);
    meeter.end();
    EXPECT_EQ(meeter.code, 2);
    EXPECT_NE(meeter.problem.find("without a secret: make one with"),
              std::string::npos)
        << meeter.problem;
  }
  Rendezvous any = at(0, 2, port);
  any.listen = "any";
  any.secret.clear();
  Meeter meeter(any);
  meeter.end();
  EXPECT_NE(meeter.problem.find("every address of this machine"),
            std::string::npos)
      << meeter.problem;
  // Processes with a secret meet, and may listen at every address.
  for (const char *places : {"", "any"}) {
    Rendezvous first = at(0, 2, port), second = at(1, 2, port);
    first.address = second.address = addressOf(*outer);
    first.listen = places;
    Meeter one(first), other(second);
    one.end();
    other.end();
    EXPECT_EQ(one.problem, "");
    EXPECT_EQ(other.problem, "");
  }
}

TEST(Listening, Ipv6) {
  int problem = 0;
  std::string text;
  Endpoint six = resolve("::1", 0, text).at(0);
  if (!listenAt(six, problem))
    GTEST_SKIP() << "the machine has no IPv6";
  EXPECT_EQ(six.text(), "[::1]:0");
  EXPECT_TRUE(six.isLoopback());
  for (const char *address : {"::1", "[::1]", "localhost"}) {
    uint16_t port = freePort();
    Rendezvous first = at(0, 2, port), second = at(1, 2, port);
    first.address = second.address = address;
    Meeter one(first), other(second);
    one.end();
    other.end();
    EXPECT_EQ(one.problem, "");
    EXPECT_EQ(other.problem, "");
  }
}

/// A socket that asks for a port without a listener may be given that port
/// itself, by chance: the test asks often enough to see it.
TEST(Listening, ASocketIsNotConnectedWithItself) {
  std::ifstream range("/proc/sys/net/ipv4/ip_local_port_range");
  int first = 0, last = 0;
  range >> first >> last;
  ASSERT_GT(last, first);
  // The kernel gives ports of the parity of the first.
  auto port = uint16_t((last - first) % 2 ? last - 1 : last);
  std::string problem;
  for (int i = 0; i < 60000; ++i) {
    Socket made = connectTo(loopback(port), after(1), problem);
    if (made) {
      ASSERT_NE(localEndpoint(made), loopback(port)) << "attempt " << i;
    }
  }
}

TEST(Listening, WhatTheMachineLacks) {
  Rendezvous elsewhere = at(0, 2, freePort());
  elsewhere.address = "192.0.2.1"; // of no machine, RFC 5737
  Meeter meeter(elsewhere);
  meeter.end();
  EXPECT_EQ(meeter.code, 2);
  EXPECT_NE(meeter.problem.find("no address of this machine; --listen=ADDRESS"),
            std::string::npos)
      << meeter.problem;
  EXPECT_THROW(listenEndpoints("no-such-interface", 0), Error);
  EXPECT_THROW(listenEndpoints("", 0), Error);
  EXPECT_EQ(listenEndpoints("lo", 7).at(0).text(), "127.0.0.1:7");
  EXPECT_TRUE(listenEndpoints("127.0.0.1,any", 7).at(0).isAny());
}

/// True if socket() below acts as on a machine without IPv6.
thread_local bool lacksIpv6 = false;

} // namespace

extern "C" int socket(int family, int type, int protocol) noexcept {
  using Function = int (*)(int, int, int);
  static const auto ofSystem =
      reinterpret_cast<Function>(dlsym(RTLD_NEXT, "socket"));
  if (lacksIpv6 && family == AF_INET6) {
    errno = EAFNOSUPPORT;
    return -1;
  }
  return ofSystem(family, type, protocol);
}

namespace {

TEST(Listening, AnyIsEveryIpv4AddressWithoutIpv6) {
  int problem = 0;
  lacksIpv6 = true;
  Socket any = listenAt(listenEndpoints("any", 0).at(0), problem);
  Endpoint six;
  six.address[15] = 1;
  Socket loopback = listenAt(six, problem);
  lacksIpv6 = false;
  ASSERT_TRUE(any);
  EXPECT_FALSE(loopback);
  EXPECT_EQ(problem, EAFNOSUPPORT);
  Endpoint at = localEndpoint(any);
  EXPECT_EQ(at.text(), "0.0.0.0:" + str(at.port));
  std::string reason;
  EXPECT_TRUE(
      connectTo(listenEndpoints("127.0.0.1", at.port).at(0), after(5), reason))
      << reason;
}

TEST(Listening, APlaceIsWrittenWithItsPort) {
  const std::pair<const char *, const char *> cases[] = {
      {"node1", "node1:29500"},
      {"10.0.0.1", "10.0.0.1:29500"},
      {"fd00::1", "[fd00::1]:29500"},
      {"[fd00::1]", "[fd00::1]:29500"}};
  for (const auto &[address, expected] : cases) {
    Rendezvous at;
    at.address = address;
    at.port = 29500;
    EXPECT_EQ(placeOf(at), expected);
  }
}

TEST(Secret, Files) {
  std::string path = testing::TempDir() + "grt-secret-" + str(getpid());
  auto write = [&](const std::string &text, mode_t mode) {
    std::ofstream(path) << text;
    chmod(path.c_str(), mode);
  };
  auto refused = [&](const std::string &message) {
    try {
      launchSecret(path);
      ADD_FAILURE() << "expected: " << message;
    } catch (const Error &error) {
      EXPECT_EQ(error.exitCode(), 2);
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos)
          << error.what();
    }
  };
  refused("cannot be opened: No such file");
  write("  sixteen bytes at least\n", 0600);
  EXPECT_EQ(launchSecret(path), "sixteen bytes at least");
  for (mode_t mode : {0640, 0604, 0660, 0644}) {
    write("sixteen bytes at least", mode);
    refused("expected mode 0600, found 06");
  }
  write("too short\n", 0400);
  refused("expected at least 16 bytes, found 9");
  unlink(path.c_str());
  write(std::string(5000, 's'), 0600);
  refused("expected at most 4096 bytes");
  // The file is another user's, whom root alone can make its owner.
  if (geteuid() == 0) {
    write("sixteen bytes at least", 0600);
    ASSERT_EQ(chown(path.c_str(), 65534, 65534), 0);
    refused("expected a file of this user, found one of user 65534");
  }
  unlink(path.c_str());
  mkdir(path.c_str(), 0700);
  refused("expected a regular file");
  rmdir(path.c_str());

  unsetenv("GALVATRON_LAUNCH_SECRET");
  EXPECT_EQ(launchSecret(""), "");
  setenv("GALVATRON_LAUNCH_SECRET", "sixteen bytes at least", 1);
  EXPECT_EQ(launchSecret(""), "sixteen bytes at least");
  setenv("GALVATRON_LAUNCH_SECRET", "", 1);
  EXPECT_THROW(launchSecret(""), Error);
  unsetenv("GALVATRON_LAUNCH_SECRET");
}

TEST(Secret, CodesAreHmacSha256) {
  // RFC 4231, test case 2.
  std::string code = authenticationCode("Jefe", "what do ya want for nothing?");
  EXPECT_EQ(hexadecimal(code), "5bdcc146bf60754e6a042426089575c75a003f089d2739"
                               "839dec58b964ec3843");
  EXPECT_TRUE(sameCode(code, code));
  std::string other = code;
  other[31] ^= 1;
  EXPECT_FALSE(sameCode(code, other));
  EXPECT_FALSE(sameCode(code, code.substr(1)));
}

} // namespace
