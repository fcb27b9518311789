/* Fuzzes the small files beside a model, from an input of scratch_unpack: class names, end tokens, sentence
 * embedding settings. */
#include "tasks/masked/sentence_config.h"
#include "data/end_tokens.h"
#include "data/kept.h"
#include "tasks/pictures/images/labels.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

/* Whether the file is accepted; otherwise the error must be about malformed content, or a folder of that
 * name. */
static bool taken(Status status) {
    bool refused = status != OK;
    if (refused) must_refuse(status, status_code(status) == ERROR_FILE ? ERROR_FILE : ERROR_FORMAT);
    return !refused;
}

static void read_beside(const uint8_t *data, size_t size) {
    Labels labels;
    EndTokens ends, again;
    SentenceConfig sentence;
    scratch_unpack(data, size);
    char text[END_TOKENS_TEXT], name[LABEL_TEXT];
    if (!scratch_get("config.json", &size)) scratch_put("config.json", "{}", 2);
    if (taken(labels_read(SCRATCH, &labels))) {
        for (int64_t i = 0; i <= labels.count; i++) must(!strpbrk(labels_name(&labels, i, name), "\033\n"));
        labels_free(&labels);
    }
    (void)taken(sentence_config_read(SCRATCH, &sentence));
    Kept kept;
    if (!taken(kept_read(SCRATCH, &kept))) return;
    if (taken(end_tokens_read(SCRATCH, &ends)) && ends.count) {
        must(ends.count <= END_TOKENS && end_tokens_hold(&ends, ends.ids[0]));
        end_tokens_text(&ends, text);
        must(!end_tokens_write(SCRATCH, &ends, kept.generation) && !end_tokens_read(SCRATCH, &again));
        must(again.count == ends.count &&
             memcmp(again.ids, ends.ids, sizeof *ends.ids * (size_t)ends.count) == 0);
    }
    kept_free(&kept);
}

FUZZ(beside, read_beside, mutate_folder)
