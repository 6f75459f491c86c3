//===- mpi.cpp - The peer of bench-collectives: Open MPI ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   mpirun -np RANKS bench-collectives-mpi
//
//===----------------------------------------------------------------------===//

#include "cases.h"

#include <mpi.h>

using namespace galvatron::bench;

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (uint64_t size : mebibytes) {
    uint64_t bytes = size << 20, part = bytes / uint64_t(ranks);
    std::vector<float> data(bytes / 4, 0.5f), share(part / 4, 0.5f);
    for (int collective = 0; collective < 3; ++collective) {
      std::vector<double> slowest;
      for (int i = 0; i < repetitions(bytes) + 2; ++i) {
        MPI_Barrier(MPI_COMM_WORLD);
        double begin = MPI_Wtime();
        if (collective == 0)
          MPI_Allreduce(MPI_IN_PLACE, data.data(), int(data.size()), MPI_FLOAT,
                        MPI_SUM, MPI_COMM_WORLD);
        else if (collective == 1)
          MPI_Allgather(share.data(), int(share.size()), MPI_FLOAT, data.data(),
                        int(share.size()), MPI_FLOAT, MPI_COMM_WORLD);
        else
          MPI_Reduce_scatter_block(data.data(), share.data(), int(share.size()),
                                   MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        double mine = MPI_Wtime() - begin, longest = 0;
        MPI_Allreduce(&mine, &longest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        // The first two touch memory and warm up.
        if (i >= 2)
          slowest.push_back(longest);
      }
      if (rank == 0)
        report(collective, bytes, ranks, slowest);
    }
  }
  MPI_Finalize();
  return 0;
}
