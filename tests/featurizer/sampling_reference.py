#!/usr/bin/env python3
"""A second, slow implementation of docs/reference/sampling.md, written from that page.

usage: sampling_reference.py CHECK_FILE   recompute every line of the file and compare
       sampling_reference.py --vectors    print the document's test vectors

The file is what tests/featurizer/test_sample_reference.c writes: one line per case, then one line per tensor.
"""
import struct
import sys
import zlib

M32 = 0xFFFFFFFF
CHAIN, SHUFFLE, CYCLES, CROP, CLAMP, TEMPLATES, N_TEMPLATE, DATASET = 1, 2, 3, 4, 5, 6, 7, 9
BLOCKS, CAP, ROWS, MASK, REPLACE = 16, 17, 18, 19, 20
HHBLITS, RESTYPE = "ACDEFGHIKLMNPQRSTVWYX-", "ARNDCQEGHILKMFPSTWYVX-"


def q32(numerator, denominator):
    return -((-numerator << 32) // denominator)


def philox(key, counter):
    k0, k1 = key & M32, key >> 32
    c = list(counter)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k0, b & M32, (a >> 32) ^ c[3] ^ k1, a & M32]
        k0, k1 = (k0 + 0x9E3779B9) & M32, (k1 + 0xBB67AE85) & M32
    return c


def draw(seed, index, purpose, cycle, n):
    w = philox(seed, (n // 2, (purpose << 16) + cycle, index & M32, index >> 32))
    return w[0] + (w[1] << 32) if n % 2 == 0 else w[2] + (w[3] << 32)


def below(x, m):
    return x * m >> 64


def cycles_of_step(seed, step, max_cycle):
    return 1 + below(draw(seed, step, CYCLES, 0, 0), max_cycle)


def first_above(numbers, at):
    total = 0
    for k, x in enumerate(numbers):
        total += x
        if total > at:
            return k


def chain_weighted(seed, i, weights):
    return first_above(weights, below(draw(seed, i, CHAIN, 0, 0), sum(weights)))


def chain_shared(seed, i, weights, of_chain, shares):
    d = first_above(shares, below(draw(seed, i, DATASET, 0, 0), sum(shares)))
    own = [w if of_chain[k] == d else 0 for k, w in enumerate(weights)]
    return chain_weighted(seed, i, own)


def chain_shuffled(seed, i, n):
    h = 1
    while 1 << (2 * h) < n:
        h += 1
    p, v = divmod(i, n)
    while True:
        left, right = v >> h, v & ((1 << h) - 1)
        for k in range(6):
            w0 = philox(seed, (right, (SHUFFLE << 16) + k, p & M32, p >> 32))[0]
            left, right = right, left ^ (w0 & ((1 << h) - 1))
        v = (left << h) | right
        if v < n:
            return v


def is_clamped(seed, i):
    return int((draw(seed, i, CLAMP, 0, 0) & M32) < q32(9, 10))


def crop_start(seed, i, n, clamped):
    if clamped:
        return below(draw(seed, i, CROP, 0, 0), n + 1)
    e = n - below(draw(seed, i, CROP, 0, 0), n + 1)
    return below(draw(seed, i, CROP, 0, 1), e + 1)


def templates(seed, i, hits, rule, kind):
    """hits: (score, date or 0). rule: 1 query, 2 any, else a day. kind of chain: 0 released on
    2018-04-10, 1 experimental without a date, 2 predicted, 3 without a structure."""
    if rule == 1:
        if kind in (1, 3):
            return []
        rule = 20180410 if kind == 0 else 2
    order = sorted(range(len(hits)), key=lambda h: (-hits[h][0], h))
    usable = [h for h in order if rule == 2 or 0 < hits[h][1] <= rule]
    if not usable:
        return []
    pool = usable[:20]
    k = min(below(draw(seed, i, N_TEMPLATE, 0, 0), len(pool) + 1), 4)
    for t in range(min(k, len(pool))):
        o = t + below(draw(seed, i, TEMPLATES, 0, t), len(pool) - t)
        pool[t], pool[o] = pool[o], pool[t]
    return pool[:k]


def shuffle(rows, picks, seed, i, purpose, cycle):
    for t in range(picks):
        if t + 1 >= len(rows):
            break
        o = 1 + t + below(draw(seed, i, purpose, cycle, t), len(rows) - 1 - t)
        rows[1 + t], rows[o] = rows[o], rows[1 + t]


def synthetic_shares(n, n_share):
    """The same formula as in the C test: weights, the dataset of each chain, shares."""
    weights = [1 + k * k % 17 for k in range(n)]
    of_chain = [k * 5 % 7 % n_share for k in range(n)]
    shares = [250000000, 750000000] if n_share == 2 else [10 + 3 * d for d in range(n_share)]
    return weights, of_chain, shares


def synthetic_msa(n, length):
    """The same formula as in the C test: HHblits ids and deletions."""
    msa = [[(i * 3) % 20 if r == 0 else (r * 7 + i * 3 + (r * i) % 5) % 22 for i in range(length)]
           for r in range(n)]
    deletions = [[(r + i) % 300 if (r * i) % 11 == 1 else 0 for i in range(length)]
                 for r in range(n)]
    return msa, deletions


def make_cycle(plan, msa, deletions, seed, i, cycle, start, n_res, distillation):
    n, length = len(msa), len(msa[0])
    gone = set()
    block = n * plan["delete_block"] >> 32
    if block > 0 and n > 1:
        for k in range(plan["n_block"]):
            first = 1 + below(draw(seed, i, BLOCKS, cycle, k), n - 1)
            gone.update(range(first, min(first + block, n)))
    rows = [r for r in range(n) if r not in gone]
    if distillation and plan["cap"] and len(rows) > plan["cap"]:
        shuffle(rows, plan["cap"] - 1, seed, i, CAP, cycle)
        rows = rows[:plan["cap"]]
    m = min(plan["clusters"], len(rows))
    e = min(plan["extra"], len(rows) - m)
    shuffle(rows, m - 1 + e, seed, i, ROWS, cycle)
    centres, members = rows[:m], rows[m:]
    profile = [[0] * 22 for _ in range(length)]
    for row in msa:
        for c, x in enumerate(row):
            profile[c][x] += 1
    masked, chosen = [], []
    for place, r in enumerate(centres):
        line, flags = list(msa[r]), [0] * length
        for c in range(length):
            x = draw(seed, i, MASK, cycle, place * length + c)
            if (x & M32) >= plan["masked"]:
                continue
            flags[c] = 1
            u, y = x >> 32, draw(seed, i, REPLACE, cycle, place * length + c)
            if u < plan["uniform"]:
                line[c] = HHBLITS.index(RESTYPE[below(y, 20)])
            elif u < plan["uniform"] + plan["profile"]:
                t, k = below(y, n), 0
                while t >= profile[c][k]:
                    t -= profile[c][k]
                    k += 1
                line[c] = k
            elif u >= plan["uniform"] + plan["profile"] + plan["same"]:
                line[c] = 22
        masked.append(line)
        chosen.append(flags)
    cluster = []
    for r in members:
        agree = [sum(a == b and a <= 20 for a, b in zip(msa[r], line)) for line in masked]
        cluster.append(agree.index(max(agree)))
    to_restype = [RESTYPE.index(x) for x in HHBLITS] + [22]
    crop = range(start, start + n_res)
    counts = [[[0] * 23 for _ in crop] for _ in centres]
    sums, sizes = [[0] * n_res for _ in centres], [0] * m
    for place, k in [(p, p) for p in range(m)] + [(m + j, c) for j, c in enumerate(cluster)]:
        ids = masked[k] if place < m else msa[rows[place]]
        for at, c in enumerate(crop):
            counts[k][at][to_restype[ids[c]]] += 1
            sums[k][at] += deletions[rows[place]][c]
        sizes[k] += 1
    flat = [x for line in counts for col in line for x in col]
    width = "B" if max(flat) <= 255 else "H" if max(flat) <= 65535 else "I"
    bits = [0] * ((m * n_res + 7) // 8)
    for p in range(m):
        for at, c in enumerate(crop):
            bits[(p * n_res + at) // 8] |= chosen[p][c] << ((p * n_res + at) % 8)
    extra = rows[m:m + e]

    def ids_of(lines):
        return [to_restype[line[c]] for line in lines for c in crop]
    return {
        16: ("B", ids_of(masked)),
        17: ("B", ids_of([msa[r] for r in centres])),
        18: ("B", bits),
        19: ("H", [deletions[r][c] for r in centres for c in crop]),
        20: (width, flat),
        21: ("I", [x for line in sums for x in line]),
        22: ("I", sizes),
        23: ("B", ids_of([msa[r] for r in extra])),
        24: ("H", [deletions[r][c] for r in extra for c in crop]),
    }


def check_sample(words):
    (n, length, distillation, seed, i, n_cycle, crop_size, clusters, extra, cap, masked, start, n_res,
     clamped) = map(int, words)
    plan = {"delete_block": q32(3, 10), "n_block": 5, "masked": masked, "uniform": q32(1, 10),
            "profile": q32(1, 10), "same": q32(1, 10), "clusters": clusters, "extra": extra,
            "cap": cap}
    want_n = min(length, crop_size)
    want_clamped = is_clamped(seed, i)
    want_start = crop_start(seed, i, length - want_n, want_clamped)
    assert (start, n_res, clamped) == (want_start, want_n, want_clamped), (words, want_start, want_n)
    msa, deletions = synthetic_msa(n, length)
    return [make_cycle(plan, msa, deletions, seed, i, c, start, n_res, distillation)
            for c in range(n_cycle)]


def check(path):
    checked, cycles = 0, []
    for line in open(path):
        kind, *words = line.split()
        if kind == "cycles":
            seed, step, most, got = map(int, words)
            assert cycles_of_step(seed, step, most) == got, line
        elif kind == "weighted":
            seed, i, n, got = map(int, words)
            assert chain_weighted(seed, i, [k * k % 17 for k in range(n)]) == got, line
        elif kind == "shared":
            seed, i, n, n_share, got = map(int, words)
            assert chain_shared(seed, i, *synthetic_shares(n, n_share)) == got, line
        elif kind == "sequence":
            seed, n, n_share, n_draw = map(int, words[:4])
            case = synthetic_shares(n, n_share)
            chains = bytes(chain_shared(seed, i, *case) for i in range(n_draw))
            assert "%08x" % zlib.crc32(chains) == words[4], line
        elif kind == "shuffled":
            seed, i, n, got = map(int, words)
            assert chain_shuffled(seed, i, n) == got, line
        elif kind == "crop":
            seed, i, n, clamped, got = map(int, words)
            assert is_clamped(seed, i) == clamped and crop_start(seed, i, n, clamped) == got, line
        elif kind == "templates":
            seed, i, n, rule, chain, *got = map(int, words)
            hits = [(h * 7 % n, 0 if h % 6 == 5 else 20180401 + h * 5 % 28) for h in range(n)]
            assert templates(seed, i, hits, rule, chain) == got, line
        elif kind == "sample":
            cycles = check_sample(words)
        elif kind == "tensor":
            tensor, cycle, n_byte, crc = int(words[0]), int(words[1]), int(words[2]), words[3]
            code, values = cycles[cycle][tensor]
            data = struct.pack("<%d%s" % (len(values), code), *values)
            assert (len(data), "%08x" % zlib.crc32(data)) == (n_byte, crc), line
        else:
            raise SystemExit("unknown line: " + line)
        checked += 1
    assert checked > 100, "the file is too short to prove anything"
    print("sampling reference: %d lines agree" % checked)


def vectors():
    seed = 20260720
    print("| what | values |\n|---|---|")
    print("| cycles of steps 0..15, max_cycle 4 | %s |"
          % " ".join(str(cycles_of_step(seed, s, 4)) for s in range(16)))
    print("| chains of samples 0..11, shuffled, n = 10 | %s |"
          % " ".join(str(chain_shuffled(seed, i, 10)) for i in range(12)))
    print("| chains of samples 0..11, weights k*k mod 17, n = 10 | %s |"
          % " ".join(str(chain_weighted(seed, i, [k * k % 17 for k in range(10)])) for i in range(12)))
    print("| chains of samples 0..11, shares 1/4 and 3/4 of the even and the odd of 10 chains, weights "
          "1 + k*k mod 17 | %s |"
          % " ".join(str(chain_shared(seed, i, [1 + k * k % 17 for k in range(10)],
                                      [k % 2 for k in range(10)], [1, 3])) for i in range(12)))
    print("| draw (index 5, purpose 19, cycle 1, n = 0..3) | %s |"
          % " ".join("%016x" % draw(seed, 5, MASK, 1, n) for n in range(4)))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    vectors() if sys.argv[1] == "--vectors" else check(sys.argv[1])
