//===- reader.cpp - Programs, read and checked ----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "program/reader.h"
#include "base/error.h"
#include "base/sha256.h"
#include "base/utf8.h"

#include <algorithm>
#include <cstring>

namespace grt {

using namespace gvx;

namespace {

/// The first bytes of an ELF file: a program of ABI 5 or before.
constexpr std::string_view elfMagic = "\177ELF";

struct KnownSection {
  const char *name;
  uint32_t rowBytes;
};
constexpr KnownSection known[sectionCount] = {
    {"functions", sizeof(Function)},
    {"calls", sizeof(Call)},
    {"kernels", sizeof(Kernel)},
    {"collectives", sizeof(Collective)},
    {"events", sizeof(Event)},
    {"buffers", sizeof(grt_buffer)},
    {"integers", sizeof(int64_t)},
    {"reals", sizeof(double)},
    {"roles", sizeof(gvx::Role)},
    {"tasks", sizeof(grt_task)},
    {"transfers", sizeof(grt_transfer_part)},
    {"procedures", sizeof(gvx::Procedure)},
    {"commands", sizeof(gvx::Command)},
    {"places", sizeof(gvx::Place)},
    {"messages", sizeof(gvx::Message)},
    {"names", 1},
    {"manifest", 1}};

/// The row that is being read, for messages.
struct RowAt {
  const char *what = nullptr;
  int64_t number = -1, call = -1;
  const char *part = "call";

  /// "section 'calls': ", "function 3, call 1: ".
  std::string text() const {
    if (!what)
      return "";
    if (number < 0)
      return std::string("section '") + what + "': ";
    return std::string(what) + " " + str(number) +
           (call < 0 ? "" : std::string(", ") + part + " " + str(call)) + ": ";
  }
};

} // namespace

/// Fills a ProgramFile from bytes, in the order of the file.
class ProgramChecker {
public:
  ProgramChecker(std::string_view file, const std::string &label, Digest digest,
                 ProgramFile &result)
      : file(file), label(label), digest(digest), result(result) {}

  void run() {
    checkHeader();
    for (uint32_t i = 0; i < sectionCount; ++i)
      checkSection(i);
    if (end != file.size())
      malformed("expected its last section to end at byte " + str(file.size()) +
                ", found " + str(end));
    names = bytesOf(SectionKind::Names);
    checkNames();
    result.text = bytesOf(SectionKind::Manifest);
    readCalls();
    readRoles();
    readCommands();
  }

private:
  [[noreturn]] void damaged(const std::string &what) const {
    invalid("program '" + label + "' is damaged: " + what);
  }
  [[noreturn]] void malformed(const std::string &what) const {
    invalid("program '" + label + "' is malformed: " + place.text() + what);
  }

  void checkHeader() {
    if (file.starts_with(elfMagic))
      invalid("program '" + label +
              "' is native code, as programs of ABI 5 and before were; this "
              "runtime reads version " +
              str(formatVersion) + ": compile again");
    const std::string_view start(magic.data(), magic.size());
    // A file with another beginning never was a program, so it is not damaged.
    if (!file.starts_with(start.substr(0, file.size())))
      invalid("'" + label +
              "' is not a program: expected a file that galvatron-compile "
              "makes of a model or a planned module (.gvx)");
    if (file.size() < sizeof(Header) + sizeof(sections))
      damaged("expected at least " + str(sizeof(Header) + sizeof(sections)) +
              " bytes, found " + str(file.size()));
    Header header;
    std::memcpy(&header, file.data(), sizeof(header));
    if (header.version != formatVersion)
      invalid("program '" + label + "' has version " + str(header.version) +
              ", this runtime reads version " + str(formatVersion) +
              ": compile again");
    if (header.bytes != file.size())
      damaged("expected " + str(header.bytes) + " bytes, found " +
              str(file.size()));
    if (file.size() > mostBytes)
      malformed("expected at most " + str(mostBytes) + " bytes, found " +
                str(file.size()));
    result.sha256 = digest == Digest::Known
                        ? header.digest
                        : sha256(file.substr(sizeof(Header)));
    if (header.digest != result.sha256)
      damaged("its SHA-256 differs from the one in its header");
    if (header.sections != sectionCount || header.reserved != 0)
      malformed("expected " + str(sectionCount) +
                " sections and 0 behind the digest, found " +
                str(header.sections) + " and " + str(header.reserved));
    std::memcpy(sections, file.data() + sizeof(header), sizeof(sections));
    end = sizeof(header) + sizeof(sections);
  }

  /// The section follows the former one, which ends at `end`.
  void checkSection(uint32_t i) {
    const Section &section = sections[i];
    place = {known[i].name};
    if (section.kind != SectionKind(i) || section.rowBytes != known[i].rowBytes)
      malformed("expected kind " + str(i) + " and rows of " +
                str(known[i].rowBytes) + " bytes, found " +
                str(uint32_t(section.kind)) + " and " + str(section.rowBytes));
    const uint64_t begin =
        (end + sectionAlignment - 1) / sectionAlignment * sectionAlignment;
    if (section.offset != begin)
      malformed("expected it at byte " + str(begin) + ", found " +
                str(section.offset));
    if (begin > file.size() ||
        section.rows > (file.size() - begin) / section.rowBytes)
      malformed(
          "expected at most " +
          str(begin > file.size() ? 0
                                  : (file.size() - begin) / section.rowBytes) +
          " rows, which the file has room for, found " + str(section.rows));
    for (; end < begin; ++end)
      if (file[end] != '\0')
        malformed("expected zeros before it, found " + str(uint8_t(file[end])) +
                  " at byte " + str(end));
    end = begin + section.rows * section.rowBytes;
    place = {};
  }

  template <class Row> std::span<const Row> rows(SectionKind kind) const {
    const Section &section = sections[uint32_t(kind)];
    return {reinterpret_cast<const Row *>(file.data() + section.offset),
            size_t(section.rows)};
  }
  std::string_view bytesOf(SectionKind kind) const {
    const Section &section = sections[uint32_t(kind)];
    return file.substr(section.offset, section.rows);
  }

  /// The range follows the former one, which ended at `next`, in a table of
  /// `size` rows.
  void take(const Range &range, uint64_t &next, uint64_t size,
            const char *what) const {
    if (range.first != next || range.count > size - next)
      malformed(std::string("expected ") + what + " from " + str(next) +
                " on, at most " + str(size - next) + ", found " +
                str(range.count) + " from " + str(range.first) + " on");
    next += range.count;
  }
  /// Throws unless every row of a table has an owner.
  void expectTaken(uint64_t next, uint64_t size, const char *what) const {
    if (next != size)
      malformed(std::string("expected owners for all ") + str(size) + " " +
                what + ", found them for " + str(next));
  }

  /// A number of a row that is one of `count` known ones.
  void expectBelow(uint64_t value, uint64_t count, const char *what) const {
    if (value >= count)
      malformed(std::string("expected ") + what + " below " + str(count) +
                ", found " + str(value));
  }

  /// Checks the table of names as a whole, as rows may share a name.
  void checkNames() const {
    if (!names.empty() && names.back() != '\0')
      malformed("expected a zero behind the last name");
    for (size_t i = 0; i < names.size();) {
      const auto letter = uint8_t(names[i]);
      const size_t bytes = utf8Bytes(names.substr(i));
      if (bytes == 0 || letter == 0x7f || (letter && letter < ' '))
        malformed("expected names in UTF-8 without control characters, found " +
                  str(uint8_t(names[i])) + " at byte " + str(i) + " of them");
      i += bytes;
    }
  }

  const char *nameAt(uint32_t start) const {
    if (start >= names.size() || (start > 0 && names[start - 1] != '\0'))
      malformed("expected its name to start where a name does, found byte " +
                str(start) + " of " + str(names.size()));
    return names.data() + start;
  }

  void checkBuffer(const grt_buffer &buffer) const {
    expectBelow(buffer.region, GRT_REGION_COUNT, "a region");
    expectBelow(buffer.dtype, GRT_U8 + 1, "an element type");
    if (buffer.bytes > UINT64_MAX - buffer.offset)
      malformed("expected an extent below 2^64, found " + str(buffer.bytes) +
                " bytes at " + str(buffer.offset));
  }

  void addKernel(const Kernel &row) {
    const auto integers = rows<int64_t>(SectionKind::Integers);
    const auto reals = rows<double>(SectionKind::Reals);
    expectBelow(row.kernel, GRT_KERNEL_COUNT, "a kernel");
    expectBelow(row.buffers.count, mostBuffers + 1, "a number of buffers");
    take(row.buffers, nextBuffer, result.buffers.size(), "buffers");
    take(row.integers, nextInteger, integers.size(), "integers");
    take(row.reals, nextReal, reals.size(), "reals");
    for (uint32_t i = 0; i < row.buffers.count; ++i)
      checkBuffer(result.buffers[row.buffers.first + i]);
    result.kernels.push_back(
        {row.kernel, row.buffers.count, row.integers.count, row.reals.count,
         result.buffers.data() + row.buffers.first,
         integers.data() + row.integers.first, reals.data() + row.reals.first,
         nameAt(row.name)});
  }

  void addCollective(const Collective &row) {
    expectBelow(row.collective, GRT_COLLECTIVE_COUNT, "a collective");
    expectBelow(row.axis, GRT_AXIS_COUNT, "an axis");
    expectBelow(row.acc, 3, "acc");
    expectBelow(row.stream, GRT_STREAM_COUNT, "a stream");
    const bool shifts = row.collective == GRT_SHIFT;
    const bool counts = row.collective == GRT_ALL_TO_ALL_COUNTS;
    if (shifts && row.argument == 0)
      malformed("expected a distance that is not 0, found 0");
    if (counts && row.argument <= 0)
      malformed("expected bytes of a unit above 0, found " + str(row.argument));
    if (!shifts && !counts && row.argument != 0)
      malformed("expected no argument of a collective, found " +
                str(row.argument));
    checkBuffer(row.in);
    checkBuffer(row.out);
    grt_collective_op op{
        row.collective, row.axis,         row.acc, row.stream, row.in,
        row.out,        nameAt(row.name), 0,       0,          {}};
    if (shifts)
      op.distance = row.argument;
    if (counts) {
      const Range one{uint32_t(nextBuffer), 1};
      take(one, nextBuffer, result.buffers.size(), "buffers");
      op.unit_bytes = uint32_t(row.argument);
      op.counts = result.buffers[one.first];
      checkBuffer(op.counts);
    }
    result.collectives.push_back(op);
  }

  void addEvent(const Event &row) {
    expectBelow(row.event, GRT_FUNCTION_EVENTS, "an event");
    expectBelow(row.stream, GRT_STREAM_COUNT, "a stream");
    expectBelow(row.wait, 2, "a flag");
    const uint64_t bit = uint64_t(1) << row.event;
    if (row.wait && !(recorded & bit))
      malformed("expected event " + str(row.event) +
                " to be recorded before it is waited for");
    recorded |= bit;
    result.events.push_back(
        {row.event, row.stream, row.wait, 0, nameAt(row.name)});
  }

  void addCall(const Call &call) {
    expectBelow(uint32_t(call.kind), uint32_t(CallKind::EndLife) + 1,
                "a kind of call");
    const bool mayDepend =
        call.kind == CallKind::Launch || call.kind == CallKind::Communicate;
    expectBelow(uint32_t(call.when), mayDepend ? 2 : 1,
                "passes in which a call runs");
    const auto kernels = rows<Kernel>(SectionKind::Kernels);
    const auto collectives = rows<Collective>(SectionKind::Collectives);
    const auto events = rows<Event>(SectionKind::Events);
    const Range one{call.index, 1};
    uint64_t next = 0;
    switch (call.kind) {
    case CallKind::Launch:
      take(one, next = result.kernels.size(), kernels.size(), "kernels");
      return addKernel(kernels[call.index]);
    case CallKind::Communicate:
      take(one, next = result.collectives.size(), collectives.size(),
           "collectives");
      return addCollective(collectives[call.index]);
    case CallKind::Order:
      take(one, next = result.events.size(), events.size(), "events");
      return addEvent(events[call.index]);
    case CallKind::BeginLife:
    case CallKind::EndLife:
      take(one, nextBuffer, result.buffers.size(), "buffers");
      return checkBuffer(result.buffers[call.index]);
    }
  }

  void readCalls() {
    result.functions = rows<Function>(SectionKind::Functions);
    result.allCalls = rows<Call>(SectionKind::Calls);
    result.buffers = rows<grt_buffer>(SectionKind::Buffers);
    uint64_t nextCall = 0;
    for (size_t f = 0; f < result.functions.size(); ++f) {
      place = {"function", int64_t(f)};
      const Range &calls = result.functions[f].calls;
      take(calls, nextCall, result.allCalls.size(), "calls");
      recorded = 0;
      for (uint32_t i = 0; i < calls.count; ++i) {
        place.call = i;
        addCall(result.allCalls[calls.first + i]);
      }
    }
    place = {};
    expectTaken(nextCall, result.allCalls.size(), "calls");
    expectTaken(result.kernels.size(),
                rows<Kernel>(SectionKind::Kernels).size(), "kernels");
    expectTaken(result.collectives.size(),
                rows<Collective>(SectionKind::Collectives).size(),
                "collectives");
    expectTaken(result.events.size(), rows<Event>(SectionKind::Events).size(),
                "events");
    expectTaken(nextBuffer, result.buffers.size(), "buffers");
    expectTaken(nextInteger, rows<int64_t>(SectionKind::Integers).size(),
                "integers");
    expectTaken(nextReal, rows<double>(SectionKind::Reals).size(), "reals");
  }

  void readRoles() {
    const auto tasks = rows<grt_task>(SectionKind::Tasks);
    const auto transfers = rows<grt_transfer_part>(SectionKind::Transfers);
    const auto roles = rows<gvx::Role>(SectionKind::Roles);
    uint64_t nextTask = 0, nextTransfer = 0;
    for (size_t r = 0; r < roles.size(); ++r) {
      place = {"role", int64_t(r)};
      grt_schedule schedule{};
      for (int part = 0; part < GRT_PART_COUNT; ++part) {
        const Range &range = roles[r].parts[part];
        take(range, nextTask, tasks.size(), "tasks");
        schedule.parts[part] = {tasks.data() + range.first, range.count};
      }
      const Range &parts = roles[r].transfers;
      take(parts, nextTransfer, transfers.size(), "transfers");
      schedule.transfers = transfers.data() + parts.first;
      schedule.transfer_count = parts.count;
      result.roles.push_back(schedule);
    }
    place = {};
    expectTaken(nextTask, tasks.size(), "tasks");
    expectTaken(nextTransfer, transfers.size(), "transfers");
  }

  //===--------------------------------------------------------------------===//
  // Commands
  //===--------------------------------------------------------------------===//

  /// Places are numbered in the order in which rows name them: `named` are so
  /// far. 0 is none.
  void takePlace(uint32_t number, uint32_t &named, uint32_t count) const {
    expectBelow(number, uint64_t(std::min(named + 1, count)) + 1, "a place");
    named = std::max(named, number);
  }

  void checkCommand(const gvx::Command &row) const {
    expectBelow(uint8_t(row.kind), commandKindCount, "a kind of command");
    expectBelow(uint8_t(row.when), whenCount, "when it is run");
    expectBelow(uint8_t(row.phase), layerPhaseCount, "a phase");
    expectBelow(row.stream, GRT_STREAM_COUNT, "a stream");
  }

  void checkMessage(const gvx::Message &row) const {
    expectBelow(row.direction, GRT_RECEIVE + 1, "a direction");
    expectBelow(row.value, GRT_STASH + 1, "a value");
    expectBelow(uint8_t(row.shared), uint8_t(gvx::Shared::WithBuffer) + 1,
                "with whom its place is shared");
    expectBelow(row.home, 3, "an end at home");
  }

  void readCommands() {
    const auto procedures = rows<gvx::Procedure>(SectionKind::Procedures);
    const auto places = rows<gvx::Place>(SectionKind::Places);
    const auto messages = rows<gvx::Message>(SectionKind::Messages);
    const auto roles = rows<gvx::Role>(SectionKind::Roles);
    result.allCommands = rows<gvx::Command>(SectionKind::Commands);
    uint64_t nextProcedure = 0, nextPlace = 0, nextMessage = 0;
    uint64_t nextCommand = 0;
    for (size_t r = 0; r < roles.size(); ++r) {
      const gvx::Role &role = roles[r];
      place = {"role", int64_t(r)};
      take(role.procedures, nextProcedure, procedures.size(), "procedures");
      take(role.places, nextPlace, places.size(), "places");
      take(role.messages, nextMessage, messages.size(), "messages");
      const ProgramFile::RoleCommands of{
          procedures.subspan(role.procedures.first, role.procedures.count),
          places.subspan(role.places.first, role.places.count),
          messages.subspan(role.messages.first, role.messages.count)};
      uint32_t named = 0;
      for (size_t i = 0; i < of.procedures.size(); ++i) {
        const gvx::Procedure &procedure = of.procedures[i];
        place.part = "procedure";
        place.call = int64_t(i);
        expectBelow(procedure.needsHost, 2, "a mark that is 0 or 1");
        expectBelow(procedure.reserved, 1, "a reserved field");
        take(procedure.commands, nextCommand, result.allCommands.size(),
             "commands");
        for (const gvx::Command &row : result.commands(procedure)) {
          checkCommand(row);
          takePlace(row.to, named, role.places.count);
          takePlace(row.from, named, role.places.count);
        }
      }
      for (size_t i = 0; i < of.messages.size(); ++i) {
        place.part = "message";
        place.call = int64_t(i);
        checkMessage(of.messages[i]);
        takePlace(of.messages[i].place, named, role.places.count);
      }
      place = {"role", int64_t(r)};
      expectTaken(named, role.places.count, "places");
      result.ofRoles.push_back(of);
    }
    place = {};
    expectTaken(nextProcedure, procedures.size(), "procedures");
    expectTaken(nextCommand, result.allCommands.size(), "commands");
    expectTaken(nextPlace, places.size(), "places");
    expectTaken(nextMessage, messages.size(), "messages");
  }

  std::string_view file;
  const std::string &label;
  const Digest digest;
  ProgramFile &result;
  Section sections[sectionCount] = {};
  /// End of the sections that were checked.
  uint64_t end = 0;
  std::string_view names;
  uint64_t nextBuffer = 0, nextInteger = 0, nextReal = 0;
  /// Events that the function at hand has recorded.
  uint64_t recorded = 0;
  RowAt place;
};

ProgramFile::ProgramFile(std::string_view bytes, const std::string &name,
                         Digest digest) {
  ProgramChecker(bytes, name, digest, *this).run();
}

std::string gvx::refusal(std::string_view file, const std::string &name,
                         Digest digest) {
  return guarded([&] { ProgramFile(file, name, digest); }).message();
}

} // namespace grt
