#include "report/anatomy.h"

#include "report/kernel_name.h"

#include <string.h>

/* How close `file` is to `source`: 2 the same file, 1 the same folder, 0 neither. */
static int nearness(const char *file, const char *source) {
    size_t path = strlen(file), folder = (size_t)(strrchr(file, '/') + 1 - file);
    if (strncmp(file, source, path) == 0 && (source[path] == ':' || !source[path])) return 2;
    return strncmp(file, source, folder) == 0;
}

int anatomy_find(const char *name, const char *source, const Anatomy *found[], int most) {
    char kernel[KERNEL_NAME_BYTES];
    int count = 0, nearest = 0;
    if (!strchr(name, '(')) return 0;
    kernel_short_name(name, kernel);
    kernel[strcspn(kernel, "<")] = 0; // without template arguments: one comment serves all instances
    for (int i = 0; i < anatomy_count; i++) {
        const Anatomy *a = &anatomy_rows[i];
        if (strcmp(a->kernel, kernel) != 0) continue;
        int near = nearness(a->file, source);
        if (near < nearest) continue;
        if (near > nearest) count = 0;
        nearest = near;
        if (count < most) found[count++] = a;
    }
    return count;
}

const char *anatomy_part_name(int part) {
    static const char *const names[ANATOMY_PARTS] = {"Parallel", "Launch", "Holds", "Occupancy",
                                                     "Reads",    "Syncs",  "Fusion"};
    return names[part];
}

int anatomy_print(const char *text, FILE *file) {
    int count = 0;
    for (int i = 0; i < anatomy_count; i++) {
        const Anatomy *a = &anatomy_rows[i];
        if (!strstr(a->kernel, text) && !strstr(a->file, text)) continue;
        fprintf(file, "%s%s  %s:%d\n", count++ ? "\n" : "", a->kernel, a->file, a->line);
        for (int part = 0; part < ANATOMY_PARTS; part++)
            fprintf(file, "  %-9s  %s\n", anatomy_part_name(part), a->parts[part]);
    }
    return count;
}
