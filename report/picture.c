#include "report/picture.h"

#include "base/json_fields.h"
#include "base/json_read.h"
#include "report/text_file.h"

#include <math.h>

enum { COMPARISON_BYTES_MOST = 4 << 20 };

/* The part of compare.json (profile/compare.c) that the picture shows. */
typedef struct {
    double ms;
} Timed;

typedef struct {
    char *call, *pass;
    Timed naive, fused;
} Row;

typedef struct {
    char *model, *device, *dtype;
    int64_t batch, seq, rounds;
    Row *rows;
    int64_t rows_count;
    Timed naive, fused; // the whole step
} Measured;

static const Field timed_fields[] = {FIELD(MEASURE, "ms", Timed, ms), {0}};

static const Field row_fields[] = {FIELD(TEXT, "place", Row, call),
                                   FIELD(TEXT, "pass", Row, pass),
                                   FIELD_OBJECT_OF("naive", Row, naive, timed_fields),
                                   FIELD_OBJECT_OF("fused", Row, fused, timed_fields),
                                   {0}};

static const Field step_fields[] = {FIELD(MEASURE, "step_ms", Timed, ms), {0}};

static const Field measured_fields[] = {FIELD(TEXT, "model", Measured, model),
                                        FIELD(TEXT, "device", Measured, device),
                                        FIELD(TEXT, "dtype", Measured, dtype),
                                        FIELD(COUNT, "batch", Measured, batch),
                                        FIELD(COUNT, "seq", Measured, seq),
                                        FIELD(COUNT, "rounds", Measured, rounds),
                                        FIELD_LIST_OF("operations", Measured, rows, row_fields),
                                        FIELD_OBJECT_OF("naive", Measured, naive, step_fields),
                                        FIELD_OBJECT_OF("fused", Measured, fused, step_fields),
                                        {0}};

/* ---- drawing; all in pixels ---- */

enum { WIDTH = 860, NAMES = 210, BARS = 220, BAR_MOST = 500, BAR = 9, ROW = 25, TOP = 74, GAP = 30 };

static const char head[] =
    "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">\n"
    "<style>text{font:12px system-ui,'Segoe UI','DejaVu Sans',sans-serif;fill:#1b1f24}"
    ".title{font-size:17px;font-weight:600}.soft{fill:#5b6570}.ms{font-size:9.5px;fill:#5b6570}"
    ".ratio{font-weight:600}.right{text-anchor:end}.naive{fill:#a9b1ba}.fused{fill:#e8842c}</style>\n"
    "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n";

static void draw_text(const char *text, FILE *file) {
    for (; *text; text++) {
        if (*text == '&')
            fputs("&amp;", file);
        else if (*text == '<')
            fputs("&lt;", file);
        else
            fputc(*text, file);
    }
}

/* A bar followed by its time, with at least three digits and at most three decimals. */
static void draw_bar(const char *form, double ms, double longest, int y, FILE *file) {
    double width = ms / longest * BAR_MOST;
    int decimals = ms >= 100 ? 0 : ms >= 10 ? 1 : ms >= 1 ? 2 : 3;
    fprintf(file, "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\"/>", form, BARS, y, width,
            BAR);
    fprintf(file, "<text class=\"ms\" x=\"%.1f\" y=\"%d\">%.*f ms</text>\n", BARS + width + 5, y + BAR - 1,
            decimals, ms);
}

static void draw_row(const char *name, const char *pass, const Row *row, double longest, int y, FILE *file) {
    fprintf(file, "<text class=\"right\" x=\"%d\" y=\"%d\">", NAMES, y + BAR + 4);
    draw_text(name, file);
    fputs(" <tspan class=\"soft\">", file);
    draw_text(pass, file);
    fputs("</tspan></text>\n", file);
    draw_bar("naive", row->naive.ms, longest, y, file);
    draw_bar("fused", row->fused.ms, longest, y + BAR + 1, file);
    if (row->fused.ms > 0)
        fprintf(file, "<text class=\"ratio right\" x=\"%d\" y=\"%d\">%.2f×</text>\n", WIDTH - 20, y + BAR + 4,
                row->naive.ms / row->fused.ms);
}

static void draw_legend(const char *form, int x, FILE *file) {
    fprintf(file,
            "<rect class=\"%s\" x=\"%d\" y=\"17\" width=\"11\" height=\"11\"/><text x=\"%d\" "
            "y=\"27\">%s</text>\n",
            form, x, x + 16, form);
}

static void draw(const Measured *m, double longest, FILE *file) {
    int height = TOP + ROW + GAP + (int)m->rows_count * ROW + 10, y = TOP;
    Row step = {.naive = m->naive, .fused = m->fused};
    fprintf(file, head, WIDTH, height, WIDTH, height, WIDTH, height);
    fputs("<text class=\"title\" x=\"20\" y=\"28\">One training step of ", file);
    draw_text(m->model, file);
    fputs(", naive and fused</text>\n<text class=\"soft\" x=\"20\" y=\"50\">", file);
    draw_text(m->device, file);
    fputs(", ", file);
    draw_text(m->dtype, file);
    fprintf(file, ", %lld × %lld tokens; medians of %lld alternating rounds</text>\n", (long long)m->batch,
            (long long)m->seq, (long long)m->rounds);
    draw_legend("naive", WIDTH - 150, file);
    draw_legend("fused", WIDTH - 78, file);
    draw_row("whole step", "", &step, fmax(step.naive.ms, step.fused.ms), y, file);
    y += ROW + GAP;
    fprintf(file, "<text class=\"soft\" x=\"%d\" y=\"%d\">by operation (separate scale)</text>\n", BARS,
            y - 9);
    for (int64_t i = 0; i < m->rows_count; i++, y += ROW)
        draw_row(m->rows[i].call, m->rows[i].pass, &m->rows[i], longest, y, file);
    fputs("</svg>\n", file);
}

static Status draw_to(const Measured *m, const char *name, const char *path) {
    double longest = 0;
    TextFile text;
    for (int64_t i = 0; i < m->rows_count; i++)
        longest = fmax(longest, fmax(m->rows[i].naive.ms, m->rows[i].fused.ms));
    if (longest == 0 || fmax(m->naive.ms, m->fused.ms) == 0)
        return fail(ERROR_FORMAT, "%s: all its times are 0", name);
    TRY(text_file_open(&text));
    draw(m, longest, text.file);
    return text_file_save(&text, ".", path);
}

Status picture_write(const char *comparison, const char *path) {
    json_auto_t *root = NULL;
    Measured measured = {0};
    TRY(json_read(comparison, COMPARISON_BYTES_MOST, &root));
    Status status = fail_at(fields_check(root, measured_fields, ""), "%s", comparison);
    if (!status) fields_read(root, measured_fields, &measured);
    if (!status) status = draw_to(&measured, comparison, path);
    fields_free(measured_fields, &measured);
    return status;
}
