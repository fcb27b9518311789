#include "report/table.h"

#include "base/json_writer.h"

#include <limits.h>
#include <math.h>
#include <string.h>

enum { SHORT_NAME = 56, NAME_BYTES = 512 };

/* ---- cells ---- */

static void format_scaled(double number, double step, const char *const units[], int unit_count, int digits,
                          char text[CELL_TEXT_BYTES]) {
    int unit = 0;
    while (unit + 1 < unit_count && fabs(number) >= step) {
        number /= step;
        unit++;
    }
    snprintf(text, CELL_TEXT_BYTES, "%.*f %s", digits, number, units[unit]);
}

static void format_time(double ns, TimeUnit unit, char text[CELL_TEXT_BYTES]) {
    static const char *const units[] = {"us", "ms", "s"};
    switch (unit) {
    case UNIT_SECONDS: snprintf(text, CELL_TEXT_BYTES, "%.6f s", 1e-9 * ns); break;
    case UNIT_MILLISECONDS: snprintf(text, CELL_TEXT_BYTES, "%.4f ms", 1e-6 * ns); break;
    case UNIT_MICROSECONDS: snprintf(text, CELL_TEXT_BYTES, "%.3f us", 1e-3 * ns); break;
    case UNIT_NANOSECONDS: snprintf(text, CELL_TEXT_BYTES, "%.0f ns", ns); break;
    case UNIT_AUTO: format_scaled(1e-3 * ns, 1000, units, 3, 3, text);
    }
}

/* Prints four digits without an exponent. */
static void format_number(double number, char text[CELL_TEXT_BYTES]) {
    const double size = fabs(number);
    snprintf(text, CELL_TEXT_BYTES,
             size >= 1000                ? "%.0f"
             : size >= 1e-3 || size == 0 ? "%.4g"
                                         : "%.6f",
             number);
}

void cell_format(CellKind kind, double number, TimeUnit unit, char text[CELL_TEXT_BYTES]) {
    static const char *const bytes[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    static const char *const flops[] = {"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"};
    static const char *const flop_rates[] = {"FLOP/s", "kFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s"};
    static const char *const byte_rates[] = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"};
    *text = 0;
    if (!isfinite(number)) return;
    switch (kind) {
    case CELL_COUNT: snprintf(text, CELL_TEXT_BYTES, "%.0f", number); break;
    case CELL_NUMBER: format_number(number, text); break;
    case CELL_TIME: format_time(number, unit, text); break;
    case CELL_BYTES: format_scaled(number, 1024, bytes, 5, 2, text); break;
    case CELL_SHARE: snprintf(text, CELL_TEXT_BYTES, "%.2f%%", 100 * number); break;
    case CELL_FLOPS: format_scaled(number, 1000, flops, 6, 2, text); break;
    case CELL_FLOP_RATE: format_scaled(number, 1000, flop_rates, 6, 2, text); break;
    case CELL_BYTE_RATE: format_scaled(number, 1000, byte_rates, 5, 2, text); break;
    case CELL_TEXT: break;
    }
}

Words in_words(CellKind kind, double number) {
    Words words;
    cell_format(kind, isfinite(number) ? number : 0, UNIT_AUTO, words.text);
    return words;
}

/* The text of a cell; a name that is too long is cut at its end. */
static void cell_text(const Table *table, const TableView *view, int64_t row, int column,
                      char text[NAME_BYTES]) {
    const Cell *cell = &table->cells[row * table->column_count + column];
    TableColumn what = table->columns[column];
    if (what.kind != CELL_TEXT) {
        cell_format(what.kind, cell->number, view ? view->unit : UNIT_AUTO, text);
        return;
    }
    int most = view && view->full_names ? NAME_BYTES - 1 : SHORT_NAME;
    const char *name = cell->text ? cell->text : "";
    size_t length = strlen(name);
    if (length <= (size_t)most) {
        snprintf(text, NAME_BYTES, "%s", name);
        return;
    }
    int kept = most - 3;
    while (kept > 0 && ((unsigned char)name[kept] & 0xC0) == 0x80) kept--; // do not cut inside a character
    snprintf(text, NAME_BYTES, "%.*s...", kept, name);
}

/* ---- text ---- */

static void print_padded(const char *text, int width, bool left, bool last, FILE *file) {
    if (left && last)
        fprintf(file, "%s", text);
    else
        fprintf(file, left ? "%-*s" : "%*s", width, text);
    fputs(last ? "\n" : "  ", file);
}

static int64_t shown_rows(const Table *table, const TableView *view) {
    return view && view->limit && view->limit < table->rows ? view->limit : table->rows;
}

/* Columns that are printed side by side. */
typedef struct {
    int columns[TABLE_COLUMNS_MOST], widths[TABLE_COLUMNS_MOST], count;
} Part;

static int column_width(const Table *table, const TableView *view, int column) {
    char text[NAME_BYTES];
    size_t width = strlen(table->columns[column].title);
    for (int64_t row = 0; row < shown_rows(table, view); row++) {
        cell_text(table, view, row, column, text);
        width = strlen(text) > width ? strlen(text) : width;
    }
    return (int)width;
}

/* Whether the column is left out: the table is split, and no row has a value in the column. */
static bool is_left_out(const Table *table, const TableView *view, int column) {
    if (!view || !view->split || column == 0) return false;
    for (int64_t row = 0; row < table->rows; row++) {
        const Cell *cell = &table->cells[row * table->column_count + column];
        if (table->columns[column].kind == CELL_TEXT ? cell->text && *cell->text : isfinite(cell->number))
            return false;
    }
    return true;
}

static void take_column(const Table *table, const TableView *view, int column, int *room, Part *part) {
    const int width = column_width(table, view, column);
    part->columns[part->count] = column;
    part->widths[part->count++] = width;
    *room -= width + 2;
}

/* The columns from `next` on that fit, at least one, with the first column repeated; advances `next` past
 * them. */
static Part next_part(const Table *table, const TableView *view, int *next) {
    Part part = {.count = 0};
    int room = view && view->width ? view->width : INT_MAX;
    if (*next > 0) take_column(table, view, 0, &room, &part);
    const int repeated = part.count;
    for (; *next < table->column_count; ++*next) {
        if (is_left_out(table, view, *next)) continue;
        if (part.count > repeated && column_width(table, view, *next) > room) break;
        take_column(table, view, *next, &room, &part);
    }
    if (part.count == repeated) part.count = 0; // the remaining columns were empty
    return part;
}

static void print_line(const Part *part, FILE *file) {
    for (int i = 0; i < part->count; i++) {
        for (int k = 0; k < part->widths[i]; k++) fputc('-', file);
        fputs(i + 1 < part->count ? "  " : "\n", file);
    }
}

/* Wraps at blanks; further lines are indented. */
static void print_note(const char *text, const TableView *view, FILE *file) {
    size_t room = view && view->width > 2 ? (size_t)view->width : SIZE_MAX;
    const char *indent = "";
    for (; strlen(text) > room - strlen(indent); indent = "  ") {
        size_t length = room - strlen(indent);
        while (length > 0 && text[length] != ' ') length--;
        if (length == 0) break;
        fprintf(file, "%s%.*s\n", indent, (int)length, text);
        text += length + 1;
    }
    fprintf(file, "%s%s\n", indent, text);
}

static void name_columns(const Table *table, int first, const TableView *view, FILE *file) {
    char text[NAME_BYTES] = "no room for";
    if (first == table->column_count) return;
    for (int i = first; i < table->column_count; i++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s %s", i > first ? "," : "", table->columns[i].title);
    }
    print_note(text, view, file);
}

static void print_part(const Table *table, const TableView *view, const Part *part, FILE *file) {
    char text[NAME_BYTES];
    print_line(part, file);
    for (int64_t row = -1; row < shown_rows(table, view); row++) {
        for (int i = 0; i < part->count; i++) {
            const TableColumn *column = &table->columns[part->columns[i]];
            if (row < 0)
                snprintf(text, sizeof text, "%s", column->title);
            else
                cell_text(table, view, row, part->columns[i], text);
            print_padded(text, part->widths[i], column->kind == CELL_TEXT, i + 1 == part->count, file);
        }
        if (row < 0) print_line(part, file);
    }
    print_line(part, file);
}

void table_print_text(const Table *table, const TableView *view, FILE *file) {
    const int64_t left_out = table->rows - shown_rows(table, view);
    char text[NAME_BYTES];
    int next = 0;
    fprintf(file, "%s\n", table->title);
    do {
        const Part part = next_part(table, view, &next);
        if (part.count) print_part(table, view, &part, file);
    } while (view && view->split && next < table->column_count);
    name_columns(table, next, view, file);
    for (int64_t i = 0; i < table->note_count; i++) print_note(table->notes[i], view, file);
    if (!left_out) return;
    snprintf(text, sizeof text, "%lld more row%s left out (--limit)", (long long)left_out,
             left_out == 1 ? "" : "s");
    print_note(text, view, file);
}

/* ---- Markdown ---- */

void markdown_print(const char *text, int most, FILE *file) {
    for (; *text && most > 0; text++, most--) {
        if (strchr("|*_<>`\\", *text)) fputc('\\', file);
        fputc(*text == '\n' ? ' ' : *text, file);
    }
}

void table_print_markdown(const Table *table, const TableView *view, FILE *file) {
    char text[NAME_BYTES];
    fprintf(file, "### %s\n\n|", table->title);
    for (int i = 0; i < table->column_count; i++) fprintf(file, " %s |", table->columns[i].title);
    fprintf(file, "\n|");
    for (int i = 0; i < table->column_count; i++)
        fprintf(file, table->columns[i].kind == CELL_TEXT ? "---|" : "---:|");
    for (int64_t row = 0; row < table->rows; row++) {
        fprintf(file, "\n|");
        for (int i = 0; i < table->column_count; i++) {
            cell_text(table, view, row, i, text);
            fputc(' ', file);
            markdown_print(text, INT_MAX, file);
            fprintf(file, " |");
        }
    }
    fprintf(file, "\n\n");
    for (int64_t i = 0; i < table->note_count; i++) {
        fprintf(file, "- ");
        markdown_print(table->notes[i], INT_MAX, file);
        fputc('\n', file);
    }
    if (table->note_count) fputc('\n', file);
}

/* ---- CSV (RFC 4180) ---- */

static void print_quoted(const char *text, FILE *file) {
    if (!strpbrk(text, ",\"\r\n")) {
        fputs(text, file);
        return;
    }
    fputc('"', file);
    for (; *text; text++) {
        if (*text == '"') fputc('"', file);
        fputc(*text, file);
    }
    fputc('"', file);
}

void table_print_csv(const Table *table, FILE *file) {
    for (int i = 0; i < table->column_count; i++)
        fprintf(file, "%s%s", table->columns[i].key, i + 1 < table->column_count ? "," : "\n");
    for (int64_t row = 0; row < table->rows; row++)
        for (int i = 0; i < table->column_count; i++) {
            const Cell *cell = &table->cells[row * table->column_count + i];
            char digits[NUMBER_TEXT];
            if (table->columns[i].kind == CELL_TEXT) {
                print_quoted(cell->text ? cell->text : "", file);
            } else if (isfinite(cell->number)) {
                number_text(cell->number, digits);
                fputs(digits, file);
            }
            fputc(i + 1 < table->column_count ? ',' : '\n', file);
        }
}
