#include "base/gzip.h"

#include "base/files.h"
#include "base/memory.h"

#include <zlib.h>

enum { PIECE = 1 << 18, GZIP_WINDOW = 15 + 16, MEMORY_LEVEL = 8 }; // 16 requests a gzip header

int64_t gzip_most(int64_t bytes) {
    enum { LEAST = 1 << 26, RATIO = 64 };
    return bytes > LEAST / RATIO ? RATIO * bytes : LEAST;
}

/* Feeds zlib in pieces that fit its 32-bit counts, and appends the output. */
static Status deflate_all(z_stream *stream, const unsigned char *data, int64_t bytes, unsigned char *out,
                          FileWriter *writer) {
    int answer = Z_OK;
    while (answer != Z_STREAM_END) {
        if (stream->avail_in == 0 && bytes > 0) {
            uInt piece = (uInt)(bytes < PIECE ? bytes : PIECE);
            stream->next_in = (unsigned char *)data;
            stream->avail_in = piece;
            data += piece;
            bytes -= piece;
        }
        stream->next_out = out;
        stream->avail_out = PIECE;
        answer = deflate(stream, bytes > 0 ? Z_NO_FLUSH : Z_FINISH);
        if (answer == Z_STREAM_ERROR) return fail(ERROR_INTERNAL, "zlib cannot compress");
        TRY(file_writer_append(writer, out, PIECE - (int64_t)stream->avail_out));
    }
    return OK;
}

static void stream_close(z_stream *stream) {
    (void)deflateEnd(stream); // does nothing to a stream that was never ready
}

static Status write_compressed(const char *path, const void *data, int64_t bytes) {
    FileWriter *writer;
    CLOSED_BY(stream_close) z_stream stream = {0};
    OWNED unsigned char *out = memory_allocate(PIECE);
    if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, GZIP_WINDOW, MEMORY_LEVEL,
                     Z_DEFAULT_STRATEGY) != Z_OK)
        return fail(ERROR_MEMORY, "out of host memory to compress %s", path);
    TRY(file_writer_open(path, &writer));
    return file_writer_finish(writer, deflate_all(&stream, data, bytes, out, writer));
}

Status gzip_write(const char *path, const void *data, int64_t bytes) {
    return path_ends_with(path, ".gz") ? write_compressed(path, data, bytes) : file_write(path, data, bytes);
}
