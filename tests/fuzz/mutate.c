/* Mutations that keep the parts that a reader checks first: for safetensors the length of the header, the
 * offsets of tensors and the digests; for a folder the marks between its files. One in eight keeps
 * nothing. */
#define _GNU_SOURCE
#include "base/memory.h"
#include "data/digest.h"
#include "data/safetensors_internal.h"
#include "tests/fuzz/fuzz.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { HEADER_MOST = 1 << 16, TEXT = 64 };

unsigned fuzz_draw(unsigned *seed, unsigned below) {
    *seed = *seed * 1664525 + 1013904223;
    return (unsigned)((uint64_t)*seed * below >> 32);
}

/* ---- the header's members ---- */

/* The member at a random position; its key is a copy, which the caller frees. */
static json_t *pick(json_t *object, unsigned *seed, char **key) {
    size_t at = json_object_size(object) ? fuzz_draw(seed, (unsigned)json_object_size(object)) : 0;
    void *member = json_object_iter(object);
    while (at-- > 0) member = json_object_iter_next(object, member);
    *key = member ? memory_text(json_object_iter_key(member)) : NULL;
    return member ? json_object_iter_value(member) : NULL;
}

/* A text changed by libFuzzer if the result is UTF-8; else NULL. */
static json_t *changed_text(const char *text) {
    char bytes[TEXT] = "";
    snprintf(bytes, sizeof bytes, "%s", text);
    size_t length = LLVMFuzzerMutate((uint8_t *)bytes, strlen(bytes), TEXT - 1);
    return json_stringn(bytes, length);
}

static void change_shape(json_t *shape, unsigned *seed) {
    static const int64_t sides[] = {0, 1, 2, 3, 4, 7, 8, 16, 255, INT32_MAX, INT64_MAX, -1};
    json_t *side = json_integer(sides[fuzz_draw(seed, sizeof sides / sizeof *sides)]);
    size_t rank = json_array_size(shape), at = rank ? fuzz_draw(seed, (unsigned)rank) : 0;
    switch (fuzz_draw(seed, 3)) {
    case 0: json_array_insert_new(shape, at, side); break;
    case 1: json_array_set_new(shape, at, side); break;
    default: json_array_remove(shape, at), json_decref(side);
    }
}

static void change_entry(json_t *entry, unsigned *seed) {
    SafetensorsType type = (SafetensorsType)fuzz_draw(seed, SAFE_TYPE_COUNT);
    switch (fuzz_draw(seed, 6)) {
    case 0: json_object_set_new(entry, "dtype", json_string(safetensors_type_name(type))); break;
    case 1: json_object_set_new(entry, "dtype", changed_text("F32")); break;
    case 2: json_object_set_new(entry, "more", json_pack("[{s:f}, n]", "x", 1.5)); break;
    case 3: json_object_del(entry, fuzz_draw(seed, 2) ? "dtype" : "shape"); break;
    default: change_shape(json_object_get(entry, "shape"), seed);
    }
}

static void change_header(json_t *header, unsigned *seed) {
    char *key;
    json_t *member = pick(header, seed, &key), *name = changed_text(key ? key : "a");
    switch (fuzz_draw(seed, 6)) {
    case 0:
        if (key) json_object_del(header, key);
        break;
    case 1:
        if (name && member) json_object_set_new(header, json_string_value(name), json_deep_copy(member));
        break;
    case 2: json_object_set_new(header, "new", json_pack("{s:s, s:[i]}", "dtype", "BF16", "shape", 3)); break;
    case 3:
        if (name && !json_object_get(header, "__metadata__"))
            json_object_set_new(header, "__metadata__", json_object());
        if (name) json_object_set(json_object_get(header, "__metadata__"), "note", name);
        break;
    default: change_entry(member, seed);
    }
    json_decref(name);
    memory_free(key);
}

/* ---- consistency ---- */

/* The bytes of an entry, 0 if they are invalid. */
static int64_t bytes_of(const json_t *entry) {
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    int64_t bytes = 0;
    size_t i;
    json_t *side;
    for (int type = 0; dtype && type < SAFE_TYPE_COUNT; type++)
        if (strcmp(safetensors_type_name((SafetensorsType)type), dtype) == 0)
            bytes = safetensors_type_size((SafetensorsType)type);
    json_array_foreach(json_object_get(entry, "shape"), i,
                       side) if (json_integer_value(side) < 0 ||
                                 __builtin_mul_overflow(bytes, json_integer_value(side), &bytes)) return 0;
    return bytes;
}

/* Lays out tensors one after another, occasionally with an error. Returns the end of the last. */
static int64_t lay_out(json_t *header, unsigned *seed) {
    int64_t at = 0;
    const char *key;
    json_t *entry;
    unsigned wrong =
        fuzz_draw(seed, 8) ? UINT32_MAX : fuzz_draw(seed, (unsigned)json_object_size(header) + 1);
    json_object_foreach(header, key, entry) {
        int64_t bytes = bytes_of(entry), end = bytes > HEADER_MOST - at ? at : at + bytes;
        int64_t off = wrong-- == 0 ? (int64_t)fuzz_draw(seed, 9) - 4 : 0;
        if (strcmp(key, "__metadata__") == 0) continue;
        json_object_set_new(entry, "data_offsets", json_pack("[I, I]", at + off, end));
        at = end;
    }
    return at;
}

static void set_digits(json_t *notes, const char *key, uint64_t value) {
    char digits[SAFETENSORS_DIGITS + 1];
    snprintf(digits, sizeof digits, "%016" PRIx64, value);
    json_object_set_new(notes, key, json_string(digits));
}

/* Sets the digests of a file that has any, or gets some. */
static void set_digests(json_t *header, const uint8_t *data) {
    json_t *notes = json_object_get(header, "__metadata__"), *entry, *copy = json_deep_copy(notes);
    const char *key;
    char name[TEXT + 256];
    json_object_foreach(copy, key,
                        entry) if (strncmp(key, SAFETENSORS_DIGEST, sizeof SAFETENSORS_DIGEST - 1) == 0)
        json_object_del(notes, key);
    json_decref(copy);
    json_object_foreach(header, key, entry) {
        const json_t *offsets = json_object_get(entry, "data_offsets");
        int64_t begin = json_integer_value(json_array_get(offsets, 0));
        int64_t end = json_integer_value(json_array_get(offsets, 1));
        if (!offsets || snprintf(name, sizeof name, SAFETENSORS_DIGEST ".%s", key) >= (int)sizeof name)
            continue;
        set_digits(notes, name,
                   begin < 0 || end < begin ? 0 : digest_bytes(data + begin, (size_t)(end - begin)));
    }
    set_digits(notes, SAFETENSORS_DIGEST, 0);
    static const char before[] = "\"" SAFETENSORS_DIGEST "\":\"";
    char *text = json_dumps(header, JSON_COMPACT), *digits = text ? strstr(text, before) : NULL;
    if (digits)
        set_digits(notes, SAFETENSORS_DIGEST,
                   safetensors_header_digest((uint8_t *)text, (int64_t)strlen(text),
                                             (uint8_t *)digits + sizeof before - 1));
    memory_free(text);
}

/* ---- a file ---- */

static void put_length(uint8_t *data, size_t length) {
    for (int i = 0; i < 8; i++) data[i] = (uint8_t)((uint64_t)length >> 8 * i);
}

/* Mutates the header as text, and updates its length. */
static size_t mutate_text(uint8_t *data, size_t size, size_t length, size_t most) {
    size_t rest = size - 8 - length;
    uint8_t *tail = memory_allocate(rest + 1);
    memcpy(tail, data + 8 + length, rest);
    length = LLVMFuzzerMutate(data + 8, length, most - 8 - rest);
    put_length(data, length);
    memcpy(data + 8 + length, tail, rest);
    memory_free(tail);
    return 8 + length + rest;
}

/* Writes header and elements again if they fit. */
static size_t write_again(json_t *header, uint8_t *data, size_t size, size_t first, size_t most,
                          unsigned *seed) {
    uint8_t *elements = memory_allocate(HEADER_MOST + 16);
    size_t old = size - first < HEADER_MOST ? size - first : HEADER_MOST;
    memcpy(elements, data + first, old);
    size_t bytes = (size_t)lay_out(header, seed);
    const json_t *notes = json_object_get(header, "__metadata__");
    if (json_is_object(notes) && fuzz_draw(seed, 4) &&
        (json_object_get(notes, SAFETENSORS_DIGEST) || !fuzz_draw(seed, 8)))
        set_digests(header, elements);
    size_t length = json_dumpb(header, (char *)data + 8, most - 8, JSON_COMPACT | JSON_ENCODE_ANY);
    if (length && 8 + length + bytes <= most) {
        put_length(data, length);
        memcpy(data + 8 + length, elements, bytes);
        size = 8 + length + bytes;
    } else {
        size = LLVMFuzzerMutate(data, size, most); /* overwrites what was dumped */
    }
    memory_free(elements);
    return size;
}

size_t mutate_safetensors(uint8_t *data, size_t size, size_t most, unsigned seed) {
    unsigned how = fuzz_draw(&seed, 8);
    uint64_t length = 0;
    for (int i = 0; i < 8 && size > 8; i++) length |= (uint64_t)data[i] << 8 * i;
    if (how == 0 || length < 2 || length > size - 8) return LLVMFuzzerMutate(data, size, most);
    if (how == 1) return mutate_text(data, size, (size_t)length, most);
    size_t first = 8 + (size_t)length;
    json_t *header = json_loadb((const char *)data + 8, (size_t)length, 0, NULL);
    if (!json_is_object(header)) {
        json_decref(header);
        return mutate_text(data, size, (size_t)length, most);
    }
    if (how < 5 && first < size)
        LLVMFuzzerMutate(data + first, size - first, size - first);
    else
        for (unsigned times = 1 + fuzz_draw(&seed, 3); times > 0; times--) change_header(header, &seed);
    size = write_again(header, data, size, first, most, &seed);
    json_decref(header);
    return size;
}

/* ---- a folder ---- */

size_t mutate_folder(uint8_t *data, size_t size, size_t most, unsigned seed) {
    const char mark[] = SCRATCH_MARK, weights[] = ".safetensors";
    uint8_t *parts[64], *end = data + size, *at = data;
    unsigned count = 0;
    while (at && count < 64) {
        uint8_t *line = memchr(at, '\n', (size_t)(end - at));
        if (line) parts[count++] = line + 1;
        at = line ? memmem(line + 1, (size_t)(end - line - 1), mark, 4) : NULL;
        if (at) at += 4;
    }
    if (!count || fuzz_draw(&seed, 8) == 0) return LLVMFuzzerMutate(data, size, most);
    uint8_t *from = parts[fuzz_draw(&seed, count)];
    uint8_t *to = memmem(from, (size_t)(end - from), mark, 4);
    if (!to) to = end;
    size_t length = (size_t)(to - from), rest = (size_t)(end - to),
           room = most - (size_t)(from - data) - rest;
    if (!room) return LLVMFuzzerMutate(data, size, most);
    uint8_t *tail = memory_allocate(rest + 1);
    memcpy(tail, to, rest);
    bool tensors = from - data > (int)sizeof weights && memcmp(from - sizeof weights, weights, 12) == 0;
    length = (tensors ? mutate_safetensors : mutate_json)(from, length, room, seed); // or any text
    memcpy(from + length, tail, rest);
    memory_free(tail);
    return (size_t)(from + length + rest - data);
}
