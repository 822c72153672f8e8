#!/bin/sh
# check.sh [--programs DIR] [--seconds N] [OUT]: checks and times the CUDA backend on a GPU machine in one
# command, within N seconds (300) after building.
#
# Without --programs it builds cuda_check and kbench here, with nothing but nvcc, gcc, OpenBLAS and cuBLASLt,
# and runs them. DIR is the build folder of the preset static, or a folder with its programs cuda_check, kbench,
# comm_check, model_parity, model_parity_full and bench_step, copied from another machine; those that exist are run. They
# need libc, the driver and cuBLASLt (LD_LIBRARY_PATH). Parity reads $FM_REFERENCE_DATA.
#
# A row is printed when a check ends. Full outputs, which grow as the checks run, and kbench.json go to OUT
# (build/gpu). A check that runs out of time is ended and counts as failed; one that gets no time is listed.
# Exit status: 0 everything that ran passed, 1 something failed, 2 the build failed, 77 no usable device.
set -u
programs='' seconds=300
while [ $# -gt 0 ]; do
    case $1 in
    --programs | --seconds) [ $# -ge 2 ] || { echo "check.sh: $1 needs a value" >&2 && exit 2; } ;;
    esac
    case $1 in
    --programs) programs=$2 && shift 2 ;;
    --seconds) seconds=$2 && shift 2 ;;
    -h | --help) sed -n '2,14s/^# \{0,1\}//p' "$0" && exit 0 ;;
    -*) echo "check.sh: no option '$1'" >&2 && exit 2 ;;
    *) break ;;
    esac
done
case $seconds in
'' | *[!0-9]*) echo "check.sh: --seconds: found '$seconds', expected a whole number" >&2 && exit 2 ;;
esac
out=${1:-build/gpu}
mkdir -p "$out" || exit 2

build() {
    nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
    cuda_lib=${CUDA_LIB:-$(dirname "$(dirname "$(readlink -f "$nvcc")")")/lib64}
    blas=$(pkg-config --cflags openblas 2>/dev/null)
    c_flags="-std=c11 -D_GNU_SOURCE -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math -I. $blas"
    cuda_flags="-std=c++20 --extended-lambda -O3 -D_GNU_SOURCE -I. -DFM_CUDA_HOPPER"
    portable_flags="-gencode=arch=compute_90,code=sm_90"
    hopper_flags="-gencode=arch=compute_90a,code=sm_90a"
    helpers="$(echo proto/base/arena.c proto/base/options.c proto/base/status.c proto/base/utf8.c trainer/tensor/*.c \
        trainer/autograd/*.c trainer/ops/*.c tests/testing/watchdog.c tests/kbench/kbench*.c)"
    cuda_sources="$(echo trainer/backend/cuda/*/*.cu trainer/backend/cuda/hopper/*/*.cu | sed 's|[^ ]*/hopper/none.cu||')"
    # One object for each source: the name says its folders and the compiler.
    {
        for source in trainer/backend/*.c trainer/backend/cpu/*.c $helpers; do
            case $source in *_avx2.c) avx=-mavx2 ;; *) avx= ;; esac
            echo "gcc $c_flags $avx -c $source -o $(object_of "$source")"
        done
        for source in $cuda_sources tests/trainer/cuda/cuda_check*.cu tests/kbench/kbench*.cu; do
            case $source in */hopper/* | *_wgmma.cu) code=$hopper_flags ;; *) code=$portable_flags ;; esac
            case $source in */kernel_set.cu) code="$code -DFM_CUDA_BUILT='\"9.0\"'" ;; esac
            echo "$nvcc $cuda_flags $code -c $source -o $(object_of "$source")"
        done
    } >"$out/commands"
    xargs -d '\n' -P "$(nproc)" -I{} sh -c '{}' <"$out/commands" >"$out/build.log" 2>&1 || {
        cat "$out/build.log" >&2
        exit 2
    }
    parts=
    for source in trainer/backend/*.c trainer/backend/cpu/*.c $cuda_sources $helpers; do
        parts="$parts $(object_of "$source")"
    done
    libraries="-lopenblas -lcudart_static -lcublasLt -lpthread -ldl -lrt -lm"
    for program in cuda_check kbench; do
        own=$parts
        [ "$program" = kbench ] || own=$(echo "$parts" | sed "s|$out/[a-z_]*kbench[a-z_]*\.c\.o||g")
        # shellcheck disable=SC2086
        g++ "$out"/tests_*_"$program"*.cu.o $own -o "$out/$program" -L"$cuda_lib" -Wl,-rpath,"$cuda_lib" $libraries || exit 2
    done
    programs=$out
}

object_of() { echo "$out/$(echo "$1" | tr / _).o"; } # SOURCE

find_program() { # NAME: its path
    for folder in "$programs" "$programs/tests" "$programs/bench"; do
        [ -f "$folder/$1" ] && [ -x "$folder/$1" ] && echo "$folder/$1" && return 0
    done
    return 1
}

left() { echo $((seconds - $(date +%s) + start)); }

row() { printf '%-26s %-8s %5s s  %s\n' "$@"; }

# NAME PATTERN PROGRAM [ARGUMENT...]: runs the program in the time that is left. The text of its row is the last
# line of its output that matches PATTERN.
check() {
    name=$1 pattern=$2 began=$(date +%s)
    shift 2
    program=$(find_program "$1") || return 0
    shift
    if [ "$(left)" -lt 2 ]; then
        row "$name" "not run" 0 "no time left"
        return 0
    fi
    file="$out/$(echo "$name" | tr ' /' '__').txt"
    timeout -k 5 "$(left)" "$program" "$@" >"$file" 2>&1
    rc=$?
    case $rc in
    0) verdict=ok ;;
    77) verdict=skipped ;;
    124 | 137) verdict=LATE ;;
    *) verdict=FAILED ;;
    esac
    row "$name" "$verdict" $(($(date +%s) - began)) "$(grep -E "$pattern" "$file" | tail -n 1 | cut -c 1-120)"
    [ "$rc" = 0 ] || [ "$rc" = 77 ] || { status=1 && grep -E 'FAIL|WRONG|error' "$file" | head -n 5; }
    return 0
}

# Three runs of four steps at the fine-tuning shape must end with the same bits; one starts on memory full of NaN.
same_bits() {
    program=$(find_program bench_step) || return 0
    if [ "$(left)" -lt 30 ]; then
        row "same bits" "not run" 0 "no time left"
        return 0
    fi
    began=$(date +%s) file="$out/same_bits.txt" limit=$(($(left) / 3))
    for spoil in '' '' --spoil; do
        # shellcheck disable=SC2086 # none, or an option
        timeout -k 5 "$limit" "$program" --device cuda --dtype bf16 --preset af2-finetuning --cycles 1 --rounds 1 \
            --steps 2 --warm-up 2 --digest $spoil 2>&1
    done >"$file"
    if [ "$(grep -c '^digest' "$file")" = 3 ] && [ "$(grep '^digest' "$file" | sort -u | wc -l)" = 1 ]; then
        row "same bits" ok $(($(date +%s) - began)) "$(grep '^digest' "$file" | head -n 1)"
    else
        row "same bits" FAILED $(($(date +%s) - began)) "$(grep -E '^digest|bench_step:' "$file" | tail -n 1)"
        status=1
    fi
}

[ -n "$programs" ] || build
start=$(date +%s) status=0
check "cuda_check" '^cuda_check: ' cuda_check
[ "$status" = 1 ] || ! grep -q '^cuda_check: skipped' "$out/cuda_check.txt" 2>/dev/null || exit 77
for run in af2 opm_first af2_rec3 af2_masks; do
    check "parity $run" '.' model_parity --device cuda "model/${run}_config.json" "model/$run.npz"
done
check "exchanges, 2 GPUs" '^comm_check: ' comm_check
check "exchanges, NCCL" '^comm_check: ' comm_check --backend nccl --skip-times
check "a rank is killed" '^comm_check: ' comm_check --kill
check "parity af2, 2 GPUs" '.' model_parity --device cuda --dap 2 model/af2_config.json model/af2.npz
check "parity full" '.' model_parity_full --device cuda
check "parity full bf16" '.' model_parity_full --device cuda --dtype bf16
check "step bf16" '^mean step' bench_step --device cuda --dtype bf16 --preset af2-initial --table
check "step bf16, 2 GPUs" '^mean step' bench_step --device cuda --dtype bf16 --preset af2-initial --ranks 2 --dap 2
same_bits
# The portable kernels in the place of the device's own, then with the shared memory and the number of
# multiprocessors of an RTX card.
export FM_CUDA_KERNELS=portable
for run in af2 opm_first af2_rec3 af2_masks; do
    check "portable, parity $run" '.' model_parity --device cuda "model/${run}_config.json" "model/$run.npz"
done
check "portable, parity bf16" '.' model_parity_full --device cuda --dtype bf16
check "portable, step bf16" '^mean step' bench_step --device cuda --dtype bf16 --preset af2-initial
check "portable, cuda_check" '^cuda_check: ' cuda_check bf16
FM_CUDA_SHARED=101376 FM_CUDA_BLOCKS=68
export FM_CUDA_SHARED FM_CUDA_BLOCKS
check "RTX card, cuda_check" '^cuda_check: ' cuda_check bf16 attention
unset FM_CUDA_KERNELS FM_CUDA_SHARED FM_CUDA_BLOCKS
# kbench gets most of the time that is left, so that the table is printed even if its last case hangs.
rest=$(left)
check "kbench" '^kbench: [0-9]+ ok' kbench --json "$out/kbench.json" --seconds $((rest * 6 / 10 + 1)) \
    --case-seconds $((rest * 3 / 10 > 30 ? 30 : rest * 3 / 10 + 1))
[ ! -f "$out/kbench.txt" ] || sed -n '/^$/,$p' "$out/kbench.txt"
exit "$status"
