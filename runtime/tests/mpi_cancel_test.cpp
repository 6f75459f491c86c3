//===- mpi_cancel_test.cpp - Messages of MPI that are given up ------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The plug-in's own code on an MPI whose messages arrive when the test says so.
//
//===----------------------------------------------------------------------===//

#include "base/kept_memory.h"
#include "comm/transport.h"
#include "core/arena.h"

#include <gtest/gtest.h>
#include <mpi.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

/// A request that the library has.
struct StandInRequest {
  bool sends = false, cancelled = false;
  /// Tests until it completes; -1: never.
  int testsLeft = -1;
  const char *from = nullptr;
  char *to = nullptr;
  size_t bytes = 0;
};

namespace {

std::vector<StandInRequest *> active;
std::string arrived; ///< of sends that are complete
std::string cancelledSends;

/// The last request that is not complete.
StandInRequest &last() { return *active.back(); }

} // namespace

int MPI_Init_thread(int *, char ***, int wanted, int *provided) {
  *provided = wanted;
  return MPI_SUCCESS;
}
int MPI_Finalize() { return MPI_SUCCESS; }
int MPI_Comm_rank(MPI_Comm, int *rank) { return *rank = 0; }
int MPI_Comm_size(MPI_Comm, int *size) {
  *size = 2;
  return MPI_SUCCESS;
}
int MPI_Comm_set_errhandler(MPI_Comm, MPI_Errhandler) { return MPI_SUCCESS; }
int MPI_Comm_get_attr(MPI_Comm, int, void *, int *found) { return *found = 0; }
int MPI_Error_string(int, char *, int *length) { return *length = 0; }
int MPI_Get_library_version(char *, int *length) { return *length = 0; }
int MPI_Isend(const void *data, int count, MPI_Datatype, int, int, MPI_Comm,
              MPI_Request *request) {
  *request = new StandInRequest{
      true, false, -1, static_cast<const char *>(data), nullptr, size_t(count)};
  active.push_back(*request);
  return MPI_SUCCESS;
}
int MPI_Irecv(void *data, int count, MPI_Datatype, int, int, MPI_Comm,
              MPI_Request *request) {
  *request = new StandInRequest{
      false, false, -1, nullptr, static_cast<char *>(data), size_t(count)};
  active.push_back(*request);
  return MPI_SUCCESS;
}
int MPI_Test(MPI_Request *request, int *done, MPI_Status *) {
  *done = 1;
  StandInRequest *one = *request;
  if (!one)
    return MPI_SUCCESS;
  const bool isCancelled = one->cancelled && one->testsLeft < 0;
  if (!isCancelled && (one->testsLeft < 0 || one->testsLeft-- > 0)) {
    *done = 0;
    return MPI_SUCCESS;
  }
  if (one->sends)
    arrived.assign(one->from, one->bytes);
  else if (!isCancelled)
    std::memset(one->to, 'm', one->bytes);
  std::erase(active, one);
  delete one;
  *request = nullptr;
  return MPI_SUCCESS;
}
/// Takes back a receive that no message has met yet.
int MPI_Cancel(MPI_Request *request) {
  if ((*request)->sends)
    cancelledSends += "a send of " + std::to_string((*request)->bytes);
  (*request)->cancelled = true;
  return MPI_SUCCESS;
}
int MPI_Bcast(void *, int, MPI_Datatype, int, MPI_Comm) { return MPI_SUCCESS; }
int MPI_Allgather(const void *, int, MPI_Datatype, void *, int, MPI_Datatype,
                  MPI_Comm) {
  return MPI_SUCCESS;
}

extern "C" grt::Transport *grt_transport_open(int version, char *message,
                                              size_t capacity);

namespace {

using namespace grt;

class MpiCancel : public testing::Test {
protected:
  MpiCancel() {
    char message[128] = "";
    transport = grt_transport_open(transportVersion, message, sizeof(message));
    before = keptMemoryBytes();
  }
  ~MpiCancel() override {
    EXPECT_EQ(cancelledSends, "");
    for (StandInRequest *one : active)
      delete one;
    active.clear();
  }
  void cancel(Transport::Request request) {
    transport->cancel({&request, 1});
    EXPECT_EQ(request, nullptr);
  }
  uint64_t kept() const { return keptMemoryBytes() - before; }

  Transport *transport = nullptr;
  uint64_t before = 0;
};

TEST_F(MpiCancel, ReceivesAreCompleteWhenTheCallReturns) {
  std::vector<char> memory(100, 'o');
  cancel(transport->receive(1, 7, memory.data(), memory.size()));
  EXPECT_TRUE(active.empty());
  EXPECT_EQ(memory[0], 'o');
  EXPECT_EQ(kept(), 0u);
}

TEST_F(MpiCancel, AMessageOnItsWayArrivesBeforeTheCallReturns) {
  std::vector<char> memory(100, 'o');
  Transport::Request request =
      transport->receive(1, 7, memory.data(), memory.size());
  last().testsLeft = 20;
  cancel(request);
  EXPECT_TRUE(active.empty());
  EXPECT_EQ(memory[99], 'm');
  EXPECT_EQ(kept(), 0u);
}

TEST_F(MpiCancel, AReceiveWhoseSenderHasEndedKeepsItsMemory) {
  std::vector<char> memory(100, 'o');
  Transport::Request request =
      transport->receive(1, 7, memory.data(), memory.size());
  last().testsLeft = 1000000000;
  const auto begin = std::chrono::steady_clock::now();
  cancel(request);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  EXPECT_EQ(active.size(), 1u);
  EXPECT_EQ(kept(), 100u);
  EXPECT_TRUE(isKept(memory.data() + 99, 1));
  EXPECT_FALSE(isKept(memory.data() + 100, 1));
}

TEST_F(MpiCancel, LargeSendsKeepTheirMemoryUntilTheEnd) {
  std::vector<char> done(10000, 'd'), hangs(20000, 'h');
  Transport::Request first = transport->send(1, 7, done.data(), done.size());
  last().testsLeft = 0;
  Transport::Request second = transport->send(1, 7, hangs.data(), hangs.size());
  cancel(first);
  EXPECT_EQ(kept(), 0u);
  cancel(second);
  EXPECT_EQ(kept(), 20000u);
  EXPECT_FALSE(isKept(done.data(), done.size()));
  EXPECT_TRUE(isKept(hangs.data() + 19999, 1));
}

TEST_F(MpiCancel, SmallSendsAreTheTransports) {
  std::string text = "first";
  Transport::Request request = transport->send(1, 7, text.data(), text.size());
  StandInRequest &sent = last();
  text = "other";
  sent.testsLeft = 0;
  EXPECT_TRUE(transport->test({&request, 1}));
  EXPECT_EQ(arrived, "first");
  // A send that never arrives does not give its memory to the next.
  request = transport->send(1, 7, text.data(), text.size());
  StandInRequest &hangs = last();
  cancel(request);
  EXPECT_FALSE(isKept(text.data(), text.size()));
  text = "third";
  request = transport->send(1, 7, text.data(), text.size());
  EXPECT_EQ(std::string(hangs.from, hangs.bytes), "other");
  last().testsLeft = 0;
  EXPECT_TRUE(transport->test({&request, 1}));
  EXPECT_EQ(arrived, "third");
}

int released = 0;

TEST_F(MpiCancel, ArenasThatAreKeptAreNotGivenBack) {
  grt_backend backend{};
  backend.name = "test";
  backend.allocate = [](size_t bytes) { return std::malloc(bytes); };
  backend.release = [](void *memory, size_t) {
    ++released;
    std::free(memory);
  };
  grt_arena shape{};
  shape.bytes = 1 << 16;
  char *memory = nullptr;
  {
    Arena arena(backend, shape, 0);
    memory = arena.base();
    cancel(transport->send(1, 7, memory + 4096, 8192));
  }
  EXPECT_EQ(released, 0);
  EXPECT_EQ(kept(), 8192u);
  {
    Arena arena(backend, shape, 0);
  }
  EXPECT_EQ(released, 1);
}

} // namespace
