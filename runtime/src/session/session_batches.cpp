//===- session_batches.cpp - Batches of a session -------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "session/session_implementation.h"

#include <algorithm>
#include <cstring>

namespace grt {

/// Checks integers of samples of a batch; returns how many are not negative.
static uint64_t checkIntegers(const Datum &datum, const char *bytes,
                              SampleRange range) {
  const uint64_t length = uint64_t(datum.elements());
  const uint64_t first = uint64_t(range.first) * length;
  // Labels that do not count, and samples of no row.
  const bool mayLack = datum.counted || mayHaveNoRow(datum);
  uint64_t values = 0;
  for (uint64_t i = first; i < first + uint64_t(range.count) * length; ++i) {
    int32_t value;
    std::memcpy(&value, bytes + i * sizeof(value), sizeof(value));
    values += value >= 0;
    if (value >= datum.below || (value < 0 && !mayLack))
      invalid("batch: " + str(value) + " at position " + str(i) + " of '" +
              datum.name + "', expected " +
              (mayLack ? "less than " : "a value from 0 to below ") +
              str(datum.below));
  }
  return values;
}

std::shared_ptr<const GlobalBatch> Session::Implementation::copyBatch(
    const DataBatch &batch, std::optional<uint64_t> counted, uint64_t &parts) {
  threads->checkUsable();
  const Manifest &manifest = program->manifest();
  if (batch.size() != manifest.data.size())
    invalid("batch: expected values of " + str(manifest.data.size()) +
            " data, found " + str(batch.size()));
  uint64_t values = 0;
  for (size_t i = 0; i < batch.size(); ++i) {
    const Datum &datum = manifest.data[i];
    uint64_t expected = uint64_t(manifest.batch) * datum.bytesPerSample;
    // The first datum says how many of the program's batches there are.
    if (i == 0)
      parts = std::max<uint64_t>(1, batch[i].size() / expected);
    if (batch[i].size() != parts * expected)
      invalid("batch: expected " + str(parts * expected) + " bytes of '" +
              datum.name + "', found " + str(batch[i].size()));
    if (datum.below == 0)
      continue;
    if (counted)
      forEachRangeRead(i, parts, [&](SampleRange range) {
        checkIntegers(datum, batch[i].data(), range);
      });
    else if (uint64_t all = checkIntegers(datum, batch[i].data(),
                                          {0, int64_t(parts) * manifest.batch});
             datum.counted)
      values = all;
  }
  if (manifest.delay && parts > 1)
    invalid("batch: expected one batch of the program, as its schedule '" +
            manifest.schedule + "' updates after each, found " + str(parts));
  // Ranks may still read what was set before.
  auto copy = std::make_shared<GlobalBatch>();
  copy->countedValues = counted.value_or(values);
  copy->values.resize(batch.size());
  for (size_t i = 0; i < batch.size(); ++i) {
    uint64_t bytes = manifest.data[i].bytesPerSample;
    std::vector<char> &to = copy->values[i];
    to.resize(batch[i].size());
    forEachRangeRead(i, parts, [&](SampleRange range) {
      std::memcpy(to.data() + uint64_t(range.first) * bytes,
                  batch[i].data() + uint64_t(range.first) * bytes,
                  uint64_t(range.count) * bytes);
    });
  }
  return copy;
}

void Session::Implementation::setBatch(const DataBatch &batch,
                                       std::optional<uint64_t> counted) {
  uint64_t parts = 1;
  set.batch = copyBatch(batch, counted, parts);
  set.parts = parts;
  set.begun = false;
  set.next.reset();
}

void Session::Implementation::setNextBatch(const DataBatch &batch,
                                           std::optional<uint64_t> counted) {
  if (!program->manifest().delay)
    invalid("schedule '" + program->manifest().schedule +
            "' does not begin with a batch before it has ended the one before "
            "it");
  if (!set.batch)
    invalid("no batch was set");
  uint64_t parts = 1;
  set.next = copyBatch(batch, counted, parts);
}

void Session::Implementation::toNextBatch() {
  set.begun = set.next != nullptr;
  if (set.begun)
    set.batch = std::move(set.next);
}

void Session::Implementation::checkLate() const {
  const std::string &schedule = program->manifest().schedule;
  bool justInTime = program->manifest().updatesJustInTime;
  bool late = program->manifest().delay > 0 || justInTime;
  if (program->manifest().hasHomes() && set.parts > 1)
    invalid("states have their home on the host, so gradients of a batch are "
            "summed in one part: expected one batch of the program, found " +
            str(set.parts));
  std::string what = justInTime ? "a program that updates just in time"
                                : "schedule '" + schedule + "'";
  bool nanLate = state.options.onNan == OnNan::Late;
  if (late && !nanLate)
    invalid(what +
            " updates before all ranks know whether values are finite: "
            "stopping or leaving out the update is not possible, expected "
            "--on-nan=late");
  if (!late && nanLate && program->manifest().clip)
    invalid("--on-nan=late: updates of schedule '" + schedule +
            "' wait for the norm of all gradients, by which they are clipped: "
            "expected a program compiled with --clip=off");
  if (!late && nanLate && state.backend.device)
    invalid("--on-nan=late: on devices steps of schedule '" + schedule +
            "' meet in any case");
  if ((late || nanLate) && set.hyperparameters.skipNorm > 0)
    invalid((late ? what : std::string("--on-nan=late")) +
            " has no gradient norm over all ranks before it updates, so no "
            "update can be left out for it");
}

void Session::Implementation::findSamplesRead() {
  samplesRead.assign(program->manifest().data.size(), {});
  for (const std::unique_ptr<Rank> &rank : local->ranks)
    rank->addSamplesRead(samplesRead);
  for (std::vector<SampleRange> &ranges : samplesRead) {
    std::sort(ranges.begin(), ranges.end(),
              [](SampleRange a, SampleRange b) { return a.first < b.first; });
    size_t kept = 0;
    for (SampleRange range : ranges) {
      SampleRange *last = kept ? &ranges[kept - 1] : nullptr;
      if (last && range.first <= last->first + last->count)
        last->count =
            std::max(last->count, range.first + range.count - last->first);
      else
        ranges[kept++] = range;
    }
    ranges.resize(kept);
  }
}

/// The bytes of 32-bit integers.
static std::vector<char> bytesOf(std::span<const int32_t> values) {
  auto bytes = std::as_bytes(values);
  const char *begin = reinterpret_cast<const char *>(bytes.data());
  return {begin, begin + bytes.size()};
}

Status Session::setBatch(const DataBatch &batch) {
  return guarded([&] { impl->setBatch(batch, std::nullopt); });
}

Status Session::setBatch(const DataBatch &batch, uint64_t counted) {
  return guarded([&] { impl->setBatch(batch, counted); });
}

Status Session::setNextBatch(const DataBatch &batch) {
  return guarded([&] { impl->setNextBatch(batch, std::nullopt); });
}

Status Session::setNextBatch(const DataBatch &batch, uint64_t counted) {
  return guarded([&] { impl->setNextBatch(batch, counted); });
}

bool Session::hasBegun() const { return impl->set.begun; }

bool Session::goesAhead() const { return impl->goesAhead(); }

const SamplesRead &Session::samplesRead() const { return impl->samplesRead; }

Status Session::setBatch(std::span<const int32_t> first,
                         std::span<const int32_t> second) {
  return guarded(
      [&] { impl->setBatch({bytesOf(first), bytesOf(second)}, std::nullopt); });
}

} // namespace grt
