/* record: which operations, primitives and transfers ran, when, and their work. op_run writes records;
 * profile/ reads them. */
#pragma once

#include "kernels/ctx.h"

typedef enum {
    RECORD_SCOPE,     // a range of the program: step, forward, a layer
    RECORD_OPERATION, // a contract
    RECORD_PRIMITIVE, // part of an operation
    RECORD_LIBRARY,   // a library call on the CPU
    RECORD_GRAPH,     // a graph's launch, which contains a copy of the captured records
    RECORD_UPLOAD,    // host to device; this kind and the next three come from profile/collect.c
    RECORD_DOWNLOAD,
    RECORD_COPY,
    RECORD_FILL,
} RecordKind;

typedef enum {
    SCOPE_PART,  // part of the program: a layer, an exchange between ranks
    SCOPE_HOST,  // host work: sampling a token, beam search
    SCOPE_OWN,   // a user's range: PROFILE_SCOPE
    SCOPE_STEP,  // a step of training, a forward pass, a decoding step
    SCOPE_PHASE, // part of a step
} ScopeKind;

/* An input tensor. Strides are in elements. */
typedef struct {
    Shape shape;
    int64_t stride[4]; // stride of each axis
} RecordInput;

enum { RECORD_INPUTS = CALL_INPUTS, RECORD_FILLS = CALL_OUTPUTS };

/* One execution of a range, an operation, a primitive, a library call, a graph or a transfer. */
typedef struct {
    RecordKind kind;
    Operation operation;
    Pass pass;
    Form form;
    Category category;     // for operations and primitives
    Arithmetic arithmetic; // for primitives
    Traffic traffic;       // for operations
    ScopeKind scope;       // for scopes
    Phase phase;           // for SCOPE_PHASE
    const char *name;      // for all but operations
    const char *call;      // the model's call: "attention.projection"
    const char *source;    // for primitives: "kernels/norm/cpu_naive.c:71"
    int layer;             // -1 outside the blocks
    int64_t step;
    int64_t parent;            // index of the enclosing record; -1: none
    double cpu_start, cpu_end; // seconds, monotonic clock
    double device_start;       // seconds of device time since the start of the outermost record
    double device_ms;          // time between device events; on the CPU, time of the host
    int64_t launches;
    Work work;                         // operations: least work; copies and fills: bytes; else zero
    RecordInput inputs[RECORD_INPUTS]; // operations, and primitives that are a product; else empty
    const void *fills[RECORD_FILLS];   // data of output tensors; primitives: of tensors they fill first
    TorchName torch;                   // for primitives
} Record;

/* From time `at` on, `used` bytes of the arena are in use. */
typedef struct {
    double at; // seconds, monotonic clock
    ArenaKind arena;
    size_t used;
    int64_t record;   // the innermost open record; -1: none
    const char *data; // the taken tensor; NULL: none
    size_t bytes;     // bytes of that tensor
} RecordMemory;

/* A batch prepared by a reader thread. */
typedef struct {
    int worker;        // number of the reader thread, from 1
    double begin, end; // seconds, monotonic clock
} RecordReading;

typedef struct Recorder Recorder;

typedef struct {
    int64_t limit;   // most records kept, 0: a million; later ones are counted as dropped
    bool primitives; // record all primitives; else only those of another pass than their operation's, which
                     // the times per pass need.
    bool whole;      // also record scopes, library calls, memory and inputs, as traces need
    bool timed;      // fill device_start and device_ms, on a GPU by events; otherwise they are 0
    bool isolate;    // let the device rest before each primitive
    /* Called at the beginning of a record, with its index, and at its end, for another profiler's
     * correlation ids. May be NULL. */
    void (*mark)(void *marker, int64_t record);
    void (*unmark)(void *marker);
    /* For CUDA graphs; NULL if graphs cannot be recorded. capture: the following launches are captured
     * under records from `record` on; -1 ends it. replay: like `mark`, for the launch of a graph with that
     * many kernels. */
    void (*capture)(void *marker, int64_t record);
    void (*replay)(void *marker, int64_t record, int64_t kernels);
    void *marker;
} RecorderOptions;

typedef struct RecordedGraph RecordedGraph; // the records of a captured graph

Recorder *recorder_open(Device *device, const RecorderOptions *options);
void recorder_close(Recorder *recorder);
bool recorder_wants(const Recorder *recorder, RecordKind kind);

/* Called by op_run, properly nested. recorder_read reports failures. */
void record_begin(Recorder *recorder, const Record *what);
void record_transfer(Recorder *recorder, RecordKind kind,
                     size_t bytes); // begins a transfer within the open record
void record_end(Recorder *recorder);

/* Sets inputs and outputs of the innermost open record: those of an operation's call, or the operands and
 * result of a product. */
void record_call(Recorder *recorder, const Call *call);
void record_product(Recorder *recorder, const RecordInput factors[2], const void *result);
/* Records changes of memory; `taken` is a newly taken tensor or NULL. */
void record_memory(Recorder *recorder, const Arena arenas[ARENA_COUNT], const Tensor *taken);
void record_reading(Recorder *recorder, const RecordReading *reading);

/* Call around the capture of a graph. End returns the records since begin, which the caller frees, or NULL
 * on a failure that recorder_read reports. */
void record_capture_begin(Recorder *recorder);
RecordedGraph *record_capture_end(Recorder *recorder);
void recorded_graph_free(RecordedGraph *graph);

/* Begins a graph's launch, ended by record_end, and adds copies of the graph's records, in `step`. */
void record_replay(Recorder *recorder, const RecordedGraph *graph, int64_t kernels, int64_t step);

/* Whether graphs can be recorded; whether this recorder recorded the graph. */
bool recorder_captures(const Recorder *recorder);
bool recorder_knows(const Recorder *recorder, const RecordedGraph *graph);

/* Synchronizes, resolves events and returns the records in the order of their beginning. They stay valid
 * until recorder_clear or recorder_close. */
CHECKED Status recorder_read(Recorder *recorder, const Record **records, int64_t *count, int64_t *dropped);
void recorder_clear(Recorder *recorder);

/* Changes of memory since the last clear, in order. */
const RecordMemory *recorder_memory(const Recorder *recorder, int64_t *count);
const RecordReading *recorder_readings(const Recorder *recorder,
                                       int64_t *count); // batches that were read since the last clear
