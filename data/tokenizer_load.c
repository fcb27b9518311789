#include "data/tokenizer_state.h"

#include "base/files.h"
#include "base/memory.h"
#include "data/bpe.h"
#include "data/tokenizer_config.h"
#include "data/tokenizer_json.h"
#include "data/wordpiece.h"

#include <string.h>

/* The files that may describe a tokenizer; the first that exist are read. */
static const struct {
    const char *file, *second; // if there is a second file, the first is ignored without it
    Status (*load)(Tokenizer *tokenizer, const char *path, const char *second_path, const json_t *config);
} readers[] = {
    {"tokenizer.json", NULL, tokenizer_load_json},
    {"vocab.json", "merges.txt", bpe_load},
    {"vocab.txt", NULL, wordpiece_load},
};
enum { READERS = sizeof readers / sizeof *readers };

static const char config_name[] = "tokenizer_config.json", map_name[] = "special_tokens_map.json",
                  template_name[] = "chat_template.jinja";

void tokenizer_load_bytes(Tokenizer *tokenizer) {
    tokenizer->kind = TOKENIZER_BYTES;
    tokenizer->vocab = 256;
    tokenizer->hash = 256;
    tokenizer_reserve(tokenizer, 256, 256);
    for (int i = 0; i < 256; i++) tokenizer->pool[i] = (uint8_t)i;
    for (int i = 0; i <= 256; i++) tokenizer->starts[i] = i;
}

Status tokenizer_load_json(Tokenizer *tokenizer, const char *path, const char *unused,
                           const json_t *unused_config) {
    json_auto_t *root = NULL;
    (void)unused, (void)unused_config;
    TRY(tokenizer_json_read(path, &root));
    bool words = json_is_text(json_object_get(json_object_get(root, "model"), "type"), "WordPiece");
    return words ? wordpiece_load_json(tokenizer, root, path) : bpe_load_json(tokenizer, root, path);
}

static Status look_for(const char *folder, const char *name, bool *exists) {
    OWNED char *path = path_join(folder, name);
    PathKind kind;
    *exists = false;
    TRY(path_kind(path, &kind));
    *exists = kind != PATH_ABSENT;
    return OK;
}

/* Reads a config of the folder; *root is NULL if it does not exist. */
static Status read_config(const char *folder, const char *name, json_t **root) {
    bool exists;
    *root = NULL;
    TRY(look_for(folder, name, &exists));
    if (!exists) return OK;
    OWNED char *path = path_join(folder, name);
    return tokenizer_config_read(path, root);
}

/* Whether the config selects the byte tokenizer. */
static Status selects_bytes(const char *folder, const json_t *config, bool *bytes) {
    const json_t *kind = json_object_get(config, "fusebox_tokenizer");
    *bytes = json_is_text(kind, "bytes");
    if (!kind || *bytes) return OK;
    return fail(ERROR_FORMAT, "%s/%s: fusebox_tokenizer can only be \"bytes\"", folder, config_name);
}

/* The first reader whose files exist, or READERS. */
static Status find_reader(const char *folder, int *reader) {
    for (*reader = 0; *reader < READERS; ++*reader) {
        bool exists, second = true;
        TRY(look_for(folder, readers[*reader].file, &exists));
        if (exists && readers[*reader].second) TRY(look_for(folder, readers[*reader].second, &second));
        if (exists && second) return OK;
    }
    return OK;
}

Status tokenizer_load_present(const char *folder, bool *present) {
    json_auto_t *config = NULL;
    int reader;
    TRY(read_config(folder, config_name, &config));
    TRY(selects_bytes(folder, config, present));
    if (*present) return OK;
    TRY(find_reader(folder, &reader));
    *present = reader < READERS;
    return OK;
}

/* ---- a folder ---- */

/* Keeps a copy of a file of the folder, if it exists. */
static Status keep(Tokenizer *t, const char *folder, const char *name) {
    KeptFile *file = &t->kept[t->kept_count];
    bool exists = false;
    if (name) TRY(look_for(folder, name, &exists));
    if (!exists) return OK;
    OWNED char *path = path_join(folder, name);
    TRY(file_read(path, TOKENIZER_FILE_LIMIT, &file->contents, &file->length));
    file->name = name;
    t->kept_count++;
    return OK;
}

/* The chat template from a file, or else from the config, which may have several, by name. */
static void take_template(Tokenizer *t, const json_t *config) {
    const json_t *source = json_object_get(config, "chat_template"), *one;
    size_t i;
    json_array_foreach(source, i, one) if (json_is_text(json_object_get(one, "name"), "default")) source =
        json_object_get(one, "template");
    if (json_is_string(source)) t->chat_template = memory_text(json_string_value(source));
    for (int file = 0; file < t->kept_count; file++) {
        if (strcmp(t->kept[file].name, template_name) != 0) continue;
        memory_free(t->chat_template);
        t->chat_template = memory_text(t->kept[file].contents);
    }
}

static Status load_files(Tokenizer *t, const char *folder, int reader, const json_t *config) {
    static const char *const beside[] = {config_name, map_name, template_name};
    json_auto_t *map = NULL;
    OWNED char *path = path_join(folder, readers[reader].file);
    OWNED char *second = readers[reader].second ? path_join(folder, readers[reader].second) : NULL;
    TRY(readers[reader].load(t, path, second, config));
    TRY(read_config(folder, map_name, &map));
    tokenizer_config_special(t, map);
    tokenizer_config_special(t, config);
    t->names = tokenizer_config_names(config, map);
    TRY(keep(t, folder, readers[reader].file));
    TRY(keep(t, folder, readers[reader].second));
    for (int i = 0; i < 3; i++) TRY(keep(t, folder, beside[i]));
    take_template(t, config);
    return OK;
}

static Status load_folder(Tokenizer *t, const char *folder, const json_t *config) {
    bool bytes;
    int reader;
    TRY(selects_bytes(folder, config, &bytes));
    if (bytes) {
        tokenizer_load_bytes(t);
        return OK;
    }
    TRY(find_reader(folder, &reader));
    if (reader == READERS)
        return fail(ERROR_FILE,
                    "no tokenizer in %s: it should be \"bytes\" or a folder with vocab.json and merges.txt, "
                    "with tokenizer.json or with vocab.txt",
                    folder);
    return load_files(t, folder, reader, config);
}

Status tokenizer_load_folder(Tokenizer *tokenizer, const char *folder) {
    json_auto_t *config = NULL;
    TRY(read_config(folder, config_name, &config));
    return load_folder(tokenizer, folder, config);
}
