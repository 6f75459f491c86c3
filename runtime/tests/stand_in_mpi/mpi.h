//===- mpi.h - An MPI of tests --------------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What comm/mpi/mpi.cpp uses of MPI, for one process whose peer is the test
// (mpi_cancel_test.cpp). There is no MPI_Request_free: a request that is freed
// before it is complete is what the test is about.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_TESTS_STAND_IN_MPI_H
#define GRT_TESTS_STAND_IN_MPI_H

extern "C" {

typedef struct StandInRequest *MPI_Request;
typedef int MPI_Comm, MPI_Datatype, MPI_Errhandler;
typedef struct MPI_Status MPI_Status;

enum { MPI_SUCCESS = 0, MPI_THREAD_SERIALIZED = 2 };
enum { MPI_COMM_WORLD = 1, MPI_BYTE = 1, MPI_ERRORS_RETURN = 1 };
enum { MPI_TAG_UB = 1, MPI_MAX_ERROR_STRING = 64 };
enum { MPI_MAX_LIBRARY_VERSION_STRING = 64 };
#define MPI_REQUEST_NULL nullptr
#define MPI_STATUS_IGNORE nullptr

int MPI_Init_thread(int *, char ***, int wanted, int *provided);
int MPI_Finalize();
int MPI_Comm_rank(MPI_Comm, int *rank);
int MPI_Comm_size(MPI_Comm, int *size);
int MPI_Comm_set_errhandler(MPI_Comm, MPI_Errhandler);
int MPI_Comm_get_attr(MPI_Comm, int key, void *value, int *found);
int MPI_Error_string(int code, char *text, int *length);
int MPI_Get_library_version(char *text, int *length);
int MPI_Isend(const void *data, int count, MPI_Datatype, int to, int tag,
              MPI_Comm, MPI_Request *);
int MPI_Irecv(void *data, int count, MPI_Datatype, int from, int tag, MPI_Comm,
              MPI_Request *);
int MPI_Test(MPI_Request *, int *done, MPI_Status *);
int MPI_Cancel(MPI_Request *);
int MPI_Bcast(void *, int, MPI_Datatype, int root, MPI_Comm);
int MPI_Allgather(const void *, int, MPI_Datatype, void *, int, MPI_Datatype,
                  MPI_Comm);
}

#endif // GRT_TESTS_STAND_IN_MPI_H
