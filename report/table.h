/* table: rows and columns of a report, printed as text for terminals, Markdown, JSON or CSV. */
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* The type of a cell, in base units: a time in nanoseconds, a size in bytes, a share from 0 to 1. JSON and
 * CSV contain these; text and Markdown scale them. */
typedef enum {
    CELL_TEXT,
    CELL_COUNT,  // an integer
    CELL_NUMBER, // any other number
    CELL_TIME,   // ns
    CELL_BYTES,
    CELL_SHARE, // 0.25 is shown as 25.00%
    CELL_FLOPS, // FLOP
    CELL_FLOP_RATE,
    CELL_BYTE_RATE
} CellKind;

typedef struct {
    const char *key, *title; // "self_device_ns" in JSON and CSV; title: "Self device" for people
    CellKind kind;
} TableColumn;

typedef struct {
    const char *text; // for CELL_TEXT, owned by the table; NULL: an empty cell
    double number;    // for all others; not finite: an empty cell
} Cell;

typedef enum { UNIT_AUTO, UNIT_SECONDS, UNIT_MILLISECONDS, UNIT_MICROSECONDS, UNIT_NANOSECONDS } TimeUnit;

/* How a table is shown. */
typedef struct {
    TimeUnit unit;
    int64_t limit;    // most rows of text; 0: all
    const char *sort; // key of a column; NULL or "": unsorted. Numbers descend, texts ascend
    bool full_names;  // in text, names are otherwise cut to about 55 bytes
    int width;        // columns of text; the last table columns that do not fit are named below. 0: unlimited
    bool split;       // such columns are printed below instead, with the first column repeated; empty columns
                      // are left out
} TableView;

typedef struct {
    const char *key, *title; // "operations", "Operations"
    const TableColumn *columns;
    int64_t column_count;
    Cell *cells; // (rows, columns)
    int64_t rows, room;
    char **notes; // lines of the footer
    int64_t note_count, note_room;
} Table;

enum { TABLE_COLUMNS_MOST = 32 };

/* An empty table; `columns` must outlive it. TABLE("kernels", "Kernels", columns) counts an array. */
Table table_make(const char *key, const char *title, const TableColumn *columns, int column_count);
#define TABLE(key, title, columns) table_make(key, title, columns, (int)(sizeof(columns) / sizeof *(columns)))
void table_free(Table *table);

/* Adds a row of empty cells, then fills it with table_set... by column. */
void table_add_row(Table *table);
void table_set_text(Table *table, int column, const char *text); // sets a cell of the last row; the text is
                                                                 // copied
void table_set(Table *table, int column, double number);         // sets a cell of the last row
/* TABLE_SET(table, 2, a, b, c): columns 2, 3 and 4 of the last row. */
void table_set_numbers(Table *table, int column, const double *numbers, size_t count);
#define TABLE_SET(table, column, ...)                                                                        \
    table_set_numbers(table, column, (const double[]){__VA_ARGS__},                                          \
                      sizeof((const double[]){__VA_ARGS__}) / sizeof(double))
void table_note(Table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The column with this key, as for --sort; -1: none. */
int table_column(const Table *table, const char *key);

/* Sorts the rows by `view`. */
void table_arrange(Table *table, const TableView *view);

/* `view` sets units and the length of names; NULL: automatic. */
void table_print_text(const Table *table, const TableView *view, FILE *file);
void table_print_markdown(const Table *table, const TableView *view, FILE *file);
void table_print_csv(const Table *table, FILE *file);
/* Text of at most `most` bytes, with |, < and * escaped, which are special in Markdown. */
void markdown_print(const char *text, int most, FILE *file);

/* A cell for people, "1.234 ms", in `text`. */
enum { CELL_TEXT_BYTES = 64 };
void cell_format(CellKind kind, double number, TimeUnit unit, char text[CELL_TEXT_BYTES]);

/* The same as an expression: in_words(CELL_TIME, ns).text. Values that are not finite count as 0. */
typedef struct {
    char text[CELL_TEXT_BYTES];
} Words;
Words in_words(CellKind kind, double number);
