#include "report/page.h"

#include "base/files.h"

#include <stdbool.h>
#include <string.h>

INCLUDED(page_head, "head.html")
INCLUDED(page_style, "style.css")
INCLUDED(page_body, "body.html")
INCLUDED(page_basics, "basics.js")
INCLUDED(page_charts, "charts.js")
INCLUDED(page_timeline, "timeline.js")
INCLUDED(page_sections, "sections.js")

static Status append(FileWriter *writer, const char *text) {
    return file_writer_append(writer, text, (int64_t)strlen(text));
}

/* The key of the recorded events, which the page does not need and which are most of a bundle. In JSON text
 * it is the key of the list only if no backslash precedes its quotes. */
static const char recorded[] = "\"recorded\":";

static bool is_recorded(const char *json, int64_t length) {
    const size_t key = strlen(recorded);
    return (size_t)length > key && json[0] == '"' && memcmp(json, recorded, key) == 0 && json[key] == '[';
}

/* Bytes of the list at the beginning of the text, including its last bracket. */
static int64_t list_length(const char *json, int64_t length) {
    bool text = false;
    int64_t depth = 0, i = 0;
    for (; i < length; i++) {
        if (text && json[i] == '\\')
            i++;
        else if (json[i] == '"')
            text = !text;
        else if (!text && json[i] == '[')
            depth++;
        else if (!text && json[i] == ']' && --depth == 0)
            return i + 1;
    }
    return length;
}

/* In a script element only "</script" and "<!--" are special in HTML. In JSON "<" occurs only inside strings,
 * where it may be escaped. */
static Status append_json(FileWriter *writer, const char *json, int64_t length) {
    int64_t done = 0;
    for (int64_t i = 0; i < length; i++) {
        if (is_recorded(json + i, length - i)) {
            i += (int64_t)strlen(recorded);
            TRY(file_writer_append(writer, json + done, i - done));
            TRY(append(writer, "[]"));
            done = i += list_length(json + i, length - i);
            if (i >= length) break;
        }
        if (json[i] != '<') continue;
        TRY(file_writer_append(writer, json + done, i - done));
        TRY(append(writer, "\\u003c"));
        done = i + 1;
    }
    return file_writer_append(writer, json + done, length - done);
}

static Status append_page(FileWriter *writer, const char *bundle, int64_t length) {
    TRY(append(writer, page_head));
    TRY(append(writer, "<style>\n"));
    TRY(append(writer, page_style));
    TRY(append(writer, "</style>\n"));
    TRY(append(writer, page_body));
    TRY(append(writer, "<script type=\"application/json\" id=\"bundle\">"));
    TRY(append_json(writer, bundle, length));
    TRY(append(writer, "</script>\n<script>\n"));
    TRY(append(writer, page_basics));
    TRY(append(writer, page_charts));
    TRY(append(writer, page_timeline));
    TRY(append(writer, page_sections));
    return append(writer, "</script>\n</body>\n</html>\n");
}

Status page_write(const char *bundle, int64_t length, const char *path) {
    FileWriter *writer;
    TRY(file_writer_open(path, &writer));
    return file_writer_finish(writer, append_page(writer, bundle, length));
}
