//===- team.c - The threads of a rank -------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "team.h"

#include <omp.h>

int grt_cpu_team_start(int threads) {
  // oneDNN asks libgomp for its team; the setting belongs to this thread.
  if (threads < 1)
    threads = 1;
  omp_set_num_threads(threads);
  int started = 0;
#pragma omp parallel num_threads(threads)
  {
#pragma omp atomic
    ++started;
  }
  return started;
}

int grt_cpu_team_size(void) { return omp_get_max_threads(); }

void grt_cpu_team_set_size(int threads) { omp_set_num_threads(threads); }

void grt_cpu_team_run(int threads, int parts,
                      void (*body)(void *context, int part), void *context) {
#pragma omp parallel for num_threads(threads) schedule(static, 1)
  for (int part = 0; part < parts; ++part)
    body(context, part);
}
