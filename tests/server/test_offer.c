/* Which snapshot a HELLO gets: by name, by hash, by what its token allows; and how long a source
 * that was replaced stays. Also how the caches of a server are named. */
#include "server/library.h"
#include "server/offer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

typedef struct fixture {
    fm_sample_source all, train, other, newer;
    fm_offer offer;
} fixture;

static fm_sample_source source_of(const char *name, const char *content, uint64_t generation) {
    fm_sample_source source = {.snapshot = fm_sha256_of(content, strlen(content)),
                               .generation = generation};
    fm_wire_text(source.snapshot_name, sizeof source.snapshot_name, name);
    return source;
}

/* all, train and other/all are current; `newer` is another all. */
static fixture *prepare(fixture *f) {
    *f = (fixture){.all = source_of("all", "one", 1),
                   .train = source_of("train", "two", 1),
                   .other = source_of("other/all", "three", 7),
                   .newer = source_of("all", "four", 2)};
    fm_sample_source *const list[] = {&f->all, &f->train, &f->other};
    fm_offer_set(&f->offer, list, 3, 0);
    return f;
}

static fm_wire_hello hello_of(const char *name, const fm_sha256 *hash) {
    fm_wire_hello hello = {.version_min = 1};
    fm_wire_text(hello.snapshot_name, sizeof hello.snapshot_name, name);
    if (hash) hello.snapshot = *hash;
    return hello;
}

/* The source that a HELLO gets; NULL with the error. */
static fm_sample_source *ask(const fixture *f, const char *name, const fm_sha256 *hash,
                             const char *allowed, fm_error *ret_error) {
    fm_sample_source *source = NULL;
    const fm_access_token token = {.snapshots = allowed};
    const fm_wire_hello hello = hello_of(name, hash);
    fm_status status =
        fm_offer_find(&f->offer, &hello, allowed ? &token : NULL, &source, ret_error);
    assert_true(!status == (source != NULL));
    return source;
}

static void a_client_gets_what_it_asks_for(void **state) {
    (void)state;
    fixture f;
    fm_error error;
    prepare(&f);
    assert_ptr_equal(ask(&f, "", NULL, NULL, &error), &f.all);
    assert_ptr_equal(ask(&f, "train", NULL, NULL, &error), &f.train);
    assert_ptr_equal(ask(&f, "other/all", NULL, NULL, &error), &f.other);
    assert_ptr_equal(ask(&f, "", &f.other.snapshot, NULL, &error), &f.other);
    assert_ptr_equal(ask(&f, "train", &f.train.snapshot, NULL, &error), &f.train);
    assert_null(ask(&f, "train", &f.all.snapshot, NULL, &error));
    assert_int_equal(error.status, FM_ERR_NOT_FOUND);
    assert_null(ask(&f, "other", NULL, NULL, &error));
    assert_string_equal(error.message,
                        "snapshot other is not served here; there are: all, train, other/all");
}

static void a_token_limits_what_is_told(void **state) {
    (void)state;
    fixture f;
    fm_error error;
    prepare(&f);
    assert_ptr_equal(ask(&f, "", NULL, "other/all", &error), &f.other);
    assert_ptr_equal(ask(&f, "", NULL, "train,other/all", &error), &f.train);
    static const char *const hidden[] = {"all", "train", "none", "other"};
    for (size_t i = 0; i < sizeof hidden / sizeof hidden[0]; i++) {
        assert_null(ask(&f, hidden[i], NULL, "other/all,absent", &error));
        assert_int_equal(error.status, FM_ERR_DENIED);
        assert_string_equal(error.message,
                            "this access token is not for the snapshot that was asked for");
    }
    assert_null(ask(&f, "absent", NULL, "other/all,absent", &error));
    assert_string_equal(error.message, "snapshot absent is not served here; there are: other/all");
    assert_null(ask(&f, "", &f.all.snapshot, "other/all", &error));
    assert_int_equal(error.status, FM_ERR_NOT_FOUND); /* as for a hash that nobody has */
    assert_null(strstr(error.message, "train"));
    assert_null(ask(&f, "", NULL, "absent", &error));
    assert_int_equal(error.status, FM_ERR_DENIED);
}

/* The list of names in a refusal is cut where a message ends. */
static void a_long_list_is_cut(void **state) {
    (void)state;
    enum { N = 40 };
    static fm_sample_source sources[N];
    fm_sample_source *list[N];
    fixture f = {0};
    fm_error error;
    for (int i = 0; i < N; i++) {
        char name[32];
        snprintf(name, sizeof name, "snapshot-number-%d", i);
        sources[i] = source_of(name, name, 1);
        list[i] = &sources[i];
    }
    fm_offer_set(&f.offer, list, N, 0);
    assert_null(ask(&f, "x", NULL, NULL, &error));
    size_t bytes = strlen(error.message);
    assert_true(bytes > 150 && bytes < FM_WIRE_TEXT_BYTES);
    assert_string_equal(error.message + bytes - 5, ", ...");
}

static void a_replaced_source_stays_while_it_is_used(void **state) {
    (void)state;
    fixture f;
    fm_error error;
    prepare(&f);
    f.all.n_user = 1;
    fm_sample_source *const list[] = {&f.newer, &f.train, &f.other};
    fm_offer_set(&f.offer, list, 3, 1000);
    assert_int_equal(f.offer.n_current, 3);
    assert_int_equal(f.offer.n_old, 1);
    assert_ptr_equal(ask(&f, "all", NULL, NULL, &error), &f.newer);
    assert_ptr_equal(ask(&f, "", &f.all.snapshot, NULL, &error), &f.all);
    assert_ptr_equal(ask(&f, "all", &f.all.snapshot, NULL, &error), &f.all);
    assert_null(fm_offer_take_unused(&f.offer, 90000, 500));
    f.all.n_user = 0; /* its time begins at the last look that found it in use */
    assert_null(fm_offer_take_unused(&f.offer, 90499, 500));
    assert_ptr_equal(fm_offer_take_unused(&f.offer, 90500, 500), &f.all);
    assert_null(fm_offer_take_unused(&f.offer, 90500, 500));
    assert_null(ask(&f, "", &f.all.snapshot, NULL, &error));
    fm_offer_add_old(&f.offer, &f.all, 91000); /* found again on disk */
    fm_offer_add_old(&f.offer, &f.all, 91000);
    fm_offer_add_old(&f.offer, &f.train, 91000);
    assert_int_equal(f.offer.n_old, 1);
    assert_ptr_equal(ask(&f, "", &f.all.snapshot, NULL, &error), &f.all);
    fm_offer_set(&f.offer, list + 1, 1, 92000); /* snapshots that are no longer offered */
    assert_int_equal(f.offer.n_current, 1);
    assert_int_equal(f.offer.n_old, 3);
    assert_null(ask(&f, "all", NULL, NULL, &error));
}

static void reports_name_every_source_once(void **state) {
    (void)state;
    fixture f;
    fm_report_snapshot rows[8];
    prepare(&f);
    f.all.n_user = 2;
    f.newer = f.all; /* the cache went back to a generation that is still open */
    f.newer.n_user = 3;
    fm_sample_source *const list[] = {&f.newer, &f.train};
    fm_offer_set(&f.offer, list, 2, 0);
    fm_offer_set(&f.offer, list + 1, 1, 0);
    size_t n = fm_offer_describe(&f.offer, rows, 8);
    assert_int_equal(n, 3);
    assert_string_equal(rows[0].name, "train");
    assert_false(rows[0].is_old);
    unsigned n_all = 0;
    for (size_t i = 1; i < n; i++) {
        assert_true(rows[i].is_old);
        if (strcmp(rows[i].name, "all") == 0) n_all += rows[i].n_user;
    }
    assert_int_equal(n_all, 5);
    assert_int_equal(fm_offer_describe(&f.offer, rows, 1), 1);
}

static void caches_have_names(void **state) {
    (void)state;
    static const struct {
        const char *text, *name, *path;
    } rows[] = {{"/data/pdb", "", "/data/pdb"},
                {"pdb=/data/pdb", "pdb", "/data/pdb"},
                {"a.B_9-=x=y", "a.B_9-", "x=y"},
                {"./a=b", "", "./a=b"},
                {"/data/a=b", "", "/data/a=b"},
                {".a=b", "", ".a=b"},
                {"=b", "", "=b"},
                {"a b=c", "", "a b=c"},
                {"a234567890123456789012345678901=b", "a234567890123456789012345678901", "b"},
                {"a2345678901234567890123456789012=b", "", "a2345678901234567890123456789012=b"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        fm_library_cache cache = fm_library_cache_parse(rows[i].text);
        assert_string_equal(cache.name, rows[i].name);
        assert_string_equal(cache.path, rows[i].path);
    }
}

static void names_that_do_not_fit_are_refused(void **state) {
    (void)state;
    static const fm_library_cache caches[] = {
        {"a", "/none"}, {"", "/none"}, {"a", "/other"}, {"", "/other"}};
    static const char *const unknown[] = {"b/all"}, *const plain[] = {"all"};
    const struct {
        fm_library_options options;
        const char *message;
    } rows[] = {
        {{.cache = caches, .n_cache = 3}, "two caches are called 'a'"},
        {{.cache = caches + 1, .n_cache = 3}, "only one cache can be without a name"},
        {{.cache = caches, .n_cache = 0}, "found 0 caches"},
        {{.cache = caches, .n_cache = 2, .snapshot = unknown, .n_snapshot = 1},
         "in the snapshot 'b/all', expected CACHE/NAME"},
        {{.cache = (const fm_library_cache[]){{"a", "/none"}, {"b", "/none"}},
          .n_cache = 2,
          .snapshot = plain,
          .n_snapshot = 1},
         "in the snapshot 'all', expected CACHE/NAME"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        fm_library *library = NULL;
        fm_error error;
        assert_int_equal(fm_library_open(&rows[i].options, &library, &error), FM_ERR_USAGE);
        assert_non_null(strstr(error.message, rows[i].message));
        assert_null(library);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_client_gets_what_it_asks_for),
        cmocka_unit_test(a_token_limits_what_is_told),
        cmocka_unit_test(a_long_list_is_cut),
        cmocka_unit_test(a_replaced_source_stays_while_it_is_used),
        cmocka_unit_test(reports_name_every_source_once),
        cmocka_unit_test(caches_have_names),
        cmocka_unit_test(names_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
