#include "data/tokens.h"

#include "base/directories.h"
#include "base/memory.h"
#include "data/shard.h"
#include "data/tokens_text.h"

#include <string.h>

struct TokenSource {
    TokenPart *parts;
    int64_t part_count, count, vocab, text_bytes;
    char *raw; // tokens_raw
};

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
    const TokenizeOptions how = {options->tokenizer, options->field, options->cache};
    Status status = tokenize_texts(texts, name, &how, &s->parts[0], &s->text_bytes);
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
