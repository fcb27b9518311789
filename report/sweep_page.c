#include "report/sweep_page.h"

#include "report/page.h"

#include <math.h>

INCLUDED(sweep_style, "style.css")

enum { LEFT = 170, BAR = 460, WIDTH = 760, ROW = 22 }; // sizes of a chart, in its own units

static const char head[] =
    "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
    "'unsafe-inline'\">\n"
    "<title>fusebox: sizes side by side</title>\n<style>\n";

/* Goes after the style of a profile's page. */
static const char body[] = "rect { fill: var(--matrix); }\n</style>\n</head>\n<body>\n";

static void put_html(const char *text, FILE *file) {
    for (; *text; text++)
        if (*text == '<' || *text == '&' || *text == '>')
            fprintf(file, "&#%d;", *text);
        else
            fputc(*text, file);
}

static void put_cell(const Table *t, int64_t row, int column, FILE *file) {
    const Cell *cell = &t->cells[row * t->column_count + column];
    char text[CELL_TEXT_BYTES];
    if (t->columns[column].kind == CELL_TEXT) {
        put_html(cell->text ? cell->text : "", file);
        return;
    }
    if (!isfinite(cell->number)) return;
    cell_format(t->columns[column].kind, cell->number, UNIT_AUTO, text);
    put_html(text, file);
}

static void print_chart(const Table *t, int names, int column, FILE *file) {
    double most = 0;
    for (int64_t row = 0; row < t->rows; row++) {
        double number = t->cells[row * t->column_count + column].number;
        if (isfinite(number)) most = fmax(most, number);
    }
    if (!(most > 0)) return; // the column is unknown in every row
    fprintf(file, "<h2>");
    put_html(t->columns[column].title, file);
    fprintf(file, "</h2>\n<section><svg viewBox=\"0 0 %d %d\" role=\"img\">\n", WIDTH, (int)t->rows * ROW);
    for (int64_t row = 0; row < t->rows; row++) {
        double number = t->cells[row * t->column_count + column].number, y = (double)row * ROW;
        double width = isfinite(number) ? BAR * number / most : 0;
        fprintf(file, "<text x=\"%d\" y=\"%.0f\" text-anchor=\"end\">", LEFT - 8, y + 15);
        for (int i = 0; i < names; i++) {
            if (i) fprintf(file, i == 1 ? " x " : ", ");
            put_cell(t, row, i, file);
        }
        fprintf(file,
                "</text><rect x=\"%d\" y=\"%.0f\" width=\"%.1f\" height=\"%d\"/><text x=\"%.1f\" y=\"%.0f\">",
                LEFT, y + 3, width, ROW - 6, LEFT + width + 6, y + 15);
        put_cell(t, row, column, file);
        fprintf(file, "</text>\n");
    }
    fprintf(file, "</svg></section>\n");
}

void sweep_page_print(const Table *t, int names, const int *columns, int count, FILE *file) {
    fputs(head, file);
    fputs(sweep_style, file);
    fputs(body, file);
    fprintf(file, "<h1>Sizes side by side</h1>\n");
    for (int64_t i = 0; i < t->note_count; i++) {
        fprintf(file, "<p class=\"note\">");
        put_html(t->notes[i], file);
        fprintf(file, "</p>\n");
    }
    for (int i = 0; i < count; i++) print_chart(t, names, columns[i], file);
    fprintf(file, "<h2>All figures</h2>\n<div class=\"scroll\"><table><tr>");
    for (int i = 0; i < t->column_count; i++) {
        fprintf(file, "<th>");
        put_html(t->columns[i].title, file);
        fprintf(file, "</th>");
    }
    for (int64_t row = 0; row < t->rows; row++) {
        fprintf(file, "</tr>\n<tr>");
        for (int i = 0; i < t->column_count; i++) {
            fprintf(file, "<td>");
            put_cell(t, row, i, file);
            fprintf(file, "</td>");
        }
    }
    fprintf(file, "</tr></table></div>\n</body>\n</html>\n");
}
