//===- fuzz_program.cpp - Compiled programs -------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Inputs are given the length and the digest that they have, so that changes
// reach what is behind these checks.
//
//===----------------------------------------------------------------------===//

#include "core/program_check.h"
#include "core/program_text.h"
#include "parsers.h"
#include "program/reader.h"

#include <cstring>
#include <string>

using namespace grt;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string file(fuzzText(data, size));
  if (size >= sizeof(gvx::Header)) {
    const uint64_t bytes = size;
    std::memcpy(file.data() + offsetof(gvx::Header, bytes), &bytes,
                sizeof(bytes));
    gvx::seal(file);
  }
  expectParsesOrRefuses([&] {
    const ProgramFile program(file, "p");
    for (size_t f = 0; f < program.functionCount(); ++f)
      for (const gvx::Call &call : program.calls(f))
        (void)textOf(program, call);
  });
  // With the manifest and the checks of tasks against it.
  std::shared_ptr<const Program> program;
  const Status status = Program::loadMemory(file, "p", program);
  if (status ? program == nullptr : status.exitCode() != 2)
    std::abort();
  if (!status)
    return 0;
  (void)program->describe(/*asJson=*/true, /*whole=*/true);
  const ProgramFile &tables = program->file();
  (void)unprovable(program->manifest(), tables);
  return 0;
}
