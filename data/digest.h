/* digest: detects changed bytes by XXH3, 64 bits, at memory bandwidth. It does not protect against an
 * adversary, who can change the digest together with the bytes. */
#pragma once

#include <stddef.h>
#include <stdint.h>

uint64_t digest_bytes(const void *data, size_t bytes);

/* The same for bytes that arrive in pieces. */
typedef struct Digest Digest;
Digest *digest_open(void);
void digest_begin(Digest *digest); // starts again
void digest_add(Digest *digest, const void *data, size_t bytes);
uint64_t digest_value(const Digest *digest); // digest of the bytes since digest_begin
void digest_close(Digest *digest);           // accepts NULL
