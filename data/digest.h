/* digest: tells whether bytes are still what they were: XXH3, 64 bits, which reads as fast as memory gives.
 * Not for use against an adversary: who can change the bytes can change the digest that lies beside them. */
#pragma once

#include <stddef.h>
#include <stdint.h>

uint64_t digest_bytes(const void *data, size_t bytes);

/* The same of bytes that come in pieces. */
typedef struct Digest Digest;
Digest *digest_open(void);
void digest_begin(Digest *digest); // anew
void digest_add(Digest *digest, const void *data, size_t bytes);
uint64_t digest_value(const Digest *digest); // of what came since digest_begin
void digest_close(Digest *digest);           // NULL is fine
