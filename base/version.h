/* version: of the programs. The one place of the number; docs/changes.md says what each brought. */
#pragma once

#define FUSEBOX_VERSION "fusebox 0.1.0"
