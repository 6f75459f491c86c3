//===- Transients.cpp - Placement of a function's temporaries -------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/GRT/Transforms/Transients.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/MapVector.h"

#include <algorithm>
#include <limits>
#include <numeric>

using namespace mlir;
using namespace mlir::grt;
using ::galvatron::CollectiveBuffer;

namespace {

using Order = std::vector<unsigned>;

/// Attempts to get closer to the lower bound after the fixed orders.
constexpr int kTries = 24;

/// One placement of all intervals in a given order.
struct Placement {
  std::vector<int64_t> offsets;
  int64_t bytes = 0;
};

bool overlaps(const Interval &a, const Interval &b) {
  return a.begin <= b.end && b.begin <= a.end;
}

/// Places the intervals one after the other, each into the smallest gap between
/// its already placed neighbours in time that holds it, or else on top. Gives
/// up, with the bytes reached, once `limit` is not undercut.
Placement placeInOrder(const std::vector<Interval> &intervals,
                       const Order &order, int64_t limit) {
  Placement result;
  result.offsets.assign(intervals.size(), -1);
  SmallVector<std::pair<int64_t, int64_t>, 32> taken;
  for (unsigned next : order) {
    const Interval &interval = intervals[next];
    taken.clear();
    for (unsigned other : order) {
      if (other == next)
        break;
      if (overlaps(interval, intervals[other]))
        taken.push_back({result.offsets[other],
                         result.offsets[other] + intervals[other].bytes});
    }
    llvm::sort(taken);
    int64_t bestOffset = -1;
    int64_t bestGap = std::numeric_limits<int64_t>::max();
    int64_t top = 0;
    for (auto [begin, end] : taken) {
      int64_t gap = begin - top;
      if (gap >= interval.bytes && gap < bestGap) {
        bestGap = gap;
        bestOffset = top;
      }
      top = std::max(top, end);
    }
    if (bestOffset < 0)
      bestOffset = top;
    result.offsets[next] = bestOffset;
    result.bytes = std::max(result.bytes, bestOffset + interval.bytes);
    if (result.bytes >= limit)
      return result;
  }
  return result;
}

/// Collects the transient buffers of a function and their lifetimes. Times are
/// positions of operations; a buffer is live at its begin and its end too.
LogicalResult collectLifetimes(FuncOp func, std::vector<BufferOp> &buffers,
                               std::vector<Interval> &intervals) {
  llvm::SmallDenseMap<Operation *, unsigned, 64> numbers;
  int64_t time = 0;
  for (Operation &op : func.getBody().front()) {
    ++time;
    if (auto buffer = dyn_cast<BufferOp>(op)) {
      if (buffer.getRegion() != MemoryRegion::Transient)
        continue;
      numbers[buffer] = buffers.size();
      buffers.push_back(buffer);
      intervals.push_back({-1, -1, alignBytes(buffer.getByteSize())});
      continue;
    }
    if (auto begin = dyn_cast<BeginOp>(op)) {
      auto it = numbers.find(begin.getBuffer().getDefiningOp());
      if (it != numbers.end())
        intervals[it->second].begin = time;
    } else if (auto end = dyn_cast<EndOp>(op)) {
      auto it = numbers.find(end.getBuffer().getDefiningOp());
      if (it != numbers.end())
        intervals[it->second].end = time;
    }
  }
  for (auto [buffer, interval] : llvm::zip(buffers, intervals))
    if (interval.begin < 0 || interval.end < interval.begin)
      return buffer.emitOpError(
          "expected the lifetime of a transient buffer to be marked by "
          "'grt.begin' and 'grt.end', found none");
  return success();
}

void eraseUnusedBuffers(FuncOp func) {
  for (Operation &op :
       llvm::make_early_inc_range(llvm::reverse(func.getBody().front()))) {
    if (!op.use_empty())
      continue;
    auto buffer = dyn_cast<BufferOp>(op);
    if (isa<ViewOp>(op) ||
        (buffer && buffer.getRegion() == MemoryRegion::Transient))
      op.erase();
  }
}

} // namespace

int64_t mlir::grt::peakBytes(const std::vector<Interval> &intervals) {
  // The peak is reached when some interval begins.
  int64_t peak = 0;
  for (const Interval &at : intervals) {
    int64_t live = 0;
    for (const Interval &other : intervals)
      if (other.begin <= at.begin && at.begin <= other.end)
        live += other.bytes;
    peak = std::max(peak, live);
  }
  return peak;
}

int64_t mlir::grt::placeIntervals(std::vector<Interval> &intervals) {
  if (intervals.empty())
    return 0;
  int64_t lowest = peakBytes(intervals);
  Order bySize(intervals.size());
  std::iota(bySize.begin(), bySize.end(), 0);
  Order byBegin = bySize, byArea = bySize;
  auto area = [&](unsigned i) {
    return intervals[i].bytes * (intervals[i].end - intervals[i].begin + 1);
  };
  std::stable_sort(bySize.begin(), bySize.end(), [&](unsigned a, unsigned b) {
    return intervals[a].bytes > intervals[b].bytes;
  });
  std::stable_sort(byBegin.begin(), byBegin.end(), [&](unsigned a, unsigned b) {
    return intervals[a].begin < intervals[b].begin;
  });
  std::stable_sort(byArea.begin(), byArea.end(),
                   [&](unsigned a, unsigned b) { return area(a) > area(b); });

  Placement best;
  best.bytes = std::numeric_limits<int64_t>::max();
  Order bestOrder;
  auto attempt = [&](const Order &order) {
    Placement placement = placeInOrder(intervals, order, best.bytes);
    if (placement.bytes >= best.bytes)
      return false;
    best = std::move(placement);
    bestOrder = order;
    return true;
  };
  for (const Order *order : {&bySize, &byArea, &byBegin})
    if (best.bytes > lowest)
      attempt(*order);

  // Whatever sticks out on top gets an earlier seat, as does something beneath
  // it; the seats come from a fixed sequence. A few tries close most of what is
  // left to the lower bound, and most functions need none.
  uint64_t state = 1;
  auto draw = [&](uint64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return below ? (state >> 33) % below : 0;
  };
  for (int tries = 0; tries < kTries && best.bytes > lowest; ++tries) {
    Order order = bestOrder;
    size_t top = 0;
    while (best.offsets[order[top]] + intervals[order[top]].bytes != best.bytes)
      ++top;
    size_t from = tries % 2 == 0 ? top : draw(order.size());
    size_t seat = draw(from);
    std::rotate(order.begin() + seat, order.begin() + from,
                order.begin() + from + 1);
    attempt(order);
  }
  for (auto [interval, offset] : llvm::zip(intervals, best.offsets))
    interval.offset = offset;
  return best.bytes;
}

LogicalResult mlir::grt::allocateTransients(FuncOp func) {
  eraseUnusedBuffers(func);
  std::vector<BufferOp> buffers;
  std::vector<Interval> intervals;
  if (failed(collectLifetimes(func, buffers, intervals)))
    return failure();
  func.setTransientBytes(placeIntervals(intervals));
  for (auto [buffer, interval] : llvm::zip(buffers, intervals))
    buffer.setOffset(interval.offset);
  return success();
}

FunctionBytes FunctionBytes::of(FuncOp func) {
  if (!func)
    return {};
  FunctionBytes bytes;
  bytes.transient = func.getTransientBytes().value_or(0);
  bytes.gathered = alignBytes(func.getGatheredBytes().value_or(0));
  for (Operation &op : func.getBody().front()) {
    if (!isCollective(&op))
      continue;
    for (Value operand : op.getOperands()) {
      BufferRef at = resolveBuffer(operand);
      int64_t begin = at.buffer.getOffset().value_or(0) + at.offset;
      CollectiveBuffer range{
          begin, begin + getByteSize(cast<MemRefType>(operand.getType()))};
      if (at.buffer.getRegion() == MemoryRegion::Transient)
        bytes.buffers.push_back(range);
      else if (at.buffer.getRegion() == MemoryRegion::Stash)
        bytes.stashBuffers.push_back(range);
    }
  }
  return bytes;
}

/// Sorted, each range once.
static void setBuffers(SmallVectorImpl<CollectiveBuffer> &buffers) {
  llvm::sort(buffers);
  buffers.erase(llvm::unique(buffers), buffers.end());
}

void mlir::grt::setTransients(::galvatron::LayerFootprint &footprint,
                              const FunctionBytes &forward,
                              const FunctionBytes &recompute,
                              const FunctionBytes &backward,
                              const FunctionBytes &weight,
                              int64_t recomputeStashBytes) {
  footprint.forwardGathered = forward.gathered;
  footprint.forwardTransient = forward.transient + footprint.forwardGathered;
  footprint.backwardGathered = std::max(recompute.gathered, backward.gathered);
  footprint.backwardTransient =
      alignBytes(recomputeStashBytes) +
      std::max({recompute.transient, backward.transient, weight.transient}) +
      footprint.backwardGathered;

  footprint.forwardBuffers.assign(forward.buffers.begin(),
                                  forward.buffers.end());
  footprint.backwardBuffers.clear();
  int64_t front = alignBytes(recomputeStashBytes);
  for (const FunctionBytes *each : {&recompute, &backward, &weight}) {
    for (const CollectiveBuffer &buffer : each->buffers)
      footprint.backwardBuffers.push_back(
          {front + buffer.begin, front + buffer.end});
    // A stash that is not made again is in the slot.
    if (front > 0)
      llvm::append_range(footprint.backwardBuffers, each->stashBuffers);
  }
  setBuffers(footprint.forwardBuffers);
  setBuffers(footprint.backwardBuffers);
}
