/* hash: tells contents apart (of texts, tokenizers). Not for use against an adversary. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Goes on from `hash` (start with 0) over `bytes` of data, eight at a time. */
uint64_t hash_bytes(uint64_t hash, const void *data, size_t bytes);
