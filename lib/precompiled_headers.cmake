# Headers of others only: a change of ours recompiles what includes it and nothing else. Sources include all they use all the same,
# which a build without this option shows (release).
# headroom_precompiled(NAME HEADER…) precompiles into a target NAME; headroom_precompile(TARGET NAME) uses it where the option is on.
function(headroom_precompiled name)
  if(NOT HEADROOM_PRECOMPILED_HEADERS)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 given "PIC" "" "LIBRARIES;HEADERS")
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp "// An empty source: what is wanted is the header that is precompiled for it.\n")
  add_library(${name} OBJECT ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
  target_link_libraries(${name} PRIVATE headroom_options Threads::Threads ${given_LIBRARIES})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ${given_PIC})
  target_precompile_headers(${name} PRIVATE
    <algorithm> <array> <atomic> <bit> <cerrno> <charconv> <chrono> <cmath> <condition_variable> <cstddef> <cstdint> <cstdio> <cstdlib>
    <cstring> <deque> <exception> <filesystem> <fstream> <functional> <iostream> <iterator> <limits> <map> <memory> <mutex> <new>
    <numeric> <optional> <set> <source_location> <span> <sstream> <string> <string_view> <system_error> <thread> <tuple>
    <unordered_map> <utility> <vector> ${given_HEADERS})
endfunction()
function(headroom_precompile target name)
  if(HEADROOM_PRECOMPILED_HEADERS)
    target_precompile_headers(${target} REUSE_FROM ${name})
    # g++ 12 takes the standard library's code for ours when it comes precompiled, and then warns of what std::string is said to do.
    # A release, without precompiled headers, has these warnings as errors.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds -Wno-restrict -Wno-stringop-overflow>)
  endif()
endfunction()
