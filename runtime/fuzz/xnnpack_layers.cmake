# Read by XNNPACK's own CMakeLists.txt after its project() (CMAKE_PROJECT_XNNPACK_INCLUDE): one more library, of all that
# XNNPACK is made of but its microkernels. Compiled with sanitizers, it replaces libXNNPACK.a in the fuzzer; the
# microkernels stay those of the ordinary package, since they read past ends by design (XNN_OOB_READS).
find_package(pthreadpool CONFIG REQUIRED)
find_package(cpuinfo CONFIG REQUIRED)
find_package(fxdiv CONFIG REQUIRED)

function(slipway_layers)
  set(parts allocator cache datatype hardware-config indirection logging memory microkernel-utils microparams-init mutex
            normalization operator-run operator-utils operators packing reference-ukernels subgraph)
  set(objects)
  foreach(part ${parts})
    target_compile_options(${part} PRIVATE ${SLIPWAY_LAYERS_FLAGS})
    # What only links a library does not get the include folders of that one's own dependencies.
    target_include_directories(${part} PRIVATE ${CPUINFO_SOURCE_DIR}/include)
    list(APPEND objects $<TARGET_OBJECTS:${part}>)
  endforeach()
  add_library(xnnpack_layers STATIC EXCLUDE_FROM_ALL ${XNNPACK_SRCS} ${objects})
  target_compile_options(xnnpack_layers PRIVATE ${SLIPWAY_LAYERS_FLAGS})
  target_include_directories(xnnpack_layers PRIVATE include src ${CPUINFO_SOURCE_DIR}/include)
  target_link_libraries(xnnpack_layers PRIVATE xnnpack-base logging cpuinfo fxdiv)
endfunction()

# At the end of XNNPACK's file, when its own targets are there.
cmake_language(DEFER CALL slipway_layers)
