//===- device.h - The host's way to a rank's arena ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Everything that the host reads and writes in an arena goes through here. On a
// backend without a device the arena is plain memory: nothing is copied and
// nothing waits. Otherwise values pass through a block of pinned memory, taken
// once, in copies on GRT_STREAM_COMPUTE: program order puts them between the
// kernels before and behind them.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_DEVICE_H
#define GRT_CORE_DEVICE_H

#include "comm/activity.h"
#include "grt/backend.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace grt {

class Device {
public:
  /// Events of the executor begin behind those of functions.
  static constexpr uint32_t firstOwnEvent = GRT_FUNCTION_EVENTS;
  static constexpr uint32_t leastMarks = 32;
  /// How many of a backend's events are for marks, the last ones.
  static constexpr uint32_t marksOf(uint32_t events) {
    return events > 256 ? std::min(events / 4, Activity::mostMarks)
                        : leastMarks;
  }
  static constexpr uint32_t leastEvents = GRT_FUNCTION_EVENTS + 16 + leastMarks;

  /// `failed` says that a call which fails only follows another rank's failure.
  /// At most `resultBytes` are fetched between two waits. Throws Error.
  Device(const grt_backend &backend, void *rankState, Activity &activity,
         int ranks, uint64_t resultBytes, const std::atomic<bool> &failed);
  ~Device();
  Device(const Device &) = delete;
  Device &operator=(const Device &) = delete;

  /// Whether there is a device at all. What follows also works without.
  explicit operator bool() const { return table; }
  const grt_device *operator->() const { return table; }
  void *rankState() const { return state; }
  int rank() const { return activity.rank; }

  /// `make(memory, first, count)` writes elements [first, first + count) of the
  /// `count` elements of `width` bytes at `to`, in one or several pieces.
  template <typename Make>
  void write(char *to, uint64_t count, uint64_t width, Make make) {
    if (!table)
      return make(to, uint64_t(0), count);
    uint64_t most = stageBytes / width;
    for (uint64_t first = 0; first < count; first += most) {
      uint64_t part = std::min(most, count - first);
      char *piece = stage(part * width);
      make(piece, first, part);
      copy(GRT_STREAM_COMPUTE, to + first * width, piece, part * width);
    }
  }
  /// The same for two arrays of as many elements, of widths of their own:
  /// `make(memory, otherMemory, first, count)`.
  template <typename Make>
  void write(char *to, uint64_t width, char *other, uint64_t otherWidth,
             uint64_t count, Make make) {
    if (!table)
      return make(to, other, uint64_t(0), count);
    uint64_t most = (stageBytes - 64) / (width + otherWidth);
    for (uint64_t first = 0; first < count; first += most) {
      uint64_t part = std::min(most, count - first);
      uint64_t bytes = part * width, aligned = (bytes + 63) / 64 * 64;
      char *piece = stage(aligned + part * otherWidth);
      make(piece, piece + aligned, first, part);
      copy(GRT_STREAM_COMPUTE, to + first * width, piece, bytes);
      copy(GRT_STREAM_COMPUTE, other + first * otherWidth, piece + aligned,
           part * otherWidth);
    }
  }
  /// `look(memory, first, count)` reads them.
  template <typename Look>
  void read(const char *from, uint64_t count, uint64_t width, Look look) {
    if (!table)
      return look(from, uint64_t(0), count);
    uint64_t most = stageBytes / width;
    for (uint64_t first = 0; first < count; first += most) {
      uint64_t part = std::min(most, count - first);
      char *piece = stage(part * width);
      copy(GRT_STREAM_COMPUTE, piece, from + first * width, part * width);
      wait();
      look(piece, first, part);
    }
  }
  void upload(char *to, const void *from, uint64_t bytes) {
    write(to, bytes, 1, [&](char *piece, uint64_t first, uint64_t count) {
      std::memcpy(piece, static_cast<const char *>(from) + first, count);
    });
  }
  void download(void *to, const char *from, uint64_t bytes) {
    read(from, bytes, 1, [&](const char *piece, uint64_t first, uint64_t n) {
      std::memcpy(static_cast<char *>(to) + first, piece, n);
    });
  }
  /// Where the bytes at `from` can be read after the next `wait`, until the
  /// next call of `fetch` after that.
  const void *fetch(const void *from, uint64_t bytes);
  /// Returns when everything on GRT_STREAM_COMPUTE is done.
  void wait() { synchronise(GRT_STREAM_COMPUTE); }
  /// The same of another stream.
  void waitFor(uint32_t stream) { synchronise(stream); }
  /// The same of all streams.
  void waitForAll() { synchronise(GRT_STREAM_COUNT); }

  /// Whether the host can wait for a place in the middle of a stream's work: a
  /// record of `event` on GRT_STREAM_COMPUTE, every start's of a graph.
  bool hasHostEvents() const { return table && table->record_for_host; }
  void recordForHost(uint32_t event);
  /// Returns when everything before the last record is done. Results fetched
  /// before it are there.
  void await(uint32_t event);

  void fill(uint32_t stream, char *to, int byte, uint64_t bytes);
  /// Between addresses of the arena, or one of it and one at home.
  void copy(uint32_t stream, void *to, const void *from, uint64_t bytes);

  void record(uint32_t stream, uint32_t event);
  void wait(uint32_t stream, uint32_t event);
  /// What is put on `then` from here on comes after what is on `first` now.
  /// Nothing if they are the same.
  void order(uint32_t first, uint32_t then);

  /// Whether moments of its streams' work can be told.
  bool hasClock() const { return table && table->stamp && table->stamped; }
  /// Notes when the stream gets here, not inside graphs; the number for
  /// `milliseconds`. Needs a clock.
  uint32_t stamp(uint32_t stream);
  /// Since some moment, once the stream was waited for.
  double milliseconds(uint32_t stamp) const;

  /// From here on, or no longer, it is measured how long COMPUTE waits for
  /// other streams, and in what a WaitSpan is around. Nothing without a clock;
  /// not inside graphs.
  void measureWaits(bool on);
  /// Seconds of waits that were measured since the last call. All streams have
  /// been waited for.
  double takeWaits();
  /// Around a call that puts on a stream what waits for other ranks.
  class WaitSpan {
  public:
    WaitSpan(Device &device, uint32_t stream);
    ~WaitSpan() noexcept(false);
    WaitSpan(const WaitSpan &) = delete;
    WaitSpan &operator=(const WaitSpan &) = delete;

  private:
    Device *device; ///< null: nothing is measured
    const int exceptions;
  };

  /// Whether somebody listens: only then a note's text is worth making.
  bool isChecked() const { return table && table->note; }
  void note(grt_note kind, const void *address = nullptr, uint64_t bytes = 0,
            const char *name = nullptr) const {
    if (isChecked())
      table->note(state, kind, address, bytes, name);
  }

  /// Makes a call to the backend and throws what it has to say.
  template <typename Call> void check(Call call) const {
    char message[1024] = "";
    if (call(message, sizeof(message)) != 0)
      failed(message);
  }

private:
  /// Pinned memory that lasts until the copy put behind it is done.
  char *stage(uint64_t bytes);
  void synchronise(uint32_t stream);
  void stampWait();
  template <typename Call> void waitInCall(Call call);
  [[noreturn]] void failed(const char *message) const;

  /// Long enough for a copy to run at full speed, short enough not to count.
  static constexpr uint64_t stageBytes = 4 << 20;
  /// Of a step that has more waits the first are measured.
  static constexpr size_t mostWaitStamps = 8192;

  const grt_device *table;
  void *state;
  Activity &activity;
  const int ranks;
  const std::atomic<bool> &othersFailed;
  uint32_t stamps = 0; ///< taken
  bool measuresWaits = false;
  /// Taken once, and used again: the first of each pair is before a wait.
  std::vector<uint32_t> waitStamps;
  size_t waitStampsUsed = 0;
  /// Results, then the stage.
  char *pinned = nullptr;
  uint64_t resultBytes, resultsUsed = 0, stageUsed = 0;
};

} // namespace grt

#endif // GRT_CORE_DEVICE_H
