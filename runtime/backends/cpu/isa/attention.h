//===- attention.h - Attention without a matrix of scores -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Tiles of 64 queries by 64 keys with the softmax kept as a running maximum and
// sum (Milakov and Gimelshein, arXiv 1805.02867; Rabe and Staats, arXiv
// 2112.05682; the backward pass from lse as in FlashAttention, Dao et al.,
// arXiv 2205.14135, algorithm 4). Scratch does not grow with the sequence.
//
// A step of a ring begins with what the steps before it have left: their lse is
// the running maximum, to which their mean of values belongs with a sum of 1.
//
// Scores are held transposed, keys down and queries across: the softmax then
// runs lane by lane without horizontal operations, a row of lanes shares its
// dropout counters, and all five products have the form of isa/products.h with
// nothing but the queries (and dout) transposed into a panel.
//
// With causal set, query r sees keys 0 .. r + Tk - Tq; with a window none that
// are `window` or more behind that, nor, without causal, before it; a mask
// takes keys from all queries of a sample, and of several documents in a sample
// a query sees its own. Tiles that no query sees are left out, those of the
// padding behind a sequence and those of documents before among them. A bias
// depends on the distance from query to key alone: a tile needs one number for
// each of its diagonals, as for a slope. Where samples are windows of a grid it
// depends on the distance in two dimensions, and comes from one column of a
// table. A cap is taken of scores before anything is added; what it multiplies
// their gradient by is one more tile, on the stack.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_CPU_ISA_ATTENTION_H
#define GRT_BACKENDS_CPU_ISA_ATTENTION_H

#include "math.h"
#include "products.h"

namespace grt::cpu {
namespace {

constexpr int64_t queryTile = attentionQueries, keyTile = attentionKeys;
static_assert(queryTile % lanes<float> == 0 && keyTile % 4 == 0);

/// out[d][i] = factor * rows[i][d], zero for i >= count.
template <class T>
void transposeTile(const T *rows, int64_t stride, int64_t count,
                   int64_t headDim, Accumulator<T> factor,
                   Accumulator<T> *out) {
  using A = Accumulator<T>;
  constexpr int64_t square = lanes<A>;
  auto squares = [&](int64_t i0, auto here) {
    sweep<A>(0, headDim, [&](int64_t d0, auto at) {
      Vec<A> piece[square];
      for (int64_t i = 0; i < square; ++i)
        piece[i] = i < here ? at.load(rows + (i0 + i) * stride + d0) * factor
                            : Vec<A>{};
      transposeSquare<A>(piece);
      for (int64_t d = 0; d < at.count; ++d)
        storeWhole(out + (d0 + d) * queryTile + i0, piece[d]);
    });
  };
  int64_t i0 = 0;
  for (; i0 + square <= count; i0 += square)
    squares(i0, std::integral_constant<int64_t, square>());
  if (i0 < count)
    squares(i0, count - i0);
}

/// Rows to compute with, and the distance from one to the next.
template <class A> struct Rows {
  const A *data;
  int64_t stride;
};

/// The rows in place if they are stored in the type to compute in, else widened
/// into `buffer`.
template <class T>
Rows<Accumulator<T>> wideRows(const T *rows, int64_t stride, int64_t count,
                              int64_t headDim, Accumulator<T> *buffer) {
  using A = Accumulator<T>;
  if constexpr (sizeof(T) == sizeof(A)) {
    return {rows, stride};
  } else {
    for (int64_t i = 0; i < count; ++i)
      sweep<A>(0, headDim, [&](int64_t d, auto at) {
        at.store(buffer + i * headDim + d, at.load(rows + i * stride + d));
      });
    return {buffer, headDim};
  }
}

/// The state that the tiles of one (sample, head) share.
template <class T> struct Head {
  const AttentionArguments<T> &a;
  int64_t sample, head;
  int64_t keys; ///< up to the last one that the mask leaves
  /// The head's column of the table of biases; windows have one.
  const Accumulator<T> *table = nullptr;

  Head(const AttentionArguments<T> &a, int64_t sample, int64_t head)
      : a(a), sample(sample), head(head), keys(a.keyRows) {
    while (a.mask && keys > 0 && !mask()[keys - 1])
      --keys;
  }
  const int32_t *mask() const { return a.mask + sample * a.keyRows; }
  const int32_t *starts() const { return a.starts + sample * a.queryRows; }
  const T *q(int64_t i) const {
    return a.q + (sample * a.queryRows + i) * a.qStride + head * a.headDim;
  }
  int64_t kvHead() const { return head / (a.heads / a.kvHeads); }
  const T *k(int64_t j) const {
    return a.k + (sample * a.keyRows + j) * a.kStride + kvHead() * a.headDim;
  }
  const T *v(int64_t j) const {
    return a.v + (sample * a.keyRows + j) * a.vStride + kvHead() * a.headDim;
  }
  int64_t outStride() const { return a.heads * a.headDim; }
  int64_t outOffset(int64_t i) const {
    return (sample * a.queryRows + i) * outStride() + head * a.headDim;
  }
  Accumulator<T> *lse() const {
    return a.lse + (sample * a.heads + head) * a.queryRows;
  }
  int64_t queriesOf(int64_t i0) const {
    return smaller(queryTile, a.queryRows - i0);
  }
  /// Lanes that the queries from i0 on take: whole vectors. What a tile has
  /// beside them means nothing.
  int64_t lanesOf(int64_t i0) const {
    constexpr int64_t width = lanes<Accumulator<T>>;
    return (queriesOf(i0) + width - 1) / width * width;
  }
  int64_t diagonal() const { return a.diagonal; }
  int64_t distances() const { return a.queryRows + a.keyRows - 1; }
  /// Returns the offset in the head's row of biases, whose first element is the
  /// distance from the last query to key 0.
  int64_t biasOffset() const {
    return (sample * a.globalHeads + a.firstHead + head) * distances();
  }
  /// Keys that queries [i, i + count) see.
  int64_t keyLimit(int64_t i, int64_t count) const {
    if (!a.causal && !a.window)
      return keys;
    int64_t ahead = a.causal ? 0 : smaller(a.window - 1, keys);
    int64_t limit = smaller(keys, i + count + diagonal() + ahead);
    return limit < 0 ? 0 : limit;
  }
  /// The first tile of keys of which queries from i on see something.
  int64_t firstTile(int64_t i) const {
    int64_t first = a.window ? i + diagonal() - a.window + 1 : 0;
    // Documents ascend: later queries see nothing before this one's either.
    if (a.starts && starts()[i] > first)
      first = starts()[i];
    return first < 0 ? 0 : first / keyTile * keyTile;
  }
  /// Global row number of query i, see grt/philox.h.
  uint64_t dropoutRow(int64_t i) const {
    uint64_t s = uint64_t(a.firstSample + sample);
    uint64_t h = uint64_t(a.firstHead + head);
    return (s * uint64_t(a.globalHeads) + h) * uint64_t(a.globalQueries) +
           uint64_t(a.firstQuery + i);
  }
};

/// Under causal masking half of a tile on the diagonal is empty. Tiles are cut
/// into two bands of keys and two of queries, and what is empty is left out.
constexpr int64_t band = 32;
static_assert(band % lanes<float> == 0 && queryTile == 2 * band &&
              keyTile == 2 * band);

/// The first lane, rounded down to a band, that sees key `j` of the tile.
template <class T>
int64_t firstLane(const Head<T> &head, int64_t i0, int64_t j) {
  if (!head.a.causal)
    return 0;
  int64_t first = j - head.diagonal() - i0;
  first = first < 0 ? 0 : first / band * band;
  return first > queryTile ? queryTile : first;
}

/// The keys of [j0, j0 + keys) that some query of [i, i + count) sees.
template <class T>
int64_t keysSeen(const Head<T> &head, int64_t i, int64_t count, int64_t j0,
                 int64_t keys) {
  int64_t seen = smaller(head.keyLimit(i, count) - j0, keys);
  return seen < 0 ? 0 : seen;
}

/// tile[j][i] = rows[j] . panel[.][i]; lanes that see nothing of a band of keys
/// may be left as they are.
template <class T>
void scoreTile(const Head<T> &head, int64_t i0, int64_t j0, int64_t keys,
               Rows<Accumulator<T>> rows, const Accumulator<T> *panel,
               Accumulator<T> *tile) {
  using A = Accumulator<T>;
  const int64_t across = head.lanesOf(i0);
  if (firstLane(head, i0, j0 + band) == 0) {
    products<A>(keys, across, head.a.headDim, {rows.data, rows.stride, 1},
                panel, queryTile, tile, queryTile, false);
    return;
  }
  for (int64_t j = 0; j < keys; j += band) {
    int64_t lane = smaller(firstLane(head, i0, j0 + j), across);
    products<A>(smaller(band, keys - j), across - lane, head.a.headDim,
                {rows.data + j * rows.stride, rows.stride, 1}, panel + lane,
                queryTile, tile + j * queryTile + lane, queryTile, false);
  }
}

/// out[i] (+)= sum over keys of tile[j][i] rows[j].
template <class T>
void queryProducts(const Head<T> &head, int64_t i0, int64_t queries, int64_t j0,
                   int64_t keys, const Accumulator<T> *tile,
                   Rows<Accumulator<T>> rows, Accumulator<T> *out,
                   int64_t outStride, bool add) {
  using A = Accumulator<T>;
  // A band that sees nothing still has to be written if it is the first.
  for (int64_t i = 0; i < queries; i += band) {
    int64_t count = smaller(band, queries - i);
    int64_t seen = keysSeen(head, i0 + i, count, j0, keys);
    if (i == 0 && queries > band && seen == keys) {
      products<A>(queries, head.a.headDim, keys, {tile, 1, queryTile},
                  rows.data, rows.stride, out, outStride, add);
      return;
    }
    products<A>(count, head.a.headDim, seen, {tile + i, 1, queryTile},
                rows.data, rows.stride, out + i * outStride, outStride, add);
  }
}

/// out[j] += sum over queries of tile[j][i] rows[i].
template <class T>
void keyProducts(const Head<T> &head, int64_t i0, int64_t queries, int64_t j0,
                 int64_t keys, const Accumulator<T> *tile,
                 Rows<Accumulator<T>> rows, Accumulator<T> *out,
                 int64_t outStride) {
  using A = Accumulator<T>;
  if (firstLane(head, i0, j0 + band) == 0) {
    products<A>(keys, head.a.headDim, queries, {tile, queryTile, 1}, rows.data,
                rows.stride, out, outStride, true);
    return;
  }
  for (int64_t j = 0; j < keys; j += band) {
    int64_t lane = firstLane(head, i0, j0 + j);
    if (lane < queries)
      products<A>(smaller(band, keys - j), head.a.headDim, queries - lane,
                  {tile + j * queryTile + lane, queryTile, 1},
                  rows.data + lane * rows.stride, rows.stride,
                  out + j * outStride, outStride, true);
  }
}

/// Writes `masked` where the query of the lane must not see the key of the row.
template <class T, class Number>
void maskTile(const Head<T> &head, int64_t i0, int64_t j0, int64_t keys,
              Number masked, Number *scores) {
  for (int64_t j = 0; j < keys; ++j) {
    Number *row = scores + j * queryTile;
    if (head.a.mask && !head.mask()[j0 + j]) {
      for (int64_t i = 0; i < queryTile; ++i)
        row[i] = masked;
      continue;
    }
    // Lanes below the key's own do not reach it yet, without causal those
    // `window` below; those `window` above do no more.
    int64_t own = j0 + j - head.diagonal() - i0;
    if (head.a.causal || head.a.window)
      for (int64_t i = 0, reach = head.a.causal ? 0 : head.a.window - 1;
           i < smaller(own - reach, queryTile); ++i)
        row[i] = masked;
    if (head.a.window)
      for (int64_t i = own + head.a.window < 0 ? 0 : own + head.a.window;
           i < queryTile; ++i)
        row[i] = masked;
    if (head.a.starts)
      for (int64_t i = head.queriesOf(i0) - 1;
           i >= 0 && head.starts()[i0 + i] > j0 + j; --i)
        row[i] = masked;
  }
}

/// Holds one number for each diagonal of a tile, from the last key's at its
/// first query to the first key's at its last: a row's lanes stand side by
/// side.
template <class A> struct Diagonals {
  A values[queryTile + keyTile] = {};
  A *ofKey(int64_t j) { return values + keyTile - 1 - j; }

  /// Calls body(value, element of the row of biases) for all that are there.
  template <class T, class Body>
  void forEach(const Head<T> &head, int64_t i0, int64_t j0, Body body) {
    for (int64_t n = 0; n < queryTile + keyTile - 1; ++n) {
      int64_t place = j0 - i0 + head.a.queryRows - 1 + keyTile - 1 - n;
      if (place >= 0 && place < head.distances())
        body(values[n], place);
    }
  }
};

/// The slope of head `head` of `heads` (Press et al., arXiv 2108.12409, and
/// what its authors do where heads are no power of two).
inline double distanceSlope(int64_t head, int64_t heads) {
  int64_t power = 1;
  while (2 * power <= heads)
    power *= 2;
  return head < power ? __builtin_exp2(-8.0 * double(head + 1) / double(power))
                      : __builtin_exp2(-4.0 * double(2 * (head - power) + 1) /
                                       double(power));
}

template <class T>
void addDiagonals(const Head<T> &head, int64_t i0, int64_t keys,
                  Diagonals<Accumulator<T>> &diagonals,
                  Accumulator<T> *scores) {
  using A = Accumulator<T>;
  const int64_t across = head.lanesOf(i0);
  for (int64_t j = 0; j < keys; ++j)
    for (int64_t i = 0; i < across; i += lanes<A>) {
      A *place = scores + j * queryTile + i;
      storeWhole(place, loadWhole(place) + loadWhole(diagonals.ofKey(j) + i));
    }
}

template <class T>
void addBias(const Head<T> &head, int64_t i0, int64_t j0, int64_t keys,
             Accumulator<T> *scores) {
  using A = Accumulator<T>;
  const T *row = head.a.bias + head.biasOffset();
  Diagonals<A> diagonals;
  diagonals.forEach(head, i0, j0,
                    [&](A &value, int64_t place) { value = wide(row[place]); });
  addDiagonals(head, i0, keys, diagonals, scores);
}

/// Adds the distance from query to key times the head's slope.
template <class T>
void addDistances(const Head<T> &head, int64_t i0, int64_t j0, int64_t keys,
                  Accumulator<T> *scores) {
  using A = Accumulator<T>;
  const AttentionArguments<T> &a = head.a;
  const double slope =
      a.distance * distanceSlope(a.firstHead + head.head, a.globalHeads);
  // The distance of a query and its own key stands here.
  const int64_t own = a.queryRows - 1 + head.diagonal();
  Diagonals<A> diagonals;
  diagonals.forEach(head, i0, j0, [&](A &value, int64_t place) {
    value = A(slope * double(place - own));
  });
  addDiagonals(head, i0, keys, diagonals, scores);
}

/// Adds to `sums`, a head's row, what a tile of the scores' gradient times
/// `scale` gives.
template <class T>
void addBiasGrad(const Head<T> &head, int64_t i0, int64_t j0, int64_t keys,
                 const Accumulator<T> *gradient, Accumulator<T> *sums) {
  using A = Accumulator<T>;
  Diagonals<A> diagonals;
  const int64_t across = head.lanesOf(i0);
  for (int64_t j = 0; j < keys; ++j)
    for (int64_t i = 0; i < across; i += lanes<A>) {
      A *place = diagonals.ofKey(j) + i;
      storeWhole(place,
                 loadWhole(place) + loadWhole(gradient + j * queryTile + i));
    }
  const A factor = A(1 / head.a.scale);
  diagonals.forEach(head, i0, j0, [&](A &value, int64_t place) {
    sums[place] += value * factor;
  });
}

/// Copies the head's column of the table behind what a worker needs for its
/// tiles, where there are windows.
template <class T>
void loadTable(Head<T> &head, bool backward, Accumulator<T> *scratch) {
  using A = Accumulator<T>;
  const AttentionArguments<T> &a = head.a;
  if (!a.windows)
    return;
  A *column =
      scratch + attentionScratchElements(a.keyRows, a.headDim,
                                         sizeof(T) != sizeof(A), backward);
  const int64_t side = a.windows->side();
  for (int64_t i = 0; i < side * side; ++i)
    column[i] = wide(a.windows->table[i * a.heads + head.head]);
  head.table = column;
}

/// The positions of a tile's queries in the table, and the parts of the window
/// that turning the grid has brought together.
template <class T> struct WindowLanes {
  const AttentionArguments<T> &a;
  int32_t place[queryTile] = {}; ///< of query i and the last key
  int32_t part[queryTile] = {};
  int64_t queries;
  bool lastRow, lastColumn;

  WindowLanes(const Head<T> &head, int64_t i0, int64_t queries)
      : a(head.a), queries(queries) {
    const WindowBias<T> &w = *a.windows;
    int64_t number = head.sample % w.perSample();
    lastRow = w.shift > 0 && number / w.across == w.down - 1;
    lastColumn = w.shift > 0 && number % w.across == w.across - 1;
    for (int64_t i = 0; i < queries; ++i) {
      place[i] = int32_t(placeOf(i0 + i));
      part[i] = partOf(i0 + i);
    }
  }
  int64_t placeOf(int64_t position) const {
    const WindowBias<T> &w = *a.windows;
    return position / w.window * w.side() + position % w.window;
  }
  /// Returns the place of key `j` and query 0; places of a query and a key add
  /// up.
  int64_t placeOfKey(int64_t j) const { return placeOf(a.keyRows - 1 - j); }
  int32_t partOf(int64_t position) const {
    const WindowBias<T> &w = *a.windows;
    int64_t edge = w.window - w.shift;
    return (lastRow && position / w.window >= edge ? 2 : 0) +
           (lastColumn && position % w.window >= edge ? 1 : 0);
  }
};

/// The term that a window's score gets where its query and key were brought
/// together by the shift.
constexpr int apart = -100;

template <class T>
void addTable(const Head<T> &head, int64_t i0, int64_t j0, int64_t keys,
              Accumulator<T> *scores) {
  using A = Accumulator<T>;
  const WindowLanes<T> lane(head, i0, head.queriesOf(i0));
  const bool parts = lane.lastRow || lane.lastColumn;
  const int64_t across = head.lanesOf(i0);
  for (int64_t j = 0; j < keys; ++j) {
    const A *from = head.table + lane.placeOfKey(j0 + j);
    A *row = scores + j * queryTile;
    for (int64_t i = 0; i < across; i += lanes<A>) {
      Vec<A> bias;
      for (int l = 0; l < lanes<A>; ++l)
        bias[l] = from[lane.place[i + l]];
      storeWhole(row + i, loadWhole(row + i) + bias);
    }
    if (!parts)
      continue;
    const int32_t part = lane.partOf(j0 + j);
    for (int64_t i = 0; i < across; ++i)
      row[i] += lane.part[i] == part ? A(0) : A(apart);
  }
}

/// Adds a tile of the scores' gradient to the sums of a head's column. A key's
/// queries have places of their own.
template <class T>
void addTableGrad(const Head<T> &head, int64_t i0, int64_t j0, int64_t keys,
                  const Accumulator<T> *gradient, Accumulator<T> *sums) {
  using A = Accumulator<T>;
  const WindowLanes<T> lane(head, i0, head.queriesOf(i0));
  for (int64_t j = 0; j < keys; ++j) {
    A *to = sums + lane.placeOfKey(j0 + j);
    for (int64_t i = 0; i < lane.queries; ++i)
      to[lane.place[i]] += gradient[j * queryTile + i];
  }
}

/// Multiplies a tile by `whenKept` or `whenDropped`, element by element.
template <class T>
void dropTile(const Head<T> &head, int64_t i0, int64_t j0, int64_t keys,
              Accumulator<T> whenKept, Accumulator<T> whenDropped,
              Accumulator<T> *tile) {
  using A = Accumulator<T>;
  constexpr int width = lanes<uint32_t>;
  const DropoutStream &stream = *head.a.dropout;
  // Four keys share a number, counted from the first of their sample.
  const int64_t first = head.a.firstKey + j0;
  for (int64_t i = 0; i < head.lanesOf(i0); i += width) {
    Lanes32 low, high;
    rowCounters(head.dropoutRow(i0 + i), low, high);
    for (int64_t j = -(first % 4); j < keys; j += 4) {
      Lanes32 number[4] = {low, high, splat(uint32_t((first + j) / 4)),
                           splat(stream.opIndex)};
      philoxLanes(stream.keyLo, stream.keyHi, number);
      int64_t words = smaller(4, keys - j);
      for (int64_t w = j < 0 ? -j : 0; w < words; ++w) {
        A *row = tile + (j + w) * queryTile + i;
        if constexpr (sizeof(A) == sizeof(uint32_t)) {
          Vec<A> factor = number[w] >= stream.threshold ? splat(whenKept)
                                                        : splat(whenDropped);
          storeWhole(row, loadWhole(row) * factor);
        } else {
          for (int l = 0; l < width; ++l)
            row[l] *= number[w][l] >= stream.threshold ? whenKept : whenDropped;
        }
      }
    }
  }
}

/// 1 - tanh^2 of the scores of a tile, by which a cap multiplies their
/// gradient.
template <class A> struct CapSlopes {
  A values[queryTile * keyTile];
};

/// Caps the scores of a tile; `slopes` is null forward.
template <class T>
void capScores(const Head<T> &head, int64_t i0, int64_t keys,
               CapSlopes<Accumulator<T>> *slopes, Accumulator<T> *scores) {
  using A = Accumulator<T>;
  const A cap = A(head.a.cap), inverse = A(1 / head.a.cap);
  const int64_t across = head.lanesOf(i0);
  for (int64_t j = 0; j < keys; ++j)
    for (int64_t i = 0; i < across; i += lanes<A>) {
      const int64_t place = j * queryTile + i;
      Vec<A> t = hyperbolicTangent(loadWhole(scores + place) * inverse);
      storeWhole(scores + place, t * cap);
      if (slopes)
        storeWhole(slopes->values + place, A(1) - t * t);
    }
}

/// Turns the gradient of capped scores into that of scores.
template <class T>
void throughCap(const Head<T> &head, int64_t i0, int64_t keys,
                const CapSlopes<Accumulator<T>> &slopes,
                Accumulator<T> *gradient) {
  using A = Accumulator<T>;
  const int64_t across = head.lanesOf(i0);
  for (int64_t j = 0; j < keys; ++j)
    for (int64_t i = 0; i < across; i += lanes<A>) {
      const int64_t place = j * queryTile + i;
      storeWhole(gradient + place, loadWhole(gradient + place) *
                                       loadWhole(slopes.values + place));
    }
}

template <class T>
void addBiases(const Head<T> &head, int64_t i0, int64_t j0, int64_t keys,
               Accumulator<T> *scores) {
  if (head.a.distance != 0)
    addDistances(head, i0, j0, keys, scores);
  if (head.a.bias)
    addBias(head, i0, j0, keys, scores);
  if (head.table)
    addTable(head, i0, j0, keys, scores);
}

template <class T>
void attentionTile(const Head<T> &head, int64_t i0, Accumulator<T> *scratch) {
  using A = Accumulator<T>;
  constexpr int width = lanes<A>;
  const AttentionArguments<T> &a = head.a;
  const int64_t queries = head.queriesOf(i0), across = head.lanesOf(i0);
  int64_t limit = head.keyLimit(i0, queries);
  const int64_t panelElements = queryTile * a.headDim;
  A *queryPanel = scratch, *scores = scratch + panelElements;
  const bool continues = a.oSums != nullptr;
  T *result = continues ? nullptr : a.o + head.outOffset(i0);
  // Sums stand in the result itself, or behind the tiles where it is narrow.
  A *keyRows = scores + queryTile * keyTile;
  A *valueRows = keyRows + panelElements;
  A *out = valueRows + panelElements;
  int64_t outStride = a.headDim;
  if (continues) {
    out = a.oSums + head.outOffset(i0);
    outStride = head.outStride();
  } else if constexpr (sizeof(T) == sizeof(A)) {
    out = result;
    outStride = head.outStride();
  }
  A largest[queryTile], sum[queryTile], correction[queryTile];
  for (int64_t i = 0; i < queryTile; ++i) {
    largest[i] =
        continues && i < queries ? head.lse()[i0 + i] : A(-__builtin_inf());
    sum[i] = largest[i] > A(-__builtin_inf()) ? 1 : 0;
  }
  const int64_t first = head.firstTile(i0);
  if (limit <= first && continues)
    return;
  if (limit <= first)
    for (int64_t i = 0; i < queries; ++i)
      __builtin_memset(out + i * outStride, 0, size_t(a.headDim) * sizeof(A));
  transposeTile(head.q(i0), a.qStride, queries, a.headDim, A(a.scale),
                queryPanel);
  for (int64_t j0 = first; j0 < limit; j0 += keyTile) {
    int64_t keys = smaller(keyTile, limit - j0);
    scoreTile(head, i0, j0, keys,
              wideRows(head.k(j0), a.kStride, keys, a.headDim, keyRows),
              queryPanel, scores);
    if (a.cap != 0)
      capScores<T>(head, i0, keys, nullptr, scores);
    addBiases(head, i0, j0, keys, scores);
    maskTile(head, i0, j0, keys, A(-__builtin_inf()), scores);
    for (int64_t i = 0; i < across; i += width) {
      Vec<A> before = loadWhole(largest + i), now = before;
      for (int64_t j = 0; j < keys; ++j)
        now = larger(now, loadWhole(scores + j * queryTile + i));
      // A lane that has seen no key yet must not subtract infinities.
      Vec<A> shift = now == A(-__builtin_inf()) ? splat(A(0)) : now;
      Vec<A> scaled = exponential(before - shift);
      Vec<A> partial{};
      for (int64_t j = 0; j < keys; ++j) {
        A *place = scores + j * queryTile + i;
        Vec<A> p = exponential(loadWhole(place) - shift);
        storeWhole(place, p);
        partial += p;
      }
      storeWhole(largest + i, now);
      storeWhole(correction + i, scaled);
      storeWhole(sum + i, loadWhole(sum + i) * scaled + partial);
    }
    if (a.dropout)
      dropTile<T>(head, i0, j0, keys, A(a.dropout->keptScale), A(0), scores);
    if (j0 > first || continues)
      for (int64_t i = 0; i < queries; ++i) {
        A *row = out + i * outStride;
        if (correction[i] != 1)
          sweep<A>(0, a.headDim, [&](int64_t d, auto at) {
            at.store(row + d, at.load(row + d) * correction[i]);
          });
      }
    queryProducts(head, i0, queries, j0, keys, scores,
                  wideRows(head.v(j0), a.vStride, keys, a.headDim, valueRows),
                  out, outStride, j0 > first || continues);
  }
  for (int64_t i = 0; i < queries; ++i) {
    A inverse = sum[i] > 0 ? 1 / sum[i] : A(0);
    // NaN in the scores must reach the output.
    inverse = sum[i] == sum[i] ? inverse : sum[i];
    A *row = out + i * outStride;
    if (continues)
      sweep<A>(0, a.headDim, [&](int64_t d, auto at) {
        at.store(row + d, at.load(row + d) * inverse);
      });
    else
      sweep<A>(0, a.headDim, [&](int64_t d, auto at) {
        at.store(result + i * head.outStride() + d, at.load(row + d) * inverse);
      });
    head.lse()[i0 + i] = A(double(largest[i]) + __builtin_log(double(sum[i])));
  }
}

/// Operations of one product over all scores.
template <class T> double scoreOperations(const AttentionArguments<T> &a) {
  double seen = double(a.keyRows) / (a.causal ? 2 : 1);
  const double reach = double(a.window) * (a.causal ? 1 : 2);
  if (a.window && reach < seen)
    seen = reach;
  return 2.0 * double(a.samples * a.heads * a.headDim) * double(a.queryRows) *
         seen;
}

template <class T> void attention(const AttentionArguments<T> &a) {
  int64_t tiles = (a.queryRows + queryTile - 1) / queryTile;
  parallelFor(
      threadsForOperations(a.workers, 2 * scoreOperations(a)),
      a.samples * a.heads * tiles, 1,
      [&](int worker, int64_t begin, int64_t end) {
        for (int64_t unit = begin; unit < end; ++unit) {
          Head<T> head(a, unit / tiles / a.heads, unit / tiles % a.heads);
          loadTable(head, /*backward=*/false, a.scratch[worker]);
          attentionTile(head, unit % tiles * queryTile, a.scratch[worker]);
        }
      });
}

/// The places of the sums of dk and dv of one key head.
template <class A> struct KeySums {
  A *dk, *dv;
  int64_t kStride, vStride;
};

/// Adds what queries [i0, ..) of one head give to dq, dk and dv, and to
/// `biasSums`, those of distances or of a table, unless that is null.
template <class T>
void attentionGradTile(const Head<T> &head, int64_t i0,
                       const KeySums<Accumulator<T>> &sums,
                       Accumulator<T> *biasSums, Accumulator<T> *scratch) {
  using A = Accumulator<T>;
  constexpr int width = lanes<A>;
  const AttentionArguments<T> &a = head.a;
  const int64_t queries = head.queriesOf(i0), across = head.lanesOf(i0);
  int64_t limit = head.keyLimit(i0, queries);
  int64_t panelElements = queryTile * a.headDim;
  A *queryPanel = scratch, *doutPanel = scratch + panelElements;
  A *probability = scratch + 2 * panelElements;
  A *gradient = probability + queryTile * keyTile;
  A *wideBuffers = gradient + queryTile * keyTile;
  const T *dout = a.dout + head.outOffset(i0), *out = a.o + head.outOffset(i0);
  const bool continues = a.dqSums != nullptr;
  T *dqResult = continues ? nullptr : a.dq + (head.q(i0) - a.q);
  A *dq = wideBuffers + 4 * panelElements;
  int64_t dqStride = a.headDim;
  if (continues) {
    dq = a.dqSums + (head.q(i0) - a.q);
    dqStride = a.qStride;
  } else if constexpr (sizeof(T) == sizeof(A)) {
    dq = dqResult;
    dqStride = a.qStride;
  }
  Rows<A> queryRows =
      wideRows(head.q(i0), a.qStride, queries, a.headDim, wideBuffers);
  Rows<A> doutRows = wideRows(dout, head.outStride(), queries, a.headDim,
                              wideBuffers + panelElements);
  const int64_t first = head.firstTile(i0);
  if (limit <= first && continues)
    return;
  if (limit <= first)
    for (int64_t i = 0; i < queries; ++i)
      __builtin_memset(dq + i * dqStride, 0, size_t(a.headDim) * sizeof(A));
  transposeTile(head.q(i0), a.qStride, queries, a.headDim, A(a.scale),
                queryPanel);
  transposeTile(dout, head.outStride(), queries, a.headDim, A(1), doutPanel);
  // Lanes without a query have zero panels; finite lse keeps them harmless.
  A lse[queryTile] = {}, delta[queryTile] = {};
  for (int64_t i = 0; i < queries; ++i) {
    lse[i] = head.lse()[i0 + i];
    Vec<A> sum{};
    sweep<A>(0, a.headDim, [&](int64_t d, auto at) {
      sum += at.load(out + i * head.outStride() + d) *
             at.load(dout + i * head.outStride() + d);
    });
    delta[i] = horizontalSum<A>(sum);
  }
  CapSlopes<A> slopes;
  for (int64_t j0 = first; j0 < limit; j0 += keyTile) {
    int64_t keys = smaller(keyTile, limit - j0);
    Rows<A> k = wideRows(head.k(j0), a.kStride, keys, a.headDim,
                         wideBuffers + 2 * panelElements);
    Rows<A> v = wideRows(head.v(j0), a.vStride, keys, a.headDim,
                         wideBuffers + 3 * panelElements);
    scoreTile(head, i0, j0, keys, k, queryPanel, probability);
    if (a.cap != 0)
      capScores<T>(head, i0, keys, &slopes, probability);
    addBiases(head, i0, j0, keys, probability);
    scoreTile(head, i0, j0, keys, v, doutPanel, gradient);
    for (int64_t i = 0; i < across; i += width) {
      Vec<A> shift = loadWhole(lse + i);
      for (int64_t j = 0; j < keys; ++j) {
        A *place = probability + j * queryTile + i;
        storeWhole(place, exponential(loadWhole(place) - shift));
      }
    }
    maskTile(head, i0, j0, keys, A(0), probability);
    maskTile(head, i0, j0, keys, A(0), gradient);
    // dV takes D P and dS = P (D dP - delta), D being the dropout factors. A
    // dropped probability is marked by a minus sign.
    A kept = 1;
    if (a.dropout) {
      dropTile<T>(head, i0, j0, keys, A(1), A(-1), probability);
      kept = A(a.dropout->keptScale);
    }
    const A factor = A(a.scale);
    for (int64_t i = 0; i < across; i += width) {
      Vec<A> shift = loadWhole(delta + i);
      for (int64_t j = 0; j < keys; ++j) {
        A *pPlace = probability + j * queryTile + i;
        A *gPlace = gradient + j * queryTile + i;
        Vec<A> marked = loadWhole(pPlace);
        Vec<A> p = marked < A(0) ? -marked : marked;
        Vec<A> d = marked < A(0) ? splat(A(0)) : splat(kept);
        storeWhole(gPlace, p * (d * loadWhole(gPlace) - shift) * factor);
        storeWhole(pPlace, p * d);
      }
    }
    if (a.cap != 0)
      throughCap<T>(head, i0, keys, slopes, gradient);
    if (head.table)
      addTableGrad(head, i0, j0, keys, gradient, biasSums);
    else if (biasSums)
      addBiasGrad(head, i0, j0, keys, gradient, biasSums);
    keyProducts(head, i0, queries, j0, keys, probability, doutRows,
                sums.dv + j0 * sums.vStride, sums.vStride);
    keyProducts(head, i0, queries, j0, keys, gradient, queryRows,
                sums.dk + j0 * sums.kStride, sums.kStride);
    queryProducts(head, i0, queries, j0, keys, gradient, k, dq, dqStride,
                  j0 > first || continues);
  }
  if (continues)
    return;
  if constexpr (sizeof(T) != sizeof(A))
    for (int64_t i = 0; i < queries; ++i)
      sweep<A>(0, a.headDim, [&](int64_t d, auto at) {
        at.store(dqResult + i * a.qStride + d, at.load(dq + i * dqStride + d));
      });
}

/// Sets the gradient of the biases of heads that other ranks have to zero.
template <class T> void zeroForeignBiasGrad(const AttentionArguments<T> &a) {
  int64_t distances = a.queryRows + a.keyRows - 1;
  for (int64_t s = 0; s < a.samples; ++s)
    for (int64_t h = 0; h < a.globalHeads; ++h)
      if (h < a.firstHead || h >= a.firstHead + a.heads)
        __builtin_memset(a.dbias + (s * a.globalHeads + h) * distances, 0,
                         size_t(distances) * sizeof(T));
}

/// The gradients of one key head and the query heads that share it: its sums
/// have one order. `tableSums` is null unless there are windows.
template <class T>
void attentionGradUnit(const AttentionArguments<T> &a, int64_t sample,
                       int64_t kvHead, Accumulator<T> *tableSums,
                       Accumulator<T> *scratch) {
  using A = Accumulator<T>;
  const int64_t group = a.heads / a.kvHeads;
  Head<T> head(a, sample, kvHead * group);
  const bool continues = a.dkSums != nullptr;
  T *dk = continues ? nullptr : a.dk + (head.k(0) - a.k);
  T *dv = continues ? nullptr : a.dv + (head.v(0) - a.v);
  KeySums<A> sums;
  if (continues) {
    sums = {a.dkSums + (head.k(0) - a.k), a.dvSums + (head.v(0) - a.v),
            a.kStride, a.vStride};
  } else if constexpr (sizeof(T) == sizeof(A)) {
    sums = {dk, dv, a.kStride, a.vStride};
  } else {
    A *wideSums = scratch + attentionScratchElements(0, a.headDim, true, true);
    sums = {wideSums, wideSums + a.keyRows * a.headDim, a.headDim, a.headDim};
  }
  size_t bytes = size_t(a.headDim) * sizeof(A);
  if (continues) {
    // They have what other steps gave.
  } else if (!a.addsKeys) {
    for (int64_t j = 0; j < a.keyRows; ++j) {
      __builtin_memset(sums.dk + j * sums.kStride, 0, bytes);
      __builtin_memset(sums.dv + j * sums.vStride, 0, bytes);
    }
  } else if constexpr (sizeof(T) != sizeof(A)) {
    for (int64_t j = 0; j < a.keyRows; ++j)
      sweep<A>(0, a.headDim, [&](int64_t d, auto at) {
        at.store(sums.dk + j * sums.kStride + d,
                 at.load(dk + j * a.kStride + d));
        at.store(sums.dv + j * sums.vStride + d,
                 at.load(dv + j * a.vStride + d));
      });
  }
  for (int64_t member = 0; member < group; ++member, ++head.head) {
    loadTable(head, /*backward=*/true, scratch);
    T *dbias = a.dbias ? a.dbias + head.biasOffset() : nullptr;
    A *biasSums = tableSums;
    if constexpr (sizeof(T) == sizeof(A)) {
      if (dbias)
        biasSums = dbias;
    } else if (dbias) {
      biasSums =
          scratch + attentionScratchElements(a.keyRows, a.headDim, true, true);
    }
    if (dbias)
      __builtin_memset(biasSums, 0, size_t(head.distances()) * sizeof(A));
    for (int64_t i0 = 0; i0 < a.queryRows; i0 += queryTile)
      attentionGradTile(head, i0, sums, biasSums, scratch);
    if constexpr (sizeof(T) != sizeof(A))
      if (dbias)
        sweep<A>(0, head.distances(), [&](int64_t d, auto at) {
          at.store(dbias + d, at.load(biasSums + d));
        });
  }
  if (continues)
    return;
  if constexpr (sizeof(T) != sizeof(A))
    for (int64_t j = 0; j < a.keyRows; ++j)
      sweep<A>(0, a.headDim, [&](int64_t d, auto at) {
        at.store(dk + j * a.kStride + d,
                 at.load(sums.dk + j * sums.kStride + d));
        at.store(dv + j * a.vStride + d,
                 at.load(sums.dv + j * sums.vStride + d));
      });
}

/// Threads share out the heads of parts of the windows; parts are added in
/// their order.
template <class T> void windowAttentionGrad(const AttentionArguments<T> &a) {
  using A = Accumulator<T>;
  const WindowBias<T> &w = *a.windows;
  const int64_t elements = w.side() * w.side();
  parallelFor(
      threadsForOperations(a.workers, 5 * scoreOperations(a)),
      w.parts * a.heads, 1, [&](int worker, int64_t begin, int64_t end) {
        for (int64_t unit = begin; unit < end; ++unit) {
          A *sums = w.sums + unit * elements;
          __builtin_memset(sums, 0, size_t(elements) * sizeof(A));
          int64_t part = unit / a.heads;
          int64_t last = a.samples * (part + 1) / w.parts;
          for (int64_t s = a.samples * part / w.parts; s < last; ++s)
            attentionGradUnit(a, s, unit % a.heads, sums, a.scratch[worker]);
        }
      });
  // The scores' gradients carry the scale, which a bias does not see.
  const A factor = A(1 / a.scale);
  for (int64_t i = 0; i < elements; ++i)
    for (int64_t h = 0; h < a.heads; ++h) {
      A sum = 0;
      for (int64_t part = 0; part < w.parts; ++part)
        sum += w.sums[(part * a.heads + h) * elements + i];
      A &to = w.dtable[i * a.heads + h];
      to = w.add ? to + sum * factor : sum * factor;
    }
}

template <class T> void attentionGrad(const AttentionArguments<T> &a) {
  if (a.windows)
    return windowAttentionGrad(a);
  if (a.dbias)
    zeroForeignBiasGrad(a);
  parallelFor(threadsForOperations(a.workers, 5 * scoreOperations(a)),
              a.samples * a.kvHeads, 1,
              [&](int worker, int64_t begin, int64_t end) {
                for (int64_t unit = begin; unit < end; ++unit)
                  attentionGradUnit<T>(a, unit / a.kvHeads, unit % a.kvHeads,
                                       nullptr, a.scratch[worker]);
              });
}

} // namespace
} // namespace grt::cpu

#endif // GRT_BACKENDS_CPU_ISA_ATTENTION_H
