# find_package(Galvatron): Galvatron::grt, the runtime with its headers <grt/...>,
# and GALVATRON_BIN, the folder of the tools that are installed beside it.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
include(${CMAKE_CURRENT_LIST_DIR}/GalvatronTargets.cmake)
get_filename_component(GALVATRON_BIN "${CMAKE_CURRENT_LIST_DIR}/../../../bin"
  ABSOLUTE)
