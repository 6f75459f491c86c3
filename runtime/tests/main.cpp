//===- main.cpp - Runs the tests of a program -----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Takes the place of gtest_main: what tests write goes when they end.
//
//===----------------------------------------------------------------------===//

#include "temporary_folder.h"

int main(int argc, char **argv) {
  // The variables are those of grt::setLibraryVariables(): tests run beside
  // each other.
  setenv("GOMP_SPINCOUNT", "1000", /*overwrite=*/0);
  testing::InitGoogleTest(&argc, argv);
  TemporaryFolder folder;
  return RUN_ALL_TESTS();
}
