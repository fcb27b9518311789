#include "base/limits.h"

#include <math.h>

/* Seconds for `sent` bytes on the link; NaN if the rate is unknown. */
static double link_seconds(const Peaks *peaks, double sent) {
    return sent <= 0 ? 0 : peaks->link > 0 ? sent / peaks->link : NAN;
}

static bool known(const Peaks *peaks, Work work) {
    return peaks_known(peaks) && !isnan(link_seconds(peaks, work.sent));
}

double limit_share(const Peaks *peaks, Work work, double ns) {
    if (!known(peaks, work) || !(ns > 0)) return 0;
    double here = fmax(work.flops / peaks->flops, work.bytes / peaks->bandwidth);
    return 1e9 * fmax(here, link_seconds(peaks, work.sent)) / ns;
}

bool limit_is_arithmetic(const Peaks *peaks, Work work) {
    return known(peaks, work) && work.flops / peaks->flops >= work.bytes / peaks->bandwidth &&
           work.flops / peaks->flops >= link_seconds(peaks, work.sent);
}

const char *limit_name(const Peaks *peaks, Work work) {
    if (!known(peaks, work)) return "";
    if (limit_is_arithmetic(peaks, work)) return "arithmetic";
    return link_seconds(peaks, work.sent) > work.bytes / peaks->bandwidth ? "link" : "memory";
}
