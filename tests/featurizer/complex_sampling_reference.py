#!/usr/bin/env python3
"""A second, slow implementation of section 12 of docs/reference/sampling.md, and of the crops and planned
rows of docs/reference/complexes.md, written from these pages.

usage: complex_sampling_reference.py CHECK_FILE   recompute every result of the file and compare

The file is what tests/featurizer/test_complex_reference.c writes: the tables of a complex, and what was drawn of it.
"""
import math
import struct
import sys
import zlib

from sampling_reference import below, chain_shared, chain_shuffled, chain_weighted, draw, first_above

ORDER, LENGTH, START, EDGE, CENTRE = 32, 33, 34, 35, 36
RECORD, PAIR, METHOD, TEMPLATES, N_TEMPLATE, N_ROW, ROWS = 37, 38, 39, 40, 41, 42, 43
PROTEIN, NUCLEIC, LIGAND, IONS = range(4)
CONTIGUOUS, SPATIAL, INTERFACE = range(3)
GAP = -1
CLASSES = "ARNDCQEGHILKMFPSTWYVX"


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


class Failed(Exception):
    pass


def shuffle(rows, picks, seed, i, purpose, cycle, number=0):
    """The first elements move, too."""
    for t in range(min(picks, len(rows))):
        o = t + below(draw(seed, i, purpose, cycle, number + t), len(rows) - t)
        rows[t], rows[o] = rows[o], rows[t]


class Complex:
    def __init__(self):
        self.chains, self.tokens, self.pairs, self.records, self.entities = [], [], [], [], []
        self.rows = {}

    def tokens_of(self, chain):
        return [t for t, token in enumerate(self.tokens) if token["chain"] == chain]

    def distance(self, a, b):
        p, q = self.tokens[a]["at"], self.tokens[b]["at"]
        return f32(math.sqrt((p[0] - q[0]) ** 2 + (p[1] - q[1]) ** 2 + (p[2] - q[2]) ** 2))

    def is_inside(self, place):
        a, b = self.tokens[place - 1], self.tokens[place] if place < len(self.tokens) else None
        return place > 0 and b is not None and a["residue"] == b["residue"]

    def left(self, t):
        while t > 0 and self.tokens[t - 1]["residue"] == self.tokens[t]["residue"]:
            t -= 1
        return t

    def right(self, t):
        residue = self.tokens[t]["residue"]
        while t < len(self.tokens) and self.tokens[t]["residue"] == residue:
            t += 1
        return t


# -- weights and choice


def is_drawn(record):
    return IONS not in record["kinds"]


def weights(records):
    def member(r):
        return r["is_interface"], r["item"], frozenset(r["entities"])

    def cluster(r):
        return r["is_interface"], r["cluster"]
    drawn = [r for r in records if is_drawn(r)]
    result = []
    for r in records:
        if not is_drawn(r):
            result.append(0)
            continue
        members = sum(member(x) == member(r) for x in drawn)
        size = len({member(x) for x in drawn if cluster(x) == cluster(r)})
        s = sum({PROTEIN: 3, NUCLEIC: 3, LIGAND: 1}[k] for k in r["kinds"]) * (2 if r["is_interface"] else 1)
        result.append(max(1, s * 2 ** 28 // (size * members)))
    return result


def choose(order, seed, i, records, items, shares):
    """shares: pairs of a dataset's share and, for each item, its dataset; or None."""
    own = [r for r in records if r["item"] in items]
    weight = weights(own)
    if order == "weighted":
        if shares:
            of = [shares[1][items.index(r["item"])] for r in own]
            k = chain_shared(seed, i, weight, of, shares[0])
        else:
            k = chain_weighted(seed, i, weight)
        return records.index(own[k])
    able = [x for x in items if any(w and r["item"] == x for w, r in zip(weight, own))]
    item = able[chain_shuffled(seed, i, len(able)) if order == "shuffled" else i % len(able)]
    inside = [w if r["item"] == item else 0 for w, r in zip(weight, own)]
    return records.index(own[first_above(inside, below(draw(seed, i, RECORD, 0, 0), sum(inside)))])


# -- crops


def move_end(c, first, end, least, most, coin):
    """Moves the end of a stretch that is within a residue."""
    edges = [e for e in (c.left(end), c.right(end)) if first <= e and least <= e - first <= most]
    if len(edges) == 2:
        return edges[coin()]
    if edges:
        return edges[0]
    end = c.left(end)
    while end - first > most:
        end = c.left(end - 1)
    return end


def contiguous(c, plan, whole, seed, i, a):
    chains = sorted(range(len(c.chains)), key=lambda k: c.chains[k]["asym"])
    shuffle(chains, len(chains), seed, i, ORDER, a)

    def is_metal(k):
        own = c.tokens_of(k)
        return whole and len(own) == 1 and c.tokens[own[0]]["n_atom"] == 1
    left = sum(len(c.tokens_of(k)) for k in chains if not is_metal(k))
    chosen, atoms = [], plan["max_atoms"]
    for place, k in enumerate(chains):
        room = plan["crop_size"] - len(chosen)
        if room == 0:
            break
        if is_metal(k):
            continue
        own = c.tokens_of(k)
        left -= len(own)
        least, most = min(len(own), max(0, room - left)), min(len(own), room)
        n = least + below(draw(seed, i, LENGTH, a, place), most - least + 1)
        first = own[0] + below(draw(seed, i, START, a, place), len(own) - n + 1)
        end = first + n

        def coin():
            return below(draw(seed, i, EDGE, a, place), 2)

        def inside(t):
            return own[0] < t <= own[-1] and c.is_inside(t)
        if whole and n > 0:
            at_end, at_start = inside(end), inside(first)
            if at_end and at_start:
                first = c.left(first)
            if at_end:
                end = move_end(c, first, end, least, room, coin)
            elif at_start:
                fit = [e for e in (c.left(first), c.right(first)) if e <= end and least <= end - e <= room]
                first = fit[coin()] if len(fit) == 2 else fit[0] if fit else c.right(first)
        while sum(c.tokens[t]["n_atom"] for t in range(first, end)) > atoms:
            end = c.left(end - 1) if whole else end - 1
        atoms -= sum(c.tokens[t]["n_atom"] for t in range(first, end))
        chosen += range(first, end)
    if sum(c.tokens[t]["n_resolved"] for t in chosen) < 5:
        raise Failed
    return sorted(chosen)


def spatial(c, plan, whole, seed, i, a, chains, at_interface):
    known = [t for t in range(len(c.tokens)) if c.tokens[t]["is_resolved"]]
    own = [t for t in known if c.tokens[t]["chain"] in chains]
    near = own
    if at_interface:
        near = [t for t in own if any(c.tokens[o]["chain"] != c.tokens[t]["chain"] and c.distance(o, t) < 15
                                      for o in known)]
        if not near and len(chains) == 1:
            near = own
    if not near:
        raise Failed
    centre = near[below(draw(seed, i, CENTRE, a, 0), len(near))]

    def rank(t):
        if not c.tokens[t]["is_resolved"]:
            return math.inf, t
        return f32(c.distance(centre, t) + f32(f32(t) * f32(0.001))), t
    chosen, atoms = [], 0
    for t in sorted(range(len(c.tokens)), key=rank)[:plan["crop_size"]]:
        atoms += c.tokens[t]["n_atom"]
        if atoms > plan["max_atoms"]:
            break
        chosen.append(t)
    if whole:
        chosen = [t for t in chosen if all(x in chosen for x in range(c.left(t), c.right(t)))]
    if not chosen:
        raise Failed
    return sorted(chosen)


def crop(c, plan, record, seed, i):
    chains = record["chains"]
    if record["is_interface"]:
        kinds = sorted(c.chains[k]["entity"] for k in chains)
        alike = [p for p in c.pairs if sorted(c.chains[k]["entity"] for k in p) == kinds]
        if alike:
            chains = alike[below(draw(seed, i, PAIR, 0, 0), len(alike))]
    for a in range(8):
        method = first_above(plan["weights"], below(draw(seed, i, METHOD, 0, a), sum(plan["weights"])))
        try:
            if method == CONTIGUOUS:
                return contiguous(c, plan, True, seed, i, a)
            return spatial(c, plan, True, seed, i, a, chains, method == INTERFACE)
        except Failed:
            pass
    return spatial(c, plan, False, seed, i, 8, chains, False)


# -- rows


def made_rows(sequence, n_row):
    """The same formula as in the C test: ids, deletions and species."""
    ids, deletions, species = [], [], []
    for r in range(n_row):
        line, gone = [], []
        for k, letter in enumerate(sequence):
            x = (r * 7919 + k * 104729 + r * k + r // 97 * (k * k + 1)) % 97
            line.append(CLASSES.index(letter) if r == 0 or x >= 50 else 31 if x < 15 else x % 20)
            gone.append(1 + r % 100 if r > 0 and x == 60 else 0)
        ids.append(line)
        deletions.append(gone)
        species.append("" if r % 3 == 0 else "SP%d" % (r % 40))
    return ids, deletions, species


def is_gaps(ids, row):
    return row == GAP or all(x == 31 for x in ids[row])


def pair_rows(chains, most):
    """chains: (sequence, is_protein, ids, species). Returns rows[chain] of the paired block."""
    paired = [[0] for _ in chains]
    proteins = {c[0] for c in chains if c[1]}
    if len(proteins) < 2:
        return paired
    by_species = {}
    for k, (_, is_protein, ids, species) in enumerate(chains):
        if not is_protein or (len(ids) == 1 and not species[0]):
            continue
        for r, name in enumerate(species):
            if name:
                by_species.setdefault(name, {}).setdefault(k, []).append(r)
    for n in range(len(chains), 1, -1):
        if len(paired[0]) >= most:
            break
        found = []
        names = [s for s, of in by_species.items() if len(of) == n]
        for name in sorted(names, key=lambda s: (min(by_species[s]), s.encode())):
            of = by_species[name]
            for place in range(min(600, min(len(rows) for rows in of.values()))):
                row = [of[k][place] if k in of else GAP for k in range(len(chains))]
                rank = 0.0
                for x in row:
                    rank = f32(rank + f32(math.log(f32(f32(abs(x)) + f32(1e-10)))))
                found.append((rank, len(found), row))
        for _, _, row in sorted(found):
            if len(paired[0]) < most:
                for k, x in enumerate(row):
                    paired[k].append(x)
    keep = [p for p in range(len(paired[0]))
            if not all(is_gaps(chains[k][2], paired[k][p]) for k in range(len(chains)))]
    return [[rows[p] for p in keep] for rows in paired]


def plan_rows(chains, max_row):
    paired = pair_rows(chains, max_row // 2)
    n_paired, most = len(paired[0]), max_row - len(paired[0])
    unpaired = []
    for k, (_, _, ids, _) in enumerate(chains):
        block = {tuple([31] * len(ids[0])) if r == GAP else tuple(ids[r]) for r in paired[k]}
        unpaired.append([GAP if is_gaps(ids, r) else r for r in range(len(ids)) if tuple(ids[r]) not in block][:most])
    deepest = max(map(len, unpaired))
    planned = [p + u + [GAP] * (deepest - len(u)) for p, u in zip(paired, unpaired)]
    for k, (_, is_protein, ids, _) in enumerate(chains):
        for r in range(len(planned[k])):
            if not is_protein and (is_gaps(ids, planned[k][r]) if r < n_paired else planned[k][r] == GAP):
                planned[k][r] = 0
    return planned


def cycles_of(c, plan, tokens, seed, i, n_cycle):
    order = sorted({c.tokens[t]["chain"] for t in tokens},
                   key=lambda k: (c.chains[k]["entity_id"], c.chains[k]["asym"]))
    chains, deletions = [], []
    for k in order:
        entity = c.chains[k]["entity"]
        sequence, is_protein, n_row = c.entities[entity]
        key = (sequence, n_row)
        if key not in c.rows:
            c.rows[key] = made_rows(sequence, max(1, n_row))
        ids, gone, species = c.rows[key]
        chains.append((sequence, is_protein, ids, species))
        deletions.append(gone)
    planned = plan_rows(chains, plan["max_planned"])
    n_planned = len(planned[0])
    columns = []
    for t in tokens:
        k = order.index(c.tokens[t]["chain"])
        number = c.tokens[t]["number"]
        columns.append((k, number - 1 if 1 <= number <= len(chains[k][0]) else 0))
    result = []
    for cycle in range(n_cycle):
        n = min(1 + below(draw(seed, i, N_ROW, cycle, 0), n_planned), plan["max_msa"])
        rows = list(range(n_planned))
        shuffle(rows, n, seed, i, ROWS, cycle)
        msa, gone = bytearray(), bytearray()
        for r in rows[:n]:
            for k, column in columns:
                row = planned[k][r]
                msa.append(31 if row == GAP else chains[k][2][row][column])
                gone.append(0 if row == GAP else deletions[k][row][column])
        result.append((n, zlib.crc32(msa), zlib.crc32(gone)))
    return n_planned, result


def templates(seed, i, entity, n, pool, most):
    """Of n usable hits, best first."""
    usable = list(range(min(n, pool)))
    if not usable:
        return []
    k = min(below(draw(seed, i, N_TEMPLATE, 0, entity), len(usable) + 1), most)
    shuffle(usable, k, seed, i, TEMPLATES, 0, 256 * entity)
    return usable[:k]


def check(path):
    c, checked, plan = Complex(), 0, {}
    items, weight = [], []
    for line in open(path):
        kind, *words = line.split()
        if kind == "complex":
            c = Complex()
        elif kind == "entity":
            c.entities.append((words[0], words[1] == "1", int(words[2])))
        elif kind == "chain":
            c.chains.append(dict(zip(("asym", "entity", "entity_id"), map(int, words))))
        elif kind == "token":
            chain, residue, number, resolved, n_atom, n_resolved = map(int, words[:6])
            c.tokens.append({"chain": chain, "residue": residue, "number": number, "is_resolved": resolved,
                             "n_atom": n_atom, "n_resolved": n_resolved, "at": [f32(float(x)) for x in words[6:]]})
        elif kind == "pair":
            c.pairs.append([int(words[0]), int(words[1])])
        elif kind == "record":
            item, two, a, b, x, y, d, e = map(int, words[:8])
            n = 1 + two
            c.records.append({"item": item, "is_interface": two, "kinds": [a, b][:n], "chains": [x, y][:n],
                              "entities": [d, e][:n], "cluster": words[8]})
        elif kind == "weights":
            weight = weights(c.records)
            assert weight == list(map(int, words)), line
        elif kind == "items":
            items = list(map(int, words))
        elif kind == "choose":
            order, seed, i, has_shares, got = words[0], *map(int, words[1:])
            shares = ([250000000, 750000000], [k % 2 for k in range(len(items))]) if has_shares else None
            assert choose(order, seed, i, c.records, items, shares) == got, line
        elif kind == "plan":
            names = ("crop_size", "max_atoms", "max_msa", "max_planned")
            plan = dict(zip(names, map(int, words)))
            plan["weights"] = list(map(int, words[4:]))
        elif kind == "sample":
            record, seed, i, n_cycle, n_planned, *got = map(int, words)
            tokens = crop(c, plan, c.records[record], seed, i)
            assert tokens == got, (line, tokens)
            want = cycles_of(c, plan, tokens, seed, i, n_cycle)
            assert want[0] == n_planned, (line, want[0])
        elif kind == "cycle":
            cycle, n, msa, gone = int(words[0]), int(words[1]), int(words[2], 16), int(words[3], 16)
            assert want[1][cycle] == (n, msa, gone), line
        elif kind == "templates":
            seed, i, entity, n, pool, most, *got = map(int, words)
            assert templates(seed, i, entity, n, pool, most) == got, line
        else:
            raise SystemExit("unknown line: " + line)
        checked += 1
    assert checked > 500, "the file is too short to prove anything"
    print("complex sampling reference: %d lines agree" % checked)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    check(sys.argv[1])
