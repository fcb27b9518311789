/* A checkpoint file written by several ranks has the same bytes as one written by a single rank, whichever
 * ranks write; if one of them fails there is no file. */
#include "base/files.h"
#include "base/memory.h"
#include "comm/comm_internal.h"
#include "comm/rendezvous.h"
#include "model/checkpoint_internal.h"
#include "model/shards.h"
#include "tests/support/expect.h"
#include "tests/support/ranks.h"

#include <stdio.h>
#include <string.h>

enum { RANKS = 3, ENTRIES = 9 };

typedef struct {
    int port;
    const char *path;
    bool apart; // the last rank is on another host
    bool fails; // the second one cannot write
} Case;

/* Sizes from none to most of the file. */
static void describe(SafetensorsEntry entries[ENTRIES], char names[ENTRIES][8]) {
    static const int64_t sizes[ENTRIES] = {100, 0, 5000, 3, 300, 20000, 7, 4000, 1};
    for (int i = 0; i < ENTRIES; i++) {
        snprintf(names[i], sizeof names[i], "t%d", i);
        entries[i] = (SafetensorsEntry){.name = names[i], .type = SAFE_U8, .rank = 1, .d = {sizes[i]}};
    }
}

static Status append(SafetensorsWriter *writer, const SafetensorsEntry *entry, int i) {
    char bytes[64];
    memset(bytes, 'a' + i, sizeof bytes);
    for (int64_t done = 0; done < entry->d[0]; done += (int64_t)sizeof bytes) {
        int64_t rest = entry->d[0] - done;
        TRY(safetensors_writer_append(writer, bytes,
                                      rest < (int64_t)sizeof bytes ? rest : (int64_t)sizeof bytes));
    }
    return OK;
}

static Status write_together(int rank, void *user) {
    const Case *c = user;
    Identity identity = identity_of(rank, RANKS, c->port);
    Comm comm = {.rank = rank, .size = RANKS};
    Shards shards = {.comm = &comm};
    const Parameters p = {.rank = rank, .ranks = RANKS, .shards = &shards};
    SafetensorsEntry entries[ENTRIES];
    char names[ENTRIES][8];
    RankFile file;
    int mine = 0;
    describe(entries, names);
    TRY(rendezvous_open(&identity, 20, NULL, &comm.rendezvous));
    if (c->apart) snprintf(comm.rendezvous->hosts[RANKS - 1], RANK_HOST, "elsewhere");
    TRY(rank_file_open(&p, c->path, entries, ENTRIES, NULL, 0, &file));
    Status status = OK;
    for (int i = 0; i < ENTRIES && !status; i++) {
        if (!rank_file_mine(&file, i)) continue;
        mine++;
        status = append(file.writer, &entries[i], i);
    }
    if (c->fails && rank == 1 && !status) status = (fail)(ERROR_FILE, "no space is left");
    status = rank_file_close(&file, status);
    rendezvous_close(comm.rendezvous, OK);
    if (!status) EXPECT((mine > 0) == (!c->apart || rank < RANKS - 1));
    return status;
}

static void test_together(void **state) {
    SafetensorsEntry entries[ENTRIES];
    char names[ENTRIES][8], alone[256], path[256], *one, *other;
    int64_t one_length, other_length;
    SafetensorsWriter *writer;
    snprintf(alone, sizeof alone, "%s/alone", (const char *)*state);
    snprintf(path, sizeof path, "%s/together", (const char *)*state);
    describe(entries, names);
    expect_ok(safetensors_writer_open(alone, entries, ENTRIES, NULL, 0, &writer));
    for (int i = 0; i < ENTRIES; i++) expect_ok(append(writer, &entries[i], i));
    expect_ok(safetensors_writer_close(writer));
    expect_ok(file_read(alone, 1 << 20, &one, &one_length));
    for (int apart = 0; apart < 2; apart++) {
        Case c = {free_port(), path, apart, false};
        const RankEnd *ends = ranks_run(RANKS, write_together, &c, 30);
        for (int rank = 0; rank < RANKS; rank++) expect_rank(ends, rank, 0, "");
        expect_ok(file_read(path, 1 << 20, &other, &other_length));
        assert_int_equal(one_length, other_length);
        assert_memory_equal(one, other, (size_t)one_length);
        memory_free(other);
    }
    memory_free(one);
}

static void test_failure(void **state) {
    char path[256], pattern[300];
    PathList left;
    snprintf(path, sizeof path, "%s/failed", (const char *)*state);
    snprintf(pattern, sizeof pattern, "%s*", path);
    Case c = {free_port(), path, false, true};
    const RankEnd *ends = ranks_run(RANKS, write_together, &c, 30);
    for (int rank = 0; rank < RANKS; rank++) expect_rank(ends, rank, ERROR_FILE, "no space is left");
    expect_ok(path_glob(pattern, &left));
    assert_int_equal(left.count, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_together), cmocka_unit_test(test_failure)};
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
