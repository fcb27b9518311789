/* fuzz: what the fuzzers share. They are one program, which is the one that its name says: fuzz_chat. */
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* A door that foreign bytes come through: it takes any, breaks none of its promises, and ends. */
typedef void FuzzDoor(const uint8_t *data, size_t size);
/* Changes an input in place, to at most `most` bytes; returns how many there are then. */
typedef size_t FuzzMutator(uint8_t *data, size_t size, size_t most, unsigned seed);

/* Written once in a door's file. `mutate` may be NULL: bytes are changed wherever they are. */
#define FUZZ(NAME, DOOR, MUTATE)                                                                             \
    __attribute__((constructor)) static void add_##DOOR(void) {                                              \
        fuzz_add(#NAME, DOOR, MUTATE);                                                                       \
    }
void fuzz_add(const char *name, FuzzDoor *door, FuzzMutator *mutate);

/* Ends the fuzzer where a promise is broken, and says which. */
#define must(promise) ((promise) ? (void)0 : fuzz_broken(#promise, __FILE__, __LINE__))
_Noreturn void fuzz_broken(const char *promise, const char *file, int line);
/* What a reader refuses it refuses with this code and in one line that a terminal may show. Frees it. */
void must_refuse(Status status, ErrorCode code);

/* libFuzzer's own mutation, which knows the dictionary and what was compared. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);

/* A safetensors file, as its fields: what is changed gets lengths, offsets and digests that fit, but for now
 * and then. */
size_t mutate_safetensors(uint8_t *data, size_t size, size_t most, unsigned seed);
/* JSON, as JSON, one time of two; what is none as any text. */
size_t mutate_json(uint8_t *data, size_t size, size_t most, unsigned seed);
/* An input of scratch_unpack: one of its files, by what it is. */
size_t mutate_folder(uint8_t *data, size_t size, size_t most, unsigned seed);
unsigned fuzz_draw(unsigned *seed, unsigned below); // the next of a row of random numbers

/* ---- a folder that only memory has ---- */

/* What base/files.h reads and writes below this folder lies in memory, and what is mapped ends where the file
 * does: whoever reads on is caught. All else is the system's. */
#define SCRATCH "scratch"

void scratch_clear(void); // behind each input
/* `name` is below the folder; a file of this name is replaced. */
void scratch_put(const char *name, const void *data, size_t size);
/* NULL where there is none; valid until the next is put. */
const uint8_t *scratch_get(const char *name, size_t *size);

/* An input of several files, in the place of all: each begins behind a line "%% NAME". */
#define SCRATCH_MARK "\n%% "
void scratch_unpack(const uint8_t *data, size_t size);

/* ---- shared by doors ---- */

extern FILE *fuzz_nowhere; // /dev/null, open before the first input: a door leaves no descriptor behind

struct Tokenizer;
/* The smallest that is trained: a byte is a token, and there are <pad>, <s>, </s> and <mask>. Made once. */
struct Tokenizer *fuzz_tokenizer(void);
