/* What the files of the option layer share. */
#pragma once

#include "base/json_writer.h"
#include "base/nearest.h"
#include "base/options.h"

#include <stdio.h>

/* Parses `text` as option `index`'s value and stores it. An error says what was expected, not where. */
CHECKED Status option_store(OptionSet *set, int index, const char *text);

/* The value as people write it on a command line. `text` is cut to `room` bytes. */
void option_text(const OptionSet *set, int index, char *text, size_t room);

void option_write_json(const OptionSet *set, int index, JsonWriter *writer);

/* The option's index in the table, or -1. */
int option_find(const OptionSet *set, const char *name);

/* --help and --usage; a manual page in roff; completion for bash and for zsh, of the program's name as it is installed. */
void options_print_help(const OptionSet *set, FILE *file);
void options_print_usage(const OptionSet *set, FILE *file);
void options_print_manual(const OptionSet *set, FILE *file);
void options_print_bash(const OptionSet *set, FILE *file);
void options_print_zsh(const OptionSet *set, FILE *file);

/* The option whose name is near `text`; with `file`, of those that a file may hold, in a file's quotes. */
Hint option_hint(const OptionSet *set, const char *text, bool file);
