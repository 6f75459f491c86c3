//===- rendezvous.cpp - Processes meet at an address ----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "comm/rendezvous.h"
#include "comm/deadline.h"
#include "core/error.h"
#include "core/init.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace grt {
namespace {

/// What a process says first.
struct Hello {
  char magic[8];
  uint64_t run;
  int32_t rank, size;
  Contact contact;
};
constexpr char magic[8] = {'G', 'R', 'T', 'M', 'E', 'E', 'T', '1'};

/// What process 0 answers, then `bytes`: the contacts of all, or a reason.
struct Answer {
  uint32_t refused;
  uint32_t bytes;
};
constexpr uint32_t longestReason = 4096;

/// A socket that is closed.
struct Socket {
  explicit Socket(int descriptor = -1) : descriptor(descriptor) {}
  Socket(Socket &&other) noexcept
      : descriptor(std::exchange(other.descriptor, -1)) {}
  Socket &operator=(Socket &&other) noexcept {
    std::swap(descriptor, other.descriptor);
    return *this;
  }
  ~Socket() {
    if (descriptor >= 0)
      ::close(descriptor);
  }
  int descriptor;
};

bool sendAll(const Socket &socket, const void *data, size_t bytes,
             Deadline deadline) {
  return moveAll(socket.descriptor, POLLOUT, bytes, deadline, [&](size_t done) {
    return ::send(socket.descriptor, static_cast<const char *>(data) + done,
                  bytes - done, MSG_NOSIGNAL);
  });
}

bool receiveAll(const Socket &socket, void *data, size_t bytes,
                Deadline deadline) {
  return moveAll(socket.descriptor, POLLIN, bytes, deadline, [&](size_t done) {
    return ::recv(socket.descriptor, static_cast<char *>(data) + done,
                  bytes - done, 0);
  });
}

Socket makeSocket() {
  Socket made(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (made.descriptor < 0)
    fail("cannot make a socket: " + std::string(strerror(errno)));
  return made;
}

std::string place(const Rendezvous &at) {
  return at.address + ":" + std::to_string(at.port);
}

std::string secondsText(double seconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g s", seconds);
  return text;
}

void answer(const Socket &socket, bool refused, const void *data,
            size_t bytes) {
  Answer head{refused, uint32_t(bytes)};
  Deadline soon = Clock::now() + std::chrono::seconds(5);
  if (sendAll(socket, &head, sizeof(head), soon))
    sendAll(socket, data, bytes, soon);
}

/// Process 0: waits for all others, and tells them.
std::vector<Contact> gather(const Rendezvous &at, const Hello &own,
                            Deadline deadline) {
  Socket listener = makeSocket();
  int on = 1;
  setsockopt(listener.descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = INADDR_ANY;
  address.sin_port = htons(at.port);
  if (::bind(listener.descriptor, reinterpret_cast<sockaddr *>(&address),
             sizeof(address)) != 0 ||
      ::listen(listener.descriptor, 1024) != 0)
    fail("process 0 cannot listen at port " + std::to_string(at.port) + ": " +
         strerror(errno) +
         (errno == EADDRINUSE
              ? "; another program has it: choose another MASTER_PORT, or "
                "GRT_RENDEZVOUS_PORT for all processes"
              : ""));

  std::vector<Contact> contacts(size_t(at.size), Contact{});
  std::vector<Socket> others(static_cast<size_t>(at.size));
  contacts[0] = own.contact;
  int missing = at.size - 1;
  auto failAll = [&](const std::string &why) {
    for (const Socket &other : others)
      if (other.descriptor >= 0)
        answer(other, true, why.data(), why.size());
    fail(why);
  };
  while (missing > 0) {
    pollfd descriptor = {listener.descriptor, POLLIN, 0};
    int left = millisecondsLeft(deadline);
    if (left == 0) {
      std::string ranks;
      for (int rank = 1; rank < at.size; ++rank)
        if (others[size_t(rank)].descriptor < 0)
          ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
      failAll(std::to_string(missing) + " of " + std::to_string(at.size) +
              " processes did not come to " + place(at) + " within " +
              secondsText(at.seconds) + ": missing RANK " + ranks);
    }
    ::poll(&descriptor, 1, left);
    Socket accepted(::accept4(listener.descriptor, nullptr, nullptr,
                              SOCK_NONBLOCK | SOCK_CLOEXEC));
    Hello hello{};
    // A stranger gets a second.
    if (accepted.descriptor < 0 ||
        !receiveAll(accepted, &hello, sizeof(hello),
                    Clock::now() + std::chrono::seconds(1)) ||
        std::memcmp(hello.magic, magic, sizeof(magic)) != 0)
      continue;
    if (hello.run != own.run) {
      std::string why =
          "another run meets at " + place(at) + ": choose another MASTER_PORT";
      answer(accepted, true, why.data(), why.size());
      continue;
    }
    std::string who = "the process with RANK=" + std::to_string(hello.rank);
    bool fits = hello.size == at.size && hello.rank > 0 &&
                hello.rank < at.size &&
                others[size_t(hello.rank)].descriptor < 0;
    std::string why = who + " has WORLD_SIZE=" + std::to_string(hello.size) +
                      ", process 0 has " + std::to_string(at.size);
    if (hello.size == at.size)
      why = "two processes have RANK=" + std::to_string(hello.rank);
    if (!fits) {
      answer(accepted, true, why.data(), why.size());
      failAll(why);
    }
    contacts[size_t(hello.rank)] = hello.contact;
    others[size_t(hello.rank)] = std::move(accepted);
    --missing;
  }
  for (int rank = 1; rank < at.size; ++rank)
    answer(others[size_t(rank)], false, contacts.data(),
           contacts.size() * sizeof(Contact));
  return contacts;
}

/// Everyone else: one attempt. What went wrong is in `problem`.
Socket tryConnect(const sockaddr_in &address, Deadline deadline,
                  std::string &problem) {
  Socket made = makeSocket();
  if (::connect(made.descriptor, reinterpret_cast<const sockaddr *>(&address),
                sizeof(address)) == 0)
    return made;
  int error = errno;
  if (error == EINPROGRESS) {
    pollfd descriptor = {made.descriptor, POLLOUT, 0};
    socklen_t length = sizeof(error);
    Deadline soon = std::min(deadline, Clock::now() + std::chrono::seconds(5));
    if (::poll(&descriptor, 1, millisecondsLeft(soon)) != 1)
      error = ETIMEDOUT;
    else if (getsockopt(made.descriptor, SOL_SOCKET, SO_ERROR, &error,
                        &length) != 0)
      error = errno;
  }
  if (error == 0)
    return made;
  problem = strerror(error);
  return Socket();
}

std::vector<Contact> comeTo(const Rendezvous &at, const Hello &own,
                            Deadline deadline) {
  std::string problem;
  while (true) {
    // The name may not be known yet where machines start together.
    addrinfo hints{}, *found = nullptr;
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_STREAM;
    int status = getaddrinfo(at.address.c_str(), nullptr, &hints, &found);
    Socket socket;
    if (status != 0) {
      problem = gai_strerror(status);
    } else {
      auto address = *reinterpret_cast<sockaddr_in *>(found->ai_addr);
      freeaddrinfo(found);
      address.sin_port = htons(at.port);
      socket = tryConnect(address, deadline, problem);
    }
    if (socket.descriptor >= 0) {
      // Process 0 answers when all have come.
      Deadline end = deadline + std::chrono::seconds(5);
      Answer head{};
      std::string text;
      bool heard = sendAll(socket, &own, sizeof(own), end) &&
                   receiveAll(socket, &head, sizeof(head), end);
      uint64_t expected = uint64_t(at.size) * sizeof(Contact);
      if (heard &&
          (head.refused ? head.bytes > longestReason : head.bytes != expected))
        heard = false;
      if (heard) {
        text.resize(head.bytes);
        heard = receiveAll(socket, text.data(), text.size(), end);
      }
      if (heard && head.refused)
        fail(text);
      if (heard) {
        std::vector<Contact> contacts(static_cast<size_t>(at.size));
        std::memcpy(contacts.data(), text.data(), text.size());
        return contacts;
      }
      problem = "what listens there is not process 0 of this run, or it ended";
    }
    if (millisecondsLeft(deadline) == 0)
      fail("process " + std::to_string(at.rank) +
           " did not meet process 0 at " + place(at) + " within " +
           secondsText(at.seconds) + ": " + problem);
    usleep(100000);
  }
}

const char *variable(const char *name) {
  const char *value = std::getenv(name);
  return value && *value ? value : nullptr;
}

/// A whole number in [least, most].
int number(const char *name, int least, int most) {
  const char *text = variable(name);
  char *end = nullptr;
  long value = text ? std::strtol(text, &end, 10) : 0;
  if (!text || *end || value < least || value > most)
    invalid(std::string(name) + ": expected a whole number from " +
            std::to_string(least) + " to " + std::to_string(most) + ", found " +
            (text ? "'" + std::string(text) + "'" : "nothing"));
  return int(value);
}

} // namespace

std::optional<Rendezvous> rendezvousOfEnvironment() {
  if (!variable("MASTER_ADDR") || !variable("WORLD_SIZE"))
    return std::nullopt;
  Rendezvous at;
  at.size = number("WORLD_SIZE", 1, 1 << 16);
  at.rank = number("RANK", 0, at.size - 1);
  at.address = variable("MASTER_ADDR");
  if (const char *run = variable("TORCHELASTIC_RUN_ID"))
    at.run = run;
  if (variable("GRT_RENDEZVOUS_PORT")) {
    at.port = uint16_t(number("GRT_RENDEZVOUS_PORT", 1, 65535));
  } else {
    // torchrun's agent may listen at the port itself.
    const char *agent = variable("TORCHELASTIC_USE_AGENT_STORE");
    bool taken = agent && std::string(agent) == "True";
    at.port = uint16_t(number("MASTER_PORT", 1, 65535 - taken) + taken);
  }
  if (variable("GRT_RENDEZVOUS_SECONDS"))
    at.seconds = number("GRT_RENDEZVOUS_SECONDS", 1, 86400);
  return at;
}

std::vector<Contact> meet(const Rendezvous &at, const Contact &own) {
  Hello hello{};
  std::memcpy(hello.magic, magic, sizeof(magic));
  hello.run = hashName(at.run.c_str());
  hello.rank = at.rank;
  hello.size = at.size;
  hello.contact = own;
  Deadline deadline =
      Clock::now() + std::chrono::milliseconds(int64_t(at.seconds * 1e3));
  if (at.size == 1)
    return {own};
  return at.rank == 0 ? gather(at, hello, deadline)
                      : comeTo(at, hello, deadline);
}

} // namespace grt
