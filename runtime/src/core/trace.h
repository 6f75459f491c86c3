//===- trace.h - Recording what a rank does -------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A recorder per rank keeps the beginning and the end of every step, task,
// layer function, kernel and communication. Kernels are seen through a copy of
// the backend's table, communication through a communicator around the real
// one, so that a session without a trace runs what it would run anyway; the
// executor's own marks are one branch on a null pointer.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_TRACE_H
#define GRT_CORE_TRACE_H

#include "comm/communicator.h"
#include "core/arena.h"
#include "core/backend_table.h"
#include "grt/abi.h"
#include "grt/program_file.h"

#include <memory>

namespace grt {

class Device;

enum class TraceKind : uint8_t { Step, Task, Function, Kernel, Communication };

struct TraceEvent {
  uint64_t begin = 0, end = 0; ///< nanoseconds of the steady clock
  /// The same of the device's work, on the same clock; 0 where there is none,
  /// or before Recorder::fetchDeviceTimes.
  uint64_t deviceBegin = 0, deviceEnd = 0;
  /// Stamps of the device around the event, the second may be missing (a step);
  /// `none` where there are none.
  uint32_t firstStamp = none, lastStamp = none;
  static constexpr uint32_t none = UINT32_MAX;
  uint64_t live = 0;          ///< bytes at the end, states included
  const char *name = nullptr; ///< kernel or collective, constant
  grt_task task = {};         ///< TraceKind::Task, or the task at hand
  int32_t layer = -1;         ///< in the role
  uint32_t step = 0;
  TraceKind kind = TraceKind::Step;
  uint8_t detail = 0; ///< LayerPhase, or the kernel's number
  uint8_t stream = 0; ///< kernels and communication, on a device
  /// Communication: with whom. A group, or the tables of an exchange; none:
  /// all ranks.
  uint8_t tableCount = 0;
  const Group *group = nullptr;
  const ExchangeTable *tables[4] = {};
};

/// Events in memory that is neither the arena's nor counted as the rank's: a
/// reservation of address space, of which only what is written is ever backed.
class Recorder {
public:
  Recorder(int rank, const grt_backend &backend);
  ~Recorder();
  Recorder(const Recorder &) = delete;
  Recorder &operator=(const Recorder &) = delete;

  /// Called on the rank's thread, once.
  void attach(const LiveSet &live, uint64_t staticBytes);
  /// Kernels and communication get times of the device, too.
  void attach(Device &device);
  /// On the rank's thread, once all it was asked for is done.
  void fetchDeviceTimes();
  /// Between steps only.
  void setRecording(bool on) { recording = on; }
  /// Forgets the events. Between steps only.
  void clear() { count = fetched = 0; }

  bool isActive() const { return active; }
  TraceEvent *open(TraceKind kind);
  void close(TraceEvent &event);
  /// Of what is put on the device next.
  void setStream(grt_stream number) { stream = number; }

  void beginStep(uint64_t step);
  void endStep();

  int rank() const { return self; }
  std::span<const TraceEvent> events() const { return {first, count}; }
  /// Events for which there was no room.
  uint64_t lost() const { return lostEvents; }
  const grt_backend &backend() const { return original; }
  /// Whether there are times of a device.
  bool hasDevice() const { return device; }

  grt_task task = {}; ///< running
  int32_t layer = -1; ///< running

private:
  int self;
  Device *device = nullptr; ///< with a clock
  grt_stream stream = GRT_STREAM_COMPUTE;
  size_t fetched = 0; ///< events with their device's times
  const grt_backend &original;
  const LiveSet *live = nullptr;
  uint64_t staticBytes = 0;
  TraceEvent *first = nullptr, *stepEvent = nullptr;
  size_t count = 0, reserved = 0; ///< events, bytes
  uint64_t lostEvents = 0;
  uint32_t step = 0;
  bool recording = false, active = false;
};

/// Records from here to the end of the scope; does nothing without a recorder.
class TraceSpan {
public:
  /// A task.
  TraceSpan(Recorder *recorder, const grt_task &task) {
    if (recorder && recorder->isActive()) {
      recorder->task = task;
      recorder->layer = -1;
      open(recorder, TraceKind::Task);
    }
  }
  /// A function of a layer.
  TraceSpan(Recorder *recorder, int32_t layer, LayerPhase phase) {
    if (recorder && recorder->isActive()) {
      recorder->layer = layer;
      open(recorder, TraceKind::Function);
      if (event)
        event->detail = uint8_t(phase);
    }
  }
  TraceSpan(Recorder &recorder, TraceKind kind) { open(&recorder, kind); }
  ~TraceSpan() {
    if (event)
      recorder->close(*event);
  }
  TraceSpan(const TraceSpan &) = delete;
  TraceSpan &operator=(const TraceSpan &) = delete;

  /// Null if nothing is recorded.
  TraceEvent *operator->() const { return event; }
  explicit operator bool() const { return event; }

private:
  void open(Recorder *to, TraceKind kind) {
    recorder = to;
    event = to->open(kind);
  }

  Recorder *recorder = nullptr;
  TraceEvent *event = nullptr;
};

/// The table of `backend` with kernels that record themselves on threads that a
/// recorder is attached to.
BackendTable tracedBackend(const grt_backend &backend);

/// Records the communication of a rank, which `inner` does.
std::unique_ptr<Communicator>
tracedCommunicator(std::unique_ptr<Communicator> inner, Recorder &recorder);

} // namespace grt

#endif // GRT_CORE_TRACE_H
