//===- memory.h - Memory of a model of a device ---------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// An allocation has addresses that nobody may touch, and memory elsewhere that
// the model uses in their place: a host that goes to the device's memory itself
// ends at once. Every byte knows the operation that wrote it last and those
// that have read it since.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_RECORDING_MEMORY_H
#define GRT_BACKENDS_RECORDING_MEMORY_H

#include "grt/backend.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace grt::recording {

/// How far each queue (a stream of a rank, or its host) is known to have come,
/// in operations.
using Clock = std::vector<uint64_t>;
void join(Clock &clock, const Clock &other);

/// An operation, as messages name it.
struct OperationLabel {
  int rank = 0;
  uint32_t stream = 0;
  uint64_t number = 0; ///< on its stream, from 1
  size_t queue = 0;    ///< index in clocks
  std::string place, what;

  bool isBefore(const Clock &clock) const { return number <= clock[queue]; }
  /// "rank 1, step 2, layer 'h.1', functions: gemm 'x' (compute 12)".
  std::string text() const;
};
using LabelPointer = std::shared_ptr<const OperationLabel>;

const char *streamName(uint32_t stream);

/// Who used the bytes of a piece of memory last.
class AccessMap {
public:
  explicit AccessMap(uint64_t bytes) {
    cells[0];
    cells[bytes];
  }

  /// A conflict: bytes [begin, end), and the operation that used them.
  struct Conflict {
    uint64_t begin, end;
    LabelPointer other;
    bool otherWrites;
  };
  using Report = std::function<void(const Conflict &)>;
  /// `label` uses bytes [begin, end), knowing of what `clock` says.
  void use(uint64_t begin, uint64_t end, bool writes, const LabelPointer &label,
           const Clock &clock, const Report &report);
  void forget();

private:
  struct Cell {
    LabelPointer writer;
    std::vector<LabelPointer> readers;
  };
  using Cells = std::map<uint64_t, Cell>;
  Cells::iterator cut(uint64_t at);
  /// By first byte; the last one is the end.
  Cells cells;
};

/// What the rank at hand gets from `allocate` or `map_arena`.
class Allocation {
public:
  /// Null `memory()` if there is none. `isArena`: has a window.
  Allocation(const grt_backend &base, const grt_arena &shape, bool isArena);
  ~Allocation();
  Allocation(const Allocation &) = delete;
  Allocation &operator=(const Allocation &) = delete;

  char *address() const { return reserved; }
  uint64_t addressBytes() const { return bytes; }
  bool holds(const void *at) const {
    return at >= reserved && at < reserved + bytes;
  }
  uint64_t offset(const void *at) const {
    return uint64_t(static_cast<const char *>(at) - reserved);
  }
  /// The model's memory behind an address.
  char *memory(uint64_t offset) const { return values + offset; }
  /// Calls `visit(begin, end)` for the pieces of memory behind these addresses;
  /// the views of a window are one memory.
  void forMemory(uint64_t begin, uint64_t end,
                 const std::function<void(uint64_t, uint64_t)> &visit) const;

  AccessMap accesses;

private:
  const grt_backend &base;
  const grt_arena shape;
  const bool isArena;
  const uint64_t bytes;
  char *reserved = nullptr, *values = nullptr;
};

/// Memory of a host where states have their home, which the host itself and
/// copies use.
struct HomeRange {
  explicit HomeRange(uint64_t bytes) : accesses(bytes), bytes(bytes) {}
  AccessMap accesses;
  const uint64_t bytes;
};

/// What of the host's memory is pinned, and where states have their home.
class HostRanges {
public:
  void pin(const void *address, uint64_t bytes);
  void unpin(const void *address);
  /// Whether these bytes are, and as one.
  bool isPinned(const void *address, uint64_t bytes) const;
  /// Whether some of them are.
  bool anyPinned(const void *address, uint64_t bytes) const;

  /// No bytes: there is no home any more.
  void setHome(const char *begin, uint64_t bytes);
  /// The home that these bytes are of, and where it begins; null: none.
  std::pair<const char *, std::shared_ptr<HomeRange>>
  homeAt(const void *address, uint64_t bytes) const;

private:
  std::map<const char *, uint64_t> pinned;
  std::map<const char *, std::shared_ptr<HomeRange>> homes;
};

} // namespace grt::recording

#endif // GRT_BACKENDS_RECORDING_MEMORY_H
