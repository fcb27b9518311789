#include "data/tokens.h"

#include "base/directories.h"
#include "base/hash.h"
#include "base/memory.h"
#include "data/digest.h"
#include "data/lines.h"
#include "data/shard.h"
#include "data/text_map.h"

#include <stdio.h>
#include <string.h>

enum {
    STEP_TOKENS = 1 << 18, // tokenized between two writes
    HEADER_HASH = 3,       // index of the text's hash in the int32 header, which llm.c ignores
    HEADER_DIGEST = 5,     // index of the tokens' digest in that header
};

struct TokenSource {
    TokenPart *parts;
    int64_t part_count, count, vocab, text_bytes;
    char *raw; // tokens_raw
};

/* ---- tokenizing texts ---- */

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

/* Fills the all-zero `part` with the tokens of the texts: from the cached shard if it fits, else by tokenizing.
 * `bytes` is set to the texts' size, or -1 for JSON lines. After an error, token_part_close frees `part`. */
static Status tokenize_texts(const PathList *texts, const char *name, const TokenOptions *o, TokenPart *part,
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

/* ---- opening ---- */

static TokenSource *source_new(const TokenOptions *options, int64_t parts) {
    TokenSource *s = memory_allocate(sizeof *s);
    s->parts = memory_array((size_t)parts, sizeof *s->parts);
    s->text_bytes = -1;
    s->vocab = options->vocab > 0   ? options->vocab
               : options->tokenizer ? tokenizer_vocab(options->tokenizer)
                                    : SHARD_NARROW_VOCAB;
    return s;
}

void tokens_close(TokenSource *source) {
    if (!source) return;
    for (int64_t i = 0; i < source->part_count; i++) token_part_close(&source->parts[i]);
    memory_free(source->parts);
    memory_free(source->raw);
    memory_free(source);
}

/* Returns the source, or closes it on an error. */
static Status finish(Status status, TokenSource *filled, TokenSource **source) {
    *source = status ? NULL : filled;
    if (status) tokens_close(filled);
    return status;
}

static Status open_shards(const PathList *files, TokenSource *s) {
    for (int64_t i = 0; i < files->count; i++) {
        TokenPart *part = &s->parts[s->part_count++];
        part->name = memory_text(files->paths[i]);
        TRY(shard_map(part));
        part->first = s->count;
        s->count += part->count;
    }
    return OK;
}

static bool looks_raw(const char *path) {
    static const char *const endings[] = {".csv", ".tsv", ".json", ".jsonl"};
    OWNED char *name = memory_text_slice(path, strlen(path) - (path_ends_with(path, ".gz") ? 3 : 0));
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (path_ends_with(name, endings[i])) return true;
    return false;
}

Status tokens_open_texts(const PathList *texts, const char *name, const TokenOptions *options,
                         TokenSource **source) {
    TokenSource *s = source_new(options, 1);
    s->part_count = 1;
    Status status = tokenize_texts(texts, name, options, &s->parts[0], &s->text_bytes);
    s->count = s->parts[0].count;
    if (!status && s->count == 0) status = fail(ERROR_FORMAT, "%s is empty", name);
    for (int64_t i = 0; i < texts->count && s->text_bytes >= 0 && !s->raw; i++)
        if (looks_raw(texts->paths[i])) s->raw = memory_text(texts->paths[i]);
    return finish(status, s, source);
}

/* Adds the files for one name of a list. */
static Status find_named(const char *path, PathList *files) {
    PathKind named, kind;
    TRY(path_kind(path, &named));
    CLOSED_BY(path_list_free) PathList all = {0};
    TRY(named == PATH_FOLDER ? directory_list(path, &all) : path_glob(path, &all));
    if (all.count == 0 && named == PATH_FILE) /* a file name with brackets, not a pattern */
        path_list_add(&all, memory_text(path));
    int64_t before = files->count;
    for (int64_t i = 0; i < all.count; i++) {
        TRY(path_kind(all.paths[i], &kind));
        if (kind != PATH_FOLDER) path_list_add(files, memory_text(all.paths[i]));
    }
    if (files->count > before) return OK;
    return fail(ERROR_FILE,
                named == PATH_FOLDER ? "no data in %s: the folder holds no files"
                                     : "no data at %s: there is no such file",
                path);
}

Status tokens_find_files(const char *path, PathList *files) {
    PathKind kind;
    TRY(path_kind(path, &kind));
    if (!strchr(path, ',') || kind != PATH_ABSENT) return find_named(path, files);
    for (const char *at = path; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        OWNED char *name = memory_text_slice(at, strcspn(at, ","));
        TRY(find_named(name, files));
    }
    return OK;
}

Status tokens_open(const char *path, const TokenOptions *options, TokenSource **source) {
    *source = NULL;
    CLOSED_BY(path_list_free) PathList files = {0};
    TRY(tokens_find_files(path, &files));
    int64_t shards = 0;
    for (int64_t i = 0; i < files.count; i++) shards += path_ends_with(files.paths[i], ".bin");
    if (shards == 0) return tokens_open_texts(&files, path, options, source);
    if (shards < files.count)
        return fail(ERROR_USAGE, "%s has both token shards (.bin) and texts: name one kind, as in \"*.bin\"",
                    path);
    TokenSource *s = source_new(options, files.count);
    return finish(open_shards(&files, s), s, source);
}

/* ---- reading ---- */

int64_t tokens_count(const TokenSource *source) {
    return source->count;
}
int64_t tokens_text_bytes(const TokenSource *source) {
    return source->text_bytes;
}
const char *tokens_raw(const TokenSource *source) {
    return source->raw;
}

/* The part that contains token `offset`: the last part that begins at or before it. */
static const TokenPart *find_part(const TokenSource *source, int64_t offset) {
    int64_t low = 0, high = source->part_count;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (source->parts[middle].first <= offset)
            low = middle;
        else
            high = middle;
    }
    return &source->parts[low];
}

/* Token `index` of a part. */
static int64_t token_at(const TokenPart *part, int64_t index) {
    uint16_t narrow;
    uint32_t wide;
    if (part->width == sizeof narrow) {
        memcpy(&narrow, part->tokens + index * (int64_t)sizeof narrow, sizeof narrow);
        return narrow;
    }
    memcpy(&wide, part->tokens + index * (int64_t)sizeof wide, sizeof wide);
    return wide;
}

Status tokens_read(const TokenSource *source, int64_t offset, int64_t count, int32_t *out) {
    if (offset < 0 || count < 0 || offset > source->count - count)
        return fail(ERROR_INTERNAL, "%lld tokens asked for from %lld on, of %lld", (long long)count,
                    (long long)offset, (long long)source->count);
    while (count > 0) {
        const TokenPart *part = find_part(source, offset);
        int64_t from = offset - part->first;
        int64_t here = part->count - from < count ? part->count - from : count;
        for (int64_t i = 0; i < here; i++) {
            int64_t token = token_at(part, from + i);
            if (token >= source->vocab)
                return fail(ERROR_FORMAT, "%s: token %lld is %lld, outside the vocabulary of %lld",
                            part->name, (long long)(from + i), (long long)token, (long long)source->vocab);
            out[i] = (int32_t)token;
        }
        out += here;
        offset += here;
        count -= here;
    }
    return OK;
}
