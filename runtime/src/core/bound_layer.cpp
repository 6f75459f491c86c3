//===- bound_layer.cpp - Where the running function's buffers lie ---------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/bound_layer.h"

#include "base/error.h"
#include "core/program_text.h"

#include <algorithm>

namespace grt {

void BoundLayer::reserve(size_t inputs, size_t dataCount) {
  pieces.reserve(std::max(pieces.capacity(), inputs));
  data.reserve(std::max(data.capacity(), dataCount));
}

void BoundLayer::bind(const Layer &of, const Binding &row, uint32_t slot) {
  layer = &of;
  for (size_t r = 0; r < row.size(); ++r)
    regions[r] = {row[r].base + slot * row[r].perSlot, row[r].bytes};
  pieces.clear();
  data.clear();
}

void BoundLayer::move(grt_region region, uint64_t bytes) {
  if (regions[region].bytes)
    regions[region].base += bytes;
}

void BoundLayer::addData(char *base, uint64_t bytes) {
  data.push_back({base, bytes});
}

void BoundLayer::addPiece(char *input, char *gradient) {
  pieces.push_back({input, gradient});
}

bool BoundLayer::isInPieces(const grt_buffer &buffer) const {
  return !layer->inputs.empty() && (buffer.region == GRT_REGION_INPUT ||
                                    buffer.region == GRT_REGION_GRAD_OUT);
}

char *BoundLayer::resolve(const grt_buffer &buffer) const {
  if (isInPieces(buffer))
    return resolvePiece(buffer);
  if (buffer.region == GRT_REGION_DATA)
    return resolveData(buffer);
  const Region &region = regions[buffer.region];
  if (buffer.offset > region.bytes ||
      buffer.bytes > region.bytes - buffer.offset)
    return nullptr;
  return region.base + buffer.offset;
}

bool BoundLayer::has(const grt_buffer &buffer) const {
  if (isInPieces(buffer) || buffer.region == GRT_REGION_DATA)
    return resolve(buffer) != nullptr;
  const Region &region = regions[buffer.region];
  return buffer.offset <= region.bytes &&
         buffer.bytes <= region.bytes - buffer.offset;
}

char *BoundLayer::resolvePiece(const grt_buffer &buffer) const {
  // Functions see the inputs one behind the other.
  uint64_t at = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const uint64_t bytes = layer->inputs[i].bytes;
    if (buffer.offset >= at && buffer.offset - at <= bytes &&
        buffer.bytes <= bytes - (buffer.offset - at))
      return (buffer.region == GRT_REGION_INPUT ? pieces[i].input
                                                : pieces[i].gradient) +
             (buffer.offset - at);
    at += alignUp(bytes);
  }
  return nullptr;
}

char *BoundLayer::resolveData(const grt_buffer &buffer) const {
  uint64_t begin = 0;
  for (const Region &region : data) {
    const uint64_t at = buffer.offset - begin;
    if (buffer.offset >= begin && at <= region.bytes &&
        buffer.bytes <= region.bytes - at)
      return region.base + at;
    begin += alignUp(region.bytes);
  }
  return nullptr;
}

std::string BoundLayer::describeOutside(const grt_buffer &buffer,
                                        const char *name,
                                        size_t position) const {
  const std::string covers = "buffer " + str(position) + " of '" + name +
                             "' covers bytes " + str(buffer.offset) + " to " +
                             str(buffer.offset + buffer.bytes) + " of region " +
                             regionName(buffer.region);
  if (isInPieces(buffer))
    return covers + ", which has no such input";
  if (buffer.region == GRT_REGION_DATA)
    return covers + ", which is none of the layer's " + str(data.size()) +
           " data";
  return covers + ", which has " + str(regions[buffer.region].bytes);
}

} // namespace grt
