//===- cudnn.cpp - A libcudnn that computes nothing -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Descriptors have a life: made, set, finalized, used, destroyed; using one
// earlier or later is a complaint. Plans are "run" by counting them.
//
//===----------------------------------------------------------------------===//

#include "fakes.h"

#include <cstring>
#include <cudnn_graph.h>
#include <map>
#include <mutex>
#include <string>

namespace {

/// Ranks are threads, each with a handle of its own.
std::mutex mutex;

struct Thing {
  cudnnBackendDescriptorType_t type;
  bool finalized = false;
};

std::map<void *, Thing> things;
std::map<std::string, int> answers;
std::string complaints;
int64_t handles = 0, runs = 0;
std::map<void *, cudaStream_t> streams;

bool expect(bool holds, const char *what) {
  if (!holds)
    complaints += std::string(what) + "\n";
  return holds;
}

} // namespace

GRT_FAKE void grt_fake_cudnn_answer(const char *kind, int status) {
  answers[kind] = status;
}
GRT_FAKE int64_t grt_fake_cudnn_live() {
  return handles + int64_t(things.size());
}
GRT_FAKE int64_t grt_fake_cudnn_runs() { return runs; }
GRT_FAKE const char *grt_fake_cudnn_complaints() {
  static std::string told;
  told = std::move(complaints);
  complaints.clear();
  return told.c_str();
}

GRT_FAKE cudnnStatus_t cudnnCreate(cudnnHandle_t *handle) {
  std::lock_guard<std::mutex> lock(mutex);
  if (GrtFakeCudaUse *use = grtFakeCudaUse();
      use && use(nullptr, "cudnnCreate"))
    return CUDNN_STATUS_INTERNAL_ERROR;
  *handle = reinterpret_cast<cudnnHandle_t>(new char);
  ++handles;
  return CUDNN_STATUS_SUCCESS;
}
GRT_FAKE cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  std::lock_guard<std::mutex> lock(mutex);
  expect(handles > 1 || things.empty(), "descriptors outlive the last handle");
  --handles;
  streams.erase(handle);
  delete reinterpret_cast<char *>(handle);
  return CUDNN_STATUS_SUCCESS;
}
GRT_FAKE cudnnStatus_t cudnnSetStream(cudnnHandle_t handle,
                                      cudaStream_t stream) {
  std::lock_guard<std::mutex> lock(mutex);
  streams[handle] = stream;
  return CUDNN_STATUS_SUCCESS;
}
GRT_FAKE const char *cudnnGetErrorString(cudnnStatus_t) { return "as asked"; }

GRT_FAKE cudnnStatus_t cudnnBackendCreateDescriptor(
    cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *descriptor) {
  std::lock_guard<std::mutex> lock(mutex);
  auto *place = new char;
  things[place] = {type};
  *descriptor = place;
  return CUDNN_STATUS_SUCCESS;
}
GRT_FAKE cudnnStatus_t
cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  std::lock_guard<std::mutex> lock(mutex);
  if (expect(things.erase(descriptor) == 1, "a descriptor is destroyed twice"))
    delete static_cast<char *>(descriptor);
  return CUDNN_STATUS_SUCCESS;
}
GRT_FAKE cudnnStatus_t cudnnBackendSetAttribute(
    cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t,
    cudnnBackendAttributeType_t type, int64_t count, const void *values) {
  std::lock_guard<std::mutex> lock(mutex);
  if (!expect(things.count(descriptor),
              "a descriptor that is set is not alive"))
    return CUDNN_STATUS_BAD_PARAM;
  expect(!things[descriptor].finalized, "a finalized descriptor is set");
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
    for (int64_t i = 0; i < count; ++i) {
      void *other = static_cast<void *const *>(values)[i];
      // Configurations come finalized from the heuristics.
      expect(things.count(other) &&
                 (things[other].finalized ||
                  things[other].type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR),
             "a descriptor is used before it is finalized");
    }
  return CUDNN_STATUS_SUCCESS;
}
GRT_FAKE cudnnStatus_t cudnnBackendGetAttribute(
    cudnnBackendDescriptor_t, cudnnBackendAttributeName_t name,
    cudnnBackendAttributeType_t, int64_t, int64_t *count, void *values) {
  *count = 0;
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS ||
      name == CUDNN_ATTR_ENGINECFG_ENGINE)
    *count = 1;
  if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) {
    *count = 1;
    const int64_t bytes = 1024;
    std::memcpy(values, &bytes, sizeof(bytes));
  }
  return CUDNN_STATUS_SUCCESS;
}
GRT_FAKE cudnnStatus_t
cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  std::lock_guard<std::mutex> lock(mutex);
  if (int status = answers["finalize"])
    return cudnnStatus_t(status);
  if (!expect(things.count(descriptor),
              "a descriptor is finalized after its end"))
    return CUDNN_STATUS_BAD_PARAM;
  Thing &thing = things[descriptor];
  thing.finalized = true;
  // Plans are compiled and loaded.
  if (thing.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)
    if (GrtFakeCudaUse *use = grtFakeCudaUse();
        use && use(nullptr, "a plan of cuDNN"))
      return CUDNN_STATUS_INTERNAL_ERROR;
  return CUDNN_STATUS_SUCCESS;
}
GRT_FAKE cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle,
                                           cudnnBackendDescriptor_t plan,
                                           cudnnBackendDescriptor_t pack) {
  std::lock_guard<std::mutex> lock(mutex);
  if (int status = answers["execute"])
    return cudnnStatus_t(status);
  auto stream = streams.find(handle);
  expect(stream != streams.end(), "a plan is run on no stream");
  for (void *each : {plan, pack})
    expect(things.count(each) && things[each].finalized,
           "what is run is not finalized");
  ++runs;
  if (GrtFakeCudaUse *use = grtFakeCudaUse(); use && stream != streams.end())
    if (use(stream->second, ("cudnnBackendExecute " +
                             std::to_string(reinterpret_cast<uintptr_t>(plan)))
                                .c_str()))
      return CUDNN_STATUS_EXECUTION_FAILED;
  return CUDNN_STATUS_SUCCESS;
}
