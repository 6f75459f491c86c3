//===- bound_layer.h - Where the running function's buffers lie -----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_BOUND_LAYER_H
#define GRT_CORE_BOUND_LAYER_H

#include "core/places.h"

#include <string>
#include <vector>

namespace grt {

/// The binding of a layer for one slot and micro-batch.
class BoundLayer {
public:
  struct Region {
    char *base = nullptr;
    uint64_t bytes = 0;
  };

  /// Nothing is allocated later for layers of at most so many inputs and data.
  void reserve(size_t inputs, size_t data);
  void bind(const Layer &of, const Binding &row, uint32_t slot);
  /// A region that is there lies so many bytes further on.
  void move(grt_region region, uint64_t bytes);
  /// The next of the layer's data, which count as one region, each at the next
  /// multiple of GRT_ALIGNMENT.
  void addData(char *base, uint64_t bytes);
  /// The next of the layer's inputs and its gradient, where inputs are in
  /// pieces.
  void addPiece(char *input, char *gradient);

  const Region &region(grt_region which) const { return regions[which]; }
  /// The address of a buffer, which may be null if it has no bytes.
  char *resolve(const grt_buffer &buffer) const;
  /// Whether the buffer is inside its region.
  bool has(const grt_buffer &buffer) const;
  /// Why not, of buffer `position` of a call of this name.
  std::string describeOutside(const grt_buffer &buffer, const char *name,
                              size_t position) const;

private:
  struct Piece {
    char *input = nullptr, *gradient = nullptr;
  };
  bool isInPieces(const grt_buffer &buffer) const;
  char *resolvePiece(const grt_buffer &buffer) const;
  char *resolveData(const grt_buffer &buffer) const;

  const Layer *layer = nullptr;
  Region regions[GRT_REGION_COUNT];
  std::vector<Piece> pieces;
  std::vector<Region> data;
};

} // namespace grt

#endif // GRT_CORE_BOUND_LAYER_H
