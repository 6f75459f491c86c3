//===- program_test.cpp - Loading programs, whole and damaged -------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/error.h"
#include "core/image.h"
#include "files.h"
#include "grt/session.h"

#include <gtest/gtest.h>

#include <cstring>
#include <elf.h>
#include <fstream>
#include <iterator>
#include <random>

using namespace grt;

namespace {

std::string bigram(int ranks) {
  return std::string(TEST_PROGRAMS) + "/bigram" + std::to_string(ranks) +
         ".gvx";
}

void expectRefused(std::string_view bytes, const std::string &message) {
  std::shared_ptr<const Program> program;
  Status status = Program::loadMemory(bytes, "p.gvx", program);
  EXPECT_EQ(status.exitCode(), 2);
  EXPECT_NE(status.message().find(message), std::string::npos)
      << status.message();
  EXPECT_EQ(program, nullptr);
}

TEST(Program, LoadsAndTrains) {
  double loss[2][5];
  for (int ranks : {1, 2}) {
    std::shared_ptr<const Program> program;
    Status status = Program::loadFile(bigram(ranks), program);
    ASSERT_TRUE(status) << status.message();
    EXPECT_EQ(program->worldSize(), ranks);
    std::unique_ptr<Session> session;
    status = Session::create(program, SessionOptions(), session);
    ASSERT_TRUE(status) << status.message();
    std::vector<int32_t> tokens(32), labels(32);
    for (int i = 0; i < 32; ++i) {
      tokens[i] = i * 37 % 256;
      labels[i] = (i + 1) * 37 % 256;
    }
    ASSERT_TRUE(session->setBatch(tokens, labels));
    session->hyperparameters().learningRate = 0.1;
    for (double &value : loss[ranks - 1]) {
      StepResult result;
      status = session->step(result);
      ASSERT_TRUE(status) << status.message();
      value = result.loss;
    }
    for (const RankMemory &rank : session->memory()) {
      EXPECT_LE(rank.measuredPeakBytes, rank.plannedPeakBytes + 65536);
      EXPECT_GE(rank.measuredPeakBytes, rank.plannedPeakBytes * 95 / 100);
    }
  }
  EXPECT_NEAR(loss[0][0], std::log(256.0), 0.01);
  EXPECT_LT(loss[0][4], loss[0][0]);
  for (int i = 0; i < 5; ++i)
    EXPECT_NEAR(loss[0][i], loss[1][i], 1e-5 * loss[0][i]);
}

TEST(Program, TheSamePathMayChangeBetweenLoads) {
  std::string path = testing::TempDir() + "/changing.gvx";
  std::shared_ptr<const Program> programs[2];
  for (int ranks : {1, 2}) {
    std::ofstream(path, std::ios::binary) << readAll(bigram(ranks));
    ASSERT_TRUE(Program::loadFile(path, programs[ranks - 1]));
  }
  EXPECT_EQ(programs[0]->worldSize(), 1);
  EXPECT_EQ(programs[1]->worldSize(), 2);
}

TEST(Program, TruncationAtAnyLengthIsAnError) {
  std::string whole = readAll(bigram(1));
  ASSERT_GT(whole.size(), trailerBytes);
  for (size_t length = 0; length < whole.size(); length += 211)
    expectRefused(std::string_view(whole).substr(0, length), "is damaged: ");
  expectRefused(std::string_view(whole).substr(0, whole.size() - 1),
                "no trailer at its end");
  expectRefused("", "expected at least 48 bytes, found 0");
}

TEST(Program, DamagedBytesAreAnError) {
  const std::string whole = readAll(bigram(1));
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::string damaged = whole;
    damaged[random() % damaged.size()] ^= char(1 + random() % 255);
    expectRefused(damaged, "is damaged: ");
  }
  // Bytes inserted before the trailer.
  std::string longer = whole;
  longer.insert(whole.size() - trailerBytes, "abc");
  expectRefused(longer, "bytes before the trailer, found");
}

TEST(Program, WhatIsNoProgramIsAnError) {
  std::shared_ptr<const Program> program;
  EXPECT_NE(Program::loadFile("/nowhere/p.gvx", program)
                .message()
                .find("cannot open program '/nowhere/p.gvx': No such file"),
            std::string::npos);
  EXPECT_EQ(Program::loadFile(testing::TempDir(), program).exitCode(), 2);
  auto sealed = [](const std::string &payload) {
    auto trailer = programTrailer(payload);
    return payload + std::string(trailer.begin(), trailer.end());
  };
  expectRefused(sealed("some text"), "expected an ELF shared object");
  expectRefused(sealed("\177ELF and then nothing"),
                "is not loaded: its ELF file is malformed");
  // A shared object of something else.
  std::string other = readAll(bigram(1));
  other.resize(other.size() - trailerBytes);
  for (size_t at = 0;
       (at = other.find("grt_program", at)) != std::string::npos;)
    other[at] = 'x';
  expectRefused(sealed(other), "");
}

/// None of these is loaded: what the loader would run ends the process.
TEST(Program, WhatTheLoaderWouldDoIsRefused) {
  for (auto [name, message] :
       {std::pair("constructor", "it has constructors, which would run"),
        {"destructor", "it has destructors"},
        {"import", "it imports 'system'; programs import functions of the "
                   "runtime (grt_...) only"},
        {"weak", "it imports 'optional'"},
        {"indirect", "symbol 'indirect' is an indirect function"},
        {"hidden", "it has a relocation of type "},
        {"thread", "it has thread-local data"},
        {"library", "it needs library 'libm.so.6'; programs need none"},
        {"path", "it has a search path for libraries"},
        {"stack", "it asks for an executable stack"}}) {
    SCOPED_TRACE(name);
    std::string path = std::string(TEST_PROGRAMS) + "/hostile-" + name + ".gvx";
    std::string bytes = readAll(path);
    ASSERT_GT(bytes.size(), trailerBytes);
    expectRefused(bytes,
                  std::string("program 'p.gvx' is not loaded: ") + message);
  }
}

/// The bytes of a program that is good, for changes to its headers.
class Headers {
public:
  Headers() : bytes(readAll(bigram(1))) {
    bytes.resize(bytes.size() - trailerBytes);
    std::memcpy(&header, bytes.data(), sizeof(header));
  }
  Elf64_Phdr segment(size_t i) const {
    Elf64_Phdr value;
    std::memcpy(&value, bytes.data() + place(i), sizeof(value));
    return value;
  }
  void put(size_t i, const Elf64_Phdr &value) {
    std::memcpy(bytes.data() + place(i), &value, sizeof(value));
  }
  /// The first segment of a type.
  size_t find(uint32_t type) const {
    for (size_t i = 0; i < header.e_phnum; ++i)
      if (segment(i).p_type == type)
        return i;
    ADD_FAILURE() << "no segment of type " << type;
    return 0;
  }
  size_t count() const { return header.e_phnum; }
  std::string bytes;

private:
  size_t place(size_t i) const {
    return header.e_phoff + i * sizeof(Elf64_Phdr);
  }
  Elf64_Ehdr header;
};

void expectImage(const std::string &bytes, const std::string &message) {
  try {
    checkImage(bytes);
    ADD_FAILURE() << "expected: " << message;
  } catch (const Error &error) {
    EXPECT_EQ(error.exitCode(), 2);
    EXPECT_NE(std::string(error.what()).find(message), std::string::npos)
        << error.what();
  }
}

TEST(Program, MalformedHeadersAreRefused) {
  Headers good;
  EXPECT_NO_THROW(checkImage(good.bytes));
  auto changed = [&](uint32_t type, auto change, const std::string &message) {
    Headers headers;
    size_t i = headers.find(type);
    Elf64_Phdr segment = headers.segment(i);
    change(segment);
    headers.put(i, segment);
    expectImage(headers.bytes, message);
  };
  changed(
      PT_LOAD, [](Elf64_Phdr &s) { s.p_flags = PF_R | PF_W | PF_X; },
      "writable and executable");
  changed(
      PT_LOAD, [](Elf64_Phdr &s) { s.p_filesz = uint64_t(1) << 40; },
      "does not fit the file");
  changed(
      PT_LOAD, [](Elf64_Phdr &s) { s.p_memsz = s.p_filesz - 1; },
      "does not fit the file");
  changed(
      PT_LOAD, [](Elf64_Phdr &s) { s.p_memsz += 1 << 20; },
      "segments that overlap");
  changed(
      PT_LOAD, [](Elf64_Phdr &s) { s.p_offset += 8; }, "does not fit the file");
  changed(
      PT_DYNAMIC, [](Elf64_Phdr &s) { s.p_vaddr = ~uint64_t(0) - 7; },
      "the dynamic section outside the segments");
  changed(
      PT_DYNAMIC, [](Elf64_Phdr &s) { s.p_type = PT_NULL; },
      "no dynamic section");
  // What it says of its size decides which relocations are of its entries: a
  // section that ends behind the last address, or before its own entries,
  // would have none.
  for (uint64_t size : {~uint64_t(0), (uint64_t(1) << 47) + 1})
    changed(
        PT_DYNAMIC, [&](Elf64_Phdr &s) { s.p_memsz = size; },
        "a dynamic section of " + std::to_string(size) + " bytes");
  for (uint64_t size : {uint64_t(0), uint64_t(sizeof(Elf64_Dyn))})
    changed(
        PT_DYNAMIC, [&](Elf64_Phdr &s) { s.p_memsz = size; },
        "a dynamic section of " + std::to_string(size) +
            " bytes, whose entries take ");
  changed(PT_DYNAMIC, [](Elf64_Phdr &s) { s.p_type = PT_LOAD; }, "");
  changed(
      PT_GNU_STACK, [](Elf64_Phdr &s) { s.p_type = PT_INTERP; },
      "it has an interpreter");
  changed(
      PT_GNU_STACK, [](Elf64_Phdr &s) { s.p_type = 77; },
      "it has a segment of type 77");

  // Entries of the dynamic section that say less, or of another size.
  const std::pair<Elf64_Sxword, const char *> needed[] = {
      {DT_GNU_HASH, "no hash table"},
      {DT_STRTAB, "no strings"},
      {DT_STRSZ, "no size of strings"},
      {DT_SYMTAB, "no symbols"}};
  for (const auto &[tag, message] : needed) {
    Headers headers;
    size_t at = headers.segment(headers.find(PT_DYNAMIC)).p_offset;
    for (Elf64_Dyn entry{};; at += sizeof(entry)) {
      std::memcpy(&entry, headers.bytes.data() + at, sizeof(entry));
      ASSERT_NE(entry.d_tag, DT_NULL) << message;
      if (entry.d_tag != tag)
        continue;
      // One that says nothing of it.
      entry.d_tag = DT_SONAME;
      std::memcpy(headers.bytes.data() + at, &entry, sizeof(entry));
      break;
    }
    expectImage(headers.bytes, message);
  }

  // A dynamic section whose harmless copy stands where the file says: the
  // loader goes by the address.
  Headers two;
  size_t i = two.find(PT_DYNAMIC);
  Elf64_Phdr segment = two.segment(i);
  segment.p_offset = 0;
  two.put(i, segment);
  EXPECT_NO_THROW(checkImage(two.bytes));

  std::string executable = good.bytes;
  executable[16] = ET_EXEC;
  expectImage(executable, "expected an ELF shared object, found type 2");
  // What follows the segments the loader does not look at.
  size_t end = 0;
  for (size_t s = 0; s < good.count(); ++s)
    if (good.segment(s).p_type == PT_LOAD)
      end = good.segment(s).p_offset + good.segment(s).p_filesz;
  EXPECT_NO_THROW(checkImage(std::string_view(good.bytes).substr(0, end)));
  for (size_t length = 0; length < end; length += 97)
    EXPECT_THROW(checkImage(std::string_view(good.bytes).substr(0, length)),
                 Error)
        << length;
}

/// No change makes the reader fault, or accept what it refuses by name.
TEST(Program, ImagesWithRandomBytes) {
  const std::string good = Headers().bytes;
  std::mt19937 random(5);
  for (int round = 0; round < 20000; ++round) {
    std::string damaged = good;
    for (int i = 0; i < 4; ++i)
      damaged[random() % (round % 2 ? 0x800 : damaged.size())] = char(random());
    try {
      checkImage(damaged);
    } catch (const Error &error) {
      EXPECT_EQ(error.exitCode(), 2);
    }
  }
}

TEST(Program, OtherHardwareIsRefused) {
  std::string bytes = readAll(bigram(1));
  std::string payload = bytes.substr(0, bytes.size() - trailerBytes);
  auto sealed = [](const std::string &payload) {
    std::array<unsigned char, trailerBytes> trailer = programTrailer(payload);
    return payload + std::string(reinterpret_cast<const char *>(trailer.data()),
                                 trailer.size());
  };
  std::string other = payload;
  other[18] = char(243); // e_machine: RISC-V
  expectRefused(sealed(other), "was built for another processor");

  // The manifest names the level of the processor's instructions.
  std::shared_ptr<const Program> program;
  ASSERT_TRUE(Program::loadMemory(bytes, "p.gvx", program));
  std::string manifest(program->table().manifest,
                       program->table().manifest_bytes);
  std::string place = "\"backend\":\"cpu\"";
  for (const auto &[level, message] :
       {std::pair("x86-64-v9", "which this runtime does not know"),
        std::pair("x86-64", "")}) {
    std::string text = manifest;
    text.insert(text.find(place) + place.size(),
                std::string(",\"cpu\":\"") + level + "\"");
    grt_program table = program->table();
    table.manifest = text.data();
    table.manifest_bytes = text.size();
    std::shared_ptr<const Program> changed;
    Status status = Program::fromTable(&table, "p", changed);
    EXPECT_EQ(status.exitCode(), *message ? 2 : 0) << status.message();
    EXPECT_NE(status.message().find(message), std::string::npos)
        << status.message();
  }
}

TEST(Program, TheTableIsChecked) {
  std::shared_ptr<const Program> good;
  ASSERT_TRUE(Program::loadFile(bigram(1), good));
  auto refused = [&](auto change, const std::string &message) {
    grt_program table = good->table();
    change(table);
    std::shared_ptr<const Program> program;
    Status status = Program::fromTable(&table, "p", program);
    EXPECT_EQ(status.exitCode(), 2);
    EXPECT_NE(status.message().find(message), std::string::npos)
        << status.message();
  };
  refused([](grt_program &t) { t.abi_version = 7; },
          "has ABI version 7, this runtime has 5: compile again");
  refused([](grt_program &t) { t.manifest = nullptr; }, "incomplete table");
  refused([](grt_program &t) { t.manifest_bytes = 100; }, "not valid JSON");
  refused([](grt_program &t) { t.function_count = 4; },
          "program has 4 functions, its manifest names 6");
  refused([](grt_program &t) { t.role_count = 2; }, "program has 2 roles");
  std::vector<grt_function> functions(6, nullptr);
  refused([&](grt_program &t) { t.functions = functions.data(); },
          "function 'embed.forward' is missing");
  grt_task task{};
  grt_schedule schedule{};
  schedule.parts[GRT_PART_STEADY] = {&task, 1};
  auto withTask = [&](grt_program &t) { t.schedules = &schedule; };
  task.kind = 99;
  refused(withTask, "task 0: unknown kind 99");
  auto with = [&](auto change) {
    task = {};
    change(task);
    return withTask;
  };
  refused(with([](grt_task &t) { t.slot = 3; }), "slot 3 of 1");
  refused(with([](grt_task &t) { t.chunk = 1; }),
          "task 0: chunk 1 is not the role's");
  refused(with([](grt_task &t) {
            t.kind = GRT_TASK_BACKWARD;
            t.micro_batch = 2;
          }),
          "micro-batch out of range, expected less than 2");
  refused(with([](grt_task &t) { t.flags = 1; }),
          "expected flags 0, found 1; this runtime does not know its meaning");
  refused(with([](grt_task &t) {
            t.kind = GRT_TASK_BACKWARD;
            t.flags = 2;
          }),
          "expected flags 0, found 2");
  refused(with([](grt_task &t) {
            t.kind = GRT_TASK_BACKWARD_INPUT;
            t.flags = 1;
          }),
          "expected flags 0, found 1");
  refused(with([](grt_task &t) {
            t.kind = GRT_TASK_BACKWARD_WEIGHT;
            t.slot = 3;
          }),
          "slot 3 of 1");
  refused(with([](grt_task &t) { t.kind = GRT_TASK_SWAP + 1; }),
          "unknown kind 11");
  refused(with([](grt_task &t) {
            t.kind = GRT_TASK_SWAP;
            t.classes = GRT_SWAP_PARAMETERS;
            t.tiers = GRT_TO_DEVICE;
          }),
          "states that have their home on the host");
  refused(with([](grt_task &t) {
            t.kind = GRT_TASK_SWAP;
            t.classes = GRT_SWAP_OPTIMIZER;
            t.tiers = GRT_TO_HOST;
          }),
          "expected 1 to 4, 8 in or 9 out");
  refused(with([](grt_task &t) { t.generation = 1; }),
          "expected generation 0, found 1");
  refused(with([](grt_task &t) { t.tiers = 3; }), "expected tiers 0, found 3");
  refused(with([](grt_task &t) { t.count = 1; }),
          "expected count of parts 0, found 1");
  // Only where states have their home on the host.
  refused(with([](grt_task &t) { t.stream = GRT_STREAM_IN; }),
          "expected stream 0, found 4");
  refused(with([](grt_task &t) { t.records = 1; }),
          "expected recorded event 0, found 1");
  refused(with([](grt_task &t) { t.waits[2] = 3; }),
          "expected event to wait for 0, found 3");
  refused(with([](grt_task &t) {
            t.kind = GRT_TASK_NORM;
            t.micro_batch = 1;
          }),
          "expected micro-batch 0, found 1");
  refused(with([](grt_task &t) { t.kind = GRT_TASK_TRANSFER; }),
          "expected 1 to 4 parts of a transfer, found 0");
  refused(with([](grt_task &t) {
            t.kind = GRT_TASK_TRANSFER;
            t.count = 1;
          }),
          "parts from 0 on of 0");
  task = {};
  grt_transfer_part part{};
  schedule.transfers = &part;
  schedule.transfer_count = 1;
  refused(withTask, "part 0 of transfers: chunk 0 does not send an activation");
  part.value = 2;
  refused(withTask, "unknown direction 0 or value 2");
  part = {};
  part.chunk = 5;
  refused(withTask, "part 0 of transfers: chunk 5 is not the role's");
  schedule.transfers = nullptr;
  refused(withTask, "parts of transfers are missing");
  schedule.transfer_count = 0;
  refused([](grt_program &t) { t.task_bytes = 16; },
          "has rows of 16 and 16 bytes, expected 24 and 16");
  task = {};
  schedule.parts[GRT_PART_PROLOGUE] = {&task, 1};
  refused(withTask, "prologue: expected no tasks");
}

TEST(Program, AMissingBackendIsAnError) {
  std::shared_ptr<const Program> program;
  ASSERT_TRUE(Program::loadFile(bigram(1), program));
  SessionOptions options;
  options.backendFolder = "/nowhere";
  std::unique_ptr<Session> session;
  Status status = Session::create(program, options, session);
  EXPECT_EQ(status.exitCode(), 1);
  EXPECT_EQ(status.message().find("cannot load backend 'cpu': "), 0u)
      << status.message();
}

} // namespace
