#include "tasks/pictures/infer.h"

#include "run/option_rows.h"

#define AT(member) .field = offsetof(PicturesInfer, member)

static const Option rows[] = {
    HEADING("Pictures, with a vision Transformer; also --eval=FOLDER and --embed=PICTURES"),
    {TEXT("classify", "PICTURES", classify), .doc = "print the likeliest classes of files or a folder"},
    {TEXT("attention-map", "FILE", attention_map), .written = true,
     .doc = "draw the class token's attention, as PNG; needs --classify"},
    {FLAG("skip-broken", skip_broken), .doc = "skip pictures that cannot be read"},
    {COUNT("workers", 0, 64, workers), .doc = "threads that prefetch pictures; 0 for none"},
};

static const PicturesInfer defaults = {.classify = "", .attention_map = "", .workers = 1};

const OptionTable pictures_infer = {rows, sizeof rows / sizeof *rows, &defaults, sizeof defaults};
