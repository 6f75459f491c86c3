//===- nccl_library.cpp - The functions of NCCL ---------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "nccl_library.h"

namespace grt::cuda {

namespace {
/// The first with communicators that are split with a configuration of theirs.
constexpr int leastMajor = 2, leastMinor = 18;
} // namespace

NcclLibrary::NcclLibrary() {
  Library library{"libnccl.so.2", "libnccl.so"};
  auto find = [&](auto &function, const char *symbol) {
    std::remove_pointer_t<std::remove_reference_t<decltype(function)>> *found;
    library.find(found, symbol);
    function = found;
  };
  find(getVersion, "ncclGetVersion");
  find(errorString, "ncclGetErrorString");
  int code = 0;
  if (ncclResult_t result = getVersion(&code))
    throw DeviceError(std::string("ncclGetVersion: ") + errorString(result));
  // The code is major * 10000 + minor * 100 + patch since 2.9.
  const int major = code < 10000 ? code / 1000 : code / 10000;
  const int minor = code < 10000 ? code / 100 % 10 : code / 100 % 100;
  name = "NCCL " + std::to_string(major) + "." + std::to_string(minor) + "." +
         std::to_string(code % 100) + " of '" + library.path() + "'";
  if (major < leastMajor || (major == leastMajor && minor < leastMinor))
    throw DeviceError("found " + name + ", expected " +
                      std::to_string(leastMajor) + "." +
                      std::to_string(leastMinor) +
                      " or later; GRT_CUDA_LIBRARIES may name another");
  find(getUniqueId, "ncclGetUniqueId");
  find(initRank, "ncclCommInitRankConfig");
  find(split, "ncclCommSplit");
  find(destroy, "ncclCommDestroy");
  find(abort, "ncclCommAbort");
  find(asyncError, "ncclCommGetAsyncError");
  find(allReduce, "ncclAllReduce");
  find(allGather, "ncclAllGather");
  find(reduceScatter, "ncclReduceScatter");
  library.findIfThere(allToAll, "ncclAlltoAll");
  find(send, "ncclSend");
  find(receive, "ncclRecv");
  find(groupStart, "ncclGroupStart");
  find(groupEnd, "ncclGroupEnd");
  find(lastError, "ncclGetLastError");
}

const NcclLibrary &nccl() {
  static const NcclLibrary library;
  return library;
}

void checkNccl(ncclResult_t result, const std::string &what) {
  if (result == ncclSuccess)
    return;
  std::string message = what + ": " + nccl().errorString(result);
  if (const char *last = nccl().lastError(nullptr); last && *last)
    message += std::string(" (") + last + ")";
  throw DeviceError(message);
}

} // namespace grt::cuda
