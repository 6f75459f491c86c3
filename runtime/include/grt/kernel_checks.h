//===- kernel_checks.h - What is wrong with a call of a kernel ------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Holds the descriptor of a call against the list of kernels: how many
// arguments it has, ranges, rules, element types, and whether the integers are
// those of buffers of these sizes. The compiler's verifier and the loader of
// programs share it.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_KERNEL_CHECKS_H
#define GRT_KERNEL_CHECKS_H

#include "grt/kernels.h"

#include <string>

namespace grt {

class CallCheck {
public:
  /// `name` is what messages call the kernel, which is one of the list.
  /// `ofPrograms`: rules that only programs keep count, too.
  CallCheck(const grt_kernel_op &op, const char *name, bool ofPrograms = true)
      : op(op), name(name), ofPrograms(ofPrograms) {}

  /// Checks integers and reals, on which what is expected of buffers depends.
  bool checkNumbers() { return checkInts() && checkBroken() && checkReals(); }
  /// Checks the buffers of a call whose numbers are right.
  bool checkBuffers() {
    const KernelBuffers expected = buffersOf(op);
    if (!count(int64_t(expected.size()), op.buffer_count, "buffers"))
      return false;
    for (uint32_t i = 0; i < op.buffer_count; ++i)
      if (!checkElements(expected[i], op.buffers[i].dtype) ||
          !checkBytes(expected[i], op.buffers[i]))
        return false;
    return true;
  }
  /// Message with the fault, what was expected and what was found; "" if there
  /// is none.
  const std::string &wrong() const { return message; }

private:
  bool refuse(std::string text) {
    message = std::move(text);
    return false;
  }
  bool count(int64_t expected, int64_t found, const char *what) {
    return expected == found ||
           refuse("expected " + std::to_string(expected) + " " + what +
                  " for kernel '" + name + "', found " + std::to_string(found));
  }

  static std::string rangeOf(const KernelInt &integer, int64_t found) {
    const std::string least = std::to_string(integer.least);
    if (integer.most - integer.least == 1)
      return least + " or " + std::to_string(integer.most);
    if (integer.most - integer.least == 2)
      return least + ", " + std::to_string(integer.least + 1) + " or " +
             std::to_string(integer.most);
    if (integer.most < mostSize || found > integer.most)
      return "a number from " + least + " to " + std::to_string(integer.most);
    return integer.least == 0 ? "a number that is not negative"
                              : "a number of at least " + least;
  }
  bool checkInts() {
    const KernelInts ints = kernelInts(op.kernel);
    int64_t segments = -1;
    for (size_t i = 0; i < ints.size() && i < op.int_count; ++i) {
      const int64_t value = op.ints[i];
      if (value < ints[i].least || value > ints[i].most)
        return refuse("expected " + rangeOf(ints[i], value) + " for '" +
                      ints[i].name + "', found " + std::to_string(value));
      if (ints[i].countsSegments)
        segments = value;
    }
    const int64_t named = int64_t(ints.size()), found = op.int_count;
    if (segments >= 0)
      return checkSegments(named, segments);
    const int64_t least = kernelForms[op.kernel].ints;
    return (found >= least && found <= named) ||
           count(named, found, "integers");
  }
  bool checkSegments(int64_t named, int64_t segments) {
    const int64_t found = int64_t(op.int_count) - named;
    if (found != productOf(int64_t(segmentInts), segments))
      return refuse("expected " +
                    std::to_string(productOf(int64_t(segmentInts), segments)) +
                    " integers for " + std::to_string(segments) +
                    " segments, found " + std::to_string(found));
    int64_t end = 0;
    for (int64_t i = 0; i < segments; ++i) {
      const int64_t *at = op.ints + named + i * int64_t(segmentInts);
      const int64_t begin = at[0], length = at[1], flag = at[2];
      auto text = [&] {
        return ", found [" + std::to_string(begin) + ", " +
               std::to_string(length) + ", " + std::to_string(flag) + "]";
      };
      if (begin < 0 || length < 0 || flag < 0 || flag > 1)
        return refuse("expected segments of a begin, a length and a flag 0 or "
                      "1" +
                      text());
      if (begin < end || length > INT64_MAX - begin)
        return refuse("expected segments behind each other" + text());
      end = begin + length;
    }
    return true;
  }
  bool checkBroken() {
    const BrokenRule rule =
        brokenRule(op.kernel, op.ints, op.int_count, ofPrograms);
    return !rule.text || refuse(std::string(rule.text) + ", found " +
                                std::to_string(rule.first) + " and " +
                                std::to_string(rule.second));
  }
  bool checkReals() {
    const int64_t expected = visitKernel(op.kernel, [&](auto k) {
      int64_t sum = 0;
      for (const KernelReal &real :
           factsOf<decltype(k)>(op.ints, op.int_count).reals())
        sum += real.count;
      return sum;
    });
    return count(expected, op.real_count, "reals");
  }

  static std::string nameOf(uint32_t dtype) {
    constexpr const char *names[] = {"f32", "f64", "bf16", "i32", "i8"};
    return dtype < 5 ? std::string("'") + names[dtype] + "'"
                     : "type " + std::to_string(dtype);
  }
  bool checkElements(const KernelBuffer &buffer, uint32_t dtype) {
    const bool isFloat =
        dtype == GRT_F32 || dtype == GRT_F64 || dtype == GRT_BF16;
    if (bytesOfElement(dtype) == 0)
      return refuse("expected elements of a known type in '" +
                    std::string(buffer.name) + "', found " + nameOf(dtype));
    std::string expected;
    switch (buffer.elements) {
    case Elements::Compute:
    case Elements::Accumulator:
    case Elements::Either: {
      if (!isFloat) {
        expected = "floating point";
        break;
      }
      if (buffer.elements == Elements::Compute && !isTyped) {
        isTyped = true;
        compute = dtype;
      }
      const uint32_t wide = compute == GRT_F64 ? GRT_F64 : GRT_F32;
      const bool isCompute = isTyped && dtype == compute;
      const bool isWide = isTyped ? dtype == wide : dtype != GRT_BF16;
      if (buffer.elements == Elements::Compute       ? !isCompute
          : buffer.elements == Elements::Accumulator ? !isWide
                                                     : !isCompute && !isWide)
        expected =
            nameOf(buffer.elements == Elements::Compute ? compute : wide);
      break;
    }
    case Elements::Index:
    case Elements::Mask:
      if (dtype != GRT_I32)
        expected = "'i32'";
      break;
    case Elements::Code:
      if (dtype != GRT_U8)
        expected = "'i8'";
      break;
    case Elements::Loss:
      if (dtype != GRT_F64)
        expected = "'f64'";
      break;
    case Elements::Bytes:
      // A bias that the integers do not tell of would be taken for it.
      if (buffer.isOptional && dtype != GRT_U8)
        expected = "'i8'";
      break;
    }
    return expected.empty() ||
           refuse("expected " + expected + " elements in '" + buffer.name +
                  "', found " + nameOf(dtype));
  }

  bool checkBytes(const KernelBuffer &buffer, const grt_buffer &found) {
    const int64_t element = bytesOfElement(found.dtype);
    const bool areBytes = buffer.elements == Elements::Bytes;
    const std::string quoted = std::string("'") + buffer.name + "'";
    // Rows are of whole elements, though their sizes are bytes.
    if (areBytes && buffer.hasRows &&
        (buffer.width % element || buffer.stride % element))
      return refuse("expected whole elements of " + std::to_string(element) +
                    " bytes in the rows of " + quoted + ", found " +
                    std::to_string(buffer.width) + " of " +
                    std::to_string(buffer.stride) + " bytes");
    const int64_t unit = areBytes ? 1 : element;
    const int64_t least = productOf(buffer.reach(), unit);
    const int64_t most = productOf(buffer.most(), unit);
    const int64_t bytes =
        found.bytes > uint64_t(INT64_MAX) ? INT64_MAX : int64_t(found.bytes);
    if (bytes >= least && bytes <= most)
      return true;
    return refuse("expected " +
                  (least == most ? "" : std::string("at least ")) +
                  std::to_string(least) + " bytes " +
                  (least == most || most == INT64_MAX
                       ? ""
                       : "and at most " + std::to_string(most) + " ") +
                  "in " + quoted + ", found " + std::to_string(bytes));
  }

  const grt_kernel_op &op;
  const char *name;
  bool ofPrograms;
  bool isTyped = false;
  uint32_t compute = GRT_F32;
  std::string message;
};

/// Returns the fault of a call whose kernel is one of the list; "" if there is
/// none.
inline std::string wrongWith(const grt_kernel_op &op, const char *name,
                             bool ofPrograms = true) {
  CallCheck check(op, name, ofPrograms);
  if (check.checkNumbers())
    check.checkBuffers();
  return check.wrong();
}

} // namespace grt

#endif // GRT_KERNEL_CHECKS_H
