/* What follows from a table besides the help: a manual page, and completion in shells. Programs are installed
 * under the name "fusebox-PROGRAM". */
#include "base/options_internal.h"

#include <stdio.h>
#include <string.h>

enum { DEFAULT_TEXT = 64 };

static const char *argument_of(const Option *option) {
    if (option->kind == OPTION_FLAG) return NULL;
    return option->argument ? option->argument : option->choices;
}

/* ---- the manual ---- */

/* A hyphen that is to be copied is a minus; a line must not begin with a request's mark. */
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
    option_text(set, index, value, sizeof value);
    const char *shown = option->default_text ? option->default_text : value;
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
    if (option->kind != OPTION_FLAG && *shown) {
        fputs(" [", file);
        put_roff(shown, file);
        fputc(']', file);
    }
    fputc('\n', file);
}

void options_print_manual(const OptionSet *set, FILE *file) {
    fprintf(file, ".TH fusebox\\-%s 1 \"\" \"%s\" \"fusebox\"\n.SH NAME\nfusebox\\-%s \\- ", set->program,
            set->version, set->program);
    put_roff(set->summary, file);
    fprintf(
        file,
        "\n.SH SYNOPSIS\n.B fusebox\\-%s\n[\\fIOPTION\\fR...]\n.SH OPTIONS\nDefaults are in [brackets].\n",
        set->program);
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

/* ---- bash ---- */

/* "a|b" as "a b" */
static void put_choices(const char *choices, FILE *file) {
    for (; *choices; choices++) fputc(*choices == '|' ? ' ' : *choices, file);
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
        if (set->table[i].kind != OPTION_CHOICE) continue;
        fprintf(file, "    --%s) COMPREPLY=($(compgen -W \"", set->table[i].name);
        put_choices(set->table[i].choices, file);
        fprintf(file, "\" -- \"$word\")) && return ;;\n");
    }
    fprintf(file, "    esac\n    [[ $word == -* ]] || return\n    COMPREPLY=($(compgen -W \"");
    for (int i = 0; i < set->count; i++)
        if (set->table[i].name)
            fprintf(file, "--%s%s ", set->table[i].name, argument_of(&set->table[i]) ? "=" : "");
    fprintf(file,
            "--help --usage --version\" -- \"$word\"))\n"
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
        if (*text == '\'') fputs("'\\'", file); // out of the quotes, and with the next one in again
        fputc(*text, file);
    }
}

void options_print_zsh(const OptionSet *set, FILE *file) {
    fprintf(file, "#compdef fusebox-%s\n_arguments \\\n", set->program);
    for (int i = 0; i < set->count; i++) {
        const Option *option = &set->table[i];
        const char *argument = argument_of(option);
        if (!option->name) continue;
        fprintf(file, "    '--%s%s[", option->name, !argument ? "" : option->bare ? "=-" : "=");
        put_zsh(option->doc, file);
        fputc(']', file);
        if (argument) fprintf(file, "%s", option->bare ? "::" : ":");
        if (argument) put_zsh(argument, file);
        if (option->kind == OPTION_CHOICE) {
            fputs(":(", file);
            put_choices(option->choices, file);
            fputc(')', file);
        } else if (argument) {
            fputs(":_files", file);
        }
        fputs("' \\\n", file);
    }
    fputs("    '--help[print the help]' '--usage[print the usage in short]' '--version[print the version]'\n",
          file);
}
