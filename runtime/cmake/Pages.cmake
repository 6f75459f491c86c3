# Pages whose code tests compile and run as it stands there.

# grt_page(PAGE): puts the code of docs/extend/PAGE.md where the page says, below
# the folder GRT_PAGE (docs/blocks). CMake runs again when the page changes, or a
# file that it adds to.
function(grt_page page)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  get_filename_component(top ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../.. ABSOLUTE)
  set(folder ${CMAKE_BINARY_DIR}/pages/${page})
  execute_process(
    COMMAND ${Python3_EXECUTABLE} ${top}/docs/blocks
      ${top}/docs/extend/${page}.md ${top} ${folder}
    OUTPUT_VARIABLE lines COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "read [^\n]+" read "${lines}")
  list(TRANSFORM read REPLACE "^read " "")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
    ${read} ${top}/docs/blocks)
  set(GRT_PAGE ${folder} PARENT_SCOPE)
endfunction()
