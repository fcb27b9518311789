/* parameters: every weight of a model, by name and in one flat index space. Parameter i is
 * [offset, offset + count) of the flat tensors `weight`, `master`, `gradient`, `m`, `v`; offsets are
 * multiples of ADAMW_UNIT elements, and the gaps hold zeros. They lie in the network's order, so that what
 * becomes ready together in the backward pass, a group, is one range: the embeddings of a stack, each of its
 * blocks, and what follows the blocks. This is the one list of what a network has: files, counts, decay and
 * initial values follow from it. Their memory and values: model/parameter_values.h. */
#pragma once

#include "base/tensor.h"
#include "kernels/linear/linear.h"
#include "model/architectures.h"
#include "optim/adamw.h"

/* A view into the flat tensors. The gradient is empty in a model that only infers. */
typedef struct {
    Tensor weight;   // dtype of the computation
    Tensor gradient; // fp32, same shape
    Tensor
        scales; // (OPERANDS) fp32: of the products in 8 bits that a weight is in (model/scales.h); as the gradient
    Tensor seen; // (OPERANDS, CAST_SEEN) fp32: what their casts have seen
} Parameter;

typedef struct {
    Parameter weight, bias;
} Affine;

/* The layer of its rows [first, first + count): views. */
Affine affine_rows(const Affine *affine, int64_t first, int64_t count);

typedef struct {
    Affine norm1;            // (C)
    Affine qkv;              // (Q + 2*kv, C): Q = heads*D columns of queries, kv = kv_heads*D of keys
    Affine query_norm;       // (D)
    Affine key_norm;         // (D)
    Affine projection;       // (C, Q)
    Affine cross_norm;       // (C); this and the next two only where there is an encoder
    Affine cross;            // (C + 2*kv, C): queries from the stack, then keys and values from the encoder
    Affine cross_projection; // (C, C)
    Affine norm2;            // (C)
    Affine expand;           // (hidden, C), or where it is gated (2*hidden, C): gate, then up
    Affine contract;         // (C, hidden)
} BlockParameters;

/* Empty where the config has no such thing, as a bias. */
typedef struct {
    Parameter token;         // (padded vocab, C); empty where the input is a picture, which has instead:
    Affine patch;            // (C, channels*P*P)
    Parameter class_token;   // (C)
    Parameter position;      // (context, C)
    Parameter segment;       // (segments, C)
    Affine embedding_norm;   // (C)
    BlockParameters *blocks; // (layers)
    Affine final_norm;       // (C)
    int first_group; // the embeddings'; block i's is first_group + 1 + i, and what follows has the next
} StackParameters;

typedef struct {
    char name[72]; // of files: "transformer.h.0.attn.c_attn.weight"; a '*' stands for the parts' names
    int parts;     // tensors that a file holds it in, one below the other in memory: usually 1
    const char *part_names; // "query,key,value}" where there are several
    int64_t first_rows;     // of the first of several parts; the others share what is left
    Shape shape;            // in memory: matrices (out, in), tables (padded rows, width)
    Shape in_file;          // what a file says of the same values; rank 0: just that
    int64_t rows;    // of the first axis that a file holds: shape.d[0] without the vocabulary's padding
    bool transposed; // a file holds (in, out), as GPT-2's Conv1D does
    bool decays;     // weight decay applies: a matrix or a table
    double constant; // initial value where std is 0
    double std;      // of the initial normal distribution
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
    AdamwParameter *optimized; // (count), the same as adamw wants to know them
    int group_count;
    ParameterRange *groups;  // (group_count): one after the other, they are the flat space
    int64_t size;            // elements of the flat space
    struct Shards *shards;   // model/shards.h; NULL: one rank
    int rank, ranks;         // of the run: parameters_share
    bool whole;              // keep the state whole even where a step is cut: --compare runs both
    bool narrow_moments;     // m and v are bf16 (optim/adamw.h), else fp32
    bool sharded;            // master, m and v hold this rank's shard alone
    ParameterRange *buckets; // (group_count) what ranks exchange at once: parameters_share
    int64_t padded;          // elements that the weights and gradients have memory for
    Dtype
        packed; // I8 or I4: in inference the matrices of blocks are integers by groups, the head's I8; else F32
    /* Flat, (size), but for a shard's; the last four may be empty. With `packed` weight is, too. */
    Tensor weight, gradient, master, m, v;
    Tensor sums;     // (padded + parameters_tail) gradients, then the tail
    Tensor arrivals; // (ranks - 1, padded / ranks) the others' gradients of this rank's parts; may be empty
    Tensor finished; // the same of the micro-batches before; empty with one in a step
    Tensor scales;   // (count, OPERANDS) fp32, empty without training
    Tensor decays;   // (adamw_words(size)) i32, empty without training
    Config config;   // whose parameters these are
    StackParameters stack, encoder;   // with tied tables encoder.token is stack.token
    Affine transform, transform_norm; // (C, C), (C): of BERT's head
    Parameter head, head_bias;        // (padded vocab, C), stack.token if tied; (padded vocab)
    Affine pooler;                    // (C, C)
} Parameters;

/* The name of one part in a file: "query", "key" or "value" in the place of a '*'. */
void parameter_part_name(const ParameterInfo *info, int part, char name[80]);

/* Rows of memory that one part holds, and where they begin: queries can be more than keys and values. */
typedef struct {
    int64_t first, count;
} ParameterRows;
ParameterRows parameter_part_rows(const ParameterInfo *info, int part);

/* How many there are, and how many elements they have without the vocabulary's padding; for any Config whose
 * sizes are in their ranges. */
typedef struct {
    int parameters;
    int64_t elements;
} ParameterCount;
ParameterCount parameters_count(const Config *config);

/* Behind the gradients lies what else a step sums over micro-batches and ranks, and with ranks is
 * gathered; at its end what casts have seen. */
enum { TAIL_LOSS, TAIL_STOP, TAIL_TOKENS, TAIL_LOSSES }; // how many ranks want to stop; each rank's own loss
int64_t parameters_tail(const Parameters *parameters);   // elements
Tensor parameters_tail_of(const Parameters *parameters, Tensor sums);
Tensor parameters_seen(const Parameters *parameters); // (count, OPERANDS, CAST_SEEN)

/* Of a range of the flat space, or of the sums, what lies outside the blocks: embeddings, heads and the tail,
 * in at most so many parts. A backward pass adds to a block's gradients once; to these, which can be shared
 * or are summed chunk by chunk, more often. */
enum { PARTS_OUTSIDE_BLOCKS = 5 };
int parameters_outside_blocks(const Parameters *parameters, ParameterRange range,
                              ParameterRange parts[PARTS_OUTSIDE_BLOCKS]);

/* What one rank of several has to do with: bucket g becomes ready when group g does in the backward pass, and
 * is needed when group g is in the forward pass. Buckets are cut at multiples of `ranks` blocks of
 * ADAMW_BLOCK, so that each rank's equal part of one is whole blocks, whose sums of squares have the same
 * bits however many ranks there are. To be called before the parameters have memory. */
void parameters_share(Parameters *parameters, int rank, int ranks);

/* This rank's part of bucket g, of which what lies behind the flat space is left out. */
ParameterRange parameters_part(const Parameters *parameters, int g);

/* Lists the parameters of a config; no tensor has memory yet. */
void parameters_open(const Config *config, Parameters *parameters);
void parameters_close(Parameters *parameters);
