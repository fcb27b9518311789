#include "profile/questions.h"

#include "base/memory.h"
#include "profile/kernel_name.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

/* Of a row's time: below this a kernel is not worth naming. */
static const double NON_TRIVIAL = 0.01;

enum { LISTED = 8 };

/* FLOPs for each score. Forward: compare for the maximum, subtract and exponential, add to the sum, divide.
 * Backward: multiply the gradient with the probability and add to delta, subtract that, multiply. */
static const double SOFTMAX_FLOPS[] = {[PASS_FORWARD] = 5, [PASS_BACKWARD] = 4};

/* Products of the naive form, which keeps the probabilities; and those that the contract counts. */
static const double PRODUCTS[] = {[PASS_FORWARD] = 2, [PASS_BACKWARD] = 4};
static const double PRODUCTS_COUNTED[] = {[PASS_FORWARD] = 2, [PASS_BACKWARD] = 5};

Status answer_line(Answer *a, const char *format, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (a->count == a->room) {
        int room = 2 * a->room + 8;
        char **lines = memory_resize(a->lines, (size_t)room * sizeof *lines);
        if (!lines) return fail(ERROR_MEMORY, "out of host memory for the answers");
        a->lines = lines;
        a->room = room;
    }
    a->lines[a->count] = memory_text(text);
    if (!a->lines[a->count]) return fail(ERROR_MEMORY, "out of host memory for the answers");
    a->count++;
    return OK;
}

Words in_words(CellKind kind, double number) {
    Words words;
    cell_format(kind, isfinite(number) ? number : 0, UNIT_AUTO, words.text);
    return words;
}

static double share(double part, double whole) {
    return whole > 0 ? part / whole : 0;
}

/* ---- 1: softmax against the products, inside self-attention ---- */

typedef struct {
    double softmax, products, all; // ns a step
    double product_flops, calls;
    bool fused;
} AttentionTime;

static bool begins_with(const char *text, const char *beginning) {
    return strncmp(text, beginning, strlen(beginning)) == 0;
}

/* The naive form marks its parts by name; the fused form is one kernel. */
static AttentionTime attention_time(const Figures *f, Pass pass) {
    AttentionTime time = {0};
    for (int i = 0; i < f->row_count; i++) {
        const OperationRow *r = &f->rows[i];
        if (r->operation != OP_ATTENTION || r->pass != pass) continue;
        time.all += r->ns;
        time.product_flops += r->work.flops;
        time.calls += r->calls;
        time.fused |= r->form == FORM_FUSED;
        for (int k = 0; k < r->inside_count; k++) {
            const InsideRow *inside = &r->inside[k];
            if (begins_with(inside->name, "softmax") || begins_with(inside->name, "log-sum-exp"))
                time.softmax += inside->ns;
            else if (inside->category == CATEGORY_MATRIX || strstr(inside->name, "product"))
                time.products += inside->ns;
        }
    }
    return time;
}

/* A decoding step in one operation: of it, what is marked as attention's. */
static Status softmax_decode(const ProfilePath *path, Pass pass, Answer *a) {
    const Figures *f = &path->figures;
    for (int i = 0; i < f->row_count; i++) {
        const OperationRow *r = &f->rows[i];
        double attention = 0;
        if (r->operation != OP_DECODE || r->pass != pass) continue;
        for (int k = 0; k < r->inside_count; k++)
            if (r->inside[k].category == CATEGORY_ATTENTION) attention += r->inside[k].ns;
        if (attention <= 0)
            return answer_line(
                a, "%s, %s: attention is part of the kernels that decode a token as a whole, in %s",
                path->label, pass_name(pass), in_words(CELL_TIME, r->ns).text);
        return answer_line(a, "%s, %s: attention is fused, and takes %s of the %s that decode a token",
                           path->label, pass_name(pass), in_words(CELL_TIME, attention).text,
                           in_words(CELL_TIME, r->ns).text);
    }
    return OK;
}

/* Of the naive form: FLOPs in all, then what a single head has. A product takes a multiply-add for each score
 * and element of the head. */
static Status softmax_flops(const ProfilePath *path, Pass pass, const AttentionTime *t, Answer *a) {
    const TraceRun *run = &path->trace->run;
    double heads = t->calls * (double)run->heads, width = share((double)run->width, (double)run->heads);
    double scores = share(t->product_flops, PRODUCTS_COUNTED[pass] * 2 * width);
    double softmax = SOFTMAX_FLOPS[pass] * scores, products = PRODUCTS[pass] * 2 * width * scores;
    double times = share(t->softmax, t->products), flops = share(softmax, products);
    TRY(answer_line(a, "%s, %s, each of %.0f heads in %.0f %s: softmax %s, products %s", path->label,
                    pass_name(pass), (double)run->heads, t->calls,
                    t->calls == (double)run->layers ? "layers" : "calls",
                    in_words(CELL_TIME, share(t->softmax, heads)).text,
                    in_words(CELL_TIME, share(t->products, heads)).text));
    TRY(answer_line(
        a,
        "%s, %s: softmax %s, products %s: FLOP ratio %.4f, so a FLOP of softmax takes %.0f times as "
        "long as one of the products",
        path->label, pass_name(pass), in_words(CELL_FLOPS, softmax).text, in_words(CELL_FLOPS, products).text,
        flops, share(times, flops)));
    return answer_line(a, "%s, %s, each head: softmax %s, products %s: time ratio %.2f, FLOP ratio %.4f",
                       path->label, pass_name(pass), in_words(CELL_FLOPS, share(softmax, heads)).text,
                       in_words(CELL_FLOPS, share(products, heads)).text, times, flops);
}

static Status softmax_pass(const ProfilePath *path, Pass pass, Answer *a) {
    AttentionTime t = attention_time(&path->figures, pass);
    /* An encoder-decoder has more attention than layers, and micro-batches repeat it. */
    double heads = t.calls * (double)path->trace->run.heads;
    if (t.all <= 0) return softmax_decode(path, pass, a);
    if (t.fused)
        return answer_line(
            a,
            "%s, %s: attention is fused; softmax runs in the products' shadow, in kernels of %s "
            "in all, %s a head and layer",
            path->label, pass_name(pass), in_words(CELL_TIME, t.all).text,
            in_words(CELL_TIME, share(t.all, heads)).text);
    TRY(answer_line(a, "%s, %s: softmax %s, products %s of %s%s ratio %.2f", path->label, pass_name(pass),
                    in_words(CELL_TIME, t.softmax).text, in_words(CELL_TIME, t.products).text,
                    in_words(CELL_TIME, t.all).text, pass == PASS_BACKWARD ? ":" : " in all: time",
                    share(t.softmax, t.products)));
    return softmax_flops(path, pass, &t, a);
}

/* ---- 2: the categories' shares, forward alone and in the whole step ---- */

static Status categories_of(const ProfilePath *path, Answer *a) {
    const Figures *f = &path->figures;
    double forward[CATEGORY_COUNT] = {0}, whole[CATEGORY_COUNT] = {0}, forward_sum = 0, whole_sum = 0;
    for (int c = 0; c < CATEGORY_COUNT; c++) {
        forward[c] = f->phases[PHASE_FORWARD].categories[c];
        for (int p = 0; p < PHASE_COUNT; p++) whole[c] += f->phases[p].categories[c];
        forward_sum += forward[c];
        whole_sum += whole[c];
    }
    bool training = figures_pass_ns(f, PASS_UPDATE) > 0;
    TRY(answer_line(a, "%s: matrix products take %.1f%% of the forward pass%s", path->label,
                    100 * share(forward[CATEGORY_MATRIX], forward_sum),
                    training ? "" : "; no more was recorded"));
    if (training)
        TRY(answer_line(a, "%s: and %.1f%% of the whole step with AdamW (%s of %s)", path->label,
                        100 * share(whole[CATEGORY_MATRIX], whole_sum),
                        in_words(CELL_TIME, whole[CATEGORY_MATRIX]).text,
                        in_words(CELL_TIME, whole_sum).text));
    for (int c = 0; c < CATEGORY_COUNT; c++) {
        double before = share(forward[c], forward_sum), after = share(whole[c], whole_sum);
        if (c == CATEGORY_MATRIX || (before < NON_TRIVIAL / 10 && after < NON_TRIVIAL / 10)) continue;
        if (training)
            TRY(answer_line(a, "%s: %s %.1f%% of forward, %.1f%% of the step (%+.1f points)", path->label,
                            category_name((Category)c), 100 * before, 100 * after, 100 * (after - before)));
        else
            TRY(answer_line(a, "%s: %s %.1f%%", path->label, category_name((Category)c), 100 * before));
    }
    return OK;
}

/* ---- 3 and 4: kernels ---- */

/* The kernel with the most time in a pass but for those that `taken` marks, or NULL. Copies and fills are
 * none. */
static const KernelRow *longest(const Figures *f, Pass pass, bool products, const bool *taken) {
    const KernelRow *best = NULL;
    for (int i = 0; i < f->kernel_count; i++) {
        const KernelRow *k = &f->kernels[i];
        if (k->kind != TRACE_KERNEL || (taken && taken[i])) continue;
        if (!products && k->category == CATEGORY_MATRIX) continue;
        if (k->ns[pass] > 0 && (!best || k->ns[pass] > best->ns[pass])) best = k;
    }
    return best;
}

static double pass_total(const Figures *f, Pass pass) {
    double ns = 0;
    for (int i = 0; i < f->kernel_count; i++) ns += f->kernels[i].ns[pass];
    return ns;
}

/* A kernel's name in an answer: kernel_words(k).text. */
typedef struct {
    char text[KERNEL_NAME_BYTES];
} KernelWords;

static KernelWords kernel_words(const KernelRow *k) {
    KernelWords words;
    kernel_label(k->name, words.text);
    return words;
}

static Status other_kernels(const ProfilePath *path, Answer *a) {
    const Figures *f = &path->figures;
    double total = pass_total(f, PASS_FORWARD);
    bool *taken = memory_array((size_t)f->kernel_count + 1, sizeof *taken);
    if (!taken) return fail(ERROR_MEMORY, "out of host memory for the answers");
    Status status = OK;
    int listed = 0;
    const KernelRow *k;
    while (!status && listed < LISTED && (k = longest(f, PASS_FORWARD, false, taken))) {
        if (k->ns[PASS_FORWARD] < NON_TRIVIAL * total) break;
        taken[k - f->kernels] = true;
        listed++;
        status = answer_line(a, "%s: %.96s: %s, %.1f%% of forward, %.0f calls, for %s", path->label,
                             kernel_words(k).text, in_words(CELL_TIME, k->ns[PASS_FORWARD]).text,
                             100 * share(k->ns[PASS_FORWARD], total), k->calls[PASS_FORWARD],
                             k->call ? k->call : "no operation");
    }
    memory_free(taken);
    if (!status && !listed)
        status = answer_line(a, "%s: none takes as much as %.0f%% of the forward pass", path->label,
                             100 * NON_TRIVIAL);
    return status;
}

static Status longest_kernel(const ProfilePath *path, Answer *a) {
    const Figures *f = &path->figures;
    const KernelRow *forward = longest(f, PASS_FORWARD, true, NULL),
                    *backward = longest(f, PASS_BACKWARD, true, NULL);
    if (!forward) return answer_line(a, "%s: nothing ran forward", path->label);
    TRY(answer_line(a, "%s: %.120s: %s, %.1f%% of forward, %.0f calls a pass, %s each, for %s", path->label,
                    kernel_words(forward).text, in_words(CELL_TIME, forward->ns[PASS_FORWARD]).text,
                    100 * share(forward->ns[PASS_FORWARD], pass_total(f, PASS_FORWARD)),
                    forward->calls[PASS_FORWARD],
                    in_words(CELL_TIME, share(forward->ns[PASS_FORWARD], forward->calls[PASS_FORWARD])).text,
                    forward->call ? forward->call : "no operation"));
    if (!backward) return OK;
    if (backward == forward)
        return answer_line(a, "%s: it is the first in the backward pass too, with %s in %.0f calls",
                           path->label, in_words(CELL_TIME, backward->ns[PASS_BACKWARD]).text,
                           backward->calls[PASS_BACKWARD]);
    return answer_line(a, "%s: not the same as backward, where it is %.120s: %s, %.1f%%, %.0f calls",
                       path->label, kernel_words(backward).text,
                       in_words(CELL_TIME, backward->ns[PASS_BACKWARD]).text,
                       100 * share(backward->ns[PASS_BACKWARD], pass_total(f, PASS_BACKWARD)),
                       backward->calls[PASS_BACKWARD]);
}

/* ---- all ---- */

Status questions_answer(const Profile *profile, Answers *answers) {
    static const char *const questions[QUESTION_COUNT] = {
        "How long does softmax take against the matrix products inside self-attention?",
        "What share of the time goes to matrix products, forward alone and in the whole step?",
        "Which kernels other than matrix products take non-trivial time in the forward pass?",
        "Which kernel takes the most time forward, and is it the same backward?",
        "What does each fusion save?",
        "What binds the step: the reader, the host's launches, memory or arithmetic?"};
    *answers = (Answers){0};
    Answer *a = answers->answers;
    for (int i = 0; i < QUESTION_COUNT; i++) a[i].question = questions[i];
    Status status = OK;
    for (int i = 0; i < profile->count && !status; i++) {
        const ProfilePath *path = &profile->paths[i];
        status = softmax_pass(path, PASS_FORWARD, &a[0]);
        if (!status) status = softmax_pass(path, PASS_BACKWARD, &a[0]);
        if (!status) status = categories_of(path, &a[1]);
        if (!status) status = other_kernels(path, &a[2]);
        if (!status) status = longest_kernel(path, &a[3]);
        if (!status) status = question_bound(profile, path, &a[5]);
    }
    if (!status) status = question_savings(profile, &a[4]);
    if (status) questions_free(answers);
    return status;
}

void questions_free(Answers *answers) {
    for (int i = 0; i < QUESTION_COUNT; i++) {
        for (int k = 0; k < answers->answers[i].count; k++) memory_free(answers->answers[i].lines[k]);
        memory_free(answers->answers[i].lines);
    }
    *answers = (Answers){0};
}

void questions_print(const Answers *answers, FILE *file) {
    for (int i = 0; i < QUESTION_COUNT; i++) {
        const Answer *a = &answers->answers[i];
        fprintf(file, "%s%d. %s\n", i ? "\n" : "", i + 1, a->question);
        for (int k = 0; k < a->count; k++) fprintf(file, "   %s\n", a->lines[k]);
    }
}
