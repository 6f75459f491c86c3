//===- host_memory.cpp - Memory of the host that copies go to -------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// States whose home is the host's memory are one allocation of the executor,
// which it has pinned where it is: the device then copies while the host goes
// on. How much may be pinned is the system's to say.
//
//===----------------------------------------------------------------------===//

#include "queries.h"

#include <cuda_runtime_api.h>

namespace grt::cuda::gpu {

void pinHost(void *memory, uint64_t bytes) {
  cudaError_t error = cudaHostRegister(memory, bytes, cudaHostRegisterPortable);
  if (error == cudaSuccess)
    return;
  cudaGetLastError(); // so that no later call reports it
  throw DeviceError(std::string("cudaHostRegister: ") +
                    cudaGetErrorString(error));
}

void unpinHost(void *memory) { cudaHostUnregister(memory); }

} // namespace grt::cuda::gpu
