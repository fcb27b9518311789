#include "tasks/pictures/images/processor.h"

#include "base/files.h"
#include "base/json_read.h"
#include "base/json_writer.h"
#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_LIMIT = 1 << 20, PILLOW_BILINEAR = 2, PILLOW_BICUBIC = 3, SIDE_LIMIT = 1 << 14 };

static const char file_name[] = "preprocessor_config.json";

static const ImageProcessor defaults = {.height = 224,
                                        .width = 224,
                                        .scaled_height = 224,
                                        .scaled_width = 224,
                                        .channels = IMAGE_CHANNELS,
                                        .mean = {0.5, 0.5, 0.5},
                                        .deviation = {0.5, 0.5, 0.5}};

/* ---- reading ---- */

static bool asks(const json_t *root, const char *key, bool otherwise) {
    const json_t *value = json_object_get(root, key);
    return json_is_boolean(value) ? json_is_true(value) : otherwise;
}

static int64_t side_of(const json_t *value) {
    json_int_t side = json_integer_value(value);
    return side >= 1 && side <= SIDE_LIMIT ? side : 0;
}

/* 224, {"height": 224, "width": 224} or {"shortest_edge": 224}, which leaves `width` 0. */
static Status read_size(const json_t *root, const char *key, const char *path, int64_t *height,
                        int64_t *width) {
    const json_t *value = json_object_get(root, key), *shortest = json_object_get(value, "shortest_edge");
    if (!value || json_is_null(value)) return OK;
    *height = side_of(shortest                 ? shortest
                      : json_is_integer(value) ? value
                                               : json_object_get(value, "height"));
    *width = json_is_integer(value) ? *height : side_of(json_object_get(value, "width"));
    const char *other = json_object_get(value, "longest_edge") ? "longest_edge" : NULL;
    if (json_is_integer(value) && !asks(root, "default_to_square", true)) other = "default_to_square";
    if (other) return fail(ERROR_FORMAT, "%s: \"%s\" is not supported", path, other);
    if (*height && (*width || shortest)) return OK;
    return fail(ERROR_FORMAT, "%s: \"%s\" is not the size of a picture", path, key);
}

/* A list of three, or of one for a grey picture; or one number for all. */
static Status read_channels(const json_t *root, const char *key, const char *path, float *values,
                            int64_t *channels) {
    const json_t *list = json_object_get(root, key);
    if (!list || json_is_null(list)) return OK;
    bool array = json_is_array(list);
    size_t count = array ? json_array_size(list) : IMAGE_CHANNELS;
    if (count != 1 && count != IMAGE_CHANNELS)
        return fail(ERROR_FORMAT, "%s: \"%s\" has %zu numbers, not one for each of 1 or %d channels", path,
                    key, count, IMAGE_CHANNELS);
    for (size_t i = 0; i < count; i++) {
        const json_t *item = array ? json_array_get(list, i) : list;
        if (!json_is_number(item)) return fail(ERROR_FORMAT, "%s: \"%s\" is not of numbers", path, key);
        values[i] = (float)json_number_value(item);
    }
    if (array) *channels = (int64_t)count;
    return OK;
}

/* Mean and deviation, for values from 0 to 1, whatever range the file scales them to. */
static Status read_normalization(const json_t *root, const char *path, ImageProcessor *p) {
    const json_t *factor = json_object_get(root, "rescale_factor");
    double scale = json_is_number(factor) ? 255 * json_number_value(factor) : 1;
    if (!asks(root, "do_rescale", true)) scale = 255;
    TRY(read_channels(root, "image_mean", path, p->mean, &p->channels));
    TRY(read_channels(root, "image_std", path, p->deviation, &p->channels));
    for (int64_t c = 0; c < p->channels; c++) {
        if (!asks(root, "do_normalize", true)) {
            p->mean[c] = 0;
            p->deviation[c] = 1;
        }
        p->mean[c] = (float)(p->mean[c] / scale);
        p->deviation[c] = (float)(p->deviation[c] / scale);
        float largest = (1 + fabsf(p->mean[c])) / p->deviation[c]; // the largest value that a pixel can
                                                                   // become
        if (!isfinite(p->deviation[c]) || p->deviation[c] <= 0 || !isfinite(largest))
            return fail(ERROR_FORMAT, "%s: the pictures' mean or standard deviation is out of range", path);
    }
    return OK;
}

static bool is_one_of(const char *key, const char *const keys[]) {
    while (*keys && strcmp(*keys, key) != 0) keys++;
    return *keys;
}

/* Refuses unsupported steps: unknown "do_..." keys, and settings of other processors. */
static Status check_keys(const json_t *root, const char *path) {
    static const char *const known[] = {"do_resize",
                                        "do_center_crop",
                                        "do_rescale",
                                        "do_normalize",
                                        "do_convert_rgb",
                                        "do_reduce_labels", // for masks
                                        NULL};
    static const char *const others[] = {"crop_pct", "rescale_offset",    "offset", "size_divisor",
                                         "pad_size", "keep_aspect_ratio", NULL};
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)root, key, value) {
        bool step = strncmp(key, "do_", 3) == 0 && !is_one_of(key, known);
        bool off = json_is_null(value) || json_is_false(value);
        bool padding = strcmp(key, "pad_size") == 0 && !asks(root, "do_pad", true);
        if (!off && !padding && (step || is_one_of(key, others)))
            return fail(ERROR_FORMAT, "%s: \"%s\" is not supported", path, key);
    }
    return OK;
}

static Status read_all(const json_t *root, const char *path, ImageProcessor *p) {
    const json_t *resample = json_object_get(root, "resample");
    *p = defaults;
    if (!json_is_object(root)) return fail(ERROR_FORMAT, "%s: not a JSON object", path);
    TRY(check_keys(root, path));
    if (!asks(root, "do_resize", true))
        return fail(ERROR_FORMAT, "%s: pictures that are not resized are not supported", path);
    TRY(read_size(root, "size", path, &p->scaled_height, &p->scaled_width));
    p->height = p->scaled_height;
    p->width = p->scaled_width ? p->scaled_width : p->scaled_height;
    bool both = p->scaled_width > 0, crops = asks(root, "do_center_crop", false); // both sides are given
    if (!both && !crops)
        return fail(ERROR_FORMAT,
                    "%s: \"shortest_edge\" without \"do_center_crop\" leaves pictures of different sizes",
                    path);
    if (crops) TRY(read_size(root, "crop_size", path, &p->height, &p->width));
    if (!p->width) return fail(ERROR_FORMAT, "%s: \"crop_size\" needs a height and a width", path);
    if (p->height > p->scaled_height || p->width > (both ? p->scaled_width : p->scaled_height))
        return fail(ERROR_FORMAT, "%s: \"crop_size\" is larger than \"size\"", path);
    bool cubic = json_integer_value(resample) == PILLOW_BICUBIC;
    if (resample && !json_is_null(resample) && !cubic && json_integer_value(resample) != PILLOW_BILINEAR)
        return fail(ERROR_FORMAT, "%s: \"resample\" is neither 2 (bilinear) nor 3 (bicubic)", path);
    p->resample = cubic ? RESAMPLE_BICUBIC : RESAMPLE_BILINEAR;
    return read_normalization(root, path, p);
}

Status processor_read(const char *folder, ImageProcessor *processor, bool *found) {
    PathKind kind;
    json_auto_t *root = NULL;
    OWNED char *path = path_join(folder, file_name);
    *found = false;
    TRY(path_kind(path, &kind));
    if (kind == PATH_ABSENT) return OK;
    *found = true; // even if it cannot be read
    TRY(json_read(path, FILE_LIMIT, &root));
    return read_all(root, path, processor);
}

/* ---- writing ---- */

/* The shortest digits that read back as the same float. */
static void write_float(JsonWriter *w, float value) {
    char text[NUMBER_TEXT];
    int digits = 1;
    do snprintf(text, sizeof text, "%.*g", digits++, (double)value);
    while (strtof(text, NULL) != value);
    json_write_json(w, text);
}

static void write_channels(JsonWriter *w, const char *key, const float *values, int64_t channels) {
    json_write_line(w, 2, true);
    json_member_open(w, key, '[');
    for (int64_t c = 0; c < channels; c++) write_float(w, values[c]);
    json_write_close(w, ']');
}

static void write_flag(JsonWriter *w, const char *key) {
    json_write_line(w, 2, true);
    json_write_key(w, key);
    json_write_boolean(w, true);
}

static void write_size(JsonWriter *w, const char *key, int64_t height, int64_t width) {
    json_write_line(w, 2, true);
    json_member_open(w, key, '{');
    json_member_integer(w, width ? "height" : "shortest_edge", height);
    if (width) json_member_integer(w, "width", width);
    json_write_close(w, '}');
}

Status processor_write(const char *folder, const ImageProcessor *p) {
    bool cropped = p->height != p->scaled_height || p->width != p->scaled_width;
    CLOSED_BY(json_writer_free) JsonWriter w = {0};
    json_write_open(&w, '{');
    json_write_line(&w, 2, false);
    json_member_text(&w, "image_processor_type", cropped ? "DeiTImageProcessor" : "ViTImageProcessor");
    write_flag(&w, "do_resize");
    write_size(&w, "size", p->scaled_height, p->scaled_width);
    if (cropped) write_flag(&w, "do_center_crop");
    if (cropped) write_size(&w, "crop_size", p->height, p->width);
    json_write_line(&w, 2, true);
    json_member_integer(&w, "resample", p->resample == RESAMPLE_BICUBIC ? PILLOW_BICUBIC : PILLOW_BILINEAR);
    write_flag(&w, "do_rescale");
    json_write_line(&w, 2, true);
    json_member_number(&w, "rescale_factor", 1.0 / 255);
    write_flag(&w, "do_normalize");
    write_channels(&w, "image_mean", p->mean, p->channels);
    write_channels(&w, "image_std", p->deviation, p->channels);
    json_write_line(&w, 0, false);
    json_write_close(&w, '}');
    OWNED char *path = path_join(folder, file_name);
    return json_writer_save(&w, path);
}
