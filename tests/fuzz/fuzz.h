/* fuzz: shared by the fuzzers. They are one program, which acts by its name, such as fuzz_chat. */
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The entry function of a fuzzer: it must accept any input, keep its promises, and terminate. */
typedef void FuzzEntry(const uint8_t *data, size_t size);
/* Changes an input in place, to at most `most` bytes; returns the new size. */
typedef size_t FuzzMutator(uint8_t *data, size_t size, size_t most, unsigned seed);

/* Used once in a fuzzer's file. `mutate` may be NULL: bytes are then changed anywhere. */
#define FUZZ(NAME, DOOR, MUTATE)                                                                             \
    __attribute__((constructor)) static void add_##DOOR(void) {                                              \
        fuzz_add(#NAME, DOOR, MUTATE);                                                                       \
    }
void fuzz_add(const char *name, FuzzEntry *entry, FuzzMutator *mutate);

/* Ends the fuzzer if a promise is broken, and names it. */
#define must(promise) ((promise) ? (void)0 : fuzz_broken(#promise, __FILE__, __LINE__))
_Noreturn void fuzz_broken(const char *promise, const char *file, int line);
/* A reader's error must have this code and a message of one line that is safe for a terminal. Frees it. */
void must_refuse(Status status, ErrorCode code);

/* libFuzzer's own mutation, which uses the dictionary and comparisons it has seen. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);

/* Mutates a safetensors file by fields: lengths, offsets and digests are usually adjusted to fit. */
size_t mutate_safetensors(uint8_t *data, size_t size, size_t most, unsigned seed);
/* Mutates JSON as JSON half of the time; invalid JSON as any text. */
size_t mutate_json(uint8_t *data, size_t size, size_t most, unsigned seed);
/* Mutates an input of scratch_unpack: one of its files, by its kind. */
size_t mutate_folder(uint8_t *data, size_t size, size_t most, unsigned seed);
unsigned fuzz_draw(unsigned *seed, unsigned below); // the next number of a random sequence

/* ---- a folder in memory ---- */

/* Files below this folder, accessed by base/files.h, are in memory, and a mapping ends exactly where its file
 * does, so that reads beyond it are caught. Other files are the system's. */
#define SCRATCH "scratch"

void scratch_clear(void); // called after each input
/* `name` is below the folder; an existing file is replaced. */
void scratch_put(const char *name, const void *data, size_t size);
/* NULL if there is none; valid until the next put. */
const uint8_t *scratch_get(const char *name, size_t *size);

/* Unpacks an input of several files, replacing all: each begins after a line "%% NAME". */
#define SCRATCH_MARK "\n%% "
void scratch_unpack(const uint8_t *data, size_t size);

/* ---- shared by fuzzers ---- */

extern FILE *fuzz_nowhere; // /dev/null, opened before the first input, so that no descriptor is left open

struct Tokenizer;
/* The smallest tokenizer that can be trained: single bytes, <pad>, <s>, </s> and <mask>. Created once. */
struct Tokenizer *fuzz_tokenizer(void);
