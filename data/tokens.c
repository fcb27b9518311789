#include "data/tokens.h"

#include "base/memory.h"
#include "data/tokens_internal.h"

#include <string.h>

static Status fail_memory(const char *path) {
    return fail(ERROR_MEMORY, "no memory left for %s", path);
}

/* ---- shards ---- */

Status shard_check(const uint8_t *data, int64_t size, const char *name, int64_t *count) {
    int32_t header[3];
    if (size < SHARD_HEADER_BYTES)
        return fail(ERROR_FORMAT, "%s: a token shard begins with %d bytes of header, but the file has %lld",
                    name, SHARD_HEADER_BYTES, (long long)size);
    memcpy(header, data, sizeof header);
    if (header[0] != SHARD_MAGIC)
        return fail(ERROR_FORMAT, "%s is no token shard: it begins with %d, not %d", name, header[0],
                    SHARD_MAGIC);
    if (header[1] != SHARD_VERSION)
        return fail(ERROR_FORMAT, "%s: shard version %d cannot be read, only %d", name, header[1],
                    SHARD_VERSION);
    int64_t expected = SHARD_HEADER_BYTES + 2 * (int64_t)header[2];
    if (header[2] < 0 || size != expected)
        return fail(ERROR_FORMAT,
                    "%s: the header promises %d tokens, %lld bytes in all, but the file has %lld", name,
                    header[2], (long long)expected, (long long)size);
    *count = header[2];
    return OK;
}

static Status open_shards(TokenSource *source, const PathList *files) {
    for (int64_t i = 0; i < files->count; i++) {
        TokenPart *part = &source->parts[source->part_count++];
        part->name = memory_text(files->paths[i]);
        if (!part->name) return fail_memory(files->paths[i]);
        TRY(file_map(part->name, &part->map));
        TRY(shard_check(part->map.data, part->map.size, part->name, &part->count));
        part->tokens = part->map.data + SHARD_HEADER_BYTES;
        part->first = source->count;
        source->count += part->count;
    }
    return OK;
}

/* ---- opening ---- */

static Status source_new(const TokenOptions *options, int64_t parts, TokenSource **source) {
    TokenSource *s = memory_allocate(sizeof *s);
    if (s) s->parts = memory_array((size_t)parts, sizeof *s->parts);
    if (!s || !s->parts) {
        memory_free(s);
        return fail(ERROR_MEMORY, "no memory left for the token source");
    }
    s->text_bytes = -1;
    s->vocab = options->vocab > 0   ? options->vocab
               : options->tokenizer ? tokenizer_vocab(options->tokenizer)
                                    : UINT16_MAX + 1;
    *source = s;
    return OK;
}

void tokens_close(TokenSource *source) {
    if (!source) return;
    for (int64_t i = 0; i < source->part_count; i++) {
        memory_free(source->parts[i].name);
        memory_free(source->parts[i].owned);
        file_unmap(&source->parts[i].map);
    }
    memory_free(source->parts);
    memory_free(source);
}

Status tokens_open_texts(const PathList *texts, const char *name, const TokenOptions *options,
                         TokenSource **source) {
    *source = NULL;
    TokenSource *s;
    TRY(source_new(options, 1, &s));
    Status status = open_texts(s, texts, name, options);
    if (status)
        tokens_close(s);
    else
        *source = s;
    return status;
}

Status tokens_find_files(const char *path, PathList *files) {
    PathKind kind;
    TRY(path_kind(path, &kind));
    TRY(kind == PATH_FOLDER ? directory_list(path, files) : path_glob(path, files));
    if (files->count == 0 && kind == PATH_FILE) { /* a name with brackets that is no pattern */
        files->paths = memory_array(1, sizeof *files->paths);
        if (!files->paths || !(files->paths[0] = memory_text(path))) return fail_memory(path);
        files->count = 1;
    }
    Status status = OK;
    int64_t kept = 0;
    for (int64_t i = 0; i < files->count; i++) {
        if (!status) status = path_kind(files->paths[i], &kind);
        if (!status && kind == PATH_FOLDER)
            memory_free(files->paths[i]);
        else
            files->paths[kept++] = files->paths[i];
    }
    files->count = kept;
    TRY(status);
    if (kept == 0) return fail(ERROR_FILE, "no data at %s: there is no such file", path);
    return OK;
}

Status tokens_open(const char *path, const TokenOptions *options, TokenSource **source) {
    *source = NULL;
    PathList files = {0};
    TokenSource *s = NULL;
    Status status = tokens_find_files(path, &files);
    int64_t shards = 0;
    for (int64_t i = 0; i < files.count; i++) shards += path_ends_with(files.paths[i], ".bin");
    if (!status && shards > 0 && shards < files.count)
        status = fail(ERROR_USAGE,
                      "%s has both token shards (.bin) and texts: name one kind, as in \"*.bin\"", path);
    if (!status && shards == 0) {
        status = tokens_open_texts(&files, path, options, source);
    } else if (!status) {
        status = source_new(options, files.count, &s);
        if (!status) status = open_shards(s, &files);
        if (status)
            tokens_close(s);
        else
            *source = s;
    }
    path_list_free(&files);
    return status;
}

/* ---- reading ---- */

int64_t tokens_count(const TokenSource *source) {
    return source->count;
}
int64_t tokens_text_bytes(const TokenSource *source) {
    return source->text_bytes;
}

/* The part that holds token `offset`: the last that begins at or before it. */
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

Status tokens_read(const TokenSource *source, int64_t offset, int64_t count, int32_t *out) {
    if (offset < 0 || count < 0 || offset > source->count - count)
        return fail(ERROR_INTERNAL, "%lld tokens asked for from %lld on, of %lld", (long long)count,
                    (long long)offset, (long long)source->count);
    while (count > 0) {
        const TokenPart *part = find_part(source, offset);
        int64_t from = offset - part->first;
        int64_t here = part->count - from < count ? part->count - from : count;
        for (int64_t i = 0; i < here; i++) {
            uint16_t token;
            memcpy(&token, part->tokens + 2 * (from + i), sizeof token);
            if (token >= source->vocab)
                return fail(ERROR_FORMAT, "%s: token %lld is %d, outside the vocabulary of %lld", part->name,
                            (long long)(from + i), token, (long long)source->vocab);
            out[i] = token;
        }
        out += here;
        offset += here;
        count -= here;
    }
    return OK;
}
