/* Preloaded into a Python process, this stands between SQLite and the disk, for the files below one folder:

     faults_arm      the n-th write, truncate, sync or open fails, once or from then on
     faults_record   every one of them is written to a log, with marks in between, so that the test can
                     lay out the files as a loss of power would have left them at any point of the log

   Nothing else of the process is touched. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#define FILES 4096

static char folder[4096];          /* the folder whose files are watched; empty: none */
static char *names[FILES];         /* name of each watched descriptor */
static long until = -1;            /* operations left before one fails; -1: none will */
static int failure, for_good, log_to = -1;
static long seen;

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, name)

static int watched(int fd) { return fd >= 0 && fd < FILES && names[fd]; }

static int ours(const char *path) {
    size_t length = strlen(folder);
    const char *end = strrchr(path, '-');
    if (!length || strncmp(path, folder, length)) return 0;
    return !(end && !strcmp(end, "-shm"));  /* shared memory, no file that is read after a crash */
}

static void note(char kind, const char *path, int64_t at, const void *data, uint32_t size) {
    if (log_to < 0) return;
    uint32_t length = (uint32_t)strlen(path);
    syscall(SYS_write, log_to, &kind, 1);
    syscall(SYS_write, log_to, &length, 4);
    syscall(SYS_write, log_to, path, length);
    syscall(SYS_write, log_to, &at, 8);
    syscall(SYS_write, log_to, &size, 4);
    if (size) syscall(SYS_write, log_to, data, size);
}

/* Whether this operation is the one that fails. */
static int fails(void) {
    seen++;
    if (until < 0) return 0;
    if (until > 0) { until--; return 0; }
    if (!for_good) until = -1;
    errno = failure;
    return 1;
}

void faults_watch(const char *path) { strncpy(folder, path, sizeof folder - 1); }
void faults_arm(long operations, int number, int forever) { until = operations; failure = number; for_good = forever; seen = 0; }
long faults_disarm(void) { until = -1; return seen; }
void faults_record(const char *path) {
    log_to = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, 0600) : -1;
}
void faults_mark(int64_t number) { note('m', "", number, NULL, 0); }

static int opened(int fd, const char *path, int existed) {
    if (fd >= 0 && fd < FILES) {
        free(names[fd]);
        names[fd] = strdup(path);
        if (!existed) note('c', path, 0, NULL, 0);
    }
    return fd;
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        REAL(int, #name, const char *, int, ...); \
        mode_t mode = 0; \
        if (flags & O_CREAT) { va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); } \
        if (!ours(path)) return real(path, flags, mode); \
        struct stat found; \
        int existed = !stat(path, &found); \
        if (S_ISDIR(found.st_mode) && existed) return real(path, flags, mode); \
        if (fails()) return -1; \
        return opened(real(path, flags, mode), path, existed); \
    }
OPEN(open)
OPEN(open64)

int close(int fd) {
    REAL(int, "close", int);
    if (watched(fd)) { free(names[fd]); names[fd] = NULL; }
    return real(fd);
}

/* A disk that fills up takes the first half of a write. */
#define PWRITE(name, offset) \
    ssize_t name(int fd, const void *data, size_t size, offset at) { \
        REAL(ssize_t, #name, int, const void *, size_t, offset); \
        if (!watched(fd)) return real(fd, data, size, at); \
        if (fails()) { \
            if (errno == ENOSPC && size > 1) { real(fd, data, size / 2, at); note('w', names[fd], at, data, size / 2); } \
            errno = failure; \
            return -1; \
        } \
        ssize_t done = real(fd, data, size, at); \
        if (done > 0) note('w', names[fd], at, data, (uint32_t)done); \
        return done; \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

ssize_t write(int fd, const void *data, size_t size) {
    REAL(ssize_t, "write", int, const void *, size_t);
    if (!watched(fd)) return real(fd, data, size);
    if (fails()) return -1;
    off_t at = lseek(fd, 0, SEEK_CUR);
    ssize_t done = real(fd, data, size);
    if (done > 0) note('w', names[fd], at, data, (uint32_t)done);
    return done;
}

#define TRUNCATE(name, offset) \
    int name(int fd, offset size) { \
        REAL(int, #name, int, offset); \
        if (!watched(fd)) return real(fd, size); \
        if (fails()) return -1; \
        int done = real(fd, size); \
        if (!done) note('t', names[fd], size, NULL, 0); \
        return done; \
    }
TRUNCATE(ftruncate, off_t)
TRUNCATE(ftruncate64, off64_t)

#define SYNC(name) \
    int name(int fd) { \
        REAL(int, #name, int); \
        if (!watched(fd)) return real(fd); \
        if (fails()) return -1; \
        int done = real(fd); \
        if (!done) note('s', names[fd], 0, NULL, 0); \
        return done; \
    }
SYNC(fsync)
SYNC(fdatasync)

int unlink(const char *path) {
    REAL(int, "unlink", const char *);
    int done = real(path);
    if (!done && ours(path)) note('u', path, 0, NULL, 0);
    return done;
}
