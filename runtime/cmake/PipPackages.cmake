# Folders of NVIDIA's Python packages. `pip install nvidia-nccl-cu13` and the
# like put headers and libraries into <site-packages>/nvidia/<package>/include
# and lib, where neither compilers nor the loader look.

# grt_pip_folders(RESULT KIND): those named KIND that exist, for the python3 that
# is found first; in the order of its path, then by name. Empty without Python.
function(grt_pip_folders result kind)
  set(folders)
  find_program(GRT_PYTHON python3)
  mark_as_advanced(GRT_PYTHON)
  if(GRT_PYTHON)
    execute_process(
      COMMAND ${GRT_PYTHON} -c
        "import sys; print(';'.join(dict.fromkeys(p for p in sys.path if p)), end='')"
      OUTPUT_VARIABLE sites ERROR_QUIET RESULT_VARIABLE failed)
    if(NOT failed)
      foreach(site IN LISTS sites)
        file(GLOB found LIST_DIRECTORIES true "${site}/nvidia/*/${kind}")
        list(SORT found)
        list(APPEND folders ${found})
      endforeach()
    endif()
  endif()
  set(${result} ${folders} PARENT_SCOPE)
endfunction()
