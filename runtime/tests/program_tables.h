//===- program_tables.h - The tables of a file ------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_TESTS_PROGRAM_TABLES_H
#define GRT_TESTS_PROGRAM_TABLES_H

#include "grt/program_file.h"

#include <cstring>
#include <string>

namespace grt::test {

/// The tables of a program in its file, to be changed.
inline gvx::Tables tablesOf(const std::string &file) {
  gvx::Section sections[gvx::sectionCount];
  std::memcpy(sections, file.data() + sizeof(gvx::Header), sizeof(sections));
  gvx::Tables tables;
  auto copy = [&](gvx::SectionKind kind, auto &rows) {
    const gvx::Section &section = sections[uint32_t(kind)];
    rows.resize(section.rows);
    if (section.rows)
      std::memcpy(rows.data(), file.data() + section.offset,
                  section.rows * section.rowBytes);
  };
  copy(gvx::SectionKind::Functions, tables.functions);
  copy(gvx::SectionKind::Calls, tables.calls);
  copy(gvx::SectionKind::Kernels, tables.kernels);
  copy(gvx::SectionKind::Collectives, tables.collectives);
  copy(gvx::SectionKind::Events, tables.events);
  copy(gvx::SectionKind::Buffers, tables.buffers);
  copy(gvx::SectionKind::Integers, tables.integers);
  copy(gvx::SectionKind::Reals, tables.reals);
  copy(gvx::SectionKind::Roles, tables.roles);
  copy(gvx::SectionKind::Tasks, tables.tasks);
  copy(gvx::SectionKind::Transfers, tables.transfers);
  copy(gvx::SectionKind::Procedures, tables.procedures);
  copy(gvx::SectionKind::Commands, tables.commands);
  copy(gvx::SectionKind::Places, tables.places);
  copy(gvx::SectionKind::Messages, tables.messages);
  copy(gvx::SectionKind::Names, tables.names);
  copy(gvx::SectionKind::Manifest, tables.manifest);
  return tables;
}

} // namespace grt::test

#endif // GRT_TESTS_PROGRAM_TABLES_H
