#include "model/config.h"

#include "base/nearest.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Radford et al. 2019, table 2, as released; gpt2-nano is ours, small enough to train on a laptop's CPU. */
static const Config presets[] = {
    {.name = "gpt2-nano", .layers = 4, .heads = 4, .width = 128, .context = 256, .vocab = 256},
    {.name = "gpt2", .layers = 12, .heads = 12, .width = 768, .context = 1024, .vocab = 50257},
    {.name = "gpt2-medium", .layers = 24, .heads = 16, .width = 1024, .context = 1024, .vocab = 50257},
    {.name = "gpt2-large", .layers = 36, .heads = 20, .width = 1280, .context = 1024, .vocab = 50257},
    {.name = "gpt2-xl", .layers = 48, .heads = 25, .width = 1600, .context = 1024, .vocab = 50257},
};
enum { PRESETS = sizeof presets / sizeof *presets, PADDING = 128 };

const char *config_preset_name(int index) {
    return index >= 0 && index < PRESETS ? presets[index].name : NULL;
}

Status config_preset(const char *name, Config *config) {
    const char *names[PRESETS];
    for (int i = 0; i < PRESETS; i++) names[i] = presets[i].name;
    for (int i = 0; i < PRESETS; i++) {
        if (strcmp(name, names[i]) != 0) continue;
        *config = presets[i];
        config->mask = MASK_CAUSAL;
        config->activation = ACTIVATION_GELU_TANH;
        config->kv_heads = config->heads;
        config->hidden = 4 * config->width;
        config->norm_eps = 1e-5;
        config->init_std = 0.02;
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

/* Within the ranges of config_validate nothing here overflows. */
int64_t config_parameters(const Config *c) {
    int64_t kv = c->kv_heads * config_head_size(c), C = c->width;
    int64_t attention = C * (C + 2 * kv) + C + 2 * kv + C * C + C;
    int64_t feed_forward = 2 * C * c->hidden + c->hidden + C;
    int64_t norms = 4 * C;
    return c->vocab * C + c->context * C + c->layers * (attention + feed_forward + norms) + 2 * C;
}
