/* Makes one in N writes, syncs and truncations of the database's files fail. The tests preload it into the host.
   FAULT_EVERY is N; the sequence of failures is deterministic. FAULT_KIND is "full" (ENOSPC), "broken" (EIO) or
   "short" (half of the bytes are written). With FAULT_WHILE, only while this file exists. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static unsigned long state = 88172645463325252UL;

/* Marsaglia's xorshift64, so that over time every call of a transaction fails once. */
static unsigned long next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* Whether a descriptor is one of the database's files. */
static int is_database(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    const char *name = strrchr(path, '/');
    return name && (!strcmp(name, "/polliwog.db") || !strcmp(name, "/polliwog.db-wal"));
}

/* Whether this call fails: 0 if not, 1 with errno set, 2 for a short write. */
static int fails(int fd) {
    int before = errno;
    const char *every = getenv("FAULT_EVERY"), *kind = getenv("FAULT_KIND"), *during = getenv("FAULT_WHILE");
    if (!every || !kind || (during && access(during, F_OK)) || !is_database(fd)) {
        errno = before;
        return 0;
    }
    errno = before;
    if (next() % atol(every)) return 0;
    if (!strcmp(kind, "short")) return 2;
    errno = strcmp(kind, "full") ? EIO : ENOSPC;
    return 1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) {
    int fault = fails(fd);
    if (fault == 1) return -1;
    return REAL(pwrite64)(fd, bytes, fault == 2 && count > 1 ? count / 2 : count, at);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) {
    int fault = fails(fd);
    if (fault == 1) return -1;
    return REAL(pwrite)(fd, bytes, fault == 2 && count > 1 ? count / 2 : count, at);
}

ssize_t write(int fd, const void *bytes, size_t count) {
    int fault = fails(fd);
    if (fault == 1) return -1;
    return REAL(write)(fd, bytes, fault == 2 && count > 1 ? count / 2 : count);
}

int fsync(int fd) {
    return fails(fd) == 1 ? -1 : REAL(fsync)(fd);
}

int fdatasync(int fd) {
    return fails(fd) == 1 ? -1 : REAL(fdatasync)(fd);
}

int ftruncate64(int fd, off64_t length) {
    return fails(fd) == 1 ? -1 : REAL(ftruncate64)(fd, length);
}

int ftruncate(int fd, off_t length) {
    return fails(fd) == 1 ? -1 : REAL(ftruncate)(fd, length);
}
