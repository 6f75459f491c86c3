//===- sockets.cpp - Connections for the monitor --------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "comm/sockets.h"
#include "comm/deadline.h"
#include "core/error.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

namespace grt {
namespace {

constexpr int startSeconds = 30;
/// No message is longer; more means that the other side is not ours.
constexpr uint32_t longest = 1 << 24;

/// What a process says first, and process 0 repeats.
struct Greeting {
  unsigned char token[16];
  int32_t number;
};

bool receiveAll(int socket, Greeting &greeting, Clock::time_point deadline) {
  char *to = reinterpret_cast<char *>(&greeting);
  return moveAll(socket, POLLIN, sizeof(greeting), deadline, [&](size_t done) {
    return ::recv(socket, to + done, sizeof(greeting) - done, 0);
  });
}

bool sendAll(int socket, const Greeting &greeting, Clock::time_point deadline) {
  const char *from = reinterpret_cast<const char *>(&greeting);
  return moveAll(socket, POLLOUT, sizeof(greeting), deadline, [&](size_t done) {
    return ::send(socket, from + done, sizeof(greeting) - done, MSG_NOSIGNAL);
  });
}

void undelayed(int socket) {
  int on = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

std::string dotted(uint32_t address) {
  char text[INET_ADDRSTRLEN] = "";
  inet_ntop(AF_INET, &address, text, sizeof(text));
  return text;
}

} // namespace

Connection &Connection::operator=(Connection &&other) noexcept {
  std::swap(socket, other.socket);
  std::swap(incoming, other.incoming);
  std::swap(outgoing, other.outgoing);
  return *this;
}

void Connection::close() {
  if (socket >= 0)
    ::close(socket);
  socket = -1;
}

void Connection::send(uint32_t kind, std::string_view text) {
  uint32_t head[2] = {kind, uint32_t(text.size())};
  outgoing.append(reinterpret_cast<const char *>(head), sizeof(head));
  outgoing.append(text);
  flush();
}

bool Connection::flush() {
  while (socket >= 0 && !outgoing.empty()) {
    ssize_t sent =
        ::send(socket, outgoing.data(), outgoing.size(), MSG_NOSIGNAL);
    if (sent < 0)
      return errno == EAGAIN || errno == EINTR;
    outgoing.erase(0, size_t(sent));
  }
  return true;
}

bool Connection::read(std::vector<Message> &messages) {
  bool open = flush();
  char buffer[16384];
  while (open) {
    ssize_t got = ::recv(socket, buffer, sizeof(buffer), 0);
    if (got > 0)
      incoming.append(buffer, size_t(got));
    else if (got == 0 || (errno != EAGAIN && errno != EINTR))
      open = false;
    else
      break;
  }
  uint32_t head[2];
  size_t at = 0;
  while (incoming.size() - at >= sizeof(head)) {
    std::memcpy(head, incoming.data() + at, sizeof(head));
    if (head[1] > longest)
      return false;
    if (incoming.size() - at - sizeof(head) < head[1])
      break;
    messages.push_back({head[0], incoming.substr(at + sizeof(head), head[1])});
    at += sizeof(head) + head[1];
  }
  incoming.erase(0, at);
  return open;
}

Listener::Listener() {
  socket = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = INADDR_ANY;
  socklen_t length = sizeof(address);
  if (socket < 0 ||
      ::bind(socket, reinterpret_cast<sockaddr *>(&address), length) != 0 ||
      ::listen(socket, 1024) != 0 ||
      ::getsockname(socket, reinterpret_cast<sockaddr *>(&address), &length) !=
          0)
    fail("cannot listen for the other processes: " +
         std::string(strerror(errno)));
  where.port = address.sin_port;
  if (getrandom(where.token, sizeof(where.token), 0) !=
      ssize_t(sizeof(where.token)))
    fail("cannot make a token: " + std::string(strerror(errno)));
  auto add = [&](uint32_t address) {
    if (where.count < std::size(where.addresses))
      where.addresses[where.count++] = address;
  };
  add(htonl(INADDR_LOOPBACK));
  ifaddrs *interfaces = nullptr;
  if (getifaddrs(&interfaces) == 0) {
    for (ifaddrs *entry = interfaces; entry; entry = entry->ifa_next)
      if (entry->ifa_addr && entry->ifa_addr->sa_family == AF_INET &&
          (entry->ifa_flags & IFF_UP) && !(entry->ifa_flags & IFF_LOOPBACK))
        add(reinterpret_cast<sockaddr_in *>(entry->ifa_addr)->sin_addr.s_addr);
    freeifaddrs(interfaces);
  }
}

Listener::~Listener() { ::close(socket); }

void Listener::accept(int count,
                      const std::function<void(int, Connection)> &taken) {
  Clock::time_point deadline =
      Clock::now() + std::chrono::seconds(startSeconds);
  for (int missing = count; missing > 0;) {
    pollfd descriptor = {socket, POLLIN, 0};
    int left = millisecondsLeft(deadline);
    if (left == 0)
      fail(std::to_string(missing) + " of " + std::to_string(count) +
           " processes did not connect to process 0 within " +
           std::to_string(startSeconds) + " s");
    ::poll(&descriptor, 1, left);
    int accepted =
        ::accept4(socket, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (accepted < 0)
      continue;
    Connection connection(accepted);
    Greeting greeting{};
    // A stranger gets a second.
    Clock::time_point soon = Clock::now() + std::chrono::seconds(1);
    if (!receiveAll(accepted, greeting, soon) ||
        std::memcmp(greeting.token, where.token, sizeof(where.token)) != 0 ||
        greeting.number < 1 || greeting.number > count ||
        !sendAll(accepted, greeting, soon))
      continue;
    undelayed(accepted);
    taken(greeting.number, std::move(connection));
    --missing;
  }
}

Connection connectTo(const Contact &contact, int number) {
  Clock::time_point deadline =
      Clock::now() + std::chrono::seconds(startSeconds);
  std::string tried;
  while (millisecondsLeft(deadline) > 0) {
    tried.clear();
    for (int i = 0; i < contact.count; ++i) {
      tried += (i ? ", " : "") + dotted(contact.addresses[i]);
      int opened =
          ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
      if (opened < 0)
        fail("cannot make a socket: " + std::string(strerror(errno)));
      Connection connection(opened);
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = contact.port;
      address.sin_addr.s_addr = contact.addresses[i];
      Clock::time_point soon =
          std::min(deadline, Clock::now() + std::chrono::seconds(2));
      if (::connect(opened, reinterpret_cast<sockaddr *>(&address),
                    sizeof(address)) != 0) {
        pollfd descriptor = {opened, POLLOUT, 0};
        int problem = errno;
        socklen_t length = sizeof(problem);
        if (problem != EINPROGRESS ||
            ::poll(&descriptor, 1, millisecondsLeft(soon)) != 1 ||
            getsockopt(opened, SOL_SOCKET, SO_ERROR, &problem, &length) != 0 ||
            problem != 0)
          continue;
      }
      Greeting greeting{}, answer{};
      std::memcpy(greeting.token, contact.token, sizeof(greeting.token));
      greeting.number = number;
      if (!sendAll(opened, greeting, soon) ||
          !receiveAll(opened, answer, soon + std::chrono::seconds(5)) ||
          std::memcmp(&answer, &greeting, sizeof(answer)) != 0)
        continue;
      undelayed(opened);
      return connection;
    }
    usleep(50000);
  }
  fail("process " + std::to_string(number) +
       " cannot reach process 0 by TCP at any of " + tried + ", port " +
       std::to_string(ntohs(contact.port)));
}

} // namespace grt
