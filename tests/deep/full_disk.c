/* Preloaded into a PostgreSQL server, this makes its disk full as long as the file that FULL_DISK names is there:
   what would make a file of a table larger fails with ENOSPC. What is on the disk already can be written. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static int is_full(int fd, off_t end) {
    const char *flag = getenv("FULL_DISK");
    char name[64], path[4096];
    struct stat now;
    ssize_t length;
    int before = errno;
    if (!flag || access(flag, F_OK)) { errno = before; return 0; }
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    length = readlink(name, path, sizeof path - 1);
    errno = before;
    if (length <= 0) return 0;
    path[length] = 0;
    if (!strstr(path, "/base/") || fstat(fd, &now) || end <= now.st_size) { errno = before; return 0; }
    return 1;
}

#define FULL(fd, end) do { if (is_full(fd, end)) { errno = ENOSPC; return -1; } } while (0)
#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, name)

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    REAL(ssize_t, "pwrite", int, const void *, size_t, off_t);
    FULL(fd, at + (off_t)size);
    return real(fd, data, size, at);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    REAL(ssize_t, "pwrite64", int, const void *, size_t, off64_t);
    FULL(fd, (off_t)(at + (off64_t)size));
    return real(fd, data, size, at);
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) {
    REAL(ssize_t, "pwritev", int, const struct iovec *, int, off_t);
    off_t end = at;
    for (int i = 0; i < count; i++) end += (off_t)parts[i].iov_len;
    FULL(fd, end);
    return real(fd, parts, count, at);
}

int posix_fallocate(int fd, off_t at, off_t size) {
    REAL(int, "posix_fallocate", int, off_t, off_t);
    if (is_full(fd, at + size)) return ENOSPC;
    return real(fd, at, size);
}
