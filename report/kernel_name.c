#include "report/kernel_name.h"

#include "base/memory.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names of C++ ---- */

/* From the C++ library, if linked; the name is that of the Itanium ABI. */
__attribute__((weak)) char *__cxa_demangle(const char *name, char *buffer, size_t *length, int *status);

char *kernel_demangle(const char *name) {
    if (strncmp(name, "_Z", 2) != 0 || !__cxa_demangle) return NULL;
    int status = 0;
    char *text = __cxa_demangle(name, NULL, NULL, &status);
    char *copy = text && !status ? memory_text(text) : NULL;
    free(text); // allocated by the C++ library
    return copy;
}

/* Skips the group in parentheses, brackets or angles that `text` begins with. */
static const char *skip_group(const char *text) {
    int depth = 0;
    do {
        depth += *text == '(' || *text == '<' || *text == '[';
        depth -= *text == ')' || *text == '>' || *text == ']';
        text++;
    } while (*text && depth > 0);
    return text;
}

void kernel_short_name(const char *name, char text[KERNEL_NAME_BYTES]) {
    static const char nameless[] = "(anonymous namespace)::";
    const char *start = name, *at = name;
    while (*at) {
        if (strncmp(at, nameless, sizeof nameless - 1) == 0) {
            at += sizeof nameless - 1;
            start = at;
        } else if (strncmp(at, "::", 2) == 0) {
            at += 2;
            start = at;
        } else if (*at == ' ') {
            start = ++at;
        } else if (*at == '<') {
            at = skip_group(at);
        } else if (*at == '(') {
            break;
        } else {
            at++;
        }
    }
    snprintf(text, KERNEL_NAME_BYTES, "%.*s", (int)(at - start), start);
}

void kernel_label(const char *name, char text[KERNEL_NAME_BYTES]) {
    if (strchr(name, '('))
        kernel_short_name(name, text);
    else
        snprintf(text, KERNEL_NAME_BYTES, "%s", name);
}

/* ---- properties that libraries encode in a name ---- */

typedef struct {
    const char *part, *meaning;
} Word;

static const char *meaning_of(const char *name, const Word *words) {
    for (; words->part; words++)
        if (strstr(name, words->part)) return words->meaning;
    return NULL;
}

static void append(char text[KERNEL_NAME_BYTES], const char *piece) {
    size_t length = strlen(text);
    snprintf(text + length, KERNEL_NAME_BYTES - length, "%s%s", length ? ", " : "", piece);
}

/* "sm90", or the kernel family that the name begins with. */
static void add_architecture(const char *name, char text[KERNEL_NAME_BYTES]) {
    static const Word families[] = {{"maxwell_", "sm50"},
                                    {"pascal_", "sm60"},
                                    {"volta_", "sm70"},
                                    {"turing_", "sm75"},
                                    {"ampere_", "sm80"},
                                    {"hopper_", "sm90"},
                                    {"sm70_", "sm70"},
                                    {"sm75_", "sm75"},
                                    {"sm80_", "sm80"},
                                    {"sm86_", "sm86"},
                                    {"sm89_", "sm89"},
                                    {"sm90_", "sm90"},
                                    {"sm100_", "sm100"},
                                    {"sm120_", "sm120"},
                                    {"cutlass_70", "sm70"},
                                    {"cutlass_75", "sm75"},
                                    {"cutlass_80", "sm80"},
                                    {"cutlass_90", "sm90"},
                                    {NULL, NULL}};
    const char *family = meaning_of(name, families);
    if (family) append(text, family);
}

/* The letters of "nvjet_[sm90_]tst_": input, accumulator, output. */
static const char *nvjet_dtype(const char *name) {
    const char *at = strstr(name, "nvjet_");
    if (!at) return NULL;
    at += strlen("nvjet_");
    if (strncmp(at, "sm", 2) == 0 && strchr(at, '_')) at = strchr(at, '_') + 1;
    switch (*at) {
    case 'h': return "fp16";
    case 't': return "bf16";
    case 's': return "tf32";
    case 'd': return "fp64";
    case 'q': return "fp8";
    default: return NULL;
    }
}

static void add_dtype(const char *name, char text[KERNEL_NAME_BYTES]) {
    static const Word dtypes[] = {{"bf16", "bf16"},      {"bfloat16", "bf16"}, {"tf32", "tf32"},
                                  {"s1688gemm", "tf32"}, {"sgemm", "fp32"},    {"f32f32_f32f32", "fp32"},
                                  {"dgemm", "fp64"},     {"hgemm", "fp16"},    {"h16816", "fp16"},
                                  {"f16f16", "fp16"},    {"<float", "fp32"},   {"<double", "fp64"},
                                  {"BFloat16", "bf16"},  {"::Half", "fp16"},   {"half_t", "fp16"},
                                  {"scudnn", "fp32"},    {NULL, NULL}};
    const char *dtype = nvjet_dtype(name);
    if (!dtype) dtype = meaning_of(name, dtypes);
    if (dtype) append(text, dtype);
}

static bool is_library_product(const char *name) {
    return strstr(name, "gemm") || strstr(name, "nvjet") || strstr(name, "scudnn");
}

/* Adds the computation of PyTorch's kernels, whose names contain no architecture. */
static void add_kind(const char *name, char text[KERNEL_NAME_BYTES]) {
    static const Word kinds[] = {{"flash_fwd", "attention, forward"},
                                 {"flash_bwd", "attention, backward"},
                                 {"fmha", "attention"},
                                 {"elementwise_kernel", "elementwise"},
                                 {"softmax_warp_forward", "softmax"},
                                 {"SoftMaxForward", "softmax"},
                                 {"layer_norm", "normalization"},
                                 {NULL, NULL}};
    static const Word functions[] = {
        {"Gelu", "GELU"},        {"silu", "SiLU"},       {"tanh", "tanh"},
        {"threshold", "ReLU"},   {"Functor_add", "add"}, {"MulFunctor", "multiply"},
        {"FillFunctor", "fill"}, {"copy", "copy"},       {NULL, NULL}};
    const char *kind = meaning_of(name, kinds), *vector = strstr(name, "vectorized_elementwise_kernel<");
    const char *function = kind && strcmp(kind, "elementwise") == 0 ? meaning_of(name, functions) : NULL;
    char width[32];
    if (kind) append(text, kind);
    if (function) append(text, function);
    if (!vector) return;
    snprintf(width, sizeof width, "%d at a time", atoi(strchr(vector, '<') + 1));
    append(text, width);
}

/* Adds the first "128x256", and the depth that follows as "_64x4" or "x64". */
static void add_tile(const char *name, char text[KERNEL_NAME_BYTES]) {
    for (const char *at = name; *at; at++) {
        int m, n, k, used = 0;
        char tile[64];
        if (!isdigit((unsigned char)*at) || (at > name && isalnum((unsigned char)at[-1]) && at[-1] != 'e'))
            continue;
        if (sscanf(at, "%4dx%4d%n", &m, &n, &used) != 2 || !used) continue;
        at += used;
        if (sscanf(at, "x%4d", &k) == 1 || sscanf(at, "_%4dx", &k) == 1)
            snprintf(tile, sizeof tile, "tile %dx%dx%d", m, n, k);
        else
            snprintf(tile, sizeof tile, "tile %dx%d", m, n);
        append(text, tile);
        return;
    }
}

/* A word of two or three letters N and T: whether each operand is transposed. */
static void add_transposition(const char *name, char text[KERNEL_NAME_BYTES]) {
    for (const char *at = name; *at;) {
        size_t length = strcspn(at, "_<>(), "), letters = strspn(at, "ntNT");
        if (letters == length && (length == 2 || length == 3)) {
            char word[8] = {0};
            for (size_t i = 0; i < length; i++) word[i] = (char)toupper((unsigned char)at[i]);
            append(text, word);
            return;
        }
        at += length + (at[length] != 0);
    }
}

void kernel_decode(const char *name, char text[KERNEL_NAME_BYTES]) {
    static const Word units[] = {
        {"simt", "FMA"},           {"ffma", "FMA"},           {"tensorop", "tensor cores"},
        {"xmma", "tensor cores"},  {"nvjet", "tensor cores"}, {"16816", "tensor cores"},
        {"s1688", "tensor cores"}, {"gmma", "tensor cores"},  {"sgemm", "FMA"},
        {"dgemm", "FMA"},          {"scudnn", "FMA"},         {NULL, NULL}};
    *text = 0;
    if (strncmp(name, "cblas_", 6) == 0) { // "cblas_sgemm NT"
        append(text, name[6] == 'd' ? "fp64" : "fp32");
        add_transposition(name, text);
        return;
    }
    bool product = is_library_product(name);
    if (product)
        add_architecture(name, text);
    else
        add_kind(name, text);
    add_dtype(name, text);
    if (!product) return;
    add_tile(name, text);
    add_transposition(name, text);
    const char *unit = meaning_of(name, units);
    if (unit) append(text, unit);
}
