/* A config.json from bytes. What is accepted must be a config whose every size can be computed. */
#include "model/config_file.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static void read_config(const uint8_t *data, size_t size) {
    Config config;
    Status status = config_parse((const char *)data, (int64_t)size, "input", &config);
    if (status) {
        must_refuse(status, ERROR_FORMAT);
        return;
    }
    must(!config_validate(&config));
    must(config_padded_vocab(&config) >= config.vocab && config_parameters(&config) > 0);
    must(config.head_size > 0 && config.heads % config.kv_heads == 0);
    must(memchr(config.name, 0, sizeof config.name) != NULL);
}

FUZZ(config, read_config, NULL)
