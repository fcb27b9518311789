/* Fuzzes config.json. An accepted config must have computable sizes, and survive writing and reading. */
#include "model/config_file.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static void read_config(const uint8_t *data, size_t size) {
    Config config, again;
    Status status = config_parse((const char *)data, (int64_t)size, "input", &config);
    if (status) {
        must_refuse(status, ERROR_FORMAT);
        return;
    }
    must(!config_validate(&config));
    must(config_padded_vocab(&config) >= config.vocab && config_parameters(&config) > 0);
    must(config.head_size > 0 && config.heads % config.kv_heads == 0);
    must(memchr(config.name, 0, sizeof config.name) != NULL);
    must(!config_write(SCRATCH "/config.json", &config, -1) && !config_read(SCRATCH "/config.json", &again));
    must(config_parameters(&again) == config_parameters(&config) && again.vocab == config.vocab);
}

FUZZ(config, read_config, mutate_json)
