/* training_state.safetensors: moments as tensors, all other state as metadata. */
#include "base/bfloat16.h"
#include "base/files.h"
#include "base/memory.h"
#include "data/safetensors.h"
#include "model/checkpoint_internal.h"
#include "model/parameter_values.h"
#include "model/scales.h"
#include "model/shards.h"

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- members ---- */

typedef enum { MEMBER_COUNT, MEMBER_SEED, MEMBER_REAL, MEMBER_TEXT } MemberType;

static const struct {
    const char *key;
    MemberType type;
    size_t offset;
} members[] = {
    {"fusebox.step", MEMBER_COUNT, offsetof(TrainingState, step)},
    {"fusebox.updates", MEMBER_COUNT, offsetof(TrainingState, updates)},
    {"fusebox.tokens", MEMBER_COUNT, offsetof(TrainingState, tokens)},
    {"fusebox.position", MEMBER_COUNT, offsetof(TrainingState, position)},
    {"fusebox.seed", MEMBER_SEED, offsetof(TrainingState, seed)},
    {"fusebox.schedule", MEMBER_TEXT, offsetof(TrainingState, schedule)},
    {"fusebox.steps", MEMBER_COUNT, offsetof(TrainingState, steps)},
    {"fusebox.warmup", MEMBER_COUNT, offsetof(TrainingState, warmup)},
    {"fusebox.learning_rate", MEMBER_REAL, offsetof(TrainingState, learning_rate)},
    {"fusebox.min_learning_rate", MEMBER_REAL, offsetof(TrainingState, min_learning_rate)},
    {"fusebox.rows", MEMBER_COUNT, offsetof(TrainingState, rows)},
    {"fusebox.data", MEMBER_SEED, offsetof(TrainingState, data)},
};
static const char version_key[] = "fusebox.version", version[] = "1";
enum {
    MEMBERS = sizeof members / sizeof *members,
    FIRST_MEMBERS = MEMBERS - 2 /* members that older files have */,
    FORMAT_NOTES = 2
};

static void print_member(const TrainingState *state, int i, char *text, size_t size) {
    const void *place = (const char *)state + members[i].offset;
    switch (members[i].type) {
    case MEMBER_COUNT: snprintf(text, size, "%" PRId64, *(const int64_t *)place); break;
    case MEMBER_SEED: snprintf(text, size, "%" PRIu64, *(const uint64_t *)place); break;
    case MEMBER_REAL: snprintf(text, size, "%.17g", *(const double *)place); break; // 17 digits are exact
    case MEMBER_TEXT: snprintf(text, size, "%s", (const char *)place); break;
    }
}

static const int64_t COUNT_MOST = INT64_MAX / 2; // a larger count could overflow when training continues

static Status parse_member(const char *path, const char *text, int i, TrainingState *state) {
    void *place = (char *)state + members[i].offset;
    char *end = NULL;
    errno = 0;
    bool digits = text && text[0] >= '0' && text[0] <= '9'; // strtoll would skip blanks
    switch (members[i].type) {
    case MEMBER_COUNT:
        if (digits) *(int64_t *)place = strtoll(text, &end, 10);
        break;
    case MEMBER_SEED:
        if (digits) *(uint64_t *)place = strtoull(text, &end, 10);
        break;
    case MEMBER_REAL:
        if (digits) *(double *)place = strtod(text, &end);
        break;
    case MEMBER_TEXT:
        if (!text || strlen(text) >= sizeof state->schedule) break;
        strcpy(place, text);
        return OK;
    }
    bool counts = members[i].type == MEMBER_COUNT;
    if (end && *end == 0 && errno == 0 && !(counts && *(int64_t *)place > COUNT_MOST)) return OK;
    return fail(ERROR_FORMAT, "%s: the metadata '%s' is missing or malformed", path, members[i].key);
}

static Status parse_metadata(const Safetensors *file, const char *path, TrainingState *state) {
    *state = (TrainingState){0};
    const char *found = safetensors_note_value(file, version_key);
    if (!found || strcmp(found, version) != 0)
        return fail(ERROR_FORMAT, "%s: format version '%.40s' is not supported, only %s", path,
                    found ? found : "", version);
    for (int i = 0; i < MEMBERS; i++) {
        const char *text = safetensors_note_value(file, members[i].key);
        if (text || i < FIRST_MEMBERS) TRY(parse_member(path, text, i, state));
    }
    return OK;
}

/* ---- moments, and the scales of products in 8 bits ---- */

int64_t checkpoint_chunk(const Parameters *p) {
    int64_t largest = 1;
    for (int i = 0; i < p->count; i++)
        if (p->info[i].count > largest) largest = p->info[i].count;
    return largest < CHECKPOINT_CHUNK ? largest : CHECKPOINT_CHUNK;
}

typedef struct {
    char text[72]; // "m.transformer.h.0.attn.c_attn.weight"
} MomentName;

/* The entry of parameter i in the first (0) or second (1) moment. */
static SafetensorsEntry describe(const Parameters *p, int i, int moment, MomentName *name) {
    const ParameterInfo *info = &p->info[i];
    snprintf(name->text, sizeof name->text, "%c.%s", "mv"[moment], info -> name);
    SafetensorsEntry entry = {
        .name = name->text, .type = p->narrow_moments ? SAFE_BF16 : SAFE_F32, .rank = info->shape.rank};
    memcpy(entry.d, info->shape.d, sizeof info->shape.d);
    return entry;
}

static SafetensorsEntry scales_entry(const Parameters *p) {
    return (SafetensorsEntry){
        .name = "fusebox.scales", .type = SAFE_F32, .rank = 2, .d = {p->count, OPERANDS}};
}

static Tensor moments(const Parameters *p, int moment) {
    return moment ? p->v : p->m;
}

/* Refuses invalid second moments. Overflowing squares of gradients can produce them, and AdamW's square
 * root would spoil the model within one step. */
static Status check_moment(ErrorCode code, const char *path, const char *name, const float *values,
                           int64_t count) {
    float least = *name == 'v' ? 0 : -FLT_MAX;
    for (int64_t i = 0; i < count; i++)
        if (!(values[i] >= least && values[i] <= FLT_MAX))
            return fail(code, "%s: tensor '%s' has a value of %g, which is not valid for a moment", path,
                        name, (double)values[i]);
    return OK;
}

/* Values stored in bf16 in memory are written as bf16, which is exact. */
static Status append_moment(SafetensorsWriter *writer, Dtype dtype, const float *values, int64_t count) {
    uint16_t narrow[4096];
    const int64_t most = sizeof narrow / sizeof *narrow;
    if (dtype != BF16) return safetensors_writer_append(writer, values, count * (int64_t)sizeof *values);
    for (int64_t first = 0; first < count; first += most) {
        int64_t n = count - first < most ? count - first : most;
        for (int64_t i = 0; i < n; i++) narrow[i] = bfloat16_from_float(values[first + i]);
        TRY(safetensors_writer_append(writer, narrow, n * (int64_t)sizeof *narrow));
    }
    return OK;
}

/* Saves the moments that this rank writes. */
static Status save_moment(Ctx *ctx, const char *path, RankFile *file, const Parameters *p, int moment,
                          Tensor whole, float *chunk) {
    for (int i = 0; i < p->count; i++) {
        MomentName name;
        describe(p, i, moment, &name);
        if (!rank_file_mine(file, moment * p->count + i)) continue;
        for (int64_t first = 0; first < p->info[i].count; first += CHECKPOINT_CHUNK) {
            int64_t left = p->info[i].count - first, n = left < CHECKPOINT_CHUNK ? left : CHECKPOINT_CHUNK;
            TRY(values_read(ctx, whole, p->info[i].offset + first, n, chunk));
            TRY(check_moment(ERROR_NONFINITE, path, name.text, chunk, n));
            TRY(append_moment(file->writer, whole.dtype, chunk, n));
        }
    }
    return OK;
}

static Status open_file(const char *path, const Parameters *p, const TrainingState *state, bool scaled,
                        RankFile *file) {
    char texts[MEMBERS][32];
    SafetensorsNote notes[FORMAT_NOTES + MEMBERS] = {{"format", "pt"}, {version_key, version}};
    int64_t count = FORMAT_NOTES;
    for (int i = 0; i < MEMBERS; i++) {
        print_member(state, i, texts[i], sizeof texts[i]);
        notes[count++] = (SafetensorsNote){members[i].key, texts[i]};
    }
    const int moment_count = 2 * p->count;
    OWNED SafetensorsEntry *entries = memory_array((size_t)moment_count + 1, sizeof *entries);
    OWNED MomentName *names = memory_array((size_t)moment_count, sizeof *names);
    for (int i = 0; i < moment_count; i++) entries[i] = describe(p, i % p->count, i / p->count, &names[i]);
    entries[moment_count] = scales_entry(p);
    return rank_file_open(p, path, entries, moment_count + scaled, notes, count, file);
}

static Status save_scales(Ctx *ctx, const RankFile *file, const Parameters *p) {
    const int64_t count = tensor_count(p->scales);
    OWNED float *values = memory_array((size_t)count, sizeof *values);
    TRY(values_read(ctx, p->scales, 0, count, values));
    return safetensors_writer_append(file->writer, values, count * (int64_t)sizeof *values);
}

Status training_state_save(Ctx *ctx, const char *path, const Parameters *p, const TrainingState *state) {
    OWNED float *chunk = memory_reserve((size_t)checkpoint_chunk(p) * sizeof *chunk);
    if (!chunk) return fail(ERROR_MEMORY, "out of host memory to save %s", path);
    RankFile file;
    Status status = OK;
    TRY(open_file(path, p, state, ctx->scaled, &file));
    for (int moment = 0; moment < 2; moment++) {
        Tensor whole;
        Status collected =
            shards_collect(ctx, p, moments(p, moment), &whole); // collective, also after an error
        if (!status && !collected) status = save_moment(ctx, path, &file, p, moment, whole, chunk);
        if (status)
            status_free(collected);
        else
            status = collected;
    }
    if (!status && ctx->scaled && rank_file_mine(&file, 2 * (int64_t)p->count))
        status = save_scales(ctx, &file, p);
    return rank_file_close(&file, status);
}

static Status find_entry(const Safetensors *file, const char *path, const SafetensorsEntry *wanted,
                         const SafetensorsEntry **entry) {
    *entry = safetensors_find(file, wanted->name);
    bool fits = *entry && (*entry)->type == wanted->type && (*entry)->rank == wanted->rank;
    for (int axis = 0; fits && axis < wanted->rank; axis++) fits = (*entry)->d[axis] == wanted->d[axis];
    if (fits) return OK;
    return fail(ERROR_FORMAT, "%s: tensor '%s' is %s; the state belongs to another model", path, wanted->name,
                *entry ? "of another shape or dtype" : "missing");
}

static Status find_moment(const Safetensors *file, const char *path, const SafetensorsEntry *wanted,
                          const SafetensorsEntry **entry) {
    *entry = safetensors_find(file, wanted->name);
    if (!*entry || (*entry)->type == wanted->type) return find_entry(file, path, wanted, entry);
    return fail(ERROR_USAGE, "%s: its moments are %s, and this run's are %s; --optimizer-dtype says which",
                path, safetensors_type_name((*entry)->type), safetensors_type_name(wanted->type));
}

static Status load_moment(Ctx *ctx, const char *path, const SafetensorsEntry *entry, Tensor flat,
                          int64_t offset, float *chunk) {
    TRY(fail_at(safetensors_verify(entry), "%s", path));
    for (int64_t first = 0; first < entry->count; first += CHECKPOINT_CHUNK) {
        int64_t left = entry->count - first, n = left < CHECKPOINT_CHUNK ? left : CHECKPOINT_CHUNK;
        TRY(safetensors_read(entry, first, n, chunk));
        TRY(check_moment(ERROR_FORMAT, path, entry->name, chunk, n));
        TRY(values_write(ctx, flat, offset + first, n, chunk));
    }
    return OK;
}

/* A scale is a power of two that a cast can produce (base/float8.h), or 1. */
static Status load_scales(Ctx *ctx, const Safetensors *file, const char *path, const Parameters *p) {
    const SafetensorsEntry wanted = scales_entry(p), *entry;
    const int64_t count = tensor_count(p->scales);
    OWNED float *values = memory_array((size_t)count, sizeof *values);
    TRY(find_entry(file, path, &wanted, &entry));
    TRY(fail_at(safetensors_verify(entry), "%s", path));
    TRY(safetensors_read(entry, 0, count, values));
    for (int64_t i = 0; i < count; i++)
        if (!scale_valid(values[i]))
            return fail(ERROR_FORMAT, "%s: tensor '%s' has a value of %g, which is not valid for a scale",
                        path, wanted.name, (double)values[i]);
    TRY(values_write(ctx, p->scales, 0, count, values));
    ctx->scaled = true;
    return OK;
}

/* Checks everything before loading anything. */
static Status load_moments(Ctx *ctx, const Safetensors *file, const char *path, Parameters *p, bool scaled,
                           float *chunk) {
    if (safetensors_count(file) != 2 * (int64_t)p->count + scaled)
        return fail(ERROR_FORMAT, "%s holds %lld tensors, but this model's moments are %d", path,
                    (long long)safetensors_count(file), 2 * p->count);
    for (int load = 0; load < 2; load++) {
        for (int i = 0; i < 2 * p->count; i++) {
            MomentName name;
            const SafetensorsEntry *entry;
            SafetensorsEntry wanted = describe(p, i % p->count, i / p->count, &name);
            TRY(find_moment(file, path, &wanted, &entry));
            Tensor moment = moments(p, i / p->count), flat = shards_whole(p, moment);
            if (!load) continue;
            TRY(load_moment(ctx, path, entry, flat, p->info[i % p->count].offset, chunk));
            if (i % p->count == p->count - 1) TRY(shards_keep(ctx, p, moment));
        }
    }
    return OK;
}

Status training_state_load(Ctx *ctx, const char *path, Parameters *p, TrainingState *state) {
    CLOSED_BY(safetensors_release) Safetensors *file = NULL;
    OWNED float *chunk = memory_reserve((size_t)checkpoint_chunk(p) * sizeof *chunk);
    TRY(safetensors_open(path, &file));
    if (!chunk) return fail(ERROR_MEMORY, "out of host memory to load %s", path);
    TRY(parse_metadata(file, path, state));
    const bool scaled = safetensors_find(file, scales_entry(p).name);
    TRY(load_moments(ctx, file, path, p, scaled, chunk));
    return scaled ? load_scales(ctx, file, path, p) : OK;
}
