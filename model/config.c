#include "model/config.h"

#include "base/nearest.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define BERT                                                                                                 \
    .objective = OBJECTIVE_MASKED_TOKEN, .mask = MASK_FULL, .activation = ACTIVATION_GELU,                   \
    .norm_order = NORM_POST, .embedding_norm = true, .segments = 2, .tied_head = true,                       \
    .head_transform = true
#define PAIRS(n)                                                                                             \
    .objective = OBJECTIVE_SEQUENCE, .activation = ACTIVATION_RELU, .norm_order = NORM_POST,                 \
    .positions = POSITIONS_SINUSOID, .embedding_scale = true, .tied_tables = true, .tied_head = true,        \
    .layers = n, .encoder_layers = n

/* Radford et al. 2019, table 2, as released; Devlin et al. 2019, section 3; Vaswani et al. 2017, table 3. The
 * nano ones are ours, small enough to train on a laptop's CPU. */
static const Config presets[] = {
    {.name = "gpt2-nano", .layers = 4, .heads = 4, .width = 128, .context = 256, .vocab = 256},
    {.name = "gpt2", .layers = 12, .heads = 12, .width = 768, .context = 1024, .vocab = 50257},
    {.name = "gpt2-medium", .layers = 24, .heads = 16, .width = 1024, .context = 1024, .vocab = 50257},
    {.name = "gpt2-large", .layers = 36, .heads = 20, .width = 1280, .context = 1024, .vocab = 50257},
    {.name = "gpt2-xl", .layers = 48, .heads = 25, .width = 1600, .context = 1024, .vocab = 50257},
    {.name = "bert-nano", BERT, .layers = 4, .heads = 4, .width = 128, .context = 128, .vocab = 4096},
    {.name = "bert-base", BERT, .layers = 12, .heads = 12, .width = 768, .context = 512, .vocab = 30522},
    {.name = "bert-large", BERT, .layers = 24, .heads = 16, .width = 1024, .context = 512, .vocab = 30522},
    {.name = "transformer-nano", PAIRS(3), .heads = 4, .width = 128, .context = 128, .vocab = 4096},
    {.name = "transformer-base", PAIRS(6), .heads = 8, .width = 512, .context = 1024, .vocab = 37000},
    {.name = "transformer-big", PAIRS(6), .heads = 16, .width = 1024, .context = 1024, .vocab = 37000},
};
enum { PRESETS = sizeof presets / sizeof *presets, PADDING = 128 };

const char *config_preset_name(int index) {
    return index >= 0 && index < PRESETS ? presets[index].name : NULL;
}

/* What all presets of an objective share. */
static void complete(Config *c) {
    c->kv_heads = c->heads;
    c->hidden = 4 * c->width;
    if (c->objective == OBJECTIVE_NEXT_TOKEN) {
        c->activation = ACTIVATION_GELU_TANH;
        c->tied_head = true;
    }
    c->norm_eps = c->objective == OBJECTIVE_MASKED_TOKEN ? 1e-12 : 1e-5;
    c->init_std = c->objective == OBJECTIVE_SEQUENCE ? 0 : 0.02;
}

Status config_preset(const char *name, Config *config) {
    const char *names[PRESETS];
    for (int i = 0; i < PRESETS; i++) names[i] = presets[i].name;
    for (int i = 0; i < PRESETS; i++) {
        if (strcmp(name, names[i]) != 0) continue;
        *config = presets[i];
        complete(config);
        return OK;
    }
    return fail(ERROR_USAGE, "no preset is named '%s', and no folder either; did you mean '%s'?", name,
                nearest_name(name, names, PRESETS));
}

static Status in_range(const char *what, int64_t value, int64_t most) {
    if (value >= 1 && value <= most) return OK;
    return fail(ERROR_USAGE, "%s is %" PRId64 ", but must lie in 1 to %" PRId64, what, value, most);
}

Status config_validate(const Config *c) {
    TRY(in_range("layers", c->layers, 10000));
    if (c->objective == OBJECTIVE_SEQUENCE) TRY(in_range("the encoder's layers", c->encoder_layers, 10000));
    if (c->segments) TRY(in_range("segments", c->segments, 1 << 10));
    TRY(in_range("heads", c->heads, 65536));
    TRY(in_range("kv_heads", c->kv_heads, c->heads));
    TRY(in_range("width", c->width, 1 << 20));
    TRY(in_range("the feed-forward width", c->hidden, 1 << 22));
    TRY(in_range("context", c->context, 1 << 24));
    TRY(in_range("vocab", c->vocab, 1 << 28));
    if (c->width % c->heads)
        return fail(ERROR_USAGE, "width %" PRId64 " is not a multiple of heads %" PRId64, c->width, c->heads);
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

int64_t config_padded_vocab(const Config *c) {
    return (c->vocab + PADDING - 1) / PADDING * PADDING;
}

int64_t config_head_size(const Config *c) {
    return c->width / c->heads;
}

double config_token_scale(const Config *c) {
    return c->embedding_scale ? sqrt((double)c->width) : 1;
}

/* Of one block: attention, cross attention, feed-forward, and the norm of each. */
static int64_t block_parameters(const Config *c, bool cross) {
    int64_t kv = c->kv_heads * config_head_size(c), C = c->width;
    int64_t attention = C * (C + 2 * kv) + C + 2 * kv + C * C + C + 2 * C;
    int64_t feed_forward = 2 * C * c->hidden + c->hidden + C + 2 * C;
    return attention * (cross ? 2 : 1) + feed_forward;
}

/* Within the ranges of config_validate nothing here overflows. */
int64_t config_parameters(const Config *c) {
    int64_t C = c->width, stacks = c->encoder_layers ? 2 : 1;
    int64_t tables = (c->encoder_layers && !c->tied_tables) + 1 + !c->tied_head;
    int64_t count = tables * c->vocab * C + c->segments * C;
    if (c->positions == POSITIONS_LEARNED) count += stacks * c->context * C;
    if (c->embedding_norm) count += stacks * 2 * C;
    if (c->norm_order == NORM_PRE) count += stacks * 2 * C;
    if (c->head_transform) count += C * C + 3 * C + c->vocab;
    if (c->pooler) count += C * C + C;
    return count + c->encoder_layers * block_parameters(c, false) +
           c->layers * block_parameters(c, c->encoder_layers > 0);
}
