#include "data/tokens_text.h"

#include "base/directories.h"
#include "base/memory.h"
#include "data/digest.h"
#include "base/hash.h"
#include "data/lines.h"
#include "data/text_map.h"

#include <stdio.h>
#include <string.h>

enum {
    STEP_TOKENS = 1 << 18, // tokenized between two writes
    HEADER_HASH = 3,       // index of the text's hash in the int32 header, which llm.c ignores
    HEADER_DIGEST = 5,     // index of the tokens' digest in that header
};

/* Texts being tokenized. With a `writer`, `memory` is a buffer for it, else it receives all tokens. */
typedef struct {
    const char *name;
    const PathList *files;
    FileMap *maps; // (files->count)
    Tokenizer *tokenizer;
    const char *field; // key of the texts in JSON lines; "": plain texts
    TokenList list;    // tokens not yet stored
    int64_t texts;     // texts tokenized so far
    uint64_t hash;
    FileWriter *writer;
    Digest *digest;      // digest of the tokens that were written
    uint8_t *memory;     // tokens of `width` bytes each
    int64_t width;       // 2, or 4 if the tokenizer's ids need it
    int64_t room, count; // tokens
} TextJob;

static Status map_texts(TextJob *job, int64_t *bytes) {
    job->maps = memory_array((size_t)job->files->count, sizeof *job->maps);
    job->hash = tokenizer_hash(job->tokenizer);
    *bytes = 0;
    for (int64_t i = 0; i < job->files->count; i++) {
        const char *path = job->files->paths[i];
        TRY(text_map(path, &job->maps[i]));
        *bytes += job->maps[i].size;
        job->hash = hash_bytes(job->hash, path_name(path), strlen(path_name(path)));
        job->hash = hash_bytes(job->hash, job->maps[i].data, (size_t)job->maps[i].size);
    }
    if (!*job->field) return OK;
    job->hash = hash_bytes(job->hash, job->field, strlen(job->field));
    *bytes = -1;
    return OK;
}

/* Stores the tokens of `list` and empties it. */
static Status put_tokens(TextJob *job, TokenList *list) {
    if (list->count == 0) return OK;
    if (job->count + list->count > INT32_MAX)
        return fail(ERROR_FORMAT, "%s has over %d tokens: split it into several shards", job->name,
                    INT32_MAX);
    /* With a writer the memory is reused, otherwise tokens are appended. */
    int64_t from = job->writer ? 0 : job->count;
    job->memory = memory_grow(job->memory, &job->room, from + list->count, (size_t)job->width);
    uint8_t *to = job->memory + from * job->width; // little-endian: the lowest bytes of an id come first
    for (int64_t i = 0; i < list->count; i++) memcpy(to + i * job->width, &list->ids[i], (size_t)job->width);
    int64_t bytes = list->count * job->width;
    job->count += list->count;
    list->count = 0;
    if (!job->writer) return OK;
    digest_add(job->digest, job->memory, (size_t)bytes);
    return file_writer_append(job->writer, job->memory, bytes);
}

/* Tokenizes a text, with the separator between it and the previous one. */
static Status tokenize_text(TextJob *job, const void *text, int64_t length) {
    EncodeCursor cursor = {.text = text, .length = length};
    int32_t end = tokenizer_end_of_text(job->tokenizer);
    bool first = job->texts++ == 0;
    if (!first && end >= 0)
        token_list_add(&job->list, end);
    else if (!first)
        TRY(tokenizer_encode(job->tokenizer, "\n", 1, &job->list));
    do {
        TRY(tokenizer_encode_step(job->tokenizer, &cursor, STEP_TOKENS, &job->list));
        TRY(put_tokens(job, &job->list));
    } while (cursor.offset < cursor.length);
    return OK;
}

static Status tokenize_line(void *context, const json_t *object) {
    TextJob *job = context;
    const char *text;
    int64_t length;
    TRY(json_line_text(object, job->field, &text, &length));
    return tokenize_text(job, text, length);
}

static Status tokenize(TextJob *job) {
    for (int64_t i = 0; i < job->files->count; i++)
        TRY(*job->field ? json_lines_read(job->files->paths[i], tokenize_line, job)
                        : tokenize_text(job, job->maps[i].data, job->maps[i].size));
    return OK;
}

/* ---- the cached shard ---- */

/* Maps the cached shard if it is valid and belongs to this text; otherwise leaves `part` without tokens. */
static void try_cached(TokenPart *part, uint64_t hash) {
    uint64_t kept, digest;
    Status status = shard_map(part);
    if (!status) {
        memcpy(&kept, part->map.data + HEADER_HASH * sizeof(int32_t), sizeof kept);
        memcpy(&digest, part->map.data + HEADER_DIGEST * sizeof(int32_t), sizeof digest);
        if (kept == hash && digest == digest_bytes(part->tokens, (size_t)(part->width * part->count))) return;
    }
    status_free(status); /* missing or invalid: it is written again */
    file_unmap(&part->map);
    part->tokens = NULL;
    part->count = 0;
}

static Status write_shard(TextJob *job) {
    bool wide = job->width > (int64_t)sizeof(uint16_t);
    int32_t header[SHARD_HEADER_BYTES / sizeof(int32_t)] = {wide ? SHARD_MAGIC_WIDE : SHARD_MAGIC,
                                                            wide ? SHARD_VERSION_WIDE : SHARD_VERSION};
    TRY(file_writer_append(job->writer, header, sizeof header));
    TRY(tokenize(job));
    uint64_t digest = digest_value(job->digest);
    header[2] = (int32_t)job->count;
    memcpy(&header[HEADER_HASH], &job->hash, sizeof job->hash);
    memcpy(&header[HEADER_DIGEST], &digest, sizeof digest);
    return file_writer_write_at(job->writer, 0, header, sizeof header);
}

/* "folder/name.hash.bin", with the last component of the text's path. */
static char *cached_path(const TextJob *job, const char *folder) {
    char name[128];
    const char *last = path_name(job->name);
    snprintf(name, sizeof name, "%.80s.%016llx.bin", *last ? last : "text", (unsigned long long)job->hash);
    for (char *at = name; *at; at++)
        if (strchr("*?[]", *at)) *at = '_'; /* special characters of a pattern */
    return path_join(folder, name);
}

static Status read_kept(TextJob *job, TokenPart *part, const char *folder) {
    part->name = cached_path(job, folder);
    try_cached(part, job->hash);
    if (part->tokens) return OK;
    TRY(directory_make(folder));
    TRY(file_writer_open(part->name, &job->writer));
    job->digest = digest_open();
    TRY(file_writer_finish(job->writer, write_shard(job)));
    try_cached(part, job->hash);
    return part->tokens ? OK : fail(ERROR_FILE, "%s was written but cannot be read back", part->name);
}

static Status read_into_memory(TextJob *job, TokenPart *part) {
    part->name = memory_text(job->name);
    Status status = tokenize(job);
    part->owned = job->memory;
    part->tokens = part->owned;
    part->width = job->width;
    job->memory = NULL;
    part->count = job->count;
    return status;
}

static void close_job(TextJob *job) {
    for (int64_t i = 0; i < job->files->count && job->maps; i++) file_unmap(&job->maps[i]);
    token_list_free(&job->list);
    digest_close(job->digest);
    memory_free(job->maps);
    memory_free(job->memory);
}

Status tokenize_texts(const PathList *texts, const char *name, const TokenizeOptions *o, TokenPart *part,
                      int64_t *bytes) {
    if (!o->tokenizer)
        return fail(ERROR_USAGE,
                    "%s is text, which a tokenizer reads: --tokenizer=FOLDER, or --tokenizer=bytes", name);
    bool wide = tokenizer_vocab(o->tokenizer) > SHARD_NARROW_VOCAB;
    CLOSED_BY(close_job)
    TextJob job = {.name = name,
                   .files = texts,
                   .tokenizer = o->tokenizer,
                   .field = o->field ? o->field : "",
                   .width = wide ? sizeof(uint32_t) : sizeof(uint16_t)};
    TRY(map_texts(&job, bytes));
    return o->cache ? read_kept(&job, part, o->cache) : read_into_memory(&job, part);
}
