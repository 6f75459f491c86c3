//===- pieces.h - A rank's part of stored tensors -------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Files hold whole tensors; ranks hold runs of them (core/layout.h). A rank
// reads and writes its runs where they stand in the file, straight from and to
// its arena: nothing is gathered, and no buffer grows with the model. That is
// all of resharding: the file is the common layout.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CHECKPOINT_PIECES_H
#define GRT_CHECKPOINT_PIECES_H

#include "checkpoint/gather.h"
#include "checkpoint/safetensors.h"

#include <memory>
#include <span>

namespace grt {

/// A tensor of the program and where it stands in a set of files.
struct TensorPlace {
  TensorEntry entry; ///< as the program has it
  int parameter = 0;
  Held kind = Held::Parameter;
  size_t file = 0;
  uint64_t offset = 0;    ///< of its first element in the file
  std::string storedType; ///< of the file, see widensTo
  /// True if the file's tensor is the one that the parameter is a part of.
  bool isPart = false;

  /// True if it is a parameter's value, trained or not.
  bool isValue() const {
    return kind == Held::Parameter || kind == Held::Frozen;
  }
};

/// Places of all stored parameters, and of their optimizer state if `states`,
/// without files: weights by name, then states by name.
std::vector<TensorPlace> tensorPlaces(const Manifest &manifest, bool states);

/// A sum over elements that any division of them into runs adds up to: over all
/// i, mix(bits of element i + (first + i) * 0x9e3779b97f4a7c15), modulo 2^64,
/// where mix is the finaliser of SplitMix64 (Steele, Lea and Flood 2014).
uint64_t elementSum(const void *elements, int64_t first, int64_t count,
                    uint64_t elementBytes);

/// A part of a text that no pre-tokenizer has split so far.
using HalfSums = std::vector<double>;
uint64_t wholeSum(const HalfSums &sums, size_t place);

/// Writes the elements that the rank owns and sums them up. `sums` has two
/// entries for every place. Does not allocate more than a page.
void writePieces(const Manifest &manifest, const Rank &rank,
                 std::span<const TensorPlace> places,
                 std::span<const File> files, HalfSums &sums);

/// The elements that a rank owns, copied out of its arena so that any thread
/// can write them while the rank goes on. The memory stays for the next time.
class PieceCopies {
public:
  /// Bytes of host memory that the copies of `rank` take.
  static uint64_t bytes(const Manifest &manifest, const Rank &rank,
                        std::span<const TensorPlace> places);

  /// Makes room, on any thread: what a rank's own holds counts as its memory.
  void prepare(const Manifest &manifest, const Rank &rank,
               std::span<const TensorPlace> places);
  /// Copies, on the rank's thread.
  void take(const Manifest &manifest, const Rank &rank,
            std::span<const TensorPlace> places);
  /// Writes the copied elements, as writePieces() would have at the time of
  /// take().
  void write(std::span<const TensorPlace> places, std::span<const File> files,
             HalfSums &sums) const;
  /// The rank, of all, that owns the copied elements.
  int globalRank() const { return rank; }

private:
  struct Piece {
    size_t place;
    int64_t first, count; ///< elements of the place
    uint64_t offset;      ///< in `memory`
  };
  int rank = 0;
  std::vector<Piece> pieces;
  std::unique_ptr<char[]> memory;
  uint64_t capacity = 0; ///< of `memory`
};

/// Reads everything that the rank holds, replicas and borrowed values included,
/// and sums up the elements that it owns.
void readPieces(const Manifest &manifest, const Rank &rank,
                std::span<const TensorPlace> places,
                std::span<const File> files, HalfSums &sums);

} // namespace grt

#endif // GRT_CHECKPOINT_PIECES_H
