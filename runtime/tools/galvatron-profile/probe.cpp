//===- probe.cpp - One rank's stopwatch -----------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "probe.h"
#include "base/error.h"

#include <cstring>
#include <numeric>

namespace grt::profile {

Block::Block(const grt_backend &backend, int64_t bytes)
    : backend(backend), size(bytes), memory(backend.allocate(size_t(bytes))) {
  if (!memory)
    fail("cannot allocate " + std::to_string(bytes) + " bytes");
  std::memset(memory, 0, size_t(bytes));
}

Block::~Block() { backend.release(memory, size_t(size)); }

void Block::fill(grt_dtype dtype) {
  auto value = [](int64_t i) { return double((i * 7919) % 1021) / 1021 - 0.5; };
  if (dtype == GRT_F64) {
    for (int64_t i = 0; i < size / 8; ++i)
      static_cast<double *>(memory)[i] = value(i);
    return;
  }
  if (dtype == GRT_F32) {
    for (int64_t i = 0; i < size / 4; ++i)
      static_cast<float *>(memory)[i] = float(value(i));
    return;
  }
  for (int64_t i = 0; i < size / 2; ++i) {
    // The upper half of an f32 is a bf16.
    auto single = float(value(i));
    uint32_t bits;
    std::memcpy(&bits, &single, sizeof(bits));
    static_cast<uint16_t *>(memory)[i] = uint16_t(bits >> 16);
  }
}

Probe::Probe(Communicator &communicator, const grt_backend &backend,
             int threads, std::function<bool()> ended)
    : communicator(communicator), backend(backend), ownThreads(threads),
      state(backend.create_rank(communicator.rank(), threads)),
      gathered(size_t(communicator.size())), ended(std::move(ended)) {
  if (!state)
    fail("rank " + std::to_string(communicator.rank()) +
         ": cannot make the backend's state");
  coordinates.dp_size = coordinates.sdp_size = coordinates.tp_size =
      coordinates.block_count = 1;
  step.step = 1;
  step.beta1 = 0.9;
  step.beta2 = 0.999;
  step.eps = 1e-8;
  step.clip_factor = 1;
  step.inverse_tokens = 1;
}

Probe::Probe(JoinedRank &rank, const grt_backend &backend,
             std::function<bool()> ended)
    : communicator(rank.host()), backend(backend), ownThreads(1),
      state(rank.state()), joined(&rank), gathered(size_t(communicator.size())),
      ended(std::move(ended)) {}

Probe::~Probe() {
  if (!joined)
    backend.destroy_rank(state);
}

void *Probe::memory(int64_t bytes) {
  return joined ? joined->allocate(uint64_t(bytes))
                : blocks.emplace_back(backend, bytes).data();
}

void Probe::launch(grt_kernel kernel, grt_dtype dtype,
                   const std::vector<Block *> &blocks,
                   const std::vector<int64_t> &ints,
                   const std::vector<double> &reals) {
  std::vector<grt_buffer> buffers;
  std::vector<void *> addresses;
  for (Block *block : blocks) {
    buffers.push_back(
        {GRT_REGION_TRANSIENT, uint32_t(dtype), 0, uint64_t(block->bytes())});
    addresses.push_back(block->data());
  }
  grt_kernel_op op = {uint32_t(kernel),      uint32_t(buffers.size()),
                      uint32_t(ints.size()), uint32_t(reals.size()),
                      buffers.data(),        ints.data(),
                      reals.data(),          "profile"};
  grt_call call = {&op, addresses.data(), &coordinates, &step, 0, state};
  char message[256] = "";
  if (!backend.kernels[kernel])
    fail(std::string("backend '") + backend.name + "' lacks a kernel");
  if (backend.kernels[kernel](&call, message, sizeof(message)) != 0)
    fail(message);
}

double Probe::mean(double value) {
  gathered = gatherOfRanks(communicator, MessageKind::Times, value);
  if (averaged.empty())
    return meanOfAll();
  double sum = 0;
  for (int rank : averaged)
    sum += gathered[size_t(rank)];
  return sum / double(averaged.size());
}

void Probe::beginTogether() {
  double asked = ended() ? 1 : 0;
  gathered = gatherOfRanks(communicator, MessageKind::Times, asked);
  brief |= meanOfAll() > 0;
}

double Probe::meanOfAll() const {
  return std::accumulate(gathered.begin(), gathered.end(), 0.0) /
         double(gathered.size());
}

} // namespace grt::profile
