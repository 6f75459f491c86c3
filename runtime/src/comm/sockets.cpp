//===- sockets.cpp - Addresses, sockets, and messages over them -----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "comm/sockets.h"
#include "base/error.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

namespace grt {
namespace {

/// No message is longer; more means that the other side is not ours.
constexpr uint32_t longest = 1 << 24;

/// Connections that wait to be accepted; the kernel's own limit may be lower.
constexpr int backlog = 4096;

constexpr std::array<uint8_t, 12> ipv4Prefix = {0, 0, 0, 0, 0,    0,
                                                0, 0, 0, 0, 0xff, 0xff};

/// True if the address needs an interface beside it.
bool isLinkLocal(const Endpoint &endpoint) {
  return endpoint.address[0] == 0xfe && (endpoint.address[1] & 0xc0) == 0x80;
}

void addUnique(std::vector<Endpoint> &to, const Endpoint &endpoint) {
  if (!isLinkLocal(endpoint) &&
      std::find(to.begin(), to.end(), endpoint) == to.end())
    to.push_back(endpoint);
}

/// Calls `visit(name, endpoint)` for the addresses of the interfaces that are
/// up.
template <typename Visit> void forEachAddress(uint16_t port, Visit visit) {
  ifaddrs *interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0)
    fail("cannot list the network's interfaces: " +
         std::string(strerror(errno)));
  for (ifaddrs *entry = interfaces; entry; entry = entry->ifa_next) {
    if (!entry->ifa_addr || !(entry->ifa_flags & IFF_UP) ||
        (entry->ifa_addr->sa_family != AF_INET &&
         entry->ifa_addr->sa_family != AF_INET6))
      continue;
    Endpoint endpoint = Endpoint::of(entry->ifa_addr);
    endpoint.port = port;
    visit(std::string(entry->ifa_name), endpoint);
  }
  freeifaddrs(interfaces);
}

} // namespace

Socket::~Socket() {
  if (number >= 0)
    ::close(number);
}

//===----------------------------------------------------------------------===//
// Addresses
//===----------------------------------------------------------------------===//

Endpoint Endpoint::of(const sockaddr *address) {
  Endpoint endpoint;
  if (address->sa_family == AF_INET6) {
    sockaddr_in6 wide;
    std::memcpy(&wide, address, sizeof(wide));
    std::memcpy(endpoint.address.data(), &wide.sin6_addr, 16);
    endpoint.port = ntohs(wide.sin6_port);
  } else {
    sockaddr_in narrow;
    std::memcpy(&narrow, address, sizeof(narrow));
    std::copy(ipv4Prefix.begin(), ipv4Prefix.end(), endpoint.address.begin());
    std::memcpy(endpoint.address.data() + 12, &narrow.sin_addr, 4);
    endpoint.port = ntohs(narrow.sin_port);
  }
  return endpoint;
}

uint32_t Endpoint::toAddress(sockaddr_storage &storage) const {
  storage = {};
  if (isMappedIpv4()) {
    auto &narrow = reinterpret_cast<sockaddr_in &>(storage);
    narrow.sin_family = AF_INET;
    narrow.sin_port = htons(port);
    std::memcpy(&narrow.sin_addr, address.data() + 12, 4);
    return sizeof(narrow);
  }
  auto &wide = reinterpret_cast<sockaddr_in6 &>(storage);
  wide.sin6_family = AF_INET6;
  wide.sin6_port = htons(port);
  std::memcpy(&wide.sin6_addr, address.data(), 16);
  return sizeof(wide);
}

bool Endpoint::isAny() const {
  return std::all_of(address.begin(), address.end(),
                     [](uint8_t byte) { return byte == 0; });
}

bool Endpoint::isMappedIpv4() const {
  return std::equal(ipv4Prefix.begin(), ipv4Prefix.end(), address.begin());
}

bool Endpoint::isLoopback() const {
  if (isMappedIpv4())
    return address[12] == 127;
  return address[15] == 1 &&
         std::all_of(address.begin(), address.end() - 1,
                     [](uint8_t byte) { return byte == 0; });
}

std::string Endpoint::text() const {
  char digits[INET6_ADDRSTRLEN] = "";
  if (isMappedIpv4()) {
    inet_ntop(AF_INET, address.data() + 12, digits, sizeof(digits));
    return std::string(digits) + ":" + str(port);
  }
  inet_ntop(AF_INET6, address.data(), digits, sizeof(digits));
  return "[" + std::string(digits) + "]:" + str(port);
}

std::vector<Endpoint> resolve(const std::string &name, uint16_t port,
                              std::string &problem) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  // An address in brackets, as it stands before a port.
  std::string bare = name;
  if (bare.size() > 2 && bare.front() == '[' && bare.back() == ']')
    bare = bare.substr(1, bare.size() - 2);
  std::vector<Endpoint> endpoints;
  int status = getaddrinfo(bare.c_str(), nullptr, &hints, &found);
  if (status != 0) {
    problem = gai_strerror(status);
    return endpoints;
  }
  for (addrinfo *entry = found; entry; entry = entry->ai_next)
    if (entry->ai_family == AF_INET || entry->ai_family == AF_INET6) {
      Endpoint endpoint = Endpoint::of(entry->ai_addr);
      endpoint.port = port;
      addUnique(endpoints, endpoint);
    }
  freeaddrinfo(found);
  if (endpoints.empty())
    problem = "the name has no address that other machines could use";
  return endpoints;
}

std::vector<Endpoint> machineEndpoints(uint16_t port) {
  std::vector<Endpoint> endpoints;
  for (bool loopback : {true, false})
    forEachAddress(port, [&](const std::string &, const Endpoint &endpoint) {
      if (endpoint.isLoopback() == loopback)
        addUnique(endpoints, endpoint);
    });
  return endpoints;
}

std::vector<Endpoint> listenEndpoints(const std::string &places,
                                      uint16_t port) {
  std::vector<Endpoint> endpoints;
  for (size_t at = 0; at <= places.size();) {
    size_t end = std::min(places.find(',', at), places.size());
    std::string place = places.substr(at, end - at);
    at = end + 1;
    if (place == "any") {
      Endpoint any;
      any.port = port;
      return {any};
    }
    size_t before = endpoints.size();
    forEachAddress(port,
                   [&](const std::string &name, const Endpoint &endpoint) {
                     if (name == place)
                       addUnique(endpoints, endpoint);
                   });
    if (endpoints.size() > before)
      continue;
    std::string problem = "no name";
    std::vector<Endpoint> named;
    if (!place.empty())
      named = resolve(place, port, problem);
    if (named.empty())
      invalid("--listen: expected addresses or interfaces of this machine, or "
              "'any', found '" +
              place + "': " + problem);
    for (const Endpoint &endpoint : named)
      addUnique(endpoints, endpoint);
  }
  return endpoints;
}

//===----------------------------------------------------------------------===//
// Sockets
//===----------------------------------------------------------------------===//

Socket listenAt(const Endpoint &at, int &problem) {
  sockaddr_storage address;
  uint32_t length = at.toAddress(address);
  auto attempt = [&]() -> Socket {
    Socket made(::socket(address.ss_family,
                         SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    int on = 1, off = 0;
    if (made)
      setsockopt(made.descriptor(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (made && at.isAny())
      setsockopt(made.descriptor(), IPPROTO_IPV6, IPV6_V6ONLY, &off,
                 sizeof(off));
    if (made &&
        ::bind(made.descriptor(), reinterpret_cast<sockaddr *>(&address),
               length) == 0 &&
        ::listen(made.descriptor(), backlog) == 0)
      return made;
    problem = errno;
    return Socket();
  };
  Socket made = attempt();
  if (!made && at.isAny() && problem != EADDRINUSE) {
    // A machine without IPv6.
    Endpoint narrow;
    narrow.port = at.port;
    std::copy(ipv4Prefix.begin(), ipv4Prefix.end(), narrow.address.begin());
    length = narrow.toAddress(address);
    made = attempt();
  }
  return made;
}

Socket connectTo(const Endpoint &to, Deadline deadline, std::string &problem) {
  sockaddr_storage address;
  uint32_t length = to.toAddress(address);
  Socket made(::socket(address.ss_family,
                       SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  int error = made ? 0 : errno;
  if (made &&
      ::connect(made.descriptor(), reinterpret_cast<const sockaddr *>(&address),
                length) != 0) {
    error = errno;
    if (error == EINPROGRESS) {
      pollfd waiting = {made.descriptor(), POLLOUT, 0};
      socklen_t bytes = sizeof(error);
      if (::poll(&waiting, 1, millisecondsLeft(deadline)) != 1)
        error = ETIMEDOUT;
      else if (getsockopt(made.descriptor(), SOL_SOCKET, SO_ERROR, &error,
                          &bytes) != 0)
        error = errno;
    }
  }
  // A connection to itself is refused: while nobody listens, the kernel may
  // give this side the very port that it asks for, which would keep the
  // listener away.
  if (error == 0 && localEndpoint(made) == to)
    error = ECONNREFUSED;
  if (error == 0)
    return made;
  problem = strerror(error);
  return Socket();
}

Endpoint localEndpoint(const Socket &socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (::getsockname(socket.descriptor(), reinterpret_cast<sockaddr *>(&address),
                    &length) != 0)
    fail("cannot tell the address of a socket: " +
         std::string(strerror(errno)));
  return Endpoint::of(reinterpret_cast<sockaddr *>(&address));
}

void allowConnections(size_t count, const std::string &when) {
  // Files of the run, and what listens; handshakes give way where none is left.
  constexpr rlim_t reserve = 64;
  /// Room for strangers, so that they do not crowd each other out at once.
  constexpr rlim_t room = 512;
  rlimit limit{};
  const rlim_t wanted = rlim_t(count) + reserve;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted)
    return;
  if (limit.rlim_max < wanted)
    invalid("this process needs " + str(wanted) + " descriptors " + when +
            ", its hard limit is " + str(limit.rlim_max) + " (ulimit -Hn)");
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, wanted + room);
  setrlimit(RLIMIT_NOFILE, &limit);
}

bool sendAll(const Socket &socket, std::string_view bytes, Deadline deadline) {
  return moveAll(socket.descriptor(), POLLOUT, bytes.size(), deadline,
                 [&](size_t done) {
                   return ::send(socket.descriptor(), bytes.data() + done,
                                 bytes.size() - done, MSG_NOSIGNAL);
                 });
}

bool receiveAll(const Socket &socket, void *to, size_t bytes,
                Deadline deadline) {
  return moveAll(
      socket.descriptor(), POLLIN, bytes, deadline, [&](size_t done) {
        return ::recv(socket.descriptor(), static_cast<char *>(to) + done,
                      bytes - done, 0);
      });
}

//===----------------------------------------------------------------------===//
// Messages
//===----------------------------------------------------------------------===//

Connection::Connection(Socket taken) : socket(std::move(taken)) {
  int on = 1;
  setsockopt(socket.descriptor(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

void Connection::send(uint32_t kind, std::string_view text) {
  uint32_t head[2] = {kind, uint32_t(text.size())};
  outgoing.append(reinterpret_cast<const char *>(head), sizeof(head));
  outgoing.append(text);
  flush();
}

bool Connection::flush() {
  while (socket && !outgoing.empty()) {
    ssize_t sent = ::send(socket.descriptor(), outgoing.data(), outgoing.size(),
                          MSG_NOSIGNAL);
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
    ssize_t got = ::recv(socket.descriptor(), buffer, sizeof(buffer), 0);
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

} // namespace grt
