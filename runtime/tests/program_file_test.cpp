//===- program_file_test.cpp - The format of programs, and its refusals ---===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "base/error.h"
#include "core/program_text.h"
#include "program/reader.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <random>

using namespace grt;

namespace {

const grt_buffer input{GRT_REGION_INPUT, GRT_F32, 0, 64},
    output{GRT_REGION_OUTPUT, GRT_F32, 64, 64},
    stash{GRT_REGION_STASH, GRT_BF16, 128, 32},
    counts{GRT_REGION_STASH, GRT_I32, 192, 16};

/// Two functions with calls of every kind, two roles, one transfer each way.
gvx::ProgramBuilder made() {
  gvx::ProgramBuilder program;
  program.beginFunction();
  program.beginLife(stash);
  program.launch(GRT_KERNEL_SCALE, {{input, output}}, {{16}}, {{2.5}}, "twice");
  program.order(3, GRT_STREAM_COMPUTE, false, "record");
  program.order(3, GRT_STREAM_GATHER, true, "wait");
  program.communicate(
      {GRT_ALL_GATHER, GRT_AXIS_SDP, 0, GRT_STREAM_GATHER, 0, 0, input, output},
      "gathered");
  program.endLife(stash);
  program.beginFunction();
  program.launch(GRT_KERNEL_ADD, {{input, input, output}}, {{16}}, {}, "twice");
  for (uint8_t direction : {GRT_SEND, GRT_RECEIVE}) {
    grt_task task{};
    grt_transfer_part part{};
    program.beginRole();
    program.addTask(GRT_PART_STEADY, task);
    task.kind = GRT_TASK_TRANSFER;
    part.direction = direction;
    part.chunk = direction;
    part.peer_chunk = uint16_t(1 - direction);
    program.addTask(GRT_PART_STEADY, task, {{part}});
    task = {};
    task.kind = GRT_TASK_NORM;
    program.addTask(GRT_PART_STEP_END, task);
  }
  program.tables.manifest = "{}";
  return program;
}

std::string readOf(const std::string &file) { return gvx::refusal(file, "p"); }

TEST(ProgramFile, HoldsWhatWasWritten) {
  const std::string file = made().tables.file();
  ASSERT_EQ(readOf(file), "");
  const ProgramFile program(file, "p");
  EXPECT_EQ(program.manifest(), "{}");
  ASSERT_EQ(program.functionCount(), 2u);
  std::vector<std::string> text;
  for (size_t f : {0, 1})
    for (const gvx::Call &call : program.calls(f))
      text.push_back(textOf(program, call));
  EXPECT_EQ(text,
            (std::vector<std::string>{
                "begin stash[128, 160) bf16",
                "scale 'twice': x input[0, 64) f32, y output[64, 128) f32; n "
                "16; reals 2.5",
                "record 3 on compute", "wait for 3 on gather",
                "all-gather 'gathered' over sdp on gather: input[0, 64) f32 to "
                "output[64, 128) f32",
                "end stash[128, 160) bf16",
                "add 'twice': a input[0, 64) f32, b input[0, 64) f32, y "
                "output[64, 128) f32; n 16"}));
  // Names are there once.
  EXPECT_EQ(program.kernel(0).name, program.kernel(1).name);
  ASSERT_EQ(program.schedules().size(), 2u);
  const grt_schedule &second = program.schedules()[1];
  EXPECT_EQ(second.parts[GRT_PART_STEADY].count, 2u);
  EXPECT_EQ(second.parts[GRT_PART_STEP_END].count, 1u);
  EXPECT_EQ(second.parts[GRT_PART_EVALUATE].count, 0u);
  EXPECT_EQ(second.transfer_count, 1u);
  EXPECT_EQ(textOf(second.parts[GRT_PART_STEADY].tasks[1], second),
            "transfer: receive activation of micro-batch 0 for chunk 1 from 0, "
            "slot 0");
}

TEST(ProgramFile, EqualProgramsAreEqualBytes) {
  const std::string file = made().tables.file();
  EXPECT_EQ(file, made().tables.file());
  // Bytes between sections are zero.
  gvx::Section sections[gvx::sectionCount];
  std::memcpy(sections, file.data() + sizeof(gvx::Header), sizeof(sections));
  size_t end = sizeof(gvx::Header) + sizeof(sections);
  for (const gvx::Section &section : sections) {
    EXPECT_EQ(section.offset % gvx::sectionAlignment, 0u);
    for (; end < section.offset; ++end)
      EXPECT_EQ(file[end], '\0') << end;
    end = section.offset + section.rows * section.rowBytes;
  }
  EXPECT_EQ(end, file.size());
}

TEST(ProgramFile, AnEmptyProgramIsOne) {
  EXPECT_EQ(readOf(gvx::Tables().file()), "");
}

TEST(ProgramFile, HeadersAndSectionsAreChecked) {
  const std::string good = made().tables.file();
  /// Changes a number, and makes the digest right.
  auto with = [&](size_t place, auto value) {
    std::string file = good;
    std::memcpy(file.data() + place, &value, sizeof(value));
    gvx::seal(file);
    return readOf(file);
  };
  auto ofSection = [](gvx::SectionKind kind, size_t field) {
    return sizeof(gvx::Header) + uint32_t(kind) * sizeof(gvx::Section) + field;
  };
  const std::string is = "program 'p' is malformed: ";
  EXPECT_EQ(with(offsetof(gvx::Header, sections), uint32_t(12)),
            is +
                "expected 17 sections and 0 behind the digest, found 12 and 0");
  EXPECT_EQ(with(offsetof(gvx::Header, reserved), uint64_t(7)),
            is +
                "expected 17 sections and 0 behind the digest, found 17 and 7");
  EXPECT_EQ(with(ofSection(gvx::SectionKind::Calls, 0), uint32_t(2)),
            is + "section 'calls': expected kind 1 and rows of 8 bytes, found "
                 "2 and 8");
  EXPECT_EQ(with(ofSection(gvx::SectionKind::Tasks, 4), uint32_t(32)),
            is + "section 'tasks': expected kind 9 and rows of 24 bytes, found "
                 "9 and 32");
  EXPECT_EQ(with(ofSection(gvx::SectionKind::Functions, 8), uint64_t(496)),
            is + "section 'functions': expected it at byte 480, found 496");
  const size_t rows = (good.size() - 480) / 8;
  for (uint64_t many : {uint64_t(rows + 1), uint64_t(1) << 61, UINT64_MAX})
    EXPECT_EQ(with(ofSection(gvx::SectionKind::Functions, 16), many),
              is + "section 'functions': expected at most " +
                  std::to_string(rows) +
                  " rows, which the file has room for, found " +
                  std::to_string(many));
  EXPECT_EQ(with(ofSection(gvx::SectionKind::Manifest, 16), uint64_t(1)),
            is + "expected its last section to end at byte " +
                std::to_string(good.size()) + ", found " +
                std::to_string(good.size() - 1));
  // The table of sections ends at byte 472.
  EXPECT_EQ(with(476, uint8_t(9)), is + "section 'functions': expected zeros "
                                        "before it, found 9 at byte 476");
}

struct Refused {
  std::string message; ///< behind "program 'p' is malformed: "; "": accepted
  std::function<void(gvx::Tables &)> change;
};

void expectRefusals(const std::vector<Refused> &rows) {
  for (size_t i = 0; i < rows.size(); ++i) {
    gvx::Tables tables = made().tables;
    rows[i].change(tables);
    EXPECT_EQ(readOf(tables.file()),
              rows[i].message.empty()
                  ? ""
                  : "program 'p' is malformed: " + rows[i].message)
        << "row " << i;
  }
}

TEST(ProgramFile, RangesCoverTheirTables) {
  expectRefusals(
      {{"function 1: expected calls from 6 on, at most 1, found 1 from 5 on",
        [](gvx::Tables &t) { t.functions[1].calls.first = 5; }},
       {"function 1: expected calls from 6 on, at most 1, found 2 from 6 on",
        [](gvx::Tables &t) { t.functions[1].calls.count = 2; }},
       {"expected owners for all 7 calls, found them for 6",
        [](gvx::Tables &t) { t.functions[1].calls.count = 0; }},
       {"function 1, call 0: expected kernels from 1 on, at most 1, found 1 "
        "from 0 on",
        [](gvx::Tables &t) { t.calls[6].index = 0; }},
       {"expected owners for all 3 kernels, found them for 2",
        [](gvx::Tables &t) { t.kernels.push_back(t.kernels[0]); }},
       {"function 0, call 4: expected collectives from 0 on, at most 1, found "
        "1 from 1 on",
        [](gvx::Tables &t) { t.calls[4].index = 1; }},
       {"expected owners for all 2 collectives, found them for 1",
        [](gvx::Tables &t) { t.collectives.push_back(t.collectives[0]); }},
       {"function 0, call 3: expected events from 1 on, at most 1, found 1 "
        "from "
        "0 on",
        [](gvx::Tables &t) { t.calls[3].index = 0; }},
       {"expected owners for all 3 events, found them for 2",
        [](gvx::Tables &t) { t.events.push_back(t.events[0]); }},
       {"function 0, call 0: expected buffers from 0 on, at most 7, found 1 "
        "from 3 on",
        [](gvx::Tables &t) { t.calls[0].index = 3; }},
       {"function 0, call 1: expected buffers from 1 on, at most 6, found 2 "
        "from 0 on",
        [](gvx::Tables &t) { t.kernels[0].buffers.first = 0; }},
       {"expected owners for all 8 buffers, found them for 7",
        [](gvx::Tables &t) { t.buffers.push_back(input); }},
       {"function 1, call 0: expected integers from 1 on, at most 1, found 2 "
        "from 1 on",
        [](gvx::Tables &t) { t.kernels[1].integers.count = 2; }},
       {"expected owners for all 3 integers, found them for 2",
        [](gvx::Tables &t) { t.integers.push_back(1); }},
       {"function 0, call 1: expected reals from 0 on, at most 1, found 1 from "
        "4294967295 on",
        [](gvx::Tables &t) { t.kernels[0].reals.first = UINT32_MAX; }},
       {"expected owners for all 2 reals, found them for 1",
        [](gvx::Tables &t) { t.reals.push_back(1); }},
       {"role 1: expected tasks from 3 on, at most 3, found 2 from 2 on",
        [](gvx::Tables &t) { t.roles[1].parts[GRT_PART_STEADY].first = 2; }},
       {"expected owners for all 7 tasks, found them for 6",
        [](gvx::Tables &t) { t.tasks.push_back({}); }},
       {"role 0: expected transfers from 0 on, at most 2, found 4294967295 "
        "from "
        "0 on",
        [](gvx::Tables &t) { t.roles[0].transfers.count = UINT32_MAX; }},
       {"expected owners for all 3 transfers, found them for 2",
        [](gvx::Tables &t) { t.transfers.push_back({}); }}});
}

TEST(ProgramFile, NumbersAreKnownOnes) {
  expectRefusals(
      {{"function 0, call 0: expected a kind of call below 5, found 5",
        [](gvx::Tables &t) { t.calls[0].kind = gvx::CallKind(5); }},
       {"function 0, call 1: expected a kernel below " +
            std::to_string(GRT_KERNEL_COUNT) + ", found " +
            std::to_string(GRT_KERNEL_COUNT),
        [](gvx::Tables &t) { t.kernels[0].kernel = GRT_KERNEL_COUNT; }},
       {"function 0, call 1: expected a number of buffers below 17, found 17",
        [](gvx::Tables &t) { t.kernels[0].buffers.count = 17; }},
       {"function 0, call 0: expected a region below 12, found 12",
        [](gvx::Tables &t) { t.buffers[0].region = GRT_REGION_COUNT; }},
       {"function 1, call 0: expected an element type below 5, found 5",
        [](gvx::Tables &t) { t.buffers[6].dtype = 5; }},
       {"", [](gvx::Tables &t) { t.buffers[0].offset = UINT64_MAX - 32; }},
       {"function 0, call 0: expected an extent below 2^64, found 32 bytes "
        "at " +
            std::to_string(UINT64_MAX - 31),
        [](gvx::Tables &t) { t.buffers[0].offset = UINT64_MAX - 31; }},
       {"function 0, call 4: expected a collective below 7, found 7",
        [](gvx::Tables &t) { t.collectives[0].collective = 7; }},
       {"function 0, call 4: expected an axis below 4, found 4",
        [](gvx::Tables &t) { t.collectives[0].axis = 4; }},
       {"function 0, call 4: expected acc below 3, found 3",
        [](gvx::Tables &t) { t.collectives[0].acc = 3; }},
       {"function 0, call 4: expected a stream below 6, found 6",
        [](gvx::Tables &t) { t.collectives[0].stream = GRT_STREAM_COUNT; }},
       {"function 0, call 4: expected no argument of a collective, found 8",
        [](gvx::Tables &t) { t.collectives[0].argument = 8; }},
       {"function 0, call 4: expected a region below 12, found 99",
        [](gvx::Tables &t) { t.collectives[0].out.region = 99; }},
       {"", [](gvx::Tables &t) { t.events[0].event = t.events[1].event = 63; }},
       {"function 0, call 2: expected an event below 64, found 64",
        [](gvx::Tables &t) { t.events[0].event = 64; }},
       {"function 0, call 3: expected a stream below 6, found 6",
        [](gvx::Tables &t) { t.events[1].stream = GRT_STREAM_COUNT; }},
       {"function 0, call 2: expected a flag below 2, found 2",
        [](gvx::Tables &t) { t.events[0].wait = 2; }},
       {"function 0, call 3: expected event 4 to be recorded before it is "
        "waited for",
        [](gvx::Tables &t) { t.events[1].event = 4; }}});
}

/// A function with the collectives that move blocks, and the largest.
gvx::ProgramBuilder ofBlocks() {
  gvx::ProgramBuilder program;
  program.beginFunction();
  auto add = [&](uint32_t kind, int32_t argument, const char *name,
                 const grt_buffer *with = nullptr) {
    program.communicate(
        {kind, GRT_AXIS_TP, 0, GRT_STREAM_COMPUTE, 0, argument, input, output},
        name, with);
  };
  add(GRT_SHIFT, -1, "next");
  program.beginLife(stash);
  add(GRT_ALL_TO_ALL_COUNTS, 8, "sent", &counts);
  add(GRT_ALL_TO_ALL, 0, "turned");
  program.endLife(stash);
  add(GRT_ALL_REDUCE_MAX, 0, "largest");
  program.tables.manifest = "{}";
  return program;
}

TEST(ProgramFile, CollectivesOfBlocksHaveTheirNumbers) {
  const std::string file = ofBlocks().tables.file();
  ASSERT_EQ(readOf(file), "");
  const ProgramFile program(file, "p");
  std::vector<std::string> text;
  for (const gvx::Call &call : program.calls(0))
    if (call.kind == gvx::CallKind::Communicate)
      text.push_back(textOf(program, call));
  EXPECT_EQ(text,
            (std::vector<std::string>{
                "shift 'next' over tp on compute: input[0, 64) f32 to "
                "output[64, 128) f32; distance -1",
                "all-to-all with counts 'sent' over tp on compute: input[0, "
                "64) f32 to output[64, 128) f32; units of 8 bytes, counts "
                "stash[192, 208) i32",
                "all-to-all 'turned' over tp on compute: input[0, 64) f32 to "
                "output[64, 128) f32",
                "all-reduce of max 'largest' over tp on compute: input[0, 64) "
                "f32"}));
  const grt_collective_op &sent = program.collective(1);
  EXPECT_EQ(sent.unit_bytes, 8u);
  EXPECT_EQ(sent.distance, 0);
  EXPECT_EQ(sent.counts.offset, 192u);
  EXPECT_EQ(program.collective(0).unit_bytes, 0u);

  auto with = [](const std::function<void(gvx::Tables &)> &change) {
    gvx::Tables tables = ofBlocks().tables;
    change(tables);
    return readOf(tables.file());
  };
  const std::string is = "program 'p' is malformed: function 0, call ";
  EXPECT_EQ(with([](gvx::Tables &t) { t.collectives[0].argument = 0; }),
            is + "0: expected a distance that is not 0, found 0");
  EXPECT_EQ(with([](gvx::Tables &t) { t.collectives[1].argument = -8; }),
            is + "2: expected bytes of a unit above 0, found -8");
  EXPECT_EQ(with([](gvx::Tables &t) { t.collectives[3].argument = 1; }),
            is + "5: expected no argument of a collective, found 1");
  // Its counts are the next row, which is another call's then.
  EXPECT_EQ(with([](gvx::Tables &t) {
              t.collectives[1].collective = GRT_ALL_TO_ALL;
              t.collectives[1].argument = 0;
            }),
            is + "4: expected buffers from 1 on, at most 2, found 1 from 2 on");
  EXPECT_EQ(with([](gvx::Tables &t) {
              t.collectives[2].collective = GRT_ALL_TO_ALL_COUNTS;
              t.collectives[2].argument = 4;
            }),
            is + "4: expected buffers from 3 on, at most 0, found 1 from 2 on");
  EXPECT_EQ(with([](gvx::Tables &t) { t.buffers[1].region = 99; }),
            is + "2: expected a region below 12, found 99");
}

TEST(ProgramFile, NamesAreWholeAndReadable) {
  expectRefusals(
      {{"function 0, call 1: expected its name to start where a name does, "
        "found byte 1 of 27",
        [](gvx::Tables &t) { t.kernels[0].name = 1; }},
       {"function 0, call 4: expected its name to start where a name does, "
        "found byte 27 of 27",
        [](gvx::Tables &t) { t.collectives[0].name = 27; }},
       {"expected a zero behind the last name",
        [](gvx::Tables &t) { t.names.pop_back(); }},
       {"expected names in UTF-8 without control characters, found 27 at byte "
        "0 of them",
        [](gvx::Tables &t) { t.names[0] = '\x1b'; }}});
  auto named = [](const std::string &text) {
    gvx::ProgramBuilder program = made();
    program.launch(GRT_KERNEL_ZERO, {{output}}, {}, {}, text);
    std::string problem;
    return !program.finish("{}", problem).empty();
  };
  for (const char *good :
       {"h.0.mlp", "\xc3\xa9", "\xe2\x82\xac", "\xed\x9f\xbf",
        "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf"})
    EXPECT_TRUE(named(good)) << good;
  for (const char *bad :
       {"\x80", "\xc0\x80", "\xc3", "\xc3(", "\xe0\x9f\xbf", "\xe2\x82",
        "\xed\xa0\x80", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80",
        "\xf5\x80\x80\x80", "\xff", "a\nb", "\x7f"})
    EXPECT_FALSE(named(bad)) << bad;
}

TEST(ProgramFile, ABuilderRefusesWhatTheRuntimeWould) {
  std::string problem;
  EXPECT_EQ(made().finish("{}", problem), made().tables.file());
  EXPECT_EQ(problem, "");
  gvx::ProgramBuilder unknown = made();
  unknown.launch(GRT_KERNEL_COUNT, {}, {}, {}, "later");
  EXPECT_EQ(unknown.finish("{}", problem), "");
  EXPECT_NE(problem.find("expected a kernel below"), std::string::npos);
}

/// A file is refused or read, with all it names in it, whatever its tables
/// hold.
TEST(ProgramFile, RandomChanges) {
  const std::string good = made().tables.file();
  std::mt19937 random(7);
  int accepted = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string file = good;
    for (int i = 0; i <= round % 3; ++i)
      file[sizeof(gvx::Header) +
           random() % (file.size() - sizeof(gvx::Header))] =
          char(random() % (round % 2 ? 256 : 8));
    gvx::seal(file);
    const std::string message = readOf(file);
    if (!message.empty()) {
      EXPECT_EQ(message.find("program 'p' is malformed: "), 0u) << message;
      continue;
    }
    ++accepted;
    const ProgramFile program(file, "p");
    for (size_t f = 0; f < program.functionCount(); ++f)
      for (const gvx::Call &call : program.calls(f))
        EXPECT_FALSE(textOf(program, call).empty());
  }
  EXPECT_GT(accepted, 0);
}

} // namespace
