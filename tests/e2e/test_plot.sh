#!/bin/bash
# `foldmill plot` as a user runs it: what is in the pictures of runs whose numbers are known, PNG
# files, and what is refused.
. "$(dirname "$0")/expect.sh"

[ ! -w /dev/shm ] || export TMPDIR="${TMPDIR:-/dev/shm}"

# Runs of known numbers: the loss falls from 100 in steps of 1, the speed is 4 and 5 steps per second. The script look.py
# prints the curves of a picture in numbers:
#
#     PANEL COLOUR KIND N X0,Y0 ... X1,Y1   of a curve, in units of the axes
#     dots PANEL COLOUR N
#     text WORDS                            every text
set_up() {
    make_run a-1 50 0.2
    make_run a-2 50 0.2
    make_run b 40 0.25
    for step in 0 25 50; do
        echo "{\"step\":$step,\"loss\":$((120 - step)),\"lddt_ca\":0.$((step + 10))}"
    done >a-1/eval.jsonl
    cat >look.py <<'END'
import re, sys, xml.dom.minidom
page = xml.dom.minidom.parse(sys.argv[1]).documentElement
def number(s):
    return float(s.replace(',', ''))
labels = [(float(t.getAttribute('x')), float(t.getAttribute('y')), t.firstChild.data,
           t.getAttribute('text-anchor')) for t in page.getElementsByTagName('text')]
for t in labels: print('text', t[2])
for n, group in enumerate(page.getElementsByTagName('g')):
    box = page.getElementsByTagName('clipPath')[n].getElementsByTagName('rect')[0]
    left, top, width, height = (float(box.getAttribute(k)) for k in ('x', 'y', 'width', 'height'))
    def scale(which, keep):
        ticks = [(t[which], number(t[2])) for t in labels if keep(t)]
        (p, u), (q, v) = ticks[0], ticks[-1]
        return lambda at: u + (v - u) * (at - p) / (q - p)
    inside = lambda t: top - 9 < t[1] < top + height + 9
    y_of = scale(1, lambda t: t[3] == 'end' and left - 60 < t[0] < left and inside(t))
    x_of = scale(0, lambda t: t[3] == 'middle' and left - 9 < t[0] < left + width + 9 and
                 abs(t[1] - top - height - 13) < 2)
    title = [t[2] for t in labels if t[3] == 'start' and abs(t[0] - left - 5) < 1 and
             abs(t[1] - top + 7) < 1][0]
    for path in group.getElementsByTagName('path'):
        at = re.findall(r'[ML](\S+) ([^ML]+)', path.getAttribute('d'))
        if path.getAttribute('fill') or len(at) < 2: continue
        kind = 'pale' if path.getAttribute('stroke-opacity') else 'line'
        ends = ['%.0f,%.1f' % (x_of(float(x)), y_of(float(y) + 4)) for x, y in (at[0], at[-1])]
        print(title, path.getAttribute('stroke'), kind, len(at), *ends)
    dots = group.getElementsByTagName('circle')
    if dots: print('dots', title, dots[0].getAttribute('fill'), len(dots))
END
}

make_run() { # NAME STEPS SECONDS
    mkdir $1
    for i in $(seq $2); do
        printf '{"step":%d,"index":%d,"sample":"x","loss":%d,"fape":%d,"learning_rate":0.001,"step_s":%s}\n' \
            $i $i $((100 - i)) $((i + 10)) $3
    done >$1/metrics.jsonl
}

# A line of the picture's description matches the whole extended regular expression.
shows() { # PATTERN
    grep -qxE "$1" shown && return
    cat shown >&9
    complain "the picture has no $1"
}

curves_are_at_their_numbers() {
    foldmill plot a-1 b --out p.svg --smooth 1 --terms
    python3 look.py p.svg >shown
    shows 'Loss #0072b2 line 50 1,99.0 50,50.0'
    shows 'Loss #d55e00 line 40 1,99.0 40,60.0'
    shows 'Held-out loss #0072b2 line 3 0,120.0 50,70.0'
    shows 'dots Held-out loss #0072b2 3'
    grep -c '^Loss' shown | grep -qx 2
    not grep -q '^dots Loss' shown
    shows 'lDDT-Cα #0072b2 line 3 0,0.1 50,0.6'
    shows 'Learning rate #0072b2 line 50 1,0.0 50,0.0'
    shows 'Speed #0072b2 line 50 1,5.0 50,5.0'
    shows 'Speed #d55e00 line 40 1,4.0 40,4.0'
    shows 'fape #0072b2 line 50 1,11.0 50,60.0'
    shows 'text Lines: training, every step; dots: held-out chains.'
    shows 'text (a-1|b)'
    # The mean over 11 steps is that of fewer at the ends; single steps are drawn beside it.
    foldmill plot a-1 --out p.svg --smooth 11 --title 'x < y & z'
    python3 look.py p.svg >shown
    shows 'Loss #0072b2 pale 50 1,99.0 50,50.0'
    shows 'Loss #0072b2 line 50 1,96.5 50,52.5'
    shows 'text x < y & z'
    shows 'text Lines: training, centred mean over 11 steps; pale: single steps; dots: held-out chains.'
    foldmill plot a-1 --out q.svg --smooth 11 --title 'x < y & z'
    cmp p.svg q.svg
}

a_run_may_have_scores_alone() {
    mkdir scores
    sed 's/}/,"seen_lddt_ca":0.7}/' a-1/eval.jsonl >scores/eval.jsonl
    foldmill plot scores --out p.svg
    python3 look.py p.svg >shown
    shows 'Held-out loss #0072b2 line 3 0,120.0 50,70.0'
    not grep -q '^Loss' shown
    shows 'lDDT-Cα #0072b2 line 3 0,0.7 50,0.7'
    shows 'text Dots: held-out chains.'
    not grep -q 'Learning rate\|Speed' shown
}

# The first steps of a run have one score, and a model may have terms that another has not.
what_one_run_has_is_seen() {
    mkdir brief
    echo '{"step":3,"loss":7,"lddt_ca":0.5,"fape":3,"torsion":2}' >brief/metrics.jsonl
    foldmill plot b brief --terms --out p.svg
    python3 look.py p.svg >shown
    grep -c '^text torsion$' shown | grep -qx 1
    grep -c '^text fape$' shown | grep -qx 1
    grep -c '#d55e00.* d="M[0-9. ]*h5"' p.svg | grep -qx 4
    shows 'fape #0072b2 line 40 1,11.0 40,50.0'
}

runs_of_one_stem_share_a_colour() {
    foldmill plot a-1 b a-2/ --by-seed --out p.svg
    python3 look.py p.svg >shown
    shows 'text a \(2 runs\)'
    shows 'text b'
    grep -c '^Speed #0072b2' shown | grep -qx 2
    grep -c '^Speed #d55e00' shown | grep -qx 1
}

a_wide_range_is_logarithmic() {
    mkdir wide
    for i in 1 2 3 4; do
        echo "{\"step\":$i,\"loss\":1e$((4 - i))}"
    done >wide/metrics.jsonl
    foldmill plot wide --out p.svg
    python3 look.py p.svg >shown
    shows 'text logarithmic'
    shows 'text 1,000'
    shows 'text 10'
}

a_png_has_the_pixels_of_the_picture() {
    code=0
    foldmill plot a-1 b --out p.png --scale 1 2>err || code=$?
    if [ $code = 2 ] && grep -q 'built without librsvg' err; then skip "built without librsvg"; fi
    test $code = 0
    foldmill plot a-1 b --out p.svg
    python3 -c '
import re, struct, zlib
png = open("p.png", "rb").read()
svg = open("p.svg").read()
assert png[:8] == b"\x89PNG\r\n\x1a\n"
size = struct.unpack(">II", png[16:24])
assert list(size) == [int(re.search(k + "=.(\\d+)", svg)[1]) for k in (" width", " height")], size
data, at = b"", 8
while at < len(png):
    n, kind = struct.unpack(">I4s", png[at:at + 8])
    if kind == b"IDAT": data += png[at + 8:at + 8 + n]
    at += 12 + n
raw = zlib.decompress(data)
assert len(set(raw)) > 50, "an empty picture"
'
}

mistakes_are_named() {
    mkdir bad empty pipe
    mkfifo pipe/metrics.jsonl
    printf '{"step":1,"loss":2}\n[1]\n' >bad/metrics.jsonl
    printf '{"step":1,"lo' >empty/metrics.jsonl
    expect 2 "found 'p.pdf', expected a file that ends in .svg or .png" foldmill plot a-1 --out p.pdf
    expect 2 '--out' foldmill plot a-1
    expect 2 'foldmill plot' foldmill plot --out p.svg
    expect 2 '--scale: found 0, expected 0.25 to 8' foldmill plot a-1 --scale 0 --out p.png
    expect 2 '--smooth' foldmill plot a-1 --smooth 0 --out p.svg
    expect 1 'nowhere: found no metrics.jsonl, expected the folder of a run' foldmill plot a-1 nowhere --out no.svg
    test ! -e no.svg
    expect 2 'bad/metrics.jsonl: found a file, expected the folder of a run (foldmill train --out)' foldmill plot \
        bad/metrics.jsonl --out no.svg
    test ! -e no.svg
    expect 1 'pipe/metrics.jsonl: not a regular file but a device' foldmill plot pipe --out no.svg
    test ! -e no.svg
    expect 1 "bad/metrics.jsonl:2:1: found '[1]', expected an object with a step" foldmill plot bad --out no.svg
    test ! -e no.svg
    expect 1 'empty: the run has no finished step yet' foldmill plot empty --out no.svg
    test ! -e no.svg
    expect 1 'nowhere' foldmill plot a-1 --out nowhere/p.svg
    expect 2 '././.: the path is too long' foldmill plot $(printf './%.0s' $(seq 2040))a-1 --out no.svg
    test ! -e no.svg
}

run_tests curves_are_at_their_numbers \
    a_run_may_have_scores_alone \
    what_one_run_has_is_seen \
    runs_of_one_stem_share_a_colour \
    a_wide_range_is_logarithmic \
    a_png_has_the_pixels_of_the_picture \
    mistakes_are_named

