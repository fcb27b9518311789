/* hash: distinguishes contents (texts, tokenizers). Not secure against an adversary. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Continues `hash` (0 at first) over `bytes` of data, eight at a time. */
uint64_t hash_bytes(uint64_t hash, const void *data, size_t bytes);
