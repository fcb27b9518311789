/* ./infer --save: folders with quantized weights give the bits of --weights from the original folder, and
 * those that cannot be used are refused. */
#include "base/bfloat16.h"
#include "base/groups.h"
#include "data/safetensors.h"
#include "tests/support/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 2 * GROUP_ROWS, PER_ROW = 3, WIDTH = PER_ROW * GROUP, GROUPS = ROWS * PER_ROW };

/* Rows that are no whole tile, too. */
static void groups_are_copied_in_order(void **state) {
    static const Dtype dtypes[] = {I8, I4};
    static uint8_t tiled[2][ROWS * WIDTH], plain[ROWS * WIDTH];
    static uint16_t scales[2][GROUPS], plain_scales[GROUPS];
    static float values[ROWS * WIDTH];
    (void)state;
    for (int i = 0; i < ROWS * WIDTH; i++) values[i] = (float)(i * 7919 % 1009 - 500) * (float)(i % 5 + 1);
    for (int d = 0; d < 2; d++) {
        Tensor from = tensor_view(tiled[0], dtypes[d], shape2(ROWS, WIDTH)), to = from;
        const int bytes = (int)dtype_bytes(dtypes[d], GROUP), cut = 3 * PER_ROW + 1;
        from.scales = scales[0];
        to.data = tiled[1];
        to.scales = scales[1];
        groups_quantize(from, 0, ROWS * WIDTH, values, NULL);
        groups_copy(from, 0, cut, plain, plain_scales, false);
        groups_copy(from, cut, GROUPS - cut, plain + cut * bytes, NULL, false);
        groups_copy(from, cut, GROUPS - cut, NULL, plain_scales + cut, false);
        groups_copy(to, 0, GROUPS, plain, plain_scales, true);
        assert_memory_equal(tiled[0], tiled[1], (size_t)(GROUPS * bytes));
        assert_memory_equal(scales[0], scales[1], sizeof scales[0]);
        for (int g = 0; g < GROUPS; g++) {
            int8_t codes[GROUP];
            assert_true(groups_codes(from, g / PER_ROW, g % PER_ROW, codes) ==
                        bfloat16_to_float(plain_scales[g]));
            for (int i = 0; i < GROUP; i++) {
                const uint8_t byte = plain[g * bytes + i % bytes];
                assert_int_equal(codes[i],
                                 dtypes[d] == I8 ? (int8_t)byte : groups_levels[byte >> i / bytes * 4 & 15]);
            }
        }
    }
}

#define LOGITS "--device=cpu --peaks=0 --quiet --ids=1,5,77,30,9,100"

/* The preset's first weights are drawn from the seed, so each run has the same. */
static void a_folder_gives_the_same_bits(void **state) {
    static const char *const models[] = {"llama-nano", "gpt2-nano"}, *const weights[] = {"int8", "int4"},
                             *const dtypes[] = {"fp32", "bf16"};
    for (int i = 0; i < 8; i++) {
        const char *model = models[i & 1], *w = weights[i >> 1 & 1], *dtype = dtypes[i >> 2];
        program_succeeds(*state, "infer --model=%s --device=cpu --dtype=%s --weights=%s --save=bits%d", model,
                         dtype, w, i);
        program_succeeds(*state, "infer --model=%s --dtype=%s --weights=%s --logits=want " LOGITS, model,
                         dtype, w);
        program_succeeds(*state, "infer --model=bits%d --dtype=%s --logits=got " LOGITS, i, dtype);
        expect_same_file(*state, "want", "got");
        program_succeeds(*state,
                         "infer --model=bits%d --dtype=%s --weights=%s --fused=0 --logits=got " LOGITS, i,
                         dtype, w);
    }
}

/* Other families: a folder that is saved again is the same. */
static void a_folder_is_saved_again(void **state) {
    static const char *const models[] = {"bert-nano", "vit-nano", "transformer-nano"};
    for (int i = 0; i < 3; i++) {
        program_succeeds(*state, "infer --model=%s --device=cpu --weights=int4 --save=once%d", models[i], i);
        program_succeeds(*state, "infer --model=once%d --device=cpu --weights=int4 --save=twice%d", i, i);
        char one[64], other[64];
        snprintf(one, sizeof one, "once%d/model.safetensors", i);
        snprintf(other, sizeof other, "twice%d/model.safetensors", i);
        expect_same_file(*state, one, other);
    }
}

static void a_trained_model_is_kept(void **state) {
    program_succeeds(*state, "train " TINY " --steps=2 --out=run");
    program_succeeds(*state, "infer --model=run --device=cpu --weights=int4 --save=kept");
    char *text = strdup(program_succeeds(*state, "infer --model=run --device=cpu --quiet --weights=int4 "
                                                 "--prompt=a --tokens=20 --seed=3")
                            ->output);
    const Ran *ran =
        program_succeeds(*state, "infer --model=kept --device=cpu --quiet --prompt=a --tokens=20 --seed=3");
    assert_string_equal(ran->output, text);
    free(text);
    program_succeeds(*state, "infer --model=kept --draft=kept --device=cpu --prompt=a --tokens=9");
    expect_same_file(*state, "run/step-00000002/tokenizer_config.json", "kept/tokenizer_config.json");
    program_refuses(*state, ERROR_FORMAT, "kept: its weights are int4", "train " TINY " --model=kept");
    program_refuses(*state, ERROR_FORMAT, "cannot be used as int8",
                    "infer --model=kept --device=cpu --weights=int8 --prompt=a");
    program_refuses(*state, ERROR_FORMAT, "cannot be used as float",
                    "infer --model=kept --device=cpu --weights=float --prompt=a");
    program_refuses(*state, ERROR_FORMAT, "cannot be used as float",
                    "infer --model=kept --device=cpu --weights=int4 --quiet --eval=validation.txt --compare");
    program_refuses(*state, ERROR_FILE, "kept exists",
                    "infer --model=run --device=cpu --weights=int8 --save=kept");
    program_refuses(*state, ERROR_USAGE, "--save has no effect without --weights",
                    "infer --model=run --device=cpu --save=new");
    program_refuses(*state, ERROR_USAGE, "--save and --prompt",
                    "infer --model=run --device=cpu --weights=int8 --save=new --prompt=a");
}

/* ---- files that are wrong ---- */

typedef struct {
    const char *entry; // the entry that is changed; NULL: none
    enum { LEFT_OUT, NARROWER, UNSIGNED, BYTE, RENAMED } change;
    uint8_t byte[2];          // BYTE: the first two bytes of the entry
    const char *note, *error; // the note, or NULL for the right one; a part of the message
} Damage;

#define QUERIES "model.layers.0.self_attn.q_proj.weight"

static const Damage damages[] = {
    {QUERIES "_scale", LEFT_OUT, {0}, NULL, "the weights lack '" QUERIES "_scale'"},
    {QUERIES "_packed", LEFT_OUT, {0}, NULL, "the weights lack '" QUERIES "_packed'"},
    {QUERIES "_scale", NARROWER, {0}, NULL, "by config.json it is"},
    {QUERIES "_packed", NARROWER, {0}, NULL, "by config.json it is"},
    {QUERIES "_packed", UNSIGNED, {0}, NULL, "holds U8; by the file's note it is I8"},
    {QUERIES "_packed", BYTE, {1, 0x80}, NULL, "a code of -128"},
    {QUERIES "_scale", BYTE, {0xc0, 0x7f}, NULL, "a scale that is not finite"},
    {QUERIES "_packed", RENAMED, {0}, NULL, "the weights lack '" QUERIES "_packed'"},
    {NULL, LEFT_OUT, {0}, "int3, groups of 32", "the note fusebox.packed 'int3, groups of 32'"},
    {NULL, LEFT_OUT, {0}, "int4, groups of 32", "by config.json it is"},
    {NULL, LEFT_OUT, {0}, "", "the note fusebox.packed ''"},
};

/* Writes a changed copy of `from` to `to`, without digests. */
static void damage(const char *from, const char *to, const Damage *d) {
    Safetensors *file;
    SafetensorsWriter *writer;
    SafetensorsEntry entries[128];
    const uint8_t *data[128];
    int64_t count = 0;
    expect_ok(safetensors_open(from, &file));
    for (int64_t i = 0; i < safetensors_count(file); i++) {
        SafetensorsEntry *e = &entries[count];
        *e = *safetensors_entry(file, i);
        const bool meant = d->entry && strcmp(e->name, d->entry) == 0;
        if (meant && d->change == LEFT_OUT) continue;
        if (meant && d->change == UNSIGNED) e->type = SAFE_U8;
        if (meant && d->change == RENAMED) e->name = QUERIES;
        if (meant && d->change == NARROWER) {
            e->d[1] /= 2;
            e->bytes /= 2;
        }
        data[count] = e->data;
        if (meant && d->change == BYTE) {
            uint8_t *changed = malloc((size_t)e->bytes);
            memcpy(changed, e->data, (size_t)e->bytes);
            memcpy(changed, d->byte, sizeof d->byte);
            data[count] = changed;
        }
        count++;
    }
    const SafetensorsNote note = {"fusebox.packed",
                                  d->note ? d->note : safetensors_note_value(file, "fusebox.packed")};
    expect_ok(safetensors_writer_open(to, entries, count, &note, 1, &writer));
    for (int64_t i = 0; i < count; i++)
        expect_ok(safetensors_writer_append(writer, data[i], entries[i].bytes));
    expect_ok(safetensors_writer_close(writer));
    for (int64_t i = 0; i < count; i++)
        if (d->change == BYTE && strcmp(entries[i].name, d->entry) == 0) free((void *)(uintptr_t)data[i]);
    safetensors_close(file);
}

static void wrong_files_are_named(void **state) {
    program_succeeds(*state,
                     "infer --model=llama-nano --device=cpu --weights=int8 --save=sound && cp -r sound bad");
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        damage(inside(*state, "sound/model.safetensors"), inside(*state, "bad/model.safetensors"),
               &damages[i]);
        program_refuses(*state, ERROR_FORMAT, damages[i].error,
                        "infer --model=bad --quiet " LOGITS " --logits=x");
    }
    const Damage none = {0};
    damage(inside(*state, "sound/model.safetensors"), inside(*state, "bad/model.safetensors"), &none);
    program_succeeds(*state, "infer --model=bad " LOGITS " --logits=x");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_are_copied_in_order), cmocka_unit_test(a_folder_gives_the_same_bits),
        cmocka_unit_test(a_folder_is_saved_again),    cmocka_unit_test(a_trained_model_is_kept),
        cmocka_unit_test(wrong_files_are_named),
    };
    return cmocka_run_group_tests(tests, program_setup, scratch_teardown);
}
