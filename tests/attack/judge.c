/* judge: reads weight files from standard input, each preceded by its length (4 bytes, little-endian), and
 * prints 1 for each file that data/safetensors.h accepts, 0 for each that it refuses. */
#include "base/memory.h"
#include "data/safetensors.h"

#include <stdio.h>

int main(void) {
    uint32_t length;
    while (fread(&length, sizeof length, 1, stdin) == 1) {
        uint8_t *data = memory_allocate(length);
        if (length && fread(data, length, 1, stdin) != 1) return 1;
        Safetensors *file = NULL;
        Status status = safetensors_parse(data, length, "mutant", &file);
        putchar(status ? '0' : '1');
        status_free(status);
        safetensors_close(file);
        memory_free(data);
    }
    return 0;
}
