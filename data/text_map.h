/* text_map: a file that is to be read as text. */
#pragma once

#include "base/files.h"

/* Maps a text; one compressed by gzip is mapped as what it holds. To be ended by file_unmap. ERROR_FORMAT,
 * with the format's name, for what is no text in UTF-8: archives, arrays, pictures, UTF-16. A character that
 * the end of the file cuts is text. */
CHECKED Status text_map(const char *path, FileMap *map);
