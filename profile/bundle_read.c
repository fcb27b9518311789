#include "profile/bundle_read.h"

#include "base/files.h"
#include "base/json_read.h"
#include "base/memory.h"

enum { BUNDLE_BYTES_MOST = 32 << 20 };

Status bundle_parse(const char *text, int64_t length, const char *name, Bundle *bundle) {
    json_t *root;
    *bundle = (Bundle){0};
    TRY(json_parse(text, length, name, &root));
    Status status = fail_at(bundle_check(root), "%s", name);
    if (!status) fields_read(root, bundle_fields, bundle);
    json_decref(root);
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
    fields_free(bundle_fields, bundle);
    *bundle = (Bundle){0};
}
