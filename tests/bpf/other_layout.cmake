# SPDX-License-Identifier: Apache-2.0
# Makes CW_OTHER_ABI, an ABI header of a release that does not exist, from CW_ABI: more fields in the middle of the control
# record, at the beginning of others and in nested ones, and one that is wider. For tests of upgrades between releases whose
# records differ. Included, or: cmake -D CW_ABI=maps/abi.h -D CW_OTHER_ABI=FILE -P tests/bpf/other_layout.cmake
file(READ ${CW_ABI} abi)
# What stands there ~ what stands there instead; @ is a semicolon.
foreach(change
    "_assert(sizeof(type) == (size),~_assert(sizeof(type) > 0,"
    "(__builtin_offsetof(type, field) == (off),~(__builtin_offsetof(type, field) + 1 > 0,"
    "#define CW_ABI_VERSION ~#define CW_ABI_VERSION 10"
    "  __u32 sample_level_tx@~  __u32 of_a_later_release[3]@\n  __u32 sample_level_tx@"
    "struct cw_psn_tracker {\n~struct cw_psn_tracker {\n  __u64 of_a_later_release@\n"
    "struct cw_flow {\n~struct cw_flow {\n  __u64 of_a_later_release@\n"
    "  __u32 moves@~  __u64 moves@"
    "struct cw_slot {\n~struct cw_slot {\n  __u64 of_a_later_release@\n")
  string(REPLACE "@" ";" change "${change}")
  string(FIND "${change}" "~" middle)
  string(SUBSTRING "${change}" 0 ${middle} before)
  math(EXPR middle "${middle} + 1")
  string(SUBSTRING "${change}" ${middle} -1 after)
  string(FIND "${abi}" "${before}" there)
  if(there EQUAL -1)
    message(FATAL_ERROR "${CW_ABI} has no longer what tests/bpf/other_layout.cmake changes: ${before}")
  endif()
  string(REPLACE "${before}" "${after}" abi "${abi}")
endforeach()
file(WRITE ${CW_OTHER_ABI}.new "${abi}")
file(COPY_FILE ${CW_OTHER_ABI}.new ${CW_OTHER_ABI} ONLY_IF_DIFFERENT)
