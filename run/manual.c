#include "run/manual.h"

// clang-format off
#define EXIT_STATUS                                                                                          \
    {"EXIT STATUS", NULL},                                                                                   \
    {"0", "Done, or interrupted and saved."},                                                                \
    {"1", "An internal error."},                                                                             \
    {"2", "An unknown, malformed or contradictory option."},                                                 \
    {"3", "A file is missing, or cannot be read or written."},                                               \
    {"4", "A file is truncated or malformed, or does not fit the model."},                                   \
    {"5", "Out of memory."},                                                                                 \
    {"6", "No such device, or the device failed."},                                                          \
    {"7", "A loss, gradient or output is not finite."},                                                      \
    {"129, 130, 143", "Ended by SIGHUP, Ctrl-C or SIGTERM."}

#define MODEL_FILES                                                                                          \
    {"config.json, model.safetensors", "The model in its folder, as transformers reads and writes it."},     \
    {"tokenizer.json, vocab.json, vocab.txt", "The tokenizer in the same folder."}

#define CACHE_FILE                                                                                           \
    {"$XDG_CACHE_HOME/fusebox, or ~/.cache/fusebox", "Limits and fastest products, measured once."}

#define ENVIRONMENT                                                                                          \
    {"ENVIRONMENT", NULL},                                                                                   \
    {"CUDA_VISIBLE_DEVICES", "The GPUs that can be used."},                                                  \
    {"FUSEBOX_TUNE", "With 0, products on a GPU are not timed to find the fastest."},                        \
    {"FUSEBOX_ONEDNN", "With none, OpenBLAS computes the products on the CPU, and oneDNN none."},            \
    {"OMP_WAIT_POLICY, GOMP_SPINCOUNT", "How threads wait; by default they soon leave the core."}, \
    {"XDG_CACHE_HOME", "The folder of the cache."}

const OptionNote train_manual[] = {
    {"EXAMPLES", NULL},
    {"fusebox-train --data=book.txt --out=runs/a", "Trains a small GPT on a text and saves it."},
    {"fusebox-train --resume --out=runs/a --steps=1000", "Continues from the newest checkpoint."},
    {"fusebox-train --model=FOLDER --data=chats.jsonl --out=runs/b", "Trains on conversations."},
    {"fusebox-train --compare", "Compares naive and fused forms, operation by operation."},
    {"fusebox-train --profile --profile-out=profile", "Profiles five steps and writes profile/index.html."},
    {"fusebox-train --gpus=0 --model=gpt2 --out=runs/c", "Trains on all GPUs of this host."},
    EXIT_STATUS,
    {"FILES", NULL},
    {"OUT/step-NNNNNNNN", "A checkpoint: the model, the optimizer's state and options.json."},
    MODEL_FILES,
    CACHE_FILE,
    ENVIRONMENT,
    {"FUSEBOX_TOKEN", "A secret, the same on all hosts, that keeps strangers out of a run."},
    {"MASTER_ADDR, MASTER_PORT", "Host and port of rank 0, where no launcher names them."},
    {"SEE ALSO", NULL},
    {"fusebox-infer(1), fusebox-profile(1)", ""},
    {0},
};

const OptionNote infer_manual[] = {
    {"EXAMPLES", NULL},
    {"fusebox-infer --model=runs/a --prompt='Once upon'", "Continues a text."},
    {"fusebox-infer --model=FOLDER --chat", "Holds a conversation."},
    {"fusebox-infer --model=FOLDER --prompts=in.jsonl --output=out.jsonl", "Answers a file, or continues it."},
    {"fusebox-infer --model=FOLDER --eval=book.txt", "Prints the mean loss on a text."},
    {"fusebox-infer --model=FOLDER --embed=lines.txt --output=e.safetensors", "Embeds each line by a BERT."},
    {"fusebox-infer --model=gpt2 --compare", "Times the forward pass, naive and fused."},
    EXIT_STATUS,
    {"FILES", NULL},
    {"FILE.part", "The answers so far for --output=FILE."},
    MODEL_FILES,
    CACHE_FILE,
    ENVIRONMENT,
    {"SEE ALSO", NULL},
    {"fusebox-train(1), fusebox-profile(1)", ""},
    {0},
};

const OptionNote train_absent[] = {
    {"epochs", "training is counted in optimizer steps, --steps=N"},
    {"num-train-epochs", "training is counted in optimizer steps, --steps=N"},
    {"lora", "all weights are trained; --recompute and --optimizer-dtype=bf16 save memory"},
    {"optim", "the optimizer is AdamW; see --lr, --beta1, --beta2, --eps and --weight-decay"},
    {"optimizer", "it is AdamW; see --lr, --beta1, --beta2, --eps and --weight-decay"},
    {"bf16", "the precision is --dtype=bf16"},
    {"fp16", "the precision is --dtype, and has bf16 but not fp16"},
    {0},
};

const OptionNote infer_absent[] = {
    {"max-tokens", "the most tokens to generate are --tokens=N"},
    {"lora", "adapters are not read; merge them into the model"},
    {"bf16", "the precision is --dtype=bf16"},
    {"fp16", "the precision is --dtype, and has bf16 but not fp16"},
    {0},
};
// clang-format on
