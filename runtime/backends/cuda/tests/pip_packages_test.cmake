# cmake -DFOLDER=SCRATCH -P pip_packages_test.cmake: headers are found where pip
# puts them, by path order and name, and nothing else is.
include(${CMAKE_CURRENT_LIST_DIR}/../../../cmake/PipPackages.cmake)
file(REMOVE_RECURSE ${FOLDER})
foreach(header site1/nvidia/nccl/include/nccl.h
    site2/nvidia/cudnn/include/cudnn_graph.h site2/nvidia/nccl/include/nccl.h
    site2/other/include/nccl.h)
  file(WRITE ${FOLDER}/${header} "\n")
endforeach()
file(MAKE_DIRECTORY ${FOLDER}/site1/nvidia/cublas/lib)
set(ENV{PYTHONPATH} "${FOLDER}/site1:${FOLDER}/site2")
function(expect kind)
  grt_pip_folders(found ${kind})
  list(FILTER found INCLUDE REGEX "^${FOLDER}/")
  list(TRANSFORM ARGN PREPEND "${FOLDER}/")
  if(NOT "${found}" STREQUAL "${ARGN}")
    message(FATAL_ERROR "${kind}: expected '${ARGN}', found '${found}'")
  endif()
endfunction()
expect(include site1/nvidia/nccl/include site2/nvidia/cudnn/include
  site2/nvidia/nccl/include)
expect(lib site1/nvidia/cublas/lib)
find_path(nccl nccl.h PATHS ${FOLDER}/site1/nvidia/nccl/include
  NO_DEFAULT_PATH REQUIRED)
set(ENV{PYTHONPATH} "${FOLDER}/empty")
expect(include)
