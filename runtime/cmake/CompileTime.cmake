# What keeps a clean build short; for the runtime alone and for the whole project.

option(GALVATRON_PRECOMPILE_HEADERS "Compile the headers that many files read \
once" ON)
# clang tells apart by the sanitizers of fuzzing what a precompiled header is for.
if(GALVATRON_FUZZ)
  set(GALVATRON_PRECOMPILE_HEADERS OFF)
endif()

# For what is not where time goes (passes, tools, tests): beyond -O1, headers of
# templates cost twice the compile time.
function(galvatron_light_optimisation name)
  target_compile_options(${name} PRIVATE
    $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:C,CXX>>:-O1>)
endfunction()

# For what takes time, but not in loops over data that -O3 would unroll.
function(galvatron_plain_optimisation name)
  target_compile_options(${name} PRIVATE
    $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:C,CXX>>:-O2>)
endfunction()

# For tests whose own code is soon done: without it they compile in half the time.
function(galvatron_no_optimisation name)
  target_compile_options(${name} PRIVATE
    $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:C,CXX>>:-O0>)
endfunction()

# Half of the time that a small file takes is reading headers of others: they are
# compiled once for each set of flags that a kind of target has, as compilers want it.
# galvatron_precompile_headers(NAME HEADERS... [LIGHT|PLAIN|UNOPTIMISED] [PIC]
#                              LINK_LIBS libs...)
function(galvatron_precompile_headers name)
  cmake_parse_arguments(ARG "LIGHT;PLAIN;UNOPTIMISED;PIC" "" "LINK_LIBS" ${ARGN})
  if(NOT GALVATRON_PRECOMPILE_HEADERS)
    return()
  endif()
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/${name}.cpp CONTENT "")
  add_library(${name} OBJECT ${CMAKE_BINARY_DIR}/${name}.cpp)
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ${ARG_PIC})
  if(ARG_LIGHT)
    galvatron_light_optimisation(${name})
  elseif(ARG_PLAIN)
    galvatron_plain_optimisation(${name})
  elseif(ARG_UNOPTIMISED)
    galvatron_no_optimisation(${name})
  endif()
  target_link_libraries(${name} PRIVATE ${ARG_LINK_LIBS})
  target_precompile_headers(${name} PRIVATE ${ARG_UNPARSED_ARGUMENTS})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    # ccache finds a header again only if no time is written into it.
    target_compile_options(${name} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
  endif()
endfunction()

# galvatron_use_precompiled(TARGET NAME)
function(galvatron_use_precompiled target name)
  if(TARGET ${name})
    target_precompile_headers(${target} REUSE_FROM ${name})
  endif()
endfunction()

# With CMAKE_UNITY_BUILD, which the scripts use, several files of a target are
# compiled as one: most of the time of a file goes into instances of templates
# that its neighbours need, too. These files stay alone, because what they name
# means something else beside their neighbours.
function(galvatron_compile_alone)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
