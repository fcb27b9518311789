/* config: functions on a Config (model/architectures.h). */
#pragma once

#include "base/status.h"
#include "model/architectures.h"

/* Looks up a preset. ERROR_USAGE suggests the nearest name. */
CHECKED Status config_preset(const char *name, Config *config);

/* The names of the presets; NULL after the last. */
const char *config_preset_name(int index);

/* Derives fields that are still 0: an encoder as deep as the stack, as many key-value heads as heads,
 * head_size = width / heads, and a feed-forward layer of 4 times the width. A gated layer, which has three
 * matrices, gets 2/3 of that (Shazeer 2020, section 3), rounded up to a multiple of 64. */
void config_complete(Config *config);

/* Checks that the fields are consistent and that every size can be computed without overflow. ERROR_USAGE
 * names the field. */
CHECKED Status config_validate(const Config *config);

/* Whether all fields except the name are equal. */
bool config_equal(const Config *a, const Config *b);

/* Number of parameters without the vocabulary's padding. */
int64_t config_parameters(const Config *config);

/* ---- the list of a Config's fields ---- */

typedef enum { FIELD_SIZE, FIELD_REAL, FIELD_FLAG, FIELD_CHOICE } FieldKind; // int64_t, double, bool, an enum

typedef struct {
    const char *name; // for messages
    FieldKind kind;
    size_t offset;
    int64_t least, most; // limits of a FIELD_SIZE
} ConfigField;

/* The field at an offset in Config. */
const ConfigField *config_field(size_t offset);
