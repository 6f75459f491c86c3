//===- program.cpp - Loading compiled programs ----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The bytes are read and checked first, then put into an anonymous file that
// the dynamic loader maps: what was checked is what is mapped, and a file that
// is replaced or cut short later cannot fault the process. The descriptor stays
// open as long as the library, so that its name (/proc/self/fd/N) stays unique;
// the dynamic loader knows libraries by name.
//
//===----------------------------------------------------------------------===//

#include "core/error.h"
#include "core/image.h"
#include "core/layout.h"
#include "core/manifest.h"
#include "core/sha256.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace grt {
namespace {

std::string readFile(const std::string &path) {
  int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0)
    fail(codeOfPath(errno),
         "cannot open program '" + path + "': " + strerror(errno));
  struct stat status{};
  std::string bytes;
  std::string problem;
  ExitCode code = ExitInvalid;
  if (fstat(descriptor, &status) != 0)
    problem = strerror(errno);
  else if (!S_ISREG(status.st_mode))
    problem = "not a regular file";
  if (problem.empty()) {
    bytes.resize(size_t(status.st_size));
    size_t done = 0;
    while (done < bytes.size()) {
      ssize_t got = read(descriptor, bytes.data() + done, bytes.size() - done);
      if (got < 0 && errno == EINTR)
        continue;
      if (got <= 0) {
        code = ExitStorage;
        problem = got < 0 ? strerror(errno) : "became shorter while reading";
        break;
      }
      done += size_t(got);
    }
  }
  close(descriptor);
  if (!problem.empty())
    fail(code, "cannot read program '" + path + "': " + problem);
  return bytes;
}

/// Refuses code for another kind of processor before it is loaded.
void checkMachine(std::string_view payload, const std::string &name) {
  Elf64_Ehdr header;
  std::memcpy(&header, payload.data(), sizeof(header));
#if defined(__x86_64__)
  constexpr unsigned expected = EM_X86_64;
#elif defined(__aarch64__)
  constexpr unsigned expected = EM_AARCH64;
#else
  const unsigned expected = header.e_machine;
#endif
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != expected)
    invalid("program '" + name + "' was built for another processor: ELF " +
            "machine " + str(header.e_machine) + ", this one is " +
            str(expected));
}

/// Refuses code that uses instructions this processor lacks.
void checkCpu(const std::string &cpu) {
  if (cpu.empty())
    return;
#if defined(__x86_64__)
  __builtin_cpu_init();
  bool known = true, has = false;
  if (cpu == "x86-64")
    has = true;
  else if (cpu == "x86-64-v2")
    has = __builtin_cpu_supports("x86-64-v2");
  else if (cpu == "x86-64-v3")
    has = __builtin_cpu_supports("x86-64-v3");
  else if (cpu == "x86-64-v4")
    has = __builtin_cpu_supports("x86-64-v4");
  else
    known = false;
  if (!known || !has)
    invalid("it was built for CPU '" + cpu + "', " +
            (known ? "whose instructions this one lacks"
                   : "which this runtime does not know"));
#endif
}

/// Checks the trailer and returns the payload.
std::string_view checkedPayload(std::string_view bytes,
                                const std::string &name) {
  auto damaged = [&](const std::string &what) {
    invalid("program '" + name + "' is damaged: " + what);
  };
  bool isImage = bytes.starts_with(std::string_view(ELFMAG, SELFMAG));
  bool hasTrailer =
      bytes.size() >= trailerBytes &&
      bytes.substr(bytes.size() - trailerBytes).starts_with(trailerMagic);
  // What never was a program is no damaged one.
  if (!isImage && !hasTrailer && !bytes.empty())
    invalid("'" + name +
            "' is not a program: expected a file that galvatron-compile makes "
            "of a model or a planned module (.gvx)");
  if (bytes.size() < trailerBytes)
    damaged("expected at least " + str(trailerBytes) + " bytes, found " +
            str(bytes.size()));
  std::string_view trailer = bytes.substr(bytes.size() - trailerBytes);
  std::string_view payload = bytes.substr(0, bytes.size() - trailerBytes);
  if (!hasTrailer)
    damaged("no trailer at its end; it is cut short");
  uint64_t length = 0;
  for (int i = 0; i < 8; ++i)
    length |= uint64_t(uint8_t(trailer[8 + i])) << (8 * i);
  if (length != payload.size())
    damaged("expected " + str(length) + " bytes before the trailer, found " +
            str(payload.size()));
  std::array<unsigned char, trailerBytes> expected = programTrailer(payload);
  if (std::memcmp(expected.data(), trailer.data(), trailerBytes) != 0)
    damaged("its SHA-256 differs from the one in its trailer");
  if (!isImage)
    damaged("expected an ELF shared object");
  if (payload.size() >= sizeof(Elf64_Ehdr))
    checkMachine(payload, name);
  return payload;
}

/// The symbols that programs import must be visible to the dynamic loader also
/// where this library itself was loaded privately, as by an interpreter.
void publishEntryPoints() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void *>(&grt_launch), &info) && info.dli_fname)
    if (void *self =
            dlopen(info.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD))
      dlclose(self);
}

/// What is swapped for an update on the device.
uint32_t updatedClasses(uint32_t tiers) {
  return tiers == GRT_TO_DEVICE
             ? GRT_SWAP_OPTIMIZER
             : uint32_t(GRT_SWAP_OPTIMIZER) | GRT_SWAP_PARAMETERS;
}

/// What a row may say, from what its kind names.
void checkTask(const grt_task &task, const Manifest &manifest, const Role &role,
               uint64_t partCount, const std::string &place) {
  bool swaps = task.kind == GRT_TASK_SWAP;
  if (task.kind > GRT_TASK_BACKWARD_WEIGHT && !swaps)
    invalid(place + ": unknown kind " + str(task.kind));
  bool isLast =
      task.kind == GRT_TASK_BACKWARD || task.kind == GRT_TASK_BACKWARD_WEIGHT;
  bool computes = isLast || task.kind == GRT_TASK_FORWARD ||
                  task.kind == GRT_TASK_BACKWARD_INPUT;
  bool isTransfer = task.kind == GRT_TASK_TRANSFER;
  bool ofChunk = computes || task.kind == GRT_TASK_SYNC_GRADIENTS ||
                 task.kind == GRT_TASK_UPDATE || swaps;
  // Where every layer has a home of its own nothing of a role may be away.
  const bool mayBeAway = manifest.hasHomes();
  if (swaps && (!mayBeAway || task.tiers < GRT_TO_DEVICE ||
                task.tiers > GRT_TO_HOST || task.classes == 0 ||
                (task.classes > GRT_SWAP_ACTIVATIONS &&
                 task.classes != updatedClasses(task.tiers))))
    invalid(place + ": a swap of classes " + str(task.classes) + ", tiers " +
            str(task.tiers) +
            ", expected 1 to 4, 8 in or 9 out, and 1 or 2, and states that "
            "have their home on the host");
  const Chunk *chunk = ofChunk ? role.chunk(task.chunk) : nullptr;
  if (ofChunk && !chunk)
    invalid(place + ": chunk " + str(task.chunk) + " is not the role's");
  if (swaps && (task.classes & GRT_SWAP_OPTIMIZER) &&
      !role.layers[chunk->firstLayer].updatesOnDevice)
    invalid(place + ": optimizer state of chunk " + str(task.chunk) +
            ", which is updated at home");
  bool swapsSlot = swaps && task.classes == GRT_SWAP_ACTIVATIONS;
  // Where every layer has its own home none of a role's may be there.
  const bool mayHaveNone =
      std::any_of(manifest.roles.begin(), manifest.roles.end(),
                  [](const Role &other) { return other.awaySlot.bytes > 0; });
  if (swapsSlot && !(mayHaveNone && !role.slotsAtHome) &&
      (!role.slotsAtHome || task.slot >= chunk->slots ||
       (uint64_t(chunk->firstSlot) + task.slot + 1) * role.homeSlotBytes >
           role.homeSlots.bytes))
    invalid(place + ": slot " + str(task.slot) + " is not one at home");
  const uint64_t count =
      uint64_t(manifest.microBatchesOf(chunk && chunk->forwardOnly));
  if ((computes || swapsSlot) && task.micro_batch >= count)
    invalid(place + ": micro-batch out of range, expected less than " +
            str(count));
  if (manifest.hasPacks && swapsSlot && task.tiers != GRT_TO_DEVICE)
    invalid(place + ": a stash is sent home, not swapped out");
  if (manifest.hasPacks && computes && task.kind != GRT_TASK_FORWARD &&
      (task.kind != GRT_TASK_BACKWARD || chunk->forwardOnly))
    invalid(place + ": a backward pass in parts, or of a chunk that runs "
                    "forward only");
  // A pass that uses no message names place 0.
  uint64_t slots = manifest.hasPacks ? std::max<uint64_t>(role.waitingPlaces, 1)
                   : computes        ? chunk->slots
                                     : 0;
  if (computes && task.slot >= slots)
    invalid(place + ": slot " + str(task.slot) + " of " + str(slots));
  if (isTransfer && (task.count == 0 || task.count > GRT_TRANSFER_PARTS))
    invalid(place + ": expected 1 to " + str(GRT_TRANSFER_PARTS) +
            " parts of a transfer, found " + str(task.count));
  if (isTransfer &&
      (task.first > partCount || task.count > partCount - uint64_t(task.first)))
    invalid(place + ": parts from " + str(task.first) + " on of " +
            str(partCount));
  // What is done at home waits for no event.
  bool mayWait = mayBeAway && (computes || isTransfer || swaps);
  uint32_t waits =
      *std::max_element(std::begin(task.waits), std::end(task.waits));
  const struct {
    const char *name;
    uint32_t value;
    bool named;
  } fields[] = {
      {"flags", task.flags & ~uint32_t(GRT_SYNC_BEHIND), false},
      {"flags", task.flags, isLast},
      {"chunk", task.chunk, ofChunk},
      {"slot", task.slot, computes || swapsSlot},
      {"micro-batch", task.micro_batch, computes || swapsSlot},
      {"first part", task.first, isTransfer},
      {"count of parts", task.count, isTransfer},
      {"generation", task.generation,
       task.kind == GRT_TASK_FORWARD && task.generation <= manifest.delay},
      {"classes", task.classes, swaps},
      {"stream", task.stream,
       swaps && task.stream == (task.tiers == GRT_TO_HOST ? GRT_STREAM_OUT
                                                          : GRT_STREAM_IN)},
      {"tiers", task.tiers, swaps},
      {"recorded event", task.records,
       mayWait && task.records <= GRT_SCHEDULE_EVENTS},
      {"event to wait for", waits, mayWait && waits <= GRT_SCHEDULE_EVENTS}};
  for (const auto &field : fields)
    if (!field.named && field.value)
      invalid(place + ": expected " + field.name + " 0, found " +
              str(field.value) + "; this runtime does not know its meaning");
}

void checkPart(const grt_transfer_part &part, const Manifest &manifest,
               const Role &role, const std::string &place) {
  if (part.direction > GRT_RECEIVE ||
      part.value > (manifest.hasPacks ? GRT_STASH : GRT_GRADIENT))
    invalid(place + ": unknown direction " + str(part.direction) +
            " or value " + str(part.value));
  const Chunk *chunk = role.chunk(part.chunk);
  if (!chunk)
    invalid(place + ": chunk " + str(part.chunk) + " is not the role's");
  bool isActivation = part.value == GRT_ACTIVATION;
  bool isStash = part.value == GRT_STASH;
  bool sends = part.direction == GRT_SEND;
  int exchange = isActivation
                     ? sends ? chunk->sendActivation : chunk->recvActivation
                 : sends ? chunk->sendGradient
                         : chunk->recvGradient;
  // Activations go up in the model's order, gradients down.
  int peer = manifest.peerOf(part);
  if (isStash ? peer < 0 : exchange < 0)
    invalid(place + ": chunk " + str(part.chunk) + " does not " +
            (sends ? "send " : "receive ") +
            (isStash        ? "a stash"
             : isActivation ? "an activation"
                            : "a gradient"));
  if (part.peer_chunk != peer)
    invalid(place + ": expected peer chunk " + str(peer) + ", found " +
            str(part.peer_chunk));
  // A stash is one of its sender's micro-batches.
  const uint64_t count =
      uint64_t(manifest.microBatchesOf(isStash || chunk->forwardOnly));
  if (part.micro_batch >= count)
    invalid(place + ": micro-batch out of range, expected less than " +
            str(count));
  bool waits = manifest.hasPacks && !isStash;
  bool fills = (isActivation || manifest.hasPacks) && !sends;
  uint64_t slots = waits ? role.waitingPlaces : chunk->slots;
  if (fills ? part.slot >= slots : part.slot != 0)
    invalid(place + ": slot " + str(part.slot) + " of " +
            str(fills ? slots : uint64_t(1)));
  if (isStash && fills &&
      (uint64_t(chunk->firstSlot) + part.slot + 1) * role.homeSlotBytes >
          role.homeSlots.bytes)
    invalid(place + ": slot " + str(part.slot) + " is not one at home");
  if (part.generation > manifest.delay || part.reserved[0] ||
      part.reserved[1] || part.reserved[2])
    invalid(place + ": expected a generation of at most " +
            str(uint64_t(manifest.delay)) + ", found " + str(part.generation) +
            ", or a reserved field that is not 0");
}

void checkSchedule(const grt_schedule &schedule, const Manifest &manifest,
                   const Role &role, const std::string &name) {
  static const char *const parts[] = {"prologue", "steady", "step end", "drain",
                                      "evaluate"};
  if (schedule.transfer_count && !schedule.transfers)
    invalid(name + ": parts of transfers are missing");
  for (uint64_t i = 0; i < schedule.transfer_count; ++i)
    checkPart(schedule.transfers[i], manifest, role,
              name + ", part " + str(i) + " of transfers");
  for (int part = 0; part < GRT_PART_COUNT; ++part) {
    const grt_task_list &list = schedule.parts[part];
    std::string where = name + ", " + parts[part];
    if (list.count && !manifest.delay &&
        (part == GRT_PART_PROLOGUE || part == GRT_PART_DRAIN))
      invalid(where + ": expected no tasks, found " + str(list.count) +
              ", as gradients are not late");
    if (list.count && !list.tasks)
      invalid(where + ": tasks are missing");
    bool recorded[GRT_SCHEDULE_EVENTS + 1] = {true};
    for (uint64_t i = 0; i < list.count; ++i) {
      const grt_task &task = list.tasks[i];
      std::string place = where + ", task " + str(i);
      checkTask(task, manifest, role, schedule.transfer_count, place);
      for (uint8_t event : task.waits)
        if (!recorded[event])
          invalid(place + ": waits for event " + str(uint64_t(event)) +
                  ", which no task before it records");
      recorded[task.records] = true;
      if (task.kind == GRT_TASK_UPDATE && part == GRT_PART_STEP_END &&
          role.layers[role.chunk(task.chunk)->firstLayer].updatesOnDevice)
        invalid(place + ": chunk " + str(task.chunk) +
                " is updated on the device, where it is no more");
      bool ends = task.kind >= GRT_TASK_SYNC_GRADIENTS &&
                  task.kind <= GRT_TASK_TIE_BROADCAST;
      bool behind =
          task.kind == GRT_TASK_SYNC_GRADIENTS || task.kind == GRT_TASK_UPDATE;
      // Where updates are late, tied values are taken at the beginning.
      bool takes = task.kind == GRT_TASK_TIE_BROADCAST && manifest.delay > 0;
      if (ends && part != GRT_PART_STEP_END && !takes &&
          !(behind && part == GRT_PART_STEADY && role.homeBytes > 0 &&
            !manifest.clip))
        invalid(place + ": it ends a step, and only updates at home without "
                        "clipping come before");
      if (task.kind == GRT_TASK_NORM && manifest.delay && !manifest.clip)
        invalid(place + ": a norm, where updates do not wait for all ranks");
      unsigned seen = 0;
      for (uint32_t p = 0; task.kind == GRT_TASK_TRANSFER && p < task.count;
           ++p) {
        const grt_transfer_part &one = schedule.transfers[task.first + p];
        unsigned bit = 1u << (2 * one.value + one.direction);
        if (seen & bit)
          invalid(place + ": two parts of one direction and value");
        seen |= bit;
        // A role that waits for itself waits for ever.
        auto isOtherEnd = [&](const grt_transfer_part &end) {
          return end.chunk == one.peer_chunk && end.peer_chunk == one.chunk &&
                 end.value == one.value && end.direction != one.direction &&
                 end.micro_batch == one.micro_batch;
        };
        const grt_transfer_part *parts = schedule.transfers + task.first;
        if (role.chunk(one.peer_chunk) &&
            std::none_of(parts, parts + task.count, isOtherEnd))
          invalid(place + ": expected both ends of a message between chunks " +
                  str(one.chunk) + " and " + str(one.peer_chunk) +
                  ", which are on one role");
      }
    }
  }
}

void checkTable(const grt_program &program, const Manifest &manifest) {
  if (program.function_count != manifest.functions.size())
    invalid("program has " + str(program.function_count) +
            " functions, its manifest names " + str(manifest.functions.size()));
  if (program.role_count != manifest.roles.size())
    invalid("program has " + str(program.role_count) +
            " roles, its manifest names " + str(manifest.roles.size()));
  for (uint32_t i = 0; i < program.function_count; ++i)
    if (!program.functions[i])
      invalid("function '" + manifest.functions[i] + "' is missing");
  for (uint32_t r = 0; r < program.role_count; ++r) {
    std::string name = "schedule of role " + str(r);
    checkSchedule(program.schedules[r], manifest, manifest.roles[r], name);
    if (manifest.hasPacks)
      checkPackMemory(program.schedules[r], manifest, manifest.roles[r], name);
  }
}

bool updatesJustInTime(const grt_program &program) {
  for (uint32_t r = 0; r < program.role_count; ++r) {
    const grt_task_list &steady = program.schedules[r].parts[GRT_PART_STEADY];
    for (uint64_t i = 0; i < steady.count; ++i)
      if (steady.tasks[i].kind == GRT_TASK_UPDATE)
        return true;
  }
  return false;
}

Manifest checkedManifest(const grt_program &program, const std::string &name) {
  if (program.abi_version != GRT_ABI_VERSION)
    invalid("program '" + name + "' has ABI version " +
            str(program.abi_version) + ", this runtime has " +
            str(GRT_ABI_VERSION) + ": compile again");
  if (program.task_bytes != sizeof(grt_task) ||
      program.transfer_part_bytes != sizeof(grt_transfer_part))
    invalid("program '" + name + "' has rows of " + str(program.task_bytes) +
            " and " + str(program.transfer_part_bytes) + " bytes, expected " +
            str(sizeof(grt_task)) + " and " + str(sizeof(grt_transfer_part)));
  if (!program.manifest || !program.functions || !program.schedules)
    invalid("program '" + name + "' has an incomplete table");
  try {
    Manifest manifest =
        parseManifest({program.manifest, size_t(program.manifest_bytes)});
    checkCpu(manifest.targetCpu);
    checkTable(program, manifest);
    manifest.updatesJustInTime = updatesJustInTime(program);
    checkWiring(manifest);
    return manifest;
  } catch (const Error &error) {
    invalid("program '" + name + "': " + error.what());
  }
}

/// An anonymous file with these bytes.
int anonymousFile(std::string_view bytes) {
  int descriptor = memfd_create("galvatron-program", MFD_CLOEXEC);
  if (descriptor < 0)
    fail(std::string("cannot make an anonymous file: ") + strerror(errno));
  size_t done = 0;
  while (done < bytes.size()) {
    ssize_t wrote = write(descriptor, bytes.data() + done, bytes.size() - done);
    if (wrote < 0 && errno == EINTR)
      continue;
    if (wrote <= 0) {
      std::string reason = strerror(errno);
      close(descriptor);
      fail("cannot fill an anonymous file: " + reason);
    }
    done += size_t(wrote);
  }
  return descriptor;
}

} // namespace

std::array<unsigned char, trailerBytes>
programTrailer(std::string_view payload) {
  std::array<unsigned char, trailerBytes> trailer{};
  std::memcpy(trailer.data(), trailerMagic.data(), trailerMagic.size());
  for (int i = 0; i < 8; ++i)
    trailer[8 + i] = uint8_t(uint64_t(payload.size()) >> (8 * i));
  std::array<uint8_t, 32> digest = sha256(payload);
  std::memcpy(trailer.data() + 16, digest.data(), digest.size());
  return trailer;
}

Program::Program() = default;

Program::~Program() {
  if (library)
    dlclose(library);
  if (descriptor >= 0)
    close(descriptor);
}

Status Program::loadFile(const std::string &path,
                         std::shared_ptr<const Program> &result) {
  std::string bytes;
  Status status = guarded([&] { bytes = readFile(path); });
  return status ? loadMemory(bytes, path, result) : status;
}

Status Program::loadMemory(std::string_view bytes, const std::string &name,
                           std::shared_ptr<const Program> &result) {
  return guarded([&] {
    std::string_view payload = checkedPayload(bytes, name);
    try {
      checkImage(payload);
    } catch (const Error &error) {
      invalid("program '" + name + "' is not loaded: " + error.what());
    }
    std::shared_ptr<Program> loaded(new Program);
    loaded->label = name;
    loaded->digest = hashText(payload);
    loaded->descriptor = anonymousFile(payload);
    publishEntryPoints();
    std::string path = "/proc/self/fd/" + std::to_string(loaded->descriptor);
    loaded->library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!loaded->library)
      invalid("cannot load program '" + name + "': " + dlerror());
    loaded->program =
        static_cast<const grt_program *>(dlsym(loaded->library, "grt_program"));
    if (!loaded->program)
      invalid("program '" + name + "' does not export 'grt_program'");
    loaded->parsed =
        std::make_unique<Manifest>(checkedManifest(*loaded->program, name));
    result = loaded;
  });
}

Status Program::fromTable(const grt_program *table, const std::string &name,
                          std::shared_ptr<const Program> &result) {
  return guarded([&] {
    std::shared_ptr<Program> loaded(new Program);
    loaded->label = name;
    loaded->program = table;
    loaded->parsed = std::make_unique<Manifest>(checkedManifest(*table, name));
    loaded->digest = hashText({table->manifest, size_t(table->manifest_bytes)});
    result = loaded;
  });
}

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
int64_t Program::decoderLength() const {
  const Datum *tokens = parsed->decoderTokens();
  return tokens ? tokens->elements() : 0;
}
double Program::predictedStepMilliseconds() const {
  return parsed->predictedStepMs;
}
double Program::flopsPerSample() const { return parsed->flopsPerSample; }
double Program::peakFlops() const { return parsed->peakFlops; }
bool Program::clipsGradients() const { return parsed->clip; }
const std::string &Program::optimizer() const { return parsed->optimizer; }

const char *version() { return GRT_VERSION; }

} // namespace grt
