//===- agreement.cpp - What the processes of a run have in common ---------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "comm/agreement.h"
#include "base/error.h"
#include "base/sha256.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>

namespace grt {
namespace {

/// Version of the messages between processes; raised when they change.
constexpr uint32_t protocolVersion = 5;

/// A statement is refused above this: a process has some dozens of terms.
constexpr uint64_t longestStatement = 1 << 20;

/// Differences and failures that a message names; more would hide the first.
constexpr size_t mostNamed = 6;

/// First message of a process: the digest of its statement, and whether all
/// below it in the tree have the same one and no failure.
struct Digest {
  uint64_t agreed;
  std::array<uint8_t, 32> hash;
};

/// Process 0's answer: `bytes` of a message follow if it is final.
struct Verdict {
  uint32_t exitCode;
  uint32_t final;
  uint64_t bytes;
};

void append(std::string &to, uint32_t number) {
  to.append(reinterpret_cast<const char *>(&number), sizeof(number));
}
void append(std::string &to, std::string_view text) {
  append(to, uint32_t(text.size()));
  to.append(text);
}

/// Takes numbers and texts from the front of some bytes, as far as they go.
class Taker {
public:
  explicit Taker(std::string_view bytes) : left(bytes) {}

  uint32_t number() {
    uint32_t value = 0;
    if (left.size() < sizeof(value)) {
      good = false;
      return 0;
    }
    std::memcpy(&value, left.data(), sizeof(value));
    left.remove_prefix(sizeof(value));
    return value;
  }
  std::string text() {
    uint32_t bytes = number();
    if (!good || left.size() < bytes) {
      good = false;
      return "";
    }
    std::string value(left.substr(0, bytes));
    left.remove_prefix(bytes);
    return value;
  }
  bool isGood() const { return good; }
  bool isEmpty() const { return left.empty(); }

private:
  std::string_view left;
  bool good = true;
};

/// The processes that say the same, by what they say; the order is that of the
/// first process of each.
class Camps {
public:
  void add(const std::string &text, int process) {
    auto [it, isNew] = numbers.try_emplace(text, order.size());
    if (isNew)
      order.emplace_back(text, std::vector<int>());
    order[it->second].second.push_back(process);
  }
  size_t size() const { return order.size(); }
  auto begin() const { return order.begin(); }
  auto end() const { return order.end(); }

private:
  std::map<std::string, size_t> numbers;
  std::vector<std::pair<std::string, std::vector<int>>> order;
};

/// "process 0: --seed=3, processes 1, 3: --seed=4"
std::string describe(const Camps &camps) {
  std::string text;
  size_t named = 0;
  for (const auto &[said, processes] : camps) {
    if (named++ == mostNamed)
      return text + ", and " + str(camps.size() - mostNamed) + " others";
    text += (text.empty() ? "" : ", ") + processList(processes) + ": " + said;
  }
  return text;
}

Status failuresOf(const std::vector<Statement> &statements) {
  Camps camps;
  int first = -1, failed = 0;
  for (size_t process = 0; process < statements.size(); ++process) {
    const Status &status = statements[process].status;
    if (status)
      continue;
    if (first < 0)
      first = int(process);
    ++failed;
    camps.add(status.message(), int(process));
  }
  if (first < 0)
    return Status();
  int code = statements[size_t(first)].status.exitCode();
  const auto &[message, processes] = *camps.begin();
  if (failed == int(statements.size()) && camps.size() == 1)
    return Status(code, message);
  std::string text = message + " (" + processList(processes) + ")";
  size_t named = 1;
  for (auto it = std::next(camps.begin());
       it != camps.end() && named < mostNamed; ++it, ++named)
    text += "; " + processList(it->second) + ": " + it->first;
  return Status(code, text);
}

} // namespace

std::string processList(const std::vector<int> &numbers) {
  std::string text = numbers.size() == 1 ? "process " : "processes ";
  for (size_t i = 0; i < numbers.size();) {
    size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1)
      ++last;
    // Two neighbours are shorter as a list.
    if (last == i + 1)
      last = i;
    text += (i ? ", " : "") + str(numbers[i]);
    if (last > i)
      text += " to " + str(numbers[last]);
    i = last + 1;
  }
  return text;
}

std::string encode(const Statement &statement) {
  std::string bytes;
  append(bytes, uint32_t(statement.status.exitCode()));
  append(bytes, statement.status.message());
  append(bytes, uint32_t(statement.terms.size()));
  for (const Term &term : statement.terms) {
    append(bytes, term.name);
    append(bytes, term.text);
  }
  return bytes;
}

std::optional<Statement> decodeStatement(std::string_view bytes) {
  Taker taker(bytes);
  Statement statement;
  int exitCode = int(taker.number() & 0xff);
  std::string message = taker.text();
  if (exitCode)
    statement.status = Status(exitCode, message);
  uint32_t count = taker.number();
  for (uint32_t i = 0; i < count && taker.isGood(); ++i) {
    Term term;
    term.name = taker.text();
    term.text = taker.text();
    statement.terms.push_back(std::move(term));
  }
  if (!taker.isGood() || !taker.isEmpty())
    return std::nullopt;
  return statement;
}

Status verdictOf(const std::vector<Statement> &statements) {
  if (Status failures = failuresOf(statements); !failures)
    return failures;
  // Names in the order in which they first appear.
  std::vector<std::string> names;
  std::vector<std::map<std::string, std::string>> terms;
  for (const Statement &statement : statements) {
    std::map<std::string, std::string> &own = terms.emplace_back();
    for (const Term &term : statement.terms) {
      own[term.name] = term.text;
      if (std::find(names.begin(), names.end(), term.name) == names.end())
        names.push_back(term.name);
    }
  }
  std::string text;
  size_t differences = 0;
  for (const std::string &name : names) {
    Camps camps;
    for (size_t process = 0; process < terms.size(); ++process) {
      auto it = terms[process].find(name);
      camps.add(it == terms[process].end() ? "no " + name : it->second,
                int(process));
    }
    if (camps.size() > 1 && differences++ < mostNamed)
      text += "; " + describe(camps);
  }
  if (differences == 0)
    return Status();
  if (differences > mostNamed)
    text += "; and " + str(differences - mostNamed) + " more";
  return Status(2, "the processes do not agree: " + text.substr(2));
}

namespace {

/// Gathers the text `own` of each process at process 0, in the order of
/// processes. Parts go along the tree, each behind its process and its length.
std::vector<std::string> gatherTexts(const HostMessages &messages,
                                     const std::string &own) {
  Transport &transport = messages.transport;
  const size_t count = size_t(transport.processes());
  TreePlace place = treePlace(transport.process(), transport.processes());
  std::string all;
  append(all, uint32_t(transport.process()));
  append(all, own);
  auto move = [&](int other, std::string &text, bool sends) {
    std::vector<Transport::Request> requests;
    const size_t most = transport.largestMessage();
    for (size_t at = 0; at < text.size(); at += most) {
      size_t part = std::min(most, text.size() - at);
      requests.push_back(
          sends ? transport.send(other, messages.tag, &text[at], part)
                : transport.receive(other, messages.tag, &text[at], part));
    }
    messages.wait(requests);
  };
  for (int child : place.children) {
    uint64_t bytes = 0;
    messages.wait(
        {transport.receive(child, messages.tag, &bytes, sizeof(bytes))});
    if (bytes > count * (longestStatement + 2 * sizeof(uint32_t)))
      fail(processList({child}) + " speaks another protocol");
    std::string theirs(bytes, 0);
    move(child, theirs, /*sends=*/false);
    all += theirs;
  }
  if (place.parent >= 0) {
    uint64_t bytes = all.size();
    messages.wait(
        {transport.send(place.parent, messages.tag, &bytes, sizeof(bytes))});
    move(place.parent, all, /*sends=*/true);
    return {};
  }
  std::vector<std::string> texts(count);
  for (Taker taker(all); taker.isGood() && !taker.isEmpty();) {
    uint32_t process = taker.number();
    if (process < count)
      texts[process] = taker.text();
  }
  return texts;
}

} // namespace

Status agree(Transport &transport, int tag, const WaitForAll &wait,
             const Statement &own) {
  const HostMessages messages{transport, tag, wait};
  const TreePlace place = treePlace(transport.process(), transport.processes());
  std::string statement = encode(own);
  if (statement.size() > longestStatement)
    fail("the terms of a process are " + str(statement.size()) +
         " bytes, expected at most " + str(longestStatement));
  Digest digest{own.status ? 1u : 0u, sha256(statement)};
  std::vector<Digest> below(place.children.size());
  std::vector<Transport::Request> requests;
  for (size_t i = 0; i < below.size(); ++i)
    requests.push_back(
        transport.receive(place.children[i], tag, &below[i], sizeof(Digest)));
  wait(requests);
  for (const Digest &other : below)
    if (!other.agreed || other.hash != digest.hash)
      digest.agreed = 0;
  if (place.parent >= 0)
    wait({transport.send(place.parent, tag, &digest, sizeof(digest))});
  Verdict verdict{0, uint32_t(digest.agreed), 0};
  broadcastToAll(messages, &verdict, sizeof(verdict), 0);
  if (verdict.final)
    return Status();

  Status result;
  std::vector<std::string> texts = gatherTexts(messages, statement);
  std::string message;
  if (place.parent < 0) {
    std::vector<Statement> statements;
    for (size_t process = 0; process < texts.size(); ++process) {
      std::optional<Statement> decoded = decodeStatement(texts[process]);
      if (!decoded)
        fail(processList({int(process)}) + " speaks another protocol");
      statements.push_back(std::move(*decoded));
    }
    result = verdictOf(statements);
    message = result.message().substr(0, longestStatement);
    verdict = {uint32_t(result.exitCode()), 1, message.size()};
  }
  broadcastToAll(messages, &verdict, sizeof(verdict), 0);
  message.resize(std::min(verdict.bytes, longestStatement));
  broadcastToAll(messages, message.data(), message.size(), 0);
  return verdict.exitCode ? Status(int(verdict.exitCode), message) : Status();
}

void share(Transport &transport, int tag, const WaitForAll &wait,
           std::string &text) {
  const HostMessages messages{transport, tag, wait};
  uint64_t bytes = text.size();
  broadcastToAll(messages, &bytes, sizeof(bytes), 0);
  text.resize(std::min(bytes, longestStatement));
  broadcastToAll(messages, text.data(), text.size(), 0);
}

Build ownBuild() {
  Build build;
  std::string own = version();
  std::memcpy(build.version, own.data(),
              std::min(own.size(), sizeof(build.version) - 1));
  build.abi = GRT_ABI_VERSION;
  build.protocol = protocolVersion;
  return build;
}

void compareBuilds(Transport &transport, const Build &own) {
  // A byte of each process where all have process 0's, as they nearly always
  // do.
  Build first = own;
  transport.broadcast(&first, sizeof(first), 0);
  const uint8_t differs = std::memcmp(&first, &own, sizeof(own)) != 0;
  std::vector<uint8_t> differ(size_t(transport.processes()));
  transport.allGather(&differs, differ.data(), sizeof(differs));
  if (std::count(differ.begin(), differ.end(), 0) == transport.processes())
    return;
  std::vector<Build> all(size_t(transport.processes()));
  transport.allGather(&own, all.data(), sizeof(own));
  Camps camps;
  for (size_t process = 0; process < all.size(); ++process) {
    Build &build = all[process];
    build.version[sizeof(build.version) - 1] = 0;
    camps.add("version " + std::string(build.version) + ", ABI " +
                  str(build.abi) + ", protocol " + str(build.protocol),
              int(process));
  }
  invalid("the processes do not run the same build: " + describe(camps));
}

} // namespace grt
