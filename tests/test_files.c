/* base/files, base/directories and base/gzip. */
#include "base/directories.h"
#include "base/gzip.h"
#include "base/memory.h"
#include "tests/support/expect.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

/* ---- files ---- */

static void maps_files(void **state) {
    FileMap map;
    write_text_file(inside(*state, "full"), "some text");
    expect_ok(file_map(inside(*state, "full"), &map));
    assert_int_equal(map.size, 9);
    assert_memory_equal(map.data, "some text", 9);
    file_unmap(&map);
    assert_null(map.data);
    write_text_file(inside(*state, "empty"), "");
    expect_ok(file_map(inside(*state, "empty"), &map));
    assert_int_equal(map.size, 0);
    assert_non_null(map.data);
    file_unmap(&map);
    expect_error(file_map(inside(*state, "none"), &map), ERROR_FILE, "none: No such file");
    expect_error(file_map(*state, &map), ERROR_FILE, "not a regular file");
    assert_int_equal(mkfifo(inside(*state, "pipe"), 0600), 0);
    alarm(10); // else it would wait for a writer
    expect_error(file_map(inside(*state, "pipe"), &map), ERROR_FILE, "not a regular file");
    alarm(0);
}

static void reads_up_to_a_limit(void **state) {
    char *text, large[100000];
    int64_t length;
    memset(large, 'x', sizeof large);
    write_bytes(inside(*state, "large"), large, sizeof large);
    expect_ok(file_read(inside(*state, "large"), sizeof large, &text, &length));
    assert_int_equal(length, sizeof large);
    assert_memory_equal(text, large, sizeof large);
    assert_int_equal(text[length], 0);
    memory_free(text);
    expect_error(file_read(inside(*state, "large"), sizeof large - 1, &text, &length), ERROR_FORMAT,
                 "larger than");
    assert_null(text);
    expect_error(file_read(inside(*state, "none"), 10, &text, &length), ERROR_FILE, "No such file");
    expect_error(file_read(*state, 10, &text, &length), ERROR_FILE, "directory");
    write_text_file(inside(*state, "empty"), "");
    expect_ok(file_read(inside(*state, "empty"), 0, &text, &length));
    assert_int_equal(length, 0);
    memory_free(text);
}

static void expect_text(const char *path, const char *expected) {
    char *text;
    int64_t length;
    expect_ok(file_read(path, 1 << 20, &text, &length));
    assert_string_equal(text, expected);
    memory_free(text);
}

static void expect_entries(const char *folder, int64_t count) {
    PathList list;
    expect_ok(directory_list(folder, &list));
    assert_int_equal(list.count, count);
    path_list_free(&list);
}

static void writes_atomically(void **state) {
    const char *path = inside(*state, "file");
    FileWriter *writer, *other;
    expect_ok(file_write(path, "old", 3));
    expect_ok(file_writer_open(path, &writer));
    expect_ok(file_writer_append(writer, "....", 4));
    expect_ok(file_writer_append(writer, "tail", 4));
    expect_ok(file_writer_write_at(writer, 0, "head", 4));
    expect_text(path, "old"); /* until the close */
    expect_ok(file_writer_open(path, &other));
    expect_ok(file_writer_append(other, "never", 5));
    file_writer_abandon(other);
    expect_text(path, "old");
    expect_ok(file_writer_close(writer));
    expect_text(path, "headtail");
    expect_entries(*state, 1); /* no temporary file is left */
    expect_ok(file_writer_close(NULL));
    file_writer_abandon(NULL);
}

/* More than one of the pieces in which gzip_write calls zlib, and not a multiple. */
static void compresses_by_name(void **state) {
    enum { BYTES = 700001 };
    unsigned char *data = memory_allocate(BYTES), *back = memory_allocate(BYTES);
    assert_non_null(data);
    assert_non_null(back);
    for (int64_t i = 0; i < BYTES; i++) data[i] = (unsigned char)(i * i >> 7);
    for (int compressed = 0; compressed < 2; compressed++) {
        const char *path = inside(*state, compressed ? "squares.gz" : "squares");
        expect_ok(gzip_write(path, data, BYTES));
        gzFile file = gzopen(path, "rb");
        assert_non_null(file);
        assert_int_equal(gzread(file, back, BYTES), BYTES);
        assert_int_equal(gzdirect(file), !compressed);
        assert_int_equal(gzgetc(file), -1);
        assert_int_equal(gzclose(file), Z_OK);
        assert_memory_equal(back, data, BYTES);
    }
    expect_ok(gzip_write(inside(*state, "empty.gz"), "", 0));
    gzFile file = gzopen(inside(*state, "empty.gz"), "rb");
    assert_int_equal(gzread(file, back, BYTES), 0);
    assert_int_equal(gzdirect(file), 0);
    assert_int_equal(gzclose(file), Z_OK);
    expect_error(gzip_write(inside(*state, "none/a.gz"), data, BYTES), ERROR_FILE, "none/a.gz");
    memory_free(data);
    memory_free(back);
}

/* A device or a pipe is never replaced by a file, even as root. */
static void writes_into_devices(void **state) {
    const char *fifo = inside(*state, "out");
    struct stat about;
    FileWriter *writer;
    char read_back[8];
    assert_int_equal(mkfifo(fifo, 0600), 0);
    int reader = open(fifo, O_RDONLY | O_NONBLOCK);
    assert_true(reader >= 0);
    expect_ok(file_writer_open(fifo, &writer));
    expect_ok(file_writer_append(writer, "one ", 4));
    expect_ok(file_writer_append(writer, "two", 4));
    expect_error(file_writer_write_at(writer, 0, "x", 1), ERROR_FILE, "front to back");
    expect_ok(file_writer_close(writer));
    assert_int_equal(read(reader, read_back, sizeof read_back), 8);
    assert_string_equal(read_back, "one two");
    close(reader);
    assert_int_equal(stat(fifo, &about), 0);
    assert_true(S_ISFIFO(about.st_mode));
    const char *full = inside(*state, "full");
    assert_int_equal(symlink("/dev/full", full), 0); // writing must not replace the link by a file
    expect_error(file_write(full, "x", 1), ERROR_FILE, "No space left");
    assert_int_equal(lstat(full, &about), 0);
    assert_true(S_ISLNK(about.st_mode));
}

static void writes_through_links(void **state) {
    struct stat about;
    FileMap map;
    write_text_file(inside(*state, "target"), "old");
    assert_int_equal(symlink("target", inside(*state, "link")), 0);
    expect_ok(file_write(inside(*state, "link"), "new one", 7));
    assert_int_equal(lstat(inside(*state, "link"), &about), 0);
    assert_true(S_ISLNK(about.st_mode));
    expect_ok(file_map(inside(*state, "target"), &map));
    assert_int_equal(map.size, 7);
    file_unmap(&map);
    assert_int_equal(symlink("nowhere", inside(*state, "dangling")), 0);
    expect_ok(file_write(inside(*state, "dangling"), "x", 1));
}

static void reports_failed_writes(void **state) {
    FileWriter *writer;
    expect_error(file_writer_open(inside(*state, "no/such/file"), &writer), ERROR_FILE, "No such file");
    assert_null(writer);
    expect_ok(directory_make(inside(*state, "folder")));
    expect_error(file_write(inside(*state, "folder"), "x", 1), ERROR_FILE, "directory");
    expect_entries(*state, 1);
}

static void joins_and_takes_paths_apart(void **state) {
    (void)state;
    char *path;
    const char *cases[][3] = {
        {"a", "b", "a/b"}, {"a/", "b", "a/b"}, {"a", "/b", "/b"}, {"", "b", "b"}, {"/", "b", "/b"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        path = path_join(cases[i][0], cases[i][1]);
        assert_string_equal(path, cases[i][2]);
        memory_free(path);
    }
    assert_string_equal(path_name("a/b/c.txt"), "c.txt");
    assert_string_equal(path_name("c.txt"), "c.txt");
    assert_true(path_ends_with("x.bin", ".bin"));
    assert_false(path_ends_with("in", ".bin"));
}

/* Only a file that does not exist is PATH_ABSENT. */
static void tells_what_is_there(void **state) {
    PathKind kind;
    write_text_file(inside(*state, "file"), "");
    expect_ok(path_kind(*state, &kind));
    assert_int_equal(kind, PATH_FOLDER);
    expect_ok(path_kind(inside(*state, "file"), &kind));
    assert_int_equal(kind, PATH_FILE);
    assert_int_equal(symlink("nowhere", inside(*state, "dangling")), 0);
    static const char *const absent[] = {"none", "none/file", "file/below", "dangling"};
    for (int i = 0; i < 4; i++) {
        expect_ok(path_kind(inside(*state, absent[i]), &kind));
        assert_int_equal(kind, PATH_ABSENT);
    }
    assert_int_equal(symlink("loop", inside(*state, "loop")), 0);
    expect_error(path_kind(inside(*state, "loop"), &kind), ERROR_FILE, "loop: Too many levels");
    char name[300] = "";
    memset(name, 'x', sizeof name - 1);
    expect_error(path_kind(inside(*state, name), &kind), ERROR_FILE, "File name too long");
}

static void makes_lists_and_removes_folders(void **state) {
    expect_ok(directory_make(inside(*state, "a/b//c/")));
    expect_ok(directory_make(inside(*state, "a/b/c")));
    write_text_file(inside(*state, "a/2.txt"), "");
    write_text_file(inside(*state, "a/10.txt"), "");
    write_text_file(inside(*state, "a/.hidden"), "");
    expect_error(directory_make(inside(*state, "a/2.txt")), ERROR_FILE, "exists");
    expect_error(directory_make(inside(*state, "a/2.txt/x")), ERROR_FILE, "2.txt");
    PathList list;
    expect_ok(directory_list(inside(*state, "a"), &list));
    assert_int_equal(list.count, 3);
    assert_string_equal(list.paths[0], inside(*state, "a/10.txt"));
    assert_string_equal(list.paths[2], inside(*state, "a/b"));
    path_list_free(&list);
    expect_ok(path_glob(inside(*state, "a/*.txt"), &list));
    assert_int_equal(list.count, 2);
    assert_string_equal(list.paths[1], inside(*state, "a/2.txt"));
    path_list_free(&list);
    expect_ok(path_glob(inside(*state, "*.none"), &list));
    assert_int_equal(list.count, 0);
    expect_error(directory_list(inside(*state, "none"), &list), ERROR_FILE, "No such file");
    /* Removing a link keeps its target. */
    write_text_file(inside(*state, "kept"), "kept");
    assert_int_equal(symlink("../kept", inside(*state, "a/link")), 0);
    expect_ok(directory_remove(inside(*state, "a")));
    assert_false(path_exists(inside(*state, "a")));
    expect_text(inside(*state, "kept"), "kept");
    expect_ok(directory_remove(inside(*state, "a")));
}

/* Publishes a folder whose two files both hold `version`. */
static Status publish(const char *target, int version) {
    char *stage, *path, text[32];
    snprintf(text, sizeof text, "%d", version);
    TRY(directory_stage(target, &stage));
    path = path_join(stage, "one");
    TRY(file_write(path, text, (int64_t)strlen(text)));
    memory_free(path);
    path = path_join(stage, "two");
    TRY(file_write(path, text, (int64_t)strlen(text)));
    memory_free(path);
    Status status = directory_publish(stage, target);
    memory_free(stage);
    return status;
}

static void publishes_folders(void **state) {
    const char *target = inside(*state, "target");
    expect_ok(publish(target, 1));
    expect_text(inside(target, "one"), "1");
    write_text_file(inside(target, "stray"), "");
    expect_ok(publish(inside(*state, "target/"), 2)); /* a trailing slash makes no difference */
    expect_text(inside(target, "two"), "2");
    assert_false(path_exists(inside(target, "stray")));
    expect_entries(*state, 1);
    char *stage;
    expect_ok(directory_stage(target, &stage));
    write_text_file(inside(stage, "left"), "over");
    memory_free(stage);
    expect_ok(publish(target, 3)); /* leftovers of an interrupted process do no harm */
    expect_entries(target, 2);
    expect_entries(*state, 1);
    expect_error(directory_publish(inside(*state, "none"), inside(*state, "new")), ERROR_FILE,
                 "No such file");
}

/* Killed at any moment, the target is whole. */
static void publishing_survives_kill(void **state) {
    char *target = strdup(inside(*state, "target"));
    int last = 0;
    for (int round = 0; round < 20; round++) {
        int done[2]; /* the child reports its first publication */
        assert_int_equal(pipe(done), 0);
        pid_t child = fork();
        if (child == 0)
            for (int version = last + 1;; version++)
                if (publish(target, version) || write(done[1], "", 1) != 1) _exit(1);
        char word;
        assert_int_equal(read(done[0], &word, 1), 1);
        usleep((useconds_t)(137 * round));
        kill(child, SIGKILL);
        int how;
        waitpid(child, &how, 0);
        assert_true(WIFSIGNALED(how));
        close(done[0]);
        close(done[1]);
        char *one, *two;
        int64_t length;
        expect_ok(file_read(inside(target, "one"), 100, &one, &length));
        expect_ok(file_read(inside(target, "two"), 100, &two, &length));
        assert_string_equal(one, two);
        assert_true(atoi(one) > last);
        last = atoi(one);
        memory_free(one);
        memory_free(two);
    }
    free(target);
}

/* A pipe without a writer, in place of a file, is empty and does not block; one with a writer is read to its
 * end. */
static void a_pipe_is_read(void **state) {
    const char *path = inside(*state, "pipe");
    char *text;
    int64_t length;
    assert_int_equal(mkfifo(path, 0600), 0);
    expect_ok(file_read(path, 100, &text, &length));
    assert_int_equal(length, 0);
    memory_free(text);
    int reader = open(path, O_RDONLY | O_NONBLOCK), writer = open(path, O_WRONLY);
    assert_int_equal(write(writer, "text", 4), 4);
    pid_t child = fork();
    if (child == 0) {
        usleep(100000);
        _exit(write(writer, " more", 5) != 5);
    }
    close(writer);
    expect_ok(file_read(path, 100, &text, &length));
    assert_string_equal(text, "text more");
    memory_free(text);
    close(reader);
    waitpid(child, NULL, 0);
}

/* An untrusted link to a pipe that never ends. */
static void a_link_to_a_device_or_a_pipe_is_refused(void **state) {
    const char *path = inside(*state, "link");
    char *text, end[40];
    int64_t length;
    int ends[2];
    assert_int_equal(symlink("/dev/zero", path), 0);
    expect_error(file_read(path, 100, &text, &length), ERROR_FILE, "a link to one");
    assert_int_equal(pipe(ends), 0);
    snprintf(end, sizeof end, "/proc/self/fd/%d", ends[0]);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink(end, path), 0);
    alarm(10); // else reading would block, because the write end is open here
    expect_error(file_read(path, 100, &text, &length), ERROR_FILE, "a link to one");
    alarm(0);
    close(ends[1]);
    expect_ok(file_read(end, 100, &text, &length)); // named by the user, it is read
    memory_free(text);
    close(ends[0]);
}

static int64_t descriptors(void) {
    PathList open = {0};
    expect_ok(directory_list("/proc/self/fd", &open));
    int64_t count = open.count;
    path_list_free(&open);
    return count;
}

/* Opening succeeds, and a later step fails. */
static void failures_leave_nothing_open(void **state) {
    const char *text = inside(*state, "text"), *folder = inside(*state, "folder"),
               *pipe = inside(*state, "pipe");
    char *read;
    int64_t length;
    FileMap map;
    write_text_file(text, "more than two bytes");
    expect_ok(directory_make(folder));
    assert_int_equal(mkfifo(pipe, 0600), 0);
    const int64_t before = descriptors();
    for (int i = 0; i < 3; i++) {
        expect_error(file_read(folder, 100, &read, &length), ERROR_FILE, "folder");
        expect_error(file_read(text, 2, &read, &length), ERROR_FORMAT, "text");
        expect_error(file_read("/dev/zero", 100, &read, &length), ERROR_FORMAT, "/dev/zero");
        expect_error(file_map(folder, &map), ERROR_FILE, "folder");
        expect_error(file_map(pipe, &map), ERROR_FILE, "pipe");
    }
    assert_int_equal(descriptors(), before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(maps_files, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(reads_up_to_a_limit, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(writes_atomically, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(writes_into_devices, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(writes_through_links, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(compresses_by_name, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(a_pipe_is_read, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(a_link_to_a_device_or_a_pipe_is_refused, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(reports_failed_writes, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(failures_leave_nothing_open, scratch_setup, scratch_teardown),
        cmocka_unit_test(joins_and_takes_paths_apart),
        cmocka_unit_test_setup_teardown(tells_what_is_there, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(makes_lists_and_removes_folders, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(publishes_folders, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(publishing_survives_kill, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
