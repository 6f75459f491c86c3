# install_tool_pages(TOOL...): manual pages and completions of tools, made when
# they are installed, from what they print.
find_package(Python3 COMPONENTS Interpreter)
function(install_tool_pages)
  if(NOT Python3_FOUND)
    message(STATUS "python3: not found, no manual pages and completions")
    return()
  endif()
  foreach(tool ${ARGN})
    install(CODE "
      execute_process(
        COMMAND \"${Python3_EXECUTABLE}\"
          \"${CMAKE_CURRENT_FUNCTION_LIST_DIR}/tool_pages.py\"
          \"--out=\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/share\"
          \"$<TARGET_FILE:${tool}>\"
        COMMAND_ERROR_IS_FATAL ANY)")
  endforeach()
endfunction()
