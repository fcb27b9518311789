#include "data/tokenizer_load.h"

#include "base/files.h"
#include "base/memory.h"
#include "data/bpe.h"
#include "data/tokenizer_json.h"
#include "data/wordpiece.h"

/* The files that may describe a tokenizer; the first that are there do. */
static const struct {
    const char *file, *second;
    bool both; // without the second the first means nothing
    Status (*load)(Tokenizer *tokenizer, const char *path, const char *second_path);
} readers[] = {
    {"vocab.json", "merges.txt", true, bpe_load},
    {"tokenizer.json", "", false, tokenizer_load_json},
    {"vocab.txt", "tokenizer_config.json", false, wordpiece_load},
};
enum { READERS = sizeof readers / sizeof *readers };

void tokenizer_load_bytes(Tokenizer *tokenizer) {
    tokenizer->kind = TOKENIZER_BYTES;
    tokenizer->vocab = 256;
    tokenizer->hash = 256;
    tokenizer_reserve(tokenizer, 256, 256);
    for (int i = 0; i < 256; i++) tokenizer->pool[i] = (uint8_t)i;
    for (int i = 0; i <= 256; i++) tokenizer->starts[i] = i;
}

Status tokenizer_load_json(Tokenizer *tokenizer, const char *path, const char *unused) {
    json_t *root;
    (void)unused;
    TRY(tokenizer_json_read(path, &root));
    bool words = json_is_text(json_object_get(json_object_get(root, "model"), "type"), "WordPiece");
    Status status = words ? wordpiece_load_json(tokenizer, root, path) : bpe_load_json(tokenizer, root, path);
    json_decref(root);
    return status;
}

static Status look_for(const char *folder, const char *name, bool *there) {
    char *path = path_join(folder, name);
    PathKind kind;
    Status status = path_kind(path, &kind);
    *there = !status && kind != PATH_ABSENT;
    memory_free(path);
    return status;
}

/* Does its tokenizer_config.json say that the tokenizer is the bytes? */
static Status says_bytes(const char *folder, bool *bytes) {
    json_t *root;
    TRY(look_for(folder, "tokenizer_config.json", bytes));
    if (!*bytes) return OK;
    char *path = path_join(folder, "tokenizer_config.json");
    Status status = tokenizer_config_read(path, &root);
    if (!status) {
        const json_t *kind = json_object_get(root, "fusebox_tokenizer");
        *bytes = json_is_text(kind, "bytes");
        if (kind && !*bytes) status = fail(ERROR_FORMAT, "%s: fusebox_tokenizer can only be \"bytes\"", path);
        json_decref(root);
    }
    memory_free(path);
    return status;
}

/* The first reader whose files are there, or READERS. */
static Status find_reader(const char *folder, int *reader) {
    for (*reader = 0; *reader < READERS; ++*reader) {
        bool there, second = true;
        TRY(look_for(folder, readers[*reader].file, &there));
        if (there && readers[*reader].both) TRY(look_for(folder, readers[*reader].second, &second));
        if (there && second) return OK;
    }
    return OK;
}

Status tokenizer_load_present(const char *folder, bool *present) {
    int reader;
    TRY(says_bytes(folder, present));
    if (*present) return OK;
    TRY(find_reader(folder, &reader));
    *present = reader < READERS;
    return OK;
}

Status tokenizer_load_folder(Tokenizer *tokenizer, const char *folder) {
    bool bytes;
    int reader;
    TRY(says_bytes(folder, &bytes));
    if (bytes) {
        tokenizer_load_bytes(tokenizer);
        return OK;
    }
    TRY(find_reader(folder, &reader));
    if (reader == READERS)
        return fail(ERROR_FILE,
                    "no tokenizer in %s: it should be \"bytes\" or a folder with vocab.json and merges.txt, "
                    "with tokenizer.json or with vocab.txt",
                    folder);
    char *path = path_join(folder, readers[reader].file);
    char *second = path_join(folder, readers[reader].second);
    Status status = readers[reader].load(tokenizer, path, second);
    memory_free(path);
    memory_free(second);
    return status;
}
