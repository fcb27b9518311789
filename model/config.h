/* config: what can be asked of a Config (model/architectures.h). */
#pragma once

#include "base/status.h"
#include "model/architectures.h"

/* Looks a preset up, of those in model/architectures.c. ERROR_USAGE names the nearest. */
CHECKED Status config_preset(const char *name, Config *config);

/* The names of the presets; NULL after the last. */
const char *config_preset_name(int index);

/* Fills in what is still 0 and follows from the rest: an encoder as deep as the stack, keys and values for
 * each head, heads that share the width, a feed-forward layer of 4 times the width; a gated one, which has
 * three matrices, of 2/3 of that (Shazeer 2020, section 3), rounded up to a multiple of 64. */
void config_complete(Config *config);

/* Checks that the fields fit together and that every size can be computed with. ERROR_USAGE says which does
 * not. */
CHECKED Status config_validate(const Config *config);

/* Whether all is equal but the name. */
bool config_equal(const Config *a, const Config *b);

/* Parameters without the vocabulary's padding. */
int64_t config_parameters(const Config *config);

/* ---- the list of a Config's fields ---- */

typedef enum { FIELD_SIZE, FIELD_REAL, FIELD_FLAG, FIELD_CHOICE } FieldKind; // int64_t, double, bool, an enum

typedef struct {
    const char *name; // for messages
    FieldKind kind;
    size_t offset;
    int64_t least, most; // of a size
} ConfigField;

/* The field at an offset in Config. */
const ConfigField *config_field(size_t offset);
