/* Fuzzes `profile picture` and `profile page` with untrusted files: none of their text may become markup. */
#define _GNU_SOURCE
#include "report/page.h"
#include "report/picture.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static void draw(const uint8_t *data, size_t size) {
    size_t length;
    scratch_put("compare.json", data, size);
    Status status = picture_write(SCRATCH "/compare.json", SCRATCH "/picture.svg");
    if (status) {
        must_refuse(status, ERROR_FORMAT);
        return;
    }
    const uint8_t *svg = scratch_get("picture.svg", &length), *end = svg + length;
    for (const uint8_t *at = svg; (at = memchr(at, '<', (size_t)(end - at))); at++) {
        static const char *const tags[] = {"svg ",  "/svg>",  "style>", "/style>", "rect ",
                                           "text ", "/text>", "tspan ", "/tspan>"};
        bool own = false;
        for (size_t i = 0; i < sizeof tags / sizeof *tags; i++)
            own |= (size_t)(end - at - 1) >= strlen(tags[i]) && memcmp(at + 1, tags[i], strlen(tags[i])) == 0;
        must(own);
    }
}

static void read_picture(const uint8_t *data, size_t size) {
    static size_t own; // bytes of a page without a bundle
    size_t length;
    draw(data, size);
    if (!own) must(!page_write("", 0, SCRATCH "/page.html") && scratch_get("page.html", &own));
    must(!page_write((const char *)data, (int64_t)size, SCRATCH "/page.html"));
    const uint8_t *page = scratch_get("page.html", &length);
    const char before[] = "id=\"bundle\">";
    const uint8_t *begin = memmem(page, length, before, sizeof before - 1);
    must(begin && !memchr(begin + sizeof before - 1, '<', length - own));
}

FUZZ(picture, read_picture, mutate_json)
