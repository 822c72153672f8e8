#!/bin/sh
# test_includes.sh: the include checker against small dependency listings: a valid one passes, and
# each kind of breach fails with the line that names it. Run in the repository's root.
set -u
checker=deploy/checks/includes
failures=0

# expect NAME STATUS TEXT LISTING
expect() {
    output=$(printf '%s\n' "$4" | $checker 2>&1)
    status=$?
    case $output in *"$3"*) says=yes ;; *) says=no ;; esac
    if [ "$status" = "$2" ] && [ "$says" = yes ]; then
        echo "$1: ok"
    else
        echo "$1: exit status $status, expected $2 and '$3' in: $output"
        failures=$((failures + 1))
    fi
}

# unit SOURCE HEADER...: one object's entry as ninja prints it.
unit() {
    echo "some/$1.o: #deps $#, deps mtime 1 (VALID)"
    for path in "$@"; do echo "    $path"; done
    echo
}

expect valid 0 '' "$(
    unit proto/base/arena.c proto/base/arena.h /usr/include/stdint.h
    unit cache/store/store_lmdb.c cache/store/store.h proto/record.h /usr/include/lmdb.h
    unit server/conn.c server/conn.h cache/store/store.h proto/wire.h /usr/include/uv.h
    unit trainer/ops/linear.c trainer/autograd/tape.h trainer/tensor/tensor.h \
        trainer/backend/kernels.h proto/base/status.h proto/base/rng.h
    unit trainer/backend/cpu/dropout.c trainer/backend/kernels.h proto/base/rng.h
    unit tests/cache/test_store.c cache/store/store.h server/server.h /usr/include/lmdb.h
    unit proto/base/hash.c proto/base/hash.h /usr/include/openssl/evp.h
    unit proto/base/tls.c proto/base/tls.h /usr/include/openssl/ssl.h /usr/include/openssl/evp.h
)"

# refuse NAME TEXT SOURCE HEADER...: one source that breaks a rule.
refuse() {
    name=$1 text=$2
    shift 2
    expect "$name" 1 "$text" "$(unit "$@")"
}
refuse openssl_has_doors 'server/conn.c: includes OpenSSL; only proto/base/certificates.c, proto/base/hash.c' \
    server/conn.c server/conn.h /usr/include/openssl/evp.h
refuse arrow_up 'proto/record.c: includes featurizer/features.h; proto may include proto/base' \
    proto/record.c proto/record.h featurizer/features.h
refuse base_is_lowest 'includes proto/limits.h; proto/base may include nothing of ours' \
    proto/base/log.c proto/limits.h
refuse store_is_lowest_in_cache 'cache/store/store.c: includes cache/source/source.h; cache/store may include proto' \
    cache/store/store.c cache/source/source.h
refuse private 'cache/snapshot/gc.c: includes cache/source/source_parts.h, which is private to cache/source/' \
    cache/snapshot/gc.c cache/source/source_parts.h
refuse subfolder 'featurizer/parse/a3m.c: includes cache/source/source.h' \
    featurizer/parse/a3m.c featurizer/parse/a3m.h cache/source/source.h
refuse trainer_sees_proto_only 'trainer/data/loader.c: includes cache/store/store.h' \
    trainer/data/loader.c cache/store/store.h
refuse backend 'trainer/backend/cpu/gemm.c: includes trainer/tensor/tensor.h' \
    trainer/backend/cpu/gemm.c trainer/backend/kernels.h trainer/tensor/tensor.h
refuse ops_see_the_table_only 'trainer/ops/linear.c: includes trainer/backend/cpu/gemm.h' \
    trainer/ops/linear.c trainer/backend/cpu/gemm.h
refuse tensor_below_model 'trainer/tensor/tensor.c: includes trainer/model/evoformer.h' \
    trainer/tensor/tensor.c trainer/model/evoformer.h
expect one_includer 1 \
    'LMDB is included by 2 sources, exactly one may: cache/build/build.c, cache/store/store_lmdb.c' "$(
        unit cache/store/store_lmdb.c /usr/include/lmdb.h
        unit cache/build/build.c cache/store/store.h /usr/include/lmdb.h
    )"
expect empty 2 'names no source of ours' ''

[ "$failures" = 0 ]
