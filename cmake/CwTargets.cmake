# SPDX-License-Identifier: Apache-2.0
# The three kinds of target in this tree: libraries, BPF objects, tests.

add_library(cw_options INTERFACE)
target_compile_options(cw_options INTERFACE -Wall -Wextra -Wshadow -Wno-missing-field-initializers -Werror -fno-omit-frame-pointer)
target_include_directories(cw_options INTERFACE ${CMAKE_SOURCE_DIR})
if(CW_SANITIZE)
  # With sanitizers gcc 12 takes members of std::function in the standard library for uninitialised.
  target_compile_options(cw_options INTERFACE -fsanitize=${CW_SANITIZE} -fno-sanitize-recover=all -Wno-maybe-uninitialized)
  target_link_options(cw_options INTERFACE -fsanitize=${CW_SANITIZE})
endif()
if(CW_COVERAGE)
  target_compile_options(cw_options INTERFACE --coverage)
  target_link_options(cw_options INTERFACE --coverage)
endif()

# Compile time. Most of it is the standard library's and Abseil's headers: they are read once for all libraries and once
# for all tests (precompiled), and the files of a target are compiled in batches. CW_FAST=OFF compiles each file alone, with
# just what it includes: `make nightly` does so, so that no file lives on another's includes.
option(CW_FAST "Precompiled headers, files compiled in batches, ccache and a fast linker where installed" ON)
set(CMAKE_PCH_WARN_INVALID OFF)
if(CW_FAST)
  set(CMAKE_UNITY_BUILD ON)
  set(CMAKE_UNITY_BUILD_BATCH_SIZE 8)
  include(CwFast)
endif()

set(CW_LIBRARY_HEADERS
  <algorithm> <array> <atomic> <chrono> <cstdint> <cstring> <deque> <functional> <map> <memory> <mutex> <optional> <set> <string> <string_view>
  <thread> <utility> <variant> <vector>
  <absl/container/flat_hash_map.h> <absl/container/flat_hash_set.h> <absl/status/status.h> <absl/status/statusor.h> <absl/strings/str_cat.h>
  <absl/strings/str_format.h> <absl/strings/str_join.h> <absl/strings/str_split.h> <absl/time/clock.h> <absl/time/time.h> <absl/types/span.h>)
add_library(cw_library_headers OBJECT EXCLUDE_FROM_ALL ${CMAKE_CURRENT_LIST_DIR}/library_headers.cc)
target_link_libraries(cw_library_headers PRIVATE cw_options absl::status absl::statusor absl::strings absl::str_format absl::time)
target_precompile_headers(cw_library_headers PRIVATE ${CW_LIBRARY_HEADERS})

# cw_library(NAME SOURCES a.cc ... USES lib ... [HEADER x.h]): a static library; headers are included as "folder/file.h"
# from the root. HEADER: one of its own that nearly all of its files include and that is long to read.
function(cw_library name)
  cmake_parse_arguments(A "" "HEADER" "SOURCES;USES" ${ARGN})
  if(A_SOURCES)
    add_library(${name} STATIC ${A_SOURCES})
    target_link_libraries(${name} PUBLIC cw_options ${A_USES})
    if(CW_FAST AND A_HEADER)
      target_precompile_headers(${name} PRIVATE ${CW_LIBRARY_HEADERS} ${A_HEADER})
    elseif(CW_FAST)
      target_precompile_headers(${name} REUSE_FROM cw_library_headers)
    endif()
  else()
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE cw_options ${A_USES})
  endif()
endfunction()

find_program(CW_BPF_CLANG NAMES clang clang-14 REQUIRED)
find_program(CW_LLVM_STRIP NAMES llvm-strip llvm-strip-14 REQUIRED)
find_program(CW_BPFTOOL NAMES bpftool PATHS /usr/sbin /sbin REQUIRED)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64")
  set(CW_BPF_ARCH arm64)
else()
  set(CW_BPF_ARCH x86)
endif()

# cw_bpf_object(NAME SOURCE x.bpf.c): compiles x.bpf.c with BTF, strips DWARF, and makes NAME.skel.h.
# Linking the target NAME_skel gives the include path of the skeleton; property CW_BPF_OBJECT holds the object's path.
# HEADERS: a folder that is looked in before the source's.
function(cw_bpf_object name)
  cmake_parse_arguments(A "" "SOURCE;HEADERS" "" ${ARGN})
  set(src ${CMAKE_CURRENT_SOURCE_DIR}/${A_SOURCE})
  set(headers ${CMAKE_SOURCE_DIR})
  if(A_HEADERS)
    set(headers ${A_HEADERS} -I${CMAKE_SOURCE_DIR})
  endif()
  set(dir ${CMAKE_BINARY_DIR}/bpf_skel)
  set(obj ${dir}/${name}.bpf.o)
  set(skel ${dir}/${name}.skel.h)
  file(MAKE_DIRECTORY ${dir})
  add_custom_command(
    OUTPUT ${obj}
    COMMAND ${CW_BPF_CLANG} -target bpf -D__TARGET_ARCH_${CW_BPF_ARCH} -O2 -g -Wall -Wextra -Werror -Wno-unused-parameter -Wno-address-of-packed-member
            -mcpu=v3 -ffile-prefix-map=${CMAKE_SOURCE_DIR}/= -I${headers} -I/usr/include/${CMAKE_LIBRARY_ARCHITECTURE}
            -MD -MF ${obj}.d -MT ${obj} -c ${src} -o ${obj}
    COMMAND ${CW_LLVM_STRIP} -g ${obj}
    DEPENDS ${src} DEPFILE ${obj}.d VERBATIM COMMENT "BPF ${name}")
  add_custom_command(
    OUTPUT ${skel}
    COMMAND ${CW_BPFTOOL} gen skeleton ${obj} name ${name} > ${skel}
    DEPENDS ${obj} VERBATIM COMMENT "BPF skeleton ${name}")
  add_custom_target(${name}_skel_gen DEPENDS ${skel})
  add_library(${name}_skel INTERFACE)
  add_dependencies(${name}_skel ${name}_skel_gen)
  target_include_directories(${name}_skel SYSTEM INTERFACE ${dir})
  target_link_libraries(${name}_skel INTERFACE PkgConfig::LIBBPF)
  set_property(TARGET ${name}_skel PROPERTY CW_BPF_OBJECT ${obj})
endfunction()

# Groups for the build tool: what the sanitizer rung and the fuzz rung need.
add_custom_target(cw_unit_tests)
add_custom_target(cw_tests)  # what `make test` runs: no benchmark, no simulator, no demonstration
add_custom_target(cw_fuzzers)

# What nearly every test includes, read once instead of a hundred times. A program with other options than this one reads
# the headers itself.
# Of the build's time tests are half; what they do themselves need not be fast, what they test is compiled as users have it.
set(CW_TEST_FLAGS "$<$<CONFIG:RelWithDebInfo>:-O0;-U_FORTIFY_SOURCE>")
function(cw_precompile_for_tests name)
  add_executable(${name} EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/cmake/test_headers.cc)
  target_link_libraries(${name} PRIVATE cw_options GTest::gtest GTest::gmock GTest::gtest_main)
  target_compile_options(${name} PRIVATE ${ARGN})
  target_precompile_headers(${name} PRIVATE
    <algorithm> <filesystem> <fstream> <functional> <map> <memory> <optional> <sstream> <string> <thread> <vector> <gmock/gmock.h> <gtest/gtest.h>
    <absl/status/status.h> <absl/status/statusor.h> <absl/strings/match.h> <absl/strings/str_cat.h> <absl/strings/str_format.h> <absl/time/clock.h>
    <absl/time/time.h> <absl/types/span.h> <nlohmann/json.hpp>)
endfunction()
if(CW_TESTS)
  cw_precompile_for_tests(cw_test_headers ${CW_TEST_FLAGS})
  cw_precompile_for_tests(cw_fast_test_headers)  # a compiler takes none that was made with other flags
endif()

# Lists of tests: lines "PROGRAM SUITE.TEST # why" (a * stands for any text; * alone for the whole program).
# nightly_only: `make nightly` alone runs them. beside: programs of the lab that may run two at a time.
foreach(list nightly_only beside)
  file(STRINGS ${CMAKE_SOURCE_DIR}/tests/${list} CW_LIST_${list} REGEX "^[^#]")
  set_property(DIRECTORY ${CMAKE_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/${list})
endforeach()
function(cw_listed list program out)
  set(names)
  foreach(line IN LISTS CW_LIST_${list})
    if(line MATCHES "^([^ ]+) +([^ ]+)" AND CMAKE_MATCH_1 STREQUAL program)
      list(APPEND names ${CMAKE_MATCH_2})
    endif()
  endforeach()
  list(JOIN names ":" names)
  set(${out} "${names}" PARENT_SCOPE)
endfunction()

# One ctest test for a whole program, or one for each of SHARDS parts of it, which may run side by side. What was in it is
# counted from what the program writes (tests/run.sh).
function(cw_whole_test name program filter)
  cmake_parse_arguments(A "" "SHARDS" "PROPERTIES" ${ARGN})
  if(NOT A_SHARDS)
    set(A_SHARDS 1)
  endif()
  math(EXPR last "${A_SHARDS} - 1")
  foreach(shard RANGE ${last})
    set(test ${name})
    if(A_SHARDS GREATER 1)
      set(test ${name}.${shard})
    endif()
    add_test(NAME ${test} COMMAND ${program} --gtest_filter=${filter} --gtest_output=xml:${CMAKE_BINARY_DIR}/gtest/${test}.xml)
    set_tests_properties(${test} PROPERTIES ${A_PROPERTIES} ENVIRONMENT "GTEST_TOTAL_SHARDS=${A_SHARDS};GTEST_SHARD_INDEX=${shard}")
  endforeach()
endfunction()

function(cw_compile_as_test name fast)
  target_link_libraries(${name} PUBLIC cw_options ${ARGN} GTest::gtest GTest::gmock)
  if(fast)
    set(headers cw_fast_test_headers)
  else()
    set(headers cw_test_headers)
    target_compile_options(${name} PRIVATE ${CW_TEST_FLAGS})
  endif()
  if(CW_FAST)
    target_precompile_headers(${name} REUSE_FROM ${headers})
  endif()
endfunction()

# cw_test_library(NAME SOURCES ... USES ...): what several test programs share.
function(cw_test_library name)
  cmake_parse_arguments(A "" "" "SOURCES;USES" ${ARGN})
  add_library(${name} STATIC ${A_SOURCES})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)  # as in programs, whose headers they share
  cw_compile_as_test(${name} FALSE ${A_USES})
endfunction()

# cw_test(NAME LABEL unit|bpf|lab|vm SOURCES ... USES ... [TIMEOUT s] [WHOLE name] [SHARDS n] [FAST]): a GoogleTest
# program. FAST: it computes for long, so it is optimised.
# Programs of unit tests, and those with WHOLE (whose tests share what is dear to make: machines), are one ctest test each;
# of the others each TEST is one. Everything above unit runs alone, so that tests do not disturb each other's timing, but
# for the programs that tests/beside names: those run two at a time, each on a fabric of its own.
function(cw_test name)
  cmake_parse_arguments(A "FAST" "LABEL;TIMEOUT;WHOLE;SHARDS" "SOURCES;USES" ${ARGN})
  if(NOT A_TIMEOUT)
    set(A_TIMEOUT 60)
  endif()
  if(A_LABEL STREQUAL "unit")
    math(EXPR A_TIMEOUT "${A_TIMEOUT} * 4")  # for all its tests together
  endif()
  if(CW_SANITIZE)
    math(EXPR A_TIMEOUT "${A_TIMEOUT} * 10")  # instrumented code is several times slower
  endif()
  add_executable(${name} ${A_SOURCES})
  target_link_libraries(${name} PRIVATE GTest::gtest_main)
  cw_compile_as_test(${name} ${A_FAST} ${A_USES})
  add_dependencies(cw_tests ${name})
  set_property(GLOBAL APPEND PROPERTY CW_TEST_PROGRAMS ${name})
  cw_listed(beside ${name} beside)
  set(how RUN_SERIAL TRUE)
  if(beside)
    set(how RESOURCE_LOCK ${name})
  endif()
  set(nightly_props LABELS nightly TIMEOUT ${A_TIMEOUT} ${how})
  if(A_LABEL STREQUAL "unit")
    add_dependencies(cw_unit_tests ${name})
    set(how)
  endif()
  set(props LABELS ${A_LABEL} TIMEOUT ${A_TIMEOUT} ${how})
  cw_listed(nightly_only ${name} nightly)
  if(A_WHOLE OR A_LABEL STREQUAL "unit")
    if(NOT A_WHOLE)
      set(A_WHOLE ${name})
    endif()
    if(NOT nightly STREQUAL "*")
      cw_whole_test(${A_LABEL}.${A_WHOLE} ${name} "*-${nightly}" SHARDS ${A_SHARDS} PROPERTIES ${props})
    endif()
    if(nightly)
      cw_whole_test(nightly.${A_WHOLE} ${name} "${nightly}" PROPERTIES ${nightly_props})
    endif()
    return()
  endif()
  if(NOT nightly STREQUAL "*")
    gtest_discover_tests(${name} NO_PRETTY_VALUES TEST_PREFIX "${A_LABEL}." TEST_FILTER "*-${nightly}" TEST_LIST ${name}_all PROPERTIES ${props} DISCOVERY_TIMEOUT 60)
  endif()
  if(nightly)
    gtest_discover_tests(${name} NO_PRETTY_VALUES TEST_PREFIX "nightly." TEST_FILTER "${nightly}" TEST_LIST ${name}_nightly PROPERTIES ${nightly_props} DISCOVERY_TIMEOUT 60)
  endif()
endfunction()
