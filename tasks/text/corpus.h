/* corpus: the built-in text: fusebox's own source and its README, read from the checkout that the program was
 * built in. It is real text that every user has. */
#pragma once

#include "base/files.h"

/* The checkout's files in a fixed order. The checkout is searched above the program's own file, then above
 * the working directory; ERROR_FILE if neither is inside one. Free with path_list_free. */
CHECKED Status corpus_list(PathList *texts);
