/* The order of parameters in the flat space: that of the network, with each group contiguous. */
#include "tests/support/expect.h"

#include "model/config.h"
#include "model/shards.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static void open_preset(const char *name, Config *config, Parameters *p) {
    expect_ok(config_preset(name, config));
    parameters_open(config, p);
}

static bool within(const Parameters *p, int group, const Parameter *parameter) {
    for (int i = 0; i < p->count; i++)
        if (p->info[i].parameter == parameter) {
            const ParameterRange *range = &p->groups[group];
            int64_t from = p->info[i].offset - range->first;
            return p->info[i].group == group && from >= 0 && from + p->info[i].count <= range->count;
        }
    return false;
}

/* A stack: its embeddings, each block, and what follows. Returns the next group. */
static int expect_stack(const Parameters *p, const StackParameters *s, int64_t layers) {
    int group = s->first_group;
    for (int64_t i = 0; i < layers; i++) {
        group++;
        assert_true(within(p, group, &s->blocks[i].norm1.weight));
        assert_true(within(p, group, &s->blocks[i].qkv.weight));
        assert_true(within(p, group, &s->blocks[i].contract.weight));
    }
    return group + 2;
}

static void groups_are_ranges(void **state) {
    (void)state;
    for (int k = 0; config_preset_name(k); k++) {
        Config c;
        Parameters p;
        open_preset(config_preset_name(k), &c, &p);
        int64_t end = 0;
        int last = 0;
        for (int g = 0; g < p.group_count; g++) {
            assert_true(p.groups[g].first == end && p.groups[g].count >= 0);
            assert_true(p.groups[g].count % ADAMW_UNIT == 0);
            end += p.groups[g].count;
        }
        assert_true(end == p.size);
        for (int i = 0; i < p.count; i++) {
            assert_true(p.info[i].group >= last);
            assert_true(within(&p, p.info[i].group, p.info[i].parameter));
            last = p.info[i].group;
        }
        int group = 0;
        if (c.encoder_layers) group = expect_stack(&p, &p.encoder, c.encoder_layers);
        assert_int_equal(p.stack.first_group, group);
        group = expect_stack(&p, &p.stack, c.layers);
        assert_int_equal(p.group_count, group);
        const bool patches = c.architecture->patches;
        assert_true(within(&p, p.stack.first_group, patches ? &p.stack.patch.weight : &p.stack.token) ||
                    (c.tied_tables && within(&p, p.encoder.first_group, &p.stack.token)));
        if (!c.tied_head) assert_true(within(&p, group - 1, &p.head));
        parameters_close(&p);
    }
}

/* Counts without a list equal those of the list. */
static void counts_follow_from_the_list(void **state) {
    (void)state;
    for (int k = 0; config_preset_name(k); k++) {
        Config c;
        Parameters p;
        open_preset(config_preset_name(k), &c, &p);
        int64_t elements = 0;
        for (int i = 0; i < p.count; i++)
            elements += p.info[i].rows * (p.info[i].count / p.info[i].shape.d[0]);
        assert_int_equal(parameters_count(&c).parameters, p.count);
        assert_true(elements == config_parameters(&c));
        parameters_close(&p);
    }
}

/* A table shared by two stacks comes at its first reader's place. */
static void a_shared_table_comes_first(void **state) {
    (void)state;
    Config c;
    Parameters p;
    open_preset("transformer-nano", &c, &p);
    assert_string_equal(p.info[0].name, "target_embedding.weight");
    assert_true(p.info[0].parameter == &p.stack.token);
    parameters_close(&p);
    c.tied_tables = false;
    parameters_open(&c, &p);
    assert_string_equal(p.info[0].name, "source_embedding.weight");
    assert_true(p.info[0].parameter == &p.encoder.token);
    parameters_close(&p);
}

/* A layer stored in parts has a single name in memory, used by random streams and training states. */
static void parts_have_names(void **state) {
    (void)state;
    static const char *const names[] = {"bert.encoder.layer.3.attention.self.query.bias",
                                        "bert.encoder.layer.3.attention.self.key.bias",
                                        "bert.encoder.layer.3.attention.self.value.bias"};
    Config c;
    Parameters p;
    int found = 0;
    open_preset("bert-nano", &c, &p);
    for (int i = 0; i < p.count; i++) {
        char name[80];
        parameter_part_name(&p.info[i], 0, name);
        if (p.info[i].parts == 1) assert_string_equal(name, p.info[i].name);
        if (strcmp(p.info[i].name, "bert.encoder.layer.3.attention.self.*.bias") != 0) continue;
        assert_int_equal(p.info[i].parts, 3);
        for (int part = 0; part < 3; part++) {
            parameter_part_name(&p.info[i], part, name);
            assert_string_equal(name, names[part]);
        }
        found++;
    }
    assert_int_equal(found, 1);
    parameters_close(&p);
}

/* Weight decay applies to matrices and tables, wherever they lie, not to norms and biases. */
static void decay_is_a_mark(void **state) {
    (void)state;
    Config c;
    Parameters p;
    open_preset("gpt2-nano", &c, &p);
    int changes = 0;
    for (int i = 0; i < p.count; i++) {
        const ParameterInfo *info = &p.info[i];
        const AdamwParameter *a = &p.optimized[i];
        assert_true(a->first == info->offset && a->count == info->count && a->decays == info->decays);
        assert_true(info->decays == (info->shape.rank == 2));
        assert_true(info->offset % ADAMW_UNIT == 0);
        changes += i && info->decays != info[-1].decays;
    }
    assert_true(changes > c.layers); // they are not contiguous
    parameters_close(&p);
}

/* Every element is in one bucket and in one rank's part of it; parts are whole blocks; a bucket ends at its
 * group's end or less than one cut after it. */
static void buckets_are_whole_blocks(void **state) {
    (void)state;
    for (int ranks = 2; ranks <= 64; ranks *= 2) {
        Config c;
        Parameters p;
        open_preset("gpt2-medium", &c, &p);
        int64_t unit = (int64_t)ranks * ADAMW_BLOCK, end = 0, inside = 0;
        for (int rank = 0; rank < ranks; rank++) {
            parameters_share(&p, rank, ranks);
            for (int g = 0; g < p.group_count; g++) {
                ParameterRange part = parameters_part(&p, g);
                assert_true(part.count == 0 || part.first % ADAMW_BLOCK == 0);
                assert_true(part.count >= 0 && (part.count == 0 || part.first + part.count <= p.size));
                inside += part.count;
            }
        }
        assert_int_equal(inside, p.size);
        for (int g = 0; g < p.group_count; g++) {
            int64_t past = p.buckets[g].first + p.buckets[g].count - p.groups[g].first - p.groups[g].count;
            assert_int_equal(p.buckets[g].first, end);
            assert_true(p.buckets[g].count % unit == 0 && past >= 0 && past < unit);
            end += p.buckets[g].count;
        }
        assert_int_equal(end, p.padded);
        parameters_close(&p);
    }
}

/* Every element of the sums is in a block or in exactly one part; a range intersects the parts. */
static void parts_lie_outside_the_blocks(void **state) {
    (void)state;
    for (int k = 0; config_preset_name(k); k++) {
        Config c;
        Parameters p;
        ParameterRange parts[PARTS_OUTSIDE_BLOCKS];
        open_preset(config_preset_name(k), &c, &p);
        parameters_share(&p, 1, 3);
        const int64_t all = p.padded + parameters_tail(&p), half = all / 2;
        int64_t inside = 0, outside = 0;
        int last = p.encoder.first_group + (int)c.encoder_layers, first = p.stack.first_group;
        for (int g = p.encoder.first_group + 1; g <= last; g++) inside += p.groups[g].count;
        for (int g = first + 1; g <= first + c.layers; g++) inside += p.groups[g].count;
        for (int side = 0; side < 2; side++) {
            const ParameterRange range =
                side ? (ParameterRange){half, all - half} : (ParameterRange){0, half};
            for (int i = parameters_outside_blocks(&p, range, parts); i-- > 0;) {
                assert_true(parts[i].first >= range.first && parts[i].count > 0);
                assert_true(parts[i].first + parts[i].count <= range.first + range.count);
                outside += parts[i].count;
            }
        }
        assert_int_equal(inside + outside, all);
        parameters_close(&p);
    }
}

/* Sums over earlier micro-batches, for the parts outside the blocks or for everything: the parts lie one
 * after another. */
static void finished_parts_have_places(void **state) {
    (void)state;
    static float memory[1];
    static const char *const presets[] = {"gpt2-nano", "llama-nano", "bert-nano", "transformer-nano"};
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        Config config;
        Parameters p;
        ParameterRange parts[PARTS_OUTSIDE_BLOCKS];
        open_preset(presets[i], &config, &p);
        const ParameterRange all = {0, p.padded + parameters_tail(&p)};
        const int count = parameters_outside_blocks(&p, all, parts);
        int64_t kept = 0;
        for (int k = 0; k < count; k++) kept += parts[k].count;
        p.sums = tensor_view(NULL, F32, shape1(all.count));
        p.finished = tensor_view(memory, F32, shape1(kept));
        assert_true(count >= 2 && kept < all.count);
        float *place = memory;
        for (int k = 0; k < count; k++) {
            const ParameterRange second = {parts[k].first + 1, parts[k].count - 1};
            assert_true(shards_finished(&p, parts[k]).data == place);
            assert_true(shards_finished(&p, second).data == place + 1);
            place += parts[k].count;
        }
        p.finished = tensor_view(memory, F32, shape1(all.count));
        for (int k = 0; k < count; k++)
            assert_true(shards_finished(&p, parts[k]).data == memory + parts[k].first);
        parameters_close(&p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(groups_are_ranges),
                                       cmocka_unit_test(counts_follow_from_the_list),
                                       cmocka_unit_test(a_shared_table_comes_first),
                                       cmocka_unit_test(parts_have_names),
                                       cmocka_unit_test(buckets_are_whole_blocks),
                                       cmocka_unit_test(decay_is_a_mark),
                                       cmocka_unit_test(parts_lie_outside_the_blocks),
                                       cmocka_unit_test(finished_parts_have_places)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
