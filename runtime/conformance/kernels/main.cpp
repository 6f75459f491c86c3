//===- main.cpp - The kernel conformance suite ----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "harness.h"

#include <cstdio>
#include <exception>
#include <string>

#ifndef GRT_DEFAULT_BACKEND
#define GRT_DEFAULT_BACKEND "libgrt_cpu.so"
#endif

int main(int argc, char **argv) {
  testing::InitGoogleTest(&argc, argv);
  std::string path = GRT_DEFAULT_BACKEND;
  const std::string option = "--backend=";
  for (int i = 1; i < argc; ++i) {
    std::string argument = argv[i];
    if (argument.compare(0, option.size(), option) == 0) {
      path = argument.substr(option.size());
    } else {
      std::fprintf(stderr, "unknown argument '%s'\n", argv[i]);
      return 2;
    }
  }
  try {
    grt::conformance::loadBackend(path);
  } catch (const std::exception &error) {
    std::fprintf(stderr, "cannot load the backend: %s\n", error.what());
    return 2;
  }
  return RUN_ALL_TESTS();
}
