#!/bin/sh
# test_checks.sh: the banned and sizes checks on small sources, one lawful, the others not. Run in the
# repository's root.
set -u
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0

# expect NAME STATUS TEXT CHECK: the check's verdict on $folder/a.c, which is read from standard input.
expect() {
    output=$("deploy/checks/$4" "$folder/a.c" 2>&1)
    status=$?
    case $output in *"$3"*) says=yes ;; *) says=no ;; esac
    if [ "$status" = "$2" ] && [ "$says" = yes ]; then
        echo "$1: ok"
    else
        echo "$1: exit status $status, expected $2 and '$3' in: $output"
        failures=$((failures + 1))
    fi
}

cat >"$folder/a.c" <<'EOF'
/* fm_strcpy (and my.strcpy) are names of ours; snprintf is fine. */
int f(void) { return fm_strcpy(1) + x->rand() + snprintf(a, 1, "b") + my_atoi (2); }
EOF
expect lawful 0 '' banned
echo 'int g(void) { return atoi(text); }' >>"$folder/a.c"
expect banned_call 1 'a.c:3:int g(void)' banned
echo 'void h(void) { x = 1; strcat (a, b); }' >"$folder/a.c"
expect banned_with_space 1 'use snprintf or fm_writer' banned

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

[ "$failures" = 0 ]
