#!/bin/sh
# check.sh [OUT]: builds, checks and times the CUDA backend on a GPU machine that has nvcc, gcc, OpenBLAS
# and cuBLASLt but none of foldmill's other libraries. Run in the repository's root. Objects, programs and
# whole outputs go to OUT (build/gpu); printed are failures, the check's last line and the bench's table.
# Exit status: that of the check; 77 where there is no device.
set -u
out=${1:-build/gpu}
mkdir -p "$out" || exit 2
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
cuda_lib=${CUDA_LIB:-$(dirname "$(dirname "$(readlink -f "$nvcc")")")/lib64}
blas=$(pkg-config --cflags openblas 2>/dev/null)
c_flags="-std=c11 -D_GNU_SOURCE -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math -I. $blas"
cuda_flags="-std=c++20 --extended-lambda -gencode=arch=compute_90a,code=sm_90a -O3 -D_GNU_SOURCE -I."

# One object for each source: the name says the compiler.
{
    for source in trainer/backend/cpu/*.c; do
        case $source in *_avx2.c) avx=-mavx2 ;; *) avx= ;; esac
        echo "gcc $c_flags $avx -c $source -o $out/$(basename "$source").o"
    done
    for source in trainer/backend/cuda/*.cu tests/trainer/cuda_check*.cu tests/bench/bench_cuda*.cu; do
        echo "$nvcc $cuda_flags -c $source -o $out/$(basename "$source").o"
    done
} >"$out/commands"
xargs -P "$(nproc)" -I{} sh -c '{}' <"$out/commands" >"$out/build.log" 2>&1 || {
    cat "$out/build.log" >&2
    exit 2
}

libraries="-lopenblas -lcudart_static -lcublasLt -lpthread -ldl -lrt -lm"
parts=
for source in trainer/backend/cpu/*.c trainer/backend/cuda/*.cu; do
    parts="$parts $out/$(basename "$source").o"
done
for program in cuda_check bench_cuda; do
    # shellcheck disable=SC2086
    g++ "$out/$program"*.cu.o $parts -o "$out/$program" -L"$cuda_lib" -Wl,-rpath,"$cuda_lib" $libraries || exit 2
done

"$out/cuda_check" >"$out/check.txt" 2>&1
status=$?
grep FAIL "$out/check.txt"
tail -n 1 "$out/check.txt"
[ "$status" = 77 ] && exit 77
"$out/bench_cuda" >"$out/bench.txt" 2>&1
cat "$out/bench.txt"
exit "$status"
