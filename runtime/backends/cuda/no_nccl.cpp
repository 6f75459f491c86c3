//===- no_nccl.cpp - Where NCCL's header is not there ---------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "collectives.h"

const grt_device_collectives *grt::cuda::processCollectives() {
  return nullptr;
}
