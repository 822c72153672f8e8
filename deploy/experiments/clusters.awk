# clusters.awk -v SHARE=0.25: words CHAIN SEQUENCE in, one cluster of chains per line out, in the order of their
# first chains. Two chains are in one cluster when they, or chains between them, share at least SHARE of the
# 3-letter words of the shorter one. Unrelated chains of 60 to 250 residues share some 5 to 10 %, chains of 60 %
# identical residues about 25 %.
BEGIN { n = 0 }
{
    name[n] = $1
    text[n] = $2
    up[n] = n
    n++
}
function root(i) {
    while (up[i] != i) i = up[i] = up[up[i]]
    return i
}
END {
    for (i = 0; i < n; i++) {
        split("", seen)
        for (k = 1; k + 2 <= length(text[i]); k++) {
            word = substr(text[i], k, 3)
            if (word in seen) continue
            seen[word]
            words[i]++
            has[word] = has[word] " " i
        }
    }
    for (word in has) {
        m = split(has[word], who, " ")
        for (a = 1; a < m; a++)
            for (b = a + 1; b <= m; b++) shared[who[a], who[b]]++
    }
    for (pair in shared) {
        split(pair, ij, SUBSEP)
        i = ij[1]
        j = ij[2]
        least = words[i] < words[j] ? words[i] : words[j]
        if (shared[pair] < SHARE * least) continue
        i = root(i)
        j = root(j)
        if (i < j) up[j] = i
        else up[i] = j
    }
    for (i = 0; i < n; i++) line[root(i)] = line[root(i)] " " name[i]
    for (i = 0; i < n; i++)
        if (i in line) print substr(line[i], 2)
}
