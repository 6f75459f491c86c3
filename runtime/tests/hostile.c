/*===- hostile.c - What no program may ask of the loader
-------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Linked into a program that is good otherwise. Code that the loader would run
// ends the process, so that a test which loads it cannot pass.
//
//===----------------------------------------------------------------------===*/

__attribute__((unused)) static void end_process(void) { __builtin_trap(); }

#if defined(HOSTILE_CONSTRUCTOR)
__attribute__((constructor)) static void construct(void) { end_process(); }
#elif defined(HOSTILE_DESTRUCTOR)
__attribute__((destructor)) static void destruct(void) { end_process(); }
#elif defined(HOSTILE_IMPORT)
int system(const char *command);
int call(void) { return system("true"); }
#elif defined(HOSTILE_WEAK)
__attribute__((weak)) void optional(void);
void call(void) {
  if (optional)
    optional();
}
#elif defined(HOSTILE_INDIRECT)
typedef void (*target)(void);
static target resolve(void) {
  end_process();
  return 0;
}
void indirect(void) __attribute__((ifunc("resolve")));
#elif defined(HOSTILE_HIDDEN)
typedef void (*target)(void);
static target resolve(void) {
  end_process();
  return 0;
}
static void indirect(void) __attribute__((ifunc("resolve")));
void call(void) { indirect(); }
#elif defined(HOSTILE_THREAD)
__thread int local;
int *call(void) { return &local; }
#endif
