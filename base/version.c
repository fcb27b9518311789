#include "base/version.h"

#ifdef __clang__
#define COMPILER __VERSION__
#else
#define COMPILER "gcc " __VERSION__
#endif

const char *version_commit(void) {
    return BUILT_COMMIT;
}

const char *version_build(void) {
    return COMPILER ", " BUILT_FOR;
}
