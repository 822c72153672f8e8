# The few functions by which every folder declares itself.
#
#   fm_library(NAME DIRS dir... DEPS lib...)      every *.c of the folders, as one static library
#   fm_program(NAME DIRS dir... DEPS lib...)      a program in bin/
#   fm_tests(DIR DEPS lib... [LABELS label...] [SHARED stem...])
#                                                 every tests/DIR/test_*.c is one ctest. SHARED: those that put functions
#                                                 before a shared library's; left out where it is linked statically
#   fm_fuzzers(DEPS lib...)                       every tests/fuzz/fuzz_*.c, its corpus replayed by ctest
#   fm_benches(DEPS lib...)                       every tests/bench/bench_*.c, a program in bench/

set(FM_SANITIZE "" CACHE STRING "sanitizers to build with, comma separated")
option(FM_FUZZ "link fuzz targets with libFuzzer (clang)" OFF)
option(FM_COVERAGE "build with gcov counters" OFF)
option(FM_CUDA "build the CUDA backend (needs nvcc)" OFF)
option(FM_PYTHON "build the extension module of the Python package (position-independent code)" OFF)
option(FM_STATIC "link everything but libc and CUDA's libraries statically" OFF)

add_library(fm_flags INTERFACE)
target_compile_features(fm_flags INTERFACE c_std_11)
target_include_directories(fm_flags INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_definitions(fm_flags INTERFACE _GNU_SOURCE)
# Assertions stay on in release builds: nothing a user sends may reach one, and a broken invariant must not go on.
string(REPLACE "-DNDEBUG" "" CMAKE_C_FLAGS_RELEASE "${CMAKE_C_FLAGS_RELEASE}")
string(REPLACE "-O3" "-O2" CMAKE_C_FLAGS_RELEASE "${CMAKE_C_FLAGS_RELEASE}")
# -Wno-format-truncation: snprintf is used because it cuts; which calls gcc doubts depends on the optimisation level.
# -Wno-maybe-uninitialized: outputs are written whenever FM_OK is returned, which gcc cannot see across files; clang-tidy
# (core.uninitialized) looks for the real ones.
# -ffp-contract=off: the same bits on every machine, whether or not it has fused multiply-add.
target_compile_options(fm_flags INTERFACE $<$<COMPILE_LANGUAGE:C>:-std=c11 -Wall -Wextra -Wpedantic -Wshadow -Werror
    -Wvla $<$<C_COMPILER_ID:GNU>:-Wno-format-truncation;-Wno-maybe-uninitialized> -Wpointer-arith -Wstrict-prototypes -Wmissing-prototypes -ffp-contract=off -fno-math-errno>)
if(FM_SANITIZE)
    target_compile_options(fm_flags INTERFACE -fsanitize=${FM_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_link_options(fm_flags INTERFACE -fsanitize=${FM_SANITIZE})
endif()
if(FM_FUZZ)
    target_compile_options(fm_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(FM_COVERAGE)
    target_compile_options(fm_flags INTERFACE --coverage)
    target_link_options(fm_flags INTERFACE --coverage)
endif()

if(FM_PYTHON)
    set(CMAKE_POSITION_INDEPENDENT_CODE ON)
    set(CMAKE_C_VISIBILITY_PRESET hidden)
endif()

function(fm_sources out)
    set(found)
    foreach(dir ${ARGN})
        file(GLOB here CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${dir}/*.c)
        list(APPEND found ${here})
    endforeach()
    set(${out} ${found} PARENT_SCOPE)
endfunction()

function(fm_library name)
    cmake_parse_arguments(ARG "" "" "DIRS;DEPS" ${ARGN})
    fm_sources(sources ${ARG_DIRS})
    add_library(${name} STATIC ${sources})
    target_link_libraries(${name} PUBLIC fm_flags ${ARG_DEPS})
    # Files named *_avx2.c or *_avx512.c hold one variant each; their callers ask the processor first.
    foreach(source ${sources})
        if(source MATCHES "_avx2\\.c$")
            set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-mavx2")
        elseif(source MATCHES "_avx512\\.c$")
            set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-mavx512f;-mavx512bw;-mavx512vl")
        endif()
    endforeach()
endfunction()

# How CUDA sources are compiled: assertions stay on, warnings are errors, no exceptions.
function(fm_cuda_options target)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20 --extended-lambda -Werror=all-warnings
        -Xcompiler=-Wall,-Wextra,-Werror,-fno-exceptions>)
endfunction()

# CUDA programs of tests/: cuda_check is a ctest that skips (exit status 77) where there is no device; kbench times.
function(fm_cuda_programs)
    cmake_parse_arguments(ARG "" "" "DEPS" ${ARGN})
    foreach(source trainer/cuda/cuda_check kbench/kbench)
        get_filename_component(name ${source} NAME)
        file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${source}*.c ${CMAKE_CURRENT_SOURCE_DIR}/${source}*.cu)
        add_executable(${name} ${sources})
        target_link_libraries(${name} PRIVATE fm_flags ${ARG_DEPS})
        fm_cuda_options(${name})
    endforeach()
    set_target_properties(cuda_check PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    set_target_properties(kbench PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench LINKER_LANGUAGE CUDA)
    target_link_libraries(kbench PRIVATE fm_testing fm_ops)
    add_test(NAME trainer_cuda_check COMMAND cuda_check)
    set_tests_properties(trainer_cuda_check PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600 LABELS trainer)
endfunction()

function(fm_program name)
    cmake_parse_arguments(ARG "" "" "DIRS;DEPS" ${ARGN})
    fm_sources(sources ${ARG_DIRS})
    add_executable(${name} ${sources})
    target_link_libraries(${name} PRIVATE fm_flags ${ARG_DEPS})
endfunction()

function(fm_tests dir)
    cmake_parse_arguments(ARG "" "" "DEPS;LABELS;SHARED" ${ARGN})
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${dir}/test_*.c)
    string(REPLACE "/" "_" prefix ${dir})
    foreach(source ${sources})
        get_filename_component(stem ${source} NAME_WE)
        string(REPLACE "test_" "" stem ${stem})
        set(name ${prefix}_${stem})
        if(FM_STATIC AND stem IN_LIST ARG_SHARED)
            message(STATUS "foldmill: ${name} not built: it needs shared libraries")
            continue()
        endif()
        # test_golden_x.c and test_digests_x.c compare with the reference data and carry that label.
        string(REGEX MATCH "^(golden|digests)" reference ${stem})
        add_executable(${name} ${source})
        set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
        target_link_libraries(${name} PRIVATE fm_flags fm_testing ${ARG_DEPS} PkgConfig::CMOCKA)
        add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
        set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600
            ENVIRONMENT "FM_BIN=${CMAKE_BINARY_DIR}/bin" LABELS "${prefix};${reference};${ARG_LABELS}")
    endforeach()
    # Tests of commands are shell scripts.
    file(GLOB scripts CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${dir}/test_*.sh)
    foreach(script ${scripts})
        get_filename_component(stem ${script} NAME_WE)
        string(REPLACE "test_" "${prefix}_" name ${stem})
        add_test(NAME ${name} COMMAND ${script} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
        set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600
            ENVIRONMENT "FM_BIN=${CMAKE_BINARY_DIR}/bin" LABELS "${prefix};${ARG_LABELS}")
    endforeach()
endfunction()

function(fm_fuzzers)
    cmake_parse_arguments(ARG "" "" "DEPS" ${ARGN})
    file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/fuzz_*.c)
    if(NOT MHD_FOUND)
        list(FILTER sources EXCLUDE REGEX "/fuzz_http\\.c$")
    endif()
    foreach(source ${sources})
        get_filename_component(name ${source} NAME_WE)
        if(FM_FUZZ)
            add_executable(${name} ${source})
            target_link_options(${name} PRIVATE -fsanitize=fuzzer)
        else()
            add_executable(${name} ${source} ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/replay_main.c)
        endif()
        set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
        target_link_libraries(${name} PRIVATE fm_flags ${ARG_DEPS})
        string(REPLACE "fuzz_" "" stem ${name})
        if(NOT FM_FUZZ)
            add_test(NAME ${name}_replay COMMAND ${name} ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus/${stem})
            set_tests_properties(${name}_replay PROPERTIES LABELS fuzz TIMEOUT 600 SKIP_RETURN_CODE 77)
        endif()
    endforeach()
endfunction()

function(fm_benches)
    cmake_parse_arguments(ARG "" "" "DEPS" ${ARGN})
    file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/bench/bench_*.c)
    foreach(source ${sources})
        get_filename_component(name ${source} NAME_WE)
        add_executable(${name} ${source})
        set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
        target_link_libraries(${name} PRIVATE fm_flags fm_testing ${ARG_DEPS})
    endforeach()
endfunction()
