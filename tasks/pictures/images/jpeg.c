#include "tasks/pictures/images/decode.h"

#include "base/memory.h"

#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
/* requires the includes above */
#include <jpeglib.h>
#include <jerror.h>

enum { GREY = 1, COLOURS = 3, INKS = 4 };

/* State that an error may leave half done is here, not in variables that longjmp would clobber. */
typedef struct {
    struct jpeg_decompress_struct info;
    struct jpeg_error_mgr errors; // info.err
    jmp_buf failed;
    const char *name; // name of the file
    Status status;
    Image image;
    uint8_t *inks; // a row of cyan, magenta, yellow and black
} Decoder;

static Decoder *decoder_of(j_common_ptr info) {
    return (Decoder *)((char *)info - offsetof(Decoder, info));
}

static void on_error(j_common_ptr info) {
    Decoder *d = decoder_of(info);
    char message[JMSG_LENGTH_MAX];
    info->err->format_message(info, message);
    const bool shortage = info->err->msg_code == JERR_OUT_OF_MEMORY;
    d->status = fail(shortage ? ERROR_MEMORY : ERROR_FORMAT, "%s: damaged: %s", d->name, message);
    longjmp(d->failed, 1);
}

/* libjpeg only warns about codes that are in no table, but they always mean damage. */
static void on_message(j_common_ptr info, int level) {
    if (level < 0 && info->err->msg_code == JWRN_HUFF_BAD_CODE) on_error(info);
}

/* ---- colours ---- */

static J_COLOR_SPACE choose_space(Decoder *d) {
    const int stored = d->info.num_components;
    if (!d->image.channels) d->image.channels = stored == GREY ? GREY : COLOURS;
    return stored == INKS ? JCS_CMYK : d->image.channels == GREY ? JCS_GRAYSCALE : JCS_RGB;
}

/* a b / 255, rounded. */
static uint8_t part_of(int a, int b) {
    const int product = a * b + 128;
    return (uint8_t)((product + (product >> 8)) >> 8);
}

/* Like Pillow's convert("RGB"): such files, following Adobe, store how much light each ink transmits. */
static void mix_inks(const Decoder *d, uint8_t *out) {
    for (JDIMENSION x = 0; x < d->info.output_width; x++) {
        const uint8_t *inks = d->inks + INKS * x;
        for (int c = 0; c < COLOURS; c++) out[COLOURS * x + c] = part_of(inks[c], inks[COLOURS]);
    }
}

/* ---- decoding ---- */

static void read_rows(Decoder *d) {
    struct jpeg_decompress_struct *info = &d->info;
    const bool inks = info->out_color_space == JCS_CMYK;
    const size_t row = (size_t)d->image.width * (size_t)d->image.channels;
    d->image.pixels = memory_allocate((size_t)d->image.height * row);
    if (inks) d->inks = memory_allocate(INKS * (size_t)d->image.width);
    while (info->output_scanline < info->output_height) {
        uint8_t *out = d->image.pixels + info->output_scanline * row;
        JSAMPROW into = inks ? d->inks : out;
        (void)jpeg_read_scanlines(info, &into, 1);
        if (inks) mix_inks(d, out);
    }
}

static void decode(Decoder *d, const uint8_t *bytes, int64_t length, size_t limit) {
    struct jpeg_decompress_struct *info = &d->info;
    if (setjmp(d->failed)) return;
    jpeg_create_decompress(info);
    info->mem->max_memory_to_use = (long)limit;
    jpeg_mem_src(info, bytes, (unsigned long)length);
    (void)jpeg_read_header(info, TRUE);
    info->out_color_space = choose_space(d);
    (void)jpeg_start_decompress(info);
    d->image.width = info->output_width;
    d->image.height = info->output_height;
    read_rows(d);
    (void)jpeg_finish_decompress(info);
}

Status jpeg_load(const uint8_t *bytes, int64_t length, const char *name, size_t limit, Image *image) {
    Decoder d = {.name = name, .image = *image};
    d.info.err = jpeg_std_error(&d.errors);
    d.errors.error_exit = on_error;
    d.errors.emit_message = on_message;
    decode(&d, bytes, length, limit);
    jpeg_destroy_decompress(&d.info);
    memory_free(d.inks);
    if (d.status) image_free(&d.image);
    *image = d.image;
    return d.status;
}
