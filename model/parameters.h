/* parameters: every weight of a model, by name and in one flat index space. Parameter i is [offset, offset
 * + count) of the flat tensors `weight`, `master`, `gradient`, `m`, `v`. Offsets are multiples of
 * ADAMW_UNIT elements, and gaps hold zeros. Parameters are in the network's order. A group, whose
 * gradients become ready together in the backward pass, is one range: the embeddings of a stack, each of
 * its blocks, and what follows the blocks. This list is the only description of a network: files, counts,
 * decay and initial values follow from it. Memory and values: model/parameter_values.h. */
#pragma once

#include "base/tensor.h"
#include "kernels/linear/linear.h"
#include "model/architectures.h"
#include "optim/adamw.h"

/* A view of the flat tensors. Without training the gradient is empty. */
typedef struct {
    Tensor weight;   // dtype of the computation
    Tensor gradient; // fp32, same shape
    Tensor scales;   // (OPERANDS) fp32: of 8-bit products (model/scales.h); in training
    Tensor seen;     // (OPERANDS, CAST_SEEN) fp32: maxima that their casts record
    Cast bytes; // the weight cast to 8 bits, for a whole step (model/scales.h); empty: each pass casts it
} Parameter;

typedef struct {
    Parameter weight, bias;
} Affine;

/* Views of the layer's rows [first, first + count). */
Affine affine_rows(const Affine *affine, int64_t first, int64_t count);

typedef struct {
    Affine norm1;            // (C)
    Affine qkv;              // (Q + 2*kv, C): Q = heads*D columns of queries, kv = kv_heads*D of keys
    Affine query_norm;       // (D)
    Affine key_norm;         // (D)
    Affine projection;       // (C, Q)
    Affine cross_norm;       // (C); this and the next two only with an encoder
    Affine cross;            // (C + 2*kv, C): queries from the stack, then keys and values from the encoder
    Affine cross_projection; // (C, C)
    Affine norm2;            // (C)
    Affine expand;           // (hidden, C), or gated (2*hidden, C): gate, then up
    Affine contract;         // (C, hidden)
} BlockParameters;

/* Absent parameters, such as biases, are empty. */
typedef struct {
    Parameter token;         // (padded vocab, C); empty for pictures, which have instead:
    Affine patch;            // (C, channels*P*P)
    Parameter class_token;   // (C)
    Parameter position;      // (context, C)
    Parameter segment;       // (segments, C)
    Affine embedding_norm;   // (C)
    BlockParameters *blocks; // (layers)
    Affine final_norm;       // (C)
    int first_group; // group of the embeddings; block i is group first_group + 1 + i, the rest the next
} StackParameters;

typedef struct {
    char name[72]; // name in files: "transformer.h.0.attn.c_attn.weight"; '*' stands for the part's name
    int parts;     // number of tensors in files, concatenated in memory: usually 1
    const char *part_names; // "query,key,value}" if there are several
    int64_t first_rows;     // rows of the first part; the others share the remaining rows
    Shape shape;            // in memory: matrices (out, in), tables (padded rows, width)
    Shape in_file;          // shape in files if it differs, with equal values; else rank 0
    int64_t rows;           // rows in files: shape.d[0] without the vocabulary's padding
    bool transposed;        // stored as (in, out), as in GPT-2's Conv1D
    bool decays;            // weight decay applies: matrices and tables
    double constant;        // initial value if std is 0
    double std;             // standard deviation of the initial values
    int group;
    int64_t offset, count; // elements of the flat space
    Parameter *parameter;
} ParameterInfo;

/* Elements [first, first + count) of the flat space, both multiples of ADAMW_UNIT. */
typedef struct {
    int64_t first, count;
} ParameterRange;

typedef struct {
    int count;
    ParameterInfo *info;       // (count)
    AdamwParameter *optimized; // (count) the same parameters for adamw
    int group_count;
    ParameterRange *groups; // (group_count): one after the other, they are the flat space
    int64_t size;           // elements of the flat space
    struct Shards *shards;  // model/shards.h; NULL: one rank
    int rank, ranks;        // rank and number of ranks; set by parameters_share
    bool whole;          // keep the whole state on each rank even if steps are sharded: --compare runs both
    bool narrow_moments; // m and v are bf16 (optim/adamw.h), else fp32
    bool sharded;        // master, m and v hold this rank's shard alone
    ParameterRange *buckets; // (group_count) each exchanged by the ranks at once; set by parameters_share
    int64_t padded;          // elements allocated for weights and gradients
    Dtype packed;            // I8 or I4: quantize the blocks' matrices, and the head's to I8; F32: do not
    float **importance;      // (count) of each matrix's columns, (in), for I4 (base/groups.h); NULL: unknown
    /* Flat, (size), or of the shard's size; the last four may be empty, and with `packed` weight, too. */
    Tensor weight, gradient, master, m, v;
    Tensor sums;     // (padded + parameters_tail) gradients, then the tail
    Tensor arrivals; // (ranks - 1, padded / ranks) the others' gradients of this rank's parts; may be empty
    Tensor finished; // gradients of earlier micro-batches (shards_take_finished); may be empty
    Tensor scales;   // (count, OPERANDS) fp32, empty without training
    Tensor decays;   // (adamw_words(size)) i32, empty without training
    /* Called while a file is loaded with the number of elements loaded so far; may be NULL. */
    void (*loaded)(void *loader, int64_t elements);
    void *loader;
    Config config;                    // the model's config
    StackParameters stack, encoder;   // with tied tables encoder.token is stack.token
    Affine transform, transform_norm; // (C, C), (C): of BERT's head
    Parameter head, head_bias;        // (padded vocab, C), stack.token if tied; (padded vocab)
    Affine pooler;                    // (C, C)
} Parameters;

/* The name of one part in a file: '*' is replaced by "query", "key" or "value". */
void parameter_part_name(const ParameterInfo *info, int part, char name[80]);

/* A part's rows and first row in memory: queries can be more than keys and values. */
typedef struct {
    int64_t first, count;
} ParameterRows;
ParameterRows parameter_part_rows(const ParameterInfo *info, int part);

/* The number of parameters, and of elements without the vocabulary's padding, for any Config with valid
 * sizes. */
typedef struct {
    int parameters;
    int64_t elements;
} ParameterCount;
ParameterCount parameters_count(const Config *config);

/* The tail after the gradients: other values that a step sums over micro-batches and ranks, and with several
 * ranks gathers. Its last part is the casts' maxima. */
enum { TAIL_LOSS, TAIL_STOP, TAIL_TOKENS, TAIL_LOSSES }; // ranks that want to stop; each rank's loss
int64_t parameters_tail(const Parameters *parameters);   // elements
Tensor parameters_tail_of(const Parameters *parameters, Tensor sums);
Tensor parameters_seen(const Parameters *parameters); // (count, OPERANDS, CAST_SEEN)

/* The parts of a range of the flat space, or of the sums, outside the blocks: embeddings, heads and the
 * tail. A backward pass adds to a block's gradients once, but to these several times, because they are
 * shared or computed in chunks. */
enum { PARTS_OUTSIDE_BLOCKS = 5 };
int parameters_outside_blocks(const Parameters *parameters, ParameterRange range,
                              ParameterRange parts[PARTS_OUTSIDE_BLOCKS]);

/* Divides the flat space between ranks. Bucket g becomes ready with group g in the backward pass and is
 * needed with group g in the forward pass. Buckets are cut at multiples of `ranks` blocks of ADAMW_BLOCK.
 * So each rank's equal part of a bucket is whole blocks, whose sums of squares have the same bits for any
 * number of ranks. Call it before the parameters have memory. */
void parameters_share(Parameters *parameters, int rank, int ranks);

/* This rank's part of bucket g, clipped to the flat space. */
ParameterRange parameters_part(const Parameters *parameters, int g);

/* Lists the parameters of a config. The tensors have no memory yet. */
void parameters_open(const Config *config, Parameters *parameters);
void parameters_close(Parameters *parameters);
