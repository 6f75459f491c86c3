//===- memory.cpp - Memory of a model of a device -------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memory.h"

#include "grt/axes.h"

#include <algorithm>
#include <iterator>
#include <sys/mman.h>

namespace grt::recording {

void join(Clock &clock, const Clock &other) {
  for (size_t i = 0; i < std::min(clock.size(), other.size()); ++i)
    clock[i] = std::max(clock[i], other[i]);
}

const char *streamName(uint32_t stream) {
  return stream < GRT_STREAM_COUNT    ? streamForms[stream].name
         : stream == GRT_STREAM_COUNT ? "the host itself"
                                      : "unknown";
}

std::string OperationLabel::text() const {
  return "rank " + std::to_string(rank) + (place.empty() ? "" : ", " + place) +
         ": " + what + " (" + streamName(stream) + " " +
         std::to_string(number) + ")";
}

AccessMap::Cells::iterator AccessMap::cut(uint64_t at) {
  auto next = cells.lower_bound(at);
  if (next->first == at)
    return next;
  return cells.emplace_hint(next, at, std::prev(next)->second);
}

void AccessMap::use(uint64_t begin, uint64_t end, bool writes,
                    const LabelPointer &label, const Clock &clock,
                    const Report &report) {
  if (begin >= end)
    return;
  auto first = cut(begin), last = cut(end);
  for (auto at = first; at != last; ++at) {
    Cell &cell = at->second;
    auto look = [&](const LabelPointer &other, bool otherWrites) {
      if (other && other != label && !other->isBefore(clock))
        report({at->first, std::next(at)->first, other, otherWrites});
    };
    look(cell.writer, true);
    if (!writes) {
      // Of one queue the youngest reader stands for all.
      auto same = std::find_if(
          cell.readers.begin(), cell.readers.end(),
          [&](const LabelPointer &d) { return d->queue == label->queue; });
      if (same != cell.readers.end())
        *same = label;
      else
        cell.readers.push_back(label);
      continue;
    }
    for (const LabelPointer &reader : cell.readers)
      look(reader, false);
  }
  if (!writes)
    return;
  cells.erase(std::next(first), last);
  first->second = {label, {}};
}

void AccessMap::forget() {
  uint64_t bytes = std::prev(cells.end())->first;
  cells.clear();
  cells[0];
  cells[bytes];
}

Allocation::Allocation(const grt_backend &base, const grt_arena &shape,
                       bool isArena)
    : accesses(shape.bytes +
               (isArena ? (shape.window_count - 1) * shape.window_bytes : 0)),
      base(base), shape(shape), isArena(isArena),
      bytes(shape.bytes +
            (isArena ? (shape.window_count - 1) * shape.window_bytes : 0)) {
  values = static_cast<char *>(isArena ? base.map_arena(&this->shape)
                                       : base.allocate(shape.bytes));
  if (!values)
    return;
  void *addresses = mmap(nullptr, bytes, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  reserved = addresses == MAP_FAILED ? nullptr : static_cast<char *>(addresses);
}

Allocation::~Allocation() {
  if (reserved)
    munmap(reserved, bytes);
  if (values && isArena)
    base.unmap_arena(values, &shape);
  else if (values)
    base.release(values, shape.bytes);
}

void Allocation::forMemory(
    uint64_t begin, uint64_t end,
    const std::function<void(uint64_t, uint64_t)> &visit) const {
  while (begin < end) {
    // The whole range, unless a view of the window begins or ends in it.
    uint64_t place = begin, next = end;
    for (uint64_t view = 0; isArena && view < shape.window_count; ++view) {
      uint64_t from = shape.window_offset + view * shape.window_stride;
      uint64_t to = from + shape.window_bytes;
      if (begin < from) {
        next = std::min(next, from);
        break;
      }
      if (begin < to) {
        place = begin - view * shape.window_stride;
        next = std::min(next, to);
        break;
      }
    }
    visit(place, place + next - begin);
    begin = next;
  }
}

void HostRanges::pin(const void *address, uint64_t bytes) {
  pinned[static_cast<const char *>(address)] = bytes;
}

void HostRanges::unpin(const void *address) {
  pinned.erase(static_cast<const char *>(address));
}

bool HostRanges::isPinned(const void *address, uint64_t bytes) const {
  const char *at = static_cast<const char *>(address);
  auto next = pinned.upper_bound(at);
  return next != pinned.begin() &&
         uint64_t(at - std::prev(next)->first) + bytes <=
             std::prev(next)->second;
}

bool HostRanges::anyPinned(const void *address, uint64_t bytes) const {
  const char *at = static_cast<const char *>(address);
  return std::any_of(pinned.begin(), pinned.end(), [&](const auto &range) {
    return range.first < at + bytes && at < range.first + range.second;
  });
}

void HostRanges::setHome(const char *begin, uint64_t bytes) {
  homes.erase(begin);
  if (bytes)
    homes[begin] = std::make_shared<HomeRange>(bytes);
}

std::pair<const char *, std::shared_ptr<HomeRange>>
HostRanges::homeAt(const void *address, uint64_t bytes) const {
  const char *at = static_cast<const char *>(address);
  auto next = homes.upper_bound(at);
  if (next == homes.begin())
    return {};
  auto [begin, range] = *std::prev(next);
  return uint64_t(at - begin) + bytes <= range->bytes
             ? std::pair(begin, range)
             : std::pair<const char *, std::shared_ptr<HomeRange>>();
}

} // namespace grt::recording
