#!/usr/bin/env python3
# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whether classes.py counts members and lines as a compiler would."""

import unittest

import classes

KINDS = """
namespace grt {
template <typename T> class Small;
enum class Kind : uint8_t { A, B };
/// A comment with int a, b; and a brace {
class Counted final : public Base<int, 2>, private Other {
public:
  explicit Counted(int a, int b = 2) : one(a), two{b} { run(); }
  Counted(const Counted &) = delete;
  virtual ~Counted() = default;
  bool operator<(const Counted &other) const { return one < other.one; }
  void operator()(int);
  explicit operator bool() const { return one; }
  std::function<void(int, long)> called;
  std::map<std::string, std::pair<int, int>> table = {{"{", {1, 2}}};
  static constexpr int most = 7;
  static std::string text(int);
  using Row = std::array<int, 3>;
  friend class Friend;
  const double *first = nullptr, *second = nullptr;
  struct Inner {
    int x, y;
    int sum() const { return x + y; }
  };
  Inner inner, others[4] = {};
  void (*pointer)(int) = nullptr;
  struct {
    int named;
  } holder;
  union {
    int asInt;
    float asFloat;
  };
  [[noreturn]] void fail(const std::string &what) const;
  template <typename Body> void visit(Body body) const {
    for (int i = 0; i < 3; ++i)
      body(i);
  }
  auto operator<=>(const Counted &) const = default;
  uint32_t bits : 3;
  std::vector<int> list{1, 2, 3};

private:
  int one = 1 < 2 ? 3 : 4;
  int two;
};
} // namespace grt
"""


def read(text):
    return classes.Reader("x.h", text).read()


def class_of(count, name="Wide"):
    members = "".join(f"  int m{i} = {i};\n" for i in range(count))
    return f"class {name} {{\n{members}}};\n"


class Classes(unittest.TestCase):

    def test_counts_members_of_all_kinds(self):
        found = {name: members for name, members, _ in read(KINDS).classes}
        self.assertEqual(found["Counted::Inner"], 2)
        # called, table, first, second, inner, others, pointer, holder, two of
        # the union, bits, list, one, two.
        self.assertEqual(found["Counted"], 14)

    def test_counts_lines_of_functions(self):
        body = "  run();\n" * 58
        text = f"void Some::thing(int a)\n{{\n{body}}}\nint other() {{ return 1; }}\n"
        found = {name: lines for name, lines, _ in read(text).functions}
        self.assertEqual(found["thing"], 61)
        self.assertEqual(found["other"], 1)

    def complaints(self, text, path="runtime/src/core/executor.h", larger=()):
        got = read(text)
        return list(
            classes.complaints([(path, *each) for each in got.classes],
                               [(path, *each) for each in got.functions],
                               set(larger)))

    def test_refuses_a_class_of_21_members(self):
        self.assertEqual(self.complaints(class_of(20)), [])
        self.assertEqual(self.complaints(class_of(21)), [
            "runtime/src/core/executor.h:1: class Wide has 21 data members, "
            "expected at most 20"
        ])

    def test_members_of_a_nested_class_are_its_own(self):
        nested = class_of(20, "Inner").replace("};\n", "};\n" + "int a;\n" * 20)
        self.assertEqual(self.complaints(f"struct Outer {{\n{nested}}};\n"), [])

    def test_exceptions_are_needed(self):
        self.assertEqual(self.complaints(class_of(21), larger=["Wide"]), [])
        self.assertEqual(
            self.complaints(class_of(20), larger=["Wide"]),
            ["class Wide: expected more than 20 data members"])

    def test_refuses_a_function_of_61_lines(self):
        def function(lines):
            return "void run() {\n" + "  a();\n" * (lines - 2) + "}\n"

        self.assertEqual(self.complaints(function(60)), [])
        self.assertEqual(self.complaints(function(61)), [
            "runtime/src/core/executor.h:1: function run has 61 lines, "
            "expected at most 60"
        ])
        # Parsers of files are not the executor.
        self.assertEqual(
            self.complaints(function(61), "runtime/src/core/manifest.cpp"), [])


if __name__ == "__main__":
    unittest.main()
