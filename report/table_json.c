#include "report/table_json.h"

#include "base/memory.h"
#include "base/utf8.h"

#include <math.h>
#include <string.h>

static const char *kind_word(int i) {
    static const char *const words[] = {
        [CELL_TEXT] = "text",  [CELL_COUNT] = "count",          [CELL_NUMBER] = "number",
        [CELL_TIME] = "ns",    [CELL_BYTES] = "bytes",          [CELL_SHARE] = "share",
        [CELL_FLOPS] = "flop", [CELL_FLOP_RATE] = "flop_per_s", [CELL_BYTE_RATE] = "bytes_per_s"};
    return i < (int)(sizeof words / sizeof *words) ? words[i] : NULL;
}

static Status check_row(const json_t *row, const char *where) {
    if (!json_is_array(row)) return fail(ERROR_FORMAT, "%s: not a row", where);
    size_t i;
    json_t *cell;
    json_array_foreach(row, i, cell) {
        bool good = json_is_null(cell) || json_is_string(cell) ||
                    (json_is_number(cell) && isfinite(json_number_value(cell)));
        if (!good) return fail(ERROR_FORMAT, "%s[%zu]: neither a text nor a number", where, i);
    }
    return OK;
}

static void write_rows(JsonWriter *writer, const void *object) {
    const Table *table = object;
    json_write_open(writer, '[');
    for (int64_t row = 0; row < table->rows; row++) {
        json_write_open(writer, '[');
        for (int64_t i = 0; i < table->column_count; i++) {
            const Cell *cell = &table->cells[row * table->column_count + i];
            if (table->columns[i].kind == CELL_TEXT)
                json_write_text(writer, cell->text);
            else
                json_write_number(writer, cell->number);
        }
        json_write_close(writer, ']');
    }
    json_write_close(writer, ']');
}

/* An unknown kind is read as a number. */
static void read_rows(const json_t *rows, void *object) {
    Table *table = object;
    TableColumn *columns = (TableColumn *)(uintptr_t)table->columns;
    size_t i, k;
    json_t *row, *value;
    for (int64_t c = 0; c < table->column_count; c++)
        if ((int)columns[c].kind < 0) columns[c].kind = CELL_NUMBER;
    json_array_foreach((json_t *)(uintptr_t)rows, i, row) {
        table_add_row(table);
        json_array_foreach(row, k, value) {
            if (json_is_number(value)) table_set(table, (int)k, json_number_value(value));
            if (json_is_string(value)) table_set_text(table, (int)k, json_string_value(value));
        }
    }
    for (int64_t c = 0; c < table->rows * table->column_count; c++)
        if (columns[c % table->column_count].kind == CELL_TEXT && table->cells[c].text)
            utf8_tame((char *)(uintptr_t)table->cells[c].text, (int64_t)strlen(table->cells[c].text), false);
}

static void free_rows(void *object) {
    Table *table = object;
    for (int64_t i = 0; i < table->rows * table->column_count; i++)
        memory_free((char *)(uintptr_t)table->cells[i].text);
    memory_free(table->cells);
}

static const Field columns[] = {FIELD(TEXT, "key", TableColumn, key),
                                FIELD(TEXT, "title", TableColumn, title),
                                FIELD_WORD_OF("kind", TableColumn, kind, kind_word),
                                {0}};

const Field table_fields[] = {FIELD(TEXT, "key", Table, key),
                              FIELD(TEXT, "title", Table, title),
                              {.key = "columns",
                               .kind = FIELD_LIST,
                               .offset = offsetof(Table, columns),
                               .count = offsetof(Table, column_count),
                               .size = sizeof(TableColumn),
                               .fields = columns,
                               .flat = true},
                              {.key = "rows",
                               .kind = FIELD_ITEMS,
                               .check = check_row,
                               .write = write_rows,
                               .read = read_rows,
                               .free = free_rows},
                              {.key = "notes",
                               .kind = FIELD_TEXTS,
                               .offset = offsetof(Table, notes),
                               .count = offsetof(Table, note_count)},
                              {0}};

/* ---- checks beyond kinds ---- */

/* Text columns must contain texts, other columns numbers. */
static bool cells_fit(const json_t *row, const json_t *heads) {
    size_t i;
    json_t *cell;
    json_array_foreach(row, i, cell) {
        const bool text =
            strcmp(json_string_value(json_object_get(json_array_get(heads, i), "kind")), "text") == 0;
        if (!json_is_null(cell) && json_is_string(cell) != text) return false;
    }
    return true;
}

Status table_check_all(const json_t *list, size_t path) {
    size_t i, k;
    json_t *table, *row;
    json_array_foreach(list, i, table) {
        const json_t *heads = json_object_get(table, "columns");
        size_t width = json_array_size(heads);
        if (width < 1 || width > TABLE_COLUMNS_MOST)
            return fail(ERROR_FORMAT, "paths[%zu].tables[%zu].columns: %zu of them; there are 1 to %d", path,
                        i, width, TABLE_COLUMNS_MOST);
        json_array_foreach(json_object_get(table, "rows"), k, row) {
            if (json_array_size(row) != width)
                return fail(ERROR_FORMAT, "paths[%zu].tables[%zu].rows[%zu]: %zu cells in %zu columns", path,
                            i, k, json_array_size(row), width);
            if (!cells_fit(row, heads))
                return fail(ERROR_FORMAT,
                            "paths[%zu].tables[%zu].rows[%zu]: a cell is not of its column's kind", path, i,
                            k);
        }
    }
    return OK;
}
