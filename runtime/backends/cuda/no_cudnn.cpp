//===- no_cudnn.cpp - Where cuDNN's header is not there -------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fused_attention.h"

#include <cstdlib>
#include <cstring>

std::unique_ptr<grt::cuda::FusedAttention> grt::cuda::openFusedAttention() {
  const char *wish = std::getenv("GRT_CUDA_ATTENTION");
  if (wish && !std::strcmp(wish, "cudnn"))
    throw DeviceError("GRT_CUDA_ATTENTION is 'cudnn', but this backend was "
                      "built without cuDNN's header");
  return nullptr;
}
