//===- kernels.h - The list of kernels as types and tables ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What kernels.def says, for C++. Of each kernel there is a struct in
// grt::kernels that gives names to the places of its arguments:
//
//   using K = kernels::LayerNorm;
//   auto n = intsOf<K>(op);               // n.rows, n.n
//   const grt_buffer &x = op.buffers[K::x];
//   double eps = op.reals[K::eps];
//
// For code that is the same for all kernels, kernelForms has what every call of
// one needs, and buffersOf() what the integers of a call say of its buffers.
// Nothing here allocates, throws or needs a library.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_KERNELS_H
#define GRT_KERNELS_H

#include "grt/abi.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <type_traits>

namespace grt {

/// Use of a buffer by a kernel.
enum class Access : uint8_t {
  Read,
  Write,
  ReadWrite,
  Accumulate, ///< written, and read first unless `acc` is 0
  Scratch     ///< free for the kernel while it runs
};
constexpr bool reads(Access access) { return access != Access::Write; }
constexpr bool writes(Access access) { return access != Access::Read; }

/// Use of the step block by a kernel.
enum class StepUse : uint8_t { None, Reads, AddsNorm };

/// Type of a buffer's elements.
enum class Elements : uint8_t {
  Compute,     ///< f32, bf16 or f64, one of them in all such buffers of a call
  Accumulator, ///< f64 where the compute type is, else f32
  Either,      ///< of these two
  Index,       ///< i32: tokens, labels, positions
  Mask,        ///< i32, 0 or 1
  Code,        ///< 8-bit numbers; which type they are an integer tells
  Loss,        ///< f64
  Bytes        ///< of any type
};

/// Bytes of an element; 0 of types that the ABI does not know, which the reader
/// of programs and CallCheck refuse.
constexpr int64_t bytesOfElement(uint32_t dtype) {
  return dtype == GRT_F64                       ? 8
         : dtype == GRT_F32 || dtype == GRT_I32 ? 4
         : dtype == GRT_BF16                    ? 2
         : dtype == GRT_U8                      ? 1
                                                : 0;
}

/// A list of up to `Most` values, in order.
template <class T, size_t Most> class FixedList {
public:
  constexpr FixedList() = default;
  constexpr FixedList(std::initializer_list<T> values) {
    for (const T &value : values)
      push_back(value);
  }
  constexpr void push_back(const T &value) { items[count++] = value; }
  constexpr size_t size() const { return count; }
  constexpr const T &operator[](size_t i) const { return items[i]; }
  constexpr const T *begin() const { return items; }
  constexpr const T *end() const { return items + count; }

private:
  T items[Most] = {};
  size_t count = 0;
};

/// The product of sizes, INT64_MAX where it is larger.
constexpr int64_t productOf(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

/// The largest size: sums of two do not overflow.
inline constexpr int64_t mostSize = INT64_MAX / 4;

using Shape = FixedList<int64_t, 8>;
constexpr int64_t elementsOf(const Shape &shape) {
  int64_t elements = 1;
  for (int64_t size : shape)
    elements = productOf(elements, size);
  return elements;
}

/// Use and shape of one buffer of a call, as the call's integers say.
struct KernelBuffer {
  const char *name = "";
  Access access = Access::Scratch;
  Elements elements = Elements::Bytes;
  /// The call has it; scratch that it may lack counts as there.
  bool isThere = true;
  bool isOptional = false; ///< as the caller likes; the last one
  bool mayBeLarger = false;
  Shape shape; ///< of all elements; of Rows, how many rows there are
  /// Elements of a row, and from the start of one to that of the next; 0 of
  /// buffers without gaps.
  int64_t width = 0, stride = 0;
  bool hasRows = false; ///< rows may lie apart

  /// Elements from the first to the last that the kernel touches.
  constexpr int64_t reach() const { return reachTo(width); }
  /// Elements of the largest buffer that this can be.
  constexpr int64_t most() const {
    return mayBeLarger ? INT64_MAX : reachTo(width > stride ? width : stride);
  }

private:
  constexpr int64_t reachTo(int64_t last) const {
    const int64_t count = elementsOf(shape);
    if (!hasRows || count == 0)
      return count;
    const int64_t starts = productOf(count - 1, stride);
    return starts > INT64_MAX - last ? INT64_MAX : starts + last;
  }
};
using KernelBuffers = FixedList<KernelBuffer, 16>;

/// An integer argument and its range.
struct KernelInt {
  const char *name = "";
  int64_t least = 0, most = mostSize;
  /// Reason why it may be any number of its range whatever the buffers are;
  /// null for sizes, which follow from them.
  const char *freedom = nullptr;
  bool isOptional = false; ///< has a value where a call ends before
  bool countsSegments = false;
};
using KernelInts = FixedList<KernelInt, 24>;

/// A real argument, or `count` of one name.
struct KernelReal {
  const char *name = "";
  int64_t count = 1;
};
using KernelReals = FixedList<KernelReal, 4>;

/// A rule that a call breaks, with two numbers that show it; no text: none.
struct BrokenRule {
  const char *text = nullptr;
  int64_t first = 0, second = 0;
};

/// Integers of each segment of GRT_SEGMENTS().
struct KernelSegment {
  int64_t begin, length, flag;
};
inline constexpr size_t segmentInts = 3, segmentFlag = 2;

namespace kernels {

// Functions that expressions of the list use.
template <class... Sizes> constexpr Shape of(Sizes... sizes) {
  return {int64_t(sizes)...};
}
/// Parts of `size` elements in n, with the last one if it is whole or `padded`.
constexpr int64_t parts(int64_t n, int64_t size, int64_t padded) {
  return size <= 0 ? 0 : n / size + (padded && n % size ? 1 : 0);
}
/// True if rows of `own` heads start `stride` elements apart, alone or in rows
/// in which q, k and v stand behind each other.
constexpr bool isRowOf(int64_t stride, int64_t own, int64_t heads,
                       int64_t kvHeads, int64_t headDim) {
  const int64_t limit = int64_t(1) << 30;
  return heads < limit && kvHeads < limit && headDim < limit &&
         (stride == own * headDim || stride == (heads + 2 * kvHeads) * headDim);
}
/// True if buckets of relative positions exist: near ones of one distance each,
/// and others behind.
constexpr bool areBuckets(int64_t buckets, int64_t maxDistance,
                          int64_t bidirectional) {
  const int64_t near = buckets / (bidirectional ? 4 : 2);
  return near >= 1 && buckets <= GRT_RELATIVE_BUCKETS && maxDistance > near;
}

// The names of each kernel's arguments.
#define GRT_BUFFER(name, ...) name,
#define GRT_BUFFER_IF(flag, name, ...) name,
#define GRT_BUFFER_AT_LEAST(name, ...) name,
#define GRT_ROWS(name, ...) name,
#define GRT_SCRATCH(name) name,
#define GRT_SCRATCH_IF_GIVEN(name) name,
#define GRT_SIZE(name) int64_t name = 0;
#define GRT_FLAG(name) int64_t name = 0;
#define GRT_FREE(name, ...) int64_t name = 0;
#define GRT_FLAG_OR(name, value) int64_t name = value;
#define GRT_FREE_OR(name, value, ...) int64_t name = value;
#define GRT_ACC() int64_t acc = 0;
#define GRT_SEGMENTS() int64_t segments = 0;
#define GRT_REAL(name) name,
#define GRT_REALS(name, count) name,
#define GRT_KERNEL(NAME, Name, number, step, buffers, integers, reals, rules)  \
  struct Name {                                                                \
    static constexpr grt_kernel kernel = GRT_KERNEL_##NAME;                    \
    enum Buffer : int { buffers };                                             \
    enum Real : int { reals };                                                 \
    struct Ints {                                                              \
      integers                                                                 \
    };                                                                         \
  };
#include GRT_KERNEL_LIST
#undef GRT_BUFFER
#undef GRT_BUFFER_IF
#undef GRT_BUFFER_AT_LEAST
#undef GRT_ROWS
#undef GRT_SCRATCH
#undef GRT_SCRATCH_IF_GIVEN
#undef GRT_SIZE
#undef GRT_FLAG
#undef GRT_FREE
#undef GRT_FLAG_OR
#undef GRT_FREE_OR
#undef GRT_ACC
#undef GRT_SEGMENTS
#undef GRT_REAL
#undef GRT_REALS

/// NAME as messages and traces spell it: "layer-norm".
template <size_t Size> struct Spelling {
  char text[Size] = {};
  constexpr explicit Spelling(const char (&name)[Size]) {
    for (size_t i = 0; i < Size; ++i)
      text[i] = name[i] == '_'                     ? '-'
                : name[i] >= 'A' && name[i] <= 'Z' ? char(name[i] - 'A' + 'a')
                                                   : name[i];
  }
};

/// Facts that the list gives of a call of a kernel with these integers.
template <class Kernel> struct Facts;

#define GRT_BUFFER(name, access, elements, shape)                              \
  KernelBuffer{#name, Access::access, Elements::elements, true, false,         \
               false, shape},
#define GRT_BUFFER_IF(flag, name, access, elements, shape)                     \
  KernelBuffer{#name, Access::access, Elements::elements, flag != 0, false,    \
               false, shape},
#define GRT_BUFFER_AT_LEAST(name, access, elements, shape)                     \
  KernelBuffer{#name, Access::access, Elements::elements, true, false,         \
               true,  shape},
#define GRT_ROWS(name, access, elements, rows, stride, width)                  \
  KernelBuffer{#name, Access::access, Elements::elements, true,   false,       \
               false, rows,           elementsOf(width),  stride, true},
#define GRT_SCRATCH(name)                                                      \
  KernelBuffer{#name, Access::Scratch, Elements::Bytes, true, false, true,     \
               of(0)},
#define GRT_SCRATCH_IF_GIVEN(name)                                             \
  KernelBuffer{#name, Access::Scratch, Elements::Bytes, true, true, true,      \
               of(0)},
#define GRT_SIZE(name) KernelInt{#name},
#define GRT_FLAG(name) KernelInt{#name, 0, 1, "a flag"},
#define GRT_FREE(name, least, most, why) KernelInt{#name, least, most, why},
#define GRT_FLAG_OR(name, value) KernelInt{#name, 0, 1, "a flag", true},
#define GRT_FREE_OR(name, value, least, most, why)                             \
  KernelInt{#name, least, most, why, true},
#define GRT_ACC() KernelInt{"acc", 0, 2, "whether a gradient is added to"},
#define GRT_SEGMENTS() KernelInt{"segments", 0, mostSize, nullptr, false, true},
#define GRT_REAL(name) KernelReal{#name, 1},
#define GRT_REALS(name, count) KernelReal{#name, count},
#define GRT_RULE(condition, text, first, second)                               \
  if (!(condition))                                                            \
    return BrokenRule{text, first, second};
#define GRT_LAYOUT(condition, text, first, second)                             \
  if (ofPrograms && !(condition))                                              \
    return BrokenRule{text, first, second};
#define GRT_KERNEL(NAME, Name, number, step, list, integers, realList, rules)  \
  template <> struct Facts<Name> : Name::Ints {                                \
    static constexpr Spelling<sizeof(#NAME)> name{#NAME};                      \
    static constexpr StepUse stepUse = StepUse::step;                          \
    /** 1 if the compute type is narrower than that of the accumulators. */    \
    int64_t isNarrow = 0;                                                      \
    constexpr KernelBuffers buffers() const { return KernelBuffers{list}; }    \
    static constexpr KernelInts ints() { return KernelInts{integers}; }        \
    constexpr KernelReals reals() const { return KernelReals{realList}; }      \
    constexpr BrokenRule broken([[maybe_unused]] bool ofPrograms) const {      \
      rules return {};                                                         \
    }                                                                          \
  };
#include GRT_KERNEL_LIST
#undef GRT_BUFFER
#undef GRT_BUFFER_IF
#undef GRT_BUFFER_AT_LEAST
#undef GRT_ROWS
#undef GRT_SCRATCH
#undef GRT_SCRATCH_IF_GIVEN
#undef GRT_SIZE
#undef GRT_FLAG
#undef GRT_FREE
#undef GRT_FLAG_OR
#undef GRT_FREE_OR
#undef GRT_ACC
#undef GRT_SEGMENTS
#undef GRT_REAL
#undef GRT_REALS
#undef GRT_RULE
#undef GRT_LAYOUT

} // namespace kernels

/// The integers of a call of kernel K by name; those that it leaves out have
/// the list's values.
template <class K> typename K::Ints intsOf(const int64_t *ints, size_t count) {
  typename K::Ints named;
  if constexpr (!std::is_empty_v<typename K::Ints>)
    if (count)
      std::memcpy(static_cast<void *>(&named), ints,
                  count * sizeof(int64_t) < sizeof(named)
                      ? count * sizeof(int64_t)
                      : sizeof(named));
  return named;
}
template <class K> typename K::Ints intsOf(const grt_kernel_op &op) {
  return intsOf<K>(op.ints, op.int_count);
}

/// Returns visit(K()), K being the struct of a kernel below GRT_KERNEL_COUNT.
template <class Visit>
constexpr auto visitKernel(uint32_t kernel, const Visit &visit) {
  switch (kernel) {
#define GRT_KERNEL(NAME, Name, ...)                                            \
  case GRT_KERNEL_##NAME:                                                      \
    return visit(kernels::Name());
#include GRT_KERNEL_LIST
  default:
    __builtin_unreachable();
  }
}

/// Form that every call of a kernel has, whatever its integers.
struct KernelForm {
  const char *name;
  int buffers, ints, reals; ///< least counts
  int typed;                ///< the buffer whose type decides; -1 none
  StepUse stepUse;
};

template <class K> constexpr KernelForm formOf() {
  using Facts = kernels::Facts<K>;
  KernelForm form = {Facts::name.text, 0, 0, 0, -1, Facts::stepUse};
  const Facts facts;
  for (const KernelBuffer &buffer : facts.buffers()) {
    if (form.typed < 0 && (buffer.elements == Elements::Compute ||
                           buffer.elements == Elements::Accumulator))
      form.typed = form.buffers;
    form.buffers += buffer.isThere && !buffer.isOptional;
  }
  for (const KernelInt &integer : Facts::ints())
    form.ints += !integer.isOptional;
  for (const KernelReal &real : facts.reals())
    form.reals += int(real.count);
  return form;
}

/// Forms by kernel number.
inline constexpr KernelForm kernelForms[GRT_KERNEL_COUNT] = {
#define GRT_KERNEL(NAME, Name, ...) formOf<kernels::Name>(),
#include GRT_KERNEL_LIST
};

namespace kernels {
#define GRT_KERNEL(NAME, Name, number, ...)                                    \
  static_assert(kernelForms[number].name == Facts<Name>::name.text,            \
                #NAME ": numbers ascend by one");
#include GRT_KERNEL_LIST
} // namespace kernels

/// Returns all integers that a kernel may have, in order.
constexpr KernelInts kernelInts(uint32_t kernel) {
  return visitKernel(
      kernel, [](auto k) { return kernels::Facts<decltype(k)>::ints(); });
}

/// The facts of a call. `isNarrow`: see Facts.
template <class K>
kernels::Facts<K> factsOf(const int64_t *ints, size_t count,
                          bool isNarrow = false) {
  kernels::Facts<K> facts;
  static_cast<typename K::Ints &>(facts) = intsOf<K>(ints, count);
  facts.isNarrow = isNarrow;
  return facts;
}

/// The buffers of a call with these integers, in order; optional ones only up
/// to the number `given`. Integers may be any: those of no size count as the
/// nearest one.
inline KernelBuffers buffersOf(uint32_t kernel, const int64_t *ints,
                               size_t count, size_t given,
                               bool isNarrow = false) {
  return visitKernel(kernel, [&](auto k) {
    constexpr size_t named = sizeof(typename decltype(k)::Ints) / sizeof(*ints);
    int64_t sizes[named + 1] = {};
    const size_t known = count < named ? count : named;
    for (size_t i = 0; i < known; ++i)
      sizes[i] = ints[i] < 0 ? 0 : ints[i] > mostSize ? mostSize : ints[i];
    KernelBuffers found;
    for (const KernelBuffer &buffer :
         factsOf<decltype(k)>(sizes, known, isNarrow).buffers())
      if (buffer.isThere && (!buffer.isOptional || found.size() < given))
        found.push_back(buffer);
    return found;
  });
}
inline KernelBuffers buffersOf(const grt_kernel_op &op) {
  const int typed = kernelForms[op.kernel].typed;
  return buffersOf(op.kernel, op.ints, op.int_count, op.buffer_count,
                   typed >= 0 && uint32_t(typed) < op.buffer_count &&
                       op.buffers[typed].dtype == GRT_BF16);
}

/// The `acc` of a call; 0 of kernels that have none.
inline int64_t accOf(uint32_t kernel, const int64_t *ints, size_t count) {
  return visitKernel(kernel, [&](auto k) {
    auto named = intsOf<decltype(k)>(ints, count);
    if constexpr (requires { named.acc; })
      return named.acc;
    else
      return int64_t(0);
  });
}

/// The rule that a call breaks; `ofPrograms`: among those that only programs
/// keep, too.
inline BrokenRule brokenRule(uint32_t kernel, const int64_t *ints, size_t count,
                             bool ofPrograms) {
  return visitKernel(kernel, [&](auto k) {
    return factsOf<decltype(k)>(ints, count).broken(ofPrograms);
  });
}

/// Integers of a call in front of its segments.
template <class K>
inline constexpr size_t firstSegment =
    sizeof(typename K::Ints) / sizeof(int64_t);

/// Calls body(segment) for each segment of a call whose kernel has them; false
/// if there are not as many integers as `segments` says.
template <class K, class Body>
bool forEachSegment(const grt_kernel_op &op, const Body &body) {
  const int64_t segments = intsOf<K>(op).segments;
  if (segments < 0 ||
      size_t(segments) * segmentInts + firstSegment<K> > op.int_count)
    return false;
  for (size_t i = 0; i < size_t(segments); ++i) {
    KernelSegment segment;
    std::memcpy(&segment, op.ints + firstSegment<K> + i * segmentInts,
                sizeof(segment));
    body(segment);
  }
  return true;
}

} // namespace grt

#endif // GRT_KERNELS_H
