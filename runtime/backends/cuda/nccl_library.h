//===- nccl_library.h - The functions of NCCL -----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_CUDA_NCCL_LIBRARY_H
#define GRT_BACKENDS_CUDA_NCCL_LIBRARY_H

#include "library.h"

#include <nccl.h>

namespace grt::cuda {

/// NCCL as it is loaded at run time: what 2.18 has. Throws DeviceError where
/// there is none, or an older one.
struct NcclLibrary {
  NcclLibrary();

  decltype(&ncclGetVersion) getVersion;
  decltype(&ncclGetUniqueId) getUniqueId;
  decltype(&ncclCommInitRankConfig) initRank;
  decltype(&ncclCommSplit) split;
  decltype(&ncclCommDestroy) destroy;
  decltype(&ncclCommAbort) abort;
  decltype(&ncclCommGetAsyncError) asyncError;
  decltype(&ncclAllReduce) allReduce;
  decltype(&ncclAllGather) allGather;
  decltype(&ncclReduceScatter) reduceScatter;
  /// Null where the library has none: those of 2.28 do.
  ncclResult_t (*allToAll)(const void *, void *, size_t, ncclDataType_t,
                           ncclComm_t, cudaStream_t);
  decltype(&ncclSend) send;
  decltype(&ncclRecv) receive;
  decltype(&ncclGroupStart) groupStart;
  decltype(&ncclGroupEnd) groupEnd;
  decltype(&ncclGetErrorString) errorString;
  decltype(&ncclGetLastError) lastError;

  /// "NCCL 2.28.9 of '/usr/lib/libnccl.so.2'".
  std::string name;
};

/// Loads the library with the first call.
const NcclLibrary &nccl();

/// Throws DeviceError with the library's words unless `result` is ncclSuccess.
void checkNccl(ncclResult_t result, const std::string &what);

} // namespace grt::cuda

#endif // GRT_BACKENDS_CUDA_NCCL_LIBRARY_H
