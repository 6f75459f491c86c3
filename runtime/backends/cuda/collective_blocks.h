//===- collective_blocks.h - Blocks of a device for collectives -----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_CUDA_COLLECTIVE_BLOCKS_H
#define GRT_BACKENDS_CUDA_COLLECTIVE_BLOCKS_H

#include <algorithm>

namespace grt::cuda {

/// The number of blocks that a kind of device collectives runs on, all
/// communicators that work at one time together.
struct CollectiveBlocks {
  int capability; ///< 10 * major + minor; the entry holds up to the next one
  int blocks;
};

/// The table is by compute capability, ascending. Four communicators at most
/// work at one time, and each should fill its links. H100's and B200's are of
/// NCCL's source (nvls.cc); the others are assumptions, and none was measured
/// here.
constexpr CollectiveBlocks collectiveBlocksOf[] = {
    // V100: six NVLinks, half of an A100's.
    {70, 24},
    // T4, TITAN RTX: PCIe, which four blocks each fill.
    {75, 16},
    // A100: twelve NVLinks; twelve blocks each, one a link.
    {80, 48},
    // A10, L4, RTX 4090: PCIe again.
    {86, 16},
    // H100, H200: 16 each, what sums by the switches take
    // (NVLS_NCHANNELS_SM90).
    {90, 64},
    // B200: three of 24 (NVLS_NCHANNELS_SM100_NVL); four would leave kernels a
    // third of the device.
    {100, 72},
    // Cards of that generation without NVLink.
    {120, 16},
};

/// The most blocks that the library takes of itself for one communicator.
constexpr int mostBlocksOfOne = 32;

/// Blocks of one of `atOnce` communicators on a device of this capability. One
/// with fewer multiprocessors than its kind has, as a part of it has (MIG),
/// keeps half of them for kernels.
constexpr int blocksOfEach(int capability, int multiprocessors, int atOnce) {
  int all = collectiveBlocksOf[0].blocks;
  for (const CollectiveBlocks &entry : collectiveBlocksOf)
    if (entry.capability <= capability)
      all = entry.blocks;
  all = std::min(all, multiprocessors / 2);
  return std::clamp(all / std::max(atOnce, 1), 1, mostBlocksOfOne);
}

} // namespace grt::cuda

#endif // GRT_BACKENDS_CUDA_COLLECTIVE_BLOCKS_H
