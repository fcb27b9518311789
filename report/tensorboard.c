/* Writes scalars for TensorBoard. */
#include "report/tensorboard.h"

#include "base/directories.h"
#include "base/files.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

/* A file of records (TFRecord), each an Event in protobuf's wire format:
 *     Event         { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5; }
 *     Summary       { repeated Value value = 1; }
 *     Summary.Value { string tag = 1; float simple_value = 2; } */

struct TensorBoard {
    FILE *file;
    char *path;
};

/* ---- records ---- */

/* CRC-32C (Castagnoli, reflected), bit by bit: records are short. */
static uint32_t checksum(const uint8_t *bytes, size_t count) {
    const uint32_t polynomial = 0x82F63B78;
    uint32_t crc = ~0u;
    for (size_t i = 0; i < count; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? polynomial : 0);
    }
    return ~crc;
}

/* TFRecord's masked CRC, because a plain CRC of data that contains CRCs would be weak. */
static uint32_t masked(const uint8_t *bytes, size_t count) {
    uint32_t crc = checksum(bytes, count);
    return (crc >> 15 | crc << 17) + 0xA282EAD8;
}

enum { EVENT_BYTES = 256 };

typedef struct {
    uint8_t bytes[EVENT_BYTES];
    size_t count;
} Message;

static Status write_record(TensorBoard *b, const Message *m) {
    uint8_t length[8];
    uint64_t count = m->count;
    memcpy(length, &count, sizeof length); // little-endian, like every supported machine
    uint32_t head = masked(length, sizeof length), tail = masked(m->bytes, m->count);
    bool whole = fwrite(length, sizeof length, 1, b->file) == 1 &&
                 fwrite(&head, sizeof head, 1, b->file) == 1 && fwrite(m->bytes, m->count, 1, b->file) == 1 &&
                 fwrite(&tail, sizeof tail, 1, b->file) == 1;
    return whole ? OK : fail_file("write", b->path);
}

/* ---- protobuf ---- */

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 }; // wire types

static void put(Message *m, const void *bytes, size_t count) {
    if (count > EVENT_BYTES - m->count) count = EVENT_BYTES - m->count;
    memcpy(m->bytes + m->count, bytes, count);
    m->count += count;
}

static void put_varint(Message *m, uint64_t value) {
    for (; value >= 0x80; value >>= 7) put(m, &(uint8_t){(uint8_t)(value | 0x80)}, 1);
    put(m, &(uint8_t){(uint8_t)value}, 1);
}

static void put_key(Message *m, int field, int type) {
    put_varint(m, (uint64_t)(field << 3 | type));
}

static void put_bytes(Message *m, int field, const void *bytes, size_t count) {
    put_key(m, field, BYTES);
    put_varint(m, count);
    put(m, bytes, count);
}

static double wall_time(void) {
    struct timeval now;
    gettimeofday(&now, NULL);
    return (double)now.tv_sec + 1e-6 * (double)now.tv_usec;
}

static Message event_now(void) {
    Message m = {.count = 0};
    double now = wall_time();
    put_key(&m, 1, FIXED64);
    put(&m, &now, sizeof now);
    return m;
}

/* ---- the file ---- */

static Status open_file(const char *folder, TensorBoard *b) {
    char host[64] = "", name[160];
    static const char version[] = "brain.Event:2";
    gethostname(host, sizeof host - 1);
    snprintf(name, sizeof name, "events.out.tfevents.%010.0f.%s.%ld.0", wall_time(), host, (long)getpid());
    b->path = path_join(folder, name);
    TRY(directory_make(folder));
    b->file = fopen(b->path, "wb");
    if (!b->file) return fail_file("cannot open", b->path);
    Message m = event_now();
    put_bytes(&m, 3, version, strlen(version));
    TRY(write_record(b, &m));
    return tensorboard_flush(b);
}

Status tensorboard_open(const char *folder, TensorBoard **board) {
    *board = NULL;
    if (!*folder) return OK;
    TensorBoard *b = memory_allocate(sizeof *b);
    Status status = open_file(folder, b);
    if (status)
        tensorboard_close(b);
    else
        *board = b;
    return status;
}

void tensorboard_close(TensorBoard *b) {
    if (!b) return;
    if (b->file) fclose(b->file);
    memory_free(b->path);
    memory_free(b);
}

Status tensorboard_add(TensorBoard *b, const char *tag, int64_t step, double value) {
    if (!b) return OK;
    Message event = event_now(), summary = {.count = 0}, item = {.count = 0};
    float simple = (float)value;
    put_bytes(&item, 1, tag, strlen(tag));
    put_key(&item, 2, FIXED32);
    put(&item, &simple, sizeof simple);
    put_bytes(&summary, 1, item.bytes, item.count);
    put_key(&event, 2, VARINT);
    put_varint(&event, (uint64_t)step);
    put_bytes(&event, 5, summary.bytes, summary.count);
    return write_record(b, &event);
}

Status tensorboard_flush(TensorBoard *b) {
    if (!b || fflush(b->file) == 0) return OK;
    return fail_file("write", b->path);
}
