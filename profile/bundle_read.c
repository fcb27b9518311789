#include "profile/bundle.h"

#include "base/files.h"
#include "base/json_read.h"
#include "base/memory.h"
#include "profile/bundle_schema.h"

enum { BUNDLE_BYTES_MOST = 32 << 20 };

/* A copy of a text that bundle_check has seen, without what would move a terminal's cursor. NULL when
 * there is no memory. */
static char *copy_of(const json_t *object, const char *key) {
    char *text = memory_text(json_string_value(json_object_get(object, key)));
    for (char *at = text; at && *at; at++)
        if ((unsigned char)*at < ' ' || *at == 127) *at = '?';
    return text;
}

static double number_of(const json_t *object, const char *key) {
    return json_number_value(json_object_get(object, key));
}

static bool read_row(const json_t *from, BundleRow *row) {
    *row = (BundleRow){.call = copy_of(from, "place"),
                       .operation = copy_of(from, "operation"),
                       .pass = copy_of(from, "pass"),
                       .ns = number_of(from, "ns"),
                       .low = number_of(from, "low_ns"),
                       .high = number_of(from, "high_ns"),
                       .launches = number_of(from, "launches")};
    return row->call && row->operation && row->pass;
}

static void read_audit(const json_t *audit, BundlePath *path) {
    path->audited = (int)json_array_size(audit);
    for (size_t i = 0; i < json_array_size(audit); i++)
        path->failed += !json_is_true(json_object_get(json_array_get(audit, i), "passed"));
}

static bool read_path(const json_t *from, BundlePath *path) {
    const json_t *step = json_object_get(from, "step"), *rows = json_object_get(from, "operations");
    *path = (BundlePath){.label = copy_of(from, "label"),
                         .source = copy_of(from, "source"),
                         .step_ms = 1e-6 * number_of(step, "ns"),
                         .low_ms = 1e-6 * number_of(step, "low_ns"),
                         .high_ms = 1e-6 * number_of(step, "high_ns"),
                         .overhead = number_of(step, "overhead"),
                         .device_ns = number_of(step, "device_ns"),
                         .tokens = number_of(step, "tokens"),
                         .launches = number_of(step, "launches"),
                         .peak_bytes = number_of(json_object_get(from, "memory"), "peak_bytes")};
    int count = (int)json_array_size(rows);
    const json_t *timed = json_object_get(step, "timed"); // bundles of before it have none
    path->timed = !json_is_number(timed) || json_number_value(timed) > 0;
    read_audit(json_object_get(from, "audit"), path);
    path->rows = memory_array((size_t)count + 1, sizeof *path->rows);
    if (!path->rows || !path->label || !path->source) return false;
    for (int i = 0; i < count; i++) {
        path->row_count = i + 1; // what a row that failed holds is freed too
        const json_t *row = json_array_get(rows, (size_t)i);
        if (!read_row(row, &path->rows[i])) return false;
        path->flops += number_of(row, "flops");
    }
    return true;
}

static Status read_checked(const json_t *root, Bundle *bundle) {
    const json_t *run = json_object_get(root, "run"), *paths = json_object_get(root, "paths");
    bundle->model = copy_of(run, "model");
    bundle->device = copy_of(run, "device");
    bundle->dtype = copy_of(run, "dtype");
    bundle->batch = json_integer_value(json_object_get(run, "batch"));
    bundle->seq = json_integer_value(json_object_get(run, "seq"));
    bundle->peak_flops = number_of(json_object_get(json_object_get(root, "peaks"), "measured"), "flops");
    bool good = bundle->model && bundle->device && bundle->dtype;
    int count = (int)json_array_size(paths);
    while (good && bundle->path_count < count) {
        good =
            read_path(json_array_get(paths, (size_t)bundle->path_count), &bundle->paths[bundle->path_count]);
        bundle->path_count++;
    }
    return good ? OK : fail(ERROR_MEMORY, "out of host memory for the profile");
}

Status bundle_parse(const char *text, int64_t length, const char *name, Bundle *bundle) {
    json_t *root;
    *bundle = (Bundle){0};
    TRY(json_parse(text, length, name, &root));
    Status status = fail_at(bundle_check(root), "%s", name);
    if (!status) status = read_checked(root, bundle);
    json_decref(root);
    if (status) bundle_free(bundle);
    return status;
}

Status bundle_read(const char *path, Bundle *bundle) {
    char *text = NULL;
    int64_t length;
    *bundle = (Bundle){0};
    TRY(file_read(path, BUNDLE_BYTES_MOST, &text, &length));
    Status status = bundle_parse(text, length, path, bundle);
    memory_free(text);
    return status;
}

void bundle_free(Bundle *bundle) {
    for (int i = 0; i < bundle->path_count; i++) {
        BundlePath *path = &bundle->paths[i];
        for (int k = 0; k < path->row_count; k++) {
            memory_free(path->rows[k].call);
            memory_free(path->rows[k].operation);
            memory_free(path->rows[k].pass);
        }
        memory_free(path->rows);
        memory_free(path->label);
        memory_free(path->source);
    }
    memory_free(bundle->model);
    memory_free(bundle->device);
    memory_free(bundle->dtype);
    *bundle = (Bundle){0};
}
