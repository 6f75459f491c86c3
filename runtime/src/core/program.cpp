//===- program.cpp - Loading compiled programs ----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A file is read once, into memory that is then made read-only: what was
// checked is what is used, and a file that is replaced or cut short later
// cannot fault the process, as it could one that had mapped it.
//
//===----------------------------------------------------------------------===//

#include "base/error.h"
#include "base/sha256.h"
#include "core/manifest.h"
#include "core/program_check.h"
#include "grt/kernels.h"
#include "program/reader.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace grt {

/// Memory of its own, filled once and then read-only.
class Program::Bytes {
public:
  /// Calls `fill` with the memory.
  template <class Fill> Bytes(size_t size, Fill fill) : size(size) {
    if (size == 0)
      return;
    void *memory = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
      throw std::bad_alloc();
    data = static_cast<char *>(memory);
    try {
      fill(data);
    } catch (...) {
      munmap(data, size);
      throw;
    }
    mprotect(data, size, PROT_READ);
  }
  ~Bytes() {
    if (data)
      munmap(data, size);
  }
  Bytes(const Bytes &) = delete;
  Bytes &operator=(const Bytes &) = delete;

  std::string_view view() const { return {data, size}; }

private:
  char *data = nullptr;
  size_t size;
};

namespace {

/// Reads all of an open file; errno says why it cannot.
bool readAll(int descriptor, char *data, size_t size) {
  while (size > 0) {
    const ssize_t got = read(descriptor, data, size);
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0) {
      errno = got < 0 ? errno : 0;
      return false;
    }
    data += got;
    size -= size_t(got);
  }
  return true;
}

/// A file that is closed with its owner.
struct Descriptor {
  int number;
  ~Descriptor() {
    if (number >= 0)
      close(number);
  }
};

} // namespace

Program::Program() = default;
Program::~Program() = default;

std::shared_ptr<const Program> Program::load(std::unique_ptr<const Bytes> bytes,
                                             const std::string &name) {
  std::shared_ptr<Program> loaded(new Program);
  loaded->label = name;
  loaded->bytes = std::move(bytes);
  loaded->tables = std::make_unique<ProgramFile>(loaded->bytes->view(), name);
  const std::array<uint8_t, 32> &digest = loaded->tables->digest();
  loaded->digest = hexadecimal(
      {reinterpret_cast<const char *>(digest.data()), digest.size()});
  loaded->parsed =
      std::make_unique<Manifest>(checkedManifest(*loaded->tables, name));
  return loaded;
}

Status Program::loadFile(const std::string &path,
                         std::shared_ptr<const Program> &result) {
  return guarded([&] {
    const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC)};
    if (file.number < 0)
      fail(codeOfPath(errno),
           "cannot open program '" + path + "': " + strerror(errno));
    auto unreadable = [&](ExitCode code, const char *why) {
      fail(code, "cannot read program '" + path + "': " + why);
    };
    struct stat status{};
    if (fstat(file.number, &status) != 0)
      unreadable(ExitInvalid, strerror(errno));
    if (!S_ISREG(status.st_mode))
      unreadable(ExitInvalid, "not a regular file");
    auto fill = [&](char *data) {
      if (!readAll(file.number, data, size_t(status.st_size)))
        unreadable(ExitStorage,
                   errno ? strerror(errno) : "became shorter while reading");
    };
    result = load(std::make_unique<Bytes>(size_t(status.st_size), fill), path);
  });
}

Status Program::loadMemory(std::string_view bytes, const std::string &name,
                           std::shared_ptr<const Program> &result) {
  return guarded([&] {
    auto fill = [&](char *data) { bytes.copy(data, bytes.size()); };
    result = load(std::make_unique<Bytes>(bytes.size(), fill), name);
  });
}

std::string_view Program::manifestText() const { return tables->manifest(); }

std::vector<int> Program::nodes() const { return parsed->nodeOfRank(); }

int64_t Program::worldSize() const { return parsed->world; }
int64_t Program::batchSize() const { return parsed->batch; }
const std::vector<Datum> &Program::data() const { return parsed->data; }
int64_t Program::gradientDelay() const { return parsed->delay; }
bool Program::updatesJustInTime() const { return parsed->updatesJustInTime; }
bool Program::updatesOnDevice() const {
  for (const Role &role : parsed->roles)
    for (const Layer &layer : role.layers)
      if (layer.updatesOnDevice)
        return true;
  return false;
}
int64_t Program::sequenceLength() const { return parsed->sequenceLength(); }
int64_t Program::vocabularySize() const {
  const Datum *tokens = parsed->tokens();
  return tokens ? tokens->below : 0;
}
bool Program::predictsTokens() const { return parsed->predictsTokens(); }
std::string Program::dividedPredictions() const {
  const ProgramFile &calls = file();
  auto isDivided = [](const grt_kernel_op &op) {
    switch (op.kernel) {
    case GRT_KERNEL_CROSS_ENTROPY:
      return intsOf<kernels::CrossEntropy>(op).labelRows != 0;
    case GRT_KERNEL_REGULARIZED_CROSS_ENTROPY:
      return intsOf<kernels::RegularizedCrossEntropy>(op).labelRows != 0;
    case GRT_KERNEL_SOFTMAX_CROSS_ENTROPY:
      return intsOf<kernels::SoftmaxCrossEntropy>(op).labelRows != 0;
    default:
      return false;
    }
  };
  for (const Role &role : parsed->roles)
    for (const Layer &layer : role.layers)
      for (const gvx::Call &call : calls.calls(size_t(layer.forward)))
        if (call.kind == gvx::CallKind::Launch &&
            isDivided(calls.kernel(call.index)))
          return layer.name;
  return "";
}
int64_t Program::decoderLength() const {
  const Datum *tokens = parsed->decoderTokens();
  return tokens ? tokens->elements() : 0;
}
int64_t Program::cacheRows() const {
  const Datum *rows = parsed->datumOf("cache_rows");
  return rows ? rows->below : 0;
}
int64_t Program::cacheLength() const {
  const Datum *positions = parsed->datumOf("positions");
  return positions ? positions->below : 0;
}
bool Program::cachesSources() const {
  return parsed->datumOf("source_rows") != nullptr;
}
double Program::predictedStepMilliseconds() const {
  return parsed->predictedStepMs;
}
double Program::flopsPerSample() const { return parsed->flopsPerSample; }
double Program::peakFlops() const { return parsed->peakFlops; }
bool Program::clipsGradients() const { return parsed->clip; }
const std::string &Program::optimizer() const { return parsed->optimizer; }

const char *version() { return GRT_VERSION; }

Status proven(const Program &program) {
  return guarded([&] {
    if (std::string wrong = unprovable(program.manifest(), program.file());
        !wrong.empty())
      invalid("program '" + program.name() + "': " + wrong);
  });
}

} // namespace grt
