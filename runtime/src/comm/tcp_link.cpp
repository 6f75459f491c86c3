//===- tcp_link.cpp - Messages of two processes over one connection -------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "comm/tcp_link.h"
#include "base/error.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <sys/socket.h>
#include <sys/uio.h>

namespace grt {
namespace {

/// Stands for the rest of a message that was given up.
constexpr std::array<char, 16 << 10> filler{};

/// Read in one turn; other links and ranks have theirs between.
constexpr size_t turnBytes = 8 << 20;

bool isTemporary() { return errno == EAGAIN || errno == EINTR; }

} // namespace

//===----------------------------------------------------------------------===//
// The connection
//===----------------------------------------------------------------------===//

void TcpLink::open(Connection made, bool connects) {
  connection = std::move(made);
  state = State::Open;
  stage = std::make_unique<char[]>(readBytes);
  if (!connects)
    return;
  isConfirmed = true;
  Head hello{Kind::Hello, 0, 0};
  controls.insert(0, reinterpret_cast<const char *>(&hello), sizeof(hello));
}

void TcpLink::forget() {
  connection.close();
  state = State::New;
  stageBegin = stageEnd = 0;
}

/// Ends what waits: with a reason, or never.
void TcpLink::abandonAll(int code, const std::string *why) {
  auto abandon = [&](TcpOperation *operation) {
    if (!operation)
      return;
    if (operation->isCopied) {
      delete operation;
      return;
    }
    operation->link = nullptr;
    if (why) {
      operation->exitCode = code;
      operation->problem = *why;
      operation->done = true;
    }
  };
  abandon(std::exchange(writing.operation, nullptr));
  abandon(std::exchange(reading.operation, nullptr));
  writing = {};
  reading = {};
  for (TcpOperation *operation : started)
    abandon(operation);
  started.clear();
  for (auto &[tag, channel] : channels) {
    for (auto *queue : {&channel.unsent, &channel.waiting}) {
      for (TcpOperation *operation : *queue)
        abandon(operation);
      queue->clear();
    }
  }
  copies = 0;
  held = 0;
  for (auto &[tag, channel] : channels)
    for (const Arrived &arrived : channel.arrived)
      held += costOf(arrived.content.size());
  controls.clear();
}

void TcpLink::close() {
  connection.close();
  state = State::Gone;
  stage.reset();
  abandonAll(0, nullptr);
}

void TcpLink::fail(int code, const std::string &why) {
  connection.close();
  state = State::Gone;
  stage.reset();
  exitCode = code;
  problem = why;
  abandonAll(code, &why);
}

void TcpLink::endWriting() {
  writes = false;
  ::shutdown(connection.descriptor(), SHUT_WR);
}

//===----------------------------------------------------------------------===//
// What is asked for
//===----------------------------------------------------------------------===//

TcpOperation *TcpLink::send(int tag, const void *data, size_t bytes) {
  auto operation = std::make_unique<TcpOperation>();
  operation->link = this;
  operation->process = process;
  operation->sends = true;
  operation->tag = tag;
  operation->data = const_cast<char *>(static_cast<const char *>(data));
  operation->bytes = bytes;
  if (isGone()) {
    operation->link = nullptr;
    operation->exitCode = exitCode;
    operation->problem = problem;
    operation->done = !problem.empty();
    return operation.release();
  }
  TcpOperation *asked = operation.release();
  Channel &channel = channels[tag];
  channel.unsent.push_back(asked);
  if (isLoop)
    matchLoop(channel);
  else
    startWhatMay(channel);
  // A connection that is gone is noticed by the reader, not here.
  write();
  if (asked->done && asked->problem.empty()) {
    delete asked;
    return nullptr;
  }
  if (asked->paid) {
    asked->copy.assign(asked->data, asked->data + bytes);
    asked->data = asked->copy.data();
    asked->isCopied = true;
    ++copies;
    return nullptr;
  }
  return asked;
}

TcpOperation *TcpLink::receive(int tag, void *data, size_t bytes) {
  auto *asked = new TcpOperation;
  asked->link = this;
  asked->process = process;
  asked->tag = tag;
  asked->data = static_cast<char *>(data);
  asked->bytes = bytes;
  Channel &channel = channels[tag];
  if (!channel.arrived.empty()) {
    Arrived arrived = std::move(channel.arrived.front());
    channel.arrived.pop_front();
    held -= costOf(arrived.content.size());
    channel.waiting.push_front(asked);
    match(channel, arrived.content, arrived.paid);
    write();
    return asked;
  }
  if (isGone()) {
    asked->link = nullptr;
    asked->exitCode = exitCode;
    asked->problem = problem;
    asked->done = !problem.empty();
    return asked;
  }
  channel.waiting.push_back(asked);
  if (isLoop) {
    matchLoop(channel);
    return asked;
  }
  // Numbers of receives that were given up are those of the next ones.
  if (uint64_t number = channel.came + channel.waiting.size();
      number > channel.told) {
    channel.told = number;
    control(Kind::Posted, tag, number);
    write();
  }
  return asked;
}

void TcpLink::cancel(TcpOperation *operation) {
  if (!operation->sends) {
    std::erase(channels[operation->tag].waiting, operation);
    if (reading.operation == operation) {
      reading.operation = nullptr;
      reading.to = nullptr;
    }
    delete operation;
    return;
  }
  Channel &channel = channels[operation->tag];
  if (writing.operation == operation && writing.done > 0) {
    if (operation->paid) {
      // The other side has room for the message, so its rest is sent from a
      // copy.
      operation->copy.assign(operation->data,
                             operation->data + operation->bytes);
      operation->data = operation->copy.data();
      operation->isCopied = true;
      ++copies;
      return;
    }
    writing.operation = nullptr;
    if (writing.done < sizeof(Head) + writing.bytes) {
      writing.end.number = 1;
      --channel.started;
    }
  } else if (writing.operation == operation) {
    writing = {};
    takeBack(*operation);
  } else if (std::erase(started, operation)) {
    takeBack(*operation);
  } else {
    std::erase(channel.unsent, operation);
  }
  delete operation;
}

/// Undoes the start of a send: its number and its credit.
void TcpLink::takeBack(TcpOperation &operation) {
  --channels[operation.tag].started;
  if (operation.paid) {
    credit += costOf(operation.bytes);
    held -= costOf(operation.bytes);
  }
}

void TcpLink::tellLost(int process) {
  control(Kind::Lost, 0, uint64_t(process));
  write();
}

void TcpLink::matchLoop(Channel &channel) {
  while (!channel.unsent.empty() && !channel.waiting.empty()) {
    TcpOperation &out = *channel.unsent.front(), &in = *channel.waiting.front();
    if (out.bytes == in.bytes && in.bytes)
      std::memcpy(in.data, out.data, in.bytes);
    finish(in, out.bytes);
    out.done = true;
    channel.unsent.pop_front();
    channel.waiting.pop_front();
  }
}

void TcpLink::finish(TcpOperation &operation, size_t bytes) {
  if (bytes != operation.bytes)
    operation.problem = "a message of " + str(bytes) +
                        " bytes arrived, expected " + str(operation.bytes);
  operation.done = true;
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

void TcpLink::control(Kind kind, int tag, uint64_t number) {
  if (isGone() || isLoop)
    return;
  Head head{kind, tag, number};
  controls.append(reinterpret_cast<const char *>(&head), sizeof(head));
}

void TcpLink::startWhatMay(Channel &channel) {
  while (!channel.unsent.empty()) {
    TcpOperation &next = *channel.unsent.front();
    size_t cost = costOf(next.bytes);
    if (channel.started >= channel.posted) {
      if (next.bytes > smallBytes || cost > credit)
        return;
      next.paid = true;
      credit -= cost;
      hold(cost);
    }
    ++channel.started;
    started.push_back(&next);
    channel.unsent.pop_front();
  }
}

bool TcpLink::wantsToWrite() const {
  return isStanding() && writes &&
         (!controls.empty() || writing.isActive || !started.empty());
}

void TcpLink::beginWriting() {
  TcpOperation *next = started.front();
  started.pop_front();
  writing.isActive = true;
  writing.operation = next;
  writing.bytes = next->bytes;
  writing.head = {next->paid ? Kind::Small : Kind::Message, next->tag,
                  next->bytes};
  writing.end = {Kind::End, next->tag, 0};
}

void TcpLink::endItem() {
  TcpOperation *operation = writing.operation;
  writing = {};
  if (!operation)
    return;
  if (operation->paid)
    held -= costOf(operation->bytes);
  if (operation->isCopied) {
    --copies;
    delete operation;
  } else {
    operation->done = true;
  }
}

bool TcpLink::write() {
  while (wantsToWrite()) {
    if (!writing.isActive && !started.empty())
      beginWriting();
    std::array<iovec, 4> parts;
    size_t count = 0;
    auto add = [&](const void *data, size_t bytes) {
      if (bytes)
        parts[count++] = {const_cast<void *>(data), bytes};
    };
    // Control goes between messages.
    size_t controlBytes = writing.done == 0 ? controls.size() : 0;
    add(controls.data(), controlBytes);
    size_t total = 0;
    if (writing.isActive) {
      const size_t bodyEnd = sizeof(Head) + writing.bytes;
      total = bodyEnd + (writing.head.kind == Kind::Message ? sizeof(Head) : 0);
      size_t at = writing.done;
      if (at < sizeof(Head)) {
        add(reinterpret_cast<const char *>(&writing.head) + at,
            sizeof(Head) - at);
        at = sizeof(Head);
      }
      if (at < bodyEnd && writing.operation) {
        add(writing.operation->data + (at - sizeof(Head)), bodyEnd - at);
        at = bodyEnd;
      } else if (at < bodyEnd) {
        size_t part = std::min(bodyEnd - at, filler.size());
        add(filler.data(), part);
        at += part;
      }
      if (at >= bodyEnd && at < total)
        add(reinterpret_cast<const char *>(&writing.end) + (at - bodyEnd),
            total - at);
    }
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    ssize_t sent = ::sendmsg(connection.descriptor(), &message, MSG_NOSIGNAL);
    if (sent < 0)
      return isTemporary();
    size_t ofControl = std::min(size_t(sent), controlBytes);
    controls.erase(0, ofControl);
    writing.done += size_t(sent) - ofControl;
    if (writing.isActive && writing.done == total)
      endItem();
  }
  return true;
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

bool TcpLink::read() {
  for (size_t taken = 0; taken < turnBytes;) {
    std::array<iovec, 2> parts;
    int count = 0;
    size_t direct = 0, asked = 0;
    if (reading.inBody && reading.to && stageEnd == 0) {
      direct = reading.bytes - reading.done;
      parts[size_t(count++)] = {reading.to + reading.done, direct};
    }
    parts[size_t(count++)] = {stage.get() + stageEnd, readBytes - stageEnd};
    asked = direct + readBytes - stageEnd;
    ssize_t got = ::readv(connection.descriptor(), parts.data(), count);
    if (got <= 0)
      return got < 0 && isTemporary();
    taken += size_t(got);
    size_t body = std::min(size_t(got), direct);
    reading.done += body;
    stageEnd += size_t(got) - body;
    if (!parse())
      return false;
    if (size_t(got) < asked)
      return true;
  }
  return true;
}

/// Takes what was read, up to the beginning of a head.
bool TcpLink::parse() {
  while (true) {
    size_t there = stageEnd - stageBegin;
    if (reading.inBody) {
      size_t part = std::min(there, reading.bytes - reading.done);
      if (reading.to && part)
        std::memcpy(reading.to + reading.done, stage.get() + stageBegin, part);
      reading.done += part;
      stageBegin += part;
      if (reading.done < reading.bytes)
        break;
      reading.inBody = false;
      if (reading.kind == Kind::Message)
        reading.awaitsEnd = true;
      else
        concludeMessage(/*whole=*/true);
      continue;
    }
    if (there < sizeof(Head))
      break;
    Head head;
    std::memcpy(&head, stage.get() + stageBegin, sizeof(head));
    stageBegin += sizeof(head);
    if (!take(head))
      return false;
  }
  std::memmove(stage.get(), stage.get() + stageBegin, stageEnd - stageBegin);
  stageEnd -= stageBegin;
  stageBegin = 0;
  return true;
}

/// False for what no process of this run says.
bool TcpLink::take(const Head &head) {
  isConfirmed = true;
  if (reading.awaitsEnd != (head.kind == Kind::End))
    return false;
  switch (head.kind) {
  case Kind::Hello:
    return true;
  case Kind::Message:
  case Kind::Small:
    return beginMessage(head);
  case Kind::End:
    concludeMessage(head.number == 0);
    return true;
  case Kind::Posted: {
    Channel &channel = channels[head.tag];
    channel.posted = std::max(channel.posted, head.number);
    startWhatMay(channel);
    return true;
  }
  case Kind::Credit:
    if (head.number > window - credit)
      return false;
    credit += head.number;
    for (auto &[tag, channel] : channels)
      startWhatMay(channel);
    return true;
  case Kind::Lost:
    lost = int(head.number);
    return true;
  }
  return false;
}

bool TcpLink::beginMessage(const Head &head) {
  bool isSmall = head.number <= smallBytes;
  if (head.number > largestMessage || (head.kind == Kind::Small && !isSmall))
    return false;
  reading = {};
  reading.kind = head.kind;
  reading.tag = head.tag;
  reading.bytes = head.number;
  reading.inBody = true;
  Channel &channel = channels[head.tag];
  if (!channel.waiting.empty()) {
    reading.operation = channel.waiting.front();
    channel.waiting.pop_front();
    if (reading.operation->bytes == reading.bytes)
      reading.to = reading.operation->data;
  } else if (isSmall) {
    // Its receive may be posted while it comes, and counts it then.
    reading.kept.resize(reading.bytes);
    reading.to = reading.kept.data();
    return true;
  }
  reading.isCounted = true;
  ++channel.came;
  return true;
}

void TcpLink::concludeMessage(bool whole) {
  Reading ended = std::exchange(reading, {});
  Channel &channel = channels[ended.tag];
  bool paid = ended.kind == Kind::Small;
  if (!whole) {
    if (ended.isCounted)
      --channel.came;
    if (ended.operation)
      channel.waiting.push_front(ended.operation);
    return;
  }
  if (!ended.isCounted) {
    ++channel.came;
    if (!channel.waiting.empty())
      return match(channel, ended.kept, paid);
    hold(costOf(ended.bytes));
    channel.arrived.push_back({std::move(ended.kept), paid});
    return;
  }
  if (ended.operation)
    finish(*ended.operation, ended.bytes);
  if (paid)
    giveBack(costOf(ended.bytes));
}

/// Gives a message that was kept to the first receive.
void TcpLink::match(Channel &channel, const std::vector<char> &content,
                    bool paid) {
  TcpOperation &first = *channel.waiting.front();
  channel.waiting.pop_front();
  if (!content.empty() && content.size() == first.bytes)
    std::memcpy(first.data, content.data(), content.size());
  finish(first, content.size());
  if (paid)
    giveBack(costOf(content.size()));
}

void TcpLink::giveBack(size_t bytes) {
  owed += bytes;
  // Seldom enough to cost nothing; three quarters stay usable.
  if (owed < window / 4)
    return;
  control(Kind::Credit, 0, owed);
  owed = 0;
}

} // namespace grt
