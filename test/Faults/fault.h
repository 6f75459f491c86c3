//===- fault.h - Faults that are chosen when a program runs -----*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Included in front of every file of a build of scripts/faults. A fault with
// number N is written as an expression that asks GALVATRON_FAULT(N): the program
// has it where the variable GALVATRON_FAULT of its environment is N. Where
// GALVATRON_FAULTS_REACHED names a file, byte N of it becomes 1 once the place of
// fault N is reached, whatever process reaches it.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_TEST_FAULTS_FAULT_H
#define GALVATRON_TEST_FAULTS_FAULT_H

#ifdef __cplusplus
#include <cstdlib>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace galvatron_fault {

struct State {
  int chosen = -1;
  int count = 0;
  unsigned char *reached = nullptr;

  State() {
    if (const char *text = std::getenv("GALVATRON_FAULT"))
      chosen = std::atoi(text);
    const char *path = std::getenv("GALVATRON_FAULTS_REACHED");
    int file = path ? ::open(path, O_RDWR) : -1;
    struct stat found = {};
    if (file < 0)
      return;
    if (::fstat(file, &found) == 0 && found.st_size > 0) {
      void *at = ::mmap(nullptr, size_t(found.st_size), PROT_READ | PROT_WRITE,
                        MAP_SHARED, file, 0);
      if (at != MAP_FAILED) {
        reached = static_cast<unsigned char *>(at);
        count = int(found.st_size);
      }
    }
    ::close(file);
  }
};

/// Made before all other variables, whose makers may have faults.
inline State state __attribute__((init_priority(101)));

inline bool isChosen(int number) {
  if (number < state.count)
    state.reached[number] = 1;
  return number == state.chosen;
}

} // namespace galvatron_fault

#define GALVATRON_FAULT(number) (::galvatron_fault::isChosen(number))
#endif // __cplusplus

#endif // GALVATRON_TEST_FAULTS_FAULT_H
