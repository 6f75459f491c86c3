//===- rendezvous_test.cpp - Processes that meet at an address ------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "base/error.h"
#include "comm/sockets.h"
#include "comm/tcp.h"
#include "files.h"
#include "joining.h"
#include "launched.h"

#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <sys/socket.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace grt;
using namespace grt::test;

namespace {

/// A port that is free now, or is held as long as this lives.
class Port {
public:
  explicit Port(bool hold = false) : number(freePort()) {
    if (!hold)
      return;
    std::string problem;
    int error = 0;
    held = listenAt(resolve("0.0.0.0", number, problem).at(0), error);
    EXPECT_TRUE(held) << error;
  }

  const uint16_t number;

private:
  Socket held;
};

/// A process of a run that has no secret.
Rendezvous rendezvous(int rank, int size, uint16_t port, double seconds = 20) {
  Rendezvous where = at(rank, size, port, seconds);
  where.secret.clear();
  return where;
}

/// Connects the processes, each on a thread; what each of them has to say.
std::vector<std::string> meetAll(
    const std::vector<Rendezvous> &all,
    const std::function<void(Transport &)> &body = [](Transport &) {}) {
  std::vector<std::string> problems(all.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < all.size(); ++i)
    threads.emplace_back([&, i] {
      try {
        std::unique_ptr<Transport> transport = connectByTcp(all[i]);
        body(*transport);
        transport->finalize();
      } catch (const Error &error) {
        problems[i] = error.what();
      }
    });
  for (std::thread &thread : threads)
    thread.join();
  return problems;
}

void waitFor(Transport &transport, Transport::Request request) {
  while (!transport.test({&request, 1}))
    std::this_thread::yield();
}

TEST(Rendezvous, MessagesKeepTheirOrderAndSize) {
  Port port;
  std::vector<Rendezvous> all;
  for (int rank : {3, 1, 0, 2})
    all.push_back(rendezvous(rank, 4, port.number));
  std::vector<std::string> problems = meetAll(all, [](Transport &transport) {
    int self = transport.process(), count = transport.processes();
    EXPECT_EQ(count, 4);
    int told = self == 2 ? 77 : 0;
    transport.broadcast(&told, sizeof(told), 2);
    EXPECT_EQ(told, 77);
    std::vector<int> gathered(4);
    transport.allGather(&self, gathered.data(), sizeof(int));
    EXPECT_EQ(gathered, (std::vector<int>{0, 1, 2, 3}));
    // Messages have all sizes, on two tags that are received the other way
    // round.
    const std::vector<size_t> sizes = {0, 1, 5000, 3 << 20};
    int to = (self + 1) % count, from = (self + count - 1) % count;
    std::vector<std::vector<char>> messages;
    std::vector<Transport::Request> sent;
    for (size_t i = 0; i < sizes.size(); ++i)
      for (int tag : {5, 6}) {
        messages.emplace_back(sizes[i], char(self * 16 + int(i) * 2 + tag));
        sent.push_back(
            transport.send(to, tag, messages.back().data(), sizes[i]));
      }
    for (int tag : {6, 5})
      for (size_t i = 0; i < sizes.size(); ++i) {
        std::vector<char> message(sizes[i] + 1, 'x');
        waitFor(transport,
                transport.receive(from, tag, message.data(), sizes[i]));
        for (size_t b = 0; b < sizes[i]; ++b)
          ASSERT_EQ(message[b], char(from * 16 + int(i) * 2 + tag));
        ASSERT_EQ(message[sizes[i]], 'x');
      }
    for (Transport::Request request : sent)
      waitFor(transport, request);
    // A receive that is given up is as if it had not been.
    char byte = 0;
    Transport::Request given = transport.receive(from, 9, &byte, 1);
    EXPECT_FALSE(transport.test({&given, 1}));
    transport.cancel({&given, 1});
    EXPECT_EQ(given, nullptr);
    transport.allGather(&self, gathered.data(), sizeof(int));
    char letter = char('a' + self);
    waitFor(transport, transport.send(to, 9, &letter, 1));
    waitFor(transport, transport.receive(from, 9, &byte, 1));
    EXPECT_EQ(byte, char('a' + from));
    transport.allGather(&self, gathered.data(), sizeof(int));
  });
  EXPECT_EQ(problems, std::vector<std::string>(4));
}

TEST(Rendezvous, MissingProcessesAreNamed) {
  Port port;
  std::vector<std::string> problems = meetAll(
      {rendezvous(0, 4, port.number, 0.5), rendezvous(2, 4, port.number, 0.5)});
  std::string expected = "2 of 4 processes did not come to 127.0.0.1:" +
                         std::to_string(port.number) +
                         " within 0.5 s: missing RANK 1, 3";
  EXPECT_EQ(problems[0], expected);
  EXPECT_EQ(problems[1], expected);
}

TEST(Rendezvous, NobodyListens) {
  Port port;
  std::vector<std::string> problems =
      meetAll({rendezvous(1, 2, port.number, 0.3)});
  EXPECT_EQ(problems[0], "process 1 did not meet process 0 at 127.0.0.1:" +
                             std::to_string(port.number) +
                             " within 0.3 s: Connection refused");
}

TEST(Rendezvous, DifferentWorldSizes) {
  Port port;
  std::vector<std::string> problems = meetAll(
      {rendezvous(0, 3, port.number, 1), rendezvous(1, 2, port.number)});
  std::string why = "the process with RANK=1 has WORLD_SIZE=2, process 0 has 3";
  EXPECT_EQ(problems[1], why);
  EXPECT_EQ(problems[0], "2 of 3 processes did not come to 127.0.0.1:" +
                             std::to_string(port.number) +
                             " within 1 s: missing RANK 1, 2; " + why);
}

/// The second one is turned away; the others go on, or wait for who is missing.
TEST(Rendezvous, TwoProcessesOfOneRank) {
  for (bool complete : {true, false}) {
    Port port;
    std::vector<Rendezvous> all = {rendezvous(0, 3, port.number, 2),
                                   rendezvous(1, 3, port.number, 10),
                                   rendezvous(1, 3, port.number, 10)};
    std::vector<std::string> late(1);
    std::thread last;
    if (complete)
      last = std::thread([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
        late = meetAll({rendezvous(2, 3, port.number)});
      });
    std::vector<std::string> problems = meetAll(all);
    if (complete)
      last.join();
    std::string why = "two processes have RANK=1";
    EXPECT_EQ((problems[1] == why) + (problems[2] == why), 1);
    std::string missing = complete ? "" : "missing RANK 2; " + why;
    std::string other = problems[1] == why ? problems[2] : problems[1];
    for (const std::string &problem : {problems[0], other})
      EXPECT_TRUE(complete ? problem.empty() : problem.ends_with(missing))
          << problem;
    EXPECT_EQ(late[0], "");
  }
}

TEST(Rendezvous, AnotherRunIsTurnedAwayAndStrangersDoNotCount) {
  Port port;
  Rendezvous other = rendezvous(1, 2, port.number);
  other.run = "another";
  std::thread stranger([&] {
    for (int i = 0; i < 20; ++i) {
      int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(port.number);
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      if (::connect(socket, reinterpret_cast<sockaddr *>(&address),
                    sizeof(address)) == 0) [[maybe_unused]]
        ssize_t sent =
            ::send(socket, "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL);
      ::close(socket);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  std::vector<std::string> problems(1);
  std::thread away([&] { problems = meetAll({other}); });
  // The right one comes once the other has been told.
  std::vector<std::string> own;
  std::thread run([&] { own = meetAll({rendezvous(0, 2, port.number)}); });
  away.join();
  std::vector<std::string> late = meetAll({rendezvous(1, 2, port.number)});
  run.join();
  stranger.join();
  EXPECT_NE(problems[0].find("another run meets at 127.0.0.1:"),
            std::string::npos)
      << problems[0];
  EXPECT_EQ(own[0], "");
  EXPECT_EQ(late[0], "");
}

TEST(Rendezvous, ThePortIsTaken) {
  Port taken(/*hold=*/true);
  std::vector<std::string> problems = meetAll({rendezvous(0, 2, taken.number)});
  EXPECT_EQ(problems[0].rfind("process 0 cannot listen at 127.0.0.1:" +
                                  std::to_string(taken.number) + ": Address",
                              0),
            0u)
      << problems[0];
  EXPECT_NE(problems[0].find("choose another MASTER_PORT"), std::string::npos);
}

/// Another program has the first port, another run the second.
TEST(Rendezvous, ProcessZeroTakesTheFirstFreePortOfAList) {
  Port taken, runs, free;
  // This socket has the port, and does not listen: others are turned away at
  // once.
  Socket holder(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(taken.number);
  ASSERT_EQ(::bind(holder.descriptor(), reinterpret_cast<sockaddr *>(&where),
                   sizeof(where)),
            0);
  auto with = [&](int rank, int size) {
    Rendezvous where = rendezvous(rank, size, taken.number);
    where.run = "ours";
    where.otherPorts = {runs.number, free.number};
    return where;
  };
  Rendezvous other = rendezvous(0, 2, runs.number), late = other;
  other.run = late.run = "theirs";
  late.rank = 1;
  std::vector<std::string> theirs, ours, end;
  std::thread holds([&] { theirs = meetAll({other}); });
  // Waits until it listens.
  std::string problem;
  const Endpoint there = resolve("127.0.0.1", runs.number, problem).at(0);
  while (!connectTo(there, Clock::now() + std::chrono::seconds(1), problem))
    usleep(1000);
  ours = meetAll({with(0, 3), with(1, 3), with(2, 3)});
  end = meetAll({late});
  holds.join();
  for (const auto *all : {&theirs, &ours, &end})
    for (const std::string &each : *all)
      EXPECT_EQ(each, "");
  // The only port is another run's: that is said at once, as ever.
  std::vector<std::string> held;
  std::thread again([&] { held = meetAll({other}); });
  while (!connectTo(there, Clock::now() + std::chrono::seconds(1), problem))
    usleep(1000);
  Rendezvous lost = rendezvous(1, 2, runs.number);
  lost.run = "ours";
  EXPECT_NE(meetAll({lost})[0].find("another run meets at 127.0.0.1:"),
            std::string::npos);
  EXPECT_EQ(meetAll({late})[0], "");
  again.join();
  // All ports of the list are taken.
  Rendezvous none = rendezvous(0, 2, taken.number);
  Port second(/*hold=*/true);
  none.otherPorts = {second.number};
  EXPECT_EQ(meetAll({none})[0].rfind("process 0 cannot listen at 127.0.0.1:" +
                                         std::to_string(second.number) +
                                         ": Address",
                                     0),
            0u);
}

/// Sets variables as long as it lives.
class Variables {
public:
  using Setting = std::pair<const char *, const char *>;
  Variables(std::initializer_list<Setting> settings) : values(settings) {
    for (auto [name, value] : values)
      setenv(name, value, 1);
  }
  ~Variables() {
    for (auto [name, value] : values)
      unsetenv(name);
  }

private:
  std::vector<Setting> values;
};

TEST(Rendezvous, ReadsTheVariables) {
  EXPECT_FALSE(rendezvousOfEnvironment());
  Variables set{{"RANK", "3"},
                {"WORLD_SIZE", "8"},
                {"MASTER_ADDR", "alpha"},
                {"MASTER_PORT", "29500"},
                {"TORCHELASTIC_RUN_ID", "night"}};
  Rendezvous found = *rendezvousOfEnvironment();
  EXPECT_EQ(found.rank, 3);
  EXPECT_EQ(found.size, 8);
  EXPECT_EQ(found.address, "alpha");
  EXPECT_EQ(found.port, 29500);
  EXPECT_EQ(found.run, "night");
  // The default waits are those of docs/operations.md.
  EXPECT_EQ(found.seconds, 120);
  EXPECT_EQ(found.graceSeconds, 30);
  {
    Variables elastic{{"GRT_ELASTIC_SECONDS", "11"}};
    EXPECT_EQ(rendezvousOfEnvironment()->graceSeconds, 11);
    EXPECT_EQ(rendezvousOfEnvironment()->seconds, 120);
  }
  {
    Variables agent{{"TORCHELASTIC_USE_AGENT_STORE", "True"}};
    EXPECT_EQ(rendezvousOfEnvironment()->port, 29501);
    Variables own{{"GRT_RENDEZVOUS_PORT", "4000"},
                  {"GRT_RENDEZVOUS_SECONDS", "7"},
                  {"GRT_LISTEN", "eth0"},
                  {"TORCHELASTIC_RESTART_COUNT", "2"}};
    EXPECT_EQ(rendezvousOfEnvironment()->listen, "eth0");
    EXPECT_EQ(rendezvousOfEnvironment()->restart, 2u);
    EXPECT_EQ(rendezvousOfEnvironment()->port, 4000);
    EXPECT_EQ(rendezvousOfEnvironment()->seconds, 7);
    EXPECT_TRUE(rendezvousOfEnvironment()->otherPorts.empty());
    setenv("GRT_RENDEZVOUS_PORT", "4000,4001,65535", 1);
    EXPECT_EQ(rendezvousOfEnvironment()->port, 4000);
    EXPECT_EQ(rendezvousOfEnvironment()->otherPorts,
              (std::vector<uint16_t>{4001, 65535}));
    for (const char *wrong : {"4000,", "4000,,1", "4000,65536", ",1"}) {
      setenv("GRT_RENDEZVOUS_PORT", wrong, 1);
      EXPECT_THROW(rendezvousOfEnvironment(), Error) << wrong;
    }
  }
  for (auto [name, value, message] :
       {std::tuple("RANK", "8", "RANK: expected a whole number from 0 to 7"),
        {"RANK", "",
         "RANK: expected a whole number from 0 to 7, found nothing"},
        {"WORLD_SIZE", "many", "WORLD_SIZE: expected a whole number"},
        {"MASTER_PORT", "0", "MASTER_PORT: expected a whole number"}}) {
    std::string before = getenv(name);
    setenv(name, value, 1);
    try {
      rendezvousOfEnvironment();
      ADD_FAILURE() << name << "=" << value;
    } catch (const Error &error) {
      EXPECT_EQ(error.exitCode(), 2);
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos)
          << error.what();
    }
    setenv(name, before.c_str(), 1);
  }
}

#ifdef GALVATRON_RUN

class LaunchedRuns : public Launched {
protected:
  std::string tool(const std::string &options) const {
    return std::string(GALVATRON_RUN) + " " + TEST_PROGRAMS +
           "/bigram2.gvx --data=" + folder + "/text.txt --steps=20 " + options;
  }
  std::string weights(const std::string &name) const {
    return readAll(folder + "/" + name + "/model.safetensors");
  }
};

TEST_F(LaunchedRuns, SameBitsAsThreads) {
  ASSERT_EQ(run(tool("--save=" + folder + "/threads")), 0) << output;
  ASSERT_EQ(run(std::string(START_PROCESSES) + " 2 " +
                tool("--save=" + folder + "/processes --summary=" + folder +
                     "/summary.json")),
            0)
      << output;
  // One process speaks.
  EXPECT_NE(output.find("step 20 "), std::string::npos) << output;
  EXPECT_EQ(output.find("step 20 "), output.rfind("step 20 "));
  EXPECT_GT(weights("threads").size(), 256u * 256 * 4);
  EXPECT_TRUE(weights("threads") == weights("processes"));
  std::ifstream summary(folder + "/summary.json");
  std::string text((std::istreambuf_iterator<char>(summary)), {});
  EXPECT_NE(text.find("\"transport\": \"TCP\""), std::string::npos) << text;
  // There was one connection, which has held something, and not more than it
  // may.
  auto numberOf = [&](const std::string &key) {
    size_t at = text.find("\"" + key + "\": ");
    EXPECT_NE(at, std::string::npos) << text;
    return std::strtoull(text.c_str() + at + key.size() + 4, nullptr, 10);
  };
  EXPECT_EQ(numberOf("held-limit-bytes"), (128u + 16) << 10);
  EXPECT_GT(numberOf("most-held-bytes"), 16u << 10);
  EXPECT_LE(numberOf("most-held-bytes"), numberOf("held-limit-bytes"));
}

TEST_F(LaunchedRuns, WrongNumberOfProcesses) {
  EXPECT_EQ(run(std::string(START_PROCESSES) + " 3 " + tool("")), 2) << output;
  std::string message = "the program needs 2 ranks, 3 processes have 3";
  EXPECT_NE(output.find(message), std::string::npos) << output;
  EXPECT_EQ(output.find(message), output.rfind(message));
}

TEST_F(LaunchedRuns, TheSecretOfALaunch) {
  std::string file = folder + "/secret";
  std::ofstream(file) << "c2VjcmV0IG9mIGEgbGF1bmNo\n";
  std::string with = tool("--launch-secret=" + file);
  ASSERT_EQ(chmod(file.c_str(), 0644), 0);
  EXPECT_EQ(run(std::string(START_PROCESSES) + " 2 " + with), 2) << output;
  EXPECT_NE(output.find("launch secret '" + file +
                        "': expected mode 0600, found 0644"),
            std::string::npos)
      << output;
  ASSERT_EQ(chmod(file.c_str(), 0600), 0);
  EXPECT_EQ(run(std::string(START_PROCESSES) + " 2 " + with), 0) << output;
  // The secret of process 0 is in a file and the other's in the environment;
  // then the other has none.
  std::string one =
      "'[ $RANK = 0 ] && exec " + with + "; exec " + tool("") + "'";
  EXPECT_EQ(run("GALVATRON_LAUNCH_SECRET=$(cat " + file + ") " +
                START_PROCESSES + " 2 sh -c " + one),
            0)
      << output;
  EXPECT_EQ(run(std::string("GRT_RENDEZVOUS_SECONDS=1 ") + START_PROCESSES +
                " 2 sh -c " + one),
            4)
      << output;
  EXPECT_NE(output.find("what listens there knows a secret, this process none"),
            std::string::npos)
      << output;
  EXPECT_NE(output.find("missing RANK 1"), std::string::npos) << output;
}

TEST_F(LaunchedRuns, AnErrorOfOneProcessEndsAll) {
  std::string command = "'[ $RANK = 0 ] && exec " + tool("") + "; exec " +
                        tool("--data-format=u32") + "'";
  EXPECT_EQ(run(std::string(START_PROCESSES) + " 2 sh -c " + command), 2);
  std::string message = "expected less than the vocabulary of 256";
  EXPECT_NE(output.find(message), std::string::npos) << output;
  EXPECT_EQ(output.find(message), output.rfind(message)) << output;
}

#endif

} // namespace
