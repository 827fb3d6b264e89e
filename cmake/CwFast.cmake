# SPDX-License-Identifier: Apache-2.0
# What is on this machine and makes builds faster: ccache, and mold or lld.

# All clones and worktrees of one user share what was compiled: paths below the source folder count as relative ones.
find_program(CW_CCACHE ccache)
if(CW_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(launcher ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 CCACHE_DEPEND=1 CCACHE_SLOPPINESS=pch_defines,time_macros ${CW_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)  # ccache cannot see through gcc's headers without it
  endif()
endif()

find_program(CW_LINKER NAMES mold ld.lld)
if(CW_LINKER MATCHES mold)
  add_link_options(-fuse-ld=mold)
elseif(CW_LINKER)
  add_link_options(-fuse-ld=lld)
endif()

# In a batch gcc takes the batch for the main file, and so every type of an anonymous namespace in it for one of a header.
add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
