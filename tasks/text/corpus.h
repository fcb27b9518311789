/* corpus: the built-in text, fusebox's own source and its README, read from the checkout that the
 * program was built in. Real text that everybody who can run the program has. */
#pragma once

#include "base/files.h"

/* The checkout's files in a fixed order. It is looked for above the program's own file, then above the
 * working directory; ERROR_FILE where neither is inside a checkout. Free with path_list_free. */
CHECKED Status corpus_list(PathList *texts);
