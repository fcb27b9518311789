#include "report/questions.h"

#include "base/memory.h"
#include "base/stats.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

/* Kernels below this share of a row's time are not worth naming. */
static const double NON_TRIVIAL = 0.01;

enum { LISTED = 8 };

/* FLOPs per score. Forward: compare for the maximum, subtract and exponential, add to the sum, divide.
 * Backward: multiply the gradient with the probability and add to delta, subtract that, multiply. */
static const double SOFTMAX_FLOPS[] = {[PASS_FORWARD] = 5, [PASS_BACKWARD] = 4};

/* Products of the naive form, which saves the probabilities; and those that the contract counts. */
static const double PRODUCTS[] = {[PASS_FORWARD] = 2, [PASS_BACKWARD] = 4};
static const double PRODUCTS_COUNTED[] = {[PASS_FORWARD] = 2, [PASS_BACKWARD] = 5};

/* ---- 1: softmax against the products, inside self-attention ---- */

typedef struct {
    double softmax, products, all; // ns per step
    double product_flops, calls;
    bool fused;
} AttentionTime;

/* The naive form has named primitives; the fused form is one kernel. */
static AttentionTime attention_time(const Figures *f, Pass pass) {
    AttentionTime time = {0};
    for (int64_t i = 0; i < f->row_count; i++) {
        const OperationRow *r = &f->rows[i];
        if (r->category != CATEGORY_ATTENTION || r->pass != pass) continue;
        time.all += r->ns;
        time.product_flops += r->work.flops;
        time.calls += r->calls;
        time.fused |= r->form == FORM_FUSED;
        for (int64_t k = 0; k < r->inside_count; k++) {
            const InsideRow *inside = &r->inside[k];
            if (inside->arithmetic == ARITHMETIC_SOFTMAX)
                time.softmax += inside->ns;
            else if (inside->category == CATEGORY_MATRIX)
                time.products += inside->ns;
        }
    }
    return time;
}

static double attention_inside(const OperationRow *r) {
    double ns = 0;
    for (int64_t k = 0; k < r->inside_count; k++)
        if (r->inside[k].category == CATEGORY_ATTENTION) ns += r->inside[k].ns;
    return ns;
}

/* For a decoding step in one operation, the longest one: the time of its primitives that belong to
 * attention. */
static void softmax_decode(const ProfilePath *path, Pass pass, Answer *a) {
    const Figures *f = &path->figures;
    const OperationRow *longest = NULL;
    for (int64_t i = 0; i < f->row_count; i++)
        if (f->rows[i].pass == pass && (!longest || f->rows[i].ns > longest->ns)) longest = &f->rows[i];
    if (!longest || !*path->trace->run.step) return;
    double attention = attention_inside(longest);
    if (attention <= 0)
        answer_line(a, "%s, %s: attention is part of the kernels that decode a whole token, in %s",
                    path->label, pass_name(pass), in_words(CELL_TIME, longest->ns).text);
    else
        answer_line(a, "%s, %s: attention is fused, and takes %s of the %s that it takes to decode a token",
                    path->label, pass_name(pass), in_words(CELL_TIME, attention).text,
                    in_words(CELL_TIME, longest->ns).text);
}

/* For the naive form: total FLOPs, then those of one head. A product takes a multiply-add per score and
 * element of the head. */
static void softmax_flops(const ProfilePath *path, Pass pass, const AttentionTime *t, Answer *a) {
    const TraceRun *run = &path->trace->run;
    double heads = t->calls * (double)run->heads, width = ratio((double)run->width, (double)run->heads);
    double scores = ratio(t->product_flops, PRODUCTS_COUNTED[pass] * 2 * width);
    double softmax = SOFTMAX_FLOPS[pass] * scores, products = PRODUCTS[pass] * 2 * width * scores;
    double times = ratio(t->softmax, t->products), flops = ratio(softmax, products);
    answer_line(a, "%s, %s, each of %.0f heads in %.0f %s: softmax %s, products %s", path->label,
                pass_name(pass), (double)run->heads, t->calls,
                t->calls == (double)run->layers ? "layers" : "calls",
                in_words(CELL_TIME, ratio(t->softmax, heads)).text,
                in_words(CELL_TIME, ratio(t->products, heads)).text);
    answer_line(a,
                "%s, %s: softmax %s, products %s: FLOP ratio %.4f, so a FLOP of softmax takes %.0f times as "
                "long as one of the products",
                path->label, pass_name(pass), in_words(CELL_FLOPS, softmax).text,
                in_words(CELL_FLOPS, products).text, flops, ratio(times, flops));
    answer_line(a, "%s, %s, each head: softmax %s, products %s: time ratio %.2f, FLOP ratio %.4f",
                path->label, pass_name(pass), in_words(CELL_FLOPS, ratio(softmax, heads)).text,
                in_words(CELL_FLOPS, ratio(products, heads)).text, times, flops);
}

static void softmax_pass(const ProfilePath *path, Pass pass, Answer *a) {
    AttentionTime t = attention_time(&path->figures, pass);
    /* An encoder-decoder has more attention operations than layers, and micro-batches repeat them. */
    double heads = t.calls * (double)path->trace->run.heads;
    if (t.all <= 0) {
        softmax_decode(path, pass, a);
        return;
    }
    if (t.fused) {
        answer_line(a,
                    "%s, %s: attention is fused; softmax is hidden behind the products, in kernels of %s in "
                    "all, %s per head and layer",
                    path->label, pass_name(pass), in_words(CELL_TIME, t.all).text,
                    in_words(CELL_TIME, ratio(t.all, heads)).text);
        return;
    }
    answer_line(a, "%s, %s: softmax %s, products %s of %s%s ratio %.2f", path->label, pass_name(pass),
                in_words(CELL_TIME, t.softmax).text, in_words(CELL_TIME, t.products).text,
                in_words(CELL_TIME, t.all).text, pass == PASS_BACKWARD ? ":" : " in all: time",
                ratio(t.softmax, t.products));
    softmax_flops(path, pass, &t, a);
}

/* ---- 2: the categories' shares, forward alone and in the whole step ---- */

static void categories_of(const ProfilePath *path, Answer *a) {
    const Figures *f = &path->figures;
    double forward[CATEGORY_COUNT] = {0}, whole[CATEGORY_COUNT] = {0}, forward_sum = 0, whole_sum = 0;
    for (int c = 0; c < CATEGORY_COUNT; c++) {
        forward[c] = f->phases[PHASE_FORWARD].categories[c];
        for (int p = 0; p < PHASE_COUNT; p++) whole[c] += f->phases[p].categories[c];
        forward_sum += forward[c];
        whole_sum += whole[c];
    }
    bool training = figures_pass_ns(f, PASS_UPDATE) > 0;
    answer_line(a, "%s: matrix products take %.1f%% of the forward pass%s", path->label,
                100 * ratio(forward[CATEGORY_MATRIX], forward_sum), training ? "" : "; no more was recorded");
    if (training)
        answer_line(a, "%s: and %.1f%% of the whole step with AdamW (%s of %s)", path->label,
                    100 * ratio(whole[CATEGORY_MATRIX], whole_sum),
                    in_words(CELL_TIME, whole[CATEGORY_MATRIX]).text, in_words(CELL_TIME, whole_sum).text);
    for (int c = 0; c < CATEGORY_COUNT; c++) {
        double before = ratio(forward[c], forward_sum), after = ratio(whole[c], whole_sum);
        if (c == CATEGORY_MATRIX || (before < NON_TRIVIAL / 10 && after < NON_TRIVIAL / 10)) continue;
        if (training)
            answer_line(a, "%s: %s %.1f%% of forward, %.1f%% of the step (%+.1f points)", path->label,
                        category_name(c), 100 * before, 100 * after, 100 * (after - before));
        else
            answer_line(a, "%s: %s %.1f%%", path->label, category_name(c), 100 * before);
    }
}

/* ---- 3 and 4: kernels ---- */

/* The longest kernel of a pass except those in `taken`, or NULL. Copies and fills do not count. */
static const KernelRow *longest(const Figures *f, Pass pass, bool products, const bool *taken) {
    const KernelRow *best = NULL;
    for (int64_t i = 0; i < f->kernel_count; i++) {
        const KernelRow *k = &f->kernels[i];
        if (k->kind != TRACE_KERNEL || (taken && taken[i])) continue;
        if (!products && k->category == CATEGORY_MATRIX) continue;
        if (k->in[pass].ns > 0 && (!best || k->in[pass].ns > best->in[pass].ns)) best = k;
    }
    return best;
}

static double pass_total(const Figures *f, Pass pass) {
    double ns = 0;
    for (int64_t i = 0; i < f->kernel_count; i++) ns += f->kernels[i].in[pass].ns;
    return ns;
}

static void other_kernels(const ProfilePath *path, Answer *a) {
    const Figures *f = &path->figures;
    double total = pass_total(f, PASS_FORWARD);
    OWNED bool *taken = memory_array((size_t)f->kernel_count + 1, sizeof *taken);
    int listed = 0;
    const KernelRow *k;
    for (; listed < LISTED && (k = longest(f, PASS_FORWARD, false, taken)); listed++) {
        const KernelUse *use = &k->in[PASS_FORWARD];
        if (use->ns < NON_TRIVIAL * total) break;
        taken[k - f->kernels] = true;
        answer_line(a, "%s: %.96s: %s, %.1f%% of forward, %.0f calls, for %s", path->label, k->label,
                    in_words(CELL_TIME, use->ns).text, 100 * ratio(use->ns, total), use->calls,
                    k->call ? k->call : "no operation");
    }
    if (!listed)
        answer_line(a, "%s: none takes as much as %.0f%% of the forward pass", path->label,
                    100 * NON_TRIVIAL);
}

/* The longest kernels of the forward and backward pass together. */
static void longest_in_both(const ProfilePath *path, Answer *a) {
    const Figures *f = &path->figures;
    const KernelRow *best = NULL;
    double most = 0;
    for (int64_t i = 0; i < f->kernel_count; i++) {
        const KernelRow *k = &f->kernels[i];
        double ns = k->in[PASS_FORWARD].ns + k->in[PASS_BACKWARD].ns;
        if (k->kind != TRACE_KERNEL || ns <= most) continue;
        best = k;
        most = ns;
    }
    double both = pass_total(f, PASS_FORWARD) + pass_total(f, PASS_BACKWARD);
    answer_line(a, "%s: of both passes together it is %.120s: %s, %.1f%%, %.0f calls", path->label,
                best->label, in_words(CELL_TIME, most).text, 100 * ratio(most, both),
                best->in[PASS_FORWARD].calls + best->in[PASS_BACKWARD].calls);
}

static void longest_kernel(const ProfilePath *path, Answer *a) {
    const Figures *f = &path->figures;
    const KernelRow *forward = longest(f, PASS_FORWARD, true, NULL),
                    *backward = longest(f, PASS_BACKWARD, true, NULL);
    if (!forward) {
        answer_line(a, "%s: nothing ran forward", path->label);
        return;
    }
    const KernelUse *use = &forward->in[PASS_FORWARD];
    answer_line(a, "%s: %.120s: %s, %.1f%% of forward, %.0f calls a pass, %s each, for %s", path->label,
                forward->label, in_words(CELL_TIME, use->ns).text,
                100 * ratio(use->ns, pass_total(f, PASS_FORWARD)), use->calls,
                in_words(CELL_TIME, ratio(use->ns, use->calls)).text,
                forward->call ? forward->call : "no operation");
    if (!backward) return;
    use = &backward->in[PASS_BACKWARD];
    if (backward == forward)
        answer_line(a, "%s: it is also the longest in the backward pass, with %s in %.0f calls", path->label,
                    in_words(CELL_TIME, use->ns).text, use->calls);
    else
        answer_line(a, "%s: not the same as backward, where it is %.120s: %s, %.1f%%, %.0f calls",
                    path->label, backward->label, in_words(CELL_TIME, use->ns).text,
                    100 * ratio(use->ns, pass_total(f, PASS_BACKWARD)), use->calls);
    longest_in_both(path, a);
}

/* ---- all ---- */

Answers questions_answer(const Profile *profile) {
    Answers answers = {
        {{.question = "How long does softmax take compared with the matrix products inside self-attention?"},
         {.question =
              "What share of the time goes to matrix products, in the forward pass and in the whole step?"},
         {.question = "Which kernels other than matrix products take non-trivial time in the forward pass?"},
         {.question =
              "Which kernel takes the most time in the forward pass, in the backward pass, and in both "
              "together?"},
         {.question = "What does each fusion save?"},
         {.question = "What limits the step: the reader, the host's launches, memory or arithmetic?"},
         {.question = "Does communication bind the step, which rank is the slowest, and what would one more "
                      "give?"}}};
    Answer *a = answers.answers;
    for (int i = 0; i < profile->count; i++) {
        const ProfilePath *path = &profile->paths[i];
        softmax_pass(path, PASS_FORWARD, &a[0]);
        softmax_pass(path, PASS_BACKWARD, &a[0]);
        categories_of(path, &a[1]);
        other_kernels(path, &a[2]);
        longest_kernel(path, &a[3]);
        question_bound(profile, path, &a[5]);
        question_ranks(path, &a[6]);
    }
    question_savings(profile, &a[4]);
    return answers;
}

void answer_line(Answer *a, const char *format, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    a->lines = memory_grow(a->lines, &a->room, a->count + 1, sizeof *a->lines);
    a->lines[a->count++] = memory_text(text);
}

void answers_free(Answers *answers) {
    for (int i = 0; i < QUESTION_COUNT; i++) {
        for (int64_t k = 0; k < answers->answers[i].count; k++) memory_free(answers->answers[i].lines[k]);
        memory_free(answers->answers[i].lines);
    }
    *answers = (Answers){0};
}
