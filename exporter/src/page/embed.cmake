# Writes a source file that holds a page: cmake -DPAGE=status.html -DSOURCE=status_page.cpp -P embed.cmake
# A line "INCLUDE FILE" stands for that file, which lies beside the page.
file(READ "${PAGE}" content)
get_filename_component(folder "${PAGE}" DIRECTORY)
string(REGEX MATCHALL "INCLUDE [a-z]+\\.[a-z]+\n" includes "${content}")
foreach(line IN LISTS includes)
  string(REGEX REPLACE "INCLUDE (.*)\n" "\\1" name "${line}")
  file(READ "${folder}/${name}" part)
  string(REPLACE "${line}" "${part}" content "${content}")
endforeach()
string(FIND "${content}" ")page\"" found)
if(NOT found EQUAL -1)
  message(FATAL_ERROR "${PAGE} contains )page\", which ends the literal that it becomes")
endif()
file(WRITE "${SOURCE}.new" "// Generated from page/status.html by page/embed.cmake.
#include \"page.hpp\"

namespace headroom::exporter {

std::string_view status_page_source() noexcept {
  static constexpr std::string_view kPage = R\"page(")
file(APPEND "${SOURCE}.new" "${content}")
file(APPEND "${SOURCE}.new" ")page\";
  return kPage;
}

}  // namespace headroom::exporter
")
file(RENAME "${SOURCE}.new" "${SOURCE}")
