# Helpers of the Galvatron build.

# Flags shared by everything that is ours. Kept out of CMAKE_CXX_FLAGS so that
# the runtime, which also builds alone, decides its own.
add_library(galvatron_flags INTERFACE)
target_compile_options(galvatron_flags INTERFACE
  -Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers
  -fno-exceptions -fno-semantic-interposition)
target_compile_definitions(galvatron_flags INTERFACE
  GALVATRON_VERSION="${PROJECT_VERSION}" ${LLVM_DEFINITIONS_LIST})
target_include_directories(galvatron_flags INTERFACE
  ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/include
  ${PROJECT_SOURCE_DIR}/runtime/include)
# Debian's headers are not ours to warn about.
target_include_directories(galvatron_flags SYSTEM INTERFACE
  ${LLVM_INCLUDE_DIRS} ${MLIR_INCLUDE_DIRS})
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # Of a function that libstdc++ 12's std::stable_sort itself calls.
  target_compile_options(galvatron_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-deprecated-declarations>)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 warns falsely of libstdc++'s own string concatenation (PR105651).
  target_compile_options(galvatron_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict -Wno-stringop-overflow -Wno-array-bounds>)
endif()
if(GALVATRON_ENABLE_ASSERTIONS)
  target_compile_options(galvatron_flags INTERFACE -UNDEBUG)
endif()
if(GALVATRON_SANITIZE)
  # Not the few lines of C: gcc's sanitizers do not mix with clang's.
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:\
-fsanitize=${GALVATRON_SANITIZE};-fno-omit-frame-pointer>")
  add_link_options($<$<LINK_LANGUAGE:CXX>:-fsanitize=${GALVATRON_SANITIZE}>)
endif()
if(GALVATRON_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined
    -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
endif()

include(${PROJECT_SOURCE_DIR}/runtime/cmake/CompileTime.cmake)

set(plainHeaders
  <algorithm> <cmath> <map> <memory> <numeric> <optional> <set> <string> <tuple>
  <vector>
  <llvm/ADT/STLExtras.h>
  <llvm/ADT/StringExtras.h>
  <llvm/Support/Error.h>
  <llvm/Support/Format.h>
  <llvm/Support/FormatVariadic.h>
  <llvm/Support/JSON.h>
  <llvm/Support/raw_ostream.h>)
galvatron_precompile_headers(GalvatronPlainHeaders PIC PLAIN ${plainHeaders}
  LINK_LIBS galvatron_flags)
set(mlirHeaders
  <mlir/Dialect/Func/IR/FuncOps.h>
  <mlir/IR/Builders.h>
  <mlir/IR/BuiltinOps.h>
  <mlir/IR/DialectImplementation.h>
  <mlir/IR/OpImplementation.h>
  <mlir/IR/PatternMatch.h>
  <mlir/Pass/PassManager.h>
  <llvm/ADT/StringExtras.h>
  <llvm/ADT/TypeSwitch.h>)
galvatron_precompile_headers(GalvatronMLIRHeaders PIC LIGHT ${mlirHeaders}
  LINK_LIBS galvatron_flags)

if(BUILD_TESTING OR NOT DEFINED BUILD_TESTING)
  find_package(GTest REQUIRED)
  galvatron_precompile_headers(GalvatronTestHeaders UNOPTIMISED
    <gtest/gtest.h> ${plainHeaders} LINK_LIBS galvatron_flags GTest::gtest)
  galvatron_precompile_headers(GalvatronMLIRTestHeaders UNOPTIMISED
    <gtest/gtest.h> ${mlirHeaders} <mlir/Parser/Parser.h>
    LINK_LIBS galvatron_flags GTest::gtest)
endif()

# galvatron_add_library(NAME SOURCES... [LINK_LIBS libs...])
# A library of one of the plain rooms: LLVM support code, no MLIR.
function(galvatron_add_library name)
  cmake_parse_arguments(ARG "" "" "LINK_LIBS" ${ARGN})
  add_library(${name} STATIC ${ARG_UNPARSED_ARGUMENTS})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  galvatron_plain_optimisation(${name})
  galvatron_use_precompiled(${name} GalvatronPlainHeaders)
  target_link_libraries(${name} PUBLIC galvatron_flags ${ARG_LINK_LIBS} LLVM)
endfunction()

# galvatron_add_mlir_library(NAME SOURCES... [DEPENDS tablegen targets...]
#                            [LINK_LIBS libs...])
# A library that uses MLIR, always through the shared libMLIR.
function(galvatron_add_mlir_library name)
  cmake_parse_arguments(ARG "" "" "DEPENDS;LINK_LIBS" ${ARGN})
  add_library(${name} STATIC ${ARG_UNPARSED_ARGUMENTS})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  if(ARG_DEPENDS)
    add_dependencies(${name} ${ARG_DEPENDS})
  endif()
  galvatron_light_optimisation(${name})
  galvatron_use_precompiled(${name} GalvatronMLIRHeaders)
  target_link_libraries(${name} PUBLIC galvatron_flags ${ARG_LINK_LIBS} MLIR LLVM)
endfunction()

# galvatron_compile_as_library(PROGRAM MLIR|PLAIN): with the flags of such a
# library, and so with its precompiled headers.
function(galvatron_compile_as_library name kind)
  target_compile_options(${name} PRIVATE -fPIC)
  if(kind STREQUAL "MLIR")
    galvatron_light_optimisation(${name})
    galvatron_use_precompiled(${name} GalvatronMLIRHeaders)
  else()
    galvatron_plain_optimisation(${name})
    galvatron_use_precompiled(${name} GalvatronPlainHeaders)
  endif()
endfunction()

# galvatron_add_tool(NAME SOURCES... [PLAIN] [LINK_LIBS libs...])
# PLAIN: without MLIR.
function(galvatron_add_tool name)
  cmake_parse_arguments(ARG "PLAIN" "" "LINK_LIBS" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  if(ARG_PLAIN)
    galvatron_compile_as_library(${name} PLAIN)
  else()
    galvatron_compile_as_library(${name} MLIR)
  endif()
  target_link_libraries(${name} PRIVATE galvatron_flags ${ARG_LINK_LIBS})
  # Debian keeps libMLIR where the loader does not look.
  set_target_properties(${name} PROPERTIES
    INSTALL_RPATH "$ORIGIN/../lib;${LLVM_LIBRARY_DIR}")
  install(TARGETS ${name} RUNTIME DESTINATION bin)
endfunction()

# galvatron_add_unittest(NAME SOURCES... [WITH_MLIR|OPTIMISED] [LINK_LIBS libs...])
# OPTIMISED: the test's own code takes time, such as a search by brute force.
function(galvatron_add_unittest name)
  cmake_parse_arguments(ARG "WITH_MLIR;OPTIMISED" "" "LINK_LIBS" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  set_target_properties(${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/unittests)
  if(ARG_OPTIMISED)
    galvatron_light_optimisation(${name})
  else()
    galvatron_no_optimisation(${name})
  endif()
  if(ARG_WITH_MLIR)
    galvatron_use_precompiled(${name} GalvatronMLIRTestHeaders)
  elseif(NOT ARG_OPTIMISED)
    galvatron_use_precompiled(${name} GalvatronTestHeaders)
  endif()
  target_link_libraries(${name} PRIVATE galvatron_flags ${ARG_LINK_LIBS}
    GTest::gtest grt_test_main)
  add_test(NAME ${name} COMMAND ${name})
  if(GALVATRON_LONG_TESTS)
    set_tests_properties(${name} PROPERTIES ENVIRONMENT GALVATRON_LONG=1)
  endif()
endfunction()

# Adds every direct subdirectory that has a CMakeLists.txt.
function(galvatron_add_subdirectories)
  file(GLOB children RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} CONFIGURE_DEPENDS
       ${CMAKE_CURRENT_SOURCE_DIR}/*/CMakeLists.txt)
  foreach(child ${children})
    get_filename_component(dir ${child} DIRECTORY)
    add_subdirectory(${dir})
  endforeach()
endfunction()
