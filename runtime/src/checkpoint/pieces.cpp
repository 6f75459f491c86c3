//===- pieces.cpp - A rank's part of stored tensors -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "checkpoint/pieces.h"

#include <algorithm>
#include <cstring>

namespace grt {
namespace {

inline __attribute__((always_inline)) uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

template <typename Bits>
inline __attribute__((always_inline)) uint64_t sumOf(const void *elements,
                                                     int64_t first,
                                                     int64_t count) {
  const char *at = static_cast<const char *>(elements);
  uint64_t sum = 0, key = uint64_t(first) * 0x9e3779b97f4a7c15ull;
  for (int64_t i = 0; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, at + uint64_t(i) * sizeof(Bits), sizeof(Bits));
    sum += mix(uint64_t(bits) + key);
    key += 0x9e3779b97f4a7c15ull;
  }
  return sum;
}

inline __attribute__((always_inline)) uint64_t sumOfWidth(
    const void *elements, int64_t first, int64_t count, uint64_t elementBytes) {
  switch (elementBytes) {
  case 2:
    return sumOf<uint16_t>(elements, first, count);
  case 4:
    return sumOf<uint32_t>(elements, first, count);
  case 8:
    return sumOf<uint64_t>(elements, first, count);
  }
  fail("expected elements of 2, 4 or 8 bytes, found " + str(elementBytes));
}

#if defined(__x86_64__) && defined(__GNUC__)
/// Computes sumOfWidth() with four elements at once.
__attribute__((target("avx2"))) uint64_t sumByFour(const void *elements,
                                                   int64_t first, int64_t count,
                                                   uint64_t elementBytes) {
  return sumOfWidth(elements, first, count, elementBytes);
}
#endif

/// The parameter's name in the manifest, which outlives the place: a watchdog
/// may look at what a rank does when the place is gone.
const char *nameOf(const Manifest &manifest, const TensorPlace &place) {
  return manifest.parameters[size_t(place.parameter)].name.c_str();
}

/// Calls `visit(place number, layer, tensor)` for every tensor of the rank that
/// a place stores.
template <typename Visit>
void forEachPlace(const Manifest &manifest, const Rank &rank,
                  std::span<const TensorPlace> places, Visit visit) {
  for (const Layer &layer : manifest.roles[rank.roleIndex()].layers)
    for (const LayerTensor &tensor : layer.tensors)
      for (size_t i = 0; i < places.size(); ++i)
        // Borrowers hold values only.
        if (places[i].parameter == tensor.parameter &&
            (!tensor.isBorrowed() || places[i].isValue() ||
             places[i].kind == Held::Older))
          visit(i, layer, tensor);
}

/// Reads elements of a file that lie together into elements of type `dtype`;
/// what must be converted goes through a buffer of one page.
void readStored(const File &file, const TensorPlace &place, TensorRun run,
                grt_dtype dtype, char *to) {
  uint64_t width = dtypeBytes(dtype);
  uint64_t stored = safetensorsTypeBytes(place.storedType);
  if (place.storedType == safetensorsType(dtype))
    return file.readAt(place.offset + uint64_t(run.global) * stored, to,
                       uint64_t(run.count) * width);
  alignas(8) char page[4096];
  int64_t most = int64_t(sizeof(page) / stored);
  for (int64_t done = 0; done < run.count; done += most) {
    int64_t count = std::min(most, run.count - done);
    file.readAt(place.offset + uint64_t(run.global + done) * stored, page,
                uint64_t(count) * stored);
    convertStored(place.storedType, page, count, dtype,
                  to + uint64_t(done) * width);
  }
}

/// Reads a run of a parameter.
void readRun(const File &file, const Parameter &parameter,
             const TensorPlace &place, TensorRun run, grt_dtype dtype,
             char *to) {
  if (!place.isPart)
    return readStored(file, place, run, dtype, to);
  const int64_t begin = run.global;
  parameter.eachStored(
      begin, run.count, [&](int64_t first, int64_t at, int64_t count) {
        run.global = at;
        run.count = count;
        readStored(file, place, run, dtype,
                   to + uint64_t(first - begin) * dtypeBytes(dtype));
      });
}

/// Calls `visit` as forEachPlace() does, for the tensors that the rank is to
/// write.
template <typename Visit>
void forEachOwned(const Manifest &manifest, const Rank &rank,
                  std::span<const TensorPlace> places, Visit visit) {
  forEachPlace(
      manifest, rank, places,
      [&](size_t number, const Layer &layer, const LayerTensor &tensor) {
        if (ownsTensor(layer, tensor, rank.localRank()))
          visit(number, layer, tensor);
      });
}

/// Calls `visit(stretch)` for the stretches of such a tensor that the rank is
/// to write.
template <typename Visit>
void forEachOwnedStretch(const Layer &layer, const LayerTensor &tensor,
                         const Rank &rank, Visit visit) {
  forEachStretch(layer, tensor, rank.localRank(),
                 [&](const TensorStretch &stretch) {
                   if (stretch.owned())
                     visit(stretch);
                 });
}

/// Calls `visit(elements on the host, first, count)` for all of a stretch,
/// counted in the place's tensor, in their order. A device copies them
/// together.
template <typename Visit>
void readHeld(const Manifest &manifest, const Rank &rank, const Layer &layer,
              const TensorPlace &place, const TensorStretch &stretch,
              Visit visit) {
  const char *base = heldBase(manifest, rank, layer, place.kind);
  uint64_t width = dtypeBytes(place.entry.dtype);
  rank.access(layer).read(
      base + uint64_t(stretch.held()) * width, uint64_t(stretch.count()), width,
      [&](const char *from, uint64_t first, uint64_t count) {
        rank.advance();
        stretch.forParts(int64_t(first), int64_t(count),
                         [&](const TensorRun &part, uint64_t at) {
                           visit(from + at * width, part.global, part.count);
                         });
      });
}

/// Returns their elementSum().
uint64_t writeElements(std::span<const File> files, const TensorPlace &place,
                       const char *from, int64_t first, int64_t count) {
  uint64_t width = dtypeBytes(place.entry.dtype);
  files[place.file].writeAt(place.offset + uint64_t(first) * width, from,
                            uint64_t(count) * width);
  return elementSum(from, first, count, width);
}

void addHalves(HalfSums &sums, size_t place, uint64_t sum) {
  sums[2 * place] = double(sum >> 32);
  sums[2 * place + 1] = double(sum & 0xffffffffu);
}

} // namespace

std::vector<TensorPlace> tensorPlaces(const Manifest &manifest, bool states) {
  std::vector<TensorPlace> places;
  auto add = [&](int index, Held kind, const char *suffix) {
    TensorPlace place;
    grt_dtype dtype = heldType(manifest, kind);
    const Parameter &parameter = manifest.parameters[index];
    place.entry = {parameter.name + suffix, dtype, parameter.shape};
    place.parameter = index;
    place.kind = kind;
    place.storedType = safetensorsType(dtype);
    places.push_back(std::move(place));
  };
  for (const StoredParameter &stored : storedParameters(manifest))
    add(stored.index, valueKind(stored), "");
  if (!states)
    return places;
  const std::vector<StoredParameter> trained =
      storedParameters(manifest, Held::FirstState);
  for (const StoredParameter &stored : trained)
    for (Held kind : stateKinds(manifest))
      add(stored.index, kind, stateSuffix(manifest, kind));
  if (manifest.weightVersions > 1)
    for (const StoredParameter &stored : trained)
      add(stored.index, Held::Older, olderSuffix);
  return places;
}

uint64_t elementSum(const void *elements, int64_t first, int64_t count,
                    uint64_t elementBytes) {
#if defined(__x86_64__) && defined(__GNUC__)
  static const bool hasAvx2 = __builtin_cpu_supports("avx2");
  if (hasAvx2)
    return sumByFour(elements, first, count, elementBytes);
#endif
  return sumOfWidth(elements, first, count, elementBytes);
}

uint64_t wholeSum(const HalfSums &sums, size_t place) {
  return (uint64_t(sums[2 * place]) << 32) + uint64_t(sums[2 * place + 1]);
}

void writePieces(const Manifest &manifest, const Rank &rank,
                 std::span<const TensorPlace> places,
                 std::span<const File> files, HalfSums &sums) {
  forEachOwned(
      manifest, rank, places,
      [&](size_t number, const Layer &layer, const LayerTensor &tensor) {
        const TensorPlace &place = places[number];
        rank.note("writing of tensor", nameOf(manifest, place));
        uint64_t sum = 0;
        forEachOwnedStretch(
            layer, tensor, rank, [&](const TensorStretch &stretch) {
              readHeld(manifest, rank, layer, place, stretch,
                       [&](const char *from, int64_t first, int64_t count) {
                         sum += writeElements(files, place, from, first, count);
                       });
            });
        addHalves(sums, number, sum);
      });
}

uint64_t PieceCopies::bytes(const Manifest &manifest, const Rank &rank,
                            std::span<const TensorPlace> places) {
  uint64_t bytes = 0;
  forEachOwned(
      manifest, rank, places,
      [&](size_t number, const Layer &layer, const LayerTensor &tensor) {
        uint64_t width = dtypeBytes(places[number].entry.dtype);
        forEachOwnedStretch(layer, tensor, rank,
                            [&](const TensorStretch &stretch) {
                              bytes += uint64_t(stretch.count()) * width;
                            });
      });
  return bytes;
}

void PieceCopies::prepare(const Manifest &manifest, const Rank &from,
                          std::span<const TensorPlace> places) {
  rank = from.globalRank();
  pieces.clear();
  uint64_t end = 0;
  forEachOwned(
      manifest, from, places,
      [&](size_t number, const Layer &layer, const LayerTensor &tensor) {
        uint64_t width = dtypeBytes(places[number].entry.dtype);
        forEachOwnedStretch(
            layer, tensor, from, [&](const TensorStretch &stretch) {
              for (const TensorRun &run : stretch.runs) {
                pieces.push_back({number, run.global, run.count, end});
                end += uint64_t(run.count) * width;
              }
            });
      });
  if (capacity < end) {
    memory = std::make_unique_for_overwrite<char[]>(end);
    capacity = end;
  }
}

void PieceCopies::take(const Manifest &manifest, const Rank &from,
                       std::span<const TensorPlace> places) {
  char *to = memory.get();
  forEachOwned(
      manifest, from, places,
      [&](size_t number, const Layer &layer, const LayerTensor &tensor) {
        const TensorPlace &place = places[number];
        uint64_t width = dtypeBytes(place.entry.dtype);
        from.note("copying of tensor", nameOf(manifest, place));
        forEachOwnedStretch(
            layer, tensor, from, [&](const TensorStretch &stretch) {
              readHeld(manifest, from, layer, place, stretch,
                       [&](const char *elements, int64_t, int64_t count) {
                         std::memcpy(to, elements, uint64_t(count) * width);
                         to += uint64_t(count) * width;
                       });
            });
      });
}

void PieceCopies::write(std::span<const TensorPlace> places,
                        std::span<const File> files, HalfSums &sums) const {
  for (size_t i = 0; i < pieces.size();) {
    size_t number = pieces[i].place;
    uint64_t sum = 0;
    for (; i < pieces.size() && pieces[i].place == number; ++i)
      sum +=
          writeElements(files, places[number], memory.get() + pieces[i].offset,
                        pieces[i].first, pieces[i].count);
    addHalves(sums, number, sum);
  }
}

void readPieces(const Manifest &manifest, const Rank &rank,
                std::span<const TensorPlace> places,
                std::span<const File> files, HalfSums &sums) {
  forEachPlace(
      manifest, rank, places,
      [&](size_t number, const Layer &layer, const LayerTensor &tensor) {
        const TensorPlace &place = places[number];
        rank.note("reading of tensor", nameOf(manifest, place));
        grt_dtype held = place.entry.dtype;
        char *base = heldBase(manifest, rank, layer, place.kind);
        // Parameters that kernels read may be rounded copies of those held;
        // borrowers have the copy alone.
        bool rounded = place.kind == Held::Parameter && held != manifest.dtype;
        char *copy = rank.home(layer) + layer.parameter;
        bool owned = ownsTensor(layer, tensor, rank.localRank());
        bool isState =
            place.kind == Held::FirstState || place.kind == Held::SecondState;
        uint64_t sum = 0;
        forEachStretch(
            layer, tensor, rank.localRank(), [&](const TensorStretch &stretch) {
              auto read = [&](char *to, grt_dtype dtype, bool sums) {
                uint64_t bytes = dtypeBytes(dtype);
                rank.access(layer).write(
                    to + uint64_t(stretch.held()) * bytes,
                    uint64_t(stretch.count()), bytes,
                    [&](char *memory, uint64_t first, uint64_t count) {
                      rank.advance();
                      stretch.forParts(
                          int64_t(first), int64_t(count),
                          [&](const TensorRun &part, uint64_t at) {
                            char *piece = memory + at * bytes;
                            readRun(
                                files[place.file],
                                manifest.parameters[size_t(place.parameter)],
                                place, part, dtype, piece);
                            if (sums)
                              sum += elementSum(piece, part.global, part.count,
                                                bytes);
                          });
                    });
              };
              if (rounded)
                read(copy, manifest.dtype, false);
              // A stretch that another rank updates is here as a copy without a
              // state.
              bool ofOwner = rounded || isState;
              if (!ofOwner || (tensor.isTrained() && stretch.owned()))
                read(base, held, owned && stretch.owned());
            });
        if (owned)
          addHalves(sums, number, sum);
      });
}

} // namespace grt
