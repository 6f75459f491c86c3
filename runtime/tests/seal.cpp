//===- seal.cpp - Appends the trailer of a program ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// seal IN.so OUT.gvx: for programs of the tests, which no compiler sealed.
//
//===----------------------------------------------------------------------===//

#include "grt/session.h"

#include <fstream>
#include <iterator>

int main(int argc, char **argv) {
  if (argc != 3)
    return 2;
  std::ifstream in(argv[1], std::ios::binary);
  std::string payload((std::istreambuf_iterator<char>(in)), {});
  std::ofstream out(argv[2], std::ios::binary);
  auto trailer = grt::programTrailer(payload);
  out << payload;
  out.write(reinterpret_cast<const char *>(trailer.data()), trailer.size());
  return in && out.flush() ? 0 : 1;
}
