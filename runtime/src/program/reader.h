//===- reader.h - Programs, read and checked --------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_PROGRAM_READER_H
#define GRT_PROGRAM_READER_H

#include "grt/program_file.h"

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace grt {

/// The tables of a program as views of its file's bytes, which are checked once
/// and never written:
///
///  1. The file begins with the magic and the version of this runtime, is as
///     long as its header says, and has the digest of its header.
///  2. Every section is there, in order, with rows of the known size, directly
///     behind the former one but for alignment; what is between them is zero,
///     and nothing follows the last one.
///  3. Ranges follow each other and cover their sections: calls of functions;
///     descriptors of calls; buffers, integers and reals of kernels; tasks of
///     the parts of roles; parts of transfers; procedures, places and messages
///     of roles, and commands of procedures. So walking all of a program takes
///     as long as its file is large.
///  4. Kernels, regions, element types, collectives, axes, streams, events and
///     their flags are known ones; extents of buffers do not overflow; an event
///     is recorded before it is waited for; commands and messages have known
///     kinds and name places of their role; reserved fields are 0.
///  5. Names are UTF-8 without control characters, start where a name starts
///  and
///     end in a zero.
///
/// Whether a kernel's descriptor suits the kernel, and a task its role, is for
/// those who know kernels and manifests (wrongCall, checkTable, checkCommands).
class ProgramFile {
public:
  /// The commands of a role's tasks, as views of the file.
  struct RoleCommands {
    std::span<const gvx::Procedure> procedures;
    std::span<const gvx::Place> places; ///< that of number n is [n - 1]
    std::span<const gvx::Message> messages;
  };

  /// Reads bytes that outlive this object and begin at a multiple of
  /// gvx::sectionAlignment. `name` is used in messages. Throws Error (2) that
  /// says what was expected and found. Memory beside the bytes is at most twice
  /// theirs.
  ProgramFile(std::string_view bytes, const std::string &name,
              gvx::Digest digest = gvx::Digest::Compared);
  ProgramFile(const ProgramFile &) = delete;
  ProgramFile &operator=(const ProgramFile &) = delete;

  std::string_view manifest() const { return text; }
  /// SHA-256 of what is behind the header.
  const std::array<uint8_t, 32> &digest() const { return sha256; }

  size_t functionCount() const { return functions.size(); }
  std::span<const gvx::Call> calls(size_t function) const {
    const gvx::Range range = functions[function].calls;
    return allCalls.subspan(range.first, range.count);
  }
  /// Descriptors by the index of a call. Their addresses stay as long as the
  /// object.
  const grt_kernel_op &kernel(uint32_t index) const { return kernels[index]; }
  const grt_collective_op &collective(uint32_t index) const {
    return collectives[index];
  }
  const grt_event_op &event(uint32_t index) const { return events[index]; }
  const grt_buffer &buffer(uint32_t index) const { return buffers[index]; }

  /// Schedules, one for each role.
  std::span<const grt_schedule> schedules() const { return roles; }
  const RoleCommands &ofRole(size_t role) const { return ofRoles[role]; }
  std::span<const gvx::Command> commands(const gvx::Procedure &of) const {
    return allCommands.subspan(of.commands.first, of.commands.count);
  }

private:
  friend class ProgramChecker;

  std::array<uint8_t, 32> sha256 = {};
  std::string_view text;
  std::span<const gvx::Function> functions;
  std::span<const gvx::Call> allCalls;
  std::span<const grt_buffer> buffers;
  std::vector<grt_kernel_op> kernels;
  std::vector<grt_collective_op> collectives;
  std::vector<grt_event_op> events;
  std::vector<grt_schedule> roles;
  std::span<const gvx::Command> allCommands;
  std::vector<RoleCommands> ofRoles;
};

} // namespace grt

#endif // GRT_PROGRAM_READER_H
