//===- agreement_test.cpp - Processes that mean the same run --------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "base/error.h"
#include "comm/agreement.h"
#include "forwarding_transport.h"
#include "in_process.h"

#include <gtest/gtest.h>

#include <mutex>
#include <random>

using namespace grt;
using namespace grt::test;

namespace {

Statement says(std::vector<Term> terms) { return {Status(), std::move(terms)}; }
Statement fails(int code, const std::string &message) {
  return {Status(code, message), {{"--seed", "--seed=9"}}};
}

//===----------------------------------------------------------------------===//
// Verdicts
//===----------------------------------------------------------------------===//

TEST(Agreement, ListsOfProcesses) {
  EXPECT_EQ(processList({0}), "process 0");
  EXPECT_EQ(processList({1, 3}), "processes 1, 3");
  EXPECT_EQ(processList({0, 1, 4, 5, 6, 9}), "processes 0, 1, 4 to 6, 9");
}

TEST(Agreement, WhoDiffersInWhat) {
  Statement usual = says({{"program", "program A"}, {"--seed", "--seed=3"}});
  EXPECT_TRUE(verdictOf({usual, usual, usual}));
  Statement other = says({{"program", "program A"}, {"--seed", "--seed=4"}});
  Status status = verdictOf({usual, other, usual, other});
  EXPECT_EQ(status.exitCode(), 2);
  EXPECT_EQ(status.message(),
            "the processes do not agree: processes 0, 2: --seed=3, processes "
            "1, 3: --seed=4");
  // A term that one process lacks, and several at once.
  Statement less = says({{"program", "program B"}});
  EXPECT_EQ(verdictOf({less, usual, usual}).message(),
            "the processes do not agree: process 0: program B, processes 1, 2: "
            "program A; process 0: no --seed, processes 1, 2: --seed=3");
  // The order in which terms are given says nothing.
  Statement turned = says({{"--seed", "--seed=3"}, {"program", "program A"}});
  EXPECT_TRUE(verdictOf({usual, turned}));
}

TEST(Agreement, AMessageStaysReadable) {
  std::vector<Statement> all;
  for (int i = 0; i < 100; ++i) {
    std::vector<Term> terms;
    for (int t = 0; t < 20; ++t)
      terms.push_back({"t" + str(t), "t" + str(t) + "=" + str(i)});
    all.push_back(says(terms));
  }
  std::string message = verdictOf(all).message();
  EXPECT_NE(message.find("process 5: t0=5, and 94 others; process 0: t1=0"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("; and 14 more"), std::string::npos) << message;
}

TEST(Agreement, AFailureGoesBeforeADifference) {
  Statement usual = says({{"--seed", "--seed=3"}});
  Status status =
      verdictOf({usual, fails(5, "no such file"), usual, fails(2, "other")});
  EXPECT_EQ(status.exitCode(), 5);
  EXPECT_EQ(status.message(), "no such file (process 1); process 3: other");
  // A fault that all processes find is told once.
  EXPECT_EQ(verdictOf({fails(2, "bad"), fails(2, "bad")}).message(), "bad");
}

TEST(Agreement, StatementsAsBytes) {
  Statement statement = says({{"a", ""}, {"", std::string("\0x", 2)}});
  statement.status = Status(7, "why");
  std::string bytes = encode(statement);
  std::optional<Statement> again = decodeStatement(bytes);
  ASSERT_TRUE(again);
  EXPECT_EQ(encode(*again), bytes);
  EXPECT_EQ(again->status.message(), "why");
  ASSERT_EQ(again->terms.size(), 2u);
  EXPECT_EQ(again->terms[1].text, std::string("\0x", 2));
  for (size_t length = 0; length < bytes.size(); ++length)
    EXPECT_FALSE(decodeStatement(std::string_view(bytes).substr(0, length)));
  EXPECT_FALSE(decodeStatement(bytes + "x"));
  std::mt19937 random(3);
  for (int round = 0; round < 20000; ++round) {
    std::string damaged = bytes;
    for (int i = 0; i < 3; ++i)
      damaged[random() % damaged.size()] = char(random());
    decodeStatement(damaged);
  }
}

//===----------------------------------------------------------------------===//
// Over a transport
//===----------------------------------------------------------------------===//

TEST(Agreement, AllLearnTheSame) {
  std::mutex mutex;
  std::vector<std::string> messages;
  onProcesses(4, [&](Transport &transport) {
    auto wait = [&](auto requests) { waitFor(transport, requests); };
    int self = transport.process(), tag = hostTag(transport);
    EXPECT_TRUE(agree(transport, tag, wait, says({{"a", "a=1"}})));
    Status status =
        agree(transport, tag, wait, says({{"a", self == 2 ? "a=2" : "a=1"}}));
    EXPECT_EQ(status.exitCode(), 2);
    {
      std::lock_guard<std::mutex> lock(mutex);
      messages.push_back(status.message());
    }
    // All have failed in the same way.
    status = agree(transport, tag, wait, fails(3, "numerics"));
    EXPECT_EQ(status.exitCode(), 3);
    EXPECT_EQ(status.message(), "numerics");
    std::string text = self == 0 ? std::string(100000, 'x') : "mine";
    share(transport, tag, wait, text);
    EXPECT_EQ(text, std::string(100000, 'x'));
    text = self == 0 ? "" : "mine";
    share(transport, tag, wait, text);
    EXPECT_EQ(text, "");
  });
  EXPECT_EQ(messages,
            std::vector<std::string>(4, "the processes do not agree: processes "
                                        "0, 1, 3: a=1, process 2: a=2"));
}

/// Counts what is gathered.
class Counting : public ForwardingTransport {
public:
  using ForwardingTransport::ForwardingTransport;
  void allGather(const void *in, void *out, size_t bytes) override {
    gathered += bytes;
    ForwardingTransport::allGather(in, out, bytes);
  }
  size_t gathered = 0;
};

/// Messages about builds: a process gets a byte of every other one, and whole
/// builds only if some differ.
TEST(Agreement, AByteOfEachBuildThatIsTheSame) {
  onProcesses(5, [&](Transport &inner) {
    Counting transport(inner);
    compareBuilds(transport, ownBuild());
    EXPECT_EQ(transport.gathered, 1u);
    Build build = ownBuild();
    build.protocol += inner.process() == 0;
    EXPECT_THROW(compareBuilds(transport, build), Error);
    EXPECT_EQ(transport.gathered, 2 + sizeof(Build));
  });
}

TEST(Agreement, AnotherBuildIsFoundFirst) {
  std::mutex mutex;
  std::vector<std::string> messages;
  onProcesses(3, [&](Transport &transport) {
    EXPECT_NO_THROW(compareBuilds(transport, ownBuild()));
    Build build = ownBuild();
    build.abi += transport.process() == 1;
    try {
      compareBuilds(transport, build);
    } catch (const Error &error) {
      EXPECT_EQ(error.exitCode(), 2);
      std::lock_guard<std::mutex> lock(mutex);
      messages.push_back(error.what());
    }
  });
  ASSERT_EQ(messages.size(), 3u);
  EXPECT_NE(messages[0].find("do not run the same build: processes 0, 2: "),
            std::string::npos)
      << messages[0];
  EXPECT_EQ(messages[0], messages[1]);
  EXPECT_EQ(messages[0], messages[2]);
}

//===----------------------------------------------------------------------===//
// Runs
//===----------------------------------------------------------------------===//

#ifdef GALVATRON_RUN

/// Two processes; what each is given beside the usual.
class DifferentRuns : public Launched {
protected:
  std::string both(const std::string &options,
                   const std::string &program = "bigram2.gvx") const {
    return std::string(GALVATRON_RUN) + " " + TEST_PROGRAMS + "/" + program +
           " --steps=5 --lr=0.1 " + options;
  }
  std::string data() const { return "--data=" + folder + "/text.txt "; }
  /// Runs two processes; process 1 has the second command.
  int runEach(const std::string &first, const std::string &second) {
    std::string command =
        "'[ $RANK = 0 ] && exec " + first + "; exec " + second + "'";
    return run(std::string(START_PROCESSES) + " 2 sh -c " + command);
  }
  /// The one message that all ended with, before a step was made.
  void expectMessage(const std::string &message) {
    std::string whole = "galvatron-run: error: " + message + "\n";
    EXPECT_NE(output.find(whole), std::string::npos)
        << "expected: " << whole << "found: " << output;
    EXPECT_EQ(output.find("error: "), output.rfind("error: ")) << output;
    EXPECT_EQ(output.find("step 1 "), std::string::npos) << output;
  }
  void writeText(const std::string &name, const std::string &line) {
    std::ofstream text(folder + "/" + name);
    for (int i = 0; i < 400; ++i)
      text << line;
  }
};

TEST_F(DifferentRuns, Options) {
  for (auto [first, second, message] :
       {std::tuple("--seed=3", "--seed=4",
                   "process 0: --seed=3, process 1: --seed=4"),
        {"", "--on-nan=skip",
         "process 0: no --on-nan, process 1: "
         "--on-nan=skip"},
        {"--decay-all", "",
         "process 0: --decay-all, process 1: no "
         "--decay-all"},
        {"", "--save=/tmp/nowhere",
         "process 0: no --save, process 1: "
         "--save"}}) {
    EXPECT_EQ(runEach(both(data() + first), both(data() + second)), 2)
        << output;
    expectMessage(std::string("the processes do not agree: ") + message);
  }
  // Their own are their own.
  EXPECT_EQ(runEach(both(data() + "--log=" + folder + "/log"),
                    both(data() + "--threads-per-rank=1")),
            0)
      << output;
}

TEST_F(DifferentRuns, Steps) {
  EXPECT_EQ(runEach(both(data()), both(data() + "--steps=6")), 2) << output;
  expectMessage("the processes do not agree: process 0: --steps=5, process 1: "
                "--steps=6");
}

TEST_F(DifferentRuns, Programs) {
  EXPECT_EQ(runEach(both(data()), both(data(), "bigram2-other.gvx")), 2)
      << output;
  EXPECT_NE(output.find("error: the processes do not agree: process 0: program "
                        "with SHA-256 "),
            std::string::npos)
      << output;
}

TEST_F(DifferentRuns, Data) {
  writeText("other.txt", "abcdefghijklmnopqrstuvwxyA");
  std::string other = "--data=" + folder + "/other.txt";
  EXPECT_EQ(runEach(both(data()), both(other)), 2) << output;
  EXPECT_NE(output.find("do not agree: process 0: data file 0 of 10400 text "
                        "values, hash "),
            std::string::npos)
      << output;
  // The same file under another name is the same data.
  writeText("same.txt", "abcdefghijklmnopqrstuvwxyz");
  EXPECT_EQ(runEach(both(data()), both("--data=" + folder + "/same.txt")), 0)
      << output;
}

TEST_F(DifferentRuns, OneProcessHasNoData) {
  EXPECT_EQ(runEach(both(data()), both("--data=" + folder + "/none.txt")), 2);
  expectMessage("cannot open data file '" + folder +
                "/none.txt': No such file or directory (process 1)");
}

TEST_F(DifferentRuns, ProcessZeroChoosesTheCheckpoint) {
  auto saved = [&](const std::string &name) {
    return both(data() + "--checkpoint=" + folder + "/" + name +
                " --checkpoint-every=2 --keep-checkpoints=9 --resume ");
  };
  std::string start = std::string(START_PROCESSES) + " 2 ";
  ASSERT_EQ(run(start + saved("a")), 0) << output;
  namespace fs = std::filesystem;
  fs::copy(folder + "/a", folder + "/b", fs::copy_options::recursive);
  fs::create_directory_symlink(folder + "/a", folder + "/same");
  // The link is another name of the folder, from which all continue.
  fs::remove_all(folder + "/a/step-00000005");
  EXPECT_EQ(runEach(saved("a"), saved("same")), 0) << output;
  EXPECT_NE(output.find("resumed from '" + folder + "/a/step-00000004'"),
            std::string::npos)
      << output;
  // A copy of it, in which process 1 would write its part.
  EXPECT_EQ(runEach(saved("a"), saved("b")), 2) << output;
  expectMessage("'" + folder +
                "/b' is not the checkpoint folder of process 0: all processes "
                "read and write checkpoints, so machines must share it "
                "(process 1)");
  // A folder that only process 0 cannot open.
  EXPECT_EQ(runEach(saved("text.txt"), saved("a")), 2) << output;
  EXPECT_NE(output.find("text.txt"), std::string::npos) << output;
  EXPECT_NE(output.find("(process 0)\n"), std::string::npos) << output;
  for (const auto &entry : fs::directory_iterator(folder + "/a"))
    EXPECT_EQ(entry.path().filename().string().substr(0, 5), "step-");
}

TEST_F(DifferentRuns, Weights) {
  for (const char *name : {"one", "other"})
    ASSERT_EQ(run(std::string(START_PROCESSES) + " 2 " +
                  both(data() + "--save=" + folder + "/" + name +
                       " --seed=" + (name[1] == 'n' ? "1" : "2"))),
              0)
        << output;
  auto from = [&](const std::string &name) {
    return both(data() + "--init=" + folder + "/" + name);
  };
  EXPECT_EQ(runEach(from("one"), from("other")), 2) << output;
  EXPECT_NE(output.find("do not agree: process 0: --init of 2 files of "),
            std::string::npos)
      << output;
  std::filesystem::remove_all(folder + "/other");
  std::filesystem::copy(folder + "/one", folder + "/other");
  EXPECT_EQ(runEach(from("one"), from("other")), 0) << output;
  // A file itself, under any name.
  std::filesystem::copy(folder + "/one/model.safetensors",
                        folder + "/x.safetensors");
  EXPECT_EQ(runEach(from("one/model.safetensors"), from("x.safetensors")), 0)
      << output;
  EXPECT_EQ(runEach(from("one"), from("none")), 2) << output;
  expectMessage("cannot open '" + folder +
                "/none': No such file or directory (process 1)");
}

#endif

} // namespace
