/* record: what ran, when, and how much work it was. The low half of the profile: the door writes records, the
 * high half (tables, compare, trace) only reads them. */
#pragma once

#include "kernels/ctx.h"

typedef enum {
    RECORD_SCOPE,     // a range of the program: step, forward, a layer
    RECORD_OPERATION, // a contract
    RECORD_PRIMITIVE, // a part of an operation
    RECORD_LIBRARY,   // a library's call on the CPU
    RECORD_GRAPH,     // a graph's launch: around the records of its capture, anew
    RECORD_UPLOAD,    // host to device; this and the next three where profile/collect.c watches the device
    RECORD_DOWNLOAD,
    RECORD_COPY,
    RECORD_FILL,
} RecordKind;

typedef enum {
    SCOPE_PART,  // of the program: a layer, the exchange between ranks
    SCOPE_HOST,  // the same, in which the host works: it draws a token, it searches among beams
    SCOPE_OWN,   // of the program's user: PROFILE_SCOPE
    SCOPE_STEP,  // of training, of a pass or of decoding
    SCOPE_PHASE, // of a step
} ScopeKind;

/* A tensor that something reads; the strides are in elements. */
typedef struct {
    Shape shape;
    int64_t stride[4]; // of each axis
} RecordInput;

enum { RECORD_INPUTS = CALL_INPUTS, RECORD_FILLS = CALL_OUTPUTS };

/* What ran once. */
typedef struct {
    RecordKind kind;
    Operation operation;
    Pass pass;
    Form form;
    Category category;     // of operations and primitives
    Arithmetic arithmetic; // of primitives
    Traffic traffic;       // of operations
    ScopeKind scope;       // of scopes
    Phase phase;           // of SCOPE_PHASE
    const char *name;      // of all but operations
    const char *call;      // which call of the model: "attention.projection"
    const char *source;    // of primitives: "kernels/norm/cpu_naive.c:71"
    int layer;             // -1 outside the blocks
    int64_t step;
    int64_t parent;            // index of the record that was open when it began; -1: none
    double cpu_start, cpu_end; // seconds, monotonic clock
    double device_start;       // seconds of device time after the start of the outermost record
    double device_ms;          // between device events; the CPU's own time there
    int64_t launches;
    Work work;                         // of operations the least; of copies and fills the bytes; else zero
    RecordInput inputs[RECORD_INPUTS]; // of operations and of primitives that are a product; else empty
    const void *fills[RECORD_FILLS]; // where tensors lie that it writes; of primitives those it writes first
    TorchName torch;                 // of primitives
} Record;

/* From `at` on, `used` bytes of the arena are taken. */
typedef struct {
    double at; // seconds, monotonic clock
    ArenaKind arena;
    size_t used;
    int64_t record;   // the innermost that was open; -1: none
    const char *data; // of the tensor that was taken; NULL: none was
    size_t bytes;     // its own
} RecordMemory;

/* A batch that a thread has read ahead. */
typedef struct {
    int worker;        // from 1
    double begin, end; // seconds, monotonic clock
} RecordReading;

typedef struct Recorder Recorder;

typedef struct {
    int64_t limit;   // records that are kept, 0: a million; later ones are counted as dropped
    bool primitives; // record them all; else only those that run under another pass than their operation's,
                     // so that the passes' times stay true
    bool whole;      // scopes, library calls, memory and what operations read too: what a trace needs
    bool timed;      // with device events around each record; else device_start and device_ms stay 0
    bool apart;      // the device is idle, and rests, before each primitive
    /* Called as a record begins, with its index, and ends: for another profiler's correlation. NULL: none. */
    void (*mark)(void *marker, int64_t record);
    void (*unmark)(void *marker);
    /* Of graphs; NULL where they cannot be recorded.
     * capture: what follows is noted under the records from `record` on, and not done; -1: no longer.
     * replay: what `mark` is, for the launch of a graph of so many kernels. */
    void (*capture)(void *marker, int64_t record);
    void (*replay)(void *marker, int64_t record, int64_t kernels);
    void *marker;
} RecorderOptions;

typedef struct RecordedGraph RecordedGraph; // the records of a capture

Recorder *recorder_open(Device *device, const RecorderOptions *options);
void recorder_close(Recorder *recorder);
bool recorder_wants(const Recorder *recorder, RecordKind kind);

/* Called by the door, properly nested. A failure to record is kept, and reported by recorder_read. */
void record_begin(Recorder *recorder, const Record *what);
void record_transfer(Recorder *recorder, RecordKind kind, size_t bytes); // begins one, part of what is open
void record_end(Recorder *recorder);

/* What the innermost record that is open reads and writes: what an operation was called with, or two factors
 * and the place of their product. */
void record_call(Recorder *recorder, const Call *call);
void record_product(Recorder *recorder, const RecordInput factors[2], const void *result);
/* Notes what has changed: a tensor has been taken, or NULL. */
void record_memory(Recorder *recorder, const Arena arenas[ARENA_COUNT], const Tensor *taken);
void record_reading(Recorder *recorder, const RecordReading *reading);

/* Around work that is captured as a graph: its records are taken out, and given back as the graph's, which
 * the caller frees. NULL when that failed, which recorder_read reports. */
void record_capture_begin(Recorder *recorder);
RecordedGraph *record_capture_end(Recorder *recorder);
void recorded_graph_free(RecordedGraph *graph);

/* Begins the graph's launch, to be ended by record_end: its records come anew, in `step`, all at once. */
void record_replay(Recorder *recorder, const RecordedGraph *graph, int64_t kernels, int64_t step);

/* Whether graphs can be recorded at all; whether it was this recorder that recorded the graph. */
bool recorder_captures(const Recorder *recorder);
bool recorder_knows(const Recorder *recorder, const RecordedGraph *graph);

/* Waits for the device, resolves the events and gives out the records in the order in which they began. They
 * stay valid until recorder_clear or recorder_close. */
CHECKED Status recorder_read(Recorder *recorder, const Record **records, int64_t *count, int64_t *dropped);
void recorder_clear(Recorder *recorder);

/* The changes of memory since the last clear, in order. */
const RecordMemory *recorder_memory(const Recorder *recorder, int64_t *count);
const RecordReading *recorder_readings(const Recorder *recorder, int64_t *count); // likewise
