#include "tasks/pairs/beam.h"

#include "base/checked.h"
#include "base/memory.h"

#include <math.h>
#include <string.h>

enum { WIDTH_MOST = 64 };

/* A hypothesis extended by one token. */
typedef struct {
    double log_p; // log-probability of hypothesis and token together
    int64_t row;
    int32_t token;
} Candidate;

/* The best finished hypothesis of a sentence, and the number of finished ones. */
typedef struct {
    double best; // score of that hypothesis
    int64_t count, length;
} Finished;

struct Beams {
    BeamOptions options;
    int64_t rows, length; // hypotheses; tokens of each so far
    int32_t *tokens;      // (rows, most + 1)
    int32_t *moved;       // (rows, most + 1): scratch for reordering rows
    double *log_p;        // (rows) -inf: the row is unused
    Candidate *found;     // (rows, 2 * width): each row's likeliest continuations
    int32_t *best;        // (sentences, most + 1)
    Finished *finished;   // (sentences)
    bool *done;           // (sentences)
};

static Status check(const BeamOptions *o, int64_t *rows, int64_t *tokens) {
    if (o->width < 1 || o->width > WIDTH_MOST || 2 * o->width > o->vocab)
        return fail(ERROR_USAGE, "the beam is %lld, but must be 1 to %d and at most half the vocabulary",
                    (long long)o->width, WIDTH_MOST);
    if (!(o->penalty >= 0 && o->penalty <= 10))
        return fail(ERROR_USAGE, "the length penalty is %g, but must be 0 to 10", o->penalty);
    if (o->sentences < 1 || o->most < 1 || o->least < 0 || o->least > o->most ||
        checked_multiply(o->sentences, o->width, rows) || *rows > INT32_MAX ||
        checked_multiply(*rows, o->most + 1, tokens) || *tokens > INT32_MAX)
        return fail(ERROR_USAGE, "%lld sentences at once with %lld hypotheses of %lld tokens are too many",
                    (long long)o->sentences, (long long)o->width, (long long)o->most);
    return OK;
}

Status beams_open(const BeamOptions *options, Beams **beams) {
    int64_t rows, tokens;
    *beams = NULL;
    TRY(check(options, &rows, &tokens));
    Beams *b = memory_allocate(sizeof *b);
    b->options = *options;
    b->rows = rows;
    b->tokens = memory_array((size_t)tokens, sizeof *b->tokens);
    b->moved = memory_array((size_t)tokens, sizeof *b->moved);
    b->log_p = memory_array((size_t)rows, sizeof *b->log_p);
    b->found = memory_array((size_t)(rows * 2 * options->width), sizeof *b->found);
    b->best = memory_array((size_t)(options->sentences * (options->most + 1)), sizeof *b->best);
    b->finished = memory_array((size_t)options->sentences, sizeof *b->finished);
    b->done = memory_array((size_t)options->sentences, sizeof *b->done);
    *beams = b;
    return OK;
}

void beams_close(Beams *beams) {
    if (!beams) return;
    memory_free(beams->tokens);
    memory_free(beams->moved);
    memory_free(beams->log_p);
    memory_free(beams->found);
    memory_free(beams->best);
    memory_free(beams->finished);
    memory_free(beams->done);
    memory_free(beams);
}

void beams_start(Beams *b) {
    int64_t room = b->options.most + 1;
    b->length = 1;
    for (int64_t row = 0; row < b->rows; row++) {
        b->tokens[row * room] = b->options.begin;
        /* All rows of a sentence are equal at first, so only one is used. */
        b->log_p[row] = row % b->options.width == 0 ? 0 : -INFINITY;
    }
    for (int64_t s = 0; s < b->options.sentences; s++) {
        b->finished[s] = (Finished){.best = -INFINITY};
        b->done[s] = false;
    }
}

/* ---- one row ---- */

static bool goes_before(const Candidate *a, const Candidate *b) {
    if (a->log_p != b->log_p) return a->log_p > b->log_p;
    return a->row != b->row ? a->row < b->row : a->token < b->token;
}

/* Inserts a candidate into the `most` best, which are sorted; returns their number. */
static int64_t insert(Candidate *sorted, int64_t count, int64_t most, Candidate candidate) {
    if (count == most && !goes_before(&candidate, &sorted[count - 1])) return count;
    int64_t at = count < most ? count : most - 1;
    for (; at > 0 && goes_before(&candidate, &sorted[at - 1]); at--) sorted[at] = sorted[at - 1];
    sorted[at] = candidate;
    return count < most ? count + 1 : most;
}

/* The row's 2 * width likeliest continuations, so that enough remain if half of them end. False if the logits
 * are not finite. */
static bool continue_row(Beams *b, int64_t row, const float *logits) {
    int64_t most = 2 * b->options.width, count = 0, vocab = b->options.vocab;
    Candidate *found = b->found + row * most;
    double largest = -INFINITY, sum = 0;
    for (int64_t v = 0; v < vocab; v++) largest = logits[v] > largest ? (double)logits[v] : largest;
    for (int64_t v = 0; v < vocab; v++) sum += exp((double)logits[v] - largest);
    if (!isfinite(sum)) return false;
    double base = b->log_p[row] - largest - log(sum);
    bool may_end = b->length >= b->options.least; /* the next token has number `length` */
    for (int64_t v = 0; v < vocab; v++)
        if (v != b->options.end || may_end)
            count = insert(found, count, most, (Candidate){base + (double)logits[v], row, (int32_t)v});
    return true;
}

/* ---- one sentence ---- */

static double score_of(const Beams *b, double log_p, int64_t length) {
    return log_p / pow((5 + (double)length) / 6, b->options.penalty);
}

/* Finishes the hypothesis in `row` with `length` tokens after the begin token, including an end token, if
 * any. */
static void finish(Beams *b, int64_t sentence, int64_t row, double log_p, int64_t length, bool ended) {
    int64_t room = b->options.most + 1;
    Finished *f = &b->finished[sentence];
    double score = score_of(b, log_p, length);
    f->count++;
    if (score <= f->best) return;
    f->best = score;
    f->length = ended ? length - 1 : length;
    memcpy(b->best + sentence * room, b->tokens + row * room + 1, (size_t)f->length * sizeof *b->best);
}

/* Separates the sentence's candidates into those that end and those that continue, likeliest first. */
static void choose(Beams *b, int64_t sentence, int32_t *tokens, int32_t *parents, double *log_p) {
    int64_t width = b->options.width, first = sentence * width, most = 2 * width, count = 0, kept = 0;
    Candidate sorted[2 * WIDTH_MOST];
    for (int64_t row = first; row < first + width; row++)
        for (int64_t i = 0; b->log_p[row] > -INFINITY && i < most; i++)
            count = insert(sorted, count, most, b->found[row * most + i]);
    for (int64_t i = 0; i < count && kept < width; i++) {
        const Candidate *c = &sorted[i];
        if (c->token == b->options.end) {
            if (i < width) finish(b, sentence, c->row, c->log_p, b->length, true);
            continue;
        }
        tokens[first + kept] = c->token;
        parents[first + kept] = (int32_t)c->row;
        log_p[first + kept++] = c->log_p;
    }
    b->done[sentence] = b->finished[sentence].count >= width;
}

static void repeat_end(Beams *b, int64_t sentence, int32_t *tokens, int32_t *parents, double *log_p) {
    int64_t width = b->options.width;
    for (int64_t row = sentence * width; row < (sentence + 1) * width; row++) {
        tokens[row] = b->options.end;
        parents[row] = (int32_t)row;
        log_p[row] = -INFINITY;
    }
}

/* ---- all ---- */

/* Rows become copies of their parents, extended by their new tokens. */
static void move_rows(Beams *b, const int32_t *tokens, const int32_t *parents) {
    int64_t room = b->options.most + 1;
    for (int64_t row = 0; row < b->rows; row++) {
        memcpy(b->moved + row * room, b->tokens + parents[row] * room, (size_t)b->length * sizeof *b->moved);
        b->moved[row * room + b->length] = tokens[row];
    }
    int32_t *before = b->tokens;
    b->tokens = b->moved;
    b->moved = before;
    b->length++;
}

static void finish_open(Beams *b, int64_t sentence) {
    int64_t width = b->options.width;
    for (int64_t row = sentence * width; row < (sentence + 1) * width; row++)
        if (b->log_p[row] > -INFINITY) finish(b, sentence, row, b->log_p[row], b->length - 1, false);
    b->done[sentence] = true;
}

Status beams_advance(Beams *b, const float *logits, int64_t stride, int32_t *tokens, int32_t *parents) {
    int64_t width = b->options.width, bad = 0;
    OWNED double *log_p = memory_array((size_t)b->rows, sizeof *log_p);
#pragma omp parallel for schedule(dynamic) reduction(+ : bad)
    for (int64_t row = 0; row < b->rows; row++)
        if (b->log_p[row] > -INFINITY) bad += !continue_row(b, row, logits + row * stride);
    for (int64_t s = 0; !bad && s < b->options.sentences; s++) {
        if (!b->done[s]) choose(b, s, tokens, parents, log_p);
        if (b->done[s]) repeat_end(b, s, tokens, parents, log_p);
    }
    if (!bad) {
        memcpy(b->log_p, log_p, (size_t)b->rows * sizeof *log_p);
        move_rows(b, tokens, parents);
    }
    for (int64_t s = 0; !bad && b->length > b->options.most && s < b->options.sentences; s++)
        if (!b->done[s]) finish_open(b, s);
    if (!bad) return OK;
    return fail(ERROR_NONFINITE, "the logits of token %lld are not finite in %lld of %lld hypotheses",
                (long long)b->length, (long long)bad, (long long)(b->options.sentences * width));
}

bool beams_done(const Beams *beams) {
    for (int64_t s = 0; s < beams->options.sentences; s++)
        if (!beams->done[s]) return false;
    return true;
}

int64_t beams_length(const Beams *beams) {
    return beams->length;
}

const int32_t *beams_rows(const Beams *beams, int64_t *stride) {
    *stride = beams->options.most + 1;
    return beams->tokens;
}

const int32_t *beams_best(const Beams *beams, int64_t sentence, int64_t *length, double *score) {
    *length = beams->finished[sentence].length;
    *score = beams->finished[sentence].best;
    return beams->best + sentence * (beams->options.most + 1);
}
