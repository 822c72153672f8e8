# Which GPUs the CUDA backend is compiled for.
#
#   FM_CUDA_ARCHS                    the list, as nvcc names them without "sm_"; 90a stands for H100 and H200 with the
#                                    kernels of trainer/backend/cuda/hopper/
#   FM_CUDA_HOPPER                   whether 90a is among them
#   FM_CUDA_BUILT                    the list in words, for messages
#   fm_cuda_portable(TARGET)         compiles the CUDA sources of a target for all of them
#   fm_cuda_hopper(TARGET)           compiles them for 9.0a alone
#
# Portable kernels are compiled in two code generations: compute_80 for devices of 8.x, and compute_90 for all later
# ones, with PTX of compute_90 for those that are newer than the list. So all code that a device of 9.0 or later gets
# waits for the kernel before it (core/early.cuh), and no other code does.
set(FM_CUDA_ARCHS "80;86;89;90a;100;120" CACHE STRING "GPUs to compile CUDA kernels for")

# Checks FM_CUDA_ARCHS against what nvcc knows, and sets FM_CUDA_HOPPER, FM_CUDA_BUILT and FM_CUDA_PORTABLE_FLAGS.
macro(fm_read_cuda_archs)
    execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --list-gpu-code OUTPUT_VARIABLE fm_known_archs
        OUTPUT_STRIP_TRAILING_WHITESPACE)
    string(REGEX MATCHALL "[0-9]+" fm_known_archs "${fm_known_archs}")
    list(FILTER fm_known_archs EXCLUDE REGEX "^[1-7].$") # no kernels run there
    set(FM_CUDA_HOPPER OFF)
    set(fm_early "")
    set(fm_late "")
    set(fm_words "")
    foreach(arch ${FM_CUDA_ARCHS})
        string(REGEX REPLACE "^90a$" "90" number "${arch}")
        if(NOT number IN_LIST fm_known_archs)
            list(JOIN fm_known_archs ", " fm_known_archs)
            message(FATAL_ERROR "FM_CUDA_ARCHS: found '${arch}', expected some of 90a, ${fm_known_archs}")
        endif()
        if(arch STREQUAL "90a")
            set(FM_CUDA_HOPPER ON)
        endif()
        if(number LESS 90)
            list(APPEND fm_early "sm_${number}")
        else()
            list(APPEND fm_late "sm_${number}")
        endif()
        string(REGEX REPLACE "(.)$" ".\\1" words "${number}")
        list(APPEND fm_words "${words}")
    endforeach()
    if(NOT fm_words)
        message(FATAL_ERROR "FM_CUDA_ARCHS is empty: the kernels need at least one kind of GPU, such as 90a")
    endif()
    list(JOIN fm_words ", " FM_CUDA_BUILT)
    set(FM_CUDA_PORTABLE_FLAGS "")
    if(fm_early)
        list(JOIN fm_early "," fm_early)
        list(APPEND FM_CUDA_PORTABLE_FLAGS "SHELL:-gencode arch=compute_80,code=[${fm_early}]")
    endif()
    if(fm_late)
        list(JOIN fm_late "," fm_late)
        list(APPEND FM_CUDA_PORTABLE_FLAGS "SHELL:-gencode arch=compute_90,code=[${fm_late},compute_90]")
    endif()
endmacro()

function(fm_cuda_portable target)
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:${FM_CUDA_PORTABLE_FLAGS}>")
    fm_cuda_options(${target})
endfunction()

function(fm_cuda_hopper target)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:SHELL:-gencode arch=compute_90a,code=sm_90a>)
    fm_cuda_options(${target})
endfunction()

# How all CUDA sources are compiled: assertions stay on, warnings are errors, no exceptions. Compressed kernels are a
# fifth of the size; the driver unpacks those that a program loads.
function(fm_cuda_options target)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20 --extended-lambda
        --compress-mode=size -Werror=all-warnings -Xcompiler=-Wall,-Wextra,-Werror,-fno-exceptions>)
endfunction()
