/* A model in several files: model.safetensors.index.json maps tensors to files. */
#include "base/directories.h"
#include "base/json_read.h"
#include "base/memory.h"
#include "data/safetensors_internal.h"

#include <string.h>

enum { INDEX_LIMIT = 16 << 20 /* bytes */, SHARD_LIMIT = 1024 };

/* Whether a shard's name is a plain file name: no path may leave the folder. */
static bool plain_name(const char *name) {
    return name && name[0] != 0 && name[0] != '.' && !strchr(name, '/') &&
           path_ends_with(name, ".safetensors");
}

/* Collects the distinct shards of the map, in order of first occurrence. */
static Status collect_shards(const json_t *map, const char *path, const char **shards, int *count) {
    const char *name;
    json_t *value;
    *count = 0;
    json_object_foreach((json_t *)(uintptr_t)map, name, value) {
        const char *shard = json_string_value(value);
        if (!plain_name(shard))
            return fail(ERROR_FORMAT, "%s: tensor '%.80s' is not in a .safetensors file of the same folder",
                        path, name);
        int i = 0;
        while (i < *count && strcmp(shards[i], shard) != 0) i++;
        if (i < *count) continue;
        if (i == SHARD_LIMIT) return fail(ERROR_FORMAT, "%s names more than %d files", path, SHARD_LIMIT);
        shards[(*count)++] = shard;
    }
    return OK;
}

/* Adds one shard; the index must list each of its tensors for this shard. */
static Status add_shard(Safetensors *file, const json_t *map, const char *folder, const char *shard) {
    OWNED char *path = path_join(folder, shard);
    int64_t first = file->count;
    TRY(safetensors_add_file(file, path));
    for (int64_t i = first; i < file->count; i++) {
        const char *said = json_string_value(json_object_get(map, file->entries[i].name));
        if (!said || strcmp(said, shard) != 0)
            return fail(ERROR_FORMAT, "%s holds tensor '%.80s', but the index does not list it there", path,
                        file->entries[i].name);
    }
    return OK;
}

static Status add_shards(Safetensors *file, const json_t *map, const char *folder, const char *index) {
    if (!json_is_object(map)) return fail(ERROR_FORMAT, "%s has no weight_map", index);
    OWNED const char **shards = memory_array(SHARD_LIMIT, sizeof *shards);
    int count;
    TRY(collect_shards(map, index, shards, &count));
    for (int i = 0; i < count; i++) TRY(add_shard(file, map, folder, shards[i]));
    TRY(safetensors_sort(file, index));
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)map, name, value) {
        if (!safetensors_find(file, name))
            return fail(ERROR_FORMAT, "%s: tensor '%.80s' is not in %.80s", index, name,
                        json_string_value(value));
    }
    return OK;
}

static Status open_index(const char *folder, const char *path, Safetensors **file) {
    json_auto_t *root = NULL;
    TRY(json_read(path, INDEX_LIMIT, &root));
    Safetensors *filled = memory_allocate(sizeof *filled);
    return safetensors_finish(add_shards(filled, json_object_get(root, "weight_map"), folder, path), filled,
                              file);
}

/* Reports which other kind of weights the folder has, if any, and the remedy. */
static Status fail_without(const char *folder) {
    static const struct {
        const char *ending, *advice;
    } others[] = {
        {".safetensors",
         "parts of a model need model.safetensors.index.json beside them; a single file is to be called "
         "model.safetensors"},
        {".bin", "convert it: in Python, AutoModel.from_pretrained(FOLDER).save_pretrained(FOLDER)"},
        {".pt", "convert it to safetensors, as safetensors.torch.save_file does"},
        {".pth", "convert it to safetensors, as safetensors.torch.save_file does"},
        {".gguf", "take the model's original folder with model.safetensors, from which it was made"},
        {".h5",
         "convert it: in Python, AutoModel.from_pretrained(FOLDER, from_tf=True).save_pretrained(FOLDER)"},
    };
    CLOSED_BY(path_list_free) PathList files = {0};
    TRY(directory_list(folder, &files));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        for (int64_t k = 0; k < files.count; k++)
            if (path_ends_with(files.paths[k], others[i].ending))
                return fail(ERROR_FILE, "%s has no model.safetensors, but %s: %s", folder,
                            path_name(files.paths[k]), others[i].advice);
    return fail(ERROR_FILE, "%s has no model.safetensors", folder);
}

Status safetensors_open_folder(const char *folder, Safetensors **file) {
    *file = NULL;
    OWNED char *single = path_join(folder, "model.safetensors");
    OWNED char *index = path_join(folder, "model.safetensors.index.json");
    PathKind whole, parts;
    TRY(path_kind(single, &whole));
    TRY(path_kind(index, &parts));
    if (!whole && !parts) return fail_without(folder);
    return whole ? safetensors_open(single, file) : open_index(folder, index, file);
}
