//===- rank.h - What the CUDA backend keeps for one rank ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_CUDA_RANK_H
#define GRT_BACKENDS_CUDA_RANK_H

#include "fused_attention.h"
#include "kernels.h"
#include "products.h"

#include <chrono>
#include <memory>
#include <mutex>
#include <vector>

namespace grt::cuda {

/// The part of its world that a rank keeps: its place among threads, or
/// communicators. No graph that captured one of its operations may be left when
/// it ends: NCCL waits for those graphs, for ever.
class Membership {
public:
  virtual ~Membership() = default;
  /// Begins to end what is under way, from any thread, and returns at once. It
  /// may go on until the rank's graphs have gone.
  virtual void abort() = 0;
  /// Whether an abort has begun, of this rank's or, where ranks of one process
  /// are in it, another's.
  virtual bool isAborted() const { return false; }
  /// Waits so long for an abort to be through; false where it goes on.
  virtual bool awaitAbort(std::chrono::milliseconds) { return true; }
};

/// Events of a rank, numbered by the executor.
constexpr uint32_t rankEvents = 512;

/// The state behind grt_call::rank_state. Made and used on the rank's thread.
class Rank {
public:
  Rank();
  ~Rank();
  Rank(const Rank &) = delete;
  Rank &operator=(const Rank &) = delete;

  Stream stream(uint32_t number) const;
  Event event(uint32_t number) const;

  /// Returns the stream and memory of kernels. Takes a workspace if there is
  /// none yet.
  Queue queue(const char *opName);
  void useWorkspace(void *memory, uint64_t bytes);

  /// Waits, and throws what kernels found wrong in their data meanwhile.
  void synchronise(uint32_t number);
  /// The same for an event that was recorded for the host.
  void await(uint32_t event);

  void beginGraph();
  void endGraph(uint32_t number);
  void launchGraph(uint32_t number);
  /// Aborts the membership, then takes the graphs away, from any thread, and
  /// without a wait. Those that run are freed by the device when they end,
  /// which the membership's abort makes them do. While a graph is being made or
  /// started it is the rank's own thread that takes them away, as soon as it is
  /// through. No graph begins from here on.
  void abort();
  void setMembership(std::unique_ptr<Membership> joined);

  void stamp(uint32_t stream, uint32_t number);
  double stamped(uint32_t number) const;

  /// Looks at the device's memory; returns the most that was seen.
  uint64_t peakBytes();

  std::unique_ptr<Products> products;
  std::unique_ptr<FusedAttention> fusedAttention;
  /// GRT_CUDA_ATTENTION is `plain`: no tensor cores, for comparison.
  bool plainAttention = false;
  std::unique_ptr<Membership> membership;
  /// The streams that use_streams named last, for what is made next.
  struct {
    uint32_t streams = 0, anywhere = 0, atOnce = 0;
  } wanted;

private:
  Stream streams[GRT_STREAM_COUNT] = {};
  std::vector<Event> events;
  std::vector<Event> stamps;
  /// Fork and join the streams of a graph.
  Event fork = nullptr, joins[GRT_STREAM_COUNT] = {};
  std::mutex graphsMutex; ///< of what follows, and of a change of `membership`
  std::vector<Graph> graphs;
  bool makesGraph = false, startsGraph = false, aborted = false;
  void *workspace = nullptr;
  uint64_t workspaceBytes = 0;
  bool ownsWorkspace = false;
  Complaint *complaint = nullptr; ///< pinned memory of the host
  Complaint *complaintOnDevice = nullptr;

  void release();
  void throwComplaint();
  /// Takes the graphs away unless the rank's thread is at one.
  void destroyGraphs();
  void expectRunning() const;
};

/// Returns the rank that the table's functions get as `state`.
inline Rank &rankOf(void *state) { return *static_cast<Rank *>(state); }

} // namespace grt::cuda

#endif // GRT_BACKENDS_CUDA_RANK_H
