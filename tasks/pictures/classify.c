#include "tasks/pictures/infer.h"

#include "base/json_writer.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "tasks/pictures/images/resample.h"
#include "tasks/pictures/images/write.h"
#include "tasks/pictures/picture_passes.h"
#include "run/ranking.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LIKELIEST = 5 };

/* ---- the attention map ---- */

enum { LEAST_SIDE = 448, SCALE_WIDTH = 24, GAP = 8, FULL = 255 };

/* The mean over the heads, scaled to a maximum of FULL: (side, side) patches. *largest gets the maximum. */
static Status read_map(const PicturePasses *p, int64_t side, uint8_t *bytes, double *largest) {
    const Inference *in = &p->inference;
    int64_t heads = in->model.config.heads, patches = side * side, row = patches + 1;
    OWNED float *values = memory_array((size_t)(heads * row), sizeof *values);
    float most = 0;
    TRY(values_read((Ctx *)&in->ctx, in->model.map, 0, heads * row, values));
    for (int64_t i = 0; i < patches; i++) {
        float sum = 0;
        for (int64_t head = 0; head < heads; head++) sum += values[head * row + 1 + i];
        values[1 + i] = sum; // the first head's values are no longer needed
        most = fmaxf(most, sum);
    }
    for (int64_t i = 0; i < patches; i++) bytes[i] = (uint8_t)(most > 0 ? FULL * values[1 + i] / most : 0);
    *largest = most / (double)heads;
    return OK;
}

static void enlarge(const Image *small, Image *large) {
    const Cut cut = {.height = small->height,
                     .width = small->width,
                     .scaled_height = large->height,
                     .scaled_width = large->width};
    image_resample(small, &cut, RESAMPLE_BILINEAR, large->height, large->width, large->pixels);
}

/* Black, red, yellow, white. */
static int heat_color(int heat, int64_t channel) {
    int value = 3 * heat - FULL * (int)channel;
    return value < 0 ? 0 : value > FULL ? FULL : value;
}

/* Blends the gray picture and the heat map in equal parts. */
static void blend(const Image *picture, const Image *map, Image *out) {
    for (int64_t y = 0; y < picture->height; y++) {
        for (int64_t x = 0; x < picture->width; x++) {
            const uint8_t *pixel = picture->pixels + (y * picture->width + x) * picture->channels;
            uint8_t *to = out->pixels + (y * out->width + x) * IMAGE_CHANNELS;
            int heat = map->pixels[y * map->width + x], gray = 0;
            for (int64_t c = 0; c < picture->channels; c++) gray += pixel[c];
            gray /= (int)picture->channels;
            for (int64_t c = 0; c < IMAGE_CHANNELS; c++) to[c] = (uint8_t)((gray + heat_color(heat, c)) / 2);
        }
    }
}

/* Draws the color scale right of the picture, with the largest value at the top. */
static void draw_scale(Image *out) {
    for (int64_t y = 0; y < out->height; y++) {
        int heat = (int)(FULL * (out->height - 1 - y) / (out->height - 1));
        for (int64_t x = out->width - SCALE_WIDTH; x < out->width; x++)
            for (int64_t c = 0; c < IMAGE_CHANNELS; c++)
                out->pixels[(y * out->width + x) * IMAGE_CHANNELS + c] = (uint8_t)heat_color(heat, c);
    }
}

static Image new_image(int64_t height, int64_t width, int64_t channels) {
    return (Image){memory_allocate((size_t)(height * width * channels)), height, width, channels};
}

/* Draws the class token's attention in the last layer, averaged over the heads, as a heat map over the batch's
 * first picture, enlarged and in gray. Colors go from black through red and yellow to white, which stands for
 * *largest, the largest share of a patch. A color scale is drawn at the right. */
static Status write_map(const char *path, const PicturePasses *p, double *largest) {
    const Config *c = &p->inference.model.config;
    int64_t side = c->image / c->patch, scale = (LEAST_SIDE + c->image - 1) / c->image,
            full = scale * c->image;
    Image seen = {(uint8_t *)p->batch.pictures, c->image, c->image, c->channels};
    CLOSED_BY(image_free) Image patches = new_image(side, side, 1);
    CLOSED_BY(image_free) Image picture = new_image(full, full, c->channels);
    CLOSED_BY(image_free) Image map = new_image(full, full, 1);
    CLOSED_BY(image_free) Image out = new_image(full, full + GAP + SCALE_WIDTH, IMAGE_CHANNELS);
    TRY(read_map(p, side, patches.pixels, largest));
    enlarge(&seen, &picture);
    enlarge(&patches, &map);
    blend(&picture, &map, &out);
    draw_scale(&out);
    return image_write(path, &out);
}

/* ---- classes ---- */

typedef struct {
    const Session *session;
    const InferOptions *options;
    const OptionSet *set;
    const PicturesInfer *own;
    PicturePasses passes;
    JsonWriter json;
} Job;

static void print_classes(const Session *s, const char *name, const RankedClass *first, int64_t count) {
    char text[LABEL_TEXT];
    printf("%s\n", name);
    for (int64_t i = 0; i < count; i++)
        printf("  %6.2f%%  %s\n", 100 * first[i].probability,
               labels_name(s->config.labels, first[i].label, text));
}

static void write_classes(Job *job, const char *name, const RankedClass *first, int64_t count) {
    JsonWriter *w = &job->json;
    char text[LABEL_TEXT];
    json_write_line(w, 2, true);
    json_write_open(w, '{');
    json_member_text(w, "file", name);
    json_member_open(w, "classes", '[');
    for (int64_t i = 0; i < count; i++) {
        json_write_open(w, '{');
        json_member_integer(w, "label", first[i].label);
        json_member_text(w, "class", labels_name(job->session->config.labels, first[i].label, text));
        json_member_number(w, "probability", first[i].probability);
        json_write_close(w, '}');
    }
    json_write_close(w, ']');
    json_write_close(w, '}');
}

/* Reports one row of the current batch. */
static void report_picture(Job *job, int64_t row) {
    PicturePasses *p = &job->passes;
    RankedClass first[LIKELIEST];
    int64_t classes = job->session->config.vocab, count = classes < LIKELIEST ? classes : LIKELIEST;
    OWNED char *name = images_name(p->source, p->first + row);
    if (p->batch.targets[row] >= 0) {
        ranking_first(p->rows + row * p->columns, classes, first, count);
        write_classes(job, name, first, count);
        utf8_tame(name, (int64_t)strlen(name), false);
        print_classes(job->session, name, first, count);
    }
}

static void report_broken(PicturePasses *p) {
    for (int64_t i = 0; p->broken && i < broken_count(p->broken); i++) {
        OWNED char *message = broken_message(p->broken, i);
        fprintf(stderr, "skipped %s\n", message);
    }
}

static Status map_attention(const Job *job) {
    const Config *c = &job->session->config;
    const char *path = job->own->attention_map;
    double largest;
    TRY(write_map(path, &job->passes, &largest));
    if (!job->options->quiet)
        printf("attention map in %s: black is 0%%, white %.2f%% of the class token's attention (evenly: "
               "%.2f%%)\n",
               path, 100 * largest, 100 / (double)c->context);
    return OK;
}

static Status run_passes(Job *job) {
    bool more;
    PicturePasses *p = &job->passes;
    json_write_open(&job->json, '{');
    json_member_text(&job->json, "model", job->options->model);
    json_member_open(&job->json, "pictures", '[');
    for (;;) {
        TRY(picture_passes_next(p, &more));
        if (!more) break;
        for (int64_t row = 0; row < p->count; row++) report_picture(job, row);
        if (*job->own->attention_map) TRY(map_attention(job));
    }
    json_write_close(&job->json, ']');
    json_write_close(&job->json, '}');
    report_broken(p);
    return *job->options->json ? json_writer_save(&job->json, job->options->json) : OK;
}

static void job_close(Job *job) {
    picture_passes_close(&job->passes);
    json_writer_free(&job->json);
}

Status classify_pictures(Session *session, const InferOptions *options, const OptionSet *set) {
    const Config *c = &session->config;
    CLOSED_BY(images_release) ImageSource *source = NULL;
    CLOSED_BY(job_close)
    Job job = {
        .session = session, .options = options, .set = set, .own = options_values(set, &pictures_infer)};
    bool mapped = *job.own->attention_map;
    if (!c->class_head)
        return fail(ERROR_USAGE, "--classify needs a vision Transformer with a head, but %s has none",
                    options->model);
    TRY(images_open_files(job.own->classify, &source));
    if (mapped && (images_count(source) != 1 || !c->class_token))
        return fail(ERROR_USAGE, "--attention-map needs one picture, and a model with a class token");
    TRY(picture_passes_open(session, options, set, source, INFERENCE_LOGITS, mapped, &job.passes));
    return run_passes(&job);
}
