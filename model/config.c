#include "model/config.h"

#include "base/nearest.h"
#include "model/parameters.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define SIZE(name, member, least, most)                                                                      \
    { name, FIELD_SIZE, offsetof(Config, member), least, most }
#define OTHER(kind, member)                                                                                  \
    { #member, kind, offsetof(Config, member), 0, 0 }

static const ConfigField fields[] = {
    OTHER(FIELD_CHOICE, activation),
    OTHER(FIELD_CHOICE, norm_kind),
    OTHER(FIELD_CHOICE, norm_order),
    OTHER(FIELD_FLAG, final_norm),
    OTHER(FIELD_CHOICE, positions),
    OTHER(FIELD_REAL, rotary.theta),
    OTHER(FIELD_CHOICE, rotary.scaling),
    OTHER(FIELD_REAL, rotary.factor),
    OTHER(FIELD_REAL, rotary.low),
    OTHER(FIELD_REAL, rotary.high),
    SIZE("the rotary positions' original context", rotary.context, 0, 1 << 24),
    OTHER(FIELD_FLAG, attention_bias),
    OTHER(FIELD_FLAG, mlp_bias),
    OTHER(FIELD_FLAG, head_norms),
    OTHER(FIELD_FLAG, embedding_scale),
    OTHER(FIELD_FLAG, tied_tables),
    OTHER(FIELD_FLAG, tied_head),
    OTHER(FIELD_FLAG, head_transform),
    OTHER(FIELD_FLAG, pooler),
    OTHER(FIELD_FLAG, class_head),
    OTHER(FIELD_FLAG, class_token),
    SIZE("segments", segments, 0, 1 << 10),
    SIZE("layers", layers, 1, 10000),
    SIZE("the encoder's layers", encoder_layers, 0, 10000),
    SIZE("heads", heads, 1, 65536),
    SIZE("key/value heads", kv_heads, 1, 65536),
    SIZE("width", width, 1, 1 << 20),
    SIZE("the head size", head_size, 1, 1 << 20),
    SIZE("the feed-forward width", hidden, 1, 1 << 22),
    SIZE("the picture's side", image, 0, 1 << 14),
    SIZE("the patch's side", patch, 0, 1 << 14),
    SIZE("the picture's channels", channels, 0, PATCH_CHANNELS),
    SIZE("context", context, 1, 1 << 24),
    SIZE("vocab", vocab, 1, 1 << 28),
    OTHER(FIELD_REAL, norm_eps),
    OTHER(FIELD_REAL, init_std),
};
enum { FIELDS = sizeof fields / sizeof *fields };

const ConfigField *config_field(size_t offset) {
    int i = 0;
    while (i < FIELDS && fields[i].offset != offset) i++;
    assert(i < FIELDS);
    return &fields[i];
}

static size_t bytes_of(FieldKind kind) {
    static const size_t bytes[] = {[FIELD_SIZE] = sizeof(int64_t),
                                   [FIELD_REAL] = sizeof(double),
                                   [FIELD_FLAG] = sizeof(bool),
                                   [FIELD_CHOICE] = sizeof(NormOrder)};
    return bytes[kind];
}

bool config_equal(const Config *a, const Config *b) {
    bool equal = a->architecture == b->architecture;
    for (int i = 0; i < FIELDS; i++)
        equal = equal && memcmp((const char *)a + fields[i].offset, (const char *)b + fields[i].offset,
                                bytes_of(fields[i].kind)) == 0;
    return equal;
}

/* ---- presets ---- */

/* A named network. A value of 0 means the row's default or config_complete. */
typedef struct {
    const char *name;
    const char *type;
    int64_t layers, heads, kv_heads, head_size, width, hidden, context, vocab;
    int64_t image, patch, channels;
    bool tied_head;
    double norm_eps, init_std;
    Rotary rotary;
} Preset;

/* Sizes as released: Radford et al. 2019, table 2; Devlin et al. 2019, section 3; Vaswani et al. 2017,
 * table 3; the Llama family. A preset has random weights. The nano presets are fusebox's own, small enough
 * to train on a laptop's CPU. */
static const Preset presets[] = {
    {"gpt2-nano", "gpt2", .layers = 4, .heads = 4, .width = 128, .context = 256, .vocab = 256},
    {"gpt2", "gpt2", .layers = 12, .heads = 12, .width = 768, .context = 1024, .vocab = 50257},
    {"gpt2-medium", "gpt2", .layers = 24, .heads = 16, .width = 1024, .context = 1024, .vocab = 50257},
    {"gpt2-large", "gpt2", .layers = 36, .heads = 20, .width = 1280, .context = 1024, .vocab = 50257},
    {"gpt2-xl", "gpt2", .layers = 48, .heads = 25, .width = 1600, .context = 1024, .vocab = 50257},
    {"bert-nano", "bert", .layers = 4, .heads = 4, .width = 128, .context = 128, .vocab = 4096},
    {"bert-base", "bert", .layers = 12, .heads = 12, .width = 768, .context = 512, .vocab = 30522},
    {"bert-large", "bert", .layers = 24, .heads = 16, .width = 1024, .context = 512, .vocab = 30522},
    {"transformer-nano", "fusebox-transformer", .layers = 3, .heads = 4, .width = 128, .context = 128,
     .vocab = 4096},
    {"transformer-base", "fusebox-transformer", .layers = 6, .heads = 8, .width = 512, .context = 1024,
     .vocab = 37000},
    {"transformer-big", "fusebox-transformer", .layers = 6, .heads = 16, .width = 1024, .context = 1024,
     .vocab = 37000},
    {"llama-nano", "llama", .layers = 4, .heads = 4, .kv_heads = 2, .width = 128, .context = 256,
     .vocab = 256, .tied_head = true, .norm_eps = 1e-5},
    {"smollm2-135m", "llama", .layers = 30, .heads = 9, .kv_heads = 3, .width = 576, .hidden = 1536,
     .context = 8192, .vocab = 49152, .tied_head = true, .norm_eps = 1e-5, .init_std = 1.0 / 24,
     .rotary = {.theta = 1e5}},
    {"smollm2-360m", "llama", .layers = 32, .heads = 15, .kv_heads = 5, .width = 960, .hidden = 2560,
     .context = 8192, .vocab = 49152, .tied_head = true, .norm_eps = 1e-5, .rotary = {.theta = 1e5}},
    {"tinyllama-1.1b", "llama", .layers = 22, .heads = 32, .kv_heads = 4, .width = 2048, .hidden = 5632,
     .context = 2048, .vocab = 32000, .norm_eps = 1e-5},
    {"llama-3.2-1b", "llama", .layers = 16, .heads = 32, .kv_heads = 8, .width = 2048, .hidden = 8192,
     .context = 131072, .vocab = 128256, .tied_head = true, .norm_eps = 1e-5,
     .rotary = {5e5, ROTARY_LLAMA3, .factor = 32, .low = 1, .high = 4, .context = 8192}},
    {"llama-3.1-8b", "llama", .layers = 32, .heads = 32, .kv_heads = 8, .width = 4096, .hidden = 14336,
     .context = 131072, .vocab = 128256, .norm_eps = 1e-5,
     .rotary = {5e5, ROTARY_LLAMA3, .factor = 8, .low = 1, .high = 4, .context = 8192}},
    {"qwen2.5-0.5b", "qwen2", .layers = 24, .heads = 14, .kv_heads = 2, .width = 896, .hidden = 4864,
     .context = 32768, .vocab = 151936, .tied_head = true, .rotary = {.theta = 1e6}},
    {"qwen2.5-1.5b", "qwen2", .layers = 28, .heads = 12, .kv_heads = 2, .width = 1536, .hidden = 8960,
     .context = 131072, .vocab = 151936, .tied_head = true, .rotary = {.theta = 1e6}},
    {"qwen2.5-7b", "qwen2", .layers = 28, .heads = 28, .kv_heads = 4, .width = 3584, .hidden = 18944,
     .context = 131072, .vocab = 152064, .rotary = {.theta = 1e6}},
    {"qwen3-0.6b", "qwen3", .layers = 28, .heads = 16, .kv_heads = 8, .head_size = 128, .width = 1024,
     .hidden = 3072, .context = 40960, .vocab = 151936, .tied_head = true, .rotary = {.theta = 1e6}},
    {"vit-nano", "vit", .layers = 4, .heads = 4, .width = 128, .image = 28, .patch = 4, .channels = 1,
     .vocab = 10},
    {"vit-tiny", "vit", .layers = 12, .heads = 3, .width = 192, .vocab = 1000},
    {"vit-small", "vit", .layers = 12, .heads = 6, .width = 384, .vocab = 1000},
    {"vit-base", "vit", .layers = 12, .heads = 12, .width = 768, .vocab = 1000},
};

enum { PRESETS = sizeof presets / sizeof *presets };

const char *config_preset_name(int index) {
    return index >= 0 && index < PRESETS ? presets[index].name : NULL;
}

void config_complete(Config *c) {
    if (c->architecture->patches && c->image <= INT32_MAX) // otherwise config_validate reports the error
        c->context = config_patches(c) + c->class_token;
    if (c->architecture->encoder && !c->encoder_layers) c->encoder_layers = c->layers;
    c->final_norm |= c->norm_order == NORM_PRE;
    if (!c->kv_heads) c->kv_heads = c->heads;
    if (!c->head_size && c->heads > 0) c->head_size = c->width / c->heads;
    if (c->hidden || c->width > INT64_MAX / 8) return; // config_validate reports the error
    c->hidden = 4 * c->width;
    if (activation_gated(c->activation)) c->hidden = (8 * c->width / 3 + 63) / 64 * 64;
}

static Status no_preset(const char *name) {
    if (strchr(name, '/')) return fail(ERROR_FILE, "there is no folder '%.200s'", name);
    const char *names[PRESETS];
    char list[1000] = "";
    int used = 0;
    for (int i = 0; i < PRESETS; i++) {
        names[i] = presets[i].name;
        used +=
            snprintf(list + used, sizeof list - (size_t)used, "%s %s", i ? "," : ": presets are", names[i]);
    }
    const Hint hint = nearest_hint(name, "'", "'", names, PRESETS);
    return fail(ERROR_USAGE, "'%.200s' is neither a folder nor a preset%s", name,
                *hint.text ? hint.text : list);
}

Status config_preset(const char *name, Config *c) {
    const Preset *p = presets;
    while (p < presets + PRESETS && strcmp(name, p->name) != 0) p++;
    if (p == presets + PRESETS) return no_preset(name);
    const Architecture *architecture = architecture_at(0);
    for (int i = 0; strcmp(architecture->type, p->type) != 0; architecture = architecture_at(++i)) continue;
    *c = architecture->defaults;
    snprintf(c->name, sizeof c->name, "%s", p->name);
    c->architecture = architecture;
    c->layers = p->layers;
    c->heads = p->heads;
    c->kv_heads = p->kv_heads;
    c->head_size = p->head_size;
    c->width = p->width;
    c->hidden = p->hidden;
    c->context = p->context;
    c->vocab = p->vocab;
    if (p->image) c->image = p->image;
    if (p->patch) c->patch = p->patch;
    if (p->channels) c->channels = p->channels;
    c->tied_head |= p->tied_head;
    if (p->norm_eps > 0) c->norm_eps = p->norm_eps;
    if (p->init_std > 0) c->init_std = p->init_std;
    if (p->rotary.theta > 0) c->rotary = p->rotary;
    config_complete(c);
    return OK;
}

/* ---- what fits together ---- */

static Status check_ranges(const Config *c) {
    for (int i = 0; i < FIELDS; i++) {
        const ConfigField *f = &fields[i];
        if (f->kind != FIELD_SIZE) continue;
        int64_t value = *(const int64_t *)((const char *)c + f->offset);
        if (value < f->least || value > f->most)
            return fail(ERROR_USAGE, "%s must be from %" PRId64 " to %" PRId64 ", not %" PRId64, f->name,
                        f->least, f->most, value);
    }
    return OK;
}

/* Whether the family's files contain this field. */
static bool has_key(const Architecture *a, size_t field) {
    for (const ConfigKey *k = a->keys; k->key; k++)
        if (k->field == field) return true;
    return false;
}

static Status check_rotary(const Config *c) {
    const Rotary *r = &c->rotary;
    if (c->head_size % 2)
        return fail(ERROR_USAGE, "rotary positions need heads of an even size, not %" PRId64, c->head_size);
    if (!(r->theta > 0 && isfinite(r->theta)))
        return fail(ERROR_USAGE, "rope_theta %g is not a positive number", r->theta);
    if (r->scaling != ROTARY_PLAIN && !(r->factor > 0 && isfinite(r->factor)))
        return fail(ERROR_USAGE, "the rotary positions' factor %g is not a positive number", r->factor);
    if (r->scaling == ROTARY_LLAMA3 &&
        !(r->low > 0 && r->high > r->low && isfinite(r->high) && r->context > 0))
        return fail(ERROR_USAGE,
                    "rotary positions of the type \"llama3\" need 0 < low_freq_factor < high_freq_factor and "
                    "original_max_position_embeddings, not %g, %g and %" PRId64,
                    r->low, r->high, r->context);
    return OK;
}

Status config_validate(const Config *c) {
    TRY(check_ranges(c));
    if (c->architecture->encoder != (c->encoder_layers > 0))
        return fail(ERROR_USAGE, "the encoder's layers are %" PRId64 ", but this is %s", c->encoder_layers,
                    c->architecture->description);
    if (config_query_width(c) != c->width && !has_key(c->architecture, offsetof(Config, head_size)))
        return fail(ERROR_USAGE, "width %" PRId64 " is not a multiple of heads %" PRId64, c->width, c->heads);
    if (c->positions == POSITIONS_ROTARY) TRY(check_rotary(c));
    if (c->architecture->patches && (c->patch < 1 || c->channels < 1 || c->image < c->patch))
        return fail(ERROR_USAGE,
                    "pictures of %" PRId64 " x %" PRId64 " pixels of %" PRId64
                    " channels have no patch of %" PRId64 " x %" PRId64,
                    c->image, c->image, c->channels, c->patch, c->patch);
    if (config_query_width(c) > 1 << 22)
        return fail(ERROR_USAGE, "%" PRId64 " heads of size %" PRId64 " are wider than 2^22", c->heads,
                    c->head_size);
    if (c->heads % c->kv_heads)
        return fail(ERROR_USAGE, "heads %" PRId64 " is not a multiple of key/value heads %" PRId64, c->heads,
                    c->kv_heads);
    if (!(c->norm_eps > 0 && c->norm_eps < 1) || !(c->init_std >= 0 && c->init_std < 100))
        return fail(ERROR_USAGE, "the norm's epsilon %g or the initial deviation %g is out of range",
                    c->norm_eps, c->init_std);
    if (config_parameters(c) > INT64_C(1) << 40)
        return fail(ERROR_USAGE, "the model has %" PRId64 " parameters; the limit is 2^40",
                    config_parameters(c));
    return OK;
}

int64_t config_parameters(const Config *c) {
    return parameters_count(c).elements;
}
