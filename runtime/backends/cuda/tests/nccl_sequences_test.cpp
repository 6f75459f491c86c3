//===- nccl_sequences_test.cpp - How NCCL ends, waits and is late ---------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the backend relies on in NCCL, asked of a library by its own functions.
// In ctest this is the stand-in of fakes/, which is held to it; with
// --nccl=FILE and --cudart=FILE it is the real one on a machine with a card
// (2.30 or later, which puts several ranks on one GPU). Every test names the
// function of NCCL 2.30.7's source that it follows from. Ranks are threads of
// one process, as NCCL sees them.
//
//===----------------------------------------------------------------------===//

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <functional>
#include <future>
#include <nccl.h>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;

std::string ncclFile = FAKES "/libnccl.so.2";
std::string cudaFile = FAKES "/libcudart.so.13";
bool isReal = false;

/// Long enough to see that something waits, and to see that it does not.
constexpr auto aWhile = 250ms;
constexpr auto tooLong = 15s;

void *symbol(const std::string &file, const char *name, bool mayLack = false) {
  void *library = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
  void *found = library ? dlsym(library, name) : nullptr;
  if (!found && !mayLack) {
    std::fprintf(stderr, "'%s' has no %s\n", file.c_str(), name);
    std::exit(1);
  }
  return found;
}

#define NCCL(name)                                                             \
  (reinterpret_cast<decltype(&nccl##name)>(symbol(ncclFile, "nccl" #name)))
#define CUDA(name)                                                             \
  (reinterpret_cast<decltype(&cuda##name)>(symbol(cudaFile, "cuda" #name)))

/// Two that C++ has in several forms.
cudaError_t allocate(void **memory, size_t bytes) {
  return reinterpret_cast<cudaError_t (*)(void **, size_t)>(
      symbol(cudaFile, "cudaMalloc"))(memory, bytes);
}
cudaError_t instantiate(cudaGraphExec_t *executable, cudaGraph_t graph) {
  using Function =
      cudaError_t(cudaGraphExec_t *, cudaGraph_t, unsigned long long);
  return reinterpret_cast<Function *>(symbol(cudaFile, "cudaGraphInstantiate"))(
      executable, graph, cudaGraphInstantiateFlagUseNodePriority);
}

/// Runs `body` on a thread that has the device; the thread may be left behind.
std::future<void> onThread(std::function<void()> body) {
  std::promise<void> done;
  std::future<void> result = done.get_future();
  std::thread([body = std::move(body), done = std::move(done)]() mutable {
    CUDA(SetDevice)(0);
    body();
    done.set_value();
  }).detach();
  return result;
}
bool waits(const std::future<void> &call) {
  return call.wait_for(aWhile) != std::future_status::ready;
}
bool ends(const std::future<void> &call) {
  return call.wait_for(tooLong) == std::future_status::ready;
}

ncclResult_t stateOf(ncclComm_t communicator) {
  ncclResult_t state = ncclInternalError;
  NCCL(CommGetAsyncError)(communicator, &state);
  return state;
}
ncclResult_t settled(ncclComm_t communicator) {
  const auto end = std::chrono::steady_clock::now() + tooLong;
  ncclResult_t state;
  while ((state = stateOf(communicator)) == ncclInProgress &&
         std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(1ms);
  return state;
}

ncclConfig_t configOf(bool blocking, int splitShare = 0) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = blocking;
  config.splitShare = splitShare;
  config.minCTAs = config.maxCTAs = 1; // so that several fit on one card
  return config;
}

/// A communicator of two ranks on one device.
struct Pair {
  ncclComm_t at[2] = {};
};

class Sequences : public testing::Test {
protected:
  static constexpr size_t count = 16;

  Sequences() {
    if (!isReal)
      reinterpret_cast<void (*)(int32_t)>(
          symbol(ncclFile, "grt_fake_nccl_one_process"))(1);
    CUDA(SetDevice)(0);
    for (cudaStream_t *stream : {&first, &second, &third})
      CUDA(StreamCreateWithFlags)(stream, cudaStreamNonBlocking);
    for (int rank : {0, 1})
      allocate(&memory[rank], count * sizeof(float));
  }
  ~Sequences() override {
    for (cudaStream_t stream : {first, second, third})
      EXPECT_EQ(CUDA(StreamSynchronize)(stream), cudaSuccess);
    for (cudaStream_t stream : {first, second, third})
      CUDA(StreamDestroy)(stream);
    for (void *each : memory)
      CUDA(Free)(each);
    if (!isReal)
      EXPECT_EQ(complaints(), "");
  }
  /// But for those of connections that are made beside what runs: on purpose
  /// here, where communicators are used for the first time.
  static std::string complaints() {
    std::istringstream all(reinterpret_cast<const char *(*)()>(
        symbol(cudaFile, "grt_fake_cuda_complaints"))());
    std::string kept;
    for (std::string line; std::getline(all, line);)
      if (line.find("is loaded while a collective may run") ==
          std::string::npos)
        kept += line + "\n";
    return kept;
  }

  void eachRank(const std::function<void(int)> &body) {
    std::future<void> one = onThread([&] { body(1); });
    body(0);
    ASSERT_TRUE(ends(one));
  }
  ncclResult_t allReduce(ncclComm_t communicator, int rank,
                         cudaStream_t stream) {
    return NCCL(AllReduce)(memory[rank], memory[rank], count, ncclFloat32,
                           ncclSum, communicator, stream);
  }
  /// A first collective connects, for which both ranks have to call.
  void warm(const Pair &pair) {
    eachRank([&](int rank) {
      cudaStream_t stream = rank ? second : first;
      const ncclResult_t result = allReduce(pair.at[rank], rank, stream);
      EXPECT_TRUE(result == ncclSuccess || result == ncclInProgress);
      EXPECT_EQ(settled(pair.at[rank]), ncclSuccess);
      EXPECT_EQ(CUDA(StreamSynchronize)(stream), cudaSuccess);
    });
  }
  Pair join(bool blocking, int splitShare = 0) {
    Pair pair;
    ncclUniqueId identity;
    EXPECT_EQ(NCCL(GetUniqueId)(&identity), ncclSuccess);
    eachRank([&](int rank) {
      ncclConfig_t config = configOf(blocking, splitShare);
      const ncclResult_t result =
          NCCL(CommInitRankConfig)(&pair.at[rank], 2, identity, rank, &config);
      EXPECT_TRUE(result == ncclSuccess || result == ncclInProgress);
      EXPECT_EQ(settled(pair.at[rank]), ncclSuccess);
    });
    warm(pair);
    return pair;
  }
  Pair split(const Pair &parent, int splitShare) {
    Pair pair;
    eachRank([&](int rank) {
      ncclConfig_t config = configOf(true, splitShare);
      EXPECT_EQ(
          NCCL(CommSplit)(parent.at[rank], 0, rank, &pair.at[rank], &config),
          ncclSuccess);
    });
    warm(pair);
    return pair;
  }
  void abortAll(const std::vector<Pair> &pairs) {
    std::future<void> aborted = onThread([&] {
      NCCL(GroupStart)();
      for (const Pair &pair : pairs)
        for (ncclComm_t each : pair.at)
          NCCL(CommAbort)(each);
      NCCL(GroupEnd)();
    });
    ASSERT_TRUE(ends(aborted));
  }
  cudaGraphExec_t captured(const std::function<void()> &body,
                           cudaStream_t stream) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    CUDA(StreamBeginCapture)(stream, cudaStreamCaptureModeThreadLocal);
    body();
    EXPECT_EQ(CUDA(StreamEndCapture)(stream, &graph), cudaSuccess);
    EXPECT_EQ(instantiate(&executable, graph), cudaSuccess);
    CUDA(GraphDestroy)(graph);
    return executable;
  }

  cudaStream_t first = nullptr, second = nullptr, third = nullptr;
  void *memory[2] = {};
};

/// init.cc: commDestroySync waits for the communicator's deviceStream, which
/// ncclLaunchFinish (enqueue.cc) put behind its last kernel; that one stands
/// behind a kernel of another communicator, whose flag nobody has set.
TEST_F(Sequences, AnAbortWaitsForItsLastKernel) {
  const Pair a = join(true), b = join(true);
  allReduce(b.at[0], 0, first); // the other rank does not come
  allReduce(a.at[0], 0, first);
  allReduce(a.at[1], 1, second);
  NCCL(CommAbort)(a.at[1]);
  std::future<void> aborted = onThread([&] { NCCL(CommAbort)(a.at[0]); });
  EXPECT_TRUE(waits(aborted));
  abortAll({b});
  EXPECT_TRUE(ends(aborted));
}

/// init.cc: ncclCommAbort sets the flags at once (setCommAbortFlags) and gives
/// commReclaim to ncclAsyncLaunch; group.cc: a group's jobs run when it ends.
TEST_F(Sequences, AbortsInOneGroupDoNotWaitForEachOther) {
  const Pair a = join(true), b = join(true);
  allReduce(b.at[0], 0, first);
  allReduce(a.at[0], 0, first);
  allReduce(a.at[1], 1, second);
  abortAll({a, b});
}

/// init.cc: commReclaim counts the ranks of the process (finalizeRankCnt); only
/// the last of them waits, for all.
TEST_F(Sequences, TheLastRankOfAProcessWaitsForAll) {
  const Pair a = join(true), b = join(true);
  allReduce(b.at[0], 0, first);
  allReduce(a.at[0], 0, first);
  std::future<void> one = onThread([&] { NCCL(CommAbort)(a.at[0]); });
  EXPECT_TRUE(ends(one));
  std::future<void> last = onThread([&] { NCCL(CommAbort)(a.at[1]); });
  EXPECT_TRUE(waits(last));
  abortAll({b});
  EXPECT_TRUE(ends(last));
}

/// init.cc: commDestroySync polls until localPersistentRefs is 0, which
/// ncclLaunchPrepare counts up for what is captured and reclaimPlan
/// (enqueue.cc) down once the graph has gone.
TEST_F(Sequences, AnAbortWaitsForGraphs) {
  const Pair a = join(true);
  cudaGraphExec_t graph =
      captured([&] { allReduce(a.at[0], 0, first); }, first);
  NCCL(CommAbort)(a.at[1]);
  std::future<void> aborted = onThread([&] { NCCL(CommAbort)(a.at[0]); });
  EXPECT_TRUE(waits(aborted));
  CUDA(GraphExecDestroy)(graph);
  EXPECT_TRUE(ends(aborted));
}

/// CUDA's guide: a graph that is destroyed while it runs is freed when it ends;
/// strongstream.cc: ncclCudaGraphAddDestructor hears of it then.
TEST_F(Sequences, TheEndOfAGraphDoesNotWait) {
  const Pair a = join(true), b = join(true);
  cudaGraphExec_t graph = captured(
      [&] {
        allReduce(b.at[0], 0, first);
        allReduce(a.at[0], 0, first);
      },
      first);
  CUDA(GraphLaunch)(graph, first);
  std::future<void> destroyed =
      onThread([&] { CUDA(GraphExecDestroy)(graph); });
  EXPECT_TRUE(ends(destroyed));
  EXPECT_EQ(CUDA(StreamQuery)(first), cudaErrorNotReady);
  NCCL(CommAbort)(a.at[1]);
  std::future<void> aborted = onThread([&] { NCCL(CommAbort)(a.at[0]); });
  EXPECT_TRUE(waits(aborted)); // for the graph that runs
  abortAll({b});
  EXPECT_TRUE(ends(aborted));
}

/// enqueue.cc: ncclLaunchPrepare puts every kernel of a communicator behind its
/// deviceStream, and with it behind the one before, whatever the streams.
TEST_F(Sequences, KernelsOfACommunicatorHaveOneOrder) {
  const Pair a = join(true), b = join(true);
  allReduce(b.at[0], 0, first);
  for (cudaStream_t stream : {first, third})
    allReduce(a.at[0], 0, stream);
  for (int times = 0; times < 2; ++times)
    allReduce(a.at[1], 1, second);
  std::this_thread::sleep_for(aWhile);
  EXPECT_EQ(CUDA(StreamQuery)(third), cudaErrorNotReady);
  abortAll({b});
  EXPECT_EQ(CUDA(StreamSynchronize)(third), cudaSuccess);
  abortAll({a});
}

/// group.cc: ncclGroupEndInternal gives a group of communicators that do not
/// block to a thread (groupLaunchNonBlocking) and says ncclInProgress;
/// groupLaunch sets their state once everything is launched.
TEST_F(Sequences, ACommunicatorThatDoesNotBlockIsLate) {
  const Pair a = join(false);
  for (int rank : {0, 1}) {
    const ncclResult_t said =
        allReduce(a.at[rank], rank, rank ? second : first);
    if (isReal)
      EXPECT_TRUE(said == ncclInProgress || said == ncclSuccess);
    else
      EXPECT_EQ(said, ncclInProgress);
    EXPECT_EQ(settled(a.at[rank]), ncclSuccess);
  }
  EXPECT_EQ(CUDA(StreamSynchronize)(first), cudaSuccess);
  abortAll({a});
}

/// init.cc: ncclCommEnsureReady refuses a communicator in progress, unless it
/// was aborted, which joins the thread (ncclGroupJobAbort).
TEST_F(Sequences, AnInitThatNobodyJoinsIsAborted) {
  ncclUniqueId identity;
  ASSERT_EQ(NCCL(GetUniqueId)(&identity), ncclSuccess);
  ncclConfig_t config = configOf(false);
  ncclComm_t one = nullptr;
  EXPECT_EQ(NCCL(CommInitRankConfig)(&one, 2, identity, 0, &config),
            ncclInProgress);
  ASSERT_TRUE(one); // at once, for the abort
  std::this_thread::sleep_for(aWhile);
  EXPECT_EQ(stateOf(one), ncclInProgress);
  if (isReal) // the stand-in complains of it, too
    EXPECT_EQ(allReduce(one, 0, first), ncclInvalidArgument);
  std::future<void> aborted = onThread([&] { NCCL(CommAbort)(one); });
  EXPECT_TRUE(ends(aborted));
}

/// init.cc: ncclCommRevoke sets the flags and returns; ncclEnqueueCheck
/// (enqueue.cc) refuses what comes after it.
TEST_F(Sequences, ARevokedCommunicatorEndsItsKernels) {
  auto revoke = reinterpret_cast<ncclResult_t (*)(ncclComm_t, int)>(
      symbol(ncclFile, "ncclCommRevoke", /*mayLack=*/true));
  if (!revoke)
    GTEST_SKIP() << "older than ncclCommRevoke";
  const Pair a = join(false);
  allReduce(a.at[0], 0, first);
  ASSERT_EQ(settled(a.at[0]), ncclSuccess);
  std::future<void> revoked = onThread([&] { revoke(a.at[0], 0); });
  EXPECT_TRUE(ends(revoked));
  EXPECT_EQ(settled(a.at[0]), ncclSuccess);
  EXPECT_EQ(CUDA(StreamSynchronize)(first), cudaSuccess);
  if (isReal)
    EXPECT_EQ(allReduce(a.at[0], 0, first), ncclInvalidUsage);
  abortAll({a});
}

/// init.cc: ncclCommInitChildComm with splitShare gives the child the parent's
/// flags and shared resources, among them the deviceStream: no overlap.
TEST_F(Sequences, SplitsThatShareDoNotOverlap) {
  for (int share : {1, 0}) {
    const Pair parent = join(true, share);
    const Pair child = split(parent, share);
    allReduce(parent.at[0], 0, first); // the other rank does not come
    allReduce(child.at[0], 0, third);
    allReduce(child.at[1], 1, second);
    std::this_thread::sleep_for(aWhile);
    EXPECT_EQ(CUDA(StreamQuery)(third),
              share ? cudaErrorNotReady : cudaSuccess);
    abortAll({child, parent});
  }
}

} // namespace

int main(int argc, char **argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const size_t at = argument.find('=');
    std::string *wish = argument.rfind("--nccl=", 0) == 0     ? &ncclFile
                        : argument.rfind("--cudart=", 0) == 0 ? &cudaFile
                                                              : nullptr;
    if (!wish) {
      std::fprintf(stderr, "unknown argument '%s'\n", argv[i]);
      return 2;
    }
    *wish = argument.substr(at + 1);
    isReal |= wish == &ncclFile;
  }
  // Several ranks on one card, of NCCL 2.30 and later.
  setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0);
  return RUN_ALL_TESTS();
}
