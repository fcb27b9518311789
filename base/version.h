/* version: the version number of the programs. docs/changes.md lists the changes. */
#pragma once

#define FUSEBOX_VERSION "fusebox 0.1.0"
