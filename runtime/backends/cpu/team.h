//===- team.h - The threads of a rank -----------------------------*- C -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// oneDNN runs products on the team of libgomp that belongs to the calling
// thread. Everything else that is split over threads uses the same team, so
// that no core is asked for twice. Kept behind C functions, because the team is
// that of gcc's OpenMP whatever compiles the rest: clang would bring a library,
// and a second team, of its own.
//
//===----------------------------------------------------------------------===//
#ifndef GRT_BACKENDS_CPU_TEAM_H
#define GRT_BACKENDS_CPU_TEAM_H

#ifdef __cplusplus
extern "C" {
#endif

/// Makes the calling thread's team now, rather than in the first step, and
/// returns its size: a limit of the environment may make it smaller.
int grt_cpu_team_start(int threads);

/// The size that the next product of the calling thread takes.
int grt_cpu_team_size(void);
void grt_cpu_team_set_size(int threads);

/// Calls body(context, part) for every part in [0, parts), parts <= threads,
/// each on its own member of the team. The team has all `threads` even where
/// there are fewer parts: libgomp makes a new one whenever the size changes.
void grt_cpu_team_run(int threads, int parts,
                      void (*body)(void *context, int part), void *context);

#ifdef __cplusplus
}
#endif

#endif // GRT_BACKENDS_CPU_TEAM_H
