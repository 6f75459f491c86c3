//===- mpi.cpp - Messages through MPI -------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The plug-in behind transport.h. MPI is entered by one thread at a time
// (MPI_THREAD_SERIALIZED). What it takes from the heap belongs to the process,
// not to the rank whose thread happens to be inside.
//
//===----------------------------------------------------------------------===//

#include "base/allocation.h"
#include "base/error.h"
#include "base/kept_memory.h"
#include "comm/transport.h"

#include <mpi.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace grt {
namespace {

std::string errorText(int code) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  return std::string(text, size_t(length));
}

class MpiTransport : public Transport {
public:
  MpiTransport() {
    MPI_Comm_rank(MPI_COMM_WORLD, &self);
    MPI_Comm_size(MPI_COMM_WORLD, &count);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    // 2^31 - 1 with Open MPI over shared memory and TCP, 2^23 - 1 where it or
    // another MPI packs tags into the headers of a network's library.
    int *largest = nullptr, found = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &largest, &found);
    if (found)
      upperBound = *largest;
  }

  int process() const override { return self; }
  int processes() const override { return count; }
  int largestTag() const override { return upperBound; }

  Request send(int process, int tag, const void *data, size_t bytes) override {
    Inside inside(mutex);
    Message &message = take(/*sends=*/true, data, bytes);
    if (bytes <= copiedBytes && bytes > 0) {
      message.copy.resize(copiedBytes);
      std::memcpy(message.copy.data(), data, bytes);
      message.memory = message.copy.data();
    }
    start(message,
          MPI_Isend(message.memory, int(bytes), MPI_BYTE, process, tag,
                    MPI_COMM_WORLD, &message.request),
          "send to", process);
    return &message;
  }

  Request receive(int process, int tag, void *data, size_t bytes) override {
    Inside inside(mutex);
    Message &message = take(/*sends=*/false, data, bytes);
    start(message,
          MPI_Irecv(data, int(bytes), MPI_BYTE, process, tag, MPI_COMM_WORLD,
                    &message.request),
          "receive from", process);
    return &message;
  }

  bool test(std::span<Request> requests) override {
    bool complete = true;
    Inside inside(mutex);
    for (Request &request : requests) {
      if (!request)
        continue;
      auto &message = *static_cast<Message *>(request);
      int done = 0;
      check(MPI_Test(&message.request, &done, MPI_STATUS_IGNORE), "a message");
      if (done) {
        request = nullptr;
        unused.push_back(&message);
      }
      complete &= done != 0;
    }
    return complete;
  }

  void cancel(std::span<Request> requests) override {
    Inside inside(mutex);
    for (Request &request : requests)
      if (request)
        giveUp(*static_cast<Message *>(std::exchange(request, nullptr)));
  }

  void broadcast(void *data, size_t bytes, int root) override {
    Inside inside(mutex);
    check(MPI_Bcast(data, int(bytes), MPI_BYTE, root, MPI_COMM_WORLD),
          "broadcast");
  }

  void allGather(const void *in, void *out, size_t bytes) override {
    Inside inside(mutex);
    check(MPI_Allgather(in, int(bytes), MPI_BYTE, out, int(bytes), MPI_BYTE,
                        MPI_COMM_WORLD),
          "gather");
  }

  void finalize() override {
    Inside inside(mutex);
    MPI_Finalize();
  }

  std::string name() const override {
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_Get_library_version(text, &length);
    std::string all(text, size_t(length));
    return all.substr(0, all.find(','));
  }

private:
  /// Holds the library's lock and keeps what it allocates out of the count of
  /// the calling rank.
  struct Inside {
    explicit Inside(std::mutex &mutex) : lock(mutex) {}
    std::lock_guard<std::mutex> lock;
    UncountedAllocations uncounted;
  };

  /// A message on its way. One that was given up and is not complete is never
  /// used again.
  struct Message {
    MPI_Request request = MPI_REQUEST_NULL;
    bool sends = false;
    const void *memory = nullptr;
    size_t bytes = 0;
    std::vector<char> copy; ///< of a small one
  };
  /// Sends of up to this many bytes are copied, so that their memory is the
  /// caller's again at once.
  static constexpr size_t copiedBytes = 4096;
  /// Time that a receive that was given up may take: a message that is on its
  /// way arrives in it, unless its sender has ended.
  static constexpr auto patience = std::chrono::seconds(1);

  Message &take(bool sends, const void *memory, size_t bytes) {
    if (unused.empty())
      unused.push_back(all.emplace_back(std::make_unique<Message>()).get());
    Message &message = *unused.back();
    unused.pop_back();
    message.sends = sends;
    message.memory = memory;
    message.bytes = bytes;
    return message;
  }
  void start(Message &message, int code, const char *what, int process) {
    if (code != MPI_SUCCESS)
      unused.push_back(&message);
    check(code, what + (" process " + std::to_string(process)));
  }
  /// Receives are cancelled and completed. A send cannot be cancelled, and a
  /// receive may wait for a sender that has ended: their memory stays. Throws
  /// nothing: what led here is what has to be told.
  void giveUp(Message &message) {
    using Clock = std::chrono::steady_clock;
    if (!message.sends)
      MPI_Cancel(&message.request);
    auto isComplete = [&] {
      int done = 0;
      return MPI_Test(&message.request, &done, MPI_STATUS_IGNORE) ==
                 MPI_SUCCESS &&
             done;
    };
    bool done = isComplete();
    const auto end = Clock::now() + patience;
    while (!done && !message.sends && Clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      done = isComplete();
    }
    if (done)
      unused.push_back(&message);
    else
      keepMemory(message.memory, message.bytes);
  }

  static void check(int code, const std::string &what) {
    if (code != MPI_SUCCESS)
      fail("MPI: " + what + ": " + errorText(code));
  }

  std::mutex mutex; ///< of the library and of what follows
  std::vector<std::unique_ptr<Message>> all;
  std::vector<Message *> unused;
  int self = 0, count = 1;
  int upperBound = 32767; ///< what the standard guarantees
};

} // namespace
} // namespace grt

extern "C" __attribute__((visibility("default"))) grt::Transport *
grt_transport_open(int version, char *message, size_t capacity) {
  if (version != grt::transportVersion) {
    std::snprintf(message, capacity,
                  "the plug-in has version %d, this runtime expects %d",
                  grt::transportVersion, version);
    return nullptr;
  }
  int provided = 0;
  int code =
      MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
  if (code != MPI_SUCCESS || provided < MPI_THREAD_SERIALIZED) {
    std::snprintf(message, capacity,
                  "MPI_Init_thread: expected MPI_THREAD_SERIALIZED, found "
                  "error %d and level %d",
                  code, provided);
    return nullptr;
  }
  static grt::MpiTransport transport;
  return &transport;
}
