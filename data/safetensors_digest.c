/* The digests of a safetensors file: of its header and of each tensor. */
#include "base/memory.h"
#include "data/digest.h"
#include "data/safetensors_internal.h"

#include <stdlib.h>
#include <string.h>

static const char own_key[] = SAFETENSORS_DIGEST, prefix[] = SAFETENSORS_DIGEST ".";
enum { PREFIX = sizeof prefix - 1 };

uint64_t safetensors_header_digest(const uint8_t *text, int64_t length, const uint8_t *digits) {
    static const char zeros[] = "0000000000000000";
    const uint8_t *rest = digits + SAFETENSORS_DIGITS;
    Digest *digest = digest_open();
    digest_add(digest, text, (size_t)(digits - text));
    digest_add(digest, zeros, SAFETENSORS_DIGITS);
    digest_add(digest, rest, (size_t)(text + length - rest));
    uint64_t value = digest_value(digest);
    digest_close(digest);
    return value;
}

static bool is_digest(const char *key) {
    return strcmp(key, own_key) == 0 || strncmp(key, prefix, PREFIX) == 0;
}

static int compare_keys(const void *a, const void *b) {
    return strcmp(((const SafetensorsNote *)a)->key, ((const SafetensorsNote *)b)->key);
}

static bool parse_digits(const char *text, uint64_t *value) {
    *value = strtoull(text, NULL, 16);
    return strlen(text) == SAFETENSORS_DIGITS && strspn(text, "0123456789abcdef") == SAFETENSORS_DIGITS;
}

/* `notes` are sorted, so the digests among them have the order of the entries. */
static Status match(SafetensorsEntry *entries, int64_t count, const SafetensorsNote *notes,
                    int64_t note_count, const SafetensorsPart *part) {
    int64_t matched = 0;
    for (int64_t i = 0; i < note_count; i++) {
        if (strncmp(notes[i].key, prefix, PREFIX) != 0) continue;
        SafetensorsEntry *entry = matched < count ? &entries[matched++] : NULL;
        if (!entry || strcmp(entry->name, notes[i].key + PREFIX) != 0 ||
            !parse_digits(notes[i].value, &entry->digest))
            return fail(ERROR_FORMAT, "%s: '%.80s' is not a valid digest of a tensor; the file is damaged",
                        part->path, notes[i].key);
        entry->digested = true;
    }
    if (matched == 0 && !part->header_digest) return OK;
    if (matched == count && part->header_digest) return OK;
    return fail(ERROR_FORMAT, "%s has digests, but not all of them; the file is damaged", part->path);
}

static Status check_header(const SafetensorsPart *part, const uint8_t *text, int64_t length) {
    char digits[SAFETENSORS_DIGITS + 1] = "";
    uint64_t said;
    if (!part->header_digest) return OK;
    memcpy(digits, part->header_digest, SAFETENSORS_DIGITS);
    if (parse_digits(digits, &said) && said == safetensors_header_digest(text, length, part->header_digest))
        return OK;
    return fail(ERROR_FORMAT, "%s: the header does not match its digest; the file is damaged", part->path);
}

static Status check_keys(const SafetensorsNote *sorted, int64_t count, const SafetensorsPart *part) {
    for (int64_t i = 1; i < count; i++)
        if (compare_keys(&sorted[i - 1], &sorted[i]) == 0)
            return fail(ERROR_FORMAT, "%s: a duplicate of __metadata__ '%.80s'", part->path, sorted[i].key);
    return OK;
}

/* Removes digests from the notes, whose order stays, so that notes survive reading and writing. */
static void drop_digests(Safetensors *file, int64_t first_note) {
    int64_t kept = first_note;
    for (int64_t i = first_note; i < file->note_count; i++)
        if (!is_digest(file->notes[i].key)) file->notes[kept++] = file->notes[i];
    file->note_count = kept;
}

Status safetensors_take_digests(Safetensors *file, const SafetensorsPart *part, int64_t first,
                                int64_t first_note, const uint8_t *text, int64_t length) {
    int64_t notes = file->note_count - first_note;
    if (!notes) return OK;
    OWNED SafetensorsNote *sorted = memory_array((size_t)notes, sizeof *sorted);
    memcpy(sorted, file->notes + first_note, (size_t)notes * sizeof *sorted);
    qsort(sorted, (size_t)notes, sizeof *sorted, compare_keys);
    drop_digests(file, first_note);
    TRY(check_keys(sorted, notes, part));
    TRY(check_header(part, text, length));
    return match(file->entries + first, file->count - first, sorted, notes, part);
}

Status safetensors_verify(const SafetensorsEntry *entry) {
    if (!entry->digested || digest_bytes(entry->data, (size_t)entry->bytes) == entry->digest) return OK;
    return fail(ERROR_FORMAT, "tensor '%.80s' does not match its digest; the file is damaged", entry->name);
}

Status safetensors_verify_all(const Safetensors *file) {
    for (int64_t i = 0; i < file->count; i++) TRY(safetensors_verify(&file->entries[i]));
    return OK;
}
