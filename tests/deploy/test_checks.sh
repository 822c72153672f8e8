#!/bin/sh
# test_checks.sh: the checks of deploy/checks/ on small sources and listings. Valid ones pass, and
# each of the others fails. Run in the repository's root.
set -u
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0

# judge NAME STATUS TEXT COMMAND...: runs the command and compares its status and output.
judge() {
    name=$1 wanted=$2 text=$3
    shift 3
    output=$("$@" 2>&1)
    status=$?
    case $output in *"$text"*) says=yes ;; *) says=no ;; esac
    if [ "$status" = "$wanted" ] && [ "$says" = yes ]; then
        echo "$name: ok"
    else
        echo "$name: exit status $status, expected $wanted and '$text' in: $output"
        failures=$((failures + 1))
    fi
}

# expect NAME STATUS TEXT CHECK: the check on $folder/a.c.
expect() { judge "$1" "$2" "$3" "deploy/checks/$4" "$folder/a.c"; }

cat >"$folder/a.c" <<'EOF'
/* fm_strcpy (and my.strcpy) are names of ours; snprintf is fine. */
int f(void) { return fm_strcpy(1) + x->rand() + snprintf(a, 1, "b") + my_atoi (2); }
EOF
expect valid 0 '' banned
echo 'int g(void) { return atoi(text); }' >>"$folder/a.c"
expect banned_call 1 'a.c:3:int g(void)' banned
echo 'void h(void) { x = 1; strcat (a, b); }' >"$folder/a.c"
expect banned_with_space 1 'use snprintf or fm_writer' banned
echo 'int i(void) { struct stat info; return fstat(fd, &info); }' >"$folder/a.c"
expect open_file_may_be_asked 0 '' banned
echo 'bool j(void) { return stat(path, &info) == 0; }' >"$folder/a.c"
expect absence_by_failure 1 'a failure is not absence' banned

function_of() { # LINES in all
    echo 'int f(int a) {'
    i=2
    while [ "$i" -lt "$1" ]; do echo '    if (a) {' && echo '    }' && i=$((i + 2)); done
    echo '}'
}
function_of 70 >"$folder/a.c"
expect long_enough 0 '' sizes
function_of 72 >"$folder/a.c"
expect too_long 1 'a.c:1: function of 72 lines, at most 70' sizes
{ echo 'struct s {' && function_of 72 | sed 's/^/    /' && echo '};'; } >"$folder/a.c"
expect methods 0 '' sizes
yes '/* line */' | head -n 801 >"$folder/a.c"
expect file_too_long 1 'a.c: 801 lines, at most 800' sizes

cat >"$folder/a.c" <<'EOF'
/* a.c: every form that the dialect check accepts.
 *
 * --steps N is an option and no ruler. */
/* -- names */
    if (status || !other) return status;
    if (status == FM_ERR_DATA) {
        fm_log("for (;;) {"); /* status, see fm.h */
    } else {
        other();
    }
    for (int i = 0; i < call(n,
                             m); i++)
        sum += i;
    while (more()) {
        if (status) break;
    }
EOF
expect accepted_forms 0 '' dialect
expect_form() { # NAME TEXT: reads the source from standard input
    cat >"$folder/a.c"
    expect "$1" 1 "$2" dialect
}
expect_form ruler 'a.c:1: a section comment has the form /* -- name */' <<'EOF'
/* ---- names ------------------------------------------------------------- */
EOF
expect_form ruler_below 'a.c:2: a section comment has the form' <<'EOF'
/* -- names
 * ------------------------------------------------------------------------ */
EOF
printf '/* %0101d */\n' 0 >"$folder/a.c"
expect wide_comment 1 'a.c:1: a comment of 107 columns, at most 100' dialect
expect_form compared_with_ok 'a.c:1: test a status bare, not against FM_OK' <<'EOF'
    if (fm_call(a) != FM_OK) return;
EOF
expect_form if_over_two_lines 'a.c:1: braces for an if or else' <<'EOF'
    if (status)
        return status;
EOF
expect_form short_if_with_braces 'a.c:1: one line and no braces' <<'EOF'
    if (status) {
        return status;
    }
EOF
expect_form else_without_braces 'a.c:3: braces for an if or else' <<'EOF'
    if (status) {
        return status;
    } else
        other();
EOF
expect_form loop_with_braces 'a.c:1: no braces for a loop' <<'EOF'
    for (int i = 0; i < n; i++) {
        sum += i;
    }
EOF

# The algorithms check, in a repository of one file that has line 1 of every algorithm.
check=$PWD/deploy/checks/algorithms
git init -q "$folder/tree"
mkdir -p "$folder/tree/docs/reference" "$folder/tree/trainer/ops" "$folder/tree/trainer/backend/cuda"
pages=$folder/tree/docs/reference/algorithms.md
for a in $(seq 2 32); do
    echo "| $a Name | \`trainer/ops/a.c\` | 1 |"
done >"$pages"
seq 2 32 | sed 's|.*|/* A&:1 */|' >"$folder/tree/trainer/ops/a.c"
expect_marks() { judge "$1" "$2" "$3" env -C "$folder/tree" "$check"; } # NAME STATUS TEXT
expect_marks marks 0 ''
echo '/* A7:1 */' >"$folder/tree/trainer/backend/cuda/a.cu"
expect_marks marks_repeated_by_a_kernel 0 ''
echo '/* A7:2-3 */' >>"$folder/tree/trainer/ops/a.c"
expect_marks mark_not_listed 1 'trainer/ops/a.c: mark A7:2-3 is not listed in docs/reference/algorithms.md'
echo "| 7 Name | \`trainer/ops/\` | 2-3, 4 |" >>"$pages"
expect_marks mark_not_there 1 'docs/reference/algorithms.md:32: A7:4 is listed, but trainer/ops/ has no such mark'
sed -i '/^| 30 /d' "$pages"
expect_marks algorithm_not_listed 1 'algorithm 30 is not listed'

# The rooms of CUDA sources.
echo '#include "trainer/backend/cuda/hopper/hopper.cuh"' >"$folder/a.c"
echo '/* wgmma, mbarrier */ asm volatile("mma.sync.aligned;");' >>"$folder/a.c"
expect portable_source 0 '' rooms
echo '#include "trainer/backend/cuda/hopper/core/wgmma.cuh"' >"$folder/a.c"
expect past_the_door 1 'a.c:1: includes trainer/backend/cuda/hopper/core/wgmma.cuh' rooms
echo 'asm volatile("wgmma.fence.sync.aligned;" ::: "memory");' >"$folder/a.c"
expect instruction_of_hopper 1 'a.c:1: wgmma needs compute capability 9.0' rooms
echo '#if __CUDA_ARCH__ >= 900' >"$folder/a.c"
expect looks_at_architecture 1 'a.c:1: looks at __CUDA_ARCH__' rooms

# The check of machine code, with a program in cuobjdump's place that lists a library of three kernels.
cat >"$folder/cuobjdump" <<'EOF'
#!/bin/sh
member() { echo "member lib.a:$1.cu.o:"; }
image() { printf 'arch = %s\n Function %s:\n  REG:40 STACK:%s SHARED:0\n' "$1" "$2" "$3"; }
case $1 in
-res-usage)
    member a && image sm_80 plain "$STACK" && image sm_90 plain 0
    [ -n "${WITHOUT:-}" ] || image sm_80 other 0
    image sm_90 other 0
    member b && image sm_90a group 0 ;;
-sass)
    member a && printf 'Function : plain\n HMMA.16816.F32 R1\nFunction : other\n'
    member b && printf 'Function : group\n HGMMA R1\n' ;;
-ptx)
    member a && echo '.visible .entry plain('
    [ -z "${WAITS:-}" ] || echo 'griddepcontrol.wait;' ;;
esac
EOF
chmod +x "$folder/cuobjdump"
printf 'stack 8 sm_80 plain\ntensor plain|group\nearly plain # launched early\n' >"$folder/rules"
expect_code() { # NAME STATUS TEXT VARIABLE...
    name=$1 wanted=$2 text=$3
    shift 3
    judge "$name" "$wanted" "$text" env "$@" deploy/checks/kernels "$folder/cuobjdump" lib.a "$folder/rules"
}
expect_code code 0 'kernels: 3 in all, 2 of them for sm_80, sm_90; 1 with a stack, 0 against' STACK=8 WAITS=1
expect_code code_spills 1 'sm_80 plain: 16 bytes on the stack, at most 8' STACK=16 WAITS=1
expect_code code_does_not_wait 1 'plain: launched early, but does not wait' STACK=8
expect_code code_is_missing 1 'other: no code for sm_80' STACK=8 WAITS=1 WITHOUT=1
echo 'tensor other' >>"$folder/rules"
expect_code code_without_products 1 'sm_80 other: no tensor core instruction' STACK=8 WAITS=1
echo 'stack 8 nothing' >>"$folder/rules"
expect_code rule_without_kernel 1 "no kernel matches 'nothing'" STACK=8 WAITS=1

# The docs check, in a repository of one page, one source and one test.
check=$PWD/deploy/checks/docs
pages=$folder/pages
git init -q "$pages"
mkdir -p "$pages/docs" "$pages/proto" "$pages/tests/proto"
printf '#!/bin/sh\necho "  build  builds"\n' >"$pages/run"
chmod +x "$pages/run"
echo '/* a.c: a source. */ int fm_known;' >"$pages/proto/a.c"
echo '/* test_a.c: a test. */' >"$pages/tests/proto/test_a.c"
echo '[page](docs/a.md)' >"$pages/README.md"
expect_page() { # NAME STATUS TEXT PAGE
    printf '%s\n' "$4" >"$pages/docs/a.md"
    judge "$1" "$2" "$3" env -C "$pages" "$check"
}
# shellcheck disable=SC2016 # backticks are Markdown's
{
    expect_page names 0 '' '`proto/a.c`, `fm_known()`, `proto_a`, `proto_`, `./run build`'
    expect_page unknown_file 1 "docs/a.md:1: names 'proto/b.c', which does not exist" '`proto/b.c`'
    expect_page unknown_identifier 1 "names 'fm_gone()', which neither" '`fm_gone()`'
    expect_page unknown_test 1 "names 'proto_b', which neither" '`proto_b`'
    expect_page unknown_command 1 "'./run fly' is no command of ./run" '`./run fly`'
    expect_page unknown_heading 1 'but the page has no such heading' '[here](#nowhere)'
}

[ "$failures" = 0 ]
