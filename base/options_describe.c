/* Help, manual page and shell completion, generated from the tables. */
#include "base/options_internal.h"

#include <stdio.h>
#include <string.h>

/* Installed programs are named "fusebox-PROGRAM". */

enum { DEFAULT_TEXT = 64, NAME_TEXT = 120, DOC_COLUMN = 29, USAGE_COLUMN = 12, COLUMNS = 79 };

static const char *argument_of(const Option *option) {
    if (option->kind == OPTION_FLAG) return NULL;
    return option->argument ? option->argument : option->choices;
}

/* The default as --help shows it; "" for none. */
static const char *default_of(const OptionSet *set, int index, char text[DEFAULT_TEXT]) {
    const Option *option = &set->table[index];
    option_text(set, index, text, DEFAULT_TEXT);
    return option->kind == OPTION_FLAG ? "" : option->default_text ? option->default_text : text;
}

/* ---- the help ---- */

/* Writes a word after a text that ends at `column`, at `indent` or later; returns the column where the
 * word ends. */
static int put_word(const char *word, int length, int indent, int column, FILE *file) {
    if (column >= indent && column + 1 + length > COLUMNS) {
        fputc('\n', file);
        column = 0;
    }
    int blanks = column < indent ? indent - column : 1;
    fprintf(file, "%*s%.*s", blanks, "", length, word);
    return column + blanks + length;
}

static int put_words(const char *words, int column, FILE *file) {
    for (const char *word = words; *word;) {
        int length = (int)strcspn(word, " ");
        column = put_word(word, length, DOC_COLUMN, column, file);
        word += length + (word[length] == ' ');
    }
    return column;
}

/* "--name=VALUE", or "--name[=VALUE]" if the value is optional. */
static int name_text(const Option *option, char text[NAME_TEXT]) {
    const char *argument = argument_of(option);
    if (!argument) return snprintf(text, NAME_TEXT, "--%s", option->name);
    return snprintf(text, NAME_TEXT, option->bare ? "--%s[=%s]" : "--%s=%s", option->name, argument);
}

static void print_option(const OptionSet *set, int index, FILE *file) {
    const Option *option = &set->table[index];
    char name[NAME_TEXT], value[DEFAULT_TEXT], bracket[2 * DEFAULT_TEXT] = "";
    const char *shown = default_of(set, index, value);
    if (*shown) snprintf(bracket, sizeof bracket, "[%s]", shown);
    char letter[] = {' ', ' ', '-', option->letter, ',', ' ', 0};
    int column = (int)sizeof letter - 1 + name_text(option, name);
    fprintf(file, "%s%s", option->letter ? letter : "      ", name);
    if (column >= DOC_COLUMN) {
        fputc('\n', file);
        column = 0;
    }
    column = put_words(option->doc, column, file);
    put_words(bracket, column, file);
    fputc('\n', file);
}

void options_print_help(const OptionSet *set, FILE *file) {
    fprintf(file, "Usage: %s [OPTION...]\n%s\nDefaults are in [brackets].\n", set->called, set->summary);
    for (int i = 0; i < set->count; i++)
        if (set->table[i].name)
            print_option(set, i, file);
        else
            fprintf(file, "\n%s\n", set->table[i].doc);
}

void options_print_usage(const OptionSet *set, FILE *file) {
    int column = fprintf(file, "Usage: %s", set->called);
    for (int i = 0; i < set->count; i++) {
        char name[NAME_TEXT], word[NAME_TEXT + 2];
        if (!set->table[i].name) continue;
        name_text(&set->table[i], name);
        int length = snprintf(word, sizeof word, "[%s]", name);
        column = put_word(word, length, USAGE_COLUMN, column, file);
    }
    fputc('\n', file);
}

/* ---- the manual ---- */

/* Escapes for roff: hyphens become minus signs, so that they can be copied, and no line begins with a
 * control character. */
static void put_roff(const char *text, FILE *file) {
    if (*text == '.' || *text == '\'') fputs("\\&", file);
    for (; *text; text++) {
        if (*text == '-' || *text == '\\') fputc('\\', file);
        fputc(*text == '\\' ? 'e' : *text, file);
    }
}

static void put_option(const OptionSet *set, int index, FILE *file) {
    const Option *option = &set->table[index];
    const char *argument = argument_of(option);
    char value[DEFAULT_TEXT];
    const char *shown = default_of(set, index, value);
    fputs(".TP\n", file);
    if (option->letter) fprintf(file, "\\fB\\-%c\\fR, ", option->letter);
    fputs("\\fB\\-\\-", file);
    put_roff(option->name, file);
    fputs("\\fR", file);
    if (argument) fprintf(file, "%s=\\fI", option->bare ? "[" : "");
    if (argument) put_roff(argument, file);
    if (argument) fprintf(file, "\\fR%s", option->bare ? "]" : "");
    fputc('\n', file);
    put_roff(option->doc, file);
    if (*shown) {
        fputs(" [", file);
        put_roff(shown, file);
        fputc(']', file);
    }
    fputc('\n', file);
}

static void put_options(const OptionSet *set, FILE *file) {
    fputs(".SH OPTIONS\nDefaults are in [brackets].\n", file);
    for (int i = 0; i < set->count; i++) {
        if (set->table[i].name) {
            put_option(set, i, file);
            continue;
        }
        fputs(".SS ", file);
        put_roff(set->table[i].doc, file);
        fputc('\n', file);
    }
}

static void put_notes(const OptionNote *note, FILE *file) {
    for (; note && note->word; note++) {
        fputs(note->text ? ".TP\n.B " : ".SH ", file);
        put_roff(note->word, file);
        fputc('\n', file);
        if (note->text) put_roff(note->text, file);
        if (note->text) fputc('\n', file);
    }
}

void options_print_manual(const OptionSet *set, FILE *file) {
    fprintf(file, ".TH fusebox\\-%s 1 \"\" \"%s\" \"fusebox\"\n.SH NAME\nfusebox\\-%s \\- ", set->program,
            set->version, set->program);
    put_roff(set->summary, file);
    fprintf(file, "\n.SH SYNOPSIS\n.B fusebox\\-%s\n", set->program);
    fputs(set->count ? "[\\fIOPTION\\fR...]\n" : "\\fICOMMAND\\fR [\\fIARGUMENT\\fR...]\n", file);
    if (set->count) put_options(set, file);
    put_notes(set->manual, file);
}

/* ---- bash ---- */

/* "a|b" as "a b" */
static void put_choices(const char *choices, FILE *file) {
    for (; *choices; choices++) fputc(*choices == '|' ? ' ' : *choices, file);
}

static void put_proposals(const Option *option, FILE *file) {
    for (int i = 0; option->proposals(i); i++) fprintf(file, "%s%s", i ? " " : "", option->proposals(i));
}

/* A word that ends in '=' waits for its value, so no blank may follow it; and to bash '=' is a word. */
void options_print_bash(const OptionSet *set, FILE *file) {
    fprintf(file,
            "_fusebox_%s() {\n"
            "    local word=${COMP_WORDS[COMP_CWORD]} option=${COMP_WORDS[COMP_CWORD-1]}\n"
            "    [[ $option == = ]] && option=${COMP_WORDS[COMP_CWORD-2]}\n"
            "    [[ $word == = ]] && word=\n"
            "    COMPREPLY=()\n"
            "    case $option in\n",
            set->program);
    for (int i = 0; i < set->count; i++) {
        const Option *option = &set->table[i];
        if (option->kind != OPTION_CHOICE && !option->proposals) continue;
        fprintf(file, "    --%s) COMPREPLY=($(compgen -W \"", option->name);
        if (option->proposals)
            put_proposals(option, file);
        else
            put_choices(option->choices, file);
        fprintf(file, "\" -- \"$word\")%s) && return ;;\n",
                option->proposals ? " $(compgen -d -- \"$word\")" : "");
    }
    fprintf(file, "    esac\n    [[ $word == -* ]] || return\n    COMPREPLY=($(compgen -W \"");
    for (int i = 0; i < set->count; i++)
        if (set->table[i].name)
            fprintf(file, "--%s%s ", set->table[i].name, argument_of(&set->table[i]) ? "=" : "");
    fprintf(file,
            "\" -- \"$word\"))\n"
            "    [[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null\n"
            "    return 0\n"
            "}\n"
            "complete -o default -F _fusebox_%s fusebox-%s\n",
            set->program, set->program);
}

/* ---- zsh ---- */

static void put_zsh(const char *text, FILE *file) {
    for (; *text; text++) {
        if (strchr("[]:\\", *text)) fputc('\\', file);
        if (*text == '\'') fputs("'\\'", file); // leaves and re-enters the quotes
        fputc(*text, file);
    }
}

void options_print_zsh(const OptionSet *set, FILE *file) {
    fprintf(file, "#compdef fusebox-%s\n_arguments", set->program);
    for (int i = 0; i < set->count; i++) {
        const Option *option = &set->table[i];
        const char *argument = argument_of(option);
        if (!option->name) continue;
        fprintf(file, " \\\n    '--%s%s[", option->name, !argument ? "" : option->bare ? "=-" : "=");
        put_zsh(option->doc, file);
        fputc(']', file);
        if (argument) fprintf(file, "%s", option->bare ? "::" : ":");
        if (argument) put_zsh(argument, file);
        if (option->kind == OPTION_CHOICE) {
            fputs(":(", file);
            put_choices(option->choices, file);
            fputc(')', file);
        } else if (option->proposals) {
            fputs(":{compadd -- ", file);
            put_proposals(option, file);
            fputs("; _files -/}", file);
        } else if (argument) {
            fputs(":_files", file);
        }
        fputc('\'', file);
    }
    fputc('\n', file);
}
