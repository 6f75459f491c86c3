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
#include "comm/transport.h"

#include <mpi.h>

#include <cstdio>
#include <cstring>
#include <mutex>

namespace grt {
namespace {

static_assert(sizeof(MPI_Request) <= sizeof(Transport::Request));

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
    MPI_Request request = MPI_REQUEST_NULL;
    Inside inside(mutex);
    check(MPI_Isend(data, int(bytes), MPI_BYTE, process, tag, MPI_COMM_WORLD,
                    &request),
          "send to process " + std::to_string(process));
    return wrap(request);
  }

  Request receive(int process, int tag, void *data, size_t bytes) override {
    MPI_Request request = MPI_REQUEST_NULL;
    Inside inside(mutex);
    check(MPI_Irecv(data, int(bytes), MPI_BYTE, process, tag, MPI_COMM_WORLD,
                    &request),
          "receive from process " + std::to_string(process));
    return wrap(request);
  }

  bool test(std::span<Request> requests) override {
    bool all = true;
    Inside inside(mutex);
    for (Request &request : requests) {
      if (!request)
        continue;
      MPI_Request real = unwrap(request);
      int done = 0;
      check(MPI_Test(&real, &done, MPI_STATUS_IGNORE), "a message");
      if (done)
        request = nullptr;
      all &= done != 0;
    }
    return all;
  }

  void cancel(std::span<Request> requests) override {
    Inside inside(mutex);
    for (Request &request : requests) {
      if (!request)
        continue;
      MPI_Request real = unwrap(request);
      MPI_Cancel(&real);
      MPI_Request_free(&real);
      request = nullptr;
    }
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

  static void check(int code, const std::string &what) {
    if (code != MPI_SUCCESS)
      fail("MPI: " + what + ": " + errorText(code));
  }
  static Request wrap(MPI_Request request) {
    Request wrapped = nullptr;
    if (request != MPI_REQUEST_NULL)
      std::memcpy(&wrapped, &request, sizeof(request));
    return wrapped;
  }
  static MPI_Request unwrap(Request wrapped) {
    MPI_Request request;
    std::memcpy(&request, &wrapped, sizeof(request));
    return request;
  }

  std::mutex mutex;
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
