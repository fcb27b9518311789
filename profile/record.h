/* record: what ran, when, and how much work it was. The low half of the profile: the door writes records, the
 * high half (tables, compare, trace) only reads them. */
#ifndef PROFILE_RECORD_H
#define PROFILE_RECORD_H

#include "kernels/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One run of an operation, or of a primitive inside it. */
typedef struct {
    Operation operation;
    Pass pass;
    Form form;
    const char *primitive; // NULL: the operation as a whole
    const char *place;     // which call of the model: "attention.projection"
    int layer;             // -1 outside the blocks
    int64_t step;
    int64_t parent;            // index of the operation that a primitive ran in; -1 for an operation
    double cpu_start, cpu_end; // seconds, monotonic clock
    double device_ms;          // between device events; the CPU's own time there
    int64_t launches;
    Work work; // of operations; zero for primitives
} Record;

typedef struct Recorder Recorder;

/* A recorder that holds up to `limit` records (0: a million); later ones are counted as dropped. With
 * `primitives` every primitive is recorded too: more events, so a little more time. Without, only those that
 * run under another pass than their operation's, so that the passes' times stay true. */
CHECKED Status recorder_open(Device *device, int64_t limit, bool primitives, Recorder **recorder);
void recorder_close(Recorder *recorder);
bool recorder_wants_primitives(const Recorder *recorder);

/* Called by the door, properly nested. A failure to record is kept, and reported by recorder_read. */
void record_begin(Recorder *recorder, const Record *what);
void record_end(Recorder *recorder);

/* Waits for the device, resolves the events and gives out the records in the order in which they began. They
 * stay valid until recorder_clear or recorder_close. */
CHECKED Status recorder_read(Recorder *recorder, const Record **records, int64_t *count, int64_t *dropped);
void recorder_clear(Recorder *recorder);

#ifdef __cplusplus
}
#endif
#endif
