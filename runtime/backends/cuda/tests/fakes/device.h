//===- device.h - A device that watches how it is used --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What stands behind the CUDA runtime, driver and NCCL of tests. Copies and
// fills are carried out on memory of the host, kernels are not. Streams,
// events, captures and graphs keep who comes before whom, as the programming
// guide has it: an operation is done for sure once the host has waited for
// something behind it. Beside that every operation runs: it ends at once,
// unless it is a kernel of NCCL, which ends when all its ranks have come. Hosts
// wait as long as operations run.
//
// Calls of the libraries hold `mutex` while they are here.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_CUDA_TESTS_FAKES_DEVICE_H
#define GRT_BACKENDS_CUDA_TESTS_FAKES_DEVICE_H

#include <chrono>
#include <condition_variable>
#include <cuda_runtime_api.h>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdint.h>
#include <string>
#include <thread>
#include <vector>

namespace grt::fake {

struct Range {
  const void *address;
  uint64_t bytes;
};

/// An operation on its way through the device. It begins once all before it are
/// done, and is then done, unless `begin` holds it until Device::finish.
struct Work {
  size_t waitsFor = 0; ///< how many before it are not done
  bool done = false;
  std::function<void(const std::shared_ptr<Work> &)> begin;
  std::vector<std::shared_ptr<Work>> after;
};
using Works = std::vector<std::shared_ptr<Work>>;

/// Operations that run one after the other, whatever streams they are on.
struct Chain {
  Works last;
};

/// What is put on a stream.
struct Operation {
  std::string what;
  std::vector<Range> ranges;  ///< of memory that it reads or writes
  const void *user = nullptr; ///< the communicator it belongs to
  std::function<void()> body; ///< null: nothing is carried out
  /// Called under the lock each time it begins to run; null: it ends at once.
  std::function<void(const std::shared_ptr<Work> &)> begin = nullptr;
  std::shared_ptr<Chain> chain = nullptr;
};

enum class Memory { Device, Pinned };

/// By stream, how many of its operations come before.
using Clock = std::map<uint64_t, uint64_t>;

struct Node {
  Operation operation;
  std::vector<size_t> before;
  uint64_t records = 0; ///< the event that every start records; 0: none
};

/// Work that becomes a graph.
struct Capture {
  uint64_t origin;
  std::thread::id thread;
  cudaStreamCaptureMode mode;
  bool invalid = false, ended = false;
  std::vector<Node> nodes;
};

struct StreamState {
  std::thread::id thread; ///< that made it: the rank's
  uint64_t put = 0;       ///< operations so far
  Clock known;            ///< what its last operation comes behind
  std::shared_ptr<Capture> capture;
  std::vector<size_t> heads; ///< nodes that its next one comes behind
  struct Pending {
    uint64_t number;
    Operation operation;
  };
  std::deque<Pending> pending; ///< may still run
  Works last;                  ///< what its next operation runs behind
  int promised = 0; ///< launches that NCCL has taken and not put there yet
};

struct EventState {
  bool timing = true, recorded = false;
  Clock known;
  std::shared_ptr<Capture> capture; ///< of the last record, if there was one
  std::vector<size_t> nodes;
  Works works; ///< before the last record
  /// When those were done, if it reads the clock.
  std::shared_ptr<std::chrono::steady_clock::time_point> time;
};

/// What a test wants to go wrong with one call.
enum class Fault { None, Skip, Twice, Change, Fail };

class Device {
public:
  static Device &get();
  std::mutex mutex;
  std::condition_variable changed; ///< of communicators

  /// Notes what is wrong; `holds` is returned.
  bool expect(bool holds, const std::string &what);
  std::string takeComplaints();
  void planFault(const std::string &function, int64_t number, Fault fault);
  Fault faultOf(const std::string &function);
  int64_t callsOf(const std::string &function) const;
  /// Something that is no call, and is counted with them.
  void count(const std::string &what) { ++calls[what]; }
  /// Kinds of what is alive, with their numbers; empty if nothing is.
  std::string alive() const;
  /// Of a kind of `others`, or everything.
  void forget(const std::string &kind);

  /// Every thread must say which device it uses, or it gets another.
  void chooseDevice(int number);
  bool threadHasDevice(const char *what);
  /// False, and the capture is lost, where this thread may not make a call that
  /// a capture does not see.
  bool maySkipCapture(const char *what);

  /// This thread's rank, which is a process of its own, uses code that is
  /// loaded or connected the first time, which may wait until its device stands
  /// still. A complaint where the host does not know that all collectives are
  /// done which it has put there: they may wait for a rank that loads.
  void load(const std::string &what);

  uint64_t makeStream(int priority);
  cudaError_t destroyStream(uint64_t stream);
  cudaError_t put(uint64_t stream, Operation operation);
  /// Gives the lock away while the stream's work runs.
  cudaError_t synchronise(uint64_t stream, std::unique_lock<std::mutex> &lock);
  /// Whether the stream's work is done, without a wait.
  cudaError_t queryStream(uint64_t stream);
  /// NCCL will put work on the stream, from another thread: until it has,
  /// nothing else may be put there.
  void promise(uint64_t stream, int launches);
  cudaError_t isCapturing(uint64_t stream, cudaStreamCaptureStatus *status);

  uint64_t makeEvent(bool timing);
  cudaError_t destroyEvent(uint64_t event);
  cudaError_t record(uint64_t event, uint64_t stream);
  /// As a node of the graph that is captured.
  cudaError_t recordInGraph(uint64_t event, uint64_t stream);
  /// The host waits.
  cudaError_t synchroniseEvent(uint64_t event,
                               std::unique_lock<std::mutex> &lock);
  cudaError_t wait(uint64_t stream, uint64_t event);
  cudaError_t query(uint64_t event);
  /// Real time if `hasClock`, else a second.
  cudaError_t elapsed(uint64_t first, uint64_t second, float *milliseconds);
  bool hasClock = false;

  cudaError_t beginCapture(uint64_t stream, cudaStreamCaptureMode mode);
  cudaError_t endCapture(uint64_t stream, uint64_t *graph);
  cudaError_t destroyGraph(uint64_t graph);
  cudaError_t instantiate(uint64_t graph, uint64_t *executable);
  cudaError_t launch(uint64_t executable, uint64_t stream);
  cudaError_t destroyExecutable(uint64_t executable);
  /// Graphs, and captures under way, that hold work of a communicator; those
  /// that were destroyed while they ran count until they end.
  int64_t graphsOf(const void *user) const;

  /// What a host waits for something that nothing ends.
  std::chrono::milliseconds patience{20000};
  /// Ends an operation that `begin` holds; those behind it begin.
  void finish(const std::shared_ptr<Work> &work);
  /// Waits until all are done; false after long, which is complained about.
  bool await(const Works &works, std::unique_lock<std::mutex> &lock,
             const char *what);

  void addMemory(const void *address, uint64_t bytes, Memory kind);
  /// False, and a complaint, where it is none, or something may still use it.
  bool removeMemory(const void *address, Memory kind, const char *what);
  bool isMemory(const Range &range, bool pinnedToo) const;
  /// Memory that NCCL can map in other processes, by the address of each
  /// mapping.
  std::map<uintptr_t, uint64_t> registrable;
  /// False where NCCL would register the piece that the range begins in, and it
  /// ends behind that.
  bool isWhole(const Range &range) const;
  uint64_t bytesOnDevice() const;

  std::map<uint64_t, int> priorities; ///< of live streams
  /// Handles are numbers that are never given twice, so that one that has ended
  /// is not taken for another.
  uint64_t newHandle() { return (++handles) << 8; }
  /// Other live things, by kind and handle.
  std::map<std::string, std::map<uint64_t, bool>> others;

private:
  StreamState *streamOf(uint64_t stream, const std::string &what);
  EventState *eventOf(uint64_t event, const char *what);
  bool isDone(const Clock &known) const;
  void finish(const Clock &known);
  bool checkMemory(const Operation &operation);
  void put(uint64_t handle, StreamState &stream, Operation operation);
  void expectNothingPromised(const StreamState &stream, const char *what);
  /// Puts an operation behind others, and behind its chain.
  std::shared_ptr<Work> start(const Operation &operation, const Works &before);
  void beginAll(Works ready);

  uint64_t handles = 0;
  std::string complaints;
  std::map<std::string, int64_t> calls;
  std::string faultyFunction;
  int64_t faultyCall = 0;
  Fault fault = Fault::None;
  std::map<uint64_t, StreamState> streams;
  std::map<uint64_t, EventState> events;
  struct Executable {
    std::vector<Node> nodes;
    Works runs; ///< what is left of its starts
  };
  std::map<uint64_t, std::vector<Node>> graphs;
  std::map<uint64_t, Executable> executables;
  std::vector<Executable> destroyed; ///< while they ran
  Clock done;                        ///< that the host has waited for
  struct Allocation {
    uint64_t bytes;
    Memory kind;
  };
  std::map<uintptr_t, Allocation> memory;
};

/// Carries a call out as the planned fault has it: not at all, which returns
/// `success`, twice, changed, or not at all with `failure`. `body` is called
/// under the lock.
template <class Result, class Body>
Result called(const char *function, Result success, Result failure, Body body) {
  Device &device = Device::get();
  std::unique_lock<std::mutex> lock(device.mutex);
  Fault fault = device.faultOf(function);
  if (fault == Fault::Skip || fault == Fault::Fail)
    return fault == Fault::Skip ? success : failure;
  Result result = body(device, lock, fault == Fault::Change);
  if (fault == Fault::Twice)
    result = body(device, lock, false);
  return result;
}

template <class Handle> uint64_t numberOf(Handle handle) {
  return reinterpret_cast<uint64_t>(handle);
}
template <class Handle> Handle handleOf(uint64_t number) {
  return reinterpret_cast<Handle>(number);
}

} // namespace grt::fake

#endif // GRT_BACKENDS_CUDA_TESTS_FAKES_DEVICE_H
