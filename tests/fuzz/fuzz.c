/* The fuzzers' program: finds the entry function by the program's name, and calls it with each input. */
#include "tests/fuzz/fuzz.h"

#include "base/files.h"
#include "data/tokenizer.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FUZZERS = 64, DESCRIPTORS = 64 };

static struct {
    const char *name;
    FuzzEntry *entry;
    FuzzMutator *mutate;
} fuzzers[FUZZERS];
static int count, chosen;
FILE *fuzz_nowhere;

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);

void fuzz_add(const char *name, FuzzEntry *entry, FuzzMutator *mutate) {
    must(count < FUZZERS);
    fuzzers[count].name = name;
    fuzzers[count].entry = entry;
    fuzzers[count++].mutate = mutate;
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    const char *name = path_name((*argv)[0]);
    (void)argc;
    must((fuzz_nowhere = fopen("/dev/null", "w")));
    for (chosen = 0; chosen < count; chosen++)
        if (strncmp(name, "fuzz_", 5) == 0 && strcmp(name + 5, fuzzers[chosen].name) == 0) return 0;
    fprintf(stderr, "call this program fuzz_NAME, with one of these names:");
    for (int i = 0; i < count; i++) fprintf(stderr, " %s", fuzzers[i].name);
    fprintf(stderr, "\n");
    exit(ERROR_USAGE);
}

/* Which of the first descriptors are open, found by a single call: the entry function must close what it
 * opens. */
static void find_open(bool open[DESCRIPTORS]) {
    struct pollfd looks[DESCRIPTORS];
    for (int i = 0; i < DESCRIPTORS; i++) looks[i] = (struct pollfd){.fd = i};
    must(poll(looks, DESCRIPTORS, 0) >= 0);
    for (int i = 0; i < DESCRIPTORS; i++) open[i] = !(looks[i].revents & POLLNVAL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    bool before[DESCRIPTORS], after[DESCRIPTORS];
    find_open(before);
    fuzzers[chosen].entry(data, size);
    scratch_clear(); // otherwise libFuzzer would look for a leak
    find_open(after);
    const bool all_closed = memcmp(before, after, sizeof before) == 0;
    must(all_closed);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
    return fuzzers[chosen].mutate ? fuzzers[chosen].mutate(data, size, most, seed)
                                  : LLVMFuzzerMutate(data, size, most);
}

void fuzz_broken(const char *promise, const char *file, int line) {
    fprintf(stderr, "%s:%d: broken: %s\n", file, line, promise);
    abort();
}

void must_refuse(Status status, ErrorCode code) {
    must(status_code(status) == code);
    must(!strpbrk(status_message(status), "\n\r\033"));
    status_free(status);
}

Tokenizer *fuzz_tokenizer(void) {
    static Tokenizer *tokenizer;
    static char *path = "scratch/letters";
    if (tokenizer) return tokenizer;
    scratch_put("letters", "a b c", 5);
    must(!tokenizer_train(&(PathList){&path, 1, 0}, TRAINED_LEAST, &tokenizer));
    return tokenizer;
}
