#include "profile/watch.h"

#include "base/memory.h"

#include <assert.h>

/* The device's original functions. */
typedef struct {
    Recorder *recorder;
    Device device;
} Watch;

static Status watched_fill(Device *device, void *memory, int byte, size_t bytes) {
    Watch *w = device->watcher;
    record_transfer(w->recorder, RECORD_FILL, bytes);
    TRY(w->device.fill(device, memory, byte, bytes));
    record_end(w->recorder);
    return OK;
}

static Status watched_upload(Device *device, void *memory, const void *host, size_t bytes) {
    Watch *w = device->watcher;
    record_transfer(w->recorder, RECORD_UPLOAD, bytes);
    TRY(w->device.upload(device, memory, host, bytes));
    record_end(w->recorder);
    return OK;
}

static Status watched_download(Device *device, void *host, const void *memory, size_t bytes) {
    Watch *w = device->watcher;
    record_transfer(w->recorder, RECORD_DOWNLOAD, bytes);
    TRY(w->device.download(device, host, memory, bytes));
    record_end(w->recorder);
    return OK;
}

static Status watched_copy(Device *device, void *to, const void *from, size_t bytes) {
    Watch *w = device->watcher;
    record_transfer(w->recorder, RECORD_COPY, bytes);
    TRY(w->device.copy(device, to, from, bytes));
    record_end(w->recorder);
    return OK;
}

void watch_begin(Device *device, Recorder *recorder) {
    assert(!device->watcher);
    Watch *w = memory_allocate(sizeof *w);
    *w = (Watch){recorder, *device};
    device->watcher = w;
    device->fill = watched_fill;
    device->upload = watched_upload;
    device->download = watched_download;
    device->copy = watched_copy;
}

void watch_end(Device *device) {
    Watch *w = device->watcher;
    if (!w) return;
    device->fill = w->device.fill;
    device->upload = w->device.upload;
    device->download = w->device.download;
    device->copy = w->device.copy;
    device->watcher = NULL;
    memory_free(w);
}
