//===- program_file.h - The format of compiled programs ---------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A program (`.gvx`) is data: a header, a table of sections, and the sections,
// which are tables of rows without pointers. docs/formats.md describes it byte
// by byte. All numbers are little-endian. Equal programs are equal bytes: the
// order of everything follows from the order of calls, and what is between
// sections is zero.
//
// The compiler and the tests write programs with ProgramBuilder; the runtime
// reads them with ProgramFile (program/reader.h) and with nothing else.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_PROGRAM_FILE_H
#define GRT_PROGRAM_FILE_H

#include "grt/abi.h"

#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace grt::gvx {

static_assert(std::endian::native == std::endian::little,
              "rows of programs are read in place");

/// The first bytes of a program. The bytes around the name are changed by a
/// transfer that takes the file for text.
inline constexpr std::array<char, 8> magic = {'\x89', 'G',  'V',    'X',
                                              '\r',   '\n', '\x1a', '\n'};

/// Sections start at multiples of this many bytes.
inline constexpr uint64_t sectionAlignment = 16;
/// A program has at most so many bytes.
inline constexpr uint64_t mostBytes = uint64_t(1) << 30;
/// A call of a kernel has at most so many buffers.
inline constexpr uint32_t mostBuffers = 16;

struct Header {
  std::array<char, 8> magic;
  uint32_t version;  ///< GRT_ABI_VERSION
  uint32_t sections; ///< sectionCount
  uint64_t bytes;    ///< of the whole file
  /// SHA-256 of all bytes behind the header.
  std::array<uint8_t, 32> digest;
  uint64_t reserved; ///< 0
};
static_assert(sizeof(Header) == 64);

/// All sections, in the order of the file. Each is there, if only with no rows.
enum class SectionKind : uint32_t {
  Functions = 0,   ///< Function
  Calls = 1,       ///< Call
  Kernels = 2,     ///< Kernel
  Collectives = 3, ///< Collective
  Events = 4,      ///< Event
  Buffers = 5,     ///< grt_buffer
  Integers = 6,    ///< int64_t
  Reals = 7,       ///< double
  Roles = 8,       ///< Role
  Tasks = 9,       ///< grt_task
  Transfers = 10,  ///< grt_transfer_part
  Names = 11,      ///< bytes: names, each ended by a zero
  Manifest = 12    ///< bytes: JSON text
};
inline constexpr uint32_t sectionCount = 13;

/// A row of the table of sections, which follows the header.
struct Section {
  SectionKind kind;
  uint32_t rowBytes;
  uint64_t offset; ///< from the beginning of the file
  uint64_t rows;
};
static_assert(sizeof(Section) == 24);

/// Rows of another section. Ranges of one kind follow each other without gaps
/// and cover their section: every row belongs to one owner.
struct Range {
  uint32_t first;
  uint32_t count;
};

/// A layer function is a range of calls. Functions are numbered as in the
/// manifest.
struct Function {
  Range calls;
};
static_assert(sizeof(Function) == 8);

enum class CallKind : uint32_t {
  Launch = 0,      ///< a kernel; `index` is a row of Kernels
  Communicate = 1, ///< a collective; a row of Collectives
  Order = 2,       ///< an event between streams; a row of Events
  BeginLife = 3,   ///< a buffer's bytes count as live; a row of Buffers
  EndLife = 4      ///< they count no longer
};

struct Call {
  CallKind kind;
  uint32_t index;
};
static_assert(sizeof(Call) == 8);

/// The descriptor of a call of a kernel: grt_kernel_op without pointers.
struct Kernel {
  uint32_t kernel; ///< grt_kernel
  uint32_t name;   ///< byte of Names where the name starts
  Range buffers, integers, reals;
};
static_assert(sizeof(Kernel) == 32);

/// grt_collective_op without pointers.
struct Collective {
  uint32_t collective; ///< grt_collective
  uint32_t axis;       ///< grt_axis
  uint32_t acc;
  uint32_t stream; ///< grt_stream
  uint32_t name;
  /// SHIFT: distance; ALL_TO_ALL_COUNTS: bytes of a unit, whose counts are the
  /// next row of Buffers; else 0.
  int32_t argument;
  grt_buffer in, out;
};
static_assert(sizeof(Collective) == 72);

/// grt_event_op without pointers.
struct Event {
  uint32_t event;
  uint32_t stream; ///< grt_stream
  uint32_t wait;
  uint32_t name;
};
static_assert(sizeof(Event) == 16);

/// The schedule of a role: its parts as ranges of Tasks, and the parts of its
/// transfers. Roles are numbered as in the manifest.
struct Role {
  Range parts[GRT_PART_COUNT];
  Range transfers;
};
static_assert(sizeof(Role) == 48);

static_assert(sizeof(grt_buffer) == 24 && sizeof(grt_task) == 24 &&
              sizeof(grt_transfer_part) == 16);

/// The sections of a program in memory.
struct Tables {
  std::vector<Function> functions;
  std::vector<Call> calls;
  std::vector<Kernel> kernels;
  std::vector<Collective> collectives;
  std::vector<Event> events;
  std::vector<grt_buffer> buffers;
  std::vector<int64_t> integers;
  std::vector<double> reals;
  std::vector<Role> roles;
  std::vector<grt_task> tasks;
  std::vector<grt_transfer_part> transfers;
  std::string names, manifest;

  /// The file of these tables as they are, right or wrong.
  std::string file() const;
};

/// Writes the digest of a file's bytes into its header, which must be there.
void seal(std::string &file);

/// Whether a file's digest is compared with that of its bytes, or known to be
/// theirs, as they were sealed just now.
enum class Digest { Compared, Known };

/// Why the runtime refuses a file by itself, without its manifest; "" if it
/// does not. `name` is used in the message.
std::string refusal(std::string_view file, const std::string &name,
                    Digest digest = Digest::Compared);

/// Why the runtime refuses a whole program when it loads it or makes its ranks:
/// refusal(), and its manifest, what lies where, calls of kernels, schedules
/// and functions as they agree with each other. "" if it does not.
std::string loadRefusal(std::string_view file, const std::string &name,
                        Digest digest = Digest::Compared);

/// Makes the tables of a program from its calls and tasks in their order.
class ProgramBuilder {
public:
  /// Calls from here on belong to the next function.
  void beginFunction();
  void launch(uint32_t kernel, std::span<const grt_buffer> buffers,
              std::span<const int64_t> integers, std::span<const double> reals,
              std::string_view name);
  /// `row.name` is set here. `counts` are those of ALL_TO_ALL_COUNTS.
  void communicate(Collective row, std::string_view name,
                   const grt_buffer *counts = nullptr);
  void order(uint32_t event, uint32_t stream, bool waits,
             std::string_view name);
  void beginLife(const grt_buffer &buffer);
  void endLife(const grt_buffer &buffer);

  /// Tasks from here on belong to the next role.
  void beginRole();
  /// Parts are added in their order. A task that transfers is given its parts
  /// here.
  void addTask(grt_part part, grt_task task,
               std::span<const grt_transfer_part> transfers = {});

  /// The file of what was added, with a manifest (JSON text). Empty if the
  /// runtime would refuse it; `problem` then says what was expected and found.
  std::string finish(std::string_view manifest, std::string &problem);

  /// The rows so far.
  Tables tables;

private:
  void addCall(CallKind kind, size_t index);
  uint32_t nameOf(std::string_view name);

  /// Where each name starts; a name is there once.
  std::unordered_map<std::string, uint32_t> starts;
};

} // namespace grt::gvx

#endif // GRT_PROGRAM_FILE_H
