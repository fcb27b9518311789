#include "profile/summary.h"

#include "base/memory.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double median(double *values, int64_t count) {
    if (count == 0) return 0;
    qsort(values, (size_t)count, sizeof *values, ascending);
    return count % 2 ? values[count / 2] : 0.5 * (values[count / 2 - 1] + values[count / 2]);
}

/* While folding: the rows, and the time of each row in each step. */
typedef struct {
    SummaryRow *rows;
    double *ms; // (room, steps)
    int count, room;
    int64_t first_step, steps;
} Fold;

static bool same_name(const char *a, const char *b) {
    return a == b || (a && b && strcmp(a, b) == 0);
}

static Status row_of(Fold *fold, const Record *r, Pass pass, const char *primitive, int *index) {
    for (int i = 0; i < fold->count; i++) {
        const SummaryRow *row = &fold->rows[i];
        if (row->operation == r->operation && row->pass == pass && same_name(row->call, r->call) &&
            same_name(row->primitive, primitive)) {
            *index = i;
            return OK;
        }
    }
    if (fold->count == fold->room) {
        int room = fold->room * 2 + 64;
        SummaryRow *rows = memory_resize(fold->rows, (size_t)room * sizeof *rows);
        if (rows) fold->rows = rows;
        double *ms = memory_resize(fold->ms, (size_t)room * (size_t)fold->steps * sizeof *ms);
        if (ms) fold->ms = ms;
        if (!rows || !ms) return fail(ERROR_MEMORY, "out of host memory for the summary");
        fold->room = room;
    }
    *index = fold->count++;
    fold->rows[*index] = (SummaryRow){
        .call = r->call, .primitive = primitive, .operation = r->operation, .pass = pass, .form = r->form};
    memset(fold->ms + (size_t)*index * (size_t)fold->steps, 0, (size_t)fold->steps * sizeof *fold->ms);
    return OK;
}

static Status add_time(Fold *fold, const Record *r, Pass pass, const char *primitive, double sign,
                       int *index) {
    TRY(row_of(fold, r, pass, primitive, index));
    SummaryRow *row = &fold->rows[*index];
    fold->ms[(int64_t)*index * fold->steps + r->step - fold->first_step] += sign * r->device_ms;
    row->launches += sign * (double)r->launches;
    return OK;
}

static Status fold_record(Fold *fold, const Record *records, const Record *r, bool primitives) {
    int index;
    if (r->kind != RECORD_OPERATION && r->kind != RECORD_PRIMITIVE) return OK;
    if (r->kind == RECORD_OPERATION) {
        TRY(add_time(fold, r, r->pass, NULL, 1, &index));
        SummaryRow *row = &fold->rows[index];
        row->calls += 1;
        row->work.flops += r->work.flops;
        row->work.bytes += r->work.bytes;
        return OK;
    }
    Pass outer = records[r->parent].pass;
    if (r->pass != outer) {
        TRY(add_time(fold, r, outer, NULL, -1, &index));
        TRY(add_time(fold, r, r->pass, NULL, 1, &index));
    }
    if (!primitives) return OK;
    TRY(add_time(fold, r, r->pass, r->name, 1, &index));
    fold->rows[index].calls += 1;
    return OK;
}

static void finish(Fold *fold, Summary *summary) {
    double steps = (double)fold->steps;
    for (int i = 0; i < fold->count; i++) {
        SummaryRow *row = &fold->rows[i];
        double *ms = fold->ms + (int64_t)i * fold->steps;
        row->ms = median(ms, fold->steps); // sorts
        row->ms_low = ms[0];
        row->ms_high = ms[fold->steps - 1];
        row->calls /= steps;
        row->launches /= steps;
        row->work.flops /= steps;
        row->work.bytes /= steps;
    }
    *summary = (Summary){fold->rows, fold->count, fold->steps};
}

Status summary_make(const Record *records, int64_t count, int64_t first_step, int64_t steps, bool primitives,
                    Summary *summary) {
    Fold fold = {.first_step = first_step, .steps = steps};
    *summary = (Summary){0};
    if (steps < 1) return OK;
    Status status = OK;
    for (int64_t i = 0; i < count && !status; i++)
        if (records[i].step >= first_step && records[i].step < first_step + steps)
            status = fold_record(&fold, records, &records[i], primitives);
    if (!status) finish(&fold, summary);
    if (status) memory_free(fold.rows);
    memory_free(fold.ms);
    return status;
}

void summary_free(Summary *summary) {
    memory_free(summary->rows);
    *summary = (Summary){0};
}

double summary_pass_ms(const Summary *s, Pass pass) {
    double ms = 0;
    for (int i = 0; i < s->count; i++)
        if (!s->rows[i].primitive && (pass == PASS_COUNT || s->rows[i].pass == pass)) ms += s->rows[i].ms;
    return ms;
}

double work_share(Work work, double ms, const Peaks *peaks, char *limit) {
    double matrix = peaks->flops > 0 ? work.flops / peaks->flops : 0;
    double memory = peaks->bandwidth > 0 ? work.bytes / peaks->bandwidth : 0;
    *limit = matrix >= memory ? 'm' : 'b';
    return ms > 0 ? 1e3 * fmax(matrix, memory) / ms : 0;
}

void summary_print(const Summary *s, const Peaks *peaks, FILE *file) {
    double total = summary_pass_ms(s, PASS_COUNT);
    fprintf(file, "%-26s %-8s %-5s %10s %6s %9s %8s %7s %8s\n", "operation", "pass", "form", "ms", "%",
            "launches", "TFLOP/s", "TB/s", "of limit");
    for (int i = 0; i < s->count; i++) {
        const SummaryRow *r = &s->rows[i];
        if (r->primitive) {
            fprintf(file, "  %-24s %-8s %-5s %10.3f %6.1f %9.0f\n", r->primitive, pass_name(r->pass),
                    form_name(r->form), r->ms, total > 0 ? 100 * r->ms / total : 0, r->launches);
            continue;
        }
        char limit;
        double share = work_share(r->work, r->ms, peaks, &limit), seconds = 1e-3 * r->ms;
        fprintf(file, "%-26s %-8s %-5s %10.3f %6.1f %9.0f %8.2f %7.3f %6.1f%%%c\n", r->call,
                pass_name(r->pass), form_name(r->form), r->ms, total > 0 ? 100 * r->ms / total : 0,
                r->launches, seconds > 0 ? 1e-12 * r->work.flops / seconds : 0,
                seconds > 0 ? 1e-12 * r->work.bytes / seconds : 0, 100 * share, limit);
    }
    fprintf(file, "%-41s %10.3f  (limits: m %.4g TFLOP/s, b %.3g TB/s, measured)\n", "sum of operations",
            total, 1e-12 * peaks->flops, 1e-12 * peaks->bandwidth);
}
