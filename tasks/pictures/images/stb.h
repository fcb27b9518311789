/* stb: stb_image, with the formats that are read here and nothing else, on memory that is zeroed and bounded.
 * tasks/pictures/images/stb.c holds the one implementation. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define STBI_ONLY_PNG
#define STBI_ONLY_JPEG
#define STBI_ONLY_BMP
#define STBI_ONLY_PNM
#define STBI_NO_STDIO
#define STBI_NO_LINEAR
#define STBI_NO_HDR
#include <stb/stb_image.h>

/* What this thread's next decoding may allocate, in bytes altogether, what it has freed included; beyond that
 * it fails as if memory had run out. */
void stb_allow(size_t bytes);

/* A picture of `*channels`, for STBI_FREE; where they are 0, of as many as the file has, which they become.
 * NULL where it is damaged or takes more than it may. */
uint8_t *stb_load(const uint8_t *bytes, int64_t length, int *channels, int *width, int *height);
