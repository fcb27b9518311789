/* Texts become tokens: read from the kept shard if there is one that fits, else made and kept. */
#include "base/memory.h"
#include "data/hash.h"
#include "data/tokens_internal.h"

#include <stdio.h>
#include <string.h>

enum {
    STEP_TOKENS = 1 << 18, // tokenized between two writes
    HEADER_HASH = 3,       // the header's int32 where the 64-bit hash lies, which llm.c does not read
};

static Status fail_memory(const char *name) {
    return fail(ERROR_MEMORY, "no memory left for the tokens of %s", name);
}

/* The texts on their way to tokens, and where those go: to `writer`, or else to `memory`. */
typedef struct {
    const char *name;
    const PathList *files;
    FileMap *maps; // (files->count)
    Tokenizer *tokenizer;
    uint64_t hash;
    FileWriter *writer;
    uint16_t *memory;
    int64_t room, count; // tokens
} TextJob;

static Status map_texts(TextJob *job, int64_t *bytes) {
    job->maps = memory_array((size_t)job->files->count, sizeof *job->maps);
    if (!job->maps) return fail_memory(job->name);
    job->hash = tokenizer_hash(job->tokenizer);
    *bytes = 0;
    for (int64_t i = 0; i < job->files->count; i++) {
        const char *path = job->files->paths[i];
        TRY(file_map(path, &job->maps[i]));
        *bytes += job->maps[i].size;
        job->hash = hash_bytes(job->hash, path_name(path), strlen(path_name(path)));
        job->hash = hash_bytes(job->hash, job->maps[i].data, (size_t)job->maps[i].size);
    }
    return OK;
}

/* Takes the tokens out of `list`. */
static Status put_tokens(TextJob *job, TokenList *list) {
    if (job->count + list->count > INT32_MAX)
        return fail(ERROR_FORMAT, "%s has over %d tokens: split it into several shards", job->name,
                    INT32_MAX);
    uint16_t *narrow = (uint16_t *)list->ids; /* in place: a narrow token never overtakes a wide one */
    if (!job->writer) {
        if (job->room < job->count + list->count) {
            job->room = 2 * (job->count + list->count);
            uint16_t *larger = memory_resize(job->memory, (size_t)job->room * sizeof *larger);
            if (!larger) return fail_memory(job->name);
            job->memory = larger;
        }
        narrow = job->memory + job->count;
    }
    for (int64_t i = 0; i < list->count; i++) {
        int32_t id = list->ids[i];
        memcpy(&narrow[i], &(uint16_t){(uint16_t)id}, sizeof *narrow);
    }
    job->count += list->count;
    int64_t bytes = list->count * (int64_t)sizeof *narrow;
    list->count = 0;
    return job->writer ? file_writer_append(job->writer, narrow, bytes) : OK;
}

static Status tokenize(TextJob *job, TokenList *list) {
    int32_t end = tokenizer_end_of_text(job->tokenizer);
    for (int64_t i = 0; i < job->files->count; i++) {
        EncodeCursor cursor = {.text = job->maps[i].data, .length = job->maps[i].size};
        if (i > 0 && end >= 0)
            TRY(token_list_add(list, end));
        else if (i > 0)
            TRY(tokenizer_encode(job->tokenizer, "\n", 1, list));
        do {
            TRY(tokenizer_encode_step(job->tokenizer, &cursor, STEP_TOKENS, list));
            TRY(put_tokens(job, list));
        } while (cursor.offset < cursor.length);
    }
    return OK;
}

/* ---- the kept shard ---- */

/* Maps the kept shard if it is sound and this text's; otherwise leaves `part` without tokens. */
static void try_kept(TokenPart *part, uint64_t hash) {
    uint64_t kept;
    Status status = file_map(part->name, &part->map);
    if (!status) status = shard_check(part->map.data, part->map.size, part->name, &part->count);
    if (!status) {
        memcpy(&kept, part->map.data + HEADER_HASH * sizeof(int32_t), sizeof kept);
        if (kept == hash) part->tokens = part->map.data + SHARD_HEADER_BYTES;
    }
    status_free(status); /* no such file, or no good: it is written anew */
    if (!part->tokens) file_unmap(&part->map);
}

static Status write_shard(TextJob *job, const char *path) {
    int32_t header[SHARD_HEADER_BYTES / sizeof(int32_t)] = {SHARD_MAGIC, SHARD_VERSION};
    TokenList list = {0};
    TRY(file_writer_open(path, &job->writer));
    Status status = file_writer_append(job->writer, header, sizeof header);
    if (!status) status = tokenize(job, &list);
    token_list_free(&list);
    header[2] = (int32_t)job->count;
    memcpy(&header[HEADER_HASH], &job->hash, sizeof job->hash);
    if (!status) status = file_writer_write_at(job->writer, 0, header, sizeof header);
    if (!status) return file_writer_close(job->writer);
    file_writer_abandon(job->writer);
    return status;
}

/* "folder/name.hash.bin", with the last name of the text's path. */
static Status kept_path(const TextJob *job, const char *folder, char **path) {
    char name[128];
    const char *last = path_name(job->name);
    snprintf(name, sizeof name, "%.80s.%016llx.bin", *last ? last : "text", (unsigned long long)job->hash);
    for (char *at = name; *at; at++)
        if (strchr("*?[]", *at)) *at = '_'; /* of a pattern */
    return path_join(folder, name, path);
}

static Status read_kept(TextJob *job, TokenPart *part, const char *folder) {
    TRY(kept_path(job, folder, &part->name));
    try_kept(part, job->hash);
    if (part->tokens) return OK;
    TRY(directory_make(folder));
    TRY(write_shard(job, part->name));
    try_kept(part, job->hash);
    return part->tokens ? OK : fail(ERROR_FILE, "%s was written but does not read back", part->name);
}

static Status read_into_memory(TextJob *job, TokenPart *part) {
    part->name = memory_text(job->name);
    if (!part->name) return fail_memory(job->name);
    TokenList list = {0};
    Status status = tokenize(job, &list);
    token_list_free(&list);
    part->owned = job->memory;
    part->tokens = part->owned;
    part->count = job->count;
    return status;
}

Status open_texts(TokenSource *source, const PathList *texts, const char *name, const TokenOptions *options) {
    if (!options->tokenizer)
        return fail(ERROR_USAGE, "%s is text: a tokenizer is needed to read it; name one with --tokenizer",
                    name);
    if (tokenizer_vocab(options->tokenizer) > UINT16_MAX + 1)
        return fail(ERROR_FORMAT,
                    "%s: a tokenizer with %d tokens cannot be used on text: at most %d fit a token shard",
                    name, tokenizer_vocab(options->tokenizer), UINT16_MAX + 1);
    TextJob job = {.name = name, .files = texts, .tokenizer = options->tokenizer};
    TokenPart *part = &source->parts[source->part_count++];
    Status status = map_texts(&job, &source->text_bytes);
    if (!status)
        status = options->cache ? read_kept(&job, part, options->cache) : read_into_memory(&job, part);
    if (job.maps)
        for (int64_t i = 0; i < texts->count; i++) file_unmap(&job.maps[i]);
    memory_free(job.maps);
    source->count = part->count;
    return status;
}
