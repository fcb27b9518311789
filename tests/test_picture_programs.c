/* ./train and ./infer with pictures, from the user's side. */
#include "base/directories.h"
#include "tasks/pictures/images/write.h"
#include "tests/support/program.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VIT                                                                                                  \
    "train --model=vit-nano --layers=1 --width=16 --heads=2 --batch=4 --device=cpu --peaks=0 --data=data "   \
    "--val-every=3"
#define DRAWN " --crop=0.5 --pad=2 --erase=0.5 --mean-pooling"

enum { CLASSES = 3, EACH = 6, SIDE = 20 };

/* The class determines the position of a bright square. */
static int pictures_setup(void **state) {
    int code = program_setup(state);
    for (int i = 0; i < CLASSES * EACH && !code; i++) {
        uint8_t pixels[SIDE * SIDE * 3];
        char name[60];
        int label = i / EACH;
        for (int k = 0; k < SIDE * SIDE; k++)
            memset(pixels + 3 * k, k / SIDE / 7 == label ? 200 + i : 20 + k % 9, 3);
        snprintf(name, sizeof name, "data/class%c", "abc"[label]);
        expect_ok(directory_make(inside(*state, name)));
        snprintf(name, sizeof name, "data/class%c/%d.png", "abc"[label], i);
        expect_ok(image_write(inside(*state, name), &(Image){pixels, SIDE, SIDE, 3}));
    }
    return code;
}

static void learns_classes(void **state) {
    const Ran *ran =
        program_succeeds(*state, VIT " --val-data=data --steps=60 --val-every=60 --lr=0.01 --crop=1 "
                                     "--flip=0 --out=learned");
    expect_text(ran->output, "18 pictures in 3 classes");
    expect_text(ran->output, "accuracy 100.00%, top 5 100.00%");
    expect_text(ran->output, "images/s");
    ran = program_succeeds(*state, "infer --model=learned --device=cpu --eval=data --json=eval.json");
    expect_text(ran->output, "data: 18 pictures, accuracy 100.00%");
    expect_text(ran->output, "classb              0      6      0");
    ran = program_succeeds(*state,
                           "infer --model=learned --device=cpu --classify=data/classc --json=classes.json "
                           "--batch=4");
    expect_text(ran->output, "data/classc/12.png\n");
    expect_text(ran->output, "%  classc\n");
    json_t *json = json_load_file(inside(*state, "classes.json"), 0, NULL);
    const json_t *first =
        json_array_get(json_object_get(json_array_get(json_object_get(json, "pictures"), 5), "classes"), 0);
    assert_string_equal(json_string_value(json_object_get(first, "class")), "classc");
    assert_true(json_number_value(json_object_get(first, "probability")) > 0.5);
    json_decref(json);
    ran = program_succeeds(*state, "infer --model=learned --device=cpu --classify=data/classa/0.png "
                                   "--attention-map=map.png");
    expect_text(ran->output, "attention map in map.png: black is 0%, white ");
    Image map;
    expect_ok(image_read_file(inside(*state, "map.png"), 3, &map));
    assert_in_range(map.height, 448, 896);
    int most = 0, total;
    for (int64_t i = 0; i < map.height * map.width; i++) {
        const uint8_t *pixel = map.pixels + 3 * i;
        if (i % map.width >= map.height) continue; // of the scale
        total = pixel[0] + pixel[1] + pixel[2];
        if (total > most) most = total;
    }
    assert_true(most > 3 * 127); // the patch with the largest share is white, blended with the picture
    const uint8_t *top = map.pixels + 3 * (map.width - 1),
                  *bottom = map.pixels + 3 * (map.height * map.width - 1);
    assert_int_equal(top[0] + top[1] + top[2], 3 * 255);
    assert_int_equal(bottom[0] + bottom[1] + bottom[2], 0);
    image_free(&map);
    ran = program_succeeds(*state, "infer --model=learned --device=cpu --embed=data --output=e.safetensors");
    expect_text(ran->output, "18 embeddings of width 16");
}

/* The same bits with any number of workers, and after a resumption. */
static void runs_are_repeatable(void **state) {
    char whole[20000];
    program_succeeds(*state, VIT DRAWN " --steps=8 --workers=0 --log=zero.jsonl --tensorboard=board");
    const Ran *curves = program_succeeds(*state, "cat board/* | tr -cd 'a-z0-9 /'");
    expect_text(curves->output, "accuracy/top 1");
    expect_text(curves->output, "images per second");
    snprintf(whole, sizeof whole, "%s", log_numbers(*state, "zero.jsonl", 0));
    program_succeeds(*state, VIT DRAWN " --steps=8 --workers=3 --log=three.jsonl");
    assert_string_equal(log_numbers(*state, "three.jsonl", 0), whole);
    snprintf(whole, sizeof whole, "%s", log_numbers(*state, "zero.jsonl", 5));
    program_succeeds(*state, VIT DRAWN " --steps=8 --save-every=5 --keep=0 --out=half --log=saved.jsonl");
    program_succeeds(*state, RESUME "=half/step-00000005 --force --out=half --device=cpu --log=more.jsonl");
    assert_string_equal(log_numbers(*state, "more.jsonl", 5), whole);
}

static void heads_read_a_token_or_the_mean(void **state) {
    program_succeeds(*state, VIT " --steps=1 --val-every=0 --quiet --out=token");
    program_succeeds(*state, VIT " --steps=1 --val-every=0 --quiet --out=mean --mean-pooling");
    const Ran *ran = program_succeeds(*state, "infer --model=mean --device=cpu --eval=data");
    expect_text(ran->output, "data: 18 pictures, accuracy");
    program_succeeds(*state, VIT " --model=mean --steps=1 --val-every=0 --quiet --mean-pooling --layers=0 "
                                 "--width=0 --heads=0");
    program_refuses(*state, ERROR_USAGE, "--mean-pooling can change a preset only",
                    VIT " --model=token --steps=1 --quiet --mean-pooling --layers=0 --width=0 --heads=0");
    program_refuses(*state, ERROR_USAGE, "--mean-pooling is for a vision Transformer",
                    "train --device=cpu --steps=1 --quiet --mean-pooling");
}

static void passes_over_broken_pictures(void **state) {
    write_text_file(inside(*state, "data/classb/bad.jpg"), "no picture");
    program_refuses(*state, ERROR_FORMAT, "classb/bad.jpg: not a PNG, JPEG, BMP or PNM picture",
                    VIT " --steps=8 --val-every=0 --quiet");
    const Ran *ran = program_succeeds(*state, VIT " --steps=8 --val-every=0 --skip-broken");
    expect_text(ran->output, "skipped ");
    expect_text(ran->output, "broken pictures that were skipped: 1");
    ran = program_succeeds(*state, "infer --model=learned --device=cpu --eval=data --skip-broken --quiet "
                                   "--json=judged.json && cat judged.json");
    expect_text(ran->output, "\"broken\":1");
    expect_ok(directory_remove(inside(*state, "data/classb/bad.jpg")));
}

/* If the head is kept, so are its class names. */
static void names_of_classes_are_compared(void **state) {
    const char *again =
        "train --model=named --batch=4 --device=cpu --peaks=0 --steps=1 --val-every=0 --data=";
    program_succeeds(
        *state,
        "mkdir other && cp -r data/classa other/first$(printf '\\033') && cp -r data/classb other/second "
        "&& cp -r data/classc other/third");
    program_succeeds(*state, VIT " --steps=1 --val-every=0 --quiet --out=named");
    const Ran *ran = program_succeeds(*state, "%sother", again);
    expect_text(ran->error, "\"first?\" of --data is the model's \"classa\"");
    ran = program_succeeds(*state, "%sdata", again);
    assert_null(strstr(ran->error, "by their order"));
    program_succeeds(*state, "%sother --new-head --out=anew --quiet", again);
    ran = program_succeeds(*state, "infer --model=anew --device=cpu --classify=data/classa/0.png");
    expect_text(ran->output, "third");
    ran = program_succeeds(*state, "infer --model=anew --device=cpu --eval=data");
    expect_text(ran->error, "\"classa\" of --eval is the model's \"first?\"");
    ran = program_succeeds(*state, "infer --model=anew --device=cpu --eval=other");
    assert_null(strstr(ran->error, "by their order"));
}

/* label2id finds a class by name, so names are made unique: those of folders that differ only in control
 * characters, and those in an untrusted id2label. */
static void equal_names_are_numbered(void **state) {
    program_succeeds(*state, "mkdir alike && cp -r data/classa alike/caf$(printf '\\350') && "
                             "cp -r data/classb alike/caf$(printf '\\351')");
    program_succeeds(*state, VIT " --data=alike --steps=1 --val-every=0 --out=alike-run");
    program_succeeds(*state, "grep -q '\"caf? (2)\":1' alike-run/step-00000001/config.json");
    const Ran *ran = program_succeeds(*state, "infer --model=alike-run --device=cpu --eval=alike");
    expect_text(ran->output, "12 pictures");
    assert_null(strstr(ran->error, "by their order"));
    program_succeeds(*state, "sed -i 's/\"caf? (2)\"/\"caf?\"/' alike-run/step-00000001/config.json; "
                             "sed -i '/label2id/,/}/d' alike-run/step-00000001/config.json");
    program_succeeds(*state, "train --model=alike-run --batch=4 --device=cpu --peaks=0 --steps=1 "
                             "--val-every=0 --data=alike --out=again");
}

/* A model that cannot be saved is refused before the first step: unnamed classes are called
 * LABEL_<number>. */
static void refuses_what_cannot_be_saved(void **state) {
    program_succeeds(*state, "mkdir clash && cp -r data/classa clash/a && cp -r data/classb clash/LABEL_3");
    const Ran *ran = program_refuses(*state, ERROR_USAGE, "could not be saved",
                                     VIT " --data=clash --vocab=4 --steps=1 --out=clash-run");
    expect_text(ran->error, "LABEL_3");
    assert_null(strstr(ran->output, "step 1"));
    program_succeeds(*state, "test \"$(ls clash-run)\" = cache");
}

static void sizes_are_swept(void **state) {
    const Ran *ran = program_succeeds(*state, VIT " --sweep --batch-sizes=2,3 --image-sizes=28,32 "
                                                  "--profile-out=sizes");
    expect_text(ran->output, "Seq is a picture's side");
    expect_text(ran->output, "batch 3, side 28\n");
    ran = program_succeeds(*state, "cut -d, -f1,2 sizes/sweep.csv");
    expect_text(ran->output, "batch,seq\n2,28\n2,32\n3,28\n3,32\n");
    program_refuses(*state, ERROR_USAGE, "--image-size is for a vision Transformer",
                    "train --device=cpu --sweep --image-sizes=28,32 --profile-out=none");
    ran = program_succeeds(*state, "infer --model=learned --device=cpu --peaks=0 --sweep --batch-sizes=2,3 "
                                   "--image-sizes=28,36 --compare --profile-out=passes");
    expect_text(ran->output, "Seq is a picture's side");
    ran = program_succeeds(*state, "cut -d, -f1-3 passes/sweep.csv | tr '\\n' ' '");
    expect_text(ran->output,
                "batch,seq,path 2,28,naive 2,28,fused 2,36,naive 2,36,fused 3,28,naive 3,28,fused");
    program_refuses(*state, ERROR_USAGE, "--image-sizes is for a vision Transformer",
                    "infer --device=cpu --sweep --image-sizes=28,32 --profile-out=none");
    program_refuses(*state, ERROR_USAGE, "--image-sizes has no effect without --sweep",
                    "infer --model=vit-nano --device=cpu --image-sizes=28,32");
    program_refuses(*state, ERROR_USAGE, "no patch",
                    "infer --model=vit-nano --device=cpu --sweep --image-sizes=28,3 --profile-out=none");
}

/* One validation is inside the window and one after it; a page's tables are the bundle's. */
static void pages_tell_the_accuracy(void **state) {
    program_succeeds(*state,
                     VIT " --steps=12 --val-every=4 --profile=0,0,1,2,1 --profile-out=told --log=told.jsonl");
    json_t *events = log_read(*state, "told.jsonl", false);
    double top1 = json_number_value(json_object_get(log_last(events, "val"), "top1"));
    json_decref(events);
    const Ran *ran = program_succeeds(*state, "cut -d, -f1 told/tables/validation.csv | tr '\\n' ' '");
    expect_text(ran->output, "step 4 8 12");
    ran = program_succeeds(*state, "tail -n 1 told/tables/validation.csv | cut -d, -f3");
    assert_true(fabs(atof(ran->output) - top1) < 1e-6);
    program_succeeds(*state, "grep -q '\"validation\"' told/profiling_stats.json && "
                             "grep -q '\"validation\"' told/profile.html");
}

static void refuses_what_does_not_fit(void **state) {
    program_refuses(*state, ERROR_USAGE, "vision Transformer", "infer --classify=data --device=cpu");
    program_refuses(*state, ERROR_FORMAT, "not pictures", VIT " --data=text.txt --steps=1 --quiet");
    program_refuses(*state, ERROR_FILE, "no file or folder", VIT " --data=nowhere --steps=1 --quiet");
    program_refuses(*state, ERROR_USAGE, "--classify", "infer --attention-map=x.png --device=cpu");
    program_refuses(*state, ERROR_USAGE, "--seq=5 has no effect on pictures",
                    VIT " --data=data --seq=5 --quiet");
    program_refuses(*state, ERROR_USAGE, "a length of 5 has no effect on pictures",
                    "infer --model=vit-nano --seq-lens=1,5 --device=cpu");
    program_refuses(*state, ERROR_USAGE, "--workers has no effect without a vision Transformer",
                    "infer --eval=text.txt --workers=2 --device=cpu");
    program_refuses(*state, ERROR_USAGE, "--sample-tokens has no effect without a decoder-only model",
                    VIT " --data=data --sample-tokens=5 --quiet");
    program_refuses(*state, ERROR_USAGE, "--pad has no effect without a vision Transformer",
                    "train --pad=2 --steps=1 --device=cpu");
    program_refuses(*state, ERROR_USAGE, "see --classify",
                    "infer --model=learned --prompt=what --device=cpu");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(learns_classes),
                                       cmocka_unit_test(runs_are_repeatable),
                                       cmocka_unit_test(heads_read_a_token_or_the_mean),
                                       cmocka_unit_test(passes_over_broken_pictures),
                                       cmocka_unit_test(names_of_classes_are_compared),

                                       cmocka_unit_test(equal_names_are_numbered),
                                       cmocka_unit_test(refuses_what_cannot_be_saved),
                                       cmocka_unit_test(sizes_are_swept),
                                       cmocka_unit_test(pages_tell_the_accuracy),
                                       cmocka_unit_test(refuses_what_does_not_fit)};
    return cmocka_run_group_tests(tests, pictures_setup, scratch_teardown);
}
