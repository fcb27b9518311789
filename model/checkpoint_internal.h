/* checkpoint_internal: the two safetensors files of a checkpoint. */
#pragma once

#include "data/safetensors.h"
#include "model/checkpoint.h"

enum { CHECKPOINT_CHUNK = 1 << 22 }; // most fp32 values processed at a time
/* Elements of that buffer for these parameters. */
int64_t checkpoint_chunk(const Parameters *parameters);

/* ---- the tensors of weights in files ----
 *
 * Weights have the names and layouts of files (model/architectures.h). A parameter with several parts is
 * several tensors of a file. A matrix quantized by groups (base/groups.h) is two, in the layout of memory
 * without tiles (groups_copy):
 *
 *     NAME_packed   codes: of I8 (rows, in) I8, of I4 (rows, in / 2) U8
 *     NAME_scale    scales: (rows, in / GROUP) BF16
 *
 * A file with such tensors has the note "fusebox.packed": "int8, groups of 32" or "int4, groups of 32". */

typedef enum { PIECE_VALUES, PIECE_CODES, PIECE_SCALES } PieceKind;
enum { PIECE_NAME = 96 };

typedef struct {
    const ParameterInfo *info; // NULL: the end of a list
    PieceKind kind;
    Dtype dtype;         // of codes and their scales I8 or I4; of values F32 or BF16
    int64_t rows, first; // rows of the parameter in this tensor, and their first element
    char name[PIECE_NAME];
} Piece;

#define PACKED_CODES "_packed"

/* The tensors of a file whose matrices have the dtype `packed` (F32: not quantized), which memory_free
 * frees. */
Piece *list_pieces(const Parameters *parameters, Dtype packed);
int64_t piece_count(const Piece *pieces);
int64_t piece_width(const Piece *piece); // elements of a row
SafetensorsEntry piece_entry(const Piece *piece);

SafetensorsNote packed_note(Dtype packed);
CHECKED Status packed_read(const char *folder, const Safetensors *file, Dtype *packed);
/* Copies codes or scales, by way of the buffer of checkpoint_chunk values. */
CHECKED Status packed_save(Ctx *ctx, const Piece *piece, void *buffer, SafetensorsWriter *writer);
CHECKED Status packed_load(Ctx *ctx, const SafetensorsEntry *entry, const Piece *piece, void *buffer);

CHECKED Status weights_save(Ctx *ctx, const char *path, const Parameters *parameters);
/* Detects which optional heads and final norms the folder's weights contain, because many folders differ from
 * the class that their config.json names. Without weights the config stays unchanged. */
void weights_heads(const char *folder, Config *config);
CHECKED Status weights_check(const char *folder, const Config *config, Dtype *packed);
CHECKED Status weights_load(Ctx *ctx, const char *folder, Parameters *parameters);

CHECKED Status training_state_save(Ctx *ctx, const char *path, const Parameters *parameters,
                                   const TrainingState *state);
CHECKED Status training_state_load(Ctx *ctx, const char *path, Parameters *parameters, TrainingState *state);

/* A file of a checkpoint, written by all ranks. */
typedef struct {
    struct Rendezvous *ranks;  // NULL: one rank
    SafetensorsWriter *writer; // NULL on a rank that writes nothing
    int rank;
    int64_t count;
    int *owner; // (count) the rank that writes each entry
} RankFile;

/* Collective; `path` and the notes are rank 0's. Then the one rank for which rank_file_mine is true
 * appends each entry to the writer, in order. */
CHECKED Status rank_file_open(const Parameters *parameters, const char *path, const SafetensorsEntry *entries,
                              int64_t count, const SafetensorsNote *notes, int64_t note_count,
                              RankFile *file);
bool rank_file_mine(RankFile *file, int64_t entry);
/* Collective; takes ownership of `status`, the result of this rank's entries. If all ranks succeeded, rank 0
 * publishes the file; else all return an error. */
CHECKED Status rank_file_close(RankFile *file, Status status);
