/* options_internal: shared by the option files. */
#pragma once

#include "base/json_writer.h"
#include "base/nearest.h"
#include "base/options.h"

#include <stdio.h>

/* Parses `text` and stores it as the value of option `index`. The error says what was expected, not where. */
CHECKED Status option_store(OptionSet *set, int index, const char *text);

/* The value in command-line syntax. `text` is truncated to `room` bytes. */
void option_text(const OptionSet *set, int index, char *text, size_t room);

void option_write_json(const OptionSet *set, int index, JsonWriter *writer);

/* The option's index in the table, or -1. */
int option_find(const OptionSet *set, const char *name);

/* --help and --usage; completion for bash and zsh under the installed name. */
void options_print_help(const OptionSet *set, FILE *file);
void options_print_usage(const OptionSet *set, FILE *file);
void options_print_bash(const OptionSet *set, FILE *file);
void options_print_zsh(const OptionSet *set, FILE *file);

/* Suggests an option whose name is near `text`; with `file`, only options that a file may set, quoted as
 * in a file. */
Hint option_hint(const OptionSet *set, const char *text, bool file);
