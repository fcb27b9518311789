#include "report/table.h"

#include "base/memory.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

Table table_make(const char *key, const char *title, const TableColumn *columns, int column_count) {
    return (Table){.key = key, .title = title, .columns = columns, .column_count = column_count};
}

static void free_text(const Table *table, int64_t row, int column) {
    Cell *cell = &table->cells[row * table->column_count + column];
    if (table->columns[column].kind == CELL_TEXT) memory_free((void *)(uintptr_t)cell->text);
}

void table_free(Table *table) {
    for (int64_t row = 0; row < table->rows; row++)
        for (int column = 0; column < table->column_count; column++) free_text(table, row, column);
    for (int64_t i = 0; i < table->note_count; i++) memory_free(table->notes[i]);
    memory_free(table->notes);
    memory_free(table->cells);
    *table = (Table){0};
}

void table_add_row(Table *table) {
    size_t row_bytes = (size_t)table->column_count * sizeof(Cell);
    table->cells = memory_grow(table->cells, &table->room, table->rows + 1, row_bytes);
    Cell *row = table->cells + table->rows++ * table->column_count;
    for (int i = 0; i < table->column_count; i++) row[i] = (Cell){NULL, NAN};
}

static Cell *last(const Table *table, int column) {
    return &table->cells[(table->rows - 1) * table->column_count + column];
}

void table_set_text(Table *table, int column, const char *text) {
    free_text(table, table->rows - 1, column);
    last(table, column)->text = text ? memory_text(text) : NULL;
}

void table_set(Table *table, int column, double number) {
    last(table, column)->number = number;
}

void table_set_numbers(Table *table, int column, const double *numbers, size_t count) {
    for (size_t i = 0; i < count; i++) table_set(table, column + (int)i, numbers[i]);
}

void table_note(Table *table, const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    table->notes = memory_grow(table->notes, &table->note_room, table->note_count + 1, sizeof *table->notes);
    table->notes[table->note_count++] = memory_text(text);
}

int table_column(const Table *table, const char *key) {
    for (int i = 0; i < table->column_count; i++)
        if (strcmp(table->columns[i].key, key) == 0) return i;
    return -1;
}

/* A row and its sort key. */
typedef struct {
    const Cell *cell; // the row's cell in the sort column
    int64_t row;
} SortKey;

static int larger_number(const void *a, const void *b) {
    const SortKey *x = a, *y = b;
    double p = isfinite(x->cell->number) ? x->cell->number : -INFINITY;
    double q = isfinite(y->cell->number) ? y->cell->number : -INFINITY;
    if (p != q) return p > q ? -1 : 1;
    return (x->row > y->row) - (x->row < y->row);
}

static int earlier_text(const void *a, const void *b) {
    const SortKey *x = a, *y = b;
    int order = strcmp(x->cell->text ? x->cell->text : "", y->cell->text ? y->cell->text : "");
    return order ? order : (x->row > y->row) - (x->row < y->row);
}

static void sort(Table *table, int column) {
    size_t width = (size_t)table->column_count;
    OWNED SortKey *keys = memory_array((size_t)table->rows, sizeof *keys);
    Cell *sorted = memory_array((size_t)table->rows * width, sizeof *sorted);
    for (int64_t i = 0; i < table->rows; i++)
        keys[i] = (SortKey){&table->cells[i * table->column_count + column], i};
    qsort(keys, (size_t)table->rows, sizeof *keys,
          table->columns[column].kind == CELL_TEXT ? earlier_text : larger_number);
    for (int64_t i = 0; i < table->rows; i++)
        memcpy(sorted + (size_t)i * width, table->cells + (size_t)keys[i].row * width,
               width * sizeof *sorted);
    memory_free(table->cells);
    table->cells = sorted;
    table->room = table->rows;
}

void table_arrange(Table *table, const TableView *view) {
    int column = view->sort && *view->sort ? table_column(table, view->sort) : -1;
    if (column >= 0 && table->rows > 1) sort(table, column);
}
