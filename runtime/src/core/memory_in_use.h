//===- memory_in_use.h - What of a memory is in use -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Buffers that commands and functions begin and end, as bytes of the arena:
// they are counted, poisoned when they end, and told to a backend that checks.
// Beside them the figures of the heap and of the device.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_MEMORY_IN_USE_H
#define GRT_CORE_MEMORY_IN_USE_H

#include "core/observer.h"

namespace grt {

class MemoryInUse {
public:
  MemoryInUse(const RankFacts &facts, const RankMemories &memories,
              const Observer &observer)
      : facts(facts), memories(memories), observer(observer) {}

  /// Buffers of commands; nothing while `tracks` is not set.
  void begin(const Extent &extent);
  /// `sent`: it may still be on its way on another stream.
  void end(const Extent &extent, bool sent = false);
  /// A buffer of a function, which is at `address`.
  void begin(const char *address, const grt_buffer &buffer);
  void end(const char *address, const grt_buffer &buffer);
  /// Parameters of another pack take the place of those that were there.
  void takeTurn(const Chunk &chunk);
  void beginStep();

  void lookAtDevice();
  void lookAtHeap();
  RankMemory figures() const;

  LiveSet live;
  /// Buffers that commands hand on are begun and ended: in training only.
  bool tracks = true;
  uint64_t staticBytes = 0; ///< always in use

private:
  /// Poisons what dies, if that is wanted.
  LiveSet::Dead poisonDead();

  const RankFacts &facts;
  const RankMemories &memories;
  const Observer &observer;
  const Chunk *packHere = nullptr; ///< whose parameters count as live
  uint64_t heapBytes = 0, deviceBytes = 0;
};

} // namespace grt

#endif // GRT_CORE_MEMORY_IN_USE_H
