/* Shared by the CUPTI files: its functions, loaded at run time, and the records received. */
#pragma once

#include "profile/cupti.h"

#include <cupti.h>

/* The functions that are used. */
#define CUPTI_FUNCTIONS(USE)                                                                                 \
    USE(GetVersion)                                                                                          \
    USE(GetResultString)                                                                                     \
    USE(GetCallbackName)                                                                                     \
    USE(Subscribe_v2)                                                                                        \
    USE(Unsubscribe)                                                                                         \
    USE(EnableCallback)                                                                                      \
    USE(ActivityEnable)                                                                                      \
    USE(ActivityDisable)                                                                                     \
    USE(ActivityRegisterCallbacks)                                                                           \
    USE(ActivityRegisterTimestampCallback)                                                                   \
    USE(ActivityGetNextRecord)                                                                               \
    USE(ActivityGetNumDroppedRecords)                                                                        \
    USE(ActivityFlushAll)                                                                                    \
    USE(GetGraphNodeId)                                                                                      \
    USE(ActivityPushExternalCorrelationId)                                                                   \
    USE(ActivityPopExternalCorrelationId)

typedef struct {
    uint8_t *bytes;
    size_t valid;
} Buffer;

/* A graph's node, and its mark counted from the first of its capture. */
typedef struct {
    uint64_t id;
    int64_t mark;
} Node;

enum { MARKS_MOST = 32 };

/* The innermost mark when a call was made. */
typedef struct {
    uint32_t correlation;
    int64_t mark;
} Marked;

typedef struct {
    Cupti base; // first, so that a Cupti * is an Opened *
    void *library;
#define DECLARE(name) __typeof__(&cupti##name) name;
    CUPTI_FUNCTIONS(DECLARE)
#undef DECLARE
    CUpti_SubscriberHandle subscriber;
    bool on; // recording is on
    int64_t launches;
    uint32_t launch_call; // correlation id of the last launch
    Activity *activities;
    int64_t count, room;
    Marked *marked;
    int64_t marked_count, marked_room;

    /* For graphs. */
    int64_t marks[MARKS_MOST]; // open marks
    int depth;
    int64_t capture; // the first mark of the current capture; -1: none
    Node *nodes;     // sorted by id once `sorted` is set
    int64_t node_count, node_room;
    bool sorted;
} Opened;

/* Called when a node is created or copied. */
void cupti_graph_node(Opened *opened, CUpti_CallbackId id, const CUpti_ResourceData *data);
void cupti_capture(void *opened, int64_t record);
void cupti_replay(void *opened, int64_t record, int64_t kernels);

/* The node's mark, counted from the first of its capture; 0 for an unknown node. */
int64_t cupti_node_mark(Opened *opened, uint64_t node);

/* Reads the records in the buffers, and gives each call and everything it launched the mark under which it
 * was made. Kernels that share a stream are serialized. */
void cupti_read(Opened *opened, const Buffer *buffers, int count);
