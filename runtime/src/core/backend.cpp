//===- backend.cpp - Loading a backend ------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/error.h"
#include "core/executor.h"
#include "core/plugin.h"

namespace grt {
namespace {

const grt_backend &loadTable(const std::string &name,
                             const std::string &folder) {
  for (char c : name)
    if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9'))
      invalid("backend '" + name + "': expected letters and digits");
  using Getter = const grt_backend *();
  auto *get = reinterpret_cast<Getter *>(loadPlugin(
      name, "grt_backend_get", folder, "cannot load backend '" + name + "'"));
  const grt_backend *table = get();
  if (!table)
    fail("backend '" + name + "' exports no table");
  return *table;
}

} // namespace

BackendHandle::BackendHandle(const std::string &name, const std::string &folder)
    : table(loadTable(name, folder)) {}

const char *kernelName(uint32_t kernel) {
  static const char *const names[GRT_KERNEL_COUNT] = {"gemm",
                                                      "bias-add",
                                                      "bias-grad",
                                                      "layer-norm",
                                                      "layer-norm-grad",
                                                      "gelu",
                                                      "gelu-grad",
                                                      "bias-gelu",
                                                      "attention",
                                                      "attention-grad",
                                                      "dropout",
                                                      "dropout-add",
                                                      "add",
                                                      "embedding",
                                                      "embedding-grad",
                                                      "position-add",
                                                      "position-grad",
                                                      "softmax-stats",
                                                      "cross-entropy",
                                                      "copy",
                                                      "zero",
                                                      "optimizer",
                                                      "norm",
                                                      "scale",
                                                      "add-layer-norm",
                                                      "layer-norm-add-grad",
                                                      "gemm-gelu",
                                                      "gemm-gelu-grad",
                                                      "gemm-bias-grad",
                                                      "rms-norm",
                                                      "rms-norm-grad",
                                                      "rotary",
                                                      "gated-silu",
                                                      "gated-silu-grad",
                                                      "patches",
                                                      "relu",
                                                      "relu-grad",
                                                      "gated-gelu",
                                                      "gated-gelu-grad",
                                                      "relative-bias",
                                                      "relative-bias-grad",
                                                      "biased-attention",
                                                      "biased-attention-grad",
                                                      "windows",
                                                      "window-attention",
                                                      "window-attention-grad",
                                                      "drop-path",
                                                      "mean",
                                                      "mean-grad",
                                                      "transpose",
                                                      "own-part",
                                                      "softmax-cross-entropy"};
  return kernel < GRT_KERNEL_COUNT ? names[kernel] : "unknown kernel";
}

} // namespace grt
