//===- image_test.cpp - What a program's shared object may ask for --------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every refusal of `checkImage`, of an image that is written here word by word:
// next to a size that is refused stands the nearest one that is accepted.
//
//===----------------------------------------------------------------------===//

#include "core/error.h"
#include "core/image.h"

#include <gtest/gtest.h>

#include <cstring>
#include <elf.h>
#include <functional>
#include <string>
#include <vector>

using namespace grt;

namespace {

#if defined(__aarch64__)
constexpr uint32_t relocationOfBase = 1027, relocationOfSymbol = 1025;
#else
constexpr uint32_t relocationOfBase = R_X86_64_RELATIVE,
                   relocationOfSymbol = R_X86_64_GLOB_DAT;
#endif

// A segment of tables, then one that is writable; addresses are offsets.
constexpr uint64_t stringsAt = 0x1000, symbolsAt = 0x1100, hashAt = 0x1400,
                   chainedAt = 0x1600, relocationsAt = 0x1800;
constexpr uint64_t writableAt = 0x2000, dynamicAt = 0x2100, dataAt = 0x3800,
                   fileEnd = 0x4000, writableEnd = 0x4100;
constexpr uint64_t mostOfAddresses = uint64_t(1) << 47;

/// The smallest shared object with all that a program has.
struct BareImage {
  enum : size_t { Tables, Writable, Dynamic };
  Elf64_Ehdr header{};
  std::vector<Elf64_Phdr> segments;
  std::vector<Elf64_Dyn> dynamic; ///< without its end
  std::string strings;
  std::vector<Elf64_Sym> symbols{3};
  /// Buckets, first symbol, words of the filter, shift; the filter; the
  /// buckets; the chain.
  std::vector<uint32_t> hash{2, 2, 1, 6, ~0u, ~0u, 2, 0, 1};
  /// Buckets and symbols; the bucket; the chain.
  std::vector<uint32_t> chained{1, 3, 2, 0, 0, 0, /*behind it:*/ 9};
  std::vector<Elf64_Rela> relocations;

  BareImage() {
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_type = ET_DYN;
    header.e_phoff = sizeof(Elf64_Ehdr);
    header.e_phentsize = sizeof(Elf64_Phdr);
    add(PT_LOAD, PF_R, 0, writableAt, writableAt);
    add(PT_LOAD, PF_R | PF_W, writableAt, fileEnd - writableAt,
        writableEnd - writableAt);
    add(PT_DYNAMIC, PF_R | PF_W, dynamicAt, 0x200, 0x200);
    strings = std::string("\0grt_program\0grt_launch\0", 24);
    symbols[1] = {13, ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), 0, SHN_UNDEF, 0, 0};
    symbols[2] = {1, ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT), 0, 1, dataAt, 8};
    relocations = {{dataAt, ELF64_R_INFO(0, relocationOfBase), 8},
                   {dataAt + 8, ELF64_R_INFO(1, relocationOfSymbol), 0}};
    dynamic = {entry(DT_GNU_HASH, hashAt),
               entry(DT_STRTAB, stringsAt),
               entry(DT_STRSZ, strings.size()),
               entry(DT_SYMTAB, symbolsAt),
               entry(DT_SYMENT, sizeof(Elf64_Sym)),
               entry(DT_RELA, relocationsAt),
               entry(DT_RELASZ, 2 * sizeof(Elf64_Rela)),
               entry(DT_RELAENT, sizeof(Elf64_Rela)),
               entry(DT_PLTREL, DT_RELA)};
  }

  static Elf64_Dyn entry(int64_t tag, uint64_t value) { return {tag, {value}}; }
  Elf64_Phdr &add(uint32_t type, uint32_t flags, uint64_t at, uint64_t bytes,
                  uint64_t memory) {
    return segments.emplace_back(
        Elf64_Phdr{type, flags, at, at, at, bytes, memory, 0x1000});
  }
  void add(int64_t tag, uint64_t value) {
    dynamic.push_back(entry(tag, value));
  }
  /// The value of an entry.
  uint64_t &value(int64_t tag) {
    for (Elf64_Dyn &one : dynamic)
      if (one.d_tag == tag)
        return one.d_un.d_val;
    ADD_FAILURE() << "no entry " << tag;
    return dynamic[0].d_un.d_val;
  }
  void drop(int64_t tag) {
    std::erase_if(dynamic,
                  [&](const Elf64_Dyn &one) { return one.d_tag == tag; });
  }

  std::string bytes() const {
    std::string file(fileEnd, '\0');
    auto put = [&](uint64_t at, const void *from, size_t bytes) {
      ASSERT_LE(at + bytes, file.size());
      std::memcpy(file.data() + at, from, bytes);
    };
    auto putAll = [&](uint64_t at, const auto &values) {
      put(at, values.data(), values.size() * sizeof(values[0]));
    };
    Elf64_Ehdr first = header;
    if (first.e_phnum == 0)
      first.e_phnum = uint16_t(segments.size());
    put(0, &first, sizeof(first));
    putAll(sizeof(first), segments);
    putAll(stringsAt, strings);
    putAll(symbolsAt, symbols);
    putAll(hashAt, hash);
    putAll(chainedAt, chained);
    putAll(relocationsAt, relocations);
    putAll(dynamicAt, dynamic);
    return file;
  }
};

/// The message of an image, "" of one that is accepted.
std::string imageRefusal(const std::string &file) {
  try {
    checkImage(file);
    return "";
  } catch (const Error &error) {
    EXPECT_EQ(error.exitCode(), 2);
    return error.what();
  }
}

struct ImageRow {
  std::string message; ///< "": accepted
  std::function<void(BareImage &)> change;
};

const char *const malformedImage = "its ELF file is malformed: ";

/// Rows whose messages begin with `start`.
void expectRows(const std::string &start, const std::vector<ImageRow> &rows) {
  for (size_t i = 0; i < rows.size(); ++i) {
    BareImage image;
    rows[i].change(image);
    EXPECT_EQ(imageRefusal(image.bytes()),
              rows[i].message.empty() ? "" : start + rows[i].message)
        << "row " << i;
  }
}

TEST(Image, OnesThatAreGood) {
  expectRows("", {{"", [](BareImage &) {}},
                  {"", [](BareImage &i) { i.value(DT_RELASZ) = 0; }},
                  {"", [](BareImage &i) { i.add(DT_HASH, chainedAt); }},
                  {"",
                   [](BareImage &i) {
                     i.drop(DT_GNU_HASH);
                     i.add(DT_HASH, chainedAt);
                   }},
                  {"", [](BareImage &i) {
                     for (uint32_t type :
                          {PT_NULL, PT_NOTE, PT_PHDR, PT_GNU_EH_FRAME,
                           PT_GNU_RELRO, PT_GNU_PROPERTY, PT_GNU_STACK})
                       i.add(type, PF_R | PF_W, 0, 0, 0);
                   }}});
}

TEST(Image, Headers) {
  const std::string ident = "expected a 64-bit, little-endian ELF file";
  expectRows(
      malformedImage,
      {{ident, [](BareImage &i) { i.header.e_ident[3] = 'G'; }},
       {ident, [](BareImage &i) { i.header.e_ident[EI_CLASS] = ELFCLASS32; }},
       {ident, [](BareImage &i) { i.header.e_ident[EI_DATA] = ELFDATA2MSB; }},
       {"program headers of 55 bytes, 3 of them",
        [](BareImage &i) { i.header.e_phentsize = 55; }},
       // No more than 64 of them; those that are not said are of type 0.
       {"", [](BareImage &i) { i.header.e_phnum = 64; }},
       {"program headers of 56 bytes, 65 of them",
        [](BareImage &i) { i.header.e_phnum = 65; }},
       {"no dynamic section",
        [](BareImage &i) { i.header.e_phoff = fileEnd - 3 * 56; }},
       {"program headers outside the file",
        [](BareImage &i) { i.header.e_phoff = fileEnd - 3 * 56 + 1; }},
       {"program headers outside the file",
        [](BareImage &i) { i.header.e_phoff = ~uint64_t(0) - 55; }}});
  EXPECT_EQ(imageRefusal(BareImage().bytes().substr(0, 63)),
            std::string(malformedImage) + "the header outside the file");
  expectRows("expected an ELF shared object, found type ",
             {{"1", [](BareImage &i) { i.header.e_type = ET_REL; }},
              {"3000", [](BareImage &i) { i.header.e_type = 3000; }}});
}

TEST(Image, Segments) {
  const std::string fit = "a segment that does not fit the file",
                    order = "segments that overlap or do not ascend";
  auto tables = [](BareImage &i) -> Elf64_Phdr & {
    return i.segments[BareImage::Tables];
  };
  auto writable = [](BareImage &i) -> Elf64_Phdr & {
    return i.segments[BareImage::Writable];
  };
  // One behind the others, of no bytes in the file.
  auto behind = [](uint64_t offset, uint64_t address, uint64_t memory) {
    return [=](BareImage &i) {
      Elf64_Phdr &segment = i.add(PT_LOAD, PF_R, offset, 0, memory);
      segment.p_vaddr = address;
    };
  };
  expectRows(
      malformedImage,
      {{fit, [&](BareImage &i) { ++writable(i).p_filesz; }},
       {"", behind(fileEnd, 0x5000, 0)},
       {fit, behind(fileEnd + 0x1000, 0x5000, 0)},
       {"", [&](BareImage &i) { writable(i).p_memsz = writable(i).p_filesz; }},
       {fit,
        [&](BareImage &i) { writable(i).p_memsz = writable(i).p_filesz - 1; }},
       {"", behind(0, 0x5000, mostOfAddresses)},
       {fit, behind(0, 0x5000, mostOfAddresses + 1)},
       {"", behind(0, mostOfAddresses, 0)},
       {fit, behind(0, mostOfAddresses + 0x1000, 0)},
       {"", behind(0x800, 0x5800, 0)},
       {fit, behind(0x800, 0x5808, 0)},
       // The writable one ends in the page at 0x4000.
       {order, behind(0, 0x4000, 0)},
       {order, behind(0x800, 0x4800, 0)},
       {"", behind(0, 0x5000, 0)},
       {"", [&](BareImage &i) { tables(i).p_memsz = writableAt; }},
       {order, [&](BareImage &i) { tables(i).p_memsz = writableAt + 1; }},
       {order, [&](BareImage &i) { std::swap(tables(i), writable(i)); }},
       {"two dynamic sections",
        [](BareImage &i) {
          i.segments.push_back(i.segments[BareImage::Dynamic]);
        }},
       {"no dynamic section",
        [](BareImage &i) { i.segments.resize(BareImage::Dynamic); }}});
  expectRows("it ", {{"has a segment that is writable and executable",
                      [&](BareImage &i) { writable(i).p_flags |= PF_X; }},
                     {"", [&](BareImage &i) { tables(i).p_flags |= PF_X; }},
                     {"asks for an executable stack",
                      [](BareImage &i) { i.add(PT_GNU_STACK, PF_X, 0, 0, 0); }},
                     {"has an interpreter, so it is a program of its own",
                      [](BareImage &i) { i.add(PT_INTERP, PF_R, 0, 0, 0); }},
                     {"has thread-local data",
                      [](BareImage &i) { i.add(PT_TLS, PF_R, 0, 0, 0); }},
                     {"has a segment of type 8",
                      [](BareImage &i) { i.add(PT_NUM, PF_R, 0, 0, 0); }}});
}

TEST(Image, DynamicSections) {
  auto dynamic = [](BareImage &i) -> Elf64_Phdr & {
    return i.segments[BareImage::Dynamic];
  };
  auto value = [](int64_t tag, uint64_t value) {
    return [=](BareImage &i) { i.value(tag) = value; };
  };
  auto drop = [](int64_t tag) { return [=](BareImage &i) { i.drop(tag); }; };
  const std::string size = "entries of another size or kind than this "
                           "processor's";
  expectRows(
      malformedImage,
      {// Nine entries and their end, in as many bytes and no fewer.
       {"", [&](BareImage &i) { dynamic(i).p_memsz = 160; }},
       {"a dynamic section of 159 bytes, whose entries take 160",
        [&](BareImage &i) { dynamic(i).p_memsz = 159; }},
       // The relocations lie in it.
       {"a relocation of the dynamic section",
        [&](BareImage &i) { dynamic(i).p_memsz = mostOfAddresses; }},
       {"a dynamic section of 140737488355329 bytes",
        [&](BareImage &i) { dynamic(i).p_memsz = mostOfAddresses + 1; }},
       {"the dynamic section outside the segments",
        [&](BareImage &i) { dynamic(i).p_vaddr = fileEnd - 15; }},
       {"no strings",
        [&](BareImage &i) {
          // One entry, a size of strings, and nothing else in the file.
          i.dynamic = {BareImage::entry(DT_STRSZ, 0)};
        }},
       {"a dynamic section without an end",
        [](BareImage &i) { i.dynamic.resize(256, i.entry(DT_NEEDED, 1)); }},
       {"two dynamic entries 5",
        [](BareImage &i) { i.add(DT_STRTAB, stringsAt); }},
       {"no hash table", drop(DT_GNU_HASH)},
       {"no size of strings", drop(DT_STRSZ)},
       {"no strings", drop(DT_STRTAB)},
       {"no symbols", drop(DT_SYMTAB)},
       {"no relocations", drop(DT_RELA)},
       {size, value(DT_SYMENT, 23)},
       {size, value(DT_RELAENT, 23)},
       {size, value(DT_PLTREL, DT_REL)},
       {"", [](BareImage &i) {
          for (int64_t tag : {DT_SYMENT, DT_RELAENT, DT_PLTREL})
            i.drop(tag);
        }}});
  const std::string textRelocations = "has relocations in its code",
                    constructors =
                        "has constructors, which would run before it is "
                        "checked";
  std::vector<ImageRow> rows = {
      // The last entry before the 256 that are too many.
      {"needs library 'grt_program'; programs need none",
       [&](BareImage &i) {
         dynamic(i).p_memsz = 256 * sizeof(Elf64_Dyn);
         i.dynamic.resize(255, i.entry(DT_NEEDED, 1));
       }},
      {textRelocations,
       [](BareImage &i) { i.add(DT_FLAGS, DF_TEXTREL | DF_BIND_NOW); }},
      {"", [](BareImage &i) { i.add(DT_FLAGS, DF_BIND_NOW); }}};
  auto entries = [&](const std::vector<int64_t> &tags,
                     const std::function<std::string(int64_t)> &message) {
    for (int64_t tag : tags)
      rows.push_back({message(tag), [tag](BareImage &i) { i.add(tag, 0); }});
  };
  entries({DT_JMPREL, DT_PLTRELSZ, DT_PLTGOT, DT_SONAME, DT_RELACOUNT,
           DT_FLAGS_1, DT_BIND_NOW},
          [](int64_t) { return ""; });
  entries({DT_INIT, DT_INIT_ARRAY, DT_INIT_ARRAYSZ, DT_PREINIT_ARRAY,
           DT_PREINIT_ARRAYSZ},
          [&](int64_t) { return constructors; });
  entries({DT_FINI, DT_FINI_ARRAY, DT_FINI_ARRAYSZ},
          [](int64_t) { return "has destructors"; });
  entries({DT_TEXTREL}, [&](int64_t) { return textRelocations; });
  entries({DT_RPATH, DT_RUNPATH},
          [](int64_t) { return "has a search path for libraries"; });
  entries({DT_AUXILIARY, DT_FILTER, DT_AUDIT, DT_DEPAUDIT}, [](int64_t tag) {
    return "asks for other libraries (dynamic entry " + str(tag) + ")";
  });
  entries({DT_SYMBOLIC, DT_REL, DT_RELR, DT_VERSYM}, [](int64_t tag) {
    return "has a dynamic entry " + str(tag) + ", which programs do not have";
  });
  expectRows("it ", rows);
}

/// Also that no table is where relocations write: the loader reads it while it
/// relocates.
TEST(Image, Symbols) {
  const std::string missing =
      "a hash table that names a symbol it does not have";
  auto inWritable = [](int64_t tag) {
    return [=](BareImage &i) { i.value(tag) = dataAt; };
  };
  auto ownSegment = [](uint64_t bytes) {
    return [=](BareImage &i) {
      i.add(PT_LOAD, PF_R, stringsAt, bytes, bytes).p_vaddr = 0x5000;
      i.value(DT_STRTAB) = 0x5000;
    };
  };
  auto chainedOnly = [](BareImage &i) {
    i.drop(DT_GNU_HASH);
    i.add(DT_HASH, chainedAt);
  };
  expectRows(malformedImage,
             {{"strings in a writable segment", inWritable(DT_STRTAB)},
              {"the hash table in a writable segment", inWritable(DT_GNU_HASH)},
              {"the hash table in a writable segment",
               [](BareImage &i) { i.add(DT_HASH, dataAt); }},
              {"a symbol in a writable segment", inWritable(DT_SYMTAB)},
              {"relocations in a writable segment", inWritable(DT_RELA)},
              {"strings outside the segments",
               [](BareImage &i) { i.value(DT_STRTAB) = fileEnd - 23; }},
              // As long as their segment, and a byte longer.
              {"", ownSegment(24)},
              {"strings outside the segments", ownSegment(23)},
              // The strings end with the last name, which has its end in them.
              {"a name outside the strings",
               [](BareImage &i) { i.value(DT_STRSZ) = 23; }},
              {"", [](BareImage &i) { i.symbols[2].st_name = 23; }},
              {"a name outside the strings",
               [](BareImage &i) { i.symbols[2].st_name = 24; }},
              {"a hash table with a filter of 0 words",
               [](BareImage &i) { i.hash[2] = 0; }},
              {"a hash table with a filter of 3 words",
               [](BareImage &i) { i.hash[2] = 3; }},
              {"the hash table outside the segments",
               [](BareImage &i) { i.hash[2] = 1u << 31; }},
              {"the hash table outside the segments",
               [](BareImage &i) { i.hash[0] = ~0u; }},
              {missing, [](BareImage &i) { i.hash[6] = 1; }},
              // Empty: the symbols before its first one are there.
              {"", [](BareImage &i) { i.hash[6] = 0; }},
              {"the hash table outside the segments",
               [](BareImage &i) {
                 // A chain that nothing ends, up to the end of the segment.
                 i.hash[7] = 0;
                 i.segments[BareImage::Tables].p_filesz = hashAt + 32;
               }},
              {missing,
               [&](BareImage &i) {
                 chainedOnly(i);
                 i.chained[2] = 3;
               }},
              {missing,
               [&](BareImage &i) {
                 chainedOnly(i);
                 i.chained[5] = 3;
               }},
              {"the hash table outside the segments",
               [&](BareImage &i) {
                 chainedOnly(i);
                 ++i.chained[1];
                 i.segments[BareImage::Tables].p_filesz = chainedAt + 24;
               }},
              {"the hash table outside the segments",
               [&](BareImage &i) {
                 chainedOnly(i);
                 ++i.chained[0];
                 i.segments[BareImage::Tables].p_filesz = chainedAt + 24;
               }},
              {"a symbol outside the segments",
               [](BareImage &i) { i.value(DT_SYMTAB) = fileEnd - 24; }},
              {"a symbol outside the segments",
               [](BareImage &i) {
                 i.relocations[1].r_info =
                     ELF64_R_INFO(fileEnd, relocationOfSymbol);
               }},
              {"a symbol outside the file", [](BareImage &i) {
                 i.relocations[1].r_info =
                     ELF64_R_INFO(fileEnd + 1, relocationOfSymbol);
               }}});
  auto type = [](size_t number, unsigned char type) {
    return [=](BareImage &i) {
      i.symbols[number].st_info = ELF64_ST_INFO(STB_LOCAL, type);
    };
  };
  expectRows(
      "symbol ",
      {{"'grt_launch' is an indirect function, which the loader would call",
        type(1, STT_GNU_IFUNC)},
       {"'grt_program' is an indirect function, which the loader would call",
        type(2, STT_GNU_IFUNC)},
       {"'grt_program' is thread-local", type(2, STT_TLS)},
       {"", type(2, STT_FUNC)}});
  expectRows("it imports ",
             {{"'rt_launch'; programs import functions of the runtime "
               "(grt_...) only",
               [](BareImage &i) { i.symbols[1].st_name = 14; }},
              // A symbol that no hash table counts, but a relocation names.
              {"'program'; programs import functions of the runtime (grt_...) "
               "only",
               [](BareImage &i) {
                 i.symbols.push_back(i.symbols[1]);
                 i.symbols.back().st_name = 5;
                 i.relocations[1].r_info = ELF64_R_INFO(3, relocationOfSymbol);
               }},
              {"", [](BareImage &i) { i.symbols[2].st_name = 14; }}});
}

TEST(Image, Relocations) {
  auto place = [](uint64_t offset) {
    return [=](BareImage &i) { i.relocations[0].r_offset = offset; };
  };
  const std::string outside = "a relocation outside the writable segments",
                    own = "a relocation of the dynamic section";
  std::vector<ImageRow> rows = {
      {outside, place(writableAt - 1)},
      {"", place(writableAt)},
      {"", place(dynamicAt - 8)},
      {own, place(dynamicAt - 7)},
      {own, place(dynamicAt + 0x1ff)},
      {"", place(dynamicAt + 0x200)},
      {"", place(writableEnd - 8)},
      {outside, place(writableEnd - 7)},
      {outside, place(~uint64_t(0))},
      {"relocations outside the segments",
       [](BareImage &i) { i.value(DT_RELA) = ~uint64_t(0) - 47; }},
      {"relocations of 47 bytes",
       [](BareImage &i) { i.value(DT_RELASZ) = 47; }},
      // Those of functions are as those of data.
      {"no relocations", [](BareImage &i) { i.add(DT_PLTRELSZ, 24); }},
      {"relocations of 25 bytes",
       [](BareImage &i) {
         i.add(DT_JMPREL, relocationsAt);
         i.add(DT_PLTRELSZ, 25);
       }},
      {outside,
       [](BareImage &i) {
         i.relocations.push_back({0, i.relocations[0].r_info, 0});
         i.add(DT_JMPREL, relocationsAt + 48);
         i.add(DT_PLTRELSZ, 24);
       }},
      // A writable segment too small for any, and one that is not.
      {outside,
       [](BareImage &i) {
         i.add(PT_LOAD, PF_R | PF_W, 0, 0, 7).p_vaddr = 0x5000;
         i.relocations[0].r_offset = 0x5000;
       }},
      {"", [](BareImage &i) {
         i.add(PT_LOAD, PF_R | PF_W, 0, 0, 8).p_vaddr = 0x5000;
         i.relocations[0].r_offset = 0x5000;
       }}};
  expectRows(malformedImage, rows);
  expectRows("it has a relocation of type ",
             {{"37, which programs do not have", [](BareImage &i) {
                 i.relocations[1].r_info = ELF64_R_INFO(1, 37);
               }}});
}

} // namespace
