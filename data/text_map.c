#define _GNU_SOURCE
#include "data/text_map.h"

#include "base/gzip.h"
#include "base/memory.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

/* ---- gzip ---- */

enum { PIECE = 1 << 18, GZIP_WINDOW = 15 + 16 }; // 16 selects the gzip format

static bool is_gzip(const FileMap *map) {
    return map->size > 2 && map->data[0] == 0x1F && map->data[1] == 0x8B;
}

static Status write_all(int file, const uint8_t *bytes, size_t count) {
    while (count > 0) {
        ssize_t written = write(file, bytes, count);
        if (written <= 0) return fail(ERROR_MEMORY, "out of host memory for the decompressed text");
        bytes += written;
        count -= (size_t)written;
    }
    return OK;
}

/* Several gzip members may follow each other: their contents form one text. */
static Status inflate_all(const char *path, const FileMap *from, z_stream *stream, uint8_t *out, int file) {
    int64_t read = 0, written = 0;
    int answer = Z_OK;
    while (answer != Z_STREAM_END || stream->avail_in > 0 || read < from->size) {
        if (answer == Z_STREAM_END && inflateReset(stream) != Z_OK)
            return fail(ERROR_INTERNAL, "zlib cannot be reset");
        if (stream->avail_in == 0) {
            int64_t left = from->size - read;
            stream->avail_in = (uInt)(left < PIECE ? left : PIECE);
            stream->next_in = (uint8_t *)(uintptr_t)from->data + read;
            read += stream->avail_in;
        }
        stream->next_out = out;
        stream->avail_out = PIECE;
        answer = inflate(stream, Z_NO_FLUSH);
        if (answer != Z_OK && answer != Z_STREAM_END)
            return fail(ERROR_FORMAT, "%s: the compressed data are damaged, or end too early", path);
        written += PIECE - stream->avail_out;
        if (written > gzip_most(from->size))
            return fail(ERROR_FORMAT, "%s uncompresses to more than 64 times its size; no text does", path);
        TRY(write_all(file, out, PIECE - stream->avail_out));
    }
    return OK;
}

static void close_file(const int *file) {
    if (*file >= 0) close(*file);
}

static void close_stream(z_stream *stream) {
    inflateEnd(stream); // refuses a stream that never began
}

/* Replaces a compressed `map` by its contents, in a file in memory. */
static Status uncompress_map(const char *path, FileMap *map) {
    CLOSED_BY(close_stream) z_stream stream = {0};
    CLOSED_BY(close_file) int file = memfd_create("text", MFD_CLOEXEC);
    char name[64];
    if (file < 0) return fail_file("cannot make room to uncompress", path);
    OWNED uint8_t *out = memory_allocate(PIECE);
    if (inflateInit2(&stream, GZIP_WINDOW) != Z_OK)
        return fail(ERROR_MEMORY, "out of host memory to uncompress %s", path);
    TRY(inflate_all(path, map, &stream, out, file));
    file_unmap(map);
    snprintf(name, sizeof name, "/proc/self/fd/%d", file);
    return file_map(name, map);
}

/* ---- other formats ---- */

typedef struct {
    const char *name;
    int at, length; // offset and length of the magic number
    const char *mark;
} Format;

static const Format formats[] = {
    {"a zip archive, as .npz, .docx and PyTorch's files are", 0, 4, "PK\x03\x04"},
    {"a Parquet file", 0, 4, "PAR1"},
    {"a NumPy array", 0, 6, "\x93NUMPY"},
    {"an Arrow file", 0, 6, "ARROW1"},
    {"an HDF5 file", 0, 4, "\x89HDF"},
    {"a GGUF file", 0, 4, "GGUF"},
    {"a safetensors file", 8, 2, "{\""},
    {"a tar archive", 257, 5, "ustar"},
    {"compressed by bzip2", 0, 3, "BZh"},
    {"compressed by xz", 0, 5,
     "\xFD"
     "7zXZ"},
    {"compressed by zstd", 0, 4, "\x28\xB5\x2F\xFD"},
    {"a 7z archive", 0, 4, "7z\xBC\xAF"},
    {"a PDF", 0, 5, "%PDF-"},
    {"a PNG picture", 0, 4, "\x89PNG"},
    {"a JPEG picture", 0, 3, "\xFF\xD8\xFF"},
    {"an SQLite database", 0, 15, "SQLite format 3"},
    {"a program", 0, 4,
     "\x7F"
     "ELF"},
    {"text in UTF-16", 0, 2, "\xFF\xFE"},
    {"text in UTF-16", 0, 2, "\xFE\xFF"},
};

static bool bears(const FileMap *map, const Format *f) {
    if (map->size < f->at + f->length || memcmp(map->data + f->at, f->mark, (size_t)f->length) != 0)
        return false;
    if (f->at != 8) return true;
    uint64_t header; // length of a safetensors header, little-endian
    memcpy(&header, map->data, sizeof header);
    return header + 8 <= (uint64_t)map->size;
}

static Status check_text(const char *path, const FileMap *map) {
    enum { CUT_MOST = 3 }; // most bytes of a character that the end of a file may cut
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (bears(map, &formats[i]))
            return fail(ERROR_FORMAT, "%s is %s, not plain text; extract or convert it to UTF-8 text", path,
                        formats[i].name);
    const uint8_t *zero = map->size ? memchr(map->data, 0, (size_t)map->size) : NULL;
    if (zero)
        return fail(ERROR_FORMAT,
                    "%s has a zero byte at %" PRId64 ": it is binary, or text in UTF-16, not plain text",
                    path, (int64_t)(zero - map->data));
    int64_t end = utf8_valid_end(map->data, 0, map->size);
    if (map->size - end <= CUT_MOST) return OK;
    return fail(ERROR_FORMAT,
                "%s is not UTF-8: byte %" PRId64 " is 0x%02X; convert it, as by iconv -f LATIN1 -t UTF-8",
                path, end, map->data[end]);
}

Status text_map(const char *path, FileMap *map) {
    TRY(file_map(path, map));
    Status status = is_gzip(map) ? uncompress_map(path, map) : OK;
    if (!status) status = check_text(path, map);
    if (status) file_unmap(map);
    return status;
}
