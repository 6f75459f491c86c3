//===- writer.cpp - Files of programs -------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "base/sha256.h"
#include "grt/program_file.h"

#include <cassert>
#include <cstring>

namespace grt::gvx {
namespace {

/// The rows of a section as bytes.
struct Contents {
  SectionKind kind;
  uint32_t rowBytes;
  std::string_view bytes;
};

template <class Rows> Contents contents(SectionKind kind, const Rows &rows) {
  using Row = typename Rows::value_type;
  return {
      kind,
      sizeof(Row),
      {reinterpret_cast<const char *>(rows.data()), rows.size() * sizeof(Row)}};
}

std::array<Contents, sectionCount> contentsOf(const Tables &tables) {
  return {contents(SectionKind::Functions, tables.functions),
          contents(SectionKind::Calls, tables.calls),
          contents(SectionKind::Kernels, tables.kernels),
          contents(SectionKind::Collectives, tables.collectives),
          contents(SectionKind::Events, tables.events),
          contents(SectionKind::Buffers, tables.buffers),
          contents(SectionKind::Integers, tables.integers),
          contents(SectionKind::Reals, tables.reals),
          contents(SectionKind::Roles, tables.roles),
          contents(SectionKind::Tasks, tables.tasks),
          contents(SectionKind::Transfers, tables.transfers),
          contents(SectionKind::Procedures, tables.procedures),
          contents(SectionKind::Commands, tables.commands),
          contents(SectionKind::Places, tables.places),
          contents(SectionKind::Messages, tables.messages),
          contents(SectionKind::Names, tables.names),
          contents(SectionKind::Manifest, tables.manifest)};
}

uint64_t alignedUp(uint64_t offset) {
  return (offset + sectionAlignment - 1) / sectionAlignment * sectionAlignment;
}

/// The table of sections, and the bytes of the whole file.
std::pair<std::array<Section, sectionCount>, uint64_t>
place(const std::array<Contents, sectionCount> &all) {
  std::array<Section, sectionCount> sections{};
  uint64_t end = sizeof(Header) + sizeof(sections);
  for (size_t i = 0; i < all.size(); ++i) {
    const uint64_t offset = alignedUp(end);
    sections[i] = {all[i].kind, all[i].rowBytes, offset,
                   all[i].bytes.size() / all[i].rowBytes};
    end = offset + all[i].bytes.size();
  }
  return {sections, end};
}

} // namespace

std::string Tables::file() const {
  const std::array<Contents, sectionCount> all = contentsOf(*this);
  const auto [sections, bytes] = place(all);
  std::string file(bytes, '\0');
  const Header header{magic, formatVersion, sectionCount, bytes, {}, 0};
  std::memcpy(file.data(), &header, sizeof(header));
  std::memcpy(file.data() + sizeof(header), sections.data(), sizeof(sections));
  for (size_t i = 0; i < all.size(); ++i)
    all[i].bytes.copy(file.data() + sections[i].offset, all[i].bytes.size());
  seal(file);
  return file;
}

void seal(std::string &file) {
  assert(file.size() >= sizeof(Header));
  const std::array<uint8_t, 32> digest =
      sha256(std::string_view(file).substr(sizeof(Header)));
  std::memcpy(file.data() + offsetof(Header, digest), digest.data(),
              digest.size());
}

void ProgramBuilder::beginFunction() {
  tables.functions.push_back({{uint32_t(tables.calls.size()), 0}});
}

void ProgramBuilder::addCall(CallKind kind, size_t index) {
  assert(!tables.functions.empty());
  tables.calls.push_back({kind, CallWhen::Always, uint32_t(index)});
  ++tables.functions.back().calls.count;
}

uint32_t ProgramBuilder::nameOf(std::string_view name) {
  auto [it, isNew] =
      starts.try_emplace(std::string(name), uint32_t(tables.names.size()));
  if (isNew)
    tables.names.append(name).push_back('\0');
  return it->second;
}

void ProgramBuilder::launch(uint32_t kernel,
                            std::span<const grt_buffer> buffers,
                            std::span<const int64_t> integers,
                            std::span<const double> reals,
                            std::string_view name) {
  auto append = [](auto &table, const auto &rows) {
    const Range range{uint32_t(table.size()), uint32_t(rows.size())};
    table.insert(table.end(), rows.begin(), rows.end());
    return range;
  };
  addCall(CallKind::Launch, tables.kernels.size());
  tables.kernels.push_back(
      {kernel, nameOf(name), append(tables.buffers, buffers),
       append(tables.integers, integers), append(tables.reals, reals)});
}

void ProgramBuilder::communicate(Collective row, std::string_view name,
                                 const grt_buffer *counts) {
  assert((counts != nullptr) == (row.collective == GRT_ALL_TO_ALL_COUNTS));
  if (counts)
    tables.buffers.push_back(*counts);
  row.name = nameOf(name);
  addCall(CallKind::Communicate, tables.collectives.size());
  tables.collectives.push_back(row);
}

void ProgramBuilder::order(uint32_t event, uint32_t stream, bool waits,
                           std::string_view name) {
  addCall(CallKind::Order, tables.events.size());
  tables.events.push_back({event, stream, waits, nameOf(name)});
}

void ProgramBuilder::beginLife(const grt_buffer &buffer) {
  addCall(CallKind::BeginLife, tables.buffers.size());
  tables.buffers.push_back(buffer);
}

void ProgramBuilder::endLife(const grt_buffer &buffer) {
  addCall(CallKind::EndLife, tables.buffers.size());
  tables.buffers.push_back(buffer);
}

void ProgramBuilder::beginRole() {
  Role role{};
  for (Range &part : role.parts)
    part.first = uint32_t(tables.tasks.size());
  role.transfers.first = uint32_t(tables.transfers.size());
  tables.roles.push_back(role);
}

void ProgramBuilder::addTask(grt_part part, grt_task task,
                             std::span<const grt_transfer_part> transfers) {
  assert(!tables.roles.empty());
  Role &role = tables.roles.back();
  if (!transfers.empty()) {
    task.first = role.transfers.count;
    task.count = uint16_t(transfers.size());
    tables.transfers.insert(tables.transfers.end(), transfers.begin(),
                            transfers.end());
    role.transfers.count += uint32_t(transfers.size());
  }
  tables.tasks.push_back(task);
  ++role.parts[part].count;
  for (int later = part + 1; later < GRT_PART_COUNT; ++later) {
    assert(role.parts[later].count == 0 && "parts are added in their order");
    ++role.parts[later].first;
  }
}

std::string ProgramBuilder::finish(std::string_view manifest,
                                   std::string &problem) {
  tables.manifest = manifest;
  lowerTasks(tables);
  const uint64_t bytes = place(contentsOf(tables)).second;
  if (bytes > mostBytes) {
    problem = "expected a program of at most " + std::to_string(mostBytes) +
              " bytes, found " + std::to_string(bytes);
    return "";
  }
  std::string file = tables.file();
  problem = refusal(file, "it", Digest::Known);
  return problem.empty() ? file : "";
}

} // namespace grt::gvx
