#include "base/limits.h"

#include "base/cores.h"
#include "base/limits_fields.h"

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define ROOF(name, cache)                                                                                    \
    FIELD_OPTIONAL(MEASURE, name "_bytes", Peaks, caches[cache].bytes),                                      \
        FIELD_OPTIONAL(MEASURE, name "_bandwidth", Peaks, caches[cache].most),                               \
        FIELD_OPTIONAL(MEASURE, name "_read", Peaks, caches[cache].read),                                    \
        FIELD_OPTIONAL(MEASURE, name "_write", Peaks, caches[cache].write)

const Field peaks_fields[] = {FIELD(MEASURE, "flops", Peaks, flops),
                              FIELD_OPTIONAL(MEASURE, "flops8", Peaks, flops8),
                              FIELD(MEASURE, "bandwidth", Peaks, bandwidth),
                              FIELD_OPTIONAL(MEASURE, "link", Peaks, link),
                              FIELD_OPTIONAL(MEASURE, "read", Peaks, read),
                              FIELD_OPTIONAL(MEASURE, "write", Peaks, write),
                              ROOF("l2", CACHE_L2),
                              ROOF("l3", CACHE_L3),
                              {0}};

static const char *const cache_names[CACHE_COUNT] = {"L2", "L3"};

static double roof_seconds(Roof roof, double read, double written) {
    double seconds = (read + written) / roof.most;
    if (roof.read > 0) seconds = fmax(seconds, read / roof.read);
    if (roof.write > 0) seconds = fmax(seconds, written / roof.write);
    return seconds;
}

static bool cache_known(const Roof *cache) {
    return cache->bytes > 0 && cache->most > 0;
}

/* Seconds for the memory accesses of `calls` calls together. A level holds the same share of the bytes read
 * as of the bytes written. */
static double memory_seconds(const Peaks *p, Work work, double calls) {
    const Roof memory = {.most = p->bandwidth, .read = p->read, .write = p->write};
    const double each = work.bytes / fmax(calls, 1), read = work.bytes - work.written;
    double left = 1, seconds = 0;
    for (int i = 0; i < CACHE_COUNT && each > 0; i++) {
        if (!cache_known(&p->caches[i])) continue;
        double held = fmin(left, p->caches[i].bytes / each);
        seconds += roof_seconds(p->caches[i], held * read, held * work.written);
        left -= held;
    }
    return seconds + roof_seconds(memory, left * read, left * work.written);
}

/* Seconds for `sent` bytes on the link; NaN if the rate is unknown. */
static double link_seconds(const Peaks *peaks, double sent) {
    return sent <= 0 ? 0 : peaks->link > 0 ? sent / peaks->link : NAN;
}

/* Seconds for the FLOPs; NaN if the rate of those in 8 bits is unknown. */
static double arithmetic_seconds(const Peaks *peaks, Work work) {
    const double in_8_bits = work.flops8 <= 0 ? 0 : peaks->flops8 > 0 ? work.flops8 / peaks->flops8 : NAN;
    return (work.flops - work.flops8) / peaks->flops + in_8_bits;
}

static bool known(const Peaks *peaks, Work work) {
    return peaks_known(peaks) && !isnan(link_seconds(peaks, work.sent) + arithmetic_seconds(peaks, work));
}

double limit_ns(const Peaks *peaks, Work work, double calls) {
    if (!known(peaks, work)) return 0;
    double here = fmax(arithmetic_seconds(peaks, work), memory_seconds(peaks, work, calls));
    return 1e9 * fmax(here, link_seconds(peaks, work.sent));
}

double limit_share(const Peaks *peaks, Work work, double calls, double ns) {
    return ns > 0 ? limit_ns(peaks, work, calls) / ns : 0;
}

bool limit_is_arithmetic(const Peaks *peaks, Work work, double calls) {
    double seconds = arithmetic_seconds(peaks, work);
    return known(peaks, work) && seconds >= memory_seconds(peaks, work, calls) &&
           seconds >= link_seconds(peaks, work.sent);
}

const char *limit_name(const Peaks *peaks, Work work, double calls) {
    double held = 0;
    if (!known(peaks, work)) return "";
    if (limit_is_arithmetic(peaks, work, calls)) return "arithmetic";
    if (link_seconds(peaks, work.sent) > memory_seconds(peaks, work, calls)) return "link";
    for (int i = 0; i < CACHE_COUNT; i++) {
        if (!cache_known(&peaks->caches[i])) continue;
        held += peaks->caches[i].bytes;
        if (work.bytes / fmax(calls, 1) <= held) return cache_names[i];
    }
    return "memory";
}

static void say(LimitsText *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(LimitsText *t, const char *format, ...) {
    size_t used = strlen(t->text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(t->text + used, sizeof t->text - used, format, arguments);
    va_end(arguments);
}

static void print_roof(LimitsText *t, double most, double read, double write) {
    say(t, most >= 1e12 ? "%.4g TB/s" : "%.4g GB/s", most >= 1e12 ? 1e-12 * most : 1e-9 * most);
    if (read > 0) say(t, " (reads %.4g, writes %.4g)", 1e-9 * read, 1e-9 * write);
}

LimitsText limits_text(const Peaks *p) {
    LimitsText t = {""};
    if (!peaks_known(p)) {
        say(&t, "unknown%s%s", p->note ? ": " : "", p->note ? p->note : "");
        return t;
    }
    say(&t, "%.4g TFLOP/s products", 1e-12 * p->flops);
    if (p->flops8 > 0) say(&t, ", %.4g in 8 bits", 1e-12 * p->flops8);
    say(&t, "; memory ");
    print_roof(&t, p->bandwidth, p->read, p->write);
    for (int i = CACHE_COUNT - 1; i >= 0; i--) {
        const Roof *cache = &p->caches[i];
        if (!cache_known(cache)) continue;
        say(&t, ", %s of %.4g MiB ", cache_names[i], cache->bytes / 1048576);
        print_roof(&t, cache->most, cache->read, cache->write);
    }
    if (p->link > 0) say(&t, ", link %.4g GB/s", 1e-9 * p->link);
    return t;
}

Mfu mfu_of(double needed_per_s, double dense, double measured, double cores_waited) {
    const double rate = dense > 0 ? dense : measured;
    const bool known = rate > 0 && cores_waited <= CORES_SHARED;
    return (Mfu){known ? needed_per_s / rate : NAN, dense > 0 ? "data sheet" : "measured rate"};
}
