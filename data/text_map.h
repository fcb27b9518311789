/* text_map: maps a file that is read as text. */
#pragma once

#include "base/files.h"

/* Maps a text; gzip is decompressed. End with file_unmap. ERROR_FORMAT, naming the format, for anything but
 * UTF-8 text: archives, arrays, pictures, UTF-16. The last character may be cut by the end of the file. */
CHECKED Status text_map(const char *path, FileMap *map);
